#include "bitcube/io/shard_index.hpp"

#include <gtest/gtest.h>

#include "io/temp_dir.hpp"

namespace bitcube {
namespace {

using namespace test;
using namespace std::string_literals;

Expected<ShardIndex> parse(std::string_view text) {
  return parse_shard_index(InputFile::from_bytes(to_bytes(text)), "i.json");
}
testing::AssertionResult refused(std::string_view text, const std::string& message) {
  return fails_with(parse(text), "i.json: " + message);
}
/// An index that puts tensor "t" into this file; `file` is JSON.
std::string mapped(const std::string& file) {
  return R"({"weight_map":{"t":)" + file + "}}";
}

TEST(ShardIndex, IsReadAndWritten) {
  const auto index = parse(R"({"weight_map":{"b":"y/1.st","a":"./x.st","c":"y/1.st"},)"
                           R"("metadata":{"total_size":7,"by":{"me":[1,2]}},"more":[{}]})");
  ASSERT_TRUE(succeeds(index));
  EXPECT_EQ(index->weights,
            (std::vector<std::pair<std::string, std::string>>{{"b", "y/1.st"}, {"a", "x.st"}, {"c", "y/1.st"}}));
  EXPECT_EQ(index->files(), (std::vector<std::string>{"y/1.st", "x.st"}));
  const auto text = shard_index_text(*index, 12);
  ASSERT_TRUE(succeeds(text));
  const auto again = parse(*text);
  ASSERT_TRUE(succeeds(again));
  EXPECT_EQ(again->weights, index->weights);
  EXPECT_EQ(again->metadata, R"({"by":{"me":[1,2]},"total_size":12})");
  EXPECT_TRUE(is_shard_index("model.safetensors.index.json"));
  EXPECT_FALSE(is_shard_index("model.safetensors"));
}

TEST(ShardIndex, PathsThatLeaveTheDirectory) {
  const auto out = [](const std::string& path, const std::string& fault) {
    return refused(mapped('"' + path + '"'), R"(tensor "t": the file ")" + path + "\" " + fault);
  };
  const std::string leads_out = "leads out of the directory of the index; it must stay below it";
  EXPECT_TRUE(out("../x", leads_out));
  EXPECT_TRUE(out("a/../../x", leads_out));
  EXPECT_TRUE(out("a/..", leads_out));
  EXPECT_TRUE(out("/etc/passwd", "is absolute; it must be relative to the directory of the index"));
  EXPECT_TRUE(out("", "is empty"));
  EXPECT_TRUE(out("a/", "names no file"));
  EXPECT_TRUE(out(".", "names no file"));
  EXPECT_TRUE(out("a\\u0000b", "holds a zero byte"));
  EXPECT_TRUE(succeeds(parse(mapped(R"("..a/b..")"))));
}

TEST(ShardIndex, FaultyFiles) {
  const std::string no_index = "not an index of shards: it must be a JSON object with an object \"weight_map\"";
  EXPECT_TRUE(refused("", "offset 0: not valid JSON"));
  EXPECT_TRUE(refused("[]", no_index));
  EXPECT_TRUE(refused("{}", no_index));
  EXPECT_TRUE(refused(R"({"weight_map":[]})", no_index));
  EXPECT_TRUE(refused(R"({"weight_map":{}} x)", "offset 18: not valid JSON"));
  EXPECT_TRUE(refused("{}\0"s, "offset 2: not valid JSON: zero byte"));
  EXPECT_TRUE(refused("{\"weight_map\":{\"\xFF\":\"a\"}}", "offset 16: not valid JSON"));
  EXPECT_TRUE(refused(mapped("1"), R"(tensor "t": its file must be a string)"));
  EXPECT_TRUE(refused(mapped("{}"), R"(tensor "t": its file must be a string)"));
  EXPECT_TRUE(refused(mapped(R"(["a"])"), R"(tensor "t": its file must be a string)"));
  EXPECT_TRUE(refused(R"({"weight_map":{"t":"a","t":"a"}})", R"(tensor "t" stands twice)"));
  EXPECT_TRUE(refused(R"({"weight_map":{"t":"a"},"weight_map":{"t":"b"}})", R"(the key "weight_map" stands twice)"));
  EXPECT_TRUE(refused(R"({"metadata":1,"weight_map":{"t":"a"}})", R"("metadata" must be a JSON object)"));
  EXPECT_TRUE(refused(R"({"metadata":)" + std::string(1'000'000, '['), "values are nested deeper than 16 levels"));
  const TempDir dir;
  write_text(dir / "i", "{");
  std::filesystem::resize_file(dir / "i", 100'000'001);
  EXPECT_TRUE(fails_with(read_shard_index(dir / "i"), (dir / "i").string() +
                                                          ": not an index of shards: it has 100000001 bytes, and "
                                                          "100000000 is the limit"));
}

}  // namespace
}  // namespace bitcube
