#include "bitcube/quantize/convert_array.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "bitcube/quantize/lines.hpp"

#include "guarded.hpp"

namespace bitcube {

Expected<ConvertedArray> convert_array(std::span<const std::byte> words, const Format& from, const Format& to,
                                       const EncodeControl& control, const Execution& execution) {
  if (from.is_packed() || to.is_packed()) {
    return Error{fmt::format("{} to {}: arrays of packed lanes are not converted", from.name, to.name)};
  }
  if (!conversion_legal(from, to)) return Error{fmt::format("{} does not convert to {}", from.name, to.name)};
  if (!rounding_legal(from, to, control.rounding)) {
    return Error{fmt::format("{} to {}: only RNE and RNA, not {}", from.name, to.name, name_of(control.rounding))};
  }
  const std::size_t from_bytes = from.carrier_bits / 8U;
  const std::size_t to_bytes = to.carrier_bits / 8U;
  if (words.size() % from_bytes != 0) {
    return Error{fmt::format("{} bytes are no array of {}, which takes {} bytes", words.size(), from.name, from_bytes)};
  }
  const std::size_t count = words.size() / from_bytes;
  return guarded("convert", [&]() -> Expected<ConvertedArray> {
    ConvertedArray out;
    out.words.resize(count * to_bytes);
    std::atomic<std::uint8_t> flags{0};
    constexpr std::size_t part = std::size_t{1} << 14;
    parallel_for((count + part - 1) / part, execution, [&](std::size_t index) {
      Flags here = Flags::none;
      for (std::size_t i = index * part; i < std::min(count, (index + 1) * part); ++i) {
        const Encoded e = convert(from, to, load_word(words.data() + i * from_bytes, from_bytes), control);
        here |= e.flags;
        store_word(out.words.data() + i * to_bytes, to_bytes, e.bits);
      }
      flags.fetch_or(static_cast<std::uint8_t>(here), std::memory_order_relaxed);
    });
    out.flags = static_cast<Flags>(flags.load());
    return out;
  });
}

}  // namespace bitcube
