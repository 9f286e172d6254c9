// Texts as saved states: what is accepted is saved as it is, and its words are executed without harm.
#include "bitcube/machine/core.hpp"
#include "bitcube/program/state_file.hpp"
#include "input.hpp"

using namespace bitcube;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto state = program::read_state(fuzz::text_of(data, size), "state");
  if (!state) {
    fuzz::require(state.error().message.starts_with("state"), "an error begins with its place");
    return 0;
  }
  const auto saved = program::write_state(*state);
  fuzz::require_result(saved, "a state that was loaded is saved");
  const auto again = program::read_state(*saved, "saved");
  fuzz::require_result(again, "a saved state is loaded");
  fuzz::require(*again == *state, "a saved state loads to an equal state");
  const auto text = program::write_state(*again);
  fuzz::require(text && *text == *saved, "equal states have the same text");

  machine::Core core;
  core.state() = *state;
  for (int i = 0; i < 8; ++i) {
    const machine::Core before = core;
    const machine::Outcome outcome = core.step();
    if (!outcome.fault) continue;
    if (outcome.fault->fault_class() != machine::FaultClass::bundle_post_commit) {
      fuzz::require(core == before, "a fault changes nothing");
    }
    break;
  }
  (void)core.step(0x00000001);  // BSTOP: the bundle that was open, if any
  return 0;
}
