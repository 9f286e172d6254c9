// The negative examples of architecture 8.12, one by one, and at least one bundle for every legality rule. After each
// rejection the whole state is what it was.
#include <gtest/gtest.h>

#include <set>

#include "machine/scenario.hpp"

namespace bitcube::machine::test {
namespace {

using enum RuleId;

enum class When {
  command,  // at the word that the example names
  end,      // at the completion
  no_fault,
  committed,  // reported after the bundle took effect
};

struct Example {
  std::string name;  // the number in architecture 8.12, and what is wrong
  When when;
  RuleId rule;
  uint64 bad;  // When::command: the offending word, the last one of its kind
  std::function<Scenario()> make;
};

// Words that several examples use.
constexpr uint64 fpatr = 0x00002023;
constexpr uint64 w1_start = 0x38531181;
constexpr uint64 w1_m = 0x01000043;
constexpr uint64 w1_a = 0x04004213;        // B.IOT T#1, T#2
constexpr uint64 w1_d = 0x0049D293;        // B.IOT T#5, <last>, ->U<3>
constexpr uint64 w1_d_extra = 0x1449C293;  // B.IOT T#5, T#6, <last>, ->U<3>
constexpr uint64 ior_a0 = 0x00010013;

Scenario with(Scenario s, uint64 from, uint64 to) {
  s.replace(from, to);
  return s;
}
Scenario without(Scenario s, uint64 word) {
  s.remove(word);
  return s;
}
Scenario then(Scenario s, const std::function<void(Scenario&)>& change) {
  change(s);
  return s;
}

/// W1 with another B.FPATR word.
Scenario w1_fpatr(uint64 word) {
  return with(w1(), fpatr, word);
}
/// W1 with one more Local source, T#6.
Scenario w1_extra(uint64 fpatr_word, Tile extra) {
  Scenario s = w1_fpatr(fpatr_word);
  s.replace(w1_d, w1_d_extra);
  s.local(t(6), std::move(extra));
  return s;
}
/// W1 with a B.FPATR word and a scalar in a0.
Scenario w1_scalar(uint64 fpatr_word, uint64 value) {
  Scenario s = w1_fpatr(fpatr_word);
  s.after(fpatr_word, {ior_a0});
  s.core.state().pe[0].gpr[a0] = value;
  return s;
}
/// W1 with B.DATR before B.FPATR.
Scenario w1_datr(uint64 word) {
  Scenario s = w1();
  s.before(fpatr, {word});
  return s;
}
/// W1 with another Tile in a register.
Scenario w1_tile(unsigned name, Tile tile) {
  Scenario s = w1();
  s.local(name, std::move(tile));
  return s;
}

/// M = 32 rows, N columns, GroupMax over GroupNCode columns: D and GroupMaxOut.
Scenario group_max(std::uint32_t n, uint64 fpatr_word, uint64 group_binding) {
  Scenario s;
  s.words = {0x38531181,    fpatr_word, 0x02000043, 0x00001043 | uint64{n} << 20,
             0x02002043,    0x04004213, 0x0C204213, 0x0041D293 | 5U << 15,
             group_binding, bstop};
  s.words[7] = 0x00445293;  // B.IOT T#5, mask=1000, ->U<8>
  s.local(t(1), m32(DataType::e4m3, 32, 32, all(0x38)));
  s.local(t(2), m32(DataType::e8m0, 32, 1, all(127)));
  s.local(t(3), n8(DataType::e4m3, 32, n, all(0x38)));
  s.local(t(4), m32(DataType::e8m0, n, 1, all(127)));
  s.local(t(5), row_major(DataType::fp32, 1, n, all(0)));
  return s;
}

/// The worked ACC example without scale: C = T#1, A = T#2, B = T#3.
Scenario acc_into_t() {
  Scenario s;
  s.words = {0x20231181, fpatr, 0x00200043, 0x00201043, 0x00402043, 0x04004213, 0x0028D213, bstop};
  s.local(t(1), m16(DataType::fp32, 2, 2, all(0x41000000), 128));
  s.local(t(2), m16(DataType::fp16, 2, 4, all(0x3C00), 128));
  s.local(t(3), n8(DataType::fp16, 4, 2, all(0x3800), 128));
  return s;
}

/// Fills the pool of PE0 so that 384 bytes are left beside W1's sources.
void fill_pool(Scenario& s) {
  unsigned name = n(1);
  for (const std::uint32_t capacity : {65536U, 65536U, 65536U, 32768U, 16384U, 8192U, 4096U, 2048U, 512U}) {
    s.local(name++, row_major(DataType::u8, 1, 1, all(0), 128, capacity));
  }
}

Scenario w4_right_group_only() {
  Scenario s = w4();
  s.remove(0x00601E13).remove(0x00701E13);
  s.replace(0x000A5E93, 0x00005E13 | uint64{t(2)} << 20);                   // B.IOT T#2
  s.before(bstop, {0x000A4E93 | uint64{t(3)} << 20 | uint64{t(1)} << 26});  // B.IOT T#3, T#1, <last>, ->U<4>
  s.every_pe(t(2), n8(DataType::e4m3, 32, 16, all(0x38)));
  s.every_pe(t(3), m32(DataType::e8m0, 16, 1, all(127)));
  return s;
}

Scenario words_only(std::vector<uint64> words) {
  Scenario s;
  s.words = std::move(words);
  return s;
}

Scenario tload_row_major() {
  Scenario s = w9f();
  s.replace(0x00619213, 0x0009E213);  // B.IOT mask=1000, <last>, ->T<3>
  return s;
}

std::vector<Example> examples() {
  using enum When;
  std::vector<Example> e;
  const auto at = [&](std::string name, RuleId id, uint64 bad, std::function<Scenario()> make) {
    e.push_back({std::move(name), command, id, bad, std::move(make)});
  };
  const auto ends = [&](std::string name, RuleId id, std::function<Scenario()> make) {
    e.push_back({std::move(name), end, id, 0, std::move(make)});
  };

  at("1 DataType 15", A1, 0x78531181, [] { return then(w1(), [](Scenario& s) { s.after(w1_start, {0x78531181}); }); });
  at("2 CUBE function 3", A1, 0x38331181, [] { return with(w1(), w1_start, 0x38331181); });
  at("3 CUBE function 7", A1, 0x38731181, [] { return with(w1(), w1_start, 0x38731181); });
  at("4 removed TLSU function 14", A1, 0x00E11181, [] { return with(w1(), w1_start, 0x00E11181); });
  ends("5 no B.FPATR", B2, [] { return without(w1(), fpatr); });
  at("6 second B.FPATR", A3, fpatr, [] { return then(w1(), [](Scenario& s) { s.after(fpatr, {fpatr}); }); });
  at("7 B.FPATR after a B.IOT", A5, fpatr,
     [] { return then(without(w1(), fpatr), [](Scenario& s) { s.after(w1_a, {fpatr}); }); });
  at("8 B.FPATR after a B.IOR", A5, fpatr, [] { return then(w1(), [](Scenario& s) { s.before(fpatr, {0x13}); }); });
  at("9 B.FPATR in a TLOAD bundle", A4, fpatr,
     [] { return then(w9a(), [](Scenario& s) { s.after(0x20011181, {fpatr}); }); });
  at("10 B.FPATR without bundle", A2, fpatr, [] { return words_only({fpatr}); });
  at("11 PreQuantMode 6", A1, 0x18002023, [] { return w1_fpatr(0x18002023); });
  at("12 ReluMode 4", A1, 0x02002023, [] { return w1_fpatr(0x02002023); });
  at("13 GroupNCode 10", A1, 0x00502023, [] { return w1_fpatr(0x00502023); });
  at("14 bit 10", A1, 0x00002423, [] { return w1_fpatr(0x00002423); });
  at("15 ElementWiseEn", A1, 0x00002823, [] { return w1_fpatr(0x00002823); });
  at("16 RowMaxInit without RowMaxEn", P1, 0x00012023, [] { return w1_fpatr(0x00012023); });
  at("17 GroupMaxEn with GroupNCode 0", P2, 0x00022023, [] { return w1_fpatr(0x00022023); });
  at("18 GroupNCode 1 without GroupMaxEn", P2, 0x00082023, [] { return w1_fpatr(0x00082023); });
  at("19 MaxAbsEn alone", P3, 0x0000A023, [] { return w1_fpatr(0x0000A023); });
  ends("20 TransA in a Local bundle", D1, [] { return w1_fpatr(0x000020A3); });
  ends("21 TransB in a Local bundle", D1, [] { return w1_fpatr(0x00002123); });
  ends("22 TransA in a right-only bundle", D1, [] { return with(w5(), 0x00002123, 0x000020A3); });
  ends("23 CScaleEn in MX_BIAS", F2, [] { return w1_extra(0x00002223, m32(DataType::u8, 16, 1, all(0))); });
  ends("24 S32 mode with FP32", F3,
       [] { return w1_extra(0x08002023, row_major(DataType::u64, 1, 8, all(0x3F800000))); });
  ends("25 scalar with bit 0", F1, [] { return w1_scalar(0x68002023, 0x3F800001); });
  ends("26 scale 0", F1, [] { return w1_scalar(0x68002023, 0); });
  ends("26 scale negative", F1, [] { return w1_scalar(0x68002023, 0xBF800000); });
  ends("26 scale subnormal", F1, [] { return w1_scalar(0x68002023, 0x00400000); });
  ends("26 scale infinite", F1, [] { return w1_scalar(0x68002023, 0x7F800000); });
  ends("26 scale NaN", F1, [] { return w1_scalar(0x68002023, 0x7FC00000); });
  ends("27 alpha with bit 19", F1, [] { return w1_scalar(0x01002023, 1 << 19); });
  ends("28 U32 parameters", F5, [] { return w1_extra(0x90002023, row_major(DataType::u32, 1, 8, all(0x3F800000))); });
  ends("29 a parameter with a high half", F5, [] {
    return w1_extra(0x90002023, row_major(DataType::u64, 1, 8,
                                          [](auto, auto c) { return c == 5 ? 0x13F800000U : uint64{0x3F800000}; }));
  });
  ends("30 unneeded B.IOR", C6, [] { return then(w1(), [](Scenario& s) { s.after(fpatr, {ior_a0}); }); });
  ends("31 RegDst", C6, [] { return then(w1(), [](Scenario& s) { s.after(fpatr, {0x00000113}); }); });
  at("32 RegSrc0 24", A1, 0x000C0013, [] { return then(w1(), [](Scenario& s) { s.after(fpatr, {0x000C0013}); }); });
  at("33 two B.IOR", A3, 0x13, [] { return then(w1(), [](Scenario& s) { s.after(fpatr, {0x13, 0x13}); }); });
  ends("34 Pad Null", C7, [] { return w1_datr(0x18701023); });
  ends("35 Layout ND2DN", C7, [] { return w1_datr(0x007010A3); });
  ends("36 Canonicalize", C7, [] { return w1_datr(0x02701023); });
  ends("37 RMode with PreQuantMode 0", C9, [] { return w1_datr(0x00711023); });
  ends("38 Sat with PreQuantMode 0", C9, [] { return w1_datr(0x04701023); });
  at("39 B.DATR DataType 15", A1, 0x00F01023, [] { return w1_datr(0x00F01023); });
  at("40 two B.DATR", A3, 0x00701023,
     [] { return then(w1_datr(0x00701023), [](Scenario& s) { s.before(fpatr, {0x00701023}); }); });
  ends("41 BF16 B with a scale", C3, [] { return w1_datr(0x00501023); });
  ends("42 AType FP64", C1, [] { return with(w1(), w1_start, 0x00531181); });
  ends("43 AType S8 with MX", C1, [] { return with(w1(), w1_start, 0x98531181); });
  ends("44 ordinary HiF4X2", C1, [] { return with(w1(), w1_start, 0x70031181); });
  ends("45 FP16 x S16", C1, [] { return with(w1_datr(0x01201023), w1_start, 0x20031181); });
  ends("46 A scale omitted", C3, [] { return with(w1(), w1_a, 0x00005213); });
  ends("47 scale for an FP16 side", C3, [] { return with(w1_datr(0x00701023), w1_start, 0x20531181); });
  ends("48 Bias omitted", C3, [] { return with(w1(), w1_d, 0x0009E293); });
  ends("49 one source too many", C3, [] { return w1_extra(fpatr, m32(DataType::u8, 16, 1, all(0))); });
  ends("50 RowMaxEn with D only", C4, [] { return w1_fpatr(0x00042023); });
  ends("51 LB0 zero", C8, [] { return with(w1(), w1_m, 0x00000043); });
  ends("52 LB1 zero", C8, [] { return with(w1(), 0x00801043, 0x00001043); });
  ends("53 LB0 17 with a 16-row A", F7, [] { return with(w1(), w1_m, 0x01100043); });
  at("54 LB0 twice", A6, 0x043C, [] { return then(w1(), [](Scenario& s) { s.after(w1_m, {0x043C}); }); });
  at("55 C.B.DIMI selector 3", A1, 0xC43C, [] { return with(w1(), w1_m, 0xC43C); });
  at("56 B.DIM RegSrc 24", A1, 0x010C0043, [] { return with(w1(), w1_m, 0x010C0043); });
  ends("57 TGEMV with M 2", C11, [] { return with(with(w1(), w1_start, 0x39531181), w1_m, 0x00200043); });
  ends("58 TGEMV with B.IOS", C2, [] {
    return then(without(with(w1(), w1_start, 0x39531181), w1_m), [](Scenario& s) { s.after(fpatr, {0x00401213}); });
  });
  ends("59 A row-major", F7, [] { return w1_tile(t(1), row_major(DataType::e4m3, 16, 32, all(0x38))); });
  ends("60 B in CUBE_M16", F7, [] { return w1_tile(t(3), m16(DataType::e4m3, 16, 8, all(0x30))); });
  ends("61 A scale row-major", F7, [] { return w1_tile(t(2), row_major(DataType::e8m0, 16, 1, all(127))); });
  ends("61 A scale in CUBE_M16", F7, [] { return w1_tile(t(2), m16(DataType::e8m0, 16, 1, all(127))); });
  ends("62 B scale G x N", F7, [] { return w1_tile(t(4), m32(DataType::e8m0, 1, 8, all(127))); });
  ends("63 HiF4X2 with E8M0", F7,
       [] { return then(w3(), [](Scenario& s) { s.local(m(2), m32(DataType::e8m0, 16, 1, all(127))); }); });
  ends("64 undefined element of A", F7,
       [] { return then(w1(), [](Scenario& s) { s.edit(t(1), [](Tile& x) { x.undefine_element(15, 31); }); }); });
  ends("65 Bias in a CUBE layout", F7, [] { return w1_tile(t(5), m16(DataType::fp32, 1, 8, all(0))); });
  ends("66 Bias FP16", F7, [] { return w1_tile(t(5), row_major(DataType::fp16, 1, 8, all(0))); });
  ends("67 Bias 1 x 7", F7, [] { return w1_tile(t(5), row_major(DataType::fp32, 1, 7, all(0))); });
  ends("68 empty Local name", F0,
       [] { return then(w1(), [](Scenario& s) { s.core.state().pe[0].local[t(3)] = nullptr; }); });
  ends("69 no L", C5, [] { return with(w1(), w1_d, 0x0041D293); });
  at("70 B.IOT after L", A10, w1_a, [] { return then(w1(), [](Scenario& s) { s.before(bstop, {w1_a}); }); });
  ends("71 D TSize 2", G3, [] { return with(w1(), w1_d, 0x00495293); });
  ends("72 GroupMaxOut too small", G4, [] { return group_max(128, 0x000A2023, 0x000A6293); });
  ends("73 three group columns, exact", G4, [] {
    return then(group_max(48, 0x00122023, 0x000A6293),
                [](Scenario& s) { s.core.state().options.aux_exact_columns = true; });
  });
  e.push_back({"73 three group columns", no_fault, A1, 0, [] { return group_max(48, 0x00122023, 0x000A6293); }});
  ends("74 hand full", G1, [] {
    return then(w1(), [](Scenario& s) {
      s.core.state().options.name_policy = NamePolicy::absolute;
      for (unsigned i = 1; i <= 16; ++i) s.local(u(i), row_major(DataType::u8, 1, 1, all(0)));
    });
  });
  ends("75 pool exhausted", G2, [] { return then(w1(), fill_pool); });
  at("76 SizeCode 11", A1, 0x004DD293, [] { return with(w1(), w1_d, 0x004DD293); });
  at("77 destination with SizeCode 0", A1, 0x00086293, [] { return with(w1(), w1_d, 0x00086293); });
  at("78 another mask", A11, 0x0C204413, [] { return with(w1(), 0x0C204213, 0x0C204413); });
  at("79 B.IOS bit 26", A1, 0x04401E13, [] { return with(w4(), 0x00401E13, 0x04401E13); });
  at("80 B.IOS SizeCode 13", A1, 0x00469E13, [] { return with(w4(), 0x00401E13, 0x00469E13); });
  ends("81 Shared destination", D2, [] { return with(w4(), 0x00401E13, 0x00409E13); });
  at("82 S4 twice", A8, 0x00401E13, [] { return then(w4(), [](Scenario& s) { s.after(0x00501E13, {0x00401E13}); }); });
  at("83 fifth B.IOS", A9, 0x00801E13,
     [] { return then(w4(), [](Scenario& s) { s.after(0x00701E13, {0x00801E13}); }); });
  ends("84 only A and its scale Shared", D2, w4_right_group_only);
  ends("85 A scale missing", C2, [] { return without(w4(), 0x00501E13); });
  ends("86 mask 1000", C10, [] { return with(with(w5(), 0x00901E13, 0x00901213), 0x0209DF93, 0x0209D393); });
  ends("87 group_M 129", C8, [] { return with(w5(), 0x01400043, 0x08100043); });
  ends("88 PE1 without A", F0,
       [] { return then(w5(), [](Scenario& s) { s.core.state().pe[1].local[m(1)] = nullptr; }); });
  e.push_back({"89 PE3 without A", no_fault, A1, 0, w5});
  ends("90 no A bound", C3, [] { return with(w5(), 0x0209DF93, 0x0009EF93); });
  ends("91 S6 not ready", D2, [] { return then(w4(), [](Scenario& s) { s.core.set_pending(6); }); });
  ends("91 S6 not published", D2,
       [] { return then(w4(), [](Scenario& s) { s.core.state().shared[6].published = false; }); });
  ends("92 no S6", D2, [] { return then(w4(), [](Scenario& s) { s.core.state().shared[6] = {}; }); });
  ends("93 S6 32 x 8", D2, [] {
    return then(w4(), [](Scenario& s) { s.core.publish_shared(6, shared_tile(DataType::e4m3, 32, 8, all(0x38))); });
  });
  const auto wide_s6 = [](Scenario& s) {
    s.core.publish_shared(6, shared_tile(DataType::e4m3, 32, 16, all(0x38), 32));
  };
  e.push_back({"94 S6 with 32 columns", no_fault, A1, 0, [wide_s6] { return then(w4(), wide_s6); }});
  ends("94 S6 with 32 columns, exact", D2, [wide_s6] {
    return then(then(w4(), wide_s6), [](Scenario& s) { s.core.state().options.coop_exact_columns = true; });
  });
  ends("95 K 24, Tiles 32", D2, [] { return with(w4(), 0x02002043, 0x01802043); });
  const auto k24 = [](Scenario& s) {
    s.replace(0x02002043, 0x01802043);
    s.core.publish_shared(4, shared_tile(DataType::e4m3, 40, 24, all(0x38), 32, 2048));
    s.core.publish_shared(6, shared_tile(DataType::e4m3, 24, 16, all(0x38), 16, 512));
  };
  e.push_back({"95 K 24, Tiles 24", no_fault, A1, 0, [k24] { return then(w4(), k24); }});
  ends("95 K 24, Tiles 24, exact", D2,
       [k24] { return then(then(w4(), k24), [](Scenario& s) { s.core.state().options.coop_exact_columns = true; }); });
  ends("96 C 2 x 3", F7,
       [] { return then(w6(), [](Scenario& s) { s.local(u(3), m16(DataType::fp32, 2, 3, all(0))); }); });
  ends("97 C of another capacity", F7,
       [] { return then(w6(), [](Scenario& s) { s.local(u(3), m16(DataType::fp32, 2, 2, all(0), 256)); }); });
  ends("98 C is T#1, D goes to T", F8, acc_into_t);
  ends("99 CScale is T#1, D goes to T", F9, [] {
    return then(w6(), [](Scenario& s) {
      s.replace(0x55404213, 0x01404213);
      s.local(t(1), m32(DataType::u8, 2, 1, all(1)));
    });
  });
  ends("100 CScale in TGEMV_ACC", F2, [] { return with(with(w6(), 0x20231181, 0x21231181), 0x00200043, 0x00100043); });
  ends("101 CScale S8", F7,
       [] { return then(w6(), [](Scenario& s) { s.local(u(6), m32(DataType::s8, 2, 1, all(1))); }); });
  ends("101 CScale row-major", F7,
       [] { return then(w6(), [](Scenario& s) { s.local(u(6), row_major(DataType::u8, 2, 1, all(1))); }); });
  ends("102 DR", B0, [] { return then(w1(), [](Scenario& s) { s.after(w1_start, {0x04000023}); }); });
  at("103 BSTOP without bundle", A14, bstop, [] { return words_only({bstop}); });
  ends("104 BSTART after a bundle that faults", F0, [] {
    return then(with(w1(), bstop, w1_start), [](Scenario& s) { s.core.state().pe[0].local[t(3)] = nullptr; });
  });
  ends("105 TLOAD with a store code", T5, [] { return with(w9a(), 0x01F01B23, 0x01F01CA3); });
  ends("106 TLOAD CUBE with LB2", T6,
       [] { return then(w9a(), [](Scenario& s) { s.after(0x01001043, {0x01002043}); }); });
  ends("106 TLOAD CUBE without LB0", T6, [] { return without(w9a(), 0x02000043); });
  ends("107 TLOAD CUBE with FP16 in B.DATR", T4, [] { return with(w9a(), 0x01F01B23, 0x00401B23); });
  ends("108 TLOAD CUBE into a Shared Tile", T5, [] { return with(w9a(), 0x000A6213, 0x00621213); });
  ends("108 TLOAD CUBE with a B.IOS too", T2,
       [] { return then(w9a(), [](Scenario& s) { s.before(0x000A6213, {0x00621213}); }); });
  ends("109 TLOAD CUBE FP64", T7, [] { return with(w9a(), 0x20011181, 0x00011181); });
  ends("110 TLOAD CUBE too small", T13, [] { return with(w9a(), 0x000A6213, 0x0009E213); });
  ends("111 TSTORE CUBE of another shape", T6, [] { return with(w9b(), 0x01001043, 0x00F01043); });
  ends("112 TQUANT with B.IOR zero", Q2, [] { return with(w9d(), 0x00310013, 0x13); });
  ends("113 TQUANT without B.DATR", Q1, [] { return without(w9d(), 0x05301023); });
  ends("114 TDEQUANT with Sat", Q1, [] { return with(w9e(), 0x00101023, 0x04101023); });
  ends("115 TCVT with B.IOR", V1, [] { return then(w9c(), [](Scenario& s) { s.before(0x0008D293, {0x13}); }); });
  ends("115 TCVT with two bindings", V1,
       [] { return then(w9c(), [](Scenario& s) { s.before(0x0008D293, {0x00005213}); }); });
  ends("116 TCVT S8 to E8M0", V3, [] { return with(with(w9c(), 0x09B19181, 0x99B19181), 0x18409023, 0x18D09023); });

  // Rules that no example above reaches.
  at("B.IOS with another mask", A7, 0x00501213, [] { return with(w4(), 0x00501E13, 0x00501213); });
  at("B.IOS with another mask than B.IOT", A7, 0x00401E13,
     [] { return then(w1(), [](Scenario& s) { s.after(w1_a, {0x00401E13}); }); });
  ends("B.IOT with another mask than B.IOS", C10, [] { return with(w4(), 0x000A5E93, 0x000A5293); });
  at("17th B.IOT", A12, 0x00005213, [] {
    Scenario s = words_only({w1_start, fpatr});
    s.words.insert(s.words.end(), 17, 0x00005213);
    return s;
  });
  at("BSTART at an odd address", A13, w1_start, [] { return then(w1(), [](Scenario& s) { s.core.state().tpc = 1; }); });
  ends("odd continuation", A15, [] { return w1(); });
  e.back().make = [] {
    Scenario s = w1();
    for (std::size_t i = 0; i + 1 < s.words.size(); ++i) EXPECT_TRUE(s.core.step(s.words[i]).ok());
    s.words = {bstop};
    s.core.state().tpc += 1;
    return s;
  };
  e.push_back(
      {"trap", committed, A16, 0, [] { return then(w1(), [](Scenario& s) { s.after(w1_start, {0x00080023}); }); }});
  at("header command in the body", A2, w1_a, [] {
    Scenario s = w1();
    for (std::size_t i = 0; i < 5; ++i) EXPECT_TRUE(s.core.step(s.words[i]).ok());
    s.core.state().header.body = true;
    s.words = {w1_a};
    return s;
  });
  ends("TEPL function without operation", B3, [] { return words_only({0x08019181, bstop}); });
  ends("W10 with one effective binding", B2, [] { return then(w10(), [](Scenario& s) { s.before(bstop, {w1_a}); }); });
  ends("GEMV with HiF4X2 switched off", C1, [] {
    Scenario s = with(w8(), 0x59531181, 0x71531181);
    s.core.state().options.gemv_hif4 = false;
    return s;
  });
  ends("scalar scale without B.IOR", C6, [] { return w1_fpatr(0x68002023); });
  ends("RowMaxIn of another type", F4,
       [] { return then(w6(), [](Scenario& s) { s.local(u(7), row_major(DataType::s32, 2, 1, all(0))); }); });
  ends("activation parameters negative", F6,
       [] { return w1_extra(0x01802023, row_major(DataType::u64, 1, 8, all(0x5F800))); });
  ends("48 rows in CUBE_M32", F10, [] {
    Scenario s = with(w1(), w1_m, 0x03000043);
    s.local(t(1), m32(DataType::e4m3, 48, 32, all(0x38)));
    s.local(t(2), m32(DataType::e8m0, 48, 1, all(127)));
    return s;
  });
  ends("a Tile of another PE", F0, [] {
    return then(w1(), [](Scenario& s) { s.edit(t(3), [](Tile& x) { x.descriptor().allocation_mask = 4; }); });
  });
  ends("descriptor with a wrong derived field", F7,
       [] { return then(w1(), [](Scenario& s) { s.edit(t(3), [](Tile& x) { x.descriptor().cube_k_repeat = 3; }); }); });
  ends("CUBE Tile outside the matrix unit", F7, [] {
    return then(w1(), [](Scenario& s) { s.edit(t(1), [](Tile& x) { x.descriptor().location = Location::vector; }); });
  });
  ends("A and C in different layouts", F7,
       [] { return then(w6(), [](Scenario& s) { s.local(u(3), m32(DataType::fp32, 2, 2, all(0))); }); });
  ends("TLOAD without L", T1, [] { return with(tload_row_major(), 0x0009E213, 0x0001E213); });
  ends("TCVT without L", T1, [] { return with(w9c(), 0x0008D293, 0x0000D293); });
  ends("Shared TLOAD by two PEs", T3, [] { return with(w9f(), 0x00619213, 0x00619A13); });
  ends("TLOAD with a third scalar", T8, [] { return with(w9a(), 0x00310013, 0x20310013); });
  ends("TSTORE of an empty name", T9,
       [] { return then(w9b(), [](Scenario& s) { s.core.state().pe[0].local[u(1)] = nullptr; }); });
  ends("TSTORE of an undefined element", T10,
       [] { return then(w9b(), [](Scenario& s) { s.edit(u(1), [](Tile& x) { x.undefine_element(2, 2); }); }); });
  ends("TSTORE from another layout", T5,
       [] { return then(w9b(), [](Scenario& s) { s.local(u(1), m32(DataType::fp32, 16, 8, all(0))); }); });
  ends("unaligned base", T11, [] { return then(w9b(), [](Scenario& s) { s.core.state().pe[0].gpr[a0] = 0x20002; }); });
  ends("unmapped base", T12, [] { return then(w9b(), [](Scenario& s) { s.core.state().pe[0].gpr[a0] = 0x90000; }); });
  ends("TLOAD from unmapped memory", T12, [] { return then(w9a(), [](Scenario& s) { s.core.state().memory = {}; }); });
  ends("TCVT without LB0", V2, [] { return without(w9c(), 0x01000043); });
  ends("TCVT of another shape", V2, [] { return with(w9c(), 0x00401043, 0x00301043); });
  ends("TCVT with Canonicalize", V4, [] { return with(w9c(), 0x18409023, 0x1A409023); });
  ends("TCVT of a private Tile without Canonicalize", V4, [] {
    return then(w9c(), [](Scenario& s) { s.edit(t(1), [](Tile& x) { x.descriptor().location = Location::matrix; }); });
  });
  ends("TCVT of an N8 Tile", V5,
       [] { return then(w9c(), [](Scenario& s) { s.local(t(1), n8(DataType::fp32, 4, 16, all(0))); }); });
  ends("TCVT of an undefined element", V5,
       [] { return then(w9c(), [](Scenario& s) { s.edit(t(1), [](Tile& x) { x.undefine_element(0, 1); }); }); });
  ends("TCVT of an invalid encoding", V6, [] {
    Scenario s = with(w9c(), 0x09B19181, 0x11B19181);  // TF32
    s.local(t(1), row_major(DataType::tf32, 4, 16, all(0x3F800001)));
    return s;
  });
  ends("TCVT with other physical rows", V7, [] { return with(w9c(), 0x0008D293, 0x00095293); });
  return e;
}

/// The rule that an example hits, or nothing; checks everything that a rejection promises.
std::optional<RuleId> check(const Example& example) {
  SCOPED_TRACE(example.name);
  Scenario s = example.make();
  const std::size_t expected_at =
      example.when == When::command
          ? s.words.size() - 1 -
                static_cast<std::size_t>(std::find(s.words.rbegin(), s.words.rend(), example.bad) - s.words.rbegin())
          : s.words.size() - 1;
  for (std::size_t i = 0; i < s.words.size(); ++i) {
    const Core before = s.core;
    const Outcome o = s.core.step(s.words[i]);
    EXPECT_FALSE(o.waiting_for);
    if (!o.fault) {
      EXPECT_TRUE(example.when == When::no_fault || i < expected_at) << "no fault at word " << i;
      continue;
    }
    EXPECT_NE(example.when, When::no_fault) << rule(o.fault->id).name;
    EXPECT_EQ(i, expected_at) << rule(o.fault->id).name;
    EXPECT_EQ(rule(o.fault->id).name, rule(example.rule).name);
    if (example.when == When::committed) return o.fault->id;
    EXPECT_EQ(s.core, before) << "the rejected step left a trace";
    EXPECT_FALSE(o.completed || o.started || o.header_changed);
    EXPECT_TRUE(o.tiles.empty() && !o.shared && o.stores == 0);
    // Trying again gives the same answer.
    const Outcome again = s.core.step(s.words[i]);
    EXPECT_EQ(again.fault, o.fault);
    EXPECT_EQ(s.core, before);
    return o.fault->id;
  }
  return std::nullopt;
}

TEST(Rejection, EveryExample) {
  std::set<int> numbers;
  for (const Example& example : examples()) {
    check(example);
    numbers.insert(std::atoi(example.name.c_str()));
  }
  for (int i = 1; i <= 116; ++i) EXPECT_TRUE(numbers.contains(i)) << "example " << i << " is missing";
}

TEST(Rejection, EveryRuleIsHit) {
  std::set<RuleId> hit;
  for (const Example& example : examples()) {
    if (const auto id = check(example)) hit.insert(*id);
  }
  // The instruction fetch has its own test: no word reaches it.
  Core core;
  const Outcome o = core.step();
  ASSERT_TRUE(o.fault);
  hit.insert(o.fault->id);
  for (const Rule& r : rules()) EXPECT_TRUE(hit.contains(r.id)) << "no test hits rule " << r.name;
}

TEST(Rejection, WaitInsteadOfFault) {
  Scenario s = w4();
  s.core.state().options.wait_on_pending = true;
  s.core.set_pending(6);
  const Progress p = run(s);
  ASSERT_TRUE(p.outcome.waiting_for);
  EXPECT_EQ(*p.outcome.waiting_for, 6U);
  EXPECT_FALSE(p.outcome.fault);
  const Core waiting = s.core;
  EXPECT_TRUE(s.core.step(bstop).waiting_for);
  EXPECT_EQ(s.core, waiting);
  s.core.state().shared[6].published = s.core.state().shared[6].whole_parent_ready = true;
  EXPECT_TRUE(s.core.step(bstop).completed);
}

}  // namespace
}  // namespace bitcube::machine::test
