// Shapes that no memory holds: every size is computed with checked arithmetic of 64 bits. Nothing here allocates or
// writes what the shapes say; files are sparse.
#include <gtest/gtest.h>

#include <limits>

#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/matrix_operand.hpp"
#include "bitcube/io/array.hpp"
#include "bitcube/io/npy.hpp"
#include "bitcube/io/packed.hpp"
#include "bitcube/io/safetensors.hpp"
#include "bitcube/quantize/lines.hpp"
#include "bitcube/quantize/tensor.hpp"
#include "bitcube/stream/checkpoint.hpp"
#include "io/temp_dir.hpp"

namespace bitcube::test {
namespace {

using Shape = std::vector<std::uint64_t>;

constexpr std::uint64_t kHuge = std::uint64_t{1} << 40;  // elements
constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

/// Many shapes of 2^40 elements, and their neighbours.
const std::vector<Shape> kShapes{{kHuge},
                                 {kHuge - 1},
                                 {1U << 20, 1U << 20},
                                 {(1U << 20) - 1, (1U << 20) + 1},
                                 {kHuge, 1},
                                 {1, kHuge},
                                 {3, 5, 7, 11, 13, 17, 19, 23, 29},
                                 {1U << 10, 1U << 10, 1U << 10, 1U << 10}};

QuantizedTensor description(const BlockFormat& format, const Shape& shape, std::size_t axis) {
  QuantizeOptions options;
  options.format = &format;
  auto tensor = value_of(quantize({}, fp32, Shape{0}, 0, options));
  tensor.shape = shape;
  tensor.axis = axis;
  return tensor;
}

/// A file that begins with these bytes and has that size, without room on the disk.
void write_sparse(const std::filesystem::path& path, std::string_view start, std::uint64_t size) {
  write_text(path, start);
  std::filesystem::resize_file(path, size);
}

std::string safetensors_header(std::string_view json) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return text.append(json);
}

TEST(HugeShapes, BytesOfEveryBlockFormat) {
  for (const BlockFormat& f : block_formats) {
    for (const Shape& shape : kShapes) {
      for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        // By 128-bit arithmetic of its own: codes of a line are padded to bytes, groups are counted up.
        uint128 lines = 1;
        for (std::size_t i = 0; i < shape.size(); ++i) lines *= i == axis ? 1 : shape[i];
        const uint128 lanes = shape[axis];
        const unsigned bits = f.element->is_packed() ? 4 : 8;
        const auto codes = static_cast<std::uint64_t>(lines * ((lanes * bits + 7) / 8));
        const auto scales = static_cast<std::uint64_t>(lines * ((lanes + f.group - 1) / f.group) * f.scale_bytes());
        const auto tensor = description(f, shape, axis);
        ASSERT_TRUE(succeeds(validate_description(tensor))) << f.name;
        const auto plan = plan_packed("w.safetensors", "w", tensor);
        ASSERT_TRUE(succeeds(plan)) << f.name;
        EXPECT_EQ(plan->code_bytes, codes) << f.name << " axis " << axis;
        EXPECT_EQ(plan->scale_bytes, scales) << f.name << " axis " << axis;
        EXPECT_EQ(plan->file_size(), plan->header.size() + codes + scales) << f.name;
      }
    }
  }
}

TEST(HugeShapes, BeyondSixtyFourBitsIsAnError) {
  for (const Shape& shape :
       std::vector<Shape>{{std::uint64_t{1} << 32, std::uint64_t{1} << 32},
                          {kMax, 2},
                          {2, kMax},
                          {kMax, kMax, kMax},
                          {std::uint64_t{1} << 22, std::uint64_t{1} << 21, std::uint64_t{1} << 21}}) {
    Lines lines;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      EXPECT_FALSE(lines_of(shape, axis, lines));
      for (const BlockFormat& f : block_formats) {
        const auto valid = validate_description(description(f, shape, axis));
        ASSERT_FALSE(valid) << f.name;
        EXPECT_TRUE(valid.error().message.ends_with(": more elements or bytes than 64 bits can count"))
            << valid.error().message;
        EXPECT_FALSE(plan_packed("w.safetensors", "w", description(f, shape, axis)));
      }
    }
    QuantizeOptions options;
    EXPECT_FALSE(quantize({}, fp32, shape, 0, options));
  }
  // Elements that can be counted, bytes of scales that cannot: a group per element.
  const auto scales = validate_description(description(*find_block_format("hif4"), {std::uint64_t{1} << 62, 1}, 1));
  ASSERT_FALSE(scales);
}

TEST(HugeShapes, NpyFiles) {
  const TempDir dir;
  for (const Shape& shape : kShapes) {
    const std::string header = npy_header(DType::kF64, shape);
    std::uint64_t elements = 1;
    for (const std::uint64_t extent : shape) elements *= extent;
    write_sparse(dir / "a.npy", header, header.size() + 1000);
    const auto array = read_npy(dir / "a.npy");
    ASSERT_FALSE(array);
    EXPECT_NE(array.error().message.find(" takes " + std::to_string(8 * elements) +
                                         " bytes, but 1000 bytes follow the header; the file is truncated"),
              std::string::npos)
        << array.error().message;
  }
  // One that is whole: 1 TiB of zeros.
  const std::string header = npy_header(DType::kU8, Shape{1U << 20, 1U << 20});
  write_text(dir / "a.npy", header);
  std::error_code code;
  std::filesystem::resize_file(dir / "a.npy", header.size() + kHuge, code);
  if (!code) {
    const auto array = read_npy(dir / "a.npy");
    ASSERT_TRUE(succeeds(array));
    EXPECT_EQ(array->size(), kHuge);
    std::vector<std::byte> last(1);
    EXPECT_TRUE(succeeds(array->read(kHuge - 1, last)));
  }
  for (const Shape& shape : std::vector<Shape>{{kMax}, {kMax, 2}, {std::uint64_t{1} << 61}, {1U << 31, 1U << 31, 4}}) {
    write_sparse(dir / "a.npy", npy_header(DType::kF64, shape), 5000);
    const auto array = read_npy(dir / "a.npy");
    ASSERT_FALSE(array);
    EXPECT_TRUE(array.error().message.ends_with(" of float64 is larger than any file")) << array.error().message;
    auto file = OutputFile::create(dir / "b.npy");
    ASSERT_TRUE(succeeds(file));
    const auto begun = begin_npy(*file, DType::kF64, shape);
    ASSERT_FALSE(begun);
    EXPECT_TRUE(begun.error().message.ends_with("takes more than 2^63 bytes")) << begun.error().message;
  }
  write_sparse(dir / "a.bin", "", 100);
  const std::string raw = (dir / "a.bin").string();
  EXPECT_TRUE(fails_with(read_array(raw + ":float64:4294967296x4294967296"),
                         raw + ":float64:4294967296x4294967296: the shape is too large"));
  EXPECT_TRUE(fails_with(read_array(raw + ":float64:1048576x1048576"),
                         raw + ": 100 bytes, but float64 of shape 1048576x1048576 takes 8796093022208"));
}

TEST(HugeShapes, SafetensorsFiles) {
  const TempDir dir;
  const auto read = [&](std::string_view json) {
    const std::string header = safetensors_header(json);
    write_sparse(dir / "a.safetensors", header, header.size() + 100);
    return read_safetensors(dir / "a.safetensors");
  };
  for (const std::string_view json :
       {R"({"w":{"dtype":"F64","shape":[1099511627776],"data_offsets":[0,100]}})",
        R"({"w":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
        R"({"w":{"dtype":"F64","shape":[18446744073709551615,2],"data_offsets":[0,100]}})",
        R"({"w":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})",
        R"({"w":{"dtype":"U8","shape":[100],"data_offsets":[18446744073709551516,18446744073709551615]}})",
        R"({"w":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,100]}})"}) {
    const auto file = read(json);
    EXPECT_FALSE(file) << json;
  }
  // 2^40 elements in a sparse file of 4 TiB, where the file system has room for its size.
  const std::string header =
      safetensors_header(R"({"w":{"dtype":"F32","shape":[1048576,1048576],"data_offsets":[0,4398046511104]}})");
  write_text(dir / "a.safetensors", header);
  std::error_code code;
  std::filesystem::resize_file(dir / "a.safetensors", header.size() + 4 * kHuge, code);
  if (code) return;
  ASSERT_TRUE(succeeds(read_safetensors(dir / "a.safetensors")));
  stream::CheckpointOptions options;
  for (const BlockFormat& f : block_formats) {
    options.quantize.format = &f;
    for (const std::int64_t axis : {0, 1}) {
      options.axis = axis;
      const auto work = stream::CheckpointQuantizer::plan(dir / "a.safetensors", options);
      ASSERT_TRUE(succeeds(work)) << f.name;
      const std::uint64_t codes = f.element->is_packed() ? kHuge / 2 : kHuge;
      EXPECT_EQ(work->tensors()[0].bytes, codes + kHuge / f.group * f.scale_bytes()) << f.name;
    }
  }
}

TEST(HugeShapes, Products) {
  const std::vector<std::byte> none;
  const auto product = [&](std::size_t m, std::size_t n, std::size_t k) {
    Operand a = matrix_operand(Side::a, fp32, none, 0, 0);
    Operand b = matrix_operand(Side::b, fp32, none, 0, 0);
    a.lines = m;
    b.lines = n;
    a.k = b.k = k;
    return matmul(a, b, {});
  };
  const std::string many = ": the result has too many elements for this machine";
  EXPECT_TRUE(
      fails_with(product(std::size_t{1} << 32, std::size_t{1} << 32, 1), "M = 4294967296, N = 4294967296" + many));
  EXPECT_TRUE(fails_with(product(std::size_t{1} << 61, 1, 1), "M = 2305843009213693952, N = 1" + many));
  EXPECT_TRUE(
      fails_with(product(1, 1, std::size_t{1} << 55), "K = 36028797018963968: too many lanes for this machine"));
}

}  // namespace
}  // namespace bitcube::test
