// FP19 parameters and the U64 words that carry them to the post-process (numerics 4).
#pragma once

#include "bitcube/numeric/encode.hpp"

namespace bitcube {

/// FP19: sign, 8 exponent bits with bias 127, 10 fraction bits; a parameter carrier, not a Tile DataType.
inline constexpr Format fp19 = detail::ieee_like("FP19", DataType::none, 19, 8, 10);

/// The software narrowing helper: RNE on the low 13 bits with carry into the exponent; NaN gives 3FF00 (numerics 4.1).
constexpr uint64 fp32_to_fp19(uint64 word) noexcept {
  const uint64 low = word & 0xFFFFFFFF;
  if ((low & 0x7FFFFFFF) > 0x7F800000) return 0x3FF00;
  const uint64 kept = low >> 13;
  const uint64 rest = low & 0x1FFF;
  return kept + (rest > 0x1000 || (rest == 0x1000 && (kept & 1) != 0) ? 1 : 0);
}

/// A quantisation scale must be positive normal (ADR 0085 decision 180).
constexpr bool legal_as_scale(uint64 raw) noexcept {
  return raw >= 0x00400 && raw <= 0x3FBFF;
}
/// An activation parameter must be +0 or positive normal (ADR 0085 decision 180).
constexpr bool legal_as_activation(uint64 raw) noexcept {
  return raw == 0 || legal_as_scale(raw);
}

}  // namespace bitcube
