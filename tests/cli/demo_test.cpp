#include <cmath>

#include "cli/program.hpp"

namespace bitcube::test {
namespace {

/// The demo on the first images of its data: what a test has time for.
class Demo : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path data = std::filesystem::path(BITCUBE_SOURCE_DIR) / "examples/mnist-mlp";
    for (const std::string name : {"w0", "b0", "w1", "b1", "w2", "b2"}) {
      std::filesystem::copy_file(data / (name + ".npy"), dir_ / (name + ".npy"));
    }
    const auto images = elements_of<std::uint8_t>(data / "images.npy", DType::kU8);
    const auto labels = elements_of<std::uint8_t>(data / "labels.npy", DType::kU8);
    ASSERT_EQ(labels.size(), 1000U);
    save(dir_ / "images.npy", DType::kU8, {kCount, 784},
         std::vector<std::uint8_t>(images.begin(), images.begin() + kCount * 784));
    save(dir_ / "labels.npy", DType::kU8, {kCount}, std::vector<std::uint8_t>(labels.begin(), labels.begin() + kCount));
  }

  static constexpr std::ptrdiff_t kCount = 20;
  TempDir dir_;
};

TEST_F(Demo, Json) {
  const Outcome one = run({"demo", "--data", dir_.path(), "--json", "--threads", "1"});
  ASSERT_TRUE(succeeds(one));
  const Json json = one.json();
  for (const std::string key : {"fp32", "hif4", "mxfp4", "mxfp8"}) EXPECT_GE(json["accuracy"][key], 0.9) << key;
  ASSERT_EQ(json["layers"].size(), 3U);
  EXPECT_EQ(json["layers"][0]["k"], 784);
  EXPECT_EQ(json["layers"][0]["activation_groups"], kCount * 13);  // 12 whole groups and a short one
  EXPECT_EQ(json["layers"][0]["weight_groups"], 256 * 13);
  EXPECT_GT(json["layers"][0]["weight_sqnr_db"], 20.0);
  EXPECT_EQ(json["logits_sha256"].get<std::string>().size(), 64U);
  const Outcome two = run({"demo", "--data", dir_.path(), "--json", "--threads", "2"});
  EXPECT_EQ(two.json()["logits_sha256"], json["logits_sha256"]);
}

TEST_F(Demo, Text) {
  const Outcome outcome = run({"demo", "--data", dir_.path()});
  ASSERT_TRUE(succeeds(outcome));
  for (const std::string part : {"HiF4, layer by layer", "█", "HiF4 says ", "accuracy", "MXFP8 (E4M3)", "sha256"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part;
  }
}

TEST_F(Demo, Refuses) {
  EXPECT_TRUE(refuses({"demo", "--data", dir_ / "none"}, "none/images.npy: No such file"));
  save(dir_ / "b1.npy", DType::kF32, {127}, std::vector<float>(127));
  EXPECT_TRUE(refuses({"demo", "--data", dir_.path()}, "b1.npy: float32 127, but the demo needs float32 128"));
  std::filesystem::remove(dir_ / "b1.npy");
  EXPECT_TRUE(refuses({"demo", "--data", dir_.path()}, "b1.npy: No such file"));
}

}  // namespace
}  // namespace bitcube::test
