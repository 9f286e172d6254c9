#include "bitcube/io/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

namespace bitcube {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation
// The specification sets none, but no program has more; a hundred megabytes of dimensions are none that anybody meant.
constexpr std::size_t kMaxRank = 64;
constexpr std::size_t kLengthSize = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

struct DTypeBits {
  std::string_view dtype;
  unsigned bits;
};

constexpr std::array kDTypes{
    DTypeBits{"BOOL", 8},    DTypeBits{"F4", 4},          DTypeBits{"F6_E2M3", 6},     DTypeBits{"F6_E3M2", 6},
    DTypeBits{"U8", 8},      DTypeBits{"I8", 8},          DTypeBits{"F8_E5M2", 8},     DTypeBits{"F8_E4M3", 8},
    DTypeBits{"F8_E8M0", 8}, DTypeBits{"F8_E4M3FNUZ", 8}, DTypeBits{"F8_E5M2FNUZ", 8}, DTypeBits{"I16", 16},
    DTypeBits{"U16", 16},    DTypeBits{"F16", 16},        DTypeBits{"BF16", 16},       DTypeBits{"I32", 32},
    DTypeBits{"U32", 32},    DTypeBits{"F32", 32},        DTypeBits{"C64", 64},        DTypeBits{"F64", 64},
    DTypeBits{"I64", 64},    DTypeBits{"U64", 64}};

/// A JSON string for a message: what is not UTF-8 becomes U+FFFD, and a name of a megabyte, that helps nobody, is cut.
std::string quote(std::string_view text) {
  constexpr std::size_t kLimit = 200;
  const std::string json = Json(text.substr(0, kLimit)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kLimit ? json : json + "...";
}

/// A JSON string, or nothing if the text is not UTF-8.
std::optional<std::string> json_string(std::string_view text) {
  try {
    return Json(text).dump();
  } catch (const Json::type_error&) {
    return std::nullopt;
  }
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// The fault of a tensor's shape, type and size taken together, or "". A shape with a zero must be sane in its other
/// dimensions too, so that strides cannot overflow later.
std::string size_fault(const SafetensorsTensor& tensor) {
  constexpr std::uint64_t kLimit = std::numeric_limits<std::int64_t>::max();
  const std::optional<unsigned> bits = safetensors_bits(tensor.dtype);
  std::uint64_t count = bits.value_or(1);
  bool empty = false;
  for (const std::uint64_t dim : tensor.shape) {
    empty = empty || dim == 0;
    if (dim != 0 && count > kLimit / dim) return fmt::format("shape {} is too large", shape_text(tensor.shape));
    count *= std::max<std::uint64_t>(dim, 1);
  }
  if (empty) count = 0;
  if (!bits) return {};
  if (count % 8 != 0) {
    return fmt::format("shape {} of {} takes {} bits, which is no whole number of bytes", shape_text(tensor.shape),
                       tensor.dtype, count);
  }
  if (count / 8 != tensor.size()) {
    return fmt::format("shape {} of {} takes {} bytes, but there are {}", shape_text(tensor.shape), tensor.dtype,
                       count / 8, tensor.size());
  }
  return {};
}

/// Builds the header while it is parsed. The format allows so little JSON that each step knows what may come, which
/// bounds the nesting; and only here are duplicate keys seen.
class HeaderBuilder final : public nlohmann::json_sax<Json> {
 public:
  SafetensorsMetadata metadata;
  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, std::size_t, std::less<>> index;
  std::string fault;  // why parsing stopped

  bool null() override { return misplaced("null"); }
  bool boolean(bool) override { return misplaced("a boolean"); }
  bool number_integer(number_integer_t) override { return misplaced("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return misplaced("a number that is no integer of 64 bits");
  }
  bool binary(binary_t&) override { return misplaced("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::kShape) {
      if (tensors.back().shape.size() == kMaxRank) {
        return tensor_fail(fmt::format("has more than {} dimensions", kMaxRank));
      }
      tensors.back().shape.push_back(value);
      return true;
    }
    if (state_ != State::kOffsets) return misplaced("a number");
    if (offsets_ == 2) return misplaced("a third number");
    (offsets_++ == 0 ? tensors.back().begin : tensors.back().end) = value;
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::kMetadataValue) {
      metadata.back().second = std::move(value);
      state_ = State::kMetadata;
    } else if (state_ == State::kDType) {
      tensors.back().dtype = std::move(value);
      state_ = State::kTensor;
    } else {
      return misplaced("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::kStart:
        return enter(State::kTop);
      case State::kMetadataStart:
        return enter(State::kMetadata);
      case State::kTensorStart:
        return enter(State::kTensor);
      default:
        return misplaced("an object");
    }
  }

  bool key(string_t& key) override {
    switch (state_) {
      case State::kTop:
        return top_key(key);
      case State::kMetadata:
        if (!metadata_keys_.insert(key).second) return fail(fmt::format("{} has {} twice", kMetadataKey, quote(key)));
        metadata.emplace_back(std::move(key), "");
        return enter(State::kMetadataValue);
      default:  // the parser gives keys in objects only
        return tensor_key(key);
    }
  }

  bool end_object() override {
    if (state_ == State::kTensor) {
      if (!has_dtype_) return tensor_fail("has no dtype");
      if (!has_shape_) return tensor_fail("has no shape");
      if (!has_offsets_) return tensor_fail("has no data_offsets");
    }
    return enter(State::kTop);
  }

  bool start_array(std::size_t) override {
    switch (state_) {
      case State::kShapeStart:
        return enter(State::kShape);
      case State::kOffsetsStart:
        return enter(State::kOffsets);
      default:
        return misplaced("an array");
    }
  }

  bool end_array() override {
    if (state_ == State::kOffsets && offsets_ != 2) return misplaced(offsets_ == 0 ? "none" : "one only");
    return enter(State::kTensor);
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) override {
    // Of "[json.exception...] parse error at line 1, column 2: what happened; last read: ..." keep what happened. What
    // was read last may be anything, of any length.
    std::string_view what = error.what();
    what = what.substr(0, what.find("; last read"));
    for (const std::string_view prefix : {"] ", ": "}) {
      if (const auto at = what.find(prefix); at != std::string_view::npos) what.remove_prefix(at + prefix.size());
    }
    // The position counts the bytes read, the faulty one included.
    return fail(fmt::format("offset {}: the header is not valid JSON: {}", kLengthSize + position - 1, what));
  }

 private:
  enum class State {
    kStart,
    kTop,
    kMetadataStart,
    kMetadata,
    kMetadataValue,
    kTensorStart,
    kTensor,
    kDType,
    kShapeStart,
    kShape,
    kOffsetsStart,
    kOffsets,
  };

  bool enter(State state) {
    state_ = state;
    return true;
  }
  bool fail(std::string message) {
    fault = std::move(message);
    return false;
  }
  bool tensor_fail(std::string_view message) {
    return fail(fmt::format("tensor {} {}", quote(tensors.back().name), message));
  }

  /// Something stands where the format wants something else.
  bool misplaced(std::string_view found) {
    switch (state_) {
      case State::kMetadataStart:
        return fail(fmt::format("{} must be an object, not {}", kMetadataKey, found));
      case State::kMetadataValue:
        return fail(fmt::format("{}: the value of {} must be a string, not {}", kMetadataKey,
                                quote(metadata.back().first), found));
      case State::kTensorStart:
        return tensor_fail(fmt::format("must be an object, not {}", found));
      case State::kDType:
        return tensor_fail(fmt::format("must have a string as its dtype, not {}", found));
      case State::kShapeStart:
      case State::kShape:
        return tensor_fail(fmt::format("must have an array of integers >= 0 as its shape, but there is {}", found));
      case State::kOffsetsStart:
      case State::kOffsets:
        return tensor_fail(fmt::format("must have two integers >= 0 as its data_offsets, but there is {}", found));
      default:
        return fail(fmt::format("the header must be an object, not {}", found));
    }
  }

  bool top_key(string_t& key) {
    if (key == kMetadataKey) {
      if (std::exchange(has_metadata_, true)) return fail(fmt::format("the header has {} twice", kMetadataKey));
      return enter(State::kMetadataStart);
    }
    if (!index.emplace(key, tensors.size()).second) return fail(fmt::format("tensor {} stands twice", quote(key)));
    tensors.emplace_back().name = std::move(key);
    has_dtype_ = has_shape_ = has_offsets_ = false;
    offsets_ = 0;
    return enter(State::kTensorStart);
  }

  bool tensor_key(const string_t& key) {
    const auto once = [&](bool& seen, State next) {
      if (std::exchange(seen, true)) return tensor_fail(fmt::format("has {} twice", key));
      return enter(next);
    };
    if (key == "dtype") return once(has_dtype_, State::kDType);
    if (key == "shape") return once(has_shape_, State::kShapeStart);
    if (key == "data_offsets") return once(has_offsets_, State::kOffsetsStart);
    return tensor_fail(fmt::format("has the unknown key {}; its keys are dtype, shape and data_offsets", quote(key)));
  }

  State state_ = State::kStart;
  std::set<std::string> metadata_keys_;
  bool has_metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  int offsets_ = 0;
};

/// The fault of tensors that do not cover `size` bytes of data without overlap or hole, or "".
std::string layout_fault(std::span<const SafetensorsTensor> tensors, std::uint64_t size) {
  std::vector<const SafetensorsTensor*> sorted;
  for (const SafetensorsTensor& tensor : tensors) {
    const auto offsets = [&] { return fmt::format("data_offsets [{}, {}]", tensor.begin, tensor.end); };
    if (tensor.begin > tensor.end) return fmt::format("tensor {}: {} run backwards", quote(tensor.name), offsets());
    if (tensor.end > size) {
      return fmt::format("tensor {}: {} reach beyond the {} bytes of data; the file is truncated, or its header wrong",
                         quote(tensor.name), offsets(), size);
    }
    if (const std::string fault = size_fault(tensor); !fault.empty()) {
      return fmt::format("tensor {}: {}", quote(tensor.name), fault);
    }
    sorted.push_back(&tensor);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });
  std::uint64_t covered = 0;
  const SafetensorsTensor* before = nullptr;
  for (const SafetensorsTensor* tensor : sorted) {
    if (tensor->begin < covered) {  // so there is one before
      return fmt::format("tensors {} at [{}, {}] and {} at [{}, {}] overlap", quote(before->name), before->begin,
                         before->end, quote(tensor->name), tensor->begin, tensor->end);
    }
    if (tensor->begin > covered) {
      return fmt::format("tensor {} begins at {}, but what is before it ends at {}; no byte may lie between tensors",
                         quote(tensor->name), tensor->begin, covered);
    }
    covered = tensor->end;
    before = tensor;
  }
  if (covered < size)
    return fmt::format("the tensors end at {}, but the data at {}; nothing may follow", covered, size);
  return {};
}

/// The address that elements of this type like to begin at is a multiple of this.
unsigned alignment(const SafetensorsTensor& tensor) {
  const unsigned bits = safetensors_bits(tensor.dtype).value_or(8);
  return bits % 8 == 0 ? bits / 8 : 1;
}

}  // namespace

std::optional<unsigned> safetensors_bits(std::string_view dtype) noexcept {
  const auto known = std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& d) { return d.dtype == dtype; });
  return known != kDTypes.end() ? std::optional(known->bits) : std::nullopt;
}

const SafetensorsTensor* Safetensors::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found != index_.end() ? &tensors_[found->second] : nullptr;
}

Expected<Safetensors> read_safetensors(const std::filesystem::path& path) {
  Expected<InputFile> file = InputFile::open(path);
  if (!file) return file.error();
  return parse_safetensors(std::move(*file), path.string());
}

Expected<Safetensors> parse_safetensors(InputFile file, std::string_view name) {
  const auto fail = [&](std::string_view message) { return Error{fmt::format("{}: {}", name, message)}; };
  const std::uint64_t size = file.size();

  if (size < kLengthSize) {
    return fail(fmt::format("not a .safetensors file: it has {} bytes, and the length of its header takes {}", size,
                            kLengthSize));
  }
  std::array<std::byte, kLengthSize> length_bytes{};
  if (auto read = file.read(0, length_bytes); !read) return read.error();
  std::uint64_t length = 0;
  for (std::size_t i = kLengthSize; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(length_bytes[i]);
  if (length > kMaxHeader) {
    return fail(fmt::format("not a .safetensors file: its header would be {} bytes long, and {} is the limit", length,
                            kMaxHeader));
  }
  if (length > size - kLengthSize) {
    return fail(fmt::format("the header should be {} bytes long, but only {} bytes follow; the file is truncated",
                            length, size - kLengthSize));
  }
  const auto header_bytes = file.load(kLengthSize, length);
  if (!header_bytes) return header_bytes.error();
  const std::string_view header(reinterpret_cast<const char*>(header_bytes->data()), length);
  if (header.substr(0, 1) != "{") return fail("the header must begin with '{'");
  // The JSON parser takes a zero byte for the end of the text, and would not see what follows.
  if (const auto zero = header.find('\0'); zero != std::string_view::npos) {
    return fail(fmt::format("offset {}: the header is not valid JSON: zero byte", kLengthSize + zero));
  }

  HeaderBuilder builder;
  if (!Json::sax_parse(header.begin(), header.end(), &builder)) return fail(builder.fault);
  const std::string fault = layout_fault(builder.tensors, size - kLengthSize - length);
  if (!fault.empty()) return fail(fault);

  Safetensors result;
  result.metadata_ = std::move(builder.metadata);
  result.tensors_ = std::move(builder.tensors);
  result.index_ = std::move(builder.index);
  result.file_ = std::move(file);
  result.data_offset_ = kLengthSize + length;
  return result;
}

Expected<SafetensorsPlan> plan_safetensors(std::string_view file_name, const SafetensorsMetadata& metadata,
                                           std::span<const SafetensorsTensor> tensors) {
  const auto fail = [&](std::string_view message) { return Error{fmt::format("{}: {}", file_name, message)}; };

  SafetensorsPlan plan;
  plan.order.resize(tensors.size());
  std::iota(plan.order.begin(), plan.order.end(), std::size_t{0});
  std::stable_sort(plan.order.begin(), plan.order.end(),
                   [&](auto a, auto b) { return alignment(tensors[a]) > alignment(tensors[b]); });
  std::vector<std::uint64_t> begins(tensors.size());
  std::uint64_t at = 0;
  for (const std::size_t i : plan.order) {
    const SafetensorsTensor& tensor = tensors[i];
    if (tensor.begin > tensor.end) return fail(fmt::format("tensor {}: it ends before it begins", quote(tensor.name)));
    if (const std::string fault = size_fault(tensor); !fault.empty()) {
      return fail(fmt::format("tensor {}: {}", quote(tensor.name), fault));
    }
    begins[i] = std::exchange(at, at + tensor.size());
    if (at < begins[i]) return fail(fmt::format("tensor {}: more than 2^64 bytes in all", quote(tensor.name)));
  }

  std::set<std::string_view> keys;
  std::string json = "{";
  const auto comma = [&] { return json.back() == '{' ? "" : ","; };
  if (!metadata.empty()) {
    json += fmt::format("\"{}\":{{", kMetadataKey);
    for (const auto& [key, value] : metadata) {
      const auto key_json = json_string(key);
      const auto value_json = json_string(value);
      if (!key_json || !value_json) return fail(fmt::format("metadata {}: the text is not UTF-8", quote(key)));
      if (!keys.insert(key).second) return fail(fmt::format("metadata {} is given twice", quote(key)));
      json += fmt::format("{}{}:{}", comma(), *key_json, *value_json);
    }
    json += "}";
  }
  keys = {kMetadataKey};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const SafetensorsTensor& tensor = tensors[i];
    const auto name = json_string(tensor.name);
    const auto dtype = json_string(tensor.dtype);
    if (!name || !dtype) return fail(fmt::format("tensor {}: its name or dtype is not UTF-8", quote(tensor.name)));
    if (tensor.name == kMetadataKey) return fail(fmt::format("no tensor may have the name {}", kMetadataKey));
    if (!keys.insert(tensor.name).second) return fail(fmt::format("tensor {} is given twice", quote(tensor.name)));
    json += fmt::format("{}{}:{{\"dtype\":{},\"shape\":[{}],\"data_offsets\":[{},{}]}}", comma(), *name, *dtype,
                        fmt::join(tensor.shape, ","), begins[i], begins[i] + tensor.size());
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > kMaxHeader) {
    return fail(fmt::format("the header takes {} bytes, and {} is the limit; write fewer tensors, or less metadata",
                            json.size(), kMaxHeader));
  }
  for (std::size_t i = 0; i < kLengthSize; ++i) plan.header += static_cast<char>(json.size() >> (8 * i) & 0xFF);
  plan.header += json;
  return plan;
}

Expected<void> write_safetensors(OutputFile& file, const SafetensorsMetadata& metadata,
                                 std::span<const SafetensorsSource> tensors) {
  std::vector<SafetensorsTensor> entries;
  for (const SafetensorsSource& source : tensors) {
    entries.push_back({source.name, source.dtype, source.shape, 0, source.bytes.size()});
  }
  const Expected<SafetensorsPlan> plan = plan_safetensors(file.name(), metadata, entries);
  if (!plan) return plan.error();
  if (auto appended = file.append(plan->header); !appended) return appended;
  for (const std::size_t i : plan->order) {
    if (auto appended = file.append(tensors[i].bytes); !appended) return appended;
  }
  return {};
}

Expected<void> write_safetensors(const std::filesystem::path& path, const SafetensorsMetadata& metadata,
                                 std::span<const SafetensorsSource> tensors) {
  auto file = OutputFile::create(path);
  if (!file) return file.error();
  if (auto written = write_safetensors(*file, metadata, tensors); !written) return written;
  return file->commit();
}

}  // namespace bitcube
