// A Core, the words of one bundle, and the ten worked bundles of architecture 8.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "bitcube/machine/core.hpp"

namespace bitcube::machine::test {

using Generator = std::function<uint64(std::uint32_t row, std::uint32_t column)>;

inline Generator all(uint64 word) {
  return [word](std::uint32_t, std::uint32_t) { return word; };
}

inline std::vector<uint64> words_of(std::uint32_t rows, std::uint32_t columns, const Generator& g) {
  std::vector<uint64> words;
  for (std::uint32_t r = 0; r < rows; ++r) {
    for (std::uint32_t c = 0; c < columns; ++c) words.push_back(g(r, c));
  }
  return words;
}

/// A Tile that a test relies on.
inline Tile made(const Expected<Tile>& tile) {
  if (tile) return *tile;
  ADD_FAILURE() << tile.error().message;
  return {};
}

inline Tile m16(DataType t, std::uint32_t rows, std::uint32_t columns, const Generator& g, std::uint32_t capacity = 0) {
  return made(make_cube_tile(TileLayout::cube_m16, t, rows, columns, words_of(rows, columns, g), capacity));
}
inline Tile m32(DataType t, std::uint32_t rows, std::uint32_t columns, const Generator& g, std::uint32_t capacity = 0) {
  return made(make_cube_tile(TileLayout::cube_m32, t, rows, columns, words_of(rows, columns, g), capacity));
}
inline Tile n8(DataType t, std::uint32_t rows, std::uint32_t columns, const Generator& g, std::uint32_t capacity = 0) {
  return made(make_cube_tile(TileLayout::cube_n8, t, rows, columns, words_of(rows, columns, g), capacity));
}
inline Tile row_major(DataType t, std::uint32_t rows, std::uint32_t columns, const Generator& g,
                      std::uint32_t physical = 0, std::uint32_t capacity = 0) {
  return made(
      make_ordinary_tile(TileLayout::row_major, t, rows, columns, words_of(rows, columns, g), physical, capacity));
}
inline Tile shared_tile(DataType t, std::uint32_t rows, std::uint32_t columns, const Generator& g,
                        std::uint32_t physical = 0, std::uint32_t capacity = 0) {
  return made(make_ordinary_tile(TileLayout::row_major, t, rows, columns, words_of(rows, columns, g), physical,
                                 capacity, shared_capacity_limit));
}

// Local names as the text writes them.
constexpr unsigned t(unsigned n) {
  return n - 1;
}
constexpr unsigned u(unsigned n) {
  return 16 + n - 1;
}
constexpr unsigned m(unsigned n) {
  return 32 + n - 1;
}
constexpr unsigned n(unsigned i) {
  return 48 + i - 1;
}
constexpr unsigned a0 = 2;
constexpr unsigned a1 = 3;

constexpr uint64 bstop = 0x00000001;

struct Scenario {
  Core core{};
  std::vector<uint64> words{};

  Scenario& replace(uint64 from, uint64 to) {
    words[static_cast<std::size_t>(at(from))] = to;
    return *this;
  }
  Scenario& remove(uint64 word) {
    words.erase(words.begin() + at(word));
    return *this;
  }
  Scenario& before(uint64 word, std::initializer_list<uint64> added) {
    words.insert(words.begin() + at(word), added);
    return *this;
  }
  Scenario& after(uint64 word, std::initializer_list<uint64> added) {
    words.insert(words.begin() + at(word) + 1, added);
    return *this;
  }
  void local(unsigned name, Tile tile, unsigned pe = 0) { core.set_local(pe, name, std::move(tile)); }
  void every_pe(unsigned name, const Tile& tile) {
    for (unsigned pe = 0; pe < pe_count; ++pe) core.set_local(pe, name, tile);
  }
  /// Changes a Tile in its register.
  void edit(unsigned name, const std::function<void(Tile&)>& change, unsigned pe = 0) {
    Tile tile = *core.state().pe[pe].local[name];
    change(tile);
    core.state().pe[pe].local[name] = share(std::move(tile));
  }

 private:
  /// Position of a word that the scenario must have.
  std::ptrdiff_t at(uint64 word) const {
    const auto found = std::find(words.begin(), words.end(), word);
    if (found != words.end()) return found - words.begin();
    ADD_FAILURE() << "no word " << std::hex << word;
    return 0;
  }
};

/// Steps the words until one is not accepted; the outcome of that one, or of the last.
struct Progress {
  std::size_t index = 0;
  Outcome outcome{};
};
inline Progress run(Scenario& s) {
  Progress r;
  for (r.index = 0; r.index < s.words.size(); ++r.index) {
    r.outcome = s.core.step(s.words[r.index]);
    if (!r.outcome.ok()) return r;
  }
  --r.index;
  return r;
}

inline Scenario w1() {
  Scenario s;
  s.words = {0x38531181, 0x00002023, 0x01000043, 0x00801043, 0x02002043, 0x04004213, 0x0C204213, 0x0049D293, bstop};
  s.local(t(1), m16(DataType::e4m3, 16, 32, all(0x38), 512));
  s.local(t(2), m32(
                    DataType::e8m0, 16, 1, [](auto r, auto) { return 127 + r % 3; }, 128));
  s.local(t(3), n8(DataType::e4m3, 32, 8, all(0x30), 256));
  s.local(t(4), m32(
                    DataType::e8m0, 8, 1, [](auto r, auto) { return r % 2 == 0 ? 126 : 128; }, 128));
  constexpr uint64 fp[] = {0, 0x3F800000, 0x40000000, 0x40400000, 0x40800000, 0x40A00000, 0x40C00000, 0x40E00000};
  s.local(t(5), row_major(
                    DataType::fp32, 1, 8, [&](auto, auto c) { return fp[c]; }, 8, 128));
  return s;
}

inline Scenario w2() {
  Scenario s;
  s.words = {0x20531181, 0x00701023, 0x04802023, 0x00500043, 0x00901043, 0x02802043, 0x04004E13, 0x0C29CE93, bstop};
  s.every_pe(t(1), m16(DataType::fp16, 5, 40, all(0x4000), 2048));
  s.every_pe(t(2), n8(DataType::e4m3, 40, 9, all(0x30), 1024));
  s.every_pe(t(3), m32(DataType::e8m0, 9, 2, all(128), 128));
  s.every_pe(t(4), row_major(
                       DataType::fp32, 1, 9, [](auto, auto c) { return c == 0 ? 0U : 0xC2C80000U; }, 16, 128));
  return s;
}

inline Scenario w3() {
  Scenario s;
  s.words = {0x70531181, 0x00002023, 0x01000043, 0x00801043, 0x04002043, 0x86004213, 0xC7004213, 0x0049D293, bstop};
  s.local(m(1), m16(DataType::hif4x2, 16, 64, all(4), 512));
  s.local(m(2), m32(DataType::u32, 16, 1, all(0xC0), 128));
  s.local(n(1), n8(DataType::hif4x2, 64, 8, all(6), 256));
  s.local(n(2), m32(DataType::u32, 8, 1, all(0x002002C0), 128));
  s.local(t(5), row_major(DataType::fp32, 1, 8, all(0), 8, 128));
  return s;
}

inline Scenario w4() {
  Scenario s;
  s.words = {0x38531181, 0x00002023, 0x02800043, 0x01001043, 0x02002043, 0x00401E13,
             0x00501E13, 0x00601E13, 0x00701E13, 0x000A5E93, bstop};
  s.core.publish_shared(4, shared_tile(DataType::e4m3, 40, 32, all(0x38), 32, 2048));
  s.core.publish_shared(5, shared_tile(
                               DataType::e8m0, 40, 1, [](auto r, auto) { return r < 32 ? 127 : 128; }, 1, 128));
  s.core.publish_shared(6, shared_tile(DataType::e4m3, 32, 16, all(0x38), 16, 512));
  s.core.publish_shared(7, shared_tile(DataType::e8m0, 1, 16, all(127), 16, 128));
  constexpr uint64 fp[] = {0, 0x3F800000, 0x40000000, 0x40400000};
  for (unsigned pe = 0; pe < pe_count; ++pe) s.local(t(1), row_major(DataType::fp32, 1, 16, all(fp[pe]), 16, 128), pe);
  return s;
}

inline Scenario w5() {
  Scenario s;
  s.words = {0x20031181, 0x00002123, 0x01400043, 0x00801043, 0x01002043, 0x00901E13, 0x0209DF93, bstop};
  constexpr uint64 fp16[] = {0x3C00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800};
  s.core.publish_shared(9, shared_tile(
                               DataType::fp16, 8, 16, [&](auto r, auto) { return fp16[r]; }, 16, 256));
  s.local(m(1), m16(DataType::fp16, 16, 16, all(0x3C00)), 0);
  s.local(m(1), m16(DataType::fp16, 4, 16, all(0x3C00)), 1);
  return s;
}

inline Scenario w6() {
  Scenario s;
  s.words = {0x20231181, 0x00052223, 0x00200043, 0x00201043, 0x00402043,
             0x4D204213, 0x55404213, 0x0160D213, 0x0008E313, bstop};
  s.local(u(3), m16(DataType::fp32, 2, 2, all(0x41000000), 128));
  s.local(u(4), m16(DataType::fp16, 2, 4, all(0x3C00), 128));
  s.local(u(5), n8(DataType::fp16, 4, 2, all(0x3800), 128));
  s.local(u(6), m32(
                    DataType::u8, 2, 1, [](auto r, auto) { return r == 0 ? 1 : 3; }, 128));
  s.local(u(7), row_major(
                    DataType::fp32, 2, 1, [](auto r, auto) { return r == 0 ? 0x42C80000U : 0xBF800000U; }, 1, 128));
  return s;
}

inline Scenario w7() {
  Scenario s;
  s.words = {0x98131181, 0x05301023, 0x0D0A2023, 0x00400043, 0x00801043, 0x01002043,
             0x00310013, 0x04004213, 0x0020D293, 0x0008E393, bstop};
  s.core.state().pe[0].gpr[a0] = 0x00003FA03F000000;
  s.core.state().pe[0].gpr[a1] = 0x000000000001F400;
  s.local(t(1), m16(DataType::s8, 4, 16, all(2)));
  s.local(t(2), n8(DataType::s8, 16, 8, all(3)));
  s.local(t(3), row_major(DataType::s32, 1, 8, [](auto, auto c) { return c % 2 == 0 ? 0U : 0xFFFFFF38U; }));
  return s;
}

inline Scenario w8() {
  Scenario s;
  s.words = {0x59531181, 0x00401023, 0x00002023, 0x00801043, 0x02002043, 0x04004213, 0x0C29C293, bstop};
  s.local(t(1), m16(DataType::e2m1x2, 1, 32, all(2)));
  s.local(t(2), m32(DataType::e8m0, 1, 1, all(128)));
  s.local(t(3), n8(DataType::fp16, 32, 8, all(0x3E00)));
  s.local(t(4), row_major(DataType::fp32, 1, 8, all(0x40800000)));
  return s;
}

inline Scenario w10() {
  Scenario s;
  s.words = {0x38531181, 0x03F01013, 0x3CF84013, bstop};
  return s;
}

// W9: data movement.
inline Scenario w9a() {
  Scenario s;
  s.words = {0x20011181, 0x01F01B23, 0x02000043, 0x01001043, 0x00310013, 0x000A6213, bstop};
  State& state = s.core.state();
  state.pe[0].gpr[a0] = 0x10000;
  state.pe[0].gpr[a1] = 80;
  for (uint64 r = 0; r < 16; ++r) {
    for (uint64 c = 0; c < 32; ++c) {
      const uint64 word = 0x1000 + r * 32 + c;
      const std::uint8_t bytes[] = {static_cast<std::uint8_t>(word), static_cast<std::uint8_t>(word >> 8)};
      state.memory.write(0x10000 + r * 80 + c * 2, bytes);
    }
  }
  return s;
}

inline Scenario w9b() {
  Scenario s;
  s.words = {0x08111181, 0x19F01CA3, 0x00800043, 0x01001043, 0x00310013, 0x01085213, bstop};
  State& state = s.core.state();
  state.pe[0].gpr[a0] = 0x20000;
  state.pe[0].gpr[a1] = 32;
  state.memory.map(0x20000, 4096);
  s.local(u(1), m16(
                    DataType::fp32, 16, 8, [](auto r, auto c) { return 0x40000000 + r * 8 + c; }, 512));
  return s;
}

inline Scenario w9c() {
  Scenario s;
  s.words = {0x09B19181, 0x18409023, 0x01000043, 0x00401043, 0x0008D293, bstop};
  s.local(t(1), row_major(
                    DataType::fp32, 4, 16, [](auto r, auto) { return r == 0 ? 0x3F801000U : 0x40000000U; }, 16, 256));
  return s;
}

inline Scenario w9d() {
  Scenario s;
  s.words = {0x0EA19181, 0x05301023, 0x01000043, 0x00401043, 0x00310013, 0x0008D293, bstop};
  s.core.state().pe[0].gpr[a0] = 0x41200000;
  s.core.state().pe[0].gpr[a1] = 3;
  s.local(t(1), row_major(
                    DataType::fp32, 4, 16, [](auto r, auto) { return r == 0 ? 0x3FA66666U : 0x42C80000U; }, 16, 256));
  return s;
}

inline Scenario w9e() {
  Scenario s;
  s.words = {0x9EB19181, 0x00101023, 0x01000043, 0x00401043, 0x00310013, 0x01095213, bstop};
  s.core.state().pe[0].gpr[a0] = 0x3DCCCCCD;
  s.core.state().pe[0].gpr[a1] = 3;
  s.local(u(1), row_major(DataType::s8, 4, 16, all(16), 16, 128));
  return s;
}

inline Scenario w9f() {
  Scenario s;
  s.words = {0x38011181, 0x01000043, 0x02001043, 0x01002043, 0x00310013, 0x00619213, bstop};
  State& state = s.core.state();
  state.pe[0].gpr[a0] = 0x30000;
  state.pe[0].gpr[a1] = 16;
  std::vector<std::uint8_t> bytes(512);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7);
  state.memory.write(0x30000, bytes);
  return s;
}

}  // namespace bitcube::machine::test
