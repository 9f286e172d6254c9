// A Core: build one, write its Tiles, registers and memory, step words, read the outcome (architecture 1, 2, 4, 6).
//
//   Core core;
//   core.state().pe[0].local[0] = share(*make_cube_tile(TileLayout::cube_m16, DataType::e4m3, 16, 32, words));
//   Outcome outcome = core.step(0x38531181);
//   if (outcome.fault) ...
//
// A Core is a value: copies are cheap (Tiles and pages are shared until one side writes) and compare with ==. Nothing
// in it prints, reads global state, or throws anything but std::bad_alloc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bitcube/isa/instruction.hpp"
#include "bitcube/machine/rules.hpp"
#include "bitcube/machine/state.hpp"

namespace bitcube::machine {

/// A Tile that a bundle published, with the name that it has afterwards.
struct PublishedTile {
  unsigned pe = 0;
  unsigned name = 0;
  Role role = Role::destination;
  TileRef tile;
};

/// A Shared Tile that a bundle published.
struct PublishedShared {
  unsigned id = 0;
  TileRef tile;
};

/// What one step did. `fault` set: nothing but that the fault exists has changed, except with BundlePostCommit, which
/// is reported after the bundle took effect.
struct Outcome {
  std::optional<Fault> fault{};
  isa::Rejection rejection{};             // with rule A1: why the word is no instruction
  std::optional<unsigned> waiting_for{};  // the bundle waits for this Shared Tile; step again later
  bool header_changed = false;            // a command went into the header
  bool completed = false;                 // the active bundle completed
  bool started = false;                   // a new bundle was installed
  std::vector<PublishedTile> tiles{};
  std::optional<PublishedShared> shared{};
  std::size_t stores = 0;     // memory elements written
  Flags flags = Flags::none;  // raised by the bundle; the sticky status has them ORed in

  bool ok() const noexcept { return !fault && !waiting_for; }
};

/// A Tile ready to go into a register. A Tile without allocation mask belongs to the PE that it is put into.
TileRef share(Tile tile);

class Core {
 public:
  Core() = default;
  explicit Core(const Options& options) { state_.options = options; }

  State& state() noexcept { return state_; }
  const State& state() const noexcept { return state_; }

  /// Puts a Tile where this Local name finds it.
  void set_local(unsigned pe, unsigned name, Tile tile);
  /// Publishes a complete Shared Tile (architecture 1.10).
  void publish_shared(unsigned id, Tile tile);
  /// Takes readiness and publication away; descriptor and payload stay.
  void set_pending(unsigned id);

  /// Executes one instruction word at TPC. 16-bit forms use the low half, 32-bit forms the low word.
  Outcome step(std::uint64_t word);
  /// Executes a decoded instruction at TPC.
  Outcome step(const isa::Instruction& instruction);
  /// Fetches and executes the instruction at TPC.
  Outcome step();

  friend bool operator==(const Core&, const Core&) = default;

 private:
  State state_;
};

}  // namespace bitcube::machine
