#include "mpi_team.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace bitcube::mpi {
namespace {

constexpr int kPayload = 1;
constexpr int kFailure = 2;
constexpr std::size_t kPiece = std::size_t{1} << 30;  // MPI counts with int

/// An error of MPI itself, such as a connection that broke.
void abort_job(MPI_Comm* communicator, int* code, ...) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  int rank = 0;
  (void)MPI_Error_string(*code, text.data(), &length);
  (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  fmt::print(stderr, "bitcube-mpi: error: rank {}: {}\n", rank, text.data());
  (void)MPI_Abort(*communicator, 2);
}

/// Calls use(data, count) for pieces of a text.
template <typename Char, typename Use>
void in_pieces(Char* data, std::size_t size, const Use& use) {
  for (std::size_t at = 0; at < size; at += kPiece) use(data + at, static_cast<int>(std::min(kPiece, size - at)));
}

/// One message for people: what the lowest of these ranks says, and which it is unless all say the same.
Error merge(const std::vector<std::pair<std::size_t, std::string>>& errors, std::size_t ranks) {
  const auto& [rank, text] = errors.front();
  const auto same = std::ranges::count(errors, text, &std::pair<std::size_t, std::string>::second);
  if (static_cast<std::size_t>(same) == ranks) return Error{text};
  std::string out = fmt::format("rank {}: {}", rank, text);
  if (errors.size() > 1) out += fmt::format(" (and {} more rank{})", errors.size() - 1, errors.size() > 2 ? "s" : "");
  return Error{std::move(out)};
}

}  // namespace

MpiTeam::MpiTeam() {
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_create_errhandler(abort_job, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  MPI_Errhandler_free(&handler);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &neighbours_);
  MPI_Comm_free(&node);
}

bool MpiTeam::stopped() {
  int there = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, kFailure, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
  return there != 0;
}

Expected<std::vector<std::string>> MpiTeam::meet(Kind kind, std::string_view mine, bool all) {
  if (!met_error_.empty()) return met_error_.front();
  struct Head {
    std::int64_t kind;
    std::int64_t size;
  };
  const Head head{static_cast<std::int64_t>(kind), static_cast<std::int64_t>(mine.size())};
  std::vector<Head> heads(size());
  MPI_Allgather(&head, 2, MPI_INT64_T, heads.data(), 2, MPI_INT64_T, MPI_COMM_WORLD);
  const auto is = [&](std::size_t r, Kind k) { return heads[r].kind == static_cast<std::int64_t>(k); };
  bool failed = false;
  for (std::size_t r = 0; r < size(); ++r) failed = failed || !is(r, Kind::ok);

  std::vector<std::string> out;
  if (failed || all || leads()) out.resize(size());
  if (failed || all) {
    for (std::size_t r = 0; r < size(); ++r) {
      if (failed && !is(r, Kind::failed)) continue;
      out[r].resize(static_cast<std::size_t>(heads[r].size));
      if (r == rank()) out[r] = mine;
      in_pieces(out[r].data(), out[r].size(),
                [&](char* data, int count) { MPI_Bcast(data, count, MPI_BYTE, static_cast<int>(r), MPI_COMM_WORLD); });
    }
  } else if (!leads()) {
    in_pieces(mine.data(), mine.size(),
              [](const char* data, int count) { MPI_Send(data, count, MPI_BYTE, 0, kPayload, MPI_COMM_WORLD); });
  } else {
    out.front() = mine;
    for (std::size_t r = 1; r < size(); ++r) {
      out[r].resize(static_cast<std::size_t>(heads[r].size));
      in_pieces(out[r].data(), out[r].size(), [&](char* data, int count) {
        MPI_Recv(data, count, MPI_BYTE, static_cast<int>(r), kPayload, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      });
    }
  }
  if (!failed) return out;

  std::vector<std::pair<std::size_t, std::string>> errors;
  for (std::size_t r = 0; r < size(); ++r) {
    if (!is(r, Kind::failed)) continue;
    errors.emplace_back(r, std::move(out[r]));
    // What stopped() has seen, or would have.
    if (r != rank()) {
      MPI_Recv(nullptr, 0, MPI_BYTE, static_cast<int>(r), kFailure, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
  met_error_.push_back(merge(errors, size()));
  return met_error_.front();
}

Error MpiTeam::fail(const Error& error) {
  if (!met_error_.empty()) return error;  // it is the one that was met, perhaps with more to it
  const auto because = error.message.find(kStopped);
  if (because != std::string::npos && stopped()) {
    const auto met = meet(Kind::stopped, {}, true);
    return Error{met.error().message + error.message.substr(because + kStopped.size())};
  }
  std::vector<MPI_Request> requests;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    requests.emplace_back();
    MPI_Isend(nullptr, 0, MPI_BYTE, r, kFailure, MPI_COMM_WORLD, &requests.back());
  }
  const auto met = meet(Kind::failed, error.message, true);
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  return met.error();
}

}  // namespace bitcube::mpi
