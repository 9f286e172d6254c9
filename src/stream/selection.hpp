// Which tensors are quantised: patterns of names, and what a tensor must be.
#pragma once

#include <re2/re2.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/numeric/format.hpp"

namespace bitcube::stream {

/// The patterns of an option. They are compiled once.
class Patterns {
 public:
  static Expected<Patterns> compile(std::string_view option, const std::vector<std::string>& texts);

  bool empty() const noexcept { return all_.empty(); }
  /// Whether one of them is found in the name. All are tried, to know which are never found.
  bool match(const std::string& name);
  void report_unused(std::vector<std::string>& warnings) const;

 private:
  std::string option_;
  std::vector<std::unique_ptr<RE2>> all_;
  std::vector<bool> used_;
};

/// The float that a type of .safetensors files names, if tensors of it are quantised; else nullptr.
const Format* float_of(std::string_view dtype) noexcept;

/// Why a tensor of a .safetensors file is not quantised, or "".
std::string unfit(std::string_view dtype, std::span<const std::uint64_t> shape, std::uint64_t min_rank,
                  std::uint64_t min_dim);

}  // namespace bitcube::stream
