// Blocked transposition: lanes that lie apart, brought together for the kernels, and back.
#pragma once

#include <cstddef>

namespace bitcube::kernels {

/// Column c of row r becomes column r of row c, for words of 2 or 4 bytes at any address. Strides count bytes, from row
/// to row; the areas do not overlap. Works on every machine.
void transpose(std::size_t word_bytes, const std::byte* from, std::size_t from_stride, std::size_t rows,
               std::size_t columns, std::byte* to, std::size_t to_stride) noexcept;

}  // namespace bitcube::kernels
