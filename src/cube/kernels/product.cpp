#include "cube/kernels/product.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <vector>

#include <hwy/aligned_allocator.h>

#include "cube/kernels/float_environment.hpp"
#include "cube/kernels/tile_kernels.hpp"

namespace bitcube::kernels {

namespace {

constexpr std::size_t b_block_bytes = std::size_t{8} << 20;    // packed B of one pass, about
constexpr std::size_t a_block_bytes = std::size_t{256} << 10;  // packed A of one task at most, about

/// A row of a tile, in pieces that the compiler copies without a call.
void copy_words(std::uint32_t* to, const std::uint32_t* from, std::size_t n) noexcept {
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) std::memcpy(to + i, from + i, 16);
  for (; i < n; ++i) to[i] = from[i];
}

std::size_t ceil_div(std::size_t a, std::size_t b) noexcept {
  return a / b + (a % b != 0 ? 1 : 0);
}
int ceil_log2(std::size_t n) noexcept {
  return n <= 1 ? 0 : bit_length(n - 1);
}

/// The integers of the 4-bit codes of a type, in its smallest unit: quarters, halves or ones.
std::array<std::int8_t, 16> nibble_table(const Format& f) noexcept {
  std::array<std::int8_t, 16> table{};
  const int unit = f.is_integer() ? 0 : f.type == DataType::e2m1x2 ? -1 : -2;
  for (unsigned code = 0; code < 16; ++code) {
    const Real x = decode(f, code).real;
    const auto magnitude = static_cast<int>(static_cast<uint64>(split(x, unit).quanta));
    table[code] = static_cast<std::int8_t>(x.negative ? -magnitude : magnitude);
  }
  return table;
}

/// Types whose lanes are small integers under a scale.
bool is_small(const Format& f) noexcept {
  return f.type == DataType::hif4x2 || f.type == DataType::e2m1x2 || f.type == DataType::e1m2x2;
}

/// The most negative integer of a lane, without its sign: added to a lane it makes it unsigned.
int offset_to_unsigned(const Format& f) noexcept {
  switch (f.type) {
    case DataType::hif4x2:
      return 28;
    case DataType::e2m1x2:
      return 12;
    case DataType::e1m2x2:
      return 7;
    default:
      return f.kind == Kind::signed_integer ? 1 << (f.lane_bits - 1) : 0;
  }
}

int significand_bits(const Format& f) noexcept {
  if (f.type == DataType::hif4x2) return 6;  // 3 of the lane, 3 of E6M2
  return f.layout == Layout::dot_field ? 4 : f.fraction_bits + 1;
}

struct Choice {
  Method method = Method::f32_fma;
  std::size_t group = 0;           // lanes; 0: the whole chunk
  bool products_must_fit = false;  // of PackRequest
  bool sums_fit = false;           // of PackRequest
};

/// Bits from the lowest one of the smallest lane to the highest of the largest, where one scale serves a group.
int lane_span(const Format& f) noexcept {
  if (f.layout == Layout::dot_field) return 38;  // 2^-22 to 1.5 * 2^15
  if (f.type == DataType::hif4x2) return 8;      // quarters below 32, E6M2's 3 bits
  const Value smallest = decode(f, uint64{1} << f.low_zero_bits);
  return floor_log2(decode(f, f.max_finite).real) + 1 - smallest.real.exponent;
}

std::optional<Choice> choose(const Operand& a, const Operand& b, Accumulation profile, const ProductKind& kind,
                             std::size_t group) {
  if (profile == Accumulation::raw_carrier) return std::nullopt;
  const Format& fa = *a.format;
  const Format& fb = *b.format;
  if (kind.accumulator->is_integer()) {
    return Choice{fa.lane_bits <= 8 && fb.lane_bits <= 8 ? Method::i8_modulo : Method::i16_modulo};
  }
  const auto divides = [](std::size_t part, std::size_t whole) { return part != 0 && whole % part == 0; };
  const bool small = is_small(fa) && is_small(fb);
  switch (profile) {
    case Accumulation::fma:
      if (tile_kernels(Method::f32_fma).fused) return Choice{Method::f32_fma};
      // Without a fused multiply-add: where the product is an FP32 value, rounding it changes nothing.
      if (significand_bits(fa) + significand_bits(fb) > 24) return std::nullopt;
      return Choice{Method::f32_two_step, 0, true};
    case Accumulation::two_step:
      return Choice{Method::f32_two_step};
    case Accumulation::group: {
      const bool whole_scales =
          (!a.scaled() || divides(group, scale_group(fa))) && (!b.scaled() || divides(group, scale_group(fb)));
      if (small && whole_scales && group % 16 == 0 && divides(group, 64)) return Choice{Method::i8_group, group};
      if (group % 16 != 0 || !divides(group, chunk_units)) return std::nullopt;
      return Choice{Method::f64_group, group, false,
                    whole_scales && lane_span(fa) + lane_span(fb) + ceil_log2(group) <= 53};
    }
    case Accumulation::exact:
      if (small) {
        const std::size_t sa = a.scaled() ? scale_group(fa) : 64;
        const std::size_t sb = b.scaled() ? scale_group(fb) : 64;
        return Choice{Method::i8_exact, std::min(sa, sb)};
      }
      return Choice{Method::f64_exact};
    case Accumulation::raw_carrier:
      break;
  }
  return std::nullopt;
}

/// Memory for consecutive panels of one operand, all chunks of a pass, with their scales and corrections.
class Panels {
 public:
  Panels(Method method, bool is_b, std::size_t width, std::size_t panels, std::size_t chunks)
      : chunks_(chunks),
        unit_bytes_((is_b ? chunk_units : line_units) * width * unit_bytes(method)),
        beside_(chunk_groups * width),
        sums_(is_b ? width : chunk_groups * width),
        has_scales_(method == Method::i8_group || method == Method::i8_exact),
        has_bounds_(method == Method::f64_group),
        units_(hwy::AllocateAligned<std::byte>(unit_bytes_ * panels * chunks)) {
    if (units_ == nullptr) throw std::bad_alloc();
    if (has_scales_) scales_.resize(beside_ * panels * chunks);
    if (has_bounds_) bounds_.resize(beside_ * panels * chunks);
    if (lanes_per_unit(method) > 1) sums_of_.resize(sums_ * panels * chunks);
    ranges_.resize(panels * chunks);
  }

  Panel at(std::size_t panel, std::size_t chunk) noexcept {
    const std::size_t i = panel * chunks_ + chunk;
    Panel out;
    out.units = units_.get() + i * unit_bytes_;
    if (has_scales_) out.beside.scales = scales_.data() + i * beside_;
    if (has_bounds_) out.beside.bounds = bounds_.data() + i * beside_;
    if (!sums_of_.empty()) out.beside.sums = sums_of_.data() + i * sums_;
    return out;
  }
  ExponentRange& range(std::size_t panel, std::size_t chunk) noexcept { return ranges_[panel * chunks_ + chunk]; }

 private:
  std::size_t chunks_;
  std::size_t unit_bytes_;  // of one chunk of one panel
  std::size_t beside_;
  std::size_t sums_;
  bool has_scales_;
  bool has_bounds_;
  hwy::AlignedFreeUniquePtr<std::byte[]> units_;
  std::vector<float> scales_;
  std::vector<double> bounds_;
  std::vector<std::int32_t> sums_of_;
  std::vector<ExponentRange> ranges_;
};

class Product {
 public:
  Product(const Operand& a, const Operand& b, const MatmulOptions& options, const Choice& choice,
          const TileKernels& kernels, Accumulators& out)
      : a_(a),
        b_(b),
        options_(options),
        choice_(choice),
        kernels_(kernels),
        out_(out),
        chunk_lanes_(chunk_units * lanes_per_unit(choice.method)),
        chunks_(ceil_div(a.k, chunk_lanes_)),
        pass_chunks_(is_exact(choice.method) ? chunks_ : 1),
        bad_a_(a.lines),
        bad_b_(b.lines) {
    a_table_ = nibble_table(*a.format);
    b_table_ = nibble_table(*b.format);
    request_a_ = request(false);
    request_b_ = request(true);
  }

  void run() {
    const std::size_t panel_bytes = kernels_.cols * pass_chunks_ * chunk_units * unit_bytes(choice_.method);
    const std::size_t b_panels = ceil_div(b_.lines, kernels_.cols);
    const std::size_t block_panels = std::min(b_panels, std::max<std::size_t>(1, b_block_bytes / panel_bytes));
    Panels b_block(choice_.method, true, kernels_.cols, block_panels, pass_chunks_);

    const std::size_t a_panel_bytes = kernels_.rows * pass_chunks_ * line_units * unit_bytes(choice_.method);
    const std::size_t a_panels = ceil_div(a_.lines, kernels_.rows);
    // A panel of B is read once per task, so tasks are large; with several threads they are as many as can be shared
    // out.
    const std::size_t most = std::max<std::size_t>(1, a_block_bytes / a_panel_bytes);
    const std::size_t shares = thread_count(options_.execution) == 1 ? 1 : 2 * thread_count(options_.execution);
    task_panels_ = ceil_div(a_panels, ceil_div(ceil_div(a_panels, most), shares) * shares);
    const std::size_t tasks = ceil_div(a_panels, task_panels_);
    const std::size_t passes = ceil_div(chunks_, pass_chunks_);
    progress_total_ = ceil_div(b_panels, block_panels) * passes * tasks;

    const Execution quiet = options_.execution.quiet();
    for (std::size_t first = 0; first < b_panels; first += block_panels) {
      const std::size_t panels = std::min(block_panels, b_panels - first);
      for (std::size_t pass = 0; pass < passes; ++pass) {
        parallel_for(panels, quiet, [&](std::size_t p) {
          const FloatEnvironment environment;
          pack(request_b_, b_, kernels_.cols, first + p, pass, b_block, p, bad_b_);
        });
        parallel_for(tasks, quiet, [&](std::size_t task) {
          const FloatEnvironment environment;
          const std::size_t begin = task * task_panels_;
          multiply_block(begin, std::min(task_panels_, a_panels - begin), first, panels, pass, pass + 1 == passes,
                         b_block);
          if (options_.execution.progress) {
            options_.execution.progress(progress_done_.fetch_add(1, std::memory_order_relaxed) + 1, progress_total_);
          }
        });
      }
    }
    a_blocks_.clear();
  }

  /// Lines that the method cannot take; tiles whose sums binary64 may not hold, or in which C is -0 and the sign of a
  /// sum of zeros is not settled.
  void leave_to(const ReferenceOutputs& reference) const {
    std::vector<std::size_t> bad_rows;
    std::vector<std::size_t> good_rows;
    std::vector<std::size_t> bad_cols;
    std::vector<std::size_t> all_cols(b_.lines);
    std::iota(all_cols.begin(), all_cols.end(), std::size_t{0});
    for (std::size_t r = 0; r < a_.lines; ++r) (bad_a_[r] != 0 ? bad_rows : good_rows).push_back(r);
    for (const std::size_t c : all_cols) {
      if (bad_b_[c] != 0) bad_cols.push_back(c);
    }
    if (!bad_rows.empty()) reference(bad_rows, all_cols);
    if (!bad_cols.empty() && !good_rows.empty()) reference(good_rows, bad_cols);
    // Tiles side by side share the decoding of their rows.
    std::map<std::size_t, std::vector<std::size_t>> cols_of;
    for (const Place& tile : left_) {
      for (std::size_t c = 0; c < tile.cols; ++c) cols_of[tile.row].push_back(tile.col + c);
    }
    for (auto& [row, cols] : cols_of) {
      std::sort(cols.begin(), cols.end());
      cols.erase(std::unique(cols.begin(), cols.end()), cols.end());
      std::vector<std::size_t> rows(std::min(kernels_.rows, a_.lines - row));
      std::iota(rows.begin(), rows.end(), row);
      reference(rows, cols);
    }
  }

 private:
  /// Outputs [row, row + rows) x [col, col + cols).
  struct Place {
    std::size_t row = 0;
    std::size_t col = 0;
    std::size_t rows = 0;
    std::size_t cols = 0;
  };

  PackRequest request(bool is_b) const noexcept {
    const Operand& side = is_b ? b_ : a_;
    PackRequest r{.side = &side, .method = choice_.method, .is_b = is_b};
    r.group = choice_.group == 0 ? chunk_lanes_ : choice_.group;
    r.products_must_fit = choice_.products_must_fit;
    r.sums_fit = choice_.sums_fit;
    if (side.format->lane_bits == 4) r.table = is_b ? b_table_.data() : a_table_.data();
    // Dot products of bytes take signed lanes of A and unsigned ones of B, those of 16-bit integers signed ones.
    int offset_a = 0;
    int offset_b = 0;
    switch (choice_.method) {
      case Method::i8_group:
      case Method::i8_exact:
        offset_b = offset_to_unsigned(*b_.format);
        break;
      case Method::i8_modulo:
        offset_b = offset_to_unsigned(*b_.format);
        if (a_.format->type == DataType::u8) offset_a = -128;
        break;
      case Method::i16_modulo:
        if (a_.format->type == DataType::u16) offset_a = -32768;
        if (b_.format->type == DataType::u16) offset_b = -32768;
        break;
      default:
        break;
    }
    r.offset = is_b ? offset_b : offset_a;
    r.other_offset = is_b ? offset_a : offset_b;
    return r;
  }

  std::size_t lanes_in(std::size_t chunk) const noexcept { return std::min(chunk_lanes_, a_.k - chunk * chunk_lanes_); }

  void pack(const PackRequest& r, const Operand& side, std::size_t width, std::size_t panel, std::size_t pass,
            Panels& to, std::size_t slot, std::vector<std::uint8_t>& bad) const {
    const std::size_t line = panel * width;
    const std::size_t count = std::min(width, side.lines - line);
    for (std::size_t i = 0; i < pass_chunks_; ++i) {
      const std::size_t chunk = pass * pass_chunks_ + i;
      ExponentRange& range = to.range(slot, i);
      range = {};
      kernels_.pack(r, line, count, chunk * chunk_lanes_, lanes_in(chunk), to.at(slot, i), bad.data() + line, range);
    }
  }

  void multiply_block(std::size_t first_a, std::size_t a_panels, std::size_t first_b, std::size_t b_panels,
                      std::size_t pass, bool last, Panels& b_block) {
    std::unique_ptr<Panels> a_block = take_a_block();
    for (std::size_t p = 0; p < a_panels; ++p) {
      pack(request_a_, a_, kernels_.rows, first_a + p, pass, *a_block, p, bad_a_);
    }
    for (std::size_t j = 0; j < b_panels; ++j) {
      for (std::size_t i = 0; i < a_panels; ++i) {
        const Place place = place_of(first_a + i, first_b + j);
        prefetch(place_of(first_a + (i + 1 < a_panels ? i + 1 : 0),
                          first_b + (i + 1 < a_panels || j + 1 == b_panels ? j : j + 1)));
        multiply_tile(place, pass, last, *a_block, i, b_block, j);
      }
    }
    const std::scoped_lock lock(a_blocks_mutex_);
    a_blocks_.push_back(std::move(a_block));
  }

  /// Panels of A for one task, from a task that is done if there is one. They are not the threads' own: the C library
  /// aborts where it has no memory to note what a thread has to destroy.
  std::unique_ptr<Panels> take_a_block() {
    {
      const std::scoped_lock lock(a_blocks_mutex_);
      if (!a_blocks_.empty()) {
        std::unique_ptr<Panels> block = std::move(a_blocks_.back());
        a_blocks_.pop_back();
        return block;
      }
    }
    return std::make_unique<Panels>(choice_.method, false, kernels_.rows, task_panels_, pass_chunks_);
  }

  Place place_of(std::size_t a_panel, std::size_t b_panel) const noexcept {
    Place p{a_panel * kernels_.rows, b_panel * kernels_.cols};
    p.rows = std::min(kernels_.rows, a_.lines - p.row);
    p.cols = std::min(kernels_.cols, b_.lines - p.col);
    return p;
  }

  /// The outputs of a tile begin with a load, so they are fetched while the tile before is computed.
  void prefetch(const Place& place) const noexcept {
    constexpr std::size_t line = 64 / sizeof(std::uint32_t);
    for (std::size_t r = 0; r < place.rows; ++r) {
      const std::uint32_t* row = out_.words.data() + (place.row + r) * out_.cols + place.col;
      for (std::size_t c = 0; c < place.cols; c += line) __builtin_prefetch(row + c, 1);
    }
  }

  /// C or +0. Also for a tile that is computed aside: outputs that were written once already, while their lines are at
  /// hand, take the results faster. Filling the tile alone made the product of HiF4 a tenth slower.
  void start(const Place& place) noexcept {
    for (std::size_t r = 0; r < place.rows; ++r) {
      const std::size_t at = (place.row + r) * out_.cols + place.col;
      if (options_.c) {
        std::memcpy(out_.words.data() + at, options_.c->data() + at, place.cols * sizeof(std::uint32_t));
      } else {
        std::memset(out_.words.data() + at, 0, place.cols * sizeof(std::uint32_t));
      }
    }
  }

  void multiply_tile(const Place& place, std::size_t pass, bool last, Panels& a_block, std::size_t i, Panels& b_block,
                     std::size_t j) {
    constexpr std::size_t most = std::size_t{14} * 32;
    alignas(64) std::array<std::uint32_t, most> edge;
    alignas(64) std::array<double, 2 * most>
        exact;  // three parts of f64 tiles, which are less than two thirds as large
    std::uint32_t* out = out_.words.data() + place.row * out_.cols + place.col;
    if (pass == 0) start(place);
    // Rows of a matrix may lie in the same few sets of the cache, where panels displace them between two groups.
    const bool whole = place.rows == kernels_.rows && place.cols == kernels_.cols;
    const bool in_place = whole && choice_.method != Method::i8_group;
    Tile tile;
    tile.out = out;
    tile.out_stride = out_.cols;
    if (!in_place) {
      if (!whole) edge.fill(0);
      for (std::size_t r = 0; r < place.rows; ++r) {
        copy_words(edge.data() + r * kernels_.cols, out + r * out_.cols, place.cols);
      }
      tile.out = edge.data();
      tile.out_stride = kernels_.cols;
    }
    if (is_exact(choice_.method)) {
      if (!judge_sums(a_block, i, b_block, j, tile)) return leave(place);
      // Minus zero adds nothing; integer sums have lost the signs of zeros, which finish_outputs() looks after.
      const std::size_t outputs = kernels_.rows * kernels_.cols;
      const bool parts = choice_.method == Method::f64_exact;
      std::fill_n(exact.data(), outputs, parts ? -0.0 : 0.0);
      if (parts) std::fill_n(exact.data() + outputs, 2 * outputs, 0.0);
      tile.exact = exact.data();
    }
    for (std::size_t chunk = 0; chunk < pass_chunks_; ++chunk) {
      const Panel a = a_block.at(i, chunk);
      const Panel b = b_block.at(j, chunk);
      tile.a = a.units;
      tile.b = b.units;
      tile.a_beside = a.beside;
      tile.b_beside = b.beside;
      const std::size_t per_unit = lanes_per_unit(choice_.method);
      tile.units = ceil_div(lanes_in(pass * pass_chunks_ + chunk), per_unit);
      tile.group_units = choice_.group == 0 ? chunk_units : choice_.group / per_unit;
      if (choice_.method == Method::f64_group && !choice_.sums_fit) {
        const int bits = a_block.range(i, chunk).span + b_block.range(j, chunk).span + ceil_log2(choice_.group);
        tile.sums_are_exact = bits <= 53;
      }
      kernels_.multiply(tile);
    }
    if (kernels_.finish != nullptr && !kernels_.finish(tile)) leave(place);
    if (last) finish_outputs(place, tile);
    if (in_place) return;
    for (std::size_t r = 0; r < place.rows; ++r) {
      copy_words(out + r * out_.cols, edge.data() + r * kernels_.cols, place.cols);
    }
  }

  void leave(const Place& place) {
    const std::scoped_lock lock(left_mutex_);
    left_.push_back(place);
  }

  /// Tells whether binary64 holds every partial sum over all of K: all addends are multiples of one power of two, and
  /// the sum of their magnitudes is at most 2^53 times as large. False where the method cannot do without that.
  bool judge_sums(Panels& a_block, std::size_t i, Panels& b_block, std::size_t j, Tile& tile) const noexcept {
    ExponentRange a;
    ExponentRange b;
    for (std::size_t chunk = 0; chunk < pass_chunks_; ++chunk) {
      a.include(a_block.range(i, chunk));
      b.include(b_block.range(j, chunk));
    }
    if (a.empty() || b.empty()) return true;  // only zeros
    const int spread = a.high - a.low + b.high - b.low;
    // An integer sum of a group is below 2^16: 64 products of at most 784.
    if (choice_.method == Method::i8_exact) return 16 + spread + ceil_log2(ceil_div(a_.k, choice_.group)) <= 53;
    tile.sums_are_exact = spread + ceil_log2(a_.k) <= 53;
    return true;
  }

  void finish_outputs(const Place& place, const Tile& tile) {
    bool unsettled = false;
    if (!options_.c && !options_.bias && tile.out_stride == kernels_.cols) {
      return kernels_.add_bias(tile.out, nullptr, kernels_.rows * kernels_.cols);
    }
    for (std::size_t r = 0; r < place.rows; ++r) {
      std::uint32_t* row = tile.out + r * tile.out_stride;
      if (options_.c && loses_zero_signs()) {
        const std::uint32_t* c = options_.c->data() + (place.row + r) * out_.cols + place.col;
        for (std::size_t i = 0; i < place.cols; ++i) {
          unsettled = unsettled || (c[i] == 0x80000000 && row[i] << 1 == 0);
        }
      }
      kernels_.add_bias(row, options_.bias ? options_.bias->data() + place.col : nullptr, place.cols);
    }
    if (unsettled) leave(place);
  }

  /// Whether a lane of -0 may have become +0 on its way through integers. It shows only in a sum of zeros that starts
  /// from C = -0.
  bool loses_zero_signs() const noexcept {
    return choice_.method == Method::i8_group || choice_.method == Method::i8_exact;
  }

  const Operand& a_;
  const Operand& b_;
  const MatmulOptions& options_;
  Choice choice_;
  TileKernels kernels_;
  Accumulators& out_;
  std::size_t chunk_lanes_;
  std::size_t chunks_;
  std::size_t pass_chunks_;
  std::size_t task_panels_ = 0;
  std::array<std::int8_t, 16> a_table_{};
  std::array<std::int8_t, 16> b_table_{};
  PackRequest request_a_;
  PackRequest request_b_;
  std::vector<std::uint8_t> bad_a_;
  std::vector<std::uint8_t> bad_b_;
  std::mutex a_blocks_mutex_;
  std::vector<std::unique_ptr<Panels>> a_blocks_;  // without a task
  std::mutex left_mutex_;
  std::vector<Place> left_;
  std::atomic<std::size_t> progress_done_{0};
  std::size_t progress_total_ = 0;
};

}  // namespace

bool multiply(const Operand& a, const Operand& b, const MatmulOptions& options, const ProductKind& kind,
              std::size_t group, Accumulators& out, const ReferenceOutputs& reference) {
  const std::optional<Choice> choice = choose(a, b, options.profile->kind, kind, group);
  if (!choice) return false;
  const TileKernels kernels = tile_kernels(choice->method);
  if (kernels.rows == 0) return false;
  Product product(a, b, options, *choice, kernels, out);
  product.run();
  product.leave_to(reference);
  return true;
}

}  // namespace bitcube::kernels
