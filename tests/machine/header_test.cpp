// Where each header command is accepted (architecture 2.13, 2.14), what is wrong with a Tile that cannot be made
// (1.4 to 1.9), the names of rules and operands, and when two states are equal.
#include <gtest/gtest.h>

#include <set>

#include "machine/assembly.hpp"

namespace bitcube::machine::test {
namespace {

using enum RuleId;

/// Every header command but the bindings with mask 0000, which are accepted everywhere.
std::vector<uint64> commands() {
  return {word_of(Instruction(Form::b_catr)),
          datr(isa::TransferLayout::norm, DataType::fp32),
          word_of(Instruction(Form::b_fpatr)),
          dim(1, 4),
          ior(a0),
          to_hand(1, 2),
          shared_binding(3),
          word_of(Instruction(Form::b_hint))};
}

RuleId fault_of(const Outcome& o) {
  EXPECT_TRUE(o.fault);
  return o.fault ? o.fault->id : RuleId::A1;
}

TEST(Header, CommandsNeedABundle) {
  for (const uint64 word : commands()) {
    Core core;
    const Core before = core;
    EXPECT_EQ(fault_of(core.step(word)), A2) << std::hex << word;
    EXPECT_EQ(core, before);
  }
}

TEST(Header, CommandsComeBeforeTheBody) {
  for (const uint64 word : commands()) {
    Core core;
    ASSERT_TRUE(core.step(start(Form::bstart_tmatmul, DataType::fp16)).ok());
    core.state().header.body = true;
    EXPECT_EQ(fault_of(core.step(word)), A2) << std::hex << word;
  }
}

TEST(Header, CommandsComeOnce) {
  const std::vector<uint64> all = commands();
  const std::pair<std::size_t, RuleId> expected[] = {{0, A3}, {1, A3}, {2, A3}, {3, A6}, {4, A3}, {6, A8}, {7, A3}};
  for (const auto& [index, id] : expected) {
    Core core;
    ASSERT_TRUE(core.step(start(Form::bstart_tmatmul, DataType::fp16)).ok());
    ASSERT_TRUE(core.step(all[index]).ok());
    EXPECT_EQ(fault_of(core.step(all[index])), id) << index;
  }
}

TEST(Header, PostprocessComesBeforeEveryBinding) {
  const uint64 fpatr = word_of(Instruction(Form::b_fpatr));
  for (const uint64 binding : {ior(a0), to_hand(1, 2), shared_binding(3)}) {
    Core core;
    ASSERT_TRUE(core.step(start(Form::bstart_tmatmul, DataType::fp16)).ok());
    ASSERT_TRUE(core.step(binding).ok());
    EXPECT_EQ(fault_of(core.step(fpatr)), A5);
  }
  Core core;
  ASSERT_TRUE(core.step(start(Form::bstart_tload, DataType::fp16)).ok());
  EXPECT_EQ(fault_of(core.step(fpatr)), A4);
}

TEST(Header, BindingsHaveOneMask) {
  const uint64 local = word_of(  // not the last one
      Instruction(Form::b_iot_dst).set(Field::pe_mode, 1).set(Field::dst_tile, 1).set(Field::size_code, 2));
  const auto second = [](uint64 first, uint64 word) {
    Core core;
    EXPECT_TRUE(core.step(start(Form::bstart_tmatmul, DataType::fp16)).ok());
    EXPECT_TRUE(core.step(first).ok());
    return core.step(word);
  };
  EXPECT_EQ(fault_of(second(local, to_hand(1, 2, 2))), A11);
  EXPECT_EQ(fault_of(second(local, shared_binding(4, 0, 2))), A7);
  EXPECT_EQ(fault_of(second(shared_binding(3), shared_binding(4, 0, 2))), A7);
  EXPECT_TRUE(second(shared_binding(3), to_hand(1, 2, 2)).ok());  // found at completion (architecture 2.10)
}

TEST(Header, HintsChangeNothing) {
  Scenario plain = w1();
  Scenario hinted = w1();
  hinted.before(0x00002023, {word_of(Instruction(Form::b_hint).set(Field::likely, 1).set(Field::valid, 1))});
  ASSERT_TRUE(run(plain).outcome.completed);
  ASSERT_TRUE(run(hinted).outcome.completed);
  EXPECT_TRUE(same_tile(plain.core.state().pe[0].local[u(1)], hinted.core.state().pe[0].local[u(1)]));
}

// Everything of a Tile's description that cannot be, and what the message says.
TEST(TileReasons, InWords) {
  using enum TileLayout;
  const auto words = [](std::uint32_t rows, std::uint32_t columns) { return words_of(rows, columns, all(0)); };
  const std::pair<Expected<Tile>, std::string_view> cases[] = {
      {make_cube_tile(cube_m16, DataType::fp64, 2, 2, words(2, 2)), "the layout does not take this type"},
      {make_cube_tile(row_major, DataType::fp32, 2, 2, words(2, 2)), "the layout does not take this type"},
      {make_ordinary_tile(cube_m16, DataType::fp32, 2, 2, words(2, 2), 2), "the layout does not take this type"},
      {make_ordinary_tile(row_major, DataType::none, 2, 2, words(2, 2), 2), "the layout does not take this type"},
      {make_ordinary_tile(row_major, DataType::fp32, 1, 1, words(1, 1), 1, 100),
       "a capacity is a multiple of 128 bytes, at most 64 KiB Local or 256 KiB Shared"},
      {make_ordinary_tile(row_major, DataType::fp32, 1, 1, words(1, 1), 1, 128 * 1024),
       "a capacity is a multiple of 128 bytes, at most 64 KiB Local or 256 KiB Shared"},
      {make_cube_tile(cube_m16, DataType::fp32, 2, 2, words(2, 2), 100),
       "a capacity is a multiple of 128 bytes, at most 64 KiB Local or 256 KiB Shared"},
      {make_ordinary_tile(row_major, DataType::fp32, 1, 4, words(1, 4), 3, 128), "the layout has no such shape"},
      {make_cube_tile(cube_m16, DataType::fp32, 0, 2, {}), "the layout has no such shape"},
      {make_ordinary_tile(row_major, DataType::fp32, 5, 8, words(5, 8), 8, 128),
       "the capacity is too small for the shape"},
      {make_cube_tile(cube_n8, DataType::fp32, 64, 64, words(64, 64), 128), "the capacity is too small for the shape"},
      {make_ordinary_tile(row_major, DataType::fp32, 2, 2, words(1, 3), 2), "3 words, but the valid region is 2 x 2"},
  };
  for (const auto& [tile, message] : cases) {
    ASSERT_FALSE(tile) << message;
    EXPECT_EQ(tile.error().message, message);
  }
}

TEST(TileReasons, OfDescriptorsThatNoInstructionMakes) {
  const TileDescriptor good = row_major(DataType::fp32, 4, 8, all(0), 8, 128).descriptor();
  const TileDescriptor cube = m16(DataType::fp32, 4, 8, all(0)).descriptor();
  EXPECT_EQ(check_descriptor(good, local_capacity_limit), DescriptorFault::none);
  EXPECT_EQ(check_descriptor(cube, local_capacity_limit), DescriptorFault::none);
  const auto fault = [](TileDescriptor d, const std::function<void(TileDescriptor&)>& change) {
    change(d);
    return check_descriptor(d, local_capacity_limit);
  };
  EXPECT_EQ(fault(good, [](auto& d) { d.type = DataType::none; }), DescriptorFault::type);
  EXPECT_EQ(fault(good, [](auto& d) { d.capacity_bytes = 64; }), DescriptorFault::capacity);
  EXPECT_EQ(fault(good, [](auto& d) { d.rows = 5; }), DescriptorFault::derived);
  EXPECT_EQ(fault(good, [](auto& d) { d.columns = 7; }), DescriptorFault::shape);
  EXPECT_EQ(fault(good, [](auto& d) { d.valid_rows = 5; }), DescriptorFault::room);
  EXPECT_EQ(fault(cube, [](auto& d) { d.location = Location::vector; }), DescriptorFault::location);
  EXPECT_EQ(fault(cube, [](auto& d) { d.type = DataType::fp64; }), DescriptorFault::type);
}

TEST(Names, OfRulesAndOperands) {
  std::set<std::string_view> seen;
  for (const Rule& r : rules()) {
    EXPECT_EQ(find_rule(r.name), &r);
    EXPECT_TRUE(seen.insert(r.name).second) << r.name;
  }
  EXPECT_EQ(find_rule("c9"), &rule(C9));
  EXPECT_EQ(find_rule("Z1"), nullptr);
  EXPECT_EQ(find_rule(""), nullptr);
  seen.clear();
  for (int i = 0; i <= static_cast<int>(Role::mask); ++i) {
    EXPECT_TRUE(seen.insert(name_of(static_cast<Role>(i))).second) << i;
  }
  EXPECT_EQ(name_of(Role::c_scale), "CScale");
  EXPECT_EQ(name_of(Role::mask), "mask");
}

// A state is equal to another exactly while nothing that an instruction can see differs.
TEST(States, DifferInEveryPart) {
  Scenario scenario = w4();
  scenario.core.state().memory.map(0x4000, 64);
  const Core before = scenario.core;
  const auto differs = [&](const std::function<void(State&)>& change) {
    Core other = before;
    change(other.state());
    return !(other == before);
  };
  EXPECT_FALSE(differs([](State&) {}));
  EXPECT_TRUE(differs([](State& s) { s.pe[3].gpr[a0] = 1; }));
  EXPECT_TRUE(differs([](State& s) { s.pe[2].local[t(1)] = nullptr; }));
  EXPECT_TRUE(differs([](State& s) { s.pe[1].local[u(7)] = s.pe[1].local[t(1)]; }));
  EXPECT_TRUE(differs([](State& s) { s.shared[4].tile = nullptr; }));
  EXPECT_TRUE(differs([](State& s) { s.shared[4].published = false; }));
  EXPECT_TRUE(differs([](State& s) { s.shared[4].whole_parent_ready = false; }));
  EXPECT_TRUE(differs([](State& s) { s.shared[9].allocation_mask = 1; }));
  EXPECT_TRUE(differs([](State& s) { s.memory.map(0x9000, 1); }));
  const std::uint8_t one[] = {1};
  EXPECT_TRUE(differs([&](State& s) { s.memory.write(0x4001, one); }));
  EXPECT_FALSE(differs([&](State& s) { s.memory.map(0x4000, 0); }));
  EXPECT_TRUE(differs([](State& s) { s.flags = Flags::inexact; }));
  EXPECT_TRUE(differs([](State& s) { s.header.active = true; }));
  EXPECT_TRUE(differs([](State& s) { s.tpc = 2; }));
  // Equal contents in other memory are equal.
  EXPECT_FALSE(differs([](State& s) { s.pe[2].local[t(1)] = share(Tile(*s.pe[2].local[t(1)])); }));
  EXPECT_TRUE(differs([](State& s) {
    Tile tile = *s.pe[2].local[t(1)];
    tile.undefine_element(0, 0);
    s.pe[2].local[t(1)] = share(std::move(tile));
  }));
}

}  // namespace
}  // namespace bitcube::machine::test
