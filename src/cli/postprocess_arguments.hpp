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
  bool relu = false;
  std::string round;
  bool saturate = false;
  std::string profile{pto_profile.name};

  void add_to(CLI::App& command);
};

/// The same looked up in the tables, with the parameters in their carriers.
class ResolvedPostprocess {
 public:
  /// Warns where a scale had to be rounded to FP19.
  static Expected<ResolvedPostprocess> from(const PostprocessArguments& arguments, const Console& console);

  /// Refers to this object.
  PostprocessOptions options() const;
  std::string text() const;
  void describe(Json& json) const;

 private:
  const PreQuantMode* mode_ = &no_quant;
  std::vector<uint64> carriers_;
  Relu relu_ = Relu::none;
  std::optional<Rounding> rounding_;
  bool saturate_ = false;
  const ConversionProfile* profile_ = &pto_profile;
};

}  // namespace bitcube::cli
