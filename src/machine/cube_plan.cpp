#include "cube_plan.hpp"

#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/machine/product_types.hpp"

namespace bitcube::machine {

namespace {

using enum RuleId;

/// C1.
Check check_types(const State& state, CubePlan& plan) {
  const Header& h = state.header;
  const DataType a = h.operation.type;
  const bool b_given = h.datr && h.datr->type != DataType::none;
  const DataType b = b_given ? h.datr->type : a;
  const auto bad = [&](Role role, DataType t, std::string_view legal) {
    return fault(C1, role, type(t), phrase(legal));
  };
  if (!plan.mx) {
    constexpr std::string_view ordinary = "a float type but HiF4X2 and FP64, or S16 S8 S4X2, or U16 U8 U4X2";
    const DataType accumulator = ordinary_accumulator(a);
    if (accumulator == DataType::none) return bad(Role::a, a, ordinary);
    if (ordinary_accumulator(b) != accumulator) return bad(Role::b, b, "a type of the same class as AType");
    plan.accumulator = &format_of(accumulator);
  } else {
    const bool hif4_allowed = !plan.gemv || state.options.gemv_hif4;
    for (const auto& [role, t] : {std::pair{Role::a, a}, std::pair{Role::b, b}}) {
      const bool ok = is_mx_side(t) && (t != DataType::hif4x2 || hif4_allowed);
      if (!ok) return bad(role, t, "FP16 BF16 E4M3 E5M2 E2M1X2 E1M2X2 HiF4X2");
    }
    plan.accumulator = &fp32;
  }
  for (const auto& [side, t] : {std::pair{&plan.a, a}, std::pair{&plan.b, b}}) {
    side->format = &format_of(t);
    side->scaled = plan.mx && is_scaled_mx_side(t);
    side->group = mx_group(t);
    side->scale_type = mx_scale_type(t);
  }
  return {};
}

/// C2: which groups are Shared.
Check check_shared_count(const Header& h, CubePlan& plan) {
  const std::size_t count = h.shared.size();
  const std::size_t left = plan.a.scaled ? 2 : 1;
  const std::size_t right = plan.b.scaled ? 2 : 1;
  plan.cooperative = count != 0;
  if (plan.gemv && count != 0) return fault(C2, Role::sources, number(count), number(0));
  if (count != 0 && count != right && count != left + right) {
    return fault(C2, Role::sources, number(count), phrase("0, the right group, or both groups"));
  }
  plan.b.shared = count != 0;
  plan.a.shared = count == left + right;
  return {};
}

/// The roles of the Local source stream (architecture 3.1).
std::vector<Role> source_roles(const CubePlan& plan) {
  std::vector<Role> roles;
  const auto add = [&](bool present, Role role) {
    if (present) roles.push_back(role);
  };
  add(plan.accumulates, Role::c);
  add(!plan.a.shared, Role::a);
  add(!plan.a.shared && plan.a.scaled, Role::a_scale);
  add(!plan.b.shared, Role::b);
  add(!plan.b.shared && plan.b.scaled, Role::b_scale);
  add(plan.has_bias, Role::bias);
  add(plan.post.c_scale, Role::c_scale);
  add(plan.post.row_max && plan.post.row_max_init, Role::row_max_in);
  add(plan.vector_quant(), Role::quant_vector);
  add(plan.relu == Relu::per_column, Role::relu_vector);
  return roles;
}

/// C3 and C4.
Check check_streams(const Header& h, CubePlan& plan) {
  std::vector<std::uint8_t> names;
  std::vector<const LocalBinding*> destinations;
  for (const LocalBinding& binding : h.locals) {
    for (std::size_t i = 0; i < binding.source_count; ++i) names.push_back(binding.sources[i]);
    if (binding.has_destination()) destinations.push_back(&binding);
  }
  const auto roles = source_roles(plan);
  if (names.size() != roles.size()) return fault(C3, Role::sources, number(names.size()), number(roles.size()));
  for (std::size_t i = 0; i < roles.size(); ++i) plan.sources.emplace_back(roles[i], names[i]);

  std::vector<Role> outputs{Role::d};
  if (plan.post.row_max) outputs.push_back(Role::row_max_out);
  if (plan.post.group_max) outputs.push_back(Role::group_max_out);
  if (destinations.size() != outputs.size()) {
    return fault(C4, Role::destinations, number(destinations.size()), number(outputs.size()));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    plan.destinations.push_back({outputs[i], destinations[i]->hand, size_code_bytes(destinations[i]->size_code)});
  }
  return {};
}

/// C6 (architecture 3.4).
Check check_scalars(const Header& h, CubePlan& plan) {
  const bool quant = plan.scalar_quant();
  const bool relu = plan.relu == Relu::scalar;
  if (!h.scalars) {
    // A zero word is a legal shift and a legal alpha, but no legal scale.
    if (quant && plan.mode->carrier != CarrierKind::shift) {
      return fault(C6, Role::quant_scalar, phrase("B.IOR omitted"), phrase("a B.IOR with the parameter"));
    }
    return {};
  }
  const ScalarBinding& s = *h.scalars;
  if (s.destination != 0) return fault(C6, Role::scalars, number(s.destination), phrase("RegDst 0"));
  const std::size_t used = (quant ? 1U : 0U) + (relu ? 1U : 0U);
  for (std::size_t i = used; i < s.sources.size(); ++i) {
    if (s.sources[i] != 0) return fault(C6, Role::scalars, number(s.sources[i]), phrase("0 in an unused selector"));
  }
  if (quant) plan.quant_gpr = s.sources[0];
  if (relu) plan.relu_gpr = s.sources[quant ? 1 : 0];
  return {};
}

/// C8: LB0 is M or group_M.
Check check_dimensions(const Header& h, CubePlan& plan) {
  constexpr Role roles[] = {Role::m, Role::n, Role::k};
  std::uint32_t* const values[] = {&plan.m, &plan.n, &plan.k};
  for (std::size_t i = 0; i < 3; ++i) {
    *values[i] = h.lb[i].value_or(1);
    if (*values[i] == 0) return fault(C8, roles[i], number(0), range(1, extent_limit));
  }
  if (plan.cooperative && plan.m > 128) return fault(C8, Role::m, number(plan.m), range(1, 128));
  return {};
}

/// C9.
Check check_rounding(const Header& h, CubePlan& plan) {
  plan.rounding = requested_rounding(h);
  plan.saturate = h.datr && h.datr->saturate;
  if (plan.rounding && plan.mode->rounding_rule == RoundingRule::fixed) {
    return fault(C9, Role::attributes, number(static_cast<uint64>(*plan.rounding)), phrase("RMode 0"));
  }
  if (plan.saturate && !plan.mode->saturation_allowed) return fault(C9, Role::attributes, number(1), phrase("Sat 0"));
  return {};
}

/// C10.
Check check_masks(const Header& h, CubePlan& plan) {
  plan.mask = h.locals.front().mask;
  for (const LocalBinding& binding : h.locals) {
    if (binding.mask != plan.mask) return fault(C10, Role::mask, mask(binding.mask), mask(plan.mask));
  }
  for (const SharedBinding& binding : h.shared) {
    if (binding.mask != plan.mask) return fault(C10, Role::mask, mask(binding.mask), mask(plan.mask));
  }
  if (plan.cooperative && plan.mask != full_mask) return fault(C10, Role::mask, mask(plan.mask), mask(full_mask));
  return {};
}

/// What a Shared operand must look like (architecture 4.7).
Check check_shared_descriptor(const State& state, const Tile& tile, Role role, DataType wanted_type, std::uint32_t rows,
                              std::uint32_t columns, bool transposed) {
  const TileDescriptor& d = tile.descriptor();
  if (transposed) std::swap(rows, columns);
  if (check_descriptor(d, shared_capacity_limit) != DescriptorFault::none) {
    return fault(D2, role, phrase("an inconsistent descriptor"), phrase("a legal descriptor"));
  }
  if (d.layout != TileLayout::row_major) return fault(D2, role, layout(d.layout), layout(TileLayout::row_major));
  if (d.type != wanted_type) return fault(D2, role, type(d.type), type(wanted_type));
  if (d.valid_rows != rows || d.valid_columns != columns) {
    return fault(D2, role, shape(d.valid_rows, d.valid_columns), shape(rows, columns));
  }
  if (state.options.coop_exact_columns && d.columns != columns) {
    return fault(D2, role, number(d.columns), number(columns));
  }
  return {};
}

/// D2. A record that exists but is not ready may be waited for (architecture 1.10, OP-04).
Check check_shared(const State& state, CubePlan& plan, std::optional<unsigned>& waiting_for) {
  struct Wanted {
    Role role;
    const Tile** tile;
    DataType type;
    std::uint32_t rows, columns;
    bool transposed;
  };
  std::vector<Wanted> wanted;
  CubeSide& a = plan.a;
  CubeSide& b = plan.b;
  if (a.shared) {
    wanted.push_back({Role::a, &a.primary, a.format->type, plan.m, plan.k, a.transposed});
    if (a.scaled) wanted.push_back({Role::a_scale, &a.scale, a.scale_type, plan.m, a.groups(plan.k), a.transposed});
  }
  if (b.shared) {
    wanted.push_back({Role::b, &b.primary, b.format->type, plan.k, plan.n, b.transposed});
    if (b.scaled) wanted.push_back({Role::b_scale, &b.scale, b.scale_type, b.groups(plan.k), plan.n, b.transposed});
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const SharedBinding& binding = state.header.shared[i];
    const Wanted& w = wanted[i];
    if (binding.size_code != 0) {
      return fault(D2, w.role, phrase("a Shared destination"), phrase("a Shared source"));
    }
    const SharedRecord& record = state.shared[binding.id];
    if (record.tile == nullptr) return fault(D2, w.role, shared_name(binding.id), phrase("a Shared Tile that exists"));
    if (!record.whole_parent_ready || !record.published) {
      if (state.options.wait_on_pending) {
        waiting_for = binding.id;
        return {};
      }
      return fault(D2, w.role, shared_name(binding.id), phrase("a published and wholly ready Shared Tile"));
    }
    if (auto f = check_shared_descriptor(state, *record.tile, w.role, w.type, w.rows, w.columns, w.transposed)) {
      return f;
    }
    if (!record.tile->contents_defined()) {
      return fault(D2, w.role, phrase("undefined elements"), phrase("every valid element defined"));
    }
    *w.tile = record.tile.get();
  }
  return {};
}

}  // namespace

unsigned CubePlan::group_n() const noexcept {
  return post.group_n_code == 0 ? 0 : group_n_values[post.group_n_code - 1U];
}

std::uint32_t CubePlan::rows(unsigned pe) const noexcept {
  if (!cooperative) return m;
  const std::uint32_t first = first_row(pe);
  return m <= first ? 0 : std::min(m - first, rows_per_pe());
}

std::optional<unsigned> CubePlan::name_of(Role role) const noexcept {
  for (const auto& [r, name] : sources) {
    if (r == role) return name;
  }
  return std::nullopt;
}

Planned plan_cube(const State& state) {
  const Header& h = state.header;
  Planned out;
  CubePlan& plan = out.plan;
  plan.operation = h.operation.code;
  plan.mx = isa::is_mx(plan.operation);
  plan.gemv = isa::is_gemv(plan.operation);
  plan.has_bias = isa::has_bias(plan.operation);
  plan.accumulates = isa::accumulates(plan.operation);
  if (!h.fpatr) {
    out.fault = fault(B2, Role::command, phrase("no B.FPATR"), phrase("exactly one B.FPATR"));
    return out;
  }
  if (!isa::is_cube(plan.operation)) {
    out.fault = fault(B3, Role::command, phrase("an unassigned function"), phrase("0-2, 4-6, 16-18, 20-22"));
    return out;
  }
  plan.post = *h.fpatr;
  plan.mode = find_prequant(plan.post.prequant);
  plan.relu = static_cast<Relu>(plan.post.relu);
  if (plan.mode == nullptr) {  // only in a header that was made by hand
    out.fault = fault(B3, Role::command, number(plan.post.prequant), phrase("an assigned PreQuantMode"));
    return out;
  }
  const auto check = [&](auto&& step) {
    if (!out.fault) out.fault = step();
  };
  check([&] { return check_types(state, plan); });
  check([&] { return check_shared_count(h, plan); });
  check([&] { return check_streams(h, plan); });
  check([&]() -> Check {  // C5; C4 passed, so there is a B.IOT
    if (h.locals.back().last) return {};
    return fault(C5, Role::command, phrase("no L in the last B.IOT"), phrase("L = 1"));
  });
  check([&] { return check_scalars(h, plan); });
  check([&]() -> Check {  // C7
    if (!h.datr) return {};
    const DataAttributes& d = *h.datr;
    const Finding zero = phrase("Layout, PadValue, CMode and Canonicalize 0");
    if (d.layout != isa::TransferLayout::norm) return fault(C7, Role::attributes, phrase("a Layout"), zero);
    if (d.pad != isa::PadValue::zero) return fault(C7, Role::attributes, phrase("a PadValue"), zero);
    if (d.cmode != 0) return fault(C7, Role::attributes, phrase("a CMode"), zero);
    if (d.canonicalize) return fault(C7, Role::attributes, phrase("Canonicalize"), zero);
    return {};
  });
  check([&] { return check_dimensions(h, plan); });
  check([&] { return check_rounding(h, plan); });
  check([&] { return check_masks(h, plan); });
  check([&]() -> Check {  // C11
    if (!plan.gemv || plan.m == 1) return {};
    return fault(C11, Role::m, number(plan.m), number(1));
  });
  check([&]() -> Check {  // D1
    plan.a.transposed = plan.post.trans_a;
    plan.b.transposed = plan.post.trans_b;
    if (plan.a.transposed && !plan.a.shared) return fault(D1, Role::a, phrase("TransA with a Local A"), number(0));
    if (plan.b.transposed && !plan.b.shared) return fault(D1, Role::b, phrase("TransB with a Local B"), number(0));
    return {};
  });
  check([&] { return check_shared(state, plan, out.waiting_for); });
  return out;
}

}  // namespace bitcube::machine
