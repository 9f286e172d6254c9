// Comma-separated golden vectors: one header line, no quoting. Found in vectors/ of the source tree, or in the
// directory that the environment variable BITCUBE_VECTORS names.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace bitcube::test {

inline std::filesystem::path vector_path(std::string_view file) {
  const char* directory = std::getenv("BITCUBE_VECTORS");
  const bool given = directory != nullptr && *directory != '\0';
  return (given ? std::filesystem::path(directory) : std::filesystem::path(BITCUBE_SOURCE_DIR) / "vectors") / file;
}

/// A whole file of vectors, or an empty string if it cannot be read: a test that reads vectors checks that it got some.
inline std::string vector_text(std::string_view file) {
  std::ifstream in(vector_path(file), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Csv {
 public:
  explicit Csv(std::string_view file) : text_(vector_text(file)) {
    std::string_view rest = text_;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      if (line.empty()) continue;
      if (header_.empty()) {
        header_ = split(line);
      } else {
        rows_.push_back(split(line));
      }
    }
  }
  Csv(const Csv&) = delete;  // rows are views of text_
  Csv& operator=(const Csv&) = delete;

  const std::vector<std::vector<std::string_view>>& rows() const noexcept { return rows_; }
  /// Index of a column in each row; the number of columns if there is none of this name.
  std::size_t column(std::string_view name) const noexcept {
    return static_cast<std::size_t>(std::find(header_.begin(), header_.end(), name) - header_.begin());
  }

 private:
  static std::vector<std::string_view> split(std::string_view line) {
    std::vector<std::string_view> fields;
    for (;;) {
      const std::size_t comma = line.find(',');
      fields.push_back(line.substr(0, comma));
      if (comma == std::string_view::npos) return fields;
      line.remove_prefix(comma + 1);
    }
  }

  std::string text_;
  std::vector<std::string_view> header_;
  std::vector<std::vector<std::string_view>> rows_;
};

/// Hexadecimal with or without 0x.
inline std::uint64_t hex(std::string_view digits) {
  if (digits.starts_with("0x")) digits.remove_prefix(2);
  return std::strtoull(std::string(digits).c_str(), nullptr, 16);
}

/// The words of `digits` hexadecimal digits each that a string consists of, first one first.
template <typename Word = std::uint64_t>
std::vector<Word> hex_words(std::string_view text, std::size_t digits) {
  std::vector<Word> words;
  for (std::size_t i = 0; i + digits <= text.size(); i += digits) {
    words.push_back(static_cast<Word>(hex(text.substr(i, digits))));
  }
  return words;
}

}  // namespace bitcube::test
