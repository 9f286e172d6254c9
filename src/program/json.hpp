// Parts of the machine as JSON, with keys in a fixed order: what the trace and the state file share. Private to the
// room.
#pragma once

#include <nlohmann/json.hpp>

#include "bitcube/machine/state.hpp"

namespace bitcube::program {

using Json = nlohmann::ordered_json;

/// "0x1F".
std::string hex_text(uint64 value);
/// A list of NV, DZ, OF, UF, NX.
Json flags_json(Flags flags);
/// Every field, null where the command was not given.
Json header_json(const machine::Header& header);
Json options_json(const machine::Options& options);

}  // namespace bitcube::program
