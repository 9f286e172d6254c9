#include "bitcube/stream/quantize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "bitcube/io/array.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "elements.hpp"
#include "guarded.hpp"
#include "team_work.hpp"

namespace bitcube::stream {
namespace {

/// Whether a source can be read at all; the rest is for others to check.
Expected<void> check(const Source& source) {
  if (source.array->element_size() == source.stored->carrier_bits / 8U) return {};
  return Error{fmt::format("{} elements have {} bits, but codes of {} have {}", dtype_name(source.array->dtype),
                           8 * source.array->element_size(), source.stored->name, source.stored->carrier_bits)};
}

Elements elements_of(const Source& source) {
  const NpyArray& array = *source.array;
  return {.read = [&array](std::uint64_t offset, std::span<std::byte> to) { return array.read(offset, to); },
          .shape = array.shape,
          .stored = source.stored,
          .rounded = source.rounded};
}

/// What one rank has made of a panel, for rank 0.
struct PanelBytes {
  std::uint64_t codes_at = 0;
  std::uint64_t scales_at = 0;
  std::string codes;
  std::string scales;
  Flags flags = Flags::none;
  ErrorMeter meter{true};

  std::string text() const {
    return pack({codes_at, scales_at, codes, scales, static_cast<unsigned>(flags), meter.state()});
  }
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// The panels of a tensor in turn to all ranks, their bytes to the sink of rank 0.
Expected<Measured> quantize_by_team(const Elements& elements, const QuantizedTensor& tensor, const Lines& lines,
                                    const QuantizeOptions& options, uint64 most, Steps& steps, const PackedSink& sink) {
  Team& team = team_of(options.execution);
  const std::vector<Panel> panels = panels_of(lines, tensor.format->group, ErrorMeter::kBlock, std::min(most, kEnough));
  Measured out;
  ErrorMeter meter;
  for (std::size_t round = 0; round < panels.size(); round += team.size()) {
    std::string mine;
    if (const std::size_t i = round + team.rank(); i < panels.size()) {
      PanelBytes panel;
      const auto collect = [](std::uint64_t& at, std::string& text) {
        return [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Expected<void> {
          if (text.empty()) at = offset;
          text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());  // windows follow each other
          return {};
        };
      };
      const auto flags = quantize_panel(
          elements, tensor, options, panels[i], most, steps,
          {.codes = collect(panel.codes_at, panel.codes), .scales = collect(panel.scales_at, panel.scales)},
          panel.meter);
      if (!flags) return flags.error();
      panel.flags = *flags;
      mine = panel.text();
    }
    const auto all = team.gather(mine);
    if (!all) return all.error();
    for (const std::string& text : *all) {
      if (text.empty()) continue;
      const auto json = nlohmann::json::from_cbor(text);
      const auto part = [&](std::size_t i) -> const std::string& { return json.at(i).get_ref<const std::string&>(); };
      if (auto written = sink.codes(json.at(0), bytes_of(part(2))); !written) return written.error();
      if (auto written = sink.scales(json.at(1), bytes_of(part(3))); !written) return written.error();
      out.rounding_flags |= static_cast<Flags>(json.at(4).get<unsigned>());
      const auto measured = ErrorMeter::from_state(part(5));
      if (!measured) return measured.error();
      meter.append(*measured);
    }
  }
  out.error = meter.report();
  return out;
}

}  // namespace

Expected<Quantized> quantize(const Source& source, std::size_t axis, const QuantizeOptions& options,
                             std::string_view name, OutputFile& file, GoldenWriter* goldens, std::size_t window) {
  if (auto ok = check(source); !ok) return ok.error();
  const auto work = [&]() -> Expected<Quantized> {
    Quantized out;
    auto described = describe_quantized(source.format(), source.array->shape, axis, options);
    if (!described) return described.error();
    QuantizedTensor& tensor = out.description = std::move(*described);
    Lines lines;
    lines_of(tensor.shape, axis, lines);  // fits: it is valid
    const Elements elements = elements_of(source);
    const uint64 most = window_elements(window, *tensor.format, elements);

    const bool two_passes = needs_tensor_scale(options);
    Steps steps(options.execution, lines.elements() * (two_passes ? 2 : 1));
    const bool shared = team_of(options.execution).size() > 1;
    if (shared && goldens != nullptr) return Error{"golden files are written by one process, not by several ranks"};
    if (shared) {
      const std::string same = fmt::format("{} {} {}", tensor.format->name, axis, fmt::join(tensor.shape, " "));
      if (auto agreed = agree(team_of(options.execution), source.array->file.name(), same); !agreed) {
        return agreed.error();
      }
    }
    if (two_passes) {
      const auto scales = find_team_scales(
          1, [&](std::size_t) { return elements; }, window, options, steps);
      if (!scales) return scales.error();
      tensor.tensor_scale = scales->front();
    }
    const auto plan = plan_packed(file.name(), name, tensor);
    if (!plan) return plan.error();
    out.code_bytes = plan->code_bytes;
    out.scale_bytes = plan->scale_bytes;
    const std::uint64_t start = file.size();
    if (auto appended = file.append(plan->header); !appended) return appended.error();
    if (auto reserved = file.reserve(start + plan->file_size()); !reserved) return reserved.error();

    PackedSink sink{
        .codes = [&](std::uint64_t offset,
                     std::span<const std::byte> bytes) { return file.write_at(start + plan->codes + offset, bytes); },
        .scales =
            [&](std::uint64_t offset, std::span<const std::byte> bytes) {
              return file.write_at(start + plan->scales + offset, bytes);
            }};
    if (goldens != nullptr) {
      sink.part = [&](const QuantizedTensor& part, std::span<const std::byte> words, const Window& w) {
        return goldens->add(part, words, [&](std::uint64_t i) { return w.element(lines, i); });
      };
    }
    const auto measured = shared ? quantize_by_team(elements, tensor, lines, options, most, steps, sink)
                                 : quantize_windows(elements, tensor, options, most, steps, sink);
    if (!measured) return measured.error();
    if (auto same = source.array->file.check_unchanged(); !same) return same.error();
    out.rounding_flags = measured->rounding_flags;
    out.error = measured->error;
    return out;
  };
  return guarded("quantise", work);
}

Expected<Flags> dequantize(const PackedReader& tensor, const Format& destination, Rounding rounding, OutputFile& file,
                           const Execution& execution, std::size_t window) {
  QuantizedTensor part = tensor.description();
  const BlockFormat& format = *part.format;
  const std::vector<uint64> shape = std::exchange(part.shape, {0});
  const std::size_t axis = std::exchange(part.axis, 0);
  if (auto ok = bitcube::dequantize(part, destination, rounding); !ok) return ok.error();  // checks the destination
  Lines lines;
  lines_of(shape, axis, lines);  // fits: it is valid
  const std::size_t word_bytes = destination.carrier_bits / 8U;
  const auto work = [&]() -> Expected<Flags> {
    if (auto begun = begin_array(file, array_dtype(destination), shape); !begun) return begun.error();
    const std::uint64_t start = file.size();
    if (auto reserved = file.reserve(start + lines.elements() * word_bytes); !reserved) return reserved.error();
    Flags flags = Flags::none;
    Steps steps(execution, lines.elements());
    const PackedElements packed{
        .description = &tensor.description(),
        .read_codes = [&](std::uint64_t offset, std::span<std::byte> to) { return tensor.read_codes(offset, to); },
        .read_scales = [&](std::uint64_t offset, std::span<std::byte> to) { return tensor.read_scales(offset, to); }};
    const auto use = [&](const Window& w) -> Expected<void> {
      if (auto read = packed.read(w, lines, execution.threads, part); !read) return read;
      const auto values = bitcube::dequantize(part, destination, rounding, steps.of(w.elements()));
      if (!values) return values.error();
      flags |= values->flags;
      const Pieces pieces = pieces_of(w, lines, word_bytes);
      for (std::uint64_t i = 0; i < pieces.count; ++i) {
        const std::uint64_t offset = start + pieces.offset + i * pieces.stride;
        const auto piece = std::span<const std::byte>(values->bytes).subspan(i * pieces.run, pieces.run);
        // In order where that is possible, for targets that take bytes in no other.
        auto written = offset == file.size() ? file.append(piece) : file.write_at(offset, piece);
        if (!written) return written;
      }
      steps.finished(w.elements());
      return {};
    };
    Elements words;
    words.stored = &destination;
    const uint64 most = window_elements(window, format, words);
    if (auto done = for_each_in_memory_order(lines, format.group, most, use); !done) return done.error();
    if (auto same = tensor.check_unchanged(); !same) return same.error();
    return flags;
  };
  return guarded("dequantise", work);
}

}  // namespace bitcube::stream
