// Every format from which a tensor can be quantised to HiF4, by the reference of a group.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "bitcube/quantize/tensor.hpp"
#include "support/operands.hpp"

namespace bitcube {
namespace {

std::vector<std::byte> random_words(const Format& f, std::size_t n, std::uint64_t seed) {
  test::Operands operands(seed);
  std::vector<std::byte> out;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t word = operands.word(f);
    for (unsigned b = 0; b < f.carrier_bits / 8U; ++b) out.push_back(static_cast<std::byte>(word >> (8 * b)));
  }
  return out;
}

// HiF4 rounds every other source to BF16 once (profiles 1); the reference of one group says what must come out.
TEST(Hif4Sources, AreRoundedToBf16Once) {
  for (const DataType type : {DataType::fp64, DataType::fp32, DataType::tf32, DataType::hf32, DataType::fp16,
                              DataType::bf16, DataType::e5m2, DataType::e4m3, DataType::hif8}) {
    const Format& source = format_of(type);
    for (const bool reference : {false, true}) {
      const std::vector<std::byte> in = random_words(source, 64, 3);
      const QuantizeOptions options{.execution = {.threads = 1, .progress = {}, .reference = reference}};
      const auto out = quantize(in, source, std::array<uint64, 1>{64}, 0, options);
      ASSERT_TRUE(out) << out.error().message;
      const std::size_t bytes = source.carrier_bits / 8U;
      std::array<std::uint32_t, 64> words{};
      for (std::size_t i = 0; i < 64; ++i) {
        std::uint64_t word = 0;
        for (std::size_t b = 0; b < bytes; ++b) word |= std::to_integer<std::uint64_t>(in[bytes * i + b]) << (8 * b);
        words[i] = hif4_source_word(source, word);
      }
      const auto group = quantize_hif4_group(hif4_source_format(source), words);
      for (std::size_t i = 0; i < 64; ++i) {
        const auto pair = std::to_integer<unsigned>(out->codes[i / 2]);
        ASSERT_EQ((pair >> (4 * (i % 2))) & 0xF, group.codes[i]) << source.name << " " << i;
      }
      std::uint32_t scale = 0;
      for (std::size_t b = 0; b < 4; ++b) scale |= std::to_integer<std::uint32_t>(out->scales[b]) << (8 * b);
      EXPECT_EQ(scale, group.scale_word) << source.name;
    }
  }
}

}  // namespace
}  // namespace bitcube
