#include "quantize/kernels/hif4.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "quantize/kernels/hif4_thresholds.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/kernels/hif4.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/highway.h>

#include "quantize/kernels/encode-inl.hpp"
#include "quantize/kernels/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bitcube::kernels::HWY_NAMESPACE {
#if BITCUBE_HAS_KERNELS
namespace {

/// Bits 0, kStep, 2 * kStep, ... side by side.
template <int kStep>
HWY_INLINE std::uint32_t every(std::uint64_t bits) {
  if constexpr (kStep == 1) {
    return static_cast<std::uint32_t>(bits);
  } else {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86_64
    return static_cast<std::uint32_t>(_pext_u64(bits, ~std::uint64_t{0} / ((1U << kStep) - 1)));
#else
    // Runs of 1, 2, 4, ... bits close up in pairs.
    bits &= ~std::uint64_t{0} / ((1U << kStep) - 1);
    for (int run = 1; 2 * run * kStep <= 64; run *= 2) {
      bits |= bits >> ((kStep - 1) * run);
      const std::uint64_t ones = (std::uint64_t{1} << (2 * run)) - 1;
      std::uint64_t mask = ones;
      for (int at = 2 * run * kStep; at < 64; at += 2 * run * kStep) mask |= ones << at;
      bits &= mask;
    }
    return static_cast<std::uint32_t>(bits);
#endif
  }
}

template <class D>
inline constexpr std::size_t kVectors = hif4_group_lanes / hn::MaxLanes(D());

/// A whole group of lanes.
template <class D>
using Group = std::array<hn::Vec<D>, kVectors<D>>;

/// What the decisions for 4 and 8 lanes give: the micro-exponents where the scale word has them, and for each lane how
/// far its exponent field moves, all shifts together.
template <class D>
struct Decisions {
  std::uint32_t micro_bits;
  Group<D> shifts;
};

#if HWY_TARGET <= HWY_AVX3

/// The maxima of 4 and 8 lanes, one vector for the whole group; here permutations of whole vectors cost as little as
/// others. The maximum of 4 stands in every lane of its 1/16 of the vector, that of 8 in every lane of its 1/8.
template <class D>
struct Maxima {
  using V = hn::Vec<D>;
  using Word = hn::TFromD<D>;
  static constexpr std::size_t lanes = hn::MaxLanes(D());

  V quads;
  V octets;

  HWY_INLINE static V pairs(V high, V low) {
    const D d;
    return hn::Max(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
  }

  Maxima() = default;
  HWY_INLINE explicit Maxima(const Group<D>& magnitudes) {
    const D d;
    const Word32 d32;
    if constexpr (sizeof(Word) == 2) {
      const V pair = pairs(magnitudes[1], magnitudes[0]);
      quads = hn::Max(pair, hn::Reverse2(d, pair));
    } else {
      quads = pairs(pairs(magnitudes[3], magnitudes[2]), pairs(magnitudes[1], magnitudes[0]));
    }
    octets = hn::Max(quads, hn::BitCast(d, hn::Shuffle2301(hn::BitCast(d32, quads))));
  }

  HWY_INLINE Word largest() const {
    const D d;
    const Word32 d32;
    return largest_first_lane(d, hn::Max(octets, hn::BitCast(d, hn::Shuffle1032(hn::BitCast(d32, octets)))));
  }

  HWY_INLINE Decisions<D> decide(const typename Hif4Thresholds<Word>::Scale& bounds, V shift, V binade) const {
    const D d;
    // Which lane of `quads` each lane of the group belongs to.
    struct alignas(64) Indices {
      std::array<std::array<Word, lanes>, kVectors<D>> of{};
      constexpr Indices() noexcept {
        for (std::size_t q = 0; q < hif4_group_lanes; ++q) {
          of[q / lanes][q % lanes] = static_cast<Word>(q / 4 * (lanes / 16));
        }
      }
    };
    static constexpr Indices indices;
    const auto up8 = hn::Gt(hn::Sub(octets, shift), hn::Load(d, bounds.micro8.lanes.data()));
    shift = hn::IfThenElse(up8, hn::Add(shift, binade), shift);
    const auto up4 = hn::Gt(hn::Sub(quads, shift), hn::Load(d, bounds.micro4.lanes.data()));
    shift = hn::IfThenElse(up4, hn::Add(shift, binade), shift);
    Decisions<D> out;
    out.micro_bits = every<lanes / 8>(mask_bits(d, up8)) << 8 | every<lanes / 16>(mask_bits(d, up4)) << 16;
    for (std::size_t i = 0; i < kVectors<D>; ++i) {
      const V index = hn::Load(d, indices.of[i].data());
      out.shifts[i] = sizeof(Word) == 2 ? V{_mm512_permutexvar_epi16(index.raw, shift.raw)}
                                        : V{_mm512_permutexvar_epi32(index.raw, shift.raw)};
    }
    return out;
  }
};

#else

/// The maxima of 4 and 8 lanes, in each of these lanes.
template <class D>
struct Maxima {
  using V = hn::Vec<D>;
  using Word = hn::TFromD<D>;
  static constexpr std::size_t lanes = hn::MaxLanes(D());

  Group<D> quads;
  Group<D> octets;

  Maxima() = default;
  HWY_INLINE explicit Maxima(const Group<D>& magnitudes) {
    const D d;
    const Word32 d32;
    for (std::size_t i = 0; i < kVectors<D>; ++i) {
      const V v = magnitudes[i];
      if constexpr (sizeof(Word) == 2) {
        const V pair = hn::Max(v, hn::Reverse2(d, v));
        quads[i] = hn::Max(pair, hn::BitCast(d, hn::Shuffle2301(hn::BitCast(d32, pair))));
        octets[i] = hn::Max(quads[i], hn::BitCast(d, hn::Shuffle1032(hn::BitCast(d32, quads[i]))));
      } else {
        const V pair = hn::Max(v, hn::Shuffle2301(v));
        quads[i] = hn::Max(pair, hn::Shuffle1032(pair));
      }
    }
    if constexpr (sizeof(Word) == 4) {
      for (std::size_t i = 0; i < kVectors<D>; ++i) {
        if constexpr (lanes == 4) {
          octets[i] = hn::Max(quads[i], quads[i ^ 1]);
        } else {
          octets[i] = hn::Max(quads[i], hn::SwapAdjacentBlocks(quads[i]));
        }
      }
    }
  }

  HWY_INLINE Word largest() const {
    V all = octets[0];
    for (std::size_t i = 1; i < kVectors<D>; ++i) all = hn::Max(all, octets[i]);
    return largest_first_lane(D(), all);  // the lanes of a block are equal
  }

  HWY_INLINE Decisions<D> decide(const typename Hif4Thresholds<Word>::Scale& bounds, V shift, V binade) const {
    const D d;
    Decisions<D> out;
    std::uint64_t bits8 = 0;
    std::uint64_t bits4 = 0;
    for (std::size_t i = 0; i < kVectors<D>; ++i) {
      const auto up8 = hn::Gt(hn::Sub(octets[i], shift), hn::Load(d, bounds.micro8.lanes.data()));
      const V shift8 = hn::Add(shift, hn::IfThenElseZero(up8, binade));
      const auto up4 = hn::Gt(hn::Sub(quads[i], shift8), hn::Load(d, bounds.micro4.lanes.data()));
      out.shifts[i] = hn::Add(shift8, hn::IfThenElseZero(up4, binade));
      bits8 |= mask_bits(d, up8) << (i * lanes);
      bits4 |= mask_bits(d, up4) << (i * lanes);
    }
    out.micro_bits = every<8>(bits8) << 8 | every<4>(bits4) << 16;
    return out;
  }
};

#endif

/// How many of the bounds x is above: the code of its magnitude.
template <class D>
HWY_INLINE hn::Vec<D> count_levels(D d, hn::Vec<D> x, const typename Hif4Thresholds<hn::TFromD<D>>::Scale& bounds) {
  const auto bound = [&](std::size_t i) HWY_ATTR { return hn::Load(d, bounds.levels[i].lanes.data()); };
#if HWY_TARGET <= HWY_AVX3
  // By halves: fewer operations where a choice costs no more than an addition.
  const auto above4 = hn::Gt(x, bound(3));
  const auto above2 = hn::Gt(x, hn::IfThenElse(above4, bound(5), bound(1)));
  const auto high = hn::IfThenElse(above2, bound(6), bound(4));
  const auto low = hn::IfThenElse(above2, bound(2), bound(0));
  const auto above1 = hn::Gt(x, hn::IfThenElse(above4, high, low));
  const auto code = hn::IfThenElseZero(above4, hn::Set(d, 4));
  const auto even = hn::IfThenElse(above2, hn::Or(code, hn::Set(d, 2)), code);
  return hn::IfThenElse(above1, hn::Or(even, hn::Set(d, 1)), even);
#else
  auto code = hn::Zero(d);
  for (std::size_t i = 0; i < bounds.levels.size(); ++i) code = count_above(code, x, bound(i));
  return code;
#endif
}

/// The words of a group, or their magnitudes.
template <class D>
HWY_INLINE Group<D> load_group(D d, const std::byte* from) {
  Group<D> words;
  for (std::size_t i = 0; i < kVectors<D>; ++i)
    words[i] = load_words(d, from + i * hn::MaxLanes(D()) * sizeof(hn::TFromD<D>));
  return words;
}
template <class D>
HWY_INLINE Group<D> magnitudes_of(D d, const Group<D>& words) {
  Group<D> magnitudes;
  for (std::size_t i = 0; i < kVectors<D>; ++i) {
    magnitudes[i] = hn::And(words[i], hn::Set(d, hwy::LimitsMax<hn::TFromD<D>>()));
  }
  return magnitudes;
}

/// Steps 2 and 3: the E6M2 code of a maximum; a NaN gives FF.
template <typename Word>
HWY_INLINE std::uint32_t e6m2_of(Word maximum, const Hif4Thresholds<Word>& thresholds) {
  constexpr int fraction_bits = Hif4Thresholds<Word>::fraction_bits;
  const Word fraction = static_cast<Word>(maximum & ((Word{1} << fraction_bits) - 1));
  const std::size_t bin = static_cast<std::size_t>(fraction) >> (fraction_bits - 7);
  const int unclamped = thresholds.code[bin] + (fraction >= thresholds.split[bin] ? 1 : 0) +
                        4 * (static_cast<int>(maximum >> fraction_bits) - 127);
  const bool nan = maximum > (Word{255} << fraction_bits);
  return nan ? 0xFF : static_cast<std::uint32_t>(std::clamp(unclamped, 0, 0xFE));
}

/// A group after step 3.
template <class D>
struct Prepared {
  Maxima<D> maxima;
  std::uint32_t e6m2_code;
};

template <class D, typename Word = hn::TFromD<D>>
HWY_INLINE Prepared<D> prepare_group(D d, const std::byte* from, const Hif4Thresholds<Word>& thresholds) {
  const Maxima<D> maxima(magnitudes_of(d, load_group(d, from)));
  return {maxima, e6m2_of(maxima.largest(), thresholds)};
}

/// With prepare_group(), equals quantize_hif4_group() for 64 lanes.
template <class D, typename Word = hn::TFromD<D>>
HWY_INLINE void finish_group(D d, const std::byte* from, const Prepared<D>& prepared,
                             const Hif4Thresholds<Word>& thresholds, std::uint8_t* codes, std::uint8_t* scale) {
  using V = hn::Vec<D>;
  constexpr int fraction_bits = Hif4Thresholds<Word>::fraction_bits;
  const std::uint32_t e6m2_code = prepared.e6m2_code;
  if (HWY_UNLIKELY(e6m2_code == 0xFF)) {
    std::memcpy(scale, &e6m2_code, sizeof e6m2_code);
    std::memset(codes, 0, hif4_group_lanes / 2);
    return;
  }
  // A micro-exponent moves the bounds by a binade; the exponent field of x goes the other way.
  const typename Hif4Thresholds<Word>::Scale& bounds = thresholds.scales[e6m2_code & 3];
  const V shift = hn::Set(d, static_cast<Word>((static_cast<int>(e6m2_code >> 2) - 48) * (1 << fraction_bits)));
  const V binade = hn::Set(d, static_cast<Word>(Word{1} << fraction_bits));
  const Decisions<D> decisions = prepared.maxima.decide(bounds, shift, binade);
  const Group<D> words = load_group(d, from);
  const Group<D> magnitudes = magnitudes_of(d, words);
  const hn::RebindToUnsigned<D> du;
  for (std::size_t i = 0; i < kVectors<D>; ++i) {
    const V magnitude = count_levels(d, hn::Sub(magnitudes[i], decisions.shifts[i]), bounds);
    const V sign = hn::BitCast(d, hn::ShiftRight<8 * static_cast<int>(sizeof(Word)) - 4>(hn::BitCast(du, words[i])));
    store_nibbles(d, hn::OrAnd(magnitude, sign, hn::Set(d, 8)), codes + i * hn::MaxLanes(D()) / 2);
  }
  const std::uint32_t scale_word = e6m2_code | decisions.micro_bits;
  std::memcpy(scale, &scale_word, sizeof scale_word);
}

/// So many groups are prepared before the first is finished. A group is a long chain of operations that wait for each
/// other; the chains of several run side by side only if they are short enough for the processor to see them together.
#if HWY_TARGET <= HWY_AVX3
inline constexpr std::size_t kAhead = 8;
#else
inline constexpr std::size_t kAhead = 1;  // their maxima would fill more registers than there are
#endif

template <std::size_t kGroups, class D, typename Word = hn::TFromD<D>>
HWY_INLINE void quantize_groups(D d, const std::byte* words, const Hif4Thresholds<Word>& thresholds,
                                std::uint8_t* codes, std::uint8_t* scales) {
  constexpr std::size_t group_bytes = hif4_group_lanes * sizeof(Word);
  Prepared<D> prepared[kGroups];
  for (std::size_t g = 0; g < kGroups; ++g) prepared[g] = prepare_group(d, words + g * group_bytes, thresholds);
  for (std::size_t g = 0; g < kGroups; ++g) {
    finish_group(d, words + g * group_bytes, prepared[g], thresholds, codes + g * hif4_group_lanes / 2, scales + 4 * g);
  }
}

template <class D, typename Word = hn::TFromD<D>>
HWY_INLINE void quantize_line(D d, const std::byte* words, std::size_t lanes, const Hif4Thresholds<Word>& thresholds,
                              std::uint8_t* codes, std::uint8_t* scales) {
  const auto advance = [&](auto groups) HWY_ATTR {
    constexpr std::size_t kGroups = decltype(groups)::value;
    for (; lanes >= kGroups * hif4_group_lanes; lanes -= kGroups * hif4_group_lanes) {
      quantize_groups<kGroups>(d, words, thresholds, codes, scales);
      words += kGroups * hif4_group_lanes * sizeof(Word);
      codes += kGroups * hif4_group_lanes / 2;
      scales += 4 * kGroups;
    }
  };
  advance(std::integral_constant<std::size_t, kAhead>());
  if constexpr (kAhead > 1) advance(std::integral_constant<std::size_t, 1>());
  if (lanes == 0) return;
  std::array<std::byte, hif4_group_lanes * sizeof(Word)> group{};  // missing lanes are +0, and their codes 0
  std::array<std::uint8_t, hif4_group_lanes / 2> group_codes;
  std::memcpy(group.data(), words, lanes * sizeof(Word));
  quantize_groups<1>(d, group.data(), thresholds, group_codes.data(), scales);
  std::memcpy(codes, group_codes.data(), (lanes + 1) / 2);
}

/// Per lane: the bit of the scale word with its E1_8, and with its E1_16.
struct MicroBits {
  alignas(64) std::array<std::int32_t, hif4_group_lanes> of8{};
  alignas(64) std::array<std::int32_t, hif4_group_lanes> of4{};

  constexpr MicroBits() noexcept {
    for (std::size_t q = 0; q < hif4_group_lanes; ++q) {
      of8[q] = static_cast<std::int32_t>(std::uint32_t{1} << (8 + q / 8));
      of4[q] = static_cast<std::int32_t>(std::uint32_t{1} << (16 + q / 4));
    }
  }
};
constexpr MicroBits kMicroBits;

/// Equals convert_value() of dequantize_hif4_lane() for 64 lanes.
template <DataType kTo>
HWY_INLINE void dequantize_group(const std::uint8_t* codes, const std::uint8_t* scale, std::byte* to, Raised& raised) {
  const Word32 d;
  std::uint32_t word = 0;
  std::memcpy(&word, scale, sizeof word);
  if (HWY_UNLIKELY((word & 0xFF) == 0xFF)) {
    store_nan<kTo, hif4_group_lanes>(d, to);
    return;
  }
  std::array<std::uint8_t, hif4_group_lanes> bytes;
  spread_nibbles<hif4_group_lanes / 2>(codes, bytes.data());
  const hn::Rebind<std::uint8_t, Word32> d8;
  const Vec32 scale_word = hn::Set(d, static_cast<std::int32_t>(word));
  const Vec32 significand = hn::Set(d, static_cast<std::int32_t>(4 | (word & 3)));  // of E6M2, in quarters
  const Vec32 exponent = hn::Set(d, (static_cast<std::int32_t>(word >> 2 & 0x3F) - 48 - 4) * (1 << 23));
  const Vec32 binade = hn::Set(d, 1 << 23);
  for (std::size_t i = 0; i < hif4_group_lanes; i += hn::MaxLanes(Word32())) {
    const Vec32 code = hn::PromoteTo(d, hn::LoadU(d8, bytes.data() + i));
    const Vec32 quarters = hn::And(code, hn::Set(d, 7));
    const auto up8 = hn::TestBit(scale_word, hn::Load(d, kMicroBits.of8.data() + i));
    const auto up4 = hn::TestBit(scale_word, hn::Load(d, kMicroBits.of4.data() + i));
    const Vec32 micro = hn::Add(hn::IfThenElseZero(up8, binade), hn::IfThenElseZero(up4, binade));
    const Vec32 y = hn::Add(unbiased_word(d, hn::Mul(quarters, significand)), hn::Add(exponent, micro));
    // Exponents from -50 to 18: normal in FP32 and BF16.
    const Vec32 magnitude = encode_magnitude<kTo, kTo != DataType::fp16>(d, y, hn::Gt(quarters, hn::Zero(d)), raised);
    store_signed<kTo>(d, magnitude, hn::ShiftLeft<28>(hn::And(code, hn::Set(d, 8))),
                      to + i * format_of(kTo).carrier_bits / 8);
  }
}

template <DataType kTo>
HWY_INLINE Flags dequantize_line(const std::uint8_t* codes, const std::uint8_t* scales, std::size_t lanes,
                                 std::byte* to) {
  constexpr std::size_t word_bytes = format_of(kTo).carrier_bits / 8;
  const Word32 d;
  Raised raised(d);
  for (; lanes >= hif4_group_lanes; lanes -= hif4_group_lanes) {
    dequantize_group<kTo>(codes, scales, to, raised);
    codes += hif4_group_lanes / 2;
    scales += 4;
    to += hif4_group_lanes * word_bytes;
  }
  if (lanes > 0) {
    std::array<std::uint8_t, hif4_group_lanes / 2> group{};  // missing lanes are 0 and raise nothing
    std::array<std::byte, hif4_group_lanes * word_bytes> words;
    std::memcpy(group.data(), codes, (lanes + 1) / 2);
    if (lanes % 2 != 0) group[lanes / 2] &= 0x0F;
    dequantize_group<kTo>(group.data(), scales, words.data(), raised);
    std::memcpy(to, words.data(), lanes * word_bytes);
  }
  return raised.flags(d);
}

}  // namespace

void hif4_quantize_bf16(const std::byte* words, std::size_t lanes, const Hif4Thresholds<std::int16_t>& thresholds,
                        std::uint8_t* codes, std::uint8_t* scales) {
  quantize_line(Word16(), words, lanes, thresholds, codes, scales);
}
void hif4_quantize_fp32(const std::byte* words, std::size_t lanes, const Hif4Thresholds<std::int32_t>& thresholds,
                        std::uint8_t* codes, std::uint8_t* scales) {
  quantize_line(Word32(), words, lanes, thresholds, codes, scales);
}
bool hif4_available() {
  return true;
}
Flags hif4_dequantize(const std::uint8_t* codes, const std::uint8_t* scales, std::size_t lanes, DataType to,
                      std::byte* words) {
  if (to == DataType::fp32) return dequantize_line<DataType::fp32>(codes, scales, lanes, words);
  if (to == DataType::bf16) return dequantize_line<DataType::bf16>(codes, scales, lanes, words);
  return dequantize_line<DataType::fp16>(codes, scales, lanes, words);
}

#else

bool hif4_available() {
  return false;
}
void hif4_quantize_bf16(const std::byte*, std::size_t, const Hif4Thresholds<std::int16_t>&, std::uint8_t*,
                        std::uint8_t*) {}
void hif4_quantize_fp32(const std::byte*, std::size_t, const Hif4Thresholds<std::int32_t>&, std::uint8_t*,
                        std::uint8_t*) {}
Flags hif4_dequantize(const std::uint8_t*, const std::uint8_t*, std::size_t, DataType, std::byte*) {
  return Flags::none;
}

#endif  // BITCUBE_HAS_KERNELS
}  // namespace bitcube::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bitcube::kernels {

HWY_EXPORT(hif4_available);
HWY_EXPORT(hif4_quantize_bf16);
HWY_EXPORT(hif4_quantize_fp32);
HWY_EXPORT(hif4_dequantize);

bool quantize_hif4(const Format& source, const std::byte* words, std::size_t lanes, const Hif4Profile& profile,
                   std::byte* codes, std::byte* scales) noexcept {
  if (!HWY_DYNAMIC_DISPATCH(hif4_available)()) return false;
  auto* const code_bytes = reinterpret_cast<std::uint8_t*>(codes);
  auto* const scale_bytes = reinterpret_cast<std::uint8_t*>(scales);
  if (source.type == DataType::bf16) {
    const Hif4Thresholds<std::int16_t>* const thresholds = hif4_thresholds16(profile);
    if (thresholds == nullptr) return false;
    HWY_DYNAMIC_DISPATCH(hif4_quantize_bf16)(words, lanes, *thresholds, code_bytes, scale_bytes);
    return true;
  }
  if (source.type == DataType::fp32) {
    const Hif4Thresholds<std::int32_t>* const thresholds = hif4_thresholds32(profile);
    if (thresholds == nullptr) return false;
    HWY_DYNAMIC_DISPATCH(hif4_quantize_fp32)(words, lanes, *thresholds, code_bytes, scale_bytes);
    return true;
  }
  return false;
}

bool dequantize_hif4(const std::byte* codes, const std::byte* scales, std::size_t lanes, const Format& destination,
                     std::byte* words, Flags& flags) noexcept {
  const DataType to = destination.type;
  if (to != DataType::fp32 && to != DataType::bf16 && to != DataType::fp16) return false;
  if (!HWY_DYNAMIC_DISPATCH(hif4_available)()) return false;
  flags |= HWY_DYNAMIC_DISPATCH(hif4_dequantize)(reinterpret_cast<const std::uint8_t*>(codes),
                                                 reinterpret_cast<const std::uint8_t*>(scales), lanes, to, words);
  return true;
}

}  // namespace bitcube::kernels
#endif  // HWY_ONCE
