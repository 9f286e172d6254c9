// bitcube gen as a user runs it.
#include <gtest/gtest.h>

#include "program.hpp"

namespace bitcube {
namespace {

using test::Outcome;
using test::refuses;
using test::run;
using test::succeeds;
using test::TempDir;

TEST(Gen, ProgramsThatRunAccepts) {
  const TempDir dir;
  const std::string file = dir / "s.s";
  for (const test::Arguments& more : {test::Arguments{}, test::Arguments{"--illegal", "any"},
                                      test::Arguments{"--illegal", "F7,G3", "--op", "TMATMUL_MX,TGEMV"}}) {
    test::Arguments arguments{"gen", "bundle", "--count", "60", "--seed", "4", "-o", file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_TRUE(succeeds(run(arguments)));
    EXPECT_TRUE(succeeds(run({"run", file})));
  }
}

TEST(Gen, VectorsThatConformAccepts) {
  const TempDir dir;
  const std::string cvt = dir / "cvt.csv";
  const std::string post = dir / "post.csv";
  EXPECT_TRUE(succeeds(run({"gen", "convert", "--to", "e4m3,E5M2", "--from", "fp32", "--count", "500", "-o", cvt})));
  EXPECT_TRUE(succeeds(run({"conform", cvt})));
  EXPECT_TRUE(succeeds(run({"gen", "postprocess", "--mode", "REQ8,VQF322B8_PRE", "--relu", "PReLU", "--weight",
                            "tie=8,nan=0", "--count", "500", "-o", post})));
  EXPECT_TRUE(succeeds(run({"conform", post, "--profile", "pto"})));
}

TEST(Gen, Coverage) {
  const TempDir dir;
  const std::string out = dir / "s.words";
  const std::string report = dir / "c.json";
  EXPECT_TRUE(succeeds(run(
      {"gen", "bundle", "--illegal", "A3,B2", "--count", "20", "--format", "words", "-o", out, "--coverage", report})));
  const auto json = test::Json::parse(test::read_text(report));
  EXPECT_EQ(json["bundles"], 20);
  EXPECT_EQ(json["groups"][0]["bins"]["A3"], 10);
  const Outcome text = run({"gen", "convert", "--to", "fp16", "--from", "fp32", "-o", out, "--coverage", "-"});
  EXPECT_TRUE(succeeds(text));
  EXPECT_TRUE(text.out.starts_with("coverage: "));
}

TEST(Gen, FiveImagesOrNone) {
  const TempDir dir;
  const std::string prefix = dir / "stim";
  EXPECT_TRUE(succeeds(run({"gen", "bundle", "--count", "5", "--format", "readmemh", "-o", prefix})));
  for (const std::string suffix : {".words.hex", ".state.hex", ".expected.hex", ".care.hex", ".index.csv"}) {
    EXPECT_FALSE(test::read_text(prefix + suffix).empty());
  }
  // Types that cannot break the rule: nothing is left behind.
  const std::string none = dir / "none";
  EXPECT_TRUE(refuses({"gen", "bundle", "--illegal", "V6", "--types", "FP32", "--format", "readmemh", "-o", none},
                      "--illegal: no bundle breaks V6: none of these operations and types"));
  EXPECT_FALSE(std::filesystem::exists(none + ".words.hex"));
}

TEST(Gen, ListRules) {
  const Outcome text = run({"gen", "bundle", "--list-rules"});
  EXPECT_TRUE(succeeds(text));
  EXPECT_NE(text.out.find("no bundle can break\n  A13: "), std::string::npos);
  const Outcome json = run({"gen", "bundle", "--list-rules", "--json"});
  EXPECT_EQ(json.json().size(), 73U);
  EXPECT_EQ(json.json()[0]["rule"], "A1");
}

TEST(Gen, RulesThatTheDimensionsKeepWhole) {
  const TempDir dir;
  const std::string file = dir / "s.s";
  EXPECT_TRUE(refuses({"gen", "bundle", "--illegal", "G4", "--max-dim", "8", "-o", file},
                      "--max-dim: no bundle breaks G4: dimensions up to 8 are too small, up to 40 do"));
  EXPECT_FALSE(std::filesystem::exists(file));
  const Outcome any = run({"gen", "bundle", "--illegal", "any", "--max-dim", "8", "--count", "100", "-o", file,
                           "--coverage", dir / "cover.txt"});
  EXPECT_EQ(any.exit, 0) << any.err;
  EXPECT_NE(any.err.find("note: --illegal any leaves out G4: dimensions up to 8 are too small"), std::string::npos);
  EXPECT_EQ(any.err.find("A13"), std::string::npos);  // no option keeps that one whole
  EXPECT_NE(test::read_text(dir / "cover.txt").find("G4 (dimensions up to 8"), std::string::npos);
  EXPECT_TRUE(succeeds(run({"run", file})));
  // Who names operations asks for their rules alone.
  EXPECT_TRUE(succeeds(run({"gen", "bundle", "--illegal", "any", "--op", "TLOAD", "--count", "5", "-o", file})));
  const Outcome list = run({"gen", "bundle", "--list-rules", "--max-dim", "8"});
  EXPECT_TRUE(succeeds(list));
  EXPECT_NE(list.out.find("\n  G4: dimensions up to 8"), std::string::npos);
}

TEST(Gen, SaysWhenAProgramIsTooLongToRun) {
  const TempDir dir;
  const std::string file = dir / "s.s";
  const Outcome long_one = run({"gen", "bundle", "--count", "10000", "-o", file});
  EXPECT_EQ(long_one.exit, 0);
  EXPECT_GT(std::filesystem::file_size(file), 64U << 20);
  EXPECT_NE(long_one.err.find("bitcube run takes 67108864 at most; make parts with --first and --count"),
            std::string::npos)
      << long_one.err;
  EXPECT_TRUE(refuses({"run", file}, "a program has at most 67108864"));
  // Words are not for `run`.
  EXPECT_TRUE(succeeds(run({"gen", "bundle", "--count", "10", "--format", "words", "-o", file})));
}

TEST(Gen, PostprocessRowsOfS4AreKnownDifferences) {
  const TempDir dir;
  const std::string post = dir / "post.csv";
  EXPECT_TRUE(succeeds(run({"gen", "postprocess", "--mode", "REQ4", "--count", "500", "-o", post})));
  const Outcome checked = run({"conform", post, "--profile", "pto"});
  EXPECT_TRUE(succeeds(checked));
  EXPECT_NE(checked.out.find("  s4x2-sign-extension "), std::string::npos) << checked.out;
}

TEST(Gen, AFullDiskIsNoOptionsFault) {
  for (const char* kind : {"convert", "postprocess", "bundle"}) {
    const Outcome full = run({"gen", kind, "--count", "20000", "-o", "/dev/full"});
    EXPECT_EQ(full.exit, 2) << kind;
    EXPECT_EQ(full.err, "bitcube: error: /dev/full: No space left on device\n") << kind;
  }
}

TEST(Gen, Refuses) {
  const TempDir dir;
  const std::string out = dir / "x";
  const auto bundle = [&](test::Arguments more) {
    test::Arguments a{"gen", "bundle", "-o", out};
    a.insert(a.end(), more.begin(), more.end());
    return a;
  };
  EXPECT_TRUE(refuses({"gen"}, "see bitcube gen --help"));
  EXPECT_TRUE(refuses({"gen", "bundle"}, "--output: missing"));
  EXPECT_TRUE(refuses({"gen", "convert"}, "--output is required"));
  EXPECT_TRUE(refuses(bundle({"--illegal", "Z9"}), "unknown rule 'Z9'; --list-rules prints them"));
  EXPECT_TRUE(refuses(bundle({"--illegal", "A17"}), "no bundle breaks A17"));
  EXPECT_TRUE(refuses(bundle({"--illegal", "T4", "--op", "TMATMUL"}), "those that can are TLOAD"));
  EXPECT_TRUE(refuses(bundle({"--illegal", "F7", "--legal"}), "choose one"));
  EXPECT_TRUE(refuses(bundle({"--op", "TMATMULX"}), "did you mean TMATMUL"));
  EXPECT_TRUE(refuses(bundle({"--types", "E6M2"}), "no type of a Tile"));
  EXPECT_TRUE(refuses(bundle({"--format", "asmm"}), "did you mean asm?"));
  EXPECT_TRUE(refuses(bundle({"--count", "0"}), "--count: must be at least 1"));
  EXPECT_TRUE(refuses(bundle({"--max-dim", "2000"}), "--max-dim: 2000 is outside 1..1024"));
  EXPECT_TRUE(refuses(bundle({"--max-dim", "4294967300"}), "whole number"));
  EXPECT_TRUE(refuses(bundle({"--corners", "101"}), "101 is more than 100 percent"));
  EXPECT_TRUE(refuses(bundle({"--formatt", "asm"}), "did you mean --format? (see bitcube gen bundle --help)"));
  EXPECT_TRUE(refuses({"gen", "convert", "--weight", "nan=x", "-o", out}, "expected NAME=N"));
  EXPECT_TRUE(refuses({"gen", "convert", "--weight", "nam=1", "-o", out}, "did you mean nan"));
  EXPECT_TRUE(refuses({"gen", "convert", "--from", "fp32", "--to", "e6m2", "-o", out}, "TCVT converts none"));
  EXPECT_TRUE(refuses({"gen", "postprocess", "--sat", "2", "-o", out}, "expected 0 or 1"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace bitcube
