// Quantised tensors.
#include <filesystem>

#include "bindings.hpp"
#include "bitcube/io/packed.hpp"
#include "bitcube/quantize/tensor.hpp"

namespace bitcube::python {

QuantizeOptions quantize_options(std::string_view format, const std::optional<std::string>& profile,
                                 const std::optional<std::string>& scale, const std::optional<std::string>& rounding,
                                 bool tensor_scale) {
  QuantizeOptions options;
  const BlockFormat& f = look_up("format", format, block_formats, find_block_format);
  options.format = &f;
  const auto refuse = [&](std::string_view argument, std::string_view owner) {
    throw py::value_error(fmt::format("{}: {} has none; it is for {}", argument, f.name, owner));
  };
  if (profile) {
    if (!f.is_hif4()) refuse("profile", "hif4");
    options.profile = &look_up("profile", *profile, hif4_profiles, find_hif4_profile);
  }
  if (scale) {
    if (!f.is_mx()) refuse("scale", "the MX formats");
    options.scale_rule = &look_up("scale", *scale, scale_rules, find_scale_rule);
  }
  if (tensor_scale && !f.is_nvfp4()) refuse("tensor_scale", "nvfp4");
  options.tensor_scale = tensor_scale;
  if (rounding && f.is_hif4()) throw py::value_error("rounding: the rounding of hif4 belongs to its profile");
  options.rounding = rounding_named(rounding).value_or(Rounding::rne);
  return options;
}

namespace {

QuantizedTensor quantize_words(const py::array& words, std::string_view source, std::size_t axis,
                               std::string_view format, const std::optional<std::string>& profile,
                               const std::optional<std::string>& scale, const std::optional<std::string>& rounding,
                               bool tensor_scale, unsigned threads) {
  QuantizeOptions options = quantize_options(format, profile, scale, rounding, tensor_scale);
  Interruptible call(threads);
  options.execution = call.execution();
  const Format& from = format_named("from_", source);
  const auto bytes = bytes_of(words);
  const std::vector<uint64> shape = shape_of(words);
  return value_of(call.run([&] { return quantize(bytes, from, shape, axis, options); }));
}

/// The shape in which codes or scales lie: other dimensions, then what a line takes.
std::vector<py::ssize_t> line_shape(const QuantizedTensor& t, uint64 per_line) {
  std::vector<py::ssize_t> shape;
  for (std::size_t i = 0; i < t.shape.size(); ++i) {
    if (i != t.axis) shape.push_back(static_cast<py::ssize_t>(t.shape[i]));
  }
  shape.push_back(static_cast<py::ssize_t>(per_line));
  return shape;
}

/// A view of the tensor's own bytes, which keeps it alive and cannot be written to.
py::array view(const py::object& owner, const std::vector<std::byte>& bytes, const py::dtype& dtype,
               const std::vector<py::ssize_t>& shape) {
  py::array array(dtype, shape, bytes.data(), owner);
  array.attr("setflags")(py::arg("write") = false);
  return array;
}

py::array codes(const py::object& self) {
  const auto& t = self.cast<const QuantizedTensor&>();
  return view(self, t.codes, py::dtype::of<std::uint8_t>(), line_shape(t, t.format->code_bytes(t.shape[t.axis])));
}

py::array scales(const py::object& self) {
  const auto& t = self.cast<const QuantizedTensor&>();
  const auto dtype = t.format->is_hif4() ? py::dtype::of<std::uint32_t>() : py::dtype::of<std::uint8_t>();
  return view(self, t.scales, dtype, line_shape(t, t.format->groups(t.shape[t.axis])));
}

py::tuple dequantize_tensor(const QuantizedTensor& t, std::string_view name, const std::optional<std::string>& rounding,
                            unsigned threads) {
  const Format& to = format_named("dtype", name);
  const Rounding mode = rounding_named(rounding).value_or(Rounding::rne);
  Interruptible call(threads);
  const Dequantized result = value_of(call.run([&] { return dequantize(t, to, mode, call.execution()); }));
  py::array out = new_array(to, t.shape);
  const auto bytes = writable<std::byte>(out);
  std::copy(result.bytes.begin(), result.bytes.end(), bytes.begin());
  return py::make_tuple(std::move(out), static_cast<unsigned>(result.flags));
}

py::tuple error_of(const QuantizedTensor& t, const py::array& original, unsigned threads) {
  const auto bytes = bytes_of(original);
  Interruptible call(threads);
  const ErrorReport r = value_of(call.run([&] { return measure(bytes, t, call.execution()); }));
  return py::make_tuple(r.lanes, r.non_finite, r.non_zero, r.max_relative_error, r.mean_relative_error,
                        r.max_absolute_error, r.mean_squared_error, r.sqnr);
}

}  // namespace

void add_tensor(py::module_& module) {
  py::class_<QuantizedTensor> tensor_class(module, "Tensor");
  only_from_functions(tensor_class);
  tensor_class.def_property_readonly("format", [](const QuantizedTensor& t) { return t.format->name; })
      .def_property_readonly(
          "profile",
          [](const QuantizedTensor& t) { return t.profile != nullptr ? std::optional(t.profile->name) : std::nullopt; })
      .def_property_readonly("scale_rule",
                             [](const QuantizedTensor& t) {
                               return t.scale_rule != nullptr ? std::optional(t.scale_rule->name) : std::nullopt;
                             })
      .def_property_readonly("rounding", [](const QuantizedTensor& t) { return name_of(t.rounding); })
      .def_property_readonly("source", [](const QuantizedTensor& t) { return t.source->name; })
      .def_readonly("tensor_scale", &QuantizedTensor::tensor_scale)
      .def_property_readonly("shape", [](const QuantizedTensor& t) { return py::tuple(py::cast(t.shape)); })
      .def_readonly("axis", &QuantizedTensor::axis)
      .def_property_readonly("nbytes", [](const QuantizedTensor& t) { return t.codes.size() + t.scales.size(); })
      .def_property_readonly("codes", codes)
      .def_property_readonly("scales", scales)
      .def("dequantize", dequantize_tensor, py::arg("dtype"), py::arg("rounding"), py::arg("threads"))
      .def("error", error_of, py::arg("original"), py::arg("threads"))
      .def(
          "save",
          [](const QuantizedTensor& t, const std::string& path, const std::string& name) {
            value_of(without_gil([&] { return save_packed(std::filesystem::path(path), name, t); }));
          },
          py::arg("path"), py::arg("name"));
  module.def("quantize", quantize_words, py::arg("words"), py::arg("source"), py::arg("axis"), py::arg("format"),
             py::arg("profile"), py::arg("scale"), py::arg("rounding"), py::arg("tensor_scale"), py::arg("threads"));
  module.def(
      "load",
      [](const std::string& path, const std::string& name) {
        return value_of(without_gil([&] { return load_packed(std::filesystem::path(path), name); }));
      },
      py::arg("path"), py::arg("name"));
  module.def(
      "packed_names",
      [](const std::string& path) {
        const Safetensors file = value_of(without_gil([&] { return read_safetensors(path); }));
        return value_of(packed_names(file, path));
      },
      py::arg("path"));
}

}  // namespace bitcube::python
