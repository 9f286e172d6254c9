// How long-running functions use threads, tell how far they are, and are stopped.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <stop_token>

#include "bitcube/team.hpp"

namespace bitcube {

/// Called from any thread with the work done and the whole work, in the same unit; calls may come out of order.
using Progress = std::function<void(std::size_t done, std::size_t total)>;

/// How one call does its work. Results never depend on it.
struct Execution {
  unsigned threads = 0;      // 0: all cores
  Progress progress{};       // may be empty; called from any thread
  bool reference = false;    // the scalar definitions instead of the SIMD kernels
  std::stop_token cancel{};  // once a stop is requested the call fails soon, with an Error that ends in "cancelled"
  Team* team = nullptr;      // with which processes, for functions that say so; nullptr: alone

  /// The same for a part of the work that is too short to report, and that this process does alone.
  Execution quiet() const { return {.threads = threads, .reference = reference, .cancel = cancel}; }
};

/// The team of an execution.
inline Team& team_of(const Execution& execution) noexcept {
  return execution.team != nullptr ? *execution.team : solo_team();
}

/// How parallel_for() ends a work that was cancelled. The functions of the library turn it into an Error.
struct Cancelled : std::exception {
  const char* what() const noexcept override { return "cancelled"; }
};

/// For loops that do without parallel_for(): throws Cancelled if a stop was requested.
inline void throw_if_cancelled(const Execution& execution) {
  if (execution.cancel.stop_requested()) throw Cancelled();
}

/// Threads that parallel_for() uses: at least 1, at most one per core.
unsigned thread_count(const Execution& execution) noexcept;

/// Runs body(i) for every i in [0, count) on execution.threads threads, and reports i-th completions as progress.
/// Throws what body() throws, and Cancelled between two pieces.
void parallel_for(std::size_t count, const Execution& execution, const std::function<void(std::size_t)>& body);

}  // namespace bitcube
