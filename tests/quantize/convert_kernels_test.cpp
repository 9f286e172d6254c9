// The SIMD kernels of TCVT against convert(), bit for bit and flag for flag, on every target of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "bitcube/quantize/convert_array.hpp"
#include "bitcube/quantize/lines.hpp"
#include "support/sweep.hpp"
#include "support/targets.hpp"

namespace bitcube {
namespace {

std::uint32_t draw(std::mt19937& random) {
  return static_cast<std::uint32_t>(random());
}

constexpr std::array narrow_sources{DataType::hif8, DataType::e4m3, DataType::e5m2, DataType::e3m2,
                                    DataType::e2m3, DataType::e8m0, DataType::e6m2};
constexpr std::array destinations{DataType::fp32, DataType::fp16, DataType::bf16, DataType::tf32,
                                  DataType::hf32, DataType::hif8, DataType::e4m3, DataType::e5m2,
                                  DataType::e3m2, DataType::e2m3, DataType::e8m0};

/// Profiles beyond the three: what the descriptors allow in combinations that no profile has.
constexpr ConversionProfile crossed{"crossed", Tininess::result, Tininess::before, true, 6, false, true, ""};

template <typename Body>
void for_each_control(const Body& body, bool with_crossed = true) {
  std::vector<const ConversionProfile*> profiles;
  if (with_crossed) profiles.push_back(&crossed);
  for (const ConversionProfile& profile : conversion_profiles) profiles.push_back(&profile);
  for (const ConversionProfile* profile : profiles) {
    for (const RoundingInfo& r : roundings) {
      for (const bool saturate : {false, true}) body(EncodeControl{r.mode, saturate, profile});
    }
  }
}

std::string describe(const Format& from, const Format& to, const EncodeControl& control) {
  return std::string(from.name) + " -> " + std::string(to.name) + " " + std::string(name_of(control.rounding)) +
         (control.saturate ? " Sat " : " ") + std::string(control.profile->name);
}

/// Words of one source, as the memory of an array.
struct Words {
  const Format& format;
  std::vector<std::uint32_t> values;

  std::size_t bytes() const { return format.carrier_bits / 8U; }
  std::vector<std::byte> array(const std::vector<std::size_t>& indices) const {
    std::vector<std::byte> out(indices.size() * bytes());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      store_word(out.data() + i * bytes(), bytes(), values[indices[i]]);
    }
    return out;
  }
};

Flags kernel_flags(const Words& words, const Format& to, const EncodeControl& control,
                   const std::vector<std::size_t>& indices) {
  const auto in = words.array(indices);
  std::vector<std::byte> out(indices.size() * to.carrier_bits / 8U);
  const auto flags = convert_array_into(in, words.format, to, out, control, {.threads = 1});
  EXPECT_TRUE(flags);
  return *flags;
}

/// Bits of every element; the flags of all; the flags of all elements that raise the same, so that no element raises
/// more; the flags of single elements, wherever they change and at `singles` random places, so that none raises less.
void check(const Words& words, const Format& to, const EncodeControl& control, std::size_t singles) {
  if (testing::Test::HasFatalFailure()) return;
  const std::size_t to_bytes = to.carrier_bits / 8U;
  const std::size_t count = words.values.size();
  std::vector<std::size_t> all(count);
  std::vector<std::byte> expected(count * to_bytes);
  std::vector<Flags> flags(count);
  std::vector<std::vector<std::size_t>> alike(32);
  std::vector<std::size_t> alone;
  for (std::size_t i = 0; i < count; ++i) {
    const Encoded e = convert(words.format, to, words.values[i], control);
    all[i] = i;
    flags[i] = e.flags;
    store_word(expected.data() + i * to_bytes, to_bytes, e.bits);
    alike[static_cast<std::size_t>(e.flags)].push_back(i);
    if (i > 0 && flags[i] != flags[i - 1] && alone.size() < 4 * singles) {
      alone.push_back(i - 1);
      alone.push_back(i);
    }
  }
  std::mt19937 random(static_cast<unsigned>(count));
  for (std::size_t i = 0; i < singles; ++i) alone.push_back(random() % count);
  const auto in = words.array(all);

  test::for_each_target([&](const std::string& target) {
    SCOPED_TRACE(target + " " + describe(words.format, to, control));
    std::vector<std::byte> out(count * to_bytes);
    const auto got = convert_array_into(in, words.format, to, out, control, {.threads = 1});
    ASSERT_TRUE(got);
    if (out != expected) {
      const auto at =
          static_cast<std::size_t>(std::mismatch(out.begin(), out.end(), expected.begin()).first - out.begin()) /
          to_bytes;
      FAIL() << std::hex << words.values[at] << " gives " << load_word(out.data() + at * to_bytes, to_bytes)
             << " instead of " << load_word(expected.data() + at * to_bytes, to_bytes);
    }
    for (std::size_t f = 0; f < alike.size(); ++f) {
      if (alike[f].empty()) continue;
      ASSERT_EQ(static_cast<std::size_t>(kernel_flags(words, to, control, alike[f])), f);
    }
    for (const std::size_t i : alone) {
      ASSERT_EQ(static_cast<int>(kernel_flags(words, to, control, {i})), static_cast<int>(flags[i]))
          << std::hex << words.values[i];
    }
  });
}

Words all_words(const Format& from, std::uint32_t count, std::uint32_t step = 1) {
  Words words{from, {}};
  for (std::uint32_t i = 0; i < count; i += step) words.values.push_back(i);
  return words;
}

TEST(ConvertKernels, EveryWordOfEightBits) {
  for (const DataType from : narrow_sources) {
    const Words words = all_words(format_of(from), 256);
    for (const DataType to : destinations) {
      if (!conversion_legal(words.format, format_of(to))) continue;
      for_each_control([&](const EncodeControl& control) {
        if (!rounding_legal(words.format, format_of(to), control.rounding)) return;
        check(words, format_of(to), control, 10);
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST(ConvertKernels, EveryWordOfSixteenBits) {
  for (const DataType from : {DataType::fp16, DataType::bf16}) {
    const Words words = all_words(format_of(from), 1U << 16, test::sweep_step(11));
    for (const DataType to : destinations) {
      for_each_control([&](const EncodeControl& control) { check(words, format_of(to), control, 10); }, false);
      if (HasFatalFailure()) return;
    }
  }
}

std::uint32_t fp32_word(const Real& x) {
  return static_cast<std::uint32_t>(encode(fp32, x, EncodeControl{Rounding::rtz, false}).bits);
}

/// FP32 words where results change: codes of the destination, the middles between them, the limits, and their
/// neighbours. Of formats with more than 2^`thinned_above` magnitudes a sample, and all powers of two.
Words edges(const Format& to, int thinned_above) {
  Words words{fp32, {}};
  const auto add = [&](std::uint32_t magnitude) {
    for (const std::uint32_t word : {magnitude - 1, magnitude, magnitude + 1}) {
      words.values.push_back(word & 0x7FFFFFFF);
      words.values.push_back(word | 0x80000000);
    }
  };
  for (const std::uint32_t corner :
       {0x00000000U, 0x00400000U, 0x00800000U, 0x7F800000U, 0x7FC00000U, 0x7FFFFFFFU, 0x7F000000U, 0x7FA00000U}) {
    add(corner);
  }
  const std::uint32_t magnitudes = 1U << (to.value_bits - to.sign_bits - to.low_zero_bits);
  const bool wide = magnitudes > (1U << thinned_above);
  std::mt19937 random(7);
  for (std::uint32_t m = 0; m < magnitudes; ++m) {
    const std::uint32_t in_binade = m & static_cast<std::uint32_t>(low_mask(to.fraction_bits));
    if (wide && in_binade > 1 && in_binade != low_mask(to.fraction_bits)) {
      m += draw(random) % (1U << (to.fraction_bits - 4));
      if (m >= magnitudes) break;
    }
    // The nearest power of two changes at sqrt(2), between two words that are no middle.
    if (to.layout == Layout::exponent) add(m == 0 ? 0x5A8279U : m << 23 | 0x3504F3U);
    const Value here = decode(to, static_cast<uint64>(m) << to.low_zero_bits);
    if (!here.is_finite()) continue;
    add(fp32_word(here.real));
    // The middle to the next magnitude above, and what would be the next one.
    const int e = here.real.is_zero() ? -200 : floor_log2(here.real);
    const int quantum = to.layout == Layout::exponent ? e : detail::quantum_exponent(to, e);
    for (const int half_quanta : {1, 2, 3}) {
      const Real step{.significand = static_cast<unsigned>(half_quanta), .exponent = quantum - 1};
      const Split base = split(here.real, quantum - 1);
      add(fp32_word(Real{.significand = base.quanta + step.significand, .exponent = quantum - 1}));
    }
  }
  return words;
}

TEST(ConvertKernels, EdgesOfFp32) {
  for (const DataType to : destinations) {
    const Words all = edges(format_of(to), test::slow_build ? 8 : 15);
    const Words sample = edges(format_of(to), 8);
    for_each_control([&](const EncodeControl& control) {
      check(control.profile == &pto_profile && !control.saturate ? all : sample, format_of(to), control, 50);
    });
    if (HasFatalFailure()) return;
  }
}

/// Every exponent with significands of few bits, few zeros and random ones.
Words stratified(const Format& from, std::uint32_t seed, std::size_t count) {
  std::mt19937 random(seed);
  Words words{from, std::vector<std::uint32_t>(count)};
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t exponent = static_cast<std::uint32_t>(i) & 0xFF;
    std::uint32_t fraction = draw(random);
    const std::uint32_t bit = 1U << (draw(random) % 23);
    switch (draw(random) % 8) {
      case 0:
        fraction = 0;
        break;
      case 1:
        fraction = bit;
        break;
      case 2:
        fraction = ~bit;
        break;
      case 3:
        fraction = ~0U << (draw(random) % 24);
        break;
      case 4:
        fraction = bit | 1U << (draw(random) % 23);
        break;
      default:
        break;
    }
    words.values[i] = (draw(random) & 0x80000000U) | exponent << 23 | (fraction & 0x7FFFFF);
    if (random() % 4 != 0) words.values[i] &= ~static_cast<std::uint32_t>(low_mask(from.low_zero_bits));
  }
  return words;
}

TEST(ConvertKernels, RandomWordsOfThirtyTwoBits) {
  std::uint32_t seed = 0;
  for (const DataType from : {DataType::fp32, DataType::tf32, DataType::hf32}) {
    for (const DataType to : destinations) {
      if (!conversion_legal(format_of(from), format_of(to))) continue;
      for_each_control([&](const EncodeControl& control) {
        check(stratified(format_of(from), ++seed, (from == DataType::fp32 ? 1U << 15 : 1U << 12) / test::sweep_step(8)),
              format_of(to), control, 20);
      });
      if (HasFatalFailure()) return;
    }
  }
}

// Any length, any alignment; nothing beyond the end is read into the flags or written.
TEST(ConvertKernels, LengthsAndAlignments) {
  for (const DataType from : {DataType::fp32, DataType::fp16, DataType::bf16, DataType::tf32, DataType::e5m2}) {
    for (const DataType to : {DataType::fp32, DataType::bf16, DataType::hif8, DataType::e4m3, DataType::e8m0}) {
      const Format& f = format_of(from);
      const Format& t = format_of(to);
      if (!conversion_legal(f, t)) continue;
      const std::size_t from_bytes = f.carrier_bits / 8U;
      const std::size_t to_bytes = t.carrier_bits / 8U;
      std::mt19937 random(3);
      test::for_each_target([&](const std::string& target) {
        SCOPED_TRACE(target + " " + describe(f, t, {}));
        for (std::size_t length = 0; length <= 70; ++length) {
          const std::size_t offset = random() % 5;
          std::vector<std::byte> in(offset + length * from_bytes);
          for (std::byte& b : in) b = static_cast<std::byte>(random());
          std::vector<std::byte> out(offset + length * to_bytes + 64, std::byte{0xA5});
          std::vector<std::byte> expected = out;
          const auto words = std::span(in).subspan(offset);
          const auto got =
              convert_array_into(words, f, t, std::span(out).subspan(offset, length * to_bytes), {}, {.threads = 1});
          const auto want = convert_array_into(words, f, t, std::span(expected).subspan(offset, length * to_bytes), {},
                                               {.threads = 1, .reference = true});
          ASSERT_TRUE(got && want);
          ASSERT_EQ(static_cast<int>(*got), static_cast<int>(*want)) << length;
          ASSERT_EQ(out, expected) << length;
        }
      });
    }
  }
}

// One element unlike the others raises its flags from every place.
TEST(ConvertKernels, EveryLane) {
  struct Odd {
    std::uint32_t word;
    Flags flags;
  };
  constexpr std::array odds{Odd{0x7F800001, Flags::invalid}, Odd{0x7F000000, overflow_inexact},
                            Odd{0x00000001, underflow_inexact}, Odd{0x3F800001, Flags::inexact}};
  test::for_each_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    for (const std::size_t length : {std::size_t{5}, std::size_t{16}, std::size_t{37}, std::size_t{64}}) {
      for (std::size_t at = 0; at < length; ++at) {
        for (const Odd& odd : odds) {
          std::vector<std::uint32_t> words(length, 0x3F800000);
          words[at] = odd.word;
          const auto result = convert_array(std::as_bytes(std::span(words)), fp32, fp16, {}, {.threads = 1});
          ASSERT_TRUE(result);
          ASSERT_EQ(static_cast<int>(result->flags), static_cast<int>(odd.flags)) << length << " " << at;
        }
      }
    }
  });
}

TEST(ConvertKernels, Threads) {
  const Words words = stratified(fp32, 9, 100003);
  const auto in = std::as_bytes(std::span(words.values));
  const auto reference = convert_array(in, fp32, e4m3, {}, {.threads = 1, .reference = true});
  ASSERT_TRUE(reference);
  for (unsigned threads = 1; threads <= 3; ++threads) {
    const auto result = convert_array(in, fp32, e4m3, {}, {.threads = threads});
    ASSERT_TRUE(result);
    EXPECT_EQ(result->words, reference->words);
    EXPECT_EQ(result->flags, reference->flags);
  }
}

TEST(ConvertKernels, OutputOfAnotherSize) {
  const std::vector<std::byte> in(8);
  std::vector<std::byte> out(5);
  EXPECT_FALSE(convert_array_into(in, fp32, bf16, out));
  EXPECT_FALSE(convert_array_into(in, fp32, bf16, std::span(out).first(2)));
  EXPECT_TRUE(convert_array_into(in, fp32, bf16, std::span(out).first(4)));
}

}  // namespace
}  // namespace bitcube
