#include "compare/predict.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "bitcube/cube/matrix_operand.hpp"
#include "bitcube/numeric/convert.hpp"
#include "bitcube/quantize/lines.hpp"

namespace bitcube::compare_detail {

/// Lines of a side under its faults, in a form that the product takes: integers as they are, all else as FP32, which
/// holds every scaled lane that has no extreme scale; with those, as terms for the definition.
struct Gathered {
  std::vector<std::uint8_t> bytes;
  std::vector<Term> terms;  // only where FP32 does not hold a lane
  Operand operand;
};

struct SampleCache {
  std::mutex mutex;
  std::optional<Gathered> a;
  std::optional<Gathered> b;
  std::optional<std::vector<std::uint32_t>> sums;
};

Elements::Elements(std::span<const ComparedPart> parts) : parts_(parts), offsets_{0} {
  for (const ComparedPart& part : parts) {
    uint64 count = 1;
    for (const uint64 extent : part.shape) count *= extent;
    offsets_.push_back(offsets_.back() + count);
  }
}

std::pair<std::size_t, uint64> Elements::locate(uint64 index) const noexcept {
  std::size_t part = 0;
  while (index >= offsets_[part + 1]) ++part;
  return {part, index - offsets_[part]};
}

uint64 Elements::golden(uint64 index) const noexcept {
  const auto [part, local] = locate(index);
  return lane_of(parts_[part], parts_[part].golden, local);
}

uint64 Elements::dut(uint64 index) const noexcept {
  const auto [part, local] = locate(index);
  return lane_of(parts_[part], parts_[part].dut, local);
}

bool is_scale_step(const ComparedPart& scales, uint64 golden, uint64 dut) noexcept {
  const uint64 a = golden & 0xFF;
  const uint64 b = dut & 0xFF;
  return scales.role == PartRole::scales && (a + 1 == b || b + 1 == a);
}

namespace {

constexpr uint64 kPiece = uint64{1} << 16;
constexpr int kWide = 48;  // bits of an integer that no product of a post-process leaves

/// Up to `count` of a list, spread over it.
template <typename T>
std::vector<T> spread(std::span<const T> all, std::size_t count) {
  if (all.size() <= count) return {all.begin(), all.end()};
  std::vector<T> some;
  some.reserve(count);
  for (std::size_t i = 0; i < count; ++i) some.push_back(all[i * all.size() / count]);
  return some;
}

template <typename T>
void sort_unique(std::vector<T>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

/// Sources whose elements are computed one by one.
class ElementSource : public Source {
 public:
  explicit ElementSource(const Elements& elements) : elements_(elements) {}

  Sample around(std::span<const uint64> indices, std::size_t size) const override {
    Sample sample{.indices = spread(indices, size * 2 / 3)};
    const uint64 total = elements_.total();
    const std::size_t others = std::min<uint64>(size - sample.indices.size(), total);
    for (std::size_t i = 0; i < others; ++i) {
      sample.indices.push_back(static_cast<uint64>(static_cast<uint128>(total) * i / others));
    }
    sort_unique(sample.indices);
    return sample;
  }
  std::size_t pieces() const override { return static_cast<std::size_t>((elements_.total() + kPiece - 1) / kPiece); }
  Sample piece(std::size_t i) const override {
    Sample sample;
    const uint64 begin = i * kPiece;
    const uint64 end = std::min(begin + kPiece, elements_.total());
    sample.indices.reserve(static_cast<std::size_t>(end - begin));
    for (uint64 index = begin; index < end; ++index) sample.indices.push_back(index);
    return sample;
  }

 protected:
  const Elements& elements_;
};

class GoldenSource final : public ElementSource {
 public:
  using ElementSource::ElementSource;

  Expected<Predicted> evaluate(const Faults&, const Sample& sample) const override {
    Predicted out;
    out.words.reserve(sample.indices.size());
    for (const uint64 index : sample.indices) out.words.push_back(elements_.golden(index));
    return out;
  }
};

/// HiF4X2 is in no TCVT pair; its lanes are those of E1M2X2.
const Format& lane_format(const Format& f) noexcept {
  return f.type == DataType::hif4x2 ? format_of(DataType::e1m2x2) : f;
}

class ConversionSource final : public ElementSource {
 public:
  ConversionSource(const Elements& elements, const ConversionInputs& inputs)
      : ElementSource(elements), inputs_(inputs) {}

  Faults faults() const override {
    Faults out;
    out.from = inputs_.from;
    out.control = inputs_.control;
    return out;
  }

  Expected<Predicted> evaluate(const Faults& faults, const Sample& sample) const override {
    const Format& to = lane_format(*elements_.parts().front().format);
    const Format& from = lane_format(*faults.from);
    const std::size_t size = inputs_.from->carrier_bits / 8;
    Predicted out;
    out.words.reserve(sample.indices.size());
    for (const uint64 index : sample.indices) {
      uint64 word = load_word(inputs_.words.data() + index * size, size) & low_mask(inputs_.from->lane_bits);
      const Format* source = &from;
      if (faults.via != nullptr) {
        word = convert(from, *faults.via, word, {.rounding = Rounding::rne}).bits;
        source = faults.via;
      }
      out.words.push_back(convert(*source, to, word, faults.control).bits);
    }
    return out;
  }

 private:
  const ConversionInputs& inputs_;
};

// ---- Quantisation

/// Lanes of a line that are computed together: whole groups, also of twice the length.
constexpr uint64 kUnit = 128;

class QuantizationSource final : public Source {
 public:
  QuantizationSource(const Elements& elements, const QuantizationInputs& inputs)
      : elements_(elements), inputs_(inputs), format_(*inputs.options.format) {
    lines_of(inputs.shape, inputs.axis, lines_);
    groups_ = format_.groups(lines_.length);
    units_ = (lines_.length + kUnit - 1) / kUnit;
    has_scales_ = elements.parts().size() > 1;
    if (format_.is_nvfp4() && inputs.options.tensor_scale) {
      if (inputs.options.given_scale) {
        tensor_scale_ = *inputs.options.given_scale;
      } else if (const auto amax = largest_magnitude(inputs.words, *inputs.source)) {
        tensor_scale_ = nvfp4_tensor_scale(*amax);
      }
    }
  }

  Faults faults() const override {
    Faults out;
    if (format_.is_hif4()) out.hif4 = *inputs_.options.profile;
    if (format_.is_mx()) out.scale_rule = inputs_.options.scale_rule->rounding;
    out.lane_rounding = inputs_.options.rounding;
    out.element = format_.element;
    out.group = format_.group;
    return out;
  }

  Sample around(std::span<const uint64> indices, std::size_t size) const override {
    std::vector<uint64> units;
    for (const uint64 index : spread(indices, size)) units.push_back(unit_of(index));
    sort_unique(units);
    const std::size_t wanted = std::max<std::size_t>(size / kUnit, 8);
    units = spread(std::span<const uint64>(units), wanted * 2 / 3);
    const uint64 all = lines_.count * units_;
    const std::size_t others = std::min<uint64>(wanted - std::min(wanted, units.size()), all);
    for (std::size_t i = 0; i < others; ++i) units.push_back(static_cast<uint64>(uint128{all} * i / others));
    sort_unique(units);
    return sample_of(std::move(units));
  }
  std::size_t pieces() const override {
    constexpr uint64 per_piece = kPiece / kUnit;
    return static_cast<std::size_t>((lines_.count * units_ + per_piece - 1) / per_piece);
  }
  Sample piece(std::size_t i) const override {
    std::vector<uint64> units;
    constexpr uint64 per_piece = kPiece / kUnit;
    const uint64 end = std::min((i + 1) * per_piece, lines_.count * units_);
    for (uint64 unit = i * per_piece; unit < end; ++unit) units.push_back(unit);
    return sample_of(std::move(units));
  }

  Expected<Predicted> evaluate(const Faults& faults, const Sample& sample) const override {
    Predicted out;
    out.words.reserve(sample.indices.size());
    for (const uint64 unit : sample.units) add_unit(faults, unit, out);
    return out;
  }

 private:
  struct Unit {
    uint64 line;
    uint64 begin;
    uint64 end;
    uint64 first_group;
    uint64 last_group;  // one past it
  };
  Unit bounds(uint64 unit) const noexcept {
    const uint64 line = unit / units_;
    const uint64 begin = unit % units_ * kUnit;
    const uint64 end = std::min(begin + kUnit, lines_.length);
    return {line, begin, end, begin / format_.group, (end + format_.group - 1) / format_.group};
  }
  uint64 unit_of(uint64 index) const noexcept {
    const auto [part, local] = elements_.locate(index);
    if (part == 0) return local / lines_.length * units_ + local % lines_.length / kUnit;
    return local / groups_ * units_ + local % groups_ * format_.group / kUnit;
  }
  /// The lanes of each unit, then its scales.
  Sample sample_of(std::vector<uint64> units) const {
    Sample sample;
    for (const uint64 unit : units) {
      const Unit u = bounds(unit);
      for (uint64 k = u.begin; k < u.end; ++k) sample.indices.push_back(u.line * lines_.length + k);
      if (!has_scales_) continue;
      for (uint64 g = u.first_group; g < u.last_group; ++g) {
        sample.indices.push_back(elements_.offset(1) + u.line * groups_ + g);
      }
    }
    sample.units = std::move(units);
    return sample;
  }

  uint64 source_word(uint64 line, uint64 k) const noexcept {
    const std::size_t size = inputs_.source->carrier_bits / 8;
    return load_word(inputs_.words.data() + lines_.element(line, k) * size, size);
  }

  /// Codes and scale of lanes [begin, end) of a line as one group.
  uint64 quantize_group(const Faults& faults, uint64 line, uint64 begin, uint64 end, uint64* codes) const {
    const auto count = static_cast<std::size_t>(end - begin);
    if (format_.is_hif4()) {
      std::array<std::uint32_t, kUnit> words{};
      for (std::size_t i = 0; i < count; ++i) {
        words[i] = hif4_source_word(*inputs_.source, source_word(line, begin + i));
      }
      const auto group =
          quantize_hif4_group(hif4_source_format(*inputs_.source), std::span(words).first(count), faults.hif4);
      for (std::size_t i = 0; i < count; ++i) codes[i] = group.codes[i];
      return group.scale_word;
    }
    std::array<Value, kUnit> values{};
    for (std::size_t i = 0; i < count; ++i) values[i] = decode(*inputs_.source, source_word(line, begin + i));
    if (format_.is_nvfp4()) {
      const auto group = quantize_nvfp4_group(std::span(values).first(count),
                                              faults.unit_tensor_scale ? std::uint32_t{0x3F800000} : tensor_scale_,
                                              faults.lane_rounding);
      for (std::size_t i = 0; i < count; ++i) codes[i] = group.codes[i];
      return group.scale;
    }
    // A group of 64 is one of 32 whose scale follows from the larger maximum.
    std::size_t leader = 0;
    bool special = false;
    for (std::size_t i = 0; i < count; ++i) {
      special = special || !values[i].is_finite();
      if (values[i].is_finite() && compare_magnitude(values[i].real, values[leader].real) > 0) leader = i;
    }
    uint64 scale = 0;
    for (std::size_t from = 0; from < count; from += mx_group_lanes) {
      std::array<Value, mx_group_lanes + 1> part{};
      const std::size_t n = std::min(mx_group_lanes, count - from);
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(from), n, part.begin());
      if (count > mx_group_lanes && !special) {
        // The reference takes 32 lanes: the maximum takes the place of each in turn, which only this lane notices.
        for (std::size_t i = 0; i < n; ++i) {
          std::array<Value, 2> pair{values[from + i], values[leader]};
          const MxGroup two =
              quantize_mx_group(*faults.element, std::span<const Value>(pair), faults.scale_rule, faults.lane_rounding);
          codes[from + i] = two.codes[0];
          scale = two.scale;
        }
        continue;
      }
      const MxGroup group = quantize_mx_group(*faults.element, std::span<const Value>(part).first(n), faults.scale_rule,
                                              faults.lane_rounding);
      for (std::size_t i = 0; i < n; ++i) codes[from + i] = group.codes[i];
      scale = group.scale;
    }
    return scale;
  }

  /// Lanes as they follow from a given scale.
  void quantize_under(const Faults& faults, uint64 line, uint64 begin, uint64 end, uint64 scale, uint64* codes) const {
    for (uint64 k = begin; k < end; ++k) {
      const uint64 word = source_word(line, k);
      uint64& code = codes[k - begin];
      if (format_.is_hif4()) {
        const Format& source = hif4_source_format(*inputs_.source);
        const std::uint32_t w = hif4_source_word(*inputs_.source, word);
        const Value x = decode(source, w & static_cast<std::uint32_t>(low_mask(source.sign_bit())));
        const Value r = decode(bf16, hif4_reciprocal4(static_cast<std::uint32_t>(scale))[(k - begin) / 4]);
        uint64 magnitude = hif4.max_finite;
        if (x.is_finite() && r.is_finite()) {
          magnitude =
              encode(hif4, hif4_product(faults.hif4, x.real, r.real), {.rounding = faults.hif4.lane_rounding}).bits;
        }
        code = with_sign(hif4, magnitude, is_negative(source, w));
        continue;
      }
      const Value x = decode(*inputs_.source, word);
      const Value factor = decode(*format_.scale, scale);
      Real quotient{};
      if (x.is_finite() && factor.is_finite() && !factor.real.is_zero() && !x.real.is_zero()) {
        quotient = format_.is_mx() ? scale_by_power_of_two(x.real, -factor.real.exponent)
                                   : divide(x.real, multiply(factor.real, decode(fp32, tensor_scale_).real));
      }
      quotient.negative = x.real.negative;
      code = detail::encode_element(*faults.element,
                                    x.is_infinite()      ? Class::infinity
                                    : quotient.is_zero() ? Class::zero
                                                         : Class::normal,
                                    quotient, faults.lane_rounding);
    }
  }

  void add_unit(const Faults& faults, uint64 unit, Predicted& out) const {
    const Unit u = bounds(unit);
    std::array<uint64, kUnit> codes{};
    std::array<uint64, kUnit> scales{};  // by group of the format
    bool scales_known = true;
    for (uint64 k = u.begin; k < u.end; k += faults.group) {
      const uint64 end = std::min(k + faults.group, u.end);
      uint64* const to = codes.data() + (k - u.begin);
      uint64 scale = quantize_group(faults, u.line, k, end, to);
      if (faults.scales_of_dut && has_scales_) {
        const ComparedPart& part = elements_.parts()[1];
        const uint64 index = u.line * groups_ + k / format_.group;
        const uint64 dut = lane_of(part, part.dut, index);
        if (is_scale_step(part, scale, dut)) {
          scale = dut;
          quantize_under(faults, u.line, k, end, scale, to);
        }
      }
      if (faults.group < format_.group) {
        scales_known = false;  // more scales than DUT has room for
        continue;
      }
      for (uint64 g = k / format_.group; g * format_.group < end; ++g) {
        scales[static_cast<std::size_t>(g - u.first_group)] = scale;
      }
    }
    out.words.insert(out.words.end(), codes.begin(), codes.begin() + static_cast<std::ptrdiff_t>(u.end - u.begin));
    if (!has_scales_) return;
    const auto groups = static_cast<std::size_t>(u.last_group - u.first_group);
    out.words.insert(out.words.end(), scales.begin(), scales.begin() + static_cast<std::ptrdiff_t>(groups));
    if (scales_known) return;
    out.unknown.resize(out.words.size() - groups);
    out.unknown.resize(out.words.size(), true);
  }

  const Elements& elements_;
  const QuantizationInputs& inputs_;
  const BlockFormat& format_;
  Lines lines_;
  uint64 groups_ = 0;
  uint64 units_ = 0;
  bool has_scales_ = false;
  std::uint32_t tensor_scale_ = 0x3F800000;
};

// ---- Product

class ProductSource final : public Source {
 public:
  ProductSource(const ProductInputs& inputs, const Format& accumulator, std::size_t group)
      : inputs_(inputs), accumulator_(accumulator), group_(group) {
    rows_ = inputs.a.lines;
    columns_ = inputs.b.lines;
    rows_per_piece_ = std::max<std::size_t>(1, (std::size_t{1} << 22) / columns_);
    // Several pieces, so that threads have work, but B is gathered for each of them.
    rows_per_piece_ = std::min(rows_per_piece_, std::max<std::size_t>(64, (rows_ + 3) / 4));
  }

  Faults faults() const override {
    const PostprocessOptions& p = inputs_.postprocess;
    Faults out;
    out.profile = inputs_.options.profile;
    out.accumulation_group = inputs_.options.group != 0 ? inputs_.options.group : group_;
    out.mode = *p.mode;
    out.relu = p.relu;
    out.rounding = p.mode->rounding_rule == RoundingRule::fixed ? p.mode->rounding : p.rounding.value_or(Rounding::rne);
    out.saturate = p.saturate;
    out.conversion_profile = p.profile;
    return out;
  }

  Sample around(std::span<const uint64> indices, std::size_t size) const override {
    // Rows cost K lanes of A each, columns K of B: about as many of one as of the other.
    std::size_t side = 4;
    while (side * side * 2 < size) side *= 2;
    const auto some = spread(indices, side);
    Sample sample;
    for (const uint64 index : some) {
      sample.rows.push_back(static_cast<std::size_t>(index / columns_));
      sample.columns.push_back(static_cast<std::size_t>(index % columns_));
    }
    for (std::size_t i = 0; i < side / 4; ++i) {
      sample.columns.push_back(i * columns_ / (side / 4));
      sample.rows.push_back(i * rows_ / (side / 4));
    }
    sort_unique(sample.rows);
    sort_unique(sample.columns);
    fill(sample);
    sample.cache = std::make_shared<SampleCache>();
    return sample;
  }
  std::size_t pieces() const override { return (rows_ + rows_per_piece_ - 1) / rows_per_piece_; }
  Sample piece(std::size_t i) const override {
    Sample sample;
    const std::size_t end = std::min((i + 1) * rows_per_piece_, rows_);
    for (std::size_t row = i * rows_per_piece_; row < end; ++row) sample.rows.push_back(row);
    for (std::size_t column = 0; column < columns_; ++column) sample.columns.push_back(column);
    fill(sample);
    return sample;
  }

  Expected<Predicted> evaluate(const Faults& faults, const Sample& sample) const override {
    if (sample.cache) {
      auto accumulators = cached_sums(faults, sample);
      if (!accumulators) return accumulators.error();
      return finish(faults, sample, *accumulators);
    }
    auto accumulators =
        accumulate_all(faults, sample, gather(Side::a, faults, sample.rows), gather(Side::b, faults, sample.columns));
    if (!accumulators) return accumulators.error();
    return finish(faults, sample, *accumulators);
  }

 private:
  using Words = std::vector<std::uint32_t>;

  /// Many faults leave a side, or all sums, as they are: those are computed once.
  Expected<Words> cached_sums(const Faults& faults, const Sample& sample) const {
    SampleCache& cache = *sample.cache;
    const bool right_order = !faults.exchanged && !faults.k_reversed;
    const bool right_a = right_order && !faults.a.any();
    const bool right_b = right_order && !faults.b.any();
    const Faults right = this->faults();
    const bool right_sums = right_a && right_b && faults.profile == right.profile &&
                            faults.accumulation_group == right.accumulation_group && faults.k_block == 0 &&
                            faults.bias == BiasUse::normal && faults.c == CUse::normal;
    {
      const std::scoped_lock lock(cache.mutex);
      if (!cache.a) cache.a = gather(Side::a, right, sample.rows);
      if (!cache.b) cache.b = gather(Side::b, right, sample.columns);
      if (!cache.sums) {
        auto sums = accumulate_all(right, sample, *cache.a, *cache.b);
        if (!sums) return sums.error();
        cache.sums = std::move(*sums);
      }
    }
    if (right_sums) return *cache.sums;
    std::optional<Gathered> a;
    std::optional<Gathered> b;
    if (!right_a) a = gather(Side::a, faults, sample.rows);
    if (!right_b) b = gather(Side::b, faults, sample.columns);
    return accumulate_all(faults, sample, a ? *a : *cache.a, b ? *b : *cache.b);
  }

  void fill(Sample& sample) const {
    sample.indices.reserve(sample.rows.size() * sample.columns.size());
    for (const std::size_t row : sample.rows) {
      for (const std::size_t column : sample.columns) sample.indices.push_back(uint64{row} * columns_ + column);
    }
  }

  /// Position of a scale after the faults: line and group.
  static std::pair<std::size_t, std::size_t> scale_place(const Operand& side, const SideFaults& faults,
                                                         std::size_t line, std::size_t group) noexcept {
    const std::size_t own = scale_group(*side.format);
    const std::size_t groups = (side.k + own - 1) / own;
    std::size_t flat = line * groups + group;
    if (faults.scales == SideFaults::Scales::by_lines) flat = group * side.lines + line;
    if (faults.scales == SideFaults::Scales::by_groups) {
      flat = line * groups + group;
      return {flat % side.lines, flat / side.lines};
    }
    flat =
        std::min(flat, side.lines * groups - 1);  // a group of a wrong length may lie in the next line, or behind all
    return {flat / groups, flat % groups};
  }

  static uint64 spoil_scale(uint64 word, const SideFaults& faults) noexcept {
    const auto reversed = [](uint64 field, int bits) {
      uint64 out = 0;
      for (int i = 0; i < bits; ++i) out |= ((field >> i) & 1) << (bits - 1 - i);
      return out;
    };
    const auto swapped = [](uint64 w) -> uint64 { return __builtin_bswap32(static_cast<std::uint32_t>(w)); };
    if (faults.swapped_scale_bytes && !faults.micro_first) word = swapped(word);
    if ((faults.reversed_micro & 1U) != 0) word = (word & ~uint64{0xFF00}) | reversed((word >> 8) & 0xFF, 8) << 8;
    if ((faults.reversed_micro & 2U) != 0) word = (word & 0xFFFF) | reversed((word >> 16) & 0xFFFF, 16) << 16;
    return faults.swapped_scale_bytes && faults.micro_first ? swapped(word) : word;
  }

  static Term term(const Operand& side, const SideFaults& faults, std::size_t line, std::size_t k) noexcept {
    const Format& format = faults.format != nullptr ? *faults.format : *side.format;
    const Term lane = term_of(format, code(side, faults, line, k) & low_mask(format.lane_bits));
    if (!side.scaled() || faults.scales == SideFaults::Scales::ignored) return lane;
    const std::size_t group = faults.group != 0 ? faults.group : scale_group(*side.format);
    const auto [from_line, from_group] = scale_place(side, faults, line, k / group);
    const uint64 scale = spoil_scale(side.scales(from_line, from_group), faults);
    return side.format->type == DataType::hif4x2 ? scale_hif4(lane, scale, k % group) : scale_e8m0(lane, scale);
  }

  static uint64 code(const Operand& side, const SideFaults& faults, std::size_t line, std::size_t k) noexcept {
    if (faults.swap_k && (k ^ 1U) < side.k) k ^= 1U;
    if (faults.swap_lines && (line ^ 1U) < side.lines) line ^= 1U;
    if (faults.transposed) std::swap(line, k);
    if (faults.layout != nullptr) {
      // The matrix as the caller has it: rows of A, or B with its lines as columns.
      const bool is_b = side.lanes.lane_stride != 1 && side.lanes.line_stride == 1;
      const uint64 flat = is_b ? k * side.lines + line : line * side.k + k;
      const auto from =
          static_cast<std::size_t>(faults.is_stored ? faults.layout->flat(flat) : faults.layout->stored(flat));
      line = is_b ? from % side.lines : from / side.k;
      k = is_b ? from / side.lines : from % side.k;
    }
    return side.lanes(line, k);
  }

  Gathered gather(Side which, const Faults& faults, std::span<const std::size_t> lines) const {
    const bool is_a = which == Side::a;
    const bool other = faults.exchanged;  // D = B * A of square matrices: rows of B, columns of A
    const Operand& side = is_a != other ? inputs_.a : inputs_.b;
    SideFaults own = is_a != other ? faults.a : faults.b;
    if (other) own.transposed = !own.transposed;
    Gathered out;
    const std::size_t k = side.k;
    const auto lane_at = [&](std::size_t i) { return faults.k_reversed ? k - 1 - i : i; };
    out.operand.lines = lines.size();
    out.operand.k = k;
    if (accumulator_.is_integer()) {
      const Format& format = own.format != nullptr ? *own.format : *side.format;
      const std::size_t size = format.carrier_bits / 8;
      out.bytes.resize(lines.size() * k * size);
      for (std::size_t l = 0; l < lines.size(); ++l) {
        for (std::size_t i = 0; i < k; ++i) {
          store_word(reinterpret_cast<std::byte*>(out.bytes.data()) + (l * k + i) * size, size,
                     code(side, own, lines[l], lane_at(i)));
        }
      }
      out.operand.format = &format;
      out.operand.lanes = {out.bytes.data(), format.carrier_bits, k, 1};
      return out;
    }
    out.bytes.resize(lines.size() * k * 4);
    bool exact = true;
    for (std::size_t l = 0; l < lines.size(); ++l) {
      for (std::size_t i = 0; i < k; ++i) {
        const std::uint32_t word = fp32_word(term(side, own, lines[l], lane_at(i)), exact);
        std::memcpy(out.bytes.data() + (l * k + i) * 4, &word, 4);
      }
    }
    out.operand.format = &fp32;
    out.operand.lanes = {out.bytes.data(), 32, k, 1};
    if (exact) return out;
    out.terms.reserve(lines.size() * k);
    for (const std::size_t line : lines) {
      for (std::size_t i = 0; i < k; ++i) out.terms.push_back(term(side, own, line, lane_at(i)));
    }
    return out;
  }

  static std::uint32_t fp32_word(const Term& t, bool& exact) noexcept {
    const std::uint32_t sign = t.negative ? 0x80000000U : 0;
    if (t.kind == Term::Kind::nan) return product_nan;
    if (t.kind == Term::Kind::infinite) return sign | 0x7F800000U;
    if (t.significand == 0) return sign;
    const Encoded e = encode(fp32, Real{t.negative, t.significand, t.exponent}, {});
    exact = exact && e.flags == Flags::none;
    return static_cast<std::uint32_t>(e.bits);
  }

  std::uint32_t add(std::uint32_t x, std::uint32_t y) const noexcept {
    return accumulator_.is_integer() ? x + y : add_to_fp32(x, addend_from_fp32(y));
  }

  /// Products of lanes [from, from + count) onto `start`.
  Expected<Words> product(const Faults& faults, const Gathered& a, const Gathered& b, std::size_t from,
                          std::size_t count, const std::optional<Words>& start) const {
    const std::size_t rows = a.operand.lines;
    const std::size_t columns = b.operand.lines;
    if (!a.terms.empty() || !b.terms.empty()) {
      const auto terms_of = [&](const Gathered& side) {
        if (!side.terms.empty()) return side.terms;
        std::vector<Term> terms;
        terms.reserve(side.bytes.size() / 4);
        for (std::size_t line = 0; line < side.operand.lines; ++line) {
          for (std::size_t i = 0; i < side.operand.k; ++i) terms.push_back(term_of(fp32, side.operand.lanes(line, i)));
        }
        return terms;
      };
      const std::vector<Term> ta = terms_of(a);
      const std::vector<Term> tb = terms_of(b);
      Words out(rows * columns);
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
          out[r * columns + c] =
              accumulate(faults.profile->kind, start ? (*start)[r * columns + c] : 0,
                         std::span(ta).subspan(r * a.operand.k + from, count),
                         std::span(tb).subspan(c * b.operand.k + from, count), faults.accumulation_group);
        }
      }
      return out;
    }
    const auto part = [&](const Operand& side) {
      Operand out = side;
      out.lanes.data += from * side.lanes.lane_bits / 8;
      out.k = count;
      return out;
    };
    MatmulOptions options;
    options.profile = faults.profile;
    options.group = faults.accumulation_group;
    options.execution.threads = 1;
    if (start) options.c = *start;
    const auto sums = matmul(part(a.operand), part(b.operand), options);
    if (!sums) return sums.error();
    return Words(sums->words.begin(), sums->words.end());
  }

  /// The scale of the first group of a line, without micro-exponents.
  static Real first_scale(const Operand& side, std::size_t line) noexcept {
    if (!side.scaled()) return {.significand = 1};
    return decode(side.format->type == DataType::hif4x2 ? e6m2 : e8m0, side.scales(line, 0) & 0xFF).real;
  }

  Expected<Words> accumulate_all(const Faults& faults, const Sample& sample, const Gathered& a,
                                 const Gathered& b) const {
    const std::size_t rows = sample.rows.size();
    const std::size_t columns = sample.columns.size();
    std::optional<Words> c;
    if (inputs_.options.c && faults.c != CUse::missing) {
      c.emplace(rows * columns);
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t i = 0; i < columns; ++i) {
          (*c)[r * columns + i] = (*inputs_.options.c)[sample.rows[r] * columns_ + sample.columns[i]];
        }
      }
    }
    const bool has_bias = inputs_.options.bias.has_value();
    const auto bias = [&](std::size_t i) { return (*inputs_.options.bias)[sample.columns[i]]; };

    std::optional<Words> start;
    if (faults.c == CUse::normal) start = c;
    if (has_bias && faults.bias == BiasUse::first) {
      if (!start) start.emplace(rows * columns);
      for (std::size_t i = 0; i < start->size(); ++i) (*start)[i] = add((*start)[i], bias(i % columns));
    }
    const std::size_t k = a.operand.k;
    const std::size_t block = faults.k_block != 0 ? std::min(faults.k_block, k) : k;
    auto sums = product(faults, a, b, 0, block, faults.k_block != 0 ? std::nullopt : start);
    if (!sums) return sums.error();
    if (faults.k_block != 0 && start) {
      for (std::size_t i = 0; i < sums->size(); ++i) (*sums)[i] = add((*start)[i], (*sums)[i]);
    }
    for (std::size_t from = block; from < k; from += block) {
      const auto next = product(faults, a, b, from, std::min(block, k - from), std::nullopt);
      if (!next) return next.error();
      for (std::size_t i = 0; i < sums->size(); ++i) (*sums)[i] = add((*sums)[i], (*next)[i]);
    }
    if (faults.c == CUse::last && c) {
      for (std::size_t i = 0; i < sums->size(); ++i) (*sums)[i] = add((*sums)[i], (*c)[i]);
    }
    const unsigned times = !has_bias || faults.bias == BiasUse::missing || faults.bias == BiasUse::first ||
                                   faults.bias == BiasUse::after_scaling
                               ? 0
                           : faults.bias == BiasUse::twice ? 2
                                                           : 1;
    for (unsigned t = 0; t < times; ++t) {
      for (std::size_t i = 0; i < sums->size(); ++i) {
        std::uint32_t& acc = (*sums)[i];
        if (faults.bias != BiasUse::group_scaled) {
          acc = add(acc, bias(i % columns));
          continue;
        }
        Addend x = addend_from_fp32(bias(i % columns));
        const Real scale = multiply(first_scale(inputs_.a, sample.rows[i / columns]),
                                    first_scale(inputs_.b, sample.columns[i % columns]));
        x.significand *= static_cast<uint64>(scale.significand);
        x.exponent += scale.exponent;
        acc = add_to_fp32(acc, x);
      }
    }
    if (faults.c == CUse::after_bias && c) {
      for (std::size_t i = 0; i < sums->size(); ++i) (*sums)[i] = add((*sums)[i], (*c)[i]);
    }
    return sums;
  }

  ElementPostprocess controls(const Faults& faults, std::size_t column) const {
    const PostprocessOptions& p = inputs_.postprocess;
    ElementPostprocess e;
    e.mode = &faults.mode;
    e.relu = faults.relu_after ? Relu::none : faults.relu;
    const std::size_t of = faults.first_parameter ? 0 : column;
    if (!p.quant_carriers.empty()) {
      e.quant = unpack_quant_carrier(p.quant_carriers[p.mode->per_column ? of : 0], p.mode->offset_bits);
    }
    if (!p.activation_carriers.empty()) e.alpha = p.activation_carriers[p.relu == Relu::per_column ? of : 0];
    if (faults.no_offset) e.quant.offset = 0;
    if (faults.no_scale && p.mode->carrier == CarrierKind::scale)
      e.quant.scale = encode(fp19, Real{.significand = 1}, {}).bits;
    e.rounding = faults.rounding;
    e.saturate = faults.saturate;
    e.profile = faults.conversion_profile;
    return e;
  }

  /// What numerics 5.5 says, but `addend` is added to the product before it is rounded, and faults.offset_first and
  /// faults.no_intermediate spoil step 9.
  uint64 finish_with(const Faults& faults, const ElementPostprocess& e, std::uint32_t acc,
                     const Value& addend) const noexcept {
    const Format& to = destination_format(*e.mode, accumulator_);
    const Value v = decode(accumulator_, acc);
    const bool saturate = e.mode->saturation_allowed && e.saturate;
    if (!v.is_finite() || !addend.is_finite()) {
      return detail::postprocess_special(to, v.is_finite() ? addend : v, saturate).bits;
    }
    Real multiplier{.significand = 1};
    if (e.mode->carrier == CarrierKind::scale) multiplier = decode(fp19, e.quant.scale).real;
    if (v.real.negative && e.relu == Relu::relu) multiplier = {};
    if (v.real.negative && (e.relu == Relu::scalar || e.relu == Relu::per_column))
      multiplier = decode(fp19, e.alpha).real;
    ExactSum sum;
    if (!v.real.is_zero() && !multiplier.is_zero()) sum.add(multiply(v.real, multiplier));
    if (!addend.real.is_zero()) sum.add(addend.real);
    const bool has_offset = e.mode->offset_bits != 0;
    if (has_offset && faults.offset_first && e.quant.offset != 0) sum.add(real_from_signed(e.quant.offset));
    const auto exact = sum.value();
    if (has_offset && !faults.offset_first) {
      const int bits = faults.no_intermediate ? kWide : e.mode->offset_bits;
      const Format intermediate = detail::offset_intermediate(bits);
      const uint64 rounded = encode(intermediate, exact, EncodeControl{e.rounding, true, e.profile}).bits;
      const int64 offset_sum = sign_extend(rounded, bits) + e.quant.offset;
      return encode(to, real_from_signed(offset_sum), EncodeControl{e.rounding, saturate, e.profile}).bits;
    }
    if (exact.is_zero()) return zero_code(to, false);
    return encode(to, exact, EncodeControl{e.rounding, saturate, e.profile}).bits;
  }

  Predicted finish(const Faults& faults, const Sample& sample, const Words& accumulators) const {
    const std::size_t columns = sample.columns.size();
    std::vector<ElementPostprocess> of_column;
    of_column.reserve(columns);
    for (const std::size_t column : sample.columns) of_column.push_back(controls(faults, column));
    Faults copy;  // the mode must outlive its users, and a rounding of its own replaces a fixed one
    copy.mode = faults.mode;
    copy.mode.rounding = faults.rounding;
    const Format& to = destination_format(copy.mode, accumulator_);
    Predicted out;
    out.words.reserve(accumulators.size());
    for (std::size_t i = 0; i < accumulators.size(); ++i) {
      ElementPostprocess& e = of_column[i % columns];
      e.mode = &copy.mode;
      uint64 word = 0;
      const bool late_bias = faults.bias == BiasUse::after_scaling && inputs_.options.bias.has_value();
      if (late_bias || (copy.mode.offset_bits != 0 && (faults.offset_first || faults.no_intermediate))) {
        Value addend{};
        if (late_bias) addend = decode(accumulator_, (*inputs_.options.bias)[sample.columns[i % columns]]);
        word = finish_with(faults, e, accumulators[i], addend);
      } else {
        word = postprocess_element(e, accumulator_, accumulators[i]).bits;
      }
      if (faults.relu_after) {
        const Value v = decode(to, word);
        if (!v.is_nan() && v.real.negative) word = 0;
      }
      out.words.push_back(word & low_mask(to.lane_bits));
    }
    return out;
  }

  const ProductInputs& inputs_;
  const Format& accumulator_;
  std::size_t group_;
  std::size_t rows_ = 0;
  std::size_t columns_ = 0;
  std::size_t rows_per_piece_ = 1;
};

}  // namespace

std::unique_ptr<Source> golden_source(const Elements& elements) {
  return std::make_unique<GoldenSource>(elements);
}
std::unique_ptr<Source> conversion_source(const Elements& elements, const ConversionInputs& inputs) {
  return std::make_unique<ConversionSource>(elements, inputs);
}
std::unique_ptr<Source> quantization_source(const Elements& elements, const QuantizationInputs& inputs) {
  return std::make_unique<QuantizationSource>(elements, inputs);
}
std::unique_ptr<Source> product_source(const ProductInputs& inputs, const Format& accumulator, std::size_t group) {
  return std::make_unique<ProductSource>(inputs, accumulator, group);
}

}  // namespace bitcube::compare_detail
