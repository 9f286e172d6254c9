// The words printed in the contract: worked bundles (architecture 8.1 to 8.10), single words (numerics 5.1,
// architecture 2), and the negative examples that are Illegal (architecture 8.12).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "bitcube/isa/text.hpp"

namespace bitcube::isa {
namespace {

struct WorkedWord {
  std::uint64_t bits;
  std::string_view canonical;
  std::string_view also{};  // another spelling of the contract
};

constexpr WorkedWord worked_words[] = {
    // W1
    {0x38531181, "BSTART.TMATMULMX.BIAS E4M3"},
    {0x00002023, "B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 0, 0", "B.FPATR None, 0, 0, 0, 0, 0, 0, 0, 0, 0"},
    {0x01000043, "B.DIM zero, 16, ->LB0", "B.DIM 16, ->LB0"},
    {0x00801043, "B.DIM zero, 8, ->LB1"},
    {0x02002043, "B.DIM zero, 32, ->LB2"},
    {0x04004213, "B.IOT T#1, T#2, mask=1000"},
    {0x0C204213, "B.IOT T#3, T#4, mask=1000"},
    {0x0049D293, "B.IOT T#5, mask=1000, <last>, ->U<3>"},
    {0x00000001, "BSTOP"},
    {0x043C, "C.B.DIMI 16, ->LB0"},
    // W2
    {0x20531181, "BSTART.TMATMULMX.BIAS FP16"},
    {0x00701023, "B.DATR E4M3", "B.DATR {NORM, E4M3, Zero, EQ, Default, 0, 0}"},
    {0x04802023, "B.FPATR F322F16, 1, 0, 0, 0, 0, 0, 0, 0, 0", "B.FPATR 1, ReLU, 0, 0, 0, 0, 0, 0, 0, 0"},
    {0x00500043, "B.DIM zero, 5, ->LB0"},
    {0x00901043, "B.DIM zero, 9, ->LB1"},
    {0x02802043, "B.DIM zero, 40, ->LB2"},
    {0x04004E13, "B.IOT T#1, T#2, mask=1111"},
    {0x0C29CE93, "B.IOT T#3, T#4, mask=1111, <last>, ->U<3>"},
    // W3
    {0x70531181, "BSTART.TMATMULMX.BIAS HiF4X2", "BSTART.TMATMULMX.BIAS HiF4"},
    {0x04002043, "B.DIM zero, 64, ->LB2"},
    {0x86004213, "B.IOT M#1, M#2, mask=1000"},
    {0xC7004213, "B.IOT N#1, N#2, mask=1000"},
    // W4
    {0x02800043, "B.DIM zero, 40, ->LB0"},
    {0x01001043, "B.DIM zero, 16, ->LB1"},
    {0x00401E13, "B.IOS S4, mask=1111"},
    {0x00501E13, "B.IOS S5, mask=1111"},
    {0x00601E13, "B.IOS S6, mask=1111"},
    {0x00701E13, "B.IOS S7, mask=1111"},
    {0x000A5E93, "B.IOT T#1, mask=1111, <last>, ->U<4>"},
    // W5
    {0x20031181, "BSTART.TMATMUL FP16"},
    {0x00002123, "B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 1, 0"},
    {0x01400043, "B.DIM zero, 20, ->LB0"},
    {0x01002043, "B.DIM zero, 16, ->LB2"},
    {0x00901E13, "B.IOS S9, mask=1111"},
    {0x0209DF93, "B.IOT M#1, mask=1111, <last>, ->N<3>"},
    // W6
    {0x20231181, "BSTART.TMATMUL.ACC FP16"},
    {0x00052223, "B.FPATR NoQuant, 0, 0, 1, 0, 1, 0, 0, 0, 1"},
    {0x00200043, "B.DIM zero, 2, ->LB0"},
    {0x00201043, "B.DIM zero, 2, ->LB1"},
    {0x00402043, "B.DIM zero, 4, ->LB2"},
    {0x4D204213, "B.IOT U#3, U#4, mask=1000"},
    {0x55404213, "B.IOT U#5, U#6, mask=1000"},
    {0x0160D213, "B.IOT U#7, mask=1000, ->T<1>"},
    {0x0008E313, "B.IOT mask=1000, <last>, ->M<1>"},
    // W7
    {0x98131181, "BSTART.TMATMUL.BIAS S8"},
    {0x05301023, "B.DATR S8, Sat=1"},
    {0x0D0A2023, "B.FPATR REQ8, 2, 1, 0, 1, 0, 0, 0, 0, 0"},
    {0x00400043, "B.DIM zero, 4, ->LB0"},
    {0x00310013, "B.IOR a0, a1"},
    {0x0020D293, "B.IOT T#3, mask=1000, ->U<1>"},
    {0x0008E393, "B.IOT mask=1000, <last>, ->N<1>"},
    // W8
    {0x59531181, "BSTART.TGEMVMX.BIAS E2M1X2", "BSTART.TGEMVMX.BIAS E2M1"},
    {0x00401023, "B.DATR FP16"},
    {0x0C29C293, "B.IOT T#3, T#4, mask=1000, <last>, ->U<3>"},
    // W9
    {0x20011181, "BSTART.TLOAD FP16"},
    {0x01F01B23, "B.DATR {ND2M16, DTYPE_NONE, Zero, EQ, Default, 0, 0}", "B.DATR ND2M16, DTYPE_NONE, Zero"},
    {0x02000043, "B.DIM zero, 32, ->LB0"},
    {0x000A6213, "B.IOT mask=1000, <last>, ->T<4>"},
    {0x08111181, "BSTART.TSTORE FP32"},
    {0x19F01CA3, "B.DATR {M162ND, DTYPE_NONE, Null, EQ, Default, 0, 0}", "B.DATR M162ND, DTYPE_NONE, Null"},
    {0x00800043, "B.DIM zero, 8, ->LB0"},
    {0x01085213, "B.IOT U#1, mask=1000, <last>"},
    {0x09B19181, "BSTART.VEC TCVT, FP32"},
    {0x18409023, "B.DATR {NORM, FP16, Null, EQ, RNE, 0, 0}"},
    {0x00401043, "B.DIM zero, 4, ->LB1"},
    {0x0008D293, "B.IOT T#1, mask=1000, <last>, ->U<1>"},
    {0x0EA19181, "BSTART.SFU TQUANT, FP32"},
    {0x9EB19181, "BSTART.SFU TDEQUANT, S8"},
    {0x00101023, "B.DATR FP32"},
    {0x01095213, "B.IOT U#1, mask=1000, <last>, ->T<2>"},
    {0x38011181, "BSTART.TLOAD E4M3"},
    {0x02001043, "B.DIM zero, 32, ->LB1"},
    {0x00619213, "B.IOS mask=1000, ->S6<3>"},
    // W10
    {0x03F01013, "B.IOS S63, mask=0000"},
    {0x3CF84013, "B.IOT T#16, T#16, mask=0000, <last>"},
    // numerics 5.1
    {0x80002023, "B.FPATR QF322F16_PRE, 0, 0, 0, 0, 0, 0, 0, 0, 0"},
    {0x0C802023, "B.FPATR REQ8, 1, 0, 0, 0, 0, 0, 0, 0, 0"},
    {0x0004A023, "B.FPATR NoQuant, 0, 0, 1, 0, 0, 1, 0, 0, 0"},
    {0x001A2023, "B.FPATR NoQuant, 0, 3, 0, 1, 0, 0, 0, 0, 0"},
    {0x00002223, "B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 0, 1"},
    // The stops, and an explicit zero B.IOR, B.CATR, B.DATR.
    {0x0000, "C.BSTOP"},
    {0x000000010000000F, "L.BSTOP"},
    {0x00000013, "B.IOR zero", "B.IOR"},
    {0x00000113, "B.IOR zero, ->a0", "B.IOR ->a0"},
    {0x00010013, "B.IOR a0"},
    {0x00000023, "B.CATR"},
    {0x04000023, "B.CATR DR=1"},
    {0x00001023, "B.DATR FP64"},
    // Words of architecture 8.12 that decode; what is wrong with them shows later.
    {0x00531181, "BSTART.TMATMULMX.BIAS FP64"},
    {0x98531181, "BSTART.TMATMULMX.BIAS S8"},
    {0x70031181, "BSTART.TMATMUL HiF4X2"},
    {0x39531181, "BSTART.TGEMVMX.BIAS E4M3"},
    {0x01201023, "B.DATR S16"},
    {0x00501023, "B.DATR BF16"},
    {0x18701023, "B.DATR {NORM, E4M3, Null, EQ, Default, 0, 0}"},
    {0x007010A3, "B.DATR {ND2DN, E4M3, Zero, EQ, Default, 0, 0}"},
    {0x02701023, "B.DATR {NORM, E4M3, Zero, EQ, Default, 0, 1}"},
    {0x00711023, "B.DATR E4M3, RTZ"},
    {0x04701023, "B.DATR E4M3, Sat=1"},
    {0x00012023, "B.FPATR NoQuant, 0, 0, 0, 0, 1, 0, 0, 0, 0"},
    {0x00022023, "B.FPATR NoQuant, 0, 0, 0, 1, 0, 0, 0, 0, 0"},
    {0x00082023, "B.FPATR NoQuant, 0, 1, 0, 0, 0, 0, 0, 0, 0"},
    {0x0000A023, "B.FPATR NoQuant, 0, 0, 0, 0, 0, 1, 0, 0, 0"},
    {0x000020A3, "B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 1, 0, 0"},
    {0x08002023, "B.FPATR VREQ8, 0, 0, 0, 0, 0, 0, 0, 0, 0"},
    {0x68002023, "B.FPATR QF322FP8_PRE, 0, 0, 0, 0, 0, 0, 0, 0, 0"},
    {0x01002023, "B.FPATR NoQuant, 2, 0, 0, 0, 0, 0, 0, 0, 0"},
    {0x90002023, "B.FPATR VQF322BF16_PRE, 0, 0, 0, 0, 0, 0, 0, 0, 0"},
    {0x000A2023, "B.FPATR NoQuant, 0, 1, 0, 1, 0, 0, 0, 0, 0"},
    {0x00122023, "B.FPATR NoQuant, 0, 2, 0, 1, 0, 0, 0, 0, 0"},
    {0x00000043, "B.DIM zero, 0, ->LB0"},
    {0x00001043, "B.DIM zero, 0, ->LB1"},
    {0x01100043, "B.DIM zero, 17, ->LB0"},
    {0x08100043, "B.DIM zero, 129, ->LB0"},
    {0x0041D293, "B.IOT T#5, mask=1000, ->U<3>"},
    {0x00495293, "B.IOT T#5, mask=1000, <last>, ->U<2>"},
    {0x0028D213, "B.IOT T#3, mask=1000, <last>, ->T<1>"},
    {0x0C204413, "B.IOT T#3, T#4, mask=0100"},
    {0x00409E13, "B.IOS mask=1111, ->S4<1>"},
    {0x00901213, "B.IOS S9, mask=1000"},
};

TEST(IsaWorked, WordsAndTexts) {
  for (const WorkedWord& row : worked_words) {
    SCOPED_TRACE(row.canonical);
    const Decoded decoded = decode(row.bits);
    ASSERT_TRUE(decoded) << explain(decoded.rejection);
    const Word word{row.bits, static_cast<std::uint8_t>(decoded->length())};
    EXPECT_EQ(to_text(*decoded), row.canonical);
    EXPECT_EQ(disassemble(word), row.canonical);
    const auto encoded = encode(*decoded);
    ASSERT_TRUE(encoded) << encoded.error().message;
    EXPECT_EQ(*encoded, word);
    for (const std::string_view text : {row.canonical, row.also}) {
      if (text.empty()) continue;
      const auto words = assemble_line(text);
      ASSERT_TRUE(words) << words.error().message;
      EXPECT_EQ(*words, std::vector{word}) << text;
    }
  }
}

TEST(IsaWorked, MemoryBytesAreLittleEndian) {
  const auto words = assemble_line("BSTART.TMATMULMX.BIAS E4M3; C.B.DIMI 16, ->LB0; L.BSTOP");
  ASSERT_TRUE(words) << words.error().message;
  const std::vector<std::uint8_t> bytes = to_bytes(*words);
  const std::vector<std::uint8_t> expected{0x81, 0x11, 0x53, 0x38, 0x3C, 0x04, 0x0F, 0, 0, 0, 1, 0, 0, 0};
  EXPECT_EQ(bytes, expected);
}

struct IllegalWord {
  int row;  // of architecture 8.12
  std::uint64_t bits;
  Form nearest;
  Field field;
  std::int32_t found;
};
constexpr IllegalWord illegal_words[] = {
    {1, 0x78531181, Form::bstart_tmatmul_mx_bias, Field::data_type, 15},
    {2, 0x38331181, Form::bstart_tmatmul_bias, Field::function, 3},
    {3, 0x38731181, Form::bstart_tmatmul_mx_bias, Field::function, 7},
    {4, 0x00E11181, Form::bstart_tmov, Field::function, 14},
    {11, 0x18002023, Form::b_fpatr, Field::pre_quant_mode, 6},
    {12, 0x02002023, Form::b_fpatr, Field::relu_mode, 4},
    {13, 0x00502023, Form::b_fpatr, Field::group_n_code, 10},
    {14, 0x00002423, Form::b_fpatr, Field::reserved, 1},
    {15, 0x00002823, Form::b_fpatr, Field::element_wise_en, 1},
    {32, 0x000C0013, Form::b_ior, Field::reg_src0, 24},
    {39, 0x00F01023, Form::b_datr, Field::data_type, 15},
    {55, 0xC43C, Form::c_b_dimi, Field::lb, 3},
    {56, 0x010C0043, Form::b_dim_lb0, Field::reg_src, 24},
    {76, 0x004DD293, Form::b_iot_src0_dst, Field::size_code, 11},
    {77, 0x00086293, Form::b_iot_dst, Field::size_code, 0},
    {79, 0x04401E13, Form::b_ios, Field::reserved, 1},
    {80, 0x00469E13, Form::b_ios, Field::size_code, 13},
};

TEST(IsaWorked, IllegalWordsAndTheirReasons) {
  for (const IllegalWord& row : illegal_words) {
    SCOPED_TRACE(row.row);
    const Decoded decoded = decode(row.bits);
    ASSERT_FALSE(decoded);
    const Diagnosis d = diagnose(decoded.rejection);
    EXPECT_EQ(d.nearest, row.nearest);
    EXPECT_EQ(d.field, row.field);
    EXPECT_EQ(d.found, row.found);
    EXPECT_FALSE(d.legal.empty());
    EXPECT_EQ(d.text, explain(decoded.rejection));
  }
}

TEST(IsaWorked, ReasonsInWords) {
  const auto reason = [](std::uint64_t bits) { return explain(decode(bits).rejection); };
  EXPECT_EQ(reason(0x00502023), "0x00502023: GroupNCode [22:19] = 10 in B.FPATR; legal: 0..9 (architecture 2.7)");
  EXPECT_EQ(reason(0x00002423), "0x00002423: Reserved [10] = 1 near B.FPATR; legal: 0 (architecture 2.7)");
  EXPECT_EQ(reason(0x00E11181),
            "0x00E11181: Function [24:20] = 14 near BSTART.TMOV; legal: 0 (BSTART.TLOAD), 1 (BSTART.TSTORE), 2 "
            "(BSTART.TMOV); Function 14, the store of a part of a Shared Tile, was removed (architecture 2.3)");
  EXPECT_EQ(reason(0xC43C), "0xC43C: LB [15:14] = 3 in C.B.DIMI; legal: 0..2 (architecture 2.8)");
  EXPECT_EQ(reason(0xE), "0x00000000000E: there is no instruction of 48 bits (architecture 2.1)");
  EXPECT_EQ(reason(0x00002023), "");
}

}  // namespace
}  // namespace bitcube::isa
