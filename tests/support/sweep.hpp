// How far tests go that sweep over values.
#pragma once

namespace bitcube::test {

/// The step of a sweep: 1, all values; `slow` in a build that is many times slower and looks at something else than the
/// numbers (BITCUBE_SLOW_BUILD, docs/reliability.md).
constexpr unsigned sweep_step([[maybe_unused]] unsigned slow) noexcept {
#ifdef BITCUBE_SLOW_BUILD
  return slow;
#else
  return 1;
#endif
}

}  // namespace bitcube::test
