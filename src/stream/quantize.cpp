#include "bitcube/stream/quantize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "bitcube/io/array.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "guarded.hpp"
#include "windows.hpp"

namespace bitcube::stream {
namespace {

/// The elements of a source, window by window, as they are quantised.
class SourceReader {
 public:
  SourceReader(const Source& source, unsigned threads) noexcept : source_(source), threads_(threads) {}

  /// Valid until the next call.
  Expected<std::span<const std::byte>> read(const Pieces& pieces) {
    stored_.resize(pieces.count * pieces.run);
    const auto read_file = [this](std::uint64_t offset, std::span<std::byte> to) {
      return source_.array->file.read(source_.array->offset + offset, to);
    };
    if (auto read = read_pieces(read_file, pieces, stored_, threads_); !read) return read.error();
    if (source_.rounded == nullptr) return std::span<const std::byte>(stored_);
    std::vector<std::byte>().swap(rounded_);  // frees them before the next ones are made
    auto rounded = convert_array(stored_, *source_.stored, *source_.rounded, {}, {.threads = threads_});
    if (!rounded) return rounded.error();
    flags_ |= rounded->flags;
    rounded_ = std::move(rounded->words);
    return std::span<const std::byte>(rounded_);
  }

  Flags flags() const noexcept { return flags_; }

 private:
  const Source& source_;
  unsigned threads_;
  std::vector<std::byte> stored_;
  std::vector<std::byte> rounded_;
  Flags flags_ = Flags::none;
};

/// Bytes that `lanes` lanes take in memory, times the length of a group: so there are no fractions.
uint64 window_elements(std::size_t window, const BlockFormat& format, std::size_t word_bytes) noexcept {
  const uint64 group_bytes = format.group * word_bytes + format.code_bytes(format.group) + format.scale_bytes();
  return std::max<uint64>(1, window / group_bytes) * format.group;
}

/// Whether a source can be read at all; the rest is for others to check.
Expected<void> check(const Source& source) {
  if (source.array->element_size() == source.stored->carrier_bits / 8U) return {};
  return Error{fmt::format("{} elements have {} bits, but codes of {} have {}", dtype_name(source.array->dtype),
                           8 * source.array->element_size(), source.stored->name, source.stored->carrier_bits)};
}

/// The FP32 word of the scale of a whole tensor.
Expected<std::uint32_t> tensor_scale(const Source& source, SourceReader& reader, uint64 at_once, Steps& steps) {
  const std::size_t word_bytes = source.stored->carrier_bits / 8U;
  const uint64 total = source.array->payload().size() / word_bytes;
  const uint64 step = std::min(at_once, kEnough);
  Real largest;
  for (uint64 first = 0; first < total; first += step) {
    const uint64 count = std::min(step, total - first);
    const auto words = reader.read({.offset = first * word_bytes, .count = 1, .run = count * word_bytes});
    if (!words) return words.error();
    const auto here = largest_magnitude(*words, source.format(), steps.quiet());
    if (!here) return here.error();
    if (compare_magnitude(*here, largest) > 0) largest = *here;
    steps.finished(count);
  }
  return nvfp4_tensor_scale(largest);
}

}  // namespace

Expected<Quantized> quantize(const Source& source, std::size_t axis, const QuantizeOptions& options,
                             std::string_view name, OutputFile& file, GoldenWriter* goldens, std::size_t window) {
  if (auto ok = check(source); !ok) return ok.error();
  const NpyArray& array = *source.array;
  const std::size_t word_bytes = source.stored->carrier_bits / 8U;
  const auto work = [&]() -> Expected<Quantized> {
    Quantized out;
    // Of nothing at all: it checks the options, and fills in what they mean.
    const std::vector<uint64> nothing{0};
    QuantizeOptions choices = options;
    choices.tensor_scale = false;
    auto empty = bitcube::quantize({}, source.format(), nothing, 0, choices);
    if (!empty) return empty.error();
    QuantizedTensor& tensor = out.description;
    tensor = std::move(*empty);
    tensor.shape = array.shape;
    tensor.axis = axis;
    if (auto valid = validate_description(tensor); !valid) return valid.error();
    const BlockFormat& format = *tensor.format;
    if (options.tensor_scale && !format.is_nvfp4()) {
      return Error{fmt::format("{}: only nvfp4 takes a tensor scale", format.name)};
    }
    Lines lines;
    lines_of(tensor.shape, axis, lines);  // fits: it is valid
    const std::size_t rounded_bytes = source.rounded != nullptr ? source.rounded->carrier_bits / 8U : 0;
    const uint64 most = window_elements(window, format, word_bytes + rounded_bytes);

    const bool two_passes = options.tensor_scale && !options.given_scale;
    Steps steps(options.execution, lines.elements() * (two_passes ? 2 : 1));
    SourceReader reader(source, options.execution.threads);
    if (two_passes) {
      const auto scale = tensor_scale(source, reader, most, steps);
      if (!scale) return scale.error();
      tensor.tensor_scale = choices.given_scale = *scale;
    }
    const auto plan = plan_packed(file.name(), name, tensor);
    if (!plan) return plan.error();
    out.code_bytes = plan->code_bytes;
    out.scale_bytes = plan->scale_bytes;
    const std::uint64_t start = file.size();
    if (auto appended = file.append(plan->header); !appended) return appended.error();
    if (auto reserved = file.reserve(start + plan->file_size()); !reserved) return reserved.error();

    ErrorMeter meter;
    const auto use = [&](const Window& w) -> Expected<void> {
      const auto words = reader.read(pieces_of(w, lines, word_bytes));
      if (!words) return words.error();
      choices.execution = steps.of(w.elements());
      const auto part = bitcube::quantize(*words, source.format(), w.shape(), 1, choices);
      if (!part) return part.error();
      if (auto added = meter.add(*words, *part, steps.quiet()); !added) return added;
      if (goldens != nullptr) {
        const auto element_of = [&](std::uint64_t i) { return w.element(lines, i); };
        if (auto added = goldens->add(*part, *words, element_of); !added) return added;
      }
      const uint64 line = w.line(lines);
      const uint64 codes = line * format.code_bytes(lines.length) + format.code_bytes(w.lane);
      const uint64 scales = (line * format.groups(lines.length) + format.groups(w.lane)) * format.scale_bytes();
      if (auto written = file.write_at(start + plan->codes + codes, part->codes); !written) return written;
      if (auto written = file.write_at(start + plan->scales + scales, part->scales); !written) return written;
      steps.finished(w.elements());
      return {};
    };
    if (auto done = for_each_in_line_order(lines, format.group, most, use); !done) return done.error();
    out.rounding_flags = reader.flags();
    out.error = meter.report();
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
    part.axis = 1;
    // Of each line of the window a piece; all of it if whole lines follow each other.
    const auto read_part = [&](const Window& w, uint64 line_bytes, uint64 before, uint64 here, const Read& read,
                               std::vector<std::byte>& to) {
      const uint64 count = w.outers * w.inners;
      to.resize(count * here);
      Pieces pieces{.offset = w.line(lines) * line_bytes + before, .stride = line_bytes, .count = count, .run = here};
      if (here == line_bytes) pieces = {.offset = pieces.offset, .stride = 0, .count = 1, .run = to.size()};
      return read_pieces(read, pieces, to, execution.threads);
    };
    const auto use = [&](const Window& w) -> Expected<void> {
      const auto window_shape = w.shape();
      part.shape.assign(window_shape.begin(), window_shape.end());
      auto read = read_part(
          w, format.code_bytes(lines.length), format.code_bytes(w.lane), format.code_bytes(w.lanes),
          [&](std::uint64_t offset, std::span<std::byte> to) { return tensor.read_codes(offset, to); }, part.codes);
      if (!read) return read;
      const std::size_t scale = format.scale_bytes();
      read = read_part(
          w, format.groups(lines.length) * scale, format.groups(w.lane) * scale, format.groups(w.lanes) * scale,
          [&](std::uint64_t offset, std::span<std::byte> to) { return tensor.read_scales(offset, to); }, part.scales);
      if (!read) return read;
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
    const uint64 most = window_elements(window, format, word_bytes);
    if (auto done = for_each_in_memory_order(lines, format.group, most, use); !done) return done.error();
    return flags;
  };
  return guarded("dequantise", work);
}

}  // namespace bitcube::stream
