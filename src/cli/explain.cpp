// bitcube explain: every step of one result.
#include "explain.hpp"

#include "commands.hpp"

namespace bitcube::cli {

Expected<Exit> print_document(const Expected<Document>& document, const Console& console) {
  if (!document) return document.error();
  const auto printed = console.print(console.json() ? json_of(*document) + "\n" : text_of(*document));
  if (!printed) return printed.error();
  return Exit::success;
}

void add_explain(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("explain", "Every step of one result, with exact values, bits and clauses");
  command.require_subcommand(1);
  add_examples(command,
               "  bitcube explain word 0x38531181\n"
               "  bitcube explain COMMAND --help");
  for (const auto add : {add_explain_matmul, add_explain_postprocess, add_explain_word}) add(command, console, action);
}

}  // namespace bitcube::cli
