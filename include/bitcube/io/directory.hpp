// What is in a directory.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bitcube/expected.hpp"

namespace bitcube {

/// The names in a directory, without . and .., in no certain order. Unlike std::filesystem's iterator, which ends the
/// program where memory runs out, it throws then.
Expected<std::vector<std::string>> directory_names(const std::filesystem::path& path);

}  // namespace bitcube
