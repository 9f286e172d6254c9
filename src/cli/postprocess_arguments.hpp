// The options of the post-process, the same in every command that has one.
#pragma once

#include "bitcube/cube/postprocess_matrix.hpp"
#include "common.hpp"

namespace bitcube::cli {

/// What the command line says, as it says it.
struct PostprocessArguments {
  std::string pre_quant{no_quant.name};
  std::string scale;
  std::optional<int64> offset;
  std::string quant_params;  // .npy with a carrier per column
  bool relu = false;
  std::string relu_param;  // a number, a carrier, or a .npy with a carrier per column
  std::string round;
  bool saturate = false;
  std::string profile{pto_profile.name};
  std::string row_max;    // .npy to write
  std::string group_max;  // N:.npy to write
  std::string row_max_init;
  bool max_abs = false;
  bool packed = false;

  void add_to(CLI::App& command);
  /// Only what decides D: no reductions and no files to write.
  void add_result_to(CLI::App& command);
  /// The files that are read.
  std::vector<std::string> inputs() const;
};

/// The same looked up in the tables, with the parameters in their carriers.
class ResolvedPostprocess {
 public:
  /// Warns where a scale had to be rounded to FP19. RowMaxIn is read as words of the accumulator, one per row.
  static Expected<ResolvedPostprocess> from(const PostprocessArguments& arguments, const Format& accumulator,
                                            std::size_t rows, const Console& console);

  /// Refers to this object.
  PostprocessOptions options() const;
  std::string text() const;
  void describe(Json& json) const;

 private:
  Expected<void> read_quantisation(const PostprocessArguments& arguments, const Console& console);
  Expected<void> read_activation(const PostprocessArguments& arguments, const Console& console);

  const PreQuantMode* mode_ = &no_quant;
  std::vector<uint64> carriers_;
  Relu relu_ = Relu::none;
  std::vector<uint64> alphas_;
  std::optional<Rounding> rounding_;
  bool saturate_ = false;
  const ConversionProfile* profile_ = &pto_profile;
  bool row_max_ = false;
  unsigned group_n_ = 0;
  bool max_abs_ = false;
  std::optional<std::vector<std::uint32_t>> row_max_init_;
};

/// "N:PATH" of --group-max.
struct GroupMaxArgument {
  unsigned n;
  std::string path;
};
Expected<GroupMaxArgument> parse_group_max(std::string_view text);

}  // namespace bitcube::cli
