// The quantisers against the independent oracle, on random groups of every source.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "bitcube/quantize/tensor.hpp"
#include "oracle/oracle.hpp"

namespace bitcube {
namespace {

namespace oracle = bitcube_oracle;

/// Words of a format that make interesting groups: anything at all, or a common magnitude with a spread, ties included.
class GroupSource {
 public:
  explicit GroupSource(const Format& format) : format_(format) {}

  std::vector<uint64> next(std::size_t longest) {
    std::vector<uint64> words(below(4) == 0 ? 1 + below(longest) : longest);
    const std::size_t kind = below(3);
    const int fraction = format_.fraction_bits + format_.low_zero_bits;
    const uint64 base = rng_() & low_mask(format_.value_bits - 1);
    const uint64 spread = uint64{1} << below(static_cast<std::size_t>(fraction) + 4);
    for (uint64& word : words) {
      word = rng_() & low_mask(format_.value_bits);
      if (kind > 0) word = (word & ~low_mask(format_.value_bits - 1)) | (base - std::min(base, word % spread));
      if (kind == 2) word &= ~low_mask(fraction / 2);  // short significands: ties
      word &= ~low_mask(format_.low_zero_bits);
    }
    return words;
  }

  std::size_t below(std::size_t limit) { return rng_() % limit; }

 private:
  const Format& format_;
  std::mt19937_64 rng_{20240611};
};

TEST(Oracle, Hif4Groups) {
  for (const Format& source : formats) {
    // The oracle rounds FP32 to BF16 first; profiles 1 takes it as it is, which another test holds against doubles.
    if (!is_quantize_source(source) || source.type == DataType::fp32) continue;
    GroupSource groups(source);
    for (int round = 0; round < 2000; ++round) {
      const std::vector<uint64> words = groups.next(64);
      std::vector<std::uint32_t> lanes;
      for (const uint64 word : words) lanes.push_back(hif4_source_word(source, word));
      for (const Hif4Profile& profile : hif4_profiles) {
        const Hif4Group got = quantize_hif4_group(hif4_source_format(source), lanes, profile);
        const oracle::Hif4Group expected = oracle::hif4_quantize(
            *oracle::hif4_rules(profile.name), static_cast<int>(source.type), words.data(), words.size());
        ASSERT_EQ(got.scale_word, expected.word) << source.name << " " << profile.name << " round " << round;
        ASSERT_EQ(got.codes, expected.codes) << source.name << " " << profile.name << " round " << round;
        if (got.is_nan()) continue;
        ASSERT_EQ(got.scale_factor, expected.sf);
        ASSERT_EQ(got.reciprocal, expected.ea_rec);
        ASSERT_EQ(got.reciprocal4, expected.scale);
        ASSERT_EQ(got.maxima.per64, expected.ma);
      }
    }
  }
}

TEST(Oracle, MxGroups) {
  for (const Format& source : formats) {
    if (!is_quantize_source(source)) continue;
    GroupSource groups(source);
    for (const Format& element : formats) {
      if (!is_mx_element(element)) continue;
      for (int round = 0; round < 400; ++round) {
        const std::vector<uint64> words = groups.next(32);
        const Rounding rounding = round % 2 == 0 ? Rounding::rne : roundings[groups.below(7)].mode;
        for (const ScaleRule& rule : scale_rules) {
          const MxGroup got = quantize_mx_group(element, source, words, rule.rounding, rounding);
          const oracle::BlockCodes expected = oracle::mx_quantize(
              static_cast<int>(element.type), *oracle::mx_rule(rule.name), static_cast<int>(source.type), words.data(),
              words.size(), static_cast<int>(rounding));
          ASSERT_EQ(got.scale, expected.scale) << source.name << " " << element.name << " " << rule.name;
          const std::vector<std::uint8_t> codes(got.codes.begin(),
                                                got.codes.begin() + static_cast<std::ptrdiff_t>(words.size()));
          ASSERT_EQ(codes, expected.codes)
              << source.name << " " << element.name << " " << rule.name << " " << name_of(rounding);
        }
      }
    }
  }
}

TEST(Oracle, Nvfp4Groups) {
  for (const Format& source : formats) {
    if (!is_quantize_source(source)) continue;
    GroupSource groups(source);
    for (int round = 0; round < 2000; ++round) {
      const std::vector<uint64> words = groups.next(16);
      std::optional<uint64> unit;
      if (round % 2 == 1) {
        unit = oracle::nvfp4_tensor_scale(static_cast<int>(source.type), words.data(), words.size());
        // What FP64 has beyond FP32 is infinite there; the library saturates, because an infinite scale decodes
        // nothing.
        if (*unit == fp32.infinity) unit = fp32.max_finite;
        ASSERT_EQ(nvfp4_tensor_scale(detail::range_of(detail::DecodedLanes(source, words).span()).amax), *unit);
      }
      const MxGroup got = quantize_nvfp4_group(source, words, static_cast<std::uint32_t>(unit.value_or(0x3F800000)));
      const oracle::BlockCodes expected =
          oracle::nvfp4_quantize(static_cast<int>(source.type), words.data(), words.size(), unit);
      ASSERT_EQ(got.scale, expected.scale) << source.name << " round " << round;
      const std::vector<std::uint8_t> codes(got.codes.begin(),
                                            got.codes.begin() + static_cast<std::ptrdiff_t>(words.size()));
      ASSERT_EQ(codes, expected.codes) << source.name << " round " << round;
    }
  }
}

}  // namespace
}  // namespace bitcube
