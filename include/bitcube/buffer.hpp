// Memory for results that are written whole: not set to zero first.
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace bitcube {

/// Allocates like std::allocator, but leaves new elements without a value unless one is given.
template <typename T>
struct UninitializedAllocator : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = UninitializedAllocator<U>;
  };
  using std::allocator<T>::allocator;

  template <typename U>
  void construct(U* at) noexcept {
    ::new (static_cast<void*>(at)) U;
  }
  template <typename U, typename... Arguments>
  void construct(U* at, Arguments&&... arguments) {
    ::new (static_cast<void*>(at)) U(std::forward<Arguments>(arguments)...);
  }
};

/// A vector whose resize() and Buffer(n) cost nothing until the elements are written.
template <typename T>
using Buffer = std::vector<T, UninitializedAllocator<T>>;

}  // namespace bitcube
