// What TLOAD, TMOV and TCVT put outside the valid region (architecture 1.8).
#pragma once

#include "bitcube/isa/codes.hpp"
#include "bitcube/machine/tile.hpp"

namespace bitcube::machine {

/// Gives the elements outside the valid region their value and says what is defined: everything, or with Null only the
/// valid region. For a Tile that is new, so 0 outside.
void fill_padding(Tile& tile, isa::PadValue pad);

}  // namespace bitcube::machine
