// Prints docs/reference.md: every format, mode, profile and rule in one line, from the tables of the code.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bitcube/cube/accumulate.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/isa/text.hpp"
#include "bitcube/machine/rules.hpp"
#include "bitcube/numeric/convert.hpp"
#include "bitcube/numeric/fp19.hpp"
#include "bitcube/quantize/tensor.hpp"

namespace bitcube {
namespace {

std::string power(int exponent) {
  return fmt::format("2^{}", exponent);
}

/// significand * 2^exponent with the significand odd, as a product or a plain number.
std::string value_text(const Real& x) {
  auto significand = static_cast<uint64>(x.significand);
  int exponent = x.exponent;
  while (significand != 0 && (significand & 1) == 0) {
    significand >>= 1;
    ++exponent;
  }
  if (exponent >= 0 && exponent + bit_length(significand) < 40) return fmt::format("{}", significand << exponent);
  if (significand == 1) return power(exponent);
  if (bit_length(significand) > 12) {  // a run of ones: 2^n - 1
    return fmt::format("(2 - 2^-{}) 2^{}", bit_length(significand) - 1, exponent + bit_length(significand) - 1);
  }
  return fmt::format("{} 2^{}", significand, exponent);
}

std::string code_text(const Format& f, uint64 code) {
  return fmt::format("{:0{}X}", code, (f.lane_bits + 3) / 4);
}

void print_formats() {
  fmt::print(
      "## Formats\n\nCode: the 5-bit Tile DataType. S/E/F: sign, exponent and fraction bits. Smallest: the smallest "
      "positive value.\n\n"
      "| Code | Name | Bits | S/E/F | Bias | Smallest | Largest (code) | -0 | NaN | Inf | Beyond the range, Sat = 0 |\n"
      "|---:|---|---:|---|---:|---|---|---|---|---|---|\n");
  for (const Format& f : formats) {
    const std::string name = f.alias.empty() ? std::string(f.name) : fmt::format("{} ({})", f.name, f.alias);
    if (f.is_integer()) {
      fmt::print("| {} | {} | {} | | | 1 | {} ({}) | no | no | no | the low {} bits |\n", static_cast<int>(f.type),
                 name, f.lane_bits, f.max_finite, code_text(f, f.max_finite), f.lane_bits);
      continue;
    }
    const bool reciprocal = f.layout == Layout::reciprocal;
    const uint64 one_step = f.has_zero ? uint64{1} << f.low_zero_bits : 0;
    const std::string bits = f.layout == Layout::dot_field
                                 ? "1/0..4/1..3"
                                 : fmt::format("{}/{}/{}", f.sign_bits, f.exponent_bits, f.fraction_bits);
    std::string overflow = f.overflow_result == OverflowResult::infinity ? "Inf with the sign"
                           : f.overflow_result == OverflowResult::nan
                               ? fmt::format("NaN {}", code_text(f, f.canonical_nan))
                               : "the largest, with Sat = 1 or 0";
    if (f.type == DataType::e2m1x2) overflow = "code 6 (profile ocp: 7), with Sat = 1 or 0";
    if (reciprocal) overflow = "no destination";
    fmt::print("| {} | {} | {} | {} | {} | {} | {} ({}) | {} | {} | {} | {} |\n", static_cast<int>(f.type), name,
               f.lane_bits, bits, f.layout == Layout::dot_field ? "" : std::to_string(f.bias),
               reciprocal ? "1/49152" : value_text(decode(f, one_step).real),
               reciprocal ? "2^48" : value_text(decode(f, f.max_finite).real),
               reciprocal ? "00" : code_text(f, f.max_finite), f.has_signed_zero ? "yes" : "no",
               f.nan == NanCodes::none ? "no" : code_text(f, f.canonical_nan),
               f.has_infinity ? code_text(f, f.infinity) : "no", overflow);
  }
  fmt::print(
      "\nFP19, the parameter carrier: sign, 8 exponent bits with bias 127, 10 fraction bits; an FP32 without its low "
      "13 "
      "bits. E6M2 and RCPE6M2 are the scale formats of HiF4. Every other code is reserved and has no format.\n");
}

void print_rounding() {
  fmt::print(
      "\n## Rounding modes\n\nRMode: the B.DATR encoding; 0 asks for the default of the operation: RTZ in a TCVT from "
      "float to integer, otherwise RNE.\n\n| RMode | Name | Meaning |\n|---:|---|---|\n");
  for (const RoundingInfo& r : roundings) {
    fmt::print("| {} | {} | {} |\n", static_cast<int>(r.mode), r.name, r.meaning);
  }
  fmt::print("\nInto E8M0 the modes act on the exponent: log2 of the value is rounded to an integer.\n");
}

void print_flags() {
  constexpr std::string_view meanings[] = {
      "a signalling NaN or an invalid encoding was consumed; a NaN became an integer, an infinity did without being "
      "saturated (in TCVT always); E8M0 from NaN, zero or a negative number, E6M2 from a negative number",
      "never raised by these operations",
      "a result, or the S5, S9 or S17 intermediate, beyond its range; an infinity clamped by Sat; |x| of the S32 "
      "minimum",
      "inexact, and below the smallest normal in the reading that the profile names; the packed and the scale formats "
      "have their own rule, the same in every profile",
      "the delivered value is not the exact one; with OF and UF always, but for |x| of the S32 minimum"};
  fmt::print("\n## Status flags\n\n| Bit | Value | Name | Raised when |\n|---:|---:|---|---|\n");
  for (std::size_t i = 0; i < flag_names.size(); ++i) {
    fmt::print("| {} | 0x{:02X} | {} | {} |\n", i, static_cast<int>(flag_names[i].flag), flag_names[i].name,
               meanings[i]);
  }
}

void print_conversions() {
  fmt::print("\n## TCVT pairs\n\n| From | To |\n|---|---|\n");
  std::vector<std::pair<std::string, std::string>> rows;  // sources with the same destinations share a row
  for (const Format& from : formats) {
    std::string to;
    for (const Format& f : formats) {
      if (conversion_legal(from, f)) to += fmt::format("{}{}", to.empty() ? "" : " ", f.name);
    }
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.second == to; });
    if (same == rows.end()) {
      rows.emplace_back(from.name, to);
    } else {
      same->first += fmt::format(" {}", from.name);
    }
  }
  for (const auto& [from, to] : rows) fmt::print("| {} | {} |\n", from, to.empty() ? "none" : to);
  fmt::print("\nPairs with E6M2 or RCPE6M2 take RNE and RNA only.\n");
}

template <typename Table>
void print_named(std::string_view title, std::string_view option, const Table& table) {
  fmt::print("\n## {}\n\n`{}`; the first is the default.\n\n| Name | Meaning |\n|---|---|\n", title, option);
  for (const auto& row : table) fmt::print("| `{}` | {} |\n", row.name, row.meaning);
}

void print_prequant() {
  fmt::print(
      "\n## PreQuant modes\n\nCarrier: the U64 parameter word; `per column` ones come from a 1 x N array. Offset: "
      "width "
      "of the signed offset, to which the intermediate saturates before it is added.\n\n"
      "| Code | Name | Accumulator | D | Carrier | Offset | Rounding | Sat |\n|---:|---|---|---|---|---:|---|---|\n");
  for (const PreQuantMode& m : prequant_modes) {
    const std::string_view what = m.carrier == CarrierKind::none    ? "none"
                                  : m.carrier == CarrierKind::scale ? "FP19 scale"
                                                                    : "shift 1..16";
    const std::string rounding =
        m.rounding_rule == RoundingRule::programmable
            ? "RMode, default RNE"
            : fmt::format("{} fixed", m.carrier == CarrierKind::shift ? "floor" : name_of(m.rounding));
    fmt::print("| {} | {} | {} | {} | {}{} | {} | {} | {} |\n", m.code, m.name,
               m.accumulator == DataType::none ? "FP32, S32, U32" : format_of(m.accumulator).name,
               m.destination == DataType::none ? "as accumulator" : format_of(m.destination).name, what,
               m.carrier == CarrierKind::none ? ""
               : m.per_column                 ? ", per column"
                                              : ", scalar",
               m.offset_bits == 0 ? "" : fmt::format("S{}", m.offset_bits), rounding,
               m.saturation_allowed ? "0 or 1" : "0");
  }
  fmt::print(
      "\nGroupMax over N = {} columns. Activations: none, ReLU (negative path times 0), scalar and per-column "
      "PReLU (negative path times an FP19 alpha instead of the scale).\n",
      fmt::join(group_n_values, ", "));
}

void print_blocks() {
  fmt::print("\n## Block formats\n\n| Name | Element | Group | Scale | Meaning |\n|---|---|---:|---|---|\n");
  for (const BlockFormat& f : block_formats) {
    fmt::print("| `{}` | {} | {} | {} | {} |\n", f.name, f.element->name, f.group,
               f.is_hif4() ? "U32: E6M2 and micro-exponents" : std::string(f.scale->name), f.meaning);
  }
}

/// A | would end the cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

void print_instructions() {
  fmt::print(
      "\n## Instruction words\n\nFields from the highest bit down; fixed ones are part of mask and match.\n\n"
      "| Mnemonic | Bytes | Mask | Match | Fields | Contract |\n|---|---:|---|---|---|---|\n");
  for (const isa::FormRow& form : isa::list_forms()) {
    std::string fields;
    for (const isa::FieldRow& f : form.fields) {
      if (f.fixed) continue;
      fields += fmt::format("{}{} {}", fields.empty() ? "" : ", ", f.name, f.bits);
    }
    fmt::print("| {} | {} | {:0{}X} | {:0{}X} | {} | {} |\n", cell(form.mnemonic), form.length, form.mask,
               2 * form.length, form.match, 2 * form.length, cell(fields), form.clause);
  }
}

void print_rules() {
  fmt::print(
      "\n## Legality rules\n\nA bundle is rejected by the first rule that it breaks, and nothing changes.\n\n"
      "| Rule | Fault | Requires |\n|---|---|---|\n");
  for (const machine::Rule& rule : machine::rules()) {
    fmt::print("| {} | {} | {} |\n", rule.name, machine::name_of(rule.fault), cell(rule.text));
  }
}

void print_reference() {
  fmt::print(
      "# Quick reference\n\nMade from the tables of the code by `build/bitcube_reference`; a test compares the "
      "two.\n\n");
  print_formats();
  print_rounding();
  print_flags();
  print_named("Conversion profiles", "--profile", conversion_profiles);
  print_conversions();
  print_blocks();
  print_named("HiF4 profiles", "--profile", hif4_profiles);
  print_named("MX scale rules", "--scale", scale_rules);
  print_named("Accumulation profiles", "--accumulate", accumulation_profiles);
  print_prequant();
  print_instructions();
  print_rules();
}

}  // namespace
}  // namespace bitcube

int main() {
  bitcube::print_reference();
  return std::fflush(stdout) == 0 ? 0 : 2;
}
