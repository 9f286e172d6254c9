#include "bitcube/isa/instruction.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "notation.hpp"

namespace bitcube::isa {
namespace {

std::string title(const FormInfo& form) {
  const Operand& first = form.syntaxes[0].operands[0];
  const bool named = form.syntaxes[0].count != 0 && first.kind == Operand::Kind::literal;
  return named ? fmt::format("{} {}", form.mnemonic, first.text) : std::string(form.mnemonic);
}

/// How much it says about the form meant that this fixed field differs: the length and the group of a word are
/// seldom wrong by accident, a reserved bit is.
int weight(Field field) noexcept {
  switch (field) {
    case Field::opcode:
    case Field::w:
      return 64;
    case Field::opc1:
      return 32;
    case Field::unit:
      return 16;
    case Field::func:
    case Field::block:
      return 8;
    case Field::function:
    case Field::mode:
    case Field::lb:
      return 2;
    default:
      return 1;
  }
}

struct Distance {
  const FormInfo* form = nullptr;
  int weight = 0;
  int bits = 0;
  int fields = 0;
  const FieldSpec* field = nullptr;  // a differing one
};

Distance distance(const FormInfo& form, std::uint64_t word) noexcept {
  Distance d{.form = &form};
  for (std::size_t i = form.variable_count; i < form.field_count; ++i) {
    const FieldSpec& spec = form.fields[i];
    const std::uint64_t differing = (word ^ form.match) & spec.bits();
    if (differing == 0) continue;
    d.weight += weight(spec.field);
    d.bits += std::popcount(differing);
    ++d.fields;
    d.field = &spec;
  }
  return d;
}

/// The forms of the word's length, the nearest first.
std::vector<Distance> distances(Word word) {
  std::vector<Distance> out;
  for (const FormInfo& form : forms) {
    if (form.length == word.length) out.push_back(distance(form, word.bits));
  }
  std::stable_sort(out.begin(), out.end(), [](const Distance& a, const Distance& b) {
    return a.weight != b.weight ? a.weight < b.weight : a.bits < b.bits;
  });
  return out;
}

/// Forms that the word would be if only these bits of it were others, by the value of the bits.
std::vector<std::pair<std::uint32_t, const FormInfo*>> siblings(const FieldSpec& spec, Word word) {
  std::vector<std::pair<std::uint32_t, const FormInfo*>> out;
  const std::uint64_t bits = spec.bits();
  for (const FormInfo& form : forms) {
    if (form.length != word.length || (form.mask & bits) != bits) continue;
    if (((word.bits ^ form.match) & form.mask & ~bits) != 0) continue;
    out.emplace_back(static_cast<std::uint32_t>((form.match & bits) >> spec.ranges[0].low), &form);
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return out;
}

std::string hex(Word word) {
  return fmt::format("0x{:0{}X}", word.bits, 2 * word.length);
}

std::string removed_note(const FormInfo& nearest, Field field, std::int32_t found) {
  if (field != Field::function) return {};
  const auto unit = static_cast<Unit>(find_spec(nearest.form, Field::unit)->value);
  for (const RemovedFunction& r : removed_functions) {
    if (r.unit == unit && found >= r.first && found <= r.last) {
      return fmt::format("; Function {}, {}, was removed", found, r.what);
    }
  }
  return {};
}

Diagnosis diagnose_field(const Rejection& rejection) {
  const FormInfo& form = info_of(rejection.form);
  const FieldSpec& spec = *find_spec(form.form, rejection.field);
  Diagnosis d;
  d.nearest = rejection.form;
  d.field = rejection.field;
  d.found = spec.extract(rejection.word.bits);
  for (std::int64_t v = spec.smallest(); v <= spec.largest(); ++v) {
    if (spec.accepts(v)) d.legal.push_back(v);
  }
  d.text = fmt::format("{}: {} {} = {} in {}; legal: {} (architecture {})", hex(rejection.word), name_of(spec.field),
                       bits_text(spec), d.found, title(form), legal_numbers(spec), form.clause);
  return d;
}

Diagnosis diagnose_form(const Rejection& rejection) {
  const Word word = rejection.word;
  Diagnosis d;
  const std::vector<Distance> all = distances(word);
  if (all.empty()) {
    d.text = fmt::format("{}: there is no instruction of {} bits (architecture 2.1)", hex(word), 8 * word.length);
    return d;
  }
  const Distance& best = all.front();
  const FormInfo* const nearest = best.form;
  d.nearest = nearest->form;
  if (best.fields != 1) {
    std::string differing;
    for (std::size_t i = nearest->variable_count; i < nearest->field_count; ++i) {
      const FieldSpec& spec = nearest->fields[i];
      if (((word.bits ^ nearest->match) & spec.bits()) == 0) continue;
      differing += fmt::format("{}{} {} = {} instead of {}", differing.empty() ? "" : ", ", name_of(spec.field),
                               bits_text(spec), (word.bits & spec.bits()) >> spec.ranges[0].low, spec.value);
    }
    d.text = fmt::format("{}: no instruction; nearest is {}, with {} (architecture {})", hex(word), title(*nearest),
                         differing, nearest->clause);
    return d;
  }
  const FieldSpec& spec = *best.field;
  d.field = spec.field;
  d.found = spec.extract(word.bits);
  std::string legal;
  for (const auto& [value, form] : siblings(spec, word)) {
    if (!d.legal.empty() && d.legal.back() == value) continue;
    d.legal.push_back(value);
    legal += fmt::format("{}{}", legal.empty() ? "" : ", ", value);
    if (title(*form) != title(*nearest) || spec.field == Field::function) legal += fmt::format(" ({})", title(*form));
  }
  d.text = fmt::format("{}: {} {} = {} near {}; legal: {}{} (architecture {})", hex(word), name_of(spec.field),
                       bits_text(spec), d.found, title(*nearest), legal, removed_note(*nearest, spec.field, d.found),
                       nearest->clause);
  return d;
}

}  // namespace

Decoded decode(std::span<const std::uint8_t> bytes, DecodeOptions options) noexcept {
  Word word;
  word.length = static_cast<std::uint8_t>(std::min<std::size_t>(bytes.size(), 8));
  for (std::size_t i = word.length; i-- > 0;) word.bits = word.bits << 8 | bytes[i];
  const int length = word.length == 0 ? 2 : instruction_length(word.bits);
  if (word.length < length) {
    Decoded out;
    out.rejection = {Rejection::Reason::truncated, Form::count, Field::count, word};
    return out;
  }
  return decode(word.bits, options);
}

Expected<Word> encode(const Instruction& instruction, DecodeOptions options) {
  const FormInfo& form = instruction.info();
  for (std::size_t i = 0; i < form.variable_count; ++i) {
    const FieldSpec& spec = form.fields[i];
    const std::int32_t value = instruction[spec.field];
    if (spec.accepts(value, options.strict_reserved_bits)) continue;
    return Error{fmt::format("{}: {} {} = {}; legal: {} (architecture {})", title(form), name_of(spec.field),
                             bits_text(spec), value, legal_numbers(spec), form.clause)};
  }
  const Word word = Codec::encode(instruction);
  const Decoded decoded = decode(word.bits, options);
  if (decoded && decoded->form() == form.form) return word;
  // Only a more specific form can have taken the word; its own fields may reject it.
  const Form other = decoded ? decoded->form() : decoded.rejection.form;
  return Error{fmt::format("{}: these fields make {}, which is {}", title(form), hex(word), title(info_of(other)))};
}

Diagnosis diagnose(const Rejection& rejection) {
  switch (rejection.reason) {
    case Rejection::Reason::none:
      return {};
    case Rejection::Reason::field:
      return diagnose_field(rejection);
    case Rejection::Reason::no_form:
      return diagnose_form(rejection);
    case Rejection::Reason::truncated:
      break;
  }
  Diagnosis d;
  const Word word = rejection.word;
  d.text = word.length == 0 ? "no byte of an instruction is left"
                            : fmt::format("{}: {} of the {} bytes of an instruction (architecture 2.1)", hex(word),
                                          word.length, instruction_length(word.bits));
  return d;
}

std::string explain(const Rejection& rejection) {
  return diagnose(rejection).text;
}

std::vector<NearForm> nearest_forms(Word word, std::size_t most) {
  std::vector<NearForm> out;
  for (const Distance& d : distances(word)) {
    if (out.size() == most) break;
    out.push_back({d.form->form, (word.bits ^ d.form->match) & d.form->mask});
  }
  return out;
}

std::string title_of(Form form) {
  return title(info_of(form));
}

}  // namespace bitcube::isa
