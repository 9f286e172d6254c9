// Every instruction word of the CUBE subset as data (architecture 2). Decoder, encoder, assembler, disassembler and
// the generated listing read this table; nothing restates it. To add an instruction:
//   1. name it in Form (and in Command, Operation or Field where it brings a new one);
//   2. add its row to `forms`: every bit of the word as a field, and its text as operands;
//   3. `well_formed` below refuses rows that leave a bit out, use one twice, or cannot be told from another row;
//   4. the tests over all forms (flips, random fields, text round trip, exhaustive decode) take the row up by
//   themselves.
// The contract names the bits that vary. The names of those that do not (Unit, Func, Opc1, Opcode, W, Block) follow
// B.FPATR where it names them, and are this project's elsewhere.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "bitcube/cube/prequant.hpp"
#include "bitcube/isa/codes.hpp"

namespace bitcube::isa {

/// One row of `forms`.
enum class Form : std::uint8_t {
  bstart_tmatmul,
  bstart_tmatmul_bias,
  bstart_tmatmul_acc,
  bstart_tmatmul_mx,
  bstart_tmatmul_mx_bias,
  bstart_tmatmul_mx_acc,
  bstart_tgemv,
  bstart_tgemv_bias,
  bstart_tgemv_acc,
  bstart_tgemv_mx,
  bstart_tgemv_mx_bias,
  bstart_tgemv_mx_acc,
  bstart_tload,
  bstart_tstore,
  bstart_tmov,
  bstart_tcvt,
  bstart_tquant,
  bstart_tdequant,
  bstart_tepl,  // any other Mode and Function of the unit: accepted here, unassigned at completion (architecture 4.1)
  bstart_direct,
  bstart_cond,
  c_bstart_direct,
  c_bstart_cond,
  c_bstart_std,
  c_bstart_fp,
  c_bstart_sys,
  b_catr,
  b_datr,
  b_fpatr,
  b_dim_lb0,
  b_dim_lb1,
  b_dim_lb2,
  c_b_dimi,
  b_ios,
  b_iot_dst,
  b_iot_src0,
  b_iot_src0_dst,
  b_iot_src0_src1,
  b_iot_src0_src1_dst,
  b_ior,
  b_hint,
  b_hint_trace,
  bstop,
  c_bstop,
  l_bstop,
  count
};

/// What a form does to a bundle; forms of one command differ only in their operands.
enum class Command : std::uint8_t { bstart, catr, datr, fpatr, dim, ios, iot, ior, hint, hint_trace, stop };

/// The operation that a BSTART selects.
enum class Operation : std::uint8_t {
  none,  // not a BSTART, or one whose operation this model does not have
  tmatmul,
  tmatmul_bias,
  tmatmul_acc,
  tmatmul_mx,
  tmatmul_mx_bias,
  tmatmul_mx_acc,
  tgemv,
  tgemv_bias,
  tgemv_acc,
  tgemv_mx,
  tgemv_mx_bias,
  tgemv_mx_acc,
  tload,
  tstore,
  tmov,
  tcvt,
  tquant,
  tdequant,
};

/// Operations by name, as programs and states write them; the first is Operation::none.
inline constexpr std::array<std::string_view, 19> operation_names{
    "",       "TMATMUL",    "TMATMUL_BIAS", "TMATMUL_ACC", "TMATMUL_MX",    "TMATMUL_MX_BIAS", "TMATMUL_MX_ACC",
    "TGEMV",  "TGEMV_BIAS", "TGEMV_ACC",    "TGEMV_MX",    "TGEMV_MX_BIAS", "TGEMV_MX_ACC",    "TLOAD",
    "TSTORE", "TMOV",       "TCVT",         "TQUANT",      "TDEQUANT"};
static_assert(operation_names.size() == static_cast<std::size_t>(Operation::tdequant) + 1);

/// "TMATMUL_MX_BIAS"; empty for Operation::none.
constexpr std::string_view name_of(Operation operation) noexcept {
  return operation_names[static_cast<std::size_t>(operation)];
}
/// The operation of this name in any case, or nothing.
constexpr std::optional<Operation> find_operation(std::string_view name) noexcept {
  for (std::size_t i = 1; i < operation_names.size(); ++i) {
    if (equal_ignoring_case(operation_names[i], name)) return static_cast<Operation>(i);
  }
  return std::nullopt;
}

/// The unit that a BSTART addresses, as bits [19:15] of the word say.
enum class Unit : std::uint8_t { none = 0, tlsu = 2, tepl = 3, cube = 6 };

enum class Field : std::uint8_t {
  data_type,
  mode,
  function,
  offset,
  br_type,
  dr,
  trap,
  far,
  atom,
  aq,
  rl,
  cmode,
  pad_value,
  sat,
  canonicalize,
  rmode,
  layout,
  pre_quant_mode,
  relu_mode,
  group_n_code,
  row_max_en,
  group_max_en,
  row_max_init,
  max_abs_en,
  trans_a,
  trans_b,
  cscale_en,
  element_wise_en,
  lb,
  reg_src,
  imm,
  shared_tile,
  size_code,
  pe_mode,
  src_tile0,
  src_tile1,
  last,
  dst_tile,
  reg_src0,
  reg_src1,
  reg_src2,
  reg_dst,
  prefetch,
  temp,
  likely,
  valid,
  begin_end,
  unit,
  func,
  opc1,
  opcode,
  w,
  block,
  reserved,  // a form may have several; all are fixed
  count
};

/// How the values of a field are written.
enum class Notation : std::uint8_t {
  number,  // unsigned; printed in decimal
  offset,  // signed decimal
  bit,     // 0 or 1
  data_type,
  prequant,
  relu,  // printed as a number, as the contract's examples do
  group_n,
  layout,
  pad,
  compare,
  rmode,
  dimension,
  gpr,
  tile,
  hand,
  shared,
  pe_mask,
  size,
};

struct FieldInfo {
  Field field;
  std::string_view name;
  Notation notation;
  std::string_view meaning;
};

inline constexpr std::array<FieldInfo, static_cast<std::size_t>(Field::count)> field_infos{{
    {Field::data_type, "DataType", Notation::data_type, "Tile data type; of a matrix operation AType, in B.DATR BType"},
    {Field::mode, "Mode", Notation::number, "bank of the unit's functions"},
    {Field::function, "Function", Notation::number, "operation of the unit"},
    {Field::offset, "Offset", Notation::offset, "distance of the target in halfwords"},
    {Field::br_type, "BrType", Notation::number, "kind of branch"},
    {Field::dr, "DR", Notation::bit, "not for matrix operations"},
    {Field::trap, "trap", Notation::bit, "raise BundlePostCommit after success"},
    {Field::far, "far", Notation::bit, "does not change results"},
    {Field::atom, "atom", Notation::bit, "atomic"},
    {Field::aq, "aq", Notation::bit, "acquire"},
    {Field::rl, "rl", Notation::bit, "release"},
    {Field::cmode, "CMode", Notation::compare, "comparison"},
    {Field::pad_value, "PadValue", Notation::pad, "what padding is filled with"},
    {Field::sat, "Sat", Notation::bit, "saturate instead of overflowing"},
    {Field::canonicalize, "Canonicalize", Notation::bit, "TCVT from a private CUBE row-major Tile"},
    {Field::rmode, "RMode", Notation::rmode, "rounding"},
    {Field::layout, "Layout", Notation::layout, "change of layout"},
    {Field::pre_quant_mode, "PreQuantMode", Notation::prequant, "conversion of the accumulator to D"},
    {Field::relu_mode, "ReluMode", Notation::relu, "activation"},
    {Field::group_n_code, "GroupNCode", Notation::group_n,
     "columns of one GroupMax group: none, 8, 16, 32, 48, ... 128"},
    {Field::row_max_en, "RowMaxEn", Notation::bit, "produce RowMaxOut"},
    {Field::group_max_en, "GroupMaxEn", Notation::bit, "produce GroupMaxOut"},
    {Field::row_max_init, "RowMaxInit", Notation::bit, "combine RowMaxIn into RowMaxOut"},
    {Field::max_abs_en, "MaxAbsEn", Notation::bit, "reductions take absolute values"},
    {Field::trans_a, "TransA", Notation::bit, "transpose Shared A while reading"},
    {Field::trans_b, "TransB", Notation::bit, "transpose Shared B while reading"},
    {Field::cscale_en, "CScaleEn", Notation::bit, "scale accumulator C by 2^-n"},
    {Field::element_wise_en, "ElementWiseEn", Notation::bit, "not for matrix operations"},
    {Field::lb, "LB", Notation::dimension, "dimension that is set: LB0, LB1, LB2"},
    {Field::reg_src, "RegSrc", Notation::gpr, "register that the immediate is added to"},
    {Field::imm, "imm", Notation::number, "unsigned immediate"},
    {Field::shared_tile, "SharedTileID", Notation::shared, "Shared Tile"},
    {Field::size_code, "SizeCode", Notation::size, "bytes of the destination are 128 << (code - 1); 0: a source"},
    {Field::pe_mode, "PEMode", Notation::pe_mask, "participating PEs, PE0 first"},
    {Field::src_tile0, "SrcTile0", Notation::tile, "first Local source"},
    {Field::src_tile1, "SrcTile1", Notation::tile, "second Local source"},
    {Field::last, "L", Notation::bit, "the last Local binding of the bundle"},
    {Field::dst_tile, "DstTile", Notation::hand, "hand of the Local destination"},
    {Field::reg_src0, "RegSrc0", Notation::gpr, "first scalar"},
    {Field::reg_src1, "RegSrc1", Notation::gpr, "second scalar"},
    {Field::reg_src2, "RegSrc2", Notation::gpr, "third scalar"},
    {Field::reg_dst, "RegDst", Notation::gpr, "scalar destination"},
    {Field::prefetch, "prefetch", Notation::number, "hint without functional effect"},
    {Field::temp, "temp", Notation::number, "hint without functional effect"},
    {Field::likely, "L/UL", Notation::bit, "hint without functional effect"},
    {Field::valid, "V", Notation::bit, "hint without functional effect"},
    {Field::begin_end, "B/E", Notation::bit, "begin or end of a trace"},
    {Field::unit, "Unit", Notation::number, "unit of a BSTART: 2 TLSU, 3 TEPL, 6 CUBE"},
    {Field::func, "Func", Notation::number, "command within Opc1"},
    {Field::opc1, "Opc1", Notation::number, "group of commands"},
    {Field::opcode, "Opcode", Notation::number, "length and class of the instruction, with W"},
    {Field::w, "W", Notation::number, "0: 16 bits (48 with Opcode 7); 1: 32 bits (64 with Opcode 7)"},
    {Field::block, "Block", Notation::number, "kind of block of a 16-bit start or stop"},
    {Field::reserved, "Reserved", Notation::number, "fixed"},
}};

/// Bits [high:low] of a word.
struct BitRange {
  std::uint8_t high = 0;
  std::uint8_t low = 0;
  constexpr int width() const noexcept { return high - low + 1; }
};

enum class Constraint : std::uint8_t {
  any,
  one_of,    // the values whose bit is set in `legal`
  fixed,     // part of mask and match
  reserved,  // 0; DecodeOptions::strict_reserved_bits decides whether anything else is Illegal
};

/// One field of a form: its bits, and which values they may hold.
struct FieldSpec {
  Field field = Field::reserved;
  Constraint constraint = Constraint::any;
  bool is_signed = false;
  std::uint8_t range_count = 1;
  std::array<BitRange, 2> ranges{};  // most significant first
  std::uint64_t legal = 0;
  std::uint32_t value = 0;  // of a fixed field

  constexpr int width() const noexcept { return ranges[0].width() + (range_count == 2 ? ranges[1].width() : 0); }

  constexpr std::int32_t extract(std::uint64_t word) const noexcept {
    std::uint64_t v = 0;
    for (std::size_t i = 0; i < range_count; ++i) {
      v = v << ranges[i].width() | ((word >> ranges[i].low) & ((std::uint64_t{1} << ranges[i].width()) - 1));
    }
    if (is_signed && (v >> (width() - 1)) != 0) v -= std::uint64_t{1} << width();
    return static_cast<std::int32_t>(static_cast<std::int64_t>(v));
  }
  /// Precondition: the value fits.
  constexpr std::uint64_t place(std::int32_t field_value) const noexcept {
    auto v = static_cast<std::uint64_t>(static_cast<std::int64_t>(field_value));
    std::uint64_t word = 0;
    for (std::size_t i = range_count; i-- > 0;) {
      word |= (v & ((std::uint64_t{1} << ranges[i].width()) - 1)) << ranges[i].low;
      v >>= ranges[i].width();
    }
    return word;
  }
  constexpr std::uint64_t bits() const noexcept {
    std::uint64_t set = 0;
    for (std::size_t i = 0; i < range_count; ++i) {
      set |= ((std::uint64_t{1} << ranges[i].width()) - 1) << ranges[i].low;
    }
    return set;
  }
  constexpr std::int64_t smallest() const noexcept { return is_signed ? -(std::int64_t{1} << (width() - 1)) : 0; }
  constexpr std::int64_t largest() const noexcept {
    return (std::int64_t{1} << (is_signed ? width() - 1 : width())) - 1;
  }
  constexpr bool accepts(std::int64_t v, bool strict_reserved_bits = true) const noexcept {
    if (v < smallest() || v > largest()) return false;
    switch (constraint) {
      case Constraint::any:
        return true;
      case Constraint::one_of:
        return ((legal >> v) & 1) != 0;
      case Constraint::fixed:
        return v == static_cast<std::int64_t>(value);
      case Constraint::reserved:
        return v == 0 || !strict_reserved_bits;
    }
    return false;
  }
};

/// One element of an instruction's text; elements are separated by commas.
struct Operand {
  enum class Kind : std::uint8_t {
    literal,      // text
    value,        // the field
    keyed,        // text=field
    mark,         // text, where the field is 1
    destination,  // ->field, or ->field<size>
  };
  enum class Presence : std::uint8_t {
    required,
    defaulted,  // may be left out, then 0; always printed
    elided,     // may be left out, then 0; printed only if it, or a later elided value, is not 0
  };
  Kind kind = Kind::literal;
  Presence presence = Presence::required;
  Field field = Field::reserved;
  Field size = Field::reserved;  // reserved: no size
  std::string_view text{};
};

/// One way to write a form. A form is printed in its first syntax that mentions every field that is not 0.
struct Syntax {
  static constexpr std::size_t max_operands = 10;
  std::array<Operand, max_operands> operands{};
  std::uint8_t count = 0;
  bool braces = false;
};

struct FormInfo {
  static constexpr std::size_t max_fields = 16;
  static constexpr std::size_t max_variables = 10;
  static constexpr std::size_t max_syntaxes = 3;

  Form form = Form::count;
  Command command = Command::stop;
  Operation operation = Operation::none;
  std::string_view mnemonic{};
  std::string_view clause{};        // of the architecture contract
  std::int8_t catalog_index = -1;   // of the command catalog (architecture 2.15); -1: not listed
  std::uint8_t length = 0;          // bytes
  std::uint8_t field_count = 0;     // used part of `fields`
  std::uint8_t variable_count = 0;  // the first ones, which are not fixed
  std::uint8_t syntax_count = 0;
  std::array<FieldSpec, max_fields> fields{};
  std::array<Syntax, max_syntaxes> syntaxes{};
  std::uint64_t mask = 0;  // follow from the fixed fields
  std::uint64_t match = 0;

  constexpr bool matches(std::uint64_t word) const noexcept { return (word & mask) == match; }
};

namespace detail {

// Fields.
constexpr FieldSpec any(Field field, int high, int low) {
  FieldSpec s;
  s.field = field;
  s.ranges[0] = {static_cast<std::uint8_t>(high), static_cast<std::uint8_t>(low)};
  return s;
}
constexpr FieldSpec split(Field field, int high1, int low1, int high0, int low0) {
  FieldSpec s = any(field, high1, low1);
  s.ranges[1] = {static_cast<std::uint8_t>(high0), static_cast<std::uint8_t>(low0)};
  s.range_count = 2;
  return s;
}
constexpr FieldSpec signed_offset(int high, int low) {
  FieldSpec s = any(Field::offset, high, low);
  s.is_signed = true;
  return s;
}
constexpr FieldSpec one_of(Field field, int high, int low, std::uint64_t legal) {
  FieldSpec s = any(field, high, low);
  s.constraint = Constraint::one_of;
  s.legal = legal;
  return s;
}
constexpr FieldSpec fixed(Field field, int high, int low, std::uint32_t value) {
  FieldSpec s = any(field, high, low);
  s.constraint = Constraint::fixed;
  s.value = value;
  return s;
}
constexpr FieldSpec zero(int high, int low) {
  return fixed(Field::reserved, high, low, 0);
}
constexpr FieldSpec ignored(Field field, int high, int low) {
  FieldSpec s = any(field, high, low);
  s.constraint = Constraint::reserved;
  return s;
}
constexpr std::uint64_t range(int first, int last) {
  return ((std::uint64_t{2} << last) - 1) & ~((std::uint64_t{1} << first) - 1);
}
constexpr std::uint64_t prequant_codes() {
  std::uint64_t set = 0;
  for (const PreQuantMode& m : prequant_modes) set |= std::uint64_t{1} << m.code;
  return set;
}
constexpr std::uint64_t dtype_none = std::uint64_t{1} << static_cast<unsigned>(DataType::none);
constexpr FieldSpec gpr(Field field, int low) {
  return one_of(field, low + 4, low, named_codes(gpr_names));
}
constexpr FieldSpec bit(Field field, int position) {
  return any(field, position, position);
}
constexpr FieldSpec pe_mode() {
  return any(Field::pe_mode, 11, 9);
}

// Operands.
constexpr Operand literal(std::string_view text) {
  return {.kind = Operand::Kind::literal, .text = text};
}
constexpr Operand value(Field field, Operand::Presence presence = Operand::Presence::required) {
  return {.kind = Operand::Kind::value, .presence = presence, .field = field};
}
constexpr Operand elided(Field field) {
  return value(field, Operand::Presence::elided);
}
constexpr Operand key(std::string_view text, Field field) {
  return {.kind = Operand::Kind::keyed, .presence = Operand::Presence::elided, .field = field, .text = text};
}
constexpr Operand mask_of_pes() {
  return {.kind = Operand::Kind::keyed, .field = Field::pe_mode, .text = "mask"};
}
constexpr Operand last_mark() {
  return {.kind = Operand::Kind::mark, .presence = Operand::Presence::elided, .field = Field::last, .text = "<last>"};
}
constexpr Operand to(Field field, Field size = Field::reserved,
                     Operand::Presence presence = Operand::Presence::required) {
  return {.kind = Operand::Kind::destination, .presence = presence, .field = field, .size = size};
}
constexpr Syntax text(std::initializer_list<Operand> operands, bool braces = false) {
  Syntax s;
  for (const Operand& o : operands) s.operands[s.count++] = o;
  s.braces = braces;
  return s;
}

// Rows.
struct Row {
  Form form;
  Command command;
  std::string_view mnemonic;
  std::string_view clause;
  int catalog_index;
  int length;  // bytes
  Operation operation = Operation::none;
};
constexpr FormInfo make(const Row& row, std::initializer_list<FieldSpec> fields,
                        std::initializer_list<Syntax> syntaxes) {
  FormInfo f;
  f.form = row.form;
  f.command = row.command;
  f.operation = row.operation;
  f.mnemonic = row.mnemonic;
  f.clause = row.clause;
  f.catalog_index = static_cast<std::int8_t>(row.catalog_index);
  f.length = static_cast<std::uint8_t>(row.length);
  for (const FieldSpec& s : fields) {
    if (s.constraint != Constraint::fixed) f.fields[f.field_count++] = s;
  }
  f.variable_count = f.field_count;
  for (const FieldSpec& s : fields) {
    if (s.constraint != Constraint::fixed) continue;
    f.fields[f.field_count++] = s;
    f.mask |= s.bits();
    f.match |= s.place(static_cast<std::int32_t>(s.value));
  }
  for (const Syntax& s : syntaxes) f.syntaxes[f.syntax_count++] = s;
  return f;
}

// BSTART of a Tile unit (architecture 2.2, 2.3). Bits [11:7] = 3 and [14:12] = 1 mark the group.
struct TileStart {
  Form form;
  Operation operation;
  std::string_view mnemonic;
  std::string_view name;  // first operand, or empty where the mnemonic says it all
  Unit unit;
  int mode;
  int function;
  int catalog_index;
  std::string_view clause = "2.2";
  std::uint64_t types = instruction_data_types();
};
constexpr FormInfo tile_start(const TileStart& t) {
  const FieldSpec data_type = one_of(Field::data_type, 31, 27, t.types);
  return make({t.form, Command::bstart, t.mnemonic, t.clause, t.catalog_index, 4, t.operation},
              {data_type, fixed(Field::mode, 26, 25, static_cast<std::uint32_t>(t.mode)),
               fixed(Field::function, 24, 20, static_cast<std::uint32_t>(t.function)),
               fixed(Field::unit, 19, 15, static_cast<std::uint32_t>(t.unit)), fixed(Field::func, 14, 12, 1),
               fixed(Field::block, 11, 7, 3), fixed(Field::opc1, 6, 4, 0), fixed(Field::opcode, 3, 1, 0),
               fixed(Field::w, 0, 0, 1)},
              {t.name.empty() ? text({value(Field::data_type)}) : text({literal(t.name), value(Field::data_type)})});
}
constexpr FormInfo cube(Form form, Operation operation, std::string_view mnemonic, int function, int catalog_index) {
  return tile_start({form, operation, mnemonic, "", Unit::cube, 0, function, catalog_index});
}
constexpr FormInfo tlsu(Form form, Operation operation, std::string_view mnemonic, int function, int catalog_index,
                        std::uint64_t types = instruction_data_types()) {
  return tile_start({form, operation, mnemonic, "", Unit::tlsu, 0, function, catalog_index, "2.3", types});
}
// The TEPL operations have no catalog index of their own as commands: they are selectors of BSTART.TEPL (33).
constexpr FormInfo tepl(Form form, Operation operation, std::string_view mnemonic, std::string_view name, int mode,
                        int function) {
  return tile_start({form, operation, mnemonic, name, Unit::tepl, mode, function, 33, "2.3"});
}

// BSTART and C.BSTART with a branch target. The contract gives no text: the mnemonic, the kind, the encoded distance.
constexpr FormInfo branch(Form form, std::string_view kind, int catalog_index, std::uint32_t opc1) {
  return make(
      {form, Command::bstart, "BSTART", "2.3", catalog_index, 4},
      {signed_offset(31, 7), fixed(Field::opc1, 6, 4, opc1), fixed(Field::opcode, 3, 1, 0), fixed(Field::w, 0, 0, 1)},
      {text({literal(kind), value(Field::offset)})});
}
constexpr FormInfo short_branch(Form form, std::string_view kind, int catalog_index, std::uint32_t opcode) {
  return make({form, Command::bstart, "C.BSTART", "2.3", catalog_index, 2},
              {signed_offset(15, 4), fixed(Field::opcode, 3, 1, opcode), fixed(Field::w, 0, 0, 0)},
              {text({literal(kind), value(Field::offset)})});
}
constexpr FormInfo short_block(Form form, Command command, std::string_view mnemonic, std::string_view clause,
                               int catalog_index, std::uint32_t block, const FieldSpec& br_type, const Syntax& syntax) {
  return make({form, command, mnemonic, clause, catalog_index, 2},
              {zero(15, 14), br_type, fixed(Field::block, 10, 4, block), fixed(Field::opcode, 3, 1, 0),
               fixed(Field::w, 0, 0, 0)},
              {syntax});
}
constexpr FieldSpec br_type() {
  return one_of(Field::br_type, 13, 11, std::uint64_t{1} << 1 | std::uint64_t{1} << 5 | std::uint64_t{1} << 7);
}

// Header commands: low nibble 3, Opc1 and Func select.
constexpr FieldSpec header_opcode() {
  return fixed(Field::opcode, 3, 1, 1);
}
constexpr FieldSpec one() {
  return fixed(Field::w, 0, 0, 1);
}
constexpr FieldSpec opc1(std::uint32_t v) {
  return fixed(Field::opc1, 6, 4, v);
}
constexpr FieldSpec func(std::uint32_t v) {
  return fixed(Field::func, 14, 12, v);
}

// The 17-bit immediate: value[16:12] in [11:7], value[11:0] in [31:20].
constexpr FormInfo dim(Form form, int catalog_index, std::uint32_t lb) {
  return make({form, Command::dim, "B.DIM", "2.8", catalog_index, 4},
              {split(Field::imm, 11, 7, 31, 20), gpr(Field::reg_src, 15), fixed(Field::lb, 14, 12, lb), opc1(4),
               header_opcode(), one()},
              {text({value(Field::reg_src, Operand::Presence::defaulted), value(Field::imm), to(Field::lb)})});
}

// B.IOT (architecture 2.10). SizeCode 0 is fixed in the forms without a destination, so that the most specific match
// selects them; with a destination 1..10 are legal, and 0 and 11..15 Illegal.
constexpr FieldSpec no_source(Field field, int high, int low) {
  return fixed(field, high, low, 0);
}
constexpr FieldSpec no_size() {
  return fixed(Field::size_code, 18, 15, 0);
}
constexpr FieldSpec local_size() {
  return one_of(Field::size_code, 18, 15, range(1, 10));
}
constexpr FieldSpec hand() {
  return any(Field::dst_tile, 8, 7);
}
// Bits [8:7] of a binding without destination are ignored in old sets and fixed in the newest: encoded 0, and Illegal
// otherwise unless told to be lenient.
constexpr FieldSpec no_hand() {
  return ignored(Field::dst_tile, 8, 7);
}
constexpr FieldSpec source1() {
  return any(Field::src_tile1, 31, 26);
}
constexpr FieldSpec source0() {
  return any(Field::src_tile0, 25, 20);
}
constexpr FormInfo iot(Form form, int catalog_index, std::uint32_t function, const FieldSpec& src1,
                       const FieldSpec& src0, const FieldSpec& size, const FieldSpec& dst, const Syntax& syntax) {
  return make({form, Command::iot, "B.IOT", "2.10", catalog_index, 4},
              {src1, src0, bit(Field::last, 19), size, func(function), pe_mode(), dst, opc1(1), header_opcode(), one()},
              {syntax});
}
constexpr Operand to_hand() {
  return to(Field::dst_tile, Field::size_code);
}

}  // namespace detail

inline constexpr std::array<FormInfo, static_cast<std::size_t>(Form::count)> forms = [] {
  using namespace detail;
  using enum Form;
  using Op = Operation;
  return std::array<FormInfo, static_cast<std::size_t>(Form::count)>{
      cube(bstart_tmatmul, Op::tmatmul, "BSTART.TMATMUL", 0, 41),
      cube(bstart_tmatmul_bias, Op::tmatmul_bias, "BSTART.TMATMUL.BIAS", 1, 43),
      cube(bstart_tmatmul_acc, Op::tmatmul_acc, "BSTART.TMATMUL.ACC", 2, 42),
      cube(bstart_tmatmul_mx, Op::tmatmul_mx, "BSTART.TMATMULMX", 4, 44),
      cube(bstart_tmatmul_mx_bias, Op::tmatmul_mx_bias, "BSTART.TMATMULMX.BIAS", 5, 46),
      cube(bstart_tmatmul_mx_acc, Op::tmatmul_mx_acc, "BSTART.TMATMULMX.ACC", 6, 45),
      cube(bstart_tgemv, Op::tgemv, "BSTART.TGEMV", 16, 34),
      cube(bstart_tgemv_bias, Op::tgemv_bias, "BSTART.TGEMV.BIAS", 17, 36),
      cube(bstart_tgemv_acc, Op::tgemv_acc, "BSTART.TGEMV.ACC", 18, 35),
      cube(bstart_tgemv_mx, Op::tgemv_mx, "BSTART.TGEMVMX", 20, 37),
      cube(bstart_tgemv_mx_bias, Op::tgemv_mx_bias, "BSTART.TGEMVMX.BIAS", 21, 39),
      cube(bstart_tgemv_mx_acc, Op::tgemv_mx_acc, "BSTART.TGEMVMX.ACC", 22, 38),
      tlsu(bstart_tload, Op::tload, "BSTART.TLOAD", 0, 40),
      tlsu(bstart_tstore, Op::tstore, "BSTART.TSTORE", 1, 50),
      tlsu(bstart_tmov, Op::tmov, "BSTART.TMOV", 2, 47, instruction_data_types() | dtype_none),
      tepl(bstart_tcvt, Op::tcvt, "BSTART.VEC", "TCVT", 0, 27),
      tepl(bstart_tquant, Op::tquant, "BSTART.SFU", "TQUANT", 3, 10),
      tepl(bstart_tdequant, Op::tdequant, "BSTART.SFU", "TDEQUANT", 3, 11),
      // The contract names no other operation of the unit, so the selectors are written as numbers.
      make({bstart_tepl, Command::bstart, "BSTART.TEPL", "2.3", 33, 4},
           {one_of(Field::data_type, 31, 27, instruction_data_types()), any(Field::mode, 26, 25),
            any(Field::function, 24, 20), fixed(Field::unit, 19, 15, 3), func(1), fixed(Field::block, 11, 7, 3),
            opc1(0), fixed(Field::opcode, 3, 1, 0), one()},
           {text({value(Field::mode), value(Field::function), value(Field::data_type)})}),
      branch(bstart_direct, "DIRECT", 13, 1),
      branch(bstart_cond, "COND", 14, 2),
      short_branch(c_bstart_direct, "DIRECT", 54, 1),
      short_branch(c_bstart_cond, "COND", 55, 2),
      short_block(c_bstart_std, Command::bstart, "C.BSTART.STD", "2.3", 57, 0, br_type(),
                  text({value(Field::br_type)})),
      short_block(c_bstart_fp, Command::bstart, "C.BSTART.FP", "2.3", 56, 8, br_type(), text({value(Field::br_type)})),
      short_block(c_bstart_sys, Command::bstart, "C.BSTART.SYS", "2.3", 58, 4, fixed(Field::br_type, 13, 11, 1),
                  text({})),
      // The contract gives no text: the attributes that are not 0.
      make({b_catr, Command::catr, "B.CATR", "2.5", 0, 4},
           {zero(31, 27), bit(Field::dr, 26), zero(25, 20), bit(Field::trap, 19), bit(Field::far, 18),
            bit(Field::atom, 17), bit(Field::aq, 16), bit(Field::rl, 15), func(0), zero(11, 7), opc1(2),
            header_opcode(), one()},
           {text({key("DR", Field::dr), key("trap", Field::trap), key("far", Field::far), key("atom", Field::atom),
                  key("aq", Field::aq), key("rl", Field::rl)})}),
      // Short where layout, pad, comparison and canonicalisation are 0; the list without braces is input only.
      make(
          {b_datr, Command::datr, "B.DATR", "2.6", 1, 4},
          {one_of(Field::cmode, 31, 29, named_codes(compare_names)), any(Field::pad_value, 28, 27), bit(Field::sat, 26),
           bit(Field::canonicalize, 25), one_of(Field::data_type, 24, 20, instruction_data_types() | dtype_none),
           zero(19, 18), any(Field::rmode, 17, 15), func(1), one_of(Field::layout, 11, 7, named_codes(layout_names)),
           opc1(2), header_opcode(), one()},
          {text({value(Field::data_type), elided(Field::rmode), key("Sat", Field::sat)}),
           text({value(Field::layout), value(Field::data_type), value(Field::pad_value), value(Field::cmode),
                 value(Field::rmode), value(Field::sat), value(Field::canonicalize)},
                true),
           text({value(Field::layout), value(Field::data_type), elided(Field::pad_value), elided(Field::rmode),
                 key("Sat", Field::sat)})}),
      make({b_fpatr, Command::fpatr, "B.FPATR", "2.7", 73, 4},
           {one_of(Field::pre_quant_mode, 31, 26, prequant_codes()),
            one_of(Field::relu_mode, 25, 23, named_codes(relu_names)), one_of(Field::group_n_code, 22, 19, range(0, 9)),
            bit(Field::row_max_en, 18), bit(Field::group_max_en, 17), bit(Field::row_max_init, 16),
            bit(Field::max_abs_en, 15), func(2), fixed(Field::element_wise_en, 11, 11, 0), zero(10, 10),
            bit(Field::cscale_en, 9), bit(Field::trans_b, 8), bit(Field::trans_a, 7), opc1(2), header_opcode(), one()},
           {text({value(Field::pre_quant_mode), value(Field::relu_mode), value(Field::group_n_code),
                  value(Field::row_max_en), value(Field::group_max_en), value(Field::row_max_init),
                  value(Field::max_abs_en), value(Field::trans_a), value(Field::trans_b), value(Field::cscale_en)})}),
      dim(b_dim_lb0, 3, 0),
      dim(b_dim_lb1, 4, 1),
      dim(b_dim_lb2, 2, 2),
      make({c_b_dimi, Command::dim, "C.B.DIMI", "2.8", 53, 2},
           {one_of(Field::lb, 15, 14, named_codes(dimension_names)), any(Field::imm, 13, 6),
            fixed(Field::opc1, 5, 4, 3), fixed(Field::opcode, 3, 1, 6), fixed(Field::w, 0, 0, 0)},
           {text({value(Field::imm), to(Field::lb)})}),
      make({b_ios, Command::ios, "B.IOS", "2.9", 52, 4},
           {zero(31, 26), any(Field::shared_tile, 25, 20), zero(19, 19), one_of(Field::size_code, 18, 15, range(0, 12)),
            func(1), pe_mode(), zero(8, 7), opc1(1), header_opcode(), one()},
           {text({value(Field::shared_tile), mask_of_pes()}),
            text({mask_of_pes(), to(Field::shared_tile, Field::size_code)})}),
      iot(b_iot_dst, 12, 6, no_source(Field::src_tile1, 31, 26), no_source(Field::src_tile0, 25, 20), local_size(),
          hand(), text({mask_of_pes(), last_mark(), to_hand()})),
      iot(b_iot_src0, 11, 5, no_source(Field::src_tile1, 31, 26), source0(), no_size(), no_hand(),
          text({value(Field::src_tile0), mask_of_pes(), last_mark()})),
      iot(b_iot_src0_dst, 8, 5, no_source(Field::src_tile1, 31, 26), source0(), local_size(), hand(),
          text({value(Field::src_tile0), mask_of_pes(), last_mark(), to_hand()})),
      iot(b_iot_src0_src1, 9, 4, source1(), source0(), no_size(), no_hand(),
          text({value(Field::src_tile0), value(Field::src_tile1), mask_of_pes(), last_mark()})),
      iot(b_iot_src0_src1_dst, 10, 4, source1(), source0(), local_size(), hand(),
          text({value(Field::src_tile0), value(Field::src_tile1), mask_of_pes(), last_mark(), to_hand()})),
      // `B.IOR zero` is printed for all zeros: it is not the same as no B.IOR.
      make({b_ior, Command::ior, "B.IOR", "2.11", 7, 4},
           {gpr(Field::reg_src2, 27), zero(26, 25), gpr(Field::reg_src1, 20), gpr(Field::reg_src0, 15), func(0),
            gpr(Field::reg_dst, 7), opc1(1), header_opcode(), one()},
           {text({value(Field::reg_src0, Operand::Presence::defaulted), elided(Field::reg_src1),
                  elided(Field::reg_src2), to(Field::reg_dst, Field::reserved, Operand::Presence::elided)})}),
      // The contract gives no text for hints: the attributes that are not 0.
      make({b_hint, Command::hint, "B.HINT", "2.12", 5, 4},
           {any(Field::prefetch, 31, 20), zero(19, 19), any(Field::temp, 18, 17), bit(Field::likely, 16),
            bit(Field::valid, 15), func(0), zero(11, 7), opc1(3), header_opcode(), one()},
           {text({key("prefetch", Field::prefetch), key("temp", Field::temp), key("LUL", Field::likely),
                  key("V", Field::valid)})}),
      make({b_hint_trace, Command::hint_trace, "B.HINT.TRACE", "2.12", 6, 4},
           {zero(31, 16), bit(Field::begin_end, 15), func(1), zero(11, 7), opc1(3), header_opcode(), one()},
           {text({key("BE", Field::begin_end)})}),
      make({bstop, Command::stop, "BSTOP", "2.4", 51, 4},
           {zero(31, 20), fixed(Field::unit, 19, 15, 0), func(0), fixed(Field::block, 11, 7, 0), opc1(0),
            fixed(Field::opcode, 3, 1, 0), one()},
           {text({})}),
      short_block(c_bstop, Command::stop, "C.BSTOP", "2.4", 59, 0, fixed(Field::br_type, 13, 11, 0), text({})),
      make({l_bstop, Command::stop, "L.BSTOP", "2.4", 72, 8},
           {fixed(Field::reserved, 63, 32, 1), zero(31, 4), fixed(Field::opcode, 3, 1, 7), one()}, {text({})}),
  };
}();

/// Functions that older instruction sets had; Illegal now (architecture 2.3).
struct RemovedFunction {
  Unit unit;
  std::uint8_t first;
  std::uint8_t last;
  std::string_view what;
};
inline constexpr std::array<RemovedFunction, 2> removed_functions{{
    {Unit::tlsu, 9, 12, "the moves between Local and Shared Tiles"},
    {Unit::tlsu, 14, 14, "the store of a part of a Shared Tile"},
}};

/// Bytes of the instruction whose first bits these are (architecture 2.1).
constexpr int instruction_length(std::uint64_t bits) noexcept {
  const unsigned low = bits & 0xF;
  if ((low & 1) == 0) return low == 0xE ? 6 : 2;
  return low == 0xF ? 8 : 4;
}

namespace detail {

constexpr bool well_formed() {
  for (std::size_t i = 0; i < field_infos.size(); ++i) {
    if (static_cast<std::size_t>(field_infos[i].field) != i) return false;
  }
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const FormInfo& f = forms[i];
    if (static_cast<std::size_t>(f.form) != i || instruction_length(f.match) != f.length) return false;
    if (f.variable_count > FormInfo::max_variables || f.syntax_count == 0) return false;
    std::uint64_t covered = 0;
    for (std::size_t j = 0; j < f.field_count; ++j) {
      const FieldSpec& s = f.fields[j];
      if ((covered & s.bits()) != 0) return false;
      covered |= s.bits();
      if (s.constraint == Constraint::fixed && (std::uint64_t{s.value} >> s.width()) != 0) return false;
      if (s.constraint == Constraint::one_of && (s.width() > 6 || s.is_signed)) return false;
    }
    if (covered != ~std::uint64_t{0} >> (64 - 8 * f.length)) return false;
    // Two forms that fit the same word must differ in how specific they are.
    for (std::size_t j = 0; j < i; ++j) {
      const FormInfo& g = forms[j];
      const bool overlap = g.length == f.length && ((f.match ^ g.match) & f.mask & g.mask) == 0;
      if (overlap && std::popcount(f.mask) == std::popcount(g.mask)) return false;
    }
  }
  return true;
}
static_assert(well_formed());

}  // namespace detail

constexpr const FormInfo& info_of(Form form) noexcept {
  return forms[static_cast<std::size_t>(form)];
}
constexpr const FieldInfo& info_of(Field field) noexcept {
  return field_infos[static_cast<std::size_t>(field)];
}
constexpr std::string_view name_of(Field field) noexcept {
  return info_of(field).name;
}

// The Function of a CUBE operation is made of three parts (architecture 2.2); 3 and bit 3 are unassigned.
constexpr bool is_cube(Operation o) noexcept {
  return o >= Operation::tmatmul && o <= Operation::tgemv_mx_acc;
}
namespace detail {
constexpr unsigned cube_function(Operation o) noexcept {
  for (const FormInfo& f : forms) {
    if (f.operation != o) continue;
    for (std::size_t i = 0; i < f.field_count; ++i) {
      if (f.fields[i].field == Field::function) return f.fields[i].value;
    }
  }
  return 0;
}
inline constexpr std::array<std::uint8_t, 32> cube_functions = []() {
  std::array<std::uint8_t, 32> table{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto o = static_cast<Operation>(i);
    if (is_cube(o)) table[i] = static_cast<std::uint8_t>(cube_function(o));
  }
  return table;
}();
constexpr bool cube_has(Operation o, unsigned bits, unsigned wanted) noexcept {
  return is_cube(o) && (cube_functions[static_cast<std::size_t>(o)] & bits) == wanted;
}
}  // namespace detail
constexpr bool is_gemv(Operation o) noexcept {
  return detail::cube_has(o, 16, 16);
}
constexpr bool is_mx(Operation o) noexcept {
  return detail::cube_has(o, 4, 4);
}
constexpr bool has_bias(Operation o) noexcept {
  return detail::cube_has(o, 3, 1);
}
constexpr bool accumulates(Operation o) noexcept {
  return detail::cube_has(o, 3, 2);
}

}  // namespace bitcube::isa
