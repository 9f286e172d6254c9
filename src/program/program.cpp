#include "bitcube/program/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bitcube/io/file.hpp"
#include "bitcube/isa/text.hpp"
#include "guarded.hpp"
#include "image.hpp"
#include "reader.hpp"

namespace bitcube::program {
namespace {

namespace fs = std::filesystem;

constexpr bool is_blank(char c) noexcept {
  return c == ' ' || c == '\t' || c == '\r';
}
constexpr bool is_letter(char c) noexcept {
  return (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z') || c == '_';
}
constexpr bool is_label(char c) noexcept {
  return is_letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '$';
}

std::string_view label_at(std::string_view line, std::size_t begin) noexcept {
  if (begin >= line.size() || !is_letter(line[begin])) return {};
  std::size_t end = begin;
  while (end < line.size() && is_label(line[end])) ++end;
  return line.substr(begin, end - begin);
}

std::size_t skip_blanks(std::string_view line, std::size_t i) noexcept {
  while (i < line.size() && is_blank(line[i])) ++i;
  return i;
}

/// A branch whose target is a label: the line is assembled once more when all labels have addresses.
struct Branch {
  std::size_t first_line = 0;  // in Image::lines: of the source line
  std::size_t index = 0;       // of the instruction itself
  std::string label;
  Position position;  // of the label
};

class Parser {
 public:
  Parser(std::string_view name, fs::path directory) : directory_(std::move(directory)) { image_.name = name; }

  Expected<std::shared_ptr<const Image>> parse(std::string_view text) {
    if (text.size() > longest_text) {
      return Error{
          fmt::format("{}: {} bytes of text; a program has at most {}", image_.name, text.size(), longest_text)};
    }
    std::vector<std::string_view> lines;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      lines.push_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    for (std::size_t i = 0; i < lines.size() && !error_;)
      i += parse_line(std::span(lines).subspan(i), static_cast<int>(i) + 1);
    if (!error_) resolve();
    if (!error_) check_memory();
    if (error_)
      return Error{
          fmt::format("{}:{}:{}: {}", image_.name, error_->position.line, error_->position.column, error_->message)};
    return finish();
  }

  Expected<std::shared_ptr<const Image>> from_bytes(std::span<const std::uint8_t> bytes) {
    for (const isa::DisassembledLine& line : isa::disassemble(bytes)) {
      add_word({}, line.word);
    }
    return finish();
  }

 private:
  void fail(Position at, std::string message) {
    if (!error_) error_ = TextError{at, std::move(message)};
  }

  /// The number of physical lines that were taken.
  std::size_t parse_line(std::span<const std::string_view> lines, int number) {
    const std::string_view line = lines.front();
    std::size_t at = skip_blanks(line, 0);
    for (std::string_view label = label_at(line, at); !label.empty(); label = label_at(line, at)) {
      const std::size_t colon = skip_blanks(line, at + label.size());
      if (colon >= line.size() || line[colon] != ':') break;
      const auto [old, added] =
          labels_.try_emplace(std::string(label), Label{address_, {number, static_cast<int>(at) + 1}});
      if (!added) {
        fail({number, static_cast<int>(at) + 1},
             fmt::format("the label '{}' is defined in line {} already", label, old->second.position.line));
      }
      at = skip_blanks(line, colon + 1);
    }
    if (at < line.size() && line[at] == '.' && !is_data(line.substr(at)))
      return parse_directive_lines(lines, number, at);
    parse_instructions(line, number, at);
    return 1;
  }

  static bool is_data(std::string_view text) noexcept {
    constexpr std::array<std::string_view, 4> data{".byte", ".half", ".word", ".dword"};
    std::size_t size = 1;
    while (size < text.size() && is_label(text[size])) ++size;
    return std::any_of(data.begin(), data.end(),
                       [&](std::string_view d) { return equal_ignoring_case(d, text.substr(0, size)); });
  }

  std::size_t parse_directive_lines(std::span<const std::string_view> lines, int number, std::size_t at) {
    // A backslash at the end continues the directive. Columns stay those of the file: what stands before the directive
    // in its line, labels, becomes blanks.
    std::vector<std::string_view> parts;
    first_ = std::string(at, ' ') + std::string(lines.front().substr(at));
    for (std::size_t n = 0; n < lines.size(); ++n) {
      std::string_view part = n == 0 ? std::string_view(first_) : lines[n];
      while (!part.empty() && is_blank(part.back())) part.remove_suffix(1);
      const bool more = part.ends_with('\\') && n + 1 < lines.size();
      if (more) part.remove_suffix(1);
      parts.push_back(part);
      if (!more) break;
    }
    TextError error;
    auto tokens = tokenize(parts, number, error);
    if (!tokens) {
      fail(error.position, error.message);
      return parts.size();
    }
    const Position where = tokens->front().position;
    Reader reader(std::move(*tokens));
    if (reader.accept(".org")) {
      const Token origin = reader.peek();
      const uint64 address = reader.number("an address");
      reader.expect_end();
      if (reader.ok() && (!image_.lines.empty() || !labels_.empty() || !image_.statements.empty())) {
        fail(origin.position, ".org comes before every instruction, label and other directive");
      }
      image_.origin = address_ = address;
    } else {
      Statement s = parse_directive(reader, directory_);
      s.address = address_;
      s.position = where;
      s.text = directive_text(parts);
      if (s.kind != Statement::Kind::setup) ++image_.expectations;
      if (reader.ok() && (s.kind == Statement::Kind::fault || s.kind == Statement::Kind::waiting) &&
          image_.lines.empty()) {
        fail(where, "expected an instruction before this expectation, which is about the one before it");
      }
      image_.statements.push_back(std::move(s));
    }
    if (!reader.ok()) fail(reader.error().position, reader.error().message);
    return parts.size();
  }

  /// One line of a directive without comment and superfluous blanks, for messages and traces.
  static std::string directive_text(std::span<const std::string_view> parts) {
    constexpr std::size_t longest = 200;
    std::string text;
    for (const std::string_view part : parts) {
      bool quoted = false;
      for (std::size_t i = 0; i < part.size(); ++i) {
        const char c = part[i];
        if (c == '"') quoted = !quoted;
        if (!quoted && (part.substr(i, 2) == "//" || (c == '#' && (i == 0 || is_blank(part[i - 1]))))) break;
        const bool blank = !quoted && is_blank(c);
        if (blank && (text.empty() || text.back() == ' ')) continue;
        text += blank ? ' ' : c;
      }
      if (!text.empty() && text.back() != ' ') text += ' ';
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    if (text.size() > longest) text.replace(longest, std::string::npos, " …");
    return text;
  }

  void parse_instructions(std::string_view line, int number, std::size_t at) {
    std::string code(isa::strip_comment(line));
    std::fill_n(code.begin(), std::min(at, code.size()), ' ');  // labels
    const std::size_t first = image_.lines.size();
    std::vector<Branch> branches;
    std::size_t part = 0;
    for (std::size_t begin = 0; begin <= code.size(); ++part) {
      const std::size_t end = std::min(code.find(';', begin), code.size());
      if (const auto target = label_of_branch(code, begin, end)) {
        branches.push_back({first,
                            part,
                            std::string(code.substr(target->first, target->second)),
                            {number, static_cast<int>(target->first) + 1}});
        // A distance that is legal everywhere stands in until the label has an address.
        std::fill_n(code.begin() + static_cast<std::ptrdiff_t>(target->first), target->second, ' ');
        code[target->first] = '0';
      }
      if (skip_blanks(code, begin) >= end) --part;  // nothing there: no word either
      begin = end + 1;
    }
    const auto words = isa::assemble_line(code, number);
    if (!words) {
      take_error(words.error().message, number);
      return;
    }
    // With a data directive in the same line, words and parts do not correspond.
    for (Branch& branch : branches) {
      const std::size_t parts = part;
      if (parts != words->size()) {
        fail(branch.position, "a branch to a label and data cannot stand in one line");
        return;
      }
      branch.index += first;
      branches_.push_back(std::move(branch));
    }
    for (const isa::Word& word : *words) add_word({number, static_cast<int>(at) + 1}, word);
  }

  /// Position and size of the label in "BSTART DIRECT, label", in any of the four forms.
  static std::optional<std::pair<std::size_t, std::size_t>> label_of_branch(std::string_view code, std::size_t begin,
                                                                            std::size_t end) noexcept {
    const std::string_view part = code.substr(0, end);
    std::size_t at = skip_blanks(part, begin);
    const std::string_view mnemonic = label_at(part, at);
    if (!equal_ignoring_case(mnemonic, "BSTART") && !equal_ignoring_case(mnemonic, "C.BSTART")) return std::nullopt;
    at = skip_blanks(part, at + mnemonic.size());
    const std::string_view kind = label_at(part, at);
    if (!equal_ignoring_case(kind, "DIRECT") && !equal_ignoring_case(kind, "COND")) return std::nullopt;
    at = skip_blanks(part, at + kind.size());
    if (at >= part.size() || part[at] != ',') return std::nullopt;
    at = skip_blanks(part, at + 1);
    const std::string_view label = label_at(part, at);
    if (label.empty()) return std::nullopt;
    return std::pair(at, label.size());
  }

  /// "LINE:COLUMN: text" of the isa room.
  void take_error(const std::string& message, int number) {
    const std::size_t first = message.find(':');
    const std::size_t second = first == std::string::npos ? first : message.find(": ", first + 1);
    if (second == std::string::npos) {
      fail({number, 1}, message);
      return;
    }
    const auto column = parse_unsigned(std::string_view(message).substr(first + 1, second - first - 1));
    fail({number, static_cast<int>(column.value_or(1))}, message.substr(second + 2));
  }

  void add_word(Position at, isa::Word word) {
    Statement s;
    s.address = address_;
    s.position = at;
    s.line = image_.lines.size();
    image_.statements.push_back(std::move(s));
    image_.lines.push_back({address_, word, at, isa::disassemble(word)});
    address_ += word.length;
  }

  void resolve() {
    for (const Branch& branch : branches_) {
      const auto label = labels_.find(branch.label);
      if (label == labels_.end()) {
        std::vector<std::string_view> names;
        for (const auto& [name, where] : labels_) names.push_back(name);
        fail(branch.position, fmt::format("no label '{}'{}", branch.label, hint(branch.label, names)));
        return;
      }
      Line& line = image_.lines[branch.index];
      const auto distance = static_cast<int64>(label->second.address - line.address);
      const isa::Decoded decoded = isa::decode(line.word.bits);
      isa::Instruction instruction = *decoded;
      const isa::FieldSpec& spec = *isa::find_spec(instruction.form(), isa::Field::offset);
      if (distance % 2 != 0) {
        fail(branch.position,
             fmt::format("the label '{}' is {} bytes away, which are no halfwords", branch.label, distance));
        return;
      }
      if (distance / 2 < spec.smallest() || distance / 2 > spec.largest()) {
        fail(branch.position, fmt::format("the label '{}' is {} halfwords away; legal: {}..{}", branch.label,
                                          distance / 2, spec.smallest(), spec.largest()));
        return;
      }
      instruction.set(isa::Field::offset, static_cast<std::int32_t>(distance / 2));
      line.word = isa::Codec::encode(instruction);
      line.text = isa::disassemble(line.word);
    }
  }

  void check_memory() {
    const uint64 size = address_ - image_.origin;
    for (const Statement& s : image_.statements) {
      if (!s.memory || s.memory->size == 0 || size == 0) continue;
      const bool apart =
          s.memory->address - image_.origin >= size && image_.origin - s.memory->address >= s.memory->size;
      if (apart) continue;
      fail(s.position,
           fmt::format("0x{:X}..0x{:X} overlaps the program, which lies in 0x{:X}..0x{:X}; expected another "
                       "address, or .org to move the program",
                       s.memory->address, s.memory->address + (s.memory->size - 1), image_.origin,
                       image_.origin + (size - 1)));
      return;
    }
  }

  std::shared_ptr<const Image> finish() {
    std::vector<isa::Word> words;
    for (const Line& line : image_.lines) words.push_back(line.word);
    image_.bytes = isa::to_bytes(words);
    for (std::size_t i = 0; i < image_.statements.size(); ++i) image_.at.try_emplace(image_.statements[i].address, i);
    return std::make_shared<const Image>(std::move(image_));
  }

  struct Label {
    uint64 address = 0;
    Position position;
  };

  fs::path directory_;
  Image image_;
  uint64 address_ = 0;
  std::map<std::string, Label, std::less<>> labels_;
  std::vector<Branch> branches_;
  std::string first_;
  std::optional<TextError> error_;
};

}  // namespace

Expected<Program> Program::parse(std::string_view text, std::string_view name, const fs::path& directory) {
  return guarded(name, [&]() -> Expected<Program> {
    auto image = Parser(name, directory).parse(text);
    if (!image) return image.error();
    return Program(std::move(*image));
  });
}

Expected<Program> Program::from_bytes(std::span<const std::uint8_t> bytes, std::string_view name) {
  return guarded(name, [&]() -> Expected<Program> {
    if (bytes.size() > longest_text) {
      return Error{fmt::format("{}: {} bytes; a program has at most {}", name, bytes.size(), longest_text)};
    }
    auto image = Parser(name, {}).from_bytes(bytes);
    if (!image) return image.error();
    return Program(std::move(*image));
  });
}

Expected<Program> Program::load(const fs::path& path) {
  const auto file = InputFile::open(path, longest_text);
  if (!file) return file.error();
  const std::string name = path.string();
  if (file->size() > longest_text) {
    return Error{fmt::format("{}: {} bytes; a program has at most {}", name, file->size(), longest_text)};
  }
  const auto bytes = file->load();
  if (!bytes) return bytes.error();
  const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  if (path.extension() != ".bin" && text.find('\0') == std::string_view::npos) {
    return parse(text, name, path.parent_path());
  }
  return from_bytes({reinterpret_cast<const std::uint8_t*>(bytes->data()), bytes->size()}, name);
}

const std::string& Program::name() const noexcept {
  return image_->name;
}
uint64 Program::origin() const noexcept {
  return image_->origin;
}
const std::vector<std::uint8_t>& Program::bytes() const noexcept {
  return image_->bytes;
}
const std::vector<Line>& Program::lines() const noexcept {
  return image_->lines;
}
std::size_t Program::expectations() const noexcept {
  return image_->expectations;
}

}  // namespace bitcube::program
