// Arrays and quantised matrices from files, as the sides of a product.
#pragma once

#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/matrix_operand.hpp"
#include "bitcube/io/npy.hpp"
#include "bitcube/quantize/tensor.hpp"
#include "common.hpp"

namespace bitcube::cli {

/// What the command line says of one side.
struct OperandArguments {
  std::string path;
  std::string type;         // --a-type, --b-type
  std::string scales_path;  // --a-scales, --b-scales
  std::string name;         // of the tensor in a .safetensors file

  /// The options of one side, but for its path.
  void add_to(CLI::App& command, Side side);
};

/// One side of a product with the file that holds its bytes.
class OperandFile {
 public:
  /// Reads a .npy matrix, or a matrix that `bitcube quantize` wrote; the content of the file decides.
  static Expected<OperandFile> load(Side side, const OperandArguments& arguments);

  const Operand& operand() const noexcept { return operand_; }
  /// Cells of a table: file, shape, type.
  std::vector<std::string> describe() const;
  Json json() const;
  /// What the user should know of how the file was read, or an empty text.
  const std::string& remark() const noexcept { return remark_; }

 private:
  Expected<void> load_array(Side side, const OperandArguments& arguments);

  std::string path_;
  std::string remark_;
  std::string origin_;  // what is to be said of the type
  NpyArray array_;
  Buffer<std::byte> lanes_;   // of array_
  Buffer<std::byte> scales_;  // of an array of its own
  QuantizedTensor tensor_;
  bool quantized_ = false;
  std::vector<uint64> shape_;
  Operand operand_;
};

/// A C or bias array: 32-bit words of the accumulator type. `shapes` are those that are accepted.
Expected<std::vector<std::uint32_t>> load_accumulators(std::string_view option, const std::string& path,
                                                       const Format& accumulator,
                                                       std::span<const std::vector<uint64>> shapes);

/// A whole .npy array of accumulators, M x N or N for one row: float32 (FP32), int32 (S32) or uint32 (U32).
Expected<Accumulators> load_accumulator_matrix(const std::string& path);

}  // namespace bitcube::cli
