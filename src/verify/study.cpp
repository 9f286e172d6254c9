#include "bitcube/verify/study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "bitcube/buffer.hpp"
#include "bitcube/quantize/hif4.hpp"
#include "bitcube/quantize/mx.hpp"
#include "guarded.hpp"
#include "operands.hpp"

namespace bitcube::verify {
namespace {

// ---- Samples. Only operations that IEEE 754 rounds correctly (+ - * / sqrt) and exact ones, in a fixed order and
// never fused (-ffp-contract=off), so no libm decides a bit.

constexpr double kLn2 = 0.6931471805599453;
constexpr double kPi = 3.141592653589793;

/// ln u for u in (0, 1], to about 1e-15: u = m * 2^e with m in [sqrt(1/2), sqrt(2)), and the series of
/// 2 artanh((m - 1) / (m + 1)), whose terms fall by 34 each.
double natural_log(double u) noexcept {
  int e = 0;
  double m = std::frexp(u, &e);
  if (m < 0.7071067811865476) {
    m *= 2;
    --e;
  }
  const double t = (m - 1) / (m + 1);
  const double square = t * t;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return 2 * t * sum + e * kLn2;
}

/// cos(2 pi u) for u in [0, 1): by symmetry a sine or cosine of at most pi / 4, where Taylor series are exact to 1e-16.
double cosine_of_turn(double u) noexcept {
  if (u > 0.5) u = 1 - u;  // exact; cos is even
  const bool negative = u > 0.25;
  if (negative) u = 0.5 - u;  // cos(pi - x) = -cos(x)
  const bool sine = u > 0.125;
  if (sine) u = 0.25 - u;  // cos(pi / 2 - x) = sin(x)
  const double x = 2 * kPi * u;
  const double square = -x * x;
  double sum = 0;
  for (int k = 18; k >= 2; k -= 2) {
    const double divisor = sine ? static_cast<double>(k) * (k + 1) : static_cast<double>(k) * (k - 1);
    sum = (sum + 1) * square / divisor;
  }
  const double value = sine ? x * (1 + sum) : 1 + sum;
  return negative ? -value : value;
}

/// Uniform in [0, 1), a multiple of 2^-53. Counter-based: number `index` of stream `stream`.
double uniform(uint64 key, uint64 index) noexcept {
  return static_cast<double>(Random::mix(key + index * Random::increment) >> 11) * 0x1p-53;
}

/// Sample `index` of the standard normal distribution: Box-Muller, one of its two values.
double standard_normal(uint64 key, uint64 index) noexcept {
  const double u = 1 - uniform(key, 2 * index);  // in (0, 1]
  return std::sqrt(-2 * natural_log(u)) * cosine_of_turn(uniform(key, 2 * index + 1));
}

std::uint16_t to_bf16(double x) noexcept {
  const auto word = std::bit_cast<uint64>(x);
  return static_cast<std::uint16_t>(encode(bf16, decode(fp64, word).real, {}).bits);
}

// ---- Formats

constexpr double kInt8Largest = 127;

/// BF16 words and their values as doubles.
const std::vector<double>& bf16_values() {
  static const std::vector<double> values = [] {
    std::vector<double> list(65536);
    for (std::size_t word = 0; word < list.size(); ++word) {
      const Value v = decode(bf16, word);
      list[word] = v.is_finite() ? std::bit_cast<double>(encode(fp64, v.real, {}).bits) : std::nan("");
    }
    return list;
  }();
  return values;
}

/// Values of the codes of a small format.
std::vector<double> code_values(const Format& f) {
  std::vector<double> list(std::size_t{1} << f.lane_bits);
  for (std::size_t code = 0; code < list.size(); ++code) {
    const Value v = decode(f, code);
    if (!v.is_finite()) {
      list[code] = std::nan("");
      continue;
    }
    const double magnitude = std::bit_cast<double>(encode(fp64, v.real, {}).bits);
    list[code] = v.cls == Class::zero ? 0.0 : magnitude;
  }
  return list;
}

/// Error of some lanes.
struct Noise {
  double error = 0;   // sum of squares
  double signal = 0;  // sum of squares
  uint64 non_finite = 0;

  void add(double x, double y) noexcept {
    if (!std::isfinite(y)) {
      ++non_finite;
      return;
    }
    error += (y - x) * (y - x);
    signal += x * x;
  }
  void add(const Noise& other) noexcept {
    error += other.error;
    signal += other.signal;
    non_finite += other.non_finite;
  }
};

/// One line of the study: quantises a row of study_row lanes and returns what it costs.
struct Contender {
  std::string_view name;
  std::string_view variant;
  std::function<Noise(std::span<const std::uint16_t> row, std::uint32_t tensor_scale)> measure;
};

template <std::size_t Lanes, typename Word>
std::array<Word, Lanes> group_of(std::span<const std::uint16_t> row, std::size_t first) noexcept {
  std::array<Word, Lanes> words;
  for (std::size_t i = 0; i < Lanes; ++i) words[i] = row[first + i];
  return words;
}

Noise measure_hif4(const Hif4Profile& profile, const std::vector<double>& lanes, const std::vector<double>& scales,
                   std::span<const std::uint16_t> row) {
  const std::vector<double>& values = bf16_values();
  Noise noise;
  for (std::size_t first = 0; first < row.size(); first += hif4_group_lanes) {
    const auto words = group_of<hif4_group_lanes, std::uint32_t>(row, first);
    const Hif4Group g = quantize_hif4_group(bf16, words, profile);
    for (std::size_t q = 0; q < words.size(); ++q) {
      const double scale = scales[g.e6m2] * (1 << hif4_micro_exponent(g.scale_word, q));
      noise.add(values[words[q]], lanes[g.codes[q]] * scale);
    }
  }
  return noise;
}

Noise measure_mx(const Format& element, ScaleRounding rule, const std::vector<double>& lanes,
                 const std::vector<double>& scales, std::span<const std::uint16_t> row) {
  const std::vector<double>& values = bf16_values();
  Noise noise;
  for (std::size_t first = 0; first < row.size(); first += mx_group_lanes) {
    const auto words = group_of<mx_group_lanes, uint64>(row, first);
    const MxGroup g = quantize_mx_group(element, bf16, words, rule);
    for (std::size_t i = 0; i < words.size(); ++i) noise.add(values[words[i]], lanes[g.codes[i]] * scales[g.scale]);
  }
  return noise;
}

Noise measure_nvfp4(const std::vector<double>& lanes, const std::vector<double>& scales, std::uint32_t tensor_scale,
                    std::span<const std::uint16_t> row) {
  const std::vector<double>& values = bf16_values();
  const double unit = static_cast<double>(std::bit_cast<float>(tensor_scale));
  Noise noise;
  for (std::size_t first = 0; first < row.size(); first += nvfp4_group_lanes) {
    const auto words = group_of<nvfp4_group_lanes, uint64>(row, first);
    const MxGroup g = quantize_nvfp4_group(bf16, words, tensor_scale);
    for (std::size_t i = 0; i < words.size(); ++i) {
      noise.add(values[words[i]], lanes[g.codes[i]] * (scales[g.scale] * unit));
    }
  }
  return noise;
}

/// TCVT of each value by itself. `converted`: the value of what each BF16 word becomes.
Noise measure_unscaled(const std::vector<double>& converted, std::span<const std::uint16_t> row) {
  const std::vector<double>& values = bf16_values();
  Noise noise;
  for (const std::uint16_t word : row) noise.add(values[word], converted[word]);
  return noise;
}

/// Symmetric INT8: one scale amax / 127 for the row, codes rounded to the nearest even integer.
Noise measure_int8(std::span<const std::uint16_t> row) {
  const std::vector<double>& values = bf16_values();
  double largest = 0;
  for (const std::uint16_t word : row) largest = std::max(largest, std::abs(values[word]));
  const double scale = largest / kInt8Largest;
  Noise noise;
  for (const std::uint16_t word : row) {
    const double x = values[word];
    // Adding 1.5 * 2^52 rounds to the nearest integer, ties to even.
    const double quantised = scale == 0 ? 0 : (x / scale + 0x1.8p52) - 0x1.8p52;
    noise.add(x, quantised * scale);
  }
  return noise;
}

std::vector<Contender> contenders() {
  std::vector<Contender> list;
  list.reserve(hif4_profiles.size() + scale_rules.size() + 8);
  const std::vector<double> e8m0_values = code_values(e8m0);
  const std::vector<double> e4m3_values = code_values(e4m3);
  for (const Hif4Profile& profile : hif4_profiles) {
    list.push_back({"hif4", profile.name,
                    [&profile, lanes = code_values(hif4), scales = code_values(e6m2)](auto row, std::uint32_t) {
                      return measure_hif4(profile, lanes, scales, row);
                    }});
  }
  const auto add_mx = [&](std::string_view name, DataType type, const ScaleRule& rule) {
    const Format& element = format_of(type);
    list.push_back({name, rule.name,
                    [&element, &rule, lanes = code_values(element), scales = e8m0_values](auto row, std::uint32_t) {
                      return measure_mx(element, rule.rounding, lanes, scales, row);
                    }});
  };
  for (const ScaleRule& rule : scale_rules) add_mx("mxfp4", DataType::e2m1x2, rule);
  const auto add_nvfp4 = [&](std::string_view variant, bool tensor) {
    list.push_back({"nvfp4", variant,
                    [tensor, lanes = code_values(e2m1), scales = e4m3_values](auto row, std::uint32_t tensor_scale) {
                      return measure_nvfp4(lanes, scales, tensor ? tensor_scale : 0x3F800000, row);
                    }});
  };
  add_nvfp4("tensor scale", true);
  add_nvfp4("no tensor scale", false);
  add_mx("mxfp6-e3m2", DataType::e3m2, scale_rules[0]);
  add_mx("mxfp6-e2m3", DataType::e2m3, scale_rules[0]);
  add_mx("mxfp8-e4m3", DataType::e4m3, scale_rules[0]);
  add_mx("mxfp8-e5m2", DataType::e5m2, scale_rules[0]);
  const Format& hif8 = format_of(DataType::hif8);
  std::vector<double> converted(65536);
  const std::vector<double> hif8_values = code_values(hif8);
  for (std::size_t word = 0; word < converted.size(); ++word) {
    converted[word] = hif8_values[convert(bf16, hif8, word, {}).bits];
  }
  list.push_back(
      {"hif8", "unscaled", [converted](auto row, std::uint32_t) { return measure_unscaled(converted, row); }});
  list.push_back({"int8", "row scale", [](auto row, std::uint32_t) { return measure_int8(row); }});
  return list;
}

// ---- The study

/// All contenders on the samples of one sigma.
void run_sigma(std::size_t x, const StudyOptions& options, std::span<const Contender> list,
               const std::function<void()>& row_done, Study& study) {
  const auto rows = static_cast<std::size_t>(options.samples / study_row);
  Buffer<std::uint16_t> samples(static_cast<std::size_t>(options.samples));
  const Execution quiet = options.execution.quiet();
  std::vector<std::uint16_t> largest(rows);  // magnitudes of BF16 order as their words do
  parallel_for(rows, quiet, [&](std::size_t r) {
    const auto row = gaussian_bf16(options.seed, x, r * study_row, study_row);
    for (const std::uint16_t word : row) largest[r] = std::max<std::uint16_t>(largest[r], word & 0x7FFF);
    std::copy(row.begin(), row.end(), samples.data() + r * study_row);
  });
  const std::uint32_t tensor_scale = nvfp4_tensor_scale(decode(bf16, std::ranges::max(largest)).real);

  std::vector<Noise> noise(rows * list.size());
  parallel_for(rows, quiet, [&](std::size_t r) {
    const std::span<const std::uint16_t> row(samples.data() + r * study_row, study_row);
    for (std::size_t i = 0; i < list.size(); ++i) noise[r * list.size() + i] = list[i].measure(row, tensor_scale);
    row_done();
  });
  const double variance = study_sigma(x) * study_sigma(x);
  for (std::size_t i = 0; i < list.size(); ++i) {
    Noise total;
    for (std::size_t r = 0; r < rows; ++r)
      total.add(noise[r * list.size() + i]);  // in order, whatever thread made which
    const auto finite = static_cast<double>(options.samples - total.non_finite);
    study.formats[i].points[x] = {.relative_error = total.error / finite / variance,
                                  .sqnr = 10 * std::log10(total.signal / total.error),
                                  .non_finite = total.non_finite};
  }
}

/// Evaluates one published number.
template <typename Value>
StudyCheck check(std::string statement, double expected, double tolerance, uint64 samples, const Value& value) {
  StudyCheck c{.statement = std::move(statement), .expected = expected, .tolerance = tolerance};
  c.least = c.largest = value(0);
  for (std::size_t x = 0; x < study_sigmas; ++x) {
    c.mean += value(x) / static_cast<double>(study_sigmas);
    c.least = std::min(c.least, value(x));
    c.largest = std::max(c.largest, value(x));
  }
  const auto near = [&](double number) { return std::abs(number - expected) <= tolerance; };
  c.holds = near(c.mean) && (samples < study_check_samples || (near(c.least) && near(c.largest)));
  return c;
}

/// The checks of profiles 1, for both profiles that they are stated for.
void add_checks(Study& study) {
  for (const std::string_view profile : {"pto", "paper"}) {
    const StudyFormat& hif4 = *study.find("hif4", profile);
    const auto ratio_to = [&](const StudyFormat& other) {
      return [&](std::size_t x) { return other.points[x].relative_error / hif4.points[x].relative_error; };
    };
    study.checks.push_back(check(fmt::format("MSE(HiF4 {})/sigma^2 = 0.0069 +- 0.0001", profile), 0.0069, 0.0001,
                                 study.samples, [&](std::size_t x) { return hif4.points[x].relative_error; }));
    study.checks.push_back(check(fmt::format("MSE(NVFP4 with tensor scale)/MSE(HiF4 {}) = 1.315 +- 0.01", profile),
                                 1.315, 0.01, study.samples, ratio_to(*study.find("nvfp4", "tensor scale"))));
    study.checks.push_back(check(fmt::format("MSE(MXFP4 floor)/MSE(HiF4 {}) = 1.89 +- 0.03", profile), 1.89, 0.03,
                                 study.samples, ratio_to(*study.find("mxfp4", "floor"))));
  }
}

Study run(const StudyOptions& options) {
  const std::vector<Contender> list = contenders();
  Study study{.samples = options.samples, .seed = options.seed, .formats = {}, .checks = {}};
  for (const Contender& contender : list)
    study.formats.push_back({.name = contender.name, .variant = contender.variant});
  const auto total = static_cast<std::size_t>(options.samples / study_row * study_sigmas);
  std::atomic<std::size_t> done{0};
  const auto row_done = [&] {
    const std::size_t finished = done.fetch_add(1, std::memory_order_relaxed) + 1;
    if (options.execution.progress) options.execution.progress(finished, total);
  };
  for (std::size_t x = 0; x < study_sigmas; ++x) run_sigma(x, options, list, row_done, study);
  for (StudyFormat& format : study.formats) {
    double sum = 0;
    for (const StudyPoint& point : format.points) sum += point.relative_error;
    format.mean_relative_error = sum / static_cast<double>(study_sigmas);
  }
  add_checks(study);
  return study;
}

}  // namespace

double study_sigma(std::size_t x) noexcept {
  return std::ldexp(0.01, static_cast<int>(x));
}

std::vector<std::uint16_t> gaussian_bf16(uint64 seed, std::size_t x, uint64 first, std::size_t count) {
  const uint64 key = Random::mix(seed + Random::mix(x + 1));
  const double sigma = study_sigma(x);
  std::vector<std::uint16_t> words(count);
  for (std::size_t i = 0; i < count; ++i) words[i] = to_bf16(sigma * standard_normal(key, first + i));
  return words;
}

std::string StudyFormat::title() const {
  return variant.empty() ? std::string(name) : fmt::format("{} ({})", name, variant);
}

bool Study::holds() const noexcept {
  return std::all_of(checks.begin(), checks.end(), [](const StudyCheck& check) { return check.holds; });
}

const StudyFormat* Study::find(std::string_view name, std::string_view variant) const noexcept {
  const auto found = std::find_if(formats.begin(), formats.end(), [&](const StudyFormat& format) {
    return format.name == name && format.variant == variant;
  });
  return found == formats.end() ? nullptr : &*found;
}

Expected<Study> study_gaussian(const StudyOptions& options) {
  constexpr uint64 most = uint64{1} << 32;
  if (options.samples == 0 || options.samples % study_row != 0 || options.samples > most) {
    return Error{fmt::format("samples: {} is no multiple of {} from {} to {}: rows have {} lanes", options.samples,
                             study_row, study_row, most, study_row)};
  }
  return guarded("study", [&]() -> Expected<Study> { return run(options); });
}

}  // namespace bitcube::verify
