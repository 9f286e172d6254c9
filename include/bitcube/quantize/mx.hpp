// MX and NVFP4: short floats under a shared scale, quantised and dequantised bit for bit (numerics 8.2, profiles 2).
// This is the reference: integer arithmetic only, everything from bits, nothing through a logarithm of the host.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "bitcube/numeric/convert.hpp"
#include "bitcube/numeric/decode.hpp"
#include "bitcube/numeric/encode.hpp"
#include "bitcube/numeric/text.hpp"

namespace bitcube {

inline constexpr std::size_t mx_group_lanes = 32;
inline constexpr std::size_t nvfp4_group_lanes = 16;

/// How the exponent of an MX scale follows from the largest magnitude of the group (profiles 2).
enum class ScaleRounding : std::uint8_t {
  floor,  // floor(log2 amax) - emax
  ceil,   // ceil(log2 amax) - emax
  rceil,  // ceil(log2(amax / max_finite))
  even,   // floor, after rounding amax to the element's fraction bits (RNE)
};

struct ScaleRule {
  std::string_view name;
  ScaleRounding rounding;
  std::string_view meaning;
};

/// The default comes first.
inline constexpr std::array<ScaleRule, 4> scale_rules{{
    {"floor", ScaleRounding::floor, "floor(log2 amax) - emax: the text of OCP MX"},
    {"ceil", ScaleRounding::ceil, "ceil(log2 amax) - emax"},
    {"rceil", ScaleRounding::rceil, "ceil(log2(amax / max_finite)): the smallest scale under which nothing saturates"},
    {"even", ScaleRounding::even, "amax rounded to the element's fraction bits (RNE) first, then as floor"},
}};

/// The rule of this name in any case, or nullptr.
constexpr const ScaleRule* find_scale_rule(std::string_view name) noexcept {
  for (const ScaleRule& rule : scale_rules) {
    if (equal_ignoring_case(rule.name, name)) return &rule;
  }
  return nullptr;
}

inline constexpr const Format& e2m1 = format_of(DataType::e2m1x2);

/// The element types of MX groups; E1M2 is PTO's own.
constexpr bool is_mx_element(const Format& f) noexcept {
  switch (f.type) {
    case DataType::e4m3:
    case DataType::e5m2:
    case DataType::e3m2:
    case DataType::e2m3:
    case DataType::e2m1x2:
    case DataType::e1m2x2:
      return true;
    default:
      return false;
  }
}

/// One quantised group: the scale code (E8M0; NVFP4: E4M3) and the element codes, 0 for lanes that are missing.
struct MxGroup {
  std::uint8_t scale = 0;
  std::array<std::uint8_t, mx_group_lanes> codes{};
};

namespace detail {

/// What a group's scale depends on.
struct GroupRange {
  bool nan = false;  // invalid encodings count as NaN (profiles 3)
  bool infinite = false;
  Real amax{};  // largest finite magnitude
};

constexpr GroupRange range_of(std::span<const Value> lanes) noexcept {
  GroupRange range;
  for (const Value& x : lanes) {
    if (x.is_infinite()) {
      range.infinite = true;
    } else if (!x.is_finite()) {
      range.nan = true;
    } else if (compare_magnitude(x.real, range.amax) > 0) {
      range.amax = x.real;
      range.amax.negative = false;
    }
  }
  return range;
}

/// Elements saturate, E2M1 to 6.0, and keep the sign of x in zero: the conventions of OCP, whatever profile conversions
/// have (profiles 2).
constexpr std::uint8_t encode_element(const Format& element, Class cls, const Real& x, Rounding rounding) noexcept {
  const EncodeControl control{.rounding = rounding, .saturate = true, .profile = find_conversion_profile("ocp")};
  if (cls == Class::infinity) return static_cast<std::uint8_t>(overflow_result(element, x.negative, control).bits);
  return static_cast<std::uint8_t>(convert_value(element, cls, x, control).bits);
}

/// Decodes at most 32 lanes.
struct DecodedLanes {
  std::array<Value, mx_group_lanes> values{};
  std::size_t count = 0;

  constexpr DecodedLanes(const Format& source, std::span<const uint64> words) noexcept : count(words.size()) {
    for (std::size_t i = 0; i < count; ++i) values[i] = decode(source, words[i]);
  }
  constexpr std::span<const Value> span() const noexcept { return {values.data(), count}; }
};

}  // namespace detail

/// The exponent of the scale before the clamp to [-127, 127] (profiles 2). Precondition: amax is not zero.
constexpr int mx_scale_exponent(const Format& element, const Real& amax, ScaleRounding rounding) noexcept {
  const Real largest = decode(element, element.max_finite).real;
  const int e = floor_log2(amax);
  const int floor_exponent = e - floor_log2(largest);
  bool up = false;
  switch (rounding) {
    case ScaleRounding::floor:
      break;
    case ScaleRounding::ceil:
      up = split(amax, e).remainder != Remainder::exact;
      break;
    case ScaleRounding::rceil:
      // Both significands lie in [1, 2), so the quotient lies within a factor of 2 of 2^floor_exponent.
      up = compare_magnitude(amax, scale_by_power_of_two(largest, floor_exponent)) > 0;
      break;
    case ScaleRounding::even: {
      // Up exactly if rounding carries to the next power of two.
      const Split s = split(amax, e - element.fraction_bits);
      const auto lower = static_cast<uint64>(s.quanta);
      const bool away = rounds_away(Rounding::rne, false, (lower & 1) != 0, s.remainder);
      up = away && lower == low_mask(element.fraction_bits + 1);
      break;
    }
  }
  return floor_exponent + (up ? 1 : 0);
}

/// Quantises one group of an MX element type (profiles 2): at most 32 decoded lanes, lane 0 first; in a short group the
/// missing lanes count as +0. x / scale is exact, and rounded once. No flags: the operation has none.
constexpr MxGroup quantize_mx_group(const Format& element, std::span<const Value> lanes, ScaleRounding rule,
                                    Rounding rounding = Rounding::rne) noexcept {
  const detail::GroupRange range = detail::range_of(lanes);
  MxGroup out;
  if (range.nan) {
    out.scale = static_cast<std::uint8_t>(e8m0.canonical_nan);
    return out;
  }
  int exponent = -e8m0.bias;  // of an all-zero group
  if (range.infinite) {
    exponent = e8m0.bias;
  } else if (!range.amax.is_zero()) {
    exponent = std::clamp(mx_scale_exponent(element, range.amax, rule), -e8m0.bias, int{e8m0.bias});
  }
  out.scale = static_cast<std::uint8_t>(exponent + e8m0.bias);
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Real quotient = scale_by_power_of_two(lanes[i].real, -exponent);
    out.codes[i] = detail::encode_element(element, lanes[i].cls, quotient, rounding);
  }
  return out;
}

/// The same from words of any floating format; their values are used exactly.
constexpr MxGroup quantize_mx_group(const Format& element, const Format& source, std::span<const uint64> words,
                                    ScaleRounding rule, Rounding rounding = Rounding::rne) noexcept {
  return quantize_mx_group(element, detail::DecodedLanes(source, words).span(), rule, rounding);
}

/// The exact value of one MX lane: element code times 2^(scale - 127); scale FF gives a quiet NaN (numerics 8.2).
constexpr Value dequantize_mx_lane(const Format& element, std::uint8_t scale, unsigned code) noexcept {
  const Value factor = decode(e8m0, scale);
  if (factor.is_nan()) return factor;
  Value lane = decode(element, code);
  if (lane.is_finite()) lane.real = scale_by_power_of_two(lane.real, factor.real.exponent);
  return lane;
}

/// FP32 word of the tensor scale of NVFP4: RNE(amax / 2688), where 2688 = 448 * 6 and amax is the largest finite
/// magnitude of the tensor (profiles 2). Beyond FP32 it is the largest finite value.
constexpr std::uint32_t nvfp4_tensor_scale(const Real& amax) noexcept {
  if (amax.is_zero()) return 0;
  const Real quotient = divide(amax, {.significand = 2688});
  return static_cast<std::uint32_t>(encode(fp32, quotient, {.rounding = Rounding::rne, .saturate = true}).bits);
}

/// Quantises one NVFP4 group (profiles 2): at most 16 decoded lanes. The E4M3 scale is RNE(amax / (6 * tensor_scale)),
/// the lanes are x / (scale * tensor_scale), each exact and rounded once. A scale that is zero, or rounds to it, gives
/// lanes of zero; so does a tensor scale of zero. `tensor_scale` is an FP32 word, finite and not negative.
constexpr MxGroup quantize_nvfp4_group(std::span<const Value> lanes, std::uint32_t tensor_scale = 0x3F800000,
                                       Rounding rounding = Rounding::rne) noexcept {
  const detail::GroupRange range = detail::range_of(lanes);
  const Real unit = decode(fp32, tensor_scale).real;
  MxGroup out;
  if (range.nan) {
    out.scale = static_cast<std::uint8_t>(e4m3.canonical_nan);
    return out;
  }
  if (range.infinite) {
    out.scale = static_cast<std::uint8_t>(e4m3.max_finite);
  } else if (!range.amax.is_zero() && !unit.is_zero()) {
    const Real ideal = divide(range.amax, multiply(unit, {.significand = 6}));
    out.scale = static_cast<std::uint8_t>(encode(e4m3, ideal, {.rounding = Rounding::rne, .saturate = true}).bits);
  }
  const Real scale = multiply(decode(e4m3, out.scale).real, unit);
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Value& x = lanes[i];
    if (x.is_infinite()) {
      out.codes[i] = detail::encode_element(e2m1, x.cls, x.real, rounding);
    } else if (x.real.is_zero() || scale.is_zero()) {
      out.codes[i] = static_cast<std::uint8_t>(zero_code(e2m1, x.real.negative));
    } else {
      out.codes[i] = detail::encode_element(e2m1, x.cls, divide(x.real, scale), rounding);
    }
  }
  return out;
}

/// The same from words of any floating format; their values are used exactly.
constexpr MxGroup quantize_nvfp4_group(const Format& source, std::span<const uint64> words,
                                       std::uint32_t tensor_scale = 0x3F800000,
                                       Rounding rounding = Rounding::rne) noexcept {
  return quantize_nvfp4_group(detail::DecodedLanes(source, words).span(), tensor_scale, rounding);
}

/// The exact value of one NVFP4 lane: element * scale * tensor scale (an FP32 word, finite).
constexpr Value dequantize_nvfp4_lane(std::uint8_t scale, unsigned code,
                                      std::uint32_t tensor_scale = 0x3F800000) noexcept {
  const Value factor = decode(e4m3, scale);
  if (factor.is_nan()) return factor;
  const Value lane = decode(e2m1, code);
  const Real real = multiply(lane.real, multiply(factor.real, decode(fp32, tensor_scale).real));
  if (real.significand == 0) return {Class::zero, real};
  return {Class::normal, real};
}

}  // namespace bitcube
