// What the opaque types of the C interface are.
#pragma once

#include <memory>
#include <new>

#include "bitcube.h"
#include "bitcube/machine/core.hpp"
#include "bitcube/program/program.hpp"
#include "bitcube/quantize/tensor.hpp"

struct bitcube_tensor {
  bitcube::QuantizedTensor tensor;
};
struct bitcube_core {
  bitcube::machine::Core core;
};
struct bitcube_program {
  bitcube::program::Program program;
};
