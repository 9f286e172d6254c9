#include "checkpoint_files.hpp"

#include <fmt/format.h>

#include <map>

#include "quote_text.hpp"

namespace bitcube::stream {

Expected<CheckpointFiles> visit_checkpoint(
    const std::filesystem::path& path,
    const std::function<Expected<void>(const CheckpointFile& file, Safetensors safetensors)>& visit) {
  CheckpointFiles out;
  if (auto regular = check_regular(path); !regular) return regular.error();
  if (!is_shard_index(path)) {
    out.files.push_back({"", path});
    auto file = read_safetensors(path);
    if (!file) return file.error();
    if (auto done = visit(out.files.front(), std::move(*file)); !done) return done.error();
    return out;
  }
  const auto fail = [&](std::string_view message) { return Error{fmt::format("{}: {}", path.string(), message)}; };
  auto index = read_shard_index(path);
  if (!index) return index.error();
  std::map<std::string_view, std::string_view> listed;  // the file of each tensor
  std::map<std::string_view, std::string_view> first;   // a tensor of each file
  for (const auto& [tensor, file] : index->weights) {
    listed.emplace(tensor, file);
    first.emplace(file, tensor);
  }
  std::map<std::string, std::string> seen;
  for (const std::string& name : index->files()) {
    out.files.push_back({name, path.parent_path() / name});
    const auto regular = check_regular(out.files.back().path);
    auto file = regular ? read_safetensors(out.files.back().path) : regular.error();
    if (!file) {
      return fail(fmt::format("tensor {} should be in {}, which cannot be read: {}", quote_text(first.at(name)),
                              quote_text(name), file.error().message));
    }
    for (const SafetensorsTensor& tensor : file->tensors()) {
      const auto [before, is_new] = seen.emplace(tensor.name, name);
      if (!is_new) {
        return fail(fmt::format("tensor {} is in two files, {} and {}; take it out of one", quote_text(tensor.name),
                                quote_text(before->second), quote_text(name)));
      }
      if (!listed.contains(tensor.name)) out.unlisted.push_back(tensor.name);
    }
    if (auto done = visit(out.files.back(), std::move(*file)); !done) return done.error();
  }
  for (const auto& [tensor, file] : index->weights) {
    const auto found = seen.find(tensor);
    if (found == seen.end()) {
      return fail(fmt::format("tensor {} should be in {}, but is not", quote_text(tensor), quote_text(file)));
    }
    if (found->second != file) {
      return fail(fmt::format("tensor {} should be in {}, but is in {}", quote_text(tensor), quote_text(file),
                              quote_text(found->second)));
    }
  }
  out.index = std::move(*index);
  return out;
}

}  // namespace bitcube::stream
