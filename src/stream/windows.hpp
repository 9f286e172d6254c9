// The parts in which a tensor passes through memory, and the pieces of a file that such a part is.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/parallel.hpp"
#include "bitcube/quantize/lines.hpp"

namespace bitcube::stream {

/// A part of a tensor seen as [outer, K, inner]: some indices of each. It is a tensor itself, quantised along axis 1.
struct Window {
  uint64 outer = 0;
  uint64 outers = 1;
  uint64 lane = 0;
  uint64 lanes = 0;
  uint64 inner = 0;
  uint64 inners = 1;

  uint64 elements() const noexcept { return outers * lanes * inners; }
  std::array<uint64, 3> shape() const noexcept { return {outers, lanes, inners}; }
  /// The first of its lines.
  uint64 line(const Lines& lines) const noexcept { return outer * lines.inner + inner; }
  /// The number in the tensor of its element i.
  uint64 element(const Lines& lines, uint64 i) const noexcept {
    const uint64 k = i / inners % lanes;
    return ((outer + i / inners / lanes) * lines.length + lane + k) * lines.inner + inner + i % inners;
  }
};

/// A part of a tensor that is worked on by one process: lines that follow each other, or groups of a single line.
/// `window` tells the indices.
struct Panel {
  Window window;

  /// Its lines, as if it were a tensor.
  Lines lines() const noexcept {
    return {.count = window.outers * window.inners, .length = window.lanes, .inner = window.inners};
  }
  /// A window of these lines, in the tensor.
  Window place(Window part) const noexcept {
    part.outer += window.outer;
    part.lane += window.lane;
    part.inner += window.inner;
    return part;
  }
};
/// The tensor as one panel.
Panel whole_panel(const Lines& lines) noexcept;
/// Panels of about so many elements, in the order of the lines. Each but the last has a multiple of `block` groups,
/// which may make one larger. A tensor without lines has none.
std::vector<Panel> panels_of(const Lines& lines, unsigned group, uint64 block, uint64 elements);

using UseWindow = std::function<Expected<void>(const Window&)>;

/// No window needs to be larger where elements are read in order.
inline constexpr uint64 kEnough = uint64{1} << 22;

/// Covers a tensor with windows of at most `most` elements, but at least a group. In line order: each window is some
/// lines, or whole groups of one line, and they follow each other as in the codes. Where a line has more than `most`
/// elements, so that it is read in parts, and other lines lie between these, the file is read as often as there are
/// such lines: this takes K > `most`, which at 4 bytes is a matrix of 30 million rows.
Expected<void> for_each_in_line_order(const Lines& lines, unsigned group, uint64 most, const UseWindow& use);
/// The same in the order of the elements as far as `most` allows.
Expected<void> for_each_in_memory_order(const Lines& lines, unsigned group, uint64 most, const UseWindow& use);

/// `count` pieces of `run` bytes each, `stride` bytes from one to the next.
struct Pieces {
  std::uint64_t offset = 0;
  std::uint64_t stride = 0;
  std::uint64_t count = 0;
  std::uint64_t run = 0;
};
/// Where the elements of a window lie in row-major words of this size.
Pieces pieces_of(const Window& window, const Lines& lines, std::size_t word_bytes) noexcept;

/// Copies bytes from an offset; may be called from several threads.
using Read = std::function<Expected<void>(std::uint64_t offset, std::span<std::byte> to)>;
/// Reads pieces one after the other into `to`, which must hold them.
Expected<void> read_pieces(const Read& read, const Pieces& pieces, std::span<std::byte> to, unsigned threads);

/// Progress of a work of `total` elements that is done window by window.
class Steps {
 public:
  Steps(const Execution& execution, uint64 total) : execution_(execution), total_(total) {}

  /// For work on so many elements: reports its progress as a part of the whole.
  Execution of(uint64 elements) const {
    Execution step = execution_;
    if (execution_.progress) {
      step.progress = [this, elements, before = done_](std::size_t done, std::size_t total) {
        report(before + elements / std::max<std::size_t>(total, 1) * done);
      };
    }
    return step;
  }
  /// For work that is too short to report.
  Execution quiet() const { return execution_.quiet(); }
  void finished(uint64 elements) {
    done_ += elements;
    if (execution_.progress) report(done_);
  }

 private:
  void report(uint64 done) const { execution_.progress(std::min(done, total_), total_); }

  const Execution& execution_;
  uint64 total_;
  uint64 done_ = 0;
};

}  // namespace bitcube::stream
