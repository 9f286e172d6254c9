// FP16 words as words that the kernels read: plain integer arithmetic, which compilers turn into vectors themselves.
#pragma once

#include <bit>
#include <cstdint>

namespace bitcube::kernels {

/// The FP32 word of an FP16 word; equals convert() up to the fraction of a NaN.
constexpr std::uint32_t fp16_to_fp32(std::uint16_t word) noexcept {
  const std::uint32_t sign = (word & 0x8000U) << 16;
  const std::uint32_t magnitude = word & 0x7FFFU;
  const std::uint32_t field = magnitude >> 10;
  const std::uint32_t bias = field == 31 ? 255 - 31 : 127 - 15;
  const std::uint32_t normal = (magnitude << 13) + (bias << 23);
  // magnitude * 2^-24, by way of an integer that FP32 holds exactly: no rounding mode acts, and no subnormal occurs.
  const auto integer = static_cast<float>(static_cast<std::int32_t>(magnitude));
  const std::uint32_t subnormal = magnitude == 0 ? 0 : std::bit_cast<std::uint32_t>(integer) - (24U << 23);
  return sign | (field == 0 ? subnormal : normal);
}

/// The BF16 word of an FP16 word, RNE; equals convert() up to the fraction of a NaN. No FP16 value is below the normal
/// range of BF16, or rounds above it.
constexpr std::uint16_t fp16_to_bf16(std::uint16_t word) noexcept {
  const std::uint32_t wide = fp16_to_fp32(word);
  const bool nan = (wide & 0x7FFFFFFFU) > 0x7F800000U;
  const std::uint32_t rounded = (wide + 0x7FFFU + (wide >> 16 & 1U)) >> 16;
  return static_cast<std::uint16_t>(nan ? wide >> 16 | 0x0040U : rounded);
}

}  // namespace bitcube::kernels
