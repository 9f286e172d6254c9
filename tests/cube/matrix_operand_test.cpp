#include "bitcube/cube/matrix_operand.hpp"

#include <gtest/gtest.h>

#include "bitcube/cube/matmul.hpp"
#include "support/operands.hpp"

namespace bitcube {
namespace {

TEST(MatrixOperand, RowsOfAAndColumnsOfB) {
  const std::vector<std::uint16_t> words{1, 2, 3, 4, 5, 6};
  const auto bytes = std::as_bytes(std::span(words));
  const Operand a = matrix_operand(Side::a, bf16, bytes, 2, 3);
  EXPECT_EQ(a.lines, 2U);
  EXPECT_EQ(a.k, 3U);
  EXPECT_EQ(a.lanes(1, 0), 4U);
  const Operand b = matrix_operand(Side::b, bf16, bytes, 2, 3);
  EXPECT_EQ(b.lines, 3U);
  EXPECT_EQ(b.k, 2U);
  EXPECT_EQ(b.lanes(2, 1), 6U);
  EXPECT_FALSE(b.scaled());
}

TEST(MatrixOperand, Scales) {
  std::vector<std::byte> lanes(40 * 3);
  const std::vector<std::uint8_t> scales{1, 2, 3, 4, 5, 6};
  Operand b = matrix_operand(Side::b, e4m3, lanes, 40, 3);
  attach_scales(Side::b, b, std::as_bytes(std::span(scales)));
  EXPECT_EQ(b.scales(2, 0), 3U);
  EXPECT_EQ(b.scales(0, 1), 4U);
  Operand a = matrix_operand(Side::a, e4m3, lanes, 3, 40);
  attach_scales(Side::a, a, std::as_bytes(std::span(scales)));
  EXPECT_EQ(a.scales(2, 0), 5U);
  EXPECT_EQ(a.scales(2, 1), 6U);
}

// Every lane of the operand is the lane that dequantises to its value, on both sides, for odd K too.
TEST(MatrixOperand, QuantizedMatrices) {
  test::Operands operands(2);
  for (const BlockFormat& format : block_formats) {
    for (const std::uint64_t k : {1U, 63U, 64U, 65U, 131U}) {
      std::vector<std::uint16_t> words(3 * k);
      for (std::uint16_t& word : words) word = static_cast<std::uint16_t>(operands.word(bf16));
      for (const Side side : {Side::a, Side::b}) {
        const std::size_t axis = side == Side::a ? 1 : 0;
        const std::vector<std::uint64_t> shape{axis == 1 ? 3 : k, axis == 1 ? k : 3};
        QuantizeOptions options;
        options.format = &format;
        const auto tensor = quantize(std::as_bytes(std::span(words)), bf16, shape, axis, options);
        ASSERT_TRUE(tensor);
        const auto operand = quantized_operand(side, *tensor);
        EXPECT_FALSE(quantized_operand(side == Side::a ? Side::b : Side::a, *tensor));
        if (format.is_nvfp4()) {
          EXPECT_FALSE(operand);
          continue;
        }
        ASSERT_TRUE(operand) << operand.error().message;
        EXPECT_EQ(operand->lines, 3U);
        EXPECT_EQ(operand->k, k);
        for (std::size_t line = 0; line < 3; ++line) {
          for (std::size_t i = 0; i < k; ++i) {
            const Term term = term_at(*operand, line, i);
            const Value value = dequantize_lane(*tensor, line, i);
            ASSERT_EQ(term.kind == Term::Kind::nan, value.is_nan());
            if (value.is_nan()) continue;
            const Real real{term.negative, term.significand, term.exponent};
            ASSERT_EQ(term.negative, value.real.negative);
            ASSERT_EQ(compare_magnitude(real, value.real), 0);
          }
        }
      }
    }
  }
}

/// Without lanes there are no scales either, but that is not what is wrong.
TEST(MatrixOperand, NoLanes) {
  for (const BlockFormat& format : block_formats) {
    if (format.is_nvfp4()) continue;
    const QuantizeOptions options{.format = &format};
    const auto a = quantize({}, fp32, std::vector<std::uint64_t>{4, 0}, 1, options);
    const auto b = quantize({}, fp32, std::vector<std::uint64_t>{0, 5}, 0, options);
    ASSERT_TRUE(a && b);
    const auto left = quantized_operand(Side::a, *a);
    const auto right = quantized_operand(Side::b, *b);
    ASSERT_TRUE(left && right);
    const std::string message = "M = 4, N = 5, K = 0: every dimension must be at least 1";
    const auto kind = product_kind(*left, *right);
    ASSERT_FALSE(kind) << format.name;
    EXPECT_EQ(kind.error().message, message) << format.name;
    const auto product = matmul(*left, *right, {});
    ASSERT_FALSE(product) << format.name;
    EXPECT_EQ(product.error().message, message) << format.name;
  }
}

TEST(MatrixOperand, Errors) {
  const std::vector<float> words(24);
  const auto of_shape = [&](std::vector<std::uint64_t> shape) {
    const auto tensor = quantize(std::as_bytes(std::span(words)), fp32, shape, shape.size() - 1);
    return quantized_operand(Side::a, *tensor);
  };
  EXPECT_TRUE(of_shape({4, 6}));
  EXPECT_EQ(of_shape({2, 3, 4}).error().message, "A: a matrix has 2 dimensions, but shape [2, 3, 4] has 3");
  EXPECT_FALSE(of_shape({24}));
  QuantizedTensor broken;
  broken.shape = {2, 2};
  EXPECT_FALSE(quantized_operand(Side::b, broken));
}

}  // namespace
}  // namespace bitcube
