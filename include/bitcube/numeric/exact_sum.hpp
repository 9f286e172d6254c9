// A sum of products without any rounding.
#pragma once

#include "bitcube/numeric/real.hpp"

namespace bitcube {

/// Two's-complement fixed-point accumulator whose last bit weighs 2^-320. It holds every sum of up to 2^60 products of
/// two operands of the CUBE: the smallest is 2^-298 (two FP32 subnormals), the largest below 2^288 (two E5M2 lanes
/// under the scale 2^127), and the accumulator ends at 2^383.
class ExactSum {
 public:
  static constexpr int lowest_exponent = -320;

  /// Adds (-1)^negative * significand * 2^exponent, which must be a multiple of 2^-320 and below 2^320.
  constexpr void add(bool negative, uint64 significand, int exponent) noexcept {
    if (significand == 0) return;
    const int position = exponent - lowest_exponent;
    auto word = static_cast<std::size_t>(position / 64);
    const uint128 shifted = static_cast<uint128>(significand) << (position % 64);
    const uint64 low = static_cast<uint64>(shifted);
    const uint64 high = static_cast<uint64>(shifted >> 64);
    uint64 carry = 0;
    for (std::size_t i = word; i < words; ++i) {
      const uint64 part = i == word ? low : i == word + 1 ? high : 0;
      if (i > word + 1 && carry == 0) break;
      uint64& w = sum_.words[i];
      const uint128 next = negative ? static_cast<uint128>(w) - part - carry : static_cast<uint128>(w) + part + carry;
      w = static_cast<uint64>(next);
      carry = static_cast<uint64>(next >> 64) & 1;
    }
  }
  constexpr void add(const Real& x) noexcept { add(x.negative, static_cast<uint64>(x.significand), x.exponent); }

  constexpr WideReal<11> value() const noexcept {
    const bool negative = sum_.bit(Sum::bits - 1);
    Sum magnitude = sum_;
    if (negative) {
      magnitude = Sum{};
      magnitude -= sum_;
    }
    return {.negative = negative, .significand = magnitude, .exponent = lowest_exponent};
  }

 private:
  static constexpr std::size_t words = 11;
  using Sum = WideUint<words>;
  Sum sum_{};
};

}  // namespace bitcube
