// All 2^32 FP32 encodings into short destinations, in all modes with Sat 0 and 1, against the oracle. Not part of `make
// test`: `make test-exhaustive` runs it, in an hour or two on two cores.
//
// The library converts every single word. The oracle is asked at the ends of a range of words: if all fourteen results
// agree at both ends, they are the same for every word between, because every rule of numerics 6 and 7 is monotone in
// the value (and looks at nothing but the class of a NaN); where they differ the range is halved.
//
// usage: fp32_sources [--profile pto|asl|ocp] [DESTINATION...]
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "bitcube/numeric/convert.hpp"
#include "bitcube/parallel.hpp"
#include "oracle/oracle.hpp"

namespace bitcube {
namespace {

struct Mismatch {
  uint64 word;
  Rounding mode;
  bool saturate;
  Encoded got;
  Encoded expected;
};

class Check {
 public:
  Check(const Format& to, const ConversionProfile& profile) : to_(to), profile_(profile) {}

  /// Checks the words [first, last].
  void range(uint64 first, uint64 last) { subdivide(first, ask(first), last, ask(last)); }

  uint64 questions() const noexcept { return questions_; }
  const std::vector<Mismatch>& mismatches() const noexcept { return mismatches_; }

 private:
  using Results = std::array<Encoded, 14>;

  Results ask(uint64 word) {
    ++questions_;
    bitcube_oracle::AllModes all;
    const auto index = &profile_ - conversion_profiles.data();
    bitcube_oracle::tcvt(bitcube_oracle::FP32, static_cast<int>(to_.type), word,
                         static_cast<bitcube_oracle::Profile>(index), all);
    Results out;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto& r = all(static_cast<int>(i / 2) + 1, static_cast<int>(i % 2));
      out[i] = {r.bits & low_mask(to_.lane_bits), static_cast<Flags>(r.flags)};
    }
    return out;
  }

  void subdivide(uint64 first, const Results& at_first, uint64 last, const Results& at_last) {
    if (at_first == at_last) {
      for (uint64 word = first; word <= last; ++word) compare(word, at_first);
      return;
    }
    if (last == first + 1) {
      compare(first, at_first);
      compare(last, at_last);
      return;
    }
    const uint64 middle = first + (last - first) / 2;
    const Results at_middle = ask(middle);
    subdivide(first, at_first, middle, at_middle);
    subdivide(middle, at_middle, last, at_last);
  }

  void compare(uint64 word, const Results& expected) {
    const Value value = decode(fp32, word);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const EncodeControl how{static_cast<Rounding>(i / 2 + 1), i % 2 != 0, &profile_};
      const Encoded got = convert_value(to_, value.cls, value.real, how);
      if (got == expected[i]) continue;
      if (mismatches_.size() < 10) mismatches_.push_back({word, how.rounding, how.saturate, got, expected[i]});
    }
  }

  const Format& to_;
  const ConversionProfile& profile_;
  uint64 questions_ = 0;
  std::vector<Mismatch> mismatches_;
};

bool check_destination(const Format& to, const ConversionProfile& profile) {
  constexpr uint64 block = uint64{1} << 20;
  constexpr uint64 blocks = (uint64{1} << 32) / block;
  const auto start = std::chrono::steady_clock::now();
  std::mutex mutex;
  uint64 questions = 0;
  std::vector<Mismatch> mismatches;
  const bool terminal = isatty(STDERR_FILENO) == 1;
  Execution execution;
  if (terminal) {
    execution.progress = [&](std::size_t done, std::size_t total) {
      fmt::print(stderr, "\r{:<8} {:3d} %", to.name, 100 * done / total);
    };
  }
  parallel_for(blocks, execution, [&](std::size_t i) {
    Check check(to, profile);
    check.range(i * block, i * block + block - 1);
    const std::scoped_lock lock(mutex);
    questions += check.questions();
    mismatches.insert(mismatches.end(), check.mismatches().begin(), check.mismatches().end());
  });
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (terminal) fmt::print(stderr, "\r{:20}\r", "");
  fmt::print("FP32 -> {:<7} {}: 4294967296 words x 14 results, {} mismatches, oracle asked at {} words, {:.0f} s\n",
             to.name, profile.name, mismatches.size(), questions, seconds);
  std::fflush(stdout);
  for (std::size_t i = 0; i < mismatches.size() && i < 10; ++i) {
    const Mismatch& m = mismatches[i];
    fmt::print("  0x{:08X} {}{}: got 0x{:X}/{:02X}, expected 0x{:X}/{:02X}\n", m.word, name_of(m.mode),
               m.saturate ? " Sat" : "", m.got.bits, static_cast<int>(m.got.flags), m.expected.bits,
               static_cast<int>(m.expected.flags));
  }
  return mismatches.empty();
}

int run(int argc, char** argv) {
  const ConversionProfile* profile = &pto_profile;
  std::vector<const Format*> destinations;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--profile" && i + 1 < argc) {
      profile = find_conversion_profile(argv[++i]);
      if (profile == nullptr) {
        fmt::print(stderr, "{} is no profile; profiles are pto, asl and ocp\n", argv[i]);
        return 2;
      }
      continue;
    }
    const Format* format = find_format(argument);
    if (format == nullptr || !conversion_legal(fp32, *format)) {
      fmt::print(stderr, "FP32 does not convert to {}\n", argument);
      return 2;
    }
    destinations.push_back(format);
  }
  if (destinations.empty()) {
    for (const char* name : {"FP16", "BF16", "E4M3", "E5M2", "HiF8", "E2M1", "E1M2", "E8M0"}) {
      destinations.push_back(find_format(name));
    }
  }
  bool ok = true;
  for (const Format* to : destinations) ok = check_destination(*to, *profile) && ok;
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace bitcube

int main(int argc, char** argv) {
  return bitcube::run(argc, argv);
}
