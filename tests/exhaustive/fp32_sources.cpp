// All 2^32 FP32 encodings into short destinations, in all modes with Sat 0 and 1, against the oracle. Not part of `make
// test`: `make test-exhaustive` runs it, in an hour or two on two cores.
//
// The library converts every single word. The oracle is asked at the ends of a range of words: if all fourteen results
// agree at both ends, they are the same for every word between, because every rule of numerics 6 and 7 is monotone in
// the value (and looks at nothing but the class of a NaN); where they differ the range is halved.
//
// With --kernels the SIMD kernels convert the words instead, in arrays: every delivered bit is compared, and the flags
// of every array of up to 4096 words whose fourteen results are the same.
//
// usage: fp32_sources [--kernels] [--profile pto|asl|ocp] [DESTINATION...]
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "bitcube/numeric/convert.hpp"
#include "bitcube/parallel.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "bitcube/quantize/lines.hpp"
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
  Check(const Format& to, const ConversionProfile& profile, bool kernels)
      : to_(to), profile_(profile), kernels_(kernels) {}

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
      compare_all(first, last, at_first);
      return;
    }
    if (last == first + 1) {
      compare_all(first, first, at_first);
      compare_all(last, last, at_last);
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

  /// All words of [first, last] give these results.
  void compare_all(uint64 first, uint64 last, const Results& expected) {
    if (!kernels_) {
      for (uint64 word = first; word <= last; ++word) compare(word, expected);
      return;
    }
    constexpr uint64 piece = 4096;
    for (uint64 begin = first; begin <= last; begin += piece)
      compare_piece(begin, std::min(piece, last - begin + 1), expected);
  }

  void compare_piece(uint64 begin, uint64 count, const Results& expected) {
    words_.resize(count);
    for (uint64 i = 0; i < count; ++i) words_[i] = static_cast<std::uint32_t>(begin + i);
    const std::size_t bytes = to_.carrier_bits / 8U;
    out_.resize(count * bytes);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const EncodeControl how{static_cast<Rounding>(i / 2 + 1), i % 2 != 0, &profile_};
      const auto flags = convert_array_into(std::as_bytes(std::span(words_)), fp32, to_, out_, how, {.threads = 1});
      bool same = flags && *flags == expected[i].flags;
      std::size_t at = 0;
      // The first word is right and all others are like it.
      if (load_word(out_.data(), bytes) != expected[i].bits) {
        same = false;
      } else if (std::memcmp(out_.data(), out_.data() + bytes, out_.size() - bytes) != 0) {
        while (load_word(out_.data() + at * bytes, bytes) == expected[i].bits) ++at;
        same = false;
      }
      if (same || mismatches_.size() >= 10) continue;
      const Encoded got{load_word(out_.data() + at * bytes, bytes), flags ? *flags : Flags::none};
      mismatches_.push_back({begin + at, how.rounding, how.saturate, got, expected[i]});
    }
  }

  const Format& to_;
  const ConversionProfile& profile_;
  bool kernels_;
  std::vector<std::uint32_t> words_;
  std::vector<std::byte> out_;
  uint64 questions_ = 0;
  std::vector<Mismatch> mismatches_;
};

bool check_destination(const Format& to, const ConversionProfile& profile, bool kernels) {
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
    Check check(to, profile, kernels);
    check.range(i * block, i * block + block - 1);
    const std::scoped_lock lock(mutex);
    questions += check.questions();
    mismatches.insert(mismatches.end(), check.mismatches().begin(), check.mismatches().end());
  });
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (terminal) fmt::print(stderr, "\r{:20}\r", "");
  fmt::print("FP32 -> {:<7} {}{}: 4294967296 words x 14 results, {} mismatches, oracle asked at {} words, {:.0f} s\n",
             to.name, profile.name, kernels ? " kernels" : "", mismatches.size(), questions, seconds);
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
  bool kernels = false;
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
    if (argument == "--kernels") {
      kernels = true;
      continue;
    }
    const Format* format = find_format(argument);
    if (format == nullptr || !conversion_legal(fp32, *format) || (kernels && format->is_packed())) {
      fmt::print(stderr, "FP32 does not convert to {}\n", argument);
      return 2;
    }
    destinations.push_back(format);
  }
  if (destinations.empty()) {
    for (const char* name : {"FP16", "BF16", "E4M3", "E5M2", "HiF8", "E2M1", "E1M2", "E8M0"}) {
      destinations.push_back(find_format(name));
      if (kernels && destinations.back()->is_packed()) destinations.pop_back();
    }
  }
  bool ok = true;
  for (const Format* to : destinations) ok = check_destination(*to, *profile, kernels) && ok;
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace bitcube

int main(int argc, char** argv) {
  return bitcube::run(argc, argv);
}
