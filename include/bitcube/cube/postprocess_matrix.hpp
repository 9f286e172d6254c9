// Post-process of a whole accumulator matrix: parameters checked first, then D, RowMax and GroupMax (numerics 5).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/postprocess.hpp"
#include "bitcube/expected.hpp"
#include "bitcube/parallel.hpp"

namespace bitcube {

struct PostprocessOptions {
  const PreQuantMode* mode = &no_quant;
  /// U64 carriers (numerics 4.2): none, one for a scalar mode, or one per column for a per-column mode.
  std::span<const uint64> quant_carriers{};
  Relu relu = Relu::none;
  /// FP19 alphas in U64 carriers: one with Relu::scalar, one per column with Relu::per_column.
  std::span<const uint64> activation_carriers{};
  std::optional<Rounding> rounding{};  // B.DATR.RMode; none requested: RNE
  bool saturate = false;               // B.DATR.Sat
  const ConversionProfile* profile = &pto_profile;

  bool row_max = false;
  std::optional<std::span<const std::uint32_t>> row_max_init{};  // RowMaxIn: rows accumulator words
  unsigned group_n = 0;                                          // GroupMax over so many columns; 0: none
  bool max_abs = false;

  Execution execution{};
};

struct Postprocessed {
  const Format* format = nullptr;  // of D
  std::size_t rows = 0;
  std::size_t cols = 0;
  /// D, row-major, one little-endian element of element_bytes bytes per lane; a 4-bit lane in the low nibble of its
  /// byte with zeros above (ADR 0085 decision 181).
  std::vector<std::uint8_t> d;
  std::size_t element_bytes = 0;
  const Format* accumulator = nullptr;   // of row_max and group_max
  std::vector<std::uint32_t> row_max;    // rows words, where asked for
  std::vector<std::uint32_t> group_max;  // rows x ceil(cols / group_n) words, where asked for
  Flags flags = Flags::none;             // of all elements and reductions together
};

/// The GroupN values that GroupNCode 1..9 encode (numerics 5.2).
inline constexpr std::array<unsigned, 9> group_n_values{8, 16, 32, 48, 64, 80, 96, 112, 128};

/// Checks everything that B.FPATR and B.DATR require of these options for a matrix of `cols` columns; the message names
/// the rule and the column. Nothing is computed before this passes.
Expected<void> check_postprocess(const Format& accumulator, std::size_t rows, std::size_t cols,
                                 const PostprocessOptions& options);

/// The controls of a column; a scalar parameter serves every column. Precondition: check_postprocess() passes.
ElementPostprocess column_postprocess(const PostprocessOptions& options, std::size_t column) noexcept;

/// D, RowMax and GroupMax of the accumulators. The reductions read the raw accumulators (ADR 0085 decision 175).
Expected<Postprocessed> postprocess(const Accumulators& accumulators, const PostprocessOptions& options);

/// Where postprocess_into writes: spans of exactly the sizes that the members of Postprocessed would have.
struct PostprocessOutput {
  std::span<std::uint8_t> d;
  std::span<std::uint32_t> row_max{};
  std::span<std::uint32_t> group_max{};
};

/// The same for rows x cols accumulator words, into memory of the caller, which does not overlap the words. Returns the
/// flags of all elements and reductions together; after an error nothing was written.
Expected<Flags> postprocess_into(const Format& accumulator, std::span<const std::uint32_t> words, std::size_t rows,
                                 std::size_t cols, const PostprocessOptions& options, const PostprocessOutput& out);

/// D as memory holds a type with two lanes per byte: rows of ceil(cols / 2) bytes, the even column in the low nibble,
/// the high nibble after an odd row 0 (numerics 1.4). Precondition: d.format is packed.
std::vector<std::uint8_t> packed_rows(const Postprocessed& d);

}  // namespace bitcube
