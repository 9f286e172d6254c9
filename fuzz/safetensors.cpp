// Bytes as a .safetensors file: what is accepted is the same when it is planned and written again, and so is each
// packed tensor that it describes.
#include "bitcube/io/safetensors.hpp"
#include "bitcube/io/packed.hpp"
#include "input.hpp"

using namespace bitcube;

namespace {

void append(std::vector<std::byte>& file, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  file.insert(file.end(), bytes.begin(), bytes.end());
}

/// The file of a plan and the bytes of its tensors as they were given.
std::vector<std::byte> written(const SafetensorsPlan& plan, const std::vector<Buffer<std::byte>>& tensors) {
  std::vector<std::byte> file;
  append(file, plan.header);
  for (const std::size_t i : plan.order) file.insert(file.end(), tensors[i].begin(), tensors[i].end());
  return file;
}

void check_packed(const Safetensors& file) {
  const auto entries = packed_entries(file, "a.safetensors");
  if (!entries) return;
  for (const PackedEntry& entry : *entries) {
    const auto tensor = load_packed(file, "a.safetensors", entry.name);
    if (!tensor) continue;  // codes with bits that carry no meaning
    fuzz::require_result(validate(*tensor), "a packed tensor that is loaded is valid");
    const auto plan = plan_packed("b.safetensors", entry.name, *tensor);
    fuzz::require_result(plan, "a packed tensor that was loaded is planned");
    std::vector<std::byte> bytes(static_cast<std::size_t>(plan->file_size()));
    const auto put = [&](std::uint64_t at, std::span<const std::byte> part) {
      std::copy(part.begin(), part.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
    };
    put(0, std::as_bytes(std::span(plan->header)));
    put(plan->codes, tensor->codes);
    put(plan->scales, tensor->scales);
    const auto again = parse_safetensors(InputFile::from_bytes(std::move(bytes)), "b.safetensors");
    fuzz::require_result(again, "a packed tensor that was written is a file");
    const auto same = load_packed(*again, "b.safetensors", entry.name);
    fuzz::require_result(same, "a packed tensor that was written is loaded");
    fuzz::require(same->format == tensor->format && same->profile == tensor->profile &&
                      same->scale_rule == tensor->scale_rule && same->rounding == tensor->rounding &&
                      same->source == tensor->source && same->shape == tensor->shape && same->axis == tensor->axis &&
                      same->codes == tensor->codes && same->scales == tensor->scales &&
                      same->tensor_scale == tensor->tensor_scale,
                  "a packed tensor that was written is the same");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = parse_safetensors(InputFile::from_bytes(fuzz::bytes_of(data, size)), "a.safetensors");
  if (!file) {
    fuzz::require(file.error().message.starts_with("a.safetensors: "), "an error names the file");
    return 0;
  }
  std::vector<Buffer<std::byte>> tensors;
  for (const SafetensorsTensor& tensor : file->tensors()) {
    auto bytes = file->load(tensor);
    fuzz::require_result(bytes, "the bytes of a tensor are there");
    tensors.push_back(std::move(*bytes));
    fuzz::require(file->find(tensor.name) == &tensor, "a tensor is found by its name");
  }
  const auto plan = plan_safetensors("b.safetensors", file->metadata(), file->tensors());
  if (plan) {  // not where a type is unknown
    const auto again = parse_safetensors(InputFile::from_bytes(written(*plan, tensors)), "b.safetensors");
    fuzz::require_result(again, "what was read and written is read");
    fuzz::require(again->metadata() == file->metadata(), "with the same metadata");
    fuzz::require(again->tensors().size() == tensors.size(), "and as many tensors");
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const SafetensorsTensor& before = file->tensors()[i];
      const SafetensorsTensor& after = again->tensors()[i];
      fuzz::require(before.name == after.name && before.dtype == after.dtype && before.shape == after.shape,
                    "of the same name, type and shape");
      const auto bytes = again->load(after);
      fuzz::require(bytes && *bytes == tensors[i], "and the same bytes");
    }
  }
  if (is_described(*file)) check_packed(*file);
  return 0;
}
