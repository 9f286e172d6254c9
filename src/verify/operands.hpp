// Interesting operands: seeded random numbers, words at the edges of a format, and the real numbers at which the result
// of a conversion changes.
#pragma once

#include <cstddef>
#include <vector>

#include "bitcube/numeric/encode.hpp"

namespace bitcube::verify {

/// SplitMix64: a counter and a mixing function, so the same seed gives the same numbers everywhere.
class Random {
 public:
  explicit Random(uint64 seed) noexcept : state_(seed) {}

  constexpr static uint64 mix(uint64 x) noexcept {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }
  uint64 next() noexcept { return mix(state_ += increment); }
  /// Below `limit`, which is not 0; the bias of at most limit / 2^64 does not matter here.
  uint64 below(uint64 limit) noexcept { return static_cast<uint64>((static_cast<uint128>(next()) * limit) >> 64); }
  bool chance(uint64 one_in) noexcept { return below(one_in) == 0; }
  template <typename List>
  const auto& pick(const List& list) noexcept {
    return list[below(std::size(list))];
  }

  static constexpr uint64 increment = 0x9E3779B97F4A7C15;

 private:
  uint64 state_;
};

/// A word of the format: half of them uniform, the others with an exponent at an edge or near the middle and a
/// significand of few bits, all ones, or one off. Constrained carrier bits are 0. Integers are extended to 64 bits.
uint64 random_word(Random& random, const Format& f);
/// The same without infinities, NaN and invalid encodings.
uint64 random_finite_word(Random& random, const Format& f);

/// Every code of a format of at most 8 bits; of others the codes with an exponent and a significand at an edge, both
/// signs, and words that are not valid. Integers: ends, powers of two and their neighbours, extended to 64 bits.
std::vector<uint64> corner_words(const Format& f);

/// Positive numbers at which encode(f, x) changes its result or its flags: values, midpoints, ends of the range, and
/// the bounds of tininess; in formats of more than 8 bits those of corner codes.
std::vector<Real> thresholds(const Format& f);

/// Words of a floating `source` at and one code beside each threshold of `destination`, both signs, and the corners of
/// the source itself where it has no more than 8 bits.
std::vector<uint64> words_around(const Format& source, const Format& destination);

}  // namespace bitcube::verify
