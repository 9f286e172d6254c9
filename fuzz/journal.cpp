// Bytes as the journal of a checkpoint that is not complete: what it says of a tensor is said again by the line that
// would be written of it. Lines that end in a tilde get the fingerprint in its place that makes them whole.
#include "input.hpp"
#include "stream/checkpoint_state.hpp"
#include "stream/fingerprint.hpp"

using namespace bitcube;

namespace {

std::string sealed(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with(" ~")) {
      line.remove_suffix(2);
      stream::Fingerprint sum;
      sum.add(std::as_bytes(std::span(line)));
      out.append(line).append(" ").append(sum.text());
    } else {
      out.append(line);
    }
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::size_t> file_of{0, 0, 1, 1, 2};
  const stream::Journal journal = stream::read_journal(sealed(fuzz::text_of(data, size)), "digest", "boot", file_of);
  fuzz::require(journal.ours || journal.done.empty(), "a journal of another work says nothing");
  std::string text = stream::work_line("digest") + "\n" + stream::boot_line("boot") + "\n";
  for (const auto& [tensor, finished] : journal.done) {
    fuzz::require(tensor < file_of.size(), "a tensor that is done is one of the work");
    text += stream::done_line(tensor, finished) + "\n";
  }
  const stream::Journal again = stream::read_journal(text, "digest", "boot", file_of);
  fuzz::require(again.ours && again.damaged == 0 && again.done.size() == journal.done.size(),
                "a journal that was written is read");
  for (const auto& [tensor, finished] : journal.done) {
    const auto same = again.done.find(tensor);
    fuzz::require(
        same != again.done.end() && stream::done_line(tensor, same->second) == stream::done_line(tensor, finished),
        "and says the same");
  }
  return 0;
}
