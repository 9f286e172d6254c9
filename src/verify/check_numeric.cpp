// Formats, encoders and conversions (numerics 1, 4.1, 6, 7).
#include <fmt/format.h>

#include "bitcube/numeric/fp19.hpp"
#include "clauses.hpp"
#include "forms.hpp"

namespace bitcube::verify {
namespace {

/// "NegativeSubnormal"; NaN and invalid encodings have no sign here.
std::string class_text(Class c, bool negative) {
  const bool signless = c == Class::quiet_nan || c == Class::signaling_nan || c == Class::invalid;
  return fmt::format("{}{}", signless ? "" : negative ? "Negative" : "Positive", name_of(c));
}

std::string_view kind_text(const Format& f) noexcept {
  if (f.is_integer()) return "Unavailable";
  if (f.layout == Layout::dot_field) return "HiF8";
  return f.layout == Layout::exponent ? "E8M0" : "FixedBinary";
}

/// Classes under the profile of the run. Release 0.58.3 has no subnormals in E2M1.
bool has_subnormals(const Format& f, const ConversionProfile& profile) noexcept {
  return f.subnormal_class && (f.type != DataType::e2m1x2 || profile.e2m1_half_is_subnormal);
}

/// Under `asl`, a class that the documents name otherwise is known to differ.
void expect_class(Record& r, std::size_t column, const std::string& of_run, const std::string& of_documents) {
  const bool known =
      !r.writing() && &r.profile() == &asl_profile() && r.text(column) == of_run && of_run != of_documents;
  if (known) return r.known(KnownRule::e2m1_class);
  r.expect_text(column, of_run);
}

EncodeControl control(Record& r, std::size_t rounding, std::size_t saturate) {
  return {.rounding = r.rounding(rounding), .saturate = r.truth(saturate)};
}

/// Reads a significand of any length that fits, and an exponent.
WideReal<16> parse_real(Record& r, std::size_t significand, std::size_t exponent) {
  constexpr std::size_t max_digits = 300;  // 997 bits
  WideReal<16> x;
  std::string_view digits = r.text(significand);
  x.negative = digits.starts_with('-');
  if (x.negative) digits.remove_prefix(1);
  if (digits.empty() || digits.size() > max_digits ||
      digits.find_first_not_of("0123456789") != std::string_view::npos) {
    r.fault(significand, fmt::format("a decimal number of at most {} digits", max_digits));
    return x;
  }
  for (const char c : digits) x.significand.multiply_add(10, static_cast<uint64>(c - '0'));
  x.exponent = static_cast<std::int32_t>(r.integer(exponent, -100'000, 100'000));
  return x;
}

/// A legal pair and rounding, or a fault (numerics 7.1).
bool check_pair(Record& r, std::size_t column, const Format& from, const Format& to, Rounding rounding,
                std::size_t rounding_column) {
  if (r.malformed()) return false;
  if (!conversion_legal(from, to)) {
    r.fault(column,
            fmt::format("a type that {} converts {} (numerics 7.1)", to.type == DataType::e8m0 ? "E8M0" : from.name,
                        to.type == DataType::e8m0 ? "from" : "to"));
  } else if (!rounding_legal(from, to, rounding)) {
    r.fault(rounding_column, "RNE or RNA with E6M2 and RCPE6M2 (numerics 7.1)");
  }
  return !r.malformed();
}

}  // namespace

void check_format_descriptor(Record& r) {
  const Format& f = r.format(0);
  if (r.malformed()) return;
  const bool available = !f.is_integer();
  std::size_t column = 1;
  const auto number = [&](int value) { r.expect_integer(column++, value); };
  const auto detail = [&](int value) { number(available ? value : 0); };
  r.expect_short_word(column++, static_cast<uint64>(f.type), 2);
  number(f.lane_bits);
  number(f.lane_bits < 8 ? 1 : f.lane_bits / 8);
  number(available ? 1 : 0);
  number(available ? 1 : 0);
  r.expect_text(column++, kind_text(f));
  detail(f.carrier_bits);
  detail(f.value_bits);
  detail(f.lanes_per_carrier);
  detail(f.sign_bits);
  detail(f.sign_bits != 0 ? f.sign_bit() : 0);
  detail(f.exponent_bits_min);
  detail(f.exponent_bits);
  detail(f.fraction_bits_min);
  detail(f.fraction_bits);
  detail(f.layout != Layout::dot_field ? 1 : 0);
  detail(f.bias);
  detail(f.low_zero_bits);
  detail(f.lane_bits - f.value_bits);
  detail(f.has_zero ? 1 : 0);
  detail(f.has_signed_zero ? 1 : 0);
  const auto subnormals = [&](const ConversionProfile& p) {
    return std::string(available && has_subnormals(f, p) ? "1" : "0");
  };
  expect_class(r, column++, subnormals(r.profile()), subnormals(pto_profile));
  detail(f.has_infinity ? 1 : 0);
  detail(f.nan != NanCodes::none ? 1 : 0);
  detail(f.nan == NanCodes::ieee ? 1 : 0);
  detail(f.nan != NanCodes::none ? 1 : 0);
  r.expect_word(column++, available ? f.canonical_nan : 0);
  detail(f.has_signed_zero ? 1 : 0);
  r.expect_word(column++, 0);
  r.expect_word(column++, available && f.has_signed_zero ? zero_code(f, true) : 0);
  if (r.differs()) r.decided_by("numerics 1.1");
}

void check_format_value(Record& r) {
  const Format& f = r.format(0);
  const uint64 word = r.word(1);
  if (r.malformed()) return;
  const bool negative = decode(f, word).real.negative;
  const auto text = [&](const ConversionProfile& p) { return class_text(classify(f, word, p), negative); };
  expect_class(r, 2, text(r.profile()), text(pto_profile));
  const Decomposition d = decompose(f, word);
  r.expect_truth(3, d.available);
  r.expect_truth(4, d.negative);
  r.expect_word(5, d.significand);
  r.expect_integer(6, d.exponent);
  if (r.differs()) r.decided_by(r.differs(2) ? "numerics 1.3" : "numerics 1.9");
}

void check_fp19_class(Record& r) {
  const uint64 raw = r.word(0);
  if (!r.malformed() && raw > low_mask(19)) r.fault(0, "an FP19 of 19 bits");
  if (r.malformed()) return;
  const Value v = decode(fp19, raw);
  r.expect_text(1, class_text(v.cls, v.real.negative));
  r.expect_truth(2, legal_as_scale(raw));
  r.expect_truth(3, legal_as_activation(raw));
  if (r.differs()) r.decided_by(r.differs(1) ? "numerics 1.3" : "numerics 4.1: legality");
}

void check_fp32_to_fp19(Record& r) {
  r.expect_word(1, fp32_to_fp19(r.word(0)));
  if (r.differs()) r.decided_by("numerics 4.1: narrowing helper");
}

void check_encoder(Record& r) {
  const Format& f = r.format(0);
  EncodeControl how = control(r, 1, 2);
  const WideReal<16> x = parse_real(r, 3, 4);
  if (!r.malformed() && f.layout == Layout::reciprocal) r.fault(0, "a destination; RCPE6M2 is none");
  if (r.malformed()) return;
  r.expect_encoded(5, 6, f, [&](const ConversionProfile& profile) {
    how.profile = &profile;
    return encode(f, x, how);
  });
  if (!r.differs()) return;
  how.profile = &r.profile();
  r.decided_by(encode_clause(f, x, encode(f, x, how), how, r.differs_in_flags_only(5)));
}

namespace {

/// The conversion itself; the columns are given.
void check_conversion(Record& r, const Format& from, const Format& to, EncodeControl how, std::size_t value,
                      std::size_t result, std::size_t flags) {
  const uint64 word = r.word(value);
  if (r.malformed()) return;
  r.expect_encoded(result, flags, to, [&](const ConversionProfile& profile) {
    EncodeControl control = how;
    if (!r.form().has_profile) control.profile = &profile;
    return convert(from, to, word, control);
  });
  if (r.differs()) {
    const Encoded got = convert(from, to, word, how);
    r.decided_by(convert_clause(from, to, word, got, how, r.differs_in_flags_only(result)));
  }
}

}  // namespace

void check_e8m0(Record& r) {
  const Format& from = r.format(0);
  const EncodeControl how = control(r, 1, 2);
  if (!check_pair(r, 0, from, e8m0, how.rounding, 1)) return;
  check_conversion(r, from, e8m0, how, 3, 4, 5);
}

void check_tcvt(Record& r) {
  const ConversionProfile& profile = r.conversion_profile(0);
  const Format& from = r.format(1);
  const Format& to = r.format(2);
  EncodeControl how = control(r, 3, 4);
  how.profile = &profile;
  if (!check_pair(r, 2, from, to, how.rounding, 3)) return;
  check_conversion(r, from, to, how, 5, 6, 7);
}

void check_tcvt_integer(Record& r) {
  const Format& from = r.format(0);
  const Format& to = r.format(1);
  const EncodeControl how{.saturate = r.truth(2)};
  if (!r.malformed() && !from.is_integer()) r.fault(0, "an integer type");
  if (!r.malformed() && !to.is_integer()) r.fault(1, "an integer type");
  if (r.malformed()) return;
  check_conversion(r, from, to, how, 3, 4, Record::npos);
}

}  // namespace bitcube::verify
