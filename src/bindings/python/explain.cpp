// Explanations, each as its text and its JSON.
#include "bindings.hpp"
#include "bitcube/document.hpp"
#include "bitcube/explain/convert.hpp"
#include "bitcube/explain/fault.hpp"
#include "bitcube/explain/quantize.hpp"
#include "bitcube/explain/word.hpp"
#include "bitcube/quantize/lines.hpp"

namespace bitcube::python {
namespace {

using TextAndJson = std::pair<std::string, std::string>;

TextAndJson both(const Expected<Document>& document) {
  const Document found = value_of(document);
  return {text_of(found), json_of(found, -1)};
}

/// TCVT of the only element of `words`, or of a literal.
TextAndJson convert_steps(const std::optional<py::array>& words, std::string_view from_name, const std::string& literal,
                          std::string_view to_name, const std::optional<std::string>& rounding, bool saturate,
                          std::string_view profile) {
  const Format* from = words ? &lane_format(format_named("from_", from_name)) : nullptr;
  const Format& to = lane_format(format_named("to", to_name));
  const bool integer = from != nullptr && from->is_integer();
  const EncodeControl control{.rounding = rounding_named(rounding).value_or(default_rounding(integer, to)),
                              .saturate = saturate,
                              .profile = &look_up("profile", profile, conversion_profiles, find_conversion_profile)};
  if (!words) return both(explain_convert(parse_real(literal), literal, to, control));
  if (!conversion_legal(*from, to))
    throw py::value_error(fmt::format("{} does not convert to {}", from->name, to.name));
  const uint64 word = load_word(bytes_of(*words).data(), from->carrier_bits / 8U);
  return both(explain_convert(*from, to, word, control));
}

TextAndJson quantize_steps(const py::array& words, std::string_view source, const std::vector<uint64>& index,
                           std::size_t axis, std::string_view format, const std::optional<std::string>& profile,
                           const std::optional<std::string>& scale, const std::optional<std::string>& rounding,
                           bool tensor_scale, const std::optional<std::string>& source_type) {
  QuantizeOptions options = quantize_options(format, profile, scale, rounding, tensor_scale);
  const Format& from = format_named("from_", source);
  const Format* rounded = source_type ? &format_named("source_type", *source_type) : nullptr;
  const auto bytes = bytes_of(words);
  const std::vector<uint64> shape = shape_of(words);
  Interruptible call(0);
  options.execution = call.execution();
  return both(call.run([&] { return explain_quantize(bytes, from, shape, axis, options, index, rounded); }));
}

TextAndJson program_faults(const program::Program& program, bool all, uint64 max_steps) {
  return both(without_gil([&] {
    machine::Core core;
    return explain_fault(program, core, {.all = all, .max_steps = max_steps});
  }));
}

}  // namespace

void add_explain(py::module_& module) {
  module.def("explain_convert", convert_steps, py::arg("words"), py::arg("from_"), py::arg("literal"), py::arg("to"),
             py::arg("rounding"), py::arg("saturate"), py::arg("profile"));
  module.def("explain_quantize", quantize_steps, py::arg("words"), py::arg("source"), py::arg("index"), py::arg("axis"),
             py::arg("format"), py::arg("profile"), py::arg("scale"), py::arg("rounding"), py::arg("tensor_scale"),
             py::arg("source_type"));
  module.def(
      "explain_word", [](uint64 word) { return both(explain_word(word)); }, py::arg("word"));
  module.def("explain_fault", program_faults, py::arg("program"), py::arg("all"), py::arg("max_steps"));
}

}  // namespace bitcube::python
