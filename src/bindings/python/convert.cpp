// TCVT over arrays.
#include <algorithm>
#include <atomic>
#include <limits>

#include "bindings.hpp"
#include "bitcube/numeric/convert.hpp"
#include "bitcube/numeric/profile.hpp"
#include "bitcube/parallel.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "bitcube/quantize/lines.hpp"

namespace bitcube::python {
namespace {

/// convert_array_into() for lanes of 4 bits, each in a word of its own, which the library has for one lane. Whoever
/// calls has checked that nothing but a sign is above a lane.
Flags convert_lanes(std::span<const std::byte> in, const Format& from, const Format& to, std::span<std::byte> out,
                    const EncodeControl& control, const Execution& execution) {
  constexpr std::size_t part = std::size_t{1} << 14;
  const std::size_t from_bytes = from.carrier_bits / 8U;
  const std::size_t to_bytes = to.carrier_bits / 8U;
  const std::size_t count = in.size() / from_bytes;
  const bool extend = to.kind == Kind::signed_integer && to.is_packed();
  std::atomic<std::uint8_t> flags{0};
  parallel_for((count + part - 1) / part, execution, [&](std::size_t index) {
    Flags here = Flags::none;
    for (std::size_t i = index * part; i < std::min(count, (index + 1) * part); ++i) {
      const uint64 lane = load_word(in.data() + i * from_bytes, from_bytes) & low_mask(from.lane_bits);
      const Encoded e = bitcube::convert(from, to, lane, control);
      here |= e.flags;
      const uint64 word = extend ? static_cast<uint64>(sign_extend(e.bits, to.lane_bits)) : e.bits;
      store_word(out.data() + i * to_bytes, to_bytes, word);
    }
    flags.fetch_or(static_cast<std::uint8_t>(here), std::memory_order_relaxed);
  });
  return static_cast<Flags>(flags.load());
}

py::tuple convert_words(const py::array& words, std::string_view from_name, std::string_view to_name,
                        const std::optional<std::string>& rounding, bool saturate, std::string_view profile,
                        unsigned threads) {
  const Format& from = lane_format(format_named("from_", from_name));
  const Format& to = lane_format(format_named("to", to_name));
  const EncodeControl control{.rounding = rounding_named(rounding).value_or(default_rounding(from.is_integer(), to)),
                              .saturate = saturate,
                              .profile = &look_up("profile", profile, conversion_profiles, find_conversion_profile)};
  const auto in = bytes_of(words);
  py::array out = new_array(to, shape_of(words));
  const auto bytes = writable<std::byte>(out);
  Interruptible call(threads);
  const Execution& execution = call.execution();
  if (!from.is_packed() && !to.is_packed()) {
    const Flags flags = value_of(call.run([&] { return convert_array_into(in, from, to, bytes, control, execution); }));
    return py::make_tuple(std::move(out), static_cast<unsigned>(flags));
  }
  if (!conversion_legal(from, to)) {
    throw py::value_error(fmt::format("{} does not convert to {}", from.name, to.name));
  }
  const Flags flags = call.run([&] { return convert_lanes(in, from, to, bytes, control, execution); });
  return py::make_tuple(std::move(out), static_cast<unsigned>(flags));
}

}  // namespace

void add_convert(py::module_& module) {
  module.def("convert", convert_words, py::arg("words"), py::arg("from_"), py::arg("to"), py::arg("rounding"),
             py::arg("saturate"), py::arg("profile"), py::arg("threads"));
}

}  // namespace bitcube::python
