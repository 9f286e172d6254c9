// Bundles as files: programs that check themselves, instruction words, images for $readmemh, JSON. docs/stimulus.md
// describes each.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "bitcube/parallel.hpp"
#include "bitcube/stimulus/coverage.hpp"

namespace bitcube::stimulus {

enum class BundleFormat : std::uint8_t { assembly, words, readmemh, json_lines };

struct BundleFormatInfo {
  BundleFormat format;
  std::string_view name;
  std::string_view meaning;
  std::span<const std::string_view> suffixes;  // of the files that it writes; one empty one: a single file
};
std::span<const BundleFormatInfo> bundle_formats() noexcept;
/// The format of this name in any case, or nullptr.
const BundleFormatInfo* find_bundle_format(std::string_view name) noexcept;

struct BundleRange {
  uint64 first = 0;
  uint64 count = 1;
  Execution execution{};  // progress counts bundles
};

/// Where the text of a file goes, in order and in pieces; `file` is an index into BundleFormatInfo::suffixes.
using BundleSink = std::function<Expected<void>(std::size_t file, std::string_view text)>;

/// Makes the bundles of a range with all threads and writes them in order; the bytes do not depend on the threads. The
/// team of range.execution shares the work, and rank 0 writes. Returns what they cover, on all ranks. Errors: those of
/// BundleGenerator::bundle(), and of the sink.
Expected<Coverage> write_bundles(const BundleGenerator& generator, BundleFormat format, const BundleRange& range,
                                 const BundleSink& sink);

}  // namespace bitcube::stimulus
