// Classes, distances and patterns of a comparison, against the oracle's tables of values and counts by hand.
#include "bitcube/compare/compare.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <tuple>

#include "bitcube/numeric/decode.hpp"
#include "oracle/oracle.hpp"

namespace bitcube::test {
namespace {

namespace oracle = bitcube_oracle;

bool is_nan_or_invalid(oracle::Class c) {
  return c == oracle::Class::QuietNaN || c == oracle::Class::SignalingNaN || c == oracle::Class::Invalid;
}

/// Every code of a format of at most 8 bits in the order of its values, equal values together, by the oracle alone.
struct Order {
  std::vector<std::optional<int>> rank;  // of a code; nothing for NaN

  explicit Order(int type, unsigned codes) : rank(codes) {
    std::vector<std::pair<mpq_class, unsigned>> finite;
    std::vector<unsigned> low;
    std::vector<unsigned> high;
    for (unsigned code = 0; code < codes; ++code) {
      const oracle::Class c = oracle::classify(type, code);
      if (is_nan_or_invalid(c)) continue;
      if (c == oracle::Class::PositiveInfinity) {
        high.push_back(code);
      } else if (c == oracle::Class::NegativeInfinity) {
        low.push_back(code);
      } else {
        finite.emplace_back(oracle::value_of(type, code)->value(), code);
      }
    }
    std::sort(finite.begin(), finite.end());
    int next = 0;
    for (const unsigned code : low) rank[code] = -1;
    for (std::size_t i = 0; i < finite.size(); ++i) {
      if (i != 0 && finite[i].first != finite[i - 1].first) ++next;
      rank[finite[i].second] = next;
    }
    for (const unsigned code : high) rank[code] = next + 1;
  }
};

TEST(UlpDistance, CountsTheValuesOfEverySmallFormat) {
  for (const Format& f : formats) {
    if (f.lane_bits > 8) continue;
    const unsigned codes = 1U << f.lane_bits;
    const Order order(static_cast<int>(f.type), codes);
    for (unsigned a = 0; a < codes; ++a) {
      for (unsigned b = 0; b < codes; ++b) {
        const auto distance = ulp_distance(f, a, b);
        ASSERT_EQ(distance.has_value(), order.rank[a] && order.rank[b]) << f.name << " " << a << " " << b;
        if (distance) {
          ASSERT_EQ(*distance, static_cast<uint64>(std::abs(*order.rank[a] - *order.rank[b])))
              << f.name << " " << a << " " << b;
        }
      }
    }
  }
}

TEST(UlpDistance, OfWideFormatsStepsThroughNeighbours) {
  for (const Format* f : {&fp16, &bf16}) {
    // All finite codes from the lowest to the highest value: neighbours are 1 apart, and from -0 to +0 it is 0.
    for (unsigned code = 0x8000; code < 0x8000 + f->infinity; ++code) EXPECT_EQ(ulp_distance(*f, code, code + 1), 1U);
    for (unsigned code = 0; code < f->infinity; ++code) EXPECT_EQ(ulp_distance(*f, code, code + 1), 1U);
    EXPECT_EQ(ulp_distance(*f, 0x8000, 0), 0U);
    EXPECT_EQ(ulp_distance(*f, 0x8001, 0x0001), 2U);
    EXPECT_FALSE(ulp_distance(*f, f->canonical_nan, 0));
  }
  EXPECT_EQ(ulp_distance(fp64, 0x7FF0000000000000, 0xFFF0000000000000), 2 * uint64{0x7FF0000000000000});
  EXPECT_EQ(ulp_distance(format_of(DataType::s64), 0x7FFFFFFFFFFFFFFF, 0x8000000000000000), ~uint64{0});
  EXPECT_EQ(ulp_distance(format_of(DataType::u64), 0, ~uint64{0}), ~uint64{0});
  EXPECT_EQ(ulp_distance(format_of(DataType::tf32), 0x3F800000, 0x3F802000), 1U);
}

TEST(DifferenceOf, KnowsEveryClass) {
  const auto f = [](std::uint32_t a, std::uint32_t b) { return difference_of(fp32, a, b); };
  EXPECT_EQ(f(0x3F800000, 0x3F800000), Difference::equal);
  EXPECT_EQ(f(0, 0x80000000), Difference::zero_sign);
  EXPECT_EQ(f(0x7FC00000, 0x7FC00001), Difference::nan_payload);
  EXPECT_EQ(f(0x3F800000, 0x3F800001), Difference::one_ulp);
  EXPECT_EQ(f(0x3F800000, 0x3F7FFFFF), Difference::one_ulp);
  EXPECT_EQ(f(0x3F800000, 0x3F800004), Difference::few_ulps);
  EXPECT_EQ(f(0x3F800000, 0x3F800005), Difference::some_ulps);
  EXPECT_EQ(f(0x3F800000, 0x3F800040), Difference::some_ulps);
  EXPECT_EQ(f(0x3F800000, 0x3F800041), Difference::many_ulps);
  EXPECT_EQ(f(0x3F800000, 0x40000000), Difference::many_ulps);
  EXPECT_EQ(f(0x3F800000, 0x40000001), Difference::wild);
  EXPECT_EQ(f(0x3F800000, 0xBF800000), Difference::sign);
  EXPECT_EQ(f(0x3F800000, 0xBF800001), Difference::wild);
  EXPECT_EQ(f(0x3F800000, 0x7F800000), Difference::infinity);
  EXPECT_EQ(f(0xFF800000, 0x7F800000), Difference::infinity);
  EXPECT_EQ(f(0x3F800000, 0x7FC00000), Difference::nan);
}

using Bytes = std::vector<std::byte>;

struct Matrix {
  const Format* format;
  uint64 rows;
  uint64 columns;
  Bytes golden;
  Bytes dut;

  Matrix(const Format& f, uint64 r, uint64 c) : format(&f), rows(r), columns(c), golden(r * c * f.carrier_bits / 8) {
    std::mt19937 random(7);
    for (std::byte& b : golden) b = static_cast<std::byte>(random() % 0x70 + 1);
    dut = golden;
  }
  void change(uint64 row, uint64 column) { dut[(row * columns + column) * format->carrier_bits / 8] ^= std::byte{1}; }
  Comparison compared(CompareOptions options = {}) const {
    ComparedPart part{"result", PartRole::result, format, {rows, columns}, false, golden, dut, 0};
    auto c = compare(part, options);
    EXPECT_TRUE(c) << c.error().message;
    return std::move(*c);
  }
  std::string pattern(const std::string& id) const {
    for (const Pattern& p : compared().patterns) {
      if (p.id == id) return p.text;
    }
    return "";
  }
};

const Format& u8 = format_of(DataType::u8);

TEST(Compare, CountsAgreeWithALoop) {
  Matrix m(fp32, 300, 1000);
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) m.dut[random() % m.dut.size()] ^= static_cast<std::byte>(1U << (random() % 8));
  const Comparison c = m.compared({.first = 20, .worst = 3});
  uint64 mismatches = 0;
  std::vector<uint64> rows(300);
  std::vector<uint64> columns(1000);
  std::array<uint64, difference_classes.size()> classes{};
  std::vector<uint64> ulps(33);
  uint64 most = 0;
  std::vector<uint64> first;
  for (uint64 i = 0; i < 300 * 1000; ++i) {
    std::uint32_t g = 0;
    std::uint32_t d = 0;
    std::memcpy(&g, m.golden.data() + 4 * i, 4);
    std::memcpy(&d, m.dut.data() + 4 * i, 4);
    ++classes[static_cast<std::size_t>(difference_of(fp32, g, d))];
    float x = 0;
    float y = 0;
    std::memcpy(&x, &g, 4);
    std::memcpy(&y, &d, 4);
    if (x == x && y == y) {
      const std::int64_t p = (g >> 31) != 0 ? -static_cast<std::int64_t>(g & 0x7FFFFFFF) : g;
      const std::int64_t q = (d >> 31) != 0 ? -static_cast<std::int64_t>(d & 0x7FFFFFFF) : d;
      uint64 distance = static_cast<uint64>(std::abs(p - q));
      most = std::max(most, distance);
      unsigned bin = 0;
      for (; distance != 0; distance /= 2) ++bin;
      ++ulps[bin];
    }
    if (g == d) continue;
    ++mismatches;
    ++rows[i / 1000];
    ++columns[i % 1000];
    if (first.size() < 20) first.push_back(i);
  }
  EXPECT_EQ(c.mismatches, mismatches);
  EXPECT_EQ(c.classes, classes);
  EXPECT_EQ(c.per_row, rows);
  EXPECT_EQ(c.per_column, columns);
  EXPECT_EQ(c.rows_touched,
            static_cast<uint64>(std::count_if(rows.begin(), rows.end(), [](uint64 n) { return n != 0; })));
  for (std::size_t i = 0; i < c.ulps.size(); ++i) EXPECT_EQ(c.ulps[i].count, ulps[i]) << i;
  EXPECT_EQ(c.most_ulps, most);
  ASSERT_EQ(c.first.size(), 20U);
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(c.first[i].index, first[i]);
    EXPECT_EQ(c.first[i].at, (std::vector<uint64>{first[i] / 1000, first[i] % 1000}));
  }
  // The worst: wildest class, then most ulp, then the first.
  std::vector<std::tuple<int, uint64, uint64>> order;
  for (uint64 i = 0; i < 300 * 1000; ++i) {
    std::uint32_t g = 0;
    std::uint32_t d = 0;
    std::memcpy(&g, m.golden.data() + 4 * i, 4);
    std::memcpy(&d, m.dut.data() + 4 * i, 4);
    if (g == d) continue;
    order.emplace_back(-static_cast<int>(difference_of(fp32, g, d)), ~ulp_distance(fp32, g, d).value_or(0), i);
  }
  std::sort(order.begin(), order.end());
  ASSERT_EQ(c.worst.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(c.worst[i].index, std::get<2>(order[i]));
  uint64 sum = 0;
  for (const uint64 n : c.map.mismatches) sum += n;
  EXPECT_EQ(sum, mismatches);
  EXPECT_LE(c.map.rows, 64U);
  EXPECT_LE(c.map.columns, 64U);
}

TEST(Compare, ResultsDoNotDependOnThreads) {
  Matrix m(u8, 1000, 1024);
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) m.dut[random() % m.dut.size()] ^= std::byte{2};
  const Comparison one = m.compared({.execution = {.threads = 1}});
  const Comparison two = m.compared({.execution = {.threads = 2}});
  EXPECT_EQ(one.classes, two.classes);
  EXPECT_EQ(one.per_column, two.per_column);
  EXPECT_EQ(one.rows_touched, two.rows_touched);
  for (std::size_t i = 0; i < one.worst.size(); ++i) EXPECT_EQ(one.worst[i].index, two.worst[i].index);
}

TEST(Compare, FindsOneRowColumnGroupAndBlock) {
  Matrix row(u8, 64, 256);
  for (uint64 c = 3; c < 256; c += 5) row.change(17, c);
  EXPECT_EQ(row.pattern("row"), "all in row 17 of 64");
  Matrix column(u8, 64, 256);
  for (uint64 r = 1; r < 64; r += 3) column.change(r, 200);
  EXPECT_EQ(column.pattern("column"), "all in column 200 of 256");
  Matrix group(u8, 64, 256);
  for (uint64 c = 48; c < 64; c += 2) group.change(5, c);
  EXPECT_EQ(group.pattern("group"), "all in one group of 16 lanes: row 5, group 3, columns 48 to 63");
  Matrix block(u8, 64, 256);
  for (uint64 r = 32; r < 48; ++r) {
    for (uint64 c = 128; c < 160; ++c) block.change(r, c);
  }
  EXPECT_EQ(block.pattern("block"), "all in rows 32 to 47, columns 128 to 159, from a boundary of 32");
  Matrix few(u8, 64, 256);
  for (uint64 c = 0; c < 256; c += 3) {
    few.change(2, c);
    few.change(40, c);
  }
  EXPECT_EQ(few.pattern("rows"), "all in 2 of 64 rows: 2, 40");
}

TEST(Compare, FindsPeriods) {
  Matrix odd(u8, 64, 256);
  Matrix boundary(u8, 64, 256);
  Matrix half(u8, 64, 256);
  std::mt19937 random(1);
  for (int i = 0; i < 900; ++i) {
    const uint64 r = random() % 64;
    const uint64 c = random() % 256;
    odd.dut[r * 256 + (c | 1)] ^= std::byte{4};
    half.dut[r * 256 + (c | 32)] ^= std::byte{4};
    const uint64 b = c / 16 * 16 + (random() % 2) * 15;
    boundary.dut[r * 256 + b] ^= std::byte{4};
  }
  EXPECT_EQ(odd.pattern("parity"), "only odd columns");
  EXPECT_EQ(half.pattern("period"), "only columns 32 to 63 of every 64");
  EXPECT_EQ(boundary.pattern("boundary"), "only columns next to a boundary of 16");
}

TEST(Compare, WarnsOfTrivialResults) {
  const auto warnings = [](std::byte golden, std::byte dut, const Format& f) {
    Matrix m(f, 8, 8);
    std::fill(m.golden.begin(), m.golden.end(), golden);
    std::fill(m.dut.begin(), m.dut.end(), dut);
    return m.compared().warnings;
  };
  EXPECT_EQ(warnings(std::byte{0}, std::byte{0}, e4m3)[0].substr(0, 18), "GOLDEN is all zero");
  EXPECT_EQ(warnings(std::byte{0}, std::byte{0x7F}, e4m3)[1].substr(0, 14), "DUT is all NaN");
  EXPECT_EQ(warnings(std::byte{0x38}, std::byte{0x38}, e4m3)[0].substr(0, 23), "GOLDEN is 0x38 everywhe");
  EXPECT_TRUE(Matrix(e4m3, 8, 8).compared().warnings.empty());
}

TEST(Compare, TolerancesCountElementsOnly) {
  Matrix m(u8, 8, 8);
  m.dut[3] = static_cast<std::byte>(std::to_integer<unsigned>(m.golden[3]) + 3);
  m.dut[9] = static_cast<std::byte>(std::to_integer<unsigned>(m.golden[9]) + 5);
  EXPECT_FALSE(m.compared().passes());
  EXPECT_FALSE(m.compared().outside);
  const Comparison ulps = m.compared({.tolerance = {.ulps = 3}});
  EXPECT_EQ(ulps.mismatches, 2U);
  EXPECT_EQ(ulps.outside, 1U);
  EXPECT_FALSE(ulps.passes());
  EXPECT_TRUE(m.compared({.tolerance = {.ulps = 5}}).passes());
  EXPECT_TRUE(m.compared({.tolerance = {.absolute = 5.0}}).passes());
  EXPECT_FALSE(m.compared({.tolerance = {.absolute = 4.9}}).passes());
}

TEST(Compare, PackedLinesOfOddLength) {
  const Format& f = format_of(DataType::e2m1x2);
  // Two lines of 3 lanes take 2 bytes each.
  const Bytes golden{std::byte{0x21}, std::byte{0x03}, std::byte{0x54}, std::byte{0x06}};
  Bytes dut = golden;
  ComparedPart part{"codes", PartRole::codes, &f, {2, 3}, true, golden, dut, 0};
  dut[2] = std::byte{0x74};  // lane (1, 1)
  Comparison c = *compare(part);
  ASSERT_EQ(c.mismatches, 1U);
  EXPECT_EQ(c.first[0].at, (std::vector<uint64>{1, 1}));
  EXPECT_EQ(c.first[0].golden, 5U);
  EXPECT_EQ(c.first[0].dut, 7U);
  dut = golden;
  dut[1] = std::byte{0x93};  // no lane
  c = *compare(part);
  EXPECT_EQ(c.mismatches, 0U);
  EXPECT_EQ(c.warnings.size(), 1U);
}

TEST(Compare, RefusesWrongSizes) {
  const Matrix m(u8, 8, 8);
  ComparedPart part{"result", PartRole::result, &u8, {8, 9}, false, m.golden, m.dut, 0};
  EXPECT_FALSE(compare(part));
  part.shape = {uint64{1} << 40, uint64{1} << 40};
  EXPECT_FALSE(compare(part));
  part.shape = {};
  EXPECT_FALSE(compare(part));
  part.shape = {8, 8};
  EXPECT_TRUE(compare(part));
  part.packed = true;
  EXPECT_FALSE(compare(part));
}

TEST(UndoLayout, PutsEveryElementBack) {
  for (const machine::TileLayout layout : machine::tile_layouts) {
    Matrix m(fp16, 64, 64);
    const ComparedPart part{"result", PartRole::result, &fp16, {64, 64}, false, m.golden, m.dut, 0};
    Bytes stored(m.golden.size());
    for (std::uint32_t r = 0; r < 64; ++r) {
      for (std::uint32_t c = 0; c < 64; ++c) {
        std::size_t at = 0;
        if (!machine::is_cube(layout)) {
          at = machine::ordinary_index(layout, 16, 64, 64, r, c);
        } else {
          const auto cell = *machine::cell_shape(layout, 16);
          at = machine::cube_index(layout, 16,
                                   layout == machine::TileLayout::cube_n8 ? 64 / cell.rows : 64 / cell.columns, r, c);
        }
        std::memcpy(stored.data() + 2 * at, m.golden.data() + 2 * (r * 64 + c), 2);
      }
    }
    const auto undone = undo_layout(part, stored, layout);
    ASSERT_TRUE(undone) << machine::name_of(layout);
    EXPECT_EQ(*undone, m.golden) << machine::name_of(layout);
  }
}

}  // namespace
}  // namespace bitcube::test
