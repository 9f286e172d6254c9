// Where the elements of Tiles and memory images come from: files and inline values. Private to the room.
#pragma once

#include <filesystem>
#include <vector>

#include "bitcube/machine/tile.hpp"
#include "reader.hpp"

namespace bitcube::program {

/// A matrix of lanes, row by row.
struct Matrix {
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  unsigned lane_bits = 0;
  std::vector<uint64> words;
};

/// What a source has to give; format nullptr, or extents 0: whatever the file has.
struct Wanted {
  const Format* format = nullptr;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
};

/// Reads
///   "x.npy" [transposed] [at ROW COLUMN]
///   "x.safetensors" codes|scales [tensor "NAME"] [transposed] [at ROW COLUMN]
///   all VALUE
///   VALUE[*COUNT] … [...]     a trailing ... repeats the list
/// Inline values need format and extents. Errors go to the reader.
Matrix read_matrix(Reader& reader, const Wanted& wanted, const std::filesystem::path& directory);

/// The bytes of `.memory`, without the words file, bytes, zero that come before:
///   TYPE VALUE …   |   "x.npy" …   |   "x.safetensors" codes|scales …
/// Rows of 4-bit lanes start at a byte.
std::vector<std::uint8_t> read_image(Reader& reader, const std::filesystem::path& directory);

}  // namespace bitcube::program
