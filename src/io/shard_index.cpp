#include "bitcube/io/shard_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "guarded.hpp"

namespace bitcube {
namespace {

using Json = nlohmann::json;

// That of a .safetensors header: an index says less of each tensor than a header does.
constexpr std::uint64_t kMaxIndex = 100'000'000;
constexpr int kMaxDepth = 16;
constexpr std::string_view kMap = "weight_map";
constexpr std::string_view kMetadata = "metadata";

/// A JSON string for a message, cut where it helps nobody any more.
std::string quote(std::string_view text) {
  constexpr std::size_t kLimit = 200;
  const std::string json = Json(text.substr(0, kLimit)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kLimit ? json : json + "...";
}

/// What is wrong with the name of a shard, or "". Links are not looked at: a checkpoint may well consist of them.
std::string path_fault(std::string_view text) {
  if (text.empty()) return "is empty";
  if (text.find('\0') != std::string_view::npos) return "holds a zero byte";
  const std::filesystem::path path(text);
  if (path.is_absolute()) return "is absolute; it must be relative to the directory of the index";
  if (std::ranges::find(path, "..") != path.end()) {
    return "leads out of the directory of the index; it must stay below it";
  }
  if (!path.has_filename() || path.filename() == ".") return "names no file";
  return {};
}

/// Reads the map while it is parsed; only here are keys seen that stand twice. Of all else it bounds the depth, for
/// whoever keeps it.
class Scan final : public nlohmann::json_sax<Json> {
 public:
  std::vector<std::pair<std::string, std::string>> weights;
  bool has_map = false;
  std::string fault;  // why parsing stopped

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }

  bool string(string_t& text) override {
    if (!in_map()) return true;
    const std::string wrong = path_fault(text);
    if (!wrong.empty()) return fail_tensor(fmt::format("the file {} {}", quote(text), wrong));
    weights.back().second = std::filesystem::path(text).lexically_normal().string();
    return true;
  }

  bool start_object(std::size_t) override {
    if (depth_ == 1 && top_key_ == kMap) has_map = true;
    if (!value()) return false;
    keys_.emplace_back();
    return enter();
  }
  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second) {
      fault = fmt::format("{} {} stands twice", in_map() ? "tensor" : "the key", quote(key));
      return false;
    }
    if (depth_ == 1) top_key_ = key;
    if (in_map()) weights.emplace_back(key, "");
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override { return value() && enter(); }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    fault = fmt::format("offset {}: not valid JSON", position == 0 ? 0 : position - 1);
    return false;
  }

 private:
  bool in_map() const { return depth_ == 2 && has_map && top_key_ == kMap; }
  bool fail_tensor(std::string_view what) {
    fault = fmt::format("tensor {}: {}", quote(weights.back().first), what);
    return false;
  }
  /// A value that is no string.
  bool value() { return !in_map() || fail_tensor("its file must be a string"); }
  bool enter() {
    if (++depth_ <= kMaxDepth) return true;
    fault = fmt::format("values are nested deeper than {} levels", kMaxDepth);
    return false;
  }

  int depth_ = 0;
  std::string top_key_;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

std::vector<std::string> ShardIndex::files() const {
  std::vector<std::string> out;
  std::set<std::string_view> seen;
  for (const auto& [tensor, file] : weights) {
    if (seen.insert(file).second) out.push_back(file);
  }
  return out;
}

bool is_shard_index(const std::filesystem::path& path) {
  return path.extension() == ".json";
}

Expected<ShardIndex> read_shard_index(const std::filesystem::path& path) {
  const Expected<InputFile> file = InputFile::open(path, kMaxIndex);
  if (!file) return file.error();
  return parse_shard_index(*file, path.string());
}

Expected<ShardIndex> parse_shard_index(const InputFile& file, std::string_view name) {
  const auto fail = [&](std::string_view message) { return Error{fmt::format("{}: {}", name, message)}; };
  if (file.size() > kMaxIndex) {
    return fail(fmt::format("not an index of shards: it has {} bytes, and {} is the limit", file.size(), kMaxIndex));
  }
  return guarded(name, [&]() -> Expected<ShardIndex> {
    const auto bytes = file.load();
    if (!bytes) return bytes.error();
    const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    // The JSON parser takes a zero byte for the end of the text, and would not see what follows.
    if (const auto zero = text.find('\0'); zero != std::string::npos) {
      return fail(fmt::format("offset {}: not valid JSON: zero byte", zero));
    }
    Scan scan;
    if (!Json::sax_parse(text, &scan)) return fail(scan.fault);
    if (!scan.has_map) {
      return fail(fmt::format("not an index of shards: it must be a JSON object with an object \"{}\"", kMap));
    }
    const auto but_the_map = [](int depth, Json::parse_event_t event, const Json& value) {
      return !(event == Json::parse_event_t::key && depth == 1 && value == kMap);
    };
    const Json json = Json::parse(text, but_the_map, false);
    ShardIndex out;
    if (const auto metadata = json.find(kMetadata); metadata != json.end()) {
      if (!metadata->is_object()) return fail(fmt::format("\"{}\" must be a JSON object", kMetadata));
      out.metadata = metadata->dump();
    }
    out.weights = std::move(scan.weights);
    return out;
  });
}

Expected<std::string> shard_index_text(const ShardIndex& index, std::uint64_t total_size) {
  return guarded("index of shards", [&]() -> Expected<std::string> {
    using Ordered = nlohmann::ordered_json;
    Ordered json;
    Json metadata = index.metadata.empty() ? Json::object() : Json::parse(index.metadata);
    metadata["total_size"] = total_size;  // among the other keys, which are in alphabetical order
    json[kMetadata] = Ordered(metadata);
    Ordered& map = json[kMap] = Ordered::object();
    // operator[] would look for each name among all before it; these are known to be different.
    auto& pairs = map.get_ref<Ordered::object_t&>();
    for (const auto& [tensor, file] : index.weights) pairs.emplace_back(tensor, file);
    return json.dump(2) + "\n";
  });
}

}  // namespace bitcube
