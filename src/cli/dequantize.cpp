// bitcube dequantize: a packed tensor back to plain numbers.
#include <array>
#include <utility>

#include "bitcube/stream/quantize.hpp"
#include "commands.hpp"

namespace bitcube::cli {
namespace {

struct Options {
  std::string input;
  std::string output;
  std::string to{"fp32"};
  std::string round;
  std::string name;
  unsigned threads = 0;
};

struct Destination {
  std::string_view name;
  const Format* format;
};
constexpr std::array<Destination, 4> destinations{{{"fp32", &fp32}, {"fp16", &fp16}, {"bf16", &bf16}, {"fp64", &fp64}}};

const Destination* find_destination(std::string_view name) {
  for (const Destination& d : destinations) {
    if (equal_ignoring_case(d.name, name)) return &d;
  }
  return nullptr;
}

Expected<Exit> run(const Options& options, const Console& console) {
  const auto destination = look_up("--to", options.to, destinations, find_destination);
  if (!destination) return destination.error();
  const auto rounding = look_up_rounding("--round", options.round);
  if (!rounding) return rounding.error();
  const auto tensor = PackedReader::open(options.input, options.name);
  if (!tensor) return tensor.error();
  auto output = create_output(options.output, {&options.input, 1});
  if (!output) return output.error();
  const Stopwatch clock;
  const Format& to = *(*destination)->format;
  const Rounding mode = rounding->value_or(Rounding::rne);
  ProgressBar bar("dequantize");
  const auto flags =
      stream::dequantize(*tensor, to, mode, *output, execution_of(options.threads, bar.callback()), window_size());
  if (!flags) return flags.error();
  const double seconds = clock.seconds();
  const QuantizedTensor& description = tensor->description();

  note_bf16(console, to);
  const std::string_view dtype = dtype_name(array_dtype(to));
  Expected<void> printed;
  if (console.json()) {
    Json json = Json::object();
    json["input"] = options.input;
    json["output"] = options.output;
    json["format"] = description.format->name;
    json["shape"] = description.shape;
    json["type"] = to.name;
    json["dtype"] = dtype;
    json["rounding"] = name_of(mode);
    json["flags"] = flags_json(*flags);
    json["seconds"] = seconds;
    printed = console.print_json(json);
  } else {
    TextTable table;
    table.add(
        {"input", fmt::format("{}  {}  {}", options.input, shape_text(description.shape), description.format->name)});
    table.add({"output", fmt::format("{}  {} ({}), {}", options.output, to.name, dtype, name_of(mode))});
    table.add({"flags", flags_text(*flags)});
    table.add({"time", fmt::format("{:.3f} s", seconds)});
    printed = console.print(table.text());
  }
  if (!printed) return printed.error();
  if (auto done = output->commit(); !done) return done.error();
  return Exit::success;
}

}  // namespace

void add_dequantize(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("dequantize", "Turn a quantised tensor back into numbers");
  const auto options = std::make_shared<Options>();
  command.add_option("INPUT", options->input, "A file of bitcube quantize")->type_name("W.safetensors")->required();
  command.add_option("-o,--output", options->output, "The array")->type_name("W.npy")->required();
  command.add_option("--to", options->to, "Element type; default: fp32; bf16 is stored as uint16")
      ->type_name(choices(destinations));
  command.add_option("--round", options->round, "Rounding, where the type cannot hold a value; default: RNE")
      ->type_name(choices(roundings));
  command.add_option("--name", options->name, "The tensor, in a file that has several")->type_name("TENSOR");
  add_limits(command, options->threads);
  add_json(command);
  add_examples(command,
               "  bitcube dequantize W.safetensors -o W.npy\n"
               "  bitcube dequantize W.safetensors --to fp16 -o W.npy");
  command.callback([=, &console, &action] { action = [=, &console] { return run(*options, console); }; });
}

}  // namespace bitcube::cli
