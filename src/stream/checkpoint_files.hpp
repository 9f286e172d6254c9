// The files of a checkpoint: one .safetensors file, or those that an index names.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bitcube/io/safetensors.hpp"
#include "bitcube/io/shard_index.hpp"

namespace bitcube::stream {

struct CheckpointFile {
  std::string name;  // as the index names it; empty without an index
  std::filesystem::path path;
};

struct CheckpointFiles {
  std::optional<ShardIndex> index;
  std::vector<CheckpointFile> files;
  std::vector<std::string> unlisted;  // tensors of the files that the index does not name
};

/// Reads the header of every file of a checkpoint and gives it to `visit`, in the order of the index; one file is open
/// at a time, for there may be more than a process can have open. Errors: those of the files, a file or a tensor that
/// the index names and that is not there, a tensor in two files.
Expected<CheckpointFiles> visit_checkpoint(
    const std::filesystem::path& path,
    const std::function<Expected<void>(const CheckpointFile& file, Safetensors safetensors)>& visit);

}  // namespace bitcube::stream
