// Reading the fields of golden vectors and worked rows as values of the library.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "bitcube/numeric/convert.hpp"
#include "oracle/worked_rows.hpp"
#include "support/csv.hpp"

namespace bitcube::test {

/// One row of a CSV with its fields by column name.
class Row {
 public:
  Row(const Csv& csv, const std::vector<std::string_view>& fields) : csv_(&csv), fields_(&fields) {}

  std::string_view text(std::string_view column) const { return fields_->at(csv_->column(column)); }
  /// Hexadecimal words carry 0x, everything else is decimal.
  std::uint64_t word(std::string_view column) const {
    return text(column).starts_with("0x") ? hex(text(column)) : std::stoull(std::string(text(column)));
  }
  int integer(std::string_view column) const { return std::stoi(std::string(text(column))); }
  bool truth(std::string_view column) const { return text(column) == "1"; }
  const Format& format(std::string_view column) const { return *find_format(text(column)); }
  Rounding rounding(std::string_view column) const { return find_rounding(text(column))->mode; }
  const ConversionProfile& profile(std::string_view column) const { return *find_conversion_profile(text(column)); }
  Flags flags(std::string_view column) const { return static_cast<Flags>(word(column)); }
  std::string whole() const {
    std::string out;
    for (const auto field : *fields_) out.append(field.substr(0, 80)).push_back(' ');
    return out;
  }

 private:
  const Csv* csv_;
  const std::vector<std::string_view>* fields_;
};

/// Calls check(row) for every row of a vector file, and fails if there is none.
template <typename Check>
void for_each_row(std::string_view file, const Check& check) {
  const Csv csv(file);
  ASSERT_FALSE(csv.rows().empty()) << file << " is missing or empty";
  for (const auto& fields : csv.rows()) {
    const Row row(csv, fields);
    check(row);
    if (::testing::Test::HasFailure()) {
      FAIL() << file << ": " << row.whole();
    }
  }
}

/// The encoding that a row expects, compared in the lane of its format.
inline void expect_encoded(const Encoded& got, const Format& format, std::uint64_t bits, Flags flags) {
  EXPECT_EQ(got.bits, bits & low_mask(format.lane_bits));
  EXPECT_EQ(static_cast<int>(got.flags), static_cast<int>(flags));
}
inline void expect_encoded(const Encoded& got, const Format& format, const bitcube_rows::Out& out) {
  expect_encoded(got, format, out.bits, static_cast<Flags>(out.flags));
}

inline const ConversionProfile& asl_profile() {
  return *find_conversion_profile("asl");
}

/// A worked row's real as an exact literal: dyadic, or a quotient with sticky bits.
inline Real real_of(const bitcube_rows::Real& r) {
  Real x = real_from_signed(r.numerator);
  if (r.denominator != 1) x = divide(x, real_from_signed(r.denominator));
  x.exponent += r.exponent;
  return x;
}

}  // namespace bitcube::test
