#include "padding.hpp"

#include "bitcube/numeric/encode.hpp"

namespace bitcube::machine {

namespace {

using isa::PadValue;

/// The pattern of padding; the largest finite magnitude for Max and Min (numerics 1.2).
uint64 pad_word(const Format& f, PadValue pad) noexcept {
  if (pad == PadValue::max) return f.max_finite;
  if (pad != PadValue::min || f.sign_bits == 0) return 0;
  return f.is_integer() ? f.max_finite + 1 : with_sign(f, f.max_finite, true);
}

}  // namespace

void fill_padding(Tile& tile, PadValue pad) {
  if (pad == PadValue::null) {
    tile.set_extent(Definedness::Extent::valid);
    return;
  }
  tile.set_extent(Definedness::Extent::all);
  const uint64 pattern = pad_word(tile.format(), pad);
  if (pattern == 0) return;  // new Tiles are 0
  const TileDescriptor& d = tile.descriptor();
  for (std::uint32_t r = 0; r < d.rows; ++r) {
    for (std::uint32_t c = r < d.valid_rows ? d.valid_columns : 0; c < d.columns; ++c)
      tile.store_element(r, c, pattern);
  }
}

}  // namespace bitcube::machine
