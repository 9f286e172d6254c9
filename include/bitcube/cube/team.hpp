// A product and its post-process by several processes.
#pragma once

#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"

namespace bitcube {

/// Lines `first` to `first + count - 1` of an operand. Precondition: they exist; where lanes have 4 bits, `first` is
/// even.
Operand lines_of(const Operand& side, std::size_t first, std::size_t count) noexcept;

/// postprocess() of matmul(). The team of `product.execution` shares the rows: each rank computes some, and has both
/// operands whole. Rank 0 has the result, the others an empty one without a format. The errors are those of matmul()
/// and postprocess().
Expected<Postprocessed> matmul_postprocess(const Operand& a, const Operand& b, const MatmulOptions& product,
                                           const PostprocessOptions& finish);

}  // namespace bitcube
