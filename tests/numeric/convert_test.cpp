// TCVT: numerics 7.
#include "bitcube/numeric/convert.hpp"

#include <gtest/gtest.h>

#include "oracle/oracle.hpp"
#include "support/row.hpp"

namespace bitcube {
namespace {

using test::Row;

TEST(Convert, FloatVectors) {
  test::for_each_row("tcvt_float.csv", [](const Row& row) {
    const Format& from = row.format("source_type");
    const Format& to = row.format("destination_type");
    const EncodeControl how{row.rounding("rounding"), row.truth("sat"), &row.profile("profile")};
    EXPECT_TRUE(conversion_legal(from, to));
    test::expect_encoded(convert(from, to, row.word("value"), how), to, row.word("result"), row.flags("flags"));
  });
}

TEST(Convert, ScaleVectors) {
  test::for_each_row("tcvt_scale.csv", [](const Row& row) {
    const Format& from = row.format("source_type");
    const Format& to = row.format("destination_type");
    const EncodeControl how{row.rounding("rounding"), row.truth("sat"), &row.profile("profile")};
    EXPECT_TRUE(conversion_legal(from, to) && rounding_legal(from, to, how.rounding));
    test::expect_encoded(convert(from, to, row.word("value"), how), to, row.word("result"), row.flags("flags"));
  });
}

TEST(Convert, E8m0Vectors) {
  test::for_each_row("e8m0.csv", [](const Row& row) {
    const EncodeControl how{row.rounding("rounding"), row.truth("sat"), &test::asl_profile()};
    const Encoded e = convert(row.format("source_type"), e8m0, row.word("value"), how);
    test::expect_encoded(e, e8m0, row.word("result"), row.flags("flags"));
  });
}

TEST(Convert, IntegerVectors) {
  test::for_each_row("tcvt_integer.csv", [](const Row& row) {
    const Format& to = row.format("destination_type");
    const EncodeControl how{.saturate = row.truth("sat")};
    test::expect_encoded(convert(row.format("source_type"), to, row.word("value"), how), to, row.word("result"),
                         Flags::none);
  });
}

// Numerics 7.2.
TEST(Convert, WorkedE8m0Rows) {
  for (const auto& row : bitcube_rows::kTcvtE8m0) {
    SCOPED_TRACE(std::string(row.section) + " " + row.source_type + " " + std::to_string(row.source));
    const Format& to = *find_format(row.destination_type);
    bitcube_rows::for_each_column(row, [&](bitcube_rows::Mode mode, int sat, const bitcube_rows::Out& out) {
      const EncodeControl how{static_cast<Rounding>(mode), sat != 0, &pto_profile};
      test::expect_encoded(convert(*find_format(row.source_type), to, row.source, how), to, out);
    });
  }
}

// Numerics 7.3 to 7.6.
TEST(Convert, WorkedCases) {
  for (const auto& row : bitcube_rows::kTcvtCases) {
    SCOPED_TRACE(std::string(row.section) + " " + row.source_type + " " + row.destination_type + " " +
                 std::to_string(row.source));
    const Format& from = *find_format(row.source_type);
    const Format& to = *find_format(row.destination_type);
    const Rounding mode = row.rounding == bitcube_rows::kNone ? default_rounding(from.is_integer(), to)
                                                              : static_cast<Rounding>(row.rounding);
    test::expect_encoded(convert(from, to, row.source, EncodeControl{mode, row.sat != 0, &pto_profile}), to, row.out);
  }
}

TEST(Convert, WorkedE6m2Reals) {
  for (const auto& row : bitcube_rows::kE6m2Reals) {
    for (const Rounding mode : {Rounding::rne, Rounding::rna}) {
      test::expect_encoded(encode(e6m2, test::real_of(row.x), EncodeControl{.rounding = mode}), e6m2, row.out);
    }
  }
}

// Numerics 7.1, against the oracle's own table: all pairs of the 27 types and all modes.
TEST(Convert, LegalPairs) {
  int legal = 0;
  for (const Format& from : formats) {
    for (const Format& to : formats) {
      for (const RoundingInfo& r : roundings) {
        const bool ok = conversion_legal(from, to) && rounding_legal(from, to, r.mode);
        legal += ok ? 1 : 0;
        EXPECT_EQ(ok, bitcube_oracle::tcvt_legal(static_cast<int>(from.type), static_cast<int>(to.type),
                                                 static_cast<int>(r.mode)))
            << from.name << " to " << to.name << " " << r.name;
      }
    }
  }
  EXPECT_GT(legal, 3000);
}

}  // namespace
}  // namespace bitcube
