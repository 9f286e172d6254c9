#include "bitcube/explain/fault.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "guarded.hpp"

namespace bitcube {
namespace {

using machine::Outcome;
using machine::Rule;

constexpr std::size_t most_faults = 1000;
constexpr std::size_t most_instructions = 40;  // of a bundle; more are counted

struct Instruction {
  std::uint64_t pc = 0;
  program::Position position{};
  std::string text{};
};

struct Refusal {
  Instruction at{};
  isa::Word word{};
  machine::Fault fault{};
  isa::Rejection rejection{};
  std::vector<Instruction> bundle{};  // what came before it
  std::size_t left_out = 0;
  bool unchanged = false;
};

/// The part of the contract that the rules of a letter come from.
std::string_view clause_of(const Rule& rule) noexcept {
  switch (rule.name.front()) {
    case 'A':
      return "architecture 4.2";
    case 'P':
      return "architecture 2.7, numerics 5.2";
    case 'T':
      return "architecture 7.2 to 7.4";
    case 'V':
    case 'Q':
      return "architecture 7.5 to 7.7";
    default:
      return "architecture 4.3";
  }
}

/// Whether the instruction at TPC is refused once more, and leaves this state as it is.
bool is_refused_without_effect(const machine::State& state, const machine::Fault& fault) {
  machine::Core again;
  again.state() = state;
  const Outcome outcome = again.step();
  return outcome.fault == fault && again.state() == state;
}

/// Collects what a run refuses.
class Recorder {
 public:
  explicit Recorder(bool all) noexcept : all_(all) {}

  void take(const program::Event& event) {
    if (event.kind != program::Event::Kind::step) return;
    const Outcome& outcome = *event.outcome;
    Instruction at{event.pc, event.position, event.text};
    if (outcome.fault) {
      ++count_;
      if (refusals_.size() < (all_ ? most_faults : 1)) {
        Refusal refusal{at, event.word, *outcome.fault, outcome.rejection, bundle_, left_out_};
        refusal.unchanged =
            *event.header_before == event.state->header && is_refused_without_effect(*event.state, *outcome.fault);
        refusals_.push_back(std::move(refusal));
      }
      return;
    }
    if (outcome.started || outcome.completed) {
      bundle_.clear();
      left_out_ = 0;
    }
    if (!event.state->header.active) return;
    if (bundle_.size() < most_instructions) {
      bundle_.push_back(std::move(at));
    } else {
      ++left_out_;
    }
  }

  const std::vector<Refusal>& refusals() const noexcept { return refusals_; }
  std::size_t count() const noexcept { return count_; }

 private:
  bool all_;
  std::vector<Refusal> refusals_;
  std::size_t count_ = 0;
  std::vector<Instruction> bundle_;
  std::size_t left_out_ = 0;
};

std::string place(std::string_view name, const Instruction& at) {
  if (at.position.line == 0) return fmt::format("{}: pc 0x{:X}", name, at.pc);
  return fmt::format("{}:{}:{}", name, at.position.line, at.position.column);
}

Table bundle_table(const Refusal& r) {
  Table table{.title = "the bundle so far", .header = {"", "pc", "line", "instruction"}};
  const auto add = [&](std::string_view mark, const Instruction& i) {
    table.rows.push_back({std::string(mark), fmt::format("0x{:X}", i.pc),
                          i.position.line == 0 ? "" : fmt::format("{}", i.position.line), i.text});
  };
  for (const Instruction& i : r.bundle) add("", i);
  if (r.left_out != 0) table.rows.push_back({"", "", "", fmt::format("... {} more", r.left_out)});
  add("->", r.at);
  return table;
}

Section refusal_section(std::string_view name, const Refusal& r) {
  const Rule& rule = machine::rule(r.fault.id);
  Section section{.title = fmt::format("{} at {}", machine::name_of(rule.fault), place(name, r.at)),
                  .clause = std::string(clause_of(rule))};
  const auto add = [&](std::string fact, std::string value, std::string remark = {}) {
    if (!value.empty()) section.facts.push_back({std::move(fact), std::move(value), std::move(remark)});
  };
  const bool after = rule.fault == machine::FaultClass::bundle_post_commit;
  add("instruction", r.at.text);
  add("pc", fmt::format("0x{:X}", r.at.pc));
  if (r.word.length != 0) {
    add("word", fmt::format("0x{:0{}X}", r.word.bits, 2 * r.word.length), "bitcube explain word says more");
  }
  add("rule", std::string(rule.name), std::string(rule.text));
  add("operand", std::string(machine::name_of(r.fault.role)));
  add("who", r.fault.pe >= 0 ? fmt::format("PE{}", r.fault.pe) : "the Core");
  add("found", program::text_of(r.fault.found));
  add("legal", program::text_of(r.fault.legal));
  add("state",
      after         ? "changed"
      : r.unchanged ? "unchanged"
                    : "not compared",
      after         ? "the bundle took effect before it was reported"
      : r.unchanged ? "executed once more it is refused again, and every register, Tile and byte stays"
                    : "executed once more it is not refused in the same way");
  section.tables.push_back(bundle_table(r));
  if (r.rejection.reason != isa::Rejection::Reason::none) section.remarks.push_back(isa::explain(r.rejection));
  return section;
}

std::string ending_text(const program::RunResult& result) {
  using End = program::RunResult::End;
  switch (result.end) {
    case End::completed:
      return "the program ran to its end";
    case End::fault:
      return "the fault was not expected, and ended the run";
    case End::waiting:
      return fmt::format("the bundle waits for S{}, and nothing will make it ready", result.waiting_for);
    case End::limit:
      return fmt::format("not finished after {} instructions", result.steps);
    case End::cut_off:
      return "the end of the program cuts a word off";
  }
  return {};
}

}  // namespace

Expected<Document> explain_fault(const program::Program& program, machine::Core& core,
                                 const ExplainFaultOptions& options) {
  return guarded("explain", [&]() -> Expected<Document> {
    Recorder recorder(options.all);
    const program::RunResult result =
        program::run(program, core,
                     {.max_steps = options.max_steps, .observer = [&](const program::Event& e) { recorder.take(e); }});
    Document document{.title = fmt::format("The faults of {}", program.name())};
    for (const Refusal& r : recorder.refusals()) document.sections.push_back(refusal_section(program.name(), r));
    document.results.push_back({"run", ending_text(result),
                                fmt::format("instructions {}, completed bundles {}", result.steps, result.bundles)});
    if (recorder.count() > recorder.refusals().size()) {
      document.results.push_back(
          {"faults", fmt::format("{}", recorder.count()),
           fmt::format("{} explained{}", recorder.refusals().size(), options.all ? "" : "; --all explains every one")});
    }
    if (recorder.refusals().empty()) {
      document.results.push_back({"result", "no fault"});
    } else {
      const Refusal& last = recorder.refusals().back();
      document.results.push_back({"result", program::explain(last.fault, last.rejection)});
    }
    return document;
  });
}

}  // namespace bitcube
