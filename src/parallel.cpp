#include "bitcube/parallel.hpp"

#include <tbb/cache_aligned_allocator.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <algorithm>
#include <atomic>
#include <new>

#ifdef BITCUBE_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace bitcube {
namespace {

#ifdef BITCUBE_TSAN
void acquire(void* mark) {
  __tsan_acquire(mark);
}
void release(void* mark) {
  __tsan_release(mark);
}
#else
void acquire(void* /*mark*/) {}
void release(void* /*mark*/) {}
#endif

/// Tells the thread sanitizer what oneTBB promises, as it cannot see what oneTBB does: what was done before a loop is
/// seen by all of its pieces, and what they did by whatever follows. Pieces are not ordered among each other.
class Order {
 public:
  Order() { release(&before_); }
  Order(const Order&) = delete;
  Order& operator=(const Order&) = delete;
  ~Order() { acquire(&after_); }

  class Piece {
   public:
    explicit Piece(Order& order) : after_(order.after_) { acquire(&order.before_); }
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;
    ~Piece() { release(&after_); }

   private:
    char& after_;
  };

 private:
  char before_ = 0;
  char after_ = 0;
};

/// oneTBB loads its allocator when it first wants memory, and without any the loader of glibc crashes instead of
/// telling. So that happens before main(), or when libbitcube.so is loaded.
[[maybe_unused]] const bool allocator_is_loaded = [] {
  try {
    tbb::cache_aligned_allocator<char> allocator;
    allocator.deallocate(allocator.allocate(1), 1);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}();

}  // namespace

unsigned thread_count(const Execution& execution) noexcept {
  // More threads than cores gain nothing, and oneTBB would say so on standard error.
  const auto cores = static_cast<unsigned>(tbb::info::default_concurrency());
  return execution.threads == 0 ? cores : std::min(execution.threads, cores);
}

void parallel_for(std::size_t count, const Execution& execution, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> done{0};
  Order order;
  const auto step = [&](std::size_t i) {
    const Order::Piece piece(order);
    throw_if_cancelled(execution);
    body(i);
    const std::size_t finished = done.fetch_add(1, std::memory_order_relaxed) + 1;
    if (execution.progress) execution.progress(finished, count);
  };
  const auto threads = static_cast<int>(thread_count(execution));
  if (threads == 1 || count == 1) {
    for (std::size_t i = 0; i < count; ++i) step(i);
    return;
  }
  const auto run = [&] { tbb::parallel_for(std::size_t{0}, count, step, tbb::simple_partitioner()); };
  if (threads == tbb::info::default_concurrency()) return run();  // what oneTBB has ready
  tbb::task_arena arena(threads);
  arena.execute(run);
}

}  // namespace bitcube
