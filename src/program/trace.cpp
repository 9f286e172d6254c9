#include "bitcube/program/trace.hpp"

#include <fmt/format.h>

#include <array>

#include "image.hpp"
#include "json.hpp"
#include "names.hpp"

namespace bitcube::program {
namespace {

using machine::RuleId;

// ---- The rules that a command asks (--checks). The machine reports the one that fails; these are the others that it
// evaluates, in the order of the table of rules.

void add(std::vector<RuleId>& ids, std::initializer_list<RuleId> more) {
  ids.insert(ids.end(), more);
}
void add_range(std::vector<RuleId>& ids, RuleId first, RuleId last) {
  for (auto i = static_cast<std::size_t>(first); i <= static_cast<std::size_t>(last); ++i) {
    ids.push_back(static_cast<RuleId>(i));
  }
}

void add_completion(std::vector<RuleId>& ids, const machine::Header& h) {
  using enum RuleId;
  add(ids, {A15, B0});
  if (h.locals.empty() && h.shared.empty() && h.zero_participation) return;  // nothing else is asked
  if (h.operation.unit == isa::Unit::cube) {
    add_range(ids, B2, G4);
    return;
  }
  switch (h.operation.code) {
    case isa::Operation::tload:
    case isa::Operation::tstore:
    case isa::Operation::tmov:
      add(ids, {G1, G2});
      add_range(ids, T1, T13);
      break;
    case isa::Operation::tcvt:
      add(ids, {G1, G2});
      add_range(ids, V1, V7);
      break;
    case isa::Operation::tquant:
    case isa::Operation::tdequant:
      add(ids, {G1, G2});
      add_range(ids, V1, V7);
      add(ids, {Q1, Q2});
      break;
    default:
      add(ids, {B3});
      break;
  }
}

std::vector<RuleId> rules_of(const isa::Instruction& i, const machine::Header& before) {
  using enum RuleId;
  using isa::Command;
  std::vector<RuleId> ids{A1};
  switch (i.command()) {
    case Command::bstart:
    case Command::hint_trace:
      add(ids, {A13});
      if (before.active) add_completion(ids, before);
      break;
    case Command::stop:
      add(ids, {A14});
      if (before.active) add_completion(ids, before);
      break;
    case Command::catr:
    case Command::datr:
    case Command::ior:
    case Command::hint:
      add(ids, {A2, A3});
      break;
    case Command::fpatr:
      add(ids, {A2, A3, A4, A5, P1, P2, P3});
      break;
    case Command::dim:
      add(ids, {A2, A6});
      break;
    case Command::ios:
      if (i.pe_mask() != 0) add(ids, {A2, A7, A8, A9});
      break;
    case Command::iot:
      if (i.pe_mask() != 0) add(ids, {A2, A10, A11, A12});
      break;
  }
  return ids;
}

Json checks_json(const Event& event) {
  std::vector<RuleId> ids{RuleId::A17};
  const isa::Decoded decoded = isa::decode(event.word.bits, {event.state->options.strict_reserved_bits});
  if (event.word.length != 0 && decoded) {
    const auto more = rules_of(*decoded, *event.header_before);
    ids.insert(ids.end(), more.begin(), more.end());
  } else if (event.word.length != 0) {
    ids.push_back(RuleId::A1);
  }
  Json json = Json::object();
  json["rules"] = Json::array();
  for (const RuleId id : ids) json["rules"].push_back(machine::rule(id).name);
  const auto& fault = event.outcome->fault;
  json["failed"] = fault ? Json(machine::rule(fault->id).name) : Json(nullptr);
  return json;
}

// ---- Parts of a line

std::string word_text(isa::Word word) {
  if (word.length == 0) return {};
  return fmt::format("0x{:0{}X}", word.bits, 2 * word.length);
}

/// Little-endian, as the bytes stand in memory.
std::string memory_text(isa::Word word) {
  std::string text;
  for (unsigned i = 0; i < word.length; ++i)
    text += fmt::format("{}{:02X}", i == 0 ? "" : " ", word.bits >> (8 * i) & 0xFF);
  return text;
}

/// The fields that differ, with their new values.
Json changes(const machine::Header& before, const machine::Header& after) {
  Json json = Json::object();
  if (before == after) return json;
  const Json old = header_json(before);
  const Json now = header_json(after);
  for (const auto& item : now.items()) {
    if (old.at(item.key()) != item.value()) json[item.key()] = item.value();
  }
  return json;
}

void add_tile(Json& json, const machine::Tile& tile) {
  const machine::TileDescriptor& d = tile.descriptor();
  json["type"] = type_text(d.type);
  json["layout"] = machine::name_of(d.layout);
  json["rows"] = d.valid_rows;
  json["columns"] = d.valid_columns;
  json["physical"] = Json::array({d.rows, d.columns});
  json["capacity"] = d.capacity_bytes;
  json["sha256"] = element_digest(tile);
}

Json fault_json(const machine::Fault& fault, const isa::Rejection& rejection) {
  const machine::Rule& rule = machine::rule(fault.id);
  Json json = Json::object();
  json["class"] = machine::name_of(rule.fault);
  json["rule"] = rule.name;
  json["operand"] = machine::name_of(fault.role);
  json["pe"] = fault.pe < 0 ? Json(nullptr) : Json(static_cast<int>(fault.pe));
  json["found"] = text_of(fault.found);
  json["legal"] = text_of(fault.legal);
  json["text"] = explain(fault, rejection);
  return json;
}

std::string_view result_of(const machine::Outcome& o) noexcept {
  if (o.fault) return "fault";
  if (o.waiting_for) return "waiting";
  if (o.started) return o.completed ? "completed, started" : "started";
  return o.completed ? "completed" : o.header_changed ? "header" : "none";
}

Json step_json(const Event& event, const TraceOptions& options) {
  const machine::Outcome& o = *event.outcome;
  Json json = Json::object();
  json["event"] = "step";
  json["step"] = event.number;
  json["line"] = event.position.line == 0 ? Json(nullptr) : Json(event.position.line);
  json["pc"] = hex_text(event.pc);
  json["word"] = word_text(event.word);
  json["bytes"] = memory_text(event.word);
  json["text"] = event.text;
  json["result"] = result_of(o);
  json["next"] = hex_text(event.state->tpc);
  json["header"] = changes(*event.header_before, event.state->header);
  json["tiles"] = Json::array();
  for (const machine::PublishedTile& t : o.tiles) {
    Json tile = Json::object();
    tile["pe"] = t.pe;
    tile["tile"] = isa::tile_name(static_cast<int>(t.name));
    tile["role"] = machine::name_of(t.role);
    add_tile(tile, *t.tile);
    json["tiles"].push_back(std::move(tile));
  }
  if (o.shared) {
    Json tile = Json::object();
    tile["pe"] = nullptr;
    tile["tile"] = isa::shared_tile_name(static_cast<int>(o.shared->id));
    tile["role"] = machine::name_of(machine::Role::destination);
    add_tile(tile, *o.shared->tile);
    json["tiles"].push_back(std::move(tile));
  }
  json["stores"] = o.stores;
  json["raised"] = flags_json(o.flags);
  json["flags"] = flags_json(event.state->flags);
  json["fault"] = o.fault ? fault_json(*o.fault, o.rejection) : Json(nullptr);
  json["waiting_for"] = o.waiting_for ? Json(isa::shared_tile_name(static_cast<int>(*o.waiting_for))) : Json(nullptr);
  if (options.checks) json["checks"] = checks_json(event);
  return json;
}

std::string_view name_of(RunResult::End end) noexcept {
  constexpr std::array<std::string_view, 5> names{"completed", "fault", "waiting", "limit", "cut_off"};
  return names[static_cast<std::size_t>(end)];
}

}  // namespace

std::string trace_line(const Event& event, const TraceOptions& options) {
  Json json = Json::object();
  switch (event.kind) {
    case Event::Kind::start:
      json["event"] = "start";
      json["trace"] = trace_version;
      json["origin"] = hex_text(event.program->origin());
      json["bytes"] = event.program->bytes().size();
      json["options"] = options_json(event.state->options);
      break;
    case Event::Kind::step:
      json = step_json(event, options);
      break;
    case Event::Kind::check:
      json["event"] = "check";
      json["line"] = event.check->position.line;
      json["text"] = event.check->text;
      json["holds"] = event.check->holds;
      json["message"] = event.check->message;
      break;
    case Event::Kind::end: {
      const RunResult& r = *event.result;
      json["event"] = "end";
      json["result"] = name_of(r.end);
      json["pc"] = hex_text(r.pc);
      json["steps"] = r.steps;
      json["bundles"] = r.bundles;
      json["checks"] = r.checks.size();
      json["failed"] = r.failed;
      json["not_reached"] = r.not_reached;
      break;
    }
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace bitcube::program
