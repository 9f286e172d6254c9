// Where the given fields of written rows come from: a space of corner cases, and random rows after them.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "bitcube/cube/prequant.hpp"
#include "bitcube/verify/vectors.hpp"
#include "operands.hpp"

namespace bitcube::verify {

using Inputs = std::vector<std::string>;

struct RowSource {
  uint64 corners = 0;                                          // rows with an index of their own
  std::function<void(uint64 index, Inputs& inputs)> corner;    // index < corners
  std::function<void(Random& random, Inputs& inputs)> random;  // empty: there is nothing beyond the corners
};

/// How a kind makes its rows. `profile` is empty where the form names none or rows go through all of them.
using MakeSource = RowSource (*)(std::string_view profile);

struct KindEntry {
  VectorKind kind;
  MakeSource make;
};
std::span<const KindEntry> kind_entries() noexcept;

// generate_blocks.cpp
RowSource hif4_rows(std::string_view profile);
RowSource mx_rows(std::string_view profile);
RowSource accumulate_rows(std::string_view profile);

/// Release 0.58.3, and so profile asl, has no rule for some conversions (profiles 4).
bool asl_has_rule(const Format& from, const Format& to) noexcept;

// ---- postprocess_operands.cpp

/// FP32, S32, U32.
extern const std::array<const Format*, 3> accumulator_types;

/// Raw FP19 scales: legal and illegal ones, at every edge.
inline constexpr std::array<uint64, 16> fp19_scales{0x1FC00, 0x1F800, 0x20000, 0x1F555, 0x00400, 0x3FBFF,
                                                    0x1FFFF, 0x1FC01, 0x00000, 0x40000, 0x00001, 0x003FF,
                                                    0x5FC00, 0x3FC00, 0x3FE00, 0x3FC01};
inline constexpr std::size_t legal_fp19_scales = 8;  // the first ones

/// One element of a post-process before it is text.
struct PostprocessRow {
  const PreQuantMode* mode = &no_quant;
  uint64 relu = 0;
  const Format* accumulator = &fp32;
  uint64 rounding = 0;  // index into `roundings`
  bool saturate = false;
  uint64 word = 0;
  uint64 carrier = 1;  // what a mode without a parameter shows
  uint64 alpha = 0;

  void push(Inputs& inputs) const;
};

/// A mode with an accumulator type, the products at which its results change, and the corners of the accumulator.
struct PostprocessMode {
  const PreQuantMode* mode = nullptr;
  const Format* accumulator = nullptr;
  std::vector<Real> bounds;
  std::vector<uint64> words;
};
std::vector<PostprocessMode> postprocess_modes();

/// The carrier that a mode takes; an offset of INT32_MAX or INT32_MIN means the end of its field. `shift` is 0..15.
uint64 postprocess_carrier(const PreQuantMode& mode, uint64 scale, int64 offset, uint64 shift) noexcept;
/// The accumulator whose product with the scale is at a bound (step 0), or the code above or below it.
uint64 word_near(const PostprocessMode& mode, Real bound, uint64 scale, uint64 carrier, uint64 step,
                 bool negative) noexcept;

/// A number that is written digit by digit in changing bases: the coordinates of one corner case.
class Coordinates {
 public:
  explicit Coordinates(uint64 index) noexcept : rest_(index) {}
  uint64 take(uint64 base) noexcept {
    const uint64 digit = rest_ % base;
    rest_ /= base;
    return digit;
  }
  template <typename List>
  const auto& pick(const List& list) noexcept {
    return list[take(std::size(list))];
  }

 private:
  uint64 rest_;
};

/// The names that rows take in turn: the one that was given, or all of a table.
template <typename Table>
std::vector<std::string> names_or(std::string_view given, const Table& table) {
  std::vector<std::string> names;
  for (const auto& row : table) {
    if (given.empty() || equal_ignoring_case(given, row.name)) names.emplace_back(row.name);
  }
  return names;
}

}  // namespace bitcube::verify
