#include "bitcube/numeric/exact_code.hpp"

#include <gtest/gtest.h>

namespace bitcube {
namespace {

std::optional<uint64> code_of(std::string_view format, std::string_view text) {
  return exact_code(*find_format(format), parse_real(text));
}

TEST(ExactCode, EveryCodeOfShortFormatsComesBack) {
  for (const Format& f : formats) {
    if (f.lane_bits > 16) continue;
    for (uint64 code = 0; code <= low_mask(f.lane_bits); ++code) {
      const Value value = decode(f, code);
      if (!value.is_finite() || value.real.sticky) continue;
      RealLiteral literal;
      literal.cls = value.cls == Class::zero ? Class::zero : Class::normal;
      literal.real.negative = value.real.negative;
      literal.real.significand.words = {static_cast<uint64>(value.real.significand),
                                        static_cast<uint64>(value.real.significand >> 64)};
      literal.real.exponent = value.real.exponent;
      const auto found = exact_code(f, literal);
      ASSERT_TRUE(found) << f.name << " " << code;
      EXPECT_EQ(*found, code) << f.name;
    }
  }
}

TEST(ExactCode, Specials) {
  EXPECT_EQ(code_of("fp32", "nan"), 0x7FC00000U);
  EXPECT_EQ(code_of("fp32", "-nan"), 0xFFC00000U);
  EXPECT_EQ(code_of("fp32", "snan"), 0x7F800001U);
  EXPECT_EQ(code_of("tf32", "snan"), 0x7F802000U);
  EXPECT_EQ(code_of("fp32", "-inf"), 0xFF800000U);
  EXPECT_EQ(code_of("hif8", "nan"), 0x80U);
  EXPECT_EQ(code_of("hif8", "inf"), 0x6FU);
  EXPECT_EQ(code_of("e8m0", "nan"), 0xFFU);
  EXPECT_EQ(code_of("e4m3", "-0"), 0x80U);
}

TEST(ExactCode, NothingWhereNoCodeHasTheValue) {
  EXPECT_FALSE(code_of("fp64", "0.1"));
  EXPECT_FALSE(code_of("e4m3", "449"));
  EXPECT_FALSE(code_of("e4m3", "inf"));
  EXPECT_FALSE(code_of("e4m3", "snan"));
  EXPECT_FALSE(code_of("e2m1", "nan"));
  EXPECT_FALSE(code_of("hif8", "-0"));
  EXPECT_FALSE(code_of("s8", "-0"));
  EXPECT_FALSE(code_of("s8", "128"));
  EXPECT_FALSE(code_of("u8", "-1"));
  EXPECT_FALSE(code_of("s8", "inf"));
  EXPECT_FALSE(code_of("e8m0", "0"));
  EXPECT_FALSE(code_of("e8m0", "3"));
  EXPECT_FALSE(code_of("e6m2", "-1"));
  EXPECT_FALSE(code_of("rcpe6m2", "0.8"));
  EXPECT_FALSE(code_of("fp32", "one"));
}

}  // namespace
}  // namespace bitcube
