// Exact real numbers from text, for every literal that a person writes: the value is never rounded on the way in.
#pragma once

#include <cstdint>
#include <string_view>

#include "bitcube/numeric/decode.hpp"
#include "bitcube/numeric/text.hpp"
#include "bitcube/numeric/wide.hpp"

namespace bitcube {

/// A literal: a special value, or an exact real. Decimal fractions that are no binary fraction are sticky, with all
/// integer bits and at least 190 significant bits.
struct RealLiteral {
  using Exact = WideReal<128>;

  Class cls = Class::zero;  // zero, normal, infinity, quiet_nan or signaling_nan
  Exact real{};
  const char* fault = nullptr;  // why the text is no literal, or nullptr
};

namespace detail {

class RealParser {
 public:
  constexpr explicit RealParser(std::string_view text) : rest_(text) {}

  constexpr RealLiteral parse() noexcept {
    bool negative = false;
    if (next_is('-') || next_is('+')) {
      negative = rest_.front() == '-';
      rest_.remove_prefix(1);
    }
    RealLiteral out;
    if (equal_ignoring_case(rest_, "inf") || equal_ignoring_case(rest_, "infinity")) {
      out.cls = Class::infinity;
    } else if (equal_ignoring_case(rest_, "nan") || equal_ignoring_case(rest_, "qnan")) {
      out.cls = Class::quiet_nan;
    } else if (equal_ignoring_case(rest_, "snan")) {
      out.cls = Class::signaling_nan;
    } else if (rest_.size() > 2 && rest_[0] == '0' && ascii_lower(rest_[1]) == 'x') {
      rest_.remove_prefix(2);
      out = number(16);
    } else {
      out = number(10);
    }
    out.real.negative = negative;
    return out;
  }

 private:
  static constexpr int max_digits = 1000;
  static constexpr int huge_exponent = 4000;  // in bits: beyond every format

  constexpr bool next_is(char c) const noexcept { return !rest_.empty() && ascii_lower(rest_.front()) == c; }

  static constexpr int digit_value(char c, int base) noexcept {
    const char lower = ascii_lower(c);
    if (lower >= '0' && lower <= '9') return lower - '0';
    if (base == 16 && lower >= 'a' && lower <= 'f') return lower - 'a' + 10;
    return -1;
  }

  static constexpr RealLiteral fault(const char* text) noexcept { return {.fault = text}; }

  constexpr RealLiteral number(int base) noexcept {
    RealLiteral::Exact real;
    auto& significand = real.significand;
    int digits = 0;         // significant ones, up to the last that is not zero
    int pending_zeros = 0;  // zeros that count only if another digit follows
    int scale = 0;          // the value is significand * base^scale
    bool any = false;
    bool point = false;
    for (; !rest_.empty(); rest_.remove_prefix(1)) {
      if (rest_.front() == '.' && !point) {
        point = true;
        continue;
      }
      const int digit = digit_value(rest_.front(), base);
      if (digit < 0) break;
      any = true;
      if (point) --scale;
      if (digit == 0) {
        ++pending_zeros;
        continue;
      }
      if (digits == 0) pending_zeros = 0;
      if (digits + pending_zeros >= max_digits) return fault("more than 1000 significant digits");
      for (; pending_zeros > 0; --pending_zeros, ++digits) significand.multiply_add(static_cast<uint64>(base), 0);
      significand.multiply_add(static_cast<uint64>(base), static_cast<uint64>(digit));
      ++digits;
    }
    if (!any) return fault("no digits");
    scale += pending_zeros;

    int exponent = 0;
    if (next_is(base == 16 ? 'p' : 'e')) {
      rest_.remove_prefix(1);
      const bool negative = next_is('-');
      if (negative || next_is('+')) rest_.remove_prefix(1);
      if (rest_.empty()) return fault("the exponent has no digits");
      for (; !rest_.empty(); rest_.remove_prefix(1)) {
        const int digit = digit_value(rest_.front(), 10);
        if (digit < 0) break;
        if (exponent < 100'000'000) exponent = 10 * exponent + digit;
      }
      if (negative) exponent = -exponent;
    }
    if (!rest_.empty()) return fault("unexpected characters after the number");
    if (significand.is_zero()) return {};
    if (base == 16) {
      real.exponent = 4 * scale + exponent;
      return {.cls = Class::normal, .real = real};
    }
    return {.cls = Class::normal, .real = times_power_of_ten(real, digits, scale + exponent)};
  }

  /// real.significand (of so many digits) * 10^power.
  static constexpr RealLiteral::Exact times_power_of_ten(RealLiteral::Exact real, int digits, int power) noexcept {
    constexpr int limit = 1100;  // decimal digits: far beyond FP64 at both ends
    if (digits + power > limit) return {.significand = WideUint<128>{1}, .exponent = huge_exponent};
    if (digits + power < -limit) return {.significand = WideUint<128>{1}, .exponent = -huge_exponent};
    real.exponent = power;  // 10^power = 5^power * 2^power
    if (power >= 0) {
      for (int i = 0; i < power; ++i) real.significand.multiply_add(5, 0);
      return real;
    }
    WideUint<128> divisor{1};  // 5^2100 has 4876 bits
    for (int i = 0; i < -power; ++i) divisor.multiply_add(5, 0);
    int shift = 192 + divisor.bit_length() - real.significand.bit_length();
    if (shift < 192) shift = 192;  // an integer part keeps all its bits, and the fraction enough
    real.exponent -= shift;
    WideUint<128> remainder = real.significand << shift;
    real.significand = {};
    for (int bit = remainder.bit_length() - divisor.bit_length(); bit >= 0; --bit) {
      const WideUint<128> part = divisor << bit;
      if (remainder < part) continue;
      remainder -= part;
      real.significand.words[static_cast<std::size_t>(bit / 64)] |= uint64{1} << (bit % 64);
    }
    real.sticky = !remainder.is_zero();
    return real;
  }

  std::string_view rest_;
};

}  // namespace detail

/// Reads [+-] followed by a decimal (1.0625, 6e-8), a hexadecimal (0x1.8p-3, 0x40), inf, nan or snan, in any case. A
/// literal has at most 1000 significant digits.
constexpr RealLiteral parse_real(std::string_view text) noexcept {
  return detail::RealParser(text).parse();
}

}  // namespace bitcube
