// The C interface: status, and the tables of everything that has a name.
#include <algorithm>
#include <cstring>

#include "bindings/call.hpp"
#include "bitcube/cube/accumulate.hpp"
#include "bitcube/cube/prequant.hpp"
#include "bitcube/machine/rules.hpp"
#include "bitcube/quantize/tensor.hpp"
#include "bitcube/version.hpp"

namespace bitcube::bindings {

std::span<char, error_room> error_text() noexcept {
  thread_local std::array<char, error_room> text{};
  return text;
}

void set_error(std::string_view text) noexcept {
  const auto room = error_text();
  const std::size_t size = std::min(text.size(), room.size() - 1);
  if (size != 0) std::memcpy(room.data(), text.data(), size);
  room[size] = '\0';
}

void fail(const Error& error) {
  set_error(error.message);
  throw Failure{error.message.ends_with("not enough memory") ? BITCUBE_NO_MEMORY : BITCUBE_REFUSED};
}

namespace {

// The header spells the codes out for C; the tables of the library decide them.
constexpr bool agrees(auto code, int constant) {
  return static_cast<int>(code) == constant;
}
static_assert(agrees(DataType::fp64, BITCUBE_FP64) && agrees(DataType::fp32, BITCUBE_FP32) &&
              agrees(DataType::tf32, BITCUBE_TF32) && agrees(DataType::hf32, BITCUBE_HF32) &&
              agrees(DataType::fp16, BITCUBE_FP16) && agrees(DataType::bf16, BITCUBE_BF16) &&
              agrees(DataType::hif8, BITCUBE_HIF8) && agrees(DataType::e4m3, BITCUBE_E4M3) &&
              agrees(DataType::e5m2, BITCUBE_E5M2) && agrees(DataType::e3m2, BITCUBE_E3M2) &&
              agrees(DataType::e2m3, BITCUBE_E2M3) && agrees(DataType::e2m1x2, BITCUBE_E2M1X2) &&
              agrees(DataType::e1m2x2, BITCUBE_E1M2X2) && agrees(DataType::e8m0, BITCUBE_E8M0) &&
              agrees(DataType::hif4x2, BITCUBE_HIF4X2) && agrees(DataType::e6m2, BITCUBE_E6M2) &&
              agrees(DataType::s64, BITCUBE_S64) && agrees(DataType::s32, BITCUBE_S32) &&
              agrees(DataType::s16, BITCUBE_S16) && agrees(DataType::s8, BITCUBE_S8) &&
              agrees(DataType::s4x2, BITCUBE_S4X2) && agrees(DataType::rcpe6m2, BITCUBE_RCPE6M2) &&
              agrees(DataType::u64, BITCUBE_U64) && agrees(DataType::u32, BITCUBE_U32) &&
              agrees(DataType::u16, BITCUBE_U16) && agrees(DataType::u8, BITCUBE_U8) &&
              agrees(DataType::u4x2, BITCUBE_U4X2));
static_assert(agrees(Rounding::rne, BITCUBE_RNE) && agrees(Rounding::rtz, BITCUBE_RTZ) &&
              agrees(Rounding::rtm, BITCUBE_RTM) && agrees(Rounding::rtp, BITCUBE_RTP) &&
              agrees(Rounding::rna, BITCUBE_RNA) && agrees(Rounding::rto, BITCUBE_RTO) &&
              agrees(Rounding::rhb, BITCUBE_RHB));
static_assert(agrees(Flags::invalid, BITCUBE_NV) && agrees(Flags::divide_by_zero, BITCUBE_DZ) &&
              agrees(Flags::overflow, BITCUBE_OF) && agrees(Flags::underflow, BITCUBE_UF) &&
              agrees(Flags::inexact, BITCUBE_NX));
static_assert(agrees(Kind::floating, BITCUBE_FLOATING) && agrees(Kind::scale, BITCUBE_SCALE) &&
              agrees(Kind::signed_integer, BITCUBE_SIGNED) && agrees(Kind::unsigned_integer, BITCUBE_UNSIGNED));
static_assert(agrees(CarrierKind::none, BITCUBE_CARRIER_NONE) && agrees(CarrierKind::scale, BITCUBE_CARRIER_SCALE) &&
              agrees(CarrierKind::shift, BITCUBE_CARRIER_SHIFT));
static_assert(agrees(Relu::none, BITCUBE_RELU_NONE) && agrees(Relu::relu, BITCUBE_RELU) &&
              agrees(Relu::scalar, BITCUBE_RELU_SCALAR) && agrees(Relu::per_column, BITCUBE_RELU_PER_COLUMN));
static_assert(agrees(machine::TileLayout::row_major, BITCUBE_ROW_MAJOR) &&
              agrees(machine::TileLayout::column_major, BITCUBE_COLUMN_MAJOR) &&
              agrees(machine::TileLayout::zn, BITCUBE_ZN) && agrees(machine::TileLayout::nz, BITCUBE_NZ) &&
              agrees(machine::TileLayout::cube_m16, BITCUBE_CUBE_M16) &&
              agrees(machine::TileLayout::cube_m32, BITCUBE_CUBE_M32) &&
              agrees(machine::TileLayout::cube_n8, BITCUBE_CUBE_N8));
// Tables whose codes are their indices: a new row comes last.
static_assert(conversion_profiles[BITCUBE_PROFILE_PTO].name == "pto" &&
              conversion_profiles[BITCUBE_PROFILE_ASL].name == "asl" &&
              conversion_profiles[BITCUBE_PROFILE_OCP].name == "ocp");
static_assert(block_formats[BITCUBE_HIF4].name == "hif4" && block_formats[BITCUBE_MXFP8_E4M3].name == "mxfp8-e4m3" &&
              block_formats[BITCUBE_MXFP8_E5M2].name == "mxfp8-e5m2" &&
              block_formats[BITCUBE_MXFP6_E3M2].name == "mxfp6-e3m2" &&
              block_formats[BITCUBE_MXFP6_E2M3].name == "mxfp6-e2m3" && block_formats[BITCUBE_MXFP4].name == "mxfp4" &&
              block_formats[BITCUBE_MXFP4_E1M2].name == "mxfp4-e1m2" && block_formats[BITCUBE_NVFP4].name == "nvfp4");
static_assert(hif4_profiles[BITCUBE_HIF4_PTO].name == "pto" && hif4_profiles[BITCUBE_HIF4_PTO_A6].name == "pto-a6" &&
              hif4_profiles[BITCUBE_HIF4_PAPER].name == "paper" && hif4_profiles[BITCUBE_HIF4_BENCH].name == "bench" &&
              hif4_profiles[BITCUBE_HIF4_LITERAL].name == "literal");
static_assert(scale_rules[BITCUBE_SCALE_FLOOR].name == "floor" && scale_rules[BITCUBE_SCALE_CEIL].name == "ceil" &&
              scale_rules[BITCUBE_SCALE_RCEIL].name == "rceil" && scale_rules[BITCUBE_SCALE_EVEN].name == "even");
static_assert(accumulation_profiles[BITCUBE_ACC_FMA].name == "fma" &&
              accumulation_profiles[BITCUBE_ACC_TWO_STEP].name == "two-step" &&
              accumulation_profiles[BITCUBE_ACC_GROUP].name == "group" &&
              accumulation_profiles[BITCUBE_ACC_EXACT].name == "exact" &&
              accumulation_profiles[BITCUBE_ACC_RAW_CARRIER].name == "raw-carrier");

constexpr std::size_t layout_count = 7;
constexpr std::size_t fault_class_count = 10;

/// Every text of the tables is a literal, so a zero follows it. Members without a text are empty views.
const char* c_string(std::string_view text) noexcept {
  return text.empty() ? "" : text.data();
}

/// The number of rows, or 0 if there is no such table.
std::size_t size_of_table(std::int32_t table) noexcept {
  switch (table) {
    case BITCUBE_TYPES:
      return formats.size();
    case BITCUBE_ROUNDINGS:
      return roundings.size();
    case BITCUBE_CONVERSION_PROFILES:
      return conversion_profiles.size();
    case BITCUBE_BLOCK_FORMATS:
      return block_formats.size();
    case BITCUBE_HIF4_PROFILES:
      return hif4_profiles.size();
    case BITCUBE_SCALE_RULES:
      return scale_rules.size();
    case BITCUBE_PREQUANT_MODES:
      return prequant_modes.size();
    case BITCUBE_ACCUMULATION_PROFILES:
      return accumulation_profiles.size();
    case BITCUBE_LAYOUTS:
      return layout_count;
    case BITCUBE_FAULT_CLASSES:
      return fault_class_count;
    default:
      return 0;
  }
}

/// A row of a table. Precondition: index < size_of_table(table).
bitcube_entry entry_of(std::int32_t table, std::size_t index) noexcept {
  const auto code = static_cast<std::int32_t>(index);
  const auto entry = [](auto code_of_row, std::string_view name, std::string_view meaning) {
    return bitcube_entry{static_cast<std::int32_t>(code_of_row), c_string(name), c_string(meaning)};
  };
  switch (table) {
    case BITCUBE_TYPES:
      return entry(formats[index].type, formats[index].name, "");
    case BITCUBE_ROUNDINGS:
      return entry(roundings[index].mode, roundings[index].name, roundings[index].meaning);
    case BITCUBE_CONVERSION_PROFILES:
      return entry(code, conversion_profiles[index].name, conversion_profiles[index].meaning);
    case BITCUBE_BLOCK_FORMATS:
      return entry(code, block_formats[index].name, block_formats[index].meaning);
    case BITCUBE_HIF4_PROFILES:
      return entry(code, hif4_profiles[index].name, hif4_profiles[index].meaning);
    case BITCUBE_SCALE_RULES:
      return entry(code, scale_rules[index].name, scale_rules[index].meaning);
    case BITCUBE_PREQUANT_MODES:
      return entry(prequant_modes[index].code, prequant_modes[index].name, "");
    case BITCUBE_ACCUMULATION_PROFILES:
      return entry(code, accumulation_profiles[index].name, accumulation_profiles[index].meaning);
    case BITCUBE_LAYOUTS:
      return entry(code, machine::name_of(static_cast<machine::TileLayout>(index)), "");
    default:
      return entry(code, machine::name_of(static_cast<machine::FaultClass>(index)), "");
  }
}

/// The second name of a row.
std::string_view alias_of(std::int32_t table, std::size_t index) noexcept {
  if (table == BITCUBE_TYPES) return formats[index].alias;
  if (table == BITCUBE_BLOCK_FORMATS) return block_formats[index].alias;
  return {};
}

std::int32_t type_code(DataType type) noexcept {
  return type == DataType::none ? -1 : static_cast<std::int32_t>(type);
}

}  // namespace
}  // namespace bitcube::bindings

using namespace bitcube;
using namespace bitcube::bindings;

const char* bitcube_version(void) {
  return version;
}

const char* bitcube_last_error(void) {
  return error_text().data();
}

const char* bitcube_status_text(int32_t status) {
  switch (status) {
    case BITCUBE_OK:
      return "success";
    case BITCUBE_BAD_ARGUMENT:
      return "bad argument";
    case BITCUBE_UNKNOWN:
      return "unknown name or code";
    case BITCUBE_BAD_SIZE:
      return "memory of the wrong size";
    case BITCUBE_REFUSED:
      return "refused";
    case BITCUBE_NO_MEMORY:
      return "not enough memory";
    case BITCUBE_INTERNAL:
      return "a defect of bitcube";
    default:
      return "unknown status";
  }
}

size_t bitcube_table_size(int32_t table) {
  return size_of_table(table);
}

bitcube_status bitcube_table_entry(int32_t table, size_t index, bitcube_entry* entry) {
  return call([&] {
    require(entry, "entry");
    if (index >= size_of_table(table)) fail(BITCUBE_UNKNOWN, "table {} has no row {}", table, index);
    *entry = entry_of(table, index);
  });
}

bitcube_status bitcube_find(int32_t table, const char* name, int32_t* code) {
  return call([&] {
    require(name, "name");
    require(code, "code");
    const std::size_t size = size_of_table(table);
    if (size == 0) fail(BITCUBE_UNKNOWN, "there is no table {}", table);
    for (std::size_t i = 0; i < size; ++i) {
      const bitcube_entry entry = entry_of(table, i);
      const std::string_view alias = alias_of(table, i);
      if (equal_ignoring_case(entry.name, name) || (!alias.empty() && equal_ignoring_case(alias, name))) {
        *code = entry.code;
        return;
      }
    }
    fail(BITCUBE_UNKNOWN, "'{}': table {} has no such name", name, table);
  });
}

const char* bitcube_name(int32_t table, int32_t code) {
  for (std::size_t i = 0; i < size_of_table(table); ++i) {
    const bitcube_entry entry = entry_of(table, i);
    if (entry.code == code) return entry.name;
  }
  return nullptr;
}

bitcube_status bitcube_format_of(int32_t type, bitcube_format* format) {
  return call([&] {
    require(format, "format");
    const Format& f = format_of_code(type, "type");
    *format = {.name = c_string(f.name),
               .alias = c_string(f.alias),
               .type = type,
               .kind = static_cast<int32_t>(f.kind),
               .carrier_bits = f.carrier_bits,
               .lane_bits = f.lane_bits,
               .value_bits = f.value_bits,
               .lanes_per_carrier = f.lanes_per_carrier,
               .low_zero_bits = f.low_zero_bits,
               .sign_bits = f.sign_bits,
               .exponent_bits = f.exponent_bits,
               .fraction_bits = f.fraction_bits,
               .bias = f.bias,
               .has_zero = f.has_zero,
               .has_signed_zero = f.has_signed_zero,
               .has_nan = f.nan != NanCodes::none,
               .has_infinity = f.has_infinity,
               .canonical_nan = f.canonical_nan,
               .infinity = f.infinity,
               .max_finite = f.max_finite};
  });
}

bitcube_status bitcube_block_format_of(int32_t format, bitcube_block_format* info) {
  return call([&] {
    require(info, "info");
    const BlockFormat& f = row_of(block_formats, format, "format");
    *info = {.name = c_string(f.name),
             .alias = c_string(f.alias),
             .meaning = c_string(f.meaning),
             .element = static_cast<int32_t>(f.element->type),
             .scale = static_cast<int32_t>(f.scale->type),
             .group = f.group,
             .lane_bits = f.element->lane_bits};
  });
}

bitcube_status bitcube_prequant_of(int32_t mode, bitcube_prequant* info) {
  return call([&] {
    require(info, "info");
    const PreQuantMode* m = find_prequant(static_cast<unsigned>(mode));
    if (m == nullptr) fail(BITCUBE_UNKNOWN, "mode: code {} is reserved", mode);
    *info = {.name = c_string(m->name),
             .code = m->code,
             .accumulator = type_code(m->accumulator),
             .destination = type_code(m->destination),
             .carrier = static_cast<int32_t>(m->carrier),
             .per_column = m->per_column,
             .offset_bits = m->offset_bits,
             .rounding = static_cast<int32_t>(m->rounding),
             .rounding_is_fixed = m->rounding_rule == RoundingRule::fixed,
             .saturation_allowed = m->saturation_allowed};
  });
}
