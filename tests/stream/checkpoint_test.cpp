// Checkpoints: what is selected, that it is quantised as a single array is, and that no interruption shows.
#include "bitcube/stream/checkpoint.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "bitcube/io/packed.hpp"
#include "bitcube/io/shard_index.hpp"
#include "bitcube/stream/inspect.hpp"
#include "bitcube/version.hpp"
#include "stream/files.hpp"
#include "support/checkpoints.hpp"
#include "support/tensor_bytes.hpp"

namespace bitcube {
namespace {

using namespace test;
using stream::CheckpointOptions;
using stream::CheckpointQuantizer;
using stream::CheckpointResult;

const std::vector<TestTensor> kEveryType{{"w.f64", "F64", {64, 66}},
                                         {"w.f32", "F32", {64, 64, 65}},
                                         {"w.f16", "F16", {64, 64}},
                                         {"w.bf16", "BF16", {70, 130}},
                                         {"b", "BF16", {128}},
                                         {"small", "F32", {64, 63}},
                                         {"scalar", "F32", {}},
                                         {"none", "F32", {0, 64}},
                                         {"bool", "BOOL", {64, 64}},
                                         {"u8", "U8", {64, 64}},
                                         {"i8", "I8", {64, 64}},
                                         {"u16", "U16", {64, 64}},
                                         {"i16", "I16", {64, 64}},
                                         {"u32", "U32", {64, 64}},
                                         {"i32", "I32", {64, 64}},
                                         {"u64", "U64", {64, 64}},
                                         {"i64", "I64", {64, 64}},
                                         {"e4m3", "F8_E4M3", {64, 64}},
                                         {"e5m2", "F8_E5M2", {64, 64}},
                                         {"e8m0", "F8_E8M0", {64, 64}},
                                         {"f4", "F4", {64, 64}},
                                         {"e2m3", "F6_E2M3", {64, 64}},
                                         {"e3m2", "F6_E3M2", {64, 64}},
                                         {"c64", "C64", {64, 64}},
                                         {"fnuz", "F8_E4M3FNUZ", {64, 64}},
                                         {"odd", "Q5", {64, 65}}};

CheckpointOptions along(std::int64_t axis) {
  CheckpointOptions options;
  options.axis = axis;
  return options;
}

CheckpointOptions choose(std::vector<std::string> include, std::vector<std::string> exclude = {}, uint64 min_dim = 64,
                         uint64 min_rank = 2) {
  CheckpointOptions options;
  options.include = std::move(include);
  options.exclude = std::move(exclude);
  options.min_dim = min_dim;
  options.min_rank = min_rank;
  return options;
}

const CheckpointOptions kDefaults;

class Checkpoint : public testing::Test {
 protected:
  std::string path(std::string_view name) const { return dir_ / name; }

  /// Quantises in.safetensors to the output, and puts it in place.
  std::vector<CheckpointResult> quantize(const CheckpointOptions& options, std::string_view output,
                                         std::string_view input = "in.safetensors",
                                         std::size_t window = stream::kWindow) const {
    auto work = CheckpointQuantizer::plan(path(input), options);
    EXPECT_TRUE(succeeds(work));
    if (!work) return {};
    auto results = work->run(path(output), window);
    EXPECT_TRUE(succeeds(results));
    if (!results) return {};
    EXPECT_TRUE(succeeds(work->commit()));
    return std::move(*results);
  }

  /// The same, and what run() found of an earlier run.
  std::vector<CheckpointResult> resume(const CheckpointOptions& options, std::string_view output,
                                       std::vector<std::string>& notes) const {
    auto work = CheckpointQuantizer::plan(path("in.safetensors"), options);
    EXPECT_TRUE(succeeds(work));
    if (!work) return {};
    auto results = work->run(path(output));
    EXPECT_TRUE(succeeds(results));
    if (!results) return {};
    notes = work->notes();
    EXPECT_TRUE(succeeds(work->commit()));
    return std::move(*results);
  }

  /// Does the work, but leaves it unfinished beside the output.
  void interrupt(const CheckpointOptions& options, std::string_view output) const {
    auto work = CheckpointQuantizer::plan(path("in.safetensors"), options);
    ASSERT_TRUE(succeeds(work));
    ASSERT_TRUE(succeeds(work->run(path(output))));
  }

  testing::AssertionResult plan_fails(const CheckpointOptions& options, const std::string& message,
                                      std::string_view input = "in.safetensors") const {
    return fails_with(CheckpointQuantizer::plan(path(input), options), message);
  }

  std::vector<std::string> selected(const CheckpointOptions& options) const {
    std::vector<std::string> names;
    const auto work = CheckpointQuantizer::plan(path("in.safetensors"), options);
    EXPECT_TRUE(succeeds(work));
    if (!work) return names;
    for (const auto& t : work->tensors()) {
      if (t.source != nullptr) names.push_back(t.tensor.name);
    }
    return names;
  }

  static std::size_t resumed(const std::vector<CheckpointResult>& results) {
    return static_cast<std::size_t>(std::ranges::count(results, true, &CheckpointResult::resumed));
  }

  TempDir dir_{memory_directory()};
};

TEST_F(Checkpoint, EveryTypeIsQuantisedOrCopied) {
  write_checkpoint(path("in.safetensors"), kEveryType, {{"format", "pt"}, {"by", "some\"one"}});
  const std::string before = read_text(path("in.safetensors"));
  const auto source = read_safetensors(path("in.safetensors"));
  ASSERT_TRUE(succeeds(source));
  for (const std::string_view name : {"hif4", "mxfp8-e4m3", "nvfp4"}) {
    for (const std::int64_t axis : {-1, 0}) {
      CheckpointOptions options = along(axis);
      options.quantize.format = find_block_format(name);
      options.quantize.tensor_scale = name == "nvfp4";
      const auto work = CheckpointQuantizer::plan(path("in.safetensors"), options);
      ASSERT_TRUE(succeeds(work));
      EXPECT_EQ(work->warnings(), std::vector<std::string>{"tensor \"odd\": unknown type \"Q5\"; copied as it is"});
      const auto results = quantize(options, "out.safetensors");
      const auto result = read_safetensors(path("out.safetensors"));
      ASSERT_TRUE(succeeds(result));
      ASSERT_EQ(results.size(), kEveryType.size());
      std::size_t quantised = 0;
      for (std::size_t i = 0; i < kEveryType.size(); ++i) {
        const TestTensor& t = kEveryType[i];
        const SafetensorsTensor* copy = result->find(t.name);
        EXPECT_EQ(copy == nullptr, t.name.starts_with("w.")) << t.name;
        if (copy != nullptr) {
          EXPECT_EQ(copy->dtype, t.dtype);
          EXPECT_EQ(copy->shape, t.shape);
          EXPECT_EQ(to_text(bytes_of(*result, *copy)), tensor_bytes(t)) << t.name;
          continue;
        }
        ++quantised;
        const Format& format = t.dtype == "F64" ? fp64 : t.dtype == "F32" ? fp32 : t.dtype == "F16" ? fp16 : bf16;
        const std::size_t at = axis < 0 ? t.shape.size() - 1 : 0;
        const auto words = bytes_of(*source, *source->find(t.name));
        const auto expected = bitcube::quantize(words, format, t.shape, at, options.quantize);
        ASSERT_TRUE(succeeds(expected));
        const auto packed = load_packed(*result, "out", t.name);
        ASSERT_TRUE(succeeds(packed));
        EXPECT_EQ(packed->codes, expected->codes) << t.name;
        EXPECT_EQ(packed->scales, expected->scales) << t.name;
        EXPECT_EQ(packed->shape, t.shape);
        EXPECT_EQ(packed->axis, at);
        EXPECT_EQ(packed->profile, expected->profile);
        EXPECT_EQ(packed->source, &format);
        EXPECT_EQ(packed->tensor_scale, expected->tensor_scale);
        EXPECT_EQ(packed->tensor_scale.has_value(), name == "nvfp4");
        EXPECT_EQ(results[i].error.sqnr, measure(words, *expected)->sqnr);
      }
      EXPECT_EQ(quantised, 4U);
      const SafetensorsMetadata& metadata = result->metadata();
      ASSERT_EQ(metadata.size(), 3U);
      EXPECT_EQ(metadata[0], (std::pair<std::string, std::string>{"format", "pt"}));
      EXPECT_EQ(metadata[1], (std::pair<std::string, std::string>{"by", "some\"one"}));
      EXPECT_NE(metadata[2].second.find(std::string(R"("program":"bitcube )") + version + '"'), std::string::npos);
    }
  }
  EXPECT_EQ(read_text(path("in.safetensors")), before);
  EXPECT_EQ(dir_.names(), (std::set<std::string>{"in.safetensors", "out.safetensors"}));
}

TEST_F(Checkpoint, NeitherThreadsNorWindowsShow) {
  write_checkpoint(path("in.safetensors"), kEveryType);
  for (const std::int64_t axis : {-1, 0}) {
    CheckpointOptions options = along(axis);
    options.quantize.execution.threads = 1;
    quantize(options, "one");
    options.quantize.execution.threads = 2;
    quantize(options, "two", "in.safetensors", 10'000);
    EXPECT_EQ(read_text(path("one")), read_text(path("two"))) << axis;
  }
}

TEST_F(Checkpoint, Selection) {
  write_checkpoint(path("in.safetensors"), {{"a.q", "F32", {64, 64}},
                                            {"a.k", "F32", {64, 80}},
                                            {"embed", "F32", {100, 64}},
                                            {"conv", "F32", {64, 64, 3}},
                                            {"norm", "F32", {64}}});
  using Names = std::vector<std::string>;
  EXPECT_EQ(selected(kDefaults), (Names{"a.q", "a.k", "embed"}));
  EXPECT_EQ(selected(choose({"^a\\."})), (Names{"a.q", "a.k"}));
  EXPECT_EQ(selected(choose({"^a\\.", "bed"})), (Names{"a.q", "a.k", "embed"}));
  EXPECT_EQ(selected(choose({}, {"q$", "bed"})), (Names{"a.k"}));
  EXPECT_EQ(selected(choose({"^a"}, {"k"})), (Names{"a.q"}));
  EXPECT_EQ(selected(choose({}, {}, 65)), Names{});
  EXPECT_EQ(selected(choose({}, {}, 3)), (Names{"a.q", "a.k", "embed", "conv"}));
  EXPECT_EQ(selected(choose({}, {}, 64, 1)), (Names{"a.q", "a.k", "embed", "norm"}));
  EXPECT_EQ(selected(choose({}, {}, 0, 3)), (Names{"conv"}));
  const auto work = CheckpointQuantizer::plan(path("in.safetensors"), choose({"xyz"}, {"norm", "u"}));
  ASSERT_TRUE(succeeds(work));
  EXPECT_EQ(work->warnings(), (Names{"--include \"xyz\": matches no tensor", "--exclude \"u\": matches no tensor",
                                     "no tensor is selected; all are copied"}));
}

TEST_F(Checkpoint, Refuses) {
  const std::string in = path("in.safetensors");
  write_checkpoint(in, {{"a", "F32", {64, 64}}, {"a.codes", "F32", {1}}});
  EXPECT_TRUE(plan_fails(choose({"("}), R"(--include: "(" is no regular expression of RE2: missing ): ()"));
  EXPECT_TRUE(plan_fails(choose({}, {"(x{1000}){1000}"}),
                         R"(--exclude: "(x{1000}){1000}" is no regular expression of RE2: invalid repetition size: )"
                         "{1000}"));
  EXPECT_TRUE(
      plan_fails(kDefaults, in + R"(: tensor "a": its part would be "a.codes", but there is a tensor of this name; )"
                                 "leave one out"));
  write_checkpoint(in, {{"a", "F32", {64, 64}}, {"a.codes", "F32", {64, 64}}});
  EXPECT_EQ(selected(kDefaults).size(), 2U);  // no part of the one is the other, which will have another name
  write_checkpoint(in, {{"a", "F32", {64, 64}}});
  EXPECT_TRUE(plan_fails(along(2), in + R"(: tensor "a": it has 2 dimensions, but no axis 2; give another axis, or )"
                                        "exclude it"));
  write_checkpoint(in, {{"a", "F32", {64}}});
  CheckpointOptions vectors_too = choose({}, {}, 64, 1);
  vectors_too.axis = 1;
  EXPECT_TRUE(plan_fails(vectors_too, in + R"(: tensor "a": it has 1 dimension, but no axis 1; )"
                                           "give another axis, or exclude it"));
  write_checkpoint(in, {{"a", "F32", {64, 64}}});
  auto work = CheckpointQuantizer::plan(in, kDefaults);
  ASSERT_TRUE(succeeds(work));
  EXPECT_TRUE(fails_with(work->run(in), in + ": is also an input; write the output to another file"));
  std::filesystem::create_symlink(in, path("link"));
  EXPECT_TRUE(fails_with(work->run(path("link")), in + ": is also an input; write the output to another file"));
  EXPECT_TRUE(fails_with(work->run(dir_.path()), dir_.path().string() + ": is a directory; give the name of a file"));
  EXPECT_EQ(dir_.names(), (std::set<std::string>{"in.safetensors", "link"}));
}

TEST_F(Checkpoint, ATensorWithoutAName) {
  write_checkpoint(path("in.safetensors"), {{"", "F32", {64, 64}}, {"a", "F32", {64, 64}}});
  EXPECT_TRUE(plan_fails(kDefaults, path("in.safetensors") +
                                        ": tensor \"\": a quantised tensor needs a name; copy it with --exclude '^$'"));
  EXPECT_EQ(selected(choose({}, {"^$"})), std::vector<std::string>{"a"});
}

TEST_F(Checkpoint, PatternsTakeNoTimeAndNoStack) {
  // With a matcher that backtracks the first would take years, and the second the whole stack.
  write_checkpoint(path("in.safetensors"), {{std::string(1'000'000, 'a') + "!", "F32", {64, 64}}});
  EXPECT_EQ(selected(choose({"(a*)*b"})), std::vector<std::string>{});
  EXPECT_EQ(selected(choose({"(a|aa)*!$"})).size(), 1U);
}

TEST_F(Checkpoint, QuantisedOnceMore) {
  write_checkpoint(path("in.safetensors"), {{"a", "F32", {64, 64}}, {"b", "BF16", {64, 128}}});
  quantize(choose({"a"}), "first.safetensors");
  CheckpointOptions options;
  options.quantize.format = find_block_format("mxfp4");
  quantize(options, "second.safetensors", "first.safetensors");
  const auto file = read_safetensors(path("second.safetensors"));
  ASSERT_TRUE(succeeds(file));
  const auto names = packed_names(*file, "second");
  ASSERT_TRUE(succeeds(names));
  EXPECT_EQ(*names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(load_packed(*file, "second", "a")->format->name, "hif4");
  EXPECT_EQ(load_packed(*file, "second", "b")->format->name, "mxfp4");
  EXPECT_EQ(load_packed(*file, "second", "a")->codes, load_packed(path("first.safetensors"), "a")->codes);
}

TEST_F(Checkpoint, FinishedTensorsAreNotDoneAgain) {
  write_checkpoint(path("in.safetensors"), kEveryType);
  const std::string before = read_text(path("in.safetensors"));
  for (const bool scale : {false, true}) {
    CheckpointOptions options;
    if (scale) options.quantize.format = find_block_format("nvfp4");
    options.quantize.tensor_scale = scale;
    const auto whole_results = quantize(options, "whole");
    const std::string whole = read_text(path("whole"));
    interrupt(options, "out");
    EXPECT_EQ(dir_.names(), (std::set<std::string>{"in.safetensors", "out.partial", "whole"}));

    // As if it had been killed after some of the tensors: their lines are there, of all others neither line nor byte.
    const std::string journal = read_text(path("out.partial/journal"));
    std::size_t end = 0;
    constexpr std::size_t kDone = 7;
    for (std::size_t i = 0; i < kDone; ++i) end = journal.find('\n', journal.find("\ndone", end) + 1);
    write_text(path("out.partial/journal"), journal.substr(0, end + 1) + "done 9 0");
    const auto results = quantize(options, "out");
    EXPECT_EQ(resumed(results), kDone);
    EXPECT_EQ(read_text(path("out")), whole);
    ASSERT_EQ(results.size(), whole_results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].error.sqnr, whole_results[i].error.sqnr) << i;
      EXPECT_EQ(results[i].error.max_relative_error, whole_results[i].error.max_relative_error) << i;
      EXPECT_EQ(results[i].error.lanes, whole_results[i].error.lanes) << i;
      EXPECT_EQ(results[i].tensor_scale, whole_results[i].tensor_scale) << i;
    }

    // Nothing is left to do.
    interrupt(options, "out");
    EXPECT_EQ(resumed(quantize(options, "out")), kEveryType.size());
    EXPECT_EQ(read_text(path("out")), whole);
    std::filesystem::remove(path("out"));
    EXPECT_EQ(dir_.names(), (std::set<std::string>{"in.safetensors", "whole"}));
  }
  EXPECT_EQ(read_text(path("in.safetensors")), before);
}

TEST_F(Checkpoint, BytesThatChangedAreDoneAgain) {
  // One that is packed, one that is copied, one that is packed along its first axis and has several windows.
  write_checkpoint(path("in.safetensors"), {{"a", "F32", {64, 64}}, {"n", "F32", {64}}, {"z", "BF16", {64, 128}}});
  const CheckpointOptions options = along(0);
  quantize(options, "whole");
  const std::string whole = read_text(path("whole"));
  const auto file = read_safetensors(path("whole"));
  ASSERT_TRUE(succeeds(file));
  ASSERT_EQ(file->tensors().size(), 5U);  // codes and scales of two
  const std::uint64_t start = file->header()->size();
  for (const SafetensorsTensor& part : file->tensors()) {
    const std::string name = part.name.substr(0, 1);
    for (const std::uint64_t at : {part.begin, part.begin + part.size() / 2, part.end - 1}) {
      interrupt(options, "out");
      std::string data = read_text(path("out.partial/0.data"));
      data[start + at] = static_cast<char>(data[start + at] ^ 0x10);
      write_text(path("out.partial/0.data"), data);
      std::vector<std::string> notes;
      EXPECT_EQ(resumed(resume(options, "out", notes)), 2U) << part.name << " " << at;
      EXPECT_TRUE(read_text(path("out")) == whole) << part.name << " " << at;
      EXPECT_EQ(notes, std::vector<std::string>{path("out.partial/0.data") +
                                                ": 1 of the finished tensors has not the bytes that were written, the "
                                                "first is \"" +
                                                name + "\"; done again"});
    }
  }
  interrupt(options, "out");
  write_text(path("out.partial/0.data"), std::string(whole.size(), '\0'));
  std::vector<std::string> notes;
  EXPECT_EQ(resumed(resume(options, "out", notes)), 0U);
  EXPECT_TRUE(read_text(path("out")) == whole);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find(": 3 of the finished tensors have not"), std::string::npos) << notes[0];
  // No note where all is well, and one where the file is short.
  interrupt(options, "out");
  EXPECT_EQ(resumed(resume(options, "out", notes)), 3U);
  EXPECT_EQ(notes, std::vector<std::string>{});
  interrupt(options, "out");
  std::filesystem::resize_file(path("out.partial/0.data"), whole.size() - 1);
  EXPECT_EQ(resumed(resume(options, "out", notes)), 0U);
  EXPECT_EQ(notes, std::vector<std::string>{
                       path("out.partial/0.data") +
                       ": has not the size that it should have; what was finished in it, 3 tensors, is done "
                       "again"});
  EXPECT_TRUE(read_text(path("out")) == whole);
}

/// Whatever the journal says, the result and its figures are right.
TEST_F(Checkpoint, DamagedJournals) {
  write_checkpoint(path("in.safetensors"), {{"a", "F32", {64, 64}}, {"n", "F32", {64}}});
  CheckpointOptions options;
  options.quantize.format = find_block_format("nvfp4");
  options.quantize.tensor_scale = true;
  const auto expected = quantize(options, "whole");
  const std::string whole = read_text(path("whole"));
  interrupt(options, "out");
  const std::string journal = read_text(path("out.partial/journal"));
  const std::string data = read_text(path("out.partial/0.data"));
  std::vector<std::string> notes;
  const auto resumed_with = [&](const std::string& damaged, std::string_view what) {
    std::filesystem::create_directory(dir_ / "out.partial");
    write_text(path("out.partial/journal"), damaged);
    write_text(path("out.partial/0.data"), data);
    const auto results = resume(options, "out", notes);
    EXPECT_TRUE(read_text(path("out")) == whole) << what;
    EXPECT_EQ(results.size(), 2U);
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].error.sqnr, expected[i].error.sqnr) << what;
      EXPECT_EQ(results[i].error.lanes, expected[i].error.lanes) << what;
      EXPECT_EQ(results[i].error.non_finite, expected[i].error.non_finite) << what;
      EXPECT_EQ(results[i].tensor_scale, expected[i].tensor_scale) << what;
      EXPECT_EQ(results[i].rounding_flags, expected[i].rounding_flags) << what;
    }
    return resumed(results);
  };
  EXPECT_EQ(resumed_with(journal, "whole"), 2U);
  for (std::size_t at = 0; at < journal.size(); ++at) {
    // What does not begin as a journal does may be anything, so it is left as it is.
    if (at >= std::string_view("bitcube checkpoint ").size()) {
      std::string damaged = journal;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      resumed_with(damaged, "byte " + std::to_string(at));
    }
    resumed_with(journal.substr(0, at), "cut at " + std::to_string(at));
  }
  const auto first = journal.find("\ndone ") + 1;
  std::string damaged = journal;
  damaged[journal.find(' ', first + 7) + 1] = '9';  // the flags
  EXPECT_EQ(resumed_with(damaged, "flags"), 1U);
  const std::string one = path("out.partial") + ": 1 line of its journal cannot be read; what it said is done again";
  EXPECT_EQ(notes, std::vector<std::string>{one});
  EXPECT_EQ(resumed_with(journal + "done 9 0\n" + std::string("\0\xFF garbage\n\n", 12), "garbage"), 2U);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find(": 3 lines of its journal cannot be read"), std::string::npos) << notes[0];
  EXPECT_EQ(resumed_with("bitcube checkpoint nonsense\n", "nonsense"), 0U);
  EXPECT_EQ(notes, std::vector<std::string>{path("out.partial") +
                                            ": is of other arguments, of another source or damaged; all is done anew"});

  std::filesystem::create_directory(dir_ / "out.partial");
  write_text(path("out.partial/journal"), "nonsense\n");
  write_text(path("out.partial/0.data"), data);
  auto work = CheckpointQuantizer::plan(path("in.safetensors"), options);
  ASSERT_TRUE(succeeds(work));
  EXPECT_TRUE(fails_with(work->run(path("out")), path("out.partial") +
                                                     ": this directory is for unfinished output, but its journal is of "
                                                     "something else; remove it or rename it"));
  EXPECT_EQ(read_text(path("out.partial/journal")), "nonsense\n");
  EXPECT_EQ(read_text(path("out.partial/0.data")), data);
}

TEST_F(Checkpoint, WhatChangedIsDoneAnew) {
  const std::vector<TestTensor> tensors{{"a", "F32", {64, 64}}, {"b", "F32", {64}}};
  write_checkpoint(path("in.safetensors"), tensors);
  quantize(kDefaults, "whole");
  const std::string whole = read_text(path("whole"));
  // Other arguments.
  CheckpointOptions other;
  other.quantize.profile = find_hif4_profile("paper");
  for (const CheckpointOptions& options : {other, along(0), choose({}, {}, 63), choose({}, {"x"})}) {
    interrupt(options, "out");
    EXPECT_EQ(resumed(quantize(kDefaults, "out")), 0U);
    EXPECT_EQ(read_text(path("out")), whole);
  }
  // The same arguments.
  interrupt(kDefaults, "out");
  EXPECT_EQ(resumed(quantize(kDefaults, "out")), 2U);
  // Another source, that has the size and even the times of the first one.
  interrupt(kDefaults, "out");
  const auto time = std::filesystem::last_write_time(path("in.safetensors"));
  std::string changed = read_text(path("in.safetensors"));
  changed.back() = static_cast<char>(changed.back() ^ 1);
  write_text(path("in.safetensors"), changed);
  std::filesystem::last_write_time(path("in.safetensors"), time);
  EXPECT_EQ(resumed(quantize(kDefaults, "out")), 0U);
  const auto file = read_safetensors(path("out"));
  ASSERT_TRUE(succeeds(file));
  EXPECT_EQ(to_text(bytes_of(*file, *file->find("b"))).back(), changed.back());
  // A file that is gone, and one that is cut.
  interrupt(kDefaults, "out");
  std::filesystem::remove(path("out.partial/0.data"));
  EXPECT_EQ(resumed(quantize(kDefaults, "out")), 0U);
  interrupt(kDefaults, "out");
  std::filesystem::resize_file(path("out.partial/0.data"), 10);
  EXPECT_EQ(resumed(quantize(kDefaults, "out")), 0U);
  // A file that was made again just before the kill: the lines before that say nothing of it.
  interrupt(kDefaults, "out");
  write_text(path("out.partial/journal"), read_text(path("out.partial/journal")) + "file 0\n");
  write_text(path("out.partial/0.data"), std::string(whole.size(), '\0'));
  EXPECT_EQ(resumed(quantize(kDefaults, "out")), 0U);
  quantize(kDefaults, "again");
  EXPECT_EQ(read_text(path("out")), read_text(path("again")));
}

TEST_F(Checkpoint, AfterACrashOfTheMachineOnlyWhatIsOnTheDiskCounts) {
  write_checkpoint(path("in.safetensors"), {{"a", "F32", {64, 64}}, {"b", "F32", {64}}});
  const auto resumed_with = [&](bool synced) {
    interrupt(kDefaults, "out");
    std::string journal = read_text(path("out.partial/journal"));
    const auto boot = journal.find("boot ") + 5;
    journal[boot] = journal[boot] == '0' ? '1' : '0';
    const auto at = journal.find("synced\n");
    EXPECT_NE(at, std::string::npos);
    if (!synced) journal.erase(at, 7);
    write_text(path("out.partial/journal"), journal);
    return resumed(quantize(kDefaults, "out"));
  };
  EXPECT_EQ(resumed_with(true), 2U);
  EXPECT_EQ(resumed_with(false), 0U);
}

TEST_F(Checkpoint, AChangedSourceIsSeen) {
  write_checkpoint(path("in.safetensors"), {{"a", "F32", {64, 64}}});
  auto work = CheckpointQuantizer::plan(path("in.safetensors"), kDefaults);
  ASSERT_TRUE(succeeds(work));
  write_checkpoint(path("in.safetensors"), {{"a", "F32", {64, 64}}});
  EXPECT_TRUE(fails_with(work->run(path("out")), path("in.safetensors") +
                                                     ": was changed while it was read; what was made of it is removed, "
                                                     "so run this again"));
  EXPECT_EQ(dir_.names(), std::set<std::string>{"in.safetensors"});
}

// There is nothing to go on with: the next run sees another source.
TEST_F(Checkpoint, ASourceThatIsCutShortIsAChangedOne) {
  write_checkpoint(path("in.safetensors"), {{"a", "F32", {64, 64}}, {"b", "F32", {64, 64}}});
  const auto size = std::filesystem::file_size(path("in.safetensors"));
  CheckpointOptions options;
  options.quantize.execution.progress = [&](std::size_t, std::size_t) {
    std::filesystem::resize_file(path("in.safetensors"), size - 4);
  };
  auto work = CheckpointQuantizer::plan(path("in.safetensors"), options);
  ASSERT_TRUE(succeeds(work));
  EXPECT_TRUE(fails_with(work->run(path("out")), path("in.safetensors") +
                                                     ": was changed while it was read; what was made of it is removed, "
                                                     "so run this again"));
  EXPECT_EQ(dir_.names(), std::set<std::string>{"in.safetensors"});
}

class Sharded : public Checkpoint {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(dir_ / "in/sub");
    write_checkpoint(path("in/1.safetensors"), {{"a", "F32", {64, 64}}, {"n", "F32", {64}}});
    write_checkpoint(path("in/sub/2.safetensors"), {{"b", "BF16", {128, 64}}});
    write_text(path("in/m.json"), R"({"metadata":{"total_size":1,"x":"y"},"weight_map":{"a":"1.safetensors",)"
                                  R"("b":"sub/2.safetensors","n":"1.safetensors"}})");
  }
  testing::AssertionResult map_fails(const std::string& map, const std::string& message) const {
    write_text(path("in/m.json"), R"({"weight_map":)" + map + "}");
    return plan_fails(kDefaults, path("in/m.json") + ": " + message, "in/m.json");
  }
};

TEST_F(Sharded, AllFilesAndANewIndex) {
  const auto results = quantize(kDefaults, "out", "in/m.json");
  EXPECT_EQ(results.size(), 3U);
  const auto index = read_shard_index(path("out/m.json"));
  ASSERT_TRUE(succeeds(index));
  EXPECT_EQ(index->weights, (std::vector<std::pair<std::string, std::string>>{{"a.codes", "1.safetensors"},
                                                                              {"a.scales", "1.safetensors"},
                                                                              {"n", "1.safetensors"},
                                                                              {"b.codes", "sub/2.safetensors"},
                                                                              {"b.scales", "sub/2.safetensors"}}));
  EXPECT_EQ(index->metadata, R"({"total_size":7168,"x":"y"})");  // 64 * 36 + 64 * 4 + 128 * 36
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_ / "out")) {
    names.insert(entry.path().filename().string());
  }
  EXPECT_EQ(names, (std::set<std::string>{"1.safetensors", "2.safetensors", "m.json", "sub"}));
  // Each file is what it is alone.
  quantize(kDefaults, "alone", "in/sub/2.safetensors");
  EXPECT_EQ(read_text(path("alone")), read_text(path("out/sub/2.safetensors")));

  const auto files = stream::TensorFiles::open(path("out/m.json"));
  ASSERT_TRUE(succeeds(files));
  const auto original = stream::TensorFiles::open(path("in/m.json"));
  ASSERT_TRUE(succeeds(original));
  ASSERT_EQ(files->tensors().size(), 3U);
  EXPECT_EQ(files->tensors()[2].name, "b");
  EXPECT_EQ(files->tensors()[2].file, "sub/2.safetensors");
  const auto compared = stream::compare(*files, *original, {}, 5000);
  ASSERT_TRUE(succeeds(compared));
  EXPECT_EQ((*compared)[0].error.sqnr, results[0].error.sqnr);
  EXPECT_EQ((*compared)[1].kind, stream::Comparison::Kind::kIdentical);
  EXPECT_EQ((*compared)[2].error.mean_relative_error, results[2].error.mean_relative_error);
}

TEST_F(Sharded, IsResumed) {
  quantize(kDefaults, "whole", "in/m.json");
  auto work = CheckpointQuantizer::plan(path("in/m.json"), kDefaults);
  ASSERT_TRUE(succeeds(work));
  ASSERT_TRUE(succeeds(work->run(path("out"))));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "out/1.safetensors"));
  *work = std::move(*CheckpointQuantizer::plan(path("in/m.json"), kDefaults));
  // As if it had been killed after the first file was moved to its place.
  std::filesystem::rename(dir_ / "out/m.json.partial/0.data", dir_ / "out/1.safetensors");
  EXPECT_EQ(resumed(quantize(kDefaults, "out", "in/m.json")), 1U);
  for (const std::string_view name : {"m.json", "1.safetensors", "sub/2.safetensors"}) {
    EXPECT_EQ(read_text(dir_ / "out" / name), read_text(dir_ / "whole" / name)) << name;
  }
  EXPECT_FALSE(std::filesystem::exists(dir_ / "out/m.json.partial"));
}

TEST_F(Sharded, FaultyIndices) {
  EXPECT_TRUE(map_fails(R"({"a":"none"})", R"(tensor "a" should be in "none", which cannot be read: )" +
                                               path("in/none") + ": No such file or directory"));
  EXPECT_TRUE(map_fails(R"({"x":"1.safetensors"})", R"(tensor "x" should be in "1.safetensors", but is not)"));
  EXPECT_TRUE(map_fails(R"({"a":"1.safetensors","n":"sub/2.safetensors"})",
                        R"(tensor "n" should be in "sub/2.safetensors", but is in "1.safetensors")"));
  EXPECT_TRUE(map_fails(R"({"a":"../in/1.safetensors"})",
                        R"(tensor "a": the file "../in/1.safetensors" leads out of the directory of the index; it )"
                        "must stay below it"));
  write_checkpoint(path("in/sub/2.safetensors"), {{"a", "BF16", {128, 64}}});
  EXPECT_TRUE(map_fails(R"({"a":"1.safetensors","n":"sub/2.safetensors"})",
                        R"(tensor "a" is in two files, "1.safetensors" and "sub/2.safetensors"; take it out of one)"));
  write_checkpoint(path("in/sub/2.safetensors"), {{"a.scales", "BF16", {8}}});
  EXPECT_TRUE(
      map_fails(R"({"a":"1.safetensors","n":"1.safetensors","a.scales":"sub/2.safetensors"})",
                R"(tensor "a" of "1.safetensors" would have the part "a.scales", but "sub/2.safetensors" has a )"
                "tensor of this name; leave one out"));
  write_text(path("in/m.json"), R"({"weight_map":{"a":"1.safetensors"}})");
  const auto work = CheckpointQuantizer::plan(path("in/m.json"), kDefaults);
  ASSERT_TRUE(succeeds(work));
  EXPECT_EQ(work->warnings(),
            std::vector<std::string>{R"(tensor "n": the index does not name it; the new index will)"});
}

TEST_F(Sharded, OutputsAreNotInputs) {
  auto work = CheckpointQuantizer::plan(path("in/m.json"), kDefaults);
  ASSERT_TRUE(succeeds(work));
  EXPECT_TRUE(fails_with(work->run(path("in")),
                         path("in/1.safetensors") + ": is also an input; write the output to another directory"));
  std::filesystem::create_directory(dir_ / "out");
  std::filesystem::create_symlink(path("in/1.safetensors"), dir_ / "out/m.json");
  EXPECT_TRUE(fails_with(work->run(path("out")),
                         path("in/1.safetensors") + ": is also an input; write the output to another directory"));
}

TEST_F(Checkpoint, Compared) {
  write_checkpoint(path("in.safetensors"), {{"a", "F32", {64, 64}}, {"b", "F32", {8}}, {"c", "I8", {4}}});
  CheckpointOptions options;
  options.source_type = &bf16;
  const auto results = quantize(options, "out.safetensors");
  EXPECT_EQ(results[0].rounding_flags, Flags::inexact);
  const auto packed = stream::TensorFiles::open(path("out.safetensors"));
  const auto original = stream::TensorFiles::open(path("in.safetensors"));
  ASSERT_TRUE(packed && original);
  auto compared = stream::compare(*packed, *original);
  ASSERT_TRUE(succeeds(compared));
  EXPECT_EQ((*compared)[0].error.sqnr, results[0].error.sqnr);
  using Kind = stream::Comparison::Kind;
  EXPECT_EQ((*compared)[1].kind, Kind::kIdentical);
  compared = stream::compare(*packed, *packed);
  EXPECT_EQ((*compared)[0].kind, Kind::kIdentical);

  write_checkpoint(path("other.safetensors"), {{"a", "F32", {64, 32}}, {"b", "F32", {8}}});
  std::string other = read_text(path("other.safetensors"));
  other.back() = static_cast<char>(other.back() ^ 1);
  write_text(path("other.safetensors"), other);
  const auto changed = stream::TensorFiles::open(path("other.safetensors"));
  ASSERT_TRUE(succeeds(changed));
  compared = stream::compare(*original, *changed);
  EXPECT_EQ((*compared)[0].reason, "shape [64, 32] there");
  EXPECT_EQ((*compared)[1].kind, Kind::kDifferent);
  EXPECT_EQ((*compared)[1].reason, "byte 31 differs");
  EXPECT_EQ((*compared)[2].kind, Kind::kMissing);
}

}  // namespace
}  // namespace bitcube
