// Numeric status flags (numerics 3).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace bitcube {

/// The five sticky status bits, in the order of CORE_STATE[36:32]. Combine with |, test with has().
enum class Flags : std::uint8_t {
  none = 0x00,
  invalid = 0x01,         // NV
  divide_by_zero = 0x02,  // DZ: no rule of this model raises it
  overflow = 0x04,        // OF
  underflow = 0x08,       // UF
  inexact = 0x10,         // NX
};

constexpr Flags operator|(Flags a, Flags b) noexcept {
  return static_cast<Flags>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr Flags& operator|=(Flags& a, Flags b) noexcept {
  return a = a | b;
}
constexpr bool has(Flags set, Flags flag) noexcept {
  return (static_cast<std::uint8_t>(set) & static_cast<std::uint8_t>(flag)) != 0;
}

inline constexpr Flags overflow_inexact = Flags::overflow | Flags::inexact;
inline constexpr Flags underflow_inexact = Flags::underflow | Flags::inexact;

struct FlagName {
  Flags flag;
  std::string_view name;
};
inline constexpr std::array<FlagName, 5> flag_names{{{Flags::invalid, "NV"},
                                                     {Flags::divide_by_zero, "DZ"},
                                                     {Flags::overflow, "OF"},
                                                     {Flags::underflow, "UF"},
                                                     {Flags::inexact, "NX"}}};

}  // namespace bitcube
