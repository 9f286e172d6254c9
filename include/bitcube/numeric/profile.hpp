// Conversion profiles: the choices of the encoders that the sources leave open (profiles 4).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "bitcube/numeric/text.hpp"

namespace bitcube {

/// Which inexact results below the smallest normal raise UF (numerics 6.2). Delivered bits never differ.
enum class Tininess : std::uint8_t {
  after,   // rounded with unbounded exponent, the magnitude is below min normal (ADR 0085)
  before,  // the exact magnitude is below min normal
  result,  // the delivered magnitude is below min normal
};

struct ConversionProfile {
  std::string_view name;
  Tininess tininess;
  Tininess tininess_reduced;         // the same for E5M2, E3M2, E2M3, TF32 and HF32
  bool fp8_overflow_after_rounding;  // E4M3, HiF8: test the rounded value instead of the exact one
  std::uint8_t e2m1_overflow_code;
  bool e4m3_keeps_negative_zero;  // a negative that underflows to zero: 80 instead of 00
  bool e2m1_half_is_subnormal;    // class of the E2M1 codes 1 and 9
  std::string_view meaning;
};

inline constexpr std::array<ConversionProfile, 3> conversion_profiles{{
    {"pto", Tininess::after, Tininess::after, false, 6, false, true,
     "ADR 0085: tininess after rounding, FP8 overflow tested before rounding"},
    {"asl", Tininess::before, Tininess::result, false, 6, false, false,
     "the executable specification 0.58.3: as pto, with its own underflow flags and E2M1 codes 1, 9 normal"},
    {"ocp", Tininess::after, Tininess::after, true, 7, true, true,
     "OCP OFP8/MX conventions: FP8 overflow after rounding, E2M1 saturates to 6.0, E4M3 keeps -0"},
}};
inline constexpr const ConversionProfile& pto_profile = conversion_profiles[0];

/// The profile of this name in any case, or nullptr.
constexpr const ConversionProfile* find_conversion_profile(std::string_view name) noexcept {
  for (const ConversionProfile& profile : conversion_profiles) {
    if (equal_ignoring_case(profile.name, name)) return &profile;
  }
  return nullptr;
}

}  // namespace bitcube
