// One function per directive: tokens in, a statement out. docs/programs.md describes each.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bitcube/io/file.hpp"
#include "image.hpp"
#include "matrix.hpp"
#include "names.hpp"

namespace bitcube::program {
namespace {

namespace fs = std::filesystem;
using machine::Core;
using machine::State;
using machine::Tile;
using machine::TileLayout;
using machine::TileRef;

constexpr uint64 largest_image = uint64{1} << 30;  // bytes of one .memory

template <typename Body>
void for_each_pe(unsigned mask, const Body& body) {
  for (unsigned pe = 0; pe < machine::pe_count; ++pe) {
    if ((mask & machine::pe_bit(pe)) != 0) body(pe);
  }
}

/// A row of a table by its name; the error lists what is legal.
template <typename Row, typename Find>
const Row* read_named(Reader& reader, std::string_view what, std::span<const Row> table, const Find& find) {
  const Token at = reader.peek();
  const std::string_view text = reader.word(what);
  if (!reader.ok()) return nullptr;
  const Row* row = find(text);
  if (row != nullptr) return row;
  std::vector<std::string_view> names;
  for (const Row& r : table) names.push_back(r.name);
  reader.fail(at, fmt::format("'{}' is no {}{} (legal: {})", text, what, hint(text, names), list_of(names)));
  return nullptr;
}

bool read_switch(Reader& reader) {
  if (reader.accept("on") || reader.accept("1")) return true;
  if (reader.accept("off") || reader.accept("0")) return false;
  reader.expected("on or off");
  return false;
}

// ---- .option

constexpr std::array<std::string_view, 9> option_names{"name_policy",          "wait_on_pending", "coop_exact_columns",
                                                       "aux_exact_columns",    "gemv_hif4",       "scalar_pe",
                                                       "strict_reserved_bits", "accumulation",    "conversion"};

std::function<void(Core&)> read_option(Reader& reader) {
  const Token at = reader.peek();
  const std::string_view name = reader.word("the name of an option");
  if (!reader.ok()) return {};
  const auto flag = [&](bool machine::Options::*member) -> std::function<void(Core&)> {
    const bool value = read_switch(reader);
    return [=](Core& core) { core.state().options.*member = value; };
  };
  using machine::Options;
  if (equal_ignoring_case(name, "wait_on_pending")) return flag(&Options::wait_on_pending);
  if (equal_ignoring_case(name, "coop_exact_columns")) return flag(&Options::coop_exact_columns);
  if (equal_ignoring_case(name, "aux_exact_columns")) return flag(&Options::aux_exact_columns);
  if (equal_ignoring_case(name, "gemv_hif4")) return flag(&Options::gemv_hif4);
  if (equal_ignoring_case(name, "strict_reserved_bits")) return flag(&Options::strict_reserved_bits);
  if (equal_ignoring_case(name, "name_policy")) {
    const bool absolute = reader.accept("absolute");
    if (!absolute && !reader.accept("relative")) reader.expected("relative or absolute");
    const auto policy = absolute ? machine::NamePolicy::absolute : machine::NamePolicy::relative;
    return [=](Core& core) { core.state().options.name_policy = policy; };
  }
  if (equal_ignoring_case(name, "scalar_pe")) {
    const auto pe = static_cast<unsigned>(reader.number("a PE", 0, machine::pe_count - 1));
    return [=](Core& core) { core.state().options.scalar_pe = pe; };
  }
  if (equal_ignoring_case(name, "accumulation")) {
    const auto* row =
        read_named(reader, "accumulation profile", std::span<const AccumulationProfile>(accumulation_profiles),
                   find_accumulation_profile);
    return [=](Core& core) { core.state().options.accumulation = row; };
  }
  if (equal_ignoring_case(name, "conversion")) {
    const auto* row = read_named(reader, "conversion profile", std::span<const ConversionProfile>(conversion_profiles),
                                 find_conversion_profile);
    return [=](Core& core) { core.state().options.conversion = row; };
  }
  reader.fail(at,
              fmt::format("unknown option '{}'{} (legal: {})", name, hint(name, option_names), list_of(option_names)));
  return {};
}

// ---- .gpr

struct GprValue {
  unsigned reg = 0;
  uint64 value = 0;
};

/// A 64-bit value: hexadecimal, decimal with or without a sign, or fp32:VALUE for the bits of an FP32 number.
uint64 read_scalar(Reader& reader) {
  constexpr std::string_view what = "a 64-bit number (0x…, decimal, or fp32:1.5)";
  const Token at = reader.peek();
  std::string_view text = reader.word(what);
  if (!reader.ok()) return 0;
  constexpr std::string_view prefix = "fp32:";
  if (text.size() > prefix.size() && equal_ignoring_case(text.substr(0, prefix.size()), prefix)) {
    uint64 lane = 0;
    if (std::string wrong = parse_lane(fp32, text.substr(prefix.size()), lane); !wrong.empty()) {
      reader.fail(at, std::move(wrong));
    }
    return lane;
  }
  const bool negative = text.front() == '-';
  const auto value = parse_unsigned(negative ? text.substr(1) : text);
  if (!value || (negative && *value > uint64{1} << 63)) {
    reader.fail(at, fmt::format("expected {}, found '{}'", what, at.text));
    return 0;
  }
  return negative ? ~*value + 1 : *value;
}

std::vector<GprValue> read_gprs(Reader& reader, std::string_view relation) {
  std::vector<GprValue> values;
  do {
    const Token at = reader.peek();
    GprValue v{reader.gpr(), 0};
    if (reader.ok() && v.reg == 0 && relation == "=") reader.fail(at, "zero is always 0; expected another register");
    reader.expect(relation);
    v.value = read_scalar(reader);
    values.push_back(v);
  } while (reader.ok() && reader.accept(","));
  return values;
}

// ---- .tile, .shared

/// LAYOUT TYPE ROWS COLUMNS [columns=N] [capacity=N] [mask=M]; a Shared Tile has layout=LAYOUT among the options.
struct TileShape {
  TileLayout layout = TileLayout::row_major;
  const Format* format = nullptr;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  std::uint32_t physical = 0;
  std::uint32_t capacity = 0;
  unsigned mask = 0;
};

TileLayout read_layout(Reader& reader) {
  const Token at = reader.peek();
  const std::string_view text = reader.word("a layout (RowMajor, CUBE_M16, …)");
  if (!reader.ok()) return {};
  if (const auto layout = find_layout(text)) return *layout;
  reader.fail(
      at, fmt::format("unknown layout '{}'{} (legal: {})", text, hint(text, layout_names()), list_of(layout_names())));
  return {};
}

TileShape read_shape(Reader& reader, bool shared) {
  TileShape s;
  s.layout = shared ? TileLayout::row_major : read_layout(reader);
  s.format = reader.type();
  s.rows = static_cast<std::uint32_t>(reader.number("the number of rows", 1, machine::extent_limit));
  s.columns = static_cast<std::uint32_t>(reader.number("the number of columns", 1, machine::extent_limit));
  for (;;) {
    if (reader.accept("columns")) {
      reader.expect("=");
      s.physical = static_cast<std::uint32_t>(reader.number("the physical columns", 1, machine::extent_limit));
    } else if (reader.accept("capacity")) {
      reader.expect("=");
      s.capacity = static_cast<std::uint32_t>(
          reader.number("the capacity in bytes", machine::cell_bytes, machine::shared_capacity_limit));
    } else if (reader.accept("mask")) {
      reader.expect("=");
      s.mask = reader.pes();
    } else if (shared && reader.accept("layout")) {
      reader.expect("=");
      s.layout = read_layout(reader);
    } else {
      return s;
    }
  }
}

constexpr std::uint32_t limit_of(bool shared) noexcept {
  return shared ? machine::shared_capacity_limit : machine::local_capacity_limit;
}

/// An empty Tile of this shape; an error is that of the geometry, at the token where the shape starts.
Expected<Tile> make_tile(const TileShape& s, std::span<const uint64> words, bool shared) {
  if (machine::is_cube(s.layout)) {
    if (s.physical != 0) return Error{"a CUBE layout has no 'columns='; its cells say them"};
    return make_cube_tile(s.layout, s.format->type, s.rows, s.columns, words, s.capacity);
  }
  return make_ordinary_tile(s.layout, s.format->type, s.rows, s.columns, words, s.physical, s.capacity,
                            limit_of(shared));
}

/// Elements beyond every capacity are refused before they are made.
bool check_size(Reader& reader, const Token& at, const TileShape& s, bool shared) {
  if (!reader.ok()) return false;
  const uint64 bytes = uint64{s.rows} * s.columns * s.format->lane_bits / 8;
  if (bytes <= limit_of(shared)) return true;
  reader.fail(at, fmt::format("{} x {} elements of {} take {} bytes; a {} Tile has at most {}", s.rows, s.columns,
                              s.format->name, bytes, shared ? "Shared" : "Local", limit_of(shared)));
  return false;
}

TileRef read_tile(Reader& reader, bool shared, const fs::path& directory) {
  const Token at = reader.peek();
  const TileShape s = read_shape(reader, shared);
  if (!check_size(reader, at, s, shared)) return nullptr;
  reader.accept("=");
  const bool undefined = reader.accept("undefined");
  Matrix matrix;
  if (undefined) {
    reader.expect_end();
    matrix.words.assign(std::size_t{s.rows} * s.columns, 0);
  } else {
    matrix = read_matrix(reader, {s.format, s.rows, s.columns}, directory);
  }
  if (!reader.ok()) return nullptr;
  auto tile = make_tile(s, matrix.words, shared);
  if (!tile) {
    reader.fail(at, fmt::format("no {} {} Tile of {} x {}: {}", s.format->name, name_of(s.layout), s.rows, s.columns,
                                tile.error().message));
    return nullptr;
  }
  if (undefined) tile->set_extent(machine::Definedness::Extent::none);
  tile->descriptor().allocation_mask = static_cast<std::uint8_t>(s.mask);
  return machine::share(std::move(*tile));
}

// ---- .expect

/// Where two matrices of lanes differ first, and how often.
std::string compare_words(const Tile& tile, std::span<const uint64> expected) {
  const auto& d = tile.descriptor();
  const int digits = (tile.format().lane_bits + 3) / 4;
  std::string first;
  std::size_t different = 0;
  for (std::uint32_t r = 0; r < d.valid_rows; ++r) {
    for (std::uint32_t c = 0; c < d.valid_columns; ++c) {
      const uint64 want = expected[std::size_t{r} * d.valid_columns + c];
      const bool defined = tile.defined(r, c);
      if (defined && tile.element(r, c) == want) continue;
      if (different++ != 0) continue;
      first = defined ? fmt::format("row {}, column {} is 0x{:0{}X}, expected 0x{:0{}X}", r, c, tile.element(r, c),
                                    digits, want, digits)
                      : fmt::format("row {}, column {} is undefined, expected 0x{:0{}X}", r, c, want, digits);
    }
  }
  if (different > 1) first += fmt::format("; {} of {} elements differ", different, expected.size());
  return first;
}

struct TileExpectation {
  bool empty = false;
  std::optional<TileShape> shape;
  std::optional<Matrix> matrix;

  std::string check(const TileRef& tile) const {
    if (empty) return tile == nullptr ? "" : fmt::format("holds {}, expected nothing", describe(*tile));
    if (tile == nullptr) return "holds no Tile";
    const auto& d = tile->descriptor();
    if (shape) {
      if (d.type != shape->format->type || d.layout != shape->layout || d.valid_rows != shape->rows ||
          d.valid_columns != shape->columns) {
        return fmt::format("is {}, expected {} {} {} x {}", describe(*tile), shape->format->name,
                           name_of(shape->layout), shape->rows, shape->columns);
      }
      if (shape->capacity != 0 && d.capacity_bytes != shape->capacity) {
        return fmt::format("has a capacity of {} bytes, expected {}", d.capacity_bytes, shape->capacity);
      }
      if (shape->physical != 0 && d.columns != shape->physical) {
        return fmt::format("has {} physical columns, expected {}", d.columns, shape->physical);
      }
      if (shape->mask != 0 && d.allocation_mask != shape->mask) {
        return fmt::format("belongs to the PEs {}, expected {}", mask_text(d.allocation_mask), mask_text(shape->mask));
      }
    }
    if (!matrix) return {};
    if (matrix->rows != d.valid_rows || matrix->columns != d.valid_columns) {
      return fmt::format("is {}, expected {} x {} elements", describe(*tile), matrix->rows, matrix->columns);
    }
    const Format& f = tile->format();
    if (matrix->lane_bits != f.lane_bits && matrix->lane_bits != f.carrier_bits) {
      return fmt::format("is {}, expected elements of {} bits", describe(*tile), matrix->lane_bits);
    }
    return compare_words(*tile, matrix->words);
  }
};

TileExpectation read_tile_expectation(Reader& reader, bool shared, const fs::path& directory) {
  TileExpectation e;
  if (reader.accept("none")) {
    e.empty = true;
    reader.expect_end();
    return e;
  }
  const bool short_form = reader.accept("==");
  if (!short_form) {
    const Token at = reader.peek();
    e.shape = read_shape(reader, shared);
    if (!check_size(reader, at, *e.shape, shared)) return e;
    if (reader.at_end()) return e;
    reader.expect("==");
  }
  if (!reader.ok()) return e;
  const Wanted wanted = e.shape ? Wanted{e.shape->format, e.shape->rows, e.shape->columns} : Wanted{};
  e.matrix = read_matrix(reader, wanted, directory);
  return e;
}

/// What of `after` is not as it was. Only registers, memory and flags, unless the instruction was refused.
std::string difference(const CheckContext& c) {
  const State& before = *c.before;
  const State& after = c.state;
  for (unsigned pe = 0; pe < machine::pe_count; ++pe) {
    for (unsigned r = 0; r < machine::gpr_count; ++r) {
      if (before.pe[pe].gpr[r] != after.pe[pe].gpr[r])
        return fmt::format("PE{} {} changed", pe, isa::gpr_name(static_cast<int>(r)));
    }
    for (unsigned n = 0; n < machine::local_tiles; ++n) {
      if (!same_tile(before.pe[pe].local[n], after.pe[pe].local[n])) {
        return fmt::format("PE{} {} changed", pe, isa::tile_name(static_cast<int>(n)));
      }
    }
  }
  for (unsigned s = 0; s < machine::shared_tiles; ++s) {
    if (!(before.shared[s] == after.shared[s])) return fmt::format("S{} changed", s);
  }
  if (!(before.memory == after.memory)) return "the memory changed";
  if (before.flags != after.flags) {
    return fmt::format("the flags changed from {} to {}", flags_text(before.flags), flags_text(after.flags));
  }
  if (!c.faulted) return {};
  if (!(before.header == after.header)) return "the bundle header changed";
  return before.tpc == c.tpc && before.bpc == after.bpc ? "" : "TPC or BPC changed";
}

/// The relation of a check on each PE of a mask: the first that does not hold, with its PE.
std::string each_pe(unsigned mask, const std::function<std::string(unsigned)>& check) {
  std::string failure;
  for_each_pe(mask, [&](unsigned pe) {
    if (!failure.empty()) return;
    std::string text = check(pe);
    if (!text.empty()) failure = fmt::format("PE{} {}", pe, text);
  });
  return failure;
}

FaultExpectation read_fault(Reader& reader) {
  FaultExpectation e;
  const Token at = reader.peek();
  const std::string_view text = reader.word("a fault class (TileLegality, BundleControl, …)");
  if (!reader.ok()) return e;
  const auto fault = find_fault_class(text);
  if (!fault) {
    reader.fail(at, fmt::format("unknown fault class '{}'{} (legal: {})", text, hint(text, fault_class_names()),
                                list_of(fault_class_names())));
    return e;
  }
  e.fault = *fault;
  while (!reader.at_end()) {
    const Token next = reader.peek();
    if (reader.accept("PE0") || reader.accept("PE1") || reader.accept("PE2") || reader.accept("PE3")) {
      e.pe = static_cast<unsigned>(next.text[2] - '0');
      continue;
    }
    const std::string_view id = reader.word("a rule id (F5, C8, …)");
    if (!reader.ok()) return e;
    const machine::Rule* rule = machine::find_rule(id);
    if (rule == nullptr) {
      reader.fail(next, fmt::format("unknown rule '{}'; the rules are A1..A17, P1..P3, B0..B3, C1..C11, D1, D2, "
                                    "F0..F10, G1..G4, T1..T13, V1..V7, Q1, Q2",
                                    id));
      return e;
    }
    if (rule->fault != e.fault) {
      reader.fail(next, fmt::format("rule {} raises {}, not {}", rule->name, name_of(rule->fault), name_of(e.fault)));
      return e;
    }
    e.rule = rule->id;
  }
  return e;
}

/// What `.memory` writes and `.expect memory` compares.
std::vector<std::uint8_t> read_bytes(Reader& reader, const fs::path& directory) {
  std::vector<std::uint8_t> bytes;
  if (reader.accept("file")) {
    const Token at = reader.peek();
    const std::string_view name = reader.string("a file name in quotes");
    reader.expect_end();
    if (!reader.ok()) return bytes;
    const auto file = InputFile::open(directory / fs::path(std::string(name)), largest_image);
    if (!file) {
      reader.fail(at, file.error().message);
      return bytes;
    }
    if (file->size() > largest_image) {
      reader.fail(at, fmt::format("{} has {} bytes; one .memory takes at most {}", name, file->size(), largest_image));
      return bytes;
    }
    const auto loaded = file->load();
    if (!loaded) {
      reader.fail(at, loaded.error().message);
      return bytes;
    }
    bytes.resize(loaded->size());
    std::ranges::transform(*loaded, bytes.begin(), [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
    return bytes;
  }
  if (reader.accept("zero")) {
    const uint64 size = reader.number("the number of bytes", 1, largest_image);
    reader.expect_end();
    if (reader.ok()) bytes.assign(size, 0);
    return bytes;
  }
  if (reader.accept("bytes")) {
    do {
      const Token at = reader.peek();
      const std::string_view text = reader.word("a byte of two hexadecimal digits");
      if (!reader.ok()) return bytes;
      const auto byte = text.size() == 2 ? parse_unsigned(fmt::format("0x{}", text)) : std::nullopt;
      if (!byte) {
        reader.fail(at, fmt::format("expected a byte of two hexadecimal digits, found '{}'", text));
        return bytes;
      }
      bytes.push_back(static_cast<std::uint8_t>(*byte));
    } while (!reader.at_end());
    return bytes;
  }
  return read_image(reader, directory);
}

/// Addresses do not wrap in a program: whoever gives such a range has made a mistake.
void check_range(Reader& reader, const Token& at, uint64 address, std::size_t size) {
  if (!reader.ok() || size == 0 || size - 1 <= ~address) return;
  reader.fail(at, fmt::format("{} bytes from 0x{:X} on go beyond 2^64; at most {} fit", size, address, ~address + 1));
}

std::string compare_memory(const State& state, uint64 address, std::span<const std::uint8_t> expected) {
  std::size_t different = 0;
  std::string first;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const uint64 at = address + i;
    const bool mapped = state.memory.mapped(at);
    if (mapped && state.memory.byte(at) == expected[i]) continue;
    if (different++ != 0) continue;
    first = mapped ? fmt::format("byte 0x{:X} is {:02X}, expected {:02X}", at, state.memory.byte(at), expected[i])
                   : fmt::format("byte 0x{:X} is not mapped, expected {:02X}", at, expected[i]);
  }
  if (different > 1) first += fmt::format("; {} of {} bytes differ", different, expected.size());
  return first;
}

constexpr std::array<std::string_view, 10> expectation_names{"fault", "waiting", "tile", "shared",    "memory",
                                                             "gpr",   "flags",   "pool", "unchanged", "pc"};

Statement parse_expect(Reader& reader, const fs::path& directory) {
  Statement s;
  s.kind = Statement::Kind::check;
  const Token at = reader.peek();
  const std::string_view what = reader.word("what is expected (fault, tile, memory, …)");
  if (!reader.ok()) return s;
  const auto is = [&](std::string_view name) { return equal_ignoring_case(what, name); };
  if (is("fault")) {
    s.kind = Statement::Kind::fault;
    s.fault = read_fault(reader);
  } else if (is("waiting")) {
    s.kind = Statement::Kind::waiting;
    s.shared = reader.shared_name();
    reader.expect_end();
  } else if (is("tile")) {
    const unsigned mask = reader.pes();
    const unsigned name = reader.local_name();
    auto e = std::make_shared<const TileExpectation>(read_tile_expectation(reader, false, directory));
    s.check = [=](const CheckContext& c) {
      return each_pe(mask, [&](unsigned pe) {
        std::string text = e->check(c.state.pe[pe].local[name]);
        return text.empty() ? text : fmt::format("{} {}", isa::tile_name(static_cast<int>(name)), text);
      });
    };
  } else if (is("shared")) {
    const unsigned id = reader.shared_name();
    auto e = std::make_shared<const TileExpectation>(read_tile_expectation(reader, true, directory));
    s.check = [=](const CheckContext& c) {
      std::string text = e->check(c.state.shared[id].tile);
      return text.empty() ? text : fmt::format("S{} {}", id, text);
    };
  } else if (is("memory")) {
    const Token range = reader.peek();
    const uint64 address = reader.number("an address");
    reader.expect("==");
    auto bytes = std::make_shared<const std::vector<std::uint8_t>>(read_bytes(reader, directory));
    check_range(reader, range, address, bytes->size());
    s.check = [=](const CheckContext& c) { return compare_memory(c.state, address, *bytes); };
  } else if (is("gpr")) {
    const unsigned mask = reader.pes();
    const auto values = read_gprs(reader, "==");
    reader.expect_end();
    s.check = [=](const CheckContext& c) {
      return each_pe(mask, [&](unsigned pe) -> std::string {
        for (const GprValue& v : values) {
          const uint64 found = c.state.pe[pe].read(v.reg);
          if (found == v.value) continue;
          return fmt::format("{} is 0x{:X}, expected 0x{:X}", isa::gpr_name(static_cast<int>(v.reg)), found, v.value);
        }
        return {};
      });
    };
  } else if (is("flags")) {
    reader.accept("==");
    const Flags flags = reader.flags();
    reader.expect_end();
    s.check = [=](const CheckContext& c) {
      if (c.state.flags == flags) return std::string();
      return fmt::format("the flags are {}, expected {}", flags_text(c.state.flags), flags_text(flags));
    };
  } else if (is("pool")) {
    const unsigned mask = reader.pes();
    reader.accept("==");
    const uint64 bytes = reader.number("a number of bytes", 0, machine::pool_bytes);
    reader.expect_end();
    s.check = [=](const CheckContext& c) {
      return each_pe(mask, [&](unsigned pe) {
        const uint64 found = c.state.local_pool(pe);
        return found == bytes ? std::string() : fmt::format("holds {} bytes of Tiles, expected {}", found, bytes);
      });
    };
  } else if (is("pc")) {
    reader.accept("==");
    const uint64 pc = reader.number("an address");
    reader.expect_end();
    s.check = [=](const CheckContext& c) {
      return c.state.tpc == pc ? std::string() : fmt::format("TPC is 0x{:X}, expected 0x{:X}", c.state.tpc, pc);
    };
  } else if (is("unchanged")) {
    s.kind = Statement::Kind::unchanged;
    reader.expect_end();
    s.check = [](const CheckContext& c) {
      if (c.before == nullptr) return std::string("no instruction was executed yet");
      return difference(c);
    };
  } else {
    reader.fail(at, fmt::format("unknown expectation '{}'{} (legal: {})", what, hint(what, expectation_names),
                                list_of(expectation_names)));
  }
  return s;
}

}  // namespace

std::span<const std::string_view> directive_names() noexcept {
  static constexpr std::array<std::string_view, 17> all{
      ".option", ".gpr",   ".memory", ".tile", ".shared", ".drop", ".ready", ".pending", ".undefine",
      ".flags",  ".reset", ".expect", ".org",  ".byte",   ".half", ".word",  ".dword"};
  return all;
}

Statement parse_directive(Reader& reader, const fs::path& directory) {
  const Token at = reader.peek();
  const std::string_view name = reader.word("a directive");
  const auto is = [&](std::string_view other) { return equal_ignoring_case(name, other); };
  if (is(".expect")) return parse_expect(reader, directory);
  Statement s;
  s.kind = Statement::Kind::setup;
  if (is(".option")) {
    s.apply = read_option(reader);
    reader.expect_end();
  } else if (is(".gpr")) {
    const unsigned mask = reader.pes();
    const auto values = read_gprs(reader, "=");
    reader.expect_end();
    s.apply = [=](Core& core) {
      for_each_pe(mask, [&](unsigned pe) {
        for (const GprValue& v : values) core.state().pe[pe].gpr[v.reg] = v.value;
      });
    };
  } else if (is(".memory")) {
    const Token range = reader.peek();
    const uint64 address = reader.number("an address");
    reader.accept("=");
    auto bytes = std::make_shared<const std::vector<std::uint8_t>>(read_bytes(reader, directory));
    check_range(reader, range, address, bytes->size());
    s.memory = MemoryRange{address, bytes->size()};
    s.apply = [=](Core& core) { core.state().memory.write(address, *bytes); };
  } else if (is(".tile")) {
    const unsigned mask = reader.pes();
    const unsigned tile = reader.local_name();
    const TileRef made = read_tile(reader, false, directory);
    s.apply = [=](Core& core) {
      for_each_pe(mask, [&](unsigned pe) {
        Tile copy = *made;
        if (copy.descriptor().allocation_mask == 0) copy.descriptor().allocation_mask = static_cast<std::uint8_t>(mask);
        core.set_local(pe, tile, std::move(copy));
      });
    };
  } else if (is(".shared")) {
    const unsigned id = reader.shared_name();
    const TileRef made = read_tile(reader, true, directory);
    s.apply = [=](Core& core) { core.publish_shared(id, *made); };
  } else if (is(".drop")) {
    const Token what = reader.peek();
    if (what.kind == Token::Kind::word && isa::find_shared_tile(what.text)) {
      const unsigned id = reader.shared_name();
      s.apply = [=](Core& core) { core.state().shared[id] = {}; };
    } else {
      const unsigned mask = reader.pes();
      const unsigned tile = reader.local_name();
      s.apply = [=](Core& core) { for_each_pe(mask, [&](unsigned pe) { core.state().pe[pe].local[tile] = nullptr; }); };
    }
    reader.expect_end();
  } else if (is(".ready") || is(".pending")) {
    const bool ready = is(".ready");
    const unsigned id = reader.shared_name();
    reader.expect_end();
    s.apply = [=](Core& core) {
      machine::SharedRecord& record = core.state().shared[id];
      record.whole_parent_ready = record.published = ready && record.tile != nullptr;
    };
  } else if (is(".undefine")) {
    const unsigned mask = reader.pes();
    const unsigned tile = reader.local_name();
    const auto row = static_cast<std::uint32_t>(reader.number("a row", 0, machine::extent_limit));
    const auto column = static_cast<std::uint32_t>(reader.number("a column", 0, machine::extent_limit));
    reader.expect_end();
    s.apply = [=](Core& core) {
      for_each_pe(mask, [&](unsigned pe) {
        TileRef& ref = core.state().pe[pe].local[tile];
        if (ref == nullptr || row >= ref->descriptor().rows || column >= ref->descriptor().columns) return;
        Tile copy = *ref;
        copy.undefine_element(row, column);
        ref = machine::share(std::move(copy));
      });
    };
  } else if (is(".flags")) {
    reader.accept("=");
    const Flags flags = reader.flags();
    reader.expect_end();
    s.apply = [=](Core& core) { core.state().flags = flags; };
  } else if (is(".reset")) {
    reader.expect_end();
    s.apply = [](Core& core) {
      State fresh;
      fresh.tpc = core.state().tpc;
      fresh.memory = std::move(core.state().memory);
      core.state() = std::move(fresh);
    };
  } else if (reader.ok()) {
    reader.fail(at, fmt::format("unknown directive '{}'{} (legal: {})", name, hint(name, directive_names()),
                                list_of(directive_names())));
  }
  return s;
}

}  // namespace bitcube::program
