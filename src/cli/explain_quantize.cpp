// bitcube explain quantize: how one element of an array is quantised, step by step.
#include "bitcube/explain/quantize.hpp"

#include "explain.hpp"
#include "quantize_arguments.hpp"

namespace bitcube::cli {
namespace {

struct Options : QuantizeArguments {
  std::string at;
};

Expected<Exit> run(const Options& options, const Console& console) {
  auto how = resolve(options);
  if (!how) return how.error();
  how->execution = execution_of(options.threads);
  const auto index = parse_index(options.at);
  if (!index) return index.error();
  const auto array = read_array(options.input);
  if (!array) return array.error();
  const auto axis = resolve_axis(options.axis, array->shape);
  if (!axis) return axis.error();
  const auto input = describe_input(*array, options);
  if (!input) return input.error();
  bool inside = index->size() == array->shape.size();
  for (std::size_t i = 0; inside && i < index->size(); ++i) inside = (*index)[i] < array->shape[i];
  if (!inside) {
    return Error{fmt::format("--at: {} is not in {}, whose shape is {}; it takes {} from 0", options.at, options.input,
                             shape_text(array->shape),
                             array->shape.size() == 1 ? "one number" : fmt::format("{} numbers", array->shape.size()))};
  }
  if (auto fits = check_memory("reading " + options.input, array->size()); !fits) return fits.error();
  const auto bytes = array->load();
  if (!bytes) return bytes.error();
  return print_document(
      explain_quantize(*bytes, *input->source.stored, array->shape, *axis, *how, *index, input->source.rounded),
      console);
}

}  // namespace

void add_explain_quantize(CLI::App& explain, const Console& console, Action& action) {
  CLI::App& command = *explain.add_subcommand(
      "quantize", "An element in a block format: group, maxima, scale, product, code, error, and every other profile");
  const auto options = std::make_shared<Options>();
  command
      .add_option("INPUT", options->input,
                  "A .npy array: float16, float32, float64, bfloat16, or uint16 as BF16 bits; or IN.bin:DTYPE:SHAPE")
      ->type_name("W.npy")
      ->required();
  command.add_option("--at", options->at, "The element: its index, from 0, one number per dimension")
      ->type_name("I,J")
      ->required();
  add_quantize_choices(command, *options);
  add_limits(command, options->threads);
  add_json(command);
  add_examples(command,
               "  bitcube explain quantize W.npy --format hif4 --at 3,129\n"
               "  bitcube explain quantize W.npy --format mxfp8-e4m3 --scale rceil --axis 0 --at 3,129\n"
               "  bitcube explain quantize W.npy --format nvfp4 --tensor-scale --at 3,129 --json");
  command.callback([=, &console, &action] { action = [=, &console] { return run(*options, console); }; });
}

}  // namespace bitcube::cli
