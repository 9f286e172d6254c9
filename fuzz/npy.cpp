// Bytes as a .npy file: what is accepted has the size that it says, and is the same when it is written again.
#include "bitcube/io/npy.hpp"
#include "input.hpp"

using namespace bitcube;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto array = parse_npy(InputFile::from_bytes(fuzz::bytes_of(data, size)), "a.npy");
  if (!array) {
    fuzz::require(array.error().message.starts_with("a.npy: "), "an error names the file");
    return 0;
  }
  fuzz::require(array->offset + array->size() == size, "the elements are the rest of the file");
  const auto elements = array->load();
  fuzz::require_result(elements, "the elements are there");
  const std::string header = npy_header(array->dtype, array->shape);
  std::vector<std::byte> written = fuzz::bytes_of(reinterpret_cast<const std::uint8_t*>(header.data()), header.size());
  written.insert(written.end(), elements->begin(), elements->end());
  const auto again = parse_npy(InputFile::from_bytes(std::move(written)), "b.npy");
  fuzz::require_result(again, "what was read and written is read");
  fuzz::require(again->dtype == array->dtype && again->shape == array->shape, "with the same type and shape");
  const auto same = again->load();
  fuzz::require(same && *same == *elements, "and the same elements");
  return 0;
}
