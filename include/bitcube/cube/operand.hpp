// The two sides of a product: lanes, scales, and the exact value of each scaled lane (numerics 8, 9.2).
#pragma once

#include <cstdint>
#include <cstring>

#include "bitcube/numeric/decode.hpp"
#include "bitcube/quantize/hif4.hpp"
#include "bitcube/quantize/mx.hpp"

namespace bitcube {

/// Little-endian words in memory that a caller owns, addressed as lines of lanes. Lane widths: 4 (two per byte, even
/// lane in the low nibble), 8, 16, 32 or 64 bits. Strides count lanes.
struct LaneView {
  const std::uint8_t* data = nullptr;
  unsigned lane_bits = 0;
  std::size_t line_stride = 0;
  std::size_t lane_stride = 1;

  uint64 operator()(std::size_t line, std::size_t lane) const noexcept {
    const std::size_t index = line * line_stride + lane * lane_stride;
    if (lane_bits == 4) return (data[index / 2] >> (4 * (index % 2))) & 0xFU;
    uint64 word = 0;
    const std::size_t bytes = lane_bits / 8;
    std::memcpy(&word, data + index * bytes, bytes);
    return word;
  }
};

/// One side of a product. A side has `lines` lines of `k` lanes each: the rows of A, the columns of B.
struct Operand {
  const Format* format = nullptr;
  std::size_t lines = 0;
  std::size_t k = 0;
  LaneView lanes;
  /// One scale per line and group of scale_group(*format) lanes: an E8M0 byte, or the U32 word of HiF4 (numerics 8.1).
  LaneView scales;

  bool scaled() const noexcept { return scales.data != nullptr; }
};

/// K lanes that share one scale (numerics 8.3).
constexpr std::size_t scale_group(const Format& f) noexcept {
  return f.type == DataType::hif4x2 ? hif4_group_lanes : mx_group_lanes;
}

/// A scaled lane as the product sees it: exact, with at most 24 significant bits. 8 bytes.
struct Term {
  enum class Kind : std::uint8_t { finite, infinite, nan };
  std::uint32_t significand = 0;
  std::int16_t exponent = 0;
  Kind kind = Kind::finite;
  bool negative = false;
};

/// The exact value of a lane without a scale. FP64 and 64-bit integers are no operands and not representable here.
constexpr Term term_of(const Format& f, uint64 word) noexcept {
  const Value v = decode(f, word);
  if (v.is_infinite()) return {.kind = Term::Kind::infinite, .negative = v.real.negative};
  if (!v.is_finite()) return {.kind = Term::Kind::nan};
  return {static_cast<std::uint32_t>(v.real.significand), static_cast<std::int16_t>(v.real.exponent),
          Term::Kind::finite, v.real.negative};
}

/// term * 2^(E8M0 - 127); E8M0 FF is NaN (numerics 8.2).
constexpr Term scale_e8m0(Term term, uint64 code) noexcept {
  if ((code & 0xFF) == 0xFF) return {.kind = Term::Kind::nan};
  term.exponent = static_cast<std::int16_t>(term.exponent + static_cast<int>(code & 0xFF) - 127);
  return term;
}

/// Lane q (0..63) of a HiF4 group: term * E6M2 * 2^(E1_8[q/8] + E1_16[q/4]); E6M2 FF is NaN (numerics 8.1).
constexpr Term scale_hif4(Term term, uint64 word, std::size_t q) noexcept {
  const Value scale = decode(e6m2, word);
  if (scale.is_nan()) return {.kind = Term::Kind::nan};
  const int micro = hif4_micro_exponent(static_cast<std::uint32_t>(word), q);
  term.significand *= static_cast<std::uint32_t>(scale.real.significand);
  term.exponent = static_cast<std::int16_t>(term.exponent + scale.real.exponent + micro);
  return term;
}

/// Lane k of a line with its scale applied.
inline Term term_at(const Operand& side, std::size_t line, std::size_t k) noexcept {
  const Term term = term_of(*side.format, side.lanes(line, k));
  if (!side.scaled()) return term;
  const std::size_t group = scale_group(*side.format);
  const uint64 scale = side.scales(line, k / group);
  return side.format->type == DataType::hif4x2 ? scale_hif4(term, scale, k % group) : scale_e8m0(term, scale);
}

}  // namespace bitcube
