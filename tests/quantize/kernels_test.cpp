// The SIMD kernels against the reference, on every target of this machine: the same bits and the same flags.
#include "quantize/kernels/hif4.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bitcube/quantize/tensor.hpp"
#include "quantize/kernels/mx.hpp"
#include "quantize/kernels/widen.hpp"
#include "support/sweep.hpp"
#include "support/targets.hpp"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace bitcube {
namespace {

using Bytes = std::vector<std::byte>;
using Shape = std::vector<uint64>;
using Words = std::vector<std::uint32_t>;

/// Random 32-bit words.
class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::uint32_t operator()() { return static_cast<std::uint32_t>(engine_()); }
  std::mt19937& engine() { return engine_; }

 private:
  std::mt19937 engine_;
};

Bytes to_bytes(const Format& format, const Words& words) {
  const std::size_t size = format.carrier_bits / 8U;
  Bytes bytes(words.size() * size);
  for (std::size_t i = 0; i < words.size(); ++i) store_word(bytes.data() + i * size, size, words[i]);
  return bytes;
}

/// "" or where the first difference is.
std::string difference(const Bytes& has, const Bytes& should) {
  if (has.size() != should.size()) return fmt::format("{} bytes instead of {}", has.size(), should.size());
  if (has == should) return "";
  for (std::size_t i = 0; i < has.size(); ++i) {
    if (has[i] != should[i]) {
      return fmt::format("byte {}: {:02X} instead of {:02X}", i, std::to_integer<unsigned>(has[i]),
                         std::to_integer<unsigned>(should[i]));
    }
  }
  return "";
}

/// Every combination of block format, profile and rule that has kernels.
std::vector<QuantizeOptions> all_options() {
  std::vector<QuantizeOptions> all;
  for (const Hif4Profile& profile : hif4_profiles) all.push_back({.format = &block_formats[0], .profile = &profile});
  for (const BlockFormat& format : block_formats) {
    if (!format.is_mx()) continue;
    for (const ScaleRule& rule : scale_rules) all.push_back({.format = &format, .scale_rule = &rule});
  }
  return all;
}

std::string show(const QuantizeOptions& o) {
  return fmt::format("{} {}", o.format->name, o.format->is_hif4() ? o.profile->name : o.scale_rule->name);
}

/// One way of each block format.
std::vector<QuantizeOptions> some_options() {
  std::vector<QuantizeOptions> some{{.format = &block_formats[0]}};
  for (const BlockFormat& format : block_formats) {
    if (format.is_mx()) some.push_back({.format = &format});
  }
  return some;
}

/// Whether the target that is chosen now has kernels; otherwise the reference would be compared with itself.
bool has_kernels() {
  return kernels::quantize_hif4(bf16, nullptr, 0, hif4_profiles[0], nullptr, nullptr);
}

/// Quantises on every target, and compares with the reference.
void check_quantize(const Bytes& bytes, const Format& source, const Shape& shape, std::size_t axis,
                    QuantizeOptions options, unsigned threads = 1) {
  options.execution = {.threads = 0, .reference = true};
  const auto expected = quantize(bytes, source, shape, axis, options);
  ASSERT_TRUE(expected);
  options.execution = {.threads = threads};
  test::for_each_target([&](const std::string& target) {
    if (!has_kernels()) return;
    const auto q = quantize(bytes, source, shape, axis, options);
    ASSERT_TRUE(q);
    const std::string what =
        fmt::format("{} {} {} K {} axis {}", target, show(options), source.name, shape[axis], axis);
    ASSERT_EQ(difference(q->scales, expected->scales), "") << what << ", scales";
    ASSERT_EQ(difference(q->codes, expected->codes), "") << what << ", codes";
  });
}
void check_quantize(const Words& words, const Format& source, const QuantizeOptions& options) {
  check_quantize(to_bytes(source, words), source, {words.size()}, 0, options);
}

// ---- Quantisers ----

/// Groups of this many lanes serve HiF4 and MX.
constexpr std::size_t kLanes = 64;

TEST(QuantizeKernels, EveryBf16WordAsMaximum) {
  // The other lanes are at most 8 binades below it: what lies near one bound or another.
  Random rng(1);
  for (const QuantizeOptions& options : all_options()) {
    const std::size_t lanes = options.format->group;
    Words words;
    words.reserve(lanes << 16);
    for (std::uint32_t maximum = 0; maximum < 0x10000; maximum += test::sweep_step(11)) {
      for (std::size_t q = 0; q < lanes; ++q) {
        const std::uint32_t below = std::min<std::uint32_t>(rng() % (q % 4 == 0 ? 8 * 128 : 4 * 128), maximum & 0x7FFF);
        words.push_back(((maximum & 0x7FFF) - below) | (rng() & 0x8000));
      }
      words[words.size() - lanes + maximum % lanes] = maximum;
    }
    check_quantize(words, bf16, options);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(QuantizeKernels, EveryBf16WordUnderSomeMaxima) {
  Random rng(2);
  for (const QuantizeOptions& options : all_options()) {
    const std::size_t lanes = options.format->group;
    Words words;
    for (const std::uint32_t maximum :
         {0x0000U, 0x0001U, 0x0055U, 0x007FU, 0x0080U, 0x0123U, 0x0480U, 0x0999U, 0x1180U, 0x2700U, 0x2799U, 0x3F80U,
          0x3F99U, 0x3FAAU, 0x3FC7U, 0x3FE1U, 0x3FFFU, 0x4790U, 0x47A0U, 0x4900U, 0x7F00U, 0x7F7FU, 0x7F80U}) {
      // All words from the maximum to zero, or to 40 binades below it, each with both signs, in chance places.
      const std::uint32_t range = maximum == 0x3F99 || maximum == 0x7F7F ? maximum : std::min(maximum, 40U * 128);
      Words all;
      for (std::uint32_t below = 0; below <= range; ++below) {
        all.push_back(maximum - below);
        all.push_back((maximum - below) | 0x8000);
      }
      std::shuffle(all.begin(), all.end(), rng.engine());
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (words.size() % lanes == i % lanes) words.push_back(maximum);
        words.push_back(all[i]);
      }
      while (words.size() % lanes != 0) words.push_back(0);
    }
    check_quantize(words, bf16, options);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(QuantizeKernels, SpecialValuesInEveryPosition) {
  const auto test = [](const Format& source, const Words& specials, const Words& backgrounds) {
    for (const QuantizeOptions& options : all_options()) {
      Words words;
      for (const std::uint32_t background : backgrounds) {
        for (const std::uint32_t special : specials) {
          for (std::size_t position = 0; position < kLanes; ++position) {
            for (std::size_t q = 0; q < kLanes; ++q) words.push_back(q % 3 == 1 ? background : background & ~1U);
            words[words.size() - kLanes + position] = special;
          }
        }
      }
      check_quantize(words, source, options);
      if (testing::Test::HasFatalFailure()) return;
    }
  };
  const Words specials{0x0000, 0x8000, 0x0001, 0x807F, 0x7F80, 0xFF80, 0x7FC0, 0xFFC0, 0x7F81, 0xFFFF, 0x7F7F};
  test(bf16, specials, {0x0000, 0x0003, 0x3F81});
  Words wide;
  for (const std::uint32_t word : specials) wide.push_back(word << 16);
  wide.insert(wide.end(), {0x00000001, 0x807FFFFF, 0x7F800001, 0x7F7FFFFF});
  test(fp32, wide, {0x00000000, 0x00000003, 0x3F812345});
}

TEST(QuantizeKernels, Fp32NearEveryBound) {
  Random rng(3);
  const std::array<std::uint32_t, 8> tails{0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xC000, 0xFFFE, 0xFFFF};
  for (const QuantizeOptions& options : all_options()) {
    const std::size_t lanes = options.format->group;
    Words words;
    for (std::uint32_t n = 0; n < 3000; ++n) {
      const std::uint32_t exponent = n % 4 == 0 ? rng() % 256 : n % 4 == 1 ? rng() % 24 : 100 + rng() % 56;
      const std::uint32_t maximum = exponent << 23 | (rng() & 0x7F) << 16 | tails[rng() % tails.size()];
      const double value = std::bit_cast<float>(std::min(maximum, 0x7F7FFFFFU));
      for (std::size_t q = 0; q < lanes; ++q) {
        std::uint32_t word = maximum;
        switch (rng() % 4) {
          case 0: {  // the maximum times an eighth of an integer, and where a BF16 product would round to it
            const double eighths = 0.125 * (1 + rng() % 128) * std::ldexp(1.0, -static_cast<int>(rng() % 24));
            const double at = rng() % 2 == 0 ? 1.0 : 1.0 - std::ldexp(1.0, -9);
            const double x = std::min(value * eighths / 16 * at, value);
            word = std::bit_cast<std::uint32_t>(static_cast<float>(x)) + rng() % 5 - 2;
            break;
          }
          case 1: {  // the same for the four reciprocals of E6M2
            const std::array<double, 4> reciprocals{1.0, 0.80078125, 0.66796875, 0.5703125};
            const double quarters = 0.125 * (1 + rng() % 16) / reciprocals[rng() % 4];
            const double at = rng() % 2 == 0 ? 1.0 : 1.0 - std::ldexp(1.0, -9);
            const int scale = std::ilogb(std::max(value, 1e-38)) - static_cast<int>(rng() % 5);
            word = std::bit_cast<std::uint32_t>(static_cast<float>(std::ldexp(quarters * at, scale))) + rng() % 5 - 2;
            break;
          }
          case 2:
            word = maximum - std::min<std::uint32_t>(rng() % (24U << 23), maximum);
            break;
          default:
            word = (maximum & 0x7F800000) - std::min<std::uint32_t>((rng() % 20) << 23, maximum & 0x7F800000);
            word |= (rng() & 0x7F) << 16 | tails[rng() % tails.size()];
        }
        if (word > maximum && n % 16 != 0) word = maximum - std::min(maximum, rng() % 64U);
        words.push_back((word & 0x7FFFFFFF) | (rng() & 0x80000000));
      }
    }
    check_quantize(words, fp32, options);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(QuantizeKernels, EveryFp32MaximumAtACornerOfItsFraction) {
  Random rng(4);
  for (const QuantizeOptions& options : all_options()) {
    const std::size_t lanes = options.format->group;
    Words words;
    for (std::uint32_t exponent = 0; exponent < 256; exponent += exponent < 3 || exponent > 250 ? 1 : 9) {
      for (std::uint32_t corner = 0; corner < 32; ++corner) {
        for (const std::uint32_t offset : {0U, 1U, 0x3FFFFU, 0x20000U, 0x1FFFFU}) {
          words.push_back(exponent << 23 | corner << 18 | offset);
          for (std::size_t q = 1; q < lanes; ++q) words.push_back(q % 8 == 3 ? words.back() & 0x7FFFFFFF : rng() >> 8);
          if (exponent < 40) std::fill(words.end() - static_cast<int>(lanes) + 1, words.end(), 0x80000000);
        }
      }
    }
    check_quantize(words, fp32, options);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(QuantizeKernels, EveryLength) {
  Random rng(5);
  for (const QuantizeOptions& options : some_options()) {
    for (const Format* source : {&bf16, &fp32, &fp16}) {
      for (uint64 k = 1; k <= 200; ++k) {
        Words words;
        for (uint64 i = 0; i < 3 * k; ++i) words.push_back(rng());
        // Few NaN: an exponent field of all ones is rare enough in 8 bits, not in 5.
        if (source == &fp16) {
          for (std::uint32_t& word : words) word &= 0xBFFF;
        }
        check_quantize(to_bytes(*source, words), *source, {3, k}, 1, options);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(QuantizeKernels, EveryAxisThreadCountAndAlignment) {
  Random rng(6);
  const Format* const tf32 = find_format("TF32");
  for (const QuantizeOptions& options : some_options()) {
    for (const Format* source : {&bf16, &fp32, &fp16, tf32, &e4m3}) {
      for (const Shape& shape : {Shape{3, 70, 37}, Shape{2, 300, 3}, Shape{5, 64, 64}, Shape{260, 2, 1}}) {
        Words words;
        for (uint64 i = 0; i < shape[0] * shape[1] * shape[2]; ++i) {
          const std::uint32_t word = rng() & (source == &fp16 ? 0xBFFFU : source == tf32 ? 0xBFFFE000U : 0xBFFFFFFFU);
          words.push_back(word);
        }
        const Bytes bytes = to_bytes(*source, words);
        for (std::size_t axis = 0; axis < 3; ++axis) {
          for (const unsigned threads : {1U, 2U, 3U}) {
            if (threads > 1 && source != &bf16) continue;
            check_quantize(bytes, *source, shape, axis, options, threads);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(QuantizeKernels, AnyAddressAndNothingBeyond) {
  Random rng(7);
  for (const QuantizeOptions& options : some_options()) {
    for (const Format* source : {&bf16, &fp32}) {
      for (const std::size_t lanes : {1U, 31U, 63U, 64U, 97U, 200U}) {
        Words words;
        for (std::size_t i = 0; i < lanes; ++i) words.push_back(rng() & 0xBFFFBFFF);
        const Bytes aligned = to_bytes(*source, words);
        for (std::size_t offset = 0; offset < 5; ++offset) {
          Bytes memory(offset);
          memory.insert(memory.end(), aligned.begin(), aligned.end());
          const std::size_t code_bytes = options.format->code_bytes(lanes);
          const std::size_t scale_bytes = options.format->groups(lanes) * options.format->scale_bytes();
          QuantizeOptions reference = options;
          reference.execution.reference = true;
          const auto expected = quantize(aligned, *source, Shape{lanes}, 0, reference);
          ASSERT_TRUE(expected);
          test::for_each_target([&](const std::string& target) {
            const std::byte mark{0xA5};
            Bytes codes(code_bytes + 64 + offset, mark);
            Bytes scales(scale_bytes + 64 + offset, mark);
            const std::span<const std::byte> from{memory.data() + offset, aligned.size()};
            ASSERT_TRUE(quantize_lines(from, *source, Shape{lanes}, 0, options, 0, 1,
                                       {codes.data() + offset, code_bytes}, {scales.data() + offset, scale_bytes}));
            Bytes marked(offset, mark);
            marked.insert(marked.end(), expected->codes.begin(), expected->codes.end());
            marked.resize(codes.size(), mark);
            EXPECT_EQ(difference(codes, marked), "") << target << " " << show(options);
            marked.assign(offset, mark);
            marked.insert(marked.end(), expected->scales.begin(), expected->scales.end());
            marked.resize(scales.size(), mark);
            EXPECT_EQ(difference(scales, marked), "") << target << " " << show(options);
          });
        }
      }
    }
  }
}

TEST(QuantizeKernels, OtherRoundingsAreThoseOfTheReference) {
  Random rng(8);
  Words words;
  for (int i = 0; i < 1000; ++i) words.push_back(rng() & 0xBFFF);
  for (const RoundingInfo& rounding : roundings) {
    for (QuantizeOptions options : some_options()) {
      options.rounding = rounding.mode;
      check_quantize(words, bf16, options);
    }
  }
  const Hif4Profile own{"own", true, Rounding::rna, false, Rounding::rtz, "none of the table"};
  check_quantize(words, bf16, {.profile = &own});
}

TEST(Kernels, TargetsWithoutThemUseTheReference) {
  const Bytes bytes = to_bytes(bf16, {0x40E0, 0xC060, 0x3F80, 0x3E9A, 0x4020, 0xBF00, 0x3E80, 0x8000});
  std::size_t with = 0;
  std::size_t without = 0;
  test::for_each_target([&](const std::string& target) {
    ++(has_kernels() ? with : without);
    const auto q = quantize(bytes, bf16, Shape{8}, 0);
    ASSERT_TRUE(q);
    EXPECT_EQ(load_word(q->codes.data(), 4), 0x819501C7U) << target;
    EXPECT_EQ(load_word(q->scales.data(), 4), 0x000501C0U - 0x00040000U) << target;
    const auto d = dequantize(*q, fp32);
    ASSERT_TRUE(d);
    EXPECT_EQ(load_word(d->bytes.data(), 4), 0x40E00000U) << target;
  });
  EXPECT_GT(without, 0U);
#if defined(__x86_64__) || defined(__aarch64__)
  EXPECT_GT(with, 0U) << "nothing is tested here";
#endif
}

TEST(Widen, EveryFp16Word) {
  for (std::uint32_t word = 0; word < 0x10000; ++word) {
    const auto half = static_cast<std::uint16_t>(word);
    const uint64 wide = kernels::fp16_to_fp32(half);
    const uint64 narrow = kernels::fp16_to_bf16(half);
    if (decode(fp16, word).is_nan()) {
      EXPECT_TRUE(decode(fp32, wide).is_nan() && decode(bf16, narrow).is_nan()) << word;
    } else {
      EXPECT_EQ(wide, convert(fp16, fp32, word, {}).bits);
      EXPECT_EQ(narrow, convert(fp16, bf16, word, {}).bits);
    }
  }
}

// ---- Dequantisers ----

const std::array<const Format*, 3> destinations{&fp32, &bf16, &fp16};

/// Dequantises on every target, and compares with the reference.
void check_dequantize(const QuantizedTensor& tensor, unsigned threads = 1) {
  for (const Format* destination : {&fp32, &bf16, &fp16, &fp64}) {
    const auto expected = dequantize(tensor, *destination, Rounding::rne, {.threads = 0, .reference = true});
    ASSERT_TRUE(expected);
    test::for_each_target([&](const std::string& target) {
      if (!has_kernels()) return;
      const auto d = dequantize(tensor, *destination, Rounding::rne, {.threads = threads});
      ASSERT_TRUE(d);
      const std::string what =
          fmt::format("{} {} to {} axis {}", target, tensor.format->name, destination->name, tensor.axis);
      ASSERT_EQ(difference(d->bytes, expected->bytes), "") << what;
      ASSERT_EQ(d->flags, expected->flags) << what;
    });
  }
}

TEST(DequantizeKernels, EveryMxCodeUnderEveryScale) {
  for (const BlockFormat& format : block_formats) {
    if (!format.is_mx()) continue;
    QuantizedTensor tensor{.format = &format,
                           .scale_rule = &scale_rules[0],
                           .shape = {256, 256},
                           .axis = 1,
                           .codes = {},
                           .scales = {},
                           .tensor_scale = {}};
    for (unsigned scale = 0; scale < 256; ++scale) {
      for (std::uint64_t i = 0; i < format.code_bytes(256); ++i)
        tensor.codes.push_back(static_cast<std::byte>(i + scale));
      tensor.scales.insert(tensor.scales.end(), 8, static_cast<std::byte>(scale));
    }
    check_dequantize(tensor);
  }
}

TEST(DequantizeKernels, EveryHif4CodeUnderEveryScale) {
  Random rng(9);
  QuantizedTensor tensor{
      .profile = &hif4_profiles[0], .shape = {256 * 32, 64}, .axis = 1, .codes = {}, .scales = {}, .tensor_scale = {}};
  for (std::uint32_t e6m2_code = 0; e6m2_code < 256; ++e6m2_code) {
    for (std::size_t turn = 0; turn < 32; ++turn) {
      for (std::size_t i = 0; i < 32; ++i) tensor.codes.push_back(static_cast<std::byte>(i * 0x31 + turn * 0x17));
      for (const std::uint32_t byte : {e6m2_code, rng(), rng(), rng()}) {
        tensor.scales.push_back(static_cast<std::byte>(byte));
      }
    }
  }
  check_dequantize(tensor);
}

/// The flags of one code, alone and at the end of a group, so that no other lane hides it.
template <typename Run>
void check_flags(const Value& y, const Run& run, const std::string& what) {
  for (const Format* destination : destinations) {
    const Encoded expected = convert_value(*destination, y.cls, y.real, {});
    for (const std::size_t lanes : {std::size_t{1}, std::size_t{32}}) {
      Flags flags = Flags::none;
      std::array<std::byte, 32 * 4> words;
      if (!run(lanes, *destination, words.data(), flags)) continue;
      const std::size_t size = destination->carrier_bits / 8U;
      ASSERT_EQ(load_word(words.data() + (lanes - 1) * size, size), expected.bits) << what << destination->name;
      ASSERT_EQ(flags, expected.flags) << what << destination->name;
    }
  }
}

TEST(DequantizeKernels, FlagsOfEveryMxCodeAlone) {
  test::for_each_target([&](const std::string& target) {
    for (const BlockFormat& format : block_formats) {
      if (!format.is_mx()) continue;
      const bool packed = format.element->is_packed();
      for (unsigned scale = 0; scale < 256; ++scale) {
        for (unsigned code = 0; code < (packed ? 16U : 256U); ++code) {
          const Value y = dequantize_mx_lane(*format.element, static_cast<std::uint8_t>(scale), code);
          const std::byte scale_byte{static_cast<std::uint8_t>(scale)};
          const auto run = [&](std::size_t lanes, const Format& to, std::byte* words, Flags& flags) {
            std::array<std::byte, 32> codes{};
            const std::size_t last = lanes - 1;
            codes[packed ? last / 2 : last] = static_cast<std::byte>(packed && last % 2 != 0 ? code << 4 : code);
            if (lanes == 32 && scale == 0xFF) return false;
            return kernels::dequantize_mx(codes.data(), &scale_byte, lanes, *format.element, to, words, flags);
          };
          check_flags(y, run, fmt::format("{} {} scale {:02X} code {:02X} to ", target, format.name, scale, code));
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

TEST(DequantizeKernels, FlagsOfEveryHif4CodeAlone) {
  test::for_each_target([&](const std::string& target) {
    for (std::uint32_t e6m2_code = 0; e6m2_code < 256; ++e6m2_code) {
      for (const std::uint32_t micro : {0x000000U, 0x000100U, 0x800100U, 0x810100U}) {
        const std::uint32_t scale = e6m2_code | micro | micro << 8;
        for (unsigned code = 0; code < 16; ++code) {
          const auto run = [&](std::size_t lanes, const Format& to, std::byte* words, Flags& flags) {
            std::array<std::byte, 32> codes{};
            codes[(lanes - 1) / 2] = static_cast<std::byte>(lanes % 2 == 0 ? code << 4 : code);
            std::array<std::byte, 4> scale_bytes;
            std::memcpy(scale_bytes.data(), &scale, sizeof scale);
            return kernels::dequantize_hif4(codes.data(), scale_bytes.data(), lanes, to, words, flags);
          };
          const auto at = [&](std::size_t lanes) {
            return [&, lanes](std::size_t n, const Format& to, std::byte* words, Flags& flags) {
              return n == lanes && run(n, to, words, flags);
            };
          };
          const std::string what = fmt::format("{} scale {:08X} code {:X} to ", target, scale, code);
          check_flags(dequantize_hif4_lane(scale, 0, code), at(1), what);
          check_flags(dequantize_hif4_lane(scale, 31, code), at(32), what);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

TEST(DequantizeKernels, EveryLengthAxisAndThreadCount) {
  Random rng(10);
  for (const QuantizeOptions& options : some_options()) {
    for (const Shape& shape :
         {Shape{3, 70, 37}, Shape{2, 300, 3}, Shape{1, 1, 1}, Shape{64, 2, 65}, Shape{1, 129, 33}}) {
      for (std::size_t axis = 0; axis < 3; ++axis) {
        Words words;
        for (uint64 i = 0; i < shape[0] * shape[1] * shape[2]; ++i) words.push_back(0x3F80 + rng() % 0x400);
        const auto q = quantize(to_bytes(bf16, words), bf16, shape, axis, options);
        ASSERT_TRUE(q);
        for (const unsigned threads : {1U, 2U, 3U}) check_dequantize(*q, threads);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
    for (uint64 k = 1; k <= 200; ++k) {
      Words words;
      for (uint64 i = 0; i < 2 * k; ++i) words.push_back(0x3F80 + rng() % 0x400);
      auto q = quantize(to_bytes(bf16, words), bf16, Shape{2, k}, 1, options);
      ASSERT_TRUE(q);
      // What an unused nibble holds is no lane, and raises nothing.
      if (options.format->element->is_packed() && k % 2 != 0) q->codes.back() |= std::byte{0x70};
      check_dequantize(*q);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(DequantizeKernels, UnusedNibblesRaiseNothing) {
  // As a lane this nibble would leave the range of FP16 under the first scale, of all destinations under the second.
  const std::array<std::byte, 1> codes{std::byte{0x70}};
  const std::array<std::byte, 4> scales{std::byte{0xFE}, std::byte{0xFF}, std::byte{0xFF}, std::byte{0xFF}};
  test::for_each_target([&](const std::string& target) {
    if (!has_kernels()) return;
    for (const Format* destination : destinations) {
      std::array<std::byte, 4> word;
      Flags flags = Flags::none;
      EXPECT_TRUE(kernels::dequantize_hif4(codes.data(), scales.data(), 1, *destination, word.data(), flags));
      EXPECT_EQ(flags, Flags::none) << target << " HiF4";
      EXPECT_TRUE(kernels::dequantize_mx(codes.data(), scales.data(), 1, e2m1, *destination, word.data(), flags));
      EXPECT_EQ(flags, Flags::none) << target << " E2M1";
    }
  });
}

// ---- The environment ----

TEST(Kernels, DoNotDependOnTheFloatingPointEnvironment) {
  Random rng(11);
  Words words;
  for (int i = 0; i < 4096; ++i) words.push_back(i % 64 < 32 ? rng() & 0x80FFFFFF : rng() & 0xBFFFFFFF);
  const int before = std::fegetround();
#if defined(__SSE2__)
  const unsigned control = _mm_getcsr();
#endif
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    for (const QuantizeOptions& options : some_options()) {
      std::fesetround(mode);
#if defined(__SSE2__)
      _mm_setcsr(_mm_getcsr() | 0x8040);  // subnormal operands and results as zero
#endif
      check_quantize(words, fp32, options);
      const auto q = quantize(to_bytes(fp32, words), fp32, Shape{words.size()}, 0, options);
      ASSERT_TRUE(q);
      check_dequantize(*q);
    }
  }
#if defined(__SSE2__)
  _mm_setcsr(control);
#endif
  std::fesetround(before);
}

// ---- Ranges of lines ----

TEST(QuantizeLines, AreThoseOfTheTensor) {
  Random rng(12);
  const Shape shape{3, 70, 37};
  Words words;
  for (uint64 i = 0; i < shape[0] * shape[1] * shape[2]; ++i) words.push_back(rng() & 0xBFFF);
  const Bytes bytes = to_bytes(bf16, words);
  std::vector<QuantizeOptions> all = some_options();
  all.push_back({.format = find_block_format("nvfp4")});
  for (QuantizeOptions options : all) {
    for (const bool reference : {false, true}) {
      options.execution.reference = reference;
      for (std::size_t axis = 0; axis < 3; ++axis) {
        const auto whole = quantize(bytes, bf16, shape, axis, options);
        ASSERT_TRUE(whole);
        const uint64 lines = words.size() / shape[axis];
        Bytes codes;
        Bytes scales;
        for (uint64 first = 0; first < lines;) {
          const uint64 count = std::min<uint64>(1 + rng() % 50, lines - first);
          Bytes some_codes(count * options.format->code_bytes(shape[axis]));
          Bytes some_scales(count * options.format->groups(shape[axis]) * options.format->scale_bytes());
          ASSERT_TRUE(quantize_lines(bytes, bf16, shape, axis, options, first, count, some_codes, some_scales));
          codes.insert(codes.end(), some_codes.begin(), some_codes.end());
          scales.insert(scales.end(), some_scales.begin(), some_scales.end());
          first += count;
        }
        EXPECT_EQ(difference(codes, whole->codes), "") << show(options) << " axis " << axis;
        EXPECT_EQ(difference(scales, whole->scales), "") << show(options) << " axis " << axis;
      }
    }
  }
}

TEST(QuantizeLines, SayWhatIsWrong) {
  const Bytes bytes(4 * 64 * 2);
  Bytes codes(2 * 32);
  Bytes scales(2 * 4);
  const Shape shape{4, 64};
  const auto message = [&](uint64 first, uint64 lines, std::span<std::byte> c, std::span<std::byte> s) {
    const auto done = quantize_lines(bytes, bf16, shape, 1, {}, first, lines, c, s);
    return done ? std::string() : done.error().message;
  };
  EXPECT_EQ(message(2, 2, codes, scales), "");
  EXPECT_EQ(message(4, 0, {}, {}), "");
  EXPECT_NE(message(3, 2, codes, scales).find("has 4"), std::string::npos);
  EXPECT_NE(message(~uint64{0}, 2, codes, scales).find("has 4"), std::string::npos);
  EXPECT_NE(message(0, 1, codes, scales).find("codes has 64 bytes, but 1 lines need 32"), std::string::npos);
  EXPECT_NE(message(0, 2, codes, {scales.data(), 7}).find("scales has 7 bytes"), std::string::npos);
  const QuantizeOptions scaled{.format = find_block_format("nvfp4"), .tensor_scale = true};
  const auto done = quantize_lines(bytes, bf16, shape, 1, scaled, 0, 2, codes, scales);
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("tensor scale"), std::string::npos);
}

}  // namespace
}  // namespace bitcube
