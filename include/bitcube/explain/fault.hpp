// The faults of a program's run: which rule, which operand, found and legal (architecture 4).
#pragma once

#include <cstdint>

#include "bitcube/document.hpp"
#include "bitcube/expected.hpp"
#include "bitcube/machine/core.hpp"
#include "bitcube/program/program.hpp"

namespace bitcube {

struct ExplainFaultOptions {
  bool all = false;  // every fault that the run meets, at most 1000; otherwise the first
  std::uint64_t max_steps = program::RunOptions{}.max_steps;
};

/// Runs the program on `core` as program::run() does, and explains what was refused: the bundle, the instruction, the
/// rule with its text and clause, the operand, what was found and what would be legal, and whether the state stayed as
/// it was. Faults that the program expects count as well. The last result is program::explain() of the fault, or says
/// that there was none.
Expected<Document> explain_fault(const program::Program& program, machine::Core& core,
                                 const ExplainFaultOptions& options = {});

}  // namespace bitcube
