// Runs every comparison, prints a table of ratios, and writes them as JSON: bitcube_bench [--json FILE] [Google
// Benchmark options, such as --benchmark_filter=gemm].
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include <hwy/targets.h>

#include "bitcube/io/file.hpp"
#include "comparison.hpp"

namespace bitcube::bench {

namespace {

constexpr int kRuns = 11;             // of each side, in turn
constexpr double kRunSeconds = 0.04;  // at least; short calls are repeated, so that the core reaches its steady state

struct Row {
  std::string name;
  std::string peer_name;
  std::string unit;
  double ours = 0;  // rates from median times
  double peer = 0;
  double spread = 0;  // of our times: (upper quartile - lower quartile) / median
};

double seconds(const std::function<void()>& call, int calls) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
}

/// Calls in a run, from one that is not counted.
int calls_in_run(const std::function<void()>& call) {
  call();
  return std::clamp(static_cast<int>(std::ceil(kRunSeconds / seconds(call, 1))), 1, 1000);
}

double quantile(std::vector<double> times, double q) {
  std::sort(times.begin(), times.end());
  return times[static_cast<std::size_t>(q * static_cast<double>(times.size() - 1) + 0.5)];
}

/// Google Benchmark runs and filters; an iteration is one run of ours and one of the peer.
void run(benchmark::State& state, const Comparison& comparison, std::vector<Row>& rows) {
  const Comparison::Runs runs = comparison.prepare();
  const int our_calls = calls_in_run(runs.ours);
  const int peer_calls = calls_in_run(runs.peer);
  std::vector<double> ours;
  std::vector<double> peer;
  for (auto _ : state) {
    ours.push_back(seconds(runs.ours, our_calls));
    peer.push_back(seconds(runs.peer, peer_calls));
    state.SetIterationTime(ours.back());
  }
  Row row{comparison.name, comparison.peer, comparison.unit};
  row.ours = comparison.work / quantile(ours, 0.5) / 1e9;
  row.peer = comparison.peer_work / quantile(peer, 0.5) / 1e9;
  row.spread = (quantile(ours, 0.75) - quantile(ours, 0.25)) / quantile(ours, 0.5);
  state.counters["ours"] = row.ours;
  state.counters["peer"] = row.peer;
  state.counters["ratio"] = row.ours / row.peer;
  rows.push_back(std::move(row));
}

nlohmann::ordered_json json_of(const std::vector<Row>& rows) {
  auto list = nlohmann::ordered_json::array();
  const auto rounded = [](double x) { return std::round(x * 1000) / 1000; };
  for (const Row& row : rows) {
    list.push_back({{"name", row.name},
                    {"ours", rounded(row.ours)},
                    {"peer", rounded(row.peer)},
                    {"unit", row.unit},
                    {"ratio", rounded(row.ours / row.peer)},
                    {"peer_name", row.peer_name},
                    {"spread", rounded(row.spread)}});
  }
  return list;
}

}  // namespace

Sgemm::Sgemm() {
  unsetenv("OPENBLAS_CORETYPE");
  unsetenv("OPENBLAS_L2_SIZE");
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  function_ = library == nullptr ? nullptr : dlsym(library, "cblas_sgemm");
  if (function_ == nullptr) {
    fmt::print(stderr, "bench: no OpenBLAS (libopenblas.so.0): {}\n", dlerror());
    std::exit(2);
  }
  using Name = char*();
  if (auto* name = reinterpret_cast<Name*>(dlsym(library, "openblas_get_corename")); name != nullptr) kernel_ = name();
}

const Sgemm& Sgemm::instance() {
  static const Sgemm sgemm;
  return sgemm;
}

void Sgemm::operator()(std::size_t n, const float* a, const float* b, float* c) const {
  using Function = void(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
  constexpr int row_major = 101;
  constexpr int no_trans = 111;
  const int size = static_cast<int>(n);
  reinterpret_cast<Function*>(function_)(row_major, no_trans, no_trans, size, size, size, 1.0F, a, size, b, size, 0.0F,
                                         c, size);
}

}  // namespace bitcube::bench

int main(int argc, char** argv) {
  using namespace bitcube::bench;
  std::string json_path;
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json_path = argv[++i];
    } else {
      rest.push_back(argv[i]);
    }
  }
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 2;

  const std::string kernel = Sgemm::instance().kernel();
  std::vector<Row> rows;
  std::vector<Comparison> comparisons = gemm_comparisons();
  for (Comparison& c : array_comparisons()) comparisons.push_back(std::move(c));
  for (const Comparison& comparison : comparisons) {
    benchmark::RegisterBenchmark(comparison.name.c_str(),
                                 [&](benchmark::State& state) { run(state, comparison, rows); })
        ->UseManualTime()
        ->Iterations(kRuns)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();

  fmt::print(
      "\nMedians of {} runs in turn, one thread unless the name says more. SIMD target {}, OpenBLAS kernel {}.\n\n",
      kRuns, hwy::TargetName(hwy::SupportedTargets() & -hwy::SupportedTargets()), kernel);
  fmt::print("{:34} {:>9} {:>9}  {:7} {:>6}  {:>7}  {}\n", "name", "ours", "peer", "unit", "ratio", "spread",
             "peer is");
  for (const Row& row : rows) {
    fmt::print("{:34} {:9.2f} {:9.2f}  {:7} {:6.2f}  {:6.1f}%  {}\n", row.name, row.ours, row.peer, row.unit,
               row.ours / row.peer, 100 * row.spread, row.peer_name);
  }
  if (json_path.empty()) return 0;
  const std::string text = json_of(rows).dump(2) + "\n";
  const auto written = bitcube::write_file(json_path, std::as_bytes(std::span(text)));
  if (!written) {
    fmt::print(stderr, "bench: {}\n", written.error().message);
    return 2;
  }
  fmt::print("\nwritten to {}\n", json_path);
  return 0;
}
