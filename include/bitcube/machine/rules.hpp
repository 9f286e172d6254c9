// The legality rules as one table, and the fault that names one (architecture 4).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "bitcube/machine/geometry.hpp"

namespace bitcube::machine {

enum class FaultClass : std::uint8_t {
  none,
  illegal_instruction,
  instruction_pc,
  instruction_page,
  data_alignment,
  data_page,
  tile_legality,
  tile_allocation,
  bundle_control,
  bundle_post_commit,
};

constexpr std::string_view name_of(FaultClass c) noexcept {
  constexpr std::string_view names[] = {"None",          "IllegalInstruction", "InstructionPC", "InstructionPage",
                                        "DataAlignment", "DataPage",           "TileLegality",  "TileAllocation",
                                        "BundleControl", "BundlePostCommit"};
  return names[static_cast<std::size_t>(c)];
}

/// Ids of the rules. B0 to G4 are the rows of architecture 4.3; the others are rules of the commands (A, P) and of the
/// operations that are not CUBE (T, V, Q), which have no ids of their own there.
// clang-format off
enum class RuleId : std::uint8_t {
  A1, A2, A3, A4, A5, A6, A7, A8, A9, A10, A11, A12, A13, A14, A15, A16, A17,
  P1, P2, P3,
  B0, B2, B3,
  C1, C2, C3, C4, C5, C6, C7, C8, C9, C10, C11,
  D1, D2,
  F0, F1, F2, F3, F4, F5, F6, F7, F8, F9, F10,
  G1, G2, G3, G4,
  T1, T2, T3, T4, T5, T6, T7, T8, T9, T10, T11, T12, T13,
  V1, V2, V3, V4, V5, V6, V7,
  Q1, Q2,
  count
};
// clang-format on

struct Rule {
  RuleId id;
  std::string_view name;
  FaultClass fault;
  std::string_view text;
};

/// Every rule that can raise a fault, in the order in which they are evaluated inside each stage.
std::span<const Rule> rules() noexcept;
const Rule& rule(RuleId id) noexcept;
/// The rule of this name in any case, or nullptr.
const Rule* find_rule(std::string_view name) noexcept;

/// What a fault is about.
enum class Role : std::uint8_t {
  none,
  word,
  command,
  pc,
  memory,
  a,
  a_scale,
  b,
  b_scale,
  c,
  bias,
  c_scale,
  row_max_in,
  quant_vector,
  relu_vector,
  quant_scalar,
  relu_scalar,
  d,
  row_max_out,
  group_max_out,
  source,
  destination,
  scalars,
  sources,
  destinations,
  attributes,
  m,
  n,
  k,
  lb0,
  lb1,
  lb2,
  mask,
};
std::string_view name_of(Role role) noexcept;

/// One thing found, or one thing that would be legal, as a value; whoever shows it to a person formats it.
struct Finding {
  enum class Kind : std::uint8_t {
    nothing,
    text,    // a constant phrase
    number,  // first
    range,   // first..second
    shape,   // first rows x second columns
    bytes,   // first
    word,    // first, hexadecimal
    type,    // first: a DataType code
    layout,  // first: a TileLayout
    mask,    // first: four bits, PE0 first
    tile,    // first: a Local name 0..63
    shared,  // first: a Shared name
  };
  Kind kind = Kind::nothing;
  std::string_view phrase{};  // of static storage
  uint64 first = 0;
  uint64 second = 0;

  friend bool operator==(const Finding&, const Finding&) = default;
};

constexpr Finding phrase(std::string_view text) noexcept {
  return {Finding::Kind::text, text};
}
constexpr Finding number(uint64 x) noexcept {
  return {Finding::Kind::number, {}, x};
}
constexpr Finding range(uint64 low, uint64 high) noexcept {
  return {Finding::Kind::range, {}, low, high};
}
constexpr Finding shape(uint64 rows, uint64 columns) noexcept {
  return {Finding::Kind::shape, {}, rows, columns};
}
constexpr Finding byte_count(uint64 x) noexcept {
  return {Finding::Kind::bytes, {}, x};
}
constexpr Finding word(uint64 x) noexcept {
  return {Finding::Kind::word, {}, x};
}
constexpr Finding type(DataType t) noexcept {
  return {Finding::Kind::type, {}, static_cast<uint64>(t)};
}
constexpr Finding layout(TileLayout l) noexcept {
  return {Finding::Kind::layout, {}, static_cast<uint64>(l)};
}
constexpr Finding mask(unsigned m) noexcept {
  return {Finding::Kind::mask, {}, m};
}
constexpr Finding tile_name(unsigned name) noexcept {
  return {Finding::Kind::tile, {}, name};
}
constexpr Finding shared_name(unsigned id) noexcept {
  return {Finding::Kind::shared, {}, id};
}

/// Why the machine refused: the rule decides the class.
struct Fault {
  RuleId id = RuleId::A1;
  Role role = Role::none;
  Finding found{};
  Finding legal{};
  std::int8_t pe = -1;  // the PE whose check failed, or -1 for the Core

  FaultClass fault_class() const noexcept { return rule(id).fault; }
  friend bool operator==(const Fault&, const Fault&) = default;
};

}  // namespace bitcube::machine
