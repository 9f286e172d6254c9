#include "bitcube/compare/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <tuple>

#include "bitcube/numeric/decode.hpp"
#include "bitcube/quantize/lines.hpp"
#include "guarded.hpp"
#include "value_text.hpp"

namespace bitcube {
namespace {

/// Position of every HiF8 code among the values of the format: its codes are not in the order of their values. NaN has
/// none, and is not asked for.
std::array<int, 256> hif8_ranks() noexcept {
  const Format& f = format_of(DataType::hif8);
  std::array<int, 256> ranks{};
  for (unsigned code = 0; code < 0x80; ++code) {
    const Value value = decode(f, code);
    int below = 0;
    for (unsigned other = 0; other < 0x80; ++other) {
      const Value v = decode(f, other);
      if (value.is_infinite() ? !v.is_infinite() : !v.is_infinite() && compare_magnitude(v.real, value.real) < 0)
        ++below;
    }
    ranks[code] = below;
    ranks[code | 0x80U] = -below;
  }
  return ranks;
}

/// A number that orders as the values of the format do and counts them.
int64 ordinal(const Format& f, uint64 code) noexcept {
  if (f.kind == Kind::signed_integer) return sign_extend(code & low_mask(f.lane_bits), f.lane_bits);
  switch (f.layout) {
    case Layout::dot_field: {
      static const std::array<int, 256> ranks = hif8_ranks();
      return ranks[code & 0xFF];
    }
    case Layout::reciprocal:
      return -static_cast<int64>(code);
    case Layout::fields:
      if (f.sign_bits != 0) {
        const auto magnitude = static_cast<int64>((code & low_mask(f.sign_bit())) >> f.low_zero_bits);
        return ((code >> f.sign_bit()) & 1) != 0 ? -magnitude : magnitude;
      }
      return static_cast<int64>(code);
    case Layout::exponent:
    case Layout::integer:
      break;
  }
  return static_cast<int64>(code);
}

bool has_order(const Value& v) noexcept {
  return v.is_finite() || v.is_infinite();
}

constexpr std::size_t kPeriod = 128;            // the longest that is looked for
constexpr uint64 kLineLimit = uint64{1} << 20;  // rows and columns that are counted one by one
constexpr uint64 kChunk = uint64{1} << 18;      // elements; even, so that a chunk begins on a byte
constexpr uint64 kPiece = 2048;                 // elements that are compared as bytes first

/// The wildest first.
bool worse(const Mismatch& a, const Mismatch& b) noexcept {
  const auto key = [](const Mismatch& m) {
    return std::tuple(-static_cast<int>(m.difference), ~m.ulps.value_or(0), m.index);
  };
  return key(a) < key(b);
}

/// What is known of the words of one array.
struct Uniform {
  bool zero = true;
  bool nan = true;
  bool constant = true;
  uint64 word = 0;

  bool trivial() const noexcept { return zero || nan || constant; }
  void merge(const Uniform& other) noexcept {
    zero = zero && other.zero;
    nan = nan && other.nan;
    constant = constant && other.constant && word == other.word;
  }
};

struct Counts {
  std::array<uint64, difference_classes.size()> classes{};
  std::array<uint64, 65> ulps{};  // by the bit length of the distance
  uint64 most_ulps = 0;
  uint64 mismatches = 0;
  uint64 outside = 0;
  uint64 meaningless = 0;  // words that differ where they have no meaning
  std::array<uint64, kPeriod> row_residues{};
  std::array<uint64, kPeriod> column_residues{};
  uint64 rows = 0;  // touched
  uint64 first_row = 0;
  uint64 last_row = 0;
  uint64 first_column = ~uint64{0};
  uint64 last_column = 0;
  std::vector<Mismatch> first;
  std::vector<Mismatch> worst;
  Uniform golden;
  Uniform dut;
};

/// Matrix of the part: the last axis as columns.
struct Extents {
  uint64 rows = 0;
  uint64 columns = 0;
};
Extents extents_of(std::span<const uint64> shape) noexcept {
  Extents e{1, shape.back()};
  for (const uint64 extent : shape.first(shape.size() - 1)) e.rows *= extent;
  return e;
}

std::size_t word_bytes(const ComparedPart& part) noexcept {
  return part.format->carrier_bits / 8;
}

class Comparer {
 public:
  Comparer(const ComparedPart& part, const CompareOptions& options)
      : part_(part), options_(options), f_(*part.format), extents_(extents_of(part.shape)) {
    auto& map = out_.map;
    map.matrix_rows = extents_.rows;
    map.matrix_columns = extents_.columns;
    constexpr uint64 cells = 64;
    map.rows_per_cell = std::max<uint64>(1, (extents_.rows + cells - 1) / cells);
    map.columns_per_cell = std::max<uint64>(1, (extents_.columns + cells - 1) / cells);
    map.rows = static_cast<std::size_t>((extents_.rows + map.rows_per_cell - 1) / map.rows_per_cell);
    map.columns = static_cast<std::size_t>((extents_.columns + map.columns_per_cell - 1) / map.columns_per_cell);
    map.mismatches.resize(map.rows * map.columns);
    if (extents_.rows <= kLineLimit) out_.per_row.resize(static_cast<std::size_t>(extents_.rows));
    if (extents_.columns <= kLineLimit) {
      out_.per_column.resize(static_cast<std::size_t>(extents_.columns));
    } else {
      touched_columns_.resize(static_cast<std::size_t>(extents_.columns / 64 + 1));
    }
  }

  Comparison run() {
    const uint64 elements = extents_.rows * extents_.columns;
    const auto chunks = static_cast<std::size_t>((elements + kChunk - 1) / kChunk);
    std::vector<Counts> counts(chunks);
    parallel_for(chunks, options_.execution, [&](std::size_t i) {
      const uint64 begin = i * kChunk;
      const uint64 end = std::min(begin + kChunk, elements);
      chunk(counts[i], begin, end);
      counts[i].golden = uniform(part_.golden, begin, end);
      counts[i].dut = uniform(part_.dut, begin, end);
    });
    out_.name = part_.name;
    out_.role = part_.role;
    out_.format = part_.format;
    out_.shape = part_.shape;
    out_.elements = elements;
    merge(counts);
    return std::move(out_);
  }

 private:
  static void add(std::vector<uint64>& counts, uint64 index) noexcept {
    if (counts.empty()) return;
    std::atomic_ref(counts[static_cast<std::size_t>(index)]).fetch_add(1, std::memory_order_relaxed);
  }

  /// The bytes that hold elements [begin, end) of one line, or of many where lines follow each other without padding.
  std::pair<std::size_t, std::size_t> byte_range(uint64 begin, uint64 end) const noexcept {
    if (!part_.packed) return {begin * word_bytes(part_), end * word_bytes(part_)};
    if (extents_.columns % 2 == 0) return {begin / 2, (end + 1) / 2};
    const uint64 line = begin / extents_.columns * (extents_.columns / 2 + 1);
    const uint64 column = begin % extents_.columns;
    return {line + column / 2, line + (column + end - begin + 1) / 2};
  }

  void chunk(Counts& n, uint64 begin, uint64 end) {
    const bool by_line = part_.packed && extents_.columns % 2 != 0;
    while (begin < end) {
      uint64 stop = std::min(end, begin + kPiece);
      if (by_line) stop = std::min(stop, (begin / extents_.columns + 1) * extents_.columns);
      const auto [from, to] = byte_range(begin, stop);
      if (std::memcmp(part_.golden.data() + from, part_.dut.data() + from, to - from) == 0) {
        n.classes[0] += stop - begin;
        n.ulps[0] += stop - begin;
      } else {
        const uint64 before = n.mismatches;
        for (uint64 i = begin; i < stop; ++i) element(n, i);
        if (n.mismatches == before && part_.packed) ++n.meaningless;
      }
      begin = stop;
    }
  }

  void element(Counts& n, uint64 index) {
    const uint64 golden = lane_of(part_, part_.golden, index);
    const uint64 dut = lane_of(part_, part_.dut, index);
    if (golden == dut) {
      ++n.classes[0];
      ++n.ulps[0];
      if (!part_.packed && f_.lane_bits < 8 && part_.golden[index] != part_.dut[index]) ++n.meaningless;
      return;
    }
    Mismatch m{.index = index, .golden = golden, .dut = dut};
    m.difference = difference_of(f_, golden, dut);
    m.ulps = ulp_distance(f_, golden, dut);
    ++n.classes[static_cast<std::size_t>(m.difference)];
    n.most_ulps = std::max(n.most_ulps, m.ulps.value_or(0));
    if (m.ulps) ++n.ulps[static_cast<std::size_t>(*m.ulps == 0 ? 0 : bit_length(*m.ulps))];
    if (options_.tolerance.asked() && !tolerated(m)) ++n.outside;

    const uint64 row = index / extents_.columns;
    const uint64 column = index % extents_.columns;
    if (n.mismatches == 0 || row != n.last_row) ++n.rows;
    if (n.mismatches == 0) n.first_row = row;
    ++n.mismatches;
    n.last_row = row;
    n.first_column = std::min(n.first_column, column);
    n.last_column = std::max(n.last_column, column);
    ++n.row_residues[row % kPeriod];
    ++n.column_residues[column % kPeriod];
    add(out_.per_row, row);
    add(out_.per_column, column);
    if (out_.per_column.empty()) {
      std::atomic_ref(touched_columns_[column / 64]).fetch_or(uint64{1} << (column % 64), std::memory_order_relaxed);
    }
    const auto& map = out_.map;
    add(out_.map.mismatches, row / map.rows_per_cell * map.columns + column / map.columns_per_cell);

    if (n.first.size() < options_.first) n.first.push_back(m);
    if (options_.worst != 0 && (n.worst.size() < options_.worst || worse(m, n.worst.back()))) {
      n.worst.insert(std::lower_bound(n.worst.begin(), n.worst.end(), m, worse), m);
      if (n.worst.size() > options_.worst) n.worst.pop_back();
    }
  }

  bool tolerated(const Mismatch& m) const noexcept {
    const Value golden = decode(f_, m.golden);
    const Value dut = decode(f_, m.dut);
    if (golden.is_nan() || dut.is_nan()) return golden.is_nan() && dut.is_nan();
    if (golden.is_infinite() || dut.is_infinite()) return false;
    const Tolerance& t = options_.tolerance;
    if (t.ulps && m.ulps && *m.ulps <= *t.ulps) return true;
    if (!t.relative && !t.absolute) return false;
    const double g = to_double(golden.real);
    return std::fabs(to_double(dut.real) - g) <= t.absolute.value_or(0) + t.relative.value_or(0) * std::fabs(g);
  }

  Uniform uniform(std::span<const std::byte> bytes, uint64 begin, uint64 end) const noexcept {
    Uniform u;
    u.word = lane_of(part_, bytes, begin);
    for (uint64 i = begin; i < end && u.trivial(); ++i) {
      const uint64 word = lane_of(part_, bytes, i);
      u.constant = u.constant && word == u.word;
      if (i != begin && word == u.word) continue;
      const Value v = decode(f_, word);
      u.zero = u.zero && v.cls == Class::zero;
      u.nan = u.nan && v.is_nan();
    }
    return u;
  }

  void merge(std::vector<Counts>& counts) {
    Counts all;
    for (std::size_t c = 0; c < counts.size(); ++c) {
      Counts& n = counts[c];
      if (c == 0) {
        all.golden = n.golden;
        all.dut = n.dut;
      }
      all.golden.merge(n.golden);
      all.dut.merge(n.dut);
      for (std::size_t i = 0; i < n.classes.size(); ++i) all.classes[i] += n.classes[i];
      for (std::size_t i = 0; i < n.ulps.size(); ++i) all.ulps[i] += n.ulps[i];
      all.most_ulps = std::max(all.most_ulps, n.most_ulps);
      all.meaningless += n.meaningless;
      if (n.mismatches == 0) continue;
      const bool goes_on = all.mismatches != 0 && all.last_row == n.first_row;
      all.rows += n.rows - (goes_on ? 1 : 0);
      if (all.mismatches == 0) all.first_row = n.first_row;
      all.last_row = n.last_row;
      all.mismatches += n.mismatches;
      all.outside += n.outside;
      all.first_column = std::min(all.first_column, n.first_column);
      all.last_column = std::max(all.last_column, n.last_column);
      for (std::size_t i = 0; i < kPeriod; ++i) {
        all.row_residues[i] += n.row_residues[i];
        all.column_residues[i] += n.column_residues[i];
      }
      for (Mismatch& m : n.first) {
        if (all.first.size() < options_.first) all.first.push_back(std::move(m));
      }
      all.worst.insert(all.worst.end(), n.worst.begin(), n.worst.end());
    }
    std::sort(all.worst.begin(), all.worst.end(), worse);
    if (all.worst.size() > options_.worst) all.worst.resize(options_.worst);
    for (auto* list : {&all.first, &all.worst}) {
      for (Mismatch& m : *list) m.at = coordinates(part_.shape, m.index);
    }

    out_.mismatches = all.mismatches;
    out_.classes = all.classes;
    if (options_.tolerance.asked()) out_.outside = all.outside;
    std::size_t bins = all.ulps.size();
    while (bins > 0 && all.ulps[bins - 1] == 0) --bins;
    for (std::size_t i = 0; i < bins; ++i) {
      const uint64 from = i == 0 ? 0 : uint64{1} << (i - 1);
      out_.ulps.push_back({from, i == 0 ? 0 : from + (from - 1), all.ulps[i]});
    }
    out_.most_ulps = all.most_ulps;
    out_.rows_touched = all.rows;
    out_.columns_touched = static_cast<uint64>(
        std::count_if(out_.per_column.begin(), out_.per_column.end(), [](uint64 count) { return count != 0; }));
    for (const uint64 bits : touched_columns_) out_.columns_touched += static_cast<uint64>(std::popcount(bits));
    out_.first = std::move(all.first);
    out_.worst = std::move(all.worst);
    warn(all);
    if (all.mismatches != 0) find_patterns(all);
  }

  void warn(const Counts& all) {
    if (out_.elements < 2) return;
    for (const auto& [name, u] : {std::pair{"GOLDEN", &all.golden}, std::pair{"DUT", &all.dut}}) {
      const char* const so = "a comparison with it says little";
      if (u->zero) {
        out_.warnings.push_back(fmt::format("{} is all zero: {}", name, so));
      } else if (u->nan) {
        out_.warnings.push_back(fmt::format("{} is all NaN: {}", name, so));
      } else if (u->constant) {
        out_.warnings.push_back(fmt::format("{} is {} everywhere: {}", name, bits_text(f_, u->word), so));
      }
    }
    if (all.meaningless != 0) {
      out_.warnings.push_back(
          part_.packed
              ? std::string("the nibbles after lines of odd length differ; they are no elements and do not count")
              : fmt::format("{} bytes differ only above their four bits, which do not count", all.meaningless));
    }
  }

  void find(std::string id, std::string text) {
    out_.patterns.push_back({std::move(id), std::move(text), out_.mismatches});
  }

  void find_patterns(const Counts& all) {
    if (out_.mismatches == out_.elements) return find("all", "every element differs");
    const Extents& e = extents_;
    if (out_.mismatches == 1) return find("element", "a single element differs");
    const bool one_row = out_.rows_touched == 1 && e.rows > 1;
    const bool one_column = out_.columns_touched == 1 && e.columns > 1;
    if (one_row || e.rows == 1) {
      const std::size_t sizes[] = {part_.group, 16, 32, 64};
      for (const std::size_t size : sizes) {
        if (size < 2 || e.columns <= size || all.first_column / size != all.last_column / size) continue;
        const uint64 group = all.first_column / size;
        find("group", fmt::format("all in one group of {} lanes: row {}, group {}, columns {} to {}", size,
                                  all.first_row, group, group * size, std::min(e.columns, (group + 1) * size) - 1));
        break;
      }
    }
    if (one_row) find("row", fmt::format("all in row {} of {}", all.first_row, e.rows));
    if (one_column) find("column", fmt::format("all in column {} of {}", all.first_column, e.columns));
    if (!one_row) few("rows", out_.rows_touched, e.rows, out_.per_row);
    if (!one_column) few("columns", out_.columns_touched, e.columns, out_.per_column);
    // A line that all mismatches lie in has one residue only, which says nothing more.
    if (out_.mismatches >= 8) {
      if (!one_column) period("columns", all.column_residues, e.columns);
      if (!one_row) period("rows", all.row_residues, e.rows);
    }
    box(all);
  }

  void few(std::string_view what, uint64 touched, uint64 of, const std::vector<uint64>& counts) {
    if (touched > 8 || touched * 8 > of || counts.empty()) return;
    std::vector<std::size_t> list;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] != 0) list.push_back(i);
    }
    find(std::string(what), fmt::format("all in {} of {} {}: {}", touched, of, what, fmt::join(list, ", ")));
  }

  /// Residues of the power of two that leaves the fewest of them, relative to it.
  void period(std::string_view what, const std::array<uint64, kPeriod>& residues, uint64 extent) {
    std::size_t best = 0;
    std::vector<std::size_t> best_list;
    for (std::size_t p = 2; p <= kPeriod && p < extent; p *= 2) {
      std::vector<uint64> counts(p);
      for (std::size_t i = 0; i < kPeriod; ++i) counts[i % p] += residues[i];
      std::vector<std::size_t> list;
      for (std::size_t i = 0; i < p; ++i) {
        if (counts[i] != 0) list.push_back(i);
      }
      if (list.size() * 2 > p) continue;
      if (best == 0 || list.size() * best < best_list.size() * p) {
        best = p;
        best_list = std::move(list);
      }
    }
    // Few mismatches leave residues out by chance: each of the p may have had one.
    if (best == 0 || out_.mismatches < 4 * best) return;
    const std::size_t first = best_list.front();
    const std::size_t last = best_list.back();
    const bool boundary = best >= 8 && best_list.size() == 2 && first == 0 && last == best - 1;
    std::string where;
    if (boundary) {
      where = fmt::format("only {} next to a boundary of {}", what, best);
    } else if (best == 2) {
      where = fmt::format("only {} {}{}", first == 0 ? "even" : "odd", what,
                          part_.packed && what == "columns" ? ", every second nibble" : "");
    } else if (best_list.size() == 1) {
      where = fmt::format("only {} {} of every {}", what, first, best);
    } else if (last - first + 1 == best_list.size()) {
      where = fmt::format("only {} {} to {} of every {}", what, first, last, best);
    } else if (best_list.size() <= 8) {
      where = fmt::format("only {} {} of every {}", what, fmt::join(best_list, ", "), best);
    } else {
      return;
    }
    find(boundary ? "boundary" : best == 2 ? "parity" : "period", std::move(where));
  }

  void box(const Counts& all) {
    const Extents& e = extents_;
    const uint64 rows = all.last_row - all.first_row + 1;
    const uint64 columns = all.last_column - all.first_column + 1;
    // Lines are said above. What is more than half of the matrix is no block.
    if ((rows == 1 && e.rows > 1) || (columns == 1 && e.columns > 1) || out_.mismatches < 4) return;
    if (static_cast<uint128>(rows) * columns * 2 > static_cast<uint128>(e.rows) * e.columns) return;
    std::string tiles;
    for (const uint64 size : {uint64{128}, uint64{64}, uint64{32}, uint64{16}, uint64{8}}) {
      if (all.first_row % size != 0 || all.first_column % size != 0) continue;
      if (all.first_row + all.first_column == 0) break;
      tiles = fmt::format(", from a boundary of {}", size);
      break;
    }
    find("block", fmt::format("all in rows {} to {}, columns {} to {}{}", all.first_row, all.last_row, all.first_column,
                              all.last_column, tiles));
  }

  const ComparedPart& part_;
  const CompareOptions& options_;
  const Format& f_;
  Extents extents_;
  Comparison out_;
  std::vector<uint64> touched_columns_;  // bits
};

}  // namespace

std::optional<uint64> ulp_distance(const Format& format, uint64 a, uint64 b) noexcept {
  if (!has_order(decode(format, a)) || !has_order(decode(format, b))) return std::nullopt;
  // Unsigned 64-bit integers have no room in a signed one, but their difference is the same modulo 2^64.
  if (format.kind == Kind::unsigned_integer) return a > b ? a - b : b - a;
  const int64 x = ordinal(format, a);
  const int64 y = ordinal(format, b);
  return x > y ? static_cast<uint64>(x) - static_cast<uint64>(y) : static_cast<uint64>(y) - static_cast<uint64>(x);
}

Difference difference_of(const Format& format, uint64 golden, uint64 dut) noexcept {
  if (golden == dut) return Difference::equal;
  const Value a = decode(format, golden);
  const Value b = decode(format, dut);
  if (!has_order(a) || !has_order(b)) {
    return has_order(a) || has_order(b) ? Difference::nan : Difference::nan_payload;
  }
  if (a.is_infinite() || b.is_infinite()) return Difference::infinity;
  if (a.real.is_zero() && b.real.is_zero()) return Difference::zero_sign;
  const uint64 ulps = *ulp_distance(format, golden, dut);
  if (ulps == 1) return Difference::one_ulp;
  const bool same_sign = a.real.negative == b.real.negative;
  if (!same_sign && compare_magnitude(a.real, b.real) == 0) return Difference::sign;
  if (ulps <= 4) return Difference::few_ulps;
  if (ulps <= 64) return Difference::some_ulps;
  const bool near = same_sign && !a.real.is_zero() && !b.real.is_zero() &&
                    compare_magnitude(scale_by_power_of_two(a.real, 1), b.real) >= 0 &&
                    compare_magnitude(scale_by_power_of_two(b.real, 1), a.real) >= 0;
  return near ? Difference::many_ulps : Difference::wild;
}

std::optional<uint64> ComparedPart::byte_size() const noexcept {
  uint64 rows = 1;
  for (const uint64 extent : std::span(shape).first(shape.size() - 1)) {
    if (extent != 0 && !checked_multiply(rows, extent, rows)) return std::nullopt;
  }
  for (const uint64 extent : shape) {
    if (extent == 0) return 0;
  }
  const uint64 columns = shape.back();
  uint64 line = packed ? columns / 2 + columns % 2 : columns;
  if (!packed && !checked_multiply(line, format->carrier_bits / 8, line)) return std::nullopt;
  uint64 size = 0;
  uint64 elements = 0;
  if (!checked_multiply(rows, line, size) || !checked_multiply(rows, columns, elements)) return std::nullopt;
  return size;
}

uint64 lane_of(const ComparedPart& part, std::span<const std::byte> bytes, uint64 index) noexcept {
  if (!part.packed) {
    const std::size_t size = part.format->carrier_bits / 8;
    return load_word(bytes.data() + index * size, size) & low_mask(part.format->lane_bits);
  }
  const uint64 columns = part.shape.back();
  if (columns % 2 != 0) index += index / columns;  // the nibble after each line
  return (std::to_integer<uint64>(bytes[index / 2]) >> (4 * (index % 2))) & 0xF;
}

std::vector<uint64> coordinates(std::span<const uint64> shape, uint64 index) {
  std::vector<uint64> at(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    at[i] = index % shape[i];
    index /= shape[i];
  }
  return at;
}

Expected<Comparison> compare(const ComparedPart& part, const CompareOptions& options) {
  const std::string name = part.name.empty() ? "the arrays" : part.name;
  if (part.format == nullptr || part.shape.empty()) return Error{fmt::format("{}: no format, or no dimensions", name)};
  if (part.packed && !part.format->is_packed()) {
    return Error{fmt::format("{}: {} has no packed lanes", name, part.format->name)};
  }
  const auto size = part.byte_size();
  if (!size) return Error{fmt::format("{}: a shape of {} is beyond 64 bits", name, shape_text(part.shape))};
  for (const auto& [side, bytes] : {std::pair{"GOLDEN", part.golden}, std::pair{"DUT", part.dut}}) {
    if (bytes.size() == *size) continue;
    return Error{fmt::format("{}: {} has {} bytes, but {} of shape {} takes {}", name, side, bytes.size(),
                             part.format->name, shape_text(part.shape), *size)};
  }
  return guarded("comparing", [&]() -> Expected<Comparison> {
    if (*size == 0) {
      Comparison empty;
      empty.name = part.name;
      empty.role = part.role;
      empty.format = part.format;
      empty.shape = part.shape;
      if (options.tolerance.asked()) empty.outside = 0;
      return empty;
    }
    return Comparer(part, options).run();
  });
}

}  // namespace bitcube
