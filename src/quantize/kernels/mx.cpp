#include "quantize/kernels/mx.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/kernels/mx.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/highway.h>

#include "quantize/kernels/encode-inl.hpp"
#include "quantize/kernels/lanes-inl.hpp"

#ifndef BITCUBE_QUANTIZE_KERNELS_MX_ONCE
#define BITCUBE_QUANTIZE_KERNELS_MX_ONCE
namespace bitcube::kernels {

/// An element type as the kernels see it.
template <DataType kElement>
struct MxElement {
  static constexpr const Format& format = format_of(kElement);
  static constexpr int fraction_bits = format.fraction_bits;
  static constexpr int bias = format.bias;
  static constexpr int sign_bit = format.sign_bit();
  static constexpr int largest_code = static_cast<int>(format.max_finite);
  static constexpr int largest_exponent = (largest_code >> fraction_bits) - bias;
  /// Codes below the normal ones.
  static constexpr int subnormal_codes = 1 << fraction_bits;
  /// Whether few lanes fall below the normal range of the element, unless they are 0.
  static constexpr bool rarely_subnormal = format.exponent_bits >= 4;
};

/// What makes the exponent of the scale one greater than `floor` would: a fraction of amax from some bound on. The
/// number that carries such a fraction, and no lesser one, into the exponent field of a word with that many bits.
template <DataType kElement, int kFractionBits>
constexpr std::int32_t scale_carry(ScaleRounding rule) noexcept {
  using Element = MxElement<kElement>;
  constexpr std::int32_t one = std::int32_t{1} << kFractionBits;
  constexpr int dropped = kFractionBits - Element::fraction_bits;
  switch (rule) {
    case ScaleRounding::floor:
      return 0;
    case ScaleRounding::ceil:
      return one - 1;
    case ScaleRounding::rceil:  // above the fraction of the largest element
      return one - 1 - ((Element::largest_code & (Element::subnormal_codes - 1)) << dropped);
    case ScaleRounding::even:  // at least halfway from the last fraction of the element to the next power of two
      return std::int32_t{1} << (dropped - 1);
  }
  return 0;
}

/// Words whose exponent field is biased as that of the element: above bound j, |x / scale| rounds to at least j + 1
/// times the least subnormal. A tie goes to the even code, so the odd multiples of half of it are bounds of one or the
/// other kind.
template <DataType kElement, typename Word>
constexpr Word subnormal_bound(int j) noexcept {
  using Element = MxElement<kElement>;
  constexpr int fraction_bits = sizeof(Word) == 2 ? 7 : 23;
  const int halves = 2 * j + 1;
  const int exponent = static_cast<int>(std::bit_width(static_cast<unsigned>(halves))) - 1;
  // halves * 2^(-bias - f), with the bias added.
  const int word = (exponent - Element::fraction_bits) * (1 << fraction_bits) +
                   ((halves - (1 << exponent)) << (fraction_bits - exponent));
  return static_cast<Word>(j % 2 == 0 ? word : word - 1);
}

}  // namespace bitcube::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bitcube::kernels::HWY_NAMESPACE {
#if BITCUBE_HAS_KERNELS
namespace {

/// Codes of the magnitudes |x / scale|, given as words whose exponent field is biased as that of the element: rounded
/// RNE and saturated, without sign.
template <DataType kElement, class D, typename Word = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> encode_elements(D d, hn::Vec<D> x) {
  using Element = MxElement<kElement>;
  using V = hn::Vec<D>;
  constexpr int dropped = (sizeof(Word) == 2 ? 7 : 23) - Element::fraction_bits;
  // Normal: the code is the upper part of the word, rounded; a carry goes into the exponent as it should. Below the
  // normal range this is less than the true code, because it takes steps of a whole binade for those of an eighth of
  // one.
  const V odd = hn::And(hn::ShiftRight<dropped>(x), hn::Set(d, Word{1}));
  const V half = hn::Set(d, static_cast<Word>((Word{1} << (dropped - 1)) - 1));
  V code = hn::ShiftRight<dropped>(hn::Add(hn::Add(x, half), odd));
  // Subnormal: 2^f steps, the last to the least normal code, which every normal code reaches.
  const auto count_steps = [d, x]() HWY_ATTR {
    V steps = hn::Zero(d);
    for (int j = 0; j < Element::subnormal_codes; ++j) {
      steps = count_above(steps, x, hn::Set(d, subnormal_bound<kElement, Word>(j)));
    }
    return steps;
  };
  if constexpr (Element::rarely_subnormal) {
    const auto above_zero = hn::Gt(x, hn::Set(d, subnormal_bound<kElement, Word>(0)));
    const auto below_normal = hn::Lt(x, hn::Set(d, static_cast<Word>(Word{1} << (dropped + Element::fraction_bits))));
    if (HWY_LIKELY(hn::AllFalse(d, hn::And(above_zero, below_normal)))) {
      code = hn::Max(code, hn::Zero(d));
    } else {
      code = hn::Max(code, count_steps());
    }
  } else {
    code = hn::Max(code, count_steps());
  }
  return hn::Min(code, hn::Set(d, static_cast<Word>(Element::largest_code)));
}

/// Adds the signs of the source words, and stores the codes.
template <DataType kElement, class D>
HWY_INLINE void store_codes(D d, hn::Vec<D> code, hn::Vec<D> words, std::uint8_t* to) {
  using Element = MxElement<kElement>;
  const hn::RebindToUnsigned<D> du;
  constexpr int sign_shift = 8 * static_cast<int>(sizeof(hn::TFromD<D>)) - 1 - Element::sign_bit;
  const auto sign = hn::And(hn::BitCast(d, hn::ShiftRight<sign_shift>(hn::BitCast(du, words))),
                            hn::Set(d, static_cast<hn::TFromD<D>>(1 << Element::sign_bit)));
  const auto signed_code = hn::Or(code, sign);
  if constexpr (Element::format.is_packed()) {
    store_nibbles(d, signed_code, to);
  } else {
    store_bytes(d, signed_code, to);
  }
}

template <DataType kElement>
inline constexpr std::size_t kGroupBytes = MxElement<kElement>::format.is_packed() ? mx_group_lanes / 2
                                                                                   : mx_group_lanes;

/// The FP32 word of a subnormal magnitude, as if exponent fields could be negative. Precondition: it is not zero.
constexpr std::int32_t normalised_subnormal(std::int32_t magnitude) noexcept {
  const int width = static_cast<int>(std::bit_width(static_cast<std::uint32_t>(magnitude)));
  return (width - 24) * (1 << 23) + (magnitude << (24 - width));
}

/// The scale code of a maximum: its exponent field by the rule, less the exponent of the largest element, clamped.
template <DataType kElement>
HWY_INLINE int scale_code(int biased_exponent) {
  return std::clamp(biased_exponent - MxElement<kElement>::largest_exponent, 0, 0xFE);
}

/// Equals quantize_mx_group() for 32 lanes of BF16 or FP32 words, whatever they hold. This is the slow way, in lanes of
/// 32 bits: for groups with infinities, NaN or subnormals that count. Precondition: not all lanes are zero.
template <DataType kElement, DataType kSource>
HWY_NOINLINE void quantize_special_group(const std::byte* from, ScaleRounding rule, std::uint8_t* codes,
                                         std::uint8_t* scale) {
  using Element = MxElement<kElement>;
  const Word32 d;
  constexpr std::size_t lanes = hn::MaxLanes(Word32());
  constexpr std::size_t vectors = mx_group_lanes / lanes;
  constexpr std::int32_t infinity = 0x7F800000;
  constexpr std::int32_t binade = 1 << 23;

  Vec32 words[vectors];
  Vec32 all = hn::Zero(d);
  Vec32 normalised[vectors];
  for (std::size_t i = 0; i < vectors; ++i) {
    if constexpr (kSource == DataType::bf16) {
      words[i] = load_bf16_as_fp32(d, from + i * lanes * 2);
    } else {
      words[i] = load_words(d, from + i * lanes * 4);
    }
    const Vec32 magnitude = hn::And(words[i], hn::Set(d, 0x7FFFFFFF));
    all = hn::Max(all, magnitude);
    // A subnormal is an integer of 2^-149: its word if exponent fields could be negative. Zero is far below all.
    const Vec32 subnormal = hn::Sub(unbiased_word(d, magnitude), hn::Set(d, (149 - 127) * binade));
    normalised[i] = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, binade)), subnormal, magnitude);
  }
  const std::int32_t maximum = largest_lane(d, all);
  if (maximum > infinity) {
    *scale = 0xFF;
    std::memset(codes, 0, kGroupBytes<kElement>);
    return;
  }
  int code = 0xFE;
  if (maximum < infinity) {
    const std::int32_t amax = maximum < binade ? normalised_subnormal(maximum) : maximum;
    code = scale_code<kElement>((amax + scale_carry<kElement, 23>(rule)) >> 23);
  }
  *scale = static_cast<std::uint8_t>(code);
  const std::int32_t shift = (code - Element::bias) * binade;
  for (std::size_t i = 0; i < vectors; ++i) {
    // The difference must not leave 32 bits: 2^-60 rounds to zero as all that is less does.
    const Vec32 x = hn::Sub(hn::Max(normalised[i], hn::Set(d, shift - 60 * binade)), hn::Set(d, shift));
    const auto infinite = hn::Eq(hn::And(words[i], hn::Set(d, 0x7FFFFFFF)), hn::Set(d, infinity));
    const Vec32 codes32 = hn::IfThenElse(infinite, hn::Set(d, Element::largest_code), encode_elements<kElement>(d, x));
    store_codes<kElement>(d, codes32, words[i], codes + i * kGroupBytes<kElement> / vectors);
  }
}

/// Equals quantize_mx_group() for 32 lanes of BF16 or FP32 words; lanes as wide as the words.
template <DataType kElement, DataType kSource, class D, typename Word = hn::TFromD<D>>
HWY_INLINE void quantize_group(D d, const std::byte* from, ScaleRounding rule, Word carry, std::uint8_t* codes,
                               std::uint8_t* scale) {
  using Element = MxElement<kElement>;
  using V = hn::Vec<D>;
  constexpr int fraction_bits = sizeof(Word) == 2 ? 7 : 23;
  constexpr Word infinity = static_cast<Word>(Word{255} << fraction_bits);
  constexpr std::size_t lanes = hn::MaxLanes(D());
  constexpr std::size_t vectors = mx_group_lanes / lanes;
  const V magnitude_mask = hn::Set(d, hwy::LimitsMax<Word>());
  V words[vectors];
  V all = hn::Zero(d);
  for (std::size_t i = 0; i < vectors; ++i) {
    words[i] = load_words(d, from + i * lanes * sizeof(Word));
    all = hn::Max(all, hn::And(words[i], magnitude_mask));
  }
  const Word amax = largest_lane(d, all);
  // Unsigned, because the word of a NaN may carry into the sign bit; that code is not used.
  const std::uint32_t carried = static_cast<std::uint32_t>(amax) + static_cast<std::uint32_t>(carry);
  const int code = scale_code<kElement>(static_cast<int>(carried >> fraction_bits));
  // Words of subnormals, and of zero, do not measure them: read as if their exponent field meant what it says, they
  // seem greater, but stay below 2^-126. That is no harm where all below 2^-126 rounds to zero: where half the least
  // element, 2^(-bias - f), times the scale is no less.
  const bool plain = code > Element::bias + Element::fraction_bits && amax < infinity;
  if (HWY_UNLIKELY(!plain && amax != 0)) {
    quantize_special_group<kElement, kSource>(from, rule, codes, scale);
    return;
  }
  *scale = static_cast<std::uint8_t>(code);
  // A group of zeros has code 0, but its elements are rounded under a scale that leaves zero of them.
  const int element_scale = amax == 0 ? 0xFE : code;
  const V shift = hn::Set(d, static_cast<Word>((element_scale - Element::bias) * (1 << fraction_bits)));
  for (std::size_t i = 0; i < vectors; ++i) {
    const V x = hn::Sub(hn::And(words[i], magnitude_mask), shift);
    store_codes<kElement>(d, encode_elements<kElement>(d, x), words[i], codes + i * kGroupBytes<kElement> / vectors);
  }
}

template <DataType kElement, DataType kSource, class D>
HWY_INLINE void quantize_line(D d, const std::byte* words, std::size_t lanes, ScaleRounding rule, std::uint8_t* codes,
                              std::uint8_t* scales) {
  using Word = hn::TFromD<D>;
  constexpr std::size_t group_bytes = mx_group_lanes * sizeof(Word);
  const auto carry = static_cast<Word>(scale_carry < kElement, sizeof(Word) == 2 ? 7 : 23 > (rule));
  for (; lanes >= mx_group_lanes; lanes -= mx_group_lanes) {
    quantize_group<kElement, kSource>(d, words, rule, carry, codes, scales);
    words += group_bytes;
    codes += kGroupBytes<kElement>;
    ++scales;
  }
  if (lanes == 0) return;
  std::array<std::byte, group_bytes> group{};  // missing lanes are +0, and their codes 0
  std::array<std::uint8_t, kGroupBytes<kElement>> group_codes;
  std::memcpy(group.data(), words, lanes * sizeof(Word));
  quantize_group<kElement, kSource>(d, group.data(), rule, carry, group_codes.data(), scales);
  std::memcpy(codes, group_codes.data(), MxElement<kElement>::format.is_packed() ? (lanes + 1) / 2 : lanes);
}

/// Equals convert_value() of dequantize_mx_lane() for 32 lanes.
template <DataType kElement, DataType kTo>
HWY_INLINE void dequantize_group(const std::uint8_t* codes, std::uint8_t scale, std::byte* to, Raised& raised) {
  using Element = MxElement<kElement>;
  const Word32 d;
  if (HWY_UNLIKELY(scale == 0xFF)) {
    store_nan<kTo, mx_group_lanes>(d, to);
    return;
  }
  std::array<std::uint8_t, mx_group_lanes> spread;
  if constexpr (Element::format.is_packed()) {
    spread_nibbles<mx_group_lanes / 2>(codes, spread.data());
    codes = spread.data();
  }
  const hn::Rebind<std::uint8_t, Word32> d8;
  constexpr std::int32_t binade = 1 << 23;
  constexpr int fraction_bits = Element::fraction_bits;
  const Vec32 exponent = hn::Set(d, (scale - 127) * binade);
  // Whether every element but 0 is a normal value of the destination.
  constexpr int least = 1 - Element::bias - fraction_bits;
  constexpr const Format& destination = format_of(kTo);
  const bool in_range =
      scale - 127 + least >= 1 - destination.bias && scale - 127 + Element::largest_exponent <= destination.bias;
  const auto convert_lanes = [&](auto known_in_range) HWY_ATTR {
    for (std::size_t i = 0; i < mx_group_lanes; i += hn::MaxLanes(Word32())) {
      const Vec32 code = hn::PromoteTo(d, hn::LoadU(d8, codes + i));
      const Vec32 magnitude = hn::And(code, hn::Set(d, (1 << Element::sign_bit) - 1));
      const Vec32 normal = hn::Sub(hn::ShiftLeft<23 - fraction_bits>(magnitude), hn::Set(d, Element::bias * binade));
      const Vec32 subnormal = hn::Add(unbiased_word(d, magnitude), hn::Set(d, least * binade));
      const auto is_subnormal = hn::Lt(magnitude, hn::Set(d, Element::subnormal_codes));
      const Vec32 y = hn::Add(hn::IfThenElse(is_subnormal, subnormal, normal), exponent);
      auto count = hn::Gt(magnitude, hn::Zero(d));
      Vec32 sign = hn::And(hn::ShiftLeft<31 - Element::sign_bit>(code), hn::Set(d, hwy::LimitsMin<std::int32_t>()));
      constexpr bool all_finite = Element::format.is_packed();
      if constexpr (!all_finite) {
        // Infinities and NaN (E5M2, E4M3), and invalid encodings, which count as signalling NaN (6-bit formats).
        const auto special =
            hn::Gt(hn::And(code, hn::Set(d, ~(1 << Element::sign_bit))), hn::Set(d, Element::largest_code));
        count = hn::And(count, hn::Not(special));
        Vec32 word = encode_magnitude<kTo, decltype(known_in_range)::value>(d, y, count, raised);
        if (HWY_UNLIKELY(!hn::AllFalse(d, special))) {
          auto nan = special;
          auto signalling = special;
          if constexpr (Element::format.has_infinity) {
            const auto infinite = hn::Eq(magnitude, hn::Set(d, static_cast<std::int32_t>(Element::format.infinity)));
            word = hn::IfThenElse(infinite, hn::Set(d, static_cast<std::int32_t>(destination.infinity)), word);
            nan = hn::And(special, hn::Not(infinite));
            // The top fraction bit makes a NaN quiet.
            signalling = hn::And(nan, hn::Not(hn::TestBit(magnitude, hn::Set(d, 1 << (fraction_bits - 1)))));
          } else if constexpr (Element::format.nan != NanCodes::none) {
            signalling = hn::And(special, hn::Not(special));
          }
          word = hn::IfThenElse(nan, hn::Set(d, static_cast<std::int32_t>(destination.canonical_nan)), word);
          sign = hn::IfThenZeroElse(nan, sign);
          raised.invalid = hn::Or(raised.invalid, hn::VecFromMask(d, signalling));
        }
        store_signed<kTo>(d, word, sign, to + i * destination.carrier_bits / 8);
      } else {
        store_signed<kTo>(d, encode_magnitude<kTo, decltype(known_in_range)::value>(d, y, count, raised), sign,
                          to + i * destination.carrier_bits / 8);
      }
    }
  };
  if (HWY_LIKELY(in_range)) {
    convert_lanes(std::true_type());
  } else {
    convert_lanes(std::false_type());
  }
}

template <DataType kElement, DataType kTo>
HWY_INLINE Flags dequantize_line(const std::uint8_t* codes, const std::uint8_t* scales, std::size_t lanes,
                                 std::byte* to) {
  constexpr std::size_t word_bytes = format_of(kTo).carrier_bits / 8;
  constexpr bool packed = MxElement<kElement>::format.is_packed();
  const Word32 d;
  Raised raised(d);
  for (; lanes >= mx_group_lanes; lanes -= mx_group_lanes) {
    dequantize_group<kElement, kTo>(codes, *scales, to, raised);
    codes += kGroupBytes<kElement>;
    ++scales;
    to += mx_group_lanes * word_bytes;
  }
  if (lanes > 0) {
    std::array<std::uint8_t, kGroupBytes<kElement>> group{};  // missing lanes are 0 and raise nothing
    std::array<std::byte, mx_group_lanes * word_bytes> words;
    std::memcpy(group.data(), codes, packed ? (lanes + 1) / 2 : lanes);
    if (packed && lanes % 2 != 0) group[lanes / 2] &= 0x0F;
    dequantize_group<kElement, kTo>(group.data(), *scales, words.data(), raised);
    std::memcpy(to, words.data(), lanes * word_bytes);
  }
  return raised.flags(d);
}

template <DataType kElement>
void quantize_as(DataType source, const std::byte* words, std::size_t lanes, ScaleRounding rule, std::uint8_t* codes,
                 std::uint8_t* scales) {
  if (source == DataType::bf16) {
    quantize_line<kElement, DataType::bf16>(Word16(), words, lanes, rule, codes, scales);
  } else {
    quantize_line<kElement, DataType::fp32>(Word32(), words, lanes, rule, codes, scales);
  }
}

template <DataType kElement>
Flags dequantize_as(const std::uint8_t* codes, const std::uint8_t* scales, std::size_t lanes, DataType to,
                    std::byte* words) {
  if (to == DataType::fp32) return dequantize_line<kElement, DataType::fp32>(codes, scales, lanes, words);
  if (to == DataType::bf16) return dequantize_line<kElement, DataType::bf16>(codes, scales, lanes, words);
  return dequantize_line<kElement, DataType::fp16>(codes, scales, lanes, words);
}

}  // namespace

bool mx_available() {
  return true;
}

void mx_quantize(DataType element, DataType source, const std::byte* words, std::size_t lanes, ScaleRounding rule,
                 std::uint8_t* codes, std::uint8_t* scales) {
  switch (element) {
    case DataType::e4m3:
      return quantize_as<DataType::e4m3>(source, words, lanes, rule, codes, scales);
    case DataType::e5m2:
      return quantize_as<DataType::e5m2>(source, words, lanes, rule, codes, scales);
    case DataType::e3m2:
      return quantize_as<DataType::e3m2>(source, words, lanes, rule, codes, scales);
    case DataType::e2m3:
      return quantize_as<DataType::e2m3>(source, words, lanes, rule, codes, scales);
    case DataType::e2m1x2:
      return quantize_as<DataType::e2m1x2>(source, words, lanes, rule, codes, scales);
    default:
      return quantize_as<DataType::e1m2x2>(source, words, lanes, rule, codes, scales);
  }
}

Flags mx_dequantize(DataType element, const std::uint8_t* codes, const std::uint8_t* scales, std::size_t lanes,
                    DataType to, std::byte* words) {
  switch (element) {
    case DataType::e4m3:
      return dequantize_as<DataType::e4m3>(codes, scales, lanes, to, words);
    case DataType::e5m2:
      return dequantize_as<DataType::e5m2>(codes, scales, lanes, to, words);
    case DataType::e3m2:
      return dequantize_as<DataType::e3m2>(codes, scales, lanes, to, words);
    case DataType::e2m3:
      return dequantize_as<DataType::e2m3>(codes, scales, lanes, to, words);
    case DataType::e2m1x2:
      return dequantize_as<DataType::e2m1x2>(codes, scales, lanes, to, words);
    default:
      return dequantize_as<DataType::e1m2x2>(codes, scales, lanes, to, words);
  }
}

#else

bool mx_available() {
  return false;
}
void mx_quantize(DataType, DataType, const std::byte*, std::size_t, ScaleRounding, std::uint8_t*, std::uint8_t*) {}
Flags mx_dequantize(DataType, const std::uint8_t*, const std::uint8_t*, std::size_t, DataType, std::byte*) {
  return Flags::none;
}

#endif  // BITCUBE_HAS_KERNELS
}  // namespace bitcube::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bitcube::kernels {

HWY_EXPORT(mx_available);
HWY_EXPORT(mx_quantize);
HWY_EXPORT(mx_dequantize);

bool quantize_mx(const Format& source, const std::byte* words, std::size_t lanes, const Format& element,
                 ScaleRounding rule, std::byte* codes, std::byte* scales) noexcept {
  if (source.type != DataType::bf16 && source.type != DataType::fp32) return false;
  if (!is_mx_element(element) || !HWY_DYNAMIC_DISPATCH(mx_available)()) return false;
  HWY_DYNAMIC_DISPATCH(mx_quantize)
  (element.type, source.type, words, lanes, rule, reinterpret_cast<std::uint8_t*>(codes),
   reinterpret_cast<std::uint8_t*>(scales));
  return true;
}

bool dequantize_mx(const std::byte* codes, const std::byte* scales, std::size_t lanes, const Format& element,
                   const Format& destination, std::byte* words, Flags& flags) noexcept {
  const DataType to = destination.type;
  if (to != DataType::fp32 && to != DataType::bf16 && to != DataType::fp16) return false;
  if (!is_mx_element(element) || !HWY_DYNAMIC_DISPATCH(mx_available)()) return false;
  flags |= HWY_DYNAMIC_DISPATCH(mx_dequantize)(element.type, reinterpret_cast<const std::uint8_t*>(codes),
                                               reinterpret_cast<const std::uint8_t*>(scales), lanes, to, words);
  return true;
}

}  // namespace bitcube::kernels
#endif  // HWY_ONCE
