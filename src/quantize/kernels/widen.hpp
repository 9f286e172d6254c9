// FP16 words as words that the kernels read: plain integer arithmetic, which compilers turn into vectors themselves.
#pragma once

#include <bit>
#include <cstdint>

namespace bitcube::kernels {

/// The FP32 word of an FP16 word; equals convert() up to the fraction of a NaN.
constexpr std::uint32_t fp16_to_fp32(std::uint16_t word) noexcept {
  const std::uint32_t sign = (word & 0x8000U) << 16;
  const std::uint32_t magnitude = word & 0x7FFFU;
  if (magnitude >= 0x7C00) return sign | 0x7F800000U | (magnitude & 0x3FFU) << 13;
  if (magnitude >= 0x0400) return sign | ((magnitude << 13) + ((127U - 15U) << 23));
  if (magnitude == 0) return sign;
  // magnitude * 2^-24: its top bit becomes the hidden one.
  const auto width = static_cast<std::uint32_t>(std::bit_width(magnitude));
  return sign | (((102U + width) << 23) + ((magnitude << (24 - width)) & 0x7FFFFFU));
}

/// The BF16 word of an FP16 word, RNE; equals convert() up to the fraction of a NaN. No FP16 value is below the normal
/// range of BF16, or rounds above it.
constexpr std::uint16_t fp16_to_bf16(std::uint16_t word) noexcept {
  const std::uint32_t wide = fp16_to_fp32(word);
  if ((wide & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>(wide >> 16 | 0x0040U);
  return static_cast<std::uint16_t>((wide + 0x7FFFU + (wide >> 16 & 1U)) >> 16);
}

}  // namespace bitcube::kernels
