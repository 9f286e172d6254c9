// Golden outputs of the TQUANT HiFloat4 note, for kernels that follow it (profiles 1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/io/file.hpp"
#include "bitcube/quantize/tensor.hpp"

namespace bitcube {

/// Writes the golden files of a HiF4 tensor into a directory that exists; all of them appear, or none. The groups
/// follow each other line by line. Every group is complete: the missing lanes of a short one count as +0. Per group:
///
///   golden_fp4.bin    32 bytes: lane codes, even lane in the low nibble
///   golden_ea.bin     1 byte: E6M2 code
///   golden_eb.bin     1 byte: bit g belongs to the 8 lanes from 8g
///   golden_ec.bin     2 bytes: bit h belongs to the 4 lanes from 4h, low byte first
///   golden_scale.bin  16 BF16 words: what the lanes of each 4 are multiplied by, R * 2^(-Eb - Ec); 7FC0 for Ea = FF
///
/// All words are little-endian. An error is an invalid tensor, another format than HiF4, or a file.
Expected<void> save_goldens(const std::filesystem::path& directory, const QuantizedTensor& tensor);

/// The same, and the largest magnitudes as BF16 words:
///
///   golden_max4.bin   16 words per group, golden_max8.bin 8 words, golden_max64.bin 1 word
///
/// `original` is what the tensor was quantised from; a source that is neither BF16 nor FP32 was rounded to BF16 first,
/// and so are its maxima. An FP32 value that is not a BF16 value is an error: the note's operation reads BF16.
Expected<void> save_goldens(const std::filesystem::path& directory, const QuantizedTensor& tensor,
                            std::span<const std::byte> original);

/// The files that are written into a directory, with or without the maxima.
std::vector<std::filesystem::path> golden_paths(const std::filesystem::path& directory, bool maxima);

/// The golden files of a tensor that comes in parts, which are tensors themselves: some lines, or some whole groups of
/// one line. Together their groups must be those of the tensor in its order.
class GoldenWriter {
 public:
  static Expected<GoldenWriter> create(const std::filesystem::path& directory, bool maxima);

  /// `original` is read for the maxima only. `element_of` gives the number in the whole tensor of an element of the
  /// part, for messages.
  Expected<void> add(const QuantizedTensor& part, std::span<const std::byte> original,
                     const std::function<std::uint64_t(std::uint64_t)>& element_of = {});
  /// The files, complete but not in place.
  Expected<std::vector<OutputFile>> take();

 private:
  template <std::size_t N>
  void append(std::size_t file, const std::array<std::byte, N>& bytes);
  template <typename Word, std::size_t N>
  void append_words(std::size_t file, const std::array<Word, N>& words);

  std::vector<OutputFile> files_;
  bool maxima_ = false;
  std::optional<Error> error_;  // the first one sticks, as it does in each file
};

/// The same files, complete but not in place: for who commits them together with others (commit_all).
Expected<std::vector<OutputFile>> write_goldens(const std::filesystem::path& directory, const QuantizedTensor& tensor);
Expected<std::vector<OutputFile>> write_goldens(const std::filesystem::path& directory, const QuantizedTensor& tensor,
                                                std::span<const std::byte> original);

}  // namespace bitcube
