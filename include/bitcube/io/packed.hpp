// Quantised tensors in .safetensors files, with every choice that made them recorded.
//
// A packed tensor NAME is two tensors of the file:
//
//   NAME.codes   F8_E4M3 or F8_E5M2 for these elements, else U8; shape [other dimensions..., code bytes of a line]
//   NAME.scales  U32 for HiF4, F8_E8M0 for MX, F8_E4M3 for NVFP4; shape [other dimensions..., groups of a line]
//
// with the bytes of QuantizedTensor. The metadata key "bitcube" holds a JSON text that describes them:
//
//   {"version": 1, "program": "bitcube 0.1.0",             who wrote it, in files of whole checkpoints
//    "tensors": {NAME: {
//      "format": "hif4", "element": "HiF4X2", "group": 64,   the block format, and what it implies (checked)
//      "shape": [1000, 784], "axis": 1,                      logical; the quantised axis is last in the file
//      "profile": "pto",                                     HiF4
//      "scale_rule": "floor",                                MX
//      "rounding": "RNE",                                    MX and NVFP4, of the elements; RNE if it is missing
//      "tensor_scale": "3F800000",                           NVFP4 with a tensor scale: FP32 word in hexadecimal
//      "source": "FP32",                                     what was quantised
//      "codes": "NAME.codes", "scales": "NAME.scales"}}}
//
// The file may hold other tensors and other metadata.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/io/file.hpp"
#include "bitcube/io/safetensors.hpp"
#include "bitcube/quantize/tensor.hpp"

namespace bitcube {

/// A quantised tensor and its name in the file.
struct PackedTensor {
  std::string name;
  const QuantizedTensor* tensor;
};

/// Appends a whole .safetensors file. Errors: an invalid tensor, two of one name, a name that is empty or not UTF-8.
Expected<void> write_packed(OutputFile& file, std::span<const PackedTensor> tensors);
/// The same, to a file of its own that is committed.
Expected<void> save_packed(const std::filesystem::path& path, std::span<const PackedTensor> tensors);
Expected<void> save_packed(const std::filesystem::path& path, std::string_view name, const QuantizedTensor& tensor);

/// Where the parts of a packed tensor lie in a file that is written piece by piece: append `header`, then write the
/// codes and the scales at their places.
struct PackedPlan {
  std::string header;
  std::uint64_t codes = 0;
  std::uint64_t code_bytes = 0;
  std::uint64_t scales = 0;
  std::uint64_t scale_bytes = 0;

  std::uint64_t file_size() const noexcept { return header.size() + code_bytes + scale_bytes; }
};

/// Plans the file of one tensor, whose own codes and scales may be missing. Errors: as write_packed().
Expected<PackedPlan> plan_packed(std::string_view file_name, std::string_view name, const QuantizedTensor& description);

/// A tensor of a file that holds packed tensors and others: its name, dtype, shape and size, and if it is packed there
/// what becomes of it.
struct MixedTensor {
  SafetensorsTensor plain;
  std::optional<QuantizedTensor> packed{};  // without codes and scales
};

/// Where their bytes lie in a file that is written piece by piece.
struct MixedPlan {
  struct Place {
    std::uint64_t first = 0;  // of a tensor that is not packed, or of the codes
    std::uint64_t first_bytes = 0;
    std::uint64_t second = 0;  // of the scales
    std::uint64_t second_bytes = 0;

    std::uint64_t bytes() const noexcept { return first_bytes + second_bytes; }
  };
  std::string header;         // its length does not depend on the tensor scales
  std::vector<Place> places;  // of the tensors as given
  std::uint64_t file_size = 0;
};

/// Plans a file with the metadata of the file `before` (none if null) whose packed tensors stay packed tensors if they
/// are among those given. `program` names who wrote the file, in the description beside "version". Errors: as
/// write_packed(), and a part that has the name of another tensor.
Expected<MixedPlan> plan_mixed(std::string_view file_name, const Safetensors* before, std::string_view program,
                               std::span<const MixedTensor> tensors);

/// Whether a file has a description of packed tensors; whether that is right is another question.
bool is_described(const Safetensors& file);

/// A packed tensor and its parts, which are tensors of the file.
struct PackedEntry {
  std::string name;
  QuantizedTensor description;  // everything but its codes and scales
  const SafetensorsTensor* codes = nullptr;
  const SafetensorsTensor* scales = nullptr;
};

/// All packed tensors of a file, in the order of its description, checked as load_packed() checks them but for the
/// bytes of the codes; those are check_packed_codes()'s. A file without description is an error.
Expected<std::vector<PackedEntry>> packed_entries(const Safetensors& file, std::string_view file_name);
Expected<void> check_packed_codes(const Safetensors& file, std::string_view file_name, const PackedEntry& entry);

/// The names of the packed tensors of a file, in the order of its description; `file_name` is for messages. A file
/// without description is an error.
Expected<std::vector<std::string>> packed_names(const Safetensors& file, std::string_view file_name);

/// Reads one packed tensor; the name may be empty if the file has only one. Everything is checked: the description
/// against the tables of formats, profiles and rules; dtype and shape of both tensors against the logical shape; the
/// codes, where bits that carry no meaning must be 0 (the high nibble after an odd line, bits 7:6 of 6-bit elements),
/// so that equal tensors are equal files. Messages name the file, the tensor and the fault.
Expected<QuantizedTensor> load_packed(const std::filesystem::path& path, std::string_view name = {});
/// The same from a file that is read already; `file_name` is for messages.
Expected<QuantizedTensor> load_packed(const Safetensors& file, std::string_view file_name, std::string_view name);

/// A packed tensor that stays in its file and is read piece by piece. It is checked as load_packed() checks it, so
/// open() reads the codes once if they have bits that carry no meaning.
class PackedReader {
 public:
  static Expected<PackedReader> open(const std::filesystem::path& path, std::string_view name = {});

  /// Everything but its codes and scales.
  const QuantizedTensor& description() const noexcept { return description_; }
  /// Copy bytes from `offset` on; may be called from several threads. Precondition: they are inside.
  Expected<void> read_codes(std::uint64_t offset, std::span<std::byte> to) const {
    return file_.read(*codes_, offset, to);
  }
  Expected<void> read_scales(std::uint64_t offset, std::span<std::byte> to) const {
    return file_.read(*scales_, offset, to);
  }

  /// See InputFile::check_unchanged().
  Expected<void> check_unchanged() const { return file_.file().check_unchanged(); }

 private:
  Safetensors file_;
  QuantizedTensor description_;
  const SafetensorsTensor* codes_ = nullptr;  // in file_, where a move leaves them
  const SafetensorsTensor* scales_ = nullptr;
};

}  // namespace bitcube
