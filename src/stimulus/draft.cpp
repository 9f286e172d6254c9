// What all bundles are made of: elements, and instructions that are not particular to one operation.
#include <algorithm>

#include "recipe.hpp"

namespace bitcube::stimulus {

using isa::Command;
using isa::Field;
using isa::Form;
using isa::Instruction;

DimClass dim_class(std::uint32_t value, std::uint32_t unit) noexcept {
  if (value == 1) return DimClass::one;
  const std::uint32_t rest = value % unit;
  if (rest == 0) return DimClass::aligned;
  if (rest == unit - 1) return DimClass::below;
  return rest == 1 ? DimClass::above : DimClass::other;
}

bool dim_class_reachable(DimClass c, std::uint32_t unit, std::uint32_t limit) noexcept {
  switch (c) {
    case DimClass::one:
      return limit >= 1;
    case DimClass::aligned:
      return limit >= unit;
    case DimClass::below:
      return limit >= unit - 1;
    case DimClass::above:
      return limit >= unit + 1;
    case DimClass::other:
      return limit >= 2;
  }
  return false;
}

std::size_t Draft::find(Command command, std::size_t from) const noexcept {
  for (std::size_t i = from; i < code.size(); ++i) {
    if (code[i].command() == command) return i;
  }
  return npos;
}

void Draft::replace(const Source& source, machine::Tile tile) {
  machine::TileRef& ref = state.pe[source.pe].local[source.name];
  tile.descriptor().allocation_mask = ref->descriptor().allocation_mask;
  ref = machine::share(std::move(tile));
}

// ---- Elements

namespace {

/// The codes of a type of at most 8 bits whose sums and products stay small.
const std::vector<uint64>& tame_codes(const Format& f) {
  static const auto table = [] {
    std::array<std::vector<uint64>, 32> codes;
    for (const Format& g : formats) {
      if (g.is_integer() || g.lane_bits > 8) continue;
      for (uint64 code = 0; code <= low_mask(g.value_bits); ++code) {
        const Value v = decode(g, code);
        if (!v.is_finite()) continue;
        const int top = bit_length(v.real.significand) + v.real.exponent;
        if (v.real.is_zero() || (top < 12 && top > -12)) codes[static_cast<std::size_t>(g.type)].push_back(code);
      }
    }
    return codes;
  }();
  return table[static_cast<std::size_t>(f.type)];
}

const std::vector<uint64>& corner_codes(const Format& f) {
  static const auto table = [] {
    std::array<std::vector<uint64>, 32> codes;
    for (const Format& g : formats) {
      for (const uint64 word : verify::corner_words(g)) {
        if (!g.is_integer() && decode(g, word).cls == Class::invalid) continue;
        codes[static_cast<std::size_t>(g.type)].push_back(word & low_mask(g.lane_bits));
      }
    }
    return codes;
  }();
  return table[static_cast<std::size_t>(f.type)];
}

}  // namespace

uint64 Elements::tame(const Format& f) {
  if (f.is_integer()) {
    const auto small = static_cast<int64>(random_.below(4096)) - (f.kind == Kind::signed_integer ? 2048 : 0);
    return static_cast<uint64>(small) & low_mask(f.lane_bits);
  }
  if (f.lane_bits <= 8) return random_.pick(tame_codes(f));
  if (random_.chance(16)) return 0;
  const uint64 sign = random_.below(2);
  const uint64 exponent = static_cast<uint64>(f.bias) + random_.below(9) - 4;
  const uint64 fraction = random_.next() & low_mask(f.fraction_bits);
  return (sign << (f.exponent_bits + f.fraction_bits) | exponent << f.fraction_bits | fraction) << f.low_zero_bits;
}

uint64 Elements::corner(const Format& f) {
  return random_.pick(corner_codes(f));
}

std::vector<uint64> Elements::matrix(const Format& f, std::size_t count) {
  std::vector<uint64> words(count);
  const bool wild = random_.chance(10);
  // In one matrix of four there are corners at all, so that not every sum is a NaN.
  const bool corners = corners_ != 0 && (corners_ >= 100 || random_.chance(4));
  const uint64 percent = corners_ >= 100 ? 100 : std::min(100U, 4 * corners_);
  for (uint64& word : words) {
    if (wild) {
      word = verify::random_word(random_, f) & low_mask(f.lane_bits);
    } else if (corners && random_.below(100) < percent) {
      word = corner(f);
    } else {
      word = tame(f);
    }
  }
  return words;
}

// ---- Parts of words

std::int32_t pe_mode_of(unsigned mask) noexcept {
  for (int i = 0; i < 8; ++i) {
    if (isa::pe_mask(i) == mask) return i;
  }
  return 0;
}

std::int32_t size_code_for(std::uint32_t bytes) noexcept {
  std::int32_t code = 1;
  while (code < 12 && machine::size_code_bytes(static_cast<unsigned>(code)) < bytes) ++code;
  return code;
}

Form start_form(isa::Operation operation) noexcept {
  for (const isa::FormInfo& f : isa::forms) {
    if (f.operation == operation) return f.form;
  }
  return Form::bstop;
}

unsigned take_register(Draft& draft, Random& random) noexcept {
  const auto first = static_cast<unsigned>(1 + random.below(isa::gpr_count - 1));
  for (unsigned i = 0; i < isa::gpr_count - 1U; ++i) {
    const unsigned reg = 1 + (first - 1 + i) % (isa::gpr_count - 1U);
    if ((draft.used_registers >> reg & 1) != 0) continue;
    draft.used_registers |= 1U << reg;
    return reg;
  }
  return 0;
}

Instruction dimension(Draft& draft, Random& random, int lb, std::uint32_t value) {
  if (value < 256 && random.chance(2)) {
    return Instruction(Form::c_b_dimi).set(Field::lb, lb).set(Field::imm, static_cast<int>(value));
  }
  Instruction i(static_cast<Form>(static_cast<int>(Form::b_dim_lb0) + lb));
  std::uint32_t imm = value;
  if (random.chance(4)) {
    const unsigned reg = take_register(draft, random);
    if (reg != 0) {
      const auto part = static_cast<std::uint32_t>(random.below(value + 1));
      draft.state.pe[0].gpr[reg] = part;
      i.set(Field::reg_src, static_cast<int>(reg));
      imm = value - part;
    }
  }
  return i.set(Field::imm, static_cast<int>(imm));
}

void add_header(Draft& draft, Random& random, std::vector<Instruction> header) {
  if (random.chance(8)) {
    Instruction hint(Form::b_hint);
    hint.set(Field::prefetch, static_cast<int>(random.below(4096))).set(Field::temp, static_cast<int>(random.below(4)));
    hint.set(Field::likely, static_cast<int>(random.below(2))).set(Field::valid, static_cast<int>(random.below(2)));
    header.push_back(hint);
  }
  if (random.chance(8)) {
    Instruction catr(Form::b_catr);
    for (const Field field : {Field::far, Field::atom, Field::aq, Field::rl}) {
      catr.set(field, static_cast<int>(random.below(2)));
    }
    if (!isa::is_cube(draft.recipe.head.operation)) catr.set(Field::dr, static_cast<int>(random.below(2)));
    header.push_back(catr);
  }
  while (!header.empty()) {
    const std::size_t at = random.below(header.size());
    draft.code.push_back(header[at]);
    header.erase(header.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

Instruction stop(Random& random) {
  static constexpr Form forms[] = {Form::bstop, Form::bstop, Form::c_bstop, Form::l_bstop};
  return Instruction(pick(random, forms));
}

Expected<Draft> make_draft(const Recipe& recipe, const BundleOptions& options, Random& random) {
  const isa::Operation operation = recipe.head.operation;
  if (isa::is_cube(operation)) return make_cube(recipe, options, random);
  return is_transfer(operation) ? make_transfer(recipe, options, random) : make_conversion(recipe, options, random);
}

bool is_conversion(isa::Operation o) noexcept {
  return o == isa::Operation::tcvt || o == isa::Operation::tquant || o == isa::Operation::tdequant;
}
bool is_transfer(isa::Operation o) noexcept {
  return o == isa::Operation::tload || o == isa::Operation::tstore || o == isa::Operation::tmov;
}

}  // namespace bitcube::stimulus
