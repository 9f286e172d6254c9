// What a fuzz target makes of the bytes that it is given, and how it says that a property does not hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/numeric/bits.hpp"

namespace bitcube::fuzz {

/// Ends the process: libFuzzer then keeps the input, and the replay program fails.
[[noreturn]] inline void fail(std::string_view what, std::string_view found = {}) {
  std::fprintf(stderr, "fuzz: %.*s%s%.*s\n", static_cast<int>(what.size()), what.data(), found.empty() ? "" : ": ",
               static_cast<int>(found.size()), found.data());
  std::abort();
}

/// A property that must hold for every input.
inline void require(bool holds, std::string_view what) {
  if (!holds) fail(what);
}
/// A result that must not be an error.
template <typename Result>
void require_result(const Result& result, std::string_view what) {
  if (!result) fail(what, result.error().message);
}

/// Whether there is a result, which must be so for both, or both have the same error.
template <typename Result>
bool same_outcome(const Result& got, const Result& want, std::string_view target) {
  if (bool(got) != bool(want) || (!got && got.error().message != want.error().message)) {
    fail("another error than the definition", target);
  }
  return bool(got);
}

/// The bytes as choices, taken from the front. Once they are used up every choice is the first one, so a short input is
/// a simple case.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  std::size_t left() const noexcept { return rest_.size(); }

  /// Little-endian, of so many bytes.
  uint64 word(std::size_t bytes) noexcept {
    uint64 word = 0;
    for (std::size_t i = 0; i < bytes && !rest_.empty(); ++i) {
      word |= uint64{rest_.front()} << (8 * i);
      rest_ = rest_.subspan(1);
    }
    return word;
  }
  /// 0 to limit - 1.
  std::size_t below(std::size_t limit) noexcept { return static_cast<std::size_t>(word(limit > 256 ? 2 : 1)) % limit; }
  std::size_t between(std::size_t least, std::size_t most) noexcept { return least + below(most - least + 1); }
  bool flag() noexcept { return (word(1) & 1) != 0; }
  /// A row of a table.
  template <typename Table>
  const auto& pick(const Table& table) noexcept {
    return *std::next(std::begin(table), static_cast<std::ptrdiff_t>(below(std::size(table))));
  }

 private:
  std::span<const std::uint8_t> rest_;
};

/// The bytes as a text.
inline std::string_view text_of(const std::uint8_t* data, std::size_t size) noexcept {
  return {reinterpret_cast<const char*>(data), size};
}
/// The bytes as the memory of a file.
inline std::vector<std::byte> bytes_of(const std::uint8_t* data, std::size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  return {bytes, bytes + size};
}

}  // namespace bitcube::fuzz

/// What libFuzzer, or the replay program, calls with every input.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
