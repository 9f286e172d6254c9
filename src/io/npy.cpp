#include "bitcube/io/npy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

namespace bitcube {
namespace {

constexpr std::size_t kMaxDims = 32;                          // NumPy's own limit before version 2
constexpr std::uint64_t kMaxHeader = std::uint64_t{1} << 20;  // NumPy reads 10,000 bytes and asks before it reads more
constexpr std::string_view kMagic{"\x93NUMPY", 6};

struct DTypeInfo {
  DType dtype;
  std::string_view descr;  // as NumPy writes it
  std::string_view name;
  std::size_t size;
};

constexpr std::array kDTypes{DTypeInfo{DType::kBool, "|b1", "bool", 1},    DTypeInfo{DType::kI8, "|i1", "int8", 1},
                             DTypeInfo{DType::kI16, "<i2", "int16", 2},    DTypeInfo{DType::kI32, "<i4", "int32", 4},
                             DTypeInfo{DType::kI64, "<i8", "int64", 8},    DTypeInfo{DType::kU8, "|u1", "uint8", 1},
                             DTypeInfo{DType::kU16, "<u2", "uint16", 2},   DTypeInfo{DType::kU32, "<u4", "uint32", 4},
                             DTypeInfo{DType::kU64, "<u8", "uint64", 8},   DTypeInfo{DType::kF16, "<f2", "float16", 2},
                             DTypeInfo{DType::kF32, "<f4", "float32", 4},  DTypeInfo{DType::kF64, "<f8", "float64", 8},
                             DTypeInfo{DType::kBF16, "<V2", "bfloat16", 2}};

constexpr bool in_enum_order() {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (static_cast<std::size_t>(kDTypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(in_enum_order());

const DTypeInfo& info(DType dtype) noexcept {
  return kDTypes[static_cast<std::size_t>(dtype)];
}

/// The shape as Python prints it: (), (5,), (2, 3).
std::string shape_text(std::span<const std::uint64_t> shape) {
  return shape.size() == 1 ? fmt::format("({},)", shape[0]) : fmt::format("({})", fmt::join(shape, ", "));
}

/// Bytes of an array, or nothing if that is beyond what a file can hold. Zeros are left out of the product until the
/// end: NumPy refuses (2**62, 2**62, 0) too, because its strides overflow.
std::optional<std::uint64_t> byte_count(std::span<const std::uint64_t> shape, std::size_t element_size) {
  constexpr std::uint64_t kLimit = std::numeric_limits<std::int64_t>::max();
  std::uint64_t count = element_size;
  bool empty = false;
  for (const std::uint64_t dim : shape) {
    empty = empty || dim == 0;
    if (dim != 0 && count > kLimit / dim) return std::nullopt;
    count *= std::max<std::uint64_t>(dim, 1);
  }
  return empty ? 0 : count;
}

/// The type that a descr names, or why it cannot be read.
Expected<DType> parse_descr(std::string_view descr) {
  const auto known = std::find_if(kDTypes.begin(), kDTypes.end(), [&](const DTypeInfo& i) { return i.descr == descr; });
  if (known != kDTypes.end()) return known->dtype;
  // np.load gives bfloat16 back as plain |V2; bfloat16 is its name where ml_dtypes is not loaded.
  if (descr == "|V2" || descr == "bfloat16") return DType::kBF16;

  const bool has_order = !descr.empty() && std::string_view("<>|=").find(descr.front()) != std::string_view::npos;
  const std::string_view type = has_order ? descr.substr(1) : descr;
  if (descr.substr(0, 1) == ">" && type.substr(0, 1) != "V") {
    for (const DTypeInfo& i : kDTypes) {
      if (i.descr.substr(1) != type) continue;
      if (i.size == 1) return i.dtype;  // a single byte has no order
      return Error{
          fmt::format("big-endian {} ('{}') is not supported; save it with a.astype('{}')", i.name, descr, i.descr)};
    }
  }
  std::string_view kind = "this dtype is";
  switch (type.empty() ? '?' : type.front()) {
    case 'O':
      kind = "Python objects are";
      break;
    case 'S':
    case 'a':
    case 'U':
      kind = "strings are";
      break;
    case 'c':
      kind = "complex numbers are";
      break;
    case 'V':
      kind = "records and raw bytes are";
      break;
    case 'm':
    case 'M':
      kind = "dates are";
      break;
    default:
      break;
  }
  std::string supported;
  for (const DTypeInfo& i : kDTypes) supported += fmt::format("{}{}", supported.empty() ? "" : ", ", i.name);
  return Error{fmt::format("descr '{}': {} not supported; convert it with a.astype to one of {}", descr.substr(0, 40),
                           kind, supported)};
}

struct Header {
  std::optional<DType> dtype;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::uint64_t>> shape;
};

/// Reads the one kind of Python literal that a header may be: a dict of three known keys. Everything in it is bounded:
/// no nesting, no escapes, no expressions.
class HeaderParser {
 public:
  /// `offset` is where the text stands in the file.
  HeaderParser(std::string_view text, std::size_t offset) : text_(text), offset_(offset) {}

  /// Any message lacks the name of the file.
  Expected<Header> parse() {
    Header header;
    if (parse_dict(header)) return header;
    return std::move(error_);
  }

 private:
  bool fail(std::string message) {
    error_.message = std::move(message);
    return false;
  }
  bool expected(std::string_view what) {
    return fail(fmt::format("offset {}: the header should have {} here", offset_ + at_, what));
  }

  char peek() {
    while (at_ < text_.size() && std::string_view(" \t\n\r\f").find(text_[at_]) != std::string_view::npos) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(std::string_view token) {
    peek();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  bool parse_dict(Header& header) {
    if (!take("{")) return expected("'{'");
    while (!take("}")) {
      if (!parse_item(header)) return false;
      if (!take(",") && peek() != '}') return expected("',' or '}'");
    }
    peek();
    if (at_ != text_.size()) return expected("nothing but spaces and its final newline");
    if (!header.dtype) return missing("descr");
    if (!header.fortran_order) return missing("fortran_order");
    if (!header.shape) return missing("shape");
    return true;
  }
  bool missing(std::string_view key) { return fail(fmt::format("the header has no key '{}'", key)); }

  bool parse_item(Header& header) {
    std::string_view key;
    if (!parse_string(key)) return false;
    if (!take(":")) return expected("':'");
    if (key == "descr") return once(key, header.dtype) && parse_dtype(header.dtype);
    if (key == "fortran_order") return once(key, header.fortran_order) && parse_bool(header.fortran_order);
    if (key == "shape") return once(key, header.shape) && parse_shape(header.shape.emplace());
    return fail(fmt::format("the header has the unknown key '{}'; its keys are descr, fortran_order and shape",
                            key.substr(0, 40)));
  }
  template <typename T>
  bool once(std::string_view key, const std::optional<T>& value) {
    return !value || fail(fmt::format("the header has the key '{}' twice", key));
  }

  bool parse_string(std::string_view& value) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return expected("a string");
    const std::size_t begin = ++at_;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] < ' ' || text_[at_] > '~' || text_[at_] == '\\') return expected("plain ASCII without escapes");
    }
    if (at_ == text_.size()) return expected("the end of a string");
    value = text_.substr(begin, at_++ - begin);
    return true;
  }

  bool parse_dtype(std::optional<DType>& dtype) {
    if (peek() == '[' || peek() == '(' || peek() == '{') {
      return fail("structured dtypes are not supported; save each field as an array of its own");
    }
    std::string_view descr;
    if (!parse_string(descr)) return false;
    Expected<DType> parsed = parse_descr(descr);
    if (!parsed) return fail(parsed.error().message);
    dtype = *parsed;
    return true;
  }

  bool parse_bool(std::optional<bool>& value) {
    if (take("True")) {
      value = true;
    } else if (take("False")) {
      value = false;
    } else {
      return expected("True or False");
    }
    return true;
  }

  bool parse_shape(std::vector<std::uint64_t>& shape) {
    if (!take("(")) return expected("a tuple, such as (2, 3), as the shape");
    while (!take(")")) {
      if (shape.size() == kMaxDims) return fail(fmt::format("the shape has more than {} dimensions", kMaxDims));
      if (!parse_dim(shape.emplace_back())) return false;
      if (take(",")) continue;
      if (peek() != ')') return expected("',' or ')' in the shape");
      if (shape.size() == 1) return expected("',' ((5) is a number in Python; a shape is (5,))");
    }
    return true;
  }

  bool parse_dim(std::uint64_t& dim) {
    if (peek() == '-') return expected("a dimension that is not negative");
    const char* const begin = text_.data() + at_;
    const char* const end = text_.data() + text_.size();
    const auto [stop, code] = std::from_chars(begin, end, dim);
    if (code == std::errc::result_out_of_range) return expected("a dimension that fits 64 bits");
    if (code != std::errc{} || (*begin == '0' && stop - begin > 1)) return expected("a dimension");
    at_ += static_cast<std::size_t>(stop - begin);
    return true;
  }

  std::string_view text_;
  std::size_t offset_;
  std::size_t at_ = 0;
  Error error_;
};

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// NumPy's preamble: magic, version, the header's length, and the header padded so that the data is aligned.
std::optional<std::string> preamble(std::string_view header, int version) {
  constexpr std::size_t kAlign = 64;
  const std::size_t length_size = version == 1 ? 2 : 4;
  const std::size_t prefix = kMagic.size() + 2 + length_size;
  // NumPy pads by 1 to 64 bytes, never 0, before the newline.
  const std::size_t padding = kAlign - (prefix + header.size() + 1) % kAlign;
  const std::size_t length = header.size() + padding + 1;
  if (length >> (8 * length_size) != 0) return std::nullopt;

  std::string result(kMagic);
  result += static_cast<char>(version);
  result += '\0';
  for (std::size_t i = 0; i < length_size; ++i) result += static_cast<char>(length >> (8 * i) & 0xFF);
  return result.append(header).append(padding, ' ').append(1, '\n');
}

}  // namespace

std::string_view dtype_name(DType dtype) noexcept {
  return info(dtype).name;
}
std::size_t dtype_size(DType dtype) noexcept {
  return info(dtype).size;
}

Expected<NpyArray> read_npy(const std::filesystem::path& path) {
  Expected<InputFile> file = InputFile::open(path);
  if (!file) return file.error();
  return parse_npy(std::move(*file), path.string());
}

Expected<NpyArray> parse_npy(InputFile file, std::string_view name) {
  const auto fail = [&](std::string_view message) { return Error{fmt::format("{}: {}", name, message)}; };
  const std::uint64_t size = file.size();
  if (size == 0) return fail("the file is empty; expected an .npy file");
  constexpr std::size_t kLongestStart = kMagic.size() + 2 + 4;  // magic, version, length of the header
  const auto start_bytes = file.load(0, std::min<std::uint64_t>(size, kLongestStart));
  if (!start_bytes) return start_bytes.error();
  const std::string_view start(reinterpret_cast<const char*>(start_bytes->data()), start_bytes->size());
  if (start.substr(0, 4) == "PK\3\4") return fail("this is an .npz archive; save each array with numpy.save");
  if (start.substr(0, kMagic.size()) != kMagic) return fail("not an .npy file: it does not begin with \\x93NUMPY");
  if (size < kMagic.size() + 2) return fail("the file is truncated in its version number");
  const int major = static_cast<unsigned char>(start[6]);
  const int minor = static_cast<unsigned char>(start[7]);
  if (major < 1 || major > 3 || minor != 0) {
    return fail(fmt::format("version {}.{} of the format is not supported; expected 1.0, 2.0 or 3.0", major, minor));
  }
  const std::size_t length_size = major == 1 ? 2 : 4;
  const std::size_t header_begin = kMagic.size() + 2 + length_size;
  if (size < header_begin) return fail("the file is truncated in the length of its header");
  const std::uint64_t length = little_endian(start.substr(kMagic.size() + 2, length_size));
  if (length > size - header_begin) {
    return fail(fmt::format("the header should be {} bytes long, but only {} bytes follow; the file is truncated",
                            length, size - header_begin));
  }
  if (length > kMaxHeader) {
    return fail(fmt::format("its header would be {} bytes long, and {} is the limit", length, kMaxHeader));
  }

  const auto header_bytes = file.load(header_begin, length);
  if (!header_bytes) return header_bytes.error();
  const std::string_view text(reinterpret_cast<const char*>(header_bytes->data()), length);
  Expected<Header> header = HeaderParser(text, header_begin).parse();
  if (!header) return fail(header.error().message);
  const DTypeInfo& type = info(*header->dtype);
  const std::vector<std::uint64_t>& shape = *header->shape;
  const std::optional<std::uint64_t> bytes = byte_count(shape, type.size);
  if (!bytes) return fail(fmt::format("shape {} of {} is larger than any file", shape_text(shape), type.name));
  // The order of the dimensions makes no difference to an array with one real dimension at most.
  const bool order_matters =
      *bytes != 0 && std::count_if(shape.begin(), shape.end(), [](auto dim) { return dim > 1; }) > 1;
  if (*header->fortran_order && order_matters) {
    return fail("Fortran order is not supported; save it with numpy.ascontiguousarray");
  }
  const std::size_t offset = header_begin + length;
  const std::uint64_t available = size - offset;
  if (available != *bytes) {
    return fail(fmt::format("shape {} of {} takes {} bytes, but {} bytes follow the header; {}", shape_text(shape),
                            type.name, *bytes, available,
                            available < *bytes ? "the file is truncated" : "nothing may follow the array"));
  }
  return NpyArray{type.dtype, std::move(*header->shape), std::move(file), offset};
}

std::string npy_header(DType dtype, std::span<const std::uint64_t> shape) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", info(dtype).descr, shape_text(shape));
  // NumPy leaves room for the first dimension to grow in place to any 64-bit number.
  if (!shape.empty()) header.append(21 - fmt::formatted_size("{}", shape[0]), ' ');
  if (auto version1 = preamble(header, 1)) return *version1;
  return preamble(header, 2).value_or("");  // a shape of 2^32 characters does not exist
}

Expected<void> begin_npy(OutputFile& file, DType dtype, std::span<const std::uint64_t> shape) {
  if (shape.size() > kMaxDims) {
    return Error{fmt::format("{}: the shape has {} dimensions; .npy files have at most {}", file.name(), shape.size(),
                             kMaxDims)};
  }
  if (!byte_count(shape, dtype_size(dtype))) {
    return Error{fmt::format("{}: shape {} of {} takes more than 2^63 bytes", file.name(), shape_text(shape),
                             dtype_name(dtype))};
  }
  return file.append(npy_header(dtype, shape));
}

Expected<void> write_npy(OutputFile& file, DType dtype, std::span<const std::uint64_t> shape,
                         std::span<const std::byte> bytes) {
  const std::optional<std::uint64_t> size = byte_count(shape, dtype_size(dtype));
  if (shape.size() <= kMaxDims && size != bytes.size()) {
    return Error{fmt::format("{}: shape {} of {} takes {} bytes, but {} are given", file.name(), shape_text(shape),
                             dtype_name(dtype), size ? fmt::to_string(*size) : "more than 2^63", bytes.size())};
  }
  if (auto begun = begin_npy(file, dtype, shape); !begun) return begun;
  return file.append(bytes);
}

Expected<void> write_npy(const std::filesystem::path& path, DType dtype, std::span<const std::uint64_t> shape,
                         std::span<const std::byte> bytes) {
  auto file = OutputFile::create(path);
  if (!file) return file.error();
  if (auto written = write_npy(*file, dtype, shape, bytes); !written) return written;
  return file->commit();
}

}  // namespace bitcube
