// Layouts, capacities and field legality against the golden vectors and the worked tables of architecture 1.
#include "bitcube/machine/geometry.hpp"

#include <gtest/gtest.h>

#include "bitcube/machine/core.hpp"
#include "machine/scenario.hpp"
#include "support/row.hpp"

namespace bitcube::machine::test {
namespace {

using bitcube::test::for_each_row;
using bitcube::test::Row;

TileLayout layout_named(std::string_view name) {
  for (int i = 0; i < 7; ++i) {
    if (machine::name_of(static_cast<TileLayout>(i)) == name) return static_cast<TileLayout>(i);
  }
  ADD_FAILURE() << name;
  return TileLayout::row_major;
}

std::uint32_t u32(const Row& row, std::string_view column) {
  return static_cast<std::uint32_t>(row.word(column));
}

/// The columns of a row of cube_shapes.csv.
struct ShapeRow {
  std::uint32_t cell_rows = 0, cell_cols = 0, storage_rows = 0, storage_cols = 0, k_repeat = 0, n_repeat = 0, cells = 0;
  bool legal = false;
};

/// Each column by itself, also where the shape is not legal, as the vectors have it.
ShapeRow shape_row(TileLayout layout, const Format& f, std::uint32_t rows, std::uint32_t cols) {
  ShapeRow s;
  const auto cell = cell_shape(layout, f.lane_bits);
  if (!cell) return s;
  s.cell_rows = cell->rows;
  s.cell_cols = cell->columns;
  const auto aligned = [](std::uint32_t x, std::uint32_t step) {
    const std::uint32_t y = divide_up(x, step) * step;
    return y > extent_limit ? 0 : y;
  };
  const bool n8 = layout == TileLayout::cube_n8;
  s.storage_rows = n8 ? aligned(rows, cell->rows) : rows >= 1 && rows <= cell->rows ? cell->rows : 0;
  s.storage_cols = aligned(cols, cell->columns);
  s.k_repeat = n8 ? s.storage_rows / cell->rows : s.storage_cols / cell->columns;
  s.n_repeat = n8 ? s.storage_cols / 8 : (cols == 0 ? 0 : 1);
  s.cells = s.k_repeat * s.n_repeat > 2048 ? 0 : s.k_repeat * s.n_repeat;
  const bool primary_rows = layout != TileLayout::cube_m32 || rows <= 32;
  s.legal = primary_rows && static_cast<bool>(describe_cube(layout, f.type, rows, cols, 65536));
  return s;
}

TEST(Geometry, CubeShapes) {
  std::size_t hif4 = 0;
  for_each_row("cube_shapes.csv", [&](const Row& row) {
    const TileLayout layout = layout_named(row.text("layout"));
    const Format& f = row.format("data_type");
    if (f.type == DataType::hif4x2) {
      ++hif4;  // 0.58.3 refuses the type; the TMATMUL_MX_BIAS unit requires it: see HiF4IsAsAnyFourBitType
      return;
    }
    const std::uint32_t rows = u32(row, "valid_rows");
    const std::uint32_t cols = u32(row, "valid_cols");
    const ShapeRow s = shape_row(layout, f, rows, cols);
    EXPECT_EQ(s.cell_rows, u32(row, "cell_rows"));
    EXPECT_EQ(s.cell_cols, u32(row, "cell_cols"));
    EXPECT_EQ(s.storage_rows, u32(row, "storage_rows"));
    EXPECT_EQ(s.storage_cols, u32(row, "storage_cols"));
    EXPECT_EQ(s.k_repeat, u32(row, "k_repeat"));
    EXPECT_EQ(s.n_repeat, u32(row, "n_repeat"));
    EXPECT_EQ(s.cells, u32(row, "cell_count"));
    EXPECT_EQ(128 * s.cells, u32(row, "required_bytes"));
    // The geometry of the product agrees with the columns wherever there is one.
    if (const auto g = cube_geometry(layout, f.lane_bits, rows, cols); g && g->row_blocks == 1) {
      EXPECT_EQ(g->rows, s.storage_rows);
      EXPECT_EQ(g->columns, s.storage_cols);
      EXPECT_EQ(g->k_repeat, s.k_repeat);
      EXPECT_EQ(g->n_repeat, s.n_repeat);
      EXPECT_EQ(g->cells, s.cells);
      EXPECT_EQ(g->storage_bytes, 128 * s.cells);
    }
    // From 32768 elements on the bound of the executable's arrays shows in the other columns, which is no rule.
    const std::uint32_t elements = s.cells * s.cell_rows * s.cell_cols;
    if (row.text("storage_elements").starts_with("ASSERT") || elements >= 32768) return;
    EXPECT_EQ(elements, u32(row, "storage_elements"));
    EXPECT_EQ(s.legal, row.truth("legal_cap65536"));
    EXPECT_FALSE(row.truth("legal_cap262144"));
    EXPECT_FALSE(describe_cube(layout, f.type, rows, cols, 262144));
  });
  EXPECT_GT(hif4, 0U);
}

TEST(Geometry, HiF4IsAsAnyFourBitType) {
  for_each_row("cube_shapes.csv", [&](const Row& row) {
    if (row.format("data_type").type != DataType::s4x2) return;
    const TileLayout layout = layout_named(row.text("layout"));
    const std::uint32_t rows = u32(row, "valid_rows");
    const std::uint32_t cols = u32(row, "valid_cols");
    const ShapeRow s = shape_row(layout, hif4, rows, cols);
    EXPECT_EQ(s.cells, u32(row, "cell_count"));
    EXPECT_EQ(s.storage_rows, u32(row, "storage_rows"));
    if (!row.text("storage_elements").starts_with("ASSERT") && s.cells * s.cell_rows * s.cell_cols < 32768) {
      EXPECT_EQ(s.legal, row.truth("legal_cap65536"));
    }
  });
}

TEST(Geometry, CubeIndex) {
  for_each_row("cube_index.csv", [](const Row& row) {
    const TileLayout layout = layout_named(row.text("layout"));
    const Format& f = row.format("data_type");
    const auto g = cube_geometry(layout, f.lane_bits, u32(row, "valid_rows"), u32(row, "valid_cols"));
    ASSERT_TRUE(g);
    EXPECT_EQ(g->rows, u32(row, "storage_rows"));
    EXPECT_EQ(g->columns, u32(row, "storage_cols"));
    EXPECT_EQ(cube_index(layout, f.lane_bits, g->k_repeat, u32(row, "row"), u32(row, "col")),
              row.word("storage_index"));
  });
}

TEST(Geometry, LinearIndex) {
  for_each_row("linear_index.csv", [](const Row& row) {
    EXPECT_EQ(ordinary_index(layout_named(row.text("layout")), row.format("data_type").lane_bits, u32(row, "rows"),
                             u32(row, "cols"), u32(row, "row"), u32(row, "col")),
              row.word("logical_index"));
  });
}

// A B.FPATR word is accepted exactly if its fields are legal alone and together.
TEST(Geometry, FpatrFieldsLegal) {
  for_each_row("fpatr_fields_legal.csv", [](const Row& row) {
    const auto flags = row.word("flags_rowmax_groupmax_rowinit_maxabs_bits0to3");
    const uint64 w = 0x00002023 | row.word("pre_quant_mode") << 26 | row.word("relu_mode") << 23 |
                     row.word("group_n_code") << 19 | (flags & 1) << 18 | (flags >> 1 & 1) << 17 |
                     (flags >> 2 & 1) << 16 | (flags >> 3 & 1) << 15;
    Core core;
    ASSERT_TRUE(core.step(0x38531181).ok());
    const Outcome o = core.step(w);
    EXPECT_EQ(o.ok(), row.truth("legal"));
    if (!o.ok()) {
      const FaultClass c = o.fault->fault_class();
      EXPECT_TRUE(c == FaultClass::illegal_instruction || c == FaultClass::tile_legality);
    }
  });
}

// The table of worked offsets in architecture 1.7.
TEST(Geometry, WorkedOffsets) {
  struct {
    TileLayout layout;
    DataType type;
    std::uint32_t rows, cols, row, col;
    std::size_t offset;
  } const table[] = {
      {TileLayout::cube_m16, DataType::fp16, 16, 32, 3, 6, 78},
      {TileLayout::cube_m16, DataType::e4m3, 16, 32, 5, 11, 171},
      {TileLayout::cube_m16, DataType::e2m1x2, 16, 32, 2, 6, 42},
      {TileLayout::cube_m16, DataType::hif4x2, 16, 64, 1, 25, 277},
      {TileLayout::cube_m16, DataType::fp32, 16, 8, 9, 5, 83},
      {TileLayout::cube_m32, DataType::fp32, 20, 4, 17, 3, 113},
      {TileLayout::cube_m32, DataType::e8m0, 16, 2, 9, 1, 37},
      {TileLayout::cube_m32, DataType::e8m0, 48, 6, 40, 5, 417},
      {TileLayout::cube_m32, DataType::u32, 16, 1, 7, 0, 7},
      {TileLayout::cube_n8, DataType::fp32, 6, 10, 5, 9, 101},
      {TileLayout::cube_n8, DataType::e4m3, 32, 8, 18, 3, 178},
      {TileLayout::cube_n8, DataType::hif4x2, 64, 8, 33, 1, 289},
      {TileLayout::cube_n8, DataType::fp16, 13, 19, 12, 18, 340},
  };
  for (const auto& x : table) {
    const unsigned bits = format_of(x.type).lane_bits;
    const auto g = cube_geometry(x.layout, bits, x.rows, x.cols);
    ASSERT_TRUE(g);
    EXPECT_EQ(cube_index(x.layout, bits, g->k_repeat, x.row, x.col), x.offset);
  }
}

TEST(Geometry, WorkedCapacities) {
  const auto fits = [](TileLayout layout, DataType type, std::uint32_t rows, std::uint32_t cols, unsigned size_code) {
    return static_cast<bool>(describe_cube(layout, type, rows, cols, size_code_bytes(size_code)));
  };
  EXPECT_TRUE(fits(TileLayout::cube_m16, DataType::fp16, 16, 17, 4));
  EXPECT_FALSE(fits(TileLayout::cube_m16, DataType::fp16, 16, 17, 3));
  EXPECT_TRUE(fits(TileLayout::cube_m32, DataType::fp16, 17, 17, 5));
  EXPECT_FALSE(fits(TileLayout::cube_m32, DataType::fp16, 17, 17, 4));
  EXPECT_TRUE(fits(TileLayout::cube_n8, DataType::fp16, 17, 9, 4));
  EXPECT_EQ(cube_geometry(TileLayout::cube_n8, 16, 13, 19)->storage_bytes, 768U);
  EXPECT_EQ(cube_geometry(TileLayout::cube_m16, 32, 3, 5)->storage_bytes, 384U);
  EXPECT_EQ(cube_geometry(TileLayout::cube_m16, 32, 16, 9)->storage_bytes, 640U);
  EXPECT_FALSE(cube_geometry(TileLayout::cube_m16, 16, 17, 1));
  EXPECT_FALSE(cube_geometry(TileLayout::cube_m16, 16, 0, 1));
  for (const DataType wide : {DataType::fp64, DataType::s64, DataType::u64}) {
    EXPECT_FALSE(describe_cube(TileLayout::cube_n8, wide, 1, 1, 128));
  }
  EXPECT_FALSE(describe_cube(TileLayout::cube_m16, DataType::fp16, 1, 1, 192));
}

// Gathered lines hold what single elements hold, for every CUBE layout, width and ragged shape; scatter is the inverse.
TEST(Geometry, GatherAndScatter) {
  for (const TileLayout layout : {TileLayout::cube_m16, TileLayout::cube_m32, TileLayout::cube_n8}) {
    for (const DataType type : {DataType::s4x2, DataType::u8, DataType::u16, DataType::u32}) {
      const unsigned bits = format_of(type).lane_bits;
      for (std::uint32_t rows = 1; rows <= 40; rows += 3) {
        for (std::uint32_t cols = 1; cols <= 40; cols += 3) {
          if (layout == TileLayout::cube_m16 && rows > 16) continue;
          const auto pattern = [&](std::uint32_t r, std::uint32_t c) {
            return (r * 97U + c * 31U + 5U) & low_mask(static_cast<int>(bits));
          };
          const auto tile = make_cube_tile(layout, type, rows, cols, words_of(rows, cols, pattern));
          ASSERT_TRUE(tile);
          const LaneImage image = gather_lines(*tile);
          const bool n8 = layout == TileLayout::cube_n8;
          for (std::uint32_t r = 0; r < rows; ++r) {
            for (std::uint32_t c = 0; c < cols; ++c) {
              ASSERT_EQ(image.view(n8 ? c : r, n8 ? r : c), pattern(r, c));
              ASSERT_EQ(tile->element(r, c), pattern(r, c));
            }
          }
          const std::size_t width = bits < 8 ? 1 : bits / 8;
          std::vector<std::uint8_t> elements(std::size_t{rows} * cols * width);
          for (std::uint32_t r = 0; r < rows; ++r) {
            for (std::uint32_t c = 0; c < cols; ++c) {
              const uint64 w = pattern(r, c);
              std::memcpy(elements.data() + (std::size_t{r} * cols + c) * width, &w, width);
            }
          }
          Tile copy(tile->descriptor());
          scatter(copy, elements, width);
          ASSERT_EQ(copy, *tile);
        }
      }
    }
  }
}

TEST(Tile, DefinednessOfSingleElements) {
  Tile tile(describe_cube(TileLayout::cube_m16, DataType::fp16, 5, 3, 128).descriptor);
  EXPECT_FALSE(tile.contents_defined());
  for (std::uint32_t r = 0; r < 5; ++r) {
    for (std::uint32_t c = 0; c < 3; ++c) {
      EXPECT_FALSE(tile.contents_defined());
      tile.set_element(r, c, 7);
    }
  }
  EXPECT_TRUE(tile.contents_defined());
  EXPECT_FALSE(tile.defined(5, 0));
  Tile whole(tile.descriptor());
  for (std::uint32_t r = 0; r < 5; ++r) {
    for (std::uint32_t c = 0; c < 3; ++c) whole.store_element(r, c, 7);
  }
  whole.set_extent(Definedness::Extent::valid);
  EXPECT_EQ(whole, tile);  // the same elements, recorded in two ways
  tile.undefine_element(0, 0);
  EXPECT_NE(whole, tile);
  EXPECT_FALSE(tile.contents_defined());
  EXPECT_EQ(tile.defined_valid_elements(), 14U);
}

}  // namespace
}  // namespace bitcube::machine::test
