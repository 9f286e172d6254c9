// What holds for every command: help, version, bad usage, exit codes, standard output that fails.
#include <sys/stat.h>

#include "bitcube/version.hpp"
#include "cli/program.hpp"

namespace bitcube::test {
namespace {

const std::vector<std::string> commands{"formats", "convert", "quantize", "dequantize", "matmul", "demo"};

TEST(Usage, HelpAndVersion) {
  const Outcome version_line = run({"--version"});
  EXPECT_TRUE(succeeds(version_line));
  EXPECT_EQ(version_line.out, "bitcube " + std::string(version) + "\n");
  const Outcome help = run({"--help"});
  EXPECT_TRUE(succeeds(help));
  for (const std::string& command : commands) {
    EXPECT_NE(help.out.find("\n  " + command), std::string::npos) << command;
    const Outcome own = run({command, "--help"});
    EXPECT_TRUE(succeeds(own));
    EXPECT_NE(own.out.find("Examples:\n  bitcube "), std::string::npos) << command;
    EXPECT_NE(own.out.find("--json"), std::string::npos) << command;
  }
}

/// The help of the command and of all below it shows examples of that command; how many commands there were.
std::size_t check_examples(const Arguments& command) {
  Arguments arguments = command;
  arguments.push_back("--help");
  const Outcome help = run(arguments);
  EXPECT_TRUE(succeeds(help));
  std::string name = "bitcube";
  for (const std::string& word : command) name += ' ' + word;
  const std::size_t examples = help.out.find("\nExamples:\n");
  EXPECT_TRUE(examples != std::string::npos && help.out.find(name, examples) != std::string::npos) << name;
  std::size_t count = 1;
  const std::string heading = "\nSubcommands:\n";
  std::size_t at = help.out.find(heading);
  if (at == std::string::npos) return count;
  for (at += heading.size(); help.out.compare(at, 2, "  ") == 0; at = help.out.find('\n', at) + 1) {
    if (help.out[at + 2] == ' ') continue;  // more about the command above
    Arguments below = command;
    below.push_back(help.out.substr(at + 2, help.out.find(' ', at + 2) - at - 2));
    count += check_examples(below);
  }
  return count;
}

TEST(Usage, EveryCommandHasExamplesOfItsOwn) {
  EXPECT_GT(check_examples({}), 25U);
}

TEST(Usage, BadUsage) {
  EXPECT_TRUE(refuses({}, "no command; choose from formats, convert"));
  EXPECT_TRUE(refuses({"convrt"}, "unknown name 'convrt'; did you mean convert?"));
  EXPECT_TRUE(refuses({"--verbose"}, "unexpected argument '--verbose'"));
  EXPECT_TRUE(refuses({"formats", "e4m3", "e5m2"}, "unexpected argument 'e5m2'"));
  EXPECT_TRUE(refuses({"convert", "--ruond", "rne", "--to", "e4m3", "1"}, "did you mean --round?"));
  EXPECT_TRUE(refuses({"convert", "--ot", "e4m3", "1"}, "unexpected argument '--ot'"));
  EXPECT_TRUE(refuses({"convert", "1"}, "--to is required"));
  EXPECT_TRUE(refuses({"convert", "--to"}, "--to"));
  EXPECT_TRUE(refuses({"convert", "--to", "e4m3"}, "VALUE is required"));
  EXPECT_TRUE(refuses({"demo", "--threads", "-1"}, "--threads"));
  EXPECT_TRUE(refuses({"demo", "--threads", "two"}, "--threads"));
}

/// As `-o "$OUT"` gives it where OUT is not set. No output may be lost because of that.
// What a message quotes may come from a stranger's file.
TEST(Usage, MessagesDoNotCommandTheTerminal) {
  const TempDir dir;
  write_text(dir / "p.s", ".tile 0 T#1 CUBE_M16 E4M3 16 32 = \033[31mred\007\xC2\x9Bm\xC3\xBC\n");
  const Outcome outcome = run({"run", dir / "p.s"});
  EXPECT_EQ(outcome.exit, 2);
  EXPECT_NE(outcome.err.find("\\x1b[31mred\\x07\\x9bm\xC3\xBC"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find_first_of("\033\007"), std::string::npos);
  // A byte that only begins a control is none, and what follows it stays.
  write_text(dir / "p.s", ".tile 0 T#1 CUBE_M16 E4M3 16 32 = x\xC2Qy\n");
  const Outcome begun = run({"run", dir / "p.s"});
  EXPECT_NE(begun.err.find("x\xC2Qy"), std::string::npos) << begun.err;
  write_text(dir / "p.s", ".tile 0 T#1 CUBE_M16 E4M3 16 32 = " + std::string(1'000'000, 'x') + "\n");
  const Outcome bounded = run({"run", dir / "p.s"});
  EXPECT_EQ(bounded.exit, 2);
  EXPECT_LT(bounded.err.size(), 17'000U);
  EXPECT_NE(bounded.err.find(" bytes more)"), std::string::npos);
}

TEST(Usage, OptionsWithoutAValue) {
  EXPECT_TRUE(refuses({"convert", "x.npy", "--to", "bf16", "-o", ""}, "--output: its value is empty"));
  EXPECT_TRUE(refuses({"convert", "1", "--to", "bf16", "--output", ""}, "--output: its value is empty"));
  EXPECT_TRUE(refuses({"quantize", "x.npy", "-f", "hif4", "-o", ""}, "--output: its value is empty"));
  EXPECT_TRUE(refuses({"matmul", "a.npy", "b.npy", "-o", ""}, "--output: its value is empty"));
  EXPECT_TRUE(refuses({"matmul", "a.npy", "b.npy", "--bias", ""}, "--bias: its value is empty"));
  EXPECT_TRUE(refuses({"asm", "x.s", "-o", ""}, "--output: its value is empty"));
  EXPECT_TRUE(refuses({"run", "x.s", "--dump-state", ""}, "--dump-state: its value is empty"));
  EXPECT_TRUE(
      refuses({"quantize", "x.npy", "-f", "hif4", "-o", "x", "--include", ""}, "--include: is for checkpoints"));
}

TEST(Usage, ErrorsAsJson) {
  const Outcome unknown = run({"convert", "--to", "e4m4", "1", "--json"});
  EXPECT_EQ(unknown.exit, 2);
  EXPECT_EQ(unknown.out, "");
  EXPECT_NE(Json::parse(unknown.err).at("error").get<std::string>().find("did you mean E4M3?"), std::string::npos);
  const Outcome usage = run({"convert", "--json"});
  EXPECT_EQ(usage.exit, 2);
  EXPECT_TRUE(Json::parse(usage.err).contains("error"));
}

TEST(Usage, StandardOutputThatFails) {
  struct stat status {};
  ASSERT_TRUE(::stat("/dev/full", &status) == 0 && S_ISCHR(status.st_mode)) << "/dev/full is no device";
  for (const Arguments& arguments :
       {Arguments{"formats"}, Arguments{"--help"}, Arguments{"--version"}, Arguments{"convert", "--to", "e4m3", "1"}}) {
    EXPECT_TRUE(refuses(arguments, "standard output: No space left on device", {.output_path = "/dev/full"}));
    EXPECT_TRUE(refuses(arguments, "standard output: Bad file descriptor", {.close_output = true}));
  }
}

TEST(Usage, LocaleDecidesNothing) {
  const Arguments arguments{"convert", "--to", "fp16", "1234.5", "0.1"};
  const Outcome plain = run(arguments);
  EXPECT_TRUE(succeeds(plain));
  EXPECT_EQ(run(arguments, {.environment = "LC_ALL=de_DE.UTF-8"}).out, plain.out);
}

}  // namespace
}  // namespace bitcube::test
