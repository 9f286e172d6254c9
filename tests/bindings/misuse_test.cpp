// The C interface in wrong hands: NULL, wrong sizes, unknown codes, and memory that runs out at any allocation.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "bitcube.h"
#include "bitcube_dpi.h"

namespace {

std::atomic<long> allocations_left{-1};  // negative: as many as there is memory for

void* allocate(std::size_t size, std::size_t alignment) {
  if (allocations_left.load() >= 0 && allocations_left.fetch_sub(1) == 0) {
    allocations_left = 0;  // from now on there is none
    return nullptr;
  }
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  return alignment <= alignof(std::max_align_t) ? std::malloc(size == 0 ? 1 : size)
                                                : std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}
void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The library takes these, as it would take those of any program.
void* operator new(std::size_t size) {
  return allocate_or_throw(size, 1);
}
void* operator new[](std::size_t size) {
  return allocate_or_throw(size, 1);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, 1);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace {

constexpr const char* kProgram = R"(
.tile 0 T#1 CUBE_M16 FP16 2 3 = 1 2 3  4 5 6
.tile 0 T#2 CUBE_N8  FP16 3 2 = 1 2  3 4  5 6
BSTART.TMATMUL FP16
B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 0, 0
B.DIM zero, 2, ->LB0
B.DIM zero, 2, ->LB1
B.DIM zero, 3, ->LB2
B.IOT T#1, T#2, mask=1000, <last>, ->U<1>
BSTOP
.expect tile 0 U#1 CUBE_M16 FP32 2 2 == 22 28 49 64
)";

/// Everything that the calls below need, made once, right.
class Misuse : public testing::Test {
 protected:
  void SetUp() override {
    for (std::size_t i = 0; i < lanes_.size(); ++i) lanes_[i] = static_cast<float>(i) / 8;
    ASSERT_EQ(bitcube_quantize(BITCUBE_FP32, lanes_.data(), 4 * lanes_.size(), shape_.data(), 2, 1, nullptr, &tensor_),
              BITCUBE_OK);
    ASSERT_EQ(bitcube_core_new(nullptr, &core_), BITCUBE_OK);
    ASSERT_EQ(bitcube_program_new(kProgram, "w", nullptr, &program_), BITCUBE_OK) << bitcube_last_error();
    ASSERT_EQ(bitcube_core_write_tile(core_, 0, "T#1", BITCUBE_U8, BITCUBE_ROW_MAJOR, 1, 4, "abcd", 4), BITCUBE_OK);
    a_.type = b_.type = BITCUBE_FP32;
    a_.rows = b_.cols = 2;
    a_.cols = b_.rows = 4;
    a_.words = b_.words = lanes_.data();
    a_.word_bytes = b_.word_bytes = 32;
    output_.d = words_.data();
    output_.d_bytes = 16;
  }
  void TearDown() override {
    bitcube_tensor_free(tensor_);
    bitcube_core_free(core_);
    bitcube_program_free(program_);
  }

  std::array<float, 128> lanes_{};
  std::array<uint64_t, 2> shape_{2, 64};
  std::array<uint32_t, 256> words_{};
  bitcube_tensor* tensor_ = nullptr;
  bitcube_core* core_ = nullptr;
  bitcube_program* program_ = nullptr;
  bitcube_operand a_{};
  bitcube_operand b_{};
  bitcube_postprocess_output output_{};
  uint64_t u64_ = 0;
  uint32_t u32_ = 0;
  std::size_t size_ = 0;
};

// A call, and the argument that is NULL.
#define EXPECT_NULL(call, name)                   \
  EXPECT_EQ(call, BITCUBE_BAD_ARGUMENT) << #call; \
  EXPECT_STREQ(bitcube_last_error(), name ": NULL")
#define EXPECT_STATUS(status, call, text) \
  EXPECT_EQ(call, status) << #call;       \
  EXPECT_STREQ(bitcube_last_error(), text)

TEST_F(Misuse, SourcesOfTensors) {
  // A tensor from its parts has a source from which one can be quantised.
  const std::vector<std::byte> words(8 * 64);
  const std::array<std::uint64_t, 1> shape{64};
  bitcube_tensor* made = nullptr;
  ASSERT_EQ(bitcube_quantize(BITCUBE_FP32, words.data(), 4 * 64, shape.data(), 1, 0, nullptr, &made), BITCUBE_OK);
  bitcube_tensor_info info{};
  ASSERT_EQ(bitcube_tensor_describe(made, &info), BITCUBE_OK);
  int sources = 0;
  for (int32_t code = 0; code < 32; ++code) {
    bitcube_format format{};
    if (bitcube_format_of(code, &format) != BITCUBE_OK) continue;
    info.source = code;
    bitcube_tensor* quantised = nullptr;
    bitcube_tensor* again = nullptr;
    const bool is_source =
        bitcube_quantize(info.source, words.data(), 64 * static_cast<std::size_t>(format.carrier_bits) / 8,
                         shape.data(), 1, 0, nullptr, &quantised) == BITCUBE_OK;
    EXPECT_EQ(bitcube_tensor_new(&info, shape.data(), bitcube_tensor_codes(made), bitcube_tensor_scales(made), &again),
              is_source ? BITCUBE_OK : BITCUBE_REFUSED)
        << code;
    sources += is_source;
    bitcube_tensor_free(quantised);
    bitcube_tensor_free(again);
  }
  EXPECT_GE(sources, 4);
  bitcube_tensor* again = nullptr;
  info.source = BITCUBE_S8;
  EXPECT_STATUS(
      BITCUBE_REFUSED,
      bitcube_tensor_new(&info, shape.data(), bitcube_tensor_codes(made), bitcube_tensor_scales(made), &again),
      "source S8: is not a float of whole bytes");
  bitcube_tensor_free(made);
}

TEST_F(Misuse, Null) {
  EXPECT_NULL(bitcube_table_entry(0, 0, nullptr), "entry");
  EXPECT_NULL(bitcube_find(0, nullptr, reinterpret_cast<int32_t*>(&u32_)), "name");
  EXPECT_NULL(bitcube_find(0, "fp32", nullptr), "code");
  EXPECT_NULL(bitcube_format_of(0, nullptr), "format");
  EXPECT_NULL(bitcube_block_format_of(0, nullptr), "info");
  EXPECT_NULL(bitcube_prequant_of(0, nullptr), "info");
  EXPECT_NULL(bitcube_convert(1, 4, 0, nullptr, nullptr, nullptr), "code");
  EXPECT_NULL(bitcube_convert_array(1, 4, nullptr, 1, nullptr, words_.data(), 2, nullptr), "words");
  EXPECT_NULL(bitcube_convert_array(1, 4, words_.data(), 1, nullptr, nullptr, 2, nullptr), "out");
  bitcube_tensor* tensor = nullptr;
  EXPECT_NULL(bitcube_quantize(1, nullptr, 4, shape_.data(), 2, 0, nullptr, &tensor), "words");
  EXPECT_NULL(bitcube_quantize(1, words_.data(), 4, nullptr, 2, 0, nullptr, &tensor), "shape");
  EXPECT_NULL(bitcube_quantize(1, words_.data(), 4, shape_.data(), 2, 0, nullptr, nullptr), "tensor");
  // An absurd number of dimensions is refused before any of them is read.
  for (const std::size_t rank : {std::size_t{65}, std::size_t{1} << 61, ~std::size_t{0}}) {
    EXPECT_EQ(bitcube_quantize(1, words_.data(), 4, shape_.data(), rank, 0, nullptr, &tensor), BITCUBE_BAD_SIZE);
    bitcube_tensor_info info{};
    info.rank = rank;
    EXPECT_EQ(bitcube_tensor_new(&info, shape_.data(), nullptr, nullptr, &tensor), BITCUBE_BAD_SIZE);
  }
  bitcube_tensor_info info{};
  ASSERT_EQ(bitcube_tensor_describe(tensor_, &info), BITCUBE_OK);
  EXPECT_NULL(bitcube_tensor_new(nullptr, shape_.data(), words_.data(), words_.data(), &tensor), "info");
  EXPECT_NULL(bitcube_tensor_new(&info, nullptr, words_.data(), words_.data(), &tensor), "shape");
  EXPECT_NULL(bitcube_tensor_new(&info, shape_.data(), nullptr, words_.data(), &tensor), "codes");
  EXPECT_NULL(bitcube_tensor_new(&info, shape_.data(), words_.data(), nullptr, &tensor), "scales");
  EXPECT_NULL(bitcube_tensor_new(&info, shape_.data(), words_.data(), words_.data(), nullptr), "tensor");
  EXPECT_NULL(bitcube_tensor_describe(nullptr, &info), "tensor");
  EXPECT_NULL(bitcube_tensor_describe(tensor_, nullptr), "info");
  EXPECT_NULL(bitcube_tensor_shape(nullptr, shape_.data(), 2), "tensor");
  EXPECT_NULL(bitcube_tensor_shape(tensor_, nullptr, 2), "shape");
  EXPECT_EQ(bitcube_tensor_codes(nullptr), nullptr);
  EXPECT_EQ(bitcube_tensor_scales(nullptr), nullptr);
  EXPECT_NULL(bitcube_dequantize(nullptr, 1, nullptr, words_.data(), 512, nullptr), "tensor");
  EXPECT_NULL(bitcube_dequantize(tensor_, 1, nullptr, nullptr, 512, nullptr), "out");
  bitcube_product_kind kind{};
  EXPECT_NULL(bitcube_product_of(nullptr, &b_, &kind), "A");
  EXPECT_NULL(bitcube_product_of(&a_, nullptr, &kind), "B");
  EXPECT_NULL(bitcube_product_of(&a_, &b_, nullptr), "kind");
  EXPECT_NULL(bitcube_matmul(nullptr, &b_, nullptr, words_.data(), 4), "A");
  EXPECT_NULL(bitcube_matmul(&a_, nullptr, nullptr, words_.data(), 4), "B");
  EXPECT_NULL(bitcube_matmul(&a_, &b_, nullptr, nullptr, 4), "out");
  bitcube_operand broken = a_;
  broken.words = nullptr;
  EXPECT_NULL(bitcube_matmul(&broken, &b_, nullptr, words_.data(), 4), "A: words");
  EXPECT_NULL(bitcube_scale_carrier(24, 0x1FC00, 0, nullptr), "carrier");
  EXPECT_NULL(bitcube_shift_carrier(13, 1, nullptr), "carrier");
  bitcube_postprocess_sizes sizes{};
  EXPECT_NULL(bitcube_postprocess_check(1, 2, 2, nullptr, nullptr), "sizes");
  EXPECT_NULL(bitcube_postprocess(1, nullptr, 2, 2, nullptr, &output_, nullptr), "words");
  EXPECT_NULL(bitcube_postprocess(1, words_.data(), 2, 2, nullptr, nullptr, nullptr), "output");
  bitcube_postprocess_options options{};
  options.carrier_count = 1;
  EXPECT_NULL(bitcube_postprocess_check(1, 2, 2, &options, &sizes), "carriers");
  options.carrier_count = 0;
  options.alpha_count = 1;
  EXPECT_NULL(bitcube_postprocess_check(1, 2, 2, &options, &sizes), "alphas");
  bitcube_postprocess_output output = output_;
  output.d = nullptr;
  EXPECT_NULL(bitcube_postprocess(1, words_.data(), 2, 2, nullptr, &output, nullptr), "d");
  EXPECT_NULL(bitcube_pack_rows(nullptr, 2, 2, words_.data(), 2), "d");
  EXPECT_NULL(bitcube_pack_rows(words_.data(), 2, 2, nullptr, 2), "out");
  EXPECT_NULL(bitcube_assemble(nullptr, nullptr, &size_), "text");
  EXPECT_NULL(bitcube_assemble("BSTOP", nullptr, nullptr), "size");
  char text[64];
  EXPECT_NULL(bitcube_disassemble(nullptr, 2, text, sizeof text, nullptr), "bytes");
  EXPECT_NULL(bitcube_disassemble("ab", 2, nullptr, 0, nullptr), "text");
  bitcube_core* core = nullptr;
  EXPECT_NULL(bitcube_core_new(nullptr, nullptr), "core");
  EXPECT_NULL(bitcube_core_copy(nullptr, &core), "core");
  EXPECT_NULL(bitcube_core_copy(core_, nullptr), "copy");
  bitcube_outcome outcome{};
  EXPECT_NULL(bitcube_core_step(nullptr, 0, &outcome), "core");
  EXPECT_NULL(bitcube_core_step(core_, 0, nullptr), "outcome");
  EXPECT_NULL(bitcube_core_step_at_tpc(nullptr, &outcome), "core");
  EXPECT_NULL(bitcube_core_step_at_tpc(core_, nullptr), "outcome");
  bitcube_program* program = nullptr;
  EXPECT_NULL(bitcube_program_new(nullptr, nullptr, nullptr, &program), "text");
  EXPECT_NULL(bitcube_program_new("", nullptr, nullptr, nullptr), "program");
  EXPECT_NULL(bitcube_program_from_words(nullptr, 2, &program), "bytes");
  EXPECT_NULL(bitcube_program_from_words("ab", 2, nullptr), "program");
  EXPECT_NULL(bitcube_program_load(nullptr, &program), "path");
  EXPECT_NULL(bitcube_program_load("x", nullptr), "program");
  EXPECT_NULL(bitcube_program_bytes(nullptr, nullptr, nullptr, nullptr), "program");
  bitcube_run_result result{};
  EXPECT_NULL(bitcube_core_run(nullptr, program_, 0, &result), "core");
  EXPECT_NULL(bitcube_core_run(core_, nullptr, 0, &result), "program");
  EXPECT_NULL(bitcube_core_run(core_, program_, 0, nullptr), "result");
  bitcube_tile tile{};
  EXPECT_NULL(bitcube_core_tile(nullptr, 0, "T#1", &tile), "core");
  EXPECT_NULL(bitcube_core_tile(core_, 0, nullptr, &tile), "name");
  EXPECT_NULL(bitcube_core_tile(core_, 0, "T#1", nullptr), "tile");
  EXPECT_NULL(bitcube_core_read_tile(nullptr, 0, "T#1", text, 4), "core");
  EXPECT_NULL(bitcube_core_read_tile(core_, 0, nullptr, text, 4), "name");
  EXPECT_NULL(bitcube_core_read_tile(core_, 0, "T#1", nullptr, 4), "out");
  EXPECT_NULL(bitcube_core_write_tile(nullptr, 0, "T#1", BITCUBE_U8, 0, 1, 4, text, 4), "core");
  EXPECT_NULL(bitcube_core_write_tile(core_, 0, nullptr, BITCUBE_U8, 0, 1, 4, text, 4), "name");
  EXPECT_NULL(bitcube_core_write_tile(core_, 0, "T#1", BITCUBE_U8, 0, 1, 4, nullptr, 4), "words");
  EXPECT_NULL(bitcube_core_map(nullptr, 0, 1), "core");
  EXPECT_NULL(bitcube_core_write(nullptr, 0, text, 1), "core");
  EXPECT_NULL(bitcube_core_write(core_, 0, nullptr, 1), "bytes");
  EXPECT_NULL(bitcube_core_read(nullptr, 0, text, 1), "core");
  EXPECT_NULL(bitcube_core_read(core_, 0, nullptr, 1), "bytes");
  EXPECT_NULL(bitcube_core_gpr(nullptr, 0, 1, &u64_), "core");
  EXPECT_NULL(bitcube_core_gpr(core_, 0, 1, nullptr), "value");
  EXPECT_NULL(bitcube_core_set_gpr(nullptr, 0, 1, 1), "core");
  EXPECT_NULL(bitcube_core_tpc(nullptr, &u64_), "core");
  EXPECT_NULL(bitcube_core_tpc(core_, nullptr), "tpc");
  EXPECT_NULL(bitcube_core_set_tpc(nullptr, 1), "core");
  EXPECT_NULL(bitcube_core_flags(nullptr, &u32_), "core");
  EXPECT_NULL(bitcube_core_flags(core_, nullptr), "flags");
  EXPECT_NULL(bitcube_core_set_flags(nullptr, 1), "core");
  EXPECT_NULL(bitcube_dpi_convert(1, 4, 0, 0, 0, 0, nullptr, &u32_), "code");
  EXPECT_NULL(bitcube_dpi_postprocess(0, 1, 0, 0, 0, 0, 0, 0, 0, nullptr, &u32_), "code");
  EXPECT_NULL(bitcube_dpi_mac(1, 0, 1, 0, 0, 0, nullptr), "out");
  EXPECT_NULL(bitcube_dpi_quantize_hif4(nullptr, 0, words_.data(), &u32_), "words");
  EXPECT_NULL(bitcube_dpi_quantize_hif4(words_.data(), 0, nullptr, &u32_), "codes");
  EXPECT_NULL(bitcube_dpi_quantize_hif4(words_.data(), 0, words_.data(), nullptr), "scale");
  bitcube_tensor_free(nullptr);
  bitcube_core_free(nullptr);
  bitcube_program_free(nullptr);
  // Memory of 0 bytes needs no address, and nobody has to want the flags.
  EXPECT_EQ(bitcube_convert_array(1, 4, nullptr, 0, nullptr, nullptr, 0, nullptr), BITCUBE_OK);
  EXPECT_EQ(bitcube_core_write(core_, 0, nullptr, 0), BITCUBE_OK);
  EXPECT_EQ(bitcube_core_read(core_, 0, nullptr, 0), BITCUBE_OK);
}

TEST_F(Misuse, CodesAndNames) {
  int32_t code = 5;
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_find(BITCUBE_TYPES, "fp33", &code), "'fp33': table 0 has no such name");
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_find(77, "fp32", &code), "there is no table 77");
  EXPECT_EQ(code, 5);
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_convert(-1, 1, 0, nullptr, &u64_, nullptr),
                "from: there is no type with code -1");
  bitcube_control control{};
  control.rounding = 8;
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_convert(1, 4, 0, &control, &u64_, nullptr),
                "rounding: 8, but the codes are 0 to 7");
  control.rounding = -1;
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_convert(1, 4, 0, &control, &u64_, nullptr),
                "rounding: -1, but the codes are 0 to 7");
  control = {};
  control.saturate = 2;
  EXPECT_STATUS(BITCUBE_BAD_ARGUMENT, bitcube_convert(1, 4, 0, &control, &u64_, nullptr),
                "control.saturate: 2, but it is 0 or 1");
  control = {};
  control.profile = 3;
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_convert(1, 4, 0, &control, &u64_, nullptr),
                "profile: 3, but the codes are 0 to 2");
  control = {};
  control.reference = -1;
  EXPECT_STATUS(BITCUBE_BAD_ARGUMENT, bitcube_convert(1, 4, 0, &control, &u64_, nullptr),
                "reference: -1, but it is 0 or 1");
  control = {};
  control.reserved[2] = 1;
  EXPECT_STATUS(BITCUBE_BAD_ARGUMENT, bitcube_convert(1, 4, 0, &control, &u64_, nullptr),
                "control.reserved: 1, but it must be 0");
  control = {};
  control.saturate = 1;
  EXPECT_STATUS(BITCUBE_BAD_ARGUMENT, bitcube_dequantize(tensor_, 1, &control, words_.data(), 512, nullptr),
                "control.saturate: 1, but it must be 0");
  bitcube_quantize_options quantize{};
  bitcube_tensor* tensor = nullptr;
  quantize.format = 8;
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_quantize(1, lanes_.data(), 512, shape_.data(), 2, 1, &quantize, &tensor),
                "format: 8, but the codes are 0 to 7");
  quantize = {};
  quantize.hif4_profile = -1;
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_quantize(1, lanes_.data(), 512, shape_.data(), 2, 1, &quantize, &tensor),
                "hif4_profile: -1, but the codes are 0 to 4");
  EXPECT_EQ(tensor, nullptr);
  bitcube_matmul_options matmul{};
  matmul.accumulation = 5;
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_matmul(&a_, &b_, &matmul, words_.data(), 4),
                "accumulation: 5, but the codes are 0 to 4");
  matmul = {};
  matmul.c_words = 4;
  EXPECT_STATUS(BITCUBE_BAD_ARGUMENT, bitcube_matmul(&a_, &b_, &matmul, words_.data(), 4),
                "c_words without c: 4, but it must be 0");
  bitcube_operand operand = a_;
  operand.tensor = tensor_;
  EXPECT_STATUS(BITCUBE_BAD_ARGUMENT, bitcube_matmul(&operand, &b_, nullptr, words_.data(), 4),
                "A: a tensor says all the rest itself, which must be 0");
  bitcube_postprocess_options postprocess{};
  bitcube_postprocess_sizes sizes{};
  postprocess.mode = 6;
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_postprocess_check(1, 2, 2, &postprocess, &sizes), "mode: code 6 is reserved");
  postprocess = {};
  postprocess.relu = 4;
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_postprocess_check(1, 2, 2, &postprocess, &sizes), "relu: 4, but it is 0 to 3");
  EXPECT_STATUS(BITCUBE_BAD_ARGUMENT, bitcube_postprocess_check(BITCUBE_FP16, 2, 2, nullptr, &sizes),
                "accumulator: FP16, but it is FP32, S32 or U32");
  EXPECT_STATUS(BITCUBE_REFUSED, bitcube_dpi_postprocess(0, 1, 0, 0x40, 0, 0, 0, 0, 0, &u64_, &u32_),
                "F5: quantisation parameter was given, but the mode takes none");
  bitcube_core_options core_options{};
  bitcube_core* core = nullptr;
  core_options.scalar_pe = 4;
  EXPECT_STATUS(BITCUBE_BAD_ARGUMENT, bitcube_core_new(&core_options, &core), "scalar_pe: 4, but the PEs are 0 to 3");
  EXPECT_EQ(core, nullptr);
  bitcube_tile tile{};
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_core_tile(core_, 4, "T#1", &tile), "pe: 4, but the PEs are 0 to 3");
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_core_tile(core_, -2, "T#1", &tile), "pe: -2, but the PEs are 0 to 3");
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_core_tile(core_, 0, "S1", &tile),
                "'S1' is no Local Tile register; they are T#1 to T#16, U#1 to U#16, M#1 to M#16, N#1 to N#16");
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_core_tile(core_, BITCUBE_SHARED, "S64", &tile),
                "'S64' is no Shared Tile register; they are S0 to S63");
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_core_tile(core_, 0, "T#2", &tile), "T#2 holds no Tile");
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_core_write_tile(core_, 0, "T#1", BITCUBE_U8, 7, 1, 4, "abcd", 4),
                "there is no layout with code 7");
  const std::vector<uint8_t> many(70000);
  EXPECT_EQ(bitcube_core_write_tile(core_, 0, "T#1", BITCUBE_U8, 0, 1, 70000, many.data(), many.size()),
            BITCUBE_REFUSED);
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_core_gpr(core_, 0, 24, &u64_), "gpr: 24, but the GPRs are 0 to 23");
  EXPECT_STATUS(BITCUBE_UNKNOWN, bitcube_core_set_gpr(core_, 4, 1, 1), "pe: 4, but the PEs are 0 to 3");
  EXPECT_STATUS(BITCUBE_BAD_ARGUMENT, bitcube_core_set_flags(core_, 0x20), "flags: 0x20, but they are five bits");
}

TEST_F(Misuse, Sizes) {
  EXPECT_STATUS(BITCUBE_BAD_SIZE, bitcube_convert_array(1, 4, words_.data(), 4, nullptr, words_.data(), 9, nullptr),
                "out: bytes: 9, but 8 are needed");
  EXPECT_EQ(bitcube_convert_array(1, 4, words_.data(), SIZE_MAX / 2, nullptr, words_.data(), 8, nullptr),
            BITCUBE_BAD_SIZE);
  bitcube_tensor* tensor = nullptr;
  EXPECT_EQ(bitcube_quantize(1, lanes_.data(), 508, shape_.data(), 2, 1, nullptr, &tensor), BITCUBE_REFUSED);
  EXPECT_STATUS(BITCUBE_BAD_SIZE, bitcube_tensor_shape(tensor_, shape_.data(), 3),
                "shape: dimensions: 3, but 2 are needed");
  EXPECT_STATUS(BITCUBE_BAD_SIZE, bitcube_dequantize(tensor_, 1, nullptr, words_.data(), 508, nullptr),
                "out: bytes: 508, but 512 are needed");
  bitcube_operand operand = a_;
  operand.word_bytes = 31;
  EXPECT_STATUS(BITCUBE_BAD_SIZE, bitcube_matmul(&operand, &b_, nullptr, words_.data(), 4),
                "A: word_bytes: 31, but 32 are needed");
  operand = b_;
  operand.scales = words_.data();
  operand.scale_bytes = 3;
  EXPECT_STATUS(BITCUBE_BAD_SIZE, bitcube_matmul(&a_, &operand, nullptr, words_.data(), 4),
                "B: scale_bytes: 3, but 2 are needed");
  operand.scales = nullptr;
  EXPECT_STATUS(BITCUBE_BAD_SIZE, bitcube_matmul(&a_, &operand, nullptr, words_.data(), 4),
                "B: scale_bytes: 3, but 0 are needed");
  operand = a_;
  operand.rows = SIZE_MAX;
  EXPECT_STATUS(BITCUBE_BAD_SIZE, bitcube_matmul(&operand, &b_, nullptr, words_.data(), 4),
                "A: more than memory can hold");
  EXPECT_STATUS(BITCUBE_BAD_SIZE, bitcube_matmul(&a_, &b_, nullptr, words_.data(), 5),
                "out: words: 5, but 4 are needed");
  bitcube_postprocess_output output = output_;
  output.d_bytes = 15;
  EXPECT_STATUS(BITCUBE_BAD_SIZE, bitcube_postprocess(1, words_.data(), 2, 2, nullptr, &output, nullptr),
                "d: bytes: 15, but 16 are needed");
  output = output_;
  output.row_max_words = 2;
  EXPECT_STATUS(BITCUBE_BAD_SIZE, bitcube_postprocess(1, words_.data(), 2, 2, nullptr, &output, nullptr),
                "row_max: words: 2, but 0 are needed");
  EXPECT_STATUS(BITCUBE_BAD_SIZE, bitcube_postprocess(1, words_.data(), SIZE_MAX, 2, nullptr, &output, nullptr),
                "D: more than memory can hold");
  char text[4];
  EXPECT_EQ(bitcube_disassemble("\0\0", 2, text, 0, nullptr), BITCUBE_BAD_SIZE);
  EXPECT_STATUS(BITCUBE_BAD_SIZE, bitcube_disassemble("", 0, text, 4, nullptr), "bytes: none");
  EXPECT_STATUS(BITCUBE_BAD_SIZE, bitcube_core_read_tile(core_, 0, "T#1", text, 3), "out: bytes: 3, but 4 are needed");
  EXPECT_STATUS(BITCUBE_BAD_SIZE, bitcube_core_write_tile(core_, 0, "T#1", BITCUBE_U8, 0, 1, 4, "abcde", 5),
                "words: bytes: 5, but 4 are needed");
}

/// Runs a call with 0, 1, 2, ... allocations until it succeeds: before that it must say that there is no memory.
long expect_no_crash(const char* what, const std::function<bitcube_status()>& call) {
  for (long n = 0; n < 100000; ++n) {
    allocations_left = n;
    const bitcube_status status = call();
    allocations_left = -1;
    if (status == BITCUBE_OK) return n;
    EXPECT_EQ(status, BITCUBE_NO_MEMORY) << what << " after " << n << " allocations: " << bitcube_last_error();
    if (status != BITCUBE_NO_MEMORY) return -1;
  }
  ADD_FAILURE() << what << " never succeeds";
  return -1;
}

TEST_F(Misuse, MemoryRunsOut) {
  EXPECT_GT(expect_no_crash("quantize",
                            [&] {
                              bitcube_tensor* made = nullptr;
                              const auto status = bitcube_quantize(BITCUBE_FP32, lanes_.data(), 512, shape_.data(), 2,
                                                                   1, nullptr, &made);
                              EXPECT_EQ(made != nullptr, status == BITCUBE_OK);
                              bitcube_tensor_free(made);
                              return status;
                            }),
            2);
  bitcube_tensor_info info{};
  ASSERT_EQ(bitcube_tensor_describe(tensor_, &info), BITCUBE_OK);
  EXPECT_GT(expect_no_crash("tensor_new",
                            [&] {
                              bitcube_tensor* made = nullptr;
                              const auto status =
                                  bitcube_tensor_new(&info, shape_.data(), bitcube_tensor_codes(tensor_),
                                                     bitcube_tensor_scales(tensor_), &made);
                              bitcube_tensor_free(made);
                              return status;
                            }),
            2);
  std::array<uint32_t, 128> out{};
  EXPECT_GT(
      expect_no_crash("dequantize",
                      [&] { return bitcube_dequantize(tensor_, BITCUBE_FP32, nullptr, out.data(), 512, nullptr); }),
      0);
  for (const int32_t reference : {0, 1}) {
    bitcube_control control{};
    control.reference = reference;
    expect_no_crash("convert_array", [&] {
      return bitcube_convert_array(BITCUBE_FP32, BITCUBE_E4M3, lanes_.data(), 128, &control, out.data(), 128, nullptr);
    });
    bitcube_matmul_options matmul{};
    matmul.reference = reference;
    EXPECT_GT(expect_no_crash("matmul", [&] { return bitcube_matmul(&a_, &b_, &matmul, out.data(), 4); }), 0);
    bitcube_postprocess_options postprocess{};
    postprocess.reference = reference;
    EXPECT_GT(
        expect_no_crash(
            "postprocess",
            [&] { return bitcube_postprocess(BITCUBE_FP32, words_.data(), 2, 2, &postprocess, &output_, nullptr); }),
        0);
  }
  EXPECT_GT(expect_no_crash("pack_rows", [&] { return bitcube_pack_rows(words_.data(), 2, 3, out.data(), 4); }), 0);
  EXPECT_GT(expect_no_crash("assemble",
                            [&] {
                              size_ = 0;
                              return bitcube_assemble("BSTART.TMATMUL FP16\nBSTOP\n", nullptr, &size_);
                            }),
            0);
  char text[64];
  EXPECT_GT(expect_no_crash("disassemble",
                            [&] { return bitcube_disassemble("\x81\x11\x53\x38", 4, text, sizeof text, nullptr); }),
            0);
  EXPECT_GT(expect_no_crash("program_new",
                            [&] {
                              bitcube_program* made = nullptr;
                              const auto status = bitcube_program_new(kProgram, "w", nullptr, &made);
                              bitcube_program_free(made);
                              return status;
                            }),
            20);
  EXPECT_GT(expect_no_crash("core_run",
                            [&] {
                              bitcube_core* core = nullptr;
                              auto status = bitcube_core_new(nullptr, &core);
                              bitcube_run_result result{};
                              if (status == BITCUBE_OK) status = bitcube_core_run(core, program_, 0, &result);
                              EXPECT_EQ(result.ok == 1, status == BITCUBE_OK);
                              bitcube_core_free(core);
                              return status;
                            }),
            20);
  EXPECT_GT(expect_no_crash("core_copy",
                            [&] {
                              bitcube_core* copy = nullptr;
                              const auto status = bitcube_core_copy(core_, &copy);
                              bitcube_core_free(copy);
                              return status;
                            }),
            0);
  bitcube_outcome outcome{};
  EXPECT_GT(expect_no_crash("core_step", [&] { return bitcube_core_step(core_, 0xFFFFFFFF, &outcome); }), 0);
  EXPECT_NE(outcome.fault.fault_class, 0);
  EXPECT_GT(
      expect_no_crash(
          "write_tile",
          [&] { return bitcube_core_write_tile(core_, 0, "U#1", BITCUBE_U8, BITCUBE_CUBE_M16, 1, 4, "abcd", 4); }),
      0);
  EXPECT_GT(expect_no_crash("read_tile", [&] { return bitcube_core_read_tile(core_, 0, "U#1", text, 4); }), 0);
  uint64_t address = 0;
  EXPECT_GT(expect_no_crash("map", [&] { return bitcube_core_map(core_, address += 0x100000, 1); }), 0);
  EXPECT_GT(expect_no_crash("write", [&] { return bitcube_core_write(core_, address += 0x100000, "ab", 2); }), 0);
  EXPECT_GT(expect_no_crash("read", [&] { return bitcube_core_read(core_, address, text, 2); }), 0);
  EXPECT_GT(
      expect_no_crash(
          "dpi_mac",
          [&] { return static_cast<bitcube_status>(bitcube_dpi_mac(BITCUBE_FP32, 0, BITCUBE_FP32, 0, 0, 0, &u32_)); }),
      0);
}

}  // namespace
