#include "bitcube/quantize/mx.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

#include <rapidcheck/gtest.h>  // needs gtest before it

#include "support/row.hpp"

namespace bitcube {
namespace {

using namespace test;
using Words = std::vector<std::uint64_t>;

const Format& format_named(std::string_view name) {
  return *find_format(name);
}
constexpr DataType kElements[] = {DataType::e4m3, DataType::e5m2,   DataType::e3m2,
                                  DataType::e2m3, DataType::e2m1x2, DataType::e1m2x2};

/// Exponent of the scale of a group whose largest magnitude this is.
int scale_exponent(const Format& element, std::uint64_t amax, ScaleRounding rule) {
  return quantize_mx_group(element, fp32, Words{amax}, rule).scale - 127;
}

constexpr std::uint64_t kOne = 0x3F800000;
static_assert(quantize_mx_group(e4m3, fp32, std::span(&kOne, 1), ScaleRounding::floor).scale == 0x77);
static_assert(quantize_nvfp4_group(fp32, std::span(&kOne, 1)).codes[0] == 7);

TEST(MxTables, NamesAndElements) {
  EXPECT_EQ(scale_rules[0].name, "floor");
  EXPECT_EQ(find_scale_rule("RCEIL"), &scale_rules[2]);
  EXPECT_EQ(find_scale_rule("round"), nullptr);
  int elements = 0;
  for (const Format& f : formats) elements += is_mx_element(f) ? 1 : 0;
  EXPECT_EQ(elements, 6);
}

// ---- The table of profiles 2: scale / element code of x, the largest magnitude of its group ---------------

TEST(MxGroup, WorkedTable) {
  struct Case {
    const char* element;
    std::uint64_t x;
    const char* outcome;  // floor, ceil, rceil, even
  };
  constexpr Case kCases[] = {
      {"E2M1", 0x40C0, "7F/7 80/5 7F/7 7F/7"},     {"E2M1", 0x40D0, "7F/7 80/5 80/5 7F/7"},
      {"E2M1", 0xC0F0, "7F/F 80/E 80/E 80/E"},     {"E4M3", 0x43E0, "7F/7E 80/76 7F/7E 7F/7E"},
      {"E4M3", 0x43F0, "7F/7E 80/77 80/77 7F/7E"}, {"E4M3", 0x43F8, "7F/7E 80/78 80/78 80/78"},
      {"E4M3", 0x3F80, "77/78 77/78 77/78 77/78"}, {"E5M2", 0x47E0, "80/7B 81/77 80/7B 80/7B"},
      {"E3M2", 0x41F0, "7F/1F 80/1C 80/1C 80/1C"}, {"E2M3", 0x40F0, "7F/1F 80/17 7F/1F 7F/1F"},
      {"E1M2", 0x3FF0, "7F/7 80/4 80/4 80/4"},     {"E2M1", 0x0040, "00/2 00/2 00/2 00/2"},
      {"E4M3", 0x8000, "00/80 00/80 00/80 00/80"}, {"E5M2", 0x7F80, "FE/7B FE/7B FE/7B FE/7B"},
      {"E2M1", 0x7FC0, "FF/0 FF/0 FF/0 FF/0"},
  };
  for (const Case& c : kCases) {
    const Format& element = format_named(c.element);
    std::string outcome;
    for (const ScaleRule& rule : scale_rules) {
      const MxGroup g = quantize_mx_group(element, bf16, Words{c.x}, rule.rounding);
      outcome += fmt::format("{}{:02X}/{:0{}X}", outcome.empty() ? "" : " ", g.scale, g.codes[0],
                             element.is_packed() || g.scale == 0xFF ? 1 : 2);
    }
    EXPECT_EQ(outcome, c.outcome) << c.element << " " << c.x;
  }
}

TEST(MxGroup, ScaleClampsAtBothEnds) {
  EXPECT_EQ(scale_exponent(e4m3, 0x00000001, ScaleRounding::ceil), -127);  // 2^-149
  EXPECT_EQ(scale_exponent(e2m1, 0x7F7FFFFF, ScaleRounding::floor), 125);
  // FP64 goes beyond E8M0, so the upper clamp is reached, and the lanes saturate.
  const MxGroup huge =
      quantize_mx_group(e2m1, fp64, Words{0xFFE0000000000000, 0x3FF0000000000000}, ScaleRounding::even);
  EXPECT_EQ(huge.scale, 0xFE);
  EXPECT_EQ(huge.codes[0], 0xF);
  EXPECT_EQ(huge.codes[1], 0);
  const MxGroup tiny = quantize_mx_group(e2m1, fp64, Words{0x0000000000000001}, ScaleRounding::rceil);
  EXPECT_EQ(tiny.scale, 0x00);
  EXPECT_EQ(tiny.codes[0], 0);
}

TEST(MxGroup, EvenNormalisesSubnormalMaxima) {
  // FP32 subnormal 0x7.8p-149 = 1.875 * 2^-147: for E2M1 it rounds up to 2^-146.
  const Real subnormal{.significand = 15, .exponent = -150};
  EXPECT_EQ(mx_scale_exponent(e2m1, subnormal, ScaleRounding::even), -146 - 2);
  EXPECT_EQ(mx_scale_exponent(e2m1, subnormal, ScaleRounding::floor), -147 - 2);
  // 1.75 is a tie of E2M1's significands 1.5 and 2: to even, which is 2. 1.25 ties down.
  EXPECT_EQ(mx_scale_exponent(e2m1, {.significand = 7, .exponent = -2}, ScaleRounding::even), 1 - 2);
  EXPECT_EQ(mx_scale_exponent(e2m1, {.significand = 5, .exponent = -2}, ScaleRounding::even), 0 - 2);
  EXPECT_EQ(mx_scale_exponent(e2m1, {.significand = 27, .exponent = -4}, ScaleRounding::even), 0 - 2);
}

TEST(MxGroup, NanAndInfinityAtEveryPosition) {
  for (const DataType type : kElements) {
    const Format& element = format_of(type);
    for (const ScaleRule& rule : scale_rules) {
      for (std::size_t at = 0; at < 32; ++at) {
        Words words(32, 0xBF800000);
        words[(at + 5) % 32] = 0xFF800000;
        words[at] = at % 2 == 0 ? 0x7F800001 : 0xFFC00000;
        const MxGroup nan = quantize_mx_group(element, fp32, words, rule.rounding);
        ASSERT_EQ(nan.scale, 0xFF);
        ASSERT_EQ(nan.codes, (std::array<std::uint8_t, 32>{}));

        words[at] = 0x3F800000;
        const MxGroup infinite = quantize_mx_group(element, fp32, words, rule.rounding);
        ASSERT_EQ(infinite.scale, 0xFE);
        for (std::size_t i = 0; i < 32; ++i) {
          const bool is_infinite = i == (at + 5) % 32;
          const std::uint64_t magnitude = is_infinite ? element.max_finite : 0;
          ASSERT_EQ(infinite.codes[i], with_sign(element, magnitude, i != at)) << element.name << " lane " << i;
        }
      }
    }
  }
}

TEST(MxGroup, InvalidEncodingsCountAsNan) {
  EXPECT_EQ(quantize_mx_group(e4m3, format_named("TF32"), Words{kOne, 0x3F800001}, ScaleRounding::floor).scale, 0xFF);
  EXPECT_EQ(quantize_mx_group(e4m3, format_named("TF32"), Words{kOne, 0x3F802000}, ScaleRounding::floor).scale, 0x77);
}

TEST(MxGroup, EverySourceIsUsedExactly) {
  // 1 + 2^-52 is above the tie-free power of two only in FP64.
  EXPECT_EQ(quantize_mx_group(e2m1, fp64, Words{0x3FF0000000000001}, ScaleRounding::ceil).scale, 127 - 1);
  EXPECT_EQ(quantize_mx_group(e2m1, fp64, Words{0x3FF0000000000000}, ScaleRounding::ceil).scale, 127 - 2);
  // HiF8 codes are not ordered by value: 7E is 2^-15, 01 is 2^-22, 08 is 1.
  const MxGroup g = quantize_mx_group(e4m3, format_named("HiF8"), Words{0x7E, 0x01, 0x08}, ScaleRounding::floor);
  EXPECT_EQ(g.scale, 0x77);
  EXPECT_EQ(g.codes[2], 0x78);
}

TEST(MxGroup, RoundingOfElements) {
  // The group holds 4 (scale 1 for E2M1), so the other lanes are values of E2M1 as they are.
  const Words words{0x40800000, 0x3FE00000, 0xBFE00000, 0x3E800000, 0xBE800000};  // 4, +-1.75, +-0.25
  struct Case {
    Rounding rounding;
    std::array<std::uint8_t, 5> codes;
  };
  const Case cases[] = {{Rounding::rne, {6, 4, 12, 0, 8}}, {Rounding::rtz, {6, 3, 11, 0, 8}},
                        {Rounding::rtm, {6, 3, 12, 0, 9}}, {Rounding::rtp, {6, 4, 11, 1, 8}},
                        {Rounding::rna, {6, 4, 12, 1, 9}}, {Rounding::rto, {6, 3, 11, 1, 9}},
                        {Rounding::rhb, {6, 4, 11, 1, 8}}};
  for (const Case& c : cases) {
    const MxGroup g = quantize_mx_group(e2m1, fp32, words, ScaleRounding::floor, c.rounding);
    EXPECT_EQ(g.scale, 0x7F);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(g.codes[i], c.codes[i]) << name_of(c.rounding) << " lane " << i;
  }
}

// ---- Properties -------------------------------------------------------------------------------------------

rc::Gen<Words> groups() {
  return rc::gen::nonEmpty(
      rc::gen::resize(32, rc::gen::container<Words>(rc::gen::inRange<std::uint64_t>(0, 1ULL << 32))));
}
std::span<const std::uint64_t> up_to(const Words& words, std::size_t count) {
  return {words.data(), std::min(words.size(), count)};
}

RC_GTEST_PROP(MxGroup, SignsAreKept, ()) {
  const Words words = *groups();
  const Format& element = format_of(kElements[*rc::gen::inRange(0, 6)]);
  const Rounding rounding = roundings[*rc::gen::inRange<std::size_t>(0, 7)].mode;
  const MxGroup g = quantize_mx_group(element, fp32, up_to(words, 32), ScaleRounding::floor, rounding);
  if (g.scale == 0xFF) return;
  for (std::size_t i = 0; i < up_to(words, 32).size(); ++i) {
    RC_ASSERT(is_negative(element, g.codes[i]) == is_negative(fp32, words[i]));
  }
}

RC_GTEST_PROP(MxGroup, RulesAreOrdered, ()) {
  // floor <= even, rceil <= ceil <= floor + 1; nothing saturates under rceil.
  const std::uint64_t amax = *rc::gen::inRange<std::uint64_t>(0x10000000, 0x7F800000);
  const Format& element = format_of(kElements[*rc::gen::inRange(0, 6)]);
  const int floor = scale_exponent(element, amax, ScaleRounding::floor);
  const int ceil = scale_exponent(element, amax, ScaleRounding::ceil);
  const int rceil = scale_exponent(element, amax, ScaleRounding::rceil);
  const int even = scale_exponent(element, amax, ScaleRounding::even);
  RC_ASSERT(floor <= even && floor <= rceil && rceil <= ceil && ceil <= floor + 1 && even <= ceil);
  const Real largest = scale_by_power_of_two(decode(element, element.max_finite).real, rceil);
  RC_ASSERT(compare_magnitude(decode(fp32, amax).real, largest) <= 0);
}

RC_GTEST_PROP(MxGroup, ScaleGrowsWithTheLargestMagnitude, ()) {
  const std::uint64_t small = *rc::gen::inRange<std::uint64_t>(1, 0x7F800000);
  const std::uint64_t large = *rc::gen::inRange<std::uint64_t>(small, 0x7F800001);
  const Format& element = format_of(kElements[*rc::gen::inRange(0, 6)]);
  for (const ScaleRule& rule : scale_rules) {
    RC_ASSERT(quantize_mx_group(element, fp32, Words{small}, rule.rounding).scale <=
              quantize_mx_group(element, fp32, Words{large}, rule.rounding).scale);
  }
}

RC_GTEST_PROP(MxGroup, RequantisingIsExact, ()) {
  // Under floor and even, a dequantised group whose largest lane keeps its binade comes back bit for bit: every lane is
  // an element under the same scale. Under rceil the scale may shrink, and then represents the lanes all the same.
  const Words words = *groups();
  const Format& element = format_of(kElements[*rc::gen::inRange(0, 6)]);
  for (const ScaleRule& rule : scale_rules) {
    const MxGroup g = quantize_mx_group(element, fp32, up_to(words, 32), rule.rounding);
    if (g.scale >= 0xFE || g.scale == 0) continue;
    Words values;
    bool exact = true;
    for (std::size_t i = 0; i < up_to(words, 32).size(); ++i) {
      const Value y = dequantize_mx_lane(element, g.scale, g.codes[i]);
      const Encoded encoded = convert_value(fp64, y.cls, y.real, {});
      exact = exact && encoded.flags == Flags::none;
      values.push_back(encoded.bits);
    }
    RC_ASSERT(exact);
    const MxGroup again = quantize_mx_group(element, fp64, values, rule.rounding);
    if (rule.rounding == ScaleRounding::floor) RC_ASSERT(again.scale == g.scale);
    for (std::size_t i = 0; i < values.size(); ++i) {
      // `ceil` has a scale twice as large as the maximum needs, so a second pass may lose a bit there.
      if (rule.rounding == ScaleRounding::ceil || again.scale == 0) break;
      const Value y = dequantize_mx_lane(element, again.scale, again.codes[i]);
      RC_ASSERT(convert_value(fp64, y.cls, y.real, {}).bits == values[i]);
    }
  }
}

RC_GTEST_PROP(MxGroup, MissingLanesCountAsPlusZero, ()) {
  const Words words = *groups();
  Words padded(up_to(words, 32).begin(), up_to(words, 32).end());
  padded.resize(32, 0);
  for (const ScaleRule& rule : scale_rules) {
    const MxGroup g = quantize_mx_group(e4m3, fp32, up_to(words, 32), rule.rounding);
    const MxGroup whole = quantize_mx_group(e4m3, fp32, padded, rule.rounding);
    RC_ASSERT(g.scale == whole.scale);
    RC_ASSERT(g.codes == whole.codes);
  }
}

// ---- NVFP4 ------------------------------------------------------------------------------------------------

TEST(Nvfp4Group, ScaleAndLanes) {
  const MxGroup six = quantize_nvfp4_group(bf16, Words{0x40C0, 0xC000, 0x8000});  // 6, -2, -0
  EXPECT_EQ(six.scale, 0x38);                                                     // 1
  EXPECT_EQ(six.codes[0], 7);
  EXPECT_EQ(six.codes[1], 0xC);
  EXPECT_EQ(six.codes[2], 8);
  // 1 / 6 = 0.1666...: the nearest E4M3 values are 0.15625 and 0.171875.
  EXPECT_EQ(quantize_nvfp4_group(bf16, Words{0x3F80}).scale, 0x23);
  EXPECT_EQ(quantize_nvfp4_group(bf16, Words{0x7F7F}).scale, 0x7E);  // saturates
  EXPECT_EQ(quantize_nvfp4_group(bf16, Words{0xFF7F}).codes[0], 0xF);
}

TEST(Nvfp4Group, SpecialGroups) {
  const MxGroup zeros = quantize_nvfp4_group(bf16, Words{0x0000, 0x8000});
  EXPECT_EQ(zeros.scale, 0x00);
  EXPECT_EQ(zeros.codes[0], 0);
  EXPECT_EQ(zeros.codes[1], 8);
  const MxGroup rounds_to_zero = quantize_nvfp4_group(bf16, Words{0x8001, 0x3400});  // 2^-23 / 6 is below 2^-10
  EXPECT_EQ(rounds_to_zero.scale, 0x00);
  EXPECT_EQ(rounds_to_zero.codes[0], 8);
  EXPECT_EQ(rounds_to_zero.codes[1], 0);
  const MxGroup nan = quantize_nvfp4_group(bf16, Words{0x3F80, 0x7F80, 0xFFC0});
  EXPECT_EQ(nan.scale, 0x7F);
  EXPECT_EQ(nan.codes, (std::array<std::uint8_t, 32>{}));
  const MxGroup infinite = quantize_nvfp4_group(bf16, Words{0xFF80, 0x43E0, 0x3F80});  // -Inf, 448, 1
  EXPECT_EQ(infinite.scale, 0x7E);
  EXPECT_EQ(infinite.codes[0], 0xF);
  EXPECT_EQ(infinite.codes[1], 2);
  EXPECT_EQ(infinite.codes[2], 0);
}

TEST(Nvfp4Group, TensorScale) {
  EXPECT_EQ(nvfp4_tensor_scale(decode(fp32, 0x45280000).real), 0x3F800000U);  // 2688
  EXPECT_EQ(nvfp4_tensor_scale(decode(fp32, 0x3F800000).real), 0x39C30C31U);  // RNE(1 / 2688)
  EXPECT_EQ(nvfp4_tensor_scale(Real{}), 0U);
  EXPECT_EQ(nvfp4_tensor_scale(decode(fp64, 0x7FE0000000000000).real), 0x7F7FFFFFU);
  // The tensor's largest group takes the largest scale, 448, and its largest lane 6.
  const MxGroup g = quantize_nvfp4_group(bf16, Words{0x3F80, 0x3F00}, 0x39C30C31);
  EXPECT_EQ(g.scale, 0x7E);
  EXPECT_EQ(g.codes[0], 7);
  EXPECT_EQ(g.codes[1], 5);
  // Without a tensor there is nothing to divide by.
  EXPECT_EQ(quantize_nvfp4_group(bf16, Words{0x3F80}, 0).scale, 0x00);
  EXPECT_EQ(quantize_nvfp4_group(bf16, Words{0xBF80}, 0).codes[0], 8);
  const Value y = dequantize_nvfp4_lane(0x7E, 7, 0x39C30C31);
  EXPECT_EQ(convert_value(bf16, y.cls, y.real, {}).bits, 0x3F80U);
  EXPECT_TRUE(dequantize_nvfp4_lane(0x7F, 7).is_nan());
  EXPECT_EQ(dequantize_nvfp4_lane(0x00, 0xF).cls, Class::zero);
  EXPECT_TRUE(dequantize_nvfp4_lane(0x00, 0xF).real.negative);
}

// ---- Golden vectors ---------------------------------------------------------------------------------------

TEST(MxVectors, Groups) {
  for_each_row("mx_groups.csv", [](const Row& row) {
    const Format& element = row.format("format");
    const Format& source = row.format("input_type");
    const Words words = hex_words(row.text("input"), source.carrier_bits / 4U);
    const MxGroup g =
        row.text("scale_rule") == "nvfp4"
            ? quantize_nvfp4_group(source, words)
            : quantize_mx_group(element, source, words, find_scale_rule(row.text("scale_rule"))->rounding);
    EXPECT_EQ(fmt::format("0x{:02x}", g.scale), row.text("scale"));
    std::string codes;
    for (std::size_t i = 0; i < words.size(); ++i) {
      codes += fmt::format("{:0{}x}", g.codes[i], element.is_packed() ? 1 : 2);
    }
    EXPECT_EQ(codes, row.text("codes"));
  });
}

}  // namespace
}  // namespace bitcube
