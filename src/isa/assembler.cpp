#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "bitcube/isa/text.hpp"
#include "edit_distance.hpp"
#include "notation.hpp"

namespace bitcube::isa {
namespace {

constexpr bool is_blank(char c) noexcept {
  return c == ' ' || c == '\t' || c == '\r';
}
constexpr bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}
constexpr bool is_word(char c) noexcept {
  const char lower = ascii_lower(c);
  return (lower >= 'a' && lower <= 'z') || is_digit(c) || c == '_' || c == '.' || c == '#';
}

/// A position in a line.
class Cursor {
 public:
  explicit Cursor(std::string_view line, std::size_t position = 0) noexcept : line_(line), position_(position) {
    skip_blanks();
  }

  std::size_t position() const noexcept { return position_; }
  bool at_end() const noexcept { return position_ == line_.size(); }

  /// The word or number here, not consumed; empty if there is none.
  std::string_view token() const noexcept {
    std::size_t end = position_;
    const bool sign = end + 1 < line_.size() && (line_[end] == '-' || line_[end] == '+') && is_digit(line_[end + 1]);
    if (sign) ++end;
    while (end < line_.size() && is_word(line_[end])) ++end;
    return line_.substr(position_, end - position_);
  }
  void skip(std::string_view token) noexcept {
    position_ += token.size();
    skip_blanks();
  }
  /// Consumes this text, in any case, if it stands here.
  bool accept(std::string_view text) noexcept {
    if (!equal_ignoring_case(line_.substr(position_, text.size()), text)) return false;
    skip(text);
    return true;
  }
  /// What stands here, for a message.
  std::string found() const {
    if (at_end()) return "the end of the instruction";
    std::string_view text = token();
    if (text.empty()) text = line_.substr(position_, 1);
    std::string out = "'";
    for (const char c : text.substr(0, 40)) {
      const bool printable = c >= 0x20 && c < 0x7F;
      out += printable ? std::string(1, c) : fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
    }
    return out + "'";
  }

 private:
  void skip_blanks() noexcept {
    while (position_ < line_.size() && is_blank(line_[position_])) ++position_;
  }

  std::string_view line_;
  std::size_t position_;
};

/// What stopped the attempts to read an instruction. The attempt that came farthest is the one that was meant.
class Failure {
 public:
  void expected(const Cursor& at, std::string_view what) {
    if (!move_to(at) || !message_.empty()) return;
    if (std::find(expected_.begin(), expected_.end(), what) == expected_.end()) expected_.emplace_back(what);
  }
  /// What stands here was understood, and is wrong.
  void wrong(const Cursor& at, std::string message) {
    if (move_to(at) && message_.empty()) message_ = std::move(message);
  }
  Error error(int line) const {
    std::string text = message_;
    if (text.empty()) {
      text = "expected ";
      for (std::size_t i = 0; i < expected_.size(); ++i) {
        const bool last = i + 1 == expected_.size();
        text += fmt::format("{}{}", i == 0 ? "" : last ? " or " : ", ", expected_[i]);
      }
      text += fmt::format(", found {}", at_.found());
    }
    return Error{fmt::format("{}:{}: {}", line, at_.position() + 1, text)};
  }

 private:
  /// False if an earlier failure was farther.
  bool move_to(const Cursor& at) {
    if (started_ && at.position() < at_.position()) return false;
    if (!started_ || at.position() > at_.position()) {
      expected_.clear();
      message_.clear();
      at_ = at;
      started_ = true;
    }
    return true;
  }

  bool started_ = false;
  Cursor at_{{}};
  std::vector<std::string> expected_;
  std::string message_;
};

/// Reads the operands of one form in one syntax.
class OperandReader {
 public:
  OperandReader(Form form, const Syntax& syntax, const Cursor& cursor, Failure& failure)
      : instruction_(form), syntax_(syntax), cursor_(cursor), failure_(failure) {}

  std::optional<Instruction> read() {
    if (syntax_.braces && !expect("{", "'{'")) return std::nullopt;
    for (std::size_t i = 0; i < syntax_.count;) {
      const std::size_t end = end_of_keys(i);
      if (end != i) {
        read_keys(i, end);
        i = end;
        continue;
      }
      if (!read_next(syntax_.operands[i])) return std::nullopt;
      ++i;
    }
    if (syntax_.braces && !expect("}", "'}'")) return std::nullopt;
    if (!cursor_.at_end()) {
      failure_.expected(cursor_, "the end of the instruction");
      return std::nullopt;
    }
    return instruction_;
  }

 private:
  bool expect(std::string_view text, std::string_view what) {
    if (cursor_.accept(text)) return true;
    failure_.expected(cursor_, what);
    return false;
  }

  /// The end of the run of optional keys that starts here; they may come in any order.
  std::size_t end_of_keys(std::size_t i) const noexcept {
    while (i < syntax_.count && syntax_.operands[i].kind == Operand::Kind::keyed &&
           syntax_.operands[i].presence == Operand::Presence::elided) {
      ++i;
    }
    return i;
  }
  void read_keys(std::size_t begin, std::size_t end) {
    std::array<bool, Syntax::max_operands> used{};
    for (bool found = true; found;) {
      found = false;
      for (std::size_t i = begin; i < end && !found; ++i) {
        found = !used[i] && try_next(syntax_.operands[i]);
        used[i] = used[i] || found;
      }
    }
  }

  bool read_next(const Operand& operand) {
    return try_next(operand) || operand.presence != Operand::Presence::required;
  }
  /// Consumes the separator and the operand, or nothing.
  bool try_next(const Operand& operand) {
    const Cursor before = cursor_;
    if ((first_ || expect(",", fmt::format("',' and {}", outline(operand)))) && read_operand(operand)) {
      first_ = false;
      return true;
    }
    cursor_ = before;
    return false;
  }

  /// How the operand begins.
  static std::string outline(const Operand& operand) {
    switch (operand.kind) {
      case Operand::Kind::literal:
      case Operand::Kind::mark:
        return std::string(operand.text);
      case Operand::Kind::keyed:
        return fmt::format("{}=", operand.text);
      case Operand::Kind::destination:
        return "->";
      case Operand::Kind::value:
        break;
    }
    return std::string(name_of(operand.field));
  }

  bool read_operand(const Operand& operand) {
    switch (operand.kind) {
      case Operand::Kind::literal:
        if (equal_ignoring_case(cursor_.token(), operand.text)) {
          cursor_.skip(operand.text);
          return true;
        }
        failure_.expected(cursor_, operand.text);
        return false;
      case Operand::Kind::value:
        return read_field(operand.field);
      case Operand::Kind::keyed:
        if (!equal_ignoring_case(cursor_.token(), operand.text)) {
          failure_.expected(cursor_, outline(operand));
          return false;
        }
        cursor_.skip(operand.text);
        return expect("=", "'='") && read_field(operand.field);
      case Operand::Kind::mark:
        if (!expect(operand.text, operand.text)) return false;
        instruction_.set(operand.field, 1);
        return true;
      case Operand::Kind::destination:
        return expect("->", "'->'") && read_field(operand.field) && read_size(operand.size);
    }
    return false;
  }

  bool read_size(Field size) {
    if (size == Field::reserved) return true;
    if (!expect("<", "'<' and a SizeCode")) return false;
    const Cursor at = cursor_;
    if (!read_field(size)) return false;
    // Only the forms without a destination have SizeCode 0.
    if (instruction_[size] == 0) {
      failure_.wrong(at, "SizeCode 0 is no destination; legal: 1 and above");
      return false;
    }
    return expect(">", "'>'");
  }

  bool read_field(Field field) {
    const FieldSpec& spec = *find_spec(instruction_.form(), field);
    const std::string_view token = cursor_.token();
    const ReadValue read = read_value(info_of(field).notation, token);
    if (read.status == ReadValue::Status::bad) failure_.wrong(cursor_, read.message);
    const bool other_form = spec.constraint == Constraint::fixed && read.value != static_cast<std::int64_t>(spec.value);
    if (read.status == ReadValue::Status::other || (read.status == ReadValue::Status::ok && other_form)) {
      failure_.expected(cursor_, spec.constraint == Constraint::fixed
                                     ? write_value(info_of(field).notation, static_cast<std::int32_t>(spec.value))
                                     : describe(spec));
      return false;
    }
    if (read.status != ReadValue::Status::ok) return false;
    if (!spec.accepts(read.value)) {
      failure_.wrong(cursor_,
                     fmt::format("{} is not legal for {}; legal: {}", token, name_of(field), legal_text(spec)));
      return false;
    }
    instruction_.set(field, static_cast<std::int32_t>(read.value));
    cursor_.skip(token);
    return true;
  }

  Instruction instruction_;
  const Syntax& syntax_;
  Cursor cursor_;
  Failure& failure_;
  bool first_ = true;
};

std::string unknown_mnemonic(const Cursor& at) {
  constexpr std::size_t max_steps = 4;
  constexpr std::size_t max_length = 40;
  const std::string_view token = at.token();
  if (token.empty()) return fmt::format("expected an instruction, found {}", at.found());
  std::string text = fmt::format("unknown instruction {}", at.found());
  std::size_t best = max_steps + 1;
  std::string_view nearest;
  if (token.size() <= max_length) {
    for (const FormInfo& form : forms) {
      const std::size_t d = edit_distance(token, form.mnemonic);
      if (d < best) {
        best = d;
        nearest = form.mnemonic;
      }
    }
  }
  if (!nearest.empty()) text += fmt::format("; did you mean {}?", nearest);
  return text;
}

Expected<Word> assemble_instruction(const Cursor& start, int line) {
  Failure failure;
  const std::string_view mnemonic = start.token();
  bool known = false;
  for (const FormInfo& form : forms) {
    if (mnemonic.empty() || !equal_ignoring_case(form.mnemonic, mnemonic)) continue;
    known = true;
    Cursor operands = start;
    operands.skip(mnemonic);
    for (std::size_t i = 0; i < form.syntax_count; ++i) {
      const auto instruction = OperandReader(form.form, form.syntaxes[i], operands, failure).read();
      if (!instruction) continue;
      Expected<Word> word = encode(*instruction);
      if (word) return word;
      failure.wrong(operands, word.error().message);
    }
  }
  if (!known) failure.wrong(start, unknown_mnemonic(start));
  return failure.error(line);
}

struct DataDirective {
  std::string_view name;
  std::uint8_t bytes;
};
constexpr std::array<DataDirective, 4> data_directives{{{".byte", 1}, {".half", 2}, {".word", 4}, {".dword", 8}}};

/// One number of a data directive.
std::optional<std::uint64_t> read_data(Cursor& cursor, std::uint8_t bytes, Failure& failure) {
  const std::string_view token = cursor.token();
  const ReadNumber read = read_number(token);
  if (read.status == ReadValue::Status::other) {
    failure.expected(cursor, "a number");
  } else if (read.status == ReadValue::Status::bad) {
    failure.wrong(cursor, read.message);
  } else if (read.negative || (bytes < 8 && read.magnitude >> (8 * bytes) != 0)) {
    failure.wrong(cursor, fmt::format("{} does not fit into {} bits without a sign", token, 8 * bytes));
  } else {
    cursor.skip(token);
    return read.magnitude;
  }
  return std::nullopt;
}

Expected<void> assemble_data(Cursor cursor, const DataDirective& directive, int line, std::vector<Word>& words) {
  Failure failure;
  cursor.skip(directive.name);
  do {
    const auto value = read_data(cursor, directive.bytes, failure);
    if (!value) return failure.error(line);
    words.push_back({*value, directive.bytes});
  } while (cursor.accept(","));
  if (cursor.at_end()) return {};
  failure.expected(cursor, "','");
  failure.expected(cursor, "the end of the directive");
  return failure.error(line);
}

}  // namespace

std::string_view strip_comment(std::string_view line) noexcept {
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool hash = line[i] == '#' && (i == 0 || is_blank(line[i - 1]) || line[i - 1] == ';');
    if (hash || line.substr(i, 2) == "//") return line.substr(0, i);
  }
  return line;
}

Expected<std::vector<Word>> assemble_line(std::string_view text, int line) {
  std::vector<Word> words;
  const std::string_view code = strip_comment(text);
  for (std::size_t begin = 0; begin <= code.size();) {
    const std::size_t end = std::min(code.find(';', begin), code.size());
    // The part keeps what stands before it in the line, so that positions are columns.
    const Cursor cursor(code.substr(0, end), begin);
    begin = end + 1;
    if (cursor.at_end()) continue;
    const std::string_view token = cursor.token();
    const auto* const data = std::find_if(data_directives.begin(), data_directives.end(),
                                          [&](const auto& d) { return equal_ignoring_case(d.name, token); });
    if (data != data_directives.end()) {
      if (auto done = assemble_data(cursor, *data, line, words); !done) return done.error();
      continue;
    }
    auto word = assemble_instruction(cursor, line);
    if (!word) return word.error();
    words.push_back(*word);
  }
  return words;
}

Expected<std::vector<Word>> assemble(std::string_view text) {
  std::vector<Word> words;
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    auto more = assemble_line(text.substr(0, end), line);
    if (!more) return more;
    words.insert(words.end(), more->begin(), more->end());
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

std::vector<std::uint8_t> to_bytes(std::span<const Word> words) {
  std::vector<std::uint8_t> bytes;
  for (const Word& word : words) {
    for (int i = 0; i < word.length; ++i) bytes.push_back(static_cast<std::uint8_t>(word.bits >> (8 * i)));
  }
  return bytes;
}

Expected<std::vector<std::uint8_t>> bytes_of_digits(std::string_view text) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line = line.substr(0, std::min(line.find('#'), line.find("//")));
    constexpr std::string_view blanks = " \t\r";
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(blanks)));
    line = line.substr(0, line.find_last_not_of(blanks) + 1);
    if (line.empty()) continue;
    std::uint64_t word = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), word, 16);
    if (error != std::errc{} || end != line.data() + line.size()) {
      return Error{
          fmt::format("{}: '{}' is no word in hexadecimal; disasm takes one a line, or the bytes of words "
                      "(a text of instructions is for bitcube asm)",
                      number, line)};
    }
    const auto length = static_cast<std::size_t>(instruction_length(word));
    if (line.size() < 2 * length || (length < 8 && word >> (8 * length) != 0)) {
      return Error{fmt::format("{}: '{}' has {} digits, but an instruction that begins so has {}", number, line,
                               line.size(), 2 * length)};
    }
    for (std::size_t i = 0; i < length; ++i) bytes.push_back(static_cast<std::uint8_t>(word >> (8 * i)));
  }
  return bytes;
}

}  // namespace bitcube::isa
