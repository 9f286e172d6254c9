// What `diff` and `report` are told of two results that are compared.
#pragma once

#include <string>
#include <vector>

#include "common.hpp"

namespace bitcube::cli {

/// The arguments that do not depend on how GOLDEN was made, and those of conversions and quantised tensors.
struct DiffArguments {
  std::string golden;
  std::string dut;
  std::string format;
  std::string shape;
  std::vector<std::string> scales;  // of GOLDEN, of DUT
  std::int64_t axis = -1;
  std::string layout;
  std::string name;

  std::string from_array;
  std::string from;
  std::string to;
  std::string source;
  std::string source_type;

  // Of the page, if one is asked for:
  std::string report;  // its file, or empty
  std::string title;
  std::string date;
  std::string invocation;  // that makes the page again

  unsigned threads = 0;

  /// Declares those of the results and of the conversion or quantisation that made them, but for GOLDEN and DUT.
  /// Those of the results but for --axis are listed under `group`.
  void add_to(CLI::App& command, const std::string& group = "Options");
};

/// Compares as `diff` does, prints what it prints, and writes the page.
Expected<Exit> report_diff(const DiffArguments& arguments, const Console& console);

/// --date, or the day and time of SOURCE_DATE_EPOCH, or nothing. Errors: an epoch that is no time.
Expected<std::string> date_of(const std::string& given);
/// An argument as a shell takes it.
std::string shell_word(const std::string& text);
/// The command line that was parsed, as a shell takes it, but for what does not change a page: its name, threads.
std::string command_line(const CLI::App& command);

}  // namespace bitcube::cli
