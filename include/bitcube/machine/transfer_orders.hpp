// What a layout code of B.DATR means for TLOAD, TSTORE and TMOV (architecture 2.6).
#pragma once

#include "bitcube/isa/codes.hpp"
#include "bitcube/machine/geometry.hpp"

namespace bitcube::machine {

/// The orders that a layout code goes between. NORM is row-major on both sides of a transfer.
struct Orders {
  TileLayout from;
  TileLayout to;
};
constexpr Orders orders_of(isa::TransferLayout code) noexcept {
  using enum isa::TransferLayout;
  constexpr TileLayout nd = TileLayout::row_major;
  constexpr TileLayout dn = TileLayout::column_major;
  constexpr TileLayout zn = TileLayout::zn;
  constexpr TileLayout nz = TileLayout::nz;
  switch (code) {
    case norm:
      return {nd, nd};
    case nd2dn:
      return {nd, dn};
    case nd2zn:
      return {nd, zn};
    case nd2nz:
      return {nd, nz};
    case dn2nd:
      return {dn, nd};
    case dn2zn:
      return {dn, zn};
    case dn2nz:
      return {dn, nz};
    case zn2nd:
      return {zn, nd};
    case zn2dn:
      return {zn, dn};
    case zn2nz:
      return {zn, nz};
    case nd2m32:
      return {nd, TileLayout::cube_m32};
    case nd2m16:
      return {nd, TileLayout::cube_m16};
    case nd2n8:
      return {nd, TileLayout::cube_n8};
    case m322nd:
      return {TileLayout::cube_m32, nd};
    case m162nd:
      return {TileLayout::cube_m16, nd};
    case n82nd:
      return {TileLayout::cube_n8, nd};
    case nz2nd:
      return {nz, nd};
    case nz2dn:
      return {nz, dn};
    case nz2zn:
      return {nz, zn};
  }
  return {nd, nd};
}

}  // namespace bitcube::machine
