// TMATMUL and TGEMV with everything that they read: operands, scales, bias, C, parameters.
#include <fmt/format.h>

#include <algorithm>

#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/machine/product_types.hpp"
#include "recipe.hpp"

namespace bitcube::stimulus {

DataType accumulator_of(const Head& head) noexcept {
  if (!isa::is_cube(head.operation)) return DataType::none;
  return isa::is_mx(head.operation) ? DataType::fp32 : machine::ordinary_accumulator(head.a);
}

namespace {

using isa::Field;
using isa::Form;
using isa::Instruction;
using machine::Role;
using machine::Tile;
using machine::TileLayout;

/// A logical matrix: words row by row.
struct Matrix {
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::vector<uint64> words{};

  Matrix transposed() const {
    Matrix out{cols, rows, std::vector<uint64>(words.size())};
    for (std::uint32_t r = 0; r < rows; ++r) {
      for (std::uint32_t c = 0; c < cols; ++c) out.words[std::size_t{c} * rows + r] = words[std::size_t{r} * cols + c];
    }
    return out;
  }
};

/// One side of the product.
struct Side {
  const Format* format = nullptr;
  bool scaled = false;
  std::uint32_t group = 32;
  const Format* scale = nullptr;
};

class CubeMaker {
 public:
  CubeMaker(const Recipe& recipe, const BundleOptions& options, Random& random)
      : random_(random), elements_(random, options.corners), max_dim_(options.max_dim) {
    d_.recipe = recipe;
  }

  Expected<Draft> make() {
    choose();
    header();
    shared_operands();
    if (auto bound = locals(); !bound) return bound.error();
    d_.code.push_back(stop(random_));
    return std::move(d_);
  }

 private:
  const Recipe& recipe() const { return d_.recipe; }
  isa::Operation operation() const { return d_.recipe.head.operation; }
  bool is_local() const { return d_.recipe.sharing == Sharing::local; }
  bool all_shared() const { return d_.recipe.sharing == Sharing::all; }
  const PreQuantMode& mode() const { return *d_.recipe.post.mode; }
  bool vector_quant() const { return mode().carrier != CarrierKind::none && mode().per_column; }
  bool scalar_quant() const { return mode().carrier != CarrierKind::none && !mode().per_column; }

  std::uint32_t rows_per_pe() const { return d_.m <= 64 ? 16 : 32; }
  /// Rows of a PE (architecture 5); 0 also where it does not take part.
  std::uint32_t rows(unsigned pe) const {
    if ((d_.mask & machine::pe_bit(pe)) == 0) return 0;
    if (is_local()) return d_.m;
    const std::uint32_t first = pe * rows_per_pe();
    return d_.m <= first ? 0 : std::min(d_.m - first, rows_per_pe());
  }

  std::uint32_t extent(std::size_t axis, std::uint32_t limit) {
    if (recipe().exact_dims[axis] != 0) return recipe().exact_dims[axis];
    const std::uint32_t unit = dim_units[axis];
    DimClass c = recipe().dims[axis];
    if (!dim_class_reachable(c, unit, limit)) c = DimClass::one;
    // Small ones mostly: a bundle is for its corners, not for its size.
    const std::uint32_t far = std::max(1U, limit / unit);
    const auto steps = static_cast<std::uint32_t>(1 + random_.below(random_.chance(8) ? far : std::min(far, 2U)));
    switch (c) {
      case DimClass::one:
        return 1;
      case DimClass::aligned:
        return std::min(steps, limit / unit) * unit;
      case DimClass::below:
        return std::min(steps, (limit + 1) / unit) * unit - 1;
      case DimClass::above:
        return std::min(steps, (limit - 1) / unit) * unit + 1;
      case DimClass::other:
        break;
    }
    for (;;) {
      const auto value = static_cast<std::uint32_t>(2 + random_.below(std::min(limit, steps * unit) - 1));
      if (limit < 4 || dim_class(value, unit) == DimClass::other) return value;
    }
  }

  /// At most so many bytes does the Tile of a matrix take.
  static uint64 capacity(const Format& f, uint64 rows, uint64 columns) {
    const uint64 bytes = rows * columns * f.lane_bits / 8;
    return machine::round_up_to_power_of_two(static_cast<std::uint32_t>(std::max<uint64>(bytes, machine::cell_bytes)));
  }
  static constexpr uint64 whole_32(uint64 n) { return (n + 31) / 32 * 32; }
  /// Bytes of the operands of a PE, or of the Shared bank.
  uint64 operand_bytes() const {
    const uint64 m = all_shared() ? d_.m : 32;
    const uint64 n = whole_32(d_.n);
    const uint64 k = whole_32(d_.k);
    return capacity(*a_.format, m, k) + capacity(*b_.format, k, n) + capacity(format_of(DataType::u32), m + n, k / 32);
  }
  bool fits() const {
    const uint64 n = whole_32(d_.n);
    const uint64 k = whole_32(d_.k);
    const uint64 d = capacity(*accumulator_, 32, n);
    const uint64 largest = is_local() ? machine::local_capacity_limit : machine::pool_bytes / 2;
    return capacity(*a_.format, all_shared() ? d_.m : 32, k) <= largest && capacity(*b_.format, k, n) <= largest &&
           d <= machine::local_capacity_limit && operand_bytes() + 2 * d + 64 * n <= machine::pool_bytes;
  }

  void choose() {
    const Head& head = recipe().head;
    const bool mx = isa::is_mx(operation());
    for (const auto& [side, type] : {std::pair{&a_, head.a}, std::pair{&b_, head.b}}) {
      side->format = &format_of(type);
      side->scaled = mx && machine::is_scaled_mx_side(type);
      side->group = machine::mx_group(type);
      side->scale = &format_of(machine::mx_scale_type(type));
    }
    accumulator_ = &format_of(accumulator_of(head));
    if (isa::is_gemv(operation())) d_.recipe.sharing = Sharing::local;
    d_.m = isa::is_gemv(operation()) ? 1 : extent(0, std::min(max_dim_, is_local() ? 32U : 128U));
    d_.n = extent(1, max_dim_);
    d_.k = extent(2, max_dim_);
    while (!fits() && (d_.n > 1 || d_.k > 1)) (d_.n > d_.k ? d_.n : d_.k) /= 2;
    static constexpr unsigned masks[] = {8, 4, 2, 1, 12, 14, 15};
    d_.mask = !is_local() ? machine::full_mask : random_.chance(3) ? 8 : pick(random_, masks);

    const Recipe& r = recipe();
    p_.prequant = mode().code;
    p_.relu = r.post.relu;
    p_.row_max_init = r.row_max_init.value_or(random_.chance(8));
    p_.row_max = p_.row_max_init || random_.chance(6);
    p_.group_max = r.group_max.value_or(random_.chance(4));
    if (p_.group_max) p_.group_n_code = static_cast<std::uint8_t>(r.group_max ? 1 : 1 + random_.below(9));
    p_.max_abs = (p_.row_max || p_.group_max) && random_.chance(2);
    const bool takes_c_scale =
        isa::accumulates(operation()) && !isa::is_gemv(operation()) && accumulator_->type == DataType::fp32;
    p_.c_scale = r.c_scale.value_or(takes_c_scale && random_.chance(2));
    p_.trans_a = all_shared() && random_.chance(2);
    p_.trans_b = !is_local() && random_.chance(2);
  }

  Matrix matrix(const Format& f, std::uint32_t rows, std::uint32_t cols) {
    return {rows, cols, elements_.matrix(f, std::size_t{rows} * cols)};
  }
  /// Scales near 1 mostly, so that the codes decide.
  Matrix scales(const Side& side, std::uint32_t lines) {
    Matrix out{lines, machine::divide_up(d_.k, side.group), {}};
    const bool corners = random_.chance(12);
    for (std::size_t i = 0; i < std::size_t{out.rows} * out.cols; ++i) {
      uint64 word = 0;
      if (side.scale->type == DataType::e8m0) {
        word = corners ? elements_.corner(*side.scale) : 120 + random_.below(15);
      } else {  // levels above an E6M2
        word = random_.next() & 0xFFFFFF00;
        word |= corners ? random_.below(256) : 0xA0 + random_.below(0x40);
      }
      out.words.push_back(word);
    }
    return out;
  }
  uint64 quant_carrier() {
    if (mode().carrier == CarrierKind::shift) return pack_shift_carrier(static_cast<int>(1 + random_.below(16)));
    // From the smallest to the largest legal scale, but mostly near 1.
    const uint64 exponent = random_.chance(8) ? 1 + random_.below(254) : 110 + random_.below(30);
    const uint64 fraction = random_.below(1024);
    const auto offset = static_cast<int64>(random_.next());
    return pack_scale_carrier(exponent << 10 | fraction, mode().offset_bits == 0 ? 0 : offset, mode().offset_bits);
  }
  uint64 activation_carrier() {
    if (random_.chance(4)) return 0;
    const uint64 exponent = random_.chance(8) ? 1 + random_.below(254) : 110 + random_.below(30);
    return exponent << 10 | random_.below(1024);
  }

  void header() {
    const Post& post = recipe().post;
    d_.code.push_back(Instruction(start_form(operation())).set(Field::data_type, static_cast<int>(recipe().head.a)));
    std::vector<Instruction> list;
    const bool inherits = recipe().head.a == recipe().head.b && random_.chance(2);
    if (recipe().head.a != recipe().head.b || post.rmode != 0 || post.saturate || random_.chance(4)) {
      const DataType type = inherits ? DataType::none : recipe().head.b;
      list.push_back(Instruction(Form::b_datr)
                         .set(Field::data_type, static_cast<int>(type))
                         .set(Field::rmode, post.rmode)
                         .set(Field::sat, post.saturate ? 1 : 0));
    }
    const std::uint32_t dims[] = {d_.m, d_.n, d_.k};
    for (int i = 0; i < 3; ++i) {
      if (dims[i] == 1 && random_.chance(2)) continue;
      list.push_back(dimension(d_, random_, i, dims[i]));
    }
    list.push_back(Instruction(Form::b_fpatr)
                       .set(Field::pre_quant_mode, p_.prequant)
                       .set(Field::relu_mode, p_.relu)
                       .set(Field::group_n_code, p_.group_n_code)
                       .set(Field::row_max_en, p_.row_max)
                       .set(Field::group_max_en, p_.group_max)
                       .set(Field::row_max_init, p_.row_max_init)
                       .set(Field::max_abs_en, p_.max_abs)
                       .set(Field::cscale_en, p_.c_scale)
                       .set(Field::trans_a, p_.trans_a)
                       .set(Field::trans_b, p_.trans_b));
    add_header(d_, random_, std::move(list));
    scalars();
  }

  void scalars() {
    const bool alpha = p_.relu == 2;
    if (!scalar_quant() && !alpha) {
      if (random_.chance(16)) d_.code.push_back(Instruction(Form::b_ior));  // all zero selectors change nothing
      return;
    }
    Instruction ior(Form::b_ior);
    const unsigned first = take_register(d_, random_);
    const unsigned second = scalar_quant() && alpha ? take_register(d_, random_) : 0;
    ior.set(Field::reg_src0, static_cast<int>(first)).set(Field::reg_src1, static_cast<int>(second));
    for (unsigned pe = 0; pe < machine::pe_count; ++pe) {
      if (rows(pe) == 0) continue;
      auto& gpr = d_.state.pe[pe].gpr;
      gpr[first] = scalar_quant() ? quant_carrier() : activation_carrier();
      if (second != 0) gpr[second] = activation_carrier();
    }
    d_.code.push_back(ior);
  }

  void shared_operands() {
    if (is_local()) return;
    auto id = static_cast<unsigned>(random_.below(machine::shared_tiles));
    const auto publish = [&](const Format& f, const Matrix& logical, bool transposed) {
      const Matrix stored = transposed ? logical.transposed() : logical;
      const std::uint32_t physical = machine::round_up_to_power_of_two(stored.cols)
                                     << (random_.chance(4) && stored.cols < 256 ? 1 : 0);
      auto tile = machine::make_ordinary_tile(TileLayout::row_major, f.type, stored.rows, stored.cols, stored.words,
                                              physical, 0, machine::shared_capacity_limit);
      if (!tile) {
        error_ = tile.error();
        return;
      }
      tile->descriptor().allocation_mask = machine::full_mask;
      machine::SharedRecord& record = d_.state.shared[id];
      record.tile = machine::share(std::move(*tile));
      record.allocation_mask = record.initialized_mask = machine::full_mask;
      record.whole_parent_ready = record.published = true;
      d_.code.push_back(Instruction(Form::b_ios).set(Field::shared_tile, static_cast<int>(id)).set(Field::pe_mode, 7));
      id = (id + 1 + static_cast<unsigned>(random_.below(8))) % machine::shared_tiles;
    };
    if (all_shared()) {
      publish(*a_.format, matrix(*a_.format, d_.m, d_.k), p_.trans_a);
      if (a_.scaled) publish(*a_.scale, scales(a_, d_.m), p_.trans_a);
    }
    publish(*b_.format, matrix(*b_.format, d_.k, d_.n), p_.trans_b);
    // The scales of B are stored G x N; ours are N x G.
    if (b_.scaled) publish(*b_.scale, scales(b_, d_.n), !p_.trans_b);
  }

  /// A name for the next source, and a Tile of it in every PE that has rows.
  template <typename MakeTile>
  void source(Role role, const MakeTile& make, std::optional<unsigned> name_wanted = {}) {
    const unsigned name = name_wanted.value_or(free_name(role != Role::c && role != Role::c_scale));
    taken_ |= uint64{1} << name;
    names_.push_back(static_cast<int>(name));
    for (unsigned pe = 0; pe < machine::pe_count; ++pe) {
      if (rows(pe) == 0) continue;
      Expected<Tile> tile = make(rows(pe));
      if (!tile) {
        error_ = tile.error();
        return;
      }
      tile->descriptor().allocation_mask = static_cast<std::uint8_t>(machine::pe_bit(pe));
      d_.state.pe[pe].local[name] = machine::share(std::move(*tile));
      d_.sources.push_back({role, pe, name});
    }
  }
  /// F8 and F9 compare the names of C and CScale with numbers of hands.
  unsigned free_name(bool may_be_hand) {
    for (;;) {
      const auto name = static_cast<unsigned>(random_.below(machine::local_tiles));
      if ((taken_ >> name & 1) == 0 && (may_be_hand || name >= machine::hand_count)) return name;
    }
  }

  Expected<void> locals() {
    struct Destination {
      unsigned hand;
      std::int32_t code;
    };
    std::vector<Destination> destinations;
    const auto hand = [&] { return static_cast<unsigned>(random_.below(machine::hand_count)); };
    /// Sometimes larger than it must be, where the pool has room for all of them.
    const bool small = operand_bytes() <= 16'384;
    const auto roomy = [&](std::uint32_t bytes) {
      const std::int32_t code = size_code_for(bytes);
      if (!small || bytes > 4096 || !random_.chance(8)) return code;
      return code + static_cast<std::int32_t>(random_.below(static_cast<uint64>(destinations.empty() ? 11 - code : 2)));
    };

    const bool wide = random_.chance(3);  // CUBE_M32 where CUBE_M16 would do
    const auto m_layout = [&](std::uint32_t m) { return m > 16 || wide ? TileLayout::cube_m32 : TileLayout::cube_m16; };
    const auto m_tile = [&](const Format& f, const Matrix& v, std::uint32_t capacity = 0) {
      return machine::make_cube_tile(m_layout(v.rows), f.type, v.rows, v.cols, v.words, capacity);
    };
    const auto in_m32 = [](const Format& f, const Matrix& v) {
      return machine::make_cube_tile(TileLayout::cube_m32, f.type, v.rows, v.cols, v.words);
    };
    const auto plain = [](const Format& f, const Matrix& v) {
      return machine::make_ordinary_tile(TileLayout::row_major, f.type, v.rows, v.cols, v.words);
    };

    // The TSize of D serves every PE, and in mode 0 C has the same capacity.
    const Format& d_format = destination_format(mode(), *accumulator_);
    std::uint32_t d_bytes = machine::cell_bytes;
    for (unsigned pe = 0; pe < machine::pe_count; ++pe) {
      for (const TileLayout layout : {TileLayout::cube_m16, TileLayout::cube_m32}) {
        if (rows(pe) == 0 || (layout == TileLayout::cube_m16 && (rows(pe) > 16 || wide))) continue;
        const auto g = machine::cube_geometry(layout, d_format.lane_bits, rows(pe), d_.n);
        if (g) d_bytes = std::max(d_bytes, g->storage_bytes);
      }
    }
    destinations.push_back({hand(), roomy(d_bytes)});
    const unsigned d_hand = destinations[0].hand;
    if (p_.row_max) destinations.push_back({hand(), roomy(machine::cell_bytes)});
    if (p_.group_max) {
      const std::uint32_t groups = machine::divide_up(d_.n, group_n_values[p_.group_n_code - 1U]);
      std::uint32_t most = 0;
      for (unsigned pe = 0; pe < machine::pe_count; ++pe) most = std::max(most, rows(pe));
      destinations.push_back({hand(), roomy(most * machine::round_up_to_power_of_two(groups) * 4)});
    }

    std::optional<unsigned> c_name;
    std::optional<unsigned> c_scale_name;
    if (recipe().c_name_is_hand) c_name = d_hand;
    if (recipe().c_scale_name_is_hand) c_scale_name = destinations[random_.below(destinations.size())].hand;
    for (const auto& name : {c_name, c_scale_name}) {
      if (name) taken_ |= uint64{1} << *name;
    }
    const auto m_matrix = [&](const Format& f, std::uint32_t columns) {
      return [&, columns](std::uint32_t m) { return m_tile(f, matrix(f, m, columns)); };
    };
    if (isa::accumulates(operation())) {
      const std::uint32_t capacity =
          mode().code == 0 ? machine::size_code_bytes(static_cast<unsigned>(destinations[0].code)) : 0;
      source(
          Role::c, [&](std::uint32_t m) { return m_tile(*accumulator_, matrix(*accumulator_, m, d_.n), capacity); },
          c_name);
    }
    if (!all_shared()) {
      source(Role::a, m_matrix(*a_.format, d_.k));
      if (a_.scaled) source(Role::a_scale, [&](std::uint32_t m) { return in_m32(*a_.scale, scales(a_, m)); });
    }
    if (is_local()) {
      source(Role::b, [&](std::uint32_t) {
        const Matrix v = matrix(*b_.format, d_.k, d_.n);
        return machine::make_cube_tile(TileLayout::cube_n8, b_.format->type, v.rows, v.cols, v.words);
      });
      if (b_.scaled) source(Role::b_scale, [&](std::uint32_t) { return in_m32(*b_.scale, scales(b_, d_.n)); });
    }
    if (isa::has_bias(operation())) {
      source(Role::bias, [&](std::uint32_t) { return plain(*accumulator_, matrix(*accumulator_, 1, d_.n)); });
    }
    const Format& u8 = format_of(DataType::u8);
    const Format& u64 = format_of(DataType::u64);
    if (p_.c_scale) {
      source(
          Role::c_scale,
          [&](std::uint32_t m) {
            Matrix v = matrix(u8, m, 1);
            if (!random_.chance(4)) {
              for (uint64& word : v.words) word &= 7;
            }
            return in_m32(u8, v);
          },
          c_scale_name);
    }
    if (p_.row_max_init) {
      source(Role::row_max_in, [&](std::uint32_t m) { return plain(*accumulator_, matrix(*accumulator_, m, 1)); });
    }
    const auto carriers = [&](const auto& carrier) {
      return [&](std::uint32_t) {
        Matrix v{1, d_.n, {}};
        for (std::uint32_t j = 0; j < d_.n; ++j) v.words.push_back(carrier());
        return plain(u64, v);
      };
    };
    if (vector_quant()) source(Role::quant_vector, carriers([&] { return quant_carrier(); }));
    if (p_.relu == 3) source(Role::relu_vector, carriers([&] { return activation_carrier(); }));
    if (error_) return *error_;

    // The two streams go into commands in any way that keeps their orders.
    std::size_t s = 0;
    std::size_t d = 0;
    while (s < names_.size() || d < destinations.size()) {
      std::size_t sources = std::min<std::size_t>(names_.size() - s, random_.below(3));
      bool with_destination = d < destinations.size() && random_.chance(2);
      if (recipe().several_bindings && s == 0 && d == 0) {
        sources = 1;
        with_destination = false;
      }
      if (sources == 0 && !with_destination) continue;
      const bool last = s + sources == names_.size() && d + (with_destination ? 1 : 0) == destinations.size();
      Form form = Form::b_iot_dst;
      if (sources == 1) form = with_destination ? Form::b_iot_src0_dst : Form::b_iot_src0;
      if (sources == 2) form = with_destination ? Form::b_iot_src0_src1_dst : Form::b_iot_src0_src1;
      Instruction i(form);
      i.set(Field::pe_mode, pe_mode_of(d_.mask)).set(Field::last, last ? 1 : 0);
      if (sources > 0) i.set(Field::src_tile0, names_[s++]);
      if (sources > 1) i.set(Field::src_tile1, names_[s++]);
      if (with_destination) {
        i.set(Field::size_code, destinations[d].code).set(Field::dst_tile, static_cast<int>(destinations[d].hand));
        ++d;
      }
      d_.code.push_back(i);
    }
    return {};
  }

  Random& random_;
  Elements elements_;
  std::uint32_t max_dim_;
  Draft d_;
  Side a_;
  Side b_;
  const Format* accumulator_ = nullptr;
  machine::PostprocessAttributes p_{};
  uint64 taken_ = 0;
  std::vector<int> names_;
  std::optional<Error> error_;
};

}  // namespace

Expected<Draft> make_cube(const Recipe& recipe, const BundleOptions& options, Random& random) {
  return CubeMaker(recipe, options, random).make();
}

}  // namespace bitcube::stimulus
