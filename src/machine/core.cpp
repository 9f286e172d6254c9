#include "bitcube/machine/core.hpp"

#include "header.hpp"

namespace bitcube::machine {

TileRef share(Tile tile) {
  return std::make_shared<const Tile>(std::move(tile));
}

void Core::set_local(unsigned pe, unsigned name, Tile tile) {
  std::uint8_t& owners = tile.descriptor().allocation_mask;
  if (owners == 0) owners = static_cast<std::uint8_t>(pe_bit(pe));
  state_.pe[pe].local[name] = share(std::move(tile));
}

void Core::publish_shared(unsigned id, Tile tile) {
  SharedRecord& record = state_.shared[id];
  if (tile.descriptor().allocation_mask == 0) tile.descriptor().allocation_mask = full_mask;
  record.allocation_mask = record.initialized_mask = tile.descriptor().allocation_mask;
  record.tile = share(std::move(tile));
  record.whole_parent_ready = record.published = true;
}

void Core::set_pending(unsigned id) {
  state_.shared[id].whole_parent_ready = false;
  state_.shared[id].published = false;
}

Outcome Core::step(std::uint64_t word) {
  const isa::Decoded decoded = isa::decode(word, {state_.options.strict_reserved_bits});
  if (decoded) return step(*decoded);
  Outcome outcome;
  outcome.rejection = decoded.rejection;
  const bool field = decoded.rejection.reason == isa::Rejection::Reason::field;
  outcome.fault = Fault{RuleId::A1, Role::word, machine::word(decoded.rejection.word.bits),
                        phrase(field ? "an assigned value in every field" : "a word of the instruction set")};
  return outcome;
}

Outcome Core::step(const isa::Instruction& instruction) {
  return execute_command(state_, instruction);
}

Outcome Core::step() {
  const uint64 pc = state_.tpc;
  const auto missing = [&](uint64 size) {
    for (uint64 i = 0; i < size; ++i) {
      if (!state_.memory.mapped(pc + i)) return true;
    }
    return false;
  };
  Outcome outcome;
  if (!missing(2)) {
    const int length = isa::instruction_length(state_.memory.byte(pc));
    if (!missing(static_cast<uint64>(length))) {
      uint64 bits = 0;
      for (int i = length; i-- > 0;) bits = bits << 8 | state_.memory.byte(pc + static_cast<uint64>(i));
      return step(bits);
    }
  }
  outcome.fault = Fault{RuleId::A17, Role::pc, machine::word(pc), phrase("an address in a mapped page")};
  return outcome;
}

}  // namespace bitcube::machine
