// Files quantised and dequantised window by window are those of the functions that hold everything in memory.
#include "bitcube/stream/quantize.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <fstream>
#include <optional>
#include <thread>

#include "bitcube/quantize/convert_array.hpp"
#include "bitcube/stream/convert.hpp"
#include "bitcube/stream/inspect.hpp"
#include "bitcube/stream/parts.hpp"
#include "stream/files.hpp"

namespace bitcube {
namespace {

using namespace test;

const std::vector<Shape> kShapes{{200},      {1},         {3, 70, 5}, {130, 33}, {33, 130}, {2, 65, 66},
                                 {4, 3, 17}, {64, 2, 64}, {2, 0, 3},  {5, 1, 1}, {1, 129}};

DType codes_dtype(const Format& format) {
  switch (format.carrier_bits) {
    case 8:
      return DType::kU8;
    case 16:
      return DType::kU16;
    case 32:
      return DType::kU32;
    default:
      return DType::kU64;
  }
}

testing::AssertionResult same_report(const ErrorReport& a, const ErrorReport& b) {
  const auto same = [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  };
  if (a.lanes == b.lanes && a.non_finite == b.non_finite && a.non_zero == b.non_zero &&
      same(a.max_relative_error, b.max_relative_error) && same(a.mean_relative_error, b.mean_relative_error) &&
      same(a.max_absolute_error, b.max_absolute_error) && same(a.mean_squared_error, b.mean_squared_error) &&
      same(a.sqnr, b.sqnr)) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << fmt::format(
             "lanes {} {}, not finite {} {}, not zero {} {}, relative {} {}, {} {}, absolute {} {}, MSE {} {}, SQNR {} "
             "{}",
             a.lanes, b.lanes, a.non_finite, b.non_finite, a.non_zero, b.non_zero, a.max_relative_error,
             b.max_relative_error, a.mean_relative_error, b.mean_relative_error, a.max_absolute_error,
             b.max_absolute_error, a.mean_squared_error, b.mean_squared_error, a.sqnr, b.sqnr);
}

/// What the program wrote before it streamed.
struct Whole {
  std::string file;
  ErrorReport error;
  Flags rounding_flags = Flags::none;
  QuantizedTensor tensor;
};

Whole quantize_whole(const TempDir& dir, const stream::Source& source, const Bytes& words, std::size_t axis,
                     const QuantizeOptions& options) {
  Whole out;
  Bytes original = words;
  if (source.rounded != nullptr) {
    auto rounded = convert_array(words, *source.stored, *source.rounded);
    EXPECT_TRUE(succeeds(rounded));
    original = std::move(rounded->words);
    out.rounding_flags = rounded->flags;
  }
  auto tensor = quantize(original, source.format(), source.array->shape, axis, options);
  EXPECT_TRUE(succeeds(tensor));
  EXPECT_TRUE(succeeds(save_packed(dir / "whole", "w", *tensor)));
  out.file = read_text(dir / "whole");
  const auto error = measure(original, *tensor);
  EXPECT_TRUE(succeeds(error));
  out.error = *error;
  out.tensor = std::move(*tensor);
  return out;
}

/// Quantises with this window and compares everything.
void expect_same(const TempDir& dir, const stream::Source& source, std::size_t axis, const QuantizeOptions& options,
                 const Whole& whole, std::size_t window) {
  auto file = OutputFile::create(dir / "parts");
  ASSERT_TRUE(succeeds(file));
  const auto result = stream::quantize(source, axis, options, "w", *file, nullptr, window);
  ASSERT_TRUE(succeeds(result));
  ASSERT_TRUE(succeeds(file->commit()));
  EXPECT_TRUE(read_text(dir / "parts") == whole.file);
  EXPECT_TRUE(same_report(result->error, whole.error));
  EXPECT_EQ(result->rounding_flags, whole.rounding_flags);
  EXPECT_EQ(result->code_bytes, whole.tensor.codes.size());
  EXPECT_EQ(result->scale_bytes, whole.tensor.scales.size());
  EXPECT_EQ(result->description.tensor_scale, whole.tensor.tensor_scale);
}

TEST(StreamQuantize, EveryFormatShapeAxisAndWindow) {
  const TempDir dir(memory_directory());
  for (const Shape& shape : kShapes) {
    const Bytes words = random_words(fp32, count_of(shape));
    const NpyArray array = array_in(dir / "x.npy", DType::kF32, shape, words);
    for (const BlockFormat& format : block_formats) {
      for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        const stream::Source source{&array, &fp32, nullptr};
        const QuantizeOptions options{.format = &format};
        const Whole whole = quantize_whole(dir, source, words, axis, options);
        for (const std::size_t window : kWindows) {
          SCOPED_TRACE(fmt::format("{} [{}] axis {} window {}", format.name, fmt::join(shape, ", "), axis, window));
          expect_same(dir, source, axis, options, whole, window);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(StreamQuantize, EverySource) {
  const TempDir dir(memory_directory());
  const Shape shape{3, 70, 5};
  for (const Format& stored : formats) {
    if (!is_quantize_source(stored)) continue;
    const Bytes words = random_words(stored, count_of(shape));
    const NpyArray array = array_in(dir / "x.npy", codes_dtype(stored), shape, words);
    for (const Format* rounded : {static_cast<const Format*>(nullptr), &bf16, &fp64, &e4m3}) {
      if (rounded != nullptr && !conversion_legal(stored, *rounded)) continue;
      for (const std::string_view name : {"hif4", "mxfp8-e4m3", "nvfp4"}) {
        const stream::Source source{&array, &stored, rounded};
        const QuantizeOptions options{.format = find_block_format(name)};
        const Whole whole = quantize_whole(dir, source, words, 1, options);
        for (const std::size_t window : {std::size_t{1}, std::size_t{1500}, stream::kWindow}) {
          SCOPED_TRACE(
              fmt::format("{} {} {} window {}", stored.name, rounded != nullptr ? rounded->name : "", name, window));
          expect_same(dir, source, 1, options, whole, window);
        }
      }
    }
  }
}

// Enough groups for many blocks of sums, cut everywhere; their order shows in the last bits.
TEST(StreamQuantize, TheErrorReportIsTheSameToTheLastBit) {
  const TempDir dir(memory_directory());
  const Shape shape{5, 1700, 6};
  Operands random(7);
  Bytes words;
  for (std::uint64_t i = 0; i < count_of(shape); ++i) {
    const auto x = static_cast<float>(static_cast<double>(random.below(2000001)) / 1e6 - 1);
    const auto bytes = std::bit_cast<std::array<std::byte, 4>>(x * (i % 11 == 0 ? 30.0F : 1.0F));
    words.insert(words.end(), bytes.begin(), bytes.end());
  }
  const NpyArray array = array_in(dir / "x.npy", DType::kF32, shape, words);
  for (const std::string_view name : {"hif4", "mxfp4", "nvfp4"}) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const stream::Source source{&array, &fp32, nullptr};
      const QuantizeOptions options{.format = find_block_format(name)};
      const Whole whole = quantize_whole(dir, source, words, axis, options);
      for (const std::size_t window : {std::size_t{300}, std::size_t{7000}, std::size_t{17000}, std::size_t{90000}}) {
        for (const unsigned threads : {1U, 2U}) {
          SCOPED_TRACE(fmt::format("{} axis {} window {}", name, axis, window));
          QuantizeOptions threaded = options;
          threaded.execution.threads = threads;
          expect_same(dir, source, axis, threaded, whole, window);
        }
      }
    }
  }
}

TEST(StreamQuantize, ProfilesRulesRoundingsAndTensorScale) {
  const TempDir dir(memory_directory());
  const Shape shape{4, 40, 3};
  const Bytes words = random_words(bf16, count_of(shape));
  const NpyArray array = array_in(dir / "x.npy", DType::kBF16, shape, words);
  std::vector<QuantizeOptions> choices;
  for (const Hif4Profile& profile : hif4_profiles) choices.push_back({.profile = &profile});
  for (const ScaleRule& rule : scale_rules) {
    choices.push_back({.format = find_block_format("mxfp6-e2m3"), .scale_rule = &rule, .rounding = Rounding::rtp});
  }
  choices.push_back({.format = find_block_format("nvfp4"), .tensor_scale = true});
  for (const QuantizeOptions& options : choices) {
    const stream::Source source{&array, &bf16, nullptr};
    const Whole whole = quantize_whole(dir, source, words, 1, options);
    for (const std::size_t window : kWindows) expect_same(dir, source, 1, options, whole, window);
  }
  // A tensor scale of rounded elements, in windows that each see a part of them.
  const stream::Source source{&array, &bf16, &fp16};
  const QuantizeOptions options{.format = find_block_format("nvfp4"), .tensor_scale = true};
  const Whole whole = quantize_whole(dir, source, words, 2, options);
  ASSERT_TRUE(whole.tensor.tensor_scale);
  for (const std::size_t window : kWindows) expect_same(dir, source, 2, options, whole, window);
}

TEST(StreamQuantize, GoldenFiles) {
  const TempDir dir(memory_directory());
  for (const Shape& shape : {Shape{3, 70, 5}, Shape{200}, Shape{66, 3}}) {
    const Bytes words = random_words(bf16, count_of(shape));
    const NpyArray array = array_in(dir / "x.npy", DType::kU16, shape, words);
    const stream::Source source{&array, &bf16, nullptr};
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      const Whole whole = quantize_whole(dir, source, words, axis, {});
      std::filesystem::create_directory(dir / "g");
      ASSERT_TRUE(succeeds(save_goldens(dir / "g", whole.tensor, words)));
      for (const std::size_t window : kWindows) {
        const TempDir parts(memory_directory());
        auto goldens = GoldenWriter::create(parts.path(), true);
        ASSERT_TRUE(succeeds(goldens));
        auto file = OutputFile::create(dir / "parts");
        ASSERT_TRUE(succeeds(file));
        ASSERT_TRUE(succeeds(stream::quantize(source, axis, {}, "w", *file, &*goldens, window)));
        auto files = goldens->take();
        ASSERT_TRUE(succeeds(files));
        for (OutputFile& golden : *files) ASSERT_TRUE(succeeds(golden.commit()));
        for (const auto& path : golden_paths(dir / "g", true)) {
          EXPECT_TRUE(read_text(path) == read_text(parts / path.filename().string())) << path << " " << window;
        }
      }
    }
  }
}

// Which element is at fault is said of the whole tensor, whatever window it is in.
TEST(StreamQuantize, AMaximumThatIsNoBf16) {
  const TempDir dir(memory_directory());
  const Shape shape{2, 70, 3};
  Bytes words(count_of(shape) * 4);
  const std::uint64_t element = (1 * 70 + 66) * 3 + 2;
  store_word(words.data() + 4 * element, 4, 0x3F800001);
  const NpyArray array = array_in(dir / "x.npy", DType::kF32, shape, words);
  for (const std::size_t window : kWindows) {
    const TempDir parts(memory_directory());
    auto goldens = GoldenWriter::create(parts.path(), true);
    ASSERT_TRUE(succeeds(goldens));
    auto file = OutputFile::create(dir / "parts");
    ASSERT_TRUE(succeeds(file));
    const auto result = stream::quantize({&array, &fp32, nullptr}, 1, {}, "w", *file, &*goldens, window);
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find(fmt::format("element {} of the FP32 source, 3F800001", element)),
              std::string::npos)
        << result.error().message;
  }
}

TEST(StreamQuantize, IntoAPipe) {
  const TempDir dir(memory_directory());
  const Shape shape{30, 70};
  const Bytes words = random_words(fp32, count_of(shape));
  const NpyArray array = array_in(dir / "x.npy", DType::kF32, shape, words);
  const stream::Source source{&array, &fp32, nullptr};
  for (const std::string_view name : {"hif4", "mxfp4"}) {
    const QuantizeOptions options{.format = find_block_format(name)};
    const Whole whole = quantize_whole(dir, source, words, 0, options);
    Fifo fifo(dir / name);
    {
      auto file = OutputFile::create(fifo.path());
      ASSERT_TRUE(succeeds(file));
      EXPECT_TRUE(succeeds(stream::quantize(source, 0, options, "w", *file, nullptr, 1000)));
      EXPECT_TRUE(succeeds(file->commit()));
    }
    EXPECT_TRUE(fifo.text() == whole.file);
  }
}

TEST(StreamQuantize, Refuses) {
  const TempDir dir(memory_directory());
  const NpyArray array = array_in(dir / "x.npy", DType::kF32, {2, 3}, Bytes(24));
  const auto refusal = [&](const stream::Source& source, std::size_t axis, const QuantizeOptions& options) {
    auto file = OutputFile::create(dir / "y");
    EXPECT_TRUE(succeeds(file));
    const auto result = stream::quantize(source, axis, options, "w", *file);
    EXPECT_EQ(file->size(), 0U);
    return result ? std::string() : result.error().message;
  };
  EXPECT_NE(refusal({&array, &bf16, nullptr}, 0, {}).find("float32 elements have 32 bits"), std::string::npos);
  EXPECT_NE(refusal({&array, &format_of(DataType::s32), nullptr}, 0, {}).find("cannot be quantised"),
            std::string::npos);
  EXPECT_NE(refusal({&array, &fp32, nullptr}, 2, {}).find("axis 2"), std::string::npos);
  EXPECT_NE(refusal({&array, &fp32, nullptr}, 0, {.tensor_scale = true}).find("only nvfp4"), std::string::npos);
  EXPECT_NE(refusal({&array, &fp32, nullptr}, 0, {.given_scale = 0x3F800000}).find("only nvfp4"), std::string::npos);
  EXPECT_EQ(dir.names(), std::set<std::string>{"x.npy"});
}

TEST(StreamQuantize, ProgressReachesItsEnd) {
  const TempDir dir(memory_directory());
  const Shape shape{100, 70};
  const NpyArray array = array_in(dir / "x.npy", DType::kF32, shape, random_words(fp32, count_of(shape)));
  std::atomic<std::size_t> most{0};
  std::atomic<std::size_t> whole{0};
  QuantizeOptions options{.format = find_block_format("nvfp4"), .tensor_scale = true};
  options.execution.progress = [&](std::size_t done, std::size_t total) {
    EXPECT_LE(done, total);
    std::size_t before = most.load();
    while (before < done && !most.compare_exchange_weak(before, done)) {
    }
    whole = total;
  };
  auto file = OutputFile::create(dir / "y");
  ASSERT_TRUE(succeeds(file));
  ASSERT_TRUE(succeeds(stream::quantize({&array, &fp32, nullptr}, 0, options, "w", *file, nullptr, 2000)));
  EXPECT_EQ(most, whole);
  EXPECT_EQ(whole, 2 * count_of(shape));
}

TEST(StreamDequantize, EveryFormatShapeAxisAndWindow) {
  const TempDir dir(memory_directory());
  for (const Shape& shape : kShapes) {
    const Bytes words = random_words(fp32, count_of(shape));
    for (const BlockFormat& format : block_formats) {
      for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        const auto tensor = quantize(words, fp32, shape, axis, {.format = &format, .tensor_scale = format.is_nvfp4()});
        ASSERT_TRUE(succeeds(tensor));
        ASSERT_TRUE(succeeds(save_packed(dir / "w", "w", *tensor)));
        const auto reader = PackedReader::open(dir / "w");
        ASSERT_TRUE(succeeds(reader));
        for (const Format* to : {&fp16, &fp64}) {
          const auto whole = dequantize(*tensor, *to);
          ASSERT_TRUE(succeeds(whole));
          const std::string expected = npy_header(array_dtype(*to), shape) + to_text(whole->bytes);
          for (const std::size_t window : kWindows) {
            SCOPED_TRACE(fmt::format("{} [{}] axis {} window {}", format.name, fmt::join(shape, ", "), axis, window));
            auto file = OutputFile::create(dir / "x");
            ASSERT_TRUE(succeeds(file));
            const auto flags = stream::dequantize(*reader, *to, Rounding::rne, *file, {}, window);
            ASSERT_TRUE(succeeds(flags));
            EXPECT_EQ(*flags, whole->flags);
            ASSERT_TRUE(succeeds(file->commit()));
            ASSERT_TRUE(read_text(dir / "x") == expected);
          }
        }
      }
    }
  }
}

TEST(StreamDequantize, DestinationsRoundingsAndPipes) {
  const TempDir dir(memory_directory());
  const Shape shape{5, 67, 3};
  const auto tensor =
      quantize(random_words(fp32, count_of(shape)), fp32, shape, 1, {.format = find_block_format("nvfp4")});
  ASSERT_TRUE(succeeds(tensor));
  ASSERT_TRUE(succeeds(save_packed(dir / "w", "w", *tensor)));
  const auto reader = PackedReader::open(dir / "w");
  ASSERT_TRUE(succeeds(reader));
  for (const Format* to : {&fp64, &fp32, &fp16, &bf16}) {
    const auto whole = dequantize(*tensor, *to, Rounding::rtp);
    ASSERT_TRUE(succeeds(whole));
    // In order and, where the window is too small for that, through a temporary file.
    for (const std::size_t window : {std::size_t{1}, std::size_t{5000}}) {
      Fifo fifo(dir / fmt::format("{}.{}.bin", to->name, window));
      {
        auto file = OutputFile::create(fifo.path());
        ASSERT_TRUE(succeeds(file));
        EXPECT_TRUE(succeeds(stream::dequantize(*reader, *to, Rounding::rtp, *file, {}, window)));
        EXPECT_TRUE(succeeds(file->commit()));
      }
      EXPECT_TRUE(fifo.text() == to_text(whole->bytes)) << to->name << " " << window;
    }
  }
  auto file = OutputFile::create(dir / "y");
  ASSERT_TRUE(succeeds(file));
  EXPECT_TRUE(fails_with(stream::dequantize(*reader, e4m3, Rounding::rne, *file),
                         "destination E4M3: dequantise to FP32, BF16, FP16 or FP64"));
  EXPECT_EQ(file->size(), 0U);
}

// A file that is cut short while it is read: what is missing is an error, wherever it would have been.
TEST(StreamQuantize, AnInputThatIsCutShortIsAnError) {
  const TempDir dir(memory_directory());
  const Shape shape{64, 4096};
  const NpyArray array = array_in(dir / "x.npy", DType::kF32, shape, Bytes(count_of(shape) * 4));
  const auto tensor = quantize(Bytes(count_of(shape) * 4), fp32, shape, 1);
  ASSERT_TRUE(succeeds(tensor));
  ASSERT_TRUE(succeeds(save_packed(dir / "w", "w", *tensor)));
  const auto reader = PackedReader::open(dir / "w");
  ASSERT_TRUE(succeeds(reader));
  std::filesystem::resize_file(dir / "x.npy", 500'000);
  std::filesystem::resize_file(dir / "w", 80'000);
  for (const std::size_t axis : {std::size_t{0}, std::size_t{1}}) {
    auto file = OutputFile::create(dir / "y");
    ASSERT_TRUE(succeeds(file));
    const auto result = stream::quantize({&array, &fp32, nullptr}, axis, {}, "w", *file, nullptr, 70'000);
    // The first byte that was wanted and not there: of a row's piece, or of rows that are read together.
    const std::string byte = axis == 0 ? "508032" : "500000";
    EXPECT_TRUE(fails_with(result, (dir / "x.npy").string() + ": byte " + byte +
                                       " is missing; the file had 1048704 bytes when it was opened, and was cut short "
                                       "meanwhile"));
  }
  auto file = OutputFile::create(dir / "y");
  ASSERT_TRUE(succeeds(file));
  const auto flags = stream::dequantize(*reader, fp32, Rounding::rne, *file);
  ASSERT_FALSE(flags);
  EXPECT_NE(flags.error().message.find("was cut short meanwhile"), std::string::npos) << flags.error().message;
  EXPECT_EQ(dir.names().count("y"), 0U);
}

// Another process writes to the file between its first byte and its last: half of the result would be of the old bytes.
TEST(StreamQuantize, AnInputThatChangesIsAnError) {
  const TempDir dir(memory_directory());
  const Shape shape{16, 64};
  const NpyArray array = array_in(dir / "x.npy", DType::kF32, shape, Bytes(count_of(shape) * 4));
  const auto tensor = quantize(Bytes(count_of(shape) * 4), fp32, shape, 1);
  ASSERT_TRUE(succeeds(tensor));
  ASSERT_TRUE(succeeds(save_packed(dir / "w", "w", *tensor)));
  const auto reader = PackedReader::open(dir / "w");
  ASSERT_TRUE(succeeds(reader));
  const auto files = stream::TensorFiles::open(dir / "x.npy");
  ASSERT_TRUE(succeeds(files));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a tick of the clock for times of files
  for (const std::string name : {"x.npy", "w"}) {
    std::fstream change(dir / name, std::ios::in | std::ios::out | std::ios::binary);
    change.seekp(-1, std::ios::end);
    change.put('\1');
  }
  const auto changed = [&](std::string_view name) {
    return (dir / name).string() + ": was changed while it was read; run this again";
  };
  {
    auto file = OutputFile::create(dir / "y");
    ASSERT_TRUE(succeeds(file));
    EXPECT_TRUE(fails_with(stream::quantize({&array, &fp32, nullptr}, 1, {}, "w", *file), changed("x.npy")));
    EXPECT_TRUE(fails_with(stream::dequantize(*reader, fp32, Rounding::rne, *file), changed("w")));
    EXPECT_TRUE(fails_with(stream::convert(array, fp32, bf16, {}, *file), changed("x.npy")));
  }
  EXPECT_TRUE(fails_with(stream::compare(*files, *files), changed("x.npy")));
  const auto ignore = [](const stream::Part&) { return Expected<void>(); };
  EXPECT_TRUE(fails_with(stream::quantize_parts(*files, 0, 1, {}, ignore), changed("x.npy")));
  EXPECT_EQ(dir.names().count("y"), 0U);
}

}  // namespace
}  // namespace bitcube
