// SHA-256, of what is in memory and of what passes by.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "bitcube/expected.hpp"

namespace bitcube {

/// Takes bytes in pieces.
class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();

  void add(std::span<const std::byte> bytes) noexcept;
  void add(std::string_view text) noexcept { add(std::as_bytes(std::span(text))); }
  /// 64 hexadecimal digits in lower case. Final: to take it again is an error.
  Expected<std::string> hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

/// The digest of bytes that are at hand.
Expected<std::string> sha256(std::span<const std::byte> bytes);

}  // namespace bitcube
