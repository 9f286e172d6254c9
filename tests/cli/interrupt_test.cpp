// Ctrl-C, kill, and a terminal that is closed.
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "bitcube/io/packed.hpp"
#include "cli/program.hpp"
#include "stream/files.hpp"
#include "support/checkpoints.hpp"

namespace bitcube::test {
namespace {

using Clock = std::chrono::steady_clock;

/// The program while it runs. Standard input is a pipe.
class Running {
 public:
  explicit Running(Arguments arguments, int ignored_signal = 0) {
    int ends[2] = {};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const std::string err = dir_ / "err";
    arguments.insert(arguments.begin(), BITCUBE_PROGRAM);
    std::vector<char*> argv;
    for (std::string& word : arguments) argv.push_back(word.data());
    argv.push_back(nullptr);
    child_ = ::fork();
    if (child_ == 0) {
      if (ignored_signal != 0) ::signal(ignored_signal, SIG_IGN);
      ::dup2(ends[0], STDIN_FILENO);
      ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
      ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), STDERR_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(ends[0]);
    input_ = ends[1];
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() { close_input(); }

  int input() const { return input_; }
  void close_input() {
    if (input_ >= 0) ::close(std::exchange(input_, -1));
  }
  bool is_running() const {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  }
  void send(int number) const { EXPECT_EQ(::kill(child_, number), 0); }
  /// What wait() says of its end.
  int wait() const {
    int status = 0;
    EXPECT_EQ(::waitpid(child_, &status, 0), child_);
    return status;
  }
  std::string err() const { return read_text(dir_ / "err"); }

 private:
  TempDir dir_;
  pid_t child_ = -1;
  int input_ = -1;
};

class Interrupt : public testing::Test {
 protected:
  /// A .npy file of zeros that takes no room.
  std::string zeros(DType dtype, const std::vector<std::uint64_t>& shape) const {
    const std::string path = dir_ / "zeros.npy";
    const std::string header = npy_header(dtype, shape);
    write_text(path, header);
    std::uint64_t bytes = dtype_size(dtype);
    for (const std::uint64_t extent : shape) bytes *= extent;
    std::filesystem::resize_file(path, header.size() + bytes);
    return path;
  }

  TempDir dir_{memory_directory()};
};

/// Ends by the signal and within a second, with a message.
testing::AssertionResult stops(Running& program, int number, const std::string& message) {
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  if (!program.is_running()) return testing::AssertionFailure() << "ended before the signal: " << program.err();
  const auto sent = Clock::now();
  program.send(number);
  const int status = program.wait();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - sent).count();
  const std::string err = program.err();
  if (!WIFSIGNALED(status) || WTERMSIG(status) != number)
    return testing::AssertionFailure() << "status " << status << err;
  if (took > 1000) return testing::AssertionFailure() << "after " << took << " ms";
  if (!err.starts_with("bitcube: error: ") || err.find(message) == std::string::npos) {
    return testing::AssertionFailure() << "message: " << err;
  }
  return testing::AssertionSuccess();
}

TEST_F(Interrupt, LeavesNothingBehind) {
  // Slow for its size: by the definitions, not by the kernels.
  const std::string input = zeros(DType::kF64, {8'000, 8'000});
  write_text(dir_ / "old.npy", "old");
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    Running quantize({"quantize", input, "-f", "nvfp4", "--round", "RTZ", "-o", dir_ / "out.safetensors"});
    EXPECT_TRUE(stops(quantize, number, "cancelled")) << number;
    Running convert({"convert", input, "--to", "e4m3", "-o", dir_ / "old.npy"});
    EXPECT_TRUE(stops(convert, number, "cancelled")) << number;
    EXPECT_EQ(dir_.names(), (std::set<std::string>{"zeros.npy", "old.npy"})) << number;
    EXPECT_EQ(read_text(dir_ / "old.npy"), "old");
  }
}

TEST_F(Interrupt, EndsAProduct) {
  const std::string input = zeros(DType::kF32, {6'000, 6'000});
  Running matmul({"matmul", input, input, "--threads", "1", "-o", dir_ / "d.npy"});
  EXPECT_TRUE(stops(matmul, SIGINT, "cancelled"));
  EXPECT_EQ(dir_.names(), (std::set<std::string>{"zeros.npy"}));
}

// What waits for somebody else cannot look for a signal.
TEST_F(Interrupt, EndsWhatWaitsForAPipe) {
  Running convert({"convert", "/dev/stdin", "--to", "e4m3", "-o", dir_ / "out.npy"});
  EXPECT_TRUE(stops(convert, SIGINT, "stopped by SIGINT"));
  EXPECT_EQ(dir_.names(), std::set<std::string>{});
}

// nohup, and a job of a script in the background.
TEST_F(Interrupt, WhatIsIgnoredStaysIgnored) {
  Running convert({"convert", "/dev/stdin", "--to", "e4m3", "-o", dir_ / "out.npy"}, SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  convert.send(SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  ASSERT_TRUE(convert.is_running());
  const std::string text = npy_header(DType::kF32, std::vector<std::uint64_t>{1}) + std::string(4, '\0');
  ASSERT_EQ(::write(convert.input(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  convert.close_input();
  EXPECT_EQ(convert.wait(), 0) << convert.err();
  EXPECT_EQ(dir_.names(), std::set<std::string>{"out.npy"});
}

TEST_F(Interrupt, ACheckpointGoesOnWhereItWas) {
  write_checkpoint(dir_ / "in.safetensors", {{"a", "F32", {64, 64}}, {"b", "F32", {4'000, 2'000}}});
  const Arguments quantize{"quantize", dir_ / "in.safetensors", "-f", "nvfp4", "--tensor-scale", "--round", "RTZ",
                           "-o",       dir_ / "out.safetensors"};
  Running first(quantize);
  EXPECT_TRUE(stops(first, SIGINT, "cancelled; what is finished is kept in "));
  EXPECT_NE(first.err().find("out.safetensors.partial, and the next run goes on from there"), std::string::npos);
  EXPECT_EQ(dir_.names(), (std::set<std::string>{"in.safetensors", "out.safetensors.partial"}));
  const Outcome second = run(quantize);
  EXPECT_TRUE(succeeds(second));
  EXPECT_NE(second.out.find("1 of them done before"), std::string::npos) << second.out;
  EXPECT_EQ(dir_.names(), (std::set<std::string>{"in.safetensors", "out.safetensors"}));
}

}  // namespace
}  // namespace bitcube::test
