// Byte-addressed memory with 64-bit addresses, mapped page by page.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "bitcube/numeric/bits.hpp"

namespace bitcube::machine {

/// A copy shares all pages until one of both writes. Bytes of a mapped page that nobody wrote are 0; an access to any
/// other page is a page fault.
class Memory {
 public:
  static constexpr uint64 page_bytes = 4096;

  /// Maps every page that [address, address + size) touches. Addresses wrap at 2^64.
  void map(uint64 address, uint64 size);
  bool mapped(uint64 address) const noexcept { return pages_.contains(address / page_bytes); }

  /// Maps what is missing and writes.
  void write(uint64 address, std::span<const std::uint8_t> bytes);
  /// Precondition: mapped. Unmapped bytes read as 0.
  std::vector<std::uint8_t> read(uint64 address, std::size_t size) const;

  std::uint8_t byte(uint64 address) const noexcept;
  void set_byte(uint64 address, std::uint8_t value);
  /// `width` bytes at a naturally aligned address: inside one page.
  uint64 load(uint64 address, std::size_t width) const noexcept;
  void store(uint64 address, std::size_t width, uint64 word);

  /// The same pages are mapped and hold the same bytes.
  friend bool operator==(const Memory& a, const Memory& b);

  using Page = std::array<std::uint8_t, page_bytes>;
  /// The mapped pages by page number, in increasing order.
  const std::map<uint64, std::shared_ptr<Page>>& pages() const noexcept { return pages_; }

 private:
  Page& writable(uint64 page);

  std::map<uint64, std::shared_ptr<Page>> pages_;
};

}  // namespace bitcube::machine
