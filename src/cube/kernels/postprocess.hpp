// SIMD kernels for the post-process of accumulators: numerics 5.5 and 5.7.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bitcube/cube/postprocess.hpp"

#include "numeric/kernels/encode_constants.hpp"

namespace bitcube::kernels {

/// The parameters of the columns, one array per parameter. A call whose parameters are scalar has one column, written
/// out for a whole vector.
struct PostprocessParameters {
  bool per_column = false;
  std::vector<std::uint32_t> multiplier;  // raw FP19 for accumulators that are not negative
  std::vector<std::uint32_t> negative;    // and for those that are; 0: they become 0
  std::vector<std::int32_t> offset;       // of the offset modes; the shift of the shift modes
};

/// What one call does to every element.
struct PostprocessKernel {
  enum class Work { none, copy, relu, shift, offset, encode };

  Work work = Work::none;
  bool floating = false;  // FP32 accumulators, otherwise S32
  const Format* to = nullptr;
  bool activation = false;
  Rounding rounding = Rounding::rne;
  bool saturate = false;
  int offset_bits = 0;
  EncodeConstants constants{};  // of Work::encode
  // What postprocess_special delivers there.
  Encoded nan{};
  Encoded infinity{};
  Encoded minus_infinity{};
  PostprocessParameters parameters{};
};

/// Prepares a call. `columns` holds one element, or one per column. The work is `none` where only the reference knows:
/// mode 0 with an alpha for S32 accumulators, whose exact product has up to 171 bits before it is cut to 32.
PostprocessKernel make_postprocess_kernel(std::span<const ElementPostprocess> columns, const Format& accumulator);

/// postprocess_element() of rows x cols words, row-major, into elements of the destination's size; the flags OR-ed into
/// `flags`. False, with nothing done, where there is no kernel.
bool postprocess_words(const PostprocessKernel& kernel, const std::uint32_t* words, std::size_t rows, std::size_t cols,
                       std::byte* out, Flags& flags);

/// The reduction of `count` words, at least 1, in order: MAX(...MAX(words[0], words[1])..., words[count - 1]); with
/// `max_abs` the first one meets itself. False where there is no kernel.
bool maximum(const Format& accumulator, bool max_abs, const std::uint32_t* words, std::size_t count,
             std::uint32_t& result, Flags& flags);

/// The same for groups of `group` words, a multiple of 8; the last group may be short. One result per group.
bool group_maxima(const Format& accumulator, bool max_abs, const std::uint32_t* words, std::size_t count,
                  std::size_t group, std::uint32_t* results, Flags& flags);

}  // namespace bitcube::kernels
