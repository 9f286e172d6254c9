#include "bitcube/io/packed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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
// For what is read: the time to find a key among many does not grow with their number.
using Tree = nlohmann::json;

constexpr std::string_view kKey = "bitcube";
constexpr std::uint64_t kVersion = 1;

/// A JSON string for a message, whatever bytes the text holds. A name of a megabyte, that helps nobody, is cut.
std::string quote(std::string_view text) {
  constexpr std::size_t kLimit = 200;
  const std::string json = Json(text.substr(0, kLimit)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kLimit ? json : json + "...";
}

/// Text of the file for a message, not too much of it.
std::string cut(std::string text) {
  constexpr std::size_t kLimit = 200;
  if (text.size() <= kLimit) return text;
  text.resize(kLimit);
  return text + "...";
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

Json describe(const std::string& name, const QuantizedTensor& t) {
  Json entry = Json::object();
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
  entry["codes"] = name + ".codes";
  entry["scales"] = name + ".scales";
  return entry;
}

/// What a file says of its packed tensors.
struct Description {
  std::vector<std::string> names;  // in the order of the file
  Tree entries;                    // of each name one
};

/// The description of a file, or why there is none.
Expected<Description> description_of(const Safetensors& file, std::string_view file_name) {
  const auto fail = [&](std::string_view message) { return Error{fmt::format("{}: {}", file_name, message)}; };
  const auto& metadata = file.metadata();
  const auto found =
      std::find_if(metadata.begin(), metadata.end(), [](const auto& pair) { return pair.first == kKey; });
  if (found == metadata.end()) {
    return fail("no quantised tensors: the metadata has no key \"bitcube\"; is this a file of plain tensors?");
  }
  // What is nested deeper than a shape means nothing here, and is not kept: a bracket takes a byte in the text, and
  // many more in memory.
  constexpr int kDepth = 5;
  Description out;
  std::set<std::string> seen;
  std::string twice;
  const auto keep = [&](int depth, Tree::parse_event_t event, Tree& value) {
    if (event == Tree::parse_event_t::key && depth == 1) {
      seen.clear();
      out.names.clear();
    }
    if (event == Tree::parse_event_t::key && depth == 2) {
      const auto& name = value.get_ref<const std::string&>();
      if (!seen.insert(name).second) twice = quote(name);
      out.names.push_back(name);
    }
    return depth < kDepth;
  };
  Tree json = Tree::parse(found->second, keep, false);
  if (!json.is_object()) return fail("metadata \"bitcube\": must be a JSON object");
  const auto version = json.find("version");
  if (version == json.end() || *version != kVersion) {
    return fail(fmt::format("metadata \"bitcube\": version {}, but this program reads version {}",
                            version == json.end() ? "is missing" : cut(version->dump()), kVersion));
  }
  const auto tensors = json.find("tensors");
  if (tensors == json.end() || !tensors->is_object()) {
    return fail("metadata \"bitcube\": \"tensors\" must be a JSON object");
  }
  if (!twice.empty()) return fail(fmt::format("metadata \"bitcube\": {} stands twice", twice));
  out.entries = std::move(*tensors);
  // The names are those of the last object of the text, which may be another one.
  std::erase_if(out.names, [&](const std::string& name) { return !out.entries.contains(name); });
  if (out.names.size() != out.entries.size()) {
    out.names.clear();
    for (const auto& item : out.entries.items()) out.names.push_back(item.key());
  }
  return out;
}

/// Reads the fields of one entry; the first fault sticks.
class Entry {
 public:
  Entry(const Tree& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) fail("its description must be a JSON object");
  }

  const std::optional<Error>& error() const noexcept { return error_; }

  bool fail(std::string_view message) {
    if (!error_) error_ = Error{fmt::format("{}: {}", where_, message)};
    return false;
  }

  bool has(const char* key) const { return !error_ && json_.contains(key); }

  bool text(const char* key, std::string& value) {
    const Tree* field = find(key);
    if (field == nullptr) return false;
    if (!field->is_string()) return fail(fmt::format("\"{}\" must be a string", key));
    value = field->get<std::string>();
    return true;
  }

  bool number(const char* key, std::uint64_t& value) {
    const Tree* field = find(key);
    if (field == nullptr) return false;
    if (!field->is_number_unsigned()) return fail(fmt::format("\"{}\" must be an integer that is not negative", key));
    value = field->get<std::uint64_t>();
    return true;
  }

  bool shape(const char* key, std::vector<std::uint64_t>& value) {
    const Tree* field = find(key);
    if (field == nullptr) return false;
    const auto is_extent = [](const Tree& item) { return item.is_number_unsigned(); };
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
  const Tree* find(const char* key) {
    if (error_) return nullptr;
    const auto field = json_.find(key);
    if (field != json_.end()) return &*field;
    fail(fmt::format("its description has no \"{}\"", key));
    return nullptr;
  }

  const Tree& json_;
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
    const Tree nothing = Tree::object();
    Entry entry(nothing, where);
    check_codes(entry, description, codes->name, offset, some);
    if (entry.error()) return *entry.error();
    return {};
  }
};

/// Looks at all codes for bits that must be 0, if there can be any.
Expected<void> check_all_codes(const Safetensors& file, const Located& located) {
  const std::uint64_t size = has_idle_bits(located.description) ? located.codes->size() : 0;
  std::vector<std::byte> piece(std::min<std::uint64_t>(size, std::uint64_t{1} << 20));
  for (std::uint64_t offset = 0; offset < size; offset += piece.size()) {
    const std::span some = std::span(piece).first(std::min<std::uint64_t>(piece.size(), size - offset));
    if (auto read = file.read(*located.codes, offset, some); !read) return read;
    if (auto ok = located.check(offset, some); !ok) return ok;
  }
  return {};
}

Expected<Located> locate(const Tree& json, const Safetensors& file, const std::string& where) {
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
  const Expected<Description> described = description_of(file, file_name);
  if (!described) return described.error();
  const std::vector<std::string>& names = described->names;
  const auto fail = [&](std::string_view message) {
    std::string text;
    for (const std::string& known : names) text += (text.empty() ? "" : ", ") + quote(known);
    return Error{fmt::format("{}: {} {}", file_name, message, text)};
  };
  if (name.empty() && names.size() != 1) {
    return fail(names.empty() ? "it describes no quantised tensor" : "name one of its quantised tensors:");
  }
  const std::string key(name.empty() ? names.front() : name);
  const auto found = described->entries.find(key);
  if (found == described->entries.end()) {
    return fail(fmt::format("no quantised tensor {}; it has", quote(name)));
  }
  return locate(*found, file, fmt::format("{}: tensor {}", file_name, quote(key)));
}

/// Codes and scales of a valid tensor, in place of begin and end their size.
std::array<SafetensorsTensor, 2> parts_of(const std::string& name, const QuantizedTensor& t) {
  Lines lines;
  lines_of(t.shape, t.axis, lines);  // fits: it is valid
  const std::uint64_t code_bytes = t.format->code_bytes(lines.length);
  const std::uint64_t groups = t.format->groups(lines.length);
  return {SafetensorsTensor{name + ".codes", std::string(code_dtype(*t.format)),
                            stored_shape(t.shape, t.axis, code_bytes), 0, lines.count * code_bytes},
          SafetensorsTensor{name + ".scales", std::string(scale_dtype(*t.format)),
                            stored_shape(t.shape, t.axis, groups), 0, lines.count * groups * t.format->scale_bytes()}};
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
    entries[packed.name] = describe(packed.name, *packed.tensor);
    for (SafetensorsTensor& part : parts_of(packed.name, t)) out.tensors.push_back(std::move(part));
  }
  Json description = Json::object();
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

bool is_described(const Safetensors& file) {
  return std::ranges::any_of(file.metadata(), [](const auto& pair) { return pair.first == kKey; });
}

Expected<MixedPlan> plan_mixed(std::string_view file_name, const Safetensors* before, std::string_view program,
                               std::span<const MixedTensor> tensors) {
  const auto fail = [&](std::string_view name, std::string_view message) {
    return Error{fmt::format("{}: tensor {}: {}", file_name, quote(name), message)};
  };
  Json entries = Json::object();
  auto& pairs = entries.get_ref<Json::object_t&>();  // operator[] would look for each name among all before it
  std::set<std::string_view> described;
  Description old;
  if (before != nullptr && is_described(*before)) {
    Expected<Description> found = description_of(*before, file_name);
    if (!found) return found.error();
    old = std::move(*found);
    for (const std::string& name : old.names) {
      pairs.emplace_back(name, Json(old.entries.at(name)));
      described.insert(name);
    }
  }
  std::set<std::string_view> names;
  for (const MixedTensor& mixed : tensors) {
    if (!mixed.packed) names.insert(mixed.plain.name);
  }
  std::vector<SafetensorsTensor> parts;
  bool any_packed = false;
  for (const MixedTensor& mixed : tensors) {
    if (!mixed.packed) {
      parts.push_back(mixed.plain);
      continue;
    }
    any_packed = true;
    const std::string& name = mixed.plain.name;
    if (name.empty()) return fail(name, "a packed tensor needs a name");
    if (!described.insert(name).second) return fail(name, "a packed tensor of this name is there already");
    if (const auto valid = validate_description(*mixed.packed); !valid) return fail(name, valid.error().message);
    pairs.emplace_back(name, describe(name, *mixed.packed));
    for (SafetensorsTensor& part : parts_of(name, *mixed.packed)) {
      if (names.contains(part.name)) {
        return fail(name, fmt::format("its part would be {}, but there is a tensor of this name; leave one out",
                                      quote(part.name)));
      }
      parts.push_back(std::move(part));
    }
  }
  SafetensorsMetadata metadata;
  if (before != nullptr) {
    std::ranges::copy_if(before->metadata(), std::back_inserter(metadata),
                         [](const auto& pair) { return pair.first != kKey; });
  }
  if (any_packed || !entries.empty()) {
    Json description = Json::object();
    description["version"] = kVersion;
    description["program"] = program;
    description["tensors"] = std::move(entries);
    metadata.emplace_back(kKey, description.dump());
  }
  Expected<SafetensorsPlan> plan = plan_safetensors(file_name, metadata, parts);
  if (!plan) return plan.error();
  MixedPlan out;
  out.header = std::move(plan->header);
  std::vector<std::uint64_t> begins(parts.size());
  out.file_size = out.header.size();
  for (const std::size_t i : plan->order) begins[i] = std::exchange(out.file_size, out.file_size + parts[i].size());
  std::size_t next = 0;
  for (const MixedTensor& mixed : tensors) {
    MixedPlan::Place place{.first = begins[next], .first_bytes = parts[next].size()};
    ++next;
    if (mixed.packed) {
      place.second = begins[next];
      place.second_bytes = parts[next].size();
      ++next;
    }
    out.places.push_back(place);
  }
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
  Expected<Description> described = description_of(file, file_name);
  if (!described) return described.error();
  return std::move(described->names);
}

Expected<std::vector<PackedEntry>> packed_entries(const Safetensors& file, std::string_view file_name) {
  const Expected<Description> described = description_of(file, file_name);
  if (!described) return described.error();
  std::vector<PackedEntry> out;
  for (const std::string& name : described->names) {
    Expected<Located> located =
        locate(described->entries.at(name), file, fmt::format("{}: tensor {}", file_name, quote(name)));
    if (!located) return located.error();
    out.push_back({name, std::move(located->description), located->codes, located->scales});
  }
  return out;
}

Expected<void> check_packed_codes(const Safetensors& file, std::string_view file_name, const PackedEntry& entry) {
  return check_all_codes(file, Located{entry.description, entry.codes, entry.scales,
                                       fmt::format("{}: tensor {}", file_name, quote(entry.name))});
}

Expected<QuantizedTensor> load_packed(const Safetensors& file, std::string_view file_name, std::string_view name) {
  Expected<Located> located = locate(file, file_name, name);
  if (!located) return located.error();
  QuantizedTensor& tensor = located->description;
  try {
    tensor.codes.resize(located->codes->size());
    tensor.scales.resize(located->scales->size());
  } catch (const std::exception&) {
    return Error{located->where + ": not enough memory for its bytes"};
  }
  if (auto read = file.read(*located->codes, 0, tensor.codes); !read) return read.error();
  if (auto read = file.read(*located->scales, 0, tensor.scales); !read) return read.error();
  if (auto same = file.file().check_unchanged(); !same) return same.error();
  if (auto ok = located->check(0, tensor.codes); !ok) return ok.error();
  return std::move(tensor);
}

Expected<PackedReader> PackedReader::open(const std::filesystem::path& path, std::string_view name) {
  Expected<Safetensors> file = read_safetensors(path);
  if (!file) return file.error();
  Expected<Located> located = locate(*file, path.string(), name);
  if (!located) return located.error();
  if (auto ok = check_all_codes(*file, *located); !ok) return ok.error();
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
