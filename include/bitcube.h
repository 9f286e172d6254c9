/* The C interface of bitcube: formats, conversions, block formats, the product, the post-process, the machine.
 * docs/c-api.md is its quick reference.
 *
 * Everything here calls the C++ library and adds nothing to what that decides.
 *
 * Status. A function that can fail returns a bitcube_status. The text of the last call of this thread that failed is
 * bitcube_last_error(). A call that fails has written to none of its outputs, except where it says so.
 *
 * NULL. No pointer may be NULL unless its function says so; then the call fails with BITCUBE_BAD_ARGUMENT. A pointer to
 * memory of 0 bytes may always be NULL.
 *
 * Structs of options. All bytes zero is the default of every one: `bitcube_control control = {0};`. A NULL instead of
 * options means the defaults. Members called `reserved` must be 0. Members that are yes or no take 0 or 1.
 *
 * Words. A code is in the low bits of its word; bits above the lane are ignored on input and 0 on output. Arrays hold
 * little-endian words of carrier_bits bits at any alignment. Types with two lanes per byte (E2M1X2, E1M2X2, HiF4X2,
 * S4X2, U4X2) take a byte per lane, the lane in its low bits, where this file does not say "packed".
 *
 * Ownership. What a *_new, *_copy, *_load or bitcube_quantize call returns through its last argument belongs to the
 * caller, who gives it back to the *_free of its kind; that takes NULL as well. Inputs are copied or only read during
 * the call. Texts (const char*) that a function returns or puts into a struct are constants unless it says otherwise.
 *
 * Threads. Different threads may use different objects at the same time, and the same one as long as every call takes
 * it as const. `threads` is how many threads a call may use, 0 for one per core; no result depends on it.
 */
#ifndef BITCUBE_H
#define BITCUBE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define BITCUBE_API __attribute__((visibility("default")))
#else
#define BITCUBE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ----------------------------------------------------------------------------------------------------- */

typedef enum bitcube_status {
  BITCUBE_OK = 0,
  BITCUBE_BAD_ARGUMENT = 1, /* NULL, a number outside its range, a reserved member that is not 0 */
  BITCUBE_UNKNOWN = 2,      /* no such name, or no such code */
  BITCUBE_BAD_SIZE = 3,     /* memory of the caller is not as large as the call needs it */
  BITCUBE_REFUSED = 4,      /* the library refuses: an illegal pair, shape, carrier, text; the message says why */
  BITCUBE_NO_MEMORY = 5,
  BITCUBE_INTERNAL = 6 /* a defect of bitcube */
} bitcube_status;

/* "0.1.0", the version of the library that runs. */
BITCUBE_API const char* bitcube_version(void);

/* Why the last call of this thread that failed did so: one sentence, cut at 1023 bytes, "" before the first failure.
 * Calls that succeed leave it alone. It is valid until the next call of this thread that fails. */
BITCUBE_API const char* bitcube_last_error(void);

/* "not enough memory" and the like; "unknown status" for other numbers. */
BITCUBE_API const char* bitcube_status_text(int32_t status);

/* ---- Names ------------------------------------------------------------------------------------------------------- */

/* Everything that has a name is an int32_t code in this file, and stands in one of these tables. */
enum {
  BITCUBE_TYPES = 0,                 /* code: the Tile DataType of the ISA */
  BITCUBE_ROUNDINGS = 1,             /* code: B.DATR.RMode, 1 to 7 */
  BITCUBE_CONVERSION_PROFILES = 2,   /* code: 0, 1, 2, ... in the order of the table, the default first; so below */
  BITCUBE_BLOCK_FORMATS = 3,         /* in the order of the table */
  BITCUBE_HIF4_PROFILES = 4,         /* in the order of the table */
  BITCUBE_SCALE_RULES = 5,           /* in the order of the table */
  BITCUBE_PREQUANT_MODES = 6,        /* code: B.FPATR.PreQuantMode */
  BITCUBE_ACCUMULATION_PROFILES = 7, /* in the order of the table */
  BITCUBE_LAYOUTS = 8,               /* of Tiles, in the order of the table */
  BITCUBE_FAULT_CLASSES = 9          /* of the machine; 0 is "None" */
};

/* BITCUBE_TYPES. Codes 5-bit; the ones that are missing are reserved. */
enum {
  BITCUBE_FP64 = 0,
  BITCUBE_FP32 = 1,
  BITCUBE_TF32 = 2,
  BITCUBE_HF32 = 3,
  BITCUBE_FP16 = 4,
  BITCUBE_BF16 = 5,
  BITCUBE_HIF8 = 6,
  BITCUBE_E4M3 = 7,
  BITCUBE_E5M2 = 8,
  BITCUBE_E3M2 = 9,
  BITCUBE_E2M3 = 10,
  BITCUBE_E2M1X2 = 11,
  BITCUBE_E1M2X2 = 12,
  BITCUBE_E8M0 = 13,
  BITCUBE_HIF4X2 = 14,
  BITCUBE_E6M2 = 15,
  BITCUBE_S64 = 16,
  BITCUBE_S32 = 17,
  BITCUBE_S16 = 18,
  BITCUBE_S8 = 19,
  BITCUBE_S4X2 = 20,
  BITCUBE_RCPE6M2 = 21,
  BITCUBE_U64 = 24,
  BITCUBE_U32 = 25,
  BITCUBE_U16 = 26,
  BITCUBE_U8 = 27,
  BITCUBE_U4X2 = 28
};

/* BITCUBE_ROUNDINGS. 0 in an option asks for the default of the operation. */
enum {
  BITCUBE_RNE = 1,
  BITCUBE_RTZ = 2,
  BITCUBE_RTM = 3,
  BITCUBE_RTP = 4,
  BITCUBE_RNA = 5,
  BITCUBE_RTO = 6,
  BITCUBE_RHB = 7
};

enum { BITCUBE_PROFILE_PTO = 0, BITCUBE_PROFILE_ASL = 1, BITCUBE_PROFILE_OCP = 2 };
enum {
  BITCUBE_HIF4 = 0,
  BITCUBE_MXFP8_E4M3 = 1,
  BITCUBE_MXFP8_E5M2 = 2,
  BITCUBE_MXFP6_E3M2 = 3,
  BITCUBE_MXFP6_E2M3 = 4,
  BITCUBE_MXFP4 = 5,
  BITCUBE_MXFP4_E1M2 = 6,
  BITCUBE_NVFP4 = 7
};
enum {
  BITCUBE_HIF4_PTO = 0,
  BITCUBE_HIF4_PTO_A6 = 1,
  BITCUBE_HIF4_PAPER = 2,
  BITCUBE_HIF4_BENCH = 3,
  BITCUBE_HIF4_LITERAL = 4
};
enum { BITCUBE_SCALE_FLOOR = 0, BITCUBE_SCALE_CEIL = 1, BITCUBE_SCALE_RCEIL = 2, BITCUBE_SCALE_EVEN = 3 };
enum {
  BITCUBE_ACC_FMA = 0,
  BITCUBE_ACC_TWO_STEP = 1,
  BITCUBE_ACC_GROUP = 2,
  BITCUBE_ACC_EXACT = 3,
  BITCUBE_ACC_RAW_CARRIER = 4
};
enum {
  BITCUBE_ROW_MAJOR = 0,
  BITCUBE_COLUMN_MAJOR = 1,
  BITCUBE_ZN = 2,
  BITCUBE_NZ = 3,
  BITCUBE_CUBE_M16 = 4,
  BITCUBE_CUBE_M32 = 5,
  BITCUBE_CUBE_N8 = 6
};

/* B.FPATR.ReluMode. */
enum { BITCUBE_RELU_NONE = 0, BITCUBE_RELU = 1, BITCUBE_RELU_SCALAR = 2, BITCUBE_RELU_PER_COLUMN = 3 };

/* Status flags are sets of these bits in a uint32_t. */
enum { BITCUBE_NV = 1, BITCUBE_DZ = 2, BITCUBE_OF = 4, BITCUBE_UF = 8, BITCUBE_NX = 16 };

/* One row of a table. */
typedef struct bitcube_entry {
  int32_t code;
  const char* name;
  const char* meaning; /* "" where the table has none */
} bitcube_entry;

/* Rows of a table; 0 if there is no such table. */
BITCUBE_API size_t bitcube_table_size(int32_t table);
/* Row `index`, from 0. BITCUBE_UNKNOWN: no such table or row. */
BITCUBE_API bitcube_status bitcube_table_entry(int32_t table, size_t index, bitcube_entry* entry);
/* The code of a name in any case, or of its alias. BITCUBE_UNKNOWN: no such table or name. */
BITCUBE_API bitcube_status bitcube_find(int32_t table, const char* name, int32_t* code);
/* The name of a code, or NULL. */
BITCUBE_API const char* bitcube_name(int32_t table, int32_t code);

enum { BITCUBE_FLOATING = 0, BITCUBE_SCALE = 1, BITCUBE_SIGNED = 2, BITCUBE_UNSIGNED = 3 };

/* What a type is made of. */
typedef struct bitcube_format {
  const char* name;
  const char* alias; /* a second name, or "" */
  int32_t type;
  int32_t kind;              /* BITCUBE_FLOATING to BITCUBE_UNSIGNED */
  int32_t carrier_bits;      /* of a stored word */
  int32_t lane_bits;         /* of one element in storage */
  int32_t value_bits;        /* lane bits that may carry meaning */
  int32_t lanes_per_carrier; /* 1 or 2 */
  int32_t low_zero_bits;     /* low bits of the word that must be 0 (TF32, HF32) */
  int32_t sign_bits;
  int32_t exponent_bits; /* HiF8: the most */
  int32_t fraction_bits; /* HiF8: the most */
  int32_t bias;
  int32_t has_zero;
  int32_t has_signed_zero;
  int32_t has_nan;
  int32_t has_infinity;
  uint64_t canonical_nan; /* code, where has_nan */
  uint64_t infinity;      /* code of +Inf, where has_infinity */
  uint64_t max_finite;    /* the largest positive code */
} bitcube_format;

/* BITCUBE_UNKNOWN: a reserved code. */
BITCUBE_API bitcube_status bitcube_format_of(int32_t type, bitcube_format* format);

/* A format in which groups of lanes share a scale. */
typedef struct bitcube_block_format {
  const char* name;
  const char* alias;
  const char* meaning;
  int32_t element;   /* type of the lanes */
  int32_t scale;     /* type of a scale: BITCUBE_U32 (the word of HiF4), BITCUBE_E8M0, BITCUBE_E4M3 */
  uint32_t group;    /* lanes that share a scale */
  int32_t lane_bits; /* in the codes: 4 (two lanes per byte, the even one low) or 8 */
} bitcube_block_format;

BITCUBE_API bitcube_status bitcube_block_format_of(int32_t format, bitcube_block_format* info);

enum { BITCUBE_CARRIER_NONE = 0, BITCUBE_CARRIER_SCALE = 1, BITCUBE_CARRIER_SHIFT = 2 };

/* A PreQuant mode of B.FPATR. */
typedef struct bitcube_prequant {
  const char* name;
  int32_t code;
  int32_t accumulator;        /* type; -1: FP32, S32 or U32 */
  int32_t destination;        /* type; -1: that of the accumulator */
  int32_t carrier;            /* BITCUBE_CARRIER_NONE, _SCALE or _SHIFT */
  int32_t per_column;         /* 1: a carrier per column */
  int32_t offset_bits;        /* 0, 5, 9 or 17 */
  int32_t rounding;           /* the fixed mode, or the default */
  int32_t rounding_is_fixed;  /* 1: options.rounding must be 0 */
  int32_t saturation_allowed; /* 0: options.saturate must be 0 */
} bitcube_prequant;

BITCUBE_API bitcube_status bitcube_prequant_of(int32_t mode, bitcube_prequant* info);

/* ---- Conversion: TCVT -------------------------------------------------------------------------------------------- */

typedef struct bitcube_control {
  int32_t rounding; /* 0: the default of the pair, RTZ from float to integer, otherwise RNE */
  int32_t saturate; /* Sat */
  int32_t profile;  /* a conversion profile */
  uint32_t threads;
  int32_t reference; /* 1: the scalar definitions instead of the SIMD kernels; the same bits, slower */
  uint32_t reserved[3];
} bitcube_control;

/* One lane. `flags` may be NULL. BITCUBE_REFUSED: TCVT does not convert this pair, or not with this rounding. */
BITCUBE_API bitcube_status bitcube_convert(int32_t from, int32_t to, uint64_t word, const bitcube_control* control,
                                           uint64_t* code, uint32_t* flags);

/* `count` words of `from` into as many of `to`, which do not overlap them; out_bytes is the size of `out`, exactly
 * count * carrier_bits(to) / 8. `flags`, of all elements together, may be NULL. BITCUBE_REFUSED also: a type with two
 * lanes per byte. */
BITCUBE_API bitcube_status bitcube_convert_array(int32_t from, int32_t to, const void* words, size_t count,
                                                 const bitcube_control* control, void* out, size_t out_bytes,
                                                 uint32_t* flags);

/* ---- Block formats ----------------------------------------------------------------------------------------------- */

/* A quantised tensor; it never changes. */
typedef struct bitcube_tensor bitcube_tensor;

typedef struct bitcube_quantize_options {
  int32_t format;       /* a block format */
  int32_t hif4_profile; /* used by HiF4 */
  int32_t scale_rule;   /* used by MX */
  int32_t rounding;     /* of the elements of MX and NVFP4, 0: RNE; HiF4 follows its profile */
  int32_t tensor_scale; /* 1, NVFP4 only: an FP32 scale of the whole tensor, amax / 2688 */
  uint32_t threads;
  int32_t reference;
  uint32_t reserved[3];
} bitcube_quantize_options;

/* Quantises a row-major tensor of `rank` dimensions along one axis (0 is the first). `words` are elements of the type
 * `source`, a float of whole bytes; `bytes` is their size and fits the shape exactly. BITCUBE_BAD_SIZE: more than 64
 * dimensions. BITCUBE_REFUSED: shape, axis,
 * size or source are not right, a tensor scale for another format than NVFP4. */
BITCUBE_API bitcube_status bitcube_quantize(int32_t source, const void* words, size_t bytes, const uint64_t* shape,
                                            size_t rank, size_t axis, const bitcube_quantize_options* options,
                                            bitcube_tensor** tensor);

/* What a tensor is. In bitcube_tensor_new the sizes and the rank are input as well. */
typedef struct bitcube_tensor_info {
  int32_t format;       /* a block format */
  int32_t hif4_profile; /* HiF4; otherwise -1 */
  int32_t scale_rule;   /* MX; otherwise -1 */
  int32_t rounding;     /* of the elements */
  int32_t source;       /* the type that it was quantised from */
  int32_t has_tensor_scale;
  uint32_t tensor_scale; /* FP32 word, where there is one; otherwise 0 */
  uint32_t reserved;
  size_t rank;
  size_t axis;
  size_t code_bytes;
  size_t scale_bytes;
} bitcube_tensor_info;

/* A tensor of codes and scales that were made elsewhere; both are copied. The quantised axis is moved last, the lines
 * (all other indices in row-major order) follow each other: a line of K lanes takes ceil(K / 2) bytes of codes in the
 * 4-bit formats, the even lane in the low nibble and the unused nibble 0, otherwise K bytes; and ceil(K / group)
 * little-endian scales. BITCUBE_BAD_SIZE: more than 64 dimensions. BITCUBE_REFUSED: sizes, shape, axis, profile, rule, unused nibbles or tensor scale are not
 * right. */
BITCUBE_API bitcube_status bitcube_tensor_new(const bitcube_tensor_info* info, const uint64_t* shape, const void* codes,
                                              const void* scales, bitcube_tensor** tensor);
BITCUBE_API void bitcube_tensor_free(bitcube_tensor* tensor);

BITCUBE_API bitcube_status bitcube_tensor_describe(const bitcube_tensor* tensor, bitcube_tensor_info* info);
/* The dimensions; `rank` is the room in `shape` and must be that of the tensor. */
BITCUBE_API bitcube_status bitcube_tensor_shape(const bitcube_tensor* tensor, uint64_t* shape, size_t rank);
/* The codes and the scales in the order above, code_bytes and scale_bytes of them. They belong to the tensor and are
 * valid until it is freed. NULL for NULL, and where there are no bytes. */
BITCUBE_API const uint8_t* bitcube_tensor_codes(const bitcube_tensor* tensor);
BITCUBE_API const uint8_t* bitcube_tensor_scales(const bitcube_tensor* tensor);

/* Every lane, exact until then, rounded once to FP32, BF16, FP16 or FP64: row-major, out_bytes exactly the elements of
 * the shape times the size of the type. Of the control only rounding (0: RNE), threads and reference are used; saturate
 * and profile must be 0. `flags`, of all elements together, may be NULL. BITCUBE_REFUSED: another destination. */
BITCUBE_API bitcube_status bitcube_dequantize(const bitcube_tensor* tensor, int32_t destination,
                                              const bitcube_control* control, void* out, size_t out_bytes,
                                              uint32_t* flags);

/* ---- Product ----------------------------------------------------------------------------------------------------- */

/* One side of A * B. Either a quantised tensor of two dimensions, quantised along K, and all else 0; or a row-major
 * matrix of words. Scales, where there are any, are row-major too, one per group of K lanes (HiF4X2: 64 lanes, a 32-bit
 * word; else 32 lanes, an E8M0 byte): rows x groups for A, groups x cols for B. */
typedef struct bitcube_operand {
  const bitcube_tensor* tensor;
  int32_t type;
  uint32_t reserved;
  size_t rows; /* A: M, B: K */
  size_t cols; /* A: K, B: N */
  const void* words;
  size_t word_bytes;  /* exactly rows * cols * carrier_bits / 8 */
  const void* scales; /* NULL: none */
  size_t scale_bytes;
} bitcube_operand;

typedef struct bitcube_product_kind {
  int32_t accumulator; /* BITCUBE_FP32, BITCUBE_S32 or BITCUBE_U32 */
  int32_t mx;          /* 1: an MX operation */
  size_t rows;         /* M */
  size_t cols;         /* N */
  size_t k;
  size_t group; /* lanes per group of the accumulation profile `group` */
} bitcube_product_kind;

/* What the product of two operands is; `k` is that of A. BITCUBE_REFUSED: the types do not go together. */
BITCUBE_API bitcube_status bitcube_product_of(const bitcube_operand* a, const bitcube_operand* b,
                                              bitcube_product_kind* kind);

typedef struct bitcube_matmul_options {
  int32_t accumulation; /* an accumulation profile */
  uint32_t threads;
  int32_t reference;
  uint32_t reserved;
  const uint32_t* c; /* M x N accumulator words; NULL: +0 */
  size_t c_words;
  const uint32_t* bias; /* N accumulator words, added after the last k; NULL: none */
  size_t bias_words;
  size_t group; /* 0: bitcube_product_kind.group */
} bitcube_matmul_options;

/* C + A * B + bias: M x N raw accumulator words in row-major order; out_words is exactly M * N. No flags are recorded.
 * BITCUBE_REFUSED: as above, K differs, a dimension is 0, C or bias has another size. */
BITCUBE_API bitcube_status bitcube_matmul(const bitcube_operand* a, const bitcube_operand* b,
                                          const bitcube_matmul_options* options, uint32_t* out, size_t out_words);

/* ---- Post-process: B.FPATR --------------------------------------------------------------------------------------- */

/* FP32 narrowed to FP19 as software does it: RNE of the low 13 bits, NaN 3FF00. */
BITCUBE_API uint32_t bitcube_fp32_to_fp19(uint32_t word);
/* The 64-bit carrier of a mode with an FP19 scale (positive normal) and an offset, 0 in a mode without.
 * BITCUBE_REFUSED: the mode takes no scale, or scale or offset are not legal. */
BITCUBE_API bitcube_status bitcube_scale_carrier(int32_t mode, uint32_t fp19_scale, int32_t offset, uint64_t* carrier);
/* The carrier of an arithmetic right shift by 1 to 16. BITCUBE_REFUSED: the mode takes no shift, or not this one. */
BITCUBE_API bitcube_status bitcube_shift_carrier(int32_t mode, int32_t shift, uint64_t* carrier);

typedef struct bitcube_postprocess_options {
  int32_t mode;     /* a PreQuant mode; 0: NoQuant */
  int32_t relu;     /* BITCUBE_RELU_NONE to BITCUBE_RELU_PER_COLUMN */
  int32_t rounding; /* 0: none requested */
  int32_t saturate; /* Sat */
  int32_t profile;  /* a conversion profile */
  int32_t row_max;  /* 1: compute RowMax */
  int32_t max_abs;  /* 1: RowMax and GroupMax of absolute values */
  uint32_t group_n; /* GroupMax over so many columns, 8 to 128 as GroupNCode has them; 0: none */
  uint32_t threads;
  int32_t reference;
  uint32_t reserved[2];
  const uint64_t* carriers; /* none, one, or one per column, as the mode wants */
  size_t carrier_count;
  const uint64_t* alphas; /* FP19 in 64 bits: one, or one per column, as relu wants */
  size_t alpha_count;
  const uint32_t* row_max_init; /* RowMaxIn: `rows` accumulator words; NULL: none */
  size_t row_max_init_words;
} bitcube_postprocess_options;

/* What a post-process delivers. */
typedef struct bitcube_postprocess_sizes {
  int32_t type;           /* of D */
  uint32_t element_bytes; /* of D; a 4-bit lane has a byte of its own */
  size_t d_bytes;
  size_t row_max_words;   /* rows, or 0 */
  size_t group_max_words; /* rows * ceil(cols / group_n), or 0 */
} bitcube_postprocess_sizes;

/* Checks everything that the architecture asks of the options for rows x cols accumulators of this type.
 * BITCUBE_REFUSED: the message names the rule, and the column if there is one. */
BITCUBE_API bitcube_status bitcube_postprocess_check(int32_t accumulator, size_t rows, size_t cols,
                                                     const bitcube_postprocess_options* options,
                                                     bitcube_postprocess_sizes* sizes);

/* Memory of the caller, each of exactly the size that bitcube_postprocess_sizes says; no overlap with the input. */
typedef struct bitcube_postprocess_output {
  void* d;
  size_t d_bytes;
  uint32_t* row_max;
  size_t row_max_words;
  uint32_t* group_max;
  size_t group_max_words;
} bitcube_postprocess_output;

/* D, RowMax and GroupMax of rows x cols accumulator words. `flags`, of all elements and reductions, may be NULL. */
BITCUBE_API bitcube_status bitcube_postprocess(int32_t accumulator, const uint32_t* words, size_t rows, size_t cols,
                                               const bitcube_postprocess_options* options,
                                               const bitcube_postprocess_output* output, uint32_t* flags);

/* Rows of 4-bit lanes, a byte each, packed two per byte: rows of ceil(cols / 2) bytes, the even column in the low
 * nibble. out_bytes is exactly rows * ceil(cols / 2); `d` has rows * cols bytes. */
BITCUBE_API bitcube_status bitcube_pack_rows(const void* d, size_t rows, size_t cols, void* out, size_t out_bytes);

/* ---- Machine ----------------------------------------------------------------------------------------------------- */

/* Instructions as text to the bytes that they have in memory, no directives but data. `size` is the room in `out` on
 * entry and the number of bytes on return; with `out` NULL it is only set. BITCUBE_BAD_SIZE: too little room, and
 * `size` is set to what is needed. BITCUBE_REFUSED: a text that is not right; the message starts with
 * "LINE:COLUMN: ". */
BITCUBE_API bitcube_status bitcube_assemble(const char* text, void* out, size_t* size);
/* The canonical text of one instruction at the front of `size` bytes, or the directive for bits that are none, with a
 * final 0 in `text` of `room` bytes. `length`, the bytes of the instruction, may be NULL. BITCUBE_BAD_SIZE: no bytes,
 * or too little room. */
BITCUBE_API bitcube_status bitcube_disassemble(const void* bytes, size_t size, char* text, size_t room, size_t* length);

/* A core of four PEs with its memory. */
typedef struct bitcube_core bitcube_core;

typedef struct bitcube_core_options {
  int32_t absolute_names;     /* 0: #1 is the newest Tile of its hand; 1: #n is register n */
  int32_t wait_on_pending;    /* 1: an unready Shared source keeps the bundle pending instead of faulting */
  int32_t coop_exact_columns; /* 1: Shared operands of a product have exactly the valid columns */
  int32_t aux_exact_columns;  /* 1: so has GroupMaxOut */
  int32_t no_gemv_hif4;       /* 1: TGEMV_MX* does not take HiF4X2 */
  int32_t lenient_bits;       /* 1: bits 8:7 of a source-only B.IOT are ignored */
  uint32_t scalar_pe;         /* 0 to 3: whose GPRs B.DIM reads */
  int32_t accumulation;       /* an accumulation profile */
  int32_t profile;            /* a conversion profile */
  uint32_t reserved[3];
} bitcube_core_options;

BITCUBE_API bitcube_status bitcube_core_new(const bitcube_core_options* options, bitcube_core** core);
/* Another core in the same state. */
BITCUBE_API bitcube_status bitcube_core_copy(const bitcube_core* core, bitcube_core** copy);
BITCUBE_API void bitcube_core_free(bitcube_core* core);

/* Why the machine refused. */
typedef struct bitcube_fault {
  int32_t fault_class;    /* BITCUBE_FAULT_CLASSES; 0: no fault */
  int32_t pe;             /* whose check failed; -1: the core's */
  const char* class_name; /* "TileLegality"; "" without fault */
  const char* rule;       /* "C5"; "" without fault */
  char text[512];         /* one sentence, cut at 511 bytes; "" without fault */
} bitcube_fault;

/* What one step did. A fault is a result, not an error: the call returns BITCUBE_OK. */
typedef struct bitcube_outcome {
  bitcube_fault fault;
  int32_t waiting_for;    /* the Shared Tile that the bundle waits for, or -1 */
  int32_t header_changed; /* a command went into the header */
  int32_t completed;      /* the active bundle completed */
  int32_t started;        /* a new bundle was installed */
  uint32_t flags;         /* raised by the bundle */
  uint32_t reserved;
  size_t tiles;  /* Local Tiles that were published */
  size_t stores; /* memory elements that were written */
} bitcube_outcome;

/* Executes one instruction word at TPC: 16 and 32 bit forms use the low bits. */
BITCUBE_API bitcube_status bitcube_core_step(bitcube_core* core, uint64_t word, bitcube_outcome* outcome);
/* Fetches the instruction at TPC and executes it. */
BITCUBE_API bitcube_status bitcube_core_step_at_tpc(bitcube_core* core, bitcube_outcome* outcome);

/* A program with directives (docs/programs.md); it never changes. */
typedef struct bitcube_program bitcube_program;

/* From a text; files that it names are found in `directory`, NULL for the current one. BITCUBE_REFUSED: the message
 * starts with "NAME:LINE:COLUMN: ". `name` may be NULL. */
BITCUBE_API bitcube_status bitcube_program_new(const char* text, const char* name, const char* directory,
                                               bitcube_program** program);
/* From the bytes of instruction words. */
BITCUBE_API bitcube_status bitcube_program_from_words(const void* bytes, size_t size, bitcube_program** program);
/* From a file of either kind. */
BITCUBE_API bitcube_status bitcube_program_load(const char* path, bitcube_program** program);
BITCUBE_API void bitcube_program_free(bitcube_program* program);
/* The bytes of the program, which belong to it, and the address of the first. Each of the three outputs may be NULL. */
BITCUBE_API bitcube_status bitcube_program_bytes(const bitcube_program* program, const uint8_t** bytes, size_t* size,
                                                 uint64_t* origin);

enum {
  BITCUBE_RUN_COMPLETED = 0, /* control reached the end of the program */
  BITCUBE_RUN_FAULT = 1,     /* a fault that no expectation asked for */
  BITCUBE_RUN_WAITING = 2,   /* the bundle waits for a Shared Tile, and nothing will make it ready */
  BITCUBE_RUN_LIMIT = 3,     /* max_steps */
  BITCUBE_RUN_CUT_OFF = 4    /* the end of the program falls inside a word */
};

typedef struct bitcube_run_result {
  int32_t end; /* BITCUBE_RUN_COMPLETED to BITCUBE_RUN_CUT_OFF */
  int32_t ok;  /* 1: it completed, and every expectation holds */
  uint64_t steps;
  uint64_t bundles; /* that completed */
  uint64_t pc;      /* of the instruction where it ended */
  int32_t line;     /* of the text; 0: the program has none, or the run completed */
  int32_t column;
  int32_t waiting_for; /* with BITCUBE_RUN_WAITING, otherwise -1 */
  int32_t reserved;
  size_t expectations; /* that were reached */
  size_t failed;       /* of these */
  size_t not_reached;
  bitcube_fault fault;   /* with BITCUBE_RUN_FAULT */
  int32_t failed_line;   /* of the first expectation that does not hold, or 0 */
  int32_t failed_column; /* or 0 */
  char failed_text[512]; /* what was found instead, cut at 511 bytes, or "" */
} bitcube_run_result;

/* Puts the program into the memory of the core and runs it from its first word. max_steps 0: ten millions. However the
 * run ends, the call returns BITCUBE_OK. After another status, as after one of a step, the state of the core is valid
 * but not defined. */
BITCUBE_API bitcube_status bitcube_core_run(bitcube_core* core, const bitcube_program* program, uint64_t max_steps,
                                            bitcube_run_result* result);

/* In place of a PE: the Shared Tiles S0 to S63. */
enum { BITCUBE_SHARED = -1 };

typedef struct bitcube_tile {
  int32_t type;
  int32_t layout;
  uint32_t valid_rows;
  uint32_t valid_columns;
  uint32_t rows;    /* physical */
  uint32_t columns; /* physical */
  uint32_t capacity_bytes;
  int32_t defined;        /* 1: every valid element has been written */
  uint32_t element_bytes; /* of a word; a 4-bit lane has a byte of its own */
  uint32_t ready;         /* Shared: whether it is ready and published; Local: 1 */
  size_t bytes;           /* of the valid region: valid_rows * valid_columns * element_bytes */
} bitcube_tile;

/* The Tile of a register: pe 0 to 3 with "T#1" to "N#16", or BITCUBE_SHARED with "S0" to "S63". BITCUBE_UNKNOWN: no
 * such register, or it holds no Tile. */
BITCUBE_API bitcube_status bitcube_core_tile(const bitcube_core* core, int32_t pe, const char* name,
                                             bitcube_tile* tile);
/* Its valid region, row by row, `bytes` of bitcube_tile exactly. Elements that are not defined read as their bits. */
BITCUBE_API bitcube_status bitcube_core_read_tile(const bitcube_core* core, int32_t pe, const char* name, void* out,
                                                  size_t bytes);
/* Puts a Tile with this valid region into a register; a Shared one is published. The capacity is the smallest that
 * holds it. BITCUBE_REFUSED: no such shape in this layout; BITCUBE_BAD_SIZE: `bytes` is not the size of the words. */
BITCUBE_API bitcube_status bitcube_core_write_tile(bitcube_core* core, int32_t pe, const char* name, int32_t type,
                                                   int32_t layout, uint32_t valid_rows, uint32_t valid_columns,
                                                   const void* words, size_t bytes);

/* Maps the pages of 4096 bytes that [address, address + size) touches; they take memory at once. Addresses wrap. */
BITCUBE_API bitcube_status bitcube_core_map(bitcube_core* core, uint64_t address, uint64_t size);
/* Maps what is missing and writes. */
BITCUBE_API bitcube_status bitcube_core_write(bitcube_core* core, uint64_t address, const void* bytes, size_t size);
/* BITCUBE_REFUSED: a page is not mapped. */
BITCUBE_API bitcube_status bitcube_core_read(const bitcube_core* core, uint64_t address, void* bytes, size_t size);

/* GPR 0 to 23 of PE 0 to 3; GPR 0 is 0 and ignores what is written. */
BITCUBE_API bitcube_status bitcube_core_gpr(const bitcube_core* core, int32_t pe, int32_t gpr, uint64_t* value);
BITCUBE_API bitcube_status bitcube_core_set_gpr(bitcube_core* core, int32_t pe, int32_t gpr, uint64_t value);
BITCUBE_API bitcube_status bitcube_core_tpc(const bitcube_core* core, uint64_t* tpc);
BITCUBE_API bitcube_status bitcube_core_set_tpc(bitcube_core* core, uint64_t tpc);
/* The sticky status flags. */
BITCUBE_API bitcube_status bitcube_core_flags(const bitcube_core* core, uint32_t* flags);
BITCUBE_API bitcube_status bitcube_core_set_flags(bitcube_core* core, uint32_t flags);

#ifdef __cplusplus
}
#endif

#endif /* BITCUBE_H */
