// Texts as words in hexadecimal, and bytes as a program of words: what is accepted is disassembled to a program of the
// same bytes.
#include "bitcube/isa/text.hpp"
#include "bitcube/program/program.hpp"
#include "input.hpp"

using namespace bitcube;

namespace {

void check_program(std::span<const std::uint8_t> bytes) {
  const auto program = program::Program::from_bytes(bytes, "words");
  if (!program) return;
  fuzz::require(std::vector<std::uint8_t>(bytes.begin(), bytes.end()) == program->bytes(), "a program has its bytes");
  std::string text;
  for (const program::Line& line : program->lines()) text += line.text + "\n";
  const auto again = program::Program::parse(text, "text");
  fuzz::require_result(again, "what was disassembled is a program");
  fuzz::require(again->bytes() == program->bytes(), "of the same bytes");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check_program({data, size});
  const auto bytes = isa::bytes_of_digits(fuzz::text_of(data, size));
  if (!bytes) {
    fuzz::require(bytes.error().message.find(": ") != std::string::npos, "an error begins with its line");
    return 0;
  }
  check_program(*bytes);
  // Written as digits again.
  std::string digits;
  std::size_t whole = 0;
  for (const isa::DisassembledLine& line : isa::disassemble(*bytes)) {
    const int length = isa::instruction_length(line.word.bits);
    if (line.word.length != length) break;
    for (int i = length; i-- > 0;) {
      constexpr std::string_view hex = "0123456789abcdef";
      const auto byte = static_cast<std::size_t>((line.word.bits >> (8 * i)) & 0xFF);
      digits += hex[byte / 16];
      digits += hex[byte % 16];
    }
    digits += '\n';
    whole = line.offset + line.word.length;
  }
  fuzz::require(whole == bytes->size(), "words in hexadecimal are whole");
  const auto again = isa::bytes_of_digits(digits);
  fuzz::require_result(again, "words that were written are read");
  fuzz::require(*again == *bytes, "and are the same");
  return 0;
}
