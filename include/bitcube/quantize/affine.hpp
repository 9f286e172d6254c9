// Affine TQUANT (FP32 to S8/U8) and TDEQUANT (S8/U8 to FP32) of one element (numerics 10.1, 10.2).
#pragma once

#include <string_view>

#include "bitcube/numeric/encode.hpp"
#include "bitcube/numeric/exact_sum.hpp"

namespace bitcube {

/// Multiplier and zero point; the defaults change nothing.
struct AffineParameters {
  uint64 multiplier = 0x3F800000;  // FP32 word
  uint64 zero_point = 0;           // 64-bit word: a value of the integer type, sign- or zero-extended
};

/// Why the parameters are illegal for the integer type (S8 or U8), or an empty text.
constexpr std::string_view affine_fault(const Format& integer, const AffineParameters& p) noexcept {
  const Value m = decode(fp32, p.multiplier);
  const bool positive = m.cls == Class::normal || m.cls == Class::subnormal;
  if ((p.multiplier >> 32) != 0 || !positive || m.real.negative) {
    return "the multiplier must be a positive finite FP32 number";
  }
  const uint64 low = p.zero_point & low_mask(integer.lane_bits);
  const uint64 canonical =
      integer.kind == Kind::signed_integer ? static_cast<uint64>(sign_extend(low, integer.lane_bits)) : low;
  return p.zero_point == canonical ? "" : "the zero point must be a value of the integer type";
}

/// round(x * multiplier + zero_point), one rounding of the exact sum. NaN gives 0 with NV, infinities the end of the
/// range with OF|NX. A finite result beyond the range is clamped (Sat = 1) or cut to 8 bits (Sat = 0) without OF; NX
/// tells only whether the rounding was exact. Precondition: legal parameters.
constexpr Encoded affine_quantize(const Format& integer, uint64 x, const AffineParameters& p, Rounding rounding,
                                  bool saturate) noexcept {
  const Value v = decode(fp32, x);
  if (v.is_nan()) return {0, Flags::invalid};
  if (v.is_infinite()) {
    const uint64 lowest = integer.kind == Kind::signed_integer ? integer.max_finite + 1 : 0;
    return {v.real.negative ? lowest : integer.max_finite, overflow_inexact};
  }
  ExactSum sum;
  sum.add(multiply(v.real, decode(fp32, p.multiplier).real));
  sum.add(decode(integer, p.zero_point).real);
  const auto exact = sum.value();
  const Encoded e = encode(integer, exact, EncodeControl{.rounding = rounding, .saturate = saturate});
  return {e.bits, split(exact, 0).remainder == Remainder::exact ? Flags::none : Flags::inexact};
}

/// (q - zero_point) * multiplier, exact, then one FP32 encode with Sat = 0; q = zero_point gives +0. Precondition:
/// legal parameters.
constexpr Encoded affine_dequantize(const Format& integer, uint64 q, const AffineParameters& p, Rounding rounding,
                                    const ConversionProfile& profile = pto_profile) noexcept {
  const auto value = [&](uint64 word) {
    const Real r = decode(integer, word).real;
    return r.negative ? -static_cast<int64>(r.significand) : static_cast<int64>(r.significand);
  };
  const Real difference = real_from_signed(value(q) - value(p.zero_point));
  return encode(fp32, multiply(difference, decode(fp32, p.multiplier).real), EncodeControl{rounding, false, &profile});
}

}  // namespace bitcube
