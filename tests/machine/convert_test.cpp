// TCVT, TQUANT and TDEQUANT on Tiles: the elements are those of the numeric and quantize rooms (architecture 7.5
// to 7.7).
#include <gtest/gtest.h>

#include "bitcube/numeric/convert.hpp"
#include "bitcube/quantize/affine.hpp"
#include "machine/assembly.hpp"
#include "support/operands.hpp"

namespace bitcube::machine::test {
namespace {

using isa::PadValue;
using isa::TransferLayout;

/// A word that is an encoding of the format.
uint64 legal_word(bitcube::test::Operands& random, const Format& f) {
  for (;;) {
    const uint64 w = random.word(f);
    if (decode(f, w).cls != Class::invalid) return w;
  }
}

TEST(Convert, EveryLegalPair) {
  bitcube::test::Operands random(11);
  std::size_t pairs = 0;
  for (const Format& from : formats) {
    for (const Format& to : formats) {
      if (tile_format(from.type) == nullptr || tile_format(to.type) == nullptr) continue;
      const std::uint32_t cols = 64;
      const auto tile = make_ordinary_tile(TileLayout::row_major, from.type, 15, cols - 5,
                                           words_of(15, cols - 5, [&](auto, auto) { return legal_word(random, from); }),
                                           cols, 16 * cols * from.lane_bits / 8);
      ASSERT_TRUE(tile);
      const int rmode = static_cast<int>(random.below(8));
      const bool sat = random.chance(2);
      Core core;
      core.set_local(0, t(1), *tile);
      const Outcome o =
          run_words(core, {start(Form::bstart_tcvt, from.type),
                           datr(TransferLayout::norm, to.type, PadValue::max, rmode, sat), dim(0, cols - 5), dim(1, 15),
                           dim(2, cols), from_to(t(1), 1, size_code(16 * cols * to.lane_bits / 8)), bstop});
      EncodeControl control;
      control.rounding = rmode == 0 ? default_rounding(from.is_integer(), to) : static_cast<Rounding>(rmode);
      control.saturate = sat;
      const bool legal = conversion_legal(from, to) && rounding_legal(from, to, control.rounding);
      ASSERT_EQ(o.completed, legal) << from.name << " to " << to.name;
      if (!legal) {
        EXPECT_EQ(o.fault->id, RuleId::V3);
        continue;
      }
      ++pairs;
      Flags flags = Flags::none;
      const Tile& out = *o.tiles[0].tile;
      for (std::uint32_t r = 0; r < 15; ++r) {
        for (std::uint32_t c = 0; c < cols - 5; ++c) {
          const Encoded e = convert(from, to, tile->element(r, c), control);
          flags |= e.flags;
          ASSERT_EQ(out.element(r, c), e.bits) << from.name << " to " << to.name;
        }
      }
      EXPECT_EQ(static_cast<int>(o.flags), static_cast<int>(flags));
      EXPECT_EQ(static_cast<int>(core.state().flags), static_cast<int>(flags));
      EXPECT_TRUE(out.defined(15, 0));
      EXPECT_EQ(out.element(15, 0), to.max_finite);
    }
  }
  EXPECT_GT(pairs, 200U);
}

TEST(Convert, CubeLayoutsStay) {
  for (const TileLayout layout : {TileLayout::cube_m16, TileLayout::cube_m32}) {
    Core core;
    const auto tile = make_cube_tile(layout, DataType::fp32, 9, 7,
                                     words_of(9, 7, [](auto r, auto c) { return 0x3F800000 + ((r + c) << 20); }));
    ASSERT_TRUE(tile);
    core.set_local(0, t(1), *tile);
    const Outcome o =
        run_words(core, {start(Form::bstart_tcvt, DataType::fp32), datr(TransferLayout::norm, DataType::e4m3),
                         dim(0, 7), dim(1, 9), from_to(t(1), 1, 2), bstop});
    ASSERT_TRUE(o.completed);
    const Tile& out = *o.tiles[0].tile;
    EXPECT_EQ(out.descriptor().layout, layout);
    EXPECT_EQ(check_descriptor(out.descriptor(), local_capacity_limit), DescriptorFault::none);
    for (std::uint32_t r = 0; r < 9; ++r) {
      for (std::uint32_t c = 0; c < 7; ++c) {
        EXPECT_EQ(out.element(r, c), convert(fp32, e4m3, tile->element(r, c), {}).bits);
      }
    }
  }
}

TEST(Convert, QuantiseAndDequantise) {
  bitcube::test::Operands random(12);
  for (const DataType integer : {DataType::s8, DataType::u8}) {
    for (const bool sat : {false, true}) {
      const Format& f = format_of(integer);
      const AffineParameters p{0x3FC00000, integer == DataType::s8 ? ~uint64{6} : 200};
      const auto tile = make_ordinary_tile(TileLayout::row_major, DataType::fp32, 5, 13,
                                           words_of(5, 13, [&](auto, auto) { return random.word(fp32); }), 16);
      ASSERT_TRUE(tile);
      Core core;
      core.state().options.conversion = find_conversion_profile("asl");
      core.set_local(0, t(1), *tile);
      core.state().pe[0].gpr[a0] = p.multiplier;
      core.state().pe[0].gpr[a1] = p.zero_point;
      Outcome o = run_words(core, {start(Form::bstart_tquant, DataType::fp32),
                                   datr(TransferLayout::norm, integer, PadValue::zero, 5, sat), dim(0, 13), dim(1, 5),
                                   dim(2, 16), ior(a0, a1), from_to(t(1), 1, 1), bstop});
      ASSERT_TRUE(o.completed);
      Flags flags = Flags::none;
      const Tile q = *o.tiles[0].tile;
      for (std::uint32_t r = 0; r < 5; ++r) {
        for (std::uint32_t c = 0; c < 13; ++c) {
          const Encoded e = affine_quantize(f, tile->element(r, c), p, Rounding::rna, sat);
          flags |= e.flags;
          EXPECT_EQ(q.element(r, c), e.bits);
        }
      }
      EXPECT_EQ(static_cast<int>(o.flags), static_cast<int>(flags));
      EXPECT_FALSE(q.defined(0, 13));
      o = run_words(core, {start(Form::bstart_tdequant, integer), datr(TransferLayout::norm, DataType::fp32),
                           dim(0, 13), dim(1, 5), dim(2, 16), ior(a0, a1), from_to(u(1), 2, size_code(512)), bstop});
      ASSERT_TRUE(o.completed) << rule(o.fault->id).name;
      for (std::uint32_t r = 0; r < 5; ++r) {
        for (std::uint32_t c = 0; c < 13; ++c) {
          EXPECT_EQ(o.tiles[0].tile->element(r, c),
                    affine_dequantize(f, q.element(r, c), p, Rounding::rne, *find_conversion_profile("asl")).bits);
        }
      }
    }
  }
}

}  // namespace
}  // namespace bitcube::machine::test
