// What all commands have in common: raw files, outputs that would hit an input, threads.
#include <signal.h>
#include <sys/stat.h>

#include <thread>

#include "cli/program.hpp"

namespace bitcube::test {
namespace {

TEST(Files, RawInAndOut) {
  const TempDir dir;
  const std::vector<float> a{1, 2, 3, 4, 5, 6};
  const std::vector<float> b{1, -2, 0.5F, 1, -1, 2};
  write_text(dir / "a.bin", to_text(std::as_bytes(std::span(a))));
  write_text(dir / "b.bin", to_text(std::as_bytes(std::span(b))));
  const std::string in_a = std::string(dir / "a.bin") + ":float32:2x3";
  const std::string in_b = std::string(dir / "b.bin") + ":float32:3x2";
  ASSERT_TRUE(succeeds(run({"matmul", in_a, in_b, "-o", dir / "d.bin"})));
  const std::vector<float> d{-1, 6, 0.5F, 9};
  EXPECT_EQ(read_text(dir / "d.bin"), to_text(std::as_bytes(std::span(d))));
  ASSERT_TRUE(succeeds(run({"quantize", in_a, "--format", "hif4", "-o", dir / "a.safetensors"})));
  ASSERT_TRUE(succeeds(run({"dequantize", dir / "a.safetensors", "-o", dir / "back.bin"})));
  EXPECT_EQ(read_text(dir / "back.bin").size(), 24U);
  EXPECT_TRUE(refuses({"matmul", dir / "a.bin", in_b}, "does not say its type and shape"));
  EXPECT_TRUE(refuses({"matmul", in_a, in_b, "-o", dir / "a.bin"}, "is also an input"));
}

TEST(Files, GoldensNeverReplaceTheirInput) {
  const TempDir dir;
  save(dir / "golden_ea.bin", DType::kF32, {2, 2}, std::vector<float>{1, 2, 3, 4});
  const std::string before = read_text(dir / "golden_ea.bin");
  const std::string self = dir / ".";
  EXPECT_TRUE(refuses({"quantize", std::string(dir / "golden_ea.bin") + ":float32:2x2", "--format", "hif4", "-o",
                       dir / "w.safetensors", "--goldens", self},
                      "bytes"));
  std::filesystem::rename(dir / "golden_ea.bin", dir / "w.npy");
  std::filesystem::create_symlink(dir / "w.npy", dir / "golden_ea.bin");
  EXPECT_TRUE(refuses({"quantize", dir / "w.npy", "--format", "hif4", "-o", dir / "w.safetensors", "--goldens", self},
                      "is also an input"));
  EXPECT_EQ(read_text(dir / "w.npy"), before);
  EXPECT_FALSE(std::filesystem::exists(dir / "w.safetensors"));
}

// "-" is no name for a file that was meant to be standard output.
TEST(Files, NoFileIsNamedAsStandardOutput) {
  const TempDir dir;
  save(dir / "w.npy", DType::kF32, {64, 64}, std::vector<float>(4096, 0.5F));
  const std::string w = dir / "w.npy";
  write_text(dir / "p.s", "BSTOP\n");
  for (const Arguments& command : std::vector<Arguments>{{"convert", w, "--to", "fp16", "-o", "-"},
                                                         {"quantize", w, "--format", "hif4", "-o", "-"},
                                                         {"matmul", w, w, "-o", "-"},
                                                         {"asm", dir / "p.s", "-o", "-"},
                                                         {"report", w, "-o", "-"},
                                                         {"vectors", "--what", "tcvt", "--count", "5", "-o", "-"},
                                                         {"gen", "convert", "--count", "5", "-o", "-"},
                                                         {"gen", "bundle", "--count", "5", "-o", "-"},
                                                         {"gen", "bundle", "--format", "readmemh", "-o", "-"}}) {
    SCOPED_TRACE(command[0]);
    EXPECT_TRUE(
        refuses(command, "-: standard output has the results in text; name a file (./- for a file of that name)"));
  }
  EXPECT_FALSE(std::filesystem::exists("-"));
  EXPECT_TRUE(succeeds(run({"convert", w, "--to", "fp16", "-o", dir / "-"})));
  EXPECT_TRUE(std::filesystem::exists(std::string(dir / "-")));
}

// More threads than cores are no error and no message.
TEST(Files, AnyThreadCount) {
  const TempDir dir;
  save(dir / "a.npy", DType::kF32, {70, 70}, std::vector<float>(4900, 0.5F));
  std::string first;
  for (const std::string threads : {"1", "2", "3", "64", "0"}) {
    const Outcome outcome = run({"matmul", dir / "a.npy", dir / "a.npy", "--threads", threads, "--json"});
    EXPECT_TRUE(succeeds(outcome)) << threads;
    const std::string hash = outcome.json()["sha256"];
    if (first.empty()) first = hash;
    EXPECT_EQ(hash, first);
  }
}

TEST(Files, NothingFiniteHasNoFigure) {
  const TempDir dir;
  save(dir / "nan.npy", DType::kU16, {1, 4}, std::vector<std::uint16_t>(4, 0x7FC0));
  const Outcome outcome = run({"quantize", dir / "nan.npy", "--format", "hif4", "-o", dir / "w.st", "--json"});
  ASSERT_EQ(outcome.exit, 0);
  EXPECT_TRUE(outcome.json()["error"]["sqnr_db"].is_null());
}

TEST(Files, Uint16OperandsSayWhatTheyAre) {
  const TempDir dir;
  save(dir / "a.npy", DType::kU16, {1, 1}, std::vector<std::uint16_t>{0x3F80});
  const Outcome guess = run({"matmul", dir / "a.npy", dir / "a.npy"});
  EXPECT_EQ(guess.exit, 0);
  EXPECT_NE(guess.err.find("--a-type bf16"), std::string::npos) << guess.err;
  EXPECT_TRUE(succeeds(run({"matmul", dir / "a.npy", dir / "a.npy", "--a-type", "bf16", "--b-type", "bf16"})));
}

// What passes through a temporary file: the message names the place that is full, and whose bytes they are.
TEST(Files, NoRoomForTemporaryFiles) {
  const TempDir dir;
  const std::string fifo = dir / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const Streams nowhere{.environment = "TMPDIR=" + std::string(dir / "none")};
  {
    std::thread writer([&] {
      const int fd = ::open(fifo.c_str(), O_WRONLY | O_CLOEXEC);
      ::signal(SIGPIPE, SIG_IGN);
      const std::string text =
          npy_header(DType::kF32, std::vector<std::uint64_t>{4'000'000}) + std::string(16'000'000, 0);
      for (std::size_t at = 0; at < text.size();) {
        const ssize_t count = ::write(fd, text.data() + at, text.size() - at);
        if (count <= 0) break;
        at += static_cast<std::size_t>(count);
      }
      ::close(fd);
    });
    EXPECT_TRUE(refuses({"convert", fifo, "--to", "e4m3", "-o", dir / "y.npy"},
                        fifo + ": no temporary copy can be kept in $TMPDIR: ", nowhere));
    writer.join();
  }
  save(dir / "a.npy", DType::kF32, {2, 64}, std::vector<float>(128, 1));
  std::thread reader([&] { read_text(fifo); });
  EXPECT_TRUE(refuses({"quantize", dir / "a.npy", "-f", "hif4", "-o", fifo},
                      fifo + ": no temporary copy can be kept in $TMPDIR: ", nowhere));
  reader.join();
  EXPECT_EQ(dir.names(), (std::set<std::string>{"fifo", "a.npy"}));
}

}  // namespace
}  // namespace bitcube::test
