// explain_quantize: its last line against quantize() of the whole tensor, and its steps against the contract's worked
// examples.
#include "bitcube/explain/quantize.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "explain/facts.hpp"
#include "support/operands.hpp"

namespace bitcube {
namespace {

using test::Cells;
using test::fact;
using test::last_line;
using test::row;

std::vector<std::byte> bytes_of(const Format& f, const std::vector<uint64>& words) {
  const std::size_t size = f.carrier_bits / 8U;
  std::vector<std::byte> bytes(words.size() * size);
  for (std::size_t i = 0; i < words.size(); ++i) store_word(bytes.data() + i * size, size, words[i]);
  return bytes;
}

/// Code and scale of an element of a whole tensor, from where they are stored.
struct Stored {
  uint64 scale = 0;
  unsigned code = 0;
};
Stored stored_at(const QuantizedTensor& t, uint64 line, uint64 lane) {
  const BlockFormat& f = *t.format;
  const uint64 length = t.shape[t.axis];
  const uint64 begin = line * f.code_bytes(length);
  const auto byte = static_cast<unsigned>(t.codes[begin + (f.element->is_packed() ? lane / 2 : lane)]);
  const std::size_t scale = static_cast<std::size_t>(line * f.groups(length) + lane / f.group) * f.scale_bytes();
  return {load_word(t.scales.data() + scale, f.scale_bytes()),
          f.element->is_packed() ? (byte >> (lane % 2 * 4)) & 15 : byte};
}

TEST(ExplainQuantize, LastResultIsQuantizeOverAllFormats) {
  test::Operands operands(1);
  for (int i = 0; i < 6'000; ++i) {
    const Format* source = nullptr;
    while (source == nullptr || !is_quantize_source(*source)) source = &formats[operands.below(formats.size())];
    QuantizeOptions options{.format = &block_formats[operands.below(block_formats.size())],
                            .profile = &hif4_profiles[operands.below(hif4_profiles.size())],
                            .scale_rule = &scale_rules[operands.below(scale_rules.size())]};
    if (!options.format->is_hif4()) options.rounding = roundings[operands.below(roundings.size())].mode;
    if (options.format->is_nvfp4()) options.tensor_scale = operands.chance(2);
    const std::vector<uint64> shape{1 + operands.below(3), 1 + operands.below(130)};
    const std::size_t axis = operands.chance(4) ? 0 : 1;
    std::vector<uint64> words(shape[0] * shape[1]);
    const bool alike = operands.chance(2);  // magnitudes near each other, as in real tensors
    const uint64 base = operands.word(*source);
    for (uint64& word : words) {
      word = alike ? (base ^ (operands.raw() & low_mask(source->fraction_bits + source->low_zero_bits + 2)))
                   : operands.word(*source);
      word &= ~low_mask(source->low_zero_bits);
      if (!operands.chance(100) && !decode(*source, word).is_finite()) word = 0;
    }
    const auto bytes = bytes_of(*source, words);
    const auto whole = quantize(bytes, *source, shape, axis, options);
    ASSERT_TRUE(whole) << whole.error().message;
    for (int n = 0; n < 7; ++n) {
      const std::vector<uint64> index{operands.below(shape[0]), operands.below(shape[1])};
      const auto document = explain_quantize(bytes, *source, shape, axis, options, index);
      ASSERT_TRUE(document) << document.error().message;
      const Stored at = stored_at(*whole, index[1 - axis], index[axis]);
      const std::string expected =
          fmt::format("scale 0x{:0{}X}, code 0x{:0{}X} = ", at.scale, options.format->scale->lane_bits / 4, at.code,
                      (options.format->element->lane_bits + 3) / 4);
      ASSERT_TRUE(document->results.back().value.starts_with(expected))
          << document->title << ": " << document->results.back().value << ", expected " << expected;
      if (n == 0) {
        ASSERT_EQ(test::too_wide(text_of(*document)), "") << document->title;
      }
    }
  }
}

/// numerics 10.3, worked group.
const std::vector<uint64>& worked_group() {
  static const std::vector<uint64> words = [] {
    std::vector<uint64> out{0x40E0, 0xC060, 0x3F80, 0x3E9A, 0x4020, 0xBF00, 0x3E80, 0x8000,
                            0x4040, 0xC000, 0x3F80, 0x3F00, 0x3F00, 0x3EC0, 0x3E00, 0x0000};
    out.resize(64, 0);
    return out;
  }();
  return words;
}

Document explained(const Format& source, const std::vector<uint64>& words, uint64 lane,
                   const QuantizeOptions& options = {}) {
  const std::vector<uint64> shape{words.size()};
  const std::vector<uint64> index{lane};
  auto document = explain_quantize(bytes_of(source, words), source, shape, 0, options, index);
  EXPECT_TRUE(document) << document.error().message;
  return document ? *document : Document{};
}

TEST(ExplainQuantize, Hif4WorkedGroup) {
  const Document d = explained(bf16, worked_group(), 6);
  EXPECT_EQ(fact(d, "Largest", "Ma"), "0x40E0 = 7");
  EXPECT_EQ(fact(d, "Scale factor", "sf").substr(0, 10), "0x3F80 = 1");
  EXPECT_EQ(fact(d, "sf to E6M2", "Ea").substr(0, 8), "0xC0 = 1");
  EXPECT_EQ(fact(d, "Reciprocal", "R").substr(0, 10), "0x3F80 = 1");
  EXPECT_EQ(fact(d, "Micro", "scale word").substr(0, 10), "0x000501C0");
  // Lanes 0 to 7: Mb R = 7 >= 4; then 7 / 2 >= 2, and 2.5 / 2 < 2.
  EXPECT_EQ(row(d, "Micro", "0..7"), (Cells{"->", "0..7", "7", "1", "3.5", "1", "1.25", "0"}));
  // Lane 6 is 0.25; its scale 2^-1 gives an eighth, a tie: half away is code 1, half to even 0.
  EXPECT_EQ(fact(d, "Lane", "scale").substr(0, 12), "0x3F00 = 0.5");
  EXPECT_EQ(fact(d, "Lane", "rounded").substr(0, 5), "0.125");
  EXPECT_EQ(fact(d, "Product to quarters", "position"), "exactly half an ulp is left: a tie");
  EXPECT_EQ(last_line(d), "result scale 0x000501C0, code 0x1 = 0.5");
  EXPECT_EQ(fact(d, "Dequantised", "error"), "0.25 | value - x");
  EXPECT_EQ(row(d, "Every profile", "pto-a6"), (Cells{"", "pto-a6", "0x000501C0", "0x0 *", "0", "-0.25"}));
  EXPECT_EQ(row(d, "Every profile", "literal")[2], "0x000000CB *");
}

TEST(ExplainQuantize, Hif4Specials) {
  auto words = worked_group();
  words[40] = 0x7FC0;
  EXPECT_EQ(last_line(explained(bf16, words, 3)), "result scale 0x000000FF, code 0x0 = nan");
  words[40] = 0xFF80;
  EXPECT_EQ(last_line(explained(bf16, words, 40)).substr(0, 35), "result scale 0x040020FE, code 0xF =");
  words.resize(5);  // a short group
  const Document rest = explained(bf16, words, 4);
  EXPECT_EQ(test::find_section(rest, "Element")->remarks.at(0),
            "The line ends here: the other 59 lanes of the group count as +0.");
  EXPECT_EQ(last_line(explained(bf16, std::vector<uint64>(64, 0x8000), 1)), "result scale 0x00000000, code 0x8 = -0");
}

// profiles 2: 6.5 in E2M1.
TEST(ExplainQuantize, MxScaleRules) {
  const Document d = explained(bf16, {0x40D0}, 0, {.format = find_block_format("mxfp4")});
  EXPECT_EQ(row(d, "Every scale rule", "floor"), (Cells{"->", "floor", "0x7F", "0x7", "6", "-0.5"}));
  EXPECT_EQ(row(d, "Every scale rule", "ceil"), (Cells{"", "ceil", "0x80 *", "0x5 *", "6", "-0.5"}));
  EXPECT_EQ(row(d, "Every scale rule", "rceil")[3], "0x5 *");
  EXPECT_EQ(row(d, "Every scale rule", "even")[3], "0x7");
  EXPECT_EQ(fact(d, "Scale rule", "log2 amax"), "2 | rounded down");
}

TEST(ExplainQuantize, RoundsToTheSourceTypeFirst) {
  const std::vector<uint64> words{0x3F80'8001, 0x3F80'0000};
  const std::vector<uint64> shape{2};
  const std::vector<uint64> index{0};
  const auto d = explain_quantize(bytes_of(fp32, words), fp32, shape, 0, {}, index, &bf16);
  ASSERT_TRUE(d);
  EXPECT_EQ(fact(*d, "Element", "rounded"), "1.0078125 | 0x3F81 of BF16 first, by RNE; flags NX");
}

TEST(ExplainQuantize, RefusesWhatIsNotThere) {
  const std::vector<uint64> shape{4};
  const auto bytes = bytes_of(bf16, {1, 2, 3, 4});
  const std::vector<uint64> outside{4};
  const std::vector<uint64> deep{0, 0};
  const std::vector<uint64> first{0};
  EXPECT_FALSE(explain_quantize(bytes, bf16, shape, 0, {}, outside));
  EXPECT_FALSE(explain_quantize(bytes, bf16, shape, 0, {}, deep));
  const auto no_axis = explain_quantize(bytes, bf16, shape, 1, {}, first);
  ASSERT_FALSE(no_axis);
  EXPECT_EQ(no_axis.error().message, "axis 1 is outside of an array with 1 dimension");
  EXPECT_FALSE(explain_quantize(bytes, fp32, shape, 0, {}, first));
  EXPECT_FALSE(explain_quantize(bytes, bf16, shape, 0, {.tensor_scale = true}, first));
}

}  // namespace
}  // namespace bitcube
