// Golden vector files held against the library: which rows agree, which are known to differ, and what decides the
// others (contract: vectors.md).
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitcube/expected.hpp"
#include "bitcube/numeric/bits.hpp"
#include "bitcube/numeric/profile.hpp"
#include "bitcube/parallel.hpp"

namespace bitcube::verify {

/// A form of vector file: what one row says, and by which columns it is recognised.
struct VectorForm {
  std::string_view name;
  std::string_view columns;  // the header line; of a JSON form, the value of its key "format"
  std::string_view alias;    // another accepted header, or empty
  std::size_t inputs;        // the first so many columns are given, the others follow from them
  std::string_view meaning;
  std::string_view clause;     // of the contract
  bool takes_profile = false;  // results depend on the conversion profile, and no column names it
  bool has_profile = false;    // a column `profile` names it row by row
  bool open_end = false;       // rows may end in any number of empty fields
  constexpr bool is_json() const noexcept { return inputs == 0; }
};

/// Every form of vectors.md.
std::span<const VectorForm> vector_forms() noexcept;
/// The form of this name in any case, or nullptr.
const VectorForm* find_vector_form(std::string_view name) noexcept;

/// Where vectors made by release 0.58.3 of the executable specification differ from the contract. A row that differs so
/// is checked in all that the contract leaves as it is, and counted under the rule.
enum class KnownRule : std::uint8_t {
  tininess,
  e2m1_class,
  s4x2_sign_extension,
  hif4x2_cube_type,
  assert_32768,
};
struct KnownDifference {
  KnownRule rule;
  std::string_view name;
  std::string_view clause;
  std::string_view meaning;
};
inline constexpr std::array<KnownDifference, 5> known_differences{{
    {KnownRule::tininess, "tininess", "numerics 6.2",
     "UF only: 0.58.3 tests the exact magnitude, ADR 0085 the one rounded with unbounded exponent"},
    {KnownRule::e2m1_class, "e2m1-class", "numerics 1.2",
     "E2M1 codes 1 and 9 are normal in 0.58.3, subnormal in the contract"},
    {KnownRule::s4x2_sign_extension, "s4x2-sign-extension", "ADR 0085 decision 181",
     "0.58.3 sign-extends the S4X2 result of a post-process; stored is the low nibble, with nothing above it"},
    {KnownRule::hif4x2_cube_type, "hif4x2-cube-type", "architecture 1.7",
     "0.58.3 refuses HiF4X2 as a CUBE type; it is as any other 4-bit type"},
    {KnownRule::assert_32768, "assert-32768", "architecture 1.9",
     "the executable's arrays end at 32768 elements; the other columns are compared"},
}};

struct NamedText {
  std::string name;
  std::string text;
};

struct Difference {
  std::string column;  // in a JSON form, the path of the value
  std::string expected;
  std::string got;
};

/// A row that is neither what the library computes nor known to differ.
struct Mismatch {
  uint64 row = 0;  // 1 is the first after the header; JSON: the first example
  std::vector<NamedText> inputs;
  std::vector<Difference> differences;
  std::string rule;  // the clause that decides, such as "numerics 6.3 step 3"
};

/// What was found in one file.
struct FileReport {
  std::string path;
  const VectorForm* form = nullptr;            // nullptr: not recognised, see error
  const ConversionProfile* profile = nullptr;  // that it was checked under; nullptr where rows or nothing name one
  bool has_sidecar = false;                    // FILE.meta.json was there, and its hash is right
  uint64 rows = 0;
  uint64 matches = 0;
  std::array<uint64, known_differences.size()> known{};  // by KnownRule
  uint64 mismatches = 0;
  std::vector<Mismatch> first;  // at most ConformOptions::first of them, in the order of the file
  std::optional<Error> error;   // unreadable or malformed: the counts are those of the rows before

  uint64 known_total() const noexcept;
};

struct ConformReport {
  std::vector<FileReport> files;  // in the order of the arguments; those of a directory by name

  uint64 rows() const noexcept;
  uint64 mismatches() const noexcept;
  std::size_t errors() const noexcept;  // files that have one
};

struct ConformOptions {
  /// For files without a column `profile`. nullptr: what the file's sidecar names, else `asl`.
  const ConversionProfile* profile = nullptr;
  std::size_t first = 10;  // mismatches to keep of each file
  Execution execution{};   // progress counts bytes
};

/// Checks vector files. Of a directory all .csv and .json files are taken, sorted by name; sidecars (FILE.meta.json)
/// are read with the file that they describe. The form is recognised by the header, not by the name. Rows are streamed
/// on all cores and by the team of options.execution, and the report, which all ranks have, does not depend on either.
/// What is wrong with a file is in its report; errors of the call are: no path, a path that does not exist, a directory
/// without vector files, no memory.
Expected<ConformReport> conform(std::span<const std::string> paths, const ConformOptions& options = {});

}  // namespace bitcube::verify
