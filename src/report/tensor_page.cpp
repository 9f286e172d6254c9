// The page of tensors in block formats.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <unordered_map>

#include "frame.hpp"
#include "quote_text.hpp"
#include "value_text.hpp"

namespace bitcube::report {
namespace {

/// Rows that a picture of all tensors has at most.
constexpr std::size_t kMostRows = 40;
/// Characters of a name that are shown; files of strangers may have longer ones.
constexpr std::size_t kNameLength = 200;
/// The same in the contents, which are narrow.
constexpr std::size_t kEntryLength = 24;

using Ways = std::span<const QuantizeOptions>;

std::string decibels(double sqnr) {
  if (std::isnan(sqnr)) return "–";
  return std::isinf(sqnr) ? "exact" : fmt::format("{:.2f}", sqnr);
}

/// A number for a chart, if it is one.
std::optional<double> finite(double number) {
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

double percent(uint64 count, uint64 whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(count) / static_cast<double>(whole);
}

uint64 bytes_of(const FormatStatistics& s) {
  return s.result.code_bytes + s.result.scale_bytes;
}

std::string share_of_lanes(uint64 count, uint64 lanes) {
  return lanes == 0 ? "–" : share_text(count, lanes);
}

std::string bits_text(uint64 bytes, uint64 lanes) {
  return lanes == 0 ? "–" : fmt::format("{:.3f}", 8 * static_cast<double>(bytes) / static_cast<double>(lanes));
}

/// What chose the bits, for people.
std::string choices_of(const QuantizeOptions& options) {
  const BlockFormat& f = *options.format;
  if (f.is_hif4()) return fmt::format("profile {}", options.profile->name);
  if (f.is_mx()) return fmt::format("scale rule {}, elements {}", options.scale_rule->name, name_of(options.rounding));
  return fmt::format("{}, elements {}", options.tensor_scale ? "with a tensor scale" : "without tensor scale",
                     name_of(options.rounding));
}

std::string percent_number(double number) {
  return fmt::format("{:.3g} %", number);
}

std::string exponent_number(double number) {
  return short_number(number);
}

/// Sums of all tensors in one format.
struct Totals {
  uint64 lanes = 0;
  uint64 bytes = 0;
  uint64 saturated = 0;
  uint64 underflowed = 0;
  uint64 non_finite = 0;
  double signal = 0;
  double noise = 0;
  double lowest = std::numeric_limits<double>::infinity();
  const TensorReport* worst = nullptr;

  double sqnr() const { return signal == 0 && noise == 0 ? std::nan("") : 10 * std::log10(signal / noise); }
};

class TensorPage {
 public:
  TensorPage(const PageHead& head, Ways ways, std::span<const TensorReport> tensors, std::size_t pictured)
      : head_(head), ways_(ways) {
    std::vector<std::string> names;
    for (const TensorReport& tensor : tensors) {
      (tensor.reason.empty() ? measured_ : left_out_).push_back(&tensor);
      names.push_back(name_of(tensor, !tensor.file.empty()));
    }
    std::vector<std::string> shown = distinct_labels(names, kNameLength);
    for (std::size_t i = 0; i < tensors.size(); ++i) names_.emplace(&tensors[i], std::move(shown[i]));
    for (const QuantizeOptions& way : ways) labels_.push_back(label_of(way));
    pictured_ = measured_;
    keep_worst(pictured_, pictured);
  }

  std::string make() && {
    summary();
    if (!measured_.empty()) overview();
    const std::vector<std::string> entries = distinct_labels(short_names(pictured_), kEntryLength);
    for (std::size_t i = 0; i < pictured_.size(); ++i) tensor_section(*pictured_[i], entries[i]);
    left_out();
    how_to_read();
    return std::move(page_).finish(head_);
  }

 private:
  /// The lowest SQNR of a tensor; a tensor without one comes last.
  static double worst_of(const TensorReport& tensor) {
    double worst = std::numeric_limits<double>::infinity();
    for (const FormatStatistics& s : tensor.formats) {
      if (!std::isnan(s.result.error.sqnr)) worst = std::min(worst, s.result.error.sqnr);
    }
    return worst;
  }

  /// Keeps so many tensors, those with the lowest SQNR, in their order.
  static void keep_worst(std::vector<const TensorReport*>& tensors, std::size_t count) {
    if (tensors.size() <= count) return;
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return worst_of(*tensors[i]); });
    order.resize(count);
    std::ranges::sort(order);
    std::vector<const TensorReport*> kept;
    for (const std::size_t i : order) kept.push_back(tensors[i]);
    tensors = std::move(kept);
  }

  /// The name of a tensor so that what cannot be seen is seen.
  static std::string name_of(const TensorReport& tensor, bool with_file) {
    constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
    const std::string name = name_text(tensor.name, kAll);
    return with_file ? name_text(tensor.file, kAll) + ": " + name : name;
  }
  const std::string& name_of_tensor(const TensorReport& tensor) const { return names_.at(&tensor); }
  /// Names without the files, if these are not needed to tell them apart.
  static std::vector<std::string> short_names(const std::vector<const TensorReport*>& tensors) {
    std::vector<std::string> names;
    std::set<std::string_view> different;
    for (const TensorReport* tensor : tensors) different.insert(tensor->name);
    for (const TensorReport* tensor : tensors) {
      names.push_back(name_of(*tensor, different.size() < tensors.size() && !tensor->file.empty()));
    }
    return names;
  }

  /// Lanes that have an error.
  static uint64 finite_lanes(const FormatStatistics& s) { return s.result.error.lanes - s.result.error.non_finite; }
  /// Why there is nothing to be seen of a tensor.
  static std::string nothing_text(const FormatStatistics& s) {
    return s.result.error.lanes == 0 ? "no lanes" : "no finite lanes";
  }

  std::string next_id() { return fmt::format("f{}", ++figures_); }

  void summary() {
    page_.section("summary", "Summary");
    std::vector<Fact> facts = head_.inputs;
    uint64 lanes = 0;
    for (const TensorReport* tensor : measured_) {
      if (!tensor->formats.empty()) lanes += tensor->formats.front().result.error.lanes;
    }
    facts.push_back({"Tensors", fmt::format("{} quantised, {} left out", measured_.size(), left_out_.size()),
                     fmt::format("{} lanes, every one of them counted", count_text(lanes))});
    facts.push_back({"Formats", fmt::format("{}", fmt::join(labels_, ", "))});
    page_.facts(facts);
    page_.command("Made by ", head_.command);
    if (!head_.warnings.empty()) {
      page_.body().open("div", {{"class", "warnings"}});
      for (const std::string& warning : head_.warnings) page_.paragraph(warning);
      page_.body().close();
    }

    std::vector<Totals> totals(ways_.size());
    for (const TensorReport* tensor : measured_) {
      for (std::size_t i = 0; i < totals.size(); ++i) add(totals[i], *tensor, tensor->formats[i]);
    }
    Table table{.title = "All tensors together",
                .header = {"Format", "Bits per element", "SQNR, dB", "Lowest SQNR, dB", "in tensor", "Saturated",
                           "Underflowed", "Not finite", "What chose the bits"},
                .right_aligned = {1, 2, 3, 5, 6, 7}};
    for (std::size_t i = 0; i < totals.size(); ++i) {
      const Totals& t = totals[i];
      table.rows.push_back(
          {labels_[i], bits_text(t.bytes, t.lanes), decibels(t.sqnr()), t.worst == nullptr ? "–" : decibels(t.lowest),
           t.worst == nullptr ? "" : shorten_text(name_of_tensor(*t.worst), 40), share_of_lanes(t.saturated, t.lanes),
           share_of_lanes(t.underflowed, t.lanes), count_text(t.non_finite), choices_of(ways_[i])});
    }
    put_table(page_.body(), table, "All tensors together");
    page_.end_section();
  }

  static void add(Totals& totals, const TensorReport& tensor, const FormatStatistics& s) {
    const ErrorReport& error = s.result.error;
    totals.lanes += error.lanes;
    totals.bytes += bytes_of(s);
    totals.saturated += s.saturated;
    totals.underflowed += s.underflowed;
    totals.non_finite += error.non_finite;
    for (const Cell& cell : s.map.cells) {
      totals.signal += cell.signal;
      totals.noise += cell.noise;
    }
    if (!std::isnan(error.sqnr) && (totals.worst == nullptr || error.sqnr < totals.lowest)) {
      totals.lowest = error.sqnr;
      totals.worst = &tensor;
    }
  }

  /// A picture of one number for each tensor and format.
  template <typename Number, typename Text>
  void dots(std::string_view title, std::string_view axis, bool from_zero, const Number& number, const Text& text) {
    std::vector<const TensorReport*> shown = measured_;
    keep_worst(shown, kMostRows);
    DotChart chart{.axis = std::string(axis), .from_zero = from_zero};
    chart.series = labels_;
    const std::vector<std::string> names = short_names(shown);
    bool empty = true;
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const std::vector<FormatStatistics>& formats = shown[i]->formats;
      DotChart::Row row{.label = names[i], .remark = nothing_text(formats.front())};
      for (const FormatStatistics& s : formats) {
        row.values.push_back(finite(number(s)));
        if (row.values.back()) empty = false;
        // Without noise there are values, but none for a chart.
        if (finite_lanes(s) != 0) row.remark = "no error, or zeros alone";
      }
      chart.rows.push_back(std::move(row));
    }
    Table table{.header = {"Tensor"}};
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      table.header.push_back(labels_[i]);
      table.right_aligned.push_back(i + 1);
    }
    for (const TensorReport* tensor : measured_) {
      std::vector<std::string> row{name_of_tensor(*tensor)};
      for (const FormatStatistics& s : tensor->formats) row.push_back(text(s));
      table.rows.push_back(std::move(row));
    }
    if (empty) {
      nothing(title, shown.size() == 1 ? chart.rows.front().remark : "no tensor has one that is finite");
      return;
    }
    Caption caption{.id = next_id(), .title = std::string(title), .name = std::string(title)};
    caption.description =
        fmt::format("A row for each of {} tensors, with a mark for each of {} formats; the axis is {}.", shown.size(),
                    labels_.size(), axis);
    if (shown.size() < measured_.size()) {
      caption.text =
          fmt::format("The {} tensors with the lowest SQNR; the table has all {}.", shown.size(), measured_.size());
    }
    put_dots(page_.body(), caption, chart, table);
  }

  void overview() {
    page_.section("tensors", "Tensors and formats");
    page_.begin_panels("", "", 3);
    dots(
        "SQNR", "SQNR in dB; more is better", false, [](const FormatStatistics& s) { return s.result.error.sqnr; },
        [](const FormatStatistics& s) { return decibels(s.result.error.sqnr); });
    const auto share = [&](std::string_view title, std::string_view axis, uint64 FormatStatistics::*count) {
      dots(
          title, axis, true,
          [count](const FormatStatistics& s) {
            // Infinite lanes are no finite ones, and may be saturated.
            return finite_lanes(s) == 0 && s.*count == 0 ? std::nan("") : percent(s.*count, s.result.error.lanes);
          },
          [count](const FormatStatistics& s) -> std::string {
            if (s.result.error.lanes == 0) return "–";
            return fmt::format("{} ({})", count_text(s.*count), share_text(s.*count, s.result.error.lanes));
          });
    };
    share("Saturated lanes", "share of the lanes, %", &FormatStatistics::saturated);
    share("Underflowed lanes", "share of the lanes, %", &FormatStatistics::underflowed);
    page_.end_panels();

    Table table{.title = "Every tensor in every format",
                .header = {"Tensor", "Format", "Shape", "Type", "Axis", "SQNR, dB", "Max rel. error", "Mean rel. error",
                           "Max abs. error", "MSE", "Saturated", "Underflowed", "Not finite", "Bytes"},
                .right_aligned = {5, 6, 7, 8, 9, 10, 11, 12, 13}};
    for (const TensorReport* tensor : measured_) {
      for (std::size_t i = 0; i < labels_.size(); ++i) {
        const FormatStatistics& s = tensor->formats[i];
        const ErrorReport& e = s.result.error;
        const auto error_text = [&](double error) { return finite_lanes(s) == 0 ? "–" : short_number(error); };
        table.rows.push_back({name_of_tensor(*tensor), labels_[i], shape_text(tensor->shape), tensor->dtype,
                              fmt::format("{}", tensor->axis), decibels(e.sqnr), error_text(e.max_relative_error),
                              error_text(e.mean_relative_error), error_text(e.max_absolute_error),
                              error_text(e.mean_squared_error), count_text(s.saturated), count_text(s.underflowed),
                              count_text(e.non_finite), count_text(bytes_of(s))});
      }
    }
    page_.body().element("h3", "All numbers");
    put_table(page_.body(), table, "Every tensor in every format");
    if (pictured_.size() < measured_.size()) {
      page_.paragraph(fmt::format("Pictures of their own have the {} tensors with the lowest SQNR.", pictured_.size()));
    }
    page_.end_section();
  }

  void tensor_section(const TensorReport& tensor, std::string_view entry) {
    const std::string& name = name_of_tensor(tensor);
    page_.section(fmt::format("t{}", ++sections_), name, entry);
    const FormatStatistics& first = tensor.formats.front();
    const uint64 lanes = first.result.error.lanes;
    page_.facts(
        std::vector<Fact>{{"Elements", fmt::format("{} of {}", count_text(lanes), tensor.dtype),
                           fmt::format("shape {}; groups lie along axis {}", shape_text(tensor.shape), tensor.axis)},
                          {"Lines", fmt::format("{} of {} lanes", count_text(first.map.lines),
                                                count_text(first.map.lines == 0 ? 0 : lanes / first.map.lines))},
                          magnitudes(first)});
    if (lanes == 0) {
      page_.end_section();
      return;
    }
    begin_panels("Relative error", name,
                 "Lanes by |e| / |x|, an octave each, of those that are not zero. Left of all: no error; right "
                 "of all, in another colour: as large as the value or larger, so what underflowed is there.");
    for_each_format(tensor, [&](std::size_t i, const FormatStatistics& s) { relative(i, s); });
    page_.end_panels();
    begin_panels("Error in steps", name,
                 "Lanes by e in units of the distance between neighbouring codes. Rounding to nearest stays "
                 "between the dashed lines; what is beyond saturated, or has a scale that was rounded.");
    for_each_format(tensor, [&](std::size_t i, const FormatStatistics& s) { steps(i, s); });
    page_.end_panels();
    begin_panels("Scale exponents", name, "Groups by the power of two of the scale that is stored for them.");
    for_each_format(tensor, [&](std::size_t i, const FormatStatistics& s) { exponents(i, s); });
    page_.end_panels();
    begin_panels("Scale exponents over the matrix", name,
                 "Each line of the tensor is a row, each of its groups a column; a cell is the mean of the groups "
                 "that fall into it.");
    for_each_format(tensor, [&](std::size_t i, const FormatStatistics& s) { exponent_map(i, s); });
    page_.end_panels();
    begin_panels("Error over the matrix", name,
                 "The same cells: the root of the sum of e² over the root of the sum of x².");
    for_each_format(tensor, [&](std::size_t i, const FormatStatistics& s) { error_map(i, s); });
    page_.end_panels();
    page_.end_section();
  }

  static Fact magnitudes(const FormatStatistics& s) {
    if (finite_lanes(s) == 0) return {"Magnitudes", nothing_text(s)};
    if (s.largest == 0) return {"Magnitudes", "0", "in every finite lane"};
    return {"Magnitudes", fmt::format("{} to {}", short_number(s.smallest), short_number(s.largest)),
            fmt::format("and {} zeros", count_text(s.zero))};
  }

  /// What stands in the place of a picture that would be empty.
  void nothing(std::string_view title, std::string_view text) {
    page_.body().open("p").element("b", title).text(" ").element("span", {{"class", "note"}}, text).close();
  }
  /// The same of lanes that have no errors, or no relative ones.
  void nothing(std::size_t i, const FormatStatistics& s) {
    nothing(labels_[i], finite_lanes(s) == 0 ? nothing_text(s) : "every finite lane is 0");
  }

  void begin_panels(std::string_view title, const std::string& tensor, std::string_view text) {
    page_.begin_panels(title, text, labels_.size());
    heading_ = title;
    tensor_ = tensor;
  }
  std::string name_of_picture(std::size_t i) const { return fmt::format("{}, {}, {}", heading_, labels_[i], tensor_); }

  template <typename Use>
  void for_each_format(const TensorReport& tensor, const Use& use) {
    for (std::size_t i = 0; i < tensor.formats.size(); ++i) use(i, tensor.formats[i]);
  }

  Table share_table(std::string_view what) const {
    return {.header = {std::string(what), "Lanes", "Share"}, .right_aligned = {1, 2}};
  }

  void relative(std::size_t i, const FormatStatistics& s) {
    const uint64 whole = std::accumulate(s.relative.begin(), s.relative.end(), uint64{0});
    if (whole == 0) return nothing(i, s);
    ColumnChart chart{.axis = "|e| / |x|", .share_of = whole};
    Table table = share_table("|e| / |x|");
    for (std::size_t bin = 0; bin < kRelativeBins; ++bin) {
      chart.columns.push_back({s.relative[bin], bin + 1 == kRelativeBins});
      const int octave = kLowestOctave + static_cast<int>(bin) - 2;
      std::string name = fmt::format("{} to {}", power_text(octave), power_text(octave + 1));
      if (bin == 0) name = "0";
      if (bin == 1) name = "below " + power_text(kLowestOctave);
      if (bin + 1 == kRelativeBins) name = "1 or more";
      table.rows.push_back({name, count_text(s.relative[bin]), share_text(s.relative[bin], whole)});
    }
    chart.ticks.push_back({0.5, "0"});
    for (int octave = kLowestOctave; octave < 0; octave += 4) {
      chart.ticks.push_back({static_cast<double>(octave - kLowestOctave + 2), power_text(octave)});
    }
    chart.ticks.push_back({kRelativeBins - 0.5, "≥1"});
    const ErrorReport& error = s.result.error;
    put_columns(page_.body(),
                {.id = next_id(),
                 .title = labels_[i],
                 .name = name_of_picture(i),
                 .text = fmt::format("mean {}, max {}", short_number(error.mean_relative_error),
                                     short_number(error.max_relative_error)),
                 .description = fmt::format("Shares of {} lanes by relative error, in {} classes; mean {}, largest {}.",
                                            count_text(whole), kRelativeBins, short_number(error.mean_relative_error),
                                            short_number(error.max_relative_error))},
                chart, table);
  }

  void steps(std::size_t i, const FormatStatistics& s) {
    const uint64 whole = std::accumulate(s.steps.begin(), s.steps.end(), uint64{0});
    if (whole == 0) {
      return nothing(labels_[i], s.without_step == 0 ? nothing_text(s)
                                                     : fmt::format("{} lanes under a scale of 0, which has no steps",
                                                                   count_text(s.without_step)));
    }
    ColumnChart chart{.axis = "e / step; logarithmic count of lanes"};
    Table table = share_table("e / step, around");
    uint64 inside = 0;
    for (std::size_t bin = 0; bin < kStepBins; ++bin) {
      const int part = static_cast<int>(bin) - kStepParts - 1;
      const bool outer = bin == 0 || bin + 1 == kStepBins;
      chart.columns.push_back({s.steps[bin], outer});
      std::string name = fmt::format("{:g}", static_cast<double>(part) / kStepParts);
      if (outer) name = bin == 0 ? "less" : "more";
      if (2 * std::abs(part) <= kStepParts) inside += s.steps[bin];
      table.rows.push_back({name, count_text(s.steps[bin]), share_text(s.steps[bin], whole)});
    }
    for (const int quarter : {-4, -2, 0, 2, 4}) {
      constexpr std::array<const char*, 9> names{"−1", "", "−½", "", "0", "", "½", "", "1"};
      const double middle = kStepParts + 1.5 + quarter * kStepParts / 4.0;
      chart.ticks.push_back({middle, names[static_cast<std::size_t>(quarter + 4)]});
      if (std::abs(quarter) == 2) chart.marks.push_back(middle + (quarter < 0 ? -0.5 : 0.5));
    }
    std::string text = fmt::format("{} within half a step", share_text(inside, whole));
    if (s.without_step != 0) text += fmt::format("; {} lanes under a scale of 0", count_text(s.without_step));
    put_columns(page_.body(),
                {.id = next_id(),
                 .title = labels_[i],
                 .name = name_of_picture(i),
                 .text = text,
                 .description = fmt::format("Counts of {} lanes by error in steps, from -1 to 1 and beyond; {}.",
                                            count_text(whole), text)},
                chart, table);
  }

  void exponents(std::size_t i, const FormatStatistics& s) {
    const uint64 whole = std::accumulate(s.exponents.begin(), s.exponents.end(), uint64{0},
                                         [](uint64 sum, const auto& pair) { return sum + pair.second; });
    ColumnChart chart{.axis = "floor(log₂ scale)", .share_of = whole};
    Table table{.header = {"Exponent", "Groups", "Share"}, .right_aligned = {1, 2}};
    std::string text;
    if (!s.exponents.empty()) {
      const int lowest = s.exponents.begin()->first;
      const int highest = s.exponents.rbegin()->first;
      // At least nine columns, so that few exponents are no walls.
      const int from = lowest - std::max(0, 8 - (highest - lowest)) / 2;
      const int to = std::max(highest, from + 8);
      const int every = (to - from) / 6 + 1;
      for (int exponent = from; exponent <= to; ++exponent) {
        const auto found = s.exponents.find(exponent);
        chart.columns.push_back({found == s.exponents.end() ? 0 : found->second});
        if ((exponent - from) % every == every / 2)
          chart.ticks.push_back({exponent - from + 0.5, short_number(exponent)});
      }
      for (const auto& [exponent, count] : s.exponents) {
        table.rows.push_back({short_number(exponent), count_text(count), share_text(count, whole)});
      }
      text = fmt::format("{} to {}", short_number(lowest), short_number(highest));
    }
    for (const auto& [name, count] : {std::pair("scale 0", s.zero_scales), std::pair("scale NaN", s.nan_scales)}) {
      if (count == 0) continue;
      table.rows.push_back({name, count_text(count), ""});
      text += fmt::format("{}{} groups with {}", text.empty() ? "" : "; ", count_text(count), name);
    }
    if (s.exponents.empty()) return nothing(labels_[i], text);
    if (s.result.description.format->is_hif4()) {
      const uint64 lanes = s.doublings[0] + s.doublings[1] + s.doublings[2];
      text += "; micro-exponents 0, 1, 2:";
      for (std::size_t k = 0; k < s.doublings.size(); ++k) {
        text += fmt::format("{} {}", k == 0 ? "" : ",", share_text(s.doublings[k], lanes));
        table.rows.push_back({fmt::format("micro-exponents {}", k), fmt::format("{} lanes", count_text(s.doublings[k])),
                              share_text(s.doublings[k], lanes)});
      }
      text += " of the lanes";
    }
    put_columns(page_.body(),
                {.id = next_id(),
                 .title = labels_[i],
                 .name = name_of_picture(i),
                 .text = text,
                 .description =
                     fmt::format("Shares of {} groups by the exponent of their scale: {}.", count_text(whole), text)},
                chart, table);
  }

  /// A picture of the map, and a table with a row of numbers for each of its rows.
  template <typename Value>
  void map(std::size_t i, const FormatStatistics& s, std::string_view what, std::string (*number)(double),
           std::string_view none, const Value& value) {
    const Map& map = s.map;
    HeatChart chart{.rows = map.rows,
                    .columns = map.columns,
                    .row_axis = "line",
                    .column_axis = "group",
                    .last_row = map.lines - 1,
                    .last_column = map.groups - 1,
                    .scale_axis = std::string(what),
                    .number = number};
    Table table{.header = {"Line"}};
    const auto range = [](uint64 first, uint64 next) {
      return next - first == 1 ? fmt::format("{}", first) : fmt::format("{} to {}", first, next - 1);
    };
    for (uint64 c = 0; c < map.columns; ++c) {
      table.header.push_back("group " + range(map.first_group(c), map.first_group(c + 1)));
      table.right_aligned.push_back(c + 1);
    }
    double lowest = std::numeric_limits<double>::infinity();
    double highest = -lowest;
    for (uint64 r = 0; r < map.rows; ++r) {
      std::vector<std::string> row{range(map.first_line(r), map.first_line(r + 1))};
      for (uint64 c = 0; c < map.columns; ++c) {
        const std::optional<double> here = value(map.at(r, c));
        chart.values.push_back(here);
        row.push_back(here ? number(*here) : "–");
        if (!here) continue;
        lowest = std::min(lowest, *here);
        highest = std::max(highest, *here);
      }
      table.rows.push_back(std::move(row));
    }
    if (lowest > highest) return nothing(labels_[i], none);
    const std::string text = fmt::format("{} to {}", number(lowest), number(highest));
    put_heat(
        page_.body(),
        {.id = next_id(),
         .title = labels_[i],
         .name = name_of_picture(i),
         .text = text,
         .description = fmt::format("{} lines in {} rows by {} groups in {} columns, coloured by {}: {}.",
                                    count_text(map.lines), map.rows, count_text(map.groups), map.columns, what, text)},
        chart, table);
  }

  void exponent_map(std::size_t i, const FormatStatistics& s) {
    map(i, s, "scale exponent", exponent_number, "no scale above 0", [](const Cell& cell) {
      return cell.groups == 0 ? std::nullopt
                              : std::optional(static_cast<double>(cell.sum) / static_cast<double>(cell.groups));
    });
  }

  void error_map(std::size_t i, const FormatStatistics& s) {
    const std::string none = finite_lanes(s) == 0 ? nothing_text(s) : "every finite lane is 0";
    map(i, s, "relative RMS error", percent_number, none, [](const Cell& cell) {
      return cell.signal == 0 ? std::nullopt : finite(100 * std::sqrt(cell.noise / cell.signal));
    });
  }

  void left_out() {
    if (left_out_.empty()) return;
    page_.section("left-out", "Tensors left out");
    Table table{.header = {"Tensor", "Shape", "Type", "Why"}};
    for (const TensorReport* tensor : left_out_) {
      table.rows.push_back(
          {name_of_tensor(*tensor), shape_text(tensor->shape), name_text(tensor->dtype), tensor->reason});
    }
    put_table(page_.body(), table, "Tensors left out");
    page_.end_section();
  }

  void how_to_read() {
    page_.section("reading", "How to read it");
    page_.facts(std::vector<Fact>{
        {"x, y, e", "A value of the original, the value of its code, and the error y − x."},
        {"SQNR", "10 log₁₀ of the sum of x² over the sum of e², in dB; 6 dB more is half the error."},
        {"group", "Lanes along the axis that share a scale: 64 in hif4, 32 in the MX formats, 16 in nvfp4."},
        {"saturated", "The code has the largest magnitude of its type, and |x| is beyond it under its scale."},
        {"underflowed", "x is not 0, and its code is."},
        {"step",
         "From the magnitude of the code to the next larger one, times the scale; from the largest to the next "
         "smaller one."},
        {"scale exponent",
         "Of the E8M0 scale of an MX group, the E4M3 scale of nvfp4, the E6M2 scale of hif4; the "
         "micro-exponents of hif4 double it for 4 or 8 lanes each."},
        {"not finite", "Lanes whose x or y is infinite or NaN: they are in no error and in no histogram of errors."}});
    page_.end_section();
  }

  const PageHead& head_;
  Ways ways_;
  std::vector<std::string> labels_;
  std::vector<const TensorReport*> measured_;
  std::vector<const TensorReport*> left_out_;
  std::vector<const TensorReport*> pictured_;
  std::unordered_map<const TensorReport*, std::string> names_;
  Page page_;
  std::string heading_;  // above the pictures that are being drawn
  std::string tensor_;   // of which they are
  int figures_ = 0;
  int sections_ = 0;
};

}  // namespace

std::string label_of(const QuantizeOptions& options) {
  const BlockFormat& f = *options.format;
  std::string label(f.name);
  if (f.is_hif4() && options.profile != &hif4_profiles[0]) label += fmt::format(":{}", options.profile->name);
  if (f.is_mx() && options.scale_rule != &scale_rules[0]) label += fmt::format(":{}", options.scale_rule->name);
  if (f.is_nvfp4() && options.tensor_scale) label += ":tensor-scale";
  return label;
}

std::string tensor_page(const PageHead& head, std::span<const QuantizeOptions> formats,
                        std::span<const TensorReport> tensors, std::size_t pictured) {
  return TensorPage(head, formats, tensors, pictured).make();
}

}  // namespace bitcube::report
