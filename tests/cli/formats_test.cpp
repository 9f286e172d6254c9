#include "bitcube/numeric/format.hpp"
#include "cli/program.hpp"

namespace bitcube::test {
namespace {

TEST(Formats, ListsEveryFormat) {
  const Outcome text = run({"formats"});
  EXPECT_TRUE(succeeds(text));
  const Outcome list = run({"formats", "--json"});
  EXPECT_TRUE(succeeds(list));
  const Json json = list.json();
  ASSERT_EQ(json.size(), formats.size());
  for (std::size_t i = 0; i < formats.size(); ++i) {
    EXPECT_EQ(json[i]["name"], formats[i].name);
    EXPECT_EQ(json[i]["code"], static_cast<unsigned>(formats[i].type));
    EXPECT_NE(text.out.find(std::string(formats[i].name)), std::string::npos);
  }
}

TEST(Formats, Details) {
  const Json e4m3_json = run({"formats", "E4m3", "--json"}).json();
  EXPECT_EQ(e4m3_json["max_finite"], Json::parse(R"({"bits": "0x7E", "value": 448.0})"));
  EXPECT_EQ(e4m3_json["min_normal"], Json::parse(R"({"bits": "0x08", "value": 0.015625})"));
  EXPECT_EQ(e4m3_json["min_subnormal"], Json::parse(R"({"bits": "0x01", "value": 0.001953125})"));
  EXPECT_EQ(e4m3_json["nan"], "0x7F");
  EXPECT_EQ(e4m3_json["infinity"], nullptr);
  const Json hif8_json = run({"formats", "hif8", "--json"}).json();
  EXPECT_EQ(hif8_json["max_finite"], Json::parse(R"({"bits": "0x6E", "value": 32768.0})"));
  EXPECT_EQ(hif8_json["min_normal"]["value"], 0x1p-15);
  EXPECT_EQ(hif8_json["min_subnormal"]["value"], 0x1p-22);
  const Json fp32_json = run({"formats", "fp32", "--json"}).json();
  EXPECT_EQ(fp32_json["min_normal"], Json::parse(R"({"bits": "0x00800000", "value": 1.1754943508222875e-38})"));
  EXPECT_EQ(fp32_json["min_subnormal"]["bits"], "0x00000001");
  EXPECT_EQ(run({"formats", "tf32", "--json"}).json()["min_subnormal"]["bits"], "0x00002000");
  EXPECT_EQ(run({"formats", "e6m2", "--json"}).json()["max_finite"]["value"], 49152.0);
  EXPECT_EQ(run({"formats", "hif4", "--json"}).json()["converts_to"].size(), 0U);
  EXPECT_NE(run({"formats", "s8"}).out.find("minimum      -128"), std::string::npos);
}

TEST(Formats, Table) {
  const Json json = run({"formats", "e2m1", "--table", "--json"}).json();
  ASSERT_EQ(json["codes"].size(), 16U);
  EXPECT_EQ(json["codes"][1], Json::parse(R"({"bits": "0x1", "class": "Subnormal", "value": 0.5,
    "decomposition": {"negative": false, "significand": 1, "exponent": -1}})"));
  EXPECT_EQ(json["codes"][8]["value"].dump(), "-0.0");
  EXPECT_EQ(run({"formats", "e4m3", "--table", "--json"}).json()["codes"].size(), 256U);
  EXPECT_EQ(run({"formats", "e3m2", "--table", "--json"}).json()["codes"][0x40]["class"], "InvalidEncoding");
  const Outcome text = run({"formats", "bf16", "--table"});
  const std::size_t line = text.out.find("\n0x4049  Normal ");
  ASSERT_NE(line, std::string::npos);
  const std::string rest = text.out.substr(line + 1, text.out.find('\n', line + 1) - line - 1);
  EXPECT_NE(rest.find(" 3.140625 "), std::string::npos) << rest;
  EXPECT_TRUE(rest.ends_with(" 201 * 2^-6")) << rest;
}

TEST(Formats, Refuses) {
  EXPECT_TRUE(refuses({"formats", "e4m"}, "unknown name 'e4m'; did you mean E4M3?"));
  EXPECT_TRUE(refuses({"formats", "--table"}, "--table: name a format"));
  EXPECT_TRUE(refuses({"formats", "fp32", "--table"}, "--table: FP32 has 2^32 codes"));
}

}  // namespace
}  // namespace bitcube::test
