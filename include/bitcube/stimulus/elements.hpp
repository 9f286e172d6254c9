// Constrained-random operands of conversions and of the post-process, row by row, with what follows from them. A file
// of rows is a vector file (contract: vectors.md) that bitcube conform reads, or an image for $readmemh.
//
// Row i depends on the options and on i alone. The combinations of types, modes and controls are gone through in turn,
// so that the first rows meet each; of the strata each takes part in every combination before chance decides.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/cube/prequant.hpp"
#include "bitcube/expected.hpp"
#include "bitcube/numeric/profile.hpp"
#include "bitcube/numeric/rounding.hpp"
#include "bitcube/parallel.hpp"

namespace bitcube::stimulus {

/// What kind of operand it is: its class, or what the destination makes of it.
enum class Stratum : std::uint8_t {
  zero,
  subnormal,
  normal,
  tie,
  overflow,
  infinity,
  quiet_nan,
  signaling_nan,
  random
};

struct StratumInfo {
  Stratum stratum;
  std::string_view name;
  std::string_view meaning;
};
inline constexpr std::array<StratumInfo, 9> strata{{
    {Stratum::zero, "zero", "zeros of either sign"},
    {Stratum::subnormal, "subnormal", "operands or results below the smallest normal number"},
    {Stratum::normal, "normal", "normal numbers at and beside values of the destination"},
    {Stratum::tie, "tie", "half-way between two values of the destination"},
    {Stratum::overflow, "overflow", "finite numbers that overflow"},
    {Stratum::infinity, "inf", "infinities"},
    {Stratum::quiet_nan, "nan", "quiet NaN"},
    {Stratum::signaling_nan, "snan", "signalling NaN"},
    {Stratum::random, "random", "any encoding"},
}};
/// The stratum of this name in any case, or nullptr.
const StratumInfo* find_stratum(std::string_view name) noexcept;

/// Relative frequencies, by Stratum; 0 leaves one out.
using StratumWeights = std::array<unsigned, strata.size()>;
inline constexpr StratumWeights equal_weights{1, 1, 1, 1, 1, 1, 1, 1, 1};

enum class ElementFormat : std::uint8_t { vectors, readmemh };

struct ElementOptions {
  uint64 seed = 1;
  uint64 first = 0;  // index of the first row
  uint64 count = 10000;
  StratumWeights weights = equal_weights;
  ElementFormat format = ElementFormat::vectors;
  std::vector<Rounding> roundings{};  // empty: all
  std::vector<bool> saturate{};       // empty: both
  Execution execution{};              // progress counts rows
};

struct ConvertOptions : ElementOptions {
  std::vector<const Format*> from{};                 // empty: all
  std::vector<const Format*> to{};                   // empty: all
  std::vector<const ConversionProfile*> profiles{};  // empty: all
};

struct PostprocessVectorOptions : ElementOptions {
  std::vector<const PreQuantMode*> modes{};  // empty: all
  std::vector<Relu> relu{};                  // empty: all
  const ConversionProfile* profile = &pto_profile;
};

/// How often what was met. One that cannot be met is not in the list.
struct ElementBin {
  std::string group;
  std::string name;
  uint64 hits = 0;
};

struct ElementReport {
  uint64 rows = 0;
  std::vector<ElementBin> bins;

  std::string text() const;
  std::string json() const;
};

using TextSink = std::function<Expected<void>(std::string_view)>;

/// The team of options.execution shares the work, and rank 0 writes; all ranks have the report. Errors: no legal pair
/// of types, all weights 0, a rounding that no pair takes; those of the sink.
Expected<ElementReport> write_conversions(const ConvertOptions& options, const TextSink& sink);
Expected<ElementReport> write_postprocess(const PostprocessVectorOptions& options, const TextSink& sink);

}  // namespace bitcube::stimulus
