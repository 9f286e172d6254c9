#include "bitcube/stream/parts.hpp"

#include <fmt/format.h>

#include <utility>

#include "checkpoint_files.hpp"
#include "elements.hpp"
#include "guarded.hpp"
#include "quote_text.hpp"
#include "selection.hpp"

namespace bitcube::stream {
namespace {

/// The float that a type of .npy files names.
const Format* float_of_array(std::string_view dtype) noexcept {
  if (dtype == "float64") return &fp64;
  if (dtype == "float32") return &fp32;
  if (dtype == "float16") return &fp16;
  if (dtype == "bfloat16" || dtype == "uint16") return &bf16;
  return nullptr;
}

std::string reason_of(const TensorInfo& tensor, const Selection& selection, Patterns& include, Patterns& exclude) {
  const bool included = include.empty() || include.match(tensor.name);
  if (exclude.match(tensor.name)) return "excluded";
  if (!included) return "not included";
  if (tensor.packed) return fmt::format("is packed already: {}", tensor.packed->format->name);
  if (float_of_array(tensor.dtype) != nullptr) return tensor.shape.empty() ? "a scalar" : "";
  return unfit(tensor.dtype, tensor.shape, selection.min_rank, selection.min_dim);
}

}  // namespace

const Format* element_format(const TensorInfo& tensor) noexcept {
  if (tensor.packed) return nullptr;
  const Format* format = float_of(tensor.dtype);
  return format != nullptr ? format : float_of_array(tensor.dtype);
}

Expected<std::vector<std::vector<std::string>>> select(std::span<const TensorFiles> files, const Selection& selection,
                                                       std::vector<std::string>& warnings) {
  return guarded("select", [&]() -> Expected<std::vector<std::vector<std::string>>> {
    auto include = Patterns::compile("--include", selection.include);
    if (!include) return include.error();
    auto exclude = Patterns::compile("--exclude", selection.exclude);
    if (!exclude) return exclude.error();
    std::vector<std::vector<std::string>> out;
    for (const TensorFiles& file : files) {
      std::vector<std::string>& reasons = out.emplace_back();
      for (const TensorInfo& tensor : file.tensors()) {
        reasons.push_back(reason_of(tensor, selection, *include, *exclude));
      }
    }
    include->report_unused(warnings);
    exclude->report_unused(warnings);
    return out;
  });
}

Expected<Quantized> quantize_parts(const TensorFiles& files, std::size_t tensor, std::size_t axis,
                                   const QuantizeOptions& options, const UsePart& use, std::size_t window) {
  const TensorInfo& info = files.tensors()[tensor];
  const Format* source = element_format(info);
  if (source == nullptr) {
    return Error{fmt::format("tensor {}: {} is not quantised", quote_text(info.name),
                             info.packed ? "what is packed" : info.dtype)};
  }
  auto read = files.reader(tensor);
  if (!read) return read.error();
  return guarded("quantise", [&]() -> Expected<Quantized> {
    auto described = describe_quantized(*source, info.shape, axis, options);
    if (!described) return described.error();
    Lines lines;
    lines_of(described->shape, axis, lines);  // fits: it is valid
    const Elements elements{.read = std::move(*read), .shape = info.shape, .stored = source};
    const uint64 most = window_elements(window, *described->format, elements);
    const bool two_passes = needs_tensor_scale(options);
    Steps steps(options.execution, lines.elements() * (two_passes ? 2 : 1));
    if (two_passes) {
      const auto scale = find_tensor_scale(elements, most, steps, options.execution.threads);
      if (!scale) return scale.error();
      described->tensor_scale = *scale;
    }
    const auto nowhere = [](std::uint64_t, std::span<const std::byte>) { return Expected<void>(); };
    const PackedSink sink{
        .codes = nowhere,
        .scales = nowhere,
        .part = [&](const QuantizedTensor& part, std::span<const std::byte> words, const Window& w) {
          return use({.first_line = w.line(lines), .first_lane = w.lane, .tensor = part, .words = words});
        }};
    const auto measured = quantize_windows(elements, *described, options, most, steps, sink);
    if (!measured) return measured.error();
    if (auto same = files.check_unchanged(tensor); !same) return same.error();
    const BlockFormat& format = *described->format;
    return Quantized{.description = std::move(*described),
                     .code_bytes = lines.count * format.code_bytes(lines.length),
                     .scale_bytes = lines.count * format.groups(lines.length) * format.scale_bytes(),
                     .rounding_flags = measured->rounding_flags,
                     .error = measured->error};
  });
}

}  // namespace bitcube::stream
