// Several processes that do one piece of work together, perhaps on many machines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/expected.hpp"

namespace bitcube {

/// The ranks 0 to size() - 1. Each calls the same functions with the same arguments in the same order. What rank 0
/// alone has to do (write the output, tell the result) is said by each function that takes a team.
///
/// A rank that fails ends the work of all: where they meet next, each gets an Error which names the rank, and stopped()
/// says so before.
class Team {
 public:
  virtual ~Team() = default;

  virtual std::size_t rank() const noexcept = 0;
  virtual std::size_t size() const noexcept = 0;
  bool leads() const noexcept { return rank() == 0; }
  /// Whether another rank has failed: for long work between two meetings, which then ends with an Error of this text.
  virtual bool stopped() = 0;
  static constexpr std::string_view kStopped = "another rank has failed";

  /// Meets all others. What each gave, by rank, at rank 0; nothing elsewhere.
  virtual Expected<std::vector<std::string>> gather(std::string_view mine) = 0;
  /// Meets all others. What each gave, by rank.
  virtual Expected<std::vector<std::string>> gather_all(std::string_view mine) = 0;
};

/// The team of a process that works alone.
Team& solo_team() noexcept;

}  // namespace bitcube
