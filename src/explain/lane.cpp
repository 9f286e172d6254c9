#include "explain/lane.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <utility>

#include "value_text.hpp"

namespace bitcube::explain {
namespace {

/// Takes a lane apart from the top.
class Fields {
 public:
  Fields(uint64 code, int width) : code_(code), left_(width) { table_.header = {"bits", "field", "found", "meaning"}; }
  /// The next `width` bits; nothing if there are none.
  Fields& take(int width, std::string_view name, const std::string& meaning) {
    if (width <= 0) return *this;
    left_ -= width;
    const std::string bits = width == 1 ? fmt::format("[{}]", left_) : fmt::format("[{}:{}]", left_ + width - 1, left_);
    table_.rows.push_back(
        {bits, std::string(name), fmt::format("{:0{}b}", (code_ >> left_) & low_mask(width), width), meaning});
    return *this;
  }
  uint64 peek(int width) const { return (code_ >> (left_ - width)) & low_mask(width); }
  int left() const { return left_; }
  Table table() && { return std::move(table_); }

 private:
  uint64 code_;
  int left_;
  Table table_{};
};

std::string sign_text(uint64 sign) {
  return sign != 0 ? "negative" : "positive";
}

Table hif8_table(uint64 code) {
  Fields fields(code, 8);
  const uint64 sign = fields.peek(1);
  fields.take(1, "sign", sign_text(sign));
  const Value value = decode(format_of(DataType::hif8), code);
  if (value.cls != Class::normal) {
    const bool small = value.cls == Class::subnormal;
    return std::move(fields.take(4, "dot", small ? "DML: a power of two" : "a special code")
                         .take(3, "exponent", small ? fmt::format("2^({} - 23)", code & 7) : ""))
        .table();
  }
  // The exponent says how many bits it took, and what is left of seven is the prefix.
  const int e = floor_log2(value.real);
  const int width = bit_length(static_cast<uint64>(std::abs(e)));
  const int fraction = detail::hif8_fraction_bits(e);
  fields.take(7 - width - fraction, "dot",
              fmt::format("D{}: {} exponent bits, {} fraction bits", width, width, fraction));
  fields.take(width, "exponent", fmt::format("{}: its sign, then its bits after the hidden first one", e));
  const auto bits = fields.peek(fraction);
  return std::move(fields.take(fraction, "fraction", fmt::format("1.{:0{}b}", bits, fraction))).table();
}

Table fields_table(const Format& f, uint64 code) {
  Fields fields(code, f.lane_bits);
  fields.take(f.lane_bits - f.value_bits, "unused", "must be 0");
  if (f.sign_bits != 0) fields.take(1, "sign", sign_text(fields.peek(1)));
  const uint64 exponent = fields.peek(f.exponent_bits);
  const bool subnormal = exponent == 0 && f.exponent_zero_is_subnormal;
  const bool special = !decode(f, code).is_finite();
  fields.take(f.exponent_bits, "exponent",
              special     ? "all ones"
              : subnormal ? fmt::format("0: no hidden bit, {}", power_text(1 - f.bias))
                          : fmt::format("{} - {} = {}", exponent, f.bias, static_cast<int>(exponent) - f.bias));
  const uint64 fraction = f.fraction_bits == 0 ? 0 : fields.peek(f.fraction_bits);
  const bool wide = f.fraction_bits > 32;  // too wide for a line that has the bits twice
  fields.take(f.fraction_bits, "fraction",
              special ? ""
              : wide  ? fmt::format("the bits after {}.", subnormal ? 0 : 1)
                      : fmt::format("{}.{:0{}b}", subnormal ? 0 : 1, fraction, int{f.fraction_bits}));
  return std::move(fields.take(f.low_zero_bits, "unused", "must be 0")).table();
}

}  // namespace

Table lane_table(const Format& f, uint64 code) {
  code &= low_mask(f.lane_bits);
  if (f.layout == Layout::dot_field) return hif8_table(code);
  if (f.layout == Layout::exponent) {
    const bool nan = code == f.canonical_nan;
    return std::move(Fields(code, 8).take(
                         8, "exponent",
                         nan ? "all ones" : fmt::format("{} - {} = {}", code, f.bias, static_cast<int>(code) - f.bias)))
        .table();
  }
  if (!f.is_integer()) return fields_table(f, code);
  Fields fields(code, f.lane_bits);
  if (f.kind == Kind::signed_integer) fields.take(1, "sign", fmt::format("weighs -2^{}", f.lane_bits - 1));
  return std::move(fields.take(fields.left(), "number", "")).table();
}

std::string_view decode_clause(const Format& f) noexcept {
  if (f.is_integer()) return "numerics 1.1";
  switch (f.type) {
    case DataType::hif8:
      return "numerics 1.5";
    case DataType::e4m3:
    case DataType::e5m2:
    case DataType::e3m2:
    case DataType::e2m3:
      return "numerics 1.6";
    case DataType::e2m1x2:
    case DataType::e1m2x2:
    case DataType::hif4x2:
      return "numerics 1.7";
    case DataType::e8m0:
    case DataType::e6m2:
    case DataType::rcpe6m2:
      return "numerics 1.8";
    default:
      return "numerics 1.3";
  }
}

std::string_view encode_clause(const Format& f) noexcept {
  if (f.is_integer()) return "numerics 6.4";
  switch (f.type) {
    case DataType::hif8:
    case DataType::e4m3:
      return "numerics 6.3";
    case DataType::e2m1x2:
    case DataType::e1m2x2:
    case DataType::hif4x2:
      return "numerics 7.5";
    case DataType::e3m2:
    case DataType::e2m3:
      return "numerics 7.1";
    case DataType::e8m0:
      return "numerics 7.2";
    case DataType::e6m2:
      return "numerics 7.6";
    default:
      return "numerics 6.1";
  }
}

Real narrow(const RealLiteral::Exact& x) noexcept {
  const int drop = std::max(0, x.significand.bit_length() - 128);
  const auto top = x.significand >> drop;
  return {.negative = x.negative,
          .significand = static_cast<uint128>(top.words[1]) << 64 | top.words[0],
          .exponent = x.exponent + drop,
          .sticky = x.sticky || x.significand.any_below(drop)};
}

Real cut_off(const Real& x) noexcept {
  constexpr int kept = 29;
  const int drop = bit_length(x.significand) - kept;
  if (drop <= 0) return x;
  Real out = x;
  out.sticky = x.sticky || (x.significand & ((uint128{1} << drop) - 1)) != 0;
  out.significand >>= drop;
  out.exponent += drop;
  return out;
}

std::string number_text(const Real& x) {
  return exact_text(x.sticky ? cut_off(x) : x);
}

std::string power_text(int exponent) {
  return fmt::format("2^{}", exponent);
}

std::string scientific_text(const Real& x) {
  constexpr int shown = 54;
  std::string digits;
  int i = bit_length(x.significand);
  const int last = std::max(0, i - shown);
  const int e = i - 1 + x.exponent;
  while (i-- > last) digits += ((x.significand >> i) & 1) != 0 ? '1' : '0';
  const bool more = x.sticky || (x.significand & ((uint128{1} << last) - 1)) != 0;
  if (!more) digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.size() > 1) digits.insert(1, 1, '.');
  return fmt::format("{}{}{} x {}", x.negative ? "-" : "", digits, more ? "…" : "", power_text(e));
}

std::optional<Real> difference(const Real& a, const Real& b) noexcept {
  Real x = a;
  Real y = b;
  for (Real* r : {&x, &y}) {
    if (r->significand == 0) r->exponent = r == &x ? y.exponent : x.exponent;
    while (!r->sticky && r->significand != 0 && (r->significand & 1) == 0) {
      r->significand >>= 1;
      ++r->exponent;
    }
  }
  const int exponent = std::min(x.exponent, y.exponent);
  for (Real* r : {&x, &y}) {
    const int shift = r->exponent - exponent;
    if (shift == 0) continue;
    if (r->sticky || bit_length(r->significand) + shift > 128) return std::nullopt;
    r->significand <<= shift;
  }
  Real out{.significand = x.significand - y.significand, .exponent = exponent, .sticky = x.sticky || y.sticky};
  if (y.sticky && !x.sticky) --out.significand;  // (x - y - 1) + (1 - s)
  if (x.sticky && y.sticky) return std::nullopt;
  return out;
}

std::string difference_text(const Real& a, const Real& b) {
  if (const auto exact = difference(a, b)) return number_text(*exact);
  Real x = a;
  Real y = b;
  x.negative = y.negative = false;
  return y.is_zero() ? number_text(x) : fmt::format("{} - {}", number_text(x), number_text(y));
}

Error internal_error(std::string_view what) {
  return Error{fmt::format("internal error: {}; please report this", what)};
}

}  // namespace bitcube::explain
