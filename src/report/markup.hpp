// Markup that is well-formed by construction, as HTML and as XML: text and attributes are escaped, elements closed.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bitcube::report {

/// Text of any origin as characters that XML allows: bytes that are no UTF-8, and characters that may not stand in a
/// document, become U+FFFD each.
std::string clean_text(std::string_view text);
/// The same with &, <, >, " and ' as references.
std::string escape_text(std::string_view text);

/// At most `most` characters: the middle of a longer text is an ellipsis.
std::string shorten_text(std::string_view text, std::size_t most);
/// Labels of names that stand together, each of at most `most` characters and different from all others. Of names that
/// do not fit, what they share between dots gives way first, at both ends.
std::vector<std::string> distinct_labels(std::span<const std::string> names, std::size_t most);

using Attribute = std::pair<std::string_view, std::string>;
using Attributes = std::initializer_list<Attribute>;

/// Writes elements one after the other. Names of elements and attributes are taken as they are.
class Markup {
 public:
  Markup& open(std::string_view name, Attributes attributes = {});
  /// Closes the innermost element that is open.
  Markup& close();
  Markup& text(std::string_view text);
  /// An element with text alone.
  Markup& element(std::string_view name, Attributes attributes, std::string_view text);
  Markup& element(std::string_view name, std::string_view text) { return element(name, {}, text); }
  /// An element that never has content: of SVG, or a void one of HTML.
  Markup& empty(std::string_view name, Attributes attributes);
  /// What is markup already, or a style sheet.
  Markup& raw(std::string_view markup);

  /// All of it. Precondition: everything that was opened is closed.
  std::string take() && { return std::move(out_); }

 private:
  void begin(std::string_view name, Attributes attributes);

  std::string out_;
  std::vector<std::string> open_;
};

}  // namespace bitcube::report
