// Raw arrays: type and shape on the command line's terms, the words alone in the file.
#include "bitcube/io/array.hpp"

#include <gtest/gtest.h>

#include "io/temp_dir.hpp"

namespace bitcube::test {
namespace {

using Shape = std::vector<std::uint64_t>;

TEST(RawArray, Text) {
  const auto raw = parse_raw_array("dir:a/w.bin:float32:784x256");
  ASSERT_TRUE(raw);
  EXPECT_EQ(raw->path, "dir:a/w.bin");
  EXPECT_EQ(raw->dtype, DType::kF32);
  EXPECT_EQ(raw->shape, (Shape{784, 256}));
  EXPECT_EQ(parse_raw_array("x:bfloat16:7")->dtype, DType::kBF16);
  for (const char* text : {"w.bin", "w.npy", "w:float32", ":float32:2", "w:float33:2", "w:float32:", "w:float32:2x",
                           "w:float32:-2", "w:float32:2x3y", "w:float32:99999999999999999999"}) {
    EXPECT_FALSE(parse_raw_array(text)) << text;
  }
  EXPECT_EQ(array_path("w.bin:uint8:2x2"), "w.bin");
  EXPECT_EQ(array_path("w.npy"), "w.npy");
}

TEST(RawArray, ReadsExactlyWhatItSays) {
  const TempDir dir;
  write_text(dir / "w.bin", "abcdef");
  const std::string path = dir / "w.bin";
  const auto array = read_array(path + ":uint16:3");
  ASSERT_TRUE(array) << array.error().message;
  EXPECT_EQ(array->shape, (Shape{3}));
  EXPECT_EQ(to_text(value_of(array->load())), "abcdef");
  const auto wrong = read_array(path + ":uint16:2x2");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message, path + ": 6 bytes, but uint16 of shape 2x2 takes 8");
  EXPECT_FALSE(read_array(path + ":float64:18446744073709551615"));
  const auto untold = read_array(path);
  ASSERT_FALSE(untold);
  EXPECT_NE(untold.error().message.find(":float32:ROWSxCOLUMNS"), std::string::npos);
  EXPECT_FALSE(read_array(std::string(dir / "none.bin") + ":uint8:1"));
}

TEST(RawArray, TheNameDecidesWhatIsWritten) {
  const TempDir dir;
  const Shape shape{2};
  for (const char* name : {"w.bin", "w.npy"}) {
    auto file = OutputFile::create(dir / name);
    ASSERT_TRUE(file);
    ASSERT_TRUE(write_array(*file, DType::kU8, shape, to_bytes("ab")));
    ASSERT_TRUE(file->commit());
  }
  EXPECT_EQ(read_text(dir / "w.bin"), "ab");
  EXPECT_EQ(read_text(dir / "w.npy"), npy_header(DType::kU8, shape) + "ab");
}

TEST(Array, TypesOfFormats) {
  const auto type = [](DataType format) { return array_dtype(format_of(format)); };
  EXPECT_EQ(type(DataType::fp64), DType::kF64);
  EXPECT_EQ(type(DataType::fp32), DType::kF32);
  EXPECT_EQ(type(DataType::tf32), DType::kF32);
  EXPECT_EQ(type(DataType::hf32), DType::kF32);
  EXPECT_EQ(type(DataType::fp16), DType::kF16);
  EXPECT_EQ(type(DataType::bf16), DType::kU16);
  EXPECT_EQ(type(DataType::e4m3), DType::kU8);
  EXPECT_EQ(type(DataType::hif8), DType::kU8);
  EXPECT_EQ(type(DataType::e8m0), DType::kU8);
  EXPECT_EQ(type(DataType::e2m1x2), DType::kU8);
  EXPECT_EQ(type(DataType::s64), DType::kI64);
  EXPECT_EQ(type(DataType::s32), DType::kI32);
  EXPECT_EQ(type(DataType::s16), DType::kI16);
  EXPECT_EQ(type(DataType::s8), DType::kI8);
  EXPECT_EQ(type(DataType::s4x2), DType::kI8);
  EXPECT_EQ(type(DataType::u64), DType::kU64);
  EXPECT_EQ(type(DataType::u32), DType::kU32);
  EXPECT_EQ(type(DataType::u16), DType::kU16);
  EXPECT_EQ(type(DataType::u8), DType::kU8);
  EXPECT_EQ(type(DataType::u4x2), DType::kU8);
}

}  // namespace
}  // namespace bitcube::test
