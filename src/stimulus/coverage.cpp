#include "bitcube/stimulus/coverage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "bitcube/machine/product_types.hpp"
#include "bitcube/machine/transfer_orders.hpp"
#include "recipe.hpp"

namespace bitcube::stimulus {

struct Coverage::Model {
  struct Bin {
    uint64 key;
    std::string name;
  };
  struct Group {
    std::string_view name;
    std::string_view meaning;
    std::vector<Bin> bins{};
    std::vector<Unreachable> unreachable{};
    std::unordered_map<uint64, std::size_t> index{};
    std::size_t first = 0;  // in the counts

    void add(uint64 key, std::string bin_name) {
      if (index.emplace(key, bins.size()).second) bins.push_back({key, std::move(bin_name)});
    }
  };
  std::vector<Group> groups;
  std::size_t bins = 0;
};

namespace {

using isa::Command;
using isa::Field;
using isa::Instruction;
using isa::Operation;
using machine::Role;

/// The groups of legal bundles; illegal ones have the first two of the last enumeration only.
enum Group : std::size_t {
  operations,
  types,
  posts,
  roundings_group,
  conversions,
  extents,
  tails,
  shares,
  masks,
  fields,
  flags
};
enum IllegalGroup : std::size_t { rules, rule_operations };

std::string_view type_name(DataType type) {
  const Format* f = find_format(static_cast<unsigned>(type));
  return f == nullptr ? "DTYPE_NONE" : f->name;
}
std::string_view rounding_name(unsigned rmode) {
  return isa::rmode_names[rmode].name;
}

uint64 type_key(Operation o, DataType a, DataType b, unsigned layout) {
  return static_cast<uint64>(o) << 24 | static_cast<uint64>(a) << 16 | static_cast<uint64>(b) << 8 | layout;
}
std::string type_bin(const Head& h) {
  if (is_transfer(h.operation)) {
    const auto code = static_cast<std::uint8_t>(h.layout);
    const auto* row = std::find_if(isa::layout_names.begin(), isa::layout_names.end(),
                                   [&](const isa::CodeName& n) { return n.code == code; });
    return fmt::format("{} {} {}", name_of(h.operation), type_name(h.a), row->name);
  }
  return fmt::format("{} {} {} {}", name_of(h.operation), type_name(h.a), is_conversion(h.operation) ? "->" : "x",
                     type_name(h.b));
}

uint64 post_key(unsigned mode, unsigned relu, bool saturate) {
  return uint64{mode} << 8 | uint64{relu} << 1 | (saturate ? 1U : 0U);
}
uint64 rounding_key(unsigned what, unsigned rmode, bool saturate) {
  return uint64{what} << 8 | uint64{rmode} << 1 | (saturate ? 1U : 0U);
}
uint64 conversion_key(Operation o, DataType to, unsigned rmode, bool saturate) {
  return static_cast<uint64>(o) << 32 | rounding_key(static_cast<unsigned>(to), rmode, saturate);
}

/// A field whose values are bins of their own. `values` of a bundle with this operation.
struct CoveredField {
  std::string_view command;
  Command code;
  Field field;
  int least;
  int most;
  bool (*reachable)(Operation, int value);
  std::string_view why{};  // why the others are not
};

bool always(Operation, int) {
  return true;
}
bool is_matmul(Operation o) {
  return isa::is_cube(o) && !isa::is_gemv(o);
}
bool of_cube(Operation o, int) {
  return isa::is_cube(o);
}
bool makes_local(Operation o, int) {
  return o != Operation::tstore;
}

constexpr CoveredField kFields[] = {
    {"B.CATR", Command::catr, Field::dr, 0, 1, [](Operation o, int v) { return v == 0 || !isa::is_cube(o); },
     "DR breaks B0 in CUBE bundles"},
    {"B.CATR", Command::catr, Field::trap, 0, 1, [](Operation, int v) { return v == 0; }, "trap breaks A16"},
    {"B.CATR", Command::catr, Field::far, 0, 1, always},
    {"B.CATR", Command::catr, Field::atom, 0, 1, always},
    {"B.CATR", Command::catr, Field::aq, 0, 1, always},
    {"B.CATR", Command::catr, Field::rl, 0, 1, always},
    {"B.HINT", Command::hint, Field::temp, 0, 3, always},
    {"B.HINT", Command::hint, Field::likely, 0, 1, always},
    {"B.HINT", Command::hint, Field::valid, 0, 1, always},
    {"B.DATR", Command::datr, Field::pad_value, 0, 3,
     [](Operation o, int v) {
       return v == 0 || o == Operation::tmov || o == Operation::tcvt || o == Operation::tload || o == Operation::tstore;
     },
     "this operation has no padding to fill"},
    {"B.DATR", Command::datr, Field::cmode, 0, 5, [](Operation, int v) { return v == 0; }, "no operation compares"},
    {"B.DATR", Command::datr, Field::canonicalize, 0, 1, [](Operation, int v) { return v == 0; },
     "the private row-major Tile that it needs cannot be set up from outside"},
    {"B.FPATR", Command::fpatr, Field::group_n_code, 0, 9, of_cube},
    {"B.FPATR", Command::fpatr, Field::row_max_en, 0, 1, of_cube},
    {"B.FPATR", Command::fpatr, Field::group_max_en, 0, 1, of_cube},
    {"B.FPATR", Command::fpatr, Field::row_max_init, 0, 1, of_cube},
    {"B.FPATR", Command::fpatr, Field::max_abs_en, 0, 1, of_cube},
    {"B.FPATR", Command::fpatr, Field::trans_a, 0, 1,
     [](Operation o, int v) { return isa::is_cube(o) && (v == 0 || is_matmul(o)); }, "TransA breaks D1 with a Local A"},
    {"B.FPATR", Command::fpatr, Field::trans_b, 0, 1,
     [](Operation o, int v) { return isa::is_cube(o) && (v == 0 || is_matmul(o)); }, "TransB breaks D1 with a Local B"},
    {"B.FPATR", Command::fpatr, Field::cscale_en, 0, 1,
     [](Operation o, int v) { return isa::is_cube(o) && (v == 0 || (is_matmul(o) && isa::accumulates(o))); },
     "CScaleEn breaks F2 in other operations"},
    {"B.DIM", Command::dim, Field::lb, 0, 2, always},
    {"B.DIM", Command::dim, Field::reg_src, 0, 23, always},
    {"B.IOR", Command::ior, Field::reg_src0, 0, 23,
     [](Operation o, int v) { return o != Operation::tmov && o != Operation::tcvt && (v != 0 || isa::is_cube(o)); },
     "the operation has no scalar, or its first one is never the register zero"},
    {"B.IOR", Command::ior, Field::reg_src1, 0, 23,
     [](Operation o, int v) { return o != Operation::tmov && o != Operation::tcvt && (v != 0 || isa::is_cube(o)); },
     "the operation has no second scalar, or it is never the register zero"},
    {"B.IOR", Command::ior, Field::reg_src2, 0, 23,
     [](Operation o, int v) { return v == 0 && o != Operation::tmov && o != Operation::tcvt; },
     "no operation takes a third scalar"},
    {"B.IOR", Command::ior, Field::reg_dst, 0, 23,
     [](Operation o, int v) { return v == 0 && o != Operation::tmov && o != Operation::tcvt; },
     "no operation has a scalar result"},
    {"B.IOS", Command::ios, Field::shared_tile, 0, 63, always},
    {"B.IOS", Command::ios, Field::size_code, 0, 12, [](Operation o, int v) { return v == 0 || o == Operation::tload; },
     "only TLOAD makes Shared Tiles"},
    {"B.IOT", Command::iot, Field::pe_mode, 0, 7, always},
    {"B.IOT", Command::iot, Field::last, 0, 1, always},
    {"B.IOT", Command::iot, Field::size_code, 1, 10, makes_local, "TSTORE makes no Tile"},
    {"B.IOT", Command::iot, Field::dst_tile, 0, 3, makes_local, "TSTORE makes no Tile"},
    {"B.IOT", Command::iot, Field::src_tile0, 0, 63, always},
    {"B.IOT", Command::iot, Field::src_tile1, 0, 63, of_cube, "other operations have one source"},
};

/// Whether an instruction has this field and means something by it.
bool says(const Instruction& i, Field field) {
  const isa::FieldSpec* spec = isa::find_spec(i.form(), field);
  if (spec == nullptr) return false;
  if (field == Field::dst_tile) return i[Field::size_code] != 0;
  return field == Field::lb || spec->constraint != isa::Constraint::fixed;
}

std::string value_name(Field field, int value) {
  switch (field) {
    case Field::reg_src:
    case Field::reg_src0:
    case Field::reg_src1:
    case Field::reg_src2:
    case Field::reg_dst:
      return std::string(isa::gpr_name(value));
    case Field::src_tile0:
    case Field::src_tile1:
      return isa::tile_name(value);
    case Field::shared_tile:
      return isa::shared_tile_name(value);
    case Field::pe_mode:
      return std::string(isa::pe_mask_names[static_cast<std::size_t>(value)].name);
    case Field::pad_value:
      return std::string(isa::pad_names[static_cast<std::size_t>(value)].name);
    case Field::cmode:
      return std::string(isa::compare_names[static_cast<std::size_t>(value)].name);
    case Field::dst_tile:
      return std::string(isa::hand_names[static_cast<std::size_t>(value)].name);
    default:
      return std::to_string(value);
  }
}
uint64 field_key(std::size_t field, int value) {
  return uint64{field} << 16 | static_cast<uint64>(value);
}

Coverage::Model legal_model(const BundleGenerator::Plan& plan) {
  Coverage::Model model;
  model.groups = {
      {"operation", "operations"},
      {"types", "operation x AType x BType; operation x type x layout code; operation x source x destination"},
      {"post-process", "PreQuant mode x ReLU mode x Sat"},
      {"post-process rounding", "PreQuant mode x RMode x Sat"},
      {"conversion rounding", "operation x destination type x RMode x Sat"},
      {"extents", "TMATMUL: M x N x K, each 1, a multiple of 16, 8 and 32, one below, one above, other"},
      {"tails", "CUBE: which of M, N and K leave a CELL incomplete"},
      {"sharing", "TMATMUL operation x which operands are Shared"},
      {"masks", "which PEs take part"},
      {"fields", "values of instruction fields"},
      {"flags", "raised flags"}};
  auto& g = model.groups;
  std::vector<Operation> used;
  bool any_cube = false;
  bool any_matmul = false;
  std::uint32_t smallest_k_cell = 32;
  for (std::size_t o = 1; o < plan.heads_of.size(); ++o) {
    const auto& heads = plan.heads_of[o];
    if (heads.empty()) continue;
    const auto operation = static_cast<Operation>(o);
    used.push_back(operation);
    g[operations].add(o, std::string(name_of(operation)));
    any_cube = any_cube || isa::is_cube(operation);
    any_matmul = any_matmul || is_matmul(operation);
    for (const Head& h : heads) {
      g[types].add(type_key(operation, h.a, h.b, static_cast<unsigned>(h.layout)), type_bin(h));
      if (isa::is_cube(operation)) {
        smallest_k_cell = std::min<std::uint32_t>(smallest_k_cell, 128U / format_of(h.b).lane_bits);
      }
    }
    if (is_matmul(operation)) {
      for (std::size_t s = 0; s < sharing_names.size(); ++s) {
        g[shares].add(uint64{o} << 8 | s, fmt::format("{} {}", name_of(operation), sharing_names[s]));
      }
    }
  }
  std::vector<bool> seen(plan.classes.size(), false);
  for (std::size_t i = 0; i < plan.heads.size(); ++i) {
    if (seen[plan.class_of[i]]) continue;
    seen[plan.class_of[i]] = true;
    const Head& h = plan.heads[i];
    for (const Post& p : plan.classes[plan.class_of[i]].posts) {
      const std::string control = fmt::format("{} Sat={}", rounding_name(p.rmode), p.saturate ? 1 : 0);
      if (is_conversion(h.operation)) {
        g[conversions].add(conversion_key(h.operation, h.b, p.rmode, p.saturate),
                           fmt::format("{} {} {}", name_of(h.operation), type_name(h.b), control));
      } else if (isa::is_cube(h.operation)) {
        g[posts].add(post_key(p.mode->code, p.relu, p.saturate),
                     fmt::format("{} {} Sat={}", p.mode->name, isa::relu_names[p.relu].name, p.saturate ? 1 : 0));
        g[roundings_group].add(rounding_key(p.mode->code, p.rmode, p.saturate),
                               fmt::format("{} {}", p.mode->name, control));
      }
    }
  }
  if (any_matmul) {
    for (const auto& d : plan.dims) {
      const auto name = [&](std::size_t i) { return dim_class_names[static_cast<std::size_t>(d[i])]; };
      g[extents].add(static_cast<uint64>(d[0]) << 16 | static_cast<uint64>(d[1]) << 8 | static_cast<uint64>(d[2]),
                     fmt::format("M {}, N {}, K {}", name(0), name(1), name(2)));
    }
  }
  const std::uint32_t max = plan.options.max_dim;
  const unsigned always_tail =
      (any_matmul && max >= 16 ? 0U : 1U) | (max >= 8 ? 0U : 2U) | (max >= smallest_k_cell ? 0U : 4U);
  for (unsigned t = 0; any_cube && t < 8; ++t) {
    if ((t & always_tail) != always_tail) continue;
    g[tails].add(
        t, t == 0 ? "none"
                  : fmt::format("{}{}{}", (t & 1) != 0 ? "M" : "", (t & 2) != 0 ? "N" : "", (t & 4) != 0 ? "K" : ""));
  }
  for (int mode = 1; mode < 8; ++mode) {
    const unsigned mask = isa::pe_mask(mode);
    g[masks].add(mask, fmt::format("{:04b}", mask));
  }
  for (std::size_t f = 0; f < std::size(kFields); ++f) {
    const CoveredField& covered = kFields[f];
    std::string others;
    bool relevant = false;
    for (int v = covered.least; v <= covered.most; ++v) {
      const bool reachable =
          std::any_of(used.begin(), used.end(), [&](Operation o) { return covered.reachable(o, v); });
      const std::string value = value_name(covered.field, v);
      if (reachable) {
        g[fields].add(field_key(f, v), fmt::format("{}.{}={}", covered.command, isa::name_of(covered.field), value));
      } else {
        others += (others.empty() ? "" : " ") + value;
      }
      relevant = relevant || reachable;
    }
    if (relevant && !others.empty()) {
      g[fields].unreachable.push_back(
          {fmt::format("{}.{}={}", covered.command, isa::name_of(covered.field), others), std::string(covered.why)});
    }
  }
  const bool computes = any_cube || std::any_of(used.begin(), used.end(), is_conversion);
  for (const FlagName& row : flag_names) {
    if (!computes) continue;
    if (row.flag == Flags::divide_by_zero) {
      g[flags].unreachable.push_back({std::string(row.name), "no rule of the model raises it"});
    } else {
      g[flags].add(static_cast<uint64>(row.flag), std::string(row.name));
    }
  }
  return model;
}

Coverage::Model illegal_model(const BundleGenerator::Plan& plan) {
  Coverage::Model model;
  model.groups = {{"rules", "the rule that refuses the bundle"}, {"rule operations", "rule x operation"}};
  for (const RuleReach& whatever_options : rule_reach()) {
    const auto row = std::find_if(plan.reach.begin(), plan.reach.end(),
                                  [&](const RuleReach& r) { return r.rule == whatever_options.rule; });
    const RuleReach& reach = row == plan.reach.end() ? whatever_options : *row;
    const std::string name(machine::rule(reach.rule).name);
    if (!reach.why.empty()) model.groups[rules].unreachable.push_back({name, reach.why});
    if (row == plan.reach.end() || !reach.why.empty()) continue;
    model.groups[rules].add(static_cast<uint64>(reach.rule), name);
    for (const Operation o : reach.operations) {
      model.groups[rule_operations].add(static_cast<uint64>(reach.rule) << 8 | static_cast<uint64>(o),
                                        fmt::format("{} {}", name, name_of(o)));
    }
  }
  return model;
}

}  // namespace

uint64 CoverageGroup::hit() const noexcept {
  return static_cast<uint64>(std::count_if(bins.begin(), bins.end(), [](const CoverageBin& b) { return b.hits != 0; }));
}

Coverage::Coverage(const BundleGenerator& generator) {
  const BundleGenerator::Plan& plan = generator.plan();
  auto model = std::make_shared<Model>(plan.options.rules.empty() ? legal_model(plan) : illegal_model(plan));
  for (Model::Group& group : model->groups) {
    group.first = model->bins;
    model->bins += group.bins.size();
  }
  counts_.assign(model->bins, 0);
  model_ = std::move(model);
}

void Coverage::hit(std::size_t group, uint64 key) {
  const Model::Group& g = model_->groups[group];
  const auto found = g.index.find(key);
  if (found == g.index.end()) {
    ++undeclared_;
  } else {
    ++counts_[g.first + found->second];
  }
}

void Coverage::sample(const Bundle& bundle) {
  ++bundles_;
  if (bundle.rule) {
    const auto id = bundle.outcome.fault ? bundle.outcome.fault->id : machine::RuleId::count;
    hit(rules, static_cast<uint64>(id));
    hit(rule_operations, static_cast<uint64>(id) << 8 | static_cast<uint64>(bundle.operation));
    return;
  }
  // What the words say.
  Operation operation = Operation::none;
  DataType a = DataType::none;
  std::optional<Instruction> datr;
  std::optional<Instruction> fpatr;
  unsigned mask = 0;
  std::size_t shared = 0;
  for (const isa::Word& word : bundle.words) {
    const isa::Decoded decoded = isa::decode(word.bits);
    if (!decoded) continue;
    const Instruction& i = *decoded;
    if (i.command() == Command::bstart) {
      operation = i.operation();
      a = i.data_type();
    }
    if (i.command() == Command::datr) datr = i;
    if (i.command() == Command::fpatr) fpatr = i;
    if ((i.command() == Command::iot || i.command() == Command::ios) && i.pe_mask() != 0) {
      mask = i.pe_mask();
      if (i.command() == Command::ios) ++shared;
    }
    for (std::size_t f = 0; f < std::size(kFields); ++f) {
      if (kFields[f].code == i.command() && says(i, kFields[f].field)) hit(fields, field_key(f, i[kFields[f].field]));
    }
  }
  hit(operations, static_cast<uint64>(operation));
  hit(masks, mask);
  const unsigned rmode = datr ? static_cast<unsigned>((*datr)[Field::rmode]) : 0;
  const bool saturate = datr && datr->flag(Field::sat);
  DataType b = datr && datr->data_type() != DataType::none ? datr->data_type() : a;
  if (is_transfer(operation)) {
    if (a == DataType::none) a = bundle.a;  // TMOV may leave it to the Tile
    hit(types, type_key(operation, a, DataType::none, datr ? static_cast<unsigned>((*datr)[Field::layout]) : 0));
  } else {
    hit(types, type_key(operation, a, b, 0));
  }
  if (is_conversion(operation)) hit(conversions, conversion_key(operation, b, rmode, saturate));
  if (isa::is_cube(operation) && fpatr) {
    const auto mode = static_cast<unsigned>((*fpatr)[Field::pre_quant_mode]);
    hit(posts, post_key(mode, static_cast<unsigned>((*fpatr)[Field::relu_mode]), saturate));
    hit(roundings_group, rounding_key(mode, rmode, saturate));
    unsigned tail = (bundle.n % 8 != 0 ? 2U : 0U) | (bundle.k % (128U / format_of(b).lane_bits) != 0 ? 4U : 0U);
    for (const machine::PublishedTile& t : bundle.outcome.tiles) {
      const machine::TileDescriptor& d = t.tile->descriptor();
      if (t.role == Role::d && d.valid_rows < d.rows) tail |= 1;
    }
    hit(tails, tail);
    if (!isa::is_gemv(operation)) {
      const auto side = [&](std::size_t i, std::uint32_t value) {
        return static_cast<uint64>(dim_class(value, dim_units[i]));
      };
      hit(extents, side(0, bundle.m) << 16 | side(1, bundle.n) << 8 | side(2, bundle.k));
      const std::size_t right = isa::is_mx(operation) && machine::is_scaled_mx_side(b) ? 2 : 1;
      const Sharing sharing = shared == 0 ? Sharing::local : shared == right ? Sharing::right : Sharing::all;
      hit(shares, static_cast<uint64>(operation) << 8 | static_cast<uint64>(sharing));
    }
  }
  for (const FlagName& row : flag_names) {
    if (has(bundle.outcome.flags, row.flag)) hit(flags, static_cast<uint64>(row.flag));
  }
}

void Coverage::merge(const Coverage& other) {
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  bundles_ += other.bundles_;
  undeclared_ += other.undeclared_;
}

std::vector<uint64> Coverage::state() const {
  std::vector<uint64> out = counts_;
  out.push_back(bundles_);
  out.push_back(undeclared_);
  return out;
}

void Coverage::merge_state(std::span<const uint64> state) {
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += state[i];
  bundles_ += state[counts_.size()];
  undeclared_ += state[counts_.size() + 1];
}

std::vector<CoverageGroup> Coverage::groups() const {
  std::vector<CoverageGroup> out;
  for (const Model::Group& g : model_->groups) {
    if (g.bins.empty() && g.unreachable.empty()) continue;
    CoverageGroup group{g.name, g.meaning, {}, g.unreachable};
    for (std::size_t i = 0; i < g.bins.size(); ++i) group.bins.push_back({g.bins[i].name, counts_[g.first + i]});
    out.push_back(std::move(group));
  }
  return out;
}

std::string Coverage::text() const {
  std::string text;
  std::string missed;
  std::string unreachable;
  uint64 bins = 0;
  uint64 hit = 0;
  for (const CoverageGroup& g : groups()) {
    bins += g.bins.size();
    hit += g.hit();
    uint64 least = g.bins.empty() ? 0 : g.bins.front().hits;
    for (const CoverageBin& b : g.bins) {
      least = std::min(least, b.hits);
      if (b.hits == 0) missed += fmt::format("  {}: {}\n", g.name, b.name);
    }
    text += fmt::format("{:<22} {:>6} {:>6} {:>8}  {}\n", g.name, g.bins.size(), g.hit(), least, g.meaning);
    for (const Unreachable& u : g.unreachable) unreachable += fmt::format("  {}: {} ({})\n", g.name, u.bins, u.why);
  }
  const double percent = bins == 0 ? 100.0 : 100.0 * static_cast<double>(hit) / static_cast<double>(bins);
  std::string out = fmt::format("coverage: {} of {} bins hit by {} bundles ({:.1f} %)\n{:<22} {:>6} {:>6} {:>8}  {}\n",
                                hit, bins, bundles_, percent, "group", "bins", "hit", "least", "bins are");
  out += text;
  if (!missed.empty()) out += "never hit:\n" + missed;
  if (!unreachable.empty()) out += "not reachable:\n" + unreachable;
  if (undeclared_ != 0) out += fmt::format("{} samples were in no bin\n", undeclared_);
  return out;
}

std::string Coverage::json() const {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  uint64 bins = 0;
  uint64 hit = 0;
  for (const CoverageGroup& g : groups()) {
    Json counts = Json::object();
    for (const CoverageBin& b : g.bins) counts[std::string(b.name)] = b.hits;
    Json others = Json::array();
    for (const Unreachable& u : g.unreachable) others.push_back({{"bins", u.bins}, {"why", u.why}});
    bins += g.bins.size();
    hit += g.hit();
    list.push_back({{"name", g.name}, {"meaning", g.meaning}, {"bins", counts}, {"unreachable", others}});
  }
  const Json json{{"bundles", bundles_}, {"bins", bins}, {"hit", hit}, {"undeclared", undeclared_}, {"groups", list}};
  return json.dump(2) + "\n";
}

}  // namespace bitcube::stimulus
