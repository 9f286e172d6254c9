#include "windows.hpp"

#include <numeric>
#include <vector>

#include "first_error.hpp"

namespace bitcube::stream {
namespace {

/// Calls use(begin, count) for parts of [0, total) of at most `step`.
template <typename Use>
Expected<void> for_each_step(uint64 total, uint64 step, const Use& use) {
  for (uint64 begin = 0; begin < total; begin += step) {
    if (auto used = use(begin, std::min(step, total - begin)); !used) return used;
  }
  return {};
}

/// Whole outer indices, as many as are enough. Precondition: one of them has at most `most` elements.
Expected<void> for_each_outer(const Lines& lines, uint64 most, const UseWindow& use) {
  const uint64 one = lines.length * lines.inner;
  return for_each_step(lines.count / lines.inner, std::max<uint64>(1, std::min(most, kEnough) / one),
                       [&](uint64 outer, uint64 outers) {
                         return use({.outer = outer, .outers = outers, .lanes = lines.length, .inners = lines.inner});
                       });
}

}  // namespace

Panel whole_panel(const Lines& lines) noexcept {
  return {{.outers = lines.count / lines.inner, .lanes = lines.length, .inners = lines.inner}};
}

std::vector<Panel> panels_of(const Lines& lines, unsigned group, uint64 block, uint64 elements) {
  std::vector<Panel> panels;
  if (lines.count == 0) return panels;
  // Steps of `unit` indices that have `size` elements each, of which `groups` groups are a multiple of a block.
  const auto step = [&](uint64 groups, uint64 size) {
    const uint64 unit = block / std::gcd(block, groups % block);
    const uint64 wanted = std::max<uint64>(1, elements / size);
    return (wanted + unit - 1) / unit * unit;
  };
  const Window whole = whole_panel(lines).window;
  const uint64 groups = (lines.length + group - 1) / group;
  if (whole.outers > 1) {
    (void)for_each_step(whole.outers, step(lines.inner % block * (groups % block), lines.inner * lines.length),
                        [&](uint64 outer, uint64 outers) -> Expected<void> {
                          Window w = whole;
                          w.outer = outer;
                          w.outers = outers;
                          panels.push_back({w});
                          return {};
                        });
  } else if (whole.inners > 1) {
    (void)for_each_step(whole.inners, step(groups, lines.length), [&](uint64 inner, uint64 inners) -> Expected<void> {
      Window w = whole;
      w.inner = inner;
      w.inners = inners;
      panels.push_back({w});
      return {};
    });
  } else {
    (void)for_each_step(whole.lanes, step(1, group) * group, [&](uint64 lane, uint64 lanes) -> Expected<void> {
      Window w = whole;
      w.lane = lane;
      w.lanes = lanes;
      panels.push_back({w});
      return {};
    });
  }
  return panels;
}

Expected<void> for_each_in_line_order(const Lines& lines, unsigned group, uint64 most, const UseWindow& use) {
  const uint64 length = lines.length;
  if (lines.count == 0) return {};
  if (length > most) {
    const uint64 enough = lines.inner == 1 ? std::min(most, kEnough) : most;
    return for_each_step(lines.count, 1, [&](uint64 line, uint64) {
      return for_each_step(length, std::max<uint64>(1, enough / group) * group, [&](uint64 lane, uint64 lanes) {
        return use({.outer = line / lines.inner, .lane = lane, .lanes = lanes, .inner = line % lines.inner});
      });
    });
  }
  if (lines.inner > most / length) {
    return for_each_step(lines.count / lines.inner, 1, [&](uint64 outer, uint64) {
      return for_each_step(lines.inner, most / length, [&](uint64 inner, uint64 inners) {
        return use({.outer = outer, .lanes = length, .inner = inner, .inners = inners});
      });
    });
  }
  return for_each_outer(lines, most, use);
}

Expected<void> for_each_in_memory_order(const Lines& lines, unsigned group, uint64 most, const UseWindow& use) {
  const uint64 length = lines.length;
  if (lines.count == 0) return {};
  if (length <= most && lines.inner <= most / length) return for_each_outer(lines, most, use);
  const uint64 shortest = std::min<uint64>(group, length);
  const uint64 inners_at_once = std::clamp<uint64>(most / shortest, 1, lines.inner);
  const uint64 lanes_at_once = std::max<uint64>(1, most / inners_at_once / group) * group;
  return for_each_step(lines.count / lines.inner, 1, [&](uint64 outer, uint64) {
    return for_each_step(length, lanes_at_once, [&](uint64 lane, uint64 lanes) {
      return for_each_step(lines.inner, inners_at_once, [&](uint64 inner, uint64 inners) {
        return use({.outer = outer, .lane = lane, .lanes = lanes, .inner = inner, .inners = inners});
      });
    });
  });
}

Pieces pieces_of(const Window& window, const Lines& lines, std::size_t word_bytes) noexcept {
  Pieces out{.offset = window.element(lines, 0) * word_bytes,
             .stride = lines.inner * word_bytes,
             .count = window.outers * window.lanes,
             .run = window.inners * word_bytes};
  if (out.run != out.stride) return out;  // then there is one outer index only
  out.run *= std::exchange(out.count, 1);
  out.stride = out.run;
  return out;
}

Expected<void> read_pieces(const Read& read, const Pieces& pieces, std::span<std::byte> to, unsigned threads) {
  if (pieces.count == 1) return read(pieces.offset, to);
  // Where little lies between two pieces, reading that as well costs less than another call.
  constexpr std::uint64_t kGap = 4096;
  constexpr std::uint64_t kAtOnce = std::uint64_t{1} << 18;
  const bool together = pieces.stride - pieces.run <= kGap;
  const std::uint64_t per_task = std::max<std::uint64_t>(1, kAtOnce / (together ? pieces.stride : pieces.run + kGap));
  FirstError failed;
  parallel_for((pieces.count + per_task - 1) / per_task, {.threads = threads}, [&](std::size_t task) {
    const std::uint64_t first = task * per_task;
    const std::uint64_t count = std::min(per_task, pieces.count - first);
    const auto place = [&](std::uint64_t i) { return to.subspan((first + i) * pieces.run, pieces.run); };
    const std::uint64_t offset = pieces.offset + first * pieces.stride;
    Expected<void> done;
    if (together) {
      std::vector<std::byte> bytes((count - 1) * pieces.stride + pieces.run);
      done = read(offset, bytes);
      for (std::uint64_t i = 0; i < count && done; ++i) {
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(i * pieces.stride), pieces.run, place(i).begin());
      }
    } else {
      for (std::uint64_t i = 0; i < count && done; ++i) done = read(offset + i * pieces.stride, place(i));
    }
    if (!done) failed.report(task, done.error());
  });
  if (failed.error()) return *failed.error();
  return {};
}

}  // namespace bitcube::stream
