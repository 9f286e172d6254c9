// explain_convert: its last line against convert() over all pairs, its neighbours against the oracle's tables, and its
// steps against the contract's worked examples.
#include "bitcube/explain/convert.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "explain/facts.hpp"
#include "oracle/oracle.hpp"
#include "support/operands.hpp"

namespace bitcube {
namespace {

using test::Cells;
using test::fact;
using test::last_line;
using test::row;
namespace oracle = bitcube_oracle;

Document explained(std::string_view text, const Format& to, const EncodeControl& control = {}) {
  auto document = explain_convert(parse_real(text), text, to, control);
  EXPECT_TRUE(document) << document.error().message;
  return document ? *document : Document{};
}

Document explained(const Format& from, uint64 word, const Format& to, const EncodeControl& control = {}) {
  auto document = explain_convert(from, to, word, control);
  EXPECT_TRUE(document) << document.error().message;
  return document ? *document : Document{};
}

const Format& hif8 = format_of(DataType::hif8);
const Format& s8 = format_of(DataType::s8);

TEST(ExplainConvert, LastResultIsConvertOverAllPairs) {
  std::vector<std::pair<const Format*, const Format*>> pairs;
  for (const Format& from : formats) {
    for (const Format& to : formats) {
      if (conversion_legal(from, to)) pairs.emplace_back(&from, &to);
    }
  }
  test::Operands operands(1);
  for (int i = 0; i < 100'000; ++i) {
    const auto& [from, to] = pairs[operands.below(pairs.size())];
    const EncodeControl control{.rounding = roundings[operands.below(roundings.size())].mode,
                                .saturate = operands.chance(2),
                                .profile = &conversion_profiles[operands.below(conversion_profiles.size())]};
    if (!rounding_legal(*from, *to, control.rounding)) {
      EXPECT_FALSE(explain_convert(*from, *to, 0, control));
      continue;
    }
    const uint64 word = operands.word(*from);
    const auto document = explain_convert(*from, *to, word, control);
    ASSERT_TRUE(document) << document.error().message;
    const Encoded expected = convert(*from, *to, word, control);
    ASSERT_EQ(document->results.back().value, encoding_text(*to, expected)) << document->title;
    if (i % 10 == 0) {
      ASSERT_EQ(test::too_wide(text_of(*document)), "") << document->title;
    }
  }
}

TEST(ExplainConvert, LastResultIsConvertValueOfLiterals) {
  test::Operands operands(2);
  for (int i = 0; i < 5'000; ++i) {
    const Format& to = formats[operands.below(formats.size())];
    if (to.layout == Layout::reciprocal) continue;
    const bool scale = to.type == DataType::e6m2;
    const EncodeControl control{.rounding = scale ? Rounding::rna : roundings[operands.below(roundings.size())].mode,
                                .saturate = operands.chance(2),
                                .profile = &conversion_profiles[operands.below(conversion_profiles.size())]};
    std::string text = operands.chance(2) ? "-" : "";
    text += std::to_string(operands.raw() >> operands.below(64)) + "." +
            std::to_string(operands.raw() >> operands.below(64));
    if (operands.chance(2)) text += "e" + std::to_string(static_cast<int>(operands.below(400)) - 200);
    const RealLiteral literal = parse_real(text);
    const auto document = explain_convert(literal, text, to, control);
    ASSERT_TRUE(document) << document.error().message;
    const Encoded expected = convert_value(to, literal.cls, literal.real, control);
    ASSERT_EQ(document->results.back().value, encoding_text(to, expected)) << document->title;
    ASSERT_EQ(test::too_wide(text_of(*document)), "") << document->title;
  }
}

/// A number of the text as a rational; nothing where it is cut off.
std::optional<mpq_class> rational(const std::string& text) {
  const RealLiteral literal = parse_real(text);
  if (literal.fault != nullptr || literal.real.sticky) return std::nullopt;
  mpz_class significand;
  mpz_import(significand.get_mpz_t(), literal.real.significand.words.size(), -1, sizeof(uint64), 0, 0,
             literal.real.significand.words.data());
  mpq_class value = significand;
  if (literal.real.exponent >= 0) {
    mpq_mul_2exp(value.get_mpq_t(), value.get_mpq_t(), static_cast<unsigned long>(literal.real.exponent));
  } else {
    mpq_div_2exp(value.get_mpq_t(), value.get_mpq_t(), static_cast<unsigned long>(-literal.real.exponent));
  }
  return value;
}

/// A distance of the text, where it may stand as "0.5 - |source|".
std::optional<mpq_class> distance(const std::string& text, const mpq_class& source) {
  const auto end = text.find(" - |source|");
  if (end == std::string::npos) return rational(text);
  const auto neighbour = rational(text.substr(0, end));
  return neighbour ? std::optional<mpq_class>(*neighbour - source) : std::nullopt;
}

// The neighbours are two values of the destination, next to each other around the source, and the distances are those
// of rationals: for each destination of at most 16 bits, against a table of all its values.
TEST(ExplainConvert, NeighboursAreAdjacentAndDistancesExact) {
  test::Operands operands(3);
  std::size_t compared = 0;
  for (const Format& to : formats) {
    if (to.kind != Kind::floating || to.lane_bits > 16 || !conversion_legal(fp32, to)) continue;
    std::map<mpq_class, uint64> values;  // of the magnitudes, each with its code
    for (uint64 code = 0; code <= low_mask(to.value_bits - 1); ++code) {
      const auto value = oracle::value_of(static_cast<int>(to.type), code);
      if (value) values.emplace(value->magnitude, code);
    }
    const mpq_class largest = values.rbegin()->first;
    for (int i = 0; i < 600; ++i) {
      // A value of the destination, moved a little, reaches every binade.
      uint64 word = convert(to, fp32, operands.word(to), {}).bits ^
                    (operands.raw() & low_mask(static_cast<int>(operands.below(24))));
      const auto x = oracle::value_of(oracle::FP32, word);
      if (!x || x->magnitude == 0 || x->magnitude > largest) continue;
      const Document document = explained(fp32, word, to);
      const Cells lower = row(document, "Rounding", "toward zero");
      const Cells upper = row(document, "Rounding", "away from zero");
      const auto above = values.upper_bound(x->magnitude);
      const auto below = std::prev(above);
      if (lower.size() < 2) {
        EXPECT_EQ(below->first, x->magnitude) << document.title;
        EXPECT_EQ(row(document, "Rounding", "equal").at(4), "0");
        continue;
      }
      const uint64 sign = is_negative(fp32, word) ? uint64{1} << to.sign_bit() : 0;
      const auto value = [](const std::string& cell) {
        return rational(cell.starts_with('-') ? cell.substr(1) : cell);
      };
      EXPECT_EQ(value(lower[2]), below->first) << document.title;
      if (below->second != 0) {
        EXPECT_EQ(std::stoull(lower[3], nullptr, 16), below->second | sign) << document.title;
      }
      const auto down = distance(lower[4], x->magnitude);
      const auto up = distance(upper[4], x->magnitude);
      ASSERT_TRUE(down && up) << lower[4] << " " << upper[4];
      EXPECT_EQ(*down, x->magnitude - below->first) << document.title;
      if (above == values.end()) {
        EXPECT_EQ(upper[3], "beyond the format") << document.title;
        continue;
      }
      EXPECT_EQ(value(upper[2]), above->first) << document.title;
      EXPECT_EQ(std::stoull(upper[3], nullptr, 16), above->second | sign) << document.title;
      EXPECT_EQ(*up, above->first - x->magnitude) << document.title;
      const bool tie = *down == *up;
      EXPECT_EQ(fact(document, "Rounding", "position") == "exactly half an ulp is left: a tie", tie) << document.title;
      ++compared;
    }
  }
  EXPECT_GT(compared, 2000U);
}

// numerics 6.3: 464 in E4M3 overflows before rounding; under `ocp` it is the tie of 448 and 480.
TEST(ExplainConvert, E4M3Overflow) {
  const Document pto = explained("464", e4m3);
  EXPECT_EQ(last_line(pto), "result 0x7F = nan, flags OF NX");
  EXPECT_EQ(fact(pto, "Range", "largest"), "448 | too small by 16");
  EXPECT_EQ(fact(pto, "Range", "one ulp above"), "480 | not in the format; too large by 16");
  EXPECT_EQ(fact(pto, "Flags", "OF"), "set | the exact value is beyond the range");
  EXPECT_EQ(row(pto, "Every mode", "RNE"), (Cells{"->", "RNE", "0x7F", "nan", "OF NX", "0x7E *", "448", "OF NX"}));
  EXPECT_EQ(row(pto, "Every profile", "ocp"), (Cells{"", "ocp", "0x7E *", "448", "NX *", "Normal *"}));

  const Document ocp = explained("464", e4m3, {.profile = find_conversion_profile("ocp")});
  EXPECT_EQ(last_line(ocp), "result 0x7E = 448, flags NX");
  EXPECT_EQ(row(ocp, "Rounding", "toward zero"), (Cells{"->", "toward zero", "448", "0x7E", "16", "0.5"}));
  EXPECT_EQ(row(ocp, "Rounding", "away from zero"),
            (Cells{"", "away from zero", "480", "beyond the format", "16", "0.5"}));
  EXPECT_EQ(fact(ocp, "Rounding", "guard bit"), "1 | the first bit that is cut off");
  EXPECT_EQ(fact(ocp, "Rounding", "sticky bit"), "0 | the bits after it: none");
  EXPECT_EQ(fact(ocp, "Rounding", "decision"),
            "a tie; the last code bit of the neighbour toward zero is 0: the one toward zero");
}

// numerics 6.3: 304 is the tie of 288 (79) and 320 (7A).
TEST(ExplainConvert, TieToTheEvenCode) {
  const Document d = explained("304", e4m3);
  EXPECT_EQ(row(d, "Rounding", "toward zero"), (Cells{"", "toward zero", "288", "0x79", "16", "0.5"}));
  EXPECT_EQ(row(d, "Rounding", "away from zero"), (Cells{"->", "away from zero", "320", "0x7A", "16", "0.5"}));
  EXPECT_EQ(last_line(d), "result 0x7A = 320, flags NX");
  EXPECT_EQ(row(d, "Every mode", "RTM"), (Cells{"", "RTM", "0x79 *", "288", "NX", "0x79 *", "288", "NX"}));
}

// numerics 6.3: 2^-10 is the tie of 0 and the smallest subnormal; -2^-10 under RHB goes to the greater one, 0.
TEST(ExplainConvert, Subnormals) {
  const Document d = explained("-0x1p-10", e4m3, {.rounding = Rounding::rhb});
  EXPECT_EQ(last_line(d), "result 0x00 = 0, flags UF NX");
  EXPECT_EQ(fact(d, "Destination", "ulp here"), "0.001953125 | below 2^-6");
  EXPECT_EQ(fact(d, "Rounding", "decision"),
            "a tie goes to the numerically greater neighbour; the value is negative: the one toward zero");
  EXPECT_EQ(row(d, "Every profile", "ocp"), (Cells{"", "ocp", "0x80 *", "-0", "UF NX", "Zero"}));
  // HiF8: 3 2^-17 lies between 2^-16 (07) and 2^-15 (7E), whose last code bit is 0.
  const Document h = explained("0x3p-17", hif8);
  EXPECT_EQ(row(h, "Rounding", "toward zero"),
            (Cells{"", "toward zero", "0.0000152587890625", "0x07", "0.00000762939453125", "0.5"}));
  EXPECT_EQ(row(h, "Rounding", "away from zero")[3], "0x7E");
  EXPECT_EQ(last_line(h).substr(0, 11), "result 0x7E");
}

// numerics 6.2: FP32 387FF000 is 2^-14 (1 - 2^-12): FP16 0400 with NX, and under `asl` with UF as well.
TEST(ExplainConvert, Tininess) {
  const Document d = explained(fp32, 0x387F'F000, fp16);
  EXPECT_EQ(row(d, "Every profile", "pto")[4], "NX");
  EXPECT_EQ(row(d, "Every profile", "asl")[4], "UF NX *");
  EXPECT_EQ(fact(d, "Flags", "UF").substr(0, 34), "- | tininess after rounding (profi");
  const Document asl = explained(fp32, 0x387F'F000, fp16, {.profile = find_conversion_profile("asl")});
  EXPECT_EQ(fact(asl, "Flags", "UF"),
            "set | tininess before rounding (profile asl): the exact magnitude is below 2^-14");
}

// numerics 6.4 and 7.4.
TEST(ExplainConvert, Integers) {
  const Document d = explained("-128.4", s8, {.rounding = Rounding::rne});
  EXPECT_EQ(last_line(d), "result 0x80 = -128, flags NX");
  EXPECT_EQ(row(d, "Rounding", "away from zero")[3], "beyond the format");
  const Document wrapped = explained("300", s8, {.rounding = Rounding::rtz});
  EXPECT_EQ(last_line(wrapped), "result 0x2C = 44, flags OF NX");
  EXPECT_EQ(fact(wrapped, "Range", "result"), "Sat = 0 gives the low 8 bits of the rounded integer");
  const Document nan = explained("nan", s8);
  EXPECT_EQ(last_line(nan), "result 0x00 = 0, flags NV");
  EXPECT_EQ(fact(nan, "Flags", "NV"), "set | an integer cannot say NaN");
  const Document narrowed = explained(format_of(DataType::s32), 300, s8);
  EXPECT_EQ(last_line(narrowed), "result 0x2C = 44, flags -");
}

// numerics 7.2: BF16 3FB5 rounds down, 3FB6 up: their significands lie on either side of the square root of 2.
TEST(ExplainConvert, E8M0) {
  const Document down = explained(bf16, 0x3FB5, e8m0);
  EXPECT_EQ(last_line(down), "result 0x7F = 1, flags NX");
  EXPECT_EQ(fact(down, "Rounding", "decision"),
            "the significand is below sqrt 2, so log2 is nearer to 0; no tie exists");
  EXPECT_EQ(last_line(explained(bf16, 0x3FB6, e8m0)), "result 0x80 = 2, flags NX");
  EXPECT_EQ(fact(explained(bf16, 0, e8m0), "Range", "value"), "zero | E8M0 has neither zero nor a sign");
}

// numerics 7.2: modes act on log2; RTO asks for the odd exponent, whose code is even, and RTZ raises values below 1.
TEST(ExplainConvert, ModesOfE8M0ActOnLog2) {
  const Document odd = explained("3", e8m0, {.rounding = Rounding::rto});
  EXPECT_EQ(last_line(odd), "result 0x80 = 2, flags NX");
  EXPECT_EQ(fact(odd, "Rounding", "mode"),
            "RTO | log2: integers unchanged, otherwise the neighbour whose exponent is odd, whatever its code");
  EXPECT_EQ(fact(odd, "Rounding", "decision"), "of the exponents 1 and 2 the odd one: the lower one, 1");
  const Document up = explained("0.75", e8m0, {.rounding = Rounding::rtz});
  EXPECT_EQ(last_line(up), "result 0x7F = 1, flags NX");
  EXPECT_EQ(fact(up, "Rounding", "mode"), "RTZ | log2 toward zero, which is the value toward 1");
  EXPECT_EQ(row(up, "Rounding", "lower log2"), (Cells{"", "lower log2", "0.5", "0x7E", "0.25", "-1"}));
  EXPECT_EQ(row(up, "Rounding", "higher log2"), (Cells{"->", "higher log2", "1", "0x7F", "0.25", "0"}));
  EXPECT_EQ(fact(up, "Rounding", "decision"), "log2 toward zero; it is negative: the higher one, 0");
  EXPECT_EQ(fact(explained("0.75", e8m0, {.rounding = Rounding::rtm}), "Rounding", "decision"),
            "log2 toward minus infinity: the lower one, -1");
  EXPECT_EQ(fact(explained("0.5", e8m0), "Rounding", "decision"), "log2 is an integer: no mode decides anything");
}

// numerics 1.3: HiF8 and integers have one zero; numerics 6.3: so does E4M3 under `pto`.
TEST(ExplainConvert, ZeroNeighboursHaveTheSignOfTheirCode) {
  const auto toward_zero = [](std::string_view text, const Format& to, std::string_view profile) {
    const Cells cells =
        row(explained(text, to, {.profile = find_conversion_profile(profile)}), "Rounding", "toward zero");
    return Cells{cells[2], cells[3]};
  };
  EXPECT_EQ(toward_zero("-0x1p-23", hif8, "pto"), (Cells{"0", "0x00"}));
  EXPECT_EQ(toward_zero("-0x1p-11", e4m3, "pto"), (Cells{"0", "0x00"}));
  EXPECT_EQ(toward_zero("-0x1p-11", e4m3, "ocp"), (Cells{"-0", "0x80"}));
  EXPECT_EQ(toward_zero("-0x1p-26", fp16, "pto"), (Cells{"-0", "0x8000"}));
  EXPECT_EQ(toward_zero("-0.3", s8, "pto"), (Cells{"0", "0x00"}));
}

// numerics 6.4: -1 is below the range of U8, though its magnitude is not large.
TEST(ExplainConvert, BelowTheRangeOfAnUnsignedInteger) {
  const Document d = explained("-1", format_of(DataType::u8));
  EXPECT_EQ(fact(d, "Destination", "smallest"), "0 | 0x00");
  EXPECT_EQ(fact(d, "Rounding", "decision"), "nothing is cut off: no mode decides anything");  // -1 is no value of U8
  EXPECT_EQ(fact(d, "Range", "test"), "overflow | the rounded value is below the smallest of the range");
  EXPECT_EQ(fact(d, "Flags", "UF"), "- | integers do not underflow");
  EXPECT_EQ(fact(explained("300", s8), "Range", "test"),
            "overflow | the rounded value is above the largest of the range");
}

TEST(ExplainConvert, SourceFields) {
  const Document d = explained(hif8, 0x7E, fp32);
  EXPECT_EQ(row(d, "Source", "[6:5]"), (Cells{"[6:5]", "dot", "11", "D4: 4 exponent bits, 1 fraction bits"}));
  EXPECT_EQ(row(d, "Source", "[4:1]"),
            (Cells{"[4:1]", "exponent", "1111", "-15: its sign, then its bits after the hidden first one"}));
  const Document tf32 = explained(format_of(DataType::tf32), 0x3F80'0001, fp32);
  EXPECT_EQ(fact(tf32, "Flags", "NV"), "set | the source is an invalid encoding");
}

TEST(ExplainConvert, RefusesWhatConvertsToNothing) {
  EXPECT_FALSE(explain_convert(bf16, format_of(DataType::rcpe6m2), 0));
  EXPECT_FALSE(explain_convert(bf16, e6m2, 0, {.rounding = Rounding::rtz}));
  EXPECT_FALSE(explain_convert(parse_real("1x"), "1x", fp32));
}

// What is not a table is wrapped at 100 columns; tables of ordinary values stay inside as well.
TEST(ExplainConvert, FitsATerminal) {
  for (const std::string_view value : {"464", "0.1", "-1e-3", "1e20", "1e300", "1e-300", "nan", "0", "inf"}) {
    for (const Format& to : formats) {
      if (to.layout == Layout::reciprocal) continue;
      EXPECT_EQ(test::too_wide(text_of(explained(value, to))), "") << value << " to " << to.name;
    }
  }
}

}  // namespace
}  // namespace bitcube
