#include "bitcube/cube/postprocess_matrix.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <cstring>

#include "cube/kernels/postprocess.hpp"
#include "guarded.hpp"

namespace bitcube {

namespace {

/// The rule ids are those of the legality table: C9 RMode and Sat, F1 scalar parameters, F3 accumulator class, F4
/// RowMaxIn, F5 quantisation carriers, F6 activation carriers, P1 the fields of B.FPATR among each other.
Error fault(std::string_view rule, std::string_view text) {
  return Error{fmt::format("{}: {}", rule, text)};
}

Expected<void> check_carrier_count(std::string_view rule, std::string_view what, std::size_t count, std::size_t wanted,
                                   bool per_column) {
  if (count == wanted) return {};
  if (wanted == 0) return fault(rule, fmt::format("{} was given, but the mode takes none", what));
  return fault(rule, per_column ? fmt::format("{}: {} words, but the result has {} columns", what, count, wanted)
                                : fmt::format("{}: the mode takes one word, {} were given", what, count));
}

std::string place(std::size_t column, bool per_column) {
  return per_column ? fmt::format("column {}: ", column) : std::string();
}

}  // namespace

Expected<void> check_postprocess(const Format& accumulator, std::size_t rows, std::size_t cols,
                                 const PostprocessOptions& options) {
  if (options.mode == nullptr || options.profile == nullptr) return Error{"no PreQuant mode or no profile was given"};
  if (rows == 0 || cols == 0) return Error{fmt::format("{} x {}: every dimension must be at least 1", rows, cols)};
  const PreQuantMode& mode = *options.mode;
  if (mode.accumulator != DataType::none && mode.accumulator != accumulator.type) {
    return fault("F3", fmt::format("{} takes {} accumulators, but these are {}", mode.name,
                                   format_of(mode.accumulator).name, accumulator.name));
  }
  if (options.rounding && mode.rounding_rule == RoundingRule::fixed) {
    return fault("C9", fmt::format("{} has a fixed rounding; leave the rounding mode out", mode.name));
  }
  if (options.saturate && !mode.saturation_allowed) {
    return fault("C9", fmt::format("{} does not take saturation; leave it out", mode.name));
  }

  const bool scalar_mode = mode.carrier != CarrierKind::none && !mode.per_column;
  const std::size_t quant_wanted = mode.carrier == CarrierKind::none ? 0 : mode.per_column ? cols : 1;
  const std::string_view quant_rule = scalar_mode ? "F1" : "F5";
  if (auto ok = check_carrier_count(quant_rule, "quantisation parameter", options.quant_carriers.size(), quant_wanted,
                                    mode.per_column);
      !ok) {
    return ok;
  }
  for (std::size_t i = 0; i < quant_wanted; ++i) {
    const auto reason = quant_carrier_fault(options.quant_carriers[i], mode.carrier, mode.offset_bits);
    if (reason.empty()) continue;
    return fault(quant_rule, fmt::format("quantisation parameter {}0x{:016X}: {}", place(i, mode.per_column),
                                         options.quant_carriers[i], reason));
  }

  if (mode.carrier == CarrierKind::shift && options.relu != Relu::none) {
    return fault("P1", fmt::format("{} shifts and has no activation; leave the activation out", mode.name));
  }
  const bool relu_per_column = options.relu == Relu::per_column;
  const std::size_t relu_wanted = options.relu == Relu::scalar ? 1 : relu_per_column ? cols : 0;
  const std::string_view relu_rule = relu_per_column ? "F6" : "F1";
  if (auto ok = check_carrier_count(relu_rule, "activation parameter", options.activation_carriers.size(), relu_wanted,
                                    relu_per_column);
      !ok) {
    return ok;
  }
  for (std::size_t i = 0; i < relu_wanted; ++i) {
    const auto reason = activation_carrier_fault(options.activation_carriers[i]);
    if (reason.empty()) continue;
    return fault(relu_rule, fmt::format("activation parameter {}0x{:016X}: {}", place(i, relu_per_column),
                                        options.activation_carriers[i], reason));
  }

  if (options.group_n != 0 &&
      std::find(group_n_values.begin(), group_n_values.end(), options.group_n) == group_n_values.end()) {
    return fault("P1", fmt::format("GroupN {} has no code; GroupN is one of {}", options.group_n,
                                   fmt::join(group_n_values, ", ")));
  }
  if (options.row_max_init && !options.row_max) return fault("P1", "RowMaxInit needs RowMax");
  if (options.max_abs && !options.row_max && options.group_n == 0)
    return fault("P1", "MaxAbs needs RowMax or GroupMax");
  if (options.row_max_init && options.row_max_init->size() != rows) {
    return fault("F4",
                 fmt::format("RowMaxIn: {} elements, but the result has {} rows", options.row_max_init->size(), rows));
  }
  return {};
}

ElementPostprocess column_postprocess(const PostprocessOptions& options, std::size_t column) noexcept {
  const PreQuantMode& mode = *options.mode;
  ElementPostprocess p;
  p.mode = &mode;
  p.relu = options.relu;
  if (!options.quant_carriers.empty()) {
    p.quant = unpack_quant_carrier(options.quant_carriers[mode.per_column ? column : 0], mode.offset_bits);
  }
  if (!options.activation_carriers.empty()) {
    p.alpha = options.activation_carriers[options.relu == Relu::per_column ? column : 0];
  }
  p.rounding = options.rounding.value_or(Rounding::rne);
  p.saturate = options.saturate;
  p.profile = options.profile;
  return p;
}

namespace {

std::size_t group_count(std::size_t cols, const PostprocessOptions& options) {
  return options.group_n == 0 ? 0 : (cols + options.group_n - 1) / options.group_n;
}

/// The controls of each column, or of all.
std::vector<ElementPostprocess> column_controls(std::size_t cols, const PostprocessOptions& options) {
  std::vector<ElementPostprocess> controls(options.mode->per_column || options.relu == Relu::per_column ? cols : 1);
  for (std::size_t c = 0; c < controls.size(); ++c) controls[c] = column_postprocess(options, c);
  return controls;
}

/// postprocess_element() of rows x cols words: what the kernels are held to.
Flags postprocess_each(std::span<const ElementPostprocess> controls, const Format& accumulator,
                       const std::uint32_t* words, std::size_t rows, std::size_t cols, std::uint8_t* d) {
  const std::size_t element_bytes = destination_format(*controls[0].mode, accumulator).carrier_bits / 8U;
  Flags flags = Flags::none;
  for (std::size_t i = 0; i < rows * cols; ++i) {
    const Encoded e = postprocess_element(controls[controls.size() == 1 ? 0 : i % cols], accumulator, words[i]);
    flags |= e.flags;
    std::memcpy(d + i * element_bytes, &e.bits, element_bytes);
  }
  return flags;
}

/// GroupMax of one row.
Flags reduce_groups(const Format& accumulator, const PostprocessOptions& options, std::span<const std::uint32_t> row,
                    std::uint32_t* group_max) {
  Flags flags = Flags::none;
  if (!options.execution.reference &&
      kernels::group_maxima(accumulator, options.max_abs, row.data(), row.size(), options.group_n, group_max, flags)) {
    return flags;
  }
  for (std::size_t begin = 0; begin < row.size(); begin += options.group_n) {
    const std::size_t size = std::min<std::size_t>(options.group_n, row.size() - begin);
    const Reduced r = reduce_words(accumulator, options.max_abs, row.subspan(begin, size));
    flags |= r.flags;
    *group_max++ = r.word;
  }
  return flags;
}

/// RowMax of row `index`.
Flags reduce_row(const Format& accumulator, const PostprocessOptions& options, std::size_t index,
                 std::span<const std::uint32_t> row, std::uint32_t& row_max) {
  Reduced r;
  if (options.execution.reference ||
      !kernels::maximum(accumulator, options.max_abs, row.data(), row.size(), r.word, r.flags)) {
    r = reduce_words(accumulator, options.max_abs, row);
  }
  if (options.row_max_init) {
    const Reduced step = reduce_step(accumulator, options.max_abs, (*options.row_max_init)[index], r.word);
    r = {step.word, r.flags | step.flags};
  }
  row_max = r.word;
  return r.flags;
}

/// Everything was checked.
Flags run_postprocess(const Format& accumulator, std::span<const std::uint32_t> words, std::size_t rows,
                      std::size_t cols, const PostprocessOptions& options, const PostprocessOutput& out) {
  const std::size_t row_bytes = cols * (destination_format(*options.mode, accumulator).carrier_bits / 8U);
  const std::size_t groups = group_count(cols, options);
  const std::vector<ElementPostprocess> controls = column_controls(cols, options);
  kernels::PostprocessKernel kernel;
  if (!options.execution.reference) kernel = kernels::make_postprocess_kernel(controls, accumulator);

  std::atomic<std::uint8_t> all_flags{0};
  const std::size_t rows_per_task = std::max<std::size_t>(1, (std::size_t{1} << 14) / cols);
  parallel_for((rows + rows_per_task - 1) / rows_per_task, options.execution, [&](std::size_t task) {
    const std::size_t begin = task * rows_per_task;
    const std::size_t count = std::min(rows - begin, rows_per_task);
    const std::uint32_t* first = words.data() + begin * cols;
    std::uint8_t* d = out.d.data() + begin * row_bytes;
    Flags flags = Flags::none;
    if (!kernels::postprocess_words(kernel, first, count, cols, reinterpret_cast<std::byte*>(d), flags)) {
      flags |= postprocess_each(controls, accumulator, first, count, cols, d);
    }
    for (std::size_t r = begin; r < begin + count; ++r) {
      const auto row = words.subspan(r * cols, cols);
      if (options.row_max) flags |= reduce_row(accumulator, options, r, row, out.row_max[r]);
      if (groups != 0) flags |= reduce_groups(accumulator, options, row, out.group_max.data() + r * groups);
    }
    all_flags.fetch_or(static_cast<std::uint8_t>(flags), std::memory_order_relaxed);
  });
  return static_cast<Flags>(all_flags.load());
}

/// Whether there are rows x cols words.
Expected<void> check_words(std::size_t words, std::size_t rows, std::size_t cols) {
  std::size_t elements = 0;
  if (!__builtin_mul_overflow(rows, cols, &elements) && words == elements) return {};
  return Error{fmt::format("accumulators: {} words of {} x {}", words, rows, cols)};
}

}  // namespace

Expected<Flags> postprocess_into(const Format& accumulator, std::span<const std::uint32_t> words, std::size_t rows,
                                 std::size_t cols, const PostprocessOptions& options, const PostprocessOutput& out) {
  if (auto ok = check_words(words.size(), rows, cols); !ok) return ok.error();
  if (auto ok = check_postprocess(accumulator, rows, cols, options); !ok) return ok.error();
  const std::size_t element_bytes = destination_format(*options.mode, accumulator).carrier_bits / 8U;
  const std::size_t row_max = options.row_max ? rows : 0;
  const std::size_t group_max = rows * group_count(cols, options);
  if (out.d.size() != words.size() * element_bytes || out.row_max.size() != row_max ||
      out.group_max.size() != group_max) {
    return Error{fmt::format("output: D {} bytes, RowMax {} and GroupMax {} words, but {}, {} and {} are produced",
                             out.d.size(), out.row_max.size(), out.group_max.size(), words.size() * element_bytes,
                             row_max, group_max)};
  }
  return guarded("postprocess",
                 [&]() -> Expected<Flags> { return run_postprocess(accumulator, words, rows, cols, options, out); });
}

Expected<Postprocessed> postprocess(const Accumulators& accumulators, const PostprocessOptions& options) {
  const std::size_t rows = accumulators.rows;
  const std::size_t cols = accumulators.cols;
  if (accumulators.format == nullptr) return Error{"accumulators: no type was given"};
  if (auto ok = check_words(accumulators.words.size(), rows, cols); !ok) return ok.error();
  const Format& accumulator = *accumulators.format;
  if (auto ok = check_postprocess(accumulator, rows, cols, options); !ok) return ok.error();
  return guarded("postprocess", [&]() -> Expected<Postprocessed> {
    Postprocessed out;
    out.format = &destination_format(*options.mode, accumulator);
    out.accumulator = &accumulator;
    out.rows = rows;
    out.cols = cols;
    out.element_bytes = out.format->carrier_bits / 8U;
    out.d.resize(rows * cols * out.element_bytes);
    if (options.row_max) out.row_max.resize(rows);
    out.group_max.resize(rows * group_count(cols, options));
    out.flags =
        run_postprocess(accumulator, accumulators.words, rows, cols, options, {out.d, out.row_max, out.group_max});
    return out;
  });
}

std::vector<std::uint8_t> packed_rows(const Postprocessed& d) {
  const std::size_t row_bytes = (d.cols + 1) / 2;
  std::vector<std::uint8_t> packed(d.rows * row_bytes);
  for (std::size_t r = 0; r < d.rows; ++r) {
    for (std::size_t c = 0; c < d.cols; ++c) {
      const unsigned lane = d.d[r * d.cols + c] & 0xFU;
      std::uint8_t& byte = packed[r * row_bytes + c / 2];
      byte = static_cast<std::uint8_t>(byte | lane << (4 * (c % 2)));
    }
  }
  return packed;
}

}  // namespace bitcube
