// Why two results differ.
#include "bitcube/compare/diff.hpp"
#include "bindings.hpp"
#include "bitcube/numeric/convert.hpp"

namespace bitcube::python {
namespace {

/// One array, or the two of a packed type, a lane each or two per byte.
ComparedPart result_part(const py::array& golden, const py::array& dut, const Format& format,
                         const std::optional<std::vector<uint64>>& shape) {
  ComparedPart part;
  part.name = "result";
  part.format = &format;
  part.golden = bytes_of(golden);
  part.dut = bytes_of(dut);
  part.shape = shape ? *shape : shape_of(golden);
  if (part.shape.empty()) part.shape = {1};
  if (format.is_packed()) {
    part.packed = true;
    const auto packed = part.byte_size();
    part.packed = packed && *packed == part.golden.size() && shape && *shape != shape_of(golden);
  }
  return part;
}

py::tuple diff_arrays(const py::array& golden, const py::array& dut, std::string_view format,
                      const std::optional<std::vector<uint64>>& shape, const py::object& conversion,
                      const py::dict& settings) {
  DiffInputs inputs;
  const Format& to = format_named("format", format);
  inputs.parts.push_back(result_part(golden, dut, to, shape));
  if (!conversion.is_none()) {
    const auto [words, from, rounding, saturate, profile] =
        conversion.cast<std::tuple<py::array, std::string, std::optional<std::string>, bool, std::string>>();
    ConversionInputs in;
    in.words = bytes_of(words);
    in.from = &format_named("from_", from);
    in.control.rounding = rounding_named(rounding).value_or(default_rounding(in.from->is_integer(), to));
    in.control.saturate = saturate;
    in.control.profile = &look_up("profile", profile, conversion_profiles, find_conversion_profile);
    inputs.conversion = in;
    return run_diff(inputs, settings);
  }
  return run_diff(inputs, settings);
}

py::tuple diff_tensors(const QuantizedTensor& golden, const QuantizedTensor& dut, const py::object& source,
                       const py::dict& settings) {
  if (golden.format != dut.format || golden.shape != dut.shape || golden.axis != dut.axis) {
    throw py::value_error(fmt::format("golden is {} of ({}) along axis {}, but dut is {} of ({}) along axis {}",
                                      golden.format->name, fmt::join(golden.shape, ", "), golden.axis, dut.format->name,
                                      fmt::join(dut.shape, ", "), dut.axis));
  }
  DiffInputs inputs;
  const BlockFormat& f = *golden.format;
  std::vector<uint64> shape;
  for (std::size_t i = 0; i < golden.shape.size(); ++i) {
    if (i != golden.axis) shape.push_back(golden.shape[i]);
  }
  shape.push_back(golden.shape[golden.axis]);
  inputs.parts.push_back(
      {"codes", PartRole::codes, f.element, shape, f.element->is_packed(), golden.codes, dut.codes, f.group});
  shape.back() = f.groups(golden.shape[golden.axis]);
  inputs.parts.push_back({"scales", PartRole::scales, f.scale, shape, false, golden.scales, dut.scales, 0});
  if (!source.is_none()) {
    const auto [words, from] = source.cast<std::tuple<py::array, std::string>>();
    QuantizationInputs in;
    in.words = bytes_of(words);
    in.source = &format_named("from_", from);
    in.shape = shape_of(words);
    in.axis = golden.axis;
    in.options.format = &f;
    if (golden.profile != nullptr) in.options.profile = golden.profile;
    if (golden.scale_rule != nullptr) in.options.scale_rule = golden.scale_rule;
    if (!f.is_hif4()) in.options.rounding = golden.rounding;
    in.options.tensor_scale = golden.tensor_scale.has_value();
    in.options.given_scale = golden.tensor_scale;
    inputs.quantization = std::move(in);
    return run_diff(inputs, settings);
  }
  return run_diff(inputs, settings);
}

}  // namespace

py::tuple run_diff(const DiffInputs& inputs, const py::dict& settings) {
  DiffOptions options;
  options.compare.tolerance.ulps = settings["ulps"].cast<std::optional<uint64>>();
  options.compare.tolerance.relative = settings["rtol"].cast<std::optional<double>>();
  options.compare.tolerance.absolute = settings["atol"].cast<std::optional<double>>();
  options.compare.first = settings["first"].cast<std::size_t>();
  Interruptible call(settings["threads"].cast<unsigned>());
  options.compare.execution = call.execution();
  options.diagnose = settings["diagnose"].cast<bool>();
  const auto texts = value_of(call.run([&]() -> Expected<std::pair<std::string, std::string>> {
    const auto result = diff(inputs, options);
    if (!result) return result.error();
    return std::pair{text_of(document_of(*result, "golden", "dut")), json_of(*result, "golden", "dut", -1)};
  }));
  return py::make_tuple(texts.first, texts.second);
}

void add_diff(py::module_& module) {
  module.def("diff", diff_arrays, py::arg("golden"), py::arg("dut"), py::arg("format"), py::arg("shape"),
             py::arg("conversion"), py::arg("settings"));
  module.def("diff_tensors", diff_tensors, py::arg("golden"), py::arg("dut"), py::arg("source"), py::arg("settings"));
}

}  // namespace bitcube::python
