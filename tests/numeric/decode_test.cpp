// Classes and exact decompositions: numerics 1.3 to 1.9.
#include "bitcube/numeric/decode.hpp"

#include <gtest/gtest.h>

#include "support/row.hpp"

namespace bitcube {
namespace {

using test::Row;

void check_row(const Row& row) {
  const Format& f = row.format("data_type");
  const uint64 word = row.word("value");
  const Class c = classify(f, word, test::asl_profile());
  std::string name(name_of(c));
  if (c != Class::quiet_nan && c != Class::signaling_nan && c != Class::invalid) {
    name.insert(0, decode(f, word).real.negative ? "Negative" : "Positive");
  }
  EXPECT_EQ(name, row.text("class"));
  const Decomposition d = decompose(f, word);
  EXPECT_EQ(d.available, row.truth("decomp_available"));
  EXPECT_EQ(d.negative, row.truth("negative"));
  EXPECT_EQ(d.significand, row.word("significand"));
  EXPECT_EQ(d.exponent, row.integer("exponent"));
}

TEST(Decode, EightBitFormats) {
  test::for_each_row("formats_8bit_all.csv", check_row);
}
TEST(Decode, Fp16) {
  test::for_each_row("formats_fp16_all.csv", check_row);
}
TEST(Decode, Bf16) {
  test::for_each_row("formats_bf16_all.csv", check_row);
}
TEST(Decode, Int16) {
  test::for_each_row("formats_int16.csv", check_row);
}
TEST(Decode, WideFormats) {
  test::for_each_row("formats_32_64bit.csv", check_row);
}

TEST(Decode, E2m1HalfIsSubnormalUnlessAsl) {
  const Format& e2m1 = *find_format("E2M1");
  EXPECT_EQ(classify(e2m1, 1), Class::subnormal);
  EXPECT_EQ(classify(e2m1, 9), Class::subnormal);
  EXPECT_EQ(classify(e2m1, 1, test::asl_profile()), Class::normal);
}

TEST(Decode, BitsAboveTheLaneAreIgnored) {
  EXPECT_EQ(decompose(*find_format("E2M1"), 0xF3).significand, 3U);
  EXPECT_EQ(decode(*find_format("S4"), 0xABCF).real.negative, true);
  EXPECT_EQ(classify(e4m3, 0xFFFFFF00), Class::zero);
}

// E6M2 and RCPE6M2 are not in the executable specification (numerics 1.8, 1.9).
TEST(Decode, E6m2) {
  const auto expect = [](uint64 code, uint64 significand, int exponent) {
    const Decomposition d = decompose(e6m2, code);
    EXPECT_TRUE(d.available);
    EXPECT_EQ(d.significand, significand);
    EXPECT_EQ(d.exponent, exponent);
  };
  expect(0xC0, 4, -2);
  expect(0x00, 4, -50);
  expect(0xCB, 7, 0);
  expect(0xFE, 6, 13);
  EXPECT_EQ(classify(e6m2, 0xFF), Class::quiet_nan);
  EXPECT_FALSE(decompose(e6m2, 0xFF).available);
  const Format& reciprocal = *find_format("RCPE6M2");
  EXPECT_FALSE(decompose(reciprocal, 0xC0).available);
  EXPECT_EQ(classify(reciprocal, 0xC0), Class::normal);
  EXPECT_EQ(classify(reciprocal, 0xFF), Class::quiet_nan);
}

// The decoder is usable in constant expressions.
static_assert(decompose(format_of(DataType::hif8), 0x6E).exponent == 14);
static_assert(decode(e4m3, 0x7E).real.significand == 14);

}  // namespace
}  // namespace bitcube
