#include "bitcube/io/sha256.hpp"

#include <fmt/format.h>
#include <nettle/sha2.h>

#include <array>
#include <utility>

namespace bitcube {

// Nettle's state is plain memory: it asks for none while the digest is made, and cannot fail.
struct Sha256::Context {
  Context() noexcept { sha256_init(&state); }

  sha256_ctx state;
  bool final = false;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::add(std::span<const std::byte> bytes) noexcept {
  sha256_update(&context_->state, bytes.size(), reinterpret_cast<const std::uint8_t*>(bytes.data()));
}

Expected<std::string> Sha256::hex() {
  if (std::exchange(context_->final, true)) return Error{"SHA-256: the digest was taken before"};
  std::array<std::uint8_t, SHA256_DIGEST_SIZE> digest{};
  sha256_digest(&context_->state, digest.size(), digest.data());
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

Expected<std::string> sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.hex();
}

}  // namespace bitcube
