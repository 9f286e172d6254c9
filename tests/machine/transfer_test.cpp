// TLOAD, TSTORE and TMOV: every layout code, every element width, padding, strides, PEs (architecture 7.2 to 7.4).
#include <gtest/gtest.h>

#include "machine/assembly.hpp"
#include "support/operands.hpp"

namespace bitcube::machine::test {
namespace {

using isa::PadValue;
using enum isa::TransferLayout;
constexpr TileLayout nd = TileLayout::row_major;
constexpr TileLayout dn = TileLayout::column_major;
constexpr TileLayout zn = TileLayout::zn;
constexpr TileLayout nz = TileLayout::nz;

constexpr DataType types[] = {DataType::s4x2, DataType::e2m1x2, DataType::hif4x2, DataType::e4m3, DataType::u8,
                              DataType::fp16, DataType::fp32,   DataType::fp64,   DataType::s64};

struct Code {
  isa::TransferLayout code;
  TileLayout from;
  TileLayout to;
};
constexpr Code ordinary_codes[] = {{norm, nd, nd},  {nd2dn, nd, dn}, {nd2zn, nd, zn}, {nd2nz, nd, nz}, {dn2nd, dn, nd},
                                   {dn2zn, dn, zn}, {dn2nz, dn, nz}, {zn2nd, zn, nd}, {zn2dn, zn, dn}, {zn2nz, zn, nz},
                                   {nz2nd, nz, nd}, {nz2dn, nz, dn}, {nz2zn, nz, zn}};
struct CubeCode {
  isa::TransferLayout load;
  isa::TransferLayout store;
  TileLayout layout;
};
constexpr CubeCode cube_codes[] = {{nd2m16, m162nd, TileLayout::cube_m16},
                                   {nd2m32, m322nd, TileLayout::cube_m32},
                                   {nd2n8, n82nd, TileLayout::cube_n8}};

constexpr uint64 base = 0x40000;
constexpr uint64 other_base = 0x80000;

std::string fault_name(const Outcome& o) {
  return o.fault ? std::string(rule(o.fault->id).name) : "none";
}

/// The lane at an element position of a dense image in memory.
uint64 lane(const Memory& memory, uint64 from, uint64 byte_offset, std::size_t index, unsigned bits) {
  if (bits == 4) return (memory.byte(from + byte_offset + index / 2) >> (4 * (index % 2))) & 0xF;
  uint64 w = 0;
  for (unsigned i = 0; i < bits / 8; ++i)
    w |= uint64{memory.byte(from + byte_offset + index * bits / 8 + i)} << (8 * i);
  return w;
}

/// Where (r, c) is in memory in this order; computed here once more, by the words of the contract.
uint64 memory_lane(const Memory& memory, TileLayout order, unsigned bits, uint64 stride, std::uint32_t rows,
                   std::uint32_t cols, std::uint32_t r, std::uint32_t c) {
  if (order == nd) return lane(memory, base, r * stride, c, bits);
  if (order == dn) return lane(memory, base, c * stride, r, bits);
  const std::size_t inner = 256 / bits;
  const std::size_t fractal = 16 * inner;
  const std::size_t index = order == zn ? (r / 16 * (cols / inner) + c / inner) * fractal + c % inner * 16 + r % 16
                                        : (c / inner * (rows / 16) + r / 16) * fractal + r % 16 * inner + c % inner;
  return lane(memory, base, 0, index, bits);
}

void fill_memory(Memory& memory, std::uint64_t seed) {
  bitcube::test::Operands random(seed);
  std::vector<std::uint8_t> bytes(0x10000);
  for (auto& b : bytes) b = static_cast<std::uint8_t>(random.raw());
  memory.write(base, bytes);
  memory.map(other_base, 0x20000);
}

TEST(Transfer, LoadsEveryOrdinaryOrder) {
  for (const Code& code : ordinary_codes) {
    for (const DataType type : types) {
      const unsigned bits = format_of(type).lane_bits;
      const std::uint32_t cols = std::max(64U, 256 / bits);
      const std::uint32_t capacity = 32 * cols * bits / 8;
      const std::uint32_t valid_cols = cols - 3;
      const std::uint32_t valid_rows = 29;
      const uint64 stride = 1024;
      Core core;
      fill_memory(core.state().memory, 3);
      core.state().pe[0].gpr[a0] = base;
      core.state().pe[0].gpr[a1] = stride;
      const Outcome o =
          run_words(core, {start(Form::bstart_tload, type), datr(code.code, DataType::none), dim(0, valid_cols),
                           dim(1, valid_rows), dim(2, cols), ior(a0, a1), to_hand(2, size_code(capacity)), bstop});
      ASSERT_TRUE(o.completed) << static_cast<int>(code.code) << " " << format_of(type).name << " " << fault_name(o);
      const Tile& tile = *core.state().pe[0].local[m(1)];
      EXPECT_EQ(tile.descriptor().layout, code.to);
      EXPECT_EQ(tile.descriptor().rows, 32U);
      EXPECT_EQ(check_descriptor(tile.descriptor(), local_capacity_limit), DescriptorFault::none);
      for (std::uint32_t r = 0; r < 32; ++r) {
        for (std::uint32_t c = 0; c < cols; ++c) {
          const bool valid = r < valid_rows && c < valid_cols;
          const uint64 want = valid ? memory_lane(core.state().memory, code.from, bits, stride, 32, cols, r, c) : 0;
          ASSERT_EQ(tile.element(r, c), want) << r << "," << c;
          ASSERT_TRUE(tile.defined(r, c));  // PadValue Zero
        }
      }
    }
  }
}

// Load, then store with the code of the way back: the bytes of the valid region return, all others stay.
TEST(Transfer, StoreIsTheInverseOfLoad) {
  const auto back = [](const Code& code) {
    for (const Code& x : ordinary_codes) {
      if (x.from == code.to && x.to == code.from) return x.code;
    }
    return norm;
  };
  for (const Code& code : ordinary_codes) {
    if (code.from == zn && code.to == nz) continue;  // its way back is NZ2ZN, below
    for (const DataType type : types) {
      const unsigned bits = format_of(type).lane_bits;
      const std::uint32_t cols = std::max(32U, 256 / bits);
      const int size = size_code(16 * cols * bits / 8);
      Core core;
      fill_memory(core.state().memory, 4);
      auto& gpr = core.state().pe[0].gpr;
      gpr[a0] = base;
      gpr[a1] = 512;
      ASSERT_TRUE(run_words(core, {start(Form::bstart_tload, type), datr(code.code, DataType::none), dim(0, cols - 1),
                                   dim(1, 15), dim(2, cols), ior(a0, a1), to_hand(0, size), bstop})
                      .completed);
      gpr[a0] = other_base;
      const Outcome o = run_words(core, {start(Form::bstart_tstore, type), datr(back(code), DataType::none),
                                         ior(a0, a1), from_name(t(1)), bstop});
      ASSERT_TRUE(o.completed) << static_cast<int>(code.code) << " " << format_of(type).name << " " << fault_name(o);
      EXPECT_EQ(o.stores, 15U * (cols - 1));
      // Loading the stored image gives the same Tile.
      ASSERT_TRUE(run_words(core, {start(Form::bstart_tload, type), datr(code.code, DataType::none), dim(0, cols - 1),
                                   dim(1, 15), dim(2, cols), ior(a0, a1), to_hand(1, size), bstop})
                      .completed);
      EXPECT_TRUE(same_tile(core.state().pe[0].local[t(1)], core.state().pe[0].local[u(1)]));
    }
  }
}

TEST(Transfer, CubeLoadAndStore) {
  for (const CubeCode& code : cube_codes) {
    for (const DataType type : types) {
      const unsigned bits = format_of(type).lane_bits;
      if (bits == 64) continue;
      for (const std::uint32_t rows : {1U, 7U, 16U, 29U}) {
        if (rows > 16 && code.layout == TileLayout::cube_m16) continue;
        for (const std::uint32_t cols : {1U, 8U, 37U}) {
          const auto g = cube_geometry(code.layout, bits, rows, cols);
          const int size = size_code(g->storage_bytes);
          Core core;
          fill_memory(core.state().memory, rows * 100 + cols);
          auto& gpr = core.state().pe[0].gpr;
          gpr[a0] = base;
          gpr[a1] = 256;
          Outcome o = run_words(core, {start(Form::bstart_tload, type), datr(code.load, DataType::none, PadValue::null),
                                       dim(0, cols), dim(1, rows), ior(a0, a1), to_hand(3, size), bstop});
          ASSERT_TRUE(o.completed) << fault_name(o);
          const Tile& tile = *core.state().pe[0].local[n(1)];
          EXPECT_EQ(tile.descriptor().layout, code.layout);
          EXPECT_EQ(tile.descriptor().location, Location::matrix);
          for (std::uint32_t r = 0; r < rows; ++r) {
            for (std::uint32_t c = 0; c < cols; ++c) {
              ASSERT_EQ(tile.element(r, c), memory_lane(core.state().memory, nd, bits, 256, 0, 0, r, c));
            }
          }
          EXPECT_TRUE(g->columns == cols || !tile.defined(0, cols));
          gpr[a0] = other_base;
          o = run_words(core, {start(Form::bstart_tstore, type), datr(code.store, DataType::none), dim(0, cols),
                               dim(1, rows), ior(a0, a1), from_name(n(1)), bstop});
          ASSERT_TRUE(o.completed) << fault_name(o);
          for (std::uint32_t r = 0; r < rows; ++r) {
            for (std::uint32_t c = 0; c < cols; ++c) {
              ASSERT_EQ(lane(core.state().memory, other_base, r * 256, c, bits), tile.element(r, c));
            }
          }
        }
      }
    }
  }
}

TEST(Transfer, NibblesMergeIntoTheirBytes) {
  Core core;
  core.state().memory.write(base, std::vector<std::uint8_t>(64, 0xAB));
  core.set_local(0, t(1),
                 row_major(
                     DataType::u4x2, 2, 3, [](auto r, auto c) { return 1 + r * 3 + c; }, 4));
  core.state().pe[0].gpr[a0] = base;
  core.state().pe[0].gpr[a1] = 4;
  ASSERT_TRUE(
      run_words(core, {start(Form::bstart_tstore, DataType::u4x2), ior(a0, a1), from_name(t(1)), bstop}).completed);
  EXPECT_EQ(core.state().memory.read(base, 8),
            (std::vector<std::uint8_t>{0x21, 0xA3, 0xAB, 0xAB, 0x54, 0xA6, 0xAB, 0xAB}));
}

TEST(Transfer, PaddingValues) {
  const auto pad_of = [](DataType type, PadValue pad) {
    Core core;
    core.state().memory.map(base, 4096);
    const Outcome o = run_words(core, {start(Form::bstart_tload, type), datr(nd2m16, DataType::none, pad), dim(0, 1),
                                       dim(1, 1), ior(a0), to_hand(0, 1), bstop});
    EXPECT_TRUE(o.fault) << "base 0 is not mapped";
    core.state().pe[0].gpr[a0] = base;
    EXPECT_TRUE(core.step(bstop).completed);
    const Tile& tile = *core.state().pe[0].local[t(1)];
    EXPECT_TRUE(tile.defined(0, 0));
    EXPECT_EQ(tile.defined(15, 0), pad != PadValue::null);
    return tile.element(15, 0);
  };
  EXPECT_EQ(pad_of(DataType::fp16, PadValue::zero), 0U);
  EXPECT_EQ(pad_of(DataType::fp16, PadValue::null), 0U);
  EXPECT_EQ(pad_of(DataType::fp16, PadValue::max), 0x7BFFU);
  EXPECT_EQ(pad_of(DataType::fp16, PadValue::min), 0xFBFFU);
  EXPECT_EQ(pad_of(DataType::e4m3, PadValue::min), 0xFEU);
  EXPECT_EQ(pad_of(DataType::hif8, PadValue::min), 0xEEU);
  EXPECT_EQ(pad_of(DataType::s8, PadValue::max), 0x7FU);
  EXPECT_EQ(pad_of(DataType::s8, PadValue::min), 0x80U);
  EXPECT_EQ(pad_of(DataType::u8, PadValue::max), 0xFFU);
  EXPECT_EQ(pad_of(DataType::u8, PadValue::min), 0U);
  EXPECT_EQ(pad_of(DataType::e8m0, PadValue::max), 0xFEU);
  EXPECT_EQ(pad_of(DataType::e8m0, PadValue::min), 0U);
  EXPECT_EQ(pad_of(DataType::hif4x2, PadValue::max), 7U);
  EXPECT_EQ(pad_of(DataType::hif4x2, PadValue::min), 0xFU);
  EXPECT_EQ(pad_of(DataType::s4x2, PadValue::min), 8U);
}

TEST(Transfer, StridesAndDefaults) {
  Core core;
  core.state().memory.map(0, 4096);
  for (std::uint8_t i = 0; i < 64; ++i) core.state().memory.set_byte(i, i);
  core.state().memory.write(base, std::vector<std::uint8_t>{9, 8, 7, 6, 5, 4, 3, 2});
  // Without B.IOR the base is 0 and the rows follow each other with the physical columns.
  ASSERT_TRUE(
      run_words(core, {start(Form::bstart_tload, DataType::u8), dim(0, 3), dim(1, 2), dim(2, 4), to_hand(0, 1), bstop})
          .completed);
  EXPECT_EQ(core.state().pe[0].local[t(1)]->valid_words(), (std::vector<uint64>{0, 1, 2, 4, 5, 6}));
  EXPECT_FALSE(core.state().pe[0].local[t(1)]->defined(0, 3));  // no B.DATR: Null
  // CUBE: with the valid columns.
  ASSERT_TRUE(run_words(core, {start(Form::bstart_tload, DataType::u8), datr(nd2m16, DataType::none), dim(0, 3),
                               dim(1, 2), to_hand(0, 1), bstop})
                  .completed);
  EXPECT_EQ(core.state().pe[0].local[t(1)]->valid_words(), (std::vector<uint64>{0, 1, 2, 3, 4, 5}));
  // A stride of 0 repeats the row.
  core.state().pe[0].gpr[a0] = base;
  ASSERT_TRUE(
      run_words(core, {start(Form::bstart_tload, DataType::u8), dim(0, 2), dim(1, 3), ior(a0), to_hand(0, 1), bstop})
          .completed);
  EXPECT_EQ(core.state().pe[0].local[t(1)]->valid_words(), (std::vector<uint64>{9, 8, 9, 8, 9, 8}));
}

TEST(Transfer, EveryPeItsOwnAddresses) {
  Core core;
  fill_memory(core.state().memory, 9);
  for (unsigned pe = 0; pe < pe_count; ++pe) {
    core.state().pe[pe].gpr[a0] = base + 64 * pe;
    core.state().pe[pe].gpr[a1] = 16;
  }
  ASSERT_TRUE(run_words(core, {start(Form::bstart_tload, DataType::u8), datr(nd2m32, DataType::none), dim(0, 8),
                               dim(1, 4), ior(a0, a1), to_hand(1, 3, 7), bstop})
                  .completed);
  for (unsigned pe = 0; pe < pe_count; ++pe) {
    EXPECT_EQ(core.state().pe[pe].local[u(1)]->element(2, 5), core.state().memory.byte(base + 64 * pe + 37));
    core.state().pe[pe].gpr[a0] = other_base + 64 * pe;
  }
  // The fault of one PE holds back all.
  const Core before = core;
  core.state().pe[2].gpr[a0] = 0x9999999;
  Outcome o = run_words(core, {start(Form::bstart_tstore, DataType::u8), datr(m322nd, DataType::none), dim(0, 8),
                               dim(1, 4), ior(a0, a1), from_name(u(1), 7), bstop});
  ASSERT_TRUE(o.fault);
  EXPECT_EQ(o.fault->id, RuleId::T12);
  EXPECT_EQ(o.fault->pe, 2);
  EXPECT_EQ(core.state().memory, before.state().memory);
  core.state().pe[2].gpr[a0] = other_base + 128;
  EXPECT_TRUE(core.step(bstop).completed);
  EXPECT_EQ(core.state().memory.byte(other_base + 128 + 37), core.state().memory.byte(base + 128 + 37));
}

TEST(Transfer, SharedLoadAndStore) {
  Core core;
  fill_memory(core.state().memory, 10);
  core.state().pe[1].gpr[a0] = base;
  core.state().pe[1].gpr[a1] = 32;
  const Outcome loaded = run_words(core, {start(Form::bstart_tload, DataType::fp16), dim(0, 16), dim(1, 8), ior(a0, a1),
                                          shared_binding(33, 2, 2), bstop});
  ASSERT_TRUE(loaded.completed) << fault_name(loaded);
  ASSERT_TRUE(loaded.shared);
  EXPECT_EQ(loaded.shared->id, 33U);
  EXPECT_EQ(core.state().shared[33].allocation_mask, 4U);
  EXPECT_EQ(core.state().shared_pool(), 256U);
  // Overwriting charges once.
  ASSERT_TRUE(run_words(core, {start(Form::bstart_tload, DataType::fp16), dim(0, 16), dim(1, 8), ior(a0, a1),
                               shared_binding(33, 12, 2), bstop})
                  .completed);
  EXPECT_EQ(core.state().shared_pool(), 256U * 1024);
  const Outcome full = run_words(core, {start(Form::bstart_tload, DataType::fp16), dim(0, 16), dim(1, 8), ior(a0, a1),
                                        shared_binding(34, 2, 2), bstop});
  ASSERT_TRUE(full.fault);
  EXPECT_EQ(full.fault->id, RuleId::G2);
  core.state().header = {};
  // An undefined Shared Tile may be stored.
  Tile undefined = *core.state().shared[33].tile;
  undefined.set_extent(Definedness::Extent::none);
  core.publish_shared(33, undefined);
  core.state().pe[3].gpr[a0] = other_base;
  core.state().pe[3].gpr[a1] = 32;
  const Outcome stored =
      run_words(core, {start(Form::bstart_tstore, DataType::fp16), ior(a0, a1), shared_binding(33, 0, 4), bstop});
  ASSERT_TRUE(stored.completed) << fault_name(stored);
  EXPECT_EQ(core.state().memory.read(other_base, 256), core.state().memory.read(base, 256));
}

TEST(Transfer, MoveChangesTheLayout) {
  const auto pattern = [](std::uint32_t r, std::uint32_t c) { return (r * 37 + c * 11) & 0xFF; };
  const std::pair<isa::TransferLayout, std::pair<TileLayout, TileLayout>> moves[] = {
      {nd2m16, {nd, TileLayout::cube_m16}},
      {nd2m32, {nd, TileLayout::cube_m32}},
      {nd2n8, {nd, TileLayout::cube_n8}},
      {m162nd, {TileLayout::cube_m16, nd}},
      {m322nd, {TileLayout::cube_m32, nd}},
      {n82nd, {TileLayout::cube_n8, nd}},
      {nd2dn, {nd, dn}},
      {nd2zn, {nd, zn}},
      {zn2nz, {zn, nz}},
      {norm, {nz, nz}},
      {norm, {TileLayout::cube_n8, TileLayout::cube_n8}}};
  for (const auto& [code, way] : moves) {
    Core core;
    const auto words = words_of(16, 32, pattern);
    const auto tile = is_cube(way.first) ? make_cube_tile(way.first, DataType::u8, 16, 32, words)
                                         : make_ordinary_tile(way.first, DataType::u8, 16, 32, words);
    ASSERT_TRUE(tile);
    core.set_local(0, t(3), *tile);
    const Outcome o =
        run_words(core, {start(Form::bstart_tmov, DataType::none), datr(code, DataType::none, PadValue::null),
                         from_to(t(3), 3, size_code(1024)), bstop});
    ASSERT_TRUE(o.completed) << fault_name(o);
    EXPECT_EQ(o.tiles[0].tile->descriptor().layout, way.second);
    EXPECT_EQ(o.tiles[0].tile->valid_words(), words);
  }
}

}  // namespace
}  // namespace bitcube::machine::test
