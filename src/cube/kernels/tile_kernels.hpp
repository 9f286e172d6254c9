// What the SIMD product kernels do, target by target: packing lines of an operand, and tiles of the output.
//
// K is cut into chunks. Of one chunk, a panel of A holds `rows` lines, each as consecutive units, and a panel of B
// holds `cols` lines with the units of all lines for one k side by side. A unit is what one multiply-add step takes of
// a line: one float, one double, two 16-bit or four 8-bit integers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bitcube/cube/operand.hpp"

namespace bitcube::kernels {

/// How an output element is computed. Each equals one accumulation profile (profiles 3) on operands that meet its
/// conditions; see product.cpp for the choice.
enum class Method : std::uint8_t {
  f32_fma,       // fma: FP32 elements, one fused multiply-add per k
  f32_two_step,  // two-step, and fma where every product fits FP32
  f64_group,     // group: sums of a group in binary64, then one correctly rounded step
  f64_exact,     // exact: the sum over all K in binary64
  i8_group,      // group: integer dot products of a group, scaled exactly, one FP32 step
  i8_exact,      // exact: the same, summed in binary64
  i8_modulo,     // integers of up to 8 bits, modulo 2^32
  i16_modulo,    // integers of up to 16 bits, modulo 2^32
};

inline constexpr std::size_t chunk_units = 256;
/// Units from one line of an A panel to the next: lines lie in different cache sets.
inline constexpr std::size_t line_units = chunk_units + 16;
/// Groups of a chunk: no group has less than 16 lanes, and no chunk more than 1024.
inline constexpr std::size_t chunk_groups = 64;

constexpr std::size_t lanes_per_unit(Method m) noexcept {
  return m >= Method::i8_group && m <= Method::i8_modulo ? 4 : m == Method::i16_modulo ? 2 : 1;
}
constexpr std::size_t unit_bytes(Method m) noexcept {
  return m == Method::f64_group || m == Method::f64_exact ? 8 : 4;
}
constexpr bool is_exact(Method m) noexcept {
  return m == Method::f64_exact || m == Method::i8_exact;
}

/// What a chunk of one panel needs beside its units. `width` is the panel's rows or cols.
struct PanelSide {
  float* scales = nullptr;       // i8_group, i8_exact: per line and group. A: [line][chunk_groups], B: [group][width]
  double* bounds = nullptr;      // f64_group: no lane is larger in magnitude; laid out as scales
  std::int32_t* sums = nullptr;  // corrections of the integer sums. A: [line][chunk_groups]; B: [width]
};

/// The binary exponents of what was packed: every lane is a multiple of 2^low, and less than 2^high in magnitude. For
/// f64_group `span` is the largest high - low of a group. For i8_exact they are those of the scales.
struct ExponentRange {
  static constexpr int none_low = 1 << 20;
  static constexpr int none_high = -(1 << 20);
  int low = none_low;
  int high = none_high;
  int span = 0;

  void include(int other_low, int other_high) noexcept {
    if (other_low < low) low = other_low;
    if (other_high > high) high = other_high;
  }
  void include(const ExponentRange& other) noexcept {
    include(other.low, other.high);
    if (other.span > span) span = other.span;
  }
  bool empty() const noexcept { return high < low; }
};

struct PackRequest {
  const Operand* side = nullptr;
  Method method = Method::f32_fma;
  bool is_b = false;
  std::size_t group = 0;               // lanes per group
  bool sums_fit = false;               // f64_group: the formats alone say that no sum of a group can round
  bool products_must_fit = false;      // f32_two_step as fma: every product with a like line must be an FP32 value
  const std::int8_t* table = nullptr;  // i8 methods on 4-bit lanes: their integers
  int offset = 0;                      // i8, i16: added to every lane of this side before it is packed
  int other_offset = 0;                // i8, i16: what is added to the lanes of the other side
};

/// Where one chunk of one panel goes.
struct Panel {
  void* units = nullptr;
  PanelSide beside;
};

/// One output tile and the panels of one chunk.
struct Tile {
  const void* a = nullptr;
  const void* b = nullptr;
  PanelSide a_beside;
  PanelSide b_beside;
  std::size_t units = 0;         // of the chunk
  std::size_t group_units = 0;   // of a full group
  bool sums_are_exact = true;    // f64 methods: no sum of a group, or of all of K, can round
  std::uint32_t* out = nullptr;  // accumulator words, updated
  std::size_t out_stride = 0;
  double* exact = nullptr;  // f64_exact, i8_exact: rows x cols sums, updated; behind them the two other parts that
                            // f64_exact may need
};

/// The kernels of one method on one target.
struct TileKernels {
  std::size_t rows = 0;  // of a tile; 0 where the target has no kernel
  std::size_t cols = 0;
  /// Packs lanes [k0, k0 + n) of lines [line, line + count), count <= rows or cols; the other lines of the panel become
  /// zeros. Sets bad[i] for lines that the method cannot take. Adds what it saw to `range`.
  void (*pack)(const PackRequest& request, std::size_t line, std::size_t count, std::size_t k0, std::size_t n,
               const Panel& to, std::uint8_t* bad, ExponentRange& range) = nullptr;
  void (*multiply)(const Tile& tile) = nullptr;
  /// Exact methods: out <- RNE32(out + exact) over a whole tile. False where the rounding stays open.
  bool (*finish)(const Tile& tile) = nullptr;
  /// After the last k: NaN becomes the delivered one, then the bias (may be nullptr) is added once.
  void (*add_bias)(std::uint32_t* row, const std::uint32_t* bias, std::size_t n) = nullptr;
  bool fused = false;  // whether the target multiplies and adds FP32 with one rounding
};

/// Of the best target of this machine.
TileKernels tile_kernels(Method method);

}  // namespace bitcube::kernels
