// What the explanations of a product and of a post-process share.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/document.hpp"
#include "bitcube/expected.hpp"
#include "bitcube/numeric/exact_sum.hpp"
#include "value_text.hpp"

namespace bitcube::explain {

/// Where an element of a rows x cols result stands.
struct Place {
  std::size_t row;
  std::size_t col;
  std::size_t rows;
  std::size_t cols;
};
Expected<void> check_place(const Place& place);

/// An explanation that does not lead to what the library delivers must not be read as one.
inline Error contradiction(std::string_view what, std::string_view explained, std::string_view delivered) {
  return Error{
      fmt::format("internal error: the steps of the explanation lead to {} {}, but bitcube delivers {}; "
                  "please report this",
                  what, explained, delivered)};
}

/// Bits and value of a word.
inline Fact word_fact(std::string name, const Format& f, uint64 word, std::string_view more = {}) {
  return {std::move(name), bits_text(f, word), value_text(f, decode(f, word)) + std::string(more)};
}

/// 128 significant bits of an exact sum, the rest as sticky.
template <std::size_t Words>
constexpr Real narrowed(const WideReal<Words>& x) noexcept {
  const int cut = x.significand.bit_length() > 128 ? x.significand.bit_length() - 128 : 0;
  const Split s = split(x, x.exponent + cut);
  return {x.negative, s.quanta, x.exponent + cut, s.remainder != Remainder::exact};
}

/// The decimal digits of an exact value that leave room for the other columns of a table.
inline constexpr int column_digits = 8;

template <std::size_t Words>
std::string exact_text(const WideReal<Words>& x, int most_digits = 20) {
  return bitcube::exact_text(narrowed(x), most_digits);
}

/// x / 2^quantum with four digits, which is enough for a number of ulps.
template <std::size_t Words>
std::string ulps_text(WideReal<Words> x, int quantum) {
  x.exponent -= quantum;
  return fmt::format("{:.4g}", std::bit_cast<double>(encode(fp64, x, {}).bits));
}

/// The columns whose accumulators RowMax and GroupMax of an element read; the element alone where neither is asked for.
struct Columns {
  std::size_t first;
  std::size_t count;
};
Columns reduction_columns(const Place& place, const PostprocessOptions& options);

/// Adds RowMax and GroupMax of the element's row and group, if asked for, with their results. `words` are the
/// accumulators of reduction_columns().
Expected<void> add_reductions(Document& document, const Format& accumulator, const Place& place,
                              std::span<const std::uint32_t> words, const PostprocessOptions& options);

/// Options for the element alone, without reductions.
PostprocessOptions element_options(const PostprocessOptions& options, std::size_t col);

/// D of one accumulator.
struct Delivered {
  const Format* format;
  Encoded d;
};
Expected<Delivered> deliver(const Format& accumulator, std::uint32_t word, const PostprocessOptions& element);

/// Adds the post-process of the element, and D as the last result.
Expected<void> add_postprocess(Document& document, const Format& accumulator, const Place& place, std::uint32_t word,
                               const PostprocessOptions& options);

}  // namespace bitcube::explain
