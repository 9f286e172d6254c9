// A row-major tensor seen as lines along one axis: the order in which block formats store and name their groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "bitcube/numeric/bits.hpp"

namespace bitcube {

/// a * b; false if it does not fit 64 bits.
constexpr bool checked_multiply(uint64 a, uint64 b, uint64& product) noexcept {
  const uint128 exact = static_cast<uint128>(a) * b;
  product = static_cast<uint64>(exact);
  return exact >> 64 == 0;
}

/// The lines of a tensor along `axis`: all other indices in row-major order, so line l = outer * inner + i, and its
/// lane k is element (outer * length + k) * inner + i. A tensor without elements has no lines.
struct Lines {
  uint64 count = 0;   // of lines
  uint64 length = 0;  // K, lanes per line
  uint64 inner = 1;   // elements from one lane to the next: product of the dimensions after the axis

  constexpr uint64 element(uint64 line, uint64 lane) const noexcept {
    return ((line / inner) * length + lane) * inner + line % inner;
  }
  constexpr uint64 elements() const noexcept { return count * length; }
};

/// Lines of a shape; false if it has more than 2^64 - 1 elements. Precondition: axis < shape.size().
constexpr bool lines_of(std::span<const uint64> shape, std::size_t axis, Lines& lines) noexcept {
  lines = {.count = 1, .length = shape[axis], .inner = 1};
  for (const uint64 extent : shape) {
    if (extent == 0) {
      lines.count = 0;
      return true;
    }
  }
  uint64 elements = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!checked_multiply(elements, shape[i], elements)) return false;
    if (i != axis) lines.count *= shape[i];
    if (i > axis) lines.inner *= shape[i];
  }
  return true;
}

/// The little-endian word of 1, 2, 4 or 8 bytes at an address of any alignment.
inline uint64 load_word(const std::byte* from, std::size_t bytes) noexcept {
  const auto load = [from](auto word) {
    std::memcpy(&word, from, sizeof word);
    return static_cast<uint64>(word);
  };
  switch (bytes) {
    case 1:
      return load(std::uint8_t{});
    case 2:
      return load(std::uint16_t{});
    case 4:
      return load(std::uint32_t{});
    default:
      return load(uint64{});
  }
}

/// Its inverse: stores the low `bytes` bytes.
inline void store_word(std::byte* to, std::size_t bytes, uint64 word) noexcept {
  for (std::size_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(word >> (8 * i));
}

}  // namespace bitcube
