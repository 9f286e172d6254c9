// Interesting operands: corners of the encoding, then seeded random words weighted toward edges.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "bitcube/numeric/decode.hpp"

namespace bitcube::test {

/// Seeded source of encodings of any format. The same seed gives the same words everywhere.
class Operands {
 public:
  explicit Operands(std::uint64_t seed) : random_(seed) {}

  std::uint64_t raw() { return random_(); }
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(random_() % limit); }
  bool chance(unsigned one_in) { return random_() % one_in == 0; }

  /// A word of the format: half of them uniform, the others with an exponent at an edge or near the middle and a
  /// significand of few bits, all ones, or one ulp from those. Constrained carrier bits are zero.
  std::uint64_t word(const Format& f) {
    const std::uint64_t lane = low_mask(f.value_bits) & ~low_mask(f.low_zero_bits);
    if (f.layout != Layout::fields || chance(2)) return random_() & lane;
    const int fraction_bits = f.fraction_bits;
    const std::uint64_t top = low_mask(f.exponent_bits);
    std::uint64_t exponent = 0;
    switch (below(6)) {
      case 0:
        exponent = 0;
        break;
      case 1:
        exponent = 1;
        break;
      case 2:
        exponent = top - 1;
        break;
      case 3:
        exponent = top;
        break;
      default:
        exponent = static_cast<std::uint64_t>(f.bias) + below(9) - 4;
        break;
    }
    std::uint64_t fraction = 0;
    switch (below(6)) {
      case 0:
        fraction = 0;
        break;
      case 1:
        fraction = ~std::uint64_t{0};
        break;
      case 2:
        fraction = std::uint64_t{1} << below(static_cast<std::size_t>(fraction_bits) + 1);
        break;
      case 3:
        fraction = ~(std::uint64_t{1} << below(static_cast<std::size_t>(fraction_bits) + 1));
        break;
      case 4:
        fraction = random_() & random_() & random_();
        break;
      default:
        fraction = random_();
        break;
    }
    const std::uint64_t sign = f.sign_bits == 0 ? 0 : random_() & 1;
    const std::uint64_t magnitude = ((exponent & top) << fraction_bits) | (fraction & low_mask(fraction_bits));
    return ((sign << (f.exponent_bits + fraction_bits)) | magnitude) << f.low_zero_bits & lane;
  }

  /// The same without infinities and NaN.
  std::uint64_t finite_word(const Format& f) {
    for (;;) {
      const std::uint64_t w = word(f);
      if (decode(f, w).is_finite()) return w;
    }
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace bitcube::test
