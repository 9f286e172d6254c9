// One output element of the product, under each named accumulation profile (numerics 9.3 to 9.6, profiles 3).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "bitcube/cube/operand.hpp"
#include "bitcube/numeric/encode.hpp"
#include "bitcube/numeric/exact_sum.hpp"

namespace bitcube {

enum class Accumulation : std::uint8_t { fma, two_step, group, exact, raw_carrier };

struct AccumulationProfile {
  std::string_view name;
  Accumulation kind;
  std::string_view meaning;
};
inline constexpr std::array<AccumulationProfile, 5> accumulation_profiles{{
    {"fma", Accumulation::fma, "for k increasing: acc <- RNE32(acc + a*b), one rounding per k"},
    {"two-step", Accumulation::two_step, "for k increasing: p <- RNE32(a*b); acc <- RNE32(acc + p)"},
    {"group", Accumulation::group,
     "for each scale group in increasing k: acc <- RNE32(acc + exact sum of its products)"},
    {"exact", Accumulation::exact, "RNE32(C + exact sum of all products)"},
    {"raw-carrier", Accumulation::raw_carrier,
     "the formal specification's placeholder: carrier words multiplied modulo 2^64"},
}};

/// The profile of this name in any case, or nullptr.
constexpr const AccumulationProfile* find_accumulation_profile(std::string_view name) noexcept {
  for (const AccumulationProfile& profile : accumulation_profiles) {
    if (equal_ignoring_case(profile.name, name)) return &profile;
  }
  return nullptr;
}

/// The NaN that every product profile delivers (profiles 3).
inline constexpr std::uint32_t product_nan = 0x7FC00000;

/// An exact addend of the accumulator: a product, the bias, or the accumulator itself.
struct Addend {
  Term::Kind kind = Term::Kind::finite;
  bool negative = false;
  uint64 significand = 0;  // below 2^48
  int exponent = 0;

  constexpr bool is_zero() const noexcept { return kind == Term::Kind::finite && significand == 0; }
  constexpr Real real() const noexcept { return {negative, significand, exponent}; }
};

constexpr Addend addend_from_fp32(std::uint32_t word) noexcept {
  const Term t = term_of(fp32, word);
  return {t.kind, t.negative, t.significand, t.exponent};
}

/// Exact product; 0 * Inf is NaN (numerics 9.5).
constexpr Addend product(const Term& a, const Term& b) noexcept {
  Addend p{Term::Kind::finite, a.negative != b.negative, uint64{a.significand} * b.significand,
           a.exponent + b.exponent};
  if (a.kind == Term::Kind::finite && b.kind == Term::Kind::finite) return p;
  const auto is_zero = [](const Term& t) { return t.kind == Term::Kind::finite && t.significand == 0; };
  const bool nan = a.kind == Term::Kind::nan || b.kind == Term::Kind::nan || is_zero(a) || is_zero(b);
  p.kind = nan ? Term::Kind::nan : Term::Kind::infinite;
  return p;
}

/// Special values and the sign of an exact zero in a sum of any number of addends (numerics 9.5). `finished` tells
/// whether that decides the sum.
class SpecialSum {
 public:
  constexpr void add(const Addend& x) noexcept {
    if (x.kind == Term::Kind::nan) {
      nan_ = true;
    } else if (x.kind == Term::Kind::infinite) {
      (x.negative ? negative_infinity_ : positive_infinity_) = true;
    }
    all_negative_zero_ = all_negative_zero_ && x.is_zero() && x.negative;
  }
  constexpr bool finished() const noexcept { return nan_ || positive_infinity_ || negative_infinity_; }
  constexpr std::uint32_t result() const noexcept {
    if (nan_ || (positive_infinity_ && negative_infinity_)) return product_nan;
    return negative_infinity_ ? 0xFF800000 : 0x7F800000;
  }
  /// What an exact zero sum delivers: +0, unless all addends are -0.
  constexpr std::uint32_t zero() const noexcept { return all_negative_zero_ ? 0x80000000 : 0; }

 private:
  bool nan_ = false;
  bool positive_infinity_ = false;
  bool negative_infinity_ = false;
  bool all_negative_zero_ = true;
};

/// RNE32(+-sum * 2^exponent), where `sticky` adds less than one unit of sum and implies that sum >= 2^60. This is what
/// encode(fp32, x, RNE, Sat = 0) delivers (numerics 6.1), written out for the one format in which a product spends all
/// its time. sum is not zero and below 2^63.
constexpr std::uint32_t round_to_fp32(bool negative, uint64 sum, int exponent, bool sticky) noexcept {
  constexpr std::uint32_t infinity = 0x7F800000;
  const std::uint32_t sign = negative ? 0x80000000 : 0;
  const int e = bit_length(sum) - 1 + exponent;
  if (e > 127) return sign | infinity;
  const int binade = e < -126 ? -126 : e;
  const int drop = binade - 23 - exponent;
  // The hidden bit, where there is one, and a carry out of the fraction count up the exponent field by themselves.
  const std::uint32_t field = static_cast<std::uint32_t>(binade + 126) << 23;
  if (drop <= 0) return sign | (field + static_cast<std::uint32_t>(sum << -drop));
  if (drop > 63) return sign;  // less than half of the smallest subnormal
  const uint64 half = uint64{1} << (drop - 1);
  const auto lower = static_cast<std::uint32_t>(sum >> drop);
  const Remainder rest = detail::remainder_from((sum & half) != 0, (sum & (half - 1)) != 0 || sticky);
  return sign | (field + lower + (rounds_away(Rounding::rne, negative, (lower & 1) != 0, rest) ? 1 : 0));
}

/// RNE32(acc + x), one rounding (numerics 9.5).
constexpr std::uint32_t add_to_fp32(std::uint32_t acc, const Addend& x) noexcept {
  const Addend a = addend_from_fp32(acc);
  if (a.kind != Term::Kind::finite || x.kind != Term::Kind::finite || (a.significand == 0 && x.significand == 0)) {
    SpecialSum special;
    special.add(a);
    special.add(x);
    return special.finished() ? special.result() : special.zero();
  }
  const int top_a = a.significand == 0 ? -1000 : bit_length(a.significand) + a.exponent;
  const int top_x = x.significand == 0 ? -1000 : bit_length(x.significand) + x.exponent;
  const Addend& high = top_a >= top_x ? a : x;
  const Addend& low = top_a >= top_x ? x : a;
  // 64 bits are enough. The leading addend moves up to bit 61; a bit of the other one falls below bit 0 only where that
  // one (at most 48 bits) is smaller by 2^13 or more, so the difference keeps bit 60, and FP32 needs 24 bits of it.
  const int up = 62 - bit_length(high.significand);
  const uint64 sum = high.significand << up;
  const int exponent = high.exponent - up;
  const int shift = low.exponent - exponent;
  uint64 aligned = 0;
  bool sticky = false;
  if (low.significand != 0) {
    aligned = shift >= 0 ? low.significand << shift : shift > -64 ? low.significand >> -shift : 0;
    sticky = shift <= -64 || (shift < 0 && aligned << -shift != low.significand);
  }
  if (high.negative == low.negative) return round_to_fp32(high.negative, sum + aligned, exponent, sticky);
  if (sum == aligned) return 0;
  if (sum < aligned)
    return round_to_fp32(low.negative, aligned - sum, exponent, false);  // same binade: all bits are there
  return round_to_fp32(high.negative, sum - aligned - (sticky ? 1 : 0), exponent, sticky);  // x - s = (x - 1) + (1 - s)
}

/// RNE32(acc + exact sum of the products a[i] * b[i]).
constexpr std::uint32_t add_products_exactly(std::uint32_t acc, std::span<const Term> a,
                                             std::span<const Term> b) noexcept {
  SpecialSum special;
  ExactSum sum;
  const auto include = [&](const Addend& x) {
    special.add(x);
    if (x.kind == Term::Kind::finite) sum.add(x.negative, x.significand, x.exponent);
  };
  include(addend_from_fp32(acc));
  for (std::size_t i = 0; i < a.size(); ++i) include(product(a[i], b[i]));
  if (special.finished()) return special.result();
  const auto exact = sum.value();
  return exact.is_zero() ? special.zero() : static_cast<std::uint32_t>(encode(fp32, exact, {}).bits);
}

/// RNE32(a * b), the first rounding of a step of two-step; a product of zero keeps its sign.
constexpr std::uint32_t rounded_product(const Term& a, const Term& b) noexcept {
  return add_to_fp32(0x80000000, product(a, b));
}

/// One FP32 output element before the bias. `acc` is +0 or C; a and b are the K scaled lanes of a row of A and a column
/// of B; `group` is the group length of the profile `group`. Not for raw_carrier. `trace(k, n, word)` is told of every
/// step: the accumulator after lanes k to k + n - 1.
template <typename Trace>
constexpr std::uint32_t accumulate(Accumulation kind, std::uint32_t acc, std::span<const Term> a,
                                   std::span<const Term> b, std::size_t group, const Trace& trace) {
  switch (kind) {
    case Accumulation::fma:
      for (std::size_t k = 0; k < a.size(); ++k) {
        acc = add_to_fp32(acc, product(a[k], b[k]));
        trace(k, std::size_t{1}, acc);
      }
      break;
    case Accumulation::two_step:
      for (std::size_t k = 0; k < a.size(); ++k) {
        acc = add_to_fp32(acc, addend_from_fp32(rounded_product(a[k], b[k])));
        trace(k, std::size_t{1}, acc);
      }
      break;
    case Accumulation::group:
      for (std::size_t k = 0; k < a.size(); k += group) {
        const std::size_t n = group < a.size() - k ? group : a.size() - k;
        acc = add_products_exactly(acc, a.subspan(k, n), b.subspan(k, n));
        trace(k, n, acc);
      }
      break;
    case Accumulation::exact:
      acc = add_products_exactly(acc, a, b);
      trace(std::size_t{0}, a.size(), acc);
      break;
    case Accumulation::raw_carrier:
      break;
  }
  return acc;
}
constexpr std::uint32_t accumulate(Accumulation kind, std::uint32_t acc, std::span<const Term> a,
                                   std::span<const Term> b, std::size_t group) noexcept {
  return accumulate(kind, acc, a, b, group, [](std::size_t, std::size_t, std::uint32_t) noexcept {});
}

/// The payload word of the raw-carrier profile: floats, scales and unsigned lanes zero-extended, S8/S16/S32
/// sign-extended, packed lanes (S4X2 included) a zero-extended nibble (numerics 9.6).
constexpr uint64 raw_payload(const Format& f, uint64 word) noexcept {
  const uint64 lane = word & low_mask(f.lane_bits);
  return f.kind == Kind::signed_integer && !f.is_packed() ? static_cast<uint64>(sign_extend(lane, f.lane_bits)) : lane;
}

/// Lane k of a line in the arithmetic modulo 2^64 of the raw-carrier profile, its scale word multiplied in.
inline uint64 raw_at(const Operand& side, std::size_t line, std::size_t k) noexcept {
  const uint64 payload = raw_payload(*side.format, side.lanes(line, k));
  return side.scaled() ? payload * side.scales(line, k / scale_group(*side.format)) : payload;
}

/// Lane k of a line of integers, modulo 2^64.
inline uint64 integer_at(const Operand& side, std::size_t line, std::size_t k) noexcept {
  const Format& f = *side.format;
  const uint64 word = side.lanes(line, k) & low_mask(f.lane_bits);
  return f.kind == Kind::signed_integer ? static_cast<uint64>(sign_extend(word, f.lane_bits)) : word;
}

/// An accumulator or bias word in the arithmetic modulo 2^64 of the integer and raw-carrier products.
constexpr uint64 widen_accumulator(const Format& accumulator, std::uint32_t word) noexcept {
  return accumulator.kind == Kind::signed_integer ? static_cast<uint64>(sign_extend(word, 32)) : uint64{word};
}

}  // namespace bitcube
