// bitcube diff: how two results differ, and why.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <ranges>

#include "bitcube/compare/diff.hpp"
#include "bitcube/cube/matmul.hpp"
#include "bitcube/io/packed.hpp"
#include "bitcube/io/safetensors.hpp"
#include "bitcube/numeric/convert.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "bitcube/report/page.hpp"
#include "commands.hpp"
#include "diff_arguments.hpp"
#include "operand_file.hpp"
#include "postprocess_arguments.hpp"
#include "quantize_arguments.hpp"

namespace bitcube::cli {
namespace {

constexpr const char* kQuantized = "GOLDEN is a quantised tensor (in diff also --profile, --scale RULE, --round)";

struct Options : DiffArguments {
  bool tensor_scale = false;
  OperandArguments a;
  OperandArguments b;
  std::string bias;
  std::string c;
  std::string accumulate{accumulation_profiles.front().name};
  PostprocessArguments postprocess;
  bool profile_given = false;
  std::vector<std::string> given;  // options of how GOLDEN was made
  std::string choices;             // how the product or the conversion is made, as the command line says it

  std::optional<uint64> ulps;
  std::optional<double> relative;
  std::optional<double> absolute;
  std::size_t first = 10;
  std::size_t worst = 5;
  bool no_diagnosis = false;
  bool list = false;
};

/// What the inputs refer to.
struct Files {
  std::vector<Buffer<std::byte>> bytes;
  std::vector<QuantizedTensor> packed;
  std::vector<std::vector<std::byte>> rows;  // what a layout was undone of
  std::optional<NpyArray> source;
  Buffer<std::byte> source_bytes;
  std::vector<std::byte> rounded;  // the source, where --source-type asks for it
  std::string source_type;
  std::optional<OperandFile> a;
  std::optional<OperandFile> b;
  std::vector<std::uint32_t> c;
  std::vector<std::uint32_t> bias;
  std::optional<ResolvedPostprocess> postprocess;
};

/// One array, before it is known what it holds.
struct Loaded {
  std::span<const std::byte> bytes;
  std::vector<uint64> shape;  // empty for a raw file
  std::optional<DType> dtype{};
};

bool is_safetensors(const std::string& path) {
  return path.ends_with(".safetensors");
}

Expected<Loaded> load(const std::string& path, const std::string& name, Files& files) {
  const auto keep = [&](Expected<Buffer<std::byte>> bytes, std::vector<uint64> shape,
                        std::optional<DType> dtype) -> Expected<Loaded> {
    if (!bytes) return bytes.error();
    files.bytes.push_back(std::move(*bytes));
    return Loaded{files.bytes.back(), std::move(shape), dtype};
  };
  if (is_safetensors(path)) {
    const auto file = read_safetensors(path);
    if (!file) return file.error();
    const SafetensorsTensor* tensor =
        name.empty() && file->tensors().size() == 1 ? &file->tensors().front() : file->find(name);
    if (tensor == nullptr) {
      std::vector<std::string> names;
      for (const SafetensorsTensor& t : file->tensors()) names.push_back(name_text(t.name));
      if (names.size() > 20) names.resize(20);
      return Error{fmt::format("{}: {}; it has {}", path,
                               name.empty() ? "several tensors, so say which with --name" : "no tensor '" + name + "'",
                               fmt::join(names, ", "))};
    }
    std::optional<DType> stored;
    const std::pair<const char*, DType> types[] = {{"F64", DType::kF64},   {"F32", DType::kF32}, {"F16", DType::kF16},
                                                   {"BF16", DType::kBF16}, {"I64", DType::kI64}, {"I32", DType::kI32},
                                                   {"I16", DType::kI16},   {"I8", DType::kI8},   {"U64", DType::kU64},
                                                   {"U32", DType::kU32},   {"U16", DType::kU16}, {"U8", DType::kU8}};
    for (const auto& [text, dtype] : types) {
      if (tensor->dtype == text) stored = dtype;
    }
    return keep(file->load(*tensor), tensor->shape, stored);
  }
  if (path.ends_with(".bin")) {
    const auto file = InputFile::open(path);
    if (!file) return file.error();
    return keep(file->load(), {}, std::nullopt);
  }
  const auto array = read_array(path);
  if (!array) return array.error();
  return keep(array->load(), array->shape, array->dtype);
}

Expected<std::optional<std::vector<uint64>>> parse_shape(const std::string& text) {
  if (text.empty()) return std::optional<std::vector<uint64>>();
  auto raw = parse_raw_array("-:uint8:" + text);
  if (!raw) return Error{fmt::format("--shape: '{}' is no shape; write it as 784x256", text)};
  return std::optional(std::move(raw->shape));
}

uint64 product_of(std::span<const uint64> shape) {
  uint64 product = 1;
  for (const uint64 extent : shape) {
    if (!checked_multiply(product, extent, product)) return ~uint64{0};
  }
  return product;
}

/// A part of two arrays. `shape` is that of the lanes, or empty where the arrays say it.
Expected<ComparedPart> part_of(const Options& options, std::string name, PartRole role, const Format& format,
                               std::vector<uint64> shape, const Loaded& golden, const Loaded& dut) {
  ComparedPart part;
  part.name = std::move(name);
  part.role = role;
  part.format = &format;
  part.golden = golden.bytes;
  part.dut = dut.bytes;
  const std::size_t size = format.carrier_bits / 8;
  for (const auto& [path, loaded] : {std::pair{&options.golden, &golden}, std::pair{&options.dut, &dut}}) {
    if (loaded->dtype && dtype_size(*loaded->dtype) != size) {
      return Error{fmt::format("{}: {} elements have {} bits, but a lane of {} has {} in memory", *path,
                               dtype_name(*loaded->dtype), 8 * dtype_size(*loaded->dtype), format.name,
                               format.carrier_bits)};
    }
  }
  if (golden.dtype && dut.dtype && *golden.dtype != *dut.dtype && options.format.empty() && options.to.empty()) {
    return Error{fmt::format("{} has {} elements, but {} has {}; say with --format what both are", options.golden,
                             dtype_name(*golden.dtype), options.dut, dtype_name(*dut.dtype))};
  }
  if (golden.dtype && dut.dtype && golden.shape != dut.shape) {
    return Error{fmt::format("{} is {}, but {} is {}: only arrays of one shape can be compared", options.golden,
                             shape_text(golden.shape), options.dut, shape_text(dut.shape))};
  }
  if (golden.bytes.size() != dut.bytes.size()) {
    return Error{fmt::format("{} has {} bytes, but {} has {}: only results of one size can be compared", options.golden,
                             golden.bytes.size(), options.dut, dut.bytes.size())};
  }
  if (shape.empty()) shape = golden.dtype ? golden.shape : dut.shape;
  if (shape.empty() && !golden.dtype && !dut.dtype) shape = {golden.bytes.size() / size};
  if (shape.empty()) shape = {1};  // a scalar
  part.shape = std::move(shape);
  if (format.is_packed()) {
    part.packed = true;
    const auto packed = part.byte_size();
    part.packed = packed && *packed == golden.bytes.size() && product_of(part.shape) != golden.bytes.size();
  }
  const auto needed = part.byte_size();
  if (!needed || *needed != golden.bytes.size()) {
    return Error{fmt::format("{}: {} bytes, but {} of shape {} takes {}{}", options.golden, golden.bytes.size(),
                             format.name, shape_text(part.shape),
                             needed ? fmt::format("{}", *needed) : "more than 64 bits can count",
                             options.shape.empty() ? "; say another with --shape" : "")};
  }
  return part;
}

Expected<std::size_t> axis_of(std::int64_t axis, std::span<const uint64> shape) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (axis < -rank || axis >= rank) return Error{fmt::format("--axis: {} is outside of {}", axis, shape_text(shape))};
  return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
}

/// The shape in which codes are stored: the quantised axis last.
std::vector<uint64> stored_shape(std::span<const uint64> shape, std::size_t axis, uint64 last) {
  std::vector<uint64> out;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != axis) out.push_back(shape[i]);
  }
  out.push_back(last);
  return out;
}

/// Codes and scales that `bitcube quantize` wrote.
Expected<const QuantizedTensor*> load_packed_pair(const Options& options, Files& files, DiffInputs& inputs) {
  files.packed.reserve(2);
  for (const std::string* path : {&options.golden, &options.dut}) {
    auto tensor = load_packed(*path, options.name);
    if (!tensor) return tensor.error();
    files.packed.push_back(std::move(*tensor));
  }
  const QuantizedTensor& g = files.packed[0];
  const QuantizedTensor& d = files.packed[1];
  if (g.format != d.format || g.shape != d.shape || g.axis != d.axis) {
    return Error{fmt::format("{} holds {} of {} along axis {}, but {} holds {} of {} along axis {}", options.golden,
                             g.format->name, shape_text(g.shape), g.axis, options.dut, d.format->name,
                             shape_text(d.shape), d.axis)};
  }
  const uint64 k = g.shape[g.axis];
  ComparedPart codes{
      "codes", PartRole::codes, g.format->element, stored_shape(g.shape, g.axis, k), g.format->element->is_packed(),
      g.codes, d.codes,         g.format->group};
  ComparedPart scales{"scales", PartRole::scales, g.format->scale, stored_shape(g.shape, g.axis, g.format->groups(k)),
                      false,    g.scales,         d.scales,        0};
  inputs.parts = {std::move(codes), std::move(scales)};
  return &g;
}

/// --source: what GOLDEN was quantised from.
Expected<void> load_source(const Options& options, Files& files, const BlockFormat& format,
                           const QuantizedTensor* packed, DiffInputs& inputs, std::size_t& axis) {
  QuantizeArguments arguments;
  arguments.format = format.name;
  arguments.profile = options.profile_given && format.is_hif4() ? options.postprocess.profile : "";
  arguments.scale = options.postprocess.scale;
  arguments.round = options.postprocess.round;
  arguments.tensor_scale = options.tensor_scale;
  if (options.profile_given && !format.is_hif4()) {
    return Error{fmt::format("--profile: {} has none; with --source it is for hif4", format.name)};
  }
  const auto resolved = resolve(arguments);
  if (!resolved) return resolved.error();
  QuantizationInputs q;
  q.options = *resolved;
  auto array = read_array(options.source);
  if (!array) return array.error();
  files.source = std::move(*array);
  arguments.input = options.source;
  arguments.source_type = options.source_type;
  // A packed file says what it was quantised from; an array of another type was rounded to that first.
  const bool recorded = options.source_type.empty() && packed != nullptr;
  if (recorded) arguments.source_type = packed->source->name;
  const auto input = describe_input(*files.source, arguments);
  if (!input) return Error{"--source: " + input.error().message};
  q.source = input->source.stored;
  auto bytes = files.source->load();
  if (!bytes) return Error{"--source: " + bytes.error().message};
  files.source_bytes = std::move(*bytes);
  q.words = files.source_bytes;
  if (input->source.rounded != nullptr) {
    auto rounded = convert_array(q.words, *q.source, *input->source.rounded, {}, {.threads = options.threads});
    if (!rounded) return Error{"--source: " + rounded.error().message};
    files.rounded = std::move(rounded->words);
    q.words = files.rounded;
    q.source = input->source.rounded;
  }
  const auto plain = describe_input(*files.source, QuantizeArguments{});
  if (!plain || plain->source.stored != q.source) files.source_type = q.source->name;
  q.shape = files.source->shape;
  if (packed != nullptr) {
    // What the file says is what made it, unless the command line says otherwise.
    axis = packed->axis;
    if (arguments.profile.empty() && packed->profile != nullptr) q.options.profile = packed->profile;
    if (arguments.scale.empty() && packed->scale_rule != nullptr) q.options.scale_rule = packed->scale_rule;
    if (arguments.round.empty() && !format.is_hif4()) q.options.rounding = packed->rounding;
    if (packed->tensor_scale) q.options.tensor_scale = true;
    if (packed->tensor_scale) q.options.given_scale = packed->tensor_scale;
    if (q.shape != packed->shape) {
      return Error{fmt::format("--source: {} is {}, but {} holds {}", options.source, shape_text(q.shape),
                               options.golden, shape_text(packed->shape))};
    }
  } else {
    const auto resolved_axis = axis_of(options.axis, q.shape);
    if (!resolved_axis) return resolved_axis.error();
    axis = *resolved_axis;
  }
  q.axis = axis;
  inputs.quantization = std::move(q);
  return {};
}

/// Codes, and scales of their own files.
Expected<void> load_block(const Options& options, Files& files, const BlockFormat& format, DiffInputs& inputs,
                          std::size_t& axis) {
  auto shape = parse_shape(options.shape);
  if (!shape) return shape.error();
  std::optional<std::vector<uint64>> logical = *shape;
  if (!options.source.empty()) {
    if (auto ok = load_source(options, files, format, nullptr, inputs, axis); !ok) return ok;
    if (!logical) logical = inputs.quantization->shape;
  }
  const auto golden = load(options.golden, options.name, files);
  if (!golden) return golden.error();
  const auto dut = load(options.dut, options.name, files);
  if (!dut) return dut.error();
  std::vector<uint64> stored;
  if (logical) {
    const auto resolved = axis_of(options.axis, *logical);
    if (!resolved) return resolved.error();
    axis = *resolved;
    stored = stored_shape(*logical, axis, (*logical)[axis]);
  }
  auto codes = part_of(options, "codes", PartRole::codes, *format.element, stored, *golden, *dut);
  if (!codes) return codes.error();
  codes->group = format.group;
  if (!logical) axis = codes->shape.size() - 1;
  inputs.parts.push_back(std::move(*codes));
  if (options.scales.empty()) return {};
  std::vector<uint64> scale_shape = inputs.parts[0].shape;
  scale_shape.back() = format.groups(scale_shape.back());
  const auto golden_scales = load(options.scales[0], options.name, files);
  if (!golden_scales) return golden_scales.error();
  auto dut_scales = load(options.scales[1], options.name, files);
  if (!dut_scales) return dut_scales.error();
  // Transposed, and its shape says so: its words are compared as they lie.
  const auto& right = golden_scales->shape;
  const bool exchanged = right.size() == 2 && dut_scales->shape == std::vector<uint64>{right[1], right[0]};
  if (exchanged && !std::ranges::equal(golden_scales->bytes, dut_scales->bytes)) dut_scales->shape = right;
  Options of_scales = options;
  of_scales.golden = options.scales[0];
  of_scales.dut = options.scales[1];
  auto scales = part_of(of_scales, "scales", PartRole::scales, *format.scale, scale_shape, *golden_scales, *dut_scales);
  if (!scales) return Error{"--scales: " + scales.error().message};
  inputs.parts.push_back(std::move(*scales));
  return {};
}

Expected<const Format*> load_conversion(const Options& options, Files& files, DiffInputs& inputs) {
  if (options.to.empty() && options.format.empty()) {
    return Error{"--to is missing: say to which format the words of --from-array were converted"};
  }
  auto array = read_array(options.from_array);
  if (!array) return array.error();
  files.source = std::move(*array);
  const Format* from = native_format(files.source->dtype);
  if (!options.from.empty()) {
    const auto found = look_up_format("--from", options.from);
    if (!found) return found.error();
    from = *found;
  }
  if (from == nullptr || from->carrier_bits != 8 * dtype_size(files.source->dtype)) {
    return Error{fmt::format("--from: {}: {} elements are {}; say with --from what they are", options.from_array,
                             dtype_name(files.source->dtype), from == nullptr ? "no numbers" : "not as wide as that")};
  }
  const auto to =
      look_up_format(options.to.empty() ? "--format" : "--to", options.to.empty() ? options.format : options.to);
  if (!to) return to.error();
  const auto profile = look_up("--profile", options.postprocess.profile, conversion_profiles, find_conversion_profile);
  if (!profile) return profile.error();
  const auto rounding = look_up_rounding("--round", options.postprocess.round);
  if (!rounding) return rounding.error();
  auto bytes = files.source->load();
  if (!bytes) return bytes.error();
  files.source_bytes = std::move(*bytes);
  ConversionInputs in;
  in.words = files.source_bytes;
  in.from = from;
  in.control = {.rounding = rounding->value_or(default_rounding(from->is_integer(), **to)),
                .saturate = options.postprocess.saturate,
                .profile = *profile};
  inputs.conversion = in;
  return *to;
}

Expected<const Format*> load_product(const Options& options, Files& files, DiffInputs& inputs, const Console& console) {
  const auto profile = look_up("--accumulate", options.accumulate, accumulation_profiles, find_accumulation_profile);
  if (!profile) return profile.error();
  if (options.a.path.empty() || options.b.path.empty()) return Error{"a product needs both --a and --b"};
  auto a = OperandFile::load(Side::a, options.a);
  if (!a) return a.error();
  auto b = OperandFile::load(Side::b, options.b);
  if (!b) return b.error();
  files.a.emplace(std::move(*a));
  files.b.emplace(std::move(*b));
  const auto kind = product_kind(files.a->operand(), files.b->operand());
  if (!kind) return kind.error();
  const Format& accumulator = *kind->accumulator;
  const std::size_t rows = files.a->operand().lines;
  const std::size_t cols = files.b->operand().lines;
  ProductInputs in;
  in.a = files.a->operand();
  in.b = files.b->operand();
  in.options.profile = *profile;
  if (!options.c.empty()) {
    const std::array<std::vector<uint64>, 1> shapes{{{rows, cols}}};
    auto words = load_accumulators("--c", options.c, accumulator, shapes);
    if (!words) return words.error();
    files.c = std::move(*words);
    in.options.c = files.c;
  }
  if (!options.bias.empty()) {
    const std::array<std::vector<uint64>, 2> shapes{{{cols}, {1, cols}}};
    auto words = load_accumulators("--bias", options.bias, accumulator, shapes);
    if (!words) return words.error();
    files.bias = std::move(*words);
    in.options.bias = files.bias;
  }
  auto resolved = ResolvedPostprocess::from(options.postprocess, accumulator, rows, console);
  if (!resolved) return resolved.error();
  files.postprocess.emplace(std::move(*resolved));
  in.postprocess = files.postprocess->options();
  const Format& to = destination_format(*in.postprocess.mode, accumulator);
  inputs.product = in;
  return &to;
}

std::optional<machine::TileLayout> find_layout(std::string_view name) {
  for (const auto layout : machine::tile_layouts) {
    if (equal_ignoring_case(machine::name_of(layout), name)) return layout;
  }
  return std::nullopt;
}

Expected<void> load_plain(const Options& options, Files& files, const Format* format, DiffInputs& inputs) {
  const auto golden = load(options.golden, options.name, files);
  if (!golden) return golden.error();
  const auto dut = load(options.dut, options.name, files);
  if (!dut) return dut.error();
  if (format == nullptr) {
    const auto dtype = golden->dtype ? golden->dtype : dut->dtype;
    if (!dtype) {
      return Error{
          fmt::format("{}: a raw file does not say what its words are; give --format, and --shape", options.golden)};
    }
    format = native_format(*dtype);
    if (format == nullptr)
      return Error{fmt::format("{}: say with --format what {} are", options.golden, dtype_name(*dtype))};
  }
  auto shape = parse_shape(options.shape);
  if (!shape) return shape.error();
  std::vector<uint64> lanes = shape->value_or(std::vector<uint64>());
  if (lanes.empty() && !golden->dtype && !dut->dtype) {
    if (inputs.conversion) lanes = files.source->shape;
    if (inputs.product) lanes = {inputs.product->a.lines, inputs.product->b.lines};
    if (lanes.empty() && format->is_packed()) lanes = {golden->bytes.size() * 2};  // two lanes per byte
  }
  auto part = part_of(options, "result", PartRole::result, *format, std::move(lanes), *golden, *dut);
  if (!part) return part.error();
  inputs.parts.push_back(std::move(*part));
  return {};
}

/// Where the first mismatch is explained.
std::string explain_command(const Options& options, const Files& files, const DiffInputs& inputs, const Diff& diff,
                            std::size_t axis) {
  const auto differs =
      std::find_if(diff.parts.begin(), diff.parts.end(), [](const Comparison& c) { return !c.first.empty(); });
  if (differs == diff.parts.end()) return {};
  const Mismatch& m = differs->first.front();
  if (inputs.conversion) {
    const std::size_t size = inputs.conversion->from->carrier_bits / 8;
    const uint64 word = load_word(inputs.conversion->words.data() + m.index * size, size);
    return fmt::format("bitcube explain convert --from {} --to {} {}{}", inputs.conversion->from->name,
                       differs->format->name, bits_text(*inputs.conversion->from, word), options.choices);
  }
  if (inputs.quantization) {
    std::vector<uint64> at = m.at;
    uint64 lane = at.back();
    if (differs->role == PartRole::scales) lane *= inputs.quantization->options.format->group;
    at.pop_back();
    at.insert(at.begin() + static_cast<std::ptrdiff_t>(axis), lane);
    std::string text = fmt::format("bitcube explain quantize {} --at {} --format {}", shell_word(options.source),
                                   fmt::join(at, ","), inputs.quantization->options.format->name);
    const QuantizeOptions& q = inputs.quantization->options;
    if (axis + 1 != inputs.quantization->shape.size()) text += fmt::format(" --axis {}", axis);
    if (!files.source_type.empty()) text += " --source-type " + files.source_type;
    if (q.format->is_hif4() && q.profile != &hif4_profiles[0]) text += fmt::format(" --profile {}", q.profile->name);
    if (q.format->is_mx() && q.scale_rule != &scale_rules[0]) text += fmt::format(" --scale {}", q.scale_rule->name);
    if (!q.format->is_hif4() && q.rounding != Rounding::rne) text += fmt::format(" --round {}", name_of(q.rounding));
    if (q.tensor_scale) text += " --tensor-scale";
    return text;
  }
  if (inputs.product) {
    return fmt::format("bitcube explain matmul {} {} --at {}{}", shell_word(options.a.path), shell_word(options.b.path),
                       fmt::join(m.at, ","), options.choices);
  }
  return {};
}

Expected<Exit> list(const Console& console) {
  if (console.json()) {
    Json json = Json::array();
    for (const Hypothesis& h : hypotheses()) {
      json.push_back({{"id", h.id}, {"title", h.title}, {"needs", h.needs}, {"remedy", h.remedy}});
    }
    if (auto printed = console.print_json(json); !printed) return printed.error();
    return Exit::success;
  }
  TextTable table;
  table.add({"hypothesis", "what was done instead", "tried on"});
  for (const Hypothesis& h : hypotheses()) table.add({std::string(h.id), std::string(h.title), std::string(h.needs)});
  if (auto printed = console.print(table.text()); !printed) return printed.error();
  return Exit::success;
}

/// Bytes of an array, or of the tensor of this name, or of all tensors where there is no name.
Expected<std::uint64_t> array_bytes(const std::string& path, const std::string& name) {
  if (!is_safetensors(path)) return file_bytes(path);
  const auto file = read_safetensors(path);
  if (!file) return file.error();
  std::uint64_t sum = 0;
  for (const SafetensorsTensor& t : file->tensors()) {
    if (name.empty() || t.name == name) sum += t.size();
  }
  if (name.empty() || !is_described(*file)) return sum;
  const auto entries = packed_entries(*file, path);
  if (!entries) return entries.error();
  for (const PackedEntry& entry : *entries) {
    if (entry.name == name) sum += entry.codes->size() + entry.scales->size();
  }
  return sum;
}

/// All that is compared and what it was made from is in memory at once: the hypotheses look at any of it.
Expected<void> check_diff_memory(const Options& options) {
  std::uint64_t total = std::uint64_t{16} << 20;  // counts by row, by column and by piece
  for (const std::string* path : {&options.golden, &options.dut}) {
    const auto bytes = array_bytes(*path, options.name);
    if (!bytes) return bytes.error();
    total += *bytes;
    if (path == &options.dut && !options.layout.empty()) total += *bytes;  // and the same without its layout
  }
  for (const std::string& path : options.scales) {
    const auto bytes = array_bytes(path, options.name);
    if (!bytes) return bytes.error();
    total += *bytes;
  }
  for (const std::string* path : {&options.from_array, &options.source, &options.a.path, &options.a.scales_path,
                                  &options.b.path, &options.b.scales_path, &options.c, &options.bias}) {
    total += file_bytes(*path);
  }
  if (!options.source_type.empty()) total += file_bytes(options.source);  // and the same rounded
  return check_memory(fmt::format("diff of {} and {}", options.golden, options.dut), total);
}

/// What says how GOLDEN was made needs what it was made from.
Expected<void> check_given(const Options& options) {
  const bool conversion = !options.from_array.empty();
  const bool quantized = !options.source.empty();
  const bool product = !options.a.path.empty() || !options.b.path.empty();
  for (const auto& [name, value] : {std::pair{"--from", &options.from}, std::pair{"--to", &options.to}}) {
    if (!value->empty() && !conversion) return Error{fmt::format("{}: there is no --from-array to convert", name)};
  }
  if (!options.source_type.empty() && !quantized) return Error{"--source-type: there is no --source to quantise"};
  if (options.tensor_scale && !quantized) return Error{"--tensor-scale: there is no --source to quantise"};
  for (const std::string& name : options.given) {
    const bool for_all = name == "--round" || name == "--profile";
    if (product || (quantized && (for_all || name == "--scale"))) continue;
    if (conversion && (for_all || name == "--sat")) continue;
    return Error{fmt::format("{}: {}", name,
                             for_all             ? "there is no --from-array, --source, or --a and --b that takes it"
                             : name == "--scale" ? "there is no --source, or --a and --b that takes it"
                             : name == "--sat"   ? "there is no --from-array, or --a and --b that takes it"
                                                 : "there is no product of --a and --b that takes it")};
  }
  return {};
}

/// A tolerance.
CLI::Validator finite_number() {
  return {[](const std::string& text) {
            double value = 0;
            const char* end = text.data() + text.size();
            const auto parsed = std::from_chars(text.data(), end, value);
            const bool ok = parsed.ec == std::errc() && parsed.ptr == end && std::isfinite(value) && value >= 0;
            return ok ? std::string() : fmt::format("'{}' is no finite number from 0", text);
          },
          ""};
}

/// Loads what the command line names, and compares it.
Expected<Diff> compare_files(const Options& options, const Console& console) {
  if (!options.scales.empty() && options.scales.size() != 2)
    return Error{"--scales: give two files, of GOLDEN and of DUT"};
  const int kinds = (options.from_array.empty() ? 0 : 1) + (options.source.empty() ? 0 : 1) +
                    (options.a.path.empty() && options.b.path.empty() ? 0 : 1);
  if (kinds > 1) {
    return Error{
        "--from-array, --source, and --a with --b say how GOLDEN was made: by a conversion, a quantisation or a "
        "product; give those of one"};
  }
  if (auto ok = check_given(options); !ok) return ok.error();
  if (auto fits = check_diff_memory(options); !fits) return fits.error();
  Files files;
  DiffInputs inputs;
  std::size_t axis = 0;

  bool described = false;
  if (is_safetensors(options.golden) && is_safetensors(options.dut)) {
    const auto file = read_safetensors(options.golden);
    if (!file) return file.error();
    // A file may hold packed tensors and others.
    const auto entries = is_described(*file) ? packed_names(*file, options.golden) : std::vector<std::string>();
    if (!entries) return entries.error();
    described = !entries->empty() &&
                (options.name.empty() || std::find(entries->begin(), entries->end(), options.name) != entries->end());
  }
  const BlockFormat* block = find_block_format(options.format);
  const Format* format = options.format.empty() ? nullptr : find_format(options.format);
  // hif4 is the name of the lanes as well; scales or a source tell which is meant.
  const bool is_block = block != nullptr && (format == nullptr || !options.scales.empty() || !options.source.empty());
  if (!options.format.empty() && block == nullptr && format == nullptr) {
    std::vector<std::string_view> names = names_of(block_formats);
    for (const Format& f : formats) names.push_back(f.name);
    return unknown_name("--format", options.format, names);
  }
  if (described) {
    const auto tensor = load_packed_pair(options, files, inputs);
    if (!tensor) return tensor.error();
    axis = (*tensor)->axis;
    if (!options.source.empty()) {
      if (auto ok = load_source(options, files, *(*tensor)->format, *tensor, inputs, axis); !ok) return ok.error();
    } else if (kinds != 0) {
      return Error{"GOLDEN is quantised: --source names what it was made from"};
    }
  } else if (is_block) {
    if (kinds != 0 && options.source.empty()) return Error{"GOLDEN is quantised: --source names what it was made from"};
    if (auto ok = load_block(options, files, *block, inputs, axis); !ok) return ok.error();
  } else {
    if (!options.source.empty()) return Error{"--source: say with --format which block format GOLDEN has"};
    if (!options.scales.empty()) return Error{"--scales: say with --format which block format GOLDEN has"};
    const Format* computed = nullptr;
    if (!options.from_array.empty()) {
      const auto to = load_conversion(options, files, inputs);
      if (!to) return to.error();
      computed = *to;
    } else if (kinds != 0) {
      const auto to = load_product(options, files, inputs, console);
      if (!to) return to.error();
      computed = *to;
    }
    if (computed != nullptr && format != nullptr && computed != format) {
      return Error{fmt::format("--format: {}, but the inputs give {}", format->name, computed->name)};
    }
    if (auto ok = load_plain(options, files, computed != nullptr ? computed : format, inputs); !ok) return ok.error();
  }
  if (!options.layout.empty()) {
    const auto layout = find_layout(options.layout);
    if (!layout) {
      std::vector<std::string_view> names;
      for (const auto l : machine::tile_layouts) names.push_back(machine::name_of(l));
      return unknown_name("--layout", options.layout, names);
    }
    auto rows = undo_layout(inputs.parts.front(), inputs.parts.front().dut, *layout);
    if (!rows) return Error{"--layout: " + rows.error().message};
    files.rows.push_back(std::move(*rows));
    inputs.parts.front().dut = files.rows.back();
  }

  ProgressBar bar("diff");
  DiffOptions settings;
  settings.compare.tolerance = {options.ulps, options.relative, options.absolute};
  settings.compare.first = std::max<std::size_t>(options.first, 1);
  settings.compare.worst = options.worst;
  settings.compare.execution = execution_of(options.threads, bar.callback());
  settings.diagnose = !options.no_diagnosis;
  auto result = diff(inputs, settings);
  if (!result) return result.error();
  result->explain_command = explain_command(options, files, inputs, *result, axis);
  return result;
}

/// The tensors of a file by name; parts of packed tensors are not named.
Expected<std::vector<std::string>> tensor_names(const std::string& path) {
  const auto file = read_safetensors(path);
  if (!file) return file.error();
  std::vector<std::string> names;
  std::vector<const SafetensorsTensor*> parts;
  if (is_described(*file)) {
    const auto entries = packed_entries(*file, path);
    if (!entries) return entries.error();
    for (const PackedEntry& entry : *entries) {
      names.push_back(entry.name);
      parts.insert(parts.end(), {entry.codes, entry.scales});
    }
  }
  for (const SafetensorsTensor& t : file->tensors()) {
    if (std::find(parts.begin(), parts.end(), &t) == parts.end()) names.push_back(t.name);
  }
  return names;
}

/// Two checkpoints, tensor by tensor.
Expected<Exit> run_checkpoints(const Options& options, const Console& console, const std::vector<std::string>& golden,
                               const std::vector<std::string>& dut) {
  TextTable table;
  table.add({"tensor", "format", "shape", "mismatches", "diagnosis"});
  Json json = Json::array();
  std::size_t different = 0;
  const auto lone = [&](const std::string& name, const char* where) {
    ++different;
    table.add({name_text(name), "", "", "", fmt::format("only in {}", where)});
    json.push_back({{"name", name}, {"only_in", where}});
  };
  for (const std::string& name : golden) {
    if (std::find(dut.begin(), dut.end(), name) == dut.end()) {
      lone(name, "GOLDEN");
      continue;
    }
    Options one = options;
    one.name = name;
    const auto result = compare_files(one, console);
    if (!result) return Error{fmt::format("{}: {}", name_text(name), result.error().message)};
    if (!result->passes()) ++different;
    const std::string diagnosis = result->equal()             ? "equal"
                                  : result->diagnoses.empty() ? "none"
                                                              : result->diagnoses.front().title;
    table.add({name_text(name), std::string(result->parts.front().format->name),
               shape_text(result->parts.front().shape), fmt::format("{}", result->mismatches()), diagnosis});
    Json entry = Json::parse(json_of(*result, options.golden, options.dut, -1));
    entry["name"] = name;
    json.push_back(std::move(entry));
  }
  for (const std::string& name : dut) {
    if (std::find(golden.begin(), golden.end(), name) == golden.end()) lone(name, "DUT");
  }
  const std::array<std::size_t, 1> right{3};
  const auto printed =
      console.json()
          ? console.print_json(json)
          : console.print(fmt::format("{}\n{} of {} tensors differ{}\n", table.text(right), different, json.size(),
                                      different == 0 ? "" : "; --name TENSOR tells more of one"));
  if (!printed) return printed.error();
  return different == 0 ? Exit::success : Exit::differences;
}

Expected<Exit> run(const Options& options, const Console& console) {
  if (options.list) return list(console);
  if (options.golden.empty() || options.dut.empty())
    return Error{"diff: give GOLDEN and DUT, the files to compare (see bitcube diff --help)"};
  if (options.name.empty() && is_safetensors(options.golden) && is_safetensors(options.dut)) {
    const auto golden = tensor_names(options.golden);
    if (!golden) return golden.error();
    const auto dut = tensor_names(options.dut);
    if (!dut) return dut.error();
    if (golden->size() != 1 || dut->size() != 1) {
      if (options.report.empty()) return run_checkpoints(options, console, *golden, *dut);
      return Error{fmt::format("{}: a report is of one tensor; say which with --name", options.golden)};
    }
  }
  std::optional<OutputFile> page;
  if (!options.report.empty()) {
    const std::string paths[] = {options.golden,     options.dut,    options.a.path, options.b.path,
                                 options.from_array, options.source, options.bias,   options.c};
    auto created = create_output(options.report, paths);
    if (!created) return created.error();
    page = std::move(*created);
  }
  const auto date = date_of(options.date);
  if (!date) return date.error();
  const auto result = compare_files(options, console);
  if (!result) return result.error();
  const auto printed = console.json() ? console.print(json_of(*result, options.golden, options.dut) + "\n")
                                      : console.print(text_of(document_of(*result, options.golden, options.dut)));
  if (!printed) return printed.error();
  if (page) {
    const std::string title =
        options.title.empty() ? fmt::format("{} against {}", options.dut, options.golden) : options.title;
    const report::PageHead head{.title = title,
                                .command = options.invocation,
                                .date = *date,
                                .inputs = {{"GOLDEN", options.golden}, {"DUT", options.dut}}};
    if (auto written = page->append(report::comparison_page(head, *result)); !written) return written.error();
    if (auto committed = page->commit(); !committed) return committed.error();
  }
  return result->passes() ? Exit::success : Exit::differences;
}

}  // namespace

void DiffArguments::add_to(CLI::App& command, const std::string& group) {
  const auto option = [&](const char* long_name, std::string& variable, const char* help, const char* type,
                          const char* of) {
    command.add_option(long_name, variable, help)->type_name(type)->group(of);
  };
  command
      .add_option("-f,--format", format,
                  "What the words are: a number format, or a block format with --scales or --source")
      ->type_name("TYPE")
      ->group(group);
  command.add_option("--shape", shape, "Shape of a raw file, in lanes; default: that of the inputs, or one line")
      ->type_name("784x256")
      ->group(group);
  command.add_option("--scales", scales, "Scale arrays of GOLDEN and of DUT, the groups of a line beside each other")
      ->type_name("G D")
      ->expected(2)
      ->group(group);
  command.add_option("--axis", axis, "The axis along which groups lie; default: -1, the last")->type_name("N");
  command.add_option("--layout", layout, "The layout in which DUT is stored; it is undone first")
      ->type_name("NZ|ZN|CUBE_M16|CUBE_M32|CUBE_N8|ColumnMajor")
      ->group(group);
  command.add_option("--name", name, "The tensor in .safetensors files that have several")
      ->type_name("NAME")
      ->group(group);

  constexpr const char* kConverted = "GOLDEN is a conversion";
  option("--from-array", from_array, "What was converted", "X.npy", kConverted);
  option("--from", from, "Its format; default: what its dtype says", "TYPE", kConverted);
  option("--to", to, "The destination; default: --format", "TYPE", kConverted);
  option("--source", source, "What was quantised", "X.npy", kQuantized);
  option("--source-type", source_type, "As in bitcube quantize: rounded to it first, or codes of it", "TYPE",
         kQuantized);
}

Expected<Exit> report_diff(const DiffArguments& arguments, const Console& console) {
  Options options;
  static_cast<DiffArguments&>(options) = arguments;
  return run(options, console);
}

void add_diff(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("diff", "Compare two results bit for bit, and say why they differ");
  const auto options = std::make_shared<Options>();
  const auto option = [&](const char* name, auto& variable, const char* help, const std::string& type,
                          const char* group) {
    return command.add_option(name, variable, help)->type_name(type)->group(group);
  };
  const std::string file = "F.npy|F.bin|F.safetensors";
  command
      .add_option("GOLDEN", options->golden,
                  "The right result: .npy, FILE:DTYPE:SHAPE, a raw .bin with --format, or what bitcube quantize wrote")
      ->type_name(file);
  command.add_option("DUT", options->dut, "The result to judge, in the same form")->type_name(file);
  options->DiffArguments::add_to(command);
  command.add_flag("--tensor-scale", options->tensor_scale, "nvfp4: with an FP32 scale of the whole tensor")
      ->group(kQuantized);
  const char* const product = "GOLDEN is a product, with the options of bitcube matmul";
  option("--a", options->a.path, "M x K, as in bitcube matmul", "A.npy|A.safetensors", product);
  option("--b", options->b.path, "K x N", "B.npy|B.safetensors", product);
  option("--bias", options->bias, "N or 1 x N accumulators", "b.npy", product);
  option("--c", options->c, "M x N accumulators to start from", "C.npy", product);
  option("--accumulate", options->accumulate, "Accumulation profile; default: fma", choices(accumulation_profiles),
         product);
  options->a.add_to(command, Side::a);
  options->b.add_to(command, Side::b);
  options->postprocess.add_result_to(command);

  const char* const judged = "What counts as equal";
  option("--ulp", options->ulps, "Elements this near pass", "N", judged)->check(whole_number(~uint64{0} >> 1));
  option("--rtol", options->relative, "Elements within this share of GOLDEN pass", "R", judged)->check(finite_number());
  option("--atol", options->absolute, "Elements this near in value pass", "A", judged)->check(finite_number());
  command.add_option("--first", options->first, "Mismatches to list; default: 10")
      ->type_name("N")
      ->check(whole_number(1000000));
  command.add_option("--worst", options->worst, "Worst mismatches to list; default: 5")
      ->type_name("N")
      ->check(whole_number(10000));
  command.add_flag("--no-diagnosis", options->no_diagnosis, "Only compare");
  command.add_flag("--list", options->list, "List the hypotheses");
  command.add_option("--report", options->report, "Also write a page with pictures (see bitcube report)")
      ->type_name("REPORT.html");
  add_limits(command, options->threads);
  add_json(command);
  add_examples(command,
               "  bitcube diff golden.bin dut.bin --format e4m3 --shape 784x256\n"
               "  bitcube diff golden.bin dut.bin --from-array W.npy --to e4m3\n"
               "  bitcube diff golden.safetensors dut.safetensors --source W.npy\n"
               "  bitcube diff D.npy dut.npy --a X.safetensors --b W.safetensors --bias b.npy --relu");
  command.callback([=, &console, &action, &command] {
    options->profile_given = command.count("--profile") != 0;
    options->invocation = command_line(command);
    for (const char* const name : {"--bias", "--c", "--accumulate", "--a-type", "--b-type", "--a-scales", "--b-scales",
                                   "--a-name", "--b-name", "--pre-quant", "--scale", "--offset", "--quant-params",
                                   "--relu", "--relu-param", "--round", "--sat", "--profile"}) {
      const CLI::Option& given = *command.get_option(name);
      if (given.count() == 0) continue;
      options->given.emplace_back(name);
      options->choices += fmt::format(" {}", name);
      if (given.get_expected_min() == 0) continue;
      for (const std::string& value : given.results()) options->choices += fmt::format(" {}", shell_word(value));
    }
    action = [=, &console] { return run(*options, console); };
  });
}

}  // namespace bitcube::cli
