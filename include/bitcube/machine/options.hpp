// The choices that the architecture leaves to the model (architecture 9.4), with the defaults given there.
#pragma once

#include "bitcube/cube/accumulate.hpp"
#include "bitcube/numeric/profile.hpp"

namespace bitcube::machine {

enum class NamePolicy : std::uint8_t {
  relative,  // #1 is the newest Tile of its hand; a 17th drops the oldest
  absolute,  // #n is physical register n; a new Tile takes the lowest free one
};

struct Options {
  NamePolicy name_policy = NamePolicy::relative;
  bool wait_on_pending = false;      // an unready Shared source keeps the bundle pending instead of faulting
  bool coop_exact_columns = false;   // Shared operands of a product: physical columns equal the valid ones
  bool aux_exact_columns = false;    // GroupMaxOut: physical columns equal the valid ones
  bool gemv_hif4 = true;             // TGEMV_MX* takes HiF4X2
  bool strict_reserved_bits = true;  // source-only B.IOT with bits 8:7 set is Illegal
  unsigned scalar_pe = 0;            // whose GPRs B.DIM reads; B.IOR reads those of each participating PE
  const AccumulationProfile* accumulation = &accumulation_profiles[0];
  const ConversionProfile* conversion = &pto_profile;

  friend bool operator==(const Options&, const Options&) = default;
};

}  // namespace bitcube::machine
