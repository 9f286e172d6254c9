// Exact reals to encodings: one rounding, driven by the format's descriptor (numerics 6, 7.2, 7.5, 7.6).
#pragma once

#include <cstdint>

#include "bitcube/numeric/decode.hpp"
#include "bitcube/numeric/flags.hpp"
#include "bitcube/numeric/format.hpp"
#include "bitcube/numeric/profile.hpp"
#include "bitcube/numeric/real.hpp"
#include "bitcube/numeric/rounding.hpp"

namespace bitcube {

/// One delivered lane: its code in the low lane bits (integers too, nothing above), and the flags it raises.
struct Encoded {
  uint64 bits = 0;
  Flags flags = Flags::none;

  friend constexpr bool operator==(const Encoded&, const Encoded&) = default;
};

/// How an encoder rounds and what it does beyond the range.
struct EncodeControl {
  Rounding rounding = Rounding::rne;
  bool saturate = false;
  const ConversionProfile* profile = &pto_profile;
};

/// Puts the sign on a magnitude code.
constexpr uint64 with_sign(const Format& f, uint64 magnitude, bool negative) noexcept {
  return negative && f.sign_bits != 0 ? magnitude | (uint64{1} << f.sign_bit()) : magnitude;
}

/// Zero with a sign: formats without -0 give +0 (numerics 7.4).
constexpr uint64 zero_code(const Format& f, bool negative) noexcept {
  return with_sign(f, 0, negative && f.has_signed_zero);
}

/// The largest code that a saturating result takes, before the sign. E2M1 has its own under `pto` (numerics 7.5).
constexpr uint64 saturated_magnitude(const Format& f, const ConversionProfile& profile) noexcept {
  return f.type == DataType::e2m1x2 ? profile.e2m1_overflow_code : f.max_finite;
}

/// What a floating or scale format delivers for a magnitude beyond its range (numerics 6.1, 6.3, 7.5, 7.6).
constexpr Encoded overflow_result(const Format& f, bool negative, const EncodeControl& control) noexcept {
  if (control.saturate || f.overflow_result == OverflowResult::max_finite) {
    return {with_sign(f, saturated_magnitude(f, *control.profile), negative), overflow_inexact};
  }
  if (f.overflow_result == OverflowResult::nan) return {f.canonical_nan, overflow_inexact};
  return {with_sign(f, f.infinity, negative), overflow_inexact};
}

namespace detail {

/// Exponent of one unit in the last place for values in [2^e, 2^(e+1)).
constexpr int quantum_exponent(const Format& f, int e) noexcept {
  const int binade = e < f.min_exponent() ? f.min_exponent() : e;
  return binade - (f.layout == Layout::dot_field ? hif8_fraction_bits(binade) : f.fraction_bits);
}

/// Last code bit of the magnitude quanta * 2^quantum. Fields: the last bit of the significand. The one-value binades of
/// HiF8 have codes e + 23.
constexpr bool code_is_odd(const Format& f, uint64 quanta, int quantum) noexcept {
  if (f.layout == Layout::dot_field && quantum < -16) return quanta != 0 && ((quantum + 23) & 1) != 0;
  return (quanta & 1) != 0;
}

constexpr uint64 hif8_code(uint64 significand, int e) noexcept {
  if (e < -15) return static_cast<uint64>(e) + 23;
  const int magnitude = e < 0 ? -e : e;
  const int fraction_bits = hif8_fraction_bits(e);
  const uint64 fraction = significand & low_mask(fraction_bits);
  if (magnitude == 0) return 0x08 | fraction;
  const int width =
      bit_length(static_cast<uint64>(magnitude));  // exponent bits, the hidden top one replaced by the sign
  constexpr std::array<uint64, 5> prefix{0, 0x10, 0x20, 0x40, 0x60};
  const uint64 top = uint64{1} << (width - 1);
  const uint64 field = (static_cast<uint64>(magnitude) & (top - 1)) | (e < 0 ? top : 0);
  return prefix[static_cast<std::size_t>(width)] | field << fraction_bits | fraction;
}

/// Code of the finite magnitude quanta * 2^quantum, where quantum is that of its binade.
constexpr uint64 magnitude_code(const Format& f, uint64 quanta, int quantum) noexcept {
  if (quanta == 0) return 0;
  const int e = bit_length(quanta) - 1 + quantum;
  if (f.layout == Layout::dot_field) return hif8_code(quanta, e);
  // Consecutive magnitudes have consecutive codes, so the hidden bit may simply carry into the exponent field.
  const int field = e < f.min_exponent() ? 0 : e - f.min_exponent() + (f.exponent_zero_is_subnormal ? 1 : 0);
  const uint64 hidden = field == 0 && f.exponent_zero_is_subnormal ? 0 : uint64{1} << f.fraction_bits;
  return ((static_cast<uint64>(field) << f.fraction_bits) + quanta - hidden) << f.low_zero_bits;
}

/// Whether the inexact value x, delivered as `delivered` quanta, raises UF (numerics 6.2, 7.5, 7.6).
template <typename ExactReal>
constexpr bool underflows(const Format& f, const ExactReal& x, uint64 delivered, int quantum,
                          const EncodeControl& control) noexcept {
  const int limit = f.underflow_exponent;
  const bool source_below = floor_log2(x) < limit;
  const bool delivered_below = delivered == 0 || bit_length(delivered) - 1 + quantum < limit;
  if (f.underflow_test == UnderflowTest::source) return source_below;
  if (f.underflow_test == UnderflowTest::delivered) return delivered_below;
  switch (f.reduced ? control.profile->tininess_reduced : control.profile->tininess) {
    case Tininess::before:
      return source_below;
    case Tininess::result:
      return delivered_below;
    case Tininess::after:
      break;
  }
  if (!source_below) return false;
  // Round once more, to the full precision that an unbounded exponent would give the binade below the limit.
  const int fine = limit - f.underflow_precision;
  const Split s = split(x, fine);
  const auto lower = static_cast<uint64>(s.quanta);
  const uint64 rounded = lower + (rounds_away(control.rounding, x.negative, (lower & 1) != 0, s.remainder) ? 1 : 0);
  return bit_length(rounded) - 1 + fine < limit;
}

/// Floating formats and E6M2 (numerics 6.1, 6.3, 7.1, 7.5, 7.6). x is not zero.
template <typename ExactReal>
constexpr Encoded encode_floating(const Format& f, const ExactReal& x, const EncodeControl& control) noexcept {
  const int e = floor_log2(x);
  const bool rounded_test =
      f.overflow_test == OverflowTest::exponent ||
      (f.overflow_test == OverflowTest::magnitude_or_ocp && control.profile->fp8_overflow_after_rounding);
  const Real largest = decode(f, f.max_finite).real;
  const int largest_exponent = floor_log2(largest);
  if (e > largest_exponent || (!rounded_test && compare_magnitude(x, largest) > 0)) {
    return overflow_result(f, x.negative, control);
  }
  if (!f.has_zero && e < f.min_exponent()) return {0, underflow_inexact};  // E6M2: the smallest value is code 00

  int quantum = quantum_exponent(f, e);
  const Split s = split(x, quantum);
  auto quanta = static_cast<uint64>(s.quanta);
  if (rounds_away(control.rounding, x.negative, code_is_odd(f, quanta, quantum), s.remainder)) ++quanta;
  const bool inexact = s.remainder != Remainder::exact;
  const bool underflow = inexact && underflows(f, x, quanta, quantum, control);
  if (quanta == 0) {
    const bool keep_sign = f.type == DataType::e4m3 ? control.profile->e4m3_keeps_negative_zero : true;
    return {zero_code(f, x.negative && keep_sign), underflow_inexact};
  }
  // A carry to the next power of two may enter a binade with another quantum.
  const int carried = quantum_exponent(f, bit_length(quanta) - 1 + quantum);
  if (carried > quantum) {
    quanta >>= carried - quantum;
    quantum = carried;
  }
  const Real rounded{.significand = quanta, .exponent = quantum};
  if (rounded_test && compare_magnitude(rounded, largest) > 0) return overflow_result(f, x.negative, control);
  const Flags flags = !inexact ? Flags::none : underflow ? underflow_inexact : Flags::inexact;
  return {with_sign(f, magnitude_code(f, quanta, quantum), x.negative), flags};
}

/// E8M0: log2 |x| rounded to an integer (numerics 7.2, ADR 0085 decision 183). x is positive.
template <typename ExactReal>
constexpr Encoded encode_exponent(const Format& f, const ExactReal& x, const EncodeControl& control) noexcept {
  const int e = floor_log2(x);
  const bool power_of_two = split(x, e).remainder == Remainder::exact;
  const int largest = static_cast<int>(f.max_finite) - f.bias;
  if (e < -f.bias) return {control.saturate ? 0 : f.canonical_nan, underflow_inexact};
  if (e > largest || (e == largest && !power_of_two)) return overflow_result(f, false, control);
  if (power_of_two) return {static_cast<uint64>(e + f.bias), Flags::none};
  // e < log2 x < e + 1 is a signed number: toward zero means up when e is negative, and no tie exists.
  bool up = false;
  switch (control.rounding) {
    case Rounding::rtm:
      up = false;
      break;
    case Rounding::rtp:
      up = true;
      break;
    case Rounding::rtz:
      up = e < 0;
      break;
    case Rounding::rto:
      up = (e & 1) == 0;
      break;
    case Rounding::rne:
    case Rounding::rna:
    case Rounding::rhb:
      up = above_sqrt2(x);
      break;
  }
  return {static_cast<uint64>(e + (up ? 1 : 0) + f.bias), Flags::inexact};
}

/// Integers: rounded, then clamped or cut to the width (numerics 6.4).
template <typename ExactReal>
constexpr Encoded encode_integer(const Format& f, const ExactReal& x, const EncodeControl& control) noexcept {
  const Split s = split(x, 0);
  const uint128 magnitude =
      s.quanta + (rounds_away(control.rounding, x.negative, (s.quanta & 1) != 0, s.remainder) ? 1 : 0);
  const uint64 wrapped = static_cast<uint64>(x.negative ? ~magnitude + 1 : magnitude) & low_mask(f.lane_bits);
  const uint128 lowest = f.kind == Kind::signed_integer ? uint128{f.max_finite} + 1 : 0;  // magnitude of the minimum
  const uint128 limit = x.negative ? lowest : uint128{f.max_finite};
  const bool huge = !x.is_zero() && floor_log2(x) > 64;
  if (huge || magnitude > limit) {
    const uint64 clamped = x.negative ? static_cast<uint64>(lowest) : f.max_finite;
    return {control.saturate ? clamped : wrapped, overflow_inexact};
  }
  return {wrapped, s.remainder == Remainder::exact ? Flags::none : Flags::inexact};
}

}  // namespace detail

/// Encodes the exact real x into format f with one rounding. Zero gives +0 without flags (a caller that keeps the sign
/// of zero uses zero_code), except in the scale formats, which have no zero: E8M0 FF/NV, E6M2 00/UF|NX; negative
/// numbers in a scale format give FF/NV. Precondition: f is not RCPE6M2, which is no destination.
template <typename ExactReal>
constexpr Encoded encode(const Format& f, const ExactReal& x, const EncodeControl& control) noexcept {
  if (f.is_integer()) return detail::encode_integer(f, x, control);
  if (f.kind == Kind::scale && (x.is_zero() ? f.layout == Layout::exponent : x.negative)) {
    return {f.canonical_nan, Flags::invalid};
  }
  if (x.is_zero()) return {0, f.kind == Kind::scale ? underflow_inexact : Flags::none};
  if (f.layout == Layout::exponent) return detail::encode_exponent(f, x, control);
  return detail::encode_floating(f, x, control);
}

}  // namespace bitcube
