// The Tile data types as data: one descriptor per format, from which decode and encode work (numerics 1).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "bitcube/numeric/bits.hpp"
#include "bitcube/numeric/text.hpp"

namespace bitcube {

/// The 5-bit Tile DataType codes (numerics 1.1). Codes that are not named here are reserved.
enum class DataType : std::uint8_t {
  fp64 = 0,
  fp32 = 1,
  tf32 = 2,
  hf32 = 3,
  fp16 = 4,
  bf16 = 5,
  hif8 = 6,
  e4m3 = 7,
  e5m2 = 8,
  e3m2 = 9,
  e2m3 = 10,
  e2m1x2 = 11,
  e1m2x2 = 12,
  e8m0 = 13,
  hif4x2 = 14,
  e6m2 = 15,
  s64 = 16,
  s32 = 17,
  s16 = 18,
  s8 = 19,
  s4x2 = 20,
  rcpe6m2 = 21,
  u64 = 24,
  u32 = 25,
  u16 = 26,
  u8 = 27,
  u4x2 = 28,
  none = 31,  // "inherit" in a bundle; not a type
};

enum class Kind : std::uint8_t { floating, scale, signed_integer, unsigned_integer };

/// How the bits of a lane spell a magnitude.
enum class Layout : std::uint8_t {
  fields,      // exponent field, fraction field
  dot_field,   // HiF8: a prefix says how many exponent and fraction bits follow (numerics 1.5)
  exponent,    // E8M0: the whole word is a biased exponent
  reciprocal,  // RCPE6M2: fields, read as the reciprocal of that value
  integer,
};

enum class NanCodes : std::uint8_t {
  none,
  ieee,        // exponent all ones, fraction not zero; top fraction bit set: quiet
  all_ones,    // the magnitude with all bits set
  minus_zero,  // HiF8: the code that would be -0
};

/// When a magnitude is beyond the format (numerics 6.1, 6.3, 7.5, 7.6).
enum class OverflowTest : std::uint8_t {
  exponent,          // floor(log2) above emax, or a rounded value above it
  magnitude,         // above max finite before rounding
  magnitude_or_ocp,  // the same, but profile `ocp` tests the rounded value (E4M3, HiF8)
};
/// What an overflow delivers; Sat = 1 always delivers max finite with the sign.
enum class OverflowResult : std::uint8_t { infinity, nan, max_finite };

/// Which inexact results raise UF.
enum class UnderflowTest : std::uint8_t {
  profile,    // below 2^underflow_exponent in the reading that the profile names (numerics 6.2)
  source,     // the exact magnitude is below 2^underflow_exponent
  delivered,  // the delivered magnitude is below 2^underflow_exponent
};

struct Format {
  std::string_view name;     // as the ISA spells it
  std::string_view alias{};  // a second accepted name, or empty
  DataType type = DataType::none;
  Kind kind = Kind::floating;
  Layout layout = Layout::fields;

  std::uint8_t carrier_bits = 0;  // bits of the stored word
  std::uint8_t lane_bits = 0;     // bits of one logical element in storage
  std::uint8_t value_bits = 0;    // lane bits that may carry meaning
  std::uint8_t lanes_per_carrier = 1;
  std::uint8_t low_zero_bits = 0;  // constrained carrier bits: low ones must be 0 (TF32, HF32)
  std::uint8_t sign_bits = 1;
  std::uint8_t exponent_bits = 0;  // HiF8: the most
  std::uint8_t fraction_bits = 0;  // HiF8: the most
  std::uint8_t exponent_bits_min = 0;
  std::uint8_t fraction_bits_min = 0;
  std::int16_t bias = 0;

  bool has_zero = true;
  bool has_signed_zero = true;
  bool exponent_zero_is_subnormal = true;  // exponent field 0: no hidden bit
  bool subnormal_class = true;             // ... and such values are of class subnormal
  NanCodes nan = NanCodes::none;
  bool has_infinity = false;
  uint64 canonical_nan = 0;  // where nan != none
  uint64 infinity = 0;       // +Inf, where has_infinity
  uint64 max_finite = 0;     // largest positive code
  OverflowTest overflow_test = OverflowTest::exponent;
  OverflowResult overflow_result = OverflowResult::infinity;
  UnderflowTest underflow_test = UnderflowTest::profile;
  std::int16_t underflow_exponent = 0;
  std::uint8_t underflow_precision = 0;  // significand bits just above 2^underflow_exponent
  bool reduced = false;                  // takes ConversionProfile::tininess_reduced

  constexpr bool is_integer() const noexcept { return layout == Layout::integer; }
  constexpr bool is_packed() const noexcept { return lanes_per_carrier == 2; }
  /// Bit number of the sign in a lane; only where sign_bits is 1.
  constexpr int sign_bit() const noexcept { return value_bits - 1; }
  /// Exponent of the smallest normal value (fields) or of the smallest value (others).
  constexpr int min_exponent() const noexcept {
    if (layout == Layout::dot_field) return -22;
    return exponent_zero_is_subnormal ? 1 - bias : -bias;
  }
};

namespace detail {

// Every IEEE-like binary format follows from its widths; the rest is derived here so that it cannot disagree.
constexpr Format ieee_like(std::string_view name, DataType type, int carrier, int exponent_bits, int fraction_bits,
                           int low_zero_bits = 0) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int value_bits = carrier;
  const int shift = low_zero_bits;
  const uint64 infinity = low_mask(exponent_bits) << (fraction_bits + shift);
  return Format{.name = name,
                .type = type,
                .carrier_bits = static_cast<std::uint8_t>(carrier),
                .lane_bits = static_cast<std::uint8_t>(carrier),
                .value_bits = static_cast<std::uint8_t>(value_bits),
                .low_zero_bits = static_cast<std::uint8_t>(low_zero_bits),
                .exponent_bits = static_cast<std::uint8_t>(exponent_bits),
                .fraction_bits = static_cast<std::uint8_t>(fraction_bits),
                .exponent_bits_min = static_cast<std::uint8_t>(exponent_bits),
                .fraction_bits_min = static_cast<std::uint8_t>(fraction_bits),
                .bias = static_cast<std::int16_t>(bias),
                .nan = NanCodes::ieee,
                .has_infinity = true,
                .canonical_nan = infinity | (uint64{1} << (fraction_bits - 1 + shift)),
                .infinity = infinity,
                .max_finite = infinity - (uint64{1} << shift),
                .underflow_exponent = static_cast<std::int16_t>(1 - bias),
                .underflow_precision = static_cast<std::uint8_t>(fraction_bits + 1),
                .reduced = low_zero_bits != 0};
}

// Finite-only element formats of OCP MX, PTO's E1M2 and the HiF4 lane: no Inf, no NaN, overflow saturates.
constexpr Format finite_only(std::string_view name, std::string_view alias, DataType type, int value_bits,
                             int lane_bits, int exponent_bits, int fraction_bits, int bias) {
  return Format{.name = name,
                .alias = alias,
                .type = type,
                .carrier_bits = 8,
                .lane_bits = static_cast<std::uint8_t>(lane_bits),
                .value_bits = static_cast<std::uint8_t>(value_bits),
                .lanes_per_carrier = static_cast<std::uint8_t>(8 / lane_bits),
                .exponent_bits = static_cast<std::uint8_t>(exponent_bits),
                .fraction_bits = static_cast<std::uint8_t>(fraction_bits),
                .exponent_bits_min = static_cast<std::uint8_t>(exponent_bits),
                .fraction_bits_min = static_cast<std::uint8_t>(fraction_bits),
                .bias = static_cast<std::int16_t>(bias),
                .max_finite = low_mask(value_bits - 1),
                .overflow_test = OverflowTest::magnitude,
                .overflow_result = OverflowResult::max_finite,
                .underflow_exponent = static_cast<std::int16_t>(1 - bias),
                .underflow_precision = static_cast<std::uint8_t>(fraction_bits + 1)};
}

constexpr Format integer(std::string_view name, std::string_view alias, DataType type, int carrier, int lane,
                         bool is_signed) {
  return Format{.name = name,
                .alias = alias,
                .type = type,
                .kind = is_signed ? Kind::signed_integer : Kind::unsigned_integer,
                .layout = Layout::integer,
                .carrier_bits = static_cast<std::uint8_t>(carrier),
                .lane_bits = static_cast<std::uint8_t>(lane),
                .value_bits = static_cast<std::uint8_t>(lane),
                .lanes_per_carrier = static_cast<std::uint8_t>(carrier / lane),
                .sign_bits = static_cast<std::uint8_t>(is_signed ? 1 : 0),
                .has_signed_zero = false,
                .max_finite = low_mask(is_signed ? lane - 1 : lane)};
}

constexpr Format make_e4m3() {
  Format f = ieee_like("E4M3", DataType::e4m3, 8, 4, 3);
  f.nan = NanCodes::all_ones;
  f.has_infinity = false;
  f.infinity = 0;
  f.canonical_nan = 0x7F;
  f.max_finite = 0x7E;
  f.overflow_test = OverflowTest::magnitude_or_ocp;
  f.overflow_result = OverflowResult::nan;
  return f;
}

constexpr Format make_e5m2() {
  Format f = ieee_like("E5M2", DataType::e5m2, 8, 5, 2);
  f.reduced = true;
  return f;
}

constexpr Format make_hif8() {
  return Format{.name = "HiF8",
                .type = DataType::hif8,
                .layout = Layout::dot_field,
                .carrier_bits = 8,
                .lane_bits = 8,
                .value_bits = 8,
                .exponent_bits = 4,
                .fraction_bits = 3,
                .exponent_bits_min = 0,
                .fraction_bits_min = 1,
                .has_signed_zero = false,
                .nan = NanCodes::minus_zero,
                .has_infinity = true,
                .canonical_nan = 0x80,
                .infinity = 0x6F,
                .max_finite = 0x6E,
                .overflow_test = OverflowTest::magnitude_or_ocp,
                .underflow_exponent = -15,
                .underflow_precision = 2};
}

constexpr Format make_six_bit(std::string_view name, DataType type, int exponent_bits, int fraction_bits, int bias) {
  Format f = finite_only(name, "", type, 6, 8, exponent_bits, fraction_bits, bias);
  f.reduced = true;
  return f;
}

constexpr Format make_e2m1() {
  Format f = finite_only("E2M1X2", "E2M1", DataType::e2m1x2, 4, 4, 2, 1, 1);
  f.underflow_test = UnderflowTest::delivered;
  return f;
}

// The lane of E1M2X2 and HiF4X2: sign and magnitude in quarters; no lane is of class subnormal (numerics 1.7).
constexpr Format make_quarters(std::string_view name, std::string_view alias, DataType type) {
  Format f = finite_only(name, alias, type, 4, 4, 1, 2, 1);
  f.subnormal_class = false;
  f.underflow_test = UnderflowTest::source;
  f.underflow_exponent = -2;
  return f;
}

constexpr Format make_e8m0() {
  return Format{.name = "E8M0",
                .type = DataType::e8m0,
                .kind = Kind::scale,
                .layout = Layout::exponent,
                .carrier_bits = 8,
                .lane_bits = 8,
                .value_bits = 8,
                .sign_bits = 0,
                .exponent_bits = 8,
                .exponent_bits_min = 8,
                .bias = 127,
                .has_zero = false,
                .has_signed_zero = false,
                .exponent_zero_is_subnormal = false,
                .subnormal_class = false,
                .nan = NanCodes::all_ones,
                .canonical_nan = 0xFF,
                .max_finite = 0xFE,
                .overflow_test = OverflowTest::magnitude,
                .overflow_result = OverflowResult::nan,
                .underflow_test = UnderflowTest::source,
                .underflow_exponent = -127};
}

constexpr Format make_e6m2(std::string_view name, DataType type, Layout layout) {
  Format f = make_e8m0();
  f.name = name;
  f.type = type;
  f.layout = layout;
  f.exponent_bits = f.exponent_bits_min = 6;
  f.fraction_bits = f.fraction_bits_min = 2;
  f.bias = 48;
  f.underflow_exponent = -48;
  return f;
}

}  // namespace detail

/// Every Tile DataType (numerics 1.1), in the order of the codes.
inline constexpr std::array formats{
    detail::ieee_like("FP64", DataType::fp64, 64, 11, 52),
    detail::ieee_like("FP32", DataType::fp32, 32, 8, 23),
    detail::ieee_like("TF32", DataType::tf32, 32, 8, 10, 13),
    detail::ieee_like("HF32", DataType::hf32, 32, 8, 11, 12),
    detail::ieee_like("FP16", DataType::fp16, 16, 5, 10),
    detail::ieee_like("BF16", DataType::bf16, 16, 8, 7),
    detail::make_hif8(),
    detail::make_e4m3(),
    detail::make_e5m2(),
    detail::make_six_bit("E3M2", DataType::e3m2, 3, 2, 3),
    detail::make_six_bit("E2M3", DataType::e2m3, 2, 3, 1),
    detail::make_e2m1(),
    detail::make_quarters("E1M2X2", "E1M2", DataType::e1m2x2),
    detail::make_e8m0(),
    detail::make_quarters("HiF4X2", "HiF4", DataType::hif4x2),
    detail::make_e6m2("E6M2", DataType::e6m2, Layout::fields),
    detail::integer("S64", "", DataType::s64, 64, 64, true),
    detail::integer("S32", "", DataType::s32, 32, 32, true),
    detail::integer("S16", "", DataType::s16, 16, 16, true),
    detail::integer("S8", "", DataType::s8, 8, 8, true),
    detail::integer("S4X2", "S4", DataType::s4x2, 8, 4, true),
    detail::make_e6m2("RCPE6M2", DataType::rcpe6m2, Layout::reciprocal),
    detail::integer("U64", "", DataType::u64, 64, 64, false),
    detail::integer("U32", "", DataType::u32, 32, 32, false),
    detail::integer("U16", "", DataType::u16, 16, 16, false),
    detail::integer("U8", "", DataType::u8, 8, 8, false),
    detail::integer("U4X2", "U4", DataType::u4x2, 8, 4, false),
};

/// The format of a DataType code, or nullptr where the code is reserved (or DTYPE_NONE).
constexpr const Format* find_format(unsigned code) noexcept {
  for (const Format& f : formats) {
    if (static_cast<unsigned>(f.type) == code) return &f;
  }
  return nullptr;
}

/// The format of this name in any case; packed types also without "X2". nullptr where there is none.
constexpr const Format* find_format(std::string_view name) noexcept {
  for (const Format& f : formats) {
    if (equal_ignoring_case(f.name, name) || (!f.alias.empty() && equal_ignoring_case(f.alias, name))) return &f;
  }
  return nullptr;
}

/// The format of a type that exists; DataType::none is not one.
constexpr const Format& format_of(DataType type) noexcept {
  return *find_format(static_cast<unsigned>(type));
}

inline constexpr const Format& fp64 = format_of(DataType::fp64);
inline constexpr const Format& fp32 = format_of(DataType::fp32);
inline constexpr const Format& fp16 = format_of(DataType::fp16);
inline constexpr const Format& bf16 = format_of(DataType::bf16);
inline constexpr const Format& e4m3 = format_of(DataType::e4m3);
inline constexpr const Format& e8m0 = format_of(DataType::e8m0);
inline constexpr const Format& e6m2 = format_of(DataType::e6m2);
inline constexpr const Format& hif4 = format_of(DataType::hif4x2);

}  // namespace bitcube
