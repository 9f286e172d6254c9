// Encodings to classes and exact values, for every format by one routine (numerics 1.3 to 1.9).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "bitcube/numeric/format.hpp"
#include "bitcube/numeric/profile.hpp"
#include "bitcube/numeric/real.hpp"

namespace bitcube {

enum class Class : std::uint8_t { invalid, zero, subnormal, normal, infinity, quiet_nan, signaling_nan };

inline constexpr std::array<std::string_view, 7> class_names{"InvalidEncoding", "Zero",     "Subnormal",   "Normal",
                                                             "Infinity",        "QuietNaN", "SignalingNaN"};
constexpr std::string_view name_of(Class c) noexcept {
  return class_names[static_cast<std::size_t>(c)];
}

/// One decoded lane. `real` holds the exact value of zeros, subnormals and normals, and the sign of zeros and
/// infinities.
struct Value {
  Class cls = Class::zero;
  Real real{};

  constexpr bool is_nan() const noexcept { return cls == Class::quiet_nan || cls == Class::signaling_nan; }
  constexpr bool is_infinite() const noexcept { return cls == Class::infinity; }
  constexpr bool is_finite() const noexcept {
    return cls == Class::zero || cls == Class::subnormal || cls == Class::normal;
  }
};

/// Result of the exact finite decomposition (ADR 0085 decision 182): (-1)^negative * significand * 2^exponent.
struct Decomposition {
  bool available = false;
  bool negative = false;
  uint64 significand = 0;
  std::int32_t exponent = 0;
};

namespace detail {

/// HiF8: fraction bits of the values in [2^e, 2^(e+1)) (numerics 1.5). Beyond the largest binade D4 goes on.
constexpr int hif8_fraction_bits(int e) noexcept {
  if (e < -15) return 0;
  const int magnitude = e < 0 ? -e : e;
  return magnitude < 4 ? 3 : magnitude < 8 ? 2 : 1;
}

constexpr Value decode_hif8(uint64 code) noexcept {
  const bool negative = (code & 0x80) != 0;
  const uint64 b = code & 0x7F;
  if (b == 0 && negative) return {Class::quiet_nan, {.negative = true}};
  if (b == 0) return {};
  if (b == 0x6F) return {Class::infinity, {.negative = negative}};
  if (b < 0x08) return {Class::subnormal, {negative, 1, static_cast<int>(b) - 23}};
  // The leading bits name the number of exponent bits; the first exponent bit is the sign, the hidden top one is 1.
  const int width = b >= 0x60 ? 4 : b >= 0x40 ? 3 : b >= 0x20 ? 2 : b >= 0x10 ? 1 : 0;
  const int fraction_bits = width == 4 ? 1 : width == 3 ? 2 : 3;
  int e = 0;
  if (width > 0) {
    const int field = static_cast<int>((b >> fraction_bits) & low_mask(width));
    const int top = 1 << (width - 1);
    e = top | (field & (top - 1));
    if ((field & top) != 0) e = -e;
  }
  const uint64 significand = (uint64{1} << fraction_bits) | (b & low_mask(fraction_bits));
  return {Class::normal, {negative, significand, e - fraction_bits}};
}

constexpr Value decode_fields(const Format& f, uint64 code) noexcept {
  code >>= f.low_zero_bits;
  const int f_bits = f.fraction_bits;
  const uint64 fraction = code & low_mask(f_bits);
  const uint64 exponent = (code >> f_bits) & low_mask(f.exponent_bits);
  const bool negative = f.sign_bits != 0 && ((code >> (f_bits + f.exponent_bits)) & 1) != 0;
  const bool top_exponent = exponent == low_mask(f.exponent_bits);
  if (f.nan == NanCodes::ieee && top_exponent) {
    if (fraction == 0) return {Class::infinity, {.negative = negative}};
    return {(fraction >> (f_bits - 1)) != 0 ? Class::quiet_nan : Class::signaling_nan, {.negative = negative}};
  }
  if (f.nan == NanCodes::all_ones && top_exponent && fraction == low_mask(f_bits)) {
    return {Class::quiet_nan, {.negative = negative}};
  }
  if (exponent == 0 && f.exponent_zero_is_subnormal) {
    if (fraction == 0) return {Class::zero, {.negative = negative}};
    return {f.subnormal_class ? Class::subnormal : Class::normal, {negative, fraction, 1 - f.bias - f_bits}};
  }
  return {Class::normal, {negative, (uint64{1} << f_bits) | fraction, static_cast<int>(exponent) - f.bias - f_bits}};
}

}  // namespace detail

/// Decodes one lane: the low bits of `word`; bits above the lane are ignored, except that the constrained carrier bits
/// must be zero (numerics 1.1, 1.3).
constexpr Value decode(const Format& f, uint64 word) noexcept {
  if (f.is_integer()) {
    const bool is_signed = f.kind == Kind::signed_integer;
    const Real real = is_signed ? real_from_signed(sign_extend(word, f.lane_bits))
                                : Real{.significand = word & low_mask(f.lane_bits)};
    return {real.significand == 0 ? Class::zero : Class::normal, real};
  }
  const uint64 lane = word & low_mask(f.lane_bits);
  if ((lane & low_mask(f.low_zero_bits)) != 0 || (lane & ~low_mask(f.value_bits)) != 0) return {Class::invalid, {}};
  if (f.layout == Layout::dot_field) return detail::decode_hif8(lane);
  if (f.layout == Layout::exponent) {
    if (lane == f.canonical_nan) return {Class::quiet_nan, {}};
    return {Class::normal, {false, 1, static_cast<int>(lane) - f.bias}};
  }
  const Value value = detail::decode_fields(f, lane);
  if (f.layout == Layout::reciprocal && value.is_finite())
    return {Class::normal, divide({.significand = 1}, value.real)};
  return value;
}

/// Class under a profile: they differ only on E2M1 codes 1 and 9 (profiles 4).
constexpr Class classify(const Format& f, uint64 word, const ConversionProfile& profile = pto_profile) noexcept {
  const Class c = decode(f, word).cls;
  const bool e2m1_half = f.type == DataType::e2m1x2 && c == Class::subnormal;
  return e2m1_half && !profile.e2m1_half_is_subnormal ? Class::normal : c;
}

/// Whether the sign of the encoding is negative; NaN and invalid encodings report their sign bit.
constexpr bool is_negative(const Format& f, uint64 word) noexcept {
  return f.sign_bits != 0 && ((word >> f.sign_bit()) & 1) != 0;
}

/// Exact finite decomposition (numerics 1.9). Unavailable for integers, RCPE6M2, infinities, NaN and invalid encodings.
constexpr Decomposition decompose(const Format& f, uint64 word) noexcept {
  const Value value = decode(f, word);
  if (f.is_integer() || f.layout == Layout::reciprocal || !value.is_finite()) return {};
  if (value.cls == Class::zero) return {true, value.real.negative, 0, 0};
  return {true, value.real.negative, static_cast<uint64>(value.real.significand), value.real.exponent};
}

}  // namespace bitcube
