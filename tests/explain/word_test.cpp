// explain_word against the contract's table of words, over all forms, and of words that are none.
#include "bitcube/explain/word.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "bitcube/isa/text.hpp"
#include "explain/facts.hpp"

namespace bitcube {
namespace {

TEST(ExplainWord, LastResultIsTheLibrarysTextOverAllForms) {
  std::mt19937_64 random(1);
  std::size_t instructions = 0;
  for (const isa::FormInfo& form : isa::forms) {
    for (int n = 0; n < 200; ++n) {
      const std::uint64_t word = form.match | (random() & ~form.mask & (~std::uint64_t{0} >> (64 - 8 * form.length)));
      const auto document = explain_word(word);
      ASSERT_TRUE(document) << document.error().message;
      ASSERT_EQ(document->results.size(), 2U);
      EXPECT_EQ(document->results.back().value, isa::disassemble({word, form.length}));
      if (n % 4 == 0) {
        EXPECT_EQ(test::too_wide(text_of(*document)), "") << document->title;
      }
      const bool legal = static_cast<bool>(isa::decode(word));
      EXPECT_EQ(document->results.front().name, legal ? "instruction" : "fault");
      instructions += legal ? 1 : 0;
    }
  }
  EXPECT_GT(instructions, 1000U);
}

// architecture 8.1, W1.
TEST(ExplainWord, WorkedWords) {
  const auto start = explain_word(0x3853'1181);
  ASSERT_TRUE(start);
  EXPECT_EQ(test::fact(*start, "Length", "in memory"), "81 11 53 38 | lowest byte first");
  EXPECT_EQ(test::fact(*start, "Form", "wanted"), "0x00531181 | all agree");
  EXPECT_EQ(test::row(*start, "Fields", "[31:27]").at(3), "E4M3");
  EXPECT_EQ(test::last_line(*start), "text BSTART.TMATMULMX.BIAS E4M3");
  const auto binding = explain_word(0x0049'D293);
  ASSERT_TRUE(binding);
  EXPECT_EQ(test::last_line(*binding), "text B.IOT T#5, mask=1000, <last>, ->U<3>");
  EXPECT_EQ(test::row(*binding, "Fields", "[25:20]").at(3), "T#5");
  EXPECT_EQ(test::row(*binding, "Fields", "[8:7]").at(3), "U");
}

// architecture 2.10: SizeCode 11 to 15 is illegal; 10 is the nearest that is legal.
TEST(ExplainWord, IllegalField) {
  const auto d = explain_word(0x004D'D293);
  ASSERT_TRUE(d);
  const test::Cells cells = test::row(*d, "Fields", "[18:15]");
  ASSERT_EQ(cells.size(), 5U);
  EXPECT_EQ(cells[2], "1011");
  EXPECT_TRUE(cells[4].starts_with("NOT LEGAL")) << cells[4];
  EXPECT_EQ(test::fact(*d, "Why", "found"), "SizeCode = 11");
  EXPECT_EQ(test::fact(*d, "Why", "nearest legal").substr(0, 20), "10 | then 0x004D5293");
  EXPECT_EQ(test::last_line(*d), "text .word 0x004DD293");
}

// One bit of a fixed field is wrong: the form with that bit changed comes first.
TEST(ExplainWord, NearestForms) {
  const auto d = explain_word(0x3853'1581);
  ASSERT_TRUE(d);
  const test::Cells cells = test::row(*d, "Why", "BSTART.TMATMULMX.BIAS");
  EXPECT_EQ(cells, (test::Cells{"BSTART.TMATMULMX.BIAS", "[10]", "0x38531181", "BSTART.TMATMULMX.BIAS E4M3"}));
}

TEST(ExplainWord, BitsAboveTheWordAreRefused) {
  const auto document = explain_word(0x1'3853'1181);
  ASSERT_FALSE(document);
  EXPECT_NE(document.error().message.find("32 bits"), std::string::npos) << document.error().message;
}

}  // namespace
}  // namespace bitcube
