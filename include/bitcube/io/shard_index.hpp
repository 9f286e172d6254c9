// model.safetensors.index.json: which file of a sharded checkpoint holds which tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/io/file.hpp"

namespace bitcube {

/// An index that was read, and found to be without fault: every tensor stands once, and every file is a relative path
/// that stays below the directory of the index.
struct ShardIndex {
  std::string metadata;                                      // a JSON object, as text; empty if there is none
  std::vector<std::pair<std::string, std::string>> weights;  // tensor and file, in the order of the index

  /// The files, each once, in the order in which they are named first.
  std::vector<std::string> files() const;
};

/// Whether a path looks like an index, by its ending .json.
bool is_shard_index(const std::filesystem::path& path);

Expected<ShardIndex> read_shard_index(const std::filesystem::path& path);
/// The same for a file that is open already; `name` is for messages.
Expected<ShardIndex> parse_shard_index(const InputFile& file, std::string_view name);

/// The text of an index file; `total_size`, the bytes of all tensors, replaces that of the metadata.
Expected<std::string> shard_index_text(const ShardIndex& index, std::uint64_t total_size);

}  // namespace bitcube
