#include "bitcube/stream/convert.hpp"

#include <fmt/format.h>

#include <atomic>
#include <limits>
#include <vector>

#include "bitcube/io/array.hpp"
#include "bitcube/io/sha256.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "guarded.hpp"
#include "windows.hpp"

namespace bitcube::stream {
namespace {

const Format& lane_format(const Format& f) noexcept {
  return f.type == DataType::hif4x2 ? format_of(DataType::e1m2x2) : f;
}

/// What is wrong with an array, where its name is known.
Error error_in(const NpyArray& array, std::string message) {
  return Error{array.file.name().empty() ? std::move(message) : fmt::format("{}: {}", array.file.name(), message)};
}

bool is_signed(DType dtype) noexcept {
  return dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI32 || dtype == DType::kI64;
}

/// convert_array() for lanes of 4 bits, each in a word of its own. `first` is the number of the first element.
Expected<ConvertedArray> convert_lanes(const NpyArray& array, std::span<const std::byte> words, const Format& from,
                                       const Format& to, const EncodeControl& control, uint64 first,
                                       const Execution& execution) {
  constexpr std::size_t kPart = std::size_t{1} << 14;
  constexpr uint64 kNone = std::numeric_limits<uint64>::max();
  const std::size_t from_bytes = from.carrier_bits / 8U;
  const std::size_t to_bytes = to.carrier_bits / 8U;
  const std::size_t count = words.size() / from_bytes;
  const bool signed_words = is_signed(array.dtype);
  const uint64 carrier = low_mask(from.carrier_bits);
  ConvertedArray out;
  out.words.resize(count * to_bytes);
  std::atomic<std::uint8_t> flags{0};
  std::atomic<uint64> fault{kNone};  // the first element that is no lane
  parallel_for((count + kPart - 1) / kPart, execution, [&](std::size_t part) {
    Flags here = Flags::none;
    for (std::size_t i = part * kPart; i < std::min(count, (part + 1) * kPart); ++i) {
      const uint64 word = load_word(words.data() + i * from_bytes, from_bytes);
      const uint64 lane = word & low_mask(from.lane_bits);
      if (word != lane &&
          !(signed_words && (static_cast<uint64>(sign_extend(lane, from.lane_bits)) & carrier) == word)) {
        uint64 before = fault.load();
        while (i < before && !fault.compare_exchange_weak(before, i)) {
        }
        break;
      }
      const Encoded e = bitcube::convert(from, to, lane, control);
      here |= e.flags;
      const bool extend = to.kind == Kind::signed_integer && to.is_packed();
      store_word(out.words.data() + i * to_bytes, to_bytes,
                 extend ? static_cast<uint64>(sign_extend(e.bits, to.lane_bits)) : e.bits);
    }
    flags.fetch_or(static_cast<std::uint8_t>(here), std::memory_order_relaxed);
  });
  if (const uint64 i = fault.load(); i != kNone) {
    return error_in(array, fmt::format("element {} is 0x{:02X}, beyond a lane of {}", first + i,
                                       load_word(words.data() + i * from_bytes, from_bytes), from.name));
  }
  out.flags = static_cast<Flags>(flags.load());
  return out;
}

}  // namespace

bool convertible(const Format& from, const Format& to) noexcept {
  return conversion_legal(lane_format(from), lane_format(to));
}

Expected<Converted> convert(const NpyArray& array, const Format& from, const Format& to, const EncodeControl& control,
                            OutputFile& file, const Execution& execution, std::size_t window) {
  const std::size_t from_bytes = from.carrier_bits / 8U;
  const std::size_t to_bytes = to.carrier_bits / 8U;
  if (array.element_size() != from_bytes) {
    return error_in(array,
                    fmt::format("{} elements have {} bits, but a lane of {} has {} in memory", dtype_name(array.dtype),
                                8 * array.element_size(), from.name, from.carrier_bits));
  }
  if (!convertible(from, to)) return Error{fmt::format("{} does not convert to {}", from.name, to.name)};
  if (!rounding_legal(from, to, control.rounding)) {
    return Error{fmt::format("{} to {}: only RNE and RNA, not {}", from.name, to.name, name_of(control.rounding))};
  }
  const auto work = [&]() -> Expected<Converted> {
    Converted out;
    out.count = array.size() / from_bytes;
    if (auto begun = begin_array(file, array_dtype(to), array.shape); !begun) return begun.error();
    if (auto reserved = file.reserve(file.size() + out.count * to_bytes); !reserved) return reserved.error();
    const uint64 at_once = std::clamp<uint64>(window / (from_bytes + to_bytes), 1, kEnough);
    std::vector<std::byte> words(std::min(at_once, out.count) * from_bytes);
    Sha256 digest;
    Steps steps(execution, out.count);
    for (uint64 first = 0; first < out.count; first += at_once) {
      const uint64 count = std::min(at_once, out.count - first);
      const std::span some = std::span(words).first(count * from_bytes);
      if (auto read = array.read(first * from_bytes, some); !read) return read.error();
      const Expected<ConvertedArray> converted =
          from.is_packed() || to.is_packed()
              ? convert_lanes(array, some, lane_format(from), lane_format(to), control, first, steps.of(count))
              : convert_array(some, from, to, control, steps.of(count));
      if (!converted) return converted.error();
      out.flags |= converted->flags;
      digest.add(converted->words);
      if (auto appended = file.append(converted->words); !appended) return appended.error();
      steps.finished(count);
    }
    if (auto same = array.file.check_unchanged(); !same) return same.error();
    auto hex = digest.hex();
    if (!hex) return hex.error();
    out.sha256 = std::move(*hex);
    return out;
  };
  return guarded("convert", work);
}

}  // namespace bitcube::stream
