// An independent oracle for the number formats and the arithmetic of the PTO CUBE unit.
//
// It is written from the contract alone (numerics, profiles) and shares no code, no table and no technique with the
// library, so that an error has to be made twice, in two different ways, to stay unseen.
//
// How it works. Every finite encoding is an exact number sign * significand * 2^exponent; values that are not dyadic
// (reciprocals, quotients by six) and sums are GMP rationals. Nothing is rounded by guard and sticky bits. To encode a
// real, the oracle finds the two neighbours of its magnitude among the values of the destination:
//   - formats of up to 16 bits: in a sorted table of all their finite values, made by decoding every code (HiF8 from
//   the
//     printed table of numerics 1.5), with the exact midpoints beside it; by comparison only;
//   - FP32, TF32, HF32, FP64 and integers: floor(x / quantum) and its successor, and the remainder against one half.
// The rounding mode then picks one of the two by the words of numerics 2.1, and the flags follow the words of numerics
// 6 and 7: `after` tininess, for example, compares x with the numbers of p bits just below the smallest normal number.
// One call gives the results of all rounding modes with Sat 0 and 1, because the neighbours are the same for them.
//
// Words are PTO model words of 64 bits; bits above the carrier (packed types: above the lane) are ignored.

#pragma once

#include <gmpxx.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bitcube_oracle {

// ---- Types, profiles, modes, flags
// ------------------------------------------------------------------------------------

/// Data types by their PTO code; the codes 22, 23 and 29..31 are none.
enum Type : int {
  FP64 = 0,
  FP32 = 1,
  TF32 = 2,
  HF32 = 3,
  FP16 = 4,
  BF16 = 5,
  HiF8 = 6,
  E4M3 = 7,
  E5M2 = 8,
  E3M2 = 9,
  E2M3 = 10,
  E2M1X2 = 11,
  E1M2X2 = 12,
  E8M0 = 13,
  HiF4X2 = 14,
  E6M2 = 15,
  S64 = 16,
  S32 = 17,
  S16 = 18,
  S8 = 19,
  S4X2 = 20,
  RCPE6M2 = 21,
  U64 = 24,
  U32 = 25,
  U16 = 26,
  U8 = 27,
  U4X2 = 28,
};
inline constexpr int kTypeCodes = 29;  // codes 0..28

const char* type_name(int type);       // nullptr for a reserved code
int type_code(std::string_view name);  // -1 for no type
bool is_type(int type);
bool is_integer(int type);
bool is_signed_integer(int type);
int carrier_bits(int type);  // what an element takes: 4, 8, 16, 32, 64

/// Conversion profiles (profiles 4).
enum Profile : int { pto = 0, asl = 1, ocp = 2 };
int profile_code(std::string_view name);  // -1 for none

/// B.DATR.RMode; kDefault asks for the operation's default.
enum Mode : int { kDefault = 0, RNE = 1, RTZ = 2, RTM = 3, RTP = 4, RNA = 5, RTO = 6, RHB = 7 };
int mode_code(std::string_view name);  // -1 for none

enum Flag : std::uint32_t { NV = 0x01, DZ = 0x02, OF = 0x04, UF = 0x08, NX = 0x10 };

struct Result {
  std::uint64_t bits = 0;
  std::uint32_t flags = 0;
  friend bool operator==(const Result&, const Result&) = default;
};

/// The flags of a result that does not exist because the mode is illegal for the pair (E6M2, RCPE6M2).
inline constexpr std::uint32_t kIllegal = 0xFFFFFFFF;

/// Results by rounding mode (0 = the operation's default, 1..7) and Sat.
struct AllModes {
  std::array<std::array<Result, 2>, 8> r;
  const Result& operator()(int mode, int sat) const {
    return r[static_cast<std::size_t>(mode)][static_cast<std::size_t>(sat)];
  }
};

// ---- Encodings (numerics 1)
// -------------------------------------------------------------------------------------------

enum class Class {
  Invalid,
  PositiveZero,
  NegativeZero,
  PositiveSubnormal,
  NegativeSubnormal,
  PositiveNormal,
  NegativeNormal,
  PositiveInfinity,
  NegativeInfinity,
  QuietNaN,
  SignalingNaN,
};
/// The name that the vectors use, e.g. `InvalidEncoding`.
const char* class_name(Class c);

Class classify(int type, std::uint64_t bits, Profile profile = pto);

/// Numerics 1.9. RCPE6M2 and integers have none.
struct Decomposition {
  bool available = false;
  bool negative = false;
  std::uint64_t significand = 0;
  int exponent = 0;
  friend bool operator==(const Decomposition&, const Decomposition&) = default;
};
Decomposition decompose(int type, std::uint64_t bits);

/// An exact real; a zero has no sign.
struct Exact {
  bool negative = false;
  mpq_class magnitude = 0;

  static Exact dyadic(const mpz_class& signed_significand, long exponent);
  /// numerator / denominator * 2^exponent; the denominator is positive.
  static Exact fraction(const mpz_class& numerator, const mpz_class& denominator, long exponent);
  static Exact of(const mpq_class& value);
  mpq_class value() const { return negative ? mpq_class(-magnitude) : magnitude; }
};

/// The value of a finite encoding of any type, integers and RCPE6M2 too; nothing for Inf, NaN and invalid encodings.
std::optional<Exact> value_of(int type, std::uint64_t bits);

/// NaN of the destination (numerics 1.1); 0 where it has none.
std::uint64_t canonical_nan(int type);

// ---- Rounding and encoding (numerics 2, 6)
// ----------------------------------------------------------------------------

/// Numerics 2.2.
mpz_class round_to_integer(const Exact& x, int mode);

/// An exact real into a float or integer type: numerics 6 (E3M2, E2M3, packed floats, E6M2: 7.1, 7.5, 7.6). Zero gives
/// +0. E6M2 knows RNE and RNA only. Mode 0 is RNE. Not for E8M0, HiF4X2, RCPE6M2.
AllModes encode_all(const Exact& x, int destination, Profile profile);
Result encode(const Exact& x, int destination, int mode, int sat, Profile profile);
/// The same for (-1)^negative * significand * 2^exponent, without rationals: fast.
void encode_all(bool negative, std::uint64_t significand, int exponent, int destination, Profile profile,
                AllModes& out);

// ---- TCVT (numerics 7)
// ------------------------------------------------------------------------------------------------

/// Is there a conversion of this pair under this RMode (0..7)?
bool tcvt_legal(int source, int destination, int mode);
/// One element under all modes. The pair must be legal.
void tcvt(int source, int destination, std::uint64_t bits, Profile profile, AllModes& out);
AllModes tcvt(int source, int destination, std::uint64_t bits, Profile profile);

// ---- FP19 and parameters (numerics 4)
// ---------------------------------------------------------------------------------

Class fp19_class(std::uint64_t raw);             // bits above 18 ignored
bool fp19_scale_legal(std::uint64_t raw);        // positive normal, nothing above bit 18
bool fp19_activation_legal(std::uint64_t raw);   // or +0
std::uint64_t fp32_to_fp19(std::uint64_t fp32);  // the narrowing helper

bool quant_parameter_legal(int pre_quant_mode, std::uint64_t word);
bool relu_parameter_legal(std::uint64_t word);

// ---- B.FPATR (numerics 5)
// ---------------------------------------------------------------------------------------------

enum class Parameter { none, scalar, vector };

/// A row of numerics 5.3, its columns in order.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct PreQuantMode {
  int code;
  const char* name;
  bool fp32, s32, u32;  // accumulators
  int output;           // Type; -1 for the accumulator's own
  Parameter parameter;
  int offset_bits;  // 0, 5, 9, 17
  bool shift;
  int fixed_rounding;   // 0 where B.DATR.RMode decides
  bool takes_rounding;  // may RMode be other than 0?
  bool takes_sat;       // may Sat be 1?
};
/// nullptr for a reserved code.
const PreQuantMode* pre_quant_mode(int code);

bool accumulator_legal(int pre_quant_mode, int accumulator);
bool rounding_sat_legal(int pre_quant_mode, int mode, int sat);
/// The mode that acts when `mode` is asked for, legal or not; 0 counts as RNE.
int effective_rounding(int pre_quant_mode, int mode);
/// Numerics 5.2: -1 for a reserved GroupNCode, 0 for none.
int group_n(int group_n_code);
/// Numerics 5.1 to 5.3 without operands: reserved codes, GroupMaxEn against GroupNCode, RowMaxInit, MaxAbsEn.
bool fpatr_fields_legal(int pre_quant_mode, int relu_mode, int group_n_code, bool row_max, bool group_max,
                        bool row_max_init, bool max_abs);

/// Numerics 5.5: one accumulator word (FP32, S32 or U32). `quant` and `alpha` are read only where the mode has them.
Result postprocess(int pre_quant_mode, int relu_mode, int accumulator, std::uint64_t word, std::uint64_t quant,
                   std::uint64_t alpha_fp19, int rounding, int sat, Profile profile);

/// Numerics 5.7.
Result absolute(int accumulator, std::uint64_t word);
Result reduction_step(int accumulator, bool max_abs, std::uint64_t a, std::uint64_t b);
Result row_max(int accumulator, bool max_abs, const std::vector<std::uint64_t>& row,
               std::optional<std::uint64_t> row_max_in);
std::vector<Result> group_maxima(int accumulator, bool max_abs, const std::vector<std::uint64_t>& row, int group_n);

// ---- C scale, affine quantisation (numerics 9.7, 10.1, 10.2)
// ----------------------------------------------------------

Result c_scale(std::uint64_t c_fp32, int s, Profile profile);

bool multiplier_legal(std::uint64_t fp32);
/// Is the 64-bit word the sign- or zero-extension of a value of the type (S8 or U8)?
bool zero_point_legal(int type, std::uint64_t word);
Result tquant(int destination, std::uint64_t x_fp32, std::uint64_t multiplier, std::uint64_t zero_point, int mode,
              int sat);
Result tdequant(int source, std::uint64_t q, std::uint64_t multiplier, std::uint64_t zero_point, int mode,
                Profile profile);

// ---- Block quantisation (numerics 10.3, profiles 1 and 2)
// -------------------------------------------------------------

/// The switches behind a HiF4 profile.
struct Hif4Rules {
  bool one_seventh;    // sf = BF16(Ma * 3E12), else Ma
  bool ea_half_up;     // E6M2 rounding of sf: half up, else RNE
  bool bf16_products;  // round Mb*R, Mc*R and x*scale to BF16, else keep them exact
  bool lanes_rne;      // lane rounding: RNE, else half away
};
std::optional<Hif4Rules> hif4_rules(std::string_view profile);  // pto, pto-a6, paper, bench, literal

struct Hif4Group {
  std::uint32_t word = 0;  // the U32 scale word of numerics 8.1
  std::array<std::uint8_t, 64> codes{};
  std::uint8_t ea = 0;
  std::uint8_t eb = 0;
  std::uint16_t ec = 0;
  std::uint16_t ea_rec = 0;
  std::uint16_t sf = 0;  // after the one-seventh, before the clamp
  std::array<std::uint16_t, 16> scale{};
  /// Maxima of 64, 8 and 4 lanes; of no meaning in a group with a NaN.
  std::uint16_t ma = 0;
  std::array<std::uint16_t, 8> mb{};
  std::array<std::uint16_t, 16> mc{};
};
/// One group: up to 64 words of `source` (BF16, or a type that is first rounded to BF16 as TCVT does with RNE, Sat 0).
Hif4Group hif4_quantize(const Hif4Rules& rules, int source, const std::uint64_t* words, std::size_t count);
/// Value of lane q of a group; nothing for NaN.
std::optional<Exact> hif4_value(std::uint32_t word, int q, std::uint64_t code);
/// Scale of lane q (numerics 8.1); nothing for NaN.
std::optional<Exact> hif4_scale(std::uint32_t word, int q);

enum class MxRule { floor, ceil, rceil, even };
std::optional<MxRule> mx_rule(std::string_view name);

struct BlockCodes {
  std::uint8_t scale = 0;           // E8M0 code (MX) or E4M3 code (NVFP4)
  std::vector<std::uint8_t> codes;  // one per source word
};
/// One group: up to 32 words of a float type into E4M3, E5M2, E3M2, E2M3, E2M1X2 or E1M2X2.
BlockCodes mx_quantize(int element, MxRule rule, int source, const std::uint64_t* words, std::size_t count,
                       int mode = RNE);
/// One group: up to 16 words. The optional tensor scale (an FP32 word) divides everything first.
BlockCodes nvfp4_quantize(int source, const std::uint64_t* words, std::size_t count,
                          std::optional<std::uint64_t> tensor_scale = std::nullopt);
/// The FP32 tensor scale, RNE(tensor amax / 2688).
std::uint64_t nvfp4_tensor_scale(int source, const std::uint64_t* words, std::size_t count);

// ---- Matrix product (numerics 8, 9, profiles 3)
// -----------------------------------------------------------------------

enum class Accumulation { fma, two_step, group, exact, raw_carrier };
std::optional<Accumulation> accumulation(std::string_view name);

struct Side {
  int type = FP16;
  std::vector<std::uint64_t> lanes;   // K words
  std::vector<std::uint64_t> scales;  // one per scale group; empty: no scale
};
/// The accumulator type of a pair, -1 if the classes mix.
int accumulator_type(int a, int b);
/// Profiles 3: the group length of the profile `group`. A side other than FP16 and BF16 without scales makes the
/// operation an ordinary one.
int accumulation_group(const Side& a, const Side& b);
/// One output element; the low 32 bits of the accumulator. group_length 0: by profiles 3.
std::uint32_t accumulate(Accumulation profile, const Side& a, const Side& b, std::optional<std::uint32_t> c,
                         std::optional<std::uint32_t> bias, int group_length = 0);

}  // namespace bitcube_oracle
