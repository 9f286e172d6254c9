// Quantisers, conversions and post-process against memcpy of the bytes that they read and write.
#include "comparison.hpp"

namespace bitcube::bench {

std::vector<Comparison> array_comparisons() {
  return {};
}

}  // namespace bitcube::bench
