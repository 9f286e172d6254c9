// The operands, C, bias and accumulation of a product, the same in every command that has one.
#pragma once

#include "bitcube/cube/matmul.hpp"
#include "operand_file.hpp"

namespace bitcube::cli {

/// What the command line says, as it says it.
struct ProductArguments {
  OperandArguments a;
  OperandArguments b;
  std::string bias;
  std::string c;
  std::string accumulate{accumulation_profiles.front().name};

  void add_to(CLI::App& command);
  /// The files that are read.
  std::vector<std::string> inputs() const;
  /// What they have together.
  std::uint64_t bytes() const;
};

/// The same from the files.
class ProductInput {
 public:
  /// Says how a file was read where that needs a remark. Errors: also files that are larger than --max-memory.
  static Expected<ProductInput> load(const ProductArguments& arguments, const Console& console);

  const OperandFile& a() const noexcept { return a_; }
  const OperandFile& b() const noexcept { return b_; }
  const AccumulationProfile& profile() const noexcept { return *profile_; }
  const Format& accumulator() const noexcept { return *accumulator_; }
  std::size_t rows() const noexcept { return a_.operand().lines; }
  std::size_t cols() const noexcept { return b_.operand().lines; }
  /// Refers to this object.
  MatmulOptions options() const;

 private:
  OperandFile a_;
  OperandFile b_;
  const AccumulationProfile* profile_ = nullptr;
  const Format* accumulator_ = nullptr;
  std::optional<std::vector<std::uint32_t>> c_;
  std::optional<std::vector<std::uint32_t>> bias_;
};

}  // namespace bitcube::cli
