// Products against OpenBLAS's sgemm, against our reference, and against themselves on one thread.
#include <fmt/format.h>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>

#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/matrix_operand.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "bitcube/quantize/tensor.hpp"
#include "comparison.hpp"

namespace bitcube::bench {

namespace {

/// Two n x n matrices of a product: in FP32 for sgemm, and as operands of ours.
struct Matrices {
  std::size_t n;
  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> c;
  std::vector<std::byte> a_bytes;
  std::vector<std::byte> b_bytes;
  QuantizedTensor a_tensor;
  QuantizedTensor b_tensor;
  Operand a_operand;
  Operand b_operand;
};

std::shared_ptr<Matrices> random_matrices(std::size_t n) {
  auto m = std::make_shared<Matrices>();
  m->n = n;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& x) {
    x.resize(n * n);
    for (float& v : x) v = normal(random);
  };
  fill(m->a);
  fill(m->b);
  m->c.resize(n * n);
  return m;
}

/// A block format on both sides, quantised along K.
std::shared_ptr<Matrices> quantized(std::string_view format, std::size_t n) {
  auto m = random_matrices(n);
  const std::array<uint64, 2> shape{n, n};
  const auto side = [&](Side which, const std::vector<float>& x, QuantizedTensor& tensor, Operand& operand) {
    QuantizeOptions options;
    options.format = find_block_format(format);
    auto made = quantize(std::as_bytes(std::span(x)), fp32, shape, which == Side::a ? 1 : 0, options);
    check(made);
    tensor = std::move(*made);
    operand = *quantized_operand(which, tensor);
  };
  side(Side::a, m->a, m->a_tensor, m->a_operand);
  side(Side::b, m->b, m->b_tensor, m->b_operand);
  return m;
}

/// Row-major words of a type without scales.
std::shared_ptr<Matrices> plain(DataType type, std::size_t n) {
  auto m = random_matrices(n);
  const Format& f = format_of(type);
  const auto side = [&](Side which, const std::vector<float>& x, std::vector<std::byte>& bytes, Operand& operand) {
    if (f.is_integer()) {
      std::mt19937 random(2);
      bytes.resize(n * n * f.carrier_bits / 8);
      for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    } else {
      auto converted = convert_array(std::as_bytes(std::span(x)), fp32, f);
      check(converted);
      bytes = std::move(converted->words);
    }
    operand = matrix_operand(which, f, bytes, n, n);
  };
  side(Side::a, m->a, m->a_bytes, m->a_operand);
  side(Side::b, m->b, m->b_bytes, m->b_operand);
  return m;
}

std::function<void()> product(const std::shared_ptr<Matrices>& m, std::string_view profile, Execution execution) {
  MatmulOptions options;
  options.profile = find_accumulation_profile(profile);
  options.execution = std::move(execution);
  return [m, options] { check(matmul(m->a_operand, m->b_operand, options)); };
}

std::function<void()> sgemm(const std::shared_ptr<Matrices>& m) {
  return [m] { Sgemm::instance()(m->n, m->a.data(), m->b.data(), m->c.data()); };
}

double macs(std::size_t n) {
  return static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
}

}  // namespace

std::vector<Comparison> gemm_comparisons() {
  std::vector<Comparison> list;
  using Make = std::function<std::shared_ptr<Matrices>(std::size_t)>;
  const auto against_sgemm = [&](const std::string& name, std::string profile, std::size_t n, const Make& make) {
    list.push_back({fmt::format("gemm.{}.{}", name, n), "OpenBLAS sgemm", "GMAC/s", macs(n), macs(n), [=] {
                      const auto m = make(n);
                      return Comparison::Runs{product(m, profile, {.threads = 1}), sgemm(m)};
                    }});
  };
  const auto blocks = [](std::string_view format) { return [=](std::size_t n) { return quantized(format, n); }; };
  const auto words = [](DataType type) { return [=](std::size_t n) { return plain(type, n); }; };
  against_sgemm("hif4.group", "group", 1024, blocks("hif4"));
  against_sgemm("hif4.exact", "exact", 1024, blocks("hif4"));
  against_sgemm("hif4.fma", "fma", 1024, blocks("hif4"));
  against_sgemm("mxfp8_e4m3.fma", "fma", 1024, blocks("mxfp8-e4m3"));
  against_sgemm("mxfp8_e4m3.group", "group", 1024, blocks("mxfp8-e4m3"));
  against_sgemm("mxfp8_e4m3.exact", "exact", 1024, blocks("mxfp8-e4m3"));
  against_sgemm("mxfp8_e5m2.group", "group", 1024, blocks("mxfp8-e5m2"));
  against_sgemm("mxfp8_e5m2.exact", "exact", 1024, blocks("mxfp8-e5m2"));
  against_sgemm("mxfp4.group", "group", 1024, blocks("mxfp4"));
  against_sgemm("mxfp4.exact", "exact", 1024, blocks("mxfp4"));
  against_sgemm("bf16.fma", "fma", 1024, words(DataType::bf16));
  against_sgemm("bf16.group", "group", 1024, words(DataType::bf16));
  against_sgemm("fp32.fma", "fma", 1024, words(DataType::fp32));
  against_sgemm("s8", "fma", 1024, words(DataType::s8));
  against_sgemm("s16", "fma", 1024, words(DataType::s16));

  const std::size_t n = 1024;
  list.push_back({"gemm.hif4.group.1024.2threads", "the same on one thread", "GMAC/s", macs(n), macs(n), [] {
                    const auto m = quantized("hif4", n);
                    return Comparison::Runs{product(m, "group", {.threads = 2}), product(m, "group", {.threads = 1})};
                  }});
  // The reference is slow: a smaller product is enough.
  for (const std::string_view profile : {"group", "exact", "fma"}) {
    const std::size_t small = 192;
    list.push_back(
        {fmt::format("gemm.hif4.{}.192.reference", profile), "our reference", "GMAC/s", macs(small), macs(small), [=] {
           const auto m = quantized("hif4", small);
           return Comparison::Runs{product(m, profile, {.threads = 1}),
                                   product(m, profile, {.threads = 1, .reference = true})};
         }});
  }
  return list;
}

}  // namespace bitcube::bench
