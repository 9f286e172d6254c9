// bitcube formats: what the descriptors say.
#include <algorithm>
#include <utility>

#include "bitcube/numeric/convert.hpp"
#include "commands.hpp"

namespace bitcube::cli {
namespace {

struct Options {
  std::string name;
  bool table = false;
};

constexpr int kTableBits = 16;  // lanes of more bits have too many codes for a table

struct Code {
  uint64 bits = 0;
  Value value;
};

/// The codes at the ends of the positive range; a format without such a class has no code for it.
struct Extremes {
  std::optional<Code> max_finite;
  std::optional<Code> min_normal;
  std::optional<Code> min_subnormal;
};

Extremes extremes_of(const Format& f) {
  Extremes out;
  const auto consider = [&](uint64 bits) {
    const Code code{bits, decode(f, bits)};
    const Real& x = code.value.real;
    if (!code.value.is_finite() || x.negative || x.is_zero()) return;
    const auto keep = [&](std::optional<Code>& best, int sign) {
      if (!best || to_double(x) * sign > to_double(best->value.real) * sign) best = code;
    };
    keep(out.max_finite, 1);
    keep(code.value.cls == Class::subnormal ? out.min_subnormal : out.min_normal, -1);
  };
  if (f.lane_bits <= 8) {
    for (uint64 bits = 0; bits <= low_mask(f.lane_bits); ++bits) consider(bits);
    return out;
  }
  // The wide formats are integers or have consecutive codes for consecutive magnitudes.
  consider(f.max_finite);
  consider(uint64{1} << f.low_zero_bits);
  if (!f.is_integer()) consider(uint64{1} << (f.fraction_bits + f.low_zero_bits));
  return out;
}

std::string meaning(const Format& f) {
  std::string text;
  switch (f.layout) {
    case Layout::integer:
      text = f.kind == Kind::signed_integer ? "signed integer" : "unsigned integer";
      break;
    case Layout::exponent:
      text = "scale: a power of two";
      break;
    case Layout::reciprocal:
      text = "scale: the reciprocal of E6M2";
      break;
    case Layout::dot_field:
      text = "float of tapered precision";
      break;
    case Layout::fields:
      text = f.kind == Kind::scale     ? "scale: an unsigned float"
             : f.nan == NanCodes::ieee ? "IEEE-like float"
             : f.nan == NanCodes::none ? "float of finite values only"
                                       : "float without infinities";
      break;
  }
  if (f.low_zero_bits != 0) text += fmt::format(", low {} bits zero", f.low_zero_bits);
  if (f.value_bits != f.lane_bits) text += fmt::format(", high {} bits zero", f.lane_bits - f.value_bits);
  if (f.is_packed()) text += ", two per byte";
  if (f.type == DataType::hif4x2) text += ", needs scale words";
  return text;
}

/// "4", or "0-4" where it varies.
std::string range_text(int least, int most) {
  return least == most ? fmt::format("{}", most) : fmt::format("{}-{}", least, most);
}

std::string fields_text(const Format& f) {
  if (f.is_integer()) return "-";
  return fmt::format("{}/{}/{}", f.sign_bits, range_text(f.exponent_bits_min, f.exponent_bits),
                     range_text(f.fraction_bits_min, f.fraction_bits));
}

/// Rounded to 6 digits: the details and --json have all.
std::string short_value(const Format& f, const std::optional<Code>& code) {
  if (!code) return "-";
  return f.is_integer() ? value_text(f, code->value) : fmt::format("{:.6g}", to_double(code->value.real));
}

Json code_json(const Format& f, const std::optional<Code>& code) {
  if (!code) return nullptr;
  return {{"bits", bits_text(f, code->bits)}, {"value", value_json(f, code->value)}};
}

std::string special_text(const Format& f, bool exists, uint64 code) {
  return exists ? bits_text(f, code) : "-";
}

std::vector<std::string_view> destinations_of(const Format& f) {
  std::vector<std::string_view> names;
  for (const Format& to : formats) {
    if (conversion_legal(f, to)) names.push_back(to.name);
  }
  return names;
}

Json describe(const Format& f) {
  const Extremes ends = extremes_of(f);
  Json json = Json::object();
  json["name"] = f.name;
  if (!f.alias.empty()) json["alias"] = f.alias;
  json["code"] = static_cast<unsigned>(f.type);
  json["meaning"] = meaning(f);
  json["lane_bits"] = f.lane_bits;
  json["value_bits"] = f.value_bits;
  json["carrier_bits"] = f.carrier_bits;
  json["lanes_per_carrier"] = f.lanes_per_carrier;
  json["low_zero_bits"] = f.low_zero_bits;
  json["sign_bits"] = f.sign_bits;
  if (!f.is_integer()) {
    json["exponent_bits"] = {f.exponent_bits_min, f.exponent_bits};
    json["fraction_bits"] = {f.fraction_bits_min, f.fraction_bits};
    json["bias"] = f.bias;
  }
  json["max_finite"] = code_json(f, ends.max_finite);
  json["min_normal"] = code_json(f, ends.min_normal);
  json["min_subnormal"] = code_json(f, ends.min_subnormal);
  json["zero"] = f.has_zero;
  json["signed_zero"] = f.has_signed_zero;
  json["nan"] = f.nan != NanCodes::none ? Json(bits_text(f, f.canonical_nan)) : Json();
  json["infinity"] = f.has_infinity ? Json(bits_text(f, f.infinity)) : Json();
  json["converts_to"] = destinations_of(f);
  return json;
}

std::string list_text() {
  TextTable table;
  table.add(
      {"code", "name", "bits", "S/E/F", "bias", "max finite", "min normal", "min subnormal", "NaN", "Inf", "what"});
  for (const Format& f : formats) {
    const Extremes ends = extremes_of(f);
    const bool has_bias = !f.is_integer() && f.layout != Layout::dot_field;
    table.add({fmt::format("{}", static_cast<unsigned>(f.type)), std::string(f.name),
               f.is_packed() ? fmt::format("2x{}", f.lane_bits) : fmt::format("{}", f.lane_bits), fields_text(f),
               has_bias ? fmt::format("{}", f.bias) : "-", short_value(f, ends.max_finite),
               f.is_integer() ? "-" : short_value(f, ends.min_normal), short_value(f, ends.min_subnormal),
               special_text(f, f.nan != NanCodes::none, f.canonical_nan), special_text(f, f.has_infinity, f.infinity),
               meaning(f)});
  }
  const std::array<std::size_t, 1> right{0};
  return table.text(right);
}

std::string details_text(const Format& f) {
  const Extremes ends = extremes_of(f);
  const auto end_text = [&](const std::optional<Code>& code) {
    return code ? fmt::format("{}  ({})", value_text(f, code->value), bits_text(f, code->bits)) : std::string("none");
  };
  TextTable table;
  const std::string alias = f.alias.empty() ? "" : fmt::format(" (or {})", f.alias);
  table.add({"name", fmt::format("{}{}", f.name, alias)});
  table.add({"code", fmt::format("{}", static_cast<unsigned>(f.type))});
  table.add({"what", meaning(f)});
  table.add({"bits", f.is_packed()
                         ? fmt::format("{} per lane, two lanes per byte, even lane in the low nibble", f.lane_bits)
                         : fmt::format("{}", f.lane_bits)});
  if (!f.is_integer()) {
    table.add({"fields", fmt::format("sign {}, exponent {}, fraction {}", f.sign_bits,
                                     range_text(f.exponent_bits_min, f.exponent_bits),
                                     range_text(f.fraction_bits_min, f.fraction_bits))});
    if (f.layout != Layout::dot_field) table.add({"bias", fmt::format("{}", f.bias)});
  }
  if (f.kind == Kind::signed_integer) table.add({"minimum", value_text(f, decode(f, f.max_finite + 1))});
  table.add({f.is_integer() ? "maximum" : "max finite", end_text(ends.max_finite)});
  if (!f.is_integer()) {
    table.add({"min normal", end_text(ends.min_normal)});
    table.add({"min subnormal", end_text(ends.min_subnormal)});
    table.add({"zero", !f.has_zero ? "none" : f.has_signed_zero ? "+0 and -0" : "+0 only"});
    table.add({"NaN", f.nan == NanCodes::none ? "none" : fmt::format("{} (canonical)", bits_text(f, f.canonical_nan))});
    table.add({"Inf", f.has_infinity ? bits_text(f, f.infinity) : "none"});
  }
  const auto destinations = destinations_of(f);
  table.add({"converts to", destinations.empty() ? "nothing" : fmt::format("{}", fmt::join(destinations, " "))});
  return table.text();
}

std::string decomposition_text(const Decomposition& d) {
  return d.available ? fmt::format("{}{} * 2^{}", d.negative ? "-" : "", d.significand, d.exponent) : "-";
}

std::string codes_text(const Format& f) {
  TextTable table;
  table.add({"code", "class", "value", "exactly"});
  for (uint64 code = 0; code <= low_mask(f.lane_bits); ++code) {
    table.add({bits_text(f, code), std::string(name_of(classify(f, code))), value_text(f, decode(f, code)),
               decomposition_text(decompose(f, code))});
  }
  const std::array<std::size_t, 2> right{2, 3};
  return table.text(right);
}

Json codes_json(const Format& f) {
  Json codes = Json::array();
  for (uint64 code = 0; code <= low_mask(f.lane_bits); ++code) {
    const Decomposition d = decompose(f, code);
    Json row{
        {"bits", bits_text(f, code)}, {"class", name_of(classify(f, code))}, {"value", value_json(f, decode(f, code))}};
    row["decomposition"] =
        d.available ? Json{{"negative", d.negative}, {"significand", d.significand}, {"exponent", d.exponent}} : Json();
    codes.push_back(std::move(row));
  }
  return codes;
}

Expected<Exit> run(const Options& options, const Console& console) {
  if (options.name.empty()) {
    if (options.table) return Error{"--table: name a format, as in: bitcube formats e4m3 --table"};
    if (!console.json()) {
      if (auto printed = console.print(list_text()); !printed) return printed.error();
      return Exit::success;
    }
    Json list = Json::array();
    for (const Format& f : formats) list.push_back(describe(f));
    if (auto printed = console.print_json(list); !printed) return printed.error();
    return Exit::success;
  }
  const auto found = look_up_format("NAME", options.name);
  if (!found) return found.error();
  const Format& f = **found;
  if (options.table && f.lane_bits > kTableBits) {
    return Error{fmt::format("--table: {} has 2^{} codes; tables are for formats of at most {} bits", f.name,
                             f.lane_bits, kTableBits)};
  }
  Expected<void> printed;
  if (console.json()) {
    Json json = describe(f);
    if (options.table) json["codes"] = codes_json(f);
    printed = console.print_json(json);
  } else {
    printed = console.print(details_text(f) + (options.table ? "\n" + codes_text(f) : ""));
  }
  if (!printed) return printed.error();
  return Exit::success;
}

}  // namespace

void add_formats(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("formats", "List the number formats, or show one");
  const auto options = std::make_shared<Options>();
  command.add_option("NAME", options->name, "A format, such as e4m3 or hif4, in any case");
  command.add_flag("--table", options->table, "Every code of a format of at most 16 bits, with class and value");
  add_json(command);
  add_examples(command,
               "  bitcube formats\n"
               "  bitcube formats hif8\n"
               "  bitcube formats e2m1 --table");
  command.callback([=, &console, &action] { action = [=, &console] { return run(*options, console); }; });
}

}  // namespace bitcube::cli
