// Assembler, disassembler, and the list of forms.
#include "bitcube/isa/text.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <rapidcheck/gtest.h>  // needs gtest before it

namespace bitcube::isa {
namespace {

/// An instruction of any form with legal fields; a BSTART.TEPL may belong to a more specific form.
Instruction any_instruction() {
  const auto form = static_cast<Form>(*rc::gen::inRange(0, static_cast<int>(Form::count)));
  Instruction instruction(form);
  for (std::size_t i = 0; i < instruction.info().variable_count; ++i) {
    const FieldSpec& spec = instruction.info().fields[i];
    std::vector<std::int32_t> legal;
    if (spec.width() <= 6) {
      for (std::int64_t v = spec.smallest(); v <= spec.largest(); ++v) {
        if (spec.accepts(v)) legal.push_back(static_cast<std::int32_t>(v));
      }
      instruction.set(spec.field, *rc::gen::elementOf(legal));
    } else {
      instruction.set(spec.field, static_cast<std::int32_t>(*rc::gen::inRange(spec.smallest(), spec.largest() + 1)));
    }
  }
  return instruction;
}

RC_GTEST_PROP(IsaText, WordsAndTextsRoundTrip, ()) {
  const Instruction instruction = any_instruction();
  const auto word = encode(instruction);
  RC_PRE(static_cast<bool>(word));
  RC_ASSERT(*decode(word->bits) == instruction);
  const std::string text = to_text(instruction);
  const auto words = assemble_line(text);
  RC_ASSERT(static_cast<bool>(words));
  RC_ASSERT(*words == std::vector{*word});
  RC_ASSERT(disassemble(words->front()) == text);
}

RC_GTEST_PROP(IsaText, CaseAndBlanksDoNotMatter, ()) {
  const Instruction instruction = any_instruction();
  const auto word = encode(instruction);
  RC_PRE(static_cast<bool>(word));
  std::string text = "\t ";
  for (const char c : to_text(instruction)) {
    const char lower = ascii_lower(c);
    text += c == lower && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : lower;
    if (c == ',' || c == '{' || c == '=' || c == '>') text += "  ";
  }
  const auto words = assemble_line(text + " // and a comment");
  RC_ASSERT(static_cast<bool>(words));
  RC_ASSERT(*words == std::vector{*word});
}

RC_GTEST_PROP(IsaText, BytesDisassembleAndAssembleBack, (const std::vector<std::uint8_t>& bytes)) {
  std::string text;
  std::size_t offset = 0;
  for (const DisassembledLine& line : disassemble(bytes)) {
    RC_ASSERT(line.offset == offset);
    offset += line.word.length;
    text += line.text + "\n";
  }
  const auto words = assemble(text);
  RC_ASSERT(static_cast<bool>(words));
  RC_ASSERT(to_bytes(*words) == bytes);
}

// Whatever the text, it assembles or the error has a position inside it.
RC_GTEST_PROP(IsaText, AnyTextIsAnswered, ()) {
  const Instruction instruction = any_instruction();
  std::string text = to_text(instruction);
  const int edits = *rc::gen::inRange(1, 4);
  for (int i = 0; i < edits && !text.empty(); ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
    const char c =
        *rc::gen::oneOf(rc::gen::elementOf(std::string("0179,-><={}#;. TUSaLB/")), rc::gen::arbitrary<char>());
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        text.erase(at, 1);
        break;
      case 1:
        text.insert(at, 1, c);
        break;
      default:
        text[at] = c;
    }
  }
  const auto words = assemble_line(text, 42);
  if (words) return;
  const std::string& message = words.error().message;
  RC_ASSERT(message.starts_with("42:"));
  const std::size_t colon = message.find(':', 3);
  RC_ASSERT(colon != std::string::npos);
  const auto column = static_cast<std::size_t>(std::stoul(message.substr(3, colon - 3)));
  RC_ASSERT(column >= 1);
  RC_ASSERT(column <= text.size() + 1);
}

// The same over many words: of each form, with random bits where it is not fixed.
TEST(IsaText, RandomWordsRoundTrip) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200'000; ++i) {
    const FormInfo& form = forms[static_cast<std::size_t>(i) % forms.size()];
    const Word word{form.match | (random() & ~form.mask & (~std::uint64_t{0} >> (64 - 8 * form.length))), form.length};
    const std::string text = disassemble(word);
    const auto words = assemble_line(text);
    ASSERT_TRUE(words) << words.error().message;
    ASSERT_EQ(*words, std::vector{word}) << text;
    ASSERT_EQ(static_cast<bool>(decode(word.bits)), text[0] != '.') << text;
  }
}

struct BadLine {
  std::string_view text;
  std::string_view message;
};
constexpr BadLine bad_lines[] = {
    {"BSTART.TMATMUL E4M9", "7:16: expected a data type such as E4M3, found 'E4M9'"},
    {"BSTART.TMATMUL", "7:15: expected a data type such as E4M3, found the end of the instruction"},
    {"BSTART.TMATMULX E4M3", "7:1: unknown instruction 'BSTART.TMATMULX'; did you mean BSTART.TMATMUL?"},
    {"  frobnicate", "7:3: unknown instruction 'frobnicate'"},
    {"BSTOP; @", "7:8: expected an instruction, found '@'"},
    {"BSTOP now", "7:7: expected the end of the instruction, found 'now'"},
    {"BSTART.SFU TCVT, FP32", "7:12: expected TQUANT or TDEQUANT, found 'TCVT'"},
    {"BSTART.TEPL 0, 27, FP32", "7:13: BSTART.TEPL: these fields make 0x09B19181, which is BSTART.VEC TCVT"},
    {"B.IOT T#17, mask=1000", "7:7: T#17: a hand has the Tiles #1 to #16"},
    {"B.IOT T#0, mask=1000", "7:7: T#0: a hand has the Tiles #1 to #16"},
    {"B.IOT T#1, mask=0011",
     "7:17: mask 0011 cannot be encoded; legal: 0000, 1000, 0100, 0010, 0001, 1100, 1110, 1111"},
    {"B.IOT T#1, mask=1", "7:17: mask 1: write one binary digit for each of the four PEs"},
    {"B.IOT T#1, mask=1111, ->U<11>", "7:27: 11 is not legal for SizeCode; legal: 1..10"},
    {"B.IOT T#1, mask=1111, ->U<0>", "7:27: 0 is not legal for SizeCode; legal: 1..10"},
    {"B.IOT T#1, mask=1111, ->Q<1>", "7:25: expected a hand (T, U, M, N), found 'Q'"},
    {"B.IOT T#1, mask=1111, ->U", "7:26: expected '<' and a SizeCode, found the end of the instruction"},
    {"B.IOT T#1 mask=1111", "7:11: expected ',' and mask= or ',' and SrcTile1, found 'mask'"},
    {"B.IOT T#1, T#2, T#3", "7:17: expected mask=, found 'T#3'"},
    {"B.IOT mask=1111", "7:16: expected ',' and <last> or ',' and ->, found the end of the instruction"},
    {"B.IOS S64, mask=1111", "7:7: S64: the Shared Tiles are S0 to S63"},
    {"B.IOS mask=1000, ->S6<0>", "7:23: SizeCode 0 is no destination; legal: 1 and above"},
    {"B.IOS mask=1000, ->S6<13>", "7:23: 13 is not legal for SizeCode; legal: 0..12"},
    {"B.IOR a9",
     "7:7: expected a register (zero, sp, a0..a7, ra, s0..s8, x0..x3), '->' or the end of the instruction, found 'a9'"},
    {"B.DIM zero, 131072, ->LB0", "7:13: 131072 is not legal for imm; legal: 0..131071"},
    {"B.DIM zero, 99999999999999999999, ->LB0", "7:13: 99999999999999999999 does not fit into 64 bits"},
    {"B.DIM zero, 0x1G, ->LB0", "7:13: 0x1G is not a number"},
    {"B.DIM zero, -1, ->LB0", "7:13: -1 is not legal for imm; legal: 0..131071"},
    {"B.DIM zero, 16, ->LB3", "7:19: expected LB0, LB1 or LB2, found 'LB3'"},
    {"C.B.DIMI 256, ->LB0", "7:10: 256 is not legal for imm; legal: 0..255"},
    {"B.FPATR NoQuant, 0, 10, 0, 0, 0, 0, 0, 0, 0", "7:21: 10 is not legal for GroupNCode; legal: 0..9"},
    {"B.FPATR NoQuant, 4, 0, 0, 0, 0, 0, 0, 0, 0",
     "7:18: 4 is not legal for ReluMode; legal: 0 None, 1 ReLU, 2 LReLU, 3 PReLU"},
    {"B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 0", "7:40: expected ',' and CScaleEn, found the end of the instruction"},
    {"B.DATR {NORM, FP16, Null, EQ, RNE, 2, 0}", "7:36: 2 is not legal for Sat; legal: 0..1"},
    {"B.DATR {NORM, FP16, Null, EQ, RNE, 0, 0", "7:40: expected '}', found the end of the instruction"},
    {"B.CATR DR=1, DR=1", "7:14: expected trap=, far=, atom=, aq= or rl=, found 'DR'"},
    {"C.BSTART.STD 2", "7:14: 2 is not legal for BrType; legal: 1, 5, 7"},
    {"BSTART COND, 16777216", "7:14: 16777216 is not legal for Offset; legal: -16777216..16777215"},
    {".word 0x123456789", "7:7: 0x123456789 does not fit into 32 bits without a sign"},
    {".half -1", "7:7: -1 does not fit into 16 bits without a sign"},
    {".half", "7:6: expected a number, found the end of the instruction"},
    {".byte 1 2", "7:9: expected ',' or the end of the directive, found '2'"},
    {"B.FPATR Foo, 0, 0, 0, 0, 0, 0, 0, 0, 0", "7:9: expected a PreQuantMode such as NoQuant or its code, found 'Foo'"},
    {"B.FPATR NoQuant, Foo, 0, 0, 0, 0, 0, 0, 0, 0",
     "7:18: expected ReluMode (0 None, 1 ReLU, 2 LReLU, 3 PReLU), found 'Foo'"},
    {"B.FPATR NoQuant, 0, Foo, 0, 0, 0, 0, 0, 0, 0",
     "7:21: expected GroupNCode (0..9; the code, not the width), found 'Foo'"},
    {"B.DATR {Foo, FP16, Null, EQ, RNE, 0, 0}", "7:9: expected a layout such as ND2M16, found 'Foo'"},
    {"B.DATR {NORM, FP16, Foo, EQ, RNE, 0, 0}", "7:21: expected a pad value (Zero, Max, Min, Null), found 'Foo'"},
    {"B.DATR {NORM, FP16, Null, Foo, RNE, 0, 0}", "7:27: expected a comparison (EQ, NE, LT, GT, LE, GE), found 'Foo'"},
    {"B.DATR {NORM, FP16, Null, EQ, Foo, 0, 0}",
     "7:31: expected a rounding mode (Default, RNE, RTZ, RTM, RTP, RNA, RTO, RHB), found 'Foo'"},
    {"B.IOT T#1, mask=Foo", "7:17: expected a PE mask (0000, 1000, 0100, 0010, 0001, 1100, 1110, 1111), found 'Foo'"},
    {"B.IOT T#1, mask=1111, ->U<Foo>", "7:27: expected a SizeCode (1..10), found 'Foo'"},
    {"BSTOP; B.DIM zero, 1, ->LB0 x # comment", "7:29: expected the end of the instruction, found 'x'"},
};

TEST(IsaText, ErrorsPointAtThePlace) {
  for (const BadLine& row : bad_lines) {
    const auto words = assemble_line(row.text, 7);
    ASSERT_FALSE(words) << row.text;
    EXPECT_EQ(words.error().message, row.message) << row.text;
  }
  const auto words = assemble("BSTOP\n\n  BSTOP\nB.IOT\n");
  ASSERT_FALSE(words);
  EXPECT_TRUE(words.error().message.starts_with("4:6: expected ")) << words.error().message;
}

TEST(IsaText, LinesCommentsAndSeparators) {
  for (const std::string_view text :
       {"", "  ", ";", " ; ;\t", "# BSTOP", "// BSTOP", "\t# T#1", ";# BSTOP", ";// BSTOP", "\r"}) {
    const auto words = assemble_line(text);
    ASSERT_TRUE(words) << words.error().message;
    EXPECT_TRUE(words->empty()) << text;
  }
  const auto words = assemble("B.IOT T#1, mask=1000 # the bias\r\nBSTOP;C.BSTOP//stop\n\nL.BSTOP");
  ASSERT_TRUE(words) << words.error().message;
  EXPECT_EQ(words->size(), 4u);
  EXPECT_EQ(strip_comment("B.IOT T#1, T#2 #x"), "B.IOT T#1, T#2 ");
}

TEST(IsaText, NumbersInEveryBase) {
  const std::vector expected{Word{0x01000043, 4}};
  for (const std::string_view n : {"16", "0x10", "0X10", "0b10000", "+16", "016"}) {
    const auto words = assemble_line(fmt::format("B.DIM {}, ->LB0", n));
    ASSERT_TRUE(words) << words.error().message;
    EXPECT_EQ(*words, expected) << n;
  }
}

TEST(IsaText, AttributesComeInAnyOrder) {
  const auto words = assemble_line("B.CATR rl=1, DR=1, aq=0; B.HINT V=1, prefetch=5");
  ASSERT_TRUE(words) << words.error().message;
  EXPECT_EQ(disassemble((*words)[0]), "B.CATR DR=1, rl=1");
  EXPECT_EQ(disassemble((*words)[1]), "B.HINT prefetch=5, V=1");
}

TEST(IsaText, UndefinedBitsAreData) {
  EXPECT_EQ(disassemble({0x00002423, 4}), ".word 0x00002423");
  EXPECT_EQ(disassemble({0x000A, 2}), ".half 0x000A");
  EXPECT_EQ(disassemble({0x12345678000E, 6}), ".half 0x000E, 0x5678, 0x1234");
  EXPECT_EQ(disassemble({0xF, 8}), ".dword 0x000000000000000F");
  EXPECT_EQ(disassemble({0x531181, 3}), ".byte 0x81, 0x11, 0x53");
  EXPECT_EQ(disassemble({0x1181, 2}), ".half 0x1181");
  // The length of the bits does not fit an instruction that they would make.
  EXPECT_EQ(disassemble({0x0000, 4}), ".word 0x00000000");
  const Decoded odd = decode(0x04004293, {.strict_reserved_bits = false});
  EXPECT_EQ(to_text(*odd), ".word 0x04004293");
}

TEST(IsaText, WordsInHexadecimal) {
  const auto bytes = bytes_of_digits("38531181  # comment\n\n00000000000000002C06 // padded as $readmemh has it\r\n");
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_EQ(*bytes, (std::vector<std::uint8_t>{0x81, 0x11, 0x53, 0x38, 0x06, 0x2C}));
  const auto error = [](std::string_view text) {
    const auto refused = bytes_of_digits(text);
    return refused ? std::string() : refused.error().message;
  };
  EXPECT_TRUE(error("38531181\nBSTOP").starts_with("2: 'BSTOP' is no word in hexadecimal"));
  EXPECT_TRUE(error("531181").starts_with("1: '531181' has 6 digits, but an instruction that begins so has 8"));
  EXPECT_TRUE(error("138531181").starts_with("1: '138531181' has 9 digits"));
  EXPECT_TRUE(error("11111111111111111").starts_with("1: "));
}

TEST(IsaText, Names) {
  for (int i = 0; i < 64; ++i) EXPECT_EQ(find_tile(tile_name(i)), i);
  for (int i = 0; i < shared_tile_count; ++i) EXPECT_EQ(find_shared_tile(shared_tile_name(i)), i);
  for (int i = 0; i < gpr_count; ++i) EXPECT_EQ(find_gpr(gpr_name(i)), i);
  EXPECT_EQ(tile_name(0), "T#1");
  EXPECT_EQ(tile_name(63), "N#16");
  EXPECT_EQ(find_tile("u#1"), 16);
  EXPECT_EQ(find_gpr("X3"), 23);
  for (const std::string_view text :
       {"", "T", "T#", "T#0", "T#17", "Q#1", "T#1x", "T#99999", "S64", "S", "S-1", "r1"}) {
    EXPECT_FALSE(find_tile(text) || find_shared_tile(text) || find_gpr(text)) << text;
  }
}

// What one word holds, field by field: the worked word of architecture 8.1 and one with an illegal field.
TEST(IsaText, FieldsOfAWord) {
  const auto reading = [](Form form, std::uint64_t word, std::string_view name) {
    for (FieldReading& f : read_fields(form, word)) {
      if (f.row.name == name) return f;
    }
    ADD_FAILURE() << "no field " << name;
    return FieldReading{};
  };
  const FieldReading type = reading(Form::bstart_tmatmul_mx_bias, 0x38531181, "DataType");
  EXPECT_EQ(type.row.bits, "[31:27]");
  EXPECT_EQ(type.width, 5);
  EXPECT_EQ(type.bits, 7U);
  EXPECT_EQ(type.value, "E4M3");
  EXPECT_TRUE(type.legal);
  // C.BSTART DIRECT with an offset of -2: 12 bits of two's complement, not a negative number.
  const Instruction back = Instruction(Form::c_bstart_direct).set(Field::offset, -2);
  const FieldReading offset = reading(Form::c_bstart_direct, Codec::encode(back).bits, "Offset");
  EXPECT_EQ(offset.bits, 0xFFEU);
  EXPECT_EQ(offset.value, "-2");
  // B.DATR with CMode 6, which is illegal (architecture 2.6).
  const FieldReading cmode = reading(Form::b_datr, 0x00001023 | 6ULL << 29, "CMode");
  EXPECT_FALSE(cmode.legal);
  EXPECT_EQ(cmode.value, "6");
}

TEST(IsaText, FormsNearAWord) {
  // B.FPATR with the reserved bit 10 set (architecture 2.7).
  const std::vector<NearForm> near = nearest_forms({.bits = 0x00002423, .length = 4}, 2);
  ASSERT_EQ(near.size(), 2U);
  EXPECT_EQ(near[0].form, Form::b_fpatr);
  EXPECT_EQ(near[0].differing, 0x400U);
  EXPECT_NE(near[1].form, Form::b_fpatr);
  EXPECT_TRUE(nearest_forms({.bits = 0x00002423, .length = 4}, 0).empty());
  EXPECT_EQ(title_of(Form::bstart_tquant), "BSTART.SFU TQUANT");
  EXPECT_EQ(title_of(Form::b_fpatr), "B.FPATR");
}

TEST(IsaText, ListOfForms) {
  const std::vector<FormRow> rows = list_forms();
  ASSERT_EQ(rows.size(), forms.size());
  for (const FormRow& row : rows) {
    EXPECT_FALSE(row.syntaxes.empty() || row.fields.empty()) << row.mnemonic;
    for (const FieldRow& field : row.fields) {
      EXPECT_FALSE(field.name.empty() || field.values.empty() || field.meaning.empty()) << row.mnemonic;
    }
  }
  const auto fpatr = std::find_if(rows.begin(), rows.end(), [](const FormRow& r) { return r.mnemonic == "B.FPATR"; });
  ASSERT_NE(fpatr, rows.end());
  EXPECT_EQ(fpatr->mask, 0x00007C7Fu);
  EXPECT_EQ(fpatr->match, 0x00002023u);
  EXPECT_EQ(fpatr->clause, "architecture 2.7");
  EXPECT_EQ(fpatr->syntaxes.front(),
            "B.FPATR PreQuantMode, ReluMode, GroupNCode, RowMaxEn, GroupMaxEn, RowMaxInit, MaxAbsEn, TransA, TransB, "
            "CScaleEn");
  EXPECT_EQ(fpatr->fields.front().bits, "[31:26]");
  EXPECT_EQ(fpatr->fields[2].values, "0..9");
  const auto dim = std::find_if(rows.begin(), rows.end(), [](const FormRow& r) { return r.mnemonic == "B.DIM"; });
  EXPECT_EQ(dim->syntaxes.front(), "B.DIM [RegSrc,] imm, ->LB0");
}

}  // namespace
}  // namespace bitcube::isa
