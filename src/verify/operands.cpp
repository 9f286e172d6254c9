#include "operands.hpp"

#include <algorithm>
#include <array>

#include "record.hpp"

namespace bitcube::verify {
namespace {

/// Sorted and unique, so that lists do not depend on how they were found.
void tidy(std::vector<uint64>& words) {
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
}

std::vector<uint64> integer_corners(const Format& f) {
  std::vector<uint64> words;
  const auto add = [&](uint64 word) { words.push_back(extended(f, word)); };
  for (int bit = 0; bit < f.lane_bits; ++bit) {
    for (const uint64 offset : {~uint64{0}, uint64{0}, uint64{1}}) {
      add((uint64{1} << bit) + offset);
      add(~((uint64{1} << bit) + offset) + 1);
    }
  }
  for (const uint64 word : {uint64{0}, f.max_finite, f.max_finite + 1, ~uint64{0}}) add(word);
  tidy(words);
  return words;
}

/// The bits of a field at both ends and around the middle.
std::vector<uint64> field_corners(int bits) {
  const uint64 top = low_mask(bits);
  const uint64 half = bits > 0 ? uint64{1} << (bits - 1) : 0;
  std::vector<uint64> values{0, 1, 2, half - 1, half, half + 1, top - 1, top};
  for (uint64& value : values) value &= top;
  tidy(values);
  return values;
}

/// Positive finite codes at edges, or all of them.
std::vector<uint64> magnitude_corners(const Format& f) {
  std::vector<uint64> codes;
  if (f.lane_bits <= 8) {
    for (uint64 code = 0; code <= low_mask(f.value_bits - f.sign_bits); ++code) {
      if (decode(f, code).is_finite()) codes.push_back(code);
    }
    return codes;
  }
  const uint64 bias = static_cast<uint64>(f.bias);
  std::vector<uint64> exponents = field_corners(f.exponent_bits);
  for (const uint64 e : {bias - 14, bias - 1, bias, bias + 1, bias + 7, bias + 15, bias + f.fraction_bits}) {
    exponents.push_back(e & low_mask(f.exponent_bits));
  }
  for (const uint64 e : exponents) {
    for (const uint64 fraction : field_corners(f.fraction_bits)) {
      const uint64 code = (e << f.fraction_bits | fraction) << f.low_zero_bits;
      if (decode(f, code).is_finite()) codes.push_back(code);
    }
  }
  tidy(codes);
  return codes;
}

/// x + y exactly. Preconditions: both positive, and their bits span at most 128.
Real add(const Real& x, const Real& y) noexcept {
  const int exponent = std::min(x.exponent, y.exponent);
  return {.significand = (x.significand << (x.exponent - exponent)) + (y.significand << (y.exponent - exponent)),
          .exponent = exponent};
}

void integer_thresholds(const Format& f, std::vector<Real>& out) {
  const uint128 largest = f.max_finite;
  for (const uint128 whole : {uint128{0}, uint128{1}, uint128{2}, uint128{3}, largest - 1, largest, largest + 1,
                              largest + 2, 2 * largest, 2 * largest + 1, 2 * largest + 2, 3 * largest}) {
    for (unsigned quarter = 0; quarter < 4; ++quarter)
      out.push_back({.significand = 4 * whole + quarter, .exponent = -2});
  }
  out.push_back({.significand = 5, .exponent = f.lane_bits + 40});
}

}  // namespace

uint64 random_word(Random& random, const Format& f) {
  if (f.is_integer()) {
    const uint64 word = random.next();
    if (random.chance(2)) return extended(f, word);
    return extended(f, word >> random.below(64));
  }
  const uint64 lane = low_mask(f.value_bits) & ~low_mask(f.low_zero_bits);
  if (f.layout != Layout::fields || random.chance(2)) return random.next() & lane;
  const int fraction_bits = f.fraction_bits;
  const uint64 top = low_mask(f.exponent_bits);
  const uint64 near_bias = static_cast<uint64>(f.bias) + random.below(9) - 4;
  const std::array<uint64, 6> exponents{0, 1, top - 1, top, near_bias, near_bias};
  const uint64 bit = uint64{1} << random.below(static_cast<uint64>(fraction_bits) + 1);
  const uint64 any = random.next();
  const std::array<uint64, 6> fractions{0, ~uint64{0}, bit, ~bit, any & (any >> 32), any};
  // One step at a time: the order in which operands are evaluated is no part of C++, but the numbers must not change.
  const uint64 exponent = random.pick(exponents) & top;
  const uint64 fraction = random.pick(fractions) & low_mask(fraction_bits);
  const uint64 sign = f.sign_bits == 0 ? 0 : random.next() & 1;
  const uint64 magnitude = exponent << fraction_bits | fraction;
  return (sign << (f.exponent_bits + fraction_bits) | magnitude) << f.low_zero_bits & lane;
}

uint64 random_finite_word(Random& random, const Format& f) {
  for (;;) {
    const uint64 word = random_word(random, f);
    if (decode(f, word).is_finite()) return word;
  }
}

std::vector<uint64> corner_words(const Format& f) {
  if (f.is_integer()) return integer_corners(f);
  std::vector<uint64> words;
  if (f.lane_bits <= 8) {
    for (uint64 code = 0; code <= low_mask(f.lane_bits); ++code) words.push_back(code);
    return words;
  }
  words = magnitude_corners(f);
  const uint64 quiet = f.canonical_nan;
  for (const uint64 special : {f.infinity, quiet, quiet | f.infinity | uint64{1} << f.low_zero_bits,
                               f.infinity | uint64{1} << f.low_zero_bits, quiet - (uint64{1} << f.low_zero_bits)}) {
    words.push_back(special);
  }
  const std::size_t positive = words.size();
  for (std::size_t i = 0; i < positive; ++i) words.push_back(with_sign(f, words[i], true));
  if (f.low_zero_bits != 0) {  // invalid encodings
    for (const uint64 word : {uint64{1}, uint64{1} << (f.low_zero_bits - 1), f.max_finite | 1}) words.push_back(word);
  }
  tidy(words);
  return words;
}

std::vector<Real> thresholds(const Format& f) {
  std::vector<Real> out;
  if (f.is_integer()) {
    integer_thresholds(f, out);
    return out;
  }
  std::vector<Real> values;
  for (const uint64 code : magnitude_corners(f)) values.push_back(decode(f, code).real);
  std::sort(values.begin(), values.end(), [](const Real& a, const Real& b) { return compare_magnitude(a, b) < 0; });
  const bool all_codes = f.lane_bits <= 8;
  for (std::size_t i = 0; i < values.size(); ++i) {
    out.push_back(values[i]);
    if (values[i].is_zero()) continue;
    if (f.layout == Layout::exponent) {  // rounds the logarithm: powers of two and sqrt(2) times them
      out.push_back({.significand = 0xB504F333F9DE6484, .exponent = values[i].exponent - 63});
      continue;
    }
    if (all_codes && i + 1 < values.size()) {
      out.push_back(scale_by_power_of_two(add(values[i], values[i + 1]), -1));
    } else {  // half a unit in the last place up
      const int quantum = detail::quantum_exponent(f, floor_log2(values[i]));
      out.push_back(add(values[i], {.significand = 1, .exponent = quantum - 1}));
    }
  }
  const Real& largest = values.back();
  const int top = floor_log2(largest);
  const auto smallest = std::find_if(values.begin(), values.end(), [](const Real& x) { return !x.is_zero(); });
  for (const int power : {top + 1, top + 2, top + 40}) out.push_back({.significand = 1, .exponent = power});
  for (const unsigned above : {1U, 2U, 3U}) {  // beyond the largest value by halves of its unit
    const int quantum = f.layout == Layout::exponent ? top - 1 : detail::quantum_exponent(f, top);
    out.push_back(add(largest, {.significand = above, .exponent = quantum - 1}));
  }
  for (const int down : {1, 2, 40}) out.push_back(scale_by_power_of_two(*smallest, -down));
  if (f.kind == Kind::floating) {
    for (const int bits : {int{f.underflow_precision}, f.underflow_precision + 1, f.underflow_precision + 2}) {
      out.push_back({.significand = (uint128{1} << bits) - 1, .exponent = f.underflow_exponent - bits});  // tininess
    }
  }
  return out;
}

std::vector<uint64> words_around(const Format& source, const Format& destination) {
  std::vector<uint64> words;
  if (source.lane_bits <= 8) return corner_words(source);
  const uint64 step = uint64{1} << source.low_zero_bits;
  for (const Real& threshold : thresholds(destination)) {
    const uint64 code = encode(source, threshold, {.rounding = Rounding::rtz, .saturate = true}).bits;
    for (const uint64 near : {code - step, code, code + step}) {
      if (source.is_integer()) {
        words.push_back(extended(source, near));
        words.push_back(extended(source, ~near + 1));
        continue;
      }
      if ((near & ~low_mask(source.value_bits - 1)) != 0) continue;  // below zero
      words.push_back(near);
      words.push_back(with_sign(source, near, true));
    }
  }
  const std::vector<uint64> own = corner_words(source);
  words.insert(words.end(), own.begin(), own.end());
  tidy(words);
  return words;
}

}  // namespace bitcube::verify
