// Random bundles, legal and illegal: no effect on a fault, sources unchanged, results and flags equal to a direct call
// of the cube room, decode(encode) the identity. BITCUBE_RANDOM_BUNDLES sets how many (default 20000), BITCUBE_SEED the
// first seed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "machine/random_bundle.hpp"

namespace bitcube::machine::test {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? fallback : std::strtoull(text, nullptr, 10);
}

std::vector<std::uint32_t> narrow(const std::vector<uint64>& words) {
  std::vector<std::uint32_t> out;
  for (const uint64 w : words) out.push_back(static_cast<std::uint32_t>(w));
  return out;
}

/// Everything but the header, the PC, the flags and the new Tiles is what it was.
void expect_sources_unchanged(const RandomBundle& x, const State& before, const State& after) {
  EXPECT_TRUE(before.shared == after.shared);
  EXPECT_TRUE(before.memory == after.memory);
  for (unsigned p = 0; p < pe_count; ++p) {
    EXPECT_EQ(before.pe[p].gpr, after.pe[p].gpr);
    std::multiset<const Tile*> kept;
    for (const TileRef& tile : after.pe[p].local) kept.insert(tile.get());
    for (const TileRef& tile : before.pe[p].local) EXPECT_TRUE(kept.contains(tile.get()));
    if (x.pe[p].m == 0) {
      EXPECT_EQ(before.pe[p], after.pe[p]);
    }
  }
}

void check_results(const RandomBundle& x, const Outcome& o) {
  Flags flags = Flags::none;
  std::size_t tiles = 0;
  for (unsigned p = 0; p < pe_count; ++p) {
    const PeData& pe = x.pe[p];
    if (pe.m == 0) continue;
    const Expectation want = expected(x, pe);
    flags |= want.flags;
    for (const PublishedTile& tile : o.tiles) {
      if (tile.pe != p) continue;
      ++tiles;
      EXPECT_TRUE(tile.tile->contents_defined());
      EXPECT_EQ(check_descriptor(tile.tile->descriptor(), local_capacity_limit), DescriptorFault::none);
      EXPECT_EQ(tile.tile->descriptor().valid_rows, pe.m);
      const auto words = tile.tile->valid_words();
      if (tile.role == Role::d) {
        EXPECT_EQ(words, want.d);
      } else {
        EXPECT_EQ(narrow(words), tile.role == Role::row_max_out ? want.row_max : want.group_max);
      }
    }
  }
  const std::size_t per_pe = 1U + (x.post.row_max ? 1U : 0U) + (x.post.group_max ? 1U : 0U);
  std::size_t pes = 0;
  for (const PeData& pe : x.pe) pes += pe.m != 0 ? 1U : 0U;
  EXPECT_EQ(tiles, per_pe * pes);
  EXPECT_EQ(static_cast<int>(o.flags), static_cast<int>(flags));
}

/// Breaks something; the bundle may survive it.
void spoil(RandomBundle& x, bitcube::test::Operands& random) {
  auto& words = x.scenario.words;
  State& state = x.scenario.core.state();
  const auto any_word = [&]() -> uint64& { return words[random.below(words.size())]; };
  const auto any_tile = [&](const std::function<void(Tile&)>& change) {
    if (x.source_names.empty()) return;
    const auto [p, name] = x.source_names[random.below(x.source_names.size())];
    x.scenario.edit(name, change, p);
  };
  switch (random.below(14)) {
    case 0:
    case 1:
      any_word() ^= uint64{1} << random.below(32);
      break;
    case 2:
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(random.below(words.size())));
      break;
    case 3:
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(random.below(words.size())), any_word());
      break;
    case 4:
      std::swap(any_word(), any_word());
      break;
    case 5:
      any_tile([&](Tile& tile) {
        const TileDescriptor& d = tile.descriptor();
        tile.undefine_element(static_cast<std::uint32_t>(random.below(d.valid_rows)),
                              static_cast<std::uint32_t>(random.below(d.valid_columns)));
      });
      break;
    case 6:
      if (!x.source_names.empty()) {
        const auto [p, name] = x.source_names[random.below(x.source_names.size())];
        state.pe[p].local[name] = nullptr;
      }
      break;
    case 7:
      any_tile([&](Tile& tile) {
        TileDescriptor& d = tile.descriptor();
        std::uint32_t* const fields[] = {&d.valid_rows,    &d.valid_columns,  &d.rows,          &d.columns,
                                         &d.cube_k_repeat, &d.capacity_bytes, &d.cube_n_repeat, &d.cube_cell_count};
        *fields[random.below(8)] += static_cast<std::uint32_t>(random.below(3)) - 1;
      });
      break;
    case 8:
      any_tile([&](Tile& tile) { tile.descriptor().type = DataType::s16; });
      break;
    case 9:
      any_tile([&](Tile& tile) { tile.descriptor().layout = static_cast<TileLayout>(random.below(7)); });
      break;
    case 10:
      x.scenario.core.set_pending(40 + static_cast<unsigned>(random.below(4)));
      break;
    case 11:
      for (Pe& pe : state.pe) pe.gpr[5] = random.raw();
      break;
    case 12:
      state.options.name_policy = NamePolicy::absolute;
      for (unsigned i = 0; i < hand_tiles; ++i) {
        x.scenario.core.set_local(0, 16 * x.d_hand + i, row_major(DataType::u8, 1, 1, all(0)));
      }
      break;
    default:
      any_word() = (any_word() & 0x7F) | (random.raw() & 0xFFFFFF80);
      break;
  }
}

TEST(Random, Bundles) {
  const std::uint64_t count = from_environment("BITCUBE_RANDOM_BUNDLES", 20000);
  const std::uint64_t seed = from_environment("BITCUBE_SEED", 1);
  std::map<RuleId, std::size_t> faults;
  std::size_t legal = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed + i));
    BundleMaker maker(seed + i);
    RandomBundle x = maker.make();
    const bool spoiled = maker.random().chance(2);
    if (spoiled) spoil(x, maker.random());
    for (const uint64 word : x.scenario.words) {
      const isa::Decoded decoded = isa::decode(word);
      if (decoded && isa::instruction_length(word) == 4) {
        ASSERT_EQ(isa::Codec::encode(*decoded).bits, word & 0xFFFFFFFF);
      }
      const Core before = x.scenario.core;
      const Outcome o = x.scenario.core.step(word);
      if (o.fault) {
        ASSERT_EQ(x.scenario.core, before);
        ASSERT_TRUE(spoiled) << "word " << std::hex << word << " rule " << rule(o.fault->id).name;
        ++faults[o.fault->id];
        break;
      }
      if (!o.completed) continue;
      ++legal;
      expect_sources_unchanged(x, before.state(), x.scenario.core.state());
      if (!spoiled) check_results(x, o);
    }
    ASSERT_TRUE(spoiled || !x.scenario.core.state().header.active);
    ASSERT_FALSE(HasFailure());
  }
  // Both kinds must occur, or the test says nothing.
  EXPECT_GT(legal, count / 4);
  EXPECT_GT(faults.size(), count >= 20000 ? 20U : 0U);
  RecordProperty("legal", static_cast<int>(legal));
  RecordProperty("rules", static_cast<int>(faults.size()));
}

// Arbitrary header words on an arbitrary header: no crash, no effect on a fault.
TEST(Random, Words) {
  bitcube::test::Operands random(from_environment("BITCUBE_SEED", 1));
  static constexpr uint64 seeds[] = {0x38531181, 0x20011181, 0x00111181, 0x00211181, 0x09B19181, 0x0EA19181,
                                     0x00001023, 0x00002023, 0x00000043, 0x00001013, 0x00004013, 0x00005013,
                                     0x00006013, 0x00000013, 0x00000023, 0x00000033, 0x00000001};
  Scenario s = w1();
  const std::uint64_t count = from_environment("BITCUBE_RANDOM_BUNDLES", 20000) * 10;
  for (std::uint64_t i = 0; i < count; ++i) {
    uint64 word = seeds[random.below(std::size(seeds))];
    for (std::size_t flips = random.below(6); flips-- > 0;) word ^= uint64{1} << random.below(32);
    if (random.chance(50)) word = random.raw();
    const Core before = s.core;
    const Outcome o = s.core.step(word);
    if (o.fault && o.fault->fault_class() != FaultClass::bundle_post_commit) {
      ASSERT_EQ(s.core, before) << std::hex << word;
    }
    // A header that is stuck behind a fault makes room for the next one.
    if (o.fault && random.chance(8)) s.core.state().header = {};
    if (s.core.state().tpc % 2 != 0) s.core.state().tpc = 0;
  }
}

}  // namespace
}  // namespace bitcube::machine::test
