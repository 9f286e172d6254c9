// The program: finds the subcommand, runs it, and turns whatever goes wrong into one message and an exit code.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>

#include "bitcube/version.hpp"
#include "commands.hpp"
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
  std::string where = "bitcube";
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

int code(Exit exit) {
  return static_cast<int>(exit);
}

int run(std::vector<std::string> arguments, const Console& console) {
  const auto fail = [&](std::string_view text) {
    console.error(text);
    return code(Exit::error);
  };
  const auto print = [&](std::string_view text) {
    const auto printed = console.print(text);
    return printed ? code(Exit::success) : fail(printed.error().message);
  };

  CLI::App root{"bitcube: a bit-exact model of the PTO CUBE matrix unit and its number formats", "bitcube"};
  root.require_subcommand(1);
  root.set_version_flag("--version", fmt::format("bitcube {}", version), "Print the version and exit");
  root.set_help_flag("-h,--help", "Print this help and exit");
  add_examples(root,
               "  bitcube formats                        list the number formats\n"
               "  bitcube convert --to e4m3 1.0625       convert one value, with its flags\n"
               "  bitcube demo                           run a real network in HiFloat4\n"
               "  bitcube COMMAND --help                 options and examples of a command");
  Action action;
  for (const auto add : {add_formats, add_convert, add_quantize, add_dequantize, add_inspect, add_matmul,
                         add_postprocess, add_diff, add_report, add_demo, add_conform, add_vectors, add_gen, add_study,
                         add_explain, add_asm, add_disasm, add_run, add_completion}) {
    add(root, console, action);
  }

  const std::vector<std::string_view> names = subcommand_names(root);
  if (arguments.empty())
    return fail(fmt::format("no command; choose from {} (see bitcube --help)", fmt::join(names, ", ")));
  if (!arguments.front().starts_with('-') && std::find(names.begin(), names.end(), arguments.front()) == names.end()) {
    return fail(unknown_name("command", arguments.front(), names).message);
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
    return fail(usage_message(root, problem));
  }
  if (const std::string name = option_without_value(root); !name.empty()) {
    return fail(fmt::format("{}: its value is empty", name));
  }
  const Expected<Exit> result = action();
  return result ? code(*result) : fail(result.error().message);
}

const Console* terminal = nullptr;  // of end_without_memory()

/// Destructors of the JSON library allocate, and are noexcept: without memory they end the program. It ends in the same
/// way as others without memory do, and allocates nothing on the way; what else is not caught is a defect and aborts.
void end_without_memory() {
  const std::exception_ptr exception = std::current_exception();
  if (exception == nullptr) std::abort();
  try {
    std::rethrow_exception(exception);
  } catch (const std::bad_alloc&) {
    const auto lock = abandon_outputs();
    terminal->out_of_memory();
    ::_exit(code(Exit::error));
  } catch (...) {
    std::abort();
  }
}

}  // namespace

static void install_terminate(const Console& console) {
  terminal = &console;
  std::set_terminate(end_without_memory);
}

}  // namespace bitcube::cli

int main(int argc, char** argv) {
  using bitcube::cli::Console;
  bitcube::cli::reserve_standard_descriptors();
  (void)std::signal(SIGPIPE, SIG_IGN);  // a reader that went away is a failed write
  (void)std::signal(SIGXFSZ, SIG_IGN);  // so is a file beyond the limit of its size
  bool json = false;
  for (int i = 1; i < argc; ++i) json = json || std::string_view(argv[i]) == "--json";
  static const Console console(json);  // the thread that waits for signals has it until the very end
  int code = static_cast<int>(bitcube::cli::Exit::error);
  try {
    bitcube::cli::install_terminate(console);
    bitcube::cli::watch_signals(console);
    code = bitcube::cli::run({argv + std::min(argc, 1), argv + argc}, console);
  } catch (const std::bad_alloc&) {
    console.error("not enough memory");
  } catch (const std::exception& problem) {
    console.error(problem.what());
  }
  // A work that was complete before the signal could stop it, with differences or without, stays what it is.
  if (code == static_cast<int>(bitcube::cli::Exit::error)) bitcube::cli::end_by_signal();
  return code;
}
