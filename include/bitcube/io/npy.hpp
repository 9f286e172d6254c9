// NumPy's .npy files: one array, read and written without NumPy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/io/file.hpp"

namespace bitcube {

/// The element types of .npy files that bitcube reads and writes, all little-endian.
enum class DType : std::uint8_t { kBool, kI8, kI16, kI32, kI64, kU8, kU16, kU32, kU64, kF16, kF32, kF64, kBF16 };

/// NumPy's name of the type, such as "float32".
std::string_view dtype_name(DType dtype) noexcept;
/// Bytes per element.
std::size_t dtype_size(DType dtype) noexcept;

/// An array as its file holds it, in C order.
struct NpyArray {
  DType dtype = DType::kU8;
  std::vector<std::uint64_t> shape;  // empty for a scalar
  InputFile file;
  std::size_t offset = 0;  // of the first element in `file`

  std::size_t element_size() const noexcept { return dtype_size(dtype); }
  /// Bytes of all elements: product(shape) * element_size().
  std::uint64_t size() const noexcept { return file.size() - offset; }
  /// Copies bytes of the elements from the file, see InputFile::read(). Precondition: they are inside size().
  Expected<void> read(std::uint64_t begin, std::span<std::byte> to) const { return file.read(offset + begin, to); }
  /// The bytes of all elements, of a file that did not change meanwhile.
  Expected<Buffer<std::byte>> load() const { return file.load(offset, size()); }
};

/// Reads versions 1, 2 and 3 of the format. bfloat16 is what ml_dtypes stores, '<V2'. Everything else that NumPy can
/// save (big-endian, Fortran order, objects, strings, records, ...) is refused with a message that says how to save it
/// instead, and so is a file that is not exactly as long as its header says.
Expected<NpyArray> read_npy(const std::filesystem::path& path);
/// The same for a file that is open already; `name` is for messages.
Expected<NpyArray> parse_npy(InputFile file, std::string_view name);

/// What comes before the elements, byte for byte as numpy.save writes it: version 1.0, or 2.0 for what is too long.
std::string npy_header(DType dtype, std::span<const std::uint64_t> shape);

/// Appends what comes before the elements, whose bytes are then to be appended: for an array that is not in memory.
Expected<void> begin_npy(OutputFile& file, DType dtype, std::span<const std::uint64_t> shape);

/// Appends a whole .npy file. `bytes` holds the elements in C order, little-endian, and must match the shape.
Expected<void> write_npy(OutputFile& file, DType dtype, std::span<const std::uint64_t> shape,
                         std::span<const std::byte> bytes);
/// The same, to a file of its own that is committed.
Expected<void> write_npy(const std::filesystem::path& path, DType dtype, std::span<const std::uint64_t> shape,
                         std::span<const std::byte> bytes);

}  // namespace bitcube
