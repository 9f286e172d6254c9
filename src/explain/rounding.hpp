// One rounding of an encoder, as explanations write it. Private to the explain room.
#pragma once

#include <optional>

#include "bitcube/document.hpp"
#include "bitcube/numeric/encode.hpp"

namespace bitcube::explain {

/// encode_steps(to, x, control), and what it was asked.
struct Rounding {
  const Format* to = nullptr;
  EncodeControl control{};
  Real x{};  // of a literal its leading bits
  EncodeSteps steps{};
};

/// A value of the destination next to the source; no code: the format does not have it.
struct Neighbour {
  Real value{};
  std::optional<uint64> code{};
};

/// Whether x lies between two values of the destination, as if its range went on.
bool has_neighbours(const Rounding& rounding) noexcept;
/// The neighbour that the steps took. Precondition: has_neighbours().
Neighbour taken(const Rounding& rounding);
/// Neighbours, distances, guard and sticky, and who decided. Precondition: has_neighbours().
Section rounding_section(const Rounding& rounding);

}  // namespace bitcube::explain
