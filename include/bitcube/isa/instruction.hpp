// One instruction: decoded fields, and the way from and to the word (architecture 2.1).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/isa/forms.hpp"

namespace bitcube::isa {

/// Bits as they stand in memory, little-endian, first byte lowest.
struct Word {
  std::uint64_t bits = 0;
  std::uint8_t length = 0;  // bytes
  friend constexpr bool operator==(const Word&, const Word&) = default;
};

namespace detail {

inline constexpr std::int16_t no_field = -1;
using FieldIndex = std::array<std::int16_t, static_cast<std::size_t>(Field::count)>;

/// Where in FormInfo::fields each field of each form is.
inline constexpr std::array<FieldIndex, forms.size()> field_index = []() {
  std::array<FieldIndex, forms.size()> table{};
  for (std::size_t i = 0; i < forms.size(); ++i) {
    table[i].fill(no_field);
    for (std::size_t j = forms[i].field_count; j-- > 0;) {
      table[i][static_cast<std::size_t>(forms[i].fields[j].field)] = static_cast<std::int16_t>(j);
    }
  }
  return table;
}();

}  // namespace detail

/// The field of a form, or nullptr if it has none of this name.
constexpr const FieldSpec* find_spec(Form form, Field field) noexcept {
  const int i = detail::field_index[static_cast<std::size_t>(form)][static_cast<std::size_t>(field)];
  return i < 0 ? nullptr : &info_of(form).fields[static_cast<std::size_t>(i)];
}

/// A form with the values of its fields. Made by decode() or by hand; a hand-made one is checked by encode().
class Instruction {
 public:
  constexpr Instruction() = default;
  /// All fields 0.
  constexpr explicit Instruction(Form form) noexcept : form_(form) {}

  constexpr Form form() const noexcept { return form_; }
  constexpr const FormInfo& info() const noexcept { return info_of(form_); }
  constexpr Command command() const noexcept { return info().command; }
  constexpr Operation operation() const noexcept { return info().operation; }
  /// Bytes.
  constexpr int length() const noexcept { return info().length; }

  constexpr bool has(Field field) const noexcept { return index_of(field) != detail::no_field; }
  /// The value of a field, fixed ones too (the LB of a B.DIM, the Function of a BSTART); 0 if the form has none.
  constexpr std::int32_t operator[](Field field) const noexcept {
    const int i = index_of(field);
    if (i < 0) return 0;
    if (i < info().variable_count) return values_[static_cast<std::size_t>(i)];
    return static_cast<std::int32_t>(info().fields[static_cast<std::size_t>(i)].value);
  }
  /// The data type, where the form has one.
  constexpr DataType data_type() const noexcept { return static_cast<DataType>((*this)[Field::data_type]); }
  constexpr bool flag(Field field) const noexcept { return (*this)[field] != 0; }
  /// The PE mask of B.IOT and B.IOS: bit 3-i belongs to PE i.
  constexpr unsigned pe_mask() const noexcept { return isa::pe_mask((*this)[Field::pe_mode]); }

  /// No effect where the form has no such field, or where it is fixed.
  constexpr Instruction& set(Field field, std::int32_t value) noexcept {
    const int i = index_of(field);
    if (i >= 0 && i < info().variable_count) values_[static_cast<std::size_t>(i)] = value;
    return *this;
  }

  friend constexpr bool operator==(const Instruction&, const Instruction&) = default;

 private:
  friend struct Codec;
  constexpr int index_of(Field field) const noexcept {
    return detail::field_index[static_cast<std::size_t>(form_)][static_cast<std::size_t>(field)];
  }

  Form form_ = Form::bstop;
  std::array<std::int32_t, FormInfo::max_variables> values_{};
};

/// architecture 9.4, item 7.
struct DecodeOptions {
  /// Bits that old instruction sets ignored, [8:7] of a B.IOT without destination, must be 0. Lenient decoding keeps
  /// them as DstTile, so that encoding is exact.
  bool strict_reserved_bits = true;
};

/// Why a word is no instruction; always the fault IllegalInstruction. explain() puts it into words.
struct Rejection {
  enum class Reason : std::uint8_t {
    none,
    truncated,  // fewer bytes than the length in the low nibble asks for
    no_form,    // no form has these fixed bits
    field,      // `form` matches, but `field` holds a value that is not legal there
  };
  Reason reason = Reason::none;
  Form form = Form::count;
  Field field = Field::count;
  Word word{};  // of a truncated instruction the bytes there are
};

/// An instruction, or why there is none; then `instruction` holds nothing of use.
struct Decoded {
  Instruction instruction;
  Rejection rejection;

  constexpr explicit operator bool() const noexcept { return rejection.reason == Rejection::Reason::none; }
  constexpr const Instruction& operator*() const noexcept { return instruction; }
  constexpr const Instruction* operator->() const noexcept { return &instruction; }
};

namespace detail {

/// The forms that fit each value of the low seven bits, most specific first.
struct Dispatch {
  static constexpr unsigned key_bits = 7;
  static constexpr std::size_t keys = std::size_t{1} << key_bits;
  static constexpr std::size_t capacity = 512;
  std::array<std::uint16_t, keys + 1> begin{};
  std::array<Form, capacity> order{};
};

constexpr Dispatch make_dispatch() {
  std::array<Form, forms.size()> sorted{};
  for (std::size_t i = 0; i < sorted.size(); ++i) sorted[i] = forms[i].form;
  std::sort(sorted.begin(), sorted.end(), [](Form a, Form b) {
    const int bits_a = std::popcount(info_of(a).mask);
    const int bits_b = std::popcount(info_of(b).mask);
    return bits_a != bits_b ? bits_a > bits_b : a < b;
  });
  Dispatch d;
  std::size_t n = 0;
  for (std::size_t key = 0; key < Dispatch::keys; ++key) {
    d.begin[key] = static_cast<std::uint16_t>(n);
    for (const Form form : sorted) {
      const FormInfo& f = info_of(form);
      if (((key ^ f.match) & f.mask & (Dispatch::keys - 1)) == 0) d.order[n++] = form;
    }
  }
  d.begin[Dispatch::keys] = static_cast<std::uint16_t>(n);
  return d;
}
inline constexpr Dispatch dispatch = make_dispatch();

}  // namespace detail

/// The parts of decode and encode that see the values of an Instruction.
struct Codec {
  static constexpr Decoded decode(std::uint64_t bits, DecodeOptions options) noexcept {
    const int length = instruction_length(bits);
    const std::uint64_t word = bits & (~std::uint64_t{0} >> (64 - 8 * length));
    Decoded out;
    const auto key = static_cast<std::size_t>(word & (detail::Dispatch::keys - 1));
    for (std::size_t i = detail::dispatch.begin[key]; i < detail::dispatch.begin[key + 1]; ++i) {
      const FormInfo& form = info_of(detail::dispatch.order[i]);
      if (!form.matches(word)) continue;
      out.instruction.form_ = form.form;
      for (std::size_t j = 0; j < form.variable_count; ++j) {
        const FieldSpec& spec = form.fields[j];
        const std::int32_t value = spec.extract(word);
        if (!spec.accepts(value, options.strict_reserved_bits)) {
          out.rejection = {Rejection::Reason::field, form.form, spec.field, {word, form.length}};
          return out;
        }
        out.instruction.values_[j] = value;
      }
      return out;
    }
    out.rejection = {Rejection::Reason::no_form, Form::count, Field::count, {word, static_cast<std::uint8_t>(length)}};
    return out;
  }

  /// Precondition: the values fit their fields.
  static constexpr Word encode(const Instruction& instruction) noexcept {
    const FormInfo& form = instruction.info();
    std::uint64_t word = form.match;
    for (std::size_t j = 0; j < form.variable_count; ++j) word |= form.fields[j].place(instruction.values_[j]);
    return {word, form.length};
  }
};

/// architecture 2.1: the most specific form whose fixed bits match, if every field holds a legal value. The low nibble
/// says how many of the bits belong to the instruction; the others are ignored.
constexpr Decoded decode(std::uint64_t bits, DecodeOptions options = {}) noexcept {
  return Codec::decode(bits, options);
}

/// The instruction at the front of some memory.
Decoded decode(std::span<const std::uint8_t> bytes, DecodeOptions options = {}) noexcept;

/// The word of an instruction; the exact inverse of decode. Fails where a field holds a value that is not legal, or
/// where the values belong to a more specific form (BSTART.TEPL 0, 27 is BSTART.VEC TCVT).
Expected<Word> encode(const Instruction& instruction, DecodeOptions options = {});

/// One sentence: the form that came nearest, the field, what was found and what would be legal, and the clause.
std::string explain(const Rejection& rejection);

/// explain(), in parts.
struct Diagnosis {
  Form nearest = Form::count;  // count: no form has this length
  Field field = Field::count;  // count: more than this one field is wrong, or none is
  std::int32_t found = 0;
  std::vector<std::int64_t> legal;  // in ascending order
  std::string text;
};
Diagnosis diagnose(const Rejection& rejection);

/// A form that a word would be if these bits of it were others.
struct NearForm {
  Form form = Form::count;
  std::uint64_t differing = 0;
};
/// The forms of the word's length, at most so many, the nearest first: that is the one diagnose() names. Fixed bits
/// count by what they say of the form meant: length and group of commands most.
std::vector<NearForm> nearest_forms(Word word, std::size_t most);

/// The mnemonic with the first word where forms of a mnemonic differ in that: "BSTART.SFU TQUANT".
std::string title_of(Form form);

}  // namespace bitcube::isa
