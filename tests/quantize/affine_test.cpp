// Affine TQUANT and TDEQUANT: numerics 10.1, 10.2.
#include "bitcube/quantize/affine.hpp"

#include <gtest/gtest.h>

#include "oracle/oracle.hpp"
#include "support/operands.hpp"
#include "support/row.hpp"

namespace bitcube {
namespace {

using test::Row;

TEST(Affine, QuantizeVectors) {
  test::for_each_row("tquant.csv", [](const Row& row) {
    const Format& f = row.format("destination_type");
    const AffineParameters p{row.word("scale"), row.word("zero_point")};
    EXPECT_EQ(affine_fault(f, p), "");
    test::expect_encoded(affine_quantize(f, row.word("value"), p, row.rounding("rounding"), row.truth("sat")), f,
                         row.word("result"), row.flags("flags"));
  });
}

TEST(Affine, DequantizeVectors) {
  test::for_each_row("tdequant.csv", [](const Row& row) {
    const Format& f = row.format("source_type");
    const AffineParameters p{row.word("scale"), row.word("zero_point")};
    EXPECT_EQ(affine_fault(f, p), "");
    test::expect_encoded(affine_dequantize(f, row.word("value"), p, row.rounding("rounding"), test::asl_profile()),
                         fp32, row.word("result"), row.flags("flags"));
  });
}

TEST(Affine, WorkedRows) {
  for (const auto& row : bitcube_rows::kTquant) {
    const Format& f = *find_format(row.type);
    const AffineParameters p{row.multiplier, static_cast<uint64>(static_cast<int64>(row.zero_point))};
    test::expect_encoded(affine_quantize(f, row.x, p, static_cast<Rounding>(row.rounding), row.sat != 0), f, row.out);
  }
  for (const auto& row : bitcube_rows::kTdequant) {
    const Format& f = *find_format(row.type);
    const AffineParameters p{row.multiplier, static_cast<uint64>(static_cast<int64>(row.zero_point))};
    test::expect_encoded(
        affine_dequantize(f, static_cast<uint64>(static_cast<int64>(row.q)), p, static_cast<Rounding>(row.rounding)),
        fp32, row.out);
  }
}

TEST(Affine, IllegalParameters) {
  const Format& s8 = *find_format("S8");
  const Format& u8 = *find_format("U8");
  for (const uint64 multiplier : {0ULL, 0x80000000ULL, 0xBF800000ULL, 0x7F800000ULL, 0x7FC00000ULL, 0x13F800000ULL}) {
    EXPECT_NE(affine_fault(s8, {multiplier, 0}), "") << multiplier;
  }
  EXPECT_EQ(affine_fault(s8, {1, 0}), "");  // subnormal
  EXPECT_NE(affine_fault(s8, {0x3F800000, 0x80}), "");
  EXPECT_NE(affine_fault(s8, {0x3F800000, 0xFF}), "");
  EXPECT_EQ(affine_fault(s8, {0x3F800000, ~uint64{0}}), "");
  EXPECT_EQ(affine_fault(u8, {0x3F800000, 0xFF}), "");
  EXPECT_NE(affine_fault(u8, {0x3F800000, 0x100}), "");
}

TEST(Affine, RandomAgainstTheOracle) {
  test::Operands operands(23);
  for (int i = 0; i < 40000; ++i) {
    const Format& f = *find_format(operands.chance(2) ? "S8" : "U8");
    const int type = static_cast<int>(f.type);
    const uint64 x = operands.word(fp32);
    AffineParameters p;
    do {
      p.multiplier = operands.word(fp32) & 0x7FFFFFFF;
    } while (!bitcube_oracle::multiplier_legal(p.multiplier));
    p.zero_point =
        f.kind == Kind::signed_integer ? static_cast<uint64>(sign_extend(operands.raw(), 8)) : operands.raw() & 0xFF;
    for (const RoundingInfo& r : roundings) {
      const auto mode = static_cast<int>(r.mode);
      for (const bool sat : {false, true}) {
        const auto want = bitcube_oracle::tquant(type, x, p.multiplier, p.zero_point, mode, sat ? 1 : 0);
        const Encoded got = affine_quantize(f, x, p, r.mode, sat);
        ASSERT_EQ(got.bits, want.bits & 0xFF) << std::hex << x << " " << p.multiplier << " " << p.zero_point << r.name;
        ASSERT_EQ(static_cast<unsigned>(got.flags), want.flags) << std::hex << x << " " << p.multiplier << r.name;
      }
      const auto want = bitcube_oracle::tdequant(type, x & 0xFF, p.multiplier, p.zero_point, mode, bitcube_oracle::pto);
      const Encoded got = affine_dequantize(f, x & 0xFF, p, r.mode);
      ASSERT_EQ(got.bits, want.bits & 0xFFFFFFFF);
      ASSERT_EQ(static_cast<unsigned>(got.flags), want.flags);
    }
  }
}

}  // namespace
}  // namespace bitcube
