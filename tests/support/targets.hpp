// Every SIMD target of this machine in turn, as run-time dispatch would choose it.
#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <string>

namespace bitcube::test {

/// Calls body(name) once per target that the machine has and the kernels are built for, best first, with everything
/// better switched off. The last is the plain one without SIMD, where the reference takes over; `with_plain` false
/// leaves it out.
template <typename Body>
void for_each_target(const Body& body, bool with_plain = true) {
  for (std::int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    const std::int64_t target = rest & -rest;
    const bool plain = (rest & (rest - 1)) == 0 || target == HWY_EMU128;
    if (target == HWY_SSSE3 || (plain && !with_plain)) continue;
    hwy::SetSupportedTargetsForTest(rest);
    hwy::GetChosenTarget().DeInit();  // choose again at the next dispatch
    body(std::string(hwy::TargetName(target)));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace bitcube::test
