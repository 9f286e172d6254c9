// Geometry of Tiles (architecture 1.6, 1.7, 1.9).
#include <fmt/format.h>

#include <array>

#include "bitcube/machine/geometry.hpp"
#include "forms.hpp"

namespace bitcube::verify {
namespace {

using machine::TileLayout;

struct LayoutName {
  std::string_view name;
  TileLayout layout;
};
constexpr auto kLayouts = []() {
  std::array<LayoutName, 7> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto layout = static_cast<TileLayout>(i);
    rows[i] = {machine::name_of(layout), layout};
  }
  return rows;
}();

/// Columns 0 to 2: layout, type, and the width of an element, which repeats what the type says.
struct TileType {
  TileLayout layout = TileLayout::row_major;
  const Format* format = nullptr;
};

TileType tile_type(Record& r, bool cube) {
  const auto find = [](std::string_view name) -> const LayoutName* {
    for (const LayoutName& row : kLayouts) {
      if (row.name == name) return &row;
    }
    return nullptr;
  };
  const TileType type{r.named(0, kLayouts, find).layout, &r.format(1)};
  if (r.malformed()) return type;
  if (machine::is_cube(type.layout) != cube) r.fault(0, cube ? "a CUBE layout" : "an ordinary layout");
  if (type.format->type == DataType::e6m2 || type.format->type == DataType::rcpe6m2) {
    r.fault(1, "a Tile data type (architecture 1.2)");
  }
  if (r.integer(2, 0, 64) != type.format->lane_bits) {
    r.fault(2, fmt::format("{}, the element bits of {}", type.format->lane_bits, type.format->name));
  }
  return type;
}

std::uint32_t extent(Record& r, std::size_t column) {
  return static_cast<std::uint32_t>(r.integer(column, 0, 1 << 20));
}

/// x rounded up, or 0 where that is above the largest extent.
std::uint32_t aligned(std::uint32_t x, std::uint32_t step) noexcept {
  const std::uint32_t extent = machine::divide_up(x, step) * step;
  return extent > machine::extent_limit ? 0 : extent;
}

/// What a row of cube_shapes derives, each column by itself, also where the shape is not legal.
struct Shape {
  machine::CellShape cell;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  std::uint32_t k_repeat = 0;
  std::uint32_t n_repeat = 0;
  std::uint32_t cells = 0;
  std::uint32_t elements = 0;
  bool legal = false;
};

Shape shape_of(const TileType& type, std::uint32_t valid_rows, std::uint32_t valid_columns) noexcept {
  Shape s;
  const auto cell = machine::cell_shape(type.layout, type.format->lane_bits);
  if (!cell) return s;
  s.cell = *cell;
  s.columns = aligned(valid_columns, cell->columns);
  if (type.layout == TileLayout::cube_n8) {
    s.rows = aligned(valid_rows, cell->rows);
    s.k_repeat = s.rows / cell->rows;
    s.n_repeat = s.columns / cell->columns;
  } else {
    s.rows = valid_rows >= 1 && valid_rows <= cell->rows ? cell->rows : 0;
    s.k_repeat = s.columns / cell->columns;
    s.n_repeat = valid_columns == 0 ? 0 : 1;
  }
  constexpr std::uint32_t most_cells = machine::shared_capacity_limit / machine::cell_bytes;
  const std::uint64_t cells = std::uint64_t{s.k_repeat} * s.n_repeat;
  s.cells = cells > most_cells ? 0 : static_cast<std::uint32_t>(cells);
  s.elements = s.cells * cell->rows * cell->columns;
  // As a primary, so with one block of rows in M32.
  const auto g = machine::cube_geometry(type.layout, type.format->lane_bits, valid_rows, valid_columns);
  s.legal = g && g->row_blocks == 1 && g->storage_bytes <= machine::local_capacity_limit;
  return s;
}

constexpr std::size_t kDerived = 5;  // first derived column of cube_shapes
constexpr std::size_t kElements = 12;
constexpr std::size_t kLegalLocal = 14;
constexpr std::size_t kLegalShared = 15;

/// The executable specification stops at this many elements in a Tile.
constexpr std::uint32_t kElementLimit = 32768;

bool shows_element_limit(const Record& r, std::uint32_t elements) noexcept {
  const auto stops = [&](std::size_t column, std::string_view text) {
    return r.text(column) == text || r.text(column) == "0";
  };
  return elements >= kElementLimit && stops(kElements, "ASSERT32768") && stops(kLegalLocal, "ASSERT") &&
         stops(kLegalShared, "ASSERT");
}

bool refused(const Record& r) noexcept {
  for (std::size_t i = kDerived; i < r.columns().size(); ++i) {
    if (r.text(i) != "0") return false;
  }
  return true;
}

}  // namespace

void check_cube_shape(Record& r) {
  const TileType type = tile_type(r, true);
  const std::uint32_t rows = extent(r, 3);
  const std::uint32_t columns = extent(r, 4);
  if (r.malformed()) return;
  const Shape s = shape_of(type, rows, columns);
  if (!r.writing() && type.format->type == DataType::hif4x2 && s.cell.rows != 0 && refused(r)) {
    return r.known(KnownRule::hif4x2_cube_type);
  }
  const std::uint32_t derived[] = {s.cell.rows, s.cell.columns, s.rows, s.columns, s.k_repeat, s.n_repeat, s.cells};
  for (std::size_t i = 0; i < std::size(derived); ++i) r.expect_integer(kDerived + i, derived[i]);
  r.expect_integer(kElements + 1, int64{s.cells} * machine::cell_bytes);
  if (!r.writing() && shows_element_limit(r, s.elements)) {
    if (!r.differs()) r.known(KnownRule::assert_32768);
  } else {
    r.expect_integer(kElements, s.elements);
    r.expect_truth(kLegalLocal, s.legal);
    r.expect_truth(kLegalShared, false);  // a Local Tile has at most 65536 bytes
  }
  if (r.differs())
    r.decided_by(r.differs(kLegalLocal) || r.differs(kLegalShared) ? "architecture 1.7, 1.9" : "architecture 1.7");
}

void check_cube_index(Record& r) {
  const TileType type = tile_type(r, true);
  const std::uint32_t valid_rows = extent(r, 3);
  const std::uint32_t valid_columns = extent(r, 4);
  const std::uint32_t row = extent(r, 7);
  const std::uint32_t column = extent(r, 8);
  if (r.malformed()) return;
  const auto g = machine::cube_geometry(type.layout, type.format->lane_bits, valid_rows, valid_columns);
  if (!g) return r.fault(3, "a legal shape (architecture 1.7)");
  if (row >= g->rows) return r.fault(7, fmt::format("a row below {}", g->rows));
  if (column >= g->columns) return r.fault(8, fmt::format("a column below {}", g->columns));
  r.expect_integer(5, g->rows);
  r.expect_integer(6, g->columns);
  const std::size_t index = machine::cube_index(type.layout, type.format->lane_bits, g->k_repeat, row, column);
  r.expect_integer(9, static_cast<int64>(index));
  if (r.differs()) r.decided_by("architecture 1.7");
}

void check_linear_index(Record& r) {
  const TileType type = tile_type(r, false);
  const std::uint32_t rows = extent(r, 3);
  const std::uint32_t columns = extent(r, 4);
  const std::uint32_t row = extent(r, 5);
  const std::uint32_t column = extent(r, 6);
  if (r.malformed()) return;
  const unsigned bits = type.format->lane_bits;
  if (type.layout == TileLayout::zn || type.layout == TileLayout::nz) {
    const std::uint32_t inner = machine::fractal_columns(bits);
    if (rows % machine::fractal_rows != 0) return r.fault(3, fmt::format("a multiple of {}", machine::fractal_rows));
    if (columns % inner != 0) return r.fault(4, fmt::format("a multiple of {}", inner));
  }
  if (row >= rows) return r.fault(5, fmt::format("a row below {}", rows));
  if (column >= columns) return r.fault(6, fmt::format("a column below {}", columns));
  r.expect_integer(7, static_cast<int64>(machine::ordinary_index(type.layout, bits, rows, columns, row, column)));
  if (r.differs()) r.decided_by("architecture 1.6");
}

}  // namespace bitcube::verify
