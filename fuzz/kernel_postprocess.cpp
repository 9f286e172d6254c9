// The post-process and its reductions on every SIMD target against the definition.
#include "bitcube/cube/postprocess_matrix.hpp"
#include "support/targets.hpp"
#include "words.hpp"

using namespace bitcube;

namespace {

/// A parameter that is nearly always legal.
uint64 quant_carrier(fuzz::Input& input, test::Operands& operands, const PreQuantMode& mode) {
  if (input.below(32) == 31) return input.word(8);
  if (mode.carrier == CarrierKind::shift) return pack_shift_carrier(static_cast<int>(1 + operands.below(16)));
  const uint64 scale = operands.chance(2) ? ((112 + operands.below(32)) << 10) | (operands.raw() & 0x3FF)
                                          : 0x400 + operands.below(0x3FBFF - 0x400 + 1);
  return pack_scale_carrier(scale, mode.offset_bits == 0 ? 0 : static_cast<int64>(operands.raw()), mode.offset_bits);
}

uint64 activation_carrier(fuzz::Input& input, test::Operands& operands) {
  if (input.below(32) == 31) return input.word(8);
  return operands.chance(4) ? 0 : ((100 + operands.below(50)) << 10) | operands.below(1024);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  PostprocessOptions options{.mode = &input.pick(prequant_modes), .execution = {.threads = 1}};
  constexpr std::array accumulators{DataType::fp32, DataType::s32, DataType::u32};
  const DataType any = input.pick(accumulators);
  const DataType fixed = options.mode->accumulator;
  const Format& accumulator = format_of(fixed == DataType::none ? any : fixed);
  const std::size_t rows = input.between(1, 6);
  const std::size_t cols = input.between(1, 150);
  test::Operands operands(input.word(2));
  options.relu = static_cast<Relu>(input.below(4));
  std::vector<uint64> quant;
  if (options.mode->carrier != CarrierKind::none) quant.resize(options.mode->per_column ? cols : 1);
  for (uint64& carrier : quant) carrier = quant_carrier(input, operands, *options.mode);
  options.quant_carriers = quant;
  std::vector<uint64> alpha(options.relu == Relu::per_column ? cols : options.relu == Relu::scalar ? 1 : 0);
  for (uint64& carrier : alpha) carrier = activation_carrier(input, operands);
  options.activation_carriers = alpha;
  if (options.mode->rounding_rule == RoundingRule::programmable && input.flag()) {
    options.rounding = input.pick(roundings).mode;
  }
  options.saturate = options.mode->saturation_allowed && input.flag();
  options.profile = &input.pick(conversion_profiles);
  options.row_max = input.flag();
  options.group_n = input.flag() ? input.pick(group_n_values) : 0;
  options.max_abs = (options.row_max || options.group_n != 0) && input.flag();
  Accumulators words{&accumulator, rows, cols, Buffer<std::uint32_t>(rows * cols)};
  const auto accumulator_words = [&](std::span<std::uint32_t> to) {
    const std::vector<std::byte> bytes = fuzz::words(input, accumulator, to.size(), 4);
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::uint32_t>(load_word(bytes.data() + 4 * i, 4));
  };
  accumulator_words(words.words);
  std::vector<std::uint32_t> row_max_in(rows);
  if (options.row_max && input.flag()) {
    accumulator_words(row_max_in);
    options.row_max_init = row_max_in;
  }

  PostprocessOptions reference = options;
  reference.execution.reference = true;
  const auto want = postprocess(words, reference);
  test::for_each_target(
      [&](const std::string& target) {
        const auto got = postprocess(words, options);
        if (bool(got) != bool(want)) fuzz::fail("fails on one side only", target);
        if (!got) return;
        if (got->d != want->d) fuzz::fail("another D than the definition", target);
        if (got->row_max != want->row_max) fuzz::fail("another RowMax than the definition", target);
        if (got->group_max != want->group_max) fuzz::fail("another GroupMax than the definition", target);
        if (got->flags != want->flags) fuzz::fail("other flags than the definition", target);
      },
      false);
  return 0;
}
