#include "bitcube/machine/rules.hpp"

#include <array>

#include "bitcube/numeric/text.hpp"

namespace bitcube::machine {

namespace {

using enum FaultClass;
using enum RuleId;

constexpr std::array<Rule, static_cast<std::size_t>(RuleId::count)> table{{
    // Stage A: the commands (architecture 2).
    {A1, "A1", illegal_instruction, "the word is one of the instruction set, and every field holds an assigned value"},
    {A2, "A2", bundle_control, "a header command stands between BSTART and the body of its bundle"},
    {A3, "A3", bundle_control, "B.CATR, B.DATR, B.FPATR, B.IOR and B.HINT appear at most once in a bundle"},
    {A4, "A4", bundle_control, "B.FPATR belongs to CUBE bundles only"},
    {A5, "A5", bundle_control, "B.FPATR comes before every effective B.IOR, B.IOT and B.IOS"},
    {A6, "A6", bundle_control, "each of LB0, LB1 and LB2 is written at most once"},
    {A7, "A7", tile_legality, "the mask of B.IOS equals the masks of the bindings before it"},
    {A8, "A8", bundle_control, "a Shared Tile is bound at most once in a bundle"},
    {A9, "A9", bundle_control, "a bundle has at most four Shared bindings"},
    {A10, "A10", bundle_control, "no B.IOT follows the one with L = 1"},
    {A11, "A11", tile_legality, "the mask of B.IOT equals the masks of the B.IOT before it"},
    {A12, "A12", tile_legality, "a bundle has at most 16 Local bindings"},
    {A13, "A13", instruction_pc, "the address of a BSTART is even"},
    {A14, "A14", bundle_control, "a stop command, and every completion, needs an active bundle"},
    {A15, "A15", instruction_pc, "the continuation and the committed target are even"},
    {A16, "A16", bundle_post_commit, "the trap attribute reports a bundle after it took effect"},
    {A17, "A17", instruction_page, "the instruction at TPC lies in mapped memory"},
    {P1, "P1", tile_legality, "RowMaxInit needs RowMaxEn"},
    {P2, "P2", tile_legality, "GroupMaxEn is set exactly if GroupNCode is not 0"},
    {P3, "P3", tile_legality, "MaxAbsEn needs RowMaxEn or GroupMaxEn"},
    // Stages B to D: a CUBE bundle as a whole (architecture 4.3).
    {B0, "B0", bundle_control, "B.CATR.DR is set only in bundles of the memory and element-wise units"},
    {B2, "B2", bundle_control, "a CUBE bundle has exactly one B.FPATR"},
    {B3, "B3", illegal_instruction, "the selected operation is assigned"},
    {C1, "C1", tile_legality, "AType and BType are a pair that the operation multiplies"},
    {C2, "C2", tile_legality, "the Shared bindings are none, the right group, or both groups; none for TGEMV"},
    {C3, "C3", tile_legality, "the Local sources are exactly those that the operation and B.FPATR ask for"},
    {C4, "C4", tile_legality, "the Local destinations are D and one per enabled reduction"},
    {C5, "C5", tile_legality, "the last B.IOT, and there is one, has L = 1"},
    {C6, "C6", tile_legality, "B.IOR names the selected scalar parameters and nothing else"},
    {C7, "C7", tile_legality, "B.DATR of a CUBE bundle has Layout, PadValue, CMode and Canonicalize 0"},
    {C8, "C8", tile_legality, "dimensions are not 0, and group_M is 1 to 128"},
    {C9, "C9", tile_legality, "RMode and Sat are what the PreQuantMode allows"},
    {C10, "C10", tile_legality, "all effective masks are equal, and 1111 with Shared operands"},
    {C11, "C11", tile_legality, "M of a TGEMV is 1"},
    {D1, "D1", tile_legality, "TransA needs a Shared A, TransB a Shared B"},
    {D2, "D2", tile_legality, "each Shared binding is a ready source of the right type and shape"},
    // Stages F and G: each participating PE.
    {F0, "F0", tile_legality, "every Local source name has a live Tile that belongs to the PE"},
    {F1, "F1", tile_legality, "the scalar parameters are legal carriers"},
    {F2, "F2", tile_legality, "CScaleEn needs TMATMUL.ACC or TMATMULMX.ACC with an FP32 accumulator"},
    {F3, "F3", tile_legality, "the PreQuantMode takes this accumulator type"},
    {F4, "F4", tile_legality, "RowMaxIn is a defined row-major M x 1 Tile of the accumulator type"},
    {F5, "F5", tile_legality, "the quantisation parameters are a defined row-major 1 x N U64 Tile of legal carriers"},
    {F6, "F6", tile_legality, "the activation parameters are a defined row-major 1 x N U64 Tile of legal carriers"},
    {F7, "F7", tile_legality, "every mathematical source has the type, layout and shape of its role and is defined"},
    {F8, "F8", tile_legality, "the encoded name of C differs from the number of D's hand"},
    {F9, "F9", tile_legality, "the encoded name of CScale differs from the number of every destination's hand"},
    {F10, "F10", tile_legality, "CUBE_M16 holds at most 16 rows of a PE, CUBE_M32 at most 32"},
    {G1, "G1", tile_allocation, "every destination has a free register in its hand"},
    {G2, "G2", tile_allocation, "the new Tiles fit the pool"},
    {G3, "G3", tile_allocation, "D fits its TSize"},
    {G4, "G4", tile_allocation, "RowMaxOut and GroupMaxOut fit their TSize"},
    // TLOAD, TSTORE, TMOV (architecture 7.2 to 7.4).
    {T1, "T1", bundle_control, "the last B.IOT has L = 1"},
    {T2, "T2", tile_legality, "the bindings are exactly the source and the destination that the operation has"},
    {T3, "T3", tile_legality,
     "all masks are equal; a Shared destination has one issuing PE, a Shared source one or all"},
    {T4, "T4", tile_legality, "B.DATR selects Layout and, where it acts, PadValue; everything else is neutral"},
    {T5, "T5", tile_legality, "the layout code is one of this operation and starts from the layout of the source"},
    {T6, "T6", tile_legality, "the dimensions are present where needed, not 0, and those of the Tile"},
    {T7, "T7", tile_legality, "the data type is that of the source, and not a 64-bit one in a CUBE layout"},
    {T8, "T8", tile_legality, "B.IOR holds the base and the stride, and nothing else"},
    {T9, "T9", tile_legality, "the source is live, legal, and in the PEs of the mask"},
    {T10, "T10", tile_legality, "every valid element of the source is defined"},
    {T11, "T11", data_alignment, "every element access is naturally aligned"},
    {T12, "T12", data_page, "every element access lies in mapped memory"},
    {T13, "T13", tile_allocation, "the destination fits its TSize"},
    // TCVT, TQUANT, TDEQUANT (architecture 7.5 to 7.7).
    {V1, "V1", tile_legality, "one B.IOT binds source and destination; nothing else is bound but the parameters"},
    {V2, "V2", tile_legality, "the dimensions are present where needed, not 0, and those of the source"},
    {V3, "V3", tile_legality, "the operation converts these types, with this rounding"},
    {V4, "V4", tile_legality, "B.DATR holds only what the operation takes, Canonicalize as the source needs it"},
    {V5, "V5", tile_legality, "the source is live, legal, in a layout of the operation, and defined"},
    {V6, "V6", tile_legality, "every valid element of the source is an encoding of its type"},
    {V7, "V7", tile_allocation, "the destination fits its TSize"},
    {Q1, "Q1", tile_legality, "TQUANT and TDEQUANT have a B.DATR with the destination type"},
    {Q2, "Q2", tile_legality,
     "the multiplier is a positive finite FP32 number, the zero point one of the integer type"},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (static_cast<std::size_t>(table[i].id) != i) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace

std::span<const Rule> rules() noexcept {
  return table;
}

const Rule& rule(RuleId id) noexcept {
  return table[static_cast<std::size_t>(id)];
}

const Rule* find_rule(std::string_view name) noexcept {
  for (const Rule& r : table) {
    if (equal_ignoring_case(r.name, name)) return &r;
  }
  return nullptr;
}

std::string_view name_of(Role role) noexcept {
  constexpr std::string_view names[] = {"",
                                        "word",
                                        "command",
                                        "PC",
                                        "memory",
                                        "A",
                                        "A scale",
                                        "B",
                                        "B scale",
                                        "C",
                                        "Bias",
                                        "CScale",
                                        "RowMaxIn",
                                        "vector quant parameter",
                                        "vector PReLU parameter",
                                        "scalar quant parameter",
                                        "scalar LReLU parameter",
                                        "D",
                                        "RowMaxOut",
                                        "GroupMaxOut",
                                        "source",
                                        "destination",
                                        "B.IOR",
                                        "sources",
                                        "destinations",
                                        "B.DATR",
                                        "M",
                                        "N",
                                        "K",
                                        "LB0",
                                        "LB1",
                                        "LB2",
                                        "mask"};
  static_assert(std::size(names) == static_cast<std::size_t>(Role::mask) + 1);
  return names[static_cast<std::size_t>(role)];
}

}  // namespace bitcube::machine
