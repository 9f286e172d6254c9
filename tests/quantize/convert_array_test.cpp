#include "bitcube/quantize/convert_array.hpp"

#include <gtest/gtest.h>

#include "bitcube/quantize/lines.hpp"
#include "support/operands.hpp"

namespace bitcube {
namespace {

TEST(ConvertArray, IsConvertOfEveryElement) {
  test::Operands operands(1);
  std::vector<std::uint32_t> words(40000);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(operands.word(fp32));
  for (const DataType type : {DataType::bf16, DataType::fp64, DataType::e4m3, DataType::s16}) {
    const Format& to = format_of(type);
    const EncodeControl control{.rounding = Rounding::rtp, .saturate = true};
    const auto one = convert_array(std::as_bytes(std::span(words)), fp32, to, control, {.threads = 1});
    const auto two = convert_array(std::as_bytes(std::span(words)), fp32, to, control, {.threads = 2});
    ASSERT_TRUE(one && two);
    EXPECT_EQ(one->words, two->words);
    Flags flags = Flags::none;
    const std::size_t bytes = to.carrier_bits / 8U;
    for (std::size_t i = 0; i < words.size(); ++i) {
      const Encoded e = convert(fp32, to, words[i], control);
      flags |= e.flags;
      ASSERT_EQ(load_word(one->words.data() + i * bytes, bytes), e.bits);
    }
    EXPECT_EQ(one->flags, flags);
  }
}

TEST(ConvertArray, Errors) {
  const std::vector<std::byte> bytes(8);
  EXPECT_FALSE(convert_array(bytes, fp32, e6m2));
  EXPECT_FALSE(convert_array(bytes, fp32, format_of(DataType::e2m1x2)));
  EXPECT_FALSE(convert_array(bytes, bf16, e6m2, {.rounding = Rounding::rtz}));
  EXPECT_FALSE(convert_array(std::span(bytes).first(7), fp32, bf16));
  EXPECT_TRUE(convert_array({}, fp32, bf16));
}

}  // namespace
}  // namespace bitcube
