// Which bundle an index stands for, and what the machine makes of it.
#include "bitcube/stimulus/bundle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "bitcube/machine/product_types.hpp"
#include "bitcube/machine/transfer_orders.hpp"
#include "bitcube/numeric/convert.hpp"
#include "guarded.hpp"
#include "recipe.hpp"

namespace bitcube::stimulus {

Walk::Walk(uint64 size) noexcept : size_(size) {
  if (size < 3) return;
  step_ = std::max<uint64>(1, static_cast<uint64>(static_cast<uint128>(size) * Random::increment >> 64));
  while (std::gcd(step_, size) != 1) ++step_;
}

uint64 Walk::operator[](uint64 i) const noexcept {
  return size_ == 0 ? 0 : static_cast<uint64>(static_cast<uint128>(i % size_) * step_ % size_);
}

std::vector<Post> posts_of(const Head& head) {
  std::vector<Post> posts;
  const auto roundings_of = [](bool programmable) { return static_cast<std::uint8_t>(programmable ? 8 : 1); };
  if (is_conversion(head.operation)) {
    const bool saturates = head.operation != isa::Operation::tdequant;
    for (std::uint8_t r = 0; r < 8; ++r) {
      posts.push_back({.rmode = r});
      if (saturates) posts.push_back({.rmode = r, .saturate = true});
    }
    return posts;
  }
  const DataType accumulator = accumulator_of(head);
  if (accumulator == DataType::none) return {Post{}};
  // Mode x ReLU x Sat with some rounding, then mode x rounding x Sat with some ReLU.
  std::uint8_t some = 0;
  for (const PreQuantMode& mode : prequant_modes) {
    if (mode.accumulator != DataType::none && mode.accumulator != accumulator) continue;
    const std::uint8_t roundings = roundings_of(mode.rounding_rule == RoundingRule::programmable);
    for (const bool saturate : {false, true}) {
      if (saturate && !mode.saturation_allowed) continue;
      for (std::uint8_t relu = 0; relu < 4; ++relu, ++some) {
        posts.push_back({&mode, relu, static_cast<std::uint8_t>(some % roundings), saturate});
      }
      for (std::uint8_t r = 0; roundings > 1 && r < roundings; ++r, ++some) {
        posts.push_back({&mode, static_cast<std::uint8_t>(some % 4), r, saturate});
      }
    }
  }
  return posts;
}

std::size_t post_class(const Head& head) noexcept {
  if (is_conversion(head.operation)) {
    return 4 + 32 * static_cast<std::size_t>(head.operation) + static_cast<std::size_t>(head.b);
  }
  switch (accumulator_of(head)) {
    case DataType::fp32:
      return 1;
    case DataType::s32:
      return 2;
    case DataType::u32:
      return 3;
    default:
      return 0;
  }
}

namespace {

using isa::Operation;

constexpr std::size_t kClasses = 4 + 32 * isa::operation_names.size();
constexpr uint64 kMostRepeats = 16;
// Attempts to find out whether a rule can be broken, and to break it then: enough of them to meet a rare way again.
constexpr int kTrials = 400;
constexpr int kAttempts = 20 * kTrials;
// Dimensions to suggest where a rule needs larger ones: the default, and enough for one row of many groups (G4).
constexpr std::array<std::uint32_t, 2> kLargerDims{BundleOptions{}.max_dim, 264};

template <typename Body>
void for_each_type(const Body& body) {
  for (const Format& f : formats) {
    if (machine::tile_format(f.type) != nullptr) body(f);
  }
}

std::vector<Head> product_heads(Operation operation) {
  std::vector<Head> heads;
  const bool mx = isa::is_mx(operation);
  for_each_type([&](const Format& a) {
    for_each_type([&](const Format& b) {
      const DataType accumulator = machine::ordinary_accumulator(a.type);
      const bool legal = mx ? machine::is_mx_side(a.type) && machine::is_mx_side(b.type)
                            : accumulator != DataType::none && accumulator == machine::ordinary_accumulator(b.type);
      if (legal) heads.push_back({operation, a.type, b.type});
    });
  });
  return heads;
}

std::vector<Head> transfer_heads(Operation operation) {
  std::vector<Head> heads;
  for (const isa::CodeName& name : isa::layout_names) {
    const auto code = static_cast<isa::TransferLayout>(name.code);
    const machine::Orders orders = machine::orders_of(code);
    const bool cube = machine::is_cube(orders.from) || machine::is_cube(orders.to);
    if (operation == Operation::tload && machine::is_cube(orders.from)) continue;
    if (operation == Operation::tstore && machine::is_cube(orders.to)) continue;
    for_each_type([&](const Format& f) {
      if (cube && f.lane_bits == 64) return;
      heads.push_back({operation, f.type, DataType::none, code});
    });
  }
  return heads;
}

std::vector<Head> conversion_heads(Operation operation) {
  std::vector<Head> heads;
  if (operation == Operation::tquant) {
    return {{operation, DataType::fp32, DataType::s8}, {operation, DataType::fp32, DataType::u8}};
  }
  if (operation == Operation::tdequant) {
    return {{operation, DataType::s8, DataType::fp32}, {operation, DataType::u8, DataType::fp32}};
  }
  for_each_type([&](const Format& from) {
    for_each_type([&](const Format& to) {
      if (conversion_legal(from, to)) heads.push_back({operation, from.type, to.type});
    });
  });
  return heads;
}

std::vector<Head> heads_of(Operation operation) {
  if (isa::is_cube(operation)) return product_heads(operation);
  return is_transfer(operation) ? transfer_heads(operation) : conversion_heads(operation);
}

template <typename T>
bool contains(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

void set_max_dim(BundleGenerator::Plan& plan, std::uint32_t max_dim) {
  plan.options.max_dim = max_dim;
  plan.dims.clear();
  for (std::size_t m = 0; m < dim_class_names.size(); ++m) {
    for (std::size_t n = 0; n < dim_class_names.size(); ++n) {
      for (std::size_t k = 0; k < dim_class_names.size(); ++k) {
        const std::array classes{static_cast<DimClass>(m), static_cast<DimClass>(n), static_cast<DimClass>(k)};
        bool reachable = true;
        for (std::size_t i = 0; i < 3; ++i) {
          reachable = reachable && dim_class_reachable(classes[i], dim_units[i], max_dim);
        }
        if (reachable) plan.dims.push_back(classes);
      }
    }
  }
  plan.dim_walk = Walk(plan.dims.size());
}

/// Sometimes adds a binding with mask 0000, which binds nothing wherever it stands (architecture 2.9).
void add_zero_mask(Draft& draft, Random& random) {
  if (!random.chance(16)) return;
  const bool shared = random.chance(2);
  isa::Instruction i(shared ? isa::Form::b_ios : isa::Form::b_iot_src0);
  i.set(shared ? isa::Field::shared_tile : isa::Field::src_tile0, static_cast<int>(random.below(64)));
  draft.insert(1 + random.below(draft.code.size() - 1), i);
}

/// Executes the words up to the one that is refused or completes the bundle.
void execute(Bundle& bundle, const Draft& draft) {
  machine::Core core;
  core.state() = draft.state;
  bundle.before = draft.state;
  for (std::size_t i = 0; i < draft.code.size(); ++i) {
    const bool raw = draft.raw && i + 1 == draft.code.size();
    const isa::Word word = raw ? *draft.raw : isa::Codec::encode(draft.code[i]);
    bundle.words.push_back(word);
    bundle.outcome = core.step(word.bits);
    if (!bundle.outcome.ok() || bundle.outcome.completed) break;
  }
  bundle.after = std::move(core.state());
}

void describe(Bundle& bundle, Draft&& draft) {
  bundle.operation = draft.recipe.head.operation;
  bundle.a = draft.recipe.head.a;
  bundle.b = draft.recipe.head.b;
  bundle.m = draft.m;
  bundle.n = draft.n;
  bundle.k = draft.k;
  bundle.memory = std::move(draft.memory);
}

/// A bundle of this operation that breaks the rule and nothing before it, or none in so many attempts.
std::optional<Bundle> find_illegal(const BundleGenerator::Plan& plan, machine::RuleId rule, Operation operation,
                                   Random& random, int attempts) {
  const RuleBreaker& breaker = breaker_of(rule);
  const std::uint32_t limit = plan.options.max_dim;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    Recipe recipe = plan.random_recipe(operation, random);
    if (!breaker.prepare(recipe, random)) continue;
    for (std::uint32_t& dim : recipe.exact_dims) dim = std::min(dim, limit);
    auto draft = make_draft(recipe, plan.options, random);
    if (!draft || !breaker.spoil(*draft, random)) continue;
    Bundle bundle;
    execute(bundle, *draft);
    if (!bundle.outcome.fault || bundle.outcome.fault->id != rule) continue;
    bundle.rule = rule;
    describe(bundle, std::move(*draft));
    return bundle;
  }
  return std::nullopt;
}

/// Which operations break the rule with the plan's types and dimensions: those of which some bundle was found.
std::vector<Operation> operations_that_break(const BundleGenerator::Plan& plan, machine::RuleId rule) {
  std::vector<Operation> found;
  for (const Operation o : rule_reach()[static_cast<std::size_t>(rule)].operations) {
    if (plan.heads_of[static_cast<std::size_t>(o)].empty()) continue;
    // No seed of the user: what can be broken is no matter of luck.
    Random random(Random::mix(static_cast<uint64>(rule) << 8 | static_cast<uint64>(o)));
    if (find_illegal(plan, rule, o, random, kTrials)) found.push_back(o);
  }
  return found;
}

/// The member of BundleOptions that keeps bundles from breaking a rule, and how.
struct Obstacle {
  std::string_view option{};
  std::string why{};
};
Obstacle obstacle_of(BundleGenerator::Plan& plan, machine::RuleId rule) {
  const RuleReach& reach = rule_reach()[static_cast<std::size_t>(rule)];
  if (!reach.why.empty()) return {"rules", reach.why};
  const bool possible = std::any_of(reach.operations.begin(), reach.operations.end(),
                                    [&](Operation o) { return !plan.heads_of[static_cast<std::size_t>(o)].empty(); });
  if (!possible) {
    std::string names;
    for (const Operation o : reach.operations) names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(o));
    return {"rules", fmt::format("none of these operations and types; those that can are {}", names)};
  }
  const std::uint32_t limit = plan.options.max_dim;
  for (const std::uint32_t larger : kLargerDims) {
    if (larger <= limit) continue;
    set_max_dim(plan, larger);
    const bool enough = !operations_that_break(plan, rule).empty();
    set_max_dim(plan, limit);
    if (enough) return {"max_dim", fmt::format("dimensions up to {} are too small, up to {} do", limit, larger)};
  }
  return {"rules", fmt::format("none of these operations and types was found in {} attempts", kTrials)};
}

/// What the plan can break; an error if that is not what was asked for.
Expected<void> find_rules(BundleGenerator::Plan& plan) {
  BundleOptions& options = plan.options;
  std::vector<machine::RuleId> candidates = options.rules;
  if (options.any_rule) {
    for (const machine::Rule& rule : machine::rules()) candidates.push_back(rule.id);
  }
  options.rules.clear();
  for (const machine::RuleId id : candidates) {
    RuleReach reach{id, operations_that_break(plan, id), {}};
    if (reach.operations.empty()) {
      Obstacle obstacle = obstacle_of(plan, id);
      if (!options.any_rule) {
        return Error{fmt::format("{}: no bundle breaks {}: {}", obstacle.option, machine::rule(id).name, obstacle.why)};
      }
      reach.why = std::move(obstacle.why);
    } else {
      options.rules.push_back(id);
      plan.rule_operations.push_back(reach.operations);
    }
    plan.reach.push_back(std::move(reach));
  }
  if (options.any_rule && options.rules.empty()) {
    return Error{"rules: bundles of these operations and types break none"};
  }
  return {};
}

Expected<std::unique_ptr<BundleGenerator::Plan>> make_plan(const BundleOptions& options) {
  if (options.max_dim == 0 || options.max_dim > largest_dim) {
    return Error{fmt::format("max_dim: {} is outside 1..{}", options.max_dim, largest_dim)};
  }
  if (options.corners > 100) return Error{fmt::format("corners: {} is more than 100 percent", options.corners)};
  if (options.any_rule && !options.rules.empty()) return Error{"rules: some are named, and any is asked for"};
  auto plan = std::make_unique<BundleGenerator::Plan>();
  plan->options = options;
  std::vector<bool> type_used(32, false);
  std::vector<Head> all;
  plan->heads_of.resize(isa::operation_names.size());
  for (std::size_t o = 1; o < isa::operation_names.size(); ++o) {
    const auto operation = static_cast<Operation>(o);
    if (!options.operations.empty() && !contains(options.operations, operation)) continue;
    for (const Head& head : heads_of(operation)) {
      const bool wanted = options.types.empty() || (contains(options.types, head.a) &&
                                                    (head.b == DataType::none || contains(options.types, head.b)));
      if (!wanted) continue;
      type_used[static_cast<std::size_t>(head.a)] = true;
      if (head.b != DataType::none) type_used[static_cast<std::size_t>(head.b)] = true;
      plan->heads_of[o].push_back(head);
      all.push_back(head);
    }
  }
  for (const DataType type : options.types) {
    const Format* f = find_format(static_cast<unsigned>(type));
    if (!type_used[static_cast<std::size_t>(type)]) {
      return Error{fmt::format("types: no bundle of these operations has {} with types of the list",
                               f == nullptr ? "DTYPE_NONE" : f->name)};
    }
  }

  // Heads whose class has more posts than heads are repeated, so that one cycle goes through both.
  std::vector<uint64> heads_in_class(kClasses, 0);
  plan->classes.resize(kClasses);
  for (const Head& head : all) {
    const std::size_t c = post_class(head);
    if (heads_in_class[c]++ == 0) plan->classes[c].posts = posts_of(head);
  }
  for (std::size_t c = 0; c < kClasses; ++c) plan->classes[c].walk = Walk(plan->classes[c].posts.size());
  for (const Head& head : all) {
    const std::size_t c = post_class(head);
    const uint64 posts = plan->classes[c].posts.size();
    const uint64 repeats = std::clamp<uint64>((posts + heads_in_class[c] - 1) / heads_in_class[c], 1, kMostRepeats);
    for (uint64 i = 0; i < repeats; ++i) {
      plan->heads.push_back(head);
      plan->class_of.push_back(c);
      plan->rank_of.push_back(plan->classes[c].heads++);
    }
  }
  plan->head_walk = Walk(plan->heads.size());
  set_max_dim(*plan, options.max_dim);
  if (auto ok = find_rules(*plan); !ok) return ok.error();
  return plan;
}

}  // namespace

Recipe BundleGenerator::Plan::legal_recipe(uint64 index) const {
  Recipe r;
  const uint64 at = head_walk[index];
  r.head = heads[at];
  const PostClass& c = classes[class_of[at]];
  const uint64 occurrence = index / heads.size() * c.heads + rank_of[at];
  r.post = c.posts[c.walk[occurrence]];
  r.dims = dims[dim_walk[isa::is_cube(r.head.operation) ? occurrence : index]];
  // Another stride than the extents', so that each meets each.
  r.sharing = static_cast<Sharing>((occurrence + occurrence / dims.size()) % 3);
  return r;
}

Recipe BundleGenerator::Plan::random_recipe(Operation operation, Random& random) const {
  Recipe r;
  r.head = random.pick(heads_of[static_cast<std::size_t>(operation)]);
  r.post = random.pick(classes[post_class(r.head)].posts);
  r.dims = random.pick(dims);
  r.sharing = static_cast<Sharing>(random.below(3));
  return r;
}

BundleGenerator::BundleGenerator(std::unique_ptr<const Plan> plan) noexcept : plan_(std::move(plan)) {}
BundleGenerator::BundleGenerator(BundleGenerator&&) noexcept = default;
BundleGenerator& BundleGenerator::operator=(BundleGenerator&&) noexcept = default;
BundleGenerator::~BundleGenerator() = default;

Expected<BundleGenerator> BundleGenerator::make(const BundleOptions& options) {
  return guarded("gen", [&]() -> Expected<BundleGenerator> {
    auto plan = make_plan(options);
    if (!plan) return plan.error();
    return BundleGenerator(std::move(*plan));
  });
}

const BundleOptions& BundleGenerator::options() const noexcept {
  return plan_->options;
}

std::span<const RuleReach> BundleGenerator::reach() const noexcept {
  return plan_->reach;
}

uint64 BundleGenerator::full_cycle() const noexcept {
  if (plan_->options.rules.empty()) return std::max<uint64>(plan_->heads.size(), plan_->dims.size());
  return plan_->options.rules.size() * (isa::operation_names.size() - 1);
}

Expected<Bundle> BundleGenerator::bundle(uint64 index) const {
  return guarded("gen", [&]() -> Expected<Bundle> {
    const auto& rules = plan_->options.rules;
    Random random(Random::mix(Random::mix(plan_->options.seed + Random::increment) + index));
    if (!rules.empty()) {
      const machine::RuleId rule = rules[index % rules.size()];
      const auto& possible = plan_->rule_operations[index % rules.size()];
      const Operation operation = possible[index / rules.size() % possible.size()];
      auto bundle = find_illegal(*plan_, rule, operation, random, kAttempts);
      if (!bundle) {
        return Error{fmt::format("bundle {}: no {} that breaks {} was found in {} attempts", index, name_of(operation),
                                 machine::rule(rule).name, kAttempts)};
      }
      bundle->index = index;
      return std::move(*bundle);
    }
    auto draft = make_draft(plan_->legal_recipe(index), plan_->options, random);
    if (!draft) return Error{fmt::format("bundle {}: {}", index, draft.error().message)};
    add_zero_mask(*draft, random);
    Bundle bundle;
    bundle.index = index;
    execute(bundle, *draft);
    if (!(bundle.outcome.ok() && bundle.outcome.completed)) {
      const auto& fault = bundle.outcome.fault;
      return Error{fmt::format("bundle {}: meant to be legal, but it breaks {}", index,
                               fault ? machine::rule(fault->id).name : "a wait")};
    }
    describe(bundle, std::move(*draft));
    return bundle;
  });
}

}  // namespace bitcube::stimulus
