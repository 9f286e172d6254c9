// Every encoding of every 8- and 16-bit source into every destination, in all modes, with and without saturation, under
// all profiles, against the oracle.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>

#include "bitcube/numeric/convert.hpp"
#include "bitcube/parallel.hpp"
#include "oracle/oracle.hpp"

namespace bitcube {
namespace {

/// The first mismatch of `words` consecutive encodings, or an empty text.
std::string check_words(const Format& from, const Format& to, uint64 begin, uint64 end) {
  bitcube_oracle::AllModes want;
  for (std::size_t p = 0; p < conversion_profiles.size(); ++p) {
    for (uint64 word = begin; word < end; ++word) {
      bitcube_oracle::tcvt(static_cast<int>(from.type), static_cast<int>(to.type), word,
                           static_cast<bitcube_oracle::Profile>(p), want);
      for (const RoundingInfo& r : roundings) {
        if (!rounding_legal(from, to, r.mode)) continue;
        for (const bool sat : {false, true}) {
          const Encoded got = convert(from, to, word, EncodeControl{r.mode, sat, &conversion_profiles[p]});
          const auto& expected = want(static_cast<int>(r.mode), sat ? 1 : 0);
          if (got.bits == (expected.bits & low_mask(to.lane_bits)) &&
              static_cast<unsigned>(got.flags) == expected.flags) {
            continue;
          }
          return std::string(from.name) + " " + std::to_string(word) + " to " + std::string(to.name) + " " +
                 std::string(r.name) + (sat ? " Sat" : "") + " " + std::string(conversion_profiles[p].name) + ": got " +
                 std::to_string(got.bits) + "/" + std::to_string(static_cast<int>(got.flags)) + ", expected " +
                 std::to_string(expected.bits) + "/" + std::to_string(expected.flags);
        }
      }
    }
  }
  return {};
}

void check_source(const Format& from) {
  std::vector<const Format*> destinations;
  for (const Format& to : formats) {
    if (conversion_legal(from, to)) destinations.push_back(&to);
  }
  std::mutex mutex;
  std::string first;
  parallel_for(destinations.size(), {}, [&](std::size_t i) {
    const std::string text = check_words(from, *destinations[i], 0, uint64{1} << from.lane_bits);
    const std::scoped_lock lock(mutex);
    if (first.empty()) first = text;
  });
  EXPECT_EQ(first, "");
}

class EverySource : public ::testing::TestWithParam<std::string> {};

TEST_P(EverySource, EveryEncodingToEveryDestination) {
  check_source(*find_format(GetParam()));
}

std::vector<std::string> short_sources() {
  std::vector<std::string> out;
  for (const Format& f : formats) {
    if (f.lane_bits <= 16 && f.type != DataType::hif4x2) out.emplace_back(f.name);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Formats, EverySource, ::testing::ValuesIn(short_sources()),
                         [](const auto& source) { return source.param; });

}  // namespace
}  // namespace bitcube
