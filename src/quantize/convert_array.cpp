#include "bitcube/quantize/convert_array.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "bitcube/quantize/lines.hpp"

#include "guarded.hpp"
#include "quantize/kernels/convert.hpp"

namespace bitcube {

namespace {

/// The number of elements, or why the words are not converted.
Expected<std::size_t> check(std::span<const std::byte> words, const Format& from, const Format& to, Rounding rounding) {
  if (from.is_packed() || to.is_packed()) {
    return Error{fmt::format("{} to {}: arrays of packed lanes are not converted", from.name, to.name)};
  }
  if (!conversion_legal(from, to)) return Error{fmt::format("{} does not convert to {}", from.name, to.name)};
  if (!rounding_legal(from, to, rounding)) {
    return Error{fmt::format("{} to {}: only RNE and RNA, not {}", from.name, to.name, name_of(rounding))};
  }
  const std::size_t from_bytes = from.carrier_bits / 8U;
  if (words.size() % from_bytes != 0) {
    return Error{fmt::format("{} bytes are no array of {}, which takes {} bytes", words.size(), from.name, from_bytes)};
  }
  return words.size() / from_bytes;
}

/// convert() of `count` words: what the kernels are held to.
Flags convert_each(const Format& from, const Format& to, const EncodeControl& control, const std::byte* in,
                   std::size_t count, std::byte* out) {
  const std::size_t from_bytes = from.carrier_bits / 8U;
  const std::size_t to_bytes = to.carrier_bits / 8U;
  Flags flags = Flags::none;
  for (std::size_t i = 0; i < count; ++i) {
    const Encoded e = convert(from, to, load_word(in + i * from_bytes, from_bytes), control);
    flags |= e.flags;
    store_word(out + i * to_bytes, to_bytes, e.bits);
  }
  return flags;
}

Flags convert_all(std::span<const std::byte> words, const Format& from, const Format& to, std::span<std::byte> out,
                  const EncodeControl& control, const Execution& execution) {
  const std::size_t from_bytes = from.carrier_bits / 8U;
  const std::size_t to_bytes = to.carrier_bits / 8U;
  const std::size_t count = words.size() / from_bytes;
  std::atomic<std::uint8_t> flags{0};
  constexpr std::size_t part = std::size_t{1} << 14;
  parallel_for((count + part - 1) / part, execution, [&](std::size_t index) {
    const std::size_t begin = index * part;
    const std::size_t size = std::min(count - begin, part);
    const std::byte* in = words.data() + begin * from_bytes;
    std::byte* results = out.data() + begin * to_bytes;
    Flags here = Flags::none;
    if (execution.reference || !kernels::convert_words(from, to, control, in, size, results, here)) {
      here = convert_each(from, to, control, in, size, results);
    }
    flags.fetch_or(static_cast<std::uint8_t>(here), std::memory_order_relaxed);
  });
  return static_cast<Flags>(flags.load());
}

}  // namespace

Expected<Flags> convert_array_into(std::span<const std::byte> words, const Format& from, const Format& to,
                                   std::span<std::byte> out, const EncodeControl& control, const Execution& execution) {
  const auto count = check(words, from, to, control.rounding);
  if (!count) return count.error();
  const std::size_t to_bytes = to.carrier_bits / 8U;
  if (out.size() % to_bytes != 0 || out.size() / to_bytes != *count) {
    return Error{fmt::format("{} bytes of output, but {} elements of {} take {} bytes each", out.size(), *count,
                             to.name, to_bytes)};
  }
  return guarded("convert", [&]() -> Expected<Flags> { return convert_all(words, from, to, out, control, execution); });
}

Expected<ConvertedArray> convert_array(std::span<const std::byte> words, const Format& from, const Format& to,
                                       const EncodeControl& control, const Execution& execution) {
  const auto count = check(words, from, to, control.rounding);
  if (!count) return count.error();
  return guarded("convert", [&]() -> Expected<ConvertedArray> {
    ConvertedArray out;
    out.words.resize(*count * (to.carrier_bits / 8U));
    out.flags = convert_all(words, from, to, out.words, control, execution);
    return out;
  });
}

}  // namespace bitcube
