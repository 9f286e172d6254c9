// What explain and diff have to say, as data: the text for people and the JSON for machines are both made from it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace bitcube {

/// A line of a section: what it is, what was found, and why.
struct Fact {
  std::string name;
  std::string value;
  std::string remark{};   // or empty
  bool verbatim = false;  // the value is a command: it stays in one line
};

/// Rows have as many cells as the header, or fewer.
struct Table {
  std::string title{};  // or empty
  std::vector<std::string> header{};
  std::vector<std::vector<std::string>> rows{};
  std::vector<std::size_t> right_aligned{};  // columns
};

/// A step of an explanation, or a part of a report.
struct Section {
  std::string title;
  std::string clause{};  // of the contract: "numerics 6.2", or empty
  std::vector<Fact> facts{};
  std::vector<Table> tables{};
  std::vector<std::string> remarks{};  // sentences
};

struct Document {
  std::string title;
  std::vector<Section> sections{};
  std::vector<Fact> results{};  // the last lines of the text; of an explanation the last one is the result
};

/// Numbered sections, for a terminal of 100 columns: only a single word may be wider. Sentences are wrapped, and so are
/// the cells of a table that are sentences; where that does not do, each row of the table is folded over several lines,
/// its header likewise.
std::string text_of(const Document& document);

/// An object with the members title, sections and results. Sections have title, clause, facts, tables and remarks;
/// facts have name, value and remark; tables have title, header and rows. Empty members are left out. `indent` as with
/// most JSON writers; -1 gives a single line.
std::string json_of(const Document& document, int indent = 2);

}  // namespace bitcube
