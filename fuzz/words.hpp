// Words of formats for the kernels: what an input says, among seeded words that are half at the corners of the format.
#pragma once

#include "bitcube/numeric/format.hpp"
#include "bitcube/quantize/lines.hpp"
#include "input.hpp"
#include "support/operands.hpp"

namespace bitcube::fuzz {

/// `count` words of `bytes` bytes each. Two bytes of the input are the seed, and some words stand in it as they are:
/// any bits, at any place.
inline std::vector<std::byte> words(Input& input, const Format& format, std::size_t count, std::size_t bytes) {
  test::Operands operands(input.word(2));
  const bool raw = input.below(4) == 3;
  std::vector<std::byte> out(count * bytes);
  for (std::size_t i = 0; i < count; ++i) {
    store_word(out.data() + i * bytes, bytes, raw ? operands.raw() : operands.word(format));
  }
  if (count == 0) return out;
  for (std::size_t given = input.below(16); given > 0; --given) {
    const std::size_t at = input.below(count);
    store_word(out.data() + at * bytes, bytes, input.word(bytes));
  }
  return out;
}

/// A span of a copy that begins `offset` bytes behind an aligned address.
class Unaligned {
 public:
  Unaligned(std::span<const std::byte> bytes, std::size_t offset) : memory_(bytes.size() + offset), offset_(offset) {
    std::copy(bytes.begin(), bytes.end(), memory_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  std::span<const std::byte> bytes() const noexcept { return std::span(memory_).subspan(offset_); }

 private:
  std::vector<std::byte> memory_;
  std::size_t offset_;
};

}  // namespace bitcube::fuzz
