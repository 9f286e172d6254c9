// The ranks of an MPI job as a team.
#pragma once

#include <mpi.h>

#include "bitcube/team.hpp"

namespace bitcube::mpi {

/// All ranks of MPI_COMM_WORLD. Lives between MPI_Init and MPI_Finalize, and is used by one thread. An error of MPI
/// itself is told and ends the job: what has happened to the others is not known then.
class MpiTeam final : public Team {
 public:
  MpiTeam();

  std::size_t rank() const noexcept override { return static_cast<std::size_t>(rank_); }
  std::size_t size() const noexcept override { return static_cast<std::size_t>(size_); }
  bool stopped() override;
  Expected<std::vector<std::string>> gather(std::string_view mine) override { return meet(Kind::ok, mine, false); }
  Expected<std::vector<std::string>> gather_all(std::string_view mine) override { return meet(Kind::ok, mine, true); }

  /// For a rank that cannot go on: tells the others, meets them where they meet next, and returns what all of them get,
  /// the error of the lowest rank that failed.
  Error fail(const Error& error);

  /// Waits until all ranks have called it.
  void wait() { MPI_Barrier(MPI_COMM_WORLD); }

  /// How many of the ranks are on this machine.
  int neighbours() const noexcept { return neighbours_; }

 private:
  enum class Kind : std::int64_t { ok, failed, stopped };

  Expected<std::vector<std::string>> meet(Kind kind, std::string_view mine, bool all);

  int rank_ = 0;
  int size_ = 1;
  int neighbours_ = 1;
  std::vector<Error> met_error_;  // at most one; after it nobody meets any more
};

}  // namespace bitcube::mpi
