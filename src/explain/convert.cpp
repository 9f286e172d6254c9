#include "bitcube/explain/convert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "explain/lane.hpp"
#include "explain/rounding.hpp"
#include "guarded.hpp"
#include "value_text.hpp"

namespace bitcube {
namespace {

using explain::difference_text;
using explain::internal_error;
using explain::number_text;
using explain::power_text;
using Path = EncodeSteps::Path;

/// One conversion, as the explanation sees it. It has steps where a value is finite and not a zero that keeps its sign.
struct Case : explain::Rounding {
  const Format* from = nullptr;  // nullptr: a literal
  Class cls = Class::zero;
  std::function<Encoded(const EncodeControl&)> convert{};
  Encoded result{};

  bool is_special() const noexcept { return cls != Class::zero && cls != Class::subnormal && cls != Class::normal; }
  /// Zeros of floating destinations go through no encoder.
  bool is_encoded() const noexcept { return !is_special() && (cls != Class::zero || to->kind != Kind::floating); }
  bool between_integers() const noexcept { return from != nullptr && from->is_integer() && to->is_integer(); }
};

// ---- Sections

std::string class_text(const Case& c) {
  std::string text(name_of(c.cls));
  if (c.cls != Class::invalid) text += c.x.negative ? ", negative" : ", positive";
  return text;
}

Section source_section(const Case& c, std::string_view text, uint64 word) {
  Section section{.title = "Source: " + std::string(c.from != nullptr ? c.from->name : "an exact number"),
                  .clause = std::string(c.from != nullptr ? explain::decode_clause(*c.from) : "numerics 6")};
  if (c.from != nullptr) {
    section.facts.push_back({"bits", bits_text(*c.from, word)});
  } else {
    section.facts.push_back({"given", std::string(text)});
  }
  section.facts.push_back({"class", class_text(c)});
  if (!c.is_special()) {
    section.facts.push_back({"value", number_text(c.x)});
    if (!c.x.is_zero()) section.facts.push_back({"in binary", explain::scientific_text(c.x)});
  }
  if (c.from != nullptr) section.tables.push_back(explain::lane_table(*c.from, word));
  if (c.from != nullptr && c.from->layout == Layout::reciprocal && !c.is_special()) {
    const Value value = decode(e6m2, word);
    section.remarks.push_back(
        fmt::format("The value is the reciprocal of what the fields say: 1 / {}.", exact_text(value)));
  }
  return section;
}

void add_magnitude(Section& section, const Format& f, std::string_view name, uint64 code) {
  section.facts.push_back({std::string(name), exact_text(decode(f, code)), bits_text(f, code)});
}

Section destination_section(const Case& c) {
  const Format& f = *c.to;
  Section section{.title = "Destination: " + std::string(f.name), .clause = "numerics 1.2"};
  if (f.is_integer()) {
    add_magnitude(section, f, "smallest", f.kind == Kind::signed_integer ? f.max_finite + 1 : 0);
    add_magnitude(section, f, "largest", f.max_finite);
    section.facts.push_back({"ulp", "1"});
    return section;
  }
  add_magnitude(section, f, "largest", f.max_finite);
  const uint64 unit = uint64{1} << f.low_zero_bits;
  if (f.layout == Layout::fields && f.exponent_zero_is_subnormal && f.subnormal_class) {
    add_magnitude(section, f, "smallest normal", unit << f.fraction_bits);
    add_magnitude(section, f, "smallest subnormal", unit);
  } else {
    add_magnitude(section, f, "smallest", f.has_zero ? unit : 0);
  }
  if (f.has_infinity) section.facts.push_back({"infinity", bits_text(f, f.infinity)});
  if (f.nan != NanCodes::none) section.facts.push_back({"NaN", bits_text(f, f.canonical_nan)});
  if (!f.has_infinity && f.nan == NanCodes::none) section.facts.push_back({"infinity, NaN", "none"});
  if (c.is_encoded() && c.steps.path == Path::rounded && f.layout != Layout::exponent && !c.x.is_zero()) {
    const int e = std::max(floor_log2(c.x), f.min_exponent());
    const bool subnormal = floor_log2(c.x) < f.min_exponent();
    section.facts.push_back({"ulp here", exact_text(Real{.significand = 1, .exponent = c.steps.quantum}),
                             subnormal ? fmt::format("below {}", power_text(e))
                                       : fmt::format("from {} to {}", power_text(e), power_text(e + 1))});
  }
  return section;
}

/// What a conversion to this format does beyond its range.
std::string overflow_text(const Case& c) {
  const Format& f = *c.to;
  if (f.is_integer()) {
    return c.control.saturate ? "Sat = 1 gives the nearest end of the range"
                              : fmt::format("Sat = 0 gives the low {} bits of the rounded integer", f.lane_bits);
  }
  if (f.overflow_result == OverflowResult::max_finite) {
    return f.type == DataType::e2m1x2 ? fmt::format("this format saturates whatever Sat says; profile {} gives code {}",
                                                    c.control.profile->name, c.control.profile->e2m1_overflow_code)
                                      : "this format saturates whatever Sat says";
  }
  if (c.control.saturate) return "Sat = 1 gives the largest value, with the sign";
  return f.overflow_result == OverflowResult::nan ? "Sat = 0 gives NaN: the format has no infinity"
                                                  : "Sat = 0 gives infinity, with the sign";
}

Section range_section(const Case& c) {
  const Format& f = *c.to;
  Section section{.title = "Range", .clause = std::string(explain::encode_clause(f))};
  const auto add = [&](std::string name, std::string value, std::string remark = {}) {
    section.facts.push_back({std::move(name), std::move(value), std::move(remark)});
  };
  const Real largest = decode(f, f.max_finite).real;
  switch (c.steps.path) {
    case Path::no_number:
      add("value", c.x.is_zero() ? "zero" : "negative", fmt::format("{} has neither zero nor a sign", f.name));
      add("result", "NaN");
      return section;
    case Path::below:
      add("value", c.x.is_zero() ? "zero" : "too small",
          fmt::format("the smallest of {} is {}, which has no zero", f.name, exact_text(decode(f, 0))));
      add("result", f.layout == Layout::exponent && !c.control.saturate ? "NaN, with Sat = 0" : "the smallest value");
      return section;
    case Path::beyond: {
      const bool binade = f.layout != Layout::exponent && detail::tests_rounded_value(f, *c.control.profile);
      add("test", "overflow",
          binade ? fmt::format("the exact magnitude is at least {}, beyond the last binade",
                               power_text(floor_log2(largest) + 1))
                 : fmt::format("the exact magnitude is above {}, before any rounding", exact_text(largest)));
      add("largest", exact_text(largest), fmt::format("too small by {}", difference_text(c.x, largest)));
      if (f.layout == Layout::exponent) break;
      Real next = largest;  // the significand is in units of the last binade
      ++next.significand;
      add("one ulp above", exact_text(next),
          compare_magnitude(c.x, next) > 0
              ? "not in the format, and too small as well"
              : fmt::format("not in the format; too large by {}", difference_text(next, c.x)));
      break;
    }
    case Path::rounded_beyond:
      add("test", "overflow",
          f.is_integer() ? fmt::format("the rounded value is {} of the range",
                                       c.x.negative ? "below the smallest" : "above the largest")
                         : "the rounded magnitude is beyond the range");
      break;
    case Path::rounded:
      add("test", "no overflow",
          f.is_integer() || (f.layout != Layout::exponent && detail::tests_rounded_value(f, *c.control.profile))
              ? "made on the rounded value"
              : "made on the exact value, before rounding");
      return section;
  }
  add("result", overflow_text(c));
  return section;
}

/// NaN, infinity and the zeros that keep their sign.
Section special_section(const Case& c) {
  const Format& f = *c.to;
  Section section{.title = "Special value: " + std::string(name_of(c.cls)), .clause = "numerics 7.4"};
  std::string& why = section.remarks.emplace_back();
  switch (c.cls) {
    case Class::invalid:
    case Class::quiet_nan:
    case Class::signaling_nan:
      why = f.nan != NanCodes::none ? "It becomes the destination's canonical NaN, whatever its sign and payload."
                                    : "The destination has no NaN: it becomes 0.";
      break;
    case Class::infinity:
      why = f.is_integer()                          ? "It becomes the end of the range on its side, with NV."
            : f.kind == Kind::scale && c.x.negative ? "The destination has no sign: it becomes NaN, with NV."
            : f.has_infinity                        ? "It stays infinity, whatever Sat says."
            : c.control.saturate || f.overflow_result == OverflowResult::max_finite
                ? "The destination has no infinity: an overflow, and " + overflow_text(c) + "."
                : "The destination has no infinity: an overflow, which gives NaN with Sat = 0.";
      break;
    default:
      why = c.x.negative && !f.has_signed_zero ? "The destination has one zero: -0 becomes +0."
                                               : "Zero keeps its sign, and is exact.";
  }
  return section;
}

// ---- Flags

struct Reason {
  Flags flag = Flags::none;
  bool set = false;
  std::string why{};
};

Reason invalid_reason(const Case& c) {
  const Format& f = *c.to;
  const std::string to_name(f.name);
  switch (c.cls) {
    case Class::invalid:
      return {Flags::invalid, true, "the source is an invalid encoding"};
    case Class::signaling_nan:
      return {Flags::invalid, true, "the source is a signalling NaN"};
    case Class::quiet_nan:
      if (f.is_integer()) return {Flags::invalid, true, "an integer cannot say NaN"};
      if (f.layout == Layout::exponent) return {Flags::invalid, true, "every NaN that becomes E8M0 raises it"};
      return {Flags::invalid, false, "a quiet NaN raises nothing"};
    case Class::infinity:
      if (f.is_integer()) return {Flags::invalid, true, "an integer cannot say infinity"};
      if (f.kind == Kind::scale && c.x.negative) return {Flags::invalid, true, to_name + " has no negative values"};
      return {Flags::invalid, false, "infinity is no invalid operand here"};
    default:
      if (c.is_encoded() && c.steps.path == Path::no_number) {
        return {Flags::invalid, true, to_name + (c.x.is_zero() ? " has no zero" : " has no negative values")};
      }
      return {Flags::invalid, false, "the source is a number"};
  }
}

Reason overflow_reason(const Case& c) {
  if (c.cls == Class::infinity && !invalid_reason(c).set && !c.to->has_infinity) {
    return {Flags::overflow, true, "infinity is beyond the largest value"};
  }
  const bool over = c.is_encoded() && (c.steps.path == Path::beyond || c.steps.path == Path::rounded_beyond);
  if (!over) return {Flags::overflow, false, c.is_special() ? "no number is too large" : "the result is in the range"};
  return {
      Flags::overflow, true,
      c.steps.path == Path::beyond ? "the exact value is beyond the range" : "the rounded value is beyond the range"};
}

Reason inexact_reason(const Case& c) {
  if (overflow_reason(c).set) return {Flags::inexact, true, "every overflow raises it"};
  if (!c.is_encoded()) return {Flags::inexact, false, "nothing was rounded"};
  if (c.steps.path == Path::no_number) return {Flags::inexact, false, "nothing was rounded"};
  if (c.steps.path == Path::below) return {Flags::inexact, true, "the result is not the value"};
  const bool inexact = c.steps.cut.remainder != Remainder::exact;
  return {Flags::inexact, inexact, inexact ? "the result is not the value" : "the result is the value"};
}

Reason underflow_reason(const Case& c) {
  const EncodeSteps& s = c.steps;
  const Format& f = *c.to;
  const auto reason = [](bool set, std::string why) { return Reason{Flags::underflow, set, std::move(why)}; };
  if (!c.is_encoded() || s.path == Path::no_number) return reason(false, "no number was rounded");
  if (s.path == Path::below) return reason(true, "the value is below the smallest one");
  if (f.is_integer()) return reason(false, "integers do not underflow");
  if (s.path != Path::rounded) return reason(false, "the value is large");
  if (f.layout == Layout::exponent) return reason(false, "the value is in the range");
  if (s.cut.remainder == Remainder::exact) return reason(false, "the result is exact");
  if (s.cut.quanta == 0 && !s.away) return reason(true, "the result is zero, and the value is not");
  const std::string bound = power_text(f.underflow_exponent);
  const auto below = [&](bool tiny, std::string_view what) {
    return reason(tiny, fmt::format("{} is {} {}", what, tiny ? "below" : "not below", bound));
  };
  if (f.underflow_test == UnderflowTest::source) return below(s.source_tiny, "the exact magnitude");
  if (f.underflow_test == UnderflowTest::delivered) return below(s.result_tiny, "the delivered magnitude");
  const std::string_view profile = c.control.profile->name;
  switch (detail::tininess_of(f, *c.control.profile)) {
    case Tininess::before:
      return below(s.source_tiny, fmt::format("tininess before rounding (profile {}): the exact magnitude", profile));
    case Tininess::result:
      return below(s.result_tiny, fmt::format("tininess of the result (profile {}): the delivered magnitude", profile));
    case Tininess::after:
      break;
  }
  if (!s.source_tiny) return below(false, "the exact magnitude");
  const Real fine{.significand = s.fine_quanta, .exponent = s.fine_quantum};
  const bool tiny = fine.is_zero() || floor_log2(fine) < f.underflow_exponent;
  return reason(tiny,
                fmt::format("tininess after rounding (profile {}): with unbounded exponent the magnitude rounds to "
                            "{}, which is {} {}",
                            profile, exact_text(fine), tiny ? "below" : "not below", bound));
}

std::vector<Reason> reasons_of(const Case& c) {
  std::vector<Reason> out{invalid_reason(c), overflow_reason(c), underflow_reason(c), inexact_reason(c)};
  for (Reason& reason : out) {
    if (!c.between_integers()) continue;
    if (reason.set) reason.why = "a conversion between integers raises no flags, though " + reason.why;
    reason.set = false;
  }
  return out;
}

Section flags_section(const std::vector<Reason>& reasons) {
  Section section{.title = "Flags", .clause = "numerics 3"};
  for (const Reason& reason : reasons) {
    section.facts.push_back({flags_text(reason.flag), reason.set ? "set" : "-", reason.why});
  }
  return section;
}

// ---- What else could have come out

std::vector<std::string> encoding_cells(const Format& f, const Encoded& e, const Encoded& actual) {
  return {bits_text(f, e.bits) + (e.bits != actual.bits ? " *" : ""), exact_text(decode(f, e.bits)),
          flags_text(e.flags) + (e.flags != actual.flags ? " *" : "")};
}

Section modes_section(const Case& c) {
  Section section{.title = "Every mode, without and with Sat", .clause = "numerics 2.1"};
  Table table{.header = {"", "mode", "Sat = 0", "value", "flags", "Sat = 1", "value", "flags"}};
  for (const RoundingInfo& mode : roundings) {
    if (!rounding_legal(c.from != nullptr ? *c.from : *c.to, *c.to, mode.mode)) continue;
    const bool acting = mode.mode == c.control.rounding;
    std::vector<std::string> row{acting ? (c.control.saturate ? "Sat" : "->") : "", std::string(mode.name)};
    for (const bool saturate : {false, true}) {
      const Encoded e = c.convert({.rounding = mode.mode, .saturate = saturate, .profile = c.control.profile});
      for (std::string& cell : encoding_cells(*c.to, e, c.result)) row.push_back(std::move(cell));
    }
    if (acting) row[0] = "->";
    table.rows.push_back(std::move(row));
  }
  section.tables.push_back(std::move(table));
  section.remarks.push_back(
      fmt::format("-> the mode that acted, with Sat = {}; * differs from the result", c.control.saturate ? 1 : 0));
  return section;
}

Section profiles_section(const Case& c) {
  Section section{.title = "Every profile", .clause = "profiles 4"};
  Table table{.header = {"", "profile", "code", "value", "flags", "class"}};
  bool differ = false;
  const Class cls = classify(*c.to, c.result.bits, *c.control.profile);
  for (const ConversionProfile& profile : conversion_profiles) {
    const Encoded e = c.convert({c.control.rounding, c.control.saturate, &profile});
    const Class other = classify(*c.to, e.bits, profile);
    std::vector<std::string> row{&profile == c.control.profile ? "->" : "", std::string(profile.name)};
    for (std::string& cell : encoding_cells(*c.to, e, c.result)) row.push_back(std::move(cell));
    row.push_back(std::string(name_of(other)) + (other != cls ? " *" : ""));
    differ = differ || e != c.result || other != cls;
    table.rows.push_back(std::move(row));
  }
  section.tables.push_back(std::move(table));
  section.remarks.emplace_back(differ ? "* differs from the result" : "All profiles agree.");
  return section;
}

// ---- The whole

/// What the steps lead to, if they lead anywhere else than to the library's result.
std::optional<std::string> contradiction(const Case& c, const std::vector<Reason>& reasons) {
  Flags flags = Flags::none;
  for (const Reason& reason : reasons) {
    if (reason.set) flags |= reason.flag;
  }
  if (flags != c.result.flags) {
    return fmt::format("the reasons give the flags {}, the conversion {}", flags_text(flags),
                       flags_text(c.result.flags));
  }
  if (!c.is_encoded()) return std::nullopt;
  const std::optional<uint64> code = explain::has_neighbours(c) && c.steps.path == Path::rounded
                                         ? explain::taken(c).code
                                         : std::optional(c.steps.result.bits);
  if (code != c.result.bits) {
    return fmt::format("the steps give {}, the conversion {}", code ? bits_text(*c.to, *code) : "no code",
                       bits_text(*c.to, c.result.bits));
  }
  return std::nullopt;
}

Expected<Document> explain_case(const Case& c, std::string_view text, uint64 word) {
  const std::vector<Reason> reasons = reasons_of(c);
  if (const auto wrong = contradiction(c, reasons)) return internal_error(*wrong);

  Document document{.title = fmt::format("{} to {}, {}{}, profile {}", text, c.to->name, name_of(c.control.rounding),
                                         c.control.saturate ? ", Sat" : "", c.control.profile->name)};
  document.sections.push_back(source_section(c, text, word));
  document.sections.push_back(destination_section(c));
  if (c.is_encoded()) {
    if (explain::has_neighbours(c)) document.sections.push_back(explain::rounding_section(c));
    document.sections.push_back(range_section(c));
  } else {
    document.sections.push_back(special_section(c));
  }
  document.sections.push_back(flags_section(reasons));
  document.sections.push_back(modes_section(c));
  document.sections.push_back(profiles_section(c));
  document.results.push_back({"result", encoding_text(*c.to, c.result)});
  return document;
}

Expected<void> check(const Format* from, const Format& to, Rounding rounding) {
  if (to.layout == Layout::reciprocal) return Error{fmt::format("{} is no destination of a conversion", to.name)};
  if (!rounding_legal(from != nullptr ? *from : to, to, rounding)) {
    return Error{fmt::format("conversions from and to E6M2 and RCPE6M2 take only RNE and RNA, not {} (numerics 7.1)",
                             name_of(rounding))};
  }
  return {};
}

}  // namespace

std::string encoding_text(const Format& f, const Encoded& encoded) {
  return fmt::format("{} = {}, flags {}", bits_text(f, encoded.bits), value_text(f, decode(f, encoded.bits)),
                     flags_text(encoded.flags));
}

Expected<Document> explain_convert(const Format& from, const Format& to, uint64 word, const EncodeControl& control) {
  if (auto ok = check(&from, to, control.rounding); !ok) return ok.error();
  word &= low_mask(from.lane_bits);
  const Value value = decode(from, word);
  Case c{{.to = &to, .control = control, .x = value.real}, &from, value.cls};
  c.convert = [&](const EncodeControl& how) { return convert(from, to, word, how); };
  c.result = c.convert(control);
  if (c.is_encoded()) c.steps = encode_steps(to, value.real, control);
  return guarded("explain",
                 [&] { return explain_case(c, fmt::format("{} of {}", bits_text(from, word), from.name), word); });
}

Expected<Document> explain_convert(const RealLiteral& literal, std::string_view text, const Format& to,
                                   const EncodeControl& control) {
  if (literal.fault != nullptr) return Error{fmt::format("'{}': {}", text, literal.fault)};
  if (auto ok = check(nullptr, to, control.rounding); !ok) return ok.error();
  Case c{{.to = &to, .control = control, .x = explain::narrow(literal.real)}, nullptr, literal.cls};
  c.convert = [&](const EncodeControl& how) { return convert_value(to, literal.cls, literal.real, how); };
  c.result = c.convert(control);
  if (c.is_encoded()) c.steps = encode_steps(to, literal.real, control);
  return guarded("explain", [&] { return explain_case(c, text, 0); });
}

}  // namespace bitcube
