#include "bitcube/io/directory.hpp"

#include <dirent.h>
#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <string_view>
#include <system_error>

namespace bitcube {

Expected<std::vector<std::string>> directory_names(const std::filesystem::path& path) {
  const auto failed = [&](int code) {
    return Error{fmt::format("{}: {}", path.string(), std::generic_category().message(code))};
  };
  const std::unique_ptr<DIR, decltype([](DIR* d) { ::closedir(d); })> directory(::opendir(path.c_str()));
  if (!directory) return failed(errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return failed(errno);
  return names;
}

}  // namespace bitcube
