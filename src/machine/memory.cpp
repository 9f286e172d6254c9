#include "bitcube/machine/memory.hpp"

#include <algorithm>
#include <cstring>

namespace bitcube::machine {

namespace {
constexpr uint64 page_count = ~uint64{0} / Memory::page_bytes + 1;
}

Memory::Page& Memory::writable(uint64 page) {
  auto& slot = pages_[page];
  if (slot == nullptr) {
    slot = std::make_shared<Page>();
  } else if (slot.use_count() > 1) {
    slot = std::make_shared<Page>(*slot);
  }
  return *slot;
}

void Memory::map(uint64 address, uint64 size) {
  if (size == 0) return;
  const uint64 first = address / page_bytes;
  const uint64 count = (address % page_bytes + (size - 1)) / page_bytes + 1;
  for (uint64 i = 0; i < count; ++i) {
    auto& slot = pages_[(first + i) % page_count];
    if (slot == nullptr) slot = std::make_shared<Page>();
  }
}

void Memory::write(uint64 address, std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const uint64 offset = address % page_bytes;
    const std::size_t n = std::min<std::size_t>(bytes.size(), page_bytes - offset);
    std::memcpy(writable(address / page_bytes).data() + offset, bytes.data(), n);
    bytes = bytes.subspan(n);
    address += n;
  }
}

std::vector<std::uint8_t> Memory::read(uint64 address, std::size_t size) const {
  std::vector<std::uint8_t> out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = byte(address + i);
  return out;
}

std::uint8_t Memory::byte(uint64 address) const noexcept {
  const auto page = pages_.find(address / page_bytes);
  return page == pages_.end() ? std::uint8_t{0} : (*page->second)[address % page_bytes];
}

void Memory::set_byte(uint64 address, std::uint8_t value) {
  writable(address / page_bytes)[address % page_bytes] = value;
}

uint64 Memory::load(uint64 address, std::size_t width) const noexcept {
  const auto page = pages_.find(address / page_bytes);
  uint64 word = 0;
  if (page != pages_.end()) std::memcpy(&word, page->second->data() + address % page_bytes, width);
  return word;
}

void Memory::store(uint64 address, std::size_t width, uint64 word) {
  std::memcpy(writable(address / page_bytes).data() + address % page_bytes, &word, width);
}

bool operator==(const Memory& a, const Memory& b) {
  return std::equal(a.pages_.begin(), a.pages_.end(), b.pages_.begin(), b.pages_.end(),
                    [](const auto& x, const auto& y) {
                      return x.first == y.first && (x.second == y.second || *x.second == *y.second);
                    });
}

}  // namespace bitcube::machine
