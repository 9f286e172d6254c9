// Where an element of a Tile is stored: ordinary layouts and the CELL layouts of the CUBE unit (architecture 1.5
// to 1.7).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "bitcube/numeric/format.hpp"

namespace bitcube::machine {

inline constexpr std::uint32_t cell_bytes = 128;
inline constexpr std::uint32_t local_capacity_limit = 64 * 1024;    // of one Local Tile
inline constexpr std::uint32_t shared_capacity_limit = 256 * 1024;  // of one Shared Tile
inline constexpr std::uint32_t pool_bytes = 256 * 1024;             // of one PE, and of the Shared bank
inline constexpr std::uint32_t extent_limit = 65535;                // of rows and of columns

/// Bytes of a SizeCode 1..12; 0 for code 0, which binds a source (architecture 1.5).
constexpr std::uint32_t size_code_bytes(unsigned code) noexcept {
  return code == 0 ? 0 : std::uint32_t{128} << (code - 1);
}

enum class TileLayout : std::uint8_t { row_major, column_major, zn, nz, cube_m16, cube_m32, cube_n8 };

inline constexpr std::array tile_layouts{TileLayout::row_major, TileLayout::column_major, TileLayout::zn,
                                         TileLayout::nz,        TileLayout::cube_m16,     TileLayout::cube_m32,
                                         TileLayout::cube_n8};

constexpr std::string_view name_of(TileLayout layout) noexcept {
  constexpr std::string_view names[] = {"RowMajor", "ColumnMajor", "ZN", "NZ", "CUBE_M16", "CUBE_M32", "CUBE_N8"};
  return names[static_cast<std::size_t>(layout)];
}

constexpr bool is_cube(TileLayout layout) noexcept {
  return layout >= TileLayout::cube_m16;
}
/// The layouts of A, C and D.
constexpr bool is_cube_m(TileLayout layout) noexcept {
  return layout == TileLayout::cube_m16 || layout == TileLayout::cube_m32;
}

constexpr std::uint32_t divide_up(std::uint32_t x, std::uint32_t y) noexcept {
  return (x + y - 1) / y;
}
constexpr bool is_power_of_two(std::uint32_t x) noexcept {
  return x != 0 && (x & (x - 1)) == 0;
}
/// The smallest power of two that is at least x; x >= 1.
constexpr std::uint32_t round_up_to_power_of_two(std::uint32_t x) noexcept {
  std::uint32_t p = 1;
  while (p < x) p *= 2;
  return p;
}

/// Rows and columns of one CELL.
struct CellShape {
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
};

/// The CELL of a CUBE layout for elements of 4, 8, 16 or 32 bits; nothing for other widths and ordinary layouts.
constexpr std::optional<CellShape> cell_shape(TileLayout layout, unsigned element_bits) noexcept {
  if (element_bits != 4 && element_bits != 8 && element_bits != 16 && element_bits != 32) return std::nullopt;
  switch (layout) {
    case TileLayout::cube_m16:
      return CellShape{16, 64 / element_bits};
    case TileLayout::cube_m32:
      return CellShape{32, 32 / element_bits};
    case TileLayout::cube_n8:
      return CellShape{128 / element_bits, 8};
    default:
      return std::nullopt;
  }
}

/// Everything that a CUBE shape derives from its layout, element width and valid extents.
struct CubeGeometry {
  CellShape cell;
  std::uint32_t k_repeat = 0;
  std::uint32_t n_repeat = 0;
  std::uint32_t row_blocks = 0;  // more than 1 only for scales in CUBE_M32
  std::uint32_t rows = 0;        // physical
  std::uint32_t columns = 0;
  std::uint32_t cells = 0;
  std::uint32_t storage_bytes = 0;
};

/// The geometry of a legal CUBE shape, or nothing: zero extents, more than 16 rows in M16, an aligned extent above
/// 65535, elements of 64 bits. CUBE_M32 may have several row blocks here; who allows only one says so
/// (architecture 1.7).
constexpr std::optional<CubeGeometry> cube_geometry(TileLayout layout, unsigned element_bits, std::uint32_t valid_rows,
                                                    std::uint32_t valid_columns) noexcept {
  const auto cell = cell_shape(layout, element_bits);
  if (!cell || valid_rows == 0 || valid_columns == 0) return std::nullopt;
  if (valid_rows > extent_limit || valid_columns > extent_limit) return std::nullopt;
  CubeGeometry g{.cell = *cell};
  const std::uint32_t row_steps = divide_up(valid_rows, cell->rows);
  const std::uint32_t column_steps = divide_up(valid_columns, cell->columns);
  g.rows = row_steps * cell->rows;
  g.columns = column_steps * cell->columns;
  if (layout == TileLayout::cube_n8) {
    g.k_repeat = row_steps;
    g.n_repeat = column_steps;
    g.row_blocks = 1;
  } else {
    if (layout == TileLayout::cube_m16 && row_steps != 1) return std::nullopt;
    g.k_repeat = column_steps;
    g.n_repeat = 1;
    g.row_blocks = row_steps;
  }
  if (g.rows > extent_limit || g.columns > extent_limit) return std::nullopt;
  const std::uint64_t cells = std::uint64_t{row_steps} * column_steps;
  if (cells > shared_capacity_limit / cell_bytes) return std::nullopt;  // no Tile is larger
  g.cells = static_cast<std::uint32_t>(cells);
  g.storage_bytes = g.cells * cell_bytes;
  return g;
}

/// Position of column `ic` in a row of a CELL: 4-bit elements in M16 have columns 4..7 and 8..11 swapped.
constexpr std::uint32_t cell_column(TileLayout layout, unsigned element_bits, std::uint32_t ic) noexcept {
  const std::uint32_t quad = ic / 4;
  const bool swapped = layout == TileLayout::cube_m16 && element_bits == 4 && (quad == 1 || quad == 2);
  return swapped ? ic ^ 12U : ic;
}

/// Storage index, in elements, of (row, column) in a CUBE layout with this k_repeat.
constexpr std::size_t cube_index(TileLayout layout, unsigned element_bits, std::uint32_t k_repeat, std::uint32_t row,
                                 std::uint32_t column) noexcept {
  const CellShape cell = *cell_shape(layout, element_bits);
  const std::uint32_t ir = row % cell.rows;
  const std::uint32_t ic = column % cell.columns;
  const std::size_t number = layout == TileLayout::cube_n8
                                 ? std::size_t{column / cell.columns} * k_repeat + row / cell.rows
                                 : std::size_t{row / cell.rows} * k_repeat + column / cell.columns;
  const std::uint32_t inside =
      layout == TileLayout::cube_n8 ? ic * cell.rows + ir : ir * cell.columns + cell_column(layout, element_bits, ic);
  return number * cell.rows * cell.columns + inside;
}

/// Columns of one fractal of ZN and NZ: 32 bytes.
constexpr std::uint32_t fractal_columns(unsigned element_bits) noexcept {
  return 256 / element_bits;
}
inline constexpr std::uint32_t fractal_rows = 16;

/// Storage index, in elements, of (row, column) in an ordinary layout of rows x columns (architecture 1.6).
constexpr std::size_t ordinary_index(TileLayout layout, unsigned element_bits, std::uint32_t rows,
                                     std::uint32_t columns, std::uint32_t row, std::uint32_t column) noexcept {
  if (layout == TileLayout::row_major) return std::size_t{row} * columns + column;
  if (layout == TileLayout::column_major) return std::size_t{column} * rows + row;
  const std::uint32_t inner = fractal_columns(element_bits);
  const std::uint32_t ir = row % fractal_rows;
  const std::uint32_t ic = column % inner;
  const std::size_t br = row / fractal_rows;
  const std::size_t bc = column / inner;
  if (layout == TileLayout::zn) {
    return (br * (columns / inner) + bc) * fractal_rows * inner + std::size_t{ic} * fractal_rows + ir;
  }
  return (bc * (rows / fractal_rows) + br) * fractal_rows * inner + std::size_t{ir} * inner + ic;
}

/// Physical rows of an ordinary Tile of this capacity and column count, or nothing if there is no such Tile: columns no
/// power of two, less than one whole row, more than 65535 rows, or no whole fractals.
constexpr std::optional<std::uint32_t> ordinary_rows(TileLayout layout, unsigned element_bits, std::uint32_t columns,
                                                     std::uint32_t capacity_bytes) noexcept {
  if (!is_power_of_two(columns) || columns > extent_limit) return std::nullopt;
  const std::uint64_t bits = std::uint64_t{capacity_bytes} * 8;
  const std::uint64_t row_bits = std::uint64_t{columns} * element_bits;
  const std::uint64_t rows = bits / row_bits;
  if (rows == 0 || rows * row_bits != bits || rows > extent_limit) return std::nullopt;
  if (layout == TileLayout::zn || layout == TileLayout::nz) {
    if (rows % fractal_rows != 0 || columns % fractal_columns(element_bits) != 0) return std::nullopt;
  }
  return static_cast<std::uint32_t>(rows);
}

/// Whether a Tile may have this capacity (architecture 1.9).
constexpr bool legal_capacity(std::uint32_t bytes, std::uint32_t limit) noexcept {
  return bytes != 0 && bytes % cell_bytes == 0 && bytes <= limit;
}

}  // namespace bitcube::machine
