#include "conversion_arguments.hpp"

#include <algorithm>

#include "bitcube/numeric/exact_code.hpp"
#include "bitcube/numeric/real_text.hpp"
#include "commands.hpp"

namespace bitcube::cli {
namespace {

constexpr char mark = ' ';  // before a negative number that CLI11 must leave alone

/// HiF4X2 is neither a source nor a destination of TCVT; its lanes are those of E1M2X2.
const Format& lane_format(const Format& f) {
  return f.type == DataType::hif4x2 ? format_of(DataType::e1m2x2) : f;
}

Expected<void> check_pair(const Format* source, const Format& destination) {
  const Format& to = lane_format(destination);
  std::vector<std::string_view> legal;
  for (const Format& f : formats) {
    const bool ok = source == nullptr ? f.type != DataType::rcpe6m2 : conversion_legal(lane_format(*source), f);
    if (ok && f.type == to.type) return {};
    if (ok) legal.push_back(f.name);
  }
  return Error{fmt::format("--to: {} does not convert to {}; it converts to {}",
                           source == nullptr ? "a real" : source->name, destination.name, fmt::join(legal, ", "))};
}

}  // namespace

void add_conversion_options(CLI::App& command, ConversionArguments& arguments) {
  command.add_option("--to", arguments.to, "Destination format; bitcube formats lists them")
      ->type_name("TYPE")
      ->required();
  command
      .add_option("--from", arguments.from,
                  "Source format; default: real, an exact real number, rounded once; of a file: what its dtype says")
      ->type_name("TYPE|real");
  command.add_option("--round", arguments.round, "Rounding; default: RTZ from float to integer, otherwise RNE")
      ->type_name(choices(roundings));
  command.add_flag("--sat", arguments.saturate, "Saturate: Sat = 1");
  command.add_option("--profile", arguments.profile, "Conversion profile; default: pto")
      ->type_name(choices(conversion_profiles));
}

Expected<const Format*> look_up_source(const ConversionArguments& arguments) {
  if (arguments.from.empty() || equal_ignoring_case(arguments.from, real_source)) return nullptr;
  return look_up_format("--from", arguments.from);
}

Expected<Conversion> prepare(const ConversionArguments& options, const Format* from) {
  Conversion out;
  out.from = from;
  const auto to = look_up_format("--to", options.to);
  if (!to) return to.error();
  out.to = *to;
  const auto profile = look_up("--profile", options.profile, conversion_profiles, find_conversion_profile);
  if (!profile) return profile.error();
  const auto rounding = look_up_rounding("--round", options.round);
  if (!rounding) return rounding.error();

  if (auto legal = check_pair(out.from, *out.to); !legal) return legal.error();
  out.control = {
      .rounding = rounding->value_or(default_rounding(out.from != nullptr && out.from->is_integer(), *out.to)),
      .saturate = options.saturate,
      .profile = *profile};
  if (!rounding_legal(out.from != nullptr ? *out.from : *out.to, *out.to, out.control.rounding)) {
    return Error{fmt::format("--round: conversions from and to E6M2 and RCPE6M2 take only RNE and RNA, not {}",
                             name_of(out.control.rounding))};
  }
  for (const Format* f : {out.from, out.to}) {
    if (f != nullptr && f->type == DataType::hif4x2) {
      out.note = "HiF4X2 is in no TCVT pair; this converts one lane as E1M2X2, without a scale";
    }
  }
  return out;
}

Expected<uint64> source_bits(const Format& from, std::string_view text) {
  if (is_bit_pattern(text)) {
    const auto word = parse_hex(text);
    if (!word) return word.error();
    if ((*word & ~low_mask(from.lane_bits)) == 0) return *word;
    return Error{fmt::format("{}: {} has {} bits{}", text, from.name, from.lane_bits,
                             from.is_packed() ? " in a lane; give one lane" : "")};
  }
  if (text.starts_with('-') && is_bit_pattern(text.substr(1))) {
    return Error{fmt::format("{}: a bit pattern of {} has no sign", text, from.name)};
  }
  const RealLiteral literal = parse_real(text);
  if (literal.fault != nullptr) return Error{fmt::format("{}: {}", abbreviated(text), literal.fault)};
  const auto code = exact_code(from, literal);
  if (code) return *code;
  return Error{
      fmt::format("{}: not a value of {}; give its bits as 0x..., or leave --from out to convert the real number", text,
                  from.name)};
}

std::string abbreviated(std::string_view text) {
  constexpr std::size_t limit = 60;
  if (text.size() <= limit) return std::string(text);
  return fmt::format("{}... ({} characters)", text.substr(0, limit), text.size());
}

std::string_view unmarked(std::string_view value) noexcept {
  return value.starts_with(mark) ? value.substr(1) : value;
}

void mark_negative_values(std::vector<std::string>& arguments) {
  const auto is = [&](std::size_t i, std::string_view word) { return arguments.size() > i && arguments[i] == word; };
  if (!is(0, "convert") && !(is(0, "explain") && is(1, "convert"))) return;
  const auto end_of_options = std::find(arguments.begin(), arguments.end(), "--");
  if (end_of_options != arguments.end()) {
    for (auto it = end_of_options + 1; it != arguments.end(); ++it) {
      if (it->size() > 1 && it->front() == '-') it->insert(it->begin(), mark);
    }
    arguments.erase(end_of_options);
  }
  for (std::string& argument : arguments) {
    if (argument.size() < 2 || argument[0] != '-') continue;
    const bool number = argument[1] == '.' || (argument[1] >= '0' && argument[1] <= '9');
    if (number || parse_real(argument).fault == nullptr) argument.insert(argument.begin(), mark);
  }
}

}  // namespace bitcube::cli
