// bitcube quantize of checkpoints, and bitcube inspect.
#include <signal.h>

#include <chrono>
#include <random>
#include <thread>

#include "bitcube/io/packed.hpp"
#include "bitcube/io/sha256.hpp"
#include "bitcube/stream/checkpoint.hpp"
#include "cli/program.hpp"
#include "stream/files.hpp"
#include "support/checkpoints.hpp"

namespace bitcube::test {
namespace {

class CheckpointProgram : public testing::Test {
 protected:
  std::string path(std::string_view name) const { return dir_ / name; }
  Arguments quantize(const Arguments& more = {}) const {
    Arguments arguments{"quantize", path("in.safetensors"), "-f", "hif4", "-o", path("out.safetensors")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  TempDir dir_{memory_directory()};
};

const std::vector<TestTensor> kTensors{
    {"model.embed.weight", "BF16", {96, 64}}, {"model.w", "F32", {64, 128}}, {"model.norm", "F32", {64}}};

TEST_F(CheckpointProgram, TensorsAreThoseOfSingleArrays) {
  write_checkpoint(path("in.safetensors"), kTensors);
  const Outcome outcome = run(quantize({"--exclude", "embed", "--axis", "0", "--profile", "paper", "--json"}));
  ASSERT_TRUE(succeeds(outcome));
  const std::string words = tensor_bytes(kTensors[1]);
  save(path("w.npy"), DType::kF32, {64, 128}, to_bytes(words));
  const Outcome single = run({"quantize", path("w.npy"), "-f", "hif4", "--axis", "0", "--profile", "paper", "--name",
                              "model.w", "-o", path("w.safetensors"), "--json"});
  ASSERT_TRUE(succeeds(single));
  const auto a = load_packed(path("out.safetensors"), "model.w");
  const auto b = load_packed(path("w.safetensors"), "model.w");
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->codes, b->codes);
  EXPECT_EQ(a->scales, b->scales);
  EXPECT_EQ(a->profile, b->profile);
  EXPECT_EQ(a->axis, b->axis);

  const Json json = outcome.json();
  EXPECT_EQ(json["quantised"], 1);
  EXPECT_EQ(json["copied"], 2);
  EXPECT_EQ(json["profile"], "paper");
  ASSERT_EQ(json["tensors"].size(), 3U);
  EXPECT_EQ(json["tensors"][0]["reason"], "excluded");
  EXPECT_EQ(json["tensors"][1]["error"], single.json()["error"]);
  EXPECT_EQ(json["tensors"][1]["shape"], Json::parse("[64, 128]"));
  EXPECT_EQ(json["tensors"][1]["dtype"], "F32");
  EXPECT_EQ(json["tensors"][1]["bytes"], Json::parse(R"({"before": 32768, "after": 4608})"));
  EXPECT_EQ(json["tensors"][2]["reason"], "1 dimension, fewer than 2");
  EXPECT_EQ(json["bytes"], Json::parse(R"({"before": 45312, "after": 17152})"));

  const Outcome text = run(quantize({"--exclude", "embed"}));
  EXPECT_TRUE(succeeds(text));
  EXPECT_NE(text.out.find("copied: excluded"), std::string::npos);
  EXPECT_NE(text.out.find("1 quantised, 2 copied"), std::string::npos);
}

TEST_F(CheckpointProgram, DryRunWritesNothing) {
  write_checkpoint(path("in.safetensors"), kTensors);
  const Outcome outcome = run({"quantize", path("in.safetensors"), "-f", "mxfp4", "--dry-run"});
  EXPECT_TRUE(succeeds(outcome));
  EXPECT_NE(outcome.out.find("nothing was written"), std::string::npos);
  EXPECT_NE(outcome.out.find("2 quantised, 1 copied"), std::string::npos);
  EXPECT_TRUE(succeeds(run(quantize({"--dry-run", "--include", "norm", "--include", "w"}))));
  EXPECT_EQ(dir_.names(), std::set<std::string>{"in.safetensors"});
  EXPECT_TRUE(refuses({"quantize", path("in.safetensors"), "-f", "hif4"}, "--output is required"));
  EXPECT_TRUE(refuses(quantize({"--name", "x"}), "--name: is for arrays"));
  EXPECT_TRUE(refuses({"quantize", path("w.npy"), "-f", "hif4", "-o", path("x"), "--include", "x"},
                      "--include: is for checkpoints"));
  EXPECT_TRUE(refuses(quantize({"--min-dim", "-1"}), "is no whole number"));
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_TRUE(refuses({"quantize", path("in.safetensors"), "-f", "hif4", "-o", path("fifo")}, "fifo: is no file"));
}

TEST_F(CheckpointProgram, Inspect) {
  write_checkpoint(path("in.safetensors"), kTensors);
  ASSERT_TRUE(succeeds(run(quantize())));
  const Outcome outcome = run({"inspect", path("out.safetensors"), "--against", path("in.safetensors"), "--json"});
  ASSERT_TRUE(succeeds(outcome));
  const Json tensors = outcome.json()["files"][0]["tensors"];
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[0]["format"], "hif4");
  EXPECT_EQ(tensors[0]["profile"], "pto");
  EXPECT_EQ(tensors[0]["shape"], Json::parse("[96, 64]"));
  EXPECT_EQ(tensors[0]["bytes"], 96 * 36);
  EXPECT_GT(tensors[0]["error"]["sqnr_db"], 15.0);
  EXPECT_EQ(tensors[2]["comparison"], "identical");
  save(path("a\x1b[31m.npy"), DType::kF32, {2}, std::vector<float>{1, 2});
  const Outcome several = run({"inspect", path("in.safetensors"), path("a\x1b[31m.npy")});
  EXPECT_TRUE(succeeds(several));
  EXPECT_NE(several.out.find("float32"), std::string::npos);
  EXPECT_NE(several.out.find("\"a\\u001b[31m\""), std::string::npos);
  const Outcome differs = run({"inspect", path("in.safetensors"), "--against", path("a\x1b[31m.npy")});
  EXPECT_EQ(differs.exit, 1);
  EXPECT_TRUE(refuses({"inspect", path("none")}, "none: No such file"));
}

/// Nobody writes to these pipes: a program that opens one waits for ever.
TEST_F(CheckpointProgram, NamedPipes) {
  write_checkpoint(path("in.safetensors"), kTensors);
  write_text(path("index.json"), R"({"weight_map":{"a":"fifo.safetensors"}})");
  const std::string message = ": is a named pipe; a regular file is needed";
  for (const std::string name : {"fifo", "fifo.safetensors", "fifo.npy", "fifo.json"}) {
    ASSERT_EQ(::mkfifo(path(name).c_str(), 0600), 0);
    EXPECT_TRUE(refuses({"inspect", path(name)}, name + message));
    EXPECT_TRUE(refuses({"inspect", path("in.safetensors"), "--against", path(name)}, name + message));
  }
  for (const std::string name : {"fifo.safetensors", "fifo.json"}) {
    EXPECT_TRUE(refuses({"quantize", path(name), "-f", "hif4", "-o", path("out.safetensors")}, name + message));
  }
  EXPECT_TRUE(refuses({"inspect", path("index.json")}, "fifo.safetensors" + message));
  // What the process has open already may be a pipe: there is a writer.
  const std::string shell =
      "cat " + path("in.safetensors") + " | " BITCUBE_PROGRAM " inspect /dev/stdin > " + path("out");
  EXPECT_EQ(std::system(shell.c_str()), 0);
  EXPECT_NE(read_text(path("out")).find("3 tensors"), std::string::npos);
}

/// Every fault is found before an output is begun, and named.
TEST_F(CheckpointProgram, HostileFiles) {
  const auto file = [](std::string_view header, std::string_view data = "", std::uint64_t length = 0) {
    if (length == 0) length = header.size();
    std::string text;
    for (int i = 0; i < 8; ++i) text += static_cast<char>(length >> (8 * i) & 0xFF);
    return text.append(header).append(data);
  };
  const auto entry = [](const std::string& name, const std::string& shape, const std::string& offsets) {
    return '"' + name + R"(":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  const std::string eight(8, 'x');
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += ",1";
  const std::pair<std::string, std::string> cases[] = {
      {file("{}", "", 1000), "the header should be 1000 bytes long, but only 2 bytes follow"},
      {file("{}", "", 100'000'001), "its header would be 100000001 bytes long, and 100000000 is the limit"},
      {file("{" + entry("a", "[1]", "[0,4]") + "," + entry("b", "[1]", "[2,6]") + "}", eight), "overlap"},
      {file("{" + entry("a", "[1]", "[0,4]") + "," + entry("b", "[0]", "[6,6]") + "}", eight),
       "tensor \\\"b\\\" begins at 6"},
      {file("{" + entry("a", "[-1]", "[0,4]") + "}", eight), "tensor \\\"a\\\" must have an array of integers >= 0"},
      {file("{" + entry("a", "[4294967296,4294967296]", "[0,8]") + "}", eight),
       "tensor \\\"a\\\": shape [4294967296, 4294967296] is too large"},
      {file("{" + entry("a", "[3]", "[0,8]") + "}", eight),
       "tensor \\\"a\\\": shape [3] of F32 takes 12 bytes, but there are 8"},
      {file("{" + entry("a", "[2]", "[0,8]") + "," + entry("a", "[2]", "[0,8]") + "}", eight),
       "tensor \\\"a\\\" stands twice"},
      {file("{" + entry("\xFF", "[2]", "[0,8]") + "}", eight), "is not valid JSON"},
      {file("{" + entry("a", "[2]", "[0,16]") + "}", eight),
       "tensor \\\"a\\\": data_offsets [0, 16] reach beyond the 8 bytes"},
      {file("{\"a\":" + std::string(1'000'000, '[')), "tensor \\\"a\\\" must be an object"},
      {file("{\"__metadata__\":{\"bitcube\":\"" + std::string(1'000'000, '[') + "\"}}"), "metadata \\\"bitcube\\\""},
      {file("{" + entry("a", "[1,1" + many + "]", "[0,4]") + "}", eight),
       "tensor \\\"a\\\" has more than 64 dimensions"}};
  for (const auto& [text, message] : cases) {
    write_text(path("in.safetensors"), text);
    for (const bool inspect : {false, true}) {
      const Outcome outcome =
          run(inspect ? Arguments{"inspect", path("in.safetensors"), "--json"} : quantize({"--json"}));
      EXPECT_EQ(outcome.exit, 2) << message;
      EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err.substr(0, 500);
      EXPECT_LT(outcome.err.size(), 2000U);
      EXPECT_EQ(dir_.names(), std::set<std::string>{"in.safetensors"});
    }
  }
}

/// Runs the program and kills it after some time; false if it was faster.
bool killed(const Arguments& arguments, std::chrono::microseconds delay) {
  std::vector<std::string> words{BITCUBE_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  char* const envp[] = {nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int spawned = ::posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), envp);
  ::posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(spawned, 0);
  if (spawned != 0) return false;
  std::this_thread::sleep_for(delay);
  ::kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status);
}

TEST_F(CheckpointProgram, WhatItDoesAgainIsSaid) {
  write_checkpoint(path("in.safetensors"), kTensors);
  ASSERT_TRUE(succeeds(run(quantize())));
  const std::string whole = read_text(path("out.safetensors"));
  auto work = stream::CheckpointQuantizer::plan(path("in.safetensors"), {});
  ASSERT_TRUE(work && work->run(path("out.safetensors")));
  *work = std::move(*stream::CheckpointQuantizer::plan(path("in.safetensors"), {}));
  std::string data = read_text(path("out.safetensors.partial/0.data"));
  data.back() = static_cast<char>(data.back() ^ 1);
  write_text(path("out.safetensors.partial/0.data"), data);
  const Outcome outcome = run(quantize({"--json"}));
  EXPECT_EQ(outcome.exit, 0);
  EXPECT_NE(outcome.err.find("note"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("1 of the finished tensors has not the bytes that were written"), std::string::npos)
      << outcome.err;
  EXPECT_EQ(outcome.json()["resumed"], 2);
  EXPECT_TRUE(read_text(path("out.safetensors")) == whole);
}

TEST_F(CheckpointProgram, KilledAtAnyTime) {
  std::vector<TestTensor> tensors;
  for (int i = 0; i < 24; ++i) {
    tensors.push_back({"w" + std::to_string(i), "BF16", {256, 512}});
    tensors.push_back({"b" + std::to_string(i), "F32", {64}});
  }
  write_checkpoint(path("in.safetensors"), tensors);
  const std::string source = read_text(path("in.safetensors"));
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  ASSERT_TRUE(succeeds(run(quantize({"--threads", "1"}))));
  const auto whole_time = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
  const std::string whole = read_text(path("out.safetensors"));
  std::filesystem::remove(path("out.safetensors"));

  std::mt19937 random(1);
  int kills = 0;
  int partial = 0;  // restarts that found something done
  for (int i = 0; i < 200 && (kills < 15 || partial < 3); ++i) {
    if (killed(quantize({"--threads", "1"}), whole_time * (random() % 1000) / 1000)) {
      ++kills;
      // Either all of the file is there, or nothing.
      if (std::filesystem::exists(path("out.safetensors"))) {
        EXPECT_TRUE(read_text(path("out.safetensors")) == whole);
      }
      const std::string journal = path("out.safetensors.partial/journal");
      if (std::filesystem::exists(journal) && read_text(journal).find("\ndone") != std::string::npos) ++partial;
      if (random() % 3 != 0) continue;  // killed again before it can finish
    }
    std::size_t done = 0;  // lines that a kill has not cut
    if (std::filesystem::exists(path("out.safetensors.partial/0.data"))) {
      const std::string journal = read_text(path("out.safetensors.partial/journal"));
      for (auto at = journal.find("\ndone "); at != std::string::npos; at = journal.find("\ndone ", at + 1)) {
        if (journal.find('\n', at + 1) != std::string::npos) ++done;
      }
    }
    const Outcome outcome = run(quantize({"--threads", "2", "--json"}));
    EXPECT_EQ(outcome.json()["resumed"], done);
    ASSERT_TRUE(succeeds(outcome));
    EXPECT_TRUE(read_text(path("out.safetensors")) == whole) << i;
    EXPECT_EQ(dir_.names(), (std::set<std::string>{"in.safetensors", "out.safetensors"}));
    std::filesystem::remove(path("out.safetensors"));
  }
  EXPECT_GE(kills, 10);
  EXPECT_GE(partial, 3);
  const Outcome last = run(quantize({"--json"}));
  ASSERT_TRUE(succeeds(last));
  EXPECT_TRUE(read_text(path("out.safetensors")) == whole);
  EXPECT_EQ(dir_.names(), (std::set<std::string>{"in.safetensors", "out.safetensors"}));
  EXPECT_TRUE(read_text(path("in.safetensors")) == source);
}

}  // namespace
}  // namespace bitcube::test
