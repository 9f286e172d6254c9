// Rows of one element each, and of tables. Groups and products are in generate_blocks.cpp.
#include "generate.hpp"

#include <fmt/format.h>

#include <array>

#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/machine/geometry.hpp"
#include "bitcube/numeric/fp19.hpp"
#include "bitcube/quantize/affine.hpp"
#include "record.hpp"

namespace bitcube::verify {
namespace {

// Every random number and coordinate has a statement of its own, or a place in an order that C++ fixes: compilers
// evaluate the operands of | and the arguments of a call in different orders, and the files must not depend on that.

const std::string& text_of(bool value) {
  static const std::array<std::string, 2> texts{"0", "1"};
  return texts[value ? 1 : 0];
}

/// A rounding and a saturation, both as text.
void push_control(uint64 rounding, bool saturate, Inputs& inputs) {
  inputs.emplace_back(roundings[rounding].name);
  inputs.push_back(text_of(saturate));
}

std::vector<const Format*> formats_where(bool (*accept)(const Format&)) {
  std::vector<const Format*> list;
  for (const Format& f : formats) {
    if (accept(f)) list.push_back(&f);
  }
  return list;
}

bool in_release(const Format& f) {
  return f.type != DataType::e6m2 && f.type != DataType::rcpe6m2;
}

// ---- Formats

RowSource descriptor_rows(std::string_view) {
  const auto types = formats_where(in_release);
  return {types.size(), [types](uint64 i, Inputs& inputs) { inputs.emplace_back(types[i]->name); }, {}};
}

RowSource format_rows(std::string_view) {
  const auto types = formats_where(in_release);
  std::vector<std::pair<const Format*, uint64>> corners;
  for (const Format* f : types) {
    for (const uint64 word : corner_words(*f)) corners.emplace_back(f, word);
  }
  const auto push = [](const Format& f, uint64 word, Inputs& inputs) {
    inputs.emplace_back(f.name);
    inputs.push_back(word_text(word));
  };
  // Of the short formats every code is a corner.
  const auto wide = formats_where([](const Format& f) { return f.lane_bits > 8; });
  return {corners.size(),
          [corners, push](uint64 i, Inputs& inputs) { push(*corners[i].first, corners[i].second, inputs); },
          [wide, push](Random& random, Inputs& inputs) {
            const Format& f = *random.pick(wide);
            push(f, random_word(random, f), inputs);
          }};
}

RowSource fp19_rows(std::string_view) {
  std::vector<uint64> corners;
  for (const uint64 word : corner_words(fp32)) {
    if ((word & low_mask(13)) == 0) corners.push_back(word >> 13);
  }
  for (const uint64 word : {0x3FBFFU, 0x3FC01U, 0x3FDFFU, 0x003FFU, 0x403FFU, 0x7FBFFU, 0x7FFFFU, 0x3FFFFU}) {
    corners.push_back(word);
  }
  return {corners.size(), [corners](uint64 i, Inputs& inputs) { inputs.push_back(word_text(corners[i])); },
          [](Random& random, Inputs& inputs) { inputs.push_back(word_text(random_word(random, fp19))); }};
}

RowSource narrowing_rows(std::string_view) {
  // Exponent, last kept bit, and what is cut off around its middle.
  constexpr std::array<uint64, 10> exponents{0, 1, 2, 126, 127, 128, 253, 254, 255, 64};
  constexpr std::array<uint64, 6> kept{0, 1, 2, 0x1FF, 0x3FE, 0x3FF};
  constexpr std::array<uint64, 8> cut{0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFE, 0x1FFF, 0x800};
  return {2 * exponents.size() * kept.size() * cut.size(),
          [=](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const uint64 low = at.pick(cut);
            const uint64 fraction = at.pick(kept) << 13 | low;
            const uint64 exponent = at.pick(exponents);
            inputs.push_back(word_text(at.take(2) << 31 | exponent << 23 | fraction));
          },
          [](Random& random, Inputs& inputs) { inputs.push_back(word_text(random_word(random, fp32))); }};
}

// ---- Encoders and conversions

/// The destinations of numerics 6.
bool is_encoder_type(const Format& f) {
  return f.is_integer() || (f.kind == Kind::floating && f.overflow_test != OverflowTest::magnitude);
}

std::string decimal(const Real& x) {
  return fmt::format("{}{}", x.negative ? "-" : "", x.significand);
}

RowSource encoder_rows(std::string_view) {
  struct Corner {
    const Format* format;
    Real x;
  };
  const auto types = formats_where(is_encoder_type);
  std::vector<Corner> corners;
  for (const Format* f : types) {
    for (const Real& x : thresholds(*f)) corners.push_back({f, x});
  }
  constexpr int fine = 24;  // "a little": 2^-24 of the last bit of the threshold
  return {corners.size() * 14 * 2 * 3,
          [corners](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const Corner& corner = at.pick(corners);
            const uint64 rounding = at.take(7);
            const bool saturate = at.take(2) != 0;
            Real x = corner.x;
            x.negative = at.take(2) != 0;
            const uint64 beside = at.take(3);
            if (beside != 0 && x.significand != 0 && bit_length(x.significand) <= 100) {
              x.significand = (x.significand << fine) + (beside == 1 ? uint128{1} : ~uint128{0});
              x.exponent -= fine;
            }
            inputs.emplace_back(corner.format->name);
            push_control(rounding, saturate, inputs);
            inputs.push_back(decimal(x));
            inputs.push_back(fmt::format("{}", x.exponent));
          },
          [types](Random& random, Inputs& inputs) {
            const Format& f = *random.pick(types);
            const bool negative = random.chance(2);
            const uint64 bits = random.next();
            Real x{.negative = negative, .significand = bits >> random.below(64)};
            if (random.chance(4)) x.significand = x.significand << 32 | (random.next() >> 32);
            // So that the value lies in the range of the format or a little outside.
            const int low = f.is_integer() ? -4 : f.min_exponent() - f.fraction_bits - 3;
            const int high = f.is_integer() ? f.lane_bits + 2 : f.layout == Layout::dot_field ? 18 : f.bias + 3;
            const int e = low + static_cast<int>(random.below(static_cast<uint64>(high - low)));
            x.exponent = e - bit_length(x.significand);
            inputs.emplace_back(f.name);
            const uint64 rounding = random.below(7);
            push_control(rounding, random.chance(2), inputs);
            inputs.push_back(decimal(x));
            inputs.push_back(fmt::format("{}", x.exponent));
          }};
}

struct Pair {
  const Format* from;
  const Format* to;
};

std::vector<Pair> pairs_where(bool (*accept)(const Format&, const Format&)) {
  std::vector<Pair> pairs;
  for (const Format& from : formats) {
    for (const Format& to : formats) {
      if (conversion_legal(from, to) && accept(from, to)) pairs.push_back({&from, &to});
    }
  }
  return pairs;
}

bool is_scale_type(const Format& f) {
  return f.kind == Kind::scale;
}

/// Conversions under the profiles of the rows; e8m0.csv has neither these columns nor that of the destination.
RowSource conversion_rows(const std::vector<Pair>& pairs, const std::vector<std::string>& profiles, bool pair_columns) {
  struct Corner {
    std::size_t pair;
    uint64 word;
  };
  std::vector<Corner> corners;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    for (const uint64 word : words_around(*pairs[i].from, *pairs[i].to)) corners.push_back({i, word});
  }
  const auto push = [=](const Pair& pair, const std::string& profile, uint64 rounding, bool saturate, uint64 word,
                        Inputs& inputs) {
    if (pair_columns)
      inputs.push_back(profile == "asl" && !asl_has_rule(*pair.from, *pair.to) ? std::string(pto_profile.name)
                                                                               : profile);
    inputs.emplace_back(pair.from->name);
    if (pair_columns) inputs.emplace_back(pair.to->name);
    // Rounding 0 and 4 are RNE and RNA, all that E6M2 takes.
    const bool all_modes = rounding_legal(*pair.from, *pair.to, Rounding::rtz);
    push_control(all_modes ? rounding : rounding % 2 * 4, saturate, inputs);
    inputs.push_back(word_text(word));
  };
  return {corners.size() * 14 * profiles.size(),
          [=](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const Corner& corner = at.pick(corners);
            const uint64 rounding = at.take(7);
            const bool saturate = at.take(2) != 0;
            push(pairs[corner.pair], at.pick(profiles), rounding, saturate, corner.word, inputs);
          },
          [=](Random& random, Inputs& inputs) {
            const Pair& pair = random.pick(pairs);
            const uint64 rounding = random.below(7);
            const bool saturate = random.chance(2);
            const std::string& profile = random.pick(profiles);
            push(pair, profile, rounding, saturate, random_word(random, *pair.from), inputs);
          }};
}

RowSource tcvt_rows(std::string_view profile) {
  const auto pairs = pairs_where([](const Format& from, const Format& to) {
    return !is_scale_type(from) && !is_scale_type(to) && !(from.is_integer() && to.is_integer());
  });
  return conversion_rows(pairs, names_or(profile, conversion_profiles), true);
}

RowSource tcvt_scale_rows(std::string_view profile) {
  const auto pairs = pairs_where([](const Format& from, const Format& to) {
    return (is_scale_type(from) || is_scale_type(to)) && to.type != DataType::e8m0;
  });
  return conversion_rows(pairs, names_or(profile, conversion_profiles), true);
}

RowSource e8m0_rows(std::string_view) {
  const auto pairs = pairs_where([](const Format&, const Format& to) { return to.type == DataType::e8m0; });
  return conversion_rows(pairs, {std::string(pto_profile.name)}, false);
}

RowSource tcvt_integer_rows(std::string_view) {
  struct Corner {
    const Format* from;
    const Format* to;
    uint64 word;
  };
  const auto types = formats_where([](const Format& f) { return f.is_integer(); });
  std::vector<Corner> corners;
  for (const Format* from : types) {
    for (const Format* to : types) {
      for (const uint64 word : corner_words(*from)) corners.push_back({from, to, word});
    }
  }
  const auto push = [](const Corner& row, bool saturate, Inputs& inputs) {
    inputs.emplace_back(row.from->name);
    inputs.emplace_back(row.to->name);
    inputs.push_back(text_of(saturate));
    inputs.push_back(word_text(row.word));
  };
  return {2 * corners.size(),
          [=](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const Corner& corner = at.pick(corners);
            push(corner, at.take(2) != 0, inputs);
          },
          [=](Random& random, Inputs& inputs) {
            Corner row{random.pick(types), random.pick(types), 0};
            row.word = random_word(random, *row.from);
            push(row, random.chance(2), inputs);
          }};
}

// ---- Affine quantisation

/// Legal multipliers: powers of two, thirds, the smallest and the largest, subnormals.
constexpr std::array<uint64, 10> kMultipliers{0x3F800000, 0x3F000000, 0x40000000, 0x3EAAAAAB, 0x3DCCCCCD,
                                              0x00000001, 0x00800000, 0x7F7FFFFF, 0x3F7FFFFF, 0x007FFFFF};

uint64 random_multiplier(Random& random) {
  for (;;) {
    const uint64 word = random_finite_word(random, fp32) & low_mask(31);
    if (word != 0) return word;
  }
}

std::vector<uint64> zero_points(const Format& f) {
  std::vector<uint64> words{0, 1, extended(f, f.max_finite), extended(f, f.max_finite + 1), extended(f, 0x7F)};
  words.push_back(extended(f, f.kind == Kind::signed_integer ? 0xFF : 0x80));
  return words;
}

const std::array<const Format*, 2> kAffineTypes{&format_of(DataType::s8), &format_of(DataType::u8)};

RowSource tquant_rows(std::string_view) {
  const auto push = [](const Format& f, uint64 rounding, bool saturate, uint64 x, uint64 multiplier, uint64 zero_point,
                       Inputs& inputs) {
    inputs.emplace_back(f.name);
    push_control(rounding, saturate, inputs);
    for (const uint64 word : {x, multiplier, zero_point}) inputs.push_back(word_text(word));
  };
  const std::vector<uint64> specials = corner_words(fp32);
  const std::vector<Real> bounds = thresholds(format_of(DataType::u8));
  return {uint64{2} * 14 * kMultipliers.size() * 6 * (specials.size() + 6 * bounds.size()),
          [=](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const uint64 point = at.take(specials.size() + 6 * bounds.size());
            const Format& f = *at.pick(kAffineTypes);
            const uint64 rounding = at.take(7);
            const bool saturate = at.take(2) != 0;
            const uint64 multiplier = at.pick(kMultipliers);
            const uint64 zero_point = at.pick(zero_points(f));
            uint64 x = point < specials.size() ? specials[point] : 0;
            if (point >= specials.size()) {  // x * multiplier near a bound of the sum
              Coordinates near(point - specials.size());
              const Real quotient = divide(near.pick(bounds), decode(fp32, multiplier).real);
              x = encode(fp32, quotient, {.rounding = Rounding::rtz, .saturate = true}).bits;
              x = near.take(3) + (x == 0 ? 0 : x - 1);
              x |= near.take(2) << 31;
            }
            push(f, rounding, saturate, x, multiplier, zero_point, inputs);
          },
          [=](Random& random, Inputs& inputs) {
            const Format& f = *random.pick(kAffineTypes);
            const uint64 rounding = random.below(7);
            const bool saturate = random.chance(2);
            // Half of the values are of the size that the range has.
            uint64 multiplier = random_multiplier(random);
            uint64 x = random_word(random, fp32);
            if (random.chance(2)) {
              multiplier = 0x3E000000 + random.below(0x02000000);
              x = 0x3D000000 + random.below(0x07000000);
              x |= random.below(2) << 31;
            }
            push(f, rounding, saturate, x, multiplier, extended(f, random.next()), inputs);
          }};
}

RowSource tdequant_rows(std::string_view) {
  const auto push = [](const Format& f, uint64 rounding, uint64 q, uint64 multiplier, uint64 zero_point,
                       Inputs& inputs) {
    inputs.emplace_back(f.name);
    inputs.emplace_back(roundings[rounding].name);
    for (const uint64 word : {q, multiplier, zero_point}) inputs.push_back(word_text(word));
  };
  return {uint64{256} * 2 * 7 * kMultipliers.size() * 6,
          [=](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const uint64 q = at.take(256);
            const Format& f = *at.pick(kAffineTypes);
            const uint64 rounding = at.take(7);
            const uint64 multiplier = at.pick(kMultipliers);
            push(f, rounding, extended(f, q), multiplier, at.pick(zero_points(f)), inputs);
          },
          [=](Random& random, Inputs& inputs) {
            const Format& f = *random.pick(kAffineTypes);
            const uint64 rounding = random.below(7);
            const uint64 q = extended(f, random.next());
            const uint64 multiplier = random_multiplier(random);
            push(f, rounding, q, multiplier, extended(f, random.next()), inputs);
          }};
}

// ---- B.FPATR

RowSource mode_rows(std::string_view) {
  return {64, [](uint64 i, Inputs& inputs) { inputs.push_back(fmt::format("{}", i)); }, {}};
}

RowSource field_rows(std::string_view) {
  return {uint64{64} * 8 * 16 * 16,
          [](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            for (const uint64 base : {64U, 8U, 16U, 16U}) inputs.push_back(fmt::format("{}", at.take(base)));
          },
          {}};
}

RowSource quant_parameter_rows(std::string_view) {
  // Around legal words one bit is set; 64 stands for none.
  return {uint64{64} * 65 * fp19_scales.size() * 4,
          [](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const auto code = static_cast<unsigned>(at.take(64));
            const uint64 scale = at.pick(fp19_scales);
            const uint64 bit = at.take(65);
            const uint64 offset = at.pick(std::array<uint64, 4>{0, 1, ~uint64{0}, 0xAAAAAAAAAAAAAAAA});
            const PreQuantMode* mode = find_prequant(code);
            const bool shift = mode != nullptr && mode->carrier == CarrierKind::shift;
            const int offset_bits = mode != nullptr ? mode->offset_bits : 0;
            uint64 word = shift ? (scale & 0xF) << 32 : scale << 13 | (offset & low_mask(offset_bits)) << 37;
            if (bit < 64) word ^= uint64{1} << bit;
            inputs.push_back(fmt::format("{}", code));
            inputs.push_back(word_text(word));
          },
          [](Random& random, Inputs& inputs) {
            const uint64 code = random.below(64);
            uint64 word = random.next();
            if (random.chance(2)) word &= low_mask(54) & ~low_mask(13);
            if (random.chance(2)) word &= ~(uint64{0x1F} << 32);
            inputs.push_back(fmt::format("{}", code));
            inputs.push_back(word_text(word));
          }};
}

RowSource relu_parameter_rows(std::string_view) {
  return {65 * fp19_scales.size(),
          [](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const uint64 bit = at.take(65);
            const uint64 word = at.pick(fp19_scales);
            inputs.push_back(word_text(bit < 64 ? word ^ uint64{1} << bit : word));
          },
          [](Random& random, Inputs& inputs) {
            const uint64 word = random.next();
            inputs.push_back(word_text(random.chance(2) ? word & low_mask(19) : word));
          }};
}

// ---- Post-process and reductions

const auto& kAccumulators = accumulator_types;

RowSource postprocess_rows(std::string_view) {
  const std::vector<PostprocessMode> modes = postprocess_modes();
  uint64 most = 0;
  for (const PostprocessMode& m : modes) most = std::max<uint64>(most, m.words.size() + 6 * m.bounds.size());
  constexpr std::array<uint64, 6> alphas{0, 0x1F800, 0x1FC00, 0x00400, 0x3FBFF, 0x1FA00};
  constexpr std::array<int64, 6> offsets{0, 1, -1, 0x7FFFFFFF, -0x80000000LL, 5};  // cut to the field: its ends too
  return {modes.size() * most * legal_fp19_scales * alphas.size() * offsets.size() * 4 * 14,
          [=](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const PostprocessMode& m = at.pick(modes);
            const uint64 point = at.take(most) % (m.words.size() + 6 * m.bounds.size());
            PostprocessRow row{.mode = m.mode, .accumulator = m.accumulator};
            const uint64 scale = fp19_scales[at.take(legal_fp19_scales)];
            row.rounding = at.take(7);
            row.saturate = at.take(2) != 0;
            const bool shift = m.mode->carrier == CarrierKind::shift;
            row.relu = at.take(4) * (shift ? 0 : 1);
            if (row.relu > 1) row.alpha = at.pick(alphas);
            const int64 offset = at.pick(offsets);
            row.carrier = postprocess_carrier(*m.mode, scale, offset, at.take(16));
            if (point < m.words.size()) {
              row.word = m.words[point];
            } else {  // so that word * multiplier is near a threshold
              Coordinates near(point - m.words.size());
              const Real bound = near.pick(m.bounds);
              const uint64 step = near.take(3);
              row.word = word_near(m, bound, scale, row.carrier, step, near.take(2) != 0);
            }
            row.push(inputs);
          },
          [=](Random& random, Inputs& inputs) {
            const PostprocessMode& m = random.pick(modes);
            PostprocessRow row{.mode = m.mode, .accumulator = m.accumulator};
            const bool near_one = random.chance(2);
            const uint64 scale = near_one ? 0x1E000 + random.below(0x4000) : 0x400 + random.below(0x3F800);
            row.rounding = random.below(7);
            row.saturate = random.chance(2);
            const bool shift = m.mode->carrier == CarrierKind::shift;
            row.relu = random.below(4) * (shift ? 0 : 1);
            if (row.relu > 1 && !random.chance(8)) row.alpha = 0x400 + random.below(0x3F800);
            const auto offset = static_cast<int64>(random.next());
            row.carrier = postprocess_carrier(*m.mode, scale, offset, random.below(16));
            row.word = random_word(random, *m.accumulator);
            if (!m.accumulator->is_integer() && random.chance(2)) {
              row.word = 0x3A000000 + random.below(0x0E000000);
              row.word |= random.below(2) << 31;
            }
            row.push(inputs);
          }};
}

RowSource reduction_rows(std::string_view) {
  std::array<std::vector<uint64>, 3> words;
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = corner_words(*kAccumulators[i]);
  const uint64 most = std::max(words[0].size(), words[1].size());
  const auto push = [](const Format& f, bool max_abs, uint64 a, uint64 b, Inputs& inputs) {
    inputs.emplace_back(f.name);
    inputs.push_back(text_of(max_abs));
    inputs.push_back(word_text(a));
    inputs.push_back(word_text(b));
  };
  return {uint64{3} * 2 * most * most,
          [=](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const uint64 type = at.take(3);
            const bool max_abs = at.take(2) != 0;
            const uint64 a = words[type][at.take(most) % words[type].size()];
            push(*kAccumulators[type], max_abs, a, words[type][at.take(most) % words[type].size()], inputs);
          },
          [=](Random& random, Inputs& inputs) {
            const Format& f = *random.pick(kAccumulators);
            const bool max_abs = random.chance(2);
            const uint64 a = random_word(random, f);
            const uint64 b = random.chance(4) ? extended(f, a ^ (random.next() & 0x80000001)) : random_word(random, f);
            push(f, max_abs, a, b, inputs);
          }};
}

RowSource cscale_rows(std::string_view) {
  const std::vector<uint64> words = corner_words(fp32);
  const auto push = [](uint64 c, uint64 s, Inputs& inputs) {
    inputs.push_back(fmt::format("0x{:08x}", c));
    inputs.push_back(fmt::format("{}", s));
  };
  return {words.size() * 256,
          [=](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const uint64 c = at.pick(words);
            push(c, at.take(256), inputs);
          },
          [=](Random& random, Inputs& inputs) {
            const uint64 c = random_word(random, fp32);
            push(c, random.below(256), inputs);
          }};
}

// ---- Geometry

using machine::TileLayout;

std::vector<const Format*> tile_types(bool cube) {
  std::vector<const Format*> list;
  for (const Format& f : formats) {
    if (in_release(f) && !(cube && f.lane_bits == 64)) list.push_back(&f);
  }
  return list;
}

constexpr std::array<TileLayout, 3> kCubeLayouts{TileLayout::cube_m16, TileLayout::cube_m32, TileLayout::cube_n8};

void push_tile(TileLayout layout, const Format& f, std::initializer_list<std::uint32_t> numbers, Inputs& inputs) {
  inputs.emplace_back(machine::name_of(layout));
  inputs.emplace_back(f.name);
  inputs.push_back(fmt::format("{}", f.lane_bits));
  for (const std::uint32_t number : numbers) inputs.push_back(fmt::format("{}", number));
}

constexpr std::array<std::uint32_t, 22> kExtents{0,  1,  2,  3,  4,  7,   8,   15,   16,   17,    31,
                                                 32, 33, 63, 64, 65, 127, 128, 1000, 2048, 65535, 65536};

RowSource shape_rows(std::string_view) {
  const auto types = tile_types(false);
  return {kCubeLayouts.size() * types.size() * kExtents.size() * kExtents.size(),
          [=](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const TileLayout layout = at.pick(kCubeLayouts);
            const Format& f = *at.pick(types);
            const std::uint32_t rows = at.pick(kExtents);
            push_tile(layout, f, {rows, at.pick(kExtents)}, inputs);
          },
          [=](Random& random, Inputs& inputs) {
            const TileLayout layout = random.pick(kCubeLayouts);
            const Format& f = *random.pick(types);
            const uint64 most = random.chance(2) ? 32 : 600;
            const auto rows = static_cast<std::uint32_t>(1 + random.below(most));
            push_tile(layout, f, {rows, static_cast<std::uint32_t>(1 + random.below(2000))}, inputs);
          }};
}

/// One element of a CUBE Tile; the storage extents are filled in with the index.
void push_cube_element(TileLayout layout, const Format& f, std::uint32_t rows, std::uint32_t columns, uint64 row,
                       uint64 column, Inputs& inputs) {
  const auto g = machine::cube_geometry(layout, f.lane_bits, rows, columns);
  push_tile(layout, f,
            {rows, columns, g->rows, g->columns, static_cast<std::uint32_t>(row % g->rows),
             static_cast<std::uint32_t>(column % g->columns)},
            inputs);
}

RowSource cube_index_rows(std::string_view) {
  const auto types = tile_types(true);
  constexpr std::array<std::uint32_t, 8> extents{1, 2, 8, 13, 16, 24, 32, 64};
  const auto rows_of = [](TileLayout layout, std::uint32_t rows) {
    return layout == TileLayout::cube_m16 ? std::min(rows, 16U) : rows;
  };
  return {kCubeLayouts.size() * types.size() * extents.size() * extents.size() * 64 * 64,
          [=](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const TileLayout layout = at.pick(kCubeLayouts);
            const Format& f = *at.pick(types);
            const std::uint32_t rows = rows_of(layout, at.pick(extents));
            const std::uint32_t columns = at.pick(extents);
            const uint64 row = at.take(64);
            push_cube_element(layout, f, rows, columns, row, at.take(64), inputs);
          },
          [=](Random& random, Inputs& inputs) {
            const TileLayout layout = random.pick(kCubeLayouts);
            const Format& f = *random.pick(types);
            const std::uint32_t rows = rows_of(layout, static_cast<std::uint32_t>(1 + random.below(96)));
            const auto columns = static_cast<std::uint32_t>(1 + random.below(96));
            const uint64 row = random.next();
            push_cube_element(layout, f, rows, columns, row, random.next(), inputs);
          }};
}

RowSource linear_index_rows(std::string_view) {
  const auto types = tile_types(false);
  constexpr std::array<TileLayout, 4> layouts{TileLayout::row_major, TileLayout::column_major, TileLayout::zn,
                                              TileLayout::nz};
  const auto push = [](TileLayout layout, const Format& f, uint64 rows, uint64 fractals, uint64 row, uint64 column,
                       Inputs& inputs) {
    const auto tile_rows = static_cast<std::uint32_t>(rows * machine::fractal_rows);
    const auto columns = static_cast<std::uint32_t>(fractals * machine::fractal_columns(f.lane_bits));
    push_tile(
        layout, f,
        {tile_rows, columns, static_cast<std::uint32_t>(row % tile_rows), static_cast<std::uint32_t>(column % columns)},
        inputs);
  };
  return {layouts.size() * types.size() * 3 * 3 * 64 * 64,
          [=](uint64 i, Inputs& inputs) {
            Coordinates at(i);
            const TileLayout layout = at.pick(layouts);
            const Format& f = *at.pick(types);
            const uint64 rows = uint64{1} << at.take(3);
            const uint64 fractals = uint64{1} << at.take(3);
            const uint64 row = at.take(64);
            push(layout, f, rows, fractals, row, at.take(64), inputs);
          },
          [=](Random& random, Inputs& inputs) {
            const TileLayout layout = random.pick(layouts);
            const Format& f = *random.pick(types);
            const uint64 rows = 1 + random.below(8);
            const uint64 fractals = uint64{1} << random.below(4);
            const uint64 row = random.next();
            push(layout, f, rows, fractals, row, random.next(), inputs);
          }};
}

constexpr std::array kKinds{
    KindEntry{{"format_descriptors", "format_descriptors", "every data type of release 0.58.3"}, descriptor_rows},
    KindEntry{{"formats", "formats", "classes and decompositions of encodings"}, format_rows},
    KindEntry{{"fp19_class", "fp19_class", "FP19 encodings"}, fp19_rows},
    KindEntry{{"fp32_to_fp19", "fp32_to_fp19", "FP32 words around what the narrowing helper cuts"}, narrowing_rows},
    KindEntry{{"encoders", "encoders", "exact reals into every destination of numerics 6"}, encoder_rows},
    KindEntry{{"e8m0", "e8m0", "TCVT to E8M0"}, e8m0_rows},
    KindEntry{{"tcvt", "tcvt", "TCVT between floats, and from and to integers"}, tcvt_rows},
    KindEntry{{"tcvt_scale", "tcvt", "TCVT from E8M0, from and to E6M2, from RCPE6M2"}, tcvt_scale_rows},
    KindEntry{{"tcvt_integer", "tcvt_integer", "TCVT between integers"}, tcvt_integer_rows},
    KindEntry{{"tquant", "tquant", "affine TQUANT"}, tquant_rows},
    KindEntry{{"tdequant", "tdequant", "affine TDEQUANT"}, tdequant_rows},
    KindEntry{{"fpatr_modes", "fpatr_modes", "all 64 PreQuantMode codes"}, mode_rows},
    KindEntry{{"fpatr_fields_legal", "fpatr_fields_legal", "combinations of B.FPATR fields"}, field_rows},
    KindEntry{{"fpatr_quant_param_legal", "fpatr_quant_param_legal", "quantisation carriers"}, quant_parameter_rows},
    KindEntry{{"fpatr_relu_param_legal", "fpatr_relu_param_legal", "activation carriers"}, relu_parameter_rows},
    KindEntry{{"postprocess", "postprocess", "all PreQuant and ReLU modes"}, postprocess_rows},
    KindEntry{{"reduction", "reduction", "RowMax and GroupMax steps"}, reduction_rows},
    KindEntry{{"cube_shapes", "cube_shapes", "shapes of CUBE Tiles, legal and not"}, shape_rows},
    KindEntry{{"cube_index", "cube_index", "elements of CUBE Tiles"}, cube_index_rows},
    KindEntry{{"linear_index", "linear_index", "elements of ordinary Tiles"}, linear_index_rows},
    KindEntry{{"hif4", "hif4_groups", "HiF4 groups"}, hif4_rows},
    KindEntry{{"mx", "mx_groups", "MX and NVFP4 groups"}, mx_rows},
    KindEntry{{"accumulate", "accumulate", "output elements of products"}, accumulate_rows},
    KindEntry{{"cscale", "cscale", "C scales"}, cscale_rows},
};

}  // namespace

std::span<const KindEntry> kind_entries() noexcept {
  return kKinds;
}

}  // namespace bitcube::verify
