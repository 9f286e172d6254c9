// Row-major matrices as the two sides of a product A * B: the lines of A are its rows, those of B its columns.
#pragma once

#include <cstddef>
#include <span>

#include "bitcube/cube/operand.hpp"
#include "bitcube/expected.hpp"
#include "bitcube/quantize/tensor.hpp"

namespace bitcube {

enum class Side : std::uint8_t { a, b };

constexpr const char* name_of(Side side) noexcept {
  return side == Side::a ? "A" : "B";
}

/// A row-major matrix of little-endian words, one lane of `format` in the low bits of each. A word has
/// format.carrier_bits bits. The bytes stay with the caller; they must cover the matrix.
Operand matrix_operand(Side side, const Format& format, std::span<const std::byte> words, std::size_t rows,
                       std::size_t cols) noexcept;

/// Scales for such a matrix, row-major as well: one word per line and group of K, so rows x groups for A and groups x
/// cols for B. Words are E8M0 bytes, or U32 for HiF4.
void attach_scales(Side side, Operand& operand, std::span<const std::byte> words) noexcept;

/// A quantised matrix. Its groups must lie along K: the last axis of A, the first one of B. Errors: another rank or
/// axis, a format without a place in the product (NVFP4), an invalid tensor. The tensor stays with the caller.
Expected<Operand> quantized_operand(Side side, const QuantizedTensor& tensor);

}  // namespace bitcube
