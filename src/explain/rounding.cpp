#include "explain/rounding.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "explain/lane.hpp"
#include "value_text.hpp"

namespace bitcube::explain {
namespace {

using Mode = bitcube::Rounding;
using Path = EncodeSteps::Path;

Neighbour neighbour(const Rounding& c, uint128 quanta) {
  const Format& f = *c.to;
  const bool negative = c.x.negative;
  Neighbour out{.value = {.negative = negative, .significand = quanta, .exponent = c.steps.quantum}};
  if (f.is_integer()) {
    const uint128 lowest = f.kind == Kind::signed_integer ? uint128{f.max_finite} + 1 : 0;
    if (quanta <= (negative ? lowest : uint128{f.max_finite})) {
      out.code = static_cast<uint64>(negative ? ~quanta + 1 : quanta) & low_mask(f.lane_bits);
    }
    out.value.negative = negative && quanta != 0;
    return out;
  }
  if (f.layout == Layout::exponent) {
    const int code = c.steps.quantum + static_cast<int>(quanta) - 1 + f.bias;
    if (code <= static_cast<int>(f.max_finite)) out.code = static_cast<uint64>(code);
    return out;
  }
  auto units = static_cast<uint64>(quanta);
  int quantum = c.steps.quantum;
  if (units == 0) {
    if (!f.has_zero) return out;
    const bool keep_sign = f.type == DataType::e4m3 ? c.control.profile->e4m3_keeps_negative_zero : true;
    out.code = zero_code(f, negative && keep_sign);
    out.value.negative = is_negative(f, *out.code);
    return out;
  }
  detail::enter_binade(f, units, quantum);
  if (compare_magnitude(out.value, decode(f, f.max_finite).real) > 0) return out;
  out.code = with_sign(f, detail::magnitude_code(f, units, quantum), negative);
  return out;
}

std::string remainder_text(Remainder remainder) {
  switch (remainder) {
    case Remainder::exact:
      return "nothing is left: exact";
    case Remainder::below_half:
      return "less than half an ulp is left";
    case Remainder::half:
      return "exactly half an ulp is left: a tie";
    case Remainder::above_half:
      return "more than half an ulp is left";
  }
  return {};
}

/// The bits behind the guard bit.
std::string rest_text(const Real& x, int quantum) {
  constexpr int shown = 24;
  const int count = quantum - x.exponent - 1;
  std::string digits;
  bool more = x.sticky;
  for (int i = count - 1; i >= 0; --i) {
    const bool bit = i < 128 && ((x.significand >> i) & 1) != 0;
    if (static_cast<int>(digits.size()) == shown) {
      more = more || (x.significand & (i >= 127 ? ~uint128{0} : (uint128{1} << (i + 1)) - 1)) != 0;
      break;
    }
    digits += bit ? '1' : '0';
  }
  if (!more) digits.erase(digits.find_last_not_of('0') + 1);
  if (more) digits += "…";
  return digits.empty() ? "none" : digits;
}

std::string binary(uint128 value) {
  std::string digits;
  for (int i = bit_length(value) - 1; i >= 0; --i) digits += ((value >> i) & 1) != 0 ? '1' : '0';
  return digits.empty() ? "0" : digits;
}

/// E8M0 rounds log2 of the value to an integer (numerics 7.2), so its neighbours are the lower and the higher exponent.
bool rounds_log2(const Rounding& c) noexcept {
  return c.to->layout == Layout::exponent;
}

/// What a mode does to log2.
std::string_view log2_meaning(Mode mode) noexcept {
  switch (mode) {
    case Mode::rtz:
      return "log2 toward zero, which is the value toward 1";
    case Mode::rtm:
      return "log2 toward minus infinity";
    case Mode::rtp:
      return "log2 toward plus infinity";
    case Mode::rto:
      return "log2: integers unchanged, otherwise the neighbour whose exponent is odd, whatever its code";
    case Mode::rne:
    case Mode::rna:
    case Mode::rhb:
      break;
  }
  return "log2 to the nearest integer; log2 of a binary number is never a tie";
}

/// Why the mode takes the exponent that it takes.
std::string log2_decision_text(const Rounding& c) {
  const EncodeSteps& s = c.steps;
  if (s.cut.remainder == Remainder::exact) return "log2 is an integer: no mode decides anything";
  const std::string taken = fmt::format("the {} one, {}", s.away ? "higher" : "lower", s.quantum + (s.away ? 1 : 0));
  switch (c.control.rounding) {
    case Mode::rtz:
      return fmt::format("log2 toward zero; it is {}: {}", s.quantum < 0 ? "negative" : "positive", taken);
    case Mode::rtm:
      return fmt::format("log2 toward minus infinity: {}", taken);
    case Mode::rtp:
      return fmt::format("log2 toward plus infinity: {}", taken);
    case Mode::rto:
      return fmt::format("of the exponents {} and {} the odd one: {}", s.quantum, s.quantum + 1, taken);
    case Mode::rne:
    case Mode::rna:
    case Mode::rhb:
      break;
  }
  return fmt::format("the significand is {} sqrt 2, so log2 is nearer to {}; no tie exists", s.away ? "above" : "below",
                     s.quantum + (s.away ? 1 : 0));
}

/// Why the mode takes the neighbour that it takes.
std::string decision_text(const Rounding& c) {
  const EncodeSteps& s = c.steps;
  const bool negative = c.x.negative;
  if (s.cut.remainder == Remainder::exact) return "nothing is cut off: no mode decides anything";
  const bool tie = s.cut.remainder == Remainder::half;
  const std::string_view taken = s.away ? "the one away from zero" : "the one toward zero";
  const std::string parity =
      fmt::format("the last code bit of the neighbour toward zero is {}", s.lower_is_odd ? 1 : 0);
  switch (c.control.rounding) {
    case Mode::rne:
    case Mode::rna:
    case Mode::rhb:
      if (!tie) return fmt::format("the nearer neighbour: {}", taken);
      if (c.control.rounding == Mode::rne) return fmt::format("a tie; {}: {}", parity, taken);
      if (c.control.rounding == Mode::rna) return "a tie, which goes away from zero";
      return fmt::format("a tie goes to the numerically greater neighbour; the value is {}: {}",
                         negative ? "negative" : "positive", taken);
    case Mode::rtz:
      return "toward zero, whatever the distances";
    case Mode::rtm:
      return fmt::format("toward minus infinity; the value is {}: {}", negative ? "negative" : "positive", taken);
    case Mode::rtp:
      return fmt::format("toward plus infinity; the value is {}: {}", negative ? "negative" : "positive", taken);
    case Mode::rto:
      return fmt::format("an inexact value goes to the odd neighbour; {}: {}", parity, taken);
  }
  return {};
}

constexpr std::size_t widest_ulps = 18;

Table neighbours_table(const Rounding& c) {
  const EncodeSteps& s = c.steps;
  const Neighbour lower = neighbour(c, s.cut.quanta);
  const Neighbour upper = neighbour(c, s.cut.quanta + 1);
  const bool exact = s.cut.remainder == Remainder::exact;
  const bool logarithm = rounds_log2(c);
  Table table{.header = {"", "", "value", "code", "distance", logarithm ? "log2" : "in ulp"}};
  const auto row = [&](std::string_view name, const Neighbour& n, bool away, bool delivered) {
    std::vector<std::string> cells{delivered ? "->" : "", std::string(name), exact_text(n.value),
                                   n.code ? bits_text(*c.to, *n.code) : "beyond the format"};
    if (const auto d = away ? difference(n.value, c.x) : difference(c.x, n.value)) {
      cells.push_back(number_text(*d));
      Real ulps = scale_by_power_of_two(*d, -s.quantum);
      if (exact_text(ulps).size() > widest_ulps) ulps = cut_off(ulps);  // the distance beside it has every digit
      cells.push_back(logarithm ? fmt::format("{}", s.quantum + (away ? 1 : 0)) : number_text(ulps));
    } else {
      Real magnitude = n.value;
      magnitude.negative = false;
      cells.push_back(away ? exact_text(magnitude) + " - |source|" : "|source| - " + exact_text(magnitude));
      if (logarithm) cells.push_back(fmt::format("{}", s.quantum + (away ? 1 : 0)));
    }
    table.rows.push_back(std::move(cells));
  };
  row(exact ? "equal" : logarithm ? "lower log2" : "toward zero", lower, false, !s.away);
  if (exact) return table;
  table.rows.push_back({"", "source", number_text(c.x)});
  row(logarithm ? "higher log2" : "away from zero", upper, true, s.away);
  return table;
}

}  // namespace

bool has_neighbours(const Rounding& c) noexcept {
  const bool rounded = c.steps.path == Path::rounded || c.steps.path == Path::rounded_beyond;
  return rounded && (c.x.is_zero() || floor_log2(c.x) <= 64 || !c.to->is_integer());
}

Neighbour taken(const Rounding& c) {
  return neighbour(c, c.steps.cut.quanta + (c.steps.away ? 1 : 0));
}

Section rounding_section(const Rounding& c) {
  const EncodeSteps& s = c.steps;
  const RoundingInfo& mode = roundings[static_cast<std::size_t>(c.control.rounding) - 1];
  Section section{.title = fmt::format("Rounding: {}", mode.name), .clause = "numerics 2.1"};
  const bool logarithm = rounds_log2(c);
  if (logarithm) section.clause = "numerics 7.2";
  section.facts.push_back(
      {"mode", std::string(mode.name), std::string(logarithm ? log2_meaning(mode.mode) : mode.meaning)});
  section.tables.push_back(neighbours_table(c));
  if (logarithm) {
    section.facts.push_back({"log2", s.cut.remainder == Remainder::exact
                                         ? fmt::format("{}", s.quantum)
                                         : fmt::format("between {} and {}", s.quantum, s.quantum + 1)});
  } else {
    const bool guard = s.cut.remainder == Remainder::half || s.cut.remainder == Remainder::above_half;
    const bool sticky = s.cut.remainder == Remainder::below_half || s.cut.remainder == Remainder::above_half;
    section.facts.push_back({"kept bits", binary(s.cut.quanta), fmt::format("units of {}", power_text(s.quantum))});
    section.facts.push_back({"guard bit", guard ? "1" : "0", "the first bit that is cut off"});
    section.facts.push_back(
        {"sticky bit", sticky ? "1" : "0", fmt::format("the bits after it: {}", rest_text(c.x, s.quantum))});
    section.facts.push_back({"position", remainder_text(s.cut.remainder)});
  }
  section.facts.push_back({"decision", logarithm ? log2_decision_text(c) : decision_text(c)});
  return section;
}

}  // namespace bitcube::explain
