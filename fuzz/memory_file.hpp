// A file in memory with a path, for functions that take one.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "input.hpp"

namespace bitcube::fuzz {

class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {
    require(fd_ >= 0, "a file in memory is made");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { (void)::close(fd_); }

  /// Replaces the content.
  void set(const std::uint8_t* data, std::size_t size) const {
    require(::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, data, size, 0) == static_cast<ssize_t>(size),
            "a file in memory is written");
  }
  const std::string& path() const noexcept { return path_; }

 private:
  int fd_;
  std::string path_;
};

}  // namespace bitcube::fuzz
