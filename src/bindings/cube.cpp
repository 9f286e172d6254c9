// The C interface: the product and its post-process.
#include <algorithm>

#include "bindings/call.hpp"
#include "bindings/handles.hpp"
#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/matrix_operand.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"

namespace bitcube::bindings {
namespace {

Operand operand_of(Side side, const bitcube_operand* operand) {
  const std::string_view name = name_of(side);
  require(operand, name);
  const bitcube_operand& o = *operand;
  require_zero(o.reserved, "operand.reserved");
  if (o.tensor != nullptr) {
    const bool alone = o.type == 0 && o.rows == 0 && o.cols == 0 && o.words == nullptr && o.word_bytes == 0 &&
                       o.scales == nullptr && o.scale_bytes == 0;
    if (!alone) fail(BITCUBE_BAD_ARGUMENT, "{}: a tensor says all the rest itself, which must be 0", name);
    return value_of(quantized_operand(side, o.tensor->tensor));
  }
  const Format& format = format_of_code(o.type, name);
  const std::size_t size = product(product(o.rows, o.cols, name), format.carrier_bits / 8U, name);
  require_size(o.word_bytes, size, side == Side::a ? "A: word_bytes" : "B: word_bytes");
  require(o.words, size, side == Side::a ? "A: words" : "B: words");
  Operand out = matrix_operand(side, format, bytes_at(o.words, size), o.rows, o.cols);
  std::size_t scale_bytes = 0;
  if (o.scales != nullptr) {
    const std::size_t group = scale_group(format);
    const std::size_t groups = out.k / group + (out.k % group != 0 ? 1 : 0);
    scale_bytes = product(product(groups, out.lines, name), format.type == DataType::hif4x2 ? 4 : 1, name);
  }
  require_size(o.scale_bytes, scale_bytes, side == Side::a ? "A: scale_bytes" : "B: scale_bytes");
  if (o.scales != nullptr) attach_scales(side, out, bytes_at(o.scales, scale_bytes));
  return out;
}

/// An array that is there or not.
template <typename Word>
std::optional<std::span<const Word>> optional_words(const Word* words, std::size_t count, std::string_view name) {
  if (words != nullptr) return std::span<const Word>(words, count);
  require_zero(count, name);
  return std::nullopt;
}

const PreQuantMode& mode_of(std::int32_t code) {
  const PreQuantMode* mode = find_prequant(static_cast<unsigned>(code));
  if (mode == nullptr) fail(BITCUBE_UNKNOWN, "mode: code {} is reserved", code);
  return *mode;
}

const Format& accumulator_of(std::int32_t type) {
  const Format& format = format_of_code(type, "accumulator");
  if (type != BITCUBE_FP32 && type != BITCUBE_S32 && type != BITCUBE_U32) {
    fail(BITCUBE_BAD_ARGUMENT, "accumulator: {}, but it is FP32, S32 or U32", format.name);
  }
  return format;
}

PostprocessOptions postprocess_of(const bitcube_postprocess_options* options) {
  const bitcube_postprocess_options o = options_of(options);
  require_zero(o.reserved, "options.reserved");
  require(o.carriers, o.carrier_count, "carriers");
  require(o.alphas, o.alpha_count, "alphas");
  if (o.relu < 0 || o.relu > BITCUBE_RELU_PER_COLUMN) fail(BITCUBE_UNKNOWN, "relu: {}, but it is 0 to 3", o.relu);
  PostprocessOptions out;
  out.mode = &mode_of(o.mode);
  out.quant_carriers = {o.carriers, o.carrier_count};
  out.relu = static_cast<Relu>(o.relu);
  out.activation_carriers = {o.alphas, o.alpha_count};
  if (o.rounding != 0) out.rounding = rounding_of(o.rounding, Rounding::rne);
  out.saturate = yes_or_no(o.saturate, "saturate");
  out.profile = &profile_of(o.profile);
  out.row_max = yes_or_no(o.row_max, "row_max");
  out.row_max_init = optional_words(o.row_max_init, o.row_max_init_words, "row_max_init_words without row_max_init");
  out.group_n = o.group_n;
  out.max_abs = yes_or_no(o.max_abs, "max_abs");
  out.execution = execution_of(o.threads, o.reference);
  return out;
}

/// Precondition: the options were checked.
bitcube_postprocess_sizes sizes_of(const Format& accumulator, std::size_t rows, std::size_t cols,
                                   const PostprocessOptions& options) {
  const Format& destination = destination_format(*options.mode, accumulator);
  const std::size_t groups = options.group_n == 0 ? 0 : (cols - 1) / options.group_n + 1;
  const std::size_t bytes = destination.carrier_bits / 8U;
  return {.type = static_cast<std::int32_t>(destination.type),
          .element_bytes = static_cast<std::uint32_t>(bytes),
          .d_bytes = product(product(rows, cols, "D"), bytes, "D"),
          .row_max_words = options.row_max ? rows : 0,
          .group_max_words = product(rows, groups, "GroupMax")};
}

}  // namespace
}  // namespace bitcube::bindings

using namespace bitcube;
using namespace bitcube::bindings;

bitcube_status bitcube_product_of(const bitcube_operand* a, const bitcube_operand* b, bitcube_product_kind* kind) {
  return call([&] {
    require(kind, "kind");
    const Operand left = operand_of(Side::a, a);
    const Operand right = operand_of(Side::b, b);
    const ProductKind k = value_of(product_kind(left, right));
    *kind = {.accumulator = static_cast<int32_t>(k.accumulator->type),
             .mx = k.mx,
             .rows = left.lines,
             .cols = right.lines,
             .k = left.k,
             .group = k.group};
  });
}

bitcube_status bitcube_matmul(const bitcube_operand* a, const bitcube_operand* b, const bitcube_matmul_options* options,
                              uint32_t* out, size_t out_words) {
  return call([&] {
    const Operand left = operand_of(Side::a, a);
    const Operand right = operand_of(Side::b, b);
    const bitcube_matmul_options o = options_of(options);
    require_zero(o.reserved, "options.reserved");
    MatmulOptions chosen;
    chosen.profile = &row_of(accumulation_profiles, o.accumulation, "accumulation");
    chosen.c = optional_words(o.c, o.c_words, "c_words without c");
    chosen.bias = optional_words(o.bias, o.bias_words, "bias_words without bias");
    chosen.execution = execution_of(o.threads, o.reference);
    chosen.group = o.group;
    require_size(out_words, product(left.lines, right.lines, "out"), "out: words");
    require(out, out_words, "out");
    const Accumulators made = value_of(matmul(left, right, chosen));
    std::copy(made.words.begin(), made.words.end(), out);
  });
}

uint32_t bitcube_fp32_to_fp19(uint32_t word) {
  return static_cast<uint32_t>(fp32_to_fp19(word));
}

bitcube_status bitcube_scale_carrier(int32_t mode, uint32_t fp19_scale, int32_t offset, uint64_t* carrier) {
  return call([&] {
    require(carrier, "carrier");
    const PreQuantMode& m = mode_of(mode);
    if (m.carrier != CarrierKind::scale) fail(BITCUBE_REFUSED, "{} takes no scale", m.name);
    const int64_t limit = m.offset_bits == 0 ? 0 : int64_t{1} << (m.offset_bits - 1);
    if (offset < -limit || offset > std::max<int64_t>(limit - 1, 0)) {
      fail(BITCUBE_REFUSED, "offset {}: {} has {} bits for it", offset, m.name, m.offset_bits);
    }
    if (fp19_scale > low_mask(19)) fail(BITCUBE_REFUSED, "scale 0x{:X}: an FP19 word has 19 bits", fp19_scale);
    const uint64_t word = pack_scale_carrier(fp19_scale, offset, m.offset_bits);
    const std::string_view reason = quant_carrier_fault(word, m.carrier, m.offset_bits);
    if (!reason.empty()) fail(BITCUBE_REFUSED, "scale 0x{:05X}: {}", fp19_scale, reason);
    *carrier = word;
  });
}

bitcube_status bitcube_shift_carrier(int32_t mode, int32_t shift, uint64_t* carrier) {
  return call([&] {
    require(carrier, "carrier");
    const PreQuantMode& m = mode_of(mode);
    if (m.carrier != CarrierKind::shift) fail(BITCUBE_REFUSED, "{} takes no shift", m.name);
    if (shift < 1 || shift > 16) fail(BITCUBE_REFUSED, "shift {}: a shift is 1 to 16", shift);
    *carrier = pack_shift_carrier(shift);
  });
}

bitcube_status bitcube_postprocess_check(int32_t accumulator, size_t rows, size_t cols,
                                         const bitcube_postprocess_options* options, bitcube_postprocess_sizes* sizes) {
  return call([&] {
    require(sizes, "sizes");
    const Format& format = accumulator_of(accumulator);
    const PostprocessOptions chosen = postprocess_of(options);
    check(check_postprocess(format, rows, cols, chosen));
    *sizes = sizes_of(format, rows, cols, chosen);
  });
}

bitcube_status bitcube_postprocess(int32_t accumulator, const uint32_t* words, size_t rows, size_t cols,
                                   const bitcube_postprocess_options* options, const bitcube_postprocess_output* output,
                                   uint32_t* flags) {
  return call([&] {
    require(output, "output");
    const Format& format = accumulator_of(accumulator);
    const PostprocessOptions chosen = postprocess_of(options);
    check(check_postprocess(format, rows, cols, chosen));
    const bitcube_postprocess_sizes sizes = sizes_of(format, rows, cols, chosen);
    require(words, "words");
    require_size(output->d_bytes, sizes.d_bytes, "d: bytes");
    require_size(output->row_max_words, sizes.row_max_words, "row_max: words");
    require_size(output->group_max_words, sizes.group_max_words, "group_max: words");
    require(output->d, "d");
    require(output->row_max, sizes.row_max_words, "row_max");
    require(output->group_max, sizes.group_max_words, "group_max");
    const PostprocessOutput out{.d = {static_cast<uint8_t*>(output->d), sizes.d_bytes},
                                .row_max = {output->row_max, sizes.row_max_words},
                                .group_max = {output->group_max, sizes.group_max_words}};
    const Flags raised = value_of(postprocess_into(format, {words, rows * cols}, rows, cols, chosen, out));
    if (flags != nullptr) *flags = static_cast<uint32_t>(raised);
  });
}

bitcube_status bitcube_pack_rows(const void* d, size_t rows, size_t cols, void* out, size_t out_bytes) {
  return call([&] {
    const std::size_t size = product(rows, cols, "d");
    require(d, size, "d");
    require_size(out_bytes, product(rows, cols / 2 + cols % 2, "out"), "out: bytes");
    require(out, out_bytes, "out");
    Postprocessed lanes;
    lanes.rows = rows;
    lanes.cols = cols;
    const auto* first = static_cast<const uint8_t*>(d);
    lanes.d.assign(first, first + size);
    const std::vector<uint8_t> packed = packed_rows(lanes);
    std::copy(packed.begin(), packed.end(), static_cast<uint8_t*>(out));
  });
}
