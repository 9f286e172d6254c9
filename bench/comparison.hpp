// A measured claim: our code and a peer that does comparable work, run in turn in one process.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace bitcube::bench {

struct Comparison {
  std::string name;      // "gemm.hif4.group.1024"
  std::string peer;      // what the peer is
  std::string unit;      // of the rates: "GMAC/s", "GB/s"
  double work = 0;       // units of 10^9 in one run of ours
  double peer_work = 0;  // the same of the peer
  /// Makes the data; then the two are called in turn. Nothing of it outlives the comparison.
  struct Runs {
    std::function<void()> ours;
    std::function<void()> peer;
  };
  std::function<Runs()> prepare;
};

/// cblas_sgemm of OpenBLAS on one thread, row-major: c <- a * b, all n x n.
class Sgemm {
 public:
  /// Loads the library after clearing the settings that would slow it. Exits with a message if there is none.
  static const Sgemm& instance();

  void operator()(std::size_t n, const float* a, const float* b, float* c) const;
  const std::string& kernel() const noexcept { return kernel_; }

 private:
  Sgemm();
  void* function_ = nullptr;
  std::string kernel_;
};

std::vector<Comparison> gemm_comparisons();
std::vector<Comparison> array_comparisons();

/// Keeps what a run has made from being optimised away, and stops on an error.
template <typename Result>
void check(const Result& result) {
  if (!result) {
    std::fprintf(stderr, "bench: %s\n", result.error().message.c_str());
    std::exit(1);
  }
}

}  // namespace bitcube::bench
