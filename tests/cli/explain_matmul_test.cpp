// bitcube explain matmul and postprocess: the options of the commands that compute, text, JSON and refusals.
#include <fmt/format.h>

#include <sstream>

#include "cli/program.hpp"

namespace bitcube::test {
namespace {

class ExplainMatmul : public testing::Test {
 protected:
  void SetUp() override {
    save(dir_ / "a.npy", DType::kF32, {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
    save(dir_ / "b.npy", DType::kF32, {3, 2}, std::vector<float>{1, -2, 0.5F, 1, -1, 2});
    save(dir_ / "bias.npy", DType::kF32, {2}, std::vector<float>{10, 20});
    save(dir_ / "c.npy", DType::kF32, {2, 2}, std::vector<float>{100, 200, 300, 400});
    save(dir_ / "acc.npy", DType::kI32, {2, 3}, std::vector<std::int32_t>{5, -5, 300, 1, -7, 2});
  }
  std::string path(std::string_view name) const { return dir_ / name; }
  Arguments product(const Arguments& options) const {
    Arguments arguments{"explain", "matmul", path("a.npy"), path("b.npy")};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return arguments;
  }
  Arguments stored(const Arguments& options) const {
    Arguments arguments{"explain", "postprocess", path("acc.npy")};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return arguments;
  }

  TempDir dir_;
};

std::string last_line(const std::string& text) {
  std::string last;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) last = line;
  return last;
}

// 300 + 4 * 1 + 5 * 0.5 + 6 * -1 + 10.
TEST_F(ExplainMatmul, LastLineIsTheElement) {
  const Arguments options{"--bias", path("bias.npy"), "--c", path("c.npy")};
  Arguments at{"--at", "1,0"};
  at.insert(at.end(), options.begin(), options.end());
  const Outcome text = run(product(at));
  ASSERT_TRUE(succeeds(text));
  EXPECT_EQ(last_line(text.out), "D(1,0)            0x439B4000  FP32 310.5, flags -");
  at.emplace_back("--json");
  const Json json = run(product(at)).json();
  EXPECT_EQ(json["results"].back(), Json::parse(R"json({"name": "D(1,0)", "value": "0x439B4000",
                                                   "remark": "FP32 310.5, flags -"})json"));
  EXPECT_EQ(json["sections"][0]["title"], "Operands");
}

TEST_F(ExplainMatmul, TakesTheOptionsOfMatmul) {
  const Arguments options{
      "--accumulate", "group", "--pre-quant", "QF322B8_PRE",        "--scale",   "2",           "--offset=-1", "--sat",
      "--relu-param", "0.5",   "--group-max", "8:" + path("g.npy"), "--row-max", path("r.npy"), "--max-abs"};
  Arguments computed{"matmul", path("a.npy"), path("b.npy"), "-o", path("d.npy")};
  computed.insert(computed.end(), options.begin(), options.end());
  ASSERT_TRUE(succeeds(run(computed)));
  const auto d = elements_of<std::int8_t>(dir_ / "d.npy", DType::kI8);
  const auto row_max = elements_of<float>(dir_ / "r.npy", DType::kF32);
  for (const char* file : {"d.npy", "r.npy", "g.npy"}) std::filesystem::remove(dir_ / file);
  for (std::size_t i = 0; i < 4; ++i) {
    Arguments at{"--at", std::to_string(i / 2) + "," + std::to_string(i % 2), "--json"};
    at.insert(at.end(), options.begin(), options.end());
    const Outcome outcome = run(product(at));
    ASSERT_TRUE(succeeds(outcome));
    const Json results = outcome.json()["results"];
    ASSERT_EQ(results.size(), 4U);
    const std::string value = "S8 " + std::to_string(d[i]) + ",";
    EXPECT_TRUE(results[3]["remark"].get<std::string>().starts_with(value)) << results[3] << value;
    const std::string maximum = fmt::format("FP32 {},", row_max[i / 2]);
    EXPECT_TRUE(results[1]["remark"].get<std::string>().starts_with(maximum)) << results[1] << maximum;
  }
  EXPECT_FALSE(std::filesystem::exists(dir_ / "r.npy")) << "an explanation writes no file";
}

TEST_F(ExplainMatmul, LanesOrGroups) {
  const auto rows = [&](const Arguments& options) {
    Arguments at{"--at", "0,1", "--json"};
    at.insert(at.end(), options.begin(), options.end());
    return run(product(at)).json()["sections"][1]["tables"][0]["rows"];
  };
  EXPECT_EQ(rows({}), Json::parse(R"([["0-2", "6", "6", "0x40C00000", "0", "0"]])"));
  EXPECT_EQ(rows({"--steps"}).size(), 3U);
  EXPECT_EQ(rows({"--steps"})[2], Json::parse(R"(["2", "0x40400000", "0x40000000", "3", "2", "6", "6", "6",
                                                  "0x40C00000", "0"])"));
}

TEST_F(ExplainMatmul, QuantisedOperandsFitTheTerminal) {
  std::vector<float> x(3 * 70);
  std::vector<float> w(70 * 2);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7 % 29) - 14) / 4;
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(static_cast<int>(i * 5 % 23) - 11) / 8;
  save(dir_ / "x.npy", DType::kF32, {3, 70}, x);
  save(dir_ / "w.npy", DType::kF32, {70, 2}, w);
  for (const std::string format : {"hif4", "mxfp8-e4m3", "mxfp4"}) {
    ASSERT_TRUE(succeeds(run({"quantize", path("x.npy"), "--format", format, "--axis", "1", "-o", path("x")})));
    ASSERT_TRUE(succeeds(run({"quantize", path("w.npy"), "--format", format, "--axis", "0", "-o", path("w")})));
    for (const Arguments& options : {Arguments{}, Arguments{"--steps"}}) {
      Arguments arguments{"explain", "matmul", path("x"), path("w"), "--at", "2,1"};
      arguments.insert(arguments.end(), options.begin(), options.end());
      const Outcome outcome = run(arguments);
      ASSERT_TRUE(succeeds(outcome));
      std::istringstream lines(outcome.out);
      for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
    }
  }
}

// Numerics 5.6: 300 saturates to S9's 255 (OF, NX), and Sat = 1 gives 127.
TEST_F(ExplainMatmul, StoredAccumulators) {
  const Outcome outcome = run(stored({"--at", "0,2", "--pre-quant", "REQ8", "--scale", "1", "--offset", "1", "--sat"}));
  ASSERT_TRUE(succeeds(outcome));
  EXPECT_EQ(last_line(outcome.out), "D(0,2)            0x7F        S8 127, flags OF NX");
  EXPECT_NE(outcome.out.find("saturated: S9 goes from -256 to 255"), std::string::npos);
  const Json json = run(stored({"--at", "1,1", "--row-max", "none.npy", "--json"})).json();
  EXPECT_EQ(json["results"][1]["remark"], "S32 2, flags -");
}

TEST_F(ExplainMatmul, Refusals) {
  EXPECT_TRUE(refuses(product({}), "--at is required"));
  for (const char* at : {"1", "1,", ",1", "1,1,1", "a,b", "1;1", "-1,0", "1, 1", "99999999999999999999,0", ""}) {
    EXPECT_TRUE(refuses(product({"--at", at}), "--at")) << at;
  }
  EXPECT_TRUE(refuses(product({"--at", "1,1,1"}), "--at: '1,1,1': an element of D is I,J, such as 3,129"));
  EXPECT_TRUE(refuses(product({"--at", "2,0"}), "element 2,0: D is 2 x 2, so rows are 0 to 1 and columns 0 to 1"));
  EXPECT_TRUE(refuses(stored({"--at", "0,3"}), "element 0,3: D is 2 x 3, so rows are 0 to 1 and columns 0 to 2"));
  EXPECT_TRUE(refuses(product({"--at", "0,0", "--accumulate", "fam"}), "did you mean fma?"));
  EXPECT_TRUE(refuses(product({"--at", "0,0", "--pre-quant", "REQ8", "--scale", "1"}), "REQ8 takes S32 accumulators"));
  EXPECT_TRUE(
      refuses({"explain", "matmul", path("a.npy"), path("a.npy"), "--at", "0,0"}, "B: 2 rows, but A has K = 3"));
  EXPECT_TRUE(refuses({"explain", "postprocess", path("none.npy"), "--at", "0,0"}, "none.npy"));
}

}  // namespace
}  // namespace bitcube::test
