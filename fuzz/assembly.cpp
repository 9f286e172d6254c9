// Texts as instructions: what assembles disassembles to a text that assembles to the same bytes.
#include "bitcube/isa/text.hpp"
#include "input.hpp"

using namespace bitcube;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto words = isa::assemble(fuzz::text_of(data, size));
  if (!words) {
    fuzz::require(words.error().message.find(':') != std::string::npos, "an error begins with its place");
    return 0;
  }
  const std::vector<std::uint8_t> bytes = isa::to_bytes(*words);
  std::string text;
  for (const isa::DisassembledLine& line : isa::disassemble(bytes)) text += line.text + "\n";
  const auto again = isa::assemble(text);
  fuzz::require_result(again, "what was disassembled assembles");
  fuzz::require(isa::to_bytes(*again) == bytes, "to the same bytes");
  return 0;
}
