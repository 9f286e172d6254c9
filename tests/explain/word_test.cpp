// explain_word against the contract's table of words, over all forms, and of words that are none.
#include "bitcube/explain/word.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "bitcube/isa/text.hpp"

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
      const bool legal = static_cast<bool>(isa::decode(word));
      EXPECT_EQ(document->results.front().name, legal ? "instruction" : "fault");
      instructions += legal ? 1 : 0;
    }
  }
  EXPECT_GT(instructions, 1000U);
}

TEST(ExplainWord, BitsAboveTheWordAreRefused) {
  const auto document = explain_word(0x1'3853'1181);
  ASSERT_FALSE(document);
  EXPECT_NE(document.error().message.find("32 bits"), std::string::npos) << document.error().message;
}

}  // namespace
}  // namespace bitcube
