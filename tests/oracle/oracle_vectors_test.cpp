// The oracle against the golden vectors: every file of the vectors that it has rules for.
//
// The directory is the environment variable BITCUBE_VECTORS, else vectors/ of the project. Files that are not there are
// skipped. Vectors of the executable specification are compared under the profile asl in the low lane bits, as their
// description says.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "oracle/oracle.hpp"

namespace {

namespace bo = bitcube_oracle;
using u64 = std::uint64_t;

std::filesystem::path vectors_directory() {
  if (const char* given = std::getenv("BITCUBE_VECTORS")) return given;
  return std::filesystem::path(BITCUBE_SOURCE_DIR) / "vectors";
}

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

/// One row; a column that does not exist fails the test.
class Row {
 public:
  Row(const std::map<std::string, std::size_t>& columns, std::vector<std::string> cells)
      : columns_(&columns), cells_(std::move(cells)) {}

  const std::string& text(const std::string& column) const {
    static const std::string kNone;
    const auto at = columns_->find(column);
    if (at == columns_->end() || at->second >= cells_.size()) {
      ADD_FAILURE() << "no column " << column;
      return kNone;
    }
    return cells_[at->second];
  }
  u64 word(const std::string& column) const { return std::strtoull(text(column).c_str(), nullptr, 0); }
  int number(const std::string& column) const {
    return static_cast<int>(std::strtol(text(column).c_str(), nullptr, 0));
  }
  bool flag(const std::string& column) const { return number(column) != 0; }
  int type(const std::string& column) const { return bo::type_code(text(column)); }
  int mode(const std::string& column) const { return bo::mode_code(text(column)); }
  bo::Profile profile() const { return static_cast<bo::Profile>(bo::profile_code(text("profile"))); }

 private:
  const std::map<std::string, std::size_t>* columns_;
  std::vector<std::string> cells_;
};

/// Calls check(row) for each row; check returns what is wrong, or nothing.
template <class Check>
void for_each_row(const std::string& file, Check check) {
  std::ifstream in(vectors_directory() / file);
  ASSERT_TRUE(in) << file << " is missing";
  std::string line;
  std::getline(in, line);
  std::map<std::string, std::size_t> columns;
  for (const std::string& name : split(line)) columns.emplace(name, columns.size());
  std::size_t rows = 0;
  std::size_t wrong = 0;
  while (std::getline(in, line)) {
    if (line.empty()) continue;
    ++rows;
    const std::string difference = check(Row(columns, split(line)));
    if (!difference.empty() && ++wrong <= 10) ADD_FAILURE() << file << ": " << line << "\n  oracle: " << difference;
  }
  EXPECT_EQ(wrong, 0u) << "of " << rows;
  EXPECT_GT(rows, 0u);
}

std::string hex(u64 value) {
  char text[32];
  std::snprintf(text, sizeof text, "%llX", static_cast<unsigned long long>(value));
  return text;
}

u64 low(u64 word, int bits) {
  return bits >= 64 ? word : word & ((u64{1} << bits) - 1);
}

std::string compare(const Row& row, const bo::Result& result, int bits) {
  if (low(row.word("result"), bits) == low(result.bits, bits) && row.word("flags") == result.flags) return "";
  return hex(result.bits) + "/" + hex(result.flags);
}

std::string same(bool expected, bool oracle) {
  return expected == oracle ? "" : oracle ? "1" : "0";
}

std::string check_format(const Row& row) {
  const int type = row.type("data_type");
  const u64 value = row.word("value");
  const bo::Decomposition d = bo::decompose(type, value);
  const std::string cls = bo::class_name(bo::classify(type, value, bo::asl));
  const bool good = cls == row.text("class") && d.available == row.flag("decomp_available") &&
                    d.negative == row.flag("negative") && d.significand == row.word("significand") &&
                    d.exponent == row.number("exponent");
  return good ? "" : cls + " " + hex(d.significand) + " " + std::to_string(d.exponent);
}

TEST(OracleVectors, Formats8Bit) {
  for_each_row("formats_8bit_all.csv", check_format);
}
TEST(OracleVectors, FormatsFp16) {
  for_each_row("formats_fp16_all.csv", check_format);
}
TEST(OracleVectors, FormatsBf16) {
  for_each_row("formats_bf16_all.csv", check_format);
}
TEST(OracleVectors, FormatsInt16) {
  for_each_row("formats_int16.csv", check_format);
}
TEST(OracleVectors, Formats32And64Bit) {
  for_each_row("formats_32_64bit.csv", check_format);
}

/// What the descriptors say of the special values, found by looking at the encodings.
TEST(OracleVectors, FormatDescriptors) {
  for_each_row("format_descriptors.csv", [](const Row& row) -> std::string {
    const int type = row.type("data_type");
    if (type != row.number("encoding") || bo::carrier_bits(type) != row.number("element_bits")) return "encoding";
    if (bo::is_integer(type) == row.flag("is_floating")) return "kind";
    if (bo::is_integer(type)) return "";
    if (row.flag("canonical_nan_available") != (bo::canonical_nan(type) != 0)) return "has NaN";
    if (row.word("canonical_nan") != bo::canonical_nan(type)) return hex(bo::canonical_nan(type));
    if (bo::carrier_bits(type) > 16) return "";
    std::map<bo::Class, int> seen;
    for (u64 code = 0; code < (u64{1} << bo::carrier_bits(type)); ++code) ++seen[bo::classify(type, code, bo::asl)];
    const bool good = row.flag("has_zero") == seen.contains(bo::Class::PositiveZero) &&
                      row.flag("has_signed_zero") == seen.contains(bo::Class::NegativeZero) &&
                      row.flag("has_subnormal") == seen.contains(bo::Class::PositiveSubnormal) &&
                      row.flag("has_infinity") == seen.contains(bo::Class::PositiveInfinity) &&
                      row.flag("has_quiet_nan") == seen.contains(bo::Class::QuietNaN) &&
                      row.flag("has_signaling_nan") == seen.contains(bo::Class::SignalingNaN);
    return good ? "" : "special values";
  });
}

TEST(OracleVectors, Fp19Class) {
  for_each_row("fp19_class.csv", [](const Row& row) -> std::string {
    const u64 raw = row.word("fp19");
    const std::string cls = bo::class_name(bo::fp19_class(raw));
    const bool good = cls == row.text("class") && bo::fp19_scale_legal(raw) == row.flag("scale_legal") &&
                      bo::fp19_activation_legal(raw) == row.flag("activation_legal");
    return good ? "" : cls;
  });
}

TEST(OracleVectors, Fp32ToFp19) {
  for_each_row("fp32_to_fp19.csv", [](const Row& row) -> std::string {
    const u64 raw = bo::fp32_to_fp19(row.word("fp32"));
    return raw == row.word("fp19") ? "" : hex(raw);
  });
}

TEST(OracleVectors, Encoders) {
  for_each_row("encoders.csv", [](const Row& row) -> std::string {
    const int type = row.type("data_type");
    const bo::Exact x = bo::Exact::dyadic(mpz_class(row.text("significand")), row.number("exponent"));
    return compare(row, bo::encode(x, type, row.mode("rounding"), row.number("sat"), bo::asl), bo::carrier_bits(type));
  });
}

TEST(OracleVectors, E8m0) {
  for_each_row("e8m0.csv", [](const Row& row) -> std::string {
    const bo::AllModes all = bo::tcvt(row.type("source_type"), bo::E8M0, row.word("value"), bo::asl);
    return compare(row, all(row.mode("rounding"), row.number("sat")), 8);
  });
}

TEST(OracleVectors, TcvtInteger) {
  for_each_row("tcvt_integer.csv", [](const Row& row) -> std::string {
    const int destination = row.type("destination_type");
    const bo::AllModes all = bo::tcvt(row.type("source_type"), destination, row.word("value"), bo::asl);
    const bo::Result r = all(bo::kDefault, row.number("sat"));
    const int bits = bo::carrier_bits(destination);
    return low(r.bits, bits) == low(row.word("result"), bits) && r.flags == 0 ? "" : hex(r.bits);
  });
}

std::string check_tcvt(const Row& row) {
  const int source = row.type("source_type");
  const int destination = row.type("destination_type");
  const int mode = row.mode("rounding");
  if (!bo::tcvt_legal(source, destination, mode)) return "not legal";
  const bo::AllModes all = bo::tcvt(source, destination, row.word("value"), row.profile());
  return compare(row, all(mode, row.number("sat")), bo::carrier_bits(destination));
}

TEST(OracleVectors, TcvtFloat) {
  for_each_row("tcvt_float.csv", check_tcvt);
}
TEST(OracleVectors, TcvtScale) {
  for_each_row("tcvt_scale.csv", check_tcvt);
}

TEST(OracleVectors, Tquant) {
  for_each_row("tquant.csv", [](const Row& row) -> std::string {
    const int type = row.type("destination_type");
    if (!bo::multiplier_legal(row.word("scale")) || !bo::zero_point_legal(type, row.word("zero_point")))
      return "not legal";
    return compare(row,
                   bo::tquant(type, row.word("value"), row.word("scale"), row.word("zero_point"), row.mode("rounding"),
                              row.number("sat")),
                   8);
  });
}

TEST(OracleVectors, Tdequant) {
  for_each_row("tdequant.csv", [](const Row& row) -> std::string {
    const int type = row.type("source_type");
    if (!bo::multiplier_legal(row.word("scale")) || !bo::zero_point_legal(type, row.word("zero_point")))
      return "not legal";
    return compare(
        row,
        bo::tdequant(type, row.word("value"), row.word("scale"), row.word("zero_point"), row.mode("rounding"), bo::asl),
        32);
  });
}

TEST(OracleVectors, FpatrModes) {
  for_each_row("fpatr_modes.csv", [](const Row& row) -> std::string {
    const int code = row.number("pre_quant_mode");
    const bo::PreQuantMode* m = bo::pre_quant_mode(code);
    if ((m != nullptr) != row.flag("legal")) return "legal";
    if (m == nullptr) return "";
    const int output = m->output < 0 ? static_cast<int>(bo::FP32) : m->output;
    const bool good = row.text("output_type") == bo::type_name(output) &&
                      bo::accumulator_legal(code, bo::FP32) == row.flag("acc_fp32_legal") &&
                      bo::accumulator_legal(code, bo::S32) == row.flag("acc_s32_legal") &&
                      bo::accumulator_legal(code, bo::U32) == row.flag("acc_u32_legal") &&
                      (m->parameter == bo::Parameter::scalar) == row.flag("uses_scalar") &&
                      (m->parameter == bo::Parameter::vector) == row.flag("uses_vector") &&
                      m->offset_bits == row.number("offset_width") && m->shift == row.flag("is_shift") &&
                      (m->fixed_rounding != 0) == row.flag("fixed_rounding") &&
                      m->takes_sat == row.flag("final_sat_programmable") &&
                      bo::rounding_sat_legal(code, 0, 0) == row.flag("datr_none_nosat") &&
                      bo::rounding_sat_legal(code, 0, 1) == row.flag("datr_none_sat") &&
                      bo::rounding_sat_legal(code, 1, 0) == row.flag("datr_001_nosat") &&
                      bo::rounding_sat_legal(code, 7, 1) == row.flag("datr_111_sat") &&
                      bo::effective_rounding(code, bo::RTZ) == row.mode("effective_rounding_for_rtz");
    return good ? "" : m->name;
  });
}

TEST(OracleVectors, FpatrFields) {
  for_each_row("fpatr_fields_legal.csv", [](const Row& row) -> std::string {
    const int bits = row.number("flags_rowmax_groupmax_rowinit_maxabs_bits0to3");
    return same(row.flag("legal"), bo::fpatr_fields_legal(row.number("pre_quant_mode"), row.number("relu_mode"),
                                                          row.number("group_n_code"), (bits & 1) != 0, (bits & 2) != 0,
                                                          (bits & 4) != 0, (bits & 8) != 0));
  });
}

TEST(OracleVectors, FpatrQuantParameter) {
  for_each_row("fpatr_quant_param_legal.csv", [](const Row& row) -> std::string {
    return same(row.flag("legal"), bo::quant_parameter_legal(row.number("pre_quant_mode"), row.word("quant_param")));
  });
}

TEST(OracleVectors, FpatrReluParameter) {
  for_each_row("fpatr_relu_param_legal.csv", [](const Row& row) -> std::string {
    return same(row.flag("legal"), bo::relu_parameter_legal(row.word("relu_param")));
  });
}

TEST(OracleVectors, Postprocess) {
  for_each_row("postprocess.csv", [](const Row& row) -> std::string {
    const int code = row.number("pre_quant_mode");
    const int output = row.type("output_type");
    const bo::PreQuantMode* m = bo::pre_quant_mode(code);
    const int accumulator = code == 0 ? output : m->s32 ? static_cast<int>(bo::S32) : static_cast<int>(bo::FP32);
    if (m->output >= 0 && m->output != output) return "output type";
    return compare(
        row,
        bo::postprocess(code, row.number("relu_mode"), accumulator, row.word("value"), row.word("quant_param"),
                        row.word("relu_param"), row.mode("rounding"), row.number("sat"), bo::asl),
        bo::carrier_bits(output));
  });
}

TEST(OracleVectors, Reduction) {
  for_each_row("reduction.csv", [](const Row& row) -> std::string {
    return compare(
        row, bo::reduction_step(row.type("data_type"), row.flag("max_abs"), row.word("current"), row.word("candidate")),
        32);
  });
}

TEST(OracleVectors, CScale) {
  for_each_row("cscale.csv", [](const Row& row) -> std::string {
    for (const bo::Profile p : {bo::asl, bo::ocp, bo::pto}) {
      std::string difference = compare(row, bo::c_scale(row.word("c"), row.number("s"), p), 32);
      if (!difference.empty()) return difference;
    }
    return "";
  });
}

/// Words of `digits` hexadecimal digits each, lane 0 first.
std::vector<u64> lanes(const std::string& text, int digits) {
  std::vector<u64> words;
  if (text == "-") return words;
  const auto step = static_cast<std::size_t>(digits);
  for (std::size_t i = 0; i + step <= text.size(); i += step)
    words.push_back(std::strtoull(text.substr(i, step).c_str(), nullptr, 16));
  return words;
}

template <class Codes>
std::string digits_of(const Codes& codes, bool two_digits) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const auto code : codes) {
    if (two_digits) text += kDigits[(code >> 4) & 15];
    text += kDigits[code & 15];
  }
  return text;
}

std::string check_hif4(const Row& row) {
  const auto rules = bo::hif4_rules(row.text("profile"));
  if (!rules) return "no profile";
  const std::vector<u64> input = lanes(row.text("input_bf16"), 4);
  const bo::Hif4Group g = bo::hif4_quantize(*rules, bo::BF16, input.data(), input.size());
  const std::string codes = digits_of(g.codes, false);
  return g.word == row.word("scale_word") && codes == row.text("codes") ? "" : hex(g.word) + " " + codes;
}

TEST(OracleVectors, Hif4Groups) {
  for_each_row("hif4_groups.csv", check_hif4);
}
TEST(OracleVectors, Hif4Special) {
  for_each_row("hif4_special.csv", check_hif4);
}

TEST(OracleVectors, MxGroups) {
  for_each_row("mx_groups.csv", [](const Row& row) -> std::string {
    const int element = row.type("format");
    const int source = row.text("input_type") == "bf16" ? bo::BF16 : bo::FP32;
    const std::vector<u64> input = lanes(row.text("input"), source == bo::BF16 ? 4 : 8);
    const std::string& rule = row.text("scale_rule");
    const bo::BlockCodes block = rule == "nvfp4"
                                     ? bo::nvfp4_quantize(source, input.data(), input.size())
                                     : bo::mx_quantize(element, *bo::mx_rule(rule), source, input.data(), input.size());
    const std::string codes = digits_of(block.codes, bo::carrier_bits(element) == 8);
    return block.scale == row.word("scale") && codes == row.text("codes") ? "" : hex(block.scale) + " " + codes;
  });
}

TEST(OracleVectors, Accumulate) {
  for_each_row("accumulate.csv", [](const Row& row) -> std::string {
    const auto side = [](const Row& r, const std::string& name) {
      bo::Side s;
      s.type = r.type(name + "_type");
      s.lanes = lanes(r.text(name), bo::carrier_bits(s.type) / 4);
      s.scales = lanes(r.text(name + "_scales"), s.type == bo::HiF4X2 ? 8 : 2);
      return s;
    };
    const bo::Side a = side(row, "a");
    const bo::Side b = side(row, "b");
    const auto k = static_cast<std::size_t>(row.number("k"));
    if (a.lanes.size() != k || b.lanes.size() != k) return "number of lanes";
    const auto word = [&row](const std::string& column) -> std::optional<std::uint32_t> {
      if (row.text(column) == "-") return std::nullopt;
      return static_cast<std::uint32_t>(row.word(column));
    };
    const std::uint32_t result = bo::accumulate(*bo::accumulation(row.text("profile")), a, b, word("c"), word("bias"));
    return result == row.word("result") ? "" : hex(result);
  });
}

}  // namespace
