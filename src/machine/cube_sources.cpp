// Stages F and G of architecture 4.3: what one PE brings to a CUBE bundle.
#include "bitcube/numeric/carrier.hpp"
#include "cube_plan.hpp"

namespace bitcube::machine {

namespace {

using enum RuleId;

/// Everything that a source must be. `columns_exact` stays false: physical columns may exceed the valid ones.
struct Schema {
  TileLayout layout;
  DataType type;
  std::uint32_t rows;
  std::uint32_t columns;
};

Check check_schema(const Tile& tile, const Schema& s, RuleId id, Role role, unsigned pe) {
  const TileDescriptor& d = tile.descriptor();
  const int p = static_cast<int>(pe);
  if (d.layout != s.layout) return fault(id, role, layout(d.layout), layout(s.layout), p);
  if (d.type != s.type) return fault(id, role, type(d.type), type(s.type), p);
  if (d.valid_rows != s.rows || d.valid_columns != s.columns) {
    return fault(id, role, shape(d.valid_rows, d.valid_columns), shape(s.rows, s.columns), p);
  }
  if (check_descriptor(d, local_capacity_limit) != DescriptorFault::none) {
    return fault(id, role, phrase("an inconsistent descriptor"), phrase("a legal descriptor"), p);
  }
  if (!tile.contents_defined()) {
    return fault(id, role, phrase("undefined elements"), phrase("every valid element defined"), p);
  }
  return {};
}

class PeCheck {
 public:
  PeCheck(const State& state, const CubePlan& plan, unsigned pe)
      : state_(state), plan_(plan), pe_(static_cast<int>(pe)), unit_(pe) {
    out_.plan.pe = pe;
    out_.plan.m = plan.rows(pe);
  }

  PePlanned run() {
    using Step = Check (PeCheck::*)();
    for (const Step step :
         {&PeCheck::names, &PeCheck::scalars, &PeCheck::c_scale_allowed, &PeCheck::accumulator_class,
          &PeCheck::row_max_in, &PeCheck::quant_vector, &PeCheck::relu_vector, &PeCheck::mathematical_sources,
          &PeCheck::c_name, &PeCheck::c_scale_name, &PeCheck::m_layout, &PeCheck::destinations}) {
      out_.fault = (this->*step)();
      if (out_.fault) break;
    }
    return std::move(out_);
  }

 private:
  const Tile* tile(Role role) const { return out_.plan[role]; }
  Check schema(Role role, RuleId id, TileLayout layout, DataType type, std::uint32_t rows,
               std::uint32_t columns) const {
    return check_schema(*tile(role), {layout, type, rows, columns}, id, role, unit_);
  }

  Check names() {  // F0
    for (const auto& [role, name] : plan_.sources) {
      if (auto f = check_live(state_, unit_, name, role, F0)) return f;
      out_.plan.source[static_cast<std::size_t>(role)] = state_.pe[unit_].local[name].get();
    }
    return {};
  }

  Check scalars() {  // F1
    const Pe& pe = state_.pe[unit_];
    if (plan_.scalar_quant()) {
      uint64& w = out_.plan.quant_word;
      w = plan_.quant_gpr ? pe.read(*plan_.quant_gpr) : 0;
      const auto reason = quant_carrier_fault(w, plan_.mode->carrier, plan_.mode->offset_bits);
      if (!reason.empty()) return fault(F1, Role::quant_scalar, word(w), phrase(reason), pe_);
    }
    if (plan_.relu == Relu::scalar) {
      uint64& w = out_.plan.relu_word;
      w = plan_.relu_gpr ? pe.read(*plan_.relu_gpr) : 0;
      const auto reason = activation_carrier_fault(w);
      if (!reason.empty()) return fault(F1, Role::relu_scalar, word(w), phrase(reason), pe_);
    }
    return {};
  }

  Check c_scale_allowed() {  // F2
    if (!plan_.post.c_scale) return {};
    if (!plan_.accumulates || plan_.gemv) {
      return fault(F2, Role::c_scale, phrase("CScaleEn in another operation"), phrase("TMATMUL.ACC or TMATMULMX.ACC"),
                   pe_);
    }
    if (plan_.accumulator->type == DataType::fp32) return {};
    return fault(F2, Role::c_scale, type(plan_.accumulator->type), type(DataType::fp32), pe_);
  }

  Check accumulator_class() {  // F3
    const DataType wanted = plan_.mode->accumulator;
    if (wanted == DataType::none || wanted == plan_.accumulator->type) return {};
    return fault(F3, Role::d, type(plan_.accumulator->type), type(wanted), pe_);
  }

  Check row_max_in() {  // F4
    if (tile(Role::row_max_in) == nullptr) return {};
    return schema(Role::row_max_in, F4, TileLayout::row_major, plan_.accumulator->type, out_.plan.m, 1);
  }

  template <typename Reason>
  Check vector(Role role, RuleId id, const Reason& reason_of) const {
    if (tile(role) == nullptr) return {};
    if (auto f = schema(role, id, TileLayout::row_major, DataType::u64, 1, plan_.n)) return f;
    for (std::uint32_t j = 0; j < plan_.n; ++j) {
      const uint64 w = tile(role)->element(0, j);
      const std::string_view reason = reason_of(w);
      if (!reason.empty()) return fault(id, role, word(w), phrase(reason), pe_);
    }
    return {};
  }
  Check quant_vector() {  // F5
    return vector(Role::quant_vector, F5,
                  [&](uint64 w) { return quant_carrier_fault(w, plan_.mode->carrier, plan_.mode->offset_bits); });
  }
  Check relu_vector() {  // F6
    return vector(Role::relu_vector, F6, [](uint64 w) { return activation_carrier_fault(w); });
  }

  /// F7 for A, C and everything else in an M layout: M16 or M32, whichever the Tile has.
  Check m_side(Role role, DataType type, std::uint32_t columns) const {
    const TileLayout have = tile(role)->descriptor().layout;
    if (!is_cube_m(have)) return fault(F7, role, layout(have), phrase("CUBE_M16 or CUBE_M32"), pe_);
    return schema(role, F7, have, type, out_.plan.m, columns);
  }

  Check mathematical_sources() {  // F7
    for (const auto& [role, name] : plan_.sources) {
      if (auto f = mathematical_source(role)) return f;
    }
    return {};
  }
  Check mathematical_source(Role role) const {
    const std::uint32_t m = out_.plan.m;
    const CubeSide& a = plan_.a;
    const CubeSide& b = plan_.b;
    switch (role) {
      case Role::c:
        return c_source();
      case Role::a:
        return m_side(role, a.format->type, plan_.k);
      case Role::a_scale:
        return schema(role, F7, TileLayout::cube_m32, a.scale_type, m, a.groups(plan_.k));
      case Role::b:
        return schema(role, F7, TileLayout::cube_n8, b.format->type, plan_.k, plan_.n);
      case Role::b_scale:  // rows are N
        return schema(role, F7, TileLayout::cube_m32, b.scale_type, plan_.n, b.groups(plan_.k));
      case Role::bias:
        return schema(role, F7, TileLayout::row_major, plan_.accumulator->type, 1, plan_.n);
      case Role::c_scale:
        return schema(role, F7, TileLayout::cube_m32, DataType::u8, m, 1);
      default:
        return {};
    }
  }
  Check c_source() const {
    if (auto f = m_side(Role::c, plan_.accumulator->type, plan_.n)) return f;
    const TileDescriptor& c = tile(Role::c)->descriptor();
    if (const Tile* a = tile(Role::a); a != nullptr && a->descriptor().layout != c.layout) {
      return fault(F7, Role::c, layout(c.layout), layout(a->descriptor().layout), pe_);
    }
    const std::uint32_t d_bytes = plan_.destinations[0].capacity;
    if (plan_.mode->code == no_quant.code && c.capacity_bytes != d_bytes) {
      return fault(F7, Role::c, byte_count(c.capacity_bytes), byte_count(d_bytes), pe_);
    }
    return {};
  }

  /// F8 and F9 compare the 6-bit name as encoded with the 2-bit hand; nothing lies behind it (architecture 9.2, OP-08).
  Check c_name() {  // F8
    const auto name = plan_.name_of(Role::c);
    if (!name || *name != plan_.destinations[0].hand) return {};
    return fault(F8, Role::c, tile_name(*name), phrase("a name other than the number of D's hand"), pe_);
  }
  Check c_scale_name() {  // F9
    const auto name = plan_.name_of(Role::c_scale);
    if (!name) return {};
    for (const CubeDestination& d : plan_.destinations) {
      if (*name == d.hand) {
        return fault(F9, Role::c_scale, tile_name(*name), phrase("a name other than a destination's hand"), pe_);
      }
    }
    return {};
  }

  /// Right-only and Local: A's layout. All-Shared: C's, or the smallest that holds the rows (architecture 5).
  TileLayout d_layout() const {
    if (const Tile* a = tile(Role::a)) return a->descriptor().layout;
    if (const Tile* c = tile(Role::c)) return c->descriptor().layout;
    return out_.plan.m <= 16 ? TileLayout::cube_m16 : TileLayout::cube_m32;
  }
  Check m_layout() {  // F10
    const std::uint32_t limit = d_layout() == TileLayout::cube_m16 ? 16 : 32;
    if (out_.plan.m <= limit) return {};
    return fault(F10, Role::m, number(out_.plan.m), range(1, limit), pe_);
  }

  Check destinations() {  // G1 to G4
    std::vector<NewTile> tiles;
    for (const CubeDestination& d : plan_.destinations) tiles.push_back({d.hand, d.capacity, d.role});
    if (auto f = check_room(state_, unit_, tiles)) return f;
    const DataType accumulator = plan_.accumulator->type;
    for (const CubeDestination& d : plan_.destinations) {
      DescriptorResult r;
      RuleId id = G4;
      if (d.role == Role::d) {
        const DataType type = plan_.mode->destination == DataType::none ? accumulator : plan_.mode->destination;
        id = G3;
        r = describe_cube(d_layout(), type, out_.plan.m, plan_.n, d.capacity);
      } else if (d.role == Role::row_max_out) {
        r = describe_ordinary(TileLayout::row_major, accumulator, out_.plan.m, 1, 1, d.capacity);
      } else {
        const std::uint32_t valid = divide_up(plan_.n, plan_.group_n());
        const std::uint32_t columns = state_.options.aux_exact_columns ? valid : round_up_to_power_of_two(valid);
        r = describe_ordinary(TileLayout::row_major, accumulator, out_.plan.m, valid, columns, d.capacity);
      }
      if (!r) {
        const std::uint32_t columns = d.role == Role::d             ? plan_.n
                                      : d.role == Role::row_max_out ? 1
                                                                    : divide_up(plan_.n, plan_.group_n());
        return fault(id, d.role, byte_count(d.capacity), shape(out_.plan.m, columns), pe_);
      }
      r.descriptor.allocation_mask = static_cast<std::uint8_t>(plan_.cooperative ? pe_bit(unit_) : plan_.mask);
      out_.plan.destinations.push_back(r.descriptor);
    }
    return {};
  }

  const State& state_;
  const CubePlan& plan_;
  int pe_;
  unsigned unit_;
  PePlanned out_;
};

}  // namespace

PePlanned plan_pe(const State& state, const CubePlan& plan, unsigned pe) {
  return PeCheck(state, plan, pe).run();
}

}  // namespace bitcube::machine
