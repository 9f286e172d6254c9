// Lanes and exact values, as explanations write them. Private to the explain room.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bitcube/document.hpp"
#include "bitcube/expected.hpp"
#include "bitcube/numeric/decode.hpp"
#include "bitcube/numeric/real_text.hpp"

namespace bitcube::explain {

/// The fields of one lane with their bits, from the highest down.
Table lane_table(const Format& f, uint64 code);
/// The clause of the contract by which lanes of the format are decoded, or encoded.
std::string_view decode_clause(const Format& f) noexcept;
std::string_view encode_clause(const Format& f) noexcept;

/// The 128 most significant bits of a literal, the rest as sticky.
Real narrow(const RealLiteral::Exact& x) noexcept;
/// The first 29 bits, the rest as sticky.
Real cut_off(const Real& x) noexcept;
/// exact_text(); of a value that goes on beyond 29 bits, the first of them and an ellipsis.
std::string number_text(const Real& x);
/// "2^-9".
std::string power_text(int exponent);
/// "1.101 x 2^5", of a value that is not zero.
std::string scientific_text(const Real& x);

/// |a| - |b|, where |a| >= |b| and 128 bits hold it.
std::optional<Real> difference(const Real& a, const Real& b) noexcept;
/// The same as text; as "a - b" where 128 bits do not hold it.
std::string difference_text(const Real& a, const Real& b);

/// What people are told where an explanation does not lead to the library's result.
Error internal_error(std::string_view what);

}  // namespace bitcube::explain
