// The codes inside instruction fields and their names: registers, PE masks, sizes, layouts, rounding (architecture 1,
// 2).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "bitcube/numeric/format.hpp"

namespace bitcube::isa {

/// One value of a field and how it is written. An alias is accepted, never printed.
struct CodeName {
  std::uint8_t code;
  std::string_view name;
  std::string_view alias{};
};

/// B.DATR.Layout (architecture 2.6): source order, "2", destination order. The other codes are reserved.
enum class TransferLayout : std::uint8_t {
  norm = 0,
  nd2dn = 1,
  nd2zn = 3,
  nd2nz = 4,
  dn2nd = 6,
  dn2zn = 8,
  dn2nz = 9,
  zn2nd = 17,
  zn2dn = 18,
  zn2nz = 20,
  nd2m32 = 21,
  nd2m16 = 22,
  nd2n8 = 23,
  m322nd = 24,
  m162nd = 25,
  n82nd = 26,
  nz2nd = 27,
  nz2dn = 28,
  nz2zn = 30,
};

/// B.DATR.PadValue. An omitted B.DATR means null: the padding is undefined.
enum class PadValue : std::uint8_t { zero = 0, max = 1, min = 2, null = 3 };

/// The four hands of Local Tile registers (architecture 1.3).
enum class Hand : std::uint8_t { t = 0, u = 1, m = 2, n = 3 };

inline constexpr std::array<CodeName, 19> layout_names{{
    {0, "NORM"},    {1, "ND2DN"},  {3, "ND2ZN"},  {4, "ND2NZ"},   {6, "DN2ND"},   {8, "DN2ZN"},  {9, "DN2NZ"},
    {17, "ZN2ND"},  {18, "ZN2DN"}, {20, "ZN2NZ"}, {21, "ND2M32"}, {22, "ND2M16"}, {23, "ND2N8"}, {24, "M322ND"},
    {25, "M162ND"}, {26, "N82ND"}, {27, "NZ2ND"}, {28, "NZ2DN"},  {30, "NZ2ZN"},
}};
inline constexpr std::array<CodeName, 4> pad_names{{{0, "Zero"}, {1, "Max"}, {2, "Min"}, {3, "Null"}}};
inline constexpr std::array<CodeName, 6> compare_names{
    {{0, "EQ"}, {1, "NE"}, {2, "LT"}, {3, "GT"}, {4, "LE"}, {5, "GE"}}};
/// Code 0 asks for the operation's default; the contract gives it no name, "Default" is this project's.
inline constexpr std::array<CodeName, 8> rmode_names{
    {{0, "Default"}, {1, "RNE"}, {2, "RTZ"}, {3, "RTM"}, {4, "RTP"}, {5, "RNA"}, {6, "RTO"}, {7, "RHB"}}};
inline constexpr std::array<CodeName, 4> relu_names{{{0, "None"}, {1, "ReLU"}, {2, "LReLU"}, {3, "PReLU"}}};
inline constexpr std::array<CodeName, 4> hand_names{{{0, "T"}, {1, "U"}, {2, "M"}, {3, "N"}}};
inline constexpr std::array<CodeName, 3> dimension_names{{{0, "LB0"}, {1, "LB1"}, {2, "LB2"}}};
inline constexpr std::array<CodeName, 24> gpr_names{
    {{0, "zero"}, {1, "sp"},  {2, "a0"},  {3, "a1"},  {4, "a2"},  {5, "a3"},  {6, "a4"},  {7, "a5"},
     {8, "a6"},   {9, "a7"},  {10, "ra"}, {11, "s0"}, {12, "s1"}, {13, "s2"}, {14, "s3"}, {15, "s4"},
     {16, "s5"},  {17, "s6"}, {18, "s7"}, {19, "s8"}, {20, "x0"}, {21, "x1"}, {22, "x2"}, {23, "x3"}}};
/// PEMode as its mask is written, PE0 first (architecture 1.5). The other eight masks cannot be encoded.
inline constexpr std::array<CodeName, 8> pe_mask_names{
    {{0, "0000"}, {1, "1000"}, {2, "0100"}, {3, "0010"}, {4, "0001"}, {5, "1100"}, {6, "1110"}, {7, "1111"}}};

inline constexpr int gpr_count = 24;
inline constexpr int tiles_per_hand = 16;
inline constexpr int shared_tile_count = 64;

/// The set of codes that have a name, one bit each.
constexpr std::uint64_t named_codes(std::span<const CodeName> names) noexcept {
  std::uint64_t set = 0;
  for (const CodeName& n : names) set |= std::uint64_t{1} << n.code;
  return set;
}

/// The DataType codes that a BSTART accepts. E6M2 and RCPE6M2 are formats of this library, but their codes 15 and 21
/// are reserved in instructions (architecture 1.2).
constexpr std::uint64_t instruction_data_types() noexcept {
  std::uint64_t set = 0;
  for (const Format& f : formats) {
    if (f.type == DataType::e6m2 || f.type == DataType::rcpe6m2) continue;
    set |= std::uint64_t{1} << static_cast<unsigned>(f.type);
  }
  return set;
}

/// The PE mask of a PEMode, 0..7: bit 3-i belongs to PE i.
constexpr unsigned pe_mask(int pe_mode) noexcept {
  unsigned mask = 0;
  for (const char c : pe_mask_names[static_cast<std::size_t>(pe_mode)].name) mask = 2 * mask + (c == '1' ? 1 : 0);
  return mask;
}
/// Bytes of a SizeCode (architecture 1.5); 0 for code 0, which means "no destination".
constexpr std::uint32_t size_bytes(int size_code) noexcept {
  return size_code == 0 ? 0 : std::uint32_t{128} << (size_code - 1);
}

/// Register names in any case; nullopt where the text is none. Tiles are written T#1 .. N#16 (codes 0..63), Shared
/// Tiles S0 .. S63.
std::optional<int> find_gpr(std::string_view text) noexcept;
std::optional<int> find_tile(std::string_view text) noexcept;
std::optional<int> find_shared_tile(std::string_view text) noexcept;
/// The reverse. Precondition: the code is a legal one.
std::string_view gpr_name(int code) noexcept;
std::string tile_name(int code);
std::string shared_tile_name(int code);

}  // namespace bitcube::isa
