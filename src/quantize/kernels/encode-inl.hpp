// Exact values of few significant bits to words of FP32, BF16 or FP16 with RNE, once per SIMD target: what encode()
// does for the dequantisers. Included inside foreach_target.
#if defined(BITCUBE_QUANTIZE_KERNELS_ENCODE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BITCUBE_QUANTIZE_KERNELS_ENCODE_INL_HPP
#undef BITCUBE_QUANTIZE_KERNELS_ENCODE_INL_HPP
#else
#define BITCUBE_QUANTIZE_KERNELS_ENCODE_INL_HPP
#endif

#include "bitcube/numeric/flags.hpp"
#include "bitcube/numeric/format.hpp"
#include "quantize/kernels/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bitcube::kernels::HWY_NAMESPACE {
#if BITCUBE_HAS_KERNELS

using Vec32 = hn::Vec<Word32>;
using Mask32 = hn::Mask<Word32>;

/// Exact conversion of integers in [0, 2^24): such an integer is an FP32 value, so no rounding mode acts, and no
/// operand or result is a subnormal. The word as if its exponent field were not biased: floor(log2 i) << 23 | fraction;
/// for 0 it is the least of all.
HWY_INLINE Vec32 unbiased_word(Word32 d, Vec32 integer) {
  const hn::RebindToFloat<Word32> df;
  return hn::Sub(hn::BitCast(d, hn::ConvertTo(df, integer)), hn::Set(d, 127 << 23));
}

/// Which flags the lanes of a call raised: lanes that are not zero.
struct Raised {
  Vec32 overflow;
  Vec32 underflow;
  Vec32 invalid;

  HWY_INLINE explicit Raised(Word32 d) : overflow(hn::Zero(d)), underflow(hn::Zero(d)), invalid(hn::Zero(d)) {}

  HWY_INLINE Flags flags(Word32 d) const {
    const auto any = [d](Vec32 v) HWY_ATTR { return !hn::AllTrue(d, hn::Eq(v, hn::Zero(d))); };
    Flags f = Flags::none;
    if (any(overflow)) f |= overflow_inexact;
    if (any(underflow)) f |= underflow_inexact;
    if (any(invalid)) f |= Flags::invalid;
    return f;
  }
};

/// Magnitude words of the format kTo. `y` is an exact magnitude as an unbiased word: exponent in bits 23 and up,
/// fraction below, at most 6 significant bits, exponent in [-143, 142]; lanes outside `count` give 0 and no flags.
/// kInRange: the caller knows that every lane that counts is a normal value of kTo.
///
/// A normal result is exact, as 6 bits fit all three formats; so only a result below the normal range can be rounded,
/// and then to a magnitude that stays below it: it raises UF with NX.
template <DataType kTo, bool kInRange>
HWY_INLINE Vec32 encode_magnitude(Word32 d, Vec32 y, Mask32 count, Raised& raised) {
  constexpr const Format& to = format_of(kTo);
  constexpr int fraction_bits = to.fraction_bits;
  constexpr int bias = to.bias;
  Vec32 word = hn::Add(hn::ShiftRight<23 - fraction_bits>(y), hn::Set(d, bias << fraction_bits));
  if constexpr (!kInRange) {
    const Vec32 least_normal = hn::Set(d, (1 - bias) * (1 << 23));
    const Mask32 above = hn::And(count, hn::Gt(y, hn::Set(d, ((bias + 1) << 23) - 1)));
    const Mask32 below = hn::And(count, hn::Lt(y, least_normal));
    word = hn::IfThenElse(above, hn::Set(d, static_cast<std::int32_t>(to.infinity)), word);
    raised.overflow = hn::Or(raised.overflow, hn::VecFromMask(d, above));

    // The magnitude in units of 2^-extra quanta. The power of two moves it into the normal range of FP32, which needs
    // no arithmetic; conversion to an integer cuts, whatever the rounding mode. With FP32 as destination nothing is cut
    // off (the least element is 2^-143, of 3 bits). Otherwise what is cut off belongs to magnitudes below 2^-2 quanta:
    // they become 0 all the same, and are never exact.
    constexpr int quantum = 1 - bias - fraction_bits;
    constexpr int extra = kTo == DataType::fp32 ? 0 : 8;
    const Vec32 small = hn::Min(y, hn::Sub(least_normal, hn::Set(d, 1)));
    const hn::RebindToFloat<Word32> df;
    constexpr std::uint32_t power = std::uint32_t{127 + extra - quantum} << 23;  // modulo 2^32; the sum is in range
    const Vec32 scaled = hn::Add(small, hn::Set(d, static_cast<std::int32_t>(power)));
    const Vec32 units = hn::ConvertTo(d, hn::BitCast(df, scaled));
    Vec32 quanta = units;
    if constexpr (extra > 0) {
      const Vec32 odd = hn::And(hn::ShiftRight<extra>(units), hn::Set(d, 1));
      quanta = hn::ShiftRight<extra>(hn::Add(hn::Add(units, odd), hn::Set(d, (1 << (extra - 1)) - 1)));
      // Exact if units is a positive multiple of 2^extra; as unsigned numbers modulo 2^extra.
      const Vec32 rest = hn::And(units, hn::Set(d, (1 << extra) - 1));
      const Mask32 inexact = hn::Or(hn::Gt(rest, hn::Zero(d)), hn::Eq(units, hn::Zero(d)));
      raised.underflow = hn::Or(raised.underflow, hn::VecFromMask(d, hn::And(below, inexact)));
    }
    word = hn::IfThenElse(below, quanta, word);
  }
  return hn::IfThenElseZero(count, word);
}

/// Moves a sign from bit 31 to the sign bit of kTo and stores the words.
template <DataType kTo>
HWY_INLINE void store_signed(Word32 d, Vec32 magnitude, Vec32 sign, std::byte* to) {
  const hn::RebindToUnsigned<Word32> du;
  if constexpr (kTo == DataType::fp32) {
    const hn::Repartition<std::uint8_t, Word32> bytes;
    hn::StoreU(hn::BitCast(bytes, hn::Or(magnitude, sign)), bytes, reinterpret_cast<std::uint8_t*>(to));
  } else {
    const auto word = hn::Or(hn::BitCast(du, magnitude), hn::ShiftRight<16>(hn::BitCast(du, sign)));
    const hn::Rebind<std::uint16_t, Word32> narrow;
    const hn::Repartition<std::uint8_t, decltype(narrow)> bytes;
    hn::StoreU(hn::BitCast(bytes, hn::TruncateTo(narrow, word)), bytes, reinterpret_cast<std::uint8_t*>(to));
  }
  static_cast<void>(d);
}

/// kLanes canonical NaNs.
template <DataType kTo, std::size_t kLanes>
HWY_INLINE void store_nan(Word32 d, std::byte* to) {
  const Vec32 nan = hn::Set(d, static_cast<std::int32_t>(format_of(kTo).canonical_nan));
  for (std::size_t i = 0; i < kLanes; i += hn::MaxLanes(Word32())) {
    store_signed<kTo>(d, nan, hn::Zero(d), to + i * format_of(kTo).carrier_bits / 8);
  }
}

#endif  // BITCUBE_HAS_KERNELS
}  // namespace bitcube::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
