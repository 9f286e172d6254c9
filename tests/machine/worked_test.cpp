// The worked bundles W1 to W10 of architecture 8: states after each of them.
#include <gtest/gtest.h>

#include <cstring>

#include "machine/scenario.hpp"

namespace bitcube::machine::test {
namespace {

const Tile& tile(const Scenario& s, unsigned name, unsigned pe = 0) {
  return *s.core.state().pe[pe].local[name];
}

std::uint32_t fp32_at(const Tile& t, std::size_t byte) {
  std::uint32_t word = 0;
  std::memcpy(&word, t.bytes().data() + byte, 4);
  return word;
}

/// Completes, and the header is gone.
Progress accepted(Scenario& s) {
  const Progress r = run(s);
  EXPECT_TRUE(r.outcome.ok()) << "word " << r.index << " rule "
                              << (r.outcome.fault ? rule(r.outcome.fault->id).name : "");
  EXPECT_TRUE(r.outcome.completed);
  EXPECT_EQ(s.core.state().header, Header{});
  EXPECT_EQ(s.core.state().bpc, 0U);
  return r;
}

TEST(Worked, W1LocalMxBias) {
  Scenario s = w1();
  const Core before = s.core;
  const Progress r = accepted(s);
  const State& state = s.core.state();
  EXPECT_EQ(state.tpc, 4 * s.words.size());
  const Tile& d = tile(s, u(1));
  const TileDescriptor& x = d.descriptor();
  EXPECT_EQ(x.type, DataType::fp32);
  EXPECT_EQ(x.layout, TileLayout::cube_m16);
  EXPECT_EQ(x.location, Location::matrix);
  EXPECT_EQ(x.valid_rows, 16U);
  EXPECT_EQ(x.valid_columns, 8U);
  EXPECT_EQ(x.capacity_bytes, 512U);
  EXPECT_EQ(x.cube_k_repeat, 4U);
  EXPECT_TRUE(d.contents_defined());
  EXPECT_EQ(fp32_at(d, 0), 0x41000000U);
  EXPECT_EQ(fp32_at(d, 4), 0x42040000U);
  EXPECT_EQ(fp32_at(d, 168), 0x42080000U);
  EXPECT_EQ(fp32_at(d, 404), 0x43070000U);
  EXPECT_EQ(d.element(5, 2), 0x42080000U);
  EXPECT_EQ(d.element(2, 7), 0x43070000U);
  EXPECT_EQ(state.flags, Flags::none);
  EXPECT_EQ(state.local_pool(0), before.state().local_pool(0) + 512);
  for (unsigned i = 1; i <= 5; ++i) EXPECT_TRUE(same_tile(state.pe[0].local[t(i)], before.state().pe[0].local[t(i)]));
  ASSERT_EQ(r.outcome.tiles.size(), 1U);
  EXPECT_EQ(r.outcome.tiles[0].name, u(1));
  EXPECT_EQ(r.outcome.tiles[0].role, Role::d);
}

TEST(Worked, W1FirstBytesAndCompressedDimension) {
  const isa::Decoded start = isa::decode(std::uint64_t{0x38531181});
  ASSERT_TRUE(start);
  EXPECT_EQ(start->operation(), isa::Operation::tmatmul_mx_bias);
  Scenario s = w1();
  s.replace(0x01000043, 0x043C);  // C.B.DIMI 16, ->LB0
  accepted(s);
  EXPECT_EQ(s.core.state().tpc, 4 * s.words.size() - 2);
  EXPECT_EQ(tile(s, u(1)).element(0, 0), 0x41000000U);
}

TEST(Worked, W1RunsFromMemory) {
  Scenario s = w1();
  s.core.state().tpc = 0x8000;
  uint64 at = 0x8000;
  for (const uint64 w : s.words) {
    std::uint8_t bytes[4];
    std::memcpy(bytes, &w, 4);
    s.core.state().memory.write(at, bytes);
    at += 4;
  }
  const std::uint8_t first[] = {0x81, 0x11, 0x53, 0x38};
  EXPECT_EQ(s.core.state().memory.read(0x8000, 4), std::vector<std::uint8_t>(first, first + 4));
  for (std::size_t i = 0; i < s.words.size(); ++i) ASSERT_TRUE(s.core.step().ok()) << i;
  EXPECT_EQ(tile(s, u(1)).element(0, 1), 0x42040000U);
}

TEST(Worked, W2MixedTypesOnAllPes) {
  Scenario s = w2();
  const Progress r = accepted(s);
  EXPECT_EQ(r.outcome.tiles.size(), 4U);
  for (unsigned pe = 0; pe < pe_count; ++pe) {
    const Tile& d = tile(s, u(1), pe);
    EXPECT_EQ(d.descriptor().type, DataType::fp16);
    EXPECT_EQ(d.descriptor().layout, TileLayout::cube_m16);
    EXPECT_EQ(d.descriptor().capacity_bytes, 512U);
    EXPECT_EQ(d.descriptor().cube_cell_count, 3U);
    for (std::uint32_t i = 0; i < 5; ++i) {
      for (std::uint32_t j = 0; j < 9; ++j) EXPECT_EQ(d.element(i, j), j == 0 ? 0x5500U : 0U);
    }
    // Padding is undefined.
    EXPECT_FALSE(d.defined(5, 0));
    EXPECT_FALSE(d.defined(0, 9));
  }
}

TEST(Worked, W3HiF4) {
  Scenario s = w3();
  accepted(s);
  for (const uint64 w : tile(s, u(1)).valid_words()) EXPECT_EQ(w, 0x42E40000U);
}

TEST(Worked, W4CooperativeAllShared) {
  Scenario s = w4();
  const Core before = s.core;
  accepted(s);
  const std::uint32_t rows[] = {16, 16, 8};
  const uint64 value[] = {0x42000000, 0x42040000, 0x42840000};
  for (unsigned pe = 0; pe < 3; ++pe) {
    const Tile& d = tile(s, u(1), pe);
    EXPECT_EQ(d.descriptor().layout, TileLayout::cube_m16);
    EXPECT_EQ(d.descriptor().valid_rows, rows[pe]);
    EXPECT_EQ(d.descriptor().valid_columns, 16U);
    EXPECT_EQ(d.descriptor().capacity_bytes, 1024U);
    EXPECT_EQ(d.descriptor().allocation_mask, pe_bit(pe));
    for (const uint64 w : d.valid_words()) EXPECT_EQ(w, value[pe]);
  }
  EXPECT_EQ(s.core.state().pe[3], before.state().pe[3]);
  EXPECT_EQ(s.core.state().shared, before.state().shared);
}

TEST(Worked, W5RightOnlyTransposed) {
  Scenario s = w5();
  accepted(s);
  EXPECT_EQ(tile(s, n(1), 0).descriptor().valid_rows, 16U);
  EXPECT_EQ(tile(s, n(1), 1).descriptor().valid_rows, 4U);
  for (unsigned pe = 0; pe < 2; ++pe) {
    const Tile& d = tile(s, n(1), pe);
    EXPECT_EQ(d.descriptor().cube_cell_count, 4U);
    EXPECT_EQ(d.element(0, 0), 0x41800000U);
    EXPECT_EQ(d.element(3, 7), 0x43000000U);
  }
  EXPECT_EQ(s.core.state().pe[2].local[n(1)], nullptr);
  EXPECT_EQ(s.core.state().pe[3].local[n(1)], nullptr);
}

TEST(Worked, W6AccWithCScaleAndRowMax) {
  Scenario s = w6();
  accepted(s);
  const Tile& d = tile(s, t(1));
  EXPECT_EQ(d.descriptor().layout, TileLayout::cube_m16);
  EXPECT_EQ(d.element(0, 0), 0x40C00000U);
  EXPECT_EQ(d.element(0, 1), 0x40C00000U);
  EXPECT_EQ(d.element(1, 1), 0x40400000U);
  const Tile& row_max = tile(s, m(1));
  EXPECT_EQ(row_max.descriptor().layout, TileLayout::row_major);
  EXPECT_EQ(row_max.valid_words(), (std::vector<uint64>{0x42C80000, 0x40400000}));
  EXPECT_EQ(tile(s, u(3)).element(0, 0), 0x41000000U);
}

TEST(Worked, W7RequantisationAndGroupMax) {
  Scenario s = w7();
  accepted(s);
  const Tile& d = tile(s, u(1));
  EXPECT_EQ(d.descriptor().type, DataType::s8);
  EXPECT_EQ(d.descriptor().cube_cell_count, 1U);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(d.bytes()[i], i % 2 == 0 ? 0x2D : 0xE3);
  const Tile& g = tile(s, n(1));
  EXPECT_EQ(g.descriptor().type, DataType::s32);
  EXPECT_EQ(g.valid_words(), std::vector<uint64>(4, 96));
}

TEST(Worked, W8Gemv) {
  Scenario s = w8();
  accepted(s);
  const Tile& d = tile(s, u(1));
  EXPECT_EQ(d.descriptor().capacity_bytes, 512U);
  EXPECT_EQ(d.valid_words(), std::vector<uint64>(8, 0x42C80000));
}

TEST(Worked, W9aLoadIntoM16) {
  Scenario s = w9a();
  accepted(s);
  const Tile& x = tile(s, t(1));
  EXPECT_EQ(x.descriptor().layout, TileLayout::cube_m16);
  EXPECT_EQ(x.descriptor().cube_cell_count, 8U);
  EXPECT_EQ(x.descriptor().capacity_bytes, 1024U);
  EXPECT_EQ(x.element(0, 0), 0x1000U);
  EXPECT_EQ(x.element(15, 31), 0x11FFU);
  EXPECT_EQ(x.element(3, 6), 0x1000U + 3 * 32 + 6);
}

TEST(Worked, W9bStoreFromM16) {
  Scenario s = w9b();
  const Progress r = accepted(s);
  EXPECT_EQ(r.outcome.stores, 128U);
  EXPECT_EQ(s.core.state().memory.load(0x20000 + 5 * 32 + 2 * 4, 4), 0x40000000U + 5 * 8 + 2);
}

TEST(Worked, W9cConvert) {
  Scenario s = w9c();
  const Progress r = accepted(s);
  const Tile& x = tile(s, u(1));
  EXPECT_EQ(x.descriptor().type, DataType::fp16);
  EXPECT_EQ(x.descriptor().rows, 4U);
  EXPECT_EQ(x.element(0, 0), 0x3C00U);
  EXPECT_EQ(x.element(1, 0), 0x4000U);
  EXPECT_EQ(r.outcome.flags, Flags::inexact);
  EXPECT_EQ(s.core.state().flags, Flags::inexact);
}

TEST(Worked, W9dQuantise) {
  Scenario s = w9d();
  accepted(s);
  EXPECT_EQ(tile(s, u(1)).element(0, 0), 16U);
  EXPECT_EQ(tile(s, u(1)).element(1, 0), 127U);
}

TEST(Worked, W9eDequantise) {
  Scenario s = w9e();
  accepted(s);
  EXPECT_EQ(tile(s, t(1)).element(0, 0), 0x3FA66667U);
}

TEST(Worked, W9fLoadShared) {
  Scenario s = w9f();
  accepted(s);
  const SharedRecord& x = s.core.state().shared[6];
  ASSERT_NE(x.tile, nullptr);
  EXPECT_TRUE(x.published && x.whole_parent_ready);
  EXPECT_EQ(x.tile->descriptor().valid_rows, 32U);
  EXPECT_EQ(x.tile->element(31, 15), static_cast<std::uint8_t>(511 * 7));
}

TEST(Worked, W10ZeroParticipation) {
  Scenario s = w10();
  const Core before = s.core;
  const Progress r = accepted(s);
  EXPECT_TRUE(r.outcome.tiles.empty());
  Core expected = before;
  expected.state().tpc = s.core.state().tpc;
  EXPECT_EQ(s.core, expected);
}

// Architecture 8.11.
TEST(Worked, SmallIntegerProduct) {
  Scenario s;
  s.words = {0x98031181, 0x00002023, 0x00200043, 0x00201043, 0x00302043, 0x0408C293, bstop};
  s.local(t(1), m16(DataType::s8, 2, 3, [](auto r, auto c) { return r * 3 + c + 1; }));
  s.local(t(2), n8(DataType::s8, 3, 2, [](auto r, auto c) { return r * 2 + c + 1; }));
  accepted(s);
  EXPECT_EQ(tile(s, u(1)).valid_words(), (std::vector<uint64>{22, 28, 49, 64}));
}

TEST(Worked, RetryAfterRepair) {
  Scenario s = w1();
  s.edit(t(1), [](Tile& x) { x.undefine_element(3, 3); });
  const Progress r = run(s);
  ASSERT_TRUE(r.outcome.fault);
  EXPECT_EQ(r.outcome.fault->id, RuleId::F7);
  EXPECT_TRUE(s.core.state().header.active);
  s.edit(t(1), [](Tile& x) { x.set_element(3, 3, 0x38); });
  EXPECT_TRUE(s.core.step(bstop).completed);
  EXPECT_EQ(tile(s, u(1)).element(5, 2), 0x42080000U);
}

}  // namespace
}  // namespace bitcube::machine::test
