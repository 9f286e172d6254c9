// bitcube vectors: golden vector files from bitcube itself.
#include "bitcube/verify/vectors.hpp"

#include "commands.hpp"

namespace bitcube::cli {
namespace {

struct Options {
  std::string what;
  uint64 seed = 1;
  uint64 count = 10000;
  std::string profile;
  std::string output;
};

Expected<Exit> run(const Options& options, const Console& console) {
  verify::VectorOptions how{.seed = options.seed, .count = options.count, .profile = options.profile};
  const auto kind = look_up("--what", options.what, verify::vector_kinds(), verify::find_vector_kind);
  if (!kind) return kind.error();
  how.kind = *kind;
  if (auto valid = verify::check_vector_options(how); !valid) return Error{"--" + valid.error().message};
  if (auto ok = check_output(options.output, {}); !ok) return ok.error();
  const auto metadata = [&] {
    ProgressBar bar("vectors");
    how.progress = bar.callback();
    return verify::write_vectors(options.output, how);
  }();
  if (!metadata) return metadata.error();
  if (metadata->count < options.count) {
    console.note(fmt::format("there are only {} different rows of {}", metadata->count, metadata->what));
  }
  const auto printed =
      console.json() ? console.print_json(Json::parse(metadata->json()))
                     : console.print(fmt::format(
                           "{}: {} rows of {}, profile {}, seed {}\n{}: sha256 {}\n", options.output, metadata->count,
                           metadata->what, metadata->profile == "*" ? "as each row says" : metadata->profile,
                           metadata->seed, verify::sidecar_path(options.output), metadata->sha256));
  if (!printed) return printed.error();
  return Exit::success;
}

}  // namespace

void add_vectors(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("vectors", "Write golden vector files, corner cases first");
  const auto options = std::make_shared<Options>();
  command.add_option("--what", options->what, "Which rows")->type_name(choices(verify::vector_kinds()))->required();
  command.add_option("--seed", options->seed, "Seed of the random rows; default: 1")
      ->type_name("S")
      ->check(whole_number(~uint64{0}));
  command.add_option("--count", options->count, "Rows, at most half of them corner cases; default: 10000")
      ->type_name("N")
      ->check(whole_number(1'000'000'000));
  command
      .add_option("--profile", options->profile,
                  "Conversion, HiF4 or accumulation profile; default: pto, or all of them where rows name theirs")
      ->type_name("NAME");
  command.add_option("-o,--output", options->output, "File to write; FILE.meta.json appears beside it")
      ->type_name("FILE")
      ->required();
  add_memory_limit(command);
  add_json(command);
  add_examples(command,
               "  bitcube vectors --what postprocess --count 100000 -o post.csv\n"
               "  bitcube vectors --what hif4 --profile pto --seed 7 -o hif4.csv\n"
               "  bitcube conform post.csv hif4.csv");
  command.callback([=, &console, &action] { action = [=, &console] { return run(*options, console); }; });
}

}  // namespace bitcube::cli
