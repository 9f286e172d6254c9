// What all pages have in common: head, style, contents, sections.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitcube/report/page.hpp"
#include "charts.hpp"
#include "markup.hpp"

namespace bitcube::report {

/// A page under construction. Sections come in the order of the contents, which stand before them; so they are written
/// to body() first.
class Page {
 public:
  Markup& body() noexcept { return body_; }

  /// Begins a section of the page, with an entry in the contents; where it is another text, the title is its tooltip.
  void section(std::string_view id, std::string_view title, std::string_view entry = {});
  void end_section() { body_.close(); }
  /// A heading inside a section, and pictures side by side.
  void begin_panels(std::string_view title, std::string_view text, std::size_t panels);
  void end_panels() { body_.close(); }
  /// A command, which breaks between its words only.
  void command(std::string_view label, std::string_view command);
  void paragraph(std::string_view text) { body_.element("p", text); }
  /// Terms and what they mean.
  void facts(std::span<const Fact> facts);

  std::string finish(const PageHead& head) &&;

 private:
  Markup body_;
  struct Entry {
    std::string id;
    std::string text;
    std::string title;
  };
  std::vector<Entry> contents_;
};

}  // namespace bitcube::report
