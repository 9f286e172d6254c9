// One row of a vector file: its given fields as values, and its other fields compared with what follows from them - or,
// when a file is being written, filled in. So a form is one function, which checks and writes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/numeric/convert.hpp"
#include "bitcube/verify/conform.hpp"

namespace bitcube::verify {

inline const ConversionProfile& asl_profile() noexcept {
  return *find_conversion_profile("asl");
}

/// Pieces of a line between commas. The vector is reused from row to row.
void split_fields(std::string_view line, std::vector<std::string_view>& fields);

/// 0x and 16 digits.
std::string word_text(uint64 word);
/// What a 64-bit word of a vector file holds for a lane: signed types are sign-extended.
uint64 extended(const Format& f, uint64 lane) noexcept;
/// Values of the digits that a text consists of, `digits` for each word; false if it is no such text.
bool parse_digits(std::string_view text, std::size_t digits, std::vector<uint64>& words);
/// The inverse, in lower case.
void append_digits(std::string& text, uint64 word, std::size_t digits);

class Record {
 public:
  Record(const VectorForm& form, const ConversionProfile& profile);

  const VectorForm& form() const noexcept { return form_; }
  const std::vector<std::string_view>& columns() const noexcept { return columns_; }
  /// Profile of the run, for forms without a column of that name.
  const ConversionProfile& profile() const noexcept { return profile_; }

  // ---- The row

  /// A row to check: a line with one field per column. False, and a fault, if their numbers differ.
  bool start(std::string_view line);
  /// A row to write: the given fields are set, the others follow.
  void start(const std::vector<std::string>& inputs);
  bool writing() const noexcept { return writing_; }
  /// Digits of the words that expect_encoded() writes, if not 16.
  void set_word_digits(std::size_t digits) noexcept { word_digits_ = digits; }
  /// The complete line of a row that was written.
  void append_line(std::string& text) const;

  // ---- Given fields. What is not of its kind is a fault, and some value of the kind is returned.

  std::string_view text(std::size_t column) const noexcept { return fields_[column]; }
  /// Hexadecimal with 0x, or decimal, of at most 64 bits.
  uint64 word(std::size_t column);
  int64 integer(std::size_t column, int64 least, int64 largest);
  bool truth(std::size_t column);
  const Format& format(std::size_t column);
  Rounding rounding(std::size_t column);
  const ConversionProfile& conversion_profile(std::size_t column);
  /// The row of a table by its name.
  template <typename Table, typename Find>
  const typename Table::value_type& named(std::size_t column, const Table& table, const Find& find) {
    const auto* found = find(fields_[column]);
    if (found != nullptr) return *found;
    std::string names;
    for (const auto& row : table) names.append(names.empty() ? "" : ", ").append(row.name);
    fault(column, "one of " + names);
    return *table.begin();
  }
  /// Words of so many hexadecimal digits each, without 0x.
  void digits(std::size_t column, std::size_t count, std::vector<uint64>& words);

  /// The field is not what it must be. The first fault of a row counts.
  void fault(std::size_t column, std::string expected);
  bool malformed() const noexcept { return fault_.has_value(); }

  // ---- Fields that follow

  /// Compared in the low `bits` bits; written in full.
  void expect_word(std::size_t column, uint64 word, int bits = 64);
  void expect_flags(std::size_t column, Flags flags);
  void expect_integer(std::size_t column, int64 value);
  void expect_truth(std::size_t column, bool value) { expect_integer(column, value ? 1 : 0); }
  void expect_text(std::size_t column, std::string_view value);
  /// Hexadecimal digits without 0x, in any case.
  void expect_digits(std::size_t column, std::string_view value);
  /// A word whose text has a width of its own.
  void expect_short_word(std::size_t column, uint64 word, std::size_t digits);

  /// A code of `f` and its flags. `answer(profile)` computes them; which profile counts, and which differences are
  /// known ones, is decided here. Without a column of flags, `flags` is npos.
  template <typename Answer>
  void expect_encoded(std::size_t bits, std::size_t flags, const Format& f, const Answer& answer) {
    const Encoded got = answer(profile_);
    if (writing_) {
      write_encoded(bits, flags, f, got);
      return;
    }
    const Encoded want = expected_encoded(bits, flags, f);
    if (malformed()) return;
    if (!form_.takes_profile) {
      if (want != got) differ_encoded(bits, flags, f, want, got);
      return;
    }
    // Under `asl` a row may be right and yet known to differ from the documents, that is from profile `pto`. Who asks
    // for another profile wants its results, so there every difference is one.
    if (want == got) {
      if (&profile_ == &asl_profile()) known_ = rule_of(want, answer(pto_profile));
      return;
    }
    differ_encoded(bits, flags, f, want, got);
    for (const ConversionProfile& other : conversion_profiles) {
      if (answer(other) == want) hint_ = other.name;
    }
  }

  static constexpr std::size_t npos = static_cast<std::size_t>(-1);

  /// The row is known to differ.
  void known(KnownRule rule) noexcept { known_ = rule; }

  // ---- What came out

  bool differs() const noexcept { return !differences_.empty(); }
  /// Whether this column is among the differences.
  bool differs(std::size_t column) const noexcept;
  /// Whether a compared code is right and only its flags are not.
  bool differs_in_flags_only(std::size_t bits) const noexcept { return differs() && !differs(bits); }
  /// Names the clause that decides; only needed where differs().
  void decided_by(std::string clause) { rule_ = std::move(clause); }

  std::optional<KnownRule> known_rule() const noexcept { return known_; }
  Mismatch mismatch(uint64 row) const;
  /// "column sat: found '2', expected 0 or 1".
  std::string fault_text() const { return fault_.value_or(std::string()); }

 private:
  void differ(std::size_t column, std::string expected, std::string got);
  void write(std::size_t column, std::string text);
  std::string encoded_text(const Format& f, uint64 bits) const;
  void write_encoded(std::size_t bits, std::size_t flags, const Format& f, const Encoded& e);
  Encoded expected_encoded(std::size_t bits, std::size_t flags, const Format& f);
  void differ_encoded(std::size_t bits, std::size_t flags, const Format& f, const Encoded& want, const Encoded& got);
  /// Why two profiles give different results, or nothing if they do not or it is not known.
  static std::optional<KnownRule> rule_of(const Encoded& a, const Encoded& b) noexcept;

  const VectorForm& form_;
  const ConversionProfile& profile_;
  std::vector<std::string_view> columns_;
  std::vector<std::string_view> fields_;
  std::vector<std::string> written_;
  std::vector<std::size_t> different_columns_;
  std::vector<Difference> differences_;
  std::optional<KnownRule> known_;
  std::optional<std::string> fault_;
  std::string rule_;
  std::string_view hint_;
  std::size_t word_digits_ = 16;
  bool writing_ = false;
};

}  // namespace bitcube::verify
