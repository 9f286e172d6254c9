// Texts as programs: what is accepted runs, with a trace, and leaves a state that is saved and loaded as it is.
#include "bitcube/program/program.hpp"
#include "bitcube/program/state_file.hpp"
#include "bitcube/program/trace.hpp"
#include "input.hpp"

using namespace bitcube;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto program = program::Program::parse(fuzz::text_of(data, size), "fuzz.s", "/nonexistent");
  if (!program) {
    fuzz::require(program.error().message.starts_with("fuzz.s"), "an error begins with its place");
    return 0;
  }
  machine::Core core;
  std::size_t checks = 0;
  const auto result =
      program::run(*program, core, {.max_steps = 100, .observer = [&](const program::Event& event) {
                                      checks += event.kind == program::Event::Kind::check ? 1U : 0U;
                                      fuzz::require(!program::trace_line(event, {.checks = true}).empty(),
                                                    "every event has a line in the trace");
                                    }});
  fuzz::require(result.checks.size() == checks, "every expectation that was checked is in the result");
  if (result.fault) {
    fuzz::require(!program::explain(*result.fault, result.rejection).empty(), "a fault has an explanation");
  }
  const auto saved = program::write_state(core.state());
  fuzz::require_result(saved, "the state of a program is saved");
  const auto loaded = program::read_state(*saved, "state");
  fuzz::require_result(loaded, "a saved state is loaded");
  fuzz::require(*loaded == core.state(), "a saved state loads to an equal state");
  return 0;
}
