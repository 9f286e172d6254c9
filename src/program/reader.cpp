#include "reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "bitcube/machine/state.hpp"
#include "bitcube/machine/tile.hpp"
#include "bitcube/numeric/convert.hpp"
#include "bitcube/numeric/real_text.hpp"

#include "edit_distance.hpp"

namespace bitcube::program {
namespace {

constexpr bool is_blank(char c) noexcept {
  return c == ' ' || c == '\t' || c == '\r';
}

std::string found(const Token& token) {
  switch (token.kind) {
    case Token::Kind::end:
      return "the end of the directive";
    case Token::Kind::string:
      return fmt::format("\"{}\"", token.text);
    default:
      return fmt::format("'{}'", token.text);
  }
}

}  // namespace

std::string hint(std::string_view text, std::span<const std::string_view> names) {
  constexpr std::size_t longest = 40;
  std::string_view nearest;
  std::size_t least = text.size() / 3 + 2;
  if (text.size() > longest) return {};
  for (const std::string_view name : names) {
    const std::size_t d = edit_distance(text, name);
    if (d < least) {
      least = d;
      nearest = name;
    }
  }
  return nearest.empty() ? std::string() : fmt::format("; did you mean {}?", nearest);
}

std::string list_of(std::span<const std::string_view> names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<uint64> parse_unsigned(std::string_view text) noexcept {
  int base = 10;
  if (text.size() > 2 && text[0] == '0') {
    const char mark = ascii_lower(text[1]);
    base = mark == 'x' ? 16 : mark == 'b' ? 2 : 10;
    if (base != 10) text.remove_prefix(2);
  }
  uint64 value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value, base);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

Expected<std::vector<Token>> tokenize(std::span<const std::string_view> lines, int first_line, TextError& error) {
  std::vector<Token> tokens;
  Position end{first_line, 1};
  for (std::size_t n = 0; n < lines.size(); ++n) {
    const std::string_view line = lines[n];
    const int number = first_line + static_cast<int>(n);
    for (std::size_t i = 0; i < line.size();) {
      const Position at{number, static_cast<int>(i) + 1};
      const char c = line[i];
      if (is_blank(c)) {
        ++i;
        continue;
      }
      const bool hash = c == '#' && (i == 0 || is_blank(line[i - 1]));
      if (hash || line.substr(i, 2) == "//") break;
      if (c == '"') {
        const std::size_t close = line.find('"', i + 1);
        if (close == std::string_view::npos) {
          error = {at, "the string has no end: expected '\"' on the same line"};
          return Error{error.message};
        }
        tokens.push_back({Token::Kind::string, line.substr(i + 1, close - i - 1), at});
        i = close + 1;
        continue;
      }
      std::size_t size = 1;
      Token::Kind kind = Token::Kind::symbol;
      if (c == '=') {
        size = line.substr(i, 2) == "==" ? 2 : 1;
      } else if (c != ',') {
        kind = Token::Kind::word;
        while (i + size < line.size() && !is_blank(line[i + size]) && line[i + size] != ',' && line[i + size] != '=' &&
               line[i + size] != '"' && line.substr(i + size, 2) != "//") {
          ++size;
        }
      }
      tokens.push_back({kind, line.substr(i, size), at});
      i += size;
    }
    end = {number, static_cast<int>(line.size()) + 1};
  }
  tokens.push_back({Token::Kind::end, {}, end});
  return tokens;
}

void Reader::fail(const Token& at, std::string message) {
  if (!error_) error_ = TextError{at.position, std::move(message)};
}

void Reader::expected(std::string_view what) {
  fail(peek(), fmt::format("expected {}, found {}", what, found(peek())));
}

const Token& Reader::take() noexcept {
  const Token& token = tokens_[next_];
  if (token.kind != Token::Kind::end) ++next_;
  return token;
}

bool Reader::accept(std::string_view text) noexcept {
  if (at_end() || peek().kind == Token::Kind::string || !equal_ignoring_case(peek().text, text)) return false;
  ++next_;
  return true;
}

void Reader::expect(std::string_view text) {
  if (!accept(text)) expected(fmt::format("'{}'", text));
}

void Reader::expect_end() {
  if (!at_end()) expected("the end of the directive");
}

std::string_view Reader::word(std::string_view what) {
  if (ok() && peek().kind == Token::Kind::word) return take().text;
  expected(what);
  return {};
}

std::string_view Reader::string(std::string_view what) {
  if (ok() && peek().kind == Token::Kind::string) return take().text;
  expected(what);
  return {};
}

uint64 Reader::number(std::string_view what, uint64 least, uint64 most) {
  if (!ok()) return least;
  const Token at = peek();
  const auto value = at.kind == Token::Kind::word ? parse_unsigned(at.text) : std::nullopt;
  if (!value) {
    expected(what);
    return least;
  }
  if (*value < least || *value > most) {
    fail(at, fmt::format("{} is not legal as {}; legal: {}..{}", at.text, what, least, most));
    return least;
  }
  take();
  return *value;
}

unsigned Reader::pes() {
  constexpr std::string_view what = "a PE (0..3, PE0..PE3, all, or a mask such as 1100)";
  const Token at = peek();
  std::string_view text = word(what);
  if (!ok()) return 0;
  if (equal_ignoring_case(text, "all")) return machine::full_mask;
  if (text.size() == machine::pe_count && text.find_first_not_of("01") == std::string_view::npos) {
    unsigned mask = 0;
    for (const char c : text) mask = 2 * mask + (c == '1' ? 1U : 0U);
    if (mask == 0) fail(at, "the mask 0000 has no PE; expected at least one");
    return mask;
  }
  if (text.size() == 3 && equal_ignoring_case(text.substr(0, 2), "PE")) text.remove_prefix(2);
  if (text.size() == 1 && text[0] >= '0' && text[0] <= '3')
    return machine::pe_bit(static_cast<unsigned>(text[0] - '0'));
  fail(at, fmt::format("expected {}, found '{}'", what, at.text));
  return 0;
}

unsigned Reader::local_name() {
  constexpr std::string_view what = "a Local Tile (T#1..T#16, U#…, M#…, N#…)";
  const Token at = peek();
  const auto name = isa::find_tile(word(what));
  if (ok() && !name) fail(at, fmt::format("expected {}, found '{}'", what, at.text));
  return ok() ? static_cast<unsigned>(*name) : 0;
}

unsigned Reader::shared_name() {
  constexpr std::string_view what = "a Shared Tile (S0..S63)";
  const Token at = peek();
  const auto name = isa::find_shared_tile(word(what));
  if (ok() && !name) fail(at, fmt::format("expected {}, found '{}'", what, at.text));
  return ok() ? static_cast<unsigned>(*name) : 0;
}

unsigned Reader::gpr() {
  constexpr std::string_view what = "a register (sp, a0..a7, ra, s0..s8, x0..x3)";
  const Token at = peek();
  const auto name = isa::find_gpr(word(what));
  if (ok() && !name) fail(at, fmt::format("expected {}, found '{}'", what, at.text));
  return ok() ? static_cast<unsigned>(*name) : 0;
}

const Format* Reader::type() {
  const Token at = peek();
  const std::string_view text = word("a data type (FP32, E4M3, HiF4X2, …)");
  if (!ok()) return nullptr;
  const Format* format = find_format(text);
  if (format != nullptr && machine::tile_format(format->type) == nullptr) format = nullptr;
  if (format != nullptr) return format;
  std::vector<std::string_view> names;
  for (const Format& f : formats) {
    if (machine::tile_format(f.type) != nullptr) names.push_back(f.name);
  }
  fail(at, fmt::format("unknown data type '{}'{} (legal: {})", text, hint(text, names), list_of(names)));
  return nullptr;
}

Flags Reader::flags() {
  if (accept("none")) return Flags::none;
  Flags set = Flags::none;
  do {
    const Token at = peek();
    const std::string_view text = word("status flags (none, or some of NV DZ OF UF NX)");
    if (!ok()) return Flags::none;
    const auto* row = std::find_if(flag_names.begin(), flag_names.end(),
                                   [&](const FlagName& f) { return equal_ignoring_case(f.name, text); });
    if (row == flag_names.end()) {
      fail(at, fmt::format("unknown flag '{}'; legal: NV, DZ, OF, UF, NX, or none alone", text));
      return Flags::none;
    }
    set |= row->flag;
    accept(",");
  } while (!at_end());
  return set;
}

std::string parse_lane(const Format& format, std::string_view text, uint64& lane) {
  const bool hex = text.size() > 2 && text[0] == '0' && ascii_lower(text[1]) == 'x' &&
                   text.find_first_of(".pP") == std::string_view::npos;
  if (hex) {
    const auto bits = parse_unsigned(text);
    if (!bits) return fmt::format("'{}' is no number: 0x needs 1 to 16 hexadecimal digits", text);
    if (*bits > low_mask(format.lane_bits)) {
      return fmt::format("{} does not fit a lane of {}, which has {} bits", text, format.name, format.lane_bits);
    }
    lane = *bits;
    return {};
  }
  const RealLiteral literal = parse_real(text);
  if (literal.fault != nullptr) return fmt::format("'{}' is no number: {}", text, literal.fault);
  const bool nan = literal.cls == Class::quiet_nan || literal.cls == Class::signaling_nan;
  if (nan && (format.nan == NanCodes::none || literal.cls == Class::signaling_nan)) {
    return fmt::format("{} has no code for {}; write its bits after 0x", format.name, text);
  }
  const Encoded encoded = convert_value(format, literal.cls, literal.real, {});
  const bool special = literal.cls == Class::infinity && !format.has_infinity;
  if (special || has(encoded.flags, Flags::overflow) || (!nan && has(encoded.flags, Flags::invalid))) {
    return fmt::format("{} is beyond {}", text, format.name);
  }
  lane = encoded.bits & low_mask(format.lane_bits);
  return {};
}

}  // namespace bitcube::program
