#include "bitcube/verify/vectors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bitcube/cube/accumulate.hpp"
#include "bitcube/io/sha256.hpp"
#include "bitcube/quantize/hif4.hpp"
#include "bitcube/version.hpp"
#include "forms.hpp"
#include "generate.hpp"
#include "guarded.hpp"

namespace bitcube::verify {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "bitcube vectors";
constexpr std::size_t kPiece = std::size_t{1} << 16;  // bytes handed on at once

const VectorForm& form_of(const VectorKind& kind) noexcept {
  return *find_vector_form(kind.form);
}

const KindEntry& entry_of(const VectorKind& kind) noexcept {
  const auto entries = kind_entries();
  return *std::find_if(entries.begin(), entries.end(), [&](const KindEntry& e) { return e.kind.name == kind.name; });
}

template <typename Table>
Expected<void> check_name(std::string_view name, const Table& table) {
  std::string names;
  for (const auto& row : table) {
    if (equal_ignoring_case(row.name, name)) return {};
    names.append(names.empty() ? "" : ", ").append(row.name);
  }
  return Error{fmt::format("profile: unknown name '{}' (choose from {})", name, names)};
}

/// The name of a table as it is spelled there. Precondition: it is in one of them.
std::string canonical_name(std::string_view name) {
  for (const auto& names :
       {names_or(name, conversion_profiles), names_or(name, hif4_profiles), names_or(name, accumulation_profiles)}) {
    if (!names.empty()) return names.front();
  }
  return std::string(name);
}

/// The name as the sidecar has it.
std::string recorded_profile(const VectorOptions& options) {
  const VectorForm& form = form_of(*options.kind);
  if (!options.profile.empty()) return canonical_name(options.profile);
  return form.has_profile ? "*" : form.takes_profile ? std::string(pto_profile.name) : "-";
}

/// Corner cases in an order that meets every coordinate early, where not all of them fit: steps of the golden section
/// of their number, made coprime to it.
class CornerOrder {
 public:
  CornerOrder(uint64 total, uint64 wanted, uint64 seed) : total_(total) {
    if (wanted >= total) return;
    step_ = std::max<uint64>(1, static_cast<uint64>(static_cast<uint128>(total) * 0x9E3779B97F4A7C15 >> 64));
    while (std::gcd(step_, total) != 1) ++step_;
    at_ = Random(seed).below(total);
  }
  uint64 next() noexcept {
    const uint64 index = at_;
    at_ = static_cast<uint64>((static_cast<uint128>(at_) + step_) % total_);
    return index;
  }

 private:
  uint64 total_;
  uint64 step_ = 1;
  uint64 at_ = 0;
};

Expected<uint64> generate(const VectorOptions& options, const TextSink& sink) {
  const VectorForm& form = form_of(*options.kind);
  const std::string name = recorded_profile(options);
  const ConversionProfile* profile = find_conversion_profile(name);
  const RowSource source = entry_of(*options.kind).make(name == "*" || name == "-" ? std::string_view() : name);
  const CheckRow fill = check_of(form);
  Record record(form, form.takes_profile ? *profile : pto_profile);

  // Half of the rows are random, if there are random ones.
  const uint64 corners = std::min(source.corners, source.random ? options.count - options.count / 2 : options.count);
  const uint64 rows = source.random ? options.count : corners;
  CornerOrder order(source.corners, corners, options.seed);
  Random random(options.seed);
  std::string text(form.columns);
  text.push_back('\n');
  Inputs inputs;
  for (uint64 row = 0; row < rows; ++row) {
    inputs.clear();
    if (row < corners) {
      source.corner(order.next(), inputs);
    } else {
      source.random(random, inputs);
    }
    record.start(inputs);
    fill(record);
    if (record.malformed()) return Error{fmt::format("vectors {}: {}", options.kind->name, record.fault_text())};
    record.append_line(text);
    if (text.size() < kPiece) continue;
    if (auto written = sink(text); !written) return written.error();
    text.clear();
    if (options.progress) options.progress(row + 1, rows);
  }
  if (auto written = sink(text); !written) return written.error();
  return rows;
}

Expected<VectorMetadata> write(const std::string& path, const VectorOptions& options) {
  if (auto ok = check_vector_options(options); !ok) return ok.error();
  auto file = OutputFile::create(path);
  if (!file) return file.error();
  auto sidecar = OutputFile::create(sidecar_path(path));
  if (!sidecar) return sidecar.error();
  Sha256 hash;
  const auto rows = generate_vectors(options, [&](std::string_view text) {
    hash.add(text);
    return file->append(text);
  });
  if (!rows) return rows.error();
  const auto digest = hash.hex();
  if (!digest) return digest.error();
  VectorMetadata metadata{.what = std::string(options.kind->name),
                          .form = std::string(options.kind->form),
                          .profile = recorded_profile(options),
                          .seed = options.seed,
                          .count = *rows,
                          .bitcube_version = bitcube::version,
                          .sha256 = *digest};
  if (auto written = sidecar->append(metadata.json()); !written) return written.error();
  OutputFile* const files[] = {&*file, &*sidecar};
  if (auto done = commit_all(files); !done) return done.error();
  return metadata;
}

}  // namespace

std::span<const VectorKind> vector_kinds() {
  static const auto kinds = [] {
    std::vector<VectorKind> list;
    for (const KindEntry& entry : kind_entries()) list.push_back(entry.kind);
    return list;
  }();
  return kinds;
}

const VectorKind* find_vector_kind(std::string_view name) {
  for (const VectorKind& kind : vector_kinds()) {
    if (equal_ignoring_case(kind.name, name)) return &kind;
  }
  return nullptr;
}

Expected<void> check_vector_options(const VectorOptions& options) {
  if (options.kind == nullptr) return Error{"vectors: no kind of rows"};
  if (options.count == 0) return Error{"count: must be at least 1"};
  if (options.profile.empty()) return {};
  const VectorForm& form = form_of(*options.kind);
  if (form.name == "hif4_groups") return check_name(options.profile, hif4_profiles);
  if (form.name == "accumulate") return check_name(options.profile, accumulation_profiles);
  if (form.takes_profile || form.has_profile) return check_name(options.profile, conversion_profiles);
  return Error{fmt::format("profile: {} does not depend on one; leave it out", options.kind->name)};
}

std::string VectorMetadata::json() const {
  const Json json{{"format", kFormat},  {"schema_version", schema_version},
                  {"what", what},       {"form", form},
                  {"profile", profile}, {"seed", seed},
                  {"count", count},     {"bitcube_version", bitcube_version},
                  {"sha256", sha256}};
  return json.dump(2) + "\n";
}

Expected<VectorMetadata> parse_vector_metadata(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", Json()) != kFormat) {
    return Error{fmt::format("is no sidecar of a vector file: expected JSON with \"format\": \"{}\"", kFormat)};
  }
  std::string missing;
  const auto number = [&](const char* key) -> uint64 {
    const auto found = json.find(key);
    if (found != json.end() && found->is_number_unsigned()) return found->get<uint64>();
    if (missing.empty()) missing = fmt::format("{}: expected a number", key);
    return 0;
  };
  const auto string = [&](const char* key) -> std::string {
    const auto found = json.find(key);
    if (found != json.end() && found->is_string()) return found->get<std::string>();
    if (missing.empty()) missing = fmt::format("{}: expected a string", key);
    return {};
  };
  VectorMetadata m;
  m.schema_version = number("schema_version");
  if (missing.empty() && m.schema_version > VectorMetadata::current_schema) {
    return Error{
        fmt::format("has schema version {}, but this program (bitcube {}) reads up to {}: update bitcube, or "
                    "write the vectors again with this one",
                    m.schema_version, version, VectorMetadata::current_schema)};
  }
  m.what = string("what");
  m.form = string("form");
  m.profile = string("profile");
  m.seed = number("seed");
  m.count = number("count");
  m.bitcube_version = string("bitcube_version");
  m.sha256 = string("sha256");
  if (!missing.empty()) return Error{missing};
  return m;
}

std::string sidecar_path(const std::string& file) {
  return file + ".meta.json";
}

Expected<uint64> generate_vectors(const VectorOptions& options, const TextSink& sink) {
  if (auto ok = check_vector_options(options); !ok) return ok.error();
  return guarded("vectors", [&]() -> Expected<uint64> { return generate(options, sink); });
}

Expected<VectorMetadata> write_vectors(const std::string& file, const VectorOptions& options) {
  return guarded("vectors", [&]() -> Expected<VectorMetadata> { return write(file, options); });
}

}  // namespace bitcube::verify
