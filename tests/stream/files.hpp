// What the tests of this room share: arrays in files, and what a function of the library makes of them in memory.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "bitcube/io/array.hpp"
#include "bitcube/quantize/lines.hpp"
#include "io/temp_dir.hpp"
#include "support/operands.hpp"

namespace bitcube::test {

using Bytes = std::vector<std::byte>;
using Shape = std::vector<std::uint64_t>;

inline std::uint64_t count_of(const Shape& shape) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : shape) count *= extent;
  return count;
}

/// A directory in memory where there is one: tests that commit many files do not wait for the disk there.
inline std::filesystem::path memory_directory() {
  const std::filesystem::path shared = "/dev/shm";
  return ::access(shared.c_str(), W_OK) == 0 ? shared : std::filesystem::temp_directory_path();
}

/// Random words, special ones included.
inline Bytes random_words(const Format& format, std::uint64_t count, std::uint64_t seed = 1) {
  Operands operands(seed);
  const std::size_t size = format.carrier_bits / 8U;
  Bytes bytes(count * size);
  for (std::uint64_t i = 0; i < count; ++i) store_word(bytes.data() + i * size, size, operands.word(format));
  return bytes;
}

/// The array of a file with these words.
inline NpyArray array_in(const std::filesystem::path& path, DType dtype, const Shape& shape, const Bytes& words) {
  write_text(path, npy_header(dtype, shape) + to_text(words));
  auto array = read_npy(path);
  EXPECT_TRUE(succeeds(array));
  return std::move(*array);
}

/// Windows of a few lanes, some lines, and more than there is.
inline constexpr std::array<std::size_t, 8> kWindows{1, 100, 333, 1000, 4000, 20000, 100000, std::size_t{1} << 30};

/// A FIFO whose bytes are collected.
class Fifo {
 public:
  explicit Fifo(std::string path) : path_(std::move(path)) {
    if (::mkfifo(path_.c_str(), 0600) != 0) std::abort();
    reader_ = std::thread([this] { text_ = read_text(path_); });
  }
  const std::string& path() const { return path_; }
  /// After the writer has closed it.
  const std::string& text() {
    reader_.join();
    return text_;
  }

 private:
  std::string path_;
  std::string text_;
  std::thread reader_;
};

}  // namespace bitcube::test
