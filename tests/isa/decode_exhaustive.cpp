// All 2^32 words: decode() does what the contract says by the letter, at most one form accepts each, encode() gives the
// word back, every rejection is reasoned, and of a sample the text round-trips. Prints progress, exits 1 on a
// difference. Usage: isa_decode_exhaustive [THREADS]
#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bitcube/isa/text.hpp"
#include "bitcube/parallel.hpp"
#include "isa/contract.hpp"

namespace {

using namespace bitcube;
using namespace bitcube::isa;

constexpr unsigned chunk_bits = 20;
constexpr std::uint64_t sample = 1021;  // one word in so many is also written and read as text

struct Totals {
  std::atomic<std::uint64_t> accepted{0};
  std::atomic<std::uint64_t> rejected{0};
  std::atomic<std::uint64_t> wrong{0};
};

bool text_round_trips(const Decoded& decoded, Word word) {
  if (!decoded) return !explain(decoded.rejection).empty();
  const auto words = assemble_line(to_text(*decoded));
  return words && words->size() == 1 && words->front() == word;
}

bool is_right(std::uint64_t bits, const Decoded& decoded) {
  const test::Verdict verdict = test::judge(bits);
  if (verdict.ambiguous || verdict.accepted != static_cast<bool>(decoded)) return false;
  const int length = instruction_length(bits);
  const Word word{bits & (~std::uint64_t{0} >> (64 - 8 * length)), static_cast<std::uint8_t>(length)};
  if (decoded) {
    if (decoded->form() != verdict.form || Codec::encode(*decoded) != word) return false;
  } else if (decoded.rejection.form != verdict.form) {
    return false;
  }
  return bits % sample != 0 || text_round_trips(decoded, word);
}

void check_chunk(std::uint64_t first, Totals& totals) {
  std::uint64_t accepted = 0;
  std::uint64_t wrong = 0;
  const std::uint64_t count = std::uint64_t{1} << chunk_bits;
  for (std::uint64_t bits = first; bits < first + count; ++bits) {
    const Decoded decoded = decode(bits);
    accepted += decoded ? 1U : 0U;
    if (is_right(bits, decoded)) continue;
    if (++wrong <= 10) std::fputs(fmt::format("{:#010x}: {}\n", bits, disassemble({bits, 4})).c_str(), stdout);
  }
  totals.accepted += accepted;
  totals.rejected += count - accepted;
  totals.wrong += wrong;
}

}  // namespace

int main(int argc, char** argv) {
  Execution execution;
  if (argc > 1) execution.threads = static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10));
  execution.progress = [](std::size_t done, std::size_t total) {
    if (done % 64 == 0) std::fputs(fmt::format("\r{:3} %", 100 * done / total).c_str(), stderr);
  };
  Totals totals;
  bitcube::parallel_for(std::size_t{1} << (32 - chunk_bits), execution,
                        [&](std::size_t i) { check_chunk(std::uint64_t{i} << chunk_bits, totals); });
  std::fputs("\n", stderr);
  std::fputs(fmt::format("{} accepted, {} rejected, {} wrong\n", totals.accepted.load(), totals.rejected.load(),
                         totals.wrong.load())
                 .c_str(),
             stdout);
  return totals.wrong == 0 ? 0 : 1;
}
