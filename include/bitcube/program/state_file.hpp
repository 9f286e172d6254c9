// The state of a Core as JSON text: to stop a program and go on later, or to hand a scenario to another tool.
// docs/programs.md lists the keys.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "bitcube/expected.hpp"
#include "bitcube/machine/state.hpp"

namespace bitcube::program {

inline constexpr int state_version = 1;

/// Errors: a Tile whose descriptor is not legal, as only hand-made states have.
Expected<std::string> write_state(const machine::State& state);

/// The inverse. Nothing in the text is believed: keys, names, numbers, Tile geometry and pool sizes are checked before
/// anything is allocated for them. An error names the place in the document ("/pe/0/tiles/T#1/capacity: ...").
/// `name` is for messages.
Expected<machine::State> read_state(std::string_view text, std::string_view name);
Expected<machine::State> load_state(const std::filesystem::path& path);

}  // namespace bitcube::program
