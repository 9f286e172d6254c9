// The tokens of a directive, numbers and names. Private to the room.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/isa/codes.hpp"
#include "bitcube/numeric/format.hpp"
#include "bitcube/program/program.hpp"

namespace bitcube::program {

struct Token {
  enum class Kind : std::uint8_t { word, string, symbol, end };
  Kind kind = Kind::end;
  std::string_view text{};  // of a string: what stands between the quotes
  Position position{};
};

/// An error of the text: whoever knows the file puts its name before it.
struct TextError {
  Position position{};
  std::string message{};
};

/// A number without sign, decimal or after 0x or 0b.
std::optional<uint64> parse_unsigned(std::string_view text) noexcept;

/// Takes the tokens of one directive one after the other. The first error sticks, and then nothing more is taken; so a
/// parser asks for what it needs and looks at ok() once.
class Reader {
 public:
  explicit Reader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  bool ok() const noexcept { return !error_; }
  const TextError& error() const noexcept { return *error_; }
  void fail(const Token& at, std::string message);
  /// "expected WHAT, found …".
  void expected(std::string_view what);

  const Token& peek() const noexcept { return tokens_[next_]; }
  const Token& take() noexcept;
  bool at_end() const noexcept { return !ok() || peek().kind == Token::Kind::end; }
  /// Takes this word, in any case, or this symbol, if it stands here.
  bool accept(std::string_view text) noexcept;
  void expect(std::string_view text);
  void expect_end();

  std::string_view word(std::string_view what);
  std::string_view string(std::string_view what);
  uint64 number(std::string_view what, uint64 least = 0, uint64 most = ~uint64{0});
  /// 0..3, PE0..PE3, all, or a mask such as 1100: bit 3-i is PE i.
  unsigned pes();
  unsigned local_name();
  unsigned shared_name();
  unsigned gpr();
  const Format* type();
  Flags flags();

 private:
  std::vector<Token> tokens_;  // ends with one of kind end
  std::size_t next_ = 0;
  std::optional<TextError> error_;
};

/// Cuts a directive into tokens; `lines` are its physical lines, the first one with this number.
Expected<std::vector<Token>> tokenize(std::span<const std::string_view> lines, int first_line, TextError& error);

/// The name in a table that is most like `text`: "; did you mean X?", or nothing.
std::string hint(std::string_view text, std::span<const std::string_view> names);
std::string list_of(std::span<const std::string_view> names);

/// A literal as a lane of `format`: 0x… is its bits, everything else a value, rounded to nearest even. The text of what
/// is wrong, or empty.
std::string parse_lane(const Format& format, std::string_view text, uint64& lane);

}  // namespace bitcube::program
