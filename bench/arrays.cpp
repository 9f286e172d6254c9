// Quantisers, dequantisers, conversions and post-process against memcpy of the bytes that they read and write, all on
// one thread, between buffers that exist already and do not fit the caches.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "bitcube/quantize/tensor.hpp"
#include "comparison.hpp"

namespace bitcube::bench {

namespace {

constexpr uint64 kRows = 4096;
constexpr uint64 kColumns = 8192;
constexpr uint64 kElements = kRows * kColumns;

using Bytes = std::vector<std::byte>;

/// Normally distributed FP32 or BF16 words; small integers for S32.
std::shared_ptr<Bytes> source_words(const Format& f, double scale = 1) {
  auto bytes = std::make_shared<Bytes>(kElements * f.carrier_bits / 8U);
  std::mt19937 random(3);
  std::normal_distribution<double> normal(0, scale);
  std::vector<std::uint32_t> some(1 << 16);
  for (std::uint32_t& w : some) {
    const double x = normal(random);
    w = f.is_integer() ? static_cast<std::uint32_t>(static_cast<std::int32_t>(x))
                       : std::bit_cast<std::uint32_t>(static_cast<float>(x));
    if (f.type == DataType::bf16) w >>= 16;
  }
  const std::size_t word = f.carrier_bits / 8U;
  for (uint64 i = 0; i < kElements; ++i) {  // a period that no vector or cache line shares
    std::memcpy(bytes->data() + i * word, &some[(i * 7919) % 65521], word);
  }
  return bytes;
}

std::function<void()> copy(std::size_t bytes) {
  auto from = std::make_shared<Bytes>(bytes, std::byte{1});
  auto to = std::make_shared<Bytes>(bytes, std::byte{2});
  return [=] { std::memcpy(to->data(), from->data(), bytes); };
}

/// Rates of `bytes` bytes a run.
Comparison against_memcpy(std::string name, double bytes, std::function<std::function<void()>()> ours) {
  return {std::move(name), "memcpy", "GB/s",
          bytes,           bytes,    [=] { return Comparison::Runs{ours(), copy(static_cast<std::size_t>(bytes))}; }};
}

Comparison quantiser(std::string name, std::string_view format, const Format& source, std::size_t axis) {
  const double bytes = static_cast<double>(kElements * source.carrier_bits / 8U);
  return against_memcpy(std::move(name), bytes, [=, &source]() -> std::function<void()> {
    const auto words = source_words(source);
    const BlockFormat& f = *find_block_format(format);
    const auto codes = std::make_shared<Bytes>(f.code_bytes(kElements));
    const auto scales = std::make_shared<Bytes>(kElements / f.group * f.scale_bytes());
    return [=, &source, &f] {
      const std::array<uint64, 2> shape{kRows, kColumns};
      const QuantizeOptions options{.format = &f, .execution = {.threads = 1}};
      check(quantize_lines(*words, source, shape, axis, options, 0, shape[1 - axis], *codes, *scales));
    };
  });
}

Comparison conversion(std::string name, DataType destination) {
  const Format& to = format_of(destination);
  const double bytes = static_cast<double>(kElements * (fp32.carrier_bits + to.carrier_bits) / 8U);
  return against_memcpy(std::move(name), bytes, [&to]() -> std::function<void()> {
    const auto words = source_words(fp32);
    const auto out = std::make_shared<Bytes>(kElements * to.carrier_bits / 8U);
    return [=, &to] { check(convert_array_into(*words, fp32, to, *out, {}, {.threads = 1})); };
  });
}

Comparison postprocessor(std::string name, std::string_view mode_name) {
  const PreQuantMode& mode = *find_prequant(mode_name);
  const Format& from = format_of(mode.accumulator);
  const Format& to = destination_format(mode, from);
  const double bytes = static_cast<double>(kElements * (from.carrier_bits + to.carrier_bits) / 8U);
  return against_memcpy(std::move(name), bytes, [&]() -> std::function<void()> {
    const auto words = source_words(from, from.is_integer() ? 5000 : 1);
    const auto accumulators = std::make_shared<std::vector<std::uint32_t>>(kElements);
    std::memcpy(accumulators->data(), words->data(), words->size());
    const auto d = std::make_shared<std::vector<std::uint8_t>>(kElements * to.carrier_bits / 8U);
    // A scale of 20, of 1/64 for integers, and an offset of -3 where there is one.
    const uint64 scale = encode(fp19, Real{.significand = 20, .exponent = from.is_integer() ? -11 : 0}, {}).bits;
    const uint64 carrier = pack_scale_carrier(scale, mode.offset_bits == 0 ? 0 : -3, mode.offset_bits);
    const auto carriers = std::make_shared<std::vector<uint64>>(mode.per_column ? kColumns : 1, carrier);
    return [=, &mode, &from] {
      PostprocessOptions options;
      options.mode = &mode;
      options.quant_carriers = *carriers;
      options.saturate = true;
      options.execution.threads = 1;
      check(postprocess_into(from, *accumulators, kRows, kColumns, options, {.d = *d}));
    };
  });
}

}  // namespace

std::vector<Comparison> array_comparisons() {
  const std::size_t last = 1;
  return {
      quantiser("quantize.hif4.pto", "hif4", bf16, last),
      quantiser("quantize.hif4.pto.fp32", "hif4", fp32, last),
      quantiser("quantize.hif4.pto.axis0", "hif4", bf16, 0),
      quantiser("quantize.mxfp8_e4m3.floor", "mxfp8-e4m3", bf16, last),
      quantiser("quantize.mxfp4.floor", "mxfp4", bf16, last),
      conversion("convert.fp32.e4m3", DataType::e4m3),
      conversion("convert.fp32.hif8", DataType::hif8),
      conversion("convert.fp32.bf16", DataType::bf16),
      conversion("convert.fp32.fp16", DataType::fp16),
      conversion("convert.fp32.e8m0", DataType::e8m0),
      postprocessor("postprocess.qf322f16", "QF322F16_PRE"),
      postprocessor("postprocess.req8", "REQ8"),
      postprocessor("postprocess.qf322b8_vector", "VQF322B8_PRE"),
  };
}

}  // namespace bitcube::bench
