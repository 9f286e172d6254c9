// The U64 words that carry post-process parameters (numerics 4.2).
#pragma once

#include <cstdint>
#include <string_view>

#include "bitcube/numeric/fp19.hpp"

namespace bitcube {

/// What a quantisation carrier holds, which depends on the PreQuant mode.
enum class CarrierKind : std::uint8_t { none, scale, shift };

/// The fields of a quantisation carrier. Bits: 31:13 FP19 scale; 35:32 shift code; from 37 up the signed offset.
struct QuantCarrier {
  uint64 scale = 0;  // raw FP19
  int shift = 0;     // arithmetic right shift, 1..16
  int64 offset = 0;

  friend constexpr bool operator==(const QuantCarrier&, const QuantCarrier&) = default;
};

/// Why a carrier is illegal, or an empty text. `offset_bits`: 0, 5, 9 or 17.
constexpr std::string_view quant_carrier_fault(uint64 word, CarrierKind kind, int offset_bits) noexcept {
  if (kind == CarrierKind::none) return "the mode takes no quantisation parameter";
  const uint64 allowed =
      kind == CarrierKind::shift ? uint64{0xF} << 32 : (low_mask(19) << 13) | (low_mask(offset_bits) << 37);
  if ((word & ~allowed) != 0) return "unused carrier bits must be zero";
  if (kind == CarrierKind::shift) return {};
  const uint64 scale = (word >> 13) & low_mask(19);
  if (legal_as_scale(scale)) return {};
  const Value value = decode(fp19, scale);
  if (value.is_nan()) return "the FP19 scale is NaN; a scale must be positive normal";
  if (value.real.negative) return "the FP19 scale is negative; a scale must be positive normal";
  if (value.is_infinite()) return "the FP19 scale is infinite; a scale must be positive normal";
  return value.cls == Class::zero ? "the FP19 scale is zero; a scale must be positive normal"
                                  : "the FP19 scale is subnormal; a scale must be positive normal";
}

/// The fields of a legal carrier.
constexpr QuantCarrier unpack_quant_carrier(uint64 word, int offset_bits) noexcept {
  return {.scale = (word >> 13) & low_mask(19),
          .shift = static_cast<int>((word >> 32) & 0xF) + 1,
          .offset = offset_bits == 0 ? 0 : sign_extend(word >> 37, offset_bits)};
}

/// The carrier of a scale (raw FP19) and an offset of `offset_bits` bits. Precondition: the offset fits.
constexpr uint64 pack_scale_carrier(uint64 scale, int64 offset, int offset_bits) noexcept {
  return (scale << 13) | ((static_cast<uint64>(offset) & low_mask(offset_bits)) << 37);
}
/// The carrier of an arithmetic right shift by 1..16.
constexpr uint64 pack_shift_carrier(int shift) noexcept {
  return static_cast<uint64>(shift - 1) << 32;
}

/// Why an activation carrier (bits 18:0 FP19 alpha, the rest 0) is illegal, or an empty text.
constexpr std::string_view activation_carrier_fault(uint64 word) noexcept {
  if ((word >> 19) != 0) return "unused carrier bits must be zero";
  if (legal_as_activation(word)) return {};
  const Value value = decode(fp19, word);
  if (value.is_nan()) return "the FP19 alpha is NaN; an alpha must be +0 or positive normal";
  if (value.real.negative) return "the FP19 alpha is negative (or -0); an alpha must be +0 or positive normal";
  return value.is_infinite() ? "the FP19 alpha is infinite; an alpha must be +0 or positive normal"
                             : "the FP19 alpha is subnormal; an alpha must be +0 or positive normal";
}

}  // namespace bitcube
