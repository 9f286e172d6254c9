// Columns of text.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bitcube {

/// Code points, which is what columns are counted in.
std::size_t text_width(std::string_view text) noexcept;

/// Columns of text, padded to the widest cell; numbers of cells may differ from row to row.
class TextTable {
 public:
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// Cells in `right_aligned` columns stand at the right. Lines have no spaces at their end.
  std::string text(std::span<const std::size_t> right_aligned = {}, std::string_view separator = "  ") const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace bitcube
