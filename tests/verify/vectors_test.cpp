// Vector files that bitcube writes itself, and their sidecars.
#include "bitcube/verify/vectors.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "bitcube/version.hpp"
#include "io/temp_dir.hpp"

namespace bitcube::verify {
namespace {

using test::TempDir;
using Json = nlohmann::ordered_json;

VectorOptions options_of(std::string_view kind, uint64 count, uint64 seed = 1, std::string profile = {}) {
  return {.kind = find_vector_kind(kind), .seed = seed, .count = count, .profile = std::move(profile)};
}

std::string generated(const VectorOptions& options) {
  std::string text;
  const auto rows = generate_vectors(options, [&](std::string_view piece) -> Expected<void> {
    text += piece;
    return {};
  });
  EXPECT_TRUE(rows) << rows.error().message;
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

FileReport conform_file(const std::string& path, const ConformOptions& options = {}) {
  const auto report = conform({&path, 1}, options);
  EXPECT_TRUE(report) << report.error().message;
  return report ? report->files[0] : FileReport{};
}

/// Forms in which a profile can be named.
std::vector<std::string> profiles_of(const VectorForm& form) {
  if (form.name == "hif4_groups") return {"", "pto", "literal"};
  if (form.name == "accumulate") return {"", "fma", "raw-carrier"};
  if (form.takes_profile || form.has_profile) return {"", "pto", "asl", "ocp"};
  return {""};
}

TEST(Vectors, EveryFormHasAKind) {
  for (const VectorForm& form : vector_forms()) {
    if (form.is_json()) continue;
    bool found = false;
    for (const VectorKind& kind : vector_kinds()) found = found || kind.form == form.name;
    EXPECT_TRUE(found) << form.name;
  }
  EXPECT_EQ(find_vector_kind("E8M0"), find_vector_kind("e8m0"));
  EXPECT_EQ(find_vector_kind("e9m0"), nullptr);
}

TEST(Vectors, WhatWasWrittenAgrees) {
  const TempDir dir;
  for (const VectorKind& kind : vector_kinds()) {
    for (const std::string& profile : profiles_of(*find_vector_form(kind.form))) {
      SCOPED_TRACE(fmt::format("{} {}", kind.name, profile));
      const std::string path = dir / "vectors.csv";
      const auto metadata = write_vectors(path, options_of(kind.name, 3000, 5, profile));
      ASSERT_TRUE(metadata) << metadata.error().message;
      const FileReport report = conform_file(path);
      ASSERT_FALSE(report.error) << report.error->message;
      EXPECT_TRUE(report.has_sidecar);
      EXPECT_EQ(report.form->name, kind.form);
      EXPECT_EQ(report.mismatches, 0U);
      EXPECT_EQ(report.rows, metadata->count);
      EXPECT_EQ(report.rows, kind.name == "format_descriptors" ? 25U : kind.name == "fpatr_modes" ? 64U : 3000U);
      // Files follow the profile that made them; only the words of S4X2 stay those of the form.
      EXPECT_EQ(report.known_total(), report.known[static_cast<std::size_t>(KnownRule::s4x2_sign_extension)] +
                                          (profile == "asl" ? report.known[0] + report.known[1] : 0));
    }
  }
}

TEST(Vectors, TheSeedDecidesTheBytes) {
  for (const VectorKind& kind : vector_kinds()) {
    SCOPED_TRACE(kind.name);
    const std::string text = generated(options_of(kind.name, 500));
    EXPECT_EQ(text, generated(options_of(kind.name, 500)));
    const bool all_rows = kind.name == "format_descriptors" || kind.name == "fpatr_modes";
    EXPECT_EQ(text == generated(options_of(kind.name, 500, 2)), all_rows);
  }
}

// The same on every machine and with every compiler: sums of the bytes of all kinds.
TEST(Vectors, TheBytesAreTheSameEverywhere) {
  uint64 sum = 0xCBF29CE484222325;  // FNV-1a
  for (const VectorKind& kind : vector_kinds()) {
    for (const char c : generated(options_of(kind.name, 400, 20261130))) {
      sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001B3;
    }
  }
  EXPECT_EQ(fmt::format("{:016x}", sum), "ac49f0f24d99da58") << "changed on purpose? Then the sum changes too";
}

TEST(Vectors, CornerCasesComeFirst) {
  const auto count = [](const std::vector<std::string>& lines, std::string_view field) {
    std::size_t found = 0;
    for (std::size_t i = 1; i < lines.size() && i <= lines.size() / 2; ++i)
      found += lines[i].find(field) != std::string::npos;
    return found;
  };
  // All types, all roundings, and the specials are among few rows.
  const auto tcvt = lines_of(generated(options_of("tcvt", 20000)));
  ASSERT_EQ(tcvt.size(), 20001U);
  for (const char* field : {",FP64,", ",HiF8,", ",U4X2,", ",E2M1X2,", ",RTO,", ",RHB,", "asl,", "ocp,", ",0x01",
                            ",0x14", ",0x18", "0x000000007f800000", "0x0000000080000000"}) {
    EXPECT_GT(count(tcvt, field), 3U) << field;
  }
  const auto encoders = lines_of(generated(options_of("encoders", 6000)));
  for (const char* field : {"FP32,", "E4M3,", "HiF8,", "S8,", "U64,", ",0x14", ",0x18", ",0x10", ",0x00"}) {
    EXPECT_GT(count(encoders, field), 20U) << field;
  }
  const auto post = lines_of(generated(options_of("postprocess", 6000)));
  for (const char* field : {"0,1,", "39,3,", "12,0,", ",0x14", ",0x18", ",0x01"})
    EXPECT_GT(count(post, field), 5U) << field;
  const auto hif4 = lines_of(generated(options_of("hif4", 2000)));
  for (const char* field : {"pto,", "literal,", ",0x000000ff,", ",0x00000000,", "fe,"}) {
    EXPECT_GT(count(hif4, field), 5U) << field;
  }
}

TEST(Vectors, SidecarSaysWhatWasMade) {
  const TempDir dir;
  const std::string path = dir / "e8m0.csv";
  const auto metadata = write_vectors(path, options_of("e8m0", 50, 9));
  ASSERT_TRUE(metadata);
  const Json json = Json::parse(test::read_text(path + ".meta.json"));
  EXPECT_EQ(json["what"], "e8m0");
  EXPECT_EQ(json["form"], "e8m0");
  EXPECT_EQ(json["profile"], "-");
  EXPECT_EQ(json["seed"], 9);
  EXPECT_EQ(json["count"], 50);
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["bitcube_version"], version);
  EXPECT_EQ(json["sha256"], metadata->sha256);
  EXPECT_EQ(metadata->sha256.size(), 64U);
  EXPECT_EQ(dir.names(), (std::set<std::string>{"e8m0.csv", "e8m0.csv.meta.json"}));
  const auto parsed = parse_vector_metadata(json.dump());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->json(), metadata->json());
}

TEST(Vectors, ATamperedSidecarOrFileIsRefused) {
  const TempDir dir;
  const std::string path = dir / "v.csv";
  ASSERT_TRUE(write_vectors(path, options_of("encoders", 50, 3, "OCP")));
  const std::string file = test::read_text(path);
  const std::string sidecar = test::read_text(path + ".meta.json");
  EXPECT_NE(sidecar.find("\"ocp\""), std::string::npos);
  const auto error = [&](const std::string& key, const Json& value) {
    Json json = Json::parse(sidecar);
    json[key] = value;
    test::write_text(path + ".meta.json", json.dump());
    const FileReport report = conform_file(path);
    return report.error ? report.error->message : std::string();
  };
  EXPECT_EQ(error("seed", 3), "");
  EXPECT_NE(error("schema_version", 2).find("has schema version 2, but this program"), std::string::npos);
  EXPECT_NE(error("schema_version", 2).find("update bitcube"), std::string::npos);
  EXPECT_NE(error("sha256", "00").find("was changed after it was written"), std::string::npos);
  EXPECT_NE(error("form", "e8m0").find("says form e8m0, but the file has form encoders"), std::string::npos);
  EXPECT_NE(error("profile", "pte").find("no conversion profile"), std::string::npos);
  EXPECT_NE(error("format", "x").find("is no sidecar"), std::string::npos);
  EXPECT_NE(error("seed", "three").find("seed: expected a number"), std::string::npos);
  EXPECT_NE(error("sha256", Json()).find("sha256: expected a string"), std::string::npos);

  test::write_text(path + ".meta.json", sidecar);
  EXPECT_EQ(conform_file(path).profile->name, "ocp");
  EXPECT_EQ(conform_file(path, {.profile = &pto_profile}).profile->name, "pto");
  std::string changed = file;
  changed.back() = ' ';
  test::write_text(path, changed);
  const FileReport report = conform_file(path);
  ASSERT_TRUE(report.error);
  EXPECT_NE(report.error->message.find("bitcube vectors --what encoders --seed 3 --count 50 --profile ocp"),
            std::string::npos);
}

TEST(Vectors, Errors) {
  const TempDir dir;
  EXPECT_TRUE(test::fails_with(check_vector_options({}), "vectors: no kind of rows"));
  EXPECT_TRUE(test::fails_with(check_vector_options(options_of("e8m0", 0)), "count: must be at least 1"));
  EXPECT_TRUE(test::fails_with(check_vector_options(options_of("e8m0", 1, 1, "pto")),
                               "profile: e8m0 does not depend on one; leave it out"));
  EXPECT_TRUE(test::fails_with(check_vector_options(options_of("encoders", 1, 1, "pt")),
                               "profile: unknown name 'pt' (choose from pto, asl, ocp)"));
  EXPECT_FALSE(check_vector_options(options_of("hif4", 1, 1, "asl")));
  EXPECT_FALSE(write_vectors("/no/such/directory/x.csv", options_of("e8m0", 1)));
  EXPECT_FALSE(write_vectors(dir / "x.csv", options_of("encoders", 1, 1, "pt")));
  EXPECT_TRUE(dir.names().empty());
}

}  // namespace
}  // namespace bitcube::verify
