// Tensors of files in a block format, part by part: for whoever looks at the codes and at what they were made of.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bitcube/stream/inspect.hpp"
#include "bitcube/stream/quantize.hpp"

namespace bitcube::stream {

/// Which tensors of a file are taken: as in CheckpointOptions. Of a .npy array only the names are asked for.
struct Selection {
  std::vector<std::string> include{};
  std::vector<std::string> exclude{};
  uint64 min_rank = 2;
  uint64 min_dim = 64;
};

/// For every tensor of every file why it is not taken; empty if it is. `warnings` also gets the patterns that match
/// nothing. Errors: a pattern that is none.
Expected<std::vector<std::vector<std::string>>> select(std::span<const TensorFiles> files, const Selection& selection,
                                                       std::vector<std::string>& warnings);

/// The float that the elements of a tensor are, or nullptr where they are none that is quantised; uint16 arrays hold
/// the bits of BF16.
const Format* element_format(const TensorInfo& tensor) noexcept;

/// Some lines of a tensor, or whole groups of one line.
struct Part {
  uint64 first_line = 0;
  uint64 first_lane = 0;
  /// Quantised along axis 1 of 3; its lines are those that follow first_line, in their order.
  const QuantizedTensor& tensor;
  /// What it was made of: row-major words of tensor.source.
  std::span<const std::byte> words;
};
using UsePart = std::function<Expected<void>(const Part&)>;

/// Quantises a tensor of a file as quantize() does and hands out its parts in the order of the lines; where it was cut
/// depends on `window` only. Errors: those of quantize(), of the file and of `use`; a tensor that has no
/// element_format().
Expected<Quantized> quantize_parts(const TensorFiles& files, std::size_t tensor, std::size_t axis,
                                   const QuantizeOptions& options, const UsePart& use, std::size_t window = kWindow);

}  // namespace bitcube::stream
