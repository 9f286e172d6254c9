// What bundles cover, counted from their words and from what the machine did with them. Every group lists all bins that
// the operations and types can reach, so that one which nothing hit is seen, and tells which others exist and why no
// bundle is in them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/stimulus/bundle.hpp"

namespace bitcube::stimulus {

struct CoverageBin {
  std::string_view name{};
  uint64 hits = 0;
};

/// Bins that exist and cannot be reached.
struct Unreachable {
  std::string bins{};
  std::string why{};
};

struct CoverageGroup {
  std::string_view name{};
  std::string_view meaning{};
  std::vector<CoverageBin> bins{};
  std::vector<Unreachable> unreachable{};

  uint64 hit() const noexcept;
};

class Coverage {
 public:
  /// All bins of what the generator can make, none hit.
  explicit Coverage(const BundleGenerator& generator);

  void sample(const Bundle& bundle);
  /// Adds the counts of another one of the same generator, in any order.
  void merge(const Coverage& other);
  /// All counts, for another process with the same generator; and the same added there.
  std::vector<uint64> state() const;
  void merge_state(std::span<const uint64> state);

  uint64 bundles() const noexcept { return bundles_; }
  /// Samples that no declared bin stands for: 0, or the bins are wrong.
  uint64 undeclared() const noexcept { return undeclared_; }
  std::vector<CoverageGroup> groups() const;

  /// A table of the groups, then the bins that were not hit, then those that cannot be.
  std::string text() const;
  /// An object: bundles, bins, hit, groups with every bin.
  std::string json() const;

  struct Model;

 private:
  void hit(std::size_t group, uint64 key);

  std::shared_ptr<const Model> model_;
  std::vector<uint64> counts_;  // of all groups, one after the other
  uint64 bundles_ = 0;
  uint64 undeclared_ = 0;
};

}  // namespace bitcube::stimulus
