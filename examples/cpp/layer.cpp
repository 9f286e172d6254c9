// A layer in HiFloat4: quantise both sides along K, multiply exactly, round to BF16.
#include <array>
#include <cstdio>
#include <vector>

#include "bitcube/cube/matrix_operand.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/quantize/tensor.hpp"

using namespace bitcube;

int main() {
  std::vector<float> x(std::size_t{2} * 64);  // 2 x 64
  std::vector<float> w(std::size_t{64} * 3);  // 64 x 3
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.125F * static_cast<float>(i % 7);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.25F * (static_cast<float>(i % 5) - 2);
  const auto a = quantize(std::as_bytes(std::span(x)), fp32, std::array<uint64, 2>{2, 64}, 1);
  const auto b = quantize(std::as_bytes(std::span(w)), fp32, std::array<uint64, 2>{64, 3}, 0);
  MatmulOptions group;
  group.profile = find_accumulation_profile("group");
  const auto sums = matmul(*quantized_operand(Side::a, *a), *quantized_operand(Side::b, *b), group);
  const auto d = postprocess(*sums, {.mode = find_prequant("F322BF16")});
  for (std::size_t i = 0; i < 6; ++i) std::printf("%02X%02X ", d->d[2 * i + 1], d->d[2 * i]);
  std::printf("flags %d\n", static_cast<int>(d->flags));
}
