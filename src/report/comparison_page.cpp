// The page of two results that are compared.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "frame.hpp"
#include "value_text.hpp"

namespace bitcube::report {
namespace {

std::string count_number(double number) {
  return count_text(static_cast<uint64>(number));
}

/// 0, 1, 2 to 3, ...
std::string range_text(uint64 from, uint64 to) {
  return from == to ? count_text(from) : fmt::format("{} to {}", count_text(from), count_text(to));
}

class ComparisonPage {
 public:
  ComparisonPage(const PageHead& head, const Diff& diff) : head_(head), diff_(diff) {}

  std::string make() && {
    summary();
    diagnoses();
    for (std::size_t i = 0; i < diff_.parts.size(); ++i) part(i, diff_.parts[i]);
    how_to_read();
    return std::move(page_).finish(head_);
  }

 private:
  std::string next_id() { return fmt::format("f{}", ++figures_); }

  void summary() {
    page_.section("summary", "Summary");
    std::vector<Fact> facts = head_.inputs;
    const uint64 elements = std::accumulate(diff_.parts.begin(), diff_.parts.end(), uint64{0},
                                            [](uint64 sum, const Comparison& part) { return sum + part.elements; });
    const uint64 mismatches = diff_.mismatches();
    facts.push_back({"Result", diff_.equal() ? "the same bits" : "different",
                     fmt::format("{} of {} elements differ, {}", count_text(mismatches), count_text(elements),
                                 share_text(mismatches, elements))});
    for (const Comparison& part : diff_.parts) {
      if (!part.outside) continue;
      facts.push_back({"Tolerance", *part.outside == 0 ? "kept" : "not kept",
                       fmt::format("{}: {} elements are outside", part.name, count_text(*part.outside))});
    }
    if (diff_.golden_faults) {
      facts.push_back({"Check of GOLDEN",
                       *diff_.golden_faults == 0 ? "is what the inputs give" : "is not what the inputs give",
                       fmt::format("{} elements differ from it", count_text(*diff_.golden_faults))});
    }
    page_.facts(facts);
    page_.command("Made by ", head_.command);
    std::vector<std::string> warnings = head_.warnings;
    warnings.insert(warnings.end(), diff_.warnings.begin(), diff_.warnings.end());
    for (const Comparison& part : diff_.parts) {
      for (const std::string& warning : part.warnings) {
        if (std::ranges::find(warnings, warning) == warnings.end()) warnings.push_back(warning);
      }
    }
    if (!warnings.empty()) {
      page_.body().open("div", {{"class", "warnings"}});
      for (const std::string& warning : warnings) page_.paragraph(warning);
      page_.body().close();
    }
    page_.end_section();
  }

  void diagnoses() {
    if (diff_.equal()) return;
    page_.section("diagnosis", "Diagnosis");
    if (diff_.diagnoses.empty()) {
      page_.paragraph(diff_.tried == 0 ? "No hypothesis was tried."
                                       : fmt::format("None of {} hypotheses and pairs of them explains it.",
                                                     count_text(diff_.tried)));
    }
    for (const Diagnosis& d : diff_.diagnoses) {
      page_.body().open("h3").element("bdi", d.title).close();
      std::vector<Fact> facts{{"Certainty", std::string(name_of(d.certainty)), certainty_text(d.certainty)},
                              {"Explains", fmt::format("{} of {}", count_text(d.explains), count_text(d.of)),
                               fmt::format("mismatches; it would make {} more", count_text(d.introduces))}};
      if (!d.detail.empty()) facts.push_back({"Found", d.detail});
      if (!d.remedy.empty()) facts.push_back({"What to do", d.remedy});
      if (!d.indistinguishable.empty()) {
        facts.push_back({"The same here", fmt::format("{}", fmt::join(d.indistinguishable, "; ")),
                         "cannot be told apart on this data"});
      }
      facts.push_back({"Hypotheses", fmt::format("{}", fmt::join(d.ids, " + "))});
      page_.facts(facts);
    }
    if (!diff_.explain_command.empty()) page_.command("The first mismatch, step by step: ", diff_.explain_command);
    page_.end_section();
  }

  static std::string certainty_text(Certainty certainty) {
    switch (certainty) {
      case Certainty::complete:
        return "the prediction is the DUT, bit for bit";
      case Certainty::mostly:
        return "it explains nine mismatches of ten or more";
      default:
        return "the data look like it, but do not prove it";
    }
  }

  void part(std::size_t number, const Comparison& part) {
    page_.section(fmt::format("part{}", number + 1), fmt::format("Part: {}", part.name), part.name);
    page_.facts(std::vector<Fact>{
        {"Elements", fmt::format("{} of {}", count_text(part.elements), part.format->name),
         "shape " + shape_text(part.shape)},
        {"Mismatches", fmt::format("{}, {}", count_text(part.mismatches), share_text(part.mismatches, part.elements)),
         fmt::format("in {} rows and {} columns", count_text(part.rows_touched), count_text(part.columns_touched))}});
    page_.begin_panels("", "", 3);
    classes(part);
    ulps(part);
    map(part);
    page_.end_panels();
    if (!part.patterns.empty()) {
      Table table{.title = "What the places have in common",
                  .header = {"Pattern", "Mismatches", "Share", "What it is"},
                  .right_aligned = {1, 2}};
      for (const Pattern& pattern : part.patterns) {
        table.rows.push_back({pattern.id, count_text(pattern.mismatches),
                              share_text(pattern.mismatches, part.mismatches), pattern.text});
      }
      page_.body().element("h3", "Pattern");
      put_table(page_.body(), table, fmt::format("Pattern of {}", part.name));
    }
    mismatches(part, "First mismatches", part.first);
    mismatches(part, "Worst mismatches", part.worst);
    page_.end_section();
  }

  void classes(const Comparison& part) {
    BarChart chart;
    Table table{.header = {"Class", "Elements", "Share", "Meaning"}, .right_aligned = {1, 2}};
    std::size_t present = 0;
    for (std::size_t i = 0; i < difference_classes.size(); ++i) {
      const auto& row = difference_classes[i];
      const std::string share = share_text(part.classes[i], part.elements);
      table.rows.push_back({std::string(row.name), count_text(part.classes[i]), share, std::string(row.meaning)});
      if (part.classes[i] == 0) continue;
      ++present;
      chart.bars.push_back({std::string(row.name), part.classes[i], share});
    }
    put_bars(page_.body(),
             {.id = next_id(),
              .title = "Classes",
              .name = fmt::format("Classes of the elements of {}", part.name),
              .text = "elements by how they differ; the lengths are logarithmic",
              .description =
                  fmt::format("A bar for each of {} classes that occur, of {}.", present, difference_classes.size())},
             chart, table);
  }

  void ulps(const Comparison& part) {
    ColumnChart chart{.axis = "ulp; logarithmic count of elements"};
    Table table{.header = {"Distance, ulp", "Elements", "Share"}, .right_aligned = {1, 2}};
    // At least nine columns, so that few are no walls.
    const std::size_t columns = std::max<std::size_t>(part.ulps.size(), 9);
    const std::size_t every = (columns + 7) / 8;
    for (std::size_t i = 0; i < columns; ++i) {
      chart.columns.push_back({i < part.ulps.size() ? part.ulps[i].count : 0, i != 0});
      // Bins begin at 0, 1, 2, 4, 8, ...
      const std::string from = i == 0    ? "0"
                               : i <= 10 ? fmt::format("{}", uint64{1} << (i - 1))
                                         : power_text(static_cast<int>(i) - 1);
      if (i % every == 0) chart.ticks.push_back({static_cast<double>(i) + 0.5, from});
    }
    for (const UlpBin& bin : part.ulps) {
      table.rows.push_back({range_text(bin.from, bin.to), count_text(bin.count), share_text(bin.count, part.elements)});
    }
    if (table.rows.empty()) table.rows.push_back({"no pair has a distance", "0", "0 %"});
    const std::string text =
        part.ulps.empty() ? "no pair has a distance" : fmt::format("up to {} ulp", count_text(part.most_ulps));
    put_columns(
        page_.body(),
        {.id = next_id(),
         .title = "Distance",
         .name = fmt::format("Distance of the elements of {} in ulp", part.name),
         .text = text,
         .description =
             "Counts of elements by distance in ulp, in bins that begin at 0, 1, 2, 4, 8 and so on; " + text + "."},
        chart, table);
  }

  void map(const Comparison& part) {
    const MismatchMap& map = part.map;
    HeatChart chart{.rows = map.rows,
                    .columns = map.columns,
                    .row_axis = "row",
                    .column_axis = "column",
                    .last_row = map.matrix_rows - std::min<uint64>(1, map.matrix_rows),
                    .last_column = map.matrix_columns - std::min<uint64>(1, map.matrix_columns),
                    .scale_axis = "mismatches in a cell",
                    .number = count_number,
                    .logarithmic = true};
    Table table{.header = {"Row"}};
    const auto range = [](uint64 cell, uint64 size, uint64 end) {
      const uint64 last = std::min((cell + 1) * size, end) - 1;
      return cell * size == last ? fmt::format("{}", last) : fmt::format("{} to {}", cell * size, last);
    };
    for (std::size_t c = 0; c < map.columns; ++c) {
      table.header.push_back("column " + range(c, map.columns_per_cell, map.matrix_columns));
      table.right_aligned.push_back(c + 1);
    }
    for (std::size_t r = 0; r < map.rows; ++r) {
      std::vector<std::string> row{range(r, map.rows_per_cell, map.matrix_rows)};
      for (std::size_t c = 0; c < map.columns; ++c) {
        const uint64 count = map.mismatches[r * map.columns + c];
        chart.values.emplace_back(static_cast<double>(count));
        row.push_back(count_text(count));
      }
      table.rows.push_back(std::move(row));
    }
    if (table.rows.empty()) table.rows.push_back({"no elements"});
    const std::string cell = fmt::format("a cell is {} x {} elements", map.rows_per_cell, map.columns_per_cell);
    put_heat(page_.body(),
             {.id = next_id(),
              .title = "Where",
              .name = fmt::format("Mismatches over the matrix of {}", part.name),
              .text = "mismatches over the matrix; " + cell,
              .description = fmt::format("{} rows by {} columns, coloured by the count of mismatches; {}.",
                                         count_text(map.matrix_rows), count_text(map.matrix_columns), cell)},
             chart, table);
  }

  void mismatches(const Comparison& part, std::string_view title, const std::vector<Mismatch>& list) {
    if (list.empty()) return;
    Table table{.header = {"At", "GOLDEN", "value", "DUT", "value", "ulp", "Class"}, .right_aligned = {1, 2, 3, 4, 5}};
    for (const Mismatch& m : list) {
      const Format& f = *part.format;
      table.rows.push_back({fmt::format("{}", fmt::join(m.at, ", ")), bits_text(f, m.golden),
                            value_text(f, decode(f, m.golden)), bits_text(f, m.dut), value_text(f, decode(f, m.dut)),
                            m.ulps ? count_text(*m.ulps) : "–", std::string(class_of(m.difference).name)});
    }
    page_.body().element("h3", title);
    put_table(page_.body(), table, fmt::format("{} of {}", title, part.name));
  }

  void how_to_read() {
    page_.section("reading", "How to read it");
    page_.facts(std::vector<Fact>{
        {"ulp", "Values of the format between two words, the second counted: neighbours are 1 ulp apart."},
        {"row, column", "The last axis of the shape is the columns of the matrix, all others are its rows."},
        {"explains", "Mismatches whose bits in the DUT the hypothesis predicts."},
        {"complete", "What the hypothesis predicts is the DUT, bit for bit, also where it agrees with GOLDEN."}});
    page_.end_section();
  }

  const PageHead& head_;
  const Diff& diff_;
  Page page_;
  int figures_ = 0;
};

}  // namespace

std::string comparison_page(const PageHead& head, const Diff& diff) {
  return ComparisonPage(head, diff).make();
}

}  // namespace bitcube::report
