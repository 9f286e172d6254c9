// Vector files held against the library (contract: vectors.md).
#include "bitcube/verify/conform.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "bitcube/verify/vectors.hpp"
#include "io/temp_dir.hpp"
#include "support/csv.hpp"

namespace bitcube::verify {
namespace {

using test::TempDir;

std::string join(const std::vector<std::string_view>& fields) {
  std::string line;
  for (const auto field : fields) line.append(line.empty() ? "" : ",").append(field);
  return line;
}

/// A good file of vectors that a test damages.
class Rows {
 public:
  explicit Rows(std::string_view file, std::size_t most = 200) : csv_(file) {
    EXPECT_FALSE(csv_.rows().empty()) << file << " is missing";
    const std::string text = test::vector_text(file);
    lines_.push_back(text.substr(0, text.find('\n')));
    for (const auto& row : csv_.rows()) {
      if (lines_.size() > most) break;
      std::string line = join(row);
      if (row.front().empty()) line.insert(line.begin(), ',');
      lines_.push_back(std::move(line));
    }
  }
  std::size_t size() const { return lines_.size() - 1; }
  /// Row 0 is the header.
  std::string& line(std::size_t row) { return lines_[row]; }
  std::vector<std::string> fields(std::size_t row) const {
    std::vector<std::string> fields{""};
    for (const char c : lines_[row]) {
      if (c == ',') {
        fields.emplace_back();
      } else {
        fields.back().push_back(c);
      }
    }
    return fields;
  }
  void set_field(std::size_t row, std::size_t column, const std::string& text) {
    std::vector<std::string> all = fields(row);
    all[column] = text;
    lines_[row] = fmt::format("{}", fmt::join(all, ","));
  }
  std::string text() const { return fmt::format("{}\n", fmt::join(lines_, "\n")); }

 private:
  test::Csv csv_;
  std::vector<std::string> lines_;
};

FileReport conform_text(std::string_view text, const ConformOptions& options = {}) {
  const TempDir dir;
  const std::string path = dir / "vectors";
  test::write_text(path, text);
  const auto report = conform({&path, 1}, options);
  EXPECT_TRUE(report) << report.error().message;
  if (!report || report->files.size() != 1) return {};
  FileReport file = report->files[0];
  if (file.error) {  // the directory's name changes from run to run
    const std::size_t at = file.error->message.find(path);
    if (at != std::string::npos) file.error->message.replace(at, path.size(), "FILE");
  }
  return file;
}

uint64 known(const FileReport& file, KnownRule rule) {
  return file.known[static_cast<std::size_t>(rule)];
}

/// Another value of the same kind as the field.
std::string other_value(const std::string& field) {
  if (field.starts_with("0x")) {
    std::string text = field;
    text.back() = text.back() == '1' ? '0' : '1';
    return text;
  }
  if (field.empty()) return "1";
  const bool number = field.find_first_not_of("-0123456789") == std::string::npos && field.size() < 10;
  if (field == "0" || field == "1") return field == "0" ? "1" : "0";
  if (number)
    return field.back() == '9' ? field.substr(0, field.size() - 1) + "8" : fmt::format("{}", std::stol(field) + 1);
  std::string text = field;
  text.back() = text.back() == '0' ? '1' : '0';
  return text;
}

struct FormFile {
  const char* form;
  const char* file;
};
constexpr FormFile kFiles[] = {{"format_descriptors", "format_descriptors.csv"},
                               {"formats", "formats_fp16_all.csv"},
                               {"formats", "formats_8bit_all.csv"},
                               {"fp19_class", "fp19_class.csv"},
                               {"fp32_to_fp19", "fp32_to_fp19.csv"},
                               {"encoders", "encoders.csv"},
                               {"e8m0", "e8m0.csv"},
                               {"tcvt", "tcvt_float.csv"},
                               {"tcvt", "tcvt_scale.csv"},
                               {"tcvt_integer", "tcvt_integer.csv"},
                               {"tquant", "tquant.csv"},
                               {"tdequant", "tdequant.csv"},
                               {"fpatr_modes", "fpatr_modes.csv"},
                               {"fpatr_fields_legal", "fpatr_fields_legal.csv"},
                               {"fpatr_quant_param_legal", "fpatr_quant_param_legal.csv"},
                               {"fpatr_relu_param_legal", "fpatr_relu_param_legal.csv"},
                               {"postprocess", "postprocess.csv"},
                               {"reduction", "reduction.csv"},
                               {"cube_shapes", "cube_shapes.csv"},
                               {"cube_index", "cube_index.csv"},
                               {"linear_index", "linear_index.csv"},
                               {"hif4_groups", "hif4_groups.csv"},
                               {"hif4_groups", "hif4_special.csv"},
                               {"mx_groups", "mx_groups.csv"},
                               {"accumulate", "accumulate.csv"},
                               {"cscale", "cscale.csv"}};

TEST(Conform, TheWholeSelectionAgrees) {
  const std::string directory = test::vector_path("").string();
  const auto report = conform({&directory, 1});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->mismatches(), 0U);
  EXPECT_EQ(report->errors(), 0U);
  EXPECT_GT(report->rows(), 50000U);
  std::set<std::string_view> seen;
  std::array<uint64, known_differences.size()> rows{};
  for (const FileReport& file : report->files) {
    SCOPED_TRACE(file.path);
    ASSERT_NE(file.form, nullptr);
    seen.insert(file.form->name);
    EXPECT_EQ(file.rows, file.matches + file.known_total() + file.mismatches);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] += file.known[i];
  }
  for (const VectorForm& form : vector_forms()) EXPECT_TRUE(seen.contains(form.name)) << form.name;
  for (const KnownRule rule : {KnownRule::tininess, KnownRule::e2m1_class, KnownRule::s4x2_sign_extension,
                               KnownRule::hif4x2_cube_type, KnownRule::assert_32768}) {
    EXPECT_GT(rows[static_cast<std::size_t>(rule)], 0U) << known_differences[static_cast<std::size_t>(rule)].name;
  }
}

// In every form, in every column that follows from the others, one wrong value in one row.
TEST(Conform, APlantedErrorIsFoundInEveryColumn) {
  for (const FormFile& f : kFiles) {
    SCOPED_TRACE(f.file);
    const Rows good(f.file);
    const FileReport clean = conform_text(good.text());
    ASSERT_FALSE(clean.error) << clean.error->message;
    ASSERT_EQ(clean.form, find_vector_form(f.form));
    EXPECT_EQ(clean.rows, good.size());
    EXPECT_EQ(clean.mismatches, 0U);
    const test::Csv csv(f.file);
    // A row that is not known to differ.
    std::size_t row = 1;
    for (std::size_t r = 7; r <= good.size(); r += 3) {
      Rows one(f.file);
      const FileReport report = conform_text(one.line(0) + "\n" + one.line(r) + "\n");
      if (report.matches != 1 || one.fields(r).back().empty()) continue;
      row = r;
      break;
    }
    for (std::size_t column = clean.form->inputs; column < good.fields(0).size(); ++column) {
      Rows bad(f.file);
      const std::string name = bad.fields(0)[column];
      bad.set_field(row, column, other_value(bad.fields(row)[column]));
      SCOPED_TRACE(fmt::format("{} = {}", name, bad.fields(row)[column]));
      const FileReport report = conform_text(bad.text());
      ASSERT_FALSE(report.error) << report.error->message;
      ASSERT_EQ(report.mismatches, 1U);
      ASSERT_EQ(report.first.size(), 1U);
      const Mismatch& mismatch = report.first[0];
      EXPECT_EQ(mismatch.row, row);
      EXPECT_EQ(mismatch.inputs.size(), report.form->inputs);
      ASSERT_EQ(mismatch.differences.size(), 1U);
      EXPECT_EQ(mismatch.differences[0].column, name);
      EXPECT_EQ(mismatch.differences[0].expected, bad.fields(row)[column]);
      EXPECT_NE(mismatch.differences[0].got, mismatch.differences[0].expected);
      EXPECT_FALSE(mismatch.rule.empty());
    }
  }
}

TEST(Conform, APlantedErrorInJson) {
  std::string text = test::vector_text("hif4_worked.json");
  EXPECT_EQ(conform_text(text).mismatches, 0U);
  EXPECT_EQ(conform_text(text).rows, 18U);
  const auto plant = [&](std::string_view key, std::string_view from, std::string_view to) {
    std::string bad = text;
    const std::size_t at = bad.find(from, bad.find(key, bad.find("single_outlier_last")));
    bad.replace(at, from.size(), to);
    return conform_text(bad);
  };
  const FileReport word = plant("\"ea_rec_bf16\"", "0x", "0xf");
  ASSERT_EQ(word.mismatches, 1U);
  EXPECT_EQ(word.first[0].row, 3U);
  EXPECT_EQ(word.first[0].inputs[0].text, "single_outlier_last");
  EXPECT_EQ(word.first[0].differences[0].column, "stage2.ea_rec_bf16");
  EXPECT_EQ(word.first[0].rule, "numerics 10.3 step 4");
  const FileReport number = plant("\"lane_code\"", "0", "1");
  ASSERT_EQ(number.mismatches, 1U);
  EXPECT_TRUE(number.first[0].differences[0].column.starts_with("stage3.lane_code["));
  EXPECT_EQ(number.first[0].rule, "numerics 10.3 step 8");

  const FileReport missing = plant("\"ea_rec_bf16\"", "\"ea_rec_bf16\"", "\"ea_rec\"");
  ASSERT_TRUE(missing.error);
  EXPECT_EQ(missing.error->message, "FILE: example 3: stage2.ea_rec_bf16: missing");
  const FileReport no_word = plant("\"ea_rec_bf16\"", "\"0x", "\"x");
  ASSERT_TRUE(no_word.error);
  EXPECT_NE(no_word.error->message.find("expected a word"), std::string::npos);
}

TEST(Conform, MismatchesNameTheDecidingClause) {
  const auto rule = [](std::string_view form, std::string_view row) {
    const FileReport report = conform_text(fmt::format("{}\n{}\n", find_vector_form(form)->columns, row));
    EXPECT_FALSE(report.error) << report.error->message;
    return report.first.empty() ? std::string("(no mismatch)") : report.first[0].rule;
  };
  EXPECT_EQ(rule("encoders", "E4M3,RNE,0,449,0,0x7e,0x14"), "numerics 6.3 step 1");
  EXPECT_EQ(rule("encoders", "E4M3,RNE,0,-1,-11,0x80,0x18"), "numerics 6.3 step 3; expected is what profile ocp gives");
  EXPECT_EQ(rule("encoders", "HiF8,RHB,0,17,-4,0x08,0x10"), "numerics 6.3 step 2");
  EXPECT_EQ(rule("encoders", "FP16,RNE,0,65536,0,0x7bff,0x14"), "numerics 6.1 step 1");
  EXPECT_EQ(rule("encoders", "FP16,RTP,0,1,-26,0x0000,0x18"), "numerics 6.1 step 2");
  EXPECT_EQ(rule("encoders", "FP16,RNE,0,2049,0,0x6801,0x10"), "numerics 6.1 step 3");
  EXPECT_EQ(rule("encoders", "FP16,RNE,0,8191,-27,0x0400,0x00"), "numerics 6.2: tininess `pre` of profile asl");
  EXPECT_EQ(rule("encoders", "S8,RNE,0,300,0,0x7f,0x14"),
            "numerics 6.4: beyond the range after rounding; Sat clamps or wraps");
  EXPECT_EQ(rule("e8m0", "FP32,RNE,0,0x80000000,0xff,0x00"), "numerics 7.2 row 1");
  EXPECT_EQ(rule("e8m0", "FP32,RNE,0,0x3f800001,0x80,0x10"), "numerics 7.2 row 6");
  EXPECT_EQ(rule("tcvt", "pto,FP32,S8,RTZ,0,0x7f800000,0x80,0x01"), "numerics 7.4: infinity to integer");
  EXPECT_EQ(rule("tcvt", "pto,FP16,FP32,RNE,0,0x7c01,0x7fc00000,0x00"), "numerics 7.4: NaN to float");
  EXPECT_EQ(rule("tcvt", "pto,FP32,E2M1X2,RNE,0,0x40e00000,0x7,0x14"), "numerics 7.5: overflow");
  EXPECT_EQ(rule("tcvt", "pto,BF16,E6M2,RNE,0,0x0000,0x00,0x00"), "numerics 7.6");
  EXPECT_EQ(rule("postprocess", "24,0,S8,RNE,1,0x7fc00000,0x3f800000,0x0,0x80,0x01"),
            "numerics 5.5 step 6: special values");
  EXPECT_EQ(rule("postprocess", "13,0,S16,RNE,0,0xffffffdf,0x0,0x0,0xfff0,0x00"), "numerics 5.5 step 2: shift");
  EXPECT_EQ(rule("postprocess", "3,0,S8,RNE,0,0x12c,0x203f800000,0x0,0x01,0x14"),
            "numerics 5.5 step 9: round, saturate to S9, add the offset, encode (6.4)");
  EXPECT_EQ(rule("postprocess", "32,0,FP16,RNE,0,0x3f800ffc,0x3f802000,0x0,0x3c02,0x10"),
            "numerics 5.5 step 10, numerics 6.1 step 3");
  EXPECT_EQ(rule("reduction", "FP32,0,0x7f800001,0x3f800000,0x3f800000,0x00"), "numerics 5.7: MAX of a NaN");
  EXPECT_EQ(rule("fpatr_fields_legal", "0,0,0,4,1"), "numerics 5.2: RowMaxInit requires RowMaxEn");
  EXPECT_EQ(rule("mx_groups", "E2M1X2,ceil,bf16,40c0,0x7f,7"), "profiles 2: scale rule ceil");
  EXPECT_EQ(rule("mx_groups", "E2M1X2,floor,bf16,40c03f80,0x7f,73"),
            "profiles 2: element of lane 1, x / scale rounded once (RNE)");
  EXPECT_EQ(rule("accumulate", "group,FP16,FP16,2,3c003c00,-,3c003c00,-,-,-,0x40400000"),
            "profiles 3: group, groups of 32 (numerics 9.5)");
}

TEST(Conform, KnownDifferences) {
  const auto check = [](std::string_view form, std::string_view row, const char* profile = nullptr) {
    ConformOptions options;
    if (profile != nullptr) options.profile = find_conversion_profile(profile);
    const FileReport report = conform_text(fmt::format("{}\n{}\n", find_vector_form(form)->columns, row), options);
    EXPECT_FALSE(report.error) << report.error->message;
    for (const KnownDifference& difference : known_differences) {
      if (known(report, difference.rule) == 1) return std::string(difference.name);
    }
    return std::string(report.mismatches == 1 ? "mismatch" : "match");
  };
  // 2^-14 - 2^-27 becomes the smallest normal: UF before rounding, not after.
  constexpr std::string_view tiny = "FP16,RNE,0,8191,-27,0x0400,0x18";
  EXPECT_EQ(check("encoders", tiny), "tininess");
  EXPECT_EQ(check("encoders", tiny, "pto"), "mismatch");  // who asks for pto wants its flags
  EXPECT_EQ(check("encoders", "FP16,RNE,0,8191,-27,0x0400,0x10"), "mismatch");
  EXPECT_EQ(check("encoders", "FP16,RNE,0,8191,-27,0x0400,0x10", "pto"), "match");
  EXPECT_EQ(check("encoders", "FP16,RNE,0,8191,-27,0x0401,0x18"), "mismatch");
  EXPECT_EQ(check("encoders", "FP16,RNE,0,8191,-27,0x0401,0x10", "pto"), "mismatch");
  EXPECT_EQ(check("encoders", "FP16,RNE,0,2047,-25,0x0400,0x18"), "match");  // tiny after rounding, too

  EXPECT_EQ(check("formats", "E2M1X2,0x1,PositiveNormal,1,0,0x1,-1"), "e2m1-class");
  EXPECT_EQ(check("formats", "E2M1X2,0x1,PositiveNormal,1,0,0x1,-1", "pto"), "mismatch");
  EXPECT_EQ(check("formats", "E2M1X2,0x1,PositiveSubnormal,1,0,0x1,-1", "pto"), "match");
  EXPECT_EQ(check("formats", "E2M1X2,0x1,PositiveSubnormal,1,0,0x1,-1"), "mismatch");
  EXPECT_EQ(check("formats", "E2M1X2,0x1,PositiveNormal,1,0,0x1,-2"), "mismatch");  // and otherwise wrong

  EXPECT_EQ(check("postprocess", "17,0,S4X2,RNE,1,0xfffffff0,0x3f800000,0,0xfffffffffffffff8,0x14"),
            "s4x2-sign-extension");
  EXPECT_EQ(check("postprocess", "17,0,S4X2,RNE,1,0xfffffff0,0x3f800000,0,0x8,0x14"), "match");
  EXPECT_EQ(check("postprocess", "17,0,S4X2,RNE,1,0xfffffff0,0x3f800000,0,0xfffffffffffffff9,0x14"), "mismatch");

  EXPECT_EQ(check("cube_shapes", "CUBE_M16,HiF4X2,4,16,64,0,0,0,0,0,0,0,0,0,0,0"), "hif4x2-cube-type");
  EXPECT_EQ(check("cube_shapes", "CUBE_M16,HiF4X2,4,16,64,16,16,16,64,4,1,4,1024,512,1,0"), "match");
  EXPECT_EQ(check("cube_shapes", "CUBE_M16,HiF4X2,4,16,64,16,0,0,0,0,0,0,0,0,0,0"), "mismatch");
  EXPECT_EQ(check("cube_shapes", "CUBE_M16,S4X2,4,16,64,0,0,0,0,0,0,0,0,0,0,0"), "mismatch");

  EXPECT_EQ(check("cube_shapes", "CUBE_M16,HiF8,8,16,2048,16,8,16,2048,256,1,256,ASSERT32768,32768,ASSERT,ASSERT"),
            "assert-32768");
  EXPECT_EQ(check("cube_shapes", "CUBE_M16,HiF8,8,16,2048,16,8,16,2048,256,1,256,32768,32768,1,0"), "match");
  EXPECT_EQ(check("cube_shapes", "CUBE_M16,HiF8,8,16,2048,16,8,16,2048,256,1,255,ASSERT32768,32768,ASSERT,ASSERT"),
            "mismatch");

  constexpr std::string_view overflow = "E4M3,RNE,0,450,0,0x7f,0x14";
  EXPECT_EQ(check("encoders", overflow), "match");
  EXPECT_EQ(check("encoders", overflow, "ocp"), "mismatch");
  EXPECT_EQ(check("encoders", "E4M3,RNE,0,450,0,0x7e,0x10", "ocp"), "match");
  EXPECT_EQ(check("encoders", "E4M3,RNE,0,-1,-11,0x00,0x18", "ocp"), "mismatch");
  EXPECT_EQ(check("postprocess", "17,0,S4X2,RNE,1,0xfffffff0,0x3f800000,0,0xdeadbeef00000008,0x14"), "match");
}

TEST(Conform, MalformedRows) {
  const auto error = [](std::string_view form, std::string_view row) {
    const FileReport report = conform_text(fmt::format("{}\n{}\n", find_vector_form(form)->columns, row));
    EXPECT_EQ(report.rows, 0U);
    return report.error ? report.error->message : std::string();
  };
  EXPECT_EQ(error("e8m0", "FP16,RNE,2,0x0,0xff,0x01"), "FILE: line 2: column sat: found '2', expected 0 or 1");
  EXPECT_EQ(error("e8m0", "FP16,RNE,0,0x0,0xff"),
            "FILE: line 2: found 5 fields, expected 6: source_type,rounding,sat,value,result,flags");
  EXPECT_EQ(error("e8m0", "FP16,RNE,0,0xg,0xff,0x01"),
            "FILE: line 2: column value: found '0xg', expected a word, such as 0x0000000000003c00");
  EXPECT_EQ(error("e8m0", "FP16,RNE,0,0x10000000000000000,0xff,0x01"),
            "FILE: line 2: column value: found '0x10000000000000000', expected a word, such as 0x0000000000003c00");
  EXPECT_EQ(error("e8m0", "FP16,RNE,0,0x0,0xff,0x21"),
            "FILE: line 2: column flags: found '0x21', expected five status bits, 0x00 to 0x1f");
  EXPECT_EQ(error("e8m0", "FP16,RND,0,0x0,0xff,0x01"),
            "FILE: line 2: column rounding: found 'RND', expected one of RNE, RTZ, RTM, RTP, RNA, RTO, RHB");
  EXPECT_NE(error("e8m0", "S8,RNE,0,0x0,0xff,0x01").find("column source_type: found 'S8'"), std::string::npos);
  EXPECT_NE(error("tcvt", "pto,FP32,E6M2,RNE,0,0x0,0x0,0x0").find("column destination_type"), std::string::npos);
  EXPECT_NE(error("tcvt", "pto,BF16,E6M2,RTZ,0,0x0,0x0,0x0").find("column rounding: found 'RTZ', expected RNE or RNA"),
            std::string::npos);
  EXPECT_NE(error("encoders", "FP16,RNE,0,1x,0,0x0,0x0").find("column significand"), std::string::npos);
  EXPECT_NE(error("encoders", "FP16,RNE,0,1,1e9,0x0,0x0").find("column exponent"), std::string::npos);
  EXPECT_NE(error("postprocess", "6,0,S8,RNE,0,0,0,0,0,0").find("an assigned PreQuantMode"), std::string::npos);
  EXPECT_NE(
      error("postprocess", "3,0,S8,RNE,0,0,0,0,0,0").find("column quant_param: found '0', expected a legal carrier"),
      std::string::npos);
  EXPECT_NE(error("postprocess", "1,2,FP16,RNE,0,0,1,0x40000,0,0").find("column relu_param"), std::string::npos);
  EXPECT_NE(error("postprocess", "1,0,S8,RNE,0,0,1,0,0,0").find("column output_type: found 'S8', expected FP16"),
            std::string::npos);
  EXPECT_NE(error("tquant", "S8,RNE,0,0,0,0,0,0").find("column scale"), std::string::npos);
  EXPECT_NE(error("tquant", "S8,RNE,0,0,0x3f800000,0x80,0,0").find("column zero_point"), std::string::npos);
  EXPECT_NE(error("tquant", "S16,RNE,0,0,0x3f800000,0,0,0").find("expected S8 or U8"), std::string::npos);
  EXPECT_NE(error("hif4_groups", "pto,3f8,0x0,0").find("column input_bf16"), std::string::npos);
  EXPECT_NE(error("hif4_groups", "pt,3f80,0x0,0").find("expected one of pto, pto-a6"), std::string::npos);
  EXPECT_NE(error("hif4_groups", "pto,3f80,0x0,0").find("column codes: found '0', expected 64 hexadecimal digits"),
            std::string::npos);
  EXPECT_NE(error("mx_groups", "S8,floor,bf16,3f80,0x0,0").find("column format"), std::string::npos);
  EXPECT_NE(
      error("accumulate", "fma,FP16,FP16,2,3c00,-,3c00,-,-,-,0x0").find("column a: found '3c00', expected 2 lanes"),
      std::string::npos);
  EXPECT_NE(error("accumulate", "fma,FP16,S8,1,3c00,-,01,-,-,-,0x0").find("operands of a product"), std::string::npos);
  EXPECT_NE(error("cube_index", "CUBE_M16,FP16,16,17,1,16,4,0,0,0").find("a legal shape"), std::string::npos);
  EXPECT_NE(error("linear_index", "ZN,FP16,16,15,16,0,0,0").find("a multiple of 16"), std::string::npos);

  const VectorForm& form = *find_vector_form("fp32_to_fp19");
  const FileReport later = conform_text(fmt::format("{}\n0x0,0x0\n0x0,0x1\n\n0x0,0x0\n", form.columns));
  ASSERT_TRUE(later.error);
  EXPECT_EQ(later.error->message, "FILE: line 4: empty line, expected a row");
  EXPECT_EQ(later.rows, 2U);
  EXPECT_EQ(later.mismatches, 1U);
}

TEST(Conform, LineEndsAndLetterCase) {
  const VectorForm& form = *find_vector_form("cscale");
  EXPECT_EQ(conform_text(fmt::format("{}\r\n0x41400000,2,0x40400000,0x00\r\n", form.columns)).matches, 1U);
  EXPECT_EQ(conform_text(fmt::format("{}\n0X41400000,2,0x40400000,0x00", form.columns)).matches, 1U);
  EXPECT_EQ(conform_text("pre_quant_mode,param,legal\n3,0x3F800000,1\n").matches, 1U);
  EXPECT_EQ(conform_text("param,legal\n0x1F800,1\n").matches, 1U);
}

TEST(Conform, FilesThatAreNone) {
  const FileReport unknown = conform_text("a,b,c\n1,2,3\n");
  ASSERT_TRUE(unknown.error);
  EXPECT_TRUE(
      unknown.error->message.starts_with("FILE: no known form of vectors: it starts with 'a,b,c'. Known forms"));
  for (const VectorForm& form : vector_forms()) {
    EXPECT_NE(unknown.error->message.find(form.columns), std::string::npos) << form.name;
  }
  EXPECT_TRUE(conform_text("").error->message.ends_with("is empty"));
  EXPECT_TRUE(conform_text("c,s,result,flags\n").error->message.ends_with("has a header, but no rows"));
  EXPECT_TRUE(conform_text("{\"format\": \"x\"}").error->message.starts_with("FILE: no known form"));
  EXPECT_TRUE(conform_text("{").error->message.ends_with("is not JSON, or is damaged"));
  EXPECT_FALSE(conform({}));
  const std::string missing = "/no/such/file";
  EXPECT_TRUE(test::fails_with(conform({&missing, 1}), "/no/such/file: No such file or directory"));
}

TEST(Conform, Directories) {
  const TempDir dir;
  const std::string path = dir.path().string();
  EXPECT_TRUE(test::fails_with(conform({&path, 1}), path + ": has no vector files (.csv, .json)"));
  test::write_text(dir / "b.csv", "c,s,result,flags\n0x41400000,2,0x40400000,0x00\n");
  test::write_text(dir / "a.csv", "param,legal\n0x1F800,0\n");
  test::write_text(dir / "README.md", "not a vector\n");
  const auto report = conform({&path, 1});
  ASSERT_TRUE(report);
  ASSERT_EQ(report->files.size(), 2U);
  EXPECT_TRUE(report->files[0].path.ends_with("a.csv"));
  EXPECT_EQ(report->files[0].mismatches, 1U);
  EXPECT_EQ(report->files[1].matches, 1U);
  // A sidecar that lost its file must not pass in silence.
  test::write_text(dir / "c.csv.meta.json", "{}");
  const auto orphan = conform({&path, 1});
  ASSERT_TRUE(orphan);
  EXPECT_EQ(orphan->errors(), 1U);
}

std::string everything(const ConformReport& report) {
  std::string text;
  for (const FileReport& file : report.files) {
    text += fmt::format("{} {} {} {} {}\n", file.path, file.rows, file.matches, file.mismatches,
                        file.error ? file.error->message : "");
    for (const uint64 count : file.known) text += fmt::format("{} ", count);
    for (const Mismatch& m : file.first) {
      text += fmt::format("row {} {}\n", m.row, m.rule);
      for (const NamedText& input : m.inputs) text += input.name + input.text;
      for (const Difference& d : m.differences) text += d.column + d.expected + d.got;
    }
  }
  return text;
}

// Mismatches, known differences and a malformed row, each spread over many pieces of a file.
TEST(Conform, ReportsDoNotDependOnThreads) {
  const TempDir dir;
  Rows rows("postprocess.csv", 9000);
  ASSERT_GT(rows.size(), 7000U);
  std::size_t planted = 0;
  for (std::size_t r = 5; r < rows.size(); r += 977, ++planted) rows.set_field(r, 9, "0x0f");
  test::write_text(dir / "post.csv", rows.text());
  rows.line(6500) = "3,0,S8";
  rows.line(6900) = "3,0,S8";
  test::write_text(dir / "damaged.csv", rows.text());
  const std::string paths[] = {dir.path().string(), test::vector_path("").string()};
  std::string expected;
  for (const unsigned threads : {1U, 2U, 3U, 8U}) {
    const auto report = conform(paths, {.first = 5, .execution = {.threads = threads}});
    ASSERT_TRUE(report);
    ASSERT_EQ(report->files[1].mismatches, planted);
    EXPECT_EQ(report->files[1].first.size(), 5U);
    EXPECT_EQ(report->files[1].first[4].row, 5U + 4 * 977);
    EXPECT_EQ(report->files[0].rows, 6499U);
    EXPECT_NE(report->files[0].error->message.find("line 6501:"), std::string::npos);
    if (expected.empty()) expected = everything(*report);
    EXPECT_EQ(everything(*report), expected) << threads;
  }
}

}  // namespace
}  // namespace bitcube::verify
