#include "markup.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

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
  std::vector<std::size_t> starts;  // of the characters
  for (std::size_t i = 0; i < clean.size(); ++i) {
    if ((static_cast<unsigned char>(clean[i]) & 0xC0) != 0x80) starts.push_back(i);
  }
  if (starts.size() <= most) return clean;
  const std::size_t before = (most - 1) / 2;
  const std::size_t after = most - 1 - before;
  return clean.substr(0, starts[before]) + "…" + clean.substr(starts[starts.size() - after]);
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
