// What `quantize` is told, for arrays and for whole checkpoints.
#pragma once

#include <string>
#include <vector>

#include "bitcube/quantize/tensor.hpp"
#include "bitcube/stream/quantize.hpp"
#include "common.hpp"
#include "quote_text.hpp"

namespace bitcube::cli {

/// Types of arrays that are quantised without being told how to read them.
inline constexpr std::string_view kQuantizedArrays = "float16, float32, float64, bfloat16, uint16 (bits of BF16)";

struct QuantizeArguments {
  std::string input;
  std::string format;
  std::int64_t axis = -1;
  std::string profile;
  std::string scale;
  std::string round;
  bool tensor_scale = false;
  std::string source_type;
  std::string output;
  unsigned threads = 0;
  // Of arrays:
  std::string name;
  std::string goldens;
  bool maxima = false;
  // Of checkpoints:
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  std::optional<std::uint64_t> min_dim;
  std::optional<std::uint64_t> min_rank;
  bool dry_run = false;
};

/// The array as it is quantised.
struct QuantizeInput {
  stream::Source source;
  std::string remark;  // how the elements are read
};
Expected<QuantizeInput> describe_input(const NpyArray& array, const QuantizeArguments& arguments);
/// --axis, counted from the last one where it is negative.
Expected<std::size_t> resolve_axis(std::int64_t axis, std::span<const uint64> shape);

/// --format, --axis, --profile, --scale, --round, --tensor-scale and --source-type.
void add_quantize_choices(CLI::App& command, QuantizeArguments& arguments);
/// Format, profile, scale rule and rounding, of which each format takes some.
Expected<QuantizeOptions> resolve(const QuantizeArguments& arguments);
/// --source-type: a float from which tensors are quantised, or nullptr.
Expected<const Format*> resolve_source_type(const QuantizeArguments& arguments);

/// Whether the input is a checkpoint: a .safetensors file, or an index of many.
bool is_checkpoint(const std::string& input);
Expected<Exit> quantize_checkpoint(const QuantizeArguments& arguments, const Console& console);

/// What chose the bits of a packed tensor, by name.
std::string choices_of(const QuantizedTensor& t);
/// The figures of an error, and null for a SQNR that there is not.
Json error_json(const ErrorReport& error);
std::string sqnr_text(const ErrorReport& error);

}  // namespace bitcube::cli
