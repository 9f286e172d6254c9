// .safetensors files: named tensors of many types in one file, with a JSON header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/io/file.hpp"

namespace bitcube {

/// Bits of one element of a type of the safetensors specification ("BF16" has 16, "F4" has 4), or nothing for a type
/// that it does not know.
std::optional<unsigned> safetensors_bits(std::string_view dtype) noexcept;

/// One entry of the header. The tensor's bytes are [begin, end) of the data that follows the header, in C order.
struct SafetensorsTensor {
  std::string name;
  std::string dtype;  // may be unknown; then nothing says whether size() fits the shape
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::uint64_t size() const noexcept { return end - begin; }
};

/// Free text about the file, in its order. The keys are unique.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

/// A file that was read, and found to be without fault: names are unique, each size of a known type fits its shape,
/// which has at most 64 dimensions, and the tensors cover the data without overlap or hole. A header of more than the
/// 100,000,000 bytes that the specification allows is refused before it is read.
class Safetensors {
 public:
  const SafetensorsMetadata& metadata() const noexcept { return metadata_; }
  /// In the order of the header, which need not be that of the data.
  const std::vector<SafetensorsTensor>& tensors() const noexcept { return tensors_; }
  /// The length and the header, as they stand in the file.
  Expected<Buffer<std::byte>> header() const { return file_.load(0, data_offset_); }
  const InputFile& file() const noexcept { return file_; }
  /// Null if there is no tensor of this name.
  const SafetensorsTensor* find(std::string_view name) const;
  /// Copies bytes of one of tensors(), see InputFile::read(). Precondition: they are inside the tensor.
  Expected<void> read(const SafetensorsTensor& tensor, std::uint64_t offset, std::span<std::byte> to) const {
    return file_.read(data_offset_ + tensor.begin + offset, to);
  }
  /// All bytes of one of tensors(), see InputFile::load().
  Expected<Buffer<std::byte>> load(const SafetensorsTensor& tensor) const {
    return file_.load(data_offset_ + tensor.begin, tensor.size());
  }

 private:
  friend Expected<Safetensors> parse_safetensors(InputFile file, std::string_view name);

  SafetensorsMetadata metadata_;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;  // of each name in tensors_
  InputFile file_;
  std::size_t data_offset_ = 0;
};

Expected<Safetensors> read_safetensors(const std::filesystem::path& path);
/// The same for a file that is open already; `name` is for messages.
Expected<Safetensors> parse_safetensors(InputFile file, std::string_view name);

/// What to write for tensors that come one after the other: append `header`, then the bytes of each tensor in `order`.
struct SafetensorsPlan {
  std::string header;              // with the length before it and the padding behind it
  std::vector<std::size_t> order;  // indices of the tensors as given
};

/// The header lists the tensors as given. The data begins with the widest elements, otherwise as given, as the
/// reference implementation does: so every tensor is aligned, though no byte may lie between two of them. Of each
/// tensor name, dtype, shape and size() are used; its begin is assigned here. `file_name` is for messages.
Expected<SafetensorsPlan> plan_safetensors(std::string_view file_name, const SafetensorsMetadata& metadata,
                                           std::span<const SafetensorsTensor> tensors);

/// A tensor whose bytes are at hand.
struct SafetensorsSource {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> bytes;
};

/// Appends a whole .safetensors file.
Expected<void> write_safetensors(OutputFile& file, const SafetensorsMetadata& metadata,
                                 std::span<const SafetensorsSource> tensors);
/// The same, to a file of its own that is committed.
Expected<void> write_safetensors(const std::filesystem::path& path, const SafetensorsMetadata& metadata,
                                 std::span<const SafetensorsSource> tensors);

}  // namespace bitcube
