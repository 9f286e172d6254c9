// The SIMD products against the reference: every method on every target, all tails, special values everywhere.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cfenv>
#include <string>
#include <vector>

#include "bitcube/cube/matmul.hpp"
#include "support/operands.hpp"
#include "support/sweep.hpp"
#include "support/targets.hpp"

namespace bitcube {
namespace {

/// What the lanes and scales are.
enum class Data {
  plain,  // finite, of similar size, as real tensors are
  wild,   // any code and any scale
};

/// How the lanes lie in memory.
enum class Layout {
  lines,    // one line after the other, 4-bit lanes in pairs, at an odd address
  columns,  // lane k of all lines side by side, a word each: B row-major
  wide,     // the same in words of 64 bits, with other things in the upper bits
};

/// One side of a product with `lines` lines of k lanes; any smaller shape is a part of it.
class Side {
 public:
  Side(const Format& f, bool scaled, Data data, Layout layout, std::size_t lines, std::size_t k, std::uint64_t seed) {
    test::Operands operands(seed);
    operand.format = &f;
    operand.lines = lines;
    operand.k = k;
    const unsigned bits = layout == Layout::lines ? f.lane_bits : layout == Layout::columns ? f.carrier_bits : 64;
    const std::size_t stride = layout == Layout::lines ? (k + 1) / 2 * 2 : lines;
    const std::size_t words = layout == Layout::lines ? lines * stride : k * stride;
    lanes_.assign(words * bits / 8 + 1, 0);
    operand.lanes = {lanes_.data() + 1, bits, stride, 1};
    if (layout != Layout::lines) std::swap(operand.lanes.line_stride, operand.lanes.lane_stride);
    for (std::size_t l = 0; l < lines; ++l) {
      for (std::size_t i = 0; i < k; ++i) {
        const std::uint64_t above = layout == Layout::wide ? operands.raw() << f.carrier_bits : 0;
        put(l, i, lane(operands, f, data) | above);
      }
    }
    if (!scaled) return;
    const std::size_t groups = (k + scale_group(f) - 1) / scale_group(f);
    const bool hif4_side = f.type == DataType::hif4x2;
    const unsigned scale_bits = layout == Layout::wide ? 64 : hif4_side ? 32 : 8;
    scales_.assign(lines * groups * scale_bits / 8 + 1, 0);
    operand.scales = {scales_.data() + 1, scale_bits, groups, 1};
    for (std::size_t i = 0; i < lines * groups; ++i) {
      const std::uint64_t scale = hif4_side ? hif4_scale(operands, data) : e8m0_scale(operands, data);
      // More than the scale in a wide word.
      const std::uint64_t word = layout == Layout::wide ? scale | operands.raw() << (hif4_side ? 32 : 8) : scale;
      std::memcpy(scales_.data() + 1 + i * scale_bits / 8, &word, scale_bits / 8);
    }
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  Operand part(std::size_t lines, std::size_t k) const {
    Operand out = operand;
    out.lines = lines;
    out.k = k;
    return out;
  }
  void put(std::size_t line, std::size_t k, std::uint64_t code) {
    const LaneView& v = operand.lanes;
    const std::size_t index = line * v.line_stride + k * v.lane_stride;
    if (v.lane_bits == 4) {
      std::uint8_t& byte = lanes_[1 + index / 2];
      const unsigned shift = 4 * (index % 2);
      byte = static_cast<std::uint8_t>((byte & ~(0xFU << shift)) | (code & 0xF) << shift);
    } else {
      std::memcpy(lanes_.data() + 1 + index * v.lane_bits / 8, &code, v.lane_bits / 8);
    }
  }
  void put_scale(std::size_t line, std::size_t group, std::uint64_t scale) {
    const LaneView& v = operand.scales;
    const std::size_t bytes = v.lane_bits / 8;
    std::memcpy(scales_.data() + 1 + (line * v.line_stride + group) * bytes, &scale, bytes);
  }

  Operand operand;

 private:
  static std::uint64_t lane(test::Operands& operands, const Format& f, Data data) {
    if (f.is_integer()) return operands.raw() & low_mask(f.lane_bits);
    if (data == Data::wild) return operands.chance(8) ? operands.word(f) : operands.raw() & low_mask(f.carrier_bits);
    // A small normal distribution, about: the sum of four uniform numbers in [-1, 1).
    std::int64_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<std::int64_t>(operands.below(2048)) - 1024;
    const Real x{.negative = sum < 0, .significand = static_cast<uint64>(sum < 0 ? -sum : sum), .exponent = -10};
    return encode(f, x, {.saturate = true}).bits;
  }
  static std::uint64_t e8m0_scale(test::Operands& operands, Data data) {
    if (data == Data::wild) return operands.raw() & 0xFF;
    return 120 + operands.below(12);
  }
  static std::uint64_t hif4_scale(test::Operands& operands, Data data) {
    const std::uint64_t micro = operands.raw() & 0xFFFFFF00;
    return micro | (data == Data::wild ? operands.raw() & 0xFF : 180 + operands.below(24));
  }

  std::vector<std::uint8_t> lanes_;
  std::vector<std::uint8_t> scales_;
};

struct Pair {
  DataType a;
  bool a_scaled;
  DataType b;
  bool b_scaled;
  std::vector<Accumulation> profiles;
};

const std::vector<Accumulation> kFloatProfiles{Accumulation::fma, Accumulation::two_step, Accumulation::group,
                                               Accumulation::exact};

std::vector<Pair> pairs() {
  using enum DataType;
  std::vector<Pair> out;
  const std::vector<std::pair<DataType, bool>> mx{{hif4x2, true}, {e4m3, true},  {e5m2, true}, {e2m1x2, true},
                                                  {e1m2x2, true}, {fp16, false}, {bf16, false}};
  for (const auto& [a, a_scaled] : mx) {
    for (const auto& [b, b_scaled] : mx) out.push_back({a, a_scaled, b, b_scaled, kFloatProfiles});
  }
  for (const DataType t : {fp32, tf32, hf32, hif8, e4m3, e5m2, e3m2, e2m3, e2m1x2, e1m2x2}) {
    out.push_back({t, false, t, false, kFloatProfiles});
  }
  out.push_back({fp32, false, hif8, false, kFloatProfiles});
  out.push_back({e4m3, false, fp16, false, kFloatProfiles});
  out.push_back({e2m1x2, false, e1m2x2, false, kFloatProfiles});
  const std::vector<Accumulation> any{Accumulation::fma};
  for (const DataType a : {s16, s8, s4x2}) {
    for (const DataType b : {s16, s8, s4x2}) out.push_back({a, false, b, false, any});
  }
  for (const DataType a : {u16, u8, u4x2}) {
    for (const DataType b : {u16, u8, u4x2}) out.push_back({a, false, b, false, any});
  }
  return out;
}

const AccumulationProfile& profile_of(Accumulation kind) {
  for (const AccumulationProfile& p : accumulation_profiles) {
    if (p.kind == kind) return p;
  }
  return accumulation_profiles[0];
}

std::vector<std::uint32_t> accumulator_words(std::size_t n, const Format& f, Data data, std::uint64_t seed) {
  test::Operands operands(seed);
  std::vector<std::uint32_t> words(n);
  for (std::uint32_t& w : words) {
    switch (data == Data::wild ? operands.below(4) : 2 + operands.below(2)) {
      case 0:
        w = 0x80000000;
        break;
      case 1:
        w = static_cast<std::uint32_t>(operands.word(f));
        break;
      case 2:
        w = 0;
        break;
      default:
        w = static_cast<std::uint32_t>(operands.finite_word(bf16)) << 16;
        if (data == Data::plain) w = 0x3F800000 | (w & 0x807F0000);
        break;
    }
  }
  return words;
}

/// Compares the kernels with the reference on parts of two sides.
class Comparison {
 public:
  Comparison(const Pair& pair, Data data, Layout layout, std::size_t m, std::size_t n, std::size_t k,
             std::uint64_t seed)
      : a(format_of(pair.a), pair.a_scaled, data, layout == Layout::wide ? layout : Layout::lines, m, k, seed),
        b(format_of(pair.b), pair.b_scaled, data, pair.b_scaled && layout == Layout::columns ? Layout::lines : layout,
          n, k, seed + 1),
        name_(fmt::format("{}{} x {}{} {} {}", format_of(pair.a).name, pair.a_scaled ? "+scale" : "",
                          format_of(pair.b).name, pair.b_scaled ? "+scale" : "", data == Data::wild ? "wild" : "plain",
                          layout == Layout::lines     ? "lines"
                          : layout == Layout::columns ? "columns"
                                                      : "wide")) {
    const Format& accumulator = *product_kind(a.operand, b.operand)->accumulator;
    c_ = accumulator_words(m * n, accumulator, data, seed + 2);
    bias_ = accumulator_words(n, accumulator, data, seed + 3);
  }

  /// The expected words of all m x n outputs over the first k lanes.
  void expect(Accumulation kind, std::size_t k, bool with_c, bool with_bias, std::size_t group = 0) {
    kind_ = kind;
    k_ = k;
    with_c_ = with_c;
    with_bias_ = with_bias;
    group_ = group;
    const auto d = run(a.operand.lines, b.operand.lines, {.threads = 1, .reference = true});
    ASSERT_TRUE(d) << d.error().message;
    expected_ = d->words;
  }
  /// Whether the kernels give the same for the first m x n outputs.
  ::testing::AssertionResult same(std::size_t m, std::size_t n, unsigned threads = 1) const {
    const auto d = run(m, n, {.threads = threads});
    if (!d) return ::testing::AssertionFailure() << d.error().message;
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        const std::uint32_t want = expected_[i * b.operand.lines + j];
        const std::uint32_t got = d->words[i * n + j];
        if (want == got) continue;
        return ::testing::AssertionFailure()
               << fmt::format("{}, {}: {} x {} x {}, output {}, {}: {:08X}, but the reference gives {:08X}", name_,
                              profile_of(kind_).name, m, n, k_, i, j, got, want);
      }
    }
    return ::testing::AssertionSuccess();
  }

  Side a;
  Side b;

 private:
  Expected<Accumulators> run(std::size_t m, std::size_t n, const Execution& execution) const {
    MatmulOptions options;
    options.profile = &profile_of(kind_);
    options.execution = execution;
    options.group = group_;
    std::vector<std::uint32_t> c;
    if (with_c_) {
      for (std::size_t i = 0; i < m; ++i) {
        const auto row = c_.begin() + static_cast<std::ptrdiff_t>(i * b.operand.lines);
        c.insert(c.end(), row, row + static_cast<std::ptrdiff_t>(n));
      }
      options.c = c;
    }
    if (with_bias_) options.bias = std::span(bias_).first(n);
    return matmul(a.part(m, k_), b.part(n, k_), options);
  }

  std::string name_;
  std::vector<std::uint32_t> c_;
  std::vector<std::uint32_t> bias_;
  Buffer<std::uint32_t> expected_;
  Accumulation kind_ = Accumulation::fma;
  std::size_t k_ = 0;
  bool with_c_ = false;
  bool with_bias_ = false;
  std::size_t group_ = 0;
};

/// Every pair of types and every profile, on K around the group and chunk lengths, whole and partial tiles.
TEST(MatmulKernels, EveryPairOfTypesAndProfile) {
  std::uint64_t seed = 1;
  for (const Pair& pair : pairs()) {
    for (const Data data : {Data::plain, Data::wild}) {
      for (const Layout layout : {Layout::lines, Layout::columns, Layout::wide}) {
        if (layout == Layout::columns && pair.b_scaled) continue;
        Comparison comparison(pair, data, layout, 33, 37, 1100, ++seed);
        for (const Accumulation kind : pair.profiles) {
          for (const std::size_t k : {std::size_t{31}, std::size_t{65}, std::size_t{289}, std::size_t{1057}}) {
            if (k > 300 && (data == Data::wild || pair.a != pair.b)) continue;
            if (k > 100 && layout != Layout::lines) continue;
            comparison.expect(kind, k, data == Data::wild || k == 65, k != 31);
            test::for_each_target(
                [&](const std::string& target) {
                  EXPECT_TRUE(comparison.same(33, 37)) << target;
                  EXPECT_TRUE(comparison.same(5, 3)) << target;
                },
                false);
          }
        }
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

/// One pair for each method of the kernels.
std::vector<Pair> one_pair_per_method() {
  using enum DataType;
  return {
      {hif4x2, true, hif4x2, true, {Accumulation::group, Accumulation::exact}},
      {e4m3, true, e4m3, true, kFloatProfiles},
      {s8, false, s8, false, {Accumulation::fma}},
      {s16, false, s16, false, {Accumulation::fma}},
  };
}

/// All M, N and K from 1 to 70 (in slow builds some K) with every method. The targets share them, each taking what a
/// hash gives it.
TEST(MatmulKernels, AllSmallShapes) {
  std::uint64_t seed = 1000;
  std::size_t targets = 0;
  test::for_each_target([&](const std::string&) { ++targets; }, false);
  for (const Pair& pair : one_pair_per_method()) {
    Comparison comparison(pair, Data::plain, Layout::lines, 70, 70, 70, ++seed);
    for (const Accumulation kind : pair.profiles) {
      for (std::size_t k = 1; k <= 70; k += test::sweep_step(23)) {
        comparison.expect(kind, k, false, true);
        std::size_t mine = 0;
        test::for_each_target(
            [&](const std::string& target) {
              for (std::size_t m = 1; m <= 70; ++m) {
                for (std::size_t n = 1; n <= 70; ++n) {
                  const std::uint64_t hash = ((m * 71 + n) * 71 + k) * 0x9E3779B97F4A7C15;
                  if ((hash >> 32) % targets != mine) continue;
                  ASSERT_TRUE(comparison.same(m, n)) << target;
                }
              }
              ++mine;
            },
            false);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

/// NaN, infinities, zeros of both signs and the scales at the ends, in each lane of a group in turn.
TEST(MatmulKernels, SpecialValuesInEveryLane) {
  using enum DataType;
  struct Case {
    DataType type;
    bool scaled;
    std::vector<std::uint64_t> codes;
    std::vector<std::uint64_t> scales;
  };
  const std::vector<Case> cases{
      {hif4x2, true, {0x0, 0x8, 0x7, 0xF}, {0x000000FF, 0xFFFFFFFF, 0xFFFFFF00, 0xFFFFFFFE, 0x000000B4}},
      {e4m3, true, {0x7F, 0xFF, 0x00, 0x80, 0x7E, 0x01}, {0xFF, 0x00, 0xFE, 0x77, 0x78}},
      {e5m2, true, {0x7C, 0xFC, 0x7D, 0x7F, 0x00, 0x80, 0x7B, 0x01}, {0xFF, 0x00, 0xFE, 0x70}},
      {e2m1x2, true, {0x0, 0x8, 0x7, 0xF}, {0xFF, 0x00, 0xFE, 0x35, 0x36, 0x37, 0xB1, 0xB2, 0xB3}},
      {fp16, false, {0x7C00, 0xFC00, 0x7C01, 0x7E00, 0x0000, 0x8000, 0x0001, 0x7BFF}, {}},
      {bf16, false, {0x7F80, 0xFF80, 0x7F81, 0x7FC0, 0x0000, 0x8000, 0x0001, 0x7F7F}, {}},
      {fp32, false, {0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0, 0x80000000, 1, 0x7F7FFFFF, 0x00800000}, {}},
  };
  constexpr std::size_t k = 130;
  std::uint64_t seed = 2000;
  for (const Case& c : cases) {
    const Pair pair{c.type, c.scaled, c.type, c.scaled, kFloatProfiles};
    for (const bool in_b : {false, true}) {
      Comparison comparison(pair, Data::plain, Layout::lines, 70, 35, k, ++seed);
      // Line i holds the code in lane i, then one lane further in every round.
      for (std::size_t i = 0; i < c.codes.size(); ++i) {
        for (std::size_t lane = 0; lane < 70; ++lane) {
          if (in_b) {
            comparison.b.put(lane % 35, (lane + 37 * i) % k, c.codes[i]);
          } else {
            comparison.a.put(lane, (lane + 37 * i) % k, c.codes[i]);
          }
        }
      }
      for (std::size_t i = 0; i < c.scales.size(); ++i) {
        if (in_b) {
          comparison.b.put_scale(5 * i % 35, i % 2, c.scales[i]);
        } else {
          comparison.a.put_scale(7 * i, i % 3, c.scales[i]);
        }
      }
      for (const Accumulation kind : kFloatProfiles) {
        comparison.expect(kind, k, true, true);
        test::for_each_target(
            [&](const std::string& target) { EXPECT_TRUE(comparison.same(70, 35)) << target << (in_b ? " B" : " A"); });
      }
    }
  }
}

/// Sums of zeros that start from C = -0: only products that are all -0 leave it.
TEST(MatmulKernels, MinusZeroFromC) {
  using enum DataType;
  for (const DataType type : {DataType::hif4x2, DataType::e2m1x2, DataType::e4m3, DataType::fp16}) {
    const bool scaled = type != fp16;
    Side a(format_of(type), scaled, Data::plain, Layout::lines, 6, 70, 1);
    Side b(format_of(type), scaled, Data::plain, Layout::lines, 3, 70, 2);
    const std::uint64_t minus = uint64{1} << format_of(type).sign_bit();
    for (std::size_t i = 0; i < 6; ++i) {
      for (std::size_t k = 0; k < 70; ++k) a.put(i, k, i == 0 || (i == 1 && k == 69) ? minus : 0);
    }
    for (std::size_t k = 0; k < 70; ++k) {
      b.put(0, k, b.operand.lanes(0, k) & (minus - 1));
      b.put(1, k, b.operand.lanes(1, k) | minus);
    }
    const std::vector<std::uint32_t> c(18, 0x80000000);
    for (const Accumulation kind : kFloatProfiles) {
      MatmulOptions options;
      options.profile = &profile_of(kind);
      options.c = c;
      options.execution = {.threads = 1, .reference = true};
      const auto want = matmul(a.operand, b.operand, options);
      ASSERT_TRUE(want);
      EXPECT_EQ(want->words[0], 0x80000000);
      EXPECT_EQ(want->words[1], 0U);
      options.execution.reference = false;
      test::for_each_target([&](const std::string& target) {
        const auto got = matmul(a.operand, b.operand, options);
        ASSERT_TRUE(got);
        EXPECT_EQ(got->words, want->words) << target << ' ' << profile_of(kind).name;
      });
    }
  }
}

/// Sums just beside the middle of two FP32 values, which binary64 alone would round twice.
TEST(MatmulKernels, NoDoubleRounding) {
  // A row of products 2^24, 1, 2^-30 (and its negative): the exact sum is just above or below a tie.
  const std::vector<std::vector<std::uint32_t>> rows{
      {0x4B800000, 0x3F800000, 0x30800000},                                        // 2^24 + 1 + 2^-30
      {0x4B800000, 0x3F800000, 0xB0800000}, {0x4B800000, 0x3F800000, 0x0D800000},  // 2^-100: beyond binary64
      {0x4B800000, 0x3F800000, 0x8D800000}, {0xCB800000, 0xBF800000, 0x0D800000},
      {0x4B800000, 0x40400000, 0x8D800000},  // 2^24 + 3 - 2^-100
      {0x4B800000, 0xCB800000, 0x0D800000},  // only the small one is left
      {0x00000001, 0x00000001, 0x80000001},
  };
  std::vector<std::uint8_t> a_bytes(rows.size() * 12);
  for (std::size_t i = 0; i < rows.size(); ++i) std::memcpy(a_bytes.data() + 12 * i, rows[i].data(), 12);
  const std::vector<std::uint32_t> ones(3 * 20, 0x3F800000);
  const Operand a{.format = &fp32, .lines = rows.size(), .k = 3, .lanes = {a_bytes.data(), 32, 3, 1}, .scales = {}};
  const Operand b{.format = &fp32,
                  .lines = 20,
                  .k = 3,
                  .lanes = {reinterpret_cast<const std::uint8_t*>(ones.data()), 32, 3, 1},
                  .scales = {}};
  for (const Accumulation kind : kFloatProfiles) {
    MatmulOptions options;
    options.profile = &profile_of(kind);
    options.execution = {.threads = 1, .reference = true};
    const auto want = matmul(a, b, options);
    ASSERT_TRUE(want);
    if (kind == Accumulation::group || kind == Accumulation::exact) {
      EXPECT_EQ(want->words[0], 0x4B800001);
      EXPECT_EQ(want->words[20], 0x4B800000);
    }
    options.execution.reference = false;
    test::for_each_target([&](const std::string& target) {
      const auto got = matmul(a, b, options);
      ASSERT_TRUE(got);
      EXPECT_EQ(got->words, want->words) << target << ' ' << profile_of(kind).name;
    });
  }
}

/// An FP32 row times ones.
std::uint32_t row_sum(const std::vector<std::uint32_t>& row, std::uint32_t c, Accumulation kind, bool reference) {
  const std::vector<std::uint32_t> ones(row.size(), 0x3F800000);
  const auto operand = [&](const std::vector<std::uint32_t>& words) {
    return Operand{.format = &fp32,
                   .lines = 1,
                   .k = words.size(),
                   .lanes = {reinterpret_cast<const std::uint8_t*>(words.data()), 32, words.size(), 1},
                   .scales = {}};
  };
  const std::vector<std::uint32_t> start{c};
  MatmulOptions options;
  options.profile = &profile_of(kind);
  options.c = start;
  options.execution = {.threads = 1, .reference = reference};
  const auto d = matmul(operand(row), operand(ones), options);
  return d ? d->words[0] : 0;
}

/// Large terms that cancel and leave a tie to a term that two binary64 numbers have lost on the way.
TEST(MatmulKernels, WhatCancellationLeavesDecidesTies) {
  const std::uint32_t big = 0x5D800000;  // 2^60
  const std::uint32_t one = 0x3F800000;
  const std::uint32_t half_ulp = 0x33800000;  // 2^-24
  const std::uint32_t tiny = 0x17800000;      // 2^-80
  const std::uint32_t minus = 0x80000000;
  test::for_each_target([&](const std::string& target) {
    const auto exact = [](const std::vector<std::uint32_t>& row, std::uint32_t c) {
      return row_sum(row, c, Accumulation::exact, false);
    };
    EXPECT_EQ(exact({big, one, half_ulp, tiny, big | minus}, 0), 0x3F800001U) << target;
    EXPECT_EQ(exact({big, one, half_ulp, tiny | minus, big | minus}, 0), 0x3F800000U) << target;
    EXPECT_EQ(exact({big, one, 0x34000000, half_ulp, tiny | minus, big | minus}, 0), 0x3F800001U) << target;
    EXPECT_EQ(exact({big, one, half_ulp, tiny}, big | minus), 0x3F800001U) << target;
  });
}

/// A sum that needs one bit more than binary64 has: 1 + 2^-24 + 2^-46 (1 + 2^-7) - 2^-46, where what is left beside the
/// tie is 2^-53. Exponents alone would say that 53 bits are enough; the lowest bit of a significand says that they are
/// not.
TEST(MatmulKernels, TheLowestBitOfASignificandCounts) {
  const std::vector<std::uint16_t> row{0x3F80, 0x3380, 0x2881, 0xA880};
  const std::vector<std::uint16_t> ones(row.size(), 0x3F80);
  const auto operand = [](const std::vector<std::uint16_t>& words) {
    return Operand{.format = &bf16,
                   .lines = 1,
                   .k = words.size(),
                   .lanes = {reinterpret_cast<const std::uint8_t*>(words.data()), 16, words.size(), 1},
                   .scales = {}};
  };
  for (const Accumulation kind : {Accumulation::group, Accumulation::exact}) {
    MatmulOptions options;
    options.profile = &profile_of(kind);
    options.execution.threads = 1;
    test::for_each_target([&](const std::string& target) {
      const auto d = matmul(operand(row), operand(ones), options);
      ASSERT_TRUE(d);
      EXPECT_EQ(d->words[0], 0x3F800001U) << target;
    });
  }
}

/// Random rows of powers of two far apart, of full significands, of pairs that cancel, and of zeros of both signs.
TEST(MatmulKernels, FarApartCancellingAndSparse) {
  const std::vector<int> exponents{0, 0, 60, -60, -23, -24, -25, -80, -126, -140, 100};
  for (const DataType type : {DataType::fp32, DataType::bf16, DataType::hf32, DataType::e5m2}) {
    const Format& f = format_of(type);
    for (unsigned kind_of_data = 0; kind_of_data < 4; ++kind_of_data) {
      const bool scaled = type == DataType::e5m2;
      const std::size_t k = 70;
      Comparison comparison({type, scaled, type, scaled, {}}, Data::plain, Layout::lines, 64, 24, k, 90 + kind_of_data);
      test::Operands operands(500 + kind_of_data);
      const auto far = [&](bool full) {
        const uint64 fraction = full                 ? operands.raw() & low_mask(23)
                                : operands.chance(3) ? uint64{1} << operands.below(23)
                                                     : 0;
        const Real x{.negative = operands.chance(2),
                     .significand = (uint64{1} << 23) | fraction,
                     .exponent = exponents[operands.below(exponents.size())] - 23};
        return encode(f, x, {.saturate = true}).bits;
      };
      const uint64 sign = uint64{1} << f.sign_bit();
      const uint64 one = encode(f, Real{.significand = 1}, {}).bits;
      for (std::size_t line = 0; line < 64; ++line) {
        for (std::size_t i = 0; i < k; ++i) {
          uint64 x = far(kind_of_data == 1);
          if (kind_of_data == 2 && i % 2 == 1 && !operands.chance(5))
            x = comparison.a.operand.lanes(line, i - 1) ^ sign;
          if (kind_of_data == 3 && !operands.chance(20)) x = operands.chance(2) ? sign : 0;
          comparison.a.put(line, i, x);
        }
      }
      for (std::size_t line = 0; line < 24; ++line) {
        for (std::size_t i = 0; i < k; ++i) {
          const uint64 zero = operands.chance(2) ? sign : 0;
          const bool is_zero = kind_of_data == 3 && operands.chance(2);
          comparison.b.put(line, i, kind_of_data == 1 ? far(true) : is_zero ? zero : one);
        }
      }
      for (const Accumulation kind : kFloatProfiles) {
        for (const bool with_c : {false, true}) {
          comparison.expect(kind, k, with_c, false);
          test::for_each_target([&](const std::string& target) { EXPECT_TRUE(comparison.same(64, 24)) << target; },
                                false);
        }
      }
    }
  }
}

/// Group lengths that an operation may ask for, beside the natural one.
TEST(MatmulKernels, OtherGroupLengths) {
  using enum DataType;
  for (const DataType type : {hif4x2, e4m3, bf16}) {
    const bool scaled = type != bf16;
    Comparison comparison({type, scaled, type, scaled, {}}, Data::plain, Layout::lines, 20, 20, 300, 77);
    for (const std::size_t group : {std::size_t{8}, std::size_t{16}, std::size_t{24}, std::size_t{32}, std::size_t{64},
                                    std::size_t{128}, std::size_t{256}, std::size_t{1024}}) {
      comparison.expect(Accumulation::group, 300, false, false, group);
      test::for_each_target(
          [&](const std::string& target) { EXPECT_TRUE(comparison.same(20, 20)) << target << " group " << group; });
    }
  }
}

/// Any number of threads, over several blocks of rows and columns, and whatever environment the caller has set.
TEST(MatmulKernels, ThreadsAndEnvironmentChangeNothing) {
  for (const Pair& pair : one_pair_per_method()) {
    Comparison comparison(pair, Data::plain, Layout::lines, 150, 90, 700, 5);
    for (const Accumulation kind : pair.profiles) {
      comparison.expect(kind, 700, true, true);
      for (const unsigned threads : {1U, 2U, 3U}) EXPECT_TRUE(comparison.same(150, 90, threads)) << threads;
      for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        ASSERT_EQ(std::fesetround(mode), 0);
        EXPECT_TRUE(comparison.same(150, 90, 2)) << mode;
        EXPECT_EQ(std::fegetround(), mode);
        ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
      }
    }
  }
}

}  // namespace
}  // namespace bitcube
