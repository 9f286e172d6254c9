// bitcube quantize and dequantize.
#include <fmt/format.h>
#include <sys/stat.h>

#include <cmath>
#include <map>
#include <tuple>

#include "bitcube/io/packed.hpp"
#include "cli/program.hpp"
#include "oracle/worked_rows.hpp"
#include "support/csv.hpp"

namespace bitcube::test {
namespace {

/// 5 x 70 numbers of many magnitudes, none of them special.
std::vector<float> sample() {
  std::vector<float> x(5 * 70);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto step = static_cast<int>(i * 37 % 101) - 50;
    x[i] = std::ldexp(static_cast<float>(step), static_cast<int>(i % 7) - 8);
  }
  return x;
}

class Quantize : public testing::Test {
 protected:
  void SetUp() override { save(dir_ / "w.npy", DType::kF32, {5, 70}, sample()); }

  std::string path(std::string_view name) const { return dir_ / name; }
  /// quantize w.npy with these options and an output.
  Arguments command(const Arguments& options, std::string_view output = "w.safetensors") const {
    Arguments arguments{"quantize", path("w.npy"), "-o", path(output)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return arguments;
  }

  TempDir dir_;
};

TEST_F(Quantize, ReportsWhatItDid) {
  const Outcome outcome = run(command({"--format", "hif4", "--json"}));
  EXPECT_TRUE(succeeds(outcome));
  const Json json = outcome.json();
  EXPECT_EQ(json["shape"], Json::parse("[5, 70]"));
  EXPECT_EQ(json["format"], "hif4");
  EXPECT_EQ(json["profile"], "pto");
  EXPECT_EQ(json["axis"], 1);
  EXPECT_EQ(json["groups"], 10);
  EXPECT_EQ(json["bytes"], Json::parse(R"({"codes": 175, "scales": 40})"));
  EXPECT_EQ(json["error"]["lanes"], 350);
  EXPECT_GT(json["error"]["sqnr_db"], 10.0);
  const auto tensor = load_packed(path("w.safetensors"));
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->profile->name, "pto");
  EXPECT_EQ(tensor->shape, (std::vector<std::uint64_t>{5, 70}));
  const Outcome text = run(command({"--format", "mxfp4", "--axis", "0", "--scale", "even"}));
  EXPECT_TRUE(succeeds(text));
  EXPECT_NE(text.out.find("5 x 70  FP32 (float32)"), std::string::npos);
  EXPECT_NE(text.out.find("mxfp4, scale rule even, elements RNE, axis 0"), std::string::npos);
  EXPECT_NE(text.out.find("70 of 32 lanes, the last of each line 5"), std::string::npos);
}

TEST_F(Quantize, SourceTypes) {
  const auto source_of = [&](DType dtype, const auto& elements, const Arguments& options) {
    save(dir_ / "w.npy", dtype, {elements.size()}, elements);
    Arguments arguments = command({"--format", "mxfp8-e4m3", "--json"});
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = run(arguments);
    EXPECT_TRUE(succeeds(outcome));
    const Json json = outcome.json();
    return json["source"].get<std::string>() + ", " + json["source_remark"].get<std::string>();
  };
  const std::vector<std::uint16_t> words{0x3F80, 0x4000};
  EXPECT_EQ(source_of(DType::kU16, words, {}), "BF16, uint16, read as BF16 bits");
  EXPECT_EQ(source_of(DType::kBF16, words, {}), "BF16, bfloat16");
  EXPECT_EQ(source_of(DType::kF16, words, {}), "FP16, float16");
  EXPECT_EQ(source_of(DType::kF64, std::vector<double>{1.5}, {}), "FP64, float64");
  EXPECT_EQ(source_of(DType::kU16, words, {"--source-type", "fp16"}), "FP16, uint16, read as FP16 bits");
  EXPECT_EQ(source_of(DType::kU8, std::vector<std::uint8_t>{0x38}, {"--source-type", "e4m3"}),
            "E4M3, uint8, read as E4M3 bits");
  EXPECT_EQ(source_of(DType::kF32, std::vector<float>{1.00390625F}, {"--source-type", "bf16"}),
            "BF16, float32, rounded to BF16 (RNE, flags NX)");
}

TEST_F(Quantize, DequantizeGivesTheValuesBack) {
  ASSERT_TRUE(succeeds(run(command({"--format", "mxfp8-e5m2", "--axis", "0"}))));
  const auto tensor = load_packed(path("w.safetensors"));
  ASSERT_TRUE(tensor);
  const auto expected = dequantize(*tensor, fp32);
  ASSERT_TRUE(expected);
  const Outcome outcome = run({"dequantize", path("w.safetensors"), "-o", path("back.npy"), "--json"});
  EXPECT_TRUE(succeeds(outcome));
  EXPECT_EQ(outcome.json()["shape"], Json::parse("[5, 70]"));
  const auto back = elements_of<float>(dir_ / "back.npy", DType::kF32);
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(back)), expected->bytes));

  EXPECT_TRUE(succeeds(run({"dequantize", path("w.safetensors"), "-o", path("h.npy"), "--to", "fp16"})));
  EXPECT_EQ(elements_of<std::uint16_t>(dir_ / "h.npy", DType::kF16).size(), 350U);
  const Outcome bf16_outcome = run({"dequantize", path("w.safetensors"), "-o", path("b.npy"), "--to", "BF16"});
  EXPECT_EQ(bf16_outcome.exit, 0);
  EXPECT_NE(bf16_outcome.err.find("note: NumPy has no bfloat16"), std::string::npos);
  EXPECT_EQ(elements_of<std::uint16_t>(dir_ / "b.npy", DType::kU16).size(), 350U);
}

TEST_F(Quantize, AxesBeyondTheIntegers) {
  // As arrays and as checkpoints: no number is taken for the largest one.
  for (const std::string axis :
       {"9223372036854775808", "-9223372036854775809", "1000000000000000000000000000000", "x", "1.0", "0x1", "1 "}) {
    EXPECT_TRUE(refuses(command({"--format", "hif4", "--axis", axis}), "is no whole number of 64 bits")) << axis;
  }
  EXPECT_TRUE(refuses(command({"--format", "hif4", "--axis", "9223372036854775807"}),
                      "--axis: 9223372036854775807 is outside of"));
}

TEST_F(Quantize, SameBytesForAnyThreadCount) {
  for (const std::string format : {"hif4", "mxfp4", "nvfp4"}) {
    ASSERT_TRUE(succeeds(run(command({"--format", format, "--threads", "1"}, "one"))));
    ASSERT_TRUE(succeeds(run(command({"--format", format, "--threads", "2"}, "two"))));
    EXPECT_EQ(read_text(dir_ / "one"), read_text(dir_ / "two"));
  }
}

TEST_F(Quantize, Goldens) {
  std::filesystem::create_directory(dir_ / "g");
  ASSERT_TRUE(succeeds(run(command({"--format", "hif4", "--goldens", path("g")}))));
  EXPECT_EQ(read_text(dir_ / "g/golden_fp4.bin").size(), 10U * 32);
  EXPECT_EQ(read_text(dir_ / "g/golden_scale.bin").size(), 10U * 32);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "g/golden_max4.bin"));
  ASSERT_TRUE(
      succeeds(run(command({"--format", "hif4", "--goldens", path("g"), "--maxima", "--source-type", "bf16"}))));
  EXPECT_EQ(read_text(dir_ / "g/golden_max64.bin").size(), 10U * 2);
}

TEST_F(Quantize, RefusesOptions) {
  EXPECT_TRUE(refuses(command({"--format", "hif5"}), "--format: unknown name 'hif5'; did you mean hif4?"));
  EXPECT_TRUE(refuses(command({"--format", "hif4", "--profile", "ptoo"}), "choose from pto, pto-a6, paper"));
  EXPECT_TRUE(refuses(command({"--format", "mxfp4", "--profile", "pto"}), "--profile: mxfp4 has none"));
  EXPECT_TRUE(refuses(command({"--format", "hif4", "--scale", "floor"}), "--scale: hif4 has none"));
  EXPECT_TRUE(refuses(command({"--format", "nvfp4", "--scale", "floor"}), "--scale: nvfp4 has none"));
  EXPECT_TRUE(refuses(command({"--format", "mxfp4", "--scale", "flor"}), "did you mean floor?"));
  EXPECT_TRUE(refuses(command({"--format", "hif4", "--round", "rne"}), "--round: the rounding of hif4"));
  EXPECT_TRUE(refuses(command({"--format", "mxfp4", "--tensor-scale"}), "--tensor-scale: mxfp4 has none"));
  EXPECT_TRUE(refuses(command({"--format", "mxfp4", "--goldens", path("")}), "--goldens: mxfp4 has none"));
  EXPECT_TRUE(refuses(command({"--format", "hif4", "--maxima"}), "--maxima: needs --goldens"));
  EXPECT_TRUE(refuses(command({"--format", "hif4", "--axis", "2"}), "--axis: 2 is outside of 5 x 70"));
  EXPECT_TRUE(refuses(command({"--format", "hif4", "--axis", "-3"}), "--axis: -3 is outside"));
  EXPECT_TRUE(refuses(command({"--format", "hif4", "--axis", "K"}), "--axis"));
  EXPECT_TRUE(refuses(command({"--format", "hif4", "--source-type", "s8"}), "nothing is quantised from S8"));
  EXPECT_TRUE(refuses({"quantize", path("w.npy"), "--format", "hif4"}, "--output is required"));
  EXPECT_EQ(dir_.names(), std::set<std::string>{"w.npy"});
}

TEST_F(Quantize, RefusesFiles) {
  const Arguments hif4{"--format", "hif4"};
  EXPECT_TRUE(refuses(command(hif4, "none/w"), "none/w: No such file or directory"));
  EXPECT_TRUE(refuses(command(hif4, "w.npy"), "w.npy: is also an input"));
  EXPECT_TRUE(refuses(command(hif4, "../" + dir_.path().filename().string() + "/w.npy"), "is also an input"));
  EXPECT_TRUE(refuses(command(hif4, ""), "is a directory"));
  EXPECT_TRUE(refuses(command({"--format", "hif4", "--goldens", path("none")}), "none/golden_fp4.bin"));
  save(dir_ / "w.npy", DType::kF32, {1, 2}, std::vector<float>{1, 1.001F});
  EXPECT_TRUE(refuses(command({"--format", "hif4", "--goldens", dir_.path(), "--maxima"}), "is not a BF16 value"));
  EXPECT_TRUE(refuses({"quantize", path("v.npy"), "--format", "hif4", "-o", path("x")}, "v.npy: No such file"));

  const std::string whole = read_text(dir_ / "w.npy");
  for (const std::size_t size : {std::size_t{0}, std::size_t{20}, whole.size() - 1}) {
    write_text(dir_ / "w.npy", whole.substr(0, size));
    EXPECT_TRUE(refuses(command(hif4), "w.npy: "));
  }
  save(dir_ / "w.npy", DType::kI32, {2}, std::vector<std::int32_t>{1, 2});
  EXPECT_TRUE(refuses(command(hif4), "int32 elements; accepted are float16, float32, float64"));
  save(dir_ / "w.npy", DType::kU8, {2}, std::vector<std::uint8_t>{1, 2});
  EXPECT_TRUE(refuses(command(hif4), "uint8 elements; accepted are"));
  EXPECT_TRUE(refuses(command({"--format", "hif4", "--source-type", "bf16"}), "uint8 elements have 8 bits"));
  save(dir_ / "w.npy", DType::kF32, {}, std::vector<float>{1});
  EXPECT_TRUE(refuses(command(hif4), "--axis: the array is a scalar"));
  EXPECT_EQ(dir_.names(), std::set<std::string>{"w.npy"});
}

TEST_F(Quantize, NothingAppearsWhenTheReportCannotBeWritten) {
  struct stat status {};
  ASSERT_TRUE(::stat("/dev/full", &status) == 0 && S_ISCHR(status.st_mode)) << "/dev/full is no device";
  std::filesystem::create_directory(dir_ / "g");
  EXPECT_TRUE(refuses(command({"--format", "hif4", "--goldens", path("g")}), "standard output: No space left",
                      {.output_path = "/dev/full"}));
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "g"));
  EXPECT_TRUE(refuses(command({"--format", "hif4"}), "standard output: Bad file descriptor", {.close_output = true}));
  EXPECT_EQ(dir_.names(), (std::set<std::string>{"g", "w.npy"}));

  // A full disk: the report is out before the file fails.
  const Outcome full = run({"quantize", path("w.npy"), "--format", "hif4", "-o", "/dev/full"});
  EXPECT_EQ(full.exit, 2);
  EXPECT_EQ(full.err, "bitcube: error: /dev/full: No space left on device\n");
  const Outcome both = run({"quantize", path("w.npy"), "--format", "hif4", "-o", "/dev/full", "--goldens", path("g")});
  EXPECT_EQ(both.exit, 2);
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "g"));
}

TEST_F(Quantize, OutputIsNotMixedWithResults) {
  EXPECT_TRUE(
      refuses(command({"--format", "hif4"}, "both"), "standard output goes there", {.output_path = path("both")}));
}

TEST_F(Quantize, DequantizeRefuses) {
  EXPECT_TRUE(refuses({"dequantize", path("w.npy"), "-o", path("x")}, "w.npy: "));
  ASSERT_TRUE(succeeds(run(command({"--format", "hif4", "--name", "layer.0"}))));
  const std::string packed = path("w.safetensors");
  EXPECT_TRUE(refuses({"dequantize", packed, "-o", path("x"), "--to", "e4m3"}, "choose from fp32, fp16, bf16, fp64"));
  EXPECT_TRUE(refuses({"dequantize", packed, "-o", path("x"), "--name", "layer.1"}, "layer.0"));
  EXPECT_TRUE(refuses({"dequantize", packed, "-o", packed}, "is also an input"));
  EXPECT_TRUE(refuses({"dequantize", packed, "-o", path("none/x")}, "none/x: No such file"));
  EXPECT_TRUE(succeeds(run({"dequantize", packed, "-o", path("x"), "--name", "layer.0"})));
  const std::string whole = read_text(packed);
  write_text(packed, whole.substr(0, whole.size() - 1));
  std::filesystem::remove(dir_ / "x");
  EXPECT_TRUE(refuses({"dequantize", packed, "-o", path("x")}, "w.safetensors: "));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "x"));
}

/// One golden group: its lanes, and the scale and the codes that they must give.
struct Group {
  std::vector<std::uint64_t> lanes;
  std::uint64_t scale = 0;
  std::vector<std::uint64_t> codes;
};

/// Quantises the groups as the lines of arrays, one array per length, and compares. Lengths of fewer than `least`
/// groups are not worth a process: the tests of the library have them all.
void check_groups(const TempDir& dir, const std::vector<Group>& groups, std::size_t least, DType dtype,
                  const Arguments& options) {
  std::map<std::size_t, std::vector<const Group*>> by_length;
  for (const Group& group : groups) by_length[group.lanes.size()].push_back(&group);
  for (const auto& [length, lines] : by_length) {
    if (lines.size() < least) continue;
    const std::size_t width = dtype_size(dtype);
    std::vector<std::byte> words(lines.size() * length * width);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      for (std::size_t k = 0; k < length; ++k) {
        store_word(words.data() + (i * length + k) * width, width, lines[i]->lanes[k]);
      }
    }
    save(dir / "groups.npy", dtype, {lines.size(), length}, words);
    Arguments arguments{"quantize", dir / "groups.npy", "-o", dir / "groups.safetensors"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    ASSERT_TRUE(succeeds(run(arguments)));
    const auto tensor = load_packed(dir / "groups.safetensors");
    ASSERT_TRUE(tensor) << tensor.error().message;
    const BlockFormat& f = *tensor->format;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(load_word(tensor->scales.data() + i * f.scale_bytes(), f.scale_bytes()), lines[i]->scale) << i;
      for (std::size_t k = 0; k < length; ++k) {
        const std::byte byte = tensor->codes[i * f.code_bytes(length) + (f.element->is_packed() ? k / 2 : k)];
        const auto word = std::to_integer<std::uint64_t>(byte);
        const std::uint64_t code = !f.element->is_packed() ? word : k % 2 == 0 ? word & 0xF : word >> 4;
        ASSERT_EQ(code, lines[i]->codes[k]) << f.name << " line " << i << " lane " << k;
      }
    }
  }
}

TEST_F(Quantize, GoldenHif4Groups) {
  for (const std::string_view file : {"hif4_groups.csv", "hif4_special.csv"}) {
    const Csv csv(file);
    ASSERT_FALSE(csv.rows().empty()) << file;
    std::map<std::string, std::vector<Group>> by_profile;
    for (const auto& row : csv.rows()) {
      by_profile[std::string(row[csv.column("profile")])].push_back({hex_words(row[csv.column("input_bf16")], 4),
                                                                     hex(row[csv.column("scale_word")]),
                                                                     hex_words(row[csv.column("codes")], 1)});
    }
    EXPECT_GE(by_profile.size(), 3U);
    for (const auto& [profile, groups] : by_profile) {
      check_groups(dir_, groups, 1, DType::kU16, {"--format", "hif4", "--profile", profile});
    }
  }
}

TEST_F(Quantize, GoldenMxGroups) {
  const std::map<std::string, std::string> names{{"E4M3", "mxfp8-e4m3"}, {"E5M2", "mxfp8-e5m2"},
                                                 {"E3M2", "mxfp6-e3m2"}, {"E2M3", "mxfp6-e2m3"},
                                                 {"E2M1X2", "mxfp4"},    {"E1M2X2", "mxfp4-e1m2"}};
  const Csv csv("mx_groups.csv");
  ASSERT_FALSE(csv.rows().empty());
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<Group>> by_choice;
  for (const auto& row : csv.rows()) {
    const std::string element(row[csv.column("format")]);
    const std::string source(row[csv.column("input_type")]);
    const std::size_t digits = element.ends_with("X2") ? 1 : 2;
    by_choice[{element, std::string(row[csv.column("scale_rule")]), source}].push_back(
        {hex_words(row[csv.column("input")], source == "bf16" ? 4 : 8), hex(row[csv.column("scale")]),
         hex_words(row[csv.column("codes")], digits)});
  }
  for (const auto& [choice, groups] : by_choice) {
    const auto& [element, rule, source] = choice;
    Arguments options{"--format", rule == "nvfp4" ? "nvfp4" : names.at(element)};
    if (rule != "nvfp4") options.insert(options.end(), {"--scale", rule});
    if (source == "fp32") options.insert(options.end(), {"--source-type", "fp32"});
    check_groups(dir_, groups, 3, source == "bf16" ? DType::kU16 : DType::kU32, options);
  }
}

}  // namespace
}  // namespace bitcube::test
