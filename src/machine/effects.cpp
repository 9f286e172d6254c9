#include "effects.hpp"

#include <algorithm>

namespace bitcube::machine {

namespace {

constexpr unsigned first_name(unsigned hand) noexcept {
  return hand * hand_tiles;
}

std::optional<unsigned> free_register(const Pe& pe, unsigned hand) noexcept {
  for (unsigned i = 0; i < hand_tiles; ++i) {
    if (pe.local[first_name(hand) + i] == nullptr) return first_name(hand) + i;
  }
  return std::nullopt;
}

void publish(Pe& pe, NamePolicy policy, unsigned hand, const TileRef& tile) {
  if (policy == NamePolicy::absolute) {
    pe.local[*free_register(pe, hand)] = tile;
    return;
  }
  // The newest Tile is #1 and each other one grows a place older. A free place takes up the shift (a program leaves
  // none between live Tiles); with 16 live ones the oldest is dropped.
  const auto begin = pe.local.begin() + first_name(hand);
  const auto place = std::find(begin, begin + hand_tiles - 1, nullptr);
  std::rotate(begin, place, place + 1);
  *begin = tile;
}

}  // namespace

Check check_room(const State& state, unsigned pe, std::span<const NewTile> tiles) {
  const Pe& unit = state.pe[pe];
  const int p = static_cast<int>(pe);
  // Registers. The relative policy always has one, at the price of the oldest Tile.
  std::array<unsigned, hand_count> wanted{};
  std::uint64_t freed = 0;
  for (const NewTile& tile : tiles) {
    const unsigned nth = wanted[tile.hand]++;
    const auto begin = unit.local.begin() + first_name(tile.hand);
    const auto free = static_cast<unsigned>(std::count(begin, begin + hand_tiles, nullptr));
    if (nth < free) continue;
    if (state.options.name_policy == NamePolicy::absolute) {
      return fault(RuleId::G1, tile.role, number(hand_tiles), range(0, hand_tiles - 1), p);
    }
    freed += unit.local[first_name(tile.hand) + hand_tiles - 1 - (nth - free)]->descriptor().capacity_bytes;
  }
  // The pool holds what is live after publication.
  std::uint64_t charge = state.local_pool(pe) - freed;
  for (const NewTile& tile : tiles) {
    const std::uint64_t left = charge < pool_bytes ? pool_bytes - charge : 0;
    if (tile.capacity > left) return fault(RuleId::G2, tile.role, byte_count(tile.capacity), range(0, left), p);
    charge += tile.capacity;
  }
  return {};
}

Check check_live(const State& state, unsigned pe, unsigned name, Role role, RuleId id) {
  const TileRef& tile = state.pe[pe].local[name];
  const int p = static_cast<int>(pe);
  if (tile == nullptr) return fault(id, role, tile_name(name), phrase("a name with a live Tile"), p);
  if ((tile->descriptor().allocation_mask & pe_bit(pe)) == 0) {
    return fault(id, role, mask(tile->descriptor().allocation_mask), mask(pe_bit(pe)), p);
  }
  return {};
}

Completion execute(const State& state) {
  const Operation& operation = state.header.operation;
  if (operation.unit == isa::Unit::none) return {};
  if (operation.unit == isa::Unit::cube) return execute_cube(state);
  switch (operation.code) {
    case isa::Operation::tload:
      return execute_tload(state);
    case isa::Operation::tstore:
      return execute_tstore(state);
    case isa::Operation::tmov:
      return execute_tmov(state);
    case isa::Operation::tcvt:
      return execute_tcvt(state);
    case isa::Operation::tquant:
      return execute_tquant(state);
    case isa::Operation::tdequant:
      return execute_tdequant(state);
    default:
      break;
  }
  Completion out;
  out.fault =
      fault(RuleId::B3, Role::command, phrase("an unassigned tile operation"), phrase("TCVT, TQUANT, TDEQUANT"));
  return out;
}

void commit(State& state, Effects&& effects, Outcome& outcome) {
  for (const Effects::Local& local : effects.locals) {
    publish(state.pe[local.pe], state.options.name_policy, local.hand, local.tile);
  }
  for (Effects::Local& local : effects.locals) {
    const auto& names = state.pe[local.pe].local;
    const auto at = std::find(names.begin(), names.end(), local.tile);
    outcome.tiles.push_back({local.pe, static_cast<unsigned>(at - names.begin()), local.role, std::move(local.tile)});
  }
  if (effects.shared) {
    SharedRecord& record = state.shared[effects.shared->id];
    record.tile = effects.shared->tile;
    record.allocation_mask = record.initialized_mask = static_cast<std::uint8_t>(effects.shared->mask);
    record.whole_parent_ready = record.published = true;
    outcome.shared = PublishedShared{effects.shared->id, std::move(effects.shared->tile)};
  }
  for (const Effects::Store& store : effects.stores) {
    if (store.bits == 4) {
      const unsigned shift = 4U * store.nibble;
      const unsigned kept = state.memory.byte(store.address) & ~(0xFU << shift);
      state.memory.set_byte(store.address, static_cast<std::uint8_t>(kept | ((store.word & 0xF) << shift)));
    } else {
      state.memory.store(store.address, store.bits / 8U, store.word);
    }
  }
  outcome.stores = effects.stores.size();
  outcome.flags = effects.flags;
  state.flags |= effects.flags;
}

}  // namespace bitcube::machine
