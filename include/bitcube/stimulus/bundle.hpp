// Constrained-random bundles for verification: a state, the words of one bundle, and what the machine does with them.
//
//   const auto generator = stimulus::BundleGenerator::make({.seed = 7, .rules = {machine::RuleId::F7}});
//   const auto bundle = generator->bundle(0);  // breaks F7 and nothing that is checked before it
//
// Bundle i depends on the options and on i, on no other bundle: any range of indices can be made anywhere, in any
// order. Which bin of the coverage (coverage.hpp) a bundle serves is a function of i, so the first indices go through
// all of them. What is expected of a bundle is found by executing it on a Core (machine/core.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/isa/instruction.hpp"
#include "bitcube/machine/core.hpp"

namespace bitcube::stimulus {

struct BundleOptions {
  uint64 seed = 1;
  std::vector<isa::Operation> operations{};  // empty: all of isa::operation_names
  std::vector<DataType> types{};             // AType and BType, source and destination type; empty: all
  std::vector<machine::RuleId> rules{};      // the rules to break, in turn; empty: legal bundles
  bool any_rule = false;                     // in place of `rules`: all that bundles of these options can break
  std::uint32_t max_dim = 40;                // largest M, N and K; rows and columns of the other operations
  unsigned corners = 25;                     // percent of the elements that come from the corners of their type
};

/// Dimensions beyond this are refused: a side of 1024 fills whole Tiles.
inline constexpr std::uint32_t largest_dim = 1024;

/// Bytes of the memory that a bundle reads or writes.
struct MemoryRange {
  uint64 address = 0;
  uint64 size = 0;
  bool written = false;  // TSTORE
};

/// A Local Tile that the words read.
struct Source {
  machine::Role role = machine::Role::none;
  unsigned pe = 0;
  unsigned name = 0;
};

struct Bundle {
  uint64 index = 0;
  isa::Operation operation = isa::Operation::none;  // what it was made from; an illegal one may not get that far
  DataType a = DataType::none;                      // AType; the source type of the other operations
  DataType b = DataType::none;                      // BType; the destination type of a conversion, or none
  std::uint32_t m = 0;                              // of CUBE operations; else rows
  std::uint32_t n = 0;                              // else columns
  std::uint32_t k = 0;                              // else 0
  std::optional<machine::RuleId> rule{};            // the one that it breaks
  machine::State before{};                          // as the words find it
  std::vector<isa::Word> words{};                   // the last one completes the bundle, or is refused
  std::vector<MemoryRange> memory{};                // mapped for it
  machine::Outcome outcome{};                       // of the last word
  machine::State after{};
};

/// Whether bundles can break a rule, and whose.
struct RuleReach {
  machine::RuleId rule = machine::RuleId::count;
  std::vector<isa::Operation> operations{};  // empty: no bundle can
  std::string why{};                         // why none can, else empty
};
/// One row per rule of machine::rules(), in its order, whatever the options.
std::span<const RuleReach> rule_reach() noexcept;

class BundleGenerator {
 public:
  /// Errors: a dimension limit outside 1..largest_dim, more than 100 percent, a type that no operation takes, a rule
  /// that no bundle of these operations, types and dimensions can break, `rules` with `any_rule`.
  static Expected<BundleGenerator> make(const BundleOptions& options);

  BundleGenerator(BundleGenerator&&) noexcept;
  BundleGenerator& operator=(BundleGenerator&&) noexcept;
  ~BundleGenerator();

  /// As given; with `any_rule`, `rules` are those that were found.
  const BundleOptions& options() const noexcept;
  /// What bundles of these options can break, found by trying each operation: a row per rule of `rules`, with
  /// `any_rule` per rule of the machine. The same for every seed.
  std::span<const RuleReach> reach() const noexcept;
  /// So many bundles go through every bin of the coverage of legal bundles, or every rule and operation.
  uint64 full_cycle() const noexcept;
  /// May be called from several threads. Errors: no bundle was found that breaks the rule; no memory.
  Expected<Bundle> bundle(uint64 index) const;

  struct Plan;
  const Plan& plan() const noexcept { return *plan_; }

 private:
  explicit BundleGenerator(std::unique_ptr<const Plan> plan) noexcept;

  std::unique_ptr<const Plan> plan_;
};

}  // namespace bitcube::stimulus
