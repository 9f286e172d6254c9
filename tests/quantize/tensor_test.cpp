#include "bitcube/quantize/tensor.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <rapidcheck/gtest.h>  // needs gtest before it

namespace bitcube {
namespace {

using Bytes = std::vector<std::byte>;
using Shape = std::vector<uint64>;

const Format& format_named(std::string_view name) {
  return *find_format(name);
}
const BlockFormat& block_named(std::string_view name) {
  return *find_block_format(name);
}

/// Words of a format as the bytes of a tensor.
Bytes to_bytes(const Format& format, const std::vector<uint64>& words) {
  const std::size_t size = format.carrier_bits / 8U;
  Bytes bytes(words.size() * size);
  for (std::size_t i = 0; i < words.size(); ++i) store_word(bytes.data() + i * size, size, words[i]);
  return bytes;
}

std::vector<uint64> to_words(const Format& format, const Bytes& bytes) {
  const std::size_t size = format.carrier_bits / 8U;
  std::vector<uint64> words;
  for (std::size_t i = 0; i < bytes.size(); i += size) words.push_back(load_word(bytes.data() + i, size));
  return words;
}

std::string hex(const Bytes& bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02X}", std::to_integer<unsigned>(b));
  return text;
}

std::vector<uint64> gaussian_bf16(std::size_t count, float sigma = 1.0F, unsigned seed = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<uint64> words;
  for (std::size_t i = 0; i < count; ++i) {
    words.push_back(convert(fp32, bf16, std::bit_cast<std::uint32_t>(normal(rng)), {}).bits);
  }
  return words;
}

template <typename T>
testing::AssertionResult fails_with(const Expected<T>& result, std::string_view part) {
  if (result) return testing::AssertionFailure() << "it succeeded, instead of: " << part;
  if (result.error().message.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << result.error().message << "\ndoes not say: " << part;
}

TEST(BlockFormats, TableAndNames) {
  EXPECT_EQ(block_formats[0].name, "hif4");
  EXPECT_EQ(find_block_format("MXFP4"), find_block_format("mxfp4-e2m1"));
  EXPECT_EQ(find_block_format("mxfp5"), nullptr);
  const BlockFormat& hif4_format = block_named("hif4");
  EXPECT_EQ(hif4_format.code_bytes(65), 33U);
  EXPECT_EQ(hif4_format.groups(64), 1U);
  EXPECT_EQ(hif4_format.groups(65), 2U);
  EXPECT_EQ(block_named("mxfp6-e3m2").code_bytes(65), 65U);
  EXPECT_EQ(block_named("nvfp4").groups(0), 0U);
  for (const BlockFormat& f : block_formats) {
    EXPECT_EQ(f.group % 2, 0U) << "a group of " << f.name << " would not start on a byte";
    EXPECT_EQ(f.is_hif4() + f.is_mx() + f.is_nvfp4(), 1) << f.name;
  }
}

TEST(LinesOf, CountsAndOrder) {
  Lines lines;
  ASSERT_TRUE(lines_of(Shape{2, 3, 4}, 1, lines));
  EXPECT_EQ(lines.count, 8U);
  EXPECT_EQ(lines.length, 3U);
  EXPECT_EQ(lines.element(0, 1), 4U);
  EXPECT_EQ(lines.element(5, 2), 12U + 8U + 1U);  // outer 1, inner 1
  ASSERT_TRUE(lines_of(Shape{uint64{1} << 40, 0, uint64{1} << 40}, 1, lines));
  EXPECT_EQ(lines.elements(), 0U);
  EXPECT_FALSE(lines_of(Shape{uint64{1} << 40, 1, uint64{1} << 40}, 1, lines));
}

// ---- Storage ----------------------------------------------------------------------------------------------

TEST(Quantize, OneLineOfThePaper) {
  std::vector<uint64> words{0x40E0, 0xC060, 0x3F80, 0x3E9A, 0x4020, 0xBF00, 0x3E80, 0x8000,
                            0x4040, 0xC000, 0x3F80, 0x3F00, 0x3F00, 0x3EC0, 0x3E00};
  const auto q = quantize(to_bytes(bf16, words), bf16, Shape{15}, 0);
  ASSERT_TRUE(q);
  EXPECT_EQ(hex(q->codes), "C7019581C6122201");  // lane 15 does not exist: nibble 0
  EXPECT_EQ(hex(q->scales), "C0010500");
  EXPECT_EQ(q->profile->name, "pto");
  EXPECT_EQ(q->rounding, Rounding::rna);
  EXPECT_EQ(q->source, &bf16);
}

TEST(Quantize, EveryLineStartsOnAByte) {
  // Three lines of three lanes: 4-bit codes take two bytes, the last high nibble is 0.
  const Bytes x = to_bytes(bf16, {0x40C0, 0x4080, 0x3F80, 0xC0C0, 0xC080, 0xBF80, 0x4000, 0x0000, 0x8000});
  QuantizeOptions options{.format = &block_named("mxfp4")};
  const auto rows = quantize(x, bf16, Shape{3, 3}, 1, options);
  ASSERT_TRUE(rows);
  EXPECT_EQ(hex(rows->codes), "6702EF0A0608");
  EXPECT_EQ(hex(rows->scales), "7F7F7E");
  const auto columns = quantize(x, bf16, Shape{3, 3}, 0, options);
  ASSERT_TRUE(columns);
  EXPECT_EQ(hex(columns->codes), "F704E600E608");  // lines (6 -6 2), (4 -4 0), (1 -1 -0)
  EXPECT_EQ(hex(columns->scales), "7F7F7D");
  options.format = &block_named("mxfp8-e4m3");
  const auto bytes = quantize(x, bf16, Shape{3, 3}, 1, options);
  ASSERT_TRUE(bytes);
  EXPECT_EQ(hex(bytes->codes), "7C7868FCF8E8780080");
  EXPECT_EQ(hex(bytes->scales), "797978");
}

/// The tensor, one line at a time, by the group functions alone.
QuantizedTensor by_groups(const QuantizedTensor& like, const std::vector<uint64>& words) {
  QuantizedTensor out = like;
  const BlockFormat& f = *like.format;
  Lines lines;
  EXPECT_TRUE(lines_of(like.shape, like.axis, lines));
  std::fill(out.codes.begin(), out.codes.end(), std::byte{0});
  for (uint64 line = 0; line < lines.count; ++line) {
    for (uint64 g = 0; g < f.groups(lines.length); ++g) {
      std::vector<uint64> group;
      for (uint64 k = g * f.group; k < std::min<uint64>(lines.length, (g + 1) * f.group); ++k) {
        group.push_back(words[lines.element(line, k)]);
      }
      std::vector<std::uint8_t> codes;
      uint64 scale = 0;
      if (f.is_hif4()) {
        std::vector<std::uint32_t> narrow;
        for (const uint64 word : group) narrow.push_back(hif4_source_word(*like.source, word));
        const Hif4Group q = quantize_hif4_group(hif4_source_format(*like.source), narrow, *like.profile);
        scale = q.scale_word;
        codes.assign(q.codes.begin(), q.codes.end());
      } else {
        const MxGroup q =
            f.is_mx()
                ? quantize_mx_group(*f.element, *like.source, group, like.scale_rule->rounding, like.rounding)
                : quantize_nvfp4_group(*like.source, group, like.tensor_scale.value_or(0x3F800000), like.rounding);
        scale = q.scale;
        codes.assign(q.codes.begin(), q.codes.end());
      }
      store_word(out.scales.data() + (line * f.groups(lines.length) + g) * f.scale_bytes(), f.scale_bytes(), scale);
      for (std::size_t i = 0; i < group.size(); ++i) {
        const uint64 k = g * f.group + i;
        const uint64 at = line * f.code_bytes(lines.length) + (f.element->is_packed() ? k / 2 : k);
        out.codes[at] |= static_cast<std::byte>(codes[i] << (f.element->is_packed() && k % 2 == 1 ? 4 : 0));
      }
    }
  }
  return out;
}

RC_GTEST_PROP(Quantize, IsTheGroupFunctionsOnEveryLine, ()) {
  Shape shape;
  uint64 elements = 1;
  const auto rank = *rc::gen::inRange(1, 5);
  for (int i = 0; i < rank; ++i) {
    const uint64 extent = *rc::gen::element<uint64>(1, 2, 3, 5, 15, 16, 17, 33, 64, 65, 131);
    shape.push_back(elements * extent > 20000 ? 1 : extent);
    elements *= shape.back();
  }
  const auto axis = *rc::gen::inRange<std::size_t>(0, shape.size());
  const Format& source = format_named(*rc::gen::element<const char*>("BF16", "FP32", "FP16", "FP64", "E5M2", "HiF8"));
  std::mt19937_64 rng(*rc::gen::arbitrary<std::uint32_t>());
  std::vector<uint64> words(elements);
  const bool special = *rc::gen::inRange(0, 4) == 0;  // infinities and NaN among them
  for (uint64& word : words) {
    do {
      word = rng() & low_mask(source.carrier_bits);
    } while (!special && !decode(source, word).is_finite());
  }
  const Bytes bytes = to_bytes(source, words);
  for (const BlockFormat& format : block_formats) {
    QuantizeOptions options{.format = &format,
                            .profile = &hif4_profiles[*rc::gen::inRange<std::size_t>(0, 5)],
                            .scale_rule = &scale_rules[*rc::gen::inRange<std::size_t>(0, 4)],
                            .rounding = roundings[*rc::gen::inRange<std::size_t>(0, 7)].mode,
                            .tensor_scale = format.is_nvfp4() && *rc::gen::arbitrary<bool>(),
                            .execution = {.threads = *rc::gen::inRange(0U, 4U)}};
    const auto q = quantize(bytes, source, shape, axis, options);
    RC_ASSERT(static_cast<bool>(q));
    RC_ASSERT(static_cast<bool>(validate(*q)));
    const QuantizedTensor expected = by_groups(*q, words);
    RC_ASSERT(q->codes == expected.codes);
    RC_ASSERT(q->scales == expected.scales);
  }
}

TEST(Quantize, ThreadsNeverChangeAByte) {
  const Shape shape{37, 70, 51};
  const Bytes x = to_bytes(bf16, gaussian_bf16(37 * 70 * 51));
  for (const BlockFormat& format : block_formats) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      QuantizeOptions options{.format = &format, .tensor_scale = format.is_nvfp4(), .execution = {.threads = 1}};
      const auto one = quantize(x, bf16, shape, axis, options);
      ASSERT_TRUE(one);
      const auto report = measure(x, *one, {.threads = 1});
      const auto back = dequantize(*one, fp16, Rounding::rne, {.threads = 1});
      ASSERT_TRUE(report && back);
      for (const unsigned threads : {0U, 2U, 3U, 8U}) {
        options.execution.threads = threads;
        const auto many = quantize(x, bf16, shape, axis, options);
        ASSERT_TRUE(many);
        EXPECT_EQ(one->codes, many->codes);
        EXPECT_EQ(one->scales, many->scales);
        EXPECT_EQ(one->tensor_scale, many->tensor_scale);
        const auto again = measure(x, *many, {.threads = threads});
        ASSERT_TRUE(again);
        EXPECT_EQ(std::memcmp(&*report, &*again, sizeof *report), 0) << format.name << " threads " << threads;
        const auto back_again = dequantize(*many, fp16, Rounding::rne, {.threads = threads});
        ASSERT_TRUE(back_again);
        EXPECT_EQ(back->bytes, back_again->bytes);
        EXPECT_EQ(back->flags, back_again->flags);
      }
    }
  }
}

TEST(Quantize, TensorScaleOfNvfp4) {
  // The tensor's maximum, -2688 * 2^10, stands in the last line; infinities and NaN are no maximum.
  std::vector<uint64> words(5 * 40, 0x3F800000);
  words[199] = 0xCA280000;
  words[3] = 0x7F800000;
  words[40] = 0x7FC00000;
  QuantizeOptions options{.format = &block_named("nvfp4"), .tensor_scale = true};
  const auto q = quantize(to_bytes(fp32, words), fp32, Shape{5, 40}, 1, options);
  ASSERT_TRUE(q);
  EXPECT_EQ(q->tensor_scale, 0x44800000U);  // 1024
  EXPECT_EQ(q->scales.back(), std::byte{0x7E});
  EXPECT_EQ(q->codes.back(), std::byte{0xF0});
  EXPECT_EQ(q->scales[0], std::byte{0x7E});
  EXPECT_EQ(q->scales[3], std::byte{0x7F});
  const auto zeros = quantize(Bytes(64), fp32, Shape{16}, 0, options);
  ASSERT_TRUE(zeros);
  EXPECT_EQ(zeros->tensor_scale, 0U);
  EXPECT_EQ(zeros->scales[0], std::byte{0});
}

TEST(Quantize, OtherFloatsAreRoundedToBf16OnceForHif4) {
  EXPECT_EQ(hif4_source_word(fp16, 0x3C04), 0x3F80U);  // ties of BF16, to even
  EXPECT_EQ(hif4_source_word(fp16, 0x3C0C), 0x3F82U);
  EXPECT_EQ(hif4_source_word(fp16, 0xFBFF), 0xC780U);
  EXPECT_EQ(hif4_source_word(fp16, 0xFE01), 0x7FC0U);
  EXPECT_EQ(hif4_source_word(fp64, 0xFFE0000000000000), 0xFF80U);  // beyond BF16: infinity, not the largest value
  EXPECT_EQ(hif4_source_word(format_named("TF32"), 0x3F800001), 0x7FC0U);
  EXPECT_EQ(hif4_source_word(fp32, 0x7F7FFFFF), 0x7F7FFFFFU);  // as it is

  // 1.00390625 is a tie of BF16, 65504 becomes 65536, 2^-24 stays.
  const Bytes x = to_bytes(fp16, {0x3C04, 0x7BFF, 0x0001});
  const Bytes rounded = to_bytes(bf16, {0x3F80, 0x4780, 0x3380});
  const auto from_fp16 = quantize(x, fp16, Shape{3, 1}, 1);
  const auto from_bf16 = quantize(rounded, bf16, Shape{3, 1}, 1);
  ASSERT_TRUE(from_fp16 && from_bf16);
  EXPECT_EQ(from_fp16->codes, from_bf16->codes);
  EXPECT_EQ(from_fp16->scales, from_bf16->scales);
  EXPECT_EQ(from_fp16->source, &fp16);
  // FP64 beyond BF16 becomes infinity, not the largest value.
  const auto huge = quantize(to_bytes(fp64, {0x7FE0000000000000}), fp64, Shape{1}, 0);
  ASSERT_TRUE(huge);
  EXPECT_EQ(hex(huge->scales), "FE010100");
  EXPECT_EQ(hex(huge->codes), "07");
}

TEST(Quantize, ReportsItsProgress) {
  std::atomic<uint64> calls{0};
  std::atomic<uint64> finished{0};
  QuantizeOptions options{.execution = {.threads = 2, .progress = [&](std::size_t done, std::size_t total) {
                                          ++calls;
                                          if (done == total) ++finished;
                                        }}};
  const auto q = quantize(Bytes(2000 * 64 * 2), bf16, Shape{2000, 64}, 1, options);
  ASSERT_TRUE(q);
  EXPECT_GT(calls, 1U);
  EXPECT_EQ(finished, 1U);
}

// ---- What is refused --------------------------------------------------------------------------------------

TEST(Quantize, RefusesWhatItCannotRead) {
  const Bytes x(64);
  EXPECT_TRUE(fails_with(quantize(x, format_named("S8"), Shape{64}, 0), "source S8: cannot be quantised"));
  EXPECT_TRUE(fails_with(quantize(x, format_named("E2M1"), Shape{64}, 0), "source E2M1X2"));
  EXPECT_TRUE(fails_with(quantize(x, e8m0, Shape{64}, 0), "source E8M0"));
  EXPECT_TRUE(fails_with(quantize(x, bf16, Shape{}, 0), "shape []"));
  EXPECT_TRUE(fails_with(quantize(x, bf16, Shape{4, 8}, 2), "axis 2: the shape [4, 8] has the axes 0 to 1"));
  EXPECT_TRUE(fails_with(quantize(x, bf16, Shape{4, 9}, 0), "64 bytes, but shape [4, 9] of BF16 needs 72 bytes"));
  EXPECT_TRUE(fails_with(quantize(x, bf16, Shape{uint64{1} << 32, uint64{1} << 32}, 0), "more elements"));
  EXPECT_TRUE(fails_with(quantize({}, bf16, Shape{uint64{1} << 63}, 0), "0 bytes"));
  EXPECT_TRUE(fails_with(quantize({}, bf16, Shape{uint64{1} << 63, 1}, 1), "bytes"));
  EXPECT_TRUE(fails_with(quantize(x, bf16, Shape{32}, 0, {.tensor_scale = true}), "only nvfp4"));
  EXPECT_TRUE(fails_with(quantize(x, bf16, Shape{32}, 0, {.format = nullptr}), "no block format"));
  EXPECT_TRUE(fails_with(quantize(x, bf16, Shape{32}, 0, {.profile = nullptr}), "no profile"));
}

TEST(Quantize, EmptyTensorsAreEmpty) {
  for (const BlockFormat& format : block_formats) {
    for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{0, 3}, Shape{uint64{1} << 40, 0, uint64{1} << 40}}) {
      for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        const auto q = quantize({}, fp32, shape, axis, {.format = &format, .tensor_scale = format.is_nvfp4()});
        ASSERT_TRUE(q);
        EXPECT_TRUE(q->codes.empty());
        EXPECT_TRUE(q->scales.empty());
        const auto back = dequantize(*q, fp32);
        ASSERT_TRUE(back);
        EXPECT_TRUE(back->bytes.empty());
        const auto report = measure({}, *q);
        ASSERT_TRUE(report);
        EXPECT_EQ(report->lanes, 0U);
        EXPECT_EQ(report->mean_squared_error, 0);
        EXPECT_TRUE(std::isnan(report->sqnr));
      }
    }
  }
}

TEST(Validate, NamesWhatIsWrong) {
  const auto good = quantize(Bytes(4 * 70 * 2), bf16, Shape{4, 70}, 1);
  ASSERT_TRUE(good);
  EXPECT_TRUE(validate(*good));
  const auto broken = [&](auto change) {
    QuantizedTensor t = *good;
    change(t);
    EXPECT_FALSE(dequantize(t, fp32));
    EXPECT_FALSE(measure(Bytes(4 * 70 * 2), t));
    return validate(t);
  };
  EXPECT_TRUE(fails_with(broken([](auto& t) { t.codes.pop_back(); }),
                         "codes has 139 bytes, but shape [4, 70] along axis 1"
                         " needs 140"));
  EXPECT_TRUE(fails_with(broken([](auto& t) { t.scales.resize(8); }), "scales has 8 bytes"));
  EXPECT_TRUE(fails_with(broken([](auto& t) { t.axis = 2; }), "axis 2"));
  EXPECT_TRUE(fails_with(broken([](auto& t) { t.profile = nullptr; }), "needs a HiF4 profile"));
  EXPECT_TRUE(fails_with(broken([](auto& t) { t.scale_rule = &scale_rules[0]; }), "does not take a scale rule"));
  EXPECT_TRUE(fails_with(broken([](auto& t) { t.tensor_scale = 0x3F800000; }), "only nvfp4"));
  EXPECT_TRUE(fails_with(broken([](auto& t) { t.format = &block_named("mxfp4"); }), "does not take a HiF4 profile"));
  EXPECT_TRUE(fails_with(broken([](auto& t) { t.format = nullptr; }), "no block format"));
  EXPECT_TRUE(fails_with(dequantize(*good, e4m3), "destination E4M3"));
  EXPECT_TRUE(fails_with(measure(Bytes(3), *good), "3 bytes"));

  auto nv = quantize(Bytes(32), bf16, Shape{16}, 0, {.format = &block_named("nvfp4"), .tensor_scale = true});
  ASSERT_TRUE(nv);
  for (const std::uint32_t word : {0x7F800000U, 0x7FC00000U, 0xBF800000U, 0x80000000U}) {
    nv->tensor_scale = word;
    EXPECT_TRUE(fails_with(validate(*nv), "tensor scale"));
  }
}

// ---- Dequantise -------------------------------------------------------------------------------------------

RC_GTEST_PROP(Dequantize, IsTheExactLaneRoundedOnce, ()) {
  const Shape shape{*rc::gen::inRange<uint64>(1, 4), *rc::gen::inRange<uint64>(1, 150),
                    *rc::gen::inRange<uint64>(1, 4)};
  const auto axis = *rc::gen::inRange<std::size_t>(0, 3);
  Lines lines;
  RC_ASSERT(lines_of(shape, axis, lines));
  std::mt19937 rng(*rc::gen::arbitrary<std::uint32_t>());
  std::vector<uint64> words(lines.elements());
  for (uint64& word : words) word = rng() % 50 == 0 ? 0x7F80 : rng() & 0xFFFF;
  for (const BlockFormat& format : block_formats) {
    const auto q = quantize(to_bytes(bf16, words), bf16, shape, axis, {.format = &format});
    RC_ASSERT(static_cast<bool>(q));
    const Rounding rounding = roundings[*rc::gen::inRange<std::size_t>(0, 7)].mode;
    for (const Format* to : {&fp32, &bf16, &fp16, &fp64}) {
      const auto back = dequantize(*q, *to, rounding, {.threads = 2});
      RC_ASSERT(static_cast<bool>(back));
      const auto got = to_words(*to, back->bytes);
      Flags flags = Flags::none;
      for (uint64 line = 0; line < lines.count; ++line) {
        for (uint64 k = 0; k < lines.length; ++k) {
          const Value y = dequantize_lane(*q, line, k);
          const Encoded expected = convert_value(*to, y.cls, y.real, {.rounding = rounding});
          RC_ASSERT(got[lines.element(line, k)] == expected.bits);
          flags |= expected.flags;
        }
      }
      RC_ASSERT(back->flags == flags);
    }
  }
}

TEST(Dequantize, SpecialsAndFlags) {
  // A NaN group, a group with -Inf, zeros of both signs. 344064 overflows FP16.
  std::vector<uint64> words(3 * 64, 0);
  words[0] = 0x7FC0;
  words[64] = 0xFF80;
  words[129] = 0x8000;
  const auto q = quantize(to_bytes(bf16, words), bf16, Shape{3, 64}, 1);
  ASSERT_TRUE(q);
  const auto wide = dequantize(*q, fp32);
  ASSERT_TRUE(wide);
  const auto got = to_words(fp32, wide->bytes);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(got[i], 0x7FC00000U);
  EXPECT_EQ(got[64], 0xC8A80000U);  // -344064
  EXPECT_EQ(got[65], 0U);
  EXPECT_EQ(got[129], 0x80000000U);
  EXPECT_EQ(wide->flags, Flags::none);
  const auto narrow = dequantize(*q, fp16);
  ASSERT_TRUE(narrow);
  EXPECT_EQ(to_words(fp16, narrow->bytes)[64], 0xFC00U);
  EXPECT_EQ(to_words(fp16, narrow->bytes)[0], 0x7E00U);
  EXPECT_EQ(narrow->flags, overflow_inexact);
}

TEST(Dequantize, ElementsThatAreNoNumbers) {
  // Codes that a quantiser never writes: the NaN of E4M3, infinity of E5M2, an invalid byte of E3M2.
  const auto with_code = [](const char* format, unsigned code) {
    auto q = quantize(Bytes(2), bf16, Shape{1}, 0, {.format = &block_named(format)});
    q->codes[0] = static_cast<std::byte>(code);
    return to_words(fp32, dequantize(*q, fp32)->bytes)[0];
  };
  EXPECT_EQ(with_code("mxfp8-e4m3", 0xFF), 0x7FC00000U);
  EXPECT_EQ(with_code("mxfp8-e5m2", 0xFC), 0xFF800000U);
  EXPECT_EQ(with_code("mxfp8-e5m2", 0x7D), 0x7FC00000U);
  EXPECT_EQ(with_code("mxfp6-e3m2", 0x40), 0x7FC00000U);
}

// ---- Measure ----------------------------------------------------------------------------------------------

TEST(Measure, SmallCaseByHand) {
  // MXFP4 with floor: 6.5 and 0.75 under scale 1 become 6 and 1 (a tie, to even); 0 stays; 2 stays.
  const Bytes x = to_bytes(fp32, {0x40D00000, 0xBF400000, 0x00000000, 0x40000000});
  const auto q = quantize(x, fp32, Shape{4}, 0, {.format = &block_named("mxfp4")});
  ASSERT_TRUE(q);
  const auto report = measure(x, *q);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->lanes, 4U);
  EXPECT_EQ(report->non_zero, 3U);
  EXPECT_EQ(report->non_finite, 0U);
  EXPECT_EQ(report->max_absolute_error, 0.5);
  EXPECT_EQ(report->max_relative_error, 0.25 / 0.75);
  EXPECT_EQ(report->mean_relative_error, (0.5 / 6.5 + 0.25 / 0.75) / 3);
  EXPECT_EQ(report->mean_squared_error, (0.25 + 0.0625) / 4);
  EXPECT_EQ(report->sqnr, 10 * std::log10((42.25 + 0.5625 + 4) / 0.3125));
}

TEST(Measure, LeavesOutWhatIsNotFinite) {
  // One lane NaN: the group decodes to NaN. One lane infinite: it alone is left out.
  std::vector<uint64> words(96, 0x3F800000);
  words[3] = 0x7FC00000;
  words[40] = 0x7F800000;
  const Bytes x = to_bytes(fp32, words);
  const auto q = quantize(x, fp32, Shape{96}, 0, {.format = &block_named("mxfp8-e5m2")});
  ASSERT_TRUE(q);
  const auto report = measure(x, *q);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->non_finite, 33U);
  EXPECT_EQ(report->non_zero, 63U);
  EXPECT_EQ(report->max_relative_error, 1);  // ones under a scale of 2^127 are zero
  EXPECT_EQ(report->mean_squared_error, 31.0 / 63);
}

TEST(Measure, SquaresBeyondADouble) {
  // The scale E8M0 ends at 2^-127 and 2^127: every lane of the first becomes 0, those of the second all but vanish.
  for (const double size : {1e-200, 1e200, 0x1p-1074, 0x1.fffffffffffffp1023}) {
    const Bytes x = to_bytes(fp64, std::vector<uint64>(64, std::bit_cast<uint64>(size)));
    const auto q = quantize(x, fp64, Shape{64}, 0, {.format = &block_named("mxfp8-e4m3")});
    ASSERT_TRUE(q);
    EXPECT_NEAR(measure(x, *q)->sqnr, 0, 1e-12) << size;
  }
  // Where both are there, the large ones decide: 1e-170 is lost, 2^20 is exact.
  std::vector<uint64> words(64, std::bit_cast<uint64>(1e-170));
  words[40] = std::bit_cast<uint64>(0x1p20);
  const Bytes x = to_bytes(fp64, words);
  const auto q = quantize(x, fp64, Shape{64}, 0, {.format = &block_named("mxfp8-e4m3")});
  ASSERT_TRUE(q);
  EXPECT_NEAR(measure(x, *q)->sqnr, 400 * std::log10(2.0) - 10 * std::log10(63.0) + 3400, 1e-9);
}

TEST(SumOfSquares, RatiosOfAllSizes) {
  const auto sum = [](std::initializer_list<double> values) {
    SumOfSquares out;
    for (const double value : values) out.add(value);
    return out;
  };
  EXPECT_EQ(sum({3, -4}).value(), 25);
  EXPECT_EQ(SumOfSquares::decibels(sum({3, 4}), sum({0.5})), 10 * std::log10(100.0));
  EXPECT_EQ(sum({1e300}).value(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(sum({1e-300}).value(), 0);
  EXPECT_NEAR(SumOfSquares::decibels(sum({1e300}), sum({1e-300})), 12000, 1e-9);
  EXPECT_NEAR(SumOfSquares::decibels(sum({1e140, 1e-200}), sum({1e-140})), 5600, 1e-9);
  EXPECT_NEAR(SumOfSquares::decibels(sum({1e-300, 1e-200}), sum({1e-199})), -20, 1e-9);
  EXPECT_NEAR(SumOfSquares::decibels(sum({1e145, 1e144}), sum({1e145})), 10 * std::log10(1.01), 1e-12);
  EXPECT_TRUE(std::isinf(SumOfSquares::decibels(sum({1}), sum({}))));
  EXPECT_EQ(SumOfSquares::decibels(sum({}), sum({1e-300})), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(sum({0}).is_zero());
  EXPECT_FALSE(sum({0x1p-1074}).is_zero());
  SumOfSquares both = sum({1e300, 1});
  both.add(sum({1e300, 1e-300}));
  EXPECT_NEAR(SumOfSquares::decibels(both, sum({1e300})), 10 * std::log10(2.0), 1e-12);
}

TEST(Measure, ExactTensorsHaveInfiniteSqnr) {
  const Bytes x = to_bytes(fp32, std::vector<uint64>(64, 0x40E00000));
  const auto q = quantize(x, fp32, Shape{64}, 0);
  ASSERT_TRUE(q);
  EXPECT_TRUE(std::isinf(measure(x, *q)->sqnr));
  EXPECT_EQ(measure(x, *q)->max_relative_error, 0);
}

// What profiles 1 says of Gaussian data, at 2^20 samples.
TEST(Measure, GaussianErrorsOfTheProfiles) {
  constexpr std::size_t kCount = std::size_t{1} << 20;
  for (const float sigma : {1.0F, 0.01F}) {
    const Bytes x = to_bytes(bf16, gaussian_bf16(kCount, sigma));
    const auto mse = [&](const QuantizeOptions& options) {
      const auto q = quantize(x, bf16, Shape{kCount / 1024, 1024}, 1, options);
      return measure(x, *q)->mean_squared_error / (static_cast<double>(sigma) * static_cast<double>(sigma));
    };
    for (const char* name : {"pto", "paper"}) {
      const double hif4_error = mse({.profile = find_hif4_profile(name)});
      EXPECT_NEAR(hif4_error, 0.0069, 0.0001) << name;
      EXPECT_NEAR(mse({.format = &block_named("nvfp4"), .tensor_scale = true}) / hif4_error, 1.315, 0.01) << name;
      if (sigma != 0.01F) continue;
      EXPECT_NEAR(mse({.format = &block_named("mxfp4")}) / hif4_error, 1.89, 0.03) << name;
    }
  }
}

// ---- Parts ------------------------------------------------------------------------------------------------

TEST(Parts, LinesAreATensorOfTheirOwn) {
  const uint64 count = 9;
  const uint64 k = 70;
  const Bytes x = to_bytes(bf16, gaussian_bf16(count * k));
  for (const BlockFormat& format : block_formats) {
    QuantizeOptions options{.format = &format, .tensor_scale = format.is_nvfp4()};
    const auto whole = quantize(x, bf16, Shape{count, k}, 1, options);
    ASSERT_TRUE(whole);
    if (format.is_nvfp4()) {
      Real largest;
      for (uint64 line = 0; line < count; ++line) {
        const auto here = largest_magnitude(std::span(x).subspan(line * k * 2, k * 2), bf16);
        ASSERT_TRUE(here);
        if (compare_magnitude(*here, largest) > 0) largest = *here;
      }
      options.given_scale = nvfp4_tensor_scale(largest);
      EXPECT_EQ(options.given_scale, whole->tensor_scale);
    }
    ErrorMeter meter;
    Bytes codes;
    Bytes scales;
    for (uint64 line = 0; line < count; line += 4) {
      const uint64 lines = std::min<uint64>(4, count - line);
      const auto bytes = std::span(x).subspan(line * k * 2, lines * k * 2);
      const auto part = quantize(bytes, bf16, Shape{lines, k}, 1, options);
      ASSERT_TRUE(part);
      codes.insert(codes.end(), part->codes.begin(), part->codes.end());
      scales.insert(scales.end(), part->scales.begin(), part->scales.end());
      ASSERT_TRUE(meter.add(bytes, *part));
    }
    EXPECT_EQ(codes, whole->codes) << format.name;
    EXPECT_EQ(scales, whole->scales) << format.name;
    const auto report = measure(x, *whole);
    ASSERT_TRUE(report);
    EXPECT_EQ(meter.report().lanes, count * k);
    EXPECT_EQ(meter.report().sqnr, report->sqnr);
  }
}

TEST(Parts, Refusals) {
  const Bytes x = to_bytes(bf16, gaussian_bf16(16));
  const BlockFormat& nvfp4 = block_named("nvfp4");
  EXPECT_TRUE(fails_with(quantize(x, bf16, Shape{16}, 0, {.given_scale = 0x3F800000}), "only nvfp4"));
  EXPECT_TRUE(
      fails_with(quantize(x, bf16, Shape{16}, 0, {.format = &nvfp4, .given_scale = 0x7F800000}), "finite FP32"));
  EXPECT_TRUE(
      fails_with(quantize(x, bf16, Shape{16}, 0, {.format = &nvfp4, .given_scale = 0xBF800000}), "finite FP32"));
  EXPECT_TRUE(fails_with(largest_magnitude(std::span(x).first(3), bf16), "3 bytes"));
  EXPECT_TRUE(fails_with(largest_magnitude(x, format_of(DataType::s8)), "not a float"));
  const auto part = quantize(x, bf16, Shape{16}, 0);
  ASSERT_TRUE(part);
  ErrorMeter meter;
  EXPECT_TRUE(fails_with(meter.add(std::span(x).first(30), *part), "30 bytes"));
  QuantizedTensor description = *part;
  description.codes.clear();
  EXPECT_TRUE(validate_description(description));
  EXPECT_TRUE(fails_with(validate(description), "codes has 0 bytes"));
  description.profile = nullptr;
  EXPECT_TRUE(fails_with(validate_description(description), "needs a HiF4 profile"));
}

// One process measures the first groups, another the rest, and tells what it has.
TEST(Parts, AMeterOfAnotherProcess) {
  constexpr std::size_t lanes = 64 * 1500;
  const auto x = to_bytes(bf16, gaussian_bf16(lanes));
  const auto quantized = [&](std::size_t first, std::size_t count) {
    return *quantize(std::span(x).subspan(2 * first, 2 * count), bf16, Shape{count}, 0);
  };
  const auto whole = measure(x, quantized(0, lanes));
  ASSERT_TRUE(whole);
  for (const std::size_t groups : {ErrorMeter::kBlock, 2 * ErrorMeter::kBlock}) {
    const std::size_t cut = 64 * groups;
    ErrorMeter meter;
    ASSERT_TRUE(meter.add(std::span(x).first(2 * cut), quantized(0, cut)));
    ErrorMeter rest(true);
    ASSERT_TRUE(rest.add(std::span(x).subspan(2 * cut), quantized(cut, lanes - cut)));
    const auto told = ErrorMeter::from_state(rest.state());
    ASSERT_TRUE(told);
    meter.append(*told);
    const ErrorReport report = meter.report();
    EXPECT_EQ(std::memcmp(&report, &*whole, sizeof report), 0) << groups;
  }
  const std::string state = ErrorMeter(true).state();
  EXPECT_TRUE(ErrorMeter::from_state(state));
  EXPECT_TRUE(fails_with(ErrorMeter::from_state(state.substr(1)), "not the state of a meter"));
  EXPECT_TRUE(fails_with(ErrorMeter::from_state(state + "x"), "not the state of a meter"));
}

TEST(Parts, LargestMagnitude) {
  std::vector<uint64> words = gaussian_bf16(5000);
  words[1234] = 0xC7FF;  // -130560
  words[17] = 0x7F80;    // infinite
  words[18] = 0x7FC0;    // NaN
  const auto largest = largest_magnitude(to_bytes(bf16, words), bf16);
  ASSERT_TRUE(largest);
  EXPECT_EQ(compare_magnitude(*largest, decode(bf16, 0x47FF).real), 0);
  const auto nothing = largest_magnitude({}, bf16);
  ASSERT_TRUE(nothing);
  EXPECT_TRUE(nothing->is_zero());
}

}  // namespace
}  // namespace bitcube
