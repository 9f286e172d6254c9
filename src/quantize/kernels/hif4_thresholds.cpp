#include "quantize/kernels/hif4_thresholds.hpp"

#include <utility>

namespace bitcube::kernels {
namespace {

template <typename Word>
constexpr const Format& source_of() noexcept {
  return sizeof(Word) == 2 ? bf16 : fp32;
}

/// The least word in [low, high] for which holds(word), which goes from false to true once; `high` if there is none
/// below it.
template <typename Word, typename Holds>
Word first(Word low, Word high, const Holds& holds) {
  while (low < high) {
    const auto middle = static_cast<Word>(low + (high - low) / 2);
    if (holds(middle)) {
      high = middle;
    } else {
      low = static_cast<Word>(middle + 1);
    }
  }
  return low;
}

template <typename Word>
Value value_of(Word magnitude) {
  return decode(source_of<Word>(), static_cast<uint64>(magnitude));
}

/// Steps 2 and 3 of the reference for a group with this maximum.
template <typename Word>
std::uint8_t e6m2_of(Word maximum, const Hif4Profile& profile) {
  const auto lane = static_cast<std::uint32_t>(maximum);
  return quantize_hif4_group(source_of<Word>(), {&lane, 1}, profile).e6m2;
}

template <typename Word>
Hif4Thresholds<Word> make(const Hif4Profile& profile) {
  using Thresholds = Hif4Thresholds<Word>;
  const auto infinity = static_cast<Word>(source_of<Word>().infinity);
  Thresholds t;
  for (unsigned m = 0; m < 4; ++m) {
    const auto e6m2_code = static_cast<std::uint8_t>(48U << 2 | m);
    const Real reciprocal = decode(bf16, convert(detail::rcpe6m2, bf16, e6m2_code, {}).bits).real;
    const auto set = [&](typename Thresholds::Row& row, const auto& holds) {
      const Word bound = first<Word>(0, infinity, [&](Word w) { return holds(value_of(w)); });
      row.lanes.fill(static_cast<Word>(bound - 1));
    };
    typename Thresholds::Scale& scale = t.scales[m];
    set(scale.micro8, [&](const Value& x) { return detail::hif4_reaches(profile, x, reciprocal, 2); });
    set(scale.micro4, [&](const Value& x) { return detail::hif4_reaches(profile, x, reciprocal, 1); });
    for (std::size_t level = 0; level < scale.levels.size(); ++level) {
      set(scale.levels[level], [&](const Value& x) {
        if (x.is_infinite()) return true;
        const Real product = hif4_product(profile, x.real, reciprocal);  // R <= 1: never beyond BF16
        return encode(hif4, product, {.rounding = profile.lane_rounding}).bits > level;
      });
    }
  }
  const Word one = static_cast<Word>(Word{127} << Thresholds::fraction_bits);
  const Word width = static_cast<Word>((Word{1} << Thresholds::fraction_bits) / static_cast<Word>(Thresholds::bins));
  for (std::size_t bin = 0; bin < Thresholds::bins; ++bin) {
    const auto low = static_cast<Word>(one + static_cast<Word>(bin) * width);
    const auto high = static_cast<Word>(low + width);
    const std::uint8_t code = e6m2_of(low, profile);
    t.code[bin] = code;
    t.split[bin] = static_cast<Word>(first<Word>(low, high, [&](Word w) { return e6m2_of(w, profile) > code; }) - one);
  }
  return t;
}

template <typename Word, std::size_t Index>
const Hif4Thresholds<Word>& thresholds() {
  static const Hif4Thresholds<Word> made = make<Word>(hif4_profiles[Index]);
  return made;
}

template <typename Word, std::size_t... Index>
const Hif4Thresholds<Word>* find(const Hif4Profile& profile, std::index_sequence<Index...> /*all*/) {
  const auto same = [&](const Hif4Profile& p) {
    return p.one_seventh == profile.one_seventh && p.scale_rounding == profile.scale_rounding &&
           p.bf16_products == profile.bf16_products && p.lane_rounding == profile.lane_rounding;
  };
  const Hif4Thresholds<Word>* found = nullptr;
  static_cast<void>(((same(hif4_profiles[Index]) && (found = &thresholds<Word, Index>(), true)) || ...));
  return found;
}

}  // namespace

const Hif4Thresholds<std::int16_t>* hif4_thresholds16(const Hif4Profile& profile) {
  return find<std::int16_t>(profile, std::make_index_sequence<hif4_profiles.size()>());
}
const Hif4Thresholds<std::int32_t>* hif4_thresholds32(const Hif4Profile& profile) {
  return find<std::int32_t>(profile, std::make_index_sequence<hif4_profiles.size()>());
}

}  // namespace bitcube::kernels
