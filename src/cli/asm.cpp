// bitcube asm, bitcube disasm: words from text, and text from words.
#include <algorithm>

#include "bitcube/isa/forms.hpp"
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

/// Whether a file is text: what does not end in .bin and has only what texts have.
bool is_text(const std::string& path, std::string_view bytes) {
  return !bytes.empty() && !path.ends_with(".bin") && std::all_of(bytes.begin(), bytes.end(), [](char c) {
    return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t';
  });
}

Expected<Exit> disassemble(const DisasmOptions& options, const Console& console) {
  const auto file = InputFile::open(options.input, program::longest_text);
  if (!file) return file.error();
  if (file->size() > program::longest_text) {
    return Error{
        fmt::format("{}: {} bytes; a program has at most {}", options.input, file->size(), program::longest_text)};
  }
  const auto loaded = file->load();
  if (!loaded) return loaded.error();
  std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(loaded->data()), loaded->size());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::uint8_t> from_text;
  if (is_text(options.input, text)) {
    auto words = isa::bytes_of_digits(text);
    if (!words) return Error{fmt::format("{}:{}", options.input, words.error().message)};
    from_text = std::move(*words);
    bytes = from_text;
  }
  const auto program = program::Program::from_bytes(bytes, options.input);
  if (!program) return program.error();
  Expected<void> printed;
  if (console.json()) {
    printed = console.print_json(Json{{"bytes", bytes.size()}, {"instructions", lines_json(*program)}});
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
  add_memory_limit(command);
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
  command
      .add_option("WORDS", options->input,
                  "Words as they stand in memory, or a text with a word in hexadecimal on each line")
      ->type_name("prog.bin")
      ->required();
  add_memory_limit(command);
  add_json(command);
  add_examples(command,
               "  bitcube disasm w1.bin\n"
               "  bitcube disasm words.txt               as gen bundle --format words writes them");
  command.callback([=, &console, &action] { action = [=, &console] { return disassemble(*options, console); }; });
}

}  // namespace bitcube::cli
