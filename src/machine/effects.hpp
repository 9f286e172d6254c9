// What a completed bundle will change, prepared from a constant state and applied in one step (architecture 6.5). A
// rule that fails drops it, so a rejection cannot leave anything behind.
#pragma once

#include <optional>
#include <vector>

#include "bitcube/machine/core.hpp"
#include "bitcube/machine/rules.hpp"
#include "bitcube/machine/state.hpp"

namespace bitcube::machine {

struct Effects {
  struct Local {
    unsigned pe = 0;
    unsigned hand = 0;
    Role role = Role::none;
    TileRef tile;
  };
  struct Shared {
    unsigned id = 0;
    unsigned mask = 0;
    TileRef tile;
  };
  struct Store {
    uint64 address = 0;
    std::uint8_t bits = 0;    // 4, 8, 16, 32 or 64
    std::uint8_t nibble = 0;  // with 4 bits: 0 the low half of the byte, 1 the high one
    uint64 word = 0;
  };

  std::vector<Local> locals;  // in the order of publication
  std::optional<Shared> shared;
  std::vector<Store> stores;
  Flags flags = Flags::none;
};

/// How the execution of a bundle ended. Exactly one of the three holds.
struct Completion {
  std::optional<Fault> fault{};
  std::optional<unsigned> waiting_for{};  // a Shared name that is not ready
  Effects effects{};
};

using Check = std::optional<Fault>;

inline Fault fault(RuleId id, Role role, Finding found = {}, Finding legal = {}, int pe = -1) noexcept {
  return {id, role, found, legal, static_cast<std::int8_t>(pe)};
}

/// Stages B to H of the bundle in the header (architecture 4.3).
Completion execute(const State& state);

Completion execute_cube(const State& state);
Completion execute_tload(const State& state);
Completion execute_tstore(const State& state);
Completion execute_tmov(const State& state);
Completion execute_tcvt(const State& state);
Completion execute_tquant(const State& state);
Completion execute_tdequant(const State& state);

/// Applies the effects and tells what was published.
void commit(State& state, Effects&& effects, Outcome& outcome);

/// G1 and G2 for the new Tiles of one PE, given as (hand, capacity) in the order of publication.
struct NewTile {
  unsigned hand = 0;
  std::uint32_t capacity = 0;
  Role role = Role::destination;
};
Check check_room(const State& state, unsigned pe, std::span<const NewTile> tiles);

/// What is wrong with a Local name as a source of this PE: no live Tile, or one that belongs to other PEs.
Check check_live(const State& state, unsigned pe, unsigned name, Role role, RuleId id);

/// B.DATR.RMode as a mode; nothing for 0.
inline std::optional<Rounding> requested_rounding(const Header& header) noexcept {
  const unsigned code = header.datr ? header.datr->rmode : 0U;
  return code == 0 ? std::nullopt : std::optional(static_cast<Rounding>(code));
}

}  // namespace bitcube::machine
