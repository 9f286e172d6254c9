// Words of the instructions that tests put together.
#pragma once

#include "bitcube/isa/instruction.hpp"
#include "machine/scenario.hpp"

namespace bitcube::machine::test {

using isa::Field;
using isa::Form;
using isa::Instruction;

inline uint64 word_of(const Instruction& i) {
  return isa::Codec::encode(i).bits;
}
inline uint64 start(Form form, DataType type) {
  return word_of(Instruction(form).set(Field::data_type, static_cast<int>(type)));
}
inline uint64 dim(int lb, std::uint32_t value) {
  const auto form = static_cast<Form>(static_cast<int>(Form::b_dim_lb0) + lb);
  return word_of(Instruction(form).set(Field::imm, static_cast<int>(value)));
}
inline uint64 datr(isa::TransferLayout layout, DataType type, isa::PadValue pad = isa::PadValue::zero, int rmode = 0,
                   bool sat = false) {
  return word_of(Instruction(Form::b_datr)
                     .set(Field::layout, static_cast<int>(layout))
                     .set(Field::data_type, static_cast<int>(type))
                     .set(Field::pad_value, static_cast<int>(pad))
                     .set(Field::rmode, rmode)
                     .set(Field::sat, sat ? 1 : 0));
}
inline uint64 ior(int first, int second = 0) {
  return word_of(Instruction(Form::b_ior).set(Field::reg_src0, first).set(Field::reg_src1, second));
}
inline int size_code(std::uint32_t bytes) {
  int code = 1;
  while (size_code_bytes(static_cast<unsigned>(code)) < bytes) ++code;
  return code;
}
/// One last B.IOT; `pe_mode` 1 is PE0 alone, 7 all.
inline uint64 to_hand(unsigned hand, int size, int pe_mode = 1) {
  return word_of(Instruction(Form::b_iot_dst)
                     .set(Field::last, 1)
                     .set(Field::pe_mode, pe_mode)
                     .set(Field::dst_tile, static_cast<int>(hand))
                     .set(Field::size_code, size));
}
inline uint64 from_name(unsigned name, int pe_mode = 1) {
  return word_of(Instruction(Form::b_iot_src0)
                     .set(Field::last, 1)
                     .set(Field::pe_mode, pe_mode)
                     .set(Field::src_tile0, static_cast<int>(name)));
}
inline uint64 from_to(unsigned name, unsigned hand, int size, int pe_mode = 1) {
  return word_of(Instruction(Form::b_iot_src0_dst)
                     .set(Field::last, 1)
                     .set(Field::pe_mode, pe_mode)
                     .set(Field::src_tile0, static_cast<int>(name))
                     .set(Field::dst_tile, static_cast<int>(hand))
                     .set(Field::size_code, size));
}
inline uint64 shared_binding(unsigned id, int size = 0, int pe_mode = 1) {
  return word_of(Instruction(Form::b_ios)
                     .set(Field::shared_tile, static_cast<int>(id))
                     .set(Field::size_code, size)
                     .set(Field::pe_mode, pe_mode));
}

/// Steps through words until one does not succeed; the outcome of the last.
inline Outcome run_words(Core& core, std::initializer_list<uint64> words) {
  Outcome o;
  for (const uint64 w : words) {
    o = core.step(w);
    if (!o.ok()) break;
  }
  return o;
}

}  // namespace bitcube::machine::test
