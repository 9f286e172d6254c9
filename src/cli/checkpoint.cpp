// bitcube quantize of a whole checkpoint: what becomes of each tensor, and how far it is from what it was.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "bitcube/stream/checkpoint.hpp"
#include "quantize_arguments.hpp"

namespace bitcube::cli {
namespace {

using stream::CheckpointQuantizer;
using stream::CheckpointResult;
using stream::CheckpointTensor;

/// All of them together.
struct Totals {
  std::size_t quantised = 0;
  std::size_t copied = 0;
  std::size_t resumed = 0;
  uint64 elements = 0;       // quantised
  std::uint64_t before = 0;  // bytes
  std::uint64_t after = 0;
  std::uint64_t packed = 0;  // bytes that the quantised take
  uint64 non_finite = 0;
  const CheckpointTensor* lowest = nullptr;  // SQNR
  double lowest_sqnr = 0;
};

Totals sum_up(const std::vector<CheckpointTensor>& tensors, const std::vector<CheckpointResult>& results) {
  Totals out;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const CheckpointTensor& t = tensors[i];
    out.before += t.tensor.size();
    out.after += t.bytes;
    if (!results.empty() && results[i].resumed) ++out.resumed;
    if (t.source == nullptr) {
      ++out.copied;
      continue;
    }
    ++out.quantised;
    out.packed += t.bytes;
    out.elements += std::accumulate(t.tensor.shape.begin(), t.tensor.shape.end(), uint64{1}, std::multiplies<>());
    if (results.empty()) continue;
    const ErrorReport& error = results[i].error;
    out.non_finite += error.non_finite;
    if (std::isfinite(error.sqnr) && (out.lowest == nullptr || error.sqnr < out.lowest_sqnr)) {
      out.lowest = &t;
      out.lowest_sqnr = error.sqnr;
    }
  }
  return out;
}

std::string becomes(const CheckpointTensor& t, const CheckpointResult* result, const QuantizeOptions& options) {
  if (t.source == nullptr) return "copied: " + t.reason;
  std::string text(options.format->name);
  if (result == nullptr) return text;
  if (result->tensor_scale) text += fmt::format(", tensor scale 0x{:08X}", *result->tensor_scale);
  if (result->rounding_flags != Flags::none) text += fmt::format(", flags {}", flags_text(result->rounding_flags));
  if (result->error.non_finite != 0) text += fmt::format(", {} lanes not finite", result->error.non_finite);
  return text;
}

/// What chose the bits of all of them.
std::string choices_text(const QuantizeOptions& options) {
  const BlockFormat& f = *options.format;
  if (f.is_hif4()) return fmt::format("{}, profile {}", f.name, options.profile->name);
  std::string text(f.name);
  if (f.is_mx()) text += fmt::format(", scale rule {}", options.scale_rule->name);
  return text + fmt::format(", elements {}", name_of(options.rounding));
}

std::string report_text(const QuantizeArguments& arguments, const CheckpointQuantizer& work,
                        const QuantizeOptions& options, const std::vector<CheckpointResult>& results,
                        std::optional<double> seconds) {
  const bool sharded = work.is_sharded();
  const auto row = [&](std::vector<std::string> cells, const std::string& file) {
    if (sharded) cells.push_back(file);
    return cells;
  };
  TextTable table;
  table.add(row({"tensor", "shape", "type", "becomes", "SQNR", "bytes"}, "file"));
  for (std::size_t i = 0; i < work.tensors().size(); ++i) {
    const CheckpointTensor& t = work.tensors()[i];
    const CheckpointResult* result = results.empty() ? nullptr : &results[i];
    table.add(row(
        {name_text(t.tensor.name), shape_text(t.tensor.shape), name_text(t.tensor.dtype), becomes(t, result, options),
         t.source != nullptr && result != nullptr ? sqnr_text(result->error) : "", fmt::format("{}", t.bytes)},
        name_text(t.file)));
  }
  const Totals all = sum_up(work.tensors(), results);
  TextTable totals;
  totals.add({"input", arguments.input});
  if (!arguments.output.empty()) totals.add({"output", arguments.output});
  totals.add({"format", fmt::format("{}, axis {}", choices_text(options), arguments.axis)});
  std::string counts = fmt::format("{} quantised, {} copied", all.quantised, all.copied);
  if (all.resumed != 0) counts += fmt::format("; {} of them done before", all.resumed);
  totals.add({"tensors", counts});
  std::string bytes = fmt::format("{} -> {}", all.before, all.after);
  if (all.before != 0) {
    bytes += fmt::format(" ({:.1f} %)", 100 * static_cast<double>(all.after) / static_cast<double>(all.before));
  }
  if (all.elements != 0) {
    bytes += fmt::format("; {:.3f} bits per quantised element",
                         8 * static_cast<double>(all.packed) / static_cast<double>(all.elements));
  }
  totals.add({"bytes", bytes});
  if (all.lowest != nullptr) {
    totals.add({"lowest SQNR", fmt::format("{:.3f} dB, {}", all.lowest_sqnr, name_text(all.lowest->tensor.name))});
  }
  if (all.non_finite != 0) totals.add({"not finite", fmt::format("{} lanes, in no error above", all.non_finite)});
  if (seconds) totals.add({"time", fmt::format("{:.3f} s", *seconds)});
  if (!seconds) totals.add({"dry run", "nothing was written"});
  const std::size_t right[] = {4, 5};
  return table.text(right) + "\n" + totals.text();
}

Json report_json(const QuantizeArguments& arguments, const CheckpointQuantizer& work, const QuantizeOptions& options,
                 const std::vector<CheckpointResult>& results, std::optional<double> seconds) {
  Json json{{"input", arguments.input}};
  if (!arguments.output.empty()) json["output"] = arguments.output;
  json["dry_run"] = !seconds.has_value();
  json["format"] = options.format->name;
  if (options.format->is_hif4()) json["profile"] = options.profile->name;
  if (options.format->is_mx()) json["scale_rule"] = options.scale_rule->name;
  if (!options.format->is_hif4()) json["rounding"] = name_of(options.rounding);
  json["axis"] = arguments.axis;
  json["tensors"] = Json::array();
  for (std::size_t i = 0; i < work.tensors().size(); ++i) {
    const CheckpointTensor& t = work.tensors()[i];
    Json one{{"name", t.tensor.name}, {"shape", t.tensor.shape}, {"dtype", t.tensor.dtype}};
    if (work.is_sharded()) one["file"] = t.file;
    one["action"] = t.source != nullptr ? "quantise" : "copy";
    if (t.source == nullptr) one["reason"] = t.reason;
    if (t.source != nullptr) {
      one["source"] = t.source->name;
      one["format"] = options.format->name;
    }
    one["bytes"] = {{"before", t.tensor.size()}, {"after", t.bytes}};
    if (!results.empty()) {
      const CheckpointResult& result = results[i];
      one["resumed"] = result.resumed;
      if (t.source != nullptr) {
        if (result.tensor_scale) one["tensor_scale"] = fmt::format("0x{:08X}", *result.tensor_scale);
        one["flags"] = flags_json(result.rounding_flags);
        one["error"] = error_json(result.error);
      }
    }
    json["tensors"].push_back(std::move(one));
  }
  const Totals all = sum_up(work.tensors(), results);
  json["quantised"] = all.quantised;
  json["copied"] = all.copied;
  if (!results.empty()) json["resumed"] = all.resumed;
  json["bytes"] = {{"before", all.before}, {"after", all.after}};
  if (all.lowest != nullptr) {
    json["lowest_sqnr"] = {{"name", all.lowest->tensor.name}, {"sqnr_db", number_json(all.lowest_sqnr)}};
  }
  if (!results.empty()) json["non_finite"] = all.non_finite;
  if (seconds) json["seconds"] = *seconds;
  return json;
}

}  // namespace

bool is_checkpoint(const std::string& input) {
  const auto extension = std::filesystem::path(input).extension();
  return extension == ".safetensors" || extension == ".json";
}

Expected<Exit> quantize_checkpoint(const QuantizeArguments& arguments, const Console& console) {
  const std::pair<const char*, bool> given[] = {
      {"--name", !arguments.name.empty()}, {"--goldens", !arguments.goldens.empty()}, {"--maxima", arguments.maxima}};
  for (const auto& [option, is_given] : given) {
    if (is_given) return Error{fmt::format("{}: is for arrays; {} is a checkpoint", option, arguments.input)};
  }
  auto quantize = resolve(arguments);
  if (!quantize) return quantize.error();
  const auto source_type = resolve_source_type(arguments);
  if (!source_type) return source_type.error();
  ProgressBar bar("quantize");
  quantize->execution = team_execution_of(console, arguments.threads, bar.callback());
  stream::CheckpointOptions options{.quantize = *quantize,
                                    .axis = arguments.axis,
                                    .source_type = *source_type,
                                    .include = arguments.include,
                                    .exclude = arguments.exclude};
  options.min_dim = arguments.min_dim.value_or(options.min_dim);
  options.min_rank = arguments.min_rank.value_or(options.min_rank);

  const Stopwatch clock;
  auto work = CheckpointQuantizer::plan(arguments.input, options);
  if (!work) return work.error();
  for (const std::string& warning : work->warnings()) console.warning(warning);
  std::vector<CheckpointResult> results;
  std::optional<double> seconds;
  if (!arguments.dry_run) {
    if (!work->is_sharded()) {
      if (auto ok = check_output(arguments.output, {&arguments.input, 1}); !ok) return ok.error();
    }
    auto done = work->run(arguments.output, window_size());
    for (const std::string& note : work->notes()) console.note(note);
    if (!done) return done.error();
    results = std::move(*done);
    seconds = clock.seconds();
  }
  const auto printed = console.json() ? console.print_json(report_json(arguments, *work, *quantize, results, seconds))
                                      : console.print(report_text(arguments, *work, *quantize, results, seconds));
  if (!printed) {
    if (arguments.dry_run) return printed.error();
    return Error{fmt::format("{}; the tensors are finished, and the next run goes on from there",
                             printed.error().message)};
  }
  if (!arguments.dry_run) {
    if (auto done = work->commit(); !done) return done.error();
  }
  return Exit::success;
}

}  // namespace bitcube::cli
