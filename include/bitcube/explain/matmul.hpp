// How an element of a product came about, from the lanes to D (numerics 5, 8, 9).
#pragma once

#include <cstddef>

#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/document.hpp"
#include "bitcube/expected.hpp"

namespace bitcube {

/// Element (row, col) of D = postprocess(C + A * B + bias): operands, scales, the exact sum of every group and the
/// accumulator after it, what each rounding lost, the largest term, C, bias, RowMax and GroupMax, every step of the
/// post-process, and the same element under every accumulation profile. With `steps` lane by lane instead of group by
/// group. A, B, C, bias and the parameters are those of the whole product; only what the element and its reductions
/// need is computed.
///
/// The last result is D(row, col): its bits, and as remark type, value and flags. Before it stand the accumulator and
/// the reductions. All are those of matmul() and postprocess(), and are compared with what the steps lead to.
/// Errors: those of matmul() and postprocess(), an element outside of D; steps that lead elsewhere, which would be a
/// defect of bitcube.
Expected<Document> explain_matmul(const Operand& a, const Operand& b, std::size_t row, std::size_t col,
                                  const MatmulOptions& product, const PostprocessOptions& post, bool steps = false);

/// The same from stored accumulators on.
Expected<Document> explain_postprocess(const Accumulators& accumulators, std::size_t row, std::size_t col,
                                       const PostprocessOptions& post);

}  // namespace bitcube
