// What the parser makes of a program text: statements in the order of the text, each at an address. Private to the
// room.
#pragma once

#include <functional>
#include <map>

#include "bitcube/program/program.hpp"

namespace bitcube::program {

/// `.expect fault`: what a fault has to be.
struct FaultExpectation {
  machine::FaultClass fault = machine::FaultClass::none;
  std::optional<machine::RuleId> rule{};
  std::optional<unsigned> pe{};
};

/// What an expectation may look at.
struct CheckContext {
  const machine::State& state;
  const machine::State* before = nullptr;  // the last instruction, if a check asks for it
  bool faulted = false;                    // the last instruction was refused
  uint64 tpc = 0;                          // where the machine left TPC, before the handler went on
};

/// The bytes that a `.memory` writes: they must not overlap the program.
struct MemoryRange {
  uint64 address = 0;
  uint64 size = 0;
};

struct Statement {
  enum class Kind : std::uint8_t {
    instruction,
    setup,     // `apply`
    check,     // `check`: what does not hold, or nothing
    fault,     // the instruction before it must be refused
    waiting,   // the instruction before it must wait for `shared`
    unchanged  // as check, with the state before the last instruction
  };
  Kind kind = Kind::instruction;
  uint64 address = 0;
  Position position{};
  std::string text{};    // of a directive, as it stands in the program
  std::size_t line = 0;  // of an instruction: its index in Image::lines
  std::function<void(machine::Core&)> apply{};
  std::function<std::string(const CheckContext&)> check{};
  FaultExpectation fault{};
  unsigned shared = 0;
  std::optional<MemoryRange> memory{};
};

struct Image {
  std::string name;
  uint64 origin = 0;
  std::vector<std::uint8_t> bytes{};
  std::vector<Line> lines{};
  std::vector<Statement> statements{};
  std::map<uint64, std::size_t> at{};  // address: its first statement
  std::size_t expectations = 0;
};

/// The statement of a directive; a reader that is not ok says why there is none.
class Reader;
Statement parse_directive(Reader& reader, const std::filesystem::path& directory);

/// Names of the directives, for messages and documents.
std::span<const std::string_view> directive_names() noexcept;

}  // namespace bitcube::program
