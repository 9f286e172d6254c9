// Bytes as instruction words: decode and encode are inverse, and text assembles to the same bytes.
#include "bitcube/isa/text.hpp"
#include "input.hpp"

using namespace bitcube;

namespace {

void check_word(std::uint64_t bits) {
  for (const bool strict : {true, false}) {
    const isa::DecodeOptions options{.strict_reserved_bits = strict};
    const isa::Decoded decoded = isa::decode(bits, options);
    if (!decoded) {
      fuzz::require(!isa::explain(decoded.rejection).empty(), "a rejection has an explanation");
      (void)isa::diagnose(decoded.rejection);
      fuzz::require(isa::nearest_forms(decoded.rejection.word, 3).size() <= 3, "no more near forms than were wanted");
      continue;
    }
    const auto length = static_cast<unsigned>(decoded->length());
    const auto word = isa::encode(*decoded, options);
    fuzz::require_result(word, "what was decoded is encoded");
    fuzz::require(word->length == length && word->bits == (bits & low_mask(static_cast<int>(8 * length))),
                  "encode is the inverse of decode");
    for (const isa::FieldReading& field : isa::read_fields(decoded->form(), word->bits)) {
      fuzz::require(field.legal || !strict, "every field of an instruction is legal");
    }
    fuzz::require(!isa::to_text(*decoded).empty(), "an instruction has a text");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> bytes(data, size);
  std::size_t offset = 0;
  std::string text;
  for (const isa::DisassembledLine& line : isa::disassemble(bytes)) {
    fuzz::require(line.offset == offset && line.word.length > 0, "the lines cover all bytes");
    offset += line.word.length;
    check_word(line.word.bits);
    text += line.text + "\n";
  }
  fuzz::require(offset == size, "the lines cover all bytes");
  const auto words = isa::assemble(text);
  fuzz::require_result(words, "what was disassembled assembles");
  const std::vector<std::uint8_t> again = isa::to_bytes(*words);
  fuzz::require(std::vector<std::uint8_t>(bytes.begin(), bytes.end()) == again, "to the same bytes");
  return 0;
}
