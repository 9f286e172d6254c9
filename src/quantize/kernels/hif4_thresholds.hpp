// What a HiF4 profile decides, as bounds on magnitude words: for a given scale every decision of the quantiser is a
// step function of the magnitude, and the words of a format without sign order as their values do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "bitcube/quantize/hif4.hpp"

namespace bitcube::kernels {

/// Word is int16_t for BF16, int32_t for FP32.
///
/// All bounds are for the E6M2 exponent field 48 and micro-exponents 0. Every other scale is a power of two away, and
/// so are its bounds, because nothing near them leaves the normal range of source or product: a bound lies between 1/16
/// and 8 times a scale of 2^-48 to 49152, and the product there between 1/16 and 8. So the kernels shift the exponent
/// field of x instead.
template <typename Word>
struct Hif4Thresholds {
  static constexpr int fraction_bits = sizeof(Word) == 2 ? 7 : 23;
  static constexpr std::size_t bins = 128;  // by the top 7 fraction bits

  /// One bound, as often as the widest vector has lanes.
  struct alignas(64) Row {
    std::array<Word, 64 / sizeof(Word)> lanes;
  };
  /// Per E6M2 significand (low two bits of the code): x is above the bound from the next word on.
  struct Scale {
    Row micro8;                 // Mb * R >= 4
    Row micro4;                 // Mc * R >= 2
    std::array<Row, 7> levels;  // x * R rounds to at least 1, ..., 7 quarters
  };
  std::array<Scale, 4> scales;

  /// E6M2 code, before the clamp to [0, 254], of a maximum with exponent field 127: it grows by 4 per binade, and
  /// within a bin it is `code`, or one more if the fraction is at least `split`.
  std::array<std::int16_t, bins> code;
  std::array<Word, bins> split;
};

/// The bounds of a profile, made from the reference at first use; nullptr unless it has the rules of one of
/// hif4_profiles.
const Hif4Thresholds<std::int16_t>* hif4_thresholds16(const Hif4Profile& profile);
const Hif4Thresholds<std::int32_t>* hif4_thresholds32(const Hif4Profile& profile);

}  // namespace bitcube::kernels
