#include "bitcube/io/sha256.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

namespace bitcube {

struct Sha256::Context {
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { EVP_MD_CTX_free(md); }

  EVP_MD_CTX* md = EVP_MD_CTX_new();
  bool ok = md != nullptr && EVP_DigestInit_ex(md, EVP_sha256(), nullptr) == 1;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::add(std::span<const std::byte> bytes) noexcept {
  context_->ok = context_->ok && EVP_DigestUpdate(context_->md, bytes.data(), bytes.size()) == 1;
}

Expected<std::string> Sha256::hex() {
  std::array<unsigned char, 32> digest{};
  unsigned size = 0;
  if (!context_->ok || EVP_DigestFinal_ex(context_->md, digest.data(), &size) != 1 || size != digest.size()) {
    return Error{"SHA-256: the cryptographic library refused it"};
  }
  context_->ok = false;
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

Expected<std::string> sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.hex();
}

}  // namespace bitcube
