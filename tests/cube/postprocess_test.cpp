// B.FPATR: quantisation, activation, reductions: numerics 5, 9.7.
#include "bitcube/cube/postprocess_matrix.hpp"

#include <gtest/gtest.h>

#include <string>

#include "oracle/oracle.hpp"
#include "support/operands.hpp"
#include "support/row.hpp"

namespace bitcube {
namespace {

using test::Row;

TEST(Postprocess, VectorsOfTheExecutableSpecification) {
  test::for_each_row("postprocess.csv", [](const Row& row) {
    const PreQuantMode& mode = *find_prequant(static_cast<unsigned>(row.word("pre_quant_mode")));
    ElementPostprocess p;
    p.mode = &mode;
    p.relu = static_cast<Relu>(row.word("relu_mode"));
    p.quant = unpack_quant_carrier(row.word("quant_param"), mode.offset_bits);
    p.alpha = row.word("relu_param");
    p.rounding = row.rounding("rounding");
    p.saturate = row.truth("sat");
    p.profile = &test::asl_profile();
    const Format& output = row.format("output_type");
    const Format& accumulator = mode.accumulator == DataType::none ? output : format_of(mode.accumulator);
    EXPECT_EQ(destination_format(mode, accumulator).name, output.name);
    test::expect_encoded(postprocess_element(p, accumulator, row.word("value")), output, row.word("result"),
                         row.flags("flags"));
  });
}

// The table of numerics 5.6.
TEST(Postprocess, WorkedRows) {
  for (const auto& row : bitcube_rows::kPostprocess) {
    SCOPED_TRACE(row.what);
    const PreQuantMode& mode = *find_prequant(static_cast<unsigned>(row.mode));
    ElementPostprocess p;
    p.mode = &mode;
    p.relu = static_cast<Relu>(row.relu);
    p.quant = unpack_quant_carrier(row.quant, mode.offset_bits);
    p.alpha = row.alpha;
    p.rounding = static_cast<Rounding>(row.rounding);
    p.saturate = row.sat != 0;
    p.profile = &test::asl_profile();
    const Format& accumulator = *find_format(row.accumulator);
    test::expect_encoded(postprocess_element(p, accumulator, row.word), destination_format(mode, accumulator), row.out);
  }
}

TEST(Postprocess, ModeTable) {
  test::for_each_row("fpatr_modes.csv", [](const Row& row) {
    const PreQuantMode* mode = find_prequant(static_cast<unsigned>(row.word("pre_quant_mode")));
    ASSERT_EQ(mode != nullptr, row.truth("legal"));
    if (mode == nullptr) return;
    const auto accepts = [&](DataType t) { return mode->accumulator == DataType::none || mode->accumulator == t; };
    EXPECT_EQ(accepts(DataType::fp32), row.truth("acc_fp32_legal"));
    EXPECT_EQ(accepts(DataType::s32), row.truth("acc_s32_legal"));
    EXPECT_EQ(mode->accumulator == DataType::none, row.truth("acc_u32_legal"));
    EXPECT_EQ(destination_format(*mode, fp32).name, row.text("output_type"));
    EXPECT_EQ(mode->carrier != CarrierKind::none && !mode->per_column, row.truth("uses_scalar"));
    EXPECT_EQ(mode->per_column, row.truth("uses_vector"));
    EXPECT_EQ(mode->offset_bits, row.word("offset_width"));
    EXPECT_EQ(mode->carrier == CarrierKind::shift, row.truth("is_shift"));
    const bool fixed = mode->rounding_rule == RoundingRule::fixed;
    EXPECT_EQ(mode->saturation_allowed, row.truth("final_sat_programmable"));
    EXPECT_TRUE(row.truth("datr_none_nosat"));
    EXPECT_EQ(mode->saturation_allowed, row.truth("datr_none_sat"));
    EXPECT_EQ(!fixed, row.truth("datr_001_nosat"));
    EXPECT_EQ(!fixed && mode->saturation_allowed, row.truth("datr_111_sat"));
    // The modes whose rounding the specification calls fixed; 0, 12 and 13 take no rounding at all.
    if (row.truth("fixed_rounding")) {
      EXPECT_EQ(name_of(mode->rounding), row.text("effective_rounding_for_rtz"));
    }
  });
}

// Every mode, every activation, every rounding against the oracle on corner accumulators and parameters.
TEST(Postprocess, CornersAgainstTheOracle) {
  test::Operands operands(17);
  constexpr uint64 scales[] = {0x1FC00, 0x1F800, 0x20000, 0x1F555, 0x00400, 0x3FBFF, 0x1FFFF, 0x1FC01};
  constexpr uint64 alphas[] = {0, 0x1F800, 0x1FC00, 0x00400, 0x3FBFF, 0x1FA00};
  for (const PreQuantMode& mode : prequant_modes) {
    for (int i = 0; i < 4000; ++i) {
      const DataType any[] = {DataType::fp32, DataType::s32, DataType::u32};
      const Format& acc = format_of(mode.accumulator == DataType::none ? any[operands.below(3)] : mode.accumulator);
      uint64 word = operands.word(acc) & low_mask(32);
      if (acc.is_integer() && operands.chance(2))
        word = static_cast<uint64>(static_cast<int64>(operands.below(2048)) - 1024) & low_mask(32);
      const uint64 scale = operands.chance(2) ? scales[operands.below(8)] : 0x400 + operands.below(0x3FBFF - 0x400);
      const uint64 carrier = mode.carrier == CarrierKind::shift
                                 ? pack_shift_carrier(1 + static_cast<int>(operands.below(16)))
                                 : pack_scale_carrier(scale, static_cast<int64>(operands.raw()), mode.offset_bits);
      const uint64 alpha = operands.chance(2) ? alphas[operands.below(6)] : 0x400 + operands.below(0x3FBFF - 0x400);
      for (const ConversionProfile& profile : conversion_profiles) {
        const auto relu = static_cast<Relu>(mode.carrier == CarrierKind::shift ? 0 : operands.below(4));
        for (const RoundingInfo& r : roundings) {
          for (const bool sat : {false, true}) {
            ElementPostprocess p{&mode, relu,    unpack_quant_carrier(carrier, mode.offset_bits), alpha, r.mode,
                                 sat,   &profile};
            const Encoded got = postprocess_element(p, acc, word);
            const auto index = static_cast<int>(&profile - conversion_profiles.data());
            const auto want = bitcube_oracle::postprocess(mode.code, static_cast<int>(relu), static_cast<int>(acc.type),
                                                          word, carrier, alpha, static_cast<int>(r.mode), sat ? 1 : 0,
                                                          static_cast<bitcube_oracle::Profile>(index));
            const Format& to = destination_format(mode, acc);
            ASSERT_EQ(got.bits, want.bits & low_mask(to.lane_bits))
                << mode.name << " relu " << static_cast<int>(relu) << std::hex << " " << word << " " << carrier << " "
                << alpha << " " << r.name << sat << profile.name;
            ASSERT_EQ(static_cast<unsigned>(got.flags), want.flags)
                << mode.name << " relu " << static_cast<int>(relu) << std::hex << " " << word << " " << carrier << " "
                << alpha << " " << r.name << sat << profile.name;
          }
        }
      }
    }
  }
}

TEST(Reduction, Vectors) {
  test::for_each_row("reduction.csv", [](const Row& row) {
    const Reduced r =
        reduce_step(row.format("data_type"), row.truth("max_abs"), static_cast<std::uint32_t>(row.word("current")),
                    static_cast<std::uint32_t>(row.word("candidate")));
    EXPECT_EQ(r.word, static_cast<std::uint32_t>(row.word("result")));
    EXPECT_EQ(static_cast<int>(r.flags), static_cast<int>(row.flags("flags")));
  });
}

Accumulators row_matrix(const Format& f, const std::uint32_t* words, std::size_t count) {
  return {&f, 1, count, Buffer<std::uint32_t>(words, words + count)};
}

// The table of numerics 5.7, through the matrix function.
TEST(Reduction, WorkedRows) {
  for (const auto& row : bitcube_rows::kReductions) {
    const Format& f = *find_format(row.type);
    PostprocessOptions options;
    options.row_max = true;
    options.max_abs = row.max_abs != 0;
    options.group_n = static_cast<unsigned>(row.group_n);
    const std::uint32_t init = row.row_max_in;
    if (row.row_max_init != 0) options.row_max_init = std::span<const std::uint32_t>(&init, 1);
    const auto result = postprocess(row_matrix(f, row.element, static_cast<std::size_t>(row.count)), options);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->row_max.at(0), row.row_max);
    EXPECT_EQ(result->group_max.size(), static_cast<std::size_t>(row.groups));
    for (int g = 0; g < row.groups; ++g) EXPECT_EQ(result->group_max[static_cast<std::size_t>(g)], row.group_max[g]);
    if (row.groups == 0) {
      EXPECT_EQ(static_cast<unsigned>(result->flags), row.flags);
    }
  }
}

TEST(CScale, Vectors) {
  test::for_each_row("cscale.csv", [](const Row& row) {
    const auto c = static_cast<std::uint32_t>(row.word("c"));
    for (const ConversionProfile& profile : conversion_profiles) {
      test::expect_encoded(scale_c(c, static_cast<unsigned>(row.word("s")), profile), fp32, row.word("result"),
                           row.flags("flags"));
    }
  });
}

TEST(CScale, WorkedRows) {
  for (const auto& row : bitcube_rows::kCScale) {
    test::expect_encoded(scale_c(row.c, static_cast<unsigned>(row.s)), fp32, row.out);
  }
}

std::string refusal(const Format& f, std::size_t cols, const PostprocessOptions& options) {
  const auto ok = check_postprocess(f, 2, cols, options);
  return ok ? "" : ok.error().message;
}

TEST(PostprocessMatrix, Refusals) {
  const Format& s32 = *find_format("S32");
  const std::vector<uint64> one{0x3F800000};
  const std::vector<uint64> three{0x3F800000, 0x3F800000, 0x3F800000};
  PostprocessOptions o;
  o.mode = find_prequant("REQ8");
  EXPECT_EQ(refusal(fp32, 3, o).substr(0, 3), "F3:");
  EXPECT_EQ(refusal(s32, 3, o).substr(0, 3), "F1:");  // no parameter
  o.quant_carriers = one;
  EXPECT_EQ(refusal(s32, 3, o), "");
  o.quant_carriers = three;
  EXPECT_EQ(refusal(s32, 3, o).substr(0, 3), "F1:");
  o.mode = find_prequant("VREQ8");
  EXPECT_EQ(refusal(s32, 3, o), "");
  EXPECT_EQ(refusal(s32, 4, o).substr(0, 3), "F5:");
  // Each column is checked, and named.
  for (std::size_t column = 0; column < 3; ++column) {
    for (const uint64 bad : {uint64{0}, uint64{0x2000}, uint64{0xBF800000}, uint64{0x7F800000}, uint64{0x7FC00000},
                             uint64{0x3F800001}, uint64{1} << 36 | 0x3F800000, uint64{1} << 46 | 0x3F800000}) {
      std::vector<uint64> words = three;
      words[column] = bad;
      o.quant_carriers = words;
      const std::string text = refusal(s32, 3, o);
      EXPECT_EQ(text.substr(0, 3), "F5:");
      EXPECT_NE(text.find("column " + std::to_string(column)), std::string::npos) << text;
    }
  }
  o = {};
  o.relu = Relu::per_column;
  for (const uint64 bad :
       {uint64{0x40000}, uint64{1}, uint64{0x3FC00}, uint64{0x3FE00}, uint64{0x5FC00}, uint64{1} << 20}) {
    const std::vector<uint64> words{0, 0x1F800, bad};
    o.activation_carriers = words;
    EXPECT_EQ(refusal(fp32, 3, o).substr(0, 3), "F6:");
    EXPECT_NE(refusal(fp32, 3, o).find("column 2"), std::string::npos);
  }
  o = {};
  o.rounding = Rounding::rtz;
  EXPECT_EQ(refusal(fp32, 3, o).substr(0, 3), "C9:");
  o = {};
  o.saturate = true;
  EXPECT_EQ(refusal(fp32, 3, o).substr(0, 3), "C9:");
  o = {};
  o.group_n = 24;
  EXPECT_EQ(refusal(fp32, 3, o).substr(0, 3), "P1:");
  o = {};
  o.max_abs = true;
  EXPECT_EQ(refusal(fp32, 3, o).substr(0, 3), "P1:");
  const std::vector<std::uint32_t> init(5);
  o = {};
  o.row_max_init = init;
  EXPECT_EQ(refusal(fp32, 3, o).substr(0, 3), "P1:");
  o.row_max = true;
  EXPECT_EQ(refusal(fp32, 3, o).substr(0, 3), "F4:");
}

TEST(PostprocessMatrix, FlagsOfAllElementsAreCollected) {
  const std::uint32_t words[] = {0x3F801000, 0x7F800001, 0x477FF000, 0x33000000};
  PostprocessOptions o;
  o.mode = find_prequant("F322F16");
  const auto result = postprocess(row_matrix(fp32, words, 4), o);
  ASSERT_TRUE(result);
  EXPECT_EQ(static_cast<int>(result->flags), 0x1D);
  const std::vector<std::uint8_t> expected{0x00, 0x3C, 0x00, 0x7E, 0x00, 0x7C, 0x00, 0x00};
  EXPECT_EQ(result->d, expected);
}

// A bad argument is an error value, whatever it is.
TEST(PostprocessMatrix, InconsistentArguments) {
  PostprocessOptions o;
  EXPECT_FALSE(postprocess(Accumulators{&fp32, 2, 3, Buffer<std::uint32_t>(5)}, o));
  EXPECT_FALSE(postprocess(Accumulators{&fp32, std::size_t{1} << 40, std::size_t{1} << 40, {}}, o));
  EXPECT_FALSE(postprocess(Accumulators{nullptr, 0, 0, {}}, o));
  EXPECT_FALSE(postprocess(Accumulators{&fp32, 0, 3, {}}, o));
  o.mode = nullptr;
  EXPECT_FALSE(postprocess(Accumulators{&fp32, 1, 1, {0}}, o));
}

TEST(PostprocessMatrix, PackedRows) {
  Postprocessed d;
  d.rows = 2;
  d.cols = 3;
  d.d = {0x3, 0xB, 0x7, 0x7, 0x8, 0x0};
  EXPECT_EQ(packed_rows(d), (std::vector<std::uint8_t>{0xB3, 0x07, 0x87, 0x00}));
}

TEST(PostprocessMatrix, S4LanesSitInTheLowNibble) {
  const std::uint32_t words[] = {0xFFFFFFFF, 3};
  const std::vector<uint64> one{0x3F800000};
  PostprocessOptions o;
  o.mode = find_prequant("REQ4");
  o.quant_carriers = one;
  const auto result = postprocess(row_matrix(*find_format("S32"), words, 2), o);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->d, (std::vector<std::uint8_t>{0x0F, 0x03}));
}

}  // namespace
}  // namespace bitcube
