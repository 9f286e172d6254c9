// How values of fields are written and read. Private to the isa room.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bitcube/isa/forms.hpp"

namespace bitcube::isa {

/// A value in canonical text. Precondition: it is legal in its field.
std::string write_value(Notation notation, std::int32_t value);

struct ReadValue {
  enum class Status : std::uint8_t {
    ok,
    other,  // not of this notation at all: another operand may be meant
    bad,    // of this notation, but wrong; `message` says how
  };
  Status status = Status::other;
  std::int64_t value = 0;
  std::string message{};
};
ReadValue read_value(Notation notation, std::string_view token);

/// What an operand of this field has to look like: "a register (zero, sp, ...)".
std::string describe(const FieldSpec& spec);

/// The legal values of a field: as numbers, "0..5, 12, 13", or as they are written, where they are few.
std::string legal_numbers(const FieldSpec& spec);
std::string legal_text(const FieldSpec& spec);

/// "[31:26]", or "[11:7][31:20]" of a split field.
std::string bits_text(const FieldSpec& spec);

/// A number as the assembler takes it: decimal, 0x, 0b, with a sign. `other` if it does not start like one.
struct ReadNumber {
  ReadValue::Status status = ReadValue::Status::other;
  bool negative = false;
  std::uint64_t magnitude = 0;
  std::string message{};
};
ReadNumber read_number(std::string_view token);

}  // namespace bitcube::isa
