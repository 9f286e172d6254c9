// bitcube convert: values, or an array in a file, through the conversion of TCVT, one lane each.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "bitcube/numeric/convert.hpp"
#include "bitcube/numeric/real_text.hpp"
#include "bitcube/stream/convert.hpp"
#include "commands.hpp"
#include "conversion_arguments.hpp"

namespace bitcube::cli {
namespace {

struct Options : ConversionArguments {
  std::vector<std::string> values;
  std::string output;  // then the only value is a file
  unsigned threads = 0;
};

struct Row {
  std::string input;
  std::optional<uint64> source;  // bits, with --from TYPE
  Encoded result;
};

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
    json["from"] = conversion.from != nullptr ? conversion.from->name : real_source;
    json["to"] = to.name;
    json["rounding"] = name_of(conversion.control.rounding);
    json["saturate"] = conversion.control.saturate;
    json["profile"] = conversion.control.profile->name;
    if (!conversion.note.empty()) json["note"] = conversion.note;
    list.push_back(std::move(json));
  }
  return list;
}

Expected<const Format*> element_format(const Options& options, const std::string& input, DType dtype) {
  if (equal_ignoring_case(options.from, real_source)) {
    return Error{"--from: real is for values on the command line; the elements of a file have a format"};
  }
  if (!options.from.empty()) {
    auto format = look_up_format("--from", options.from);
    if (!format || (*format)->carrier_bits == 8 * dtype_size(dtype)) return format;
    return Error{fmt::format("--from: {}: {} elements have {} bits, but a lane of {} has {} in memory", input,
                             dtype_name(dtype), 8 * dtype_size(dtype), (*format)->name, (*format)->carrier_bits)};
  }
  if (const Format* native = native_format(dtype)) return native;
  return Error{fmt::format("{}: what {} elements are must be said with --from", input, dtype_name(dtype))};
}

/// convert FILE -o FILE.
Expected<Exit> run_file(const Options& options, const Console& console) {
  if (options.values.size() != 1) {
    return Error{fmt::format("-o: converts one file, but there are {} arguments; without -o they are values",
                             options.values.size())};
  }
  const std::string input(unmarked(options.values.front()));
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
  const auto from = look_up_source(options);
  if (!from) return from.error();
  const auto conversion = prepare(options, *from);
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
    const std::string text(unmarked(value));
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

void add_convert(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("convert", "Convert values, or an array in a file, between number formats");
  const auto options = std::make_shared<Options>();
  add_conversion_options(command, *options);
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
