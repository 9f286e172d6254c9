// How one element of a tensor is quantised, step by step (numerics 8, 10.3; profiles 1 and 2).
#pragma once

#include <cstddef>
#include <span>

#include "bitcube/document.hpp"
#include "bitcube/expected.hpp"
#include "bitcube/quantize/tensor.hpp"

namespace bitcube {

/// What becomes of the element at `index`: its group and the maxima, the scale and how it was rounded, the lane's
/// product or quotient, its neighbours and code, the value that it stands for, and what every other profile or scale
/// rule gives. `bytes`, `source`, `shape`, `axis` and `options` as quantize() takes them; `rounded`: the format to
/// which the elements are rounded first (RNE, Sat = 0), or nullptr. The last result is "scale 0x000501C0, code 0x7 =
/// 7". The time goes with the size of the group, but for an NVFP4 tensor scale, which takes the whole tensor. Errors:
/// those of quantize(), and an index that the shape does not have.
Expected<Document> explain_quantize(std::span<const std::byte> bytes, const Format& source,
                                    std::span<const uint64> shape, std::size_t axis, const QuantizeOptions& options,
                                    std::span<const uint64> index, const Format* rounded = nullptr);

}  // namespace bitcube
