#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "bitcube/cube/matrix_operand.hpp"
#include "bitcube/machine/geometry.hpp"
#include "bitcube/numeric/convert.hpp"
#include "compare/predict.hpp"

namespace bitcube {
namespace {

// Simplest first: of two explanations that are as good, the upper one is reported.
constexpr std::array<Hypothesis, 36> table{{
    {"nibble-order", "nibbles swapped", "4-bit lanes of the result or of an operand",
     "the even lane belongs into the low nibble of its byte"},
    {"byte-order", "bytes of each word in the other order", "words of 16 bits or more; scale words of an operand",
     "words are little-endian"},
    {"micro-bit-order", "micro-exponents read from the other end", "HiF4 scale words, of the result or of an operand",
     "bit 8 + g is E1_8 of lanes 8g to 8g + 7, bit 16 + h is E1_16 of lanes 4h to 4h + 3"},
    {"scales-transposed", "scales transposed", "scale arrays, of the result or of an operand",
     "scales lie line by line, the groups of a line beside each other"},
    {"transposed", "transposed", "a matrix, or a square operand",
     "the strides with which the matrix is read or written"},
    {"layout", "CUBE or fractal layout not undone", "a matrix of whole CELLs or fractals, or such an operand",
     "the layout in which the Tile is stored or loaded"},
    {"padding", "padding included", "a matrix whose rows do not fill the alignment",
     "the valid extent, not the physical one, is the length of a row"},
    {"shifted", "shifted", "a result", "start address, and the first and last index of the loop"},
    {"factor", "multiplied by a constant", "a result", "the exponent bias, or a scale that was applied twice or not"},
    {"subnormals-flushed", "subnormal results flushed to zero", "a float result",
     "the handling of results below the smallest normal value"},
    {"saturation", "saturation", "a result that can overflow", "the Sat bit, and what an overflow delivers"},
    {"relu-missing", "ReLU", "a result", "the activation of the post-process"},
    {"tie-rule", "other tie rule", "a conversion, a quantisation or a post-process; a hint from the result alone",
     "what rounding does when the value is exactly halfway"},
    {"truncation", "truncated instead of rounded",
     "a conversion, a quantisation or a post-process; a hint from the result alone", "the increment after the cut"},
    {"rounding-mode", "other rounding mode", "a conversion, a quantisation or a post-process", "the rounding mode"},
    {"conversion-profile", "other conversion profile", "a conversion or a post-process",
     "overflow and zeros of E4M3, HiF8 and E2M1"},
    {"double-rounding", "rounded twice", "a conversion", "the intermediate format; round once, from the exact value"},
    {"decoded-as", "decoded as another format", "a conversion, or an operand: E2M1 as E1M2, E4M3 as E5M2, …",
     "the data type of the source"},
    {"scale-rule", "other scale rule", "a quantisation", "how the scale follows from the maximum of the group"},
    {"products", "products of the quantiser", "a HiF4 quantisation",
     "whether products are rounded to BF16 or kept exact"},
    {"group-length", "other group length", "a quantisation, or a product with scales",
     "lanes per scale: 64 for HiF4, 32 for MX, 16 for NVFP4"},
    {"element-format", "quantised to another element format", "an MX quantisation",
     "the element's exponent and fraction bits"},
    {"scale-step", "scales one step off", "scales of a quantised tensor", "the rounding of the scale"},
    {"operands-exchanged", "A and B exchanged", "a product of square matrices", "which operand is A"},
    {"scales-ignored", "scales of an operand ignored", "a product with scales", "the scale ports of A and B"},
    {"bias-missing", "bias missing", "a product with a bias", "whether the bias is added after the last k"},
    {"bias-scaling", "bias on the wrong side of a scale", "a product with a bias and scales",
     "the bias is added to the accumulator: after the scales of the groups, before the scale of the post-process"},
    {"bias-order", "bias added at another time", "a product with a bias", "the bias is added once, after the last k"},
    {"c-missing", "C missing", "a product with C", "whether the accumulator starts from C"},
    {"c-last", "C added at the end", "a product with C", "the accumulator starts from C"},
    {"accumulation", "other accumulation profile", "a product", "where the sum is rounded"},
    {"k-blocks", "partial sums per block of K", "a product", "whether a block goes on from the sum before it"},
    {"k-order", "summed from the last k to the first", "a product", "the order of k"},
    {"relu-after", "ReLU after the conversion", "a post-process with ReLU and an offset",
     "the activation acts on the accumulator, before scale and offset"},
    {"offset", "offset of the post-process", "a post-process with an offset",
     "the value is rounded first, then the offset is added"},
    {"parameter", "scale parameter of the post-process", "a post-process with a scale",
     "which parameter a column takes"},
}};

}  // namespace

std::span<const Hypothesis> hypotheses() noexcept {
  return table;
}

const Hypothesis* find_hypothesis(std::string_view id) noexcept {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Hypothesis& h) { return h.id == id; });
  return found == table.end() ? nullptr : &*found;
}

namespace compare_detail {
namespace {

bool is_float(const Format& f) noexcept {
  return f.kind == Kind::floating && f.layout != Layout::integer;
}
bool is_nearest(Rounding r) noexcept {
  return r == Rounding::rne || r == Rounding::rna || r == Rounding::rhb;
}
std::string_view rounding_id(Rounding right, Rounding wrong) noexcept {
  if (wrong == Rounding::rtz) return "truncation";
  return is_nearest(right) && is_nearest(wrong) ? "tie-rule" : "rounding-mode";
}
std::string instead(std::string_view wrong, std::string_view right) {
  return fmt::format("{} instead of {}", wrong, right);
}

using machine::TileLayout;

/// Rows and columns of a part: the last axis, and all others.
std::pair<uint64, uint64> matrix_of(const ComparedPart& part) noexcept {
  uint64 rows = 1;
  for (const uint64 extent : std::span(part.shape).first(part.shape.size() - 1)) rows *= extent;
  return {rows, part.shape.back()};
}

constexpr std::array kLayouts{TileLayout::nz, TileLayout::zn, TileLayout::cube_m16, TileLayout::cube_m32,
                              TileLayout::cube_n8};

class Collector {
 public:
  Collector(const DiffInputs& inputs, const Elements& elements, std::span<const Comparison> comparisons)
      : inputs_(inputs), elements_(elements), comparisons_(comparisons) {}

  std::vector<Variant> run() {
    for (std::size_t i = 0; i < inputs_.parts.size(); ++i) {
      if (elements_.offset(i + 1) != elements_.offset(i)) result(inputs_.parts[i], comparisons_[i]);
    }
    const bool known = inputs_.conversion || inputs_.quantization || inputs_.product;
    if (!known) from_result_alone();
    scale_step();
    if (inputs_.conversion) conversion(*inputs_.conversion);
    if (inputs_.quantization) quantization(*inputs_.quantization);
    if (inputs_.product && inputs_.product->options.profile->kind != Accumulation::raw_carrier)
      product(*inputs_.product);
    // The order of the table, and within a hypothesis the order above.
    std::stable_sort(variants_.begin(), variants_.end(),
                     [](const Variant& a, const Variant& b) { return find_hypothesis(a.id) < find_hypothesis(b.id); });
    return std::move(variants_);
  }

 private:
  static std::string titled(std::string_view id, std::string_view rest) {
    return rest.empty() ? std::string(find_hypothesis(id)->title)
                        : fmt::format("{}: {}", find_hypothesis(id)->title, rest);
  }
  Variant& add(std::string_view id, std::string_view rest, std::string slot, bool recomputes,
               std::function<void(Faults&)> plant) {
    Variant v;
    v.id = id;
    v.title = titled(id, rest);
    v.slot = std::move(slot);
    v.recomputes = recomputes;
    const auto is_one_of = [&](std::initializer_list<std::string_view> ids) {
      return std::find(ids.begin(), ids.end(), id) != ids.end();
    };
    v.fitted = is_one_of({"factor", "scale-step", "shifted", "padding", "group-length", "k-blocks"});
    v.reencodes =
        is_one_of({"nibble-order", "byte-order", "micro-bit-order", "scales-transposed", "transposed", "layout"});
    v.plant = [plant = std::move(plant), recomputes](Faults& f) {
      plant(f);
      f.recompute = f.recompute || recomputes;
    };
    return variants_.emplace_back(std::move(v));
  }
  void spoil(std::string_view id, std::string_view rest, std::string slot, std::function<void(Faults&)> plant) {
    add(id, rest, std::move(slot), true, std::move(plant));
  }
  /// Words of a part, in place.
  Variant& words(std::string_view id, std::string_view rest, const ComparedPart& part, Faults::WordFault change) {
    const PartRole role = part.role;
    return add(id, rest, part.name + " words", false, [role, change = std::move(change)](Faults& f) {
      f.words.push_back([role, change](const ComparedPart& p, uint64 index, uint64 word, uint64 dut) {
        return p.role == role ? change(p, index, word, dut) : word;
      });
    });
  }
  Variant& places(std::string_view id, std::string_view rest, const ComparedPart& part, Faults::PlaceFault move,
                  bool rest_is_zero = false) {
    const PartRole role = part.role;
    return add(id, rest, part.name + " places", false, [role, move = std::move(move), rest_is_zero](Faults& f) {
      f.places.push_back([role, move](const ComparedPart& p, uint64 index) -> std::optional<uint64> {
        return p.role == role ? move(p, index) : index;
      });
      f.rest_is_zero = f.rest_is_zero || rest_is_zero;
    });
  }
  void hint(std::string_view id, std::string_view rest, const ComparedPart& part, std::string remedy,
            std::function<bool(const Format&, const Value& golden, const Value& dut, uint64 g, uint64 d)> looks_like) {
    Variant& v = words(id, rest, part,
                       [looks_like = std::move(looks_like)](const ComparedPart& p, uint64, uint64 word, uint64 dut) {
                         if (word == dut) return word;
                         const Format& f = *p.format;
                         return looks_like(f, decode(f, word), decode(f, dut), word, dut) ? dut : word;
                       });
    v.looks_at_dut = true;
    v.provable = false;
    v.remedy = std::move(remedy);
  }

  // ---- What changes words that were computed

  void result(const ComparedPart& part, const Comparison& comparison) {
    const Format& f = *part.format;
    const auto [rows, columns] = matrix_of(part);
    const uint64 count = rows * columns;
    const bool named = inputs_.parts.size() > 1;
    const std::string what = named ? part.name : "";
    const auto with = [&](std::string_view text) {
      return named ? fmt::format("{}, {}", part.name, text) : std::string(text);
    };

    if (f.lane_bits == 4) {
      places("nibble-order", what, part, [](const ComparedPart& p, uint64 i) -> std::optional<uint64> {
        const uint64 n = p.shape.back();
        const uint64 column = i % n;
        if ((column ^ 1) >= n) return std::nullopt;  // it shares its byte with no lane
        return i - column + (column ^ 1);
      });
    }
    if (f.carrier_bits >= 16) {
      words("byte-order", what, part, [](const ComparedPart& p, uint64, uint64 word, uint64) {
        return __builtin_bswap64(word) >> (64 - p.format->carrier_bits);
      });
    }
    if (part.role == PartRole::scales && f.type == DataType::u32) {
      const auto reversed = [](uint64 field, int bits) {
        uint64 out = 0;
        for (int i = 0; i < bits; ++i) out |= ((field >> i) & 1) << (bits - 1 - i);
        return out;
      };
      for (const unsigned which : {3U, 1U, 2U}) {
        const char* const fields = which == 3 ? "E1_8 and E1_16, MSB first" : which == 1 ? "E1_8 alone" : "E1_16 alone";
        words("micro-bit-order", fields, part, [which, reversed](const ComparedPart&, uint64, uint64 word, uint64) {
          if ((which & 1U) != 0) word = (word & ~uint64{0xFF00}) | reversed((word >> 8) & 0xFF, 8) << 8;
          if ((which & 2U) != 0) word = (word & 0xFFFF) | reversed((word >> 16) & 0xFFFF, 16) << 16;
          return word;
        });
      }
    }
    if (rows > 1 && columns > 1) {
      const std::string_view id = part.role == PartRole::scales ? "scales-transposed" : "transposed";
      places(id, part.role == PartRole::scales ? "" : what, part,
             [rows = rows, columns = columns](const ComparedPart&, uint64 i) -> std::optional<uint64> {
               return i % columns * rows + i / columns;
             });
      if (rows != columns) {
        places(id, with("read with rows and columns exchanged"), part,
               [rows = rows, columns = columns](const ComparedPart&, uint64 i) -> std::optional<uint64> {
                 return i % rows * columns + i / rows;
               });
      }
    }
    if (part.role != PartRole::scales) {
      for (const TileLayout layout : kLayouts) {
        const auto map = StorageMap::make(layout, f.lane_bits, rows, columns);
        if (!map) continue;
        const auto shared = std::make_shared<const StorageMap>(*map);
        places("layout", with(fmt::format("as stored in {}", name_of(layout))), part,
               [shared](const ComparedPart&, uint64 i) -> std::optional<uint64> { return shared->stored(i); });
        places("layout", with(fmt::format("read as {}, which it is not", name_of(layout))), part,
               [shared](const ComparedPart&, uint64 i) -> std::optional<uint64> { return shared->flat(i); });
      }
      for (const unsigned alignment : {8U, 16U, 32U, 64U, 128U, 256U}) {
        if (rows < 2 || columns % alignment == 0) continue;
        const uint64 stride = (columns / alignment + 1) * alignment;
        places(
            "padding", with(fmt::format("rows of {} instead of {}", stride, columns)), part,
            [count, stride, columns = columns](const ComparedPart&, uint64 i) -> std::optional<uint64> {
              const uint64 to = i / columns * stride + i % columns;
              return to < count ? std::optional(to) : std::nullopt;
            },
            true);
      }
      std::vector<std::pair<int64, std::string>> shifts{{1, "one element"}};
      const auto shift = [&](uint64 by, std::string text) {
        const bool known =
            std::any_of(shifts.begin(), shifts.end(), [&](const auto& s) { return s.first == static_cast<int64>(by); });
        if (by != 0 && !known) shifts.emplace_back(static_cast<int64>(by), std::move(text));
      };
      if (rows > 1) shift(columns, "one row");
      shift(part.group, fmt::format("one group of {}", part.group));
      shift(2, "two elements");
      for (const unsigned tile : {16U, 32U, 64U}) shift(tile, fmt::format("{} elements", tile));
      if (rows > 1) {
        for (const unsigned tile : {16U, 32U}) shift(tile * columns, fmt::format("{} rows", tile));
      }
      for (const auto& [by, text] : shifts) {
        if (static_cast<uint64>(by) > count / 4) continue;
        for (const int64 signed_by : {by, -by}) {
          places("shifted", with(fmt::format("{} {}", text, signed_by > 0 ? "late" : "early")), part,
                 [count, signed_by](const ComparedPart&, uint64 i) -> std::optional<uint64> {
                   const uint64 to = i + static_cast<uint64>(signed_by);
                   return to < count ? std::optional(to) : std::nullopt;
                 });
        }
      }
      factor(part, comparison, with);
      if (is_float(f) && f.subnormal_class) {
        for (const bool sign : {true, false}) {
          words("subnormals-flushed", with(sign ? "with their sign" : "to +0"), part,
                [sign](const ComparedPart& p, uint64, uint64 word, uint64) {
                  const Value v = decode(*p.format, word);
                  return v.cls == Class::subnormal ? zero_code(*p.format, sign && v.real.negative) : word;
                });
        }
      }
      if (f.sign_bits != 0 && !inputs_.product) {
        words("relu-missing", with("applied where there is none"), part,
              [](const ComparedPart& p, uint64, uint64 word, uint64) {
                const Value v = decode(*p.format, word);
                return !v.is_nan() && v.real.negative ? 0 : word;
              });
      }
    }
  }

  template <typename With>
  void factor(const ComparedPart& part, const Comparison& comparison, const With& with) {
    const Format& f = *part.format;
    if (part.role != PartRole::result) return;
    for (const Mismatch& m : comparison.first) {
      const Value g = decode(f, m.golden);
      const Value d = decode(f, m.dut);
      if (!g.is_finite() || !d.is_finite() || g.real.is_zero() || d.real.is_zero()) continue;
      const int power = floor_log2(d.real) - floor_log2(g.real);
      const bool negative = g.real.negative != d.real.negative;
      if (power == 0 && !negative) continue;
      words("factor", with(fmt::format("by {}2^{}", negative ? "-" : "", power)), part,
            [power, negative](const ComparedPart& p, uint64, uint64 word, uint64) {
              const Format& format = *p.format;
              const Value v = decode(format, word);
              if (v.is_nan()) return word;
              Real real = scale_by_power_of_two(v.real, power);
              real.negative = real.negative != negative;
              return convert_value(format, v.cls, real, {}).bits;
            });
      return;
    }
  }

  void from_result_alone() {
    for (const ComparedPart& part : inputs_.parts) {
      if (part.role == PartRole::scales) continue;
      const std::string give = part.role == PartRole::codes
                                   ? "give what was quantised (--source) to be certain"
                                   : "give what was computed (--from-array, or --a and --b) to be certain";
      const Format& f = *part.format;
      hint("saturation", "off where GOLDEN has the largest value", part, give,
           [](const Format& format, const Value&, const Value& d, uint64 word, uint64) {
             const uint64 magnitude = format.is_integer() ? word : word & ~with_sign(format, 0, true);
             const bool limit = magnitude == format.max_finite ||
                                (format.kind == Kind::signed_integer && word == format.max_finite + 1);
             return limit && (format.is_integer() || !d.is_finite());  // integers wrap
           });
      hint("saturation", "on where GOLDEN overflows", part, give,
           [](const Format& format, const Value& g, const Value&, uint64, uint64 d) {
             const uint64 magnitude = d & ~with_sign(format, 0, true);
             return is_float(format) && !g.is_finite() && magnitude == format.max_finite;
           });
      if (f.sign_bits != 0 && !has_negative(part)) {
        hint("relu-missing", "left out, so there are negative values", part, give,
             [](const Format&, const Value& g, const Value& d, uint64, uint64) {
               return g.cls == Class::zero && !d.is_nan() && d.real.negative;
             });
      }
      tie_hints(part, give);
    }
  }

  /// Whether GOLDEN has values below 0, as no result of a ReLU has.
  static bool has_negative(const ComparedPart& part) {
    uint64 count = 1;
    for (const uint64 extent : part.shape) count *= extent;
    for (uint64 i = 0; i < count; ++i) {
      const Value v = decode(*part.format, lane_of(part, part.golden, i));
      if (!v.is_nan() && v.cls != Class::zero && v.real.negative) return true;
    }
    return false;
  }

  void tie_hints(const ComparedPart& part, const std::string& give) {
    using Test = bool (*)(const Value& g, const Value& d);
    const auto larger = [](const Value& g, const Value& d) { return compare_magnitude(d.real, g.real) > 0; };
    const auto upward = [](const Value& g, const Value& d) {
      return d.real.negative == g.real.negative ? (compare_magnitude(d.real, g.real) > 0) != g.real.negative
                                                : g.real.negative;
    };
    const auto neighbours = [](const Format& f, uint64 g, uint64 d) { return ulp_distance(f, g, d) == uint64{1}; };
    const auto odd = [](const Format& f, uint64 word) { return ((word >> f.low_zero_bits) & 1) != 0; };
    struct Tie {
      const char* text;
      Test test;
      bool golden_even;
    };
    const auto any = [](const Value&, const Value&) { return true; };
    const std::array<Tie, 6> ties{{
        {"away from zero (RNA) instead of to even", +larger, true},
        {"upward (RHB) instead of to even", +upward, true},
        {"to even (RNE) instead of away from zero",
         [](const Value& g, const Value& d) { return compare_magnitude(d.real, g.real) < 0; }, false},
        {"to even (RNE) instead of upward",
         [](const Value& g, const Value& d) { return compare_magnitude(d.real, g.real) != 0; }, false},
        {"not to even: neighbours, GOLDEN's code always even", +any, true},
        {"to even: neighbours, DUT's code always even", +any, false},
    }};
    // The coin of every mismatch falls on the same side: with fewer than 8 that is chance.
    const Comparison& c = comparisons_[static_cast<std::size_t>(&part - inputs_.parts.data())];
    if (c.mismatches < 8) return;
    // Of values whose last bit is cut half are ties, and of those half round otherwise: more is something else.
    const bool too_many = c.mismatches > c.elements / 5 * 2;
    for (const Tie& tie : ties) {
      if (too_many) break;
      hint("tie-rule", tie.text, part, give,
           [tie, neighbours, odd](const Format& f, const Value& g, const Value& d, uint64 gw, uint64 dw) {
             if (!g.is_finite() || !d.is_finite() || !neighbours(f, gw, dw)) return false;
             return odd(f, gw) != tie.golden_even && odd(f, dw) == tie.golden_even && tie.test(g, d);
           });
    }
    hint("truncation", "neighbours, DUT always the smaller magnitude", part, give,
         [neighbours](const Format& f, const Value& g, const Value& d, uint64 gw, uint64 dw) {
           return g.is_finite() && d.is_finite() && neighbours(f, gw, dw) && compare_magnitude(d.real, g.real) < 0;
         });
    for (const bool up : {true, false}) {
      hint("rounding-mode", up ? "neighbours, DUT always the greater (RTP)" : "neighbours, DUT always the lower (RTM)",
           part, give, [up, upward, neighbours](const Format& f, const Value& g, const Value& d, uint64 gw, uint64 dw) {
             return g.is_finite() && d.is_finite() && neighbours(f, gw, dw) && upward(g, d) == up;
           });
    }
  }

  void scale_step() {
    const auto scales = std::find_if(inputs_.parts.begin(), inputs_.parts.end(),
                                     [](const ComparedPart& p) { return p.role == PartRole::scales; });
    if (scales == inputs_.parts.end()) return;
    const Comparison& c = comparisons_[static_cast<std::size_t>(scales - inputs_.parts.begin())];
    if (c.mismatches == 0) return;
    const auto step = [&](std::string_view text, bool lanes_follow) {
      Variant& v = add("scale-step", text, scales->name + " words", lanes_follow, [lanes_follow](Faults& f) {
        f.scales_of_dut = lanes_follow;
        f.words.push_back([](const ComparedPart& p, uint64, uint64 word, uint64 dut) {
          return is_scale_step(p, word, dut) ? dut : word;
        });
      });
      v.looks_at_dut = true;
      // A flipped bit may be a step as well; several are none by chance.
      v.provable = c.mismatches >= 4;
      if (!v.provable) v.remedy = "few scales differ: that may be chance";
    };
    if (!inputs_.quantization) return step("", false);
    step("lanes follow from the scales", true);
    step("lanes as they were", false);
  }

  // ---- Conversion

  void conversion(const ConversionInputs& in) {
    const Format& to = *inputs_.parts.front().format;
    for (const RoundingInfo& info : roundings) {
      if (info.mode == in.control.rounding || !rounding_legal(*in.from, to, info.mode)) continue;
      spoil(rounding_id(in.control.rounding, info.mode), instead(info.name, name_of(in.control.rounding)), "rounding",
            [mode = info.mode](Faults& f) { f.control.rounding = mode; });
    }
    spoil("saturation", in.control.saturate ? "off" : "on", "saturation",
          [on = !in.control.saturate](Faults& f) { f.control.saturate = on; });
    for (const ConversionProfile& profile : conversion_profiles) {
      if (&profile == in.control.profile) continue;
      spoil("conversion-profile", instead(profile.name, in.control.profile->name), "profile",
            [&profile](Faults& f) { f.control.profile = &profile; });
    }
    for (const DataType type : {DataType::bf16, DataType::fp16, DataType::fp32, DataType::tf32}) {
      const Format& via = format_of(type);
      const bool narrower = via.lane_bits < in.from->lane_bits || (type == DataType::tf32 && in.from->lane_bits == 32);
      if (&via == in.from || via.fraction_bits <= to.fraction_bits || !narrower) continue;
      if (!conversion_legal(*in.from, via) || !conversion_legal(via, to)) continue;
      spoil("double-rounding", fmt::format("through {}", via.name), "via", [&via](Faults& f) { f.via = &via; });
    }
    for (const Format& other : formats) {
      if (&other == in.from || other.lane_bits != in.from->lane_bits || other.is_integer() != in.from->is_integer())
        continue;
      if (other.low_zero_bits != 0 || other.kind == Kind::scale || !conversion_legal(other, to)) continue;
      spoil("decoded-as", instead(other.name, in.from->name), "source", [&other](Faults& f) { f.from = &other; });
    }
  }

  // ---- Quantisation

  void quantization(const QuantizationInputs& in) {
    const BlockFormat& block = *in.options.format;
    if (block.is_hif4()) {
      const Hif4Profile& p = *in.options.profile;
      for (const RoundingInfo& info : roundings) {
        if (info.mode == p.lane_rounding) continue;
        // Lanes are rounded as magnitudes, where RHB is RNA, RTM is RTZ and RTP is away from zero.
        if (info.mode == Rounding::rhb || info.mode == Rounding::rtm) continue;
        spoil(rounding_id(p.lane_rounding, info.mode),
              fmt::format("lanes {}",
                          instead(info.mode == Rounding::rtp ? "away from zero" : info.name, name_of(p.lane_rounding))),
              "rounding", [mode = info.mode](Faults& f) { f.hif4.lane_rounding = mode; });
      }
      for (const Rounding mode : {Rounding::rne, Rounding::rna, Rounding::rtz, Rounding::rtp}) {
        if (mode == p.scale_rounding) continue;
        spoil("scale-rule", fmt::format("E6M2 rounded {}", instead(name_of(mode), name_of(p.scale_rounding))),
              "scale rounding", [mode](Faults& f) { f.hif4.scale_rounding = mode; });
      }
      spoil("scale-rule", p.one_seventh ? "the maximum itself instead of 1/7 of it" : "1/7 of the maximum",
            "one seventh", [](Faults& f) { f.hif4.one_seventh = !f.hif4.one_seventh; });
      spoil("products", p.bf16_products ? "exact instead of rounded to BF16" : "rounded to BF16 instead of exact",
            "products", [](Faults& f) { f.hif4.bf16_products = !f.hif4.bf16_products; });
    } else {
      for (const RoundingInfo& info : roundings) {
        if (info.mode == in.options.rounding) continue;
        spoil(rounding_id(in.options.rounding, info.mode), instead(info.name, name_of(in.options.rounding)), "rounding",
              [mode = info.mode](Faults& f) { f.lane_rounding = mode; });
      }
    }
    if (block.is_mx()) {
      for (const ScaleRule& rule : scale_rules) {
        if (&rule == in.options.scale_rule) continue;
        spoil("scale-rule", instead(rule.name, in.options.scale_rule->name), "scale rule",
              [rounding = rule.rounding](Faults& f) { f.scale_rule = rounding; });
      }
      for (const BlockFormat& other : block_formats) {
        if (!other.is_mx() || other.element == block.element || other.element->value_bits != block.element->value_bits)
          continue;
        spoil("element-format", instead(other.element->name, block.element->name), "element",
              [element = other.element](Faults& f) { f.element = element; });
      }
    }
    if (block.is_nvfp4() && in.options.tensor_scale) {
      spoil("scale-rule", "no tensor scale", "tensor scale", [](Faults& f) { f.unit_tensor_scale = true; });
    }
    for (const std::size_t group : {std::size_t{16}, std::size_t{32}, std::size_t{64}, std::size_t{128}}) {
      const bool fits = block.is_hif4() ? group < block.group : block.is_nvfp4() ? group <= 32 : group <= 128;
      if (group == block.group || !fits) continue;
      spoil("group-length", instead(std::to_string(group), std::to_string(block.group)), "group",
            [group](Faults& f) { f.group = group; });
    }
  }

  // ---- Product

  void side(Side which, const Operand& operand) {
    const std::string letter = which == Side::a ? "A" : "B";
    const auto faults = [which](Faults& f) -> SideFaults& { return which == Side::a ? f.a : f.b; };
    const auto of = [&](std::string_view text) { return fmt::format("{} of {}", text, letter); };
    if (operand.format->lane_bits == 4) {
      spoil("nibble-order", of("lanes"), letter + " lanes", [faults](Faults& f) { faults(f).swap_k = true; });
      spoil("nibble-order", fmt::format("neighbouring {} of {}", which == Side::a ? "rows" : "columns", letter),
            letter + " lanes", [faults](Faults& f) { faults(f).swap_lines = true; });
    }
    if (operand.lines == operand.k) {
      spoil("transposed", letter, letter + " lanes", [faults](Faults& f) { faults(f).transposed = true; });
    }
    const bool columns_last = operand.lanes.line_stride == 1 && operand.lanes.lane_stride != 1;
    const uint64 rows = columns_last ? operand.k : operand.lines;
    const uint64 columns = columns_last ? operand.lines : operand.k;
    for (const TileLayout layout : kLayouts) {
      const auto map = StorageMap::make(layout, operand.format->lane_bits, rows, columns);
      if (!map) continue;
      const auto shared = std::make_shared<const StorageMap>(*map);
      spoil("layout", fmt::format("{} in {} was read as row-major", letter, name_of(layout)), letter + " lanes",
            [faults, shared](Faults& f) {
              faults(f).layout = shared.get();
              faults(f).is_stored = true;
            });
      spoil("layout", fmt::format("{} was read as {}, which it is not", letter, name_of(layout)), letter + " lanes",
            [faults, shared](Faults& f) { faults(f).layout = shared.get(); });
    }
    for (const Format& other : formats) {
      if (&other == operand.format || other.lane_bits != operand.format->lane_bits) continue;
      if (other.is_integer() != operand.format->is_integer() || other.kind == Kind::scale || other.low_zero_bits != 0)
        continue;
      if (other.lane_bits > 32 || (other.is_integer() && other.kind != operand.format->kind)) continue;
      // Lanes of HiF4 and of E1M2 have the same values.
      const auto same = [](const Format& x) { return x.type == DataType::hif4x2 || x.type == DataType::e1m2x2; };
      if (same(other) && same(*operand.format)) continue;
      spoil("decoded-as", fmt::format("{} as {}", letter, instead(other.name, operand.format->name)),
            letter + " format", [faults, &other](Faults& f) { faults(f).format = &other; });
    }
    if (!operand.scaled()) return;
    const bool is_hif4 = operand.format->type == DataType::hif4x2;
    if (is_hif4) {
      spoil("byte-order", of("scale words"), letter + " scale words", [faults](Faults& f) {
        faults(f).micro_first = faults(f).reversed_micro != 0;
        faults(f).swapped_scale_bytes = true;
      });
      for (const unsigned fields : {3U, 1U, 2U}) {
        spoil("micro-bit-order",
              fmt::format("{}, {}", letter,
                          fields == 3   ? "E1_8 and E1_16"
                          : fields == 1 ? "E1_8 alone"
                                        : "E1_16 alone"),
              letter + " scale words", [faults, fields](Faults& f) { faults(f).reversed_micro = fields; });
      }
    }
    const std::size_t own = scale_group(*operand.format);
    const std::size_t groups = (operand.k + own - 1) / own;
    if (groups > 1 && operand.lines > 1) {
      spoil("scales-transposed", letter, letter + " scales",
            [faults](Faults& f) { faults(f).scales = SideFaults::Scales::by_lines; });
      spoil("scales-transposed", fmt::format("{}, the other way round", letter), letter + " scales",
            [faults](Faults& f) { faults(f).scales = SideFaults::Scales::by_groups; });
    }
    spoil("scales-ignored", letter, letter + " scales",
          [faults](Faults& f) { faults(f).scales = SideFaults::Scales::ignored; });
    for (const std::size_t group : {std::size_t{16}, std::size_t{32}, std::size_t{64}, std::size_t{128}}) {
      if (group == own || (is_hif4 && group > own) || operand.k <= std::min(group, own)) continue;
      spoil("group-length", fmt::format("{}, {}", letter, instead(std::to_string(group), std::to_string(own))),
            letter + " group", [faults, group](Faults& f) { faults(f).group = group; });
    }
  }

  void both_sides(const ProductInputs& in) {
    if (!in.a.scaled() || !in.b.scaled() || in.a.format != in.b.format) return;
    const bool is_hif4 = in.a.format->type == DataType::hif4x2;
    const auto both = [&](std::string_view id, const std::string& text, std::function<void(SideFaults&)> plant) {
      spoil(id, text, "A and B", [plant = std::move(plant)](Faults& f) {
        plant(f.a);
        plant(f.b);
      });
    };
    if (in.a.format->lane_bits == 4) both("nibble-order", "lanes of A and B", [](SideFaults& s) { s.swap_k = true; });
    if (is_hif4) {
      both("byte-order", "scale words of A and B", [](SideFaults& s) {
        s.micro_first = s.reversed_micro != 0;
        s.swapped_scale_bytes = true;
      });
      both("micro-bit-order", "A and B, E1_8 and E1_16", [](SideFaults& s) { s.reversed_micro = 3; });
    }
    const std::size_t own = scale_group(*in.a.format);
    if (in.a.k > own)
      both("scales-transposed", "A and B", [](SideFaults& s) { s.scales = SideFaults::Scales::by_lines; });
    both("scales-ignored", "A and B", [](SideFaults& s) { s.scales = SideFaults::Scales::ignored; });
    if (in.a.k > 32) {
      const std::size_t group = own == 64 ? 32 : 64;
      both("group-length", fmt::format("A and B, {}", instead(std::to_string(group), std::to_string(own))),
           [group](SideFaults& s) { s.group = group; });
    }
  }

  void product(const ProductInputs& in) {
    side(Side::a, in.a);
    side(Side::b, in.b);
    both_sides(in);
    const bool integers = in.a.format->is_integer();
    if (in.a.lines == in.a.k && in.b.lines == in.b.k && in.a.lines == in.b.lines && !in.a.scaled() && !in.b.scaled()) {
      spoil("operands-exchanged", "", "operands", [](Faults& f) { f.exchanged = true; });
    }
    const PostprocessOptions& post = in.postprocess;
    if (in.options.bias) {
      spoil("bias-missing", "", "bias", [](Faults& f) { f.bias = BiasUse::missing; });
      if (post.mode->carrier == CarrierKind::scale || post.relu != Relu::none) {
        spoil("bias-scaling",
              post.mode->carrier == CarrierKind::scale ? "added after the scale of the post-process"
                                                       : "added after the activation",
              "bias", [](Faults& f) { f.bias = BiasUse::after_scaling; });
      }
      if ((in.a.scaled() || in.b.scaled()) && !integers) {
        spoil("bias-scaling", "added before the scales of the groups", "bias",
              [](Faults& f) { f.bias = BiasUse::group_scaled; });
      }
      if (!integers)
        spoil("bias-order", "before the first product", "bias", [](Faults& f) { f.bias = BiasUse::first; });
      spoil("bias-order", "twice", "bias", [](Faults& f) { f.bias = BiasUse::twice; });
    }
    if (in.options.c) {
      spoil("c-missing", "", "C", [](Faults& f) { f.c = CUse::missing; });
      if (!integers) {
        spoil("c-last", in.options.bias ? "before the bias" : "", "C", [](Faults& f) { f.c = CUse::last; });
        if (in.options.bias) spoil("c-last", "after the bias", "C", [](Faults& f) { f.c = CUse::after_bias; });
      }
    }
    if (!integers) {
      for (const AccumulationProfile& profile : accumulation_profiles) {
        if (profile.kind == Accumulation::raw_carrier || &profile == in.options.profile) continue;
        spoil("accumulation", instead(profile.name, in.options.profile->name), "accumulation",
              [&profile](Faults& f) { f.profile = &profile; });
      }
      for (std::size_t block = 8; block < in.a.k && block <= 1024; block *= 2) {
        spoil("k-blocks", fmt::format("{} lanes each, added to the sum", block), "k",
              [block](Faults& f) { f.k_block = block; });
        spoil("k-blocks", fmt::format("{} lanes each, exact within", block), "accumulation", [block](Faults& f) {
          f.profile = find_accumulation_profile("group");
          f.accumulation_group = block;
        });
      }
      spoil("k-order", "", "k", [](Faults& f) { f.k_reversed = true; });
    }
    postprocess(post);
  }

  void postprocess(const PostprocessOptions& post) {
    const PreQuantMode& mode = *post.mode;
    const bool converts = mode.code != no_quant.code && mode.carrier != CarrierKind::shift;
    if (converts) {
      const Rounding right =
          mode.rounding_rule == RoundingRule::fixed ? mode.rounding : post.rounding.value_or(Rounding::rne);
      for (const RoundingInfo& info : roundings) {
        if (info.mode == right) continue;
        spoil(rounding_id(right, info.mode), instead(info.name, name_of(right)), "rounding",
              [wrong = info.mode](Faults& f) { f.rounding = wrong; });
      }
      spoil("saturation", post.saturate ? "off" : "on", "saturation",
            [on = !post.saturate](Faults& f) { f.saturate = on; });
      if (mode.offset_bits != 0) {
        for (const bool on : {false, true}) {
          spoil("saturation",
                on ? "on, but not before the offset is added" : "off, and wraps without intermediate saturation",
                "saturation", [on](Faults& f) {
                  f.saturate = on;
                  f.no_intermediate = true;
                });
        }
      }
      for (const ConversionProfile& profile : conversion_profiles) {
        if (&profile == post.profile) continue;
        spoil("conversion-profile", instead(profile.name, post.profile->name), "profile",
              [&profile](Faults& f) { f.conversion_profile = &profile; });
      }
    }
    if (post.relu != Relu::none) {
      spoil("relu-missing", "left out", "relu", [](Faults& f) { f.relu = Relu::none; });
      if (post.relu != Relu::relu)
        spoil("relu-missing", "ReLU instead of its parameter", "relu", [](Faults& f) { f.relu = Relu::relu; });
      if (post.relu == Relu::relu) spoil("relu-after", "", "relu", [](Faults& f) { f.relu_after = true; });
    } else if (mode.carrier != CarrierKind::shift) {
      spoil("relu-missing", "applied where there is none", "relu", [](Faults& f) { f.relu = Relu::relu; });
      spoil("relu-after", "and there should be none", "relu", [](Faults& f) { f.relu_after = true; });
    }
    const bool has_offset = mode.offset_bits != 0 &&
                            std::any_of(post.quant_carriers.begin(), post.quant_carriers.end(), [&](uint64 carrier) {
                              return unpack_quant_carrier(carrier, mode.offset_bits).offset != 0;
                            });
    if (has_offset) {
      spoil("offset", "left out", "offset", [](Faults& f) { f.no_offset = true; });
      spoil("offset", "added before rounding", "offset", [](Faults& f) { f.offset_first = true; });
    }
    if (mode.carrier == CarrierKind::scale) {
      spoil("parameter", "scale left out", "parameter", [](Faults& f) { f.no_scale = true; });
    }
    if (mode.per_column || post.relu == Relu::per_column) {
      spoil("parameter", "that of column 0 for all", "parameter", [](Faults& f) { f.first_parameter = true; });
    }
  }

  const DiffInputs& inputs_;
  const Elements& elements_;
  std::span<const Comparison> comparisons_;
  std::vector<Variant> variants_;
};

}  // namespace

std::vector<Variant> variants_of(const DiffInputs& inputs, const Elements& elements,
                                 std::span<const Comparison> comparisons) {
  return Collector(inputs, elements, comparisons).run();
}

}  // namespace compare_detail
}  // namespace bitcube
