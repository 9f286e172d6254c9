#include "bitcube/document.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text_table.hpp"

namespace bitcube {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t columns = 100;

/// The words of `text` in lines of at most `width`. A longer word has a line of its own; there is always a line.
std::vector<std::string> lines_of(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  std::size_t column = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (column > 0 && column + 1 + text_width(word) > width) {
      lines.emplace_back();
      column = 0;
    } else if (column > 0) {
      lines.back() += ' ';
      ++column;
    }
    lines.back() += word;
    column += text_width(word);
  }
  return lines;
}

std::size_t longest_word(std::string_view text) {
  std::size_t longest = 0;
  for (const std::string& word : lines_of(text, 0)) longest = std::max(longest, text_width(word));
  return longest;
}

/// The words of `text` in lines that start at `indent`, the first of them where the line already is.
std::string wrapped(std::string_view text, std::size_t indent) {
  return fmt::format("{}", fmt::join(lines_of(text, columns - indent), '\n' + std::string(indent, ' ')));
}

/// Names and values in columns, and the remarks in what is left of the line.
std::string facts_text(const std::vector<Fact>& facts, std::size_t indent) {
  constexpr std::size_t widest = 40;  // a longer name or value does not move those of the others
  std::size_t names = 0;
  std::size_t values = 0;
  for (const Fact& fact : facts) {
    if (text_width(fact.name) <= widest) names = std::max(names, text_width(fact.name));
    if (!fact.remark.empty() && text_width(fact.value) <= widest) values = std::max(values, text_width(fact.value));
  }
  const std::size_t at = indent + names + 2;
  const auto line_at = [](std::size_t column) { return '\n' + std::string(column, ' '); };
  std::string out;
  for (const Fact& fact : facts) {
    const std::size_t name = text_width(fact.name);
    const bool beside = name <= names && (fact.verbatim || at + longest_word(fact.value) <= columns);
    const std::size_t start = beside ? at : indent + 2;
    out += std::string(indent, ' ') + wrapped(fact.name, indent);
    out += beside ? std::string(names - name + 2, ' ') : line_at(start);
    out += fact.verbatim ? fact.value : wrapped(fact.value, start);
    if (!fact.remark.empty()) {
      const std::size_t width = text_width(fact.value);
      const std::size_t remark = start + 2 + std::max(width, values);
      // A long value leaves no room beside it.
      if (start + width + 2 > columns * 2 / 3 || remark + longest_word(fact.remark) > columns) {
        out += line_at(start + 2) + wrapped(fact.remark, start + 2);
      } else {
        out += std::string(remark - start - width, ' ') + wrapped(fact.remark, remark);
      }
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

using Cells = std::vector<std::string>;

/// Columns of a table that stand side by side, and how wide each may be.
struct Layout {
  std::vector<std::size_t> widths{};
  std::vector<std::size_t> ends{};  // one past the last column of each line that a row takes
};

constexpr std::size_t gap = 2;          // between columns
constexpr std::size_t fold_indent = 6;  // of the second and further lines of a row

/// How many lines a row takes if none is wider than `room`; the ends of these go to `ends`.
std::size_t fold(const std::vector<std::size_t>& widths, std::size_t room, std::vector<std::size_t>& ends) {
  ends.clear();
  std::size_t used = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const bool first = i == 0 || (!ends.empty() && ends.back() == i);
    if (!first && used + gap + widths[i] > room) {
      ends.push_back(i);
      used = fold_indent + widths[i];
    } else {
      used += widths[i] + (first ? 0 : gap);
    }
  }
  ends.push_back(widths.size());
  return ends.size();
}

/// Columns as wide as their cells where that fits; else columns of sentences are wrapped; else rows are folded over
/// lines of about the same width.
Layout layout_of(const std::vector<Cells>& rows, std::size_t room) {
  constexpr std::ptrdiff_t sentence = 4;  // spaces
  constexpr std::size_t narrowest = 24;
  Layout layout;
  std::vector<std::size_t>& widths = layout.widths;
  std::vector<std::size_t> least;  // nothing for columns that are not wrapped
  for (const Cells& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    least.resize(widths.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], text_width(row[i]));
      if (std::count(row[i].begin(), row[i].end(), ' ') >= sentence) least[i] = narrowest;
    }
  }
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (least[i] != 0) least[i] = std::max(least[i], longest_word(row[i]));
    }
  }
  std::size_t total = widths.empty() ? 0 : gap * (widths.size() - 1);
  std::size_t shrunk = total;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    total += widths[i];
    shrunk += least[i] == 0 ? widths[i] : std::min(widths[i], least[i]);
  }
  layout.ends = {widths.size()};
  if (shrunk <= room) {
    for (; total > room; --total) {
      std::size_t widest = widths.size();
      for (std::size_t i = 0; i < widths.size(); ++i) {
        const bool shrinks = least[i] != 0 && widths[i] > least[i];
        if (shrinks && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
      }
      --widths[widest];
    }
    return layout;
  }
  for (std::size_t& width : widths) width = std::min(width, room - fold_indent);
  const std::size_t lines = fold(widths, room, layout.ends);
  std::vector<std::size_t> ends;
  for (std::size_t narrower = room - 1; narrower > fold_indent && fold(widths, narrower, ends) == lines; --narrower) {
    layout.ends = ends;
  }
  return layout;
}

/// The lines of each row in the columns from `begin` to `end`.
std::vector<Cells> lines_of_rows(const Table& table, const std::vector<Cells>& rows, const Layout& layout,
                                 std::size_t begin, std::size_t end) {
  TextTable text;
  std::vector<std::size_t> heights;
  for (const Cells& row : rows) {
    std::vector<Cells> lines(1);
    for (std::size_t i = begin; i < std::min(end, row.size()); ++i) {
      const auto parts = lines_of(row[i], layout.widths[i]);
      lines.resize(std::max(lines.size(), parts.size()));
      for (std::size_t n = 0; n < parts.size(); ++n) {
        lines[n].resize(i - begin + 1);
        lines[n].back() = parts[n];
      }
    }
    heights.push_back(lines.size());
    for (Cells& line : lines) text.add(std::move(line));
  }
  std::vector<std::size_t> right;
  for (const std::size_t column : table.right_aligned) {
    if (column >= begin && column < end) right.push_back(column - begin);
  }
  const std::string all = text.text(right, std::string(gap, ' '));
  std::vector<Cells> out;
  std::size_t at = 0;
  for (const std::size_t height : heights) {
    Cells& lines = out.emplace_back();
    for (std::size_t n = 0; n < height; ++n) {
      const std::size_t stop = all.find('\n', at);
      lines.push_back(all.substr(at, stop - at));
      at = stop + 1;
    }
  }
  return out;
}

std::string table_text(const Table& table, std::size_t indent) {
  std::string out;
  if (!table.title.empty()) out += std::string(indent, ' ') + wrapped(table.title + ':', indent) + '\n';
  const std::size_t margin = indent + (table.title.empty() ? 0 : 2);
  std::vector<Cells> rows;
  if (!table.header.empty()) rows.push_back(table.header);
  rows.insert(rows.end(), table.rows.begin(), table.rows.end());
  const Layout layout = layout_of(rows, columns - margin);
  std::vector<std::vector<Cells>> parts;  // one for each line that a row takes
  for (std::size_t n = 0; n < layout.ends.size(); ++n) {
    parts.push_back(lines_of_rows(table, rows, layout, n == 0 ? 0 : layout.ends[n - 1], layout.ends[n]));
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t n = 0; n < parts.size(); ++n) {
      for (const std::string& line : parts[n][i]) {
        if (n != 0 && line.empty()) continue;  // the row ends earlier
        out += std::string(margin + (n == 0 ? 0 : fold_indent), ' ') + line;
        out.erase(out.find_last_not_of(' ') + 1);
        out += '\n';
      }
    }
  }
  return out;
}

/// Number, title and clause.
std::string heading(std::size_t number, const Section& section, std::size_t indent) {
  std::string out = fmt::format("{:<2} {}", number, wrapped(section.title, indent));
  if (section.clause.empty()) return out + '\n';
  const std::string clause = fmt::format("[{}]", section.clause);
  const std::size_t line = text_width(std::string_view(out).substr(out.rfind('\n') + 1));
  out += line + gap + text_width(clause) <= columns ? std::string(gap, ' ') : '\n' + std::string(indent, ' ');
  return out + wrapped(clause, indent) + '\n';
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
    out += '\n' + heading(++number, section, indent);
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
