// Real data with faults in it, each planted by a few lines of its own: the digits and the network of
// examples/mnist-mlp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "bitcube/compare/diff.hpp"
#include "bitcube/cube/matrix_operand.hpp"
#include "bitcube/io/npy.hpp"
#include "bitcube/quantize/convert_array.hpp"

namespace bitcube::test {

using Bytes = std::vector<std::byte>;

template <typename T>
Bytes bytes_of(const std::vector<T>& v) {
  const auto bytes = std::as_bytes(std::span(v));
  return {bytes.begin(), bytes.end()};
}
template <typename T>
std::vector<T> words_of(const Bytes& bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

inline NpyArray example(const std::string& name) {
  auto array = read_npy(std::filesystem::path(BITCUBE_SOURCE_DIR) / "examples/mnist-mlp" / name);
  EXPECT_TRUE(array) << array.error().message;
  return std::move(*array);
}
template <typename T>
std::vector<T> example_words(const std::string& name) {
  const auto bytes = example(name).load();
  EXPECT_TRUE(bytes) << bytes.error().message;
  return words_of<T>(Bytes(bytes->begin(), bytes->end()));
}

inline constexpr std::size_t kInputs = 784;
inline constexpr std::size_t kOutputs = 256;

/// The first columns of w0, 784 x columns.
inline std::vector<float> weights(std::size_t columns) {
  const auto all = example_words<float>("w0.npy");
  std::vector<float> out;
  for (std::size_t r = 0; r < kInputs; ++r) {
    out.insert(out.end(), all.begin() + static_cast<std::ptrdiff_t>(r * kOutputs),
               all.begin() + static_cast<std::ptrdiff_t>(r * kOutputs + columns));
  }
  return out;
}
/// The first digits, rows x 784, from 0 to 1.
inline std::vector<float> digits(std::size_t rows) {
  const auto pixels = example_words<std::uint8_t>("images.npy");
  std::vector<float> out;
  for (std::size_t i = 0; i < rows * kInputs; ++i) out.push_back(static_cast<float>(pixels[i]) / 255.0F);
  return out;
}

inline ComparedPart part(std::string name, PartRole role, const Format& f, std::vector<uint64> shape,
                         const Bytes& golden, const Bytes& dut, bool packed = false, std::size_t group = 0) {
  return {std::move(name), role, &f, std::move(shape), packed, golden, dut, group};
}

inline Diff must_diff(const DiffInputs& inputs) {
  auto result = diff(inputs);
  EXPECT_TRUE(result) << result.error().message;
  return result ? std::move(*result) : Diff{};
}

// ---- One array alone

struct Alone {
  const Format* format = &fp32;
  std::vector<uint64> shape{kInputs, kOutputs};
  Bytes golden;
  Bytes dut;

  Diff run() const {
    DiffInputs inputs;
    inputs.parts.push_back(part("result", PartRole::result, *format, shape, golden, dut));
    return must_diff(inputs);
  }
};
inline Alone weights_alone(const Format& f) {
  Alone a;
  a.format = &f;
  a.golden = convert_array(bytes_of(example_words<float>("w0.npy")), fp32, f)->words;
  a.dut = a.golden;
  return a;
}

// ---- Conversions

struct Conversion {
  const Format* from = &bf16;
  const Format* to = &e4m3;
  std::vector<uint64> shape{kInputs, kOutputs};
  EncodeControl control{};
  Bytes source = convert_array(bytes_of(example_words<float>("w0.npy")), fp32, bf16)->words;
  Bytes golden;
  Bytes dut;

  Bytes convert_with(const EncodeControl& c) const { return convert_array(source, *from, *to, c)->words; }
  Diff run() {
    if (golden.empty()) golden = convert_with(control);
    DiffInputs inputs;
    inputs.parts.push_back(part("result", PartRole::result, *to, shape, golden, dut));
    inputs.conversion = ConversionInputs{source, from, control};
    return must_diff(inputs);
  }
};

// ---- Quantised tensors

struct Quantization {
  std::vector<float> source = example_words<float>("w0.npy");
  std::vector<uint64> shape{kInputs, kOutputs};
  QuantizeOptions options{};
  QuantizedTensor golden;
  QuantizedTensor dut;
  bool with_source = true;

  explicit Quantization(std::string_view format, std::string_view profile = "pto") {
    options.format = find_block_format(format);
    options.profile = find_hif4_profile(profile);
    golden = make(options);
    dut = golden;
  }
  QuantizedTensor make(const QuantizeOptions& o) const {
    auto t = quantize(std::as_bytes(std::span(source)), fp32, shape, 1, o);
    EXPECT_TRUE(t);
    return std::move(*t);
  }
  Diff run() const {
    DiffInputs inputs;
    const BlockFormat& f = *golden.format;
    inputs.parts.push_back(
        part("codes", PartRole::codes, *f.element, shape, golden.codes, dut.codes, f.element->is_packed(), f.group));
    inputs.parts.push_back(
        part("scales", PartRole::scales, *f.scale, {shape[0], f.groups(shape[1])}, golden.scales, dut.scales));
    if (with_source) {
      inputs.quantization = QuantizationInputs{std::as_bytes(std::span(source)), &fp32, shape, 1, options};
    }
    return must_diff(inputs);
  }
};

inline void swap_nibbles(Bytes& codes) {
  for (std::byte& b : codes) b = (b << 4) | (b >> 4);
}
inline void swap_words(Bytes& bytes, std::size_t size) {
  for (std::size_t i = 0; i < bytes.size(); i += size) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i), bytes.begin() + static_cast<std::ptrdiff_t>(i + size));
  }
}
/// Bytes 1, and 2 with 3, of each scale word from the other end.
inline void reverse_micro_exponents(Bytes& scales) {
  const auto reversed = [](std::byte b) {
    std::byte out{};
    for (unsigned i = 0; i < 8; ++i) {
      if ((b & (std::byte{1} << i)) != std::byte{}) out |= std::byte{0x80} >> i;
    }
    return out;
  };
  for (std::size_t i = 0; i < scales.size(); i += 4) {
    scales[i + 1] = reversed(scales[i + 1]);
    const std::byte low = scales[i + 2];
    scales[i + 2] = reversed(scales[i + 3]);
    scales[i + 3] = reversed(low);
  }
}
/// rows x columns words to columns x rows.
inline void transpose(Bytes& bytes, std::size_t rows, std::size_t columns, std::size_t size) {
  const Bytes from = bytes;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      std::memcpy(bytes.data() + (c * rows + r) * size, from.data() + (r * columns + c) * size, size);
    }
  }
}
/// Fractals of 16 rows and 32 bytes; those of a column of them follow each other, and so do the rows of one.
inline Bytes as_nz(const Bytes& from, std::size_t rows, std::size_t columns, std::size_t size) {
  Bytes out;
  const std::size_t width = 32 / size;
  for (std::size_t bc = 0; bc < columns; bc += width) {
    for (std::size_t r = 0; r < rows; ++r) {
      const auto at = from.begin() + static_cast<std::ptrdiff_t>((r * columns + bc) * size);
      out.insert(out.end(), at, at + 32);
    }
  }
  return out;
}

// ---- Products

struct Product {
  std::size_t rows = 48;
  std::size_t columns = 64;
  QuantizedTensor a;
  QuantizedTensor b;
  std::vector<float> bias = example_words<float>("b0.npy");
  std::vector<float> c;
  bool with_bias = true;
  bool with_c = false;
  MatmulOptions options{};
  PostprocessOptions post{};
  std::vector<uint64> carriers;
  Bytes dut;

  explicit Product(std::string_view format = "hif4") {
    bias.resize(columns);
    QuantizeOptions q;
    q.format = find_block_format(format);
    const auto x = digits(rows);
    const auto w = weights(columns);
    a = std::move(*quantize(std::as_bytes(std::span(x)), fp32, std::vector<uint64>{rows, kInputs}, 1, q));
    b = std::move(*quantize(std::as_bytes(std::span(w)), fp32, std::vector<uint64>{kInputs, columns}, 0, q));
    const auto all = example_words<float>("w1.npy");
    for (std::size_t i = 0; i < rows * columns; ++i) c.push_back(all[i]);
  }

  void scale_by(std::string_view mode, double scale, int offset = 0) {
    post.mode = find_prequant(mode);
    Real real{.significand = static_cast<uint64>(std::ldexp(scale, 20)), .exponent = -20};
    carriers = {pack_scale_carrier(encode(fp19, real, {}).bits, offset, post.mode->offset_bits)};
    post.quant_carriers = carriers;
  }

  MatmulOptions with_addends(const MatmulOptions& o) const {
    MatmulOptions out = o;
    const auto words = [](const std::vector<float>& v) {
      return std::span(reinterpret_cast<const std::uint32_t*>(v.data()), v.size());
    };
    if (with_bias) out.bias = words(bias);
    if (with_c) out.c = words(c);
    return out;
  }
  std::vector<float> accumulate_with(const QuantizedTensor& x, const QuantizedTensor& y, const MatmulOptions& o) const {
    const auto sums = matmul(*quantized_operand(Side::a, x), *quantized_operand(Side::b, y), o);
    EXPECT_TRUE(sums) << sums.error().message;
    std::vector<float> out(sums->words.size());
    std::memcpy(out.data(), sums->words.data(), out.size() * 4);
    return out;
  }
  Bytes finish(const std::vector<float>& sums, const PostprocessOptions& p) const {
    Accumulators acc{&fp32, rows, columns, Buffer<std::uint32_t>(sums.size())};
    std::memcpy(acc.words.data(), sums.data(), sums.size() * 4);
    auto d = postprocess(acc, p);
    EXPECT_TRUE(d) << d.error().message;
    const auto bytes = std::as_bytes(std::span(d->d));
    return {bytes.begin(), bytes.end()};
  }
  std::vector<float> sums() const { return accumulate_with(a, b, with_addends(options)); }
  Bytes golden() const { return finish(sums(), post); }

  Diff run() const {
    const Bytes g = golden();
    DiffInputs inputs;
    inputs.parts.push_back(
        part("result", PartRole::result, destination_format(*post.mode, fp32), {rows, columns}, g, dut));
    inputs.product =
        ProductInputs{*quantized_operand(Side::a, a), *quantized_operand(Side::b, b), with_addends(options), post};
    return must_diff(inputs);
  }
};

}  // namespace bitcube::test
