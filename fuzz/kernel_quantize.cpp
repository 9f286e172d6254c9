// Block quantisers on every SIMD target against the definition, whole tensors against their lines, and what they give
// back to numbers.
#include "bitcube/quantize/tensor.hpp"
#include "support/targets.hpp"
#include "words.hpp"

using namespace bitcube;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  constexpr std::array sources{&fp32, &bf16, &fp16, &fp64, &e4m3, &format_of(DataType::hif8)};
  const Format& source = *input.pick(sources);
  QuantizeOptions options{.format = &input.pick(block_formats),
                          .profile = &input.pick(hif4_profiles),
                          .scale_rule = &input.pick(scale_rules),
                          .rounding = input.flag() ? input.pick(roundings).mode : Rounding::rne};
  options.tensor_scale = options.format->is_nvfp4() && input.flag();
  options.execution.threads = 1;
  // One to three dimensions; the quantised one may be long.
  std::vector<uint64> shape(input.between(1, 3));
  const std::size_t axis = input.below(shape.size());
  uint64 elements = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    shape[i] = i == axis ? input.below(200) : input.below(i + 1 == shape.size() ? 40 : 6);
    elements *= shape[i];
  }
  if (elements > 4096) return 0;
  const fuzz::Unaligned words(fuzz::words(input, source, static_cast<std::size_t>(elements), source.carrier_bits / 8U),
                              input.below(8));
  constexpr std::array destinations{&fp32, &bf16, &fp16, &fp64};
  const Format& destination = *input.pick(destinations);
  const Rounding back = input.flag() ? input.pick(roundings).mode : Rounding::rne;

  QuantizeOptions reference = options;
  reference.execution.reference = true;
  const auto want = quantize(words.bytes(), source, shape, axis, reference);
  const auto want_numbers =
      want ? dequantize(*want, destination, back, reference.execution) : Expected<Dequantized>(want.error());
  Lines lines;
  fuzz::require(lines_of(shape, axis, lines), "a small shape has its lines");
  const uint64 cut = input.below(static_cast<std::size_t>(lines.count) + 1);
  test::for_each_target(
      [&](const std::string& target) {
        const auto got = quantize(words.bytes(), source, shape, axis, options);
        if (!fuzz::same_outcome(got, want, target)) return;
        if (got->codes != want->codes) fuzz::fail("other codes than the definition", target);
        if (got->scales != want->scales) fuzz::fail("other scales than the definition", target);
        if (got->tensor_scale != want->tensor_scale) fuzz::fail("another tensor scale than the definition", target);
        const auto numbers = dequantize(*got, destination, back, options.execution);
        if (bool(numbers) != bool(want_numbers)) fuzz::fail("dequantising fails on one side only", target);
        if (numbers && (numbers->bytes != want_numbers->bytes || numbers->flags != want_numbers->flags)) {
          fuzz::fail("other numbers than the definition", target);
        }
        if (options.tensor_scale) return;  // needs the whole tensor
        std::vector<std::byte> codes(want->codes.size());
        std::vector<std::byte> scales(want->scales.size());
        const auto code_bytes = static_cast<std::size_t>(cut * options.format->code_bytes(lines.length));
        const auto scale_bytes =
            static_cast<std::size_t>(cut * options.format->groups(lines.length) * options.format->scale_bytes());
        const auto first = quantize_lines(words.bytes(), source, shape, axis, options, 0, cut,
                                          std::span(codes).first(code_bytes), std::span(scales).first(scale_bytes));
        const auto second =
            quantize_lines(words.bytes(), source, shape, axis, options, cut, lines.count - cut,
                           std::span(codes).subspan(code_bytes), std::span(scales).subspan(scale_bytes));
        if (!first || !second || codes != want->codes || scales != want->scales) {
          fuzz::fail("lines differ from the whole", target);
        }
      },
      false);
  return 0;
}
