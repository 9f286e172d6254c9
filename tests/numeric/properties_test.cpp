// Properties that hold for every format: round trips, monotonicity, and the sums without rounding.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bitcube/numeric/convert.hpp"
#include "bitcube/numeric/exact_sum.hpp"
#include "oracle/oracle.hpp"
#include "support/operands.hpp"

namespace bitcube {
namespace {

bool is_destination(const Format& f) {
  return f.layout != Layout::reciprocal;
}

/// -1, 0, 1 by value.
int compare(const Real& a, const Real& b) {
  const int magnitude = compare_magnitude(a, b);
  if (a.is_zero() && b.is_zero()) return 0;
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  return a.negative ? -magnitude : magnitude;
}

// encode(decode(x)) is x without flags, for every finite code of every format of up to 16 bits and, for the others, for
// random words.
TEST(Properties, DecodeThenEncodeIsIdentity) {
  test::Operands operands(1);
  for (const Format& f : formats) {
    if (!is_destination(f)) continue;
    const bool all = f.lane_bits <= 16;
    for (uint64 i = 0; i < (all ? uint64{1} << f.lane_bits : 20000); ++i) {
      const uint64 word = all ? i : operands.word(f);
      const Value v = decode(f, word);
      if (!v.is_finite()) continue;
      for (const RoundingInfo& r : roundings) {
        for (const ConversionProfile& profile : conversion_profiles) {
          const EncodeControl how{r.mode, (word & 1) != 0, &profile};
          const Encoded e = v.cls == Class::zero && f.kind == Kind::floating ? convert_value(f, v.cls, v.real, how)
                                                                             : encode(f, v.real, how);
          // The E2M1 overflow code 6 of `pto` never concerns a value that is exactly 6.0 (code 7).
          ASSERT_EQ(e.bits, word & low_mask(f.lane_bits)) << f.name << " " << word << " " << r.name << profile.name;
          ASSERT_EQ(e.flags, Flags::none) << f.name << " " << word << " " << r.name;
        }
      }
    }
  }
}

// x <= y implies encode(x) <= encode(y), in every mode that is monotone and with saturation.
TEST(Properties, EncodingIsMonotone) {
  for (const Format& f : formats) {
    if (!is_destination(f) || f.layout == Layout::exponent) continue;
    ASSERT_TRUE(rc::check("monotone " + std::string(f.name), [&f] {
      const auto real = [&] {
        const auto significand = *rc::gen::inRange<std::uint64_t>(1, std::uint64_t{1} << 40);
        const int spread = f.is_integer() ? 8 : 1 << std::min<int>(f.exponent_bits, 8);
        const bool negative = f.sign_bits != 0 && *rc::gen::arbitrary<bool>();
        return Real{negative, significand, *rc::gen::inRange(-spread - 40, spread - 30)};
      };
      Real x = real();
      Real y = real();
      if (*rc::gen::arbitrary<bool>()) y = Real{x.negative, x.significand + 1, x.exponent};
      if (compare(x, y) > 0) std::swap(x, y);
      const auto mode = *rc::gen::elementOf(std::vector<Rounding>{Rounding::rne, Rounding::rtz, Rounding::rtm,
                                                                  Rounding::rtp, Rounding::rna, Rounding::rhb});
      // `ocp` saturates E2M1 to its largest value; code 6 of `pto` is not monotone by its nature.
      const EncodeControl how{mode, true, &conversion_profiles[2]};
      RC_ASSERT(compare(decode(f, encode(f, x, how).bits).real, decode(f, encode(f, y, how).bits).real) <= 0);
    }));
  }
}

// A value between two neighbours goes to one of them, and to the nearer one under the nearest modes.
TEST(Properties, NearestModesPickTheNearerNeighbour) {
  const std::vector<DataType> types{DataType::e4m3, DataType::hif8, DataType::e5m2, DataType::fp16, DataType::e2m3};
  for (const DataType t : types) {
    const Format& f = format_of(t);
    std::vector<uint64> codes;
    for (uint64 c = 0; c < (uint64{1} << f.value_bits) / 2; ++c) {
      if (decode(f, c).is_finite()) codes.push_back(c);
    }
    std::sort(codes.begin(), codes.end(),
              [&](uint64 a, uint64 b) { return compare(decode(f, a).real, decode(f, b).real) < 0; });
    for (std::size_t i = 0; i + 1 < codes.size(); ++i) {
      const Real low = decode(f, codes[i]).real;
      const Real high = decode(f, codes[i + 1]).real;
      // x = low + (high - low) * n / 8, as integers in units of the smaller quantum / 8
      const int unit = std::min(low.exponent, high.exponent) - 4;
      const auto lo = static_cast<int64>(split(low, unit).quanta);
      const auto hi = static_cast<int64>(split(high, unit).quanta);
      for (int n = 1; n < 8; ++n) {
        const Real x{false, static_cast<uint128>(lo + (hi - lo) * n / 8), unit};
        for (const Rounding mode : {Rounding::rne, Rounding::rna, Rounding::rhb}) {
          const uint64 got = encode(f, x, EncodeControl{.rounding = mode}).bits;
          if (n != 4) {
            ASSERT_EQ(got, codes[n < 4 ? i : i + 1]) << f.name << " " << codes[i] << " " << n;
          }
          if (n == 4) {
            const bool even_low = (codes[i] & 1) == 0;
            ASSERT_EQ(got, codes[mode == Rounding::rne && even_low ? i : i + 1]) << f.name << " " << codes[i];
          }
        }
      }
    }
  }
}

TEST(Properties, ExactSumIsExact) {
  ASSERT_TRUE(rc::check("sum of products", [] {
    ExactSum sum;
    mpz_class expected = 0;  // in units of 2^-320
    const auto count = *rc::gen::inRange(1, 60);
    for (int i = 0; i < count; ++i) {
      const bool negative = *rc::gen::arbitrary<bool>();
      const auto significand = *rc::gen::inRange<std::uint64_t>(0, std::uint64_t{1} << 48);
      const int exponent = *rc::gen::inRange(-298, 240);
      sum.add(negative, significand, exponent);
      mpz_class term(std::to_string(significand));
      term <<= static_cast<unsigned>(exponent - ExactSum::lowest_exponent);
      expected += negative ? mpz_class(-term) : term;
    }
    const auto value = sum.value();
    mpz_class got = 0;
    for (std::size_t w = value.significand.words.size(); w-- > 0;) {
      got <<= 64;
      got += mpz_class(std::to_string(value.significand.words[w]));
    }
    RC_ASSERT((value.negative ? mpz_class(-got) : got) == expected);
  }));
}

TEST(Properties, WideSplitMatchesNarrowSplit) {
  ASSERT_TRUE(rc::check("split", [] {
    const Real x{false, *rc::gen::inRange<std::uint64_t>(1, ~std::uint64_t{0}), *rc::gen::inRange(-80, 40)};
    WideReal<8> wide{.significand = WideUint<8>{static_cast<uint64>(x.significand)}, .exponent = x.exponent};
    const int move = *rc::gen::inRange(0, 300);
    wide.significand = wide.significand << move;
    wide.exponent -= move;
    const int quantum = *rc::gen::inRange(-60, 70);
    const Split a = split(x, quantum);
    const Split b = split(wide, quantum);
    RC_ASSERT(a.quanta == b.quanta);
    RC_ASSERT(a.remainder == b.remainder);
    RC_ASSERT(above_sqrt2(x) == above_sqrt2(wide));
  }));
}

}  // namespace
}  // namespace bitcube
