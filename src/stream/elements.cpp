#include "elements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bitcube/quantize/convert_array.hpp"

namespace bitcube::stream {

Expected<std::span<const std::byte>> ElementReader::read(const Pieces& pieces) {
  stored_.resize(pieces.count * pieces.run);
  if (auto read = read_pieces(elements_.read, pieces, stored_, threads_); !read) return read.error();
  if (elements_.rounded == nullptr) return std::span<const std::byte>(stored_);
  std::vector<std::byte>().swap(rounded_);  // frees them before the next ones are made
  auto rounded = convert_array(stored_, *elements_.stored, *elements_.rounded, {}, {.threads = threads_});
  if (!rounded) return rounded.error();
  flags_ |= rounded->flags;
  rounded_ = std::move(rounded->words);
  return std::span<const std::byte>(rounded_);
}

uint64 window_elements(std::size_t window, const BlockFormat& format, const Elements& elements) noexcept {
  const std::size_t rounded = elements.rounded != nullptr ? elements.rounded->carrier_bits / 8U : 0;
  // Times the length of a group: so there are no fractions.
  const uint64 group_bytes =
      format.group * (elements.word_bytes() + rounded) + format.code_bytes(format.group) + format.scale_bytes();
  return std::max<uint64>(1, window / group_bytes) * format.group;
}

Expected<QuantizedTensor> describe_quantized(const Format& source, std::vector<uint64> shape, std::size_t axis,
                                             const QuantizeOptions& options) {
  // Of nothing at all: it checks the options, and fills in what they mean.
  const std::vector<uint64> nothing{0};
  QuantizeOptions choices = options;
  choices.tensor_scale = false;
  auto tensor = bitcube::quantize({}, source, nothing, 0, choices);
  if (!tensor) return tensor.error();
  tensor->shape = std::move(shape);
  tensor->axis = axis;
  if (auto valid = validate_description(*tensor); !valid) return valid.error();
  if (options.tensor_scale && !tensor->format->is_nvfp4()) {
    return Error{fmt::format("{}: only nvfp4 takes a tensor scale", tensor->format->name)};
  }
  return tensor;
}

Expected<std::uint32_t> find_tensor_scale(const Elements& elements, uint64 most, Steps& steps, unsigned threads) {
  return find_part_scale(elements, 0, elements.count(), most, steps, threads);
}

Expected<std::uint32_t> find_part_scale(const Elements& elements, uint64 begin, uint64 total, uint64 most, Steps& steps,
                                        unsigned threads) {
  ElementReader reader(elements, threads);
  const std::size_t word_bytes = elements.word_bytes();
  const uint64 step = std::min(most, kEnough);
  Real largest;
  for (uint64 first = 0; first < total; first += step) {
    const uint64 count = std::min(step, total - first);
    const auto words = reader.read({.offset = (begin + first) * word_bytes, .count = 1, .run = count * word_bytes});
    if (!words) return words.error();
    const auto here = largest_magnitude(*words, elements.format(), steps.quiet());
    if (!here) return here.error();
    if (compare_magnitude(*here, largest) > 0) largest = *here;
    steps.finished(count);
  }
  return nvfp4_tensor_scale(largest);
}

Expected<std::vector<std::uint32_t>> find_team_scales(std::size_t tensors,
                                                      const std::function<Elements(std::size_t tensor)>& elements,
                                                      std::size_t window, const QuantizeOptions& options,
                                                      Steps& steps) {
  Team& team = team_of(options.execution);
  std::vector<std::uint32_t> mine(tensors);
  for (std::size_t i = 0; i < tensors; ++i) {
    const Elements e = elements(i);
    const uint64 part = e.count() / team.size() + 1;
    const uint64 first = std::min(e.count(), team.rank() * part);
    const auto scale = find_part_scale(e, first, std::min(part, e.count() - first),
                                       window_elements(window, *options.format, e), steps, options.execution.threads);
    if (!scale) return scale.error();
    mine[i] = *scale;
  }
  const auto all = team.gather_all({reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(std::uint32_t)});
  if (!all) return all.error();
  for (const std::string& others : *all) {
    for (std::size_t i = 0; i < tensors; ++i) {
      std::uint32_t scale = 0;
      std::memcpy(&scale, others.data() + i * sizeof scale, sizeof scale);
      mine[i] = std::max(mine[i], scale);  // not negative, so the words order as the numbers do
    }
  }
  return mine;
}

Expected<Measured> quantize_windows(const Elements& elements, const QuantizedTensor& tensor,
                                    const QuantizeOptions& options, uint64 most, Steps& steps, const PackedSink& sink) {
  Lines lines;
  lines_of(tensor.shape, tensor.axis, lines);  // fits: it is valid
  ErrorMeter meter;
  const auto flags = quantize_panel(elements, tensor, options, whole_panel(lines), most, steps, sink, meter);
  if (!flags) return flags.error();
  return Measured{meter.report(), *flags};
}

Expected<Flags> quantize_panel(const Elements& elements, const QuantizedTensor& tensor, const QuantizeOptions& options,
                               const Panel& panel, uint64 most, Steps& steps, const PackedSink& sink,
                               ErrorMeter& meter) {
  const BlockFormat& format = *tensor.format;
  Lines lines;
  lines_of(tensor.shape, tensor.axis, lines);  // fits: it is valid
  QuantizeOptions choices = options;
  choices.tensor_scale = false;
  choices.given_scale = tensor.tensor_scale;
  ElementReader reader(elements, options.execution.threads);
  Team& team = team_of(options.execution);
  const auto use = [&](const Window& part_of_panel) -> Expected<void> {
    if (team.stopped()) return Error{std::string(Team::kStopped)};
    const Window w = panel.place(part_of_panel);
    const auto words = reader.read(pieces_of(w, lines, elements.word_bytes()));
    if (!words) return words.error();
    choices.execution = steps.of(w.elements());
    const auto part = bitcube::quantize(*words, elements.format(), w.shape(), 1, choices);
    if (!part) return part.error();
    if (auto added = meter.add(*words, *part, steps.quiet()); !added) return added;
    if (sink.part) {
      if (auto used = sink.part(*part, *words, w); !used) return used;
    }
    const uint64 line = w.line(lines);
    const uint64 codes = line * format.code_bytes(lines.length) + format.code_bytes(w.lane);
    const uint64 scales = (line * format.groups(lines.length) + format.groups(w.lane)) * format.scale_bytes();
    if (auto written = sink.codes(codes, part->codes); !written) return written;
    if (auto written = sink.scales(scales, part->scales); !written) return written;
    steps.finished(w.elements());
    return {};
  };
  if (auto done = for_each_in_line_order(panel.lines(), format.group, most, use); !done) return done.error();
  return reader.flags();
}

Expected<void> PackedElements::read(const Window& window, const Lines& lines, unsigned threads,
                                    QuantizedTensor& part) const {
  const BlockFormat& format = *description->format;
  const auto shape = window.shape();
  part.shape.assign(shape.begin(), shape.end());
  part.axis = 1;
  // Of each line of the window a piece; all of it if whole lines follow each other.
  const auto read_part = [&](uint64 line_bytes, uint64 before, uint64 here, const Read& read,
                             std::vector<std::byte>& to) {
    const uint64 count = window.outers * window.inners;
    to.resize(count * here);
    Pieces pieces{
        .offset = window.line(lines) * line_bytes + before, .stride = line_bytes, .count = count, .run = here};
    if (here == line_bytes) pieces = {.offset = pieces.offset, .stride = 0, .count = 1, .run = to.size()};
    return read_pieces(read, pieces, to, threads);
  };
  auto done = read_part(format.code_bytes(lines.length), format.code_bytes(window.lane),
                        format.code_bytes(window.lanes), read_codes, part.codes);
  if (!done) return done;
  const std::size_t scale = format.scale_bytes();
  return read_part(format.groups(lines.length) * scale, format.groups(window.lane) * scale,
                   format.groups(window.lanes) * scale, read_scales, part.scales);
}

Expected<Measured> measure_windows(const Elements& elements, const PackedElements& packed, uint64 most, Steps& steps,
                                   unsigned threads) {
  const QuantizedTensor& tensor = *packed.description;
  Lines lines;
  lines_of(tensor.shape, tensor.axis, lines);  // fits: it is valid
  ElementReader reader(elements, threads);
  ErrorMeter meter;
  QuantizedTensor part = tensor;
  const auto use = [&](const Window& w) -> Expected<void> {
    const auto words = reader.read(pieces_of(w, lines, elements.word_bytes()));
    if (!words) return words.error();
    if (auto read = packed.read(w, lines, threads, part); !read) return read;
    if (auto added = meter.add(*words, part, steps.quiet()); !added) return added;
    steps.finished(w.elements());
    return {};
  };
  if (auto done = for_each_in_line_order(lines, tensor.format->group, most, use); !done) return done.error();
  return Measured{meter.report(), reader.flags()};
}

}  // namespace bitcube::stream
