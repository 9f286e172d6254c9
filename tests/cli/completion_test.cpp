// The completion scripts, run by bash itself.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "program.hpp"

namespace bitcube {
namespace {

/// What bash would offer for the last of these words.
std::string offered(const std::string& words, int last) {
  const test::TempDir dir;
  const test::Outcome script = test::run({"completion", "bash"});
  EXPECT_TRUE(test::succeeds(script));
  const std::string path = dir / "try.sh";
  test::write_text(path, script.out + "COMP_WORDS=(" + words + "); COMP_CWORD=" + std::to_string(last) +
                             "; _bitcube; echo \"${COMPREPLY[*]}\" > " + std::string(dir / "out") + "\n");
  EXPECT_EQ(std::system(("bash " + path).c_str()), 0);  // NOLINT: a test's own file
  return test::read_text(dir / "out");
}

TEST(Completion, Bash) {
  EXPECT_EQ(offered("bitcube quan", 1), "quantize\n");
  EXPECT_EQ(offered("bitcube quantize --form", 2), "--format\n");
  EXPECT_EQ(offered("bitcube quantize --format hi", 3), "hif4\n");
  EXPECT_EQ(offered("bitcube matmul --accumulate ''", 3), "fma two-step group exact raw-carrier\n");
  EXPECT_EQ(offered("bitcube gen bu", 2), "bundle\n");
  EXPECT_EQ(offered("bitcube gen bundle --ill", 3), "--illegal\n");
  EXPECT_EQ(offered("bitcube quantize W", 2), "\n");  // files are the shell's
  EXPECT_EQ(offered("bitcube explain wo", 2), "word\n");
  EXPECT_EQ(offered("bitcube explain fault --a", 3), "--all\n");
  EXPECT_EQ(offered("bitcube explain convert --round rt", 4), "\n");  // names are in capitals
  EXPECT_EQ(offered("bitcube explain convert --profile ''", 4), "pto asl ocp\n");
}

TEST(Completion, Zsh) {
  const test::Outcome r = test::run({"completion", "zsh"});
  EXPECT_TRUE(test::succeeds(r));
  EXPECT_TRUE(r.out.starts_with("#compdef bitcube\n"));
  EXPECT_NE(r.out.find("matmul:--accumulate) compadd -- fma two-step group exact raw-carrier; return ;;"),
            std::string::npos);
}

TEST(Completion, OtherShells) {
  EXPECT_TRUE(test::refuses({"completion", "fish"}, "choose bash or zsh"));
}

}  // namespace
}  // namespace bitcube
