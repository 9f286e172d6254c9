// bitcube explain fault: what a program does that the machine refuses.
#include "bitcube/explain/fault.hpp"

#include "bitcube/program/state_file.hpp"
#include "explain.hpp"

namespace bitcube::cli {
namespace {

struct Options {
  std::string input;
  std::string load;
  ExplainFaultOptions how{};
};

Expected<Exit> run(const Options& options, const Console& console) {
  machine::Core core;
  if (!options.load.empty()) {
    auto state = program::load_state(options.load);
    if (!state) return state.error();
    core.state() = std::move(*state);
  }
  const auto program = program::Program::load(options.input);
  if (!program) return program.error();
  return print_document(explain_fault(*program, core, options.how), console);
}

}  // namespace

void add_explain_fault(CLI::App& explain, const Console& console, Action& action) {
  CLI::App& command = *explain.add_subcommand(
      "fault", "The first fault of a program: the bundle, the rule, the operand, found and legal");
  const auto options = std::make_shared<Options>();
  command.add_option("PROGRAM", options->input, "As bitcube run takes it: text with directives, or words")
      ->type_name("prog.s|prog.bin")
      ->required();
  command.add_flag("--all", options->how.all, "Every fault, those that the program expects as well; at most 1000");
  command.add_option("--load-state", options->load, "Start from this state instead of an empty one")
      ->type_name("s.json");
  command.add_option("--max-steps", options->how.max_steps, "Stop after so many instructions; default: 10000000")
      ->type_name("N")
      ->check(whole_number(uint64{1} << 62));
  add_memory_limit(command);
  add_json(command);
  add_examples(command,
               "  bitcube explain fault examples/programs/w10.s\n"
               "  bitcube explain fault prog.s --all --json\n"
               "Exit codes: 0 the program ran, whatever it met; 2 bad input");
  command.callback([=, &console, &action] { action = [=, &console] { return run(*options, console); }; });
}

}  // namespace bitcube::cli
