// Every hypothesis has a fault planted in real data and is found first; so are faults of two kinds.
#include "bitcube/compare/diff.hpp"

#include <random>
#include <set>

#include "compare/planted.hpp"

namespace bitcube::test {
namespace {

using Ids = std::vector<std::string>;

struct Case {
  std::string name;
  Ids ids;
  std::function<Diff()> run;
  Certainty certainty = Certainty::complete;
  std::string title{};  // of the diagnosis, where its hypothesis can be told apart by it only
};

EncodeControl rounded(Rounding r) {
  return {.rounding = r};
}

/// The code of E2M1 that is nearest to x, ties to even, by search.
unsigned nearest_e2m1(double x) {
  const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const double magnitude = std::fabs(x);
  unsigned best = 0;
  for (unsigned i = 1; i < 8; ++i) {
    const double d = std::fabs(values[i] - magnitude);
    const double e = std::fabs(values[best] - magnitude);
    if (d < e || (d == e && i % 2 == 0)) best = i;
  }
  return best | (std::signbit(x) ? 8U : 0U);
}

/// Rounds E2M1 codes again under scales that are one larger in every 11th group.
void step_scales(Quantization& q) {
  const std::size_t groups = 256 / 32;
  for (std::size_t g = 0; g < q.dut.scales.size(); g += 11) {
    q.dut.scales[g] = static_cast<std::byte>(std::to_integer<unsigned>(q.dut.scales[g]) + 1);
    const double scale = std::ldexp(1.0, std::to_integer<int>(q.dut.scales[g]) - 127);
    for (std::size_t i = 0; i < 32; ++i) {
      const std::size_t at = g / groups * 256 + g % groups * 32 + i;
      const unsigned code = nearest_e2m1(static_cast<double>(q.source[at]) / scale);
      std::byte& b = q.dut.codes[at / 2];
      b = at % 2 == 0 ? (b & std::byte{0xF0}) | static_cast<std::byte>(code)
                      : (b & std::byte{0x0F}) | static_cast<std::byte>(code << 4);
    }
  }
}

std::vector<float> add_rows(std::vector<float> sums, const std::vector<float>& row) {
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += row[i % row.size()];
  return sums;
}
std::vector<float> add_all(std::vector<float> sums, const std::vector<float>& other) {
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += other[i];
  return sums;
}
Bytes fp32_bytes(const std::vector<float>& v) {
  return bytes_of(v);
}
std::vector<std::uint32_t> words_of_product(const Accumulators& acc) {
  return {acc.words.begin(), acc.words.end()};
}

std::vector<Case> single_faults() {
  std::vector<Case> cases;
  const auto add = [&](std::string id, std::string name, std::function<Diff()> run,
                       Certainty certainty = Certainty::complete) {
    cases.push_back({id + "_" + name, {id}, std::move(run), certainty});
  };
  const auto alone = [](const Format& f, const std::function<void(Alone&)>& plant) {
    Alone a = weights_alone(f);
    plant(a);
    return a.run();
  };
  const auto conversion = [](const std::function<void(Conversion&)>& plant) {
    Conversion c;
    plant(c);
    return c.run();
  };
  const auto quantized = [](std::string_view format, bool source, const std::function<void(Quantization&)>& plant,
                            std::string_view profile = "pto") {
    Quantization q(format, profile);
    q.with_source = source;
    plant(q);
    return q.run();
  };
  const auto product = [](std::string_view format, const std::function<void(Product&)>& plant) {
    Product p(format);
    plant(p);
    return p.run();
  };

  for (const bool source : {false, true}) {
    const std::string from = source ? "with_source" : "alone";
    add("nibble-order", from,
        [=] { return quantized("hif4", source, [](Quantization& q) { swap_nibbles(q.dut.codes); }); });
    add("byte-order", from,
        [=] { return quantized("hif4", source, [](Quantization& q) { swap_words(q.dut.scales, 4); }); });
    add("micro-bit-order", from,
        [=] { return quantized("hif4", source, [](Quantization& q) { reverse_micro_exponents(q.dut.scales); }); });
    add("scales-transposed", from,
        [=] { return quantized("hif4", source, [](Quantization& q) { transpose(q.dut.scales, 784, 4, 4); }); });
  }
  add("nibble-order", "of_A", [=] {
    return product("hif4", [](Product& p) {
      QuantizedTensor wrong = p.a;
      swap_nibbles(wrong.codes);
      p.dut = fp32_bytes(p.accumulate_with(wrong, p.b, p.with_addends({})));
    });
  });
  add("micro-bit-order", "of_B", [=] {
    return product("hif4", [](Product& p) {
      QuantizedTensor wrong = p.b;
      reverse_micro_exponents(wrong.scales);
      p.dut = fp32_bytes(p.accumulate_with(p.a, wrong, p.with_addends({})));
    });
  });
  add("scales-transposed", "of_B", [=] {
    return product("mxfp4", [](Product& p) {
      QuantizedTensor wrong = p.b;  // 64 lines of 25 groups; the DUT has them the other way round
      transpose(wrong.scales, 64, 25, 1);
      p.dut = fp32_bytes(p.accumulate_with(p.a, wrong, p.with_addends({})));
    });
  });
  add("scales-transposed", "of_A_the_other_way", [=] {
    return product("mxfp4", [](Product& p) {
      QuantizedTensor wrong = p.a;
      transpose(wrong.scales, 25, 48, 1);
      p.dut = fp32_bytes(p.accumulate_with(wrong, p.b, p.with_addends({})));
    });
  });
  add("scales-ignored", "of_A_and_B", [=] {
    return product("mxfp4", [](Product& p) {
      QuantizedTensor a = p.a;
      QuantizedTensor b = p.b;
      std::fill(a.scales.begin(), a.scales.end(), std::byte{127});
      std::fill(b.scales.begin(), b.scales.end(), std::byte{127});
      p.dut = fp32_bytes(p.accumulate_with(a, b, p.with_addends({})));
    });
  });
  // Operands of FP16: A is 48 x 784, or 64 x 64 of the weights.
  const auto halves = [](const std::function<Bytes(const Bytes&)>& spoil, std::size_t rows, std::size_t k) {
    const auto x = k == kInputs ? digits(rows) : weights(64);
    const auto w = weights(64);
    Bytes a = convert_array(bytes_of(x), fp32, fp16)->words;
    Bytes b = convert_array(bytes_of(w), fp32, fp16)->words;
    a.resize(rows * k * 2);
    b.resize(k * 64 * 2);
    const Bytes wrong = spoil(a);
    const Operand right_side = matrix_operand(Side::b, fp16, b, k, 64);
    const Bytes golden = bytes_of(words_of_product(*matmul(matrix_operand(Side::a, fp16, a, rows, k), right_side, {})));
    const Bytes dut =
        bytes_of(words_of_product(*matmul(matrix_operand(Side::a, fp16, wrong, rows, k), right_side, {})));
    DiffInputs inputs;
    inputs.parts.push_back(part("result", PartRole::result, fp32, {rows, 64}, golden, dut));
    inputs.product = ProductInputs{matrix_operand(Side::a, fp16, a, rows, k), right_side, {}, {}};
    return must_diff(inputs);
  };
  add("layout", "A_in_NZ_was_read_as_rows",
      [=] { return halves([](const Bytes& a) { return as_nz(a, 48, kInputs, 2); }, 48, kInputs); });
  cases.back().title = "CUBE or fractal layout not undone: A in NZ was read as row-major";
  add("transposed", "A", [=] {
    return halves(
        [](Bytes a) {
          transpose(a, 64, 64, 2);
          return a;
        },
        64, 64);
  });
  add("transposed", "result", [=] { return alone(fp32, [](Alone& a) { transpose(a.dut, 784, 256, 4); }); });
  add("layout", "NZ", [=] { return alone(fp16, [](Alone& a) { a.dut = as_nz(a.golden, 784, 256, 2); }); });
  cases.back().title = "CUBE or fractal layout not undone: as stored in NZ";
  add("layout", "read_as_NZ", [=] { return alone(fp16, [](Alone& a) { a.golden = as_nz(a.dut, 784, 256, 2); }); });
  add("padding", "rows_of_256", [] {
    Alone a;
    a.format = &fp32;
    a.shape = {784, 250};
    const auto w = weights(250);
    a.golden = bytes_of(w);
    std::vector<float> padded;
    for (std::size_t r = 0; r < 784; ++r) {
      for (std::size_t c = 0; c < 256; ++c) padded.push_back(c < 250 ? w[r * 250 + c] : 0.0F);
    }
    padded.resize(w.size());
    a.dut = bytes_of(padded);
    return a.run();
  });
  add("shifted", "one_row", [=] {
    return alone(fp32, [](Alone& a) { std::copy(a.golden.begin(), a.golden.end() - 1024, a.dut.begin() + 1024); });
  });
  add("factor", "four", [=] {
    return alone(fp32, [](Alone& a) {
      auto words = words_of<float>(a.golden);
      for (float& x : words) x *= 4;
      a.dut = bytes_of(words);
    });
  });
  add("subnormals-flushed", "e4m3", [=] {
    return alone(e4m3, [](Alone& a) {
      for (std::byte& b : a.dut) {
        if ((b & std::byte{0x78}) == std::byte{}) b &= std::byte{0x80};
      }
    });
  });
  add("relu-missing", "applied", [=] {
    return alone(fp32, [](Alone& a) {
      auto words = words_of<float>(a.golden);
      for (float& x : words) x = x < 0 ? 0.0F : x;
      a.dut = bytes_of(words);
    });
  });
  add(
      "relu-missing", "left_out_alone",
      [=] {
        return alone(fp32, [](Alone& a) {
          auto words = words_of<float>(a.golden);
          for (float& x : words) x = x < 0 ? 0.0F : x;
          a.golden = bytes_of(words);
        });
      },
      Certainty::hint);
  add("relu-missing", "left_out", [=] {
    return product("hif4", [](Product& p) {
      p.post.relu = Relu::relu;
      p.dut = fp32_bytes(p.sums());
    });
  });

  add("saturation", "off", [=] {
    return conversion([](Conversion& c) {
      c.source = bytes_of(example_words<std::uint8_t>("images.npy"));
      c.shape = {1000, 784};
      c.from = &format_of(DataType::u8);
      c.to = &format_of(DataType::s8);
      c.control = {.rounding = Rounding::rne, .saturate = true};
      c.dut = c.source;  // 200 becomes -56
    });
  });
  add(
      "saturation", "off_alone",
      [=] {
        Alone a;
        a.format = &format_of(DataType::s8);
        a.shape = {1000, 784};
        a.dut = bytes_of(example_words<std::uint8_t>("images.npy"));
        a.golden = a.dut;
        for (std::byte& b : a.golden) b = std::min(b, std::byte{127});
        return a.run();
      },
      Certainty::hint);
  add("tie-rule", "RNA",
      [=] { return conversion([](Conversion& c) { c.dut = c.convert_with(rounded(Rounding::rna)); }); });
  add(
      "tie-rule", "RNA_alone",
      [] {
        const Conversion c;
        Alone a;
        a.format = &e4m3;
        a.golden = c.convert_with({});
        a.dut = c.convert_with(rounded(Rounding::rna));
        return a.run();
      },
      Certainty::hint);
  add("tie-rule", "hif4_lanes", [=] {
    return quantized("hif4", true, [](Quantization& q) {
      QuantizeOptions o = q.options;
      o.profile = find_hif4_profile("pto-a6");
      q.dut = q.make(o);
    });
  });
  add("tie-rule", "postprocess", [=] {
    return product("hif4", [](Product& p) {
      p.scale_by("QF322B8_PRE", 8.0, 3);
      p.post.saturate = true;
      PostprocessOptions wrong = p.post;
      wrong.rounding = Rounding::rna;
      p.with_bias = false;
      p.a = Product("mxfp4").a;
      p.b = Product("mxfp4").b;
      p.dut = p.finish(p.sums(), wrong);
    });
  });
  add("truncation", "conversion",
      [=] { return conversion([](Conversion& c) { c.dut = c.convert_with(rounded(Rounding::rtz)); }); });
  add(
      "truncation", "alone",
      [] {
        const Conversion c;
        Alone a;
        a.format = &e4m3;
        a.golden = c.convert_with({});
        a.dut = c.convert_with(rounded(Rounding::rtz));
        return a.run();
      },
      Certainty::hint);
  add("truncation", "bf16_by_hand", [] {
    Conversion c;
    c.from = &fp32;
    c.to = &bf16;
    const auto words = example_words<std::uint32_t>("w0.npy");
    c.source = bytes_of(words);
    std::vector<std::uint16_t> cut;
    for (const std::uint32_t w : words) cut.push_back(static_cast<std::uint16_t>(w >> 16));
    c.dut = bytes_of(cut);
    return c.run();
  });
  add("rounding-mode", "RTP",
      [=] { return conversion([](Conversion& c) { c.dut = c.convert_with(rounded(Rounding::rtp)); }); });
  add("conversion-profile", "ocp", [=] {
    return conversion([](Conversion& c) { c.dut = c.convert_with({.profile = find_conversion_profile("ocp")}); });
  });
  add("double-rounding", "bf16", [] {
    Conversion c;
    c.from = &fp32;
    c.source = bytes_of(example_words<float>("w0.npy"));
    c.dut = convert_array(convert_array(c.source, fp32, bf16)->words, bf16, e4m3)->words;
    return c.run();
  });
  add("decoded-as", "e5m2", [] {
    Conversion c;
    const Format& e5m2 = format_of(DataType::e5m2);
    c.source = convert_array(c.source, bf16, e4m3)->words;
    c.from = &e4m3;
    c.to = &fp16;
    c.dut = convert_array(c.source, e5m2, fp16)->words;
    return c.run();
  });
  add("decoded-as", "E2M1_as_E1M2", [=] {
    return product("mxfp4", [](Product& p) {
      QuantizedTensor wrong = p.b;
      wrong.format = find_block_format("mxfp4-e1m2");
      p.dut = fp32_bytes(p.accumulate_with(p.a, wrong, p.with_addends({})));
    });
  });

  add("scale-step", "mxfp4", [=] { return quantized("mxfp4", true, step_scales); });
  add("scale-step", "lanes_as_they_were", [=] {
    return quantized("mxfp4", true, [](Quantization& q) {
      for (std::size_t g = 0; g < q.dut.scales.size(); g += 7) {
        q.dut.scales[g] = static_cast<std::byte>(std::to_integer<unsigned>(q.dut.scales[g]) + 1);
      }
    });
  });
  add("scale-step", "scales_alone", [=] {
    return quantized("mxfp4", false, [](Quantization& q) {
      for (std::size_t g = 0; g < q.dut.scales.size(); g += 7) {
        q.dut.scales[g] = static_cast<std::byte>(std::to_integer<unsigned>(q.dut.scales[g]) - 1);
      }
    });
  });
  add("scale-rule", "ceil", [=] {
    return quantized("mxfp4", true, [](Quantization& q) {
      QuantizeOptions o = q.options;
      o.scale_rule = find_scale_rule("ceil");
      q.dut = q.make(o);
    });
  });
  add("products", "paper", [=] {
    return quantized("hif4", true, [](Quantization& q) {
      QuantizeOptions o = q.options;
      o.profile = find_hif4_profile("paper");
      q.dut = q.make(o);
    });
  });
  add("group-length", "64_for_32", [=] {
    return quantized("mxfp8-e4m3", true, [](Quantization& q) {
      for (std::size_t g = 0; g < q.source.size(); g += 64) {
        double amax = 0;
        for (std::size_t i = 0; i < 64; ++i) amax = std::max(amax, std::fabs(static_cast<double>(q.source[g + i])));
        const int exponent = std::ilogb(amax) - 8;
        q.dut.scales[g / 32] = q.dut.scales[g / 32 + 1] = static_cast<std::byte>(exponent + 127);
        for (std::size_t i = 0; i < 64; ++i) {
          const float x = std::ldexp(q.source[g + i], -exponent);
          std::uint32_t word = 0;
          std::memcpy(&word, &x, 4);
          const EncodeControl control{.saturate = true, .profile = find_conversion_profile("ocp")};
          q.dut.codes[g + i] = static_cast<std::byte>(convert(fp32, e4m3, word, control).bits);
        }
      }
    });
  });
  add("group-length", "of_B", [=] {
    return product("mxfp4", [](Product& p) {
      QuantizedTensor wrong = p.b;  // scale k / 64 of a line of 25
      for (std::size_t line = 0; line < 64; ++line) {
        for (std::size_t g = 0; g < 25; ++g) wrong.scales[line * 25 + g] = p.b.scales[line * 25 + g / 2];
      }
      p.dut = fp32_bytes(p.accumulate_with(p.a, wrong, p.with_addends({})));
    });
  });
  add("element-format", "E1M2", [=] {
    return quantized("mxfp4", true, [](Quantization& q) {
      QuantizeOptions o = q.options;
      o.format = find_block_format("mxfp4-e1m2");
      q.dut = q.make(o);
      q.dut.format = q.golden.format;
    });
  });

  add("operands-exchanged", "square", [] {
    const std::vector<float> w = weights(64);
    const std::vector<float> x(w.begin(), w.begin() + 64 * 64);
    const std::vector<float> y(w.begin() + 64 * 64, w.begin() + 2 * 64 * 64);
    const auto operand = [](Side s, const std::vector<float>& v) {
      return matrix_operand(s, fp32, std::as_bytes(std::span(v)), 64, 64);
    };
    const Bytes golden = bytes_of(words_of_product(*matmul(operand(Side::a, x), operand(Side::b, y), {})));
    const Bytes dut = bytes_of(words_of_product(*matmul(operand(Side::a, y), operand(Side::b, x), {})));
    DiffInputs inputs;
    inputs.parts.push_back(part("result", PartRole::result, fp32, {64, 64}, golden, dut));
    inputs.product = ProductInputs{operand(Side::a, x), operand(Side::b, y), {}, {}};
    return must_diff(inputs);
  });
  add("scales-ignored", "of_A", [=] {
    return product("mxfp4", [](Product& p) {
      QuantizedTensor wrong = p.a;
      std::fill(wrong.scales.begin(), wrong.scales.end(), std::byte{127});
      p.dut = fp32_bytes(p.accumulate_with(wrong, p.b, p.with_addends({})));
    });
  });
  add("bias-missing", "product",
      [=] { return product("hif4", [](Product& p) { p.dut = fp32_bytes(p.accumulate_with(p.a, p.b, {})); }); });
  add("bias-scaling", "after_postprocess", [=] {
    return product("hif4", [](Product& p) {
      p.scale_by("QF322F32_PRE", 0.25);
      auto sums = p.accumulate_with(p.a, p.b, {});
      for (float& x : sums) x *= 0.25F;
      p.dut = fp32_bytes(add_rows(sums, p.bias));
    });
  });
  add("bias-scaling", "after_postprocess_with_offset", [=] {
    return product("mxfp4", [](Product& p) {
      p.scale_by("QF322B8_PRE", 8.0, -3);
      p.post.saturate = true;
      for (float& x : p.bias) x = std::nearbyint(x * 4000.0F);
      p.dut.clear();
      const auto sums = p.accumulate_with(p.a, p.b, {});
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const double y = std::nearbyint(static_cast<double>(sums[i]) * 8 + static_cast<double>(p.bias[i % 64]));
        const double between = std::clamp(y, -256.0, 255.0) - 3;
        p.dut.push_back(static_cast<std::byte>(static_cast<int>(std::clamp(between, -128.0, 127.0))));
      }
    });
  });
  add("bias-scaling", "before_group_scales", [=] {
    return product("mxfp4", [](Product& p) {
      auto sums = p.accumulate_with(p.a, p.b, {});
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const int a = std::to_integer<int>(p.a.scales[i / 64 * 25]) - 127;
        const int b = std::to_integer<int>(p.b.scales[i % 64 * 25]) - 127;
        sums[i] += std::ldexp(p.bias[i % 64], a + b);
      }
      p.dut = fp32_bytes(sums);
    });
  });
  add("bias-order", "first", [=] {
    return product("hif4", [](Product& p) {
      MatmulOptions o;
      const auto start = add_rows(std::vector<float>(p.rows * p.columns), p.bias);
      o.c = std::span(reinterpret_cast<const std::uint32_t*>(start.data()), start.size());
      p.dut = fp32_bytes(p.accumulate_with(p.a, p.b, o));
    });
  });
  add("bias-order", "twice",
      [=] { return product("hif4", [](Product& p) { p.dut = fp32_bytes(add_rows(p.sums(), p.bias)); }); });
  add("c-missing", "product", [=] {
    return product("hif4", [](Product& p) {
      p.dut = fp32_bytes(p.sums());
      p.with_c = true;
    });
  });
  add("c-last", "product", [=] {
    return product("hif4", [](Product& p) {
      p.with_bias = false;
      p.dut = fp32_bytes(add_all(p.sums(), p.c));
      p.with_c = true;
    });
  });
  for (const std::string_view profile : {"group", "exact"}) {
    add("accumulation", std::string(profile), [=] {
      return product("mxfp8-e4m3", [=](Product& p) {
        MatmulOptions wrong;
        wrong.profile = find_accumulation_profile(profile);
        p.dut = fp32_bytes(p.accumulate_with(p.a, p.b, p.with_addends(wrong)));
      });
    });
  }
  const auto in_blocks = [](const Product& p, std::size_t block) {
    std::vector<float> total(p.rows * p.columns);
    const auto x = *quantized_operand(Side::a, p.a);
    const auto y = *quantized_operand(Side::b, p.b);
    for (std::size_t k = 0; k < kInputs; k += block) {
      const auto cut = [&](Operand o) {
        o.k = std::min(block, kInputs - k);
        o.lanes.data += k;
        o.scales.data += k / 32;
        return o;
      };
      const auto sums = matmul(cut(x), cut(y), {});
      EXPECT_TRUE(sums);
      std::vector<float> partial(total.size());
      std::memcpy(partial.data(), sums->words.data(), partial.size() * 4);
      total = add_all(total, partial);
    }
    return total;
  };
  add("k-blocks", "128", [=] {
    return product("mxfp8-e4m3", [=](Product& p) { p.dut = fp32_bytes(add_rows(in_blocks(p, 128), p.bias)); });
  });
  add("accumulation", "two_step", [] {
    // Products of FP32 have more bits than it.
    const std::vector<float> x = digits(48);
    const std::vector<float> w = weights(64);
    const Operand a = matrix_operand(Side::a, fp32, std::as_bytes(std::span(x)), 48, kInputs);
    const Operand b = matrix_operand(Side::b, fp32, std::as_bytes(std::span(w)), kInputs, 64);
    const Bytes golden = bytes_of(words_of_product(*matmul(a, b, {})));
    std::vector<float> sums(48 * 64);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      for (std::size_t k = 0; k < kInputs; ++k) {
        const volatile float p = x[i / 64 * kInputs + k] * w[k * 64 + i % 64];
        sums[i] += p;
      }
    }
    const Bytes dut = bytes_of(sums);
    DiffInputs inputs;
    inputs.parts.push_back(part("result", PartRole::result, fp32, {48, 64}, golden, dut));
    inputs.product = ProductInputs{a, b, {}, {}};
    return must_diff(inputs);
  });
  add("k-order", "reversed", [] {
    const std::vector<float> w = weights(64);
    const std::vector<float> x = digits(48);
    std::vector<float> rx(x.size());
    std::vector<float> rw(w.size());
    for (std::size_t k = 0; k < kInputs; ++k) {
      for (std::size_t i = 0; i < 48; ++i) rx[i * kInputs + k] = x[i * kInputs + kInputs - 1 - k];
      for (std::size_t j = 0; j < 64; ++j) rw[k * 64 + j] = w[(kInputs - 1 - k) * 64 + j];
    }
    const auto multiply = [](const std::vector<float>& l, const std::vector<float>& r) {
      const auto acc = matmul(matrix_operand(Side::a, fp32, std::as_bytes(std::span(l)), 48, kInputs),
                              matrix_operand(Side::b, fp32, std::as_bytes(std::span(r)), kInputs, 64), {});
      return bytes_of(words_of_product(*acc));
    };
    const Bytes golden = multiply(x, w);
    const Bytes dut = multiply(rx, rw);
    DiffInputs inputs;
    inputs.parts.push_back(part("result", PartRole::result, fp32, {48, 64}, golden, dut));
    inputs.product = ProductInputs{matrix_operand(Side::a, fp32, std::as_bytes(std::span(x)), 48, kInputs),
                                   matrix_operand(Side::b, fp32, std::as_bytes(std::span(w)), kInputs, 64),
                                   {},
                                   {}};
    return must_diff(inputs);
  });
  for (const int offset : {0, 3}) {
    add("saturation", "wraps_with_offset_" + std::to_string(offset), [=] {
      return product("mxfp4", [=](Product& p) {
        p.with_bias = false;
        p.scale_by("QF322B8_PRE", 128.0, offset);
        p.post.saturate = true;
        p.dut.clear();
        for (const float x : p.sums()) {
          const auto y = static_cast<std::int64_t>(std::nearbyint(static_cast<double>(x) * 128)) + offset;
          p.dut.push_back(static_cast<std::byte>(static_cast<std::uint8_t>(y)));
        }
      });
    });
  }
  add("relu-after", "with_offset", [=] {
    return product("hif4", [](Product& p) {
      p.scale_by("QF322B8_PRE", 4.0, -5);
      p.post.saturate = true;
      p.dut = p.finish(p.sums(), p.post);
      for (std::byte& b : p.dut) b = std::to_integer<int>(b) >= 128 ? std::byte{0} : b;
      p.post.relu = Relu::relu;
    });
  });
  add("offset", "left_out", [=] {
    return product("hif4", [](Product& p) {
      p.scale_by("QF322B8_PRE", 4.0, 0);
      p.dut = p.finish(p.sums(), p.post);
      p.scale_by("QF322B8_PRE", 4.0, 9);
    });
  });
  add("offset", "before_rounding", [=] {
    return product("mxfp4", [](Product& p) {
      p.with_bias = false;
      p.scale_by("QF322B8_PRE", 8.0, 3);
      p.post.saturate = true;
      p.dut.clear();
      for (const float x : p.sums()) {
        // Sums of MXFP4 products have few bits: this is exact, and the last rounding is the only one.
        const double y = std::nearbyint(static_cast<double>(x) * 8 + 3);
        p.dut.push_back(static_cast<std::byte>(static_cast<int>(std::clamp(y, -128.0, 127.0))));
      }
    });
  });
  add("parameter", "scale_left_out", [=] {
    return product("hif4", [](Product& p) {
      p.scale_by("QF322F32_PRE", 0.3125);
      p.dut = fp32_bytes(p.sums());
    });
  });
  add("parameter", "of_column_0", [=] {
    return product("hif4", [](Product& p) {
      p.scale_by("QF322F32_PRE", 0.3125);
      p.dut = p.finish(p.sums(), p.post);
      p.post.mode = find_prequant("VQF322F32_PRE");
      for (std::size_t i = 1; i < p.columns; ++i) {
        p.carriers.push_back(
            pack_scale_carrier(encode(fp19, Real{.significand = 5 + i, .exponent = -4}, {}).bits, 0, 0));
      }
      p.post.quant_carriers = p.carriers;
    });
  });
  return cases;
}

std::vector<Case> double_faults() {
  std::vector<Case> cases;
  const auto add = [&](Ids ids, std::string name, std::function<Diff()> run) {
    cases.push_back({std::move(name), std::move(ids), std::move(run), Certainty::complete});
  };
  const auto conversion = [](const std::function<void(Conversion&)>& plant) {
    Conversion c;
    plant(c);
    return c.run();
  };
  const auto quantized = [](std::string_view format, const std::function<void(Quantization&)>& plant) {
    Quantization q(format);
    plant(q);
    return q.run();
  };
  const auto product = [](std::string_view format, const std::function<void(Product&)>& plant) {
    Product p(format);
    plant(p);
    return p.run();
  };
  add({"nibble-order", "scales-transposed"}, "nibbles_and_scales", [=] {
    return quantized("hif4", [](Quantization& q) {
      swap_nibbles(q.dut.codes);
      transpose(q.dut.scales, 784, 4, 4);
    });
  });
  add({"nibble-order", "byte-order"}, "nibbles_and_bytes", [=] {
    return quantized("hif4", [](Quantization& q) {
      swap_nibbles(q.dut.codes);
      swap_words(q.dut.scales, 4);
    });
  });
  add({"byte-order", "micro-bit-order"}, "micro_exponents_then_bytes", [=] {
    return quantized("hif4", [](Quantization& q) {
      reverse_micro_exponents(q.dut.scales);
      swap_words(q.dut.scales, 4);
    });
  });
  add({"byte-order", "micro-bit-order"}, "bytes_then_micro_exponents", [=] {
    return quantized("hif4", [](Quantization& q) {
      swap_words(q.dut.scales, 4);
      reverse_micro_exponents(q.dut.scales);
    });
  });
  add({"byte-order", "micro-bit-order"}, "micro_exponents_then_bytes_of_B", [=] {
    return product("hif4", [](Product& p) {
      QuantizedTensor wrong = p.b;
      reverse_micro_exponents(wrong.scales);
      swap_words(wrong.scales, 4);
      p.dut = fp32_bytes(p.accumulate_with(p.a, wrong, p.with_addends({})));
    });
  });
  add({"transposed", "layout"}, "transposed_in_NZ", [=] {
    Alone a = weights_alone(fp16);
    transpose(a.dut, 784, 256, 2);
    a.dut = as_nz(a.dut, 784, 256, 2);
    return a.run();
  });
  add({"micro-bit-order", "scales-transposed"}, "micro_exponents_transposed", [=] {
    return quantized("hif4", [](Quantization& q) {
      reverse_micro_exponents(q.dut.scales);
      transpose(q.dut.scales, 784, 4, 4);
    });
  });
  add({"nibble-order", "tie-rule"}, "nibbles_and_ties", [=] {
    return quantized("hif4", [](Quantization& q) {
      QuantizeOptions o = q.options;
      o.profile = find_hif4_profile("pto-a6");
      q.dut = q.make(o);
      swap_nibbles(q.dut.codes);
    });
  });
  add({"truncation", "scale-rule"}, "truncated_under_ceil", [=] {
    return quantized("mxfp4", [](Quantization& q) {
      QuantizeOptions o = q.options;
      o.scale_rule = find_scale_rule("ceil");
      o.rounding = Rounding::rtz;
      q.dut = q.make(o);
    });
  });
  add({"transposed", "truncation"}, "transposed_and_truncated", [=] {
    return conversion([](Conversion& c) {
      c.dut = c.convert_with(rounded(Rounding::rtz));
      transpose(c.dut, 784, 256, 1);
    });
  });
  add({"transposed", "tie-rule"}, "transposed_and_few_ties", [=] {
    return conversion([](Conversion& c) {
      auto words = example_words<float>("w0.npy");
      for (std::size_t i = 4003; i < words.size(); i += 40009) words[i] = 1.0625F;  // between 1 and 1.125
      c.from = &fp32;
      c.source = bytes_of(words);
      c.dut = c.convert_with(rounded(Rounding::rna));
      transpose(c.dut, 784, 256, 1);
    });
  });
  add({"layout", "tie-rule"}, "layout_and_ties", [=] {
    return conversion([](Conversion& c) { c.dut = as_nz(c.convert_with(rounded(Rounding::rna)), 784, 256, 1); });
  });
  add({"shifted", "truncation"}, "shifted_and_truncated", [=] {
    return conversion([](Conversion& c) {
      const Bytes cut = c.convert_with(rounded(Rounding::rtz));
      c.dut = cut;
      std::copy(cut.begin(), cut.end() - 256, c.dut.begin() + 256);
    });
  });
  add({"tie-rule", "conversion-profile"}, "ties_and_profile", [=] {
    return conversion([](Conversion& c) {
      c.dut = c.convert_with({.rounding = Rounding::rna, .profile = find_conversion_profile("ocp")});
    });
  });
  add({"subnormals-flushed", "truncation"}, "flushed_and_truncated", [=] {
    return conversion([](Conversion& c) {
      c.dut = c.convert_with(rounded(Rounding::rtz));
      for (std::byte& b : c.dut) {
        if ((b & std::byte{0x78}) == std::byte{}) b &= std::byte{0x80};
      }
    });
  });
  add({"relu-missing", "bias-missing"}, "no_relu_no_bias", [=] {
    return product("hif4", [](Product& p) {
      p.post.relu = Relu::relu;
      p.dut = fp32_bytes(p.accumulate_with(p.a, p.b, {}));
    });
  });
  add({"truncation", "bias-missing"}, "truncated_without_bias", [=] {
    return product("mxfp4", [](Product& p) {
      p.scale_by("QF322B8_PRE", 8.0, 3);
      p.post.saturate = true;
      PostprocessOptions wrong = p.post;
      wrong.rounding = Rounding::rtz;
      p.dut = p.finish(p.accumulate_with(p.a, p.b, {}), wrong);
    });
  });
  add({"tie-rule", "bias-missing"}, "ties_without_bias", [=] {
    return product("mxfp4", [](Product& p) {
      p.scale_by("QF322B8_PRE", 8.0, 3);
      p.post.saturate = true;
      PostprocessOptions wrong = p.post;
      wrong.rounding = Rounding::rna;
      p.dut = p.finish(p.accumulate_with(p.a, p.b, {}), wrong);
    });
  });
  add({"nibble-order", "scales-transposed"}, "operands_wrong_twice", [=] {
    return product("mxfp4", [](Product& p) {
      QuantizedTensor a = p.a;
      QuantizedTensor b = p.b;
      swap_nibbles(a.codes);
      transpose(b.scales, 64, 25, 1);
      p.dut = fp32_bytes(p.accumulate_with(a, b, p.with_addends({})));
    });
  });
  add({"micro-bit-order", "relu-missing"}, "micro_exponents_without_relu", [=] {
    return product("hif4", [](Product& p) {
      QuantizedTensor wrong = p.b;
      reverse_micro_exponents(wrong.scales);
      p.dut = fp32_bytes(p.accumulate_with(p.a, wrong, p.with_addends({})));
      p.post.relu = Relu::relu;
    });
  });
  add({"bias-missing", "accumulation"}, "no_bias_other_sums", [=] {
    return product("mxfp8-e4m3", [](Product& p) {
      MatmulOptions wrong;
      wrong.profile = find_accumulation_profile("exact");
      p.dut = fp32_bytes(p.accumulate_with(p.a, p.b, wrong));
    });
  });
  add({"bias-missing", "c-missing"}, "no_addends", [=] {
    return product("hif4", [](Product& p) {
      p.dut = fp32_bytes(p.accumulate_with(p.a, p.b, {}));
      p.with_c = true;
    });
  });
  add({"transposed", "bias-missing"}, "transposed_without_bias", [=] {
    return product("hif4", [](Product& p) {
      p.dut = fp32_bytes(p.accumulate_with(p.a, p.b, {}));
      transpose(p.dut, p.rows, p.columns, 4);
    });
  });
  return cases;
}

std::string report(const Diff& d) {
  return text_of(document_of(d, "golden", "dut"));
}

class Planted : public testing::TestWithParam<Case> {};

TEST_P(Planted, IsFoundFirst) {
  const Diff d = GetParam().run();
  ASSERT_FALSE(d.equal());
  EXPECT_EQ(d.golden_faults.value_or(0), 0U);
  ASSERT_FALSE(d.diagnoses.empty()) << report(d);
  const Diagnosis& first = d.diagnoses.front();
  EXPECT_EQ(first.ids, GetParam().ids) << report(d);
  EXPECT_EQ(first.certainty, GetParam().certainty) << report(d);
  EXPECT_EQ(first.explains, d.mismatches()) << report(d);
  EXPECT_EQ(first.of, d.mismatches());
  EXPECT_EQ(first.introduces, 0U);
  if (!GetParam().title.empty()) {
    EXPECT_EQ(first.title, GetParam().title);
  }
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(OneFault, Planted, testing::ValuesIn(single_faults()), case_name);
INSTANTIATE_TEST_SUITE_P(TwoFaults, Planted, testing::ValuesIn(double_faults()), case_name);

TEST(Hypotheses, EachHasAPlantedFault) {
  std::set<std::string> planted;
  for (const Case& c : single_faults()) planted.insert(c.ids.begin(), c.ids.end());
  for (const Hypothesis& h : hypotheses()) EXPECT_TRUE(planted.contains(std::string(h.id))) << h.id;
  EXPECT_EQ(planted.size(), hypotheses().size());
}

TEST(Diff, CorrectPairsHaveNoDiagnosis) {
  Conversion c;
  c.dut = c.convert_with({});
  const Quantization q("hif4");
  Product p;
  p.dut = p.golden();
  for (const Diff& d : {c.run(), q.run(), p.run(), weights_alone(fp32).run()}) {
    EXPECT_TRUE(d.equal());
    EXPECT_TRUE(d.passes());
    EXPECT_TRUE(d.diagnoses.empty());
    EXPECT_TRUE(d.warnings.empty());
    EXPECT_EQ(d.golden_faults.value_or(0), 0U);
  }
}

TEST(Diff, FlippedBitsHaveNoCompleteDiagnosis) {
  std::mt19937 random(20);
  for (int round = 0; round < 12; ++round) {
    const auto flip = [&](Bytes& bytes, int count) {
      for (int i = 0; i < count; ++i) bytes[random() % bytes.size()] ^= std::byte{1} << (random() % 8);
    };
    const int count = 1 << (round % 8);
    Conversion c;
    c.dut = c.convert_with({});
    flip(c.dut, count);
    Quantization q(round % 2 == 0 ? "hif4" : "mxfp4");
    q.with_source = round % 4 < 2;
    flip(q.dut.codes, count);
    flip(q.dut.scales, count);
    Alone a = weights_alone(round % 2 == 0 ? fp32 : e4m3);
    flip(a.dut, count);
    for (const Diff& d : {c.run(), q.run(), a.run()}) {
      for (const Diagnosis& g : d.diagnoses) EXPECT_NE(g.certainty, Certainty::complete) << report(d);
    }
  }
  Product p;
  p.dut = p.golden();
  for (int i = 0; i < 30; ++i) p.dut[random() % p.dut.size()] ^= std::byte{1} << (random() % 8);
  const Diff d = p.run();
  for (const Diagnosis& g : d.diagnoses) EXPECT_NE(g.certainty, Certainty::complete) << report(d);
}

TEST(Diff, ExplainsMostOfWhatNoiseIsOn) {
  Conversion c;
  c.golden = c.convert_with({});
  c.dut = c.convert_with(rounded(Rounding::rtz));
  std::mt19937 random(4);
  for (int i = 0; i < 300; ++i) c.dut[random() % c.dut.size()] ^= std::byte{0x40};
  std::copy_n(c.golden.begin(), 10 * kOutputs, c.dut.begin());  // ten rows are right
  uint64 explained = 0;
  uint64 introduced = 0;
  const Bytes cut = c.convert_with(rounded(Rounding::rtz));
  for (std::size_t i = 0; i < cut.size(); ++i) {
    if (c.golden[i] != c.dut[i]) explained += cut[i] == c.dut[i] ? 1U : 0U;
    if (c.golden[i] == c.dut[i]) introduced += cut[i] != c.dut[i] ? 1U : 0U;
  }
  const Diff d = c.run();
  ASSERT_FALSE(d.diagnoses.empty());
  const Diagnosis& first = d.diagnoses.front();
  EXPECT_EQ(first.ids, Ids{"truncation"}) << report(d);
  EXPECT_EQ(first.certainty, Certainty::mostly);
  EXPECT_EQ(first.explains, explained);
  EXPECT_EQ(first.introduces, introduced);
  EXPECT_GT(introduced, 0U);
  EXPECT_LT(first.explains, first.of);
}

TEST(Diff, PaddingThatIsNotZeroIsNotExplained) {
  Alone a;
  a.shape = {784, 250};
  const auto w = weights(250);
  a.golden = bytes_of(w);
  std::vector<float> padded;
  for (std::size_t i = 0; i < 784 * 256; ++i) padded.push_back(i % 256 < 250 ? w[i / 256 * 250 + i % 256] : 7.0F);
  padded.resize(w.size());
  a.dut = bytes_of(padded);
  const Diff d = a.run();
  ASSERT_FALSE(d.diagnoses.empty());
  EXPECT_EQ(d.diagnoses.front().ids, Ids{"padding"}) << report(d);
  EXPECT_EQ(d.diagnoses.front().certainty, Certainty::mostly);
  EXPECT_EQ(d.mismatches() - d.diagnoses.front().explains,
            765U * 6);  // rows of 256 that 196000 words begin, but the last
}

TEST(Diff, DoesNotDependOnThreads) {
  Conversion c;
  c.golden = c.convert_with({});
  c.dut = as_nz(c.convert_with(rounded(Rounding::rna)), 784, 256, 1);
  DiffInputs inputs;
  inputs.parts.push_back(part("result", PartRole::result, e4m3, c.shape, c.golden, c.dut));
  inputs.conversion = ConversionInputs{c.source, &bf16, {}};
  DiffOptions one;
  one.compare.execution.threads = 1;
  DiffOptions two;
  two.compare.execution.threads = 2;
  EXPECT_EQ(json_of(*diff(inputs, one), "g", "d"), json_of(*diff(inputs, two), "g", "d"));
}

TEST(Diff, SaysThatGoldenIsNotWhatTheInputsGive) {
  Conversion c;
  c.golden = c.convert_with(rounded(Rounding::rna));
  c.dut = c.convert_with({});
  const Diff d = c.run();
  ASSERT_TRUE(d.golden_faults);
  EXPECT_EQ(*d.golden_faults, d.mismatches());
  ASSERT_EQ(d.warnings.size(), 1U);
  EXPECT_NE(d.warnings[0].find("GOLDEN is not what bitcube computes"), std::string::npos);
  EXPECT_NE(d.warnings[0].find("DUT is, bit for bit"), std::string::npos);
}

TEST(Diff, ExplainsTheFaultOfGolden) {
  Conversion c;
  c.golden = c.convert_with(rounded(Rounding::rna));
  c.dut = c.convert_with({});
  const Diff d = c.run();
  EXPECT_TRUE(d.golden_is_wrong());
  EXPECT_EQ(d.dut_faults, uint64{0});
  ASSERT_FALSE(d.diagnoses.empty());
  EXPECT_EQ(d.diagnoses[0].ids, Ids{"tie-rule"}) << report(d);
  EXPECT_EQ(d.diagnoses[0].certainty, Certainty::complete);
  EXPECT_TRUE(d.diagnoses[0].in_golden);
  EXPECT_NE(report(d).find("in GOLDEN: other tie rule: RNA instead of RNE"), std::string::npos) << report(d);
}

TEST(Diff, AFaultWithoutEffectExplainsNothing) {
  // Nothing overflows, so DUT is also what saturation gives: that is no reason why GOLDEN's noise differs from it.
  Product p;
  p.scale_by("QF322B8_PRE", 0.25);
  const Bytes right = p.golden();
  Bytes noisy = right;
  std::mt19937 random(7);
  for (int i = 0; i < 40; ++i) noisy[random() % noisy.size()] ^= std::byte{1} << (random() % 8);
  const auto run = [&](const Bytes& golden, const Bytes& dut) {
    DiffInputs inputs;
    inputs.parts.push_back(part("result", PartRole::result, format_of(DataType::s8), {p.rows, p.columns}, golden, dut));
    inputs.product =
        ProductInputs{*quantized_operand(Side::a, p.a), *quantized_operand(Side::b, p.b), p.with_addends({}), p.post};
    return must_diff(inputs);
  };
  const Diff swapped = run(noisy, right);
  EXPECT_TRUE(swapped.golden_is_wrong());
  EXPECT_TRUE(swapped.diagnoses.empty()) << report(swapped);
  EXPECT_NE(report(swapped).find("GOLDEN is not what bitcube computes from these inputs, and DUT is"),
            std::string::npos)
      << report(swapped);
  // DUT has an element of noise too, which the other prediction does not have either.
  Bytes dut = right;
  dut[5] ^= std::byte{1};
  const Diff both = run(noisy, dut);
  EXPECT_TRUE(both.diagnoses.empty()) << report(both);
}

TEST(Diff, AWrongElementIsNoPairOfFaults) {
  const std::vector<std::uint16_t> source{0x3F81, 0x3E99, 0xBF12, 0x4048, 0x3C11, 0x3FA7};
  for (std::size_t at = 0; at < source.size(); ++at) {
    for (unsigned wrong = 1; wrong < 256; wrong += 6) {
      Conversion c;
      c.source = bytes_of(source);
      c.shape = {source.size()};
      c.dut = c.convert_with({});
      c.dut[at] ^= static_cast<std::byte>(wrong);
      for (const Diagnosis& g : c.run().diagnoses) {
        EXPECT_FALSE(g.certainty == Certainty::complete && g.ids.size() == 2) << at << " " << wrong << " " << g.title;
      }
    }
  }
  // What is fitted to the element fits it.
  Alone a;
  a.shape = {16};
  std::vector<float> words(16);
  words[3] = 1.5F;
  a.golden = bytes_of(words);
  words[3] = 12.0F;
  a.dut = bytes_of(words);
  const Diff d = a.run();
  ASSERT_FALSE(d.diagnoses.empty());
  for (const Diagnosis& g : d.diagnoses) EXPECT_EQ(g.certainty, Certainty::hint) << g.title;
  EXPECT_EQ(d.diagnoses[0].ids, Ids{"factor"});
}

TEST(Diff, HintsDoNotContradictTheData) {
  const auto titles = [](const Diff& d) {
    std::string text;
    for (const Diagnosis& g : d.diagnoses) text += g.title + "; ";
    return text;
  };
  // Zeros that became negative: a ReLU that is missing is no reason, since GOLDEN has negative values.
  Alone a = weights_alone(fp32);
  auto words = words_of<float>(a.golden);
  for (std::size_t i = 0; i < words.size(); i += 3) words[i] = 0;
  a.golden = bytes_of(words);
  for (std::size_t i = 0; i < words.size(); i += 3) words[i] = -0.25F - static_cast<float>(i % 7);
  a.dut = bytes_of(words);
  EXPECT_EQ(titles(a.run()).find("left out"), std::string::npos) << titles(a.run());
  // Half of all codes differ in the last bit, which is always 1 in DUT.
  a = weights_alone(e4m3);
  for (std::byte& b : a.dut) b |= std::byte{1};
  EXPECT_EQ(titles(a.run()).find("tie"), std::string::npos) << titles(a.run());
}

TEST(Diff, NoOffsetIsNoFault) {
  const auto tried = [](int offset) {
    Product p("mxfp4");
    p.scale_by("QF322B8_PRE", 8.0, offset);
    const Bytes golden = p.golden();
    p.dut = golden;
    p.dut[0] ^= std::byte{4};
    DiffInputs inputs;
    inputs.parts.push_back(
        part("result", PartRole::result, format_of(DataType::s8), {p.rows, p.columns}, golden, p.dut));
    inputs.product =
        ProductInputs{*quantized_operand(Side::a, p.a), *quantized_operand(Side::b, p.b), p.with_addends({}), p.post};
    DiffOptions alone;
    alone.pairs = false;
    return diff(inputs, alone)->tried;
  };
  EXPECT_EQ(tried(3), tried(0) + 2);  // it is neither left out nor added too early
}

TEST(Diff, CountsStepsOfScales) {
  Quantization q("mxfp4");
  step_scales(q);
  const Diff d = q.run();
  ASSERT_FALSE(d.diagnoses.empty());
  // 784 * 8 groups, every 11th
  EXPECT_EQ(d.diagnoses.front().detail, "scale + 1 in 571 groups, scale - 1 in 0 groups");
}

TEST(Diff, RefusesInputsThatDoNotFit) {
  Conversion c;
  c.golden = c.dut = c.convert_with({});
  c.source.pop_back();
  DiffInputs inputs;
  inputs.parts.push_back(part("result", PartRole::result, e4m3, {784, 256}, c.golden, c.dut));
  inputs.conversion = ConversionInputs{c.source, &bf16, {}};
  EXPECT_FALSE(diff(inputs));
  inputs.conversion.reset();
  EXPECT_TRUE(diff(inputs));
  inputs.parts[0].shape = {784, 255};
  EXPECT_FALSE(diff(inputs));
  inputs.parts.clear();
  EXPECT_FALSE(diff(inputs));
}

TEST(Diff, TextAndJsonSayTheSame) {
  Conversion c;
  c.dut = c.convert_with(rounded(Rounding::rna));
  const Diff d = c.run();
  const std::string text = report(d);
  EXPECT_NE(text.find("other tie rule: RNA instead of RNE"), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(d.mismatches()) + " of 200704"), std::string::npos) << text;
  const std::string json = json_of(d, "golden", "dut");
  EXPECT_NE(json.find("\"other tie rule: RNA instead of RNE\""), std::string::npos);
  EXPECT_NE(json.find("\"mismatches\": " + std::to_string(d.mismatches())), std::string::npos);
}

}  // namespace
}  // namespace bitcube::test
