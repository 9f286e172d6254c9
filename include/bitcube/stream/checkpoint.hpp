// Whole checkpoints in a block format: a .safetensors file, or all files of a model.safetensors.index.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/io/safetensors.hpp"
#include "bitcube/quantize/tensor.hpp"
#include "bitcube/stream/window.hpp"

namespace bitcube::stream {

/// Which tensors are quantised, and how. A tensor is selected if its type is F64, F32, F16 or BF16, if it has enough
/// dimensions and each of them is large enough, and if its name matches one of `include` (if there are any) and none of
/// `exclude`. Patterns are those of RE2, which takes linear time whatever pattern and name are; they match anywhere in
/// the name.
struct CheckpointOptions {
  QuantizeOptions quantize{};
  std::int64_t axis = -1;               // negative: from the last one
  const Format* source_type = nullptr;  // elements are rounded to this float first; nullptr: not
  std::vector<std::string> include{};
  std::vector<std::string> exclude{};
  uint64 min_rank = 2;
  uint64 min_dim = 64;
};

/// A tensor of the source, and what becomes of it.
struct CheckpointTensor {
  std::string file;                // the shard, as the index names it; empty without an index
  SafetensorsTensor tensor;        // as it is in the source
  const Format* source = nullptr;  // what is quantised; nullptr: it is copied
  std::string reason;              // why it is copied
  std::uint64_t bytes = 0;         // that it takes in the result
};

struct CheckpointResult {
  ErrorReport error;
  Flags rounding_flags = Flags::none;  // of the rounding to CheckpointOptions::source_type
  std::optional<std::uint32_t> tensor_scale;
  bool resumed = false;  // an earlier run has done it
};

/// The work on a checkpoint: plan(), run(), commit(). Quantised tensors are those of stream::quantize(), all others are
/// copied bit for bit; the bytes of the result depend on nothing but source and options.
///
/// Until commit() all is in a directory OUTPUT.partial beside the output (of an index: beside the new index). When the
/// process is killed, the next run with the same source and options goes on with the tensors that are missing, and does
/// again those whose bytes are no longer what was written; with others, and where a source has changed, it starts anew.
/// Each file appears complete or not at all, the index last.
///
/// The team of options.quantize.execution shares the work, on a file system that all see: each rank writes its tensors
/// where they belong, rank 0 writes the headers and puts the files in place. Any number of ranks can go on with what
/// any other number has left. A tensor that several ranks share is finished when all are; until then a kill loses it.
class CheckpointQuantizer {
 public:
  /// Reads and checks all headers; nothing is written.
  static Expected<CheckpointQuantizer> plan(const std::filesystem::path& path, const CheckpointOptions& options);

  CheckpointQuantizer(CheckpointQuantizer&&) noexcept;
  CheckpointQuantizer& operator=(CheckpointQuantizer&&) noexcept;
  ~CheckpointQuantizer();

  /// In the order of the files and their headers.
  const std::vector<CheckpointTensor>& tensors() const noexcept;
  /// What is odd, but no error: types that the specification does not know, patterns that match nothing.
  const std::vector<std::string>& warnings() const noexcept;
  /// What run() found of an earlier run that could not be used, though it should: damaged bytes or journals.
  const std::vector<std::string>& notes() const noexcept;
  /// Whether the source is an index; the output is then a directory.
  bool is_sharded() const noexcept;

  /// Does what is left to do, with the threads and the progress of options.quantize.execution. The results are those of
  /// the tensors; of copied ones they are empty. After an error what is finished is kept, unless a source has changed.
  Expected<std::vector<CheckpointResult>> run(const std::filesystem::path& output, std::size_t window = kWindow);
  /// Puts the files in place. Once, after run().
  Expected<void> commit();

 private:
  struct Impl;
  explicit CheckpointQuantizer(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bitcube::stream
