#include "oracle/oracle.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace bitcube_oracle {
namespace {

using u64 = std::uint64_t;
using u32 = std::uint32_t;

// ---- The types (numerics 1.1)
// -----------------------------------------------------------------------------------------

enum class Kind { none, ieee, e4m3, finite, hif8, e8m0, e6m2, integer };

struct TypeRow {
  const char* name;
  Kind kind;
  int bits;  // of the carrier, or of the lane of a packed type
  int exponent_bits;
  int fraction_bits;
  int bias;
  int low_zero_bits;
  int sign_bit;  // -1: unsigned
  u64 canonical_nan;
};

constexpr TypeRow kNoType = {nullptr, Kind::none, 0, 0, 0, 0, 0, -1, 0};

constexpr TypeRow kTypes[kTypeCodes] = {
    {"FP64", Kind::ieee, 64, 11, 52, 1023, 0, 63, 0x7FF8000000000000},
    {"FP32", Kind::ieee, 32, 8, 23, 127, 0, 31, 0x7FC00000},
    {"TF32", Kind::ieee, 32, 8, 10, 127, 13, 31, 0x7FC00000},
    {"HF32", Kind::ieee, 32, 8, 11, 127, 12, 31, 0x7FC00000},
    {"FP16", Kind::ieee, 16, 5, 10, 15, 0, 15, 0x7E00},
    {"BF16", Kind::ieee, 16, 8, 7, 127, 0, 15, 0x7FC0},
    {"HiF8", Kind::hif8, 8, 0, 0, 0, 0, 7, 0x80},
    {"E4M3", Kind::e4m3, 8, 4, 3, 7, 0, 7, 0x7F},
    {"E5M2", Kind::ieee, 8, 5, 2, 15, 0, 7, 0x7E},
    {"E3M2", Kind::finite, 8, 3, 2, 3, 0, 5, 0},
    {"E2M3", Kind::finite, 8, 2, 3, 1, 0, 5, 0},
    {"E2M1X2", Kind::finite, 4, 2, 1, 1, 0, 3, 0},
    {"E1M2X2", Kind::finite, 4, 1, 2, 1, 0, 3, 0},
    {"E8M0", Kind::e8m0, 8, 8, 0, 127, 0, -1, 0xFF},
    {"HiF4X2", Kind::finite, 4, 1, 2, 1, 0, 3, 0},
    {"E6M2", Kind::e6m2, 8, 6, 2, 48, 0, -1, 0xFF},
    {"S64", Kind::integer, 64, 0, 0, 0, 0, 63, 0},
    {"S32", Kind::integer, 32, 0, 0, 0, 0, 31, 0},
    {"S16", Kind::integer, 16, 0, 0, 0, 0, 15, 0},
    {"S8", Kind::integer, 8, 0, 0, 0, 0, 7, 0},
    {"S4X2", Kind::integer, 4, 0, 0, 0, 0, 3, 0},
    {"RCPE6M2", Kind::e6m2, 8, 6, 2, 48, 0, -1, 0xFF},
    kNoType,
    kNoType,
    {"U64", Kind::integer, 64, 0, 0, 0, 0, -1, 0},
    {"U32", Kind::integer, 32, 0, 0, 0, 0, -1, 0},
    {"U16", Kind::integer, 16, 0, 0, 0, 0, -1, 0},
    {"U8", Kind::integer, 8, 0, 0, 0, 0, -1, 0},
    {"U4X2", Kind::integer, 4, 0, 0, 0, 0, -1, 0},
};

const TypeRow& row_of(int type) {
  if (!is_type(type)) throw std::invalid_argument("oracle: not a data type");
  return kTypes[type];
}

u64 ones(int n) {
  return n <= 0 ? 0 : n >= 64 ? ~u64{0} : (u64{1} << n) - 1;
}

int width_of(u64 x) {
  return static_cast<int>(std::bit_width(x));
}

u64 cut(u64 word, int bits) {
  return word & ones(bits);
}

/// Two's complement value of the low `bits` bits.
std::int64_t sign_extend(u64 word, int bits) {
  const u64 low = cut(word, bits);
  if (bits < 64 && (low >> (bits - 1)) != 0) return static_cast<std::int64_t>(low | ~ones(bits));
  return static_cast<std::int64_t>(low);
}

// ---- Values
// -----------------------------------------------------------------------------------------------------------

/// The printed table of numerics 1.5: significand and exponent of the codes 00..7F; 00 and 6F are {0, 0}.
struct Hif8Value {
  int significand;
  int exponent;
};
// clang-format off
constexpr Hif8Value kHif8[128] = {
    {0, 0}, {1, -22}, {1, -21}, {1, -20}, {1, -19}, {1, -18}, {1, -17}, {1, -16},  // 00
    {1, 0}, {9, -3}, {5, -2}, {11, -3}, {3, -1}, {13, -3}, {7, -2}, {15, -3},  // 08
    {2, 0}, {9, -2}, {5, -1}, {11, -2}, {3, 0}, {13, -2}, {7, -1}, {15, -2},  // 10
    {1, -1}, {9, -4}, {5, -3}, {11, -4}, {3, -2}, {13, -4}, {7, -3}, {15, -4},  // 18
    {4, 0}, {9, -1}, {5, 0}, {11, -1}, {6, 0}, {13, -1}, {7, 0}, {15, -1},  // 20
    {8, 0}, {9, 0}, {10, 0}, {11, 0}, {12, 0}, {13, 0}, {14, 0}, {15, 0},  // 28
    {1, -2}, {9, -5}, {5, -4}, {11, -5}, {3, -3}, {13, -5}, {7, -4}, {15, -5},  // 30
    {1, -3}, {9, -6}, {5, -5}, {11, -6}, {3, -4}, {13, -6}, {7, -5}, {15, -6},  // 38
    {16, 0}, {20, 0}, {24, 0}, {28, 0}, {32, 0}, {40, 0}, {48, 0}, {56, 0},  // 40
    {64, 0}, {80, 0}, {96, 0}, {112, 0}, {128, 0}, {160, 0}, {192, 0}, {224, 0},  // 48
    {1, -4}, {5, -6}, {3, -5}, {7, -6}, {1, -5}, {5, -7}, {3, -6}, {7, -7},  // 50
    {1, -6}, {5, -8}, {3, -7}, {7, -8}, {1, -7}, {5, -9}, {3, -8}, {7, -9},  // 58
    {256, 0}, {384, 0}, {512, 0}, {768, 0}, {1024, 0}, {1536, 0}, {2048, 0}, {3072, 0},  // 60
    {4096, 0}, {6144, 0}, {8192, 0}, {12288, 0}, {16384, 0}, {24576, 0}, {32768, 0}, {0, 0},  // 68
    {1, -8}, {3, -9}, {1, -9}, {3, -10}, {1, -10}, {3, -11}, {1, -11}, {3, -12},  // 70
    {1, -12}, {3, -13}, {1, -13}, {3, -14}, {1, -14}, {3, -15}, {1, -15}, {3, -16},  // 78
};
// clang-format on

constexpr u64 kHif8Nan = 0x80;
constexpr u64 kHif8Infinity = 0x6F;

/// An encoding: its class (profile pto) and, if it is finite, its value.
struct Decoded {
  Class cls = Class::Invalid;
  bool negative = false;
  u64 significand = 0;
  int exponent = 0;
};

Class signed_class(Class positive, bool negative) {
  if (!negative) return positive;
  switch (positive) {
    case Class::PositiveZero:
      return Class::NegativeZero;
    case Class::PositiveSubnormal:
      return Class::NegativeSubnormal;
    case Class::PositiveNormal:
      return Class::NegativeNormal;
    case Class::PositiveInfinity:
      return Class::NegativeInfinity;
    default:
      return positive;
  }
}

Decoded decode_hif8(u64 code) {
  if (code == kHif8Nan) return {Class::QuietNaN, false, 0, 0};
  const bool negative = code >= 0x80;
  const u64 low = code & 0x7F;
  if (low == kHif8Infinity) return {signed_class(Class::PositiveInfinity, negative), negative, 0, 0};
  if (low == 0) return {Class::PositiveZero, false, 0, 0};
  // Numerics 1.9: denormals have the significand 1, the ranges D0..D2 four significant bits, D3 three, D4 two.
  if (low < 0x08) return {signed_class(Class::PositiveSubnormal, negative), negative, 1, kHif8[low].exponent};
  const int width = low < 0x40 ? 4 : low < 0x60 ? 3 : 2;
  u64 significand = static_cast<u64>(kHif8[low].significand);
  int exponent = kHif8[low].exponent;
  while (width_of(significand) > width) {
    significand /= 2;
    ++exponent;
  }
  while (width_of(significand) < width) {
    significand *= 2;
    --exponent;
  }
  return {signed_class(Class::PositiveNormal, negative), negative, significand, exponent};
}

Decoded decode(int type, u64 word) {
  const TypeRow& t = row_of(type);
  const u64 bits = cut(word, t.bits);
  switch (t.kind) {
    case Kind::integer: {
      if (bits == 0) return {Class::PositiveZero, false, 0, 0};
      if (t.sign_bit < 0) return {Class::PositiveNormal, false, bits, 0};
      const std::int64_t value = sign_extend(bits, t.bits);
      const bool negative = value < 0;
      const u64 magnitude = negative ? u64{0} - static_cast<u64>(value) : static_cast<u64>(value);
      return {signed_class(Class::PositiveNormal, negative), negative, magnitude, 0};
    }
    case Kind::hif8:
      return decode_hif8(bits);
    case Kind::e8m0:
      if (bits == 0xFF) return {Class::QuietNaN, false, 0, 0};
      return {Class::PositiveNormal, false, 1, static_cast<int>(bits) - 127};
    case Kind::e6m2:
      if (bits == 0xFF) return {Class::QuietNaN, false, 0, 0};
      return {Class::PositiveNormal, false, 4 + bits % 4, static_cast<int>(bits / 4) - 50};
    default:
      break;
  }
  if (cut(bits, t.low_zero_bits) != 0) return {};
  if (t.sign_bit + 1 < t.bits && (bits >> (t.sign_bit + 1)) != 0) return {};
  const u64 code = bits >> t.low_zero_bits;
  const bool negative = (bits >> t.sign_bit) != 0;
  const u64 fraction = cut(code, t.fraction_bits);
  const u64 field = cut(code >> t.fraction_bits, t.exponent_bits);
  if (t.kind == Kind::ieee && field == ones(t.exponent_bits)) {
    if (fraction == 0) return {signed_class(Class::PositiveInfinity, negative), negative, 0, 0};
    const bool quiet = (fraction >> (t.fraction_bits - 1)) != 0;
    return {quiet ? Class::QuietNaN : Class::SignalingNaN, negative, 0, 0};
  }
  if (t.kind == Kind::e4m3 && cut(bits, 7) == 0x7F) return {Class::QuietNaN, negative, 0, 0};
  const int least = 1 - t.bias - t.fraction_bits;
  if (field == 0 && fraction == 0) return {signed_class(Class::PositiveZero, negative), negative, 0, 0};
  if (field == 0) {
    const bool all_normal = type == E1M2X2 || type == HiF4X2;  // numerics 1.2
    const Class cls = all_normal ? Class::PositiveNormal : Class::PositiveSubnormal;
    return {signed_class(cls, negative), negative, fraction, least};
  }
  return {signed_class(Class::PositiveNormal, negative), negative, (u64{1} << t.fraction_bits) + fraction,
          static_cast<int>(field) - 1 + least};
}

bool is_nan(Class c) {
  return c == Class::QuietNaN || c == Class::SignalingNaN;
}
bool is_infinite(Class c) {
  return c == Class::PositiveInfinity || c == Class::NegativeInfinity;
}
bool is_zero(Class c) {
  return c == Class::PositiveZero || c == Class::NegativeZero;
}
bool is_finite(Class c) {
  return c != Class::Invalid && !is_nan(c) && !is_infinite(c);
}

// ---- Magnitudes: exact positive numbers that can be compared and split
// ------------------------------------------------

/// floor(x / quantum), and what is left over against half a quantum.
struct Split {
  u64 count = 0;      // modulo 2^64
  bool wide = false;  // the count does not fit 64 bits
  bool exact = true;
  int to_half = -1;  // the sign of remainder - quantum / 2
};

/// significand * 2^exponent.
class Dyadic {
 public:
  Dyadic(u64 significand, int exponent) : significand_(significand), exponent_(exponent) {}

  int top() const { return width_of(significand_) - 1 + exponent_; }

  /// The sign of this - significand * 2^exponent.
  int compare(u64 significand, int exponent) const {
    if (significand == 0) return 1;
    const int other = width_of(significand) - 1 + exponent;
    if (top() != other) return top() < other ? -1 : 1;
    const u64 a = significand_ << std::countl_zero(significand_);
    const u64 b = significand << std::countl_zero(significand);
    return a < b ? -1 : a > b ? 1 : 0;
  }

  Split split(int quantum) const {
    Split s;
    const int up = exponent_ - quantum;
    if (up >= 0) {
      s.count = up >= 64 ? 0 : significand_ << up;
      s.wide = width_of(significand_) + up > 64;
      return s;
    }
    const int down = -up;
    const u64 remainder = down >= 64 ? significand_ : cut(significand_, down);
    s.count = down >= 64 ? 0 : significand_ >> down;
    s.exact = remainder == 0;
    if (down <= 64) {
      const u64 half = u64{1} << (down - 1);
      s.to_half = remainder < half ? -1 : remainder > half ? 1 : 0;
    }
    return s;
  }

 private:
  u64 significand_;
  int exponent_;
};

mpz_class to_mpz(u64 value) {
  mpz_class z;
  mpz_import(z.get_mpz_t(), 1, 1, sizeof value, 0, 0, &value);
  return z;
}

u64 low_word(const mpz_class& z) {
  u64 value = 0;
  mpz_class low;
  mpz_fdiv_r_2exp(low.get_mpz_t(), z.get_mpz_t(), 64);
  mpz_export(&value, nullptr, 1, sizeof value, 0, 0, low.get_mpz_t());
  return value;
}

mpz_class shifted(const mpz_class& z, unsigned long by) {
  mpz_class r;
  mpz_mul_2exp(r.get_mpz_t(), z.get_mpz_t(), by);
  return r;
}

mpq_class scaled(const mpq_class& q, long exponent) {
  mpq_class r;
  if (exponent >= 0) {
    mpq_mul_2exp(r.get_mpq_t(), q.get_mpq_t(), static_cast<unsigned long>(exponent));
  } else {
    mpq_div_2exp(r.get_mpq_t(), q.get_mpq_t(), static_cast<unsigned long>(-exponent));
  }
  return r;
}

int sign_of(int x) {
  return x < 0 ? -1 : x > 0 ? 1 : 0;
}

/// Any positive rational.
class Rational {
 public:
  explicit Rational(const mpq_class& value) : value_(value) {}

  int top() const {
    const auto n = static_cast<long>(mpz_sizeinbase(value_.get_num_mpz_t(), 2));
    const auto d = static_cast<long>(mpz_sizeinbase(value_.get_den_mpz_t(), 2));
    const long guess = n - d;  // the logarithm lies in (guess - 1, guess + 1)
    return static_cast<int>(compare(1, static_cast<int>(guess)) >= 0 ? guess : guess - 1);
  }

  int compare(u64 significand, int exponent) const {
    return sign_of(cmp(value_, scaled(mpq_class(to_mpz(significand)), exponent)));
  }

  Split split(int quantum) const {
    const mpq_class x = scaled(value_, -static_cast<long>(quantum));
    mpz_class count;
    mpz_class remainder;
    mpz_fdiv_qr(count.get_mpz_t(), remainder.get_mpz_t(), x.get_num_mpz_t(), x.get_den_mpz_t());
    Split s;
    s.count = low_word(count);
    s.wide = mpz_sizeinbase(count.get_mpz_t(), 2) > 64;
    s.exact = remainder == 0;
    s.to_half = sign_of(cmp(shifted(remainder, 1), x.get_den()));
    return s;
  }

 private:
  mpq_class value_;
};

// ---- Rounding (numerics 2.1)
// ------------------------------------------------------------------------------------------

/// Of the two neighbours of an inexact magnitude, does the mode take the greater one? `to_half` is the sign of
/// magnitude - midpoint. Of two neighbours one is even and one is odd.
bool takes_upper(int mode, bool negative, int to_half, bool lower_is_odd) {
  switch (mode) {
    case RTZ:
      return false;
    case RTM:
      return negative;
    case RTP:
      return !negative;
    case RTO:
      return !lower_is_odd;
    case RNA:
      return to_half >= 0;
    case RHB:
      return to_half > 0 || (to_half == 0 && !negative);
    default:
      return to_half > 0 || (to_half == 0 && lower_is_odd);
  }
}

// ---- Destinations
// -----------------------------------------------------------------------------------------------------

/// A value of a destination, and the midpoint between it and the next one.
struct Entry {
  u64 significand;
  int exponent;
  u64 half_significand;
  int half_exponent;
  u64 code;
};

enum class Tiny { after, pre, result };

/// What encoding has to know of a float destination.
struct Destination {
  int precision = 0;
  int emin = 0;              // 2^emin is the smallest normal value
  std::vector<Entry> table;  // empty: too large, computed
  bool beyond = false;       // the last entry is not a value: it is the next one if the range went on
  u64 max_code = 0;
};

void add_midpoints(std::vector<Entry>& table) {
  for (std::size_t i = 0; i + 1 < table.size(); ++i) {
    const Entry& a = table[i];
    const Entry& b = table[i + 1];
    const int least = a.significand == 0 ? b.exponent : std::min(a.exponent, b.exponent);
    const u64 left = a.significand == 0 ? 0 : a.significand << (a.exponent - least);
    const u64 right = b.significand << (b.exponent - least);
    if (left >= right) throw std::logic_error("oracle: table out of order");
    table[i].half_significand = left + right;
    table[i].half_exponent = least - 1;
  }
}

Destination make_destination(int type) {
  const TypeRow& t = row_of(type);
  Destination d;
  d.precision = type == HiF8 ? 2 : t.fraction_bits + 1;
  d.emin = type == HiF8 ? -15 : 1 - t.bias;
  if (type == E1M2X2) d.emin = -2;  // numerics 7.5: the bound of its UF rule
  if (type == E6M2) d.emin = -48;
  if (t.bits > 16) {
    d.max_code = (ones(t.exponent_bits) << t.fraction_bits) - 1;
    return d;
  }
  const int sign_bit = t.sign_bit < 0 ? t.bits : t.sign_bit;
  for (u64 code = 0; code < (u64{1} << sign_bit); ++code) {
    const Decoded v = decode(type, code);
    if (is_finite(v.cls)) d.table.push_back({v.significand, v.exponent, 0, 0, code});
  }
  std::sort(d.table.begin(), d.table.end(), [](const Entry& a, const Entry& b) {
    if (a.significand == 0 || b.significand == 0) return a.significand == 0 && b.significand != 0;
    return Dyadic(a.significand, a.exponent).compare(b.significand, b.exponent) < 0;
  });
  d.max_code = d.table.back().code;
  // The value after the greatest, for rounding up beyond it: IEEE-like 2^(emax+1); E4M3 480 and HiF8 49152 (profile
  // ocp).
  d.beyond = true;
  if (t.kind == Kind::ieee) {
    d.table.push_back({1, t.bias + 1, 0, 0, d.max_code + 1});
  } else if (type == E4M3) {
    d.table.push_back({15, 5, 0, 0, 0x7F});
  } else if (type == HiF8) {
    d.table.push_back({3, 14, 0, 0, 0x6F});
  } else {
    d.beyond = false;
  }
  add_midpoints(d.table);
  return d;
}

const Destination& destination_of(int type) {
  static const std::vector<Destination> all = [] {
    std::vector<Destination> v(kTypeCodes);
    for (int type_index = 0; type_index < kTypeCodes; ++type_index) {
      const Kind kind = kTypes[type_index].kind;
      const bool wanted = type_index != RCPE6M2 && type_index != HiF4X2 && kind != Kind::none &&
                          kind != Kind::integer && kind != Kind::e8m0;
      if (wanted) v[static_cast<std::size_t>(type_index)] = make_destination(type_index);
    }
    return v;
  }();
  return all[static_cast<std::size_t>(type)];
}

Tiny tiny_reading(int type, Profile profile) {
  if (type == E2M1X2) return Tiny::result;  // numerics 7.5
  if (type == E1M2X2 || type == E6M2) return Tiny::pre;
  if (profile != asl) return Tiny::after;
  switch (type) {
    case E5M2:
    case E3M2:
    case E2M3:
    case TF32:
    case HF32:
      return Tiny::result;
    default:
      return Tiny::pre;
  }
}

/// The neighbours of a magnitude: lower <= x < upper. If x is a value, it is `lower`.
struct Neighbours {
  bool exact;
  int to_half;
  u64 lower;  // codes without sign
  u64 upper;
  bool upper_is_small;  // below 2^emin
};

template <class Magnitude>
Neighbours in_table(const Magnitude& x, const Destination& d) {
  const std::vector<Entry>& t = d.table;
  std::size_t low = 0;
  std::size_t high = t.size();
  while (high - low > 1) {
    const std::size_t middle = (low + high) / 2;
    (x.compare(t[middle].significand, t[middle].exponent) >= 0 ? low : high) = middle;
  }
  Neighbours n{};
  n.exact = x.compare(t[low].significand, t[low].exponent) == 0;
  n.lower = t[low].code;
  if (n.exact) return n;
  if (high == t.size()) throw std::logic_error("oracle: beyond the table");
  n.to_half = x.compare(t[low].half_significand, t[low].half_exponent);
  n.upper = t[high].code;
  n.upper_is_small = Dyadic(t[high].significand, t[high].exponent).top() < d.emin;
  return n;
}

template <class Magnitude>
Neighbours computed(const Magnitude& x, const Destination& d) {
  // The values of one binade are the multiples of its quantum; below 2^emin the quantum stays. Codes count the values.
  const int binade = std::max(x.top(), d.emin);
  const Split s = x.split(binade - d.precision + 1);
  const u64 per_binade = u64{1} << (d.precision - 1);
  Neighbours n{};
  n.exact = s.exact;
  n.to_half = s.to_half;
  n.lower = static_cast<u64>(binade - d.emin) * per_binade + s.count;
  n.upper = n.lower + 1;
  n.upper_is_small = n.upper < per_binade;
  return n;
}

Result overflow(int type, bool negative, int sat, Profile profile) {
  const TypeRow& t = row_of(type);
  const Destination& d = destination_of(type);
  const u64 sign = negative ? u64{1} << t.sign_bit : 0;
  const u64 greatest = (d.max_code << t.low_zero_bits) | sign;
  switch (t.kind) {
    case Kind::ieee:
      return {sat != 0 ? greatest : ((d.max_code + 1) << t.low_zero_bits) | sign, OF | NX};
    case Kind::e4m3:
      return {sat != 0 ? greatest : 0x7F, OF | NX};
    case Kind::hif8:
      return {sat != 0 ? greatest : kHif8Infinity | sign, OF | NX};
    default:
      break;
  }
  if (type == E2M1X2 && profile != ocp) return {6 | sign, OF | NX};
  return {greatest, OF | NX};
}

/// Is the magnitude outside whatever the mode is?
template <class Magnitude>
bool out_of_range(const Magnitude& x, int type, Profile profile) {
  const TypeRow& t = row_of(type);
  const Destination& d = destination_of(type);
  if (d.table.empty()) return x.top() > t.bias;
  const bool rounds_first = t.kind == Kind::ieee || profile == ocp;
  const Entry& last = d.table.back();
  if (!d.beyond) return x.compare(last.significand, last.exponent) > 0;
  if (rounds_first) return x.compare(last.significand, last.exponent) >= 0;
  const Entry& greatest = d.table[d.table.size() - 2];
  return x.compare(greatest.significand, greatest.exponent) > 0;
}

/// Would rounding to p bits with an unbounded exponent reach 2^emin? (x < 2^emin)
template <class Magnitude>
bool rounds_to_normal(const Magnitude& x, const Destination& d, int mode, bool negative) {
  const u64 last_below = ones(d.precision);  // times 2^(emin - p): the greatest number of p bits below 2^emin
  if (x.compare(last_below, d.emin - d.precision) <= 0) return false;
  const int to_half = x.compare(2 * last_below + 1, d.emin - d.precision - 1);
  return takes_upper(mode, negative, to_half, true);
}

void fill(AllModes& out, Result both) {
  for (auto& mode : out.r) mode = {both, both};
}

void fill(AllModes& out, Result sat0, Result sat1) {
  for (auto& mode : out.r) mode = {sat0, sat1};
}

template <class Magnitude>
void encode_scale(bool negative, const Magnitude& x, AllModes& out) {
  const Destination& d = destination_of(E6M2);
  fill(out, {0, kIllegal});
  Result both[3][2];
  if (negative) {
    for (auto& r : both) r[0] = r[1] = {0xFF, NV};
  } else if (out_of_range(x, E6M2, pto)) {
    for (auto& r : both) {
      r[0] = {0xFF, OF | NX};
      r[1] = {d.max_code, OF | NX};
    }
  } else if (x.compare(1, -48) < 0) {
    for (auto& r : both) r[0] = r[1] = {0, UF | NX};
  } else {
    const Neighbours n = in_table(x, d);
    for (int i = 0; i < 3; ++i) {
      const int mode = i == 2 ? RNA : RNE;
      const bool up = !n.exact && takes_upper(mode, false, n.to_half, n.lower % 2 != 0);
      both[i][0] = both[i][1] = {up ? n.upper : n.lower, n.exact ? 0u : NX};
    }
  }
  out.r[kDefault] = {both[0][0], both[0][1]};
  out.r[RNE] = {both[1][0], both[1][1]};
  out.r[RNA] = {both[2][0], both[2][1]};
}

template <class Magnitude>
void encode_float(bool negative, const Magnitude& x, int type, Profile profile, AllModes& out) {
  if (type == E6M2) return encode_scale(negative, x, out);
  const TypeRow& t = row_of(type);
  const Destination& d = destination_of(type);
  const Result over0 = overflow(type, negative, 0, profile);
  const Result over1 = overflow(type, negative, 1, profile);
  if (out_of_range(x, type, profile)) return fill(out, over0, over1);

  const Neighbours n = d.table.empty() ? computed(x, d) : in_table(x, d);
  const u64 sign = negative ? u64{1} << t.sign_bit : 0;
  // An underflow of a negative value to zero: HiF8 has no other zero, E4M3 gives 00 but under ocp (profiles 4).
  const bool drops_sign_of_zero = type == HiF8 || (type == E4M3 && profile != ocp);
  const auto with_sign = [&](u64 code) {
    if (code == 0 && drops_sign_of_zero) return u64{0};
    return (code << t.low_zero_bits) | sign;
  };
  if (n.exact) return fill(out, {with_sign(n.lower), 0});

  const bool small = x.compare(1, d.emin) < 0;
  const Tiny reading = tiny_reading(type, profile);
  for (int mode = RNE; mode <= RHB; ++mode) {
    auto& result = out.r[static_cast<std::size_t>(mode)];
    const bool up = takes_upper(mode, negative, n.to_half, n.lower % 2 != 0);
    if (up && (d.table.empty() || d.beyond) && n.upper == (d.table.empty() ? d.max_code + 1 : d.table.back().code)) {
      result = {over0, over1};
      continue;
    }
    bool tiny = small;
    if (small && up && reading == Tiny::result) tiny = n.upper_is_small;
    if (small && reading == Tiny::after) tiny = !rounds_to_normal(x, d, mode, negative);
    const Result r{with_sign(up ? n.upper : n.lower), tiny ? UF | NX : static_cast<u32>(NX)};
    result = {r, r};
  }
  out.r[kDefault] = out.r[RNE];
}

template <class Magnitude>
void encode_integer(bool negative, const Magnitude& x, int type, AllModes& out) {
  const TypeRow& t = row_of(type);
  const bool is_signed = t.sign_bit >= 0;
  const u64 greatest = is_signed ? ones(t.bits - 1) : ones(t.bits);
  const u64 least = is_signed ? greatest + 1 : 0;  // magnitude of the minimum
  const u64 limit = negative ? least : greatest;
  const Split s = x.split(0);
  for (int mode = RNE; mode <= RHB; ++mode) {
    const bool up = !s.exact && takes_upper(mode, negative, s.to_half, s.count % 2 != 0);
    const u64 magnitude = s.count + (up ? 1 : 0);
    const bool wide = s.wide || (up && magnitude == 0);
    const bool outside = wide || magnitude > limit;
    const u64 wrapped = cut(negative ? u64{0} - magnitude : magnitude, t.bits);
    const u64 clamped = cut(negative ? u64{0} - limit : limit, t.bits);
    const u32 flags = outside ? OF | NX : s.exact ? 0u : static_cast<u32>(NX);
    out.r[static_cast<std::size_t>(mode)] = {Result{wrapped, flags}, Result{outside ? clamped : wrapped, flags}};
  }
  out.r[kDefault] = out.r[RNE];
}

template <class Magnitude>
void encode_magnitude(bool negative, const Magnitude& x, int type, Profile profile, AllModes& out) {
  if (is_integer(type)) {
    encode_integer(negative, x, type, out);
  } else {
    encode_float(negative, x, type, profile, out);
  }
}

void check_destination(int type) {
  if (!is_type(type) || type == E8M0 || type == HiF4X2 || type == RCPE6M2)
    throw std::invalid_argument("oracle: no encoder for this type");
}

const Result& pick(const AllModes& all, int mode, int sat) {
  return all(mode, sat);
}

}  // namespace

// ---- Types
// ------------------------------------------------------------------------------------------------------------

bool is_type(int type) {
  return type >= 0 && type < kTypeCodes && kTypes[type].kind != Kind::none;
}

const char* type_name(int type) {
  return is_type(type) ? kTypes[type].name : nullptr;
}

int type_code(std::string_view name) {
  for (int type = 0; type < kTypeCodes; ++type)
    if (is_type(type) && name == kTypes[type].name) return type;
  return -1;
}

bool is_integer(int type) {
  return is_type(type) && kTypes[type].kind == Kind::integer;
}
bool is_signed_integer(int type) {
  return is_integer(type) && kTypes[type].sign_bit >= 0;
}
int carrier_bits(int type) {
  return row_of(type).bits;
}

int profile_code(std::string_view name) {
  return name == "pto" ? pto : name == "asl" ? asl : name == "ocp" ? ocp : -1;
}

int mode_code(std::string_view name) {
  constexpr std::string_view kNames[8] = {"none", "RNE", "RTZ", "RTM", "RTP", "RNA", "RTO", "RHB"};
  for (int mode = 0; mode < 8; ++mode)
    if (name == kNames[mode]) return mode;
  return -1;
}

const char* class_name(Class c) {
  switch (c) {
    case Class::Invalid:
      return "InvalidEncoding";
    case Class::PositiveZero:
      return "PositiveZero";
    case Class::NegativeZero:
      return "NegativeZero";
    case Class::PositiveSubnormal:
      return "PositiveSubnormal";
    case Class::NegativeSubnormal:
      return "NegativeSubnormal";
    case Class::PositiveNormal:
      return "PositiveNormal";
    case Class::NegativeNormal:
      return "NegativeNormal";
    case Class::PositiveInfinity:
      return "PositiveInfinity";
    case Class::NegativeInfinity:
      return "NegativeInfinity";
    case Class::QuietNaN:
      return "QuietNaN";
    case Class::SignalingNaN:
      return "SignalingNaN";
  }
  return "";
}

Class classify(int type, u64 bits, Profile profile) {
  if (!is_type(type)) return Class::Invalid;
  const Decoded d = decode(type, bits);
  if (type == E2M1X2 && profile == asl) {
    if (d.cls == Class::PositiveSubnormal) return Class::PositiveNormal;
    if (d.cls == Class::NegativeSubnormal) return Class::NegativeNormal;
  }
  return d.cls;
}

Decomposition decompose(int type, u64 bits) {
  if (!is_type(type) || is_integer(type) || type == RCPE6M2) return {};
  const Decoded d = decode(type, bits);
  if (!is_finite(d.cls)) return {};
  return {true, d.negative, d.significand, d.exponent};
}

Exact Exact::dyadic(const mpz_class& signed_significand, long exponent) {
  return of(scaled(mpq_class(signed_significand), exponent));
}

Exact Exact::fraction(const mpz_class& numerator, const mpz_class& denominator, long exponent) {
  mpq_class q(numerator, denominator);
  q.canonicalize();
  return of(scaled(q, exponent));
}

Exact Exact::of(const mpq_class& value) {
  Exact x;
  x.negative = value < 0;
  x.magnitude = abs(value);
  return x;
}

std::optional<Exact> value_of(int type, u64 bits) {
  if (!is_type(type)) return std::nullopt;
  const Decoded d = decode(type, bits);
  if (!is_finite(d.cls)) return std::nullopt;
  Exact x;
  x.negative = d.negative && d.significand != 0;
  x.magnitude = scaled(mpq_class(to_mpz(d.significand)), d.exponent);
  if (type == RCPE6M2) x.magnitude = 1 / x.magnitude;
  return x;
}

u64 canonical_nan(int type) {
  return row_of(type).canonical_nan;
}

// ---- Encoding
// ---------------------------------------------------------------------------------------------------------

mpz_class round_to_integer(const Exact& x, int mode) {
  mpz_class floor_value;
  mpz_class remainder;
  mpz_fdiv_qr(floor_value.get_mpz_t(), remainder.get_mpz_t(), x.magnitude.get_num_mpz_t(), x.magnitude.get_den_mpz_t());
  if (remainder != 0) {
    const int to_half = sign_of(cmp(shifted(remainder, 1), x.magnitude.get_den()));
    if (takes_upper(mode, x.negative, to_half, mpz_odd_p(floor_value.get_mpz_t()) != 0)) floor_value += 1;
  }
  return x.negative ? mpz_class(-floor_value) : floor_value;
}

void encode_all(bool negative, u64 significand, int exponent, int destination, Profile profile, AllModes& out) {
  check_destination(destination);
  if (significand == 0) return fill(out, destination == E6M2 ? Result{0, UF | NX} : Result{0, 0});
  encode_magnitude(negative, Dyadic(significand, exponent), destination, profile, out);
}

AllModes encode_all(const Exact& x, int destination, Profile profile) {
  check_destination(destination);
  AllModes out;
  if (x.magnitude == 0) {
    fill(out, destination == E6M2 ? Result{0, UF | NX} : Result{0, 0});
  } else {
    encode_magnitude(x.negative, Rational(x.magnitude), destination, profile, out);
  }
  return out;
}

Result encode(const Exact& x, int destination, int mode, int sat, Profile profile) {
  return pick(encode_all(x, destination, profile), mode, sat);
}

// ---- TCVT
// -------------------------------------------------------------------------------------------------------------

namespace {

bool is_ordinary(int type) {
  switch (type) {
    case FP64:
    case FP32:
    case TF32:
    case HF32:
    case FP16:
    case BF16:
    case HiF8:
    case E4M3:
    case E5M2:
    case E3M2:
    case E2M3:
      return true;
    default:
      return is_integer(type);
  }
}

bool is_packed_float(int type) {
  return type == E2M1X2 || type == E1M2X2;
}

/// Numerics 7.2. The value is a finite positive significand * 2^exponent with a significand below 2^32.
void positive_to_e8m0(u64 significand, int exponent, AllModes& out) {
  const Dyadic x(significand, exponent);
  if (x.compare(1, -127) < 0) return fill(out, {0xFF, UF | NX}, {0x00, UF | NX});
  if (x.compare(1, 127) > 0) return fill(out, {0xFF, OF | NX}, {0xFE, OF | NX});
  const int e = x.top();
  const auto code = [](int power) {
    const int biased = power + 127;
    return static_cast<u64>(biased);
  };
  if (x.compare(1, e) == 0) return fill(out, {code(e), 0});
  // log2(x) lies between e and e + 1; it is below e + 1/2 exactly if x^2 < 2^(2e+1).
  const bool below_half = Dyadic(significand * significand, 2 * exponent).compare(1, 2 * e + 1) < 0;
  for (int mode = RNE; mode <= RHB; ++mode) {
    int power = below_half ? e : e + 1;
    if (mode == RTM) power = e;
    if (mode == RTP) power = e + 1;
    if (mode == RTZ) power = e < 0 ? e + 1 : e;
    if (mode == RTO) power = e % 2 != 0 ? e : e + 1;
    const Result r{code(power), NX};
    out.r[static_cast<std::size_t>(mode)] = {r, r};
  }
  out.r[kDefault] = out.r[RNE];
}

void to_e8m0(const Decoded& v, AllModes& out) {
  if (v.cls == Class::PositiveInfinity) return fill(out, {0xFF, OF | NX}, {0xFE, OF | NX});
  if (v.cls != Class::PositiveNormal && v.cls != Class::PositiveSubnormal) return fill(out, {0xFF, NV});
  positive_to_e8m0(v.significand, v.exponent, out);
}

void to_e6m2(const Decoded& v, AllModes& out) {
  Result sat0;
  Result sat1;
  if (is_nan(v.cls)) {
    sat0 = sat1 = {0xFF, v.cls == Class::SignalingNaN ? static_cast<u32>(NV) : 0u};
  } else if (v.cls == Class::PositiveInfinity) {
    sat0 = {0xFF, OF | NX};
    sat1 = {0xFE, OF | NX};
  } else if (v.cls == Class::NegativeInfinity) {
    sat0 = sat1 = {0xFF, NV};
  } else if (v.significand == 0) {
    sat0 = sat1 = {0x00, UF | NX};
  } else {
    return encode_magnitude(v.negative, Dyadic(v.significand, v.exponent), E6M2, pto, out);
  }
  fill(out, {0, kIllegal});
  for (const int mode : {static_cast<int>(kDefault), static_cast<int>(RNE), static_cast<int>(RNA)})
    out.r[static_cast<std::size_t>(mode)] = {sat0, sat1};
}

/// NaN, infinity, invalid encodings and zeros of a float source (numerics 7.1, 7.4, 7.5).
void special_to_float(const Decoded& v, int destination, Profile profile, AllModes& out) {
  const TypeRow& t = row_of(destination);
  const u64 sign = v.negative ? u64{1} << t.sign_bit : 0;
  if (v.cls == Class::Invalid || is_nan(v.cls)) {
    const bool raises = v.cls != Class::QuietNaN;
    return fill(out, {t.canonical_nan, raises ? static_cast<u32>(NV) : 0u});
  }
  if (is_infinite(v.cls)) {
    if (t.kind == Kind::ieee || t.kind == Kind::hif8)
      return fill(out, {overflow(destination, v.negative, 0, profile).bits, 0});
    return fill(out, overflow(destination, v.negative, 0, profile), overflow(destination, v.negative, 1, profile));
  }
  fill(out, {destination == HiF8 ? 0 : sign, 0});
}

void float_to_integer(const Decoded& v, int destination, AllModes& out) {
  if (v.cls == Class::Invalid || is_nan(v.cls)) return fill(out, {0, NV});
  if (is_infinite(v.cls)) {
    const TypeRow& t = row_of(destination);
    const bool is_signed = t.sign_bit >= 0;
    const u64 greatest = is_signed ? ones(t.bits - 1) : ones(t.bits);
    const u64 least = is_signed ? u64{1} << t.sign_bit : 0;
    return fill(out, {v.negative ? least : greatest, NV});
  }
  if (v.significand == 0) return fill(out, {0, 0});
  encode_integer(v.negative, Dyadic(v.significand, v.exponent), destination, out);
  out.r[kDefault] = out.r[RTZ];
}

void integer_to_integer(const Decoded& v, int destination, AllModes& out) {
  if (v.significand == 0) return fill(out, {0, 0});
  encode_integer(v.negative, Dyadic(v.significand, 0), destination, out);
  for (auto& mode : out.r)
    for (Result& r : mode) r.flags = 0;
}

}  // namespace

bool tcvt_legal(int source, int destination, int mode) {
  if (!is_type(source) || !is_type(destination) || mode < 0 || mode > 7) return false;
  if (source == HiF4X2 || destination == HiF4X2 || destination == RCPE6M2) return false;
  const bool to_wide = destination == FP16 || destination == BF16;
  const bool nearest = mode == kDefault || mode == RNE || mode == RNA;
  if (source == RCPE6M2 || source == E6M2) return to_wide && nearest;
  if (source == E8M0 || is_packed_float(source)) return to_wide || destination == FP32;
  // The source is ordinary.
  if (destination == E6M2) return (source == FP16 || source == BF16) && nearest;
  if (destination == E8M0 || is_packed_float(destination)) return source == FP32 || source == FP16 || source == BF16;
  return is_ordinary(destination);
}

void tcvt(int source, int destination, u64 bits, Profile profile, AllModes& out) {
  if (!tcvt_legal(source, destination, kDefault)) throw std::invalid_argument("oracle: TCVT pair is not legal");
  const Decoded v = decode(source, bits);
  if (destination == E8M0) return to_e8m0(v, out);
  if (destination == E6M2) return to_e6m2(v, out);
  if (source == E6M2 || source == RCPE6M2) {
    if (is_nan(v.cls)) {
      fill(out, {canonical_nan(destination), 0});
    } else if (source == E6M2) {
      encode_all(false, v.significand, v.exponent, destination, profile, out);
    } else {
      out = encode_all(*value_of(RCPE6M2, bits), destination, profile);
    }
    for (int mode = RNE; mode <= RHB; ++mode) {
      if (mode != RNE && mode != RNA)
        out.r[static_cast<std::size_t>(mode)] = {Result{0, kIllegal}, Result{0, kIllegal}};
    }
    return;
  }
  if (is_integer(source) && is_integer(destination)) return integer_to_integer(v, destination, out);
  if (is_integer(destination)) return float_to_integer(v, destination, out);
  if (!is_finite(v.cls) || v.significand == 0) return special_to_float(v, destination, profile, out);
  encode_magnitude(v.negative, Dyadic(v.significand, v.exponent), destination, profile, out);
}

AllModes tcvt(int source, int destination, u64 bits, Profile profile) {
  AllModes out;
  tcvt(source, destination, bits, profile, out);
  return out;
}

// ---- FP19 and parameters
// ----------------------------------------------------------------------------------------------

namespace {

/// FP19 is the FP32 of 13 more zero bits, so TF32 without its zero bits.
Decoded decode_fp19(u64 raw) {
  return decode(TF32, cut(raw, 19) << 13);
}

}  // namespace

Class fp19_class(u64 raw) {
  return decode_fp19(raw).cls;
}

bool fp19_scale_legal(u64 raw) {
  return (raw >> 19) == 0 && fp19_class(raw) == Class::PositiveNormal;
}

bool fp19_activation_legal(u64 raw) {
  return raw == 0 || fp19_scale_legal(raw);
}

u64 fp32_to_fp19(u64 fp32) {
  const Decoded v = decode(FP32, fp32);
  if (is_nan(v.cls)) return 0x3FF00;
  if (is_infinite(v.cls) || v.significand == 0) return cut(fp32, 32) >> 13;
  AllModes all;
  encode_all(v.negative, v.significand, v.exponent, TF32, pto, all);
  return all(RNE, 0).bits >> 13;
}

bool quant_parameter_legal(int code, u64 word) {
  const PreQuantMode* mode = pre_quant_mode(code);
  if (mode == nullptr || mode->parameter == Parameter::none) return false;
  // Numerics 4.2: which bits may be set.
  if (mode->shift) return (word & ~(u64{0xF} << 32)) == 0;
  const u64 offset = ones(mode->offset_bits) << 37;
  const u64 scale = ones(19) << 13;
  return (word & ~(offset | scale)) == 0 && fp19_scale_legal((word >> 13) & ones(19));
}

bool relu_parameter_legal(u64 word) {
  return fp19_activation_legal(word);
}

// ---- B.FPATR
// ----------------------------------------------------------------------------------------------------------

namespace {

constexpr Parameter kNoParameter = Parameter::none;
constexpr Parameter kScalar = Parameter::scalar;
constexpr Parameter kVector = Parameter::vector;

// Numerics 5.3: code, name, FP32, S32, U32, output, parameter, offset, shift, fixed rounding, RMode, Sat.
constexpr PreQuantMode kModes[] = {
    {0, "NoQuant", true, true, true, -1, kNoParameter, 0, false, 0, false, false},
    {1, "F322F16", true, false, false, FP16, kNoParameter, 0, false, RNE, false, true},
    {2, "VREQ8", false, true, false, S8, kVector, 9, false, 0, true, true},
    {3, "REQ8", false, true, false, S8, kScalar, 9, false, 0, true, true},
    {4, "VDEQF16", false, true, false, FP16, kVector, 0, false, 0, true, true},
    {5, "DEQF16", false, true, false, FP16, kScalar, 0, false, 0, true, true},
    {12, "VSHIFTS322S16", false, true, false, S16, kVector, 0, true, 0, false, false},
    {13, "SHIFTS322S16", false, true, false, S16, kScalar, 0, true, 0, false, false},
    {16, "F322BF16", true, false, false, BF16, kNoParameter, 0, false, RNE, false, true},
    {17, "REQ4", false, true, false, S4X2, kScalar, 5, false, 0, true, true},
    {18, "VREQ4", false, true, false, S4X2, kVector, 5, false, 0, true, true},
    {19, "DEQS16", false, true, false, S16, kScalar, 17, false, 0, true, true},
    {20, "VDEQS16", false, true, false, S16, kVector, 17, false, 0, true, true},
    {23, "VQF322B8_PRE", true, false, false, S8, kVector, 9, false, 0, true, true},
    {24, "QF322B8_PRE", true, false, false, S8, kScalar, 9, false, 0, true, true},
    {25, "QF322HIF8_PRE", true, false, false, HiF8, kScalar, 0, false, RHB, false, true},
    {26, "QF322FP8_PRE", true, false, false, E4M3, kScalar, 0, false, RNE, false, true},
    {27, "QF322F32_PRE", true, false, false, FP32, kScalar, 0, false, 0, true, true},
    {28, "VQF322HIF8_PRE", true, false, false, HiF8, kVector, 0, false, RHB, false, true},
    {32, "QF322F16_PRE", true, false, false, FP16, kScalar, 0, false, RNE, false, true},
    {33, "VQF322F16_PRE", true, false, false, FP16, kVector, 0, false, RNE, false, true},
    {34, "QF322BF16_PRE", true, false, false, BF16, kScalar, 0, false, RNE, false, true},
    {35, "QS322BF16_PRE", false, true, false, BF16, kScalar, 0, false, 0, true, true},
    {36, "VQF322BF16_PRE", true, false, false, BF16, kVector, 0, false, RNE, false, true},
    {37, "VQF322FP8_PRE", true, false, false, E4M3, kVector, 0, false, RNE, false, true},
    {38, "VQF322F32_PRE", true, false, false, FP32, kVector, 0, false, 0, true, true},
    {39, "VQS322BF16_PRE", false, true, false, BF16, kVector, 0, false, 0, true, true},
};

}  // namespace

const PreQuantMode* pre_quant_mode(int code) {
  for (const PreQuantMode& mode : kModes)
    if (mode.code == code) return &mode;
  return nullptr;
}

bool accumulator_legal(int code, int accumulator) {
  const PreQuantMode* mode = pre_quant_mode(code);
  if (mode == nullptr) return false;
  return (accumulator == FP32 && mode->fp32) || (accumulator == S32 && mode->s32) || (accumulator == U32 && mode->u32);
}

bool rounding_sat_legal(int code, int mode, int sat) {
  const PreQuantMode* m = pre_quant_mode(code);
  if (m == nullptr || mode < 0 || mode > 7 || sat < 0 || sat > 1) return false;
  return (mode == 0 || m->takes_rounding) && (sat == 0 || m->takes_sat);
}

int effective_rounding(int code, int mode) {
  const PreQuantMode* m = pre_quant_mode(code);
  if (m == nullptr) throw std::invalid_argument("oracle: reserved PreQuantMode");
  if (m->fixed_rounding != 0) return m->fixed_rounding;
  return mode == kDefault ? static_cast<int>(RNE) : mode;
}

int group_n(int group_n_code) {
  constexpr int kGroupN[10] = {0, 8, 16, 32, 48, 64, 80, 96, 112, 128};
  return group_n_code >= 0 && group_n_code <= 9 ? kGroupN[group_n_code] : -1;
}

bool fpatr_fields_legal(int code, int relu_mode, int group_n_code, bool row_max, bool group_max, bool row_max_init,
                        bool max_abs) {
  if (pre_quant_mode(code) == nullptr || relu_mode < 0 || relu_mode > 3 || group_n(group_n_code) < 0) return false;
  if (group_max != (group_n_code != 0)) return false;
  if (row_max_init && !row_max) return false;
  return !max_abs || row_max || group_max;
}

Result postprocess(int code, int relu_mode, int accumulator, u64 word, u64 quant, u64 alpha_fp19, int rounding, int sat,
                   Profile profile) {
  const PreQuantMode* m = pre_quant_mode(code);
  if (m == nullptr || !accumulator_legal(code, accumulator)) throw std::invalid_argument("oracle: PreQuantMode");
  const u64 v = cut(word, 32);
  // 1. Identity.
  if (code == 0 && relu_mode == 0) return {v, 0};
  // 2. Shifts ignore the activation.
  if (m->shift) {
    const mpz_class x(static_cast<long>(sign_extend(v, 32)));
    const unsigned long by = static_cast<unsigned long>((quant >> 32) & 0xF) + 1;
    mpz_class y;
    mpz_fdiv_q_2exp(y.get_mpz_t(), x.get_mpz_t(), by);
    if (y > 32767) return {0x7FFF, OF | NX};
    if (y < -32768) return {0x8000, OF | NX};
    return {cut(low_word(y), 16), 0};
  }
  // 3. Source, 4. sign.
  const int output = m->output < 0 ? accumulator : m->output;
  const int mode = code == 0 ? static_cast<int>(RNE) : effective_rounding(code, rounding);
  const int saturate = code == 0 ? 0 : sat;
  const Decoded x = decode(accumulator, v);
  const bool negative = x.negative && !is_nan(x.cls);
  // 5. Multiplier.
  Decoded factor{Class::PositiveNormal, false, 1, 0};
  if (negative && relu_mode == 1) {
    factor = {Class::PositiveZero, false, 0, 0};
  } else if (negative && relu_mode >= 2) {
    factor = decode_fp19(alpha_fp19);
  } else if (m->parameter != Parameter::none) {
    factor = decode_fp19(quant >> 13);
  }
  const bool zero_factor = factor.significand == 0;
  const std::int64_t offset = m->offset_bits == 0 ? 0 : sign_extend(quant >> 37, m->offset_bits);
  const TypeRow& out = row_of(output);
  const bool to_integer = is_integer(output);
  const u64 minimum = to_integer && out.sign_bit >= 0 ? u64{1} << out.sign_bit : 0;
  const u64 maximum = to_integer ? (out.sign_bit >= 0 ? minimum - 1 : ones(out.bits)) : 0;
  // 6. Special inputs.
  if (is_nan(x.cls)) {
    if (to_integer) return {saturate != 0 ? 0 : minimum, NV};
    const u32 flags = x.cls == Class::SignalingNaN ? static_cast<u32>(NV) : 0u;
    return {saturate != 0 ? 0 : out.canonical_nan, flags};
  }
  if (is_infinite(x.cls) && !zero_factor) {
    if (to_integer) {
      if (saturate == 0) return {minimum, NV};
      return {x.negative ? minimum : maximum, OF | NX};
    }
    Result r = overflow(output, x.negative, saturate, profile);
    if (saturate == 0 && output != E4M3) r.flags = 0;
    return r;
  }
  // 7. The product. An infinity times zero counts as zero.
  const bool zero = x.significand == 0 || zero_factor;
  const u64 product = zero ? 0 : x.significand * factor.significand;
  const int exponent = zero ? 0 : x.exponent + factor.exponent;
  // 8. Negative zero.
  if (x.cls == Class::NegativeZero && !zero_factor && offset == 0 && !to_integer)
    return {output == HiF8 ? 0 : u64{1} << out.sign_bit, 0};
  // 10. One encode.
  AllModes all;
  if (m->offset_bits == 0) {
    encode_all(x.negative, product, exponent, output, profile, all);
    return all(mode, saturate);
  }
  // 9. Intermediate, offset, encode.
  const std::int64_t greatest = (std::int64_t{1} << (m->offset_bits - 1)) - 1;
  const std::int64_t least = -greatest - 1;
  std::int64_t i = 0;
  u32 flags = 0;
  if (!zero) {
    const Split s = Dyadic(product, exponent).split(0);
    const bool up = !s.exact && takes_upper(mode, x.negative, s.to_half, s.count % 2 != 0);
    if (!s.exact) flags = NX;
    // Anything beyond 2^32 is as good as 2^32 for a range of at most 17 bits.
    const u64 bound = u64{1} << 32;
    const u64 magnitude = s.wide || s.count > bound ? bound : s.count + (up ? 1 : 0);
    i = x.negative ? -static_cast<std::int64_t>(magnitude) : static_cast<std::int64_t>(magnitude);
    if (i < least || i > greatest) {
      flags = OF | NX;
      i = i < least ? least : greatest;
    }
  }
  const std::int64_t j = i + offset;
  encode_all(j < 0, static_cast<u64>(j < 0 ? -j : j), 0, output, profile, all);
  const Result& final = all(mode, saturate);
  return {final.bits, final.flags | flags};
}

Result absolute(int accumulator, u64 word) {
  const u64 v = cut(word, 32);
  if (accumulator == FP32) return {v & 0x7FFFFFFF, 0};
  if (accumulator == U32 || sign_extend(v, 32) >= 0) return {v, 0};
  if (v == 0x80000000) return {0x7FFFFFFF, OF};
  return {cut(u64{0} - v, 32), 0};
}

namespace {

Result maximum(int accumulator, u64 a, u64 b) {
  if (accumulator == U32) return {b > a ? b : a, 0};
  if (accumulator == S32) return {sign_extend(b, 32) > sign_extend(a, 32) ? b : a, 0};
  const Decoded x = decode(FP32, a);
  const Decoded y = decode(FP32, b);
  const bool signaling = x.cls == Class::SignalingNaN || y.cls == Class::SignalingNaN;
  const u32 flags = signaling ? static_cast<u32>(NV) : 0u;
  if (is_nan(x.cls) && is_nan(y.cls)) return {0x7FC00000, flags};
  if (is_nan(x.cls)) return {b, flags};
  if (is_nan(y.cls)) return {a, flags};
  if (is_zero(x.cls) && is_zero(y.cls)) return {x.negative && y.negative ? u64{0x80000000} : 0, 0};
  // A number by its sign and its magnitude; infinities beyond all others.
  const auto value = [](const Decoded& d) {
    const mpq_class magnitude =
        is_infinite(d.cls) ? scaled(1, 1000) : scaled(mpq_class(to_mpz(d.significand)), d.exponent);
    return d.negative ? mpq_class(-magnitude) : magnitude;
  };
  return {value(y) > value(x) ? b : a, 0};
}

}  // namespace

Result reduction_step(int accumulator, bool max_abs, u64 a, u64 b) {
  Result left{cut(a, 32), 0};
  Result right{cut(b, 32), 0};
  if (max_abs) {
    left = absolute(accumulator, a);
    right = absolute(accumulator, b);
  }
  const Result r = maximum(accumulator, left.bits, right.bits);
  return {r.bits, r.flags | left.flags | right.flags};
}

namespace {

Result reduce(int accumulator, bool max_abs, const std::vector<u64>& row, std::size_t first, std::size_t last) {
  Result current{cut(row[first], 32), 0};
  if (max_abs) current = reduction_step(accumulator, true, current.bits, current.bits);
  for (std::size_t i = first + 1; i < last; ++i) {
    const Result next = reduction_step(accumulator, max_abs, current.bits, row[i]);
    current = {next.bits, next.flags | current.flags};
  }
  return current;
}

}  // namespace

Result row_max(int accumulator, bool max_abs, const std::vector<u64>& row, std::optional<u64> row_max_in) {
  const Result current = reduce(accumulator, max_abs, row, 0, row.size());
  if (!row_max_in) return current;
  const Result last = reduction_step(accumulator, max_abs, *row_max_in, current.bits);
  return {last.bits, last.flags | current.flags};
}

std::vector<Result> group_maxima(int accumulator, bool max_abs, const std::vector<u64>& row, int group) {
  std::vector<Result> out;
  const auto step = static_cast<std::size_t>(group);
  for (std::size_t first = 0; first < row.size(); first += step)
    out.push_back(reduce(accumulator, max_abs, row, first, std::min(first + step, row.size())));
  return out;
}

// ---- C scale, affine quantisation
// -------------------------------------------------------------------------------------

Result c_scale(u64 c_fp32, int s, Profile profile) {
  const Decoded c = decode(FP32, c_fp32);
  if (!is_finite(c.cls) || c.significand == 0) return {cut(c_fp32, 32), 0};
  AllModes all;
  encode_all(c.negative, c.significand, c.exponent - s, FP32, profile, all);
  return all(RNE, 0);
}

bool multiplier_legal(u64 fp32) {
  const Class c = classify(FP32, fp32);
  return (fp32 >> 32) == 0 && (c == Class::PositiveNormal || c == Class::PositiveSubnormal);
}

bool zero_point_legal(int type, u64 word) {
  if (type == S8) return word == static_cast<u64>(sign_extend(word, 8));
  return type == U8 && word == cut(word, 8);
}

Result tquant(int destination, u64 x_fp32, u64 multiplier, u64 zero_point, int mode, int sat) {
  const bool is_signed = destination == S8;
  const long least = is_signed ? -128 : 0;
  const long greatest = is_signed ? 127 : 255;
  const Decoded x = decode(FP32, x_fp32);
  if (is_nan(x.cls)) return {0, NV};
  if (is_infinite(x.cls)) return {cut(static_cast<u64>(x.negative ? least : greatest), 8), OF | NX};
  const mpq_class exact = value_of(FP32, x_fp32)->value() * value_of(FP32, multiplier)->value() +
                          value_of(destination, zero_point)->value();
  mpz_class q = round_to_integer(Exact::of(exact), mode);
  const u32 flags = mpq_class(q) != exact ? static_cast<u32>(NX) : 0u;
  if (sat != 0 && q < least) q = least;
  if (sat != 0 && q > greatest) q = greatest;
  return {cut(low_word(q), 8), flags};
}

Result tdequant(int source, u64 q, u64 multiplier, u64 zero_point, int mode, Profile profile) {
  const mpq_class exact =
      (value_of(source, q)->value() - value_of(source, zero_point)->value()) * value_of(FP32, multiplier)->value();
  return encode(Exact::of(exact), FP32, mode, 0, profile);
}

// ---- HiF4 quantisation
// ------------------------------------------------------------------------------------------------

namespace {

/// A non-negative number on the way through a quantiser, possibly infinite.
struct Number {
  u64 significand = 0;
  int exponent = 0;
  bool infinite = false;
};

Number number_of(const Decoded& v) {
  return {v.significand, v.exponent, is_infinite(v.cls)};
}

Number product(const Number& a, const Number& b) {
  if (a.infinite || b.infinite) return {0, 0, true};
  return {a.significand * b.significand, a.exponent + b.exponent, false};
}

/// The sign of a - significand * 2^exponent.
int compare(const Number& a, u64 significand, int exponent) {
  if (a.infinite) return 1;
  if (a.significand == 0) return significand == 0 ? 0 : -1;
  return Dyadic(a.significand, a.exponent).compare(significand, exponent);
}

u64 to_bf16(const Number& a) {
  if (a.infinite) return 0x7F80;
  AllModes all;
  encode_all(false, a.significand, a.exponent, BF16, pto, all);
  return all(RNE, 0).bits;
}

Number through_bf16(const Number& a) {
  return number_of(decode(BF16, to_bf16(a)));
}

/// The BF16 reciprocals of numerics 7.6.
u64 bf16_reciprocal(std::uint8_t e6m2) {
  static const std::array<u64, 256> all = [] {
    std::array<u64, 256> a{};
    for (u64 code = 0; code < 256; ++code) a[code] = tcvt(RCPE6M2, BF16, code, pto)(RNE, 0).bits;
    return a;
  }();
  return all[e6m2];
}

std::uint8_t e6m2_of(const Number& sf, bool half_up) {
  if (compare(sf, 3, 14) > 0) return 0xFE;
  if (compare(sf, 1, -48) < 0) return 0x00;
  AllModes all;
  encode_all(false, sf.significand, sf.exponent, E6M2, pto, all);
  return static_cast<std::uint8_t>(all(half_up ? RNA : RNE, 0).bits);
}

std::uint8_t quarters(const Number& a, bool rne) {
  if (compare(a, 7, -2) >= 0) return 7;
  if (a.significand == 0) return 0;
  const Split s = Dyadic(a.significand, a.exponent).split(-2);
  const bool up = !s.exact && takes_upper(rne ? RNE : RNA, false, s.to_half, s.count % 2 != 0);
  return static_cast<std::uint8_t>(s.count + (up ? 1 : 0));
}

u64 greater(u64 a, u64 b) {
  return a > b ? a : b;
}

}  // namespace

std::optional<Hif4Rules> hif4_rules(std::string_view profile) {
  if (profile == "pto") return Hif4Rules{true, false, true, false};
  if (profile == "pto-a6") return Hif4Rules{true, false, true, true};
  if (profile == "paper") return Hif4Rules{true, false, false, false};
  if (profile == "bench") return Hif4Rules{true, true, true, true};
  if (profile == "literal") return Hif4Rules{false, false, true, false};
  return std::nullopt;
}

Hif4Group hif4_quantize(const Hif4Rules& rules, int source, const u64* words, std::size_t count) {
  if (count > 64) throw std::invalid_argument("oracle: more than 64 lanes");
  std::array<u64, 64> x{};  // missing lanes are +0
  bool nan = false;
  for (std::size_t q = 0; q < count; ++q) {
    x[q] = source == BF16 ? cut(words[q], 16) : tcvt(source, BF16, words[q], pto)(RNE, 0).bits;
    nan = nan || is_nan(decode(BF16, x[q]).cls);
  }
  Hif4Group g;
  if (nan) {
    g.word = g.ea = 0xFF;
    g.ea_rec = 0x7FC0;
    g.scale.fill(0x7FC0);
    return g;
  }
  // Maxima: BF16 magnitudes are ordered as their codes.
  for (std::size_t q = 0; q < 64; ++q) {
    const u64 magnitude = x[q] & 0x7FFF;
    g.mc[q / 4] = static_cast<std::uint16_t>(greater(g.mc[q / 4], magnitude));
    g.mb[q / 8] = static_cast<std::uint16_t>(greater(g.mb[q / 8], magnitude));
    g.ma = static_cast<std::uint16_t>(greater(g.ma, magnitude));
  }
  const Number ma = number_of(decode(BF16, g.ma));
  const Number sf = rules.one_seventh ? through_bf16(product(ma, number_of(decode(BF16, 0x3E12)))) : ma;
  g.sf = static_cast<std::uint16_t>(to_bf16(sf));
  g.ea = e6m2_of(sf, rules.ea_half_up);
  g.ea_rec = static_cast<std::uint16_t>(bf16_reciprocal(g.ea));
  const Number reciprocal = number_of(decode(BF16, g.ea_rec));
  const auto times = [&](const Number& a, const Number& b) {
    const Number p = product(a, b);
    return rules.bf16_products ? through_bf16(p) : p;
  };
  for (std::size_t i = 0; i < 8; ++i) {
    const Number t = times(number_of(decode(BF16, g.mb[i])), reciprocal);
    if (compare(t, 4, 0) >= 0) g.eb = static_cast<std::uint8_t>(g.eb | (1U << i));
  }
  for (std::size_t h = 0; h < 16; ++h) {
    const int eb = (g.eb >> (h / 2)) & 1;
    Number u = times(number_of(decode(BF16, g.mc[h])), reciprocal);
    u.exponent -= eb;
    const int ec = compare(u, 2, 0) >= 0 ? 1 : 0;
    if (ec != 0) g.ec = static_cast<std::uint16_t>(g.ec | (1U << h));
    Number scale = reciprocal;
    scale.exponent -= eb + ec;
    g.scale[h] = static_cast<std::uint16_t>(to_bf16(scale));
    for (std::size_t q = 4 * h; q < 4 * h + 4; ++q) {
      const Number lane = times(number_of(decode(BF16, x[q] & 0x7FFF)), scale);
      const unsigned sign = x[q] >= 0x8000 ? 8 : 0;
      g.codes[q] = static_cast<std::uint8_t>(quarters(lane, rules.lanes_rne) | sign);
    }
  }
  for (std::size_t q = count; q < 64; ++q) g.codes[q] = 0;
  g.word = static_cast<u32>(g.ea) | static_cast<u32>(g.eb) << 8 | static_cast<u32>(g.ec) << 16;
  return g;
}

std::optional<Exact> hif4_scale(u32 word, int q) {
  std::optional<Exact> scale = value_of(E6M2, word & 0xFF);
  if (!scale) return std::nullopt;
  const long eb = (word >> (8 + q / 8)) & 1;
  const long ec = (word >> (16 + q / 4)) & 1;
  scale->magnitude = scaled(scale->magnitude, eb + ec);
  return scale;
}

std::optional<Exact> hif4_value(u32 word, int q, u64 code) {
  std::optional<Exact> scale = hif4_scale(word, q);
  if (!scale) return std::nullopt;
  return Exact::of(value_of(HiF4X2, code)->value() * scale->value());
}

// ---- MX and NVFP4 quantisation
// ----------------------------------------------------------------------------------------

namespace {

/// Source lanes, with what decides about the whole group.
struct Lanes {
  std::vector<Decoded> x;
  bool nan = false;
  bool infinite = false;
  Number amax;  // of the finite lanes
};

Lanes read_lanes(int source, const u64* words, std::size_t count) {
  Lanes l;
  for (std::size_t i = 0; i < count; ++i) {
    const Decoded v = decode(source, words[i]);
    l.x.push_back(v);
    l.nan = l.nan || is_nan(v.cls) || v.cls == Class::Invalid;
    l.infinite = l.infinite || is_infinite(v.cls);
    if (is_finite(v.cls) && v.significand != 0 && compare(l.amax, v.significand, v.exponent) < 0) l.amax = number_of(v);
  }
  return l;
}

/// The code of a lane: sign of the source, magnitude by one rounding, nothing above the greatest value.
template <class Magnitude>
std::uint8_t element_code(int element, bool negative, const Magnitude& x, int mode) {
  const TypeRow& t = row_of(element);
  const u64 sign = negative ? u64{1} << t.sign_bit : 0;
  const Destination& d = destination_of(element);
  const Decoded greatest = decode(element, d.max_code);
  if (x.compare(greatest.significand, greatest.exponent) > 0) return static_cast<std::uint8_t>(d.max_code | sign);
  AllModes all;
  encode_magnitude(negative, x, element, pto, all);
  return static_cast<std::uint8_t>(cut(all(mode, 1).bits, t.sign_bit) | sign);
}

std::uint8_t zero_code(int element, bool negative) {
  return static_cast<std::uint8_t>(negative ? 1U << row_of(element).sign_bit : 0U);
}

std::uint8_t greatest_code(int element, bool negative) {
  return static_cast<std::uint8_t>(destination_of(element).max_code | zero_code(element, negative));
}

}  // namespace

std::optional<MxRule> mx_rule(std::string_view name) {
  if (name == "floor") return MxRule::floor;
  if (name == "ceil") return MxRule::ceil;
  if (name == "rceil") return MxRule::rceil;
  if (name == "even") return MxRule::even;
  return std::nullopt;
}

BlockCodes mx_quantize(int element, MxRule rule, int source, const u64* words, std::size_t count, int mode) {
  const Lanes lanes = read_lanes(source, words, count);
  BlockCodes out;
  out.codes.assign(count, 0);
  if (lanes.nan) {
    out.scale = 0xFF;
    return out;
  }
  int power = -127;  // the exponent of the scale of a zero group, whose lanes are all zero
  if (lanes.infinite) {
    power = 127;
  } else if (lanes.amax.significand != 0) {
    const Dyadic amax(lanes.amax.significand, lanes.amax.exponent);
    const Decoded greatest = decode(element, destination_of(element).max_code);
    const int emax = Dyadic(greatest.significand, greatest.exponent).top();
    const int top = amax.top();
    switch (rule) {
      case MxRule::floor:
        power = top - emax;
        break;
      case MxRule::ceil:
        power = (amax.compare(1, top) == 0 ? top : top + 1) - emax;
        break;
      case MxRule::rceil:  // the least power with amax <= greatest * 2^power
        power = top - emax - 2;
        while (amax.compare(greatest.significand, greatest.exponent + power) > 0) ++power;
        break;
      case MxRule::even: {
        const int fraction = row_of(element).fraction_bits;
        const Split s = amax.split(top - fraction);
        const bool up = !s.exact && takes_upper(RNE, false, s.to_half, s.count % 2 != 0);
        power = top - emax + ((s.count + (up ? 1 : 0)) >> (fraction + 1) != 0 ? 1 : 0);
        break;
      }
    }
    power = std::clamp(power, -127, 127);
  }
  out.scale = static_cast<std::uint8_t>(power + 127);
  for (std::size_t i = 0; i < count; ++i) {
    const Decoded& v = lanes.x[i];
    if (is_infinite(v.cls)) {
      out.codes[i] = greatest_code(element, v.negative);
    } else if (v.significand == 0) {
      out.codes[i] = zero_code(element, v.negative);
    } else {
      out.codes[i] = element_code(element, v.negative, Dyadic(v.significand, v.exponent - power), mode);
    }
  }
  return out;
}

namespace {

mpq_class rational(const Number& n) {
  return scaled(mpq_class(to_mpz(n.significand)), n.exponent);
}

}  // namespace

BlockCodes nvfp4_quantize(int source, const u64* words, std::size_t count, std::optional<u64> tensor_scale) {
  const Lanes lanes = read_lanes(source, words, count);
  const mpq_class tensor = tensor_scale ? value_of(FP32, *tensor_scale).value().value() : mpq_class(1);
  BlockCodes out;
  out.codes.assign(count, 0);
  if (lanes.nan) {
    out.scale = 0x7F;
    return out;
  }
  if (lanes.infinite) {
    out.scale = 0x7E;
  } else if (lanes.amax.significand != 0 && tensor != 0) {
    const mpq_class wanted = rational(lanes.amax) / (6 * tensor);
    out.scale = element_code(E4M3, false, Rational(wanted), RNE);
  }
  const mpq_class scale = value_of(E4M3, out.scale)->value() * tensor;
  for (std::size_t i = 0; i < count; ++i) {
    const Decoded& v = lanes.x[i];
    if (is_infinite(v.cls)) {
      out.codes[i] = greatest_code(E2M1X2, v.negative);
    } else if (v.significand == 0 || scale == 0) {
      out.codes[i] = zero_code(E2M1X2, v.negative);
    } else {
      const mpq_class quotient = rational(number_of(v)) / scale;
      out.codes[i] = element_code(E2M1X2, v.negative, Rational(quotient), RNE);
    }
  }
  return out;
}

u64 nvfp4_tensor_scale(int source, const u64* words, std::size_t count) {
  const Lanes lanes = read_lanes(source, words, count);
  const mpq_class wanted = rational(lanes.amax) / 2688;
  return encode(Exact::of(wanted), FP32, RNE, 0, pto).bits;
}

// ---- Matrix product
// ---------------------------------------------------------------------------------------------------

namespace {

/// A real with a signed zero, an infinity or NaN.
struct Extended {
  bool nan = false;
  bool infinite = false;
  bool negative = false;
  mpq_class magnitude = 0;

  bool zero() const { return !nan && !infinite && magnitude == 0; }
};

constexpr u32 kNan32 = 0x7FC00000;

Extended extended(int type, u64 bits) {
  const Decoded d = decode(type, bits);
  Extended x;
  x.nan = is_nan(d.cls) || d.cls == Class::Invalid;
  x.infinite = is_infinite(d.cls);
  x.negative = d.negative;
  if (is_finite(d.cls)) x.magnitude = scaled(mpq_class(to_mpz(d.significand)), d.exponent);
  return x;
}

Extended multiply(const Extended& a, const Extended& b) {
  Extended p;
  p.nan = a.nan || b.nan || (a.infinite && b.zero()) || (a.zero() && b.infinite);
  p.infinite = !p.nan && (a.infinite || b.infinite);
  p.negative = a.negative != b.negative;
  if (!p.nan && !p.infinite) p.magnitude = a.magnitude * b.magnitude;
  return p;
}

/// The exact sum (numerics 9.5): an exact zero is +0, unless every addend is -0.
Extended sum(const std::vector<Extended>& addends) {
  bool nan = false;
  bool plus = false;
  bool minus = false;
  bool all_negative_zero = true;
  mpq_class total = 0;
  for (const Extended& x : addends) {
    nan = nan || x.nan;
    plus = plus || (x.infinite && !x.negative);
    minus = minus || (x.infinite && x.negative);
    all_negative_zero = all_negative_zero && x.zero() && x.negative;
    if (x.negative) {
      total -= x.magnitude;
    } else {
      total += x.magnitude;
    }
  }
  Extended s;
  s.nan = nan || (plus && minus);
  s.infinite = !s.nan && (plus || minus);
  if (s.infinite) {
    s.negative = minus;
  } else if (!s.nan) {
    s.negative = total == 0 ? all_negative_zero : total < 0;
    s.magnitude = abs(total);
  }
  return s;
}

u64 word_of(const Extended& x) {
  const u64 sign = x.negative ? 0x80000000 : 0;
  if (x.nan) return kNan32;
  if (x.infinite) return 0x7F800000 | sign;
  if (x.zero()) return sign;
  Exact e;
  e.negative = x.negative;
  e.magnitude = x.magnitude;
  return encode(e, FP32, RNE, 0, pto).bits;
}

Extended rne32(const Extended& x) {
  return extended(FP32, word_of(x));
}

int scale_group(int type) {
  return type == HiF4X2 ? 64 : 32;
}

Extended scaled_element(const Side& side, std::size_t k) {
  Extended element = extended(side.type, side.lanes[k]);
  if (side.scales.empty()) return element;
  const auto group = static_cast<std::size_t>(scale_group(side.type));
  const u64 word = side.scales[k / group];
  Extended scale;
  const std::optional<Exact> value =
      side.type == HiF4X2 ? hif4_scale(static_cast<u32>(word), static_cast<int>(k % group)) : value_of(E8M0, word);
  scale.nan = !value;
  if (value) scale.magnitude = value->magnitude;
  return multiply(element, scale);
}

/// Numerics 9.6: the word as the raw profile loads it.
u64 raw_word(int type, u64 bits) {
  const int width = carrier_bits(type);
  if (is_signed_integer(type) && width > 4) return static_cast<u64>(sign_extend(bits, width));
  return cut(bits, width);
}

u32 accumulate_raw(const Side& a, const Side& b, std::optional<u32> c, std::optional<u32> bias) {
  u64 acc = c.value_or(0);
  const auto operand = [](const Side& side, std::size_t k) {
    const u64 word = raw_word(side.type, side.lanes[k]);
    if (side.scales.empty()) return word;
    return word * side.scales[k / static_cast<std::size_t>(scale_group(side.type))];
  };
  for (std::size_t k = 0; k < a.lanes.size(); ++k) acc += operand(a, k) * operand(b, k);
  return static_cast<u32>(acc + bias.value_or(0));
}

u32 accumulate_integer(const Side& a, const Side& b, std::optional<u32> c, std::optional<u32> bias) {
  mpz_class acc = to_mpz(c.value_or(0));
  const auto operand = [](const Side& side, std::size_t k) {
    return value_of(side.type, side.lanes[k])->value().get_num();
  };
  for (std::size_t k = 0; k < a.lanes.size(); ++k) acc += mpz_class(operand(a, k)) * mpz_class(operand(b, k));
  acc += to_mpz(bias.value_or(0));
  return static_cast<u32>(low_word(acc));
}

}  // namespace

std::optional<Accumulation> accumulation(std::string_view name) {
  if (name == "fma") return Accumulation::fma;
  if (name == "two-step") return Accumulation::two_step;
  if (name == "group") return Accumulation::group;
  if (name == "exact") return Accumulation::exact;
  if (name == "raw-carrier") return Accumulation::raw_carrier;
  return std::nullopt;
}

int accumulator_type(int a, int b) {
  const auto kind = [](int type) { return is_signed_integer(type) ? S32 : is_integer(type) ? U32 : FP32; };
  return kind(a) == kind(b) ? static_cast<int>(kind(a)) : -1;
}

int accumulation_group(const Side& a, const Side& b) {
  const auto group = [](const Side& side) { return side.scales.empty() ? 64 : scale_group(side.type); };
  if (!a.scales.empty() || !b.scales.empty()) return std::min(group(a), group(b));
  const auto plain = [](const Side& side) { return side.type == FP16 || side.type == BF16; };
  return plain(a) && plain(b) ? 32 : 16;
}

u32 accumulate(Accumulation profile, const Side& a, const Side& b, std::optional<u32> c, std::optional<u32> bias,
               int group_length) {
  if (a.lanes.size() != b.lanes.size()) throw std::invalid_argument("oracle: lanes of different number");
  if (profile == Accumulation::raw_carrier) return accumulate_raw(a, b, c, bias);
  if (accumulator_type(a.type, b.type) != FP32) return accumulate_integer(a, b, c, bias);
  std::vector<Extended> products;
  for (std::size_t k = 0; k < a.lanes.size(); ++k)
    products.push_back(multiply(scaled_element(a, k), scaled_element(b, k)));
  Extended acc = extended(FP32, c.value_or(0));
  switch (profile) {
    case Accumulation::exact:
      products.push_back(acc);
      acc = rne32(sum(products));
      break;
    case Accumulation::group: {
      const auto length = static_cast<std::size_t>(group_length > 0 ? group_length : accumulation_group(a, b));
      for (std::size_t first = 0; first < products.size(); first += length) {
        const std::size_t last = std::min(first + length, products.size());
        const std::vector<Extended> part(products.begin() + static_cast<std::ptrdiff_t>(first),
                                         products.begin() + static_cast<std::ptrdiff_t>(last));
        acc = rne32(sum({acc, sum(part)}));
      }
      break;
    }
    default:
      for (const Extended& p : products) acc = rne32(sum({acc, profile == Accumulation::two_step ? rne32(p) : p}));
      break;
  }
  if (bias) acc = rne32(sum({acc, extended(FP32, *bias)}));
  return static_cast<u32>(word_of(acc));
}

}  // namespace bitcube_oracle
