// bitcube gen: constrained-random stimulus for verification.
#include <algorithm>

#include "bitcube/program/program.hpp"
#include "bitcube/stimulus/elements.hpp"
#include "bitcube/stimulus/write.hpp"
#include "commands.hpp"

namespace bitcube::cli {
namespace {

/// What all kinds of stimulus have.
struct Options {
  uint64 seed = 1;
  uint64 first = 0;
  uint64 count = 1000;
  std::string format;
  std::string output;
  std::string coverage;
  unsigned threads = 0;
};

struct BundleArguments : Options {
  std::vector<std::string> illegal;
  std::vector<std::string> operations;
  std::vector<std::string> types;
  uint64 max_dim = 40;
  uint64 corners = 25;
  bool legal = false;
  bool list_rules = false;
};

struct ElementArguments : Options {
  std::vector<std::string> from;
  std::vector<std::string> to;
  std::vector<std::string> modes;
  std::vector<std::string> relu;
  std::vector<std::string> roundings;
  std::vector<std::string> profiles;
  std::vector<std::string> weights;
  std::string sat;
};

/// Every name of a list, looked up in turn.
template <typename Row, typename LookUp>
Expected<std::vector<Row>> look_up_all(const std::vector<std::string>& names, const LookUp& one) {
  std::vector<Row> rows;
  for (const std::string& name : names) {
    auto row = one(name);
    if (!row) return row.error();
    if (std::find(rows.begin(), rows.end(), Row{*row}) == rows.end()) rows.push_back(*row);
  }
  return rows;
}

// ---- Bundles

std::vector<std::string_view> operation_names() {
  return {isa::operation_names.begin() + 1, isa::operation_names.end()};
}

Expected<stimulus::BundleOptions> bundle_options(const BundleArguments& o) {
  stimulus::BundleOptions out;
  out.seed = o.seed;
  out.max_dim = static_cast<std::uint32_t>(std::min<uint64>(o.max_dim, ~0U));
  out.corners = static_cast<unsigned>(o.corners);
  if (o.legal && !o.illegal.empty()) return Error{"--legal and --illegal: choose one of them"};
  auto operations = look_up_all<isa::Operation>(o.operations, [](const std::string& name) -> Expected<isa::Operation> {
    if (const auto found = isa::find_operation(name)) return *found;
    return unknown_name("--op", name, operation_names());
  });
  if (!operations) return operations.error();
  out.operations = std::move(*operations);
  auto types = look_up_all<DataType>(o.types, [](const std::string& name) -> Expected<DataType> {
    const auto format = look_up_format("--types", name);
    if (!format) return format.error();
    if (machine::tile_format((*format)->type) == nullptr) {
      return Error{fmt::format("--types: {} is no type of a Tile", (*format)->name)};
    }
    return (*format)->type;
  });
  if (!types) return types.error();
  out.types = std::move(*types);
  out.any_rule = o.list_rules || (o.illegal.size() == 1 && equal_ignoring_case(o.illegal[0], "any"));
  if (out.any_rule) return out;
  auto rules = look_up_all<machine::RuleId>(o.illegal, [](const std::string& name) -> Expected<machine::RuleId> {
    const machine::Rule* rule = machine::find_rule(name);
    if (rule != nullptr) return rule->id;
    return Error{fmt::format("--illegal: unknown rule '{}'; --list-rules prints them, any means all", name)};
  });
  if (!rules) return rules.error();
  out.rules = std::move(*rules);
  return out;
}

Expected<Exit> list_rules(const stimulus::BundleGenerator& generator, const Console& console) {
  Json list = Json::array();
  TextTable table;
  table.add({"rule", "fault", "operations", "text"});
  std::string unreachable;
  for (const stimulus::RuleReach& reach : generator.reach()) {
    const machine::Rule& rule = machine::rule(reach.rule);
    std::vector<std::string_view> names;
    for (const isa::Operation o : reach.operations) names.push_back(isa::name_of(o));
    list.push_back({{"rule", rule.name},
                    {"fault", machine::name_of(rule.fault)},
                    {"text", rule.text},
                    {"operations", names},
                    {"unreachable", reach.why.empty() ? Json(nullptr) : Json(reach.why)}});
    const bool all = names.size() == isa::operation_names.size() - 1;
    if (!reach.why.empty()) {
      unreachable += fmt::format("  {}: {}\n", rule.name, reach.why);
      continue;
    }
    table.add({std::string(rule.name), std::string(machine::name_of(rule.fault)),
               all                ? "all"
               : names.size() > 3 ? fmt::format("{} operations", names.size())
                                  : fmt::format("{}", fmt::join(names, " ")),
               std::string(rule.text)});
  }
  const auto printed =
      console.json() ? console.print_json(list) : console.print(table.text() + "\nno bundle can break\n" + unreachable);
  if (!printed) return printed.error();
  return Exit::success;
}

/// Which rules --illegal any leaves out, unless because --op names other operations, or none can.
void note_left_out(const stimulus::BundleGenerator& generator, const Console& console) {
  const auto& chosen = generator.options().operations;
  for (const stimulus::RuleReach& reach : generator.reach()) {
    if (reach.why.empty()) continue;
    const auto& able = stimulus::rule_reach()[static_cast<std::size_t>(reach.rule)].operations;
    const bool concerned = std::any_of(able.begin(), able.end(), [&](isa::Operation o) {
      return chosen.empty() || std::find(chosen.begin(), chosen.end(), o) != chosen.end();
    });
    if (!concerned) continue;
    console.note(fmt::format("--illegal any leaves out {}: {}", machine::rule(reach.rule).name, reach.why));
  }
}

/// The coverage report goes to a file of its own, or to standard output.
struct CoverageFile {
  std::optional<OutputFile> file{};
  bool json = false;

  static Expected<CoverageFile> open(const Options& options, const Console& console) {
    CoverageFile out;
    out.json = console.json() || options.coverage.ends_with(".json");
    if (options.coverage.empty() || options.coverage == "-") return out;
    auto file = create_output(options.coverage, {}, console.team());
    if (!file) return file.error();
    out.file = std::move(*file);
    return out;
  }
  template <typename Report>
  Expected<void> write(const Options& options, const Console& console, const Report& report) {
    const std::string text = json ? report.json() : report.text();
    if (file) return file->append(text);
    return options.coverage == "-" ? console.print(text) : Expected<void>();
  }
};

/// The library names members of its options, the user knows --max-dim and --illegal. What went wrong in the work itself
/// begins with its name, or with the rank that it happened to, and is no option's fault.
Error as_option(const Error& error) {
  std::string text = error.message;
  if (text.starts_with("gen: ") || text.starts_with("rank ")) return error;
  if (text.starts_with("max_dim")) text[3] = '-';
  if (text.starts_with("rules")) text.replace(0, 5, "illegal");
  return Error{"--" + text};
}

/// What a run says of itself, unless the coverage takes its place.
Expected<void> summary(const Options& options, const Console& console, uint64 count, std::string_view what,
                       double seconds) {
  if (options.coverage == "-") return {};
  if (console.json()) {
    return console.print_json({{"output", options.output},
                               {what, count},
                               {"seed", options.seed},
                               {"first", options.first},
                               {"seconds", seconds}});
  }
  return console.print(
      fmt::format("{}: {} {}, seed {}, {:.2f} s\n", options.output, count, what, options.seed, seconds));
}

Expected<void> commit(std::vector<OutputFile>& files, CoverageFile& coverage) {
  std::vector<OutputFile*> all;
  for (OutputFile& file : files) all.push_back(&file);
  if (coverage.file) all.push_back(&*coverage.file);
  return commit_all(all);
}

Expected<Exit> run_bundles(const BundleArguments& o, const Console& console) {
  if (!o.list_rules && o.output.empty()) return Error{"--output: missing; it names the file to write"};
  const auto format = look_up("--format", o.format, stimulus::bundle_formats(), stimulus::find_bundle_format);
  if (!format) return format.error();
  if (o.count == 0) return Error{"--count: must be at least 1"};
  const auto options = bundle_options(o);
  if (!options) return options.error();
  const auto generator = stimulus::BundleGenerator::make(*options);
  if (!generator) return as_option(generator.error());
  if (o.list_rules) return list_rules(*generator, console);
  note_left_out(*generator, console);
  // Of readmemh this is what the names begin with, and no file.
  if (auto ok = check_output(o.output, {}); !ok) return ok.error();
  std::vector<OutputFile> files;
  for (const std::string_view suffix : (*format)->suffixes) {
    auto file = create_output(o.output + std::string(suffix), {}, console.team());
    if (!file) return file.error();
    files.push_back(std::move(*file));
  }
  auto coverage = CoverageFile::open(o, console);
  if (!coverage) return coverage.error();
  const Stopwatch clock;
  const auto covered = [&] {
    ProgressBar bar("gen");
    return stimulus::write_bundles(
        *generator, (*format)->format,
        {.first = o.first, .count = o.count, .execution = team_execution_of(console, o.threads, bar.callback())},
        [&](std::size_t file, std::string_view text) { return files[file].append(text); });
  }();
  if (!covered) return covered.error();
  if (auto written = coverage->write(o, console, *covered); !written) return written.error();
  if (auto done = commit(files, *coverage); !done) return done.error();
  if ((*format)->format == stimulus::BundleFormat::assembly && files[0].size() > program::longest_text) {
    console.note(
        fmt::format("{}: {} bytes of text, but bitcube run takes {} at most; make parts with --first and --count",
                    o.output, files[0].size(), program::longest_text));
  }
  if (auto told = summary(o, console, o.count, "bundles", clock.seconds()); !told) return told.error();
  return Exit::success;
}

// ---- Elements

Expected<void> element_options(const ElementArguments& o, stimulus::ElementOptions& out) {
  out.seed = o.seed;
  out.first = o.first;
  out.count = o.count;
  if (o.count == 0) return Error{"--count: must be at least 1"};
  if (equal_ignoring_case(o.format, "vectors")) {
    out.format = stimulus::ElementFormat::vectors;
  } else if (equal_ignoring_case(o.format, "readmemh")) {
    out.format = stimulus::ElementFormat::readmemh;
  } else {
    const std::array<std::string_view, 2> names{"vectors", "readmemh"};
    return unknown_name("--format", o.format, names);
  }
  for (const std::string& text : o.weights) {
    const std::size_t at = text.find('=');
    const std::string name = text.substr(0, at);
    const auto stratum = look_up("--weight", name, stimulus::strata, stimulus::find_stratum);
    if (!stratum) return stratum.error();
    const std::string number = at == std::string::npos ? "" : text.substr(at + 1);
    const bool digits =
        !number.empty() && number.size() <= 6 && number.find_first_not_of("0123456789") == std::string::npos;
    if (!digits)
      return Error{fmt::format("--weight: '{}'; expected NAME=N with N from 0 to 999999, such as nan=5", text)};
    out.weights[static_cast<std::size_t>((*stratum)->stratum)] = static_cast<unsigned>(std::stoul(number));
  }
  auto roundings = look_up_all<Rounding>(o.roundings, [](const std::string& name) -> Expected<Rounding> {
    const auto mode = look_up_rounding("--round", name);
    if (!mode) return mode.error();
    if (!*mode) return Error{"--round: an empty name"};
    return **mode;
  });
  if (!roundings) return roundings.error();
  out.roundings = std::move(*roundings);
  if (!o.sat.empty()) {
    if (o.sat != "0" && o.sat != "1") return Error{fmt::format("--sat: '{}'; expected 0 or 1", o.sat)};
    out.saturate = {o.sat == "1"};
  }
  return {};
}

template <typename Write>
Expected<Exit> run_elements(const ElementArguments& o, const Console& console, stimulus::ElementOptions& options,
                            const Write& write) {
  std::vector<OutputFile> files;
  auto file = create_output(o.output, {}, console.team());
  if (!file) return file.error();
  files.push_back(std::move(*file));
  auto coverage = CoverageFile::open(o, console);
  if (!coverage) return coverage.error();
  const Stopwatch clock;
  bool written = true;
  const Expected<stimulus::ElementReport> report = [&] {
    ProgressBar bar("gen");
    options.execution = team_execution_of(console, o.threads, bar.callback());
    return write([&](std::string_view text) {
      auto appended = files[0].append(text);
      written = static_cast<bool>(appended);
      return appended;
    });
  }();
  if (!report) return written ? as_option(report.error()) : report.error();
  if (auto covered = coverage->write(o, console, *report); !covered) return covered.error();
  if (auto done = commit(files, *coverage); !done) return done.error();
  if (auto told = summary(o, console, report->rows, "rows", clock.seconds()); !told) return told.error();
  return Exit::success;
}

Expected<Exit> run_convert(const ElementArguments& o, const Console& console) {
  stimulus::ConvertOptions options;
  if (auto ok = element_options(o, options); !ok) return ok.error();
  const auto format_list = [](std::string_view option, const std::vector<std::string>& names) {
    return look_up_all<const Format*>(names, [&](const std::string& name) { return look_up_format(option, name); });
  };
  auto from = format_list("--from", o.from);
  if (!from) return from.error();
  auto to = format_list("--to", o.to);
  if (!to) return to.error();
  auto profiles = look_up_all<const ConversionProfile*>(o.profiles, [](const std::string& name) {
    return look_up("--profile", name, conversion_profiles, find_conversion_profile);
  });
  if (!profiles) return profiles.error();
  options.from = std::move(*from);
  options.to = std::move(*to);
  options.profiles = std::move(*profiles);
  return run_elements(o, console, options,
                      [&](const stimulus::TextSink& sink) { return stimulus::write_conversions(options, sink); });
}

Expected<Exit> run_postprocess(const ElementArguments& o, const Console& console) {
  stimulus::PostprocessVectorOptions options;
  if (auto ok = element_options(o, options); !ok) return ok.error();
  auto modes = look_up_all<const PreQuantMode*>(o.modes, [](const std::string& name) {
    return look_up("--mode", name, prequant_modes, [](std::string_view text) { return find_prequant(text); });
  });
  if (!modes) return modes.error();
  options.modes = std::move(*modes);
  auto relu = look_up_all<Relu>(o.relu, [](const std::string& name) -> Expected<Relu> {
    for (const isa::CodeName& row : isa::relu_names) {
      if (equal_ignoring_case(row.name, name)) return static_cast<Relu>(row.code);
    }
    return unknown_name("--relu", name, names_of(isa::relu_names));
  });
  if (!relu) return relu.error();
  options.relu = std::move(*relu);
  if (o.profiles.size() > 1) return Error{"--profile: the rows of a post-process name none; choose one"};
  if (!o.profiles.empty()) {
    const auto profile = look_up("--profile", o.profiles[0], conversion_profiles, find_conversion_profile);
    if (!profile) return profile.error();
    options.profile = *profile;
  }
  return run_elements(o, console, options,
                      [&](const stimulus::TextSink& sink) { return stimulus::write_postprocess(options, sink); });
}

// ---- Options

void add_common(CLI::App& command, Options& o, std::string_view formats, std::string_view unit, bool output_required) {
  command.add_option("--count", o.count, fmt::format("How many {}; default: {}", unit, o.count))
      ->type_name("N")
      ->check(whole_number(1'000'000'000'000));
  command.add_option("--seed", o.seed, "Seed; the same one gives the same bytes anywhere; default: 1")
      ->type_name("S")
      ->check(whole_number(~uint64{0}));
  command.add_option("--first", o.first, "Index of the first one, to make a part of a longer run; default: 0")
      ->type_name("I")
      ->check(whole_number(~uint64{0} >> 1));
  command.add_option("--format", o.format, fmt::format("What to write; default: {}", o.format))
      ->type_name(std::string(formats));
  auto* output =
      command
          .add_option("-o,--output", o.output,
                      output_required ? "File to write" : "File to write; with readmemh the start of five names")
          ->type_name("FILE");
  if (output_required) output->required();
  command.add_option("--coverage", o.coverage, "Report what was covered here, as JSON with --json or in a .json file")
      ->type_name("FILE|-");
  add_limits(command, o.threads);
  add_json(command);
}

CLI::Option* add_list(CLI::App& command, const std::string& name, std::vector<std::string>& list,
                      const std::string& description, const std::string& type_name) {
  return command.add_option(name, list, description)->type_name(type_name)->delimiter(',')->allow_extra_args(false);
}

void add_elements(CLI::App& command, ElementArguments& o) {
  o.count = 10000;
  o.format = "vectors";
  add_common(command, o, "vectors|readmemh", "rows", true);
  add_list(command, "--round", o.roundings, "Rounding modes; default: all", choices(roundings) + ",...");
  command.add_option("--sat", o.sat, "Only without or only with saturation")->type_name("0|1");
  add_list(command, "--weight", o.weights,
           fmt::format("How often a stratum occurs against the others, 0: never; default: 1. Strata: {}",
                       fmt::join(names_of(stimulus::strata), ", ")),
           "NAME=N,...");
}

void add_bundle(CLI::App& gen, const Console& console, Action& action) {
  CLI::App& command = *gen.add_subcommand("bundle", "Whole bundles with state, words and expected results");
  const auto o = std::make_shared<BundleArguments>();
  o->format = "asm";
  add_common(command, *o, choices(stimulus::bundle_formats()), "bundles", false);
  command.add_flag("--legal", o->legal, "Legal bundles; the default");
  add_list(command, "--illegal", o->illegal, "Bundles that break one of these rules each, in turn; any: every rule",
           "RULE,...|any");
  add_list(command, "--op", o->operations, "Operations; default: all", "NAME,...");
  add_list(command, "--types", o->types, "Types of A and B, of source and destination; default: all", "TYPE,...");
  command.add_option("--max-dim", o->max_dim, "Largest M, N and K, rows and columns; default: 40")
      ->type_name("N")
      ->check(whole_number(1'000'000));
  command.add_option("--corners", o->corners, "Percent of the elements that are corners of their type; default: 25")
      ->type_name("W")
      ->check(whole_number(1'000'000));
  command.add_flag("--list-rules", o->list_rules,
                   "Print which rules bundles of these options can break, and which none can");
  add_examples(command,
               "  bitcube gen bundle --count 200 -o legal.s && bitcube run legal.s\n"
               "  bitcube gen bundle --illegal F7,G3 --op TMATMUL_MX --count 50 -o bad.s\n"
               "  bitcube gen bundle --count 4000 --format readmemh -o stim --coverage -");
  command.callback([=, &console, &action] { action = [=, &console] { return run_bundles(*o, console); }; });
}

void add_gen_convert(CLI::App& gen, const Console& console, Action& action) {
  CLI::App& command = *gen.add_subcommand("convert", "Operands of TCVT with results and flags");
  const auto o = std::make_shared<ElementArguments>();
  add_list(command, "--to", o->to, "Destination types; default: all", "TYPE,...");
  add_list(command, "--from", o->from, "Source types; default: all", "TYPE,...");
  add_list(command, "--profile", o->profiles, "Conversion profiles; default: all",
           choices(conversion_profiles) + ",...");
  add_elements(command, *o);
  add_examples(command,
               "  bitcube gen convert --to e4m3,e5m2 --from fp32 --count 100000 -o cvt.csv\n"
               "  bitcube conform cvt.csv\n"
               "  bitcube gen convert --to fp16 --from bf16 --weight nan=5,tie=10 --format readmemh -o cvt.hex");
  command.callback([=, &console, &action] { action = [=, &console] { return run_convert(*o, console); }; });
}

void add_gen_postprocess(CLI::App& gen, const Console& console, Action& action) {
  CLI::App& command =
      *gen.add_subcommand("postprocess", "Accumulators and parameters of the post-process with results");
  const auto o = std::make_shared<ElementArguments>();
  add_list(command, "--mode", o->modes, "PreQuant modes; default: all 27", "NAME,...");
  add_list(command, "--relu", o->relu, "Activations; default: all", choices(isa::relu_names) + ",...");
  add_list(command, "--profile", o->profiles, "Conversion profile; default: pto", choices(conversion_profiles));
  add_elements(command, *o);
  add_examples(command,
               "  bitcube gen postprocess --count 100000 -o post.csv && bitcube conform post.csv --profile pto\n"
               "  bitcube gen postprocess --mode REQ8,QF322B8_PRE --relu PReLU --weight tie=8 -o req8.csv");
  command.callback([=, &console, &action] { action = [=, &console] { return run_postprocess(*o, console); }; });
}

}  // namespace

void add_gen(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("gen", "Make constrained-random stimulus for verification");
  command.require_subcommand(1);
  add_gen_convert(command, console, action);
  add_gen_postprocess(command, console, action);
  add_bundle(command, console, action);
  add_examples(command,
               "  bitcube gen bundle --count 200 -o legal.s && bitcube run legal.s\n"
               "  bitcube gen bundle --help");
}

}  // namespace bitcube::cli
