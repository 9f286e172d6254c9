#include "team_work.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace bitcube {

Expected<void> agree(Team& team, std::string_view what, std::string_view mine) {
  const auto all = team.gather_all(mine);
  if (!all) return all.error();
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    if ((*all)[rank] == mine) continue;
    return Error{fmt::format("{}: rank {} sees other files than this one, or was given other arguments", what, rank)};
  }
  return {};
}

void for_own_pieces(const Team& team, std::size_t count, const Execution& execution,
                    const std::function<void(std::size_t)>& body) {
  const std::size_t own = count > team.rank() ? (count - team.rank() - 1) / team.size() + 1 : 0;
  parallel_for(own, execution, [&](std::size_t turn) { body(team.rank() + turn * team.size()); });
}

std::string pack(const nlohmann::json& json) {
  std::string bytes;
  nlohmann::json::to_cbor(json, bytes);
  return bytes;
}

}  // namespace bitcube
