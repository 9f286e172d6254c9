// bitcube matmul: A * B + C + bias, and the post-process.
#include <limits>
#include <utility>

#include "bitcube/cube/team.hpp"
#include "commands.hpp"
#include "postprocess_run.hpp"
#include "product_arguments.hpp"

namespace bitcube::cli {
namespace {

struct Options {
  ProductArguments product;
  PostprocessArguments postprocess;
  std::string output;
  unsigned threads = 0;
};

/// All that is there at the end: operands, C, accumulators, D and the workspace (docs/performance.md). Of a team each
/// has accumulators and D of its rows; rank 0 has D of all twice, as it comes and as it is written.
Expected<void> check_product_memory(const Options& options, std::uint64_t m, std::uint64_t n, std::uint64_t k,
                                    const Team& team) {
  std::uint64_t elements = 0;  // 4 bytes each for the accumulators and at most 4 for D
  std::uint64_t results = 0;
  if (__builtin_mul_overflow(m, n, &elements) || __builtin_mul_overflow(elements, std::uint64_t{8}, &results)) {
    results = std::numeric_limits<std::uint64_t>::max() / 4;
  }
  if (team.size() > 1) results = results / team.size() + (team.leads() ? results : 0);
  constexpr std::uint64_t kWorkspace = std::uint64_t{16} << 20;
  return check_memory(fmt::format("matmul with M = {}, N = {}, K = {}", m, n, k),
                      options.product.bytes() + results + kWorkspace);
}

Expected<Exit> run(const Options& options, const Console& console) {
  const auto input = ProductInput::load(options.product, console);
  if (!input) return input.error();
  const std::size_t rows = input->rows();
  const std::size_t cols = input->cols();
  const Format& accumulator = input->accumulator();
  const OperandFile& a = input->a();
  const OperandFile& b = input->b();
  if (auto fits = check_product_memory(options, rows, cols, a.operand().k, console.team()); !fits) return fits.error();
  auto finish = PostprocessRun::prepare(options.postprocess, options.output, options.product.inputs(), accumulator,
                                        rows, cols, console);
  if (!finish) return finish.error();

  const Stopwatch clock;
  ProgressBar bar("matmul");
  MatmulOptions product = input->options();
  product.execution = team_execution_of(console, options.threads, bar.callback());
  PostprocessOptions then = finish->options();
  then.execution = execution_of(options.threads);
  auto result = matmul_postprocess(a.operand(), b.operand(), product, then);
  if (!result) return result.error();
  if (!console.team().leads()) return Exit::success;
  if (auto done = finish->take(std::move(*result)); !done) return done.error();
  const double seconds = clock.seconds();

  Json json{{"m", rows}, {"n", cols}, {"k", a.operand().k}, {"a", a.json()}, {"b", b.json()}};
  json["profile"] = input->profile().name;
  json["accumulator"] = accumulator.name;
  TextTable sides;
  for (const auto& [name, file] : {std::pair{"A", &a}, std::pair{"B", &b}}) {
    std::vector<std::string> cells = file->describe();
    cells.insert(cells.begin(), name);
    sides.add(std::move(cells));
  }
  TextTable facts;
  facts.add(
      {"product", fmt::format("{}, {} accumulator, K = {}{}{}", input->profile().name, accumulator.name, a.operand().k,
                              options.product.c.empty() ? "" : ", C", options.product.bias.empty() ? "" : ", bias")});
  if (auto done = finish->report(console, std::move(json), std::move(sides), std::move(facts), seconds); !done) {
    return done.error();
  }
  return Exit::success;
}

}  // namespace

void add_matmul(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("matmul", "Multiply two matrices as the CUBE does");
  const auto options = std::make_shared<Options>();
  options->product.add_to(command);
  command.add_option("-o,--output", options->output, "D as a .npy array; without it the result is only described")
      ->type_name("D.npy");
  options->postprocess.add_to(command);
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
