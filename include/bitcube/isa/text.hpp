// Instructions as text (architecture 2.16, and the syntax of each form in forms.hpp), and the list of all forms.
//
// One line holds any number of instructions separated by `;`. A comment runs from `//`, or from a `#` at the start of
// the line or after a blank, to the end of the line (T#1 is a Tile). Names are read in any case. Numbers are decimal,
// 0x... or 0b....
// Blanks are free between the parts of an instruction. Labels and further directives belong to the program format.
// Four directives place data: `.byte`, `.half`, `.word`, `.dword` (1, 2, 4, 8 bytes), each with a list of numbers.
// They are how the disassembler writes what is no instruction: `.half`, `.word`, `.dword` for undefined 16, 32, 64
// bits, three `.half` for 48, `.byte` for the torso of an instruction at the end of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/isa/instruction.hpp"

namespace bitcube::isa {

/// The words of one line, none if it is empty. An error starts with "LINE:COLUMN: ", counted from 1, and says what was
/// expected there.
Expected<std::vector<Word>> assemble_line(std::string_view text, int line = 1);

/// The words of a text of many lines.
Expected<std::vector<Word>> assemble(std::string_view text);

/// The line without its comment.
std::string_view strip_comment(std::string_view line) noexcept;

/// The bytes of some words, as they stand in memory.
std::vector<std::uint8_t> to_bytes(std::span<const Word> words);

/// The bytes of words in hexadecimal, one a line; # and // begin comments. Leading zeros may fill an entry of
/// $readmemh. An error starts with "LINE: ".
Expected<std::vector<std::uint8_t>> bytes_of_digits(std::string_view text);

/// Canonical text. An instruction that encode() refuses in strict decoding is written as data.
std::string to_text(const Instruction& instruction);
/// Canonical text of the instruction, or the directive for bits that are none. assemble_line() of it gives the word.
std::string disassemble(Word word);

struct DisassembledLine {
  std::size_t offset;  // bytes from the start
  Word word;           // a torso may have any length from 1 to 7
  std::string text;
  bool is_instruction;
};
std::vector<DisassembledLine> disassemble(std::span<const std::uint8_t> bytes);

/// The list of all forms, for documents and `bitcube` listings.
struct FieldRow {
  std::string name;
  std::string bits;    // "[31:26]", or "[11:7][31:20]" of a split field
  bool fixed;          // part of mask and match
  std::string values;  // legal ones
  std::string meaning;
};
struct FormRow {
  std::string mnemonic;
  std::vector<std::string> syntaxes;  // canonical ones first
  int length;                         // bytes
  std::uint64_t mask;
  std::uint64_t match;
  int catalog_index;             // -1: not in the catalog
  std::string clause;            // "architecture 2.7"
  std::vector<FieldRow> fields;  // from the highest bit down
};
std::vector<FormRow> list_forms();

/// A field of a form, with what one word holds there.
struct FieldReading {
  FieldRow row;
  int width;           // bits
  std::uint64_t bits;  // of the word, those of a split field joined
  std::string value;   // as the assembler writes it; a number where it is not legal
  bool legal;          // in strict decoding
};
/// Every field of the form, from the highest bit down.
std::vector<FieldReading> read_fields(Form form, std::uint64_t word);

}  // namespace bitcube::isa
