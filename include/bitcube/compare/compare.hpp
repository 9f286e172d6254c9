// How two results differ: bitwise first, then by class, by ulp, by place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/machine/geometry.hpp"
#include "bitcube/numeric/format.hpp"
#include "bitcube/parallel.hpp"

namespace bitcube {

// ---- Distance

/// Values between two words of a format, the second counted: 0 for the same value (so for +0 and -0), 1 for neighbours.
/// Floats count the values of their format, whatever their spacing; integers differ by their difference. Infinity is
/// next to the largest finite value. Nothing where one of them is NaN or no encoding.
std::optional<uint64> ulp_distance(const Format& format, uint64 a, uint64 b) noexcept;

/// What a pair of words is, from alike to wild. In the order of difference_classes.
enum class Difference : std::uint8_t {
  equal,
  zero_sign,
  nan_payload,
  one_ulp,
  few_ulps,
  some_ulps,
  many_ulps,
  sign,
  infinity,
  nan,
  wild,
};

struct DifferenceClass {
  std::string_view name;
  std::string_view meaning;
};
inline constexpr std::array<DifferenceClass, 11> difference_classes{{
    {"equal", "the same bits"},
    {"zero sign", "+0 and -0"},
    {"NaN payload", "two NaN of different bits"},
    {"1 ulp", "neighbours"},
    {"2 to 4 ulp", "near"},
    {"5 to 64 ulp", "the last bits"},
    {"above 64 ulp", "of the same sign and within a factor of two"},
    {"sign", "the same magnitude, other sign"},
    {"infinity", "one of them is infinite"},
    {"NaN", "one of them is NaN"},
    {"wild", "anything else"},
}};
constexpr const DifferenceClass& class_of(Difference difference) noexcept {
  return difference_classes[static_cast<std::size_t>(difference)];
}

/// The class of a pair of words.
Difference difference_of(const Format& format, uint64 golden, uint64 dut) noexcept;

// ---- Input

/// What an array holds: which hypotheses make sense depends on it.
enum class PartRole : std::uint8_t { result, codes, scales };

/// Two arrays of the same format and shape. The bytes stay with the caller.
struct ComparedPart {
  std::string name;  // for the report: "result", "codes", "scales"
  PartRole role = PartRole::result;
  const Format* format = nullptr;
  std::vector<uint64> shape;          // row-major, at least one dimension
  bool packed = false;                // two 4-bit lanes per byte, each line of the last axis on a byte boundary
  std::span<const std::byte> golden;  // little-endian words; 4-bit lanes that are not packed lie in a byte each
  std::span<const std::byte> dut;
  std::size_t group = 0;  // lanes per scale along the last axis; 0 where there are no groups

  /// Bytes that such an array has, or nothing where that is beyond 64 bits.
  std::optional<uint64> byte_size() const noexcept;
};

/// Only when asked for: an element passes if it is within one of those that are given. NaN passes with NaN, an infinity
/// with the same infinity.
struct Tolerance {
  std::optional<uint64> ulps{};
  std::optional<double> relative{};  // |dut - golden| <= absolute + relative * |golden|, in double precision
  std::optional<double> absolute{};

  bool asked() const noexcept { return ulps || relative || absolute; }
};

struct CompareOptions {
  Tolerance tolerance{};
  std::size_t first = 10;  // mismatches to list
  std::size_t worst = 5;
  Execution execution{};
};

// ---- Result

/// One element that differs.
struct Mismatch {
  uint64 index = 0;          // row-major
  std::vector<uint64> at{};  // coordinates in the shape of the part
  uint64 golden = 0;         // lane codes
  uint64 dut = 0;
  std::optional<uint64> ulps{};  // nothing where one is NaN
  Difference difference = Difference::wild;
};

/// Elements whose distance is from..to ulp, both included: 0, 1, 2 to 3, 4 to 7, …
struct UlpBin {
  uint64 from = 0;
  uint64 to = 0;
  uint64 count = 0;
};

/// What the places of the mismatches have in common.
struct Pattern {
  std::string id;         // "row", "column", "group", "block", "parity", "period", "prefix", …
  std::string text;       // a sentence
  uint64 mismatches = 0;  // of them it describes
};

/// Mismatches over the matrix of the part, which has its last axis as columns and all others as rows. A cell covers
/// rows_per_cell x columns_per_cell elements; there are at most 64 x 64 cells.
struct MismatchMap {
  uint64 matrix_rows = 0;
  uint64 matrix_columns = 0;
  uint64 rows_per_cell = 1;
  uint64 columns_per_cell = 1;
  std::size_t rows = 0;              // cells
  std::size_t columns = 0;           // cells
  std::vector<uint64> mismatches{};  // rows x columns counts, row-major
};

struct Comparison {
  std::string name;
  PartRole role = PartRole::result;
  const Format* format = nullptr;
  std::vector<uint64> shape{};
  uint64 elements = 0;
  uint64 mismatches = 0;  // elements of different bits
  std::array<uint64, difference_classes.size()> classes{};
  std::vector<UlpBin> ulps{};       // of all pairs that have a distance; empty bins at the end are left out
  uint64 most_ulps = 0;             // the greatest of these distances
  std::optional<uint64> outside{};  // mismatches that no tolerance allows; only where one was asked for
  std::vector<Mismatch> first{};
  std::vector<Mismatch> worst{};  // wildest class, then most ulp, then first
  std::vector<Pattern> patterns{};
  MismatchMap map{};
  uint64 rows_touched = 0;              // rows of the matrix that have mismatches
  uint64 columns_touched = 0;           // columns that have some
  std::vector<uint64> per_column{};     // mismatches of every column; empty above 2^20 columns
  std::vector<uint64> per_row{};        // of every row; empty above 2^20 rows
  std::vector<std::string> warnings{};  // "DUT is all zero: …"

  bool equal() const noexcept { return mismatches == 0; }
  /// Equal, or all differences within the tolerance that was asked for.
  bool passes() const noexcept { return outside ? *outside == 0 : mismatches == 0; }
};

/// Compares two arrays. Errors: a part without format or dimensions, sizes that do not fit the shape.
Expected<Comparison> compare(const ComparedPart& part, const CompareOptions& options = {});

/// The lane code of an element. Precondition: the part's sizes fit, and index is inside.
uint64 lane_of(const ComparedPart& part, std::span<const std::byte> bytes, uint64 index) noexcept;

/// The matrix of a part as row-major bytes, from bytes in which it is stored in a layout; its rows are all axes but the
/// last. Errors: a matrix that is not made of whole CELLs or fractals, bytes of another size.
Expected<std::vector<std::byte>> undo_layout(const ComparedPart& part, std::span<const std::byte> stored,
                                             machine::TileLayout layout);

/// The coordinates of an element in a shape.
std::vector<uint64> coordinates(std::span<const uint64> shape, uint64 index);

}  // namespace bitcube
