// How far tests go that sweep over values.
#pragma once

namespace bitcube::test {

/// A build that is many times slower and looks at something else than the numbers (docs/reliability.md).
#ifdef BITCUBE_SLOW_BUILD
inline constexpr bool slow_build = true;
#else
inline constexpr bool slow_build = false;
#endif

/// The step of a sweep: 1, all values; `slow` in a slow build.
constexpr unsigned sweep_step(unsigned slow) noexcept {
  return slow_build ? slow : 1;
}

}  // namespace bitcube::test
