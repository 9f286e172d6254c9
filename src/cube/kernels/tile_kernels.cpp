#include "cube/kernels/tile_kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "bitcube/cube/accumulate.hpp"
#include "bitcube/quantize/hif4.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cube/kernels/tile_kernels.cpp"
#include <hwy/foreach_target.h>  // compiles what is between the guards once per target
#include <hwy/highway.h>

#include "quantize/kernels/lanes-inl.hpp"

// The parts that know no target.
#ifndef BITCUBE_CUBE_TILE_KERNELS_ONCE
#define BITCUBE_CUBE_TILE_KERNELS_ONCE
namespace bitcube::kernels {
namespace {

/// Lanes of a chunk at most, and what follows them so that vectors may reach beyond the last one.
constexpr std::size_t most_lanes = 4 * chunk_units;
constexpr std::size_t slack = 64;
constexpr std::size_t most_lines = 32;

/// The bits of the scale word that double quad h of a HiF4 group (numerics 8.1).
alignas(64) constexpr std::array<std::uint32_t, 16> micro8_bits = [] {
  std::array<std::uint32_t, 16> bits{};
  for (unsigned h = 0; h < 16; ++h) bits[h] = 1U << (8 + h / 2);
  return bits;
}();
alignas(64) constexpr std::array<std::uint32_t, 16> micro4_bits = [] {
  std::array<std::uint32_t, 16> bits{};
  for (unsigned h = 0; h < 16; ++h) bits[h] = 1U << (16 + h);
  return bits;
}();

/// Scales that serve the integer sums of a group, which are below 2^16: with two scales of this range their product is
/// an FP32 value, a multiple of 2^-148 below 2^118.
constexpr float least_scale = 0x1p-72F;
constexpr float most_scale = 0x1p51F;

/// The codes of the lines of a panel, one code per word of 1, 2 or 4 bytes, zeros after the last lane.
struct Codes {
  // A chunk is 1024 bytes of codes or less; with the slack behind it, words of 4 bytes take the most.
  alignas(64) std::array<std::uint8_t, most_lines*(chunk_units + slack) * 4> bytes;
  std::size_t word = 1;
  std::size_t stride = 0;  // bytes from one line to the next

  const std::uint8_t* line(std::size_t i) const noexcept { return bytes.data() + i * stride; }
};

/// The low bits of little-endian words that are as wide as Word or wider.
template <typename Word>
void load_words(const LaneView& lanes, std::size_t line, std::size_t count, std::size_t k0, std::size_t n,
                Codes& to) noexcept {
  const std::size_t from_bytes = lanes.lane_bits / 8;
  const auto* from = lanes.data + (line * lanes.line_stride + k0 * lanes.lane_stride) * from_bytes;
  const bool adjacent = lanes.lane_stride == 1 && from_bytes == sizeof(Word);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint8_t* row = to.bytes.data() + i * to.stride;
    if (adjacent) std::memcpy(row, from + i * lanes.line_stride * sizeof(Word), n * sizeof(Word));
    std::memset(row + n * sizeof(Word), 0, to.stride - n * sizeof(Word));
  }
  if (adjacent) return;
  for (std::size_t k = 0; k < n; ++k) {  // in the order of a row-major B
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(to.bytes.data() + i * to.stride + k * sizeof(Word),
                  from + (i * lanes.line_stride + k * lanes.lane_stride) * from_bytes, sizeof(Word));
    }
  }
}

void load_nibbles(const LaneView& lanes, std::size_t line, std::size_t count, std::size_t k0, std::size_t n,
                  Codes& to) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint8_t* row = to.bytes.data() + i * to.stride;
    for (std::size_t k = 0; k < n; ++k) row[k] = static_cast<std::uint8_t>(lanes(line + i, k0 + k));
    std::memset(row + n, 0, to.stride - n);
  }
}

void load_codes(const Operand& side, std::size_t line, std::size_t count, std::size_t k0, std::size_t n,
                Codes& to) noexcept {
  const LaneView& lanes = side.lanes;
  to.word = side.format->carrier_bits / 8U;
  to.stride = (n + slack) * to.word;
  if (lanes.lane_bits == 4) {
    load_nibbles(lanes, line, count, k0, n, to);
  } else if (to.word == 1) {
    load_words<std::uint8_t>(lanes, line, count, k0, n, to);
  } else if (to.word == 2) {
    load_words<std::uint16_t>(lanes, line, count, k0, n, to);
  } else {
    load_words<std::uint32_t>(lanes, line, count, k0, n, to);
  }
}

/// The FP32 values of all codes of an 8-bit format without fields (HiF8): from the decoder, which is the definition.
std::array<float, 256> decoded_bytes(const Format& f) noexcept {
  std::array<float, 256> table{};
  for (std::size_t code = 0; code < table.size(); ++code) {
    const Value v = decode(f, code);
    if (v.is_finite()) {
      table[code] = std::bit_cast<float>(static_cast<std::uint32_t>(v.real.is_zero() ? zero_code(fp32, v.real.negative)
                                                                                     : encode(fp32, v.real, {}).bits));
    } else {
      table[code] = std::bit_cast<float>(v.is_infinite() ? (v.real.negative ? 0xFF800000 : 0x7F800000) : product_nan);
    }
  }
  return table;
}
const std::array<float, 256>& hif8_values() noexcept {
  static const std::array<float, 256> table = decoded_bytes(format_of(DataType::hif8));
  return table;
}

float float_of(std::uint32_t word) noexcept {
  return std::bit_cast<float>(word);
}

/// 2^(code - 127) in FP32, code FF is NaN.
float e8m0_value(unsigned code) noexcept {
  return float_of(code == 0xFF ? product_nan : code == 0 ? 0x00400000 : code << 23);
}
/// E6M2 in FP32: 2^(e - 48) * (1 + f / 4), code FF is NaN.
float e6m2_value(unsigned code) noexcept {
  return float_of(code == 0xFF ? product_nan : (((code >> 2) + 79) << 23) | (code & 3) << 21);
}

int floor_log2(float x) noexcept {  // of a finite x above 0
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return bits >= 0x00800000 ? static_cast<int>(bits >> 23) - 127 : bit_length(uint64{bits}) - 150;
}

/// Scale word of the group that holds lane k. The words of the view are as wide as a scale, or wider.
inline std::uint32_t scale_word(const Operand& side, std::size_t line, std::size_t k) noexcept {
  const LaneView& scales = side.scales;
  const std::size_t group = k / scale_group(*side.format);
  const auto* at = scales.data + (line * scales.line_stride + group * scales.lane_stride) * (scales.lane_bits / 8);
  if (side.format->type != DataType::hif4x2) return *at;
  std::uint32_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

/// Its value, without the micro-exponents of HiF4; 1 where there is none.
inline float scale_value(const Operand& side, std::size_t line, std::size_t k) noexcept {
  if (!side.scaled()) return 1.0F;
  const unsigned code = scale_word(side, line, k) & 0xFF;
  return side.format->type == DataType::hif4x2 ? e6m2_value(code) : e8m0_value(code);
}

/// RNE32(acc + exact sum of the products) where binary64 was not sure of the rounding. The operands are FP32 values
/// times a power of two, as binary64 holds them; the products fit it exactly.
std::uint32_t add_group_exactly(std::uint32_t acc, const double* a, const double* b, std::size_t b_stride,
                                std::size_t n) noexcept {
  ExactSum sum;
  SpecialSum special;
  const auto include = [&](double x) {
    const auto bits = std::bit_cast<uint64>(x);
    const bool negative = (bits >> 63) != 0;
    const auto field = static_cast<int>((bits >> 52) & 0x7FF);
    Addend addend{Term::Kind::finite, negative, bits & low_mask(52), field - 1075};
    if (field == 0x7FF) {
      addend.kind = addend.significand == 0 ? Term::Kind::infinite : Term::Kind::nan;
    } else if (field != 0) {
      addend.significand |= uint64{1} << 52;
    }  // field 0 is zero: no product is that small
    special.add(addend);
    if (addend.kind != Term::Kind::finite || addend.significand == 0) return;
    const int zeros = std::countr_zero(addend.significand);  // ExactSum takes multiples of 2^-320 only
    sum.add(negative, addend.significand >> zeros, addend.exponent + zeros);
  };
  include(static_cast<double>(float_of(acc)));
  for (std::size_t k = 0; k < n; ++k) include(a[k] * b[k * b_stride]);
  if (special.finished()) return special.result();
  const auto exact = sum.value();
  return exact.is_zero() ? special.zero() : static_cast<std::uint32_t>(encode(fp32, exact, {}).bits);
}

}  // namespace
}  // namespace bitcube::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bitcube::kernels {
namespace HWY_NAMESPACE {

#if !BITCUBE_HAS_KERNELS

/// Without SIMD the reference is the kernel.
TileKernels tile_kernels_here(Method /*method*/) {
  return {};
}

#else

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::ScalableTag<std::int32_t>;
using WordTag = hn::ScalableTag<std::uint32_t>;
using ByteTag = hn::ScalableTag<std::uint8_t>;
using DoubleTag = hn::ScalableTag<double>;
using HalfFloatTag = hn::Rebind<float, DoubleTag>;
using FloatVec = hn::Vec<FloatTag>;
using IntVec = hn::Vec<IntTag>;
using DoubleVec = hn::Vec<DoubleTag>;
constexpr FloatTag df{};
constexpr IntTag di{};
constexpr WordTag dw{};
constexpr ByteTag db{};
constexpr DoubleTag dd{};
constexpr HalfFloatTag dh{};
constexpr std::size_t lanes = hn::MaxLanes(df);  // of 32 bits in a vector
constexpr std::size_t lanes64 = hn::MaxLanes(dd);

// A tile is so many lines of A by two vectors of lines of B; its accumulators fill most of the registers.
#if HWY_TARGET <= HWY_AVX3
constexpr std::size_t f32_rows = 14;
constexpr std::size_t f64_rows = 12;
constexpr std::size_t int_rows = 8;
#else
constexpr std::size_t f32_rows = 6;
constexpr std::size_t f64_rows = 6;
constexpr std::size_t int_rows = 4;
#endif
constexpr std::size_t tile_cols = 2 * lanes;
constexpr std::size_t tile_cols64 = 2 * lanes64;
static_assert(tile_cols <= most_lines);

// ---- Decoding lines -----------------------------------------------------------------------------------------------

/// 4-bit codes of consecutive lanes, two per byte, the even one in the low nibble: one per byte.
void unpack_nibbles(const std::uint8_t* from, std::size_t n, std::uint8_t* to) {
  std::size_t k = 0;
  for (; k + 32 <= n; k += 32) spread_nibbles<16>(from + k / 2, to + k);
  for (; k < n; ++k) to[k] = static_cast<std::uint8_t>(from[k / 2] >> (4 * (k % 2)) & 0xF);
}

/// load_codes(), with a fast way for lines of packed 4-bit lanes.
void load_lines(const Operand& side, std::size_t line, std::size_t count, std::size_t k0, std::size_t n, Codes& to) {
  const LaneView& v = side.lanes;
  if (v.lane_bits != 4 || v.lane_stride != 1 || v.line_stride % 2 != 0 || k0 % 2 != 0) {
    return load_codes(side, line, count, k0, n, to);
  }
  to.word = 1;
  to.stride = n + slack;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint8_t* row = to.bytes.data() + i * to.stride;
    unpack_nibbles(v.data + ((line + i) * v.line_stride + k0) / 2, n, row);
    std::memset(row + n, 0, slack);
  }
}

/// Codes of a format with sign, exponent and fraction fields to FP32, exactly. The magnitude bits, moved to the place
/// of FP32's, are the value times 2^(bias - 127), subnormals included, so one multiplication by a power of two is all.
template <typename Code>
void decode_fields(const Format& f, const Code* codes, std::size_t n, float* out) {
  const hn::Rebind<Code, WordTag> dc;
  const auto code_mask = hn::Set(dw, static_cast<std::uint32_t>(low_mask(f.lane_bits)));
  const auto magnitude_mask = hn::Set(dw, static_cast<std::uint32_t>(low_mask(f.value_bits - 1)));
  const auto valid_mask = hn::Set(dw, static_cast<std::uint32_t>(low_mask(f.value_bits)));
  const auto largest = hn::Set(di, static_cast<std::int32_t>(f.max_finite));
  const auto infinity = hn::Set(dw, static_cast<std::uint32_t>(f.has_infinity ? f.infinity : ~uint64{0}));
  const auto power = hn::Set(df, std::ldexp(1.0F, 127 - f.bias));
  const auto inf = hn::BitCast(df, hn::Set(dw, 0x7F800000U));
  const auto nan = hn::BitCast(df, hn::Set(dw, product_nan));
  const auto sign_bit = hn::Set(dw, 0x80000000U);
  const int up = 23 - f.fraction_bits;
  const int to_sign = 32 - f.value_bits;
  for (std::size_t k = 0; k < n; k += lanes) {
    const auto code = hn::And(hn::PromoteTo(dw, hn::LoadU(dc, codes + k)), code_mask);
    const auto magnitude = hn::And(code, magnitude_mask);
    auto x = hn::Mul(hn::BitCast(df, hn::ShiftLeftSame(magnitude, up)), power);
    const auto special = hn::Gt(hn::BitCast(di, magnitude), largest);
    const auto not_finite = hn::IfThenElse(hn::RebindMask(df, hn::Eq(magnitude, infinity)), inf, nan);
    x = hn::IfThenElse(hn::RebindMask(df, special), not_finite, x);
    x = hn::Or(x, hn::BitCast(df, hn::And(hn::ShiftLeftSame(code, to_sign), sign_bit)));
    const auto invalid = hn::Ne(hn::AndNot(valid_mask, code), hn::Zero(dw));
    x = hn::IfThenElse(hn::RebindMask(df, invalid), nan, x);
    hn::StoreU(x, df, out + k);
  }
}

/// FP32, TF32 and HF32: the word itself, NaN where a bit that must be 0 is set.
void decode_words(const Format& f, const std::uint32_t* codes, std::size_t n, float* out) {
  const auto constrained = hn::Set(dw, static_cast<std::uint32_t>(low_mask(f.low_zero_bits)));
  const auto nan = hn::Set(dw, product_nan);
  for (std::size_t k = 0; k < n; k += lanes) {
    const auto word = hn::LoadU(dw, codes + k);
    const auto invalid = hn::Ne(hn::And(word, constrained), hn::Zero(dw));
    hn::StoreU(hn::BitCast(df, hn::IfThenElse(invalid, nan, word)), df, out + k);
  }
}

/// Lanes of one line, without scales, as FP32. Writes whole vectors.
void decode_floats(const Format& f, const std::uint8_t* codes, std::size_t n, float* out) {
  if (f.layout == Layout::dot_field) {
    const std::array<float, 256>& table = hif8_values();
    for (std::size_t k = 0; k < n; ++k) out[k] = table[codes[k]];
    return;
  }
  if (f.carrier_bits == 8) return decode_fields(f, codes, n, out);
  if (f.carrier_bits == 16) {
    const auto* words = reinterpret_cast<const std::uint16_t*>(codes);
    if (f.type != DataType::bf16) return decode_fields(f, words, n, out);
    const hn::Rebind<std::uint16_t, WordTag> d16;
    for (std::size_t k = 0; k < n; k += lanes) {
      const auto word = hn::PromoteTo(dw, hn::LoadU(d16, words + k));
      hn::StoreU(hn::BitCast(df, hn::ShiftLeft<16>(word)), df, out + k);
    }
    return;
  }
  decode_words(f, reinterpret_cast<const std::uint32_t*>(codes), n, out);
}

/// 4-bit codes to integers through a table of 16.
void decode_nibbles(const std::int8_t* table, const std::uint8_t* codes, std::size_t n, std::int8_t* out) {
  const hn::ScalableTag<std::int8_t> d8;
  const auto values = hn::LoadDup128(d8, table);
  const auto low = hn::Set(db, 0x0F);
  for (std::size_t k = 0; k < n; k += hn::MaxLanes(d8)) {
    const auto code = hn::BitCast(d8, hn::And(hn::LoadU(db, codes + k), low));
    hn::StoreU(hn::TableLookupBytes(values, code), d8, out + k);
  }
}

/// Doubles quarters of a HiF4 group for each micro-exponent that the scale word sets for them (numerics 8.1); `quad` is
/// that of the first lane.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V apply_micro_exponents(D d8, V quarters, std::uint32_t word, std::size_t quad) {
  const hn::Repartition<std::uint32_t, D> d32;
  const auto scale = hn::Set(d32, word);
  for (const auto* bits : {&micro8_bits, &micro4_bits}) {
    const auto twice = hn::VecFromMask(d32, hn::TestBit(scale, hn::LoadU(d32, bits->data() + quad)));
    quarters = hn::Add(quarters, hn::And(quarters, hn::BitCast(d8, twice)));
  }
  return quarters;
}

/// HiF4 lanes with their micro-exponents: quarters in [-28, 28]. Lanes [k0, k0 + n), k0 a multiple of 64.
void decode_hif4(const PackRequest& r, std::size_t line, std::size_t k0, const std::uint8_t* codes, std::size_t n,
                 std::int8_t* out) {
  decode_nibbles(r.table, codes, n, out);
  for (std::size_t k = 0; k < n; k += hif4_group_lanes) {
    const std::uint32_t word = scale_word(*r.side, line, k0 + k);
    for (std::size_t i = 0; i < hif4_group_lanes; i += hn::MaxLanes(db)) {
      auto* at = reinterpret_cast<std::uint8_t*>(out + k + i);
      hn::StoreU(apply_micro_exponents(db, hn::LoadU(db, at), word, i / 4), db, at);
    }
  }
}

/// Quarters times a factor in FP32, with the signs that zeros have in the codes. Exact: 5 bits by at most 3.
void scale_quarters(const std::int8_t* quarters, const std::uint8_t* codes, std::size_t n, float factor, float* out) {
  const hn::Rebind<std::int8_t, IntTag> d8;
  const hn::Rebind<std::uint8_t, WordTag> du8;
  const auto by = hn::Set(df, factor);
  const auto sign_bit = hn::Set(dw, 0x80000000U);
  for (std::size_t k = 0; k < n; k += lanes) {
    const auto x = hn::Mul(hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d8, quarters + k))), by);
    const auto sign = hn::And(hn::ShiftLeft<28>(hn::PromoteTo(dw, hn::LoadU(du8, codes + k))), sign_bit);
    hn::StoreU(hn::Or(x, hn::BitCast(df, sign)), df, out + k);
  }
}

/// Largest and smallest non-zero finite magnitude of n FP32 values; 0 where there is none.
struct Magnitudes {
  float largest = 0;
  float smallest = 0;
  bool all_finite = true;
};
Magnitudes magnitudes(const float* x, std::size_t n) {
  // Magnitude words order as values do; zero minus 1 wraps to the largest word.
  constexpr std::uint32_t infinity = 0x7F800000;
  auto largest = hn::Zero(dw);
  auto smallest = hn::Set(dw, ~0U);
  const auto mask = hn::Set(dw, 0x7FFFFFFFU);
  const auto one = hn::Set(dw, 1U);
  const auto* words = reinterpret_cast<const std::uint32_t*>(x);
  std::size_t k = 0;
  for (; k + lanes <= n; k += lanes) {
    const auto magnitude = hn::And(hn::LoadU(dw, words + k), mask);
    largest = hn::Max(largest, magnitude);
    smallest = hn::Min(smallest, hn::Sub(magnitude, one));
  }
  std::uint32_t high = hn::GetLane(hn::MaxOfLanes(dw, largest));
  std::uint32_t low = hn::GetLane(hn::MinOfLanes(dw, smallest));
  for (; k < n; ++k) {
    const std::uint32_t magnitude = words[k] & 0x7FFFFFFF;
    high = std::max(high, magnitude);
    low = std::min(low, magnitude - 1);
  }
  Magnitudes out;
  if (high >= infinity) {  // rare: once more, without the special values
    out.all_finite = false;
    high = 0;
    for (k = 0; k < n; ++k) {
      const std::uint32_t magnitude = words[k] & 0x7FFFFFFF;
      if (magnitude < infinity) high = std::max(high, magnitude);
    }
  }
  if (high == 0) return out;
  out.largest = float_of(high);
  out.smallest = float_of(low + 1);
  return out;
}

// ---- Packing -----------------------------------------------------------------------------------------------------

/// Units of the lines of a B panel, one line after the other, to units side by side.
void transpose_units(const std::uint32_t* from, std::size_t from_stride, std::size_t cols, std::size_t units,
                     std::uint32_t* to) {
  const hn::FixedTag<std::uint32_t, 4> d4;
  const hn::Repartition<std::uint64_t, decltype(d4)> d2;
  for (std::size_t c = 0; c < cols; c += 4) {
    for (std::size_t u = 0; u < units; u += 4) {  // the panel has room for a multiple of 4
      const auto* at = from + c * from_stride + u;
      const auto r0 = hn::LoadU(d4, at);
      const auto r1 = hn::LoadU(d4, at + from_stride);
      const auto r2 = hn::LoadU(d4, at + 2 * from_stride);
      const auto r3 = hn::LoadU(d4, at + 3 * from_stride);
      const auto a = hn::BitCast(d2, hn::InterleaveLower(d4, r0, r1));
      const auto b = hn::BitCast(d2, hn::InterleaveLower(d4, r2, r3));
      const auto c2 = hn::BitCast(d2, hn::InterleaveUpper(d4, r0, r1));
      const auto d = hn::BitCast(d2, hn::InterleaveUpper(d4, r2, r3));
      auto* put = to + u * cols + c;
      hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, a, b)), d4, put);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, a, b)), d4, put + cols);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, c2, d)), d4, put + 2 * cols);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, c2, d)), d4, put + 3 * cols);
    }
  }
}
void transpose_units(const double* from, std::size_t from_stride, std::size_t cols, std::size_t units, double* to) {
  const hn::FixedTag<double, 2> d2;
  for (std::size_t c = 0; c < cols; c += 2) {
    for (std::size_t u = 0; u < units; u += 2) {
      const auto* at = from + c * from_stride + u;
      const auto r0 = hn::LoadU(d2, at);
      const auto r1 = hn::LoadU(d2, at + from_stride);
      hn::StoreU(hn::InterleaveLower(d2, r0, r1), d2, to + u * cols + c);
      hn::StoreU(hn::InterleaveUpper(d2, r0, r1), d2, to + (u + 1) * cols + c);
    }
  }
}

/// One line of a panel on its way: its units, in the A panel or before the transposition of B.
struct LineTarget {
  void* units;
  std::size_t index;  // of the line in the panel
  std::size_t width;  // lines of the panel
  const PanelSide* beside;
  bool is_b;

  std::size_t per_group(std::size_t g) const noexcept { return is_b ? g * width + index : index * chunk_groups + g; }
};

/// The exponents of FP32 lanes under a scale 2^s * (1 + ...), whose lowest bit is 2^scale_low.
void include_lanes(const Format& f, const Magnitudes& m, int scale_low, int scale_high, ExponentRange& range,
                   int& span) {
  if (m.largest == 0) return;
  const int format_low = f.layout == Layout::dot_field ? -22 : 1 - f.bias - f.fraction_bits;
  const int fraction = f.layout == Layout::dot_field ? 3 : f.fraction_bits;
  const int low = std::max(floor_log2(m.smallest) - fraction, format_low) + scale_low;
  const int high = floor_log2(m.largest) + 1 + scale_high;
  range.include(low, high);
  span = std::max(span, high - low);
}

/// FP32 units of one line: lane times scale. False where a lane does not fit FP32, or where a product with a like line
/// might not and it must.
bool pack_f32(const PackRequest& r, std::size_t line, std::size_t k0, std::size_t n, const std::uint8_t* codes,
              const LineTarget& to) {
  const Operand& side = *r.side;
  auto* out = static_cast<float*>(to.units);
  const Format& f = *side.format;
  bool good = true;
  const bool is_hif4 = f.type == DataType::hif4x2;
  if (is_hif4) {
    alignas(64) std::array<std::int8_t, most_lanes + slack> quarters;
    decode_hif4(r, line, k0, codes, n, quarters.data());
    for (std::size_t k = 0; k < n; k += hif4_group_lanes) {
      scale_quarters(quarters.data() + k, codes + k, std::min(hif4_group_lanes, n - k),
                     scale_value(side, line, k0 + k) * 0.25F, out + k);
    }
  } else {
    decode_floats(f, codes, n, out);
    if (side.scaled()) {
      const Value largest = decode(f, f.max_finite);
      const float limit = std::ldexp(1.0F, 127 - bitcube::floor_log2(largest.real));  // beyond it lanes may overflow
      const std::size_t group = scale_group(f);
      for (std::size_t k = 0; k < n; k += group) {
        const std::size_t end = std::min(n, k + group);
        const float scale = scale_value(side, line, k0 + k);
        if (scale > limit) {
          for (std::size_t i = k; i < end; ++i) good = good && !(std::isfinite(out[i]) && std::isinf(out[i] * scale));
        }
        const auto by = hn::Set(df, scale);
        std::size_t i = k;  // groups of 32 lanes are whole vectors; a short last one may write beyond its end
        for (; i < end; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(df, out + i), by), df, out + i);
      }
    }
  }
  if (r.products_must_fit) {
    // Half of FP32's exponents for each side: products stay below 2^126 and are multiples of 2^-148.
    const Magnitudes m = magnitudes(out, n);
    if (m.largest != 0) {
      const int significand = is_hif4 ? 8 : f.layout == Layout::dot_field ? 4 : f.fraction_bits + 1;
      const int low = floor_log2(m.smallest) - significand + 1;
      good = good && floor_log2(m.largest) < 63 && low >= -74;
    }
  }
  return good;
}

/// binary64 units of one line: lane times scale, always exact.
void pack_f64(const PackRequest& r, std::size_t line, std::size_t k0, std::size_t n, const std::uint8_t* codes,
              const LineTarget& to, ExponentRange& range) {
  const Operand& side = *r.side;
  const Format& f = *side.format;
  auto* out = static_cast<double*>(to.units);
  const bool is_hif4 = f.type == DataType::hif4x2;
  alignas(64) std::array<float, chunk_units + slack> values;
  alignas(64) std::array<std::int8_t, chunk_units + slack> quarters;
  if (is_hif4) {
    decode_hif4(r, line, k0, codes, n, quarters.data());
    scale_quarters(quarters.data(), codes, n, 0.25F, values.data());
  } else {
    decode_floats(f, codes, n, values.data());
  }
  const std::size_t scaled = side.scaled() ? scale_group(f) : n;
  const std::size_t step = std::min(r.group, scaled);  // both are multiples of 16 and powers of two, or one is n
  double bound = 0;
  ExponentRange in_group;
  for (std::size_t k = 0; k < n; k += step) {
    const std::size_t count = std::min(step, n - k);
    const float scale = side.scaled() ? scale_value(side, line, k0 + k) : 1.0F;
    const auto by = hn::Set(dd, static_cast<double>(scale));
    for (std::size_t i = 0; i < count; i += lanes64) {
      const auto x = hn::PromoteTo(dd, hn::LoadU(dh, values.data() + k + i));
      hn::StoreU(hn::Mul(x, by), dd, out + k + i);
    }
    if (r.sums_fit) continue;
    const Magnitudes m = magnitudes(values.data() + k, count);
    ExponentRange here;
    if (m.largest != 0 && scale == scale) {
      const int e = floor_log2(scale);
      if (is_hif4) {
        here.include(e - 2 - 2, e + 1 + floor_log2(m.largest) + 1);
      } else {
        int span = 0;
        include_lanes(f, m, e, e, here, span);
      }
    }
    in_group.include(here);
    range.include(here);
    const bool finite = m.all_finite && scale == scale;
    bound = std::max(bound, finite ? static_cast<double>(m.largest) * static_cast<double>(scale) : HUGE_VAL);
    if ((k + count) % r.group == 0 || k + count == n) {
      if (!in_group.empty()) range.span = std::max(range.span, in_group.high - in_group.low);
      if (to.beside->bounds != nullptr) to.beside->bounds[to.per_group(k / r.group)] = bound;
      in_group = {};
      bound = 0;
    }
  }
}

/// Modulo 2^32, of signed or unsigned bytes after which zeros stand.
std::uint32_t sum_of(const std::int8_t* x, std::size_t n, bool is_signed) {
  const hn::FixedTag<std::uint8_t, 16> d16;
  const hn::FixedTag<std::uint64_t, 2> d2;
  const auto flip = hn::Set(d16, is_signed ? 0x80 : 0);  // signed plus 128 is unsigned
  auto sum = hn::Zero(d2);
  const std::size_t whole = (n + 15) / 16 * 16;
  for (std::size_t k = 0; k < whole; k += 16) {
    const auto bytes = hn::LoadU(d16, reinterpret_cast<const std::uint8_t*>(x) + k);
    sum = hn::Add(sum, hn::SumsOf8(hn::Xor(bytes, flip)));
  }
  const auto total = static_cast<std::uint32_t>(hn::GetLane(hn::SumOfLanes(d2, sum)));
  return is_signed ? total - 128U * static_cast<std::uint32_t>(whole) : total;
}

/// Modulo 2^8; zeros follow.
void add_offset(std::int8_t* x, std::size_t n, int offset) {
  if (offset == 0) return;
  const auto by = hn::Set(db, static_cast<std::uint8_t>(offset));
  auto* bytes = reinterpret_cast<std::uint8_t*>(x);
  for (std::size_t k = 0; k < n; k += hn::MaxLanes(db))
    hn::StoreU(hn::Add(hn::LoadU(db, bytes + k), by), db, bytes + k);
  std::memset(x + n, 0, slack);
}

/// Four 8-bit integers per unit from 4-bit codes, `step` lanes at a time, with the scales of groups and corrections of
/// A. False where a scale is outside the range in which every product of two scales and a group sum is an FP32 value.
template <std::size_t step>
bool pack_nibbles(const PackRequest& r, std::size_t line, std::size_t k0, std::size_t n, const std::uint8_t* codes,
                  const LineTarget& to, ExponentRange& range) {
  const Operand& side = *r.side;
  const bool is_hif4 = side.format->type == DataType::hif4x2;
  const float unit = side.format->type == DataType::e2m1x2 ? 0.5F : 0.25F;
  const bool needs_range = r.method == Method::i8_exact;
  const hn::CappedTag<std::uint8_t, step> d8;
  const hn::Repartition<std::uint64_t, decltype(d8)> d64;
  constexpr std::size_t width = hn::MaxLanes(d8);
  const auto table = hn::LoadDup128(d8, reinterpret_cast<const std::uint8_t*>(r.table));
  const auto low = hn::Set(d8, 0x0F);
  const auto flip = hn::Set(d8, 0x80);
  const auto offset = hn::Set(d8, static_cast<std::uint8_t>(r.offset));
  auto* out = static_cast<std::uint8_t*>(to.units);
  bool good = true;
  for (std::size_t k = 0, g = 0; k < n; ++g) {
    const std::uint32_t word = is_hif4 ? scale_word(side, line, k0 + k) : 0;
    float scale = scale_value(side, line, k0 + k) * unit;
    auto any = hn::Zero(d8);
    auto sum = hn::Zero(d64);
    const std::size_t end = std::min(n, k + r.group);
    std::size_t bytes = 0;
    for (; k < end; k += step, bytes += step) {
      for (std::size_t i = 0; i < step; i += width) {
        auto x = hn::TableLookupBytes(table, hn::And(hn::LoadU(d8, codes + k + i), low));
        if (is_hif4) x = apply_micro_exponents(d8, x, word, (k + i) % hif4_group_lanes / 4);
        any = hn::Or(any, x);
        sum = hn::Add(sum, hn::SumsOf8(hn::Xor(x, flip)));  // signed plus 128 is unsigned
        // After the last lane stand zeros of A, so it does not matter what B has there.
        hn::StoreU(hn::Add(x, offset), d8, out + k + i);
      }
    }
    k = end;
    if (scale == scale && hn::AllTrue(d8, hn::Eq(any, hn::Zero(d8)))) scale = 0;  // the group adds zeros
    if (scale > 0) {
      good = good && scale >= least_scale && scale < most_scale;
      if (needs_range) range.include(floor_log2(scale) - (is_hif4 ? 2 : 0), floor_log2(scale) + 1);
    }
    to.beside->scales[to.per_group(g)] = scale;
    if (!r.is_b) {
      const auto total = static_cast<std::uint32_t>(hn::GetLane(hn::SumOfLanes(d64, sum)));
      const std::uint32_t signed_sum = total - 128U * static_cast<std::uint32_t>(bytes);
      to.beside->sums[to.per_group(g)] =
          static_cast<std::int32_t>(0U - signed_sum * static_cast<std::uint32_t>(r.other_offset));
    }
  }
  return good;
}

/// Four 8-bit integers per unit, with the correction of the chunk.
void pack_i8(const PackRequest& r, std::size_t n, const std::uint8_t* codes, const LineTarget& to) {
  auto* out = static_cast<std::int8_t*>(to.units);
  if (r.table != nullptr) {
    decode_nibbles(r.table, codes, n, out);
  } else {
    std::memcpy(out, codes, n);
  }
  std::memset(out + n, 0, slack);
  add_offset(out, n, r.offset);
  const std::uint32_t sum = r.other_offset == 0 ? 0 : sum_of(out, n, !r.is_b);
  to.beside->sums[to.is_b ? to.index : to.per_group(0)] =
      static_cast<std::int32_t>(0U - sum * static_cast<std::uint32_t>(r.other_offset));
}

/// Two 16-bit integers per unit, with the corrections of their offsets.
void pack_i16(const PackRequest& r, std::size_t n, const std::uint8_t* codes, const LineTarget& to) {
  const Format& f = *r.side->format;
  auto* out = static_cast<std::int16_t*>(to.units);
  std::uint32_t sum = 0;
  for (std::size_t k = 0; k < n; ++k) {
    std::uint32_t word = codes[k];
    if (f.carrier_bits == 16) {
      std::uint16_t wide = 0;
      std::memcpy(&wide, codes + 2 * k, 2);
      word = wide;
    }
    std::int64_t x = static_cast<std::int64_t>(word & low_mask(f.lane_bits));
    if (f.kind == Kind::signed_integer) x = sign_extend(word, f.lane_bits);
    out[k] = static_cast<std::int16_t>(x + r.offset);
    sum += static_cast<std::uint32_t>(std::int32_t{out[k]});
  }
  if (n % 2 != 0) out[n] = 0;
  // (a - p)(b - q) = ab - qa - pb + pq, where a and b are what is packed; the constant goes to A.
  std::uint32_t correction = 0U - sum * static_cast<std::uint32_t>(r.other_offset);
  if (!r.is_b) {
    correction += static_cast<std::uint32_t>(n) * static_cast<std::uint32_t>(r.offset) *
                  static_cast<std::uint32_t>(r.other_offset);
  }
  to.beside->sums[r.is_b ? to.index : to.index * chunk_groups] = static_cast<std::int32_t>(correction);
}

/// Whether the lanes of all lines for one k are neighbours, as in a row-major B, and the units need nothing from other
/// k.
bool lies_across(const PackRequest& r) {
  const LaneView& v = r.side->lanes;
  if (!r.is_b || r.side->scaled() || v.line_stride != 1 || v.lane_bits != r.side->format->lane_bits || v.lane_bits < 8)
    return false;
  switch (r.method) {
    case Method::f32_fma:
    case Method::f32_two_step:
      return !r.products_must_fit;
    case Method::i8_modulo:
      return r.other_offset == 0;
    default:
      return false;
  }
}

/// The panel of such a B: its rows need no transposition.
void pack_across(const PackRequest& r, std::size_t line, std::size_t count, std::size_t k0, std::size_t n,
                 const Panel& to) {
  const LaneView& v = r.side->lanes;
  const std::size_t word = v.lane_bits / 8;
  const auto load_row = [&](std::size_t k, std::uint8_t* row) {
    const std::size_t in_chunk = std::min(k, n - 1);  // any row will do where A has zeros
    std::memcpy(row, v.data + (line + (k0 + in_chunk) * v.lane_stride) * word, count * word);
  };
  alignas(64) std::array<std::uint8_t, 4 * most_lines> rows{};
  if (r.method != Method::i8_modulo) {
    for (std::size_t k = 0; k < n; ++k) {
      load_row(k, rows.data());
      decode_floats(*r.side->format, rows.data(), tile_cols, static_cast<float*>(to.units) + k * tile_cols);
    }
    return;
  }
  const hn::FixedTag<std::uint8_t, 16> d8;
  const hn::FixedTag<std::uint16_t, 8> d16;
  const auto by = hn::Set(d8, static_cast<std::uint8_t>(r.offset));
  auto* units = static_cast<std::uint8_t*>(to.units);
  for (std::size_t k = 0; k < n; k += 4, units += 4 * tile_cols) {
    for (std::size_t i = 0; i < 4; ++i) load_row(k + i, rows.data() + i * most_lines);
    for (std::size_t c = 0; c < tile_cols; c += 16) {
      const auto row = [&](std::size_t i)
                           HWY_ATTR { return hn::Add(hn::LoadU(d8, rows.data() + i * most_lines + c), by); };
      const auto r0 = row(0);
      const auto r1 = row(1);
      const auto r2 = row(2);
      const auto r3 = row(3);
      const auto low01 = hn::BitCast(d16, hn::InterleaveLower(d8, r0, r1));
      const auto low23 = hn::BitCast(d16, hn::InterleaveLower(d8, r2, r3));
      const auto high01 = hn::BitCast(d16, hn::InterleaveUpper(d8, r0, r1));
      const auto high23 = hn::BitCast(d16, hn::InterleaveUpper(d8, r2, r3));
      std::uint8_t* put = units + 4 * c;
      hn::StoreU(hn::BitCast(d8, hn::InterleaveLower(d16, low01, low23)), d8, put);
      hn::StoreU(hn::BitCast(d8, hn::InterleaveUpper(d16, low01, low23)), d8, put + 16);
      if (tile_cols < 16) break;
      hn::StoreU(hn::BitCast(d8, hn::InterleaveLower(d16, high01, high23)), d8, put + 32);
      hn::StoreU(hn::BitCast(d8, hn::InterleaveUpper(d16, high01, high23)), d8, put + 48);
    }
  }
  std::memset(to.beside.sums, 0, tile_cols * sizeof(std::int32_t));
}

template <typename Unit>
void pack_panel(const PackRequest& r, std::size_t width, std::size_t line, std::size_t count, std::size_t k0,
                std::size_t n, const Panel& to, std::uint8_t* bad, ExponentRange& range) {
  if constexpr (sizeof(Unit) == 4) {
    if (lies_across(r)) return pack_across(r, line, count, k0, n, to);
  }
  static thread_local Codes codes;
  load_lines(*r.side, line, count, k0, n, codes);
  alignas(64) static thread_local std::array<Unit, most_lines*(chunk_units + slack)> lines;
  constexpr std::size_t stride = chunk_units + slack;
  const std::size_t per_unit = lanes_per_unit(r.method);
  const std::size_t units = (n + per_unit - 1) / per_unit;
  for (std::size_t i = 0; i < width; ++i) {
    // Whole vectors reach beyond the end of a line, so it is decoded aside.
    Unit* here = lines.data() + (r.is_b ? i : 0) * stride;
    const LineTarget target{here, i, width, &to.beside, r.is_b};
    if (i >= count) {
      std::memset(here, 0, units * sizeof(Unit));
      for (std::size_t g = 0; g < chunk_groups; ++g) {
        if (to.beside.scales != nullptr) to.beside.scales[target.per_group(g)] = 0;
        if (to.beside.bounds != nullptr) to.beside.bounds[target.per_group(g)] = 0;
        if (to.beside.sums != nullptr && !r.is_b) to.beside.sums[target.per_group(g)] = 0;
      }
      if (to.beside.sums != nullptr && r.is_b) to.beside.sums[i] = 0;
    } else {
      bool good = true;
      const std::uint8_t* from = codes.line(i);
      switch (r.method) {
        case Method::f32_fma:
        case Method::f32_two_step:
          good = pack_f32(r, line + i, k0, n, from, target);
          break;
        case Method::f64_group:
        case Method::f64_exact:
          pack_f64(r, line + i, k0, n, from, target, range);
          break;
        case Method::i8_group:
        case Method::i8_exact:
          good = r.group % 32 == 0 ? pack_nibbles<32>(r, line + i, k0, n, from, target, range)
                                   : pack_nibbles<16>(r, line + i, k0, n, from, target, range);
          break;
        case Method::i8_modulo:
          pack_i8(r, n, from, target);
          break;
        case Method::i16_modulo:
          pack_i16(r, n, from, target);
          break;
      }
      if (!good) bad[i] = 1;
    }
    if (!r.is_b) std::memcpy(static_cast<Unit*>(to.units) + i * line_units, here, units * sizeof(Unit));
  }
  if (r.is_b) transpose_units(lines.data(), stride, width, units, static_cast<Unit*>(to.units));
}

template <std::size_t width>
void pack32(const PackRequest& r, std::size_t line, std::size_t count, std::size_t k0, std::size_t n, const Panel& to,
            std::uint8_t* bad, ExponentRange& range) {
  pack_panel<std::uint32_t>(r, r.is_b ? tile_cols : width, line, count, k0, n, to, bad, range);
}
void pack64(const PackRequest& r, std::size_t line, std::size_t count, std::size_t k0, std::size_t n, const Panel& to,
            std::uint8_t* bad, ExponentRange& range) {
  pack_panel<double>(r, r.is_b ? tile_cols64 : f64_rows, line, count, k0, n, to, bad, range);
}

// ---- Tiles --------------------------------------------------------------------------------------------------------

/// acc <- RNE32(acc + a * b) for k increasing, with one rounding (fused) or two.
template <bool fused>
void multiply_f32(const Tile& tile) {
  const auto* a = static_cast<const float*>(tile.a);
  const auto* b = static_cast<const float*>(tile.b);
  auto* out = reinterpret_cast<float*>(tile.out);
  const std::size_t stride = tile.out_stride;
  FloatVec c0[f32_rows];
  FloatVec c1[f32_rows];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < f32_rows; ++r) {
    c0[r] = hn::LoadU(df, out + r * stride);
    c1[r] = hn::LoadU(df, out + r * stride + lanes);
  }
  for (std::size_t k = 0; k < tile.units; ++k) {
    const FloatVec b0 = hn::LoadU(df, b);
    const FloatVec b1 = hn::LoadU(df, b + lanes);
    b += tile_cols;
#pragma GCC unroll 16
    for (std::size_t r = 0; r < f32_rows; ++r) {
      const FloatVec x = hn::Set(df, a[r * line_units + k]);
      if constexpr (fused) {
        c0[r] = hn::MulAdd(x, b0, c0[r]);
        c1[r] = hn::MulAdd(x, b1, c1[r]);
      } else {
        c0[r] = hn::Add(hn::Mul(x, b0), c0[r]);
        c1[r] = hn::Add(hn::Mul(x, b1), c1[r]);
      }
    }
  }
#pragma GCC unroll 16
  for (std::size_t r = 0; r < f32_rows; ++r) {
    hn::StoreU(c0[r], df, out + r * stride);
    hn::StoreU(c1[r], df, out + r * stride + lanes);
  }
}

/// acc + s rounded to odd in binary64, which then rounds to FP32 as the exact sum does: 53 bits are more than twice
/// FP32's 24 and two.
HWY_INLINE DoubleVec add_to_odd(DoubleVec acc, DoubleVec s) {
  const hn::RebindToUnsigned<DoubleTag> du;
  const hn::RebindToSigned<DoubleTag> dl;
#if HWY_TARGET <= HWY_AVX3
  // Rounded down and rounded up: neighbours where the sum is inexact, and one of two neighbours is odd.
  const DoubleVec down{_mm512_add_round_pd(acc.raw, s.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
  const DoubleVec up{_mm512_add_round_pd(acc.raw, s.raw, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC)};
  const auto odd = hn::TestBit(hn::BitCast(du, down), hn::Set(du, 1));
  (void)dl;
  return hn::IfThenElse(hn::RebindMask(dd, odd), down, up);
#else
  // Knuth's exact error of the sum; where it is not 0 and the sum is even, one step towards it is odd.
  const DoubleVec sum = hn::Add(acc, s);
  const DoubleVec part = hn::Sub(sum, acc);
  const DoubleVec error = hn::Add(hn::Sub(acc, hn::Sub(sum, part)), hn::Sub(s, part));
  const auto zero = hn::Zero(dd);
  const auto inexact = hn::Or(hn::Lt(error, zero), hn::Gt(error, zero));  // not for NaN, which infinities give
  const auto bits = hn::BitCast(dl, sum);
  const auto even = hn::Eq(hn::And(bits, hn::Set(dl, 1)), hn::Zero(dl));
  const auto away = hn::Xor(hn::Lt(error, zero), hn::Lt(sum, zero));
  const auto step = hn::IfThenElse(hn::RebindMask(dl, away), hn::Set(dl, -1), hn::Set(dl, 1));
  const auto moved = hn::Add(bits, step);
  const auto use = hn::And(hn::RebindMask(dl, inexact), even);
  (void)du;
  return hn::BitCast(dd, hn::IfThenElse(use, moved, bits));
#endif
}

/// out <- RNE32(out + s) for one vector of outputs.
HWY_INLINE void add_rounded(float* out, DoubleVec s) {
  const DoubleVec acc = hn::PromoteTo(dd, hn::LoadU(dh, out));
  hn::StoreU(hn::DemoteTo(dh, add_to_odd(acc, s)), dh, out);
}

/// The same where s may carry rounding errors of its own, up to 2^-52 * (n + 2) * n * bound in all: the step is taken
/// where every value within the error rounds alike, and exactly, lane by lane, elsewhere.
HWY_INLINE void add_checked(float* out, DoubleVec s, double a_bound, const double* b_bounds, const double* a,
                            const double* b, std::size_t n) {
  const auto before = hn::LoadU(dh, out);
  const DoubleVec acc = hn::PromoteTo(dd, before);
  const DoubleVec sum = hn::Add(acc, s);
  const auto count = static_cast<double>(n);
  const DoubleVec size = hn::MulAdd(hn::Set(dd, a_bound * count), hn::LoadU(dd, b_bounds), hn::Abs(acc));
  const DoubleVec error = hn::Mul(size, hn::Set(dd, (count + 2) * 0x1p-52));
  const auto low = hn::DemoteTo(dh, hn::Sub(sum, error));
  const auto high = hn::DemoteTo(dh, hn::Add(sum, error));
  hn::StoreU(low, dh, out);
  // A zero has a sign to find out, and a difference of infinities is not less than anything.
  const auto sure = hn::And(hn::Eq(low, high), hn::And(hn::Gt(hn::Abs(low), hn::Zero(dh)), hn::IsFinite(low)));
  if (HWY_LIKELY(hn::AllTrue(dh, sure))) return;
  alignas(64) std::array<float, lanes64> acc_lanes;
  alignas(64) std::array<float, lanes64> sure_lanes;
  hn::StoreU(before, dh, acc_lanes.data());
  hn::StoreU(hn::IfThenElseZero(sure, hn::Set(dh, 1.0F)), dh, sure_lanes.data());
  for (std::size_t i = 0; i < lanes64; ++i) {
    if (sure_lanes[i] != 0) continue;
    out[i] = float_of(add_group_exactly(std::bit_cast<std::uint32_t>(acc_lanes[i]), a, b + i, tile_cols64, n));
  }
}

/// x + y and what rounding it has lost, exactly (Knuth).
struct TwoSum {
  DoubleVec sum;
  DoubleVec rest;
};
HWY_INLINE TwoSum two_sum(DoubleVec x, DoubleVec y) {
  const DoubleVec sum = hn::Add(x, y);
  const DoubleVec part = hn::Sub(sum, x);
  return {sum, hn::Add(hn::Sub(x, hn::Sub(sum, part)), hn::Sub(y, part))};
}

/// Sums in two binary64 numbers: high + low is the sum of all products, but for what rounding low has lost, and lost is
/// the sum of the magnitudes of that. Some rows and one vector of columns at a time: an output takes three registers.
void multiply_f64_wide(const Tile& tile) {
  constexpr std::size_t rows = f64_rows / 3;
  constexpr std::size_t part = f64_rows * tile_cols64;
  for (std::size_t first = 0; first < f64_rows; first += rows) {
    const auto* a = static_cast<const double*>(tile.a) + first * line_units;
    for (std::size_t c = 0; c < tile_cols64; c += lanes64) {
      const double* b = static_cast<const double*>(tile.b) + c;
      double* exact = tile.exact + first * tile_cols64 + c;
      DoubleVec high[rows];
      DoubleVec low[rows];
      DoubleVec lost[rows];
#pragma GCC unroll 16
      for (std::size_t r = 0; r < rows; ++r) {
        high[r] = hn::LoadU(dd, exact + r * tile_cols64);
        low[r] = hn::LoadU(dd, exact + part + r * tile_cols64);
        lost[r] = hn::LoadU(dd, exact + 2 * part + r * tile_cols64);
      }
      for (std::size_t k = 0; k < tile.units; ++k) {
        const DoubleVec y = hn::LoadU(dd, b + k * tile_cols64);
#pragma GCC unroll 16
        for (std::size_t r = 0; r < rows; ++r) {
          const DoubleVec x = hn::Mul(hn::Set(dd, a[r * line_units + k]), y);  // exact: 24 by 24 bits
          const TwoSum upper = two_sum(high[r], x);
          const TwoSum lower = two_sum(low[r], upper.rest);
          high[r] = upper.sum;
          low[r] = lower.sum;
          lost[r] = hn::Add(lost[r], hn::Abs(lower.rest));
        }
      }
#pragma GCC unroll 16
      for (std::size_t r = 0; r < rows; ++r) {
        hn::StoreU(high[r], dd, exact + r * tile_cols64);
        hn::StoreU(low[r], dd, exact + part + r * tile_cols64);
        hn::StoreU(lost[r], dd, exact + 2 * part + r * tile_cols64);
      }
    }
  }
}

/// out <- RNE32(out + high + low) for one vector; false where what low has lost leaves the rounding open, or the sign
/// of a zero.
bool add_wide(float* out, const double* high, const double* low, const double* lost) {
  const TwoSum upper = two_sum(hn::PromoteTo(dd, hn::LoadU(dh, out)), hn::LoadU(dd, high));
  const TwoSum lower = two_sum(upper.rest, hn::LoadU(dd, low));
  // The sum of the losses has itself rounded, by less than 2^-20 of it for any K that fits memory. Adding an error to
  // the sum rounds as well, and must not round it away: one more unit in the last place of the sum sees to that.
  const DoubleVec lost_in_all = hn::Mul(hn::Add(hn::LoadU(dd, lost), hn::Abs(lower.rest)), hn::Set(dd, 1 + 0x1p-20));
  const DoubleVec padded = hn::Add(lost_in_all, hn::Mul(hn::Abs(lower.sum), hn::Set(dd, 0x1p-52)));
  const DoubleVec error = hn::IfThenElseZero(hn::Gt(lost_in_all, hn::Zero(dd)), padded);
  alignas(64) std::array<double, lanes64> errors;
  alignas(64) std::array<float, lanes64> plain;
  alignas(64) std::array<float, lanes64> least;
  alignas(64) std::array<float, lanes64> most;
  hn::StoreU(error, dd, errors.data());
  hn::StoreU(hn::DemoteTo(dh, upper.sum), dh, plain.data());
  hn::StoreU(hn::DemoteTo(dh, add_to_odd(upper.sum, hn::Sub(lower.sum, error))), dh, least.data());
  hn::StoreU(hn::DemoteTo(dh, add_to_odd(upper.sum, hn::Add(lower.sum, error))), dh, most.data());
  bool settled = true;
  for (std::size_t i = 0; i < lanes64; ++i) {
    const auto before = std::bit_cast<std::uint32_t>(out[i]);
    if (!std::isfinite(out[i]) || !std::isfinite(high[i])) {  // products of finite lanes never overflow binary64
      out[i] = plain[i];
      continue;
    }
    out[i] = least[i];
    const bool zero_is_sure = errors[i] == 0 && before != 0x80000000;
    const bool same = std::bit_cast<std::uint32_t>(least[i]) == std::bit_cast<std::uint32_t>(most[i]);
    settled = settled && same && (least[i] != 0 || zero_is_sure);
  }
  return settled;
}

template <bool whole_sum>
void multiply_f64(const Tile& tile) {
  const auto* a = static_cast<const double*>(tile.a);
  const auto* b = static_cast<const double*>(tile.b);
  if (whole_sum && !tile.sums_are_exact) return multiply_f64_wide(tile);
  for (std::size_t k0 = 0, g = 0; k0 < tile.units; k0 += tile.group_units, ++g) {
    const std::size_t end = std::min(tile.units, k0 + tile.group_units);
    const double* first = b;
    DoubleVec c0[f64_rows];
    DoubleVec c1[f64_rows];
#pragma GCC unroll 16
    for (std::size_t r = 0; r < f64_rows; ++r) {
      if constexpr (whole_sum) {
        c0[r] = hn::LoadU(dd, tile.exact + r * tile_cols64);
        c1[r] = hn::LoadU(dd, tile.exact + r * tile_cols64 + lanes64);
      } else {
        c0[r] = c1[r] = hn::Set(dd, -0.0);  // adds nothing, not even the sign of a zero
      }
    }
    for (std::size_t k = k0; k < end; ++k) {
      const DoubleVec b0 = hn::LoadU(dd, b);
      const DoubleVec b1 = hn::LoadU(dd, b + lanes64);
      b += tile_cols64;
#pragma GCC unroll 16
      for (std::size_t r = 0; r < f64_rows; ++r) {
        const DoubleVec x = hn::Set(dd, a[r * line_units + k]);
        c0[r] = hn::MulAdd(x, b0, c0[r]);
        c1[r] = hn::MulAdd(x, b1, c1[r]);
      }
    }
    if constexpr (whole_sum) {
#pragma GCC unroll 16
      for (std::size_t r = 0; r < f64_rows; ++r) {
        hn::StoreU(c0[r], dd, tile.exact + r * tile_cols64);
        hn::StoreU(c1[r], dd, tile.exact + r * tile_cols64 + lanes64);
      }
    } else if (tile.sums_are_exact) {
#pragma GCC unroll 16
      for (std::size_t r = 0; r < f64_rows; ++r) {
        auto* out = reinterpret_cast<float*>(tile.out + r * tile.out_stride);
        add_rounded(out, c0[r]);
        add_rounded(out + lanes64, c1[r]);
      }
    } else {
      const double* b_bounds = tile.b_beside.bounds + g * tile_cols64;
#pragma GCC unroll 16
      for (std::size_t r = 0; r < f64_rows; ++r) {
        auto* out = reinterpret_cast<float*>(tile.out + r * tile.out_stride);
        const double a_bound = tile.a_beside.bounds[r * chunk_groups + g];
        const double* line = a + r * line_units + k0;
        add_checked(out, c0[r], a_bound, b_bounds, line, first, end - k0);
        add_checked(out + lanes64, c1[r], a_bound, b_bounds + lanes64, line, first + lanes64, end - k0);
      }
    }
  }
}

bool finish_f64(const Tile& tile) {
  constexpr std::size_t part = f64_rows * tile_cols64;
  bool settled = true;
  for (std::size_t r = 0; r < f64_rows; ++r) {
    for (std::size_t c = 0; c < tile_cols64; c += lanes64) {
      float* out = reinterpret_cast<float*>(tile.out + r * tile.out_stride) + c;
      const double* exact = tile.exact + r * tile_cols64 + c;
      const DoubleVec sum = hn::LoadU(dd, exact);
      if (tile.sums_are_exact) {
        add_rounded(out, sum);
      } else {
        const bool good = add_wide(out, exact, exact + part, exact + 2 * part);
        settled = settled && good;
      }
    }
  }
  return settled;
}

/// acc + the dot product of four unsigned and four signed bytes in each 32-bit lane, modulo 2^32. `small`: no two
/// neighbouring products add up to 2^15 or more.
template <bool small>
HWY_INLINE IntVec add_dot4(IntVec acc, IntVec u, IntVec s) {
#if HWY_TARGET == HWY_AVX3_DL && HWY_ARCH_X86_64
  // The target includes AVX512_VNNI, but its list of compiler options does not.
  asm("vpdpbusd %2, %1, %0" : "+v"(acc.raw) : "v"(u.raw), "v"(s.raw));
  return acc;
#else
#if HWY_TARGET == HWY_AVX3
  if constexpr (small) {
    const auto pairs = _mm512_maddubs_epi16(u.raw, s.raw);
    return hn::Add(acc, IntVec{_mm512_madd_epi16(pairs, _mm512_set1_epi16(1))});
  }
#elif HWY_TARGET == HWY_AVX2
  if constexpr (small) {
    const auto pairs = _mm256_maddubs_epi16(u.raw, s.raw);
    return hn::Add(acc, IntVec{_mm256_madd_epi16(pairs, _mm256_set1_epi16(1))});
  }
#endif
  const hn::Repartition<std::int16_t, IntTag> d16;
  const hn::Repartition<std::uint16_t, IntTag> du16;
  const auto u_even = hn::BitCast(d16, hn::And(hn::BitCast(du16, u), hn::Set(du16, 0xFF)));
  const auto u_odd = hn::BitCast(d16, hn::ShiftRight<8>(hn::BitCast(du16, u)));
  const auto s_even = hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(d16, s)));
  const auto s_odd = hn::ShiftRight<8>(hn::BitCast(d16, s));
  IntVec rest = hn::Zero(di);
  acc = hn::ReorderWidenMulAccumulate(di, u_even, s_even, acc, rest);
  acc = hn::ReorderWidenMulAccumulate(di, u_odd, s_odd, acc, rest);
  return hn::Add(acc, rest);
#endif
}

/// acc + the dot product of two 16-bit integers in each 32-bit lane, modulo 2^32.
HWY_INLINE IntVec add_dot2(IntVec acc, IntVec x, IntVec y) {
  const hn::Repartition<std::int16_t, IntTag> d16;
  IntVec rest = hn::Zero(di);
  acc = hn::ReorderWidenMulAccumulate(di, hn::BitCast(d16, x), hn::BitCast(d16, y), acc, rest);
  return hn::Add(acc, rest);
}

enum class Finish : std::uint8_t { fp32_step, exact_sum, modulo };

/// Integer sums of each group; then one FP32 step, an addition to the exact sum, or one to the integer accumulator.
template <Finish finish, bool halves>
void multiply_int(const Tile& tile) {
  const auto* a = static_cast<const std::int32_t*>(tile.a);
  const auto* b = static_cast<const std::int32_t*>(tile.b);
  for (std::size_t k0 = 0, g = 0; k0 < tile.units; k0 += tile.group_units, ++g) {
    const std::size_t end = std::min(tile.units, k0 + tile.group_units);
    IntVec c0[int_rows];
    IntVec c1[int_rows];
#pragma GCC unroll 16
    for (std::size_t r = 0; r < int_rows; ++r) c0[r] = c1[r] = hn::Set(di, tile.a_beside.sums[r * chunk_groups + g]);
    for (std::size_t k = k0; k < end; ++k) {
      const IntVec b0 = hn::LoadU(di, b);
      const IntVec b1 = hn::LoadU(di, b + lanes);
      b += tile_cols;
#pragma GCC unroll 16
      for (std::size_t r = 0; r < int_rows; ++r) {
        const IntVec x = hn::Set(di, a[r * line_units + k]);
        if constexpr (halves) {
          c0[r] = add_dot2(c0[r], b0, x);
          c1[r] = add_dot2(c1[r], b1, x);
        } else {
          c0[r] = add_dot4<finish != Finish::modulo>(c0[r], b0, x);
          c1[r] = add_dot4<finish != Finish::modulo>(c1[r], b1, x);
        }
      }
    }
    if constexpr (finish == Finish::modulo) {
      const IntVec s0 = hn::LoadU(di, tile.b_beside.sums);
      const IntVec s1 = hn::LoadU(di, tile.b_beside.sums + lanes);
#pragma GCC unroll 16
      for (std::size_t r = 0; r < int_rows; ++r) {
        auto* out = reinterpret_cast<std::int32_t*>(tile.out + r * tile.out_stride);
        hn::StoreU(hn::Add(hn::LoadU(di, out), hn::Add(c0[r], s0)), di, out);
        hn::StoreU(hn::Add(hn::LoadU(di, out + lanes), hn::Add(c1[r], s1)), di, out + lanes);
      }
    } else {
      const FloatVec s0 = hn::LoadU(df, tile.b_beside.scales + g * tile_cols);
      const FloatVec s1 = hn::LoadU(df, tile.b_beside.scales + g * tile_cols + lanes);
#pragma GCC unroll 16
      for (std::size_t r = 0; r < int_rows; ++r) {
        const FloatVec scale = hn::Set(df, tile.a_beside.scales[r * chunk_groups + g]);
        const FloatVec x0 = hn::ConvertTo(df, c0[r]);
        const FloatVec x1 = hn::ConvertTo(df, c1[r]);
        if constexpr (finish == Finish::fp32_step) {
          // The product of the sum and both scales is exact, so fused or not, this rounds once.
          auto* out = reinterpret_cast<float*>(tile.out + r * tile.out_stride);
          hn::StoreU(hn::MulAdd(x0, hn::Mul(scale, s0), hn::LoadU(df, out)), df, out);
          hn::StoreU(hn::MulAdd(x1, hn::Mul(scale, s1), hn::LoadU(df, out + lanes)), df, out + lanes);
        } else {
          double* exact = tile.exact + r * tile_cols;
          const FloatVec y0 = hn::Mul(x0, hn::Mul(scale, s0));
          const FloatVec y1 = hn::Mul(x1, hn::Mul(scale, s1));
          const auto add = [exact](std::size_t at, auto half) HWY_ATTR {
            const DoubleVec sum = hn::Add(hn::LoadU(dd, exact + at), hn::PromoteTo(dd, half));
            hn::StoreU(sum, dd, exact + at);
          };
          add(0, hn::LowerHalf(dh, y0));
          add(lanes64, hn::UpperHalf(dh, y0));
          add(lanes, hn::LowerHalf(dh, y1));
          add(lanes + lanes64, hn::UpperHalf(dh, y1));
        }
      }
    }
  }
}

bool finish_i8(const Tile& tile) {
  for (std::size_t r = 0; r < int_rows; ++r) {
    auto* out = reinterpret_cast<float*>(tile.out + r * tile.out_stride);
    for (std::size_t c = 0; c < tile_cols; c += lanes64) {
      add_rounded(out + c, hn::LoadU(dd, tile.exact + r * tile_cols + c));
    }
  }
  return true;
}

void add_bias_f32(std::uint32_t* row, const std::uint32_t* bias, std::size_t n) {
  const auto nan = hn::BitCast(df, hn::Set(dw, product_nan));
  const auto step = [&](float* x, const float* y) HWY_ATTR {
    auto sum = hn::LoadU(df, x);
    if (y != nullptr) sum = hn::Add(sum, hn::LoadU(df, y));
    hn::StoreU(hn::IfThenElse(hn::IsNaN(sum), nan, sum), df, x);
  };
  auto* x = reinterpret_cast<float*>(row);
  const auto* y = reinterpret_cast<const float*>(bias);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) step(x + i, y == nullptr ? nullptr : y + i);
  if (i == n) return;
  alignas(64) std::array<float, lanes> rest{};
  alignas(64) std::array<float, lanes> rest_bias{};
  std::memcpy(rest.data(), x + i, (n - i) * sizeof(float));
  if (y != nullptr) std::memcpy(rest_bias.data(), y + i, (n - i) * sizeof(float));
  step(rest.data(), y == nullptr ? nullptr : rest_bias.data());
  std::memcpy(x + i, rest.data(), (n - i) * sizeof(float));
}

void add_bias_int(std::uint32_t* row, const std::uint32_t* bias, std::size_t n) {
  if (bias == nullptr) return;
  for (std::size_t i = 0; i < n; ++i) row[i] += bias[i];
}

TileKernels tile_kernels_here(Method method) {
  constexpr bool fused = HWY_NATIVE_FMA != 0;
  switch (method) {
    case Method::f32_fma:
      return {f32_rows, tile_cols, pack32<f32_rows>, multiply_f32<true>, nullptr, add_bias_f32, fused};
    case Method::f32_two_step:
      return {f32_rows, tile_cols, pack32<f32_rows>, multiply_f32<false>, nullptr, add_bias_f32, fused};
    case Method::f64_group:
      return {f64_rows, tile_cols64, pack64, multiply_f64<false>, nullptr, add_bias_f32, fused};
    case Method::f64_exact:
      return {f64_rows, tile_cols64, pack64, multiply_f64<true>, finish_f64, add_bias_f32, fused};
    case Method::i8_group:
      return {int_rows,     tile_cols, pack32<int_rows>, multiply_int<Finish::fp32_step, false>, nullptr,
              add_bias_f32, fused};
    case Method::i8_exact:
      return {int_rows,     tile_cols, pack32<int_rows>, multiply_int<Finish::exact_sum, false>, finish_i8,
              add_bias_f32, fused};
    case Method::i8_modulo:
      return {int_rows, tile_cols, pack32<int_rows>, multiply_int<Finish::modulo, false>, nullptr, add_bias_int, fused};
    case Method::i16_modulo:
      return {int_rows, tile_cols, pack32<int_rows>, multiply_int<Finish::modulo, true>, nullptr, add_bias_int, fused};
  }
  return {};
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace bitcube::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bitcube::kernels {

HWY_EXPORT(tile_kernels_here);

TileKernels tile_kernels(Method method) {
  return HWY_DYNAMIC_DISPATCH(tile_kernels_here)(method);
}

}  // namespace bitcube::kernels
#endif
