// bitcube explain: every step of one result.
#include "explain.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "commands.hpp"

namespace bitcube::cli {

Expected<std::vector<uint64>> parse_index(std::string_view text) {
  std::vector<uint64> index;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    uint64 number = 0;
    const auto parsed = std::from_chars(text.data() + begin, text.data() + end, number);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + end) {
      return Error{fmt::format("--at: '{}' is no index; it is numbers from 0, one per dimension, as in 3,129", text)};
    }
    index.push_back(number);
    begin = end + 1;
  }
  return index;
}

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
               "  bitcube explain convert --to e4m3 464\n"
               "  bitcube explain quantize W.npy --format hif4 --at 3,129\n"
               "  bitcube explain word 0x38531181\n"
               "  bitcube explain fault examples/programs/w10.s\n"
               "  bitcube explain COMMAND --help");
  for (const auto add : {add_explain_convert, add_explain_quantize, add_explain_matmul, add_explain_postprocess,
                         add_explain_word, add_explain_fault}) {
    add(command, console, action);
  }
}

}  // namespace bitcube::cli
