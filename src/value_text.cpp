#include "value_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>

#include "bitcube/numeric/encode.hpp"

namespace bitcube {
namespace {

/// Of a value that is not finite.
std::string special_text(const Value& value) {
  if (value.cls == Class::invalid) return "invalid";
  if (value.is_infinite()) return value.real.negative ? "-inf" : "inf";
  return value.cls == Class::signaling_nan ? "snan" : "nan";
}

}  // namespace

double to_double(const Real& real) noexcept {
  return std::bit_cast<double>(encode(fp64, real, {}).bits);
}

std::string value_text(const Format& f, const Value& value) {
  if (!value.is_finite()) return special_text(value);
  if (f.is_integer()) {
    return fmt::format("{}{}", value.real.negative ? "-" : "", static_cast<uint64>(value.real.significand));
  }
  const double number = value.real.is_zero() && value.real.negative ? -0.0 : to_double(value.real);
  // A value of all but the widest formats is one of FP32, and needs only so many digits as tell it from those.
  return f.lane_bits <= 32 ? fmt::format("{}", static_cast<float>(number)) : fmt::format("{}", number);
}

std::string exact_text(const Real& real, int most_digits) {
  std::string text = real.negative ? "-" : "";
  uint128 significand = real.significand;
  int exponent = real.exponent;
  if (significand == 0) return text + (real.sticky ? "0…" : "0");
  for (; (significand & 1) == 0; significand >>= 1) ++exponent;
  const char* more = real.sticky ? "…" : "";
  // A fraction of n bits is a decimal of n digits: s / 2^n = s * 5^n / 10^n.
  uint128 limit = 1;
  for (int i = 0; i < most_digits; ++i) limit *= 10;
  uint128 digits = significand;
  for (int i = 0; i < exponent && digits < limit; ++i) digits *= 2;
  for (int i = 0; i < -exponent && digits < limit; ++i) digits *= 5;
  if (digits < limit && exponent > -most_digits) {
    std::string decimal = fmt::format("{}", digits);
    if (exponent >= 0) return text + decimal + more;
    const auto places = static_cast<std::size_t>(-exponent);
    if (decimal.size() <= places) decimal.insert(0, places + 1 - decimal.size(), '0');
    decimal.insert(decimal.size() - places, 1, '.');
    return text + decimal + more;
  }
  const int top = bit_length(significand) - 1;
  std::string fraction;
  uint128 rest = significand ^ uint128 { 1 } << top;  // `top` bits after the point
  for (int left = top; rest != 0; left -= 4) {
    const uint128 digit = left >= 4 ? rest >> (left - 4) : rest << (4 - left);
    fraction += "0123456789abcdef"[static_cast<std::size_t>(digit & 15)];
    if (left <= 4) break;
    rest &= (uint128{1} << (left - 4)) - 1;
  }
  return fmt::format("{}0x1{}{}p{:+}{}", text, fraction.empty() ? "" : ".", fraction, top + exponent, more);
}

std::string exact_text(const Value& value) {
  return value.is_finite() ? exact_text(value.real) : special_text(value);
}

std::string bits_text(const Format& f, uint64 code) {
  return fmt::format("0x{:0{}X}", code, (f.lane_bits + 3) / 4);
}

std::string flags_text(Flags flags) {
  std::string text;
  for (const FlagName& row : flag_names) {
    if (has(flags, row.flag)) text += fmt::format("{}{}", text.empty() ? "" : " ", row.name);
  }
  return text.empty() ? "-" : text;
}

std::string shape_text(std::span<const uint64> shape) {
  return shape.empty() ? "scalar" : fmt::format("{}", fmt::join(shape, " x "));
}

}  // namespace bitcube
