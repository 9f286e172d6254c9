// Files as the io room sees them: input as one span of bytes, output that appears complete or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/buffer.hpp"
#include "bitcube/expected.hpp"

namespace bitcube {

/// What tells a file from another, and from itself after a change: a file that was written, replaced or copied since
/// has another stamp. So has one that only got another name or other permissions.
struct FileStamp {
  std::uint64_t size = 0;
  std::uint64_t inode = 0;
  std::int64_t modified = 0;  // nanoseconds
  std::int64_t changed = 0;

  bool operator==(const FileStamp&) const = default;
};

/// A file that is read. Its bytes are copied from it when they are asked for, and never mapped: so another process that
/// shortens the file meanwhile causes an Error, not a SIGBUS, and pages of the file are no memory of this process.
class InputFile {
 public:
  /// A pipe, a terminal or a device has no size: it is read until its end, at most this many bytes. What does not fit a
  /// small buffer goes to a file without a name in the directory for temporary files.
  static constexpr std::uint64_t kStreamLimit = std::uint64_t{16} << 30;

  static Expected<InputFile> open(const std::filesystem::path& path, std::uint64_t stream_limit = kStreamLimit);
  /// Bytes that are in memory already, for whoever parses what did not come from a file.
  static InputFile from_bytes(std::vector<std::byte> bytes);

  InputFile() = default;
  InputFile(InputFile&& other) noexcept { swap(other); }
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  /// Of the file when it was opened.
  std::uint64_t size() const noexcept { return size_; }

  /// The path as open() was given it, for messages; empty without a file.
  const std::string& name() const noexcept { return name_; }

  /// The stamp of the file as it is now; nothing where the bytes are not in a file, or it was replaced by another.
  std::optional<FileStamp> stamp() const;

  /// Copies the bytes from `offset` on. A file that was shortened meanwhile is an error. May be called from several
  /// threads. Precondition: they are inside size().
  Expected<void> read(std::uint64_t offset, std::span<std::byte> to) const;

  /// The bytes [offset, offset + size), or all of them, of a file that did not change until they were read.
  /// Precondition: they are inside size().
  Expected<Buffer<std::byte>> load(std::uint64_t offset, std::uint64_t size) const;
  Expected<Buffer<std::byte>> load() const { return load(0, size_); }

  /// For whoever has read all that was wanted, before the result appears: an error if somebody has written to the file
  /// since it was opened, so far as size and times tell; the kernel's clock for these ticks every few milliseconds. A
  /// file that was replaced by another of its name, or removed, is still what it was.
  Expected<void> check_unchanged() const;

 private:
  void swap(InputFile& other) noexcept;

  std::string name_;
  std::uint64_t size_ = 0;
  std::vector<std::byte> memory_;   // the bytes, where there is no descriptor
  std::optional<FileStamp> stamp_;  // of the open file; nothing for what was copied from a stream
  int fd_ = -1;
};

/// A file being written. Its target keeps its old content (or stays absent) until commit(); without a commit, or after
/// any failure, the target is untouched and nothing is left behind.
///
/// * Until commit() it has no name (O_TMPFILE), so it vanishes with the process, however that ends. To replace a file
///   it needs one for a moment: .bitcube-*.tmp in the target's directory, between two system calls. Where the file
///   system knows no files without a name, it has that name, for its owner only, from the start.
/// * A symbolic link stays; the file it points to is replaced. An existing file keeps its permissions, and its owner
///   if the system allows; one that the caller may not write is not replaced.
/// * What is not a regular file (/dev/null, a FIFO), and a descriptor of this process (/dev/stdout, /dev/fd/3), cannot
///   be replaced: it is written directly, from its current position.
/// * append() buffers, so an error may come with a later append() or with commit(). Errors stick: every later call
///   reports the first one.
class OutputFile {
 public:
  static Expected<OutputFile> create(const std::filesystem::path& path);

  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) noexcept;
  ~OutputFile();

  /// Continues at size().
  Expected<void> append(std::span<const std::byte> bytes);
  Expected<void> append(std::string_view text);

  /// Writes bytes at any place, also before or beyond those that are there; who leaves holes must fill them. What is
  /// written directly cannot be left for later: from the first call on, it goes to a file without a name in the
  /// directory for temporary files, and to its target with the commit.
  Expected<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes);

  /// Says how large the file will be, no less: so a disk without room for it is an error now, where the file system can
  /// tell, and pieces that are written in any order lie together.
  Expected<void> reserve(std::uint64_t size);

  /// Puts the complete file in place and makes it durable (fsync of the file and of its directory). Final.
  Expected<void> commit();

  /// The path as create() was given it, for messages.
  const std::string& name() const noexcept;
  /// Where the last of the bytes so far ends.
  std::uint64_t size() const noexcept;

 private:
  struct Impl;
  explicit OutputFile(std::unique_ptr<Impl> impl) noexcept;
  friend Expected<void> commit_all(std::span<OutputFile* const> files);

  std::unique_ptr<Impl> impl_;
};

/// Commits several files together: every one is complete and durable before the first is renamed into place, and if
/// one fails none is. Only a rename can then still fail; the message lists the files that were in place before it.
Expected<void> commit_all(std::span<OutputFile* const> files);

/// For a program that ends without unwinding, on a signal: removes the files of this process that are unfinished and
/// have a name, and holds off every commit as long as the result lives. A commit that has begun to put its files in
/// place does so first.
[[nodiscard]] std::unique_lock<std::recursive_mutex> abandon_outputs() noexcept;

/// An error for a path at which something else than a file is, such as a named pipe, of which opening waits for a
/// writer. What this process has open already (/dev/stdin) is none, nor is what is not there: opening says that.
Expected<void> check_regular(const std::filesystem::path& path);

/// Where the bytes of an output file of this name will be: symbolic links are followed, also one that leads nowhere
/// yet. Errors: a directory, something that is no file, one that may not be written.
Expected<std::filesystem::path> output_target(const std::filesystem::path& path);

/// create(), append() and commit() in one.
Expected<void> write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

}  // namespace bitcube
