#include "record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace bitcube::verify {
namespace {

constexpr std::size_t kShown = 60;  // characters of a faulty field that a message repeats

bool parse_word(std::string_view text, uint64& word) noexcept {
  const bool hexadecimal = text.size() > 2 && text[0] == '0' && ascii_lower(text[1]) == 'x';
  if (hexadecimal) text.remove_prefix(2);
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, word, hexadecimal ? 16 : 10);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

bool parse_integer(std::string_view text, int64& value) noexcept {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

int digit_value(char c) noexcept {
  const char lower = ascii_lower(c);
  if (lower >= '0' && lower <= '9') return lower - '0';
  if (lower >= 'a' && lower <= 'f') return lower - 'a' + 10;
  return -1;
}

std::string flags_digits(Flags flags) {
  return fmt::format("0x{:02x}", static_cast<unsigned>(flags));
}

}  // namespace

void split_fields(std::string_view line, std::vector<std::string_view>& fields) {
  fields.clear();
  for (;;) {
    const std::size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return;
    line.remove_prefix(comma + 1);
  }
}

std::string word_text(uint64 word) {
  return fmt::format("0x{:016x}", word);
}

uint64 extended(const Format& f, uint64 lane) noexcept {
  const bool is_signed = f.kind == Kind::signed_integer;
  return is_signed ? static_cast<uint64>(sign_extend(lane, f.lane_bits)) : lane & low_mask(f.lane_bits);
}

bool parse_digits(std::string_view text, std::size_t digits, std::vector<uint64>& words) {
  words.clear();
  if (text.empty() || text.size() % digits != 0) return false;
  for (std::size_t i = 0; i < text.size(); i += digits) {
    uint64 word = 0;
    for (std::size_t j = 0; j < digits; ++j) {
      const int value = digit_value(text[i + j]);
      if (value < 0) return false;
      word = word << 4 | static_cast<uint64>(value);
    }
    words.push_back(word);
  }
  return true;
}

void append_digits(std::string& text, uint64 word, std::size_t digits) {
  for (std::size_t i = digits; i-- > 0;) text.push_back("0123456789abcdef"[(word >> (4 * i)) & 0xF]);
}

Record::Record(const VectorForm& form, const ConversionProfile& profile) : form_(form), profile_(profile) {
  split_fields(form.columns, columns_);
  written_.resize(columns_.size());
  fields_.resize(columns_.size());
}

bool Record::start(std::string_view line) {
  writing_ = false;
  different_columns_.clear();
  differences_.clear();
  known_.reset();
  fault_.reset();
  rule_.clear();
  hint_ = {};
  split_fields(line, fields_);
  if (form_.open_end && !line.empty()) {
    while (fields_.size() > columns_.size() && fields_.back().empty()) fields_.pop_back();
    if (fields_.size() < columns_.size()) fields_.resize(columns_.size());
  }
  if (fields_.size() == columns_.size()) return true;
  fault_ = line.empty()
               ? std::string("empty line, expected a row")
               : fmt::format("found {} fields, expected {}: {}", fields_.size(), columns_.size(), form_.columns);
  fields_.resize(columns_.size());
  return false;
}

void Record::start(const std::vector<std::string>& inputs) {
  start(std::string_view());
  fault_.reset();
  writing_ = true;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    written_[i] = i < inputs.size() ? inputs[i] : std::string();
    fields_[i] = written_[i];
  }
}

void Record::append_line(std::string& text) const {
  for (std::size_t i = 0; i < written_.size(); ++i) {
    if (i != 0) text.push_back(',');
    text += written_[i];
  }
  text.push_back('\n');
}

uint64 Record::word(std::size_t column) {
  uint64 value = 0;
  if (!parse_word(fields_[column], value)) {
    fault(column, "a word, such as 0x0000000000003c00");
    value = 0;
  }
  return value;
}

int64 Record::integer(std::size_t column, int64 least, int64 largest) {
  int64 value = 0;
  if (parse_integer(fields_[column], value) && value >= least && value <= largest) return value;
  fault(column, fmt::format("a decimal number from {} to {}", least, largest));
  return least;
}

bool Record::truth(std::size_t column) {
  if (fields_[column] != "0" && fields_[column] != "1") fault(column, "0 or 1");
  return fields_[column] == "1";
}

const Format& Record::format(std::size_t column) {
  return named(column, formats, [](std::string_view name) { return find_format(name); });
}

Rounding Record::rounding(std::size_t column) {
  return named(column, roundings, find_rounding).mode;
}

const ConversionProfile& Record::conversion_profile(std::size_t column) {
  return named(column, conversion_profiles, find_conversion_profile);
}

void Record::digits(std::size_t column, std::size_t count, std::vector<uint64>& words) {
  if (!parse_digits(fields_[column], count, words)) {
    words.clear();
    fault(column, fmt::format("hexadecimal digits, {} for each lane", count));
  }
}

void Record::fault(std::size_t column, std::string expected) {
  if (fault_) return;
  const std::string_view found = fields_[column];
  fault_ = fmt::format("column {}: found '{}{}', expected {}", columns_[column], found.substr(0, kShown),
                       found.size() > kShown ? "..." : "", expected);
}

void Record::expect_word(std::size_t column, uint64 word, int bits) {
  if (writing_) return write(column, word_text(word));
  const uint64 expected = this->word(column);
  if (((expected ^ word) & low_mask(bits)) == 0) return;
  differ(column, std::string(fields_[column]), word_text(word));
}

void Record::expect_short_word(std::size_t column, uint64 word, std::size_t digits) {
  const std::string got = fmt::format("0x{:0{}x}", word, digits);
  if (writing_) return write(column, got);
  if (this->word(column) != word) differ(column, std::string(fields_[column]), got);
}

void Record::expect_flags(std::size_t column, Flags flags) {
  if (writing_) return write(column, flags_digits(flags));
  const uint64 expected = word(column);
  if (expected > 0x1F) fault(column, "five status bits, 0x00 to 0x1f");
  if (expected != static_cast<uint64>(flags)) differ(column, std::string(fields_[column]), flags_digits(flags));
}

void Record::expect_integer(std::size_t column, int64 value) {
  if (writing_) return write(column, fmt::format("{}", value));
  int64 expected = 0;
  if (!parse_integer(fields_[column], expected)) return fault(column, "a decimal number");
  if (expected != value) differ(column, std::string(fields_[column]), fmt::format("{}", value));
}

void Record::expect_text(std::size_t column, std::string_view value) {
  if (writing_) return write(column, std::string(value));
  if (fields_[column] != value) differ(column, std::string(fields_[column]), std::string(value));
}

void Record::expect_digits(std::size_t column, std::string_view value) {
  if (writing_) return write(column, std::string(value));
  const std::string_view found = fields_[column];
  if (!std::all_of(found.begin(), found.end(), [](char c) { return digit_value(c) >= 0; })) {
    return fault(column, "hexadecimal digits");
  }
  if (found.size() != value.size()) return fault(column, fmt::format("{} hexadecimal digits", value.size()));
  if (!equal_ignoring_case(found, value)) differ(column, std::string(found), std::string(value));
}

bool Record::differs(std::size_t column) const noexcept {
  return std::find(different_columns_.begin(), different_columns_.end(), column) != different_columns_.end();
}

void Record::differ(std::size_t column, std::string expected, std::string got) {
  different_columns_.push_back(column);
  differences_.push_back({std::string(columns_[column]), std::move(expected), std::move(got)});
}

void Record::write(std::size_t column, std::string text) {
  written_[column] = std::move(text);
  fields_[column] = written_[column];
}

std::string Record::encoded_text(const Format& f, uint64 bits) const {
  const uint64 word = extended(f, bits) & low_mask(static_cast<int>(4 * word_digits_));
  return fmt::format("0x{:0{}x}", word, word_digits_);
}

void Record::write_encoded(std::size_t bits, std::size_t flags, const Format& f, const Encoded& e) {
  write(bits, encoded_text(f, e.bits));
  if (flags != npos) write(flags, flags_digits(e.flags));
}

Encoded Record::expected_encoded(std::size_t bits, std::size_t flags, const Format& f) {
  Encoded want;
  want.bits = word(bits) & low_mask(f.lane_bits);
  if (flags != npos) {
    const uint64 word = this->word(flags);
    if (word > 0x1F) fault(flags, "five status bits, 0x00 to 0x1f");
    want.flags = static_cast<Flags>(word & 0x1F);
  }
  return want;
}

void Record::differ_encoded(std::size_t bits, std::size_t flags, const Format& f, const Encoded& want,
                            const Encoded& got) {
  if (want.bits != got.bits) differ(bits, std::string(fields_[bits]), encoded_text(f, got.bits));
  if (want.flags != got.flags) differ(flags, std::string(fields_[flags]), flags_digits(got.flags));
}

std::optional<KnownRule> Record::rule_of(const Encoded& a, const Encoded& b) noexcept {
  const auto changed = static_cast<unsigned>(a.flags) ^ static_cast<unsigned>(b.flags);
  if (a.bits == b.bits && changed == static_cast<unsigned>(Flags::underflow)) return KnownRule::tininess;
  return std::nullopt;
}

Mismatch Record::mismatch(uint64 row) const {
  Mismatch out{.row = row, .inputs = {}, .differences = differences_, .rule = rule_};
  for (std::size_t i = 0; i < form_.inputs; ++i)
    out.inputs.push_back({std::string(columns_[i]), std::string(fields_[i])});
  if (!hint_.empty()) out.rule += fmt::format("; expected is what profile {} gives", hint_);
  return out;
}

}  // namespace bitcube::verify
