// Steps that the kernels share, once per SIMD target; included inside foreach_target. Lanes are signed integers of 16
// or 32 bits: magnitude words of BF16 and FP32 leave the sign bit free, so signed comparison orders them, and every
// target has it.
#if defined(BITCUBE_QUANTIZE_KERNELS_LANES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BITCUBE_QUANTIZE_KERNELS_LANES_INL_HPP
#undef BITCUBE_QUANTIZE_KERNELS_LANES_INL_HPP
#else
#define BITCUBE_QUANTIZE_KERNELS_LANES_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

// Vectors of an unknown length, and targets that lack the operations, have no kernels: the reference does their work.
#undef BITCUBE_HAS_KERNELS
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_HAVE_SCALABLE
#define BITCUBE_HAS_KERNELS 0
#else
#define BITCUBE_HAS_KERNELS 1
#endif

HWY_BEFORE_NAMESPACE();
namespace bitcube::kernels::HWY_NAMESPACE {
#if BITCUBE_HAS_KERNELS

namespace hn = hwy::HWY_NAMESPACE;

using Word16 = hn::ScalableTag<std::int16_t>;
using Word32 = hn::ScalableTag<std::int32_t>;

/// Lanes per 128-bit block.
template <typename T>
inline constexpr std::size_t kBlockLanes = 16 / sizeof(T);

/// The largest of the first lanes of all blocks.
template <class D>
HWY_INLINE hn::TFromD<D> largest_first_lane(D /*d*/, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > kBlockLanes<hn::TFromD<D>>) {
    const hn::Half<D> half;
    return largest_first_lane(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    return hn::GetLane(v);
  }
}

/// The largest lane. Precondition: no lane is negative.
template <class D>
HWY_INLINE hn::TFromD<D> largest_lane(D /*d*/, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > kBlockLanes<hn::TFromD<D>>) {
    const hn::Half<D> half;
    return largest_lane(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    const hn::RebindToUnsigned<D> du;
    return static_cast<hn::TFromD<D>>(hn::GetLane(hn::MaxOfLanes(du, hn::BitCast(du, v))));
  }
}

/// Adds 1 to the lanes of `count` where v > bound.
template <class V>
HWY_INLINE V count_above(V count, V v, V bound) {
#if HWY_TARGET <= HWY_AVX3
  // One masked addition instead of a mask made into a vector.
  if constexpr (sizeof(hn::TFromV<V>) == 2) {
    return V{
        _mm512_mask_sub_epi16(count.raw, _mm512_cmpgt_epi16_mask(v.raw, bound.raw), count.raw, _mm512_set1_epi16(-1))};
  } else {
    return V{
        _mm512_mask_sub_epi32(count.raw, _mm512_cmpgt_epi32_mask(v.raw, bound.raw), count.raw, _mm512_set1_epi32(-1))};
  }
#else
  return hn::Sub(count, hn::VecFromMask(hn::DFromV<V>(), hn::Gt(v, bound)));
#endif
}

/// The mask as an integer, lane 0 in bit 0.
template <class D>
HWY_INLINE std::uint64_t mask_bits(D d, hn::Mask<D> mask) {
  std::uint64_t bits = 0;
  std::uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, mask, bytes);
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

/// Stores the low bytes of all lanes.
template <class V>
HWY_INLINE void store_low_bytes(V v, std::uint8_t* to) {
  const hn::Rebind<std::uint8_t, hn::DFromV<V>> bytes;
#if HWY_TARGET <= HWY_AVX3
  // TruncateTo() of Highway 1.0.3 is wrong here: on AVX3_DL it permutes words by the indices of bytes.
  if constexpr (sizeof(hn::TFromV<V>) == 4) {
    hn::StoreU(hn::Vec<decltype(bytes)>{_mm512_cvtepi32_epi8(v.raw)}, bytes, to);
    return;
  }
#endif
  hn::StoreU(hn::TruncateTo(bytes, v), bytes, to);
}

/// Stores the low bytes of all lanes.
template <class D>
HWY_INLINE void store_bytes(D /*d*/, hn::Vec<D> v, std::uint8_t* to) {
  store_low_bytes(hn::BitCast(hn::RebindToUnsigned<D>(), v), to);
}

/// Stores the low nibbles of all lanes, two per byte, the even lane low. Precondition: 0 <= lane < 16.
template <class D>
HWY_INLINE void store_nibbles(D /*d*/, hn::Vec<D> v, std::uint8_t* to) {
  const hn::RepartitionToWide<hn::RebindToUnsigned<D>> pairs;
  const auto pair = hn::BitCast(pairs, v);
  store_low_bytes(hn::Or(pair, hn::ShiftRight<static_cast<int>(8 * sizeof(hn::TFromD<D>)) - 4>(pair)), to);
}

/// The words at an address of any alignment.
template <class D>
HWY_INLINE hn::Vec<D> load_words(D d, const std::byte* from) {
  return hn::BitCast(d, hn::LoadU(hn::Repartition<std::uint8_t, D>(), reinterpret_cast<const std::uint8_t*>(from)));
}

/// The FP32 words of BF16 words at an address of any alignment.
HWY_INLINE hn::Vec<Word32> load_bf16_as_fp32(Word32 d, const std::byte* from) {
  const hn::Rebind<std::uint16_t, Word32> narrow;
  const auto words = hn::BitCast(narrow, hn::LoadU(hn::Repartition<std::uint8_t, decltype(narrow)>(),
                                                   reinterpret_cast<const std::uint8_t*>(from)));
  const hn::RebindToUnsigned<Word32> du;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, words)));
}

/// Spreads the nibbles of kBytes bytes, a multiple of 16, to bytes; the low nibble is the even lane.
template <std::size_t kBytes>
HWY_INLINE void spread_nibbles(const std::uint8_t* from, std::uint8_t* to) {
  const hn::Full128<std::uint8_t> d;
  const hn::Full128<std::uint16_t> d16;
  const auto low_nibble = hn::Set(d, 0x0F);
  for (std::size_t i = 0; i < kBytes; i += 16) {
    const auto packed = hn::LoadU(d, from + i);
    const auto even = hn::And(packed, low_nibble);
    const auto odd = hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(d16, packed))), low_nibble);
    hn::StoreU(hn::InterleaveLower(d, even, odd), d, to + 2 * i);
    hn::StoreU(hn::InterleaveUpper(d, even, odd), d, to + 2 * i + 16);
  }
}

#endif  // BITCUBE_HAS_KERNELS
}  // namespace bitcube::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
