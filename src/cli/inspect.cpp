// bitcube inspect: what files of tensors hold, and how far packed tensors are from their originals.
#include "bitcube/stream/inspect.hpp"

#include "commands.hpp"
#include "quantize_arguments.hpp"

namespace bitcube::cli {
namespace {

using stream::Comparison;
using stream::TensorFiles;
using stream::TensorInfo;

struct Options {
  std::vector<std::string> inputs;
  std::string against;
  unsigned threads = 0;
};

/// A file, and how its tensors compare; no comparisons where none were asked for.
struct Inspected {
  std::string path;
  TensorFiles files;
  std::vector<Comparison> comparisons;
};

std::string type_text(const TensorInfo& tensor) {
  if (!tensor.packed) return name_text(tensor.dtype);
  const QuantizedTensor& t = *tensor.packed;
  return fmt::format("{}, {}, axis {}, from {}", t.format->name, choices_of(t), t.axis, t.source->name);
}

std::string comparison_text(const Comparison& comparison) {
  switch (comparison.kind) {
    case Comparison::Kind::kMeasured:
      return comparison.error.non_finite == 0
                 ? sqnr_text(comparison.error)
                 : fmt::format("{}, {} lanes not finite", sqnr_text(comparison.error), comparison.error.non_finite);
    case Comparison::Kind::kIdentical:
      return "identical";
    case Comparison::Kind::kDifferent:
      return "different: " + comparison.reason;
    default:
      return "not in the original";
  }
}

std::string report_text(const Inspected& one) {
  const bool sharded = std::ranges::any_of(one.files.tensors(), [](const TensorInfo& t) { return !t.file.empty(); });
  const bool compared = !one.comparisons.empty();
  TextTable table;
  const auto add = [&](std::vector<std::string> cells, const std::string& comparison, const std::string& file) {
    if (compared) cells.push_back(comparison);
    if (sharded) cells.push_back(file);
    table.add(std::move(cells));
  };
  add({"tensor", "shape", "bytes", "type"}, "against the original", "file");
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < one.files.tensors().size(); ++i) {
    const TensorInfo& t = one.files.tensors()[i];
    bytes += t.bytes;
    add({name_text(t.name), shape_text(t.shape), fmt::format("{}", t.bytes), type_text(t)},
        compared ? comparison_text(one.comparisons[i]) : "", name_text(t.file));
  }
  std::string out = fmt::format("{}: {} tensor{}, {} bytes", one.path, one.files.tensors().size(),
                                one.files.tensors().size() == 1 ? "" : "s", bytes);
  if (sharded) out += fmt::format(", in {} files", one.files.file_count());
  out += "\n";
  for (const auto& [key, value] : one.files.metadata()) {
    if (key != "bitcube") out += fmt::format("  {}: {}\n", name_text(key), name_text(value));
  }
  const std::size_t right[] = {2};
  return out + table.text(right);
}

Json report_json(const Inspected& one) {
  Json json{{"file", one.path}};
  std::uint64_t bytes = 0;
  json["tensors"] = Json::array();
  for (std::size_t i = 0; i < one.files.tensors().size(); ++i) {
    const TensorInfo& t = one.files.tensors()[i];
    bytes += t.bytes;
    Json entry{{"name", t.name}, {"shape", t.shape}, {"bytes", t.bytes}};
    if (!t.file.empty()) entry["file"] = t.file;
    if (t.packed) {
      const QuantizedTensor& p = *t.packed;
      entry["format"] = p.format->name;
      if (p.profile != nullptr) entry["profile"] = p.profile->name;
      if (p.scale_rule != nullptr) entry["scale_rule"] = p.scale_rule->name;
      entry["rounding"] = name_of(p.rounding);
      if (p.tensor_scale) entry["tensor_scale"] = fmt::format("0x{:08X}", *p.tensor_scale);
      entry["axis"] = p.axis;
      entry["source"] = p.source->name;
    } else {
      entry["dtype"] = t.dtype;
    }
    if (!one.comparisons.empty()) {
      const Comparison& c = one.comparisons[i];
      constexpr const char* names[] = {"measured", "identical", "different", "missing"};
      entry["comparison"] = names[static_cast<std::size_t>(c.kind)];
      if (!c.reason.empty()) entry["reason"] = c.reason;
      if (c.kind == Comparison::Kind::kMeasured) entry["error"] = error_json(c.error);
    }
    json["tensors"].push_back(std::move(entry));
  }
  json["bytes"] = bytes;
  json["files"] = one.files.file_count();
  if (!one.files.metadata().empty()) {
    json["metadata"] = Json::object();
    auto& pairs = json["metadata"].get_ref<Json::object_t&>();
    for (const auto& [key, value] : one.files.metadata()) pairs.emplace_back(key, value);
  }
  return json;
}

Expected<Exit> run(const Options& options, const Console& console) {
  std::optional<TensorFiles> original;
  if (!options.against.empty()) {
    auto opened = TensorFiles::open(options.against);
    if (!opened) return opened.error();
    original = std::move(*opened);
  }
  bool differences = false;
  std::string text;
  Json json = Json::array();
  ProgressBar bar("inspect");
  for (const std::string& input : options.inputs) {
    auto opened = TensorFiles::open(input);
    if (!opened) return opened.error();
    Inspected one{input, std::move(*opened), {}};
    for (const std::string& warning : one.files.warnings()) console.warning(fmt::format("{}: {}", input, warning));
    if (original) {
      auto compared =
          stream::compare(one.files, *original, execution_of(options.threads, bar.callback()), window_size());
      if (!compared) return compared.error();
      one.comparisons = std::move(*compared);
      differences = differences || std::ranges::any_of(one.comparisons, [](const Comparison& c) {
                      return c.kind == Comparison::Kind::kDifferent || c.kind == Comparison::Kind::kMissing;
                    });
    }
    if (console.json()) {
      json.push_back(report_json(one));
    } else {
      text += (text.empty() ? "" : "\n") + report_text(one);
    }
  }
  const auto printed = console.json() ? console.print_json(Json{{"files", std::move(json)}}) : console.print(text);
  if (!printed) return printed.error();
  return differences ? Exit::differences : Exit::success;
}

}  // namespace

void add_inspect(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command =
      *root.add_subcommand("inspect", "List the tensors of files, and compare them with their originals");
  const auto options = std::make_shared<Options>();
  command
      .add_option("FILE", options->inputs,
                  "A .npy array, a .safetensors file, or model.safetensors.index.json for all its shards")
      ->type_name("W.safetensors|W.npy|W.index.json")
      ->required();
  command
      .add_option("--against", options->against,
                  "Measure packed tensors against those of the same name in this file, and see whether all others are "
                  "the same bits; exit 1 if one differs or is not there")
      ->type_name("ORIGINAL");
  add_limits(command, options->threads);
  add_json(command);
  add_examples(command,
               "  bitcube inspect model.safetensors W.npy\n"
               "  bitcube inspect model.hif4.safetensors --against model.safetensors\n"
               "  bitcube inspect quantised/model.safetensors.index.json --json");
  command.callback([=, &console, &action] { action = [=, &console] { return run(*options, console); }; });
}

}  // namespace bitcube::cli
