#include "checkpoint_state.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <fstream>
#include <span>
#include <sstream>

#include "fingerprint.hpp"

namespace bitcube::stream {
namespace {

/// Doubles as their bits: so they come back as they were, infinities and NaN too.
std::array<double*, 5> numbers_of(ErrorReport& e) {
  return {&e.max_relative_error, &e.mean_relative_error, &e.max_absolute_error, &e.mean_squared_error, &e.sqnr};
}

/// What stands at the end of a line that must be whole.
std::string seal(std::string_view line) {
  Fingerprint sum;
  sum.add(std::as_bytes(std::span(line)));
  return " " + sum.text();
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

std::string done_line(std::size_t tensor, const Finished& finished) {
  const CheckpointResult& result = finished.result;
  ErrorReport e = result.error;
  std::string line = fmt::format("done {} {} {} {} {} {}", tensor, static_cast<unsigned>(result.rounding_flags),
                                 result.tensor_scale ? fmt::format("{:08x}", *result.tensor_scale) : "-", e.lanes,
                                 e.non_finite, e.non_zero);
  for (const double* number : numbers_of(e)) line += fmt::format(" {:x}", std::bit_cast<std::uint64_t>(*number));
  line += " " + finished.fingerprint;
  return line + seal(line);
}

std::optional<std::size_t> read_done(std::string_view text, Finished& finished) {
  const auto end = text.rfind(' ');
  if (end == std::string_view::npos || text.substr(end) != seal(text.substr(0, end))) return std::nullopt;
  std::istringstream line{std::string(text.substr(0, end))};
  CheckpointResult& result = finished.result;
  ErrorReport& e = result.error;
  std::string kind;
  std::size_t tensor = 0;
  unsigned flags = 0;
  std::string scale;
  line >> kind >> tensor >> flags >> scale >> e.lanes >> e.non_finite >> e.non_zero >> std::hex;
  for (double* number : numbers_of(e)) {
    std::uint64_t bits = 0;
    line >> bits;
    *number = std::bit_cast<double>(bits);
  }
  line >> finished.fingerprint;
  if (!line) return std::nullopt;
  result.rounding_flags = static_cast<Flags>(flags);
  if (scale != "-") {
    std::istringstream word(scale);
    std::uint32_t value = 0;
    if (!(word >> std::hex >> value)) return std::nullopt;
    result.tensor_scale = value;
  }
  result.resumed = true;
  return tensor;
}

Journal read_journal(std::string_view journal, std::string_view digest, std::string_view boot,
                     const std::vector<std::size_t>& file_of) {
  Journal out;
  std::istringstream lines{std::string(journal)};
  std::string line;
  if (!std::getline(lines, line) || line != work_line(digest)) return out;
  out.ours = true;
  std::map<std::size_t, Finished> synced;
  std::map<std::size_t, Finished> done;  // these and more
  std::string running;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    std::size_t file = 0;
    if (kind == "boot") {
      std::string now;
      words >> now;
      if (now != running || now.empty()) done = synced;
      running = now;
    } else if (kind == "file" && words >> file) {
      const auto of_file = [&](const auto& entry) { return file_of[entry.first] == file; };
      std::erase_if(done, of_file);
      std::erase_if(synced, of_file);
    } else if (line == synced_line()) {
      synced = done;
    } else {
      Finished finished;
      const auto tensor = kind == "done" ? read_done(line, finished) : std::nullopt;
      if (tensor && *tensor < file_of.size()) {
        done[*tensor] = std::move(finished);
      } else {
        ++out.damaged;
      }
    }
  }
  out.done = running == boot && !boot.empty() ? std::move(done) : std::move(synced);
  return out;
}

}  // namespace bitcube::stream
