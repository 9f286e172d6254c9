#include "bitcube/io/packed.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include <rapidcheck/gtest.h>  // needs gtest before it

#include "io/temp_dir.hpp"
#include "support/tensor_bytes.hpp"

namespace bitcube {
namespace {

using namespace test;
using Json = nlohmann::ordered_json;
using Shape = std::vector<std::uint64_t>;
using Bytes = std::vector<std::byte>;

QuantizedTensor make(std::string_view format, const Shape& shape, std::size_t axis, bool tensor_scale = false) {
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : shape) elements *= extent;
  std::mt19937 rng(static_cast<unsigned>(elements));
  std::vector<std::byte> bytes(2 * elements);
  for (std::size_t i = 0; i < elements; ++i)
    store_word(bytes.data() + 2 * i, 2, 0x3C00 + rng() % 0x800 + (rng() % 2 << 15));
  auto q = quantize(bytes, bf16, shape, axis, {.format = find_block_format(format), .tensor_scale = tensor_scale});
  EXPECT_TRUE(succeeds(q));
  return std::move(*q);
}

void expect_same(const QuantizedTensor& a, const QuantizedTensor& b) {
  EXPECT_EQ(a.format, b.format);
  EXPECT_EQ(a.profile, b.profile);
  EXPECT_EQ(a.scale_rule, b.scale_rule);
  EXPECT_EQ(a.rounding, b.rounding);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(a.axis, b.axis);
  EXPECT_EQ(a.codes, b.codes);
  EXPECT_EQ(a.scales, b.scales);
  EXPECT_EQ(a.tensor_scale, b.tensor_scale);
}

TEST(Packed, EveryFormatComesBack) {
  const TempDir dir;
  for (const BlockFormat& format : block_formats) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      for (const bool tensor_scale : {false, true}) {
        if (tensor_scale && !format.is_nvfp4()) continue;
        QuantizedTensor t = make(format.name, {3, 67, 5}, axis, tensor_scale);
        t.source = &fp32;
        if (format.is_hif4()) {
          t.profile = find_hif4_profile("bench");
          t.rounding = t.profile->lane_rounding;
        }
        if (format.is_mx()) t.scale_rule = find_scale_rule("even");
        if (!format.is_hif4()) t.rounding = Rounding::rto;
        ASSERT_TRUE(succeeds(save_packed(dir / "t.safetensors", "layer.0/weight", t)));
        const auto back = load_packed(dir / "t.safetensors");
        ASSERT_TRUE(succeeds(back));
        expect_same(*back, t);
      }
    }
  }
}

TEST(Packed, WhatIsInTheFile) {
  const TempDir dir;
  const QuantizedTensor hif4_tensor = make("hif4", {2, 70, 3}, 1);
  const QuantizedTensor fp8 = make("mxfp8-e5m2", {33}, 0);
  const QuantizedTensor nv = make("nvfp4", {16, 2}, 0, true);
  const std::vector<PackedTensor> tensors{{"w", &hif4_tensor}, {"v", &fp8}, {"n", &nv}};
  ASSERT_TRUE(succeeds(save_packed(dir / "t.safetensors", tensors)));
  const auto file = read_safetensors(dir / "t.safetensors");
  ASSERT_TRUE(succeeds(file));

  const auto expect_part = [&](const char* name, const char* dtype, const Shape& shape) {
    const SafetensorsTensor* part = file->find(name);
    ASSERT_NE(part, nullptr) << name;
    EXPECT_EQ(part->dtype, dtype);
    EXPECT_EQ(part->shape, shape);
  };
  expect_part("w.codes", "U8", {2, 3, 35});
  expect_part("w.scales", "U32", {2, 3, 2});
  expect_part("v.codes", "F8_E5M2", {33});
  expect_part("v.scales", "F8_E8M0", {2});
  expect_part("n.codes", "U8", {2, 8});
  expect_part("n.scales", "F8_E4M3", {2, 1});
  EXPECT_EQ(file->tensors().size(), 6U);

  ASSERT_EQ(file->metadata().size(), 1U);
  EXPECT_EQ(file->metadata()[0].first, "bitcube");
  EXPECT_EQ(file->metadata()[0].second,
            R"({"version":1,"tensors":{)"
            R"("w":{"format":"hif4","element":"HiF4X2","group":64,"shape":[2,70,3],"axis":1,"profile":"pto",)"
            R"("source":"BF16","codes":"w.codes","scales":"w.scales"},)"
            R"("v":{"format":"mxfp8-e5m2","element":"E5M2","group":32,"shape":[33],"axis":0,"scale_rule":"floor",)"
            R"("rounding":"RNE","source":"BF16","codes":"v.codes","scales":"v.scales"},)"
            R"("n":{"format":"nvfp4","element":"E2M1X2","group":16,"shape":[16,2],"axis":0,"rounding":"RNE",)" +
                fmt::format(R"("tensor_scale":"{:08X}",)", *nv.tensor_scale) +
                R"("source":"BF16","codes":"n.codes","scales":"n.scales"}}})");

  EXPECT_EQ(*packed_names(*file, "t"), (std::vector<std::string>{"w", "v", "n"}));
  expect_same(*load_packed(*file, "t", "v"), fp8);
  EXPECT_TRUE(fails_with(load_packed(*file, "t", ""), R"(t: name one of its quantised tensors: "w", "v", "n")"));
  EXPECT_TRUE(fails_with(load_packed(*file, "t", "x"), R"(t: no quantised tensor "x"; it has "w", "v", "n")"));
}

TEST(Packed, EmptyTensors) {
  const TempDir dir;
  for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{0, 65}}) {
    const QuantizedTensor t = make("hif4", shape, shape.size() - 1);
    ASSERT_TRUE(succeeds(save_packed(dir / "t.safetensors", "t", t)));
    const auto back = load_packed(dir / "t.safetensors", "t");
    ASSERT_TRUE(succeeds(back));
    expect_same(*back, t);
  }
}

TEST(Packed, RefusesToWriteWhatCannotBeRead) {
  const TempDir dir;
  QuantizedTensor t = make("hif4", {2, 70}, 1);
  EXPECT_TRUE(fails_with(save_packed(dir / "t", "", t),
                         fmt::format("{}: tensor \"\": a packed tensor needs a name", (dir / "t").string())));
  EXPECT_TRUE(fails_with(save_packed(dir / "t", "a\xff", t),
                         fmt::format("{}: tensor \"a\uFFFD\": its name is not UTF-8", (dir / "t").string())));
  const std::vector<PackedTensor> twice{{"w", &t}, {"w", &t}};
  EXPECT_TRUE(
      fails_with(save_packed(dir / "t", twice), fmt::format("{}: tensor \"w\": is given twice", (dir / "t").string())));
  t.codes.pop_back();
  EXPECT_FALSE(save_packed(dir / "t", "w", t));
  EXPECT_TRUE(dir.names().empty());
}

/// A file of one tensor "w" whose description, parts or other metadata a test may damage before it is read.
class Damaged {
 public:
  explicit Damaged(const QuantizedTensor& tensor) {
    const TempDir dir;
    EXPECT_TRUE(succeeds(save_packed(dir / "w", "w", tensor)));
    const auto file = read_safetensors(dir / "w");
    description = Json::parse(file->metadata()[0].second);
    for (const SafetensorsTensor& part : file->tensors()) {
      const auto bytes = bytes_of(*file, part);
      parts.push_back({part.name, part.dtype, part.shape, {}});
      data.emplace_back(bytes.begin(), bytes.end());
    }
  }

  Json& entry() { return description["tensors"]["w"]; }

  /// The message with which the file is refused.
  std::string error() const { return error(SafetensorsMetadata{{"bitcube", description.dump()}}); }
  std::string error(const SafetensorsMetadata& metadata) const {
    const TempDir dir;
    std::vector<SafetensorsSource> sources = parts;
    for (std::size_t i = 0; i < sources.size(); ++i) sources[i].bytes = data[i];
    EXPECT_TRUE(succeeds(write_safetensors(dir / "w", metadata, sources)));
    const auto file = read_safetensors(dir / "w");
    const auto loaded = load_packed(*file, "w.st", "");
    return loaded ? "" : loaded.error().message;
  }

  Json description;
  std::vector<SafetensorsSource> parts;  // codes, scales
  std::vector<std::vector<std::byte>> data;
};

TEST(Packed, RefusesDamagedDescriptions) {
  const QuantizedTensor t = make("hif4", {2, 69}, 1);
  EXPECT_EQ(Damaged(t).error(), "");
  const auto error_of = [&](auto change) {
    Damaged file(t);
    change(file);
    return file.error();
  };
  EXPECT_EQ(Damaged(t).error(SafetensorsMetadata{}),
            "w.st: no quantised tensors: the metadata has no key \"bitcube\"; is this a file of plain tensors?");
  EXPECT_EQ(Damaged(t).error(SafetensorsMetadata{{"bitcube", "{"}}),
            "w.st: metadata \"bitcube\": must be a JSON object");
  EXPECT_EQ(error_of([](Damaged& f) { f.description["version"] = 2; }),
            "w.st: metadata \"bitcube\": version 2, but this program reads version 1");
  EXPECT_EQ(error_of([](Damaged& f) { f.description.erase("version"); }),
            "w.st: metadata \"bitcube\": version is missing, but this program reads version 1");
  EXPECT_EQ(error_of([](Damaged& f) { f.description["tensors"] = 1; }),
            "w.st: metadata \"bitcube\": \"tensors\" must be a JSON object");
  EXPECT_EQ(error_of([](Damaged& f) { f.description["tensors"] = Json::object(); }),
            "w.st: it describes no quantised tensor ");
  EXPECT_EQ(error_of([](Damaged& f) { f.entry() = "hif4"; }),
            "w.st: tensor \"w\": its description must be a JSON object");

  const auto entry_error = [&](const char* key, const Json& value) {
    const std::string message = error_of([&](Damaged& f) {
      if (value.is_null()) {
        f.entry().erase(key);
      } else {
        f.entry()[key] = value;
      }
    });
    const std::string prefix = "w.st: tensor \"w\": ";
    EXPECT_EQ(message.substr(0, prefix.size()), prefix);
    return message.substr(std::min(message.size(), prefix.size()));
  };
  for (const char* key : {"format", "element", "group", "shape", "axis", "profile", "source", "codes", "scales"}) {
    EXPECT_EQ(entry_error(key, Json()), fmt::format("its description has no \"{}\"", key));
  }
  EXPECT_EQ(entry_error("format", "hif5"),
            "\"format\" is \"hif5\", which is not one of hif4, mxfp8-e4m3, mxfp8-e5m2, mxfp6-e3m2, mxfp6-e2m3, mxfp4, "
            "mxfp4-e1m2, nvfp4");
  EXPECT_EQ(entry_error("format", 4), "\"format\" must be a string");
  EXPECT_EQ(entry_error("element", "E2M1"), "\"element\" is \"E2M1\", but hif4 has HiF4X2");
  EXPECT_EQ(entry_error("group", 32), "\"group\" is 32, but hif4 has 64");
  EXPECT_EQ(entry_error("group", -64), "\"group\" must be an integer that is not negative");
  EXPECT_EQ(entry_error("shape", Json::array({2, -69})),
            "\"shape\" must be an array of integers that are not negative");
  EXPECT_EQ(entry_error("shape", Json::array()), "axis 1 is outside of shape []");
  EXPECT_EQ(entry_error("axis", 2), "axis 2 is outside of shape [2, 69]");
  EXPECT_EQ(entry_error("axis", 0), "tensor \"w.codes\" is U8 of shape [2, 35], but must be U8 of shape [69, 1]");
  EXPECT_EQ(entry_error("shape", Json::array({2, 71})),
            "tensor \"w.codes\" is U8 of shape [2, 35], but must be U8 of shape [2, 36]");
  EXPECT_EQ(entry_error("shape", Json::array({2, 133})),
            "tensor \"w.codes\" is U8 of shape [2, 35], but must be U8 of shape [2, 67]");
  EXPECT_EQ(entry_error("profile", "none"),
            "\"profile\" is \"none\", which is not one of pto, pto-a6, paper, bench, literal");
  EXPECT_EQ(entry_error("scale_rule", "floor"), "hif4 takes no \"scale_rule\"");
  EXPECT_EQ(entry_error("rounding", "RNE"), "hif4 takes no \"rounding\"");
  EXPECT_EQ(entry_error("tensor_scale", "3F800000"), "hif4 takes no \"tensor_scale\"");
  EXPECT_EQ(entry_error("source", "S8"), "\"source\" is S8, from which nothing is quantised");
  EXPECT_EQ(entry_error("codes", "x.codes"), "the file has no tensor \"x.codes\"");
  EXPECT_EQ(entry_error("scales", "w.codes"),
            "tensor \"w.codes\" is U8 of shape [2, 35], but must be U32 of shape [2, 2]");
  const std::uint64_t huge = std::uint64_t{1} << 63;
  EXPECT_NE(entry_error("shape", Json::array({huge, huge, 69})), "");
}

TEST(Packed, RefusesDamagedParts) {
  const QuantizedTensor t = make("hif4", {2, 69}, 1);
  Damaged file(t);
  file.data[0][69] = std::byte{0x17};
  EXPECT_EQ(file.error(),
            "w.st: tensor \"w\": tensor \"w.codes\": byte 69 ends a line of 69 lanes, so its high nibble must be 0");
  Damaged typed(t);
  typed.parts[0].dtype = "I8";
  EXPECT_EQ(typed.error(),
            "w.st: tensor \"w\": tensor \"w.codes\" is I8 of shape [2, 35], but must be U8 of shape [2, 35]");
  const QuantizedTensor six_bits = make("mxfp6-e2m3", {2, 5}, 1);
  Damaged wide(six_bits);
  wide.data[0][3] = std::byte{0x40};
  EXPECT_EQ(wide.error(), "w.st: tensor \"w\": tensor \"w.codes\": byte 3 is 40, but codes of E2M3 have 6 bits");
}

TEST(Packed, FieldsOfOtherFormats) {
  const QuantizedTensor mx = make("mxfp4", {40}, 0);
  Damaged no_rounding(mx);
  no_rounding.entry().erase("rounding");
  EXPECT_EQ(no_rounding.error(), "");
  Damaged rule(mx);
  rule.entry()["scale_rule"] = "round";
  EXPECT_EQ(rule.error(),
            "w.st: tensor \"w\": \"scale_rule\" is \"round\", which is not one of floor, ceil, rceil, even");
  const QuantizedTensor nv = make("nvfp4", {40}, 0, true);
  Damaged scale(nv);
  for (const char* word : {"3F80000", "0x3F8000", "3F80000g", "-3F80000", "13F800000"}) {
    scale.entry()["tensor_scale"] = word;
    EXPECT_EQ(scale.error(),
              fmt::format("w.st: tensor \"w\": \"tensor_scale\" is \"{}\", but must be an FP32 word of 8 "
                          "hexadecimal digits",
                          word));
  }
  scale.entry()["tensor_scale"] = "7fc00000";
  EXPECT_EQ(scale.error(),
            "w.st: tensor \"w\": tensor scale 7FC00000: must be a finite FP32 word that is not negative");
}

RC_GTEST_PROP(Packed, DamagedFilesNeverCrash, ()) {
  // Any bytes of a file replaced: it loads, or is refused with a message.
  static const std::string good = [] {
    const TempDir dir;
    EXPECT_TRUE(succeeds(save_packed(dir / "w", "w", make("nvfp4", {3, 21}, 1, true))));
    return read_text(dir / "w");
  }();
  std::string text = good;
  const auto changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < changes; ++i) text[*rc::gen::inRange<std::size_t>(8, text.size())] = *rc::gen::arbitrary<char>();
  const auto file = parse_safetensors(InputFile::from_bytes(to_bytes(text)), "w");
  if (!file) return;
  const auto loaded = load_packed(*file, "w", "");
  RC_ASSERT((loaded ? static_cast<bool>(validate(*loaded)) : !loaded.error().message.empty()));
}

TEST(PackedReader, ReadsPartsOfWhatLoadPackedLoads) {
  const TempDir dir;
  for (const BlockFormat& format : block_formats) {
    const QuantizedTensor t = make(format.name, {3, 67, 5}, 1, format.is_nvfp4());
    ASSERT_TRUE(succeeds(save_packed(dir / "t", "w", t)));
    auto opened = PackedReader::open(dir / "t", "w");
    ASSERT_TRUE(succeeds(opened));
    const PackedReader reader(std::move(*opened));
    QuantizedTensor parts = reader.description();
    EXPECT_TRUE(parts.codes.empty());
    parts.codes.resize(t.codes.size());
    parts.scales.resize(t.scales.size());
    for (std::size_t i = 0; i < t.codes.size(); i += 7) {
      const std::size_t size = std::min<std::size_t>(7, t.codes.size() - i);
      ASSERT_TRUE(succeeds(reader.read_codes(i, std::span(parts.codes).subspan(i, size))));
    }
    ASSERT_TRUE(succeeds(reader.read_scales(3, std::span(parts.scales).subspan(3))));
    ASSERT_TRUE(succeeds(reader.read_scales(0, std::span(parts.scales).first(3))));
    expect_same(parts, t);
  }
}

// The codes are read in pieces of a megabyte; a fault in any of them is told as load_packed() tells it.
TEST(PackedReader, RefusesWhatLoadPackedRefuses) {
  const TempDir dir;
  for (const std::string_view format : {"hif4", "mxfp6-e2m3"}) {
    const QuantizedTensor t = make(format, {1700, 1333}, 1);
    const std::uint64_t line = t.format->code_bytes(1333);
    for (const std::uint64_t at : {line - 1, 1000 * line - 1, 1700 * line - 1}) {
      QuantizedTensor damaged = t;
      damaged.codes[at] = std::byte{0x5F};
      ASSERT_TRUE(succeeds(save_packed(dir / "t", "w", damaged)));
      const auto loaded = load_packed(dir / "t");
      ASSERT_FALSE(loaded);
      EXPECT_NE(loaded.error().message.find(fmt::format("byte {} ", at)), std::string::npos) << loaded.error().message;
      EXPECT_TRUE(fails_with(PackedReader::open(dir / "t"), loaded.error().message));
    }
    ASSERT_TRUE(succeeds(save_packed(dir / "t", "w", t)));
    EXPECT_TRUE(succeeds(PackedReader::open(dir / "t")));
  }
  EXPECT_FALSE(PackedReader::open(dir / "t", "v"));
  EXPECT_FALSE(PackedReader::open(dir / "none"));
}

TEST(Packed, LoadingReadsTheFileAndNotItsMapping) {
  const TempDir dir;
  const QuantizedTensor t = make("hif4", {64, 4096}, 1);
  ASSERT_TRUE(succeeds(save_packed(dir / "t", "w", t)));
  const auto file = read_safetensors(dir / "t");
  ASSERT_TRUE(succeeds(file));
  std::filesystem::resize_file(dir / "t", 50'000);
  const auto loaded = load_packed(*file, "t", "w");
  ASSERT_FALSE(loaded) << "its pages are no longer there";
  EXPECT_NE(loaded.error().message.find("byte 50000 is missing"), std::string::npos) << loaded.error().message;
}

TEST(Packed, PlanOfATensorWithoutBytes) {
  const TempDir dir;
  for (const BlockFormat& format : block_formats) {
    QuantizedTensor t = make(format.name, {3, 67, 5}, 2);
    ASSERT_TRUE(succeeds(save_packed(dir / "t", "w", t)));
    const std::string file = read_text(dir / "t");
    const Bytes codes = std::exchange(t.codes, {});
    const Bytes scales = std::exchange(t.scales, {});
    const auto plan = plan_packed("t", "w", t);
    ASSERT_TRUE(succeeds(plan));
    EXPECT_EQ(file.substr(0, plan->header.size()), plan->header);
    EXPECT_EQ(plan->file_size(), file.size());
    EXPECT_EQ(file.substr(plan->codes, plan->code_bytes), to_text(codes));
    EXPECT_EQ(file.substr(plan->scales, plan->scale_bytes), to_text(scales));
  }
  QuantizedTensor t = make("hif4", {3}, 0);
  EXPECT_TRUE(fails_with(plan_packed("t", "", t), "t: tensor \"\": a packed tensor needs a name"));
  t.axis = 1;
  EXPECT_FALSE(plan_packed("t", "w", t));
}

}  // namespace
}  // namespace bitcube
