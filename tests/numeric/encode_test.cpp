// One rounding into every destination: numerics 2, 6.
#include "bitcube/numeric/encode.hpp"

#include <gtest/gtest.h>

#include "support/row.hpp"

namespace bitcube {
namespace {

using test::Row;

EncodeControl control(bitcube_rows::Mode mode, int sat, const ConversionProfile& profile) {
  return {static_cast<Rounding>(mode), sat != 0, &profile};
}

TEST(Encode, VectorsOfTheExecutableSpecification) {
  test::for_each_row("encoders.csv", [](const Row& row) {
    const Format& f = row.format("data_type");
    std::string_view digits = row.text("significand");
    WideReal<16> x;  // significands have up to 479 bits
    x.negative = digits.starts_with('-');
    if (x.negative) digits.remove_prefix(1);
    for (const char c : digits) x.significand.multiply_add(10, static_cast<uint64>(c - '0'));
    x.exponent = row.integer("exponent");
    const EncodeControl how{row.rounding("rounding"), row.truth("sat"), &test::asl_profile()};
    test::expect_encoded(encode(f, x, how), f, row.word("result"), row.flags("flags"));
  });
}

// The tables of numerics 6.1, 6.3 and 6.4.
TEST(Encode, WorkedRows) {
  for (const auto& row : bitcube_rows::kEncode) {
    SCOPED_TRACE(std::string(row.section) + " " + row.type + " " + row.label);
    const Format& f = *find_format(row.type);
    const ConversionProfile& profile = *find_conversion_profile(row.profile);
    bitcube_rows::for_each_column(row, [&](bitcube_rows::Mode mode, int sat, const bitcube_rows::Out& out) {
      SCOPED_TRACE(name_of(static_cast<Rounding>(mode)));
      test::expect_encoded(encode(f, test::real_of(row.x), control(mode, sat, profile)), f, out);
    });
  }
}

// The table of numerics 2.2.
TEST(Encode, IntegerRounding) {
  const Format& s32 = *find_format("S32");
  for (const auto& row : bitcube_rows::kIntegerRounding) {
    for (std::size_t i = 0; i < 7; ++i) {
      const EncodeControl how = control(bitcube_rows::kColumns[i], 0, pto_profile);
      EXPECT_EQ(sign_extend(encode(s32, test::real_of(row.x), how).bits, 32), row.value[i]);
    }
  }
}

// The three readings of tininess, numerics 6.2.
TEST(Encode, Tininess) {
  for (const auto& row : bitcube_rows::kTininess) {
    const Real x = decode(fp32, row.source).real;
    const auto flags = [&](Tininess reading) {
      ConversionProfile profile = pto_profile;
      profile.tininess = reading;
      const Encoded e = encode(fp16, x, control(row.rounding, 0, profile));
      EXPECT_EQ(e.bits, row.result);
      return static_cast<std::uint32_t>(e.flags);
    };
    EXPECT_EQ(flags(Tininess::after), row.after);
    EXPECT_EQ(flags(Tininess::before), row.pre);
    EXPECT_EQ(flags(Tininess::result), row.delivered);
  }
}

// The closed form of numerics 6.2 for `after`: not tiny iff t reaches the bound.
TEST(Encode, TininessAfterAtItsBounds) {
  struct Case {
    const char* format;
    int emin;
    int precision;
  };
  for (const Case& c : {Case{"FP16", -14, 11}, Case{"BF16", -126, 8}, Case{"E4M3", -6, 4}, Case{"E5M2", -14, 3},
                        Case{"E3M2", -2, 3}, Case{"E2M3", 0, 4}, Case{"HiF8", -15, 2}}) {
    const Format& f = *find_format(c.format);
    // t = 1 - d * 2^-(p+4) for d = 1..32, both signs, all modes.
    for (int d = 1; d <= 32; ++d) {
      for (const bool negative : {false, true}) {
        const int scale = c.precision + 4;
        const Real x{negative, (uint128{1} << scale) - static_cast<unsigned>(d), c.emin - scale};
        for (const RoundingInfo& r : roundings) {
          const Encoded e = encode(f, x, EncodeControl{r.mode, false, &pto_profile});
          if (!has(e.flags, Flags::inexact)) continue;
          const bool at_half = d <= 8;     // t >= 1 - 2^-(p+1)
          const bool above_half = d < 8;   // t >  1 - 2^-(p+1)
          const bool above_full = d < 16;  // t >  1 - 2^-p
          bool not_tiny = false;
          switch (r.mode) {
            case Rounding::rne:
            case Rounding::rna:
              not_tiny = at_half;
              break;
            case Rounding::rhb:
              not_tiny = negative ? above_half : at_half;
              break;
            case Rounding::rtp:
              not_tiny = !negative && above_full;
              break;
            case Rounding::rtm:
              not_tiny = negative && above_full;
              break;
            case Rounding::rtz:
            case Rounding::rto:
              break;
          }
          EXPECT_EQ(has(e.flags, Flags::underflow), !not_tiny)
              << c.format << " d=" << d << " " << negative << " " << r.name;
        }
      }
    }
  }
}

// Profile ocp tests FP8 overflow after rounding, as if the exponent range went on (profiles 4).
TEST(Encode, OcpOverflow) {
  const ConversionProfile& ocp = *find_conversion_profile("ocp");
  const auto e = [&](const Format& f, int value, Rounding mode) {
    return encode(f, real_from_signed(value), EncodeControl{mode, false, &ocp}).bits;
  };
  EXPECT_EQ(e(e4m3, 464, Rounding::rne), 0x7EU);
  EXPECT_EQ(e(e4m3, 465, Rounding::rne), 0x7FU);
  EXPECT_EQ(e(e4m3, 479, Rounding::rtz), 0x7EU);
  EXPECT_EQ(e(e4m3, 480, Rounding::rtz), 0x7FU);
  EXPECT_EQ(e(e4m3, 449, Rounding::rtp), 0x7FU);
  const Format& hif8 = *find_format("HiF8");
  EXPECT_EQ(e(hif8, 40960, Rounding::rne), 0x6EU);
  EXPECT_EQ(e(hif8, 40961, Rounding::rne), 0x6FU);
}

}  // namespace
}  // namespace bitcube
