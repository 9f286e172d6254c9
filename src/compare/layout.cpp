#include <fmt/format.h>

#include "bitcube/compare/compare.hpp"
#include "bitcube/quantize/lines.hpp"
#include "compare/predict.hpp"
#include "guarded.hpp"
#include "value_text.hpp"

namespace bitcube {
namespace compare_detail {

using machine::TileLayout;

std::vector<std::uint32_t> storage_indices(TileLayout layout, unsigned bits, uint64 rows, uint64 columns) {
  constexpr uint64 limit = uint64{1} << 28;
  if (rows < 2 || columns < 2 || rows > limit / columns) return {};
  const auto cell = machine::cell_shape(layout, bits);
  const bool column_major = layout == TileLayout::column_major;
  const uint64 step_rows = column_major ? 1 : cell ? cell->rows : machine::fractal_rows;
  const uint64 step_columns = column_major ? 1 : cell ? cell->columns : machine::fractal_columns(bits);
  if ((machine::is_cube(layout) && !cell) || rows % step_rows != 0 || columns % step_columns != 0) return {};
  std::vector<std::uint32_t> at(static_cast<std::size_t>(rows * columns));
  bool moved = false;
  for (uint64 r = 0; r < rows; ++r) {
    for (uint64 c = 0; c < columns; ++c) {
      const auto row = static_cast<std::uint32_t>(r);
      const auto column = static_cast<std::uint32_t>(c);
      const auto repeat =
          static_cast<std::uint32_t>(layout == TileLayout::cube_n8 ? rows / step_rows : columns / step_columns);
      const std::size_t index = cell ? machine::cube_index(layout, bits, repeat, row, column)
                                     : machine::ordinary_index(layout, bits, static_cast<std::uint32_t>(rows),
                                                               static_cast<std::uint32_t>(columns), row, column);
      const auto flat = static_cast<std::size_t>(r * columns + c);
      at[flat] = static_cast<std::uint32_t>(index);
      moved = moved || index != flat;
    }
  }
  return moved ? at : std::vector<std::uint32_t>();
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
    const std::vector<std::uint32_t> at =
        compare_detail::storage_indices(layout, part.format->lane_bits, rows, columns);
    if (at.empty() || (part.packed && columns % 2 != 0)) {
      return Error{fmt::format("{} x {} elements of {} bits are no whole matrix in {}", rows, columns,
                               part.format->lane_bits, machine::name_of(layout))};
    }
    const std::size_t bytes = part.format->carrier_bits / 8;
    for (std::size_t i = 0; i < at.size(); ++i) {
      if (!part.packed) {
        store_word(out.data() + i * bytes, bytes, load_word(stored.data() + at[i] * bytes, bytes));
        continue;
      }
      const unsigned shift = 4 * (i % 2);
      const auto lane = static_cast<unsigned>(lane_of(part, stored, at[i]));
      out[i / 2] = (out[i / 2] & static_cast<std::byte>(0xF0U >> shift)) | static_cast<std::byte>(lane << shift);
    }
    return out;
  });
}

}  // namespace bitcube
