// Ctrl-C, kill, and a terminal that is closed.
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
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

  void close_input() {
    if (input_ >= 0) ::close(std::exchange(input_, -1));
  }
  bool is_running() const {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  }
  /// Waits until it has worked for a while, so that it is past what every program does when it begins, however busy the
  /// machine is. False if it ended before.
  bool wait_until_busy() const {
    const long wanted = ::sysconf(_SC_CLK_TCK) / 4;
    while (is_running()) {
      std::ifstream stream("/proc/" + std::to_string(child_) + "/stat");
      std::string text((std::istreambuf_iterator<char>(stream)), {});
      std::istringstream fields(text.substr(text.rfind(')') + 1));
      std::string skipped;
      for (int i = 0; i < 11; ++i) fields >> skipped;  // up to utime and stime
      long user = 0;
      long system = 0;
      fields >> user >> system;
      if (user + system >= wanted) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  /// Writes to its standard input, and waits until it has read that.
  void feed(const std::string& text) const {
    ASSERT_EQ(::write(input_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    for (int left = 1; left != 0 && is_running();) {
      ASSERT_EQ(::ioctl(input_, FIONREAD, &left), 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
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

/// A second is what is promised on a machine that has time for the program. A busy one may give it little of that.
constexpr std::chrono::seconds kPatience(10);

/// Sends the signal; it ends the program, soon, and with a message. Returns the message.
std::string stopped_by(const Running& program, int number) {
  const auto sent = Clock::now();
  program.send(number);
  const int status = program.wait();
  EXPECT_LT(Clock::now() - sent, kPatience);
  std::string err = program.err();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == number) << "status " << status << ": " << err;
  EXPECT_TRUE(err.starts_with("bitcube: error: ")) << err;
  return err;
}

/// Ends by the signal, with this message. Where the machine does not let the program come to the end of a piece of its
/// work within half a second, it is ended all the same, with another message: so it has some tries.
testing::AssertionResult stops(const Arguments& arguments, int number, const std::string& message) {
  std::string err;
  for (int tries = 0; tries < 5; ++tries) {
    const Running program(arguments);
    if (!program.wait_until_busy()) return testing::AssertionFailure() << "ended before the signal: " << program.err();
    err = stopped_by(program, number);
    if (err.find(message) != std::string::npos) return testing::AssertionSuccess();
    if (err.find("stopped by SIG") == std::string::npos) break;
  }
  return testing::AssertionFailure() << "message: " << err;
}

TEST_F(Interrupt, LeavesNothingBehind) {
  // Slow for its size: by the definitions, not by the kernels.
  const std::string input = zeros(DType::kF64, {8'000, 8'000});
  write_text(dir_ / "old.npy", "old");
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_TRUE(stops({"quantize", input, "-f", "nvfp4", "--round", "RTZ", "-o", dir_ / "out.safetensors"}, number,
                      "cancelled"))
        << number;
    EXPECT_TRUE(stops({"convert", input, "--to", "e4m3", "-o", dir_ / "old.npy"}, number, "cancelled")) << number;
    EXPECT_EQ(dir_.names(), (std::set<std::string>{"zeros.npy", "old.npy"})) << number;
    EXPECT_EQ(read_text(dir_ / "old.npy"), "old");
  }
}

TEST_F(Interrupt, EndsAProduct) {
  const std::string input = zeros(DType::kF32, {6'000, 6'000});
  // On a busy machine a piece takes longer than half a second; tests/parallel shows that products can be cancelled.
  EXPECT_TRUE(stops({"matmul", input, input, "--threads", "1", "-o", dir_ / "d.npy"}, SIGINT, ""));
  EXPECT_EQ(dir_.names(), (std::set<std::string>{"zeros.npy"}));
}

TEST_F(Interrupt, EndsStimulusAndReports) {
  const std::string input = zeros(DType::kF64, {8'000, 8'000});
  const std::string many = "100000000";
  const std::vector<Arguments> commands{
      {"gen", "bundle", "--count", many, "-o", dir_ / "out"},
      {"gen", "convert", "--count", many, "-o", dir_ / "out"},
      {"gen", "postprocess", "--count", many, "-o", dir_ / "out"},
      {"report", input, "--formats", "mxfp4", "-o", dir_ / "out"},
      {"study", "gaussian", "--samples", "67108864"},
  };
  for (const Arguments& command : commands) {
    const std::string what = command[0] == "report" ? "" : "error: " + command[0] + ": ";  // no option's fault
    EXPECT_TRUE(stops(command, SIGINT, what + "cancelled")) << command[0] << " " << command[1];
    EXPECT_EQ(dir_.names(), (std::set<std::string>{"zeros.npy"})) << command[0] << " " << command[1];
  }
}

// What waits for somebody else cannot look for a signal.
TEST_F(Interrupt, EndsWhatWaitsForAPipe) {
  const Running convert({"convert", "/dev/stdin", "--to", "e4m3", "-o", dir_ / "out.npy"});
  convert.feed("begin");
  EXPECT_EQ(stopped_by(convert, SIGINT), "bitcube: error: stopped by SIGINT\n");
  EXPECT_EQ(dir_.names(), std::set<std::string>{});
}

// nohup, and a job of a script in the background.
TEST_F(Interrupt, WhatIsIgnoredStaysIgnored) {
  Running convert({"convert", "/dev/stdin", "--to", "e4m3", "-o", dir_ / "out.npy"}, SIGHUP);
  const std::string text = npy_header(DType::kF32, std::vector<std::uint64_t>{1}) + std::string(4, '\0');
  convert.feed(text.substr(0, 5));
  convert.send(SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));  // longer than a signal that is not ignored takes
  ASSERT_TRUE(convert.is_running());
  convert.feed(text.substr(5));
  convert.close_input();
  EXPECT_EQ(convert.wait(), 0) << convert.err();
  EXPECT_EQ(dir_.names(), std::set<std::string>{"out.npy"});
}

TEST_F(Interrupt, ACheckpointGoesOnWhereItWas) {
  write_checkpoint(dir_ / "in.safetensors", {{"a", "F32", {64, 64}}, {"b", "F32", {4'000, 2'000}}});
  const Arguments quantize{"quantize", dir_ / "in.safetensors", "-f", "nvfp4", "--tensor-scale", "--round", "RTZ",
                           "-o",       dir_ / "out.safetensors"};
  EXPECT_TRUE(stops(quantize, SIGINT,
                    "cancelled; what is finished is kept in " +
                        std::string(dir_ / "out.safetensors.partial, and the next run goes on from there")));
  EXPECT_EQ(dir_.names(), (std::set<std::string>{"in.safetensors", "out.safetensors.partial"}));
  const Outcome second = run(quantize);
  EXPECT_TRUE(succeeds(second));
  EXPECT_NE(second.out.find("1 of them done before"), std::string::npos) << second.out;
  EXPECT_EQ(dir_.names(), (std::set<std::string>{"in.safetensors", "out.safetensors"}));
}

}  // namespace
}  // namespace bitcube::test
