// Finding one's way in a Document.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
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

/// The first line of a text that is wider than a terminal of 100 columns and is not a single word; else nothing.
inline std::string too_wide(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto width = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
    const std::size_t word = std::min(line.find_first_not_of(' '), line.size());
    if (width > 100 && line.find(' ', word) != line.npos) return std::string(line);
  }
  return {};
}

using Cells = std::vector<std::string>;

}  // namespace bitcube::test
