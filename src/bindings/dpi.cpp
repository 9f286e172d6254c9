// The C interface in the flat form of SystemVerilog's DPI-C, made of nothing but the C interface.
#include "bitcube_dpi.h"

#include <cstring>
#include <memory>

#include "bindings/call.hpp"

using namespace bitcube::bindings;

int32_t bitcube_dpi_convert(int32_t from, int32_t to, uint64_t word, int32_t rounding, int32_t saturate,
                            int32_t profile, uint64_t* code, uint32_t* flags) {
  bitcube_control control{};
  control.rounding = rounding;
  control.saturate = saturate;
  control.profile = profile;
  return bitcube_convert(from, to, word, &control, code, flags);
}

int32_t bitcube_dpi_postprocess(int32_t mode, int32_t accumulator, uint32_t word, uint64_t carrier, int32_t relu,
                                uint64_t alpha, int32_t rounding, int32_t saturate, int32_t profile, uint64_t* code,
                                uint32_t* flags) {
  bitcube_prequant info{};
  if (const bitcube_status status = bitcube_prequant_of(mode, &info); status != BITCUBE_OK) return status;
  const bool has_carrier = info.carrier != BITCUBE_CARRIER_NONE;
  const bool has_alpha = relu == BITCUBE_RELU_SCALAR || relu == BITCUBE_RELU_PER_COLUMN;
  bitcube_postprocess_options options{};
  options.mode = mode;
  options.relu = relu;
  options.rounding = rounding;
  options.saturate = saturate;
  options.profile = profile;
  options.threads = 1;
  options.reference = 1;
  options.carriers = &carrier;
  options.carrier_count = has_carrier || carrier != 0 ? 1 : 0;
  options.alphas = &alpha;
  options.alpha_count = has_alpha || alpha != 0 ? 1 : 0;
  bitcube_postprocess_sizes sizes{};
  if (const bitcube_status status = bitcube_postprocess_check(accumulator, 1, 1, &options, &sizes);
      status != BITCUBE_OK) {
    return status;
  }
  return call([&] {
    require(code, "code");
    uint64_t element = 0;  // little-endian, at most four bytes
    bitcube_postprocess_output output{};
    output.d = &element;
    output.d_bytes = sizes.d_bytes;
    const bitcube_status status = bitcube_postprocess(accumulator, &word, 1, 1, &options, &output, flags);
    if (status != BITCUBE_OK) throw Failure{status};
    *code = element;
  });
}

int32_t bitcube_dpi_mac(int32_t type_a, uint64_t a, int32_t type_b, uint64_t b, uint32_t accumulator,
                        int32_t accumulation, uint32_t* result) {
  const auto operand = [](int32_t type, const uint64_t& word, bitcube_operand& out) {
    bitcube_format format{};
    const bitcube_status status = bitcube_format_of(type, &format);
    out = {};
    out.type = type;
    out.rows = out.cols = 1;
    out.words = &word;
    out.word_bytes = static_cast<size_t>(format.carrier_bits) / 8;
    return status;
  };
  bitcube_operand left;
  bitcube_operand right;
  if (const bitcube_status status = operand(type_a, a, left); status != BITCUBE_OK) return status;
  if (const bitcube_status status = operand(type_b, b, right); status != BITCUBE_OK) return status;
  bitcube_matmul_options options{};
  options.accumulation = accumulation;
  options.threads = 1;
  options.reference = 1;
  options.c = &accumulator;
  options.c_words = 1;
  return bitcube_matmul(&left, &right, &options, result, 1);
}

int32_t bitcube_dpi_quantize_hif4(const uint32_t* lanes, int32_t hif4_profile, uint32_t* codes, uint32_t* scale) {
  bitcube_quantize_options options{};
  options.format = BITCUBE_HIF4;
  options.hif4_profile = hif4_profile;
  options.threads = 1;
  constexpr uint64_t shape = 64;
  return call([&] {
    require(codes, "codes");
    require(scale, "scale");
    bitcube_tensor* tensor = nullptr;
    const bitcube_status status = bitcube_quantize(BITCUBE_FP32, lanes, 4 * shape, &shape, 1, 0, &options, &tensor);
    if (status != BITCUBE_OK) throw Failure{status};
    const std::unique_ptr<bitcube_tensor, decltype(&bitcube_tensor_free)> owner(tensor, &bitcube_tensor_free);
    std::memcpy(codes, bitcube_tensor_codes(tensor), shape / 2);
    std::memcpy(scale, bitcube_tensor_scales(tensor), sizeof *scale);
  });
}
