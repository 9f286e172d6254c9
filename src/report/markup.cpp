#include "markup.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <unordered_map>

namespace bitcube::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// The bytes of the character at the beginning of a text that is not empty, or 0 if they are no UTF-8 (RFC 3629) or a
/// character that XML forbids.
std::size_t character_bytes(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 ? (first == 0x7F ? 0 : 1) : (first == '\t' || first == '\n' ? 1 : 0);
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  std::uint32_t code = first & (0x7FU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr std::array<std::uint32_t, 5> least{0, 0, 0x80, 0x800, 0x10000};
  if (code < least[size] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return 0;
  if (code < 0xA0 || (code & 0xFFFE) == 0xFFFE) return 0;  // controls, and what is no character
  return size;
}

/// Elements that begin a line of their own.
bool begins_line(std::string_view name) {
  constexpr std::array<std::string_view, 29> names{
      "html", "head",    "body",   "meta",  "title",      "style", "header",  "nav",   "main", "section",
      "h1",   "h2",      "h3",     "p",     "ul",         "li",    "dl",      "dt",    "div",  "footer",
      "svg",  "details", "figure", "table", "figcaption", "tr",    "caption", "thead", "tbody"};
  return std::ranges::find(names, name) != names.end();
}

/// Where the characters of a clean text begin.
std::vector<std::size_t> character_starts(std::string_view text) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) starts.push_back(i);
  }
  return starts;
}

using Words = std::vector<std::string_view>;

Words words_between_dots(std::string_view text) {
  Words out;
  for (std::size_t dot = text.find('.'); dot != std::string_view::npos; dot = text.find('.')) {
    out.push_back(text.substr(0, dot));
    text.remove_prefix(dot + 1);
  }
  out.push_back(text);
  return out;
}

/// Words [first, last) with dots between them, and an ellipsis for those before and those behind.
std::string text_of(const Words& words, std::size_t first, std::size_t last) {
  std::string out = first > 0 ? "…" : "";
  for (std::size_t i = first; i < last; ++i) {
    if (i > first) out += '.';
    out += words[i];
  }
  return last < words.size() ? out + "…" : out;
}

/// Labels of the names of a group, which may not all be different.
void label_group(std::span<const std::string> names, const std::vector<std::size_t>& group, std::size_t most,
                 std::vector<std::string>& labels) {
  std::vector<Words> words;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const std::size_t i : group) {
    words.push_back(words_between_dots(names[i]));
    least = std::min(least, words.back().size());
  }
  // What all share before and behind; of each name a word is left.
  const auto shared = [&](std::size_t end, const auto& word) {
    std::size_t count = 0;
    while (count < end &&
           std::ranges::all_of(words, [&](const Words& w) { return word(w, count) == word(words[0], count); }))
      ++count;
    return count;
  };
  if (words.empty()) return;
  const std::size_t before = shared(least - 1, [](const Words& w, std::size_t i) { return w[i]; });
  const std::size_t behind =
      shared(least - 1 - before, [](const Words& w, std::size_t i) { return w[w.size() - 1 - i]; });
  std::map<std::string, std::vector<std::size_t>> same;
  for (std::size_t k = 0; k < group.size(); ++k) {
    const Words& w = words[k];
    const auto fits = [&](std::size_t first, std::size_t last) {
      return character_starts(clean_text(text_of(w, first, last))).size() <= most;
    };
    std::size_t first = before;
    std::size_t last = w.size() - behind;
    // As much of what is shared as there is room for, nearest first.
    for (bool grown = true; grown;) {
      grown = false;
      if (last < w.size() && fits(first, last + 1)) {
        ++last;
        grown = true;
      }
      if (first > 0 && fits(first - 1, last)) {
        --first;
        grown = true;
      }
    }
    labels[group[k]] = shorten_text(fits(0, w.size()) ? names[group[k]] : text_of(w, first, last), most);
    same[labels[group[k]]].push_back(group[k]);
  }
  // Some may share more than all do.
  for (const auto& [label, some] : same) {
    if (some.size() > 1 && some.size() < group.size()) label_group(names, some, most, labels);
  }
}

}  // namespace

std::string clean_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    out += bytes != 0 ? text.substr(0, bytes) : kReplacement;
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return out;
}

std::string escape_text(std::string_view text) {
  std::string out;
  for (const char c : clean_text(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string shorten_text(std::string_view text, std::size_t most) {
  const std::string clean = clean_text(text);
  const std::vector<std::size_t> starts = character_starts(clean);
  if (starts.size() <= most) return clean;
  const std::size_t before = (most - 1) / 2;
  const std::size_t after = most - 1 - before;
  return clean.substr(0, starts[before]) + "…" + clean.substr(starts[starts.size() - after]);
}

std::vector<std::string> distinct_labels(std::span<const std::string> names, std::size_t most) {
  std::vector<std::string> labels(names.size());
  std::vector<std::size_t> all(names.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  label_group(names, all, most, labels);
  // What is the same, or differs in a word too long to be shown, is told apart by a number.
  std::unordered_map<std::string, std::size_t> seen;
  for (const std::string& label : labels) seen.emplace(label, 0);
  for (std::string& label : labels) {
    std::size_t& count = seen[label];
    if (++count == 1) continue;
    const std::string name = label;
    for (;; ++count) {
      const std::string number = " #" + std::to_string(count);
      label = shorten_text(name, most - number.size()) + number;
      if (seen.emplace(label, 1).second) break;
    }
  }
  return labels;
}

void Markup::begin(std::string_view name, Attributes attributes) {
  if (begins_line(name)) out_ += '\n';
  out_ += '<';
  out_ += name;
  for (const auto& [key, value] : attributes) {
    out_ += ' ';
    out_ += key;
    out_ += "=\"";
    out_ += escape_text(value);
    out_ += '"';
  }
}

Markup& Markup::open(std::string_view name, Attributes attributes) {
  begin(name, attributes);
  out_ += '>';
  open_.emplace_back(name);
  return *this;
}

Markup& Markup::close() {
  out_ += "</" + open_.back() + ">";
  open_.pop_back();
  return *this;
}

Markup& Markup::text(std::string_view text) {
  out_ += escape_text(text);
  return *this;
}

Markup& Markup::element(std::string_view name, Attributes attributes, std::string_view text) {
  return open(name, attributes).text(text).close();
}

Markup& Markup::empty(std::string_view name, Attributes attributes) {
  begin(name, attributes);
  out_ += "/>";
  return *this;
}

Markup& Markup::raw(std::string_view markup) {
  out_ += markup;
  return *this;
}

}  // namespace bitcube::report
