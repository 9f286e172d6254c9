// FP16 words as words that the kernels read: plain integer arithmetic, which compilers turn into vectors themselves.
#pragma once

#include <bit>
#include <cstdint>

namespace bitcube::kernels {

/// The FP32 word of an FP16 word; equals convert() up to the fraction of a NaN.
constexpr std::uint32_t fp16_to_fp32(std::uint16_t word) noexcept {
  const std::uint32_t sign = (word & 0x8000U) << 16;
  const std::uint32_t magnitude = word & 0x7FFFU;
  // The exponent field of a normal value moves by 112, that of infinity and NaN, 31, by as much again.
  const std::uint32_t normal = (magnitude << 13) + (112U << 23) + ((magnitude + 0x0400U) & 0x8000U) * (112U << 8);
  // A subnormal is magnitude * 2^-24, by way of an integer that FP32 holds exactly: no rounding mode acts, and nothing
  // is a subnormal of FP32. Masks instead of choices, so that compilers need no branch.
  const auto integer = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)));
  const std::uint32_t is_normal = 0U - ((magnitude + 0x7C00U) >> 15);
  const std::uint32_t is_subnormal = ~is_normal & (0U - ((magnitude + 0x7FFFU) >> 15));
  return sign | (normal & is_normal) | ((integer - (24U << 23)) & is_subnormal);
}

/// The BF16 word of an FP16 word, RNE; equals convert() up to the fraction of a NaN. No FP16 value is below the normal
/// range of BF16, or rounds above it.
constexpr std::uint16_t fp16_to_bf16(std::uint16_t word) noexcept {
  const std::uint32_t wide = fp16_to_fp32(word);
  // A carry out of 0x7F800000, the word of infinity, marks a NaN: it becomes a quiet one.
  const std::uint32_t nan = 0U - (((wide & 0x7FFFFFFFU) + 0x007FFFFFU) >> 31);
  const std::uint32_t rounded = (wide + 0x7FFFU + (wide >> 16 & 1U)) >> 16;
  return static_cast<std::uint16_t>((rounded & ~nan) | ((wide >> 16 | 0x0040U) & nan));
}

}  // namespace bitcube::kernels
