// The floating-point environment that kernels compute in.
#pragma once

#include <cfenv>

namespace bitcube::kernels {

/// Round to nearest, subnormals kept, nothing trapped, whatever the caller has set; restored at the end of the scope.
/// A kernel that uses the machine's floating point does so inside one.
class FloatEnvironment {
 public:
  FloatEnvironment() noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatEnvironment() { std::fesetenv(&saved_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  std::fenv_t saved_{};
};

}  // namespace bitcube::kernels
