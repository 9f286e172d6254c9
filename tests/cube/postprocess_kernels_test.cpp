// The SIMD kernels of the post-process against postprocess_element() and reduce_step(), bit for bit and flag for flag,
// on every target of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "bitcube/cube/postprocess_matrix.hpp"
#include "support/operands.hpp"
#include "support/targets.hpp"

namespace bitcube {
namespace {

/// A choice that no profile has: E4M3 and HiF8 overflow after rounding, UF as the delivered magnitude says.
constexpr ConversionProfile crossed{"crossed", Tininess::result, Tininess::before, true, 6, false, true, ""};

/// The last one is 31 * 2^-19: (2^25 - 1) / 31 has 21 bits, so a product can lie in the middle below a power of two in
/// FP32.
constexpr std::array<uint64, 11> corner_scales{0x1FC00, 0x1F800, 0x20000, 0x1F555, 0x00400, 0x3FBFF,
                                               0x1FFFF, 0x1FC01, 0x007FF, 0x1E800, 0x1C3C0};

uint64 random_scale(test::Operands& operands) {
  switch (operands.below(3)) {
    case 0:
      return corner_scales[operands.below(corner_scales.size())];
    case 1:  // near 1, few bits
      return (112 + operands.below(32)) << 10 | operands.below(4) << 8;
    default:
      return 0x400 + operands.below(0x3FBFF - 0x400 + 1);
  }
}

uint64 random_carrier(const PreQuantMode& mode, test::Operands& operands) {
  if (mode.carrier == CarrierKind::none) return 0;
  if (mode.carrier == CarrierKind::shift) return pack_shift_carrier(1 + static_cast<int>(operands.below(16)));
  const int64 offset = operands.chance(4) ? 0 : static_cast<int64>(operands.raw());
  return pack_scale_carrier(random_scale(operands), offset, mode.offset_bits);
}

double value_of(const Real& x) {
  const double magnitude = std::ldexp(static_cast<double>(static_cast<uint64>(x.significand)), x.exponent);
  return x.negative ? -magnitude : magnitude;
}

/// An accumulator whose product with the scale is likely to lie at a limit, a code or a middle of the destination.
std::uint32_t directed_word(const Format& accumulator, const PreQuantMode& mode, uint64 scale,
                            test::Operands& operands) {
  const Format& to = destination_format(mode, accumulator);
  double y = 0;
  if (to.is_integer()) {
    const double limit = std::ldexp(1.0, mode.offset_bits == 0 ? to.lane_bits - 1 : mode.offset_bits - 1);
    const double near[] = {limit, limit / 2, -limit, -limit / 2, 0, 1, -1};
    y = near[operands.below(7)] + (static_cast<double>(operands.below(9)) - 4) / 2;
  } else {
    const uint64 top = low_mask(to.value_bits - 1);
    uint64 code = operands.raw() & top;
    if (operands.chance(2)) code = operands.chance(2) ? to.max_finite - operands.below(4) : operands.below(12);
    const Value here = decode(to, code);
    if (!here.is_finite()) return 0;
    const int e = here.real.is_zero() ? to.min_exponent() : floor_log2(here.real);
    y = value_of(here.real) + std::ldexp(static_cast<double>(operands.below(4)), detail::quantum_exponent(to, e) - 1);
    if (operands.chance(6)) {  // just below the limit of tininess: where rounding reaches it, and where not
      y = std::ldexp(1 - std::ldexp(static_cast<double>(operands.below(8)), -to.underflow_precision - 2),
                     to.underflow_exponent);
    }
    if (operands.chance(2)) y = -y;
  }
  const double x = y / value_of(decode(fp19, scale).real);
  const auto nudge = static_cast<std::uint32_t>(operands.below(5)) - 2;
  if (accumulator.is_integer()) {
    if (std::fabs(x) > 2147483647.0) return static_cast<std::uint32_t>(operands.raw());
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(std::nearbyint(x))) + nudge;
  }
  const auto narrowed = static_cast<float>(x);
  std::uint32_t word = 0;
  std::memcpy(&word, &narrowed, sizeof word);
  return word + nudge;
}

struct Element {
  std::uint32_t word;
  uint64 carrier;
  uint64 alpha;
};

std::uint32_t random_word(const Format& accumulator, const PreQuantMode& mode, const Element& e,
                          test::Operands& operands) {
  if (mode.carrier != CarrierKind::shift && operands.chance(2)) {
    const uint64 scale = mode.carrier == CarrierKind::none ? 0x1FC00 : (e.carrier >> 13) & low_mask(19);
    return directed_word(accumulator, mode, scale, operands);
  }
  if (accumulator.is_integer()) {
    constexpr std::uint32_t corners[] = {0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x80000001, 0x40000000, 0xC0000000};
    if (operands.chance(4)) return corners[operands.below(8)];
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(operands.raw()) >> operands.below(32));
  }
  constexpr std::uint32_t corners[] = {0x00000000, 0x7F800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x00000001,
                                       0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x3F800000, 0x00400000, 0x7FFFFFFF};
  if (operands.chance(6)) {
    return corners[operands.below(12)] | static_cast<std::uint32_t>(operands.raw() & 0x80000000U);
  }
  return static_cast<std::uint32_t>(operands.word(accumulator));
}

struct Case {
  const PreQuantMode& mode;
  const Format& accumulator;
  Relu relu;
  Rounding rounding;
  bool saturate;
  const ConversionProfile& profile;

  std::string text() const {
    return std::string(mode.name) + " of " + std::string(accumulator.name) + ", relu " +
           std::to_string(static_cast<int>(relu)) + ", " + std::string(name_of(rounding)) +
           (saturate ? ", Sat, " : ", ") + std::string(profile.name);
  }
  bool scalar() const { return !mode.per_column && relu != Relu::per_column; }
};

/// One row of these elements through the kernel.
Postprocessed run(const Case& c, const std::vector<Element>& elements, const std::vector<std::size_t>& chosen) {
  Accumulators accumulators{&c.accumulator, 1, chosen.size(), {}};
  std::vector<uint64> carriers;
  std::vector<uint64> alphas;
  for (const std::size_t i : chosen) {
    accumulators.words.push_back(elements[i].word);
    if (c.mode.carrier != CarrierKind::none && (c.mode.per_column || carriers.empty())) {
      carriers.push_back(elements[i].carrier);
    }
    if (c.relu == Relu::per_column || (c.relu == Relu::scalar && alphas.empty())) alphas.push_back(elements[i].alpha);
  }
  PostprocessOptions options;
  options.mode = &c.mode;
  options.quant_carriers = carriers;
  options.relu = c.relu;
  options.activation_carriers = alphas;
  if (c.mode.rounding_rule == RoundingRule::programmable) options.rounding = c.rounding;
  options.saturate = c.saturate;
  options.profile = &c.profile;
  options.execution.threads = 1;
  auto result = postprocess(accumulators, options);
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  return std::move(*result);
}

/// Bits of every element; the flags of all elements that raise the same, so that none raises more; the flags of single
/// elements, so that none raises less.
void check(const Case& c, const std::vector<Element>& elements, std::size_t singles) {
  const Format& to = destination_format(c.mode, c.accumulator);
  std::vector<std::size_t> all(elements.size());
  std::vector<Encoded> expected(elements.size());
  std::vector<std::vector<std::size_t>> alike(32);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const Element& e = elements[i];
    ElementPostprocess p;
    p.mode = &c.mode;
    p.relu = c.relu;
    if (c.mode.carrier != CarrierKind::none) p.quant = unpack_quant_carrier(e.carrier, c.mode.offset_bits);
    p.alpha = e.alpha;
    p.rounding = c.rounding;
    p.saturate = c.saturate;
    p.profile = &c.profile;
    all[i] = i;
    expected[i] = postprocess_element(p, c.accumulator, e.word);
    alike[static_cast<std::size_t>(expected[i].flags)].push_back(i);
  }
  test::for_each_target([&](const std::string& target) {
    SCOPED_TRACE(target + ", " + c.text());
    const Postprocessed d = run(c, elements, all);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      uint64 got = 0;
      std::memcpy(&got, d.d.data() + i * d.element_bytes, d.element_bytes);
      ASSERT_EQ(got, expected[i].bits & low_mask(to.carrier_bits))
          << std::hex << elements[i].word << " " << elements[i].carrier << " " << elements[i].alpha;
    }
    for (std::size_t f = 0; f < alike.size(); ++f) {
      if (alike[f].empty()) continue;
      ASSERT_EQ(static_cast<std::size_t>(run(c, elements, alike[f]).flags), f);
      for (std::size_t k = 0; k < singles; ++k) {
        const Element& e = elements[alike[f][k * 7919 % alike[f].size()]];
        ASSERT_EQ(static_cast<std::size_t>(run(c, {e}, {0}).flags), f)
            << std::hex << e.word << " " << e.carrier << " " << e.alpha;
      }
    }
  });
}

std::vector<const Format*> accumulators_of(const PreQuantMode& mode) {
  if (mode.accumulator != DataType::none) return {&format_of(mode.accumulator)};
  return {&format_of(DataType::fp32), &format_of(DataType::s32), &format_of(DataType::u32)};
}

template <typename Body>
void for_each_case(const Body& body) {
  std::vector<const ConversionProfile*> profiles{&crossed};
  for (const ConversionProfile& profile : conversion_profiles) profiles.push_back(&profile);
  for (const PreQuantMode& mode : prequant_modes) {
    for (const Format* accumulator : accumulators_of(mode)) {
      for (int relu = 0; relu < (mode.carrier == CarrierKind::shift ? 1 : 4); ++relu) {
        for (const RoundingInfo& r : roundings) {
          if (mode.rounding_rule == RoundingRule::fixed && r.mode != mode.rounding) continue;
          for (const bool saturate : {false, true}) {
            if (saturate && !mode.saturation_allowed) continue;
            for (const ConversionProfile* profile : profiles) {
              // Integers know no profile.
              if (destination_format(mode, *accumulator).is_integer() && profile != &pto_profile) continue;
              body(Case{mode, *accumulator, static_cast<Relu>(relu), r.mode, saturate, *profile});
            }
          }
        }
      }
    }
  }
}

TEST(PostprocessKernels, EveryModeEveryControl) {
  test::Operands operands(5);
  for_each_case([&](const Case& c) {
    if (testing::Test::HasFatalFailure()) return;
    for (int draw = 0; draw < (c.scalar() ? 8 : 2); ++draw) {
      std::vector<Element> elements(c.scalar() ? 400 : 1500);
      for (Element& e : elements) {
        const bool same_carrier = !c.mode.per_column && &e != elements.data();
        const bool same_alpha = c.relu == Relu::scalar && &e != elements.data();
        e.carrier = same_carrier ? elements[0].carrier : random_carrier(c.mode, operands);
        e.alpha = same_alpha ? elements[0].alpha : operands.chance(5) ? 0 : random_scale(operands);
        e.word = random_word(c.accumulator, c.mode, e, operands);
      }
      check(c, elements, 6);
    }
  });
}

/// The whole result of a matrix, with the kernels and without.
void expect_same(const Accumulators& accumulators, PostprocessOptions options, const std::string& what) {
  options.execution = {.threads = 1, .reference = true};
  const auto expected = postprocess(accumulators, options);
  ASSERT_TRUE(expected) << expected.error().message;
  test::for_each_target([&](const std::string& target) {
    SCOPED_TRACE(target + ", " + what + ", " + std::to_string(accumulators.rows) + " x " +
                 std::to_string(accumulators.cols));
    for (unsigned threads = 1; threads <= 3; threads += 2) {
      options.execution = {.threads = threads};
      const auto got = postprocess(accumulators, options);
      ASSERT_TRUE(got);
      ASSERT_EQ(got->d, expected->d);
      ASSERT_EQ(got->row_max, expected->row_max);
      ASSERT_EQ(got->group_max, expected->group_max);
      ASSERT_EQ(static_cast<int>(got->flags), static_cast<int>(expected->flags));
    }
  });
}

TEST(PostprocessKernels, Shapes) {
  test::Operands operands(6);
  for (const char* name : {"NoQuant", "F322F16", "QF322HIF8_PRE", "VQF322B8_PRE", "REQ8", "VREQ4", "VDEQS16",
                           "VQF322F32_PRE", "VSHIFTS322S16", "VQS322BF16_PRE"}) {
    const PreQuantMode& mode = *find_prequant(name);
    const Format& accumulator = *accumulators_of(mode)[0];
    for (std::size_t cols = 1; cols <= 70; ++cols) {
      const std::size_t rows = 1 + operands.below(cols < 6 ? 70 : 4);
      std::vector<Element> columns(cols);
      for (Element& e : columns) e = {0, random_carrier(mode, operands), random_scale(operands)};
      if (!mode.per_column) {
        for (Element& e : columns) e.carrier = columns[0].carrier;
      }
      Accumulators accumulators{&accumulator, rows, cols, {}};
      for (std::size_t i = 0; i < rows * cols; ++i) {
        accumulators.words.push_back(random_word(accumulator, mode, columns[i % cols], operands));
      }
      std::vector<uint64> carriers;
      std::vector<uint64> alphas;
      for (const Element& e : columns) {
        if (mode.carrier != CarrierKind::none && (mode.per_column || carriers.empty())) carriers.push_back(e.carrier);
        alphas.push_back(e.alpha);
      }
      PostprocessOptions options;
      options.mode = &mode;
      options.quant_carriers = carriers;
      if (mode.carrier != CarrierKind::shift && operands.chance(2)) {
        options.relu = Relu::per_column;
        options.activation_carriers = alphas;
      }
      options.row_max = true;
      options.group_n = group_n_values[operands.below(group_n_values.size())];
      expect_same(accumulators, options, name);
      if (HasFatalFailure()) return;
    }
  }
}

// A special accumulator in every place of a row of harmless ones.
TEST(PostprocessKernels, EveryLane) {
  const std::vector<uint64> scale{0x3F800000};
  for (const char* name : {"QF322F16_PRE", "QF322B8_PRE", "QF322FP8_PRE", "REQ8", "SHIFTS322S16"}) {
    const PreQuantMode& mode = *find_prequant(name);
    const bool floating = mode.accumulator == DataType::fp32;
    const std::vector<uint64> shift{0};
    for (const std::size_t cols : {std::size_t{7}, std::size_t{16}, std::size_t{37}}) {
      for (std::size_t at = 0; at < cols; ++at) {
        for (const std::uint32_t word :
             {0x7F800001U, 0x7FC00000U, 0xFF800000U, 0x7F7FFFFFU, 0x00000001U, 0x3F801001U}) {
          Accumulators accumulators{&format_of(mode.accumulator), 1, cols, {}};
          accumulators.words.assign(cols, floating ? 0x3F800000U : 2U);
          accumulators.words[at] = word;
          PostprocessOptions options;
          options.mode = &mode;
          options.quant_carriers = mode.carrier == CarrierKind::shift ? shift : scale;
          expect_same(accumulators, options, name);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(PostprocessKernels, Reductions) {
  test::Operands operands(8);
  constexpr std::array<std::uint32_t, 16> special{
      0x00000000, 0x80000000, 0x7FC00000, 0xFFC01234, 0x7F800001, 0xFFBFFFFF, 0x7F800000, 0xFF800000,
      0x00000001, 0x80000001, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000, 0xBF800000, 0x7FFFFFFF, 0xFFFFFFFF};
  for (const DataType type : {DataType::fp32, DataType::s32, DataType::u32}) {
    for (std::size_t cols = 1; cols <= 150; ++cols) {
      for (int draw = 0; draw < 12; ++draw) {
        const std::size_t rows = 3;
        Accumulators accumulators{&format_of(type), rows, cols, {}};
        for (std::size_t r = 0; r < rows; ++r) {
          // Rows of few kinds of words, so that rows of nothing but NaN or zeros occur, and of one odd word.
          std::vector<std::uint32_t> kinds(1 + operands.below(3));
          for (std::uint32_t& word : kinds) {
            word = operands.chance(3) ? static_cast<std::uint32_t>(operands.raw()) : special[operands.below(16)];
          }
          for (std::size_t c = 0; c < cols; ++c) accumulators.words.push_back(kinds[operands.below(kinds.size())]);
          if (operands.chance(2)) accumulators.words[r * cols + operands.below(cols)] = special[operands.below(16)];
        }
        const std::vector<std::uint32_t> init{special[operands.below(16)], special[operands.below(16)],
                                              static_cast<std::uint32_t>(operands.raw())};
        PostprocessOptions options;
        options.row_max = true;
        options.max_abs = operands.chance(2);
        if (operands.chance(2)) options.row_max_init = init;
        options.group_n = operands.chance(4) ? 0 : group_n_values[operands.below(group_n_values.size())];
        expect_same(accumulators, options, std::string(accumulators.format->name));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Into memory of the caller, of any alignment, and nothing around it.
TEST(PostprocessKernels, IntoMemoryOfTheCaller) {
  test::Operands operands(9);
  const std::vector<uint64> scale{0x3F000000};
  PostprocessOptions options;
  options.mode = find_prequant("QF322F16_PRE");
  options.quant_carriers = scale;
  options.group_n = 8;
  Accumulators accumulators{&fp32, 3, 21, {}};
  for (int i = 0; i < 63; ++i) accumulators.words.push_back(static_cast<std::uint32_t>(operands.word(fp32)));
  const auto expected = postprocess(accumulators, options);
  ASSERT_TRUE(expected);
  for (std::size_t offset = 0; offset < 4; ++offset) {
    std::vector<std::uint8_t> d(offset + 126 + 64, 0xA5);
    std::vector<std::uint32_t> groups(9);
    const auto flags =
        postprocess_into(fp32, accumulators.words, 3, 21, options, {std::span(d).subspan(offset, 126), {}, groups});
    ASSERT_TRUE(flags);
    EXPECT_EQ(*flags, expected->flags);
    EXPECT_EQ(groups, expected->group_max);
    EXPECT_TRUE(std::equal(expected->d.begin(), expected->d.end(), d.begin() + static_cast<std::ptrdiff_t>(offset)));
    EXPECT_EQ(std::count(d.begin(), d.begin() + static_cast<std::ptrdiff_t>(offset), 0xA5),
              static_cast<std::ptrdiff_t>(offset));
    EXPECT_EQ(std::count(d.begin() + static_cast<std::ptrdiff_t>(offset) + 126, d.end(), 0xA5), 64);
  }
  std::vector<std::uint8_t> d(126);
  std::vector<std::uint32_t> groups(9);
  EXPECT_FALSE(postprocess_into(fp32, accumulators.words, 3, 21, options, {d, {}, {}}));
  EXPECT_FALSE(postprocess_into(fp32, accumulators.words, 3, 21, options, {std::span(d).first(125), {}, groups}));
  EXPECT_FALSE(postprocess_into(fp32, accumulators.words, 3, 20, options, {d, {}, groups}));
}

}  // namespace
}  // namespace bitcube
