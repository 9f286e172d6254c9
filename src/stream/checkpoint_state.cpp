#include "checkpoint_state.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <fstream>
#include <sstream>

namespace bitcube::stream {
namespace {

/// Doubles as their bits: so they come back as they were, infinities and NaN too.
std::array<double*, 5> numbers_of(ErrorReport& e) {
  return {&e.max_relative_error, &e.mean_relative_error, &e.max_absolute_error, &e.mean_squared_error, &e.sqnr};
}

bool read_done(std::istream& line, std::size_t& tensor, CheckpointResult& result) {
  unsigned flags = 0;
  std::string scale;
  ErrorReport& e = result.error;
  line >> std::dec >> tensor >> flags >> scale >> e.lanes >> e.non_finite >> e.non_zero >> std::hex;
  for (double* number : numbers_of(e)) {
    std::uint64_t bits = 0;
    line >> bits;
    *number = std::bit_cast<double>(bits);
  }
  std::string end;
  line >> end;
  if (end != "." || flags > 0xFF) return false;
  result.rounding_flags = static_cast<Flags>(flags);
  if (scale != "-") {
    std::istringstream word(scale);
    std::uint32_t value = 0;
    if (!(word >> std::hex >> value)) return false;
    result.tensor_scale = value;
  }
  result.resumed = true;
  return true;
}

}  // namespace

std::string work_line(std::string_view digest) {
  return fmt::format("bitcube checkpoint {}", digest);
}
std::string boot_line(std::string_view boot) {
  return fmt::format("boot {}", boot);
}
std::string file_line(std::size_t file) {
  return fmt::format("file {}", file);
}
std::string synced_line() {
  return "synced";
}

std::string current_boot() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

std::string done_line(std::size_t tensor, const CheckpointResult& result) {
  ErrorReport e = result.error;
  std::string line = fmt::format("done {} {} {} {} {} {}", tensor, static_cast<unsigned>(result.rounding_flags),
                                 result.tensor_scale ? fmt::format("{:08x}", *result.tensor_scale) : "-", e.lanes,
                                 e.non_finite, e.non_zero);
  for (const double* number : numbers_of(e)) line += fmt::format(" {:x}", std::bit_cast<std::uint64_t>(*number));
  return line + " .";
}

std::optional<std::map<std::size_t, CheckpointResult>> read_journal(std::string_view journal, std::string_view digest,
                                                                    std::string_view boot,
                                                                    const std::vector<std::size_t>& file_of) {
  std::istringstream lines{std::string(journal)};
  std::string line;
  if (!std::getline(lines, line) || line != work_line(digest)) return std::nullopt;
  std::map<std::size_t, CheckpointResult> synced;
  std::map<std::size_t, CheckpointResult> done;  // these and more
  std::string running;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "boot") {
      std::string now;
      words >> now;
      if (now != running || now.empty()) done = synced;
      running = now;
    } else if (kind == "file") {
      std::size_t file = 0;
      if (!(words >> file)) return std::nullopt;
      const auto of_file = [&](const auto& entry) { return file_of[entry.first] == file; };
      std::erase_if(done, of_file);
      std::erase_if(synced, of_file);
    } else if (kind == "synced") {
      synced = done;
    } else if (kind == "done") {
      std::size_t tensor = 0;
      CheckpointResult result;
      if (!read_done(words, tensor, result) || tensor >= file_of.size()) return std::nullopt;
      done[tensor] = result;
    } else {
      return std::nullopt;
    }
  }
  return running == boot && !boot.empty() ? done : synced;
}

}  // namespace bitcube::stream
