// SIMD kernels for HiF4 (numerics 8.1, 10.3; profiles 1): they give the same bits as the reference in
// bitcube/quantize/hif4.hpp on every target.
#pragma once

#include <cstddef>

#include "bitcube/numeric/flags.hpp"
#include "bitcube/numeric/format.hpp"
#include "bitcube/quantize/hif4.hpp"

namespace bitcube::kernels {

/// Quantises `lanes` consecutive words of BF16 or FP32 at any address: groups of 64 from lane 0, the last may be short.
/// Each group equals quantize_hif4_group(). Writes ceil(lanes / 2) bytes of codes, an unused nibble as 0, and 4 bytes
/// per group of scales. False, and nothing written, if there is no kernel: for this machine, source or profile; no
/// lanes only ask.
bool quantize_hif4(const Format& source, const std::byte* words, std::size_t lanes, const Hif4Profile& profile,
                   std::byte* codes, std::byte* scales) noexcept;

/// Its counterpart: words of FP32, BF16 or FP16, as convert_value() makes them of dequantize_hif4_lane() with RNE. Adds
/// the flags of all lanes to `flags`. False, and nothing written, if there is no kernel; no lanes only ask.
bool dequantize_hif4(const std::byte* codes, const std::byte* scales, std::size_t lanes, const Format& destination,
                     std::byte* words, Flags& flags) noexcept;

}  // namespace bitcube::kernels
