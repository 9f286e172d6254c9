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

/// How an encoder came to its result: encode_steps() says it to whoever explains a result.
struct EncodeSteps {
  enum class Path : std::uint8_t {
    rounded,         // one of the two neighbours
    beyond,          // overflow: the exact magnitude is beyond the format
    rounded_beyond,  // overflow: the rounded magnitude is
    below,           // a positive magnitude below the smallest one of a format without zero
    no_number,       // a zero or a negative number, which a scale format does not have
  };
  Path path = Path::rounded;
  int quantum = 0;            // |x| lies between cut.quanta and cut.quanta + 1 units of 2^quantum ...
  Split cut{};                // ... if the path is a rounded one; integers have their quanta modulo 2^128
  bool lower_is_odd = false;  // last code bit of the lower neighbour; of E8M0 its exponent
  bool away = false;          // the upper neighbour was taken
  bool source_tiny = false;   // the exact magnitude is below the bound of UF
  bool result_tiny = false;   // the delivered one is
  int fine_quantum = 0;       // where UF asks for a rounding with unbounded exponent: it gave ...
  uint64 fine_quanta = 0;     // ... so many units of 2^fine_quantum; else 0
  Encoded result{};
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

/// Units of 2^quantum as units of the binade that they lie in: a carry to the next power of two may enter one with
/// another quantum.
constexpr void enter_binade(const Format& f, uint64& quanta, int& quantum) noexcept {
  const int carried = quantum_exponent(f, bit_length(quanta) - 1 + quantum);
  if (carried <= quantum) return;
  quanta >>= carried - quantum;
  quantum = carried;
}

/// Whether the overflow test is made on the rounded value.
constexpr bool tests_rounded_value(const Format& f, const ConversionProfile& profile) noexcept {
  return f.overflow_test == OverflowTest::exponent ||
         (f.overflow_test == OverflowTest::magnitude_or_ocp && profile.fp8_overflow_after_rounding);
}

/// The reading of tininess that a profile has for a format whose test is UnderflowTest::profile.
constexpr Tininess tininess_of(const Format& f, const ConversionProfile& profile) noexcept {
  return f.reduced ? profile.tininess_reduced : profile.tininess;
}

/// Whether the inexact value x, delivered as `delivered` quanta, raises UF (numerics 6.2, 7.5, 7.6).
template <typename ExactReal>
constexpr bool underflows(const Format& f, const ExactReal& x, uint64 delivered, const EncodeControl& control,
                          EncodeSteps& steps) noexcept {
  const int limit = f.underflow_exponent;
  steps.source_tiny = floor_log2(x) < limit;
  steps.result_tiny = delivered == 0 || bit_length(delivered) - 1 + steps.quantum < limit;
  if (f.underflow_test == UnderflowTest::source) return steps.source_tiny;
  if (f.underflow_test == UnderflowTest::delivered) return steps.result_tiny;
  switch (tininess_of(f, *control.profile)) {
    case Tininess::before:
      return steps.source_tiny;
    case Tininess::result:
      return steps.result_tiny;
    case Tininess::after:
      break;
  }
  if (!steps.source_tiny) return false;
  // Round once more, to the full precision that an unbounded exponent would give the binade below the limit.
  steps.fine_quantum = limit - f.underflow_precision;
  const Split s = split(x, steps.fine_quantum);
  const auto lower = static_cast<uint64>(s.quanta);
  steps.fine_quanta = lower + (rounds_away(control.rounding, x.negative, (lower & 1) != 0, s.remainder) ? 1 : 0);
  return bit_length(steps.fine_quanta) - 1 + steps.fine_quantum < limit;
}

/// Floating formats and E6M2 (numerics 6.1, 6.3, 7.1, 7.5, 7.6). x is not zero.
template <typename ExactReal>
constexpr EncodeSteps encode_floating(const Format& f, const ExactReal& x, const EncodeControl& control) noexcept {
  using Path = EncodeSteps::Path;
  EncodeSteps steps;
  const int e = floor_log2(x);
  const bool rounded_test = tests_rounded_value(f, *control.profile);
  const Real largest = decode(f, f.max_finite).real;
  const int largest_exponent = floor_log2(largest);
  if (e > largest_exponent || (!rounded_test && compare_magnitude(x, largest) > 0)) {
    steps.path = Path::beyond;
    steps.result = overflow_result(f, x.negative, control);
    return steps;
  }
  if (!f.has_zero && e < f.min_exponent()) {  // E6M2: the smallest value is code 00
    steps.path = Path::below;
    steps.result = {0, underflow_inexact};
    return steps;
  }

  int quantum = quantum_exponent(f, e);
  steps.quantum = quantum;
  steps.cut = split(x, quantum);
  auto quanta = static_cast<uint64>(steps.cut.quanta);
  steps.lower_is_odd = code_is_odd(f, quanta, quantum);
  steps.away = rounds_away(control.rounding, x.negative, steps.lower_is_odd, steps.cut.remainder);
  if (steps.away) ++quanta;
  const bool inexact = steps.cut.remainder != Remainder::exact;
  const bool underflow = inexact && underflows(f, x, quanta, control, steps);
  if (quanta == 0) {
    const bool keep_sign = f.type == DataType::e4m3 ? control.profile->e4m3_keeps_negative_zero : true;
    steps.result = {zero_code(f, x.negative && keep_sign), underflow_inexact};
    return steps;
  }
  enter_binade(f, quanta, quantum);
  const Real rounded{.significand = quanta, .exponent = quantum};
  if (rounded_test && compare_magnitude(rounded, largest) > 0) {
    steps.path = Path::rounded_beyond;
    steps.result = overflow_result(f, x.negative, control);
    return steps;
  }
  const Flags flags = !inexact ? Flags::none : underflow ? underflow_inexact : Flags::inexact;
  steps.result = {with_sign(f, magnitude_code(f, quanta, quantum), x.negative), flags};
  return steps;
}

/// E8M0: log2 |x| rounded to an integer (numerics 7.2, ADR 0085 decision 183). x is positive.
template <typename ExactReal>
constexpr EncodeSteps encode_exponent(const Format& f, const ExactReal& x, const EncodeControl& control) noexcept {
  using Path = EncodeSteps::Path;
  const int e = floor_log2(x);
  EncodeSteps steps{.quantum = e, .cut = split(x, e), .lower_is_odd = (e & 1) != 0};
  const bool power_of_two = steps.cut.remainder == Remainder::exact;
  const int largest = static_cast<int>(f.max_finite) - f.bias;
  if (e < -f.bias) {
    steps.path = Path::below;
    steps.result = {control.saturate ? 0 : f.canonical_nan, underflow_inexact};
    return steps;
  }
  if (e > largest || (e == largest && !power_of_two)) {
    steps.path = Path::beyond;
    steps.result = overflow_result(f, false, control);
    return steps;
  }
  if (power_of_two) {
    steps.result = {static_cast<uint64>(e + f.bias), Flags::none};
    return steps;
  }
  // e < log2 x < e + 1 is a signed number: toward zero means up when e is negative, and no tie exists.
  switch (control.rounding) {
    case Rounding::rtm:
      steps.away = false;
      break;
    case Rounding::rtp:
      steps.away = true;
      break;
    case Rounding::rtz:
      steps.away = e < 0;
      break;
    case Rounding::rto:
      steps.away = !steps.lower_is_odd;
      break;
    case Rounding::rne:
    case Rounding::rna:
    case Rounding::rhb:
      steps.away = above_sqrt2(x);
      break;
  }
  steps.result = {static_cast<uint64>(e + (steps.away ? 1 : 0) + f.bias), Flags::inexact};
  return steps;
}

/// Integers: rounded, then clamped or cut to the width (numerics 6.4).
template <typename ExactReal>
constexpr EncodeSteps encode_integer(const Format& f, const ExactReal& x, const EncodeControl& control) noexcept {
  EncodeSteps steps{.cut = split(x, 0)};
  steps.lower_is_odd = (steps.cut.quanta & 1) != 0;
  steps.away = rounds_away(control.rounding, x.negative, steps.lower_is_odd, steps.cut.remainder);
  const uint128 magnitude = steps.cut.quanta + (steps.away ? 1 : 0);
  const uint64 wrapped = static_cast<uint64>(x.negative ? ~magnitude + 1 : magnitude) & low_mask(f.lane_bits);
  const uint128 lowest = f.kind == Kind::signed_integer ? uint128{f.max_finite} + 1 : 0;  // magnitude of the minimum
  const uint128 limit = x.negative ? lowest : uint128{f.max_finite};
  const bool huge = !x.is_zero() && floor_log2(x) > 64;
  if (huge || magnitude > limit) {
    const uint64 clamped = x.negative ? static_cast<uint64>(lowest) : f.max_finite;
    steps.path = EncodeSteps::Path::rounded_beyond;
    steps.result = {control.saturate ? clamped : wrapped, overflow_inexact};
    return steps;
  }
  steps.result = {wrapped, steps.cut.remainder == Remainder::exact ? Flags::none : Flags::inexact};
  return steps;
}

}  // namespace detail

/// encode(), with the way to its result.
template <typename ExactReal>
constexpr EncodeSteps encode_steps(const Format& f, const ExactReal& x, const EncodeControl& control) noexcept {
  using Path = EncodeSteps::Path;
  if (f.is_integer()) return detail::encode_integer(f, x, control);
  if (f.kind == Kind::scale && (x.is_zero() ? f.layout == Layout::exponent : x.negative)) {
    return {.path = Path::no_number, .result = {f.canonical_nan, Flags::invalid}};
  }
  if (x.is_zero()) {
    if (f.kind != Kind::scale) return {};
    return {.path = Path::below, .result = {0, underflow_inexact}};
  }
  if (f.layout == Layout::exponent) return detail::encode_exponent(f, x, control);
  return detail::encode_floating(f, x, control);
}

/// Encodes the exact real x into format f with one rounding. Zero gives +0 without flags (a caller that keeps the sign
/// of zero uses zero_code), except in the scale formats, which have no zero: E8M0 FF/NV, E6M2 00/UF|NX; negative
/// numbers in a scale format give FF/NV. Precondition: f is not RCPE6M2, which is no destination.
template <typename ExactReal>
constexpr Encoded encode(const Format& f, const ExactReal& x, const EncodeControl& control) noexcept {
  return encode_steps(f, x, control).result;
}

}  // namespace bitcube
