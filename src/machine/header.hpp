// The bundle lifecycle (architecture 2.13): what each command does to the header, and when a bundle completes.
#pragma once

#include "bitcube/machine/core.hpp"

namespace bitcube::machine {

/// Executes one instruction at TPC. A rejected command leaves the state as it was.
Outcome execute_command(State& state, const isa::Instruction& instruction);

}  // namespace bitcube::machine
