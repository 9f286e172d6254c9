// explain_fault: programs that the machine refuses, and one that it does not.
#include "bitcube/explain/fault.hpp"

#include <gtest/gtest.h>

#include <string>

#include "explain/facts.hpp"

namespace bitcube {
namespace {

using test::fact;
using test::last_line;

Document explained(std::string_view text, const ExplainFaultOptions& options = {}) {
  const auto program = program::Program::parse(text, "test.s");
  EXPECT_TRUE(program) << program.error().message;
  if (!program) return {};
  machine::Core core;
  auto document = explain_fault(*program, core, options);
  EXPECT_TRUE(document) << document.error().message;
  if (!document) return {};
  EXPECT_EQ(test::too_wide(text_of(*document)), "");
  return *document;
}

// architecture 4.3, B2: a CUBE bundle without B.FPATR is refused when it stops.
constexpr std::string_view without_fpatr =
    "BSTART.TMATMULMX.BIAS E4M3\n"
    "C.BSTOP\n"
    ".expect fault BundleControl\n"
    "B.DATR E4M3\n"
    "B.DATR E4M3\n";

TEST(ExplainFault, FirstFault) {
  const Document d = explained(without_fpatr);
  ASSERT_EQ(d.sections.size(), 1U);
  EXPECT_EQ(d.sections[0].title, "BundleControl at test.s:2:1");
  EXPECT_EQ(d.sections[0].clause, "architecture 4.3");
  EXPECT_EQ(fact(d, "Bundle", "rule"), "B2 | a CUBE bundle has exactly one B.FPATR");
  EXPECT_EQ(fact(d, "Bundle", "found"), "no B.FPATR");
  EXPECT_EQ(fact(d, "Bundle", "legal"), "exactly one B.FPATR");
  EXPECT_EQ(fact(d, "Bundle", "state").substr(0, 9), "unchanged");
  ASSERT_EQ(d.sections[0].tables.at(0).rows.size(), 2U);
  EXPECT_EQ(d.sections[0].tables[0].rows[0][3], "BSTART.TMATMULMX.BIAS E4M3");
  EXPECT_EQ(d.sections[0].tables[0].rows[1][0], "->");
}

TEST(ExplainFault, EveryFault) {
  const Document d = explained(without_fpatr, {.all = true});
  ASSERT_EQ(d.sections.size(), 2U);
  EXPECT_EQ(fact(d, "BundleControl at test.s:5", "rule").substr(0, 2), "A3");
  EXPECT_EQ(d.results.front().value, "the fault was not expected, and ended the run");
}

/// The last line is the sentence of the library.
TEST(ExplainFault, LastResultIsTheLibrarysSentence) {
  const auto program = program::Program::parse(without_fpatr, "test.s");
  ASSERT_TRUE(program);
  machine::Core core;
  const program::RunResult result = program::run(*program, core);
  ASSERT_TRUE(result.fault);
  EXPECT_EQ(explained(without_fpatr, {.all = true}).results.back().value, program::explain(*result.fault));
}

TEST(ExplainFault, IllegalWord) {
  const Document d = explained(".word 0x38531581\n");
  EXPECT_EQ(fact(d, "IllegalInstruction", "rule").substr(0, 2), "A1");
  EXPECT_NE(d.sections.at(0).remarks.at(0).find("Block [11:7] = 11"), std::string::npos);
}

TEST(ExplainFault, NoFault) {
  const Document d = explained("BSTART.TMATMULMX.BIAS E4M3\n");
  EXPECT_TRUE(d.sections.empty());
  EXPECT_EQ(last_line(d), "result no fault");
}

}  // namespace
}  // namespace bitcube
