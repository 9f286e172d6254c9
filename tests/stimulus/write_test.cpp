// Every form of bundle files, read back by other means than it was written with; and what the coverage claims, counted
// anew from the words.
#include "bitcube/stimulus/write.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bitcube/isa/text.hpp"
#include "bitcube/program/program.hpp"

namespace bitcube::stimulus {
namespace {

using Json = nlohmann::json;
using isa::Field;

BundleGenerator generator(const BundleOptions& options) {
  auto g = BundleGenerator::make(options);
  EXPECT_TRUE(g) << g.error().message;
  return std::move(*g);
}
std::vector<machine::RuleId> every_rule() {
  std::vector<machine::RuleId> rules;
  for (const RuleReach& reach : rule_reach()) {
    if (!reach.operations.empty()) rules.push_back(reach.rule);
  }
  return rules;
}

struct Written {
  std::vector<std::string> files;
  std::optional<Coverage> coverage;
};
Written written(const BundleGenerator& g, BundleFormat format, uint64 first, uint64 count, unsigned threads = 0) {
  Written out;
  out.files.resize(5);
  auto coverage = write_bundles(g, format, {first, count, {.threads = threads}},
                                [&](std::size_t file, std::string_view text) -> Expected<void> {
                                  out.files[file] += text;
                                  return {};
                                });
  EXPECT_TRUE(coverage) << coverage.error().message;
  if (coverage) out.coverage = std::move(*coverage);
  return out;
}
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// ---- Programs

void expect_program_holds(const BundleOptions& options, uint64 count) {
  const Written w = written(generator(options), BundleFormat::assembly, 0, count);
  const auto program = program::Program::parse(w.files[0], "stimulus.s");
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_GE(program->expectations(), count);
  machine::Core core;
  const program::RunResult r = program::run(*program, core);
  EXPECT_TRUE(r.ok()) << r.failed << " failed, " << r.not_reached << " not reached, line " << r.position.line;
  for (const auto& check : r.checks) {
    if (!check.holds) ADD_FAILURE() << check.position.line << ": " << check.message;
  }
}

TEST(StimulusWrite, LegalProgramHolds) {
  expect_program_holds({.seed = 21}, 800);
}
TEST(StimulusWrite, IllegalProgramHolds) {
  expect_program_holds({.seed = 22, .rules = every_rule()}, 1000);
}

// ---- Words, and the coverage counted from them

struct Counted {
  std::map<std::string, uint64> operations, types, posts, masks, starts;
};

std::string type_name(DataType t) {
  return std::string(format_of(t).name);
}

/// What the words of the bundles say, by a count of its own.
Counted count(const std::string& text) {
  Counted out;
  std::string operation;
  DataType a{};
  std::optional<isa::Instruction> datr;
  std::optional<isa::Instruction> fpatr;
  unsigned mask = 0;
  const auto close = [&] {
    if (operation.empty()) return;
    ++out.operations[operation];
    ++out.masks[std::string(isa::pe_mask_names[static_cast<std::size_t>(mask)].name)];
    DataType b = a;
    if (datr && datr->data_type() != DataType::none) b = datr->data_type();
    if (operation.starts_with("TMATMUL") || operation.starts_with("TGEMV")) {
      ++out.types[operation + " " + type_name(a) + " x " + type_name(b)];
      const bool sat = datr && (*datr)[Field::sat] == 1;
      const auto mode = static_cast<unsigned>((*fpatr)[Field::pre_quant_mode]);
      constexpr std::string_view relu[] = {"None", "ReLU", "LReLU", "PReLU"};
      ++out.posts[std::string(find_prequant(mode)->name) + " " + std::string(relu[(*fpatr)[Field::relu_mode]]) +
                  (sat ? " Sat=1" : " Sat=0")];
    }
    if (operation == "TCVT") ++out.types["TCVT " + type_name(a) + " -> " + type_name(b)];
  };
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with("//")) {
      close();
      operation.clear();
      datr.reset();
      fpatr.reset();
      continue;
    }
    const uint64 bits = std::stoull(line, nullptr, 16);
    EXPECT_EQ(line.size(), 2U * static_cast<unsigned>(isa::instruction_length(bits)));
    const isa::Decoded i = isa::decode(bits);
    if (!i) {
      ADD_FAILURE() << line;
      continue;
    }
    if (i->command() == isa::Command::bstart) {
      operation = isa::operation_names[static_cast<std::size_t>(i->operation())];
      a = i->data_type();
    }
    if (i->command() == isa::Command::datr) datr = *i;
    if (i->command() == isa::Command::fpatr) fpatr = *i;
    const bool binds = i->command() == isa::Command::iot || i->command() == isa::Command::ios;
    if (binds && (*i)[Field::pe_mode] != 0) mask = static_cast<unsigned>((*i)[Field::pe_mode]);
  }
  close();
  return out;
}

std::map<std::string, uint64> group_of(const Coverage& coverage, std::string_view name) {
  std::map<std::string, uint64> counts;
  for (const CoverageGroup& g : coverage.groups()) {
    if (g.name != name) continue;
    for (const CoverageBin& b : g.bins) {
      if (b.hits != 0) counts[std::string(b.name)] = b.hits;
    }
  }
  return counts;
}

TEST(StimulusWrite, OneCycleHitsEveryBinAndTheCountsAreTrue) {
  const BundleGenerator g = generator({});
  const Written w = written(g, BundleFormat::words, 0, 4000);
  ASSERT_GE(4000U, g.full_cycle());
  EXPECT_EQ(w.coverage->undeclared(), 0U);
  EXPECT_EQ(w.coverage->bundles(), 4000U);
  for (const CoverageGroup& group : w.coverage->groups()) {
    EXPECT_EQ(group.hit(), group.bins.size()) << group.name;
  }
  const Counted c = count(w.files[0]);
  EXPECT_EQ(group_of(*w.coverage, "operation"), c.operations);
  EXPECT_EQ(group_of(*w.coverage, "masks"), c.masks);
  EXPECT_EQ(group_of(*w.coverage, "post-process"), c.posts);
  std::map<std::string, uint64> types = group_of(*w.coverage, "types");
  std::erase_if(types, [](const auto& row) {
    return !row.first.starts_with("TMATMUL") && !row.first.starts_with("TGEMV") && !row.first.starts_with("TCVT");
  });
  EXPECT_EQ(types, c.types);
  EXPECT_EQ(c.posts.size(), 204U);  // 27 modes x 4 x Sat where the mode allows it
}

TEST(StimulusWrite, CoverageOfRules) {
  const BundleGenerator g = generator({.rules = every_rule()});
  const Written w = written(g, BundleFormat::words, 0, g.full_cycle());
  EXPECT_EQ(w.coverage->undeclared(), 0U);
  const auto groups = w.coverage->groups();
  EXPECT_EQ(groups[0].bins.size(), every_rule().size());
  for (const CoverageGroup& group : groups) EXPECT_EQ(group.hit(), group.bins.size()) << group.name;
  EXPECT_EQ(groups[0].unreachable.size(), 3U);
  const Json json = Json::parse(w.coverage->json());
  EXPECT_EQ(json["bins"], json["hit"]);
  EXPECT_EQ(json["groups"][0]["bins"]["F7"].get<uint64>(), groups[0].bins[45].hits);
}

TEST(StimulusWrite, BinsThatWereNotHitAreListed) {
  const Written w = written(generator({.operations = {isa::Operation::tgemv}}), BundleFormat::words, 0, 1);
  EXPECT_NE(w.coverage->text().find("never hit:\n"), std::string::npos);
  EXPECT_NE(w.coverage->text().find("  types: TGEMV "), std::string::npos);
  EXPECT_EQ(w.coverage->text().find("TMATMUL_MX"), std::string::npos);
}

// ---- Images

/// What $readmemh makes of a file: entries of half-bytes, x where a digit is one.
std::map<uint64, std::string> readmemh(const std::string& text) {
  std::map<uint64, std::string> memory;
  uint64 address = 0;
  for (std::string line : lines_of(text)) {
    if (const std::size_t comment = line.find("//"); comment != std::string::npos) line.resize(comment);
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word.starts_with('@')) {
        address = std::stoull(word.substr(1), nullptr, 16);
        continue;
      }
      EXPECT_EQ(word.size(), 16U);
      EXPECT_EQ(word.find_first_not_of("0123456789ABCDEFx"), std::string::npos);
      EXPECT_TRUE(memory.emplace(address++, word).second);
    }
  }
  return memory;
}

/// Half-byte `index` of entries, lowest first.
char digit(const std::map<uint64, std::string>& memory, uint64 first, std::size_t index) {
  return memory.at(first + index / 16)[15 - index % 16];
}

struct IndexLine {
  std::vector<std::string> cells;
  const std::string& operator[](std::size_t i) const { return cells[i]; }
  uint64 number(std::size_t i) const { return std::stoull(cells[i]); }
};
std::vector<IndexLine> read_index(const std::string& text) {
  std::vector<IndexLine> rows;
  for (const std::string& line : lines_of(text)) {
    IndexLine row;
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) row.cells.push_back(cell);
    row.cells.resize(16);
    rows.push_back(std::move(row));
  }
  rows.erase(rows.begin());
  return rows;
}

/// The elements of a Tile as the image has them, x for none, against the Tile itself.
void expect_tile(const std::map<uint64, std::string>& image, const IndexLine& row, const machine::Tile& tile) {
  const auto& d = tile.descriptor();
  EXPECT_EQ(row[7], tile.format().name);
  EXPECT_EQ(row[8], machine::name_of(d.layout));
  EXPECT_EQ(row.number(9), d.valid_rows);
  EXPECT_EQ(row.number(10), d.valid_columns);
  EXPECT_EQ(row.number(13), d.capacity_bytes);
  const unsigned digits = tile.format().lane_bits / 4U;
  for (std::uint32_t r = 0; r < d.valid_rows; ++r) {
    for (std::uint32_t c = 0; c < d.valid_columns; ++c) {
      std::string text;
      const std::size_t at = tile.index(r, c) * digits;
      for (std::size_t i = digits; i-- > 0;) {
        const bool inside = (at + i) / 16 < row.number(4);
        text += inside ? digit(image, row.number(3), at + i) : 'x';
      }
      const bool defined = tile.defined(r, c);
      ASSERT_EQ(text.find('x') == std::string::npos, defined);
      if (defined) {
        ASSERT_EQ(std::stoull(text, nullptr, 16), tile.element(r, c));
      }
    }
  }
}

void expect_images(const BundleOptions& options, uint64 count) {
  const BundleGenerator g = generator(options);
  const Written w = written(g, BundleFormat::readmemh, 0, count);
  std::vector<std::map<uint64, std::string>> images;
  for (std::size_t i = 0; i < 4; ++i) images.push_back(readmemh(w.files[i]));
  ASSERT_EQ(images[2].size(), images[3].size());
  for (const auto& [address, word] : images[2]) {  // the mask says what x says
    for (std::size_t i = 0; i < 16; ++i) ASSERT_EQ(word[i] == 'x', images[3].at(address)[i] == '0');
  }
  std::map<std::string, uint64> seen;
  std::map<std::string, uint64> next;
  std::optional<Bundle> b;
  std::size_t tiles = 0;
  for (const IndexLine& row : read_index(w.files[4])) {
    if (!b || b->index != row.number(0)) {
      auto made = g.bundle(row.number(0));
      ASSERT_TRUE(made);
      b = std::move(*made);
    }
    ++seen[row[1]];
    if (!row[2].empty()) {  // pieces follow each other without gaps
      ASSERT_EQ(row.number(3), next[row[2]]);
      next[row[2]] += row.number(4);
    }
    if (row[1] == "words") {
      ASSERT_EQ(row.number(4), b->words.size());
      for (std::size_t i = 0; i < b->words.size(); ++i) {
        ASSERT_EQ(std::stoull(images[0].at(row.number(3) + i), nullptr, 16), b->words[i].bits);
      }
    } else if (row[1] == "gpr") {
      const auto value = std::stoull(images[1].at(row.number(3)), nullptr, 16);
      ASSERT_EQ(value, b->before.pe[row.number(5)].gpr[row.number(15)]);
    } else if (row[1] == "tile") {
      const auto name = static_cast<std::size_t>(*isa::find_tile(row[6]));
      const bool after = row[2] == "expected";
      expect_tile(images[after ? 2 : 1], row, *(after ? b->after : b->before).pe[row.number(5)].local[name]);
      if (after) ++tiles;
    } else if (row[1] == "shared") {
      const auto id = static_cast<std::size_t>(*isa::find_shared_tile(row[6]));
      const bool after = row[2] == "expected";
      expect_tile(images[after ? 2 : 1], row, *(after ? b->after : b->before).shared[id].tile);
    } else if (row[1] == "memory") {
      const bool after = row[2] == "expected";
      const uint64 address = std::stoull(row[6], nullptr, 16);
      for (uint64 i = 0; i < row.number(13); ++i) {
        const std::string text{digit(images[after ? 2 : 1], row.number(3), 2 * i + 1),
                               digit(images[after ? 2 : 1], row.number(3), 2 * i)};
        ASSERT_EQ(std::stoul(text, nullptr, 16), (after ? b->after : b->before).memory.byte(address + i));
      }
    } else if (row[1] == "fault") {
      ASSERT_TRUE(b->outcome.fault);
      EXPECT_EQ(row[6], machine::rule(b->outcome.fault->id).name);
      EXPECT_EQ(row[15], machine::name_of(b->outcome.fault->fault_class()));
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "bundle " << b->index << " " << row[1];
  }
  EXPECT_EQ(seen["bundle"], count);
  EXPECT_EQ(seen["words"], count);
  if (options.rules.empty()) {
    EXPECT_EQ(seen["flags"], count);
    EXPECT_GT(tiles, count / 2);
    EXPECT_GT(seen["memory"], 0U);
    EXPECT_GT(seen["shared"], 0U);
  } else {
    EXPECT_EQ(seen["fault"], count);
  }
}

TEST(StimulusWrite, LegalImages) {
  expect_images({.seed = 4}, 400);
}
TEST(StimulusWrite, IllegalImages) {
  expect_images({.seed = 4, .rules = every_rule()}, 300);
}

// ---- JSON

TEST(StimulusWrite, JsonLines) {
  const BundleGenerator g = generator({.seed = 6});
  const auto lines = lines_of(written(g, BundleFormat::json_lines, 10, 200).files[0]);
  ASSERT_EQ(lines.size(), 200U);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json json = Json::parse(lines[i]);
    const auto b = g.bundle(10 + i);
    ASSERT_TRUE(b);
    ASSERT_EQ(json["bundle"].get<uint64>(), 10 + i);
    EXPECT_TRUE(json["rule"].is_null() && json["expected"]["fault"].is_null());
    ASSERT_EQ(json["words"].size(), b->words.size());
    for (std::size_t w = 0; w < b->words.size(); ++w) {
      EXPECT_EQ(std::stoull(json["words"][w].get<std::string>(), nullptr, 16), b->words[w].bits);
      const auto again = isa::assemble_line(json["text"][w].get<std::string>());
      ASSERT_TRUE(again);
      EXPECT_EQ(*again, std::vector{b->words[w]});
    }
    ASSERT_EQ(json["expected"]["tiles"].size(), b->outcome.tiles.size());
    for (std::size_t t = 0; t < b->outcome.tiles.size(); ++t) {
      std::istringstream elements(json["expected"]["tiles"][t]["elements"].get<std::string>());
      std::vector<uint64> words;
      for (std::string e; elements >> e;) words.push_back(std::stoull(e, nullptr, 16));
      EXPECT_EQ(words, b->outcome.tiles[t].tile->valid_words());
    }
  }
}

// ---- Determinism

TEST(StimulusWrite, ThreadsAndRangesDoNotMatter) {
  for (const BundleFormatInfo& format : bundle_formats()) {
    const BundleGenerator g = generator({.seed = 8, .rules = {machine::RuleId::F7, machine::RuleId::T12}});
    const Written one = written(g, format.format, 0, 300, 1);
    const Written many = written(g, format.format, 0, 300, 4);
    EXPECT_EQ(one.files, many.files) << format.name;
    EXPECT_EQ(one.coverage->json(), many.coverage->json());
    if (format.format == BundleFormat::readmemh) continue;  // entries are counted from the start of the file
    const Written first = written(g, format.format, 0, 111);
    const Written rest = written(g, format.format, 111, 189);
    std::string tail = rest.files[0];
    if (format.format != BundleFormat::json_lines) tail.erase(0, tail.find('\n') + 1);  // the line that names the run
    EXPECT_EQ(first.files[0] + tail, one.files[0]) << format.name;
  }
}

TEST(StimulusWrite, ErrorsOfTheSinkEndTheRun) {
  const auto result = write_bundles(generator({}), BundleFormat::words, {0, 10, {}},
                                    [](std::size_t, std::string_view) -> Expected<void> { return Error{"full"}; });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "full");
  EXPECT_FALSE(write_bundles(generator({}), BundleFormat::words, {~uint64{0}, 2, {}},
                             [](std::size_t, std::string_view) -> Expected<void> { return {}; }));
}

}  // namespace
}  // namespace bitcube::stimulus
