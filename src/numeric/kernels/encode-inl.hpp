// The vector encoder: magnitudes of 30 significant bits to codes with one rounding, in 32-bit integer arithmetic.
// Included once per target, as Highway's foreach_target.h has it.
#if defined(BITCUBE_NUMERIC_KERNELS_ENCODE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef BITCUBE_NUMERIC_KERNELS_ENCODE_INL
#undef BITCUBE_NUMERIC_KERNELS_ENCODE_INL
#else
#define BITCUBE_NUMERIC_KERNELS_ENCODE_INL
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "numeric/kernels/encode_constants.hpp"

// The plain targets lack many operations; there the reference does the work.
#undef BITCUBE_VECTOR_TARGET
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#define BITCUBE_VECTOR_TARGET 0
#else
#define BITCUBE_VECTOR_TARGET 1

HWY_BEFORE_NAMESPACE();
namespace bitcube::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D32 = hn::ScalableTag<std::uint32_t>;
using S32 = hn::RebindToSigned<D32>;
using F32 = hn::RebindToFloat<D32>;
using U = hn::Vec<D32>;
using I = hn::Vec<S32>;
using M = hn::Mask<D32>;

constexpr D32 d32{};
constexpr S32 s32{};

// Rounding modes fixed at compile time; `any` reads the mode at run time.
enum class Mode { any, rne, rhb };

HWY_INLINE U constant(std::uint32_t x) {
  return hn::Set(d32, x);
}
HWY_INLINE I constant(std::int32_t x) {
  return hn::Set(s32, x);
}
HWY_INLINE U bits(I x) {
  return hn::BitCast(d32, x);
}
HWY_INLINE I number(U x) {
  return hn::BitCast(s32, x);
}
/// Comparisons as numbers below 2^31, which every target compares in one step.
HWY_INLINE M greater(I a, I b) {
  return hn::RebindMask(d32, hn::Gt(a, b));
}
HWY_INLINE M greater(U a, std::int32_t b) {
  return greater(number(a), constant(b));
}
HWY_INLINE M is_negative(U x) {
  return greater(hn::Zero(s32), number(x));
}
HWY_INLINE M nobody() {
  return hn::MaskFromVec(hn::Zero(d32));
}
/// 1 where the mask is set, else 0.
HWY_INLINE I one_if(M m) {
  return hn::IfThenElseZero(hn::RebindMask(s32, m), constant(1));
}

/// Words of any alignment.
HWY_INLINE U load(const std::byte* from) {
  const hn::Repartition<std::uint8_t, D32> d8;
  return hn::BitCast(d32, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(from)));
}
/// Stores the low bytes of every lane one after the other. Precondition: the other bytes are 0 where Word has 8 bits.
template <typename Word>
HWY_INLINE void store(U lanes, std::byte* to) {
  if constexpr (sizeof(Word) == 4) {
    const hn::Repartition<std::uint8_t, D32> d8;
    hn::StoreU(hn::BitCast(d8, lanes), d8, reinterpret_cast<std::uint8_t*>(to));
  } else if constexpr (sizeof(Word) == 2) {
    const hn::Rebind<std::uint16_t, D32> d16;
    const hn::Repartition<std::uint8_t, decltype(d16)> d8;
    hn::StoreU(hn::BitCast(d8, hn::TruncateTo(d16, lanes)), d8, reinterpret_cast<std::uint8_t*>(to));
  } else {
    // Not TruncateTo, which permutes 32-bit lanes by 8-bit indices on AVX3_DL in Highway 1.0.3.
    const hn::Rebind<std::uint8_t, D32> d8;
    hn::StoreU(hn::DemoteTo(d8, number(lanes)), d8, reinterpret_cast<std::uint8_t*>(to));
  }
}

/// Calls body(in, out) for vectors that cover `count` elements. Where the last one would reach beyond the end it starts
/// earlier instead, and a short array is filled up with copies of its first element: what is computed twice gives the
/// same bits and flags. `in` and `out` must not overlap. There is one call, so that the body is compiled into the loop.
template <std::size_t InBytes, std::size_t OutBytes, typename Body>
HWY_INLINE void for_each_vector(const std::byte* in, std::size_t count, std::byte* out, const Body& body) {
  const std::size_t lanes = hn::Lanes(d32);
  if (count == 0) return;
  std::byte padded[hn::MaxLanes(d32) * InBytes];
  std::byte results[hn::MaxLanes(d32) * OutBytes];
  std::byte* to = out;
  const bool is_short = count < lanes;
  if (is_short) {
    for (std::size_t i = 0; i < lanes; ++i) {
      std::memcpy(padded + i * InBytes, in + (i < count ? i : 0) * InBytes, InBytes);
    }
    in = padded;
    to = results;
  }
  const std::size_t total = is_short ? lanes : count;
  for (std::size_t i = 0; i < total; i += lanes) {
    const std::size_t at = i < total - lanes ? i : total - lanes;
    body(in + at * InBytes, to + at * OutBytes);
  }
  if (is_short) std::memcpy(out, results, count * OutBytes);
}

/// The flags of many vectors, OR-ed.
struct FlagSums {
  U inexact;  // not zero: NX
  M invalid;
  M overflow;
  M underflow;

  // Written out, because an implicit constructor is not compiled for the target.
  HWY_INLINE FlagSums() : inexact(hn::Zero(d32)), invalid(nobody()), overflow(nobody()), underflow(nobody()) {}

  HWY_INLINE Flags flags() const {
    Flags out = Flags::none;
    if (!hn::AllTrue(d32, hn::Eq(inexact, hn::Zero(d32)))) out |= Flags::inexact;
    if (!hn::AllFalse(d32, invalid)) out |= Flags::invalid;
    if (!hn::AllFalse(d32, overflow)) out |= overflow_inexact;
    if (!hn::AllFalse(d32, underflow)) out |= underflow_inexact;
    return out;
  }
};

/// What rounds_away says, as a number to add before the low bits are cut off: `below` is all ones in the bits to be
/// cut, at least one; `odd` is 1 where the lower neighbour's code is odd, else 0; `sign` holds the sign in bit 31.
template <Mode mode>
HWY_INLINE U rounding_increment(Rounding rounding, U sign, U odd, U below) {
  const U below_half = hn::ShiftRight<1>(below);
  const U negative = bits(hn::BroadcastSignBit(number(sign)));
  if constexpr (mode == Mode::rne) return hn::Add(below_half, odd);
  if constexpr (mode == Mode::rhb) return hn::Add(below_half, hn::Add(constant(1U), negative));
  switch (rounding) {
    case Rounding::rne:
      return hn::Add(below_half, odd);
    case Rounding::rtz:
      break;
    case Rounding::rtm:
      return hn::And(below, negative);
    case Rounding::rtp:
      return hn::AndNot(negative, below);
    case Rounding::rna:
      return hn::Add(below_half, constant(1U));
    case Rounding::rto:
      return hn::And(below, hn::Sub(odd, constant(1U)));
    case Rounding::rhb:
      return hn::Add(below_half, hn::Add(constant(1U), negative));
  }
  return hn::Zero(d32);
}

struct Rounded {
  U code;    // of the magnitude, without low zero bits
  U rest;    // what was cut off; zero where exact
  M beyond;  // the rounded value is beyond the range
};

/// Shift from a significand to quanta of 2^quantum. A significand below 2^30 has neither a quantum nor half of one from
/// 31 on, so greater shifts do as 31 does.
HWY_INLINE U quantum_shift(I exponent, I quantum) {
  return bits(hn::Min(hn::Add(hn::Sub(quantum, exponent), constant(lead)), constant(31)));
}

/// Formats with an exponent and a fraction field: the significand in quanta, consecutive codes for consecutive
/// magnitudes. The leading bit of the significand may be lower than `lead` where exponent <= min_exponent.
template <Mode mode>
HWY_INLINE Rounded round_fields(const EncodeConstants& c, I exponent, U significand, U sign) {
  const I binade = hn::Max(exponent, constant(c.min_exponent));
  const U shift = quantum_shift(exponent, hn::Sub(binade, constant(c.fraction_bits)));
  const U below = hn::Sub(hn::Shl(constant(1U), shift), constant(1U));
  const U odd = hn::And(hn::Shr(significand, shift), constant(1U));
  const U increment = rounding_increment<mode>(c.rounding, sign, odd, below);
  const U quanta = hn::Shr(hn::Add(significand, increment), shift);
  const U field = hn::ShiftLeftSame(bits(hn::Sub(binade, constant(c.min_exponent))), c.fraction_bits);
  const U code = hn::Add(field, quanta);
  return {code, hn::And(significand, below), greater(code, c.largest_code)};
}

/// table[x % 16] for x < 128.
HWY_INLINE U lookup(const std::uint8_t (&table)[16], U x) {
  const hn::Repartition<std::uint8_t, D32> d8;
  const auto index = hn::BitCast(d8, hn::Or(x, constant(0x80808000U)));  // 0 in the other bytes
  return hn::BitCast(d32, hn::TableLookupBytesOr0(hn::LoadDup128(d8, table), index));
}

/// HiF8: magnitudes as FP32 patterns, where bits that a magnitude lost are marked in the last bit, to hif8_code.
///
/// The pattern itself is rounded, so a carry finds its way into the exponent. The binades below 2^-15 have no fraction
/// bits and the codes e + 23, whose last bit is the last bit of the exponent field. What lies below 2^-22, the smallest
/// value, is brought there as a binade of its own that reaches from 0 to 2^-22: the field of 2^-23 and as fraction the
/// part of 2^-22, of which only a half and whether there is more matter. Its "code" is 0.
template <Mode mode>
HWY_INLINE Rounded round_hif8(const EncodeConstants& c, U magnitude, U sign) {
  alignas(16) static constexpr std::uint8_t width[16] = {
      // by |e| / 2: bits of the pattern that are cut off
      20, 20, 21, 21, 22, 22, 22, 22, 23, 23, 23, 23, 23, 23, 23, 23};
  alignas(16) static constexpr std::uint8_t positive[16] = {
      // codes of 2^|e|
      0x08, 0x10, 0x20, 0x28, 0x40, 0x44, 0x48, 0x4C, 0x60, 0x62, 0x64, 0x66, 0x68, 0x6A, 0x6C, 0x6E};
  alignas(16) static constexpr std::uint8_t negative[16] = {
      // codes of 2^-|e|
      0x08, 0x18, 0x30, 0x38, 0x50, 0x54, 0x58, 0x5C, 0x70, 0x72, 0x74, 0x76, 0x78, 0x7A, 0x7C, 0x7E};
  const U fraction_mask = constant(0x007FFFFFU);
  const U smallest = constant((127U - 22) << 23);
  const M below_all = greater(number(smallest), number(magnitude));
  if (HWY_UNLIKELY(!hn::AllFalse(d32, below_all))) {
    const U significand = hn::Or(hn::And(magnitude, fraction_mask), constant(0x00800000U));
    const U half = hn::Or(hn::ShiftRight<1>(significand), hn::And(significand, constant(1U)));
    const U part = hn::IfThenElse(greater(magnitude, ((127 - 23) << 23) - 1), half, hn::Min(magnitude, constant(1U)));
    magnitude = hn::IfThenElse(below_all, hn::Or(constant((127U - 23) << 23), part), magnitude);
  }
  // From 2^16 up all is beyond the range alike, so |e| < 32; where |e| > 15 below, the tables give what nobody takes.
  magnitude = hn::Min(magnitude, constant((127U + 16) << 23));
  const I e = hn::Sub(number(hn::ShiftRight<23>(magnitude)), constant(127));
  const U half_e = hn::ShiftRight<1>(bits(hn::Abs(e)));
  const U shift = lookup(width, half_e);
  const U below = hn::Sub(hn::Shl(constant(1U), shift), constant(1U));
  const U odd = hn::And(hn::Shr(magnitude, shift), constant(1U));
  const U increment = rounding_increment<mode>(c.rounding, sign, odd, below);
  const U rounded = hn::AndNot(below, hn::Add(magnitude, increment));

  const I rounded_e = hn::Sub(number(hn::ShiftRight<23>(rounded)), constant(127));
  const M low = greater(constant(-15), rounded_e);
  const U index = bits(hn::Abs(rounded_e));
  const U start = hn::IfThenElse(is_negative(bits(rounded_e)), lookup(negative, index), lookup(positive, index));
  // After a carry the fraction is 0, so the width of the old binade serves.
  const U fraction = hn::Shr(hn::And(rounded, fraction_mask), shift);
  const U code = hn::IfThenElse(low, bits(hn::Add(rounded_e, constant(23))), hn::Add(start, fraction));
  return {code, hn::And(magnitude, below), greater(rounded, (127 + 15) << 23)};  // 2^15 is the largest value
}

struct Delivered {
  U word;
  U rest;  // zero where exact; an overflow raises NX besides
  M overflow;
  M underflow;
};

/// The last part of encode_floating: overflow, underflow, the sign. `over`: beyond the range before rounding; `tiny`:
/// as the constants say, before the test of the delivered code.
HWY_INLINE Delivered deliver(const EncodeConstants& c, const Rounded& r, U sign, M over, M tiny) {
  const M overflow = hn::Or(over, r.beyond);
  const M exact = hn::Eq(r.rest, hn::Zero(d32));
  M underflow = hn::AndNot(exact, tiny);
  if (c.tiny_by_result) underflow = hn::And(underflow, greater(constant(c.tiny_codes), number(r.code)));
  const U word = hn::IfThenElse(overflow, constant(c.overflow_word), hn::ShiftLeftSame(r.code, c.low_zero_bits));
  if (c.drops_signs) {
    const M zero = hn::Eq(word, hn::Zero(d32));
    if (c.overflow_drops_sign) sign = hn::IfThenZeroElse(overflow, sign);
    if (c.zero_drops_sign) {
      sign = hn::IfThenZeroElse(zero, sign);
    } else if (c.underflow_drops_sign) {
      sign = hn::IfThenZeroElse(hn::AndNot(exact, zero), sign);
    }
  }
  return {hn::Or(word, hn::ShiftRightSame(sign, c.sign_shift)), r.rest, overflow, underflow};
}

/// The limits of deliver() as FP32 patterns.
struct PatternLimits {
  std::int32_t over_from;   // patterns above are beyond the range
  std::int32_t tiny_to[2];  // patterns up to these are tiny

  explicit PatternLimits(const EncodeConstants& c)
      : over_from(fp32_at_most(c.over_exponent, c.over_significand)),
        tiny_to{fp32_at_most(c.underflow_exponent - 1, c.tiny_significand[0]),
                fp32_at_most(c.underflow_exponent - 1, c.tiny_significand[1])} {}
};

/// encode_floating of magnitudes that are FP32 patterns. For HiF8 bits that a magnitude lost may be marked in the last
/// bit: the limits differ from an exact value that a pattern stands for far above that bit.
template <Mode mode, Layout layout>
HWY_INLINE Delivered encode_pattern(const EncodeConstants& c, const PatternLimits& limits, U magnitude, U sign) {
  const M over = greater(magnitude, limits.over_from);
  const I tiny_to =
      hn::IfThenElse(hn::RebindMask(s32, is_negative(sign)), constant(limits.tiny_to[1]), constant(limits.tiny_to[0]));
  const M tiny = hn::Not(greater(number(magnitude), tiny_to));
  if constexpr (layout == Layout::dot_field) {
    return deliver(c, round_hif8<mode>(c, magnitude, sign), sign, over, tiny);
  }
  // Subnormals have the exponent of the smallest normal and no hidden bit; the rounding does not mind.
  const U field = hn::And(magnitude, constant(0x7F800000U));
  const U hidden = hn::Min(field, constant(0x00800000U));
  const I exponent = number(hn::Sub(hn::ShiftRight<23>(hn::Max(field, constant(0x00800000U))), constant(127U)));
  const U significand = hn::ShiftLeft<lead - 23>(hn::Or(hn::And(magnitude, constant(0x007FFFFFU)), hidden));
  return deliver(c, round_fields<mode>(c, exponent, significand, sign), sign, over, tiny);
}

}  // namespace
}  // namespace bitcube::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // BITCUBE_VECTOR_TARGET
#endif  // the include guard that foreach_target.h toggles
