#include "bitcube/stream/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
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
#include "team_work.hpp"

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

/// Work of one rank: a tensor, or a panel of one that is large against what each rank has to do.
struct Item {
  std::size_t shard = 0;
  std::size_t tensor = 0;
  uint64 steps = 0;
  std::optional<std::size_t> number{};  // of the panel among those of the tensor
  Panel panel{};                        // of a tensor that is copied, lanes are bytes
};

/// What came of a panel. Its codes and scales are in the file; the tensor is finished when all ranks have met.
struct PanelResult {
  std::size_t tensor = 0;
  std::size_t number = 0;
  Flags flags = Flags::none;
  ErrorMeter meter{true};
};

/// For other ranks: the tensors and panels that this one has done.
std::string report_text(const std::map<std::size_t, Finished>& done, const std::vector<PanelResult>& panels) {
  nlohmann::json json{{"done", nlohmann::json::array()}, {"panels", nlohmann::json::array()}};
  for (const auto& [tensor, finished] : done) json["done"].push_back(done_line(tensor, finished));
  for (const PanelResult& p : panels) {
    json["panels"].push_back({p.tensor, p.number, static_cast<unsigned>(p.flags), p.meter.state()});
  }
  return pack(json);
}

Expected<void> read_report(std::string_view text, std::map<std::size_t, Finished>& done,
                           std::vector<PanelResult>& panels) {
  const auto json = nlohmann::json::from_cbor(text);
  for (const auto& line : json.at("done")) {
    Finished finished;
    const auto tensor = read_done(line.get_ref<const std::string&>(), finished);
    if (!tensor) return Error{"the report of a rank is damaged"};
    finished.result.resumed = false;
    done.emplace(*tensor, std::move(finished));
  }
  for (const auto& p : json.at("panels")) {
    auto meter = ErrorMeter::from_state(p.at(3).get_ref<const std::string&>());
    if (!meter) return meter.error();
    panels.push_back({p.at(0), p.at(1), static_cast<Flags>(p.at(2).get<unsigned>()), std::move(*meter)});
  }
  return {};
}

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
  Team& team() const noexcept { return team_of(options.quantize.execution); }
  Expected<void> find_targets(const fs::path& output);
  Expected<void> open_work();
  Error give_up(const Error& error, bool keep);
  Expected<std::map<std::size_t, Finished>> take_over();
  Expected<void> make_files(std::map<std::size_t, Finished>& done);
  Expected<void> meet(const fs::path& output, std::map<std::size_t, Finished>& done);
  Expected<void> check_finished(std::map<std::size_t, Finished>& done);
  Expected<std::vector<Item>> split(const std::map<std::size_t, Finished>& done) const;
  Expected<void> find_scales(const std::vector<Item>& items, Steps& steps, std::size_t window);
  Expected<void> run(std::map<std::size_t, Finished>& done, std::size_t window);
  Expected<void> run_items(const std::vector<Item>& items, std::map<std::size_t, Finished>& done,
                           std::vector<PanelResult>& panels, Steps& steps, std::size_t window);
  Expected<void> write_headers();
  Elements elements_of(std::size_t tensor, const Safetensors& source) const;
  Expected<void> quantize_tensor(const Item& item, const Safetensors& source, Finished& finished, Steps& steps,
                                 std::size_t window);
  Expected<void> quantize_part(const Item& item, const Safetensors& source, PanelResult& result, Steps& steps,
                               std::size_t window);
  Expected<void> copy_tensor(const Item& item, const Safetensors& source, Finished& finished, Steps& steps);
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
  auto files = visit_checkpoint(path, [&](const CheckpointFile& file, const Safetensors& source) {
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
  auto opened = WorkDirectory::open(targets.back().string() + ".partial", work_line(""));
  if (!opened) return opened.error();
  work.emplace(std::move(*opened));
  return {};
}

/// The end of a run that failed: what is finished is kept, or nothing is left behind.
Error CheckpointQuantizer::Impl::give_up(const Error& error, bool keep) {
  if (!team().leads()) {
    work.reset();
    return error;
  }
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
  std::map<std::size_t, Finished> of_members;
  if (before.ours) {
    for (const std::string& text : work->member_journals()) {
      Journal member = read_journal(text, digest, boot, file_of);
      before.damaged += member.damaged;
      of_members.merge(member.done);
    }
  }
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
  // One journal again, before a file is made anew, of which the members' would not know.
  for (const auto& [tensor, finished] : of_members) {
    if (auto recorded = work->record(done_line(tensor, finished)); !recorded) return recorded.error();
  }
  if (auto forgotten = work->forget_members(); !forgotten) return forgotten.error();
  before.done.merge(of_members);
  return std::move(before.done);
}

/// Makes the files that are not there.
Expected<void> CheckpointQuantizer::Impl::make_files(std::map<std::size_t, Finished>& done) {
  for (std::size_t number = 0; number < shards.size(); ++number) {
    const Shard& shard = shards[number];
    if (work->has_file(number, shard.plan.file_size)) continue;
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
  return {};
}

/// All ranks learn from rank 0 what is done, and take part in its work.
Expected<void> CheckpointQuantizer::Impl::meet(const fs::path& output, std::map<std::size_t, Finished>& done) {
  if (auto same = agree(team(), path.string(), digest); !same) return same;
  const auto reports = team().gather_all(team().leads() ? report_text(done, {}) : std::string());
  if (!reports) return reports.error();
  if (team().leads()) return {};
  std::vector<PanelResult> none;
  if (auto read = read_report(reports->front(), done, none); !read) return read;
  for (auto& [tensor, finished] : done) finished.result.resumed = true;
  if (auto found = find_targets(output); !found) return found;
  auto joined = WorkDirectory::join(targets.back().string() + ".partial", team().rank());
  if (!joined) return joined.error();
  work.emplace(std::move(*joined));
  if (auto recorded = work->record(work_line(digest)); !recorded) return recorded;
  return work->record(boot_line(current_boot()));
}

uint64 CheckpointQuantizer::Impl::steps_of(std::size_t tensor) const {
  const CheckpointTensor& t = tensors[tensor];
  // Copying costs about as much for a byte or two as quantising for an element.
  if (t.source == nullptr) return t.tensor.size() / 2;
  return Elements{.shape = t.tensor.shape}.count() * (needs_tensor_scale(options.quantize) ? 2 : 1);
}

Expected<void> CheckpointQuantizer::Impl::check_unchanged(const Shard& shard, const Safetensors& source) {
  if (source.file().stamp() == shard.stamp) return {};
  if (!team().leads()) return Error{fmt::format("{}: was changed while it was read", shard.file.path.string())};
  if (auto removed = work->remove(); !removed) return removed;
  work.reset();
  return Error{fmt::format("{}: was changed while it was read; what was made of it is removed, so run this again",
                           shard.file.path.string())};
}

Elements CheckpointQuantizer::Impl::elements_of(std::size_t tensor, const Safetensors& source) const {
  const CheckpointTensor& planned = tensors[tensor];
  const Format* stored = float_of(planned.tensor.dtype);
  return {
      .read = [&](std::uint64_t offset, std::span<std::byte> to) { return source.read(planned.tensor, offset, to); },
      .shape = planned.tensor.shape,
      .stored = stored,
      .rounded = planned.source != stored ? planned.source : nullptr};
}

Expected<void> CheckpointQuantizer::Impl::quantize_tensor(const Item& item, const Safetensors& source,
                                                          Finished& finished, Steps& steps, std::size_t window) {
  Shard& s = shards[item.shard];
  const std::size_t i = item.tensor - s.first;
  QuantizedTensor& description = *s.mixed[i].packed;
  const Elements elements = elements_of(item.tensor, source);
  const uint64 most = window_elements(window, *description.format, elements);
  if (needs_tensor_scale(options.quantize)) {
    const auto scale = find_tensor_scale(elements, most, steps, options.quantize.execution.threads);
    if (!scale) return scale.error();
    description.tensor_scale = *scale;
  }
  const MixedPlan::Place& place = s.plan.places[i];
  Fingerprints fingerprints;
  const auto at = [&](std::uint64_t begin, Fingerprint& fingerprint) {
    return [this, &item, begin, &fingerprint](std::uint64_t offset, std::span<const std::byte> bytes) {
      fingerprint.add(bytes);
      return work->write_at(item.shard, begin + offset, bytes);
    };
  };
  const auto measured =
      quantize_windows(elements, description, options.quantize, most, steps,
                       {.codes = at(place.first, fingerprints.first), .scales = at(place.second, fingerprints.second)});
  if (!measured) {
    return Error{fmt::format("tensor {}: {}", quote_text(tensors[item.tensor].tensor.name), measured.error().message)};
  }
  finished.result.error = measured->error;
  finished.result.rounding_flags = measured->rounding_flags;
  finished.result.tensor_scale = description.tensor_scale;
  finished.fingerprint = fingerprints.text();
  return {};
}

Expected<void> CheckpointQuantizer::Impl::quantize_part(const Item& item, const Safetensors& source,
                                                        PanelResult& result, Steps& steps, std::size_t window) {
  const Shard& s = shards[item.shard];
  const QuantizedTensor& description = *s.mixed[item.tensor - s.first].packed;
  const Elements elements = elements_of(item.tensor, source);
  const MixedPlan::Place& place = s.plan.places[item.tensor - s.first];
  const auto at = [&](std::uint64_t begin) {
    return [this, &item, begin](std::uint64_t offset, std::span<const std::byte> bytes) {
      return work->write_at(item.shard, begin + offset, bytes);
    };
  };
  const auto flags = quantize_panel(elements, description, options.quantize, item.panel,
                                    window_elements(window, *description.format, elements), steps,
                                    {.codes = at(place.first), .scales = at(place.second)}, result.meter);
  if (!flags) {
    return Error{fmt::format("tensor {}: {}", quote_text(tensors[item.tensor].tensor.name), flags.error().message)};
  }
  result.flags = *flags;
  return {};
}

Expected<void> CheckpointQuantizer::Impl::copy_tensor(const Item& item, const Safetensors& source, Finished& finished,
                                                      Steps& steps) {
  const Shard& s = shards[item.shard];
  const SafetensorsTensor& t = tensors[item.tensor].tensor;
  const std::uint64_t begin = s.plan.places[item.tensor - s.first].first;
  const std::uint64_t first = item.number ? item.panel.window.lane : 0;
  const std::uint64_t end = item.number ? first + item.panel.window.lanes : t.size();
  Fingerprints fingerprints;
  std::vector<std::byte> piece(std::min(kCopyAtOnce, end - first));
  for (std::uint64_t offset = first; offset < end; offset += piece.size()) {
    throw_if_cancelled(options.quantize.execution);
    if (team().stopped()) return Error{std::string(Team::kStopped)};
    const std::span some = std::span(piece).first(std::min<std::uint64_t>(piece.size(), end - offset));
    if (auto read = source.read(t, offset, some); !read) return read;
    fingerprints.first.add(some);
    if (auto written = work->write_at(item.shard, begin + offset, some); !written) return written;
    steps.finished(some.size() / 2);
  }
  finished.fingerprint = fingerprints.text();
  return {};
}

/// Forgets what an earlier run has done, as far as its bytes are no longer there. Each rank reads a part of them.
Expected<void> CheckpointQuantizer::Impl::check_finished(std::map<std::size_t, Finished>& done) {
  std::vector<std::byte> piece;
  nlohmann::json different = nlohmann::json::array();
  std::size_t count = 0;
  for (std::size_t number = 0; number < shards.size(); ++number) {
    const Shard& s = shards[number];
    const auto add = [&](std::uint64_t begin, std::uint64_t size, Fingerprint& fingerprint) -> Expected<void> {
      for (std::uint64_t offset = 0; offset < size; offset += piece.size()) {
        throw_if_cancelled(options.quantize.execution);
        if (team().stopped()) return Error{std::string(Team::kStopped)};
        piece.resize(std::min(kCopyAtOnce, size - offset));
        if (auto read = work->read_at(number, begin + offset, piece); !read) return read;
        fingerprint.add(piece);
      }
      return {};
    };
    for (std::size_t i = 0; i < s.count; ++i) {
      const auto found = done.find(s.first + i);
      if (found == done.end() || count++ % team().size() != team().rank()) continue;
      const MixedPlan::Place& place = s.plan.places[i];
      Fingerprints fingerprints;
      if (auto read = add(place.first, place.first_bytes, fingerprints.first); !read) return read;
      if (auto read = add(place.second, place.second_bytes, fingerprints.second); !read) return read;
      if (fingerprints.text() != found->second.fingerprint) different.push_back(s.first + i);
    }
  }
  const auto all = team().gather_all(different.dump());
  if (!all) return all.error();
  std::set<std::size_t> damaged;
  for (const std::string& text : *all) {
    for (const std::size_t tensor : nlohmann::json::parse(text)) damaged.insert(tensor);
  }
  for (std::size_t number = 0; number < shards.size(); ++number) {
    const auto first = damaged.lower_bound(shards[number].first);
    const auto end = damaged.lower_bound(shards[number].first + shards[number].count);
    if (first == end) continue;
    const auto lost = std::distance(first, end);
    notes.push_back(fmt::format(
        "{}: {} of the finished tensors {} not the bytes that were written, the first is {}; done "
        "again",
        work->file(number).string(), lost, lost == 1 ? "has" : "have", quote_text(tensors[*first].tensor.name)));
  }
  std::erase_if(done, [&](const auto& entry) { return damaged.contains(entry.first); });
  return {};
}

/// What this rank has to do of what is left: whole tensors in the order of the source's bytes, which need not be that
/// of its header, then panels. The largest piece goes first, to the rank that has least so far; and no piece is much
/// larger than a quarter of what each rank has to do, so that all are ready at about the same time.
Expected<std::vector<Item>> CheckpointQuantizer::Impl::split(const std::map<std::size_t, Finished>& done) const {
  std::vector<Item> whole;
  uint64 total = 0;
  for (std::size_t number = 0; number < shards.size(); ++number) {
    const Shard& shard = shards[number];
    std::vector<std::size_t> order(shard.count);
    for (std::size_t i = 0; i < shard.count; ++i) order[i] = shard.first + i;
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return tensors[i].tensor.begin; });
    for (const std::size_t i : order) {
      if (done.contains(i)) continue;
      whole.push_back({.shard = number, .tensor = i, .steps = steps_of(i)});
      total += whole.back().steps;
    }
  }
  if (team().size() == 1) return whole;
  const uint64 most = std::max<uint64>(1, total / (4 * team().size()));
  std::vector<Item> items;
  std::vector<Item> parts;
  for (const Item& item : whole) {
    const Shard& shard = shards[item.shard];
    const CheckpointTensor& t = tensors[item.tensor];
    std::vector<Panel> panels;
    if (item.steps > most && t.source != nullptr) {
      const QuantizedTensor& description = *shard.mixed[item.tensor - shard.first].packed;
      Lines lines;
      lines_of(description.shape, description.axis, lines);  // fits: it is valid
      panels = panels_of(lines, description.format->group, ErrorMeter::kBlock, most);
    } else if (item.steps > most) {
      panels = panels_of({.count = 1, .length = t.tensor.size()}, 1, kCopyAtOnce, 2 * most);
    }
    if (panels.size() < 2) {
      items.push_back(item);
      continue;
    }
    for (std::size_t i = 0; i < panels.size(); ++i) {
      parts.push_back(item);
      parts.back().number = i;
      parts.back().panel = panels[i];
      parts.back().steps = std::max<uint64>(1, item.steps / panels.size());
    }
  }
  std::ranges::move(parts, std::back_inserter(items));

  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return items[i].steps; });
  std::vector<uint64> load(team().size());
  std::vector<std::size_t> owner(items.size());
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(load);
    owner[i] = static_cast<std::size_t>(least - load.begin());
    *least += items[i].steps + 1;  // so that small ones are spread as well
  }
  std::vector<Item> mine;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (owner[i] == team().rank()) mine.push_back(items[i]);
  }
  return mine;
}

/// The scales of tensors that are worked on in panels: all ranks have to know them before.
Expected<void> CheckpointQuantizer::Impl::find_scales(const std::vector<Item>& items, Steps& steps,
                                                      std::size_t window) {
  if (!needs_tensor_scale(options.quantize) || team().size() == 1) return {};
  nlohmann::json mine = nlohmann::json::array();
  for (const Item& item : items) {
    if (item.number && tensors[item.tensor].source != nullptr) mine.push_back({item.tensor, item.shard});
  }
  const auto all = team().gather_all(mine.dump());
  if (!all) return all.error();
  std::map<std::size_t, std::size_t> parted;  // and the shard of each
  for (const std::string& text : *all) {
    for (const auto& pair : nlohmann::json::parse(text)) parted.emplace(pair.at(0), pair.at(1));
  }
  std::vector<std::pair<std::size_t, std::size_t>> order(parted.begin(), parted.end());
  std::vector<Safetensors> sources;
  for (const auto& [tensor, shard] : order) {
    auto source = read_safetensors(shards[shard].file.path);
    if (!source) return source.error();
    sources.push_back(std::move(*source));
  }
  const auto scales = find_team_scales(
      order.size(), [&](std::size_t i) { return elements_of(order[i].first, sources[i]); }, window, options.quantize,
      steps);
  if (!scales) return scales.error();
  for (std::size_t i = 0; i < order.size(); ++i) {
    Shard& shard = shards[order[i].second];
    shard.mixed[order[i].first - shard.first].packed->tensor_scale = (*scales)[i];
  }
  return {};
}

Expected<void> CheckpointQuantizer::Impl::run_items(const std::vector<Item>& items,
                                                    std::map<std::size_t, Finished>& done,
                                                    std::vector<PanelResult>& panels, Steps& steps,
                                                    std::size_t window) {
  auto last_sync = std::chrono::steady_clock::now();
  for (auto item = items.begin(); item != items.end();) {
    const std::size_t number = item->shard;
    const Shard& shard = shards[number];
    const auto source = read_safetensors(shard.file.path);
    if (!source) return source.error();
    if (auto same = check_unchanged(shard, *source); !same) return same;
    // What fails because the source is another by now is not to be gone on with.
    const auto why = [&](Expected<void> failed) {
      if (auto same = check_unchanged(shard, *source); !same) return same;
      return failed;
    };
    for (; item != items.end() && item->shard == number; ++item) {
      Finished finished;
      if (item->number) {
        PanelResult result{.tensor = item->tensor, .number = *item->number};
        auto made = tensors[item->tensor].source != nullptr ? quantize_part(*item, *source, result, steps, window)
                                                            : copy_tensor(*item, *source, finished, steps);
        if (!made) return why(made);
        panels.push_back(std::move(result));
        continue;
      }
      auto made = tensors[item->tensor].source != nullptr ? quantize_tensor(*item, *source, finished, steps, window)
                                                          : copy_tensor(*item, *source, finished, steps);
      if (!made) return why(made);
      if (auto recorded = work->record(done_line(item->tensor, finished)); !recorded) return recorded;
      done.emplace(item->tensor, std::move(finished));
      if (std::chrono::steady_clock::now() - last_sync < kSyncInterval) continue;
      if (auto synced = work->sync(number, synced_line()); !synced) return synced;
      last_sync = std::chrono::steady_clock::now();
    }
    if (auto same = check_unchanged(shard, *source); !same) return same;
    if (auto synced = work->sync(number, synced_line()); !synced) return synced;
  }
  return {};
}

/// With the tensor scales, which the plan did not know.
Expected<void> CheckpointQuantizer::Impl::write_headers() {
  for (std::size_t number = 0; number < shards.size(); ++number) {
    const Shard& shard = shards[number];
    std::string header = shard.plan.header;
    if (needs_tensor_scale(options.quantize)) {
      const auto source = read_safetensors(shard.file.path);
      if (!source) return source.error();
      if (auto same = check_unchanged(shard, *source); !same) return same;
      auto plan = plan_mixed(shard.file.path.string(), &*source, fmt::format("bitcube {}", version), shard.mixed);
      if (!plan) return plan.error();
      if (plan->file_size != shard.plan.file_size) return Error{"the size of the header depends on a tensor scale"};
      header = std::move(plan->header);
    }
    if (auto written = work->write_at(number, 0, std::as_bytes(std::span(header))); !written) return written;
  }
  return {};
}

/// From `done` to all tensors.
Expected<void> CheckpointQuantizer::Impl::run(std::map<std::size_t, Finished>& done, std::size_t window) {
  if (auto checked = check_finished(done); !checked) return checked;
  const auto items = split(done);
  if (!items) return items.error();
  uint64 total = 0;
  for (const Item& item : *items) total += item.steps;
  Steps steps(options.quantize.execution, total);
  if (auto found = find_scales(*items, steps, window); !found) return found;
  std::map<std::size_t, Finished> mine;
  std::vector<PanelResult> panels;
  const auto ran = guarded("quantise", [&] { return run_items(*items, mine, panels, steps, window); });
  const std::string report = ran ? report_text(mine, panels) : std::string();
  done.merge(mine);
  if (!ran) return ran;

  const auto reports = team().gather_all(report);
  if (!reports) return reports.error();
  panels.clear();
  for (const std::string& text : *reports) {
    if (auto read = read_report(text, done, panels); !read) return read;
  }
  std::ranges::sort(panels, {}, [](const PanelResult& p) { return std::pair(p.tensor, p.number); });
  for (auto p = panels.begin(); p != panels.end();) {
    const std::size_t tensor = p->tensor;
    Finished finished;
    ErrorMeter meter;
    for (; p != panels.end() && p->tensor == tensor; ++p) {
      finished.result.rounding_flags |= p->flags;
      meter.append(p->meter);
    }
    if (tensors[tensor].source != nullptr) {
      finished.result.error = meter.report();
      const auto& shard = *std::prev(std::ranges::upper_bound(shards, tensor, {}, &Shard::first));
      finished.result.tensor_scale = shard.mixed[tensor - shard.first].packed->tensor_scale;
    }
    done.emplace(tensor, std::move(finished));
  }
  for (Shard& shard : shards) {
    for (std::size_t i = 0; i < shard.count; ++i) {
      if (shard.mixed[i].packed) shard.mixed[i].packed->tensor_scale = done.at(shard.first + i).result.tensor_scale;
    }
  }
  return team().leads() ? write_headers() : Expected<void>();
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
    std::map<std::size_t, Finished> done;
    std::vector<CheckpointResult> results;
    bool keep = false;
    const auto ran = guarded("quantise", [&]() -> Expected<void> {
      if (impl.team().leads()) {
        if (auto found = impl.find_targets(output); !found) return found;
        if (auto opened = impl.open_work(); !opened) return opened;
        keep = !impl.work->journal().empty();
        auto before = impl.take_over();
        if (!before) return before.error();
        done = std::move(*before);
        if (auto made = impl.make_files(done); !made) return made;
        keep = impl.team().size() > 1;  // what others have done is in their journals
      }
      if (auto met = impl.meet(output, done); !met) return met;
      if (auto all = impl.run(done, window); !all) return all;
      for (auto& [tensor, finished] : done) results.push_back(finished.result);  // all, and in order
      return {};
    });
    if (!ran) return impl.give_up(ran.error(), keep || !done.empty());
    return results;
  });
}

Expected<void> CheckpointQuantizer::commit() {
  Impl& impl = *impl_;
  const auto done = guarded("quantise", [&]() -> Expected<void> {
    if (!impl.team().leads()) impl.work.reset();  // its files are closed before they are moved
    if (const auto met = impl.team().gather_all({}); !met) return met.error();
    if (!impl.team().leads()) return {};
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
