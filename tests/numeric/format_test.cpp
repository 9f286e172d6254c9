// The table of Tile data types: numerics 1.1, 1.2.
#include "bitcube/numeric/format.hpp"

#include <gtest/gtest.h>

#include "bitcube/numeric/decode.hpp"
#include "support/row.hpp"

namespace bitcube {
namespace {

using test::Row;

TEST(Format, DescriptorsMatchTheExecutableSpecification) {
  test::for_each_row("format_descriptors.csv", [](const Row& row) {
    const Format* f = find_format(row.text("data_type"));
    ASSERT_NE(f, nullptr);
    EXPECT_EQ(static_cast<uint64>(f->type), row.word("encoding"));
    EXPECT_EQ(f->lane_bits, row.word("element_bits"));
    EXPECT_EQ(!f->is_integer(), row.truth("is_floating"));
    if (f->is_integer()) return;
    EXPECT_EQ(f->carrier_bits, row.word("carrier_bits"));
    EXPECT_EQ(f->value_bits, row.word("lane_bits"));
    EXPECT_EQ(f->lanes_per_carrier, row.word("lanes_per_carrier"));
    EXPECT_EQ(f->sign_bits, row.word("sign_bits"));
    if (f->sign_bits != 0) {
      EXPECT_EQ(f->sign_bit(), row.integer("sign_bit"));
    }
    EXPECT_EQ(f->exponent_bits_min, row.word("exponent_bits_min"));
    EXPECT_EQ(f->exponent_bits, row.word("exponent_bits_max"));
    EXPECT_EQ(f->fraction_bits_min, row.word("fraction_bits_min"));
    EXPECT_EQ(f->fraction_bits, row.word("fraction_bits_max"));
    if (row.truth("exponent_bias_available")) {
      EXPECT_EQ(f->bias, row.integer("exponent_bias"));
    }
    EXPECT_EQ(f->low_zero_bits, row.word("required_low_zero_bits"));
    EXPECT_EQ(f->lane_bits - f->value_bits, row.integer("required_high_zero_bits"));
    EXPECT_EQ(f->has_zero, row.truth("has_zero"));
    EXPECT_EQ(f->has_signed_zero, row.truth("has_signed_zero"));
    // Release 0.58.3 calls the E2M1 codes 1 and 9 normal; numerics 1.2 calls them subnormal.
    const bool subnormal = f->type != DataType::e2m1x2 && f->subnormal_class;
    EXPECT_EQ(subnormal, row.truth("has_subnormal"));
    EXPECT_EQ(f->has_infinity, row.truth("has_infinity"));
    EXPECT_EQ(f->nan != NanCodes::none, row.truth("has_quiet_nan"));
    EXPECT_EQ(f->nan == NanCodes::ieee, row.truth("has_signaling_nan"));
    if (row.truth("canonical_nan_available")) {
      EXPECT_EQ(f->canonical_nan, row.word("canonical_nan"));
    }
  });
}

TEST(Format, ReservedCodesHaveNoFormat) {
  for (unsigned code = 0; code < 64; ++code) {
    const bool reserved = code == 22 || code == 23 || code >= 29;
    EXPECT_EQ(find_format(code) == nullptr, reserved) << code;
  }
}

TEST(Format, NamesAreFoundInAnyCaseAndWithoutX2) {
  EXPECT_EQ(find_format("hif8"), &format_of(DataType::hif8));
  EXPECT_EQ(find_format("e2m1"), &format_of(DataType::e2m1x2));
  EXPECT_EQ(find_format("HIF4"), &format_of(DataType::hif4x2));
  EXPECT_EQ(find_format("S4"), &format_of(DataType::s4x2));
  EXPECT_EQ(find_format("u4x2"), &format_of(DataType::u4x2));
  EXPECT_EQ(find_format("FP8"), nullptr);
  EXPECT_EQ(find_format(""), nullptr);
}

struct Boundary {
  const char* format;
  uint64 min_subnormal, max_subnormal, min_normal, max_finite;  // none: ~0
  int min_exponent;                                             // of the smallest positive value
};
constexpr uint64 none = ~uint64{0};
// Numerics 1.2, as printed there.
constexpr Boundary boundaries[] = {
    {"FP64", 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x7FEFFFFFFFFFFFFF, -1074},
    {"FP32", 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, -149},
    {"TF32", 0x2000, 0x007FE000, 0x00800000, 0x7F7FE000, -136},
    {"HF32", 0x1000, 0x007FF000, 0x00800000, 0x7F7FF000, -137},
    {"FP16", 1, 0x03FF, 0x0400, 0x7BFF, -24},
    {"BF16", 1, 0x007F, 0x0080, 0x7F7F, -133},
    {"HiF8", 1, 7, 0x7E, 0x6E, -22},
    {"E4M3", 1, 7, 8, 0x7E, -9},
    {"E5M2", 1, 3, 4, 0x7B, -16},
    {"E3M2", 1, 3, 4, 0x1F, -4},
    {"E2M3", 1, 7, 8, 0x1F, -3},
    {"E2M1", 1, 1, 2, 7, -1},
    {"E1M2", none, none, 1, 7, -2},
    {"HiF4", none, none, 1, 7, -2},
    {"E8M0", none, none, 0, 0xFE, -127},
    {"E6M2", none, none, 0, 0xFE, -48},
};

TEST(Format, BoundaryEncodings) {
  for (const Boundary& b : boundaries) {
    SCOPED_TRACE(b.format);
    const Format& f = *find_format(b.format);
    EXPECT_EQ(f.max_finite, b.max_finite);
    EXPECT_EQ(classify(f, b.min_normal), Class::normal);
    EXPECT_EQ(classify(f, b.max_finite), Class::normal);
    const uint64 smallest = b.min_subnormal == none ? b.min_normal : b.min_subnormal;
    EXPECT_EQ(floor_log2(decode(f, smallest).real), b.min_exponent);
    if (b.min_subnormal == none) continue;
    EXPECT_EQ(classify(f, b.min_subnormal), Class::subnormal);
    EXPECT_EQ(classify(f, b.max_subnormal), Class::subnormal);
  }
}

}  // namespace
}  // namespace bitcube
