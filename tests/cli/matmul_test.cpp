#include <fmt/format.h>
#include <nettle/sha2.h>
#include <sys/stat.h>

#include <cstring>

#include "bitcube/cube/operand.hpp"
#include "bitcube/quantize/lines.hpp"
#include "cli/program.hpp"
#include "oracle/worked_rows.hpp"
#include "support/csv.hpp"

namespace bitcube::test {
namespace {

std::string sha256_of(std::span<const std::byte> bytes) {
  std::array<std::uint8_t, SHA256_DIGEST_SIZE> digest{};
  sha256_ctx state;
  sha256_init(&state);
  sha256_update(&state, bytes.size(), reinterpret_cast<const std::uint8_t*>(bytes.data()));
  sha256_digest(&state, digest.size(), digest.data());
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

class Matmul : public testing::Test {
 protected:
  void SetUp() override {
    save(dir_ / "a.npy", DType::kF32, {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
    save(dir_ / "b.npy", DType::kF32, {3, 2}, std::vector<float>{1, -2, 0.5F, 1, -1, 2});
    save(dir_ / "a8.npy", DType::kI8, {2, 3}, std::vector<std::int8_t>{1, 2, 3, 4, 5, 6});
    save(dir_ / "b8.npy", DType::kI8, {3, 2}, std::vector<std::int8_t>{1, -2, 3, 1, -1, 20});
  }

  std::string path(std::string_view name) const { return dir_ / name; }
  Arguments command(std::string_view a, std::string_view b, const Arguments& options = {},
                    std::string_view output = "d.npy") const {
    Arguments arguments{"matmul", path(a), path(b), "-o", path(output)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return arguments;
  }
  template <typename Element>
  std::vector<Element> result(DType dtype) const {
    return elements_of<Element>(dir_ / "d.npy", dtype);
  }

  TempDir dir_;
};

TEST_F(Matmul, PrintsWhatItDid) {
  const Outcome outcome = run(command("a.npy", "b.npy", {"--json"}));
  EXPECT_TRUE(succeeds(outcome));
  const auto d = result<float>(DType::kF32);
  EXPECT_EQ(d, (std::vector<float>{-1, 6, 0.5F, 9}));
  const Json json = outcome.json();
  EXPECT_EQ(json["m"], 2);
  EXPECT_EQ(json["n"], 2);
  EXPECT_EQ(json["k"], 3);
  EXPECT_EQ(json["profile"], "fma");
  EXPECT_EQ(json["accumulator"], "FP32");
  EXPECT_EQ(json["d"], Json::parse(R"({"type": "FP32", "dtype": "float32", "shape": [2, 2]})"));
  EXPECT_EQ(json["flags"], Json::array());
  EXPECT_EQ(json["sha256"], sha256_of(std::as_bytes(std::span(d))));
  const Outcome text = run({"matmul", path("a.npy"), path("b.npy")});
  EXPECT_TRUE(succeeds(text));
  const std::vector<std::string> parts{"2 x 3", "fma, FP32 accumulator, K = 3", "NoQuant, profile pto", json["sha256"],
                                       "\n -1  6\n0.5  9\n"};
  for (const std::string& line : parts) {
    EXPECT_NE(text.out.find(line), std::string::npos) << line;
  }
}

TEST_F(Matmul, BiasAndC) {
  save(dir_ / "bias.npy", DType::kF32, {2}, std::vector<float>{10, 20});
  save(dir_ / "bias2.npy", DType::kF32, {1, 2}, std::vector<float>{10, 20});
  save(dir_ / "c.npy", DType::kF32, {2, 2}, std::vector<float>{100, 200, 300, 400});
  for (const std::string bias : {"bias.npy", "bias2.npy"}) {
    ASSERT_TRUE(succeeds(run(command("a.npy", "b.npy", {"--bias", path(bias), "--c", path("c.npy")}))));
    EXPECT_EQ(result<float>(DType::kF32), (std::vector<float>{109, 226, 310.5F, 429}));
  }
  ASSERT_TRUE(succeeds(run(command("a.npy", "b.npy", {"--relu"}))));
  EXPECT_EQ(result<float>(DType::kF32), (std::vector<float>{0, 6, 0.5F, 9}));
  save(dir_ / "bias.npy", DType::kI32, {2}, std::vector<std::int32_t>{10, -20});
  ASSERT_TRUE(succeeds(run(command("a8.npy", "b8.npy", {"--bias", path("bias.npy")}))));
  EXPECT_EQ(result<std::int32_t>(DType::kI32), (std::vector<std::int32_t>{14, 40, 23, 97}));
}

TEST_F(Matmul, ResultTypes) {
  ASSERT_TRUE(succeeds(run(command("a.npy", "b.npy", {"--pre-quant", "F322F16"}))));
  EXPECT_EQ(result<std::uint16_t>(DType::kF16), (std::vector<std::uint16_t>{0xBC00, 0x4600, 0x3800, 0x4880}));
  ASSERT_TRUE(succeeds(run(command("a.npy", "b.npy", {"--pre-quant", "16"}))));
  EXPECT_EQ(result<std::uint16_t>(DType::kU16), (std::vector<std::uint16_t>{0xBF80, 0x40C0, 0x3F00, 0x4110}));
  ASSERT_TRUE(succeeds(run(command("a.npy", "b.npy", {"--pre-quant", "QF322B8_PRE", "--scale", "2", "--offset=-1"}))));
  EXPECT_EQ(result<std::int8_t>(DType::kI8), (std::vector<std::int8_t>{-3, 11, 0, 17}));
  ASSERT_TRUE(succeeds(run(command("a.npy", "b.npy", {"--pre-quant", "qf322fp8_pre", "--scale", "0x1p0"}))));
  EXPECT_EQ(result<std::uint8_t>(DType::kU8), (std::vector<std::uint8_t>{0xB8, 0x4C, 0x30, 0x51}));
  ASSERT_TRUE(succeeds(run(command("a8.npy", "b8.npy", {"--pre-quant", "DEQS16", "--scale", "0.5"}))));
  EXPECT_EQ(result<std::int16_t>(DType::kI16), (std::vector<std::int16_t>{2, 30, 6, 58}));
  const Outcome packed =
      run(command("a8.npy", "b8.npy", {"--pre-quant", "REQ4", "--scale", "0.25", "--json", "--offset", "-3"}));
  ASSERT_TRUE(succeeds(packed));
  const auto lanes = result<std::int8_t>(DType::kI8);
  EXPECT_EQ(lanes, (std::vector<std::int8_t>{-2, -4, 0, -4}));  // S5 saturates to 15, then the low 4 bits of 12
  EXPECT_EQ(packed.json()["sha256"], sha256_of(std::as_bytes(std::span(lanes))));
  EXPECT_EQ(packed.json()["flags"], Json::parse(R"(["OF", "NX"])"));
  ASSERT_TRUE(succeeds(run(command("a8.npy", "b8.npy", {"--pre-quant", "SHIFTS322S16", "--scale", "0x100000000"}))));
  EXPECT_EQ(result<std::int16_t>(DType::kI16), (std::vector<std::int16_t>{1, 15, 3, 29}));
}

TEST_F(Matmul, Scales) {
  const Arguments mode{"--pre-quant", "REQ8"};
  const auto with = [&](const Arguments& options) {
    Arguments all = mode;
    all.insert(all.end(), options.begin(), options.end());
    return command("a8.npy", "b8.npy", all);
  };
  const Outcome rounded = run(with({"--scale", "0.3"}));
  EXPECT_EQ(rounded.exit, 0);
  EXPECT_EQ(rounded.err, "bitcube: warning: --scale: 0.3 is not an FP19 number; 0.30004883 is used\n");
  EXPECT_TRUE(succeeds(run(with({"--scale", "0.25"}))));
  EXPECT_TRUE(succeeds(run(with({"--scale", "0x000000A03F800000"}))));
  EXPECT_EQ(result<std::int8_t>(DType::kI8), (std::vector<std::int8_t>{9, 65, 18, 122}));
  std::filesystem::remove(dir_ / "d.npy");

  for (const std::string scale : {"0", "-1", "inf", "nan", "1e-40", "1e39", "-0.0"}) {
    EXPECT_TRUE(refuses(with({"--scale", scale}), "a scale must be positive and normal"));
  }
  EXPECT_TRUE(refuses(with({"--scale", "half"}), "--scale: 'half': no digits"));
  EXPECT_TRUE(refuses(with({"--scale", "0x3F800001"}), "unused carrier bits must be zero"));
  EXPECT_TRUE(refuses(with({"--scale", "0x3F800000", "--offset", "1"}), "--offset: the carrier word"));
  EXPECT_TRUE(refuses(with({"--scale", "1", "--offset", "256"}), "--offset: 256 does not fit the 9 bits of REQ8"));
  EXPECT_TRUE(refuses(with({"--scale", "1", "--offset", "-257"}), "--offset: -257 does not fit"));
  EXPECT_TRUE(refuses(with({"--scale", "1", "--offset", "x"}), "--offset"));
  EXPECT_TRUE(refuses(with({}), "REQ8 needs --scale"));
  EXPECT_TRUE(refuses(command("a8.npy", "b8.npy", {"--scale", "1"}), "--scale: NoQuant takes none"));
  EXPECT_TRUE(refuses(command("a8.npy", "b8.npy", {"--offset", "1"}), "--offset: NoQuant takes none"));
  EXPECT_TRUE(refuses(command("a8.npy", "b8.npy", {"--pre-quant", "DEQF16", "--scale", "1", "--offset", "0"}),
                      "--offset: DEQF16 takes none"));
  EXPECT_TRUE(refuses(command("a8.npy", "b8.npy", {"--pre-quant", "VREQ8", "--scale", "1"}), "use REQ8"));
  EXPECT_TRUE(refuses(command("a8.npy", "b8.npy", {"--pre-quant", "SHIFTS322S16", "--scale", "4"}),
                      "0x0300000000 for a shift by 4"));
  EXPECT_TRUE(refuses(command("a8.npy", "b8.npy", {"--pre-quant", "REQ9", "--scale", "1"}), "did you mean REQ8?"));
  EXPECT_TRUE(refuses(command("a8.npy", "b8.npy", {"--pre-quant", "6", "--scale", "1"}), "code 6 is reserved"));
  EXPECT_TRUE(refuses(command("a8.npy", "b8.npy", {"--pre-quant", "F322F16"}), "F322F16 takes FP32 accumulators"));
  EXPECT_TRUE(refuses(command("a.npy", "b.npy", {"--pre-quant", "F322F16", "--round", "rtz"}), "fixed rounding"));
  EXPECT_TRUE(refuses(command("a.npy", "b.npy", {"--sat"}), "NoQuant does not take saturation"));
  EXPECT_TRUE(refuses(command("a.npy", "b.npy", {"--round", "near"}), "--round: unknown name 'near'"));
  EXPECT_TRUE(refuses(command("a.npy", "b.npy", {"--profile", "paper"}), "choose from pto, asl, ocp"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "d.npy"));
}

TEST_F(Matmul, PackedOperands) {
  std::vector<float> x(3 * 70);
  std::vector<float> w(70 * 2);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7 % 29) - 14) / 4;
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(static_cast<int>(i * 5 % 23) - 11) / 8;
  save(dir_ / "x.npy", DType::kF32, {3, 70}, x);
  save(dir_ / "w.npy", DType::kF32, {70, 2}, w);
  for (const std::string format : {"hif4", "mxfp8-e4m3", "mxfp4", "mxfp4-e1m2"}) {
    const auto pack = [&](const std::string& name, const std::string& axis) {
      EXPECT_TRUE(
          succeeds(run({"quantize", path(name + ".npy"), "--format", format, "--axis", axis, "-o", path(name)})));
      EXPECT_TRUE(succeeds(run({"dequantize", path(name), "-o", path(name + "d.npy")})));
    };
    pack("x", "1");
    pack("w", "0");
    // The dequantised matrices hold the same values, so every profile that knows no groups gives the same bits.
    for (const std::string profile : {"fma", "two-step", "exact"}) {
      const Json packed = run(command("x", "w", {"--json", "--accumulate", profile})).json();
      const Json plain = run(command("xd.npy", "wd.npy", {"--json", "--accumulate", profile})).json();
      EXPECT_EQ(packed["sha256"], plain["sha256"]) << format << " " << profile;
      EXPECT_EQ(packed["a"]["format"], format);
    }
    EXPECT_TRUE(refuses(command("x", "x"), "quantised along axis 1, but K of B is axis 0"));
    EXPECT_TRUE(refuses(command("w", "w"), "quantised along axis 0, but K of A is axis 1"));
    EXPECT_TRUE(refuses(command("x.npy", "w"), "A: FP32 has no scale"));
    EXPECT_TRUE(refuses(command("x", "w", {"--a-type", "e4m3"}), "--a-type"));
    EXPECT_TRUE(refuses(command("x", "w", {"--b-scales", path("x.npy")}), "--b-scales"));
    EXPECT_TRUE(refuses(command("x", "w", {"--a-name", "y"}), "no quantised tensor \"y\""));
  }
  ASSERT_TRUE(succeeds(run({"quantize", path("x.npy"), "--format", "nvfp4", "-o", path("x")})));
  EXPECT_TRUE(refuses(command("x", "w"), "nvfp4 is no operand of the product"));
}

TEST_F(Matmul, SameBytesForAnyThreadCount) {
  std::vector<float> x(150 * 33);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7 % 1009) - 500) / 3.0F;
  save(dir_ / "x.npy", DType::kF32, {150, 33}, x);
  save(dir_ / "y.npy", DType::kF32, {33, 150}, x);
  ASSERT_TRUE(succeeds(run(command("x.npy", "y.npy", {"--threads", "1"}, "one"))));
  ASSERT_TRUE(succeeds(run(command("x.npy", "y.npy", {"--threads", "2"}, "two"))));
  EXPECT_EQ(read_text(dir_ / "one"), read_text(dir_ / "two"));
}

TEST_F(Matmul, Refuses) {
  EXPECT_TRUE(refuses(command("a.npy", "a.npy"), "B: 2 rows, but A has K = 3"));
  EXPECT_TRUE(refuses(command("a.npy", "b8.npy"), "A is FP32 and B is S8"));
  EXPECT_TRUE(refuses(command("a.npy", "none.npy"), "none.npy: No such file"));
  EXPECT_TRUE(refuses(command("a.npy", "b.npy", {"--accumulate", "fmaa"}), "did you mean fma?"));
  EXPECT_TRUE(refuses(command("a.npy", "b.npy", {"--a-type", "e4m3"}), "float32 elements have 32 bits"));
  EXPECT_TRUE(refuses(command("a8.npy", "b8.npy", {"--a-type", "e4m5"}), "--a-type: unknown name 'e4m5'"));
  EXPECT_TRUE(refuses(command("a.npy", "b.npy", {"--bias", path("a.npy")}), "2 x 3, but it must be 2 or 1 x 2"));
  EXPECT_TRUE(refuses(command("a.npy", "b.npy", {"--c", path("a.npy")}), "2 x 3, but it must be 2 x 2"));
  EXPECT_TRUE(refuses(command("a8.npy", "b8.npy", {"--bias", path("a.npy")}), "the accumulator is S32"));
  EXPECT_TRUE(refuses(command("a.npy", "b.npy", {}, "a.npy"), "a.npy: is also an input"));
  EXPECT_TRUE(refuses(command("a.npy", "b.npy", {"--row-max", path("d.npy")}, "d.npy"),
                      "d.npy: two outputs go to this file; give each its own name"));
  EXPECT_TRUE(refuses(command("a.npy", "b.npy", {}, "none/d.npy"), "none/d.npy: No such file"));
  EXPECT_TRUE(refuses(command("a8.npy", "b8.npy", {"--a-type", "e2m1", "--a-scales", path("a8.npy")}),
                      "the scales of E2M1X2 are uint8"));
  save(dir_ / "s.npy", DType::kU8, {2, 2}, std::vector<std::uint8_t>{127, 127, 127, 127});
  EXPECT_TRUE(refuses(command("a8.npy", "b8.npy", {"--a-type", "e2m1", "--a-scales", path("s.npy")}),
                      "the scales of A must be 2 x 1"));
  EXPECT_TRUE(refuses(command("a8.npy", "b8.npy", {"--b-type", "s4"}), "element 5 is 0x14, beyond a lane of S4X2"));
  save(dir_ / "d64.npy", DType::kF64, {1, 1}, std::vector<double>{1});
  EXPECT_TRUE(refuses(command("d64.npy", "b.npy"), "float64 is no operand type"));
  save(dir_ / "v.npy", DType::kF32, {3}, std::vector<float>{1, 2, 3});
  EXPECT_TRUE(refuses(command("v.npy", "b.npy"), "a matrix of 2 dimensions"));
  save(dir_ / "e.npy", DType::kF32, {0, 3}, std::vector<float>{});
  EXPECT_TRUE(refuses(command("e.npy", "b.npy"), "every dimension must be at least 1"));
  const std::string whole = read_text(dir_ / "a.npy");
  write_text(dir_ / "t.npy", whole.substr(0, whole.size() - 1));
  EXPECT_TRUE(refuses(command("t.npy", "b.npy"), "t.npy: "));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "d.npy"));
}

TEST_F(Matmul, NothingAppearsWhenTheReportCannotBeWritten) {
  struct stat status {};
  ASSERT_TRUE(::stat("/dev/full", &status) == 0 && S_ISCHR(status.st_mode)) << "/dev/full is no device";
  EXPECT_TRUE(refuses(command("a.npy", "b.npy"), "No space left", {.output_path = "/dev/full"}));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "d.npy"));
  EXPECT_EQ(run({"matmul", path("a.npy"), path("b.npy"), "-o", "/dev/full"}).exit, 2);
}

/// One output element in the form of accumulate.csv.
struct Element {
  std::string profile;
  std::string a_type, b_type;
  std::string a, a_scales, b, b_scales, c, bias;  // hexadecimal digits; empty where there is none
  std::uint32_t result = 0;
};

class GoldenProducts : public Matmul {
 protected:
  /// Writes words of some hexadecimal digits each as a matrix of unsigned elements.
  void save_words(std::string_view name, std::string_view text, std::size_t digits,
                  const std::vector<std::uint64_t>& shape) const {
    const std::size_t bytes = std::max<std::size_t>(1, digits / 2);
    const auto words = hex_words(text, digits);
    std::vector<std::byte> payload(words.size() * bytes);
    for (std::size_t i = 0; i < words.size(); ++i) store_word(payload.data() + i * bytes, bytes, words[i]);
    save(dir_ / name, bytes == 1 ? DType::kU8 : bytes == 2 ? DType::kU16 : DType::kU32, shape, payload);
  }

  void check(const Element& row) const {
    const Format& a = *find_format(row.a_type);
    const Format& b = *find_format(row.b_type);
    const auto digits = [](const Format& f) { return f.lane_bits / std::size_t{4}; };
    const std::size_t k = row.a.size() / digits(a);
    save_words("ga.npy", row.a, digits(a), {1, k});
    save_words("gb.npy", row.b, digits(b), {k, 1});
    Arguments options{"--a-type", row.a_type, "--b-type", row.b_type, "--accumulate", row.profile};
    const auto scales = [&](const Format& f, const std::string& text, const std::string& option, bool rows) {
      if (text.empty()) return;
      const std::size_t groups = (k + scale_group(f) - 1) / scale_group(f);
      const std::string name = rows ? "gas.npy" : "gbs.npy";
      save_words(name, text, f.type == DataType::hif4x2 ? 8 : 2,
                 rows ? std::vector<std::uint64_t>{1, groups} : std::vector<std::uint64_t>{groups, 1});
      options.insert(options.end(), {option, path(name)});
    };
    scales(a, row.a_scales, "--a-scales", true);
    scales(b, row.b_scales, "--b-scales", false);
    const DType accumulator = !a.is_integer()                  ? DType::kF32
                              : a.kind == Kind::signed_integer ? DType::kI32
                                                               : DType::kU32;
    const auto words = [&](const std::string& text, const std::string& option, const std::string& name) {
      if (text.empty()) return;
      save(dir_ / name, accumulator, {1, 1}, std::vector<std::uint32_t>{static_cast<std::uint32_t>(hex(text))});
      options.insert(options.end(), {option, path(name)});
    };
    words(row.c, "--c", "gc.npy");
    words(row.bias, "--bias", "gbias.npy");
    Arguments arguments{"matmul", path("ga.npy"), path("gb.npy"), "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = run(arguments);
    ASSERT_TRUE(succeeds(outcome));
    // The hash is that of the one word, so no file has to be written.
    EXPECT_EQ(outcome.json()["sha256"], sha256_of(std::as_bytes(std::span(&row.result, 1))))
        << row.profile << " " << row.a_type << " " << row.b_type << " " << row.a;
  }
};

TEST_F(GoldenProducts, WorkedRows) {
  const auto text = [](const char* word) { return std::string(word == nullptr ? "" : word); };
  for (const bitcube_rows::AccumulateRow& row : bitcube_rows::kAccumulate) {
    check({row.profile, row.a_type, row.b_type, row.a, text(row.a_scales), row.b, text(row.b_scales), text(row.c),
           text(row.bias), row.result});
  }
}

TEST_F(GoldenProducts, SampleOfTheVectors) {
  const Csv csv("accumulate.csv");
  ASSERT_FALSE(csv.rows().empty());
  constexpr std::size_t every = 11;  // coprime to the number of profiles, so all of them occur
  for (std::size_t i = 0; i < csv.rows().size(); i += every) {
    const auto field = [&](std::string_view column) {
      const std::string_view text = csv.rows()[i][csv.column(column)];
      return text == "-" ? std::string() : std::string(text);
    };
    check({field("profile"), field("a_type"), field("b_type"), field("a"), field("a_scales"), field("b"),
           field("b_scales"), field("c"), field("bias"), static_cast<std::uint32_t>(hex(field("result")))});
  }
}

}  // namespace
}  // namespace bitcube::test
