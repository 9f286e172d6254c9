// One element of a product, step by step (numerics 8, 9; profiles 3).
#include "bitcube/explain/matmul.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "explain/element.hpp"
#include "guarded.hpp"

namespace bitcube {
namespace {

using namespace bitcube::explain;

using Exact = WideReal<11>;  // what ExactSum delivers

/// Lines of an operand in memory of their own, one after the other, so that they are an operand themselves.
class LineCopy {
 public:
  LineCopy(const Operand& from, std::size_t first, std::size_t count) : operand_(from) {
    const std::size_t groups = (from.k + scale_group(*from.format) - 1) / scale_group(*from.format);
    operand_.lines = count;
    operand_.lanes = copy(lanes_, from.lanes, first, count, from.k, from.format->carrier_bits);
    if (from.scaled()) operand_.scales = copy(scales_, from.scales, first, count, groups, from.scales.lane_bits);
  }
  LineCopy(const LineCopy&) = delete;
  LineCopy& operator=(const LineCopy&) = delete;
  const Operand& operand() const noexcept { return operand_; }

 private:
  static LaneView copy(std::vector<std::uint8_t>& bytes, const LaneView& from, std::size_t first, std::size_t count,
                       std::size_t lanes, unsigned bits) {
    const std::size_t size = bits / 8;
    bytes.resize(count * lanes * size);
    for (std::size_t line = 0; line < count; ++line) {
      for (std::size_t k = 0; k < lanes; ++k) {
        const uint64 word = from(first + line, k);
        std::memcpy(bytes.data() + (line * lanes + k) * size, &word, size);
      }
    }
    return {.data = bytes.data(), .lane_bits = bits, .line_stride = lanes, .lane_stride = 1};
  }

  std::vector<std::uint8_t> lanes_;
  std::vector<std::uint8_t> scales_;
  Operand operand_;
};

/// Lanes k to k + n - 1 take the accumulator from `before` to `after`: FP32 words, or words modulo 2^64.
struct Step {
  std::size_t k;
  std::size_t n;
  uint64 before;
  uint64 after;
};

enum class Arithmetic : std::uint8_t { floating, integer, raw };

/// The element as the definition computes it.
struct Element {
  const Operand& a;  // one line each
  const Operand& b;
  ProductKind kind;
  const AccumulationProfile& profile;
  std::optional<std::uint32_t> c;
  std::optional<std::uint32_t> bias;
  std::size_t group;  // lanes of a group

  Arithmetic arithmetic{};
  std::vector<Term> x{};  // scaled lanes
  std::vector<Term> y{};
  std::vector<Addend> products{};
  uint64 start = 0;
  std::vector<Step> steps{};
  uint64 sum = 0;     // before the bias
  uint64 result = 0;  // after it

  const Format& accumulator() const noexcept { return *kind.accumulator; }
  std::uint32_t word() const noexcept { return static_cast<std::uint32_t>(result); }
};

void compute(Element& e) {
  const std::size_t k = e.a.k;
  e.arithmetic = e.profile.kind == Accumulation::raw_carrier ? Arithmetic::raw
                 : e.accumulator().is_integer()              ? Arithmetic::integer
                                                             : Arithmetic::floating;
  for (std::size_t i = 0; i < k; ++i) {
    e.x.push_back(term_at(e.a, 0, i));
    e.y.push_back(term_at(e.b, 0, i));
    e.products.push_back(product(e.x[i], e.y[i]));
  }
  const std::uint32_t c = e.c.value_or(0);
  if (e.arithmetic == Arithmetic::floating) {
    e.start = e.sum = c;
    accumulate(e.profile.kind, c, e.x, e.y, e.group, [&](std::size_t first, std::size_t n, std::uint32_t after) {
      e.steps.push_back({first, n, e.sum, after});
      e.sum = after;
    });
    e.result = e.bias ? add_to_fp32(static_cast<std::uint32_t>(e.sum), addend_from_fp32(*e.bias)) : e.sum;
    return;
  }
  const auto lane = e.arithmetic == Arithmetic::raw ? raw_at : integer_at;
  e.start = e.sum = widen_accumulator(e.accumulator(), c);
  for (std::size_t i = 0; i < k; ++i) {
    const uint64 after = e.sum + lane(e.a, 0, i) * lane(e.b, 0, i);
    e.steps.push_back({i, 1, e.sum, after});
    e.sum = after;
  }
  e.result = e.bias ? e.sum + widen_accumulator(e.accumulator(), *e.bias) : e.sum;
}

// ---- Exact sums

/// A sum of addends without rounding, or the special value that it is.
class Sum {
 public:
  void add(const Addend& x) {
    special_.add(x);
    if (x.kind == Term::Kind::finite) sum_.add(x.negative, x.significand, x.exponent);
  }
  void subtract(Addend x) {
    x.negative = !x.negative;
    add(x);
  }
  bool finite() const noexcept { return !special_.finished(); }
  Exact value() const noexcept { return sum_.value(); }
  std::string text() const {
    return finite() ? explain::exact_text(value(), column_digits) : value_text(fp32, decode(fp32, special_.result()));
  }

 private:
  SpecialSum special_;
  ExactSum sum_;
};

Addend addend_of(const Format& accumulator, std::uint32_t word) {
  const Term t = term_of(accumulator, word);
  return {t.kind, t.negative, t.significand, t.exponent};
}

/// before + x - after, where all of it is finite.
std::optional<Exact> lost(const Element& e, const Step& step) {
  Sum sum;
  sum.add(addend_from_fp32(static_cast<std::uint32_t>(step.before)));
  for (std::size_t i = 0; i < step.n; ++i) sum.add(e.products[step.k + i]);
  sum.subtract(addend_from_fp32(static_cast<std::uint32_t>(step.after)));
  if (!sum.finite()) return std::nullopt;
  return sum.value();
}

std::string lost_text(const std::optional<Exact>& lost) {
  return !lost ? "-" : lost->is_zero() ? "0" : explain::exact_text(*lost, column_digits);
}

/// C + all products + bias without rounding.
Sum total(const Element& e) {
  Sum sum;
  if (e.c) sum.add(addend_of(e.accumulator(), *e.c));
  for (const Addend& p : e.products) sum.add(p);
  if (e.bias) sum.add(addend_of(e.accumulator(), *e.bias));
  return sum;
}

// ---- Texts

std::string term_text(const Term& t) {
  if (t.kind == Term::Kind::nan) return "nan";
  if (t.kind == Term::Kind::infinite) return t.negative ? "-inf" : "inf";
  return exact_text(Real{t.negative, t.significand, t.exponent}, column_digits);
}
std::string product_text(const Addend& p) {
  if (p.kind == Term::Kind::nan) return "nan";
  if (p.kind == Term::Kind::infinite) return p.negative ? "-inf" : "inf";
  return exact_text(p.real(), column_digits);
}

/// Cells of an accumulator: value and bits, or the 64 bits of raw-carrier.
std::vector<std::string> accumulator_cells(const Element& e, uint64 word) {
  if (e.arithmetic == Arithmetic::raw) return {fmt::format("0x{:016X}", word)};
  const uint64 low = word & low_mask(32);
  return {value_text(e.accumulator(), decode(e.accumulator(), low)), bits_text(e.accumulator(), low)};
}
std::string accumulator_text(const Element& e, uint64 word) {
  const auto cells = accumulator_cells(e, word);
  return cells.size() == 1 ? cells[0] : fmt::format("{} = {}", cells[1], cells[0]);
}

std::string scale_text(const Operand& side, std::size_t k) {
  const uint64 word = side.scales(0, k / scale_group(*side.format));
  if (side.format->type == DataType::hif4x2) return exact_text(decode(e6m2, word));
  return word == 0xFF ? "nan" : fmt::format("2^{}", static_cast<int>(word) - 127);
}
std::string scale_bits(const Operand& side, std::size_t k) {
  const uint64 word = side.scales(0, k / scale_group(*side.format));
  return side.format->type == DataType::hif4x2 ? fmt::format("0x{:08X}", word) : fmt::format("0x{:02X}", word);
}

std::string range_text(std::size_t first, std::size_t count) {
  return count == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, first + count - 1);
}

// ---- Sections

Section operands_section(const Element& e, const Operand& a, const Operand& b, const Place& place) {
  Section section{.title = "Operands", .clause = "numerics 8, 9.2"};
  const auto side = [&](const char* name, const Operand& o, std::string line, std::string shape) {
    std::string how = "no scale";
    if (o.scaled() && o.format->type == DataType::hif4x2) how = "a HiF4 scale word (E6M2 and micro-exponents)";
    if (o.scaled() && o.format->type != DataType::hif4x2) how = "an E8M0 scale";
    if (o.scaled()) how += fmt::format(" per {} lanes", scale_group(*o.format));
    section.facts.push_back({name, fmt::format("{}, {} of {}", o.format->name, line, shape), how});
  };
  side("A", a, fmt::format("row {}", place.row), fmt::format("{} x {}", a.lines, a.k));
  side("B", b, fmt::format("column {}", place.col), fmt::format("{} x {}", b.k, b.lines));
  section.facts.push_back(
      {"product", fmt::format("K = {}", a.k),
       fmt::format("{} operation, {} accumulator", e.kind.mx ? "MX" : "ordinary", e.accumulator().name)});
  std::string rule(e.profile.meaning);
  if (e.arithmetic == Arithmetic::integer) rule = "integers are exact modulo 2^32 under this profile too";
  section.facts.push_back({"accumulation", std::string(e.profile.name), rule});
  const bool named = e.profile.kind == Accumulation::group && e.arithmetic == Arithmetic::floating;
  section.facts.push_back(
      {"group", fmt::format("{} lanes", e.group), named ? "one rounding for each" : "how lanes are listed below"});
  if (e.c) {
    section.facts.push_back({"start", accumulator_text(e, e.start), "C"});
  } else {
    section.facts.push_back({"start", "0", "no C: the accumulator starts at +0"});
  }
  return section;
}

/// A line of the table of groups.
struct GroupRow {
  std::size_t first = 0;
  std::size_t count = 0;
  Sum products{};
  std::optional<uint64> after{};  // nothing where no step ends with the group
  std::optional<Exact> lost{};    // of the steps that end here, together
  std::size_t inexact = 0;        // of these steps
};

std::vector<GroupRow> group_rows(const Element& e) {
  std::vector<GroupRow> rows;
  std::size_t next = 0;
  for (std::size_t k = 0; k < e.a.k; k += e.group) {
    GroupRow row{.first = k, .count = std::min(e.group, e.a.k - k)};
    for (std::size_t i = 0; i < row.count; ++i) row.products.add(e.products[k + i]);
    Step merged{.k = e.a.k, .n = 0, .before = 0, .after = 0};
    for (; next < e.steps.size() && e.steps[next].k + e.steps[next].n <= k + row.count; ++next) {
      const Step& step = e.steps[next];
      if (merged.n == 0) merged = {step.k, 0, step.before, 0};
      merged.n += step.n;
      merged.after = step.after;
      if (e.arithmetic != Arithmetic::floating) continue;
      const auto part = lost(e, step);
      if (part && !part->is_zero()) ++row.inexact;
    }
    if (merged.n != 0) row.after = merged.after;
    if (merged.n != 0 && e.arithmetic == Arithmetic::floating) row.lost = lost(e, merged);
    rows.push_back(row);
  }
  return rows;
}

/// Which rows to print of many: the first, the last, and those that lost most.
std::vector<bool> chosen_rows(const std::vector<GroupRow>& rows) {
  constexpr std::size_t ends = 8;
  constexpr std::size_t most = 32;
  std::vector<bool> chosen(rows.size(), rows.size() <= most);
  if (rows.size() <= most) return chosen;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i < ends || i >= rows.size() - ends) {
      chosen[i] = true;
    } else if (rows[i].inexact != 0) {
      order.push_back(i);
    }
  }
  const auto magnitude = [&](std::size_t i) {
    if (!rows[i].lost) return HUGE_VAL;
    return std::abs(std::bit_cast<double>(encode(fp64, *rows[i].lost, {}).bits));
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t i, std::size_t j) { return magnitude(i) > magnitude(j); });
  for (std::size_t i = 0; i < std::min(order.size(), most - 2 * ends); ++i) chosen[order[i]] = true;
  return chosen;
}

void number_right(Table& table, std::size_t from) {
  for (std::size_t i = from; i < table.header.size(); ++i) {
    if (table.header[i] != "bits") table.right_aligned.push_back(i);
  }
}

/// Calls row(i) for the chosen of some rows, and adds a line for those between them.
template <typename AddRow>
void add_chosen(Table& table, const std::vector<bool>& chosen, const AddRow& row) {
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (!chosen[i]) {
      ++left_out;
      continue;
    }
    if (left_out != 0) table.rows.push_back({fmt::format("… {}", left_out)});
    left_out = 0;
    row(i);
  }
}

/// Words and values of the scales, group by group.
Table scales_table(const Element& e, const std::vector<GroupRow>& rows, const std::vector<bool>& chosen) {
  Table table{.title = "scales", .header = {"k"}};
  for (const auto& [name, side] : {std::pair{"A", &e.a}, std::pair{"B", &e.b}}) {
    if (side->scaled()) {
      const bool hif4 = side->format->type == DataType::hif4x2;
      table.header.insert(table.header.end(), {fmt::format("scale {}", name), hif4 ? "E6M2 value" : "value"});
      table.right_aligned.push_back(table.header.size() - 1);
    }
  }
  add_chosen(table, chosen, [&](std::size_t i) {
    std::vector<std::string> cells{range_text(rows[i].first, rows[i].count)};
    for (const Operand* side : {&e.a, &e.b}) {
      if (!side->scaled()) continue;
      const std::size_t length = scale_group(*side->format);
      const bool shared = rows[i].first / length == (rows[i].first + rows[i].count - 1) / length;
      cells.push_back(shared ? scale_bits(*side, rows[i].first) : "several");
      cells.push_back(shared ? scale_text(*side, rows[i].first) : "");
    }
    table.rows.push_back(std::move(cells));
  });
  return table;
}

Table groups_table(const Element& e, const std::vector<GroupRow>& rows, const std::vector<bool>& chosen) {
  Table table{.header = {"k"}};
  const bool floating = e.arithmetic == Arithmetic::floating;
  if (e.arithmetic != Arithmetic::raw) table.header.insert(table.header.end(), {"sum of a*b", "acc after"});
  table.header.emplace_back(e.arithmetic == Arithmetic::raw ? "acc after, modulo 2^64" : "bits");
  if (floating) table.header.insert(table.header.end(), {"lost", "roundings that lost"});
  number_right(table, 1);
  add_chosen(table, chosen, [&](std::size_t i) {
    const GroupRow& row = rows[i];
    std::vector<std::string> cells{range_text(row.first, row.count)};
    if (e.arithmetic != Arithmetic::raw) cells.push_back(row.products.text());
    if (row.after) {
      const auto accumulator = accumulator_cells(e, *row.after);
      cells.insert(cells.end(), accumulator.begin(), accumulator.end());
      if (floating) cells.insert(cells.end(), {lost_text(row.lost), fmt::format("{}", row.inexact)});
    }
    table.rows.push_back(std::move(cells));
  });
  const bool all = std::find(chosen.begin(), chosen.end(), false) == chosen.end();
  table.title = all ? "group by group" : "group by group: the first, the last, and those that lost most";
  return table;
}

/// Lane by lane: codes, scaled values, product, and the accumulator where a step ends.
Table steps_table(const Element& e) {
  Table table{.title = "lane by lane", .header = {"k", "A", "B"}};
  const bool two_step = e.arithmetic == Arithmetic::floating && e.profile.kind == Accumulation::two_step;
  if (e.arithmetic == Arithmetic::raw) {
    table.header.insert(table.header.end(), {"a", "b", "acc after, modulo 2^64"});
  } else {
    table.header.insert(table.header.end(), {"a", "b", "a*b"});
    if (two_step) table.header.emplace_back("RNE32(a*b)");
    table.header.insert(table.header.end(), {"exact sum", "acc after", "bits"});
  }
  if (e.arithmetic == Arithmetic::floating) table.header.emplace_back("lost");
  number_right(table, 3);
  table.right_aligned.push_back(0);
  for (const Step& step : e.steps) {
    Sum sum;
    if (e.arithmetic != Arithmetic::raw) {
      sum.add(addend_of(e.accumulator(), static_cast<std::uint32_t>(step.before)));
    }
    for (std::size_t k = step.k; k < step.k + step.n; ++k) {
      std::vector<std::string> cells{fmt::format("{}", k), bits_text(*e.a.format, e.a.lanes(0, k)),
                                     bits_text(*e.b.format, e.b.lanes(0, k))};
      if (e.arithmetic == Arithmetic::raw) {
        cells.insert(cells.end(), {fmt::format("0x{:X}", raw_at(e.a, 0, k)), fmt::format("0x{:X}", raw_at(e.b, 0, k))});
      } else {
        cells.insert(cells.end(), {term_text(e.x[k]), term_text(e.y[k]), product_text(e.products[k])});
        Addend addend = e.products[k];
        if (two_step) {
          const std::uint32_t rounded = rounded_product(e.x[k], e.y[k]);
          cells.push_back(value_text(fp32, decode(fp32, rounded)));
          addend = addend_from_fp32(rounded);
        }
        sum.add(addend);
        cells.push_back(sum.text());
      }
      if (k + 1 == step.k + step.n) {
        const auto accumulator = accumulator_cells(e, step.after);
        cells.insert(cells.end(), accumulator.begin(), accumulator.end());
        if (e.arithmetic == Arithmetic::floating) cells.push_back(lost_text(lost(e, step)));
      }
      table.rows.push_back(std::move(cells));
    }
  }
  return table;
}

bool is_nan_word(std::uint32_t word) {
  return (word & 0x7FFFFFFF) > 0x7F800000;
}
bool is_infinite_word(std::uint32_t word) {
  return (word & 0x7FFFFFFF) == 0x7F800000;
}

/// Why lane k of a side is no number.
std::string lane_text(const char* name, const Operand& side, std::size_t k) {
  const uint64 code = side.lanes(0, k);
  const Value value = decode(*side.format, code);
  if (value.cls == Class::invalid) {
    return fmt::format("{} has the invalid encoding {}, which counts as NaN", name, bits_text(*side.format, code));
  }
  if (value.is_nan()) return fmt::format("{} is NaN ({})", name, bits_text(*side.format, code));
  return fmt::format("the scale of {} is NaN ({})", name, scale_bits(side, k));
}

/// What made the accumulator NaN in this step.
std::string nan_text(const Element& e, const Step& step) {
  const auto finite_zero = [](const Term& t) { return t.kind == Term::Kind::finite && t.significand == 0; };
  const std::uint32_t before = static_cast<std::uint32_t>(step.before);
  std::optional<std::size_t> infinite;  // the lane of an infinite product; nothing with `acc`: the accumulator
  bool negative = (before >> 31) != 0;
  bool acc = is_infinite_word(before);
  for (std::size_t k = step.k; k < step.k + step.n; ++k) {
    const Addend& p = e.products[k];
    if (p.kind == Term::Kind::nan) {
      if (e.x[k].kind == Term::Kind::nan) return fmt::format("k = {}: {}", k, lane_text("A", e.a, k));
      if (e.y[k].kind == Term::Kind::nan) return fmt::format("k = {}: {}", k, lane_text("B", e.b, k));
      return fmt::format("k = {}: {}", k, finite_zero(e.x[k]) ? "0 * Inf" : "Inf * 0");
    }
  }
  for (std::size_t k = step.k; k < step.k + step.n; ++k) {
    const Addend& p = e.products[k];
    const bool rounded_to_infinity =
        e.profile.kind == Accumulation::two_step && is_infinite_word(rounded_product(e.x[k], e.y[k]));
    if (p.kind != Term::Kind::infinite && !rounded_to_infinity) continue;
    if ((acc || infinite) && p.negative != negative) {
      const std::string other = acc ? std::string("the accumulator") : fmt::format("the product of k = {}", *infinite);
      return fmt::format("k = {}: Inf - Inf, {} is {}Inf and this product {}Inf", k, other, negative ? "-" : "+",
                         p.negative ? "-" : "+");
    }
    if (!acc && !infinite) {
      infinite = k;
      negative = p.negative;
    }
  }
  return fmt::format("k = {}", range_text(step.k, step.n));
}

void add_special(Section& section, const Element& e) {
  bool infinite = false;
  const auto start = static_cast<std::uint32_t>(e.start);
  if (is_nan_word(start)) {
    section.facts.push_back({"NaN", "C", "C is NaN already, and NaN stays"});
    return;
  }
  if (is_infinite_word(start)) {
    section.facts.push_back({"infinity", "C", "C is infinite already"});
    infinite = true;
  }
  for (const Step& step : e.steps) {
    const auto after = static_cast<std::uint32_t>(step.after);
    if (is_nan_word(after)) {
      section.facts.push_back({"first NaN", bits_text(fp32, after), nan_text(e, step)});
      return;
    }
    if (is_infinite_word(after) && !infinite) {
      infinite = true;
      std::string why = fmt::format("k = {}: the sum is beyond the largest FP32 value", range_text(step.k, step.n));
      for (std::size_t k = step.k; k < step.k + step.n; ++k) {
        if (e.products[k].kind == Term::Kind::infinite) {
          why = fmt::format("k = {}: {} is infinite", k, e.x[k].kind == Term::Kind::infinite ? "A" : "B");
          break;
        }
      }
      section.facts.push_back({"first infinity", bits_text(fp32, after), why});
    }
  }
}

Section products_section(const Element& e, bool steps) {
  Section section{.title = "Products",
                  .clause = e.arithmetic == Arithmetic::raw ? "numerics 9.6" : "numerics 9.3, 9.5; profiles 3"};
  const auto rows = group_rows(e);
  const auto chosen = steps ? std::vector<bool>(rows.size(), true) : chosen_rows(rows);
  if (e.a.scaled() || e.b.scaled()) section.tables.push_back(scales_table(e, rows, chosen));
  section.tables.push_back(steps ? steps_table(e) : groups_table(e, rows, chosen));
  if (e.arithmetic == Arithmetic::raw) {
    section.remarks.emplace_back("No float is decoded: words are multiplied and added modulo 2^64.");
    return section;
  }
  if (e.arithmetic == Arithmetic::integer) return section;
  section.remarks.emplace_back(
      "acc before + exact products = acc after + lost; acc before is acc after of the step "
      "above, at first the start.");
  std::size_t exact = 0;
  std::optional<std::size_t> worst;
  Exact most{};
  for (std::size_t i = 0; i < e.steps.size(); ++i) {
    const auto part = lost(e, e.steps[i]);
    if (!part) continue;
    if (part->is_zero()) ++exact;
    if (part->is_zero() || (worst && compare_magnitude(*part, narrowed(most)) <= 0)) continue;
    worst = i;
    most = *part;
  }
  section.facts.push_back(
      {"roundings", fmt::format("{}", e.steps.size()), fmt::format("{} of them lost nothing", exact)});
  if (worst) {
    section.facts.push_back({"most lost", explain::exact_text(most),
                             fmt::format("k = {}", range_text(e.steps[*worst].k, e.steps[*worst].n))});
  }
  add_special(section, e);
  return section;
}

/// The largest product, cancellation, and the exact result.
Section exactness_section(const Element& e) {
  Section section{.title = "Largest term and exact result", .clause = "profiles 3"};
  std::optional<std::size_t> largest;
  ExactSum magnitudes;
  for (std::size_t k = 0; k < e.products.size(); ++k) {
    const Addend& p = e.products[k];
    if (p.kind != Term::Kind::finite) continue;
    magnitudes.add(false, p.significand, p.exponent);
    if (!largest || compare_magnitude(p.real(), e.products[*largest].real()) > 0) largest = k;
  }
  if (largest) {
    section.facts.push_back(
        {"largest |a*b|", product_text(e.products[*largest]),
         fmt::format("k = {}: {} * {}", *largest, term_text(e.x[*largest]), term_text(e.y[*largest]))});
  }
  const Sum exact = total(e);
  if (!exact.finite()) {
    section.facts.push_back({"exact result", exact.text(), "by the rules of special values"});
    return section;
  }
  section.facts.push_back({"sum of |a*b|", explain::exact_text(magnitudes.value())});
  const Exact value = exact.value();
  std::string name = "sum of a*b";
  if (e.c) name = "C + " + name;
  if (e.bias) name += " + bias";
  section.facts.push_back({name, explain::exact_text(value), "exact"});
  if (!value.is_zero()) {
    const double ratio = std::bit_cast<double>(encode(fp64, magnitudes.value(), {}).bits) /
                         std::abs(std::bit_cast<double>(encode(fp64, value, {}).bits));
    section.facts.push_back({"cancellation", fmt::format("{:.4g}", ratio), "sum of |a*b| over |exact result|"});
  } else if (!magnitudes.value().is_zero()) {
    section.facts.push_back({"cancellation", "complete", "the exact result is 0"});
  }
  if (e.arithmetic == Arithmetic::floating) {
    Sum difference;
    difference.add(addend_from_fp32(e.word()));
    if (!difference.finite()) {
      section.facts.push_back({"result", accumulator_text(e, e.result), "beyond FP32 on the way, or too large for it"});
      return section;
    }
    if (e.c) difference.subtract(addend_from_fp32(*e.c));
    for (const Addend& p : e.products) difference.subtract(p);
    if (e.bias) difference.subtract(addend_from_fp32(*e.bias));
    const Exact off = difference.value();
    const int quantum = detail::quantum_exponent(fp32, value.is_zero() ? -149 : floor_log2(value));
    section.facts.push_back({"result - exact", explain::exact_text(off),
                             off.is_zero() ? "the result is the exact one"
                                           : fmt::format("{} ulp of the exact result", ulps_text(off, quantum))});
  } else {
    const Real modular = decode(e.accumulator(), e.word()).real;
    const Real narrow = narrowed(value);
    const bool wrapped =
        modular.negative != narrow.negative ? !value.is_zero() : compare_magnitude(value, modular) != 0;
    if (e.arithmetic == Arithmetic::integer) {
      section.facts.push_back({"result", accumulator_text(e, e.result),
                               wrapped ? "the exact result modulo 2^32: it does not fit" : "the exact result"});
    }
  }
  return section;
}

Section bias_section(const Element& e) {
  Section section{.title = "Bias", .clause = "numerics 9.3"};
  section.facts.push_back({"before", accumulator_text(e, e.sum)});
  section.facts.push_back({"bias", accumulator_text(e, *e.bias), "added once, after the last k"});
  std::string remark;
  if (e.arithmetic == Arithmetic::floating) {
    Sum sum;
    sum.add(addend_from_fp32(static_cast<std::uint32_t>(e.sum)));
    sum.add(addend_from_fp32(*e.bias));
    sum.subtract(addend_from_fp32(e.word()));
    remark = !sum.finite()           ? "by the rules of special values"
             : sum.value().is_zero() ? "exact"
                                     : "lost " + explain::exact_text(sum.value());
  }
  section.facts.push_back({"after", accumulator_text(e, e.result), remark});
  return section;
}

/// The accumulators of matmul() for some columns of the element's row.
Expected<Accumulators> library_row(const Operand& a, const Operand& b, const Place& place, const Columns& columns,
                                   const MatmulOptions& product, const AccumulationProfile& profile) {
  MatmulOptions options;
  options.profile = &profile;
  options.group = product.group;
  if (product.c) options.c = product.c->subspan(place.row * place.cols + columns.first, columns.count);
  if (product.bias) options.bias = product.bias->subspan(columns.first, columns.count);
  options.execution = product.execution;
  return matmul(a, b, options);
}

/// Codes from the asked for accumulator to another, counted in the order of their values.
std::string codes_apart(const Format& accumulator, std::uint32_t from, std::uint32_t to) {
  if (from == to) return "same";
  const auto key = [&](std::uint32_t word) -> std::optional<int64> {
    if (accumulator.is_integer()) {
      return accumulator.kind == Kind::signed_integer ? sign_extend(word, 32) : int64{word};
    }
    if (is_nan_word(word)) return std::nullopt;
    const auto magnitude = static_cast<int64>(word & 0x7FFFFFFF);
    return (word >> 31) != 0 ? -magnitude : magnitude;
  };
  const auto a = key(from);
  const auto b = key(to);
  return a && b ? fmt::format("{:+} ulp", *b - *a) : "other";
}

Expected<Section> profiles_section(const Element& e, const Place& place, const MatmulOptions& product,
                                   const PostprocessOptions& post) {
  Section section{.title = "The same element under every accumulation profile", .clause = "profiles 3"};
  Table table{.header = {"", "profile", "accumulator", "value", "against this", "D", "value", "flags"},
              .right_aligned = {3, 4, 6}};
  const PostprocessOptions element = element_options(post, place.col);
  for (const AccumulationProfile& profile : accumulation_profiles) {
    const auto acc = library_row(e.a, e.b, place, {place.col, 1}, product, profile);
    if (!acc) return acc.error();
    const std::uint32_t word = acc->words[0];
    const auto d = deliver(e.accumulator(), word, element);
    if (!d) return d.error();
    // Words that were multiplied as if they were integers are no neighbours of a float.
    const bool raw = profile.kind == Accumulation::raw_carrier || e.arithmetic == Arithmetic::raw;
    const bool comparable = e.accumulator().is_integer() || &profile == &e.profile || !raw;
    table.rows.push_back({&profile == &e.profile ? "*" : "", std::string(profile.name),
                          bits_text(e.accumulator(), word), value_text(e.accumulator(), decode(e.accumulator(), word)),
                          comparable ? codes_apart(e.accumulator(), e.word(), word) : "-",
                          bits_text(*d->format, d->d.bits), value_text(*d->format, decode(*d->format, d->d.bits)),
                          flags_text(d->d.flags)});
  }
  section.tables.push_back(std::move(table));
  section.remarks.emplace_back("* is the profile of this explanation. raw-carrier multiplies words, not values.");
  return section;
}

Expected<Document> explained(const Operand& a, const Operand& b, const Place& place, const MatmulOptions& product,
                             const PostprocessOptions& post, bool steps) {
  const auto kind = check_matmul(a, b, product);
  if (!kind) return kind.error();
  const Format& accumulator = *kind->accumulator;
  if (auto ok = check_postprocess(accumulator, place.rows, place.cols, post); !ok) return ok.error();
  if (auto ok = check_place(place); !ok) return ok.error();

  const LineCopy row(a, place.row, 1);
  const LineCopy col(b, place.col, 1);
  Element e{.a = row.operand(),
            .b = col.operand(),
            .kind = *kind,
            .profile = *product.profile,
            .c = {},
            .bias = {},
            .group = product.group != 0 ? product.group : kind->group};
  if (product.c) e.c = (*product.c)[place.row * place.cols + place.col];
  if (product.bias) e.bias = (*product.bias)[place.col];
  compute(e);

  const auto delivered = library_row(e.a, e.b, place, {place.col, 1}, product, e.profile);
  if (!delivered) return delivered.error();
  if (delivered->words[0] != e.word()) {
    return contradiction("the accumulator", bits_text(accumulator, e.word()),
                         bits_text(accumulator, delivered->words[0]));
  }

  Document document{.title = fmt::format("D({},{}) of {} x {}: {} times {}, profile {}", place.row, place.col,
                                         place.rows, place.cols, a.format->name, b.format->name, e.profile.name)};
  document.sections.push_back(operands_section(e, a, b, place));
  document.sections.push_back(products_section(e, steps));
  if (e.arithmetic != Arithmetic::raw) document.sections.push_back(exactness_section(e));
  if (e.bias) document.sections.push_back(bias_section(e));

  document.results.push_back(word_fact(fmt::format("accumulator({},{})", place.row, place.col), accumulator, e.word()));
  const Columns part = reduction_columns(place, post);
  if (post.row_max || post.group_n != 0) {
    const bool all = part.count == place.cols;
    const LineCopy cols(b, part.first, all ? 0 : part.count);
    const auto words = library_row(e.a, all ? b : cols.operand(), place, part, product, e.profile);
    if (!words) return words.error();
    if (words->words[place.col - part.first] != e.word()) {
      return contradiction("the accumulator", bits_text(accumulator, e.word()),
                           bits_text(accumulator, words->words[place.col - part.first]));
    }
    if (auto ok = add_reductions(document, accumulator, place, words->words, post); !ok) return ok.error();
  }
  if (auto ok = add_postprocess(document, accumulator, place, e.word(), post); !ok) return ok.error();
  auto profiles = profiles_section(e, place, product, post);
  if (!profiles) return profiles.error();
  document.sections.push_back(std::move(*profiles));
  return document;
}

}  // namespace

Expected<Document> explain_matmul(const Operand& a, const Operand& b, std::size_t row, std::size_t col,
                                  const MatmulOptions& product, const PostprocessOptions& post, bool steps) {
  return guarded("explain", [&] { return explained(a, b, {row, col, a.lines, b.lines}, product, post, steps); });
}

}  // namespace bitcube
