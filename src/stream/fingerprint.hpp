// Tells whether bytes that were written are still there.
#pragma once

#define XXH_INLINE_ALL  // no library at run time
#include <fmt/format.h>
#include <xxhash.h>

#include <cstddef>
#include <span>
#include <string>

namespace bitcube::stream {

/// XXH3 of 128 bits, of bytes that pass by. It is against faults, not against people: who can change the data can change
/// what is noted of it as well. SHA-256 would take as long as copying itself where the machine has instructions for it,
/// and make a whole checkpoint a quarter slower where not; this does not show.
class Fingerprint {
 public:
  Fingerprint() noexcept { XXH3_128bits_reset(&state_); }

  void add(std::span<const std::byte> bytes) noexcept { XXH3_128bits_update(&state_, bytes.data(), bytes.size()); }
  /// 32 hexadecimal digits.
  std::string text() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  XXH3_state_t state_;
};

}  // namespace bitcube::stream
