#include "operand_file.hpp"

#include <algorithm>
#include <cstring>

#include "bitcube/io/packed.hpp"
#include "bitcube/quantize/lines.hpp"

namespace bitcube::cli {

namespace {

struct NativeType {
  DType dtype;
  DataType type;
};
/// What the elements of a .npy operand are where no --a-type or --b-type says otherwise.
constexpr std::array<NativeType, 7> native_types{{{DType::kF32, DataType::fp32},
                                                  {DType::kF16, DataType::fp16},
                                                  {DType::kBF16, DataType::bf16},
                                                  {DType::kI8, DataType::s8},
                                                  {DType::kI16, DataType::s16},
                                                  {DType::kU8, DataType::u8},
                                                  {DType::kU16, DataType::u16}}};

std::string type_option(Side side) {
  return side == Side::a ? "--a-type" : "--b-type";
}
std::string scales_option(Side side) {
  return side == Side::a ? "--a-scales" : "--b-scales";
}

bool is_signed(DType dtype) noexcept {
  return dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI32 || dtype == DType::kI64;
}

Expected<const Format*> element_type(Side side, const OperandArguments& arguments, DType dtype) {
  if (!arguments.type.empty()) {
    auto format = look_up_format(type_option(side), arguments.type);
    if (!format || (*format)->carrier_bits == 8 * dtype_size(dtype)) return format;
    return Error{fmt::format("{}: {} elements have {} bits, but a lane of {} has {} in memory", arguments.path,
                             dtype_name(dtype), 8 * dtype_size(dtype), (*format)->name, (*format)->carrier_bits)};
  }
  for (const NativeType& native : native_types) {
    if (native.dtype == dtype) return &format_of(native.type);
  }
  return Error{
      fmt::format("{}: {} is no operand type; accepted are float32, float16, bfloat16, int8, int16, uint8 and "
                  "uint16, or any codes with {}",
                  arguments.path, dtype_name(dtype), type_option(side))};
}

/// Lanes of 4 bits in bytes: what is above the lane must be zeros, or in signed arrays copies of the sign.
Expected<void> check_lanes(const Format& f, DType dtype, std::span<const std::byte> bytes, std::string_view path) {
  if (!f.is_packed()) return {};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto word = std::to_integer<uint64>(bytes[i]);
    const bool fits = is_signed(dtype) ? (static_cast<uint64>(sign_extend(word, f.lane_bits)) & 0xFF) == word
                                       : word <= low_mask(f.lane_bits);
    if (!fits) return Error{fmt::format("{}: element {} is 0x{:02X}, beyond a lane of {}", path, i, word, f.name)};
  }
  return {};
}

Expected<void> check_matrix(std::span<const uint64> shape, std::string_view path) {
  if (shape.size() == 2) return {};
  return Error{fmt::format("{}: an operand is a matrix of 2 dimensions, but this is {}", path, shape_text(shape))};
}

/// Whether a file has this text at a place.
Expected<bool> has_text(const InputFile& file, std::uint64_t offset, std::string_view text) {
  if (file.size() < offset + text.size()) return false;
  std::string there(text.size(), '\0');
  if (auto read = file.read(offset, std::as_writable_bytes(std::span(there))); !read) return read.error();
  return there == text;
}

}  // namespace

Expected<OperandFile> OperandFile::load(Side side, const OperandArguments& arguments) {
  OperandFile out;
  out.path_ = arguments.path;
  if (parse_raw_array(arguments.path) || arguments.path.ends_with(".bin")) {
    auto array = read_array(arguments.path);
    if (!array) return array.error();
    out.array_ = std::move(*array);
    if (auto loaded = out.load_array(side, arguments); !loaded) return loaded.error();
    return out;
  }
  auto file = InputFile::open(arguments.path);
  if (!file) return file.error();
  // A .safetensors file starts with the length of its header, and the header with a brace.
  const auto numpy = has_text(*file, 0, "\x93NUMPY");
  if (!numpy) return numpy.error();
  const auto brace = has_text(*file, 8, "{");
  if (!brace) return brace.error();
  if (*numpy || !*brace) {
    auto array = parse_npy(std::move(*file), arguments.path);
    if (!array) return array.error();
    out.array_ = std::move(*array);
    if (auto loaded = out.load_array(side, arguments); !loaded) return loaded.error();
    return out;
  }
  for (const auto& [option, value] :
       {std::pair{type_option(side), &arguments.type}, std::pair{scales_option(side), &arguments.scales_path}}) {
    if (!value->empty())
      return Error{fmt::format("{}: {} is a quantised tensor, which says that itself", option, arguments.path)};
  }
  const auto tensors = parse_safetensors(std::move(*file), arguments.path);
  if (!tensors) return tensors.error();
  auto tensor = load_packed(*tensors, arguments.path, arguments.name);
  if (!tensor) return tensor.error();
  out.quantized_ = true;
  out.tensor_ = std::move(*tensor);
  out.shape_ = out.tensor_.shape;
  const auto operand = quantized_operand(side, out.tensor_);
  if (!operand) return Error{fmt::format("{}: {}", arguments.path, operand.error().message)};
  out.operand_ = *operand;
  const QuantizedTensor& t = out.tensor_;
  out.origin_ = fmt::format("{}, {} {}", t.format->name, t.profile != nullptr ? "profile" : "scale rule",
                            t.profile != nullptr ? t.profile->name : t.scale_rule->name);
  return out;
}

Expected<void> OperandFile::load_array(Side side, const OperandArguments& arguments) {
  if (!arguments.name.empty()) {
    return Error{fmt::format("{}: a .npy file has no tensor '{}'", arguments.path, arguments.name)};
  }
  if (auto ok = check_matrix(array_.shape, path_); !ok) return ok;
  const auto format = element_type(side, arguments, array_.dtype);
  if (!format) return format.error();
  auto lanes = array_.load();
  if (!lanes) return lanes.error();
  lanes_ = std::move(*lanes);
  if (auto ok = check_lanes(**format, array_.dtype, lanes_, path_); !ok) return ok;
  shape_ = array_.shape;
  operand_ =
      matrix_operand(side, **format, lanes_, static_cast<std::size_t>(shape_[0]), static_cast<std::size_t>(shape_[1]));
  origin_ = dtype_name(array_.dtype);
  if (array_.dtype == DType::kU16 && arguments.type.empty()) {
    remark_ = fmt::format("{}: uint16 elements are read as U16 integers; for bits of BF16 give {} bf16", path_,
                          type_option(side));
  }
  if (arguments.scales_path.empty()) return {};

  auto scales = read_array(arguments.scales_path);
  if (!scales) return scales.error();
  const bool hif4_words = (*format)->type == DataType::hif4x2;
  const DType wanted = hif4_words ? DType::kU32 : DType::kU8;
  if (scales->dtype != wanted) {
    return Error{fmt::format("{}: the scales of {} are {}, one per {} lanes of K, but these are {}",
                             arguments.scales_path, (*format)->name, dtype_name(wanted), scale_group(**format),
                             dtype_name(scales->dtype))};
  }
  const std::size_t group = scale_group(**format);
  const uint64 groups = (operand_.k + group - 1) / group;
  std::vector<uint64> shape{operand_.lines, groups};
  if (side == Side::b) std::swap(shape[0], shape[1]);
  if (scales->shape != shape) {
    return Error{fmt::format("{}: {}, but the scales of {} must be {}: one per {} lanes of K", arguments.scales_path,
                             shape_text(scales->shape), name_of(side), shape_text(shape), group)};
  }
  auto words = scales->load();
  if (!words) return words.error();
  scales_ = std::move(*words);
  attach_scales(side, operand_, scales_);
  origin_ += fmt::format(", scales {}", arguments.scales_path);
  return {};
}

void OperandArguments::add_to(CLI::App& command, Side side) {
  const std::string group = "Operands";
  const char letter = side == Side::a ? 'a' : 'b';
  command.add_option(fmt::format("--{}-type", letter), type, "Elements are codes of this format, one lane each")
      ->type_name("TYPE")
      ->group(group);
  command
      .add_option(fmt::format("--{}-scales", letter), scales_path,
                  side == Side::a ? "Scale per group of K: M x groups, uint8 (E8M0), uint32 (HiF4)"
                                  : "Scale per group of K: groups x N, uint8 (E8M0), uint32 (HiF4)")
      ->type_name("s.npy")
      ->group(group);
  command.add_option(fmt::format("--{}-name", letter), name, "The tensor in a .safetensors file that has several")
      ->type_name("TENSOR")
      ->group(group);
}

std::vector<std::string> OperandFile::describe() const {
  return {path_, shape_text(shape_), std::string(operand_.format->name), fmt::format("({})", origin_)};
}

Json OperandFile::json() const {
  Json json{{"file", path_}, {"shape", shape_}, {"type", operand_.format->name}};
  if (!quantized_) {
    json["dtype"] = dtype_name(array_.dtype);
    return json;
  }
  json["format"] = tensor_.format->name;
  if (tensor_.profile != nullptr) json["profile"] = tensor_.profile->name;
  if (tensor_.scale_rule != nullptr) json["scale_rule"] = tensor_.scale_rule->name;
  return json;
}

Expected<std::vector<std::uint32_t>> load_accumulators(std::string_view option, const std::string& path,
                                                       const Format& accumulator,
                                                       std::span<const std::vector<uint64>> shapes) {
  const auto array = read_array(path);
  if (!array) return array.error();
  const DType wanted = !accumulator.is_integer()                  ? DType::kF32
                       : accumulator.kind == Kind::signed_integer ? DType::kI32
                                                                  : DType::kU32;
  if (array->dtype != wanted) {
    return Error{fmt::format("{}: {}: {}, but the accumulator is {}, so it must be {}", option, path,
                             dtype_name(array->dtype), accumulator.name, dtype_name(wanted))};
  }
  if (std::find(shapes.begin(), shapes.end(), array->shape) == shapes.end()) {
    std::string accepted;
    for (const auto& shape : shapes) accepted += fmt::format("{}{}", accepted.empty() ? "" : " or ", shape_text(shape));
    return Error{fmt::format("{}: {}: {}, but it must be {}", option, path, shape_text(array->shape), accepted)};
  }
  std::vector<std::uint32_t> words(array->size() / sizeof(std::uint32_t));
  if (auto read = array->read(0, std::as_writable_bytes(std::span(words))); !read) return read.error();
  if (auto same = array->file.check_unchanged(); !same) return same.error();
  return words;
}

namespace {

/// The accumulator type whose words an array holds, or nullptr.
const Format* accumulator_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return &fp32;
    case DType::kI32:
      return &format_of(DataType::s32);
    case DType::kU32:
      return &format_of(DataType::u32);
    default:
      return nullptr;
  }
}

}  // namespace

Expected<Accumulators> load_accumulator_matrix(const std::string& path) {
  const auto array = read_array(path);
  if (!array) return array.error();
  const Format* format = accumulator_of(array->dtype);
  if (format == nullptr) {
    return Error{fmt::format("{}: {} elements; accumulators are float32 (FP32), int32 (S32) or uint32 (U32)", path,
                             dtype_name(array->dtype))};
  }
  const auto& shape = array->shape;
  if (shape.empty() || shape.size() > 2) {
    return Error{fmt::format("{}: shape {}; accumulators are M x N, or N for one row", path, shape_text(shape))};
  }
  Accumulators out{format, shape.size() == 2 ? shape[0] : 1, shape.back(), {}};
  if (out.rows == 0 || out.cols == 0)
    return Error{fmt::format("{}: shape {} has no elements", path, shape_text(shape))};
  // The accumulators and D, which has at most 4 bytes per element.
  if (auto fits = check_memory(fmt::format("postprocess of {} x {}", out.rows, out.cols), 2 * array->size()); !fits) {
    return fits.error();
  }
  out.words.resize(array->size() / sizeof(std::uint32_t));
  if (auto read = array->read(0, std::as_writable_bytes(std::span(out.words))); !read) return read.error();
  if (auto same = array->file.check_unchanged(); !same) return same.error();
  return out;
}

}  // namespace bitcube::cli
