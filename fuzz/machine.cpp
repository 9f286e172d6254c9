// Bundles that were legal once, changed in words, Tiles, registers and options: a fault changes nothing, every SIMD
// target has the same outcome, and the state that is left is saved and loaded as it is.
#include <array>
#include <optional>

#include "bitcube/machine/core.hpp"
#include "bitcube/program/program.hpp"
#include "bitcube/program/state_file.hpp"
#include "bitcube/stimulus/bundle.hpp"
#include "input.hpp"
#include "support/targets.hpp"

using namespace bitcube;
using machine::Core;
using machine::Outcome;
using machine::State;

namespace {

/// A legal bundle, of every operation and type in turn.
const stimulus::Bundle& legal_bundle(std::size_t index) {
  static const auto generator = stimulus::BundleGenerator::make({.seed = 1, .max_dim = 20});
  static std::array<std::optional<stimulus::Bundle>, 1024> made;
  fuzz::require_result(generator, "legal bundles are made");
  if (!made[index]) {
    auto bundle = generator->bundle(index);
    fuzz::require_result(bundle, "legal bundles are made");
    made[index] = std::move(*bundle);
  }
  return *made[index];
}

void change_tile(fuzz::Input& input, State& state) {
  machine::TileRef& place = input.below(4) == 3
                                ? state.shared[input.below(machine::shared_tiles)].tile
                                : state.pe[input.below(machine::pe_count)].local[input.below(machine::local_tiles)];
  if (place == nullptr) return;
  machine::Tile tile = *place;
  machine::TileDescriptor& d = tile.descriptor();
  std::uint32_t* const numbers[] = {&d.valid_rows,    &d.valid_columns,   &d.rows,
                                    &d.columns,       &d.capacity_bytes,  &d.cube_k_repeat,
                                    &d.cube_n_repeat, &d.cube_cell_count, &d.cube_storage_bytes};
  const std::size_t change = input.below(std::size(numbers) + 5);
  switch (change) {
    case 0:
      if (!tile.bytes().empty())
        tile.bytes()[input.below(tile.bytes().size())] = static_cast<std::uint8_t>(input.word(1));
      break;
    case 1:
      if (machine::check_descriptor(d, machine::shared_capacity_limit) == machine::DescriptorFault::none) {
        tile.undefine_element(static_cast<std::uint32_t>(input.below(d.valid_rows)),
                              static_cast<std::uint32_t>(input.below(d.valid_columns)));
      }
      break;
    case 2:
      d.type = static_cast<DataType>(input.below(32));
      break;
    case 3:
      d.layout = static_cast<machine::TileLayout>(input.below(7));
      break;
    case 4:
      place = nullptr;
      return;
    default: {
      std::uint32_t& number = *numbers[change - 5];
      number = input.flag() ? number + static_cast<std::uint32_t>(input.below(3)) - 1
                            : static_cast<std::uint32_t>(input.word(4));
    }
  }
  place = machine::share(std::move(tile));
}

void change_options(fuzz::Input& input, machine::Options& options) {
  switch (input.below(8)) {
    case 0:
      options.name_policy = machine::NamePolicy::absolute;
      break;
    case 1:
      options.wait_on_pending = true;
      break;
    case 2:
      options.coop_exact_columns = true;
      break;
    case 3:
      options.aux_exact_columns = true;
      break;
    case 4:
      options.gemv_hif4 = false;
      break;
    case 5:
      options.strict_reserved_bits = false;
      break;
    case 6:
      options.scalar_pe = static_cast<unsigned>(input.below(machine::pe_count));
      options.accumulation = &input.pick(accumulation_profiles);
      break;
    default:
      options.conversion = &input.pick(conversion_profiles);
      break;
  }
}

void change(fuzz::Input& input, Core& core, std::vector<uint64>& words) {
  State& state = core.state();
  const auto place = [&] { return words.begin() + static_cast<std::ptrdiff_t>(input.below(words.size() + 1)); };
  switch (input.below(11)) {
    case 0:
      if (!words.empty()) words[input.below(words.size())] = input.word(8);
      break;
    case 1:
      if (!words.empty()) words[input.below(words.size())] ^= uint64{1} << input.below(64);
      break;
    case 2:
      if (!words.empty()) words.erase(words.begin() + static_cast<std::ptrdiff_t>(input.below(words.size())));
      break;
    case 3:
      if (!words.empty()) words.insert(place(), words[input.below(words.size())]);
      break;
    case 4:
      if (!words.empty()) std::swap(words[input.below(words.size())], words[input.below(words.size())]);
      break;
    case 5: {  // an instruction of any form, its free bits as they come
      const isa::FormInfo& form = input.pick(isa::forms);
      words.insert(place(), form.match | (input.word(8) & ~form.mask));
      break;
    }
    case 6:
      change_tile(input, state);
      break;
    case 7:
      core.set_pending(static_cast<unsigned>(input.below(machine::shared_tiles)));
      break;
    case 8:
      state.pe[input.below(machine::pe_count)].gpr[1 + input.below(machine::gpr_count - 1)] = input.word(8);
      break;
    case 9:
      change_options(input, state.options);
      break;
    default:
      state.memory.map(input.word(8), input.below(8192));
      break;
  }
}

/// Steps a word on the target that is chosen, and sees that the definitions do the same.
Outcome step(Core& core, uint64 word) {
  const Core before = core;
  const Outcome outcome = core.step(word);
  if (outcome.fault && outcome.fault->fault_class() != machine::FaultClass::bundle_post_commit) {
    fuzz::require(core == before, "a fault changes nothing");
  }
  if (outcome.fault) {
    fuzz::require(!program::explain(*outcome.fault, outcome.rejection).empty(), "a fault has an explanation");
  }
  if (outcome.completed) {
    test::for_each_target([&](const std::string& target) {
      Core again = before;
      const Outcome same = again.step(word);
      if (!(again == core) || same.flags != outcome.flags) fuzz::fail("another outcome", target);
    });
  }
  return outcome;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const stimulus::Bundle& bundle = legal_bundle(input.below(1024));
  Core core;
  core.state() = bundle.before;
  std::vector<uint64> words;
  for (const isa::Word& word : bundle.words) words.push_back(word.bits);
  const bool changed = input.left() > 0;
  for (int i = 0; i < 32 && input.left() > 0; ++i) change(input, core, words);
  for (const uint64 word : words) {
    const Outcome outcome = step(core, word);
    fuzz::require(changed || outcome.ok(), "a legal bundle is executed");
    for (const machine::PublishedTile& tile : outcome.tiles) {
      fuzz::require(machine::check_descriptor(tile.tile->descriptor(), machine::local_capacity_limit) ==
                        machine::DescriptorFault::none,
                    "what is published has a legal descriptor");
      (void)program::describe(*tile.tile);
    }
    if (outcome.fault) core.state().tpc += 4;  // as a handler that skips it
  }
  const auto saved = program::write_state(core.state());
  if (!saved) return 0;  // a Tile whose descriptor was made illegal
  const auto loaded = program::read_state(*saved, "state");
  fuzz::require_result(loaded, "a saved state is loaded");
  fuzz::require(*loaded == core.state(), "a saved state loads to an equal state");
  return 0;
}
