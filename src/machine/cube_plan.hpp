// A CUBE bundle as one Core sees it: everything that stages B to D establish (architecture 3, 4.3, 5).
#pragma once

#include "bitcube/cube/prequant.hpp"
#include "effects.hpp"

namespace bitcube::machine {

/// One side of the product.
struct CubeSide {
  const Format* format = nullptr;
  bool scaled = false;      // has a scale operand
  std::uint32_t group = 0;  // lanes of K per scale
  DataType scale_type{};    // E8M0 or U32
  bool shared = false;
  bool transposed = false;        // Shared only
  const Tile* primary = nullptr;  // Shared only
  const Tile* scale = nullptr;

  std::uint32_t groups(std::uint32_t k) const noexcept { return divide_up(k, group); }
};

struct CubeDestination {
  Role role = Role::d;
  unsigned hand = 0;
  std::uint32_t capacity = 0;
};

struct CubePlan {
  isa::Operation operation = isa::Operation::none;
  bool mx = false;
  bool gemv = false;
  bool has_bias = false;
  bool accumulates = false;
  CubeSide a;
  CubeSide b;
  const Format* accumulator = nullptr;
  std::uint32_t m = 0;  // of a PE, or group_M
  std::uint32_t n = 0;
  std::uint32_t k = 0;
  bool cooperative = false;
  unsigned mask = 0;

  PostprocessAttributes post{};
  const PreQuantMode* mode = nullptr;
  Relu relu = Relu::none;
  std::optional<Rounding> rounding{};
  bool saturate = false;

  /// Local sources in stream order (architecture 3.1), with the names that the bindings give them.
  std::vector<std::pair<Role, std::uint8_t>> sources{};
  std::vector<CubeDestination> destinations{};
  std::optional<unsigned> quant_gpr{};  // the GPR of a scalar parameter; nothing: the zero word of an omitted B.IOR
  std::optional<unsigned> relu_gpr{};

  bool scalar_quant() const noexcept { return mode->carrier != CarrierKind::none && !mode->per_column; }
  bool vector_quant() const noexcept { return mode->carrier != CarrierKind::none && mode->per_column; }
  unsigned group_n() const noexcept;
  /// Rows of a PE, and the first one (architecture 5).
  std::uint32_t rows_per_pe() const noexcept { return m <= 64 ? 16 : 32; }
  std::uint32_t first_row(unsigned pe) const noexcept { return cooperative ? pe * rows_per_pe() : 0; }
  std::uint32_t rows(unsigned pe) const noexcept;
  /// The name bound to a role, or nothing.
  std::optional<unsigned> name_of(Role role) const noexcept;
};

/// Stages B2 to D2. The reference stays valid as long as the state.
struct Planned {
  Check fault{};
  std::optional<unsigned> waiting_for{};
  CubePlan plan{};
};
Planned plan_cube(const State& state);

/// What stages F and G establish for one PE: its sources by role, and its destinations ready to be filled.
struct PePlan {
  unsigned pe = 0;
  std::uint32_t m = 0;
  std::array<const Tile*, static_cast<std::size_t>(Role::mask) + 1> source{};
  std::vector<TileDescriptor> destinations{};
  uint64 quant_word = 0;
  uint64 relu_word = 0;

  const Tile* operator[](Role role) const noexcept { return source[static_cast<std::size_t>(role)]; }
};
struct PePlanned {
  Check fault{};
  PePlan plan{};
};
PePlanned plan_pe(const State& state, const CubePlan& plan, unsigned pe);

/// Stage H for one PE: computes the destinations of the plan.
void run_pe(const State& state, const CubePlan& plan, const PePlan& pe, Effects& effects);

}  // namespace bitcube::machine
