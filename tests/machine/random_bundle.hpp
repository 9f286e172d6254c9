// Seeded random CUBE bundles with what they must compute, worked out from plain matrices.
#pragma once

#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/isa/instruction.hpp"
#include "machine/scenario.hpp"
#include "support/operands.hpp"

namespace bitcube::machine::test {

/// A logical matrix: words row by row.
struct Matrix {
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::vector<uint64> words{};

  uint64 operator()(std::uint32_t r, std::uint32_t c) const { return words[std::size_t{r} * cols + c]; }
  Generator generator(std::uint32_t first_row = 0) const {
    return [this, first_row](std::uint32_t r, std::uint32_t c) { return (*this)(first_row + r, c); };
  }
  Generator transposed() const {
    return [this](std::uint32_t r, std::uint32_t c) { return (*this)(c, r); };
  }
  Matrix rows_from(std::uint32_t first, std::uint32_t count) const {
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(std::size_t{first} * cols);
    return {count, cols, std::vector<uint64>(begin, begin + static_cast<std::ptrdiff_t>(std::size_t{count} * cols))};
  }
};

/// Everything that one PE reads.
struct PeData {
  std::uint32_t m = 0;
  Matrix a, a_scale, b, b_scale, c, bias, c_scale, row_max_in, quant, alpha;
};

struct RandomBundle {
  Scenario scenario{};
  unsigned function = 0;
  const Format* a = nullptr;
  const Format* b = nullptr;
  const Format* accumulator = nullptr;
  bool a_scaled = false, b_scaled = false;
  std::uint32_t m = 0, n = 0, k = 0;
  unsigned mode = 0;  // 0 Local, 1 right-only, 2 all-Shared
  unsigned mask = 0;
  PostprocessAttributes post{};
  const PreQuantMode* prequant = &no_quant;
  std::optional<Rounding> rounding{};
  bool saturate = false;
  std::array<PeData, pe_count> pe{};
  unsigned d_hand = 0, row_max_hand = 0, group_max_hand = 0;
  std::vector<std::pair<unsigned, unsigned>> source_names{};  // pe, name

  bool mx() const { return (function & 4) != 0; }
  bool gemv() const { return (function & 16) != 0; }
  bool has_bias() const { return (function & 3) == 1; }
  bool accumulates() const { return (function & 3) == 2; }
  std::uint32_t rows_per_pe() const { return m <= 64 ? 16 : 32; }
  std::uint32_t rows(unsigned p) const {
    if (mode == 0) return m;
    const std::uint32_t first = p * rows_per_pe();
    return m <= first ? 0 : std::min(m - first, rows_per_pe());
  }
  std::uint32_t group_n() const { return post.group_n_code == 0 ? 0 : group_n_values[post.group_n_code - 1U]; }
};

class BundleMaker {
 public:
  explicit BundleMaker(std::uint64_t seed) : random_(seed) {}

  RandomBundle make() {
    RandomBundle x;
    choose(x);
    fill(x);
    bind(x);
    return x;
  }

  bitcube::test::Operands& random() { return random_; }

 private:
  using Form = isa::Form;
  using Field = isa::Field;

  template <typename T, std::size_t N>
  const T& pick(const T (&options)[N]) {
    return options[random_.below(N)];
  }
  std::uint32_t up_to(std::uint32_t limit) { return 1 + static_cast<std::uint32_t>(random_.below(limit)); }

  void choose(RandomBundle& x) {
    static constexpr unsigned functions[] = {0, 1, 2, 4, 5, 6, 16, 17, 18, 20, 21, 22};
    static constexpr DataType floats[] = {DataType::fp32, DataType::tf32, DataType::hf32,   DataType::fp16,
                                          DataType::bf16, DataType::hif8, DataType::e4m3,   DataType::e5m2,
                                          DataType::e3m2, DataType::e2m3, DataType::e2m1x2, DataType::e1m2x2};
    static constexpr DataType signed_types[] = {DataType::s16, DataType::s8, DataType::s4x2};
    static constexpr DataType unsigned_types[] = {DataType::u16, DataType::u8, DataType::u4x2};
    static constexpr DataType mx_types[] = {DataType::fp16,   DataType::bf16,   DataType::e4m3,  DataType::e5m2,
                                            DataType::e2m1x2, DataType::e1m2x2, DataType::hif4x2};
    x.function = random_.chance(3) ? 5 : pick(functions);
    DataType a{};
    DataType b{};
    x.accumulator = &fp32;
    if (x.mx()) {
      a = pick(mx_types);
      b = pick(mx_types);
    } else {
      switch (random_.below(4)) {
        case 0:
          a = pick(signed_types);
          b = pick(signed_types);
          x.accumulator = &format_of(DataType::s32);
          break;
        case 1:
          a = pick(unsigned_types);
          b = pick(unsigned_types);
          x.accumulator = &format_of(DataType::u32);
          break;
        default:
          a = pick(floats);
          b = pick(floats);
          break;
      }
    }
    if (random_.chance(3)) b = a;
    x.a = &format_of(a);
    x.b = &format_of(b);
    const auto needs_scale = [&](DataType t) { return x.mx() && t != DataType::fp16 && t != DataType::bf16; };
    x.a_scaled = needs_scale(a);
    x.b_scaled = needs_scale(b);
    x.mode = x.gemv() ? 0 : static_cast<unsigned>(random_.below(3));
    if (x.gemv()) {
      x.m = 1;
    } else if (x.mode == 0) {
      x.m = random_.chance(4) ? up_to(32) : up_to(6);
    } else {
      x.m = random_.chance(12) ? up_to(128) : up_to(20);
    }
    x.n = random_.chance(10) ? up_to(40) : up_to(10);
    x.k = random_.chance(6) ? up_to(140) : up_to(34);
    static constexpr unsigned masks[] = {8, 4, 2, 1, 12, 14, 15};
    x.mask = x.mode != 0 ? full_mask : random_.chance(2) ? 8 : pick(masks);

    // Post-process: a mode of the accumulator.
    if (!random_.chance(3)) {
      do {
        x.prequant = &prequant_modes[random_.below(prequant_modes.size())];
      } while (x.prequant->accumulator != DataType::none && x.prequant->accumulator != x.accumulator->type);
    }
    x.post.prequant = x.prequant->code;
    x.post.relu = static_cast<std::uint8_t>(random_.chance(2) ? 0 : random_.below(4));
    x.post.row_max = random_.chance(4);
    x.post.row_max_init = x.post.row_max && random_.chance(2);
    if (random_.chance(4)) {
      x.post.group_n_code = static_cast<std::uint8_t>(up_to(9));
      x.post.group_max = true;
    }
    x.post.max_abs = (x.post.row_max || x.post.group_max) && random_.chance(2);
    x.post.c_scale = x.accumulates() && !x.gemv() && x.accumulator == &fp32 && random_.chance(2);
    x.post.trans_a = x.mode == 2 && random_.chance(2);
    x.post.trans_b = x.mode != 0 && random_.chance(2);
    if (x.prequant->rounding_rule == RoundingRule::programmable && random_.chance(2)) {
      x.rounding = static_cast<Rounding>(up_to(7));
    }
    x.saturate = x.prequant->saturation_allowed && random_.chance(2);
  }

  Matrix matrix(const Format& f, std::uint32_t rows, std::uint32_t cols) {
    Matrix out{rows, cols, {}};
    // Mostly small numbers, so that sums are not all infinite.
    const bool wild = random_.chance(5);
    for (std::size_t i = 0; i < std::size_t{rows} * cols; ++i) {
      out.words.push_back(wild ? random_.word(f) : tame_word(f));
    }
    return out;
  }
  uint64 tame_word(const Format& f) {
    if (f.type == DataType::e8m0) return 120 + random_.below(15);
    if (f.is_integer()) {
      const auto small = static_cast<int64>(random_.below(4096)) - (f.kind == Kind::signed_integer ? 2048 : 0);
      return static_cast<uint64>(small) & low_mask(f.lane_bits);
    }
    for (;;) {
      const uint64 w = random_.word(f);
      const Value v = decode(f, w);
      if (!v.is_finite()) continue;
      const int top = bit_length(v.real.significand) + v.real.exponent;
      if (v.real.is_zero() || (top < 12 && top > -12)) return w;
    }
  }
  Matrix scales(const Format& side, std::uint32_t lines, std::uint32_t k) {
    const bool hif4 = side.type == DataType::hif4x2;
    Matrix out = matrix(hif4 ? format_of(DataType::u32) : e8m0, lines, divide_up(k, hif4 ? 64 : 32));
    if (hif4) {
      for (uint64& w : out.words) {
        w = (random_.raw() & 0xFFFFFF00) | (random_.chance(200) ? 0xFF : 0xA0 + random_.below(0x40));
      }
    }
    return out;
  }
  uint64 quant_carrier(const PreQuantMode& mode) {
    if (mode.carrier == CarrierKind::shift) return pack_shift_carrier(static_cast<int>(up_to(16)));
    const uint64 scale = ((100 + random_.below(50)) << 10) | random_.below(1024);
    const auto offset = static_cast<int64>(random_.raw());
    return pack_scale_carrier(scale, mode.offset_bits == 0 ? 0 : offset, mode.offset_bits);
  }
  uint64 activation_carrier() {
    return random_.chance(4) ? 0 : ((100 + random_.below(50)) << 10) | random_.below(1024);
  }

  void fill(RandomBundle& x) {
    const Matrix shared_a = matrix(*x.a, x.m, x.k);
    const Matrix shared_as = scales(*x.a, x.m, x.k);
    const Matrix shared_b = matrix(*x.b, x.k, x.n);
    const Matrix shared_bs = scales(*x.b, x.n, x.k);
    for (unsigned p = 0; p < pe_count; ++p) {
      PeData& d = x.pe[p];
      d.m = (x.mask & pe_bit(p)) != 0 ? x.rows(p) : 0;
      if (d.m == 0) continue;
      const std::uint32_t first = x.mode == 0 ? 0 : p * x.rows_per_pe();
      d.a = x.mode == 2 ? shared_a.rows_from(first, d.m) : matrix(*x.a, d.m, x.k);
      d.a_scale = x.mode == 2 ? shared_as.rows_from(first, d.m) : scales(*x.a, d.m, x.k);
      d.b = x.mode != 0 ? shared_b : matrix(*x.b, x.k, x.n);
      d.b_scale = x.mode != 0 ? shared_bs : scales(*x.b, x.n, x.k);
      d.c = matrix(*x.accumulator, d.m, x.n);
      d.bias = matrix(*x.accumulator, 1, x.n);
      d.c_scale = matrix(format_of(DataType::u8), d.m, 1);
      d.row_max_in = matrix(*x.accumulator, d.m, 1);
      const bool quant_vector = x.prequant->per_column;
      const bool alpha_vector = x.post.relu == 3;
      d.quant = {1, quant_vector ? x.n : 1, {}};
      d.alpha = {1, alpha_vector ? x.n : 1, {}};
      for (std::uint32_t j = 0; j < d.quant.cols; ++j) {
        d.quant.words.push_back(x.prequant->carrier == CarrierKind::none ? 0 : quant_carrier(*x.prequant));
      }
      for (std::uint32_t j = 0; j < d.alpha.cols; ++j) d.alpha.words.push_back(activation_carrier());
    }
    Core& core = x.scenario.core;
    const auto publish = [&](unsigned id, DataType t, const Matrix& logical, bool transposed) {
      const std::uint32_t rows = transposed ? logical.cols : logical.rows;
      const std::uint32_t cols = transposed ? logical.rows : logical.cols;
      const std::uint32_t physical = round_up_to_power_of_two(cols) << (random_.chance(4) ? 1 : 0);
      core.publish_shared(
          id, shared_tile(t, rows, cols, transposed ? logical.transposed() : logical.generator(), physical));
    };
    const auto scale_type = [](const Format& f) { return f.type == DataType::hif4x2 ? DataType::u32 : DataType::e8m0; };
    if (x.mode == 2) publish(40, x.a->type, shared_a, x.post.trans_a);
    if (x.mode == 2 && x.a_scaled) publish(41, scale_type(*x.a), shared_as, x.post.trans_a);
    if (x.mode != 0) publish(42, x.b->type, shared_b, x.post.trans_b);
    // The scales of B are stored G x N; ours are N x G.
    if (x.mode != 0 && x.b_scaled) publish(43, scale_type(*x.b), shared_bs, !x.post.trans_b);
  }

  void add(RandomBundle& x, const isa::Instruction& i) { x.scenario.words.push_back(isa::Codec::encode(i).bits); }

  static Form start_form(unsigned function) {
    constexpr Form forms[] = {
        Form::bstart_tmatmul,    Form::bstart_tmatmul_bias,    Form::bstart_tmatmul_acc,   Form::bstop,
        Form::bstart_tmatmul_mx, Form::bstart_tmatmul_mx_bias, Form::bstart_tmatmul_mx_acc};
    constexpr Form gemv[] = {Form::bstart_tgemv,    Form::bstart_tgemv_bias,    Form::bstart_tgemv_acc,   Form::bstop,
                             Form::bstart_tgemv_mx, Form::bstart_tgemv_mx_bias, Form::bstart_tgemv_mx_acc};
    return (function & 16) != 0 ? gemv[function & 7] : forms[function & 7];
  }
  static std::int32_t pe_mode(unsigned mask) {
    for (int i = 0; i < 8; ++i) {
      if (isa::pe_mask(i) == mask) return i;
    }
    return 0;
  }
  static std::int32_t size_code(std::uint32_t bytes) {
    std::int32_t code = 1;
    while (size_code_bytes(static_cast<unsigned>(code)) < bytes) ++code;
    return code;
  }

  void bind(RandomBundle& x) {
    header(x);
    locals(x);
    x.scenario.words.push_back(bstop);
  }

  void header(RandomBundle& x) {
    add(x, isa::Instruction(start_form(x.function)).set(Field::data_type, static_cast<int>(x.a->type)));
    std::vector<isa::Instruction> free_order;
    if (x.b != x.a || x.rounding || x.saturate || random_.chance(4)) {
      free_order.push_back(isa::Instruction(Form::b_datr)
                               .set(Field::data_type, static_cast<int>(x.b->type))
                               .set(Field::rmode, x.rounding ? static_cast<int>(*x.rounding) : 0)
                               .set(Field::sat, x.saturate ? 1 : 0));
    }
    const std::uint32_t dims[] = {x.m, x.n, x.k};
    for (int i = 0; i < 3; ++i) {
      const std::uint32_t value = dims[i];
      if (value == 1 && random_.chance(2)) continue;
      if (value < 256 && random_.chance(2)) {
        free_order.push_back(
            isa::Instruction(Form::c_b_dimi).set(Field::lb, i).set(Field::imm, static_cast<int>(value)));
      } else {
        const auto form = static_cast<Form>(static_cast<int>(Form::b_dim_lb0) + i);
        free_order.push_back(isa::Instruction(form).set(Field::imm, static_cast<int>(value)));
      }
    }
    const PostprocessAttributes& p = x.post;
    free_order.push_back(isa::Instruction(Form::b_fpatr)
                             .set(Field::pre_quant_mode, p.prequant)
                             .set(Field::relu_mode, p.relu)
                             .set(Field::group_n_code, p.group_n_code)
                             .set(Field::row_max_en, p.row_max)
                             .set(Field::group_max_en, p.group_max)
                             .set(Field::row_max_init, p.row_max_init)
                             .set(Field::max_abs_en, p.max_abs)
                             .set(Field::cscale_en, p.c_scale)
                             .set(Field::trans_a, p.trans_a)
                             .set(Field::trans_b, p.trans_b));
    while (!free_order.empty()) {
      const std::size_t at = random_.below(free_order.size());
      add(x, free_order[at]);
      free_order.erase(free_order.begin() + static_cast<std::ptrdiff_t>(at));
    }
    const bool scalar_quant = x.prequant->carrier != CarrierKind::none && !x.prequant->per_column;
    const bool scalar_alpha = p.relu == 2;
    if (scalar_quant || scalar_alpha) {
      isa::Instruction ior(Form::b_ior);
      ior.set(Field::reg_src0, 5);
      if (scalar_quant && scalar_alpha) ior.set(Field::reg_src1, 6);
      add(x, ior);
      for (unsigned q = 0; q < pe_count; ++q) {
        if (x.pe[q].m == 0) continue;
        auto& gpr = x.scenario.core.state().pe[q].gpr;
        gpr[5] = scalar_quant ? x.pe[q].quant.words[0] : x.pe[q].alpha.words[0];
        gpr[6] = x.pe[q].alpha.words[0];
      }
    }
    const auto ios = [&](unsigned id) {
      add(x, isa::Instruction(Form::b_ios).set(Field::shared_tile, static_cast<int>(id)).set(Field::pe_mode, 7));
    };
    if (x.mode == 2) ios(40);
    if (x.mode == 2 && x.a_scaled) ios(41);
    if (x.mode != 0) ios(42);
    if (x.mode != 0 && x.b_scaled) ios(43);
  }

  /// Gives every PE a Tile for the next source, and returns its name.
  template <typename MakeTile>
  void source(RandomBundle& x, std::vector<int>& names, const MakeTile& make) {
    const unsigned name = next_name_;
    next_name_ += 1 + static_cast<unsigned>(random_.below(2));
    names.push_back(static_cast<int>(name));
    for (unsigned p = 0; p < pe_count; ++p) {
      if (x.pe[p].m == 0) continue;
      x.scenario.core.set_local(p, name, make(x.pe[p]));
      x.source_names.emplace_back(p, name);
    }
  }

  void locals(RandomBundle& x) {
    next_name_ = 4;  // names 0..3 collide with hand numbers in rules F8 and F9
    std::vector<int> names;
    const auto scale_type = [](const Format& f) { return f.type == DataType::hif4x2 ? DataType::u32 : DataType::e8m0; };
    const bool wide = random_.chance(3);  // CUBE_M32 where CUBE_M16 would do
    const auto m_tile = [&](DataType t, const Matrix& v, std::uint32_t capacity = 0) {
      return v.rows > 16 || wide ? m32(t, v.rows, v.cols, v.generator(), capacity)
                                 : m16(t, v.rows, v.cols, v.generator(), capacity);
    };
    // The TSize of D serves every PE, and so does C's where they must be equal.
    const Format& d_format = destination_format(*x.prequant, *x.accumulator);
    std::uint32_t d_bytes = 128;
    for (unsigned p = 0; p < pe_count; ++p) {
      if (x.pe[p].m == 0) continue;
      const bool in_m32 = x.pe[p].m > 16 || wide;
      for (const TileLayout layout : {TileLayout::cube_m16, TileLayout::cube_m32}) {
        if (in_m32 && layout == TileLayout::cube_m16) continue;
        const auto g = cube_geometry(layout, d_format.lane_bits, x.pe[p].m, x.n);
        if (g) d_bytes = std::max(d_bytes, g->storage_bytes);
      }
    }
    const std::int32_t d_code = size_code(d_bytes);
    const std::uint32_t c_bytes = x.prequant->code == 0 ? size_code_bytes(static_cast<unsigned>(d_code)) : 0;
    if (x.accumulates()) {
      source(x, names, [&](const PeData& d) { return m_tile(x.accumulator->type, d.c, c_bytes); });
    }
    if (x.mode != 2) {
      source(x, names, [&](const PeData& d) { return m_tile(x.a->type, d.a); });
      if (x.a_scaled) {
        source(x, names,
               [&](const PeData& d) { return m32(scale_type(*x.a), d.m, d.a_scale.cols, d.a_scale.generator()); });
      }
    }
    if (x.mode == 0) {
      source(x, names, [&](const PeData& d) { return n8(x.b->type, x.k, x.n, d.b.generator()); });
      if (x.b_scaled) {
        source(x, names,
               [&](const PeData& d) { return m32(scale_type(*x.b), x.n, d.b_scale.cols, d.b_scale.generator()); });
      }
    }
    const auto plain = [](DataType t, const Matrix& v) { return row_major(t, v.rows, v.cols, v.generator()); };
    if (x.has_bias()) source(x, names, [&](const PeData& d) { return plain(x.accumulator->type, d.bias); });
    if (x.post.c_scale)
      source(x, names, [&](const PeData& d) { return m32(DataType::u8, d.m, 1, d.c_scale.generator()); });
    if (x.post.row_max_init)
      source(x, names, [&](const PeData& d) { return plain(x.accumulator->type, d.row_max_in); });
    if (x.prequant->carrier != CarrierKind::none && x.prequant->per_column) {
      source(x, names, [&](const PeData& d) { return plain(DataType::u64, d.quant); });
    }
    if (x.post.relu == 3) source(x, names, [&](const PeData& d) { return plain(DataType::u64, d.alpha); });

    struct Destination {
      unsigned hand;
      std::int32_t code;
    };
    std::vector<Destination> destinations;
    x.d_hand = static_cast<unsigned>(random_.below(4));
    destinations.push_back({x.d_hand, d_code});
    if (x.post.row_max) {
      x.row_max_hand = static_cast<unsigned>(random_.below(4));
      destinations.push_back({x.row_max_hand, 1});
    }
    if (x.post.group_max) {
      x.group_max_hand = static_cast<unsigned>(random_.below(4));
      const std::uint32_t cols = round_up_to_power_of_two(divide_up(x.n, x.group_n()));
      destinations.push_back({x.group_max_hand, size_code(32 * cols * 4)});
    }
    // Pack the two streams into commands in any way that keeps their orders.
    std::size_t s = 0;
    std::size_t d = 0;
    while (s < names.size() || d < destinations.size()) {
      const std::size_t sources = std::min(names.size() - s, random_.below(3));
      const bool with_destination = d < destinations.size() && random_.chance(2);
      if (sources == 0 && !with_destination) continue;
      const bool last = s + sources == names.size() && d + (with_destination ? 1 : 0) == destinations.size();
      Form form = Form::b_iot_dst;
      if (sources == 1) form = with_destination ? Form::b_iot_src0_dst : Form::b_iot_src0;
      if (sources == 2) form = with_destination ? Form::b_iot_src0_src1_dst : Form::b_iot_src0_src1;
      isa::Instruction i(form);
      i.set(Field::pe_mode, pe_mode(x.mask)).set(Field::last, last ? 1 : 0);
      if (sources > 0) i.set(Field::src_tile0, names[s++]);
      if (sources > 1) i.set(Field::src_tile1, names[s++]);
      if (with_destination) {
        i.set(Field::size_code, destinations[d].code).set(Field::dst_tile, static_cast<int>(destinations[d].hand));
        ++d;
      }
      add(x, i);
    }
  }

  bitcube::test::Operands random_;
  unsigned next_name_ = 4;
};

/// What a PE must publish, from a direct call of the cube room.
struct Expectation {
  std::vector<uint64> d{};
  std::vector<std::uint32_t> row_max{};
  std::vector<std::uint32_t> group_max{};
  Flags flags = Flags::none;
};

inline Expectation expected(const RandomBundle& x, const PeData& pe) {
  // One lane per 8 bytes, so that no packing is shared with the machine.
  const auto side = [&](const Format& f, const Matrix& lanes, const Matrix& scales, bool scaled, std::uint32_t lines,
                        bool rows) {
    bitcube::Operand o;
    o.format = &f;
    o.lines = lines;
    o.k = x.k;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(lanes.words.data());
    o.lanes = {bytes, 64, rows ? x.k : 1, rows ? 1 : lanes.cols};
    if (scaled) o.scales = {reinterpret_cast<const std::uint8_t*>(scales.words.data()), 64, scales.cols, 1};
    return o;
  };
  const auto narrow = [](const Matrix& v) {
    std::vector<std::uint32_t> out;
    for (const uint64 w : v.words) out.push_back(static_cast<std::uint32_t>(w));
    return out;
  };
  Expectation out;
  MatmulOptions options;
  options.execution.threads = 1;
  std::vector<std::uint32_t> c = narrow(pe.c);
  const std::vector<std::uint32_t> bias = narrow(pe.bias);
  if (x.post.c_scale) {
    for (std::uint32_t i = 0; i < pe.m; ++i) {
      for (std::uint32_t j = 0; j < x.n; ++j) {
        const Encoded e = scale_c(c[std::size_t{i} * x.n + j], static_cast<unsigned>(pe.c_scale(i, 0)));
        c[std::size_t{i} * x.n + j] = static_cast<std::uint32_t>(e.bits);
        out.flags |= e.flags;
      }
    }
  }
  if (x.accumulates()) options.c = c;
  if (x.has_bias()) options.bias = bias;
  const auto product = matmul(side(*x.a, pe.a, pe.a_scale, x.a_scaled, pe.m, true),
                              side(*x.b, pe.b, pe.b_scale, x.b_scaled, x.n, false), options);
  if (!product) {
    ADD_FAILURE() << product.error().message;
    return out;
  }
  PostprocessOptions post;
  post.mode = x.prequant;
  post.rounding = x.rounding;
  post.saturate = x.saturate;
  post.row_max = x.post.row_max;
  post.group_n = x.group_n();
  post.max_abs = x.post.max_abs;
  post.execution.threads = 1;
  if (x.prequant->carrier != CarrierKind::none) post.quant_carriers = pe.quant.words;
  if (x.prequant->carrier != CarrierKind::shift) {
    post.relu = static_cast<Relu>(x.post.relu);
    if (x.post.relu >= 2) post.activation_carriers = pe.alpha.words;
  }
  const std::vector<std::uint32_t> row_max_in = narrow(pe.row_max_in);
  if (x.post.row_max_init) post.row_max_init = row_max_in;
  const auto result = postprocess(*product, post);
  if (!result) {
    ADD_FAILURE() << result.error().message;
    return out;
  }
  for (std::size_t i = 0; i < std::size_t{pe.m} * x.n; ++i) {
    uint64 w = 0;
    std::memcpy(&w, result->d.data() + i * result->element_bytes, result->element_bytes);
    out.d.push_back(w);
  }
  out.row_max = result->row_max;
  out.group_max = result->group_max;
  out.flags |= result->flags;
  return out;
}

}  // namespace bitcube::machine::test
