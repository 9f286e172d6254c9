// SIMD kernels for TCVT over arrays.
#pragma once

#include <cstddef>

#include "bitcube/numeric/convert.hpp"

namespace bitcube::kernels {

/// convert() of `count` words, the flags OR-ed into `flags`. False, with nothing done, where there is no kernel for the
/// pair or this machine. `in` and `out` have any alignment and do not overlap.
bool convert_words(const Format& from, const Format& to, const EncodeControl& control, const std::byte* in,
                   std::size_t count, std::byte* out, Flags& flags);

}  // namespace bitcube::kernels
