// What a long work keeps beside its output until that is complete, so that another run can go on where one was killed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/expected.hpp"

namespace bitcube {

/// A directory with a journal, which is text line by line, and the files that are being written. It belongs to one
/// process at a time, and to those that it lets join, and only while they live. What was written stays when a process
/// is killed; after a crash of the machine only what was there at the last sync() is sure.
class WorkDirectory {
 public:
  /// Makes the directory, or takes over what an earlier run has left. `kind` is what its journals begin with. Errors: a
  /// directory with something else in it, also in its journals, or of another user; another process that works in it.
  static Expected<WorkDirectory> open(const std::filesystem::path& path, std::string_view kind = {});

  /// Another process that writes into files of the directory, with the consent of the one that has opened it; on
  /// another machine perhaps. It has a journal of its own, which begins empty and has this number, 1 or more; each
  /// number may be in use once. Only file(), record(), write_at(), read_at() and sync() are for it.
  static Expected<WorkDirectory> join(const std::filesystem::path& path, std::size_t member);

  WorkDirectory(WorkDirectory&&) noexcept;
  WorkDirectory& operator=(WorkDirectory&&) noexcept;
  ~WorkDirectory();

  const std::filesystem::path& path() const noexcept;
  /// Where file `number` is, or would be.
  std::filesystem::path file(std::size_t number) const;
  /// The complete lines that were there at open(). A line that a kill has cut is none.
  const std::string& journal() const noexcept;
  /// The same of those that had joined, in any order.
  const std::vector<std::string>& member_journals() const noexcept;
  /// Removes the journals of those that had joined.
  Expected<void> forget_members();
  /// Removes all files and all lines, and begins with this line.
  Expected<void> restart(std::string_view line);
  /// Adds a line, which must have no line break.
  Expected<void> record(std::string_view line);

  /// Whether file `number` is there with exactly this size.
  bool has_file(std::size_t number, std::uint64_t size) const;
  /// Makes file `number` of this size, in place of one that is there. Room for it is taken where that is possible.
  Expected<void> make_file(std::size_t number, std::uint64_t size);
  Expected<void> write_at(std::size_t number, std::uint64_t offset, std::span<const std::byte> bytes);
  /// Copies bytes that are in the file; an end before them is an error.
  Expected<void> read_at(std::size_t number, std::uint64_t offset, std::span<std::byte> to);
  /// Makes the bytes of the file durable, and then this line.
  Expected<void> sync(std::size_t number, std::string_view line);
  /// Makes file `number` durable and moves it to `target` (see output_target()), whose owner and permissions it takes
  /// if that is there.
  Expected<void> move_file(std::size_t number, const std::filesystem::path& target);

  /// Removes the directory with all that is in it, and makes its absence and what was moved out of it durable.
  Expected<void> remove();

 private:
  struct Impl;
  explicit WorkDirectory(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bitcube
