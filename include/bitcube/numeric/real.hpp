// Exact real numbers: what decoders produce and encoders round.
#pragma once

#include <cstdint>

#include "bitcube/numeric/bits.hpp"
#include "bitcube/numeric/rounding.hpp"
#include "bitcube/numeric/wide.hpp"

namespace bitcube {

/// (-1)^negative * (significand + s) * 2^exponent, where 0 < s < 1 if `sticky`, else s = 0.
/// A sticky value carries so many bits that s can never reach a rounding decision as more than "not exact": at least
/// 65 significant bits, and for integer destinations an exponent below -1.
struct Real {
  bool negative = false;
  uint128 significand = 0;
  std::int32_t exponent = 0;
  bool sticky = false;

  constexpr bool is_zero() const noexcept { return significand == 0 && !sticky; }
};

/// The same with a significand of 64 * Words bits.
template <std::size_t Words>
struct WideReal {
  bool negative = false;
  WideUint<Words> significand{};
  std::int32_t exponent = 0;
  bool sticky = false;

  constexpr bool is_zero() const noexcept { return significand.is_zero() && !sticky; }
};

constexpr Real real_from_signed(int64 x) noexcept {
  return Real{.negative = x < 0, .significand = x < 0 ? ~static_cast<uint64>(x) + 1 : static_cast<uint64>(x)};
}

/// floor(log2 |x|). Precondition: x is not zero.
constexpr int floor_log2(const Real& x) noexcept {
  return bit_length(x.significand) - 1 + x.exponent;
}
template <std::size_t Words>
constexpr int floor_log2(const WideReal<Words>& x) noexcept {
  return x.significand.bit_length() - 1 + x.exponent;
}

/// |x| as a multiple of 2^quantum: the whole number of quanta, modulo 2^128, and what is left.
struct Split {
  uint128 quanta = 0;
  Remainder remainder = Remainder::exact;
};

namespace detail {

constexpr Remainder remainder_from(bool half_bit, bool rest) noexcept {
  if (half_bit) return rest ? Remainder::above_half : Remainder::half;
  return rest ? Remainder::below_half : Remainder::exact;
}

}  // namespace detail

constexpr Split split(const Real& x, int quantum) noexcept {
  const int shift = quantum - x.exponent;
  if (shift <= 0) return {shift > -128 ? x.significand << -shift : 0, detail::remainder_from(false, x.sticky)};
  if (shift > 128) return {0, detail::remainder_from(false, !x.is_zero())};
  const uint128 half = uint128{1} << (shift - 1);
  return {shift == 128 ? 0 : x.significand >> shift,
          detail::remainder_from((x.significand & half) != 0, (x.significand & (half - 1)) != 0 || x.sticky)};
}

template <std::size_t Words>
constexpr Split split(const WideReal<Words>& x, int quantum) noexcept {
  const int shift = quantum - x.exponent;
  WideUint<Words> quanta;
  if (shift <= 0) {
    if (-shift < WideUint<Words>::bits) quanta = x.significand << -shift;
  } else if (shift < WideUint<Words>::bits) {
    quanta = x.significand >> shift;
  }
  return {static_cast<uint128>(quanta.words[1]) << 64 | quanta.words[0],
          detail::remainder_from(x.significand.bit(shift - 1), x.significand.any_below(shift - 1) || x.sticky)};
}

/// Whether |x| >= 2^(e + 1/2), exactly, where e = floor(log2 |x|) and x is not zero. Equality is impossible for an
/// exact x: the bound is irrational.
template <std::size_t Words>
constexpr bool above_sqrt2(const WideReal<Words>& x) noexcept {
  // x^2 >= 2^(2e+1) holds exactly if the square of the significand has an even number of bits.
  return square(x.significand).bit_length() % 2 == 0;
}
constexpr bool above_sqrt2(const Real& x) noexcept {
  WideReal<2> wide;
  wide.significand.words = {static_cast<uint64>(x.significand), static_cast<uint64>(x.significand >> 64)};
  return above_sqrt2(wide);
}

/// Exact product. Precondition: both significands below 2^64, no sticky.
constexpr Real multiply(const Real& a, const Real& b) noexcept {
  return Real{.negative = a.negative != b.negative,
              .significand = a.significand * b.significand,
              .exponent = a.exponent + b.exponent};
}

/// x * 2^power.
constexpr Real scale_by_power_of_two(Real x, int power) noexcept {
  x.exponent += power;
  return x;
}

/// a / b to at least 65 significant bits, the rest as sticky. Precondition: b is not zero, both significands below
/// 2^60.
constexpr Real divide(const Real& a, const Real& b) noexcept {
  const int shift = 127 - bit_length(a.significand);
  const uint128 numerator = a.significand << shift;
  return Real{.negative = a.negative != b.negative,
              .significand = numerator / b.significand,
              .exponent = a.exponent - shift - b.exponent,
              .sticky = numerator % b.significand != 0};
}

/// -1, 0 or 1 as |a| is less than, equal to or greater than |b|. Precondition: b is not sticky.
template <typename ExactReal>
constexpr int compare_magnitude(const ExactReal& a, const Real& b) noexcept {
  if (a.is_zero() || b.is_zero()) return static_cast<int>(!a.is_zero()) - static_cast<int>(!b.is_zero());
  const int ea = floor_log2(a);
  const int eb = floor_log2(b);
  if (ea != eb) return ea < eb ? -1 : 1;
  const Split s = split(a, b.exponent);
  if (s.quanta != b.significand) return s.quanta < b.significand ? -1 : 1;
  return s.remainder == Remainder::exact ? 0 : 1;
}

}  // namespace bitcube
