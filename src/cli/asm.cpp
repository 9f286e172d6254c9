// bitcube asm, bitcube disasm: words from text, and text from words.
#include "bitcube/isa/text.hpp"
#include "bitcube/program/program.hpp"
#include "commands.hpp"

namespace bitcube::cli {
namespace {

struct AsmOptions {
  std::string input;
  std::string output;
  bool listing = false;
};

std::string word_digits(isa::Word word) {
  return fmt::format("{:0{}X}", word.bits, 2 * word.length);
}

Json lines_json(const program::Program& program) {
  Json lines = Json::array();
  for (const program::Line& line : program.lines()) {
    lines.push_back({{"address", fmt::format("0x{:X}", line.address)},
                     {"word", "0x" + word_digits(line.word)},
                     {"text", line.text},
                     {"line", line.position.line == 0 ? Json(nullptr) : Json(line.position.line)}});
  }
  return lines;
}

/// Address, word and canonical text of every instruction.
std::string listing(const program::Program& program) {
  TextTable table;
  for (const program::Line& line : program.lines()) {
    table.add({fmt::format("{:08X}", line.address), word_digits(line.word), line.text});
  }
  return table.text();
}

Expected<Exit> assemble(const AsmOptions& options, const Console& console) {
  const auto program = program::Program::load(options.input);
  if (!program) return program.error();
  std::optional<OutputFile> file;
  if (!options.output.empty()) {
    auto created = create_output(options.output, std::array<std::string, 1>{options.input});
    if (!created) return created.error();
    file = std::move(*created);
    if (auto written = file->append(std::as_bytes(std::span(program->bytes()))); !written) return written.error();
  }
  Expected<void> printed;
  if (console.json()) {
    Json json{{"origin", fmt::format("0x{:X}", program->origin())}, {"bytes", program->bytes().size()}};
    json["instructions"] = lines_json(*program);
    printed = console.print_json(json);
  } else if (options.listing || options.output.empty()) {
    printed = console.print(listing(*program));
  }
  if (!printed) return printed.error();
  if (file) {
    if (auto done = file->commit(); !done) return done.error();
  }
  return Exit::success;
}

struct DisasmOptions {
  std::string input;
};

Expected<Exit> disassemble(const DisasmOptions& options, const Console& console) {
  constexpr std::uint64_t longest = std::uint64_t{64} << 20;
  const auto file = InputFile::open(options.input, longest);
  if (!file) return file.error();
  if (file->size() > longest) {
    return Error{fmt::format("{}: {} bytes; a program has at most {}", options.input, file->size(), longest)};
  }
  const auto bytes = file->load();
  if (!bytes) return bytes.error();
  const auto program = program::Program::from_bytes(
      {reinterpret_cast<const std::uint8_t*>(bytes->data()), bytes->size()}, options.input);
  if (!program) return program.error();
  Expected<void> printed;
  if (console.json()) {
    printed = console.print_json(Json{{"bytes", bytes->size()}, {"instructions", lines_json(*program)}});
  } else {
    // What is printed assembles to the same bytes: address and word stand in comments.
    TextTable table;
    for (const program::Line& line : program->lines()) {
      table.add({line.text, fmt::format("// {:08X}: {}", line.address, word_digits(line.word))});
    }
    printed = console.print(table.text());
  }
  if (!printed) return printed.error();
  return Exit::success;
}

}  // namespace

void add_asm(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("asm", "Assemble a program into instruction words");
  const auto options = std::make_shared<AsmOptions>();
  command.add_option("PROGRAM", options->input, "Instructions as text; directives are checked and left out")
      ->type_name("prog.s")
      ->required();
  command.add_option("-o,--output", options->output, "The words as they stand in memory; without it they are listed")
      ->type_name("prog.bin");
  command.add_flag("--listing", options->listing, "Print address, word and canonical text of every instruction");
  add_json(command);
  add_examples(command,
               "  bitcube asm w1.s --listing\n"
               "  bitcube asm w1.s -o w1.bin");
  command.callback([=, &console, &action] { action = [=, &console] { return assemble(*options, console); }; });
}

void add_disasm(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command =
      *root.add_subcommand("disasm", "Print instruction words as text that assembles to the same words");
  const auto options = std::make_shared<DisasmOptions>();
  command.add_option("WORDS", options->input, "Words as they stand in memory")->type_name("prog.bin")->required();
  add_json(command);
  add_examples(command, "  bitcube disasm w1.bin");
  command.callback([=, &console, &action] { action = [=, &console] { return disassemble(*options, console); }; });
}

}  // namespace bitcube::cli
