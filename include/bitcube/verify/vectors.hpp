// Vector files written by bitcube itself: corner cases first, then seeded random rows (contract: vectors.md).
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "bitcube/expected.hpp"
#include "bitcube/io/file.hpp"
#include "bitcube/verify/conform.hpp"

namespace bitcube::verify {

/// A kind of rows that can be written.
struct VectorKind {
  std::string_view name;     // as --what names it
  std::string_view form;     // name of the VectorForm
  std::string_view meaning;  // which rows
};

std::span<const VectorKind> vector_kinds();
/// The kind of this name in any case, or nullptr.
const VectorKind* find_vector_kind(std::string_view name);

struct VectorOptions {
  const VectorKind* kind = nullptr;
  uint64 seed = 0;
  uint64 count = 10000;   // rows; fewer where no more different ones exist
  std::string profile{};  // conversion, HiF4 or accumulation profile, as the form has it; empty: see below
  Progress progress{};    // counts rows
};

/// The profile that an empty name stands for: `pto` where the form has no column for it, every profile in turn where it
/// has. Errors: an unknown name, or one for a form that depends on no profile.
Expected<void> check_vector_options(const VectorOptions& options);

/// What the sidecar FILE.meta.json says.
struct VectorMetadata {
  static constexpr uint64 current_schema = 1;

  std::string what;
  std::string form;
  std::string profile;  // "*" where every row names its own, "-" where nothing depends on it
  uint64 seed = 0;
  uint64 count = 0;  // rows
  uint64 schema_version = current_schema;
  std::string bitcube_version;
  std::string sha256;  // of the vector file, 64 hexadecimal digits

  std::string json() const;
};
/// Reads a sidecar. Errors name what is wrong and what to do: not such a file, a schema that is too new.
Expected<VectorMetadata> parse_vector_metadata(std::string_view json);
/// FILE.meta.json.
std::string sidecar_path(const std::string& file);

/// Where the rows of a file go: complete lines, in pieces.
using TextSink = std::function<Expected<void>(std::string_view)>;

/// Writes a file of rows, header first. Half of the rows at most are corner cases, and they come first: exponent edges,
/// ties, a little above and below every threshold of the destination, specials, corners of parameters. The bytes depend
/// on kind, seed, count and profile only. Returns the number of rows.
Expected<uint64> generate_vectors(const VectorOptions& options, const TextSink& sink);

/// The same into FILE, with its sidecar FILE.meta.json; both appear, or none.
Expected<VectorMetadata> write_vectors(const std::string& file, const VectorOptions& options);

}  // namespace bitcube::verify
