// The product and the post-process.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "bindings.hpp"
#include "bitcube/compare/diff.hpp"
#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/matrix_operand.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/explain/matmul.hpp"
#include "bitcube/io/array.hpp"
#include "bitcube/numeric/convert.hpp"

namespace bitcube::python {
namespace {

/// Numbers for one column or for each; `scalar` tells which is meant.
template <typename Number>
struct Parameter {
  std::vector<Number> values;
  bool scalar = false;
  bool given = false;
};

/// None, a number, or an array of one dimension.
template <typename Number>
Parameter<Number> parameter(const py::object& object) {
  Parameter<Number> p;
  if (object.is_none()) return p;
  p.given = true;
  if (!py::isinstance<py::array>(object)) {
    p.scalar = true;
    p.values.push_back(object.cast<Number>());
    return p;
  }
  const auto array = object.cast<py::array>();
  const auto words = words_of<Number>(array);
  p.values.assign(words.begin(), words.end());
  return p;
}

/// The FP19 code of a number, rounded once to nearest.
uint64 fp19_code(double x) {
  const Value v = decode(fp64, std::bit_cast<uint64>(x));
  return convert_value(fp19, v.cls, v.real, {}).bits;
}

/// The mode that does the same with one parameter for all columns.
const PreQuantMode& scalar_mode(const PreQuantMode& mode) {
  const auto found = std::find_if(prequant_modes.begin(), prequant_modes.end(), [&](const PreQuantMode& m) {
    return !m.per_column && m.accumulator == mode.accumulator && m.destination == mode.destination &&
           m.carrier == mode.carrier && m.offset_bits == mode.offset_bits;
  });
  return found == prequant_modes.end() ? mode : *found;
}

const PreQuantMode& mode_of(std::string_view argument, const py::object& object) {
  if (py::isinstance<py::str>(object)) {
    return look_up(argument, object.cast<std::string>(), prequant_modes,
                   [](std::string_view name) { return find_prequant(name); });
  }
  const auto code = object.cast<int>();
  const PreQuantMode* mode = code < 0 ? nullptr : find_prequant(static_cast<unsigned>(code));
  if (mode == nullptr) throw py::value_error(fmt::format("{}: code {} is reserved", argument, code));
  return *mode;
}

/// The arguments of a post-process, looked up in the tables, with the parameters in their carriers.
class Postprocess {
 public:
  explicit Postprocess(const py::dict& arguments) : argument_(arguments["argument"].cast<std::string>()) {
    options_.mode = &mode_of(argument_, arguments["mode"]);
    read_quantisation(parameter<double>(arguments["scale"]), parameter<int64>(arguments["offset"]),
                      parameter<int64>(arguments["shift"]), parameter<uint64>(arguments["quant_params"]));
    read_activation(arguments["relu"].cast<bool>(), arguments["relu_param"]);
    options_.rounding = rounding_named(arguments["rounding"].cast<std::optional<std::string>>());
    options_.saturate = arguments["saturate"].cast<bool>();
    options_.profile =
        &look_up("profile", arguments["profile"].cast<std::string>(), conversion_profiles, find_conversion_profile);
    options_.row_max = arguments["row_max"].cast<bool>();
    options_.max_abs = arguments["max_abs"].cast<bool>();
    options_.group_n = arguments["group_max"].cast<unsigned>();
    packed_ = arguments["packed"].cast<bool>();
    row_max_init_ = arguments["row_max_init"];
  }

  /// Everything that can be checked before there are accumulators.
  void check(const Format& accumulator, std::size_t rows, std::size_t cols) {
    if (!row_max_init_.is_none()) {
      const auto init = row_max_init_.cast<py::array>();
      check_accumulators("row_max_init", init, accumulator, {{rows}, {rows, 1}});
      options_.row_max_init = words_of<std::uint32_t>(init);
    }
    const Format& to = destination_format(*options_.mode, accumulator);
    if (packed_ && !to.is_packed()) {
      throw py::value_error(
          fmt::format("packed: {} gives {}, which has one lane per word", options_.mode->name, to.name));
    }
    const auto check_columns = [cols](std::string_view argument, bool per_column, std::size_t count) {
      if (!per_column || count == cols) return;
      throw py::value_error(fmt::format("{}: {} numbers for {} columns", argument, count, cols));
    };
    check_columns(quant_argument_, options_.mode->per_column, carriers_.size());
    check_columns("relu_param", options_.relu == Relu::per_column, alphas_.size());
    value_of(check_postprocess(accumulator, rows, cols, options_));
  }

  /// Refers to this object; RowMaxIn from check() on.
  const PostprocessOptions& options() const noexcept { return options_; }

  /// (d, row_max, group_max, flags) of what `words(execution)` delivers, which runs without the GIL and may fail.
  template <typename Words>
  py::tuple run(const Format& accumulator, std::size_t rows, std::size_t cols, unsigned threads, const Words& words) {
    Interruptible call(threads);
    options_.execution = call.execution();
    const Format& to = destination_format(*options_.mode, accumulator);
    py::array d = new_array(to, {rows, cols});
    py::object row_max = py::none();
    py::object group_max = py::none();
    PostprocessOutput out{.d = writable<std::uint8_t>(d)};
    if (options_.row_max) {
      py::array array = new_array(accumulator, {rows, 1});
      out.row_max = writable<std::uint32_t>(array);
      row_max = std::move(array);
    }
    if (options_.group_n != 0) {
      py::array array = new_array(accumulator, {rows, (cols + options_.group_n - 1) / options_.group_n});
      out.group_max = writable<std::uint32_t>(array);
      group_max = std::move(array);
    }
    const Flags flags = value_of(call.run([&]() -> Expected<Flags> {
      const auto accumulators = words(call.execution());
      if (!accumulators) return accumulators.error();
      auto raised = postprocess_into(accumulator, *accumulators, rows, cols, options_, out);
      if (raised && to.type == DataType::s4x2 && !packed_) {
        for (std::uint8_t& lane : out.d) lane = static_cast<std::uint8_t>(sign_extend(lane, to.lane_bits));
      }
      return raised;
    }));
    if (packed_) d = pack(d, to, rows, cols);
    return py::make_tuple(std::move(d), std::move(row_max), std::move(group_max), static_cast<unsigned>(flags));
  }

  /// C, a bias or RowMaxIn: words of the accumulator type in one of these shapes.
  static void check_accumulators(std::string_view argument, const py::array& array, const Format& accumulator,
                                 const std::vector<std::vector<uint64>>& shapes) {
    const std::string wanted(dtype_name(array_dtype(accumulator)));
    if (!array.dtype().equal(py::dtype(wanted))) {
      throw py::type_error(fmt::format("{}: {}, but the accumulator is {}, so it must be {}", argument,
                                       py::str(array.dtype()).cast<std::string>(), accumulator.name, wanted));
    }
    const std::vector<uint64> shape = shape_of(array);
    if (std::find(shapes.begin(), shapes.end(), shape) != shapes.end()) return;
    std::string accepted;
    for (const auto& s : shapes) accepted += fmt::format("{}({})", accepted.empty() ? "" : " or ", fmt::join(s, ", "));
    throw py::value_error(fmt::format("{}: shape ({}), but it must be {}", argument, fmt::join(shape, ", "), accepted));
  }

 private:
  void read_quantisation(const Parameter<double>& scale, const Parameter<int64>& offset, const Parameter<int64>& shift,
                         const Parameter<uint64>& words) {
    const PreQuantMode& m = *options_.mode;
    const auto refuse = [&](bool given, std::string_view argument, std::string_view why) {
      if (given) throw py::value_error(fmt::format("{}: {} {}", argument, m.name, why));
    };
    const bool numbers = scale.given || offset.given || shift.given;
    if (m.carrier != CarrierKind::scale) refuse(scale.given, "scale", "takes none");
    if (m.offset_bits == 0) refuse(offset.given, "offset", "takes none");
    if (m.carrier != CarrierKind::shift) refuse(shift.given, "shift", "takes none");
    if (m.carrier == CarrierKind::none) return refuse(words.given, "quant_params", "takes none");
    if (words.given && numbers) {
      throw py::value_error("quant_params: carrier words have scale, offset and shift of their own");
    }
    const bool shifts = m.carrier == CarrierKind::shift;
    const std::string_view needed = shifts ? "shift" : "scale";
    if (!words.given && !(shifts ? shift.given : scale.given)) {
      throw py::value_error(fmt::format("{}: {} needs {} or quant_params", argument_, m.name, needed));
    }
    const bool scalar = words.given ? words.scalar : shifts ? shift.scalar : scale.scalar;
    const std::string_view what = quant_argument_ = words.given ? "quant_params" : needed;
    if (m.per_column && scalar) {
      throw py::value_error(
          fmt::format("{}: {} takes one per column; use {} for one for all", what, m.name, scalar_mode(m).name));
    }
    if (!m.per_column) refuse(!scalar || (offset.given && !offset.scalar), what, "takes one for all columns");
    if (words.given) {
      carriers_ = words.values;
    } else if (shifts) {
      for (const int64 s : shift.values) {
        if (s < 1 || s > 16) throw py::value_error(fmt::format("shift: {} is outside of 1 to 16", s));
        carriers_.push_back(pack_shift_carrier(static_cast<int>(s)));
      }
    } else {
      if (offset.given && !offset.scalar && offset.values.size() != scale.values.size()) {
        throw py::value_error(
            fmt::format("offset: {} numbers for {} scales", offset.values.size(), scale.values.size()));
      }
      for (std::size_t i = 0; i < scale.values.size(); ++i) {
        carriers_.push_back(scale_carrier(scale.values[i], !offset.given   ? 0
                                                           : offset.scalar ? offset.values.front()
                                                                           : offset.values[i]));
      }
    }
    options_.quant_carriers = carriers_;
  }

  uint64 scale_carrier(double scale, int64 offset) const {
    const int bits = options_.mode->offset_bits;
    const int64 limit = bits == 0 ? 1 : int64{1} << (bits - 1);
    if (offset < -limit || offset >= limit) {
      throw py::value_error(fmt::format("offset: {} does not fit the {} bits of {}: from {} to {}", offset, bits,
                                        options_.mode->name, -limit, limit - 1));
    }
    const uint64 code = fp19_code(scale);
    if (!legal_as_scale(code)) {
      throw py::value_error(fmt::format(
          "scale: {} is no scale in FP19, which must be positive and normal, so from 2^-126 to below 2^128", scale));
    }
    return pack_scale_carrier(code, offset, bits);
  }

  void read_activation(bool relu, const py::object& object) {
    if (object.is_none()) {
      options_.relu = relu ? Relu::relu : Relu::none;
      return;
    }
    if (relu) throw py::value_error("relu and relu_param are two activations; give one");
    options_.relu = Relu::per_column;
    if (!py::isinstance<py::array>(object)) {
      options_.relu = Relu::scalar;
      alphas_.push_back(fp19_code(object.cast<double>()));
    } else if (const auto array = object.cast<py::array>(); array.dtype().kind() == 'u') {
      const auto words = words_of<uint64>(array);
      alphas_.assign(words.begin(), words.end());
    } else {
      for (const double alpha : words_of<double>(array)) alphas_.push_back(fp19_code(alpha));
    }
    options_.activation_carriers = alphas_;
  }

  static py::array pack(const py::array& d, const Format& to, std::size_t rows, std::size_t cols) {
    Postprocessed lanes;
    lanes.format = &to;
    lanes.rows = rows;
    lanes.cols = cols;
    lanes.element_bytes = 1;
    const auto bytes = words_of<std::uint8_t>(d);
    lanes.d.assign(bytes.begin(), bytes.end());
    const auto packed = packed_rows(lanes);
    py::array out(py::dtype::of<std::uint8_t>(), std::vector<std::size_t>{rows, (cols + 1) / 2});
    if (!packed.empty()) std::memcpy(out.mutable_data(), packed.data(), packed.size());
    return out;
  }

  std::string argument_;             // that names the mode
  std::string_view quant_argument_;  // that has the quantisation parameters
  PostprocessOptions options_;
  std::vector<uint64> carriers_;
  std::vector<uint64> alphas_;
  bool packed_ = false;
  py::object row_max_init_;
};

/// One side of a product: a Tensor, or (words, format, scales or None).
Operand operand_of(Side side, const py::object& object) {
  if (py::isinstance<QuantizedTensor>(object)) {
    return value_of(quantized_operand(side, object.cast<const QuantizedTensor&>()));
  }
  const auto [words, name, scales] = object.cast<std::tuple<py::array, std::string, py::object>>();
  const char* letter = side == Side::a ? "a" : "b";
  const Format& format = format_named(fmt::format("{}_type", letter), name);
  const auto bytes = bytes_of(words);
  Operand operand = matrix_operand(side, format, bytes, static_cast<std::size_t>(words.shape(0)),
                                   static_cast<std::size_t>(words.shape(1)));
  if (scales.is_none()) return operand;
  const auto array = scales.cast<py::array>();
  const std::size_t group = scale_group(format);
  const std::string wanted = format.type == DataType::hif4x2 ? "uint32" : "uint8";
  if (!array.dtype().equal(py::dtype(wanted))) {
    throw py::type_error(fmt::format("{}_scales: the scales of {} are {}, one per {} lanes of K, but these are {}",
                                     letter, format.name, wanted, group, py::str(array.dtype()).cast<std::string>()));
  }
  std::vector<uint64> shape{operand.lines, (operand.k + group - 1) / group};
  if (side == Side::b) std::swap(shape[0], shape[1]);
  if (shape_of(array) != shape) {
    throw py::value_error(fmt::format("{}_scales: shape ({}), but it must be ({}): one per {} lanes of K", letter,
                                      fmt::join(shape_of(array), ", "), fmt::join(shape, ", "), group));
  }
  attach_scales(side, operand, bytes_of(array));
  return operand;
}

/// A product with its post-process, checked.
struct ProductArguments {
  MatmulOptions options;
  Operand a;
  Operand b;
  ProductKind kind;
  Postprocess finish;

  ProductArguments(const py::object& a_side, const py::object& b_side, const py::object& c, const py::object& bias,
                   std::string_view accumulate, const py::dict& post)
      : finish(post) {
    options.profile = &look_up("accumulate", accumulate, accumulation_profiles, find_accumulation_profile);
    a = operand_of(Side::a, a_side);
    b = operand_of(Side::b, b_side);
    kind = value_of(product_kind(a, b));
    if (!c.is_none()) {
      const auto array = c.cast<py::array>();
      Postprocess::check_accumulators("c", array, *kind.accumulator, {{a.lines, b.lines}});
      options.c = words_of<std::uint32_t>(array);
    }
    if (!bias.is_none()) {
      const auto array = bias.cast<py::array>();
      Postprocess::check_accumulators("bias", array, *kind.accumulator, {{b.lines}, {1, b.lines}});
      options.bias = words_of<std::uint32_t>(array);
    }
    finish.check(*kind.accumulator, a.lines, b.lines);
  }
};

py::tuple matmul_operands(const py::object& a_side, const py::object& b_side, const py::object& c,
                          const py::object& bias, std::string_view accumulate, const py::dict& post, unsigned threads) {
  ProductArguments p(a_side, b_side, c, bias, accumulate, post);
  return p.finish.run(*p.kind.accumulator, p.a.lines, p.b.lines, threads,
                      [&](const Execution& execution) -> Expected<Buffer<std::uint32_t>> {
                        p.options.execution = execution;
                        auto accumulators = matmul(p.a, p.b, p.options);
                        if (!accumulators) return accumulators.error();
                        return std::move(accumulators->words);
                      });
}

/// Text and JSON of an explanation, which is made without the GIL.
template <typename Explain>
std::pair<std::string, std::string> explained(const Explain& explain) {
  const Document document = value_of(without_gil(explain));
  return {text_of(document), json_of(document, -1)};
}

std::pair<std::string, std::string> explain_operands(const py::object& a_side, const py::object& b_side,
                                                     const py::object& c, const py::object& bias,
                                                     std::string_view accumulate, const py::dict& post, std::size_t row,
                                                     std::size_t col, bool steps) {
  const ProductArguments p(a_side, b_side, c, bias, accumulate, post);
  return explained([&] { return explain_matmul(p.a, p.b, row, col, p.options, p.finish.options(), steps); });
}

std::pair<std::string, std::string> explain_words(const py::array& words, std::string_view accumulator,
                                                  const py::dict& post, std::size_t row, std::size_t col) {
  const Format& format = format_named("acc", accumulator);
  Accumulators accumulators{
      &format, static_cast<std::size_t>(words.shape(0)), static_cast<std::size_t>(words.shape(1)), {}};
  Postprocess finish(post);
  finish.check(format, accumulators.rows, accumulators.cols);
  const auto span = words_of<std::uint32_t>(words);
  accumulators.words.assign(span.begin(), span.end());
  return explained([&] { return explain_postprocess(accumulators, row, col, finish.options()); });
}

py::tuple diff_products(const py::array& golden, const py::array& dut, const py::object& a_side,
                        const py::object& b_side, const py::object& c, const py::object& bias,
                        std::string_view accumulate, const py::dict& post, const py::dict& settings) {
  const ProductArguments p(a_side, b_side, c, bias, accumulate, post);
  DiffInputs inputs;
  const Format& to = destination_format(*p.finish.options().mode, *p.kind.accumulator);
  inputs.parts.push_back(
      {"result", PartRole::result, &to, shape_of(golden), false, bytes_of(golden), bytes_of(dut), 0});
  inputs.product = ProductInputs{p.a, p.b, p.options, p.finish.options()};
  return run_diff(inputs, settings);
}

py::tuple postprocess_words(const py::array& words, std::string_view accumulator, const py::dict& post,
                            unsigned threads) {
  const Format& format = format_named("acc", accumulator);
  const auto rows = static_cast<std::size_t>(words.shape(0));
  const auto cols = static_cast<std::size_t>(words.shape(1));
  Postprocess finish(post);
  finish.check(format, rows, cols);
  const auto span = words_of<std::uint32_t>(words);
  return finish.run(format, rows, cols, threads,
                    [&](const Execution&) -> Expected<std::span<const std::uint32_t>> { return span; });
}

}  // namespace

void add_product(py::module_& module) {
  module.def("matmul", matmul_operands, py::arg("a"), py::arg("b"), py::arg("c"), py::arg("bias"),
             py::arg("accumulate"), py::arg("post"), py::arg("threads"));
  module.def("diff_products", diff_products, py::arg("golden"), py::arg("dut"), py::arg("a"), py::arg("b"),
             py::arg("c"), py::arg("bias"), py::arg("accumulate"), py::arg("post"), py::arg("settings"));
  module.def("postprocess", postprocess_words, py::arg("words"), py::arg("accumulator"), py::arg("post"),
             py::arg("threads"));
  module.def("explain_matmul", explain_operands, py::arg("a"), py::arg("b"), py::arg("c"), py::arg("bias"),
             py::arg("accumulate"), py::arg("post"), py::arg("row"), py::arg("col"), py::arg("steps"));
  module.def("explain_postprocess", explain_words, py::arg("words"), py::arg("accumulator"), py::arg("post"),
             py::arg("row"), py::arg("col"));
}

}  // namespace bitcube::python
