#include "bitcube/io/goldens.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "io/temp_dir.hpp"
#include "support/csv.hpp"

namespace bitcube {
namespace {

using namespace test;
using Shape = std::vector<uint64>;

std::string hex_text(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::vector<std::byte> words_as_bytes(const std::vector<uint64>& words, std::size_t size) {
  std::vector<std::byte> bytes(words.size() * size);
  for (std::size_t i = 0; i < words.size(); ++i) store_word(bytes.data() + i * size, size, words[i]);
  return bytes;
}

const std::set<std::string> kPlain{"golden_fp4.bin", "golden_ea.bin", "golden_eb.bin", "golden_ec.bin",
                                   "golden_scale.bin"};
const std::set<std::string> kAll{"golden_fp4.bin",   "golden_ea.bin",   "golden_eb.bin",   "golden_ec.bin",
                                 "golden_scale.bin", "golden_max4.bin", "golden_max8.bin", "golden_max64.bin"};

// One line of 15 lanes, the worked group of numerics 10.3: the group is short, its files complete.
TEST(Goldens, WorkedGroup) {
  const TempDir dir;
  const auto x = words_as_bytes({0x40E0, 0xC060, 0x3F80, 0x3E9A, 0x4020, 0xBF00, 0x3E80, 0x8000, 0x4040, 0xC000, 0x3F80,
                                 0x3F00, 0x3F00, 0x3EC0, 0x3E00},
                                2);
  const auto q = quantize(x, bf16, Shape{15}, 0);
  ASSERT_TRUE(succeeds(q));
  ASSERT_TRUE(succeeds(save_goldens(dir.path(), *q, x)));
  EXPECT_EQ(dir.names(), kAll);
  const auto file = [&](const char* name) { return hex_text(read_text(dir / name)); };
  const std::string zeros(64, '0');
  EXPECT_EQ(file("golden_fp4.bin"), "c7019581c6122201" + zeros.substr(0, 48));
  EXPECT_EQ(file("golden_ea.bin"), "c0");
  EXPECT_EQ(file("golden_eb.bin"), "01");
  EXPECT_EQ(file("golden_ec.bin"), "0500");
  std::string scales = "803e003f003f";
  for (int h = 3; h < 16; ++h) scales += "803f";
  EXPECT_EQ(file("golden_scale.bin"), scales);
  EXPECT_EQ(file("golden_max4.bin"), "e04020404040003f" + zeros.substr(0, 48));
  EXPECT_EQ(file("golden_max8.bin"), "e0404040" + zeros.substr(0, 24));
  EXPECT_EQ(file("golden_max64.bin"), "e040");

  const TempDir plain;
  ASSERT_TRUE(succeeds(save_goldens(plain.path(), *q)));
  EXPECT_EQ(plain.names(), kPlain);
  for (const std::string& name : kPlain) EXPECT_EQ(read_text(plain / name), read_text(dir / name)) << name;
}

// The worked examples as one tensor, a group per line; the last one is short, and so it is a tensor of its own.
TEST(Goldens, WorkedExamples) {
  const auto json = nlohmann::json::parse(vector_text("hif4_worked.json"), nullptr, false);
  ASSERT_TRUE(json.is_object()) << "hif4_worked.json is missing or damaged";
  for (const std::size_t valid : {64U, 40U}) {
    std::vector<uint64> words;
    std::array<std::string, 8> expected;  // in the order of kFiles
    const auto words_hex = [](const auto& list) {
      std::string text;
      for (const auto& item : list) {
        const std::uint64_t word = hex(item.template get<std::string>());
        text += fmt::format("{:02x}{:02x}", word & 0xFF, word >> 8);
      }
      return text;
    };
    uint64 lines = 0;
    for (const auto& example : json["examples"]) {
      if (example["valid"] != valid) continue;
      ++lines;
      for (std::size_t q = 0; q < valid; ++q) words.push_back(hex(example["input_bf16"][q].get<std::string>()));
      const auto& packed = example["packed"];
      expected[0] += packed["fp4_bytes_hex"].get<std::string>();
      expected[1] += packed["ea_byte"].get<std::string>().substr(2);
      expected[2] += packed["eb_byte"].get<std::string>().substr(2);
      expected[3] += packed["ec_bytes_hex"].get<std::string>();
      expected[4] += words_hex(example["stage2"]["scale4_bf16"]);
      expected[5] += words_hex(example["stage1"]["max4"]);
      expected[6] += words_hex(example["stage1"]["max8"]);
      expected[7] += words_hex(nlohmann::json::array({example["stage1"]["max64"]}));
    }
    constexpr std::array kFiles{"fp4", "ea", "eb", "ec", "scale", "max4", "max8", "max64"};
    const auto check = [&](const std::vector<std::byte>& x, const Format& source, const Shape& shape,
                           std::size_t axis) {
      const TempDir dir;
      const auto q = quantize(x, source, shape, axis, {.profile = find_hif4_profile("pto-a6")});
      ASSERT_TRUE(succeeds(q));
      ASSERT_TRUE(succeeds(save_goldens(dir.path(), *q, x)));
      for (std::size_t i = 0; i < kFiles.size(); ++i) {
        EXPECT_EQ(hex_text(read_text(dir / fmt::format("golden_{}.bin", kFiles[i]))), expected[i]) << kFiles[i];
      }
    };
    check(words_as_bytes(words, 2), bf16, Shape{lines, valid}, 1);

    std::vector<uint64> turned(words.size());
    for (std::size_t i = 0; i < words.size(); ++i) turned[i % valid * lines + i / valid] = words[i];
    check(words_as_bytes(turned, 2), bf16, Shape{valid, lines}, 0);
    for (uint64& word : words) word <<= 16;
    check(words_as_bytes(words, 4), fp32, Shape{lines, valid}, 1);
  }
}

TEST(Goldens, NanGroups) {
  const TempDir dir;
  std::vector<uint64> words(64, 0x3F800000);
  words[5] = 0x7F800001;  // NaN has no value that BF16 could lack
  const auto x = words_as_bytes(words, 4);
  const auto q = quantize(x, fp32, Shape{64}, 0);
  ASSERT_TRUE(succeeds(save_goldens(dir.path(), *q, x)));
  EXPECT_EQ(hex_text(read_text(dir / "golden_ea.bin")), "ff");
  EXPECT_EQ(hex_text(read_text(dir / "golden_eb.bin")), "00");
  std::string scales;
  for (int h = 0; h < 16; ++h) scales += "c07f";
  EXPECT_EQ(hex_text(read_text(dir / "golden_scale.bin")), scales);
  EXPECT_EQ(hex_text(read_text(dir / "golden_max64.bin")), "c07f");
}

TEST(Goldens, OtherSourcesHaveTheirMaximaRoundedAsTheirLanes) {
  const TempDir dir;
  const auto x = words_as_bytes({0x7BFF, 0x3C04}, 2);  // FP16 65504 becomes 65536
  const auto q = quantize(x, fp16, Shape{2}, 0);
  ASSERT_TRUE(succeeds(save_goldens(dir.path(), *q, x)));
  EXPECT_EQ(hex_text(read_text(dir / "golden_max64.bin")), "8047");
}

TEST(Goldens, AllFilesOrNone) {
  const TempDir dir;
  const auto x = words_as_bytes({0x3F800000, 0x3F800000, 0x3F800001}, 4);
  const auto q = quantize(x, fp32, Shape{3}, 0);
  ASSERT_TRUE(succeeds(q));
  EXPECT_TRUE(fails_with(save_goldens(dir.path(), *q, x),
                         "golden maxima are BF16 words, but element 2 of the FP32 source, 3F800001, is not a BF16 "
                         "value; round the source to BF16 before it is quantised"));
  EXPECT_TRUE(dir.names().empty());
  EXPECT_TRUE(succeeds(save_goldens(dir.path(), *q)));  // without maxima there is nothing to refuse
  EXPECT_EQ(dir.names(), kPlain);

  const TempDir other;
  EXPECT_FALSE(save_goldens(other.path(), *q, std::span(x).first(8)));
  const auto mx = quantize(x, fp32, Shape{3}, 0, {.format = find_block_format("mxfp4")});
  EXPECT_TRUE(fails_with(save_goldens(other.path(), *mx),
                         "golden files are those of HiF4, but the tensor is mxfp4; quantise it to hif4"));
  QuantizedTensor broken = *q;
  broken.scales.clear();
  EXPECT_FALSE(save_goldens(other.path(), broken));
  EXPECT_FALSE(save_goldens(other / "absent", *q));
  // A directory in the way of the last file: the others are not written either.
  std::filesystem::create_directory(other / "golden_scale.bin");
  EXPECT_FALSE(save_goldens(other.path(), *q));
  EXPECT_EQ(other.names(), (std::set<std::string>{"golden_scale.bin"}));
}

TEST(Goldens, EmptyTensorsHaveEmptyFiles) {
  const TempDir dir;
  const auto q = quantize({}, bf16, Shape{0, 64}, 1);
  ASSERT_TRUE(succeeds(save_goldens(dir.path(), *q)));
  EXPECT_EQ(dir.names(), kPlain);
  EXPECT_EQ(read_text(dir / "golden_fp4.bin"), "");
}

}  // namespace
}  // namespace bitcube
