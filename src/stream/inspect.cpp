#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "bitcube/io/npy.hpp"
#include "bitcube/io/packed.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "bitcube/stream/inspect.hpp"
#include "checkpoint_files.hpp"
#include "elements.hpp"
#include "guarded.hpp"
#include "quote_text.hpp"

namespace bitcube::stream {
namespace {

constexpr std::uint64_t kCompareAtOnce = std::uint64_t{4} << 20;

/// Where the bytes of a tensor are.
struct Place {
  std::size_t shard = 0;
  SafetensorsTensor first;   // all of it, or its codes
  SafetensorsTensor second;  // its scales
};

const Format* format_of_dtype(std::string_view dtype) {
  constexpr std::pair<std::string_view, const Format*> known[] = {{"F64", &fp64},
                                                                  {"F32", &fp32},
                                                                  {"F16", &fp16},
                                                                  {"BF16", &bf16},
                                                                  {"float64", &fp64},
                                                                  {"float32", &fp32},
                                                                  {"float16", &fp16},
                                                                  {"bfloat16", &bf16},
                                                                  {"F8_E4M3", &format_of(DataType::e4m3)},
                                                                  {"F8_E5M2", &format_of(DataType::e5m2)}};
  const auto* found = std::ranges::find(known, dtype, &std::pair<std::string_view, const Format*>::first);
  return found != std::end(known) ? found->second : nullptr;
}

/// Arrays of unsigned words may hold the codes of any format of their width.
bool holds_codes_of(std::string_view dtype, const Format& format) {
  return dtype == fmt::format("uint{}", format.carrier_bits);
}

bool same_description(const QuantizedTensor& a, const QuantizedTensor& b) {
  return a.format == b.format && a.profile == b.profile && a.scale_rule == b.scale_rule && a.rounding == b.rounding &&
         a.source == b.source && a.shape == b.shape && a.axis == b.axis && a.tensor_scale == b.tensor_scale;
}

std::string shape_text(const std::vector<uint64>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

struct TensorFiles::Impl {
  std::optional<NpyArray> array;
  std::vector<CheckpointFile> files;
  std::vector<TensorInfo> tensors;
  std::vector<Place> places;  // of the tensors, unless there is an array
  SafetensorsMetadata metadata;
  std::vector<std::string> warnings;
  std::map<std::string_view, std::size_t> index;
  // The file that was used last: there may be more than a process can have open.
  mutable std::shared_ptr<const Safetensors> open;
  mutable std::size_t open_number = 0;

  Expected<void> add(const CheckpointFile& file, const Safetensors& source) {
    const std::string file_name = file.path.string();
    std::map<std::string_view, const PackedEntry*> by_codes;
    std::set<std::string_view> scales;
    std::vector<PackedEntry> packed;
    if (is_described(source)) {
      auto entries = packed_entries(source, file_name);
      if (!entries) return entries.error();
      packed = std::move(*entries);
      for (const PackedEntry& entry : packed) {
        if (!by_codes.emplace(entry.codes->name, &entry).second || !scales.insert(entry.scales->name).second) {
          return Error{fmt::format("{}: tensor {}: another packed tensor has the same parts", file_name,
                                   quote_text(entry.name))};
        }
      }
    }
    for (const SafetensorsTensor& tensor : source.tensors()) {
      if (scales.contains(tensor.name)) continue;
      if (const auto found = by_codes.find(tensor.name); found != by_codes.end()) {
        const PackedEntry& entry = *found->second;
        tensors.push_back({.file = file.name,
                           .name = entry.name,
                           .dtype = {},
                           .shape = entry.description.shape,
                           .bytes = entry.codes->size() + entry.scales->size(),
                           .packed = entry.description});
        places.push_back({files.size(), *entry.codes, *entry.scales});
        continue;
      }
      if (!safetensors_bits(tensor.dtype)) {
        warnings.push_back(
            fmt::format("tensor {}: unknown type {}", quote_text(tensor.name), quote_text(tensor.dtype)));
      }
      tensors.push_back({file.name, tensor.name, tensor.dtype, tensor.shape, tensor.size()});
      places.push_back({files.size(), tensor, {}});
    }
    files.push_back(file);
    metadata = source.metadata();
    return {};
  }

  Expected<std::shared_ptr<const Safetensors>> shard(std::size_t number) const {
    if (open && open_number == number) return open;
    open.reset();
    auto file = read_safetensors(files[number].path);
    if (!file) return file.error();
    open = std::make_shared<const Safetensors>(std::move(*file));
    open_number = number;
    return open;
  }

  /// The bytes of a part of a tensor: 0 is all of it, or its codes; 1 its scales.
  Expected<Read> read_part(std::size_t tensor, int part) const {
    if (array) {
      return Read([this](std::uint64_t offset, std::span<std::byte> to) { return array->read(offset, to); });
    }
    const Place& place = places[tensor];
    const SafetensorsTensor& planned = part == 0 ? place.first : place.second;
    const auto file = shard(place.shard);
    if (!file) return file.error();
    const SafetensorsTensor* now = (*file)->find(planned.name);
    if (now == nullptr || now->dtype != planned.dtype || now->shape != planned.shape || now->size() != planned.size()) {
      return Error{fmt::format("{}: was changed while it was read", files[place.shard].path.string())};
    }
    return Read(
        [file = *file, now](std::uint64_t offset, std::span<std::byte> to) { return file->read(*now, offset, to); });
  }

  Expected<void> check_unchanged(std::size_t tensor) const {
    if (array) return array->file.check_unchanged();
    const auto file = shard(places[tensor].shard);
    if (!file) return file.error();
    return (*file)->file().check_unchanged();
  }
};

TensorFiles::TensorFiles(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
TensorFiles::TensorFiles(TensorFiles&&) noexcept = default;
TensorFiles& TensorFiles::operator=(TensorFiles&&) noexcept = default;
TensorFiles::~TensorFiles() = default;

Expected<TensorFiles> TensorFiles::open(const std::filesystem::path& path) {
  return guarded(path.string(), [&]() -> Expected<TensorFiles> {
    auto impl = std::make_unique<Impl>();
    if (auto regular = check_regular(path); !regular) return regular.error();
    if (path.extension() == ".npy") {
      auto array = read_npy(path);
      if (!array) return array.error();
      impl->tensors.push_back({.file = {},
                               .name = path.stem().string(),
                               .dtype = std::string(dtype_name(array->dtype)),
                               .shape = array->shape,
                               .bytes = array->size()});
      impl->files.push_back({"", path});
      impl->array = std::move(*array);
    } else {
      auto files = visit_checkpoint(
          path, [&](const CheckpointFile& file, const Safetensors& source) { return impl->add(file, source); });
      if (!files) return files.error();
      if (files->index) impl->metadata.clear();
      for (const std::string& name : files->unlisted) {
        impl->warnings.push_back(fmt::format("tensor {}: the index does not name it", quote_text(name)));
      }
    }
    for (std::size_t i = 0; i < impl->tensors.size(); ++i) {
      if (!impl->index.emplace(impl->tensors[i].name, i).second) {
        return Error{fmt::format("{}: tensor {} stands twice", path.string(), quote_text(impl->tensors[i].name))};
      }
    }
    return TensorFiles(std::move(impl));
  });
}

const std::vector<TensorInfo>& TensorFiles::tensors() const noexcept {
  return impl_->tensors;
}
std::size_t TensorFiles::file_count() const noexcept {
  return impl_->files.size();
}
const SafetensorsMetadata& TensorFiles::metadata() const noexcept {
  return impl_->metadata;
}
const std::vector<std::string>& TensorFiles::warnings() const noexcept {
  return impl_->warnings;
}
Expected<TensorFiles::Read> TensorFiles::reader(std::size_t tensor) const {
  return guarded("read", [&] { return impl_->read_part(tensor, 0); });
}

Expected<void> TensorFiles::check_unchanged(std::size_t tensor) const {
  return guarded("read", [&] { return impl_->check_unchanged(tensor); });
}

struct Comparer {
  const TensorFiles::Impl& file;
  const TensorFiles::Impl& original;
  const Execution& execution;
  std::size_t window;
  Steps& steps;

  using Kind = Comparison::Kind;

  Expected<Comparison> compare(std::size_t i) const {
    std::size_t other = 0;
    if (const auto found = original.index.find(file.tensors[i].name); found != original.index.end()) {
      other = found->second;
    } else if (file.tensors.size() != 1 || original.tensors.size() != 1) {
      return Comparison{.kind = Kind::kMissing};
    }
    auto compared = compare(i, other);
    if (!compared) return compared;
    if (auto same = file.check_unchanged(i); !same) return same.error();
    if (auto same = original.check_unchanged(other); !same) return same.error();
    return compared;
  }

  Expected<Comparison> compare(std::size_t i, std::size_t other) const {
    const TensorInfo& info = file.tensors[i];
    const TensorInfo& before = original.tensors[other];
    const auto different = [](std::string reason) {
      return Comparison{.kind = Kind::kDifferent, .reason = std::move(reason)};
    };
    if (info.shape != before.shape) return different(fmt::format("shape {} there", shape_text(before.shape)));
    if (info.packed && !before.packed) return measure(i, other);
    if (info.dtype != before.dtype || info.packed.has_value() != before.packed.has_value()) {
      return different(fmt::format("{} there", before.packed ? before.packed->format->name : before.dtype));
    }
    if (info.packed && !same_description(*info.packed, *before.packed)) return different("quantised otherwise there");
    for (int part = 0; part < (info.packed ? 2 : 1); ++part) {
      const std::uint64_t size = !info.packed ? info.bytes
                                 : part == 0  ? file.places[i].first.size()
                                              : file.places[i].second.size();
      const auto at = first_difference(i, other, part, size);
      if (!at) return at.error();
      if (*at)
        return different(fmt::format("byte {}{} differs", **at,
                                     !info.packed ? ""
                                     : part == 0  ? " of the codes"
                                                  : " of the scales"));
    }
    return Comparison{.kind = Kind::kIdentical};
  }

  Expected<std::optional<std::uint64_t>> first_difference(std::size_t i, std::size_t other, int part,
                                                          std::uint64_t size) const {
    const auto a = file.read_part(i, part);
    if (!a) return a.error();
    const auto b = original.read_part(other, part);
    if (!b) return b.error();
    std::vector<std::byte> x(std::min(size, kCompareAtOnce));
    std::vector<std::byte> y(x.size());
    for (std::uint64_t offset = 0; offset < size; offset += x.size()) {
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(x.size(), size - offset));
      const std::span some_x = std::span(x).first(count);
      const std::span some_y = std::span(y).first(count);
      if (auto read = (*a)(offset, some_x); !read) return read.error();
      if (auto read = (*b)(offset, some_y); !read) return read.error();
      const auto [at, there] = std::ranges::mismatch(some_x, some_y);
      if (at != some_x.end()) {
        return std::optional<std::uint64_t>(offset + static_cast<std::uint64_t>(at - some_x.begin()));
      }
      steps.finished(count / 2);
    }
    return std::optional<std::uint64_t>();
  }

  Expected<Comparison> measure(std::size_t i, std::size_t other) const {
    const TensorInfo& info = file.tensors[i];
    const TensorInfo& before = original.tensors[other];
    const QuantizedTensor& packed = *info.packed;
    const Format* stored = format_of_dtype(before.dtype);
    if (stored == nullptr && holds_codes_of(before.dtype, *packed.source)) stored = packed.source;
    if (stored == nullptr || (stored != packed.source && !convert_array({}, *stored, *packed.source))) {
      return Comparison{.kind = Kind::kDifferent,
                        .reason = fmt::format("{} there, but it was made of {}", before.dtype, packed.source->name)};
    }
    const auto shard = file.shard(file.places[i].shard);
    if (!shard) return shard.error();
    const Place& place = file.places[i];
    if (auto ok = check_packed_codes(**shard, file.files[place.shard].path.string(),
                                     {info.name, packed, &place.first, &place.second});
        !ok) {
      return ok.error();
    }
    auto codes = file.read_part(i, 0);
    if (!codes) return codes.error();
    auto scales = file.read_part(i, 1);
    if (!scales) return scales.error();
    auto words = original.read_part(other, 0);
    if (!words) return words.error();
    const Elements elements{.read = std::move(*words),
                            .shape = info.shape,
                            .stored = stored,
                            .rounded = stored != packed.source ? packed.source : nullptr};
    const PackedElements bytes{
        .description = &packed, .read_codes = std::move(*codes), .read_scales = std::move(*scales)};
    const auto measured =
        measure_windows(elements, bytes, window_elements(window, *packed.format, elements), steps, execution.threads);
    if (!measured) return Error{fmt::format("tensor {}: {}", quote_text(info.name), measured.error().message)};
    return Comparison{.kind = Kind::kMeasured, .reason = {}, .error = measured->error};
  }

  static Expected<std::vector<Comparison>> all(const TensorFiles& file, const TensorFiles& original,
                                               const Execution& execution, std::size_t window) {
    return guarded("compare", [&]() -> Expected<std::vector<Comparison>> {
      uint64 total = 0;
      for (const TensorInfo& info : file.tensors()) {
        uint64 elements = 1;
        for (const uint64 extent : info.shape) elements *= extent;  // fits: it was read
        total += info.packed ? elements : info.bytes / 2;
      }
      Steps done(execution, total);
      const Comparer comparer{*file.impl_, *original.impl_, execution, window, done};
      std::vector<Comparison> out;
      for (std::size_t i = 0; i < file.tensors().size(); ++i) {
        auto compared = comparer.compare(i);
        if (!compared) return compared.error();
        out.push_back(std::move(*compared));
      }
      return out;
    });
  }
};

Expected<std::vector<Comparison>> compare(const TensorFiles& file, const TensorFiles& original,
                                          const Execution& execution, std::size_t window) {
  return Comparer::all(file, original, execution, window);
}

}  // namespace bitcube::stream
