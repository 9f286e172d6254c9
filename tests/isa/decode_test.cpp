// Decoding and encoding against the forms as the contract prints them, over all forms and over random words.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "bitcube/isa/instruction.hpp"
#include "isa/contract.hpp"
#include "support/row.hpp"

namespace bitcube::isa {
namespace {

using test::contract_forms;
using test::ContractForm;

// Usable in constant expressions.
static_assert(decode(0x38531181));
static_assert(decode(0x38531181)->operation() == Operation::tmatmul_mx_bias);
static_assert(decode(0x38531181)->data_type() == DataType::e4m3);
static_assert(!decode(0x78531181));
static_assert((*decode(0xFFF02FC3))[Field::imm] == 0x1FFFF);

/// decode() says what the contract says, and encode() gives the word back.
void check_word(std::uint64_t bits) {
  const test::Verdict verdict = test::judge(bits);
  const Decoded decoded = decode(bits);
  ASSERT_FALSE(verdict.ambiguous) << fmt::format("{:#x}", bits);
  ASSERT_EQ(static_cast<bool>(decoded), verdict.accepted) << fmt::format("{:#x}", bits);
  if (!decoded) {
    ASSERT_EQ(decoded.rejection.form, verdict.form) << fmt::format("{:#x}", bits);
    return;
  }
  ASSERT_EQ(decoded->form(), verdict.form) << fmt::format("{:#x}", bits);
  const std::uint64_t own = bits & (~std::uint64_t{0} >> (64 - 8 * decoded->length()));
  const auto word = encode(*decoded);
  ASSERT_TRUE(word) << word.error().message;
  ASSERT_EQ(word->bits, own) << fmt::format("{:#x}", bits);
  ASSERT_EQ(word->length, decoded->length());
}

TEST(IsaDecode, TableIsTheContract) {
  ASSERT_EQ(contract_forms().size(), forms.size());
  for (const ContractForm& row : contract_forms()) {
    const FormInfo& form = info_of(row.form);
    SCOPED_TRACE(form.mnemonic);
    EXPECT_EQ(form.mask, row.mask);
    EXPECT_EQ(form.match, row.match);
    EXPECT_EQ(8 * form.length, row.length);
    EXPECT_EQ(form.catalog_index, row.catalog_index);
  }
}

TEST(IsaDecode, Lengths) {
  constexpr int expected[16] = {2, 4, 2, 4, 2, 4, 2, 4, 2, 4, 2, 4, 2, 4, 6, 8};
  for (unsigned nibble = 0; nibble < 16; ++nibble) {
    // The contract assigns no length to D; 32 bits as for its odd neighbours.
    EXPECT_EQ(instruction_length(nibble), expected[nibble]) << nibble;
    EXPECT_EQ(instruction_length(0xFFF0 | nibble), expected[nibble]) << nibble;
  }
}

TEST(IsaDecode, EveryHalfword) {
  for (std::uint64_t bits = 0; bits < 0x10000; ++bits) {
    check_word(bits);
    check_word(bits | 0xABCD0000);
    if (HasFatalFailure()) return;
  }
}

// Every form with all its fields at 0 or 1s, every single bit of these words inverted, then every pair.
TEST(IsaDecode, BitFlipsOfEveryForm) {
  for (const ContractForm& row : contract_forms()) {
    for (const std::uint64_t fill : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{0x5555555555555555}}) {
      const std::uint64_t base = row.match | (fill & ~row.mask);
      check_word(base);
      for (int i = 0; i < row.length; ++i) {
        for (int j = i; j < row.length; ++j) {
          check_word(base ^ std::uint64_t{1} << i ^ (i == j ? 0 : std::uint64_t{1} << j));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Every value of every field of up to 12 bits, the other fields random but legal.
TEST(IsaDecode, EveryValueOfEveryField) {
  std::mt19937_64 random(20240601);
  for (const FormInfo& form : forms) {
    for (std::size_t i = 0; i < form.variable_count; ++i) {
      const int width = std::min(form.fields[i].width(), 12);
      for (std::int32_t v = 0; v < 1 << width; ++v) {
        std::uint64_t word = form.match | form.fields[i].place(v);
        for (std::size_t j = 0; j < form.variable_count; ++j) {
          if (j == i) continue;
          const FieldSpec& spec = form.fields[j];
          std::int32_t other = 0;
          do {
            other = static_cast<std::int32_t>(random() & ((std::uint64_t{1} << spec.width()) - 1));
          } while (!spec.accepts(other) && !spec.is_signed);
          word |= spec.place(other);
        }
        check_word(word);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(IsaDecode, RandomWords) {
  std::mt19937_64 random(1);
  int accepted = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    std::uint64_t bits = random();
    // Three in four near a form; purely random words are mostly rejected.
    if (i % 4 != 0) {
      const ContractForm& row = contract_forms()[bits % contract_forms().size()];
      bits = row.match | (random() & ~row.mask);
    }
    check_word(bits);
    if (HasFatalFailure()) return;
    accepted += decode(bits) ? 1 : 0;
  }
  EXPECT_GT(accepted, 100'000);
}

TEST(IsaDecode, FieldsHoldWhatTheContractSays) {
  // 17-bit immediate in two parts; signed distances; fixed fields can be read too.
  const Instruction dim = *decode(0x00100043 | 0x15u << 7);
  EXPECT_EQ(dim[Field::imm], 0x15001);
  EXPECT_EQ(dim[Field::lb], 0);
  EXPECT_EQ((*decode(0xFC3C & 0x3FFF))[Field::lb], 0);
  EXPECT_EQ((*decode(0x80000011))[Field::offset], -(1 << 24));
  EXPECT_EQ((*decode(0x7FFFFF91))[Field::offset], (1 << 24) - 1);
  EXPECT_EQ((*decode(0xFFF2))[Field::offset], -1);
  EXPECT_EQ((*decode(0x8004))[Field::offset], -2048);
  const Instruction iot = *decode(0x0C29CE93);
  EXPECT_EQ(iot.form(), Form::b_iot_src0_src1_dst);
  EXPECT_EQ(iot[Field::src_tile0], 2);
  EXPECT_EQ(iot[Field::src_tile1], 3);
  EXPECT_EQ(iot[Field::size_code], 3);
  EXPECT_EQ(iot[Field::dst_tile], static_cast<int>(Hand::u));
  EXPECT_TRUE(iot.flag(Field::last));
  EXPECT_EQ(iot.pe_mask(), 0b1111u);
  EXPECT_FALSE(iot.has(Field::imm));
  EXPECT_EQ(iot[Field::imm], 0);
  const Instruction start = *decode(0x59531181);
  EXPECT_EQ(start[Field::function], 21);
  EXPECT_EQ(start[Field::unit], static_cast<int>(Unit::cube));
}

TEST(IsaDecode, OperationsByTheirFunction) {
  int count = 0;
  for (const FormInfo& form : forms) {
    if (!is_cube(form.operation)) continue;
    ++count;
    const unsigned function = static_cast<unsigned>(form.match >> 20) & 31;
    EXPECT_EQ(is_gemv(form.operation), (function & 16) != 0) << form.mnemonic;
    EXPECT_EQ(is_mx(form.operation), (function & 4) != 0) << form.mnemonic;
    EXPECT_EQ(has_bias(form.operation), form.mnemonic.ends_with(".BIAS")) << form.mnemonic;
    EXPECT_EQ(accumulates(form.operation), form.mnemonic.ends_with(".ACC")) << form.mnemonic;
  }
  EXPECT_EQ(count, 12);
  EXPECT_FALSE(is_gemv(Operation::tload) || is_mx(Operation::tcvt) || has_bias(Operation::none));
}

TEST(IsaDecode, MasksAndSizes) {
  constexpr unsigned masks[8] = {0b0000, 0b1000, 0b0100, 0b0010, 0b0001, 0b1100, 0b1110, 0b1111};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(pe_mask(i), masks[i]);
  EXPECT_EQ(size_bytes(0), 0u);
  EXPECT_EQ(size_bytes(1), 128u);
  EXPECT_EQ(size_bytes(10), 65536u);
  EXPECT_EQ(size_bytes(12), 262144u);
}

// decode() rejects the reserved codes of B.FPATR. Which accepted fields go together is decided when the command
// executes; those rules stand here only to explain the other rows.
TEST(IsaDecode, FpatrCodesOfTheExecutableSpecification) {
  bitcube::test::for_each_row("fpatr_fields_legal.csv", [](const bitcube::test::Row& row) {
    const std::uint64_t flags = row.word("flags_rowmax_groupmax_rowinit_maxabs_bits0to3");
    const bool row_max = (flags & 1) != 0;
    const bool group_max = (flags & 2) != 0;
    const bool row_init = (flags & 4) != 0;
    const bool max_abs = (flags & 8) != 0;
    const std::uint64_t group = row.word("group_n_code");
    const bool consistent = (row_max || !row_init) && group_max == (group != 0) && (row_max || group_max || !max_abs);
    const Decoded decoded = decode(0x00002023 | row.word("pre_quant_mode") << 26 | row.word("relu_mode") << 23 |
                                   group << 19 | std::uint64_t{row_max} << 18 | std::uint64_t{group_max} << 17 |
                                   std::uint64_t{row_init} << 16 | std::uint64_t{max_abs} << 15);
    EXPECT_EQ(decoded && consistent, row.truth("legal"));
  });
  bitcube::test::for_each_row("fpatr_modes.csv", [](const bitcube::test::Row& row) {
    EXPECT_EQ(static_cast<bool>(decode(0x00002023 | row.word("pre_quant_mode") << 26)), row.truth("legal"));
  });
}

// architecture 2.10: bits [8:7] of a binding without destination.
TEST(IsaDecode, LenientReservedBits) {
  constexpr DecodeOptions lenient{.strict_reserved_bits = false};
  for (const std::uint64_t word : {0x04004213u, 0x01085213u}) {
    for (std::uint64_t bits = 1; bits < 4; ++bits) {
      const std::uint64_t odd = word | bits << 7;
      EXPECT_FALSE(decode(odd));
      const Decoded decoded = decode(odd, lenient);
      ASSERT_TRUE(decoded);
      EXPECT_EQ(decoded->form(), decode(word)->form());
      EXPECT_FALSE(encode(*decoded));
      EXPECT_EQ(encode(*decoded, lenient)->bits, odd);
    }
  }
  // Other reserved bits are fixed at any setting.
  EXPECT_FALSE(decode(0x00002423, lenient));
  EXPECT_FALSE(decode(0x04401E13, lenient));
}

TEST(IsaDecode, EncodeRefusesWhatDecodeWouldNotGive) {
  EXPECT_TRUE(encode(Instruction(Form::b_ior)));
  const auto message = [](const Instruction& i) { return encode(i) ? std::string() : encode(i).error().message; };
  EXPECT_EQ(message(Instruction(Form::b_fpatr).set(Field::group_n_code, 10)),
            "B.FPATR: GroupNCode [22:19] = 10; legal: 0..9 (architecture 2.7)");
  EXPECT_EQ(message(Instruction(Form::b_dim_lb1).set(Field::imm, 1 << 17)),
            "B.DIM: imm [11:7][31:20] = 131072; legal: 0..131071 (architecture 2.8)");
  EXPECT_EQ(message(Instruction(Form::bstart_direct).set(Field::offset, -(1 << 24) - 1)),
            "BSTART DIRECT: Offset [31:7] = -16777217; legal: -16777216..16777215 (architecture 2.3)");
  EXPECT_EQ(message(Instruction(Form::b_iot_dst)), "B.IOT: SizeCode [18:15] = 0; legal: 1..10 (architecture 2.10)");
  EXPECT_EQ(message(Instruction(Form::b_datr).set(Field::layout, -1)).substr(0, 27), "B.DATR: Layout [11:7] = -1;");
  // A more specific form owns these words.
  const Instruction tepl =
      Instruction(Form::bstart_tepl).set(Field::mode, 3).set(Field::function, 10).set(Field::data_type, 1);
  EXPECT_EQ(message(tepl), "BSTART.TEPL: these fields make 0x0EA19181, which is BSTART.SFU TQUANT");
  // Fixed fields and fields of other forms cannot be set.
  EXPECT_EQ(Instruction(Form::b_dim_lb1).set(Field::lb, 2).set(Field::sat, 1), Instruction(Form::b_dim_lb1));
}

TEST(IsaDecode, FrontOfMemory) {
  const std::vector<std::uint8_t> bytes{0x81, 0x11, 0x53, 0x38, 0x3C, 0x04};
  EXPECT_EQ(decode(bytes)->form(), Form::bstart_tmatmul_mx_bias);
  EXPECT_EQ(decode(std::span(bytes).subspan(4))->form(), Form::c_b_dimi);
  for (std::size_t n = 0; n < 4; ++n) {
    const Decoded torso = decode(std::span(bytes).first(n));
    EXPECT_FALSE(torso);
    EXPECT_EQ(torso.rejection.reason, Rejection::Reason::truncated);
  }
  EXPECT_EQ(explain(decode(std::span(bytes).first(3)).rejection),
            "0x531181: 3 of the 4 bytes of an instruction (architecture 2.1)");
  EXPECT_EQ(explain(decode(std::span(bytes).first(0)).rejection), "no byte of an instruction is left");
}

// Every rejection can be explained, and names the word.
TEST(IsaDecode, EveryRejectionHasAReason) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::uint64_t bits = random();
    if (i % 2 == 0) {
      const ContractForm& row = contract_forms()[bits % contract_forms().size()];
      bits = (row.match | (random() & ~row.mask)) ^ std::uint64_t{1} << (random() % 32);
    }
    const Decoded decoded = decode(bits);
    const std::string reason = explain(decoded.rejection);
    if (decoded) {
      ASSERT_EQ(reason, "");
    } else {
      ASSERT_TRUE(reason.starts_with("0x") && reason.ends_with(")")) << reason;
    }
  }
}

}  // namespace
}  // namespace bitcube::isa
