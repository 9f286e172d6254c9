// TCVT over an array that stays in its file, into a file.
#pragma once

#include <cstdint>
#include <string>

#include "bitcube/expected.hpp"
#include "bitcube/io/file.hpp"
#include "bitcube/io/npy.hpp"
#include "bitcube/numeric/convert.hpp"
#include "bitcube/parallel.hpp"
#include "bitcube/stream/window.hpp"

namespace bitcube::stream {

struct Converted {
  std::uint64_t count = 0;
  Flags flags = Flags::none;  // of all elements together
  std::string sha256;         // of the words that were written
};

/// Whether convert() takes the pair. HiF4X2 is in no TCVT pair; here it stands for its lanes, which are those of E1M2.
bool convertible(const Format& from, const Format& to) noexcept;

/// Converts every element of an array and appends an array of array_dtype(to) and the same shape. Each element is a
/// lane, also of the packed formats: 4 bits in a byte with nothing above them, or in signed arrays copies of the sign.
/// Errors: elements of another size than the carrier of `from`, a pair or a rounding that is not legal, a lane beyond
/// its format, files.
Expected<Converted> convert(const NpyArray& array, const Format& from, const Format& to, const EncodeControl& control,
                            OutputFile& file, const Execution& execution = {}, std::size_t window = kWindow);

}  // namespace bitcube::stream
