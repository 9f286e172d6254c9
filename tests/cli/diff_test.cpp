// bitcube diff as a user runs it.
#include "bitcube/compare/diff.hpp"

#include "cli/program.hpp"

namespace bitcube::test {
namespace {

const std::string kImages = std::string(BITCUBE_SOURCE_DIR) + "/examples/mnist-mlp/images.npy";
const std::string kWeights = std::string(BITCUBE_SOURCE_DIR) + "/examples/mnist-mlp/w0.npy";
const std::string kBias = std::string(BITCUBE_SOURCE_DIR) + "/examples/mnist-mlp/b0.npy";

std::string first_diagnosis(const Outcome& o) {
  const Json json = o.json();
  if (!json.is_object() || !json.contains("diagnoses") || json["diagnoses"].empty()) return "none: " + o.out + o.err;
  const Json& d = json["diagnoses"][0];
  std::string text = d["certainty"];
  for (const auto& id : d["ids"]) text += " " + id.get<std::string>();
  return text;
}

TEST(DiffCommand, TwoDumpsThatDifferByATieRule) {
  const TempDir dir;
  const std::string golden = dir / "golden.bin";
  const std::string dut = dir / "dut.bin";
  ASSERT_EQ(run({"convert", kImages, "--to", "e4m3", "-o", golden}).exit, 0);
  ASSERT_EQ(run({"convert", kImages, "--to", "e4m3", "--round", "rna", "-o", dut}).exit, 0);
  const Arguments command{"diff", golden, dut, "--from-array", kImages, "--to", "e4m3"};
  const Outcome outcome = run(command);
  EXPECT_EQ(outcome.exit, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("other tie rule: RNA instead of RNE"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("result"), std::string::npos);
  EXPECT_NE(outcome.out.find("bitcube explain convert --from U8 --to E4M3 0x"), std::string::npos) << outcome.out;
  Arguments with_json = command;
  with_json.emplace_back("--json");
  const Outcome json = run(with_json);
  EXPECT_EQ(json.exit, 1);
  EXPECT_EQ(first_diagnosis(json), "complete tie-rule");
  EXPECT_FALSE(json.json()["equal"].get<bool>());

  // Without the source it is a hint, and says what would make it certain.
  const Outcome alone = run({"diff", golden, dut, "--format", "e4m3", "--shape", "1000x784", "--json"});
  EXPECT_EQ(alone.exit, 1) << alone.err;
  EXPECT_EQ(first_diagnosis(alone), "hint tie-rule");
  EXPECT_NE(alone.out.find("--from-array"), std::string::npos);

  const Outcome same = run({"diff", golden, golden, "--format", "e4m3"});
  EXPECT_EQ(same.exit, 0) << same.err;
  EXPECT_NE(same.out.find("equal, bit for bit"), std::string::npos);
  EXPECT_EQ(run({"diff", golden, dut, "--format", "e4m3", "--ulp", "1"}).exit, 0);
  EXPECT_EQ(run({"diff", golden, dut, "--format", "e4m3", "--atol", "0.5"}).exit, 1);
}

TEST(DiffCommand, PackedTensors) {
  const TempDir dir;
  const std::string golden = dir / "golden.safetensors";
  const std::string dut = dir / "dut.safetensors";
  const auto quantize = [&](const std::string& to, const Arguments& more) {
    Arguments arguments{"quantize", kWeights, "-o", to, "--name", "w"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments).exit;
  };
  ASSERT_EQ(quantize(golden, {"--format", "mxfp4", "--axis", "0"}), 0);
  ASSERT_EQ(quantize(dut, {"--format", "mxfp4", "--axis", "0", "--scale", "rceil"}), 0);
  const Outcome o = run({"diff", golden, dut, "--source", kWeights, "--json"});
  EXPECT_EQ(o.exit, 1) << o.err;
  EXPECT_EQ(first_diagnosis(o), "complete scale-rule");
  EXPECT_NE(o.json()["explain"].get<std::string>().find("--axis 0"), std::string::npos);
  EXPECT_EQ(run({"diff", golden, golden, "--source", kWeights}).exit, 0);

  ASSERT_EQ(quantize(dut, {"--format", "hif4", "--axis", "0"}), 0);
  EXPECT_TRUE(refuses({"diff", golden, dut}, "holds mxfp4"));
  ASSERT_EQ(quantize(golden, {"--format", "hif4", "--axis", "0", "--profile", "pto-a6"}), 0);
  EXPECT_EQ(first_diagnosis(run({"diff", golden, dut, "--source", kWeights, "--json"})), "complete tie-rule");
}

TEST(DiffCommand, CodesAndScalesOfTheirOwnFiles) {
  const TempDir dir;
  std::vector<std::uint8_t> codes(512);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i * 37 % 251);
  std::vector<std::uint8_t> swapped(codes);
  for (auto& b : swapped) b = static_cast<std::uint8_t>(b << 4 | b >> 4);
  const std::vector<std::uint32_t> scales{0x12345678, 0x9ABCDE70, 0x0F1E2D3C, 0x13579B60, 1, 2,  3,  4,
                                          5,          6,          7,          8,          9, 10, 11, 12};
  write_text(dir / "g.bin", to_text(std::as_bytes(std::span(codes))));
  write_text(dir / "d.bin", to_text(std::as_bytes(std::span(swapped))));
  save(dir / "s.npy", DType::kU32, {4, 4}, scales);
  const Outcome o = run({"diff", dir / "g.bin", dir / "d.bin", "--format", "hif4", "--shape", "4x256", "--scales",
                         dir / "s.npy", dir / "s.npy", "--json"});
  EXPECT_EQ(o.exit, 1) << o.err;
  EXPECT_EQ(first_diagnosis(o), "complete nibble-order");
  EXPECT_EQ(o.json()["parts"].size(), 2U);
  // The same lanes without scales, in a line of 1024.
  EXPECT_EQ(first_diagnosis(run({"diff", dir / "g.bin", dir / "d.bin", "--format", "hif4", "--json"})),
            "complete nibble-order");
}

TEST(DiffCommand, Products) {
  const TempDir dir;
  const std::string w = dir / "w.npy";
  const std::string x = dir / "x.npy";
  const std::string b = dir / "b.npy";
  const auto image = elements_of<std::uint8_t>(kImages, DType::kU8);
  std::vector<float> pixels(32 * 784);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(image[i]) / 255.0F;
  save(x, DType::kF32, {32, 784}, pixels);
  ASSERT_EQ(run({"quantize", x, "--format", "hif4", "--axis", "1", "-o", dir / "x.safetensors"}).exit, 0);
  ASSERT_EQ(run({"quantize", kWeights, "--format", "hif4", "--axis", "0", "-o", dir / "w.safetensors"}).exit, 0);
  const std::string qx = dir / "x.safetensors";
  const std::string qw = dir / "w.safetensors";
  const std::string golden = dir / "d.npy";
  const std::string dut = dir / "dut.npy";
  ASSERT_EQ(
      run({"matmul", qx, qw, "--bias", kBias, "--relu", "--pre-quant", "QF322B8_PRE", "--scale", "8", "-o", golden})
          .exit,
      0);
  ASSERT_EQ(run({"matmul", qx, qw, "--relu", "--pre-quant", "QF322B8_PRE", "--scale", "8", "-o", dut}).exit, 0);
  const Outcome o = run({"diff", golden, dut, "--a", qx, "--b", qw, "--bias", kBias, "--relu", "--pre-quant",
                         "QF322B8_PRE", "--scale", "8", "--json"});
  EXPECT_EQ(o.exit, 1) << o.err;
  EXPECT_EQ(first_diagnosis(o), "complete bias-missing");
  const std::string explain = o.json()["explain"];
  EXPECT_TRUE(explain.starts_with("bitcube explain matmul " + qx + " " + qw + " --at 0,")) << explain;
  EXPECT_TRUE(explain.ends_with(" --bias " + kBias + " --pre-quant QF322B8_PRE --scale 8 --relu")) << explain;
  // GOLDEN has ReLU, and the command line does not say so.
  const Outcome wrong =
      run({"diff", golden, dut, "--a", qx, "--b", qw, "--bias", kBias, "--pre-quant", "QF322B8_PRE", "--scale", "8"});
  EXPECT_EQ(wrong.exit, 1);
  EXPECT_NE(wrong.out.find("GOLDEN is not what bitcube computes"), std::string::npos) << wrong.out;
}

TEST(DiffCommand, LayoutIsUndone) {
  const TempDir dir;
  std::vector<std::uint16_t> golden(64 * 64);
  for (std::size_t i = 0; i < golden.size(); ++i) golden[i] = static_cast<std::uint16_t>(0x3C00 + i % 997);
  std::vector<std::uint16_t> stored;
  for (std::size_t bc = 0; bc < 64; bc += 16) {
    for (std::size_t r = 0; r < 64; ++r) {
      for (std::size_t c = bc; c < bc + 16; ++c) stored.push_back(golden[r * 64 + c]);
    }
  }
  save(dir / "g.npy", DType::kF16, {64, 64}, golden);
  save(dir / "d.npy", DType::kF16, {64, 64}, stored);
  EXPECT_EQ(run({"diff", dir / "g.npy", dir / "d.npy", "--layout", "nz"}).exit, 0);
  EXPECT_EQ(first_diagnosis(run({"diff", dir / "g.npy", dir / "d.npy", "--json"})), "complete layout");
  EXPECT_TRUE(refuses({"diff", dir / "g.npy", dir / "d.npy", "--layout", "nzz"}, "did you mean NZ"));
}

/// A .safetensors file of float32 vectors.
void save_tensors(const std::string& path, const std::vector<std::pair<std::string, std::vector<float>>>& tensors) {
  std::string header = "{";
  std::string data;
  for (const auto& [name, values] : tensors) {
    const std::size_t end = data.size() + values.size() * 4;
    header += (header.size() > 1 ? "," : "") + Json(name).dump() + R"(:{"dtype":"F32","shape":[)" +
              std::to_string(values.size()) + R"(],"data_offsets":[)" + std::to_string(data.size()) + "," +
              std::to_string(end) + "]}";
    data += to_text(std::as_bytes(std::span(values)));
  }
  header += "}";
  const std::uint64_t size = header.size();
  write_text(path, to_text(std::as_bytes(std::span(&size, 1))) + header + data);
}

TEST(DiffCommand, CheckpointsTensorByTensor) {
  const TempDir dir;
  const std::string golden = dir / "g.safetensors";
  const std::string dut = dir / "d.safetensors";
  std::vector<float> x(512);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) - 100.5F;
  std::vector<float> doubled(x);
  for (float& v : doubled) v *= 2;
  save_tensors(golden, {{"a", x}, {"b", x}, {"c", x}});
  save_tensors(dut, {{"a", x}, {"b", doubled}, {"d", x}});
  const Outcome o = run({"diff", golden, dut});
  EXPECT_EQ(o.exit, 1) << o.err;
  EXPECT_NE(o.out.find("b       FP32    512           512  multiplied by a constant: by 2^1"), std::string::npos)
      << o.out;
  EXPECT_NE(o.out.find("only in GOLDEN"), std::string::npos);
  EXPECT_NE(o.out.find("only in DUT"), std::string::npos);
  EXPECT_NE(o.out.find("3 of 4 tensors differ"), std::string::npos) << o.out;
  EXPECT_EQ(run({"diff", golden, dut, "--json"}).json().size(), 4U);
  EXPECT_EQ(run({"diff", golden, dut, "--name", "a"}).exit, 0);
  EXPECT_EQ(first_diagnosis(run({"diff", golden, dut, "--name", "b", "--json"})), "complete factor");
  EXPECT_TRUE(refuses({"diff", golden, dut, "--name", "e"}, "no tensor 'e'"));
  EXPECT_EQ(run({"diff", golden, golden}).exit, 0);

  // Quantised: its packed tensors are compared as codes and scales, what was copied as it is.
  const std::string packed = dir / "p.safetensors";
  ASSERT_EQ(run({"quantize", golden, "--format", "mxfp4", "--min-rank", "1", "--exclude", "c", "-o", packed}).exit, 0);
  const Outcome same = run({"diff", packed, packed});
  EXPECT_EQ(same.exit, 0) << same.err;
  EXPECT_NE(same.out.find("E2M1X2"), std::string::npos) << same.out;
  EXPECT_NE(same.out.find("0 of 3 tensors differ"), std::string::npos) << same.out;
}

TEST(DiffCommand, RefusesWhatItCannotCompare) {
  const TempDir dir;
  save(dir / "a.npy", DType::kF32, {2, 2}, std::vector<float>{1, 2, 3, 4});
  save(dir / "b.npy", DType::kF32, {4}, std::vector<float>{1, 2, 3, 4});
  save(dir / "c.npy", DType::kF16, {2, 2}, std::vector<std::uint16_t>{1, 2, 3, 4});
  write_text(dir / "r.bin", "0123456789");
  const std::string a = dir / "a.npy";
  EXPECT_TRUE(refuses({"diff", a}, "give GOLDEN and DUT"));
  EXPECT_TRUE(refuses({"diff", a, dir / "b.npy"}, "only arrays of one shape"));
  EXPECT_TRUE(refuses({"diff", a, dir / "c.npy"}, "have 16 bits"));
  EXPECT_TRUE(refuses({"diff", a, dir / "missing.npy"}, "missing.npy"));
  EXPECT_TRUE(refuses({"diff", a, a, "--format", "e4m"}, "did you mean"));
  EXPECT_TRUE(refuses({"diff", a, a, "--format", "e4m3"}, "have 32 bits"));
  EXPECT_TRUE(refuses({"diff", dir / "r.bin", dir / "r.bin"}, "give --format"));
  EXPECT_TRUE(refuses({"diff", dir / "r.bin", dir / "r.bin", "--format", "fp32"}, "10 bytes"));
  EXPECT_TRUE(
      refuses({"diff", dir / "r.bin", dir / "r.bin", "--format", "e4m3", "--shape", "3by3"}, "write it as 784x256"));
  EXPECT_TRUE(refuses({"diff", a, a, "--from-array", a, "--to", "fp32", "--a", a, "--b", a}, "give those of one"));
  EXPECT_TRUE(refuses({"diff", a, a, "--from-array", kWeights, "--to", "fp32"}, "the source has"));
  EXPECT_TRUE(refuses({"diff", a, a, "--a", a}, "needs both"));
  EXPECT_TRUE(refuses({"diff", a, a, "--source", a}, "--format"));
  EXPECT_TRUE(refuses({"diff", a, a, "--ulp", "-1"}, "--ulp"));
}

TEST(DiffCommand, TypesMustAgreeUnlessTheFormatIsSaid) {
  const TempDir dir;
  const std::vector<std::uint16_t> halves{0x3C00, 0x4000};
  save(dir / "f16.npy", DType::kF16, {2}, halves);
  save(dir / "u16.npy", DType::kU16, {2}, halves);
  save(dir / "f32.npy", DType::kF32, {2}, std::vector<float>{1, 2});
  save(dir / "i32.npy", DType::kI32, {2}, std::vector<std::int32_t>{1, 2});
  EXPECT_TRUE(refuses({"diff", dir / "f16.npy", dir / "u16.npy"}, "has float16 elements, but"));
  EXPECT_TRUE(refuses({"diff", dir / "f32.npy", dir / "i32.npy"}, "has int32; say with --format"));
  EXPECT_EQ(run({"diff", dir / "f16.npy", dir / "u16.npy", "--format", "fp16"}).exit, 0);
}

TEST(DiffCommand, RefusesWhatItWouldIgnore) {
  const TempDir dir;
  save(dir / "a.npy", DType::kF32, {2, 2}, std::vector<float>{1, 2, 3, 4});
  const std::string a = dir / "a.npy";
  EXPECT_TRUE(refuses({"diff", a, a, "--bias", a}, "--bias: there is no product"));
  EXPECT_TRUE(refuses({"diff", a, a, "--relu"}, "--relu: there is no product"));
  EXPECT_TRUE(refuses({"diff", a, a, "--scale", "2"}, "--scale: there is no --source"));
  EXPECT_TRUE(refuses({"diff", a, a, "--round", "rna"}, "--round: there is no --from-array"));
  EXPECT_TRUE(refuses({"diff", a, a, "--sat"}, "--sat: there is no --from-array"));
  EXPECT_TRUE(refuses({"diff", a, a, "--to", "fp32"}, "--to: there is no --from-array"));
  EXPECT_TRUE(refuses({"diff", a, a, "--source-type", "bf16"}, "--source-type: there is no --source"));
  EXPECT_TRUE(refuses({"diff", a, a, "--tensor-scale"}, "--tensor-scale: there is no --source"));
  EXPECT_TRUE(refuses({"diff", a, a, "--from-array", a, "--to", "fp32", "--relu"}, "--relu: there is no product"));
  EXPECT_TRUE(refuses({"diff", a, a, "--from-array", a}, "--to is missing"));
  for (const char* const bad : {"nan", "inf", "-1", "one"}) {
    EXPECT_TRUE(refuses({"diff", a, a, "--atol", bad}, "is no finite number from 0"));
    EXPECT_TRUE(refuses({"diff", a, a, "--rtol", bad}, "is no finite number from 0"));
  }
  EXPECT_TRUE(refuses({"diff", a, dir / "x.bin:u8:777"}, "'u8' is no type of elements; those are bool, int8"));
}

TEST(DiffCommand, SourcesThatWereRoundedFirst) {
  const TempDir dir;
  const std::string golden = dir / "golden.safetensors";
  const std::string dut = dir / "dut.safetensors";
  const auto quantize = [&](const std::string& to, const Arguments& more) {
    Arguments arguments{"quantize", kWeights, "-o", to, "--format", "mxfp8-e4m3", "--axis", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments).exit;
  };
  ASSERT_EQ(quantize(golden, {"--source-type", "bf16"}), 0);
  ASSERT_EQ(quantize(dut, {"--source-type", "bf16", "--scale", "rceil"}), 0);
  for (const Arguments& more : {Arguments{}, Arguments{"--source-type", "bf16"}}) {
    Arguments arguments{"diff", golden, dut, "--source", kWeights, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome o = run(arguments);
    EXPECT_EQ(o.exit, 1) << o.err;
    EXPECT_EQ(first_diagnosis(o), "complete scale-rule");
    EXPECT_EQ(o.json()["golden_faults"], 0);
    EXPECT_NE(o.json()["explain"].get<std::string>().find("--source-type BF16"), std::string::npos) << o.out;
  }
}

TEST(DiffCommand, ScalesWhoseShapeIsTransposed) {
  const TempDir dir;
  write_text(dir / "c.bin", std::string(256, 'x'));
  std::vector<std::uint32_t> scales(8);
  std::vector<std::uint32_t> transposed(8);
  for (std::size_t i = 0; i < 8; ++i) {
    scales[i] = static_cast<std::uint32_t>(i * 0x01234567U);
    transposed[i % 4 * 2 + i / 4] = scales[i];
  }
  save(dir / "g.npy", DType::kU32, {2, 4}, scales);
  save(dir / "d.npy", DType::kU32, {4, 2}, transposed);
  const Outcome o = run({"diff", dir / "c.bin", dir / "c.bin", "--format", "hif4", "--shape", "2x256", "--scales",
                         dir / "g.npy", dir / "d.npy", "--json"});
  EXPECT_EQ(o.exit, 1) << o.err;
  EXPECT_EQ(first_diagnosis(o), "complete scales-transposed");
}

TEST(DiffCommand, TheCommandThatExplainsIsOneLineForAShell) {
  const TempDir dir;
  const std::string directory = dir / "the operands of a product that has a rather long name, and a 'quote' in it";
  std::filesystem::create_directory(directory);
  const std::string a = directory + "/a.npy";
  save(a, DType::kF32, {2, 2}, std::vector<float>{1, 2, 3, 4});
  save(dir / "g.npy", DType::kF32, {2, 2}, std::vector<float>{7, 10, 15, 22});
  save(dir / "d.npy", DType::kF32, {2, 2}, std::vector<float>{7, 10, 15, 23});
  const Outcome o = run({"diff", dir / "g.npy", dir / "d.npy", "--a", a, "--b", a});
  EXPECT_EQ(o.exit, 1) << o.err;
  std::string quoted = "'";
  for (const char c : a) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  quoted += "'";
  EXPECT_TRUE(o.out.ends_with("bitcube explain matmul " + quoted + " " + quoted + " --at 1,1\n")) << o.out;
}

TEST(DiffCommand, ListsEveryHypothesis) {
  const Outcome text = run({"diff", "--list"});
  EXPECT_TRUE(succeeds(text));
  const Json json = run({"diff", "--list", "--json"}).json();
  ASSERT_EQ(json.size(), hypotheses().size());
  for (const Hypothesis& h : hypotheses()) EXPECT_NE(text.out.find(h.id), std::string::npos) << h.id;
  // docs/diff.md has the same table.
  const std::string docs = read_text(std::string(BITCUBE_SOURCE_DIR) + "/docs/diff.md");
  for (const Hypothesis& h : hypotheses()) {
    const std::string row = "| `" + std::string(h.id) + "` | " + std::string(h.title) + " | " + std::string(h.needs) +
                            " | " + std::string(h.remedy) + " |\n";
    EXPECT_NE(docs.find(row), std::string::npos) << row;
  }
}

TEST(DiffCommand, LinesFitATerminal) {
  const TempDir dir;
  const std::string golden = dir / "g.bin";
  const std::string dut = dir / "d.bin";
  ASSERT_EQ(run({"convert", kImages, "--to", "e4m3", "-o", golden}).exit, 0);
  ASSERT_EQ(run({"convert", kImages, "--to", "e4m3", "--round", "rtz", "-o", dut}).exit, 0);
  const Outcome o = run({"diff", golden, dut, "--format", "e4m3", "--shape", "1000x784"});
  std::size_t begin = o.out.find('\n') + 1;  // the first line has the names of the files
  while (begin < o.out.size()) {
    const std::size_t end = o.out.find('\n', begin);
    EXPECT_LE(end - begin, 100U) << o.out.substr(begin, end - begin);
    begin = end + 1;
  }
}

}  // namespace
}  // namespace bitcube::test
