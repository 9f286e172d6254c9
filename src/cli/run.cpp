// bitcube run: a program, step by step on a model of the Core.
#include "bitcube/isa/codes.hpp"
#include "bitcube/program/program.hpp"
#include "bitcube/program/state_file.hpp"
#include "bitcube/program/trace.hpp"
#include "commands.hpp"

namespace bitcube::cli {
namespace {

struct Options {
  std::string input;
  std::string trace;
  std::string load;
  std::string dump;
  bool checks = false;
  uint64 max_steps = program::RunOptions{}.max_steps;
};

using End = program::RunResult::End;

/// A Tile that the program published.
struct Published {
  std::string name;
  std::string role;
  std::string tile;
  std::string digest;
};

/// Keeps the trace, and what the report is made of.
class Recorder {
 public:
  Recorder(OutputFile* trace, program::TraceOptions options) : trace_(trace), options_(options) {}

  void take(const program::Event& event) {
    if (trace_ != nullptr && written_) {
      written_ = trace_->append(program::trace_line(event, options_));
      if (written_) written_ = trace_->append("\n");
    }
    if (event.kind != program::Event::Kind::step) return;
    for (const machine::PublishedTile& t : event.outcome->tiles) {
      add(fmt::format("PE{} {}", t.pe, isa::tile_name(static_cast<int>(t.name))), machine::name_of(t.role), *t.tile);
    }
    if (const auto& shared = event.outcome->shared) {
      add(isa::shared_tile_name(static_cast<int>(shared->id)), machine::name_of(machine::Role::destination),
          *shared->tile);
    }
  }
  const Expected<void>& written() const { return written_; }
  const std::vector<Published>& tiles() const { return tiles_; }
  std::size_t left_out() const { return left_out_; }

 private:
  static constexpr std::size_t shown = 64;  // Tiles of a report; the trace has all of them

  void add(std::string name, std::string_view role, const machine::Tile& tile) {
    if (tiles_.size() == shown) {
      ++left_out_;
      return;
    }
    tiles_.push_back({std::move(name), std::string(role), program::describe(tile), program::element_digest(tile)});
  }

  OutputFile* trace_;
  program::TraceOptions options_;
  Expected<void> written_;
  std::vector<Published> tiles_;
  std::size_t left_out_ = 0;
};

std::string place(const Options& options, program::Position at, uint64 pc) {
  if (at.line == 0) return fmt::format("{}: pc 0x{:X}", options.input, pc);
  return fmt::format("{}:{}:{}", options.input, at.line, at.column);
}

/// Why the run ended before the program did.
std::string ending(const Options& options, const program::RunResult& r) {
  const std::string at = place(options, r.position, r.pc);
  switch (r.end) {
    case End::fault:
      return fmt::format("{}: {}", at, program::explain(*r.fault, r.rejection));
    case End::waiting:
      return fmt::format("{}: the bundle waits for S{}, and nothing will make it ready", at, r.waiting_for);
    case End::limit:
      return fmt::format("{}: not finished after {} instructions (--max-steps)", at, r.steps);
    case End::cut_off:
      return fmt::format("{}: the end of the program cuts this word off", at);
    case End::completed:
      break;
  }
  return {};
}

std::string report_text(const Options& options, const program::RunResult& r, const Recorder& recorder,
                        const machine::State& state) {
  std::string text;
  for (const program::CheckResult& check : r.checks) {
    if (check.holds) continue;
    text +=
        fmt::format("{}: does not hold: {}\n  {}\n", place(options, check.position, r.pc), check.text, check.message);
  }
  TextTable tiles;
  for (const Published& t : recorder.tiles()) tiles.add({t.name, t.role, t.tile, "sha256 " + t.digest.substr(0, 16)});
  text += tiles.text();
  if (recorder.left_out() != 0) text += fmt::format("and {} more Tiles\n", recorder.left_out());
  const auto count = [](uint64 n, std::string_view what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); };
  text += fmt::format("{}, {} completed, flags {}", count(r.steps, "instruction"), count(r.bundles, "bundle"),
                      flags_text(state.flags));
  if (state.header.active) text += ", a bundle is open";
  const std::size_t checks = r.checks.size() + r.not_reached;
  if (checks != 0) text += fmt::format("\n{} of {} expectations hold", r.checks.size() - r.failed, checks);
  if (r.not_reached != 0) text += fmt::format(", {} were not reached", r.not_reached);
  return text + "\n";
}

Json report_json(const program::RunResult& r, const Recorder& recorder, const machine::State& state,
                 std::string_view message) {
  constexpr std::array<std::string_view, 4> ends{"completed", "fault", "waiting", "limit"};
  Json json{{"result", ends[static_cast<std::size_t>(r.end)]},
            {"steps", r.steps},
            {"bundles", r.bundles},
            {"pc", fmt::format("0x{:X}", r.pc)},
            {"flags", flags_json(state.flags)},
            {"bundle_open", state.header.active}};
  json["fault"] = nullptr;
  if (r.fault) {
    const machine::Rule& rule = machine::rule(r.fault->id);
    json["fault"] = Json{{"class", machine::name_of(rule.fault)},
                         {"rule", rule.name},
                         {"operand", machine::name_of(r.fault->role)},
                         {"pe", r.fault->pe < 0 ? Json(nullptr) : Json(static_cast<int>(r.fault->pe))},
                         {"found", program::text_of(r.fault->found)},
                         {"legal", program::text_of(r.fault->legal)},
                         {"line", r.position.line == 0 ? Json(nullptr) : Json(r.position.line)}};
  }
  json["message"] = message.empty() ? Json(nullptr) : Json(message);
  json["tiles"] = Json::array();
  for (const Published& t : recorder.tiles()) {
    json["tiles"].push_back({{"tile", t.name}, {"role", t.role}, {"is", t.tile}, {"sha256", t.digest}});
  }
  json["expectations"] = Json::array();
  for (const program::CheckResult& check : r.checks) {
    json["expectations"].push_back({{"line", check.position.line},
                                    {"text", check.text},
                                    {"holds", check.holds},
                                    {"message", check.holds ? Json(nullptr) : Json(check.message)}});
  }
  json["not_reached"] = r.not_reached;
  return json;
}

Expected<Exit> run(const Options& options, const Console& console) {
  machine::Core core;
  if (!options.load.empty()) {
    auto state = program::load_state(options.load);
    if (!state) return state.error();
    core.state() = std::move(*state);
  }
  const auto program = program::Program::load(options.input);
  if (!program) return program.error();
  const std::array<std::string, 2> inputs{options.input, options.load};
  std::vector<OutputFile> files;
  for (const std::string* path : {&options.trace, &options.dump}) {
    if (path->empty()) continue;
    auto file = create_output(*path, inputs);
    if (!file) return file.error();
    files.push_back(std::move(*file));
  }
  if (files.size() == 2 && options.trace == options.dump) {
    return Error{fmt::format("{}: --trace and --dump-state need a file each", options.trace)};
  }
  Recorder recorder(options.trace.empty() ? nullptr : &files.front(), {.checks = options.checks});
  const program::RunResult result = program::run(
      *program, core, {.max_steps = options.max_steps, .observer = [&](const program::Event& e) { recorder.take(e); }});
  if (!recorder.written()) return recorder.written().error();
  if (!options.dump.empty()) {
    const auto text = program::write_state(core.state());
    if (!text) return Error{fmt::format("{}: {}", options.dump, text.error().message)};
    if (auto written = files.back().append(*text); !written) return written.error();
  }
  const std::string message = ending(options, result);
  const auto printed = console.json() ? console.print_json(report_json(result, recorder, core.state(), message))
                                      : console.print(report_text(options, result, recorder, core.state()));
  if (!printed) return printed.error();
  std::vector<OutputFile*> all;
  for (OutputFile& file : files) all.push_back(&file);
  if (auto done = commit_all(all); !done) return done.error();
  if (result.end != End::completed) {
    console.error(message);
    return result.end == End::cut_off ? Exit::error : Exit::fault;
  }
  return result.ok() ? Exit::success : Exit::differences;
}

}  // namespace

void add_run(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("run", "Run a program on the model of the Core, and check what it expects");
  const auto options = std::make_shared<Options>();
  command.add_option("PROGRAM", options->input, "Text with directives, or words")
      ->type_name("prog.s|prog.bin")
      ->required();
  command.add_option("--trace", options->trace, "One JSON object per event, one line each")->type_name("t.jsonl");
  command.add_flag("--checks", options->checks, "The trace lists the rules that each command was held against");
  command.add_option("--load-state", options->load, "Start from this state instead of an empty one")
      ->type_name("s.json");
  command.add_option("--dump-state", options->dump, "Write the state at the end")->type_name("s.json");
  command.add_option("--max-steps", options->max_steps, "Stop after so many instructions; default: 10000000")
      ->type_name("N")
      ->check(whole_number(uint64{1} << 62));
  add_memory_limit(command);
  add_json(command);
  add_examples(command,
               "  bitcube run examples/programs/w1.s\n"
               "  bitcube run w1.s --trace w1.jsonl --checks\n"
               "  bitcube run setup.s --dump-state s.json\n"
               "  bitcube run next.s --load-state s.json --json\n"
               "Exit codes: 0 all expectations hold, 1 one does not, 2 bad input, 3 a fault that was not expected");
  command.callback([=, &console, &action] { action = [=, &console] { return run(*options, console); }; });
}

}  // namespace bitcube::cli
