#include "bitcube/io/goldens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace bitcube {
namespace {

enum Golden : std::size_t { kFp4, kEa, kEb, kEc, kScale, kMax4, kMax8, kMax64 };
constexpr std::array<std::string_view, 8> kNames{"golden_fp4.bin",  "golden_ea.bin",    "golden_eb.bin",
                                                 "golden_ec.bin",   "golden_scale.bin", "golden_max4.bin",
                                                 "golden_max8.bin", "golden_max64.bin"};
constexpr std::size_t kWithoutMaxima = kMax4;

/// Reads the original of one tensor as the BF16 words whose maxima are wanted.
class Originals {
 public:
  Originals(const QuantizedTensor& tensor, const Lines& lines, std::span<const std::byte> bytes,
            const std::function<std::uint64_t(std::uint64_t)>& element_of) noexcept
      : source_(*tensor.source), lines_(lines), bytes_(bytes), element_of_(element_of) {}

  Expected<Hif4Maxima> maxima(std::uint64_t line, std::uint64_t first, std::size_t count) const {
    const std::size_t size = source_.carrier_bits / 8U;
    std::array<std::uint32_t, hif4_group_lanes> words;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t element = lines_.element(line, first + i);
      const std::uint64_t word = load_word(bytes_.data() + element * size, size);
      if (source_.type == DataType::bf16) {
        words[i] = static_cast<std::uint32_t>(word);
        continue;
      }
      const Encoded rounded = convert(source_, bf16, word, {.rounding = Rounding::rne});
      const bool exact = rounded.flags == Flags::none || decode(source_, word).is_nan();
      if (source_.type == DataType::fp32 && !exact) {
        return Error{
            fmt::format("golden maxima are BF16 words, but element {} of the FP32 source, {:08X}, is not a "
                        "BF16 value; round the source to BF16 before it is quantised",
                        element_of_ ? element_of_(element) : element, word)};
      }
      words[i] = static_cast<std::uint32_t>(rounded.bits);
    }
    return Hif4Maxima(bf16, {words.data(), count});
  }

 private:
  const Format& source_;
  Lines lines_;
  std::span<const std::byte> bytes_;
  const std::function<std::uint64_t(std::uint64_t)>& element_of_;
};

Expected<void> check(const QuantizedTensor& tensor, std::span<const std::byte> original, bool maxima) {
  if (auto valid = validate(tensor); !valid) return valid;
  if (!tensor.format->is_hif4()) {
    return Error{
        fmt::format("golden files are those of HiF4, but the tensor is {}; quantise it to hif4", tensor.format->name)};
  }
  Lines lines;
  lines_of(tensor.shape, tensor.axis, lines);  // fits: validate() has counted it
  const std::size_t word_bytes = tensor.source->carrier_bits / 8U;
  if (maxima && (!is_quantize_source(*tensor.source) || original.size() / word_bytes != lines.elements() ||
                 original.size() % word_bytes != 0)) {
    return Error{fmt::format("the original has {} bytes, but {} values of {} were quantised", original.size(),
                             lines.elements(), tensor.source->name)};
  }
  return {};
}

Expected<std::vector<OutputFile>> write(const std::filesystem::path& directory, const QuantizedTensor& tensor,
                                        const std::span<const std::byte>* original) {
  const bool maxima = original != nullptr;
  const std::span<const std::byte> bytes = maxima ? *original : std::span<const std::byte>();
  if (auto ok = check(tensor, bytes, maxima); !ok) return ok.error();
  auto writer = GoldenWriter::create(directory, maxima);
  if (!writer) return writer.error();
  if (auto added = writer->add(tensor, bytes); !added) return added.error();
  return writer->take();
}

Expected<void> commit(Expected<std::vector<OutputFile>> files) {
  if (!files) return files.error();
  std::vector<OutputFile*> all;
  for (OutputFile& file : *files) all.push_back(&file);
  return commit_all(all);
}

}  // namespace

Expected<GoldenWriter> GoldenWriter::create(const std::filesystem::path& directory, bool maxima) {
  GoldenWriter out;
  out.maxima_ = maxima;
  for (const std::filesystem::path& path : golden_paths(directory, maxima)) {
    auto file = OutputFile::create(path);
    if (!file) return file.error();
    out.files_.push_back(std::move(*file));
  }
  return out;
}

template <std::size_t N>
void GoldenWriter::append(std::size_t file, const std::array<std::byte, N>& bytes) {
  if (auto appended = files_[file].append(bytes); !appended && !error_) error_ = appended.error();
}

/// As little-endian BF16 words.
template <typename Word, std::size_t N>
void GoldenWriter::append_words(std::size_t file, const std::array<Word, N>& words) {
  std::array<std::byte, 2 * N> bytes;
  for (std::size_t i = 0; i < N; ++i) store_word(bytes.data() + 2 * i, 2, words[i]);
  append(file, bytes);
}

Expected<void> GoldenWriter::add(const QuantizedTensor& part, std::span<const std::byte> original,
                                 const std::function<std::uint64_t(std::uint64_t)>& element_of) {
  if (auto ok = check(part, original, maxima_); !ok) return ok;
  Lines lines;
  lines_of(part.shape, part.axis, lines);
  const Originals originals(part, lines, original, element_of);
  const std::uint64_t line_bytes = part.format->code_bytes(lines.length);
  const std::uint64_t line_groups = part.format->groups(lines.length);
  for (std::uint64_t group = 0; group < lines.count * line_groups; ++group) {
    const std::uint64_t line = group / line_groups;
    const std::uint64_t first = group % line_groups * hif4_group_lanes;
    const auto lanes = static_cast<std::size_t>(std::min<std::uint64_t>(hif4_group_lanes, lines.length - first));

    std::array<std::byte, hif4_group_lanes / 2> codes{};
    const std::byte* from = part.codes.data() + line * line_bytes + first / 2;
    std::copy_n(from, part.format->code_bytes(lanes), codes.begin());
    append(kFp4, codes);

    const std::byte* scale = part.scales.data() + group * 4;
    append(kEa, std::array{scale[0]});
    append(kEb, std::array{scale[1]});
    append(kEc, std::array{scale[2], scale[3]});
    append_words(kScale, hif4_reciprocal4(static_cast<std::uint32_t>(load_word(scale, 4))));

    if (!maxima_) continue;
    const Expected<Hif4Maxima> maxima = originals.maxima(line, first, lanes);
    if (!maxima) return maxima.error();
    append_words(kMax4, maxima->per4);
    append_words(kMax8, maxima->per8);
    append_words(kMax64, std::array{maxima->per64});
  }
  if (error_) return *error_;
  return {};
}

Expected<std::vector<OutputFile>> GoldenWriter::take() {
  if (error_) return *error_;
  return std::move(files_);
}

std::vector<std::filesystem::path> golden_paths(const std::filesystem::path& directory, bool maxima) {
  std::vector<std::filesystem::path> paths;
  for (std::size_t i = 0; i < (maxima ? kNames.size() : kWithoutMaxima); ++i) paths.push_back(directory / kNames[i]);
  return paths;
}

Expected<std::vector<OutputFile>> write_goldens(const std::filesystem::path& directory, const QuantizedTensor& tensor) {
  return write(directory, tensor, nullptr);
}

Expected<std::vector<OutputFile>> write_goldens(const std::filesystem::path& directory, const QuantizedTensor& tensor,
                                                std::span<const std::byte> original) {
  return write(directory, tensor, &original);
}

Expected<void> save_goldens(const std::filesystem::path& directory, const QuantizedTensor& tensor) {
  return commit(write_goldens(directory, tensor));
}

Expected<void> save_goldens(const std::filesystem::path& directory, const QuantizedTensor& tensor,
                            std::span<const std::byte> original) {
  return commit(write_goldens(directory, tensor, original));
}

}  // namespace bitcube
