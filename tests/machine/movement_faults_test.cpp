// What TLOAD, TSTORE, TMOV, TCVT, TQUANT and TDEQUANT refuse, clause by clause (architecture 7.2 to 7.7): one bundle
// that is legal for each, and what makes it illegal, one change at a time.
#include <gtest/gtest.h>

#include "machine/assembly.hpp"

namespace bitcube::machine::test {
namespace {

using isa::PadValue;
using enum RuleId;
using enum isa::TransferLayout;

constexpr auto kNone = DataType::none;
constexpr uint64 kBase = 0x10000;

struct Case {
  std::string what;
  std::optional<RuleId> rule;  // none: it completes
  std::vector<uint64> words;   // without the stop
  std::function<void(State&)> change{};
};

/// A B.DATR with one field that is not neutral.
uint64 datr_with(Field field, int value, DataType type = kNone, isa::TransferLayout layout = norm) {
  return word_of(Instruction(Form::b_datr)
                     .set(Field::layout, static_cast<int>(layout))
                     .set(Field::data_type, static_cast<int>(type))
                     .set(field, value));
}
uint64 ior_with(Field field, int value) {
  return word_of(Instruction(Form::b_ior).set(Field::reg_src0, a0).set(Field::reg_src1, a1).set(field, value));
}
uint64 open_ended(uint64 iot, Form form) {
  Instruction i(form);
  i.set(Field::pe_mode, 1);
  if (form != Form::b_iot_dst) i.set(Field::src_tile0, static_cast<int>(t(1)));
  if (form != Form::b_iot_src0) i.set(Field::dst_tile, 1).set(Field::size_code, 2);
  EXPECT_NE(word_of(i), iot);
  return word_of(i);
}
uint64 two_sources() {
  return word_of(Instruction(Form::b_iot_src0_src1)
                     .set(Field::last, 1)
                     .set(Field::pe_mode, 1)
                     .set(Field::src_tile0, static_cast<int>(t(1)))
                     .set(Field::src_tile1, static_cast<int>(t(2))));
}

/// T#1: 4 x 8 of 1.0 in row-major order, T#2 the same as CUBE_M16, T#3 of S8, T#4 of FP64.
void prepare(Core& core) {
  State& state = core.state();
  state.memory.map(kBase, 4096);
  state.pe[0].gpr[a0] = kBase;
  state.pe[0].gpr[a1] = 64;
  core.set_local(0, t(1), row_major(DataType::fp32, 4, 8, all(0x3F800000), 8, 256));
  core.set_local(0, t(2), m16(DataType::fp32, 4, 8, all(0x3F800000)));
  core.set_local(0, t(3), row_major(DataType::s8, 4, 8, all(1), 8, 256));
  core.set_local(0, t(4), row_major(DataType::fp64, 4, 8, all(0), 8, 256));
  core.publish_shared(7, shared_tile(DataType::fp32, 4, 8, all(0), 8, 256));
}

void edit(State& state, unsigned name, const std::function<void(Tile&)>& change) {
  Tile tile = *state.pe[0].local[name];
  change(tile);
  state.pe[0].local[name] = share(std::move(tile));
}
std::function<void(State&)> without_tile(unsigned name) {
  return [name](State& s) { s.pe[0].local[name] = nullptr; };
}
/// A descriptor that no instruction makes: it has a row more than its layout.
std::function<void(State&)> inconsistent(unsigned name) {
  return [name](State& s) { edit(s, name, [](Tile& x) { ++x.descriptor().rows; }); };
}
std::function<void(State&)> undefined(unsigned name) {
  return [name](State& s) { edit(s, name, [](Tile& x) { x.undefine_element(1, 2); }); };
}

void check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Core core;
    prepare(core);
    if (c.change) c.change(core.state());
    Outcome o;
    for (std::size_t i = 0; i <= c.words.size(); ++i) {
      o = core.step(i < c.words.size() ? c.words[i] : bstop);
      if (o.fault && i < c.words.size()) FAIL() << "word " << i << ": " << rule(o.fault->id).name;
    }
    if (!c.rule) {
      EXPECT_TRUE(o.completed) << (o.fault ? rule(o.fault->id).name : "no fault");
      continue;
    }
    ASSERT_TRUE(o.fault) << "no fault";
    EXPECT_EQ(rule(o.fault->id).name, rule(*c.rule).name);
    EXPECT_TRUE(o.tiles.empty() && !o.shared && o.stores == 0);
  }
}

TEST(MovementFaults, Load) {
  const uint64 op = start(Form::bstart_tload, DataType::fp32);
  const uint64 to = to_hand(1, 2);
  const uint64 at = ior(a0, a1);
  const auto with = [&](uint64 attributes) {
    return std::vector{op, attributes, dim(0, 8), dim(1, 4), dim(2, 8), at, to};
  };
  check({
      {"legal", {}, {op, dim(0, 8), dim(1, 4), dim(2, 8), at, to}},
      {"no L", T1, {op, dim(0, 8), dim(1, 4), dim(2, 8), at, open_ended(to, Form::b_iot_dst)}},
      {"with a source", T2, {op, dim(0, 8), dim(1, 4), dim(2, 8), at, from_to(t(1), 1, 2)}},
      {"Local and Shared", T2, {op, dim(0, 8), dim(1, 4), dim(2, 8), at, shared_binding(9, 2), to}},
      {"Shared without a size", T2, {op, dim(0, 8), dim(1, 4), dim(2, 8), at, shared_binding(7)}},
      {"two Shared", T2, {op, dim(0, 8), dim(1, 4), dim(2, 8), at, shared_binding(8, 2), shared_binding(9, 2)}},
      {"Shared by two PEs", T3, {op, dim(0, 8), dim(1, 4), dim(2, 8), at, shared_binding(9, 2, 5)}},
      {"its own type", {}, with(datr_with(Field::cmode, 0, DataType::fp32))},
      {"another type", T4, with(datr_with(Field::cmode, 0, DataType::s32))},
      {"CMode", T4, with(datr_with(Field::cmode, 1))},
      {"RMode", T4, with(datr_with(Field::rmode, 1))},
      {"Sat", T4, with(datr_with(Field::sat, 1))},
      {"Canonicalize", T4, with(datr_with(Field::canonicalize, 1))},
      {"a PadValue", T4, with(datr(norm, kNone, PadValue::max))},
      {"a CUBE layout with a type", T4, {op, datr(nd2m16, DataType::fp32), dim(0, 8), dim(1, 4), at, to_hand(1, 3)}},
      {"a store code", T5, with(datr(m162nd, kNone))},
      {"a CUBE layout into Shared", T5, {op, datr(nd2m16, kNone), dim(0, 8), dim(1, 4), at, shared_binding(9, 3)}},
      {"LB0 0", T6, {op, dim(0, 0), dim(1, 4), dim(2, 8), at, to}},
      {"LB1 0", T6, {op, dim(0, 8), dim(1, 0), dim(2, 8), at, to}},
      {"LB2 0", T6, {op, dim(0, 8), dim(1, 4), dim(2, 0), at, to}},
      {"no LB0", T6, {op, dim(1, 4), dim(2, 8), at, to}},
      {"LB2 no power of two", T6, {op, dim(0, 8), dim(1, 2), dim(2, 12), at, to}},
      {"LB2 below LB0", T6, {op, dim(0, 8), dim(1, 4), dim(2, 4), at, to}},
      {"a CUBE layout without LB1", T6, {op, datr(nd2m16, kNone), dim(0, 8), at, to_hand(1, 3)}},
      {"a CUBE layout with LB2", T6, {op, datr(nd2m16, kNone), dim(0, 8), dim(1, 4), dim(2, 8), at, to_hand(1, 3)}},
      {"CUBE", {}, {op, datr(nd2m16, kNone, PadValue::max), dim(0, 8), dim(1, 4), at, to_hand(1, 3)}},
      {"CUBE of 64 bits",
       T7,
       {start(Form::bstart_tload, DataType::fp64), datr(nd2m16, kNone), dim(0, 8), dim(1, 4), at, to_hand(1, 5)}},
      {"RegDst", T8, {op, dim(0, 8), dim(1, 4), dim(2, 8), ior_with(Field::reg_dst, 4), to}},
      {"RegSrc2", T8, {op, dim(0, 8), dim(1, 4), dim(2, 8), ior_with(Field::reg_src2, 4), to}},
      {"a capacity that is too small", T13, {op, dim(0, 8), dim(1, 5), dim(2, 8), at, to_hand(1, 1)}},
      {"a CUBE capacity that is too small", T13, {op, datr(nd2m16, kNone), dim(0, 8), dim(1, 4), at, to_hand(1, 1)}},
      {"more columns than there can be", T6, {op, dim(0, 65535), dim(1, 1), at, to}},
  });
}

TEST(MovementFaults, Store) {
  const uint64 op = start(Form::bstart_tstore, DataType::fp32);
  const uint64 at = ior(a0, a1);
  const uint64 from = from_name(t(1));
  const uint64 cube = datr(m162nd, kNone);
  check({
      {"legal", {}, {op, at, from}},
      {"no L", T1, {op, at, open_ended(from, Form::b_iot_src0)}},
      {"with a destination", T2, {op, at, from_to(t(1), 1, 2)}},
      {"two sources", T2, {op, at, two_sources()}},
      {"Shared with a size", T2, {op, at, shared_binding(7, 2)}},
      {"two Shared", T2, {op, at, shared_binding(7), shared_binding(8)}},
      {"Local and Shared", T2, {op, at, shared_binding(7), from}},
      {"Shared", {}, {op, at, shared_binding(7)}},
      {"Shared by two PEs", T3, {op, at, shared_binding(7, 0, 5)}},
      {"CMode", T4, {op, datr_with(Field::cmode, 1), at, from}},
      {"a PadValue", T4, {op, datr(norm, kNone, PadValue::max), at, from}},
      {"a load code", T5, {op, datr(nd2m16, kNone), at, from}},
      {"CUBE from Shared", T5, {op, cube, dim(0, 8), dim(1, 4), at, shared_binding(7)}},
      {"another layout", T5, {op, datr(dn2nd, kNone), at, from}},
      {"LB0 0", T6, {op, dim(0, 0), at, from}},
      {"CUBE", {}, {op, cube, dim(0, 8), dim(1, 4), at, from_name(t(2))}},
      {"CUBE without LB0", T6, {op, cube, dim(1, 4), at, from_name(t(2))}},
      {"CUBE without LB1", T6, {op, cube, dim(0, 8), at, from_name(t(2))}},
      {"CUBE with LB2", T6, {op, cube, dim(0, 8), dim(1, 4), dim(2, 8), at, from_name(t(2))}},
      {"CUBE, fewer rows", T6, {op, cube, dim(0, 8), dim(1, 3), at, from_name(t(2))}},
      {"CUBE, fewer columns", T6, {op, cube, dim(0, 7), dim(1, 4), at, from_name(t(2))}},
      {"fewer rows and columns", {}, {op, dim(0, 7), dim(1, 3), at, from}},
      {"more columns than valid", T6, {op, dim(0, 9), at, from}},
      {"more rows than valid", T6, {op, dim(1, 5), at, from}},
      {"other physical columns", T6, {op, dim(2, 16), at, from}},
      {"another type", T7, {start(Form::bstart_tstore, DataType::s32), at, from}},
      {"RegDst", T8, {op, ior_with(Field::reg_dst, 4), from}},
      {"RegSrc2", T8, {op, ior_with(Field::reg_src2, 4), from}},
      {"no Tile", T9, {op, at, from}, without_tile(t(1))},
      {"no Shared Tile", T9, {op, at, shared_binding(9)}},
      {"of another PE",
       T9,
       {op, at, from},
       [](State& s) { edit(s, t(1), [](Tile& x) { x.descriptor().allocation_mask = 2; }); }},
      {"inconsistent", T9, {op, at, from}, inconsistent(t(1))},
      {"undefined", T10, {op, at, from}, undefined(t(1))},
  });
}

TEST(MovementFaults, Move) {
  const uint64 op = start(Form::bstart_tmov, DataType::fp32);
  const uint64 move = from_to(t(1), 1, 2);
  check({
      {"legal", {}, {op, move}},
      {"legal, of any type", {}, {start(Form::bstart_tmov, kNone), move}},
      {"legal, with what it is", {}, {op, dim(0, 8), dim(1, 4), dim(2, 8), move}},
      {"no L", T1, {op, open_ended(move, Form::b_iot_src0_dst)}},
      {"no source", T2, {op, to_hand(1, 2)}},
      {"no destination", T2, {op, from_name(t(1))}},
      {"a Shared source", T2, {op, shared_binding(7), move}},
      {"a Shared source alone", T2, {op, shared_binding(7)}},
      {"scalars", T8, {op, ior(a0, a1), move}},
      {"RMode", T4, {op, datr_with(Field::rmode, 1), move}},
      {"LB1 0", T6, {op, dim(1, 0), move}},
      {"other columns", T6, {op, dim(0, 7), move}},
      {"other rows", T6, {op, dim(1, 3), move}},
      {"another layout", T5, {op, datr(zn2nd, kNone), move}},
      {"another type", T7, {start(Form::bstart_tmov, DataType::s32), move}},
      {"64 bits into CUBE", T7, {start(Form::bstart_tmov, DataType::fp64), datr(nd2m16, kNone), from_to(t(4), 1, 5)}},
      {"no Tile", T9, {op, move}, without_tile(t(1))},
      {"inconsistent", T9, {op, move}, inconsistent(t(1))},
      {"undefined", T10, {op, move}, undefined(t(1))},
      {"a capacity that is too small", T13, {op, datr(nd2m16, kNone), from_to(t(1), 1, 1)}},
  });
}

TEST(MovementFaults, Convert) {
  const uint64 op = start(Form::bstart_tcvt, DataType::fp32);
  const uint64 type = datr(norm, DataType::fp16);
  const uint64 move = from_to(t(1), 1, 2);
  const auto sized = [&](std::vector<uint64> words) {
    words.insert(words.begin() + 1, {dim(0, 8), dim(1, 4), dim(2, 8)});
    return words;
  };
  check({
      {"legal", {}, sized({op, type, from_to(t(1), 1, 1)})},
      {"legal, to the same type", {}, sized({op, move})},
      {"legal, CUBE", {}, {op, type, dim(0, 8), dim(1, 4), from_to(t(2), 1, 3)}},
      {"no L", T1, sized({op, type, open_ended(move, Form::b_iot_src0_dst)})},
      {"no source", V1, sized({op, type, to_hand(1, 2)})},
      {"no destination", V1, sized({op, type, from_name(t(1))})},
      {"a Shared source", V1, sized({op, type, shared_binding(7), move})},
      {"a Shared source alone", V1, sized({op, type, shared_binding(7)})},
      {"scalars", V1, sized({op, type, ior(a0, a1), move})},
      {"LB1 0", V2, {op, type, dim(0, 8), dim(1, 0), dim(2, 8), move}},
      {"other columns", V2, {op, type, dim(0, 7), dim(1, 4), dim(2, 8), move}},
      {"other rows", V2, {op, type, dim(0, 8), dim(1, 3), dim(2, 8), move}},
      {"other physical columns", V2, {op, type, dim(0, 8), dim(1, 4), dim(2, 16), move}},
      {"CUBE with LB2", V2, sized({op, type, from_to(t(2), 1, 3)})},
      {"a pair that TCVT does not have",
       V3,
       {start(Form::bstart_tcvt, DataType::fp64), datr(norm, DataType::e8m0), dim(0, 8), dim(1, 4), dim(2, 8),
        from_to(t(4), 1, 2)}},
      {"another type", V3, sized({start(Form::bstart_tcvt, DataType::s32), datr(norm, DataType::fp32), move})},
      {"a layout", V4, sized({op, datr(nd2dn, DataType::fp16), move})},
      {"CMode", V4, sized({op, datr_with(Field::cmode, 1, DataType::fp16), move})},
      {"no Tile", V5, sized({op, type, move}), without_tile(t(1))},
      {"inconsistent", V5, sized({op, type, move}), inconsistent(t(1))},
      {"undefined", V5, sized({op, type, move}), undefined(t(1))},
  });
}

TEST(MovementFaults, QuantiseAndDequantise) {
  const uint64 quantise = start(Form::bstart_tquant, DataType::fp32);
  const uint64 dequantise = start(Form::bstart_tdequant, DataType::s8);
  const uint64 s8 = datr(norm, DataType::s8);
  const uint64 f32 = datr(norm, DataType::fp32);
  const uint64 move = from_to(t(1), 1, 2);
  const uint64 back = from_to(t(3), 1, 4);
  const auto sized = [&](std::vector<uint64> words) {
    words.insert(words.begin() + 1, {dim(0, 8), dim(1, 4), dim(2, 8)});
    return words;
  };
  check({
      {"legal", {}, sized({quantise, s8, move})},
      {"legal, back", {}, sized({dequantise, f32, back})},
      {"no L", T1, sized({quantise, s8, open_ended(move, Form::b_iot_src0_dst)})},
      {"no L, back", T1, sized({dequantise, f32, open_ended(back, Form::b_iot_src0_dst)})},
      {"no source", V1, sized({quantise, s8, to_hand(1, 2)})},
      {"RegDst", V1, sized({quantise, s8, ior_with(Field::reg_dst, 4), move})},
      {"RegSrc2", V1, sized({dequantise, f32, ior_with(Field::reg_src2, 4), back})},
      {"a zero multiplier", Q2, sized({quantise, s8, ior(0), move})},
      {"no LB0", V2, {quantise, s8, dim(1, 4), dim(2, 8), move}},
      {"no LB0, back", V2, {dequantise, f32, dim(1, 4), dim(2, 8), back}},
      {"a source of S32", V3, sized({start(Form::bstart_tquant, DataType::s32), s8, move})},
      {"a source of S16, back", V3, sized({start(Form::bstart_tdequant, DataType::s16), f32, back})},
      {"a Tile of another type, back", V3, sized({dequantise, f32, from_to(t(1), 1, 4)})},
      {"CUBE", V5, {quantise, s8, dim(0, 8), dim(1, 4), from_to(t(2), 1, 3)}},
      {"no B.DATR", Q1, sized({quantise, move})},
      {"no B.DATR, back", Q1, sized({dequantise, back})},
      {"into S16", Q1, sized({quantise, datr(norm, DataType::s16), move})},
      {"back into FP16", Q1, sized({dequantise, datr(norm, DataType::fp16), back})},
      {"a layout", Q1, sized({quantise, datr(nd2dn, DataType::s8), move})},
      {"a PadValue", Q1, sized({quantise, datr(norm, DataType::s8, PadValue::max), move})},
      {"CMode", Q1, sized({quantise, datr_with(Field::cmode, 1, DataType::s8), move})},
      {"Canonicalize", Q1, sized({quantise, datr_with(Field::canonicalize, 1, DataType::s8), move})},
      {"Sat", {}, sized({quantise, datr_with(Field::sat, 1, DataType::s8), move})},
      {"Sat, back", Q1, sized({dequantise, datr_with(Field::sat, 1, DataType::fp32), back})},
  });
}

}  // namespace
}  // namespace bitcube::machine::test
