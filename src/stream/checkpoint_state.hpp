// What the journal of an unfinished checkpoint says.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/stream/checkpoint.hpp"

namespace bitcube::stream {

/// The first line: a digest of all that the result depends on.
std::string work_line(std::string_view digest);
/// The machine was started anew if this differs: what was not on the disk by then may be lost.
std::string boot_line(std::string_view boot);
/// The boot of this machine, as the kernel names it; empty where it does not.
std::string current_boot();
/// The file is made (again), and nothing of it is done.
std::string file_line(std::size_t file);
/// All that was done before is on the disk.
std::string synced_line();

/// What is noted of a tensor that is done.
struct Finished {
  CheckpointResult result;
  std::string fingerprint;  // of its bytes, see fingerprint.hpp; one word
};
std::string done_line(std::size_t tensor, const Finished& finished);
/// The tensor of such a line, or nothing where it is damaged.
std::optional<std::size_t> read_done(std::string_view line, Finished& finished);

struct Journal {
  bool ours = false;  // it is one of this work; otherwise nothing follows
  std::map<std::size_t, Finished> done;
  std::size_t damaged = 0;  // lines that say nothing; what they said is not in `done`
};

/// The tensors that were done, as far as the lines are whole: whether their bytes are is for the caller to check.
/// `file_of` gives the file of each tensor.
Journal read_journal(std::string_view journal, std::string_view digest, std::string_view boot,
                     const std::vector<std::size_t>& file_of);

}  // namespace bitcube::stream
