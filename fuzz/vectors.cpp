// Bytes as a vector file of any form: every row is counted once, or the first that is malformed is named.
#include "bitcube/verify/conform.hpp"
#include "memory_file.hpp"

using namespace bitcube;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile file;
  file.set(data, size);
  const auto report = verify::conform(std::span(&file.path(), 1), {.first = 3, .execution = {.threads = 1}});
  fuzz::require_result(report, "a file that is there has a report");
  fuzz::require(report->files.size() == 1, "of its own");
  const verify::FileReport& found = report->files.front();
  fuzz::require(found.rows == found.matches + found.known_total() + found.mismatches, "every row is counted once");
  fuzz::require(found.first.size() == std::min<uint64>(3, found.mismatches), "the first mismatches are kept");
  fuzz::require(found.form != nullptr || found.error.has_value(), "a file of no form is an error");
  for (const verify::Mismatch& mismatch : found.first) {
    fuzz::require(mismatch.row >= 1 && mismatch.row <= found.rows && !mismatch.differences.empty(),
                  "a mismatch says which row it is, and what differs");
  }
  return 0;
}
