// bitcube explain word: the fields of an instruction word, or why it is none.
#include "bitcube/explain/word.hpp"

#include "explain.hpp"

namespace bitcube::cli {
namespace {

Expected<Exit> run(const std::string& text, const Console& console) {
  if (!is_bit_pattern(text)) {
    return Error{fmt::format("WORD: '{}' is no word; a word is written as 0x38531181", text)};
  }
  const auto word = parse_hex(text);
  if (!word) return word.error();
  return print_document(explain_word(*word), console);
}

}  // namespace

void add_explain_word(CLI::App& explain, const Console& console, Action& action) {
  CLI::App& command = *explain.add_subcommand("word", "The fields of an instruction word, or why it is none");
  const auto word = std::make_shared<std::string>();
  command.add_option("WORD", *word, "Of 16, 32 or 64 bits, in hexadecimal, most significant digit first")->required();
  add_json(command);
  add_examples(command,
               "  bitcube explain word 0x38531181\n"
               "  bitcube explain word 0x0005 --json");
  command.callback([=, &console, &action] { action = [=, &console] { return run(*word, console); }; });
}

}  // namespace bitcube::cli
