// From accumulators to D, its reductions, their files and the report: what matmul and postprocess share.
#pragma once

#include <array>

#include "postprocess_arguments.hpp"

namespace bitcube::cli {

class PostprocessRun {
 public:
  /// Checks everything that can be checked before the accumulators exist, and starts the output files. `output` may be
  /// empty: then D is only described. `inputs` are files that must not be overwritten.
  static Expected<PostprocessRun> prepare(const PostprocessArguments& arguments, const std::string& output,
                                          std::vector<std::string> inputs, const Format& accumulator, std::size_t rows,
                                          std::size_t cols, const Console& console);

  /// What was asked for. Refers to this object.
  PostprocessOptions options() const { return resolved_.options(); }
  /// Fills the files with the result.
  Expected<void> take(Postprocessed result);

  /// Prints what went in, D and the time, as text or as JSON; then all files appear, or none. `json`, `sides` and
  /// `facts` say what the caller knows of the inputs.
  Expected<void> report(const Console& console, Json json, TextTable sides, TextTable facts, double seconds);

 private:
  struct File {
    std::string what;  // "d", "row_max" or "group_max"
    std::string path;
    std::optional<OutputFile> file;
    std::string sha256;
    std::vector<uint64> shape;
  };

  /// Cells that describe D: file, shape, type.
  std::vector<std::string> cells() const;
  void describe(TextTable& facts) const;
  void describe(Json& json) const;
  /// D in decimal, where it is small.
  std::string preview() const;
  Expected<void> commit();
  Expected<void> fill(File& file, DType dtype, std::span<const std::byte> payload);

  ResolvedPostprocess resolved_;
  bool packed_ = false;
  std::vector<File> files_;  // D first, also without a path
  DType dtype_{};
  Postprocessed result_;
};

}  // namespace bitcube::cli
