// Block formats for arrays and packed tensors that stay in their files.
#pragma once

#include <cstdint>
#include <string_view>

#include "bitcube/expected.hpp"
#include "bitcube/io/file.hpp"
#include "bitcube/io/goldens.hpp"
#include "bitcube/io/npy.hpp"
#include "bitcube/io/packed.hpp"
#include "bitcube/quantize/tensor.hpp"
#include "bitcube/stream/window.hpp"

namespace bitcube::stream {

/// What is quantised: the elements of an array, rounded to another format first (RNE, Sat = 0) if that is given.
struct Source {
  const NpyArray* array = nullptr;
  const Format* stored = nullptr;   // what the elements are
  const Format* rounded = nullptr;  // what they are rounded to; nullptr: nothing

  const Format& format() const noexcept { return rounded != nullptr ? *rounded : *stored; }
};

struct Quantized {
  QuantizedTensor description;  // everything but codes and scales
  std::uint64_t code_bytes = 0;
  std::uint64_t scale_bytes = 0;
  Flags rounding_flags = Flags::none;  // of the rounding to Source::rounded
  ErrorReport error;
};

/// Quantises an array along an axis, and writes the packed tensor `name`: the file, the golden files and the error are
/// those of bitcube::quantize(), write_packed(), write_goldens() and measure(), whatever the window. The array is read
/// once, in the order of its lines (twice for an NVFP4 tensor scale). `goldens` may be null. Errors: those of these
/// functions, and elements of another size than the carrier of `stored`. After one the files are of no use.
///
/// The team of options.execution shares the work: each rank reads and quantises some of the lines, rank 0 writes what
/// all have made and knows the error. A team writes no golden files.
Expected<Quantized> quantize(const Source& source, std::size_t axis, const QuantizeOptions& options,
                             std::string_view name, OutputFile& file, GoldenWriter* goldens = nullptr,
                             std::size_t window = kWindow);

/// Dequantises a packed tensor and appends an array of array_dtype(destination): the bytes and flags are those of
/// bitcube::dequantize(), whatever the window.
Expected<Flags> dequantize(const PackedReader& tensor, const Format& destination, Rounding rounding, OutputFile& file,
                           const Execution& execution = {}, std::size_t window = kWindow);

}  // namespace bitcube::stream
