// bitcube study: measurements that hold published numbers against the library.
#include "bitcube/verify/study.hpp"

#include "commands.hpp"

namespace bitcube::cli {
namespace {

using verify::Study;
using verify::StudyCheck;
using verify::StudyFormat;

struct Options {
  uint64 samples = verify::study_check_samples;
  uint64 seed = 1;
  unsigned threads = 0;
};

constexpr std::size_t kColumns = 6;  // formats side by side

/// A format's heading on two lines, and its errors.
std::string tables_text(const Study& study) {
  std::string text;
  for (std::size_t first = 0; first < study.formats.size(); first += kColumns) {
    const std::size_t count = std::min(kColumns, study.formats.size() - first);
    const std::span<const StudyFormat> part(study.formats.data() + first, count);
    TextTable table;
    std::vector<std::string> names{"sigma"};
    std::vector<std::string> variants{""};
    std::vector<std::size_t> right{0};
    for (const StudyFormat& format : part) {
      names.emplace_back(format.name);
      variants.emplace_back(format.variant);
      right.push_back(right.size());
    }
    table.add(names);
    table.add(variants);
    for (std::size_t x = 0; x < verify::study_sigmas; ++x) {
      std::vector<std::string> row{fmt::format("{:.2f}", verify::study_sigma(x))};
      for (const StudyFormat& format : part) {
        row.push_back(fmt::format("{:.6f} {:5.2f}", format.points[x].relative_error, format.points[x].sqnr));
      }
      table.add(std::move(row));
    }
    text += table.text(right) + "\n";
  }
  return text;
}

std::string check_text(const StudyCheck& check) {
  return fmt::format("{:<14} {}: mean {:.5f}, from {:.5f} to {:.5f}\n", check.holds ? "holds" : "DOES NOT HOLD",
                     check.statement, check.mean, check.least, check.largest);
}

std::string study_text(const Study& study) {
  std::string text = fmt::format(
      "MSE/sigma^2 and SQNR in dB of BF16 samples of N(0, sigma^2): {} for each sigma, seed {}, rows of {}\n\n",
      study.samples, study.seed, verify::study_row);
  text += tables_text(study);
  for (const StudyCheck& check : study.checks) text += check_text(check);
  return text;
}

Json study_json(const Study& study) {
  Json json{{"samples", study.samples}, {"seed", study.seed}, {"row", verify::study_row}};
  Json sigmas = Json::array();
  for (std::size_t x = 0; x < verify::study_sigmas; ++x) sigmas.push_back(verify::study_sigma(x));
  json["sigmas"] = std::move(sigmas);
  json["formats"] = Json::array();
  for (const StudyFormat& format : study.formats) {
    Json row{{"name", format.name}, {"variant", format.variant}};
    Json errors = Json::array();
    Json sqnr = Json::array();
    Json non_finite = Json::array();
    for (const verify::StudyPoint& point : format.points) {
      errors.push_back(number_json(point.relative_error));
      sqnr.push_back(number_json(point.sqnr));
      non_finite.push_back(point.non_finite);
    }
    row["mean_mse_over_variance"] = number_json(format.mean_relative_error);
    row["mse_over_variance"] = std::move(errors);
    row["sqnr_db"] = std::move(sqnr);
    row["non_finite"] = std::move(non_finite);
    json["formats"].push_back(std::move(row));
  }
  json["checks"] = Json::array();
  for (const StudyCheck& check : study.checks) {
    json["checks"].push_back({{"statement", check.statement},
                              {"expected", check.expected},
                              {"tolerance", check.tolerance},
                              {"mean", number_json(check.mean)},
                              {"least", number_json(check.least)},
                              {"largest", number_json(check.largest)},
                              {"holds", check.holds}});
  }
  json["holds"] = study.holds();
  return json;
}

Expected<Exit> run(const Options& options, const Console& console) {
  verify::StudyOptions how{
      .samples = options.samples, .seed = options.seed, .execution = execution_of(options.threads)};
  const auto study = [&] {
    ProgressBar bar("study");
    how.execution.progress = bar.callback();
    return verify::study_gaussian(how);
  }();
  if (!study && study.error().message.starts_with("study: ")) return study.error();  // not of an option
  if (!study) return Error{"--" + study.error().message};
  const auto printed = console.json() ? console.print_json(study_json(*study)) : console.print(study_text(*study));
  if (!printed) return printed.error();
  return study->holds() ? Exit::success : Exit::differences;
}

}  // namespace

void add_study(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("study", "Measure formats on known distributions");
  command.require_subcommand(1);
  add_examples(command,
               "  bitcube study gaussian --samples 65536\n"
               "  bitcube study gaussian --help");
  CLI::App& gaussian = *command.add_subcommand(
      "gaussian", "MSE and SQNR of every format on N(0, sigma^2), and whether published numbers hold");
  const auto options = std::make_shared<Options>();
  gaussian.add_option("--samples", options->samples, "Samples for each sigma, a multiple of 4096; default: 4194304")
      ->type_name("N")
      ->check(whole_number(uint64{1} << 36));
  gaussian.add_option("--seed", options->seed, "Seed of the samples; default: 1")
      ->type_name("S")
      ->check(whole_number(~uint64{0}));
  add_limits(gaussian, options->threads);
  add_json(gaussian);
  add_examples(gaussian,
               "  bitcube study gaussian\n"
               "  bitcube study gaussian --samples 65536 --json");
  gaussian.callback([=, &console, &action] { action = [=, &console] { return run(*options, console); }; });
}

}  // namespace bitcube::cli
