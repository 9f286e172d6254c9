// bitcube postprocess, and the same options of bitcube matmul.
#include <map>

#include "bitcube/cube/postprocess_matrix.hpp"
#include "cli/program.hpp"
#include "support/row.hpp"

namespace bitcube::test {
namespace {

class Postprocess : public testing::Test {
 protected:
  void SetUp() override {
    save(dir_ / "f32.npy", DType::kF32, {2, 3}, std::vector<float>{1.5F, -2, 70, 0.25F, -0.5F, 300});
    save(dir_ / "s32.npy", DType::kI32, {2, 3}, std::vector<std::int32_t>{3, -5, 70, 300, -300, 0});
    save(dir_ / "u32.npy", DType::kU32, {3}, std::vector<std::uint32_t>{2, 5, 0xFFFFFFFF});
  }
  std::string path(std::string_view name) const { return dir_ / name; }
  Arguments command(std::string_view input, const Arguments& options) const {
    Arguments arguments{"postprocess", path(input)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return arguments;
  }
  void carriers(std::string_view name, const std::vector<uint64>& words) const {
    save(dir_ / name, DType::kU64, {words.size()}, words);
  }
  bool exists(std::string_view name) const { return std::filesystem::exists(dir_ / name); }

  TempDir dir_;
};

TEST_F(Postprocess, ScalarModes) {
  ASSERT_TRUE(succeeds(run(command("s32.npy", {"--pre-quant", "REQ8", "--scale", "2", "--sat", "-o", path("d.npy")}))));
  EXPECT_EQ(elements_of<std::int8_t>(dir_ / "d.npy", DType::kI8),
            (std::vector<std::int8_t>{6, -10, 127, 127, -128, 0}));
  const Outcome outcome = run(command("f32.npy", {"--pre-quant", "24", "--scale", "0x0000000040000000", "--json"}));
  EXPECT_TRUE(succeeds(outcome));
  EXPECT_EQ(outcome.json()["pre_quant"], "QF322B8_PRE");
  EXPECT_EQ(outcome.json()["d"]["type"], "S8");
  EXPECT_EQ(outcome.json()["flags"], Json({"OF", "NX"}));
  ASSERT_TRUE(
      succeeds(run(command("s32.npy", {"--pre-quant", "SHIFTS322S16", "--scale", "0x0", "-o", path("d.npy")}))));
  EXPECT_EQ(elements_of<std::int16_t>(dir_ / "d.npy", DType::kI16),
            (std::vector<std::int16_t>{1, -3, 35, 150, -150, 0}));
}

TEST_F(Postprocess, ACarrierPerColumn) {
  carriers("q.npy", {0x3F800000, 0x40000000, 0x00003FE03F800000});  // 1; 2; 1 with offset -1
  ASSERT_TRUE(succeeds(run(
      command("s32.npy", {"--pre-quant", "VREQ8", "--quant-params", path("q.npy"), "--sat", "-o", path("d.npy")}))));
  EXPECT_EQ(elements_of<std::int8_t>(dir_ / "d.npy", DType::kI8),
            (std::vector<std::int8_t>{3, -10, 69, 127, -128, -1}));
}

TEST_F(Postprocess, Activations) {
  const auto d = [&](const Arguments& options) {
    Arguments all = options;
    all.insert(all.end(), {"-o", path("d.npy")});
    EXPECT_TRUE(succeeds(run(command("f32.npy", all))));
    return elements_of<float>(dir_ / "d.npy", DType::kF32);
  };
  EXPECT_EQ(d({"--relu"}), (std::vector<float>{1.5F, 0, 70, 0.25F, 0, 300}));
  EXPECT_EQ(d({"--relu-param", "0.5"}), (std::vector<float>{1.5F, -1, 70, 0.25F, -0.25F, 300}));
  EXPECT_EQ(d({"--relu-param", "0x1F800"}), (std::vector<float>{1.5F, -1, 70, 0.25F, -0.25F, 300}));
  carriers("a.npy", {0, 0x20000, 0});
  EXPECT_EQ(d({"--relu-param", path("a.npy")}), (std::vector<float>{1.5F, -4, 70, 0.25F, -1, 300}));
}

TEST_F(Postprocess, Reductions) {
  save(dir_ / "init.npy", DType::kF32, {2, 1}, std::vector<float>{100, -400});
  ASSERT_TRUE(
      succeeds(run(command("f32.npy", {"--row-max", path("r.npy"), "--group-max", "8:" + path("g.npy"),
                                       "--row-max-init", path("init.npy"), "--max-abs", "-o", path("d.npy")}))));
  EXPECT_EQ(elements_of<float>(dir_ / "r.npy", DType::kF32), (std::vector<float>{100, 400}));
  EXPECT_EQ(elements_of<float>(dir_ / "g.npy", DType::kF32), (std::vector<float>{70, 300}));
  ASSERT_TRUE(succeeds(run(command("u32.npy", {"--row-max", path("r.npy")}))));
  EXPECT_EQ(elements_of<std::uint32_t>(dir_ / "r.npy", DType::kU32), (std::vector<std::uint32_t>{0xFFFFFFFF}));
}

TEST_F(Postprocess, PackedNibbles) {
  ASSERT_TRUE(succeeds(
      run(command("s32.npy", {"--pre-quant", "REQ4", "--scale", "1", "--sat", "--packed", "-o", path("d.npy")}))));
  const auto array = read_npy(dir_ / "d.npy");
  ASSERT_TRUE(array);
  EXPECT_EQ(array->shape, (std::vector<std::uint64_t>{2, 2}));
  EXPECT_EQ(elements_of<std::uint8_t>(dir_ / "d.npy", DType::kU8), (std::vector<std::uint8_t>{0xB3, 0x07, 0x87, 0x00}));
}

TEST_F(Postprocess, MatmulTakesTheSameOptions) {
  save(dir_ / "a.npy", DType::kI8, {2, 1}, std::vector<std::int8_t>{3, -4});
  save(dir_ / "b.npy", DType::kI8, {1, 3}, std::vector<std::int8_t>{1, 2, -30});
  carriers("q.npy", {0x3F800000, 0x40000000, 0x00003FE03F800000});
  ASSERT_TRUE(
      succeeds(run({"matmul", path("a.npy"), path("b.npy"), "--pre-quant", "VREQ8", "--quant-params", path("q.npy"),
                    "--row-max", path("r.npy"), "--group-max", "16:" + path("g.npy"), "-o", path("d.npy")})));
  EXPECT_EQ(elements_of<std::int8_t>(dir_ / "d.npy", DType::kI8), (std::vector<std::int8_t>{3, 12, -91, -4, -16, 119}));
  EXPECT_EQ(elements_of<std::int32_t>(dir_ / "r.npy", DType::kI32), (std::vector<std::int32_t>{6, 120}));
}

TEST_F(Postprocess, Refuses) {
  carriers("q.npy", {0x3F800000, 0x40000000});
  carriers("bad.npy", {0x3F800000, 0x3F800000, 0x00002000});
  carriers("alpha.npy", {0, 0x40000, 0});
  const auto no = [&](std::string_view input, const Arguments& options, std::string_view message) {
    Arguments all = options;
    all.insert(all.end(), {"-o", path("none.npy")});
    EXPECT_TRUE(refuses(command(input, all), message));
    EXPECT_FALSE(exists("none.npy"));
    EXPECT_FALSE(exists("rows.npy"));
  };
  no("f32.npy", {"--pre-quant", "REQ8", "--scale", "1"}, "F3: REQ8 takes S32 accumulators, but these are FP32");
  no("s32.npy", {"--pre-quant", "VREQ8"}, "needs --quant-params");
  no("s32.npy", {"--pre-quant", "VREQ8", "--scale", "1"}, "use REQ8");
  no("s32.npy", {"--pre-quant", "VREQ8", "--quant-params", path("q.npy")},
     "F5: quantisation parameter: 2 words, but the result has 3 columns");
  no("s32.npy", {"--pre-quant", "VREQ8", "--quant-params", path("bad.npy")},
     "column 2: 0x0000000000002000: the FP19 scale is subnormal");
  no("s32.npy", {"--pre-quant", "VREQ8", "--quant-params", path("s32.npy")}, "carriers are uint64");
  no("s32.npy", {"--pre-quant", "REQ8", "--quant-params", path("q.npy")}, "give --scale");
  no("s32.npy", {"--pre-quant", "REQ8"}, "needs --scale");
  for (const std::string scale : {"0", "-1", "inf", "nan", "1e-40", "0x00000000BF800000", "0x000000003F800001"}) {
    EXPECT_EQ(run(command("s32.npy", {"--pre-quant", "REQ8", "--scale", scale})).exit, 2) << scale;
  }
  no("f32.npy", {"--relu-param", path("alpha.npy")}, "F6: activation parameter column 1");
  no("f32.npy", {"--relu-param", "-0.5"}, "F1: activation parameter");
  no("f32.npy", {"--relu", "--relu-param", "1"}, "two activations");
  no("f32.npy", {"--sat"}, "C9: NoQuant");
  no("f32.npy", {"--round", "rtz"}, "C9: NoQuant");
  no("f32.npy", {"--group-max", "24:" + path("rows.npy")}, "GroupN 24");
  no("f32.npy", {"--group-max", path("rows.npy")}, "is not N:FILE");
  no("f32.npy", {"--max-abs"}, "MaxAbs needs");
  no("f32.npy", {"--row-max-init", path("f32.npy"), "--row-max", path("rows.npy")}, "--row-max-init");
  no("f32.npy", {"--packed"}, "--packed");
  no("q.npy", {}, "accumulators are float32");
  EXPECT_TRUE(refuses(command("f32.npy", {"--row-max", path("f32.npy")}), "f32.npy"));
  EXPECT_TRUE(refuses(command("f32.npy", {"--row-max", path("x.npy"), "-o", path("x.npy")}), "x.npy"));
  EXPECT_FALSE(exists("x.npy"));
}

// All files of a call appear, or none.
TEST_F(Postprocess, NothingAppearsWhenOneFileFails) {
  EXPECT_EQ(run(command("f32.npy", {"-o", path("d.npy"), "--row-max", "/dev/full"})).exit, 2);
  EXPECT_FALSE(exists("d.npy"));
  EXPECT_EQ(run(command("f32.npy", {"-o", path("d.npy"), "--row-max", path("missing/r.npy")})).exit, 2);
  EXPECT_FALSE(exists("d.npy"));
}

// The golden elements, one call per combination of controls: rows with the same controls become one array, and each
// column has its own carriers where the mode allows that.
TEST_F(Postprocess, GoldenElements) {
  const Csv csv("postprocess.csv");
  struct Batch {
    std::vector<std::uint32_t> words, results;
    std::vector<uint64> quant, alpha;
    uint64 flags = 0;
  };
  std::map<std::vector<std::string>, Batch> batches;
  for (const auto& fields : csv.rows()) {
    const Row row(csv, fields);
    const PreQuantMode& mode = *find_prequant(static_cast<unsigned>(row.word("pre_quant_mode")));
    if (!mode.per_column || row.text("relu_mode") == "2") continue;
    if (mode.carrier == CarrierKind::shift && row.text("relu_mode") != "0") continue;
    const bool fixed = mode.rounding_rule == RoundingRule::fixed;
    Batch& b = batches[{std::string(mode.name), std::string(row.text("relu_mode")),
                        fixed ? "" : std::string(row.text("rounding")), std::string(row.text("sat"))}];
    b.words.push_back(static_cast<std::uint32_t>(row.word("value")));
    b.results.push_back(static_cast<std::uint32_t>(row.word("result")));
    b.quant.push_back(row.word("quant_param"));
    b.alpha.push_back(row.word("relu_param"));
    b.flags |= row.word("flags");
  }
  ASSERT_GT(batches.size(), 50U);
  for (const auto& [key, b] : batches) {
    const PreQuantMode& mode = *find_prequant(std::string_view(key[0]));
    save(dir_ / "acc.npy", mode.accumulator == DataType::fp32 ? DType::kF32 : DType::kI32, {1, b.words.size()},
         b.words);
    carriers("q.npy", b.quant);
    carriers("alpha.npy", b.alpha);
    Arguments arguments{"--pre-quant", key[0], "--quant-params", path("q.npy"), "--profile",
                        "asl",         "-o",   path("d.npy"),    "--json"};
    if (key[1] == "1") arguments.push_back("--relu");
    if (key[1] == "3") arguments.insert(arguments.end(), {"--relu-param", path("alpha.npy")});
    if (!key[2].empty()) arguments.insert(arguments.end(), {"--round", key[2]});
    if (key[3] == "1") arguments.push_back("--sat");
    const Outcome outcome = run(command("acc.npy", arguments));
    ASSERT_EQ(outcome.exit, 0) << key[0] << outcome.err;
    const Format& to = format_of(mode.destination);
    const auto array = read_npy(dir_ / "d.npy");
    ASSERT_TRUE(array);
    const std::size_t bytes = array->element_size();
    for (std::size_t i = 0; i < b.words.size(); ++i) {
      uint64 got = 0;
      ASSERT_TRUE(array->read(i * bytes, std::as_writable_bytes(std::span(&got, 1)).first(bytes)));
      ASSERT_EQ(got & low_mask(to.lane_bits), b.results[i] & low_mask(to.lane_bits)) << key[0] << " " << i;
    }
    Json expected = Json::array();
    for (const FlagName& f : flag_names) {
      if ((b.flags & static_cast<uint64>(f.flag)) != 0) expected.push_back(f.name);
    }
    EXPECT_EQ(outcome.json()["flags"], expected) << key[0];
  }
}

}  // namespace
}  // namespace bitcube::test
