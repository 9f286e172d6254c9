// bitcube convert: values, or an array in a file, through the conversion of TCVT, one lane each.
#include <unistd.h>
#include <algorithm>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "bitcube/numeric/convert.hpp"
#include "bitcube/numeric/exact_code.hpp"
#include "bitcube/numeric/real_text.hpp"
#include "bitcube/stream/convert.hpp"
#include "commands.hpp"

namespace bitcube::cli {
namespace {

/// A text that somebody typed, cut to what a message can hold.
std::string abbreviated(std::string_view text) {
  constexpr std::size_t limit = 60;
  if (text.size() <= limit) return std::string(text);
  return fmt::format("{}... ({} characters)", text.substr(0, limit), text.size());
}

constexpr std::string_view kReal = "real";
constexpr char kMark = ' ';  // before a negative number that CLI11 must leave alone

struct Options {
  std::string to;
  std::string from;  // empty: kReal, or of a file what its dtype says
  std::string round;
  std::string profile{pto_profile.name};
  bool saturate = false;
  std::vector<std::string> values;
  std::string output;  // then the only value is a file
  unsigned threads = 0;
};

/// What is done to every value.
struct Conversion {
  const Format* from = nullptr;  // nullptr: an exact real
  const Format* to = nullptr;
  EncodeControl control;
  std::string note;
};

struct Row {
  std::string input;
  std::optional<uint64> source;  // bits, with --from TYPE
  Encoded result;
};

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

/// `from` is nullptr for exact reals.
Expected<Conversion> prepare(const Options& options, const Format* from) {
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

/// The bits that --from TYPE reads from a text.
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

Expected<Row> convert_text(const Conversion& conversion, const std::string& text) {
  Row row;
  row.input = text;
  if (conversion.from == nullptr) {
    const RealLiteral literal = parse_real(text);
    if (literal.fault != nullptr) return Error{fmt::format("'{}': {}", abbreviated(text), literal.fault)};
    row.result = convert_value(*conversion.to, literal.cls, literal.real, conversion.control);
    return row;
  }
  const auto bits = source_bits(*conversion.from, text);
  if (!bits) return bits.error();
  row.source = *bits;
  row.result = convert(*conversion.from, *conversion.to, *bits, conversion.control);
  return row;
}

/// Standard input as lines without surrounding blanks; empty ones are left out.
Expected<std::vector<std::string>> read_lines() {
  std::string text;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error{fmt::format("standard input: {}", std::generic_category().message(errno))};
    if (count == 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first != std::string::npos) lines.push_back(line.substr(first, line.find_last_not_of(" \t\r") - first + 1));
    begin = end + 1;
  }
  return lines;
}

std::string rows_text(const Conversion& conversion, const std::vector<Row>& rows) {
  const Format& to = *conversion.to;
  TextTable table;
  for (const Row& row : rows) {
    std::vector<std::string> cells{row.input};
    if (row.source) cells.push_back("= " + value_text(*conversion.from, decode(*conversion.from, *row.source)));
    cells.push_back(fmt::format("-> {}", bits_text(to, row.result.bits)));
    cells.push_back(" " + value_text(to, decode(to, row.result.bits)));
    cells.push_back(" " + flags_text(row.result.flags));
    cells.push_back(fmt::format("({}{}, {})", name_of(conversion.control.rounding),
                                conversion.control.saturate ? ", sat" : "", conversion.control.profile->name));
    table.add(std::move(cells));
  }
  return table.text({}, " ");
}

Json rows_json(const Conversion& conversion, const std::vector<Row>& rows) {
  const Format& to = *conversion.to;
  Json list = Json::array();
  for (const Row& row : rows) {
    Json json{{"input", row.input}};
    if (row.source) {
      json["source_bits"] = bits_text(*conversion.from, *row.source);
      json["source_value"] = value_json(*conversion.from, decode(*conversion.from, *row.source));
    }
    json["bits"] = bits_text(to, row.result.bits);
    json["value"] = value_json(to, decode(to, row.result.bits));
    json["class"] = name_of(classify(to, row.result.bits, *conversion.control.profile));
    json["flags"] = flags_json(row.result.flags);
    json["from"] = conversion.from != nullptr ? conversion.from->name : kReal;
    json["to"] = to.name;
    json["rounding"] = name_of(conversion.control.rounding);
    json["saturate"] = conversion.control.saturate;
    json["profile"] = conversion.control.profile->name;
    if (!conversion.note.empty()) json["note"] = conversion.note;
    list.push_back(std::move(json));
  }
  return list;
}

struct NativeType {
  DType dtype;
  DataType type;
};
/// What the elements of a file are where no --from says otherwise.
constexpr std::array native_types{NativeType{DType::kF64, DataType::fp64}, NativeType{DType::kF32, DataType::fp32},
                                  NativeType{DType::kF16, DataType::fp16}, NativeType{DType::kBF16, DataType::bf16},
                                  NativeType{DType::kI64, DataType::s64},  NativeType{DType::kI32, DataType::s32},
                                  NativeType{DType::kI16, DataType::s16},  NativeType{DType::kI8, DataType::s8},
                                  NativeType{DType::kU64, DataType::u64},  NativeType{DType::kU32, DataType::u32},
                                  NativeType{DType::kU16, DataType::u16},  NativeType{DType::kU8, DataType::u8}};

Expected<const Format*> element_format(const Options& options, const std::string& input, DType dtype) {
  if (equal_ignoring_case(options.from, kReal)) {
    return Error{"--from: real is for values on the command line; the elements of a file have a format"};
  }
  if (!options.from.empty()) {
    auto format = look_up_format("--from", options.from);
    if (!format || (*format)->carrier_bits == 8 * dtype_size(dtype)) return format;
    return Error{fmt::format("--from: {}: {} elements have {} bits, but a lane of {} has {} in memory", input,
                             dtype_name(dtype), 8 * dtype_size(dtype), (*format)->name, (*format)->carrier_bits)};
  }
  for (const NativeType& native : native_types) {
    if (native.dtype == dtype) return &format_of(native.type);
  }
  return Error{fmt::format("{}: what {} elements are must be said with --from", input, dtype_name(dtype))};
}

/// convert FILE -o FILE.
Expected<Exit> run_file(const Options& options, const Console& console) {
  if (options.values.size() != 1) {
    return Error{fmt::format("-o: converts one file, but there are {} arguments; without -o they are values",
                             options.values.size())};
  }
  std::string input = options.values.front();
  if (input.starts_with(kMark)) input.erase(0, 1);
  const auto array = read_array(input);
  if (!array) return array.error();
  const auto from = element_format(options, input, array->dtype);
  if (!from) return from.error();
  const auto conversion = prepare(options, *from);
  if (!conversion) return conversion.error();
  const Format& to = *conversion->to;
  auto output = create_output(options.output, {&input, 1});
  if (!output) return output.error();
  if (array->dtype == DType::kU16 && options.from.empty()) {
    console.note(fmt::format("{}: uint16 elements are read as U16 integers; for bits of BF16 give --from bf16", input));
  }
  if (!conversion->note.empty()) console.note(conversion->note);

  const Stopwatch clock;
  ProgressBar bar("convert");
  const auto result = stream::convert(*array, **from, to, conversion->control, *output,
                                      execution_of(options.threads, bar.callback()), window_size());
  if (!result) return result.error();
  const double seconds = clock.seconds();
  note_bf16(console, to);

  const EncodeControl& control = conversion->control;
  const std::string_view dtype = dtype_name(array_dtype(to));
  Expected<void> printed;
  if (console.json()) {
    Json json{{"input", input}, {"output", options.output}, {"shape", array->shape}, {"count", result->count}};
    json["from"] = (*from)->name;
    json["to"] = to.name;
    json["dtype"] = dtype;
    json["rounding"] = name_of(control.rounding);
    json["saturate"] = control.saturate;
    json["profile"] = control.profile->name;
    if (!conversion->note.empty()) json["note"] = conversion->note;
    json["flags"] = flags_json(result->flags);
    json["sha256"] = result->sha256;
    json["seconds"] = seconds;
    printed = console.print_json(json);
  } else {
    TextTable table;
    table.add({"input", fmt::format("{}  {}  {} ({})", input, shape_text(array->shape), (*from)->name,
                                    dtype_name(array->dtype))});
    table.add(
        {"output", fmt::format("{}  {} ({}), {}{}, profile {}", options.output, to.name, dtype,
                               name_of(control.rounding), control.saturate ? ", sat" : "", control.profile->name)});
    table.add({"elements", fmt::format("{}", result->count)});
    table.add({"flags", flags_text(result->flags)});
    table.add({"sha256", result->sha256});
    table.add({"time", fmt::format("{:.3f} s", seconds)});
    printed = console.print(table.text());
  }
  if (!printed) return printed.error();
  if (auto done = output->commit(); !done) return done.error();
  return Exit::success;
}

Expected<Exit> run(const Options& options, const Console& console) {
  if (!options.output.empty()) return run_file(options, console);
  const Format* from = nullptr;
  if (!options.from.empty() && !equal_ignoring_case(options.from, kReal)) {
    const auto found = look_up_format("--from", options.from);
    if (!found) return found.error();
    from = *found;
  }
  const auto conversion = prepare(options, from);
  if (!conversion) return conversion.error();
  std::vector<Row> rows;
  const auto add = [&](const std::string& text) -> Expected<void> {
    auto row = convert_text(*conversion, text);
    if (!row && (text.ends_with(".npy") || parse_raw_array(text))) {
      return Error{row.error().message + "; to convert a file, say with -o where the result goes"};
    }
    if (!row) return row.error();
    rows.push_back(std::move(*row));
    return {};
  };
  for (const std::string& value : options.values) {
    const std::string text = value.starts_with(kMark) ? value.substr(1) : value;
    if (text != "-") {
      if (auto added = add(text); !added) return added.error();
      continue;
    }
    const auto lines = read_lines();
    if (!lines) return lines.error();
    for (const std::string& line : *lines) {
      if (auto added = add(line); !added) return Error{"standard input: " + added.error().message};
    }
  }
  if (!conversion->note.empty()) console.note(conversion->note);
  const auto printed =
      console.json() ? console.print_json(rows_json(*conversion, rows)) : console.print(rows_text(*conversion, rows));
  if (!printed) return printed.error();
  return Exit::success;
}

}  // namespace

void mark_negative_values(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front() != "convert") return;
  const auto end_of_options = std::find(arguments.begin(), arguments.end(), "--");
  if (end_of_options != arguments.end()) {
    for (auto it = end_of_options + 1; it != arguments.end(); ++it) {
      if (it->size() > 1 && it->front() == '-') it->insert(it->begin(), kMark);
    }
    arguments.erase(end_of_options);
  }
  for (std::string& argument : arguments) {
    if (argument.size() < 2 || argument[0] != '-') continue;
    const bool number = argument[1] == '.' || (argument[1] >= '0' && argument[1] <= '9');
    if (number || parse_real(argument).fault == nullptr) argument.insert(argument.begin(), kMark);
  }
}

void add_convert(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("convert", "Convert values, or an array in a file, between number formats");
  const auto options = std::make_shared<Options>();
  command.add_option("--to", options->to, "Destination format; bitcube formats lists them")
      ->type_name("TYPE")
      ->required();
  command
      .add_option("--from", options->from,
                  "Source format; default: real, an exact real number, rounded once; of a file: what its dtype says")
      ->type_name("TYPE|real");
  command.add_option("--round", options->round, "Rounding; default: RTZ from float to integer, otherwise RNE")
      ->type_name(choices(roundings));
  command.add_flag("--sat", options->saturate, "Saturate: Sat = 1");
  command.add_option("--profile", options->profile, "Conversion profile; default: pto")
      ->type_name(choices(conversion_profiles));
  command
      .add_option("VALUE", options->values,
                  "1.0625, -0x1.8p-3, inf, nan; with --from TYPE also 0x3F88, the bits; - reads standard input, a "
                  "value per line; with -o one file: IN.npy, or IN.bin:DTYPE:SHAPE")
      ->required();
  command
      .add_option("-o,--output", options->output,
                  "Convert a file into this one, an element per lane: float, intN or uintN of the width of TYPE; bf16 "
                  "is stored as uint16, codes as uint8")
      ->type_name("OUT.npy");
  add_limits(command, options->threads);
  add_json(command);
  add_examples(command,
               "  bitcube convert --to e4m3 1.0625 -0x1.8p-3 inf\n"
               "  bitcube convert --to e4m3 --from fp32 0x3F880000\n"
               "  bitcube convert --to s8 --round rhb --sat 2.5 -2.5 300\n"
               "  seq 0 0.1 2 | bitcube convert --to e2m1 --json -\n"
               "  bitcube convert W.npy --to e4m3 --sat -o W8.npy\n"
               "  bitcube convert W8.npy --from e4m3 --to fp16 -o W16.npy");
  command.callback([=, &console, &action] { action = [=, &console] { return run(*options, console); }; });
}

}  // namespace bitcube::cli
