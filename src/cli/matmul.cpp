// bitcube matmul: A * B + C + bias, and the post-process.
#include <filesystem>
#include <limits>
#include <utility>

#include "bitcube/cube/matmul.hpp"
#include "commands.hpp"
#include "operand_file.hpp"
#include "postprocess_run.hpp"

namespace bitcube::cli {
namespace {

struct Options {
  OperandArguments a;
  OperandArguments b;
  std::string bias;
  std::string c;
  std::string accumulate{accumulation_profiles.front().name};
  PostprocessArguments postprocess;
  std::string output;
  unsigned threads = 0;
};

/// Bytes of a regular file, or 0.
std::uint64_t file_bytes(const std::string& text) {
  std::error_code ignored;
  const std::filesystem::path path = array_path(text);
  if (!std::filesystem::is_regular_file(path, ignored)) return 0;
  const auto size = std::filesystem::file_size(path, ignored);
  return ignored ? 0 : size;
}

/// Both operands are in memory before their sizes can be compared, so these are checked by themselves.
std::uint64_t operand_bytes(const Options& options) {
  return file_bytes(options.a.path) + file_bytes(options.b.path) + file_bytes(options.a.scales_path) +
         file_bytes(options.b.scales_path);
}

/// All that is there at the end: operands, C, accumulators, D and the workspace (docs/performance.md).
Expected<void> check_product_memory(const Options& options, std::uint64_t m, std::uint64_t n, std::uint64_t k) {
  std::uint64_t elements = 0;  // 4 bytes each for the accumulators and at most 4 for D
  std::uint64_t results = 0;
  if (__builtin_mul_overflow(m, n, &elements) || __builtin_mul_overflow(elements, std::uint64_t{8}, &results)) {
    results = std::numeric_limits<std::uint64_t>::max() / 2;
  }
  constexpr std::uint64_t kWorkspace = std::uint64_t{16} << 20;
  return check_memory(fmt::format("matmul with M = {}, N = {}, K = {}", m, n, k),
                      operand_bytes(options) + file_bytes(options.c) + file_bytes(options.bias) + results + kWorkspace);
}

Expected<Exit> run(const Options& options, const Console& console) {
  const auto profile = look_up("--accumulate", options.accumulate, accumulation_profiles, find_accumulation_profile);
  if (!profile) return profile.error();
  if (auto fits = check_memory("matmul: reading both operands", operand_bytes(options)); !fits) return fits.error();
  const auto a = OperandFile::load(Side::a, options.a);
  if (!a) return a.error();
  const auto b = OperandFile::load(Side::b, options.b);
  if (!b) return b.error();
  for (const OperandFile* side : {&*a, &*b}) {
    if (!side->remark().empty()) console.note(side->remark());
  }
  const auto kind = product_kind(a->operand(), b->operand());
  if (!kind) return kind.error();
  const std::size_t rows = a->operand().lines;
  const std::size_t cols = b->operand().lines;
  if (auto fits = check_product_memory(options, rows, cols, a->operand().k); !fits) return fits.error();

  const Format& accumulator = *kind->accumulator;
  MatmulOptions product;
  product.profile = *profile;
  std::vector<std::uint32_t> c;
  std::vector<std::uint32_t> bias;
  if (!options.c.empty()) {
    const std::array<std::vector<uint64>, 1> shapes{{{rows, cols}}};
    auto words = load_accumulators("--c", options.c, accumulator, shapes);
    if (!words) return words.error();
    c = std::move(*words);
    product.c = c;
  }
  if (!options.bias.empty()) {
    const std::array<std::vector<uint64>, 2> shapes{{{cols}, {1, cols}}};
    auto words = load_accumulators("--bias", options.bias, accumulator, shapes);
    if (!words) return words.error();
    bias = std::move(*words);
    product.bias = bias;
  }
  auto finish = PostprocessRun::prepare(
      options.postprocess, options.output,
      {options.a.path, options.b.path, options.bias, options.c, options.a.scales_path, options.b.scales_path},
      accumulator, rows, cols, console);
  if (!finish) return finish.error();

  const Stopwatch clock;
  ProgressBar bar("matmul");
  product.execution = execution_of(options.threads, bar.callback());
  const auto accumulators = matmul(a->operand(), b->operand(), product);
  if (!accumulators) return accumulators.error();
  if (auto done = finish->run(*accumulators, execution_of(options.threads)); !done) return done.error();
  const double seconds = clock.seconds();

  Json json{{"m", rows}, {"n", cols}, {"k", a->operand().k}, {"a", a->json()}, {"b", b->json()}};
  json["profile"] = (*profile)->name;
  json["accumulator"] = accumulator.name;
  TextTable sides;
  for (const auto& [name, file] : {std::pair{"A", &*a}, std::pair{"B", &*b}}) {
    std::vector<std::string> cells = file->describe();
    cells.insert(cells.begin(), name);
    sides.add(std::move(cells));
  }
  TextTable facts;
  facts.add(
      {"product", fmt::format("{}, {} accumulator, K = {}{}{}", (*profile)->name, accumulator.name, a->operand().k,
                              options.c.empty() ? "" : ", C", options.bias.empty() ? "" : ", bias")});
  if (auto done = finish->report(console, std::move(json), std::move(sides), std::move(facts), seconds); !done) {
    return done.error();
  }
  return Exit::success;
}

}  // namespace

void add_matmul(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("matmul", "Multiply two matrices as the CUBE does");
  const auto options = std::make_shared<Options>();
  command.add_option("A", options->a.path, "M x K: a .npy array, or what bitcube quantize --axis 1 wrote")
      ->type_name("A.npy|A.safetensors")
      ->required();
  command.add_option("B", options->b.path, "K x N: a .npy array, or what bitcube quantize --axis 0 wrote")
      ->type_name("B.npy|B.safetensors")
      ->required();
  command.add_option("-o,--output", options->output, "D as a .npy array; without it the result is only described")
      ->type_name("D.npy");
  command.add_option("--bias", options->bias, "N or 1 x N accumulators: float32, int32 or uint32")->type_name("b.npy");
  command.add_option("--c", options->c, "M x N accumulators to start from; default: +0")->type_name("C.npy");
  command.add_option("--accumulate", options->accumulate, "Accumulation profile; default: fma")
      ->type_name(choices(accumulation_profiles));
  options->postprocess.add_to(command);
  for (const auto& [arguments, letter] : {std::pair{&options->a, 'a'}, std::pair{&options->b, 'b'}}) {
    const std::string group = "Operands";
    command
        .add_option(fmt::format("--{}-type", letter), arguments->type,
                    "Elements are codes of this format, one lane each")
        ->type_name("TYPE")
        ->group(group);
    command
        .add_option(fmt::format("--{}-scales", letter), arguments->scales_path,
                    letter == 'a' ? "Scale per group of K: M x groups, uint8 (E8M0), uint32 (HiF4)"
                                  : "Scale per group of K: groups x N, uint8 (E8M0), uint32 (HiF4)")
        ->type_name("s.npy")
        ->group(group);
    command
        .add_option(fmt::format("--{}-name", letter), arguments->name,
                    "The tensor in a .safetensors file that has several")
        ->type_name("TENSOR")
        ->group(group);
  }
  add_limits(command, options->threads);
  add_json(command);
  add_examples(command,
               "  bitcube quantize X.npy --format hif4 --axis 1 -o X.safetensors\n"
               "  bitcube quantize W.npy --format hif4 --axis 0 -o W.safetensors\n"
               "  bitcube matmul X.safetensors W.safetensors --bias b.npy --relu -o D.npy\n"
               "  bitcube matmul A.npy B.npy --pre-quant QF322B8_PRE --scale 0.05 --offset -3 --sat -o D.npy\n"
               "  bitcube matmul A.npy B.npy --a-type e2m1 --a-scales s.npy --accumulate group");
  command.callback([=, &console, &action] { action = [=, &console] { return run(*options, console); }; });
}

}  // namespace bitcube::cli
