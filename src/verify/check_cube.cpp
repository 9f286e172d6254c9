// B.FPATR, reductions and the product (numerics 4.2, 5, 9).
#include <fmt/format.h>

#include <algorithm>

#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"
#include "clauses.hpp"
#include "forms.hpp"

namespace bitcube::verify {
namespace {

constexpr unsigned kModeCodes = 64;

/// The mode of a code, or a fault where the code is reserved.
const PreQuantMode& assigned_mode(Record& r, std::size_t column) {
  const auto code = static_cast<unsigned>(r.integer(column, 0, kModeCodes - 1));
  const PreQuantMode* mode = find_prequant(code);
  if (mode != nullptr) return *mode;
  r.fault(column, "an assigned PreQuantMode (numerics 5.3)");
  return no_quant;
}

/// The step of numerics 5.5 that decides.
std::string postprocess_clause(const ElementPostprocess& p, const Format& accumulator, uint64 word, const Encoded& got,
                               bool flags_only) {
  const PreQuantMode& mode = *p.mode;
  if (mode.code == no_quant.code && p.relu == Relu::none) return "numerics 5.5 step 1: identity";
  if (mode.carrier == CarrierKind::shift) return "numerics 5.5 step 2: shift";
  const Value v = decode(accumulator, word & low_mask(32));
  const bool negative = !v.is_nan() && v.real.negative;
  Real multiplier{.significand = 1};
  if (mode.carrier == CarrierKind::scale) multiplier = decode(fp19, p.quant.scale).real;
  if (negative && p.relu == Relu::relu) multiplier = {};
  if (negative && (p.relu == Relu::scalar || p.relu == Relu::per_column)) multiplier = decode(fp19, p.alpha).real;
  if (v.is_nan() || (v.is_infinite() && !multiplier.is_zero())) return "numerics 5.5 step 6: special values";
  const Format& to = destination_format(mode, accumulator);
  if (mode.offset_bits != 0) {
    return fmt::format("numerics 5.5 step 9: round, saturate to S{}, add the offset, encode (6.4)", mode.offset_bits);
  }
  const Real y = v.is_infinite() ? Real{} : multiply(v.real, multiplier);
  if (y.is_zero()) return "numerics 5.5 step 8: zero";
  const Rounding rounding = mode.rounding_rule == RoundingRule::fixed ? mode.rounding : p.rounding;
  const EncodeControl how{rounding, mode.saturation_allowed && p.saturate, p.profile};
  return "numerics 5.5 step 10, " + encode_clause(to, y, got, how, flags_only);
}

/// Why these fields of B.FPATR do not go together, or an empty text (numerics 5.1 to 5.3).
std::string_view fields_fault(unsigned code, unsigned relu, unsigned group_code, unsigned flags) noexcept {
  const bool row_max = (flags & 1) != 0;
  const bool group_max = (flags & 2) != 0;
  const bool row_init = (flags & 4) != 0;
  const bool max_abs = (flags & 8) != 0;
  if (find_prequant(code) == nullptr) return "numerics 5.3: reserved PreQuantMode";
  if (relu > 3) return "numerics 5.1: reserved ReluMode";
  if (group_code > group_n_values.size()) return "numerics 5.2: reserved GroupNCode";
  if (group_max != (group_code != 0)) return "numerics 5.2: GroupMaxEn must equal GroupNCode != 0";
  if (row_init && !row_max) return "numerics 5.2: RowMaxInit requires RowMaxEn";
  if (max_abs && !row_max && !group_max) return "numerics 5.2: MaxAbsEn requires RowMaxEn or GroupMaxEn";
  return {};
}

/// One side of a product: bytes of lanes and scales, and the operand that views them.
class Line {
 public:
  Line(Record& r, std::size_t type, std::size_t lanes, std::size_t scales, std::size_t k) : format_(r.format(type)) {
    if (!r.malformed() && format_.lane_bits == 64) r.fault(type, "a type that the product takes (numerics 9.2)");
    std::vector<uint64> words;
    if (!r.malformed()) r.digits(lanes, format_.lane_bits / 4U, words);
    if (!r.malformed() && words.size() != k) r.fault(lanes, fmt::format("{} lanes", k));
    if (r.malformed()) return;
    if (format_.lane_bits == 4) {
      lanes_.resize((k + 1) / 2);
      for (std::size_t i = 0; i < k; ++i) {
        lanes_[i / 2] = static_cast<std::uint8_t>(lanes_[i / 2] | words[i] << (4 * (i % 2)));
      }
    } else {
      for (const uint64 word : words) append(lanes_, word, format_.lane_bits / 8U);
    }
    if (r.text(scales) == "-") return;
    const bool hif4_side = format_.type == DataType::hif4x2;
    const std::size_t groups = (k + scale_group(format_) - 1) / scale_group(format_);
    r.digits(scales, hif4_side ? 8 : 2, words);
    if (!r.malformed() && words.size() != groups) r.fault(scales, fmt::format("{} scales, or -", groups));
    for (const uint64 word : words) append(scales_, word, hif4_side ? 4 : 1);
  }

  Operand operand(std::size_t k) const noexcept {
    Operand side{.format = &format_,
                 .lines = 1,
                 .k = k,
                 .lanes = {lanes_.data(), format_.lane_bits, k + k % 2, 1},
                 .scales = {}};
    const bool hif4_side = format_.type == DataType::hif4x2;
    if (!scales_.empty()) side.scales = {scales_.data(), hif4_side ? 32U : 8U, scales_.size(), 1};
    return side;
  }

 private:
  static void append(std::vector<std::uint8_t>& out, uint64 word, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) out.push_back(static_cast<std::uint8_t>(word >> (8 * i)));
  }

  const Format& format_;
  std::vector<std::uint8_t> lanes_;
  std::vector<std::uint8_t> scales_;
};

std::optional<std::uint32_t> optional_word(Record& r, std::size_t column) {
  if (r.text(column) == "-") return std::nullopt;
  return static_cast<std::uint32_t>(r.word(column));
}

}  // namespace

void check_fpatr_mode(Record& r) {
  const auto code = static_cast<unsigned>(r.integer(0, 0, kModeCodes - 1));
  if (r.malformed()) return;
  const PreQuantMode* mode = find_prequant(code);
  r.expect_truth(1, mode != nullptr);
  if (mode == nullptr) {
    for (std::size_t i = 2; i < r.columns().size(); ++i) r.expect_text(i, "");
    if (r.differs()) r.decided_by("numerics 5.3: reserved code");
    return;
  }
  const auto accepts = [&](DataType t) { return mode->accumulator == DataType::none || mode->accumulator == t; };
  const bool takes_rounding = mode->rounding_rule == RoundingRule::programmable;
  // The modes 0, 12 and 13 take no rounding, but the table does not call theirs fixed.
  const bool fixed = !takes_rounding && mode->saturation_allowed;
  r.expect_text(2, destination_format(*mode, fp32).name);
  r.expect_truth(3, accepts(DataType::fp32));
  r.expect_truth(4, accepts(DataType::s32));
  r.expect_truth(5, accepts(DataType::u32));
  r.expect_truth(6, mode->carrier != CarrierKind::none && !mode->per_column);
  r.expect_truth(7, mode->per_column);
  r.expect_integer(8, mode->offset_bits);
  r.expect_truth(9, mode->carrier == CarrierKind::shift);
  r.expect_truth(10, fixed);
  r.expect_truth(11, mode->saturation_allowed);
  r.expect_truth(12, true);
  r.expect_truth(13, mode->saturation_allowed);
  r.expect_truth(14, takes_rounding);
  r.expect_truth(15, takes_rounding && mode->saturation_allowed);
  r.expect_text(16, name_of(fixed ? mode->rounding : Rounding::rtz));
  if (r.differs()) r.decided_by(fmt::format("numerics 5.3: {}", mode->name));
}

void check_fpatr_fields(Record& r) {
  const auto field = [&](std::size_t column, int64 largest) {
    return static_cast<unsigned>(r.integer(column, 0, largest));
  };
  const unsigned code = field(0, kModeCodes - 1);
  const unsigned relu = field(1, 7);
  const unsigned group_code = field(2, 15);
  const unsigned flags = field(3, 15);
  if (r.malformed()) return;
  const std::string_view fault = fields_fault(code, relu, group_code, flags);
  r.expect_truth(4, fault.empty());
  if (r.differs()) r.decided_by(std::string(fault.empty() ? "numerics 5.2: no rule forbids it" : fault));
}

void check_quant_parameter(Record& r) {
  const auto code = static_cast<unsigned>(r.integer(0, 0, kModeCodes - 1));
  const uint64 word = r.word(1);
  if (r.malformed()) return;
  const PreQuantMode* mode = find_prequant(code);
  const std::string_view fault =
      mode == nullptr ? "reserved PreQuantMode" : quant_carrier_fault(word, mode->carrier, mode->offset_bits);
  r.expect_truth(2, fault.empty());
  if (r.differs()) {
    r.decided_by(fmt::format("numerics 4.2: {}", fault.empty() ? "a legal quantisation carrier" : fault));
  }
}

void check_relu_parameter(Record& r) {
  const std::string_view fault = activation_carrier_fault(r.word(0));
  r.expect_truth(1, fault.empty());
  if (r.differs()) r.decided_by(fmt::format("numerics 4.2: {}", fault.empty() ? "a legal activation carrier" : fault));
}

void check_postprocess(Record& r) {
  ElementPostprocess p;
  p.mode = &assigned_mode(r, 0);
  const PreQuantMode& mode = *p.mode;
  p.relu = static_cast<Relu>(r.integer(1, 0, 3));
  const Format& output = r.format(2);
  p.rounding = r.rounding(3);
  p.saturate = r.truth(4);
  const uint64 word = r.word(5);
  const uint64 quant = r.word(6);
  const uint64 alpha = r.word(7);
  if (r.malformed()) return;
  if (mode.destination == DataType::none) {
    const bool accumulator =
        output.type == DataType::fp32 || output.type == DataType::s32 || output.type == DataType::u32;
    if (!accumulator) r.fault(2, "an accumulator type, FP32, S32 or U32, in mode 0");
  } else if (output.type != mode.destination) {
    r.fault(2, fmt::format("{}, the output of {} (numerics 5.3)", format_of(mode.destination).name, mode.name));
  }
  if (mode.carrier != CarrierKind::none) {
    const auto wrong = quant_carrier_fault(quant, mode.carrier, mode.offset_bits);
    if (!wrong.empty()) r.fault(6, fmt::format("a legal carrier of {}: {}", mode.name, wrong));
    p.quant = unpack_quant_carrier(quant, mode.offset_bits);
  }
  if (p.relu == Relu::scalar || p.relu == Relu::per_column) {
    const auto wrong = activation_carrier_fault(alpha);
    if (!wrong.empty()) r.fault(7, fmt::format("a legal carrier: {}", wrong));
    p.alpha = alpha;
  }
  if (r.malformed()) return;
  const Format& accumulator = mode.accumulator == DataType::none ? output : format_of(mode.accumulator);
  r.expect_encoded(8, 9, output, [&](const ConversionProfile& profile) {
    p.profile = &profile;
    return postprocess_element(p, accumulator, word);
  });
  if (r.differs()) {
    p.profile = &r.profile();
    const Encoded got = postprocess_element(p, accumulator, word);
    r.decided_by(postprocess_clause(p, accumulator, word, got, r.differs_in_flags_only(8)));
  } else if (!r.writing() && output.type == DataType::s4x2 && (r.word(8) >> 4) == ~uint64{0} >> 4) {
    r.known(KnownRule::s4x2_sign_extension);
  }
}

void check_reduction(Record& r) {
  const Format& f = r.format(0);
  const bool max_abs = r.truth(1);
  const auto current = static_cast<std::uint32_t>(r.word(2));
  const auto candidate = static_cast<std::uint32_t>(r.word(3));
  if (!r.malformed() && f.type != DataType::fp32 && f.type != DataType::s32 && f.type != DataType::u32) {
    r.fault(0, "an accumulator type, FP32, S32 or U32");
  }
  if (r.malformed()) return;
  const Reduced got = reduce_step(f, max_abs, current, candidate);
  r.expect_encoded(4, 5, f, [&](const ConversionProfile&) { return Encoded{got.word, got.flags}; });
  if (!r.differs()) return;
  const bool nan = decode(f, current).is_nan() || decode(f, candidate).is_nan();
  r.decided_by(nan       ? "numerics 5.7: MAX of a NaN"
               : max_abs ? "numerics 5.7: MAX of absolute values"
                         : "numerics 5.7: MAX");
}

void check_accumulate(Record& r) {
  r.set_word_digits(8);
  const AccumulationProfile& profile = r.named(0, accumulation_profiles, find_accumulation_profile);
  const auto k = static_cast<std::size_t>(r.integer(3, 1, 1 << 20));
  const Line a(r, 1, 4, 5, k);
  const Line b(r, 2, 6, 7, k);
  const auto c = optional_word(r, 8);
  const auto bias = optional_word(r, 9);
  if (r.malformed()) return;
  MatmulOptions options;
  options.profile = &profile;
  options.execution.threads = 1;
  if (c) options.c = std::span<const std::uint32_t>(&*c, 1);
  if (bias) options.bias = std::span<const std::uint32_t>(&*bias, 1);
  const Operand side_a = a.operand(k);
  const Operand side_b = b.operand(k);
  const auto kind = product_kind(side_a, side_b);
  if (!kind) return r.fault(2, fmt::format("operands of a product: {}", kind.error().message));
  const auto result = matmul(side_a, side_b, options);
  if (!result) return r.fault(2, fmt::format("operands of a product: {}", result.error().message));
  r.expect_encoded(10, Record::npos, *kind->accumulator, [&](const ConversionProfile&) {
    return Encoded{result->words[0], Flags::none};
  });
  if (!r.differs()) return;
  if (profile.kind == Accumulation::raw_carrier) return r.decided_by("numerics 9.6: profile raw-carrier");
  if (kind->accumulator->is_integer()) return r.decided_by("numerics 9.2: integers, exact modulo 2^32");
  const std::string group =
      profile.kind == Accumulation::group ? fmt::format(", groups of {}", kind->group) : std::string();
  r.decided_by(fmt::format("profiles 3: {}{} (numerics 9.5)", profile.name, group));
}

void check_cscale(Record& r) {
  r.set_word_digits(8);
  const auto c = static_cast<std::uint32_t>(r.word(0));
  const auto s = static_cast<unsigned>(r.integer(1, 0, 255));
  if (r.malformed()) return;
  r.expect_encoded(2, 3, fp32, [&](const ConversionProfile& profile) { return scale_c(c, s, profile); });
  if (!r.differs()) return;
  const Value v = decode(fp32, c);
  r.decided_by(!v.is_finite() || v.cls == Class::zero ? "numerics 9.7: passes unchanged"
                                                      : "numerics 9.7: one RNE FP32 encode (numerics 6.1)");
}

}  // namespace bitcube::verify
