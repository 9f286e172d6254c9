#include "bitcube/machine/state.hpp"

#include <algorithm>

namespace bitcube::machine {

bool operator==(const Pe& a, const Pe& b) {
  return a.gpr == b.gpr && std::equal(a.local.begin(), a.local.end(), b.local.begin(), same_tile);
}

bool operator==(const SharedRecord& a, const SharedRecord& b) {
  return a.allocation_mask == b.allocation_mask && a.initialized_mask == b.initialized_mask &&
         a.whole_parent_ready == b.whole_parent_ready && a.published == b.published && same_tile(a.tile, b.tile);
}

std::uint64_t State::local_pool(unsigned pe_index) const noexcept {
  std::uint64_t bytes = 0;
  for (const TileRef& tile : pe[pe_index].local) bytes += tile ? tile->descriptor().capacity_bytes : 0;
  return bytes;
}

std::uint64_t State::shared_pool() const noexcept {
  std::uint64_t bytes = 0;
  for (const SharedRecord& record : shared) bytes += record.tile ? record.tile->descriptor().capacity_bytes : 0;
  return bytes;
}

}  // namespace bitcube::machine
