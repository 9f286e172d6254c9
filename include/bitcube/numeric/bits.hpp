// Plain bit arithmetic that the rest of `numeric` stands on.
#pragma once

#include <bit>
#include <cstdint>

namespace bitcube {

using uint64 = std::uint64_t;
using int64 = std::int64_t;
__extension__ using uint128 = unsigned __int128;
__extension__ using int128 = __int128;

/// Number of bits up to and including the highest set bit; 0 for 0.
constexpr int bit_length(uint64 x) noexcept {
  return 64 - std::countl_zero(x);
}
constexpr int bit_length(uint128 x) noexcept {
  const auto high = static_cast<uint64>(x >> 64);
  return high != 0 ? 64 + bit_length(high) : bit_length(static_cast<uint64>(x));
}

/// The low `bits` bits set; 0 <= bits <= 64.
constexpr uint64 low_mask(int bits) noexcept {
  return bits >= 64 ? ~uint64{0} : (uint64{1} << bits) - 1;
}

/// The low `bits` bits of `word` as a two's-complement number; 1 <= bits <= 64.
constexpr int64 sign_extend(uint64 word, int bits) noexcept {
  const uint64 sign = uint64{1} << (bits - 1);
  return static_cast<int64>(((word & low_mask(bits)) ^ sign) - sign);
}

}  // namespace bitcube
