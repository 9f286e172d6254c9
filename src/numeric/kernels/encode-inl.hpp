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
/// same bits and flags. `in` and `out` must not overlap.
template <std::size_t InBytes, std::size_t OutBytes, typename Body>
HWY_INLINE void for_each_vector(const std::byte* in, std::size_t count, std::byte* out, const Body& body) {
  const std::size_t lanes = hn::Lanes(d32);
  if (count >= lanes) {
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes) body(in + i * InBytes, out + i * OutBytes);
    if (i != count) body(in + (count - lanes) * InBytes, out + (count - lanes) * OutBytes);
    return;
  }
  if (count == 0) return;
  std::byte padded[hn::MaxLanes(d32) * InBytes];
  std::byte results[hn::MaxLanes(d32) * OutBytes];
  for (std::size_t i = 0; i < lanes; ++i)
    std::memcpy(padded + i * InBytes, in + (i < count ? i : 0) * InBytes, InBytes);
  body(padded, results);
  std::memcpy(out, results, count * OutBytes);
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
  U code;  // of the magnitude, without low zero bits; beyond the largest code where the rounded value is beyond the
           // range
  U rest;  // what was cut off; zero where exact
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
  return {hn::Add(field, quanta), hn::And(significand, below)};
}

/// hif8_fraction_bits for |e| <= 15, from a table of two bits per entry: 3 below 4, 2 below 8, then 1.
HWY_INLINE U hif8_fraction_bits_of(U magnitude) {
  return hn::And(hn::Shr(constant(0x5555AAFFU), hn::Add(magnitude, magnitude)), constant(3U));
}

/// HiF8: hif8_code of the rounded magnitude. From 2^15 up all have one fraction bit.
template <Mode mode>
HWY_INLINE Rounded round_hif8(const EncodeConstants& c, I exponent, U significand, U sign) {
  const U one = constant(1U);
  const U fifteen = constant(15U);
  const I binade = hn::Max(exponent, constant(-22));
  const M low = greater(constant(-15), binade);  // one value per binade, codes binade + 23
  const U fraction_bits = hn::IfThenZeroElse(low, hif8_fraction_bits_of(hn::Min(bits(hn::Abs(binade)), fifteen)));
  const U shift = quantum_shift(exponent, hn::Sub(binade, number(fraction_bits)));
  const U below = hn::Sub(hn::Shl(one, shift), one);
  const U last_bit = hn::IfThenElse(low, bits(hn::Add(binade, constant(23))), one);
  const U odd = hn::And(hn::And(hn::Shr(significand, shift), last_bit), one);
  const U increment = rounding_increment<mode>(c.rounding, sign, odd, below);
  const U quanta = hn::Shr(hn::Add(significand, increment), shift);

  // A carry enters the next binade with fraction 0.
  const U fraction = hn::AndNot(hn::Shl(bits(constant(-1)), fraction_bits), quanta);
  const I e = hn::Add(binade, number(hn::Shr(quanta, hn::Add(fraction_bits, one))));
  // The codes of |e| = m begin at 0x08 (m = 0, 1: + 8 m), 0x20, 0x40, 0x60, and those of -m are 8 (m = 1) or 16 above.
  const U m = hn::Min(bits(hn::Abs(e)), fifteen);
  const U bits_of_m = hif8_fraction_bits_of(m);
  const U small = hn::IfThenElseZero(greater(constant(2), number(m)), constant(8U));
  const U step = hn::Sub(constant(16U), small);
  const U start = hn::Sub(hn::Sub(constant(0x70U), hn::ShiftLeft<5>(bits_of_m)), small);
  const U of_sign = hn::IfThenElseZero(is_negative(bits(e)), step);
  const U code = hn::Add(hn::Add(start, of_sign), hn::Add(hn::Shl(m, bits_of_m), fraction));
  const U low_code = hn::Add(bits(hn::Add(binade, constant(22))), quanta);
  // Beyond: more than 2^15, which is 0x6E.
  const M beyond = greater(hn::Add(hn::Add(e, e), number(fraction)), constant(30));
  const U in_range = hn::IfThenElse(greater(constant(-15), e), low_code, code);
  return {hn::IfThenElse(beyond, constant(0x7FFFU), in_range), hn::And(significand, below)};
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
  const M overflow = hn::Or(over, greater(r.code, c.largest_code));
  const M exact = hn::Eq(r.rest, hn::Zero(d32));
  M underflow = hn::AndNot(exact, tiny);
  if (c.tiny_by_result) underflow = hn::And(underflow, greater(constant(c.tiny_codes), number(r.code)));
  const U word = hn::IfThenElse(overflow, constant(c.overflow_word), hn::ShiftLeftSame(r.code, c.low_zero_bits));
  if (c.drops_signs) {
    const M zero = hn::AndNot(overflow, hn::Eq(r.code, hn::Zero(d32)));
    if (c.overflow_drops_sign) sign = hn::IfThenZeroElse(overflow, sign);
    if (c.zero_drops_sign) sign = hn::IfThenZeroElse(hn::And(zero, exact), sign);
    if (c.underflow_drops_sign) sign = hn::IfThenZeroElse(hn::AndNot(exact, zero), sign);
  }
  return {hn::Or(word, hn::ShiftRightSame(sign, c.sign_shift)), r.rest, overflow, underflow};
}

template <Mode mode, Layout layout>
HWY_INLINE Rounded round_magnitude(const EncodeConstants& c, I exponent, U significand, U sign) {
  if constexpr (layout == Layout::dot_field) return round_hif8<mode>(c, exponent, significand, sign);
  return round_fields<mode>(c, exponent, significand, sign);
}

}  // namespace
}  // namespace bitcube::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // BITCUBE_VECTOR_TARGET
#endif  // the include guard that foreach_target.h toggles
