// bitcube asm, disasm and run: files, exit codes, messages.
#include "cli/program.hpp"

namespace bitcube::test {
namespace {

const std::string examples = std::string(BITCUBE_SOURCE_DIR) + "/examples/programs/";

constexpr std::string_view copy = R"(.tile 0 T#1 RowMajor FP32 4 16 = all 2.0
BSTART.VEC TCVT, FP32
B.DATR {NORM, FP16, Null, EQ, RNE, 0, 0}
B.DIM zero, 16, ->LB0
B.DIM zero, 4, ->LB1
B.IOT T#1, mask=1000, <last>, ->U<1>
BSTOP
)";

TEST(Asm, RoundTrip) {
  const TempDir dir;
  const Outcome listing = run({"asm", examples + "w1.s", "-o", dir / "w1.bin", "--listing"});
  ASSERT_TRUE(succeeds(listing));
  EXPECT_TRUE(listing.out.starts_with("00000000  38531181  BSTART.TMATMULMX.BIAS E4M3\n")) << listing.out;
  EXPECT_EQ(read_text(dir / "w1.bin").substr(0, 4), "\x81\x11\x53\x38");
  const Outcome text = run({"disasm", dir / "w1.bin"});
  ASSERT_TRUE(succeeds(text));
  EXPECT_NE(text.out.find("B.IOT T#5, mask=1000, <last>, ->U<3>        // 0000001C: 0049D293\n"), std::string::npos)
      << text.out;
  write_text(dir / "again.s", text.out);
  ASSERT_TRUE(succeeds(run({"asm", dir / "again.s", "-o", dir / "again.bin"})));
  EXPECT_EQ(read_text(dir / "again.bin"), read_text(dir / "w1.bin"));
  EXPECT_EQ(run({"asm", examples + "w1.s", "--json"}).json()["instructions"][8]["text"], "BSTOP");
  EXPECT_EQ(run({"disasm", dir / "w1.bin", "--json"}).json()["instructions"][0]["word"], "0x38531181");
}

TEST(Asm, DisassemblesDigits) {
  const TempDir dir;
  ASSERT_TRUE(succeeds(run({"asm", examples + "w1.s", "-o", dir / "w1.bin"})));
  const Json lines = run({"disasm", dir / "w1.bin", "--json"}).json()["instructions"];
  // A word a line in as many digits as it has, and in the 16 of an entry of $readmemh.
  std::string words = "# made by hand\n";
  std::string entries;
  for (const Json& line : lines) {
    const std::string digits = line["word"].get<std::string>().substr(2);
    words += digits + "  // " + line["text"].get<std::string>() + "\r\n\n";
    entries += std::string(16 - digits.size(), '0') + digits + "\n";
  }
  write_text(dir / "w1.words", words);
  write_text(dir / "w1.hex", entries);
  EXPECT_EQ(run({"disasm", dir / "w1.words", "--json"}).json()["instructions"], lines);
  EXPECT_EQ(run({"disasm", dir / "w1.hex", "--json"}).json()["instructions"], lines);
  EXPECT_EQ(run({"disasm", dir / "w1.words"}).out, run({"disasm", dir / "w1.bin"}).out);
  // As gen writes them; and what is in a .bin are bytes, whatever they look like.
  ASSERT_TRUE(succeeds(run({"gen", "bundle", "--count", "1", "--format", "words", "-o", dir / "gen.words"})));
  EXPECT_TRUE(run({"disasm", dir / "gen.words"}).out.starts_with("BSTART"));
  write_text(dir / "digits.bin", "03FC");
  EXPECT_EQ(run({"disasm", dir / "digits.bin", "--json"}).json()["bytes"], 4);

  write_text(dir / "p.s", "\nBSTOP\n");
  EXPECT_TRUE(refuses({"disasm", dir / "p.s"}, "p.s:2: 'BSTOP' is no word in hexadecimal"));
  write_text(dir / "short.words", "0043");
  EXPECT_TRUE(refuses({"disasm", dir / "short.words"},
                      "short.words:1: '0043' has 4 digits, but an instruction that begins so has 8"));
  write_text(dir / "long.words", "10000");
  EXPECT_TRUE(refuses({"disasm", dir / "long.words"}, "'10000' has 5 digits, but an instruction that begins so has 4"));
}

TEST(Asm, Refuses) {
  const TempDir dir;
  write_text(dir / "p.s", "BSTOP\nB.DIM zero, 16, ->LB9\n");
  EXPECT_TRUE(refuses({"asm", dir / "p.s", "-o", dir / "p.bin"}, "p.s:2:19: "));
  EXPECT_FALSE(std::filesystem::exists(dir / "p.bin"));
  write_text(dir / "q.s", "BSTOP\n");
  EXPECT_TRUE(refuses({"asm", dir / "q.s", "-o", dir / "q.s"}, "is also an input"));
  EXPECT_TRUE(refuses({"disasm", dir / "none.bin"}, "none.bin: No such file"));
}

TEST(Run, ExitCodes) {
  const TempDir dir;
  const std::string base(copy);
  write_text(dir / "ok.s", base + ".expect tile 0 U#1 RowMajor FP16 4 16 == all 2.0\n");
  const Outcome ok = run({"run", dir / "ok.s"});
  ASSERT_TRUE(succeeds(ok));
  EXPECT_NE(ok.out.find("PE0 U#1  destination  FP16 RowMajor 4 x 16  sha256 "), std::string::npos) << ok.out;
  EXPECT_NE(ok.out.find("6 instructions, 1 bundle completed, flags -\n1 of 1 expectations hold\n"), std::string::npos)
      << ok.out;

  write_text(dir / "differs.s", base + ".expect flags NX\n");
  const Outcome differs = run({"run", dir / "differs.s"});
  EXPECT_EQ(differs.exit, 1);
  EXPECT_NE(differs.out.find("differs.s:8:1: does not hold: .expect flags NX\n  the flags are none, expected NX\n"),
            std::string::npos)
      << differs.out;

  write_text(dir / "bad.s", base + ".expect flags XX\n");
  EXPECT_TRUE(refuses({"run", dir / "bad.s"}, "bad.s:8:15: unknown flag 'XX'"));
  EXPECT_TRUE(refuses({"run", dir / "none.s"}, "none.s: No such file"));

  write_text(dir / "fault.s", base + "BSTOP\n");
  const Outcome fault = run({"run", dir / "fault.s"});
  EXPECT_EQ(fault.exit, 3);
  EXPECT_NE(fault.err.find("fault.s:8:1: BundleControl A14, command: found no active bundle"), std::string::npos)
      << fault.err;

  write_text(dir / "loop.s", "again: C.BSTART DIRECT, again\nC.BSTOP\n");
  const Outcome loop = run({"run", dir / "loop.s", "--max-steps", "100"});
  EXPECT_EQ(loop.exit, 3);
  EXPECT_NE(loop.err.find("not finished after 100 instructions"), std::string::npos) << loop.err;

  write_text(dir / "skipped.s", "BSTART DIRECT, end\nBSTOP\n.expect flags none\nBSTOP\nend:\n");
  const Outcome skipped = run({"run", dir / "skipped.s"});
  EXPECT_EQ(skipped.exit, 1);
  EXPECT_NE(skipped.out.find("0 of 1 expectations hold, 1 were not reached"), std::string::npos) << skipped.out;
}

TEST(Run, CutOffWordsAndCounts) {
  const TempDir dir;
  write_text(dir / "cut.bin", std::string("\x81\x11", 2));
  const Outcome cut = run({"run", dir / "cut.bin"});
  EXPECT_EQ(cut.exit, 2);
  EXPECT_NE(cut.err.find("cuts this word off"), std::string::npos) << cut.err;
  EXPECT_TRUE(refuses({"run", dir / "cut.bin", "--max-steps", "-5"}, "no whole number"));
}

TEST(Run, Json) {
  const Json json = run({"run", examples + "w1.s", "--json"}).json();
  EXPECT_EQ(json["result"], "completed");
  EXPECT_EQ(json["tiles"][0]["tile"], "PE0 U#1");
  EXPECT_EQ(json["expectations"].size(), 5U);
  EXPECT_TRUE(json["fault"].is_null());
  const TempDir dir;
  write_text(dir / "fault.s", "BSTOP\n");
  const Outcome fault = run({"run", dir / "fault.s", "--json"});
  EXPECT_EQ(fault.exit, 3);
  EXPECT_EQ(fault.json()["fault"]["rule"], "A14");
  EXPECT_EQ(fault.json()["fault"]["line"], 1);
}

TEST(Run, Trace) {
  const TempDir dir;
  ASSERT_TRUE(succeeds(run({"run", examples + "w1.s", "--trace", dir / "t.jsonl", "--checks"})));
  const std::string text = read_text(dir / "t.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 16);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    EXPECT_FALSE(Json::parse(text.substr(at, end - at), nullptr, false).is_discarded());
    at = end + 1;
  }
  EXPECT_NE(text.find("\"checks\":{\"rules\":["), std::string::npos);
  EXPECT_TRUE(refuses({"run", examples + "w1.s", "--trace", dir / "x", "--dump-state", dir / "x"}, "need a file each"));
}

/// A program in two parts, with the state in between, in the middle of a bundle.
TEST(Run, StateGoesOn) {
  const TempDir dir;
  const std::string text(copy);
  const std::size_t middle = text.find("B.IOT");
  write_text(dir / "one.s", text.substr(0, middle));
  write_text(dir / "two.s", text.substr(middle) + ".expect tile 0 U#1 RowMajor FP16 4 16 == all 2.0\n");
  const Outcome first = run({"run", dir / "one.s", "--dump-state", dir / "s.json"});
  ASSERT_TRUE(succeeds(first));
  EXPECT_NE(first.out.find("a bundle is open"), std::string::npos);
  ASSERT_TRUE(succeeds(run({"run", dir / "two.s", "--load-state", dir / "s.json"})));
  // The same from words.
  ASSERT_TRUE(succeeds(run({"asm", dir / "two.s", "-o", dir / "two.bin"})));
  ASSERT_TRUE(succeeds(run({"run", dir / "two.bin", "--load-state", dir / "s.json"})));
  write_text(dir / "bad.json", "{\"bitcube_state\": 9}");
  EXPECT_TRUE(
      refuses({"run", dir / "two.s", "--load-state", dir / "bad.json"}, "bad.json: /bitcube_state: expected version"));
}

}  // namespace
}  // namespace bitcube::test
