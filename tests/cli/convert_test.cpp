#include <fmt/format.h>

#include <cstring>
#include <map>
#include <tuple>

#include "cli/program.hpp"
#include "oracle/worked_rows.hpp"

namespace bitcube::test {
namespace {

namespace rows = bitcube_rows;

/// One conversion of one value.
Json convert_one(const Arguments& options, const std::string& value) {
  Arguments arguments{"convert", "--json"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.push_back(value);
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  const Json json = outcome.json();
  return json.is_array() && json.size() == 1 ? json[0] : Json();
}

TEST(Convert, Text) {
  const Outcome outcome = run({"convert", "--to", "e4m3", "1.0625", "-0x1.8p-3", "inf", "448"});
  EXPECT_TRUE(succeeds(outcome));
  EXPECT_EQ(outcome.out,
            "1.0625    -> 0x38  1        NX    (RNE, pto)\n"
            "-0x1.8p-3 -> 0xA4  -0.1875  -     (RNE, pto)\n"
            "inf       -> 0x7F  nan      OF NX (RNE, pto)\n"
            "448       -> 0x7E  448      -     (RNE, pto)\n");
}

TEST(Convert, JsonFields) {
  const Json json = convert_one({"--to", "e4m3", "--from", "fp32"}, "0x3F880000");
  EXPECT_EQ(json["input"], "0x3F880000");
  EXPECT_EQ(json["bits"], "0x38");
  EXPECT_EQ(json["value"], 1.0);
  EXPECT_EQ(json["flags"], Json::parse(R"(["NX"])"));
  EXPECT_EQ(json["source_value"], 1.0625);
  EXPECT_EQ(json["rounding"], "RNE");
  EXPECT_EQ(json["profile"], "pto");
  EXPECT_EQ(convert_one({"--to", "e5m2"}, "-inf")["value"], "-inf");
  EXPECT_EQ(convert_one({"--to", "e5m2"}, "nan")["value"], "nan");
  EXPECT_EQ(convert_one({"--to", "e2m1"}, "-0.1")["value"].dump(), "-0.0");
  EXPECT_EQ(convert_one({"--to", "e2m1"}, "-0.1")["bits"], "0x8");
  EXPECT_EQ(convert_one({"--to", "u64"}, "18446744073709551615")["value"].dump(), "18446744073709551615");
  EXPECT_EQ(convert_one({"--to", "s64"}, "-9223372036854775808")["value"].dump(), "-9223372036854775808");
}

TEST(Convert, NegativeValuesAreNoOptions) {
  const std::vector<std::string> values{"-1",   "-1.5", "-.5",  "-0x1.8p-3", "-0x8", "-inf", "-Infinity",
                                        "-nan", "-0",   "-1e3", "-12",       "1",    "-2"};
  const auto expect_all = [&](const Arguments& arguments) {
    const Outcome outcome = run(arguments);
    EXPECT_TRUE(succeeds(outcome));
    const Json json = outcome.json();
    ASSERT_EQ(json.size(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(json[i]["input"], values[i]);
  };
  const Arguments options{"--to", "fp32", "--json"};
  Arguments before{"convert"};
  before.insert(before.end(), options.begin(), options.end());
  before.insert(before.end(), values.begin(), values.end());
  expect_all(before);
  Arguments after{"convert"};
  after.insert(after.end(), values.begin(), values.end());
  after.insert(after.end(), options.begin(), options.end());
  expect_all(after);
  Arguments between{"convert", "--to", "fp32"};
  between.insert(between.end(), values.begin(), values.end());
  between.push_back("--json");
  expect_all(between);
  Arguments marked{"convert", "--to", "fp32", "--json", "--"};
  marked.insert(marked.end(), values.begin(), values.end());
  expect_all(marked);
}

TEST(Convert, WhatFollowsTheDoubleDashIsAValue) {
  const Outcome outcome = run({"convert", "-1", "--to", "e4m3", "--", "-2", "-inf"});
  EXPECT_TRUE(succeeds(outcome));
  EXPECT_EQ(run({"convert", "--to", "e4m3", "-1", "-2", "-inf"}).out, outcome.out);
  EXPECT_TRUE(refuses({"convert", "--to", "e4m3", "--profile", "-1", "1"}, "unknown name '-1'"));
  EXPECT_TRUE(refuses({"convert", "--to", "e4m3", std::string(5000, '7')}, "... (5000 characters)"));
}

TEST(Convert, DefaultRounding) {
  EXPECT_EQ(convert_one({"--to", "s8"}, "-2.5")["bits"], "0xFE");
  EXPECT_EQ(convert_one({"--to", "s8"}, "1.75")["rounding"], "RTZ");
  EXPECT_EQ(convert_one({"--to", "s8", "--from", "fp16"}, "1.75")["rounding"], "RTZ");
  EXPECT_EQ(convert_one({"--to", "u8", "--from", "s16"}, "-300")["rounding"], "RNE");
  EXPECT_EQ(convert_one({"--to", "e8m0"}, "3")["rounding"], "RNE");
}

TEST(Convert, RealsAreRoundedOnce) {
  // Just above the tie between 1 and 1 + 2^-10, by less than FP64 can tell.
  EXPECT_EQ(convert_one({"--to", "fp16"}, "1.00048828125")["bits"], "0x3C00");
  EXPECT_EQ(convert_one({"--to", "fp16"}, "1.000488281250000000000000000000000000000000000000000000000001")["bits"],
            "0x3C01");
}

TEST(Convert, SourcesByValue) {
  EXPECT_EQ(convert_one({"--to", "fp32", "--from", "e4m3"}, "448")["source_bits"], "0x7E");
  EXPECT_EQ(convert_one({"--to", "fp32", "--from", "e5m2"}, "-inf")["source_bits"], "0xFC");
  EXPECT_EQ(convert_one({"--to", "fp32", "--from", "fp16"}, "snan")["flags"], Json::parse(R"(["NV"])"));
  EXPECT_EQ(convert_one({"--to", "fp32", "--from", "hif8"}, "nan")["source_bits"], "0x80");
  EXPECT_EQ(convert_one({"--to", "fp16", "--from", "s8"}, "-5")["source_bits"], "0xFB");
  EXPECT_EQ(convert_one({"--to", "bf16", "--from", "rcpe6m2"}, "0.5")["source_bits"], "0xC4");
  EXPECT_EQ(convert_one({"--to", "fp32", "--from", "e3m2"}, "0x40")["flags"], Json::parse(R"(["NV"])"));
  const std::string hint = "give its bits as 0x..., or leave --from out";
  EXPECT_TRUE(refuses({"convert", "--to", "fp32", "--from", "fp16", "0.1"}, "0.1: not a value of FP16; " + hint));
  EXPECT_TRUE(refuses({"convert", "--to", "fp32", "--from", "e4m3", "inf"}, hint));
  EXPECT_TRUE(refuses({"convert", "--to", "fp32", "--from", "e4m3", "snan"}, hint));
  EXPECT_TRUE(refuses({"convert", "--to", "fp32", "--from", "hif8", "-0"}, hint));
  EXPECT_TRUE(refuses({"convert", "--to", "fp32", "--from", "u8", "-1"}, hint));
  EXPECT_TRUE(refuses({"convert", "--to", "fp32", "--from", "e8m0", "0"}, hint));
  EXPECT_TRUE(refuses({"convert", "--to", "fp32", "--from", "s4", "8"}, hint));
}

TEST(Convert, BitPatterns) {
  EXPECT_TRUE(refuses({"convert", "--to", "fp32", "--from", "fp16", "0x10000"}, "0x10000: FP16 has 16 bits"));
  EXPECT_TRUE(refuses({"convert", "--to", "fp32", "--from", "e2m1", "0x17"}, "E2M1X2 has 4 bits in a lane"));
  EXPECT_TRUE(refuses({"convert", "--to", "fp32", "--from", "fp16", "-0x3C00"}, "a bit pattern of FP16 has no sign"));
  EXPECT_TRUE(refuses({"convert", "--to", "fp32", "--from", "fp16", "0x3G00"}, "hexadecimal digits"));
  EXPECT_TRUE(refuses({"convert", "--to", "fp32", "--from", "fp16", "0x"}, "hexadecimal digits"));
  EXPECT_TRUE(refuses({"convert", "--to", "fp32", "--from", "fp64", "0x10000000000000000"}, "more than 64 bits"));
  // A point or an exponent makes it a number.
  EXPECT_EQ(convert_one({"--to", "fp32", "--from", "fp16"}, "0x1.8p0")["source_bits"], "0x3E00");
}

TEST(Convert, Hif4IsNoTcvtPair) {
  for (const Arguments& arguments : {Arguments{"convert", "--to", "hif4", "0.3", "--json"},
                                     Arguments{"convert", "--from", "hif4", "--to", "fp32", "0x1", "--json"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit, 0);
    EXPECT_NE(Json::parse(outcome.err).at("note").get<std::string>().find("no TCVT pair"), std::string::npos);
    EXPECT_NE(outcome.json()[0]["note"].get<std::string>().find("E1M2X2"), std::string::npos);
    EXPECT_EQ(outcome.json()[0]["value"], 0.25);
  }
  EXPECT_NE(run({"convert", "--to", "HIF4X2", "1"}).err.find("bitcube: note: "), std::string::npos);
  EXPECT_TRUE(refuses({"convert", "--from", "hif4", "--to", "e4m3", "0x1"}, "it converts to FP32, FP16, BF16"));
}

TEST(Convert, Refuses) {
  EXPECT_TRUE(refuses({"convert", "--to", "e4m4", "1"}, "--to: unknown name 'e4m4'; did you mean E4M3?"));
  EXPECT_TRUE(refuses({"convert", "--to", "e4m3", "--from", "fp33", "1"}, "--from: unknown name 'fp33'"));
  EXPECT_TRUE(refuses({"convert", "--to", "e4m3", "--profile", "otp", "1"}, "choose from pto, asl, ocp"));
  EXPECT_TRUE(refuses({"convert", "--to", "e4m3", "--round", "up", "1"}, "RNE, RTZ, RTM, RTP, RNA, RTO, RHB"));
  EXPECT_TRUE(refuses({"convert", "--to", "rcpe6m2", "1"}, "a real does not convert to RCPE6M2"));
  EXPECT_TRUE(refuses({"convert", "--to", "e4m3", "--from", "e8m0", "0x7F"}, "it converts to FP32, FP16, BF16"));
  EXPECT_TRUE(refuses({"convert", "--to", "e6m2", "--from", "fp32", "1"}, "FP32 does not convert to E6M2"));
  EXPECT_TRUE(refuses({"convert", "--to", "e6m2", "--round", "rtz", "1"}, "take only RNE and RNA, not RTZ"));
  EXPECT_TRUE(refuses({"convert", "--to", "bf16", "--from", "e6m2", "--round", "rhb", "0xC0"}, "not RHB"));
  EXPECT_TRUE(refuses({"convert", "--to", "e4m3", "1", "one"}, "'one': no digits"));
  EXPECT_TRUE(refuses({"convert", "--to", "e4m3", ""}, "no digits"));
  EXPECT_TRUE(refuses({"convert", "--to", "e4m3", "-1x"}, "unexpected characters"));
}

TEST(Convert, StandardInput) {
  const Outcome outcome =
      run({"convert", "--to", "e4m3", "--json", "2", "-", "-3"}, {.input = "1\n\n -inf \r\n0x1p-3"});
  EXPECT_TRUE(succeeds(outcome));
  std::vector<std::string> inputs;
  for (const Json& row : outcome.json()) inputs.push_back(row["input"]);
  EXPECT_EQ(inputs, (std::vector<std::string>{"2", "1", "-inf", "0x1p-3", "-3"}));
  EXPECT_TRUE(refuses({"convert", "--to", "e4m3", "-"}, "standard input: 'x': no digits", {.input = "1\nx\n"}));
}

/// Worked rows, collected by the options that they need, so that few processes are started.
class Batches {
 public:
  void add(const Arguments& options, const std::string& value, rows::Out expected, const std::string& what) {
    batches_[options].push_back({value, expected, what});
  }

  void check() const {
    for (const auto& [options, cases] : batches_) {
      Arguments arguments{"convert", "--json"};
      arguments.insert(arguments.end(), options.begin(), options.end());
      for (const Case& c : cases) arguments.push_back(c.value);
      const Outcome outcome = run(arguments);
      ASSERT_EQ(outcome.exit, 0) << outcome.err;
      const Json json = outcome.json();
      ASSERT_EQ(json.size(), cases.size());
      for (std::size_t i = 0; i < cases.size(); ++i) {
        const auto bits = json[i]["bits"].get<std::string>();
        const auto digits = static_cast<int>(bits.size()) - 2;
        EXPECT_EQ(bits, fmt::format("0x{:0{}X}", cases[i].expected.bits, digits)) << cases[i].what;
        std::uint32_t flags = 0;
        for (const Json& name : json[i]["flags"]) flags |= bit_of(name);
        EXPECT_EQ(flags, cases[i].expected.flags) << cases[i].what;
      }
    }
  }

  std::size_t size() const {
    std::size_t count = 0;
    for (const auto& [options, cases] : batches_) count += cases.size();
    return count;
  }

 private:
  struct Case {
    std::string value;
    rows::Out expected;
    std::string what;
  };

  static std::uint32_t bit_of(const std::string& flag) {
    const std::map<std::string, std::uint32_t> bits{{"NV", 1}, {"DZ", 2}, {"OF", 4}, {"UF", 8}, {"NX", 16}};
    return bits.at(flag);
  }

  std::map<Arguments, std::vector<Case>> batches_;
};

constexpr const char* mode_names[8] = {"", "rne", "rtz", "rtm", "rtp", "rna", "rto", "rhb"};

Arguments options_of(const std::string& from, const std::string& to, rows::Mode mode, bool sat,
                     const std::string& profile = "pto") {
  Arguments options{"--from", from, "--to", to, "--profile", profile};
  if (mode != rows::kNone) options.insert(options.end(), {"--round", mode_names[mode]});
  if (sat) options.push_back("--sat");
  return options;
}

/// Exact text of a row's real. The denominators are 1 and 5.
std::string text_of(const rows::Real& x) {
  if (x.denominator == 1) {
    const bool negative = x.numerator < 0;
    const auto word = static_cast<std::uint64_t>(x.numerator);
    return fmt::format("{}0x{:x}p{}", negative ? "-" : "", negative ? ~word + 1 : word, x.exponent);
  }
  EXPECT_EQ(x.denominator, 5);
  EXPECT_LT(x.exponent, 0);
  std::int64_t digits = x.numerator;  // n / 5 * 2^-e = n * 5^(e - 1) / 10^e
  for (int i = 1; i < -x.exponent; ++i) digits *= 5;
  return fmt::format("{}e{}", digits, x.exponent);
}

TEST(ConvertWorkedRows, RealsByNumerics6And75) {
  Batches batches;
  for (const rows::EncodeRow& row : rows::kEncode) {
    const std::string what = fmt::format("{} {} {}", row.section, row.type, row.label);
    for (std::size_t i = 0; i < 7; ++i) {
      batches.add(options_of("real", row.type, rows::kColumns[i], false, row.profile), text_of(row.x), row.out[i],
                  what);
    }
    batches.add(options_of("real", row.type, rows::kRne, true, row.profile), text_of(row.x), row.rne_sat, what);
  }
  for (const rows::E6m2Row& row : rows::kE6m2Reals) {
    batches.add(options_of("real", "e6m2", rows::kRne, false), text_of(row.x), row.out, "7.6");
    batches.add(options_of("real", "e6m2", rows::kRna, false), text_of(row.x), row.out, "7.6");
  }
  EXPECT_GT(batches.size(), 1000U);
  batches.check();
}

TEST(ConvertWorkedRows, IntegersByNumerics22) {
  for (std::size_t i = 0; i < 7; ++i) {
    Arguments arguments{"convert", "--json", "--to", "s8", "--round", mode_names[rows::kColumns[i]]};
    for (const rows::IntegerRoundingRow& row : rows::kIntegerRounding) arguments.push_back(text_of(row.x));
    const Json json = run(arguments).json();
    ASSERT_EQ(json.size(), std::size(rows::kIntegerRounding));
    for (std::size_t r = 0; r < json.size(); ++r) EXPECT_EQ(json[r]["value"], rows::kIntegerRounding[r].value[i]);
  }
}

TEST(ConvertWorkedRows, TininessByNumerics62) {
  Batches batches;
  for (const rows::TininessRow& row : rows::kTininess) {
    const std::string source = fmt::format("0x{:08X}", row.source);
    batches.add(options_of("fp32", "fp16", row.rounding, false, "pto"), source, {row.result, row.after}, "6.2 pto");
    batches.add(options_of("fp32", "fp16", row.rounding, false, "asl"), source, {row.result, row.pre}, "6.2 asl");
  }
  batches.check();
}

TEST(ConvertWorkedRows, TcvtByNumerics7) {
  Batches batches;
  const auto word = [](std::uint64_t source) { return fmt::format("0x{:X}", source); };
  for (const rows::TcvtRow& row : rows::kTcvtE8m0) {
    const std::string what = fmt::format("{} {} {:X}", row.section, row.source_type, row.source);
    for (std::size_t i = 0; i < 7; ++i) {
      batches.add(options_of(row.source_type, row.destination_type, rows::kColumns[i], false), word(row.source),
                  row.out[i], what);
    }
    batches.add(options_of(row.source_type, row.destination_type, rows::kRne, true), word(row.source), row.rne_sat,
                what);
  }
  for (const rows::TcvtCase& row : rows::kTcvtCases) {
    batches.add(options_of(row.source_type, row.destination_type, row.rounding, row.sat != 0), word(row.source),
                row.out, fmt::format("{} {} {:X}", row.section, row.source_type, row.source));
  }
  EXPECT_GT(batches.size(), 500U);
  batches.check();
}

// ---- Files

TEST(ConvertFile, TypesOfTheResult) {
  const TempDir dir;
  const std::vector<float> x{1.0625F, -2.5F, 464.0F, 0.0F, 1e-3F, -448.0F};
  save(dir / "x.npy", DType::kF32, {2, 3}, x);
  const std::vector<std::pair<std::string, DType>> types{
      {"fp64", DType::kF64}, {"fp32", DType::kF32}, {"tf32", DType::kF32}, {"fp16", DType::kF16}, {"bf16", DType::kU16},
      {"e4m3", DType::kU8},  {"hif8", DType::kU8},  {"e8m0", DType::kU8},  {"e2m1", DType::kU8},  {"s8", DType::kI8},
      {"s4", DType::kI8},    {"u16", DType::kU16},  {"s64", DType::kI64}};
  for (const auto& [type, dtype] : types) {
    const std::string output = dir / (type + ".npy");
    const Outcome outcome = run({"convert", dir / "x.npy", "--to", type, "--sat", "-o", output, "--json"});
    ASSERT_EQ(outcome.exit, 0) << outcome.err;
    EXPECT_EQ(outcome.err.find("NumPy has no bfloat16") != std::string::npos, type == "bf16") << outcome.err;
    const auto array = read_npy(output);
    ASSERT_TRUE(array);
    EXPECT_EQ(array->dtype, dtype) << type;
    EXPECT_EQ(array->shape, (std::vector<std::uint64_t>{2, 3}));
    // Each element is what the other form of the command makes of it.
    const Json json = outcome.json();
    EXPECT_EQ(json["dtype"], dtype_name(dtype));
    std::set<std::string> flags;
    for (std::size_t i = 0; i < x.size(); ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &x[i], 4);
      const Json one = convert_one({"--to", type, "--from", "fp32", "--sat"}, fmt::format("0x{:08X}", bits));
      std::uint64_t word = 0;
      ASSERT_TRUE(array->read(i * array->element_size(),
                              std::as_writable_bytes(std::span(&word, 1)).first(array->element_size())));
      if (type == "s4") word &= 0xF;
      EXPECT_EQ(word, std::stoull(one["bits"].get<std::string>(), nullptr, 16)) << type << " " << x[i];
      for (const Json& flag : one["flags"]) flags.insert(flag);
    }
    EXPECT_EQ(std::set<std::string>(json["flags"].begin(), json["flags"].end()), flags) << type;
  }
}

TEST(ConvertFile, TypesOfTheSource) {
  const TempDir dir;
  const auto from_of = [&](DType dtype, const auto& elements, const Arguments& options,
                           const std::string& to = "fp32") {
    save(dir / "x.npy", dtype, {elements.size()}, elements);
    Arguments arguments{"convert", dir / "x.npy", "--to", to, "-o", dir / "y.npy", "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit, 0) << outcome.err;
    EXPECT_EQ(outcome.err.find("--from bf16") != std::string::npos, dtype == DType::kU16 && options.empty());
    return outcome.json()["from"].get<std::string>();
  };
  const std::vector<std::uint16_t> words{0x3F80, 0x4000};
  EXPECT_EQ(from_of(DType::kF64, std::vector<double>{1, 2}, {}), "FP64");
  EXPECT_EQ(from_of(DType::kF32, std::vector<float>{1, 2}, {}, "fp16"), "FP32");
  EXPECT_EQ(from_of(DType::kF16, words, {}), "FP16");
  EXPECT_EQ(from_of(DType::kBF16, words, {}), "BF16");
  EXPECT_EQ(elements_of<float>(dir / "y.npy", DType::kF32), (std::vector<float>{1, 2}));
  EXPECT_EQ(from_of(DType::kI64, std::vector<std::int64_t>{1, 2}, {}), "S64");
  EXPECT_EQ(from_of(DType::kI8, std::vector<std::int8_t>{-1, 2}, {}), "S8");
  EXPECT_EQ(elements_of<float>(dir / "y.npy", DType::kF32), (std::vector<float>{-1, 2}));
  EXPECT_EQ(from_of(DType::kU16, words, {}), "U16");
  EXPECT_EQ(from_of(DType::kU16, words, {"--from", "bf16"}), "BF16");
  EXPECT_EQ(elements_of<float>(dir / "y.npy", DType::kF32), (std::vector<float>{1, 2}));
  EXPECT_EQ(from_of(DType::kU8, std::vector<std::uint8_t>{0x38}, {"--from", "e4m3"}), "E4M3");
  EXPECT_EQ(elements_of<float>(dir / "y.npy", DType::kF32), (std::vector<float>{1}));
  EXPECT_EQ(from_of(DType::kI8, std::vector<std::int8_t>{-3, 7}, {"--from", "s4"}), "S4X2");
  EXPECT_EQ(elements_of<float>(dir / "y.npy", DType::kF32), (std::vector<float>{-3, 7}));
}

TEST(ConvertFile, Text) {
  const TempDir dir;
  save(dir / "x.npy", DType::kF32, {1, 2}, std::vector<float>{1.0625F, 464});
  const std::string in = dir / "x.npy";
  const std::string out = dir / "y.npy";
  const Outcome outcome = run({"convert", in, "--to", "e4m3", "--profile", "ocp", "-o", out, "--threads", "2"});
  EXPECT_TRUE(succeeds(outcome));
  const std::string expected = "input     " + in + "  1 x 2  FP32 (float32)\noutput    " + out +
                               "  E4M3 (uint8), RNE, profile ocp\n"
                               "elements  2\nflags     NX\nsha256    ";
  EXPECT_EQ(outcome.out.substr(0, expected.size()), expected);
  EXPECT_EQ(elements_of<std::uint8_t>(dir / "y.npy", DType::kU8), (std::vector<std::uint8_t>{0x38, 0x7E}));
  // Raw files in and out.
  const std::vector<float> raw{1, 2, 3};
  write_text(dir / "x.bin", to_text(std::as_bytes(std::span(raw))));
  EXPECT_TRUE(succeeds(run({"convert", std::string(dir / "x.bin") + ":float32:3", "--to", "s8", "-o", dir / "y.bin"})));
  EXPECT_EQ(read_text(dir / "y.bin"), "\1\2\3");
}

TEST(ConvertFile, Refuses) {
  const TempDir dir;
  save(dir / "x.npy", DType::kF32, {1, 2}, std::vector<float>{1.0625F, 464});
  save(dir / "b.npy", DType::kBool, {1}, std::vector<std::uint8_t>{1});
  save(dir / "c.npy", DType::kU8, {3}, std::vector<std::uint8_t>{1, 2, 0x1F});
  const std::string in = dir / "x.npy";
  const std::string out = dir / "y.npy";
  const auto refuses_file = [&](const Arguments& options, std::string_view message) {
    Arguments arguments{"convert", "-o", out};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return refuses(arguments, message);
  };
  EXPECT_TRUE(refuses_file({in}, "--to is required"));
  EXPECT_TRUE(refuses_file({in, in, "--to", "fp16"}, "converts one file, but there are 2 arguments"));
  EXPECT_TRUE(refuses_file({"1.5", "--to", "fp16"}, "1.5: No such file"));
  EXPECT_TRUE(refuses_file({in, "--to", "fp16", "--from", "real"}, "--from: real is for values on the command line"));
  EXPECT_TRUE(refuses_file({in, "--to", "fp16", "--from", "e4m3"},
                           "float32 elements have 32 bits, but a lane of E4M3 has 8 in memory"));
  EXPECT_TRUE(refuses_file({dir / "b.npy", "--to", "fp16"}, "what bool elements are must be said with --from"));
  EXPECT_TRUE(refuses_file({in, "--to", "e6m2"}, "FP32 does not convert to E6M2; it converts to"));
  EXPECT_TRUE(refuses_file({in, "--to", "fp17"}, "--to: unknown name 'fp17'"));
  EXPECT_TRUE(refuses_file({dir / "c.npy", "--from", "e2m1", "--to", "fp16"},
                           "c.npy: element 2 is 0x1F, beyond a lane of E2M1X2"));
  EXPECT_TRUE(refuses({"convert", in, "--to", "fp16", "-o", in}, "is also an input"));
  EXPECT_TRUE(refuses({"convert", in, "--to", "fp16"}, "to convert a file, say with -o where the result goes"));
  EXPECT_TRUE(refuses({"convert", in + ":float32:2", "--to", "fp16"}, "say with -o where"));
  EXPECT_EQ(dir.names(), (std::set<std::string>{"x.npy", "b.npy", "c.npy"}));
}

}  // namespace
}  // namespace bitcube::test
