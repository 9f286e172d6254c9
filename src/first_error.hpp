// Of several pieces of a work that fail, which one tells.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>

#include "bitcube/expected.hpp"

namespace bitcube {

/// The error of the first piece that failed, whatever thread was there first: so messages do not depend on threads.
class FirstError {
 public:
  /// From any thread.
  void report(std::size_t piece, Error error) {
    const std::scoped_lock lock(mutex_);
    if (error_ && piece_ <= piece) return;
    error_ = std::move(error);
    piece_ = piece;
  }

  /// Once all pieces are done.
  const std::optional<Error>& error() const noexcept { return error_; }

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
  std::size_t piece_ = 0;
};

}  // namespace bitcube
