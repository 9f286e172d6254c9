// Rows of groups and of products.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bitcube/cube/matmul.hpp"
#include "bitcube/quantize/hif4.hpp"
#include "bitcube/quantize/mx.hpp"
#include "generate.hpp"
#include "record.hpp"

namespace bitcube::verify {
namespace {

// Every random number has a statement of its own, or a place in an order that C++ fixes: compilers evaluate the
// operands of | and the arguments of a call in different orders, and the files must not depend on that.

/// A corner with this index has details of its own, which do not depend on the seed of the file.
Random details_of(uint64 index) noexcept {
  return Random(Random::mix(index + 1));
}

std::string digits_of(const std::vector<uint64>& words, std::size_t digits) {
  std::string text;
  for (const uint64 word : words) append_digits(text, word, digits);
  return text;
}

/// The word of a positive real, cut toward zero, and moved by `step` codes.
uint64 word_near(const Format& f, const Real& x, int64 step) noexcept {
  const uint64 code = encode(f, x, {.rounding = Rounding::rtz, .saturate = true}).bits;
  const auto moved = static_cast<int64>(code) + step;
  return std::clamp<uint64>(moved < 0 ? 0 : static_cast<uint64>(moved), 0, f.max_finite);
}

int64 small_step(Random& random) noexcept {
  return static_cast<int64>(random.below(3)) - 1;
}

/// Finite words whose exponents lie in [top - spread, top], as fields of the format; both signs.
void fill_spread(Random& random, const Format& f, uint64 top, uint64 spread, std::vector<uint64>& words) {
  for (uint64& word : words) {
    const uint64 below = random.below(spread + 1);
    const uint64 exponent = top > below ? top - below : 0;
    const uint64 fraction = random.next() & low_mask(f.fraction_bits);
    word = with_sign(f, exponent << f.fraction_bits | fraction, random.chance(2));
  }
}

void random_signs(Random& random, const Format& f, std::vector<uint64>& words) {
  for (uint64& word : words) word = with_sign(f, word, random.chance(2));
}

/// What a corner group is about.
enum class Pattern : std::uint8_t { zeros, uniform, nan, infinity, scale, thresholds, ties, subnormal, huge, spread };
constexpr std::array kPatterns{Pattern::zeros, Pattern::uniform,    Pattern::nan,  Pattern::infinity,
                               Pattern::scale, Pattern::thresholds, Pattern::ties, Pattern::subnormal,
                               Pattern::huge,  Pattern::spread};
constexpr uint64 kVariants = 400;  // corners of each pattern

/// Patterns that mean the same for every block format. False if it is none of them.
bool fill_common(Pattern pattern, Random& random, const Format& f, std::vector<uint64>& words) {
  const auto some = [&](uint64 word) { words[random.below(words.size())] = word; };
  const uint64 bias = static_cast<uint64>(f.bias);
  switch (pattern) {
    case Pattern::zeros:
      for (uint64& word : words) word = 0;
      random_signs(random, f, words);
      return true;
    case Pattern::uniform: {
      const uint64 word = random_finite_word(random, f);
      for (uint64& w : words) w = word;
      if (random.chance(2)) random_signs(random, f, words);
      return true;
    }
    case Pattern::nan:
    case Pattern::infinity: {
      fill_spread(random, f, bias + 2, 10, words);
      if (pattern == Pattern::infinity || random.chance(2)) some(with_sign(f, f.infinity, random.chance(2)));
      const uint64 payload = 1 + random.below(low_mask(f.fraction_bits));
      if (pattern == Pattern::nan) some(with_sign(f, f.infinity | payload, random.chance(2)));
      return true;
    }
    case Pattern::subnormal:
      fill_spread(random, f, random.below(4), 3, words);
      return true;
    case Pattern::huge:
      fill_spread(random, f, low_mask(f.exponent_bits) - 1, random.below(30), words);
      return true;
    case Pattern::spread: {
      const uint64 spread = random.below(24);
      fill_spread(random, f, bias - 60 + random.below(121), spread, words);
      return true;
    }
    case Pattern::scale:
    case Pattern::thresholds:
    case Pattern::ties:
      break;
  }
  return false;
}

/// A complete group mostly, otherwise a short one.
std::size_t group_size(Random& random, std::size_t most) noexcept {
  return random.chance(8) ? 1 + static_cast<std::size_t>(random.below(most)) : most;
}

// ---- HiF4

/// A group whose maximum gives the E6M2 scale 2^e * (1 + m/4); the others lie where micro-exponents or lanes change.
void fill_hif4(Pattern pattern, Random& random, std::vector<uint64>& words) {
  const uint64 code = 80 + random.below(160);
  const Real scale = decode(e6m2, code).real;
  const Real largest = multiply(scale, {.significand = 7});
  if (pattern == Pattern::scale) {  // every fraction of a maximum: ties of E6M2 and of the product with 1/7
    fill_spread(random, bf16, 100 + random.below(40), 6, words);
    const uint64 exponent = 141 + random.below(3);
    const uint64 top = exponent << 7 | random.below(128);
    words[random.below(words.size())] = with_sign(bf16, top, random.chance(2));
    return;
  }
  for (std::size_t q = 0; q < words.size(); ++q) {
    Real x;
    if (pattern == Pattern::thresholds) {  // 4 * scale and 2 * scale decide the micro-exponents
      x = scale_by_power_of_two(scale, 1 + static_cast<int>(random.below(2)));
    } else {  // odd eighths of the lane's scale are ties of quarters
      const uint128 eighths = 1 + 2 * random.below(8);
      x = scale_by_power_of_two(multiply(scale, {.significand = eighths}), -3 + static_cast<int>(random.below(3)));
    }
    words[q] = random.chance(4) ? 0 : word_near(bf16, x, small_step(random));
  }
  words[random.below(words.size())] = word_near(bf16, largest, small_step(random));
  random_signs(random, bf16, words);
}

void push_hif4(const std::string& profile, const std::vector<uint64>& words, Inputs& inputs) {
  inputs.push_back(profile);
  inputs.push_back(digits_of(words, 4));
}

// ---- MX

constexpr std::array<DataType, 6> kMxElements{DataType::e4m3, DataType::e5m2,   DataType::e3m2,
                                              DataType::e2m3, DataType::e2m1x2, DataType::e1m2x2};

/// Element, rule and source of a group; the rule after the last is NVFP4.
struct MxGroupKind {
  const Format* element;
  const ScaleRule* rule;  // nullptr: NVFP4
  const Format* source;

  std::size_t lanes() const noexcept { return rule != nullptr ? mx_group_lanes : nvfp4_group_lanes; }
};
constexpr uint64 kMxRows = kMxElements.size() * scale_rules.size() + 2;  // NVFP4 counts twice, it has one element only

MxGroupKind mx_kind(uint64 row, bool wide) noexcept {
  MxGroupKind kind{.element = &e2m1, .rule = nullptr, .source = wide ? &fp32 : &bf16};
  if (row >= kMxElements.size() * scale_rules.size()) return kind;
  kind.element = &format_of(kMxElements[row / scale_rules.size()]);
  kind.rule = &scale_rules[row % scale_rules.size()];
  return kind;
}

void fill_mx(Pattern pattern, Random& random, const MxGroupKind& kind, std::vector<uint64>& words) {
  const Format& f = *kind.source;
  const int exponent = static_cast<int>(random.below(21)) - 10;
  const auto element = [&](const Real& x) { return scale_by_power_of_two(x, exponent); };
  const Real largest = element(decode(*kind.element, kind.element->max_finite).real);
  std::vector<Real> bounds;
  for (const Real& bound : thresholds(*kind.element)) {
    if (compare_magnitude(element(bound), largest) <= 0) bounds.push_back(element(bound));
  }
  for (uint64& word : words) {
    const Real& bound = random.pick(bounds);
    word = word_near(f, bound, pattern == Pattern::ties ? 0 : small_step(random));
  }
  // The maximum decides the scale: powers of two, the largest element, and what rounds up to the next power.
  Real top = largest;
  const uint64 choice = random.below(3);
  const int e = floor_log2(largest);
  if (choice == 1) top = {.significand = 1, .exponent = e};
  if (choice == 2) {
    const int bits = kind.element->fraction_bits + 2;
    top = {.significand = (uint128{1} << bits) - 1, .exponent = e + 1 - bits};
  }
  words[random.below(words.size())] = word_near(f, top, small_step(random));
  random_signs(random, f, words);
}

/// NVFP4 groups that are not zero, but whose scale is, do not occur in vector files.
void avoid_zero_scale(const MxGroupKind& kind, std::vector<uint64>& words) {
  if (kind.rule != nullptr || quantize_nvfp4_group(*kind.source, words).scale != 0) return;
  const bool zero = std::all_of(words.begin(), words.end(),
                                [&](uint64 word) { return decode(*kind.source, word).cls == Class::zero; });
  if (!zero) words[0] = encode(*kind.source, Real{.significand = 1}, {}).bits;
}

void push_mx(const MxGroupKind& kind, std::vector<uint64>& words, Inputs& inputs) {
  avoid_zero_scale(kind, words);
  inputs.emplace_back(kind.element->name);
  inputs.emplace_back(kind.rule != nullptr ? kind.rule->name : std::string_view("nvfp4"));
  inputs.emplace_back(kind.source == &fp32 ? "fp32" : "bf16");
  inputs.push_back(digits_of(words, kind.source->carrier_bits / 4U));
}

// ---- Products

/// Types of both sides, and which have scales.
struct ProductTypes {
  const Format* a;
  const Format* b;
  bool a_scaled;
  bool b_scaled;
};

std::vector<ProductTypes> product_types() {
  std::vector<ProductTypes> list;
  const std::uint8_t byte = 0;
  for (const Format& a : formats) {
    for (const Format& b : formats) {
      for (unsigned scaled = 0; scaled < 4; ++scaled) {
        Operand left{.format = &a, .lines = 1, .k = 1, .lanes = {&byte, a.lane_bits, 1, 1}, .scales = {}};
        Operand right{.format = &b, .lines = 1, .k = 1, .lanes = {&byte, b.lane_bits, 1, 1}, .scales = {}};
        if ((scaled & 1) != 0) left.scales = {&byte, 8, 1, 1};
        if ((scaled & 2) != 0) right.scales = {&byte, 8, 1, 1};
        if (product_kind(left, right)) list.push_back({&a, &b, (scaled & 1) != 0, (scaled & 2) != 0});
      }
    }
  }
  return list;
}

/// What the lanes of a corner product are about.
enum class Lanes : std::uint8_t { any, finite, small, cancel, zeros };

void fill_lanes(Random& random, const Format& f, Lanes kind, std::vector<uint64>& words) {
  const bool is_float = !f.is_integer();
  for (std::size_t i = 0; i < words.size(); ++i) {
    uint64 word = 0;
    switch (kind) {
      case Lanes::any:
        do word = random_word(random, f);
        while (decode(f, word).cls == Class::invalid);
        break;
      case Lanes::finite:
        word = random_finite_word(random, f);
        break;
      case Lanes::small: {
        const auto exponent = static_cast<int>(random.below(8)) - 4;
        const uint64 significand = 1 + random.below(7);
        const Real x{.significand = significand, .exponent = is_float ? exponent : 0};
        word = encode(f, x, {.rounding = Rounding::rtz, .saturate = true}).bits;
        if (is_float) word = with_sign(f, word, random.chance(2));
        break;
      }
      case Lanes::cancel:  // the next lane takes back what the last one added
        word = random_finite_word(random, f);
        if (i % 2 == 1 && is_float && f.sign_bits != 0) {
          word = words[i - 1] ^ uint64 { 1 } << f.sign_bit();
          if (decode(f, word).cls == Class::quiet_nan) word = 0;  // HiF8 has no -0
        }
        break;
      case Lanes::zeros:
        word = is_float && f.has_signed_zero ? with_sign(f, 0, random.chance(2)) : 0;
        if (random.chance(6)) word = random_finite_word(random, f);
        break;
    }
    words[i] = word & low_mask(f.lane_bits);
  }
}

std::string scale_digits(Random& random, const Format& f, bool scaled, std::size_t k) {
  if (!scaled) return "-";
  const bool hif4_side = f.type == DataType::hif4x2;
  std::vector<uint64> words((k + scale_group(f) - 1) / scale_group(f));
  constexpr std::array<uint64, 8> edges{0x00, 0x01, 0x7E, 0x7F, 0x80, 0xFD, 0xFE, 0xFF};
  for (uint64& word : words) {
    const bool near_one = !random.chance(4);
    const uint64 high = hif4_side ? random.next() & 0xFFFFFF00 : 0;
    if (near_one) {
      word = high | (hif4_side ? 0xB8 + random.below(16) : 0x7B + random.below(9));
    } else {
      word = high | random.pick(edges);
    }
  }
  return digits_of(words, hif4_side ? 8 : 2);
}

constexpr std::array<std::size_t, 14> kDepths{1, 2, 3, 4, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100};

std::string addend(Random& random, const Format& accumulator) {
  if (random.chance(3)) return "-";
  const uint64 word = random_word(random, accumulator) & low_mask(32);
  return fmt::format("0x{:08x}", word);
}

void push_product(Random& random, const std::string& profile, const ProductTypes& types, std::size_t k, Lanes kind,
                  Inputs& inputs) {
  std::vector<uint64> words(k);
  inputs.push_back(profile);
  inputs.emplace_back(types.a->name);
  inputs.emplace_back(types.b->name);
  inputs.push_back(fmt::format("{}", k));
  for (const bool left : {true, false}) {
    const Format& f = left ? *types.a : *types.b;
    fill_lanes(random, f, !left && kind == Lanes::cancel ? Lanes::small : kind, words);
    inputs.push_back(digits_of(words, f.lane_bits == 4 ? 1 : f.lane_bits / 4U));
    inputs.push_back(scale_digits(random, f, left ? types.a_scaled : types.b_scaled, k));
  }
  const Format& accumulator = !types.a->is_integer()                  ? fp32
                              : types.a->kind == Kind::signed_integer ? format_of(DataType::s32)
                                                                      : format_of(DataType::u32);
  inputs.push_back(addend(random, accumulator));
  inputs.push_back(addend(random, accumulator));
}

}  // namespace

RowSource hif4_rows(std::string_view profile) {
  const auto profiles = names_or(profile, hif4_profiles);
  return {kPatterns.size() * kVariants * profiles.size(),
          [=](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const std::string& name = at.pick(profiles);
            const Pattern pattern = at.pick(kPatterns);
            Random random = details_of(i);
            std::vector<uint64> words(group_size(random, hif4_group_lanes));
            if (!fill_common(pattern, random, bf16, words)) fill_hif4(pattern, random, words);
            push_hif4(name, words, inputs);
          },
          [=](Random& random, Inputs& inputs) {
            const std::string& name = random.pick(profiles);
            std::vector<uint64> words(group_size(random, hif4_group_lanes));
            const uint64 top = 80 + random.below(90);
            fill_spread(random, bf16, top, random.below(12), words);
            push_hif4(name, words, inputs);
          }};
}

RowSource mx_rows(std::string_view) {
  return {kPatterns.size() * kVariants * 2 * kMxRows,
          [](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const Pattern pattern = at.pick(kPatterns);
            const bool wide = at.take(2) != 0;
            const MxGroupKind kind = mx_kind(at.take(kMxRows), wide);
            Random random = details_of(i);
            std::vector<uint64> words(group_size(random, kind.lanes()));
            if (!fill_common(pattern, random, *kind.source, words)) fill_mx(pattern, random, kind, words);
            push_mx(kind, words, inputs);
          },
          [](Random& random, Inputs& inputs) {
            const bool wide = random.chance(2);
            const MxGroupKind kind = mx_kind(random.below(kMxRows), wide);
            std::vector<uint64> words(group_size(random, kind.lanes()));
            const uint64 top = 117 + random.below(20);
            fill_spread(random, *kind.source, top, random.below(10), words);
            push_mx(kind, words, inputs);
          }};
}

RowSource accumulate_rows(std::string_view profile) {
  const auto profiles = names_or(profile, accumulation_profiles);
  const auto types = product_types();
  constexpr std::array kinds{Lanes::any, Lanes::finite, Lanes::small, Lanes::cancel, Lanes::zeros};
  return {profiles.size() * types.size() * kinds.size() * kDepths.size(),
          [=](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const std::string& name = at.pick(profiles);
            const ProductTypes& pair = at.pick(types);
            const Lanes kind = at.pick(kinds);
            const std::size_t k = at.pick(kDepths);
            Random random = details_of(i);
            push_product(random, name, pair, k, kind, inputs);
          },
          [=](Random& random, Inputs& inputs) {
            const std::string& name = random.pick(profiles);
            const ProductTypes& pair = random.pick(types);
            const auto k = static_cast<std::size_t>(1 + random.below(random.chance(8) ? 150 : 12));
            const Lanes kind = random.pick(kinds);
            push_product(random, name, pair, k, kind, inputs);
          }};
}

}  // namespace bitcube::verify
