// Dequantisers on every SIMD target against the definition, for any codes and any scales.
#include "bitcube/quantize/tensor.hpp"
#include "support/targets.hpp"
#include "words.hpp"

using namespace bitcube;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  QuantizedTensor tensor;
  tensor.format = &input.pick(block_formats);
  if (tensor.format->is_hif4()) tensor.profile = &input.pick(hif4_profiles);
  if (tensor.format->is_hif4()) tensor.rounding = tensor.profile->lane_rounding;
  if (tensor.format->is_mx()) tensor.scale_rule = &input.pick(scale_rules);
  if (tensor.format->is_nvfp4() && input.flag()) tensor.tensor_scale = static_cast<std::uint32_t>(input.word(4));
  tensor.shape.resize(input.between(1, 3));
  tensor.axis = input.below(tensor.shape.size());
  uint64 elements = 1;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    tensor.shape[i] = i == tensor.axis ? input.below(200) : input.below(i + 1 == tensor.shape.size() ? 40 : 6);
    elements *= tensor.shape[i];
  }
  if (elements > 4096) return 0;
  Lines lines;
  fuzz::require(lines_of(tensor.shape, tensor.axis, lines), "a small shape has its lines");
  const auto count = static_cast<std::size_t>(lines.count);
  const auto length = static_cast<std::size_t>(lines.length);
  const Format& element = *tensor.format->element;
  const auto line_bytes = static_cast<std::size_t>(tensor.format->code_bytes(length));
  tensor.codes = fuzz::words(input, element, count * line_bytes, 1);
  if (element.is_packed()) {  // a second lane in each byte; nothing behind the last of an odd line
    test::Operands operands(input.word(2));
    for (std::size_t i = 0; i < tensor.codes.size(); ++i) {
      const bool alone = length % 2 != 0 && i % line_bytes == line_bytes - 1;
      tensor.codes[i] =
          (tensor.codes[i] & std::byte{0x0F}) | (alone ? std::byte{} : static_cast<std::byte>(operands.below(16) << 4));
    }
  }
  tensor.scales =
      fuzz::words(input, *tensor.format->scale, count * static_cast<std::size_t>(tensor.format->groups(length)),
                  tensor.format->scale_bytes());
  constexpr std::array destinations{&fp32, &bf16, &fp16, &fp64};
  const Format& destination = *input.pick(destinations);
  const Rounding rounding = input.flag() ? input.pick(roundings).mode : Rounding::rne;

  const auto want = dequantize(tensor, destination, rounding, {.threads = 1, .reference = true});
  test::for_each_target(
      [&](const std::string& target) {
        const auto got = dequantize(tensor, destination, rounding, {.threads = 1});
        if (bool(got) != bool(want)) fuzz::fail("fails on one side only", target);
        if (!got) return;
        if (got->bytes != want->bytes) fuzz::fail("other numbers than the definition", target);
        if (got->flags != want->flags) fuzz::fail("other flags than the definition", target);
      },
      false);
  return 0;
}
