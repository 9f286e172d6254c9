// Whole tensors in block formats: quantise, dequantise, measure (profiles 1, 2).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/numeric/flags.hpp"
#include "bitcube/parallel.hpp"
#include "bitcube/quantize/hif4.hpp"
#include "bitcube/quantize/lines.hpp"
#include "bitcube/quantize/mx.hpp"

namespace bitcube {

/// A format in which groups of lanes along one axis share a scale.
struct BlockFormat {
  std::string_view name;
  std::string_view alias;  // a second accepted name, or empty
  const Format* element;
  unsigned group;       // lanes that share a scale
  const Format* scale;  // U32: the word of numerics 8.1; E8M0; E4M3
  std::string_view meaning;

  constexpr bool is_hif4() const noexcept { return scale->type == DataType::u32; }
  constexpr bool is_mx() const noexcept { return scale->type == DataType::e8m0; }
  constexpr bool is_nvfp4() const noexcept { return scale->type == DataType::e4m3; }
  constexpr std::size_t scale_bytes() const noexcept { return scale->carrier_bits / 8U; }

  /// Bytes of the codes of one line of k lanes: two lanes per byte in the 4-bit formats, even lane in the low nibble.
  constexpr uint64 code_bytes(uint64 k) const noexcept { return element->is_packed() ? k / 2 + k % 2 : k; }
  /// Groups of one line of k lanes; the last may be short.
  constexpr uint64 groups(uint64 k) const noexcept { return k / group + (k % group != 0 ? 1 : 0); }
};

inline constexpr std::array<BlockFormat, 8> block_formats{{
    {"hif4", "", &format_of(DataType::hif4x2), hif4_group_lanes, &format_of(DataType::u32),
     "HiFloat4: 64 lanes of quarters, E6M2 scale with two levels of micro-exponents"},
    {"mxfp8-e4m3", "", &format_of(DataType::e4m3), mx_group_lanes, &e8m0, "OCP MXFP8, E4M3 elements"},
    {"mxfp8-e5m2", "", &format_of(DataType::e5m2), mx_group_lanes, &e8m0, "OCP MXFP8, E5M2 elements"},
    {"mxfp6-e3m2", "", &format_of(DataType::e3m2), mx_group_lanes, &e8m0, "OCP MXFP6, E3M2 elements, a byte each"},
    {"mxfp6-e2m3", "", &format_of(DataType::e2m3), mx_group_lanes, &e8m0, "OCP MXFP6, E2M3 elements, a byte each"},
    {"mxfp4", "mxfp4-e2m1", &format_of(DataType::e2m1x2), mx_group_lanes, &e8m0, "OCP MXFP4, E2M1 elements"},
    {"mxfp4-e1m2", "", &format_of(DataType::e1m2x2), mx_group_lanes, &e8m0, "PTO's own: E1M2 elements, E8M0 scale"},
    {"nvfp4", "", &format_of(DataType::e2m1x2), nvfp4_group_lanes, &e4m3, "E2M1 elements, E4M3 scale per 16 lanes"},
}};

/// The block format of this name in any case, or nullptr.
constexpr const BlockFormat* find_block_format(std::string_view name) noexcept {
  for (const BlockFormat& f : block_formats) {
    if (equal_ignoring_case(f.name, name) || (!f.alias.empty() && equal_ignoring_case(f.alias, name))) return &f;
  }
  return nullptr;
}

/// A tensor in a block format, with every choice that made it.
///
/// Storage: the quantised axis is moved last; the lines (all other indices in row-major order) follow each other.
/// A line of K lanes takes format->code_bytes(K) bytes of `codes`, so it starts on a byte boundary; the unused nibble
/// of an odd line is 0. It takes format->groups(K) little-endian scales of `scales`.
struct QuantizedTensor {
  const BlockFormat* format = &block_formats[0];
  const Hif4Profile* profile = nullptr;   // HiF4 only
  const ScaleRule* scale_rule = nullptr;  // MX only
  Rounding rounding = Rounding::rne;      // of the elements; with HiF4 that of the profile
  const Format* source = &fp32;           // what it was quantised from
  std::vector<uint64> shape;              // logical, at least one dimension
  std::size_t axis = 0;                   // the quantised one
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  std::optional<std::uint32_t> tensor_scale;  // NVFP4 only: FP32 word, finite, not negative
};

/// Checks that a tensor made elsewhere keeps what QuantizedTensor promises, sizes above all. The functions below check
/// it themselves.
Expected<void> validate(const QuantizedTensor& tensor);
/// The same for a tensor whose codes and scales are elsewhere: everything but their sizes.
Expected<void> validate_description(const QuantizedTensor& tensor);

/// The exact value of one lane of a line. Precondition: the tensor is valid, and the indices are inside it.
Value dequantize_lane(const QuantizedTensor& tensor, uint64 line, uint64 lane) noexcept;

struct QuantizeOptions {
  const BlockFormat* format = &block_formats[0];
  const Hif4Profile* profile = &hif4_profiles[0];  // used by HiF4
  const ScaleRule* scale_rule = &scale_rules[0];   // used by MX
  Rounding rounding = Rounding::rne;               // of the elements of MX and NVFP4; HiF4 follows its profile
  bool tensor_scale = false;                       // NVFP4 only: FP32 scale of the whole tensor, amax / 2688
  std::optional<std::uint32_t> given_scale{};      // NVFP4 only: this scale instead, for a tensor that comes in parts
  Execution execution{};                           // threads and progress
};

/// Whether quantize() reads this format: a float that fills whole bytes.
constexpr bool is_quantize_source(const Format& f) noexcept {
  return f.kind == Kind::floating && f.lane_bits % 8 == 0;
}

/// The word from which HiF4 quantises a word of `source`: BF16 and FP32 as they are, others rounded to BF16 once (RNE,
/// Sat = 0: overflow gives Inf; profiles 1). Its format is hif4_source_format(source).
constexpr const Format& hif4_source_format(const Format& source) noexcept {
  return is_hif4_source(source) ? source : bf16;
}
constexpr std::uint32_t hif4_source_word(const Format& source, uint64 word) noexcept {
  if (is_hif4_source(source)) return static_cast<std::uint32_t>(word);
  return static_cast<std::uint32_t>(convert(source, bf16, word, {.rounding = Rounding::rne}).bits);
}

/// Quantises a row-major tensor of little-endian words. Errors: a shape without dimensions, an axis outside it, a size
/// that does not fit the shape, a source that is no float of whole bytes, a tensor scale for another format than NVFP4,
/// a missing format, profile or rule, no memory. A tensor with a dimension of 0 gives no codes and no scales.
///
/// Lines of a tensor are a tensor of their own, and so are whole groups of one line: their codes and scales are those
/// that they have in the whole. So one that is too large for the memory is quantised in parts (stream/quantize.hpp).
Expected<QuantizedTensor> quantize(std::span<const std::byte> bytes, const Format& source,
                                   std::span<const uint64> shape, std::size_t axis,
                                   const QuantizeOptions& options = {});

/// Quantises some lines of such a tensor, in the order of QuantizedTensor, into memory of exactly their size. Errors as
/// with quantize(), lines that the tensor does not have, other sizes, and a tensor scale, which needs the whole tensor.
Expected<void> quantize_lines(std::span<const std::byte> bytes, const Format& source, std::span<const uint64> shape,
                              std::size_t axis, const QuantizeOptions& options, uint64 first_line, uint64 lines,
                              std::span<std::byte> codes, std::span<std::byte> scales);

/// The largest finite magnitude among little-endian words of a float of whole bytes, or zero: with it
/// nvfp4_tensor_scale() gives the tensor scale. Of words in several parts it is the largest of theirs.
Expected<Real> largest_magnitude(std::span<const std::byte> words, const Format& source,
                                 const Execution& execution = {});

struct Dequantized {
  std::vector<std::byte> bytes;  // row-major in the logical shape, little-endian words
  Flags flags = Flags::none;     // of all conversions together
};

/// Converts every lane, exact until then, to FP32, BF16, FP16 or FP64 with one rounding by the rules of TCVT with Sat =
/// 0 (numerics 6.1, 7.4): NaN gives the canonical NaN, zero keeps its sign.
Expected<Dequantized> dequantize(const QuantizedTensor& tensor, const Format& destination,
                                 Rounding rounding = Rounding::rne, const Execution& execution = {});

/// How far a quantised tensor is from its original. x is an original value, y the dequantised one, e = y - x. These are
/// statistics in double precision; they do not depend on the thread count.
struct ErrorReport {
  uint64 lanes = 0;                // all of them
  uint64 non_finite = 0;           // lanes whose x or y is NaN or infinite: left out of everything below
  uint64 non_zero = 0;             // lanes with x != 0
  double max_relative_error = 0;   // of |e| / |x| over the lanes with x != 0
  double mean_relative_error = 0;  // the same
  double max_absolute_error = 0;
  double mean_squared_error = 0;  // of the finite lanes
  double sqnr = 0;                // dB: 10 log10(sum x^2 / sum e^2); infinite if every e is 0, NaN if no lane is finite
};

/// `original` holds the row-major words of tensor.source from which the tensor was made. Errors: its size, or an
/// invalid tensor.
Expected<ErrorReport> measure(std::span<const std::byte> original, const QuantizedTensor& tensor,
                              const Execution& execution = {});

/// A sum of squares of finite doubles. Squares that leave the range of a double are summed apart, scaled by a power of
/// two: what there is of them decides a ratio of sums as it should.
class SumOfSquares {
 public:
  void add(double x) noexcept;
  void add(const SumOfSquares& other) noexcept;

  bool is_zero() const noexcept { return large_ == 0 && ordinary_ == 0 && small_ == 0; }
  /// Infinite or zero where the sum itself is beyond a double.
  double value() const noexcept;
  /// 10 log10(signal / noise); infinite where one of them is zero, NaN where both are.
  static double decibels(const SumOfSquares& signal, const SumOfSquares& noise) noexcept;

 private:
  struct Scaled {
    double sum;
    int exponent;  // sum * 2^exponent
  };
  Scaled scaled() const noexcept;

  double ordinary_ = 0;
  double large_ = 0;  // in units of 2^1200
  double small_ = 0;  // in units of 2^-1200
};

/// What measure() sums: errors of the lanes of some groups, one lane after the other.
struct ErrorSums {
  uint64 non_finite = 0;
  uint64 non_zero = 0;
  double relative = 0;
  double max_relative = 0;
  double max_absolute = 0;
  SumOfSquares signal;
  SumOfSquares noise;

  void add(const Value& x, const Value& y) noexcept;
  void add(const ErrorSums& other) noexcept;
};

/// measure() of a tensor that comes in parts, which are tensors themselves: some lines, or some whole groups of one
/// line. Together their groups must be those of the tensor in its order. The report is then that of measure() on the
/// whole, bit for bit, wherever the tensor was cut.
class ErrorMeter {
 public:
  /// A meter that `keeps` its blocks apart can be appended to another one.
  explicit ErrorMeter(bool keeps = false) noexcept : keeps_(keeps) {}

  /// As measure(). After an error the meter is of no use.
  Expected<void> add(std::span<const std::byte> original, const QuantizedTensor& part, const Execution& execution = {});
  ErrorReport report() const noexcept;

  /// How many groups are summed together.
  static constexpr uint64 kBlock = 512;
  /// Adds what a meter that keeps its blocks has seen of the groups that follow. Precondition: so far there were whole
  /// blocks of kBlock groups.
  void append(const ErrorMeter& next) noexcept;
  /// All that append() needs, for another process of the same build; and the same from there.
  std::string state() const;
  static Expected<ErrorMeter> from_state(std::string_view state);

 private:
  void close(const ErrorSums& block);

  // Groups are summed in blocks, and these in order: so the sums depend neither on threads nor on parts.
  uint64 lanes_ = 0;
  uint64 groups_ = 0;  // in the block that is not full yet
  ErrorSums open_;     // ... and their sums
  ErrorSums total_;    // of the full blocks, unless they are kept
  std::vector<ErrorSums> blocks_;
  bool keeps_;
};

}  // namespace bitcube
