// The complete architectural state of a Core as one value (architecture 1, 2.13).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "bitcube/isa/forms.hpp"
#include "bitcube/machine/memory.hpp"
#include "bitcube/machine/options.hpp"
#include "bitcube/machine/tile.hpp"
#include "bitcube/numeric/flags.hpp"

namespace bitcube::machine {

inline constexpr unsigned pe_count = 4;
inline constexpr unsigned gpr_count = isa::gpr_count;
inline constexpr unsigned hand_count = 4;  // T, U, M, N
inline constexpr unsigned hand_tiles = 16;
inline constexpr unsigned local_tiles = hand_count * hand_tiles;
inline constexpr unsigned shared_tiles = 64;
inline constexpr unsigned full_mask = 0xF;

/// The bit of a PE in a mask that is written PE0 PE1 PE2 PE3.
constexpr unsigned pe_bit(unsigned pe) noexcept {
  return 8U >> pe;
}

/// One PE: 24 GPRs, of which GPR0 is 0, and 64 Local names. A name is hand * 16 + n - 1. Under the relative policy the
/// names of a hand are in the order of age, the newest first; under the absolute policy they are physical registers.
struct Pe {
  std::array<uint64, gpr_count> gpr{};
  std::array<TileRef, local_tiles> local{};

  uint64 read(unsigned reg) const noexcept { return reg == 0 ? 0 : gpr[reg]; }

  friend bool operator==(const Pe& a, const Pe& b);
};

/// A Shared Tile register (architecture 1.10). The PE masks record who produced it; readiness does not depend on them.
struct SharedRecord {
  TileRef tile;  // nullptr: no valid descriptor
  std::uint8_t allocation_mask = 0;
  std::uint8_t initialized_mask = 0;
  bool whole_parent_ready = false;
  bool published = false;

  friend bool operator==(const SharedRecord& a, const SharedRecord& b);
};

/// What BSTART selected.
struct Operation {
  isa::Operation code = isa::Operation::none;
  isa::Unit unit = isa::Unit::none;
  DataType type = DataType::none;
  std::optional<uint64> target{};  // of a branch that is always taken

  friend bool operator==(const Operation&, const Operation&) = default;
};

/// B.CATR.
struct ControlAttributes {
  bool dr = false;
  bool trap = false;
  bool far = false;
  bool atom = false;
  bool aq = false;
  bool rl = false;

  friend bool operator==(const ControlAttributes&, const ControlAttributes&) = default;
};

/// B.DATR as encoded; the defaults are those of an omitted command (architecture 2.6).
struct DataAttributes {
  DataType type = DataType::none;
  isa::TransferLayout layout = isa::TransferLayout::norm;
  isa::PadValue pad = isa::PadValue::null;
  std::uint8_t cmode = 0;
  std::uint8_t rmode = 0;
  bool saturate = false;
  bool canonicalize = false;

  friend bool operator==(const DataAttributes&, const DataAttributes&) = default;
};

/// B.FPATR.
struct PostprocessAttributes {
  std::uint8_t prequant = 0;
  std::uint8_t relu = 0;
  std::uint8_t group_n_code = 0;
  bool row_max = false;
  bool group_max = false;
  bool row_max_init = false;
  bool max_abs = false;
  bool c_scale = false;
  bool trans_a = false;
  bool trans_b = false;

  friend bool operator==(const PostprocessAttributes&, const PostprocessAttributes&) = default;
};

/// B.IOR: GPR numbers.
struct ScalarBinding {
  std::uint8_t destination = 0;
  std::array<std::uint8_t, 3> sources{};

  friend bool operator==(const ScalarBinding&, const ScalarBinding&) = default;
};

/// An effective B.IOT.
struct LocalBinding {
  std::uint8_t source_count = 0;
  std::array<std::uint8_t, 2> sources{};  // Local names
  std::uint8_t size_code = 0;             // 0: no destination
  std::uint8_t hand = 0;                  // of the destination
  std::uint8_t mask = 0;
  bool last = false;

  bool has_destination() const noexcept { return size_code != 0; }
  friend bool operator==(const LocalBinding&, const LocalBinding&) = default;
};

/// An effective B.IOS. Commit is one step for all PEs, so a binding is consumed exactly when its bundle is gone.
struct SharedBinding {
  std::uint8_t id = 0;
  std::uint8_t size_code = 0;  // 0: source
  std::uint8_t mask = 0;

  friend bool operator==(const SharedBinding&, const SharedBinding&) = default;
};

/// B.HINT: kept for the record, without effect.
struct Hint {
  std::uint16_t prefetch = 0;
  std::uint8_t temp = 0;
  bool likely = false;
  bool valid = false;

  friend bool operator==(const Hint&, const Hint&) = default;
};

/// What BSTART and the header commands have said so far.
struct Header {
  bool active = false;
  bool body = false;
  bool zero_participation = false;
  Operation operation{};
  std::array<std::optional<std::uint16_t>, 3> lb{};
  std::optional<ControlAttributes> catr{};
  std::optional<DataAttributes> datr{};
  std::optional<PostprocessAttributes> fpatr{};
  std::optional<ScalarBinding> scalars{};
  std::optional<Hint> hint{};
  std::vector<LocalBinding> locals{};
  std::vector<SharedBinding> shared{};

  friend bool operator==(const Header&, const Header&) = default;
};

/// Everything that a program can observe, and the options under which it runs.
struct State {
  Options options{};
  uint64 tpc = 0;
  uint64 bpc = 0;
  Flags flags = Flags::none;  // CORE_STATE[36:32], sticky
  Header header{};
  std::array<Pe, pe_count> pe{};
  std::array<SharedRecord, shared_tiles> shared{};
  Memory memory{};

  /// Bytes that the live Tiles of a PE, or of the Shared bank, take from their pool.
  std::uint64_t local_pool(unsigned pe_index) const noexcept;
  std::uint64_t shared_pool() const noexcept;

  friend bool operator==(const State&, const State&) = default;
};

}  // namespace bitcube::machine
