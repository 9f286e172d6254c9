#include "bitcube/quantize/tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "guarded.hpp"
#include "quantize/kernels/hif4.hpp"
#include "quantize/kernels/mx.hpp"
#include "quantize/kernels/transpose.hpp"
#include "quantize/kernels/widen.hpp"

namespace bitcube {
namespace {

static_assert(std::endian::native == std::endian::little, "words are loaded as they lie in memory");

constexpr uint64 kBlock = ErrorMeter::kBlock;  // groups that one thread takes at a time

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

/// Groups whose lanes follow each other, where those of a line do: from group `begin`, which is at `at`, to `end` at
/// most. Lines of whole groups follow each other too.
struct GroupRun {
  uint64 groups = 0;
  uint64 lanes = 0;
};

GroupRun run_of(const BlockFormat& format, const Geometry& g, const GroupPosition& at, uint64 begin,
                uint64 end) noexcept {
  const uint64 groups = end - begin;
  if (g.lines.length % format.group == 0) return {groups, groups * format.group};
  const uint64 of_line = std::min(groups, g.groups_per_line - begin % g.groups_per_line);
  return {of_line, std::min(of_line * format.group, g.lines.length - at.first_lane)};
}

/// The codes of one group, at most 64.
using Codes = std::array<std::uint8_t, hif4_group_lanes>;

/// The lines [first, first + count) of a tensor.
struct LineRange {
  uint64 first = 0;
  uint64 count = 0;
};

/// A block of lanes of several lines, side by side in memory: what a kernel reads where the lanes of a line lie apart,
/// or writes. 32 lines, so that whole cache lines of the tensor are used; it fits the first caches.
struct Tile {
  static constexpr uint64 max_lines = 32;
  static constexpr uint64 max_lanes = 256;  // whole groups of every format

  alignas(64) std::array<std::byte, max_lines * max_lanes * sizeof(std::uint32_t)> bytes;
};

/// Which lanes a tile holds.
struct TilePosition {
  LineRange lines;
  uint64 first_lane = 0;
  uint64 lanes = 0;
};

/// Calls body(position) for tiles that cover a range of lines.
template <typename Body>
void for_each_tile(const Lines& lines, const LineRange& range, const Execution& execution, const Body& body) {
  if (range.count == 0) return;
  const uint64 across = (range.count - 1) / Tile::max_lines + 1;
  const uint64 along = (lines.length - 1) / Tile::max_lanes + 1;
  parallel_for(across * along, execution, [&](std::size_t tile) {
    const uint64 line = tile % across * Tile::max_lines;
    const uint64 lane = tile / across * Tile::max_lanes;
    body(TilePosition{{range.first + line, std::min(Tile::max_lines, range.count - line)},
                      lane,
                      std::min(Tile::max_lanes, lines.length - lane)});
  });
}

/// Calls move(element, index, count) for runs of lines whose first lanes follow each other in the tensor: `element` is
/// the first lane of `count` lines, `index` the place of the first line in the tile.
template <typename Move>
void for_each_run(const Lines& lines, const TilePosition& at, const Move& move) noexcept {
  for (uint64 l = 0; l < at.lines.count;) {
    const uint64 line = at.lines.first + l;
    const uint64 count = std::min(at.lines.count - l, lines.inner - line % lines.inner);
    move(lines.element(line, at.first_lane), l, count);
    l += count;
  }
}

template <typename Word>
Word load_as(const std::byte* from) noexcept {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

template <typename Word>
void store_as(std::byte* to, Word word) noexcept {
  std::memcpy(to, &word, sizeof word);
}

/// Quantises a range of lines, by groups.
class Quantizer {
 public:
  /// The outputs hold the range alone. `tensor_scale`: of NVFP4.
  Quantizer(std::span<const std::byte> bytes, const Format& source, const Geometry& geometry,
            const QuantizeOptions& options, const LineRange& range, std::byte* codes, std::byte* scales) noexcept
      : bytes_(bytes.data()),
        source_(source),
        word_bytes_(source.carrier_bits / 8U),
        geometry_(geometry),
        options_(options),
        format_(*options.format),
        range_(range),
        codes_(codes),
        scales_(scales),
        kernel_source_(options.execution.reference ? nullptr : find_kernel_source()) {}

  void set_tensor_scale(std::uint32_t scale) noexcept { tensor_scale_ = scale; }

  void quantize() const {
    const Execution& execution = options_.execution;
    if (kernel_source_ != nullptr && geometry_.lines.inner > 1) {
      for_each_tile(geometry_.lines, range_, execution, [&](const TilePosition& at) { quantize_tile(at); });
      return;
    }
    for_each_block(groups(), execution, [&](uint64, uint64 begin, uint64 end) {
      if (kernel_source_ != nullptr) {
        quantize_runs(first_group() + begin, first_group() + end);
      } else {
        for (uint64 group = begin; group < end; ++group) quantize_group(first_group() + group);
      }
    });
  }

  /// The largest finite magnitude. The largest of the blocks' maxima is the same in whatever order they are taken.
  Real amax() const {
    std::vector<Real> maxima(blocks_of(groups()));
    const auto larger = [](const Real& a, const Real& b) { return compare_magnitude(a, b) > 0 ? a : b; };
    for_each_block(groups(), options_.execution.quiet(), [&](uint64 block, uint64 begin, uint64 end) {
      Real largest;
      for (uint64 group = begin; group < end; ++group) {
        std::array<Value, mx_group_lanes> lanes;
        const GroupPosition at = locate(format_, geometry_, first_group() + group);
        decode_lanes(at, lanes);
        largest = larger(detail::range_of({lanes.data(), at.lanes}).amax, largest);
      }
      maxima[block] = largest;
    });
    Real largest;
    for (const Real& maximum : maxima) largest = larger(maximum, largest);
    return largest;
  }

 private:
  uint64 groups() const noexcept { return range_.count * geometry_.groups_per_line; }
  uint64 first_group() const noexcept { return range_.first * geometry_.groups_per_line; }

  // ---- Kernels ----

  /// The format from whose words a kernel quantises this source, or nullptr: BF16 and FP32 as they are, FP16 as the
  /// same values in FP32, and with HiF4 all others rounded to BF16 (hif4_source_format()).
  const Format* find_kernel_source() const noexcept {
    if (format_.is_nvfp4() || (format_.is_mx() && options_.rounding != Rounding::rne)) return nullptr;
    const Format& source = format_.is_hif4()                ? hif4_source_format(source_)
                           : source_.type == DataType::fp16 ? fp32
                                                            : source_;
    return run_kernel(source, nullptr, 0, nullptr, nullptr) ? &source : nullptr;
  }

  bool run_kernel(const Format& source, const std::byte* words, uint64 lanes, std::byte* codes,
                  std::byte* scales) const noexcept {
    return format_.is_hif4() ? kernels::quantize_hif4(source, words, lanes, *options_.profile, codes, scales)
                             : kernels::quantize_mx(source, words, lanes, *format_.element,
                                                    options_.scale_rule->rounding, codes, scales);
  }

  std::byte* codes_at(uint64 line, uint64 lane) const noexcept {
    return codes_ + (line - range_.first) * geometry_.code_bytes_per_line + format_.code_bytes(lane);
  }
  std::byte* scales_at(uint64 group) const noexcept {
    return scales_ + (group - first_group()) * format_.scale_bytes();
  }

  /// Calls use(convert, word type of the source, of the kernel), where they differ.
  template <typename Use>
  void with_conversion(const Use& use) const noexcept {
    if (source_.type == DataType::fp16) {
      if (format_.is_hif4()) {
        use([](std::uint16_t word) { return kernels::fp16_to_bf16(word); }, std::uint16_t{}, std::uint16_t{});
      } else {
        use([](std::uint16_t word) { return kernels::fp16_to_fp32(word); }, std::uint16_t{}, std::uint32_t{});
      }
    } else {
      const auto to_bf16 = [this](uint64 word) { return static_cast<std::uint16_t>(hif4_source_word(source_, word)); };
      if (word_bytes_ == 1) {
        use(to_bf16, std::uint8_t{}, std::uint16_t{});
      } else if (word_bytes_ == 2) {
        use(to_bf16, std::uint16_t{}, std::uint16_t{});
      } else if (word_bytes_ == 4) {
        use(to_bf16, std::uint32_t{}, std::uint16_t{});
      } else {
        use(to_bf16, uint64{}, std::uint16_t{});
      }
    }
  }

  /// Groups [begin, end) of lines whose lanes follow each other.
  void quantize_runs(uint64 begin, uint64 end) const noexcept {
    while (begin < end) {
      const GroupPosition at = locate(format_, geometry_, begin);
      const GroupRun run = run_of(format_, geometry_, at, begin, end);
      const std::byte* words = bytes_ + geometry_.lines.element(at.line, at.first_lane) * word_bytes_;
      std::byte* codes = codes_at(at.line, at.first_lane);
      std::byte* scales = scales_at(begin);
      if (kernel_source_ == &source_) {
        run_kernel(source_, words, run.lanes, codes, scales);
      } else {
        quantize_converted(words, run.lanes, codes, scales);
      }
      begin += run.groups;
    }
  }

  void quantize_converted(const std::byte* words, uint64 lanes, std::byte* codes, std::byte* scales) const noexcept {
    constexpr uint64 piece = Tile::max_lanes * Tile::max_lines;
    Tile tile;
    for (uint64 done = 0; done < lanes; done += piece) {
      const uint64 count = std::min(piece, lanes - done);
      with_conversion([&](const auto& convert_word, auto source, auto target) {
        using From = decltype(source);
        using To = decltype(target);
        const std::byte* from = words + done * sizeof(From);
        for (uint64 i = 0; i < count; ++i) {
          store_as<To>(tile.bytes.data() + i * sizeof(To), convert_word(load_as<From>(from + i * sizeof(From))));
        }
      });
      run_kernel(*kernel_source_, tile.bytes.data(), count, codes + format_.code_bytes(done),
                 scales + done / format_.group * format_.scale_bytes());
    }
  }

  /// Lanes of a line that lie apart: gathered for several lines at once.
  void quantize_tile(const TilePosition& at) const noexcept {
    Tile tile;
    for_each_run(geometry_.lines, at, [&](uint64 element, uint64 index, uint64 count) {
      const std::byte* from = bytes_ + element * word_bytes_;
      const std::size_t stride = geometry_.lines.inner * word_bytes_;
      if (kernel_source_ == &source_) {
        const std::size_t line_bytes = at.lanes * word_bytes_;
        kernels::transpose(word_bytes_, from, stride, at.lanes, count, tile.bytes.data() + index * line_bytes,
                           line_bytes);
        return;
      }
      with_conversion([&](const auto& convert_word, auto source, auto target) {
        using From = decltype(source);
        using To = decltype(target);
        for (uint64 k = 0; k < at.lanes; ++k) {
          std::byte* to = tile.bytes.data() + (index * at.lanes + k) * sizeof(To);
          for (uint64 i = 0; i < count; ++i) {
            const std::byte* word = from + k * stride + i * sizeof(From);
            store_as<To>(to + i * at.lanes * sizeof(To), convert_word(load_as<From>(word)));
          }
        }
      });
    });
    const std::size_t line_bytes = at.lanes * (kernel_source_->carrier_bits / 8U);
    for (uint64 l = 0; l < at.lines.count; ++l) {
      const uint64 line = at.lines.first + l;
      run_kernel(*kernel_source_, tile.bytes.data() + l * line_bytes, at.lanes, codes_at(line, at.first_lane),
                 scales_at(line * geometry_.groups_per_line + at.first_lane / format_.group));
    }
  }

  // ---- Reference ----

  template <typename Use>
  void for_each_word(const GroupPosition& at, const Use& use) const noexcept {
    const std::byte* from = bytes_ + geometry_.lines.element(at.line, at.first_lane) * word_bytes_;
    const std::size_t stride = geometry_.lines.inner * word_bytes_;
    for (std::size_t i = 0; i < at.lanes; ++i) use(i, load_word(from + i * stride, word_bytes_));
  }

  void decode_lanes(const GroupPosition& at, std::array<Value, mx_group_lanes>& lanes) const noexcept {
    for_each_word(at, [&](std::size_t i, uint64 word) { lanes[i] = decode(source_, word); });
  }

  void quantize_group(uint64 group) const noexcept {
    const GroupPosition at = locate(format_, geometry_, group);
    Codes codes{};
    uint64 scale = 0;
    if (format_.is_hif4()) {
      std::array<std::uint32_t, hif4_group_lanes> words;
      for_each_word(at, [&](std::size_t i, uint64 word) { words[i] = hif4_source_word(source_, word); });
      const Hif4Group quantized =
          quantize_hif4_group(hif4_source_format(source_), {words.data(), at.lanes}, *options_.profile);
      scale = quantized.scale_word;
      codes = quantized.codes;
    } else {
      std::array<Value, mx_group_lanes> values;
      decode_lanes(at, values);
      const std::span<const Value> lanes{values.data(), at.lanes};
      const MxGroup quantized =
          format_.is_mx() ? quantize_mx_group(*format_.element, lanes, options_.scale_rule->rounding, options_.rounding)
                          : quantize_nvfp4_group(lanes, tensor_scale_, options_.rounding);
      scale = quantized.scale;
      std::copy(quantized.codes.begin(), quantized.codes.end(), codes.begin());
    }
    store_word(scales_at(group), format_.scale_bytes(), scale);
    store_codes(at, codes);
  }

  /// A group starts on a byte of its own, because group lengths are even.
  void store_codes(const GroupPosition& at, const Codes& codes) const noexcept {
    std::byte* to = codes_at(at.line, at.first_lane);
    if (!format_.element->is_packed()) {
      for (std::size_t i = 0; i < at.lanes; ++i) to[i] = std::byte{codes[i]};
      return;
    }
    for (std::size_t i = 0; i < at.lanes; i += 2) to[i / 2] = static_cast<std::byte>(codes[i] | codes[i + 1] << 4);
  }

  static constexpr std::uint32_t kOne = 0x3F800000;

  const std::byte* bytes_;
  const Format& source_;
  std::size_t word_bytes_;
  const Geometry& geometry_;
  const QuantizeOptions& options_;
  const BlockFormat& format_;
  LineRange range_;
  std::byte* codes_;
  std::byte* scales_;
  std::uint32_t tensor_scale_ = kOne;
  const Format* kernel_source_;  // nullptr: the reference does it
};

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

/// Dequantises a whole tensor.
class Dequantizer {
 public:
  Dequantizer(const QuantizedTensor& tensor, const Format& destination, Rounding rounding, const Geometry& geometry,
              std::byte* out) noexcept
      : tensor_(tensor),
        format_(*tensor.format),
        destination_(destination),
        rounding_(rounding),
        word_bytes_(destination.carrier_bits / 8U),
        geometry_(geometry),
        out_(out) {}

  Flags dequantize(const Execution& execution) const {
    std::atomic<std::uint8_t> flags{0};
    const auto raise = [&](Flags raised) {
      flags.fetch_or(static_cast<std::uint8_t>(raised), std::memory_order_relaxed);
    };
    Flags none = Flags::none;
    const bool kernel = !execution.reference && run_kernel(0, 0, 0, nullptr, none);
    if (kernel && geometry_.lines.inner > 1) {
      for_each_tile(geometry_.lines, {0, geometry_.lines.count}, execution,
                    [&](const TilePosition& at) { raise(dequantize_tile(at)); });
    } else {
      for_each_block(geometry_.groups, execution, [&](uint64, uint64 begin, uint64 end) {
        raise(kernel ? dequantize_runs(begin, end) : dequantize_groups(begin, end));
      });
    }
    return static_cast<Flags>(flags.load());
  }

 private:
  // ---- Kernels ----

  /// False if there is no kernel; `lanes` may be 0 to learn it.
  bool run_kernel(uint64 line, uint64 lane, uint64 lanes, std::byte* words, Flags& flags) const noexcept {
    if (format_.is_nvfp4() || rounding_ != Rounding::rne) return false;
    const std::byte* codes = tensor_.codes.data() + line * geometry_.code_bytes_per_line + format_.code_bytes(lane);
    const std::byte* scales =
        tensor_.scales.data() + (line * geometry_.groups_per_line + lane / format_.group) * format_.scale_bytes();
    return format_.is_hif4()
               ? kernels::dequantize_hif4(codes, scales, lanes, destination_, words, flags)
               : kernels::dequantize_mx(codes, scales, lanes, *format_.element, destination_, words, flags);
  }

  /// Groups [begin, end) of lines whose lanes follow each other.
  Flags dequantize_runs(uint64 begin, uint64 end) const noexcept {
    Flags raised = Flags::none;
    while (begin < end) {
      const GroupPosition at = locate(format_, geometry_, begin);
      const GroupRun run = run_of(format_, geometry_, at, begin, end);
      run_kernel(at.line, at.first_lane, run.lanes,
                 out_ + geometry_.lines.element(at.line, at.first_lane) * word_bytes_, raised);
      begin += run.groups;
    }
    return raised;
  }

  Flags dequantize_tile(const TilePosition& at) const noexcept {
    Tile tile;
    Flags raised = Flags::none;
    for (uint64 l = 0; l < at.lines.count; ++l) {
      run_kernel(at.lines.first + l, at.first_lane, at.lanes, tile.bytes.data() + l * at.lanes * word_bytes_, raised);
    }
    const std::size_t line_bytes = at.lanes * word_bytes_;
    for_each_run(geometry_.lines, at, [&](uint64 element, uint64 index, uint64 count) {
      kernels::transpose(word_bytes_, tile.bytes.data() + index * line_bytes, line_bytes, count, at.lanes,
                         out_ + element * word_bytes_, geometry_.lines.inner * word_bytes_);
    });
    return raised;
  }

  // ---- Reference ----

  Flags dequantize_groups(uint64 begin, uint64 end) const noexcept {
    Flags raised = Flags::none;
    for (uint64 group = begin; group < end; ++group) {
      const GroupReader lanes(tensor_, geometry_, group);
      const GroupPosition& at = lanes.position();
      std::byte* to = out_ + geometry_.lines.element(at.line, at.first_lane) * word_bytes_;
      for (std::size_t i = 0; i < lanes.size(); ++i) {
        const Value y = lanes[i];
        const Encoded word = convert_value(destination_, y.cls, y.real, {.rounding = rounding_});
        raised |= word.flags;
        store_word(to + i * geometry_.lines.inner * word_bytes_, word_bytes_, word.bits);
      }
    }
    return raised;
  }

  const QuantizedTensor& tensor_;
  const BlockFormat& format_;
  const Format& destination_;
  Rounding rounding_;
  std::size_t word_bytes_;
  const Geometry& geometry_;
  std::byte* out_;
};

Expected<Geometry> described_geometry(const QuantizedTensor& tensor) {
  const BlockFormat* format = tensor.format;
  if (format == nullptr) return Error{"quantised tensor: no block format"};
  if (tensor.source == nullptr) return Error{"quantised tensor: no source format"};
  if (!is_quantize_source(*tensor.source)) {
    return Error{fmt::format("source {}: is not a float of whole bytes", tensor.source->name)};
  }
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

/// What quantize() needs to know, or what is wrong with its arguments.
Expected<Geometry> quantize_geometry(std::span<const std::byte> bytes, const Format& source,
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
  return geometry;
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
  const Expected<Geometry> geometry = quantize_geometry(bytes, source, shape, axis, options);
  if (!geometry) return geometry.error();
  const BlockFormat& format = *options.format;
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
    const LineRange all{0, geometry->lines.count};
    Quantizer quantizer(bytes, source, *geometry, options, all, out.codes.data(), out.scales.data());
    if (options.tensor_scale && !options.given_scale) out.tensor_scale = nvfp4_tensor_scale(quantizer.amax());
    if (out.tensor_scale) quantizer.set_tensor_scale(*out.tensor_scale);
    quantizer.quantize();
    return out;
  };
  return guarded("quantise", work);
}

Expected<void> quantize_lines(std::span<const std::byte> bytes, const Format& source, std::span<const uint64> shape,
                              std::size_t axis, const QuantizeOptions& options, uint64 first_line, uint64 lines,
                              std::span<std::byte> codes, std::span<std::byte> scales) {
  const Expected<Geometry> geometry = quantize_geometry(bytes, source, shape, axis, options);
  if (!geometry) return geometry.error();
  if (options.tensor_scale && !options.given_scale)
    return Error{"nvfp4: a tensor scale needs the whole tensor, not some of its lines"};
  const uint64 all = geometry->lines.count;
  if (first_line > all || lines > all - first_line) {
    return Error{fmt::format("lines {} to {}: shape {} along axis {} has {}", first_line, first_line + lines,
                             show(shape), axis, all)};
  }
  const auto check = [&](std::string_view what, uint64 has, uint64 needs) -> Expected<void> {
    if (has == needs) return {};
    return Error{
        fmt::format("{}: {} has {} bytes, but {} lines need {}", options.format->name, what, has, lines, needs)};
  };
  if (auto ok = check("codes", codes.size(), lines * geometry->code_bytes_per_line); !ok) return ok.error();
  const uint64 scale_bytes = lines * geometry->groups_per_line * options.format->scale_bytes();
  if (auto ok = check("scales", scales.size(), scale_bytes); !ok) return ok.error();
  const auto work = [&]() -> Expected<void> {
    const LineRange range{first_line, lines};
    Quantizer quantizer(bytes, source, *geometry, options, range, codes.data(), scales.data());
    if (options.given_scale) quantizer.set_tensor_scale(*options.given_scale);
    quantizer.quantize();
    return {};
  };
  return guarded("quantise", work);
}

Expected<Real> largest_magnitude(std::span<const std::byte> words, const Format& source, const Execution& execution) {
  if (!is_quantize_source(source)) return Error{fmt::format("source {}: is not a float of whole bytes", source.name)};
  const QuantizeOptions options{.format = find_block_format("nvfp4"), .execution = execution};
  const std::array<uint64, 1> shape{words.size() / (source.carrier_bits / 8U)};
  const Expected<Geometry> geometry = quantize_geometry(words, source, shape, 0, options);
  if (!geometry) return geometry.error();
  return guarded("largest magnitude", [&]() -> Expected<Real> {
    const LineRange all{0, geometry->lines.count};
    return Quantizer(words, source, *geometry, options, all, nullptr, nullptr).amax();
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
    const Dequantizer dequantizer(tensor, destination, rounding, *g, out.bytes.data());
    out.flags = dequantizer.dequantize(execution);
    return out;
  };
  return guarded("dequantise", work);
}

void SumOfSquares::add(double x) noexcept {
  // The bounds leave room for sums of 2^60 squares. Scaling by a power of two is exact.
  const double size = std::abs(x);
  if (size > 0x1p480) {
    large_ += (x * 0x1p-600) * (x * 0x1p-600);
  } else if (size < 0x1p-480) {
    small_ += (x * 0x1p600) * (x * 0x1p600);
  } else {
    ordinary_ += x * x;
  }
}

void SumOfSquares::add(const SumOfSquares& other) noexcept {
  ordinary_ += other.ordinary_;
  large_ += other.large_;
  small_ += other.small_;
}

SumOfSquares::Scaled SumOfSquares::scaled() const noexcept {
  if (large_ != 0) return {large_ + std::ldexp(ordinary_, -1200), 1200};
  if (ordinary_ != 0) return {ordinary_ + std::ldexp(small_, -1200), 0};
  return {small_, -1200};
}

double SumOfSquares::value() const noexcept {
  const Scaled s = scaled();
  return std::ldexp(s.sum, s.exponent);
}

double SumOfSquares::decibels(const SumOfSquares& signal, const SumOfSquares& noise) noexcept {
  const Scaled s = signal.scaled();
  const Scaled n = noise.scaled();
  const double ratio = s.sum / n.sum;
  const bool fits = s.exponent == n.exponent && std::isfinite(ratio) && ratio != 0;
  if (fits || s.sum == 0 || n.sum == 0) return 10.0 * std::log10(ratio);
  return 10.0 * (std::log10(s.sum) - std::log10(n.sum) + (s.exponent - n.exponent) * std::log10(2.0));
}

void ErrorSums::add(const Value& x, const Value& y) noexcept {
  if (!x.is_finite() || !y.is_finite()) {
    ++non_finite;
    return;
  }
  const double original = to_double(x.real);
  const double error = std::abs(to_double(y.real) - original);
  max_absolute = std::max(max_absolute, error);
  signal.add(original);
  noise.add(error);
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
  signal.add(other.signal);
  noise.add(other.noise);
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
      close(std::exchange(open_, {}));
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
    for (const ErrorSums& sums : blocks) close(sums);  // in order, whatever thread made which
    return {};
  });
}

void ErrorMeter::close(const ErrorSums& block) {
  if (keeps_) {
    blocks_.push_back(block);
  } else {
    total_.add(block);
  }
}

void ErrorMeter::append(const ErrorMeter& next) noexcept {
  for (const ErrorSums& block : next.blocks_) total_.add(block);
  open_ = next.open_;
  groups_ = next.groups_;
  lanes_ += next.lanes_;
}

std::string ErrorMeter::state() const {
  static_assert(std::is_trivially_copyable_v<ErrorSums>);
  std::string out;
  const auto put = [&](const auto& value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(lanes_);
  put(groups_);
  put(open_);
  for (const ErrorSums& block : blocks_) put(block);
  return out;
}

Expected<ErrorMeter> ErrorMeter::from_state(std::string_view state) {
  ErrorMeter out(true);
  constexpr std::size_t head = 2 * sizeof(uint64) + sizeof(ErrorSums);
  if (state.size() < head || (state.size() - head) % sizeof(ErrorSums) != 0) return Error{"not the state of a meter"};
  const auto take = [&](auto& value) {
    std::memcpy(&value, state.data(), sizeof value);
    state.remove_prefix(sizeof value);
  };
  take(out.lanes_);
  take(out.groups_);
  take(out.open_);
  out.blocks_.resize(state.size() / sizeof(ErrorSums));
  for (ErrorSums& block : out.blocks_) take(block);
  return out;
}

ErrorReport ErrorMeter::report() const noexcept {
  ErrorSums total = total_;
  for (const ErrorSums& block : blocks_) total.add(block);
  if (groups_ != 0) total.add(open_);
  ErrorReport report{.lanes = lanes_, .non_finite = total.non_finite, .non_zero = total.non_zero};
  const uint64 finite = report.lanes - report.non_finite;
  report.max_relative_error = total.max_relative;
  report.max_absolute_error = total.max_absolute;
  if (total.non_zero > 0) report.mean_relative_error = total.relative / static_cast<double>(total.non_zero);
  if (finite > 0) report.mean_squared_error = total.noise.value() / static_cast<double>(finite);
  report.sqnr = total.noise.is_zero() ? std::numeric_limits<double>::infinity()
                                      : SumOfSquares::decibels(total.signal, total.noise);
  if (finite == 0) report.sqnr = std::numeric_limits<double>::quiet_NaN();  // nothing was measured
  return report;
}

Expected<ErrorReport> measure(std::span<const std::byte> original, const QuantizedTensor& tensor,
                              const Execution& execution) {
  ErrorMeter meter;
  if (auto added = meter.add(original, tensor, execution); !added) return added.error();
  return meter.report();
}

}  // namespace bitcube
