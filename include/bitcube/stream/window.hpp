// How much of a file is in memory at a time.
#pragma once

#include <cstddef>

namespace bitcube::stream {

/// The bytes that a function of this room holds at a time unless it is told otherwise: input, result and what is
/// between them. A window is never less than a group of lanes. Windows this large keep the pieces of rows long that are
/// read where the groups lie along another axis than the last; where all is read in order, less is used.
inline constexpr std::size_t kWindow = std::size_t{160} << 20;

}  // namespace bitcube::stream
