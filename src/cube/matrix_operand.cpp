#include "bitcube/cube/matrix_operand.hpp"

#include <fmt/format.h>

namespace bitcube {

namespace {

const std::uint8_t* address(std::span<const std::byte> bytes) noexcept {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

/// A row-major matrix of words, seen along K.
LaneView view(Side side, std::span<const std::byte> words, unsigned bits, std::size_t cols) noexcept {
  LaneView lanes{.data = address(words), .lane_bits = bits, .line_stride = cols, .lane_stride = 1};
  if (side == Side::b) std::swap(lanes.line_stride, lanes.lane_stride);
  return lanes;
}

}  // namespace

Operand matrix_operand(Side side, const Format& format, std::span<const std::byte> words, std::size_t rows,
                       std::size_t cols) noexcept {
  Operand operand;
  operand.format = &format;
  operand.lines = side == Side::a ? rows : cols;
  operand.k = side == Side::a ? cols : rows;
  operand.lanes = view(side, words, format.carrier_bits, cols);
  return operand;
}

void attach_scales(Side side, Operand& operand, std::span<const std::byte> words) noexcept {
  const std::size_t group = scale_group(*operand.format);
  const std::size_t groups = (operand.k + group - 1) / group;
  const unsigned bits = operand.format->type == DataType::hif4x2 ? 32 : 8;
  operand.scales = view(side, words, bits, side == Side::a ? groups : operand.lines);
}

Expected<Operand> quantized_operand(Side side, const QuantizedTensor& tensor) {
  if (auto valid = validate(tensor); !valid) return Error{fmt::format("{}: {}", name_of(side), valid.error().message)};
  if (tensor.shape.size() != 2) {
    return Error{fmt::format("{}: a matrix has 2 dimensions, but shape [{}] has {}", name_of(side),
                             fmt::join(tensor.shape, ", "), tensor.shape.size())};
  }
  const std::size_t axis = side == Side::a ? 1 : 0;
  if (tensor.axis != axis) {
    return Error{fmt::format("{}: quantised along axis {}, but K of {} is axis {}; quantise it along axis {}",
                             name_of(side), tensor.axis, name_of(side), axis, axis)};
  }
  const BlockFormat& format = *tensor.format;
  if (format.is_nvfp4()) {
    return Error{
        fmt::format("{}: {} is no operand of the product, which has no E4M3 scales", name_of(side), format.name)};
  }
  const auto k = static_cast<std::size_t>(tensor.shape[axis]);
  const unsigned lane_bits = format.element->lane_bits;
  Operand operand;
  operand.format = format.element;
  operand.lines = static_cast<std::size_t>(tensor.shape[1 - axis]);
  operand.k = k;
  // A line starts on a byte boundary, which an odd one of 4-bit lanes does not fill.
  operand.lanes = {.data = address(tensor.codes),
                   .lane_bits = lane_bits,
                   .line_stride = static_cast<std::size_t>(format.code_bytes(k)) * (8 / lane_bits),
                   .lane_stride = 1};
  operand.scales = {.data = address(tensor.scales),
                    .lane_bits = format.scale->lane_bits,
                    .line_stride = static_cast<std::size_t>(format.groups(k)),
                    .lane_stride = 1};
  return operand;
}

}  // namespace bitcube
