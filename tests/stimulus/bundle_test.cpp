// Which bundles are made: legal ones complete, illegal ones break their rule and nothing before it, and each depends on
// its index alone.
#include "bitcube/stimulus/bundle.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "bitcube/machine/transfer_orders.hpp"

namespace bitcube::stimulus {
namespace {

using machine::RuleId;

BundleGenerator generator(const BundleOptions& options) {
  auto g = BundleGenerator::make(options);
  EXPECT_TRUE(g) << g.error().message;
  return std::move(*g);
}
Bundle bundle(const BundleGenerator& g, uint64 index) {
  auto b = g.bundle(index);
  EXPECT_TRUE(b) << b.error().message;
  return b ? std::move(*b) : Bundle{};
}
std::string error_of(const BundleOptions& options) {
  const auto g = BundleGenerator::make(options);
  return g ? "" : g.error().message;
}

/// Executes the words anew; nothing but the last one may end the bundle or be refused.
void execute_again(const Bundle& b, const std::function<void(const machine::Core& before, const machine::Outcome&,
                                                             const machine::Core& after)>& check) {
  machine::Core core;
  core.state() = b.before;
  for (std::size_t i = 0; i < b.words.size(); ++i) {
    const machine::Core before = core;
    const machine::Outcome o = core.step(b.words[i].bits);
    if (i + 1 == b.words.size()) return check(before, o, core);
    ASSERT_TRUE(o.ok()) << "word " << i << " of bundle " << b.index;
    ASSERT_FALSE(o.completed);
  }
  FAIL() << "bundle " << b.index << " has no words";
}

TEST(StimulusBundle, LegalOnesComplete) {
  const BundleGenerator g = generator({.seed = 3});
  std::set<isa::Operation> operations;
  for (uint64 i = 0; i < 1500; ++i) {
    const Bundle b = bundle(g, i);
    operations.insert(b.operation);
    execute_again(b, [&](const machine::Core&, const machine::Outcome& o, const machine::Core& after) {
      EXPECT_TRUE(o.ok() && o.completed) << "bundle " << i;
      EXPECT_TRUE(after.state() == b.after);
      EXPECT_EQ(o.flags, b.outcome.flags);
    });
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(operations.size(), isa::operation_names.size() - 1);
}

TEST(StimulusBundle, IllegalOnesBreakTheirRuleFirst) {
  for (const RuleReach& reach : rule_reach()) {
    SCOPED_TRACE(machine::rule(reach.rule).name);
    if (reach.operations.empty()) {
      EXPECT_FALSE(reach.why.empty());
      EXPECT_NE(error_of({.rules = {reach.rule}}).find(reach.why), std::string::npos);
      continue;
    }
    // One row of a GEMV has too few groups for two CELLs below 257 columns.
    const std::uint32_t max_dim = reach.rule == RuleId::G4 ? 264 : 40;
    const BundleGenerator g = generator({.seed = 5, .rules = {reach.rule}, .max_dim = max_dim});
    std::set<isa::Operation> operations;
    for (uint64 i = 0; i < 2 * reach.operations.size(); ++i) {
      const Bundle b = bundle(g, i);
      operations.insert(b.operation);
      execute_again(b, [&](const machine::Core& before, const machine::Outcome& o, const machine::Core& after) {
        ASSERT_TRUE(o.fault);
        EXPECT_EQ(machine::rule(o.fault->id).name, machine::rule(reach.rule).name);
        if (reach.rule != RuleId::A16) {
          EXPECT_EQ(before, after);
        }
      });
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_EQ(operations, std::set(reach.operations.begin(), reach.operations.end()));
  }
}

TEST(StimulusBundle, OnlyThreeRulesAreOutOfReach) {
  std::set<std::string_view> names;
  for (const RuleReach& reach : rule_reach()) {
    if (reach.operations.empty()) names.insert(machine::rule(reach.rule).name);
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"A13", "A15", "A17"}));
}

TEST(StimulusBundle, DependsOnSeedAndIndexOnly) {
  const BundleGenerator g = generator({.seed = 9});
  const BundleGenerator again = generator({.seed = 9});
  const BundleGenerator other = generator({.seed = 10});
  for (uint64 i = 0; i < 20; ++i) (void)bundle(g, i);
  std::size_t different = 0;
  for (const uint64 i : {uint64{17}, uint64{3}, uint64{100'000'000'000}}) {
    const Bundle a = bundle(g, i);
    const Bundle b = bundle(again, i);
    EXPECT_EQ(a.words, b.words);
    EXPECT_TRUE(a.before == b.before);
    if (bundle(other, i).words != a.words) ++different;
  }
  EXPECT_EQ(different, 3U);
}

TEST(StimulusBundle, KeepsToOperationsTypesAndExtents) {
  const BundleGenerator g = generator({.operations = {isa::Operation::tmatmul_mx, isa::Operation::tcvt},
                                       .types = {DataType::e4m3, DataType::fp16},
                                       .max_dim = 7});
  for (uint64 i = 0; i < 200; ++i) {
    const Bundle b = bundle(g, i);
    EXPECT_TRUE(b.operation == isa::Operation::tmatmul_mx || b.operation == isa::Operation::tcvt);
    for (const DataType t : {b.a, b.b}) EXPECT_TRUE(t == DataType::e4m3 || t == DataType::fp16);
    EXPECT_LE(std::max({b.m, b.n, b.k}), 7U);
  }
  const BundleGenerator large = generator({.max_dim = largest_dim});
  std::uint32_t most = 0;
  for (uint64 i = 0; i < 400; ++i) {
    const Bundle b = bundle(large, i);
    most = std::max({most, b.m, b.n, b.k});
  }
  EXPECT_GT(most, 500U);
}

TEST(StimulusBundle, BadOptions) {
  EXPECT_NE(error_of({.max_dim = 0}).find("max_dim: 0 is outside 1..1024"), std::string::npos);
  EXPECT_NE(error_of({.max_dim = 1025}).find("1025"), std::string::npos);
  EXPECT_NE(error_of({.corners = 101}).find("101"), std::string::npos);
  EXPECT_NE(error_of({.operations = {isa::Operation::tmatmul}, .rules = {RuleId::T4}}).find("those that can are TLOAD"),
            std::string::npos);
  EXPECT_NE(error_of({.operations = {isa::Operation::tmatmul}, .types = {DataType::fp64}}).find("FP64"),
            std::string::npos);
  // The rule could be broken, but not by these types.
  EXPECT_EQ(error_of({.types = {DataType::fp32}, .rules = {RuleId::V6}}),
            "rules: no bundle breaks V6: none of these operations and types was found in 400 attempts");
  // Nor by these dimensions: maxima of two CELLs take more than 8 rows or columns.
  EXPECT_EQ(error_of({.rules = {RuleId::F7, RuleId::G4}, .max_dim = 8}),
            "max_dim: no bundle breaks G4: dimensions up to 8 are too small, up to 40 do");
  EXPECT_NE(error_of({.operations = {isa::Operation::tgemv}, .rules = {RuleId::G4}}).find("up to 264 do"),
            std::string::npos);
  EXPECT_NE(error_of({.rules = {RuleId::F7}, .any_rule = true}).find("any is asked for"), std::string::npos);
}

TEST(StimulusBundle, AnyRuleIsOneThatTheOptionsCanBreak) {
  for (const std::uint32_t max_dim : {1U, 2U, 3U, 5U, 8U, 16U, 17U, 40U}) {
    SCOPED_TRACE(max_dim);
    const BundleGenerator g = generator({.seed = max_dim, .any_rule = true, .max_dim = max_dim});
    std::map<RuleId, std::string> left_out;
    ASSERT_EQ(g.reach().size(), machine::rules().size());
    for (const RuleReach& reach : g.reach()) {
      EXPECT_NE(reach.operations.empty(), reach.why.empty());
      if (reach.operations.empty()) left_out[reach.rule] = reach.why;
    }
    // F10 is about more than 32 rows. For G4 maxima of two CELLs are wanted: 16 rows of two groups of FP32 fill one.
    EXPECT_EQ(left_out.contains(RuleId::F10), max_dim < 33);
    EXPECT_EQ(left_out.contains(RuleId::G4), max_dim < 17);
    EXPECT_EQ(g.options().rules.size() + left_out.size(), machine::rules().size());
    for (uint64 i = 0; i < 4 * g.options().rules.size(); ++i) {
      const Bundle b = bundle(g, i);
      ASSERT_TRUE(b.rule && b.outcome.fault) << i;
      EXPECT_EQ(b.outcome.fault->id, *b.rule);
      EXPECT_FALSE(left_out.contains(*b.rule));
      EXPECT_LE(std::max({b.m, b.n, b.k}), max_dim) << machine::rule(*b.rule).name;
    }
  }
}

}  // namespace
}  // namespace bitcube::stimulus
