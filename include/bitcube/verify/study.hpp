// The Gaussian study: how much of a normal distribution each format keeps (profiles 1, checks).
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/numeric/bits.hpp"
#include "bitcube/parallel.hpp"

namespace bitcube::verify {

/// Standard deviations of the study: 0.01 * 2^x for x = 0 to 17.
inline constexpr std::size_t study_sigmas = 18;
double study_sigma(std::size_t x) noexcept;

/// Lanes of one row of the samples: the quantised axis, and what shares one scale in INT8.
inline constexpr uint64 study_row = 4096;

/// The BF16 words of `count` samples of N(0, sigma^2), sigma = study_sigma(x), from `first` on. Sample i is a function
/// of seed, x and i: Box-Muller on counter-based uniform numbers, with logarithm and sine of its own that use only
/// IEEE 754 double arithmetic, so that the words are the same on every machine and never depend on a libm.
std::vector<std::uint16_t> gaussian_bf16(uint64 seed, std::size_t x, uint64 first, std::size_t count);

/// One format at one sigma.
struct StudyPoint {
  double relative_error = 0;  // MSE / sigma^2
  double sqnr = 0;            // dB
  uint64 non_finite = 0;      // lanes that became NaN or infinite; left out of the others
};

struct StudyFormat {
  std::string_view name;     // of the block format, hif8 or int8
  std::string_view variant;  // profile, scale rule, tensor scale
  std::array<StudyPoint, study_sigmas> points{};
  double mean_relative_error = 0;  // over the sigmas

  std::string title() const;
};

/// A published number, held against the study. The tolerances are stated for 2^22 samples, and then hold at every
/// sigma; with fewer samples a single sigma may be outside by chance, so only the mean over the sigmas counts.
struct StudyCheck {
  std::string statement;  // "MSE(HiF4 pto)/sigma^2 = 0.0069 +- 0.0001"
  double expected = 0;
  double tolerance = 0;
  double mean = 0;  // over the sigmas
  double least = 0;
  double largest = 0;
  bool holds = false;
};
inline constexpr uint64 study_check_samples = uint64{1} << 22;

struct Study {
  uint64 samples = 0;  // per sigma
  uint64 seed = 0;
  std::vector<StudyFormat> formats;
  std::vector<StudyCheck> checks;

  bool holds() const noexcept;
  /// nullptr if there is none.
  const StudyFormat* find(std::string_view name, std::string_view variant) const noexcept;
};

struct StudyOptions {
  uint64 samples = study_check_samples;  // per sigma, a multiple of study_row
  uint64 seed = 1;
  Execution execution{};
};

/// Quantises the samples of every sigma into every format and measures the error. The numbers are statistics in double
/// precision; they do not depend on the thread count. Errors: a number of samples that fills no whole rows, no memory.
Expected<Study> study_gaussian(const StudyOptions& options = {});

}  // namespace bitcube::verify
