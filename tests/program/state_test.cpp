// States as JSON: round trips at every step of the worked programs, and what is refused.
#include "bitcube/program/state_file.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <tuple>

#include "bitcube/program/program.hpp"
#include "io/temp_dir.hpp"

namespace bitcube::program {
namespace {

using Json = nlohmann::ordered_json;

std::string example(std::string_view name) {
  return std::string(BITCUBE_SOURCE_DIR) + "/examples/programs/" + std::string(name) + ".s";
}

std::string written(const machine::State& state) {
  const auto text = write_state(state);
  EXPECT_TRUE(text) << (text ? "" : text.error().message);
  return text ? *text : "";
}

TEST(State, RoundTripAtEveryStep) {
  for (const std::string name : {"w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9", "w10", "retry"}) {
    const auto program = Program::load(example(name));
    ASSERT_TRUE(program) << name;
    machine::Core core;
    run(*program, core, {.observer = [&](const Event& e) {
      const std::string text = written(*e.state);
      const auto state = read_state(text, "s");
      ASSERT_TRUE(state) << name << ": " << (state ? "" : state.error().message);
      EXPECT_TRUE(*state == *e.state) << name << " step " << e.number;
      EXPECT_EQ(written(*state), text);
    }});
  }
}

TEST(State, EveryHeaderField) {
  const auto program = Program::parse(R"(
.option name_policy absolute
.option accumulation group
.option conversion asl
.pending S5
BSTART.TMATMULMX.ACC HiF4X2
B.CATR DR=1, trap=1, far=1, atom=1, aq=1, rl=1
B.DATR {NORM, E4M3, Null, GE, RHB, 1, 1}
B.HINT prefetch=5, temp=3, LUL=1, V=1
B.FPATR F322F16, 3, 9, 1, 1, 1, 1, 1, 1, 1
B.DIM 65535, ->LB0; B.DIM 0, ->LB2
B.IOR a0, a1, x3, ->s8
B.IOS S0, mask=1100 ; B.IOS mask=1100, ->S63<12>
B.IOT T#1, N#16, mask=1100, ->M<10>
B.IOT U#2, mask=1100, <last>
B.IOT T#1, mask=0000
)",
                                      "p.s");
  ASSERT_TRUE(program) << program.error().message;
  machine::Core core;
  const RunResult result = run(*program, core);
  ASSERT_FALSE(result.fault) << explain(*result.fault);
  EXPECT_EQ(core.state().header.locals.size(), 2U);
  const auto state = read_state(written(core.state()), "s");
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_TRUE(*state == core.state());
}

/// The state of a program that has everything, changed by one JSON patch, is refused with this message.
testing::AssertionResult refused(const std::string& patch, std::string_view message) {
  const auto program = Program::parse(R"(
.tile 0 T#1 M16 FP16 2 3 = 1 2 3 4 5 6
.undefine 0 T#1 1 1
.tile 1 U#2 ND E2M1 1 3 = 1 2 3
.shared S5 FP16 2 2 = 1 2 3 4
.gpr 0 a0 = 5
BSTART.TMATMUL FP16
B.IOT T#1, U#2, mask=1000, ->M<10>
)",
                                      "p.s");
  machine::Core core;
  run(*program, core);
  Json json = Json::parse(written(core.state()));
  const auto patched = json.patch(Json::parse("[" + patch + "]"));
  const auto state = read_state(patched.dump(), "s.json");
  if (state) return testing::AssertionFailure() << "accepted";
  if (state.error().message == message) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "found:    " << state.error().message << "\nexpected: " << message;
}

std::string replace(std::string_view path, std::string_view value) {
  return R"({"op": "replace", "path": ")" + std::string(path) + R"(", "value": )" + std::string(value) + "}";
}

TEST(State, Refuses) {
  EXPECT_TRUE(
      refused(replace("/bitcube_state", "2"), "s.json: /bitcube_state: expected version 1, which this program reads"));
  EXPECT_TRUE(refused(R"({"op": "remove", "path": "/tpc"})", "s.json: /: expected the key \"tpc\""));
  EXPECT_TRUE(refused(R"({"op": "add", "path": "/more", "value": 1})",
                      "s.json: /: unknown key \"more\" (legal: bitcube_state, options, tpc, bpc, flags, header, pe, "
                      "shared, memory)"));
  EXPECT_TRUE(refused(replace("/tpc", "5"), "s.json: /tpc: expected a text"));
  EXPECT_TRUE(refused(replace("/tpc", "\"12\""), "s.json: /tpc: expected a text \"0x…\" of at most 64 bits"));
  EXPECT_TRUE(
      refused(replace("/flags", "[\"XX\"]"), "s.json: /flags/0: unknown name \"XX\" (legal: NV, DZ, OF, UF, NX)"));
  EXPECT_TRUE(refused(replace("/options/scalar_pe", "4"), "s.json: /options/scalar_pe: expected a number of 0..3"));
  EXPECT_TRUE(refused(replace("/options/accumulation", "\"x\""),
                      "s.json: /options/accumulation: unknown name \"x\" (legal: the accumulation profiles)"));
  EXPECT_TRUE(
      refused(replace("/header/active", "false"), "s.json: /header: a header that is not active must be empty"));
  EXPECT_TRUE(refused(replace("/header/unit", "2"), "s.json: /header/unit: expected the unit of the operation"));
  EXPECT_TRUE(
      refused(replace("/header/operation", "null"), "s.json: /header/operation: expected an operation of the unit"));
  EXPECT_TRUE(
      refused(replace("/header/locals/0/mask", "\"0000\""), "s.json: /header/locals/0/mask: expected at least one PE"));
  EXPECT_TRUE(refused(replace("/header/locals/0/size_code", "0"),
                      "s.json: /header/locals/0/destination: expected a hand exactly if size_code is not 0"));
  EXPECT_TRUE(refused(replace("/header/locals/0/sources", "[\"T#1\",\"T#1\",\"T#1\"]"),
                      "s.json: /header/locals/0/sources: 3 items; expected at most 2"));
  EXPECT_TRUE(refused(replace("/pe", "[]"), "s.json: /pe: expected 4 PEs"));
  EXPECT_TRUE(refused(R"({"op": "add", "path": "/pe/0/gpr/zero", "value": "0x1"})",
                      "s.json: /pe/0/gpr/zero: no register of this name that holds a value"));
  EXPECT_TRUE(refused(replace("/pe/0/tiles/T#1/capacity", "4294967295"),
                      "s.json: /pe/0/tiles/T#1/capacity: expected a number of 0..65536"));
  EXPECT_TRUE(refused(replace("/pe/0/tiles/T#1/rows", "17"),
                      "s.json: /pe/0/tiles/T#1: type, layout, shape and capacity are not those of a legal Tile"));
  EXPECT_TRUE(refused(replace("/pe/0/tiles/T#1/type", "\"E6M2\""),
                      "s.json: /pe/0/tiles/T#1/type: unknown name \"E6M2\" (legal: a Tile data type)"));
  EXPECT_TRUE(
      refused(replace("/pe/0/tiles/T#1/bytes", "\"0\""),
              "s.json: /pe/0/tiles/T#1/bytes: expected at most 128 bytes of two hexadecimal digits, found 1 digits"));
  EXPECT_TRUE(refused(replace("/pe/0/tiles/T#1/bytes", "\"0g\""),
                      "s.json: /pe/0/tiles/T#1/bytes: expected hexadecimal digits at position 0"));
  EXPECT_TRUE(refused(replace("/pe/0/tiles/T#1/defined", "\"all\""),
                      "s.json: /pe/0/tiles/T#1/defined_bits: belongs to \"defined\": \"bits\""));
  EXPECT_TRUE(refused(replace("/pe/0/tiles/T#1/location", "\"any\""),
                      "s.json: /pe/0/tiles/T#1/location: a CUBE layout is in \"matrix\""));
  EXPECT_TRUE(refused(R"({"op": "copy", "from": "/pe/0/tiles/T#1", "path": "/pe/0/tiles/T#17"})",
                      "s.json: /pe/0/tiles/T#17: no Local Tile of this name"));
  EXPECT_TRUE(refused(R"({"op": "copy", "from": "/shared/S5", "path": "/shared/S64"})",
                      "s.json: /shared/S64: no Shared Tile of this name"));
  EXPECT_TRUE(refused(replace("/memory/0/address", "\"0x10\""),
                      "s.json: /memory/0/address: expected the start of a page of 4096 bytes"));
  EXPECT_TRUE(refused(R"({"op": "copy", "from": "/memory/0", "path": "/memory/0"})",
                      "s.json: /memory/1/address: this page was given before"));
}

// No run makes such a Tile; whoever tests that its use is a fault does.
TEST(State, ALocalTileOfOtherPesIsKept) {
  machine::Core core;
  machine::Tile strange =
      *machine::make_ordinary_tile(machine::TileLayout::row_major, DataType::fp32, 1, 1, std::array<uint64, 1>{0});
  strange.descriptor().allocation_mask = 0b1100;
  core.set_local(2, 17, strange);
  const auto state = read_state(written(core.state()), "s.json");
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(*state, core.state());
}

TEST(State, AKeyIsGivenOnce) {
  const std::string text = written({});
  const auto with = [&](std::string_view before, std::string_view added) {
    std::string changed = text;
    const std::size_t at = changed.find(before);
    EXPECT_NE(at, std::string::npos) << before;
    return read_state(changed.insert(at, added), "s.json");
  };
  for (const auto& [before, added, key] :
       {std::tuple{"\"tpc\"", "\"tpc\": \"0x8\", ", "\"tpc\""},
        std::tuple{"\"strict_reserved_bits\"", "\"scalar_pe\": 1, ", "\"scalar_pe\""},
        std::tuple{"\"gpr\"", "\"gpr\": {}, ", "\"gpr\""}}) {
    const auto state = with(before, added);
    ASSERT_FALSE(state) << key;
    EXPECT_EQ(state.error().message, fmt::format("s.json: the key {} is given twice", key));
  }
}

TEST(State, NotJson) {
  for (const std::string text : {"", "{", "[]", "null", "{\"bitcube_state\": \"1\"}"}) {
    const auto state = read_state(text, "s.json");
    ASSERT_FALSE(state) << text;
    EXPECT_TRUE(state.error().message.starts_with("s.json: ")) << state.error().message;
  }
}

/// Random damage never does more than be refused, or give a state that can be saved again and go on.
TEST(State, Hostile) {
  std::uint32_t random = 7;
  const auto next = [&] { return random = random * 1664525 + 1013904223; };
  std::size_t accepted = 0;
  for (const std::string name : {"w1", "w4", "w5", "w6", "w7", "w9"}) {
    const auto program = Program::load(example(name));
    ASSERT_TRUE(program);
    std::vector<std::string> texts;
    machine::Core core;
    run(*program, core, {.observer = [&](const Event& e) { texts.push_back(written(*e.state)); }});
    for (int i = 0; i < 600; ++i) {
      std::string text = texts[(next() >> 8) % texts.size()];
      // Tiles and pages are most of the text; the damage goes to what describes them as well.
      const std::size_t header = text.find("\"header\"");
      for (unsigned n = next() / 65536 % 3 + 1; n > 0; --n) {
        const std::size_t at = next() >> 31 != 0 ? header + (next() >> 8) % 2000 : (next() >> 8) % text.size();
        text[at % text.size()] = "0123456789\"{}[]:,truefalsenx"[next() / 65536 % 28];
      }
      const auto state = read_state(text, "s.json");
      if (!state) continue;
      ++accepted;
      EXPECT_TRUE(write_state(*state));
      core.state() = *state;
      core.step(0x00000001);
    }
  }
  EXPECT_GT(accepted, 100U);
}

TEST(State, HandMadeDescriptor) {
  machine::State state;
  machine::Tile tile =
      *machine::make_ordinary_tile(machine::TileLayout::row_major, DataType::fp32, 1, 1, std::array<uint64, 1>{0});
  tile.descriptor().rows = 5;
  state.pe[2].local[17] = machine::share(std::move(tile));
  const auto text = write_state(state);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().message, "PE2 U#2: the Tile's descriptor is not legal, so it cannot be saved");
}

}  // namespace
}  // namespace bitcube::program
