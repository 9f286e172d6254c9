// Conversions of arrays on every SIMD target against the definition, and whole arrays against their parts.
#include <cstring>

#include "bitcube/quantize/convert_array.hpp"
#include "support/targets.hpp"
#include "words.hpp"

using namespace bitcube;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const Format& from = input.pick(formats);
  const Format& to = input.pick(formats);
  const EncodeControl control{
      .rounding = input.pick(roundings).mode, .saturate = input.flag(), .profile = &input.pick(conversion_profiles)};
  const std::size_t count = input.below(300);
  const std::size_t cut = input.below(count + 1);
  const std::size_t offset = input.below(8);
  const std::size_t from_bytes = from.carrier_bits / 8U;
  const std::size_t to_bytes = to.carrier_bits / 8U;
  const fuzz::Unaligned source(fuzz::words(input, from, count, from_bytes), offset);

  const auto want = convert_array(source.bytes(), from, to, control, {.threads = 1, .reference = true});
  test::for_each_target(
      [&](const std::string& target) {
        const auto got = convert_array(source.bytes(), from, to, control, {.threads = 1});
        if (!fuzz::same_outcome(got, want, target)) return;
        if (got->words != want->words) fuzz::fail("other words than the definition", target);
        if (got->flags != want->flags) fuzz::fail("other flags than the definition", target);
        std::vector<std::byte> parts(want->words.size());
        const auto first = convert_array_into(source.bytes().first(cut * from_bytes), from, to,
                                              std::span(parts).first(cut * to_bytes), control, {.threads = 1});
        const auto second = convert_array_into(source.bytes().subspan(cut * from_bytes), from, to,
                                               std::span(parts).subspan(cut * to_bytes), control, {.threads = 1});
        if (!first || !second || parts != want->words || (*first | *second) != want->flags) {
          fuzz::fail("parts differ from the whole", target);
        }
      },
      false);
  return 0;
}
