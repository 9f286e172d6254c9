// What the parts of the Python extension share. The extension takes C-contiguous little-endian arrays and names; the
// package in python/bitcube makes them from whatever a caller has. Nothing here decides a bit.
#pragma once

#include <fmt/format.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bitcube/compare/diff.hpp"
#include "bitcube/expected.hpp"
#include "bitcube/numeric/format.hpp"
#include "bitcube/numeric/rounding.hpp"
#include "bitcube/parallel.hpp"
#include "bitcube/quantize/tensor.hpp"

namespace bitcube::python {

namespace py = pybind11;

/// The value, or its error as a ValueError.
template <typename T>
T value_of(Expected<T> result) {
  if (!result) throw py::value_error(result.error().message);
  return *std::move(result);
}
inline void value_of(const Expected<void>& result) {
  if (!result) throw py::value_error(result.error().message);
}

/// work() while other Python threads run. It must not touch a Python object.
template <typename Work>
auto without_gil(const Work& work) {
  const py::gil_scoped_release release;
  return work();
}

/// A long call that Ctrl-C ends. Python notes the signal and acts on it when it runs again, which would be at the end
/// of the call: so the progress of the work asks for it, on the thread that called.
class Interruptible {
 public:
  explicit Interruptible(unsigned threads);

  /// How the work is done; valid while this object lives.
  const Execution& execution() const noexcept { return execution_; }

  /// work() without the GIL. Throws what the signal's handler raised, which is KeyboardInterrupt.
  template <typename Work>
  auto run(const Work& work) {
    try {
      auto result = without_gil(work);
      if (interrupted_) throw py::error_already_set();
      return result;
    } catch (const Cancelled&) {
      throw py::error_already_set();
    }
  }

 private:
  void check_signals();

  std::thread::id caller_ = std::this_thread::get_id();
  std::chrono::steady_clock::time_point checked_ = std::chrono::steady_clock::now();
  bool interrupted_ = false;
  std::stop_source stop_;
  Execution execution_;
};

/// The row of a table by the table's own function; `argument` is for the message.
template <typename Table, typename Find>
const typename Table::value_type& look_up(std::string_view argument, std::string_view name, const Table& table,
                                          const Find& find) {
  const typename Table::value_type* row = find(name);
  if (row != nullptr) return *row;
  std::vector<std::string_view> names;
  for (const auto& r : table) names.push_back(r.name);
  throw py::value_error(
      fmt::format("{}: no such thing as '{}'; choose from {}", argument, name, fmt::join(names, ", ")));
}
const Format& format_named(std::string_view argument, std::string_view name);
std::optional<Rounding> rounding_named(const std::optional<std::string>& name);

/// The choices of a quantisation, of which each format takes some.
QuantizeOptions quantize_options(std::string_view format, const std::optional<std::string>& profile,
                                 const std::optional<std::string>& scale, const std::optional<std::string>& rounding,
                                 bool tensor_scale);

/// HiF4X2 is neither a source nor a destination of TCVT; its lanes are those of E1M2X2.
inline const Format& lane_format(const Format& f) noexcept {
  return f.type == DataType::hif4x2 ? format_of(DataType::e1m2x2) : f;
}

/// The bytes of a C-contiguous array.
std::span<const std::byte> bytes_of(const py::array& array);
/// Its 32-bit or 64-bit words.
template <typename Word>
std::span<const Word> words_of(const py::array& array) {
  return {static_cast<const Word*>(array.data()), static_cast<std::size_t>(array.nbytes()) / sizeof(Word)};
}
std::vector<uint64> shape_of(const py::array& array);

/// An array for words of this format, one lane each, and its bytes.
py::array new_array(const Format& format, const std::vector<uint64>& shape);
template <typename Byte>
std::span<Byte> writable(py::array& array) {
  return {static_cast<Byte*>(array.mutable_data()), static_cast<std::size_t>(array.nbytes()) / sizeof(Byte)};
}

/// Objects of this class come from functions. Without this the class could be called without a constructor, or its
/// __new__ alone, and pybind11 would make an object of bytes that nobody set.
void only_from_functions(const py::handle& type);
/// The text and the JSON of a comparison.
py::tuple run_diff(const DiffInputs& inputs, const py::dict& settings);

void add_tables(py::module_& module);
void add_convert(py::module_& module);
void add_explain(py::module_& module);
void add_tensor(py::module_& module);
void add_product(py::module_& module);
void add_diff(py::module_& module);
void add_machine(py::module_& module);

}  // namespace bitcube::python
