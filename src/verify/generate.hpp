// Where the given fields of written rows come from: a space of corner cases, and random rows after them.
#pragma once

#include <functional>
#include <string>
#include <vector>

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
