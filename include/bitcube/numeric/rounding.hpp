// The seven rounding modes and the one place that decides whether a result moves away from zero (numerics 2).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "bitcube/numeric/text.hpp"

namespace bitcube {

/// Values are the B.DATR.RMode encodings (numerics 2.1). RMode 0 asks for the operation's default and is not a mode.
enum class Rounding : std::uint8_t {
  rne = 1,  // nearest, tie to the even code
  rtz = 2,  // toward zero
  rtm = 3,  // toward minus infinity
  rtp = 4,  // toward plus infinity
  rna = 5,  // nearest, tie away from zero
  rto = 6,  // to the odd code, exact values unchanged
  rhb = 7,  // nearest, tie toward plus infinity
};

struct RoundingInfo {
  Rounding mode;
  std::string_view name;
  std::string_view meaning;
};
inline constexpr std::array<RoundingInfo, 7> roundings{{
    {Rounding::rne, "RNE", "nearest; an exact tie goes to the neighbour whose last code bit is 0"},
    {Rounding::rtz, "RTZ", "toward zero"},
    {Rounding::rtm, "RTM", "toward minus infinity"},
    {Rounding::rtp, "RTP", "toward plus infinity"},
    {Rounding::rna, "RNA", "nearest; an exact tie goes away from zero"},
    {Rounding::rto, "RTO", "exact values unchanged, otherwise the neighbour whose last code bit is 1"},
    {Rounding::rhb, "RHB", "nearest; an exact tie goes to the numerically greater neighbour"},
}};

constexpr std::string_view name_of(Rounding mode) noexcept {
  return roundings[static_cast<std::size_t>(mode) - 1].name;
}

/// The mode of this name in any case, or nullptr.
constexpr const RoundingInfo* find_rounding(std::string_view name) noexcept {
  for (const RoundingInfo& info : roundings) {
    if (equal_ignoring_case(info.name, name)) return &info;
  }
  return nullptr;
}

/// Where an exact magnitude lies between its lower neighbour and the next one.
enum class Remainder : std::uint8_t { exact, below_half, half, above_half };

/// Whether the magnitude moves up to the next neighbour. `lower_is_odd`: last code bit of the lower neighbour.
/// The modes are defined on the signed value: RTM and RTP swap for negative values, and so does the tie of RHB.
constexpr bool rounds_away(Rounding mode, bool negative, bool lower_is_odd, Remainder remainder) noexcept {
  if (remainder == Remainder::exact) return false;
  const bool tie = remainder == Remainder::half;
  const bool above = remainder == Remainder::above_half;
  switch (mode) {
    case Rounding::rne:
      return above || (tie && lower_is_odd);
    case Rounding::rtz:
      return false;
    case Rounding::rtm:
      return negative;
    case Rounding::rtp:
      return !negative;
    case Rounding::rna:
      return above || tie;
    case Rounding::rto:
      return !lower_is_odd;
    case Rounding::rhb:
      return above || (tie && !negative);
  }
  return false;
}

}  // namespace bitcube
