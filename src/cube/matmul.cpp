#include "bitcube/cube/matmul.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <numeric>

#include "cube/kernels/product.hpp"
#include "guarded.hpp"

namespace bitcube {

namespace {

bool is_half_width(const Format& f) {
  return f.type == DataType::fp16 || f.type == DataType::bf16;
}

/// Types that an MX operation takes (numerics 9.2).
bool is_mx_type(const Format& f) {
  switch (f.type) {
    case DataType::fp16:
    case DataType::bf16:
    case DataType::e4m3:
    case DataType::e5m2:
    case DataType::e2m1x2:
    case DataType::e1m2x2:
    case DataType::hif4x2:
      return true;
    default:
      return false;
  }
}

/// The accumulator of an ordinary operation on this type, or nullptr where the type is no operand (numerics 9.2).
const Format* ordinary_accumulator(const Format& f) {
  if (f.is_integer()) {
    if (f.lane_bits > 16) return nullptr;
    return &format_of(f.kind == Kind::signed_integer ? DataType::s32 : DataType::u32);
  }
  const bool operand = f.kind == Kind::floating && f.type != DataType::fp64 && f.type != DataType::hif4x2;
  return operand ? &fp32 : nullptr;
}

constexpr std::string_view mx_types = "FP16, BF16, E4M3, E5M2, E2M1, E1M2 and HiF4";

Expected<void> check_side(const char* name, const Operand& side, bool mx) {
  const Format& f = *side.format;
  if (mx && !is_mx_type(f)) {
    return Error{fmt::format("{}: {} is no operand of an MX product; MX types are {}", name, f.name, mx_types)};
  }
  if (side.scaled() && is_half_width(f)) return Error{fmt::format("{}: {} takes no scale", name, f.name)};
  if (!mx && f.type == DataType::hif4x2) {
    return Error{fmt::format("{}: HiF4X2 needs its scale words, one U32 per 64 lanes of K", name)};
  }
  if (!mx && ordinary_accumulator(f) == nullptr) {
    return Error{fmt::format("{}: {} is no operand of a product", name, f.name)};
  }
  return {};
}

/// The lanes of one line as exact terms.
void load_terms(const Operand& side, std::size_t line, std::span<Term> out) {
  for (std::size_t k = 0; k < out.size(); ++k) out[k] = term_at(side, line, k);
}

/// The lanes of one line as raw-carrier words, the scale word multiplied in (numerics 9.6).
void load_raw(const Operand& side, std::size_t line, std::span<uint64> out) {
  for (std::size_t k = 0; k < out.size(); ++k) out[k] = raw_at(side, line, k);
}

/// The lanes of one line as integers modulo 2^64.
void load_integers(const Operand& side, std::size_t line, std::span<uint64> out) {
  for (std::size_t k = 0; k < out.size(); ++k) out[k] = integer_at(side, line, k);
}

/// Output rows and columns to compute: all of them, or a choice.
struct Outputs {
  std::span<const std::size_t> rows;
  std::span<const std::size_t> cols;
};

/// Computes outputs in square tiles, so that each line is decoded once per tile. `Lane` is what `load` makes of a lane;
/// `element` makes one output word of two lines of lanes.
template <typename Lane, typename Load, typename Element>
void for_each_tile(const Operand& a, const Operand& b, const Outputs& outputs, Accumulators& out,
                   const Execution& execution, const Load& load, const Element& element) {
  constexpr std::size_t tile = 64;
  const std::size_t k = a.k;
  const std::size_t tile_cols = (outputs.cols.size() + tile - 1) / tile;
  const std::size_t tile_rows = (outputs.rows.size() + tile - 1) / tile;
  parallel_for(tile_rows * tile_cols, execution, [&](std::size_t index) {
    const auto part = [&](std::span<const std::size_t> lines, std::size_t i) {
      return lines.subspan(i * tile, std::min(tile, lines.size() - i * tile));
    };
    const auto rows = part(outputs.rows, index / tile_cols);
    const auto cols = part(outputs.cols, index % tile_cols);
    std::vector<Lane> lanes((rows.size() + cols.size()) * k);
    const auto line = [&](std::size_t i) { return std::span<Lane>(lanes).subspan(i * k, k); };
    for (std::size_t r = 0; r < rows.size(); ++r) load(a, rows[r], line(r));
    for (std::size_t c = 0; c < cols.size(); ++c) load(b, cols[c], line(rows.size() + c));
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t c = 0; c < cols.size(); ++c) {
        std::uint32_t& word = out.words[rows[r] * out.cols + cols[c]];
        word = element(word, cols[c], std::span<const Lane>(line(r)), std::span<const Lane>(line(rows.size() + c)));
      }
    }
  });
}

/// The product by its definition. The words of `outputs` hold C or +0.
void multiply_by_reference(const Operand& a, const Operand& b, const MatmulOptions& options, std::size_t group,
                           const Outputs& outputs, Accumulators& out, const Execution& execution) {
  const Format& accumulator = *out.format;
  const bool raw = options.profile->kind == Accumulation::raw_carrier;
  if (raw || accumulator.is_integer()) {
    const auto element = [&](std::uint32_t c, std::size_t col, std::span<const uint64> x, std::span<const uint64> y) {
      uint64 sum = widen_accumulator(accumulator, c);
      for (std::size_t k = 0; k < x.size(); ++k) sum += x[k] * y[k];
      if (options.bias) sum += widen_accumulator(accumulator, (*options.bias)[col]);
      return static_cast<std::uint32_t>(sum);
    };
    for_each_tile<uint64>(a, b, outputs, out, execution, raw ? load_raw : load_integers, element);
    return;
  }
  const auto element = [&](std::uint32_t c, std::size_t col, std::span<const Term> x, std::span<const Term> y) {
    const std::uint32_t acc = accumulate(options.profile->kind, c, x, y, group);
    return options.bias ? add_to_fp32(acc, addend_from_fp32((*options.bias)[col])) : acc;
  };
  for_each_tile<Term>(a, b, outputs, out, execution, load_terms, element);
}

std::vector<std::size_t> all_lines(const Operand& side) {
  std::vector<std::size_t> lines(side.lines);
  std::iota(lines.begin(), lines.end(), std::size_t{0});
  return lines;
}

}  // namespace

Expected<ProductKind> product_kind(const Operand& a, const Operand& b) {
  // First: where there are no lanes there are no scales, and that they are missing is not what is wrong.
  for (const std::size_t k : {a.k, b.k}) {
    if (k != 0 && a.lines != 0 && b.lines != 0) continue;
    return Error{fmt::format("M = {}, N = {}, K = {}: every dimension must be at least 1", a.lines, b.lines, k)};
  }
  const bool a_ready = a.scaled() || is_half_width(*a.format);
  const bool b_ready = b.scaled() || is_half_width(*b.format);
  const bool mx = a_ready && b_ready;
  if (!mx && (a.scaled() || b.scaled())) {
    const bool a_lacks = !a_ready;
    return Error{
        fmt::format("{}: {} has no scale, but {} has one; an MX product needs scales on every side other than "
                    "FP16 and BF16",
                    a_lacks ? "A" : "B", (a_lacks ? a : b).format->name, a_lacks ? "B" : "A")};
  }
  if (auto ok = check_side("A", a, mx); !ok) return ok.error();
  if (auto ok = check_side("B", b, mx); !ok) return ok.error();
  if (mx) {
    std::size_t group = 0;
    for (const Operand* side : {&a, &b}) {
      if (!side->scaled()) continue;
      const std::size_t g = scale_group(*side->format);
      group = group == 0 ? g : std::min(group, g);
    }
    return ProductKind{&fp32, true, group == 0 ? 32 : group};
  }
  const Format* accumulator = ordinary_accumulator(*a.format);
  if (accumulator != ordinary_accumulator(*b.format)) {
    return Error{
        fmt::format("A is {} and B is {}: a product takes float with float, signed with signed (S16, S8, S4) "
                    "or unsigned with unsigned (U16, U8, U4)",
                    a.format->name, b.format->name)};
  }
  return ProductKind{accumulator, false, 16};
}

Expected<ProductKind> check_matmul(const Operand& a, const Operand& b, const MatmulOptions& options) {
  if (options.profile == nullptr) return Error{"no accumulation profile was given"};
  if (a.format == nullptr || b.format == nullptr) return Error{"an operand has no format"};
  if (a.k != b.k) return Error{fmt::format("B: {} rows, but A has K = {}", b.k, a.k)};
  const auto kind = product_kind(a, b);
  if (!kind) return kind.error();

  std::size_t elements = 0;
  if (__builtin_mul_overflow(a.lines, b.lines, &elements) || elements > SIZE_MAX / 16) {
    return Error{fmt::format("M = {}, N = {}: the result has too many elements for this machine", a.lines, b.lines)};
  }
  std::size_t lane_bytes = 0;  // of one tile of lines, the workspace of a thread
  if (__builtin_mul_overflow(a.k, std::size_t{128} * sizeof(uint64), &lane_bytes)) {
    return Error{fmt::format("K = {}: too many lanes for this machine", a.k)};
  }
  if (options.c && options.c->size() != elements) {
    return Error{fmt::format("C: {} elements, but the result is {} x {}", options.c->size(), a.lines, b.lines)};
  }
  if (options.bias && options.bias->size() != b.lines) {
    return Error{fmt::format("bias: {} elements, but B has {} columns", options.bias->size(), b.lines)};
  }
  return kind;
}

namespace {

Expected<Accumulators> multiply(const Operand& a, const Operand& b, const MatmulOptions& options) {
  const auto kind = check_matmul(a, b, options);
  if (!kind) return kind.error();
  const Format& accumulator = *kind->accumulator;
  Accumulators out{&accumulator, a.lines, b.lines, {}};
  out.words.resize(a.lines * b.lines);
  const std::size_t group = options.group != 0 ? options.group : kind->group;
  if (!options.execution.reference) {
    const auto reference = [&](std::span<const std::size_t> rows, std::span<const std::size_t> cols) {
      for (const std::size_t r : rows) {
        for (const std::size_t c : cols) {
          const std::size_t i = r * out.cols + c;
          out.words[i] = options.c ? (*options.c)[i] : 0;
        }
      }
      multiply_by_reference(a, b, options, group, {rows, cols}, out, options.execution.quiet());
    };
    if (kernels::multiply(a, b, options, *kind, group, out, reference)) return out;
  }
  if (options.c) {
    std::copy(options.c->begin(), options.c->end(), out.words.begin());
  } else {
    std::fill(out.words.begin(), out.words.end(), 0U);
  }
  const std::vector<std::size_t> rows = all_lines(a);
  const std::vector<std::size_t> cols = all_lines(b);
  multiply_by_reference(a, b, options, group, {rows, cols}, out, options.execution);
  return out;
}

}  // namespace

Expected<Accumulators> matmul(const Operand& a, const Operand& b, const MatmulOptions& options) {
  return guarded("matmul", [&] { return multiply(a, b, options); });
}

}  // namespace bitcube
