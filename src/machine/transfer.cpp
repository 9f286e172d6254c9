// TLOAD, TSTORE and TMOV (architecture 7.2 to 7.4).
#include <bit>

#include "bitcube/machine/transfer_orders.hpp"
#include "effects.hpp"
#include "padding.hpp"

namespace bitcube::machine {

namespace {

using enum RuleId;
using isa::PadValue;
using isa::TransferLayout;

TransferLayout layout_code(const Header& h) noexcept {
  return h.datr ? h.datr->layout : TransferLayout::norm;
}
PadValue pad_of(const Header& h) noexcept {
  return h.datr ? h.datr->pad : PadValue::null;
}

/// T1, and who takes part.
Check check_last(const Header& h) {
  if (h.locals.empty() || h.locals.back().last) return {};
  return fault(T1, Role::command, phrase("no L in the last B.IOT"), phrase("L = 1"));
}

/// T4. `cube`: the transfer has a CUBE side, so the type must be DTYPE_NONE and padding may be asked for.
Check check_attributes(const Header& h, bool cube, bool pads) {
  if (!h.datr) return {};
  const DataAttributes& d = *h.datr;
  const bool neutral_type =
      d.type == DataType::none || (!cube && (d.type == DataType::fp64 || d.type == h.operation.type));
  if (!neutral_type) return fault(T4, Role::attributes, type(d.type), type(DataType::none));
  if (d.cmode != 0 || d.rmode != 0 || d.saturate || d.canonicalize) {
    return fault(T4, Role::attributes, phrase("CMode, RMode, Sat or Canonicalize"), number(0));
  }
  if (!pads && d.pad != PadValue::zero) return fault(T4, Role::attributes, phrase("a PadValue"), number(0));
  return {};
}

/// T8: base in RegSrc0, stride in RegSrc1.
Check check_address_scalars(const Header& h) {
  if (!h.scalars) return {};
  if (h.scalars->destination != 0) return fault(T8, Role::scalars, phrase("RegDst"), number(0));
  if (h.scalars->sources[2] != 0) return fault(T8, Role::scalars, phrase("RegSrc2"), number(0));
  return {};
}

/// T6: present dimensions are not 0.
Check check_nonzero(const Header& h) {
  constexpr Role roles[] = {Role::lb0, Role::lb1, Role::lb2};
  for (std::size_t i = 0; i < 3; ++i) {
    if (h.lb[i] && *h.lb[i] == 0) return fault(T6, roles[i], number(0), range(1, extent_limit));
  }
  return {};
}

/// Where the elements of one PE's transfer are in memory.
class Addresses {
 public:
  Addresses(const State& state, unsigned pe, TileLayout order, const TileDescriptor& tile, unsigned bits)
      : order_(order), rows_(tile.rows), columns_(tile.columns), bits_(bits) {
    const Header& h = state.header;
    if (h.scalars) {
      base_ = state.pe[pe].read(h.scalars->sources[0]);
      stride_ = state.pe[pe].read(h.scalars->sources[1]);
      return;
    }
    const std::uint32_t columns = is_cube(tile.layout) ? tile.valid_columns : tile.columns;
    const std::uint32_t line = order == TileLayout::column_major ? tile.rows : columns;
    stride_ = (std::uint64_t{line} * bits + 7) / 8;
  }

  struct Place {
    uint64 address;
    std::uint8_t nibble;
  };
  Place operator()(std::uint32_t row, std::uint32_t column) const noexcept {
    if (order_ == TileLayout::row_major) return line(row, column);
    if (order_ == TileLayout::column_major) return line(column, row);
    // A fractal image has no lines: the elements follow each other densely.
    return at(base_, ordinary_index(order_, bits_, rows_, columns_, row, column));
  }

  /// T11 and T12.
  Check check(const Memory& memory, Place place, unsigned pe) const {
    const uint64 size = bits_ < 8 ? 1 : bits_ / 8;
    if (place.address % size != 0) {
      return fault(T11, Role::memory, word(place.address), byte_count(size), static_cast<int>(pe));
    }
    if (!memory.mapped(place.address)) {
      return fault(T12, Role::memory, word(place.address), phrase("a mapped page"), static_cast<int>(pe));
    }
    return {};
  }
  unsigned bits() const noexcept { return bits_; }

 private:
  Place line(std::uint32_t number, std::uint32_t lane) const noexcept { return at(base_ + number * stride_, lane); }
  Place at(uint64 from, std::size_t lane) const noexcept {
    return {from + lane * bits_ / 8, static_cast<std::uint8_t>(bits_ == 4 ? lane % 2 : 0)};
  }

  TileLayout order_;
  std::uint32_t rows_;
  std::uint32_t columns_;
  unsigned bits_;
  uint64 base_ = 0;
  uint64 stride_ = 0;
};

uint64 load_element(const Memory& memory, Addresses::Place place, unsigned bits) noexcept {
  if (bits == 4) return (uint64{memory.byte(place.address)} >> (4U * place.nibble)) & 0xF;
  return memory.load(place.address, bits / 8);
}

/// Calls f(row, column) over the region until it returns a fault.
template <typename F>
Check for_each_element(std::uint32_t rows, std::uint32_t columns, const F& f) {
  for (std::uint32_t r = 0; r < rows; ++r) {
    for (std::uint32_t c = 0; c < columns; ++c) {
      if (Check fault = f(r, c)) return fault;
    }
  }
  return {};
}

Completion failed(const Check& fault) {
  Completion out;
  out.fault = fault;
  return out;
}

/// The descriptor of a transfer's destination.
DescriptorResult describe(TileLayout layout, DataType type, std::uint32_t rows, std::uint32_t columns,
                          std::uint32_t physical_columns, std::uint32_t capacity, std::uint32_t limit) {
  if (is_cube(layout)) return describe_cube(layout, type, rows, columns, capacity, limit);
  return describe_ordinary(layout, type, rows, columns, physical_columns, capacity, limit);
}

}  // namespace

Completion execute_tload(const State& state) {
  const Header& h = state.header;
  const bool shared = h.locals.empty();
  // Bindings.
  if (auto f = check_last(h)) return failed(f);
  const bool local_form = h.locals.size() == 1 && h.shared.empty() && h.locals[0].source_count == 0;
  const bool shared_form = shared && h.shared.size() == 1 && h.shared[0].size_code != 0;
  if (!local_form && !shared_form) {
    return failed(fault(T2, Role::destinations, number(h.locals.size() + h.shared.size()),
                        phrase("one destination and no source")));
  }
  const unsigned pes = shared ? h.shared[0].mask : h.locals[0].mask;
  if (shared && std::popcount(pes) != 1) {
    return failed(fault(T3, Role::mask, mask(pes), phrase("one issuing PE")));
  }
  // Attributes, layout, dimensions, type.
  const Orders orders = orders_of(layout_code(h));
  const bool cube = is_cube(orders.to);
  if (is_cube(orders.from)) return failed(fault(T5, Role::attributes, layout(orders.from), phrase("a load code")));
  if (cube && shared) return failed(fault(T5, Role::attributes, layout(orders.to), phrase("an ordinary layout")));
  if (auto f = check_attributes(h, cube, cube)) return failed(f);
  if (auto f = check_nonzero(h)) return failed(f);
  if (!h.lb[0]) return failed(fault(T6, Role::lb0, phrase("omitted"), range(1, extent_limit)));
  if (cube && !h.lb[1]) return failed(fault(T6, Role::lb1, phrase("omitted"), range(1, extent_limit)));
  if (cube && h.lb[2]) return failed(fault(T6, Role::lb2, number(*h.lb[2]), phrase("omitted")));
  const std::uint32_t columns = *h.lb[0];
  const std::uint32_t rows = h.lb[1].value_or(1);
  const std::uint32_t physical = h.lb[2].value_or(*h.lb[0]);
  if (!cube && (!is_power_of_two(physical) || physical < columns)) {
    return failed(fault(T6, Role::lb2, number(physical), phrase("a power of two, at least ValidCol")));
  }
  const Format* format = tile_format(h.operation.type);
  if (format == nullptr || (cube && format->lane_bits == 64)) {
    return failed(fault(T7, Role::destination, type(h.operation.type), phrase("a type of the layout")));
  }
  if (auto f = check_address_scalars(h)) return failed(f);
  // Destination.
  const unsigned code = shared ? h.shared[0].size_code : h.locals[0].size_code;
  const std::uint32_t capacity = size_code_bytes(code);
  if (shared) {
    const SharedRecord& old = state.shared[h.shared[0].id];
    const std::uint64_t live = state.shared_pool() - (old.tile ? old.tile->descriptor().capacity_bytes : 0);
    if (live + capacity > pool_bytes) {
      return failed(
          fault(G2, Role::destination, byte_count(capacity), range(0, live < pool_bytes ? pool_bytes - live : 0)));
    }
  }
  DescriptorResult d = describe(orders.to, h.operation.type, rows, columns, physical, capacity,
                                shared ? shared_capacity_limit : local_capacity_limit);
  Completion out;
  for (unsigned pe = 0; pe < pe_count; ++pe) {
    if ((pes & pe_bit(pe)) == 0) continue;
    if (!shared) {
      const NewTile room[] = {{h.locals[0].hand, capacity, Role::destination}};
      if (auto f = check_room(state, pe, room)) return failed(f);
    }
    if (!d) {
      return failed(fault(T13, Role::destination, byte_count(capacity), shape(rows, columns), static_cast<int>(pe)));
    }
    d.descriptor.allocation_mask = static_cast<std::uint8_t>(pes);
    const Addresses addresses(state, pe, orders.from, d.descriptor, format->lane_bits);
    Tile tile(d.descriptor);
    if (auto f = for_each_element(rows, columns, [&](std::uint32_t r, std::uint32_t c) -> Check {
          const auto place = addresses(r, c);
          if (auto bad = addresses.check(state.memory, place, pe)) return bad;
          tile.store_element(r, c, load_element(state.memory, place, addresses.bits()));
          return {};
        })) {
      return failed(f);
    }
    fill_padding(tile, pad_of(h));
    TileRef done = std::make_shared<const Tile>(std::move(tile));
    if (shared) {
      out.effects.shared = Effects::Shared{h.shared[0].id, pes, std::move(done)};
    } else {
      out.effects.locals.push_back({pe, h.locals[0].hand, Role::destination, std::move(done)});
    }
  }
  return out;
}

Completion execute_tstore(const State& state) {
  const Header& h = state.header;
  const bool shared = h.locals.empty();
  if (auto f = check_last(h)) return failed(f);
  const bool local_form =
      h.locals.size() == 1 && h.shared.empty() && h.locals[0].source_count == 1 && !h.locals[0].has_destination();
  const bool shared_form = shared && h.shared.size() == 1 && h.shared[0].size_code == 0;
  if (!local_form && !shared_form) {
    return failed(
        fault(T2, Role::sources, number(h.locals.size() + h.shared.size()), phrase("one source and no destination")));
  }
  const unsigned pes = shared ? h.shared[0].mask : h.locals[0].mask;
  if (shared && std::popcount(pes) != 1 && pes != full_mask) {
    return failed(fault(T3, Role::mask, mask(pes), phrase("one issuing PE, or 1111")));
  }
  const Orders orders = orders_of(layout_code(h));
  const bool cube = is_cube(orders.from);
  if (is_cube(orders.to)) return failed(fault(T5, Role::attributes, layout(orders.to), phrase("a store code")));
  if (cube && shared) return failed(fault(T5, Role::attributes, layout(orders.from), phrase("an ordinary layout")));
  if (auto f = check_attributes(h, cube, cube)) return failed(f);
  if (auto f = check_nonzero(h)) return failed(f);
  if (cube && !h.lb[0]) return failed(fault(T6, Role::lb0, phrase("omitted"), phrase("the valid columns")));
  if (cube && !h.lb[1]) return failed(fault(T6, Role::lb1, phrase("omitted"), phrase("the valid rows")));
  if (cube && h.lb[2]) return failed(fault(T6, Role::lb2, number(*h.lb[2]), phrase("omitted")));
  if (auto f = check_address_scalars(h)) return failed(f);

  Completion out;
  for (unsigned pe = 0; pe < pe_count; ++pe) {
    if ((pes & pe_bit(pe)) == 0) continue;
    const int p = static_cast<int>(pe);
    // Source.
    const TileRef& ref = shared ? state.shared[h.shared[0].id].tile : state.pe[pe].local[h.locals[0].sources[0]];
    if (ref == nullptr) {
      return failed(fault(T9, Role::source, shared ? shared_name(h.shared[0].id) : tile_name(h.locals[0].sources[0]),
                          phrase("a live Tile"), p));
    }
    const Tile& tile = *ref;
    const TileDescriptor& d = tile.descriptor();
    if (!shared && (d.allocation_mask & pes) != pes) {
      return failed(fault(T9, Role::source, mask(d.allocation_mask), mask(pes), p));
    }
    const std::uint32_t limit = shared ? shared_capacity_limit : local_capacity_limit;
    if (check_descriptor(d, limit) != DescriptorFault::none) {
      return failed(fault(T9, Role::source, phrase("an inconsistent descriptor"), phrase("a legal descriptor"), p));
    }
    if (d.type != h.operation.type) return failed(fault(T7, Role::source, type(d.type), type(h.operation.type), p));
    if (d.layout != orders.from) return failed(fault(T5, Role::source, layout(d.layout), layout(orders.from), p));
    const std::uint32_t columns = h.lb[0].value_or(static_cast<std::uint16_t>(d.valid_columns));
    const std::uint32_t rows = h.lb[1].value_or(static_cast<std::uint16_t>(d.valid_rows));
    const bool fits =
        cube ? rows == d.valid_rows && columns == d.valid_columns : rows <= d.valid_rows && columns <= d.valid_columns;
    if (!fits) return failed(fault(T6, Role::source, shape(rows, columns), shape(d.valid_rows, d.valid_columns), p));
    if (h.lb[2] && *h.lb[2] != d.columns) return failed(fault(T6, Role::lb2, number(*h.lb[2]), number(d.columns), p));
    // A Shared Tile may be stored undefined; its undefined bits read as they are kept.
    if (!shared && !tile.contents_defined()) {
      return failed(fault(T10, Role::source, phrase("undefined elements"), phrase("every valid element defined"), p));
    }
    const Addresses addresses(state, pe, orders.to, d, tile.format().lane_bits);
    if (auto f = for_each_element(rows, columns, [&](std::uint32_t r, std::uint32_t c) -> Check {
          const auto place = addresses(r, c);
          if (auto bad = addresses.check(state.memory, place, pe)) return bad;
          out.effects.stores.push_back(
              {place.address, static_cast<std::uint8_t>(addresses.bits()), place.nibble, tile.element(r, c)});
          return {};
        })) {
      return failed(f);
    }
  }
  return out;
}

Completion execute_tmov(const State& state) {
  const Header& h = state.header;
  if (auto f = check_last(h)) return failed(f);
  if (h.locals.size() != 1 || !h.shared.empty() || h.locals[0].source_count != 1 || !h.locals[0].has_destination()) {
    return failed(fault(T2, Role::sources, number(h.locals.size() + h.shared.size()),
                        phrase("one Local source and one Local destination")));
  }
  if (h.scalars) return failed(fault(T8, Role::scalars, phrase("a B.IOR"), phrase("none")));
  if (auto f = check_attributes(h, true, true)) return failed(f);
  if (auto f = check_nonzero(h)) return failed(f);
  const LocalBinding& binding = h.locals[0];
  const std::uint32_t capacity = size_code_bytes(binding.size_code);
  const TransferLayout code = layout_code(h);
  Completion out;
  for (unsigned pe = 0; pe < pe_count; ++pe) {
    if ((binding.mask & pe_bit(pe)) == 0) continue;
    const int p = static_cast<int>(pe);
    if (auto f = check_live(state, pe, binding.sources[0], Role::source, T9)) return failed(f);
    const Tile& tile = *state.pe[pe].local[binding.sources[0]];
    const TileDescriptor& d = tile.descriptor();
    if (check_descriptor(d, local_capacity_limit) != DescriptorFault::none) {
      return failed(fault(T9, Role::source, phrase("an inconsistent descriptor"), phrase("a legal descriptor"), p));
    }
    if (h.operation.type != DataType::none && h.operation.type != d.type) {
      return failed(fault(T7, Role::source, type(d.type), type(h.operation.type), p));
    }
    const TileLayout to = code == TransferLayout::norm ? d.layout : orders_of(code).to;
    if (code != TransferLayout::norm && d.layout != orders_of(code).from) {
      return failed(fault(T5, Role::source, layout(d.layout), layout(orders_of(code).from), p));
    }
    if ((h.lb[0] && *h.lb[0] != d.valid_columns) || (h.lb[1] && *h.lb[1] != d.valid_rows)) {
      return failed(fault(T6, Role::source, shape(h.lb[1].value_or(1), h.lb[0].value_or(1)),
                          shape(d.valid_rows, d.valid_columns), p));
    }
    if (is_cube(to) && tile.format().lane_bits == 64) {
      return failed(fault(T7, Role::source, type(d.type), phrase("a type of the layout"), p));
    }
    if (!tile.contents_defined()) {
      return failed(fault(T10, Role::source, phrase("undefined elements"), phrase("every valid element defined"), p));
    }
    const NewTile room[] = {{binding.hand, capacity, Role::destination}};
    if (auto f = check_room(state, pe, room)) return failed(f);
    const std::uint32_t kept = is_cube(d.layout) ? round_up_to_power_of_two(d.valid_columns) : d.columns;
    const std::uint32_t physical = h.lb[2] ? *h.lb[2] : kept;
    DescriptorResult r = describe(to, d.type, d.valid_rows, d.valid_columns, physical, capacity, local_capacity_limit);
    if (!r) {
      return failed(fault(T13, Role::destination, byte_count(capacity), shape(d.valid_rows, d.valid_columns), p));
    }
    r.descriptor.allocation_mask = binding.mask;
    r.descriptor.location = d.location == Location::matrix && !is_cube(d.layout) ? d.location : r.descriptor.location;
    Tile copy(r.descriptor);
    for (std::uint32_t row = 0; row < d.valid_rows; ++row) {
      for (std::uint32_t c = 0; c < d.valid_columns; ++c) copy.store_element(row, c, tile.element(row, c));
    }
    fill_padding(copy, pad_of(h));
    out.effects.locals.push_back({pe, binding.hand, Role::destination, std::make_shared<const Tile>(std::move(copy))});
  }
  return out;
}

}  // namespace bitcube::machine
