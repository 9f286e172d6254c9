// Small checkpoints for tests: tensors of chosen types with repeatable bytes.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "bitcube/io/safetensors.hpp"
#include "io/temp_dir.hpp"

namespace bitcube::test {

struct TestTensor {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
};

/// Bytes of a tensor: of floats that are usual weights, of all else any.
inline std::string tensor_bytes(const TestTensor& tensor) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : tensor.shape) count *= extent;
  const std::size_t size = (count * safetensors_bits(tensor.dtype).value_or(8) + 7) / 8;
  std::mt19937_64 random(std::hash<std::string>()(tensor.name));
  std::string bytes(size, '\0');
  const auto weight = [&] { return std::ldexp(static_cast<double>(random() % 2001) - 1000.0, -14); };
  const auto fill = [&](auto value_of) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto value = value_of();
      for (std::size_t k = 0; k < sizeof value; ++k) {
        bytes[i * sizeof value + k] = static_cast<char>(value >> (8 * k) & 0xFF);
      }
    }
  };
  if (tensor.dtype == "F64") {
    fill([&] { return std::bit_cast<std::uint64_t>(weight()); });
  } else if (tensor.dtype == "F32") {
    fill([&] { return std::bit_cast<std::uint32_t>(static_cast<float>(weight())); });
  } else if (tensor.dtype == "BF16") {
    fill([&] { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(weight())) >> 16); });
  } else {
    for (char& byte : bytes) byte = static_cast<char>(random() & 0x3F);
  }
  return bytes;
}

/// Writes them without waiting for the disk.
inline void write_checkpoint(const std::filesystem::path& path, const std::vector<TestTensor>& tensors,
                             const SafetensorsMetadata& metadata = {{"format", "pt"}}) {
  std::vector<SafetensorsTensor> entries;
  for (const TestTensor& t : tensors) entries.push_back({t.name, t.dtype, t.shape, 0, tensor_bytes(t).size()});
  const auto plan = plan_safetensors(path.string(), metadata, entries);
  ASSERT_TRUE(succeeds(plan));
  std::string file = plan->header;
  for (const std::size_t i : plan->order) file += tensor_bytes(tensors[i]);
  write_text(path, file);
}

}  // namespace bitcube::test
