#include "notation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <span>
#include <system_error>
#include <utility>

namespace bitcube::isa {
namespace {

constexpr bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

/// The codes of a notation that has a fixed list of names, or an empty list.
std::span<const CodeName> names_of(Notation notation) noexcept {
  switch (notation) {
    case Notation::relu:
      return relu_names;
    case Notation::layout:
      return layout_names;
    case Notation::pad:
      return pad_names;
    case Notation::compare:
      return compare_names;
    case Notation::rmode:
      return rmode_names;
    case Notation::dimension:
      return dimension_names;
    case Notation::gpr:
      return gpr_names;
    case Notation::hand:
      return hand_names;
    case Notation::pe_mask:
      return pe_mask_names;
    default:
      return {};
  }
}

const CodeName* find(std::span<const CodeName> names, std::string_view text) noexcept {
  for (const CodeName& n : names) {
    if (equal_ignoring_case(n.name, text) || (!n.alias.empty() && equal_ignoring_case(n.alias, text))) return &n;
  }
  return nullptr;
}

std::string_view find(std::span<const CodeName> names, std::int64_t code) noexcept {
  for (const CodeName& n : names) {
    if (n.code == code) return n.name;
  }
  return {};
}

ReadValue ok(std::int64_t value) {
  return {ReadValue::Status::ok, value, {}};
}
ReadValue bad(std::string message) {
  return {ReadValue::Status::bad, 0, std::move(message)};
}

/// Digits only, at most four: the n of T#n and Sn.
std::optional<int> small_number(std::string_view digits) noexcept {
  if (digits.empty() || digits.size() > 4) return std::nullopt;
  int n = 0;
  for (const char c : digits) {
    if (!is_digit(c)) return std::nullopt;
    n = 10 * n + (c - '0');
  }
  return n;
}

std::optional<int> hand_of(std::string_view text) noexcept {
  const CodeName* const hand = find(hand_names, text.substr(0, 1));
  return hand == nullptr ? std::nullopt : std::optional<int>(hand->code);
}

ReadValue read_tile(std::string_view token) {
  if (token.size() < 2 || token[1] != '#' || !hand_of(token)) return {};
  const std::optional<int> tile = find_tile(token);
  return tile ? ok(*tile) : bad(fmt::format("{}: a hand has the Tiles #1 to #{}", token, tiles_per_hand));
}

ReadValue read_shared(std::string_view token) {
  if (token.size() < 2 || ascii_lower(token[0]) != 's' || !is_digit(token[1])) return {};
  const std::optional<int> tile = find_shared_tile(token);
  return tile ? ok(*tile) : bad(fmt::format("{}: the Shared Tiles are S0 to S{}", token, shared_tile_count - 1));
}

std::string encodable_masks() {
  std::string text;
  for (const CodeName& n : pe_mask_names) text += fmt::format("{}{}", text.empty() ? "" : ", ", n.name);
  return text;
}

ReadValue read_pe_mask(std::string_view token) {
  if (const CodeName* const mask = find(pe_mask_names, token)) return ok(mask->code);
  if (token.empty() || token.find_first_not_of("01") != std::string_view::npos) return {};
  return bad(token.size() == 4 ? fmt::format("mask {} cannot be encoded; legal: {}", token, encodable_masks())
                               : fmt::format("mask {}: write one binary digit for each of the four PEs", token));
}

ReadValue read_data_type(std::string_view token) {
  if (equal_ignoring_case(token, "DTYPE_NONE")) return ok(static_cast<int>(DataType::none));
  const Format* const format = find_format(token);
  return format == nullptr ? ReadValue{} : ok(static_cast<int>(format->type));
}

ReadValue read_integer(std::string_view token) {
  ReadNumber number = read_number(token);
  if (number.status != ReadValue::Status::ok) return {number.status, 0, std::move(number.message)};
  // No field is this wide, so a larger number is as wrong as this one.
  constexpr std::uint64_t limit = std::uint64_t{1} << 62;
  const auto value = static_cast<std::int64_t>(std::min(number.magnitude, limit));
  return ok(number.negative ? -value : value);
}

ReadValue read_prequant(std::string_view token) {
  if (equal_ignoring_case(token, "None")) return ok(0);
  const PreQuantMode* const mode = find_prequant(token);
  return mode == nullptr ? read_integer(token) : ok(mode->code);
}

std::string number_range(const FieldSpec& spec) {
  return fmt::format("{}..{}", spec.smallest(), spec.largest());
}

}  // namespace

std::optional<int> find_gpr(std::string_view text) noexcept {
  const CodeName* const gpr = find(gpr_names, text);
  return gpr == nullptr ? std::nullopt : std::optional<int>(gpr->code);
}

std::optional<int> find_tile(std::string_view text) noexcept {
  if (text.size() < 3 || text[1] != '#') return std::nullopt;
  const std::optional<int> hand = hand_of(text);
  const std::optional<int> n = small_number(text.substr(2));
  if (!hand || !n || *n < 1 || *n > tiles_per_hand) return std::nullopt;
  return *hand * tiles_per_hand + *n - 1;
}

std::optional<int> find_shared_tile(std::string_view text) noexcept {
  if (text.empty() || ascii_lower(text[0]) != 's') return std::nullopt;
  const std::optional<int> n = small_number(text.substr(1));
  return n && *n < shared_tile_count ? n : std::nullopt;
}

std::string_view gpr_name(int code) noexcept {
  return find(gpr_names, code);
}
std::string tile_name(int code) {
  return fmt::format("{}#{}", find(hand_names, code / tiles_per_hand), code % tiles_per_hand + 1);
}
std::string shared_tile_name(int code) {
  return fmt::format("S{}", code);
}

ReadNumber read_number(std::string_view token) {
  ReadNumber out;
  out.negative = token.starts_with('-');
  std::string_view digits = token.substr(out.negative || token.starts_with('+') ? 1 : 0);
  if (digits.empty() || !is_digit(digits[0])) return out;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    const char prefix = ascii_lower(digits[1]);
    base = prefix == 'x' ? 16 : prefix == 'b' ? 2 : 10;
    if (base != 10) digits.remove_prefix(2);
  }
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out.magnitude, base);
  out.status = ReadValue::Status::bad;
  if (end != digits.data() + digits.size()) {
    out.message = fmt::format("{} is not a number", token);
  } else if (error != std::errc{}) {
    out.message = fmt::format("{} does not fit into 64 bits", token);
  } else {
    out.status = ReadValue::Status::ok;
  }
  return out;
}

ReadValue read_value(Notation notation, std::string_view token) {
  switch (notation) {
    case Notation::number:
    case Notation::offset:
    case Notation::bit:
    case Notation::group_n:
    case Notation::size:
      return read_integer(token);
    case Notation::data_type:
      return read_data_type(token);
    case Notation::prequant:
      return read_prequant(token);
    case Notation::tile:
      return read_tile(token);
    case Notation::shared:
      return read_shared(token);
    case Notation::pe_mask:
      return read_pe_mask(token);
    case Notation::relu:
    case Notation::layout:
    case Notation::pad:
    case Notation::compare:
    case Notation::rmode:
    case Notation::dimension:
    case Notation::gpr:
    case Notation::hand:
      break;
  }
  if (const CodeName* const name = find(names_of(notation), token)) return ok(name->code);
  return notation == Notation::relu ? read_integer(token) : ReadValue{};
}

std::string write_value(Notation notation, std::int32_t value) {
  switch (notation) {
    case Notation::number:
    case Notation::offset:
    case Notation::bit:
    case Notation::group_n:
    case Notation::size:
    case Notation::relu:
      return fmt::format("{}", value);
    case Notation::data_type:
      return value == static_cast<int>(DataType::none) ? "DTYPE_NONE"
                                                       : std::string(format_of(static_cast<DataType>(value)).name);
    case Notation::prequant:
      return std::string(find_prequant(static_cast<unsigned>(value))->name);
    case Notation::tile:
      return tile_name(value);
    case Notation::shared:
      return shared_tile_name(value);
    case Notation::layout:
    case Notation::pad:
    case Notation::compare:
    case Notation::rmode:
    case Notation::dimension:
    case Notation::gpr:
    case Notation::hand:
    case Notation::pe_mask:
      break;
  }
  return std::string(find(names_of(notation), value));
}

std::string legal_numbers(const FieldSpec& spec) {
  if (spec.constraint == Constraint::fixed) return fmt::format("{}", spec.value);
  if (spec.constraint == Constraint::reserved) return "0";
  if (spec.constraint == Constraint::any) return number_range(spec);
  std::string text;
  for (int first = 0; first < 64; ++first) {
    if (!spec.accepts(first)) continue;
    int last = first;
    while (spec.accepts(last + 1)) ++last;
    if (!text.empty()) text += ", ";
    text += last == first       ? fmt::format("{}", first)
            : last == first + 1 ? fmt::format("{}, {}", first, last)
                                : fmt::format("{}..{}", first, last);
    first = last;
  }
  return text;
}

std::string legal_text(const FieldSpec& spec) {
  const Notation notation = info_of(spec.field).notation;
  switch (notation) {
    case Notation::number:
    case Notation::offset:
    case Notation::bit:
    case Notation::group_n:
    case Notation::size:
      return legal_numbers(spec);
    case Notation::tile:
      return fmt::format("{} to {}", tile_name(0), tile_name(static_cast<int>(spec.largest())));
    case Notation::shared:
      return fmt::format("{} to {}", shared_tile_name(0), shared_tile_name(static_cast<int>(spec.largest())));
    case Notation::relu: {
      std::string text;
      for (const CodeName& n : relu_names) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n.code, n.name);
      return text;
    }
    default:
      break;
  }
  std::string text;
  for (std::int64_t v = spec.smallest(); v <= spec.largest(); ++v) {
    if (!spec.accepts(v)) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", write_value(notation, static_cast<std::int32_t>(v)));
  }
  return text;
}

std::string describe(const FieldSpec& spec) {
  switch (info_of(spec.field).notation) {
    case Notation::number:
    case Notation::offset:
    case Notation::bit:
      return fmt::format("{} ({})", name_of(spec.field), legal_numbers(spec));
    case Notation::data_type:
      return "a data type such as E4M3";
    case Notation::prequant:
      return "a PreQuantMode such as NoQuant or its code";
    case Notation::relu:
      return fmt::format("ReluMode ({})", legal_text(spec));
    case Notation::group_n:
      return fmt::format("GroupNCode ({}; the code, not the width)", legal_numbers(spec));
    case Notation::layout:
      return "a layout such as ND2M16";
    case Notation::pad:
      return fmt::format("a pad value ({})", legal_text(spec));
    case Notation::compare:
      return fmt::format("a comparison ({})", legal_text(spec));
    case Notation::rmode:
      return fmt::format("a rounding mode ({})", legal_text(spec));
    case Notation::dimension:
      return legal_text(spec);
    case Notation::gpr:
      return "a register (zero, sp, a0..a7, ra, s0..s8, x0..x3)";
    case Notation::tile:
      return "a Local Tile (T#1..T#16, U#, M#, N#)";
    case Notation::hand:
      return fmt::format("a hand ({})", legal_text(spec));
    case Notation::shared:
      return fmt::format("a Shared Tile (S0..S{})", shared_tile_count - 1);
    case Notation::pe_mask:
      return fmt::format("a PE mask ({})", encodable_masks());
    case Notation::size:
      return fmt::format("a SizeCode ({})", legal_numbers(spec));
  }
  return {};
}

std::string bits_text(const FieldSpec& spec) {
  std::string text;
  for (std::size_t i = 0; i < spec.range_count; ++i) {
    const BitRange r = spec.ranges[i];
    text += r.high == r.low ? fmt::format("[{}]", r.low) : fmt::format("[{}:{}]", r.high, r.low);
  }
  return text;
}

}  // namespace bitcube::isa
