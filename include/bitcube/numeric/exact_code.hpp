// From a literal to the code of a format that has exactly that value, without any rounding.
#pragma once

#include <optional>

#include "bitcube/numeric/encode.hpp"
#include "bitcube/numeric/real_text.hpp"

namespace bitcube {

/// The lane code of `f` whose value is the literal's, bit for bit and sign for sign, or nothing where `f` has none. NaN
/// gives the canonical NaN, and snan the first signalling one.
constexpr std::optional<uint64> exact_code(const Format& f, const RealLiteral& literal) noexcept {
  const bool negative = literal.real.negative;
  if (literal.fault != nullptr || (negative && f.sign_bits == 0)) return std::nullopt;
  switch (literal.cls) {
    case Class::quiet_nan:
      if (f.nan == NanCodes::none) return std::nullopt;
      return f.nan == NanCodes::minus_zero ? f.canonical_nan : with_sign(f, f.canonical_nan, negative);
    case Class::signaling_nan:
      if (f.nan != NanCodes::ieee) return std::nullopt;
      return with_sign(f, f.infinity | uint64{1} << f.low_zero_bits, negative);
    case Class::infinity:
      if (!f.has_infinity) return std::nullopt;
      return with_sign(f, f.infinity, negative);
    case Class::zero:
      if (!f.has_zero || (negative && !f.has_signed_zero)) return std::nullopt;
      return zero_code(f, negative);
    default:
      break;
  }
  if (f.layout == Layout::reciprocal) {  // no destination of any encoder, but it has few codes
    for (uint64 code = 0; code <= f.max_finite; ++code) {
      const Value value = decode(f, code);
      if (!value.real.sticky && compare_magnitude(literal.real, value.real) == 0) return code;
    }
    return std::nullopt;
  }
  const Encoded encoded = encode(f, literal.real, {});
  if (encoded.flags != Flags::none) return std::nullopt;
  return encoded.bits;
}

}  // namespace bitcube
