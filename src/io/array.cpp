#include "bitcube/io/array.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

namespace bitcube {

namespace {

constexpr std::array kDTypes{DType::kBool, DType::kI8,  DType::kI16, DType::kI32, DType::kI64, DType::kU8,  DType::kU16,
                             DType::kU32,  DType::kU64, DType::kF16, DType::kF32, DType::kF64, DType::kBF16};

bool parse_shape(std::string_view text, std::vector<std::uint64_t>& shape) {
  for (;;) {
    const std::size_t end = std::min(text.find('x'), text.size());
    std::uint64_t extent = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + end, extent);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + end) return false;
    shape.push_back(extent);
    if (end == text.size()) return true;
    text.remove_prefix(end + 1);
  }
}

/// The DTYPE of a text FILE:DTYPE:SHAPE whose DTYPE is none.
std::optional<std::string_view> unknown_type(std::string_view text) {
  const std::size_t shape_colon = text.rfind(':');
  if (shape_colon == std::string_view::npos || shape_colon == 0) return std::nullopt;
  const std::size_t type_colon = text.rfind(':', shape_colon - 1);
  std::vector<std::uint64_t> shape;
  if (type_colon == std::string_view::npos || type_colon == 0 || !parse_shape(text.substr(shape_colon + 1), shape)) {
    return std::nullopt;
  }
  return text.substr(type_colon + 1, shape_colon - type_colon - 1);
}

bool is_raw_name(std::string_view name) {
  return name.ends_with(".bin");
}

}  // namespace

std::optional<RawArray> parse_raw_array(std::string_view text) {
  const std::size_t shape_colon = text.rfind(':');
  if (shape_colon == std::string_view::npos || shape_colon == 0) return std::nullopt;
  const std::size_t type_colon = text.rfind(':', shape_colon - 1);
  if (type_colon == std::string_view::npos || type_colon == 0) return std::nullopt;
  const std::string_view type = text.substr(type_colon + 1, shape_colon - type_colon - 1);
  RawArray out{std::string(text.substr(0, type_colon)), DType::kU8, {}};
  if (!parse_shape(text.substr(shape_colon + 1), out.shape)) return std::nullopt;
  for (const DType dtype : kDTypes) {
    if (dtype_name(dtype) != type) continue;
    out.dtype = dtype;
    return out;
  }
  return std::nullopt;
}

std::string array_path(std::string_view text) {
  const auto raw = parse_raw_array(text);
  return raw ? raw->path : std::string(text);
}

Expected<NpyArray> read_array(std::string_view text) {
  const auto raw = parse_raw_array(text);
  if (!raw) {
    if (is_raw_name(text)) {
      return Error{
          fmt::format("{}: a raw file does not say its type and shape; write {}:float32:ROWSxCOLUMNS", text, text)};
    }
    std::error_code ignored;
    const auto type = unknown_type(text);
    if (type && !std::filesystem::exists(std::filesystem::path(text), ignored)) {
      std::vector<std::string_view> names;
      for (const DType dtype : kDTypes) names.push_back(dtype_name(dtype));
      return Error{fmt::format("{}: '{}' is no type of elements; those are {}", text, *type, fmt::join(names, ", "))};
    }
    return read_npy(std::filesystem::path(text));
  }
  auto file = InputFile::open(raw->path);
  if (!file) return file.error();
  std::uint64_t bytes = dtype_size(raw->dtype);
  for (const std::uint64_t extent : raw->shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return Error{fmt::format("{}: the shape is too large", text)};
  }
  if (file->size() != bytes) {
    return Error{fmt::format("{}: {} bytes, but {} of shape {} takes {}", raw->path, file->size(),
                             dtype_name(raw->dtype), fmt::join(raw->shape, "x"), bytes)};
  }
  return NpyArray{raw->dtype, raw->shape, std::move(*file), 0};
}

DType array_dtype(const Format& format) noexcept {
  const bool is_signed = format.kind == Kind::signed_integer;
  switch (format.type) {
    case DataType::fp64:
      return DType::kF64;
    case DataType::fp32:
    case DataType::tf32:
    case DataType::hf32:
      return DType::kF32;
    case DataType::fp16:
      return DType::kF16;
    default:
      break;
  }
  switch (format.carrier_bits) {
    case 64:
      return is_signed ? DType::kI64 : DType::kU64;
    case 32:
      return is_signed ? DType::kI32 : DType::kU32;
    case 16:
      return is_signed ? DType::kI16 : DType::kU16;
    default:
      return is_signed ? DType::kI8 : DType::kU8;
  }
}

Expected<void> begin_array(OutputFile& file, DType dtype, std::span<const std::uint64_t> shape) {
  return is_raw_name(file.name()) ? Expected<void>() : begin_npy(file, dtype, shape);
}

Expected<void> write_array(OutputFile& file, DType dtype, std::span<const std::uint64_t> shape,
                           std::span<const std::byte> bytes) {
  return is_raw_name(file.name()) ? file.append(bytes) : write_npy(file, dtype, shape, bytes);
}

}  // namespace bitcube
