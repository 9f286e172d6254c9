// Arrays of floating words in SIMD. Every source widens exactly to FP32, so there is one encoder per kind of
// destination, from FP32.
#include "quantize/kernels/convert.hpp"

#include <algorithm>
#include <array>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/kernels/convert.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include <hwy/highway.h>

#include "numeric/kernels/encode-inl.hpp"

#ifndef BITCUBE_QUANTIZE_KERNELS_CONVERT_ONCE
#define BITCUBE_QUANTIZE_KERNELS_CONVERT_ONCE

namespace bitcube::kernels {
namespace {

/// A signalling NaN of FP32. An invalid encoding converts as one does (numerics 7.4): the destination's NaN or 0, with
/// NV.
constexpr std::uint32_t signaling_nan = 0x7F800001;

enum class Widening { none, low_zero_bits, fp16, bf16, table };

using WideningTable = std::array<std::uint32_t, 256>;

/// The FP32 words that convert as the 256 words of an 8-bit source do: the same value, or a NaN of the same kind.
/// Eight-bit formats have at most 4 significant bits and exponents within FP32's, so nothing is rounded.
WideningTable make_widening_table(const Format& from) {
  WideningTable table{};
  for (std::uint32_t word = 0; word < table.size(); ++word) {
    const Value value = decode(from, word);
    table[word] = value.cls == Class::invalid || value.cls == Class::signaling_nan
                      ? signaling_nan
                      : static_cast<std::uint32_t>(convert(from, fp32, word, {}).bits);
  }
  return table;
}

/// The table of an 8-bit source, made at first use, or nullptr where the format is none.
const WideningTable* widening_table(DataType from) {
  constexpr std::array types{DataType::hif8, DataType::e4m3, DataType::e5m2, DataType::e3m2,
                             DataType::e2m3, DataType::e8m0, DataType::e6m2};
  static const auto tables = [&] {
    std::array<WideningTable, types.size()> made{};
    for (std::size_t i = 0; i < types.size(); ++i) made[i] = make_widening_table(format_of(types[i]));
    return made;
  }();
  const auto found = std::find(types.begin(), types.end(), from);
  return found == types.end() ? nullptr : &tables[static_cast<std::size_t>(found - types.begin())];
}

/// How the words of a source become FP32 words.
struct Source {
  Widening widening = Widening::none;
  std::uint32_t must_be_zero = 0;
  const WideningTable* table = nullptr;
};

bool find_source(const Format& from, Source& source) {
  switch (from.type) {
    case DataType::fp32:
      return true;
    case DataType::fp16:
      source.widening = Widening::fp16;
      return true;
    case DataType::bf16:
      source.widening = Widening::bf16;
      return true;
    case DataType::tf32:
    case DataType::hf32:
      source.widening = Widening::low_zero_bits;
      source.must_be_zero = static_cast<std::uint32_t>(low_mask(from.low_zero_bits));
      return true;
    default:
      source.widening = Widening::table;
      source.table = widening_table(from.type);
      return source.table != nullptr;
  }
}

}  // namespace
}  // namespace bitcube::kernels

#endif  // BITCUBE_QUANTIZE_KERNELS_CONVERT_ONCE

HWY_BEFORE_NAMESPACE();
namespace bitcube::kernels::HWY_NAMESPACE {
namespace {

#if BITCUBE_VECTOR_TARGET

/// convert() from FP32 to the floating destination of the constants.
template <Mode mode, Layout layout, typename Word>
Flags convert_to_floating(const EncodeConstants& constants, const std::byte* in, std::size_t count, std::byte* out) {
  const EncodeConstants c = constants;  // a copy that no store can change
  const PatternLimits limits(c);
  FlagSums sums;
  for_each_vector<4, sizeof(Word)>(in, count, out, [&](const std::byte* from, std::byte* to) HWY_ATTR {
    const U word = load(from);
    const U magnitude = hn::And(word, constant(0x7FFFFFFFU));
    const U sign = hn::Xor(word, magnitude);
    Delivered r = encode_pattern<mode, layout>(c, limits, magnitude, sign);
    const M special = greater(magnitude, 0x7F7FFFFF);
    if (HWY_UNLIKELY(!hn::AllFalse(d32, special))) {
      // Infinities are beyond every range; what has one takes them as they are (convert_value).
      const M nan = greater(magnitude, 0x7F800000);
      const U quiet_bit = hn::And(magnitude, constant(0x00400000U));
      sums.invalid = hn::Or(sums.invalid, hn::And(nan, hn::Eq(quiet_bit, hn::Zero(d32))));
      const U infinity = hn::Or(constant(c.infinity), hn::ShiftRightSame(sign, c.sign_shift));
      if (c.has_infinity) r.word = hn::IfThenElse(special, infinity, r.word);
      r.word = hn::IfThenElse(nan, constant(c.nan), r.word);
      r.overflow = hn::AndNot(c.has_infinity ? special : nan, r.overflow);
      r.rest = hn::IfThenZeroElse(special, r.rest);
    }
    sums.inexact = hn::Or(sums.inexact, r.rest);
    sums.overflow = hn::Or(sums.overflow, r.overflow);
    sums.underflow = hn::Or(sums.underflow, r.underflow);
    store<Word>(r.word, to);
  });
  return sums.flags();
}

/// convert() from FP32 to E8M0: encode_exponent, and NaN with NV for whatever is not above zero.
Flags convert_to_e8m0(const EncodeControl& control, const std::byte* in, std::size_t count, std::byte* out) {
  const std::uint32_t nan = 0xFF;
  const std::uint32_t overflow_word = control.saturate ? 0xFE : nan;
  const std::uint32_t underflow_word = control.saturate ? 0 : nan;
  const Rounding rounding = control.rounding;
  FlagSums sums;
  for_each_vector<4, 1>(in, count, out, [&](const std::byte* from, std::byte* to) HWY_ATTR {
    const U one = constant(1U);
    const U word = load(from);
    const U magnitude = hn::And(word, constant(0x7FFFFFFFU));
    const U code = hn::ShiftRight<23>(magnitude);  // floor(log2) + 127, also where that is 0: from 2^-127 up
    const U fraction = hn::And(magnitude, constant(0x007FFFFFU));
    // The 24-bit significand; subnormals from 2^-127 up have their leading bit one place lower.
    const U significand = hn::IfThenElse(hn::Eq(code, hn::Zero(d32)), hn::Add(fraction, fraction),
                                         hn::Or(fraction, constant(0x00800000U)));
    const M power_of_two = hn::Eq(significand, constant(0x00800000U));
    U up = hn::Zero(d32);
    switch (rounding) {
      case Rounding::rtm:
        break;
      case Rounding::rtp:
        up = one;
        break;
      case Rounding::rtz:
        up = bits(one_if(greater(constant(127), number(code))));
        break;
      case Rounding::rto:
        up = hn::And(code, one);
        break;
      case Rounding::rne:
      case Rounding::rna:
      case Rounding::rhb:
        up = bits(one_if(greater(significand, 0xB504F3)));  // 2^23.5 lies between 0xB504F3 and the next
        break;
    }
    const M invalid = hn::Or(greater(constant(1), number(word)), greater(magnitude, 0x7F800000));
    const M overflow = hn::AndNot(invalid, greater(magnitude, 0x7F000000));
    const M underflow = hn::AndNot(invalid, greater(constant(0x00400000), number(magnitude)));
    U result = hn::Add(code, hn::IfThenZeroElse(power_of_two, up));
    result = hn::IfThenElse(underflow, constant(underflow_word), result);
    result = hn::IfThenElse(overflow, constant(overflow_word), result);
    result = hn::IfThenElse(invalid, constant(nan), result);
    sums.inexact = hn::Or(sums.inexact, hn::IfThenElseZero(hn::Not(hn::Or(invalid, power_of_two)), one));
    sums.invalid = hn::Or(sums.invalid, invalid);
    sums.overflow = hn::Or(sums.overflow, overflow);
    sums.underflow = hn::Or(sums.underflow, underflow);
    store<std::uint8_t>(result, to);
  });
  return sums.flags();
}

/// FP16 words to FP32 words of the same value or the same kind of NaN.
void widen_fp16(const std::byte* in, std::size_t count, std::byte* out) {
  for_each_vector<2, 4>(in, count, out, [](const std::byte* from, std::byte* to) HWY_ATTR {
    const hn::Rebind<std::uint16_t, D32> d16;
    const hn::Repartition<std::uint8_t, decltype(d16)> d8;
    const auto halves = hn::BitCast(d16, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(from)));
    const U word = hn::PromoteTo(d32, halves);
    const U magnitude = hn::And(word, constant(0x7FFFU));
    const U sign = hn::ShiftLeft<16>(hn::Xor(word, magnitude));
    const U rebias = constant(112U << 23);
    const U normal = hn::Add(hn::ShiftLeft<13>(magnitude), rebias);
    const U special = hn::Add(normal, rebias);
    // Subnormals are a number of 2^-24, which becomes a float exactly; 0 must stay 0.
    const U whole = hn::BitCast(d32, hn::ConvertTo(F32(), number(magnitude)));
    const U subnormal = hn::IfThenZeroElse(hn::Eq(magnitude, hn::Zero(d32)), hn::Sub(whole, constant(24U << 23)));
    U wide = hn::IfThenElse(greater(magnitude, 0x7BFF), special, normal);
    wide = hn::IfThenElse(greater(constant(0x400), number(magnitude)), subnormal, wide);
    store<std::uint32_t>(hn::Or(wide, sign), to);
  });
}

/// BF16 words to FP32 words: the upper half.
void widen_bf16(const std::byte* in, std::size_t count, std::byte* out) {
  for_each_vector<2, 4>(in, count, out, [](const std::byte* from, std::byte* to) HWY_ATTR {
    const hn::Rebind<std::uint16_t, D32> d16;
    const hn::Repartition<std::uint8_t, decltype(d16)> d8;
    const auto halves = hn::BitCast(d16, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(from)));
    store<std::uint32_t>(hn::ShiftLeft<16>(hn::PromoteTo(d32, halves)), to);
  });
}

/// TF32 and HF32 words to FP32 words, invalid encodings to a signalling NaN.
void widen_low_zero_bits(std::uint32_t must_be_zero, const std::byte* in, std::size_t count, std::byte* out) {
  for_each_vector<4, 4>(in, count, out, [must_be_zero](const std::byte* from, std::byte* to) HWY_ATTR {
    const U word = load(from);
    const M valid = hn::Eq(hn::And(word, constant(must_be_zero)), hn::Zero(d32));
    store<std::uint32_t>(hn::IfThenElse(valid, word, constant(signaling_nan)), to);
  });
}

void widen(const Source& source, const std::byte* in, std::size_t count, std::byte* out) {
  switch (source.widening) {
    case Widening::none:
      break;
    case Widening::low_zero_bits:
      return widen_low_zero_bits(source.must_be_zero, in, count, out);
    case Widening::fp16:
      return widen_fp16(in, count, out);
    case Widening::bf16:
      return widen_bf16(in, count, out);
    case Widening::table:
      for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(out + 4 * i, &(*source.table)[static_cast<std::size_t>(in[i])], 4);
      }
      break;
  }
}

using Kernel = Flags (*)(const EncodeConstants&, const std::byte*, std::size_t, std::byte*);

template <Layout layout, typename Word>
Kernel kernel_of(Rounding rounding) {
  return rounding == Rounding::rne ? convert_to_floating<Mode::rne, layout, Word>
                                   : convert_to_floating<Mode::any, layout, Word>;
}

Kernel find_kernel(const Format& to, Rounding rounding) {
  if (to.layout == Layout::dot_field) {
    return rounding == Rounding::rhb ? convert_to_floating<Mode::rhb, Layout::dot_field, std::uint8_t>
                                     : kernel_of<Layout::dot_field, std::uint8_t>(rounding);
  }
  if (to.carrier_bits == 8) return kernel_of<Layout::fields, std::uint8_t>(rounding);
  if (to.carrier_bits == 16) return kernel_of<Layout::fields, std::uint16_t>(rounding);
  return kernel_of<Layout::fields, std::uint32_t>(rounding);
}

bool convert_words(const Format& from, const Format& to, const EncodeControl& control, const std::byte* in,
                   std::size_t count, std::byte* out, Flags& flags) {
  const bool to_scale = to.layout == Layout::exponent;
  if (!to_scale && !encodes(to)) return false;
  Source source;
  if (!find_source(from, source)) return false;

  const EncodeConstants constants = to_scale ? EncodeConstants{} : encode_constants(to, control);
  const Kernel kernel = to_scale ? nullptr : find_kernel(to, control.rounding);
  const auto run = [&](const std::byte* words, std::size_t n, std::byte* results) {
    flags |= to_scale ? convert_to_e8m0(control, words, n, results) : kernel(constants, words, n, results);
  };
  if (source.widening == Widening::none) {
    run(in, count, out);
    return true;
  }
  constexpr std::size_t piece = 1024;  // stays in the first-level cache
  std::byte wide[4 * piece];
  const std::size_t in_bytes = from.carrier_bits / 8U;
  const std::size_t out_bytes = to.carrier_bits / 8U;
  for (std::size_t i = 0; i < count; i += piece) {
    const std::size_t n = std::min(piece, count - i);
    widen(source, in + i * in_bytes, n, wide);
    run(wide, n, out + i * out_bytes);
  }
  return true;
}

#else

bool convert_words(const Format&, const Format&, const EncodeControl&, const std::byte*, std::size_t, std::byte*,
                   Flags&) {
  return false;
}

#endif

}  // namespace
}  // namespace bitcube::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bitcube::kernels {

HWY_EXPORT(convert_words);

bool convert_words(const Format& from, const Format& to, const EncodeControl& control, const std::byte* in,
                   std::size_t count, std::byte* out, Flags& flags) {
  return HWY_DYNAMIC_DISPATCH(convert_words)(from, to, control, in, count, out, flags);
}

}  // namespace bitcube::kernels
#endif
