#include "json.hpp"

#include <fmt/format.h>

#include "names.hpp"

namespace bitcube::program {

using machine::Header;

std::string hex_text(uint64 value) {
  return fmt::format("0x{:X}", value);
}

Json flags_json(Flags flags) {
  Json json = Json::array();
  for (const FlagName& row : flag_names) {
    if (has(flags, row.flag)) json.push_back(row.name);
  }
  return json;
}

namespace {

Json locals_json(const Header& h) {
  Json json = Json::array();
  for (const machine::LocalBinding& b : h.locals) {
    Json sources = Json::array();
    for (unsigned i = 0; i < b.source_count; ++i) sources.push_back(isa::tile_name(b.sources[i]));
    Json item = Json::object();
    item["sources"] = std::move(sources);
    item["destination"] = b.has_destination() ? Json(name_in(isa::hand_names, b.hand)) : Json(nullptr);
    item["size_code"] = b.size_code;
    item["mask"] = mask_text(b.mask);
    item["last"] = b.last;
    json.push_back(std::move(item));
  }
  return json;
}

Json shared_json(const Header& h) {
  Json json = Json::array();
  for (const machine::SharedBinding& b : h.shared) {
    Json item = Json::object();
    item["tile"] = isa::shared_tile_name(b.id);
    item["size_code"] = b.size_code;
    item["mask"] = mask_text(b.mask);
    json.push_back(std::move(item));
  }
  return json;
}

}  // namespace

Json header_json(const Header& h) {
  Json json = Json::object();
  json["active"] = h.active;
  json["body"] = h.body;
  json["zero_participation"] = h.zero_participation;
  json["operation"] = h.operation.code == isa::Operation::none ? Json(nullptr) : Json(name_of(h.operation.code));
  json["unit"] = static_cast<unsigned>(h.operation.unit);
  json["type"] = h.operation.type == DataType::none ? Json(nullptr) : Json(type_text(h.operation.type));
  json["target"] = h.operation.target ? Json(hex_text(*h.operation.target)) : Json(nullptr);
  constexpr const char* dimensions[] = {"lb0", "lb1", "lb2"};
  for (std::size_t i = 0; i < 3; ++i) json[dimensions[i]] = h.lb[i] ? Json(*h.lb[i]) : Json(nullptr);
  json["catr"] = nullptr;
  if (h.catr) {
    json["catr"] = Json{{"dr", h.catr->dr},     {"trap", h.catr->trap}, {"far", h.catr->far},
                        {"atom", h.catr->atom}, {"aq", h.catr->aq},     {"rl", h.catr->rl}};
  }
  json["datr"] = nullptr;
  if (h.datr) {
    json["datr"] = Json{{"layout", name_in(isa::layout_names, static_cast<unsigned>(h.datr->layout))},
                        {"type", h.datr->type == DataType::none ? Json(nullptr) : Json(type_text(h.datr->type))},
                        {"pad", name_in(isa::pad_names, static_cast<unsigned>(h.datr->pad))},
                        {"cmode", name_in(isa::compare_names, h.datr->cmode)},
                        {"rmode", name_in(isa::rmode_names, h.datr->rmode)},
                        {"sat", h.datr->saturate},
                        {"canonicalize", h.datr->canonicalize}};
  }
  json["fpatr"] = nullptr;
  if (h.fpatr) {
    const machine::PostprocessAttributes& p = *h.fpatr;
    json["fpatr"] = Json{{"prequant", p.prequant}, {"relu", p.relu},           {"group_n_code", p.group_n_code},
                         {"row_max", p.row_max},   {"group_max", p.group_max}, {"row_max_init", p.row_max_init},
                         {"max_abs", p.max_abs},   {"trans_a", p.trans_a},     {"trans_b", p.trans_b},
                         {"c_scale", p.c_scale}};
  }
  json["scalars"] = nullptr;
  if (h.scalars) {
    Json sources = Json::array();
    for (const std::uint8_t r : h.scalars->sources) sources.push_back(isa::gpr_name(r));
    json["scalars"] = Json{{"sources", std::move(sources)}, {"destination", isa::gpr_name(h.scalars->destination)}};
  }
  json["hint"] = nullptr;
  if (h.hint) {
    json["hint"] = Json{
        {"prefetch", h.hint->prefetch}, {"temp", h.hint->temp}, {"likely", h.hint->likely}, {"valid", h.hint->valid}};
  }
  json["locals"] = locals_json(h);
  json["shared"] = shared_json(h);
  return json;
}

Json options_json(const machine::Options& o) {
  Json json = Json::object();
  json["name_policy"] = o.name_policy == machine::NamePolicy::relative ? "relative" : "absolute";
  json["wait_on_pending"] = o.wait_on_pending;
  json["coop_exact_columns"] = o.coop_exact_columns;
  json["aux_exact_columns"] = o.aux_exact_columns;
  json["gemv_hif4"] = o.gemv_hif4;
  json["strict_reserved_bits"] = o.strict_reserved_bits;
  json["scalar_pe"] = o.scalar_pe;
  json["accumulation"] = o.accumulation->name;
  json["conversion"] = o.conversion->name;
  return json;
}

}  // namespace bitcube::program
