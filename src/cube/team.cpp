#include "bitcube/cube/team.hpp"

#include <algorithm>
#include <cstring>

#include "guarded.hpp"
#include "team_work.hpp"

namespace bitcube {
namespace {

LaneView from_line(LaneView view, std::size_t line) noexcept {
  if (view.data != nullptr) view.data += line * view.line_stride * view.lane_bits / 8;
  return view;
}

template <typename Words>
std::string_view text_of(const Words& words) noexcept {
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(words[0])};
}

/// What rank 0 appends of each rank, in the order of the rows.
template <typename Words>
Expected<void> collect(Team& team, const Words& mine, Words& all) {
  const auto parts = team.gather(text_of(mine));
  if (!parts) return parts.error();
  std::size_t bytes = 0;
  for (const std::string& part : *parts) bytes += part.size();
  all.resize(bytes / sizeof(mine[0]));
  auto* to = reinterpret_cast<char*>(all.data());
  for (const std::string& part : *parts) to = std::copy(part.begin(), part.end(), to);
  return {};
}

Expected<Postprocessed> compute(const Operand& a, const Operand& b, const MatmulOptions& product,
                                const PostprocessOptions& finish) {
  const auto accumulators = matmul(a, b, product);
  if (!accumulators) return accumulators.error();
  return postprocess(*accumulators, finish);
}

Expected<Postprocessed> share(Team& team, const Operand& a, const Operand& b, const MatmulOptions& product,
                              const PostprocessOptions& finish) {
  const auto kind = check_matmul(a, b, product);
  if (!kind) return kind.error();
  if (auto legal = check_postprocess(*kind->accumulator, a.lines, b.lines, finish); !legal) return legal.error();
  const std::string shape = fmt::format("{} {} {} {}", a.lines, b.lines, a.k, kind->accumulator->name);
  if (auto same = agree(team, "matmul", shape); !same) return same.error();
  // An even number of rows, so that packed lanes are cut between bytes.
  const std::size_t each = ((a.lines - 1) / team.size() + 2) / 2 * 2;
  const std::size_t first = std::min(a.lines, team.rank() * each);
  const std::size_t rows = std::min(each, a.lines - first);
  Postprocessed mine;
  if (rows != 0) {
    MatmulOptions here = product;
    if (here.c) here.c = here.c->subspan(first * b.lines, rows * b.lines);
    PostprocessOptions then = finish;
    if (then.row_max_init) then.row_max_init = then.row_max_init->subspan(first, rows);
    auto computed = compute(lines_of(a, first, rows), b, here, then);
    if (!computed) return computed.error();
    mine = std::move(*computed);
  }
  Postprocessed all;
  if (auto done = collect(team, mine.d, all.d); !done) return done.error();
  if (auto done = collect(team, mine.row_max, all.row_max); !done) return done.error();
  if (auto done = collect(team, mine.group_max, all.group_max); !done) return done.error();
  const auto flags = team.gather(std::string(1, static_cast<char>(mine.flags)));
  if (!flags) return flags.error();
  if (!team.leads()) return Postprocessed{};
  for (const std::string& part : *flags) all.flags |= static_cast<Flags>(part.front());
  all.format = mine.format;  // rank 0 always has rows
  all.accumulator = mine.accumulator;
  all.element_bytes = mine.element_bytes;
  all.rows = a.lines;
  all.cols = b.lines;
  return all;
}

}  // namespace

Operand lines_of(const Operand& side, std::size_t first, std::size_t count) noexcept {
  Operand out = side;
  out.lines = count;
  out.lanes = from_line(side.lanes, first);
  out.scales = from_line(side.scales, first);
  return out;
}

Expected<Postprocessed> matmul_postprocess(const Operand& a, const Operand& b, const MatmulOptions& product,
                                           const PostprocessOptions& finish) {
  Team& team = team_of(product.execution);
  if (team.size() == 1) return compute(a, b, product, finish);
  return guarded("matmul", [&] { return share(team, a, b, product, finish); });
}

}  // namespace bitcube
