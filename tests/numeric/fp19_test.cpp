// FP19 and the parameter carriers: numerics 4.
#include "bitcube/numeric/fp19.hpp"

#include <gtest/gtest.h>

#include "bitcube/cube/prequant.hpp"
#include "bitcube/numeric/carrier.hpp"
#include "support/row.hpp"

namespace bitcube {
namespace {

using test::Row;

TEST(Fp19, ClassesAndLegality) {
  test::for_each_row("fp19_class.csv", [](const Row& row) {
    const uint64 raw = row.word("fp19");
    const Value v = decode(fp19, raw);
    std::string name(name_of(v.cls));
    if (!v.is_nan()) name.insert(0, v.real.negative ? "Negative" : "Positive");
    EXPECT_EQ(name, row.text("class"));
    EXPECT_EQ(legal_as_scale(raw), row.truth("scale_legal"));
    EXPECT_EQ(legal_as_activation(raw), row.truth("activation_legal"));
  });
}

TEST(Fp19, EveryEncodingIsTheFp32WithThirteenZeroBits) {
  for (uint64 raw = 0; raw < (uint64{1} << 19); ++raw) {
    const Value a = decode(fp19, raw);
    const Value b = decode(fp32, raw << 13);
    ASSERT_EQ(a.cls, b.cls) << raw;
    ASSERT_EQ(a.real.negative, b.real.negative) << raw;
    if (!a.is_finite()) continue;
    ASSERT_EQ(compare_magnitude(a.real, b.real), 0) << raw;
    const bool positive_normal = a.cls == Class::normal && !a.real.negative;
    ASSERT_EQ(legal_as_scale(raw), positive_normal) << raw;
    ASSERT_EQ(legal_as_activation(raw), positive_normal || raw == 0) << raw;
  }
}

TEST(Fp19, NarrowingHelper) {
  test::for_each_row("fp32_to_fp19.csv",
                     [](const Row& row) { EXPECT_EQ(fp32_to_fp19(row.word("fp32")), row.word("fp19")); });
}

TEST(Carrier, QuantisationVectors) {
  test::for_each_row("fpatr_quant_param_legal.csv", [](const Row& row) {
    const PreQuantMode* mode = find_prequant(static_cast<unsigned>(row.word("pre_quant_mode")));
    const bool legal =
        mode != nullptr && quant_carrier_fault(row.word("quant_param"), mode->carrier, mode->offset_bits).empty();
    EXPECT_EQ(legal, row.truth("legal"));
  });
}

TEST(Carrier, ActivationVectors) {
  test::for_each_row("fpatr_relu_param_legal.csv", [](const Row& row) {
    EXPECT_EQ(activation_carrier_fault(row.word("relu_param")).empty(), row.truth("legal"));
  });
}

// The table of carriers in numerics 4.2.
TEST(Carrier, WorkedWords) {
  EXPECT_EQ(pack_scale_carrier(0x1FC00, 0, 0), 0x000000003F800000U);
  EXPECT_EQ(pack_scale_carrier(0x20000, 0, 0), 0x0000000040000000U);
  EXPECT_EQ(pack_scale_carrier(0x1FC00, -1, 9), 0x00003FE03F800000U);
  EXPECT_EQ(pack_scale_carrier(0x1FC00, 5, 9), 0x000000A03F800000U);
  EXPECT_EQ(pack_scale_carrier(0x1F800, -16, 5), 0x000002003F000000U);
  EXPECT_EQ(pack_scale_carrier(0x1FC00, 1, 5), 0x000000203F800000U);
  EXPECT_EQ(pack_scale_carrier(0x20000, -65536, 17), 0x0020000040000000U);
  EXPECT_EQ(pack_scale_carrier(0x1F800, -30000, 17), 0x00315A003F000000U);
  EXPECT_EQ(pack_shift_carrier(16), 0x0000000F00000000U);
  EXPECT_EQ(pack_shift_carrier(1), 0U);
  EXPECT_EQ(unpack_quant_carrier(0x00315A003F000000, 17), (QuantCarrier{0x1F800, 1, -30000}));
  EXPECT_EQ(unpack_quant_carrier(0x00003FE03F800000, 9).offset, -1);
}

TEST(Carrier, FaultsSayWhy) {
  const auto scale = [](uint64 word) { return quant_carrier_fault(word, CarrierKind::scale, 9); };
  EXPECT_TRUE(scale(0x3F800000).empty());
  EXPECT_NE(scale(0x3F800001).find("unused"), std::string_view::npos);
  EXPECT_NE(scale(uint64{1} << 46 | 0x3F800000).find("unused"), std::string_view::npos);
  EXPECT_NE(scale(uint64{1} << 32 | 0x3F800000).find("unused"), std::string_view::npos);
  EXPECT_NE(scale(0).find("zero"), std::string_view::npos);
  EXPECT_NE(scale(0x00002000).find("subnormal"), std::string_view::npos);
  EXPECT_NE(scale(0xBF800000).find("negative"), std::string_view::npos);
  EXPECT_NE(scale(0x7F800000).find("infinite"), std::string_view::npos);
  EXPECT_NE(scale(0x7FC00000).find("NaN"), std::string_view::npos);
  EXPECT_NE(quant_carrier_fault(0x1000000000, CarrierKind::shift, 0).find("unused"), std::string_view::npos);
  EXPECT_FALSE(quant_carrier_fault(0, CarrierKind::none, 0).empty());
  EXPECT_TRUE(activation_carrier_fault(0).empty());
  EXPECT_FALSE(activation_carrier_fault(0x40000).empty());  // -0
  EXPECT_FALSE(activation_carrier_fault(uint64{1} << 19 | 0x1FC00).empty());
}

}  // namespace
}  // namespace bitcube
