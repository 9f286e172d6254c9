// Arrays converted window by window hold what TCVT makes of each element.
#include "bitcube/stream/convert.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bitcube/io/sha256.hpp"
#include "stream/files.hpp"

namespace bitcube {
namespace {

using namespace test;

DType codes_dtype(const Format& format) {
  const bool is_signed = format.kind == Kind::signed_integer;
  switch (format.carrier_bits) {
    case 8:
      return is_signed ? DType::kI8 : DType::kU8;
    case 16:
      return is_signed ? DType::kI16 : DType::kU16;
    case 32:
      return is_signed ? DType::kI32 : DType::kU32;
    default:
      return is_signed ? DType::kI64 : DType::kU64;
  }
}

/// Lanes as arrays have them: those of S4 are sign-extended.
uint64 stored(const Format& f, uint64 lane) {
  return f.is_packed() && f.kind == Kind::signed_integer ? static_cast<uint64>(sign_extend(lane, 4)) : lane;
}

TEST(StreamConvert, EveryPair) {
  const TempDir dir(memory_directory());
  const Shape shape{7, 11};
  std::size_t pairs = 0;
  for (const Format& from : formats) {
    const Format& from_lane = from.type == DataType::hif4x2 ? format_of(DataType::e1m2x2) : from;
    Operands random(3);
    std::vector<uint64> lanes;
    Bytes words(count_of(shape) * from.carrier_bits / 8);
    for (std::size_t i = 0; i < count_of(shape); ++i) {
      lanes.push_back(random.word(from) & low_mask(from.lane_bits));
      store_word(words.data() + i * from.carrier_bits / 8, from.carrier_bits / 8U, stored(from, lanes.back()));
    }
    const NpyArray array = array_in(dir / "x.npy", codes_dtype(from), shape, words);
    for (const Format& to : formats) {
      const Format& to_lane = to.type == DataType::hif4x2 ? format_of(DataType::e1m2x2) : to;
      const EncodeControl control{.rounding = default_rounding(from.is_integer(), to), .saturate = true};
      auto file = OutputFile::create(dir / "y.npy");
      ASSERT_TRUE(succeeds(file));
      ASSERT_EQ(stream::convertible(from, to), conversion_legal(from_lane, to_lane));
      if (!stream::convertible(from, to)) {
        EXPECT_TRUE(fails_with(stream::convert(array, from, to, control, *file),
                               fmt::format("{} does not convert to {}", from.name, to.name)));
        continue;
      }
      ++pairs;
      Flags flags = Flags::none;
      Bytes expected(lanes.size() * to.carrier_bits / 8);
      for (std::size_t i = 0; i < lanes.size(); ++i) {
        const Encoded e = convert(from_lane, to_lane, lanes[i], control);
        flags |= e.flags;
        store_word(expected.data() + i * to.carrier_bits / 8, to.carrier_bits / 8U, stored(to, e.bits));
      }
      for (const std::size_t window : {std::size_t{1}, std::size_t{40}, std::size_t{300}, stream::kWindow}) {
        SCOPED_TRACE(fmt::format("{} to {} window {}", from.name, to.name, window));
        auto parts = OutputFile::create(dir / "y.npy");
        ASSERT_TRUE(succeeds(parts));
        const auto result = stream::convert(array, from, to, control, *parts, {.threads = 1}, window);
        ASSERT_TRUE(succeeds(result));
        ASSERT_TRUE(succeeds(parts->commit()));
        EXPECT_EQ(read_text(dir / "y.npy"), npy_header(array_dtype(to), shape) + to_text(expected));
        EXPECT_EQ(result->flags, flags);
        EXPECT_EQ(result->count, lanes.size());
        const auto digest = sha256(expected);
        ASSERT_TRUE(succeeds(digest));
        EXPECT_EQ(result->sha256, *digest);
      }
      std::filesystem::remove(dir / "y.npy");
    }
  }
  EXPECT_GT(pairs, 200U);
}

TEST(StreamConvert, RawFilesEmptyArraysAndScalars) {
  const TempDir dir(memory_directory());
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0}, Shape{2, 2}}) {
    const Bytes words = random_words(fp32, count_of(shape));
    const NpyArray array = array_in(dir / "x.npy", DType::kF32, shape, words);
    auto file = OutputFile::create(dir / "y.bin");
    ASSERT_TRUE(succeeds(file));
    ASSERT_TRUE(succeeds(stream::convert(array, fp32, fp64, {}, *file)));
    ASSERT_TRUE(succeeds(file->commit()));
    EXPECT_EQ(read_text(dir / "y.bin").size(), 8 * count_of(shape));
  }
}

TEST(StreamConvert, Refuses) {
  const TempDir dir(memory_directory());
  const Format& e2m1 = format_of(DataType::e2m1x2);
  const Format& s4 = format_of(DataType::s4x2);
  Bytes words(40000);
  words[30000] = std::byte{0x1F};
  words[30001] = std::byte{0xF8};
  const std::string name = dir / "x.npy";
  const NpyArray bytes = array_in(name, DType::kU8, {40000}, words);
  const auto refusal = [&](const NpyArray& array, const Format& from, const Format& to, std::size_t window,
                           Rounding rounding = Rounding::rne) {
    auto file = OutputFile::create(dir / "y");
    EXPECT_TRUE(succeeds(file));
    const auto result = stream::convert(array, from, to, {.rounding = rounding}, *file, {}, window);
    return result ? std::string() : result.error().message;
  };
  for (const std::size_t window : {std::size_t{1}, std::size_t{10000}, stream::kWindow}) {
    EXPECT_EQ(refusal(bytes, e2m1, fp32, window), name + ": element 30000 is 0x1F, beyond a lane of E2M1X2");
  }
  EXPECT_EQ(refusal(bytes, fp32, bf16, 100),
            name + ": uint8 elements have 8 bits, but a lane of FP32 has 32 in memory");
  EXPECT_EQ(refusal(bytes, e6m2, bf16, 100, Rounding::rtz), "E6M2 to BF16: only RNE and RNA, not RTZ");
  words[30000] = std::byte{0};
  const NpyArray with_sign = array_in(dir / "s.npy", DType::kI8, {40000}, words);
  EXPECT_EQ(refusal(with_sign, s4, format_of(DataType::s8), 100), "");
  const NpyArray without = array_in(dir / "u.npy", DType::kU8, {40000}, words);
  EXPECT_EQ(refusal(without, s4, format_of(DataType::s8), 100),
            (dir / "u.npy").string() + ": element 30001 is 0xF8, beyond a lane of S4X2");
  std::filesystem::resize_file(dir / "s.npy", 20000);
  EXPECT_EQ(refusal(with_sign, s4, format_of(DataType::s8), 100),
            (dir / "s.npy").string() +
                ": byte 20000 is missing; the file had 40128 bytes when it was opened, and was cut short meanwhile");
}

}  // namespace
}  // namespace bitcube
