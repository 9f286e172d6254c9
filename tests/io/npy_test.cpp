#include "bitcube/io/npy.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>

#include <rapidcheck/gtest.h>  // needs gtest before it

#include "io/temp_dir.hpp"

namespace bitcube {
namespace {

using namespace test;
using namespace std::string_literals;
using Shape = std::vector<std::uint64_t>;

constexpr DType kAll[] = {DType::kBool, DType::kI8,  DType::kI16, DType::kI32, DType::kI64, DType::kU8,  DType::kU16,
                          DType::kU32,  DType::kU64, DType::kF16, DType::kF32, DType::kF64, DType::kBF16};

/// A header as NumPy 1.24 writes it: the dict, then spaces up to `total` bytes, the last of them a newline.
std::string numpy_header(std::string preamble, std::string_view dict, std::size_t total = 128) {
  preamble += dict;
  preamble.append(total - 1 - preamble.size(), ' ');
  return preamble + '\n';
}
const std::string kV1 = "\x93NUMPY\x01\x00\x76\x00"s;
const std::string kV2 = "\x93NUMPY\x02\x00\x74\x00\x00\x00"s;
const std::string kV3 = "\x93NUMPY\x03\x00\x74\x00\x00\x00"s;

/// What numpy.save makes of numpy.arange(6, dtype='<f4').reshape(2, 3).
const std::string kArange = numpy_header(kV1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }") +
                            "\0\0\0\0\0\0\x80?\0\0\0@\0\0@@\0\0\x80@\0\0\xa0@"s;

/// A version 1.0 file with any text as its header.
std::string file_with(std::string_view header, std::string_view data = "") {
  std::string file = "\x93NUMPY\x01\x00"s;
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  return file.append(header).append(data);
}

Expected<NpyArray> parse(std::string_view file) {
  return parse_npy(InputFile::from_bytes(to_bytes(file)), "a.npy");
}

TEST(NpyRead, WhatNumpyWrites) {
  const auto array = parse(kArange);
  ASSERT_TRUE(succeeds(array));
  EXPECT_EQ(array->dtype, DType::kF32);
  EXPECT_EQ(array->element_size(), 4U);
  EXPECT_EQ(array->shape, (Shape{2, 3}));
  ASSERT_EQ(array->size(), 24U);
  float last = 0;
  ASSERT_TRUE(succeeds(array->read(20, std::as_writable_bytes(std::span(&last, 1)))));
  EXPECT_EQ(last, 5.0F);

  struct Case {
    std::string preamble;
    std::string dict;
    std::string data;
    DType dtype;
    Shape shape;
  };
  const Case cases[] = {
      {kV1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", "\1\0\1"s, DType::kBool, {3}},
      {kV1, "{'descr': '|u1', 'fortran_order': False, 'shape': (), }", "\xc8", DType::kU8, {}},
      {kV1, "{'descr': '<i8', 'fortran_order': False, 'shape': (0, 4), }", "", DType::kI64, {0, 4}},
      {kV1, "{'descr': '<V2', 'fortran_order': False, 'shape': (2,), }", "\0\0\0\0"s, DType::kBF16, {2}},
      {kV1, "{'descr': '|V2', 'fortran_order': False, 'shape': (2,), }", "\0\0\0\0"s, DType::kBF16, {2}},
      {kV2, "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }", "\0\0\1\0"s, DType::kU16, {2}},
      {kV3, "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }", "\0\0\1\0"s, DType::kU16, {2}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.dict);
    const auto read = parse(numpy_header(c.preamble, c.dict) + c.data);
    ASSERT_TRUE(succeeds(read));
    EXPECT_EQ(read->dtype, c.dtype);
    EXPECT_EQ(read->shape, c.shape);
    EXPECT_EQ(to_text(value_of(read->load())), c.data);
  }
}

TEST(NpyRead, AnyWayToWriteTheDict) {
  for (const char* header : {
           "{'shape':(2,),'descr':'<u2','fortran_order':False}",
           "{\"fortran_order\": False, \"descr\": \"<u2\", \"shape\": (2,)}",
           " \t{ 'descr' :\n'<u2' , 'fortran_order'\r:\f False , 'shape' : ( 2 , ) , } \n",
           "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 1)}",
           "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 1, )}",
           "{'descr': 'bfloat16', 'fortran_order': False, 'shape': (2,)}",
       }) {
    EXPECT_TRUE(succeeds(parse(file_with(header, "1234")))) << header;
  }
  // Long enough that both bytes of the length count.
  EXPECT_TRUE(succeeds(
      parse(file_with("{'descr': '<u2', 'fortran_order': False, 'shape': (2,)}" + std::string(1000, ' '), "1234"))));
  EXPECT_TRUE(succeeds(parse(file_with("{'descr': '>u1', 'fortran_order': False, 'shape': (2,)}", "12"))));
}

TEST(NpyRead, EveryKindOfFaultyHeader) {
  struct Case {
    const char* header;
    const char* message;
  };
  const Case cases[] = {
      {"", "offset 10: the header should have '{' here"},
      {"[]", "offset 10: the header should have '{' here"},
      {"{}", "the header has no key 'descr'"},
      {"{,}", "offset 11: the header should have a string here"},
      {"{'descr': '<u2', 'fortran_order': False}", "the header has no key 'shape'"},
      {"{'descr': '<u2', 'shape': (2,)}", "the header has no key 'fortran_order'"},
      {"{'shape': (2,), 'fortran_order': False}", "the header has no key 'descr'"},
      {"{'descr': '<u2', 'descr': '<u2'}", "the header has the key 'descr' twice"},
      {"{'fortran_order': False, 'fortran_order': True}", "the header has the key 'fortran_order' twice"},
      {"{'shape': (), 'shape': ()}", "the header has the key 'shape' twice"},
      {"{'order': 'C'}", "the header has the unknown key 'order'; its keys are descr, fortran_order and shape"},
      {"{'descr' '<u2'}", "offset 19: the header should have ':' here"},
      {"{'descr': '<u2' 'shape': ()}", "offset 26: the header should have ',' or '}' here"},
      {"{'descr': '<u2',, 'shape': ()}", "offset 26: the header should have a string here"},
      {"{'descr': '<u2'", "offset 25: the header should have ',' or '}' here"},
      {"{'descr': '<u2", "offset 24: the header should have the end of a string here"},
      {"{'descr': \"<u2'}", "offset 26: the header should have the end of a string here"},
      {"{'desc\\x72': '<u2'}", "offset 16: the header should have plain ASCII without escapes here"},
      {"{'d\xC3\xA9scr': '<u2'}", "offset 13: the header should have plain ASCII without escapes here"},
      {"{'d\177escr': '<u2'}", "offset 13: the header should have plain ASCII without escapes here"},
      {"{'d\nescr': '<u2'}", "offset 13: the header should have plain ASCII without escapes here"},
      {"{descr: '<u2'}", "offset 11: the header should have a string here"},
      {"{'descr': 2}", "offset 20: the header should have a string here"},
      {"{'fortran_order': 0}", "offset 28: the header should have True or False here"},
      {"{'fortran_order': Falsetto}", "offset 33: the header should have ',' or '}' here"},
      {"{'shape': 2}", "offset 20: the header should have a tuple, such as (2, 3), as the shape here"},
      {"{'shape': [2]}", "offset 20: the header should have a tuple, such as (2, 3), as the shape here"},
      {"{'shape': (5)}", "offset 22: the header should have ',' ((5) is a number in Python; a shape is (5,)) here"},
      {"{'shape': (,)}", "offset 21: the header should have a dimension here"},
      {"{'shape': (2,,)}", "offset 23: the header should have a dimension here"},
      {"{'shape': (2 3)}", "offset 23: the header should have ',' or ')' in the shape here"},
      {"{'shape': (2", "offset 22: the header should have ',' or ')' in the shape here"},
      {"{'shape': (2,", "offset 23: the header should have a dimension here"},
      {"{'shape': (02,)}", "offset 21: the header should have a dimension here"},
      {"{'shape': (2L,)}", "offset 22: the header should have ',' or ')' in the shape here"},
      {"{'shape': (2.0,)}", "offset 22: the header should have ',' or ')' in the shape here"},
      {"{'shape': (+2,)}", "offset 21: the header should have a dimension here"},
      {"{'shape': ((2,),)}", "offset 21: the header should have a dimension here"},
      {"{'shape': (3, -2)}", "offset 24: the header should have a dimension that is not negative here"},
      {"{'shape': (18446744073709551616,)}", "offset 21: the header should have a dimension that fits 64 bits here"},
      {"{'descr': '<u2', 'fortran_order': False, 'shape': (2,)} x",
       "offset 66: the header should have nothing but spaces and its final newline here"},
  };
  for (const Case& c : cases) {
    EXPECT_TRUE(fails_with(parse(file_with(c.header, "1234")), "a.npy: "s + c.message)) << c.header;
  }
  // A zero byte is no end of the text.
  EXPECT_FALSE(parse(file_with("{'descr': '<u2', 'fortran_order': False, 'shape': (2,)}\0"s, "1234")));
}

TEST(NpyRead, ShapesThatAreTooLarge) {
  const auto with_shape = [](std::string_view shape) {
    return parse(file_with("{'descr': '<u2', 'fortran_order': False, 'shape': " + std::string(shape) + "}"));
  };
  const std::string end = " of uint16 is larger than any file";
  EXPECT_TRUE(fails_with(with_shape("(4611686018427387904,)"), "a.npy: shape (4611686018427387904,)" + end));
  EXPECT_TRUE(fails_with(with_shape("(4611686018427387903,)"),
                         "a.npy: shape (4611686018427387903,) of uint16 takes 9223372036854775806 bytes, but 0 bytes "
                         "follow the header; the file is truncated"));
  // 2^32 * 2^32 would wrap to 0, and a zero does not excuse the rest.
  EXPECT_TRUE(fails_with(with_shape("(4294967296, 4294967296)"), "a.npy: shape (4294967296, 4294967296)" + end));
  EXPECT_TRUE(fails_with(with_shape("(0, 4294967296, 4294967296)"), "a.npy: shape (0, 4294967296, 4294967296)" + end));
  EXPECT_TRUE(succeeds(with_shape("(0, 4294967296)")));

  std::string ones = "(";
  for (int i = 0; i < 31; ++i) ones += "1,";
  EXPECT_TRUE(succeeds(with_shape(ones + "0)")));
  EXPECT_TRUE(fails_with(with_shape(ones + "1,0)"), "a.npy: the shape has more than 32 dimensions"));
}

TEST(NpyRead, TypesThatAreNotSupported) {
  const std::string all =
      " not supported; convert it with a.astype to one of bool, int8, int16, int32, int64, uint8, uint16, uint32, "
      "uint64, float16, float32, float64, bfloat16";
  struct Case {
    const char* descr;
    std::string message;
  };
  const Case cases[] = {
      {"'>i2'", "big-endian int16 ('>i2') is not supported; save it with a.astype('<i2')"},
      {"'>f8'", "big-endian float64 ('>f8') is not supported; save it with a.astype('<f8')"},
      {"[('a', '<i4'), ('b', '<f2')]", "structured dtypes are not supported; save each field as an array of its own"},
      {"('<f4', (2,))", "structured dtypes are not supported; save each field as an array of its own"},
      {"'|O'", "descr '|O': Python objects are" + all},
      {"'<U2'", "descr '<U2': strings are" + all},
      {"'|S5'", "descr '|S5': strings are" + all},
      {"'<c8'", "descr '<c8': complex numbers are" + all},
      {"'|V3'", "descr '|V3': records and raw bytes are" + all},
      {"'>V2'", "descr '>V2': records and raw bytes are" + all},
      {"'<M8[s]'", "descr '<M8[s]': dates are" + all},
      {"'<f16'", "descr '<f16': this dtype is" + all},
      {"'|f4'", "descr '|f4': this dtype is" + all},
      {"''", "descr '': this dtype is" + all},
      {"'>'", "descr '>': this dtype is" + all},
      {"'<xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'",
       "descr '<xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx': this dtype is" + all},
  };
  for (const Case& c : cases) {
    const std::string header = "{'descr': "s + c.descr + ", 'fortran_order': False, 'shape': (1,)}";
    EXPECT_TRUE(fails_with(parse(file_with(header)), "a.npy: " + c.message)) << c.descr;
  }
}

TEST(NpyRead, FortranOrderWhereItMakesADifference) {
  const auto fortran = [](std::string_view shape, std::string_view data) {
    return parse(file_with("{'descr': '|u1', 'fortran_order': True, 'shape': " + std::string(shape) + "}", data));
  };
  EXPECT_TRUE(fails_with(fortran("(2, 2)", "1234"),
                         "a.npy: Fortran order is not supported; save it with numpy.ascontiguousarray"));
  EXPECT_FALSE(fortran("(2, 1, 2)", "1234"));
  EXPECT_TRUE(succeeds(fortran("(4,)", "1234")));
  EXPECT_TRUE(succeeds(fortran("(1, 4, 1)", "1234")));
  EXPECT_TRUE(succeeds(fortran("(2, 0, 2)", "")));
  EXPECT_TRUE(succeeds(fortran("()", "1")));
}

TEST(NpyRead, WhatIsNoNpyFile) {
  EXPECT_TRUE(fails_with(parse(""), "a.npy: the file is empty; expected an .npy file"));
  EXPECT_TRUE(fails_with(parse("PK\3\4..."), "a.npy: this is an .npz archive; save each array with numpy.save"));
  EXPECT_TRUE(fails_with(parse("text"), "a.npy: not an .npy file: it does not begin with \\x93NUMPY"));
  for (const auto& [version, text] : {std::pair("\0\0"s, "0.0"), std::pair("\1\1"s, "1.1"), std::pair("\4\0"s, "4.0"),
                                      std::pair("\xff\0"s, "255.0")}) {
    std::string file = kArange;
    file.replace(6, 2, version);
    EXPECT_TRUE(fails_with(parse(file),
                           "a.npy: version "s + text + " of the format is not supported; expected 1.0, 2.0 or 3.0"));
  }
  const TempDir dir;
  EXPECT_TRUE(fails_with(read_npy(dir / "none.npy"), (dir / "none.npy").string() + ": No such file or directory"));
}

TEST(NpyRead, TruncatedAtEveryByte) {
  std::string version3 = kArange;
  version3.replace(0, kV1.size(), kV3).erase(kV3.size() + 80, 2);
  for (const std::string& file : {kArange, version3}) {
    ASSERT_TRUE(succeeds(parse(file)));
    for (std::size_t size = 0; size < file.size(); ++size) {
      const auto array = parse(file.substr(0, size));
      ASSERT_FALSE(array) << size;
      if (size >= 6) {
        EXPECT_NE(array.error().message.find("truncated"), std::string::npos) << array.error().message;
      }
    }
  }
  EXPECT_TRUE(fails_with(parse(kArange.substr(0, 7)), "a.npy: the file is truncated in its version number"));
  EXPECT_TRUE(fails_with(parse(kArange.substr(0, 9)), "a.npy: the file is truncated in the length of its header"));
  EXPECT_TRUE(
      fails_with(parse(kArange.substr(0, 127)),
                 "a.npy: the header should be 118 bytes long, but only 117 bytes follow; the file is truncated"));
  EXPECT_TRUE(fails_with(parse(kArange.substr(0, 151)),
                         "a.npy: shape (2, 3) of float32 takes 24 bytes, but 23 bytes follow the header; the file is "
                         "truncated"));
  EXPECT_TRUE(fails_with(parse(kArange + "x"),
                         "a.npy: shape (2, 3) of float32 takes 24 bytes, but 25 bytes follow the header; nothing may "
                         "follow the array"));
}

TEST(NpyWrite, TheHeaderIsNumpysByteForByte) {
  EXPECT_EQ(npy_header(DType::kF32, Shape{2, 3}), kArange.substr(0, 128));
  EXPECT_EQ(npy_header(DType::kBF16, Shape{}),
            numpy_header(kV1, "{'descr': '<V2', 'fortran_order': False, 'shape': (), }"));
  EXPECT_EQ(npy_header(DType::kBool, Shape{5}),
            numpy_header(kV1, "{'descr': '|b1', 'fortran_order': False, 'shape': (5,), }"));
  EXPECT_EQ(npy_header(DType::kU8, Shape{18446744073709551615U, 3}),
            numpy_header(kV1, "{'descr': '|u1', 'fortran_order': False, 'shape': (18446744073709551615, 3), }"));
  // With 36 ones the dict ends where alignment would need no padding: NumPy then pads by 64 bytes.
  std::string ones = "1";
  for (int i = 1; i < 36; ++i) ones += ", 1";
  EXPECT_EQ(npy_header(DType::kF32, Shape(36, 1)),
            numpy_header("\x93NUMPY\x01\x00\xf6\x00"s,
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (" + ones + "), }", 256));
}

TEST(NpyWrite, ALongHeaderIsOfVersion2) {
  // NumPy's header of a shape of 25000 sevens: 75136 bytes, which two bytes cannot say.
  const std::string header = npy_header(DType::kF32, Shape(25'000, 7));
  EXPECT_EQ(header.size(), 75'136U);
  EXPECT_EQ(header.substr(0, 60), "\x93NUMPY\x02\x00t%\x01\x00{'descr': '<f4', 'fortran_order': False, 'shape'"s);
  EXPECT_EQ(header.substr(header.size() - 70), std::string(69, ' ') + "\n");
}

TEST(NpyWrite, RefusesWhatDoesNotFit) {
  const TempDir dir;
  const std::string name = dir / "a.npy";
  EXPECT_TRUE(fails_with(write_npy(name, DType::kF32, Shape{2, 3}, to_bytes("12345678")),
                         name + ": shape (2, 3) of float32 takes 24 bytes, but 8 are given"));
  EXPECT_TRUE(
      fails_with(write_npy(name, DType::kU8, Shape{1U << 31, 1ULL << 33}, {}),
                 name + ": shape (2147483648, 8589934592) of uint8 takes more than 2^63 bytes, but 0 are given"));
  EXPECT_TRUE(fails_with(write_npy(name, DType::kU8, Shape(33, 1), to_bytes("1")),
                         name + ": the shape has 33 dimensions; .npy files have at most 32"));
  const Unprivileged nobody(dir.path());
  EXPECT_TRUE(
      fails_with(write_npy("/dev/full", DType::kU8, Shape{1}, to_bytes("1")), "/dev/full: No space left on device"));
  EXPECT_TRUE(dir.names().empty());
}

TEST(NpyWrite, SeveralFilesTogether) {
  const TempDir dir;
  auto a = OutputFile::create(dir / "a.npy");
  auto b = OutputFile::create(dir / "b.npy");
  ASSERT_TRUE(a && b);
  ASSERT_TRUE(succeeds(write_npy(*a, DType::kU8, Shape{2}, to_bytes("12"))));
  ASSERT_TRUE(succeeds(write_npy(*b, DType::kU16, Shape{}, to_bytes("12"))));
  EXPECT_EQ(dir.names().count("a.npy"), 0U);
  OutputFile* files[] = {&*a, &*b};
  ASSERT_TRUE(succeeds(commit_all(files)));
  EXPECT_TRUE(succeeds(read_npy(dir / "a.npy")));
  EXPECT_TRUE(succeeds(read_npy(dir / "b.npy")));
}

TEST(Npy, DTypesHaveNameAndSize) {
  EXPECT_EQ(dtype_name(DType::kBF16), "bfloat16");
  EXPECT_EQ(dtype_size(DType::kBF16), 2U);
  EXPECT_EQ(dtype_name(DType::kBool), "bool");
  EXPECT_EQ(dtype_size(DType::kF64), 8U);
}

RC_GTEST_PROP(Npy, IsReadAsItWasWritten, ()) {
  static const TempDir dir;
  const DType dtype = *rc::gen::elementOf(std::vector<DType>(std::begin(kAll), std::end(kAll)));
  const auto dims = *rc::gen::resize(5, rc::gen::container<Shape>(rc::gen::inRange<std::uint64_t>(0, 5)));
  std::size_t size = dtype_size(dtype);
  for (const auto dim : dims) size *= dim;
  const auto data = *rc::gen::container<std::string>(size, rc::gen::arbitrary<char>());
  RC_ASSERT(static_cast<bool>(write_npy(dir / "a.npy", dtype, dims, to_bytes(data))));
  const auto array = read_npy(dir / "a.npy");
  RC_ASSERT(static_cast<bool>(array));
  RC_ASSERT(array->dtype == dtype);
  RC_ASSERT(array->shape == dims);
  RC_ASSERT(to_text(value_of(array->load())) == data);
}

/// A damaged file is either refused, or read with exactly the bytes behind its header. (The sanitizers see the rest.)
testing::AssertionResult in_bounds_or_refused(const std::string& file) {
  const auto array = parse(file);
  if (!array) {
    if (array.error().message.rfind("a.npy: ", 0) == 0) return testing::AssertionSuccess();
    return testing::AssertionFailure() << array.error().message;
  }
  std::uint64_t size = array->element_size();
  for (const auto dim : array->shape) size *= dim;
  if (size <= file.size() && to_text(value_of(array->load())) == file.substr(file.size() - size)) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << array->size() << " bytes of " << size;
}

TEST(Npy, AFileWithAnyByteChanged) {
  for (std::size_t at = 0; at < kArange.size(); ++at) {
    std::string file = kArange;
    for (int byte = 0; byte < 256; ++byte) {
      file[at] = static_cast<char>(byte);
      ASSERT_TRUE(in_bounds_or_refused(file)) << "byte " << at << " is " << byte;
    }
  }
}

RC_GTEST_PROP(Npy, AFileWithRandomMutations, ()) {
  std::string file = kArange;
  const int mutations = *rc::gen::inRange(2, 10);
  for (int i = 0; i < mutations; ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, file.size());
    const char byte = *rc::gen::oneOf(rc::gen::arbitrary<char>(), rc::gen::elementOf("'\"{}()[],:->|0123456789VU \n"s));
    switch (*rc::gen::inRange(0, 8)) {
      case 0:
        file.insert(at, 1, byte);
        break;
      case 1:
        if (file.size() > 1) file.erase(at, 1);
        break;
      case 2:
        if (at > 0) file.resize(at);
        break;
      default:
        file[at] = byte;
    }
  }
  RC_ASSERT(static_cast<bool>(in_bounds_or_refused(file)));
}

}  // namespace
}  // namespace bitcube
