// What processes do that share a piece of work.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "bitcube/parallel.hpp"
#include "bitcube/team.hpp"

namespace bitcube {

/// Meets all others. An Error unless all gave the same, which says of what they share; `what` begins the message.
Expected<void> agree(Team& team, std::string_view what, std::string_view mine);

/// body(i) of the pieces 0 to count - 1 that are this rank's, where they are dealt in turn, on the threads of
/// `execution`.
void for_own_pieces(const Team& team, std::size_t count, const Execution& execution,
                    const std::function<void(std::size_t)>& body);

/// A value as the bytes that ranks give each other (CBOR).
std::string pack(const nlohmann::json& json);

}  // namespace bitcube
