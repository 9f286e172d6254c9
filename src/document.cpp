#include "bitcube/document.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "text_table.hpp"

namespace bitcube {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t columns = 100;

/// The words of `text` in lines that start at `indent`, the first of them where the line already is.
std::string wrapped(std::string_view text, std::size_t indent) {
  std::string out;
  std::size_t column = indent;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (column > indent && column + 1 + text_width(word) > columns) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += text_width(word);
  }
  return out;
}

/// Names and values in columns, and the remarks in what is left of the line.
std::string facts_text(const std::vector<Fact>& facts, std::size_t indent) {
  constexpr std::size_t widest_value = 40;  // a longer one does not move the remarks of the others
  std::size_t names = 0;
  std::size_t values = 0;
  for (const Fact& fact : facts) {
    names = std::max(names, text_width(fact.name));
    if (!fact.remark.empty() && text_width(fact.value) <= widest_value) {
      values = std::max(values, text_width(fact.value));
    }
  }
  std::string out;
  for (const Fact& fact : facts) {
    const std::size_t at = indent + names + 2;
    out += std::string(indent, ' ') + fact.name + std::string(names - text_width(fact.name) + 2, ' ');
    if (fact.verbatim) {
      out += fact.value;
    } else if (fact.remark.empty()) {
      out += wrapped(fact.value, at);
    } else {
      const std::size_t width = text_width(fact.value);
      // A long value leaves no room beside it.
      const bool below = at + width + 2 > columns * 2 / 3;
      const std::size_t start = at + 2 + (below ? 0 : std::max(width, values));
      out += fact.value + (below ? '\n' + std::string(start, ' ') : std::string(start - at - width, ' '));
      out += wrapped(fact.remark, start);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

std::string table_text(const Table& table, std::size_t indent) {
  TextTable cells;
  if (!table.header.empty()) cells.add(table.header);
  for (const auto& row : table.rows) cells.add(row);
  std::string out;
  if (!table.title.empty()) out += std::string(indent, ' ') + wrapped(table.title, indent) + ":\n";
  const std::string margin(indent + (table.title.empty() ? 0 : 2), ' ');
  std::string text = cells.text(table.right_aligned);
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    out += margin;
    out += line;
    out += '\n';
    rest.remove_prefix(line.size() + 1);
  }
  return out;
}

Json facts_json(const std::vector<Fact>& facts) {
  Json json = Json::array();
  for (const Fact& fact : facts) {
    json.push_back({{"name", fact.name}, {"value", fact.value}});
    if (!fact.remark.empty()) json.back()["remark"] = fact.remark;
  }
  return json;
}

Json table_json(const Table& table) {
  Json json = Json::object();
  if (!table.title.empty()) json["title"] = table.title;
  json["header"] = table.header;
  json["rows"] = table.rows;
  return json;
}

}  // namespace

std::string text_of(const Document& document) {
  constexpr std::size_t indent = 3;
  std::string out = wrapped(document.title, 0) + '\n';
  std::size_t number = 0;
  for (const Section& section : document.sections) {
    out += fmt::format("\n{:<2} {}", ++number, wrapped(section.title, indent));
    out += section.clause.empty() ? "\n" : fmt::format("  [{}]\n", section.clause);
    out += facts_text(section.facts, indent);
    for (const Table& table : section.tables) out += table_text(table, indent);
    for (const std::string& remark : section.remarks) {
      out += std::string(indent, ' ') + wrapped(remark, indent) + '\n';
    }
  }
  if (!document.results.empty()) out += '\n' + facts_text(document.results, 0);
  return out;
}

std::string json_of(const Document& document, int indent) {
  Json json{{"title", document.title}};
  json["sections"] = Json::array();
  for (const Section& section : document.sections) {
    Json part{{"title", section.title}};
    if (!section.clause.empty()) part["clause"] = section.clause;
    if (!section.facts.empty()) part["facts"] = facts_json(section.facts);
    for (const Table& table : section.tables) part["tables"].push_back(table_json(table));
    if (!section.remarks.empty()) part["remarks"] = section.remarks;
    json["sections"].push_back(std::move(part));
  }
  json["results"] = facts_json(document.results);
  // Names of files may be no UTF-8.
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace bitcube
