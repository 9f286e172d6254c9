// What a report shows of a tensor in a block format: counts of its lanes and groups, of which the pictures are made.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bitcube/stream/parts.hpp"

namespace bitcube::report {

/// Less than elsewhere: figures of every group of a window are in memory with it.
inline constexpr std::size_t kWindow = std::size_t{64} << 20;

/// Classes of relative errors |e| / |x|, of lanes whose x is not 0: no error at all; below 2^-16; then an octave each,
/// from its lower bound on; last 1 and more.
inline constexpr int kLowestOctave = -16;
inline constexpr std::size_t kRelativeBins = 2 - kLowestOctave + 1;
/// The class of an error. Precondition: both are finite, and x is not 0.
std::size_t relative_bin(double error, double x) noexcept;

/// Classes of errors e / step: of a sixteenth of a step each, around its multiples from -1 to 1, and the two beyond.
/// The step of a lane is the distance from the magnitude of its code to the next larger one of the element type, times
/// the scale; of the largest code to the next smaller one.
inline constexpr int kStepParts = 16;
inline constexpr std::size_t kStepBins = 2 * kStepParts + 1 + 2;
std::size_t step_bin(double error, double step) noexcept;

/// A part of the matrix of all groups, which has a row for each line and a column for each group of the line.
struct Cell {
  uint64 groups = 0;       // with a scale that is a number above 0
  std::int64_t sum = 0;    // of their scale exponents
  int lowest = 0;          // of them
  int highest = 0;         // ...
  double signal = 0;       // sum of x^2 over the finite lanes
  double noise = 0;        // sum of e^2
  uint64 saturated = 0;    // lanes
  uint64 underflowed = 0;  // lanes
};

/// That matrix in at most `kMapSide` rows and columns. Cell (r, c) has the lines from first_line(r) on and the groups
/// from first_group(c) on.
struct Map {
  static constexpr uint64 kMapSide = 32;

  uint64 lines = 0;
  uint64 groups = 0;  // of each line
  uint64 rows = 0;
  uint64 columns = 0;
  std::vector<Cell> cells{};  // row by row

  uint64 first_line(uint64 row) const noexcept { return first(row, rows, lines); }
  uint64 first_group(uint64 column) const noexcept { return first(column, columns, groups); }
  const Cell& at(uint64 row, uint64 column) const noexcept { return cells[row * columns + column]; }
  /// The cell of a group.
  Cell& of(uint64 line, uint64 group) noexcept {
    return cells[index(line, rows, lines) * columns + index(group, columns, groups)];
  }

 private:
  /// The least i whose index() is `part`.
  static uint64 first(uint64 part, uint64 parts, uint64 total) noexcept {
    return static_cast<uint64>((static_cast<uint128>(part) * total + parts - 1) / parts);
  }
  static uint64 index(uint64 i, uint64 parts, uint64 total) noexcept {
    return static_cast<uint64>(static_cast<uint128>(i) * parts / total);
  }
};

/// A tensor in a block format. x is an original value, y the dequantised one, e = y - x. Doubles are statistics; they
/// do not depend on the thread count.
struct FormatStatistics {
  stream::Quantized result{};  // description, bytes and errors

  uint64 zero = 0;         // lanes with x = 0
  uint64 saturated = 0;    // lanes whose code has the largest magnitude while |x| is beyond it; infinite ones too
  uint64 underflowed = 0;  // lanes with y = 0 while x is not 0
  double smallest = 0;     // least |x| that is not 0, or 0
  double largest = 0;      // largest finite |x|
  std::array<uint64, kRelativeBins> relative{};
  std::array<uint64, kStepBins> steps{};
  uint64 without_step = 0;  // finite lanes under a scale of 0: in no class of the steps

  uint64 zero_scales = 0;             // groups
  uint64 nan_scales = 0;              // groups
  std::map<int, uint64> exponents{};  // groups by floor(log2(scale)): of E8M0, E4M3, or the E6M2 of HiF4
  std::array<uint64, 3> doublings{};  // HiF4: lanes by E1_8 + E1_16
  Map map{};
};

/// Counts the parts of a tensor, which come in the order of its lines.
class StatisticsMeter {
 public:
  /// `shape` is that of the whole tensor, quantised along `axis`. Precondition: its lines fit.
  StatisticsMeter(const BlockFormat& format, std::span<const uint64> shape, std::size_t axis);

  void add(const stream::Part& part, const Execution& execution = {});
  /// All but FormatStatistics::result.
  FormatStatistics take() noexcept { return std::move(statistics_); }

 private:
  const BlockFormat& format_;
  FormatStatistics statistics_;
  // By the magnitude of a code: its value, and its step.
  std::vector<double> values_;
  std::vector<double> steps_;
};

/// A tensor of a file, and what became of it.
struct TensorReport {
  std::string file;
  std::string name;
  std::string dtype;  // as the file says it
  std::vector<uint64> shape;
  std::size_t axis = 0;
  std::string reason{};                     // why it was not quantised, or empty
  std::vector<FormatStatistics> formats{};  // in the order asked for; empty if it was not
};

/// Quantises a tensor of a file along `axis` (negative: from the last one) in each of these ways, and counts. Errors:
/// those of stream::quantize_parts(), and an axis that it does not have.
Expected<TensorReport> measure_tensor(const stream::TensorFiles& files, std::size_t tensor, std::int64_t axis,
                                      std::span<const QuantizeOptions> formats, const Execution& execution = {},
                                      std::size_t window = kWindow);

}  // namespace bitcube::report
