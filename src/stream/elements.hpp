// Elements that stay in their file, and what is made of them a window at a time.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "bitcube/quantize/tensor.hpp"
#include "windows.hpp"

namespace bitcube::stream {

/// Row-major words of a float, rounded to another format first (RNE, Sat = 0) if that is given.
struct Elements {
  Read read;  // from the first of them on
  std::vector<uint64> shape;
  const Format* stored = nullptr;
  const Format* rounded = nullptr;  // nullptr: nothing

  const Format& format() const noexcept { return rounded != nullptr ? *rounded : *stored; }
  uint64 count() const noexcept {
    uint64 product = 1;
    for (const uint64 extent : shape) product *= extent;  // fits: they are in a file
    return product;
  }
  std::size_t word_bytes() const noexcept { return stored->carrier_bits / 8U; }
};

/// Reads them window by window.
class ElementReader {
 public:
  ElementReader(const Elements& elements, unsigned threads) noexcept : elements_(elements), threads_(threads) {}

  /// Valid until the next call.
  Expected<std::span<const std::byte>> read(const Pieces& pieces);
  /// That rounding has raised so far.
  Flags flags() const noexcept { return flags_; }

 private:
  const Elements& elements_;
  unsigned threads_;
  std::vector<std::byte> stored_;
  std::vector<std::byte> rounded_;
  Flags flags_ = Flags::none;
};

/// The most elements that a window of so many bytes has.
uint64 window_elements(std::size_t window, const BlockFormat& format, const Elements& elements) noexcept;

/// What quantize() would make of such a tensor, but for codes, scales and a tensor scale that depends on the elements.
Expected<QuantizedTensor> describe_quantized(const Format& source, std::vector<uint64> shape, std::size_t axis,
                                             const QuantizeOptions& options);

/// Whether quantising takes two passes, the first for the tensor scale.
inline bool needs_tensor_scale(const QuantizeOptions& options) noexcept {
  return options.tensor_scale && !options.given_scale;
}
/// The FP32 word of the scale of a whole tensor. It grows with the largest magnitude, so that of a tensor is the
/// largest one of its parts.
Expected<std::uint32_t> find_tensor_scale(const Elements& elements, uint64 most, Steps& steps, unsigned threads);
/// The same of `count` elements from the one with the number `first` on.
Expected<std::uint32_t> find_part_scale(const Elements& elements, uint64 first, uint64 count, uint64 most, Steps& steps,
                                        unsigned threads);
/// The scales of tensors by a team, which has each do an equal part of each; all get the result.
Expected<std::vector<std::uint32_t>> find_team_scales(std::size_t tensors,
                                                      const std::function<Elements(std::size_t tensor)>& elements,
                                                      std::size_t window, const QuantizeOptions& options, Steps& steps);

/// Where the bytes of codes and of scales go, each from the first of the tensor on.
struct PackedSink {
  std::function<Expected<void>(std::uint64_t offset, std::span<const std::byte>)> codes;
  std::function<Expected<void>(std::uint64_t offset, std::span<const std::byte>)> scales;
  /// Also sees the elements; may be empty.
  std::function<Expected<void>(const QuantizedTensor&, std::span<const std::byte>, const Window&)> part{};
};

struct Measured {
  ErrorReport error;
  Flags rounding_flags = Flags::none;
};

/// Quantises the elements as `tensor` says, its tensor scale included.
Expected<Measured> quantize_windows(const Elements& elements, const QuantizedTensor& tensor,
                                    const QuantizeOptions& options, uint64 most, Steps& steps, const PackedSink& sink);

/// The same of a panel, whose error goes into `meter`; returns the flags of rounding. Codes and scales still count from
/// the first of the tensor. Stops where another rank of the team has failed.
Expected<Flags> quantize_panel(const Elements& elements, const QuantizedTensor& tensor, const QuantizeOptions& options,
                               const Panel& panel, uint64 most, Steps& steps, const PackedSink& sink,
                               ErrorMeter& meter);

/// A packed tensor whose codes and scales stay in their file.
struct PackedElements {
  const QuantizedTensor* description = nullptr;
  Read read_codes;
  Read read_scales;

  /// Reads the window of a tensor, which is a tensor itself: `part` is the description of the whole, but for its shape.
  Expected<void> read(const Window& window, const Lines& lines, unsigned threads, QuantizedTensor& part) const;
};

/// measure() of elements and what was made of them.
Expected<Measured> measure_windows(const Elements& elements, const PackedElements& packed, uint64 most, Steps& steps,
                                   unsigned threads);

}  // namespace bitcube::stream
