// Literals are exact: compared with GMP rationals rounded by the oracle.
#include "bitcube/numeric/real_text.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "bitcube/numeric/convert.hpp"
#include "oracle/oracle.hpp"

namespace bitcube {
namespace {

uint64 bits_of(std::string_view text, const Format& f, Rounding mode = Rounding::rne) {
  const RealLiteral x = parse_real(text);
  EXPECT_EQ(x.fault, nullptr) << text;
  return convert_value(f, x.cls, x.real, EncodeControl{.rounding = mode}).bits;
}

TEST(RealText, Forms) {
  EXPECT_EQ(bits_of("1.0625", fp32), 0x3F880000U);
  EXPECT_EQ(bits_of("-0x1.8p-3", fp32), 0xBE400000U);
  EXPECT_EQ(bits_of("+.5", fp32), 0x3F000000U);
  EXPECT_EQ(bits_of("5.", fp32), 0x40A00000U);
  EXPECT_EQ(bits_of("1e3", fp32), 0x447A0000U);
  EXPECT_EQ(bits_of("1E+3", fp32), 0x447A0000U);
  EXPECT_EQ(bits_of("0x10", fp32), 0x41800000U);
  EXPECT_EQ(bits_of("0X1P4", fp32), 0x41800000U);
  EXPECT_EQ(bits_of("-0", fp32), 0x80000000U);
  EXPECT_EQ(bits_of("-0.000e99", fp32), 0x80000000U);
  EXPECT_EQ(bits_of("Inf", fp32), 0x7F800000U);
  EXPECT_EQ(bits_of("-infinity", fp32), 0xFF800000U);
  EXPECT_EQ(bits_of("NaN", fp32), 0x7FC00000U);
  EXPECT_EQ(parse_real("snan").cls, Class::signaling_nan);
}

TEST(RealText, Faults) {
  for (const char* text : {"", "-", "+-1", ".", "e5", "1e", "1e+", "1.2.3", "0x", "0xg", "1p3", "0x1e3p", "one", "1 ",
                           " 1", "1e5x", "--1", "infinit", "0x.p1"}) {
    EXPECT_NE(parse_real(text).fault, nullptr) << text;
  }
  EXPECT_NE(parse_real(std::string(1001, '7')).fault, nullptr);
  EXPECT_EQ(parse_real(std::string(1000, '7')).fault, nullptr);
  EXPECT_EQ(parse_real("1" + std::string(5000, '0')).fault, nullptr);
}

// A tie of E4M3 (1.0625 between 1 and 1.125), and one unit in the 60th decimal beside it.
TEST(RealText, SixtyDecimalsDecideATie) {
  const std::string tie = "1.0625" + std::string(55, '0');
  EXPECT_EQ(bits_of(tie + "0", e4m3), 0x38U);
  EXPECT_EQ(bits_of(tie + "1", e4m3), 0x39U);
  EXPECT_EQ(bits_of("1.06249" + std::string(55, '9'), e4m3, Rounding::rna), 0x38U);
}

TEST(RealText, BeyondEveryFormat) {
  EXPECT_EQ(bits_of("1e5000", fp64), 0x7FF0000000000000U);
  EXPECT_EQ(bits_of("1e-5000", fp64, Rounding::rtp), 1U);
  EXPECT_EQ(bits_of("0x1p-99999999999", fp64, Rounding::rtp), 1U);
  EXPECT_EQ(bits_of("1e999999999999", fp64), 0x7FF0000000000000U);
  // Wrapped to the low bits, an integer is exact however large it is.
  EXPECT_EQ(bits_of("300000000000000000000000000000000001", format_of(DataType::s8)), 0x01U);
  EXPECT_EQ(bits_of("-1e400", format_of(DataType::u64)), 0U);
}

TEST(RealText, RandomDecimalsAgainstRationals) {
  std::mt19937_64 random(42);
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  for (int i = 0; i < 20000; ++i) {
    const int digits = pick(1, i % 8 == 0 ? 300 : 40);
    std::string number;
    for (int d = 0; d < digits; ++d) number.push_back(static_cast<char>('0' + random() % 10));
    const int exponent = pick(-60, 40);
    const bool negative = random() % 2 == 0;
    const int point = pick(0, digits);
    std::string text = (negative ? "-" : "") + number.substr(0, static_cast<std::size_t>(point)) + "." +
                       number.substr(static_cast<std::size_t>(point)) + "e" + std::to_string(exponent);

    mpz_class numerator(number, 10);
    mpz_class denominator = 1;
    const int power = exponent - (digits - point);
    mpz_class ten;
    mpz_ui_pow_ui(ten.get_mpz_t(), 10, static_cast<unsigned long>(std::abs(power)));
    (power < 0 ? denominator : numerator) *= ten;
    if (numerator == 0) continue;
    const auto exact = bitcube_oracle::Exact::fraction(negative ? mpz_class(-numerator) : numerator, denominator, 0);
    const RealLiteral x = parse_real(text);
    ASSERT_EQ(x.fault, nullptr) << text;
    for (const DataType t : {DataType::fp64, DataType::fp32, DataType::fp16, DataType::e4m3, DataType::hif8,
                             DataType::s64, DataType::u8}) {
      const auto expected = bitcube_oracle::encode_all(exact, static_cast<int>(t), bitcube_oracle::pto);
      for (const RoundingInfo& r : roundings) {
        const Encoded e = encode(format_of(t), x.real, EncodeControl{.rounding = r.mode});
        const auto& want = expected(static_cast<int>(r.mode), 0);
        ASSERT_EQ(e.bits, want.bits & low_mask(format_of(t).lane_bits)) << text << " " << format_of(t).name << r.name;
        ASSERT_EQ(static_cast<unsigned>(e.flags), want.flags) << text << " " << format_of(t).name << r.name;
      }
    }
  }
}

static_assert(parse_real("0x1.8p1").real.significand == WideUint<128>{0x18});

}  // namespace
}  // namespace bitcube
