// Finds the subcommand, runs it, and turns whatever goes wrong into one message and an exit code.
#include "program.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>

#include "bitcube/version.hpp"
#include "interrupt.hpp"

namespace bitcube::cli {
namespace {

/// A file that is opened must not become standard input, output or error because those were closed; writing to one
/// that was closed stays an error.
void reserve_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) == -1) (void)::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

std::vector<std::string_view> subcommand_names(CLI::App& root) {
  std::vector<std::string_view> names;
  for (const CLI::App* command : root.get_subcommands([](CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

/// What CLI11 found wrong, with a hint where an option looks like another one.
std::string usage_message(const CLI::App& root, const CLI::ParseError& problem) {
  const CLI::App* last = &root;
  std::string where = root.get_name();
  for (auto chosen = root.get_subcommands(); !chosen.empty(); chosen = last->get_subcommands()) {
    last = chosen.front();
    where += " " + last->get_name();
  }
  const CLI::App& command = *last;
  std::string text = problem.what();
  // An option that does not exist may be why another one is missing, so it comes first.
  const auto extras = root.remaining(true);
  const auto odd = std::find_if(extras.begin(), extras.end(), [](const std::string& s) { return s.starts_with('-'); });
  if (odd != extras.end() || (dynamic_cast<const CLI::ExtrasError*>(&problem) != nullptr && !extras.empty())) {
    std::string argument = odd != extras.end() ? *odd : extras.front();
    if (argument.starts_with(' ')) argument.erase(0, 1);  // the mark of a negative value
    text = fmt::format("unexpected argument '{}'", argument);
    std::vector<std::string> options;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    }
    const std::vector<std::string_view> names(options.begin(), options.end());
    const std::string_view typed = std::string_view(argument).substr(0, argument.find('='));
    const std::string_view near = typed.starts_with("--") ? closest(typed, names) : std::string_view();
    if (!near.empty()) text += fmt::format("; did you mean {}?", near);
  }
  return fmt::format("{} (see {} --help)", text, where);
}

/// The name of an option that was given without a value, as `-o "$OUT"` gives it where OUT is not set; or "". To take
/// it for an option that was not given would lose an output. Patterns may be empty.
std::string option_without_value(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional() || option->count() == 0) continue;
    const std::string name = option->get_name();
    if (name == "--include" || name == "--exclude") continue;
    if (option->get_expected_max() != 0 && std::ranges::find(option->results(), "") != option->results().end()) {
      return name;
    }
  }
  for (const CLI::App* part : command.get_subcommands()) {
    if (std::string name = option_without_value(*part); !name.empty()) return name;
  }
  return {};
}

Expected<Exit> run(std::vector<std::string> arguments, const Program& program, const Console& console) {
  const auto print = [&](std::string_view text) -> Expected<Exit> {
    if (const auto printed = console.print(text); !printed) return printed.error();
    return Exit::success;
  };

  const std::string name(program.name);
  CLI::App root{name + ": " + std::string(program.summary), name};
  root.require_subcommand(1);
  root.set_version_flag("--version", fmt::format("{} {}", name, version), "Print the version and exit");
  root.set_help_flag("-h,--help", "Print this help and exit");
  add_examples(root, program.examples);
  Action action;
  for (const AddCommand add : program.commands) add(root, console, action);
  if (program.adapt != nullptr) program.adapt(root);

  const std::vector<std::string_view> names = subcommand_names(root);
  if (arguments.empty())
    return Error{fmt::format("no command; choose from {} (see {} --help)", fmt::join(names, ", "), name)};
  if (!arguments.front().starts_with('-') && std::find(names.begin(), names.end(), arguments.front()) == names.end()) {
    return unknown_name("command", arguments.front(), names);
  }
  mark_negative_values(arguments);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    root.parse(std::move(arguments));
  } catch (const CLI::CallForVersion& request) {
    return print(fmt::format("{}\n", request.what()));
  } catch (const CLI::Success&) {
    return print(root.help());
  } catch (const CLI::ParseError& problem) {
    return Error{usage_message(root, problem)};
  }
  if (const std::string option = option_without_value(root); !option.empty()) {
    return Error{fmt::format("{}: its value is empty", option)};
  }
  return action();
}

const Console* terminal = nullptr;  // of end_without_memory()

std::atomic<bool> memory_ran_out{false};

/// Before operator new throws. Who ends in end_without_memory() cannot say why: an exception that meets `noexcept` is
/// not caught there.
void note_lack_of_memory() {
  memory_ran_out.store(true);
  throw std::bad_alloc();
}

/// Destructors of the JSON library allocate, and are noexcept: without memory they end the program. It ends in the same
/// way as others without memory do, and allocates nothing on the way; what else is not caught is a defect and aborts.
void end_without_memory() {
  if (!memory_ran_out.load()) std::abort();
  const auto lock = abandon_outputs();
  terminal->out_of_memory();
  ::_exit(static_cast<int>(Exit::error));
}

}  // namespace

Expected<Exit> run_program(int argc, char** argv, const Program& program, const Console& console) {
  reserve_standard_descriptors();
  (void)std::signal(SIGPIPE, SIG_IGN);  // a reader that went away is a failed write
  (void)std::signal(SIGXFSZ, SIG_IGN);  // so is a file beyond the limit of its size
  terminal = &console;
  std::set_new_handler(note_lack_of_memory);
  std::set_terminate(end_without_memory);
  watch_signals(console);
  try {
    return run({argv + std::min(argc, 1), argv + argc}, program, console);
  } catch (const std::bad_alloc&) {
    return Error{"not enough memory"};
  } catch (const std::exception& problem) {
    return Error{problem.what()};
  }
}

bool wants_json(int argc, char** argv) noexcept {
  return std::any_of(argv + std::min(argc, 1), argv + argc,
                     [](const char* word) { return std::string_view(word) == "--json"; });
}

}  // namespace bitcube::cli
