/* Functions of the C interface in the flat form that SystemVerilog can import (DPI-C): numbers and bit vectors only.
 * They are made of the functions of bitcube.h, whose codes, defaults, statuses and bitcube_last_error() they share.
 * bitcube_pkg.sv declares them for SystemVerilog, together with those of bitcube.h that it can import as they are. */
#ifndef BITCUBE_DPI_H
#define BITCUBE_DPI_H

#include "bitcube.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bitcube_convert(). */
BITCUBE_API int32_t bitcube_dpi_convert(int32_t from, int32_t to, uint64_t word, int32_t rounding, int32_t saturate,
                                        int32_t profile, uint64_t* code, uint32_t* flags);

/* bitcube_postprocess() of one element. `carrier` counts where the mode has one, `alpha` with BITCUBE_RELU_SCALAR and
 * BITCUBE_RELU_PER_COLUMN; otherwise they must be 0. */
BITCUBE_API int32_t bitcube_dpi_postprocess(int32_t mode, int32_t accumulator, uint32_t word, uint64_t carrier,
                                            int32_t relu, uint64_t alpha, int32_t rounding, int32_t saturate,
                                            int32_t profile, uint64_t* code, uint32_t* flags);

/* bitcube_matmul() of one lane with another: accumulator + a * b under an accumulation profile. Types with scales are
 * not taken. */
BITCUBE_API int32_t bitcube_dpi_mac(int32_t type_a, uint64_t a, int32_t type_b, uint64_t b, uint32_t accumulator,
                                    int32_t accumulation, uint32_t* result);

/* bitcube_quantize() of one HiF4 group of 64 FP32 lanes: bit [2047:0] in, lane 0 lowest; bit [255:0] of codes out, lane
 * 0 lowest, and the scale word. */
BITCUBE_API int32_t bitcube_dpi_quantize_hif4(const uint32_t* lanes, int32_t hif4_profile, uint32_t* codes,
                                              uint32_t* scale);

#ifdef __cplusplus
}
#endif

#endif /* BITCUBE_DPI_H */
