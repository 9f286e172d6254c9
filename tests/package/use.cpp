// Compile-time and run-time use of the installed headers and library.
#include <cstdio>
#include <vector>

#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/matrix_operand.hpp"
#include "bitcube/numeric/convert.hpp"

static_assert(bitcube::convert(bitcube::fp32, bitcube::e4m3, 0x3F880000, {}).bits == 0x38);

int main() {
  const std::vector<float> x{1.5F, 2, 3, 4};
  const auto bytes = std::as_bytes(std::span(x));
  const auto a = bitcube::matrix_operand(bitcube::Side::a, bitcube::fp32, bytes, 2, 2);
  const auto b = bitcube::matrix_operand(bitcube::Side::b, bitcube::fp32, bytes, 2, 2);
  const auto d = bitcube::matmul(a, b, {});
  if (!d) return 1;
  std::printf("%08X\n", d->words[0]);  // 1.5 * 1.5 + 2 * 3 = 8.25
  return d->words[0] == 0x41040000 ? 0 : 1;
}
