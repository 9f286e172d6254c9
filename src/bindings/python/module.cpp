// The Python extension bitcube._bitcube.
#include <array>

#include "bindings.hpp"
#include "bitcube/cube/accumulate.hpp"
#include "bitcube/cube/prequant.hpp"
#include "bitcube/io/array.hpp"
#include "bitcube/numeric/convert.hpp"
#include "bitcube/numeric/flags.hpp"
#include "bitcube/numeric/profile.hpp"
#include "bitcube/quantize/tensor.hpp"
#include "bitcube/version.hpp"

namespace bitcube::python {

const Format& format_named(std::string_view argument, std::string_view name) {
  return look_up(argument, name, formats, [](std::string_view text) { return find_format(text); });
}

std::optional<Rounding> rounding_named(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  return look_up("rounding", *name, roundings, find_rounding).mode;
}

Interruptible::Interruptible(unsigned threads)
    : execution_{.threads = threads,
                 .progress = [this](std::size_t, std::size_t) { check_signals(); },
                 .cancel = stop_.get_token()} {}

void Interruptible::check_signals() {
  if (std::this_thread::get_id() != caller_ || interrupted_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - checked_ < std::chrono::milliseconds(50)) return;
  checked_ = now;
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return;
  interrupted_ = true;
  stop_.request_stop();
}

std::span<const std::byte> bytes_of(const py::array& array) {
  if ((array.flags() & py::array::c_style) == 0) throw py::value_error("the array is not C-contiguous");
  return {static_cast<const std::byte*>(array.data()), static_cast<std::size_t>(array.nbytes())};
}

std::vector<uint64> shape_of(const py::array& array) {
  std::vector<uint64> shape;
  for (py::ssize_t i = 0; i < array.ndim(); ++i) shape.push_back(static_cast<uint64>(array.shape(i)));
  return shape;
}

py::array new_array(const Format& format, const std::vector<uint64>& shape) {
  const std::string dtype(dtype_name(array_dtype(format)));
  return py::array(py::dtype(dtype), std::vector<py::ssize_t>(shape.begin(), shape.end()));
}

void only_from_functions(const py::handle& type) {
  reinterpret_cast<PyTypeObject*>(type.ptr())->tp_new = [](PyTypeObject* cls, PyObject*, PyObject*) -> PyObject* {
    PyErr_Format(PyExc_TypeError, "%.200s: functions of bitcube make these objects, nothing else does", cls->tp_name);
    return nullptr;
  };
}

namespace {

std::string_view kind_name(Kind kind) {
  constexpr std::array<std::string_view, 4> names{"float", "scale", "signed", "unsigned"};
  return names[static_cast<std::size_t>(kind)];
}

py::dict describe(const Format& f) {
  py::dict d;
  d["name"] = f.name;
  d["alias"] = f.alias.empty() ? py::object(py::none()) : py::cast(f.alias);
  d["code"] = static_cast<unsigned>(f.type);
  d["kind"] = kind_name(f.kind);
  d["lane_bits"] = f.lane_bits;
  d["value_bits"] = f.value_bits;
  d["carrier_bits"] = f.carrier_bits;
  d["lanes_per_carrier"] = f.lanes_per_carrier;
  d["sign_bits"] = f.sign_bits;
  d["exponent_bits"] = std::pair(f.exponent_bits_min, f.exponent_bits);
  d["fraction_bits"] = std::pair(f.fraction_bits_min, f.fraction_bits);
  d["bias"] = f.bias;
  d["max_finite"] = f.max_finite;
  d["nan"] = f.nan != NanCodes::none ? py::cast(f.canonical_nan) : py::object(py::none());
  d["infinity"] = f.has_infinity ? py::cast(f.infinity) : py::object(py::none());
  d["dtype"] = dtype_name(array_dtype(f));
  return d;
}

template <typename Table>
std::vector<std::string_view> names_of(const Table& table) {
  std::vector<std::string_view> names;
  for (const auto& row : table) names.push_back(row.name);
  return names;
}

}  // namespace

void add_tables(py::module_& module) {
  module.def("formats", [] {
    py::list list;
    for (const Format& f : formats) list.append(describe(f));
    return list;
  });
  module.def(
      "format", [](std::string_view argument, std::string_view name) { return describe(format_named(argument, name)); },
      py::arg("argument"), py::arg("name"));
  module.def("block_formats", [] {
    py::list list;
    for (const BlockFormat& f : block_formats) {
      py::dict d;
      d["name"] = f.name;
      d["element"] = f.element->name;
      d["group"] = f.group;
      d["scale"] = f.scale->name;
      d["meaning"] = f.meaning;
      list.append(d);
    }
    return list;
  });
  module.def("choices", [] {
    py::dict d;
    d["rounding"] = names_of(roundings);
    d["profile"] = names_of(conversion_profiles);
    d["block_format"] = names_of(block_formats);
    d["hif4_profile"] = names_of(hif4_profiles);
    d["scale"] = names_of(scale_rules);
    d["accumulate"] = names_of(accumulation_profiles);
    d["mode"] = names_of(prequant_modes);
    return d;
  });
  module.def("flag_names", [] {
    py::dict d;
    for (const FlagName& row : flag_names) d[py::cast(row.name)] = static_cast<unsigned>(row.flag);
    return d;
  });
}

}  // namespace bitcube::python

PYBIND11_MODULE(_bitcube, module) {
  module.doc() = "The C++ library as the package bitcube uses it. Its functions want what that package gives them.";
  module.attr("__version__") = bitcube::version;
  bitcube::python::add_tables(module);
  bitcube::python::add_convert(module);
  bitcube::python::add_tensor(module);
  bitcube::python::add_product(module);
  bitcube::python::add_diff(module);
  bitcube::python::add_machine(module);
  bitcube::python::add_explain(module);
}
