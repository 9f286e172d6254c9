// Arrays from .npy files and from raw files, whose type and shape the caller says.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/io/npy.hpp"
#include "bitcube/numeric/format.hpp"

namespace bitcube {

/// FILE:DTYPE:SHAPE, such as w.bin:float32:784x256: little-endian words in C order without a header. DTYPE is a name of
/// dtype_name(), SHAPE the dimensions with an x between them.
struct RawArray {
  std::string path;
  DType dtype;
  std::vector<std::uint64_t> shape;
};

/// The parts of such a text, or nothing where it has another form and so is the name of a file.
std::optional<RawArray> parse_raw_array(std::string_view text);

/// The file that a text names, with or without type and shape.
std::string array_path(std::string_view text);

/// Reads FILE.npy, or the raw array FILE:DTYPE:SHAPE, which must be exactly as long as it says.
Expected<NpyArray> read_array(std::string_view text);

/// The element type of an array that holds words of this format, one lane each. NumPy has no BF16: its bits go into
/// uint16. Codes of formats that it does not know are unsigned; lanes of S4X2 are sign-extended to int8.
DType array_dtype(const Format& format) noexcept;

/// Appends what comes before the words of an array: nothing if the file's name ends with .bin, else a .npy header.
Expected<void> begin_array(OutputFile& file, DType dtype, std::span<const std::uint64_t> shape);

/// Appends an array: the words alone if the file's name ends with .bin, else a whole .npy file.
Expected<void> write_array(OutputFile& file, DType dtype, std::span<const std::uint64_t> shape,
                           std::span<const std::byte> bytes);

}  // namespace bitcube
