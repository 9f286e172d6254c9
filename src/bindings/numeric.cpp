// The C interface: conversions and block formats.
#include <algorithm>
#include <cstring>

#include "bindings/call.hpp"
#include "bindings/handles.hpp"
#include "bitcube/quantize/convert_array.hpp"

namespace bitcube::bindings {
namespace {

EncodeControl control_of(const bitcube_control& c, const Format& from, const Format& to) {
  require_zero(c.reserved, "control.reserved");
  return {.rounding = rounding_of(c.rounding, default_rounding(from.is_integer(), to)),
          .saturate = yes_or_no(c.saturate, "control.saturate"),
          .profile = &profile_of(c.profile)};
}

/// The index of a row, or -1 for none.
template <typename Row, std::size_t N>
std::int32_t index_of(const std::array<Row, N>& table, const Row* row) noexcept {
  return row == nullptr ? -1 : static_cast<std::int32_t>(row - table.data());
}

/// A row where the format has one; -1 where it has none.
template <typename Row, std::size_t N>
const Row* optional_row(const std::array<Row, N>& table, std::int32_t code, std::string_view name) {
  return code == -1 ? nullptr : &row_of(table, code, name);
}

}  // namespace
}  // namespace bitcube::bindings

using namespace bitcube;
using namespace bitcube::bindings;

bitcube_status bitcube_convert(int32_t from, int32_t to, uint64_t word, const bitcube_control* control, uint64_t* code,
                               uint32_t* flags) {
  return call([&] {
    require(code, "code");
    const Format& source = format_of_code(from, "from");
    const Format& destination = format_of_code(to, "to");
    const bitcube_control c = options_of(control);
    const EncodeControl encoding = control_of(c, source, destination);
    execution_of(c.threads, c.reference);
    if (!conversion_legal(source, destination)) {
      fail(BITCUBE_REFUSED, "{} does not convert to {}", source.name, destination.name);
    }
    if (!rounding_legal(source, destination, encoding.rounding)) {
      fail(BITCUBE_REFUSED, "{} to {}: only RNE and RNA, not {}", source.name, destination.name,
           name_of(encoding.rounding));
    }
    const Encoded out = convert(source, destination, word, encoding);
    *code = out.bits;
    if (flags != nullptr) *flags = static_cast<uint32_t>(out.flags);
  });
}

bitcube_status bitcube_convert_array(int32_t from, int32_t to, const void* words, size_t count,
                                     const bitcube_control* control, void* out, size_t out_bytes, uint32_t* flags) {
  return call([&] {
    const Format& source = format_of_code(from, "from");
    const Format& destination = format_of_code(to, "to");
    const bitcube_control c = options_of(control);
    const EncodeControl encoding = control_of(c, source, destination);
    const Execution execution = execution_of(c.threads, c.reference);
    const std::size_t size = product(count, source.carrier_bits / 8U, "words");
    require(words, size, "words");
    require_size(out_bytes, product(count, destination.carrier_bits / 8U, "out"), "out: bytes");
    require(out, out_bytes, "out");
    const Flags raised = value_of(
        convert_array_into(bytes_at(words, size), source, destination, bytes_at(out, out_bytes), encoding, execution));
    if (flags != nullptr) *flags = static_cast<uint32_t>(raised);
  });
}

bitcube_status bitcube_quantize(int32_t source, const void* words, size_t bytes, const uint64_t* shape, size_t rank,
                                size_t axis, const bitcube_quantize_options* options, bitcube_tensor** tensor) {
  return call([&] {
    require(tensor, "tensor");
    require(words, bytes, "words");
    require_shape(shape, rank);
    const bitcube_quantize_options o = options_of(options);
    require_zero(o.reserved, "options.reserved");
    const QuantizeOptions chosen{.format = &row_of(block_formats, o.format, "format"),
                                 .profile = &row_of(hif4_profiles, o.hif4_profile, "hif4_profile"),
                                 .scale_rule = &row_of(scale_rules, o.scale_rule, "scale_rule"),
                                 .rounding = rounding_of(o.rounding, Rounding::rne),
                                 .tensor_scale = yes_or_no(o.tensor_scale, "tensor_scale"),
                                 .execution = execution_of(o.threads, o.reference)};
    auto made = std::make_unique<bitcube_tensor>();
    made->tensor =
        value_of(quantize(bytes_at(words, bytes), format_of_code(source, "source"), {shape, rank}, axis, chosen));
    *tensor = made.release();
  });
}

bitcube_status bitcube_tensor_new(const bitcube_tensor_info* info, const uint64_t* shape, const void* codes,
                                  const void* scales, bitcube_tensor** tensor) {
  return call([&] {
    require(tensor, "tensor");
    require(info, "info");
    require_shape(shape, info->rank);
    require(codes, info->code_bytes, "codes");
    require(scales, info->scale_bytes, "scales");
    require_zero(info->reserved, "info.reserved");
    auto made = std::make_unique<bitcube_tensor>();
    QuantizedTensor& t = made->tensor;
    t.format = &row_of(block_formats, info->format, "format");
    t.profile = optional_row(hif4_profiles, info->hif4_profile, "hif4_profile");
    t.scale_rule = optional_row(scale_rules, info->scale_rule, "scale_rule");
    t.rounding = rounding_of(info->rounding, t.profile != nullptr ? t.profile->lane_rounding : Rounding::rne);
    t.source = &format_of_code(info->source, "source");
    t.axis = info->axis;
    if (yes_or_no(info->has_tensor_scale, "has_tensor_scale")) {
      t.tensor_scale = info->tensor_scale;
    } else {
      require_zero(info->tensor_scale, "tensor_scale without has_tensor_scale");
    }
    t.shape.assign(shape, shape + info->rank);
    const auto code_bytes = bytes_at(codes, info->code_bytes);
    const auto scale_bytes = bytes_at(scales, info->scale_bytes);
    t.codes.assign(code_bytes.begin(), code_bytes.end());
    t.scales.assign(scale_bytes.begin(), scale_bytes.end());
    check(validate(t));
    *tensor = made.release();
  });
}

void bitcube_tensor_free(bitcube_tensor* tensor) {
  delete tensor;
}

bitcube_status bitcube_tensor_describe(const bitcube_tensor* tensor, bitcube_tensor_info* info) {
  return call([&] {
    require(tensor, "tensor");
    require(info, "info");
    const QuantizedTensor& t = tensor->tensor;
    *info = {.format = index_of(block_formats, t.format),
             .hif4_profile = index_of(hif4_profiles, t.profile),
             .scale_rule = index_of(scale_rules, t.scale_rule),
             .rounding = static_cast<int32_t>(t.rounding),
             .source = static_cast<int32_t>(t.source->type),
             .has_tensor_scale = t.tensor_scale.has_value(),
             .tensor_scale = t.tensor_scale.value_or(0),
             .reserved = 0,
             .rank = t.shape.size(),
             .axis = t.axis,
             .code_bytes = t.codes.size(),
             .scale_bytes = t.scales.size()};
  });
}

bitcube_status bitcube_tensor_shape(const bitcube_tensor* tensor, uint64_t* shape, size_t rank) {
  return call([&] {
    require(tensor, "tensor");
    require_size(rank, tensor->tensor.shape.size(), "shape: dimensions");
    require(shape, rank, "shape");
    std::copy(tensor->tensor.shape.begin(), tensor->tensor.shape.end(), shape);
  });
}

const uint8_t* bitcube_tensor_codes(const bitcube_tensor* tensor) {
  if (tensor == nullptr || tensor->tensor.codes.empty()) return nullptr;
  return reinterpret_cast<const uint8_t*>(tensor->tensor.codes.data());
}

const uint8_t* bitcube_tensor_scales(const bitcube_tensor* tensor) {
  if (tensor == nullptr || tensor->tensor.scales.empty()) return nullptr;
  return reinterpret_cast<const uint8_t*>(tensor->tensor.scales.data());
}

bitcube_status bitcube_dequantize(const bitcube_tensor* tensor, int32_t destination, const bitcube_control* control,
                                  void* out, size_t out_bytes, uint32_t* flags) {
  return call([&] {
    require(tensor, "tensor");
    const Format& to = format_of_code(destination, "destination");
    const bitcube_control c = options_of(control);
    require_zero(c.reserved, "control.reserved");
    require_zero(static_cast<uint32_t>(c.saturate), "control.saturate");
    require_zero(static_cast<uint32_t>(c.profile), "control.profile");
    const Rounding rounding = rounding_of(c.rounding, Rounding::rne);
    const Execution execution = execution_of(c.threads, c.reference);
    const Dequantized made = value_of(dequantize(tensor->tensor, to, rounding, execution));
    require_size(out_bytes, made.bytes.size(), "out: bytes");
    require(out, out_bytes, "out");
    if (!made.bytes.empty()) std::memcpy(out, made.bytes.data(), made.bytes.size());
    if (flags != nullptr) *flags = static_cast<uint32_t>(made.flags);
  });
}
