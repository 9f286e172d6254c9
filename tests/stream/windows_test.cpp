// Windows cover a tensor once, in the promised order, and are as small as they must be.
#include "stream/windows.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "io/temp_dir.hpp"

namespace bitcube::stream {
namespace {

using Shape = std::vector<uint64>;

Lines lines_of(const Shape& shape, std::size_t axis) {
  Lines lines;
  EXPECT_TRUE(bitcube::lines_of(shape, axis, lines));
  return lines;
}

const std::vector<Shape> kShapes{{1},         {7},        {200},         {5, 9},       {9, 5},         {3, 70, 4},
                                 {2, 3, 130}, {65, 1, 3}, {1, 1, 1},     {2, 2, 2, 2}, {4, 0, 3},      {0},
                                 {1, 64, 64}, {100, 2},   {2, 32, 5, 3}, {33, 64, 2},  {6, 1000, 1, 2}};
constexpr std::array<uint64, 10> kMost{1, 2, 15, 16, 33, 64, 100, 1000, 5000, 1000000};

/// Calls body(lines, group, most) for many of each.
template <typename Body>
void for_many(const Body& body) {
  for (const Shape& shape : kShapes) {
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      for (const unsigned group : {16U, 32U, 64U}) {
        for (const uint64 most : kMost) {
          SCOPED_TRACE(testing::Message()
                       << testing::PrintToString(shape) << " axis " << axis << " group " << group << " most " << most);
          body(lines_of(shape, axis), group, most);
        }
      }
    }
  }
}

/// The elements of all windows, each once; and the windows keep what is said of every one.
std::vector<uint64> covered(const Lines& lines, unsigned group, uint64 most, const std::vector<Window>& windows) {
  std::vector<uint64> elements;
  for (const Window& w : windows) {
    EXPECT_GT(w.elements(), 0U);
    EXPECT_LE(w.elements(), std::max<uint64>(most, std::min<uint64>(group, lines.length)));
    EXPECT_EQ(w.lane % group, 0U);
    EXPECT_TRUE(w.lane + w.lanes == lines.length || w.lanes % group == 0);
    EXPECT_TRUE(w.outers == 1 || (w.lanes == lines.length && w.inners == lines.inner));
    for (uint64 i = 0; i < w.elements(); ++i) elements.push_back(w.element(lines, i));
  }
  return elements;
}

TEST(Windows, InLineOrder) {
  for_many([](const Lines& lines, unsigned group, uint64 most) {
    std::vector<Window> windows;
    ASSERT_TRUE(for_each_in_line_order(lines, group, most, [&](const Window& w) -> Expected<void> {
      windows.push_back(w);
      return {};
    }));
    std::vector<uint64> elements = covered(lines, group, most, windows);
    std::sort(elements.begin(), elements.end());
    std::vector<uint64> all(lines.elements());
    for (uint64 i = 0; i < all.size(); ++i) all[i] = i;
    ASSERT_EQ(elements, all);

    uint64 lane = 0;  // that comes next, counted along the lines
    for (const Window& w : windows) {
      ASSERT_EQ(w.line(lines) * lines.length + w.lane, lane);
      ASSERT_TRUE(w.lanes == lines.length || w.outers * w.inners == 1) << "parts of several lines";
      lane += w.elements();
    }
  });
}

/// Panels follow each other, and each but the last has whole blocks: sums of blocks do not depend on them.
TEST(Windows, PanelsAreWholeBlocks) {
  for (const uint64 block : {1U, 4U, 6U, 512U}) {
    for_many([&](const Lines& lines, unsigned group, uint64 most) {
      const uint64 per_line = (lines.length + group - 1) / group;
      uint64 next_line = 0;
      uint64 next_lane = 0;
      uint64 groups = 0;
      for (const Panel& panel : panels_of(lines, group, block, most)) {
        EXPECT_EQ(groups % block, 0U);
        const auto use = [&](const Window& part) -> Expected<void> {
          const Window w = panel.place(part);
          EXPECT_EQ(w.line(lines), next_line);
          EXPECT_EQ(w.lane, next_lane);
          next_lane = (w.lane + w.lanes) % lines.length;
          if (next_lane == 0) next_line += w.outers * w.inners;
          groups += w.outers * w.inners * ((w.lanes + group - 1) / group);
          return {};
        };
        EXPECT_TRUE(for_each_in_line_order(panel.lines(), group, 5000, use));
      }
      EXPECT_EQ(next_line, lines.count);
      EXPECT_EQ(groups, lines.count * per_line);
    });
  }
}

TEST(Windows, PanelsHaveAboutTheirSize) {
  // 4096 lanes are 64 groups, so 8 lines are a block.
  EXPECT_EQ(panels_of(lines_of({800, 4096}, 1), 64, 512, 20 * 4096).size(), 34U);
  EXPECT_EQ(panels_of(lines_of({4096, 800}, 0), 64, 512, 20 * 4096).size(), 34U);
  EXPECT_EQ(panels_of(lines_of({10, 4096, 80}, 1), 64, 512, 1).size(), 10U);
  EXPECT_EQ(panels_of(lines_of({1 << 20}, 0), 64, 512, 1 << 18).size(), 4U);
}

TEST(Windows, InMemoryOrder) {
  for_many([](const Lines& lines, unsigned group, uint64 most) {
    std::vector<Window> windows;
    ASSERT_TRUE(for_each_in_memory_order(lines, group, most, [&](const Window& w) -> Expected<void> {
      windows.push_back(w);
      return {};
    }));
    std::vector<uint64> elements = covered(lines, group, most, windows);
    const bool in_order = most >= lines.inner * std::min<uint64>(group, lines.length);
    if (in_order) {
      EXPECT_TRUE(std::is_sorted(elements.begin(), elements.end()));
    }
    std::sort(elements.begin(), elements.end());
    std::vector<uint64> all(lines.elements());
    for (uint64 i = 0; i < all.size(); ++i) all[i] = i;
    ASSERT_EQ(elements, all);
  });
}

TEST(Windows, StopAtAnError) {
  int calls = 0;
  const auto fail = [&](const Window&) -> Expected<void> {
    ++calls;
    return Error{"no"};
  };
  EXPECT_TRUE(test::fails_with(for_each_in_line_order(lines_of({9, 9}, 1), 16, 9, fail), "no"));
  EXPECT_TRUE(test::fails_with(for_each_in_memory_order(lines_of({9, 9}, 0), 16, 9, fail), "no"));
  EXPECT_EQ(calls, 2);
}

TEST(Windows, PiecesAreReadIntoTheirPlaces) {
  std::vector<std::byte> file(3 << 20);
  for (std::size_t i = 0; i < file.size(); ++i) file[i] = static_cast<std::byte>(i * 2654435761U >> 24);
  const Read read = [&](std::uint64_t offset, std::span<std::byte> to) -> Expected<void> {
    if (offset + to.size() > file.size()) return Error{"beyond the end"};
    std::copy_n(file.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
    return {};
  };
  // Far apart and close together, one and many; the last piece ends with the file.
  for (const Pieces& p : {Pieces{5, 100, 1000, 7}, Pieces{0, 5000, 600, 100}, Pieces{17, 0, 1, 1 << 20},
                          Pieces{file.size() - 99 * 9000 - 70, 9000, 100, 70}, Pieces{0, 3 << 19, 2, 3 << 19}}) {
    std::vector<std::byte> expected;
    for (std::uint64_t i = 0; i < p.count; ++i) {
      const auto from = file.begin() + static_cast<std::ptrdiff_t>(p.offset + i * p.stride);
      expected.insert(expected.end(), from, from + static_cast<std::ptrdiff_t>(p.run));
    }
    for (const unsigned threads : {1U, 2U}) {
      std::vector<std::byte> bytes(p.count * p.run);
      ASSERT_TRUE(test::succeeds(read_pieces(read, p, bytes, threads)));
      EXPECT_TRUE(bytes == expected) << p.offset;
    }
    Pieces beyond = p;
    beyond.offset = file.size() - p.run - (p.count - 1) * p.stride + 1;
    std::vector<std::byte> bytes(p.count * p.run);
    EXPECT_TRUE(test::fails_with(read_pieces(read, beyond, bytes, 2), "beyond the end"));
  }
}

}  // namespace
}  // namespace bitcube::stream
