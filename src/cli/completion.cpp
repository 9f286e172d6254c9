// bitcube completion: what a shell needs to complete the commands, options and choices of this program.
#include <algorithm>

#include "commands.hpp"

namespace bitcube::cli {
namespace {

/// One option of a subcommand: its names, and the values it takes where they are listed.
struct OptionInfo {
  std::vector<std::string> names;
  std::vector<std::string> choices;
  std::string description;
};

struct CommandInfo {
  std::string name;  // of a nested one with that of its parent: "explain word"
  std::string description;
  std::vector<OptionInfo> options;
  std::vector<std::string> subcommands;

  bool is_nested() const { return name.find(' ') != std::string::npos; }
};

/// "a|b|c" names choices where every part is a word in small letters or a name like RNE; "FILE.npy|FILE.bin" does not.
std::vector<std::string> choices_of(const std::string& type_name) {
  std::vector<std::string> out;
  if (type_name.find('|') == std::string::npos || type_name.find_first_of(".:[ ") != std::string::npos) return out;
  std::size_t begin = 0;
  while (begin <= type_name.size()) {
    const std::size_t end = std::min(type_name.find('|', begin), type_name.size());
    out.push_back(type_name.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

void collect(CLI::App& parent, const std::string& prefix, std::vector<CommandInfo>& out) {
  for (CLI::App* command : parent.get_subcommands([](CLI::App*) { return true; })) {
    CommandInfo info{prefix + command->get_name(), command->get_description(), {}, {}};
    for (const CLI::Option* option : command->get_options()) {
      OptionInfo o;
      for (const std::string& name : option->get_snames()) o.names.push_back("-" + name);
      for (const std::string& name : option->get_lnames()) o.names.push_back("--" + name);
      if (option->get_type_size() != 0) o.choices = choices_of(option->get_type_name());
      o.description = option->get_description();
      if (!o.names.empty()) info.options.push_back(std::move(o));
    }
    for (const CLI::App* sub : command->get_subcommands([](CLI::App*) { return true; })) {
      info.subcommands.push_back(sub->get_name());
    }
    const std::string below = info.name + ' ';
    out.push_back(std::move(info));
    collect(*command, below, out);
  }
}

std::vector<CommandInfo> commands_of(CLI::App& root) {
  std::vector<CommandInfo> out;
  collect(root, "", out);
  return out;
}

/// The name of a command as a pattern of `case`.
std::string pattern_of(const CommandInfo& command) {
  std::string text = command.name;
  if (const std::size_t blank = text.find(' '); blank != std::string::npos) text.insert(blank, 1, '\\');
  return text;
}

/// A line `command) ACTION ;;` per command that has subcommands.
std::string parent_cases(const std::vector<CommandInfo>& commands, std::string_view action) {
  std::string text;
  for (const CommandInfo& command : commands) {
    if (command.subcommands.empty()) continue;
    text += fmt::format("    {}) {} ;;\n", pattern_of(command),
                        fmt::format(fmt::runtime(action), fmt::join(command.subcommands, " ")));
  }
  return text;
}

std::string names_of(const CommandInfo& command) {
  std::vector<std::string> names;
  for (const OptionInfo& option : command.options) names.insert(names.end(), option.names.begin(), option.names.end());
  return fmt::format("{}", fmt::join(names, " "));
}

/// One line `command:option) ACTION ;;` per option with choices.
std::string choice_cases(const std::vector<CommandInfo>& commands, std::string_view action) {
  std::string text;
  for (const CommandInfo& command : commands) {
    for (const OptionInfo& option : command.options) {
      if (option.choices.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) patterns.push_back(pattern_of(command) + ":" + name);
      text += fmt::format("    {}) {} ;;\n", fmt::join(patterns, "|"),
                          fmt::format(fmt::runtime(action), fmt::join(option.choices, " ")));
    }
  }
  return text;
}

std::string bash_script(const std::vector<CommandInfo>& commands) {
  std::vector<std::string> names;
  std::string options;
  for (const CommandInfo& command : commands) {
    if (!command.is_nested()) names.push_back(command.name);
    options += fmt::format("      {}) words='{}' ;;\n", pattern_of(command), names_of(command));
  }
  std::string text = "# bash completion of bitcube, made by `bitcube completion bash`\n_bitcube() {\n";
  text += "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words=\n";
  text += "  COMPREPLY=()\n  if [ \"$COMP_CWORD\" -eq 1 ]; then\n";
  text += fmt::format("    COMPREPLY=($(compgen -W '{} --help --version' -- \"$word\"))\n    return\n  fi\n",
                      fmt::join(names, " "));
  text += "  local below=\n  case \"$command\" in\n" + parent_cases(commands, "below='{}'") + "  esac\n";
  text += "  if [ -n \"$below\" ] && [ \"$COMP_CWORD\" -eq 2 ]; then\n    words=$below\n";
  text += "  elif [ -n \"$below\" ]; then\n    command=\"$command ${COMP_WORDS[2]}\"\n  fi\n";
  text += "  case \"$command:$before\" in\n" + choice_cases(commands, "words='{}'") + "  esac\n";
  text += "  if [ -z \"$words\" ]; then\n    case \"$word\" in -*) case \"$command\" in\n" + options;
  text += "    esac ;; esac\n  fi\n";
  text += "  if [ -n \"$words\" ]; then\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n";
  text += "  else\n    compopt -o default 2>/dev/null\n  fi\n}\ncomplete -F _bitcube bitcube\n";
  return text;
}

/// For between single quotes in zsh, where a colon parts a word from its description.
std::string zsh_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == ':') {
      out += "\\:";
    } else {
      out += c;
    }
  }
  return out;
}

std::string zsh_script(const std::vector<CommandInfo>& commands) {
  std::string names;
  std::string options;
  for (const CommandInfo& command : commands) {
    if (!command.is_nested()) names += fmt::format("      '{}:{}'\n", command.name, zsh_quoted(command.description));
    options += fmt::format("      {}) list=(\n", pattern_of(command));
    for (const OptionInfo& option : command.options) {
      for (const std::string& name : option.names) {
        options += fmt::format("        '{}:{}'\n", name, zsh_quoted(option.description));
      }
    }
    options += "      ) ;;\n";
  }
  std::string text = "#compdef bitcube\n# zsh completion of bitcube, made by `bitcube completion zsh`\n_bitcube() {\n";
  text += "  local -a list\n  if (( CURRENT == 2 )); then\n    list=(\n" + names + "    )\n";
  text += "    _describe command list\n    return\n  fi\n";
  text += "  local command=$words[2] below=\n  case $command in\n" + parent_cases(commands, "below='{}'") + "  esac\n";
  text += "  if [[ -n $below ]] && (( CURRENT == 3 )); then\n    compadd -- ${=below}\n    return\n";
  text += "  elif [[ -n $below ]]; then\n    command=\"$command $words[3]\"\n  fi\n";
  text += "  case \"$command:$words[CURRENT-1]\" in\n" + choice_cases(commands, "compadd -- {}; return") + "  esac\n";
  text += "  if [[ $PREFIX == -* ]]; then\n    case $command in\n" + options + "    esac\n";
  text += "    _describe option list\n  else\n    _files\n  fi\n}\n";
  text += "if [[ $funcstack[1] == _bitcube ]]; then _bitcube \"$@\"; else compdef _bitcube bitcube; fi\n";
  return text;
}

}  // namespace

void add_completion(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("completion", "Print the completion script of a shell");
  const auto shell = std::make_shared<std::string>();
  command.add_option("SHELL", *shell, "bash or zsh")->type_name("bash|zsh")->required();
  add_examples(command,
               "  source <(bitcube completion bash)\n"
               "  bitcube completion zsh > ~/.zfunc/_bitcube");
  command.callback([shell, &root, &console, &action] {
    action = [shell, &root, &console]() -> Expected<Exit> {
      if (*shell != "bash" && *shell != "zsh") {
        return Error{fmt::format("SHELL: there is no completion for '{}'; choose bash or zsh", *shell)};
      }
      const auto commands = commands_of(root);
      const auto printed = console.print(*shell == "bash" ? bash_script(commands) : zsh_script(commands));
      if (!printed) return printed.error();
      return Exit::success;
    };
  });
}

}  // namespace bitcube::cli
