#include "bitcube/report/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

#include "guarded.hpp"
#include "value_text.hpp"

namespace bitcube::report {
namespace {

constexpr uint64 kGroupsAtOnce = 512;

/// What the map gets of a group.
struct GroupFigures {
  enum class Scale : std::uint8_t { number, zero, nan };
  Scale scale = Scale::number;
  int exponent = 0;
  std::uint8_t saturated = 0;  // lanes, at most 64
  std::uint8_t underflowed = 0;
  double signal = 0;
  double noise = 0;
};

/// The scale of a lane.
struct LaneScale {
  Value value;
  unsigned doublings = 0;  // HiF4
};

LaneScale scale_of(const BlockFormat& format, uint64 word, std::optional<std::uint32_t> tensor_scale,
                   std::size_t lane) {
  if (format.is_hif4()) {
    const auto scale = static_cast<std::uint32_t>(word);
    return {hif4_scale(scale, lane), static_cast<unsigned>(hif4_micro_exponent(scale, lane))};
  }
  LaneScale out{decode(*format.scale, word)};
  if (tensor_scale && out.value.is_finite()) {
    out.value.real = multiply(out.value.real, decode(fp32, *tensor_scale).real);
  }
  return out;
}

/// The scale of which the exponent is shown: that which is stored for the group alone.
Value stored_scale(const BlockFormat& format, uint64 word) {
  return format.is_hif4() ? decode(e6m2, word & 0xFF) : decode(*format.scale, word);
}

}  // namespace

std::size_t relative_bin(double error, double x) noexcept {
  const double ratio = std::fabs(error) / std::fabs(x);
  if (ratio == 0) return 0;
  if (ratio >= 1) return kRelativeBins - 1;
  return static_cast<std::size_t>(std::max(std::ilogb(ratio), kLowestOctave - 1) - kLowestOctave + 2);
}

std::size_t step_bin(double error, double step) noexcept {
  const double part = std::floor(error / step * kStepParts + 0.5);
  if (part < -kStepParts) return 0;
  if (part > kStepParts) return kStepBins - 1;
  return static_cast<std::size_t>(static_cast<int>(part) + kStepParts + 1);
}

StatisticsMeter::StatisticsMeter(const BlockFormat& format, std::span<const uint64> shape, std::size_t axis)
    : format_(format) {
  Lines lines;
  lines_of(shape, axis, lines);
  Map& map = statistics_.map;
  map.lines = lines.count;
  map.groups = format.groups(lines.length);
  map.rows = std::min(map.lines, Map::kMapSide);
  map.columns = std::min(map.groups, Map::kMapSide);
  map.cells.resize(map.rows * map.columns);

  const Format& element = *format.element;
  for (uint64 code = 0; code <= element.max_finite; ++code) values_.push_back(to_double(decode(element, code).real));
  for (uint64 code = 0; code < element.max_finite; ++code) steps_.push_back(values_[code + 1] - values_[code]);
  steps_.push_back(steps_.back());
}

void StatisticsMeter::add(const stream::Part& part, const Execution& execution) {
  const QuantizedTensor& tensor = part.tensor;
  const Format& source = *tensor.source;
  const Format& element = *format_.element;
  Lines lines;
  lines_of(tensor.shape, tensor.axis, lines);
  const uint64 per_line = format_.groups(lines.length);
  const uint64 count = lines.count * per_line;
  const std::size_t word_bytes = source.carrier_bits / 8U;
  const std::size_t scale_bytes = format_.scale_bytes();
  const uint64 magnitude_mask = low_mask(element.sign_bit());
  const std::size_t same_scale = format_.is_hif4() ? 4 : format_.group;
  std::vector<GroupFigures> figures(count);
  std::mutex mutex;

  /// One group: counts go to `sums`, what is a sum of doubles to its figures.
  const auto add_group = [&](uint64 group, FormatStatistics& sums) {
    GroupFigures& out = figures[group];
    const uint64 line = group / per_line;
    const uint64 first = group % per_line * format_.group;
    const uint64 lanes = std::min<uint64>(format_.group, lines.length - first);
    const uint64 scale_word = load_word(tensor.scales.data() + group * scale_bytes, scale_bytes);
    const Value stored = stored_scale(format_, scale_word);
    if (!stored.is_finite()) {
      out.scale = GroupFigures::Scale::nan;
    } else if (stored.real.is_zero()) {
      out.scale = GroupFigures::Scale::zero;
    } else {
      out.exponent = floor_log2(stored.real);
    }
    const std::byte* codes = tensor.codes.data() + line * format_.code_bytes(lines.length);
    double scale = 0;
    for (uint64 k = 0; k < lanes; ++k) {
      const uint64 lane = first + k;
      if (k % same_scale == 0) {
        const LaneScale here = scale_of(format_, scale_word, tensor.tensor_scale, k);
        scale = here.value.is_finite() ? to_double(here.value.real) : 0;
        if (format_.is_hif4()) sums.doublings[here.doublings] += std::min<uint64>(same_scale, lanes - k);
      }
      auto code = static_cast<uint64>(codes[element.is_packed() ? lane / 2 : lane]);
      if (element.is_packed()) code = (lane % 2 == 0 ? code : code >> 4) & 0xF;
      const uint64 magnitude = code & magnitude_mask;
      const Value exact =
          decode(source, load_word(part.words.data() + lines.element(line, lane) * word_bytes, word_bytes));
      const bool finite = out.scale != GroupFigures::Scale::nan && magnitude <= element.max_finite;
      // y has at most 30 bits of significand, and so is exact.
      const double largest = values_.back() * scale;
      if (exact.is_infinite() && finite && magnitude == element.max_finite) {
        ++sums.saturated;
        ++out.saturated;
      }
      if (!exact.is_finite() || !finite) continue;
      const double x = to_double(exact.real);
      const double size = values_[magnitude] * scale;
      const double y = magnitude != code && (code >> element.sign_bit() & 1) != 0 ? -size : size;
      const double error = y - x;
      out.signal += x * x;
      out.noise += error * error;
      if (x == 0) {
        ++sums.zero;
      } else {
        ++sums.relative[relative_bin(error, x)];
        sums.largest = std::max(sums.largest, std::fabs(x));
        sums.smallest = sums.smallest == 0 ? std::fabs(x) : std::min(sums.smallest, std::fabs(x));
        if (y == 0) {
          ++sums.underflowed;
          ++out.underflowed;
        }
      }
      if (magnitude == element.max_finite && std::fabs(x) > largest) {
        ++sums.saturated;
        ++out.saturated;
      }
      if (scale == 0) {
        ++sums.without_step;
      } else {
        ++sums.steps[step_bin(error, steps_[magnitude] * scale)];
      }
    }
  };

  parallel_for((count + kGroupsAtOnce - 1) / kGroupsAtOnce, execution, [&](std::size_t chunk) {
    FormatStatistics sums;
    const uint64 begin = chunk * kGroupsAtOnce;
    for (uint64 group = begin; group < std::min(count, begin + kGroupsAtOnce); ++group) add_group(group, sums);
    const std::lock_guard lock(mutex);
    FormatStatistics& all = statistics_;
    all.zero += sums.zero;
    all.saturated += sums.saturated;
    all.underflowed += sums.underflowed;
    all.without_step += sums.without_step;
    all.largest = std::max(all.largest, sums.largest);
    if (sums.smallest != 0) all.smallest = all.smallest == 0 ? sums.smallest : std::min(all.smallest, sums.smallest);
    for (std::size_t i = 0; i < kRelativeBins; ++i) all.relative[i] += sums.relative[i];
    for (std::size_t i = 0; i < kStepBins; ++i) all.steps[i] += sums.steps[i];
    for (std::size_t i = 0; i < all.doublings.size(); ++i) all.doublings[i] += sums.doublings[i];
  });

  // Sums of doubles depend on their order, so the groups are added in theirs.
  for (uint64 group = 0; group < count; ++group) {
    const GroupFigures& from = figures[group];
    Cell& cell =
        statistics_.map.of(part.first_line + group / per_line, part.first_lane / format_.group + group % per_line);
    cell.signal += from.signal;
    cell.noise += from.noise;
    cell.saturated += from.saturated;
    cell.underflowed += from.underflowed;
    if (from.scale == GroupFigures::Scale::nan) {
      ++statistics_.nan_scales;
    } else if (from.scale == GroupFigures::Scale::zero) {
      ++statistics_.zero_scales;
    } else {
      ++statistics_.exponents[from.exponent];
      cell.lowest = cell.groups == 0 ? from.exponent : std::min(cell.lowest, from.exponent);
      cell.highest = cell.groups == 0 ? from.exponent : std::max(cell.highest, from.exponent);
      cell.sum += from.exponent;
      ++cell.groups;
    }
  }
}

Expected<TensorReport> measure_tensor(const stream::TensorFiles& files, std::size_t tensor, std::int64_t axis,
                                      std::span<const QuantizeOptions> formats, const Execution& execution,
                                      std::size_t window) {
  return guarded("report", [&]() -> Expected<TensorReport> {
    const stream::TensorInfo& info = files.tensors()[tensor];
    const auto rank = static_cast<std::int64_t>(info.shape.size());
    if (axis < -rank || axis >= rank) {
      return Error{fmt::format("it has {} dimension{}, but no axis {}; give another --axis, or exclude it", rank,
                               rank == 1 ? "" : "s", axis)};
    }
    TensorReport out{.file = info.file, .name = info.name, .dtype = info.dtype, .shape = info.shape};
    out.axis = static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
    for (std::size_t i = 0; i < formats.size(); ++i) {
      QuantizeOptions options = formats[i];
      options.execution = execution;
      if (execution.progress) {
        options.execution.progress = [&, i](std::size_t done, std::size_t total) {
          // In thousandths, so that no number of elements times one of formats is too large.
          execution.progress(1000 * i + static_cast<std::size_t>(1000.0 * static_cast<double>(done) /
                                                                 static_cast<double>(std::max<std::size_t>(total, 1))),
                             1000 * formats.size());
        };
      }
      StatisticsMeter meter(*options.format, info.shape, out.axis);
      auto result = stream::quantize_parts(
          files, tensor, out.axis, options,
          [&](const stream::Part& part) -> Expected<void> {
            meter.add(part, execution.quiet());
            return {};
          },
          window);
      if (!result) return result.error();
      FormatStatistics& statistics = out.formats.emplace_back(meter.take());
      statistics.result = std::move(*result);
    }
    return out;
  });
}

}  // namespace bitcube::report
