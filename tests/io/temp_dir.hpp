// What the tests of this room share: a directory of their own, and files as strings.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bitcube::test {

inline std::vector<std::byte> to_bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline std::string to_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream.is_open()) << path;
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream stream(path, std::ios::binary);
  stream.write(text.data(), static_cast<std::streamsize>(text.size()));
  ASSERT_TRUE(stream.good()) << path;
}

/// A new directory, removed with all that is in it.
class TempDir {
 public:
  TempDir() : TempDir(std::filesystem::temp_directory_path()) {}
  explicit TempDir(const std::filesystem::path& parent) {
    std::string name = (parent / "bitcube-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = std::filesystem::canonical(name);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  /// The names in it: what a test left behind.
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) names.insert(entry.path().filename().string());
    return names;
  }

 private:
  std::filesystem::path path_;
};

/// Runs as nobody if the tests run as root, whom no permission stops. Where a test names a device as its target this is
/// vital: code that is broken, and takes it for a file to replace, would replace the machine's.
class Unprivileged {
 public:
  Unprivileged() : Unprivileged(std::filesystem::path()) {}
  /// The directory is given to nobody first.
  explicit Unprivileged(const std::filesystem::path& directory) {
    if (::geteuid() != 0) return;
    if (!directory.empty() && ::chown(directory.c_str(), kNobody, kNobody) != 0) std::abort();
    if (::seteuid(kNobody) != 0) std::abort();
    changed_ = true;
  }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;
  ~Unprivileged() {
    if (changed_ && ::seteuid(0) != 0) std::abort();
  }

 private:
  static constexpr uid_t kNobody = 65534;
  bool changed_ = false;
};

/// Does an operation fail with exactly this message? For EXPECT_TRUE.
template <typename T>
testing::AssertionResult fails_with(const T& result, const std::string& message) {
  if (result) return testing::AssertionFailure() << "it succeeded, instead of: " << message;
  if (result.error().message == message) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the message is\n  " << result.error().message << "\ninstead of\n  " << message;
}

/// The value of an Expected that must have one.
template <typename Result>
auto value_of(Result result) {
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  if (!result) std::abort();
  return *std::move(result);
}

template <typename T>
testing::AssertionResult succeeds(const T& result) {
  if (result) return testing::AssertionSuccess();
  return testing::AssertionFailure() << result.error().message;
}

}  // namespace bitcube::test
