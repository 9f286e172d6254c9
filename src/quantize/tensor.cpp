#include "bitcube/quantize/tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "guarded.hpp"

namespace bitcube {
namespace {

static_assert(std::endian::native == std::endian::little, "words are loaded as they lie in memory");

constexpr uint64 kBlock = 512;  // groups that one thread takes at a time; their statistics are summed together

uint64 blocks_of(uint64 groups) noexcept {
  return groups / kBlock + (groups % kBlock != 0 ? 1 : 0);
}

/// Calls body(block, begin, end) for all blocks of groups.
template <typename Body>
void for_each_block(uint64 groups, const Execution& execution, const Body& body) {
  parallel_for(blocks_of(groups), execution, [&](std::size_t block) {
    const uint64 begin = block * kBlock;
    body(block, begin, begin + std::min(kBlock, groups - begin));
  });
}

/// What all functions need to know of a shape: its lines, and how many bytes they take.
struct Geometry {
  Lines lines;
  uint64 groups_per_line = 0;
  uint64 groups = 0;
  uint64 code_bytes_per_line = 0;
  uint64 code_bytes = 0;
  uint64 scale_bytes = 0;
};

std::string show(std::span<const uint64> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Expected<Geometry> geometry_of(const BlockFormat& format, std::span<const uint64> shape, std::size_t axis) {
  if (shape.empty()) return Error{"shape []: a scalar has no axis to quantise; give at least one dimension"};
  if (axis >= shape.size()) {
    return Error{fmt::format("axis {}: the shape {} has the axes 0 to {}", axis, show(shape), shape.size() - 1)};
  }
  const Error too_large{fmt::format("shape {}: more elements or bytes than 64 bits can count", show(shape))};
  Geometry g;
  if (!lines_of(shape, axis, g.lines)) return too_large;
  g.groups_per_line = format.groups(g.lines.length);
  g.code_bytes_per_line = format.code_bytes(g.lines.length);
  if (!checked_multiply(g.lines.count, g.groups_per_line, g.groups) ||
      !checked_multiply(g.lines.count, g.code_bytes_per_line, g.code_bytes) ||
      !checked_multiply(g.groups, format.scale_bytes(), g.scale_bytes)) {
    return too_large;
  }
  return g;
}

/// One group of a tensor: the same walk for everything that quantises, dequantises or measures.
struct GroupPosition {
  uint64 line = 0;
  uint64 first_lane = 0;
  std::size_t lanes = 0;
};

GroupPosition locate(const BlockFormat& format, const Geometry& g, uint64 group) noexcept {
  const uint64 line = group / g.groups_per_line;
  const uint64 first = group % g.groups_per_line * format.group;
  return {line, first, static_cast<std::size_t>(std::min<uint64>(format.group, g.lines.length - first))};
}

/// The codes of one group, at most 64.
using Codes = std::array<std::uint8_t, hif4_group_lanes>;

class Quantizer {
 public:
  Quantizer(std::span<const std::byte> bytes, const Geometry& geometry, QuantizedTensor& out) noexcept
      : bytes_(bytes.data()), word_bytes_(out.source->carrier_bits / 8U), geometry_(geometry), out_(out) {}

  void quantize_groups(uint64 begin, uint64 end) const noexcept {
    for (uint64 group = begin; group < end; ++group) quantize_group(group);
  }

  /// The largest finite magnitude of some groups.
  Real amax(uint64 begin, uint64 end) const noexcept {
    Real largest;
    for (uint64 group = begin; group < end; ++group) {
      std::array<Value, mx_group_lanes> lanes;
      const GroupPosition at = locate(*out_.format, geometry_, group);
      decode_lanes(at, lanes);
      const Real here = detail::range_of({lanes.data(), at.lanes}).amax;
      if (compare_magnitude(here, largest) > 0) largest = here;
    }
    return largest;
  }

 private:
  template <typename Use>
  void for_each_word(const GroupPosition& at, const Use& use) const noexcept {
    const std::byte* from = bytes_ + geometry_.lines.element(at.line, at.first_lane) * word_bytes_;
    const std::size_t stride = geometry_.lines.inner * word_bytes_;
    for (std::size_t i = 0; i < at.lanes; ++i) use(i, load_word(from + i * stride, word_bytes_));
  }

  void decode_lanes(const GroupPosition& at, std::array<Value, mx_group_lanes>& lanes) const noexcept {
    for_each_word(at, [&](std::size_t i, uint64 word) { lanes[i] = decode(*out_.source, word); });
  }

  void quantize_group(uint64 group) const noexcept {
    const BlockFormat& format = *out_.format;
    const GroupPosition at = locate(format, geometry_, group);
    Codes codes{};
    uint64 scale = 0;
    if (format.is_hif4()) {
      std::array<std::uint32_t, hif4_group_lanes> words;
      for_each_word(at, [&](std::size_t i, uint64 word) { words[i] = hif4_source_word(*out_.source, word); });
      const Hif4Group quantized =
          quantize_hif4_group(hif4_source_format(*out_.source), {words.data(), at.lanes}, *out_.profile);
      scale = quantized.scale_word;
      codes = quantized.codes;
    } else {
      std::array<Value, mx_group_lanes> values;
      decode_lanes(at, values);
      const std::span<const Value> lanes{values.data(), at.lanes};
      const MxGroup quantized =
          format.is_mx() ? quantize_mx_group(*format.element, lanes, out_.scale_rule->rounding, out_.rounding)
                         : quantize_nvfp4_group(lanes, out_.tensor_scale.value_or(kOne), out_.rounding);
      scale = quantized.scale;
      std::copy(quantized.codes.begin(), quantized.codes.end(), codes.begin());
    }
    store_word(out_.scales.data() + group * format.scale_bytes(), format.scale_bytes(), scale);
    store_codes(at, codes);
  }

  /// A group starts on a byte of its own, because group lengths are even.
  void store_codes(const GroupPosition& at, const Codes& codes) const noexcept {
    std::byte* to =
        out_.codes.data() + at.line * geometry_.code_bytes_per_line + out_.format->code_bytes(at.first_lane);
    if (!out_.format->element->is_packed()) {
      for (std::size_t i = 0; i < at.lanes; ++i) to[i] = std::byte{codes[i]};
      return;
    }
    for (std::size_t i = 0; i < at.lanes; i += 2) to[i / 2] = static_cast<std::byte>(codes[i] | codes[i + 1] << 4);
  }

  static constexpr std::uint32_t kOne = 0x3F800000;

  const std::byte* bytes_;
  std::size_t word_bytes_;
  const Geometry& geometry_;
  QuantizedTensor& out_;
};

/// The largest of the blocks' maxima is the same in whatever order they are taken.
Real tensor_amax(const Quantizer& quantizer, uint64 groups, unsigned threads) {
  std::vector<Real> maxima(blocks_of(groups));
  for_each_block(groups, {.threads = threads},
                 [&](uint64 block, uint64 begin, uint64 end) { maxima[block] = quantizer.amax(begin, end); });
  Real largest;
  for (const Real& maximum : maxima) {
    if (compare_magnitude(maximum, largest) > 0) largest = maximum;
  }
  return largest;
}

/// The scale and the codes of one group, ready to give values.
class GroupReader {
 public:
  GroupReader(const QuantizedTensor& tensor, const Geometry& g, uint64 group) noexcept
      : tensor_(tensor),
        position_(locate(*tensor.format, g, group)),
        scale_(load_word(tensor.scales.data() + group * tensor.format->scale_bytes(), tensor.format->scale_bytes())),
        codes_(tensor.codes.data() + position_.line * g.code_bytes_per_line +
               tensor.format->code_bytes(position_.first_lane)) {}

  const GroupPosition& position() const noexcept { return position_; }
  std::size_t size() const noexcept { return position_.lanes; }

  Value operator[](std::size_t i) const noexcept {
    const BlockFormat& format = *tensor_.format;
    const unsigned code = format.element->is_packed() ? std::to_integer<unsigned>(codes_[i / 2]) >> (4 * (i % 2)) & 0xFU
                                                      : std::to_integer<unsigned>(codes_[i]);
    if (format.is_hif4()) return dequantize_hif4_lane(static_cast<std::uint32_t>(scale_), i, code);
    const auto scale = static_cast<std::uint8_t>(scale_);
    if (format.is_mx()) return dequantize_mx_lane(*format.element, scale, code);
    return tensor_.tensor_scale ? dequantize_nvfp4_lane(scale, code, *tensor_.tensor_scale)
                                : dequantize_nvfp4_lane(scale, code);
  }

 private:
  const QuantizedTensor& tensor_;
  GroupPosition position_;
  uint64 scale_;
  const std::byte* codes_;
};

Expected<Geometry> described_geometry(const QuantizedTensor& tensor) {
  const BlockFormat* format = tensor.format;
  if (format == nullptr) return Error{"quantised tensor: no block format"};
  if (tensor.source == nullptr) return Error{"quantised tensor: no source format"};
  if (format->is_hif4() != (tensor.profile != nullptr)) {
    return Error{fmt::format("{}: {} a HiF4 profile", format->name, format->is_hif4() ? "needs" : "does not take")};
  }
  if (format->is_mx() != (tensor.scale_rule != nullptr)) {
    return Error{fmt::format("{}: {} a scale rule", format->name, format->is_mx() ? "needs" : "does not take")};
  }
  if (tensor.tensor_scale) {
    if (!format->is_nvfp4()) return Error{fmt::format("{}: only nvfp4 takes a tensor scale", format->name)};
    if (*tensor.tensor_scale >= fp32.infinity) {
      return Error{
          fmt::format("tensor scale {:08X}: must be a finite FP32 word that is not negative", *tensor.tensor_scale)};
    }
  }
  return geometry_of(*format, tensor.shape, tensor.axis);
}

Expected<Geometry> validated_geometry(const QuantizedTensor& tensor) {
  Expected<Geometry> g = described_geometry(tensor);
  if (!g) return g;
  const BlockFormat* format = tensor.format;
  const auto check = [&](std::string_view what, uint64 has, uint64 needs) -> Expected<void> {
    if (has == needs) return {};
    return Error{fmt::format("{}: {} has {} bytes, but shape {} along axis {} needs {}", format->name, what, has,
                             show(tensor.shape), tensor.axis, needs)};
  };
  if (auto ok = check("codes", tensor.codes.size(), g->code_bytes); !ok) return ok.error();
  if (auto ok = check("scales", tensor.scales.size(), g->scale_bytes); !ok) return ok.error();
  return g;
}

/// `lines` lines of words of this format, in bytes, against what is there.
Expected<void> check_size(std::span<const std::byte> bytes, const Format& format, std::span<const uint64> shape,
                          const Lines& lines) {
  uint64 needs = 0;
  const std::size_t word = format.carrier_bits / 8U;
  if (checked_multiply(lines.elements(), word, needs) && needs == bytes.size()) return {};
  return Error{fmt::format("the source has {} bytes, but shape {} of {} needs {} bytes", bytes.size(), show(shape),
                           format.name, needs)};
}

/// The value as a double, which holds every lane exactly.
double to_double(const Real& x) noexcept {
  const double magnitude = std::ldexp(static_cast<double>(static_cast<uint64>(x.significand)), x.exponent);
  return x.negative ? -magnitude : magnitude;
}

/// Adds the errors of groups [begin, end) to the sums, lane by lane.
void add_groups(std::span<const std::byte> original, const QuantizedTensor& tensor, const Geometry& g, uint64 begin,
                uint64 end, ErrorSums& sums) noexcept {
  const Format& source = *tensor.source;
  const std::size_t word_bytes = source.carrier_bits / 8U;
  for (uint64 group = begin; group < end; ++group) {
    const GroupReader lanes(tensor, g, group);
    const GroupPosition& at = lanes.position();
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const uint64 element = g.lines.element(at.line, at.first_lane + i);
      sums.add(decode(source, load_word(original.data() + element * word_bytes, word_bytes)), lanes[i]);
    }
  }
}

}  // namespace

Expected<void> validate(const QuantizedTensor& tensor) {
  const Expected<Geometry> g = validated_geometry(tensor);
  if (!g) return g.error();
  return {};
}

Expected<void> validate_description(const QuantizedTensor& tensor) {
  const Expected<Geometry> g = described_geometry(tensor);
  if (!g) return g.error();
  return {};
}

Value dequantize_lane(const QuantizedTensor& tensor, uint64 line, uint64 lane) noexcept {
  Geometry g;
  lines_of(tensor.shape, tensor.axis, g.lines);
  g.groups_per_line = tensor.format->groups(g.lines.length);
  g.code_bytes_per_line = tensor.format->code_bytes(g.lines.length);
  const uint64 group = line * g.groups_per_line + lane / tensor.format->group;
  return GroupReader(tensor, g, group)[lane % tensor.format->group];
}

Expected<QuantizedTensor> quantize(std::span<const std::byte> bytes, const Format& source,
                                   std::span<const uint64> shape, std::size_t axis, const QuantizeOptions& options) {
  if (options.format == nullptr) return Error{"quantise: no block format"};
  const BlockFormat& format = *options.format;
  if (format.is_hif4() && options.profile == nullptr) return Error{"hif4: no profile"};
  if (format.is_mx() && options.scale_rule == nullptr) return Error{fmt::format("{}: no scale rule", format.name)};
  if (!is_quantize_source(source)) {
    return Error{
        fmt::format("source {}: cannot be quantised; give a float of whole bytes, such as FP32 or BF16", source.name)};
  }
  if ((options.tensor_scale || options.given_scale) && !format.is_nvfp4()) {
    return Error{fmt::format("{}: only nvfp4 takes a tensor scale", format.name)};
  }
  const Expected<Geometry> geometry = geometry_of(format, shape, axis);
  if (!geometry) return geometry.error();
  if (auto fits = check_size(bytes, source, shape, geometry->lines); !fits) return fits.error();

  const auto work = [&]() -> Expected<QuantizedTensor> {
    QuantizedTensor out{.format = &format,
                        .profile = format.is_hif4() ? options.profile : nullptr,
                        .scale_rule = format.is_mx() ? options.scale_rule : nullptr,
                        .rounding = format.is_hif4() ? options.profile->lane_rounding : options.rounding,
                        .source = &source,
                        .shape = {shape.begin(), shape.end()},
                        .axis = axis,
                        .codes = std::vector<std::byte>(geometry->code_bytes),
                        .scales = std::vector<std::byte>(geometry->scale_bytes),
                        .tensor_scale = options.given_scale};
    if (auto valid = validate(out); !valid) return valid.error();
    const Quantizer quantizer(bytes, *geometry, out);
    const uint64 groups = geometry->groups;
    const Execution& execution = options.execution;
    if (options.tensor_scale && !options.given_scale) {
      out.tensor_scale = nvfp4_tensor_scale(tensor_amax(quantizer, groups, execution.threads));
    }
    for_each_block(groups, execution, [&](uint64, uint64 begin, uint64 end) { quantizer.quantize_groups(begin, end); });
    return out;
  };
  return guarded("quantise", work);
}

Expected<Real> largest_magnitude(std::span<const std::byte> words, const Format& source, const Execution& execution) {
  if (!is_quantize_source(source)) return Error{fmt::format("source {}: is not a float of whole bytes", source.name)};
  QuantizedTensor line;
  line.format = find_block_format("nvfp4");
  line.source = &source;
  line.shape = {words.size() / (source.carrier_bits / 8U)};
  const Expected<Geometry> geometry = geometry_of(*line.format, line.shape, 0);
  if (!geometry) return geometry.error();
  if (auto fits = check_size(words, source, line.shape, geometry->lines); !fits) return fits.error();
  return guarded("largest magnitude", [&]() -> Expected<Real> {
    return tensor_amax(Quantizer(words, *geometry, line), geometry->groups, execution.threads);
  });
}

Expected<Dequantized> dequantize(const QuantizedTensor& tensor, const Format& destination, Rounding rounding,
                                 const Execution& execution) {
  switch (destination.type) {
    case DataType::fp64:
    case DataType::fp32:
    case DataType::fp16:
    case DataType::bf16:
      break;
    default:
      return Error{fmt::format("destination {}: dequantise to FP32, BF16, FP16 or FP64", destination.name)};
  }
  const Expected<Geometry> g = validated_geometry(tensor);
  if (!g) return g.error();
  const std::size_t word_bytes = destination.carrier_bits / 8U;
  uint64 size = 0;
  if (!checked_multiply(g->lines.elements(), word_bytes, size)) {
    return Error{fmt::format("shape {}: more bytes than 64 bits can count", show(tensor.shape))};
  }
  const auto work = [&]() -> Expected<Dequantized> {
    Dequantized out{.bytes = std::vector<std::byte>(size), .flags = Flags::none};
    std::atomic<std::uint8_t> flags{0};
    for_each_block(g->groups, execution, [&](uint64, uint64 begin, uint64 end) {
      Flags raised = Flags::none;
      for (uint64 group = begin; group < end; ++group) {
        const GroupReader lanes(tensor, *g, group);
        const GroupPosition& at = lanes.position();
        std::byte* to = out.bytes.data() + g->lines.element(at.line, at.first_lane) * word_bytes;
        for (std::size_t i = 0; i < lanes.size(); ++i) {
          const Value y = lanes[i];
          const Encoded word = convert_value(destination, y.cls, y.real, {.rounding = rounding});
          raised |= word.flags;
          store_word(to + i * g->lines.inner * word_bytes, word_bytes, word.bits);
        }
      }
      flags.fetch_or(static_cast<std::uint8_t>(raised), std::memory_order_relaxed);
    });
    out.flags = static_cast<Flags>(flags.load());
    return out;
  };
  return guarded("dequantise", work);
}

void ErrorSums::add(const Value& x, const Value& y) noexcept {
  if (!x.is_finite() || !y.is_finite()) {
    ++non_finite;
    return;
  }
  const double original = to_double(x.real);
  const double error = std::abs(to_double(y.real) - original);
  max_absolute = std::max(max_absolute, error);
  signal += original * original;
  noise += error * error;
  if (original == 0) return;
  ++non_zero;
  const double ratio = error / std::abs(original);
  relative += ratio;
  max_relative = std::max(max_relative, ratio);
}

void ErrorSums::add(const ErrorSums& other) noexcept {
  non_finite += other.non_finite;
  non_zero += other.non_zero;
  relative += other.relative;
  max_relative = std::max(max_relative, other.max_relative);
  max_absolute = std::max(max_absolute, other.max_absolute);
  signal += other.signal;
  noise += other.noise;
}

Expected<void> ErrorMeter::add(std::span<const std::byte> original, const QuantizedTensor& part,
                               const Execution& execution) {
  const Expected<Geometry> g = validated_geometry(part);
  if (!g) return g.error();
  const Format& source = *part.source;
  if (!is_quantize_source(source)) return Error{fmt::format("source {}: is not a float of whole bytes", source.name)};
  if (auto fits = check_size(original, source, part.shape, g->lines); !fits) return fits.error();
  return guarded("measure", [&]() -> Expected<void> {
    lanes_ += g->lines.elements();
    const uint64 head = std::min(g->groups, (kBlock - groups_) % kBlock);  // the rest of a block that was begun
    add_groups(original, part, *g, 0, head, open_);
    groups_ += head;
    if (groups_ == kBlock) {
      total_.add(std::exchange(open_, {}));
      groups_ = 0;
    }
    const uint64 rest = g->groups - head;
    std::vector<ErrorSums> blocks(blocks_of(rest));
    for_each_block(rest, execution, [&](uint64 block, uint64 begin, uint64 end) {
      ErrorSums sums;  // on this thread's stack: neighbours in `blocks` share cache lines
      add_groups(original, part, *g, head + begin, head + end, sums);
      blocks[block] = sums;
    });
    if (rest % kBlock != 0) {
      open_ = blocks.back();
      groups_ = rest % kBlock;
      blocks.pop_back();
    }
    for (const ErrorSums& sums : blocks) total_.add(sums);  // in order, whatever thread made which
    return {};
  });
}

ErrorReport ErrorMeter::report() const noexcept {
  ErrorSums total = total_;
  if (groups_ != 0) total.add(open_);
  ErrorReport report{.lanes = lanes_, .non_finite = total.non_finite, .non_zero = total.non_zero};
  const uint64 finite = report.lanes - report.non_finite;
  report.max_relative_error = total.max_relative;
  report.max_absolute_error = total.max_absolute;
  if (total.non_zero > 0) report.mean_relative_error = total.relative / static_cast<double>(total.non_zero);
  if (finite > 0) report.mean_squared_error = total.noise / static_cast<double>(finite);
  report.sqnr =
      total.noise == 0 ? std::numeric_limits<double>::infinity() : 10.0 * std::log10(total.signal / total.noise);
  // Nothing was measured, or the sums left the range of a double: no figure is better than a wrong one.
  if (report.lanes == report.non_finite || !std::isfinite(total.signal) || !std::isfinite(total.noise)) {
    report.sqnr = std::numeric_limits<double>::quiet_NaN();
  }
  return report;
}

Expected<ErrorReport> measure(std::span<const std::byte> original, const QuantizedTensor& tensor,
                              const Execution& execution) {
  ErrorMeter meter;
  if (auto added = meter.add(original, tensor, execution); !added) return added.error();
  return meter.report();
}

}  // namespace bitcube
