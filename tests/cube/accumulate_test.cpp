// One output element under every accumulation profile: numerics 8, 9.3 to 9.6, profiles 3.
#include "bitcube/cube/accumulate.hpp"

#include <gtest/gtest.h>

#include <optional>

#include "bitcube/cube/matmul.hpp"
#include "oracle/oracle.hpp"
#include "support/operands.hpp"
#include "support/row.hpp"

namespace bitcube {
namespace {

using test::Row;

/// One line of lanes with its scales, as bytes in memory.
struct Line {
  std::vector<std::uint8_t> lanes;
  std::vector<std::uint8_t> scales;
  Operand operand;
};

void append(std::vector<std::uint8_t>& out, uint64 word, unsigned bytes) {
  for (unsigned i = 0; i < bytes; ++i) out.push_back(static_cast<std::uint8_t>(word >> (8 * i)));
}

/// `digits` as in accumulate.csv: 1 digit a lane for 4-bit types, else 2 for each byte; scales "-" for none.
Line line_of(const Format& f, const std::vector<uint64>& words, const std::vector<uint64>& scales) {
  Line line;
  if (f.lane_bits == 4) {
    for (std::size_t i = 0; i < words.size(); i += 2) {
      const uint64 high = i + 1 < words.size() ? words[i + 1] : 0;
      line.lanes.push_back(static_cast<std::uint8_t>(words[i] | high << 4));
    }
  } else {
    for (const uint64 w : words) append(line.lanes, w, f.lane_bits / 8U);
  }
  const unsigned scale_bytes = f.type == DataType::hif4x2 ? 4 : 1;
  for (const uint64 w : scales) append(line.scales, w, scale_bytes);
  return line;
}

/// Points the operand at the line's bytes once they no longer move.
const Operand& bind(Line& line, const Format& f, std::size_t k) {
  line.operand = {
      .format = &f, .lines = 1, .k = k, .lanes = {line.lanes.data(), f.lane_bits, k + k % 2, 1}, .scales = {}};
  if (!line.scales.empty()) {
    line.operand.scales = {line.scales.data(), f.type == DataType::hif4x2 ? 32U : 8U, line.scales.size(), 1};
  }
  return line.operand;
}

std::uint32_t multiply_lines(Line a, const Format& fa, Line b, const Format& fb, std::size_t k,
                             std::string_view profile, std::optional<std::uint32_t> c,
                             std::optional<std::uint32_t> bias) {
  MatmulOptions options;
  options.profile = find_accumulation_profile(profile);
  options.execution.threads = 1;
  if (c) options.c = std::span<const std::uint32_t>(&*c, 1);
  if (bias) options.bias = std::span<const std::uint32_t>(&*bias, 1);
  const auto result = matmul(bind(a, fa, k), bind(b, fb, k), options);
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  return result ? result->words[0] : 0;
}

std::vector<uint64> lanes_from(std::string_view digits, const Format& f) {
  return test::hex_words(digits, f.lane_bits == 4 ? 1 : f.lane_bits / 4U);
}
std::vector<uint64> scales_from(std::string_view digits, const Format& f) {
  if (digits == "-") return {};
  return test::hex_words(digits, f.type == DataType::hif4x2 ? 8 : 2);
}

TEST(Accumulate, Vectors) {
  test::for_each_row("accumulate.csv", [](const Row& row) {
    const Format& fa = row.format("a_type");
    const Format& fb = row.format("b_type");
    const auto optional_word = [&](std::string_view column) -> std::optional<std::uint32_t> {
      if (row.text(column) == "-") return std::nullopt;
      return static_cast<std::uint32_t>(row.word(column));
    };
    const std::uint32_t result =
        multiply_lines(line_of(fa, lanes_from(row.text("a"), fa), scales_from(row.text("a_scales"), fa)), fa,
                       line_of(fb, lanes_from(row.text("b"), fb), scales_from(row.text("b_scales"), fb)), fb,
                       row.word("k"), row.text("profile"), optional_word("c"), optional_word("bias"));
    EXPECT_EQ(result, static_cast<std::uint32_t>(row.word("result")));
  });
}

// The tables of numerics 9.5 and 9.6.
TEST(Accumulate, WorkedRows) {
  for (const auto& row : bitcube_rows::kAccumulate) {
    SCOPED_TRACE(std::string(row.section) + " " + row.profile + " " + row.a + " " + row.b);
    const Format& fa = *find_format(row.a_type);
    const Format& fb = *find_format(row.b_type);
    const auto scales = [](const char* text, const Format& f) {
      return text == nullptr ? std::vector<uint64>{} : scales_from(text, f);
    };
    const auto word = [](const char* text) -> std::optional<std::uint32_t> {
      if (text == nullptr) return std::nullopt;
      return static_cast<std::uint32_t>(test::hex(text));
    };
    EXPECT_EQ(multiply_lines(line_of(fa, lanes_from(row.a, fa), scales(row.a_scales, fa)), fa,
                             line_of(fb, lanes_from(row.b, fb), scales(row.b_scales, fb)), fb,
                             static_cast<std::size_t>(row.k), row.profile, word(row.c), word(row.bias)),
              row.result);
  }
}

// "Products 2^24, 1, 1, -2^24 in this order": profiles 3.
TEST(Accumulate, OrderTellsTheProfilesApart) {
  const Format& f = *find_format("FP32");
  std::vector<Term> a;
  std::vector<Term> b(4, term_of(f, 0x3F800000));
  for (const std::uint32_t w : {0x4B800000U, 0x3F800000U, 0x3F800000U, 0xCB800000U}) a.push_back(term_of(f, w));
  EXPECT_EQ(accumulate(Accumulation::fma, 0, a, b, 16), 0U);
  EXPECT_EQ(accumulate(Accumulation::two_step, 0, a, b, 16), 0U);
  EXPECT_EQ(accumulate(Accumulation::group, 0, a, b, 2), 0x3F800000U);
  EXPECT_EQ(accumulate(Accumulation::group, 0, a, b, 4), 0x40000000U);
  EXPECT_EQ(accumulate(Accumulation::exact, 0, a, b, 16), 0x40000000U);
}

// The scale table of numerics 8.1.
TEST(Accumulate, Hif4Scales) {
  for (const auto& row : bitcube_rows::kHif4Scales) {
    const Term one{.significand = 1};
    const Term t = scale_hif4(one, row.word, static_cast<std::size_t>(row.q));
    if (row.scale.denominator == 0) {
      EXPECT_EQ(t.kind, Term::Kind::nan);
      continue;
    }
    EXPECT_EQ(compare_magnitude(Real{.significand = t.significand, .exponent = t.exponent}, test::real_of(row.scale)),
              0)
        << std::hex << row.word << " q=" << row.q;
  }
}

// RNE32(acc + x) on random operands that are near each other, far apart, subnormal, and cancelling.
TEST(Accumulate, OneStepAgainstTheOracle) {
  test::Operands operands(7);
  for (int i = 0; i < 200000; ++i) {
    const auto acc = static_cast<std::uint32_t>(operands.word(fp32));
    bitcube_oracle::Side a{bitcube_oracle::FP32, {operands.word(fp32)}, {}};
    bitcube_oracle::Side b{bitcube_oracle::FP32, {operands.word(fp32)}, {}};
    if (operands.chance(4)) {  // b near acc / a in size, so that the sum cancels
      const Term ta = term_of(fp32, a.lanes[0]);
      const int exponent = static_cast<int>((acc >> 23) & 0xFF) - static_cast<int>((a.lanes[0] >> 23) & 0xFF) + 127;
      if (ta.kind == Term::Kind::finite && exponent > 0 && exponent < 255) {
        b.lanes[0] = (b.lanes[0] & 0x807FFFFF) | static_cast<uint64>(exponent) << 23;
      }
    }
    const Term ta = term_of(fp32, a.lanes[0]);
    const Term tb = term_of(fp32, b.lanes[0]);
    ASSERT_EQ(add_to_fp32(acc, product(ta, tb)),
              bitcube_oracle::accumulate(bitcube_oracle::Accumulation::fma, a, b, acc, std::nullopt))
        << std::hex << acc << " + " << a.lanes[0] << " * " << b.lanes[0];
  }
}

// Whole elements of every operand pair under every profile, corner words and specials included.
TEST(Accumulate, RandomElementsAgainstTheOracle) {
  test::Operands operands(11);
  std::vector<const Format*> types;
  for (const Format& f : formats) {
    if (f.kind == Kind::scale || f.lane_bits == 64 || (f.is_integer() && f.lane_bits == 32)) continue;
    types.push_back(&f);
  }
  int done = 0;
  for (int i = 0; i < 60000; ++i) {
    const Format& fa = *types[operands.below(types.size())];
    const Format& fb = *types[operands.below(types.size())];
    const auto type_of = [](const Format& f) { return static_cast<int>(f.type); };
    const std::size_t k = operands.chance(8) ? 1 + operands.below(150) : 1 + operands.below(12);
    const bool scaled = operands.chance(2);
    const auto make = [&](const Format& f) {
      bitcube_oracle::Side side{type_of(f), {}, {}};
      const bool specials = operands.chance(8);
      for (std::size_t j = 0; j < k; ++j) side.lanes.push_back(specials ? operands.word(f) : operands.finite_word(f));
      const bool half = f.type == DataType::fp16 || f.type == DataType::bf16;
      if ((scaled && !half) || f.type == DataType::hif4x2) {
        for (std::size_t g = 0; g < (k + scale_group(f) - 1) / scale_group(f); ++g) {
          const uint64 near_one = f.type == DataType::hif4x2
                                      ? (operands.raw() & 0xFFFFFF00) | (0xB8 + operands.below(16))
                                      : 124 + operands.below(7);
          const uint64 wild = operands.raw() & (f.type == DataType::hif4x2 ? 0xFFFFFFFF : 0xFF);
          side.scales.push_back(operands.chance(4) ? wild : near_one);
        }
      }
      return side;
    };
    const bitcube_oracle::Side a = make(fa);
    const bitcube_oracle::Side b = make(fb);
    Line la = line_of(fa, a.lanes, a.scales);
    Line lb = line_of(fb, b.lanes, b.scales);
    const auto kind = product_kind(bind(la, fa, k), bind(lb, fb, k));
    if (!kind) continue;
    ++done;
    const Format& acc = *kind->accumulator;
    const auto c = operands.chance(2) ? std::optional(static_cast<std::uint32_t>(operands.word(acc))) : std::nullopt;
    const auto bias = operands.chance(2) ? std::optional(static_cast<std::uint32_t>(operands.word(acc))) : std::nullopt;
    for (const AccumulationProfile& p : accumulation_profiles) {
      ASSERT_EQ(multiply_lines(la, fa, lb, fb, k, p.name, c, bias),
                bitcube_oracle::accumulate(*bitcube_oracle::accumulation(p.name), a, b, c, bias))
          << p.name << " " << fa.name << " " << fb.name << " k=" << k;
    }
  }
  EXPECT_GT(done, 10000);
}

// The accumulator of numerics 9.5 at compile time.
static_assert(add_to_fp32(0xBF801000, product(term_of(fp32, 0x3F800800), term_of(fp32, 0x3F800800))) == 0x33800000);

}  // namespace
}  // namespace bitcube
