#include "bitcube/program/state_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bitcube/io/file.hpp"
#include "guarded.hpp"
#include "json.hpp"
#include "names.hpp"
#include "reader.hpp"

namespace bitcube::program {
namespace {

using machine::Definedness;
using machine::Header;
using machine::Memory;
using machine::State;
using machine::Tile;
using machine::TileDescriptor;

constexpr std::size_t longest_state = std::size_t{1} << 30;  // bytes of JSON
constexpr std::size_t most_pages = std::size_t{1} << 16;     // 256 MiB of memory

constexpr std::uint32_t limit_of(bool shared) noexcept {
  return shared ? machine::shared_capacity_limit : machine::local_capacity_limit;
}

// ---- Writing

/// Bytes in hexadecimal, without zeros at the end.
std::string bytes_text(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  while (!bytes.empty() && bytes.back() == 0) bytes = bytes.first(bytes.size() - 1);
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t b : bytes) {
    text += digits[b >> 4];
    text += digits[b & 0xF];
  }
  return text;
}

std::vector<std::uint8_t> pack(const std::vector<bool>& bits) {
  std::vector<std::uint8_t> bytes((bits.size() + 7) / 8);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (bits[i]) bytes[i / 8] = static_cast<std::uint8_t>(bytes[i / 8] | 1U << (i % 8));
  }
  return bytes;
}

constexpr std::array<std::string_view, 4> location_names{"any", "vector", "matrix", "memory"};
constexpr std::array<std::string_view, 4> extent_names{"none", "valid", "all", "bits"};

Expected<Json> tile_json(const Tile& tile, bool shared, std::string_view where) {
  const TileDescriptor& d = tile.descriptor();
  if (machine::check_descriptor(d, limit_of(shared)) != machine::DescriptorFault::none) {
    return Error{fmt::format("{}: the Tile's descriptor is not legal, so it cannot be saved", where)};
  }
  Json json = Json::object();
  json["type"] = type_text(d.type);
  json["layout"] = machine::name_of(d.layout);
  json["location"] = location_names[static_cast<std::size_t>(d.location)];
  json["mask"] = mask_text(d.allocation_mask);
  json["capacity"] = d.capacity_bytes;
  json["rows"] = d.valid_rows;
  json["columns"] = d.valid_columns;
  if (!machine::is_cube(d.layout)) json["physical_columns"] = d.columns;
  const auto extent = tile.definedness().extent();
  json["defined"] = extent_names[static_cast<std::size_t>(extent)];
  if (extent == Definedness::Extent::bits) json["defined_bits"] = bytes_text(pack(tile.definedness().bits()));
  json["bytes"] = bytes_text(tile.bytes());
  return json;
}

Expected<Json> state_json(const State& s) {
  Json json = Json::object();
  for (unsigned p = 0; p < machine::pe_count; ++p) {
    if (s.local_pool(p) > machine::pool_bytes) return Error{fmt::format("PE{}: its Tiles take more than its pool", p)};
  }
  if (s.shared_pool() > machine::pool_bytes) return Error{"the Shared Tiles take more than their pool"};
  json["bitcube_state"] = state_version;
  json["options"] = options_json(s.options);
  json["tpc"] = hex_text(s.tpc);
  json["bpc"] = hex_text(s.bpc);
  json["flags"] = flags_json(s.flags);
  json["header"] = header_json(s.header);
  json["pe"] = Json::array();
  for (unsigned p = 0; p < machine::pe_count; ++p) {
    Json pe = Json::object();
    pe["gpr"] = Json::object();
    for (unsigned r = 1; r < machine::gpr_count; ++r) {
      if (s.pe[p].gpr[r] != 0) pe["gpr"][std::string(isa::gpr_name(static_cast<int>(r)))] = hex_text(s.pe[p].gpr[r]);
    }
    pe["tiles"] = Json::object();
    for (unsigned n = 0; n < machine::local_tiles; ++n) {
      if (s.pe[p].local[n] == nullptr) continue;
      const std::string name = isa::tile_name(static_cast<int>(n));
      auto tile = tile_json(*s.pe[p].local[n], false, fmt::format("PE{} {}", p, name));
      if (!tile) return tile;
      pe["tiles"][name] = std::move(*tile);
    }
    json["pe"].push_back(std::move(pe));
  }
  json["shared"] = Json::object();
  for (unsigned i = 0; i < machine::shared_tiles; ++i) {
    const machine::SharedRecord& r = s.shared[i];
    if (r == machine::SharedRecord{}) continue;
    Json record = Json::object();
    record["allocated"] = mask_text(r.allocation_mask);
    record["initialized"] = mask_text(r.initialized_mask);
    record["ready"] = r.whole_parent_ready;
    record["published"] = r.published;
    record["tile"] = nullptr;
    const std::string name = isa::shared_tile_name(static_cast<int>(i));
    if (r.tile != nullptr) {
      auto tile = tile_json(*r.tile, true, name);
      if (!tile) return tile;
      record["tile"] = std::move(*tile);
    }
    json["shared"][name] = std::move(record);
  }
  json["memory"] = Json::array();
  for (const auto& [number, page] : s.memory.pages()) {
    json["memory"].push_back(Json{{"address", hex_text(number * Memory::page_bytes)}, {"bytes", bytes_text(*page)}});
  }
  return json;
}

// ---- Reading

/// One value of the document and its path. The first error of the whole document sticks.
class Node {
 public:
  Node(const Json& json, std::string path, std::optional<Error>& error)
      : json_(&json), path_(std::move(path)), error_(&error) {}

  bool ok() const noexcept { return !*error_; }
  const Json& json() const noexcept { return *json_; }
  bool is_null() const noexcept { return json_->is_null(); }
  void fail(std::string_view message) const {
    if (!*error_) *error_ = Error{fmt::format("{}: {}", path_.empty() ? "/" : path_, message)};
  }

  Node operator[](const char* key) const {
    static const Json none;
    const std::string path = fmt::format("{}/{}", path_, key);
    if (ok() && json_->is_object()) {
      if (const auto at = json_->find(key); at != json_->end()) return {*at, path, *error_};
    }
    fail(fmt::format("expected the key \"{}\"", key));
    return {none, path, *error_};
  }
  bool has(const char* key) const { return json_->is_object() && json_->contains(key); }

  /// The members; no other keys than these, if there are any.
  void object(std::initializer_list<std::string_view> keys) const {
    if (!ok()) return;
    if (!json_->is_object()) {
      fail("expected an object");
      return;
    }
    for (const auto& item : json_->items()) {
      if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) {
        fail(fmt::format("unknown key \"{}\" (legal: {})", item.key().substr(0, 40), fmt::join(keys, ", ")));
      }
    }
  }
  template <typename Body>
  void each_member(const Body& body) const {
    if (ok() && !json_->is_object()) fail("expected an object");
    if (!ok()) return;
    for (const auto& item : json_->items()) {
      body(item.key(), Node(item.value(), fmt::format("{}/{}", path_, item.key().substr(0, 40)), *error_));
    }
  }
  template <typename Body>
  void each_item(std::size_t most, const Body& body) const {
    if (ok() && !json_->is_array()) fail("expected an array");
    if (ok() && json_->size() > most) fail(fmt::format("{} items; expected at most {}", json_->size(), most));
    for (std::size_t i = 0; ok() && i < json_->size(); ++i)
      body(i, Node((*json_)[i], fmt::format("{}/{}", path_, i), *error_));
  }

  uint64 number(uint64 most) const {
    if (!ok()) return 0;
    if (!json_->is_number_unsigned() || json_->get<uint64>() > most) {
      fail(fmt::format("expected a number of 0..{}", most));
      return 0;
    }
    return json_->get<uint64>();
  }
  bool truth() const {
    if (ok() && !json_->is_boolean()) fail("expected true or false");
    return ok() && json_->get<bool>();
  }
  const std::string& text() const {
    static const std::string none;
    if (ok() && !json_->is_string()) fail("expected a text");
    return ok() ? json_->get_ref<const std::string&>() : none;
  }
  uint64 hex() const {
    const std::string& t = text();
    const auto value = t.starts_with("0x") ? parse_unsigned(t) : std::nullopt;
    if (ok() && !value) fail("expected a text \"0x…\" of at most 64 bits");
    return value.value_or(0);
  }
  std::uint8_t mask() const {
    const std::string& t = text();
    if (ok() && (t.size() != machine::pe_count || t.find_first_not_of("01") != std::string::npos)) {
      fail("expected four digits 0 or 1, PE0 first");
    }
    unsigned value = 0;
    if (ok()) {
      for (const char c : t) value = 2 * value + (c == '1' ? 1U : 0U);
    }
    return static_cast<std::uint8_t>(value);
  }
  /// The value that `find` gives for the name; `legal` says what there is.
  template <typename Find>
  auto named(const Find& find, std::string_view legal) const ->
      typename decltype(find(std::string_view()))::value_type {
    const auto found = find(std::string_view(text()));
    if (ok() && !found) fail(fmt::format("unknown name \"{}\" (legal: {})", text().substr(0, 40), legal));
    return ok() ? *found : typename decltype(find(std::string_view()))::value_type{};
  }
  unsigned code(std::span<const isa::CodeName> table) const {
    return named([&](std::string_view n) { return code_in(table, n); }, "the names of the instruction set");
  }
  DataType type() const {
    return named(
        [](std::string_view n) -> std::optional<DataType> {
          const Format* f = find_format(n);
          if (f == nullptr || machine::tile_format(f->type) == nullptr) return std::nullopt;
          return f->type;
        },
        "a Tile data type");
  }
  /// The type, or DTYPE_NONE for null.
  DataType type_or_none() const { return is_null() ? DataType::none : type(); }
  /// Hexadecimal digits into these bytes; zeros follow.
  void bytes(std::span<std::uint8_t> out) const {
    const std::string& t = text();
    if (!ok()) return;
    if (t.size() % 2 != 0 || t.size() / 2 > out.size()) {
      fail(fmt::format("expected at most {} bytes of two hexadecimal digits, found {} digits", out.size(), t.size()));
      return;
    }
    const auto digit = [](char c) {
      const char lower = ascii_lower(c);
      return lower >= '0' && lower <= '9' ? lower - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
    };
    for (std::size_t i = 0; i < t.size(); i += 2) {
      const int high = digit(t[i]);
      const int low = digit(t[i + 1]);
      if (high < 0 || low < 0) {
        fail(fmt::format("expected hexadecimal digits at position {}", i));
        return;
      }
      out[i / 2] = static_cast<std::uint8_t>(16 * high + low);
    }
  }

 private:
  const Json* json_;
  std::string path_;
  std::optional<Error>* error_;
};

std::optional<std::size_t> index_in(std::span<const std::string_view> names, std::string_view name) {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return static_cast<std::size_t>(at - names.begin());
}

machine::Options read_options(const Node& n) {
  n.object({"name_policy", "wait_on_pending", "coop_exact_columns", "aux_exact_columns", "gemv_hif4",
            "strict_reserved_bits", "scalar_pe", "accumulation", "conversion"});
  machine::Options o;
  o.name_policy = n["name_policy"].named(
      [](std::string_view name) -> std::optional<machine::NamePolicy> {
        if (name == "relative") return machine::NamePolicy::relative;
        if (name == "absolute") return machine::NamePolicy::absolute;
        return std::nullopt;
      },
      "relative, absolute");
  o.wait_on_pending = n["wait_on_pending"].truth();
  o.coop_exact_columns = n["coop_exact_columns"].truth();
  o.aux_exact_columns = n["aux_exact_columns"].truth();
  o.gemv_hif4 = n["gemv_hif4"].truth();
  o.strict_reserved_bits = n["strict_reserved_bits"].truth();
  o.scalar_pe = static_cast<unsigned>(n["scalar_pe"].number(machine::pe_count - 1));
  const auto accumulation = n["accumulation"].named(
      [](std::string_view name) -> std::optional<const AccumulationProfile*> {
        const AccumulationProfile* p = find_accumulation_profile(name);
        return p == nullptr ? std::nullopt : std::optional(p);
      },
      "the accumulation profiles");
  const auto conversion = n["conversion"].named(
      [](std::string_view name) -> std::optional<const ConversionProfile*> {
        const ConversionProfile* p = find_conversion_profile(name);
        return p == nullptr ? std::nullopt : std::optional(p);
      },
      "the conversion profiles");
  if (accumulation != nullptr) o.accumulation = accumulation;
  if (conversion != nullptr) o.conversion = conversion;
  return o;
}

Flags read_flags(const Node& n) {
  Flags flags = Flags::none;
  n.each_item(flag_names.size(), [&](std::size_t, const Node& item) {
    flags |= item.named(
        [](std::string_view name) -> std::optional<Flags> {
          for (const FlagName& row : flag_names) {
            if (row.name == name) return row.flag;
          }
          return std::nullopt;
        },
        "NV, DZ, OF, UF, NX");
  });
  return flags;
}

std::uint8_t read_gpr(const Node& n) {
  return static_cast<std::uint8_t>(
      n.named([](std::string_view name) { return isa::find_gpr(name); }, "zero, sp, a0..a7, ra, s0..s8, x0..x3"));
}

std::uint8_t read_size_code(const Node& n) {
  return static_cast<std::uint8_t>(n.number(12));
}

Header read_header(const Node& n) {
  n.object({"active", "body", "zero_participation", "operation", "unit", "type", "target", "lb0", "lb1", "lb2", "catr",
            "datr", "fpatr", "scalars", "hint", "locals", "shared"});
  Header h;
  h.active = n["active"].truth();
  h.body = n["body"].truth();
  h.zero_participation = n["zero_participation"].truth();
  if (const Node code = n["operation"]; !code.is_null()) {
    h.operation.code = code.named(isa::find_operation, "TMATMUL … TDEQUANT");
  }
  const Node unit = n["unit"];
  h.operation.unit = static_cast<isa::Unit>(unit.number(static_cast<uint64>(isa::Unit::cube)));
  const auto u = h.operation.unit;
  if (u != isa::Unit::none && u != isa::Unit::tlsu && u != isa::Unit::tepl && u != isa::Unit::cube) {
    unit.fail("expected a unit: 0, 2, 3 or 6");
  }
  // The code decides the unit; another pair would reach an executor that it was not made for.
  if (h.operation.code != isa::Operation::none) {
    const bool cube = h.operation.code <= isa::Operation::tgemv_mx_acc;
    const bool memory = !cube && h.operation.code <= isa::Operation::tmov;
    if (u != (cube ? isa::Unit::cube : memory ? isa::Unit::tlsu : isa::Unit::tepl)) {
      unit.fail("expected the unit of the operation");
    }
  } else if (u == isa::Unit::cube || u == isa::Unit::tlsu) {
    n["operation"].fail("expected an operation of the unit");
  }
  h.operation.type = n["type"].type_or_none();
  if (const Node target = n["target"]; !target.is_null()) h.operation.target = target.hex();
  constexpr const char* dimensions[] = {"lb0", "lb1", "lb2"};
  for (std::size_t i = 0; i < 3; ++i) {
    if (const Node lb = n[dimensions[i]]; !lb.is_null()) h.lb[i] = static_cast<std::uint16_t>(lb.number(0xFFFF));
  }
  if (const Node c = n["catr"]; !c.is_null()) {
    c.object({"dr", "trap", "far", "atom", "aq", "rl"});
    h.catr = machine::ControlAttributes{c["dr"].truth(),   c["trap"].truth(), c["far"].truth(),
                                        c["atom"].truth(), c["aq"].truth(),   c["rl"].truth()};
  }
  if (const Node d = n["datr"]; !d.is_null()) {
    d.object({"layout", "type", "pad", "cmode", "rmode", "sat", "canonicalize"});
    machine::DataAttributes a;
    a.type = d["type"].type_or_none();
    a.layout = static_cast<isa::TransferLayout>(d["layout"].code(isa::layout_names));
    a.pad = static_cast<isa::PadValue>(d["pad"].code(isa::pad_names));
    a.cmode = static_cast<std::uint8_t>(d["cmode"].code(isa::compare_names));
    a.rmode = static_cast<std::uint8_t>(d["rmode"].code(isa::rmode_names));
    a.saturate = d["sat"].truth();
    a.canonicalize = d["canonicalize"].truth();
    h.datr = a;
  }
  if (const Node p = n["fpatr"]; !p.is_null()) {
    p.object({"prequant", "relu", "group_n_code", "row_max", "group_max", "row_max_init", "max_abs", "trans_a",
              "trans_b", "c_scale"});
    machine::PostprocessAttributes a;
    const Node prequant = p["prequant"];
    a.prequant = static_cast<std::uint8_t>(prequant.number(63));
    if (n.ok() && find_prequant(a.prequant) == nullptr) prequant.fail("expected the code of a PreQuant mode");
    a.relu = static_cast<std::uint8_t>(p["relu"].number(3));
    a.group_n_code = static_cast<std::uint8_t>(p["group_n_code"].number(9));
    a.row_max = p["row_max"].truth();
    a.group_max = p["group_max"].truth();
    a.row_max_init = p["row_max_init"].truth();
    a.max_abs = p["max_abs"].truth();
    a.trans_a = p["trans_a"].truth();
    a.trans_b = p["trans_b"].truth();
    a.c_scale = p["c_scale"].truth();
    if (n.ok() && ((a.row_max_init && !a.row_max) || a.group_max != (a.group_n_code != 0) ||
                   (a.max_abs && !a.row_max && !a.group_max))) {
      p.fail("expected a combination that B.FPATR accepts");
    }
    h.fpatr = a;
  }
  if (const Node s = n["scalars"]; !s.is_null()) {
    s.object({"sources", "destination"});
    machine::ScalarBinding b;
    b.destination = read_gpr(s["destination"]);
    s["sources"].each_item(b.sources.size(), [&](std::size_t i, const Node& item) { b.sources[i] = read_gpr(item); });
    h.scalars = b;
  }
  if (const Node x = n["hint"]; !x.is_null()) {
    x.object({"prefetch", "temp", "likely", "valid"});
    h.hint = machine::Hint{static_cast<std::uint16_t>(x["prefetch"].number(0xFFF)),
                           static_cast<std::uint8_t>(x["temp"].number(3)), x["likely"].truth(), x["valid"].truth()};
  }
  constexpr std::size_t most_locals = 16;
  n["locals"].each_item(most_locals, [&](std::size_t i, const Node& item) {
    item.object({"sources", "destination", "size_code", "mask", "last"});
    machine::LocalBinding b;
    item["sources"].each_item(b.sources.size(), [&](std::size_t k, const Node& source) {
      b.sources[k] = static_cast<std::uint8_t>(
          source.named([](std::string_view name) { return isa::find_tile(name); }, "T#1 … N#16"));
      b.source_count = static_cast<std::uint8_t>(k + 1);
    });
    b.size_code = read_size_code(item["size_code"]);
    const Node destination = item["destination"];
    if (!destination.is_null()) b.hand = static_cast<std::uint8_t>(destination.code(isa::hand_names));
    if (item.ok() && destination.is_null() != (b.size_code == 0)) {
      destination.fail("expected a hand exactly if size_code is not 0");
    }
    b.mask = item["mask"].mask();
    if (item.ok() && b.mask == 0) item["mask"].fail("expected at least one PE");
    b.last = item["last"].truth();
    if (item.ok() && i != 0 && h.locals.back().last) item.fail("a binding follows the last one");
    if (item.ok()) h.locals.push_back(b);
  });
  constexpr std::size_t most_shared = 4;
  n["shared"].each_item(most_shared, [&](std::size_t, const Node& item) {
    item.object({"tile", "size_code", "mask"});
    machine::SharedBinding b;
    b.id = static_cast<std::uint8_t>(
        item["tile"].named([](std::string_view name) { return isa::find_shared_tile(name); }, "S0 … S63"));
    b.size_code = read_size_code(item["size_code"]);
    b.mask = item["mask"].mask();
    if (item.ok() && b.mask == 0) item["mask"].fail("expected at least one PE");
    for (const machine::SharedBinding& other : h.shared) {
      if (item.ok() && other.id == b.id) item.fail("bound twice");
    }
    h.shared.push_back(b);
  });
  if (n.ok() && !h.active && !(h == Header{})) n.fail("a header that is not active must be empty");
  return h;
}

machine::TileRef read_tile(const Node& n, bool shared) {
  n.object({"type", "layout", "location", "mask", "capacity", "rows", "columns", "physical_columns", "defined",
            "defined_bits", "bytes"});
  const DataType type = n["type"].type();
  const auto layout = n["layout"].named(find_layout, list_of(layout_names()));
  const auto location = static_cast<machine::Location>(n["location"].named(
      [](std::string_view name) { return index_in(location_names, name); }, list_of(location_names)));
  const std::uint8_t mask = n["mask"].mask();
  const auto capacity = static_cast<std::uint32_t>(n["capacity"].number(limit_of(shared)));
  const auto rows = static_cast<std::uint32_t>(n["rows"].number(machine::extent_limit));
  const auto columns = static_cast<std::uint32_t>(n["columns"].number(machine::extent_limit));
  const bool cube = machine::is_cube(layout);
  const auto physical = cube ? 0 : static_cast<std::uint32_t>(n["physical_columns"].number(machine::extent_limit));
  if (cube && n.has("physical_columns")) n["physical_columns"].fail("a CUBE layout derives them");
  if (!n.ok()) return nullptr;
  const machine::DescriptorResult d =
      cube ? machine::describe_cube(layout, type, rows, columns, capacity, limit_of(shared))
           : machine::describe_ordinary(layout, type, rows, columns, physical, capacity, limit_of(shared));
  if (!d) {
    n.fail("type, layout, shape and capacity are not those of a legal Tile");
    return nullptr;
  }
  TileDescriptor descriptor = d.descriptor;
  if (cube && location != machine::Location::matrix) n["location"].fail("a CUBE layout is in \"matrix\"");
  descriptor.location = location;
  descriptor.allocation_mask = mask;
  if (!n.ok()) return nullptr;
  Tile tile(descriptor);
  n["bytes"].bytes(tile.bytes());
  const auto extent = static_cast<Definedness::Extent>(
      n["defined"].named([](std::string_view name) { return index_in(extent_names, name); }, list_of(extent_names)));
  if (!n.ok()) return nullptr;
  if (extent != Definedness::Extent::bits) {
    if (n.has("defined_bits")) n["defined_bits"].fail("belongs to \"defined\": \"bits\"");
    tile.set_extent(extent);
    return machine::share(std::move(tile));
  }
  std::vector<std::uint8_t> bits((std::size_t{capacity} * 8 / tile.format().lane_bits + 7) / 8);
  n["defined_bits"].bytes(bits);
  if (!n.ok()) return nullptr;
  tile.set_extent(Definedness::Extent::none);
  for (std::uint32_t r = 0; r < descriptor.rows; ++r) {
    for (std::uint32_t c = 0; c < descriptor.columns; ++c) {
      const std::size_t i = tile.index(r, c);
      if ((bits[i / 8] >> (i % 8) & 1) != 0) tile.set_element(r, c, tile.element(r, c));
    }
  }
  return machine::share(std::move(tile));
}

State read(const Json& json, std::optional<Error>& error) {
  State s;
  const Node n(json, "", error);
  if (!json.is_object() || !json.contains("bitcube_state")) {
    n.fail("expected a saved state: an object with the key \"bitcube_state\"");
    return s;
  }
  const Json& version = json["bitcube_state"];
  if (!version.is_number_unsigned() || version != state_version) {
    n["bitcube_state"].fail(fmt::format("expected version {}, which this program reads", state_version));
    return s;
  }
  n.object({"bitcube_state", "options", "tpc", "bpc", "flags", "header", "pe", "shared", "memory"});
  s.options = read_options(n["options"]);
  s.tpc = n["tpc"].hex();
  s.bpc = n["bpc"].hex();
  s.flags = read_flags(n["flags"]);
  s.header = read_header(n["header"]);
  const Node pes = n["pe"];
  std::size_t count = 0;
  pes.each_item(machine::pe_count, [&](std::size_t p, const Node& pe) {
    ++count;
    pe.object({"gpr", "tiles"});
    pe["gpr"].each_member([&](const std::string& name, const Node& value) {
      const auto reg = isa::find_gpr(name);
      if (!reg || *reg == 0) {
        value.fail("no register of this name that holds a value");
        return;
      }
      s.pe[p].gpr[static_cast<std::size_t>(*reg)] = value.hex();
    });
    pe["tiles"].each_member([&](const std::string& name, const Node& value) {
      const auto tile = isa::find_tile(name);
      if (!tile) {
        value.fail("no Local Tile of this name");
        return;
      }
      s.pe[p].local[static_cast<std::size_t>(*tile)] = read_tile(value, false);
    });
    if (pe.ok() && s.local_pool(static_cast<unsigned>(p)) > machine::pool_bytes) {
      pe["tiles"].fail(fmt::format("the Tiles take more than the pool of {} bytes", machine::pool_bytes));
    }
  });
  if (n.ok() && count != machine::pe_count) pes.fail(fmt::format("expected {} PEs", machine::pe_count));
  n["shared"].each_member([&](const std::string& name, const Node& value) {
    const auto id = isa::find_shared_tile(name);
    if (!id) {
      value.fail("no Shared Tile of this name");
      return;
    }
    value.object({"allocated", "initialized", "ready", "published", "tile"});
    machine::SharedRecord& r = s.shared[static_cast<std::size_t>(*id)];
    r.allocation_mask = value["allocated"].mask();
    r.initialized_mask = value["initialized"].mask();
    r.whole_parent_ready = value["ready"].truth();
    r.published = value["published"].truth();
    if (const Node tile = value["tile"]; !tile.is_null()) r.tile = read_tile(tile, true);
  });
  if (n.ok() && s.shared_pool() > machine::pool_bytes) {
    n["shared"].fail(fmt::format("the Tiles take more than the pool of {} bytes", machine::pool_bytes));
  }
  n["memory"].each_item(most_pages, [&](std::size_t, const Node& page) {
    page.object({"address", "bytes"});
    const uint64 address = page["address"].hex();
    if (page.ok() && address % Memory::page_bytes != 0)
      page["address"].fail("expected the start of a page of 4096 bytes");
    if (page.ok() && s.memory.mapped(address)) page["address"].fail("this page was given before");
    Memory::Page bytes{};
    page["bytes"].bytes(bytes);
    if (page.ok()) s.memory.write(address, bytes);
  });
  return s;
}

}  // namespace

Expected<std::string> write_state(const State& state) {
  return guarded("state", [&]() -> Expected<std::string> {
    const auto json = state_json(state);
    if (!json) return json.error();
    return json->dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  });
}

Expected<State> read_state(std::string_view text, std::string_view name) {
  return guarded(name, [&]() -> Expected<State> {
    if (text.size() > longest_state) {
      return Error{fmt::format("{}: {} bytes; a saved state has at most {}", name, text.size(), longest_state)};
    }
    // The parser keeps the last of several values of one name: such a text says two things.
    std::vector<std::set<std::string>> names;  // of the objects that are open
    std::optional<std::string> twice;
    const auto see = [&](int, Json::parse_event_t event, Json& value) {
      if (event == Json::parse_event_t::object_start) names.emplace_back();
      if (event == Json::parse_event_t::object_end) names.pop_back();
      if (event == Json::parse_event_t::key && !twice) {
        const auto& key = value.get_ref<const std::string&>();
        if (!names.back().insert(key).second) twice = key;
      }
      return true;
    };
    const Json json = Json::parse(text, see, false);
    if (twice)
      return Error{fmt::format("{}: the key {} is given twice", name,
                               Json(*twice).dump(-1, ' ', true, Json::error_handler_t::replace))};
    if (json.is_discarded()) return Error{fmt::format("{}: expected JSON", name)};
    std::optional<Error> error;
    State state = read(json, error);
    if (error) return Error{fmt::format("{}: {}", name, error->message)};
    return state;
  });
}

Expected<State> load_state(const std::filesystem::path& path) {
  const auto file = InputFile::open(path, longest_state);
  if (!file) return file.error();
  if (file->size() > longest_state) {
    return Error{fmt::format("{}: {} bytes; a saved state has at most {}", path.string(), file->size(), longest_state)};
  }
  const auto bytes = file->load();
  if (!bytes) return bytes.error();
  return read_state({reinterpret_cast<const char*>(bytes->data()), bytes->size()}, path.string());
}

}  // namespace bitcube::program
