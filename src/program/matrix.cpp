#include "matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bitcube/io/npy.hpp"
#include "bitcube/io/packed.hpp"
#include "bitcube/quantize/lines.hpp"

namespace bitcube::program {
namespace {

namespace fs = std::filesystem;

/// No memory image and no Tile needs more; a file that has more is named by mistake.
constexpr uint64 element_limit = uint64{1} << 27;

/// A file as a matrix of lanes that are read one by one: only what is needed of it is copied.
struct Source {
  uint64 rows = 0;
  uint64 columns = 0;
  unsigned lane_bits = 0;
  const Format* format = nullptr;  // what the file says it is, or nullptr: codes of any type
  std::function<uint64(uint64 row, uint64 column)> lane;
};

struct NativeType {
  DType dtype;
  DataType type;
};
constexpr std::array<NativeType, 12> native_types{{{DType::kF64, DataType::fp64},
                                                   {DType::kF32, DataType::fp32},
                                                   {DType::kF16, DataType::fp16},
                                                   {DType::kBF16, DataType::bf16},
                                                   {DType::kI8, DataType::s8},
                                                   {DType::kI16, DataType::s16},
                                                   {DType::kI32, DataType::s32},
                                                   {DType::kI64, DataType::s64},
                                                   {DType::kU8, DataType::u8},
                                                   {DType::kU16, DataType::u16},
                                                   {DType::kU32, DataType::u32},
                                                   {DType::kU64, DataType::u64}}};

bool is_unsigned(DType dtype) noexcept {
  return dtype == DType::kU8 || dtype == DType::kU16 || dtype == DType::kU32 || dtype == DType::kU64;
}

/// Unsigned elements of the carrier's size are codes of any type; others are values of their own type.
bool holds(DType dtype, const Format& format) noexcept {
  if (8 * dtype_size(dtype) != format.carrier_bits) return false;
  if (is_unsigned(dtype) || (dtype == DType::kI8 && format.type == DataType::s4x2)) return true;
  return std::any_of(native_types.begin(), native_types.end(),
                     [&](const NativeType& n) { return n.dtype == dtype && n.type == format.type; });
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  return shape.empty() ? "a scalar" : fmt::format("{}", fmt::join(shape, " x "));
}

Source npy_source(Reader& reader, const Token& at, const fs::path& path, const Format* wanted) {
  auto array = read_npy(path);
  if (!array) {
    reader.fail(at, array.error().message);
    return {};
  }
  if (wanted != nullptr && !holds(array->dtype, *wanted)) {
    reader.fail(at, fmt::format("{}: {} elements are no {}; expected its own type, or codes as unsigned integers of "
                                "{} bits",
                                path.string(), dtype_name(array->dtype), wanted->name, wanted->carrier_bits));
    return {};
  }
  if (array->shape.size() > 2) {
    reader.fail(at, fmt::format("{}: expected a matrix, found {}", path.string(), shape_text(array->shape)));
    return {};
  }
  Source source;
  source.columns = array->shape.empty() ? 1 : array->shape.back();
  source.rows = array->shape.size() == 2 ? array->shape.front() : 1;
  source.lane_bits = wanted != nullptr ? wanted->lane_bits : static_cast<unsigned>(8 * dtype_size(array->dtype));
  auto loaded = array->load();
  if (!loaded) {
    reader.fail(at, loaded.error().message);
    return {};
  }
  const auto shared = std::make_shared<const Buffer<std::byte>>(std::move(*loaded));
  const std::size_t size = array->element_size();
  const uint64 mask = low_mask(static_cast<int>(source.lane_bits));
  source.lane = [shared, size, mask, columns = source.columns](uint64 r, uint64 c) {
    return load_word(shared->data() + (r * columns + c) * size, size) & mask;
  };
  // What stands above a 4-bit lane must be nothing, or in signed arrays copies of the sign.
  if (wanted != nullptr && wanted->is_packed()) {
    for (std::size_t i = 0; i < shared->size(); ++i) {
      const auto word = std::to_integer<uint64>((*shared)[i]);
      const bool sign = array->dtype == DType::kI8 && (word & 0xF8) == 0xF8;
      if (word <= mask || sign) continue;
      reader.fail(at,
                  fmt::format("{}: element {} is 0x{:02X}, beyond a lane of {}", path.string(), i, word, wanted->name));
      return {};
    }
  }
  return source;
}

Source packed_source(Reader& reader, const Token& at, const fs::path& path, bool codes, std::string_view name,
                     const Format* wanted) {
  auto loaded = load_packed(path, name);
  if (!loaded) {
    reader.fail(at, loaded.error().message);
    return {};
  }
  const auto tensor = std::make_shared<QuantizedTensor>(std::move(*loaded));
  if (tensor->shape.size() != 2) {
    reader.fail(at, fmt::format("{}: expected a matrix, found {}", path.string(), shape_text(tensor->shape)));
    return {};
  }
  const BlockFormat& format = *tensor->format;
  Source source;
  source.format = codes ? format.element : format.scale;
  source.lane_bits = source.format->lane_bits;
  if (wanted != nullptr && wanted != source.format) {
    reader.fail(at, fmt::format("{}: the {} of {} are {}, not {}", path.string(), codes ? "codes" : "scales",
                                format.name, source.format->name, wanted->name));
    return {};
  }
  const uint64 k = tensor->shape[tensor->axis];
  if (!codes) {
    // As Local scales are stored: a row per line of K, a column per group.
    source.rows = tensor->shape[1 - tensor->axis];
    source.columns = format.groups(k);
    source.lane = [tensor, groups = source.columns, size = format.scale_bytes()](uint64 r, uint64 c) {
      return load_word(tensor->scales.data() + (r * groups + c) * size, size);
    };
    return source;
  }
  source.rows = tensor->shape[0];
  source.columns = tensor->shape[1];
  const bool by_rows = tensor->axis == 1;
  source.lane = [tensor, by_rows, line_bytes = format.code_bytes(k), packed = format.element->is_packed()](uint64 r,
                                                                                                           uint64 c) {
    const uint64 line = by_rows ? r : c;
    const uint64 lane = by_rows ? c : r;
    const std::byte* bytes = tensor->codes.data() + line * line_bytes;
    if (!packed) return std::to_integer<uint64>(bytes[lane]);
    return std::to_integer<uint64>(bytes[lane / 2]) >> (4 * (lane % 2)) & 0xF;
  };
  return source;
}

/// What stands behind a file name, and the part of the file that is wanted.
Matrix read_file(Reader& reader, const Wanted& wanted, const fs::path& directory, const Format** actual) {
  const Token at = reader.peek();
  const std::string_view name = reader.string("a file name in quotes");
  if (!reader.ok()) return {};
  const fs::path path = directory / fs::path(std::string(name));
  const bool codes = reader.accept("codes");
  const bool scales = !codes && reader.accept("scales");
  std::string_view tensor;
  if ((codes || scales) && reader.accept("tensor")) tensor = reader.string("the name of the tensor in quotes");
  if (!codes && !scales && path.extension() == ".safetensors") {
    reader.expected("'codes' or 'scales': which part of the quantised tensor");
  }
  if (!reader.ok()) return {};
  Source source = codes || scales ? packed_source(reader, at, path, codes, tensor, wanted.format)
                                  : npy_source(reader, at, path, wanted.format);
  const bool transposed = reader.accept("transposed");
  uint64 row = 0;
  uint64 column = 0;
  const bool part = reader.accept("at");
  if (part) {
    row = reader.number("the first row");
    column = reader.number("the first column");
  }
  if (!reader.ok()) return {};
  if (transposed) std::swap(source.rows, source.columns);
  const uint64 rows = wanted.rows != 0 ? wanted.rows : source.rows - std::min(row, source.rows);
  const uint64 columns = wanted.columns != 0 ? wanted.columns : source.columns - std::min(column, source.columns);
  const bool inside =
      row <= source.rows && rows <= source.rows - row && column <= source.columns && columns <= source.columns - column;
  const bool exact = part || (rows == source.rows && columns == source.columns);
  if (!inside || !exact) {
    reader.fail(at, part ? fmt::format("{}: {} x {} elements at {}, {} are not inside {} x {}", path.string(), rows,
                                       columns, row, column, source.rows, source.columns)
                         : fmt::format("{}: expected {} x {} elements, found {} x {} ('at ROW COLUMN' takes a part)",
                                       path.string(), rows, columns, source.rows, source.columns));
    return {};
  }
  uint64 count = 0;
  if (!checked_multiply(rows, columns, count) || count > element_limit || rows > 0xFFFFFFFF || columns > 0xFFFFFFFF) {
    reader.fail(at, fmt::format("{}: {} x {} elements are more than a program takes", path.string(), rows, columns));
    return {};
  }
  Matrix matrix{static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(columns), source.lane_bits, {}};
  matrix.words.reserve(count);
  for (uint64 r = row; r < row + rows; ++r) {
    for (uint64 c = column; c < column + columns; ++c) {
      matrix.words.push_back(transposed ? source.lane(c, r) : source.lane(r, c));
    }
  }
  if (actual != nullptr) *actual = source.format;
  return matrix;
}

/// VALUE[*COUNT] … [...]; count 0: as many as there are.
std::vector<uint64> read_values(Reader& reader, const Format& format, std::size_t count) {
  std::vector<uint64> words;
  const auto too_many = [&](const Token& at, uint64 more) {
    if (count != 0) {
      reader.fail(at, fmt::format("expected {} values, found more", count));
    } else {
      reader.fail(at, fmt::format("{} values are more than a program takes", words.size() + more));
    }
  };
  while (!reader.at_end()) {
    const Token at = reader.peek();
    if (at.kind == Token::Kind::word && at.text == "...") {
      if (words.empty()) reader.fail(at, "expected a value before '...', which repeats the values");
      if (count == 0) reader.fail(at, "'...' needs a shape that says how often to repeat");
      if (!reader.ok()) return {};
      reader.take();
      const std::size_t period = words.size();
      while (words.size() < count) words.push_back(words[words.size() - period]);
      reader.expect_end();
      return words;
    }
    std::string_view text = reader.word("a value");
    if (!reader.ok()) return {};
    uint64 repeat = 1;
    if (const std::size_t star = text.find('*'); star != std::string_view::npos) {
      const auto times = parse_unsigned(text.substr(star + 1));
      if (!times || *times == 0) {
        reader.fail(at, fmt::format("expected a count of at least 1 after '*', found '{}'", text.substr(star + 1)));
        return {};
      }
      repeat = *times;
      text = text.substr(0, star);
    }
    uint64 lane = 0;
    if (std::string wrong = parse_lane(format, text, lane); !wrong.empty()) {
      reader.fail(at, std::move(wrong));
      return {};
    }
    if (repeat > (count != 0 ? count : element_limit / 64) - words.size()) {
      too_many(at, repeat);
      return {};
    }
    words.insert(words.end(), repeat, lane);
    reader.accept(",");
  }
  if (reader.ok() && count != 0 && words.size() != count) {
    reader.expected(
        fmt::format("{} values, of which {} are missing (a last '...' repeats them)", count, count - words.size()));
  }
  if (reader.ok() && words.empty()) reader.expected("a value");
  return words;
}

}  // namespace

Matrix read_matrix(Reader& reader, const Wanted& wanted, const fs::path& directory) {
  if (!reader.ok()) return {};
  if (reader.peek().kind == Token::Kind::string) {
    Matrix matrix = read_file(reader, wanted, directory, nullptr);
    reader.expect_end();
    return matrix;
  }
  if (wanted.format == nullptr || wanted.rows == 0) {
    reader.expected("a file name in quotes (inline values need LAYOUT TYPE ROWS COLUMNS before '==')");
    return {};
  }
  const std::size_t count = std::size_t{wanted.rows} * wanted.columns;
  Matrix matrix{wanted.rows, wanted.columns, wanted.format->lane_bits, {}};
  if (reader.accept("all")) {
    const Token at = reader.peek();
    const std::string_view text = reader.word("a value");
    uint64 lane = 0;
    if (reader.ok()) {
      if (std::string wrong = parse_lane(*wanted.format, text, lane); !wrong.empty()) reader.fail(at, std::move(wrong));
    }
    reader.expect_end();
    if (reader.ok()) matrix.words.assign(count, lane);
    return matrix;
  }
  if (reader.at_end() && reader.ok()) {
    reader.expected("the elements: a file name in quotes, 'all VALUE', or values");
    return {};
  }
  matrix.words = read_values(reader, *wanted.format, count);
  return matrix;
}

std::vector<std::uint8_t> read_image(Reader& reader, const fs::path& directory) {
  Matrix matrix;
  if (reader.peek().kind == Token::Kind::string) {
    matrix = read_file(reader, {}, directory, nullptr);
    reader.expect_end();
  } else {
    const Format* format = reader.type();
    if (!reader.ok()) return {};
    matrix.words = read_values(reader, *format, 0);
    matrix.rows = 1;
    matrix.columns = static_cast<std::uint32_t>(matrix.words.size());
    matrix.lane_bits = format->lane_bits;
  }
  if (!reader.ok()) return {};
  std::vector<std::uint8_t> bytes;
  for (std::size_t r = 0; r < matrix.rows; ++r) {
    for (std::size_t c = 0; c < matrix.columns; ++c) {
      const uint64 word = matrix.words[r * matrix.columns + c];
      if (matrix.lane_bits == 4) {
        if (c % 2 == 0) {
          bytes.push_back(static_cast<std::uint8_t>(word));
        } else {
          bytes.back() = static_cast<std::uint8_t>(bytes.back() | word << 4);
        }
        continue;
      }
      for (unsigned b = 0; b < matrix.lane_bits; b += 8) bytes.push_back(static_cast<std::uint8_t>(word >> b));
    }
  }
  return bytes;
}

}  // namespace bitcube::program
