// Processes that share work of which they all have to see the same.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "bitcube/team.hpp"

namespace bitcube {

/// Meets all others. An Error unless all gave the same, which says of what they share; `what` begins the message.
inline Expected<void> agree(Team& team, std::string_view what, std::string_view mine) {
  const auto all = team.gather_all(mine);
  if (!all) return all.error();
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    if ((*all)[rank] == mine) continue;
    return Error{fmt::format("{}: rank {} sees other files than this one, or was given other arguments", what, rank)};
  }
  return {};
}

}  // namespace bitcube
