#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bitcube/compare/diff.hpp"
#include "bitcube/numeric/decode.hpp"
#include "value_text.hpp"

namespace bitcube {
namespace {

std::string percent(uint64 count, uint64 of) {
  if (of == 0) return "";
  return fmt::format("{:.4g} %", 100.0 * static_cast<double>(count) / static_cast<double>(of));
}

Table classes_table(const Comparison& c) {
  Table table{"", {"class", "elements", "", "meaning"}, {}, {1, 2}};
  for (std::size_t i = 0; i < c.classes.size(); ++i) {
    if (c.classes[i] == 0) continue;
    const DifferenceClass& k = difference_classes[i];
    table.rows.push_back({std::string(k.name), fmt::format("{}", c.classes[i]), percent(c.classes[i], c.elements),
                          std::string(k.meaning)});
  }
  return table;
}

Table ulp_table(const Comparison& c) {
  Table table{"", {"ulp", "elements", ""}, {}, {1}};
  uint64 largest = 1;
  for (std::size_t i = 1; i < c.ulps.size(); ++i) largest = std::max(largest, c.ulps[i].count);
  for (std::size_t i = 0; i < c.ulps.size(); ++i) {
    const UlpBin& bin = c.ulps[i];
    if (bin.count == 0) continue;
    std::string bar;
    if (i != 0)
      bar.assign(std::max<std::size_t>(
                     1, static_cast<std::size_t>(40.0 * static_cast<double>(bin.count) / static_cast<double>(largest))),
                 '#');
    table.rows.push_back({bin.from == bin.to ? fmt::format("{}", bin.from) : fmt::format("{} to {}", bin.from, bin.to),
                          fmt::format("{}", bin.count), bar});
  }
  return table;
}

Table mismatch_table(const Comparison& c, const std::vector<Mismatch>& list, std::string title) {
  Table table{std::move(title), {"at", "GOLDEN", "", "DUT", "", "ulp", "class"}, {}, {1, 2, 3, 4, 5}};
  for (const Mismatch& m : list) {
    table.rows.push_back({fmt::format("{}", fmt::join(m.at, ",")), bits_text(*c.format, m.golden),
                          value_text(*c.format, decode(*c.format, m.golden)), bits_text(*c.format, m.dut),
                          value_text(*c.format, decode(*c.format, m.dut)), m.ulps ? fmt::format("{}", *m.ulps) : "-",
                          std::string(class_of(m.difference).name)});
  }
  return table;
}

}  // namespace

Document document_of(const Diff& diff, std::string_view golden, std::string_view dut) {
  Document document;
  document.title = fmt::format("{} (GOLDEN) and {} (DUT)", golden, dut);
  for (const Comparison& c : diff.parts) {
    Section section;
    section.title = fmt::format("{}: {} of {}", c.name, c.format->name, shape_text(c.shape));
    section.facts.push_back(
        {"mismatches", fmt::format("{} of {}", c.mismatches, c.elements), percent(c.mismatches, c.elements)});
    if (c.outside) section.facts.push_back({"outside the tolerance", fmt::format("{} of {}", *c.outside, c.elements)});
    if (!c.equal()) {
      section.facts.push_back({"rows, columns",
                               fmt::format("{} of {}, {} of {}", c.rows_touched, c.map.matrix_rows, c.columns_touched,
                                           c.map.matrix_columns),
                               "with mismatches"});
      section.tables.push_back(classes_table(c));
      section.tables.push_back(ulp_table(c));
      section.tables.push_back(mismatch_table(c, c.first, "first"));
      // Where all are equally bad, the worst are the first.
      const bool the_same = std::all_of(c.worst.begin(), c.worst.end(), [&](const Mismatch& m) {
        return m.difference == c.first.front().difference && m.ulps == c.first.front().ulps;
      });
      if (!the_same) section.tables.push_back(mismatch_table(c, c.worst, "worst"));
      for (const Pattern& p : c.patterns) section.remarks.push_back(fmt::format("Pattern: {}.", p.text));
    }
    document.sections.push_back(std::move(section));
  }
  for (const Diagnosis& d : diff.diagnoses) {
    Section section;
    section.title = d.in_golden ? fmt::format("in GOLDEN: {}", d.title) : d.title;
    section.facts.push_back({"hypothesis", fmt::format("{}", fmt::join(d.ids, " + ")), ""});
    section.facts.push_back(
        {"certainty", std::string(name_of(d.certainty)),
         d.certainty == Certainty::complete
             ? fmt::format("the prediction is {}, bit for bit, everywhere", d.in_golden ? "GOLDEN" : "DUT")
         : d.certainty == Certainty::mostly ? "it explains 90 % or more"
                                            : "the data look like it; this does not prove it"});
    section.facts.push_back({"explains", fmt::format("{} of {} mismatches", d.explains, d.of), ""});
    if (d.introduces != 0) {
      section.facts.push_back(
          {"introduces", fmt::format("{}", d.introduces), "elements agree, where it predicts a difference"});
    }
    if (!d.detail.empty()) section.facts.push_back({"found", d.detail, ""});
    if (!d.remedy.empty()) section.facts.push_back({"look at", d.remedy, ""});
    for (const std::string& other : d.indistinguishable) {
      section.facts.push_back({"or", other, "cannot be told apart on this data"});
    }
    document.sections.push_back(std::move(section));
  }
  for (const std::string& warning : diff.warnings) document.results.push_back({"warning", warning});
  if (!diff.equal()) {
    const std::string none = fmt::format("none of {} hypotheses and pairs explains the mismatches", diff.tried);
    std::string diagnosis = !diff.diagnoses.empty() ? diff.diagnoses.front().title
                            : diff.tried == 0       ? "not asked for"
                                                    : none;
    if (diff.golden_is_wrong()) {
      constexpr std::string_view wrong = "GOLDEN is not what bitcube computes from these inputs, and DUT is";
      diagnosis = diff.diagnoses.empty() ? std::string(wrong) : fmt::format("{}; in GOLDEN: {}", wrong, diagnosis);
    }
    document.results.push_back({"diagnosis", std::move(diagnosis)});
  }
  document.results.push_back({"result", diff.equal()    ? "equal, bit for bit"
                                        : diff.passes() ? "within the tolerance, but not equal"
                                                        : "different"});
  if (!diff.explain_command.empty()) document.results.push_back({"explain it", diff.explain_command, "", true});
  return document;
}

namespace {

using Json = nlohmann::ordered_json;

Json mismatches_json(const Comparison& c, const std::vector<Mismatch>& list) {
  Json json = Json::array();
  for (const Mismatch& m : list) {
    json.push_back({{"index", m.index},
                    {"at", m.at},
                    {"golden_bits", bits_text(*c.format, m.golden)},
                    {"golden", value_text(*c.format, decode(*c.format, m.golden))},
                    {"dut_bits", bits_text(*c.format, m.dut)},
                    {"dut", value_text(*c.format, decode(*c.format, m.dut))},
                    {"ulp", m.ulps ? Json(*m.ulps) : Json()},
                    {"class", class_of(m.difference).name}});
  }
  return json;
}

Json part_json(const Comparison& c) {
  Json json{{"name", c.name}, {"format", c.format->name}, {"shape", c.shape}, {"elements", c.elements}};
  json["mismatches"] = c.mismatches;
  if (c.outside) json["outside"] = *c.outside;
  json["rows_touched"] = c.rows_touched;
  json["columns_touched"] = c.columns_touched;
  Json classes = Json::object();
  for (std::size_t i = 0; i < c.classes.size(); ++i) classes[std::string(difference_classes[i].name)] = c.classes[i];
  json["classes"] = std::move(classes);
  json["ulps"] = Json::array();
  for (const UlpBin& bin : c.ulps) json["ulps"].push_back({{"from", bin.from}, {"to", bin.to}, {"count", bin.count}});
  json["first"] = mismatches_json(c, c.first);
  json["worst"] = mismatches_json(c, c.worst);
  json["patterns"] = Json::array();
  for (const Pattern& p : c.patterns) json["patterns"].push_back({{"id", p.id}, {"text", p.text}});
  json["map"] = {{"rows", c.map.rows},
                 {"columns", c.map.columns},
                 {"rows_per_cell", c.map.rows_per_cell},
                 {"columns_per_cell", c.map.columns_per_cell},
                 {"mismatches", c.map.mismatches}};
  return json;
}

}  // namespace

std::string json_of(const Diff& diff, std::string_view golden, std::string_view dut, int indent) {
  Json json = Json::parse(json_of(document_of(diff, golden, dut), -1));
  json["equal"] = diff.equal();
  json["passes"] = diff.passes();
  json["mismatches"] = diff.mismatches();
  json["tried"] = diff.tried;
  if (diff.golden_faults) json["golden_faults"] = *diff.golden_faults;
  if (diff.dut_faults) json["dut_faults"] = *diff.dut_faults;
  json["warnings"] = diff.warnings;
  json["parts"] = Json::array();
  for (const Comparison& c : diff.parts) json["parts"].push_back(part_json(c));
  json["diagnoses"] = Json::array();
  for (const Diagnosis& d : diff.diagnoses) {
    json["diagnoses"].push_back({{"ids", d.ids},
                                 {"title", d.title},
                                 {"certainty", name_of(d.certainty)},
                                 {"explains", d.explains},
                                 {"of", d.of},
                                 {"introduces", d.introduces},
                                 {"detail", d.detail},
                                 {"remedy", d.remedy},
                                 {"indistinguishable", d.indistinguishable},
                                 {"in_golden", d.in_golden}});
  }
  if (!diff.explain_command.empty()) json["explain"] = diff.explain_command;
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace bitcube
