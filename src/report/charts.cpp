#include "charts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

namespace bitcube::report {
namespace {

// All pictures are as wide as a phone, in the units of their text of 13 px, and are never drawn much larger.
constexpr double kWidth = 340;
constexpr double kRight = kWidth - 8;

/// A coordinate: one decimal is enough.
std::string at(double coordinate) {
  std::string text = fmt::format("{:.1f}", coordinate);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

void put_text(Markup& out, double x, double y, std::string_view anchor, std::string_view text,
              std::string_view cls = "") {
  if (cls.empty()) {
    out.element("text", {{"x", at(x)}, {"y", at(y)}, {"text-anchor", std::string(anchor)}}, text);
  } else {
    out.element("text", {{"x", at(x)}, {"y", at(y)}, {"text-anchor", std::string(anchor)}, {"class", std::string(cls)}},
                text);
  }
}

void put_path(Markup& out, std::string_view cls, const std::string& data) {
  if (!data.empty()) out.empty("path", {{"class", std::string(cls)}, {"d", data}});
}

std::string rectangle(double x, double y, double width, double height) {
  return fmt::format("M{} {}h{}v{}h{}z", at(x), at(y), at(width), at(height), at(-width));
}

void put_figure(Markup& out, const Caption& caption, double height, const Table& table,
                const std::function<void()>& draw) {
  out.open("figure", {{"id", caption.id}});
  out.open("figcaption").open("b").text(caption.title).close();
  if (!caption.text.empty()) out.text(" ").element("span", caption.text);
  out.close();
  out.open("svg", {{"xmlns", "http://www.w3.org/2000/svg"},
                   {"viewBox", fmt::format("0 0 {} {}", at(kWidth), at(height))},
                   {"role", "img"},
                   {"aria-labelledby", fmt::format("{0}-t {0}-d", caption.id)}});
  out.element("title", {{"id", caption.id + "-t"}}, caption.name);
  out.element("desc", {{"id", caption.id + "-d"}}, caption.description);
  draw();
  out.close();
  out.open("details");
  out.open("summary").text("Table").element("span", {{"class", "unseen"}}, ": " + caption.name).close();
  put_table(out, table, caption.name);
  out.close().close();
}

/// Ticks of a linear axis: at most `most` steps of 1, 2 or 5 times a power of ten.
std::vector<double> ticks_between(double lowest, double highest, int most) {
  double step = std::pow(10.0, std::floor(std::log10(std::max(highest - lowest, 1e-12))) - 1);
  for (int i = 0; (highest - lowest) / step > most; ++i) step *= i % 3 == 1 ? 2.5 : 2;
  std::vector<double> out;
  for (double k = std::ceil(lowest / step - 1e-9); k * step <= highest * (1 + 1e-12) + 1e-12; ++k) {
    out.push_back(k == 0 ? 0 : k * step);  // no -0
  }
  return out;
}

/// 1, 10, 100, 1k, ... 1M.
std::string power_label(int power) {
  constexpr std::array<const char*, 7> units{"", "k", "M", "G", "T", "P", "E"};
  constexpr std::array<const char*, 3> digits{"1", "10", "100"};
  return std::string(digits[static_cast<std::size_t>(power % 3)]) + units[static_cast<std::size_t>(power / 3)];
}

/// Where a count lies on an axis of powers of ten whose origin is half a one.
double log_part(uint64 count, int powers) {
  if (count == 0) return 0;
  const double origin = std::log10(0.5);
  return (std::log10(static_cast<double>(count)) - origin) / (powers - origin);
}

int powers_for(uint64 largest) {
  int powers = 1;
  for (uint64 limit = 10; limit < largest && powers < 19; ++powers) limit *= 10;
  return powers;
}

/// The marks of the series, of about 10 units.
std::string shape(std::size_t series, double x, double y) {
  switch (series % kMostSeries) {
    case 0:
      return fmt::format("M{} {}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z", at(x - 5), at(y));
    case 1:
      return rectangle(x - 4.5, y - 4.5, 9, 9);
    case 2:
      return fmt::format("M{} {}l5.5 9.5h-11z", at(x), at(y - 6));
    case 3:
      return fmt::format("M{} {}l6 6l-6 6l-6 -6z", at(x), at(y - 6));
    case 4:
      return fmt::format("M{} {}l5.5 -9.5h-11z", at(x), at(y + 6));
    case 5:  // a plus
      return fmt::format("M{} {}h4v4h4v4h-4v4h-4v-4h-4v-4h4z", at(x - 2), at(y - 6));
    case 6:  // a bar
      return rectangle(x - 2, y - 7, 4, 14);
    default:  // an hourglass
      return fmt::format("M{} {}h10l-10 12h10z", at(x - 5), at(y - 6));
  }
}

}  // namespace

std::string count_text(uint64 count) {
  std::string text = fmt::format("{}", count);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

std::string short_number(double number) {
  if (std::isnan(number)) return "–";
  if (std::isinf(number)) return number < 0 ? "−∞" : "∞";
  std::string text = fmt::format("{:.4g}", number);
  if (text.starts_with('-')) text.replace(0, 1, "−");
  return text;
}

std::string power_text(int exponent) {
  constexpr std::array<const char*, 10> digits{"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = "2";
  if (exponent < 0) text += "⁻";
  for (const char c : fmt::format("{}", std::abs(exponent))) text += digits[static_cast<std::size_t>(c - '0')];
  return text;
}

std::string share_text(uint64 count, uint64 whole) {
  if (whole == 0 || count == 0) return "0 %";
  const double percent = 100 * static_cast<double>(count) / static_cast<double>(whole);
  if (count < whole && percent > 99.9) return "> 99.9 %";
  return percent >= 10 ? fmt::format("{:.1f} %", percent)
                       : (percent >= 0.01 ? fmt::format("{:.2f} %", percent) : "< 0.01 %");
}

void put_table(Markup& out, const Table& table, std::string_view label) {
  out.open(
      "div",
      {{"class", "scroll"}, {"role", "region"}, {"tabindex", "0"}, {"aria-label", "Table: " + std::string(label)}});
  out.open("table");
  if (!table.title.empty()) out.element("caption", table.title);
  const auto right = [&](std::size_t column) {
    return std::ranges::find(table.right_aligned, column) != table.right_aligned.end();
  };
  out.open("thead").open("tr");
  for (std::size_t i = 0; i < table.header.size(); ++i) {
    if (right(i)) {
      out.element("th", {{"scope", "col"}, {"class", "n"}}, table.header[i]);
    } else {
      out.element("th", {{"scope", "col"}}, table.header[i]);
    }
  }
  out.close().close().open("tbody");
  for (const std::vector<std::string>& row : table.rows) {
    out.open("tr");
    for (std::size_t i = 0; i < table.header.size(); ++i) {
      const std::string_view cell = i < row.size() ? std::string_view(row[i]) : std::string_view();
      if (i == 0) {
        out.open("th", {{"scope", "row"}}).element("bdi", cell).close();
      } else if (right(i)) {
        out.element("td", {{"class", "n"}}, cell);
      } else {
        out.element("td", cell);
      }
    }
    out.close();
  }
  out.close().close().close();
}

void put_columns(Markup& out, const Caption& caption, const ColumnChart& chart, const Table& table) {
  constexpr double kLeft = 46;
  constexpr double kTop = 10;
  constexpr double kBottom = 176;
  const double width = (kRight - kLeft) / static_cast<double>(std::max<std::size_t>(chart.columns.size(), 1));
  uint64 largest = 0;
  for (const auto& column : chart.columns) largest = std::max(largest, column.count);
  put_figure(out, caption, 226, table, [&] {
    std::string grid;
    const auto line = [&](double part, const std::string& label) {
      const double y = kBottom - part * (kBottom - kTop);
      grid += fmt::format("M{} {}H{}", at(kLeft), at(y), at(kRight));
      put_text(out, kLeft - 5, y + 4.5, "end", label);
    };
    std::function<double(uint64)> part;
    if (chart.share_of) {
      const double whole = static_cast<double>(std::max<uint64>(*chart.share_of, 1));
      const double highest = std::max(static_cast<double>(largest) / whole * 100, 1e-9);
      const auto ticks = ticks_between(0, highest * 1.02, 5);
      for (const double tick : ticks) line(tick / (highest * 1.02), fmt::format("{:.4g} %", tick));
      part = [=](uint64 count) { return static_cast<double>(count) / whole * 100 / (highest * 1.02); };
    } else {
      const int powers = powers_for(largest);
      const int step = powers > 6 ? 2 : 1;
      for (int power = 0; power <= powers; power += step)
        line(log_part(static_cast<uint64>(std::pow(10.0, power)), powers), power_label(power));
      part = [=](uint64 count) { return log_part(count, powers); };
    }
    put_path(out, "grid", grid);
    std::string inner;
    std::string outer;
    const double gap = std::min(1.5, width * 0.2);
    for (std::size_t i = 0; i < chart.columns.size(); ++i) {
      const auto& column = chart.columns[i];
      if (column.count == 0) continue;
      // What is there at all is to be seen.
      const double height = std::max(1.0, part(column.count) * (kBottom - kTop));
      (column.outer ? outer : inner) +=
          rectangle(kLeft + static_cast<double>(i) * width + gap / 2, kBottom - height, width - gap, height);
    }
    put_path(out, "bar", inner);
    put_path(out, "bar outer", outer);
    std::string marks;
    for (const double mark : chart.marks)
      marks += fmt::format("M{} {}V{}", at(kLeft + mark * width), at(kTop), at(kBottom));
    put_path(out, "mark", marks);
    put_path(out, "axis", fmt::format("M{} {}H{}", at(kLeft), at(kBottom), at(kRight)));
    std::string notches;
    for (const auto& tick : chart.ticks) {
      const double x = kLeft + tick.at * width;
      notches += fmt::format("M{} {}v4", at(x), at(kBottom));
      put_text(out, x, kBottom + 18, "middle", tick.label);
    }
    put_path(out, "axis", notches);
    put_text(out, (kLeft + kRight) / 2, 218, "middle", chart.axis, "name");
  });
}

void put_bars(Markup& out, const Caption& caption, const BarChart& chart, const Table& table) {
  constexpr double kLeft = 8;
  constexpr double kRow = 38;
  uint64 largest = 1;
  for (const auto& bar : chart.bars) largest = std::max(largest, bar.count);
  const int powers = powers_for(largest);
  const double height = kRow * static_cast<double>(chart.bars.size()) + 10;
  put_figure(out, caption, height, table, [&] {
    std::string bars;
    std::string tracks;
    for (std::size_t i = 0; i < chart.bars.size(); ++i) {
      const auto& bar = chart.bars[i];
      const double y = kRow * static_cast<double>(i) + 18;
      put_text(out, kLeft, y, "start", shorten_text(bar.label, 30));
      put_text(out, kRight, y, "end",
               bar.remark.empty() ? count_text(bar.count) : fmt::format("{} · {}", count_text(bar.count), bar.remark));
      tracks += rectangle(kLeft, y + 5, kRight - kLeft, 9);
      if (bar.count != 0) bars += rectangle(kLeft, y + 5, log_part(bar.count, powers) * (kRight - kLeft), 9);
    }
    put_path(out, "track", tracks);
    put_path(out, "bar", bars);
  });
}

void put_dots(Markup& out, const Caption& caption, const DotChart& chart, const Table& table) {
  constexpr double kLeft = 14;
  constexpr double kEnd = kWidth - 14;
  constexpr double kRow = 42;
  constexpr double kLegendRow = 20;
  double lowest = std::numeric_limits<double>::infinity();
  double highest = -lowest;
  for (const auto& row : chart.rows) {
    for (const auto& value : row.values) {
      if (!value) continue;
      lowest = std::min(lowest, *value);
      highest = std::max(highest, *value);
    }
  }
  if (chart.from_zero) lowest = std::min(0.0, lowest);
  const double spread = highest > lowest ? highest - lowest : std::max(std::fabs(highest), 1.0);
  if (!chart.from_zero) lowest -= spread * 0.05;
  highest += spread * 0.05;
  const auto x_of = [&](double value) { return kLeft + (value - lowest) / (highest - lowest) * (kEnd - kLeft); };
  const std::size_t legend_rows = (chart.series.size() + 1) / 2;
  const double legend = kLegendRow * static_cast<double>(legend_rows) + 8;
  const double bottom = legend + kRow * static_cast<double>(chart.rows.size());
  std::vector<std::string> names;
  for (const auto& row : chart.rows) names.push_back(row.label);
  const std::vector<std::string> labels = distinct_labels(names, 36);
  put_figure(out, caption, bottom + 48, table, [&] {
    std::vector<std::string> marks(chart.series.size());
    for (std::size_t s = 0; s < chart.series.size(); ++s) {
      const double x = s % 2 == 0 ? kLeft : kWidth / 2 + 4;
      const std::size_t row = s / 2;
      const double y = kLegendRow * static_cast<double>(row) + 12;
      marks[s] += shape(s, x, y - 1);
      put_text(out, x + 12, y + 4, "start", shorten_text(chart.series[s], 20));
    }
    std::string grid;
    for (const double tick : ticks_between(lowest, highest, 6)) {
      grid += fmt::format("M{} {}V{}", at(x_of(tick)), at(legend), at(bottom));
      put_text(out, x_of(tick), bottom + 17, "middle", short_number(tick));
    }
    put_path(out, "grid", grid);
    std::string tracks;
    for (std::size_t r = 0; r < chart.rows.size(); ++r) {
      const double y = legend + kRow * static_cast<double>(r);
      out.open("text", {{"x", at(kLeft - 6)}, {"y", at(y + 14)}, {"text-anchor", "start"}, {"class", "over"}});
      if (labels[r] != names[r]) out.element("title", names[r]);
      out.text(labels[r]).close();
      if (std::ranges::none_of(chart.rows[r].values, [](const auto& value) { return value.has_value(); })) {
        put_text(out, kLeft - 6, y + 33, "start", chart.rows[r].remark, "name");
        continue;
      }
      tracks += fmt::format("M{} {}H{}", at(kLeft - 6), at(y + 28), at(kEnd + 6));
      for (std::size_t s = 0; s < marks.size() && s < chart.rows[r].values.size(); ++s) {
        if (chart.rows[r].values[s]) marks[s] += shape(s, x_of(*chart.rows[r].values[s]), y + 28);
      }
    }
    put_path(out, "axis", tracks);
    // The last ones lie on top: the first series are the ones that were asked for first.
    for (std::size_t s = marks.size(); s-- > 0;) put_path(out, fmt::format("dot c{}", s % kMostSeries), marks[s]);
    put_text(out, kWidth / 2, bottom + 39, "middle", chart.axis, "name");
  });
}

std::size_t heat_class(double value, double lowest, double highest, bool logarithmic) noexcept {
  constexpr auto kTop = static_cast<double>(kHeatClasses - 1);
  if (logarithmic) {
    if (value < 1) return 0;
    if (highest <= 1) return kHeatClasses - 1;
    return static_cast<std::size_t>(1 + std::floor(std::log(value) / std::log(highest) * (kTop - 1) + 1e-9));
  }
  if (!(highest > lowest)) return kHeatClasses / 2;
  return static_cast<std::size_t>(std::min(kTop, std::floor((value - lowest) / (highest - lowest) * (kTop + 1))));
}

void put_heat(Markup& out, const Caption& caption, const HeatChart& chart, const Table& table) {
  constexpr double kLeft = 34;
  constexpr double kTop = 24;
  const double across = kRight - kLeft;
  const auto rows = static_cast<double>(std::max<std::size_t>(chart.rows, 1));
  const auto columns = static_cast<double>(std::max<std::size_t>(chart.columns, 1));
  const double down = std::clamp(across / columns * rows, std::min(60.0, 30 * rows), across);
  double lowest = std::numeric_limits<double>::infinity();
  double highest = -lowest;
  for (const auto& value : chart.values) {
    if (!value) continue;
    lowest = std::min(lowest, *value);
    highest = std::max(highest, *value);
  }
  const double bottom = kTop + down;
  put_figure(out, caption, bottom + 66, table, [&] {
    std::array<std::string, kHeatClasses> classes;
    std::string none;
    const auto y_of = [&](std::size_t row) {
      return std::round(10 * (kTop + static_cast<double>(row) * down / rows)) / 10;
    };
    const auto x_of = [&](std::size_t column) {
      return std::round(10 * (kLeft + static_cast<double>(column) * across / columns)) / 10;
    };
    for (std::size_t r = 0; r < chart.rows; ++r) {
      // Neighbours of one colour are one rectangle.
      for (std::size_t c = 0; c < chart.columns;) {
        const auto class_of = [&](std::size_t column) {
          const auto& value = chart.values[r * chart.columns + column];
          return value ? heat_class(*value, lowest, highest, chart.logarithmic) : kHeatClasses;
        };
        const std::size_t cls = class_of(c);
        const std::size_t first = c;
        while (c < chart.columns && class_of(c) == cls) ++c;
        (cls == kHeatClasses ? none : classes[cls]) +=
            rectangle(x_of(first), y_of(r), x_of(c) - x_of(first), y_of(r + 1) - y_of(r));
      }
    }
    put_path(out, "none", none);
    for (std::size_t i = 0; i < kHeatClasses; ++i) put_path(out, fmt::format("h{}", i), classes[i]);
    put_path(out, "frame", rectangle(kLeft, kTop, across, down));
    put_text(out, kLeft, kTop - 8, "start", "0");
    put_text(out, (kLeft + kRight) / 2, kTop - 8, "middle", chart.column_axis + " →", "name");
    put_text(out, kRight, kTop - 8, "end", count_text(chart.last_column));
    const auto turned = [&](double y, std::string_view anchor, std::string_view text, std::string_view cls) {
      out.element("text",
                  {{"transform", fmt::format("translate({} {})rotate(-90)", at(kLeft - 8), at(y))},
                   {"text-anchor", std::string(anchor)},
                   {"class", std::string(cls)}},
                  text);
    };
    turned(kTop, "end", "0", "");
    if (down > 110) turned(kTop + down / 2, "middle", "← " + chart.row_axis, "name");
    turned(bottom, "start", count_text(chart.last_row), "");

    // The scale.
    const double y = bottom + 14;
    if (lowest > highest) {
      put_text(out, kWidth / 2, y + 10, "middle", "no values");
    } else if (lowest == highest && !chart.logarithmic) {
      out.empty("rect", {{"class", fmt::format("h{}", kHeatClasses / 2)},
                         {"x", at(kLeft)},
                         {"y", at(y)},
                         {"width", "24"},
                         {"height", "12"}});
      put_text(out, kLeft + 32, y + 11, "start", chart.number(lowest) + " everywhere");
    } else {
      const double swatch = across / kHeatClasses;
      for (std::size_t i = 0; i < kHeatClasses; ++i) {
        out.empty("rect", {{"class", fmt::format("h{}", i)},
                           {"x", at(kLeft + swatch * static_cast<double>(i))},
                           {"y", at(y)},
                           {"width", at(swatch)},
                           {"height", "12"}});
      }
      put_path(out, "frame", rectangle(kLeft, y, across, 12));
      put_text(out, kLeft, y + 27, "start", chart.number(chart.logarithmic ? 0 : lowest));
      put_text(
          out, (kLeft + kRight) / 2, y + 27, "middle",
          chart.number(chart.logarithmic ? std::round(std::sqrt(std::max(highest, 1.0))) : (lowest + highest) / 2));
      put_text(out, kRight, y + 27, "end", chart.number(highest));
    }
    put_text(out, (kLeft + kRight) / 2, y + 45, "middle", chart.scale_axis, "name");
  });
}

}  // namespace bitcube::report
