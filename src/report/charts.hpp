// Pictures as inline SVG, each with its caption and the table of its numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/document.hpp"
#include "bitcube/numeric/bits.hpp"
#include "markup.hpp"

namespace bitcube::report {

/// What every picture says in words.
struct Caption {
  std::string id;             // unique on the page
  std::string title;          // in bold, where the heading above says the rest
  std::string name;           // of the picture for screen readers; unique on the page
  std::string text{};         // what is to be seen, in a sentence
  std::string description{};  // of what is drawn, for screen readers
};

/// A table whose first column names the row; in a region of its own that scrolls sideways.
void put_table(Markup& out, const Table& table, std::string_view label);

/// Columns side by side, for classes in order.
struct ColumnChart {
  struct Column {
    uint64 count = 0;
    bool outer = false;  // a class beyond the scale: drawn in another colour
  };
  struct Tick {
    double at = 0;  // in columns: 0.5 is the middle of the first
    std::string label;
  };
  std::vector<Column> columns{};
  std::vector<Tick> ticks{};
  std::string axis;                  // what the columns stand for
  std::vector<double> marks{};       // dashed lines, in columns
  std::optional<uint64> share_of{};  // draws shares of this, on a linear scale; without it counts, on a logarithmic one
};
void put_columns(Markup& out, const Caption& caption, const ColumnChart& chart, const Table& table);

/// Horizontal bars, for classes with names. Lengths are logarithms of the counts.
struct BarChart {
  struct Bar {
    std::string label;
    uint64 count = 0;
    std::string remark{};  // behind the count
  };
  std::vector<Bar> bars{};
};
void put_bars(Markup& out, const Caption& caption, const BarChart& chart, const Table& table);

/// A row for each thing, with a mark for each of several series on a common linear axis. Precondition: there is a
/// value.
struct DotChart {
  struct Row {
    std::string label;
    std::vector<std::optional<double>> values{};  // one of each series
    std::string remark{};                         // what is to be read where there are no values
  };
  std::vector<std::string> series{};  // at most kMostSeries have a shape of their own
  std::vector<Row> rows{};
  std::string axis;
  bool from_zero = false;
};
inline constexpr std::size_t kMostSeries = 8;
void put_dots(Markup& out, const Caption& caption, const DotChart& chart, const Table& table);

/// Cells of a matrix in kHeatClasses colours, from the lowest value to the highest.
struct HeatChart {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<std::optional<double>> values{};  // row by row; nothing: hatched
  std::string row_axis;
  std::string column_axis;
  uint64 last_row = 0;  // numbers of the last line and column of the matrix, on the axes
  uint64 last_column = 0;
  std::string scale_axis;
  std::string (*number)(double) = nullptr;  // labels of the scale
  bool logarithmic = false;                 // of values that are 0 or at least 1; 0 has the lowest class for itself
};
inline constexpr std::size_t kHeatClasses = 9;
/// The class of a value between two others.
std::size_t heat_class(double value, double lowest, double highest, bool logarithmic) noexcept;
void put_heat(Markup& out, const Caption& caption, const HeatChart& chart, const Table& table);

// ---- Numbers

/// 1234567 as "1,234,567".
std::string count_text(uint64 count);
/// Of a whole, as "1.23 %". What is not all is never 100 %, and what is not nothing never 0 %.
std::string share_text(uint64 count, uint64 whole);
/// 2 to a power, with the exponent raised.
std::string power_text(int exponent);
/// Up to four significant digits.
std::string short_number(double number);

}  // namespace bitcube::report
