// The programs in examples/programs: the worked bundles, and a layer of a real network on four PEs.
#include <gtest/gtest.h>

#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/matrix_operand.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/io/npy.hpp"
#include "bitcube/io/packed.hpp"
#include "bitcube/program/program.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "io/temp_dir.hpp"

namespace bitcube::program {
namespace {

namespace fs = std::filesystem;

const fs::path examples = fs::path(BITCUBE_SOURCE_DIR) / "examples";

void expect_ok(const RunResult& result) {
  for (const CheckResult& check : result.checks) {
    EXPECT_TRUE(check.holds) << check.position.line << ": " << check.text << ": " << check.message;
  }
  EXPECT_TRUE(result.ok()) << (result.fault ? explain(*result.fault, result.rejection) : "");
}

class Worked : public testing::TestWithParam<std::string> {};

TEST_P(Worked, Runs) {
  const auto program = Program::load(examples / "programs" / (GetParam() + ".s"));
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_GE(program->expectations(), 1U);
  machine::Core core;
  expect_ok(run(*program, core));
}

INSTANTIATE_TEST_SUITE_P(Programs, Worked,
                         testing::Values("w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9", "w10", "retry", "first",
                                         "memory"),
                         [](const auto& one) { return one.param; });

/// The words that the contract prints.
TEST(Programs, WordsOfTheContract) {
  constexpr std::uint32_t w7[] = {0x98131181, 0x05301023, 0x0D0A2023, 0x00400043, 0x00801043, 0x01002043,
                                  0x00310013, 0x04004213, 0x0020D293, 0x0008E393, 0x00000001};
  const auto program = Program::load(examples / "programs/w7.s");
  ASSERT_TRUE(program);
  ASSERT_EQ(program->lines().size(), std::size(w7));
  for (std::size_t i = 0; i < std::size(w7); ++i) EXPECT_EQ(program->lines()[i].word.bits, w7[i]);
}

/// All 128 rows of mnist-layer.s, against one product of the cube room: what bitcube matmul calls.
TEST(Programs, MnistLayer) {
  constexpr std::size_t rows = 128;
  constexpr std::size_t k = 784;
  constexpr std::size_t columns = 256;
  const bitcube::test::TempDir dir;
  const auto images = read_npy(examples / "mnist-mlp/images.npy");
  const auto weights = read_npy(examples / "mnist-mlp/w0.npy");
  const auto bias = read_npy(examples / "mnist-mlp/b0.npy");
  ASSERT_TRUE(images && weights && bias);
  const auto image_bytes = images->load();
  const auto weight_bytes = weights->load();
  ASSERT_TRUE(image_bytes && weight_bytes);

  // As the demo does: pixel / 255 in FP32, rounded once, then BF16.
  std::vector<float> pixels(rows * k);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<float>(std::to_integer<unsigned>((*image_bytes)[i])) / 255.0F;
  }
  const auto x = convert_array(std::as_bytes(std::span(pixels)), fp32, bf16);
  ASSERT_TRUE(x);
  const auto a = quantize(x->words, bf16, std::vector<uint64>{rows, k}, 1);
  const auto b = quantize(*weight_bytes, fp32, std::vector<uint64>{k, columns}, 0);
  ASSERT_TRUE(a && b);
  ASSERT_TRUE(save_packed(dir / "x.safetensors", "x", *a));
  ASSERT_TRUE(save_packed(dir / "w.safetensors", "w", *b));

  std::vector<std::uint32_t> bias_words(columns);
  ASSERT_TRUE(bias->read(0, std::as_writable_bytes(std::span(bias_words))));
  MatmulOptions options;
  options.bias = bias_words;
  const auto product = matmul(*quantized_operand(Side::a, *a), *quantized_operand(Side::b, *b), options);
  ASSERT_TRUE(product);
  PostprocessOptions finish;
  finish.relu = Relu::relu;
  const auto d = postprocess(*product, finish);
  ASSERT_TRUE(d);
  ASSERT_TRUE(
      write_npy(dir / "d.npy", DType::kF32, std::vector<uint64>{rows, columns}, std::as_bytes(std::span(d->d))));

  fs::copy_file(examples / "mnist-mlp/b0.npy", dir / "b0.npy");
  fs::copy_file(examples / "programs/mnist-layer.s", dir / "mnist-layer.s");
  const auto program = Program::load(dir / "mnist-layer.s");
  ASSERT_TRUE(program) << program.error().message;
  machine::Core core;
  const RunResult result = run(*program, core);
  expect_ok(result);
  EXPECT_EQ(result.bundles, 12U);

  // The expectation of the program, once more without it.
  const auto again = core.state().memory.read(0x800000, rows * columns * 4);
  EXPECT_TRUE(
      std::ranges::equal(again, std::as_bytes(std::span(d->d)), {}, [](std::uint8_t byte) { return std::byte{byte}; }));
}

}  // namespace
}  // namespace bitcube::program
