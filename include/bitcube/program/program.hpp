// Programs: instructions with directives that set a scenario up and check it. docs/programs.md describes the text.
//
//   const auto program = program::Program::load("w1.s");
//   machine::Core core;
//   const program::RunResult result = program::run(*program, core);
//
// Everything that a text says is read, built and checked when it is loaded: files, Tiles, numbers, labels. A run can
// then only meet what the architecture knows: a fault, a wait, an expectation that does not hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/isa/instruction.hpp"
#include "bitcube/machine/core.hpp"

namespace bitcube::program {

/// Bytes of a program. A text of more is none that a person wrote, and a listing of it no help to one.
inline constexpr std::size_t longest_text = std::size_t{64} << 20;

/// Where something stands in a program text, counted from 1; 0: the program has no text.
struct Position {
  int line = 0;
  int column = 0;
};

/// One instruction, or one datum, of a program.
struct Line {
  uint64 address = 0;
  isa::Word word{};
  Position position{};
  std::string text{};  // canonical
};

/// What the parser makes of a text; private to the room.
struct Image;

/// A program, ready to run. Copies share what was loaded.
class Program {
 public:
  /// A file of text, or of words: what ends in .bin or holds a zero byte, as no text does, is words.
  static Expected<Program> load(const std::filesystem::path& path);
  /// A text. `name` is for messages; files that directives name are found relative to `directory`. An error starts
  /// with "NAME:LINE:COLUMN: " and says what was expected there.
  static Expected<Program> parse(std::string_view text, std::string_view name,
                                 const std::filesystem::path& directory = {});
  /// Words as they stand in memory.
  static Expected<Program> from_bytes(std::span<const std::uint8_t> bytes, std::string_view name);

  const std::string& name() const noexcept;
  /// Address of the first word (.org).
  uint64 origin() const noexcept;
  const std::vector<std::uint8_t>& bytes() const noexcept;
  const std::vector<Line>& lines() const noexcept;
  /// Expectations in the text.
  std::size_t expectations() const noexcept;

  const Image& image() const noexcept { return *image_; }

 private:
  explicit Program(std::shared_ptr<const Image> image) noexcept : image_(std::move(image)) {}

  std::shared_ptr<const Image> image_;
};

/// One expectation after its turn came.
struct CheckResult {
  Position position{};
  std::string text{};  // the directive
  bool holds = false;
  std::string message{};  // if it does not hold: what was found instead
};

/// What a run reports while it goes on.
struct Event {
  enum class Kind : std::uint8_t {
    start,  // before anything happens
    step,   // one instruction was executed, or refused
    check,  // one expectation was checked
    end,    // the run is over; `result` is complete
  };
  Kind kind = Kind::start;
  const Program* program = nullptr;
  const machine::State* state = nullptr;  // after the event

  // step
  uint64 number = 0;  // of the step, from 0
  uint64 pc = 0;
  Position position{};
  isa::Word word{};    // as far as memory is mapped there
  std::string text{};  // canonical
  const machine::Header* header_before = nullptr;
  const machine::Outcome* outcome = nullptr;

  const CheckResult* check = nullptr;
  const struct RunResult* result = nullptr;
};
using Observer = std::function<void(const Event&)>;

struct RunOptions {
  uint64 max_steps = 10'000'000;  // a loop that does not end is stopped
  Observer observer{};
};

struct RunResult {
  enum class End : std::uint8_t {
    completed,  // control reached the end of the program
    fault,      // an architectural fault that no expectation asked for
    waiting,    // the bundle waits for a Shared Tile, and no expectation asked for that
    limit,      // max_steps
    cut_off,    // the end of the program falls inside a word, which is therefore not executed
  };
  End end = End::completed;
  uint64 steps = 0;
  uint64 bundles = 0;  // completed ones
  uint64 pc = 0;       // of the instruction where it ended
  Position position{};
  std::optional<machine::Fault> fault{};
  isa::Rejection rejection{};  // with rule A1
  unsigned waiting_for = 0;
  std::vector<CheckResult> checks{};
  std::size_t failed = 0;
  std::size_t not_reached = 0;  // expectations whose turn never came; they count as failed

  /// The program ended, and every expectation holds.
  bool ok() const noexcept { return end == End::completed && failed == 0 && not_reached == 0; }
};

/// Puts the words into the memory of `core`, sets TPC to the first one, and goes on until the end. Directives take
/// effect when control reaches them.
RunResult run(const Program& program, machine::Core& core, const RunOptions& options = {});

// ---- Words for people

/// "16 x 32", "512 bytes", "T#1": a Finding as text.
std::string text_of(const machine::Finding& finding);
/// One sentence: class, rule, operand, what was found, what would be legal. `rejection` explains rule A1.
std::string explain(const machine::Fault& fault, const isa::Rejection& rejection = {});
/// "FP32 CUBE_M16 16 x 8".
std::string describe(const machine::Tile& tile);
/// The elements of the valid region as a .npy file holds them: row by row, little-endian carriers, a 4-bit lane in the
/// low bits of a byte of its own.
std::vector<std::byte> element_bytes(const machine::Tile& tile);
/// SHA-256 of element_bytes() in hexadecimal.
std::string element_digest(const machine::Tile& tile);

}  // namespace bitcube::program
