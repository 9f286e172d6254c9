// The forms of architecture 2 once more, as the contract prints them: mask, match, and the constraints on fields. It
// shares nothing with the table of the library, and decides every word by the letter of architecture 2.1.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "bitcube/isa/forms.hpp"

namespace bitcube::isa::test {

/// Bits [high:low].
constexpr unsigned bits(std::uint64_t word, int high, int low) {
  return static_cast<unsigned>((word >> low) & ((std::uint64_t{1} << (high - low + 1)) - 1));
}

namespace contract {

constexpr bool in(unsigned v, unsigned first, unsigned last) {
  return v >= first && v <= last;
}
constexpr bool type(unsigned v) {
  return in(v, 0, 14) || in(v, 16, 20) || in(v, 24, 28);
}
constexpr bool start_type(std::uint64_t w) {
  return type(bits(w, 31, 27));
}
constexpr bool all(std::uint64_t /*word*/) {
  return true;
}
constexpr bool branch_type(std::uint64_t w) {
  const unsigned v = bits(w, 13, 11);
  return v == 1 || v == 5 || v == 7;
}
constexpr bool datr(std::uint64_t w) {
  constexpr std::array<unsigned, 19> layouts{0, 1, 3, 4, 6, 8, 9, 17, 18, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30};
  const unsigned t = bits(w, 24, 20);
  return bits(w, 31, 29) <= 5 && (type(t) || t == 31) &&
         std::find(layouts.begin(), layouts.end(), bits(w, 11, 7)) != layouts.end();
}
constexpr bool fpatr(std::uint64_t w) {
  const unsigned q = bits(w, 31, 26);
  const bool mode = in(q, 0, 5) || in(q, 12, 13) || in(q, 16, 20) || in(q, 23, 28) || in(q, 32, 39);
  return mode && bits(w, 25, 23) <= 3 && bits(w, 22, 19) <= 9;
}
constexpr bool ior(std::uint64_t w) {
  return bits(w, 11, 7) < 24 && bits(w, 19, 15) < 24 && bits(w, 24, 20) < 24 && bits(w, 31, 27) < 24;
}
constexpr bool dim(std::uint64_t w) {
  return bits(w, 19, 15) < 24;
}
constexpr bool source_only(std::uint64_t w) {
  return bits(w, 8, 7) == 0;
}
constexpr bool local_destination(std::uint64_t w) {
  return in(bits(w, 18, 15), 1, 10);
}

}  // namespace contract

struct ContractForm {
  Form form;
  int length;  // bits
  std::uint64_t match;
  std::uint64_t mask;
  bool (*legal)(std::uint64_t word);
  int catalog_index;
};

inline const std::vector<ContractForm>& contract_forms() {
  using enum Form;
  using namespace contract;
  static const std::vector<ContractForm> table{
      {bstart_tmatmul, 32, 0x00031181, 0x07FFFFFF, start_type, 41},
      {bstart_tmatmul_bias, 32, 0x00131181, 0x07FFFFFF, start_type, 43},
      {bstart_tmatmul_acc, 32, 0x00231181, 0x07FFFFFF, start_type, 42},
      {bstart_tmatmul_mx, 32, 0x00431181, 0x07FFFFFF, start_type, 44},
      {bstart_tmatmul_mx_bias, 32, 0x00531181, 0x07FFFFFF, start_type, 46},
      {bstart_tmatmul_mx_acc, 32, 0x00631181, 0x07FFFFFF, start_type, 45},
      {bstart_tgemv, 32, 0x01031181, 0x07FFFFFF, start_type, 34},
      {bstart_tgemv_bias, 32, 0x01131181, 0x07FFFFFF, start_type, 36},
      {bstart_tgemv_acc, 32, 0x01231181, 0x07FFFFFF, start_type, 35},
      {bstart_tgemv_mx, 32, 0x01431181, 0x07FFFFFF, start_type, 37},
      {bstart_tgemv_mx_bias, 32, 0x01531181, 0x07FFFFFF, start_type, 39},
      {bstart_tgemv_mx_acc, 32, 0x01631181, 0x07FFFFFF, start_type, 38},
      {bstart_tload, 32, 0x00011181, 0x07FFFFFF, start_type, 40},
      {bstart_tstore, 32, 0x00111181, 0x07FFFFFF, start_type, 50},
      {bstart_tmov, 32, 0x00211181, 0x07FFFFFF, [](std::uint64_t w) { return start_type(w) || bits(w, 31, 27) == 31; },
       47},
      {bstart_tcvt, 32, 0x01B19181, 0x07FFFFFF, start_type, 33},
      {bstart_tquant, 32, 0x06A19181, 0x07FFFFFF, start_type, 33},
      {bstart_tdequant, 32, 0x06B19181, 0x07FFFFFF, start_type, 33},
      {bstart_tepl, 32, 0x00019181, 0x000FFFFF, start_type, 33},
      {bstart_direct, 32, 0x11, 0x7F, all, 13},
      {bstart_cond, 32, 0x21, 0x7F, all, 14},
      {c_bstart_direct, 16, 0x2, 0xF, all, 54},
      {c_bstart_cond, 16, 0x4, 0xF, all, 55},
      {c_bstart_std, 16, 0x0000, 0xC7FF, branch_type, 57},
      {c_bstart_fp, 16, 0x0080, 0xC7FF, branch_type, 56},
      {c_bstart_sys, 16, 0x0840, 0xFFFF, branch_type, 58},
      {b_catr, 32, 0x00000023, 0xFBF07FFF, all, 0},
      {b_datr, 32, 0x00001023, 0x000C707F, datr, 1},
      {b_fpatr, 32, 0x00002023, 0x00007C7F, fpatr, 73},
      {b_dim_lb0, 32, 0x00000043, 0x0000707F, contract::dim, 3},
      {b_dim_lb1, 32, 0x00001043, 0x0000707F, contract::dim, 4},
      {b_dim_lb2, 32, 0x00002043, 0x0000707F, contract::dim, 2},
      {c_b_dimi, 16, 0x003C, 0x003F, [](std::uint64_t w) { return bits(w, 15, 14) != 3; }, 53},
      {b_ios, 32, 0x00001013, 0xFC0871FF, [](std::uint64_t w) { return bits(w, 18, 15) <= 12; }, 52},
      {b_iot_dst, 32, 0x00006013, 0xFFF0707F, local_destination, 12},
      {b_iot_src0, 32, 0x00005013, 0xFC07F07F, source_only, 11},
      {b_iot_src0_dst, 32, 0x00005013, 0xFC00707F, local_destination, 8},
      {b_iot_src0_src1, 32, 0x00004013, 0x0007F07F, source_only, 9},
      {b_iot_src0_src1_dst, 32, 0x00004013, 0x0000707F, local_destination, 10},
      {b_ior, 32, 0x00000013, 0x0600707F, contract::ior, 7},
      {b_hint, 32, 0x00000033, 0x00087FFF, all, 5},
      {b_hint_trace, 32, 0x00001033, 0xFFFF7FFF, all, 6},
      {bstop, 32, 0x00000001, 0xFFFFFFFF, all, 51},
      {c_bstop, 16, 0x0000, 0xFFFF, all, 59},
      {l_bstop, 64, 0x000000010000000F, 0xFFFFFFFFFFFFFFFF, all, 72},
  };
  return table;
}

struct Verdict {
  Form form = Form::count;  // the most specific form that matches, or count
  bool accepted = false;
  bool ambiguous = false;  // another form that matches is as specific
};

/// architecture 2.1 by the letter. `word`: the bits of one instruction, those above its length are ignored.
inline Verdict judge(std::uint64_t word) {
  // The forms that can match each value of the low seven bits; without it 2^32 words take too long.
  static const auto by_low_bits = [] {
    std::array<std::vector<ContractForm>, 128> table;
    for (std::size_t low = 0; low < table.size(); ++low) {
      const unsigned nibble = low & 0xF;
      const int length = nibble == 0xF ? 64 : nibble == 0xE ? 48 : (nibble & 1) != 0 ? 32 : 16;
      for (const ContractForm& f : contract_forms()) {
        if (f.length == length && ((low ^ f.match) & f.mask & 0x7F) == 0) table[low].push_back(f);
      }
    }
    return table;
  }();
  Verdict verdict;
  int best = -1;
  for (const ContractForm& f : by_low_bits[word & 0x7F]) {
    if ((word & f.mask) != f.match) continue;
    const int specific = std::popcount(f.mask);
    verdict.ambiguous = specific == best || (specific < best && verdict.ambiguous);
    if (specific <= best) continue;
    best = specific;
    verdict.form = f.form;
    verdict.accepted = f.legal(word);
  }
  return verdict;
}

}  // namespace bitcube::isa::test
