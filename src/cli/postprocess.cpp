// bitcube postprocess: B.FPATR on stored accumulators.
#include <utility>

#include "commands.hpp"
#include "operand_file.hpp"
#include "postprocess_run.hpp"

namespace bitcube::cli {
namespace {

struct Options {
  std::string input;
  PostprocessArguments postprocess;
  std::string output;
  unsigned threads = 0;
};

Expected<Exit> run(const Options& options, const Console& console) {
  const auto accumulators = load_accumulator_matrix(options.input);
  if (!accumulators) return accumulators.error();
  auto finish = PostprocessRun::prepare(options.postprocess, options.output, {options.input}, *accumulators->format,
                                        accumulators->rows, accumulators->cols, console);
  if (!finish) return finish.error();
  const Stopwatch clock;
  ProgressBar bar("postprocess");
  PostprocessOptions how = finish->options();
  how.execution = execution_of(options.threads, bar.callback());
  auto result = postprocess(*accumulators, how);
  if (!result) return result.error();
  if (auto done = finish->take(std::move(*result)); !done) return done.error();
  const double seconds = clock.seconds();

  const std::array<uint64, 2> shape{accumulators->rows, accumulators->cols};
  Json json{{"input", options.input}, {"accumulator", accumulators->format->name}, {"shape", shape}};
  TextTable sides;
  sides.add({"ACC", options.input, shape_text(shape), std::string(accumulators->format->name)});
  if (auto done = finish->report(console, std::move(json), std::move(sides), {}, seconds); !done) return done.error();
  return Exit::success;
}

}  // namespace

void add_postprocess(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("postprocess", "Requantise stored accumulators as B.FPATR does");
  const auto options = std::make_shared<Options>();
  command.add_option("ACC", options->input, "M x N accumulators: float32 (FP32), int32 (S32) or uint32 (U32)")
      ->type_name("ACC.npy")
      ->required();
  command.add_option("-o,--output", options->output, "D as a .npy array; without it the result is only described")
      ->type_name("D.npy");
  options->postprocess.add_to(command);
  add_limits(command, options->threads);
  add_json(command);
  add_examples(command,
               "  bitcube postprocess ACC.npy --pre-quant REQ8 --scale 0.05 --offset -3 --sat -o D.npy\n"
               "  bitcube postprocess ACC.npy --pre-quant VREQ8 --quant-params q.npy -o D.npy\n"
               "  bitcube postprocess ACC.npy --pre-quant F322F16 --relu-param 0.25 -o D.npy\n"
               "  bitcube postprocess ACC.npy --row-max rows.npy --group-max 32:groups.npy --max-abs");
  command.callback([=, &console, &action] { action = [=, &console] { return run(*options, console); }; });
}

}  // namespace bitcube::cli
