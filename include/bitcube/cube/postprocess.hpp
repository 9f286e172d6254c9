// Post-process of accumulators: B.FPATR's quantisation, activation and reductions (numerics 5).
#pragma once

#include <cstdint>
#include <span>

#include "bitcube/cube/prequant.hpp"
#include "bitcube/numeric/encode.hpp"

namespace bitcube {

/// The controls of one element: the mode, its column's parameters, and B.DATR's rounding and saturation.
struct ElementPostprocess {
  const PreQuantMode* mode = &no_quant;
  Relu relu = Relu::none;
  QuantCarrier quant{};               // where the mode has a parameter
  uint64 alpha = 0;                   // raw FP19, with Relu::scalar and Relu::per_column
  Rounding rounding = Rounding::rne;  // acts only where the mode's rounding is programmable
  bool saturate = false;
  const ConversionProfile* profile = &pto_profile;
};

/// The type that D has for accumulators of type `accumulator`.
constexpr const Format& destination_format(const PreQuantMode& mode, const Format& accumulator) noexcept {
  return mode.destination == DataType::none ? accumulator : format_of(mode.destination);
}

namespace detail {

/// Special FP32 accumulators (numerics 5.5 step 6). Not the rules of TCVT, which differ in three places.
constexpr Encoded postprocess_special(const Format& to, const Value& v, bool saturate) noexcept {
  if (to.is_integer()) {
    const uint64 lowest = to.max_finite + 1;
    if (!saturate) return {lowest, Flags::invalid};
    if (v.is_nan()) return {0, Flags::invalid};
    return {v.real.negative ? lowest : to.max_finite, overflow_inexact};
  }
  if (v.is_nan()) {
    const Flags flags = v.cls == Class::signaling_nan ? Flags::invalid : Flags::none;
    return {saturate ? 0 : to.canonical_nan, flags};
  }
  if (!saturate && to.has_infinity) return {with_sign(to, to.infinity, v.real.negative), Flags::none};
  if (saturate) return {with_sign(to, to.max_finite, v.real.negative), overflow_inexact};
  return {to.canonical_nan, overflow_inexact};  // E4M3 has no infinity
}

/// Modes 12 and 13: arithmetic right shift, saturated to S16; lost bits raise nothing (numerics 5.5 step 2).
constexpr Encoded postprocess_shift(int64 x, int shift) noexcept {
  const int64 y = x >> shift;
  if (y > 0x7FFF) return {0x7FFF, overflow_inexact};
  if (y < -0x8000) return {0x8000, overflow_inexact};
  return {static_cast<uint64>(y) & 0xFFFF, Flags::none};
}

/// S5, S9 or S17: a two's-complement type of so many bits.
constexpr Format offset_intermediate(int bits) noexcept {
  Format intermediate = format_of(DataType::s32);
  intermediate.lane_bits = intermediate.value_bits = static_cast<std::uint8_t>(bits);
  intermediate.max_finite = low_mask(bits - 1);
  return intermediate;
}

}  // namespace detail

/// What decided an element of D, in the order in which numerics 5.5 asks.
enum class PostprocessRule : std::uint8_t {
  identity,  // step 1
  shift,     // step 2
  special,   // step 6
  zero,      // step 8
  offset,    // step 9
  encode,    // step 10
};

/// An element of D and how it came about. The members after `rule` have a meaning from their step on.
struct PostprocessSteps {
  Encoded d{};
  PostprocessRule rule = PostprocessRule::identity;
  Value source{};                     // step 3
  bool negative = false;              // step 4
  Real multiplier{};                  // step 5; not with `shift`
  Real product{};                     // step 7: zero, offset and encode
  Rounding rounding = Rounding::rne;  // the effective one of offset and encode
  bool saturate = false;              // the effective Sat
  Encoded intermediate{};             // step 9, a code of offset_intermediate()
  int64 sum = 0;                      // step 9: intermediate + offset
};

/// One element of D from one accumulator word of type FP32, S32 or U32 (numerics 5.5). Preconditions: the mode accepts
/// the accumulator type, and the parameters are legal. The result is a lane code with nothing above the lane.
constexpr PostprocessSteps postprocess_steps(const ElementPostprocess& p, const Format& accumulator,
                                             uint64 word) noexcept {
  PostprocessSteps s;
  const PreQuantMode& mode = *p.mode;
  word &= low_mask(32);
  s.source = decode(accumulator, word);
  const Value& v = s.source;
  const auto finish = [&s](PostprocessRule rule, const Encoded& d) {
    s.rule = rule;
    s.d = d;
    return s;
  };
  // Step 1: identity. Bits, NaN payloads and -0 pass.
  if (mode.code == no_quant.code && p.relu == Relu::none) return finish(PostprocessRule::identity, {word, Flags::none});
  // Step 2: shifts ignore the activation.
  if (mode.carrier == CarrierKind::shift) {
    return finish(PostprocessRule::shift, detail::postprocess_shift(sign_extend(word, 32), p.quant.shift));
  }

  // Steps 4 and 5: the multiplier. -0 and -Inf are negative, NaN is not.
  const Format& to = destination_format(mode, accumulator);
  s.negative = !v.is_nan() && v.real.negative;
  s.multiplier = {.significand = 1};
  if (mode.carrier == CarrierKind::scale) s.multiplier = decode(fp19, p.quant.scale).real;
  if (s.negative && p.relu == Relu::relu) s.multiplier = {};
  if (s.negative && (p.relu == Relu::scalar || p.relu == Relu::per_column)) {
    s.multiplier = decode(fp19, p.alpha).real;
  }

  s.saturate = mode.saturation_allowed && p.saturate;  // mode 0 with an activation: Sat = 0
  // Step 6. With multiplier 0, -Inf goes on as the real number 0.
  if (v.is_nan() || (v.is_infinite() && !(s.negative && s.multiplier.is_zero()))) {
    return finish(PostprocessRule::special, detail::postprocess_special(to, v, s.saturate));
  }
  // Step 7: exact product. A zero accumulator or multiplier gives 0.
  s.product = v.is_infinite() ? Real{} : multiply(v.real, s.multiplier);

  s.rounding = mode.rounding_rule == RoundingRule::fixed ? mode.rounding : p.rounding;
  const EncodeControl control{s.rounding, s.saturate, p.profile};
  if (mode.offset_bits != 0) {
    // Step 9: round, saturate to the intermediate, add the offset, encode.
    s.intermediate =
        encode(detail::offset_intermediate(mode.offset_bits), s.product, EncodeControl{s.rounding, true, p.profile});
    s.sum = sign_extend(s.intermediate.bits, mode.offset_bits) + p.quant.offset;
    Encoded out = encode(to, real_from_signed(s.sum), control);
    out.flags |= s.intermediate.flags;
    return finish(PostprocessRule::offset, out);
  }
  // Step 8: the sign of a zero accumulator survives where the multiplier is not 0.
  if (s.product.is_zero()) {
    return finish(PostprocessRule::zero, {zero_code(to, s.negative && !s.multiplier.is_zero()), Flags::none});
  }
  // Step 10: one rounding.
  return finish(PostprocessRule::encode, encode(to, s.product, control));
}

/// The element alone.
constexpr Encoded postprocess_element(const ElementPostprocess& p, const Format& accumulator, uint64 word) noexcept {
  return postprocess_steps(p, accumulator, word).d;
}

/// Delivered value of one reduction step, with its flags.
struct Reduced {
  std::uint32_t word = 0;
  Flags flags = Flags::none;
};

/// |x| of an accumulator word (numerics 5.7): FP32 clears the sign, NaN included; the S32 minimum gives 7FFFFFFF with
/// OF.
constexpr Reduced absolute_accumulator(const Format& accumulator, std::uint32_t x) noexcept {
  if (accumulator.type == DataType::fp32) return {x & 0x7FFFFFFF, Flags::none};
  if (accumulator.kind == Kind::unsigned_integer || (x >> 31) == 0) return {x, Flags::none};
  if (x == 0x80000000) return {0x7FFFFFFF, Flags::overflow};
  return {~x + 1, Flags::none};
}

/// MAX(a, b), where a tie keeps a (numerics 5.7). FP32: a number beats a NaN, two NaN give 7FC00000, a signalling NaN
/// raises NV, and zeros give +0 unless both are -0.
constexpr Reduced max_accumulator(const Format& accumulator, std::uint32_t a, std::uint32_t b) noexcept {
  if (accumulator.kind == Kind::unsigned_integer) return {b > a ? b : a, Flags::none};
  if (accumulator.kind == Kind::signed_integer) {
    return {static_cast<std::int32_t>(b) > static_cast<std::int32_t>(a) ? b : a, Flags::none};
  }
  const Value va = decode(accumulator, a);
  const Value vb = decode(accumulator, b);
  if (va.is_nan() || vb.is_nan()) {
    const bool signaling = va.cls == Class::signaling_nan || vb.cls == Class::signaling_nan;
    const Flags flags = signaling ? Flags::invalid : Flags::none;
    if (va.is_nan() && vb.is_nan()) return {0x7FC00000, flags};
    return {va.is_nan() ? b : a, flags};
  }
  if (va.cls == Class::zero && vb.cls == Class::zero) return {a & b, Flags::none};
  // Sign and magnitude as an ordered integer; both zeros are 0.
  const auto key = [](std::uint32_t w) {
    const auto magnitude = static_cast<int64>(w & 0x7FFFFFFF);
    return (w >> 31) != 0 ? -magnitude : magnitude;
  };
  return {key(b) > key(a) ? b : a, Flags::none};
}

/// One step of RowMax or GroupMax: MAX(current, candidate), of absolute values with MaxAbsEn (numerics 5.7).
constexpr Reduced reduce_step(const Format& accumulator, bool max_abs, std::uint32_t current,
                              std::uint32_t candidate) noexcept {
  if (!max_abs) return max_accumulator(accumulator, current, candidate);
  const Reduced a = absolute_accumulator(accumulator, current);
  const Reduced b = absolute_accumulator(accumulator, candidate);
  Reduced out = max_accumulator(accumulator, a.word, b.word);
  out.flags |= a.flags | b.flags;
  return out;
}

/// MAX of the words in increasing order; with MaxAbs the first one meets itself (numerics 5.7). There is at least one
/// word. `trace(i, step)` is told of every step: what MAX delivers after word i.
template <typename Trace>
constexpr Reduced reduce_words(const Format& accumulator, bool max_abs, std::span<const std::uint32_t> words,
                               const Trace& trace) {
  Reduced out{words[0], Flags::none};
  for (std::size_t i = max_abs ? 0 : 1; i < words.size(); ++i) {
    const Reduced step = reduce_step(accumulator, max_abs, out.word, words[i]);
    trace(i, step);
    out = {step.word, out.flags | step.flags};
  }
  return out;
}
constexpr Reduced reduce_words(const Format& accumulator, bool max_abs, std::span<const std::uint32_t> words) noexcept {
  return reduce_words(accumulator, max_abs, words, [](std::size_t, const Reduced&) noexcept {});
}

/// C * 2^-shift before accumulation (numerics 9.7): one RNE FP32 encode; NaN, Inf and zeros pass unchanged.
constexpr Encoded scale_c(std::uint32_t word, unsigned shift, const ConversionProfile& profile = pto_profile) noexcept {
  const Value v = decode(fp32, word);
  if (!v.is_finite() || v.cls == Class::zero) return {word, Flags::none};
  return encode(fp32, scale_by_power_of_two(v.real, -static_cast<int>(shift)),
                EncodeControl{Rounding::rne, false, &profile});
}

}  // namespace bitcube
