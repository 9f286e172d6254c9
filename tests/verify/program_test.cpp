// bitcube conform, vectors and study as a user runs them.
#include "cli/program.hpp"
#include "bitcube/verify/vectors.hpp"
#include "support/csv.hpp"

namespace bitcube::test {
namespace {

TEST(ConformProgram, ExitCodesAndTable) {
  const Outcome good = run({"conform", vector_path("").string()});
  EXPECT_TRUE(succeeds(good));
  EXPECT_NE(good.out.find("  tininess "), std::string::npos);
  EXPECT_NE(good.out.find("encoders"), std::string::npos);
  for (const verify::VectorForm& form : verify::vector_forms()) {
    EXPECT_NE(good.out.find("  " + std::string(form.name) + " "), std::string::npos) << form.name;
  }

  const TempDir dir;
  const std::string path = dir / "v.csv";
  write_text(path, "c,s,result,flags\n0x41400000,2,0x40400000,0x00\n0x41400000,2,0x40400001,0x00\n");
  const Outcome bad = run({"conform", path});
  EXPECT_EQ(bad.exit, 1);
  EXPECT_EQ(bad.err, "");
  EXPECT_NE(bad.out.find("row 2: c=0x41400000 s=2\n"
                         "  result: expected 0x40400001, got 0x40400000\n"
                         "  decided by numerics 9.7: one RNE FP32 encode (numerics 6.1)\n"),
            std::string::npos);
  EXPECT_EQ(run({"conform", path, "--first", "0"}).out.find("decided by"), std::string::npos);

  write_text(path, "c,s,result,flags\n0x41400000,2,0x40400000\n");
  EXPECT_TRUE(refuses({"conform", path}, "line 2: found 3 fields, expected 4: c,s,result,flags"));
  EXPECT_TRUE(refuses({"conform", "/no/such/file"}, "/no/such/file: No such file or directory"));
  EXPECT_TRUE(refuses({"conform"}, "PATH is required"));
  EXPECT_TRUE(refuses({"conform", path, "--profile", "alc"}, "did you mean asl?"));
  // The other files are reported all the same.
  const Outcome both = run({"conform", path, vector_path("cscale.csv").string()});
  EXPECT_EQ(both.exit, 2);
  EXPECT_NE(both.out.find("cscale.csv"), std::string::npos);
}

TEST(ConformProgram, Json) {
  const TempDir dir;
  const std::string path = dir / "v.csv";
  write_text(path, "c,s,result,flags\n0x41400000,2,0x40400001,0x10\n");
  const Outcome outcome = run({"conform", path, "--json"});
  EXPECT_EQ(outcome.exit, 1);
  const Json json = outcome.json();
  EXPECT_EQ(json["mismatches"], 1);
  const Json& file = json["files"][0];
  EXPECT_EQ(file["form"], "cscale");
  EXPECT_EQ(file["profile"], "asl");
  EXPECT_EQ(file["first"][0]["row"], 1);
  EXPECT_EQ(file["first"][0]["inputs"]["c"], "0x41400000");
  EXPECT_EQ(file["first"][0]["differences"][1]["column"], "flags");
  EXPECT_EQ(file["first"][0]["differences"][1]["expected"], "0x10");
  EXPECT_EQ(file["first"][0]["differences"][1]["got"], "0x00");
}

TEST(ConformProgram, OutputDoesNotDependOnThreads) {
  const Arguments common{"conform", vector_path("").string(), "--profile", "ocp", "--threads"};
  Arguments one = common;
  one.emplace_back("1");
  Arguments many = common;
  many.emplace_back("7");
  EXPECT_EQ(run(one).out, run(many).out);
}

// CLI11 takes -5 for 2^64 - 5 where an option is unsigned.
TEST(VectorsProgram, CountsAreWholeNumbers) {
  const TempDir dir;
  const std::string path = dir / "v.csv";
  for (const std::string count : {"-5", "1.5", "1e3", "99999999999999999999", "2000000000", "x"}) {
    EXPECT_TRUE(refuses({"vectors", "--what", "e8m0", "--count", count, "-o", path}, "no whole number")) << count;
  }
  EXPECT_TRUE(refuses({"vectors", "--what", "e8m0", "--seed", "18446744073709551616", "-o", path}, "no whole number"));
  EXPECT_TRUE(refuses({"study", "gaussian", "--samples", "-4096"}, "no whole number"));
  EXPECT_TRUE(refuses({"conform", vector_path("e8m0.csv").string(), "--first", "-1"}, "no whole number"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(VectorsProgram, WritesWhatConformReads) {
  const TempDir dir;
  const std::string path = dir / "post.csv";
  const Outcome written = run({"vectors", "--what", "postprocess", "--seed", "4", "--count", "500", "-o", path});
  EXPECT_TRUE(succeeds(written));
  EXPECT_NE(written.out.find("500 rows of postprocess, profile pto, seed 4"), std::string::npos);
  EXPECT_TRUE(succeeds(run({"conform", path})));
  const std::string text = read_text(path);
  write_text(path, text + "x");
  EXPECT_TRUE(refuses({"conform", path}, "was changed after it was written"));
  const Outcome json = run({"vectors", "--what", "mx", "--count", "5", "-o", dir / "mx.csv", "--json"});
  EXPECT_EQ(json.json()["count"], 5);
  EXPECT_EQ(json.json()["sha256"].get<std::string>().size(), 64U);

  EXPECT_TRUE(refuses({"vectors", "--what", "postproces", "-o", path},
                      "--what: unknown name 'postproces'; did you mean postprocess?"));
  EXPECT_TRUE(
      refuses({"vectors", "--what", "e8m0", "--profile", "pto", "-o", path}, "--profile: e8m0 does not depend on one"));
  EXPECT_TRUE(refuses({"vectors", "--what", "e8m0", "--count", "0", "-o", path}, "--count: must be at least 1"));
  EXPECT_TRUE(refuses({"vectors", "--what", "e8m0"}, "--output is required"));
}

TEST(StudyProgram, Gaussian) {
  const Outcome outcome = run({"study", "gaussian", "--samples", "32768", "--json"});
  EXPECT_TRUE(succeeds(outcome));
  const Json json = outcome.json();
  EXPECT_EQ(json["holds"], true);
  EXPECT_EQ(json["sigmas"].size(), 18U);
  EXPECT_EQ(json["checks"].size(), 6U);
  for (const Json& format : json["formats"]) {
    EXPECT_EQ(format["mse_over_variance"].size(), 18U);
    EXPECT_EQ(format["sqnr_db"].size(), 18U);
  }
  const Outcome text = run({"study", "gaussian", "--samples", "32768", "--threads", "1"});
  EXPECT_TRUE(succeeds(text));
  EXPECT_NE(text.out.find("holds          MSE(NVFP4 with tensor scale)/MSE(HiF4 pto) = 1.315 +- 0.01"),
            std::string::npos);
  EXPECT_TRUE(refuses({"study", "gaussian", "--samples", "1000"}, "--samples: 1000 is no multiple of 4096"));
  EXPECT_EQ(run({"study"}).exit, 2);
}

}  // namespace
}  // namespace bitcube::test
