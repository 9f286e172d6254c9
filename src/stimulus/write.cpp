#include "bitcube/stimulus/write.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>

#include "bitcube/isa/text.hpp"
#include "bitcube/numeric/text.hpp"
#include "guarded.hpp"
#include "team_work.hpp"

namespace bitcube::stimulus {
namespace {

using machine::Tile;
using machine::TileDescriptor;
using machine::TileRef;

constexpr uint64 kChunk = 64;        // bundles that one thread makes at a time
constexpr uint64 kChunksAhead = 32;  // in memory
constexpr std::size_t kImages = 4;   // words, state, expected, care
constexpr std::size_t kIndex = 4;    // the file behind them
constexpr std::array<std::string_view, kImages> kImageNames{"words", "state", "expected", "care"};
constexpr std::array<std::string_view, 1> kOneFile{""};
constexpr std::array<std::string_view, kImages + 1> kImageFiles{".words.hex", ".state.hex", ".expected.hex",
                                                                ".care.hex", ".index.csv"};

constexpr std::array<BundleFormatInfo, 4> kFormats{{
    {BundleFormat::assembly, "asm", "a program that bitcube run checks", kOneFile},
    {BundleFormat::words, "words", "instruction words in hexadecimal, one a line", kOneFile},
    {BundleFormat::readmemh, "readmemh", "memory images of words, state and results, with an index", kImageFiles},
    {BundleFormat::json_lines, "jsonl", "one JSON object per bundle", kOneFile},
}};

template <typename... Arguments>
void put(std::string& text, fmt::format_string<Arguments...> form, Arguments&&... arguments) {
  fmt::format_to(std::back_inserter(text), form, std::forward<Arguments>(arguments)...);
}

std::string_view type_name(DataType type) {
  const Format* f = find_format(static_cast<unsigned>(type));
  return f == nullptr ? "-" : f->name;
}
std::string flags_text(Flags flags) {
  std::string text;
  for (const FlagName& row : flag_names) {
    if (has(flags, row.flag)) put(text, "{}{}", text.empty() ? "" : " ", row.name);
  }
  return text.empty() ? "none" : text;
}
bool committed(const Bundle& b) {
  return !b.outcome.fault || b.outcome.fault->fault_class() == machine::FaultClass::bundle_post_commit;
}

/// "TMATMUL E4M3 x BF16, 5 x 8 x 32; legal".
std::string title(const Bundle& b) {
  std::string text = fmt::format("{} {}", name_of(b.operation), type_name(b.a));
  if (b.b != DataType::none) put(text, " {} {}", isa::is_cube(b.operation) ? "x" : "->", type_name(b.b));
  put(text, ", {} x {}", b.m, b.n);
  if (b.k != 0) put(text, " x {}", b.k);
  put(text, "; {}{}", b.rule ? "breaks " : "legal", b.rule ? machine::rule(*b.rule).name : "");
  return text;
}

// ---- What a bundle starts from, for all formats

template <typename Body>
void for_each_local(const machine::State& state, const Body& body) {
  for (unsigned pe = 0; pe < machine::pe_count; ++pe) {
    for (unsigned name = 0; name < machine::local_tiles; ++name) {
      if (const TileRef& tile = state.pe[pe].local[name]) body(pe, name, *tile);
    }
  }
}
template <typename Body>
void for_each_shared(const machine::State& state, const Body& body) {
  for (unsigned id = 0; id < machine::shared_tiles; ++id) {
    if (state.shared[id].tile) body(id, state.shared[id]);
  }
}

// ---- Programs

void put_elements(std::string& text, const Tile& tile) {
  const std::vector<uint64> words = tile.valid_words();
  const bool equal = std::all_of(words.begin(), words.end(), [&](uint64 w) { return w == words.front(); });
  if (equal && words.size() > 1) {
    put(text, " all 0x{:X}", words.front());
    return;
  }
  for (const uint64 w : words) put(text, " 0x{:X}", w);
}

/// "CUBE_M16 FP32 2 2 capacity=128".
void put_shape(std::string& text, const TileDescriptor& d, bool shared, unsigned owner) {
  if (!shared) put(text, "{} ", machine::name_of(d.layout));
  put(text, "{} {} {}", type_name(d.type), d.valid_rows, d.valid_columns);
  if (shared && d.layout != machine::TileLayout::row_major) put(text, " layout={}", machine::name_of(d.layout));
  if (!machine::is_cube(d.layout)) put(text, " columns={}", d.columns);
  put(text, " capacity={}", d.capacity_bytes);
  if (d.allocation_mask != owner) put(text, " mask={:04b}", d.allocation_mask);
}

/// Elements of the valid region that hold no value.
template <typename Body>
void for_each_undefined(const Tile& tile, const Body& body) {
  if (tile.definedness().extent() != machine::Definedness::Extent::bits) return;
  const TileDescriptor& d = tile.descriptor();
  for (std::uint32_t r = 0; r < d.valid_rows; ++r) {
    for (std::uint32_t c = 0; c < d.valid_columns; ++c) {
      if (!tile.defined(r, c)) body(r, c);
    }
  }
}

void put_bytes(std::string& text, const machine::Memory& memory, const MemoryRange& range) {
  for (uint64 i = 0; i < range.size; ++i) put(text, " {:02X}", memory.byte(range.address + i));
}

std::string assembly(const Bundle& b) {
  const machine::State& s = b.before;
  std::string text = fmt::format("# bundle {}: {}\n.reset\n", b.index, title(b));
  if (s.options.name_policy == machine::NamePolicy::absolute) text += ".option name_policy absolute\n";
  for (unsigned pe = 0; pe < machine::pe_count; ++pe) {
    std::string values;
    for (unsigned r = 1; r < machine::gpr_count; ++r) {
      const uint64 value = s.pe[pe].gpr[r];
      if (value != 0)
        put(values, "{}{} = 0x{:X}", values.empty() ? " " : ", ", isa::gpr_name(static_cast<int>(r)), value);
    }
    if (!values.empty()) put(text, ".gpr {}{}\n", pe, values);
  }
  for (const MemoryRange& range : b.memory) {
    if (range.written) {
      put(text, ".memory 0x{:X} zero {}\n", range.address, range.size);
    } else {
      put(text, ".memory 0x{:X} bytes", range.address);
      put_bytes(text, s.memory, range);
      text += '\n';
    }
  }
  for_each_local(s, [&](unsigned pe, unsigned name, const Tile& tile) {
    const std::string tile_name = isa::tile_name(static_cast<int>(name));
    put(text, ".tile {} {} ", pe, tile_name);
    put_shape(text, tile.descriptor(), false, machine::pe_bit(pe));
    text += " =";
    put_elements(text, tile);
    text += '\n';
    for_each_undefined(
        tile, [&](std::uint32_t r, std::uint32_t c) { put(text, ".undefine {} {} {} {}\n", pe, tile_name, r, c); });
  });
  for_each_shared(s, [&](unsigned id, const machine::SharedRecord& record) {
    put(text, ".shared S{} ", id);
    put_shape(text, record.tile->descriptor(), true, machine::full_mask);
    text += " =";
    put_elements(text, *record.tile);
    text += '\n';
    if (!record.published) put(text, ".pending S{}\n", id);
  });
  for (const isa::Word& word : b.words) put(text, "{}\n", isa::disassemble(word));
  if (b.outcome.fault) {
    const machine::Fault& fault = *b.outcome.fault;
    put(text, ".expect fault {} {}", machine::name_of(fault.fault_class()), machine::rule(fault.id).name);
    if (fault.pe >= 0) put(text, " PE{}", static_cast<int>(fault.pe));
    text += '\n';
  }
  if (!committed(b)) return text + ".expect unchanged\n\n";
  for (const machine::PublishedTile& t : b.outcome.tiles) {
    put(text, ".expect tile {} {} ", t.pe, isa::tile_name(static_cast<int>(t.name)));
    put_shape(text, t.tile->descriptor(), false, 0);
    text += " ==";
    put_elements(text, *t.tile);
    text += '\n';
  }
  if (b.outcome.shared) {
    put(text, ".expect shared S{} ", b.outcome.shared->id);
    put_shape(text, b.outcome.shared->tile->descriptor(), true, 0);
    text += " ==";
    put_elements(text, *b.outcome.shared->tile);
    text += '\n';
  }
  for (const MemoryRange& range : b.memory) {
    if (!range.written) continue;
    put(text, ".expect memory 0x{:X} == bytes", range.address);
    put_bytes(text, b.after.memory, range);
    text += '\n';
  }
  put(text, ".expect flags {}\n\n", flags_text(b.after.flags));
  return text;
}

// ---- Words

std::string words(const Bundle& b) {
  std::string text = fmt::format("// bundle {}: {}\n", b.index, title(b));
  for (const isa::Word& word : b.words) put(text, "{:0{}X}\n", word.bits, 2 * word.length);
  return text;
}

// ---- Images

/// What is stored, and which half-bytes hold a value.
struct Stored {
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> care;
};

Stored stored(const Tile& tile) {
  using Extent = machine::Definedness::Extent;
  const TileDescriptor& d = tile.descriptor();
  Stored out{{tile.bytes().begin(), tile.bytes().end()}, std::vector<std::uint8_t>(tile.bytes().size(), 0)};
  const unsigned bits = tile.format().lane_bits;
  const bool everywhere = tile.definedness().extent() == Extent::all;
  const std::uint32_t rows = everywhere ? d.rows : d.valid_rows;
  const std::uint32_t columns = everywhere ? d.columns : d.valid_columns;
  for (std::uint32_t r = 0; r < rows; ++r) {
    for (std::uint32_t c = 0; c < columns; ++c) {
      if (!tile.defined(r, c)) continue;
      const std::size_t i = tile.index(r, c);
      if (bits == 4) {
        out.care[i / 2] = static_cast<std::uint8_t>(out.care[i / 2] | 0xFU << (4 * (i % 2)));
      } else {
        std::fill_n(out.care.begin() + static_cast<std::ptrdiff_t>(i * bits / 8), bits / 8, std::uint8_t{0xFF});
      }
    }
  }
  // What lies behind the last value is not part of the image.
  std::size_t end = out.care.size();
  while (end > 0 && out.care[end - 1] == 0) --end;
  end = (end + 7) / 8 * 8;
  out.bytes.resize(end);
  out.care.resize(end);
  return out;
}

Stored stored(const machine::Memory& memory, const MemoryRange& range) {
  Stored out{memory.read(range.address, range.size), std::vector<std::uint8_t>(range.size, 0xFF)};
  const std::size_t end = (range.size + 7) / 8 * 8;
  out.bytes.resize(end, 0);
  out.care.resize(end, 0);
  return out;
}

/// One line of the index; `first` counts from the entries of the bundle, and the writer adds what is before.
struct IndexRow {
  std::string kind;
  std::size_t image = kImages;  // kImages: none
  uint64 first = 0;
  uint64 count = 0;
  std::string rest;  // pe to value
};

/// The pieces of one bundle in all files.
struct Rendered {
  std::array<std::string, kImages + 1> text{};
  std::array<uint64, kImages> entries{};
  std::vector<IndexRow> rows{};
};

// For another rank, and from there.
nlohmann::json to_json(const Rendered& r) {
  nlohmann::json rows = nlohmann::json::array();
  for (const IndexRow& row : r.rows) rows.push_back({row.kind, row.image, row.first, row.count, row.rest});
  return {r.text, r.entries, std::move(rows)};
}
Rendered rendered(const nlohmann::json& json) {
  Rendered out{.text = json.at(0), .entries = json.at(1)};
  for (const auto& row : json.at(2)) out.rows.push_back({row.at(0), row.at(1), row.at(2), row.at(3), row.at(4)});
  return out;
}

class ImageMaker {
 public:
  explicit ImageMaker(const Bundle& b) : b_(b) {}

  Rendered make() {
    const machine::State& s = b_.before;
    const std::string rule = b_.rule ? std::string(machine::rule(*b_.rule).name) : "legal";
    row("bundle", kImages, 0,
        fmt::format(",{},{},,{},{},,,,,{}", name_of(b_.operation), type_name(b_.a), b_.m, b_.n, rule));
    for (const isa::Word& word : b_.words) put(out_.text[0], "{:016X}\n", word.bits);
    row("words", 0, b_.words.size(), ",,,,,,,,,,");
    if (s.options.name_policy == machine::NamePolicy::absolute) {
      row("option", kImages, 0, ",name_policy,,,,,,,,,absolute");
    }
    for (unsigned pe = 0; pe < machine::pe_count; ++pe) {
      for (unsigned r = 1; r < machine::gpr_count; ++r) {
        if (s.pe[pe].gpr[r] == 0) continue;
        put(out_.text[1], "{:016X}\n", s.pe[pe].gpr[r]);
        row("gpr", 1, 1, fmt::format("{},{},,,,,,,,,{}", pe, isa::gpr_name(static_cast<int>(r)), r));
      }
    }
    for (const MemoryRange& range : b_.memory) memory(range, s.memory, 1);
    for_each_local(s, [&](unsigned pe, unsigned name, const Tile& t) {
      tile("tile", std::to_string(pe), isa::tile_name(static_cast<int>(name)), t, 1, "");
    });
    for_each_shared(s, [&](unsigned id, const machine::SharedRecord& record) {
      tile("shared", "", isa::shared_tile_name(static_cast<int>(id)), *record.tile, 1,
           record.published ? "" : "pending");
    });
    if (b_.outcome.fault) {
      const machine::Fault& f = *b_.outcome.fault;
      row("fault", kImages, 0,
          fmt::format("{},{},,,,,,,,,{}", f.pe < 0 ? std::string() : std::to_string(int{f.pe}),
                      machine::rule(f.id).name, machine::name_of(f.fault_class())));
    }
    if (!committed(b_)) return std::move(out_);
    for (const machine::PublishedTile& t : b_.outcome.tiles) {
      tile("tile", std::to_string(t.pe), isa::tile_name(static_cast<int>(t.name)), *t.tile, 2,
           machine::name_of(t.role));
    }
    if (b_.outcome.shared) {
      tile("shared", "", isa::shared_tile_name(static_cast<int>(b_.outcome.shared->id)), *b_.outcome.shared->tile, 2,
           "");
    }
    for (const MemoryRange& range : b_.memory) {
      if (range.written) memory(range, b_.after.memory, 2);
    }
    row("flags", kImages, 0, fmt::format(",,,,,,,,,,{}", flags_text(b_.after.flags)));
    return std::move(out_);
  }

 private:
  void row(std::string kind, std::size_t image, uint64 count, std::string rest) {
    const uint64 first = image < kImages ? out_.entries[image] : 0;
    if (image < kImages) out_.entries[image] += count;
    out_.rows.push_back({std::move(kind), image, first, count, std::move(rest)});
  }

  /// Entries of 64 bits, lowest byte at the right; a half-byte without a value is x. Returns their number.
  uint64 entries(const Stored& data, std::size_t image) {
    std::string& text = out_.text[image];
    for (std::size_t at = 0; at < data.bytes.size(); at += 8) {
      for (std::size_t i = 8; i-- > 0;) {
        for (const unsigned shift : {4U, 0U}) {
          const bool care = (data.care[at + i] >> shift & 0xF) != 0;
          text += care ? "0123456789ABCDEF"[data.bytes[at + i] >> shift & 0xF] : 'x';
        }
      }
      text += '\n';
      if (image != 2) continue;
      for (std::size_t i = 8; i-- > 0;) put(out_.text[3], "{:02X}", data.care[at + i]);
      out_.text[3] += '\n';
    }
    if (image == 2) out_.entries[3] += data.bytes.size() / 8;
    return data.bytes.size() / 8;
  }

  void tile(std::string_view kind, const std::string& pe, const std::string& name, const Tile& t, std::size_t image,
            std::string_view value) {
    const TileDescriptor& d = t.descriptor();
    const uint64 count = entries(stored(t), image);
    row(std::string(kind), image, count,
        fmt::format("{},{},{},{},{},{},{},{},{},{:04b},{}", pe, name, type_name(d.type), machine::name_of(d.layout),
                    d.valid_rows, d.valid_columns, d.rows, d.columns, d.capacity_bytes, d.allocation_mask, value));
  }
  void memory(const MemoryRange& range, const machine::Memory& contents, std::size_t image) {
    const uint64 count = entries(stored(contents, range), image);
    row("memory", image, count, fmt::format(",0x{:X},,,,,,,{},,", range.address, range.size));
  }

  const Bundle& b_;
  Rendered out_;
};

// ---- JSON

using Json = nlohmann::ordered_json;

Json tile_json(const Tile& tile) {
  const TileDescriptor& d = tile.descriptor();
  std::string elements;
  const int digits = (tile.format().lane_bits + 3) / 4;
  for (const uint64 w : tile.valid_words()) put(elements, "{}{:0{}X}", elements.empty() ? "" : " ", w, digits);
  Json json{{"type", type_name(d.type)},
            {"layout", machine::name_of(d.layout)},
            {"rows", d.valid_rows},
            {"columns", d.valid_columns},
            {"physical", {d.rows, d.columns}},
            {"capacity", d.capacity_bytes},
            {"mask", fmt::format("{:04b}", d.allocation_mask)},
            {"elements", elements}};
  Json undefined = Json::array();
  for_each_undefined(tile, [&](std::uint32_t r, std::uint32_t c) { undefined.push_back({r, c}); });
  if (!undefined.empty()) json["undefined"] = undefined;
  return json;
}

Json memory_json(const machine::Memory& memory, const MemoryRange& range) {
  std::string bytes;
  for (uint64 i = 0; i < range.size; ++i) put(bytes, "{}{:02X}", i == 0 ? "" : " ", memory.byte(range.address + i));
  return {{"address", fmt::format("0x{:X}", range.address)}, {"bytes", bytes}};
}

std::string json_line(const Bundle& b) {
  const machine::State& s = b.before;
  Json code = Json::array();
  Json text = Json::array();
  for (const isa::Word& word : b.words) {
    code.push_back(fmt::format("{:0{}X}", word.bits, 2 * word.length));
    text.push_back(isa::disassemble(word));
  }
  Json gpr = Json::array();
  for (unsigned pe = 0; pe < machine::pe_count; ++pe) {
    Json registers = Json::object();
    for (unsigned r = 1; r < machine::gpr_count; ++r) {
      if (s.pe[pe].gpr[r] == 0) continue;
      registers[std::string(isa::gpr_name(static_cast<int>(r)))] = fmt::format("0x{:X}", s.pe[pe].gpr[r]);
    }
    gpr.push_back(registers);
  }
  Json tiles = Json::array();
  for_each_local(s, [&](unsigned pe, unsigned name, const Tile& tile) {
    Json json{{"pe", pe}, {"tile", isa::tile_name(static_cast<int>(name))}};
    json.update(tile_json(tile));
    tiles.push_back(std::move(json));
  });
  Json shared = Json::array();
  for_each_shared(s, [&](unsigned id, const machine::SharedRecord& record) {
    Json json{{"tile", isa::shared_tile_name(static_cast<int>(id))}, {"ready", record.published}};
    json.update(tile_json(*record.tile));
    shared.push_back(std::move(json));
  });
  Json memory = Json::array();
  for (const MemoryRange& range : b.memory) memory.push_back(memory_json(s.memory, range));

  Json expected = Json::object();
  expected["fault"] = nullptr;
  if (b.outcome.fault) {
    const machine::Fault& f = *b.outcome.fault;
    expected["fault"] = Json{{"class", machine::name_of(f.fault_class())},
                             {"rule", machine::rule(f.id).name},
                             {"pe", f.pe < 0 ? Json(nullptr) : Json(int{f.pe})}};
  }
  expected["tiles"] = Json::array();
  expected["shared"] = Json::array();
  expected["memory"] = Json::array();
  if (committed(b)) {
    for (const machine::PublishedTile& t : b.outcome.tiles) {
      Json json{{"pe", t.pe}, {"tile", isa::tile_name(static_cast<int>(t.name))}, {"role", machine::name_of(t.role)}};
      json.update(tile_json(*t.tile));
      expected["tiles"].push_back(std::move(json));
    }
    if (b.outcome.shared) {
      Json json{{"tile", isa::shared_tile_name(static_cast<int>(b.outcome.shared->id))}};
      json.update(tile_json(*b.outcome.shared->tile));
      expected["shared"].push_back(std::move(json));
    }
    for (const MemoryRange& range : b.memory) {
      if (range.written) expected["memory"].push_back(memory_json(b.after.memory, range));
    }
  }
  expected["flags"] = Json::array();
  for (const FlagName& row : flag_names) {
    if (committed(b) && has(b.after.flags, row.flag)) expected["flags"].push_back(row.name);
  }
  const bool absolute = s.options.name_policy == machine::NamePolicy::absolute;
  const Json json{{"bundle", b.index},
                  {"operation", name_of(b.operation)},
                  {"a", type_name(b.a)},
                  {"b", b.b == DataType::none ? Json(nullptr) : Json(type_name(b.b))},
                  {"m", b.m},
                  {"n", b.n},
                  {"k", b.k},
                  {"rule", b.rule ? Json(machine::rule(*b.rule).name) : Json(nullptr)},
                  {"words", code},
                  {"text", text},
                  {"name_policy", absolute ? "absolute" : "relative"},
                  {"gpr", gpr},
                  {"tiles", tiles},
                  {"shared", shared},
                  {"memory", memory},
                  {"expected", expected}};
  return json.dump() + "\n";
}

Rendered render(const Bundle& b, BundleFormat format) {
  Rendered out;
  switch (format) {
    case BundleFormat::assembly:
      out.text[0] = assembly(b);
      break;
    case BundleFormat::words:
      out.text[0] = words(b);
      break;
    case BundleFormat::json_lines:
      out.text[0] = json_line(b);
      break;
    case BundleFormat::readmemh:
      return ImageMaker(b).make();
  }
  return out;
}

// ---- All of them

class Writer {
 public:
  Writer(const BundleGenerator& generator, BundleFormat format, const BundleSink& sink)
      : generator_(generator), format_(format), sink_(sink) {}

  Expected<void> head() {
    const std::string options = fmt::format("seed {}", generator_.options().seed);
    if (format_ == BundleFormat::json_lines) return {};
    if (format_ != BundleFormat::readmemh) {
      return sink_(0,
                   fmt::format("{} bitcube gen bundle, {}\n", format_ == BundleFormat::assembly ? "#" : "//", options));
    }
    constexpr std::array<std::string_view, kImages> meanings{
        "instruction words, one an entry", "registers, memory and Tiles before the bundle", "Tiles and memory after it",
        "1 where a bit of the expected image counts"};
    for (std::size_t i = 0; i < kImages; ++i) {
      const auto text = fmt::format("// bitcube gen bundle, {}: {}; 64 bits an entry\n", options, meanings[i]);
      if (auto ok = sink_(i, text); !ok) return ok;
    }
    return sink_(
        kIndex,
        "bundle,kind,image,first,count,pe,name,type,layout,rows,columns,physical_rows,physical_columns,capacity,"
        "mask,value\n");
  }

  Expected<void> add(uint64 index, Rendered r) {
    if (format_ != BundleFormat::readmemh) return sink_(0, r.text[0]);
    for (std::size_t i = 0; i < kImages; ++i) {
      if (r.entries[i] == 0) continue;
      if (auto ok = sink_(i, fmt::format("@{:X} // bundle {}\n", entries_[i], index) + r.text[i]); !ok) return ok;
    }
    for (const IndexRow& row : r.rows) {
      if (row.image == kImages) {
        put(r.text[kIndex], "{},{},,,,{}\n", index, row.kind, row.rest);
      } else {
        put(r.text[kIndex], "{},{},{},{},{},{}\n", index, row.kind, kImageNames[row.image],
            entries_[row.image] + row.first, row.count, row.rest);
      }
    }
    for (std::size_t i = 0; i < kImages; ++i) entries_[i] += r.entries[i];
    return sink_(kIndex, r.text[kIndex]);
  }

 private:
  const BundleGenerator& generator_;
  BundleFormat format_;
  const BundleSink& sink_;
  std::array<uint64, kImages> entries_{};
};

Expected<Coverage> write(const BundleGenerator& generator, BundleFormat format, const BundleRange& range,
                         const BundleSink& sink) {
  struct Chunk {
    std::vector<Rendered> bundles;
    std::optional<Coverage> coverage;
    std::optional<Error> error;
  };
  if (range.count > ~range.first) return Error{"count: the indices do not fit 64 bits"};
  Team& team = team_of(range.execution);
  const std::string same = fmt::format("{} {} {}", range.first, range.count, Coverage(generator).state().size());
  if (auto agreed = agree(team, "gen", same); !agreed) return agreed.error();
  const uint64 wave = kChunk * kChunksAhead * team.size();
  Coverage total(generator);
  const Coverage none = total;
  Writer writer(generator, format, sink);
  if (team.leads()) {
    if (auto ok = writer.head(); !ok) return ok.error();
  }
  for (uint64 done = 0; done < range.count;) {
    const uint64 ahead = std::min(range.count - done, wave);
    std::vector<Chunk> chunks((ahead + kChunk - 1) / kChunk);
    Execution execution = range.execution;
    if (execution.progress) {
      execution.progress = [&](std::size_t finished, std::size_t) {
        range.execution.progress(std::min<uint64>(range.count, done + finished * kChunk), range.count);
      };
    }
    for_own_pieces(team, chunks.size(), execution, [&](std::size_t c) {
      Chunk& chunk = chunks[c];
      chunk.coverage = none;
      const uint64 end = std::min(ahead, (c + 1) * kChunk);
      for (uint64 i = c * kChunk; i < end; ++i) {
        throw_if_cancelled(execution);  // a chunk takes a while
        const auto bundle = generator.bundle(range.first + done + i);
        if (!bundle) {
          chunk.error = bundle.error();
          return;
        }
        chunk.coverage->sample(*bundle);
        chunk.bundles.push_back(render(*bundle, format));
      }
    });
    nlohmann::json mine = nlohmann::json::array();
    for (const Chunk& chunk : chunks) {
      if (chunk.error) return *chunk.error;
      if (!chunk.coverage) continue;  // another rank's
      total.merge(*chunk.coverage);
      if (team.leads()) continue;
      for (const Rendered& r : chunk.bundles) mine.push_back(to_json(r));
    }
    const auto all = team.gather(pack(mine));
    if (!all) return all.error();
    std::vector<nlohmann::json> others(all->size());
    std::vector<std::size_t> next(all->size());
    for (std::size_t rank = 1; rank < all->size(); ++rank) others[rank] = nlohmann::json::from_cbor((*all)[rank]);
    for (uint64 i = 0; i < ahead && team.leads(); ++i) {
      if (i % kChunk == 0) throw_if_cancelled(execution);  // text for a disk takes a while, too
      const std::size_t rank = i / kChunk % team.size();
      auto ok = writer.add(range.first + done + i, rank == 0 ? std::move(chunks[i / kChunk].bundles[i % kChunk])
                                                             : rendered(others[rank].at(next[rank]++)));
      if (!ok) return ok.error();
    }
    done += ahead;
  }
  const std::vector<uint64> counts = total.state();
  const auto all = team.gather_all(nlohmann::json(counts).dump());
  if (!all) return all.error();
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    if (rank != team.rank()) total.merge_state(nlohmann::json::parse((*all)[rank]).get<std::vector<uint64>>());
  }
  return total;
}

}  // namespace

std::span<const BundleFormatInfo> bundle_formats() noexcept {
  return kFormats;
}

const BundleFormatInfo* find_bundle_format(std::string_view name) noexcept {
  for (const BundleFormatInfo& row : kFormats) {
    if (equal_ignoring_case(row.name, name)) return &row;
  }
  return nullptr;
}

Expected<Coverage> write_bundles(const BundleGenerator& generator, BundleFormat format, const BundleRange& range,
                                 const BundleSink& sink) {
  return guarded("gen", [&] { return write(generator, format, range, sink); });
}

}  // namespace bitcube::stimulus
