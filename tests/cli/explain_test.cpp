// bitcube explain: what it prints, and what it refuses.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "cli/program.hpp"

namespace bitcube::test {
namespace {

TEST(Explain, ConvertAsTextAndAsJson) {
  const Outcome text = run({"explain", "convert", "--to", "e4m3", "464"});
  EXPECT_EQ(text.exit, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with("464 to E4M3, RNE, profile pto\n\n1  Source: an exact number")) << text.out;
  EXPECT_TRUE(text.out.ends_with("\nresult  0x7F = nan, flags OF NX\n")) << text.out;
  const Json json = run({"explain", "convert", "--to", "e4m3", "464", "--json"}).json();
  EXPECT_EQ(json["title"], "464 to E4M3, RNE, profile pto");
  EXPECT_EQ(json["sections"][0]["title"], "Source: an exact number");
  EXPECT_EQ(json["results"].back()["value"], "0x7F = nan, flags OF NX");
}

TEST(Explain, ConvertReadsValuesAsConvertDoes) {
  for (const Arguments& value : {Arguments{"-464"}, Arguments{"-0x1p-10"}, Arguments{"--from", "bf16", "0x3FC0"},
                                 Arguments{"-inf"}, Arguments{"--sat", "--round", "rhb", "--", "-449"}}) {
    Arguments arguments{"convert", "--to", "e4m3"};
    arguments.insert(arguments.end(), value.begin(), value.end());
    const Outcome converted = run(arguments);
    arguments.insert(arguments.begin(), "explain");
    const Outcome explained = run(arguments);
    ASSERT_EQ(explained.exit, 0) << explained.err;
    const std::string last = explained.out.substr(explained.out.rfind("0x"), 4);
    EXPECT_NE(converted.out.find("-> " + last), std::string::npos) << converted.out << explained.out;
  }
}

TEST(Explain, QuantizeAnElement) {
  const TempDir dir;
  const std::string file = dir / "w.npy";
  std::string words;
  for (int i = 0; i < 2 * 70; ++i) words += i == 70 + 3 ? std::string("\xE0\x40", 2) : std::string("\x80\x3F", 2);
  write_text(file, npy_header(DType::kU16, std::array<std::uint64_t, 2>{2, 70}) + words);
  const Outcome first = run({"explain", "quantize", file, "--format", "hif4", "--at", "1,3"});
  EXPECT_EQ(first.exit, 0) << first.err;
  EXPECT_NE(first.out.find("Ma  0x40E0 = 7"), std::string::npos) << first.out;
  const Json json = run({"explain", "quantize", file, "-f", "mxfp4", "--axis", "0", "--at", "1,3", "--json"}).json();
  EXPECT_EQ(json["title"], "Element [1, 3] in mxfp4, scale rule floor, elements RNE");
  EXPECT_EQ(json["results"].back()["value"], "scale 0x7F, code 0x7 = 6");

  EXPECT_TRUE(refuses({"explain", "quantize", file, "-f", "hif4", "--at", "2,0"},
                      "--at: 2,0 is not in " + file + ", whose shape is 2 x 70; it takes 2 numbers from 0"));
  EXPECT_TRUE(refuses({"explain", "quantize", file, "-f", "hif4", "--at", "1"}, "it takes 2 numbers from 0"));
  EXPECT_TRUE(refuses({"explain", "quantize", file, "-f", "hif4", "--at", "1,x"}, "--at: '1,x' is no index"));
  EXPECT_TRUE(refuses({"explain", "quantize", file, "-f", "hif4", "--at", "1,"}, "--at: '1,' is no index"));
  EXPECT_TRUE(refuses({"explain", "quantize", file, "-f", "hif4", "--scale", "even", "--at", "1,3"},
                      "--scale: hif4 has none; it is for the MX formats"));
}

TEST(Explain, Word) {
  const Outcome legal = run({"explain", "word", "0x38531181"});
  EXPECT_EQ(legal.exit, 0) << legal.err;
  EXPECT_TRUE(legal.out.ends_with("text         BSTART.TMATMULMX.BIAS E4M3\n")) << legal.out;
  EXPECT_EQ(run({"explain", "word", "0x38531581", "--json"}).json()["results"][0]["value"], "IllegalInstruction");
  EXPECT_TRUE(refuses({"explain", "word", "BSTOP"}, "WORD: 'BSTOP' is no word; a word is written as 0x38531181"));
  EXPECT_TRUE(refuses({"explain", "word", "0x138531181"}, "higher bits are set"));
}

TEST(Explain, Fault) {
  const TempDir dir;
  const std::string file = dir / "p.s";
  write_text(file, "BSTART.TMATMUL FP16\nC.BSTOP\n");
  const Outcome found = run({"explain", "fault", file});
  EXPECT_EQ(found.exit, 0) << found.err;
  EXPECT_NE(found.out.find("BundleControl at " + file + ":2:1"), std::string::npos) << found.out;
  EXPECT_NE(found.out.find("\nresult  BundleControl B2"), std::string::npos) << found.out;
  write_text(file, "BSTART.TMATMUL FP16\n");
  EXPECT_TRUE(run({"explain", "fault", file, "--all"}).out.ends_with("\nresult  no fault\n"));
  EXPECT_TRUE(refuses({"explain", "fault", std::string(dir / "none.s")}, "none.s"));
}

TEST(Explain, UsageNamesTheSubcommand) {
  EXPECT_TRUE(refuses({"explain"}, "bitcube explain --help"));
  EXPECT_TRUE(refuses({"explain", "word"}, "bitcube explain word --help"));
  EXPECT_TRUE(refuses({"explain", "convert", "--to", "e4m3", "--profle", "ocp", "1"}, "did you mean --profile?"));
}

}  // namespace
}  // namespace bitcube::test
