// The program text: every directive, every error with its position, labels, runs.
#include "bitcube/program/program.hpp"

#include <gtest/gtest.h>

#include "bitcube/io/npy.hpp"
#include "bitcube/io/packed.hpp"
#include "io/temp_dir.hpp"

namespace bitcube::program {
namespace {

using bitcube::test::TempDir;
using bitcube::test::write_text;

struct Ran {
  machine::Core core{};
  RunResult result{};
  std::string error{};
};

Ran run_text(std::string_view text, const std::filesystem::path& directory = {}) {
  Ran ran;
  const auto program = Program::parse(text, "p.s", directory);
  if (!program) {
    ran.error = program.error().message;
    return ran;
  }
  ran.result = run(*program, ran.core);
  return ran;
}

/// Ends, and every expectation holds.
testing::AssertionResult holds(const Ran& ran) {
  if (!ran.error.empty()) return testing::AssertionFailure() << ran.error;
  for (const CheckResult& check : ran.result.checks) {
    if (!check.holds) {
      return testing::AssertionFailure() << check.position.line << ": " << check.text << ": " << check.message;
    }
  }
  if (ran.result.fault) return testing::AssertionFailure() << explain(*ran.result.fault, ran.result.rejection);
  if (!ran.result.ok()) return testing::AssertionFailure() << "end " << static_cast<int>(ran.result.end);
  return testing::AssertionSuccess();
}
testing::AssertionResult holds(std::string_view text, const std::filesystem::path& directory = {}) {
  return holds(run_text(text, directory));
}

/// The one expectation that fails, and how.
testing::AssertionResult differs(std::string_view text, std::string_view message) {
  const Ran ran = run_text(text);
  if (!ran.error.empty()) return testing::AssertionFailure() << ran.error;
  std::string found;
  for (const CheckResult& check : ran.result.checks) {
    if (!check.holds) found += check.message;
  }
  if (found == message && ran.result.failed == 1) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "found: " << found;
}

/// The text is refused with this message at this place.
testing::AssertionResult refused(std::string_view text, std::string_view message,
                                 const std::filesystem::path& directory = {}) {
  const Ran ran = run_text(text, directory);
  if (ran.error == message) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "found:    " << ran.error << "\nexpected: " << message;
}

constexpr std::string_view w1_tail = R"(
BSTART.TMATMULMX.BIAS E4M3
B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 0, 0
B.DIM 16, ->LB0 ; B.DIM 8, ->LB1 ; C.B.DIMI 32, ->LB2
B.IOT T#1, T#2, mask=1000
B.IOT T#3, T#4, mask=1000
B.IOT T#5, mask=1000, <last>, ->U<3>
BSTOP
)";
constexpr std::string_view w1_tiles = R"(
.tile 0 T#1 CUBE_M16 E4M3 16 32 = all 1.0
.tile 0 T#2 CUBE_M32 E8M0 16 1 = 1 2 4 ...
.tile 0 T#3 CUBE_N8 E4M3 32 8 = all 0.5
.tile 0 T#4 CUBE_M32 E8M0 8 1 = 0.5 2 ...
.tile 0 T#5 RowMajor FP32 1 8 = 0 1 2 3 4 5 6 7
)";
std::string w1(std::string_view more) {
  return std::string(w1_tiles) + std::string(w1_tail) + std::string(more);
}

TEST(Directives, Options) {
  const Ran ran = run_text(R"(
.option name_policy absolute
.option wait_on_pending on
.option coop_exact_columns 1
.option AUX_EXACT_COLUMNS on
.option gemv_hif4 off
.option strict_reserved_bits 0
.option scalar_pe 2
.option accumulation exact
.option conversion ocp
)");
  ASSERT_TRUE(holds(ran));
  const machine::Options& o = ran.core.state().options;
  EXPECT_EQ(o.name_policy, machine::NamePolicy::absolute);
  EXPECT_TRUE(o.wait_on_pending && o.coop_exact_columns && o.aux_exact_columns);
  EXPECT_FALSE(o.gemv_hif4 || o.strict_reserved_bits);
  EXPECT_EQ(o.scalar_pe, 2U);
  EXPECT_EQ(o.accumulation->name, "exact");
  EXPECT_EQ(o.conversion->name, "ocp");
}

TEST(Directives, Registers) {
  const Ran ran = run_text(R"(
.gpr 0 a0 = 0x10, a1 = -1
.gpr PE2 s8 = 0xFFFFFFFFFFFFFFFF
.gpr 0101 ra = fp32:1.5     # PE1 and PE3
.gpr all x3 = 7
.expect gpr 0 a0 == 16, a1 == 0xFFFFFFFFFFFFFFFF
.expect gpr 0101 ra == 0x3FC00000
.expect gpr all x3 == 7
.expect gpr 0 ra == 0
.expect gpr 2 zero == 0
)");
  EXPECT_TRUE(holds(ran));
  EXPECT_EQ(ran.result.checks.size(), 5U);
  EXPECT_TRUE(differs(".gpr 3 a0 = 5\n.expect gpr all a0 == 0\n", "PE3 a0 is 0x5, expected 0x0"));
}

TEST(Directives, Memory) {
  const TempDir dir;
  write_text(dir / "x.bin", std::string("\x01\x02\x03", 3));
  const std::vector<float> values{1.0F, 2.0F};
  ASSERT_TRUE(
      write_npy(dir / "x.npy", DType::kF32, std::array<std::uint64_t, 2>{1, 2}, std::as_bytes(std::span(values))));
  EXPECT_TRUE(holds(R"(
.org 0x4000
.memory 0x1000 bytes 01 0a FF
.memory 0x2000 file "x.bin"
.memory 0x3000 zero 8
.memory 0x3100 FP16 1.0 2.0*2
.memory 0x3200 U32 0x12345678
.memory 0x3300 HiF4X2 1.0 0.5 0.25
.memory 0x3400 "x.npy"
.memory 0x3500 "x.npy" transposed at 1 0
.expect memory 0x1000 == bytes 01 0A ff
.expect memory 0x2000 == file "x.bin"
.expect memory 0x3000 == zero 8
.expect memory 0x3100 == bytes 00 3C 00 40 00 40
.expect memory 0x3200 == bytes 78 56 34 12
.expect memory 0x3300 == bytes 24 01
.expect memory 0x3400 == FP32 1 2
.expect memory 0x3500 == FP32 2
)",
                    dir.path()));
  EXPECT_TRUE(differs(".memory 0x1000 bytes 01 02 03\n.expect memory 0x1000 == bytes 01 00 00\n",
                      "byte 0x1001 is 02, expected 00; 2 of 3 bytes differ"));
  EXPECT_TRUE(differs(".expect memory 0x9000 == bytes 00\n", "byte 0x9000 is not mapped, expected 00"));
}

TEST(Directives, Tiles) {
  const Ran ran = run_text(R"(
.tile 0 T#1 CUBE_M16 FP16 2 3 = 1 2 3 \
                                4 5 6
.tile all U#16 ND U8 1 3 columns=4 capacity=256 mask=1111 = 0xFF 0 7
.tile 1100 M#2 N8 S4X2 2 2 = -8 7 ...
.tile 3 N#1 ZN FP16 16 16 undefined
.shared S63 E8M0 3 1 columns=1 = 1 0.5 nan
.pending S63
.expect tile 0 T#1 CUBE_M16 FP16 2 3 == 0x3C00 2 3 4 5 6
.expect tile all U#16 RowMajor U8 1 3 columns=4 capacity=256 mask=1111 == 255 0 7
.expect tile 1 M#2 CUBE_N8 S4X2 2 2 == -8 7 -8 7
.expect tile 2 M#2 none
.expect tile 3 N#1 ZN FP16 16 16
.expect shared S63 E8M0 3 1 == 0x7F 0x7E 0xFF
)");
  EXPECT_TRUE(holds(ran));
  EXPECT_TRUE(refused(".expect tile 0 T#1\n",
                      "p.s:1:19: expected a layout (RowMajor, CUBE_M16, …), found the end of the directive"));
  EXPECT_TRUE(differs(".tile 0 T#1 M16 FP16 1 2 = 1 2\n.expect tile 0 T#1 M16 FP16 1 2 == 1 3\n",
                      "PE0 T#1 row 0, column 1 is 0x4000, expected 0x4200"));
  EXPECT_TRUE(differs(".tile 0 T#1 M16 FP16 1 2 = 1 2\n.expect tile 0 T#1 M32 FP16 1 2\n",
                      "PE0 T#1 is FP16 CUBE_M16 1 x 2, expected FP16 CUBE_M32 1 x 2"));
  EXPECT_TRUE(differs(".tile 0 T#1 M16 FP16 1 2 undefined\n.expect tile 0 T#1 M16 FP16 1 2 == 0 0\n",
                      "PE0 T#1 row 0, column 0 is undefined, expected 0x0000; 2 of 2 elements differ"));
  EXPECT_TRUE(differs(".expect tile 0 T#1 M16 FP16 1 2\n", "PE0 T#1 holds no Tile"));
  EXPECT_TRUE(differs(".tile 0 T#1 M16 FP16 1 2 = 1 2\n.expect tile 0 T#1 none\n",
                      "PE0 T#1 holds FP16 CUBE_M16 1 x 2, expected nothing"));
  EXPECT_TRUE(differs(".shared S1 FP16 1 2 = 1 2\n.expect shared S1 FP16 1 2 capacity=256\n",
                      "S1 has a capacity of 128 bytes, expected 256"));
}

TEST(Directives, DropUndefineFlagsPool) {
  EXPECT_TRUE(holds(R"(
.tile 0 T#1 M16 FP16 1 2 = 1 2
.shared S5 FP16 1 2 = 1 2
.expect pool 0 == 128
.drop 0 T#1
.drop S5
.expect tile 0 T#1 none
.expect shared S5 none
.flags NV, NX
.expect flags NV NX
.flags none
.expect flags none
.expect pc 0
)"));
  EXPECT_TRUE(differs(".flags OF\n.expect flags none\n", "the flags are OF, expected none"));
  EXPECT_TRUE(differs(".expect pool 0 == 5\n", "PE0 holds 0 bytes of Tiles, expected 5"));
  EXPECT_TRUE(differs(".expect pc 4\n", "TPC is 0x0, expected 0x4"));
}

TEST(Directives, Reset) {
  // The bundle is left open, and memory stays.
  EXPECT_TRUE(holds(R"(
.option name_policy absolute
.gpr 2 a0 = 7
.flags NX
.memory 0x1000 bytes 01 02
.tile 0 T#1 M16 FP16 1 1 = 1
.shared S3 FP16 1 1 = 1
BSTART.TMATMUL FP16
.reset
.expect gpr 2 a0 == 0
.expect flags none
.expect tile 0 T#1 none
.expect shared S3 none
.expect pool 0 0
.expect memory 0x1000 == bytes 01 02
BSTART.TMATMUL FP16
B.CATR trap=1
)"));
  EXPECT_EQ(run_text(".option name_policy absolute\n.reset\n").core.state().options.name_policy,
            machine::NamePolicy::relative);
  EXPECT_TRUE(refused(".reset 1", "p.s:1:8: expected the end of the directive, found '1'"));
}

TEST(Directives, SharedTilesOfOtherLayouts) {
  EXPECT_TRUE(holds(R"(
.shared S3 FP16 2 3 layout=ColumnMajor columns=4 capacity=128 = 1 2 3 4 5 6
.expect shared S3 FP16 2 3 layout=DN columns=4 == 1 2 3 4 5 6
)"));
  EXPECT_TRUE(differs(".shared S3 FP16 1 2 layout=DN = 1 2\n.expect shared S3 FP16 1 2 == 1 2\n",
                      "S3 is FP16 ColumnMajor 1 x 2, expected FP16 RowMajor 1 x 2"));
}

TEST(Directives, TilesFromFiles) {
  const TempDir dir;
  const std::vector<std::uint16_t> halves{0x3C00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600};
  const std::vector<std::uint64_t> shape{2, 3};
  ASSERT_TRUE(write_npy(dir / "h.npy", DType::kF16, shape, std::as_bytes(std::span(halves))));
  ASSERT_TRUE(write_npy(dir / "u.npy", DType::kU16, shape, std::as_bytes(std::span(halves))));
  std::vector<float> floats(2 * 70);
  for (std::size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(i % 7) - 3;
  const auto tensor = quantize(std::as_bytes(std::span(floats)), fp32, std::vector<std::uint64_t>{2, 70}, 1);
  ASSERT_TRUE(tensor);
  ASSERT_TRUE(save_packed(dir / "q.safetensors", "x", *tensor));
  const Ran ran = run_text(R"(
.tile 0 T#1 M16 FP16 2 3 "h.npy"
.tile 0 T#2 M16 BF16 2 3 = "u.npy"
.tile 0 T#3 M16 FP16 3 2 "h.npy" transposed
.tile 0 T#4 M16 FP16 1 2 "h.npy" at 1 1
.tile 0 T#5 M16 HiF4X2 2 70 "q.safetensors" codes
.tile 0 T#6 M32 U32 2 2 "q.safetensors" scales tensor "x"
.memory 0x1000 "q.safetensors" codes
.expect tile 0 T#1 M16 FP16 2 3 == 1 2 3 4 5 6
.expect tile 0 T#2 == "u.npy"
.expect tile 0 T#3 M16 FP16 3 2 == 1 4 2 5 3 6
.expect tile 0 T#4 M16 FP16 1 2 == 5 6
.expect tile 0 T#1 == "h.npy"
)",
                           dir.path());
  ASSERT_TRUE(holds(ran));
  const machine::Tile& codes = *ran.core.state().pe[0].local[4];
  EXPECT_EQ(codes.element(1, 69), std::to_integer<unsigned>(tensor->codes[69]) >> 4);
  EXPECT_EQ(ran.core.state().memory.byte(0x1000 + 35), std::to_integer<unsigned>(tensor->codes[35]));
  const std::string d = dir.path().string();
  EXPECT_TRUE(refused(".tile 0 T#1 M16 FP16 2 2 \"h.npy\"\n",
                      "p.s:1:26: " + d + "/h.npy: expected 2 x 2 elements, found 2 x 3 ('at ROW COLUMN' takes a part)",
                      dir.path()));
  EXPECT_TRUE(refused(".tile 0 T#1 M16 FP16 2 2 \"h.npy\" at 1 1\n",
                      "p.s:1:26: " + d + "/h.npy: 2 x 2 elements at 1, 1 are not inside 2 x 3", dir.path()));
  EXPECT_TRUE(refused(".tile 0 T#1 M16 E4M3 2 3 \"h.npy\"\n",
                      "p.s:1:26: " + d +
                          "/h.npy: float16 elements are no E4M3; expected its own type, or codes as "
                          "unsigned integers of 8 bits",
                      dir.path()));
  EXPECT_TRUE(refused(".tile 0 T#1 M16 HiF4X2 2 70 \"q.safetensors\"\n",
                      "p.s:1:44: expected 'codes' or 'scales': which part of the quantised tensor, found the end of "
                      "the directive",
                      dir.path()));
  EXPECT_TRUE(refused(".tile 0 T#1 M16 E4M3 2 70 \"q.safetensors\" codes\n",
                      "p.s:1:27: " + d + "/q.safetensors: the codes of hif4 are HiF4X2, not E4M3", dir.path()));
  EXPECT_NE(run_text(".tile 0 T#1 M16 FP16 2 3 \"none.npy\"\n", dir.path()).error.find("p.s:1:26: "),
            std::string::npos);
}

TEST(Run, W1) {
  const Ran ran =
      run_text(w1(".expect tile 0 U#1 CUBE_M16 FP32 16 8 == 8 33 10 35 12 37 14 39 "
                  "16 65 18 67 20 69 22 71 32 129 34 131 36 133 38 135 ...\n"));
  EXPECT_TRUE(holds(ran));
  EXPECT_EQ(ran.result.steps, 9U);
  EXPECT_EQ(ran.result.bundles, 1U);
  EXPECT_EQ(ran.result.pc, 34U);  // one of the nine has 16 bits
}

TEST(Run, UnexpectedFaultStops) {
  const Ran ran = run_text(std::string(w1_tail) + ".expect flags none\n");
  EXPECT_EQ(ran.result.end, RunResult::End::fault);
  ASSERT_TRUE(ran.result.fault);
  EXPECT_EQ(ran.result.fault->id, machine::RuleId::F0);
  EXPECT_EQ(ran.result.position.line, 8);
  EXPECT_EQ(ran.result.not_reached, 1U);
  EXPECT_NE(explain(*ran.result.fault).find("TileLegality F0, PE0, A: found T#1; legal: a name with a live Tile"),
            std::string::npos)
      << explain(*ran.result.fault);
}

TEST(Run, ExpectedFaults) {
  EXPECT_TRUE(holds(std::string(w1_tail) + ".expect fault TileLegality\n.expect unchanged\n"));
  EXPECT_TRUE(holds(std::string(w1_tail) + ".expect unchanged\n.expect fault TileLegality F0 PE0\n"));
  EXPECT_TRUE(
      holds("BSTOP\n.expect fault BundleControl A14\nB.FPATR 0, 0, 0, 0, 0, 0, 0, 0, 0, 0\n"
            ".expect fault BundleControl A2\n.word 0x0F000001\n.expect fault IllegalInstruction A1\n"));
  EXPECT_TRUE(
      differs("BSTOP\n.expect fault TileLegality F5\n",
              "found BundleControl A14, command: found no active bundle; legal: a BSTART before the stop (a stop "
              "command, and every completion, needs an active bundle)"));
  EXPECT_TRUE(differs("BSTART.TLOAD FP32\n.expect fault TileLegality\n", "the instruction was accepted"));
  EXPECT_TRUE(differs("BSTART.TLOAD FP32\n.expect waiting S1\n", "the bundle does not wait"));
}

TEST(Run, RetryAfterRepair) {
  EXPECT_TRUE(holds(std::string(w1_tail) + ".expect fault TileLegality F0\n.expect unchanged\n" +
                    std::string(w1_tiles) + "BSTOP\n.expect tile 0 U#1 M16 FP32 16 8\n"));
}

TEST(Run, Trap) {
  // Reported after the bundle took effect; a BSTART that completed it then starts its own.
  constexpr std::string_view bundle = "BSTART.TMATMUL FP16\nB.CATR trap=1\nB.IOT T#1, mask=0000\n";
  EXPECT_TRUE(holds(std::string(bundle) + "BSTOP\n.expect fault BundlePostCommit A16\n"));
  const Ran ran = run_text(std::string(bundle) + "BSTART.TLOAD FP32\n.expect fault BundlePostCommit A16\n");
  EXPECT_TRUE(holds(ran));
  EXPECT_TRUE(ran.core.state().header.active);
  EXPECT_EQ(ran.core.state().header.operation.code, isa::Operation::tload);
}

TEST(Run, Waiting) {
  constexpr std::string_view text = R"(
.option wait_on_pending on
.shared S9 FP16 16 8 = all 1.0
.tile all M#1 CUBE_M16 FP16 16 16 = all 1.0
.pending S9
BSTART.TMATMUL FP16
B.FPATR 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
B.DIM 64, ->LB0; B.DIM 8, ->LB1; B.DIM 16, ->LB2
B.IOS S9, mask=1111
B.IOT M#1, mask=1111, <last>, ->N<3>
BSTOP
)";
  const Ran stuck = run_text(text);
  EXPECT_EQ(stuck.result.end, RunResult::End::waiting);
  EXPECT_EQ(stuck.result.waiting_for, 9U);
  EXPECT_TRUE(
      holds(std::string(text) +
            ".expect waiting S9\n.expect unchanged\n.ready S9\nBSTOP\n.expect tile all N#1 M16 FP32 16 8 == all 16\n"));
}

TEST(Run, LabelsAndBranches) {
  const Ran ran = run_text(R"(
start: BSTART DIRECT, over   # an empty bundle; the branch is taken when it completes
BSTOP
.flags NV                    // never reached
C.BSTART.STD 1
over:
.expect flags none
.expect pc 0x0A
)");
  EXPECT_TRUE(holds(ran));
  EXPECT_EQ(ran.result.steps, 2U);
  // Backwards, without an end.
  const auto loop = Program::parse("again: C.BSTART DIRECT, again\nC.BSTOP\n", "p.s");
  ASSERT_TRUE(loop);
  machine::Core core;
  const RunResult result = run(*loop, core, {.max_steps = 10});
  EXPECT_EQ(result.end, RunResult::End::limit);
  EXPECT_EQ(result.steps, 10U);
}

TEST(Run, NotReached) {
  const Ran ran = run_text("BSTART DIRECT, end\nBSTOP\n.expect flags NX\nend:\n");
  // The directive stands at the address of the label, so control reaches it.
  EXPECT_EQ(ran.result.failed, 1U);
  const Ran skipped = run_text("BSTART DIRECT, end\nBSTOP\n.expect flags NX\nBSTOP\nend:\n");
  EXPECT_EQ(skipped.result.not_reached, 1U);
  EXPECT_FALSE(skipped.result.ok());
}

TEST(Run, LeavesTheProgram) {
  const Ran ran = run_text("BSTART DIRECT, 0x4000\nBSTOP\n");
  EXPECT_EQ(ran.result.end, RunResult::End::fault);
  EXPECT_EQ(ran.result.fault->id, machine::RuleId::A17);
  EXPECT_EQ(ran.result.position.line, 0);
}

// What follows the program in memory is zero, and would make a stop of half a word.
TEST(Run, AWordThatTheEndCutsOff) {
  for (const char* text : {".byte 0x01\n", ".half 0x0033\n", "C.BSTART DIRECT, 1\n.half 0x1181\n"}) {
    const Ran ran = run_text(text);
    EXPECT_EQ(ran.result.end, RunResult::End::cut_off) << text;
    EXPECT_EQ(ran.result.bundles, 0U) << text;
  }
  const auto whole = Program::parse(w1(""), "p.s");
  ASSERT_TRUE(whole);
  auto bytes = whole->bytes();
  for (std::size_t n = bytes.size() - 1; n > bytes.size() - 4; --n) {
    const auto cut = Program::from_bytes({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)}, "p.bin");
    ASSERT_TRUE(cut);
    machine::Core core;
    EXPECT_NE(run(*cut, core).end, RunResult::End::completed) << n;
  }
}

TEST(Run, Words) {
  const auto text = Program::parse(w1(""), "p.s");
  ASSERT_TRUE(text);
  EXPECT_EQ(text->bytes().size(), 34U);
  const auto words = Program::from_bytes(text->bytes(), "p.bin");
  ASSERT_TRUE(words);
  EXPECT_EQ(words->bytes(), text->bytes());
  EXPECT_EQ(words->lines().size(), 9U);
  EXPECT_EQ(words->lines()[0].text, "BSTART.TMATMULMX.BIAS E4M3");
  machine::Core core;
  EXPECT_EQ(run(*words, core).end, RunResult::End::fault);
}

TEST(Errors, Positions) {
  EXPECT_TRUE(refused("\n  .tilt 0\n",
                      "p.s:2:3: unknown directive '.tilt'; did you mean .tile? (legal: .option, .gpr, "
                      ".memory, .tile, .shared, .drop, .ready, .pending, .undefine, .flags, .reset, .expect, "
                      ".org, .byte, .half, .word, .dword)"));
  EXPECT_TRUE(run_text("BSTART.TLOAD FP33\n").error.starts_with("p.s:1:14: "));
  EXPECT_TRUE(run_text("BSTOP\n   B.DIM 1, ->LB7\n").error.starts_with("p.s:2:15: "));
  EXPECT_TRUE(refused(".option nam_policy x\n",
                      "p.s:1:9: unknown option 'nam_policy'; did you mean name_policy? (legal: name_policy, "
                      "wait_on_pending, coop_exact_columns, aux_exact_columns, gemv_hif4, scalar_pe, "
                      "strict_reserved_bits, accumulation, conversion)"));
  // Addresses do not wrap.
  EXPECT_TRUE(refused(".memory 0xFFFFFFFFFFFFFFFF zero 2\n",
                      "p.s:1:9: 2 bytes from 0xFFFFFFFFFFFFFFFF on go beyond 2^64; at most 1 fit"));
  EXPECT_TRUE(refused(".expect memory 0xFFFFFFFFFFFFFFFE == bytes 01 02 03\n",
                      "p.s:1:16: 3 bytes from 0xFFFFFFFFFFFFFFFE on go beyond 2^64; at most 2 fit"));
  EXPECT_TRUE(Program::parse(".memory 0xFFFFFFFFFFFFFFFE zero 2\n", "p.s"));
  EXPECT_TRUE(refused(".option wait_on_pending maybe\n", "p.s:1:25: expected on or off, found 'maybe'"));
  EXPECT_TRUE(refused(".option name_policy new\n", "p.s:1:21: expected relative or absolute, found 'new'"));
  EXPECT_TRUE(refused(".option scalar_pe 4\n", "p.s:1:19: 4 is not legal as a PE; legal: 0..3"));
  EXPECT_TRUE(refused(".option accumulation fna\n",
                      "p.s:1:22: 'fna' is no accumulation profile; did you mean fma? (legal: fma, two-step, group, "
                      "exact, raw-carrier)"));
  EXPECT_TRUE(refused(".option conversion x\n", "p.s:1:20: 'x' is no conversion profile (legal: pto, asl, ocp)"));
  EXPECT_TRUE(
      refused(".gpr 4 a0 = 1\n", "p.s:1:6: expected a PE (0..3, PE0..PE3, all, or a mask such as 1100), found '4'"));
  EXPECT_TRUE(refused(".gpr 0000 a0 = 1\n", "p.s:1:6: the mask 0000 has no PE; expected at least one"));
  EXPECT_TRUE(refused(".gpr 0 b0 = 1\n", "p.s:1:8: expected a register (sp, a0..a7, ra, s0..s8, x0..x3), found 'b0'"));
  EXPECT_TRUE(refused(".gpr 0 zero = 1\n", "p.s:1:8: zero is always 0; expected another register"));
  EXPECT_TRUE(refused(".gpr 0 a0 1\n", "p.s:1:11: expected '=', found '1'"));
  EXPECT_TRUE(
      refused(".gpr 0 a0 = one\n", "p.s:1:13: expected a 64-bit number (0x…, decimal, or fp32:1.5), found 'one'"));
  EXPECT_TRUE(refused(".gpr 0 a0 = 0x1FFFFFFFFFFFFFFFF\n",
                      "p.s:1:13: expected a 64-bit number (0x…, decimal, or fp32:1.5), found '0x1FFFFFFFFFFFFFFFF'"));
  EXPECT_TRUE(refused(".gpr 0 a0 = 1 2\n", "p.s:1:15: expected the end of the directive, found '2'"));
  EXPECT_TRUE(refused(".memory here bytes 00\n", "p.s:1:9: expected an address, found 'here'"));
  EXPECT_TRUE(refused(".memory 0 bytes 1\n", "p.s:1:17: expected a byte of two hexadecimal digits, found '1'"));
  EXPECT_TRUE(refused(".memory 0 zero 99999999999\n",
                      "p.s:1:16: 99999999999 is not legal as the number of bytes; legal: 1..1073741824"));
  EXPECT_TRUE(refused(".memory 0 file x\n", "p.s:1:16: expected a file name in quotes, found 'x'"));
  EXPECT_TRUE(refused(".memory 0 file \"x\n", "p.s:1:16: the string has no end: expected '\"' on the same line"));
  EXPECT_TRUE(refused(".memory 0 FP32 1 ...\n", "p.s:1:18: '...' needs a shape that says how often to repeat"));
  EXPECT_TRUE(refused(".memory 2 bytes 00\nBSTOP\n",
                      "p.s:1:1: 0x2..0x2 overlaps the program, which lies in 0x0..0x3; expected another address, or "
                      ".org to move the program"));
  EXPECT_TRUE(refused("BSTOP\n.org 4\n", "p.s:2:6: .org comes before every instruction, label and other directive"));
}

TEST(Errors, Tiles) {
  EXPECT_TRUE(refused(".tile 0 T#17 M16 FP16 1 1 = 1\n",
                      "p.s:1:9: expected a Local Tile (T#1..T#16, U#…, M#…, N#…), found 'T#17'"));
  EXPECT_TRUE(refused(".shared S64 FP16 1 1 = 1\n", "p.s:1:9: expected a Shared Tile (S0..S63), found 'S64'"));
  EXPECT_TRUE(refused(".tile 0 T#1 CUBE_M17 FP16 1 1 = 1\n",
                      "p.s:1:13: unknown layout 'CUBE_M17'; did you mean CUBE_M16? (legal: RowMajor, ColumnMajor, ZN, "
                      "NZ, CUBE_M16, CUBE_M32, CUBE_N8)"));
  EXPECT_TRUE(run_text(".tile 0 T#1 M16 FP17 1 1 = 1\n")
                  .error.starts_with("p.s:1:17: unknown data type 'FP17'; did you mean FP16? (legal: FP64, "));
  EXPECT_TRUE(
      refused(".tile 0 T#1 M16 FP16 0 1 = 1\n", "p.s:1:22: 0 is not legal as the number of rows; legal: 1..65535"));
  EXPECT_TRUE(refused(".tile 0 T#1 M16 FP16 17 1 = all 1\n",
                      "p.s:1:13: no FP16 CUBE_M16 Tile of 17 x 1: the layout has no such shape"));
  EXPECT_TRUE(refused(".tile 0 T#1 M16 FP16 1 1 columns=4 = 1\n",
                      "p.s:1:13: no FP16 CUBE_M16 Tile of 1 x 1: a CUBE layout has no 'columns='; its cells say them"));
  EXPECT_TRUE(
      refused(".tile 0 T#1 ND FP32 60000 60000 = all 1\n",
              "p.s:1:13: 60000 x 60000 elements of FP32 take 14400000000 bytes; a Local Tile has at most 65536"));
  EXPECT_TRUE(
      refused(".tile 0 T#1 ND FP32 1 2\n",
              "p.s:1:24: expected the elements: a file name in quotes, 'all VALUE', or values, found the end of "
              "the directive"));
  EXPECT_TRUE(
      refused(".tile 0 T#1 ND FP32 1 2 = 1\n",
              "p.s:1:28: expected 2 values, of which 1 are missing (a last '...' repeats them), found the end of "
              "the directive"));
  EXPECT_TRUE(refused(".tile 0 T#1 ND FP32 1 2 = 1 2 3\n", "p.s:1:31: expected 2 values, found more"));
  EXPECT_TRUE(refused(".tile 0 T#1 ND FP32 1 2 = 1*99999999999\n", "p.s:1:27: expected 2 values, found more"));
  EXPECT_TRUE(
      refused(".tile 0 T#1 ND FP32 1 2 = 1*0\n", "p.s:1:27: expected a count of at least 1 after '*', found '0'"));
  EXPECT_TRUE(
      refused(".tile 0 T#1 ND FP32 1 2 = ...\n", "p.s:1:27: expected a value before '...', which repeats the values"));
  EXPECT_TRUE(refused(".tile 0 T#1 ND E4M3 1 1 = 1000\n", "p.s:1:27: 1000 is beyond E4M3"));
  EXPECT_TRUE(refused(".tile 0 T#1 ND U8 1 1 = -1\n", "p.s:1:25: -1 is beyond U8"));
  EXPECT_TRUE(
      refused(".tile 0 T#1 ND E2M1 1 1 = nan\n", "p.s:1:27: E2M1X2 has no code for nan; write its bits after 0x"));
  EXPECT_TRUE(
      refused(".tile 0 T#1 ND E2M1 1 1 = 0x10\n", "p.s:1:27: 0x10 does not fit a lane of E2M1X2, which has 4 bits"));
  EXPECT_TRUE(refused(".tile 0 T#1 ND FP32 1 1 = 1.2.3\n",
                      "p.s:1:27: '1.2.3' is no number: unexpected characters after the number"));
  // A continued directive: the column is that of the line it stands in.
  EXPECT_TRUE(refused(".tile 0 T#1 ND FP32 1 2 = 1 \\\n   x\n", "p.s:2:4: 'x' is no number: no digits"));
}

TEST(Errors, Expectations) {
  EXPECT_TRUE(refused("BSTOP\n.expect falt X\n",
                      "p.s:2:9: unknown expectation 'falt'; did you mean fault? (legal: fault, waiting, tile, shared, "
                      "memory, gpr, flags, pool, unchanged, pc)"));
  EXPECT_TRUE(refused("BSTOP\n.expect fault TileLegalit\n",
                      "p.s:2:15: unknown fault class 'TileLegalit'; did you mean TileLegality? (legal: "
                      "IllegalInstruction, InstructionPC, InstructionPage, DataAlignment, DataPage, TileLegality, "
                      "TileAllocation, BundleControl, BundlePostCommit)"));
  EXPECT_TRUE(refused("BSTOP\n.expect fault TileLegality Z9\n",
                      "p.s:2:28: unknown rule 'Z9'; the rules are A1..A17, P1..P3, B0..B3, C1..C11, D1, D2, F0..F10, "
                      "G1..G4, T1..T13, V1..V7, Q1, Q2"));
  EXPECT_TRUE(
      refused("BSTOP\n.expect fault TileLegality G1\n", "p.s:2:28: rule G1 raises TileAllocation, not TileLegality"));
  EXPECT_TRUE(refused(".expect fault TileLegality\nBSTOP\n",
                      "p.s:1:1: expected an instruction before this expectation, which is about the one before it"));
  EXPECT_TRUE(refused(".expect flags NY\n", "p.s:1:15: unknown flag 'NY'; legal: NV, DZ, OF, UF, NX, or none alone"));
  EXPECT_TRUE(refused(".expect tile 0 T#1 == all 1\n",
                      "p.s:1:23: expected a file name in quotes (inline values need LAYOUT TYPE ROWS COLUMNS before "
                      "'=='), found 'all'"));
  EXPECT_TRUE(refused(".expect unchanged now\n", "p.s:1:19: expected the end of the directive, found 'now'"));
  EXPECT_TRUE(differs(".expect unchanged\n", "no instruction was executed yet"));
}

TEST(Errors, Labels) {
  EXPECT_TRUE(refused("a: BSTOP\na: BSTOP\n", "p.s:2:1: the label 'a' is defined in line 1 already"));
  EXPECT_TRUE(refused("over: BSTART DIRECT, ovr\n", "p.s:1:22: no label 'ovr'; did you mean over?"));
  EXPECT_TRUE(refused(".byte 1\na:\n.byte 2\nb: BSTART DIRECT, a\n",
                      "p.s:4:19: the label 'a' is -1 bytes away, which are no halfwords"));
  std::string far = "C.BSTART DIRECT, a\n";
  for (int i = 0; i < 2000; ++i) far += "BSTOP\n";
  EXPECT_TRUE(refused(far + "a:\n", "p.s:1:18: the label 'a' is 4001 halfwords away; legal: -2048..2047"));
}

/// Whatever the text is, the answer is a program or an error with a position.
TEST(Errors, Hostile) {
  const std::string_view seeds[] = {".tile 0 T#1 ND FP32 1 2 = 1 2", ".expect fault TileLegality F5",
                                    "a: BSTART DIRECT, a", ".memory 0x1000 bytes 01 02",
                                    ".gpr all a0 = fp32:1.5, a1 = -1"};
  std::uint32_t random = 1;
  const auto next = [&] { return random = random * 1664525 + 1013904223; };
  for (int i = 0; i < 3000; ++i) {
    std::string text(seeds[next() / 65536 % 5]);
    for (unsigned n = next() / 65536 % 4 + 1; n > 0; --n) {
      text[next() / 65536 % text.size()] = static_cast<char>(next() >> 24);
    }
    const auto program = Program::parse(text, "p.s", "/nonexistent");
    if (!program) {
      EXPECT_TRUE(program.error().message.starts_with("p.s:")) << program.error().message;
    }
  }
}

}  // namespace
}  // namespace bitcube::program
