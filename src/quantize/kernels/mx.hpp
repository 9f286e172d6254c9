// SIMD kernels for MX (numerics 8.2; profiles 2): they give the same bits as the reference in bitcube/quantize/mx.hpp
// on every target.
#pragma once

#include <cstddef>

#include "bitcube/numeric/flags.hpp"
#include "bitcube/numeric/format.hpp"
#include "bitcube/numeric/rounding.hpp"
#include "bitcube/quantize/mx.hpp"

namespace bitcube::kernels {

/// Quantises `lanes` consecutive words of BF16 or FP32 at any address: groups of 32 from lane 0, the last may be short.
/// Each group equals quantize_mx_group() with RNE. Writes a byte of codes per lane, or ceil(lanes / 2) in the 4-bit
/// formats with an unused nibble as 0, and a byte per group of scales. False, and nothing written, if there is no
/// kernel: for this machine, source or element; no lanes only ask.
bool quantize_mx(const Format& source, const std::byte* words, std::size_t lanes, const Format& element,
                 ScaleRounding rule, std::byte* codes, std::byte* scales) noexcept;

/// Its counterpart: words of FP32, BF16 or FP16, as convert_value() makes them of dequantize_mx_lane() with RNE. Adds
/// the flags of all lanes to `flags`. False, and nothing written, if there is no kernel; no lanes only ask.
bool dequantize_mx(const std::byte* codes, const std::byte* scales, std::size_t lanes, const Format& element,
                   const Format& destination, std::byte* words, Flags& flags) noexcept;

}  // namespace bitcube::kernels
