#include "bitcube/cube/postprocess_matrix.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <cstring>

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

namespace {

Expected<Postprocessed> run_postprocess(const Accumulators& accumulators, const PostprocessOptions& options) {
  std::size_t elements = 0;
  if (accumulators.format == nullptr || __builtin_mul_overflow(accumulators.rows, accumulators.cols, &elements) ||
      accumulators.words.size() != elements) {
    return Error{fmt::format("accumulators: {} words of {} x {}", accumulators.words.size(), accumulators.rows,
                             accumulators.cols)};
  }
  const Format& accumulator = *accumulators.format;
  const std::size_t rows = accumulators.rows;
  const std::size_t cols = accumulators.cols;
  if (auto ok = check_postprocess(accumulator, rows, cols, options); !ok) return ok.error();

  const PreQuantMode& mode = *options.mode;
  Postprocessed out;
  out.format = &destination_format(mode, accumulator);
  out.accumulator = &accumulator;
  out.rows = rows;
  out.cols = cols;
  out.element_bytes = out.format->carrier_bits / 8;
  out.d.resize(rows * cols * out.element_bytes);
  const std::size_t groups = options.group_n == 0 ? 0 : (cols + options.group_n - 1) / options.group_n;
  if (options.row_max) out.row_max.resize(rows);
  out.group_max.resize(rows * groups);

  // The controls of a column; a scalar parameter serves every column.
  std::vector<ElementPostprocess> controls(mode.per_column || options.relu == Relu::per_column ? cols : 1);
  for (std::size_t c = 0; c < controls.size(); ++c) {
    ElementPostprocess& p = controls[c];
    p.mode = &mode;
    p.relu = options.relu;
    if (!options.quant_carriers.empty()) {
      p.quant = unpack_quant_carrier(options.quant_carriers[mode.per_column ? c : 0], mode.offset_bits);
    }
    if (!options.activation_carriers.empty()) {
      p.alpha = options.activation_carriers[options.relu == Relu::per_column ? c : 0];
    }
    p.rounding = options.rounding.value_or(Rounding::rne);
    p.saturate = options.saturate;
    p.profile = options.profile;
  }

  std::atomic<std::uint8_t> all_flags{0};
  constexpr std::size_t rows_per_task = 16;
  parallel_for((rows + rows_per_task - 1) / rows_per_task, options.execution, [&](std::size_t task) {
    Flags flags = Flags::none;
    const auto step = [&](std::uint32_t current, std::uint32_t candidate) {
      const Reduced r = reduce_step(accumulator, options.max_abs, current, candidate);
      flags |= r.flags;
      return r.word;
    };
    // Columns [begin, end) in increasing order; with MaxAbs the first one meets itself (numerics 5.7).
    const auto reduce = [&](const std::uint32_t* row, std::size_t begin, std::size_t end) {
      std::uint32_t current = options.max_abs ? step(row[begin], row[begin]) : row[begin];
      for (std::size_t c = begin + 1; c < end; ++c) current = step(current, row[c]);
      return current;
    };
    for (std::size_t r = task * rows_per_task; r < std::min(rows, (task + 1) * rows_per_task); ++r) {
      const std::uint32_t* row = accumulators.words.data() + r * cols;
      for (std::size_t c = 0; c < cols; ++c) {
        const Encoded e = postprocess_element(controls[controls.size() == 1 ? 0 : c], accumulator, row[c]);
        flags |= e.flags;
        std::memcpy(out.d.data() + (r * cols + c) * out.element_bytes, &e.bits, out.element_bytes);
      }
      if (options.row_max) {
        const std::uint32_t current = reduce(row, 0, cols);
        out.row_max[r] = options.row_max_init ? step((*options.row_max_init)[r], current) : current;
      }
      for (std::size_t g = 0; g < groups; ++g) {
        out.group_max[r * groups + g] = reduce(row, g * options.group_n, std::min(cols, (g + 1) * options.group_n));
      }
    }
    all_flags.fetch_or(static_cast<std::uint8_t>(flags), std::memory_order_relaxed);
  });
  out.flags = static_cast<Flags>(all_flags.load());
  return out;
}

}  // namespace

Expected<Postprocessed> postprocess(const Accumulators& accumulators, const PostprocessOptions& options) {
  return guarded("postprocess", [&] { return run_postprocess(accumulators, options); });
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
