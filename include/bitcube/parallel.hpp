// How long-running functions use threads and tell how far they are.
#pragma once

#include <cstddef>
#include <functional>

#include "bitcube/team.hpp"

namespace bitcube {

/// Called from any thread with the work done and the whole work, in the same unit; calls may come out of order.
using Progress = std::function<void(std::size_t done, std::size_t total)>;

/// How one call does its work. Results never depend on it.
struct Execution {
  unsigned threads = 0;    // 0: all cores
  Progress progress{};     // may be empty
  bool reference = false;  // the scalar definitions instead of the SIMD kernels
  Team* team = nullptr;    // with which processes, for functions that say so; nullptr: alone
};

/// The team of an execution.
inline Team& team_of(const Execution& execution) noexcept {
  return execution.team != nullptr ? *execution.team : solo_team();
}

/// Threads that parallel_for() uses: at least 1, at most one per core.
unsigned thread_count(const Execution& execution) noexcept;

/// Runs body(i) for every i in [0, count) on execution.threads threads, and reports i-th completions as progress.
void parallel_for(std::size_t count, const Execution& execution, const std::function<void(std::size_t)>& body);

}  // namespace bitcube
