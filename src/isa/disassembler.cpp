#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bitcube/isa/text.hpp"
#include "notation.hpp"

namespace bitcube::isa {
namespace {

/// True if the syntax mentions every field that is not 0.
bool can_write(const Syntax& syntax, const Instruction& instruction) noexcept {
  const FormInfo& form = instruction.info();
  for (std::size_t i = 0; i < form.variable_count; ++i) {
    const Field field = form.fields[i].field;
    if (instruction[field] == 0) continue;
    const auto* const end = syntax.operands.begin() + syntax.count;
    const bool mentioned = std::any_of(syntax.operands.begin(), end, [field](const Operand& o) {
      return o.kind != Operand::Kind::literal && (o.field == field || o.size == field);
    });
    if (!mentioned) return false;
  }
  return true;
}

/// Elided operands are written if they are not 0; elided values also if a later one is, for they have no key.
bool is_written(const Syntax& syntax, std::size_t i, const Instruction& instruction) noexcept {
  const Operand& operand = syntax.operands[i];
  if (operand.kind == Operand::Kind::mark) return instruction.flag(operand.field);
  if (operand.presence != Operand::Presence::elided || instruction.flag(operand.field)) return true;
  if (operand.kind != Operand::Kind::value) return false;
  for (std::size_t j = i + 1; j < syntax.count; ++j) {
    const Operand& later = syntax.operands[j];
    if (later.kind == Operand::Kind::value && instruction.flag(later.field)) return true;
  }
  return false;
}

std::string write_field(const Instruction& instruction, Field field) {
  return write_value(info_of(field).notation, instruction[field]);
}

std::string write_operand(const Operand& operand, const Instruction& instruction) {
  switch (operand.kind) {
    case Operand::Kind::literal:
    case Operand::Kind::mark:
      return std::string(operand.text);
    case Operand::Kind::value:
      return write_field(instruction, operand.field);
    case Operand::Kind::keyed:
      return fmt::format("{}={}", operand.text, write_field(instruction, operand.field));
    case Operand::Kind::destination:
      break;
  }
  std::string text = "->" + write_field(instruction, operand.field);
  if (operand.size != Field::reserved) text += fmt::format("<{}>", write_field(instruction, operand.size));
  return text;
}

std::string write_instruction(const Instruction& instruction) {
  const FormInfo& form = instruction.info();
  for (std::size_t s = 0; s < form.syntax_count; ++s) {
    const Syntax& syntax = form.syntaxes[s];
    if (!can_write(syntax, instruction)) continue;
    std::string operands;
    for (std::size_t i = 0; i < syntax.count; ++i) {
      if (!is_written(syntax, i, instruction)) continue;
      if (!operands.empty()) operands += ", ";
      operands += write_operand(syntax.operands[i], instruction);
    }
    if (syntax.braces) operands = fmt::format("{{{}}}", operands);
    return fmt::format("{}{}{}", form.mnemonic, operands.empty() ? "" : " ", operands);
  }
  return {};
}

std::string write_data(Word word) {
  switch (word.length) {
    case 2:
      return fmt::format(".half 0x{:04X}", word.bits);
    case 4:
      return fmt::format(".word 0x{:08X}", word.bits);
    case 6:
      return fmt::format(".half 0x{:04X}, 0x{:04X}, 0x{:04X}", word.bits & 0xFFFF, word.bits >> 16 & 0xFFFF,
                         word.bits >> 32);
    case 8:
      return fmt::format(".dword 0x{:016X}", word.bits);
    default:
      break;
  }
  std::string text = ".byte";
  for (int i = 0; i < word.length; ++i) {
    text += fmt::format("{} 0x{:02X}", i == 0 ? "" : ",", word.bits >> (8 * i) & 0xFF);
  }
  return text;
}

/// The name of a field, or what it always holds.
std::string field_shape(const FormInfo& form, Field field) {
  const FieldSpec& spec = *find_spec(form.form, field);
  if (spec.constraint != Constraint::fixed) return std::string(name_of(field));
  return write_value(info_of(field).notation, static_cast<std::int32_t>(spec.value));
}

std::string shape(const FormInfo& form, const Operand& operand) {
  switch (operand.kind) {
    case Operand::Kind::literal:
    case Operand::Kind::mark:
      return std::string(operand.text);
    case Operand::Kind::value:
      return field_shape(form, operand.field);
    case Operand::Kind::keyed:
      return fmt::format("{}={}", operand.text, field_shape(form, operand.field));
    case Operand::Kind::destination:
      break;
  }
  std::string text = "->" + field_shape(form, operand.field);
  if (operand.size != Field::reserved) text += fmt::format("<{}>", field_shape(form, operand.size));
  return text;
}

std::string shape(const FormInfo& form, const Syntax& syntax) {
  std::string text(form.mnemonic);
  std::string_view separator = syntax.braces ? " {" : " ";
  for (std::size_t i = 0; i < syntax.count; ++i) {
    const Operand& operand = syntax.operands[i];
    const bool optional = operand.presence != Operand::Presence::required;
    const bool leads = i == 0 && i + 1 < syntax.count && syntax.operands[1].presence == Operand::Presence::required;
    if (optional && leads) {
      text += fmt::format("{}[{},]", separator, shape(form, operand));  // its comma goes with it
      separator = " ";
      continue;
    }
    text += optional && i == 0 ? fmt::format("{}[{}]", separator, shape(form, operand))
            : optional         ? fmt::format("[{}{}]", separator, shape(form, operand))
                               : fmt::format("{}{}", separator, shape(form, operand));
    separator = ", ";
  }
  text += syntax.braces ? "}" : "";
  return text;
}

std::vector<FieldSpec> from_the_top(const FormInfo& form) {
  std::vector<FieldSpec> fields(form.fields.begin(), form.fields.begin() + form.field_count);
  std::sort(fields.begin(), fields.end(),
            [](const FieldSpec& a, const FieldSpec& b) { return a.ranges[0].high > b.ranges[0].high; });
  return fields;
}

FieldRow row_of(const FieldSpec& spec) {
  const FieldInfo& info = info_of(spec.field);
  const bool fixed = spec.constraint == Constraint::fixed;
  const bool number = fixed || spec.constraint == Constraint::reserved;
  return {std::string(info.name), bits_text(spec), fixed, number ? legal_numbers(spec) : legal_text(spec),
          std::string(info.meaning)};
}

}  // namespace

std::string to_text(const Instruction& instruction) {
  return encode(instruction) ? write_instruction(instruction) : write_data(Codec::encode(instruction));
}

std::string disassemble(Word word) {
  const std::array<std::uint8_t, 8> bytes{
      static_cast<std::uint8_t>(word.bits),       static_cast<std::uint8_t>(word.bits >> 8),
      static_cast<std::uint8_t>(word.bits >> 16), static_cast<std::uint8_t>(word.bits >> 24),
      static_cast<std::uint8_t>(word.bits >> 32), static_cast<std::uint8_t>(word.bits >> 40),
      static_cast<std::uint8_t>(word.bits >> 48), static_cast<std::uint8_t>(word.bits >> 56)};
  const Decoded decoded = decode(std::span(bytes).first(std::min<std::size_t>(word.length, 8)));
  return decoded && decoded->length() == word.length ? write_instruction(*decoded) : write_data(word);
}

std::vector<DisassembledLine> disassemble(std::span<const std::uint8_t> bytes) {
  std::vector<DisassembledLine> lines;
  for (std::size_t offset = 0; offset < bytes.size();) {
    const Decoded decoded = decode(bytes.subspan(offset));
    DisassembledLine line{offset, decoded.rejection.word, {}, static_cast<bool>(decoded)};
    if (decoded) {
      line.word = Codec::encode(*decoded);
      line.text = write_instruction(*decoded);
    } else {
      line.text = write_data(line.word);
    }
    offset += line.word.length;
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<FormRow> list_forms() {
  std::vector<FormRow> rows;
  for (const FormInfo& form : forms) {
    FormRow row{std::string(form.mnemonic),
                {},
                form.length,
                form.mask,
                form.match,
                form.catalog_index,
                fmt::format("architecture {}", form.clause),
                {}};
    for (std::size_t i = 0; i < form.syntax_count; ++i) row.syntaxes.push_back(shape(form, form.syntaxes[i]));
    for (const FieldSpec& spec : from_the_top(form)) row.fields.push_back(row_of(spec));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<FieldReading> read_fields(Form form, std::uint64_t word) {
  std::vector<FieldReading> out;
  for (const FieldSpec& spec : from_the_top(info_of(form))) {
    FieldSpec plain = spec;
    plain.is_signed = false;
    const std::int32_t value = spec.extract(word);
    const bool legal = spec.accepts(value);
    const Notation notation = info_of(spec.field).notation;
    out.push_back({row_of(spec), spec.width(), static_cast<std::uint32_t>(plain.extract(word)),
                   legal ? write_value(notation, value) : fmt::format("{}", value), legal});
  }
  return out;
}

}  // namespace bitcube::isa
