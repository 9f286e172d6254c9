#include <fmt/format.h>

#include "bitcube/isa/text.hpp"
#include "image.hpp"
#include "names.hpp"

namespace bitcube::program {
namespace {

using machine::Core;
using machine::FaultClass;
using machine::Header;
using machine::Outcome;
using machine::State;

/// The word at an address, as far as its pages are mapped.
isa::Word word_at(const machine::Memory& memory, uint64 pc) {
  isa::Word word;
  const auto length = memory.mapped(pc) ? static_cast<unsigned>(isa::instruction_length(memory.byte(pc))) : 0U;
  for (; word.length < length && memory.mapped(pc + word.length); ++word.length) {
    word.bits |= uint64{memory.byte(pc + word.length)} << (8 * word.length);
  }
  return word;
}

class Runner {
 public:
  Runner(const Program& program, Core& core, const RunOptions& options)
      : program_(program), image_(program.image()), core_(core), options_(options) {}

  RunResult run() {
    core_.state().memory.write(image_.origin, image_.bytes);
    core_.state().tpc = image_.origin;
    event(Event::Kind::start);
    done_.assign(image_.statements.size(), false);
    while (go_on_ && proceed()) {
    }
    for (std::size_t i = 0; i < image_.statements.size(); ++i) {
      const auto kind = image_.statements[i].kind;
      const bool is_check = kind != Statement::Kind::instruction && kind != Statement::Kind::setup;
      if (is_check && !done_[i]) ++result_.not_reached;
    }
    if (result_.end == RunResult::End::completed) result_.pc = core_.state().tpc;
    Event e = make(Event::Kind::end);
    e.result = &result_;
    send(e);
    return std::move(result_);
  }

 private:
  Event make(Event::Kind kind) const {
    Event e;
    e.kind = kind;
    e.program = &program_;
    e.state = &core_.state();
    return e;
  }
  void send(const Event& e) const {
    if (options_.observer) options_.observer(e);
  }
  void event(Event::Kind kind) const { send(make(kind)); }

  void stop(RunResult::End end, uint64 pc, Position position) {
    result_.end = end;
    result_.pc = pc;
    result_.position = position;
    go_on_ = false;
  }

  void report(const Statement& s, std::string failure) {
    CheckResult check{s.position, s.text, failure.empty(), std::move(failure)};
    if (!check.holds) ++result_.failed;
    result_.checks.push_back(std::move(check));
    Event e = make(Event::Kind::check);
    e.check = &result_.checks.back();
    send(e);
  }

  /// Everything up to and including the next instruction. False at the end of the program.
  bool proceed() {
    const auto at = image_.at.find(core_.state().tpc);
    std::size_t i = at == image_.at.end() ? image_.statements.size() : at->second;
    for (; i < image_.statements.size() && image_.statements[i].kind != Statement::Kind::instruction; ++i) {
      const Statement& s = image_.statements[i];
      if (s.address != core_.state().tpc) break;
      perform(i, s);
    }
    if (core_.state().tpc == image_.origin + image_.bytes.size()) return false;
    execute(i);
    return true;
  }

  void perform(std::size_t i, const Statement& s) {
    switch (s.kind) {
      case Statement::Kind::setup:
        s.apply(core_);
        break;
      case Statement::Kind::check:
      case Statement::Kind::unchanged: {
        done_[i] = true;
        const State* before = before_ ? &*before_ : nullptr;
        report(s, s.check({core_.state(), before, faulted_, left_at_}));
        break;
      }
      case Statement::Kind::fault:
        // One that was met has been reported where the instruction was refused.
        if (expected_ == i) break;
        done_[i] = true;
        report(s, "the instruction was accepted");
        break;
      case Statement::Kind::waiting:
        if (expected_ == i) break;
        done_[i] = true;
        report(s, "the bundle does not wait");
        break;
      case Statement::Kind::instruction:
        break;
    }
  }

  /// The expectation of this kind among the directives behind an instruction: the address behind it is theirs.
  std::optional<std::size_t> expectation_behind(uint64 next, Statement::Kind kind) const {
    const auto at = image_.at.find(next);
    if (at == image_.at.end()) return std::nullopt;
    for (std::size_t i = at->second; i < image_.statements.size(); ++i) {
      const Statement& s = image_.statements[i];
      if (s.address != next || s.kind == Statement::Kind::instruction) break;
      if (s.kind == kind) return i;
    }
    return std::nullopt;
  }

  bool unchanged_behind(uint64 next) const { return expectation_behind(next, Statement::Kind::unchanged).has_value(); }

  void execute(std::size_t statement) {
    State& state = core_.state();
    const uint64 pc = state.tpc;
    const bool known = statement < image_.statements.size() && image_.statements[statement].address == pc;
    const Position position = known ? image_.statements[statement].position : Position{};
    if (result_.steps == options_.max_steps) {
      stop(RunResult::End::limit, pc, position);
      return;
    }
    const isa::Word word = word_at(state.memory, pc);
    const uint64 next = pc + word.length;
    const uint64 offset = pc - image_.origin;
    if (offset < image_.bytes.size() && image_.bytes.size() - offset < word.length) {  // zeros follow in the memory
      stop(RunResult::End::cut_off, pc, position);
      return;
    }
    if (unchanged_behind(next)) before_ = state;
    Header header_before;
    if (options_.observer) header_before = state.header;
    const Outcome outcome = core_.step();
    left_at_ = state.tpc;
    faulted_ = outcome.fault && outcome.fault->fault_class() != FaultClass::bundle_post_commit;
    expected_.reset();
    Event e = make(Event::Kind::step);
    e.number = result_.steps++;
    e.pc = pc;
    e.position = position;
    e.word = word;
    if (options_.observer && word.length != 0) e.text = isa::disassemble(word);
    e.header_before = &header_before;
    e.outcome = &outcome;
    if (outcome.completed) ++result_.bundles;
    send(e);
    if (outcome.fault) {
      take_fault(outcome, pc, next, position);
    } else if (outcome.waiting_for) {
      take_wait(*outcome.waiting_for, pc, next, position);
    }
  }

  void take_fault(const Outcome& outcome, uint64 pc, uint64 next, Position position) {
    const machine::Fault& fault = *outcome.fault;
    const auto behind = expectation_behind(next, Statement::Kind::fault);
    if (!behind) {
      result_.fault = fault;
      result_.rejection = outcome.rejection;
      stop(RunResult::End::fault, pc, position);
      return;
    }
    const Statement& s = image_.statements[*behind];
    std::string failure;
    const bool fits = fault.fault_class() == s.fault.fault && (!s.fault.rule || *s.fault.rule == fault.id) &&
                      (!s.fault.pe || static_cast<int>(*s.fault.pe) == fault.pe);
    if (!fits) failure = "found " + explain(fault, outcome.rejection);
    done_[*behind] = true;
    report(s, std::move(failure));
    expected_ = *behind;
    // A handler that goes on behind the instruction. One that was reported after the commit has moved TPC already, and
    // if the next BSTART completed the bundle, that BSTART has still to start its own.
    if (fault.fault_class() != FaultClass::bundle_post_commit) {
      core_.state().tpc = next;
    } else if (core_.state().tpc == pc) {
      execute(image_.at.contains(pc) ? instruction_at(pc) : image_.statements.size());
      expected_ = *behind;
    }
  }

  std::size_t instruction_at(uint64 pc) const {
    std::size_t i = image_.at.at(pc);
    while (i < image_.statements.size() && image_.statements[i].kind != Statement::Kind::instruction) ++i;
    return i;
  }

  void take_wait(unsigned shared, uint64 pc, uint64 next, Position position) {
    const auto behind = expectation_behind(next, Statement::Kind::waiting);
    if (!behind) {
      result_.waiting_for = shared;
      stop(RunResult::End::waiting, pc, position);
      return;
    }
    const Statement& s = image_.statements[*behind];
    done_[*behind] = true;
    report(s, s.shared == shared ? "" : fmt::format("the bundle waits for S{}", shared));
    expected_ = *behind;
    core_.state().tpc = next;
  }

  const Program& program_;
  const Image& image_;
  Core& core_;
  const RunOptions& options_;
  RunResult result_;
  bool go_on_ = true;
  bool faulted_ = false;
  uint64 left_at_ = 0;  // TPC after the last instruction
  std::optional<State> before_;
  std::optional<std::size_t> expected_;  // the expectation that the last instruction met
  std::vector<bool> done_;               // expectations whose turn came
};

}  // namespace

RunResult run(const Program& program, Core& core, const RunOptions& options) {
  return Runner(program, core, options).run();
}

}  // namespace bitcube::program
