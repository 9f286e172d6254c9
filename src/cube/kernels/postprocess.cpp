// Post-process and reductions in SIMD, 32-bit integer arithmetic throughout.
#include "cube/kernels/postprocess.hpp"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cube/kernels/postprocess.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include <hwy/highway.h>

#include "numeric/kernels/encode-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bitcube::kernels::HWY_NAMESPACE {
namespace {

#if BITCUBE_VECTOR_TARGET

using Work = PostprocessKernel::Work;

/// Where the parameters of the next vector's columns stand.
struct Columns {
  const std::uint32_t* multiplier;
  const std::uint32_t* negative;
  const std::int32_t* offset;
};

/// Calls body(in, out, columns) for vectors that cover one row, or all words where the parameters are scalar. As
/// for_each_vector: what is computed twice gives the same, with the parameters of its own column.
template <typename Word, typename Body>
HWY_INLINE void for_each_vector_of_row(const PostprocessParameters& p, const std::uint32_t* in, std::size_t count,
                                       std::byte* out, const Body& body) {
  const std::size_t lanes = hn::Lanes(d32);
  if (count == 0) return;
  const std::size_t stride = p.per_column ? 1 : 0;
  Columns columns{p.multiplier.data(), p.negative.data(), p.offset.data()};
  std::uint32_t padded[hn::MaxLanes(d32)];
  std::uint32_t multiplier[hn::MaxLanes(d32)];
  std::uint32_t negative[hn::MaxLanes(d32)];
  std::int32_t offset[hn::MaxLanes(d32)];
  std::byte results[hn::MaxLanes(d32) * sizeof(Word)];
  std::byte* to = out;
  const bool is_short = count < lanes;
  if (is_short) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const std::size_t i = lane < count ? lane : 0;
      padded[lane] = in[i];
      multiplier[lane] = columns.multiplier[i * stride];
      negative[lane] = columns.negative[i * stride];
      offset[lane] = columns.offset[i * stride];
    }
    in = padded;
    columns = {multiplier, negative, offset};
    to = results;
  }
  const std::size_t total = is_short ? lanes : count;
  for (std::size_t i = 0; i < total; i += lanes) {
    const std::size_t at = i < total - lanes ? i : total - lanes;
    const std::size_t column = at * stride;
    body(in + at, to + at * sizeof(Word),
         Columns{columns.multiplier + column, columns.negative + column, columns.offset + column});
  }
  if (is_short) std::memcpy(out, results, count * sizeof(Word));
}

/// floor(log2 x) + 127, from the exponent of a conversion to float; 0 for 0. The second highest bit is cleared if it is
/// set, so that no rounding carries into the next power of two. 2^31 converts as -2^31.
HWY_INLINE U biased_log2(U x) {
  const U steady = hn::AndNot(hn::ShiftRight<1>(x), x);
  const U converted = hn::BitCast(d32, hn::ConvertTo(F32(), number(steady)));
  return hn::And(hn::ShiftRight<23>(converted), constant(0xFFU));
}

/// The exact product of an accumulator and its multiplier.
struct Product {
  U sign;         // of the result, in bit 31; of a zero too
  I exponent;     // far below every format where the product is 0
  U significand;  // leading bit `lead`; its last bit is set as well where bits below it were lost; 0 for 0
  U word;         // the accumulator
  M special;      // FP32: NaN or infinity, but not -Inf with multiplier 0
};

/// Steps 4, 5 and 7 of postprocess_element.
///
/// The accumulator's significand x is brought to 32 bits with the highest one set (24 bits of FP32, up to 32 of S32),
/// the multiplier's s has 11 bits. x * s < 2^43 is formed from the halves of x: x * s = (high * s + (low * s >> 16)) *
/// 2^16 + (low * s mod 2^16), where each product has at most 27 bits. The first summand, the integer part of x * s /
/// 2^16, has 26 or 27 bits, which become the upper bits of the 30; the rest only leaves a mark in the last bit, which
/// lies below them. All destinations keep at most 24 bits in a normal result, so the 25th, which tells half, and the
/// mark for everything below are exact: the product is rounded as if it had been kept whole, in every mode. The
/// exponent is an integer of its own, so products beyond the range of FP32 on either side are like any other, and the
/// comparisons of `over_before` and `is_tiny` are with the exact magnitude.
template <bool floating>
HWY_INLINE Product multiply(bool activation, const std::uint32_t* in, const Columns& columns) {
  Product p;
  p.word = hn::LoadU(d32, in);
  const U sign_bit = constant(0x80000000U);
  p.sign = hn::And(p.word, sign_bit);
  U multiplier = hn::LoadU(d32, columns.multiplier);
  M by_zero = nobody();
  if (activation) {
    const M negative = is_negative(p.word);
    multiplier = hn::IfThenElse(negative, hn::LoadU(d32, columns.negative), multiplier);
    by_zero = hn::Eq(multiplier, hn::Zero(d32));
    p.sign = hn::IfThenZeroElse(by_zero, p.sign);
  }

  U x;
  I exponent;  // that of the accumulator + 127
  M zero = nobody();
  p.special = nobody();
  if constexpr (floating) {
    U magnitude = hn::AndNot(sign_bit, p.word);
    exponent = number(hn::ShiftRight<23>(magnitude));
    // One more in the exponent field takes normal numbers to 2 and up, zeros and subnormals to 1, and infinities and
    // NaN to negative numbers.
    const I raised = number(hn::Add(magnitude, constant(0x00800000U)));
    if (HWY_UNLIKELY(!hn::AllFalse(d32, greater(constant(0x01000000), raised)))) {
      const M minus_infinity_by_zero = hn::And(by_zero, hn::Eq(magnitude, constant(0x7F800000U)));
      p.special = hn::AndNot(minus_infinity_by_zero, greater(magnitude, 0x7F7FFFFF));
      zero = hn::Eq(magnitude, hn::Zero(d32));
      // A subnormal is a number of 2^-149 with at most 23 bits, which becomes a float exactly.
      const M subnormal = greater(constant(0x00800000), number(magnitude));
      const U whole = hn::BitCast(d32, hn::ConvertTo(F32(), number(magnitude)));
      magnitude = hn::IfThenElse(subnormal, whole, magnitude);
      const I lower = hn::Sub(number(hn::ShiftRight<23>(whole)), constant(149));
      exponent = hn::IfThenElse(hn::RebindMask(s32, subnormal), lower, exponent);
    }
    x = hn::Or(hn::ShiftLeft<8>(magnitude), sign_bit);
  } else {
    zero = hn::Eq(p.word, hn::Zero(d32));
    const U magnitude = bits(hn::Abs(number(p.word)));
    const U log2 = biased_log2(magnitude);
    exponent = number(log2);
    x = hn::Shl(magnitude, hn::And(hn::Sub(constant(127U + 31U), log2), constant(31U)));
  }

  const U s = hn::Or(hn::And(multiplier, constant(0x3FFU)), constant(0x400U));
  const U high = hn::Mul(hn::ShiftRight<16>(x), s);
  const U low = hn::Mul(hn::And(x, constant(0xFFFFU)), s);
  const U whole = hn::Add(high, hn::ShiftRight<16>(low));
  const U mark = hn::Min(hn::And(low, constant(0xFFFFU)), constant(1U));
  const U carry = hn::ShiftRight<26>(whole);  // 1 where there are 27 bits
  const U significand = hn::Or(hn::Shr(hn::ShiftLeft<4>(whole), carry), mark);
  exponent = hn::Add(exponent, number(hn::Add(hn::ShiftRight<10>(multiplier), carry)));
  exponent = hn::Sub(exponent, constant(2 * 127));
  const M nothing = hn::Or(zero, by_zero);
  p.significand = hn::IfThenZeroElse(nothing, significand);
  p.exponent = hn::IfThenElse(hn::RebindMask(s32, nothing), constant(-1024), exponent);
  return p;
}

/// Whether the product overflows before it is rounded.
HWY_INLINE M over_before(const EncodeConstants& c, const Product& p) {
  const I step = one_if(greater(p.significand, c.over_significand));
  return greater(hn::Add(p.exponent, step), constant(c.over_exponent));
}

/// Whether the product is tiny by the constants.
HWY_INLINE M is_tiny(const EncodeConstants& c, const Product& p) {
  const M below = greater(constant(c.underflow_exponent), p.exponent);
  if (HWY_LIKELY(hn::AllFalse(d32, below))) return below;
  const I last = hn::IfThenElse(hn::RebindMask(s32, is_negative(p.sign)), constant(c.tiny_significand[1]),
                                constant(c.tiny_significand[0]));
  const I step = one_if(greater(number(p.significand), last));
  return greater(constant(c.underflow_exponent), hn::Add(p.exponent, step));
}

/// Step 10: encode_floating of the exact product.
template <Mode mode, Layout layout>
HWY_INLINE Delivered encode_product(const EncodeConstants& c, const PatternLimits& limits, const Product& y) {
  if constexpr (layout == Layout::dot_field) {
    // As a pattern of 24 bits with a mark for the lost ones. HiF8 knows no exponent beyond +-64.
    const I exponent = hn::Min(hn::Max(y.exponent, constant(-64)), constant(64));
    const U field = hn::ShiftLeft<23>(bits(hn::Add(exponent, constant(126))));
    const U lost = hn::Min(hn::And(y.significand, constant(0x3FU)), constant(1U));
    const U upper = hn::Add(field, hn::Or(hn::ShiftRight<lead - 23>(y.significand), lost));
    const U pattern = hn::IfThenZeroElse(hn::Eq(y.significand, hn::Zero(d32)), upper);
    return encode_pattern<mode, layout>(c, limits, pattern, y.sign);
  }
  return deliver(c, round_fields<mode>(c, y.exponent, y.significand, y.sign), y.sign, over_before(c, y), is_tiny(c, y));
}

/// Steps 6, 8 and 10 for floating destinations: postprocess_special, else encode.
template <bool floating, Mode mode, Layout layout, typename Word>
Flags encode_floating(const PostprocessKernel& kernel, const std::uint32_t* words, std::size_t count, std::byte* out) {
  const EncodeConstants c = kernel.constants;  // a copy that no store can change
  const PatternLimits limits(c);
  const auto nan_word = static_cast<std::uint32_t>(kernel.nan.bits);
  const auto infinity_word = static_cast<std::uint32_t>(kernel.infinity.bits);
  const auto minus_infinity_word = static_cast<std::uint32_t>(kernel.minus_infinity.bits);
  const bool infinity_overflows = kernel.infinity.flags != Flags::none;

  const bool activation = kernel.activation;
  FlagSums sums;
  const auto body = [&](const std::uint32_t* in, std::byte* to, const Columns& columns) HWY_ATTR {
    const Product y = multiply<floating>(activation, in, columns);
    Delivered r = encode_product<mode, layout>(c, limits, y);
    if (floating && HWY_UNLIKELY(!hn::AllFalse(d32, y.special))) {
      const U magnitude = hn::And(y.word, constant(0x7FFFFFFFU));
      const M is_nan = greater(magnitude, 0x7F800000);
      const U quiet_bit = hn::And(magnitude, constant(0x00400000U));
      sums.invalid = hn::Or(sums.invalid, hn::And(is_nan, hn::Eq(quiet_bit, hn::Zero(d32))));
      const M is_infinity = hn::AndNot(is_nan, y.special);
      const U signed_infinity =
          hn::IfThenElse(is_negative(y.word), constant(minus_infinity_word), constant(infinity_word));
      r.word = hn::IfThenElse(is_infinity, signed_infinity, r.word);
      r.word = hn::IfThenElse(is_nan, constant(nan_word), r.word);
      r.rest = hn::IfThenZeroElse(y.special, r.rest);
      r.underflow = hn::AndNot(y.special, r.underflow);
      r.overflow = hn::AndNot(y.special, r.overflow);
      if (infinity_overflows) r.overflow = hn::Or(r.overflow, is_infinity);
    }
    sums.inexact = hn::Or(sums.inexact, r.rest);
    sums.overflow = hn::Or(sums.overflow, r.overflow);
    sums.underflow = hn::Or(sums.underflow, r.underflow);
    store<Word>(r.word, to);
  };
  for_each_vector_of_row<Word>(kernel.parameters, words, count, out, body);
  return sums.flags();
}

/// Steps 6 and 9 for the modes with an offset: postprocess_special, else postprocess_offset.
template <bool floating, Mode mode, typename Word>
Flags encode_offset(const PostprocessKernel& kernel, const std::uint32_t* words, std::size_t count, std::byte* out) {
  const Format& destination = *kernel.to;
  const Rounding rounding = kernel.rounding;
  const bool saturate = kernel.saturate;
  const int width = kernel.offset_bits - 1;  // value bits of the intermediate
  const std::int32_t largest_intermediate = (1 << width) - 1;
  const auto largest = static_cast<std::int32_t>(destination.max_finite);
  const auto lane = static_cast<std::uint32_t>(low_mask(destination.lane_bits));

  const bool activation = kernel.activation;
  FlagSums sums;
  const auto body = [&](const std::uint32_t* in, std::byte* to, const Columns& columns) HWY_ATTR {
    const Product y = multiply<floating>(activation, in, columns);
    // Round to a whole number. From 2^(width + 1) up all magnitudes are clamped, so greater exponents do as that one.
    const I exponent = hn::Min(y.exponent, constant(width + 1));
    const U shift = quantum_shift(exponent, hn::Zero(s32));
    const U below = hn::Sub(hn::Shl(constant(1U), shift), constant(1U));
    const U odd = hn::And(hn::Shr(y.significand, shift), constant(1U));
    const U increment = rounding_increment<mode>(rounding, y.sign, odd, below);
    const I whole = number(hn::Shr(hn::Add(y.significand, increment), shift));
    // All bits of a negative number's `minus` are set: x ^ minus - minus is -x, and one
    // more is in its range.
    const I minus = hn::BroadcastSignBit(number(y.sign));
    const I limit = hn::Sub(constant(largest_intermediate), minus);
    M overflow = greater(whole, limit);
    U rest = hn::And(y.significand, below);
    const I intermediate = hn::Sub(hn::Xor(hn::Min(whole, limit), minus), minus);
    // The offset, and the exact sum to the destination.
    const I sum = hn::Add(intermediate, hn::LoadU(s32, columns.offset));
    const I clamped = hn::Min(hn::Max(sum, constant(-largest - 1)), constant(largest));
    overflow = hn::Or(overflow, hn::Not(hn::RebindMask(d32, hn::Eq(sum, clamped))));
    U word = hn::And(bits(saturate ? clamped : sum), constant(lane));
    if (floating && HWY_UNLIKELY(!hn::AllFalse(d32, y.special))) {
      const M is_nan = greater(hn::And(y.word, constant(0x7FFFFFFFU)), 0x7F800000);
      const M is_infinity = hn::AndNot(is_nan, y.special);
      const U lowest = constant(static_cast<std::uint32_t>(largest) + 1);
      U special = lowest;
      if (saturate) {
        special = hn::IfThenElse(is_negative(y.word), lowest, constant(static_cast<std::uint32_t>(largest)));
        special = hn::IfThenZeroElse(is_nan, special);
      }
      word = hn::IfThenElse(y.special, special, word);
      rest = hn::IfThenZeroElse(y.special, rest);
      overflow = hn::AndNot(y.special, overflow);
      if (saturate) overflow = hn::Or(overflow, is_infinity);
      sums.invalid = hn::Or(sums.invalid, saturate ? is_nan : y.special);
    }
    sums.inexact = hn::Or(sums.inexact, rest);
    sums.overflow = hn::Or(sums.overflow, overflow);
    store<Word>(word, to);
  };
  for_each_vector_of_row<Word>(kernel.parameters, words, count, out, body);
  return sums.flags();
}

/// Step 2: postprocess_shift.
Flags shift_words(const PostprocessKernel& kernel, const std::uint32_t* words, std::size_t count, std::byte* out) {
  FlagSums sums;
  const auto body = [&](const std::uint32_t* in, std::byte* to, const Columns& columns) HWY_ATTR {
    const I y = hn::Shr(number(hn::LoadU(d32, in)), hn::LoadU(s32, columns.offset));
    const I clamped = hn::Min(hn::Max(y, constant(-0x8000)), constant(0x7FFF));
    sums.overflow = hn::Or(sums.overflow, hn::Not(hn::RebindMask(d32, hn::Eq(y, clamped))));
    store<std::uint16_t>(bits(clamped), to);
  };
  for_each_vector_of_row<std::uint16_t>(kernel.parameters, words, count, out, body);
  return sums.flags();
}

/// Mode 0 with ReLU on S32 accumulators: exact, no flags.
Flags relu_words(const PostprocessKernel& kernel, const std::uint32_t* words, std::size_t count, std::byte* out) {
  const auto body = [&](const std::uint32_t* in, std::byte* to, const Columns&) HWY_ATTR {
    const I y = hn::Max(number(hn::LoadU(d32, in)), hn::Zero(s32));
    store<std::uint32_t>(bits(y), to);
  };
  for_each_vector_of_row<std::uint32_t>(kernel.parameters, words, count, out, body);
  return Flags::none;
}

/// One run of words: a row, or all rows where the parameters are scalar.
using Run = Flags (*)(const PostprocessKernel&, const std::uint32_t*, std::size_t, std::byte*);

template <bool floating, typename Word>
Run find_run(const PostprocessKernel& kernel) {
  const bool rne = kernel.rounding == Rounding::rne;
  if constexpr (sizeof(Word) < 4) {
    if (kernel.work == Work::offset) {
      return rne ? encode_offset<floating, Mode::rne, Word> : encode_offset<floating, Mode::any, Word>;
    }
  }
  if constexpr (floating && sizeof(Word) == 1) {
    if (kernel.to->layout == Layout::dot_field) {
      return kernel.rounding == Rounding::rhb ? encode_floating<true, Mode::rhb, Layout::dot_field, Word>
                                              : encode_floating<true, Mode::any, Layout::dot_field, Word>;
    }
  }
  if constexpr (floating || sizeof(Word) == 2) {
    return rne ? encode_floating<floating, Mode::rne, Layout::fields, Word>
               : encode_floating<floating, Mode::any, Layout::fields, Word>;
  }
  return nullptr;  // no mode takes S32 to a floating type of 8 or 32 bits
}

template <typename Word>
Run find_run_of(const PostprocessKernel& kernel) {
  return kernel.floating ? find_run<true, Word>(kernel) : find_run<false, Word>(kernel);
}

Run find_run(const PostprocessKernel& kernel) {
  switch (kernel.work) {
    case Work::none:
    case Work::copy:
      return nullptr;
    case Work::relu:
      return relu_words;
    case Work::shift:
      return shift_words;
    case Work::offset:
    case Work::encode:
      break;
  }
  const int bits_out = kernel.to->carrier_bits;
  if (bits_out == 8) return find_run_of<std::uint8_t>(kernel);
  return bits_out == 16 ? find_run_of<std::uint16_t>(kernel) : find_run_of<std::uint32_t>(kernel);
}

bool postprocess_words(const PostprocessKernel& kernel, const std::uint32_t* words, std::size_t rows, std::size_t cols,
                       std::byte* out, Flags& flags) {
  if (kernel.work == Work::copy) {
    std::memcpy(out, words, rows * cols * sizeof(std::uint32_t));
    return true;
  }
  const Run run = find_run(kernel);
  if (run == nullptr) return false;
  if (!kernel.parameters.per_column) {
    flags |= run(kernel, words, rows * cols, out);
    return true;
  }
  const std::size_t row_bytes = cols * (kernel.to->carrier_bits / 8U);
  for (std::size_t r = 0; r < rows; ++r) flags |= run(kernel, words + r * cols, cols, out + r * row_bytes);
  return true;
}

enum class Order { fp32, s32, u32 };

constexpr std::int32_t least = -0x7FFFFFFF - 1;

/// Words as signed numbers in the order of MAX, and back. FP32: -0 comes just below +0, so the larger of two zeros is
/// what MAX delivers, and a NaN is the least number, which no other word is.
template <Order order, bool max_abs, class D, class V>
HWY_INLINE hn::Vec<hn::RebindToSigned<D>> order_key(D d, V word) {
  const hn::RebindToSigned<D> ds;
  const auto x = hn::BitCast(ds, word);
  const auto magnitude_mask = hn::Set(ds, 0x7FFFFFFF);
  if constexpr (order == Order::fp32) {
    const auto magnitude = hn::And(x, magnitude_mask);
    const auto flip = hn::And(hn::BroadcastSignBit(x), magnitude_mask);
    const auto key = max_abs ? magnitude : hn::Xor(x, flip);
    return hn::IfThenElse(hn::Gt(magnitude, hn::Set(ds, 0x7F800000)), hn::Set(ds, least), key);
  } else if constexpr (order == Order::s32) {
    // The absolute value of the least number is itself; MAX takes 7FFFFFFF.
    return max_abs ? hn::BitCast(ds, hn::Min(hn::BitCast(d, hn::Abs(x)), hn::BitCast(d, magnitude_mask))) : x;
  } else {
    return hn::Xor(x, hn::Set(ds, least));
  }
}
template <Order order>
std::uint32_t word_of_key(std::int32_t key) {
  const auto bits_of_key = static_cast<std::uint32_t>(key);
  if constexpr (order == Order::s32) return bits_of_key;
  if constexpr (order == Order::u32) return bits_of_key ^ 0x80000000U;
  if (key == least) return 0x7FC00000;  // all were NaN
  return key < 0 ? bits_of_key ^ 0x7FFFFFFFU : bits_of_key;
}

/// The maximum of a run. MAX is associative and commutative in its words but for a single NaN, which a step with itself
/// would change: that one word goes to the caller as it is. A step flags a signalling NaN and, with `max_abs`, the S32
/// minimum, and every word of two or more takes part in one.
template <Order order, bool max_abs, class D>
std::uint32_t maximum_of(D d, const std::uint32_t* words, std::size_t count, Flags& flags) {
  using Vector = hn::Vec<D>;
  if (count == 1 && !max_abs) return words[0];
  const hn::RebindToSigned<D> ds;
  const std::size_t lanes = hn::Lanes(d);
  auto best = hn::Set(ds, least);
  auto flagged = hn::MaskFromVec(hn::Zero(d));
  const auto step = [&](const std::uint32_t* from) HWY_ATTR {
    const Vector word = hn::LoadU(d, from);
    best = hn::Max(best, order_key<order, max_abs>(d, word));
    if constexpr (order == Order::fp32) {
      // Signalling: 7F800001 to 7FBFFFFF.
      const auto magnitude = hn::And(word, hn::Set(d, 0x7FFFFFFFU));
      const auto above_infinity = hn::BitCast(ds, hn::Sub(magnitude, hn::Set(d, 0x7F800000U)));
      const auto signaling =
          hn::And(hn::Gt(above_infinity, hn::Zero(ds)), hn::Lt(above_infinity, hn::Set(ds, 0x400000)));
      flagged = hn::Or(flagged, hn::RebindMask(d, signaling));
    } else if constexpr (order == Order::s32 && max_abs) {
      flagged = hn::Or(flagged, hn::Eq(word, hn::Set(d, 0x80000000U)));
    }
  };
  if (count >= lanes) {
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes) step(words + i);
    if (i != count) step(words + count - lanes);
  } else {
    std::uint32_t padded[hn::MaxLanes(d)];
    for (std::size_t i = 0; i < lanes; ++i) padded[i] = words[i < count ? i : 0];
    step(padded);
  }
  if (!hn::AllFalse(d, flagged)) flags |= order == Order::fp32 ? Flags::invalid : Flags::overflow;
  return word_of_key<order>(hn::GetLane(hn::MaxOfLanes(ds, best)));
}

template <Order order, bool max_abs>
void maxima_of(const std::uint32_t* words, std::size_t count, std::size_t group, std::uint32_t* results, Flags& flags) {
  if (group == 0) {
    *results = maximum_of<order, max_abs>(d32, words, count, flags);
    return;
  }
  // Eight lanes divide every group but the last.
  const hn::CappedTag<std::uint32_t, 8> d;
  for (std::size_t i = 0; i < count; i += group) {
    *results++ = maximum_of<order, max_abs>(d, words + i, std::min(group, count - i), flags);
  }
}

/// group = 0: all words are one group.
bool reduce(const Format& accumulator, bool max_abs, const std::uint32_t* words, std::size_t count, std::size_t group,
            std::uint32_t* results, Flags& flags) {
  if (accumulator.type == DataType::fp32) {
    (max_abs ? maxima_of<Order::fp32, true> : maxima_of<Order::fp32, false>)(words, count, group, results, flags);
  } else if (accumulator.kind == Kind::signed_integer) {
    (max_abs ? maxima_of<Order::s32, true> : maxima_of<Order::s32, false>)(words, count, group, results, flags);
  } else {
    // Absolute values of unsigned words are the words; the step with itself changes nothing.
    maxima_of<Order::u32, false>(words, count, group, results, flags);
  }
  return true;
}

#else

bool postprocess_words(const PostprocessKernel&, const std::uint32_t*, std::size_t, std::size_t, std::byte*, Flags&) {
  return false;
}
bool reduce(const Format&, bool, const std::uint32_t*, std::size_t, std::size_t, std::uint32_t*, Flags&) {
  return false;
}

#endif

}  // namespace
}  // namespace bitcube::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bitcube::kernels {

HWY_EXPORT(postprocess_words);
HWY_EXPORT(reduce);

namespace {

constexpr bool is_accumulator(const Format& f) noexcept {
  return f.type == DataType::fp32 || f.type == DataType::s32 || f.type == DataType::u32;
}

PostprocessKernel::Work work_of(const ElementPostprocess& p, const Format& accumulator) {
  using Work = PostprocessKernel::Work;
  const PreQuantMode& mode = *p.mode;
  if (!is_accumulator(accumulator)) return Work::none;
  if (mode.carrier == CarrierKind::shift) return Work::shift;
  if (mode.offset_bits != 0) return Work::offset;
  if (mode.code != no_quant.code || (accumulator.type == DataType::fp32 && p.relu != Relu::none)) return Work::encode;
  if (p.relu == Relu::none || accumulator.kind == Kind::unsigned_integer) return Work::copy;
  return p.relu == Relu::relu ? Work::relu : Work::none;
}

}  // namespace

PostprocessKernel make_postprocess_kernel(std::span<const ElementPostprocess> columns, const Format& accumulator) {
  constexpr std::uint32_t one = 0x1FC00;  // FP19 1.0
  constexpr std::size_t longest_vector = 64;
  const ElementPostprocess& first = columns[0];
  const PreQuantMode& mode = *first.mode;
  PostprocessKernel kernel;
  kernel.work = work_of(first, accumulator);
  kernel.floating = accumulator.type == DataType::fp32;
  kernel.to = &destination_format(mode, accumulator);
  kernel.rounding = mode.rounding_rule == RoundingRule::fixed ? mode.rounding : first.rounding;
  kernel.activation = first.relu != Relu::none;
  kernel.saturate = mode.saturation_allowed && first.saturate;
  kernel.offset_bits = mode.offset_bits;
  if (kernel.work == PostprocessKernel::Work::encode) {
    const auto special = [&](Class cls, bool negative) {
      return detail::postprocess_special(*kernel.to, {cls, {.negative = negative}}, kernel.saturate);
    };
    kernel.constants = encode_constants(*kernel.to, {kernel.rounding, kernel.saturate, first.profile});
    kernel.nan = special(Class::quiet_nan, false);
    kernel.infinity = special(Class::infinity, false);
    kernel.minus_infinity = special(Class::infinity, true);
  }
  PostprocessParameters& out = kernel.parameters;
  out.per_column = columns.size() > 1;
  const std::size_t count = out.per_column ? columns.size() : longest_vector;
  out.multiplier.resize(count);
  out.negative.resize(count);
  out.offset.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const ElementPostprocess& p = columns[out.per_column ? i : 0];
    out.multiplier[i] = mode.carrier == CarrierKind::scale ? static_cast<std::uint32_t>(p.quant.scale) : one;
    out.negative[i] = p.relu == Relu::none   ? out.multiplier[i]
                      : p.relu == Relu::relu ? 0
                                             : static_cast<std::uint32_t>(p.alpha);
    out.offset[i] = mode.carrier == CarrierKind::shift ? p.quant.shift : static_cast<std::int32_t>(p.quant.offset);
  }
  return kernel;
}

bool postprocess_words(const PostprocessKernel& kernel, const std::uint32_t* words, std::size_t rows, std::size_t cols,
                       std::byte* out, Flags& flags) {
  return HWY_DYNAMIC_DISPATCH(postprocess_words)(kernel, words, rows, cols, out, flags);
}

bool maximum(const Format& accumulator, bool max_abs, const std::uint32_t* words, std::size_t count,
             std::uint32_t& result, Flags& flags) {
  return is_accumulator(accumulator) &&
         HWY_DYNAMIC_DISPATCH(reduce)(accumulator, max_abs, words, count, 0, &result, flags);
}

bool group_maxima(const Format& accumulator, bool max_abs, const std::uint32_t* words, std::size_t count,
                  std::size_t group, std::uint32_t* results, Flags& flags) {
  return is_accumulator(accumulator) &&
         HWY_DYNAMIC_DISPATCH(reduce)(accumulator, max_abs, words, count, group, results, flags);
}

}  // namespace bitcube::kernels
#endif
