#include "bitcube/quantize/hif4.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <rapidcheck/gtest.h>  // needs gtest before it

#include "support/row.hpp"

namespace bitcube {
namespace {

using namespace test;
using Words = std::vector<std::uint32_t>;

const Hif4Profile& profile_named(std::string_view name) {
  return *find_hif4_profile(name);
}

std::string digits(const Hif4Group& group, std::size_t count = 64) {
  std::string text;
  for (std::size_t q = 0; q < count; ++q) text += fmt::format("{:X}", group.codes[q]);
  return text;
}

/// +-significand * 2^exponent, for comparison in lowest terms.
bool equals(const Value& value, bool negative, std::uint64_t significand, int exponent) {
  if (!value.is_finite() || value.real.negative != negative) return false;
  return compare_magnitude(value.real, Real{.significand = significand, .exponent = exponent}) == 0;
}

// The quantiser works in constant expressions. 64 ones decode to 0.9375: that is Algorithm 1 (profiles 1).
constexpr Hif4Group quantize_ones() {
  std::array<std::uint32_t, 64> ones{};
  ones.fill(0x3F80);
  return quantize_hif4_group(bf16, ones);
}
static_assert(quantize_ones().scale_word == 0xFFFFFFB5);
static_assert(quantize_ones().codes[63] == 6);
static_assert(compare_magnitude(dequantize_hif4_lane(0xFFFFFFB5, 63, 6).real,
                                Real{.significand = 15, .exponent = -4}) == 0);

TEST(Hif4Profile, TableAndNames) {
  EXPECT_EQ(hif4_profiles[0].name, "pto");
  EXPECT_EQ(find_hif4_profile("PTO-A6"), &hif4_profiles[1]);
  EXPECT_EQ(find_hif4_profile("pto-a7"), nullptr);
}

// ---- Worked examples of numerics 10.3 ---------------------------------------------------------------------

Words worked_group() {
  Words words{0x40E0, 0xC060, 0x3F80, 0x3E9A, 0x4020, 0xBF00, 0x3E80, 0x8000,
              0x4040, 0xC000, 0x3F80, 0x3F00, 0x3F00, 0x3EC0, 0x3E00, 0x0000};
  words.resize(64);
  return words;
}

TEST(Hif4Group, WorkedGroupWithOneSeventh) {
  const Hif4Group pto = quantize_hif4_group(bf16, worked_group());
  EXPECT_EQ(pto.maxima.per64, 0x40E0U);
  EXPECT_EQ(pto.scale_factor, 0x3F80U);
  EXPECT_EQ(pto.e6m2, 0xC0);
  EXPECT_EQ(pto.reciprocal, 0x3F80);
  EXPECT_EQ(pto.micro8, 0x01);
  EXPECT_EQ(pto.micro4, 0x0005);
  EXPECT_EQ(pto.scale_word, 0x000501C0U);
  EXPECT_EQ(pto.reciprocal4[0], 0x3E80);
  EXPECT_EQ(pto.reciprocal4[1], 0x3F00);
  EXPECT_EQ(pto.reciprocal4[2], 0x3F00);
  EXPECT_EQ(pto.reciprocal4[3], 0x3F80);
  EXPECT_EQ(digits(pto, 16),
            "7C10591"
            "86C212210");
  EXPECT_EQ(digits(quantize_hif4_group(bf16, worked_group(), profile_named("pto-a6")), 16),
            "7C10590"
            "86C212200");
}

TEST(Hif4Group, WorkedGroupReadLiterally) {
  const Hif4Group literal = quantize_hif4_group(bf16, worked_group(), profile_named("literal"));
  EXPECT_EQ(literal.scale_factor, 0x40E0U);
  EXPECT_EQ(literal.scale_word, 0x000000CBU);
  for (const std::uint16_t scale : literal.reciprocal4) EXPECT_EQ(scale, 0x3E12);
  EXPECT_EQ(digits(literal, 16), "4A10180829100000");
}

TEST(Hif4Group, UniformGroups) {
  struct Case {
    std::uint32_t value;
    const char* profile;
    std::uint32_t word, reciprocal, scale;
    unsigned code;
  };
  constexpr Case kCases[] = {
      {0x3F80, "literal", 0x000000C0, 0x3F80, 0x3F80, 4}, {0x3F80, "pto", 0xFFFFFFB5, 0x40CD, 0x3FCD, 6},
      {0x40E0, "literal", 0x000000CB, 0x3E12, 0x3E12, 4}, {0x40E0, "pto", 0xFFFFFFC0, 0x3F80, 0x3E80, 7},
      {0x3F90, "literal", 0x000000C0, 0x3F80, 0x3F80, 5}, {0x3F90, "pto", 0xFFFFFFB5, 0x40CD, 0x3FCD, 7},
      {0x4040, "literal", 0x000000C6, 0x3EAB, 0x3EAB, 4}, {0x4040, "pto", 0xFFFFFFBB, 0x4012, 0x3F12, 7},
      {0x42C8, "literal", 0x000000DA, 0x3C2B, 0x3C2B, 4}, {0x42C8, "pto", 0xFFFFFFCF, 0x3D92, 0x3C92, 7},
      {0x4980, "literal", 0xFFFFFFFE, 0x37AB, 0x36AB, 7}, {0x4980, "pto", 0xFFFFFFFE, 0x37AB, 0x36AB, 7},
      {0x2180, "literal", 0x00000000, 0x5780, 0x5780, 0}, {0x2180, "pto", 0x00000000, 0x5780, 0x5780, 0},
  };
  for (const Case& c : kCases) {
    for (const unsigned sign : {0U, 8U}) {
      SCOPED_TRACE(fmt::format("{:04X} {} {}", c.value, c.profile, sign));
      const Hif4Group g = quantize_hif4_group(bf16, Words(64, c.value | sign << 12), profile_named(c.profile));
      EXPECT_EQ(g.scale_word, c.word);
      EXPECT_EQ(g.reciprocal, c.reciprocal);
      for (const std::uint16_t scale : g.reciprocal4) EXPECT_EQ(scale, c.scale);
      for (const std::uint8_t code : g.codes) EXPECT_EQ(code, c.code | sign);
    }
  }
}

// ---- Special groups ---------------------------------------------------------------------------------------

TEST(Hif4Group, ZerosKeepTheirSign) {
  for (const Hif4Profile& profile : hif4_profiles) {
    Words words(64, 0x0000);
    for (std::size_t q = 0; q < 64; q += 3) words[q] = 0x8000;
    const Hif4Group g = quantize_hif4_group(bf16, words, profile);
    EXPECT_EQ(g.scale_word, 0U);
    EXPECT_EQ(g.reciprocal, 0x5780);
    for (std::size_t q = 0; q < 64; ++q) EXPECT_EQ(g.codes[q], q % 3 == 0 ? 8 : 0);
    EXPECT_EQ(dequantize_hif4_lane(0, 0, 8).cls, Class::zero);
    EXPECT_TRUE(dequantize_hif4_lane(0, 0, 8).real.negative);
  }
}

TEST(Hif4Group, NegativeUnderflowKeepsItsSign) {
  Words words(64, 0x40E0);
  words[5] = 0x8001;  // so small that BF16(x * scale) is zero
  words[6] = 0xA000;
  for (const Hif4Profile& profile : hif4_profiles) {
    const Hif4Group g = quantize_hif4_group(bf16, words, profile);
    EXPECT_EQ(g.codes[5], 8) << profile.name;
    EXPECT_EQ(g.codes[6], 8) << profile.name;
  }
}

TEST(Hif4Group, NanAtEveryPosition) {
  for (const Hif4Profile& profile : hif4_profiles) {
    for (std::size_t at = 0; at < 64; ++at) {
      for (const std::uint32_t nan : {0x7FC0U, 0xFFC0U, 0x7F81U, 0xFFFFU}) {
        for (const bool wide : {false, true}) {
          Words words(64, 0x40E0);
          words[(at + 7) % 64] = 0xFF80;  // an infinity beside it changes nothing
          words[at] = nan;
          if (wide) {
            for (std::uint32_t& word : words) word <<= 16;
            words[at] |= 1;
          }
          const Hif4Group g = quantize_hif4_group(wide ? fp32 : bf16, words, profile);
          ASSERT_EQ(g.scale_word, 0xFFU) << profile.name << " lane " << at;
          ASSERT_EQ(g.codes, (std::array<std::uint8_t, 64>{}));
          ASSERT_EQ(g.reciprocal4[at / 4], 0x7FC0);
          ASSERT_TRUE(g.is_nan());
          ASSERT_TRUE(dequantize_hif4_lane(g.scale_word, 63, 3).is_nan());
        }
      }
    }
  }
}

TEST(Hif4Group, InfinityAtEveryPosition) {
  for (const Hif4Profile& profile : hif4_profiles) {
    for (std::size_t at = 0; at < 64; ++at) {
      for (const bool negative : {false, true}) {
        Words words(64, 0x3F80);
        words[at] = negative ? 0xFF80 : 0x7F80;
        const Hif4Group g = quantize_hif4_group(bf16, words, profile);
        // Only the sub-groups of the infinity reach their thresholds: 1 / 49152 is below them.
        const std::uint32_t expected = 0xFEU | 1U << (8 + at / 8) | 1U << (16 + at / 4);
        ASSERT_EQ(g.scale_word, expected) << profile.name << " lane " << at;
        for (std::size_t q = 0; q < 64; ++q) ASSERT_EQ(g.codes[q], q != at ? 0 : negative ? 15 : 7);
      }
    }
  }
}

TEST(Hif4Group, BothEndsOfTheScale) {
  const auto e6m2_of = [](std::uint32_t word) { return quantize_hif4_group(bf16, Words{word}).e6m2; };
  EXPECT_EQ(e6m2_of(0x28E0), 0x00);  // 7 * 2^-48
  EXPECT_EQ(e6m2_of(0x0001), 0x00);
  EXPECT_EQ(e6m2_of(0x7F7F), 0xFE);
  EXPECT_EQ(e6m2_of(0x48A8), 0xFE);  // 344064 = 7 * 49152, the largest value that HiF4 represents
  EXPECT_EQ(quantize_hif4_group(bf16, Words{0x7F7F}).scale_factor, 0x7E11U);  // before the clamp
  EXPECT_EQ(quantize_hif4_group(bf16, Words{0xFF7F}).codes[0], 15);
  // The exact 1.125 of the E6M2 grid's midpoint: even under RNE, up under half-up.
  EXPECT_EQ(quantize_hif4_group(bf16, Words{0x40FC}).scale_factor, 0x3F90U);
  EXPECT_EQ(quantize_hif4_group(bf16, Words{0x40FC}).e6m2, 0xC0);
  EXPECT_EQ(quantize_hif4_group(bf16, Words{0x40FC}, profile_named("bench")).e6m2, 0xC1);
}

// ---- FP32 sources -----------------------------------------------------------------------------------------

TEST(Hif4Group, Fp32IsNotRoundedBeforeItIsUsed) {
  // A lane a little below 0.375, the tie of codes 1 and 2 under scale 1, which BF16 cannot tell from it.
  Words words(64, 0);
  words[0] = 0x40E00000;  // 7: scale 1 after the prescale, 1/4 for lanes 0..3
  words[8] = 0x3EBFFFFE;  // a little below 0.375
  const Hif4Group exact = quantize_hif4_group(fp32, words, profile_named("paper"));
  EXPECT_EQ(exact.scale_word, 0x000101C0U);
  EXPECT_EQ(exact.codes[8], 1);
  // With BF16 products the same lane rounds to the tie first: 0.375, then half away.
  EXPECT_EQ(quantize_hif4_group(fp32, words).codes[8], 2);
}

TEST(Hif4Group, Fp32MaximaAndFactorAreExact) {
  const Hif4Group g = quantize_hif4_group(fp32, Words{0xC0E00001}, profile_named("literal"));
  EXPECT_EQ(g.maxima.per64, 0x40E00001U);
  EXPECT_EQ(g.scale_factor, 0x40E00001U);  // Ma itself
  // literal: a tie of E6M2 that only exact Ma breaks (1.125 + 2^-23; rounded to BF16 it would be the tie, to C0).
  EXPECT_EQ(quantize_hif4_group(fp32, Words{0x3F900000}, profile_named("literal")).e6m2, 0xC0);
  EXPECT_EQ(quantize_hif4_group(fp32, Words{0x3F900001}, profile_named("literal")).e6m2, 0xC1);
}

/// The quantiser once more, by other means: doubles, which hold every product of an FP32 value exactly, and the
/// rounding functions of the host. Finite lanes only.
struct DoubleGroup {
  std::uint32_t scale_word = 0;
  std::array<std::uint8_t, 64> codes{};

  static double bf16_rne(double x) {
    if (x == 0) return 0;
    int e = 0;
    (void)std::frexp(x, &e);
    const int quantum = std::max(e - 8, -133);
    return std::ldexp(std::nearbyint(std::ldexp(x, -quantum)), quantum);
  }

  DoubleGroup(const std::vector<float>& lanes, const Hif4Profile& profile) {
    const auto product = [&](double a, double b) { return profile.bf16_products ? bf16_rne(a * b) : a * b; };
    double mc[16] = {};
    double mb[8] = {};
    double ma = 0;
    for (std::size_t q = 0; q < lanes.size(); ++q) {
      const double x = std::abs(static_cast<double>(lanes[q]));
      mc[q / 4] = std::max(mc[q / 4], x);
      mb[q / 8] = std::max(mb[q / 8], x);
      ma = std::max(ma, x);
    }
    const double sf = std::clamp(profile.one_seventh ? bf16_rne(ma * 0.142578125) : ma, 0x1p-48, 49152.0);
    int e = 0;
    (void)std::frexp(sf, &e);
    const double quanta = std::ldexp(sf, 3 - e);  // in [4, 8)
    const bool half_up = profile.scale_rounding == Rounding::rna;
    const double value = std::ldexp(half_up ? std::floor(quanta + 0.5) : std::nearbyint(quanta), e - 3);
    const double fraction = std::frexp(value, &e) * 8 - 4;
    const double reciprocal = bf16_rne(1 / value);  // far from every tie, so twice rounded is once rounded
    scale_word = static_cast<std::uint32_t>((e - 1 + 48) * 4) + static_cast<std::uint32_t>(fraction);
    for (std::size_t q = 0; q < 64; ++q) {
      const int eb = product(mb[q / 8], reciprocal) >= 4 ? 1 : 0;
      const int ec = std::ldexp(product(mc[q / 4], reciprocal), -eb) >= 2 ? 1 : 0;
      scale_word |= static_cast<std::uint32_t>(eb) << (8 + q / 8) | static_cast<std::uint32_t>(ec) << (16 + q / 4);
      if (q >= lanes.size()) continue;
      const double p = product(std::abs(static_cast<double>(lanes[q])), std::ldexp(reciprocal, -eb - ec));
      const double quarters = profile.lane_rounding == Rounding::rna ? std::round(4 * p) : std::nearbyint(4 * p);
      codes[q] =
          static_cast<std::uint8_t>((quarters > 7 ? 7 : static_cast<int>(quarters)) + (std::signbit(lanes[q]) ? 8 : 0));
    }
  }
};

RC_GTEST_PROP(Hif4Group, Fp32AgreesWithDoubles, ()) {
  // A common exponent and a spread below it: exponents anywhere, lanes that matter.
  const auto top = *rc::gen::inRange(0U, 254U);
  const auto spread = *rc::gen::inRange(0U, 12U);
  Words words;
  std::vector<float> lanes;
  for (std::size_t q = 0; q < 64; ++q) {
    const auto bits = *rc::gen::resize(100, rc::gen::arbitrary<std::uint32_t>());
    const std::uint32_t exponent = top - std::min(top, (bits >> 24) % (spread + 1));
    words.push_back((bits & 0x807FFFFF) | exponent << 23);
    lanes.push_back(std::bit_cast<float>(words.back()));
  }
  for (const Hif4Profile& profile : hif4_profiles) {
    const Hif4Group g = quantize_hif4_group(fp32, words, profile);
    const DoubleGroup expected(lanes, profile);
    RC_ASSERT(g.scale_word == expected.scale_word);
    RC_ASSERT(g.codes == expected.codes);
  }
}

RC_GTEST_PROP(Hif4Group, Fp32AgreesWithBf16OnItsValues, ()) {
  const auto words = *rc::gen::nonEmpty(rc::gen::container<Words>(rc::gen::inRange(0U, 0x10000U)));
  const std::span<const std::uint32_t> lanes(words.data(), std::min<std::size_t>(words.size(), 64));
  Words wide(lanes.begin(), lanes.end());
  for (std::uint32_t& word : wide) word <<= 16;
  for (const Hif4Profile& profile : hif4_profiles) {
    const Hif4Group narrow = quantize_hif4_group(bf16, lanes, profile);
    const Hif4Group same = quantize_hif4_group(fp32, wide, profile);
    RC_ASSERT(narrow.scale_word == same.scale_word);
    RC_ASSERT(narrow.codes == same.codes);
    RC_ASSERT(narrow.reciprocal4 == same.reciprocal4);
  }
}

// ---- Short groups -----------------------------------------------------------------------------------------

RC_GTEST_PROP(Hif4Group, MissingLanesCountAsPlusZero, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(1, 65);
  const auto words = *rc::gen::container<Words>(count, rc::gen::inRange(0U, 0x10000U));
  Words padded = words;
  padded.resize(64, 0);
  for (const Hif4Profile& profile : hif4_profiles) {
    const Hif4Group g = quantize_hif4_group(bf16, words, profile);
    const Hif4Group whole = quantize_hif4_group(bf16, padded, profile);
    RC_ASSERT(g.scale_word == whole.scale_word);
    RC_ASSERT(g.codes == whole.codes);
    for (std::size_t q = count; q < 64; ++q) RC_ASSERT(g.codes[q] == 0);
  }
}

// ---- Properties -------------------------------------------------------------------------------------------

/// Groups of finite BF16 words in the range that the scale covers without clamping.
rc::Gen<Words> moderate_groups() {
  return rc::gen::container<Words>(
      64, rc::gen::apply([](std::uint32_t magnitude, bool negative) { return magnitude | (negative ? 0x8000U : 0U); },
                         rc::gen::inRange(0x3000U, 0x4500U), rc::gen::arbitrary<bool>()));
}

RC_GTEST_PROP(Hif4Group, SignsAreKept, ()) {
  const auto words = *rc::gen::container<Words>(64, rc::gen::inRange(0U, 0x10000U));
  for (const Hif4Profile& profile : hif4_profiles) {
    const Hif4Group g = quantize_hif4_group(bf16, words, profile);
    if (g.is_nan()) continue;
    for (std::size_t q = 0; q < 64; ++q) RC_ASSERT((g.codes[q] >> 3) == (words[q] >> 15));
  }
}

RC_GTEST_PROP(Hif4Group, ScaleGrowsWithTheLargestMagnitude, ()) {
  auto words = *moderate_groups();
  for (const Hif4Profile& profile : hif4_profiles) {
    const Hif4Group before = quantize_hif4_group(bf16, words, profile);
    auto larger = words;
    larger[*rc::gen::inRange<std::size_t>(0, 64)] = *rc::gen::inRange(before.maxima.per64, 0x7F80U);
    RC_ASSERT(quantize_hif4_group(bf16, larger, profile).e6m2 >= before.e6m2);
  }
}

RC_GTEST_PROP(Hif4Group, ErrorIsBoundedByHalfAQuantumOrTheClamp, ()) {
  // Lanes that do not clamp lie within half a quarter of scale(q), plus what R and the BF16 products may be off: R by 1
  // in 2^8, a product by 1 in 2^8 (both relative). Lanes that clamp are at most 7.90625 / 7 too large before.
  const auto words = *moderate_groups();
  for (const Hif4Profile& profile : hif4_profiles) {
    if (!profile.one_seventh) continue;
    const Hif4Group g = quantize_hif4_group(bf16, words, profile);
    for (std::size_t q = 0; q < 64; ++q) {
      const auto to_double = [](const Value& v) {
        const double x =
            std::ldexp(static_cast<double>(static_cast<std::uint64_t>(v.real.significand)), v.real.exponent);
        return v.real.negative ? -x : x;
      };
      const double x = to_double(decode(bf16, words[q]));
      const double y = to_double(dequantize_hif4_lane(g.scale_word, q, g.codes[q]));
      const double scale = to_double(hif4_scale(g.scale_word, q));
      const bool clamped = (g.codes[q] & 7) == 7;
      const double bound = 0.125 * scale + std::abs(x) / 128 + (clamped ? 0.25 * scale : 0);
      RC_ASSERT(std::abs(x - y) <= bound);
    }
  }
}

RC_GTEST_PROP(Hif4Group, RequantisingARepresentableGroupIsExact, ()) {
  // A group whose largest magnitude is 7 * E6M2 under a power-of-two scale reproduces itself: sf is exactly E6M2, R is
  // exact, so every lane comes back as its value. Codes may be written under other micro-exponents: compare values.
  const int exponent = *rc::gen::inRange(1, 62);
  const auto e6m2_code = static_cast<std::uint32_t>(exponent << 2);
  std::uint32_t word = e6m2_code | *rc::gen::arbitrary<std::uint32_t>() << 8;
  auto codes = *rc::gen::container<std::vector<unsigned>>(64, rc::gen::inRange(0U, 16U));
  word |= 0x00010100;  // lane 0 holds the largest value, 7/4 * 4
  codes[0] = 7;
  Words words;
  for (std::size_t q = 0; q < 64; ++q) {
    const Value y = dequantize_hif4_lane(word, q, codes[q]);
    const Encoded encoded = convert_value(bf16, y.cls, y.real, {});
    RC_ASSERT(encoded.flags == Flags::none);
    words.push_back(static_cast<std::uint32_t>(encoded.bits));
  }
  for (const Hif4Profile& profile : hif4_profiles) {
    if (!profile.one_seventh) continue;
    const Hif4Group g = quantize_hif4_group(bf16, words, profile);
    RC_ASSERT(g.e6m2 == e6m2_code);
    for (std::size_t q = 0; q < 64; ++q) {
      const Value y = dequantize_hif4_lane(g.scale_word, q, g.codes[q]);
      RC_ASSERT(convert_value(bf16, y.cls, y.real, {}).bits == words[q]);
    }
  }
}

// ---- Scale word (numerics 8.1) ----------------------------------------------------------------------------

TEST(Hif4Scale, WorkedWords) {
  EXPECT_TRUE(equals(hif4_scale(0x00010100, 0), false, 1, -46));
  EXPECT_TRUE(equals(hif4_scale(0x00010100, 8), false, 1, -48));
  EXPECT_TRUE(equals(hif4_scale(0x00010100, 4), false, 1, -47));
  EXPECT_TRUE(equals(hif4_scale(0x000000C0, 63), false, 1, 0));
  EXPECT_TRUE(equals(hif4_scale(0x000501C0, 3), false, 4, 0));
  EXPECT_TRUE(equals(hif4_scale(0x000501C0, 4), false, 2, 0));
  EXPECT_TRUE(equals(hif4_scale(0x000501C0, 11), false, 2, 0));
  EXPECT_TRUE(equals(hif4_scale(0x000501C0, 12), false, 1, 0));
  EXPECT_TRUE(equals(hif4_scale(0xFFFFFFC0, 63), false, 4, 0));
  EXPECT_TRUE(equals(hif4_scale(0xFFFFFFFE, 0), false, 196608, 0));
  EXPECT_TRUE(hif4_scale(0x000000FF, 0).is_nan());
  EXPECT_TRUE(equals(dequantize_hif4_lane(0xFFFFFFFE, 17, 0xF), true, 344064, 0));
  EXPECT_TRUE(equals(dequantize_hif4_lane(0x00000000, 17, 0x1), false, 1, -50));
}

// Every scale word has the reciprocals that the quantiser multiplied by (steps 4 and 7).
TEST(Hif4Scale, ReciprocalsOfEveryE6M2Code) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const std::uint64_t plain = convert(format_of(DataType::rcpe6m2), bf16, code, {}).bits;
    const auto words = hif4_reciprocal4(code | 0x00000100 | 0x00050000);
    EXPECT_EQ(words[15], plain);
    if (code == 0xFF) continue;
    EXPECT_EQ(words[1], plain - 0x80);  // half of it
    EXPECT_EQ(words[2], plain - 0x80);
    EXPECT_EQ(words[0], plain - 0x100);
  }
}

// ---- Golden vectors ---------------------------------------------------------------------------------------

void check_groups(std::string_view file) {
  for_each_row(file, [&](const Row& row) {
    const Words words = hex_words<std::uint32_t>(row.text("input_bf16"), 4);
    const Hif4Group g = quantize_hif4_group(bf16, words, profile_named(row.text("profile")));
    EXPECT_EQ(fmt::format("{:08x}", g.scale_word), fmt::format("{:08x}", row.word("scale_word")));
    std::string codes;
    for (const std::uint8_t code : g.codes) codes += fmt::format("{:x}", code);
    EXPECT_EQ(codes, row.text("codes"));
  });
}

TEST(Hif4Vectors, Groups) {
  check_groups("hif4_groups.csv");
}
TEST(Hif4Vectors, SpecialGroups) {
  check_groups("hif4_special.csv");
}

template <typename Word, typename Json>
std::vector<Word> word_list(const Json& list) {
  std::vector<Word> words;
  for (const auto& item : list) words.push_back(static_cast<Word>(hex(item.template get<std::string>())));
  return words;
}

std::string packed(const std::array<std::uint8_t, 64>& codes) {
  std::string text;
  for (std::size_t q = 0; q < 64; q += 2) text += fmt::format("{:x}{:x}", codes[q + 1], codes[q]);
  return text;
}

TEST(Hif4Vectors, WorkedExamplesWithEveryIntermediateValue) {
  const auto json = nlohmann::json::parse(vector_text("hif4_worked.json"), nullptr, false);
  ASSERT_TRUE(json.is_object()) << "hif4_worked.json is missing or damaged";
  ASSERT_EQ(json["profile"], "pto-a6");
  ASSERT_EQ(json["examples"].size(), 18U);
  for (const auto& example : json["examples"]) {
    SCOPED_TRACE(example["name"].get<std::string>());
    Words words = word_list<std::uint32_t>(example["input_bf16"]);
    words.resize(example["valid"].get<std::size_t>());
    const Hif4Profile& profile = profile_named("pto-a6");
    const Hif4Group g = quantize_hif4_group(bf16, words, profile);
    const auto array = [](const auto& values) { return Words(values.begin(), values.end()); };
    const auto word = [](const auto& item) { return hex(item.template get<std::string>()); };

    EXPECT_EQ(array(g.maxima.per4), word_list<std::uint32_t>(example["stage1"]["max4"]));
    EXPECT_EQ(array(g.maxima.per8), word_list<std::uint32_t>(example["stage1"]["max8"]));
    EXPECT_EQ(g.maxima.per64, word(example["stage1"]["max64"]));

    const auto& stage2 = example["stage2"];
    EXPECT_EQ(g.scale_factor, word(stage2["sf_bf16"]));
    EXPECT_EQ(g.e6m2, word(stage2["ea_code"]));
    EXPECT_EQ(g.reciprocal, word(stage2["ea_rec_bf16"]));
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ((g.micro8 >> i) & 1, stage2["eb_bits"][i].get<int>());
    for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ((g.micro4 >> i) & 1, stage2["ec_bits"][i].get<int>());
    EXPECT_EQ(array(g.reciprocal4), word_list<std::uint32_t>(stage2["scale4_bf16"]));

    // The products, as the quantiser forms them.
    const auto product = [&](std::uint64_t a, std::uint64_t b) {
      return encode(bf16, hif4_product(profile, decode(bf16, a).real, decode(bf16, b).real), {}).bits;
    };
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(product(g.maxima.per8[i], g.reciprocal), word(stage2["eb_tmp"][i]));
    for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(product(g.maxima.per4[i], g.reciprocal), word(stage2["ec_tmp0"][i]));
    for (std::size_t q = 0; q < words.size(); ++q) {
      EXPECT_EQ(product(words[q] & 0x7FFF, g.reciprocal4[q / 4]), word(example["stage3"]["scaled_bf16"][q]) & 0x7FFF);
      EXPECT_EQ(g.codes[q], example["stage3"]["lane_code"][q].get<unsigned>());
    }

    const auto& out = example["packed"];
    EXPECT_EQ(packed(g.codes), out["fp4_bytes_hex"].get<std::string>());
    EXPECT_EQ(g.scale_word, word(out["scale_word_u32"]));
    for (std::size_t q = 0; q < words.size(); ++q) {
      const Value y = dequantize_hif4_lane(g.scale_word, q, g.codes[q]);
      EXPECT_EQ(convert_value(bf16, y.cls, y.real, {}).bits, word(example["dequant"]["bf16"][q]));
    }

    const Hif4Group pto = quantize_hif4_group(bf16, words, profile_named("pto"));
    EXPECT_EQ(packed(pto.codes), example["differs"]["pto"]["fp4_bytes_hex"].get<std::string>());
    std::vector<std::size_t> changed;
    for (std::size_t q = 0; q < 64; ++q) {
      if (pto.codes[q] != g.codes[q]) changed.push_back(q);
    }
    EXPECT_EQ(changed, example["differs"]["pto"]["lanes"].get<std::vector<std::size_t>>());
    const Hif4Group bench = quantize_hif4_group(bf16, words, profile_named("bench"));
    EXPECT_EQ(packed(bench.codes), example["differs"]["bench"]["fp4_bytes_hex"].get<std::string>());
    EXPECT_EQ(bench.scale_word, word(example["differs"]["bench"]["scale_word_u32"]));
  }
}

}  // namespace
}  // namespace bitcube
