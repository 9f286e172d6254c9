#include "quote_text.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace bitcube {
namespace {

/// Whether a text has controls of C0 or C1, of lines, or of the direction of text (Unicode's Bidi_Control), or U+FEFF.
bool has_unseen(std::string_view text) noexcept {
  constexpr std::array<std::string_view, 14> unseen{"\u061C", "\u200E", "\u200F", "\u2028", "\u2029",
                                                    "\u202A", "\u202B", "\u202C", "\u202D", "\u202E",
                                                    "\u2066", "\u2067", "\u2068", "\u2069"};
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (control_bytes(text, i) != 0) return true;
  }
  return text.find("\uFEFF") != std::string_view::npos || std::ranges::any_of(unseen, [&](std::string_view character) {
           return text.find(character) != std::string_view::npos;
         });
}

}  // namespace

std::size_t control_bytes(std::string_view text, std::size_t at) noexcept {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x20 || byte == 0x7F) return 1;
  // U+0080 to U+009F are C2 80 to C2 9F.
  const bool c1 = byte == 0xC2 && at + 1 < text.size() && (static_cast<unsigned char>(text[at + 1]) & 0xE0) == 0x80;
  return c1 ? 2 : 0;
}

std::string quote_text(std::string_view text, std::size_t most) {
  using Json = nlohmann::json;
  const std::string_view shown = text.substr(0, most);
  const std::string json = Json(shown).dump(-1, ' ', has_unseen(shown), Json::error_handler_t::replace);
  return text.size() <= most ? json : json + "...";
}

std::string name_text(std::string_view name, std::size_t most) {
  const bool plain = !name.empty() && name.size() <= most && name.front() != '"' && name.front() != ' ' &&
                     name.back() != ' ' && !has_unseen(name);
  return plain ? std::string(name) : quote_text(name, most);
}

}  // namespace bitcube
