#include "bitcube/verify/conform.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bitcube/io/directory.hpp"
#include "bitcube/io/file.hpp"
#include "bitcube/io/sha256.hpp"
#include "bitcube/verify/vectors.hpp"
#include "forms.hpp"
#include "guarded.hpp"
#include "team_work.hpp"

namespace bitcube::verify {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunk = std::size_t{64} << 10;  // bytes that one thread takes at a time
constexpr std::size_t kFilesAtOnce = 256;              // files that are in memory at the same time, at most,
constexpr uint64 kBytesAtOnce = uint64{64} << 20;      // but no more after those that have this many bytes
constexpr std::size_t kWave = 4096;                    // chunks whose results are held at the same time
constexpr std::string_view kSidecarEnd = ".meta.json";

std::string_view as_text(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A file that is being checked.
struct Source {
  Buffer<std::byte> bytes;
  std::string_view rows;    // after the header
  bool recognised = false;  // what is wrong, if anything is, is its sidecar
  FileReport report;
};

/// A piece of a file that ends with a line.
struct Chunk {
  std::size_t source = 0;
  std::string_view text;
};

struct ChunkResult {
  uint64 rows = 0;
  uint64 matches = 0;
  std::array<uint64, known_differences.size()> known{};
  uint64 mismatches = 0;
  std::vector<Mismatch> first;  // rows count from the start of the chunk
  std::string fault;            // of the row after `rows`
};

// For other ranks.
using Json = nlohmann::json;

Json pairs_json(std::span<const NamedText> list) {
  Json json = Json::array();
  for (const NamedText& pair : list) json.push_back({pair.name, pair.text});
  return json;
}
Json to_json(const ChunkResult& r) {
  Json first = Json::array();
  for (const Mismatch& m : r.first) {
    Json differences = Json::array();
    for (const Difference& d : m.differences) differences.push_back({d.column, d.expected, d.got});
    first.push_back({m.row, pairs_json(m.inputs), std::move(differences), m.rule});
  }
  return {r.rows, r.matches, r.known, r.mismatches, std::move(first), r.fault};
}
ChunkResult from_json(const Json& json) {
  ChunkResult out;
  out.rows = json.at(0);
  out.matches = json.at(1);
  out.known = json.at(2);
  out.mismatches = json.at(3);
  for (const Json& m : json.at(4)) {
    Mismatch mismatch;
    mismatch.row = m.at(0);
    mismatch.rule = m.at(3);
    for (const Json& pair : m.at(1)) mismatch.inputs.push_back({pair.at(0), pair.at(1)});
    for (const Json& d : m.at(2)) mismatch.differences.push_back({d.at(0), d.at(1), d.at(2)});
    out.first.push_back(std::move(mismatch));
  }
  out.fault = json.at(5);
  return out;
}

/// The elements of which this rank has computed those with its number, and every team.size()-th after that, are there
/// for all ranks afterwards.
template <typename Element, typename ToJson, typename Use>
Expected<void> exchange(Team& team, std::span<Element> elements, const ToJson& to_json_of, const Use& use) {
  if (team.size() == 1) return {};
  Json mine = Json::array();
  for (std::size_t i = team.rank(); i < elements.size(); i += team.size()) mine.push_back(to_json_of(elements[i]));
  const auto all = team.gather_all(pack(mine));
  if (!all) return all.error();
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    if (rank == team.rank()) continue;
    const Json others = Json::from_cbor((*all)[rank]);
    std::size_t i = rank;
    for (const Json& json : others) {
      use(json, elements[i]);
      i += team.size();
    }
  }
  return {};
}

std::string_view next_line(std::string_view& text) noexcept {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

ChunkResult check_chunk(const Chunk& chunk, const FileReport& report, std::size_t first) {
  ChunkResult out;
  const CheckRow check = check_of(*report.form);
  Record record(*report.form, report.profile != nullptr ? *report.profile : asl_profile());
  std::string_view text = chunk.text;
  while (!text.empty()) {
    if (record.start(next_line(text))) check(record);
    if (record.malformed()) {
      out.fault = record.fault_text();
      return out;
    }
    ++out.rows;
    if (record.differs()) {
      ++out.mismatches;
      if (out.first.size() < first) out.first.push_back(record.mismatch(out.rows));
    } else if (const auto rule = record.known_rule()) {
      ++out.known[static_cast<std::size_t>(*rule)];
    } else {
      ++out.matches;
    }
  }
  return out;
}

/// Adds the result of the next chunk of a file.
void merge(FileReport& report, ChunkResult& part, std::size_t first) {
  if (report.error) return;
  for (Mismatch& mismatch : part.first) {
    if (report.first.size() == first) break;
    mismatch.row += report.rows;
    report.first.push_back(std::move(mismatch));
  }
  report.rows += part.rows;
  report.matches += part.matches;
  report.mismatches += part.mismatches;
  for (std::size_t i = 0; i < part.known.size(); ++i) report.known[i] += part.known[i];
  // The header is line 1.
  if (!part.fault.empty())
    report.error = Error{fmt::format("{}: line {}: {}", report.path, report.rows + 2, part.fault)};
}

/// The header line, or the value of "format" of a JSON file, as messages show it.
Error unknown_form(std::string_view path, std::string_view found) {
  constexpr std::size_t shown = 120;
  std::string message =
      fmt::format("{}: no known form of vectors: it starts with '{}{}'. Known forms, by their first line:", path,
                  found.substr(0, shown), found.size() > shown ? "..." : "");
  for (const VectorForm& form : vector_forms()) {
    message += form.is_json() ? fmt::format("\n  {}: JSON with \"format\": \"{}\"", form.name, form.columns)
                              : fmt::format("\n  {}: {}", form.name, form.columns);
  }
  return Error{std::move(message)};
}

const VectorForm* form_of_header(std::string_view header) noexcept {
  for (const VectorForm& form : vector_forms()) {
    if (!form.is_json() && (header == form.columns || (!form.alias.empty() && header == form.alias))) return &form;
  }
  return nullptr;
}

/// Recognises the form; a JSON file is small and checked at once.
Expected<void> recognise(Source& source, std::size_t first) {
  std::string_view text = as_text(source.bytes);
  FileReport& report = source.report;
  if (text.empty()) return Error{fmt::format("{}: is empty", report.path)};
  if (report.path.ends_with(kSidecarEnd)) {
    return Error{fmt::format("{}: is the sidecar of {}; that file is what to check, beside its sidecar", report.path,
                             report.path.substr(0, report.path.size() - kSidecarEnd.size()))};
  }
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string_view::npos && text[start] == '{') {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object()) return Error{fmt::format("{}: is not JSON, or is damaged", report.path)};
    const auto format = json.find("format");
    const std::string name = format != json.end() && format->is_string() ? format->get<std::string>() : std::string();
    for (const VectorForm& form : vector_forms()) {
      if (form.is_json() && form.columns == name) report.form = &form;
    }
    if (report.form == nullptr) return unknown_form(report.path, name.empty() ? "{" : name);
    check_hif4_worked(text, first, report);
    return {};
  }
  const std::string_view header = next_line(text);
  report.form = form_of_header(header);
  if (report.form == nullptr) return unknown_form(report.path, header);
  if (text.empty()) return Error{fmt::format("{}: has a header, but no rows", report.path)};
  source.rows = text;
  return {};
}

/// What the sidecar says is true, and its profile is that of the file.
Expected<void> check_sidecar(Source& source) {
  FileReport& report = source.report;
  const std::string path = sidecar_path(report.path);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  const auto file = InputFile::open(path);
  if (!file) return file.error();
  const auto bytes = file->load();
  if (!bytes) return bytes.error();
  const auto metadata = parse_vector_metadata(as_text(*bytes));
  if (!metadata) return Error{fmt::format("{}: {}", path, metadata.error().message)};
  const auto digest = sha256(source.bytes);
  if (!digest) return digest.error();
  if (*digest != metadata->sha256) {
    return Error{
        fmt::format("{}: was changed after it was written: its SHA-256 is {}, but {} says {}. Write it again (bitcube "
                    "vectors --what {} --seed {} --count {}{}), or remove the sidecar if the change is meant",
                    report.path, *digest, path, metadata->sha256, metadata->what, metadata->seed, metadata->count,
                    metadata->profile == "*" || metadata->profile == "-" ? "" : " --profile " + metadata->profile)};
  }
  if (report.form->name != metadata->form) {
    return Error{fmt::format("{}: says form {}, but the file has form {}; write both again", path, metadata->form,
                             report.form->name)};
  }
  report.has_sidecar = true;
  if (!report.form->takes_profile || report.profile != nullptr) return {};
  report.profile = find_conversion_profile(metadata->profile);
  if (report.profile == nullptr) {
    return Error{fmt::format("{}: profile: '{}' is no conversion profile of this program", path, metadata->profile)};
  }
  return {};
}

/// `checks_sidecar`: one rank does it for all, for it reads the whole file.
void open_source(Source& source, const ConformOptions& options, bool checks_sidecar) {
  FileReport& report = source.report;
  auto file = InputFile::open(report.path);
  if (!file) {
    report.error = file.error();
    return;
  }
  auto bytes = file->load();
  if (!bytes) {
    report.error = bytes.error();
    return;
  }
  source.bytes = std::move(*bytes);
  if (auto known = recognise(source, options.first); !known) report.error = known.error();
  if (report.error) return;
  if (report.form->takes_profile) report.profile = options.profile;
  source.recognised = true;
  if (!checks_sidecar) return;
  if (auto right = check_sidecar(source); !right) report.error = right.error();
}

/// What the ranks have found of sidecars. A file that one of them cannot read has that error for all.
Expected<void> exchange_sidecars(Team& team, std::span<Source> sources) {
  const auto found = [](const Source& source) {
    const FileReport& r = source.report;
    return Json{r.has_sidecar, r.profile != nullptr ? std::string(r.profile->name) : std::string(),
                r.error ? r.error->message : std::string()};
  };
  const auto use = [](const Json& json, Source& source) {
    FileReport& r = source.report;
    r.has_sidecar = json.at(0);
    r.profile = find_conversion_profile(json.at(1).get_ref<const std::string&>());
    if (const std::string message = json.at(2); !message.empty() && !r.error) r.error = Error{message};
  };
  if (auto done = exchange(team, sources, found, use); !done) return done;
  for (Source& source : sources) {
    FileReport& r = source.report;
    if (source.recognised && r.form->takes_profile && r.profile == nullptr) r.profile = &asl_profile();
  }
  return {};
}

/// Cuts the rows of a file after the first line that ends a chunk of kChunk bytes.
void cut(std::size_t index, std::string_view rows, std::vector<Chunk>& chunks) {
  while (!rows.empty()) {
    std::size_t end = rows.size();
    if (rows.size() > kChunk) {
      const std::size_t newline = rows.find('\n', kChunk);
      if (newline != std::string_view::npos) end = newline + 1;
    }
    chunks.push_back({index, rows.substr(0, end)});
    rows.remove_prefix(end);
  }
}

/// Counts bytes for whoever shows them.
class ByteProgress {
 public:
  ByteProgress(const Progress& progress, uint64 total) : progress_(progress), total_(total) {}
  void add(uint64 bytes) {
    const uint64 done = done_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (progress_) progress_(std::min(done, total_), total_);
  }

 private:
  const Progress& progress_;
  uint64 total_;
  std::atomic<uint64> done_{0};
};

Expected<void> check_batch(std::span<Source> sources, const ConformOptions& options, ByteProgress& progress) {
  const Execution quiet = options.execution.quiet();
  Team& team = team_of(options.execution);
  parallel_for(sources.size(), quiet,
               [&](std::size_t i) { open_source(sources[i], options, i % team.size() == team.rank()); });
  if (auto exchanged = exchange_sidecars(team, sources); !exchanged) return exchanged;
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i].report.error) cut(i, sources[i].rows, chunks);
  }
  std::string plan;
  for (const Chunk& chunk : chunks) plan += fmt::format("{} {}\n", chunk.source, chunk.text.size());
  if (auto same = agree(team, "conform", plan); !same) return same;
  const std::size_t wave = kWave * team.size();
  for (std::size_t begin = 0; begin < chunks.size(); begin += wave) {
    const std::size_t count = std::min(wave, chunks.size() - begin);
    std::vector<ChunkResult> results(count);
    for_own_pieces(team, count, quiet, [&](std::size_t i) {
      const Chunk& chunk = chunks[begin + i];
      results[i] = check_chunk(chunk, sources[chunk.source].report, options.first);
      progress.add(chunk.text.size() * team.size());
    });
    auto exchanged = exchange(team, std::span(results), to_json,
                              [](const Json& json, ChunkResult& result) { result = from_json(json); });
    if (!exchanged) return exchanged;
    for (std::size_t i = 0; i < count; ++i) {
      merge(sources[chunks[begin + i].source].report, results[i], options.first);
    }
  }
  return {};
}

/// The vector files of a directory by name, and sidecars without their file, which are a loss that must show.
Expected<std::vector<std::string>> files_of(const std::string& directory) {
  const auto all = directory_names(directory);
  if (!all) return all.error();
  std::vector<std::string> names;
  for (const std::string& name : *all) {
    const std::string path = (fs::path(directory) / name).string();
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored) || (!name.ends_with(".csv") && !name.ends_with(".json"))) continue;
    if (name.ends_with(kSidecarEnd) && fs::exists(path.substr(0, path.size() - kSidecarEnd.size()), ignored)) continue;
    names.push_back(path);
  }
  if (names.empty()) return Error{fmt::format("{}: has no vector files (.csv, .json)", directory)};
  std::sort(names.begin(), names.end());
  return names;
}

Expected<std::vector<std::string>> expand(std::span<const std::string> paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code code;
    const fs::file_status status = fs::status(path, code);
    if (!fs::exists(status)) {
      return Error{fmt::format("{}: {}", path, code ? code.message() : "no such file or directory")};
    }
    if (!fs::is_directory(status)) {
      files.push_back(path);
      continue;
    }
    auto found = files_of(path);
    if (!found) return found.error();
    files.insert(files.end(), found->begin(), found->end());
  }
  if (files.empty()) return Error{"nothing to check: give vector files or directories of them"};
  return files;
}

Expected<ConformReport> check_all(std::span<const std::string> paths, const ConformOptions& options) {
  const auto files = expand(paths);
  if (!files) return files.error();
  uint64 total = 0;
  std::vector<uint64> sizes;  // 0 where it is not known
  for (const std::string& file : *files) {
    std::error_code ignored;
    const std::uintmax_t size = fs::file_size(file, ignored);
    sizes.push_back(size != std::numeric_limits<std::uintmax_t>::max() ? size : 0);
    total += sizes.back();
  }
  std::string plan;
  for (std::size_t i = 0; i < files->size(); ++i) plan += fmt::format("{} {}\n", sizes[i], (*files)[i]);
  if (auto same = agree(team_of(options.execution), "conform", plan); !same) return same.error();
  ByteProgress progress(options.execution.progress, total);
  ConformReport report;
  for (std::size_t next = 0; next < files->size();) {
    std::vector<Source> sources;
    for (uint64 bytes = 0; next < files->size() && sources.size() < kFilesAtOnce && bytes < kBytesAtOnce; ++next) {
      bytes += sizes[next];
      sources.emplace_back().report.path = (*files)[next];
    }
    if (auto checked = check_batch(sources, options, progress); !checked) return checked.error();
    for (Source& source : sources) report.files.push_back(std::move(source.report));
  }
  return report;
}

}  // namespace

uint64 FileReport::known_total() const noexcept {
  return std::accumulate(known.begin(), known.end(), uint64{0});
}

uint64 ConformReport::rows() const noexcept {
  uint64 sum = 0;
  for (const FileReport& file : files) sum += file.rows;
  return sum;
}

uint64 ConformReport::mismatches() const noexcept {
  uint64 sum = 0;
  for (const FileReport& file : files) sum += file.mismatches;
  return sum;
}

std::size_t ConformReport::errors() const noexcept {
  return static_cast<std::size_t>(
      std::count_if(files.begin(), files.end(), [](const FileReport& file) { return file.error.has_value(); }));
}

Expected<ConformReport> conform(std::span<const std::string> paths, const ConformOptions& options) {
  return guarded("conform", [&] { return check_all(paths, options); });
}

}  // namespace bitcube::verify
