// The promise of docs/compatibility.md: within a major version the results of a named profile never change. For every
// profile a million results of the definitions are hashed and compared with tests/release/digests.txt, and the kernels
// must deliver the same results.
//
// All that the operands follow from stands in this file: its own random numbers, and lists of names instead of the
// tables. So a format or mode that is added later leaves the digests as they are, and a profile that is added later
// needs a line of its own.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/io/sha256.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "bitcube/quantize/tensor.hpp"

namespace bitcube {
namespace {

constexpr std::size_t kResults = 1'000'000;  // per profile, at least

const std::vector<Rounding> kRoundings{Rounding::rne, Rounding::rtz, Rounding::rtm, Rounding::rtp,
                                       Rounding::rna, Rounding::rto, Rounding::rhb};
const Execution kDefinitions{.threads = 1, .progress = {}, .reference = true};
const Execution kKernels{.threads = 2, .progress = {}, .reference = false};

/// SplitMix64, and operands made from it. No expression draws twice where the language leaves the order open.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  int below(int limit) { return static_cast<int>(next() % static_cast<std::uint64_t>(limit)); }

  /// A lane of any value: half of them uniform, the others with an exponent near 0 and often few bits (ties), or an
  /// integer of any length.
  std::uint64_t word(const Format& f) {
    if (f.is_integer()) {
      const int64 x = sign_extend(next(), f.lane_bits) >> below(f.lane_bits);
      return static_cast<std::uint64_t>(x) & low_mask(f.lane_bits);
    }
    if (f.layout != Layout::fields || next() % 2 == 0) {
      return next() & low_mask(f.value_bits) & ~low_mask(f.low_zero_bits);
    }
    return float_word(f, below(49) - 24);
  }
  /// A lane of a tensor: of the magnitude 2^exponent or a little less; one in 1024 is any.
  std::uint64_t tensor_word(const Format& f, int exponent) {
    if (f.is_integer() || f.layout != Layout::fields || next() % 1024 == 0) return word(f);
    return float_word(f, exponent - below(6));
  }

 private:
  std::uint64_t float_word(const Format& f, int exponent) {
    const int top = static_cast<int>(low_mask(f.exponent_bits));
    const auto field = static_cast<std::uint64_t>(std::clamp(f.bias + exponent, 0, top));
    const std::uint64_t zeros = low_mask(below(f.fraction_bits + 1));
    const std::uint64_t fraction = next() & low_mask(f.fraction_bits) & ~zeros;
    const std::uint64_t sign = f.sign_bits == 0 ? 0 : next() & 1;
    return ((sign << (f.exponent_bits + f.fraction_bits)) | (field << f.fraction_bits) | fraction) << f.low_zero_bits;
  }

  std::uint64_t state_;
};

/// Results on the way to their digest. Integers are written little-endian.
class Results {
 public:
  void add(std::uint64_t bits, Flags flags) {
    put(bits, 8);
    put(static_cast<std::uint64_t>(flags), 1);
    ++count_;
  }
  template <typename T>
  void add(std::span<const T> values, std::size_t results) {
    for (const T& value : values) put(static_cast<std::uint64_t>(value), sizeof(T));
    count_ += results;
  }
  void flags(Flags flags) { put(static_cast<std::uint64_t>(flags), 1); }

  /// Compares with the line `name` of digests.txt.
  void expect(const std::string& name) {
    flush();
    EXPECT_GE(count_, kResults) << name;
    const std::string digest = *hash_.hex();
    std::ifstream file(BITCUBE_SOURCE_DIR "/tests/release/digests.txt");
    std::map<std::string, std::string> lines;
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string hex;
      std::string of;
      if (line.starts_with('#') || !(words >> hex >> of)) continue;
      EXPECT_TRUE(lines.emplace(of, hex).second) << "two lines " << of;
    }
    ASSERT_TRUE(lines.contains(name)) << "tests/release/digests.txt has no line for this profile:\n"
                                      << digest << "  " << name;
    EXPECT_EQ(lines[name], digest) << name
                                   << ": results of a profile have changed. They may not within a major version.";
  }

 private:
  void put(std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) buffer_.push_back(static_cast<std::byte>(value >> (8 * i)));
    if (buffer_.size() > 65536) flush();
  }
  void flush() {
    hash_.add(buffer_);
    buffer_.clear();
  }

  Sha256 hash_;
  std::vector<std::byte> buffer_;
  std::size_t count_ = 0;
};

std::vector<std::byte> little_endian(std::span<const std::uint64_t> words, std::size_t bytes) {
  std::vector<std::byte> out;
  out.reserve(words.size() * bytes);
  for (const std::uint64_t word : words) {
    for (std::size_t i = 0; i < bytes; ++i) out.push_back(static_cast<std::byte>(word >> (8 * i)));
  }
  return out;
}

const Format& format_named(std::string_view name) {
  const Format* f = find_format(name);
  if (f == nullptr) ADD_FAILURE() << "no format " << name;
  return *f;
}

template <typename Table>
std::vector<std::string> names(const Table& table) {
  std::vector<std::string> out;
  for (const auto& entry : table) out.emplace_back(entry.name);
  return out;
}
std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Every legal pair, rounding and saturation.
class Conversions : public testing::TestWithParam<std::string> {};

TEST_P(Conversions, OfAProfileStayAsTheyAre) {
  static constexpr std::array<std::string_view, 27> kFormats{
      "FP64", "FP32", "TF32", "HF32", "FP16", "BF16", "HiF8",    "E4M3", "E5M2", "E3M2", "E2M3", "E2M1", "E1M2", "E8M0",
      "E6M2", "S64",  "S32",  "S16",  "S8",   "S4",   "RCPE6M2", "U64",  "U32",  "U16",  "U8",   "U4",   "HiF4"};
  Generator generator(1);
  Results results;
  for (const std::string_view from_name : kFormats) {
    for (const std::string_view to_name : kFormats) {
      const Format& from = format_named(from_name);
      const Format& to = format_named(to_name);
      if (!conversion_legal(from, to)) continue;
      std::vector<std::uint64_t> words(160);
      for (std::uint64_t& word : words) word = generator.word(from);
      for (const Rounding rounding : kRoundings) {
        if (!rounding_legal(from, to, rounding)) continue;
        for (const bool saturate : {false, true}) {
          const EncodeControl control{rounding, saturate, find_conversion_profile(GetParam())};
          std::vector<std::uint64_t> bits;
          Flags flags = Flags::none;
          for (const std::uint64_t word : words) {
            const Encoded code = convert(from, to, word, control);
            results.add(code.bits, code.flags);
            bits.push_back(code.bits);
            flags |= code.flags;
          }
          if (from.is_packed() || to.is_packed()) continue;
          const auto fast = convert_array(little_endian(words, from.carrier_bits / 8U), from, to, control, kKernels);
          ASSERT_TRUE(fast) << fast.error().message;
          ASSERT_EQ(fast->words, little_endian(bits, to.carrier_bits / 8U)) << from_name << " to " << to_name;
          ASSERT_EQ(fast->flags, flags) << from_name << " to " << to_name;
        }
      }
    }
  }
  results.expect(fmt::format("conversion/{}", GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Digests, Conversions, testing::ValuesIn(names(conversion_profiles)), test_name);

/// Quantises lines of tensor-like words with the definitions and the kernels; codes, scales, and what is dequantised
/// to FP32 and BF16 become results.
void quantize_lines(const QuantizeOptions& options, const Format& source, std::size_t lines, std::size_t lanes,
                    Generator& generator, Results& results) {
  std::vector<std::uint64_t> words;
  words.reserve(lines * lanes);
  for (std::size_t i = 0; i < lines; ++i) {
    const int exponent = generator.below(2) == 0 ? generator.below(16) - 8 : generator.below(160) - 80;
    for (std::size_t k = 0; k < lanes; ++k) words.push_back(generator.tensor_word(source, exponent));
  }
  const std::vector<std::byte> bytes = little_endian(words, source.carrier_bits / 8U);
  const std::vector<uint64> shape{lines, lanes};
  QuantizeOptions with = options;
  with.execution = kDefinitions;
  const auto exact = quantize(bytes, source, shape, 1, with);
  ASSERT_TRUE(exact) << exact.error().message;
  with.execution = kKernels;
  const auto fast = quantize(bytes, source, shape, 1, with);
  ASSERT_TRUE(fast) << fast.error().message;
  ASSERT_EQ(exact->codes, fast->codes);
  ASSERT_EQ(exact->scales, fast->scales);
  ASSERT_EQ(exact->tensor_scale, fast->tensor_scale);
  results.add(std::span<const std::byte>(exact->codes), words.size());
  results.add(std::span<const std::byte>(exact->scales), 0);
  results.add(exact->tensor_scale.value_or(0), Flags::none);
  for (const Format* to : {&fp32, &bf16}) {
    const auto back = dequantize(*exact, *to, Rounding::rne, kDefinitions);
    ASSERT_TRUE(back) << back.error().message;
    const auto fast_back = dequantize(*exact, *to, Rounding::rne, kKernels);
    ASSERT_TRUE(fast_back) << fast_back.error().message;
    ASSERT_EQ(back->bytes, fast_back->bytes);
    ASSERT_EQ(back->flags, fast_back->flags);
    results.add(std::span<const std::byte>(back->bytes), 0);
    results.flags(back->flags);
  }
}

class Hif4Groups : public testing::TestWithParam<std::string> {};

TEST_P(Hif4Groups, OfAProfileStayAsTheyAre) {
  Generator generator(2);
  Results results;
  for (const std::string_view source : {"FP32", "BF16", "FP16", "E5M2"}) {
    // 64 + 64 + 8 lanes: the last group is short.
    quantize_lines({.profile = find_hif4_profile(GetParam())}, format_named(source), 1850, 136, generator, results);
  }
  results.expect(fmt::format("hif4/{}", GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Digests, Hif4Groups, testing::ValuesIn(names(hif4_profiles)), test_name);

class MxGroups : public testing::TestWithParam<std::string> {};

TEST_P(MxGroups, OfAScaleRuleStayAsTheyAre) {
  Generator generator(3);
  Results results;
  for (const std::string_view format :
       {"mxfp8-e4m3", "mxfp8-e5m2", "mxfp6-e3m2", "mxfp6-e2m3", "mxfp4", "mxfp4-e1m2"}) {
    for (const std::string_view source : {"FP32", "BF16"}) {
      for (const Rounding rounding : kRoundings) {
        quantize_lines(
            {.format = find_block_format(format), .scale_rule = find_scale_rule(GetParam()), .rounding = rounding},
            format_named(source), 166, 72, generator, results);
      }
    }
  }
  results.expect(fmt::format("mx/{}", GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Digests, MxGroups, testing::ValuesIn(names(scale_rules)), test_name);

TEST(Digests, NvGroupsStayAsTheyAre) {
  Generator generator(4);
  Results results;
  for (const bool tensor_scale : {false, true}) {
    for (const std::string_view source : {"FP32", "BF16"}) {
      for (const Rounding rounding : kRoundings) {
        quantize_lines({.format = find_block_format("nvfp4"), .rounding = rounding, .tensor_scale = tensor_scale},
                       format_named(source), 900, 40, generator, results);
      }
    }
  }
  results.expect("nvfp4");
}

/// One side of a product in memory of its own: lines of k lanes, half of them finite and of similar size.
struct Side {
  Side(std::string_view name, std::size_t lines, std::size_t k, Generator& generator) {
    const bool scaled = name.starts_with('+');
    const Format& f = format_named(scaled ? name.substr(1) : name);
    const std::size_t stride = (k + 1) / 2 * 2;
    std::vector<std::uint64_t> words(lines * stride);
    for (std::size_t i = 0; i < words.size(); ++i) {
      // Every eighth line has any lanes; the others are tensor-like.
      words[i] = i / stride % 8 == 0 ? generator.word(f) : generator.tensor_word(f, 4);
    }
    if (f.lane_bits == 4) {
      for (std::size_t i = 0; i < words.size(); i += 2)
        lanes.push_back(static_cast<std::byte>(words[i] | words[i + 1] << 4));
    } else {
      lanes = little_endian(words, f.lane_bits / 8U);
    }
    operand = {.format = &f, .lines = lines, .k = k, .lanes = {data(lanes), f.lane_bits, stride, 1}, .scales = {}};
    if (!scaled) return;
    const std::size_t groups = (k + scale_group(f) - 1) / scale_group(f);
    const bool hif4_side = f.type == DataType::hif4x2;
    std::vector<std::uint64_t> codes(lines * groups);
    for (std::uint64_t& code : codes) {
      const std::uint64_t any = generator.next();
      code = hif4_side ? (any & 0xFFFFFF00) | (180 + any % 24) : 120 + any % 12;
      if (generator.below(64) == 0) code = any & low_mask(hif4_side ? 32 : 8);
    }
    scales = little_endian(codes, hif4_side ? 4 : 1);
    operand.scales = {data(scales), hif4_side ? 32U : 8U, groups, 1};
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  static const std::uint8_t* data(const std::vector<std::byte>& bytes) {
    return static_cast<const std::uint8_t*>(static_cast<const void*>(bytes.data()));
  }

  std::vector<std::byte> lanes;
  std::vector<std::byte> scales;
  Operand operand;
};

class Products : public testing::TestWithParam<std::string> {};

TEST_P(Products, OfAProfileStayAsTheyAre) {
  // A plus: with scales.
  static constexpr std::array<std::string_view, 7> kMx{"+HiF4", "+E4M3", "+E5M2", "+E2M1", "+E1M2", "FP16", "BF16"};
  static constexpr std::array<std::string_view, 10> kPlain{"FP32", "TF32", "HF32", "HiF8", "E4M3",
                                                           "E5M2", "E3M2", "E2M3", "E2M1", "E1M2"};
  std::vector<std::pair<std::string_view, std::string_view>> pairs{
      {"FP32", "HiF8"}, {"E4M3", "FP16"}, {"E2M1", "E1M2"}};
  for (const auto a : kMx) {
    for (const auto b : kMx) pairs.emplace_back(a, b);
  }
  for (const auto name : kPlain) pairs.emplace_back(name, name);
  for (const auto a : {"S16", "S8", "S4"}) {
    for (const auto b : {"S16", "S8", "S4"}) pairs.emplace_back(a, b);
  }
  for (const auto a : {"U16", "U8", "U4"}) {
    for (const auto b : {"U16", "U8", "U4"}) pairs.emplace_back(a, b);
  }
  constexpr std::size_t kRows = 112;
  constexpr std::size_t kCols = 112;
  Generator generator(5);
  Results results;
  for (const auto& [a_name, b_name] : pairs) {
    // Two groups of each profile `group`, the second one short.
    const bool hif4_pair = a_name == "+HiF4" && b_name == "+HiF4";
    const std::size_t k = hif4_pair ? 72 : a_name.starts_with('+') || b_name.starts_with('+') ? 40 : 20;
    const Side a(a_name, kRows, k, generator);
    const Side b(b_name, kCols, k, generator);
    const auto kind = product_kind(a.operand, b.operand);
    ASSERT_TRUE(kind) << kind.error().message;
    std::vector<std::uint32_t> c(kRows * kCols);
    for (std::uint32_t& word : c) word = static_cast<std::uint32_t>(generator.tensor_word(*kind->accumulator, 6));
    std::vector<std::uint32_t> bias(kCols);
    for (std::uint32_t& word : bias) word = static_cast<std::uint32_t>(generator.tensor_word(*kind->accumulator, 2));
    MatmulOptions options{
        .profile = find_accumulation_profile(GetParam()), .c = c, .bias = bias, .execution = kDefinitions};
    const auto exact = matmul(a.operand, b.operand, options);
    ASSERT_TRUE(exact) << exact.error().message;
    options.execution = kKernels;
    const auto fast = matmul(a.operand, b.operand, options);
    ASSERT_TRUE(fast) << fast.error().message;
    ASSERT_EQ(exact->words, fast->words) << a_name << " x " << b_name;
    results.add(std::span<const std::uint32_t>(exact->words), exact->words.size());
  }
  results.expect(fmt::format("accumulation/{}", GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Digests, Products, testing::ValuesIn(names(accumulation_profiles)), test_name);

class Postprocess : public testing::TestWithParam<std::string> {};

TEST_P(Postprocess, UnderAConversionProfileStaysAsItIs) {
  static constexpr std::array<unsigned, 27> kModes{0,  1,  2,  3,  4,  5,  12, 13, 16, 17, 18, 19, 20, 23,
                                                   24, 25, 26, 27, 28, 32, 33, 34, 35, 36, 37, 38, 39};
  constexpr std::size_t kRows = 36;
  constexpr std::size_t kCols = 40;
  Generator generator(6);
  Results results;
  const auto scale = [&generator] {  // FP19, positive and normal: around 1, or any
    if (generator.below(4) == 0) return 0x400 + generator.next() % (0x3FBFF - 0x400 + 1);
    const auto exponent = static_cast<std::uint64_t>(generator.below(20) + 112);
    return exponent << 10 | (generator.next() & 0x3FF);
  };
  for (const unsigned code : kModes) {
    const PreQuantMode& mode = *find_prequant(code);
    for (const std::string_view accumulator_name : {"FP32", "S32", "U32"}) {
      const Format& accumulator = format_named(accumulator_name);
      if (mode.accumulator != DataType::none && mode.accumulator != accumulator.type) continue;
      std::vector<std::uint32_t> words(kRows * kCols);
      for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(generator.word(accumulator));
      for (const Relu relu : {Relu::none, Relu::relu, Relu::scalar, Relu::per_column}) {
        if (mode.carrier == CarrierKind::shift && relu != Relu::none) continue;
        std::vector<std::uint64_t> quant(mode.carrier == CarrierKind::none ? 0 : mode.per_column ? kCols : 1);
        for (std::uint64_t& carrier : quant) {
          if (mode.carrier == CarrierKind::shift) {
            carrier = pack_shift_carrier(1 + generator.below(16));
            continue;
          }
          const int64 offset = static_cast<int64>(generator.next()) >> 40;
          carrier = pack_scale_carrier(scale(), offset, mode.offset_bits);
        }
        std::vector<std::uint64_t> alpha(relu == Relu::per_column ? kCols : relu == Relu::scalar ? 1 : 0);
        for (std::uint64_t& carrier : alpha) carrier = scale();
        for (const Rounding rounding : kRoundings) {
          const bool programmable = mode.rounding_rule == RoundingRule::programmable;
          if (!programmable && rounding != Rounding::rne) continue;
          for (const bool saturate : {false, true}) {
            if (saturate && !mode.saturation_allowed) continue;
            PostprocessOptions options{.mode = &mode,
                                       .quant_carriers = quant,
                                       .relu = relu,
                                       .activation_carriers = alpha,
                                       .saturate = saturate,
                                       .profile = find_conversion_profile(GetParam()),
                                       .row_max = true,
                                       .group_n = 16,
                                       .max_abs = saturate,
                                       .execution = kDefinitions};
            if (programmable) options.rounding = rounding;
            const Accumulators in{&accumulator, kRows, kCols, {words.begin(), words.end()}};
            const auto exact = postprocess(in, options);
            ASSERT_TRUE(exact) << mode.name << ": " << exact.error().message;
            options.execution = kKernels;
            const auto fast = postprocess(in, options);
            ASSERT_TRUE(fast) << mode.name << ": " << fast.error().message;
            ASSERT_EQ(exact->d, fast->d) << mode.name;
            ASSERT_EQ(exact->row_max, fast->row_max);
            ASSERT_EQ(exact->group_max, fast->group_max);
            ASSERT_EQ(exact->flags, fast->flags) << mode.name;
            for (std::size_t i = 0; i < words.size(); ++i) {  // the flags of each element
              const Encoded element =
                  postprocess_element(column_postprocess(options, i % kCols), accumulator, words[i]);
              results.add(element.bits, element.flags);
            }
            results.add(std::span<const std::uint8_t>(exact->d), 0);
            results.add(std::span<const std::uint32_t>(exact->row_max), 0);
            results.add(std::span<const std::uint32_t>(exact->group_max), 0);
            results.flags(exact->flags);
          }
        }
      }
    }
  }
  results.expect(fmt::format("postprocess/{}", GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Digests, Postprocess, testing::ValuesIn(names(conversion_profiles)), test_name);

}  // namespace
}  // namespace bitcube
