// Finding one's way in a Document.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "bitcube/document.hpp"

namespace bitcube::test {

/// The first section whose title starts like this, or nullptr.
inline const Section* find_section(const Document& document, std::string_view title) {
  for (const Section& section : document.sections) {
    if (section.title.starts_with(title)) return &section;
  }
  return nullptr;
}

/// "value | remark" of a fact; "no such fact" if there is none.
inline std::string fact(const Document& document, std::string_view title, std::string_view name) {
  const Section* section = find_section(document, title);
  if (section == nullptr) return "no such section";
  for (const Fact& f : section->facts) {
    if (f.name == name) return f.remark.empty() ? f.value : f.value + " | " + f.remark;
  }
  return "no such fact";
}

/// The cells of the row that starts with this cell, or with a mark and then this cell.
inline std::vector<std::string> row(const Document& document, std::string_view title, std::string_view name) {
  const Section* section = find_section(document, title);
  if (section == nullptr) return {"no such section"};
  for (const Table& table : section->tables) {
    for (const auto& cells : table.rows) {
      if (!cells.empty() && (cells[0] == name || (cells.size() > 1 && cells[1] == name))) return cells;
    }
  }
  return {"no such row"};
}

/// The last line of the text.
inline std::string last_line(const Document& document) {
  return document.results.empty() ? "no result" : document.results.back().name + " " + document.results.back().value;
}

using Cells = std::vector<std::string>;

}  // namespace bitcube::test
