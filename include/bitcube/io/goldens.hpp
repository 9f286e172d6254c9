// Golden outputs of the TQUANT HiFloat4 note, for kernels that follow it (profiles 1).
#pragma once

#include <cstddef>
#include <filesystem>
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

/// The same files, complete but not in place: for who commits them together with others (commit_all).
Expected<std::vector<OutputFile>> write_goldens(const std::filesystem::path& directory, const QuantizedTensor& tensor);
Expected<std::vector<OutputFile>> write_goldens(const std::filesystem::path& directory, const QuantizedTensor& tensor,
                                                std::span<const std::byte> original);

}  // namespace bitcube
