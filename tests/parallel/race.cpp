// A race that the thread sanitizer has to report: two pieces of a loop, on two threads, write the same number.
#include <atomic>
#include <cstdio>

#include "bitcube/parallel.hpp"

int main() {
  if (bitcube::thread_count({}) < 2) {
    std::puts("one core has no races");
    return 0;
  }
  std::atomic<int> arrived{0};
  int number = 0;
  bitcube::parallel_for(2, {}, [&](std::size_t) {
    // Both are under way, and nothing orders them: a relaxed operation does not.
    arrived.fetch_add(1, std::memory_order_relaxed);
    while (arrived.load(std::memory_order_relaxed) < 2) {
    }
    ++number;
  });
  std::printf("%d\n", number);
}
