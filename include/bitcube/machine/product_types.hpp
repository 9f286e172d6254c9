// Which element types the CUBE operations multiply (architecture 4.4).
#pragma once

#include <cstdint>

#include "bitcube/numeric/format.hpp"

namespace bitcube::machine {

/// The accumulator of an ordinary side, or none where the type is no operand of an ordinary product. Both sides must
/// have the same one.
constexpr DataType ordinary_accumulator(DataType t) noexcept {
  switch (t) {
    case DataType::fp32:
    case DataType::tf32:
    case DataType::hf32:
    case DataType::fp16:
    case DataType::bf16:
    case DataType::hif8:
    case DataType::e4m3:
    case DataType::e5m2:
    case DataType::e3m2:
    case DataType::e2m3:
    case DataType::e2m1x2:
    case DataType::e1m2x2:
      return DataType::fp32;
    case DataType::s16:
    case DataType::s8:
    case DataType::s4x2:
      return DataType::s32;
    case DataType::u16:
    case DataType::u8:
    case DataType::u4x2:
      return DataType::u32;
    default:
      return DataType::none;
  }
}

/// A side of an MX product that has a scale operand.
constexpr bool is_scaled_mx_side(DataType t) noexcept {
  return t == DataType::e4m3 || t == DataType::e5m2 || t == DataType::e2m1x2 || t == DataType::e1m2x2 ||
         t == DataType::hif4x2;
}
/// A side of an MX product; FP16 and BF16 come without a scale.
constexpr bool is_mx_side(DataType t) noexcept {
  return t == DataType::fp16 || t == DataType::bf16 || is_scaled_mx_side(t);
}
/// Lanes of K that share a scale, and the type of the scale.
constexpr std::uint32_t mx_group(DataType t) noexcept {
  return t == DataType::hif4x2 ? 64 : 32;
}
constexpr DataType mx_scale_type(DataType t) noexcept {
  return t == DataType::hif4x2 ? DataType::u32 : DataType::e8m0;
}

}  // namespace bitcube::machine
