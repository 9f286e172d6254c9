// TCVT: conversion of one element between Tile data types (numerics 7).
#pragma once

#include "bitcube/numeric/encode.hpp"

namespace bitcube {

namespace detail {

constexpr bool is_half_width(DataType t) noexcept {
  return t == DataType::fp16 || t == DataType::bf16;
}
constexpr bool is_packed_float(DataType t) noexcept {
  return t == DataType::e2m1x2 || t == DataType::e1m2x2;
}
constexpr bool is_e6m2(DataType t) noexcept {
  return t == DataType::e6m2 || t == DataType::rcpe6m2;
}
/// The types that convert freely among each other (numerics 7.1).
constexpr bool is_ordinary(const Format& f) noexcept {
  return f.is_integer() || (f.kind == Kind::floating && !f.is_packed());
}

}  // namespace detail

/// Whether TCVT converts `from` to `to` (numerics 7.1).
constexpr bool conversion_legal(const Format& from, const Format& to) noexcept {
  const DataType s = from.type;
  const DataType d = to.type;
  if (detail::is_ordinary(from) && detail::is_ordinary(to)) return true;
  const bool wide = detail::is_half_width(d) || d == DataType::fp32;
  if (detail::is_e6m2(s)) return detail::is_half_width(d);
  if (s == DataType::e8m0 || detail::is_packed_float(s)) return wide;
  if (!detail::is_half_width(s) && s != DataType::fp32) return false;
  return detail::is_packed_float(d) || d == DataType::e8m0 || (d == DataType::e6m2 && detail::is_half_width(s));
}

/// Whether a legal pair accepts the mode: E6M2 and RCPE6M2 know only RNE and RNA (numerics 7.1).
constexpr bool rounding_legal(const Format& from, const Format& to, Rounding mode) noexcept {
  if (!detail::is_e6m2(from.type) && !detail::is_e6m2(to.type)) return true;
  return mode == Rounding::rne || mode == Rounding::rna;
}

/// The mode that acts when none is requested: RTZ from float to integer, otherwise RNE (numerics 2.1).
constexpr Rounding default_rounding(bool from_integer, const Format& to) noexcept {
  return to.is_integer() && !from_integer ? Rounding::rtz : Rounding::rne;
}

/// Encodes a value that may be special by the rules of TCVT (numerics 7.2, 7.4, 7.5, 7.6). The post-process has other
/// rules for specials (numerics 5.5 step 6).
template <typename ExactReal>
constexpr Encoded convert_value(const Format& to, Class cls, const ExactReal& real,
                                const EncodeControl& control) noexcept {
  const bool negative = real.negative;
  switch (cls) {
    case Class::invalid:
    case Class::quiet_nan:
    case Class::signaling_nan: {
      const bool always_invalid = to.is_integer() || to.layout == Layout::exponent;
      const Flags flags = always_invalid || cls != Class::quiet_nan ? Flags::invalid : Flags::none;
      return {to.nan != NanCodes::none ? to.canonical_nan : 0, flags};
    }
    case Class::infinity: {
      if (to.is_integer()) {
        const uint64 lowest = to.kind == Kind::signed_integer ? to.max_finite + 1 : 0;
        return {negative ? lowest : to.max_finite, Flags::invalid};
      }
      if (to.kind == Kind::scale && negative) return {to.canonical_nan, Flags::invalid};
      if (to.has_infinity) return {with_sign(to, to.infinity, negative), Flags::none};
      return overflow_result(to, negative, control);
    }
    case Class::zero:
      if (to.kind == Kind::floating) return {zero_code(to, negative), Flags::none};
      [[fallthrough]];
    case Class::subnormal:
    case Class::normal:
      break;
  }
  return encode(to, real, control);
}

/// Converts one lane. Preconditions: conversion_legal and rounding_legal, or a caller that knows what it does (HiF4X2
/// lanes decode and encode as E1M2). Integer to integer raises no flags (numerics 7.4).
constexpr Encoded convert(const Format& from, const Format& to, uint64 word, const EncodeControl& control) noexcept {
  const Value value = decode(from, word);
  Encoded out = convert_value(to, value.cls, value.real, control);
  if (from.is_integer() && to.is_integer()) out.flags = Flags::none;
  return out;
}

}  // namespace bitcube
