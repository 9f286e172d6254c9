#include "bitcube/parallel.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/matrix_operand.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "bitcube/quantize/tensor.hpp"
#include "first_error.hpp"
#include "io/temp_dir.hpp"

namespace bitcube {
namespace {

using test::fails_with;

TEST(FirstError, IsThatOfTheFirstPieceWhoeverCame) {
  FirstError failed;
  EXPECT_FALSE(failed.error());
  for (const std::size_t piece : {5U, 7U, 2U, 3U}) failed.report(piece, Error{std::to_string(piece)});
  ASSERT_TRUE(failed.error());
  EXPECT_EQ(failed.error()->message, "2");
}

TEST(Cancel, EndsALoopBetweenTwoPieces) {
  for (const unsigned threads : {1U, 0U}) {
    std::stop_source stop;
    std::atomic<std::size_t> done{0};
    const Execution execution{.threads = threads, .cancel = stop.get_token()};
    EXPECT_THROW(parallel_for(100'000, execution,
                              [&](std::size_t) {
                                if (done.fetch_add(1) == 50) stop.request_stop();
                                std::this_thread::sleep_for(std::chrono::microseconds(10));
                              }),
                 Cancelled);
    EXPECT_GE(done.load(), 51U);
    EXPECT_LT(done.load(), 51U + 64U) << "each thread may finish its piece";
  }
}

TEST(Cancel, ProgressMayAskForIt) {
  std::stop_source stop;
  const Execution execution{
      .progress = [&](std::size_t done, std::size_t) { done >= 3 ? (void)stop.request_stop() : (void)0; },
      .cancel = stop.get_token()};
  const std::vector<std::byte> words(std::size_t{1} << 20);
  EXPECT_TRUE(fails_with(convert_array(words, fp32, bf16, {}, execution), "convert: cancelled"));
}

// Every long function that takes an Execution; with kernels and by the definition.
TEST(Cancel, IsAnErrorOfEveryLongFunction) {
  std::stop_source stop;
  const std::vector<uint64> shape{64, 128};
  const std::vector<std::byte> words(64 * 128 * 4);
  const Operand a = matrix_operand(Side::a, fp32, words, 64, 128);
  const Operand b = matrix_operand(Side::b, fp32, words, 128, 64);
  const auto tensor = quantize(words, fp32, shape, 0, {});
  ASSERT_TRUE(tensor);
  const auto product = matmul(a, b, {});
  ASSERT_TRUE(product);
  stop.request_stop();
  for (const bool reference : {false, true}) {
    const Execution execution{.reference = reference, .cancel = stop.get_token()};
    QuantizeOptions quantize_options;
    quantize_options.execution = execution;
    EXPECT_TRUE(fails_with(quantize(words, fp32, shape, 0, quantize_options), "quantise: cancelled"));
    EXPECT_TRUE(fails_with(dequantize(*tensor, fp32, Rounding::rne, execution), "dequantise: cancelled"));
    EXPECT_TRUE(fails_with(measure(words, *tensor, execution), "measure: cancelled"));
    EXPECT_TRUE(fails_with(convert_array(words, fp32, bf16, {}, execution), "convert: cancelled"));
    MatmulOptions matmul_options;
    matmul_options.execution = execution;
    EXPECT_TRUE(fails_with(matmul(a, b, matmul_options), "matmul: cancelled"));
    PostprocessOptions postprocess_options;
    postprocess_options.execution = execution;
    EXPECT_TRUE(fails_with(postprocess(*product, postprocess_options), "postprocess: cancelled"));
  }
}

}  // namespace
}  // namespace bitcube
