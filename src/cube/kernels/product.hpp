// The product by SIMD kernels: which method serves which operands, blocking, threads, and what is left to the
// reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "bitcube/cube/matmul.hpp"

namespace bitcube::kernels {

/// Recomputes the outputs rows x cols from C and the operands, bias included, as the reference does.
using ReferenceOutputs = std::function<void(std::span<const std::size_t> rows, std::span<const std::size_t> cols)>;

/// out.words <- what matmul() delivers; they need no value before. `group` as in accumulate(). False where no kernel
/// serves the operands or the machine: nothing has happened then. The workspace does not grow with the matrices, except
/// that `exact` holds one panel of B over all of K.
bool multiply(const Operand& a, const Operand& b, const MatmulOptions& options, const ProductKind& kind,
              std::size_t group, Accumulators& out, const ReferenceOutputs& reference);

}  // namespace bitcube::kernels
