// The matrix product on plain matrices: scaled operands in, raw accumulators out (numerics 9).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bitcube/buffer.hpp"
#include "bitcube/cube/accumulate.hpp"
#include "bitcube/expected.hpp"
#include "bitcube/parallel.hpp"

namespace bitcube {

/// What the types of two operands decide (numerics 9.2, profiles 3).
struct ProductKind {
  const Format* accumulator = nullptr;  // FP32, S32 or U32
  bool mx = false;                      // an MX operation; else an ordinary one
  std::size_t group = 0;                // lanes per group of the profile `group`
};

/// The kind of product of two operands, or why there is none. A scale on both sides, or on one with FP16/BF16 on the
/// other, makes an MX operation; FP16 and BF16 alone count as MX. Errors: an operand without lines or lanes, types that
/// no product takes, scales that are missing or too many.
Expected<ProductKind> product_kind(const Operand& a, const Operand& b);

/// Row-major accumulators, one 32-bit word per element.
struct Accumulators {
  const Format* format = nullptr;  // FP32, S32 or U32
  std::size_t rows = 0;
  std::size_t cols = 0;
  Buffer<std::uint32_t> words;
};

struct MatmulOptions {
  const AccumulationProfile* profile = &accumulation_profiles[0];
  std::optional<std::span<const std::uint32_t>> c{};     // rows x cols accumulator words; else +0
  std::optional<std::span<const std::uint32_t>> bias{};  // cols accumulator words, added once after the last k
  Execution execution{};
  std::size_t group = 0;  // lanes per group of the profile `group`, where the operation decides; 0: ProductKind::group
};

/// Whether these have a product: types, shapes, C and bias. Nothing is computed before this passes.
Expected<ProductKind> check_matmul(const Operand& a, const Operand& b, const MatmulOptions& options);

/// D = C + A * B + bias in accumulators (numerics 9.3). A has its rows as lines, B its columns; both have k >= 1 lanes
/// a line. Integers are exact modulo 2^32 under every profile. No flags are recorded (numerics 9.5).
Expected<Accumulators> matmul(const Operand& a, const Operand& b, const MatmulOptions& options);

}  // namespace bitcube
