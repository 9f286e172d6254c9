// The oracle against the worked tables of the contract, and its two ways of computing (integers, rationals) against
// each other.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "oracle/oracle.hpp"
#include "oracle/worked_rows.hpp"

namespace {

namespace bo = bitcube_oracle;
namespace rows = bitcube_rows;
using u64 = std::uint64_t;

bo::Profile profile_of(const char* name) {
  return static_cast<bo::Profile>(bo::profile_code(name));
}

bo::Exact exact(const rows::Real& x) {
  return bo::Exact::fraction(mpz_class(static_cast<long>(x.numerator)), mpz_class(static_cast<long>(x.denominator)),
                             x.exponent);
}

void expect(const bo::Result& r, const rows::Out& out, const std::string& what) {
  EXPECT_EQ(r.bits, out.bits) << what;
  EXPECT_EQ(r.flags, out.flags) << what;
}

std::string label(const char* a, const std::string& b, int mode, int sat) {
  return std::string(a) + " " + b + " mode " + std::to_string(mode) + " sat " + std::to_string(sat);
}

TEST(OracleWorked, IntegerRounding) {
  for (const auto& row : rows::kIntegerRounding) {
    for (int i = 0; i < 7; ++i) EXPECT_EQ(bo::round_to_integer(exact(row.x), rows::kColumns[i]), row.value[i]);
  }
}

TEST(OracleWorked, Postprocess) {
  for (const auto& row : rows::kPostprocess) {
    const bo::PreQuantMode* m = bo::pre_quant_mode(row.mode);
    for (const bo::Profile p : {bo::pto, bo::asl, bo::ocp}) {
      if (p == bo::ocp && (m->output == bo::E4M3 || m->output == bo::HiF8)) continue;
      expect(bo::postprocess(row.mode, row.relu, bo::type_code(row.accumulator), row.word, row.quant, row.alpha,
                             row.rounding, row.sat, p),
             row.out, label(row.what, "profile", p, row.sat));
    }
    if (row.quant != 0) {
      EXPECT_TRUE(bo::quant_parameter_legal(row.mode, row.quant)) << row.what;
    }
    EXPECT_TRUE(bo::relu_parameter_legal(row.alpha)) << row.what;
  }
}

TEST(OracleWorked, Encode) {
  for (const auto& row : rows::kEncode) {
    const bo::AllModes all = bo::encode_all(exact(row.x), bo::type_code(row.type), profile_of(row.profile));
    rows::for_each_column(row, [&](rows::Mode mode, int sat, const rows::Out& out) {
      expect(all(mode, sat), out, label(row.type, row.label, mode, sat));
    });
  }
}

/// The bits of numerics 6.1 hold in every profile, only UF at the smallest normal value may differ.
TEST(OracleWorked, EncodeBitsDoNotDependOnTininess) {
  for (const auto& row : rows::kEncode) {
    if (std::string(row.section) != "6.1") continue;
    const bo::AllModes all = bo::encode_all(exact(row.x), bo::type_code(row.type), bo::pto);
    rows::for_each_column(row, [&](rows::Mode mode, int sat, const rows::Out& out) {
      EXPECT_EQ(all(mode, sat).bits, out.bits) << label(row.type, row.label, mode, sat);
      EXPECT_EQ(all(mode, sat).flags & ~bo::UF, out.flags & ~bo::UF) << label(row.type, row.label, mode, sat);
    });
  }
}

TEST(OracleWorked, Tininess) {
  for (const auto& row : rows::kTininess) {
    const bo::Result after = bo::tcvt(bo::FP32, bo::FP16, row.source, bo::pto)(row.rounding, 0);
    const bo::Result pre = bo::tcvt(bo::FP32, bo::FP16, row.source, bo::asl)(row.rounding, 0);
    expect(after, {row.result, row.after}, "after");
    expect(pre, {row.result, row.pre}, "pre");
  }
}

/// Numerics 6.2: the closed form of the reading `after`, just below the smallest normal FP16.
TEST(OracleWorked, TininessClosedForm) {
  const int p = 11;
  for (std::uint32_t bits = 0x387FC001; bits < 0x38800000; ++bits) {
    const mpq_class t = bo::value_of(bo::FP32, bits)->value() * 16384;
    mpq_class half(1, 1U << (p + 1));  // 2^-(p+1)
    const mpq_class near = 1 - half;
    const mpq_class directed = 1 - 2 * half;
    for (const bool negative : {false, true}) {
      const u64 source = bits | (negative ? 0x80000000U : 0U);
      const bo::AllModes all = bo::tcvt(bo::FP32, bo::FP16, source, bo::pto);
      for (int mode = bo::RNE; mode <= bo::RHB; ++mode) {
        bool normal = false;
        if (mode == bo::RNE || mode == bo::RNA || (mode == bo::RHB && !negative)) normal = t >= near;
        if (mode == bo::RHB && negative) normal = t > near;
        if ((mode == bo::RTP && !negative) || (mode == bo::RTM && negative)) normal = t > directed;
        ASSERT_EQ((all(mode, 0).flags & bo::UF) == 0, normal) << std::hex << source << " mode " << mode;
      }
    }
  }
}

TEST(OracleWorked, TcvtToE8m0) {
  for (const auto& row : rows::kTcvtE8m0) {
    for (const bo::Profile p : {bo::pto, bo::asl, bo::ocp}) {
      const bo::AllModes all =
          bo::tcvt(bo::type_code(row.source_type), bo::type_code(row.destination_type), row.source, p);
      rows::for_each_column(row, [&](rows::Mode mode, int sat, const rows::Out& out) {
        expect(all(mode, sat), out, label(row.source_type, std::to_string(row.source), mode, sat));
      });
    }
  }
}

TEST(OracleWorked, Tcvt) {
  for (const auto& row : rows::kTcvtCases) {
    const int source = bo::type_code(row.source_type);
    const int destination = bo::type_code(row.destination_type);
    const std::string what = std::string(row.section) + " " + row.source_type + " " + row.destination_type + " " +
                             std::to_string(row.source);
    EXPECT_TRUE(bo::tcvt_legal(source, destination, row.rounding)) << what;
    expect(bo::tcvt(source, destination, row.source, bo::pto)(row.rounding, row.sat), row.out, what);
  }
}

TEST(OracleWorked, E6m2) {
  for (const auto& row : rows::kE6m2Reals) {
    const bo::AllModes all = bo::encode_all(exact(row.x), bo::E6M2, bo::pto);
    expect(all(bo::RNE, 0), row.out, "RNE");
    expect(all(bo::RNA, 0), row.out, "RNA");
  }
}

TEST(OracleWorked, Reductions) {
  for (const auto& row : rows::kReductions) {
    const int type = bo::type_code(row.type);
    const std::vector<u64> elements(row.element, row.element + row.count);
    std::optional<u64> in;
    if (row.row_max_init != 0) in = row.row_max_in;
    expect(bo::row_max(type, row.max_abs != 0, elements, in), {row.row_max, row.flags}, row.type);
    if (row.group_n == 0) continue;
    const std::vector<bo::Result> groups = bo::group_maxima(type, row.max_abs != 0, elements, row.group_n);
    ASSERT_EQ(groups.size(), static_cast<std::size_t>(row.groups));
    for (std::size_t i = 0; i < groups.size(); ++i) EXPECT_EQ(groups[i].bits, row.group_max[i]);
  }
  const std::vector<u64> twenty(20, 1);
  EXPECT_EQ(bo::group_maxima(bo::U32, false, twenty, 16).size(), 2u);
}

TEST(OracleWorked, CScale) {
  for (const auto& row : rows::kCScale) {
    for (const bo::Profile p : {bo::pto, bo::asl, bo::ocp}) expect(bo::c_scale(row.c, row.s, p), row.out, "C scale");
  }
}

TEST(OracleWorked, Tquant) {
  for (const auto& row : rows::kTquant) {
    const auto zero_point = static_cast<u64>(static_cast<std::int64_t>(row.zero_point));
    const int type = bo::type_code(row.type);
    EXPECT_TRUE(bo::zero_point_legal(type, zero_point));
    expect(bo::tquant(type, row.x, row.multiplier, zero_point, row.rounding, row.sat), row.out, row.type);
  }
  EXPECT_FALSE(bo::multiplier_legal(0));
}

TEST(OracleWorked, Tdequant) {
  for (const auto& row : rows::kTdequant) {
    const auto q = static_cast<u64>(static_cast<std::int64_t>(row.q));
    const auto zero_point = static_cast<u64>(static_cast<std::int64_t>(row.zero_point));
    expect(bo::tdequant(bo::type_code(row.type), q, row.multiplier, zero_point, row.rounding, bo::pto), row.out,
           row.type);
  }
}

TEST(OracleWorked, Hif4Scale) {
  for (const auto& row : rows::kHif4Scales) {
    const auto scale = bo::hif4_scale(row.word, row.q);
    ASSERT_EQ(scale.has_value(), row.increment >= 0);
    if (scale) {
      EXPECT_EQ(scale->value(), exact(row.scale).value());
    }
  }
}

TEST(OracleWorked, Hif4WorkedGroup) {
  std::vector<u64> x(rows::kHif4WorkedLanes, rows::kHif4WorkedLanes + 16);
  x.resize(64, 0);
  for (const auto& row : rows::kHif4Worked) {
    const bo::Hif4Rules rules{row.prescale_one_seventh != 0, false, true, row.lane_rounding == rows::kRne};
    if (row.profile != nullptr) {
      const bo::Hif4Rules named = *bo::hif4_rules(row.profile);
      EXPECT_EQ(named.one_seventh, rules.one_seventh);
      EXPECT_EQ(named.lanes_rne, rules.lanes_rne);
    }
    const bo::Hif4Group g = bo::hif4_quantize(rules, bo::BF16, x.data(), x.size());
    EXPECT_EQ(g.ma, row.maximum);
    EXPECT_EQ(g.sf, row.prescaled);
    EXPECT_EQ(g.ea, row.ea);
    EXPECT_EQ(g.ea_rec, row.ea_rec);
    EXPECT_EQ(g.eb, row.eb);
    EXPECT_EQ(g.ec, row.ec);
    EXPECT_EQ(g.word, row.word);
    for (std::size_t h = 0; h < 4; ++h) EXPECT_EQ(g.scale[h], row.scale[h]);
    for (std::size_t q = 0; q < 64; ++q) EXPECT_EQ(g.codes[q], q < 16 ? row.code[q] : 0);
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(g.codes[2 * i] | g.codes[2 * i + 1] << 4, row.bytes[i]);
  }
}

TEST(OracleWorked, Hif4UniformGroups) {
  for (const auto& row : rows::kHif4Uniform) {
    const std::vector<u64> x(64, row.x);
    const bo::Hif4Group g = bo::hif4_quantize(*bo::hif4_rules(row.profile), bo::BF16, x.data(), x.size());
    EXPECT_EQ(g.ea, row.ea) << row.value;
    EXPECT_EQ(g.ea_rec, row.ea_rec) << row.value;
    EXPECT_EQ(g.eb, row.eb) << row.value;
    EXPECT_EQ(g.ec, row.ec) << row.value;
    EXPECT_EQ(g.word, row.word) << row.value;
    for (const auto scale : g.scale) EXPECT_EQ(scale, row.scale) << row.value;
    for (const auto code : g.codes) EXPECT_EQ(code, row.code) << row.value;
  }
}

TEST(OracleWorked, Mx) {
  for (const auto& row : rows::kMx) {
    for (std::size_t i = 0; i < 4; ++i) {
      const u64 x = row.x;
      const bo::BlockCodes b =
          bo::mx_quantize(bo::type_code(row.type), *bo::mx_rule(rows::kMxRules[i]), bo::BF16, &x, 1);
      EXPECT_EQ(b.scale, row.codes[i].scale) << row.type << " " << rows::kMxRules[i] << " " << row.x;
      EXPECT_EQ(b.codes[0], row.codes[i].element) << row.type << " " << rows::kMxRules[i] << " " << row.x;
    }
  }
}

std::vector<u64> words(const char* digits, int per_word) {
  std::vector<u64> out;
  if (digits == nullptr) return out;
  const std::string text = digits;
  const auto step = static_cast<std::size_t>(per_word);
  for (std::size_t i = 0; i + step <= text.size(); i += step)
    out.push_back(std::strtoull(text.substr(i, step).c_str(), nullptr, 16));
  return out;
}

TEST(OracleWorked, Accumulate) {
  for (const auto& row : rows::kAccumulate) {
    const auto side = [](const char* type, const char* lanes, const char* scales) {
      bo::Side s;
      s.type = bo::type_code(type);
      s.lanes = words(lanes, bo::carrier_bits(s.type) / 4);
      s.scales = words(scales, s.type == bo::HiF4X2 ? 8 : 2);
      return s;
    };
    const bo::Side a = side(row.a_type, row.a, row.a_scales);
    const bo::Side b = side(row.b_type, row.b, row.b_scales);
    ASSERT_EQ(a.lanes.size(), static_cast<std::size_t>(row.k));
    ASSERT_EQ(b.lanes.size(), static_cast<std::size_t>(row.k));
    const auto word = [](const char* text) -> std::optional<std::uint32_t> {
      if (text == nullptr) return std::nullopt;
      return static_cast<std::uint32_t>(std::strtoul(text, nullptr, 16));
    };
    EXPECT_EQ(bo::accumulate(*bo::accumulation(row.profile), a, b, word(row.c), word(row.bias)), row.result)
        << row.section << " " << row.profile << " " << row.a << " " << row.b;
  }
}

/// Profiles 3: 2^24, 1, 1, -2^24.
TEST(OracleWorked, AccumulationProfiles) {
  const bo::Side a{bo::FP32, {0x4B800000, 0x3F800000, 0x3F800000, 0xCB800000}, {}};
  const bo::Side b{bo::FP32, std::vector<u64>(4, 0x3F800000), {}};
  using A = bo::Accumulation;
  EXPECT_EQ(bo::accumulate(A::fma, a, b, std::nullopt, std::nullopt), 0u);
  EXPECT_EQ(bo::accumulate(A::two_step, a, b, std::nullopt, std::nullopt), 0u);
  EXPECT_EQ(bo::accumulate(A::group, a, b, std::nullopt, std::nullopt, 2), 0x3F800000u);
  EXPECT_EQ(bo::accumulate(A::group, a, b, std::nullopt, std::nullopt, 4), 0x40000000u);
  EXPECT_EQ(bo::accumulate(A::exact, a, b, std::nullopt, std::nullopt), 0x40000000u);
}

/// Profiles 4: E4M3 and HiF8 under ocp.
TEST(OracleWorked, OcpOverflow) {
  const auto e4m3 = [](long x, int mode) { return bo::encode(bo::Exact::dyadic(x, 0), bo::E4M3, mode, 0, bo::ocp); };
  EXPECT_EQ(e4m3(464, bo::RNE), (bo::Result{0x7E, bo::NX}));
  EXPECT_EQ(e4m3(465, bo::RNE), (bo::Result{0x7F, bo::OF | bo::NX}));
  EXPECT_EQ(e4m3(479, bo::RTZ), (bo::Result{0x7E, bo::NX}));
  EXPECT_EQ(e4m3(480, bo::RTZ), (bo::Result{0x7F, bo::OF | bo::NX}));
  EXPECT_EQ(e4m3(449, bo::RTP), (bo::Result{0x7F, bo::OF | bo::NX}));
  EXPECT_EQ(e4m3(-449, bo::RTP), (bo::Result{0xFE, bo::NX}));
  const auto hif8 = [](long x, int mode) { return bo::encode(bo::Exact::dyadic(x, 0), bo::HiF8, mode, 0, bo::ocp); };
  EXPECT_EQ(hif8(40960, bo::RNE), (bo::Result{0x6E, bo::NX}));
  EXPECT_EQ(hif8(40961, bo::RNE), (bo::Result{0x6F, bo::OF | bo::NX}));
  EXPECT_EQ(bo::encode(bo::Exact::dyadic(-1, -11), bo::E4M3, bo::RNE, 0, bo::ocp).bits, 0x80u);
  EXPECT_EQ(bo::encode(bo::Exact::dyadic(7, 0), bo::E2M1X2, bo::RNE, 0, bo::ocp).bits, 0x7u);
}

constexpr int kDestinations[] = {bo::FP64, bo::FP32, bo::TF32, bo::HF32, bo::FP16, bo::BF16,   bo::HiF8,   bo::E4M3,
                                 bo::E5M2, bo::E3M2, bo::E2M3, bo::S64,  bo::S32,  bo::S16,    bo::S8,     bo::S4X2,
                                 bo::U64,  bo::U32,  bo::U16,  bo::U8,   bo::U4X2, bo::E2M1X2, bo::E1M2X2, bo::E6M2};

/// Every finite value of the types up to 16 bits encodes into itself in every mode, without a flag.
TEST(OracleWorked, ValuesAreFixedPoints) {
  for (const int type : kDestinations) {
    if (bo::carrier_bits(type) > 16) continue;
    for (u64 code = 0; code < (u64{1} << bo::carrier_bits(type)); ++code) {
      const auto x = bo::value_of(type, code);
      if (!x || (x->magnitude == 0 && code != 0)) continue;
      const bo::AllModes all = bo::encode_all(*x, type, bo::pto);
      for (int mode = bo::RNE; mode <= bo::RHB; ++mode) {
        if (all(mode, 0).flags == bo::kIllegal) continue;
        ASSERT_EQ(all(mode, 0), (bo::Result{code, 0})) << bo::type_name(type);
        ASSERT_EQ(all(mode, 1), (bo::Result{code, 0})) << bo::type_name(type);
      }
    }
  }
}

/// Integers and rationals give the same.
TEST(OracleWorked, FastPathEqualsRationals) {
  std::mt19937_64 random(20260801);
  for (int i = 0; i < 4000; ++i) {
    u64 significand = random() >> (random() % 64);
    if (random() % 3 == 0) significand = (significand << 8) | (random() % 3 == 0 ? 0x80 : 0);
    const int exponent =
        static_cast<int>(random() % 3 == 0 ? random() % 2400 : random() % 80) - (random() % 2 == 0 ? 1200 : 60);
    const bool negative = random() % 2 == 0;
    mpz_class z;
    mpz_import(z.get_mpz_t(), 1, 1, sizeof significand, 0, 0, &significand);
    const bo::Exact x = bo::Exact::dyadic(negative ? mpz_class(-z) : z, exponent);
    for (const int type : kDestinations) {
      for (const bo::Profile p : {bo::pto, bo::asl, bo::ocp}) {
        bo::AllModes fast;
        bo::encode_all(negative, significand, exponent, type, p, fast);
        ASSERT_EQ(fast.r, bo::encode_all(x, type, p).r) << bo::type_name(type) << " " << significand << " " << exponent;
      }
    }
  }
}

}  // namespace
