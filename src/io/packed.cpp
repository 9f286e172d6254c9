#include "bitcube/io/packed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace bitcube {
namespace {

// Keys keep their order, so that the same tensors give the same bytes.
using Json = nlohmann::ordered_json;

constexpr std::string_view kKey = "bitcube";
constexpr std::uint64_t kVersion = 1;

/// A JSON string for a message, whatever bytes the text holds.
std::string quote(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_utf8(std::string_view text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text;
  for (const std::uint64_t extent : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", extent);
  return "[" + text + "]";
}

/// The names of a table, for messages.
template <typename Table>
std::string names_of(const Table& table) {
  std::string text;
  for (const auto& row : table) text += fmt::format("{}{}", text.empty() ? "" : ", ", row.name);
  return text;
}

std::string_view code_dtype(const BlockFormat& format) noexcept {
  switch (format.element->type) {
    case DataType::e4m3:
      return "F8_E4M3";
    case DataType::e5m2:
      return "F8_E5M2";
    default:
      return "U8";
  }
}

std::string_view scale_dtype(const BlockFormat& format) noexcept {
  return format.is_hif4() ? "U32" : format.is_mx() ? "F8_E8M0" : "F8_E4M3";
}

/// The shape of codes or scales: the quantised axis moved last, and replaced by what a line takes.
std::vector<std::uint64_t> stored_shape(std::span<const std::uint64_t> shape, std::size_t axis, std::uint64_t last) {
  std::vector<std::uint64_t> stored(shape.begin(), shape.end());
  stored.erase(stored.begin() + static_cast<std::ptrdiff_t>(axis));
  stored.push_back(last);
  return stored;
}

Json describe(const PackedTensor& packed) {
  const QuantizedTensor& t = *packed.tensor;
  Json entry;
  entry["format"] = t.format->name;
  entry["element"] = t.format->element->name;
  entry["group"] = t.format->group;
  entry["shape"] = t.shape;
  entry["axis"] = t.axis;
  if (t.profile != nullptr) entry["profile"] = t.profile->name;
  if (t.scale_rule != nullptr) entry["scale_rule"] = t.scale_rule->name;
  if (!t.format->is_hif4()) entry["rounding"] = name_of(t.rounding);
  if (t.tensor_scale) entry["tensor_scale"] = fmt::format("{:08X}", *t.tensor_scale);
  entry["source"] = t.source->name;
  entry["codes"] = packed.name + ".codes";
  entry["scales"] = packed.name + ".scales";
  return entry;
}

/// The description of a file as JSON, or why there is none.
Expected<Json> description_of(const Safetensors& file, std::string_view file_name) {
  const auto fail = [&](std::string_view message) { return Error{fmt::format("{}: {}", file_name, message)}; };
  const auto& metadata = file.metadata();
  const auto found =
      std::find_if(metadata.begin(), metadata.end(), [](const auto& pair) { return pair.first == kKey; });
  if (found == metadata.end()) {
    return fail("no quantised tensors: the metadata has no key \"bitcube\"; is this a file of plain tensors?");
  }
  Json json = Json::parse(found->second, nullptr, false);
  if (!json.is_object()) return fail("metadata \"bitcube\": must be a JSON object");
  const auto version = json.find("version");
  if (version == json.end() || *version != kVersion) {
    return fail(fmt::format("metadata \"bitcube\": version {}, but this program reads version {}",
                            version == json.end() ? "is missing" : version->dump(), kVersion));
  }
  const auto tensors = json.find("tensors");
  if (tensors == json.end() || !tensors->is_object()) {
    return fail("metadata \"bitcube\": \"tensors\" must be a JSON object");
  }
  return Json(std::move(*tensors));
}

/// Reads the fields of one entry; the first fault sticks.
class Entry {
 public:
  Entry(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) fail("its description must be a JSON object");
  }

  const std::optional<Error>& error() const noexcept { return error_; }

  bool fail(std::string_view message) {
    if (!error_) error_ = Error{fmt::format("{}: {}", where_, message)};
    return false;
  }

  bool has(const char* key) const { return !error_ && json_.contains(key); }

  bool text(const char* key, std::string& value) {
    const Json* field = find(key);
    if (field == nullptr) return false;
    if (!field->is_string()) return fail(fmt::format("\"{}\" must be a string", key));
    value = field->get<std::string>();
    return true;
  }

  bool number(const char* key, std::uint64_t& value) {
    const Json* field = find(key);
    if (field == nullptr) return false;
    if (!field->is_number_unsigned()) return fail(fmt::format("\"{}\" must be an integer that is not negative", key));
    value = field->get<std::uint64_t>();
    return true;
  }

  bool shape(const char* key, std::vector<std::uint64_t>& value) {
    const Json* field = find(key);
    if (field == nullptr) return false;
    const auto is_extent = [](const Json& item) { return item.is_number_unsigned(); };
    if (!field->is_array() || !std::all_of(field->begin(), field->end(), is_extent)) {
      return fail(fmt::format("\"{}\" must be an array of integers that are not negative", key));
    }
    value = field->get<std::vector<std::uint64_t>>();
    return true;
  }

  /// A name of a table; `known` lists what it may be.
  template <typename Row, typename Find>
  bool named(const char* key, const Row*& row, const Find& find_row, std::string_view known) {
    std::string name;
    if (!text(key, name)) return false;
    row = find_row(name);
    if (row != nullptr) return true;
    return fail(fmt::format("\"{}\" is {}, which is not one of {}", key, quote(name), known));
  }

 private:
  const Json* find(const char* key) {
    if (error_) return nullptr;
    const auto field = json_.find(key);
    if (field != json_.end()) return &*field;
    fail(fmt::format("its description has no \"{}\"", key));
    return nullptr;
  }

  const Json& json_;
  std::string where_;
  std::optional<Error> error_;
};

/// Everything but the bytes: the description of `tensor`, and the names of its two parts.
void read_description(Entry& entry, QuantizedTensor& tensor, std::string& codes, std::string& scales) {
  const BlockFormat* format = nullptr;
  if (!entry.named(
          "format", format, [](std::string_view name) { return find_block_format(name); }, names_of(block_formats))) {
    return;
  }
  tensor.format = format;
  std::string element;
  if (entry.text("element", element) && find_format(element) != format->element) {
    entry.fail(fmt::format("\"element\" is {}, but {} has {}", quote(element), format->name, format->element->name));
  }
  std::uint64_t group = 0;
  if (entry.number("group", group) && group != format->group) {
    entry.fail(fmt::format("\"group\" is {}, but {} has {}", group, format->name, format->group));
  }
  entry.shape("shape", tensor.shape);
  std::uint64_t axis = 0;
  if (entry.number("axis", axis) && axis >= tensor.shape.size()) {
    entry.fail(fmt::format("axis {} is outside of shape {}", axis, shape_text(tensor.shape)));
  }
  tensor.axis = axis;

  const auto excludes = [&](const char* key, bool applies) {
    if (!applies && entry.has(key)) entry.fail(fmt::format("{} takes no \"{}\"", format->name, key));
    return !applies;
  };
  if (!excludes("profile", format->is_hif4())) {
    entry.named(
        "profile", tensor.profile, [](std::string_view name) { return find_hif4_profile(name); },
        names_of(hif4_profiles));
    if (tensor.profile != nullptr) tensor.rounding = tensor.profile->lane_rounding;
  }
  if (!excludes("scale_rule", format->is_mx())) {
    entry.named(
        "scale_rule", tensor.scale_rule, [](std::string_view name) { return find_scale_rule(name); },
        names_of(scale_rules));
  }
  if (!excludes("rounding", !format->is_hif4()) && entry.has("rounding")) {
    const RoundingInfo* rounding = nullptr;
    entry.named(
        "rounding", rounding, [](std::string_view name) { return find_rounding(name); }, names_of(roundings));
    if (rounding != nullptr) tensor.rounding = rounding->mode;
  }
  if (!excludes("tensor_scale", format->is_nvfp4()) && entry.has("tensor_scale")) {
    std::string word;
    if (entry.text("tensor_scale", word)) {
      std::uint32_t value = 0;
      const char* end = word.data() + word.size();
      const auto parsed = std::from_chars(word.data(), end, value, 16);
      if (word.size() != 8 || parsed.ec != std::errc() || parsed.ptr != end) {
        entry.fail(
            fmt::format("\"tensor_scale\" is {}, but must be an FP32 word of 8 hexadecimal digits", quote(word)));
      }
      tensor.tensor_scale = value;
    }
  }
  entry.named(
      "source", tensor.source, [](std::string_view name) { return find_format(name); }, names_of(formats));
  if (!entry.error() && !is_quantize_source(*tensor.source)) {
    entry.fail(fmt::format("\"source\" is {}, from which nothing is quantised", tensor.source->name));
  }
  entry.text("codes", codes);
  entry.text("scales", scales);
}

/// The part of this name, whose dtype and shape must be these.
const SafetensorsTensor* find_part(Entry& entry, const Safetensors& file, const std::string& name,
                                   std::string_view dtype, const std::vector<std::uint64_t>& shape) {
  if (entry.error()) return nullptr;
  const SafetensorsTensor* part = file.find(name);
  if (part == nullptr) {
    entry.fail(fmt::format("the file has no tensor {}", quote(name)));
  } else if (part->dtype != dtype || part->shape != shape) {
    entry.fail(fmt::format("tensor {} is {} of shape {}, but must be {} of shape {}", quote(name), part->dtype,
                           shape_text(part->shape), dtype, shape_text(shape)));
  }
  return part;
}

/// Bits without meaning must be 0. The codes are some of the tensor's, from `offset` on. Precondition: the sizes are
/// right.
void check_codes(Entry& entry, const QuantizedTensor& tensor, const std::string& name, std::uint64_t offset,
                 std::span<const std::byte> codes) {
  const BlockFormat& format = *tensor.format;
  const std::uint64_t k = tensor.shape[tensor.axis];
  const std::uint64_t line_bytes = format.code_bytes(k);
  if (format.element->is_packed()) {
    if (k % 2 == 0) return;
    for (std::uint64_t last = line_bytes - 1 - offset % line_bytes; last < codes.size(); last += line_bytes) {
      if (std::to_integer<unsigned>(codes[last]) <= 0x0F) continue;
      entry.fail(fmt::format("tensor {}: byte {} ends a line of {} lanes, so its high nibble must be 0", quote(name),
                             offset + last, k));
      return;
    }
    return;
  }
  const uint64 used = low_mask(format.element->value_bits);
  const auto bad =
      std::find_if(codes.begin(), codes.end(), [&](std::byte code) { return std::to_integer<uint64>(code) > used; });
  if (bad == codes.end()) return;
  entry.fail(fmt::format("tensor {}: byte {} is {:02X}, but codes of {} have {} bits", quote(name),
                         offset + static_cast<std::uint64_t>(bad - codes.begin()), std::to_integer<unsigned>(*bad),
                         format.element->name, format.element->value_bits));
}

/// Whether check_codes() has anything to find.
bool has_idle_bits(const QuantizedTensor& tensor) noexcept {
  const Format& element = *tensor.format->element;
  return element.is_packed() ? tensor.shape[tensor.axis] % 2 != 0 : element.value_bits < 8;
}

/// A tensor and where its bytes are.
struct Located {
  QuantizedTensor description;
  const SafetensorsTensor* codes = nullptr;
  const SafetensorsTensor* scales = nullptr;
  std::string where;  // for messages

  /// Looks for bits that must be 0 in codes from `offset` on.
  Expected<void> check(std::uint64_t offset, std::span<const std::byte> some) const {
    const Json nothing = Json::object();
    Entry entry(nothing, where);
    check_codes(entry, description, codes->name, offset, some);
    if (entry.error()) return *entry.error();
    return {};
  }
};

Expected<Located> locate(const Json& json, const Safetensors& file, const std::string& where) {
  Entry entry(json, where);
  Located out;
  out.where = where;
  QuantizedTensor& tensor = out.description;
  std::string codes;
  std::string scales;
  read_description(entry, tensor, codes, scales);
  if (entry.error()) return *entry.error();
  const BlockFormat& format = *tensor.format;
  const std::uint64_t k = tensor.shape[tensor.axis];
  out.codes =
      find_part(entry, file, codes, code_dtype(format), stored_shape(tensor.shape, tensor.axis, format.code_bytes(k)));
  out.scales =
      find_part(entry, file, scales, scale_dtype(format), stored_shape(tensor.shape, tensor.axis, format.groups(k)));
  if (entry.error()) return *entry.error();
  if (const auto valid = validate_description(tensor); !valid) return Error{where + ": " + valid.error().message};
  return out;
}

/// The tensor of this name; an empty one names the only tensor of the file.
Expected<Located> locate(const Safetensors& file, std::string_view file_name, std::string_view name) {
  const Expected<Json> entries = description_of(file, file_name);
  if (!entries) return entries.error();
  const auto fail = [&](std::string_view message) {
    std::string names;
    for (const auto& item : entries->items()) names += (names.empty() ? "" : ", ") + quote(item.key());
    return Error{fmt::format("{}: {} {}", file_name, message, names)};
  };
  if (name.empty() && entries->size() != 1) {
    return fail(entries->empty() ? "it describes no quantised tensor" : "name one of its quantised tensors:");
  }
  const auto found = name.empty() ? entries->begin() : entries->find(std::string(name));
  if (found == entries->end()) {
    return fail(fmt::format("no quantised tensor {}; it has", quote(name)));
  }
  return locate(*found, file, fmt::format("{}: tensor {}", file_name, quote(found.key())));
}

/// What a file of packed tensors says of them.
struct Contents {
  SafetensorsMetadata metadata;
  std::vector<SafetensorsTensor> tensors;  // codes and scales in turn, in place of begin and end their size
};

template <typename Validate>
Expected<Contents> contents_of(std::string_view file_name, std::span<const PackedTensor> tensors,
                               const Validate& check) {
  Contents out;
  Json entries = Json::object();
  for (const PackedTensor& packed : tensors) {
    const auto fail = [&](std::string_view message) {
      return Error{fmt::format("{}: tensor {}: {}", file_name, quote(packed.name), message)};
    };
    if (packed.name.empty()) return fail("a packed tensor needs a name");
    if (!is_utf8(packed.name)) return fail("its name is not UTF-8");
    if (entries.contains(packed.name)) return fail("is given twice");
    if (const auto valid = check(*packed.tensor); !valid) return fail(valid.error().message);
    const QuantizedTensor& t = *packed.tensor;
    Lines lines;
    lines_of(t.shape, t.axis, lines);  // fits: it is valid
    const std::uint64_t k = lines.length;
    entries[packed.name] = describe(packed);
    const auto part = [&](std::string_view suffix, std::string_view dtype, std::uint64_t words, std::uint64_t bytes) {
      out.tensors.push_back({packed.name + std::string(suffix), std::string(dtype),
                             stored_shape(t.shape, t.axis, words), 0, lines.count * bytes});
    };
    part(".codes", code_dtype(*t.format), t.format->code_bytes(k), t.format->code_bytes(k));
    part(".scales", scale_dtype(*t.format), t.format->groups(k), t.format->groups(k) * t.format->scale_bytes());
  }
  Json description;
  description["version"] = kVersion;
  description["tensors"] = std::move(entries);
  out.metadata.emplace_back(kKey, description.dump());
  return out;
}

}  // namespace

Expected<void> write_packed(OutputFile& file, std::span<const PackedTensor> tensors) {
  const Expected<Contents> contents = contents_of(file.name(), tensors, validate);
  if (!contents) return contents.error();
  const Expected<SafetensorsPlan> plan = plan_safetensors(file.name(), contents->metadata, contents->tensors);
  if (!plan) return plan.error();
  if (auto appended = file.append(plan->header); !appended) return appended;
  for (const std::size_t i : plan->order) {
    const QuantizedTensor& t = *tensors[i / 2].tensor;
    if (auto appended = file.append(i % 2 == 0 ? t.codes : t.scales); !appended) return appended;
  }
  return {};
}

Expected<PackedPlan> plan_packed(std::string_view file_name, std::string_view name,
                                 const QuantizedTensor& description) {
  const PackedTensor packed{std::string(name), &description};
  const Expected<Contents> contents = contents_of(file_name, {&packed, 1}, validate_description);
  if (!contents) return contents.error();
  Expected<SafetensorsPlan> plan = plan_safetensors(file_name, contents->metadata, contents->tensors);
  if (!plan) return plan.error();
  PackedPlan out;
  out.code_bytes = contents->tensors[0].size();
  out.scale_bytes = contents->tensors[1].size();
  const bool codes_first = plan->order[0] == 0;
  out.codes = plan->header.size() + (codes_first ? 0 : out.scale_bytes);
  out.scales = plan->header.size() + (codes_first ? out.code_bytes : 0);
  out.header = std::move(plan->header);
  return out;
}

Expected<void> save_packed(const std::filesystem::path& path, std::span<const PackedTensor> tensors) {
  auto file = OutputFile::create(path);
  if (!file) return file.error();
  if (auto written = write_packed(*file, tensors); !written) return written;
  return file->commit();
}

Expected<void> save_packed(const std::filesystem::path& path, std::string_view name, const QuantizedTensor& tensor) {
  const PackedTensor packed{std::string(name), &tensor};
  return save_packed(path, {&packed, 1});
}

Expected<std::vector<std::string>> packed_names(const Safetensors& file, std::string_view file_name) {
  const Expected<Json> entries = description_of(file, file_name);
  if (!entries) return entries.error();
  std::vector<std::string> names;
  for (const auto& item : entries->items()) names.push_back(item.key());
  return names;
}

Expected<QuantizedTensor> load_packed(const Safetensors& file, std::string_view file_name, std::string_view name) {
  Expected<Located> located = locate(file, file_name, name);
  if (!located) return located.error();
  QuantizedTensor& tensor = located->description;
  try {
    // Read, not copied from the mapping, whose pages would count as memory as well.
    tensor.codes.resize(located->codes->size());
    tensor.scales.resize(located->scales->size());
  } catch (const std::exception&) {
    return Error{located->where + ": no memory for its bytes"};
  }
  if (auto read = file.read(*located->codes, 0, tensor.codes); !read) return read.error();
  if (auto read = file.read(*located->scales, 0, tensor.scales); !read) return read.error();
  if (auto ok = located->check(0, tensor.codes); !ok) return ok.error();
  return std::move(tensor);
}

Expected<PackedReader> PackedReader::open(const std::filesystem::path& path, std::string_view name) {
  Expected<Safetensors> file = read_safetensors(path);
  if (!file) return file.error();
  Expected<Located> located = locate(*file, path.string(), name);
  if (!located) return located.error();
  const std::uint64_t size = has_idle_bits(located->description) ? located->codes->size() : 0;
  std::vector<std::byte> piece(std::min<std::uint64_t>(size, std::uint64_t{1} << 20));
  for (std::uint64_t offset = 0; offset < size; offset += piece.size()) {
    const std::span some = std::span(piece).first(std::min<std::uint64_t>(piece.size(), size - offset));
    if (auto read = file->read(*located->codes, offset, some); !read) return read.error();
    if (auto ok = located->check(offset, some); !ok) return ok.error();
  }
  PackedReader out;
  out.description_ = std::move(located->description);
  out.codes_ = located->codes;
  out.scales_ = located->scales;
  out.file_ = std::move(*file);
  return out;
}

Expected<QuantizedTensor> load_packed(const std::filesystem::path& path, std::string_view name) {
  const Expected<Safetensors> file = read_safetensors(path);
  if (!file) return file.error();
  return load_packed(*file, path.string(), name);
}

}  // namespace bitcube
