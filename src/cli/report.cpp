// bitcube report: one HTML file of what becomes of tensors in block formats, or of two results that are compared.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <limits>

#include "bitcube/report/page.hpp"
#include "commands.hpp"
#include "diff_arguments.hpp"
#include "quantize_arguments.hpp"

namespace bitcube::cli {
namespace {

using report::TensorReport;
using stream::TensorFiles;

struct Options {
  std::vector<std::string> inputs;
  std::vector<std::string> formats{"hif4", "mxfp8-e4m3", "mxfp4", "nvfp4"};
  stream::Selection selection;
  std::size_t pictures = report::kPicturedTensors;
  // What both kinds of report take, and the results that are compared if there are no inputs.
  DiffArguments common;
};

/// NAME or NAME:CHOICE, where the choice is a profile of hif4, a scale rule of MX, or `tensor-scale` of nvfp4.
Expected<QuantizeOptions> parse_format(const std::string& text) {
  QuantizeArguments arguments;
  const std::size_t colon = text.find(':');
  arguments.format = text.substr(0, colon);
  if (colon != std::string::npos) {
    const std::string choice = text.substr(colon + 1);
    const BlockFormat* format = find_block_format(arguments.format);
    if (choice.empty()) return Error{fmt::format("--formats: nothing follows the colon of '{}'", text)};
    if (format != nullptr && format->is_hif4()) arguments.profile = choice;
    if (format != nullptr && format->is_mx()) arguments.scale = choice;
    if (format != nullptr && format->is_nvfp4()) {
      if (choice != "tensor-scale") {
        return Error{fmt::format("--formats: '{}': the choice of nvfp4 is nvfp4:tensor-scale", text)};
      }
      arguments.tensor_scale = true;
    }
  }
  auto resolved = resolve(arguments);
  if (!resolved) return Error{fmt::format("--formats: '{}': {}", text, resolved.error().message)};
  return resolved;
}

Expected<std::vector<QuantizeOptions>> parse_formats(const std::vector<std::string>& texts) {
  std::vector<QuantizeOptions> out;
  for (const std::string& text : texts) {
    auto format = parse_format(text);
    if (!format) return format.error();
    const std::string label = report::label_of(*format);
    if (std::ranges::any_of(out, [&](const QuantizeOptions& other) { return report::label_of(other) == label; })) {
      return Error{fmt::format("--formats: {} stands twice", label)};
    }
    out.push_back(*format);
  }
  if (out.size() > 8) return Error{fmt::format("--formats: {} are too many for a picture; at most 8", out.size())};
  return out;
}

std::string text_of(const std::vector<QuantizeOptions>& formats, const std::vector<TensorReport>& tensors,
                    const Options& options, std::size_t bytes) {
  TextTable table;
  std::vector<std::string> header{"tensor", "shape"};
  std::vector<std::size_t> right;
  for (const QuantizeOptions& format : formats) {
    right.push_back(header.size());
    header.push_back(report::label_of(format));
  }
  table.add(std::move(header));
  std::size_t left_out = 0;
  for (const TensorReport& tensor : tensors) {
    if (!tensor.reason.empty()) {
      ++left_out;
      continue;
    }
    std::vector<std::string> row{name_text(tensor.name), shape_text(tensor.shape)};
    for (const report::FormatStatistics& s : tensor.formats) row.push_back(sqnr_text(s.result.error));
    table.add(std::move(row));
  }
  std::string out = table.text(right) + "\n";
  if (left_out != 0) out += fmt::format("{} tensors left out; the report says why\n", left_out);
  return out + fmt::format("report  {}, {} bytes\n", options.common.report, bytes);
}

Json json_of(const std::vector<QuantizeOptions>& formats, const std::vector<TensorReport>& tensors,
             const Options& options, std::size_t bytes) {
  Json json{{"output", options.common.report}, {"bytes", bytes}};
  json["tensors"] = Json::array();
  for (const TensorReport& tensor : tensors) {
    Json one{{"name", tensor.name}, {"shape", tensor.shape}, {"dtype", tensor.dtype}};
    if (!tensor.file.empty()) one["file"] = tensor.file;
    if (!tensor.reason.empty()) {
      one["left_out"] = tensor.reason;
    } else {
      one["axis"] = tensor.axis;
      one["formats"] = Json::array();
      for (std::size_t i = 0; i < formats.size(); ++i) {
        const report::FormatStatistics& s = tensor.formats[i];
        one["formats"].push_back({{"format", report::label_of(formats[i])},
                                  {"bytes", {{"codes", s.result.code_bytes}, {"scales", s.result.scale_bytes}}},
                                  {"saturated", s.saturated},
                                  {"underflowed", s.underflowed},
                                  {"zero", s.zero},
                                  {"error", error_json(s.result.error)}});
      }
    }
    json["tensors"].push_back(std::move(one));
  }
  return json;
}

Expected<Exit> run(const Options& options, const Console& console) {
  const bool compared = !options.common.golden.empty() || !options.common.dut.empty();
  if (compared && !options.inputs.empty()) {
    return Error{"tensors, or --golden and --dut: a report is of one or the other"};
  }
  if (compared && (options.common.golden.empty() || options.common.dut.empty())) {
    return Error{"--golden and --dut: give both, the results to compare"};
  }
  if (compared) return report_diff(options.common, console);
  if (options.inputs.empty()) {
    return Error{"nothing to report: give tensors, or --golden and --dut (see bitcube report --help)"};
  }
  const auto formats = parse_formats(options.formats);
  if (!formats) return formats.error();
  const auto date = date_of(options.common.date);
  if (!date) return date.error();
  report::PageHead head{.title = options.common.title, .command = options.common.invocation, .date = *date};
  std::vector<TensorFiles> files;
  for (std::size_t i = 0; i < options.inputs.size(); ++i) {
    const std::string& input = options.inputs[i];
    if (std::find(options.inputs.begin(), options.inputs.begin() + static_cast<std::ptrdiff_t>(i), input) !=
        options.inputs.begin() + static_cast<std::ptrdiff_t>(i)) {
      return Error{fmt::format("{}: stands twice", input)};
    }
    auto opened = TensorFiles::open(input);
    if (!opened) return opened.error();
    if (const auto& first = opened->tensors();
        !is_checkpoint(input) && stream::element_format(first.front()) == nullptr) {
      return Error{fmt::format("{}: {} elements; accepted are {}", input, first.front().dtype, kQuantizedArrays)};
    }
    std::uint64_t bytes = 0;
    for (const stream::TensorInfo& tensor : opened->tensors()) bytes += tensor.bytes;
    head.inputs.push_back({"Input", name_text(input),
                           fmt::format("{} tensor{}, {} bytes", opened->tensors().size(),
                                       opened->tensors().size() == 1 ? "" : "s", bytes)});
    for (const std::string& warning : opened->warnings())
      head.warnings.push_back(fmt::format("{}: {}", input, warning));
    files.push_back(std::move(*opened));
  }
  if (head.title.empty()) {
    const std::string name = std::filesystem::path(options.inputs.front()).filename().string();
    head.title = options.inputs.size() == 1
                     ? fmt::format("Quantisation of {}", name_text(name))
                     : fmt::format("Quantisation of {} and {} more files", name_text(name), options.inputs.size() - 1);
  }
  const auto reasons = stream::select(files, options.selection, head.warnings);
  if (!reasons) return reasons.error();
  auto output = create_output(options.common.report, options.inputs);
  if (!output) return output.error();

  std::size_t selected = 0;
  for (const auto& of_file : *reasons) {
    selected +=
        static_cast<std::size_t>(std::ranges::count_if(of_file, [](const auto& reason) { return reason.empty(); }));
  }
  if (selected == 0) {
    return Error{fmt::format("{}: no tensor is selected; see --include, --exclude, --min-dim and --min-rank",
                             options.inputs.front())};
  }
  std::vector<TensorReport> tensors;
  ProgressBar bar("report");
  std::size_t done = 0;
  for (std::size_t f = 0; f < files.size(); ++f) {
    for (std::size_t i = 0; i < files[f].tensors().size(); ++i) {
      const stream::TensorInfo& info = files[f].tensors()[i];
      const std::string file =
          files.size() == 1 ? info.file : options.inputs[f] + (info.file.empty() ? "" : ": " + info.file);
      if (!(*reasons)[f][i].empty()) {
        tensors.push_back({.file = file,
                           .name = info.name,
                           .dtype = info.packed ? std::string(info.packed->format->name) : info.dtype,
                           .shape = info.shape,
                           .reason = (*reasons)[f][i]});
        continue;
      }
      Execution execution = execution_of(options.common.threads);
      if (Progress show = bar.callback()) {
        execution.progress = [=](std::size_t part, std::size_t whole) {
          show(done * 1000 + part * 1000 / std::max<std::size_t>(whole, 1), selected * 1000);
        };
      }
      auto measured = report::measure_tensor(files[f], i, options.common.axis, *formats, execution, window_size());
      if (!measured) {
        return Error{
            fmt::format("{}: tensor {}: {}", options.inputs[f], name_text(info.name), measured.error().message)};
      }
      measured->file = file;
      tensors.push_back(std::move(*measured));
      ++done;
    }
  }
  for (const std::string& warning : head.warnings) console.warning(warning);

  const std::string page = report::tensor_page(head, *formats, tensors, options.pictures);
  if (auto written = output->append(page); !written) return written.error();
  const auto printed = console.json() ? console.print_json(json_of(*formats, tensors, options, page.size()))
                                      : console.print(text_of(*formats, tensors, options, page.size()));
  if (!printed) return printed.error();
  if (auto committed = output->commit(); !committed) return committed.error();
  return Exit::success;
}

}  // namespace

std::string shell_word(const std::string& text) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:=+@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string command_line(const CLI::App& command) {
  std::string out = "bitcube " + command.get_name();
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_single_name();
    if (option->count() == 0 || name == "threads" || name == "max-memory" || name == "json") continue;
    const bool page = name == "report" || (name == "output" && command.get_name() == "report");
    if (page) continue;
    const auto& values = option->results();
    if (option->get_positional()) {
      for (const std::string& value : values) out += " " + shell_word(value);
    } else if (option->get_expected_max() == 0) {
      out += " --" + name;
    } else if (option->get_delimiter() != 0) {
      out += fmt::format(" --{} {}", name, shell_word(fmt::format("{}", fmt::join(values, ","))));
    } else if (option->get_expected_min() > 1) {
      out += " --" + name;
      for (const std::string& value : values) out += " " + shell_word(value);
    } else {
      for (const std::string& value : values) out += fmt::format(" --{} {}", name, shell_word(value));
    }
  }
  return out + (command.get_name() == "report" ? " -o report.html" : " --report report.html");
}

Expected<std::string> date_of(const std::string& given) {
  const char* epoch = std::getenv("SOURCE_DATE_EPOCH");
  if (!given.empty() || epoch == nullptr) return given;
  const std::string text = epoch;
  constexpr std::time_t kLast = 253402300799;  // in the year 9999
  std::time_t seconds = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || seconds < 0 || seconds > kLast) {
    return Error{fmt::format("SOURCE_DATE_EPOCH: '{}' is no number of seconds since 1970", text)};
  }
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min);
}

void add_report(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand(
      "report",
      "Write one HTML file with pictures and tables: what tensors lose in block formats, or how two results differ");
  const auto options = std::make_shared<Options>();
  command
      .add_option("INPUT", options->inputs,
                  "A .npy array (uint16: bits of BF16), a .safetensors file, or model.safetensors.index.json")
      ->type_name("W.npy|W.safetensors|W.index.json");
  command
      .add_option(
          "--formats", options->formats,
          fmt::format("Block formats, with commas between them: {}. A colon chooses a profile of hif4 (hif4:paper), "
                      "a scale rule of MX (mxfp4:rceil), or nvfp4:tensor-scale; "
                      "default: hif4,mxfp8-e4m3,mxfp4,nvfp4",
                      choices(block_formats)))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME[:CHOICE],...");
  command.add_option("-o,--output", options->common.report, "The report")->type_name("REPORT.html")->required();
  command.add_option("--title", options->common.title, "Title of the page; default: from the name of the input")
      ->type_name("TEXT");
  command
      .add_option("--date", options->common.date,
                  "Text that says when; default: that of SOURCE_DATE_EPOCH if it is set, else none, so that the same "
                  "input gives the same bytes")
      ->type_name("TEXT");
  command
      .add_option("--pictures", options->pictures,
                  fmt::format("Tensors with pictures of their own, those with the lowest SQNR; all others are in the "
                              "tables. Default: {}",
                              report::kPicturedTensors))
      ->type_name("N")
      ->check(whole_number(1000));
  add_limits(command, options->common.threads);
  add_json(command);
  constexpr const char* kSelection = "Tensors of checkpoints (F64, F32, F16 and BF16; all others are listed)";
  const auto patterns = [&](const char* name, std::vector<std::string>& to, const char* description) {
    command.add_option(name, to, description)->type_name("REGEX")->allow_extra_args(false)->group(kSelection);
  };
  patterns("--include", options->selection.include,
           "Only tensors whose name has a match of this (RE2 syntax); may be repeated: one is enough");
  patterns("--exclude", options->selection.exclude, "Leave out tensors whose name has a match; may be repeated");
  command
      .add_option("--min-dim", options->selection.min_dim,
                  "Leave out tensors that have a smaller dimension; default: 64")
      ->type_name("N")
      ->check(whole_number(std::numeric_limits<std::uint64_t>::max()))
      ->group(kSelection);
  command
      .add_option("--min-rank", options->selection.min_rank, "Leave out tensors that have fewer dimensions; default: 2")
      ->type_name("N")
      ->check(whole_number(64))
      ->group(kSelection);
  constexpr const char* kCompared = "Two results instead of tensors (as in bitcube diff)";
  command.add_option("--golden", options->common.golden, "The right result")
      ->type_name("G.npy|G.bin|G.safetensors")
      ->group(kCompared);
  command.add_option("--dut", options->common.dut, "The result to judge")
      ->type_name("D.npy|D.bin|D.safetensors")
      ->group(kCompared);
  options->common.add_to(command, kCompared);
  add_examples(
      command,
      "  bitcube report W.npy --axis 0 -o report.html\n"
      "  bitcube report model.safetensors --formats hif4,hif4:paper,mxfp4:rceil --exclude embed -o report.html\n"
      "  bitcube report --golden golden.bin --dut dut.bin --from-array W.npy --to e4m3 -o report.html");
  command.callback([=, &console, &action, &command] {
    options->common.invocation = command_line(command);
    action = [=, &console] { return run(*options, console); };
  });
}

}  // namespace bitcube::cli
