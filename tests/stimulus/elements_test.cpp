// Conversions and post-process elements: rows that conform reads, strata that are what they say, and images.
#include "bitcube/stimulus/elements.hpp"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "bitcube/cube/postprocess.hpp"
#include "bitcube/numeric/convert.hpp"
#include "bitcube/verify/conform.hpp"
#include "io/temp_dir.hpp"

namespace bitcube::stimulus {
namespace {

using test::TempDir;

template <typename Options>
std::pair<std::string, ElementReport> written(const Options& options) {
  std::string text;
  const TextSink sink = [&](std::string_view piece) -> Expected<void> {
    text += piece;
    return {};
  };
  Expected<ElementReport> report = [&] {
    if constexpr (std::is_same_v<Options, ConvertOptions>)
      return write_conversions(options, sink);
    else
      return write_postprocess(options, sink);
  }();
  EXPECT_TRUE(report) << report.error().message;
  return {text, report ? *report : ElementReport{}};
}
ConvertOptions conversions(uint64 count) {
  ConvertOptions o;
  o.count = count;
  return o;
}
PostprocessVectorOptions elements(uint64 count) {
  PostprocessVectorOptions o;
  o.count = count;
  return o;
}
std::vector<std::vector<std::string>> rows_of(const std::string& text, char separator) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    std::vector<std::string> cells;
    std::istringstream parts(line);
    for (std::string cell; std::getline(parts, cell, separator);) cells.push_back(cell);
    rows.push_back(cells);
  }
  return rows;
}
void expect_conforms(const std::string& text, uint64 rows, const ConversionProfile* profile) {
  const TempDir dir;
  const std::string path = dir / "rows.csv";
  test::write_text(path, text);
  const auto report = verify::conform({&path, 1}, {.profile = profile});
  ASSERT_TRUE(report);
  const verify::FileReport& f = report->files[0];
  EXPECT_FALSE(f.error) << f.error->message;
  EXPECT_EQ(f.rows, rows);
  EXPECT_EQ(f.mismatches, 0U);
}
void expect_all_hit(const ElementReport& report) {
  for (const ElementBin& b : report.bins) EXPECT_GT(b.hits, 0U) << b.group << ": " << b.name;
}

TEST(StimulusElements, ConversionsConformAndCoverEverything) {
  const auto [text, report] = written(conversions(180'000));
  expect_conforms(text, 180'000, nullptr);
  expect_all_hit(report);
}

TEST(StimulusElements, PostprocessConformsAndCoversEverything) {
  const auto [text, report] = written(elements(30'000));
  expect_conforms(text, 30'000, &pto_profile);
  expect_all_hit(report);
  // Every mode, activation and saturation, counted from the text.
  std::map<std::string, std::size_t> seen;
  for (const auto& row : rows_of(text, ',')) ++seen[row[0] + "/" + row[1] + "/" + row[2] + "/" + row[4]];
  std::size_t bins = 0;
  for (const ElementBin& b : report.bins) bins += b.group == "post-process" ? 1U : 0U;
  EXPECT_EQ(seen.size(), bins + 1);  // and the header
}

TEST(StimulusElements, StrataAreWhatTheySay) {
  ConvertOptions o = conversions(7000);
  o.from = {&fp32};
  o.to = {&fp16};
  for (const StratumInfo& s : strata) {
    o.weights.fill(0);
    o.weights[static_cast<std::size_t>(s.stratum)] = 1;
    for (const auto& row : rows_of(written(o).first, ',')) {
      if (row[0] == "profile") continue;
      const uint64 word = std::stoull(row[5], nullptr, 16);
      const Value v = decode(fp32, word);
      const uint64 magnitude = word & 0x7FFFFFFF;
      const Encoded down = convert(fp32, fp16, magnitude, {.rounding = Rounding::rtz});
      bool right = true;
      switch (s.stratum) {
        case Stratum::zero:
          right = magnitude == 0;
          break;
        case Stratum::infinity:
          right = magnitude == 0x7F800000;
          break;
        case Stratum::quiet_nan:
          right = magnitude >= 0x7FC00000;
          break;
        case Stratum::signaling_nan:
          right = magnitude > 0x7F800000 && magnitude < 0x7FC00000;
          break;
        case Stratum::overflow:
          right = v.is_finite() && magnitude > 0x477FE000;  // more than 65504
          break;
        case Stratum::subnormal:
          right = magnitude != 0 && magnitude < 0x38800000;  // less than 2^-14
          break;
        case Stratum::tie: {  // the next code down and the next up are equally far
          const Real low = decode(fp16, down.bits).real;
          const Real high = decode(fp16, down.bits + 1).real;
          const int e = std::min(low.is_zero() ? high.exponent : low.exponent, high.exponent) - 2;
          const auto at = [&](const Real& x) { return static_cast<int64>(split(x, e).quanta); };
          const Real x = decode(fp32, magnitude).real;
          right = at(x) - at(low) == at(high) - at(x) && split(x, e).remainder == Remainder::exact;
          break;
        }
        case Stratum::normal:
          right = v.is_finite() && magnitude >= 0x38800000 - 0x2000 && magnitude <= 0x477FF000;
          break;
        case Stratum::random:
          break;
      }
      ASSERT_TRUE(right) << s.name << " " << row[5];
    }
  }
}

TEST(StimulusElements, WeightsAreFrequencies) {
  ConvertOptions o = conversions(7 * 2 * 3 * 20);
  o.from = {&fp32};
  o.to = {&e4m3};
  o.weights.fill(0);
  o.weights[static_cast<std::size_t>(Stratum::quiet_nan)] = 3;
  o.weights[static_cast<std::size_t>(Stratum::zero)] = 1;
  std::size_t nan = 0;
  for (const auto& row : rows_of(written(o).first, ',')) {
    if (row[0] == "profile") continue;
    nan += decode(fp32, std::stoull(row[5], nullptr, 16)).is_nan() ? 1U : 0U;
  }
  EXPECT_EQ(nan, o.count * 3 / 4);
}

TEST(StimulusElements, Images) {
  ConvertOptions c = conversions(500);
  c.format = ElementFormat::readmemh;
  std::size_t rows = 0;
  for (const auto& row : rows_of(written(c).first, '_')) {
    if (row[0].starts_with("//")) continue;
    ++rows;
    ASSERT_EQ(row.size(), 8U);
    std::vector<uint64> n;
    for (const std::string& cell : row) n.push_back(std::stoull(cell, nullptr, 16));
    const Encoded e = convert(*find_format(static_cast<unsigned>(n[1])), *find_format(static_cast<unsigned>(n[2])),
                              n[6], {static_cast<Rounding>(n[3]), n[4] != 0, &conversion_profiles[n[0]]});
    EXPECT_EQ(e.bits, n[7]);
    EXPECT_EQ(static_cast<uint64>(e.flags), n[5]);
  }
  EXPECT_EQ(rows, 500U);
  PostprocessVectorOptions p = elements(500);
  p.format = ElementFormat::readmemh;
  for (const auto& row : rows_of(written(p).first, '_')) {
    if (row[0].starts_with("//")) continue;
    ASSERT_EQ(row.size(), 10U);
    std::vector<uint64> n;
    for (const std::string& cell : row) n.push_back(std::stoull(cell, nullptr, 16));
    const PreQuantMode& mode = *find_prequant(static_cast<unsigned>(n[0]));
    const DataType accumulator = mode.accumulator == DataType::none ? static_cast<DataType>(n[2]) : mode.accumulator;
    const Encoded e = postprocess_element({.mode = &mode,
                                           .relu = static_cast<Relu>(n[1]),
                                           .quant = unpack_quant_carrier(n[7], mode.offset_bits),
                                           .alpha = n[8],
                                           .rounding = static_cast<Rounding>(n[3]),
                                           .saturate = n[4] != 0},
                                          format_of(accumulator), n[6]);
    EXPECT_EQ(e.bits, n[9]);
    EXPECT_EQ(static_cast<uint64>(e.flags), n[5]);
  }
}

TEST(StimulusElements, ThreadsAndRangesDoNotMatter) {
  ConvertOptions o = conversions(5000);
  o.to = {&e4m3};
  const std::string whole = written(o).first;
  o.execution.threads = 1;
  EXPECT_EQ(written(o).first, whole);
  o.count = 1500;
  const std::string first = written(o).first;
  o.first = 1500;
  o.count = 3500;
  std::string rest = written(o).first;
  rest.erase(0, rest.find('\n') + 1);
  EXPECT_EQ(first + rest, whole);
  o.seed = 2;
  std::string other = written(o).first;
  other.erase(0, other.find('\n') + 1);
  EXPECT_NE(other, rest);
}

TEST(StimulusElements, BadOptions) {
  const TextSink sink = [](std::string_view) -> Expected<void> { return {}; };
  ConvertOptions o = conversions(1);
  o.from = {&fp32};
  o.to = {&e6m2};
  EXPECT_NE(write_conversions(o, sink).error().message.find("converts none"), std::string::npos);
  o.to = {&e4m3};
  o.weights.fill(0);
  EXPECT_NE(write_conversions(o, sink).error().message.find("weight"), std::string::npos);
  o.weights = equal_weights;
  o.first = ~uint64{0};
  o.count = 2;
  EXPECT_NE(write_conversions(o, sink).error().message.find("64 bits"), std::string::npos);
  PostprocessVectorOptions p = elements(1);
  p.modes = {&no_quant};
  p.saturate = {true};
  EXPECT_NE(write_postprocess(p, sink).error().message.find("no mode"), std::string::npos);
}

}  // namespace
}  // namespace bitcube::stimulus
