// Documents as text and as JSON, and exact values as text.
#include "bitcube/document.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bitcube/numeric/real_text.hpp"
#include "text_table.hpp"
#include "value_text.hpp"

namespace bitcube {
namespace {

Document example() {
  return {.title = "explain 1",
          .sections = {{.title = "Source",
                        .clause = "numerics 1.2",
                        .facts = {{"value", "464"}, {"bits", "0x43E8", "why so"}, {"long", "x"}},
                        .tables = {{"Modes", {"mode", "bits"}, {{"rne", "0x7E"}, {"rtz", "0x7"}}, {1}}},
                        .remarks = {std::string(60, 'a') + ' ' + std::string(60, 'b')}}},
          .results = {{"bits", "0x7E", "448"}}};
}

TEST(Document, Text) {
  EXPECT_EQ(text_of(example()),
            "explain 1\n\n1  Source  [numerics 1.2]\n"
            "   value  464\n"
            "   bits   0x43E8  why so\n"
            "   long   x\n"
            "   Modes:\n"
            "     mode  bits\n"
            "     rne   0x7E\n"
            "     rtz    0x7\n"
            "   " +
                std::string(60, 'a') + "\n   " + std::string(60, 'b') +
                "\n"
                "\nbits  0x7E  448\n");
}

TEST(Document, LongRemarksStayInHundredColumns) {
  std::string remark = "word";
  for (int i = 0; i < 80; ++i) remark += " word";
  for (const std::size_t length : {1U, 39U, 41U, 70U, 90U}) {
    const Document document{.title = "t",
                            .sections = {{.title = "s", .facts = {{"name", std::string(length, 'x'), remark}}}}};
    std::string words;
    const std::string text = text_of(document);
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      EXPECT_LE(text_width(line), 100U) << line;
      for (std::size_t at = line.find("word"); at != line.npos; at = line.find("word", at + 1)) words += "word ";
      rest.remove_prefix(line.size() + 1);
    }
    EXPECT_EQ(words, remark + ' ');
  }
}

std::string text_of_section(Section section) {
  return text_of({.title = "t", .sections = {std::move(section)}});
}

TEST(Document, LongHeadingsWrapWithTheirClause) {
  const std::string a(60, 'a');
  EXPECT_EQ(text_of_section({.title = a + ' ' + a, .clause = "numerics 1"}),
            "t\n\n1  " + a + "\n   " + a + "  [numerics 1]\n");
  // 97 columns are left to the title; the clause takes its own line.
  EXPECT_EQ(text_of_section({.title = a + ' ' + std::string(30, 'b'), .clause = "numerics 1"}),
            "t\n\n1  " + a + ' ' + std::string(30, 'b') + "\n   [numerics 1]\n");
}

TEST(Document, WideTablesWrapTheirSentences) {
  std::string sentence = "word";
  for (int i = 0; i < 19; ++i) sentence += " word";
  const std::string fifteen = sentence.substr(0, 15 * 5 - 1);
  EXPECT_EQ(text_of_section({.title = "s", .tables = {{"", {"a", "meaning"}, {{std::string(20, 'x'), sentence}}}}}),
            "t\n\n1  s\n   a                     meaning\n"
            "   " +
                std::string(20, 'x') + "  " + fifteen + "\n" + std::string(25, ' ') + "word word word word word\n");
}

TEST(Document, WideTablesOfNumbersAreFolded) {
  const std::string x(40, '1');
  const std::string y(10, '2');
  // 3 + 40 + 2 + 40 + 2 + 40 are too many; the cells of the last row end before the fold.
  EXPECT_EQ(text_of_section({.title = "s", .tables = {{"", {"a", "b", "c"}, {{x, x, x}, {y, y, y}, {y}}, {1, 2}}}}),
            "t\n\n1  s\n"
            "   a" +
                std::string(40, ' ') + std::string(40, ' ') + "b\n" + std::string(9 + 39, ' ') +
                "c\n"
                "   " +
                x + "  " + x + "\n         " + x +
                "\n"
                "   " +
                y + std::string(32 + 30, ' ') + y + "\n" + std::string(9 + 30, ' ') + y +
                "\n"
                "   " +
                y + "\n");
}

TEST(Document, FoldedLinesAreAboutEquallyWide) {
  const std::string x(30, '1');
  const std::string gap(31, ' ');
  EXPECT_EQ(
      text_of_section({.title = "s", .tables = {{"", {"a", "b", "c", "d"}, {{x, x, x, x}}}}}),
      "t\n\n1  s\n   a" + gap + "b\n         c" + gap + "d\n   " + x + "  " + x + "\n         " + x + "  " + x + "\n");
}

TEST(Document, LongNamesAndWordsOfFactsStayInHundredColumns) {
  const std::string value(40, 'v');
  const std::string word(60, 'w');
  EXPECT_EQ(text_of_section({.title = "s", .facts = {{"a", value, word}}}),
            "t\n\n1  s\n   a  " + value + "\n        " + word + "\n");
  const std::string name(60, 'n');
  const std::string bits(64, '1');
  EXPECT_EQ(text_of_section({.title = "s", .facts = {{"a", "1", "why"}, {name, bits, "so"}}}),
            "t\n\n1  s\n   a  1  why\n   " + name + "\n     " + bits + "\n       so\n");
  EXPECT_EQ(text_of_section({.title = "s", .facts = {{std::string(38, 'n'), bits}}}),
            "t\n\n1  s\n   " + std::string(38, 'n') + "\n     " + bits + "\n");
}

TEST(Document, Json) {
  const auto json = nlohmann::json::parse(json_of(example()));
  EXPECT_EQ(json["sections"][0]["facts"][1]["remark"], "why so");
  EXPECT_FALSE(json["sections"][0]["facts"][0].contains("remark"));
  EXPECT_EQ(json["sections"][0]["tables"][0]["rows"][1][0], "rtz");
  EXPECT_EQ(json["results"][0]["value"], "0x7E");
  EXPECT_EQ(nlohmann::json::parse(json_of({.title = "\xff"}))["title"], "\xEF\xBF\xBD");
}

TEST(ExactText, DecimalWhereShortElseHexadecimal) {
  EXPECT_EQ(exact_text(Real{}), "0");
  EXPECT_EQ(exact_text(Real{.negative = true}), "-0");
  EXPECT_EQ(exact_text(Real{.significand = 29, .exponent = 4}), "464");
  EXPECT_EQ(exact_text(Real{.negative = true, .significand = 3, .exponent = -2}), "-0.75");
  EXPECT_EQ(exact_text(Real{.significand = 1, .exponent = -10}), "0.0009765625");
  EXPECT_EQ(exact_text(Real{.significand = 6, .exponent = -1}), "3");
  EXPECT_EQ(exact_text(Real{.significand = 1, .exponent = 64}), "18446744073709551616");
  EXPECT_EQ(exact_text(Real{.significand = 1, .exponent = 67}), "0x1p+67");
  EXPECT_EQ(exact_text(Real{.significand = 1, .exponent = -149}), "0x1p-149");
  EXPECT_EQ(exact_text(Real{.significand = 3, .exponent = -150}), "0x1.8p-149");
  EXPECT_EQ(exact_text(Real{.significand = 0x123456789ABCDEF1, .exponent = -100}), "0x1.23456789abcdef1p-40");
  EXPECT_EQ(exact_text(Real{.significand = 3, .exponent = 0, .sticky = true}), "3…");
  EXPECT_EQ(exact_text(Real{.significand = ~uint128{0}}), "0x1.fffffffffffffffffffffffffffffffep+127");
}

TEST(ExactText, ReadsBackAsTheSameValue) {
  for (const std::uint32_t significand : {1U, 3U, 5U, 11U, 0x7FFFFFU, 0xFFFFFFU, 0x800001U}) {
    for (int exponent = -149; exponent <= 104; ++exponent) {
      const Real real{.significand = significand, .exponent = exponent};
      const RealLiteral literal = parse_real(exact_text(real));
      ASSERT_EQ(literal.fault, nullptr) << exact_text(real);
      EXPECT_EQ(compare_magnitude(literal.real, real), 0) << exact_text(real);
    }
  }
}

}  // namespace
}  // namespace bitcube
