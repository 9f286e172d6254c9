// Products on every SIMD target against the definition: any two types, scales, layouts in memory, C and bias.
#include "bitcube/cube/matmul.hpp"
#include "support/targets.hpp"
#include "words.hpp"

using namespace bitcube;

namespace {

/// One side of a product, with the memory of its lanes and scales.
struct Side {
  Operand operand;
  std::vector<std::byte> lanes;
  std::vector<std::byte> scales;

  Side(fuzz::Input& input, std::size_t lines, std::size_t k) {
    const Format& format = input.pick(formats);
    operand.format = &format;
    operand.lines = lines;
    operand.k = k;
    // Lane after lane, 4-bit ones in pairs; or a carrier each; or 64 bits each, with other things above the lane.
    const std::size_t layout = input.below(3);
    const unsigned bits = layout == 0 ? format.lane_bits : layout == 1 ? format.carrier_bits : 64;
    const bool columns = layout != 0 && input.flag();
    const std::size_t stride = columns ? lines : (k + 1) / 2 * 2;
    const std::size_t count = columns ? k * stride : lines * stride;
    operand.lanes = {nullptr, bits, columns ? 1 : stride, columns ? stride : 1};
    lanes = fuzz::words(input, format, bits == 4 ? (count + 1) / 2 : count, std::max<std::size_t>(bits / 8, 1));
    if (bits == 4) {
      test::Operands operands(input.word(2));
      for (std::byte& pair : lanes) pair = (pair & std::byte{0x0F}) | static_cast<std::byte>(operands.below(16) << 4);
    }
    operand.lanes.data = reinterpret_cast<const std::uint8_t*>(lanes.data());
    if (!input.flag()) return;
    const bool hif4_side = format.type == DataType::hif4x2;
    const std::size_t groups = (k + scale_group(format) - 1) / scale_group(format);
    const bool wide = input.below(4) == 3;
    const unsigned scale_bits = wide ? 64 : hif4_side ? 32 : 8;
    scales = fuzz::words(input, hif4_side ? format_of(DataType::u32) : e8m0, lines * groups, scale_bits / 8);
    if (input.flag()) {  // of similar size, as real tensors are
      test::Operands operands(input.word(2));
      for (std::size_t i = 0; i < lines * groups; ++i) {
        scales[i * scale_bits / 8] = static_cast<std::byte>((hif4_side ? 180 : 120) + operands.below(12));
      }
    }
    operand.scales = {reinterpret_cast<const std::uint8_t*>(scales.data()), scale_bits, groups, 1};
  }
};

std::vector<std::uint32_t> accumulators(fuzz::Input& input, std::size_t count) {
  const std::vector<std::byte> bytes = fuzz::words(input, fp32, count, 4);
  std::vector<std::uint32_t> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::uint32_t>(load_word(bytes.data() + 4 * i, 4));
  return out;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  MatmulOptions options{.profile = &input.pick(accumulation_profiles), .execution = {.threads = 1}};
  std::size_t m = input.between(1, 40);
  std::size_t n = input.between(1, 40);
  std::size_t k = input.between(1, 300);
  while (m * n * k > 20000) (m > 4 ? m : n > 4 ? n : k) /= 2;
  if (input.below(4) == 3) options.group = input.between(1, 70);
  const Side a(input, m, k);
  const Side b(input, n, k);
  std::vector<std::uint32_t> c;
  std::vector<std::uint32_t> bias;
  if (input.flag()) options.c = c = accumulators(input, m * n);
  if (input.flag()) options.bias = bias = accumulators(input, n);

  MatmulOptions reference = options;
  reference.execution.reference = true;
  const auto want = matmul(a.operand, b.operand, reference);
  test::for_each_target(
      [&](const std::string& target) {
        const auto got = matmul(a.operand, b.operand, options);
        if (fuzz::same_outcome(got, want, target) && got->words != want->words)
          fuzz::fail("other words than the definition", target);
      },
      false);
  return 0;
}
