// TLOAD, TSTORE, TMOV, TCVT, TQUANT and TDEQUANT with their Tiles, registers and memory.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "bitcube/machine/transfer_orders.hpp"
#include "recipe.hpp"

namespace bitcube::stimulus {
namespace {

using isa::Field;
using isa::Form;
using isa::Instruction;
using isa::TransferLayout;
using machine::Role;
using machine::Tile;
using machine::TileLayout;

constexpr uint64 kMemory = 0x1'0000'0000;  // far from the words of a program
constexpr uint64 kMemoryOfPe = 0x10'0000;

bool is_fractal(TileLayout layout) noexcept {
  return layout == TileLayout::zn || layout == TileLayout::nz;
}

/// Words at the thresholds of a conversion, found once.
const std::vector<uint64>& words_around(const Format& from, const Format& to) {
  struct Entry {
    std::once_flag once;
    std::vector<uint64> words;
  };
  static std::array<std::array<Entry, 32>, 32> table;
  Entry& entry = table[static_cast<std::size_t>(from.type)][static_cast<std::size_t>(to.type)];
  std::call_once(entry.once, [&] {
    for (const uint64 word : verify::words_around(from, to)) {
      if (from.is_integer() || decode(from, word).cls != Class::invalid) {
        entry.words.push_back(word & low_mask(from.lane_bits));
      }
    }
  });
  return entry.words;
}

class TileMaker {
 public:
  TileMaker(const Recipe& recipe, const BundleOptions& options, Random& random)
      : random_(random), elements_(random, options.corners), options_(options) {
    d_.recipe = recipe;
  }

  Expected<Draft> transfer() {
    orders_ = machine::orders_of(head().layout);
    type_ = &format_of(head().a);
    switch (head().operation) {
      case isa::Operation::tload:
        load();
        break;
      case isa::Operation::tstore:
        store();
        break;
      default:
        move();
        break;
    }
    return finish();
  }

  Expected<Draft> conversion() {
    type_ = &format_of(head().a);
    convert();
    return finish();
  }

 private:
  const Head& head() const { return d_.recipe.head; }

  Expected<Draft> finish() {
    if (error_) return *error_;
    d_.code.push_back(stop(random_));
    return std::move(d_);
  }

  std::uint32_t extent(std::size_t axis, std::uint32_t limit) {
    if (d_.recipe.exact_dims[axis] != 0) return d_.recipe.exact_dims[axis];
    const std::uint32_t unit = dim_units[axis];
    const DimClass c = d_.recipe.dims[axis];
    if (c == DimClass::one) return 1;
    for (;;) {
      const auto value = static_cast<std::uint32_t>(1 + random_.below(std::min(limit, 2 * unit + 1)));
      if (dim_class(value, unit) == c || !dim_class_reachable(c, unit, limit)) return value;
    }
  }
  /// Rows and columns of a Tile that fits a register with elements of so many bits, twice its columns and whole
  /// fractals.
  void extents(TileLayout layout, unsigned bits) {
    d_.m = extent(0, std::min(options_.max_dim, layout == TileLayout::cube_m16 ? 16U : ~0U));
    d_.n = extent(1, options_.max_dim);
    const auto bytes = [&] {
      const uint64 rows = machine::round_up_to_power_of_two(std::max(d_.m, machine::fractal_rows));
      return rows * 2 * machine::round_up_to_power_of_two(d_.n) * bits / 8;
    };
    while (bytes() > machine::local_capacity_limit) (d_.n > d_.m ? d_.n : d_.m) /= 2;
  }
  void choose_mask() {
    static constexpr unsigned masks[] = {8, 4, 2, 1, 12, 14, 15};
    d_.mask = random_.chance(2) ? 8 : pick(random_, masks);
  }
  template <typename Body>
  void for_each_pe(const Body& body) const {
    for (unsigned pe = 0; pe < machine::pe_count; ++pe) {
      if ((d_.mask & machine::pe_bit(pe)) != 0) body(pe);
    }
  }

  /// Physical columns of an ordinary Tile.
  std::uint32_t physical_columns(const Format& f, bool fractal) {
    std::uint32_t columns = machine::round_up_to_power_of_two(d_.n);
    if (fractal) columns = std::max(columns, machine::fractal_columns(f.lane_bits));
    return random_.chance(4) ? 2 * columns : columns;
  }
  /// The SizeCode of a destination, sometimes larger than it must be.
  std::int32_t size_code(TileLayout layout, const Format& f, std::uint32_t columns, bool whole_fractals,
                         std::int32_t most) {
    const auto holds = [&](std::int32_t code) {
      const std::uint32_t bytes = machine::size_code_bytes(static_cast<unsigned>(code));
      const std::uint32_t limit = machine::shared_capacity_limit;
      const auto r = machine::is_cube(layout)
                         ? machine::describe_cube(layout, f.type, d_.m, d_.n, bytes, limit)
                         : machine::describe_ordinary(layout, f.type, d_.m, d_.n, columns, bytes, limit);
      return r && !(whole_fractals && r.descriptor.rows % machine::fractal_rows != 0);
    };
    std::int32_t found = 1;
    while (found <= most && !holds(found)) ++found;
    if (found > most) found = 0;
    if (found != 0 && random_.chance(most > 10 ? 2 : 8)) {  // Shared Tiles are rarer
      const auto larger = found + static_cast<std::int32_t>(random_.below(static_cast<uint64>(most - found) + 1));
      if (holds(larger)) found = larger;
    }
    if (found == 0) error_ = Error{fmt::format("no {} Tile of {} x {}", f.name, d_.m, d_.n)};
    return std::max(found, 1);
  }

  Expected<Tile> tile(TileLayout layout, const Format& f, std::span<const uint64> words, std::uint32_t columns,
                      std::int32_t code) {
    const std::uint32_t bytes = machine::size_code_bytes(static_cast<unsigned>(code));
    if (machine::is_cube(layout)) return machine::make_cube_tile(layout, f.type, d_.m, d_.n, words, bytes);
    return machine::make_ordinary_tile(layout, f.type, d_.m, d_.n, words, columns, bytes,
                                       machine::shared_capacity_limit);
  }
  void set_source(unsigned pe, unsigned name, Expected<Tile> made) {
    if (!made) {
      error_ = made.error();
      return;
    }
    made->descriptor().allocation_mask = static_cast<std::uint8_t>(d_.mask);
    d_.state.pe[pe].local[name] = machine::share(std::move(*made));
    d_.sources.push_back({Role::source, pe, name});
  }
  unsigned any_name() { return static_cast<unsigned>(random_.below(machine::local_tiles)); }

  Instruction iot(Form form, std::optional<unsigned> name, std::int32_t code) {
    Instruction i(form);
    i.set(Field::pe_mode, pe_mode_of(d_.mask)).set(Field::last, 1);
    if (name) i.set(Field::src_tile0, static_cast<int>(*name));
    if (code != 0) i.set(Field::size_code, code).set(Field::dst_tile, static_cast<int>(random_.below(4)));
    return i;
  }

  // ---- Memory

  /// Base and stride in registers, and the memory that a transfer of these physical extents touches.
  void address(TileLayout order, const machine::TileDescriptor& t, bool written) {
    const unsigned bits = type_->lane_bits;
    const uint64 unit = std::max(1U, bits / 8);
    const bool columns_first = order == TileLayout::column_major;
    const uint64 lines = columns_first ? d_.n : d_.m;
    const uint64 lanes = columns_first ? d_.m : d_.n;
    const uint64 line_bytes = (lanes * bits + 7) / 8;
    const uint64 gap = random_.chance(2) ? 0 : random_.below(8);
    const uint64 stride = (line_bytes + unit - 1) / unit * unit + gap * unit;
    const uint64 size = is_fractal(order) ? uint64{t.rows} * t.columns * bits / 8 : (lines - 1) * stride + line_bytes;
    const unsigned base_register = take_register(d_, random_);
    const unsigned stride_register = take_register(d_, random_);
    for_each_pe([&](unsigned pe) {
      const uint64 offset = random_.below(machine::Memory::page_bytes / unit) * unit;
      const uint64 base = kMemory + pe * kMemoryOfPe + offset;
      d_.state.pe[pe].gpr[base_register] = base;
      d_.state.pe[pe].gpr[stride_register] = stride;
      d_.memory.push_back({base, size, written});
      d_.state.memory.map(base, size);
      if (written) return;
      std::vector<std::uint8_t> bytes;
      bytes.reserve(size);
      const std::vector<uint64> words = elements_.matrix(*type_, (size * 8 + bits - 1) / bits);
      for (std::size_t i = 0; bytes.size() < size; ++i) {
        if (bits == 4) {
          const uint64 high = i + 1 < words.size() ? words[i + 1] : 0;
          bytes.push_back(static_cast<std::uint8_t>(words[i] | high << 4));
          ++i;
          continue;
        }
        for (unsigned shift = 0; shift < bits && bytes.size() < size; shift += 8) {
          bytes.push_back(static_cast<std::uint8_t>(words[i] >> shift));
        }
      }
      d_.state.memory.write(base, bytes);
    });
    d_.code.push_back(Instruction(Form::b_ior)
                          .set(Field::reg_src0, static_cast<int>(base_register))
                          .set(Field::reg_src1, static_cast<int>(stride_register)));
  }

  /// BSTART, dimensions and B.DATR of a transfer. `physical` 0: LB2 is omitted.
  void transfer_header(bool cube, bool dims_needed, std::uint32_t physical, bool pads, DataType start_type) {
    d_.code.push_back(Instruction(start_form(head().operation)).set(Field::data_type, static_cast<int>(start_type)));
    std::vector<Instruction> list;
    if (head().layout != TransferLayout::norm || random_.chance(2)) {
      Instruction datr(Form::b_datr);
      datr.set(Field::layout, static_cast<int>(head().layout));
      DataType type = DataType::none;
      if (!cube && random_.chance(4)) type = random_.chance(2) ? DataType::fp64 : head().a;
      if (head().operation == isa::Operation::tmov) type = DataType::none;
      datr.set(Field::data_type, static_cast<int>(type));
      if (pads) datr.set(Field::pad_value, static_cast<int>(random_.below(4)));
      list.push_back(datr);
    }
    const bool tmov = head().operation == isa::Operation::tmov;
    const bool tload = head().operation == isa::Operation::tload;
    // TLOAD needs LB0; an omitted LB1 is 1 there, and the Tile's elsewhere.
    if (dims_needed || tload || random_.chance(2)) list.push_back(dimension(d_, random_, 0, d_.n));
    const bool rows_omissible = tload ? d_.m == 1 && !cube : !dims_needed || tmov;
    if (!rows_omissible || random_.chance(2)) list.push_back(dimension(d_, random_, 1, d_.m));
    if (physical != 0) list.push_back(dimension(d_, random_, 2, physical));
    add_header(d_, random_, std::move(list));
  }

  void load() {
    const bool cube = machine::is_cube(orders_.to);
    const bool fractal = is_fractal(orders_.from) || is_fractal(orders_.to);
    const bool shared = d_.recipe.shared_transfer.value_or(!cube && random_.chance(4)) && !cube;
    extents(orders_.to, type_->lane_bits);
    choose_mask();
    if (shared) d_.mask = machine::pe_bit(static_cast<unsigned>(random_.below(machine::pe_count)));
    const std::uint32_t columns = cube ? 0 : physical_columns(*type_, fractal);
    const std::int32_t code = size_code(orders_.to, *type_, columns, fractal && !cube, shared ? 12 : 10);
    const bool physical_needed = !cube && (columns != d_.n || random_.chance(2));
    transfer_header(cube, cube, physical_needed ? columns : 0, cube, head().a);
    const std::uint32_t bytes = machine::size_code_bytes(static_cast<unsigned>(code));
    const auto t = cube ? machine::describe_cube(orders_.to, type_->type, d_.m, d_.n, bytes)
                        : machine::describe_ordinary(orders_.to, type_->type, d_.m, d_.n, columns, bytes,
                                                     machine::shared_capacity_limit);
    address(orders_.from, t.descriptor, false);
    if (shared) {
      d_.code.push_back(Instruction(Form::b_ios)
                            .set(Field::shared_tile, static_cast<int>(random_.below(machine::shared_tiles)))
                            .set(Field::size_code, code)
                            .set(Field::pe_mode, pe_mode_of(d_.mask)));
    } else {
      d_.code.push_back(iot(Form::b_iot_dst, {}, code));
    }
  }

  void store() {
    const bool cube = machine::is_cube(orders_.from);
    const bool fractal = is_fractal(orders_.from) || is_fractal(orders_.to);
    const bool shared = d_.recipe.shared_transfer.value_or(!cube && random_.chance(4)) && !cube;
    extents(orders_.from, type_->lane_bits);
    choose_mask();
    if (shared)
      d_.mask = random_.chance(2) ? machine::full_mask : machine::pe_bit(static_cast<unsigned>(random_.below(4)));
    const std::uint32_t columns = cube ? 0 : physical_columns(*type_, fractal);
    const std::int32_t code = size_code(orders_.from, *type_, columns, fractal && !cube, shared ? 12 : 10);
    transfer_header(cube, cube, !cube && random_.chance(2) ? columns : 0, cube, head().a);
    const auto made = [&] {
      return tile(orders_.from, *type_, elements_.matrix(*type_, std::size_t{d_.m} * d_.n), columns, code);
    };
    const std::uint32_t bytes = machine::size_code_bytes(static_cast<unsigned>(code));
    const auto t = cube ? machine::describe_cube(orders_.from, type_->type, d_.m, d_.n, bytes)
                        : machine::describe_ordinary(orders_.from, type_->type, d_.m, d_.n, columns, bytes,
                                                     machine::shared_capacity_limit);
    address(orders_.to, t.descriptor, true);
    if (shared) {
      const auto id = static_cast<unsigned>(random_.below(machine::shared_tiles));
      auto source = made();
      if (!source) {
        error_ = source.error();
        return;
      }
      source->descriptor().allocation_mask = machine::full_mask;
      machine::SharedRecord& record = d_.state.shared[id];
      record.tile = machine::share(std::move(*source));
      record.allocation_mask = record.initialized_mask = machine::full_mask;
      record.whole_parent_ready = record.published = true;
      d_.code.push_back(Instruction(Form::b_ios)
                            .set(Field::shared_tile, static_cast<int>(id))
                            .set(Field::pe_mode, pe_mode_of(d_.mask)));
      return;
    }
    const unsigned name = any_name();
    for_each_pe([&](unsigned pe) { set_source(pe, name, made()); });
    d_.code.push_back(iot(Form::b_iot_src0, name, 0));
  }

  void move() {
    TileLayout from = orders_.from;
    if (head().layout == TransferLayout::norm) {
      from = static_cast<TileLayout>(random_.below(7));
      if (type_->lane_bits == 64 && machine::is_cube(from)) from = TileLayout::row_major;
      orders_.to = from;
    }
    const bool m16 = from == TileLayout::cube_m16 || orders_.to == TileLayout::cube_m16;
    extents(m16 ? TileLayout::cube_m16 : from, type_->lane_bits);
    choose_mask();
    const bool cube = machine::is_cube(orders_.to);
    const bool source_cube = machine::is_cube(from);
    const std::uint32_t source_columns =
        source_cube ? 0 : physical_columns(*type_, is_fractal(from) || is_fractal(orders_.to));
    const std::int32_t source_code = size_code(from, *type_, source_columns, false, 9);
    const std::uint32_t kept = source_cube ? machine::round_up_to_power_of_two(d_.n) : source_columns;
    const std::uint32_t columns = cube                ? 0
                                  : random_.chance(2) ? kept
                                                      : physical_columns(*type_, is_fractal(orders_.to));
    const std::int32_t code = size_code(orders_.to, *type_, columns, false, 10);
    const bool physical_needed = !cube && (columns != kept || random_.chance(4));
    transfer_header(true, false, physical_needed ? columns : 0, true, random_.chance(4) ? DataType::none : head().a);
    const unsigned name = any_name();
    for_each_pe([&](unsigned pe) {
      set_source(pe, name,
                 tile(from, *type_, elements_.matrix(*type_, std::size_t{d_.m} * d_.n), source_columns, source_code));
    });
    d_.code.push_back(iot(Form::b_iot_src0_dst, name, code));
  }

  // ---- Conversions

  std::vector<uint64> conversion_words(const Format& to) {
    std::vector<uint64> words = elements_.matrix(*type_, std::size_t{d_.m} * d_.n);
    if (type_->is_integer() && to.is_integer()) return words;
    const std::vector<uint64>& near = words_around(*type_, to);
    for (uint64& word : words) {
      if (random_.below(100) < options_.corners) word = random_.pick(near);
    }
    return words;
  }

  void convert() {
    const Format& to = format_of(head().b);
    const bool tcvt = head().operation == isa::Operation::tcvt;
    TileLayout layout = TileLayout::row_major;
    if (tcvt && type_->lane_bits != 64 && to.lane_bits != 64) {
      static constexpr TileLayout layouts[] = {TileLayout::row_major, TileLayout::cube_m16, TileLayout::cube_m32};
      layout = pick(random_, layouts);
    }
    extents(layout, std::max(type_->lane_bits, to.lane_bits));
    choose_mask();
    const bool cube = machine::is_cube(layout);
    const std::uint32_t columns = cube ? 0 : physical_columns(*type_, false);
    // Half of the limit where the result has more bits, as often as that is so.
    const unsigned wider = std::max(1U, unsigned{to.lane_bits} / type_->lane_bits);
    const std::int32_t most = size_code_for(machine::local_capacity_limit / (tcvt && !cube ? wider : 1));
    std::int32_t source_code = size_code(layout, *type_, columns, false, most);
    std::int32_t code = 0;
    if (cube || !tcvt) {
      code = size_code(layout, to, columns, false, 10);
    } else {  // the same physical rows
      for (;; ++source_code) {
        const uint64 bytes = uint64{machine::size_code_bytes(static_cast<unsigned>(source_code))} * to.lane_bits;
        if (bytes % type_->lane_bits != 0 || bytes / type_->lane_bits < machine::cell_bytes) continue;
        code = size_code_for(static_cast<std::uint32_t>(bytes / type_->lane_bits));
        break;
      }
    }
    d_.code.push_back(Instruction(start_form(head().operation)).set(Field::data_type, static_cast<int>(head().a)));
    std::vector<Instruction> list;
    const Post& post = d_.recipe.post;
    const bool inherits = tcvt && head().a == head().b && random_.chance(2);
    Instruction datr(Form::b_datr);
    datr.set(Field::data_type, static_cast<int>(inherits ? DataType::none : head().b));
    datr.set(Field::rmode, post.rmode).set(Field::sat, post.saturate ? 1 : 0);
    if (tcvt) datr.set(Field::pad_value, static_cast<int>(random_.below(4)));
    if (!inherits || post.rmode != 0 || post.saturate || random_.chance(2)) list.push_back(datr);
    list.push_back(dimension(d_, random_, 0, d_.n));
    if (d_.m != 1 || random_.chance(2)) list.push_back(dimension(d_, random_, 1, d_.m));
    if (!cube && (columns != d_.n || random_.chance(2))) list.push_back(dimension(d_, random_, 2, columns));
    add_header(d_, random_, std::move(list));
    if (!tcvt && !random_.chance(8)) affine_parameters(type_->is_integer() ? *type_ : to);
    const unsigned name = any_name();
    for_each_pe(
        [&](unsigned pe) { set_source(pe, name, tile(layout, *type_, conversion_words(to), columns, source_code)); });
    d_.code.push_back(iot(Form::b_iot_src0_dst, name, code));
  }

  void affine_parameters(const Format& integer) {
    const unsigned multiplier = take_register(d_, random_);
    const unsigned zero_point = take_register(d_, random_);
    for_each_pe([&](unsigned pe) {
      uint64 word = 0x3E000000 + random_.below(0x02000000);
      if (random_.chance(4)) word = 1 + random_.below(0x7F7FFFFF);  // any positive finite one
      d_.state.pe[pe].gpr[multiplier] = word;
      const uint64 lane = random_.next() & low_mask(8);
      const bool is_signed = integer.kind == Kind::signed_integer;
      d_.state.pe[pe].gpr[zero_point] = is_signed ? static_cast<uint64>(sign_extend(lane, 8)) : lane;
    });
    d_.code.push_back(Instruction(Form::b_ior)
                          .set(Field::reg_src0, static_cast<int>(multiplier))
                          .set(Field::reg_src1, static_cast<int>(zero_point)));
  }

  Random& random_;
  Elements elements_;
  const BundleOptions& options_;
  Draft d_;
  machine::Orders orders_{};
  const Format* type_ = nullptr;
  std::optional<Error> error_;
};

}  // namespace

Expected<Draft> make_transfer(const Recipe& recipe, const BundleOptions& options, Random& random) {
  return TileMaker(recipe, options, random).transfer();
}

Expected<Draft> make_conversion(const Recipe& recipe, const BundleOptions& options, Random& random) {
  return TileMaker(recipe, options, random).conversion();
}

}  // namespace bitcube::stimulus
