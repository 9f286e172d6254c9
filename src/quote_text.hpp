// Names of strangers as text that shows what they are.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bitcube {

/// How many bytes the control of C0 or C1, or DEL, has that is at `at`; 0: there is another character.
std::size_t control_bytes(std::string_view text, std::size_t at) noexcept;

/// A name or pattern as a JSON string, for messages; of a longer one the first `most` bytes, and an ellipsis.
std::string quote_text(std::string_view text, std::size_t most = 200);
/// A name as it is where that can be read, else as quote_text(): one that is empty or longer, that begins with a
/// quote, begins or ends with a space, or has characters that are not seen or that change the direction of others.
std::string name_text(std::string_view name, std::size_t most = 200);

}  // namespace bitcube
