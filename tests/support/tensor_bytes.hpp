// The bytes of a tensor of a .safetensors file.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "bitcube/io/safetensors.hpp"

namespace bitcube::test {

inline std::vector<std::byte> bytes_of(const Safetensors& file, const SafetensorsTensor& tensor) {
  std::vector<std::byte> bytes(tensor.size());
  const auto read = file.read(tensor, 0, bytes);
  EXPECT_TRUE(read) << (read ? "" : read.error().message);
  return bytes;
}

}  // namespace bitcube::test
