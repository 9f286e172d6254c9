// What the vector encoders need of a destination: numbers that follow from its descriptor and the controls.
#pragma once

#include <cstdint>

#include "bitcube/numeric/encode.hpp"

namespace bitcube::kernels {

/// Whether the vector encoders know the destination: the floating formats of at most 32 bits with one lane per carrier.
constexpr bool encodes(const Format& to) noexcept {
  return to.kind == Kind::floating && (to.layout == Layout::fields || to.layout == Layout::dot_field) &&
         !to.is_packed() && to.carrier_bits <= 32 && to.fraction_bits <= 23;
}

/// Position of the leading bit of the kernels' significands: a magnitude is significand * 2^(exponent - lead).
inline constexpr int lead = 29;

struct EncodeConstants {
  Rounding rounding = Rounding::rne;
  std::int32_t fraction_bits = 0;
  std::int32_t min_exponent = 0;
  std::int32_t low_zero_bits = 0;
  std::int32_t sign_shift = 0;    // from bit 31 to the sign of a lane
  std::int32_t largest_code = 0;  // of a finite magnitude, without the low zero bits; the layout `fields` only

  // Above significand * 2^(exponent - lead) a magnitude overflows whatever the rounding does.
  std::int32_t over_exponent = 0;
  std::int32_t over_significand = 0;
  std::uint32_t overflow_word = 0;

  // An inexact magnitude x raises UF if x < 2^underflow_exponent, unless x lies in the binade just below and its
  // significand is above tiny_significand[negative]; with `tiny_by_result` also only where the delivered code is below
  // tiny_codes.
  std::int32_t underflow_exponent = 0;
  std::int32_t tiny_significand[2] = {0, 0};
  bool tiny_by_result = false;
  std::int32_t tiny_codes = 0;

  bool drops_signs = false;  // at all, in one of the three cases:
  bool overflow_drops_sign = false;
  bool zero_drops_sign = false;       // any zero
  bool underflow_drops_sign = false;  // a zero that was rounded

  bool has_infinity = false;
  std::uint32_t infinity = 0;
  std::uint32_t nan = 0;  // what TCVT delivers for a NaN
};

/// The constants of encode_floating for a destination that encodes() accepts.
constexpr EncodeConstants encode_constants(const Format& to, const EncodeControl& control) noexcept {
  constexpr std::int32_t all_ones = (1 << (lead + 1)) - 1;  // no significand is above
  EncodeConstants c;
  c.rounding = control.rounding;
  c.fraction_bits = to.fraction_bits;
  c.min_exponent = to.min_exponent();
  c.low_zero_bits = to.low_zero_bits;
  c.sign_shift = 31 - to.sign_bit();
  c.largest_code = static_cast<std::int32_t>(to.max_finite >> to.low_zero_bits);

  const bool rounded_test =
      to.overflow_test == OverflowTest::exponent ||
      (to.overflow_test == OverflowTest::magnitude_or_ocp && control.profile->fp8_overflow_after_rounding);
  const Real largest = decode(to, to.max_finite).real;
  c.over_exponent = floor_log2(largest);
  c.over_significand =
      rounded_test ? all_ones
                   : static_cast<std::int32_t>(largest.significand << (lead - bit_length(largest.significand) + 1));
  const Encoded overflow = overflow_result(to, false, control);
  c.overflow_word = static_cast<std::uint32_t>(overflow.bits);
  c.overflow_drops_sign = overflow_result(to, true, control).bits == overflow.bits;

  c.underflow_exponent = to.underflow_exponent;
  c.tiny_significand[0] = c.tiny_significand[1] = all_ones;
  const Tininess tininess = to.reduced ? control.profile->tininess_reduced : control.profile->tininess;
  c.tiny_by_result = tininess == Tininess::result;
  c.tiny_codes = to.layout == Layout::dot_field ? 0x08 : std::int32_t{1} << to.fraction_bits;
  if (tininess == Tininess::after) {
    // The largest magnitude that stays below 2^underflow_exponent when rounded to full precision: its lower neighbour
    // is all ones, hence odd. Significands are compared after the bits that they lost were put into their last bit.
    const std::int32_t ulp = std::int32_t{1} << (lead + 1 - to.underflow_precision);
    for (const bool negative : {false, true}) {
      std::int32_t& last = c.tiny_significand[negative ? 1 : 0];
      if (rounds_away(control.rounding, negative, true, Remainder::below_half)) {
        last = all_ones + 1 - ulp;
      } else if (rounds_away(control.rounding, negative, true, Remainder::half)) {
        last = all_ones - ulp / 2;
      } else if (rounds_away(control.rounding, negative, true, Remainder::above_half)) {
        last = all_ones + 1 - ulp / 2;
      }
    }
  }

  c.zero_drops_sign = !to.has_signed_zero;
  c.underflow_drops_sign = to.type == DataType::e4m3 && !control.profile->e4m3_keeps_negative_zero;
  c.drops_signs = c.overflow_drops_sign || c.zero_drops_sign || c.underflow_drops_sign;
  c.has_infinity = to.has_infinity;
  c.infinity = static_cast<std::uint32_t>(to.infinity);
  c.nan = to.nan != NanCodes::none ? static_cast<std::uint32_t>(to.canonical_nan) : 0;
  return c;
}

/// The largest FP32 magnitude, as a pattern, that is at most significand * 2^(exponent - lead). The significand's
/// leading bit is set, and exponent >= -127.
constexpr std::int32_t fp32_at_most(std::int32_t exponent, std::int32_t significand) noexcept {
  constexpr int extra = lead - 23;
  if (exponent < -126) return significand >> (extra + 1);
  return ((exponent + 126) << 23) + (significand >> extra);
}

}  // namespace bitcube::kernels
