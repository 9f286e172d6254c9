#include "selection.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bitcube/io/safetensors.hpp"
#include "checkpoint_files.hpp"
#include "quote_text.hpp"

namespace bitcube::stream {

Expected<Patterns> Patterns::compile(std::string_view option, const std::vector<std::string>& texts) {
  Patterns out;
  out.option_ = option;
  RE2::Options options(RE2::Quiet);
  for (const std::string& text : texts) {
    out.all_.push_back(std::make_unique<RE2>(text, options));
    if (!out.all_.back()->ok()) {
      return Error{fmt::format("{}: {} is no regular expression of RE2: {}", option, quote_text(text),
                               out.all_.back()->error())};
    }
  }
  out.used_.resize(texts.size());
  return out;
}

bool Patterns::match(const std::string& name) {
  bool any = false;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (!RE2::PartialMatch(name, *all_[i])) continue;
    used_[i] = true;
    any = true;
  }
  return any;
}

void Patterns::report_unused(std::vector<std::string>& warnings) const {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (!used_[i]) warnings.push_back(fmt::format("{} {}: matches no tensor", option_, quote_text(all_[i]->pattern())));
  }
}

const Format* float_of(std::string_view dtype) noexcept {
  if (dtype == "F64") return &fp64;
  if (dtype == "F32") return &fp32;
  if (dtype == "F16") return &fp16;
  if (dtype == "BF16") return &bf16;
  return nullptr;
}

std::string unfit(std::string_view dtype, std::span<const std::uint64_t> shape, std::uint64_t min_rank,
                  std::uint64_t min_dim) {
  if (!safetensors_bits(dtype)) return "unknown type";
  if (float_of(dtype) == nullptr) return fmt::format("{} is not quantised", dtype);
  if (shape.size() < min_rank) {
    return fmt::format("{} dimension{}, fewer than {}", shape.size(), shape.size() == 1 ? "" : "s", min_rank);
  }
  if (shape.empty()) return "a scalar";
  const std::uint64_t least = *std::ranges::min_element(shape);
  if (least < min_dim) return fmt::format("dimension {} < {}", least, min_dim);
  return {};
}

}  // namespace bitcube::stream
