#include "bitcube/explain/word.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "bitcube/isa/instruction.hpp"
#include "bitcube/isa/text.hpp"
#include "guarded.hpp"

namespace bitcube {
namespace {

using isa::Decoded;
using isa::FormInfo;
using isa::Rejection;
using isa::Word;

constexpr std::size_t near_forms = 5;

std::string hex(std::uint64_t bits, int length) {
  return fmt::format("0x{:0{}X}", bits, 2 * length);
}

/// "[14:12]", "[7]", from the highest down.
std::string bit_ranges(std::uint64_t bits) {
  std::string text;
  while (bits != 0) {
    const int high = 63 - std::countl_zero(bits);
    int low = high;
    while (low > 0 && ((bits >> (low - 1)) & 1) != 0) --low;
    text += high == low ? fmt::format("[{}]", high) : fmt::format("[{}:{}]", high, low);
    bits &= (std::uint64_t{1} << low) - 1;
  }
  return text;
}

Section length_section(Word word) {
  const auto nibble = static_cast<unsigned>(word.bits & 15);
  Section section{.title = "Length", .clause = "architecture 2.1"};
  section.facts.push_back({"low nibble", fmt::format("{:04b}", nibble), fmt::format("{} bits", 8 * word.length)});
  section.facts.push_back({"in memory", "", {}});
  std::string& bytes = section.facts.back().value;
  for (int i = 0; i < word.length; ++i) {
    bytes += fmt::format("{}{:02X}", i == 0 ? "" : " ", (word.bits >> (8 * i)) & 0xFF);
  }
  section.facts.back().remark = "lowest byte first";
  return section;
}

Section form_section(const FormInfo& form, Word word, bool matches) {
  Section section{.title = "Form: " + isa::title_of(form.form), .clause = fmt::format("architecture {}", form.clause)};
  section.facts.push_back({"mask", hex(form.mask, form.length), "the bits that tell the form"});
  section.facts.push_back({"found", hex(word.bits & form.mask, form.length)});
  section.facts.push_back({"wanted", hex(form.match, form.length), matches ? "all agree" : ""});
  for (const isa::FormRow& row : isa::list_forms()) {
    if (row.mask != form.mask || row.match != form.match || row.length != form.length) continue;
    for (const std::string& syntax : row.syntaxes) section.facts.push_back({"syntax", syntax});
    if (row.catalog_index >= 0) {
      section.facts.push_back({"catalog", fmt::format("row {}", row.catalog_index), "architecture 2.15"});
    }
  }
  return section;
}

Table fields_table(const std::vector<isa::FieldReading>& fields) {
  Table table{.header = {"bits", "field", "found", "value", "meaning"}};
  for (const isa::FieldReading& field : fields) {
    table.rows.push_back({field.row.bits, field.row.name, fmt::format("{:0{}b}", field.bits, field.width), field.value,
                          field.row.fixed ? "fixed: tells the form" : field.row.meaning});
    if (!field.legal) table.rows.back().back() = "NOT LEGAL; " + field.row.values;
  }
  return table;
}

/// The value nearest to what was found.
std::int64_t nearest_value(const isa::Diagnosis& diagnosis) {
  std::int64_t best = diagnosis.legal.front();
  for (const std::int64_t v : diagnosis.legal) {
    if (std::abs(v - diagnosis.found) < std::abs(best - diagnosis.found)) best = v;
  }
  return best;
}

Section illegal_field_section(const Rejection& rejection, const isa::Diagnosis& diagnosis) {
  const FormInfo& form = isa::info_of(rejection.form);
  const isa::FieldSpec& spec = *isa::find_spec(form.form, rejection.field);
  Section section{.title = "Why it is no instruction", .clause = fmt::format("architecture {}", form.clause)};
  section.remarks.push_back(diagnosis.text);
  const std::int64_t value = nearest_value(diagnosis);
  const std::uint64_t repaired = (rejection.word.bits & ~spec.bits()) | spec.place(static_cast<std::int32_t>(value));
  section.facts.push_back({"found", fmt::format("{} = {}", isa::name_of(spec.field), diagnosis.found)});
  section.facts.push_back(
      {"nearest legal", fmt::format("{}", value),
       fmt::format("then {}: {}", hex(repaired, form.length), isa::disassemble(Word{repaired, form.length}))});
  if (isa::decode(rejection.word.bits, {.strict_reserved_bits = false})) {
    section.remarks.emplace_back("Lenient decoding (architecture 9.4) ignores these bits and takes the word.");
  }
  return section;
}

Section no_form_section(const Rejection& rejection, const isa::Diagnosis& diagnosis) {
  const Word word = rejection.word;
  Section section{.title = "Why it is no instruction", .clause = "architecture 2.1"};
  section.remarks.push_back(diagnosis.text);
  Table table{.title = "the nearest forms", .header = {"form", "bits that differ", "with them changed", "that is"}};
  for (const isa::NearForm& near : isa::nearest_forms(word, near_forms)) {
    const std::uint64_t changed = word.bits ^ near.differing;
    table.rows.push_back({isa::title_of(near.form), bit_ranges(near.differing), hex(changed, word.length),
                          isa::disassemble(Word{changed, word.length})});
  }
  if (!table.rows.empty()) section.tables.push_back(std::move(table));
  return section;
}

Expected<Document> explain_bits(std::uint64_t bits) {
  const int length = isa::instruction_length(bits);
  if (length < 8 && (bits >> (8 * length)) != 0) {
    return Error{
        fmt::format("0x{:X}: the low nibble {:04b} says {} bits (architecture 2.1), but higher bits are set; "
                    "explain them as words of their own",
                    bits, bits & 15, 8 * length)};
  }
  const Word word{bits, static_cast<std::uint8_t>(length)};
  const Decoded decoded = isa::decode(bits);
  Document document{.title = fmt::format("The instruction word {}", hex(bits, length))};
  document.sections.push_back(length_section(word));
  const std::string text = isa::disassemble(word);
  if (decoded) {
    const FormInfo& form = decoded->info();
    document.sections.push_back(form_section(form, word, true));
    const auto fields = isa::read_fields(form.form, bits);
    document.sections.push_back({.title = "Fields", .clause = fmt::format("architecture {}", form.clause)});
    document.sections.back().tables.push_back(fields_table(fields));
    const Expected<Word> again = isa::encode(*decoded);
    const auto assembled = isa::assemble_line(text);
    if (!again || *again != word || !assembled || assembled->size() != 1 || assembled->front() != word) {
      return Error{fmt::format("internal error: {} is '{}', which assembles to another word", hex(bits, length), text)};
    }
    document.results.push_back({"instruction", isa::title_of(form.form)});
  } else {
    const isa::Diagnosis diagnosis = isa::diagnose(decoded.rejection);
    const bool field = decoded.rejection.reason == Rejection::Reason::field;
    if (diagnosis.nearest != isa::Form::count) {
      const FormInfo& form = isa::info_of(diagnosis.nearest);
      document.sections.push_back(form_section(form, word, field));
      if (!field) document.sections.back().title = "Nearest form: " + isa::title_of(form.form);
      document.sections.push_back({.title = "Fields, as this form reads them"});
      document.sections.back().tables.push_back(fields_table(isa::read_fields(form.form, bits)));
    }
    document.sections.push_back(field ? illegal_field_section(decoded.rejection, diagnosis)
                                      : no_form_section(decoded.rejection, diagnosis));
    document.results.push_back({"fault", "IllegalInstruction", "if it is executed"});
  }
  document.results.push_back({"text", text});
  return document;
}

}  // namespace

Expected<Document> explain_word(std::uint64_t bits) {
  return guarded("explain", [&] { return explain_bits(bits); });
}

}  // namespace bitcube
