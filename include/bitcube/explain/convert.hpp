// One conversion of TCVT, step by step (numerics 2, 3, 6 and 7).
#pragma once

#include <string>
#include <string_view>

#include "bitcube/document.hpp"
#include "bitcube/expected.hpp"
#include "bitcube/numeric/convert.hpp"
#include "bitcube/numeric/real_text.hpp"

namespace bitcube {

/// Why convert(from, to, word, control) gives what it gives: the source's fields, the destination, the two neighbours
/// with their distances, guard and sticky, who decided, each flag and why, and what every other mode, Sat and profile
/// gives. `word` is one lane; bits above it are ignored. The last result is the encoding, as "0x7E = 448, flags NX".
/// Errors: a rounding mode that the pair does not take (numerics 7.1), RCPE6M2 as destination.
Expected<Document> explain_convert(const Format& from, const Format& to, uint64 word,
                                   const EncodeControl& control = {});

/// The same of convert_value() of a literal; `text` is how it was written.
Expected<Document> explain_convert(const RealLiteral& literal, std::string_view text, const Format& to,
                                   const EncodeControl& control = {});

/// How the last result of an explanation writes an encoding.
std::string encoding_text(const Format& f, const Encoded& encoded);

}  // namespace bitcube
