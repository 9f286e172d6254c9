// Runs the program as a user does, and reads what it says.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/io/npy.hpp"
#include "io/temp_dir.hpp"

namespace bitcube::test {

using Json = nlohmann::ordered_json;
using Arguments = std::vector<std::string>;

struct Outcome {
  int exit = -1;
  std::string out;
  std::string err;
  long max_rss = 0;  // KiB, of the process at its largest

  Json json() const { return Json::parse(out, nullptr, false); }
};

/// Where standard output of the program goes; a closed one is closed.
struct Streams {
  std::string input{};        // what standard input says
  std::string output_path{};  // empty: it is captured
  bool close_output = false;
  std::string environment = "LC_ALL=C";  // one variable
};

inline Outcome run_words(std::vector<std::string> words, const Streams& streams = {}) {
  const TempDir dir;
  const std::string in = dir / "in";
  const std::string out = streams.output_path.empty() ? std::string(dir / "out") : streams.output_path;
  const std::string err = dir / "err";
  write_text(in, streams.input);

  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::string variable = streams.environment;
  char* const envp[] = {variable.data(), nullptr};

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, in.c_str(), O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0600);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0600);
  if (streams.close_output) ::posix_spawn_file_actions_addclose(&actions, STDOUT_FILENO);
  pid_t child = 0;
  const int spawned = ::posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), envp);
  ::posix_spawn_file_actions_destroy(&actions);

  Outcome outcome;
  EXPECT_EQ(spawned, 0) << argv[0];
  if (spawned != 0) return outcome;
  int status = 0;
  struct rusage usage {};
  EXPECT_EQ(::wait4(child, &status, 0, &usage), child);
  outcome.max_rss = usage.ru_maxrss;
  outcome.exit = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (streams.output_path.empty()) outcome.out = read_text(out);
  outcome.err = read_text(err);
  return outcome;
}

inline Outcome run(Arguments arguments, const Streams& streams = {}) {
  arguments.insert(arguments.begin(), BITCUBE_PROGRAM);
  return run_words(std::move(arguments), streams);
}

/// A line of the shell that becomes the program.
inline Outcome run_shell(const std::string& line) {
  return run_words({"/bin/sh", "-c", line});
}

/// The program refuses this: exit 2, one message that holds `message`, nothing on standard output.
inline testing::AssertionResult refuses(const Arguments& arguments, std::string_view message,
                                        const Streams& streams = {}) {
  const Outcome outcome = run(arguments, streams);
  if (outcome.exit == 2 && outcome.out.empty() && outcome.err.starts_with("bitcube: error: ") &&
      outcome.err.find(message) != std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "exit " << outcome.exit << ", error: " << outcome.err
                                     << "output: " << outcome.out.substr(0, 500) << "expected: " << message;
}

/// The program succeeds without a word on standard error.
inline testing::AssertionResult succeeds(const Outcome& outcome) {
  if (outcome.exit == 0 && outcome.err.empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "exit " << outcome.exit << ", error: " << outcome.err;
}

/// Writes a .npy file of these elements, without waiting for the disk.
template <typename Element>
void save(const std::filesystem::path& path, DType dtype, const std::vector<std::uint64_t>& shape,
          const std::vector<Element>& elements) {
  write_text(path, npy_header(dtype, shape) + to_text(std::as_bytes(std::span(elements))));
}

/// The elements of a .npy file.
template <typename Element>
std::vector<Element> elements_of(const std::filesystem::path& path, DType dtype) {
  const auto array = read_npy(path);
  EXPECT_TRUE(array);
  if (!array) return {};
  EXPECT_EQ(array->dtype, dtype);
  std::vector<Element> elements(array->size() / sizeof(Element));
  EXPECT_TRUE(array->read(0, std::as_writable_bytes(std::span(elements))));
  return elements;
}

}  // namespace bitcube::test
