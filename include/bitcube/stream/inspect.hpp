// What files of tensors hold, and how far packed tensors are from what they were made of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/io/safetensors.hpp"
#include "bitcube/quantize/tensor.hpp"
#include "bitcube/stream/window.hpp"

namespace bitcube::stream {

/// A tensor of a file; codes and scales of a packed one count as one tensor.
struct TensorInfo {
  std::string file;  // the shard, as the index names it; empty without an index
  std::string name;
  std::string dtype;          // as the file says it; empty for a packed tensor
  std::vector<uint64> shape;  // logical
  std::uint64_t bytes = 0;
  std::optional<QuantizedTensor> packed{};  // its description
};

/// A .npy array, a .safetensors file, or a checkpoint of many by its index (.json). Headers are read, and checked.
class TensorFiles {
 public:
  static Expected<TensorFiles> open(const std::filesystem::path& path);

  TensorFiles(TensorFiles&&) noexcept;
  TensorFiles& operator=(TensorFiles&&) noexcept;
  ~TensorFiles();

  /// In the order of the files and their headers; a packed tensor stands where its codes are.
  const std::vector<TensorInfo>& tensors() const noexcept;
  /// The files that hold them.
  std::size_t file_count() const noexcept;
  /// Of a single .safetensors file.
  const SafetensorsMetadata& metadata() const noexcept;
  /// What is odd, but no error.
  const std::vector<std::string>& warnings() const noexcept;

  /// Copies bytes of a tensor from an offset; may be called from several threads.
  using Read = std::function<Expected<void>(std::uint64_t offset, std::span<std::byte> to)>;
  /// Reads a tensor that is not packed, as long as this object lives. Errors: a file that was changed meanwhile.
  /// Precondition: there is a tensor of this number.
  Expected<Read> reader(std::size_t tensor) const;
  /// For whoever has read a tensor: see InputFile::check_unchanged().
  Expected<void> check_unchanged(std::size_t tensor) const;

 private:
  friend struct Comparer;
  struct Impl;
  explicit TensorFiles(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

struct Comparison {
  enum class Kind : std::uint8_t {
    kMeasured,   // packed, and its error is known
    kIdentical,  // the same bits
    kDifferent,  // `reason` says how
    kMissing,    // the original has no tensor of this name
  };
  Kind kind = Kind::kMissing;
  std::string reason{};
  ErrorReport error{};
};

/// Compares each tensor with that of the same name in the original, or where both have only one, with that: packed ones
/// are measured against the values that they were made of, rounded to the source type of their description (RNE); all
/// others must be the same bits. In the order of file.tensors().
Expected<std::vector<Comparison>> compare(const TensorFiles& file, const TensorFiles& original,
                                          const Execution& execution = {}, std::size_t window = kWindow);

}  // namespace bitcube::stream
