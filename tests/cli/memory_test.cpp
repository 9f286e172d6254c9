// Files larger than the memory that the commands may take. Their inputs are sparse, so they take no room on the disk.
#include <sys/stat.h>

#include <thread>

#include "bitcube/io/packed.hpp"
#include "cli/program.hpp"

namespace bitcube::test {
namespace {

constexpr long kPromised = 300 * 1000;  // KiB
constexpr long kLimit = 215 * 1000;     // a window, the program itself and many threads

class Memory : public testing::Test {
 protected:
  /// A .npy file of zeros.
  std::string zeros(DType dtype, const std::vector<std::uint64_t>& shape, long too_much = kPromised) const {
    const std::string path = dir_ / "zeros.npy";
    const std::string header = npy_header(dtype, shape);
    write_text(path, header);
    std::uint64_t bytes = dtype_size(dtype);
    for (const std::uint64_t extent : shape) bytes *= extent;
    EXPECT_GT(bytes / 1024, too_much) << "would fit into the memory";
    std::filesystem::resize_file(path, header.size() + bytes);
    return path;
  }

  TempDir dir_;
};

TEST_F(Memory, QuantizeAlongTheLastAxisAndTheFirst) {
  const std::string input = zeros(DType::kF64, {5120, 8192});
  for (const std::string axis : {"0", "1"}) {
    const Outcome outcome =
        run({"quantize", input, "--format", "hif4", "--axis", axis, "-o", dir_ / "w.safetensors", "--json"});
    EXPECT_TRUE(succeeds(outcome));
    EXPECT_EQ(outcome.json()["bytes"]["codes"], 5120 * 8192 / 2);
    EXPECT_LT(outcome.max_rss, kLimit) << "axis " << axis;
  }
}

TEST_F(Memory, QuantizeRoundedElements) {
  const std::string input = zeros(DType::kF64, {5120, 8192});
  const Outcome outcome = run({"quantize", input, "--format", "nvfp4", "--tensor-scale", "--source-type", "fp32",
                               "--axis", "0", "-o", dir_ / "w.safetensors"});
  EXPECT_TRUE(succeeds(outcome));
  EXPECT_LT(outcome.max_rss, kLimit);
}

TEST_F(Memory, Convert) {
  const std::string input = zeros(DType::kF64, {5120, 8192});
  const Outcome outcome = run({"convert", input, "--to", "e4m3", "-o", dir_ / "y.npy", "--json"});
  EXPECT_TRUE(succeeds(outcome));
  EXPECT_EQ(outcome.json()["count"], 5120 * 8192);
  EXPECT_LT(outcome.max_rss, kLimit);
}

TEST_F(Memory, QuantizeACheckpoint) {
  std::string header = R"({"a":{"dtype":"F64","shape":[5120,8192],"data_offsets":[0,335544320]},)"
                       R"("b":{"dtype":"U8","shape":[8388608],"data_offsets":[335544320,343932928]}})";
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  write_text(dir_ / "in.safetensors", file + header);
  std::filesystem::resize_file(dir_ / "in.safetensors", 8 + header.size() + 343932928);
  for (const std::string axis : {"0", "1"}) {
    const Outcome outcome = run(
        {"quantize", dir_ / "in.safetensors", "-f", "hif4", "--axis", axis, "-o", dir_ / "out.safetensors", "--json"});
    EXPECT_TRUE(succeeds(outcome));
    EXPECT_EQ(outcome.json()["quantised"], 1);
    EXPECT_LT(outcome.max_rss, kLimit) << "axis " << axis;
  }
  const Outcome outcome = run({"inspect", dir_ / "out.safetensors", "--against", dir_ / "in.safetensors", "--json"});
  EXPECT_TRUE(succeeds(outcome));
  EXPECT_LT(outcome.max_rss, kLimit);
}

TEST_F(Memory, Dequantize) {
  const std::vector<std::uint64_t> shape{5120, 8192};
  for (const std::size_t axis : {std::size_t{0}, std::size_t{1}}) {
    QuantizedTensor tensor;
    tensor.profile = find_hif4_profile("pto");
    tensor.shape = shape;
    tensor.axis = axis;
    const auto plan = plan_packed("w", "w", tensor);
    ASSERT_TRUE(succeeds(plan));
    write_text(dir_ / "w", plan->header);
    std::filesystem::resize_file(dir_ / "w", plan->file_size());
    // What comes out is counted and forgotten.
    const std::string fifo = dir_ / ("out" + std::to_string(axis));
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    std::uint64_t size = 0;
    std::thread reader([&] {
      std::ifstream stream(fifo, std::ios::binary);
      std::vector<char> piece(1 << 16);
      while (stream.read(piece.data(), static_cast<std::streamsize>(piece.size())), stream.gcount() > 0) {
        size += static_cast<std::uint64_t>(stream.gcount());
      }
    });
    const Outcome outcome = run({"dequantize", dir_ / "w", "--to", "fp64", "-o", fifo, "--json"});
    reader.join();
    EXPECT_TRUE(succeeds(outcome));
    EXPECT_EQ(size, npy_header(DType::kF64, shape).size() + 8 * 5120 * 8192);
    EXPECT_LT(outcome.max_rss, kLimit) << "axis " << axis;
  }
}

// --max-memory
TEST_F(Memory, TheLimitHolds) {
  const std::string input = zeros(DType::kF64, {2048, 8192}, 96 * 1024);
  const Arguments quantize{"quantize", input, "--format", "hif4", "--axis", "0", "-o", dir_ / "w.safetensors"};
  Arguments limited = quantize;
  limited.insert(limited.end(), {"--max-memory", "96M"});
  const Outcome outcome = run(limited);
  EXPECT_TRUE(succeeds(outcome));
  EXPECT_LT(outcome.max_rss, 96 * 1024);
  const std::string bytes = read_text(dir_ / "w.safetensors");
  EXPECT_TRUE(succeeds(run(quantize)));
  EXPECT_TRUE(read_text(dir_ / "w.safetensors") == bytes);
}

TEST_F(Memory, WhatNeedsMoreSaysHowMuch) {
  const std::string a = zeros(DType::kF32, {5000, 16'000});
  EXPECT_TRUE(refuses({"matmul", a, a, "--max-memory", "256M", "-o", dir_ / "d.npy"},
                      "reading the operands takes about 675 MiB, more than the 256 MiB of --max-memory"));
  write_text(dir_ / "c.npy", npy_header(DType::kF32, std::vector<std::uint64_t>{20'000, 1}) + std::string(80'000, 0));
  write_text(dir_ / "r.npy", npy_header(DType::kF32, std::vector<std::uint64_t>{1, 20'000}) + std::string(80'000, 0));
  EXPECT_TRUE(refuses({"matmul", dir_ / "c.npy", dir_ / "r.npy", "--max-memory", "2G", "-o", dir_ / "d.npy"},
                      "matmul with M = 20000, N = 20000, K = 1 takes about 3132 MiB, more than the 2048 MiB of "
                      "--max-memory"));
  EXPECT_TRUE(refuses({"postprocess", a, "--max-memory", "400M", "-o", dir_ / "d.npy"},
                      "postprocess of 5000 x 16000 takes about 675 MiB, more than the 400 MiB of --max-memory"));
  EXPECT_TRUE(refuses({"diff", a, a, "--from-array", a, "--to", "fp32", "--max-memory", "900M", "--report", dir_ / "d"},
                      "diff of " + a + " and " + a + " takes about 996 MiB, more than the 900 MiB of --max-memory"));
  EXPECT_TRUE(refuses({"explain", "quantize", a, "-f", "hif4", "--at", "0,0", "--max-memory", "256M"},
                      "reading " + a + " takes about 370 MiB, more than the 256 MiB of --max-memory"));
  EXPECT_EQ(dir_.names(), (std::set<std::string>{"zeros.npy", "c.npy", "r.npy"}));
  for (const std::string bad : {"-1", "2X", "G", "1.5G", "18446744073709551616", "99999999999T"}) {
    EXPECT_TRUE(refuses({"convert", "--to", "e4m3", "1", "--max-memory=" + bad}, "is no size")) << bad;
  }
  EXPECT_TRUE(refuses({"convert", "--to", "e4m3", "1", "--max-memory", "64M"},
                      "64M is too little for the program itself; at least 96M"));
}

TEST_F(Memory, ProgramsAndExplanationsAreHeldToTheLimit) {
  const std::string words = dir_ / "words.bin";
  write_text(words, "");
  std::filesystem::resize_file(words, 60'000'000);
  const std::string text = dir_ / "lines.s";
  write_text(text, std::string(60'000'000, '\n'));
  const std::string big = zeros(DType::kF32, {8192, 16'384});
  const std::string none = "not enough memory";
  const std::vector<std::pair<Arguments, std::string>> cases{
      {{"asm", text}, none},
      {{"disasm", words}, none},
      {{"run", text}, none},
      {{"explain", "fault", words}, none},
      {{"explain", "matmul", big, big, "--at", "0,0"}, "reading the operands takes about 1089 MiB"},
      {{"explain", "postprocess", big, "--at", "0,0"}, "postprocess of 8192 x 16384 takes about 1088 MiB"},
  };
  for (const auto& [command, message] : cases) {
    Arguments limited = command;
    limited.insert(limited.end(), {"--max-memory", "96M"});
    EXPECT_TRUE(refuses(limited, message)) << command[0] << " " << command[1];
  }
}

// ulimit -v. The program and its libraries take 30 MiB or so of addresses, and each thread 8 MiB or more.
TEST_F(Memory, AddressesThatRunOut) {
  const std::string input = zeros(DType::kF32, {16 * 1024, 1024}, 60 * 1024);
  write_text(dir_ / "b.npy", npy_header(DType::kF32, std::vector<std::uint64_t>{1024, 1}) + std::string(4096, '\0'));
  const std::set<std::string> names = dir_.names();
  std::size_t refused = 0;
  std::size_t finished = 0;
  for (const int mebibytes : {40, 80, 1024}) {
    for (const Arguments& command :
         {Arguments{"quantize", input, "-f", "hif4", "--axis", "0"}, Arguments{"convert", input, "--to", "e4m3"},
          Arguments{"matmul", input, dir_ / "b.npy"}, Arguments{"postprocess", input}, Arguments{"diff", input, input},
          Arguments{"report", input, "--formats", "hif4"}}) {
      std::string line = "ulimit -v " + std::to_string(mebibytes * 1024) + "; exec " BITCUBE_PROGRAM;
      for (const std::string& word : command) line += " " + word;
      line += (command[0] == "diff" ? " --report " : " -o ") + std::string(dir_ / "out");
      const Outcome outcome = run_shell(line);
      if (outcome.exit == 0) {
        ++finished;
        EXPECT_TRUE(std::filesystem::remove(dir_ / "out")) << line;
        continue;
      }
      ++refused;
      EXPECT_EQ(outcome.exit, 2) << line << ": " << outcome.err;
      EXPECT_TRUE(outcome.err.starts_with("bitcube: error: ")) << line << ": " << outcome.err;
      EXPECT_NE(outcome.err.find("not enough memory"), std::string::npos) << line << ": " << outcome.err;
      EXPECT_EQ(dir_.names(), names) << line;
    }
  }
  EXPECT_GE(refused, 6U);
  EXPECT_GE(finished, 6U);
}

}  // namespace
}  // namespace bitcube::test
