// bitcube conform: vector files held against the library.
#include "bitcube/verify/conform.hpp"

#include <filesystem>

#include "commands.hpp"

namespace bitcube::cli {
namespace {

using verify::ConformReport;
using verify::FileReport;
using verify::known_differences;
using verify::Mismatch;

struct Options {
  std::vector<std::string> paths;
  std::string profile;
  std::size_t first = 10;
  unsigned threads = 0;
};

constexpr std::size_t kShown = 72;  // characters of a field in the text; --json has all of them

std::string shortened(const std::string& text) {
  if (text.size() <= kShown) return text;
  return fmt::format("{}... ({} characters)", text.substr(0, kShown), text.size());
}

std::string profile_text(const FileReport& file) {
  if (file.profile != nullptr) return std::string(file.profile->name);
  return file.form != nullptr && file.form->has_profile ? "(rows)" : "-";
}

std::string table_text(const ConformReport& report) {
  TextTable table;
  table.add({"file", "form", "profile", "rows", "match", "known", "mismatch"});
  uint64 matches = 0;
  uint64 known = 0;
  for (const FileReport& file : report.files) {
    matches += file.matches;
    known += file.known_total();
    table.add({file.path, file.form != nullptr ? std::string(file.form->name) : "?", profile_text(file),
               fmt::format("{}", file.rows), fmt::format("{}", file.matches), fmt::format("{}", file.known_total()),
               fmt::format("{}{}", file.mismatches, file.error ? " (error)" : "")});
  }
  table.add({fmt::format("{} files", report.files.size()), "", "", fmt::format("{}", report.rows()),
             fmt::format("{}", matches), fmt::format("{}", known), fmt::format("{}", report.mismatches())});
  const std::array<std::size_t, 4> right{3, 4, 5, 6};
  return table.text(right);
}

/// One line for each rule and file with rows that are known to differ.
std::string known_text(const ConformReport& report) {
  std::string text;
  for (const verify::KnownDifference& known : known_differences) {
    uint64 rows = 0;
    for (const FileReport& file : report.files) rows += file.known[static_cast<std::size_t>(known.rule)];
    if (rows != 0) text += fmt::format("  {:<20} {:>8}  {} ({})\n", known.name, rows, known.meaning, known.clause);
  }
  return text.empty() ? text : "\nknown differences, checked under what the contract says:\n" + text;
}

std::string mismatch_text(const FileReport& file, const Mismatch& mismatch) {
  std::string text = fmt::format("\n{}, row {}:", file.path, mismatch.row);
  for (const verify::NamedText& input : mismatch.inputs)
    text += fmt::format(" {}={}", input.name, shortened(input.text));
  text += '\n';
  for (const verify::Difference& d : mismatch.differences) {
    text += fmt::format("  {}: expected {}, got {}\n", d.column, shortened(d.expected), shortened(d.got));
  }
  return text + fmt::format("  decided by {}\n", mismatch.rule);
}

std::string report_text(const ConformReport& report) {
  std::string text = table_text(report) + known_text(report);
  for (const FileReport& file : report.files) {
    for (const Mismatch& mismatch : file.first) text += mismatch_text(file, mismatch);
    if (file.mismatches > file.first.size()) {
      text += fmt::format("\n{}: {} more mismatches\n", file.path, file.mismatches - file.first.size());
    }
  }
  return text;
}

Json known_json(const FileReport& file) {
  Json json = Json::object();
  for (const verify::KnownDifference& known : known_differences) {
    const uint64 rows = file.known[static_cast<std::size_t>(known.rule)];
    if (rows != 0) json[std::string(known.name)] = rows;
  }
  return json;
}

Json mismatch_json(const Mismatch& mismatch) {
  Json inputs = Json::object();
  for (const verify::NamedText& input : mismatch.inputs) inputs[input.name] = input.text;
  Json differences = Json::array();
  for (const verify::Difference& d : mismatch.differences) {
    differences.push_back({{"column", d.column}, {"expected", d.expected}, {"got", d.got}});
  }
  return {{"row", mismatch.row}, {"inputs", inputs}, {"differences", differences}, {"rule", mismatch.rule}};
}

Json report_json(const ConformReport& report) {
  Json files = Json::array();
  for (const FileReport& file : report.files) {
    Json json{{"file", file.path}};
    json["form"] = file.form != nullptr ? Json(file.form->name) : Json();
    json["profile"] = file.profile != nullptr ? Json(file.profile->name) : Json();
    json["sidecar"] = file.has_sidecar;
    json["rows"] = file.rows;
    json["matches"] = file.matches;
    json["known_differences"] = known_json(file);
    json["mismatches"] = file.mismatches;
    json["first"] = Json::array();
    for (const Mismatch& mismatch : file.first) json["first"].push_back(mismatch_json(mismatch));
    if (file.error) json["error"] = file.error->message;
    files.push_back(std::move(json));
  }
  return {{"files", files}, {"rows", report.rows()}, {"mismatches", report.mismatches()}, {"errors", report.errors()}};
}

Expected<Exit> run(const Options& options, const Console& console) {
  verify::ConformOptions how{.first = options.first, .execution = team_execution_of(console, options.threads)};
  if (!options.profile.empty()) {
    const auto profile = look_up("--profile", options.profile, conversion_profiles, find_conversion_profile);
    if (!profile) return profile.error();
    how.profile = *profile;
  }
  Expected<ConformReport> report = [&] {
    ProgressBar bar("conform");
    how.execution.progress = bar.callback();
    return verify::conform(options.paths, how);
  }();
  if (!report) return report.error();
  if (report->errors() < report->files.size()) {  // else there is nothing to tell but the errors
    const auto printed =
        console.json() ? console.print_json(report_json(*report)) : console.print(report_text(*report));
    if (!printed) return printed.error();
  }
  for (const FileReport& file : report->files) {
    if (file.error) console.error(file.error->message);
  }
  if (report->errors() != 0) return Exit::error;
  return report->mismatches() != 0 ? Exit::differences : Exit::success;
}

}  // namespace

void add_conform(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("conform", "Check golden vector files");
  const auto options = std::make_shared<Options>();
  command.add_option("PATH", options->paths, "Vector files, or directories of them; the header tells the form")
      ->required();
  command
      .add_option("--profile", options->profile,
                  "Conversion profile of files without such a column; default: their sidecar's, else asl")
      ->type_name(choices(conversion_profiles));
  command.add_option("--first", options->first, "Show so many mismatches of each file; default: 10")
      ->type_name("N")
      ->check(whole_number(1'000'000));
  add_limits(command, options->threads);
  add_json(command);
  add_examples(command,
               "  bitcube conform vectors\n"
               "  bitcube conform dump.csv --profile pto --first 3\n"
               "  bitcube conform vectors/e8m0.csv --json");
  command.callback([=, &console, &action] { action = [=, &console] { return run(*options, console); }; });
}

}  // namespace bitcube::cli
