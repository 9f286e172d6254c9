#include "header.hpp"

#include "effects.hpp"

namespace bitcube::machine {

namespace {

using enum RuleId;
using isa::Command;
using isa::Field;
using isa::Instruction;

constexpr std::size_t local_binding_limit = 16;
constexpr std::size_t shared_binding_limit = 4;

std::uint8_t byte(const Instruction& i, Field field) noexcept {
  return static_cast<std::uint8_t>(i[field]);
}

/// A2: most commands need a header that still takes commands.
Check check_placement(const Header& h) {
  if (!h.active) return fault(A2, Role::command, phrase("no active bundle"), phrase("a BSTART before the command"));
  if (h.body) return fault(A2, Role::command, phrase("the body of the bundle"), phrase("a place before the body"));
  return {};
}

Check duplicate(std::string_view what) {
  return fault(A3, Role::command, phrase(what), phrase("at most one in a bundle"));
}

Check take_catr(State& state, const Instruction& i) {
  Header& h = state.header;
  if (auto f = check_placement(h)) return f;
  if (h.catr) return duplicate("a second B.CATR");
  h.catr = ControlAttributes{i.flag(Field::dr),   i.flag(Field::trap), i.flag(Field::far),
                             i.flag(Field::atom), i.flag(Field::aq),   i.flag(Field::rl)};
  return {};
}

Check take_datr(State& state, const Instruction& i) {
  Header& h = state.header;
  if (auto f = check_placement(h)) return f;
  if (h.datr) return duplicate("a second B.DATR");
  DataAttributes d;
  d.type = i.data_type();
  d.layout = static_cast<isa::TransferLayout>(i[Field::layout]);
  d.pad = static_cast<isa::PadValue>(i[Field::pad_value]);
  d.cmode = byte(i, Field::cmode);
  d.rmode = byte(i, Field::rmode);
  d.saturate = i.flag(Field::sat);
  d.canonicalize = i.flag(Field::canonicalize);
  h.datr = d;
  return {};
}

Check take_fpatr(State& state, const Instruction& i) {
  Header& h = state.header;
  if (auto f = check_placement(h)) return f;
  if (h.operation.unit != isa::Unit::cube) {
    return fault(A4, Role::command, phrase("another unit's bundle"), phrase("a CUBE bundle"));
  }
  if (h.fpatr) return duplicate("a second B.FPATR");
  if (h.scalars || !h.locals.empty() || !h.shared.empty()) {
    return fault(A5, Role::command, phrase("a binding before B.FPATR"), phrase("B.FPATR before every binding"));
  }
  PostprocessAttributes p;
  p.prequant = byte(i, Field::pre_quant_mode);
  p.relu = byte(i, Field::relu_mode);
  p.group_n_code = byte(i, Field::group_n_code);
  p.row_max = i.flag(Field::row_max_en);
  p.group_max = i.flag(Field::group_max_en);
  p.row_max_init = i.flag(Field::row_max_init);
  p.max_abs = i.flag(Field::max_abs_en);
  p.c_scale = i.flag(Field::cscale_en);
  p.trans_a = i.flag(Field::trans_a);
  p.trans_b = i.flag(Field::trans_b);
  if (p.row_max_init && !p.row_max) {
    return fault(P1, Role::command, phrase("RowMaxInit without RowMaxEn"), phrase("RowMaxEn 1"));
  }
  if (p.group_max != (p.group_n_code != 0)) {
    return fault(P2, Role::command, number(p.group_n_code),
                 p.group_max ? range(1, 9) : phrase("GroupNCode 0 without GroupMaxEn"));
  }
  if (p.max_abs && !p.row_max && !p.group_max) {
    return fault(P3, Role::command, phrase("MaxAbsEn without a reduction"), phrase("RowMaxEn or GroupMaxEn 1"));
  }
  h.fpatr = p;
  return {};
}

Check take_dim(State& state, const Instruction& i) {
  Header& h = state.header;
  if (auto f = check_placement(h)) return f;
  const auto index = static_cast<std::size_t>(i[Field::lb]);
  constexpr Role roles[] = {Role::lb0, Role::lb1, Role::lb2};
  if (h.lb[index]) return fault(A6, roles[index], number(*h.lb[index]), phrase("one value in a bundle"));
  uint64 value = static_cast<uint64>(i[Field::imm]);
  value += state.pe[state.options.scalar_pe % pe_count].read(byte(i, Field::reg_src));
  h.lb[index] = static_cast<std::uint16_t>(value);
  return {};
}

Check take_ior(State& state, const Instruction& i) {
  Header& h = state.header;
  if (auto f = check_placement(h)) return f;
  if (h.scalars) return duplicate("a second B.IOR");
  h.scalars = ScalarBinding{byte(i, Field::reg_dst),
                            {byte(i, Field::reg_src0), byte(i, Field::reg_src1), byte(i, Field::reg_src2)}};
  return {};
}

/// Mask 0000: the command binds nothing and leaves a mark (architecture 2.9 step 2).
void no_participation(Header& h) {
  if (h.active) h.zero_participation = true;
}

Check take_ios(State& state, const Instruction& i) {
  Header& h = state.header;
  const unsigned pes = i.pe_mask();
  if (pes == 0) {
    no_participation(h);
    return {};
  }
  if (auto f = check_placement(h)) return f;
  for (const LocalBinding& b : h.locals) {
    if (b.mask != pes) return fault(A7, Role::mask, mask(pes), mask(b.mask));
  }
  for (const SharedBinding& b : h.shared) {
    if (b.mask != pes) return fault(A7, Role::mask, mask(pes), mask(b.mask));
  }
  const auto id = byte(i, Field::shared_tile);
  for (const SharedBinding& b : h.shared) {
    if (b.id == id) return fault(A8, Role::command, shared_name(id), phrase("each Shared Tile once"));
  }
  if (h.shared.size() == shared_binding_limit) {
    return fault(A9, Role::command, number(shared_binding_limit + 1), range(0, shared_binding_limit));
  }
  h.shared.push_back({id, byte(i, Field::size_code), static_cast<std::uint8_t>(pes)});
  return {};
}

Check take_iot(State& state, const Instruction& i) {
  Header& h = state.header;
  const unsigned pes = i.pe_mask();
  if (pes == 0) {
    no_participation(h);
    return {};
  }
  if (auto f = check_placement(h)) return f;
  if (!h.locals.empty() && h.locals.back().last) {
    return fault(A10, Role::command, phrase("a B.IOT after L = 1"), phrase("L = 1 in the last B.IOT only"));
  }
  // Equality with the first one is equality with all of them.
  if (!h.locals.empty() && h.locals.front().mask != pes) {
    return fault(A11, Role::mask, mask(pes), mask(h.locals.front().mask));
  }
  if (h.locals.size() == local_binding_limit) {
    return fault(A12, Role::command, number(local_binding_limit + 1), range(0, local_binding_limit));
  }
  LocalBinding b;
  switch (i.form()) {
    case isa::Form::b_iot_dst:
      break;
    case isa::Form::b_iot_src0:
    case isa::Form::b_iot_src0_dst:
      b.source_count = 1;
      break;
    default:
      b.source_count = 2;
      break;
  }
  b.sources = {byte(i, Field::src_tile0), byte(i, Field::src_tile1)};
  b.size_code = byte(i, Field::size_code);
  if (b.has_destination()) b.hand = byte(i, Field::dst_tile);
  b.mask = static_cast<std::uint8_t>(pes);
  b.last = i.flag(Field::last);
  h.locals.push_back(b);
  return {};
}

Check take_hint(State& state, const Instruction& i) {
  Header& h = state.header;
  if (auto f = check_placement(h)) return f;
  if (h.hint) return duplicate("a second B.HINT");
  h.hint = Hint{static_cast<std::uint16_t>(i[Field::prefetch]), byte(i, Field::temp), i.flag(Field::likely),
                i.flag(Field::valid)};
  return {};
}

/// Completes the active bundle (architecture 2.13). True if it is gone and execution goes on at `continuation`.
bool complete(State& state, uint64 continuation, Outcome& outcome) {
  const Header& h = state.header;
  if (!h.active) {
    outcome.fault = fault(A14, Role::command, phrase("no active bundle"), phrase("a BSTART before the stop"));
    return false;
  }
  if (continuation % 2 != 0) {
    outcome.fault = fault(A15, Role::pc, word(continuation), phrase("an even address"));
    return false;
  }
  const ControlAttributes attributes = h.catr.value_or(ControlAttributes{});
  const isa::Unit unit = h.operation.unit;
  if (attributes.dr && unit != isa::Unit::tlsu && unit != isa::Unit::tepl) {
    outcome.fault = fault(B0, Role::command, phrase("DR 1"), phrase("DR 0"));
    return false;
  }
  // B1: mask 0000 everywhere is a strict no-op, whatever else the header says.
  const bool nothing_bound = h.locals.empty() && h.shared.empty();
  if (!(nothing_bound && h.zero_participation)) {
    Completion completion = execute(state);
    outcome.fault = completion.fault;
    outcome.waiting_for = completion.waiting_for;
    if (completion.fault || completion.waiting_for) return false;
    commit(state, std::move(completion.effects), outcome);
  }
  const uint64 target = h.operation.target.value_or(continuation);
  state.header = {};
  state.bpc = 0;
  state.tpc = target;
  outcome.completed = true;
  if (attributes.trap) {
    outcome.fault = fault(A16, Role::command, phrase("trap 1"));
    return false;
  }
  return target == continuation;
}

void start(State& state, const Instruction& i, Outcome& outcome) {
  const uint64 address = state.tpc;
  if (address % 2 != 0) {
    outcome.fault = fault(A13, Role::pc, word(address), phrase("an even address"));
    return;
  }
  if (state.header.active && !complete(state, address, outcome)) return;
  Header h;
  h.active = true;
  h.operation.code = i.operation();
  h.operation.unit = static_cast<isa::Unit>(i[Field::unit]);
  if (i.has(Field::data_type)) h.operation.type = i.data_type();
  if (i.form() == isa::Form::bstart_direct || i.form() == isa::Form::c_bstart_direct) {
    h.operation.target = address + 2 * static_cast<uint64>(static_cast<int64>(i[Field::offset]));
  }
  state.header = std::move(h);
  state.bpc = address;
  state.tpc = address + static_cast<uint64>(i.length());
  outcome.started = true;
}

Check take(State& state, const Instruction& i) {
  switch (i.command()) {
    case Command::catr:
      return take_catr(state, i);
    case Command::datr:
      return take_datr(state, i);
    case Command::fpatr:
      return take_fpatr(state, i);
    case Command::dim:
      return take_dim(state, i);
    case Command::ios:
      return take_ios(state, i);
    case Command::iot:
      return take_iot(state, i);
    case Command::ior:
      return take_ior(state, i);
    case Command::hint:
      return take_hint(state, i);
    default:
      return {};
  }
}

}  // namespace

Outcome execute_command(State& state, const Instruction& i) {
  Outcome outcome;
  const uint64 next = state.tpc + static_cast<uint64>(i.length());
  switch (i.command()) {
    case Command::bstart:
    case Command::hint_trace:  // opens an empty bundle
      start(state, i, outcome);
      return outcome;
    case Command::stop:
      complete(state, next, outcome);
      return outcome;
    default:
      break;
  }
  outcome.fault = take(state, i);
  if (outcome.fault) return outcome;
  state.tpc = next;
  outcome.header_changed = true;
  return outcome;
}

}  // namespace bitcube::machine
