// Which clause of the contract decides a result: what a report of a mismatch names.
#pragma once

#include <fmt/format.h>

#include <string>

#include "bitcube/numeric/convert.hpp"

namespace bitcube::verify {

/// The clause that decides encode(f, x, control) = e. `flags_only`: the code is not in question.
template <typename ExactReal>
std::string encode_clause(const Format& f, const ExactReal& x, const Encoded& e, const EncodeControl& control,
                          bool flags_only) {
  const bool overflow = has(e.flags, Flags::overflow);
  if (f.is_integer()) {
    return overflow ? "numerics 6.4: beyond the range after rounding; Sat clamps or wraps" : "numerics 6.4: round";
  }
  if (x.is_zero() && f.kind == Kind::floating) return "numerics 6: zero gives +0 without flags";
  if (f.layout == Layout::exponent) {
    if (x.is_zero() || x.negative) return "numerics 7.2 row 1";
    if (overflow) return "numerics 7.2 row 4";
    if (has(e.flags, Flags::underflow)) return "numerics 7.2 row 3";
    return e.flags == Flags::none ? "numerics 7.2 row 5" : "numerics 7.2 row 6";
  }
  if (f.kind == Kind::scale) return "numerics 7.6";
  if (flags_only && !overflow) {
    if (f.underflow_test != UnderflowTest::profile) return "numerics 7.5: underflow";
    const Tininess reading = f.reduced ? control.profile->tininess_reduced : control.profile->tininess;
    const char* name = reading == Tininess::after ? "after" : reading == Tininess::before ? "pre" : "result";
    return fmt::format("numerics 6.2: tininess `{}` of profile {}", name, control.profile->name);
  }
  if (f.is_packed()) return overflow ? "numerics 7.5: overflow" : "numerics 7.5";
  if (f.overflow_test == OverflowTest::magnitude) return "numerics 7.1: E3M2 and E2M3 as destinations";
  const bool fp8 = f.overflow_test == OverflowTest::magnitude_or_ocp;
  if (fp8) {
    if (overflow) {
      return control.profile->fp8_overflow_after_rounding ? "profiles 4: overflow after rounding"
                                                          : "numerics 6.3 step 1";
    }
    return (e.bits & low_mask(f.value_bits - 1)) == 0 ? "numerics 6.3 step 3" : "numerics 6.3 step 2";
  }
  if (floor_log2(x) > f.bias) return "numerics 6.1 step 1";
  if (floor_log2(x) < f.min_exponent()) return "numerics 6.1 step 2";
  return "numerics 6.1 step 3";
}

/// The clause that decides TCVT of one word.
inline std::string convert_clause(const Format& from, const Format& to, uint64 word, const Encoded& e,
                                  const EncodeControl& control, bool flags_only) {
  const Value v = decode(from, word);
  if (from.is_integer() && to.is_integer()) return "numerics 7.4: integer to integer";
  if (from.type == DataType::e8m0 && v.is_nan()) return "numerics 7.3";
  if ((from.type == DataType::e6m2 || from.type == DataType::rcpe6m2) && v.is_nan()) return "numerics 7.6";
  if (to.layout == Layout::exponent && !v.is_finite()) {
    return v.is_infinite() && !v.real.negative ? "numerics 7.2 row 2" : "numerics 7.2 row 1";
  }
  if (to.type == DataType::e6m2 && (!v.is_finite() || v.cls == Class::zero)) return "numerics 7.6";
  if (to.is_packed() && !to.is_integer() && (!v.is_finite() || v.cls == Class::zero)) return "numerics 7.5";
  const bool six_bits = to.type == DataType::e3m2 || to.type == DataType::e2m3;
  if (six_bits && !v.is_finite()) return "numerics 7.1: E3M2 and E2M3 as destinations";
  if (v.is_infinite()) return fmt::format("numerics 7.4: infinity to {}", to.is_integer() ? "integer" : "float");
  if (!v.is_finite()) return fmt::format("numerics 7.4: NaN to {}", to.is_integer() ? "integer" : "float");
  if (v.cls == Class::zero && to.kind != Kind::scale) return "numerics 7.4: zero";
  return encode_clause(to, v.real, e, control, flags_only);
}

}  // namespace bitcube::verify
