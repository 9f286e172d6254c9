#include "bitcube/stream/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "bitcube/io/packed.hpp"
#include "bitcube/io/sha256.hpp"
#include "bitcube/io/work_directory.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "bitcube/version.hpp"
#include "checkpoint_files.hpp"
#include "checkpoint_state.hpp"
#include "elements.hpp"
#include "fingerprint.hpp"
#include "guarded.hpp"
#include "quote_text.hpp"
#include "selection.hpp"

namespace bitcube::stream {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kCopyAtOnce = std::uint64_t{4} << 20;
constexpr std::chrono::seconds kSyncInterval{15};

/// Of the bytes of a tensor in the result: of its codes and of its scales, or of all and of none.
struct Fingerprints {
  Fingerprint first;
  Fingerprint second;

  std::string text() const { return first.text() + second.text(); }
};

uint64 elements_of(const SafetensorsTensor& tensor) {
  uint64 count = 1;
  for (const uint64 extent : tensor.shape) count *= extent;  // fits: it was read
  return count;
}

/// A file of the source and what is made of it.
struct Shard {
  CheckpointFile file;
  FileStamp stamp;
  std::size_t first = 0;  // of its tensors among all
  std::size_t count = 0;
  std::vector<MixedTensor> mixed;  // of its tensors
  SafetensorsMetadata metadata;    // the source's
  MixedPlan plan;
};

}  // namespace

struct CheckpointQuantizer::Impl {
  fs::path path;
  CheckpointOptions options;
  std::optional<ShardIndex> index;
  std::vector<CheckpointTensor> tensors;
  std::vector<std::string> warnings;
  std::vector<std::string> notes;
  std::vector<Shard> shards;
  std::string digest;
  // Of a run:
  std::vector<fs::path> new_directories;  // the outer first
  std::optional<WorkDirectory> work;
  std::vector<fs::path> targets;  // of the shards, then that of the index

  Expected<void> plan();
  Expected<void> plan_shard(const CheckpointFile& file, const Safetensors& source, Patterns& include, Patterns& exclude,
                            Sha256& sum);
  Expected<void> find_targets(const fs::path& output);
  Expected<void> open_work();
  Error give_up(const Error& error, bool keep);
  Expected<std::map<std::size_t, Finished>> take_over();
  Expected<void> run_shard(std::size_t number, std::map<std::size_t, Finished>& done, Steps& steps, std::size_t window);
  Expected<void> check_finished(std::size_t shard, std::map<std::size_t, Finished>& done);
  Expected<void> quantize_tensor(std::size_t shard, std::size_t tensor, const Safetensors& source, Finished& finished,
                                 Steps& steps, std::size_t window);
  Expected<void> copy_tensor(std::size_t shard, std::size_t tensor, const Safetensors& source, Finished& finished,
                             Steps& steps);
  uint64 steps_of(std::size_t tensor) const;
  Expected<void> check_unchanged(const Shard& shard, const Safetensors& source);
};

Expected<void> CheckpointQuantizer::Impl::plan() {
  auto include = Patterns::compile("--include", options.include);
  if (!include) return include.error();
  auto exclude = Patterns::compile("--exclude", options.exclude);
  if (!exclude) return exclude.error();
  Sha256 sum;
  sum.add(fmt::format("bitcube {}\n", version));
  auto files = visit_checkpoint(path, [&](const CheckpointFile& file, Safetensors source) {
    return plan_shard(file, source, *include, *exclude, sum);
  });
  if (!files) return files.error();
  index = std::move(files->index);
  for (const std::string& name : files->unlisted) {
    warnings.push_back(fmt::format("tensor {}: the index does not name it; the new index will", quote_text(name)));
  }
  // Within a file that was looked at; here the parts of one may be tensors of another.
  std::map<std::string_view, std::string_view> plain;
  for (const CheckpointTensor& t : tensors) {
    if (t.source == nullptr) plain.emplace(t.tensor.name, t.file);
  }
  for (const CheckpointTensor& t : tensors) {
    if (t.source == nullptr) continue;
    for (const std::string_view suffix : {".codes", ".scales"}) {
      const std::string part = t.tensor.name + std::string(suffix);
      const auto found = plain.find(part);
      if (found == plain.end()) continue;
      return Error{fmt::format(
          "{}: tensor {} of {} would have the part {}, but {} has a tensor of this name; leave one out", path.string(),
          quote_text(t.tensor.name), quote_text(t.file), quote_text(part), quote_text(found->second))};
    }
  }
  include->report_unused(warnings);
  exclude->report_unused(warnings);
  if (std::ranges::none_of(tensors, [](const CheckpointTensor& t) { return t.source != nullptr; })) {
    warnings.emplace_back("no tensor is selected; all are copied");
  }
  if (index) sum.add(index->metadata);
  nlohmann::json arguments{{"include", options.include}, {"exclude", options.exclude}};
  arguments["axis"] = options.axis;
  arguments["min_rank"] = options.min_rank;
  arguments["min_dim"] = options.min_dim;
  arguments["tensor_scale"] = options.quantize.tensor_scale;
  if (options.source_type != nullptr) arguments["source_type"] = options.source_type->name;
  sum.add(arguments.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  auto hex = sum.hex();
  if (!hex) return hex.error();
  digest = std::move(*hex);
  return {};
}

Expected<void> CheckpointQuantizer::Impl::plan_shard(const CheckpointFile& file, const Safetensors& source,
                                                     Patterns& include, Patterns& exclude, Sha256& sum) {
  const std::string file_name = file.path.string();
  const auto stamp = source.file().stamp();
  if (!stamp) {
    return Error{fmt::format("{}: is no regular file, or was replaced; a checkpoint is read from a file", file_name)};
  }
  Shard shard{.file = file, .stamp = *stamp, .first = tensors.size(), .count = source.tensors().size()};
  std::set<std::string_view> packed_parts;
  std::vector<PackedEntry> packed;
  if (is_described(source)) {
    auto entries = packed_entries(source, file_name);
    if (!entries) return entries.error();
    packed = std::move(*entries);
    for (const PackedEntry& entry : packed) {
      packed_parts.insert(entry.codes->name);
      packed_parts.insert(entry.scales->name);
    }
  }
  for (const SafetensorsTensor& tensor : source.tensors()) {
    const auto fail = [&](std::string_view message) {
      return Error{fmt::format("{}: tensor {}: {}", file_name, quote_text(tensor.name), message)};
    };
    CheckpointTensor planned{.file = file.name, .tensor = tensor};
    MixedTensor mixed{.plain = tensor};
    const bool included = include.empty() || include.match(tensor.name);
    const bool excluded = exclude.match(tensor.name);
    if (!safetensors_bits(tensor.dtype)) {
      warnings.push_back(fmt::format("tensor {}: unknown type {}; copied as it is", quote_text(tensor.name),
                                     quote_text(tensor.dtype)));
    }
    if (packed_parts.contains(tensor.name)) {
      planned.reason = "part of a packed tensor";
    } else if (!included) {
      planned.reason = "not included";
    } else if (excluded) {
      planned.reason = "excluded";
    } else {
      planned.reason = unfit(tensor.dtype, tensor.shape, options.min_rank, options.min_dim);
    }
    if (planned.reason.empty()) {
      if (tensor.name.empty()) return fail("a quantised tensor needs a name; copy it with --exclude '^$'");
      const Format* stored = float_of(tensor.dtype);
      const bool rounded = options.source_type != nullptr && options.source_type != stored;
      if (rounded) {
        if (const auto legal = convert_array({}, *stored, *options.source_type); !legal) {
          return fail("--source-type: " + legal.error().message);
        }
      }
      planned.source = rounded ? options.source_type : stored;
      const auto rank = static_cast<std::int64_t>(tensor.shape.size());
      if (options.axis < -rank || options.axis >= rank) {
        return fail(fmt::format("it has {} dimension{}, but no axis {}; give another axis, or exclude it", rank,
                                rank == 1 ? "" : "s", options.axis));
      }
      const auto axis = static_cast<std::size_t>(options.axis < 0 ? options.axis + rank : options.axis);
      auto described = describe_quantized(*planned.source, tensor.shape, axis, options.quantize);
      if (!described) return fail(described.error().message);
      // The place of the scale is kept; what it is comes with the elements.
      if (needs_tensor_scale(options.quantize)) described->tensor_scale = 0;
      mixed.packed = std::move(*described);
    }
    tensors.push_back(std::move(planned));
    shard.mixed.push_back(std::move(mixed));
  }
  auto planned = plan_mixed(file_name, &source, fmt::format("bitcube {}", version), shard.mixed);
  if (!planned) return planned.error();
  shard.plan = std::move(*planned);
  for (std::size_t i = 0; i < shard.count; ++i) tensors[shard.first + i].bytes = shard.plan.places[i].bytes();
  sum.add(fmt::format("{} {} {} {} {}\n", quote_text(file.name), stamp->size, stamp->inode, stamp->modified,
                      stamp->changed));
  const auto header_bytes = source.header();
  if (!header_bytes) return header_bytes.error();
  const auto header = sha256(*header_bytes);
  if (!header) return header.error();
  sum.add(*header);
  sum.add(shard.plan.header);
  shards.push_back(std::move(shard));
  return {};
}

Expected<void> CheckpointQuantizer::Impl::find_targets(const fs::path& output) {
  targets.clear();
  new_directories.clear();
  if (!index) {
    auto target = output_target(output);
    if (!target) return target.error();
    targets.push_back(std::move(*target));
  } else {
    std::error_code code;
    if (output.empty()) return Error{"the name of the output directory is empty"};
    std::vector<std::string> names;
    for (const Shard& shard : shards) names.push_back(shard.file.name);
    names.push_back(path.filename().string());
    for (const std::string& name : names) {
      const fs::path file = output / name;
      std::vector<fs::path> missing;
      for (fs::path parent = file.parent_path(); !parent.empty() && !fs::exists(parent, code);) {
        missing.push_back(parent);
        parent = parent.parent_path();
      }
      new_directories.insert(new_directories.end(), missing.rbegin(), missing.rend());
      fs::create_directories(file.parent_path(), code);
      if (code) return Error{fmt::format("{}: {}", file.parent_path().string(), code.message())};
      auto target = output_target(file);
      if (!target) return target.error();
      targets.push_back(std::move(*target));
    }
  }
  std::set<fs::path> different;
  for (const fs::path& target : targets) {
    if (!different.insert(target).second) {
      return Error{fmt::format("{}: two outputs go to this file; give an empty directory", target.string())};
    }
    std::error_code ignored;
    const auto is_source = [&](const fs::path& source) { return fs::equivalent(source, target, ignored); };
    if ((index && is_source(path)) ||
        std::ranges::any_of(shards, [&](const Shard& shard) { return is_source(shard.file.path); })) {
      return Error{fmt::format("{}: is also an input; write the output to another {}", target.string(),
                               index ? "directory" : "file")};
    }
  }
  return {};
}

Expected<void> CheckpointQuantizer::Impl::open_work() {
  auto opened = WorkDirectory::open(targets.back().string() + ".partial");
  if (!opened) return opened.error();
  work.emplace(std::move(*opened));
  return {};
}

/// The end of a run that failed: what is finished is kept, or nothing is left behind.
Error CheckpointQuantizer::Impl::give_up(const Error& error, bool keep) {
  if (keep && work) {
    return Error{fmt::format("{}; what is finished is kept in {}, and the next run goes on from there", error.message,
                             work->path().string())};
  }
  if (work) (void)work->remove();  // the error is the first one
  work.reset();
  std::error_code ignored;
  for (auto directory = new_directories.rbegin(); directory != new_directories.rend(); ++directory)
    fs::remove(*directory, ignored);
  return error;
}

/// What an earlier run has done, and a journal in which that is.
Expected<std::map<std::size_t, Finished>> CheckpointQuantizer::Impl::take_over() {
  notes.clear();
  std::vector<std::size_t> file_of;
  for (std::size_t i = 0; i < shards.size(); ++i) file_of.resize(file_of.size() + shards[i].count, i);
  const std::string boot = current_boot();
  Journal before = read_journal(work->journal(), digest, boot, file_of);
  if (before.damaged != 0) {
    notes.push_back(fmt::format("{}: {} line{} of its journal cannot be read; what {} said is done again",
                                work->path().string(), before.damaged, before.damaged == 1 ? "" : "s",
                                before.damaged == 1 ? "it" : "they"));
  }
  if (!before.ours) {
    if (!work->journal().empty()) {
      notes.push_back(fmt::format("{}: is of other arguments, of another source or damaged; all is done anew",
                                  work->path().string()));
    }
    if (auto restarted = work->restart(work_line(digest)); !restarted) return restarted.error();
  }
  if (auto recorded = work->record(boot_line(boot)); !recorded) return recorded.error();
  return std::move(before.done);
}

uint64 CheckpointQuantizer::Impl::steps_of(std::size_t tensor) const {
  const CheckpointTensor& t = tensors[tensor];
  // Copying costs about as much for a byte or two as quantising for an element.
  if (t.source == nullptr) return t.tensor.size() / 2;
  return elements_of(t.tensor) * (needs_tensor_scale(options.quantize) ? 2 : 1);
}

Expected<void> CheckpointQuantizer::Impl::check_unchanged(const Shard& shard, const Safetensors& source) {
  if (source.file().stamp() == shard.stamp) return {};
  if (auto removed = work->remove(); !removed) return removed;
  work.reset();
  return Error{fmt::format("{}: was changed while it was read; what was made of it is removed, so run this again",
                           shard.file.path.string())};
}

Expected<void> CheckpointQuantizer::Impl::quantize_tensor(std::size_t shard, std::size_t tensor,
                                                          const Safetensors& source, Finished& finished, Steps& steps,
                                                          std::size_t window) {
  Shard& s = shards[shard];
  const std::size_t i = tensor - s.first;
  const CheckpointTensor& planned = tensors[tensor];
  QuantizedTensor& description = *s.mixed[i].packed;
  const Format* stored = float_of(planned.tensor.dtype);
  const Elements elements{
      .read = [&](std::uint64_t offset, std::span<std::byte> to) { return source.read(planned.tensor, offset, to); },
      .shape = planned.tensor.shape,
      .stored = stored,
      .rounded = planned.source != stored ? planned.source : nullptr};
  const uint64 most = window_elements(window, *description.format, elements);
  if (needs_tensor_scale(options.quantize)) {
    const auto scale = find_tensor_scale(elements, most, steps, options.quantize.execution.threads);
    if (!scale) return scale.error();
    description.tensor_scale = *scale;
  }
  const MixedPlan::Place& place = s.plan.places[i];
  Fingerprints fingerprints;
  const auto at = [&](std::uint64_t begin, Fingerprint& fingerprint) {
    return [this, shard, begin, &fingerprint](std::uint64_t offset, std::span<const std::byte> bytes) {
      fingerprint.add(bytes);
      return work->write_at(shard, begin + offset, bytes);
    };
  };
  const auto measured =
      quantize_windows(elements, description, options.quantize, most, steps,
                       {.codes = at(place.first, fingerprints.first), .scales = at(place.second, fingerprints.second)});
  if (!measured) {
    return Error{fmt::format("tensor {}: {}", quote_text(planned.tensor.name), measured.error().message)};
  }
  finished.result.error = measured->error;
  finished.result.rounding_flags = measured->rounding_flags;
  finished.result.tensor_scale = description.tensor_scale;
  finished.fingerprint = fingerprints.text();
  return {};
}

Expected<void> CheckpointQuantizer::Impl::copy_tensor(std::size_t shard, std::size_t tensor, const Safetensors& source,
                                                      Finished& finished, Steps& steps) {
  const Shard& s = shards[shard];
  const SafetensorsTensor& t = tensors[tensor].tensor;
  const std::uint64_t begin = s.plan.places[tensor - s.first].first;
  Fingerprints fingerprints;
  std::vector<std::byte> piece(std::min(kCopyAtOnce, t.size()));
  for (std::uint64_t offset = 0; offset < t.size(); offset += piece.size()) {
    throw_if_cancelled(options.quantize.execution);
    const std::span some = std::span(piece).first(std::min<std::uint64_t>(piece.size(), t.size() - offset));
    if (auto read = source.read(t, offset, some); !read) return read;
    fingerprints.first.add(some);
    if (auto written = work->write_at(shard, begin + offset, some); !written) return written;
    steps.finished(some.size() / 2);
  }
  finished.fingerprint = fingerprints.text();
  return {};
}

/// Forgets what an earlier run has done, as far as its bytes are no longer there.
Expected<void> CheckpointQuantizer::Impl::check_finished(std::size_t shard, std::map<std::size_t, Finished>& done) {
  const Shard& s = shards[shard];
  std::vector<std::byte> piece;
  std::vector<std::size_t> different;
  const auto add = [&](std::uint64_t begin, std::uint64_t size, Fingerprint& fingerprint) -> Expected<void> {
    for (std::uint64_t offset = 0; offset < size; offset += piece.size()) {
      throw_if_cancelled(options.quantize.execution);
      piece.resize(std::min(kCopyAtOnce, size - offset));
      if (auto read = work->read_at(shard, begin + offset, piece); !read) return read;
      fingerprint.add(piece);
    }
    return {};
  };
  for (std::size_t i = 0; i < s.count; ++i) {
    const auto found = done.find(s.first + i);
    if (found == done.end()) continue;
    const MixedPlan::Place& place = s.plan.places[i];
    Fingerprints fingerprints;
    if (auto read = add(place.first, place.first_bytes, fingerprints.first); !read) return read;
    if (auto read = add(place.second, place.second_bytes, fingerprints.second); !read) return read;
    if (fingerprints.text() == found->second.fingerprint) continue;
    different.push_back(s.first + i);
    done.erase(found);
  }
  if (different.empty()) return {};
  notes.push_back(
      fmt::format("{}: {} of the finished tensors {} not the bytes that were written, the first is {}; done "
                  "again",
                  work->file(shard).string(), different.size(), different.size() == 1 ? "has" : "have",
                  quote_text(tensors[different.front()].tensor.name)));
  return {};
}

Expected<void> CheckpointQuantizer::Impl::run_shard(std::size_t number, std::map<std::size_t, Finished>& done,
                                                    Steps& steps, std::size_t window) {
  Shard& shard = shards[number];
  const auto source = read_safetensors(shard.file.path);
  if (!source) return source.error();
  if (auto same = check_unchanged(shard, *source); !same) return same;
  if (work->has_file(number, shard.plan.file_size)) {
    if (auto checked = check_finished(number, done); !checked) return checked;
  } else {
    const auto lost = std::erase_if(
        done, [&](const auto& entry) { return entry.first >= shard.first && entry.first - shard.first < shard.count; });
    // One that is gone may be in its place already: a kill between that and the end of the work is no fault.
    std::error_code ignored;
    if (lost != 0 && fs::exists(work->file(number), ignored)) {
      notes.push_back(
          fmt::format("{}: has not the size that it should have; what was finished in it, {} tensor{}, is "
                      "done again",
                      work->file(number).string(), lost, lost == 1 ? "" : "s"));
    }
    if (auto recorded = work->record(file_line(number)); !recorded) return recorded;
    if (auto made = work->make_file(number, shard.plan.file_size); !made) return made;
  }
  // In the order of the source's bytes, which need not be that of its header.
  std::vector<std::size_t> order(shard.count);
  for (std::size_t i = 0; i < shard.count; ++i) order[i] = shard.first + i;
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return tensors[i].tensor.begin; });
  auto last_sync = std::chrono::steady_clock::now();
  for (const std::size_t i : order) {
    if (const auto found = done.find(i); found != done.end()) {
      if (shard.mixed[i - shard.first].packed) {
        shard.mixed[i - shard.first].packed->tensor_scale = found->second.result.tensor_scale;
      }
      steps.finished(steps_of(i));
      continue;
    }
    Finished finished;
    auto made = tensors[i].source != nullptr ? quantize_tensor(number, i, *source, finished, steps, window)
                                             : copy_tensor(number, i, *source, finished, steps);
    if (!made) return made;
    if (auto recorded = work->record(done_line(i, finished)); !recorded) return recorded;
    done.emplace(i, std::move(finished));
    if (std::chrono::steady_clock::now() - last_sync < kSyncInterval) continue;
    if (auto synced = work->sync(number, synced_line()); !synced) return synced;
    last_sync = std::chrono::steady_clock::now();
  }
  // Once more: now with the tensor scales.
  const auto plan = plan_mixed(shard.file.path.string(), &*source, fmt::format("bitcube {}", version), shard.mixed);
  if (!plan) return plan.error();
  if (plan->file_size != shard.plan.file_size) return Error{"the size of the header depends on a tensor scale"};
  if (auto written = work->write_at(number, 0, std::as_bytes(std::span(plan->header))); !written) return written;
  if (auto same = check_unchanged(shard, *source); !same) return same;
  return work->sync(number, synced_line());
}

CheckpointQuantizer::CheckpointQuantizer(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
CheckpointQuantizer::CheckpointQuantizer(CheckpointQuantizer&&) noexcept = default;
CheckpointQuantizer& CheckpointQuantizer::operator=(CheckpointQuantizer&&) noexcept = default;
CheckpointQuantizer::~CheckpointQuantizer() = default;

Expected<CheckpointQuantizer> CheckpointQuantizer::plan(const fs::path& path, const CheckpointOptions& options) {
  return guarded(path.string(), [&]() -> Expected<CheckpointQuantizer> {
    auto impl = std::make_unique<Impl>();
    impl->path = path;
    impl->options = options;
    if (auto planned = impl->plan(); !planned) return planned.error();
    return CheckpointQuantizer(std::move(impl));
  });
}

const std::vector<CheckpointTensor>& CheckpointQuantizer::tensors() const noexcept {
  return impl_->tensors;
}
const std::vector<std::string>& CheckpointQuantizer::warnings() const noexcept {
  return impl_->warnings;
}
const std::vector<std::string>& CheckpointQuantizer::notes() const noexcept {
  return impl_->notes;
}
bool CheckpointQuantizer::is_sharded() const noexcept {
  return impl_->index.has_value();
}

Expected<std::vector<CheckpointResult>> CheckpointQuantizer::run(const fs::path& output, std::size_t window) {
  Impl& impl = *impl_;
  return guarded("quantise", [&]() -> Expected<std::vector<CheckpointResult>> {
    if (auto found = impl.find_targets(output); !found) return impl.give_up(found.error(), false);
    if (auto opened = impl.open_work(); !opened) return impl.give_up(opened.error(), false);
    const bool begun_before = !impl.work->journal().empty();
    std::optional<std::map<std::size_t, Finished>> done;
    const auto ran = guarded("quantise", [&]() -> Expected<void> {
      auto before = impl.take_over();
      if (!before) return before.error();
      done = std::move(*before);
      uint64 total = 0;
      for (std::size_t i = 0; i < impl.tensors.size(); ++i) total += impl.steps_of(i);
      Steps steps(impl.options.quantize.execution, total);
      for (std::size_t i = 0; i < impl.shards.size(); ++i) {
        if (auto shard = impl.run_shard(i, *done, steps, window); !shard) return shard;
      }
      return {};
    });
    if (!ran) return impl.give_up(ran.error(), done ? !done->empty() : begun_before);
    std::vector<CheckpointResult> results;
    for (auto& [tensor, finished] : *done) results.push_back(finished.result);  // all, and in order
    return results;
  });
}

Expected<void> CheckpointQuantizer::commit() {
  Impl& impl = *impl_;
  const auto done = guarded("quantise", [&]() -> Expected<void> {
    if (impl.index) {
      ShardIndex next{.metadata = impl.index->metadata, .weights = {}};
      std::uint64_t total = 0;
      for (const CheckpointTensor& t : impl.tensors) {
        total += t.bytes;
        if (t.source == nullptr) {
          next.weights.emplace_back(t.tensor.name, t.file);
        } else {
          next.weights.emplace_back(t.tensor.name + ".codes", t.file);
          next.weights.emplace_back(t.tensor.name + ".scales", t.file);
        }
      }
      const auto text = shard_index_text(next, total);
      if (!text) return text.error();
      const std::size_t number = impl.shards.size();
      if (auto made = impl.work->make_file(number, text->size()); !made) return made;
      if (auto written = impl.work->write_at(number, 0, std::as_bytes(std::span(*text))); !written) return written;
    }
    for (std::size_t i = 0; i < impl.targets.size(); ++i) {
      if (auto moved = impl.work->move_file(i, impl.targets[i]); !moved) return moved;
    }
    auto removed = impl.work->remove();
    impl.work.reset();
    return removed;
  });
  return done ? done : impl.give_up(done.error(), impl.work.has_value());
}

}  // namespace bitcube::stream
