// Bytes as model.safetensors.index.json: what is accepted names files below its directory only, and is the same when it
// is written again.
#include <filesystem>

#include "bitcube/io/shard_index.hpp"
#include "input.hpp"

using namespace bitcube;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto index = parse_shard_index(InputFile::from_bytes(fuzz::bytes_of(data, size)), "index.json");
  if (!index) {
    fuzz::require(index.error().message.starts_with("index.json: "), "an error names the file");
    return 0;
  }
  for (const std::string& name : index->files()) {
    const std::filesystem::path path(name);
    fuzz::require(path.is_relative() && *path.lexically_normal().begin() != "..",
                  "a file is below the directory of the index");
  }
  const auto text = shard_index_text(*index, 12345);
  fuzz::require_result(text, "an index that was read is written");
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text->data());
  const auto again = parse_shard_index(InputFile::from_bytes(fuzz::bytes_of(bytes, text->size())), "again.json");
  fuzz::require_result(again, "an index that was written is read");
  fuzz::require(again->weights == index->weights, "with the same tensors in the same files");
  const auto same = shard_index_text(*again, 12345);
  fuzz::require(same && *same == *text, "equal indices have the same text");
  return 0;
}
