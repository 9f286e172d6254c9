// The program bitcube-mpi: subcommands of bitcube that many processes do together, on many machines.
#include <sched.h>
#include <sys/stat.h>
#include <tbb/global_control.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>

#include "interrupt.hpp"
#include "mpi_team.hpp"
#include "program.hpp"
#include "team_work.hpp"

namespace bitcube::mpi {
namespace {

/// Threads of a rank without --threads: what it is bound to, or its part of a machine that it shares with others.
std::size_t default_threads(const MpiTeam& team) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int bound = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  const auto cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (bound > 0 && bound < cores) return static_cast<std::size_t>(bound);
  return static_cast<std::size_t>(std::max(1, cores / team.neighbours()));
}

bool names_threads(int argc, char** argv) {
  return std::any_of(argv + std::min(argc, 1), argv + argc,
                     [](const char* word) { return std::string_view(word).starts_with("--threads"); });
}

/// The help of bitcube, as it is here.
void adapt(CLI::App& command) {
  for (const char* option : {"--goldens", "--maxima"}) {
    if (auto* found = command.get_option_no_throw(option)) command.remove_option(found);
  }
  if (auto* threads = command.get_option_no_throw("--threads")) {
    threads->description("Threads of each rank; default: the cores of its machine, divided among the ranks there");
  }
  if (auto* memory = command.get_option_no_throw("--max-memory")) {
    memory->description("Memory that each rank may take, such as 512M or 2G; default: no limit");
  }
  std::string footer = command.get_footer();
  std::string kept;
  constexpr std::string_view call = "  bitcube ";
  while (!footer.empty()) {
    const std::size_t end = std::min(footer.find('\n'), footer.size() - 1) + 1;
    std::string line = footer.substr(0, end);
    footer.erase(0, end);
    if (line.find("--goldens") != std::string::npos) continue;
    if (line.starts_with(call)) line = "  mpirun -n 4 bitcube-mpi " + line.substr(call.size());
    kept += line;
  }
  command.footer(kept);
  for (CLI::App* part : command.get_subcommands([](CLI::App*) { return true; })) adapt(*part);
}

/// What the command line says, and of the files that it names what tells one from another: every rank has to see the
/// same. A file may be in an option's value, or have a type and a shape behind it.
std::string what_is_seen(int argc, char** argv) {
  std::string seen;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    seen += fmt::format("{}\n", word);
    std::string name(word.starts_with("--") ? word.substr(std::min(word.find('='), word.size() - 1) + 1) : word);
    struct stat status {};
    for (const bool whole : {true, false}) {
      if (!whole) name.resize(std::min(name.find(':'), name.size()));
      if (::stat(name.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
      seen += fmt::format("{} {}.{:09}\n", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
      break;
    }
  }
  return seen;
}

cli::Exit run(int argc, char** argv) {
  using namespace cli;
  constexpr std::array<AddCommand, 4> commands{add_quantize, add_matmul, add_conform, add_gen};
  const Program program{
      .name = "bitcube-mpi",
      .summary = "subcommands of bitcube by the ranks of an MPI job, with the same bytes",
      .examples =
          "  mpirun -n 4 bitcube-mpi quantize model.safetensors.index.json -f hif4 -o quantised/\n"
          "  srun --mpi=pmix -N 64 bitcube-mpi quantize model.safetensors.index.json -f hif4 -o quantised/\n"
          "  mpirun -n 4 bitcube-mpi COMMAND --help",
      .commands = commands,
      .adapt = adapt};
  // The thread that waits for signals has them until the very end.
  static MpiTeam team;
  static const Console console(wants_json(argc, argv), team, program.name);
  std::optional<tbb::global_control> limit;
  if (!names_threads(argc, argv)) limit.emplace(tbb::global_control::max_allowed_parallelism, default_threads(team));
  auto result = [&]() -> Expected<Exit> {
    if (auto same = agree(team, program.name, what_is_seen(argc, argv)); !same) return same.error();
    return run_program(argc, argv, program, console);
  }();
  if (!result) {
    result = team.fail(result.error());
  } else if (const auto met = team.gather_all({}); !met) {  // others may have failed meanwhile
    result = met.error();
  }
  if (!result) {
    console.error(result.error().message);
    team.wait();  // nobody ends before rank 0 has told what there is to tell
  }
  return result ? *result : Exit::error;
}

}  // namespace
}  // namespace bitcube::mpi

int main(int argc, char** argv) {
  using namespace bitcube;
  cli::block_signals();  // MPI starts threads
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const cli::Exit exit = mpi::run(argc, argv);
  // Before MPI_Finalize, which waits for mpirun, and that for the ranks that it is about to end.
  if (exit == cli::Exit::error) cli::end_by_signal();
  // What is complete stays what it is, also where mpirun asks its ranks to end meanwhile.
  cli::ignore_signals();
  MPI_Finalize();
  return static_cast<int>(exit);
}
