// Unsigned integers of a fixed large width, for exact values that no machine word holds.
#pragma once

#include <array>
#include <cstddef>

#include "bitcube/numeric/bits.hpp"

namespace bitcube {

/// Unsigned integer of 64 * Words bits, least significant word first. Arithmetic is modulo 2^(64 * Words).
template <std::size_t Words>
struct WideUint {
  std::array<uint64, Words> words{};

  static constexpr int bits = static_cast<int>(64 * Words);

  constexpr WideUint() = default;
  constexpr explicit WideUint(uint64 value) { words[0] = value; }

  friend constexpr bool operator==(const WideUint&, const WideUint&) = default;

  constexpr bool is_zero() const noexcept { return *this == WideUint{}; }

  constexpr int bit_length() const noexcept {
    for (std::size_t i = Words; i-- > 0;) {
      if (words[i] != 0) return static_cast<int>(64 * i) + bitcube::bit_length(words[i]);
    }
    return 0;
  }

  constexpr bool bit(int index) const noexcept {
    return index >= 0 && index < bits && ((words[static_cast<std::size_t>(index / 64)] >> (index % 64)) & 1) != 0;
  }

  /// Whether any bit below `index` is set.
  constexpr bool any_below(int index) const noexcept {
    for (std::size_t i = 0; i < Words; ++i) {
      const int low = index - static_cast<int>(64 * i);
      if (low <= 0) return false;
      if ((words[i] & low_mask(low)) != 0) return true;
    }
    return false;
  }

  constexpr WideUint operator<<(int shift) const noexcept {
    WideUint out;
    const auto skip = static_cast<std::size_t>(shift / 64);
    const int part = shift % 64;
    for (std::size_t i = Words; i-- > skip;) {
      out.words[i] = words[i - skip] << part;
      if (part != 0 && i > skip) out.words[i] |= words[i - skip - 1] >> (64 - part);
    }
    return out;
  }

  constexpr WideUint operator>>(int shift) const noexcept {
    WideUint out;
    const auto skip = static_cast<std::size_t>(shift / 64);
    const int part = shift % 64;
    for (std::size_t i = 0; i + skip < Words; ++i) {
      out.words[i] = words[i + skip] >> part;
      if (part != 0 && i + skip + 1 < Words) out.words[i] |= words[i + skip + 1] << (64 - part);
    }
    return out;
  }

  constexpr WideUint& operator+=(const WideUint& other) noexcept {
    uint64 carry = 0;
    for (std::size_t i = 0; i < Words; ++i) {
      const uint128 sum = static_cast<uint128>(words[i]) + other.words[i] + carry;
      words[i] = static_cast<uint64>(sum);
      carry = static_cast<uint64>(sum >> 64);
    }
    return *this;
  }

  constexpr WideUint& operator-=(const WideUint& other) noexcept {
    uint64 borrow = 0;
    for (std::size_t i = 0; i < Words; ++i) {
      const uint128 difference = static_cast<uint128>(words[i]) - other.words[i] - borrow;
      words[i] = static_cast<uint64>(difference);
      borrow = static_cast<uint64>(difference >> 64) & 1;
    }
    return *this;
  }

  /// this * factor + addend.
  constexpr void multiply_add(uint64 factor, uint64 addend) noexcept {
    uint64 carry = addend;
    for (uint64& word : words) {
      const uint128 product = static_cast<uint128>(word) * factor + carry;
      word = static_cast<uint64>(product);
      carry = static_cast<uint64>(product >> 64);
    }
  }

  friend constexpr bool operator<(const WideUint& a, const WideUint& b) noexcept {
    for (std::size_t i = Words; i-- > 0;) {
      if (a.words[i] != b.words[i]) return a.words[i] < b.words[i];
    }
    return false;
  }
};

/// Exact product in twice the width.
template <std::size_t Words>
constexpr WideUint<2 * Words> square(const WideUint<Words>& x) noexcept {
  WideUint<2 * Words> out;
  for (std::size_t i = 0; i < Words; ++i) {
    uint64 carry = 0;
    for (std::size_t j = 0; j < Words; ++j) {
      const uint128 sum = static_cast<uint128>(x.words[i]) * x.words[j] + out.words[i + j] + carry;
      out.words[i + j] = static_cast<uint64>(sum);
      carry = static_cast<uint64>(sum >> 64);
    }
    out.words[i + Words] = carry;
  }
  return out;
}

}  // namespace bitcube
