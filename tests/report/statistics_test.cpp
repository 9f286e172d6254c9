// The numbers behind the pictures, against counts that are made in another way: whole tensors, thresholds one by one.
#include "bitcube/report/statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "stream/files.hpp"
#include "value_text.hpp"

namespace bitcube::test {
namespace {

using report::FormatStatistics;
using report::Map;

/// A .npy file of FP32 or other words, measured in one way.
FormatStatistics measured(const std::filesystem::path& path, const Shape& shape, std::int64_t axis,
                          const QuantizeOptions& options, std::size_t window = stream::kWindow, unsigned threads = 0) {
  auto files = stream::TensorFiles::open(path);
  EXPECT_TRUE(succeeds(files));
  const std::vector<QuantizeOptions> ways{options};
  auto report = report::measure_tensor(*files, 0, axis, ways, {.threads = threads}, window);
  EXPECT_TRUE(succeeds(report));
  EXPECT_EQ(report->shape, shape);
  return std::move(report->formats.at(0));
}

/// The magnitudes of an element type in order.
std::vector<double> magnitudes(const Format& element) {
  std::vector<double> out;
  for (uint64 code = 0; code < uint64{1} << (element.value_bits - 1); ++code) {
    const Value value = decode(element, code);
    if (value.is_finite()) out.push_back(to_double(value.real));
  }
  std::ranges::sort(out);
  return out;
}

struct Counts {
  uint64 zero = 0, saturated = 0, underflowed = 0, without_step = 0, zero_scales = 0, nan_scales = 0;
  std::array<uint64, report::kRelativeBins> relative{};
  std::array<uint64, report::kStepBins> steps{};
  std::map<int, uint64> exponents;
  std::array<uint64, 3> doublings{};
  std::vector<double> signal, noise;  // of each group
};

/// The same counts of a tensor that was quantised as a whole: values by dequantize_lane(), scales as quotients.
Counts count(const QuantizedTensor& t, const Bytes& words) {
  Counts out;
  Lines lines;
  lines_of(t.shape, t.axis, lines);
  const BlockFormat& f = *t.format;
  const std::vector<double> values = magnitudes(*f.element);
  const std::size_t size = t.source->carrier_bits / 8U;
  for (uint64 line = 0; line < lines.count; ++line) {
    for (uint64 group = 0; group < f.groups(lines.length); ++group) {
      const uint64 index = line * f.groups(lines.length) + group;
      uint64 word = 0;
      for (std::size_t b = f.scale_bytes(); b-- > 0;) {
        word = word << 8 | static_cast<uint64>(t.scales[index * f.scale_bytes() + b]);
      }
      const Value stored = f.is_hif4() ? decode(e6m2, word & 0xFF) : decode(*f.scale, word);
      if (!stored.is_finite()) {
        ++out.nan_scales;
      } else if (stored.real.is_zero()) {
        ++out.zero_scales;
      } else {
        ++out.exponents[static_cast<int>(std::floor(std::log2(to_double(stored.real))))];
      }
      double signal = 0;
      double noise = 0;
      for (uint64 k = 0; k < f.group && group * f.group + k < lines.length; ++k) {
        const uint64 lane = group * f.group + k;
        double scale = stored.is_finite() ? to_double(stored.real) : 0;
        if (f.is_hif4()) {
          const unsigned doublings = (word >> (8 + k / 8) & 1) + (word >> (16 + k / 4) & 1);
          scale *= 1 << doublings;
          ++out.doublings[doublings];
        }
        if (t.tensor_scale) scale *= to_double(decode(fp32, *t.tensor_scale).real);
        const Value x = decode(*t.source, load_word(words.data() + lines.element(line, lane) * size, size));
        const Value y = dequantize_lane(t, line, lane);
        const double magnitude = std::fabs(to_double(y.real));
        if (x.is_infinite() && y.is_finite() && magnitude == values.back() * scale) ++out.saturated;
        if (!x.is_finite() || !y.is_finite()) continue;
        const double from = to_double(x.real);
        const double error = to_double(y.real) - from;
        signal += from * from;
        noise += error * error;
        if (from == 0) {
          ++out.zero;
        } else {
          std::size_t bin = 0;
          if (error != 0) {
            bin = 1;
            for (int octave = report::kLowestOctave; octave <= 0; ++octave) {
              bin += std::fabs(error) / std::fabs(from) >= std::ldexp(1, octave) ? 1U : 0U;
            }
          }
          ++out.relative.at(bin);
          if (magnitude == 0) ++out.underflowed;
        }
        if (std::fabs(from) > values.back() * scale && scale != 0) ++out.saturated;
        if (scale == 0) {
          ++out.without_step;
          continue;
        }
        auto above = std::ranges::upper_bound(values, magnitude / scale);
        if (above == values.end()) --above;
        const double step = (*above - *(above - 1)) * scale;
        std::size_t bin = 0;
        for (int edge = -2 * report::kStepParts - 1; edge <= 2 * report::kStepParts + 1; edge += 2) {
          bin += error / step >= edge / (2.0 * report::kStepParts) ? 1U : 0U;
        }
        ++out.steps.at(bin);
      }
      out.signal.push_back(signal);
      out.noise.push_back(noise);
    }
  }
  return out;
}

void expect_same(const FormatStatistics& s, const Counts& c) {
  EXPECT_EQ(s.zero, c.zero);
  EXPECT_EQ(s.saturated, c.saturated);
  EXPECT_EQ(s.underflowed, c.underflowed);
  EXPECT_EQ(s.without_step, c.without_step);
  EXPECT_EQ(s.zero_scales, c.zero_scales);
  EXPECT_EQ(s.nan_scales, c.nan_scales);
  EXPECT_EQ(s.relative, c.relative);
  EXPECT_EQ(s.steps, c.steps);
  EXPECT_EQ(s.exponents, c.exponents);
  EXPECT_EQ(s.doublings, c.doublings);
}

/// Weights, a few outliers, zeros and special values.
Bytes mixed_words(std::uint64_t count, bool special) {
  Bytes words = random_words(fp32, count, 7);
  std::mt19937 random(5);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (special && random() % 50 == 0) continue;  // the random word, which may be anything
    auto value = static_cast<float>(std::ldexp(static_cast<double>(random() % 4001) - 2000.0, -14));
    if (random() % 40 == 0) value *= 64;
    if (random() % 20 == 0) value /= 4096;
    store_word(words.data() + 4 * i, 4, std::bit_cast<std::uint32_t>(value));
  }
  return words;
}

class Statistics : public testing::TestWithParam<const BlockFormat*> {
 protected:
  TempDir dir_{memory_directory()};
};

TEST_P(Statistics, AreThoseOfTheWholeTensor) {
  const Shape shape{37, 3, 75};
  for (const bool special : {false, true}) {
    const Bytes words = mixed_words(count_of(shape), special);
    array_in(dir_ / "x.npy", DType::kF32, shape, words);
    for (const std::size_t axis : {0U, 1U, 2U}) {
      for (const bool tensor_scale : {false, true}) {
        if (tensor_scale && (!GetParam()->is_nvfp4() || special)) continue;
        const QuantizeOptions options{.format = GetParam(), .tensor_scale = tensor_scale};
        const auto whole = quantize(words, fp32, shape, axis, options);
        ASSERT_TRUE(succeeds(whole));
        const Counts expected = count(*whole, words);
        for (const std::size_t window : {std::size_t{1}, std::size_t{1000}, stream::kWindow}) {
          SCOPED_TRACE(testing::Message() << "special " << special << ", axis " << axis << ", window " << window);
          const FormatStatistics s = measured(dir_ / "x.npy", shape, static_cast<std::int64_t>(axis), options, window);
          expect_same(s, expected);
          const auto error = measure(words, *whole);
          ASSERT_TRUE(succeeds(error));
          EXPECT_EQ(s.result.error.lanes, error->lanes);
          EXPECT_EQ(s.result.error.non_finite, error->non_finite);
          EXPECT_EQ(s.result.code_bytes, whole->codes.size());
          EXPECT_EQ(s.result.scale_bytes, whole->scales.size());
          EXPECT_EQ(s.result.description.tensor_scale, whole->tensor_scale);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Statistics, testing::ValuesIn([] {
                           std::vector<const BlockFormat*> out;
                           for (const BlockFormat& f : block_formats) out.push_back(&f);
                           return out;
                         }()),
                         [](const auto& format) {
                           std::string name(format.param->name);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(StatisticsOfAGroup, ByHand) {
  // MXFP4, floor: amax 7 gives the scale 2^(2 - 2) = 1, so the values are 0 0.5 1 1.5 2 3 4 6.
  const TempDir dir(memory_directory());
  std::vector<float> x(32);
  x[0] = 7;      // to 6: saturated; e = -1, a step of 2
  x[1] = 0.25F;  // a tie, to 0: underflowed; e = -1/4, a step of 1/2
  x[2] = -5;     // a tie, to -4: e = +1, a step of 2
  x[3] = 1;      // exact
  x[4] = 2.5F;   // a tie, to 2: e = -1/2, a step of 1
  Bytes words(128);
  std::ranges::copy(std::as_bytes(std::span(x)), words.begin());
  array_in(dir / "x.npy", DType::kF32, {32}, words);
  const FormatStatistics s = measured(dir / "x.npy", {32}, -1, {.format = find_block_format("mxfp4")});
  EXPECT_EQ(s.zero, 27U);
  EXPECT_EQ(s.saturated, 1U);
  EXPECT_EQ(s.underflowed, 1U);
  EXPECT_EQ(s.smallest, 0.25);
  EXPECT_EQ(s.largest, 7);
  EXPECT_EQ(s.exponents, (std::map<int, uint64>{{0, 1}}));
  std::array<uint64, report::kRelativeBins> relative{};
  relative[0] = 1;                          // 1
  relative[report::kRelativeBins - 1] = 1;  // 0.25 lost
  // 1/7 lies from 2^-3 on, 1/5 too, 1/5 again; the last class below 1 begins with 2^-1.
  relative[report::kRelativeBins - 2 - 2] = 3;
  EXPECT_EQ(s.relative, relative);
  std::array<uint64, report::kStepBins> steps{};
  const std::size_t middle = report::kStepParts + 1;
  steps[middle] = 28;                          // exact ones
  steps[middle - report::kStepParts / 2] = 3;  // -1/2: 7, 0.25, 2.5
  steps[middle + report::kStepParts / 2] = 1;
  EXPECT_EQ(s.steps, steps);
  ASSERT_EQ(s.map.cells.size(), 1U);
  EXPECT_EQ(s.map.cells[0].groups, 1U);
  EXPECT_EQ(s.map.cells[0].saturated, 1U);
  EXPECT_EQ(s.map.cells[0].underflowed, 1U);
  EXPECT_EQ(s.map.cells[0].signal, 49 + 0.0625 + 25 + 1 + 6.25);
  EXPECT_EQ(s.map.cells[0].noise, 1 + 0.0625 + 1 + 0.25);
}

TEST(StatisticsOfAGroup, AnInfinityIsSaturatedAndInNoError) {
  const TempDir dir(memory_directory());
  std::vector<float> x(16, 1.0F);
  x[0] = std::numeric_limits<float>::infinity();
  Bytes words(64);
  std::ranges::copy(std::as_bytes(std::span(x)), words.begin());
  array_in(dir / "x.npy", DType::kF32, {16}, words);
  const FormatStatistics s = measured(dir / "x.npy", {16}, 0, {.format = find_block_format("nvfp4")});
  EXPECT_EQ(s.saturated, 1U);
  EXPECT_EQ(s.underflowed, 15U);  // under a scale of 448
  EXPECT_EQ(s.result.error.non_finite, 1U);
}

TEST(StatisticsMap, CellsCoverTheMatrixOnce) {
  for (const uint64 lines : {1U, 5U, 31U, 32U, 33U, 64U, 100U, 1000U}) {
    for (const uint64 groups : {1U, 32U, 45U}) {
      Map map{.lines = lines,
              .groups = groups,
              .rows = std::min(lines, Map::kMapSide),
              .columns = std::min(groups, Map::kMapSide)};
      map.cells.resize(map.rows * map.columns);
      for (uint64 line = 0; line < lines; ++line) {
        for (uint64 group = 0; group < groups; ++group) ++map.of(line, group).groups;
      }
      EXPECT_EQ(map.first_line(0), 0U);
      EXPECT_EQ(map.first_line(map.rows), lines);
      EXPECT_EQ(map.first_group(map.columns), groups);
      for (uint64 r = 0; r < map.rows; ++r) {
        for (uint64 c = 0; c < map.columns; ++c) {
          const uint64 expected =
              (map.first_line(r + 1) - map.first_line(r)) * (map.first_group(c + 1) - map.first_group(c));
          EXPECT_EQ(map.at(r, c).groups, expected);
          EXPECT_GT(expected, 0U);
        }
      }
    }
  }
}

TEST(StatisticsMap, HoldsTheSumsOfItsGroups) {
  const TempDir dir(memory_directory());
  const Shape shape{70, 64 * 40};
  const Bytes words = mixed_words(count_of(shape), false);
  array_in(dir / "x.npy", DType::kF32, shape, words);
  const auto whole = quantize(words, fp32, shape, 1, {});
  ASSERT_TRUE(succeeds(whole));
  const Counts counts = count(*whole, words);
  for (const std::size_t window : {std::size_t{1000}, stream::kWindow}) {  // parts of lines, and many lines
    const FormatStatistics s = measured(dir / "x.npy", shape, 1, {}, window);
    ASSERT_EQ(s.map.rows, 32U);
    ASSERT_EQ(s.map.columns, 32U);
    for (uint64 r = 0; r < 32; ++r) {
      for (uint64 c = 0; c < 32; ++c) {
        double signal = 0;
        double noise = 0;
        std::int64_t sum = 0;
        uint64 groups = 0;
        for (uint64 line = s.map.first_line(r); line < s.map.first_line(r + 1); ++line) {
          for (uint64 group = s.map.first_group(c); group < s.map.first_group(c + 1); ++group) {
            const uint64 index = line * 40 + group;
            signal += counts.signal[index];
            noise += counts.noise[index];
            sum += static_cast<std::int64_t>(
                std::floor(std::log2(to_double(decode(e6m2, load_word(whole->scales.data() + 4 * index, 1)).real))));
            ++groups;
          }
        }
        EXPECT_EQ(s.map.at(r, c).signal, signal);
        EXPECT_EQ(s.map.at(r, c).noise, noise);
        EXPECT_EQ(s.map.at(r, c).sum, sum);
        EXPECT_EQ(s.map.at(r, c).groups, groups);
      }
    }
  }
}

TEST(StatisticsMap, DoesNotDependOnThreads) {
  const TempDir dir(memory_directory());
  const Shape shape{300, 640};
  array_in(dir / "x.npy", DType::kF32, shape, mixed_words(count_of(shape), true));
  const FormatStatistics one = measured(dir / "x.npy", shape, 0, {}, stream::kWindow, 1);
  const FormatStatistics many = measured(dir / "x.npy", shape, 0, {}, stream::kWindow, 8);
  EXPECT_EQ(one.steps, many.steps);
  EXPECT_EQ(one.saturated, many.saturated);
  for (std::size_t i = 0; i < one.map.cells.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint64>(one.map.cells[i].noise), std::bit_cast<uint64>(many.map.cells[i].noise));
    EXPECT_EQ(std::bit_cast<uint64>(one.map.cells[i].signal), std::bit_cast<uint64>(many.map.cells[i].signal));
  }
}

TEST(StatisticsErrors, ATensorThatHasNoSuchAxis) {
  const TempDir dir(memory_directory());
  array_in(dir / "x.npy", DType::kF32, {4}, Bytes(16));
  const auto files = stream::TensorFiles::open(dir / "x.npy");
  ASSERT_TRUE(succeeds(files));
  const std::vector<QuantizeOptions> ways(1);
  EXPECT_FALSE(report::measure_tensor(*files, 0, 1, ways));
  EXPECT_FALSE(report::measure_tensor(*files, 0, -2, ways));
  EXPECT_TRUE(report::measure_tensor(*files, 0, -1, ways));
}

}  // namespace
}  // namespace bitcube::test
