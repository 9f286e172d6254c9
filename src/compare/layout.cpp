#include <fmt/format.h>

#include <algorithm>

#include "bitcube/compare/compare.hpp"
#include "bitcube/quantize/lines.hpp"
#include "compare/predict.hpp"
#include "guarded.hpp"
#include "value_text.hpp"

namespace bitcube {
namespace compare_detail {

using machine::TileLayout;

std::optional<StorageMap> StorageMap::make(TileLayout layout, unsigned bits, uint64 rows, uint64 columns) {
  if (rows < 2 || columns < 2 || layout == TileLayout::row_major) return std::nullopt;
  StorageMap map;
  const auto cell = machine::cell_shape(layout, bits);
  if (machine::is_cube(layout) && !cell) return std::nullopt;
  map.block_rows_ = cell ? cell->rows : machine::fractal_rows;
  map.block_columns_ = cell ? cell->columns : machine::fractal_columns(bits);
  if (layout == TileLayout::column_major) map.block_rows_ = map.block_columns_ = 1;
  if (rows % map.block_rows_ != 0 || columns % map.block_columns_ != 0) return std::nullopt;
  map.rows_ = rows / map.block_rows_;
  map.columns_ = columns / map.block_columns_;
  map.by_columns_ = layout == TileLayout::nz || layout == TileLayout::cube_n8 || layout == TileLayout::column_major;
  // Inside a block the layout's own function decides.
  const auto block_rows = static_cast<std::uint32_t>(map.block_rows_);
  const auto block_columns = static_cast<std::uint32_t>(map.block_columns_);
  map.stored_.resize(std::size_t{block_rows} * block_columns);
  map.flat_.resize(map.stored_.size());
  for (std::uint32_t r = 0; r < block_rows; ++r) {
    for (std::uint32_t c = 0; c < block_columns; ++c) {
      const std::size_t at = cell ? machine::cube_index(layout, bits, 1, r, c)
                                  : machine::ordinary_index(layout, bits, block_rows, block_columns, r, c);
      const std::uint32_t flat = r * block_columns + c;
      map.stored_[flat] = static_cast<std::uint32_t>(at);
      map.flat_[at] = flat;
    }
  }
  // A single column of blocks that are row-major inside moves nothing.
  for (uint64 row = 0; row < std::min(rows, 2 * map.block_rows_); ++row) {
    for (uint64 column = 0; column < columns; ++column) {
      if (map.stored(row * columns + column) != row * columns + column) return map;
    }
  }
  return std::nullopt;
}

uint64 StorageMap::stored(uint64 flat) const noexcept {
  const uint64 width = columns_ * block_columns_;
  const uint64 row = flat / width;
  const uint64 column = flat % width;
  const uint64 br = row / block_rows_;
  const uint64 bc = column / block_columns_;
  const uint64 block = by_columns_ ? bc * rows_ + br : br * columns_ + bc;
  return block * stored_.size() + stored_[row % block_rows_ * block_columns_ + column % block_columns_];
}

uint64 StorageMap::flat(uint64 stored) const noexcept {
  const uint64 block = stored / flat_.size();
  const uint64 inside = flat_[stored % flat_.size()];
  const uint64 br = by_columns_ ? block % rows_ : block / columns_;
  const uint64 bc = by_columns_ ? block / rows_ : block % columns_;
  const uint64 row = br * block_rows_ + inside / block_columns_;
  return row * columns_ * block_columns_ + bc * block_columns_ + inside % block_columns_;
}

}  // namespace compare_detail

Expected<std::vector<std::byte>> undo_layout(const ComparedPart& part, std::span<const std::byte> stored,
                                             machine::TileLayout layout) {
  const auto size = part.byte_size();
  if (!size || stored.size() != *size) {
    return Error{fmt::format("{} bytes, but {} of shape {} takes {}", stored.size(), part.format->name,
                             shape_text(part.shape), size.value_or(~uint64{0}))};
  }
  return guarded("undoing a layout", [&]() -> Expected<std::vector<std::byte>> {
    std::vector<std::byte> out(stored.begin(), stored.end());
    if (layout == machine::TileLayout::row_major) return out;
    const uint64 columns = part.shape.back();
    uint64 rows = 1;
    for (const uint64 extent : std::span(part.shape).first(part.shape.size() - 1)) rows *= extent;
    const auto map = compare_detail::StorageMap::make(layout, part.format->lane_bits, rows, columns);
    if (!map || (part.packed && columns % 2 != 0)) {
      return Error{fmt::format("{} x {} elements of {} bits are no whole matrix in {}", rows, columns,
                               part.format->lane_bits, machine::name_of(layout))};
    }
    const std::size_t bytes = part.format->carrier_bits / 8;
    for (uint64 i = 0; i < rows * columns; ++i) {
      const uint64 at = map->stored(i);
      if (!part.packed) {
        store_word(out.data() + i * bytes, bytes, load_word(stored.data() + at * bytes, bytes));
        continue;
      }
      const unsigned shift = 4 * (i % 2);
      const auto lane = static_cast<unsigned>(lane_of(part, stored, at));
      out[i / 2] = (out[i / 2] & static_cast<std::byte>(0xF0U >> shift)) | static_cast<std::byte>(lane << shift);
    }
    return out;
  });
}

}  // namespace bitcube
