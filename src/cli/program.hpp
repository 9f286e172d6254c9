// What a program over the subcommands does with its command line.
#pragma once

#include <span>
#include <string_view>

#include "commands.hpp"

namespace bitcube::cli {

using AddCommand = void (*)(CLI::App& root, const Console& console, Action& action);

/// How a program names itself, and which subcommands it has.
struct Program {
  std::string_view name;
  std::string_view summary;
  std::string_view examples;
  std::span<const AddCommand> commands;
  void (*adapt)(CLI::App& root) = nullptr;  // what it says otherwise than bitcube
};

/// Whether --json is among the arguments: known before they are understood, for the messages about them.
bool wants_json(int argc, char** argv) noexcept;

/// Runs the subcommand of a command line. The error is for the caller to tell, who then calls end_by_signal(). The
/// console has to live until the program ends: the thread that waits for signals has it, see watch_signals().
Expected<Exit> run_program(int argc, char** argv, const Program& program, const Console& console);

}  // namespace bitcube::cli
