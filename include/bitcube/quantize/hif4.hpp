// HiF4: 64 lanes of quarters under one three-level scale word, quantised and dequantised bit for bit (numerics 8.1,
// 10.3; profiles 1). This is the reference: integer arithmetic only, and the steps carry the contract's numbers.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "bitcube/numeric/convert.hpp"
#include "bitcube/numeric/decode.hpp"
#include "bitcube/numeric/encode.hpp"
#include "bitcube/numeric/text.hpp"

namespace bitcube {

inline constexpr std::size_t hif4_group_lanes = 64;

/// What the sources leave open in the quantiser (profiles 1). Everything else is common to all profiles.
struct Hif4Profile {
  std::string_view name;
  bool one_seventh;         // step 2: sf = BF16(Ma * 1/7); otherwise sf is Ma itself
  Rounding scale_rounding;  // step 3: of sf to E6M2
  bool bf16_products;       // steps 5, 6, 8: products are rounded to BF16 (RNE); otherwise they are exact
  Rounding lane_rounding;   // step 8: of the product to quarters
  std::string_view meaning;
};

/// The default comes first. In step 3 the half-up rounding of `bench` is RNA: sf is positive.
inline constexpr std::array<Hif4Profile, 5> hif4_profiles{{
    {"pto", true, Rounding::rne, true, Rounding::rna,
     "the TQUANT HiFloat4 note, with the 1/7 step of Algorithm 1: products in BF16, lanes half away from zero"},
    {"pto-a6", true, Rounding::rne, true, Rounding::rne,
     "the a6 kernel and its golden, defects removed: as pto, lanes half to even"},
    {"paper", true, Rounding::rne, false, Rounding::rna,
     "the authors' reference: exact products, lanes half away from zero"},
    {"bench", true, Rounding::rna, true, Rounding::rne,
     "the kernel benchmark suite's golden: E6M2 half up, products in BF16, lanes half to even"},
    {"literal", false, Rounding::rne, true, Rounding::rna,
     "the note read literally, without 1/7: micro-exponents stay 0 unless the scale clamps; for study only"},
}};

/// The profile of this name in any case, or nullptr.
constexpr const Hif4Profile* find_hif4_profile(std::string_view name) noexcept {
  for (const Hif4Profile& profile : hif4_profiles) {
    if (equal_ignoring_case(profile.name, name)) return &profile;
  }
  return nullptr;
}

/// Step 1: the largest magnitudes of a group, as words of the source format without sign. Magnitude words order as
/// their values do, infinity above the finite ones and NaN above infinity.
struct Hif4Maxima {
  std::array<std::uint32_t, 16> per4{};  // Mc
  std::array<std::uint32_t, 8> per8{};   // Mb
  std::uint32_t per64 = 0;               // Ma

  constexpr Hif4Maxima() = default;
  /// `lanes` as in quantize_hif4_group().
  constexpr Hif4Maxima(const Format& source, std::span<const std::uint32_t> lanes) noexcept {
    const auto magnitude_mask = static_cast<std::uint32_t>(low_mask(source.sign_bit()));
    for (std::size_t q = 0; q < lanes.size(); ++q) per4[q / 4] = std::max(per4[q / 4], lanes[q] & magnitude_mask);
    for (std::size_t h = 0; h < 16; ++h) per8[h / 2] = std::max(per8[h / 2], per4[h]);
    for (const std::uint32_t maximum : per8) per64 = std::max(per64, maximum);
  }
};

/// One quantised group with every intermediate value. Unless it says otherwise, a word is BF16.
struct Hif4Group {
  std::uint32_t scale_word = 0;                 // e6m2 | micro8 << 8 | micro4 << 16 (numerics 8.1)
  std::array<std::uint8_t, 64> codes{};         // HiF4 lanes; 0 for lanes that are missing
  Hif4Maxima maxima{};                          // Mc, Mb, Ma
  std::uint32_t scale_factor = 0;               // sf before the clamp; a word of the source format if sf is Ma itself
  std::uint8_t e6m2 = 0;                        // Ea
  std::uint8_t micro8 = 0;                      // Eb: bit g doubles the 8 lanes from 8g
  std::uint16_t micro4 = 0;                     // Ec: bit h doubles the 4 lanes from 4h
  std::uint16_t reciprocal = 0;                 // Ea_rec = R
  std::array<std::uint16_t, 16> reciprocal4{};  // R * 2^(-Eb - Ec) per 4 lanes: what lanes are multiplied by

  constexpr bool is_nan() const noexcept { return e6m2 == 0xFF; }
};

/// Whether a group can be quantised from this format as it is; others are converted to BF16 first (profiles 1).
constexpr bool is_hif4_source(const Format& f) noexcept {
  return f.type == DataType::bf16 || f.type == DataType::fp32;
}

/// A product of steps 5, 6 and 8 as the profile rounds it. Precondition: a and b are finite and not negative.
constexpr Real hif4_product(const Hif4Profile& profile, const Real& a, const Real& b) noexcept {
  const Real exact = multiply(a, b);
  if (!profile.bf16_products) return exact;
  return decode(bf16, encode(bf16, exact, {.rounding = Rounding::rne}).bits).real;
}

/// E1_8 + E1_16 of lane q (0..63): its scale is E6M2 * 2^this (numerics 8.1).
constexpr int hif4_micro_exponent(std::uint32_t scale_word, std::size_t q) noexcept {
  return static_cast<int>(((scale_word >> (8 + q / 8)) & 1) + ((scale_word >> (16 + q / 4)) & 1));
}

namespace detail {

inline constexpr Real one_seventh = decode(bf16, 0x3E12).real;  // BF16(1/7) = 0.142578125
inline constexpr const Format& rcpe6m2 = format_of(DataType::rcpe6m2);

/// Whether Mb * R or Mc * R is at least 2^power. `maximum` is not NaN.
constexpr bool hif4_reaches(const Hif4Profile& profile, const Value& maximum, const Real& reciprocal,
                            int power) noexcept {
  if (maximum.is_infinite()) return true;
  const Real product = hif4_product(profile, maximum.real, reciprocal);
  return !product.is_zero() && floor_log2(product) >= power;
}

}  // namespace detail

/// BF16 words of R * 2^(-Eb - Ec) per 4 lanes, by which the lanes of a group with this scale word are multiplied (steps
/// 4 and 7). Exact but for R itself: R is far above the subnormals of BF16.
constexpr std::array<std::uint16_t, 16> hif4_reciprocal4(std::uint32_t scale_word) noexcept {
  const Encoded reciprocal = convert(detail::rcpe6m2, bf16, scale_word, {.rounding = Rounding::rne});
  std::array<std::uint16_t, 16> words;
  words.fill(static_cast<std::uint16_t>(reciprocal.bits));
  const Value value = decode(bf16, reciprocal.bits);
  if (value.is_nan()) return words;
  for (std::size_t h = 0; h < 16; ++h) {
    const Real scale = scale_by_power_of_two(value.real, -hif4_micro_exponent(scale_word, 4 * h));
    words[h] = static_cast<std::uint16_t>(encode(bf16, scale, {}).bits);
  }
  return words;
}

/// Quantises one group (numerics 10.3, profiles 1). `source` is BF16 or FP32, `lanes` are 1 to 64 of its words, lane 0
/// first; in a short group the missing lanes count as +0. No flags: the operation has none.
constexpr Hif4Group quantize_hif4_group(const Format& source, std::span<const std::uint32_t> lanes,
                                        const Hif4Profile& profile = hif4_profiles[0]) noexcept {
  Hif4Group out;
  out.maxima = Hif4Maxima(source, lanes);  // step 1

  // Steps 2 to 4. Saturation clamps sf to the range of E6M2, so code FF appears only for NaN.
  Value sf = decode(source, out.maxima.per64);
  out.scale_factor = out.maxima.per64;
  if (profile.one_seventh) {
    const Real product = multiply(sf.real, detail::one_seventh);
    out.scale_factor = static_cast<std::uint32_t>(convert_value(bf16, sf.cls, product, {}).bits);
    sf = decode(bf16, out.scale_factor);
  }
  const EncodeControl to_scale{.rounding = profile.scale_rounding, .saturate = true};
  out.e6m2 = static_cast<std::uint8_t>(convert_value(e6m2, sf.cls, sf.real, to_scale).bits);
  out.reciprocal = static_cast<std::uint16_t>(convert(detail::rcpe6m2, bf16, out.e6m2, {}).bits);
  out.scale_word = out.e6m2;
  if (out.is_nan()) {  // the group decodes to NaN whatever else it says: all the rest is 0
    out.reciprocal4.fill(out.reciprocal);
    return out;
  }
  const Real reciprocal = decode(bf16, out.reciprocal).real;

  // Step 5: Mb * R >= 4.
  for (std::size_t g = 0; g < 8; ++g) {
    const bool up = detail::hif4_reaches(profile, decode(source, out.maxima.per8[g]), reciprocal, 2);
    out.micro8 = static_cast<std::uint8_t>(out.micro8 | (up ? 1U : 0U) << g);
  }
  // Step 6: Mc * R * 2^-Eb >= 2, that is Mc * R >= 2^(1 + Eb).
  for (std::size_t h = 0; h < 16; ++h) {
    const int eb = (out.micro8 >> (h / 2)) & 1;
    const bool up = detail::hif4_reaches(profile, decode(source, out.maxima.per4[h]), reciprocal, 1 + eb);
    out.micro4 = static_cast<std::uint16_t>(out.micro4 | (up ? 1U : 0U) << h);
  }
  out.scale_word |= static_cast<std::uint32_t>(out.micro8) << 8 | static_cast<std::uint32_t>(out.micro4) << 16;
  out.reciprocal4 = hif4_reciprocal4(out.scale_word);  // step 7

  // Step 8, on magnitudes: rounding is symmetric, and the sign is always that of x. The encoder clamps at 7/4.
  const auto magnitude_mask = static_cast<std::uint32_t>(low_mask(source.sign_bit()));
  for (std::size_t q = 0; q < lanes.size(); ++q) {
    const Value x = decode(source, lanes[q] & magnitude_mask);
    uint64 magnitude = hif4.max_finite;
    if (!x.is_infinite()) {
      const Real scale = scale_by_power_of_two(reciprocal, -hif4_micro_exponent(out.scale_word, q));
      const Real product = hif4_product(profile, x.real, scale);
      magnitude = encode(hif4, product, {.rounding = profile.lane_rounding}).bits;
    }
    out.codes[q] = static_cast<std::uint8_t>(with_sign(hif4, magnitude, is_negative(source, lanes[q])));
  }
  return out;
}

/// The scale of lane q (0..63) under a scale word: E6M2 * 2^(E1_8 + E1_16), NaN for E6M2 FF (numerics 8.1).
constexpr Value hif4_scale(std::uint32_t scale_word, std::size_t q) noexcept {
  Value scale = decode(e6m2, scale_word);
  if (scale.is_finite()) scale.real = scale_by_power_of_two(scale.real, hif4_micro_exponent(scale_word, q));
  return scale;
}

/// The exact value of lane q of a group: code (low 4 bits) times scale; zero keeps its sign, E6M2 FF gives a quiet NaN.
constexpr Value dequantize_hif4_lane(std::uint32_t scale_word, std::size_t q, unsigned code) noexcept {
  const Value scale = hif4_scale(scale_word, q);
  if (scale.is_nan()) return scale;
  const Value lane = decode(hif4, code);
  return {lane.cls, multiply(lane.real, scale.real)};
}

}  // namespace bitcube
