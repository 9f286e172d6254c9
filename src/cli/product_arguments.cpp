#include "product_arguments.hpp"

#include <array>
#include <utility>

namespace bitcube::cli {

void ProductArguments::add_to(CLI::App& command) {
  command.add_option("A", a.path, "M x K: a .npy array, or what bitcube quantize --axis 1 wrote")
      ->type_name("A.npy|A.safetensors")
      ->required();
  command.add_option("B", b.path, "K x N: a .npy array, or what bitcube quantize --axis 0 wrote")
      ->type_name("B.npy|B.safetensors")
      ->required();
  command.add_option("--bias", bias, "N or 1 x N accumulators: float32, int32 or uint32")->type_name("b.npy");
  command.add_option("--c", c, "M x N accumulators to start from; default: +0")->type_name("C.npy");
  command.add_option("--accumulate", accumulate, "Accumulation profile; default: fma")
      ->type_name(choices(accumulation_profiles));
  a.add_to(command, Side::a);
  b.add_to(command, Side::b);
}

std::vector<std::string> ProductArguments::inputs() const {
  return {a.path, b.path, bias, c, a.scales_path, b.scales_path};
}

std::uint64_t ProductArguments::bytes() const {
  std::uint64_t sum = 0;
  for (const std::string& path : inputs()) sum += file_bytes(path);
  return sum;
}

Expected<ProductInput> ProductInput::load(const ProductArguments& arguments, const Console& console) {
  ProductInput out;
  const auto profile = look_up("--accumulate", arguments.accumulate, accumulation_profiles, find_accumulation_profile);
  if (!profile) return profile.error();
  out.profile_ = *profile;
  // They are in memory before their sizes can be compared.
  if (auto fits = check_memory("reading the operands", arguments.bytes()); !fits) return fits.error();
  auto a = OperandFile::load(Side::a, arguments.a);
  if (!a) return a.error();
  out.a_ = std::move(*a);
  auto b = OperandFile::load(Side::b, arguments.b);
  if (!b) return b.error();
  out.b_ = std::move(*b);
  for (const OperandFile* side : {&out.a_, &out.b_}) {
    if (!side->remark().empty()) console.note(side->remark());
  }
  const auto kind = product_kind(out.a_.operand(), out.b_.operand());
  if (!kind) return kind.error();
  out.accumulator_ = kind->accumulator;
  const std::size_t rows = out.rows();
  const std::size_t cols = out.cols();
  if (!arguments.c.empty()) {
    const std::array<std::vector<uint64>, 1> shapes{{{rows, cols}}};
    auto words = load_accumulators("--c", arguments.c, *out.accumulator_, shapes);
    if (!words) return words.error();
    out.c_ = std::move(*words);
  }
  if (!arguments.bias.empty()) {
    const std::array<std::vector<uint64>, 2> shapes{{{cols}, {1, cols}}};
    auto words = load_accumulators("--bias", arguments.bias, *out.accumulator_, shapes);
    if (!words) return words.error();
    out.bias_ = std::move(*words);
  }
  return out;
}

MatmulOptions ProductInput::options() const {
  MatmulOptions options;
  options.profile = profile_;
  if (c_) options.c = *c_;
  if (bias_) options.bias = *bias_;
  return options;
}

}  // namespace bitcube::cli
