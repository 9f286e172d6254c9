// What `convert` and `explain convert` are told: formats, rounding, profile, and values as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bitcube/numeric/convert.hpp"
#include "common.hpp"

namespace bitcube::cli {

/// --from real: exact real numbers.
inline constexpr std::string_view real_source = "real";

struct ConversionArguments {
  std::string to;
  std::string from;  // empty: real_source, or of a file what its dtype says
  std::string round;
  std::string profile{pto_profile.name};
  bool saturate = false;
};

/// What is done to every value.
struct Conversion {
  const Format* from = nullptr;  // nullptr: an exact real
  const Format* to = nullptr;
  EncodeControl control;
  std::string note;
};

/// --to, --from, --round, --sat and --profile.
void add_conversion_options(CLI::App& command, ConversionArguments& arguments);

/// --from of values on the command line; nullptr for exact reals.
Expected<const Format*> look_up_source(const ConversionArguments& arguments);
/// `from` is nullptr for exact reals.
Expected<Conversion> prepare(const ConversionArguments& arguments, const Format* from);
/// The bits that --from TYPE reads from a text.
Expected<uint64> source_bits(const Format& from, std::string_view text);
/// A text that somebody typed, cut to what a message can hold.
std::string abbreviated(std::string_view text);
/// A value as it was typed, without the mark of mark_negative_values().
std::string_view unmarked(std::string_view value) noexcept;

}  // namespace bitcube::cli
