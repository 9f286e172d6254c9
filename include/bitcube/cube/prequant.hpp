// The PreQuant modes and the activation modes of B.FPATR, as data (numerics 5.3, ADR 0085 decision 179).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "bitcube/numeric/carrier.hpp"
#include "bitcube/numeric/format.hpp"
#include "bitcube/numeric/rounding.hpp"

namespace bitcube {

enum class RoundingRule : std::uint8_t {
  programmable,  // B.DATR.RMode, 0 asks for RNE
  fixed,         // the mode's own; a non-zero RMode is illegal
};

struct PreQuantMode {
  std::uint8_t code;
  std::string_view name;
  DataType accumulator;  // none: FP32, S32 or U32
  DataType destination;  // none: the accumulator's type
  CarrierKind carrier;
  bool per_column;  // the carrier comes from the 1 x N parameter Tile instead of B.IOR
  std::uint8_t offset_bits;
  RoundingRule rounding_rule;
  Rounding rounding;  // the fixed mode, or the default
  bool saturation_allowed;
};

namespace detail {
constexpr PreQuantMode plain(int code, std::string_view name, DataType acc, DataType dst, bool sat) {
  return {static_cast<std::uint8_t>(code),
          name,
          acc,
          dst,
          CarrierKind::none,
          false,
          0,
          RoundingRule::fixed,
          Rounding::rne,
          sat};
}
constexpr PreQuantMode scaled(int code, std::string_view name, DataType acc, DataType dst, bool per_column,
                              int offset_bits, RoundingRule rule = RoundingRule::programmable,
                              Rounding rounding = Rounding::rne) {
  return {static_cast<std::uint8_t>(code),        name, acc,      dst, CarrierKind::scale, per_column,
          static_cast<std::uint8_t>(offset_bits), rule, rounding, true};
}
constexpr PreQuantMode shifted(int code, std::string_view name, bool per_column) {
  return {static_cast<std::uint8_t>(code),
          name,
          DataType::s32,
          DataType::s16,
          CarrierKind::shift,
          per_column,
          0,
          RoundingRule::fixed,
          Rounding::rtm,
          false};
}
}  // namespace detail

/// The 27 assigned codes; every other 6-bit value is reserved.
inline constexpr std::array prequant_modes{
    detail::plain(0, "NoQuant", DataType::none, DataType::none, false),
    detail::plain(1, "F322F16", DataType::fp32, DataType::fp16, true),
    detail::scaled(2, "VREQ8", DataType::s32, DataType::s8, true, 9),
    detail::scaled(3, "REQ8", DataType::s32, DataType::s8, false, 9),
    detail::scaled(4, "VDEQF16", DataType::s32, DataType::fp16, true, 0),
    detail::scaled(5, "DEQF16", DataType::s32, DataType::fp16, false, 0),
    detail::shifted(12, "VSHIFTS322S16", true),
    detail::shifted(13, "SHIFTS322S16", false),
    detail::plain(16, "F322BF16", DataType::fp32, DataType::bf16, true),
    detail::scaled(17, "REQ4", DataType::s32, DataType::s4x2, false, 5),
    detail::scaled(18, "VREQ4", DataType::s32, DataType::s4x2, true, 5),
    detail::scaled(19, "DEQS16", DataType::s32, DataType::s16, false, 17),
    detail::scaled(20, "VDEQS16", DataType::s32, DataType::s16, true, 17),
    detail::scaled(23, "VQF322B8_PRE", DataType::fp32, DataType::s8, true, 9),
    detail::scaled(24, "QF322B8_PRE", DataType::fp32, DataType::s8, false, 9),
    detail::scaled(25, "QF322HIF8_PRE", DataType::fp32, DataType::hif8, false, 0, RoundingRule::fixed, Rounding::rhb),
    detail::scaled(26, "QF322FP8_PRE", DataType::fp32, DataType::e4m3, false, 0, RoundingRule::fixed),
    detail::scaled(27, "QF322F32_PRE", DataType::fp32, DataType::fp32, false, 0),
    detail::scaled(28, "VQF322HIF8_PRE", DataType::fp32, DataType::hif8, true, 0, RoundingRule::fixed, Rounding::rhb),
    detail::scaled(32, "QF322F16_PRE", DataType::fp32, DataType::fp16, false, 0, RoundingRule::fixed),
    detail::scaled(33, "VQF322F16_PRE", DataType::fp32, DataType::fp16, true, 0, RoundingRule::fixed),
    detail::scaled(34, "QF322BF16_PRE", DataType::fp32, DataType::bf16, false, 0, RoundingRule::fixed),
    detail::scaled(35, "QS322BF16_PRE", DataType::s32, DataType::bf16, false, 0),
    detail::scaled(36, "VQF322BF16_PRE", DataType::fp32, DataType::bf16, true, 0, RoundingRule::fixed),
    detail::scaled(37, "VQF322FP8_PRE", DataType::fp32, DataType::e4m3, true, 0, RoundingRule::fixed),
    detail::scaled(38, "VQF322F32_PRE", DataType::fp32, DataType::fp32, true, 0),
    detail::scaled(39, "VQS322BF16_PRE", DataType::s32, DataType::bf16, true, 0),
};
inline constexpr const PreQuantMode& no_quant = prequant_modes[0];

/// The mode of this code, or nullptr where it is reserved.
constexpr const PreQuantMode* find_prequant(unsigned code) noexcept {
  for (const PreQuantMode& m : prequant_modes) {
    if (m.code == code) return &m;
  }
  return nullptr;
}
/// The mode of this name in any case, or nullptr.
constexpr const PreQuantMode* find_prequant(std::string_view name) noexcept {
  for (const PreQuantMode& m : prequant_modes) {
    if (equal_ignoring_case(m.name, name)) return &m;
  }
  return nullptr;
}

/// B.FPATR.ReluMode; 4 to 7 are reserved.
enum class Relu : std::uint8_t {
  none = 0,
  relu = 1,        // negative path: multiplier 0
  scalar = 2,      // negative path: one FP19 alpha (LReLU, PReLU)
  per_column = 3,  // negative path: an FP19 alpha per column (vector PReLU)
};

}  // namespace bitcube
