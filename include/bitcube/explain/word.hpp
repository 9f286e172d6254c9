// What an instruction word says: its fields, or why it is no instruction (architecture 2).
#pragma once

#include <cstdint>

#include "bitcube/document.hpp"
#include "bitcube/expected.hpp"

namespace bitcube {

/// The word at the low end of `bits`: its length from the low nibble, the form, every field, what is reserved, and the
/// text of the assembler. Of a word that is no instruction: what is not legal, what would be, and the nearest forms.
/// The last result is what isa::disassemble() makes of the word. Errors: bits above the word's length.
Expected<Document> explain_word(std::uint64_t bits);

}  // namespace bitcube
