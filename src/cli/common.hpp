// What the subcommands share: exit codes, messages and results, names from the library's tables, numbers as text.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/io/array.hpp"
#include "bitcube/io/file.hpp"
#include "bitcube/io/npy.hpp"
#include "bitcube/numeric/decode.hpp"
#include "bitcube/numeric/flags.hpp"
#include "bitcube/parallel.hpp"
#include "text_table.hpp"
#include "value_text.hpp"

namespace bitcube::cli {

/// Keys keep their order.
using Json = nlohmann::ordered_json;

enum class Exit : int {
  success = 0,
  differences = 1,  // a comparison or a check found some
  error = 2,        // bad usage or bad input
  fault = 3,        // an architectural fault that was not expected
};

/// What a subcommand does once the command line is understood.
using Action = std::function<Expected<Exit>()>;

/// Where messages and results go. With --json each message is an object on a line of its own, such as {"error": "…"}.
class Console {
 public:
  explicit Console(bool json, Team& team = solo_team(), std::string_view program = "bitcube") noexcept
      : json_(json), team_(team), program_(program) {}

  bool json() const noexcept { return json_; }
  /// The processes that do this command together. The console of all but rank 0 is silent.
  Team& team() const noexcept { return team_; }
  void error(std::string_view text) const noexcept { message("error", text); }
  /// The error where not even its text can be put together: allocates nothing. Any rank tells it, as it then ends.
  void out_of_memory() const noexcept;
  void warning(std::string_view text) const noexcept { message("warning", text); }
  void note(std::string_view text) const noexcept { message("note", text); }

  /// Writes all of it to standard output, at once.
  Expected<void> print(std::string_view text) const;
  Expected<void> print_json(const Json& json) const;

 private:
  void message(std::string_view kind, std::string_view text) const noexcept;

  bool json_;
  Team& team_;
  std::string_view program_;
};

// ---- Options

/// --json, which run_program() has seen already.
void add_json(CLI::App& command);
/// --max-memory: the kernel holds the command to it.
void add_memory_limit(CLI::App& command);
/// --threads and --max-memory.
void add_limits(CLI::App& command, unsigned& threads);
/// How a command does its work: it stops on Ctrl-C.
Execution execution_of(unsigned threads, Progress progress = {});
/// The same, by all processes of console.team().
Execution team_execution_of(const Console& console, unsigned threads, Progress progress = {});
/// The error of a command that would take more bytes than --max-memory allows; `what` names it with its sizes. What the
/// program takes by itself is added here.
Expected<void> check_memory(std::string_view what, std::uint64_t bytes);
/// The window for what is done window by window, see stream::kWindow: as large as --max-memory allows.
std::size_t window_size();
/// A check of options that count: CLI11 would take -1 for a very large number.
CLI::Validator whole_number(uint64 limit);
/// A check of options that may be negative: CLI11 would take 10^30 for the largest number that it has.
CLI::Validator signed_number();
/// The last lines of --help.
void add_examples(CLI::App& command, std::string_view lines);

/// The name that is most like `text`, or an empty one if none is: for "did you mean".
std::string_view closest(std::string_view text, std::span<const std::string_view> names);
/// "OPTION: no such thing as TEXT; did you mean …? Choose from …".
Error unknown_name(std::string_view option, std::string_view text, std::span<const std::string_view> names);

template <typename Table>
std::vector<std::string_view> names_of(const Table& table) {
  std::vector<std::string_view> names;
  names.reserve(std::size(table));
  for (const auto& row : table) names.push_back(row.name);
  return names;
}
/// "a|b|c", the names of a table for --help.
template <typename Table>
std::string choices(const Table& table) {
  return fmt::format("{}", fmt::join(names_of(table), "|"));
}

/// The row of this name, by the table's own function.
template <typename Table, typename Find>
Expected<const typename Table::value_type*> look_up(std::string_view option, std::string_view text, const Table& table,
                                                    const Find& find) {
  const typename Table::value_type* row = find(text);
  if (row != nullptr) return row;
  return unknown_name(option, text, names_of(table));
}
Expected<const Format*> look_up_format(std::string_view option, std::string_view text);

/// What the elements of an array are where no option says otherwise, or nullptr.
const Format* native_format(DType dtype) noexcept;

/// --round: a mode, or nothing where the text is empty.
Expected<std::optional<Rounding>> look_up_rounding(std::string_view option, std::string_view text);

/// A hexadecimal number after 0x, of at most 64 bits.
Expected<uint64> parse_hex(std::string_view text);
/// Whether a literal is an unsigned hexadecimal integer, and so means bits, not a value.
bool is_bit_pattern(std::string_view text) noexcept;

// ---- Numbers as text

/// A value as a JSON number where it is finite, else as one of the strings inf, -inf, nan.
Json value_json(const Format& f, const Value& value);
Json flags_json(Flags flags);
/// A number of JSON, or the string "inf" or "nan".
Json number_json(double number);

// ---- Files

/// Errors: the path is "-", or that of an input or of standard output. Inputs may be FILE:DTYPE:SHAPE.
Expected<void> check_output(const std::string& path, std::span<const std::string> inputs);
/// Says where the bits of BF16 are, if the array that is written has them.
void note_bf16(const Console& console, const Format& format);
/// Bytes of a regular file, which may be FILE:DTYPE:SHAPE; 0 of anything else.
std::uint64_t file_bytes(const std::string& text);
/// Starts an output file that passes check_output(). Of a team only rank 0 has one; what others write is lost.
Expected<OutputFile> create_output(const std::string& path, std::span<const std::string> inputs,
                                   const Team& team = solo_team());

// ---- Time

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// A progress bar on standard error if that is a terminal, else nothing. Erased at the end.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  /// What a long call reports to; empty where there is no bar. Must not outlive the bar.
  Progress callback();

 private:
  void show(std::size_t done, std::size_t total);

  std::string label_;
  bool enabled_;
  std::atomic<bool> busy_{false};
  std::atomic<std::int64_t> last_{-1};  // milliseconds after the start of the last drawing
  bool drawn_ = false;
  Stopwatch clock_;
};

}  // namespace bitcube::cli
