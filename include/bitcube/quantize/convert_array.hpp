// TCVT over an array in memory (numerics 7).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/numeric/convert.hpp"
#include "bitcube/parallel.hpp"

namespace bitcube {

struct ConvertedArray {
  std::vector<std::byte> words;  // little-endian, one carrier each
  Flags flags = Flags::none;     // of all elements together
};

/// Converts every little-endian word of `from`. Errors: a pair or a rounding that is not legal (numerics 7.1), a packed
/// type, a size that is no multiple of the word's.
Expected<ConvertedArray> convert_array(std::span<const std::byte> words, const Format& from, const Format& to,
                                       const EncodeControl& control = {}, const Execution& execution = {});

/// The same into memory of the caller, which may stream a large array piece by piece: `out` has room for exactly as
/// many words of `to` as there are of `from`, any alignment, and does not overlap `words`. Returns the flags of all
/// elements together; after an error nothing was written.
Expected<Flags> convert_array_into(std::span<const std::byte> words, const Format& from, const Format& to,
                                   std::span<std::byte> out, const EncodeControl& control = {},
                                   const Execution& execution = {});

}  // namespace bitcube
