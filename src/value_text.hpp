// Values, words and flags as text for people.
#pragma once

#include <span>
#include <string>

#include "bitcube/numeric/decode.hpp"
#include "bitcube/numeric/flags.hpp"

namespace bitcube {

/// Double of a finite value; exact for every value of a format that FP64 holds.
double to_double(const Real& real) noexcept;
/// The shortest decimal that tells a value from all others of FP32 (of FP64, if it has more than 32 bits), or inf,
/// -inf, nan, snan, invalid.
std::string value_text(const Format& f, const Value& value);
/// The exact value: in decimal where that takes at most so many digits (not more than 20), else as 0x1.8p-3. A sticky
/// one ends in an ellipsis.
std::string exact_text(const Real& real, int most_digits = 20);
/// The same of a value that may be no number: inf, -inf, nan, snan, invalid.
std::string exact_text(const Value& value);
/// 0x and the digits of a lane.
std::string bits_text(const Format& f, uint64 code);
/// "OF NX", or "-" for none.
std::string flags_text(Flags flags);
/// "784 x 256"; a scalar is "scalar".
std::string shape_text(std::span<const uint64> shape);

}  // namespace bitcube
