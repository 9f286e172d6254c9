// Affine quantisation and block quantisers (numerics 10, profiles 1 and 2).
#include <fmt/format.h>

#include <algorithm>

#include "bitcube/quantize/affine.hpp"
#include "bitcube/quantize/hif4.hpp"
#include "bitcube/quantize/mx.hpp"
#include "clauses.hpp"
#include "forms.hpp"

namespace bitcube::verify {
namespace {

/// S8 or U8, and legal parameters for it, or a fault.
AffineParameters affine_parameters(Record& r, const Format& integer, std::size_t type, std::size_t scale,
                                   std::size_t zero_point) {
  const AffineParameters p{r.word(scale) & low_mask(32), r.word(zero_point)};
  if (r.malformed()) return p;
  if (integer.type != DataType::s8 && integer.type != DataType::u8) {
    r.fault(type, "S8 or U8");
  } else if (const auto wrong = affine_fault(integer, {p.multiplier, 0}); !wrong.empty()) {
    r.fault(scale, fmt::format("a legal multiplier: {} (numerics 10.1)", wrong));
  } else if (const auto also = affine_fault(integer, p); !also.empty()) {
    r.fault(zero_point, fmt::format("a legal zero point: {} (numerics 10.1)", also));
  }
  return p;
}

/// Where two strings of codes differ first.
std::size_t first_difference(std::string_view a, std::string_view b) noexcept {
  const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(at.first - a.begin());
}

}  // namespace

void check_tquant(Record& r) {
  const Format& f = r.format(0);
  const Rounding rounding = r.rounding(1);
  const bool saturate = r.truth(2);
  const uint64 x = r.word(3);
  const AffineParameters p = affine_parameters(r, f, 0, 4, 5);
  if (r.malformed()) return;
  r.expect_encoded(6, 7, f, [&](const ConversionProfile&) { return affine_quantize(f, x, p, rounding, saturate); });
  if (!r.differs()) return;
  const Value v = decode(fp32, x);
  r.decided_by(v.is_nan()        ? "numerics 10.1: NaN"
               : v.is_infinite() ? "numerics 10.1: infinity"
                                 : "numerics 10.1: finite, one rounding of x * multiplier + zero point");
}

void check_tdequant(Record& r) {
  const Format& f = r.format(0);
  const Rounding rounding = r.rounding(1);
  const uint64 q = r.word(2);
  const AffineParameters p = affine_parameters(r, f, 0, 3, 4);
  if (r.malformed()) return;
  r.expect_encoded(5, 6, fp32,
                   [&](const ConversionProfile& profile) { return affine_dequantize(f, q, p, rounding, profile); });
  if (r.differs()) r.decided_by("numerics 10.2: (q - zero point) * multiplier, one FP32 encode (numerics 6.1)");
}

void check_hif4_group(Record& r) {
  const Hif4Profile& profile = r.named(0, hif4_profiles, find_hif4_profile);
  std::vector<uint64> words;
  r.digits(1, 4, words);
  if (!r.malformed() && words.size() > hif4_group_lanes) r.fault(1, "at most 64 words of BF16");
  if (r.malformed()) return;
  std::array<std::uint32_t, hif4_group_lanes> lanes{};
  std::transform(words.begin(), words.end(), lanes.begin(), [](uint64 w) { return static_cast<std::uint32_t>(w); });
  const Hif4Group g = quantize_hif4_group(bf16, {lanes.data(), words.size()}, profile);
  std::string codes;
  for (const std::uint8_t code : g.codes) append_digits(codes, code, 1);
  r.expect_short_word(2, g.scale_word, 8);
  r.expect_digits(3, codes);
  if (!r.differs()) return;
  if (r.differs(2)) {
    const uint64 changed = r.word(2) ^ g.scale_word;
    const char* step = (changed & 0xFF) != 0     ? "steps 2 and 3: E6M2 of the group's maximum"
                       : (changed & 0xFF00) != 0 ? "step 5: micro-exponents of 8 lanes"
                                                 : "step 6: micro-exponents of 4 lanes";
    r.decided_by(fmt::format("numerics 10.3 {}, profile {}", step, profile.name));
    return;
  }
  const std::size_t q = first_difference(r.text(3), codes);
  r.decided_by(fmt::format("numerics 10.3 step 8: lane {}, x = {:04X}, scale {:04X}, {}, profile {}", q, lanes[q],
                           g.reciprocal4[q / 4], name_of(profile.lane_rounding), profile.name));
}

void check_mx_group(Record& r) {
  const Format& element = r.format(0);
  const bool nvfp4 = r.text(1) == "nvfp4";
  const ScaleRule& rule = nvfp4 ? scale_rules[0] : r.named(1, scale_rules, find_scale_rule);
  const bool wide = equal_ignoring_case(r.text(2), "fp32");
  if (!wide && !equal_ignoring_case(r.text(2), "bf16")) r.fault(2, "bf16 or fp32");
  if (!r.malformed() && !(nvfp4 ? element.type == DataType::e2m1x2 : is_mx_element(element))) {
    r.fault(0, nvfp4 ? "E2M1X2, the element of NVFP4" : "an element type of profiles 2");
  }
  const Format& source = wide ? fp32 : bf16;
  std::vector<uint64> words;
  r.digits(3, source.carrier_bits / 4U, words);
  const std::size_t most = nvfp4 ? nvfp4_group_lanes : mx_group_lanes;
  if (!r.malformed() && words.size() > most) r.fault(3, fmt::format("at most {} lanes", most));
  if (r.malformed()) return;
  const MxGroup g =
      nvfp4 ? quantize_nvfp4_group(source, words) : quantize_mx_group(element, source, words, rule.rounding);
  const std::size_t digits = element.is_packed() ? 1 : 2;
  std::string codes;
  for (std::size_t i = 0; i < words.size(); ++i) append_digits(codes, g.codes[i], digits);
  r.expect_short_word(4, g.scale, 2);
  r.expect_digits(5, codes);
  if (!r.differs()) return;
  if (r.differs(4)) {
    r.decided_by(nvfp4 ? "profiles 2: NVFP4, E4M3 scale = RNE(amax / 6)"
                       : fmt::format("profiles 2: scale rule {}", rule.name));
    return;
  }
  const std::size_t lane = first_difference(r.text(5), codes) / digits;
  r.decided_by(fmt::format("profiles 2: element of lane {}, x / scale rounded once (RNE)", lane));
}

}  // namespace bitcube::verify
