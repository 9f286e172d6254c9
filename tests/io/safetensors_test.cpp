#include "bitcube/io/safetensors.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include <rapidcheck/gtest.h>  // needs gtest before it

#include "io/temp_dir.hpp"
#include "support/tensor_bytes.hpp"

namespace bitcube {
namespace {

using namespace test;
using namespace std::string_literals;
using Shape = std::vector<std::uint64_t>;

std::string file_with(std::string_view header, std::string_view data = "") {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return file.append(header).append(data);
}

Expected<Safetensors> parse(std::string_view file) {
  return parse_safetensors(InputFile::from_bytes(to_bytes(file)), "a.st");
}
testing::AssertionResult refused(std::string_view header, std::string_view data, const std::string& message) {
  return fails_with(parse(file_with(header, data)), "a.st: " + message);
}

/// Two tensors, the wider one first in the data, though not in the header.
const std::string kHeader =
    R"({"__metadata__":{"format":"pt","by":"mine"},"w":{"dtype":"BF16","shape":[2,1],"data_offsets":[8,12]},)"
    R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}      )";
const std::string kData = "AAAABBBBccdd";
const std::string kFile = file_with(kHeader, kData);

/// The header of a single tensor "t".
std::string tensor(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  std::string header = R"({"t":{"dtype":")";
  header.append(dtype).append(R"(","shape":)").append(shape).append(R"(,"data_offsets":)").append(offsets);
  return header + "}}";
}

TEST(SafetensorsRead, TensorsAndMetadata) {
  ASSERT_EQ(kHeader.size() % 8, 0U);
  auto parsed = parse(kFile);
  ASSERT_TRUE(succeeds(parsed));
  const Safetensors file = std::move(*parsed);
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}, {"by", "mine"}}));
  ASSERT_EQ(file.tensors().size(), 2U);
  const SafetensorsTensor& w = file.tensors()[0];
  EXPECT_EQ(w.name, "w");
  EXPECT_EQ(w.dtype, "BF16");
  EXPECT_EQ(w.shape, (Shape{2, 1}));
  EXPECT_EQ(w.begin, 8U);
  EXPECT_EQ(w.end, 12U);
  EXPECT_EQ(to_text(bytes_of(file, w)), "ccdd");
  ASSERT_NE(file.find("b"), nullptr);
  EXPECT_EQ(to_text(bytes_of(file, *file.find("b"))), "AAAABBBB");
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST(SafetensorsRead, WhatTheFormatAllows) {
  const auto reads = [](std::string_view header, std::string_view data = "") {
    return succeeds(parse(file_with(header, data)));
  };
  EXPECT_TRUE(reads("{}"));
  EXPECT_TRUE(reads(R"({"__metadata__":{}})"));
  EXPECT_TRUE(reads(" {}"s.substr(1) + "   "));
  EXPECT_TRUE(reads(tensor("F32", "[]", "[0,4]"), "1234"));
  EXPECT_TRUE(reads(tensor("F32", "[3,0]", "[0,0]")));
  EXPECT_TRUE(
      reads(R"({ "t" : {"data_offsets": [ 0, 1 ], "shape":[1],"dtype":"U8"}, "__metadata__" : {"a":""} })", "1"));
  EXPECT_TRUE(reads(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},"b":{"dtype":"U8","shape":[1],)"
                    R"("data_offsets":[0,1]},"c":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                    "1"));
  // Types that nobody knows are carried along.
  EXPECT_TRUE(reads(tensor("Q5", "[7]", "[0,3]"), "123"));
}

TEST(SafetensorsRead, EveryTypeHasItsSize) {
  const std::pair<const char*, unsigned> types[] = {
      {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"BOOL", 8},        {"U8", 8},   {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},     {"I16", 16},        {"U16", 16}, {"F16", 16},
      {"BF16", 16},   {"I32", 32},    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"U32", 32}, {"F32", 32},
      {"C64", 64},    {"F64", 64},    {"I64", 64},        {"U64", 64}};
  for (const auto& [dtype, bits] : types) {
    EXPECT_EQ(safetensors_bits(dtype), bits) << dtype;
    const std::string offsets = "[0," + std::to_string(bits) + "]";
    EXPECT_TRUE(succeeds(parse(file_with(tensor(dtype, "[8]", offsets), std::string(bits, 'x'))))) << dtype;
    EXPECT_TRUE(refused(tensor(dtype, "[16]", offsets), std::string(bits, 'x'),
                        "tensor \"t\": shape [16] of "s + dtype + " takes " + std::to_string(2 * bits) +
                            " bytes, but there are " + std::to_string(bits)));
  }
  EXPECT_EQ(safetensors_bits("F128"), std::nullopt);
  EXPECT_EQ(safetensors_bits(""), std::nullopt);
  EXPECT_TRUE(succeeds(parse(file_with(tensor("F4", "[3,2]", "[0,3]"), "123"))));
  EXPECT_TRUE(refused(tensor("F4", "[3]", "[0,2]"), "12",
                      R"(tensor "t": shape [3] of F4 takes 12 bits, which is no whole number of bytes)"));
  EXPECT_TRUE(refused(tensor("F6_E2M3", "[2]", "[0,2]"), "12",
                      R"(tensor "t": shape [2] of F6_E2M3 takes 12 bits, which is no whole number of bytes)"));
}

TEST(SafetensorsRead, DimensionsAreLimited) {
  const auto ones = [](int count) {
    std::string shape = "[1";
    for (int i = 1; i < count; ++i) shape += ",1";
    return shape + "]";
  };
  EXPECT_TRUE(succeeds(parse(file_with(tensor("U8", ones(64), "[0,1]"), "x"))));
  EXPECT_TRUE(refused(tensor("U8", ones(65), "[0,1]"), "x", R"(tensor "t" has more than 64 dimensions)"));
}

TEST(SafetensorsRead, FaultyLengths) {
  EXPECT_TRUE(
      fails_with(parse(""), "a.st: not a .safetensors file: it has 0 bytes, and the length of its header takes 8"));
  EXPECT_TRUE(fails_with(parse("1234567"),
                         "a.st: not a .safetensors file: it has 7 bytes, and the length of its header takes 8"));
  EXPECT_TRUE(refused("", "", "the header must begin with '{'"));
  EXPECT_TRUE(fails_with(parse("\3\0\0\0\0\0\0\0{}"s),
                         "a.st: the header should be 3 bytes long, but only 2 bytes follow; the file is truncated"));
  // 100'000'000 is the largest length allowed.
  EXPECT_TRUE(fails_with(parse("\0\xe1\xf5\5\0\0\0\0"s),
                         "a.st: the header should be 100000000 bytes long, but only 0 bytes follow; the file is "
                         "truncated"));
  EXPECT_TRUE(
      fails_with(parse("\1\xe1\xf5\5\0\0\0\0"s),
                 "a.st: not a .safetensors file: its header would be 100000001 bytes long, and 100000000 is the "
                 "limit"));
  EXPECT_TRUE(fails_with(parse("\xff\xff\xff\xff\xff\xff\xff\xff{}"),
                         "a.st: not a .safetensors file: its header would be 18446744073709551615 bytes long, and "
                         "100000000 is the limit"));
  const TempDir dir;
  EXPECT_TRUE(fails_with(read_safetensors(dir / "none"), (dir / "none").string() + ": No such file or directory"));
}

TEST(SafetensorsRead, WhatIsNoJson) {
  EXPECT_TRUE(refused("[]", "", "the header must begin with '{'"));
  EXPECT_TRUE(refused(" {}", "", "the header must begin with '{'"));
  EXPECT_TRUE(refused("\xEF\xBB\xBF{}", "", "the header must begin with '{'"));
  EXPECT_TRUE(refused("{", "",
                      "offset 9: the header is not valid JSON: syntax error while parsing object key - unexpected end "
                      "of input; expected string literal"));
  EXPECT_TRUE(refused("{}x", "",
                      "offset 10: the header is not valid JSON: syntax error while parsing value - invalid literal"));
  EXPECT_TRUE(refused("{}{}", "",
                      "offset 10: the header is not valid JSON: syntax error while parsing value - unexpected '{'; "
                      "expected end of input"));
  EXPECT_TRUE(refused("{/**/}", "",
                      "offset 9: the header is not valid JSON: syntax error while parsing object key - invalid "
                      "literal"));
  EXPECT_TRUE(refused("{}\0{}"s, "", "offset 10: the header is not valid JSON: zero byte"));
  EXPECT_TRUE(refused("{\"t\xff\":{}}", "",
                      "offset 11: the header is not valid JSON: syntax error while parsing object key - invalid "
                      "string: ill-formed UTF-8 byte"));
  EXPECT_TRUE(refused(R"({"\ud800":{}})", "",
                      "offset 16: the header is not valid JSON: syntax error while parsing object key - invalid "
                      "string: surrogate U+D800..U+DBFF must be followed by U+DC00..U+DFFF"));
  EXPECT_TRUE(refused(tensor("U8", "[1e999]", "[0,1]"), "1",
                      "offset 40: the header is not valid JSON: number overflow parsing '1e999'"));
}

TEST(SafetensorsRead, WhatDoesNotFitTheFormat) {
  const std::string u8 = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_TRUE(refused(R"({"__metadata__":1})", "", "__metadata__ must be an object, not a number"));
  EXPECT_TRUE(refused(R"({"__metadata__":null})", "", "__metadata__ must be an object, not null"));
  EXPECT_TRUE(
      refused(R"({"__metadata__":{"a":1}})", "", R"(__metadata__: the value of "a" must be a string, not a number)"));
  EXPECT_TRUE(
      refused(R"({"__metadata__":{"a":{}}})", "", R"(__metadata__: the value of "a" must be a string, not an object)"));
  EXPECT_TRUE(refused(R"({"__metadata__":{"a":"","b":"","\u0061":""}})", "", R"(__metadata__ has "a" twice)"));
  EXPECT_TRUE(refused(R"({"__metadata__":{},"__metadata__":{}})", "", "the header has __metadata__ twice"));
  EXPECT_TRUE(refused(R"({"t":)" + u8 + R"(,"\u0074":)" + u8 + "}", "1", R"(tensor "t" stands twice)"));

  EXPECT_TRUE(refused(R"({"t":[]})", "", R"(tensor "t" must be an object, not an array)"));
  EXPECT_TRUE(refused(R"({"t":"U8"})", "", R"(tensor "t" must be an object, not a string)"));
  EXPECT_TRUE(refused(R"({"t":{}})", "", R"(tensor "t" has no dtype)"));
  EXPECT_TRUE(refused(R"({"t":{"dtype":"U8","data_offsets":[0,1]}})", "1", R"(tensor "t" has no shape)"));
  EXPECT_TRUE(refused(R"({"t":{"dtype":"U8","shape":[1]}})", "1", R"(tensor "t" has no data_offsets)"));
  // What one tensor has does not count for the next.
  EXPECT_TRUE(refused(R"({"s":)" + u8 + R"(,"t":{}})", "1", R"(tensor "t" has no dtype)"));
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    const std::string again = ",\""s + key + (key == "dtype"s ? R"(":"U8"}})" : R"(":[]}})");
    EXPECT_TRUE(refused(R"({"t":)" + u8.substr(0, u8.size() - 1) + again, "1", "tensor \"t\" has "s + key + " twice"));
  }
  EXPECT_TRUE(refused(R"({"t":{"x":1}})", "",
                      R"(tensor "t" has the unknown key "x"; its keys are dtype, shape and data_offsets)"));
  EXPECT_TRUE(refused(R"({"t":{"dtype":8}})", "", R"(tensor "t" must have a string as its dtype, not a number)"));
  EXPECT_TRUE(refused(R"({"t":{"dtype":true}})", "", R"(tensor "t" must have a string as its dtype, not a boolean)"));

  const std::string shape = R"(tensor "t" must have an array of integers >= 0 as its shape, but there is )";
  EXPECT_TRUE(refused(tensor("U8", "1", "[0,1]"), "1", shape + "a number"));
  EXPECT_TRUE(refused(tensor("U8", "{}", "[0,1]"), "1", shape + "an object"));
  EXPECT_TRUE(refused(tensor("U8", "[-1]", "[0,1]"), "1", shape + "a negative number"));
  EXPECT_TRUE(refused(tensor("U8", "[1.0]", "[0,1]"), "1", shape + "a number that is no integer of 64 bits"));
  EXPECT_TRUE(
      refused(tensor("U8", "[18446744073709551616]", "[0,1]"), "1", shape + "a number that is no integer of 64 bits"));
  EXPECT_TRUE(refused(tensor("U8", "[\"1\"]", "[0,1]"), "1", shape + "a string"));
  EXPECT_TRUE(refused(tensor("U8", "[[1]]", "[0,1]"), "1", shape + "an array"));
  EXPECT_TRUE(refused(tensor("U8", "[null]", "[0,1]"), "1", shape + "null"));
  EXPECT_TRUE(refused(tensor("U8", std::string(1'000'000, '['), "[0,1]"), "1", shape + "an array"));

  const std::string offsets = R"(tensor "t" must have two integers >= 0 as its data_offsets, but there is )";
  EXPECT_TRUE(refused(tensor("U8", "[1]", "1"), "1", offsets + "a number"));
  EXPECT_TRUE(refused(tensor("U8", "[1]", "[]"), "1", offsets + "none"));
  EXPECT_TRUE(refused(tensor("U8", "[1]", "[0]"), "1", offsets + "one only"));
  EXPECT_TRUE(refused(tensor("U8", "[1]", "[0,1,2]"), "1", offsets + "a third number"));
  EXPECT_TRUE(refused(tensor("U8", "[1]", "[-1,0]"), "1", offsets + "a negative number"));

  // A name may hold anything, and be of any length; a message may not.
  EXPECT_TRUE(refused(R"({"\n\u0000":{}})", "", R"(tensor "\n\u0000" has no dtype)"));
  const std::string name(100'000, 'n');
  EXPECT_TRUE(refused("{\"" + name + "\":{}}", "", "tensor \"" + name.substr(0, 200) + "\"... has no dtype"));
}

TEST(SafetensorsRead, ShapesThatAreTooLarge) {
  for (const char* shape : {"[9223372036854775808]", "[4294967296, 4294967296]", "[0, 4294967296, 4294967296]"}) {
    for (const char* dtype : {"U8", "Q5"}) {
      EXPECT_TRUE(refused(tensor(dtype, shape, "[0,0]"), "", "tensor \"t\": shape "s + shape + " is too large"));
    }
  }
}

TEST(SafetensorsRead, TensorsMustCoverTheData) {
  const auto two = [](std::string_view a, std::string_view b) {
    const auto one = [](std::string_view offsets) {
      return R"({"dtype":"X","shape":[],"data_offsets":)" + std::string(offsets) + "}";
    };
    return R"({"a":)" + one(a) + R"(,"b":)" + one(b) + "}";
  };
  EXPECT_TRUE(succeeds(parse(file_with(two("[0,4]", "[4,6]"), "123456"))));
  EXPECT_TRUE(succeeds(parse(file_with(two("[2,6]", "[0,2]"), "123456"))));
  EXPECT_TRUE(refused(two("[4,0]", "[4,6]"), "123456", R"(tensor "a": data_offsets [4, 0] run backwards)"));
  EXPECT_TRUE(refused(two("[0,4]", "[4,7]"), "123456",
                      R"(tensor "b": data_offsets [4, 7] reach beyond the 6 bytes of data; the file is truncated, or )"
                      "its header wrong"));
  EXPECT_TRUE(refused(two("[0,18446744073709551615]", "[4,6]"), "123456",
                      R"(tensor "a": data_offsets [0, 18446744073709551615] reach beyond the 6 bytes of data; the )"
                      "file is truncated, or its header wrong"));
  EXPECT_TRUE(refused(two("[0,4]", "[3,6]"), "123456", R"(tensors "a" at [0, 4] and "b" at [3, 6] overlap)"));
  EXPECT_TRUE(refused(two("[0,6]", "[0,6]"), "123456", R"(tensors "a" at [0, 6] and "b" at [0, 6] overlap)"));
  EXPECT_TRUE(refused(two("[0,6]", "[2,2]"), "123456", R"(tensors "a" at [0, 6] and "b" at [2, 2] overlap)"));
  EXPECT_TRUE(refused(two("[1,4]", "[4,6]"), "123456",
                      R"(tensor "a" begins at 1, but what is before it ends at 0; no byte may lie between tensors)"));
  EXPECT_TRUE(refused(two("[0,4]", "[5,6]"), "123456",
                      R"(tensor "b" begins at 5, but what is before it ends at 4; no byte may lie between tensors)"));
  EXPECT_TRUE(refused(two("[0,4]", "[4,5]"), "123456", "the tensors end at 5, but the data at 6; nothing may follow"));
  EXPECT_TRUE(refused("{}", "1", "the tensors end at 0, but the data at 1; nothing may follow"));
}

TEST(SafetensorsRead, TruncatedAtEveryByte) {
  for (std::size_t size = 0; size < kFile.size(); ++size) {
    EXPECT_FALSE(parse(kFile.substr(0, size))) << size;
    // The same with a header that says it is as long as what is left of it.
    if (size > 8 && size <= 8 + kHeader.size()) {
      const auto whole = parse(file_with(kFile.substr(8, size - 8), kData));
      EXPECT_EQ(static_cast<bool>(whole), kFile.find_last_not_of(' ', 8 + kHeader.size() - 1) < size) << size;
    }
  }
}

TEST(SafetensorsWrite, TheReferenceLayout) {
  const TempDir dir;
  const auto w = to_bytes("ccdd");
  const auto b = to_bytes("AAAABBBB");
  const SafetensorsSource sources[] = {{"w", "BF16", {2, 1}, w}, {"b", "F32", {2}, b}};
  ASSERT_TRUE(succeeds(write_safetensors(dir / "a", {{"format", "pt"}, {"by", "mine"}}, sources)));
  EXPECT_EQ(read_text(dir / "a"), kFile);

  ASSERT_TRUE(succeeds(write_safetensors(dir / "empty", {}, {})));
  EXPECT_EQ(read_text(dir / "empty"), file_with("{}      "));
  // Names are escaped as JSON wants it, and UTF-8 is left alone.
  const SafetensorsSource odd[] = {{"\"\\\n\x01\xC3\xA9\x7f", "U8", {}, std::span(w).first(1)}};
  ASSERT_TRUE(succeeds(write_safetensors(dir / "odd", {}, odd)));
  EXPECT_EQ(read_text(dir / "odd").substr(8, 23), "{\"\\\"\\\\\\n\\u0001\xC3\xA9\x7f\":{\"dt");
}

TEST(SafetensorsWrite, EveryTensorIsAligned) {
  std::vector<SafetensorsTensor> tensors;
  for (const char* dtype : {"U8", "Q5", "F4", "F64", "BF16", "F32", "F6_E2M3", "I64", "U16", "C64"}) {
    const std::uint64_t size = safetensors_bits(dtype).value_or(8) * 8 / 8;
    tensors.push_back({dtype, dtype, {8}, 100, 100 + size});
  }
  const auto plan = plan_safetensors("a.st", {}, tensors);
  ASSERT_TRUE(succeeds(plan));
  EXPECT_EQ(plan->header.size() % 8, 0U);
  // Widest first, and otherwise as given.
  EXPECT_EQ(plan->order, (std::vector<std::size_t>{3, 7, 9, 5, 4, 8, 0, 1, 2, 6}));
  std::string file = plan->header;
  for (const std::size_t i : plan->order) file.append(tensors[i].size(), 'x');
  const auto read = parse(file);
  ASSERT_TRUE(succeeds(read));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(read->tensors()[i].name, tensors[i].name) << "the header has the order of the caller";
    const unsigned bytes = safetensors_bits(tensors[i].dtype).value_or(8) / 8;
    if (bytes > 1) {
      EXPECT_EQ(read->tensors()[i].begin % bytes, 0U) << tensors[i].dtype;
    }
  }
}

TEST(SafetensorsWrite, ReportsAFullDevice) {
  const Unprivileged nobody;
  EXPECT_TRUE(fails_with(write_safetensors("/dev/full", {}, {}), "/dev/full: No space left on device"));
}

TEST(SafetensorsWrite, RefusesWhatCannotBeRead) {
  const TempDir dir;
  const std::string path = dir / "a.st";
  const auto data = to_bytes("1234");
  const auto byte = std::span(data).first(1);
  using Sources = std::vector<SafetensorsSource>;
  const auto refuses = [&](const SafetensorsMetadata& metadata, const Sources& sources, const std::string& message) {
    return fails_with(write_safetensors(path, metadata, sources), path + ": " + message);
  };
  EXPECT_TRUE(refuses({}, {{"t", "F32", {2}, data}}, R"(tensor "t": shape [2] of F32 takes 8 bytes, but there are 4)"));
  EXPECT_TRUE(refuses({}, {{"t", "F4", {7}, data}},
                      R"(tensor "t": shape [7] of F4 takes 28 bits, which is no whole number of bytes)"));
  EXPECT_TRUE(
      refuses({}, {{"t", "U8", {1ULL << 63}, data}}, R"(tensor "t": shape [9223372036854775808] is too large)"));
  EXPECT_TRUE(refuses({}, {{"t", "U8", {}, byte}, {"t", "U8", {}, byte}}, R"(tensor "t" is given twice)"));
  EXPECT_TRUE(refuses({}, {{"__metadata__", "U8", {}, byte}}, "no tensor may have the name __metadata__"));
  EXPECT_TRUE(refuses({}, {{"\xff", "U8", {}, byte}}, "tensor \"\xEF\xBF\xBD\": its name or dtype is not UTF-8"));
  EXPECT_TRUE(refuses({}, {{"t", "\xff", {}, byte}}, R"(tensor "t": its name or dtype is not UTF-8)"));
  EXPECT_TRUE(refuses({{"k", "\xff"}}, {}, R"(metadata "k": the text is not UTF-8)"));
  EXPECT_TRUE(refuses({{"\xff", "v"}}, {}, "metadata \"\xEF\xBF\xBD\": the text is not UTF-8"));
  EXPECT_TRUE(refuses({{"k", ""}, {"k", ""}}, {}, R"(metadata "k" is given twice)"));
  EXPECT_TRUE(refuses({{"k", std::string(100'000'000, 'x')}}, {},
                      "the header takes 100000032 bytes, and 100000000 is the limit; write fewer tensors, or less "
                      "metadata"));
  EXPECT_TRUE(dir.names().empty());

  const auto refuses_plan = [](const std::vector<SafetensorsTensor>& tensors, const std::string& message) {
    return fails_with(plan_safetensors("a.st", {}, tensors), "a.st: " + message);
  };
  EXPECT_TRUE(refuses_plan({{"t", "U8", {}, 1, 0}}, R"(tensor "t": it ends before it begins)"));
  EXPECT_TRUE(refuses_plan({{"s", "X", {}, 0, 1ULL << 63}, {"t", "X", {}, 0, 1ULL << 63}},
                           R"(tensor "t": more than 2^64 bytes in all)"));
}

rc::Gen<std::string> utf8_text() {
  return rc::gen::map(
      rc::gen::container<std::vector<std::string>>(rc::gen::oneOf(
          rc::gen::map(rc::gen::inRange(0, 128), [](int c) { return std::string(1, static_cast<char>(c)); }),
          rc::gen::elementOf(std::vector<std::string>{"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}))),
      [](const std::vector<std::string>& parts) {
        std::string text;
        for (const std::string& part : parts) text += part;
        return text;
      });
}

RC_GTEST_PROP(Safetensors, AreReadAsTheyWereWritten, ()) {
  static const TempDir dir;
  const auto names = *rc::gen::resize(8, rc::gen::unique<std::vector<std::string>>(utf8_text()));
  const auto keys = *rc::gen::resize(4, rc::gen::unique<std::vector<std::string>>(utf8_text()));
  SafetensorsMetadata metadata;
  for (const std::string& key : keys) metadata.emplace_back(key, *utf8_text());
  std::vector<SafetensorsSource> sources;
  std::vector<std::string> data;
  for (const std::string& name : names) {
    const std::string dtype =
        *rc::gen::elementOf(std::vector<std::string>{"F4", "U8", "BF16", "F32", "I64", "F6_E2M3"});
    Shape shape = *rc::gen::resize(3, rc::gen::container<Shape>(rc::gen::inRange<std::uint64_t>(0, 5)));
    shape.push_back(8);  // a whole number of bytes in any type
    std::size_t size = *safetensors_bits(dtype);
    for (const auto dim : shape) size *= dim;
    data.push_back(*rc::gen::container<std::string>(size / 8, rc::gen::arbitrary<char>()));
    sources.push_back({name, dtype, shape, {}});
  }
  for (std::size_t i = 0; i < sources.size(); ++i) sources[i].bytes = std::as_bytes(std::span(data[i]));
  RC_ASSERT(static_cast<bool>(write_safetensors(dir / "a", metadata, sources)));

  const auto file = read_safetensors(dir / "a");
  RC_ASSERT(static_cast<bool>(file));
  RC_ASSERT(file->metadata() == metadata);
  RC_ASSERT(file->tensors().size() == sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const SafetensorsTensor* found = file->find(names[i]);
    RC_ASSERT(found == &file->tensors()[i]);
    RC_ASSERT(found->dtype == sources[i].dtype);
    RC_ASSERT(found->shape == sources[i].shape);
    RC_ASSERT(to_text(bytes_of(*file, *found)) == data[i]);
  }
}

/// A damaged file is either refused, or its tensors lie in the file. (The sanitizers see the rest.)
testing::AssertionResult in_bounds_or_refused(const std::string& text) {
  const auto file = parse(text);
  if (!file) {
    if (file.error().message.rfind("a.st: ", 0) == 0) return testing::AssertionSuccess();
    return testing::AssertionFailure() << file.error().message;
  }
  std::size_t size = 0;
  for (const SafetensorsTensor& tensor : file->tensors()) size += to_text(bytes_of(*file, tensor)).size();
  if (size < text.size()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << size << " bytes of tensors";
}

TEST(Safetensors, AFileWithAnyByteChanged) {
  for (std::size_t at = 0; at < kFile.size(); ++at) {
    std::string file = kFile;
    for (int byte = 0; byte < 256; ++byte) {
      file[at] = static_cast<char>(byte);
      ASSERT_TRUE(in_bounds_or_refused(file)) << "byte " << at << " is " << byte;
    }
  }
}

RC_GTEST_PROP(Safetensors, AFileWithRandomMutations, ()) {
  std::string file = kFile;
  const int mutations = *rc::gen::inRange(2, 10);
  for (int i = 0; i < mutations; ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, file.size());
    const char byte = *rc::gen::oneOf(rc::gen::arbitrary<char>(), rc::gen::elementOf("\"\\{}[],:-.0123456789e \n"s));
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
