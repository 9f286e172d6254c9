// Findings, faults and Tiles in words.
#include <fmt/format.h>

#include "bitcube/io/sha256.hpp"
#include "bitcube/isa/codes.hpp"
#include "bitcube/program/program.hpp"
#include "bitcube/quantize/lines.hpp"
#include "names.hpp"

namespace bitcube::program {

std::string text_of(const machine::Finding& f) {
  using Kind = machine::Finding::Kind;
  switch (f.kind) {
    case Kind::nothing:
      return {};
    case Kind::text:
      return std::string(f.phrase);
    case Kind::number:
      return fmt::format("{}", f.first);
    case Kind::range:
      return f.first == f.second ? fmt::format("{}", f.first) : fmt::format("{}..{}", f.first, f.second);
    case Kind::shape:
      return fmt::format("{} x {}", f.first, f.second);
    case Kind::bytes:
      return fmt::format("{} bytes", f.first);
    case Kind::word:
      return fmt::format("0x{:08X}", f.first);
    case Kind::type:
      return std::string(type_text(static_cast<DataType>(f.first)));
    case Kind::layout:
      return std::string(machine::name_of(static_cast<machine::TileLayout>(f.first)));
    case Kind::mask:
      return "mask " + mask_text(static_cast<unsigned>(f.first));
    case Kind::tile:
      return isa::tile_name(static_cast<int>(f.first));
    case Kind::shared:
      return isa::shared_tile_name(static_cast<int>(f.first));
  }
  return {};
}

std::string explain(const machine::Fault& fault, const isa::Rejection& rejection) {
  const machine::Rule& rule = machine::rule(fault.id);
  std::string text = fmt::format("{} {}", machine::name_of(rule.fault), rule.name);
  if (fault.pe >= 0) text += fmt::format(", PE{}", fault.pe);
  if (fault.role != machine::Role::none) text += fmt::format(", {}", machine::name_of(fault.role));
  if (rejection.reason != isa::Rejection::Reason::none) return text + ": " + isa::explain(rejection);
  const std::string found = text_of(fault.found);
  const std::string legal = text_of(fault.legal);
  if (!found.empty()) text += fmt::format(": found {}", found);
  if (!legal.empty()) text += fmt::format("{} legal: {}", found.empty() ? ":" : ";", legal);
  return text + fmt::format(" ({})", rule.text);
}

std::string describe(const machine::Tile& tile) {
  const machine::TileDescriptor& d = tile.descriptor();
  return fmt::format("{} {} {} x {}", type_text(d.type), machine::name_of(d.layout), d.valid_rows, d.valid_columns);
}

std::vector<std::byte> element_bytes(const machine::Tile& tile) {
  const std::size_t size = tile.format().carrier_bits / 8U;
  const std::vector<uint64> words = tile.valid_words();
  std::vector<std::byte> bytes(words.size() * size);
  for (std::size_t i = 0; i < words.size(); ++i) store_word(bytes.data() + i * size, size, words[i]);
  return bytes;
}

std::string element_digest(const machine::Tile& tile) {
  const auto digest = sha256(element_bytes(tile));
  return digest ? *digest : std::string();
}

}  // namespace bitcube::program
