// The lifecycle of bundles, names, options and the value semantics of a Core (architecture 1.3, 2.13, 5, 9.4).
#include "bitcube/machine/core.hpp"

#include <gtest/gtest.h>

#include "machine/assembly.hpp"

namespace bitcube::machine::test {
namespace {

constexpr std::uint32_t fp32_one = 0x3F800000;

TEST(Core, CopiesAreIndependentValues) {
  Scenario s = w1();
  const Core copy = s.core;
  EXPECT_EQ(copy, s.core);
  run(s);
  EXPECT_NE(copy, s.core);
  Scenario again = w1();
  EXPECT_EQ(again.core, copy);  // equal by content, not by identity
  run(again);
  EXPECT_EQ(again.core, s.core);
  Core memory_copy = copy;
  memory_copy.state().memory.set_byte(5, 7);
  EXPECT_FALSE(copy.state().memory.mapped(5));
  Core second = memory_copy;
  second.state().memory.set_byte(5, 8);
  EXPECT_EQ(memory_copy.state().memory.byte(5), 7);
}

TEST(Core, RegisterZeroReadsZero) {
  Core core;
  core.state().pe[0].gpr[0] = 99;  // only a hand can do this
  EXPECT_EQ(core.state().pe[0].read(0), 0U);
  ASSERT_TRUE(run_words(core, {0x38531181, 0x01000043}).ok());
  EXPECT_EQ(core.state().header.lb[0], 16);
}

TEST(Core, DimensionsAddRegisterAndImmediateModulo65536) {
  Core core;
  core.state().pe[0].gpr[a0] = 0x1FFFF;
  core.state().pe[2].gpr[a0] = 100;
  ASSERT_TRUE(core.step(0x38531181).ok());
  ASSERT_TRUE(core.step(word_of(Instruction(Form::b_dim_lb0).set(Field::reg_src, 2).set(Field::imm, 0x1F003))).ok());
  EXPECT_EQ(core.state().header.lb[0], static_cast<std::uint16_t>(0x1FFFF + 0x1F003));
  core.state().options.scalar_pe = 2;
  ASSERT_TRUE(core.step(word_of(Instruction(Form::b_dim_lb1).set(Field::reg_src, 2).set(Field::imm, 5))).ok());
  EXPECT_EQ(core.state().header.lb[1], 105);
}

TEST(Core, NextStartCompletesTheBundle) {
  Scenario s = w1();
  s.replace(bstop, 0x20031181);
  const Progress p = run(s);
  EXPECT_TRUE(p.outcome.completed);
  EXPECT_TRUE(p.outcome.started);
  EXPECT_NE(s.core.state().pe[0].local[u(1)], nullptr);
  EXPECT_EQ(s.core.state().header.operation.code, isa::Operation::tmatmul);
  EXPECT_EQ(s.core.state().bpc, 4 * (s.words.size() - 1));
}

TEST(Core, AllStopsAreEqual) {
  const std::pair<uint64, uint64> stops[] = {{0x00000001, 4}, {0x0000, 2}, {0x000000010000000F, 8}};
  Core first;
  for (const auto& [word, length] : stops) {
    Scenario s = w1();
    s.replace(bstop, word);
    run(s);
    EXPECT_EQ(s.core.state().tpc, 4 * (s.words.size() - 1) + length);
    s.core.state().tpc = 0;
    if (word == bstop) first = s.core;
    EXPECT_EQ(s.core, first);
  }
}

TEST(Core, TrapIsReportedAfterCommit) {
  Scenario s = w1();
  s.after(0x38531181, {0x00080023});
  s.replace(bstop, 0x38531181);
  const Progress p = run(s);
  ASSERT_TRUE(p.outcome.fault);
  EXPECT_EQ(p.outcome.fault->fault_class(), FaultClass::bundle_post_commit);
  EXPECT_TRUE(p.outcome.completed);
  EXPECT_FALSE(p.outcome.started);
  EXPECT_NE(s.core.state().pe[0].local[u(1)], nullptr);
  EXPECT_EQ(s.core.state().tpc, 4 * (s.words.size() - 1));  // recovery resumes at the BSTART
  EXPECT_TRUE(s.core.step(0x38531181).started);
}

TEST(Core, ControlBundles) {
  Core core;
  core.state().tpc = 0x1000;
  ASSERT_TRUE(core.step(word_of(Instruction(Form::bstart_direct).set(Field::offset, 16))).started);
  EXPECT_TRUE(core.step(bstop).completed);
  EXPECT_EQ(core.state().tpc, 0x1020U);
  ASSERT_TRUE(core.step(word_of(Instruction(Form::bstart_cond).set(Field::offset, 16))).started);
  EXPECT_TRUE(core.step(bstop).completed);
  EXPECT_EQ(core.state().tpc, 0x1028U);        // nothing sets the condition
  ASSERT_TRUE(core.step(0x00001033).started);  // B.HINT.TRACE opens an empty bundle
  EXPECT_TRUE(core.step(0x00000033).ok());
  EXPECT_EQ(core.step(0x00000033).fault->id, RuleId::A3);
  EXPECT_TRUE(core.step(0).completed);
}

TEST(Core, ZeroMasksBindNothing) {
  Core core;
  EXPECT_TRUE(core.step(0x03F01013).ok());  // even without a bundle
  EXPECT_FALSE(core.state().header.zero_participation);
  ASSERT_TRUE(run_words(core, {0x00531181, 0x03F01013, 0x00000043}).ok());  // FP64, M = 0
  EXPECT_TRUE(core.state().header.zero_participation);
  EXPECT_TRUE(core.step(bstop).completed);
}

TEST(Core, RelativeNamesAge) {
  Scenario s = w1();
  const auto repeat = [&] {
    const Progress p = run(s);
    EXPECT_TRUE(p.outcome.completed);
    return p.outcome.tiles[0].tile;
  };
  std::vector<TileRef> made;
  for (int i = 0; i < 16; ++i) made.push_back(repeat());
  for (unsigned i = 0; i < 16; ++i) EXPECT_EQ(s.core.state().pe[0].local[u(i + 1)], made[15 - i]);
  // The 17th drops the oldest, and its bytes return to the pool.
  const auto pool = s.core.state().local_pool(0);
  made.push_back(repeat());
  EXPECT_EQ(s.core.state().pe[0].local[u(1)], made[16]);
  EXPECT_EQ(s.core.state().pe[0].local[u(16)], made[1]);
  EXPECT_EQ(s.core.state().local_pool(0), pool);
  EXPECT_EQ(*made[0], *made[16]);  // a repeated bundle gives the same contents
}

TEST(Core, AbsoluteNamesTakeTheLowestFreeRegister) {
  Scenario s = w1();
  s.core.state().options.name_policy = NamePolicy::absolute;
  s.local(u(1), row_major(DataType::u8, 1, 1, all(0)));
  s.local(u(3), row_major(DataType::u8, 1, 1, all(0)));
  EXPECT_EQ(run(s).outcome.tiles[0].name, u(2));
  EXPECT_EQ(run(s).outcome.tiles[0].name, u(4));
}

TEST(Core, TwoDestinationsInOneHand) {
  for (const NamePolicy policy : {NamePolicy::relative, NamePolicy::absolute}) {
    Scenario s = w6();
    s.core.state().options.name_policy = policy;
    s.replace(0x0008E313, 0x0008E213);  // RowMaxOut into T as well
    const Progress p = run(s);
    ASSERT_TRUE(p.outcome.completed);
    const bool relative = policy == NamePolicy::relative;
    EXPECT_EQ(p.outcome.tiles[0].role, Role::d);
    EXPECT_EQ(p.outcome.tiles[0].name, relative ? t(2) : t(1));
    EXPECT_EQ(p.outcome.tiles[1].name, relative ? t(1) : t(2));
    EXPECT_EQ(s.core.state().pe[0].local[p.outcome.tiles[1].name]->valid_words()[0], 0x42C80000U);
  }
}

TEST(Core, AllPesOrNone) {
  Scenario s = w2();
  s.core.state().pe[3].local[t(4)] = nullptr;
  const Core before = s.core;
  const Progress p = run(s);
  ASSERT_TRUE(p.outcome.fault);
  EXPECT_EQ(p.outcome.fault->pe, 3);
  EXPECT_EQ(p.outcome.fault->role, Role::bias);
  for (unsigned pe = 0; pe < pe_count; ++pe) EXPECT_EQ(s.core.state().pe[pe], before.state().pe[pe]);
}

TEST(Core, FaultsTellWhatWouldBeLegal) {
  Scenario s = w1();
  s.local(t(3), n8(DataType::e4m3, 31, 8, all(0)));
  const Progress p = run(s);
  ASSERT_TRUE(p.outcome.fault);
  EXPECT_EQ(p.outcome.fault->role, Role::b);
  EXPECT_EQ(p.outcome.fault->found, shape(31, 8));
  EXPECT_EQ(p.outcome.fault->legal, shape(32, 8));
  EXPECT_EQ(p.outcome.fault->pe, 0);
  Core core;
  const Outcome o = core.step(0x78531181);
  EXPECT_EQ(o.rejection.reason, isa::Rejection::Reason::field);
  EXPECT_EQ(o.rejection.field, Field::data_type);
}

TEST(Core, LenientReservedBits) {
  const uint64 word = 0x04004213 | 1U << 7;
  Scenario s = w1();
  s.replace(0x04004213, word);
  EXPECT_EQ(run(s).outcome.fault->id, RuleId::A1);
  Scenario lenient = w1();
  lenient.replace(0x04004213, word);
  lenient.core.state().options.strict_reserved_bits = false;
  EXPECT_TRUE(run(lenient).outcome.completed);
}

// The table of group_M in architecture 5.
TEST(Cooperative, RowsOfEachPe) {
  const std::pair<std::uint32_t, std::array<std::uint32_t, 4>> table[] = {
      {1, {1, 0, 0, 0}},    {16, {16, 0, 0, 0}},  {17, {16, 1, 0, 0}},   {40, {16, 16, 8, 0}},   {64, {16, 16, 16, 16}},
      {65, {32, 32, 1, 0}}, {70, {32, 32, 6, 0}}, {97, {32, 32, 32, 1}}, {128, {32, 32, 32, 32}}};
  for (const auto& [group_m, rows] : table) {
    Scenario s;
    s.words = {0x20031181,
               0x00002023,
               dim(0, group_m),
               dim(1, 4),
               dim(2, 2),
               shared_binding(1, 0, 7),
               shared_binding(2, 0, 7),
               to_hand(0, 5, 7),
               bstop};
    s.core.publish_shared(1, shared_tile(DataType::fp16, group_m, 2, [](auto r, auto) { return 0x3C00 + r; }));
    s.core.publish_shared(2, shared_tile(DataType::fp16, 2, 4, [](auto r, auto) { return r == 0 ? 0x3C00U : 0U; }));
    const Progress p = run(s);
    ASSERT_TRUE(p.outcome.completed);
    for (unsigned pe = 0; pe < pe_count; ++pe) {
      const TileRef& d = s.core.state().pe[pe].local[t(1)];
      ASSERT_EQ(d != nullptr, rows[pe] != 0);
      if (d == nullptr) continue;
      EXPECT_EQ(d->descriptor().valid_rows, rows[pe]);
      EXPECT_EQ(d->descriptor().layout, rows[pe] <= 16 ? TileLayout::cube_m16 : TileLayout::cube_m32);
      const std::uint32_t first = pe * (group_m <= 64 ? 16 : 32);
      // D[r][c] is the FP16 number 0x3C00 + row, in FP32.
      EXPECT_EQ(d->element(rows[pe] - 1, 3), fp32_one + ((first + rows[pe] - 1) << 13));
    }
  }
}

// Zero-row PEs bring no register, no pool and no scalar.
TEST(Cooperative, ZeroRowPesAreNotLookedAt) {
  Scenario s = w5();
  for (unsigned pe = 2; pe < pe_count; ++pe) {
    for (unsigned i = 1; i <= 16; ++i) s.local(n(i), row_major(DataType::u8, 1, 1, all(0), 128, 65536), pe);
  }
  s.core.state().options.name_policy = NamePolicy::absolute;
  const Core before = s.core;
  EXPECT_TRUE(run(s).outcome.completed);
  EXPECT_EQ(s.core.state().pe[2], before.state().pe[2]);
  EXPECT_EQ(s.core.state().pe[3], before.state().pe[3]);
}

TEST(Profiles, AccumulationIsAnOption) {
  // Products 2^24, 1, 1, -2^24: the example of profiles 3, with groups of 16.
  const auto element = [](std::string_view profile) {
    Scenario s;
    s.core.state().options.accumulation = find_accumulation_profile(profile);
    s.words = {
        start(Form::bstart_tmatmul, DataType::bf16), 0x00002023, dim(0, 1), dim(1, 1), dim(2, 4), 0x0408C293, bstop};
    s.local(t(1), m16(DataType::bf16, 1, 4, [](auto, auto c) {
              constexpr uint64 a[] = {0x4B80, 0x3F80, 0x3F80, 0xCB80};
              return a[c];
            }));
    s.local(t(2), n8(DataType::bf16, 4, 1, all(0x3F80)));
    return run(s).outcome.tiles[0].tile->element(0, 0);
  };
  EXPECT_EQ(element("fma"), 0U);
  EXPECT_EQ(element("two-step"), 0U);
  EXPECT_EQ(element("group"), 0x40000000U);
  EXPECT_EQ(element("exact"), 0x40000000U);
}

TEST(Profiles, GroupLengthFollowsTheOperation) {
  // 2^24, then 1 in lane 1 and -2^24 in lane 17: one group of 32 keeps the 1, two of 16 round it away.
  const auto element = [](Form form) {
    Scenario s;
    s.core.state().options.accumulation = find_accumulation_profile("group");
    s.words = {start(form, DataType::bf16), 0x00002023, dim(0, 1), dim(1, 1), dim(2, 20), 0x0408C293, bstop};
    s.local(t(1), m16(DataType::bf16, 1, 20, [](auto, auto c) -> uint64 {
              return c == 0 ? 0x4B80 : c == 17 ? 0xCB80 : c == 1 ? 0x3F80 : 0;
            }));
    s.local(t(2), n8(DataType::bf16, 20, 1, all(0x3F80)));
    return run(s).outcome.tiles[0].tile->element(0, 0);
  };
  EXPECT_EQ(element(Form::bstart_tmatmul), 0U);
  EXPECT_EQ(element(Form::bstart_tmatmul_mx), 0x3F800000U);
}

TEST(Flags, AreStickyAndNeverCleared) {
  Scenario s = w9c();
  EXPECT_EQ(run(s).outcome.flags, Flags::inexact);
  s.core.state().flags |= Flags::overflow;
  s.edit(t(1), [](Tile& x) {
    for (std::uint32_t c = 0; c < 16; ++c) x.set_element(0, c, fp32_one);
  });
  EXPECT_EQ(run(s).outcome.flags, Flags::none);
  EXPECT_EQ(s.core.state().flags, Flags::overflow | Flags::inexact);
}

// A shift has no activation, but the parameter of a vector PReLU is a source like any other.
TEST(Postprocess, ShiftsIgnoreTheActivation) {
  Scenario s;
  s.words = {start(Form::bstart_tmatmul, DataType::s8),
             word_of(Instruction(Form::b_fpatr).set(Field::pre_quant_mode, 13).set(Field::relu_mode, 1)),
             dim(0, 1),
             dim(1, 1),
             dim(2, 1),
             0x0408C293,
             bstop};
  s.local(t(1), m16(DataType::s8, 1, 1, all(0xF8)));
  s.local(t(2), n8(DataType::s8, 1, 1, all(4)));
  const Progress p = run(s);  // B.IOR omitted: the zero word shifts by one
  ASSERT_TRUE(p.outcome.completed);
  EXPECT_EQ(p.outcome.tiles[0].tile->element(0, 0), 0xFFF0U);
}

}  // namespace
}  // namespace bitcube::machine::test
