#include "quantize/kernels/transpose.hpp"

#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/kernels/transpose.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/highway.h>

#include "quantize/kernels/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bitcube::kernels::HWY_NAMESPACE {
namespace {

/// Rows and columns from the given ones on, one word at a time.
template <typename Word>
HWY_INLINE void transpose_words(const std::byte* from, std::size_t from_stride, std::size_t first_row, std::size_t rows,
                                std::size_t first_column, std::size_t columns, std::byte* to, std::size_t to_stride) {
  for (std::size_t r = first_row; r < rows; ++r) {
    for (std::size_t c = first_column; c < columns; ++c) {
      std::memcpy(to + c * to_stride + r * sizeof(Word), from + r * from_stride + c * sizeof(Word), sizeof(Word));
    }
  }
}

#if BITCUBE_HAS_KERNELS

/// A square block, as wide as 16 bytes.
template <typename Word>
HWY_INLINE void transpose_block(const std::byte* from, std::size_t from_stride, std::byte* to, std::size_t to_stride) {
  constexpr std::size_t size = 16 / sizeof(Word);
  const hn::Full128<Word> d;
  const hn::Full128<std::uint8_t> d8;
  using V = hn::Vec<hn::Full128<Word>>;
  V rows[size];
  for (std::size_t r = 0; r < size; ++r) {
    rows[r] = hn::BitCast(d, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(from + r * from_stride)));
  }
  // Each turn interleaves row i with row i + size / 2: log2(size) of these perfect shuffles transpose.
  for (std::size_t turn = 1; turn < size; turn *= 2) {
    V shuffled[size];
    for (std::size_t i = 0; i < size / 2; ++i) {
      shuffled[2 * i] = hn::InterleaveLower(d, rows[i], rows[i + size / 2]);
      shuffled[2 * i + 1] = hn::InterleaveUpper(d, rows[i], rows[i + size / 2]);
    }
    for (std::size_t i = 0; i < size; ++i) rows[i] = shuffled[i];
  }
  for (std::size_t r = 0; r < size; ++r) {
    hn::StoreU(hn::BitCast(d8, rows[r]), d8, reinterpret_cast<std::uint8_t*>(to + r * to_stride));
  }
}

template <typename Word>
HWY_INLINE void transpose_as(const std::byte* from, std::size_t from_stride, std::size_t rows, std::size_t columns,
                             std::byte* to, std::size_t to_stride) {
  constexpr std::size_t size = 16 / sizeof(Word);
  const std::size_t whole_rows = rows - rows % size;
  const std::size_t whole_columns = columns - columns % size;
  const auto block = [&](std::size_t r, std::size_t c) HWY_ATTR {
    transpose_block<Word>(from + r * from_stride + c * sizeof(Word), from_stride, to + c * to_stride + r * sizeof(Word),
                          to_stride);
  };
  // The far side is a tensor, often with rows a power of two apart, which evict each other from the caches: all that is
  // needed of a row there is used at once.
  if (from_stride > to_stride) {
    for (std::size_t r = 0; r < whole_rows; r += size) {
      for (std::size_t c = 0; c < whole_columns; c += size) block(r, c);
    }
  } else {
    for (std::size_t c = 0; c < whole_columns; c += size) {
      for (std::size_t r = 0; r < whole_rows; r += size) block(r, c);
    }
  }
  transpose_words<Word>(from, from_stride, 0, whole_rows, whole_columns, columns, to, to_stride);
  transpose_words<Word>(from, from_stride, whole_rows, rows, 0, columns, to, to_stride);
}

#else

template <typename Word>
HWY_INLINE void transpose_as(const std::byte* from, std::size_t from_stride, std::size_t rows, std::size_t columns,
                             std::byte* to, std::size_t to_stride) {
  transpose_words<Word>(from, from_stride, 0, rows, 0, columns, to, to_stride);
}

#endif  // BITCUBE_HAS_KERNELS
}  // namespace

void transpose_any(std::size_t word_bytes, const std::byte* from, std::size_t from_stride, std::size_t rows,
                   std::size_t columns, std::byte* to, std::size_t to_stride) {
  if (word_bytes == 2) {
    transpose_as<std::uint16_t>(from, from_stride, rows, columns, to, to_stride);
  } else {
    transpose_as<std::uint32_t>(from, from_stride, rows, columns, to, to_stride);
  }
}

}  // namespace bitcube::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bitcube::kernels {

HWY_EXPORT(transpose_any);

void transpose(std::size_t word_bytes, const std::byte* from, std::size_t from_stride, std::size_t rows,
               std::size_t columns, std::byte* to, std::size_t to_stride) noexcept {
  HWY_DYNAMIC_DISPATCH(transpose_any)(word_bytes, from, from_stride, rows, columns, to, to_stride);
}

}  // namespace bitcube::kernels
#endif  // HWY_ONCE
