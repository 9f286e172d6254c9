// How a bundle breaks each legality rule, and which rules no bundle can break. Whether the attempt met its rule, and no
// other before it, is for the machine to say.
#include <algorithm>

#include "bitcube/machine/transfer_orders.hpp"
#include "recipe.hpp"

namespace bitcube::stimulus {
namespace {

using enum machine::RuleId;
using isa::Command;
using isa::Field;
using isa::Form;
using isa::Instruction;
using isa::Operation;
using machine::Role;
using machine::RuleId;
using machine::Tile;
using machine::TileLayout;

// ---- Which operations

bool any_operation(Operation) {
  return true;
}
bool cube(Operation o) {
  return isa::is_cube(o);
}
bool matmul(Operation o) {
  return isa::is_cube(o) && !isa::is_gemv(o);
}
bool gemv(Operation o) {
  return isa::is_gemv(o);
}
bool accumulating(Operation o) {
  return isa::accumulates(o);
}
bool scaling_c(Operation o) {
  return isa::accumulates(o) && !isa::is_gemv(o);
}
bool not_cube(Operation o) {
  return !isa::is_cube(o);
}
bool transfer(Operation o) {
  return is_transfer(o);
}
bool load_or_store(Operation o) {
  return o == Operation::tload || o == Operation::tstore;
}
bool store_or_move(Operation o) {
  return o == Operation::tstore || o == Operation::tmov;
}
bool load_or_move(Operation o) {
  return o == Operation::tload || o == Operation::tmov;
}
bool conversion(Operation o) {
  return is_conversion(o);
}
bool tcvt(Operation o) {
  return o == Operation::tcvt;
}
bool affine(Operation o) {
  return o == Operation::tquant || o == Operation::tdequant;
}
bool binds_two(Operation o) {
  return cube(o);
}

// ---- Which recipes

bool as_it_is(Recipe&, Random&) {
  return true;
}
bool local_only(Recipe& r, Random&) {
  r.sharing = Sharing::local;
  return true;
}
bool cooperative(Recipe& r, Random& random) {
  r.sharing = random.chance(2) ? Sharing::right : Sharing::all;
  return true;
}
bool several_bindings(Recipe& r, Random&) {
  r.several_bindings = true;
  r.sharing = Sharing::local;  // two sources at least
  return true;
}
bool local_transfer(Recipe& r, Random&) {
  r.shared_transfer = false;
  return true;
}
bool shared_transfer(Recipe& r, Random&) {
  const machine::Orders orders = machine::orders_of(r.head.layout);
  r.shared_transfer = true;
  return !machine::is_cube(orders.from) && !machine::is_cube(orders.to);
}

/// A mode of the head's accumulator that `wanted` accepts, with what it allows.
template <typename Wanted>
bool choose_mode(Recipe& r, Random& random, const Wanted& wanted) {
  std::vector<Post> posts;
  for (const Post& post : posts_of(r.head)) {
    if (wanted(post)) posts.push_back(post);
  }
  if (posts.empty()) return false;
  r.post = random.pick(posts);
  return true;
}

// ---- Instructions of a draft

std::vector<std::size_t> positions(const Draft& d, Command command) {
  std::vector<std::size_t> list;
  for (std::size_t i = 0; i < d.code.size(); ++i) {
    if (d.code[i].command() == command) list.push_back(i);
  }
  return list;
}
bool is_binding(const Instruction& i) {
  return i.command() == Command::ior || i.command() == Command::iot || i.command() == Command::ios;
}
std::size_t first_binding(const Draft& d) {
  const auto at = std::find_if(d.code.begin(), d.code.end(), is_binding);
  return static_cast<std::size_t>(at - d.code.begin());
}
/// A place for a header command: behind BSTART, before the first binding.
std::size_t header_place(const Draft& d, Random& random) {
  return 1 + random.below(first_binding(d));
}
/// A place between two others, both included.
std::size_t between(Random& random, std::size_t first, std::size_t last) {
  return first + random.below(last - first + 1);
}
std::int32_t other_pe_mode(const Draft& d, Random& random) {
  for (;;) {
    const auto mode = static_cast<std::int32_t>(1 + random.below(7));
    if (isa::pe_mask(mode) != d.mask) return mode;
  }
}
Instruction& datr_of(Draft& d, Random& random) {
  if (const std::size_t at = d.find(Command::datr); at != Draft::npos) return d.code[at];
  const std::size_t at = header_place(d, random);
  Instruction datr(Form::b_datr);
  datr.set(Field::data_type, static_cast<int>(DataType::none));
  if (d.recipe.head.operation == Operation::tcvt) datr.set(Field::pad_value, 3);  // as where it is omitted
  d.insert(at, datr);
  return d.code[at];
}
Instruction& fpatr_of(Draft& d) {
  return d.code[d.find(Command::fpatr)];
}
/// Gives LB `lb` this value.
void set_dimension(Draft& d, Random& random, int lb, std::uint32_t value) {
  const auto form = static_cast<Form>(static_cast<int>(Form::b_dim_lb0) + lb);
  const Instruction dim = Instruction(form).set(Field::imm, static_cast<int>(value));
  for (Instruction& i : d.code) {
    if (i.command() == Command::dim && i[Field::lb] == lb) {
      i = dim;
      return;
    }
  }
  d.insert(header_place(d, random), dim);
}
Instruction* last_iot(Draft& d) {
  const auto list = positions(d, Command::iot);
  return list.empty() ? nullptr : &d.code[list.back()];
}
Instruction* destination_of(Draft& d, std::size_t number) {
  for (Instruction& i : d.code) {
    if (i.command() != Command::iot || i[Field::size_code] == 0) continue;
    if (number-- == 0) return &i;
  }
  return nullptr;
}
Instruction source_iot(const Draft& d, Random& random) {
  return Instruction(Form::b_iot_src0)
      .set(Field::pe_mode, pe_mode_of(d.mask))
      .set(Field::src_tile0, static_cast<int>(random.below(machine::local_tiles)));
}
Instruction shared_iot(Random& random, unsigned mask) {
  return Instruction(Form::b_ios)
      .set(Field::shared_tile, static_cast<int>(random.below(machine::shared_tiles)))
      .set(Field::pe_mode, pe_mode_of(mask));
}

// ---- Tiles of a draft

const Source* pick_source(const Draft& d, Random& random, bool (*wanted)(Role)) {
  std::vector<const Source*> list;
  for (const Source& s : d.sources) {
    if (wanted(s.role)) list.push_back(&s);
  }
  return list.empty() ? nullptr : random.pick(list);
}
bool any_role(Role) {
  return true;
}

/// A Local source is not there, or its PE has no part in it.
bool lose_source(Draft& d, Random& random) {
  const Source* s = pick_source(d, random, any_role);
  if (s == nullptr) return false;
  machine::TileRef& ref = d.state.pe[s->pe].local[s->name];
  if (random.chance(2)) {
    ref = nullptr;
    return true;
  }
  Tile copy = *ref;
  copy.descriptor().allocation_mask = static_cast<std::uint8_t>(machine::full_mask & ~machine::pe_bit(s->pe));
  ref = machine::share(std::move(copy));
  return true;
}
bool mathematical(Role r) {
  return r == Role::a || r == Role::a_scale || r == Role::b || r == Role::b_scale || r == Role::c || r == Role::bias ||
         r == Role::c_scale;
}
template <Role role>
bool is_role(Role r) {
  return r == role;
}

const Tile& tile_of(const Draft& d, const Source& s) {
  return *d.state.pe[s.pe].local[s.name];
}

/// The same elements as far as there are any, in another shape, type or layout.
bool rebuild(Draft& d, const Source& s, TileLayout layout, DataType type, std::uint32_t rows, std::uint32_t columns) {
  const Tile& old = tile_of(d, s);
  const Format* f = machine::tile_format(type);
  std::vector<uint64> words = old.valid_words();
  words.resize(std::size_t{rows} * columns, 0);
  for (uint64& w : words) w &= low_mask(f->value_bits) & ~low_mask(f->low_zero_bits);
  auto tile = machine::is_cube(layout) ? machine::make_cube_tile(layout, type, rows, columns, words)
                                       : machine::make_ordinary_tile(layout, type, rows, columns, words);
  if (!tile) return false;
  d.replace(s, std::move(*tile));
  return true;
}

/// Any one property of a source that a role fixes.
bool spoil_tile(Draft& d, const Source& s, Random& random) {
  const machine::TileDescriptor t = tile_of(d, s).descriptor();
  switch (random.below(5)) {
    case 0: {
      Tile copy = tile_of(d, s);
      const auto row = static_cast<std::uint32_t>(random.below(t.valid_rows));
      copy.undefine_element(row, static_cast<std::uint32_t>(random.below(t.valid_columns)));
      d.replace(s, std::move(copy));
      return true;
    }
    case 1:
      return rebuild(d, s, t.layout, t.type, t.valid_rows, t.valid_columns + 1);
    case 2:
      return t.valid_rows > 1 && rebuild(d, s, t.layout, t.type, t.valid_rows - 1, t.valid_columns);
    case 3: {
      // FP16 and BF16, E4M3 and E5M2 have the same width, and another meaning.
      static constexpr DataType others[] = {DataType::bf16, DataType::fp16, DataType::e5m2,
                                            DataType::e4m3, DataType::s32,  DataType::s8};
      const DataType type = pick(random, others);
      return type != t.type && rebuild(d, s, t.layout, type, t.valid_rows, t.valid_columns);
    }
    default: {
      static constexpr TileLayout others[] = {TileLayout::row_major, TileLayout::column_major, TileLayout::cube_m16,
                                              TileLayout::cube_m32, TileLayout::cube_n8};
      const TileLayout layout = pick(random, others);
      return layout != t.layout && rebuild(d, s, layout, t.type, t.valid_rows, t.valid_columns);
    }
  }
}

/// A word of a parameter Tile that is no legal carrier.
bool spoil_carrier(Draft& d, const Source& s, Random& random) {
  Tile copy = tile_of(d, s);
  const auto column = static_cast<std::uint32_t>(random.below(copy.descriptor().valid_columns));
  copy.set_element(0, column, copy.element(0, column) ^ uint64{1} << random.below(64));
  d.replace(s, std::move(copy));
  return true;
}

/// Fills the pool of a PE but for `left` bytes.
bool fill_pool(Draft& d, unsigned pe, unsigned hand_in_use, std::uint32_t left) {
  std::uint64_t free = machine::pool_bytes - d.state.local_pool(pe);
  for (unsigned name = 0; name < machine::local_tiles && free > left; ++name) {
    if (name / machine::hand_tiles == hand_in_use || d.state.pe[pe].local[name] != nullptr) continue;
    const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(free - left, machine::local_capacity_limit));
    const uint64 zero[] = {0};
    auto tile = machine::make_ordinary_tile(TileLayout::row_major, DataType::u8, 1, 1, zero, 128, bytes);
    if (!tile) return false;
    tile->descriptor().allocation_mask = static_cast<std::uint8_t>(machine::pe_bit(pe));
    d.state.pe[pe].local[name] = machine::share(std::move(*tile));
    free -= bytes;
  }
  return free == left;
}

bool spoil_attributes(Draft& d, Random& random) {
  Instruction& datr = datr_of(d, random);
  switch (random.below(4)) {
    case 0:
      datr.set(Field::cmode, static_cast<int>(1 + random.below(5)));
      return true;
    case 1:
      datr.set(Field::rmode, static_cast<int>(1 + random.below(7)));
      return true;
    case 2:
      datr.set(Field::sat, 1);
      return true;
    default:
      datr.set(Field::canonicalize, 1);
      return true;
  }
}

bool spoil_any_dimension(Draft& d, Random& random) {
  const int lb = static_cast<int>(random.below(3));
  static constexpr std::uint32_t values[] = {0, 0, 1, 2, 3, 5, 7, 11, 64};
  set_dimension(d, random, lb, pick(random, values));
  return true;
}

/// One bit of one word, so that the word is none.
bool spoil_word(Draft& d, Random& random) {
  for (int attempt = 0; attempt < 400; ++attempt) {
    const std::size_t at = random.below(d.code.size());
    const isa::Word word = isa::Codec::encode(d.code[at]);
    uint64 bits = word.bits ^ uint64 { 1 } << (4 + random.below(8U * word.length - 4));
    if (random.chance(2)) bits ^= uint64{1} << (4 + random.below(8U * word.length - 4));
    if (isa::instruction_length(bits) != word.length || isa::decode(bits)) continue;
    d.code.resize(at + 1);
    d.raw = isa::Word{bits, word.length};
    return true;
  }
  return false;
}

// ---- The table, in the order of the rules

constexpr std::array<RuleBreaker, static_cast<std::size_t>(RuleId::count)> kBreakers{{
    {A1, {}, any_operation, as_it_is, spoil_word},
    {A2,
     {},
     any_operation,
     as_it_is,
     [](Draft& d, Random& random) {
       std::vector<Instruction> header(d.code.begin() + 1, d.code.end() - 1);
       d.code = {random.pick(header)};
       return true;
     }},
    {A3,
     {},
     any_operation,
     as_it_is,
     [](Draft& d, Random& random) {
       static constexpr Command once[] = {Command::catr, Command::datr, Command::fpatr, Command::ior, Command::hint};
       std::size_t at = d.find(pick(random, once));
       if (at == Draft::npos) {
         if (!random.chance(4)) return false;
         at = header_place(d, random);
         d.insert(at, Instruction(Form::b_hint));
       }
       const Instruction again = d.code[at];
       d.insert(between(random, at + 1, d.code.size() - 1), again);
       return true;
     }},
    {A4,
     {},
     not_cube,
     as_it_is,
     [](Draft& d, Random& random) {
       d.insert(between(random, 1, d.code.size() - 1), Instruction(Form::b_fpatr));
       return true;
     }},
    {A5,
     {},
     cube,
     as_it_is,
     [](Draft& d, Random& random) {
       const Instruction fpatr = fpatr_of(d);
       d.code.erase(d.code.begin() + static_cast<std::ptrdiff_t>(d.find(Command::fpatr)));
       d.insert(between(random, first_binding(d) + 1, d.code.size() - 1), fpatr);
       return true;
     }},
    {A6,
     {},
     any_operation,
     as_it_is,
     [](Draft& d, Random& random) {
       const auto dims = positions(d, Command::dim);
       if (dims.empty()) return false;
       const std::size_t at = random.pick(dims);
       const int lb = d.code[at][Field::lb];
       const auto form = static_cast<Form>(static_cast<int>(Form::b_dim_lb0) + lb);
       const auto value = static_cast<int>(random.below(64));
       d.insert(between(random, at + 1, d.code.size() - 1), Instruction(form).set(Field::imm, value));
       return true;
     }},
    {A7,
     {},
     any_operation,
     as_it_is,
     [](Draft& d, Random& random) {
       std::size_t at = Draft::npos;
       for (std::size_t i = 0; i < d.code.size() && at == Draft::npos; ++i) {
         if (d.code[i].command() == Command::ios || d.code[i].command() == Command::iot) at = i;
       }
       if (at == Draft::npos) return false;
       const std::int32_t mode = other_pe_mode(d, random);
       d.insert(between(random, at + 1, d.code.size() - 1), shared_iot(random, isa::pe_mask(mode)));
       return true;
     }},
    {A8,
     {},
     matmul,
     cooperative,
     [](Draft& d, Random& random) {
       const auto shared = positions(d, Command::ios);
       const std::size_t at = random.pick(shared);
       const Instruction again = d.code[at];
       d.insert(between(random, at + 1, shared.back() + 1), again);
       return true;
     }},
    {A9,
     {},
     matmul,
     cooperative,
     [](Draft& d, Random& random) {
       const std::size_t at = positions(d, Command::ios).back();
       std::vector<bool> bound(machine::shared_tiles, false);
       std::size_t count = 0;
       for (const Instruction& i : d.code) {
         if (i.command() != Command::ios) continue;
         bound[static_cast<std::size_t>(i[Field::shared_tile])] = true;
         ++count;
       }
       while (count < 5) {
         const Instruction extra = shared_iot(random, d.mask);
         const auto id = static_cast<std::size_t>(extra[Field::shared_tile]);
         if (bound[id]) continue;
         bound[id] = true;
         d.insert(at + 1, extra);
         ++count;
       }
       return true;
     }},
    {A10,
     {},
     any_operation,
     local_transfer,
     [](Draft& d, Random& random) {
       if (last_iot(d) == nullptr) return false;
       d.insert(d.code.size() - 1, source_iot(d, random));
       return true;
     }},
    {A11,
     {},
     binds_two,
     several_bindings,
     [](Draft& d, Random& random) {
       const auto bindings = positions(d, Command::iot);
       const std::size_t at = bindings[1 + random.below(bindings.size() - 1)];
       d.code[at].set(Field::pe_mode, other_pe_mode(d, random));
       return true;
     }},
    {A12,
     {},
     any_operation,
     local_transfer,
     [](Draft& d, Random& random) {
       const std::size_t at = d.find(Command::iot);
       if (at == Draft::npos) return false;
       for (int i = 0; i < 17; ++i) d.insert(at, source_iot(d, random));
       return true;
     }},
    {A13, "a bundle starts where the last one ended, and every word has an even length", nullptr, nullptr, nullptr},
    {A14,
     {},
     any_operation,
     as_it_is,
     [](Draft& d, Random&) {
       d.code = {d.code.back()};
       return true;
     }},
    {A15, "a bundle ends at an even address, because every word has an even length", nullptr, nullptr, nullptr},
    {A16,
     {},
     any_operation,
     as_it_is,
     [](Draft& d, Random& random) {
       if (d.find(Command::catr) == Draft::npos) d.insert(header_place(d, random), Instruction(Form::b_catr));
       d.code[d.find(Command::catr)].set(Field::trap, 1);
       return true;
     }},
    {A17, "the fetch of a word is refused before there is one", nullptr, nullptr, nullptr},
    {P1,
     {},
     cube,
     as_it_is,
     [](Draft& d, Random&) {
       fpatr_of(d).set(Field::row_max_en, 0).set(Field::row_max_init, 1);
       return true;
     }},
    {P2,
     {},
     cube,
     as_it_is,
     [](Draft& d, Random& random) {
       Instruction& fpatr = fpatr_of(d);
       if (random.chance(2)) {
         fpatr.set(Field::group_max_en, 1).set(Field::group_n_code, 0);
       } else {
         fpatr.set(Field::group_max_en, 0).set(Field::group_n_code, static_cast<int>(1 + random.below(9)));
       }
       return true;
     }},
    {P3,
     {},
     cube,
     as_it_is,
     [](Draft& d, Random&) {
       Instruction& fpatr = fpatr_of(d);
       for (const Field f : {Field::row_max_en, Field::row_max_init, Field::group_max_en, Field::group_n_code}) {
         fpatr.set(f, 0);
       }
       fpatr.set(Field::max_abs_en, 1);
       return true;
     }},
    {B0,
     {},
     cube,
     as_it_is,
     [](Draft& d, Random& random) {
       if (d.find(Command::catr) == Draft::npos) d.insert(header_place(d, random), Instruction(Form::b_catr));
       d.code[d.find(Command::catr)].set(Field::dr, 1);
       return true;
     }},
    {B2,
     {},
     cube,
     as_it_is,
     [](Draft& d, Random&) {
       d.code.erase(d.code.begin() + static_cast<std::ptrdiff_t>(d.find(Command::fpatr)));
       return true;
     }},
    {B3,
     {},
     conversion,
     as_it_is,
     [](Draft& d, Random& random) {
       Instruction start(Form::bstart_tepl);
       start.set(Field::data_type, static_cast<int>(d.recipe.head.a));
       start.set(Field::mode, static_cast<int>(random.below(4)));
       start.set(Field::function, static_cast<int>(random.below(32)));
       const isa::Decoded decoded = isa::decode(isa::Codec::encode(start).bits);
       if (!decoded || decoded->form() != Form::bstart_tepl) return false;
       d.code[0] = start;
       return true;
     }},
    {C1,
     {},
     cube,
     as_it_is,
     [](Draft& d, Random& random) {
       static constexpr DataType others[] = {DataType::fp64, DataType::s64,  DataType::u64,  DataType::s32,
                                             DataType::u32,  DataType::e8m0, DataType::s8,   DataType::hif4x2,
                                             DataType::u16,  DataType::fp32, DataType::hif8, DataType::e3m2};
       if (random.chance(2)) {
         d.code[0].set(Field::data_type, static_cast<int>(pick(random, others)));
       } else {
         datr_of(d, random).set(Field::data_type, static_cast<int>(pick(random, others)));
       }
       return true;
     }},
    {C2,
     {},
     cube,
     local_only,
     [](Draft& d, Random& random) {
       std::vector<bool> bound(machine::shared_tiles, false);
       for (auto count = 1 + random.below(3); count-- > 0;) {
         const Instruction extra = shared_iot(random, d.mask);
         const auto id = static_cast<std::size_t>(extra[Field::shared_tile]);
         if (bound[id]) return false;
         bound[id] = true;
         d.insert(d.find(Command::iot), extra);
       }
       return true;
     }},
    {C3,
     {},
     cube,
     as_it_is,
     [](Draft& d, Random& random) {
       d.insert(d.find(Command::iot), source_iot(d, random));
       return true;
     }},
    {C4,
     {},
     cube,
     as_it_is,
     [](Draft& d, Random& random) {
       Instruction extra(Form::b_iot_dst);
       extra.set(Field::pe_mode, pe_mode_of(d.mask)).set(Field::size_code, static_cast<int>(1 + random.below(4)));
       extra.set(Field::dst_tile, static_cast<int>(random.below(machine::hand_count)));
       d.insert(d.find(Command::iot), extra);
       return true;
     }},
    {C5,
     {},
     cube,
     as_it_is,
     [](Draft& d, Random&) {
       last_iot(d)->set(Field::last, 0);
       return true;
     }},
    {C6,
     {},
     cube,
     as_it_is,
     [](Draft& d, Random& random) {
       std::size_t at = d.find(Command::ior);
       if (at == Draft::npos) {
         at = between(random, d.find(Command::fpatr) + 1, d.code.size() - 1);
         d.insert(at, Instruction(Form::b_ior));
       }
       const auto reg = static_cast<int>(1 + random.below(isa::gpr_count - 1));
       d.code[at].set(random.chance(2) ? Field::reg_dst : Field::reg_src2, reg);
       return true;
     }},
    {C7,
     {},
     cube,
     as_it_is,
     [](Draft& d, Random& random) {
       Instruction& datr = datr_of(d, random);
       switch (random.below(4)) {
         case 0:
           datr.set(Field::layout, isa::layout_names[1 + random.below(isa::layout_names.size() - 1)].code);
           break;
         case 1:
           datr.set(Field::pad_value, static_cast<int>(1 + random.below(3)));
           break;
         case 2:
           datr.set(Field::cmode, static_cast<int>(1 + random.below(5)));
           break;
         default:
           datr.set(Field::canonicalize, 1);
           break;
       }
       return true;
     }},
    {C8,
     {},
     cube,
     as_it_is,
     [](Draft& d, Random& random) {
       if (d.recipe.sharing != Sharing::local && random.chance(2)) {
         set_dimension(d, random, 0, static_cast<std::uint32_t>(129 + random.below(200)));
       } else {
         set_dimension(d, random, static_cast<int>(random.below(3)), 0);
       }
       return true;
     }},
    {C9,
     {},
     cube,
     [](Recipe& r, Random& random) {
       return choose_mode(r, random, [](const Post& p) {
         return p.mode->rounding_rule == RoundingRule::fixed || !p.mode->saturation_allowed;
       });
     },
     [](Draft& d, Random& random) {
       Instruction& datr = datr_of(d, random);
       const PreQuantMode& mode = *d.recipe.post.mode;
       if (!mode.saturation_allowed && random.chance(2)) {
         datr.set(Field::sat, 1);
       } else {
         datr.set(Field::rmode, static_cast<int>(1 + random.below(7)));
       }
       return true;
     }},
    {C10,
     {},
     matmul,
     cooperative,
     [](Draft& d, Random& random) {
       const std::int32_t mode = other_pe_mode(d, random);
       const bool all = random.chance(2);  // equal masks, but not 1111
       for (Instruction& i : d.code) {
         if (i.command() == Command::iot || (all && i.command() == Command::ios)) i.set(Field::pe_mode, mode);
       }
       return true;
     }},
    {C11,
     {},
     gemv,
     as_it_is,
     [](Draft& d, Random& random) {
       set_dimension(d, random, 0, static_cast<std::uint32_t>(2 + random.below(15)));
       return true;
     }},
    {D1,
     {},
     cube,
     [](Recipe& r, Random& random) {
       r.sharing = random.chance(2) ? Sharing::local : Sharing::right;
       return true;
     },
     [](Draft& d, Random& random) {
       const bool local = d.recipe.sharing == Sharing::local;
       fpatr_of(d).set(local && random.chance(2) ? Field::trans_b : Field::trans_a, 1);
       return true;
     }},
    {D2,
     {},
     matmul,
     cooperative,
     [](Draft& d, Random& random) {
       const auto shared = positions(d, Command::ios);
       Instruction& ios = d.code[random.pick(shared)];
       machine::SharedRecord& record = d.state.shared[static_cast<std::size_t>(ios[Field::shared_tile])];
       switch (random.below(4)) {
         case 0:
           record = {};
           return true;
         case 1:
           record.whole_parent_ready = record.published = false;
           return true;
         case 2:
           ios.set(Field::size_code, static_cast<int>(1 + random.below(12)));
           return true;
         default: {
           const machine::TileDescriptor& t = record.tile->descriptor();
           std::vector<uint64> words = record.tile->valid_words();
           words.resize(words.size() + t.valid_columns, 0);
           auto tile = machine::make_ordinary_tile(TileLayout::row_major, t.type, t.valid_rows + 1, t.valid_columns,
                                                   words, 0, 0, machine::shared_capacity_limit);
           if (!tile) return false;
           tile->descriptor().allocation_mask = machine::full_mask;
           record.tile = machine::share(std::move(*tile));
           return true;
         }
       }
     }},
    {F0, {}, cube, as_it_is, lose_source},
    {F1,
     {},
     cube,
     [](Recipe& r, Random& random) {
       return choose_mode(r, random, [](const Post& p) {
         return p.relu == 2 || (p.mode->carrier != CarrierKind::none && !p.mode->per_column);
       });
     },
     [](Draft& d, Random& random) {
       const std::size_t at = d.find(Command::ior);
       if (at == Draft::npos) return false;
       const Field field = d.code[at][Field::reg_src1] != 0 && random.chance(2) ? Field::reg_src1 : Field::reg_src0;
       const auto reg = static_cast<std::size_t>(d.code[at][field]);
       std::vector<unsigned> pes;
       for (unsigned pe = 0; pe < machine::pe_count; ++pe) {
         if ((d.mask & machine::pe_bit(pe)) != 0) pes.push_back(pe);
       }
       d.state.pe[random.pick(pes)].gpr[reg] ^= uint64{1} << random.below(64);
       return true;
     }},
    {F2,
     {},
     [](Operation o) { return cube(o) && o != Operation::tmatmul_mx_acc; },
     [](Recipe& r, Random&) {
       r.c_scale = true;
       return !scaling_c(r.head.operation) || accumulator_of(r.head) != DataType::fp32;
     },
     [](Draft&, Random&) { return true; }},
    {F3,
     {},
     cube,
     [](Recipe& r, Random& random) {
       std::vector<const PreQuantMode*> modes;
       for (const PreQuantMode& m : prequant_modes) {
         if (m.accumulator != DataType::none && m.accumulator != accumulator_of(r.head)) modes.push_back(&m);
       }
       r.post = {.mode = random.pick(modes), .relu = static_cast<std::uint8_t>(random.below(4))};
       return true;
     },
     [](Draft&, Random&) { return true; }},
    {F4,
     {},
     cube,
     [](Recipe& r, Random&) {
       r.row_max_init = true;
       return true;
     },
     [](Draft& d, Random& random) {
       const Source* s = pick_source(d, random, is_role<Role::row_max_in>);
       return s != nullptr && spoil_tile(d, *s, random);
     }},
    {F5,
     {},
     cube,
     [](Recipe& r, Random& random) { return choose_mode(r, random, [](const Post& p) { return p.mode->per_column; }); },
     [](Draft& d, Random& random) {
       const Source* s = pick_source(d, random, is_role<Role::quant_vector>);
       if (s == nullptr) return false;
       return random.chance(2) ? spoil_carrier(d, *s, random) : spoil_tile(d, *s, random);
     }},
    {F6,
     {},
     cube,
     [](Recipe& r, Random& random) { return choose_mode(r, random, [](const Post& p) { return p.relu == 3; }); },
     [](Draft& d, Random& random) {
       const Source* s = pick_source(d, random, is_role<Role::relu_vector>);
       if (s == nullptr) return false;
       return random.chance(2) ? spoil_carrier(d, *s, random) : spoil_tile(d, *s, random);
     }},
    {F7,
     {},
     cube,
     as_it_is,
     [](Draft& d, Random& random) {
       const Source* s = pick_source(d, random, mathematical);
       return s != nullptr && spoil_tile(d, *s, random);
     }},
    {F8,
     {},
     accumulating,
     [](Recipe& r, Random&) {
       r.c_name_is_hand = true;
       return true;
     },
     [](Draft&, Random&) { return true; }},
    {F9,
     {},
     scaling_c,
     [](Recipe& r, Random&) {
       r.c_scale_name_is_hand = true;
       r.c_scale = true;
       return accumulator_of(r.head) == DataType::fp32;
     },
     [](Draft&, Random&) { return true; }},
    {F10,
     {},
     matmul,
     [](Recipe& r, Random& random) {
       r.sharing = Sharing::local;
       r.exact_dims[0] = static_cast<std::uint32_t>(33 + random.below(32));
       return true;
     },
     [](Draft&, Random&) { return true; }},
    {G1,
     {},
     [](Operation o) { return o != Operation::tstore; },
     local_transfer,
     [](Draft& d, Random& random) {
       const Instruction* iot = destination_of(d, 0);
       if (iot == nullptr) return false;
       d.state.options.name_policy = machine::NamePolicy::absolute;
       const auto hand = static_cast<unsigned>((*iot)[Field::dst_tile]);
       std::vector<unsigned> pes;
       for (unsigned pe = 0; pe < machine::pe_count; ++pe) {
         if ((d.mask & machine::pe_bit(pe)) != 0) pes.push_back(pe);
       }
       const unsigned pe = random.pick(pes);
       const uint64 zero[] = {0};
       for (unsigned i = 0; i < machine::hand_tiles; ++i) {
         machine::TileRef& ref = d.state.pe[pe].local[machine::hand_tiles * hand + i];
         if (ref != nullptr) continue;
         auto tile = machine::make_ordinary_tile(TileLayout::row_major, DataType::u8, 1, 1, zero);
         tile->descriptor().allocation_mask = static_cast<std::uint8_t>(machine::pe_bit(pe));
         ref = machine::share(std::move(*tile));
       }
       return true;
     }},
    {G2,
     {},
     [](Operation o) { return o != Operation::tstore; },
     local_transfer,
     [](Draft& d, Random& random) {
       const Instruction* iot = destination_of(d, 0);
       if (iot == nullptr) return false;
       const std::uint32_t bytes = machine::size_code_bytes(static_cast<unsigned>((*iot)[Field::size_code]));
       std::vector<unsigned> pes;
       for (unsigned pe = 0; pe < machine::pe_count; ++pe) {
         if ((d.mask & machine::pe_bit(pe)) != 0) pes.push_back(pe);
       }
       const auto hand = static_cast<unsigned>((*iot)[Field::dst_tile]);
       return fill_pool(d, random.pick(pes), hand, bytes - machine::cell_bytes);
     }},
    {G3,
     {},
     cube,
     [](Recipe& r, Random&) {
       r.dims[0] = r.dims[1] = DimClass::aligned;  // several CELLs
       r.exact_dims[1] = 32;
       return true;
     },
     [](Draft& d, Random&) {
       Instruction* iot = destination_of(d, 0);
       const std::int32_t code = (*iot)[Field::size_code];
       if (code == 1) return false;
       iot->set(Field::size_code, code - 1);
       return true;
     }},
    {G4,
     {},
     cube,
     [](Recipe& r, Random&) {
       r.group_max = true;
       r.exact_dims[1] = 40;  // eight columns in storage
       if (!isa::is_gemv(r.head.operation)) r.dims[0] = DimClass::aligned;
       // One row of up to 32 groups always fits.
       if (isa::is_gemv(r.head.operation)) {
         r.exact_dims[1] = 264;
         r.exact_dims[2] = 1;
       }
       return true;
     },
     [](Draft& d, Random&) {
       std::size_t number = 0;
       while (destination_of(d, number) != nullptr) ++number;
       destination_of(d, number - 1)->set(Field::size_code, 1);
       return true;
     }},
    {T1,
     {},
     not_cube,
     local_transfer,
     [](Draft& d, Random&) {
       if (last_iot(d) == nullptr) return false;
       last_iot(d)->set(Field::last, 0);
       return true;
     }},
    {T2,
     {},
     transfer,
     local_transfer,
     [](Draft& d, Random& random) {
       const std::size_t at = d.find(Command::iot);
       d.insert(at, random.chance(2) ? source_iot(d, random) : shared_iot(random, d.mask));
       return true;
     }},
    {T3,
     {},
     load_or_store,
     shared_transfer,
     [](Draft& d, Random& random) {
       d.code[d.find(Command::ios)].set(Field::pe_mode, static_cast<int>(5 + random.below(2)));
       return true;
     }},
    {T4, {}, transfer, as_it_is, spoil_attributes},
    {T5,
     {},
     transfer,
     as_it_is,
     [](Draft& d, Random& random) {
       Instruction& datr = datr_of(d, random);
       datr.set(Field::data_type, static_cast<int>(DataType::none)).set(Field::pad_value, 0);
       datr.set(Field::layout, isa::layout_names[random.below(isa::layout_names.size())].code);
       return true;
     }},
    {T6, {}, transfer, as_it_is, spoil_any_dimension},
    {T7,
     {},
     transfer,
     as_it_is,
     [](Draft& d, Random& random) {
       static constexpr DataType others[] = {DataType::fp64, DataType::u64, DataType::fp16, DataType::e4m3,
                                             DataType::u8};
       const DataType type = pick(random, others);
       if (const std::size_t at = d.find(Command::datr); at != Draft::npos) {
         d.code[at].set(Field::data_type, static_cast<int>(DataType::none));
       }
       d.code[0].set(Field::data_type, static_cast<int>(type));
       return true;
     }},
    {T8,
     {},
     transfer,
     as_it_is,
     [](Draft& d, Random& random) {
       std::size_t at = d.find(Command::ior);
       if (at == Draft::npos) {
         at = header_place(d, random);
         d.insert(at, Instruction(Form::b_ior));
       }
       const auto reg = static_cast<int>(1 + random.below(isa::gpr_count - 1));
       d.code[at].set(random.chance(2) ? Field::reg_dst : Field::reg_src2, reg);
       return true;
     }},
    {T9, {}, store_or_move, local_transfer, lose_source},
    {T10,
     {},
     store_or_move,
     local_transfer,
     [](Draft& d, Random& random) {
       const Source* s = pick_source(d, random, any_role);
       Tile copy = tile_of(d, *s);
       const machine::TileDescriptor& t = copy.descriptor();
       const auto row = static_cast<std::uint32_t>(random.below(t.valid_rows));
       copy.undefine_element(row, static_cast<std::uint32_t>(random.below(t.valid_columns)));
       d.replace(*s, std::move(copy));
       return true;
     }},
    {T11,
     {},
     load_or_store,
     as_it_is,
     [](Draft& d, Random& random) {
       const Instruction& ior = d.code[d.find(Command::ior)];
       const Field field = d.m > 1 && random.chance(2) ? Field::reg_src1 : Field::reg_src0;  // stride or base
       for (machine::Pe& pe : d.state.pe) pe.gpr[static_cast<std::size_t>(ior[field])] ^= 1;
       return machine::tile_format(d.recipe.head.a)->lane_bits > 8;
     }},
    {T12,
     {},
     load_or_store,
     as_it_is,
     [](Draft& d, Random& random) {
       const auto reg = static_cast<std::size_t>(d.code[d.find(Command::ior)][Field::reg_src0]);
       const uint64 away = uint64{1} << (40 + random.below(20));
       for (machine::Pe& pe : d.state.pe) pe.gpr[reg] ^= away;
       return true;
     }},
    {T13,
     {},
     load_or_move,
     [](Recipe& r, Random& random) {
       r.exact_dims[0] = 16;
       r.exact_dims[1] = static_cast<std::uint32_t>(24 + random.below(8));
       return true;
     },
     [](Draft& d, Random&) {
       for (Instruction& i : d.code) {
         if ((i.command() == Command::iot || i.command() == Command::ios) && i[Field::size_code] > 1) {
           i.set(Field::size_code, i[Field::size_code] - 1);
           return true;
         }
       }
       return false;
     }},
    {V1,
     {},
     conversion,
     as_it_is,
     [](Draft& d, Random& random) {
       switch (random.below(3)) {
         case 0: {
           std::size_t at = d.find(Command::ior);
           if (at == Draft::npos) {
             at = header_place(d, random);
             d.insert(at, Instruction(Form::b_ior));
           }
           d.code[at].set(Field::reg_src2, static_cast<int>(1 + random.below(isa::gpr_count - 1)));
           break;
         }
         case 1:
           d.insert(d.find(Command::iot), source_iot(d, random));
           break;
         default:
           d.insert(d.find(Command::iot), shared_iot(random, d.mask));
           break;
       }
       return true;
     }},
    {V2, {}, conversion, as_it_is, spoil_any_dimension},
    {V3,
     {},
     conversion,
     as_it_is,
     [](Draft& d, Random& random) {
       static constexpr DataType others[] = {DataType::e8m0, DataType::hif4x2, DataType::e2m1x2, DataType::fp64,
                                             DataType::s16};
       d.code[0].set(Field::data_type, static_cast<int>(pick(random, others)));
       return true;
     }},
    {V4,
     {},
     tcvt,
     as_it_is,
     [](Draft& d, Random& random) {
       Instruction& datr = datr_of(d, random);
       switch (random.below(3)) {
         case 0:
           datr.set(Field::canonicalize, 1);
           break;
         case 1:
           datr.set(Field::cmode, static_cast<int>(1 + random.below(5)));
           break;
         default:
           datr.set(Field::layout, isa::layout_names[1 + random.below(isa::layout_names.size() - 1)].code);
           break;
       }
       return true;
     }},
    {V5,
     {},
     conversion,
     as_it_is,
     [](Draft& d, Random& random) {
       const Source* s = pick_source(d, random, any_role);
       if (random.chance(3)) {
         d.state.pe[s->pe].local[s->name] = nullptr;
         return true;
       }
       return spoil_tile(d, *s, random);
     }},
    {V6,
     {},
     tcvt,
     [](Recipe& r, Random&) { return machine::tile_format(r.head.a)->low_zero_bits != 0; },
     [](Draft& d, Random& random) {
       const Source* s = pick_source(d, random, any_role);
       Tile copy = tile_of(d, *s);
       const machine::TileDescriptor& t = copy.descriptor();
       const auto row = static_cast<std::uint32_t>(random.below(t.valid_rows));
       const auto column = static_cast<std::uint32_t>(random.below(t.valid_columns));
       const uint64 bit = uint64{1} << random.below(copy.format().low_zero_bits);
       copy.set_element(row, column, copy.element(row, column) | bit);
       d.replace(*s, std::move(copy));
       return true;
     }},
    {V7,
     {},
     conversion,
     [](Recipe& r, Random& random) {
       r.exact_dims[0] = 16;
       r.exact_dims[1] = static_cast<std::uint32_t>(33 + random.below(32));
       return true;
     },
     [](Draft& d, Random&) {
       Instruction* iot = destination_of(d, 0);
       const std::int32_t code = (*iot)[Field::size_code];
       if (code == 1) return false;
       iot->set(Field::size_code, code - 1);
       return true;
     }},
    {Q1,
     {},
     affine,
     as_it_is,
     [](Draft& d, Random& random) {
       const std::size_t at = d.find(Command::datr);
       switch (random.below(4)) {
         case 0:
           d.code.erase(d.code.begin() + static_cast<std::ptrdiff_t>(at));
           break;
         case 1:
           d.code[at].set(Field::data_type, static_cast<int>(DataType::s16));
           break;
         case 2:
           d.code[at].set(Field::pad_value, static_cast<int>(1 + random.below(3)));
           break;
         default:
           d.code[at].set(Field::canonicalize, 1);
           break;
       }
       return true;
     }},
    {Q2,
     {},
     affine,
     as_it_is,
     [](Draft& d, Random& random) {
       const std::size_t at = d.find(Command::ior);
       if (at == Draft::npos) return false;
       static constexpr uint64 multipliers[] = {0, 0x80000000, 0xBF800000, 0x7F800000, 0x7FC00000, 0x13F800000};
       static constexpr uint64 zero_points[] = {256, 128 + 256, ~uint64{0} << 8, 0x8000000000000000};
       const bool multiplier = random.chance(2);
       const Field field = multiplier ? Field::reg_src0 : Field::reg_src1;
       const uint64 word = multiplier ? pick(random, multipliers) : pick(random, zero_points);
       for (machine::Pe& pe : d.state.pe) pe.gpr[static_cast<std::size_t>(d.code[at][field])] = word;
       return true;
     }},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kBreakers.size(); ++i) {
    if (static_cast<std::size_t>(kBreakers[i].rule) != i) return false;
    if (kBreakers[i].why.empty() != (kBreakers[i].spoil != nullptr)) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace

const RuleBreaker& breaker_of(RuleId rule) noexcept {
  return kBreakers[static_cast<std::size_t>(rule)];
}

std::span<const RuleReach> rule_reach() noexcept {
  static const auto table = [] {
    std::vector<RuleReach> rows;
    for (const RuleBreaker& b : kBreakers) {
      RuleReach row{b.rule, {}, std::string(b.why)};
      for (std::size_t o = 1; b.applies != nullptr && o < isa::operation_names.size(); ++o) {
        if (b.applies(static_cast<Operation>(o))) row.operations.push_back(static_cast<Operation>(o));
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }();
  return table;
}

}  // namespace bitcube::stimulus
