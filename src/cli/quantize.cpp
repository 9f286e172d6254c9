// bitcube quantize: an array into a block format, with its error. Whole checkpoints are in checkpoint.cpp.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <utility>

#include "bitcube/quantize/convert_array.hpp"
#include "bitcube/stream/quantize.hpp"
#include "commands.hpp"
#include "quantize_arguments.hpp"

namespace bitcube::cli {
namespace {

using Options = QuantizeArguments;

/// What the elements of an array are; nullptr for a dtype that is not accepted.
const Format* element_format(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return &fp64;
    case DType::kF32:
      return &fp32;
    case DType::kF16:
      return &fp16;
    case DType::kBF16:
    case DType::kU16:
      return &bf16;
    default:
      return nullptr;
  }
}

bool holds_codes(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kU16 || dtype == DType::kU32 || dtype == DType::kU64;
}

/// How the elements were read, once it is known which flags that has raised.
std::string remark_of(const QuantizeInput& input, const stream::Quantized& result) {
  if (input.source.rounded == nullptr) return input.remark;
  return fmt::format("{}, rounded to {} (RNE, flags {})", input.remark, input.source.rounded->name,
                     flags_text(result.rounding_flags));
}

std::string report_text(const Options& options, const QuantizeInput& input, const stream::Quantized& result,
                        double seconds) {
  const QuantizedTensor& t = result.description;
  const ErrorReport& error = result.error;
  Lines lines;
  lines_of(t.shape, t.axis, lines);
  const BlockFormat& f = *t.format;
  const uint64 groups = lines.count * f.groups(lines.length);
  const uint64 rest = lines.length % f.group;
  std::string group_text = fmt::format("{} of {} lanes", groups, f.group);
  if (rest != 0) group_text += fmt::format(", the last of each line {}", rest);
  const auto bytes = result.code_bytes + result.scale_bytes;
  std::string bytes_text = fmt::format("{}: codes {}, scales {}", bytes, result.code_bytes, result.scale_bytes);
  if (error.lanes != 0) {
    bytes_text +=
        fmt::format("; {:.3f} bits per element", static_cast<double>(bytes) * 8 / static_cast<double>(error.lanes));
  }
  TextTable table;
  table.add({"input", fmt::format("{}  {}  {} ({})", options.input, shape_text(t.shape), t.source->name,
                                  remark_of(input, result))});
  table.add({"output", fmt::format("{}  {}, {}, axis {}", options.output, f.name, choices_of(t), t.axis)});
  table.add({"groups", group_text});
  table.add({"bytes", bytes_text});
  table.add({"relative error", fmt::format("max {:.6g}, mean {:.6g} over {} lanes that are not zero",
                                           error.max_relative_error, error.mean_relative_error, error.non_zero)});
  table.add(
      {"absolute error", fmt::format("max {:.6g}, MSE {:.6g}", error.max_absolute_error, error.mean_squared_error)});
  table.add({"SQNR", sqnr_text(error)});
  if (error.non_finite != 0) {
    table.add({"not finite", fmt::format("{} lanes, in no error above", error.non_finite)});
  }
  if (!options.goldens.empty()) table.add({"goldens", options.goldens});
  table.add({"time", fmt::format("{:.3f} s", seconds)});
  return table.text();
}

Json report_json(const Options& options, const QuantizeInput& input, const stream::Quantized& result, double seconds) {
  const QuantizedTensor& t = result.description;
  const ErrorReport& error = result.error;
  Lines lines;
  lines_of(t.shape, t.axis, lines);
  Json json{{"input", options.input}, {"output", options.output}, {"name", options.name}, {"shape", t.shape}};
  json["source"] = t.source->name;
  json["source_remark"] = remark_of(input, result);
  json["format"] = t.format->name;
  if (t.profile != nullptr) json["profile"] = t.profile->name;
  if (t.scale_rule != nullptr) json["scale_rule"] = t.scale_rule->name;
  json["rounding"] = name_of(t.rounding);
  if (t.tensor_scale) json["tensor_scale"] = fmt::format("0x{:08X}", *t.tensor_scale);
  json["axis"] = t.axis;
  json["groups"] = lines.count * t.format->groups(lines.length);
  json["group"] = t.format->group;
  json["bytes"] = {{"codes", result.code_bytes}, {"scales", result.scale_bytes}};
  json["error"] = error_json(error);
  if (!options.goldens.empty()) json["goldens"] = options.goldens;
  json["seconds"] = seconds;
  return json;
}

/// Errors: options that are for checkpoints only.
Expected<void> check_for_array(const Options& options) {
  const std::pair<const char*, bool> given[] = {{"--include", !options.include.empty()},
                                                {"--exclude", !options.exclude.empty()},
                                                {"--min-dim", options.min_dim.has_value()},
                                                {"--min-rank", options.min_rank.has_value()},
                                                {"--dry-run", options.dry_run}};
  for (const auto& [option, is_given] : given) {
    if (is_given) {
      return Error{fmt::format("{}: is for checkpoints, files named *.safetensors or *.index.json; {} is an array",
                               option, options.input)};
    }
  }
  return {};
}

Expected<Exit> run(Options options, const Console& console) {
  if (options.output.empty() && !options.dry_run) {
    return Error{"--output is required (see bitcube quantize --help)"};
  }
  if (is_checkpoint(options.input)) return quantize_checkpoint(options, console);
  if (auto ok = check_for_array(options); !ok) return ok.error();
  auto quantize_options = resolve(options);
  if (!quantize_options) return quantize_options.error();
  const auto array = read_array(options.input);
  if (!array) return array.error();
  const auto axis = resolve_axis(options.axis, array->shape);
  if (!axis) return axis.error();
  auto output = create_output(options.output, {&options.input, 1}, console.team());
  if (!output) return output.error();
  const auto input = describe_input(*array, options);
  if (!input) return input.error();
  std::optional<GoldenWriter> goldens;
  if (!options.goldens.empty()) {
    const std::array<std::string, 2> others{options.input, options.output};
    for (const auto& path : golden_paths(options.goldens, options.maxima)) {
      if (auto ok = check_output(path.string(), others); !ok) return Error{"--goldens: " + ok.error().message};
    }
    auto created = GoldenWriter::create(options.goldens, options.maxima);
    if (!created) return created.error();
    goldens = std::move(*created);
  }
  if (options.name.empty()) options.name = std::filesystem::path(array_path(options.input)).stem().string();

  const Stopwatch clock;
  ProgressBar bar("quantize");
  quantize_options->execution = team_execution_of(console, options.threads, bar.callback());
  const auto result = stream::quantize(input->source, *axis, *quantize_options, options.name, *output,
                                       goldens ? &*goldens : nullptr, window_size());
  if (!result) return result.error();
  const double seconds = clock.seconds();

  std::vector<OutputFile> files;
  files.push_back(std::move(*output));
  if (goldens) {
    auto complete = goldens->take();
    if (!complete) return complete.error();
    std::move(complete->begin(), complete->end(), std::back_inserter(files));
  }
  const auto printed = console.json() ? console.print_json(report_json(options, *input, *result, seconds))
                                      : console.print(report_text(options, *input, *result, seconds));
  if (!printed) return printed.error();
  std::vector<OutputFile*> all;
  all.reserve(files.size());
  for (OutputFile& file : files) all.push_back(&file);
  if (auto done = commit_all(all); !done) return done.error();
  return Exit::success;
}

}  // namespace

Expected<QuantizeInput> describe_input(const NpyArray& array, const QuantizeArguments& options) {
  QuantizeInput out;
  out.source.array = &array;
  const Format* native = element_format(array.dtype);
  const auto source_type = resolve_source_type(options);
  if (!source_type) return source_type.error();
  const Format* wanted = *source_type;
  if (wanted != nullptr && holds_codes(array.dtype)) {
    if (wanted->carrier_bits != 8 * array.element_size()) {
      return Error{fmt::format("--source-type: {} elements have {} bits, but codes of {} have {}",
                               dtype_name(array.dtype), 8 * array.element_size(), wanted->name, wanted->carrier_bits)};
    }
    out.source.stored = wanted;
    out.remark = fmt::format("{}, read as {} bits", dtype_name(array.dtype), wanted->name);
    return out;
  }
  out.source.stored = native;
  if (native == nullptr) {
    return Error{fmt::format("{}: {} elements; accepted are {}, or unsigned codes with --source-type", options.input,
                             dtype_name(array.dtype), kQuantizedArrays)};
  }
  out.remark = holds_codes(array.dtype) ? fmt::format("{}, read as BF16 bits", dtype_name(array.dtype))
                                        : std::string(dtype_name(array.dtype));
  if (wanted == nullptr || wanted == native) return out;
  if (const auto legal = convert_array({}, *native, *wanted); !legal) {
    return Error{"--source-type: " + legal.error().message};
  }
  out.source.rounded = wanted;
  return out;
}

Expected<std::size_t> resolve_axis(std::int64_t axis, std::span<const uint64> shape) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (rank == 0) return Error{"--axis: the array is a scalar, which has no axis"};
  if (axis < -rank || axis >= rank) {
    return Error{
        fmt::format("--axis: {} is outside of {}; it goes from {} to {}", axis, shape_text(shape), -rank, rank - 1)};
  }
  return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
}

Expected<QuantizeOptions> resolve(const QuantizeArguments& options) {
  QuantizeOptions out;
  const auto format = look_up("--format", options.format, block_formats, find_block_format);
  if (!format) return format.error();
  out.format = *format;
  const BlockFormat& f = **format;
  const auto refuse = [&](std::string_view option, std::string_view owner) {
    return Error{fmt::format("{}: {} has none; it is for {}", option, f.name, owner)};
  };
  if (!options.profile.empty()) {
    if (!f.is_hif4()) return refuse("--profile", "hif4");
    const auto profile = look_up("--profile", options.profile, hif4_profiles, find_hif4_profile);
    if (!profile) return profile.error();
    out.profile = *profile;
  }
  if (!options.scale.empty()) {
    if (!f.is_mx()) return refuse("--scale", "the MX formats");
    const auto rule = look_up("--scale", options.scale, scale_rules, find_scale_rule);
    if (!rule) return rule.error();
    out.scale_rule = *rule;
  }
  if (options.tensor_scale && !f.is_nvfp4()) return refuse("--tensor-scale", "nvfp4");
  out.tensor_scale = options.tensor_scale;
  const auto rounding = look_up_rounding("--round", options.round);
  if (!rounding) return rounding.error();
  if (*rounding && f.is_hif4()) return Error{"--round: the rounding of hif4 belongs to its --profile"};
  out.rounding = rounding->value_or(Rounding::rne);
  if (!options.goldens.empty() && !f.is_hif4()) return refuse("--goldens", "hif4");
  if (options.maxima && options.goldens.empty()) return Error{"--maxima: needs --goldens DIR"};
  return out;
}

Expected<const Format*> resolve_source_type(const QuantizeArguments& arguments) {
  if (arguments.source_type.empty()) return nullptr;
  const auto found = look_up_format("--source-type", arguments.source_type);
  if (!found) return found.error();
  if (is_quantize_source(**found)) return *found;
  return Error{fmt::format("--source-type: nothing is quantised from {}; it must be a float", (*found)->name)};
}

std::string choices_of(const QuantizedTensor& t) {
  if (t.profile != nullptr) return fmt::format("profile {}", t.profile->name);
  std::string text = t.scale_rule != nullptr ? fmt::format("scale rule {}, ", t.scale_rule->name) : std::string();
  text += fmt::format("elements {}", name_of(t.rounding));
  if (t.tensor_scale) text += fmt::format(", tensor scale 0x{:08X}", *t.tensor_scale);
  return text;
}

std::string sqnr_text(const ErrorReport& error) {
  return std::isnan(error.sqnr) ? "-" : fmt::format("{:.3f} dB", error.sqnr);
}

Json error_json(const ErrorReport& error) {
  return {{"lanes", error.lanes},
          {"non_zero", error.non_zero},
          {"non_finite", error.non_finite},
          {"max_relative", number_json(error.max_relative_error)},
          {"mean_relative", number_json(error.mean_relative_error)},
          {"max_absolute", number_json(error.max_absolute_error)},
          {"mse", number_json(error.mean_squared_error)},
          {"sqnr_db", std::isnan(error.sqnr) ? Json() : number_json(error.sqnr)}};
}

void add_quantize_choices(CLI::App& command, QuantizeArguments& arguments) {
  command.add_option("-f,--format", arguments.format, "Block format")->type_name(choices(block_formats))->required();
  command.add_option("--axis", arguments.axis, "The axis along which groups lie; default: -1, the last")
      ->type_name("N")
      ->check(signed_number());
  command.add_option("--profile", arguments.profile, "Profile of hif4; default: pto")
      ->type_name(choices(hif4_profiles));
  command.add_option("--scale", arguments.scale, "Scale rule of the MX formats; default: floor")
      ->type_name(choices(scale_rules));
  command.add_option("--round", arguments.round, "Rounding of the elements of MX and nvfp4; default: RNE")
      ->type_name(choices(roundings));
  command.add_flag("--tensor-scale", arguments.tensor_scale, "nvfp4: with an FP32 scale of the whole tensor");
  command
      .add_option("--source-type", arguments.source_type,
                  "Round the elements to this float first; of unsigned arrays: what the codes are")
      ->type_name("TYPE");
}

void add_quantize(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command =
      *root.add_subcommand("quantize", "Quantise an array, or a whole checkpoint, to HiF4, an MX format or NVFP4");
  const auto options = std::make_shared<Options>();
  command
      .add_option("INPUT", options->input,
                  "A .npy array: float16, float32, float64, bfloat16, or uint16 as BF16 bits; or a checkpoint: "
                  "model.safetensors, or model.safetensors.index.json for all its shards")
      ->type_name("W.npy|W.safetensors|W.index.json")
      ->required();
  command
      .add_option(
          "-o,--output", options->output,
          "The packed tensor, the new checkpoint, or the directory for the new shards and their index; required "
          "but with --dry-run")
      ->type_name("W.safetensors|DIR");
  add_quantize_choices(command, *options);
  add_limits(command, options->threads);
  add_json(command);
  constexpr const char* kArrays = "Arrays";
  command.add_option("--name", options->name, "Name of the tensor in the file; default: that of the input file")
      ->type_name("NAME")
      ->group(kArrays);
  command
      .add_option("--goldens", options->goldens, "hif4: also write golden_fp4.bin and the others into this directory")
      ->type_name("DIR")
      ->group(kArrays);
  command
      .add_flag("--maxima", options->maxima, "With --goldens: also golden_max4.bin, golden_max8.bin, golden_max64.bin")
      ->group(kArrays);
  constexpr const char* kCheckpoints =
      "Checkpoints (F64, F32, F16 and BF16 tensors are quantised, all others are copied)";
  const auto patterns = [&](const char* name, std::vector<std::string>& to, const char* description) {
    command.add_option(name, to, description)->type_name("REGEX")->allow_extra_args(false)->group(kCheckpoints);
  };
  patterns("--include", options->include,
           "Quantise only tensors whose name has a match of this (RE2 syntax); may be repeated: one is enough");
  patterns("--exclude", options->exclude, "Copy tensors whose name has a match of this; may be repeated");
  command.add_option("--min-dim", options->min_dim, "Copy tensors that have a smaller dimension; default: 64")
      ->type_name("N")
      ->check(whole_number(std::numeric_limits<std::uint64_t>::max()))
      ->group(kCheckpoints);
  command.add_option("--min-rank", options->min_rank, "Copy tensors that have fewer dimensions; default: 2")
      ->type_name("N")
      ->check(whole_number(64))
      ->group(kCheckpoints);
  command.add_flag("--dry-run", options->dry_run, "Only list what would become of each tensor")->group(kCheckpoints);
  add_examples(command,
               "  bitcube quantize W.npy --format hif4 --axis 0 -o W.safetensors\n"
               "  bitcube quantize W.npy --format mxfp8-e4m3 --scale rceil -o W.safetensors\n"
               "  bitcube quantize W.npy --format hif4 --source-type bf16 --goldens out --maxima -o W.safetensors\n"
               "  bitcube quantize model.safetensors -f hif4 --exclude 'embed|lm_head' -o model.hif4.safetensors\n"
               "  bitcube quantize model.safetensors.index.json -f mxfp4 -o quantised/");
  command.callback([=, &console, &action] { action = [=, &console] { return run(*options, console); }; });
}

}  // namespace bitcube::cli
