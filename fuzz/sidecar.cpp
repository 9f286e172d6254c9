// Texts as the sidecar of a vector file: what is accepted is the same when it is written again.
#include "bitcube/verify/vectors.hpp"
#include "input.hpp"

using namespace bitcube;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto metadata = verify::parse_vector_metadata(fuzz::text_of(data, size));
  if (!metadata) return 0;
  const std::string text = metadata->json();
  const auto again = verify::parse_vector_metadata(text);
  fuzz::require_result(again, "a sidecar that was written is read");
  fuzz::require(again->json() == text && again->count == metadata->count && again->seed == metadata->seed &&
                    again->sha256 == metadata->sha256,
                "and says the same");
  return 0;
}
