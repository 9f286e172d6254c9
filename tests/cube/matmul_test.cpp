// Shapes, types, tiles and threads of the product: numerics 9.2, 9.3.
#include "bitcube/cube/matmul.hpp"

#include <gtest/gtest.h>

#include <string>

#include "oracle/oracle.hpp"
#include "support/operands.hpp"

namespace bitcube {
namespace {

struct Matrix {
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> scales;
};

/// Lanes one byte each; A row-major M x K, B row-major K x N.
Operand a_operand(const Matrix& m, const Format& f, std::size_t rows, std::size_t k) {
  return {.format = &f, .lines = rows, .k = k, .lanes = {m.bytes.data(), 8, k, 1}, .scales = {}};
}
Operand b_operand(const Matrix& m, const Format& f, std::size_t k, std::size_t cols) {
  return {.format = &f, .lines = cols, .k = k, .lanes = {m.bytes.data(), 8, 1, cols}, .scales = {}};
}

Matrix random_matrix(test::Operands& operands, const Format& f, std::size_t lanes) {
  Matrix m;
  for (std::size_t i = 0; i < lanes; ++i) m.bytes.push_back(static_cast<std::uint8_t>(operands.finite_word(f)));
  return m;
}

std::string message(const Expected<Accumulators>& result) {
  return result ? "" : result.error().message;
}

TEST(Matmul, EveryElementIsItsOwnSum) {
  test::Operands operands(3);
  const std::size_t m = 67;
  const std::size_t n = 130;
  const std::size_t k = 35;  // tiles are 64 x 64
  const Matrix a = random_matrix(operands, e4m3, m * k);
  const Matrix b = random_matrix(operands, e4m3, k * n);
  std::vector<std::uint32_t> c(m * n);
  std::vector<std::uint32_t> bias(n);
  for (auto& w : c) w = static_cast<std::uint32_t>(operands.finite_word(fp32));
  for (auto& w : bias) w = static_cast<std::uint32_t>(operands.finite_word(fp32));
  MatmulOptions options;
  options.c = c;
  options.bias = bias;
  const auto d = matmul(a_operand(a, e4m3, m, k), b_operand(b, e4m3, k, n), options);
  ASSERT_TRUE(d) << message(d);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      std::uint32_t acc = c[i * n + j];
      for (std::size_t x = 0; x < k; ++x) {
        acc = add_to_fp32(acc, product(term_of(e4m3, a.bytes[i * k + x]), term_of(e4m3, b.bytes[x * n + j])));
      }
      acc = add_to_fp32(acc, addend_from_fp32(bias[j]));
      ASSERT_EQ(d->words[i * n + j], acc) << i << "," << j;
    }
  }
}

TEST(Matmul, SameBytesForAnyThreadCount) {
  test::Operands operands(5);
  const Matrix a = random_matrix(operands, e4m3, 150 * 40);
  const Matrix b = random_matrix(operands, e4m3, 40 * 90);
  Buffer<std::uint32_t> first;
  for (const unsigned threads : {1U, 2U, 3U, 7U, 0U}) {
    MatmulOptions options;
    options.execution.threads = threads;
    const auto d = matmul(a_operand(a, e4m3, 150, 40), b_operand(b, e4m3, 40, 90), options);
    ASSERT_TRUE(d);
    if (first.empty()) first = d->words;
    EXPECT_EQ(d->words, first) << threads;
  }
}

TEST(Matmul, ProgressReachesItsEnd) {
  test::Operands operands(6);
  const Matrix a = random_matrix(operands, e4m3, 130 * 2);
  for (const bool reference : {false, true}) {
    std::size_t last = 0;
    MatmulOptions options;
    options.execution.threads = 1;
    options.execution.reference = reference;
    options.execution.progress = [&](std::size_t done, std::size_t total) {
      EXPECT_EQ(done, last + 1);
      EXPECT_LE(done, total);
      last = done == total ? 1000 : done;
    };
    ASSERT_TRUE(matmul(a_operand(a, e4m3, 130, 2), b_operand(a, e4m3, 2, 130), options));
    EXPECT_EQ(last, 1000U);
  }
}

TEST(Matmul, Refusals) {
  const Matrix m{std::vector<std::uint8_t>(64), std::vector<std::uint8_t>(64)};
  const auto side = [&](std::string_view type, std::size_t k, bool scaled) {
    Operand o = a_operand(m, *find_format(type), 1, k);
    if (scaled) o.scales = {m.scales.data(), type == "HiF4" ? 32U : 8U, 1, 1};
    return o;
  };
  const auto refusal = [&](std::string_view ta, bool sa, std::string_view tb, bool sb) {
    return message(matmul(side(ta, 4, sa), side(tb, 4, sb), {}));
  };
  EXPECT_EQ(message(matmul(side("E4M3", 8, false), side("E4M3", 6, false), {})), "B: 6 rows, but A has K = 8");
  EXPECT_NE(message(matmul(side("E4M3", 0, false), side("E4M3", 0, false), {})), "");
  EXPECT_EQ(refusal("E4M3", true, "E4M3", false).substr(0, 24), "B: E4M3 has no scale, bu");
  EXPECT_EQ(refusal("FP32", false, "E4M3", true).substr(0, 24), "A: FP32 has no scale, bu");
  EXPECT_EQ(refusal("FP16", true, "E4M3", true), "A: FP16 takes no scale");
  EXPECT_EQ(refusal("E3M2", true, "E4M3", true).substr(0, 25), "A: E3M2 is no operand of ");
  EXPECT_EQ(refusal("HiF4", false, "FP16", false).substr(0, 20), "A: HiF4X2 needs its ");
  EXPECT_NE(refusal("S8", false, "U8", false), "");
  EXPECT_NE(refusal("S8", false, "E4M3", false), "");
  EXPECT_NE(refusal("E8M0", false, "E4M3", false), "");

  const std::vector<std::uint32_t> three(3);
  MatmulOptions options;
  options.bias = three;
  EXPECT_EQ(message(matmul(side("E4M3", 4, false), side("E4M3", 4, false), options)),
            "bias: 3 elements, but B has 1 columns");
  options = {};
  options.c = three;
  EXPECT_EQ(message(matmul(side("E4M3", 4, false), side("E4M3", 4, false), options)),
            "C: 3 elements, but the result is 1 x 1");
}

// Too large for any machine, and wrong in ways that a program can be: an error value, no exception.
TEST(Matmul, NothingIsThrown) {
  const std::uint8_t byte = 0;
  const auto huge = [&](std::size_t lines, std::size_t k) {
    return Operand{.format = &e4m3, .lines = lines, .k = k, .lanes = {&byte, 8, 0, 0}, .scales = {}};
  };
  const std::size_t large = std::size_t{1} << 40;
  EXPECT_FALSE(matmul(huge(large, 1), huge(large, 1), {}));
  EXPECT_FALSE(matmul(huge(1, std::size_t{1} << 59), huge(1, std::size_t{1} << 59), {}));
  MatmulOptions options;
  options.profile = nullptr;
  EXPECT_FALSE(matmul(huge(1, 1), huge(1, 1), options));
  EXPECT_FALSE(matmul(Operand{}, huge(1, 1), {}));
}

// Which pairs have a product, and with which accumulator: numerics 9.2 for all pairs, with and without scales.
TEST(Matmul, TypePairs) {
  const std::vector<std::string> mx{"FP16", "BF16", "E4M3", "E5M2", "E2M1X2", "E1M2X2", "HiF4X2"};
  const std::vector<std::string> floats{"FP32", "TF32", "HF32", "FP16", "BF16",   "HiF8",
                                        "E4M3", "E5M2", "E3M2", "E2M3", "E2M1X2", "E1M2X2"};
  const std::vector<std::string> signed_types{"S16", "S8", "S4X2"};
  const std::vector<std::string> unsigned_types{"U16", "U8", "U4X2"};
  const auto in = [](const std::vector<std::string>& set, const Format& f) {
    return std::find(set.begin(), set.end(), f.name) != set.end();
  };
  const std::vector<std::uint8_t> bytes(64);
  for (const Format& fa : formats) {
    for (const Format& fb : formats) {
      const auto half = [](const Format& f) { return f.name == "FP16" || f.name == "BF16"; };
      for (const bool scaled : {false, true}) {
        Operand a{.format = &fa, .lines = 1, .k = 1, .lanes = {bytes.data(), 8, 1, 1}, .scales = {}};
        Operand b{.format = &fb, .lines = 1, .k = 1, .lanes = {bytes.data(), 8, 1, 1}, .scales = {}};
        if (scaled && !half(fa)) a.scales = {bytes.data(), 8, 1, 1};
        if (scaled && !half(fb)) b.scales = {bytes.data(), 8, 1, 1};
        const bool is_mx = scaled || (half(fa) && half(fb));
        std::string expected;
        if (is_mx) {
          if (in(mx, fa) && in(mx, fb)) expected = "FP32";
        } else if (in(floats, fa) && in(floats, fb)) {
          expected = "FP32";
        } else if (in(signed_types, fa) && in(signed_types, fb)) {
          expected = "S32";
        } else if (in(unsigned_types, fa) && in(unsigned_types, fb)) {
          expected = "U32";
        }
        const auto kind = product_kind(a, b);
        EXPECT_EQ(kind ? std::string(kind->accumulator->name) : "", expected) << fa.name << " " << fb.name << scaled;
      }
    }
  }
}

}  // namespace
}  // namespace bitcube
