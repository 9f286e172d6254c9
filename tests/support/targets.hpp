// Every SIMD target of this machine in turn, as run-time dispatch would choose it.
#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <string>

namespace bitcube::test {

/// Calls body(name) once per target that the machine has, best first, with everything better switched off; the last is
/// the plain one without SIMD. Targets that the kernels were not built for act as the next lower one.
template <typename Body>
void for_each_target(const Body& body) {
  const std::int64_t all = hwy::SupportedTargets();
  for (std::int64_t rest = all; rest != 0; rest &= rest - 1) {
    hwy::SetSupportedTargetsForTest(rest);
    hwy::GetChosenTarget().DeInit();  // choose again at the next dispatch
    body(std::string(hwy::TargetName(rest & -rest)));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace bitcube::test
