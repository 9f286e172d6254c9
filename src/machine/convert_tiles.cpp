// TCVT, TQUANT and TDEQUANT (architecture 7.5 to 7.7): one source Tile, one new Tile, element by element.
#include <functional>

#include "bitcube/numeric/convert.hpp"
#include "bitcube/quantize/affine.hpp"
#include "effects.hpp"
#include "padding.hpp"

namespace bitcube::machine {

namespace {

using enum RuleId;
using isa::PadValue;

Completion failed(const Check& fault) {
  Completion out;
  out.fault = fault;
  return out;
}

/// What the three operations differ in.
struct Conversion {
  const Format* from = nullptr;
  const Format* to = nullptr;
  bool cube_allowed = false;  // TCVT: CUBE_M16 and CUBE_M32 as well
  bool affine = false;        // TQUANT, TDEQUANT: parameters in B.IOR
  bool same_rows = false;     // TCVT: the physical rows do not change
  PadValue pad = PadValue::null;
  std::function<Check(const TileDescriptor&, int pe)> check_source{};
  std::function<Encoded(uint64 word, const AffineParameters&)> element{};
};

/// T1 and V1.
Check check_bindings(const Header& h, bool affine) {
  if (!h.locals.empty() && !h.locals.back().last) {
    return fault(T1, Role::command, phrase("no L in the last B.IOT"), phrase("L = 1"));
  }
  if (h.locals.size() != 1 || !h.shared.empty() || h.locals[0].source_count != 1 || !h.locals[0].has_destination()) {
    return fault(V1, Role::sources, number(h.locals.size() + h.shared.size()),
                 phrase("one B.IOT with one source and one destination"));
  }
  if (!h.scalars) return {};
  if (!affine) return fault(V1, Role::scalars, phrase("a B.IOR"), phrase("none"));
  if (h.scalars->destination != 0 || h.scalars->sources[2] != 0) {
    return fault(V1, Role::scalars, phrase("RegDst or RegSrc2"), phrase("multiplier and zero point only"));
  }
  return {};
}

/// V2, without the source.
Check check_dimensions(const Header& h) {
  constexpr Role roles[] = {Role::lb0, Role::lb1, Role::lb2};
  for (std::size_t i = 0; i < 3; ++i) {
    if (h.lb[i] && *h.lb[i] == 0) return fault(V2, roles[i], number(0), range(1, extent_limit));
  }
  if (!h.lb[0]) return fault(V2, Role::lb0, phrase("omitted"), phrase("the valid columns"));
  return {};
}

/// V5 and V2 for one PE.
Check check_source(const State& state, const Conversion& conversion, unsigned pe) {
  const Header& h = state.header;
  const int p = static_cast<int>(pe);
  const unsigned name = h.locals[0].sources[0];
  if (auto f = check_live(state, pe, name, Role::source, V5)) return f;
  const Tile& tile = *state.pe[pe].local[name];
  const TileDescriptor& d = tile.descriptor();
  if (check_descriptor(d, local_capacity_limit) != DescriptorFault::none) {
    return fault(V5, Role::source, phrase("an inconsistent descriptor"), phrase("a legal descriptor"), p);
  }
  if (d.type != conversion.from->type) return fault(V3, Role::source, type(d.type), type(conversion.from->type), p);
  const bool cube = is_cube_m(d.layout);
  if (d.layout != TileLayout::row_major && !(cube && conversion.cube_allowed)) {
    return fault(V5, Role::source, layout(d.layout), layout(TileLayout::row_major), p);
  }
  if (conversion.check_source) {
    if (auto f = conversion.check_source(d, p)) return f;
  }
  const std::uint32_t columns = *h.lb[0];
  const std::uint32_t rows = h.lb[1].value_or(1);
  if (rows != d.valid_rows || columns != d.valid_columns) {
    return fault(V2, Role::source, shape(rows, columns), shape(d.valid_rows, d.valid_columns), p);
  }
  if (cube) {
    if (h.lb[2]) return fault(V2, Role::lb2, number(*h.lb[2]), phrase("omitted"), p);
  } else if (h.lb[2].value_or(*h.lb[0]) != d.columns) {
    return fault(V2, Role::lb2, number(h.lb[2].value_or(*h.lb[0])), number(d.columns), p);
  }
  if (!tile.contents_defined()) {
    return fault(V5, Role::source, phrase("undefined elements"), phrase("every valid element defined"), p);
  }
  return {};
}

/// V6.
Check check_encodings(const Tile& tile, int pe) {
  const Format& f = tile.format();
  if (f.low_zero_bits == 0 && f.value_bits == f.lane_bits) return {};  // every code is one
  for (const uint64 w : tile.valid_words()) {
    if (decode(f, w).cls == Class::invalid) {
      return fault(V6, Role::source, word(w), phrase("an encoding of the type"), pe);
    }
  }
  return {};
}

Completion run(const State& state, const Conversion& conversion) {
  const Header& h = state.header;
  const LocalBinding& binding = h.locals[0];
  const std::uint32_t capacity = size_code_bytes(binding.size_code);
  Completion out;
  for (unsigned pe = 0; pe < pe_count; ++pe) {
    if ((binding.mask & pe_bit(pe)) == 0) continue;
    const int p = static_cast<int>(pe);
    if (auto f = check_source(state, conversion, pe)) return failed(f);
    const Tile& tile = *state.pe[pe].local[binding.sources[0]];
    const TileDescriptor& d = tile.descriptor();
    if (auto f = check_encodings(tile, p)) return failed(f);
    AffineParameters parameters;
    if (conversion.affine && h.scalars) {
      parameters = {state.pe[pe].read(h.scalars->sources[0]), state.pe[pe].read(h.scalars->sources[1])};
    }
    if (conversion.affine) {
      const Format& integer = conversion.from->is_integer() ? *conversion.from : *conversion.to;
      const std::string_view reason = affine_fault(integer, parameters);
      if (!reason.empty()) return failed(fault(Q2, Role::scalars, word(parameters.multiplier), phrase(reason), p));
    }
    const NewTile room[] = {{binding.hand, capacity, Role::destination}};
    if (auto f = check_room(state, pe, room)) return failed(f);
    DescriptorResult r =
        is_cube(d.layout)
            ? describe_cube(d.layout, conversion.to->type, d.valid_rows, d.valid_columns, capacity)
            : describe_ordinary(d.layout, conversion.to->type, d.valid_rows, d.valid_columns, d.columns, capacity);
    const bool rows_differ = conversion.same_rows && !is_cube(d.layout) && r && r.descriptor.rows != d.rows;
    if (!r || rows_differ) {
      return failed(fault(V7, Role::destination, byte_count(capacity), shape(d.rows, d.columns), p));
    }
    r.descriptor.allocation_mask = binding.mask;
    Tile result(r.descriptor);
    for (std::uint32_t row = 0; row < d.valid_rows; ++row) {
      for (std::uint32_t c = 0; c < d.valid_columns; ++c) {
        const Encoded e = conversion.element(tile.element(row, c), parameters);
        result.store_element(row, c, e.bits);
        out.effects.flags |= e.flags;
      }
    }
    fill_padding(result, conversion.pad);
    out.effects.locals.push_back(
        {pe, binding.hand, Role::destination, std::make_shared<const Tile>(std::move(result))});
  }
  return out;
}

/// Q1: a B.DATR with a type, and nothing but that, RMode and (TQUANT) Sat.
Check check_affine_attributes(const Header& h, bool quantize) {
  const Finding legal = phrase(quantize ? "a B.DATR with S8 or U8" : "a B.DATR with FP32");
  if (!h.datr) return fault(Q1, Role::attributes, phrase("omitted"), legal);
  const DataAttributes& d = *h.datr;
  const bool type_ok = quantize ? d.type == DataType::s8 || d.type == DataType::u8 : d.type == DataType::fp32;
  if (!type_ok) return fault(Q1, Role::attributes, type(d.type), legal);
  if (d.layout != isa::TransferLayout::norm || d.pad != PadValue::zero || d.cmode != 0 || d.canonicalize) {
    return fault(Q1, Role::attributes, phrase("Layout, PadValue, CMode or Canonicalize"), number(0));
  }
  if (!quantize && d.saturate) return fault(Q1, Role::attributes, phrase("Sat 1"), phrase("Sat 0"));
  return {};
}

}  // namespace

Completion execute_tcvt(const State& state) {
  const Header& h = state.header;
  if (auto f = check_bindings(h, false)) return failed(f);
  if (auto f = check_dimensions(h)) return failed(f);
  const DataAttributes attributes = h.datr.value_or(DataAttributes{});
  if (attributes.layout != isa::TransferLayout::norm || attributes.cmode != 0) {
    return failed(fault(V4, Role::attributes, phrase("Layout or CMode"), number(0)));
  }
  Conversion c;
  c.from = tile_format(h.operation.type);
  c.to = attributes.type == DataType::none ? c.from : tile_format(attributes.type);
  if (c.from == nullptr || c.to == nullptr || !conversion_legal(*c.from, *c.to)) {
    const DataType wanted = attributes.type == DataType::none ? h.operation.type : attributes.type;
    return failed(fault(V3, Role::destination, type(wanted), phrase("a type that TCVT makes of the source")));
  }
  // Every rounding is legal: E6M2 and RCPE6M2, which take only two, are no Tile types.
  EncodeControl control;
  control.rounding = requested_rounding(h).value_or(default_rounding(c.from->is_integer(), *c.to));
  control.saturate = attributes.saturate;
  control.profile = state.options.conversion;
  c.cube_allowed = true;
  c.same_rows = true;
  c.pad = attributes.pad;
  // Canonicalize names the change of representation of a private matrix Tile in row-major order (numerics 7.7).
  c.check_source = [&](const TileDescriptor& d, int pe) -> Check {
    const bool wanted = d.layout == TileLayout::row_major && d.location == Location::matrix;
    if (attributes.canonicalize == wanted) return {};
    return fault(V4, Role::attributes, number(attributes.canonicalize ? 1 : 0), number(wanted ? 1 : 0), pe);
  };
  c.element = [&](uint64 w, const AffineParameters&) { return convert(*c.from, *c.to, w, control); };
  return run(state, c);
}

Completion execute_tquant(const State& state) {
  const Header& h = state.header;
  if (auto f = check_bindings(h, true)) return failed(f);
  if (auto f = check_affine_attributes(h, true)) return failed(f);
  if (auto f = check_dimensions(h)) return failed(f);
  if (h.operation.type != DataType::fp32) {
    return failed(fault(V3, Role::source, type(h.operation.type), type(DataType::fp32)));
  }
  Conversion c;
  c.from = &fp32;
  c.to = &format_of(h.datr->type);
  c.affine = true;
  const Rounding rounding = requested_rounding(h).value_or(Rounding::rne);
  c.element = [&](uint64 w, const AffineParameters& p) {
    return affine_quantize(*c.to, w, p, rounding, h.datr->saturate);
  };
  return run(state, c);
}

Completion execute_tdequant(const State& state) {
  const Header& h = state.header;
  if (auto f = check_bindings(h, true)) return failed(f);
  if (auto f = check_affine_attributes(h, false)) return failed(f);
  if (auto f = check_dimensions(h)) return failed(f);
  if (h.operation.type != DataType::s8 && h.operation.type != DataType::u8) {
    return failed(fault(V3, Role::source, type(h.operation.type), phrase("S8 or U8")));
  }
  Conversion c;
  c.from = &format_of(h.operation.type);
  c.to = &fp32;
  c.affine = true;
  const Rounding rounding = requested_rounding(h).value_or(Rounding::rne);
  c.element = [&](uint64 w, const AffineParameters& p) {
    return affine_dequantize(*c.from, w, p, rounding, *state.options.conversion);
  };
  return run(state, c);
}

}  // namespace bitcube::machine
