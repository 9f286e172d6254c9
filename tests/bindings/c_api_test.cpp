// The C interface against the C++ library: the same bytes, flags, statuses and messages on random calls.
#include "bitcube.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bindings/handles.hpp"
#include "bitcube/cube/matrix_operand.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/isa/codes.hpp"
#include "bitcube/isa/text.hpp"
#include "bitcube/program/program.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "bitcube/version.hpp"
#include "bitcube_dpi.h"

namespace bitcube {
namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t bits() { return engine_(); }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine_() % n); }
  std::int32_t code(std::size_t n) { return static_cast<std::int32_t>(below(n)); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <typename Table>
  const auto& of(const Table& table) {
    return table[below(table.size())];
  }
  std::vector<std::byte> bytes(std::size_t n) {
    std::vector<std::byte> out(n);
    for (std::byte& b : out) b = static_cast<std::byte>(engine_());
    return out;
  }
  /// Words whose exponents are close together, so that sums and scales matter, and some of any kind.
  std::vector<std::uint32_t> fp32(std::size_t n) {
    std::vector<std::uint32_t> out(n);
    for (std::uint32_t& w : out) {
      w = static_cast<std::uint32_t>(bits());
      if (!one_in(50)) w = (w & 0x807FFFFF) | static_cast<std::uint32_t>(120 + below(14)) << 23;
    }
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

struct FreeTensor {
  void operator()(bitcube_tensor* t) const { bitcube_tensor_free(t); }
};
struct FreeCore {
  void operator()(bitcube_core* c) const { bitcube_core_free(c); }
};
struct FreeProgram {
  void operator()(bitcube_program* p) const { bitcube_program_free(p); }
};
using TensorHandle = std::unique_ptr<bitcube_tensor, FreeTensor>;
using CoreHandle = std::unique_ptr<bitcube_core, FreeCore>;
using ProgramHandle = std::unique_ptr<bitcube_program, FreeProgram>;

std::uint32_t bits_of(Flags flags) {
  return static_cast<std::uint32_t>(flags);
}
std::int32_t code_of(const Format& f) {
  return static_cast<std::int32_t>(f.type);
}
/// What C must say where C++ says this.
void expect_refused(bitcube_status status, const Error& error) {
  EXPECT_EQ(status, BITCUBE_REFUSED);
  EXPECT_EQ(std::string(bitcube_last_error()), error.message.substr(0, 1023));
}

// ---- Names

TEST(CApi, Version) {
  EXPECT_STREQ(bitcube_version(), version);
}

template <typename Table, typename Code>
void expect_table(std::int32_t table, const Table& rows, const Code& code) {
  ASSERT_EQ(bitcube_table_size(table), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    bitcube_entry entry{};
    ASSERT_EQ(bitcube_table_entry(table, i, &entry), BITCUBE_OK);
    EXPECT_EQ(entry.name, rows[i].name);
    EXPECT_EQ(entry.code, code(i));
    if constexpr (requires { rows[i].meaning; }) {
      EXPECT_EQ(entry.meaning, rows[i].meaning);
    } else {
      EXPECT_STREQ(entry.meaning, "");
    }
    EXPECT_EQ(bitcube_name(table, entry.code), rows[i].name);
    std::string upper(rows[i].name);
    std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
    std::int32_t found = -7;
    EXPECT_EQ(bitcube_find(table, upper.c_str(), &found), BITCUBE_OK);
    EXPECT_EQ(found, entry.code);
    if constexpr (requires { rows[i].alias; }) {
      if (rows[i].alias.empty()) continue;
      found = -7;
      EXPECT_EQ(bitcube_find(table, std::string(rows[i].alias).c_str(), &found), BITCUBE_OK);
      EXPECT_EQ(found, entry.code);
    }
  }
  bitcube_entry entry{};
  EXPECT_EQ(bitcube_table_entry(table, rows.size(), &entry), BITCUBE_UNKNOWN);
}

TEST(CApi, Tables) {
  const auto index = [](std::size_t i) { return static_cast<std::int32_t>(i); };
  expect_table(BITCUBE_TYPES, formats, [](std::size_t i) { return code_of(formats[i]); });
  expect_table(BITCUBE_ROUNDINGS, roundings,
               [](std::size_t i) { return static_cast<std::int32_t>(roundings[i].mode); });
  expect_table(BITCUBE_CONVERSION_PROFILES, conversion_profiles, index);
  expect_table(BITCUBE_BLOCK_FORMATS, block_formats, index);
  expect_table(BITCUBE_HIF4_PROFILES, hif4_profiles, index);
  expect_table(BITCUBE_SCALE_RULES, scale_rules, index);
  expect_table(BITCUBE_PREQUANT_MODES, prequant_modes,
               [](std::size_t i) { return std::int32_t{prequant_modes[i].code}; });
  expect_table(BITCUBE_ACCUMULATION_PROFILES, accumulation_profiles, index);
  struct Named {
    std::string_view name;
  };
  const std::vector<Named> layouts{{"RowMajor"}, {"ColumnMajor"}, {"ZN"},     {"NZ"},
                                   {"CUBE_M16"}, {"CUBE_M32"},    {"CUBE_N8"}};
  expect_table(BITCUBE_LAYOUTS, layouts, index);
  std::vector<Named> classes;
  for (int i = 0; i < 10; ++i) classes.push_back({machine::name_of(static_cast<machine::FaultClass>(i))});
  expect_table(BITCUBE_FAULT_CLASSES, classes, index);
  EXPECT_EQ(classes.back().name, "BundlePostCommit");
  EXPECT_EQ(bitcube_table_size(10), 0U);
  EXPECT_EQ(bitcube_table_size(-1), 0U);
}

TEST(CApi, Descriptors) {
  for (const Format& f : formats) {
    bitcube_format c{};
    ASSERT_EQ(bitcube_format_of(code_of(f), &c), BITCUBE_OK);
    EXPECT_EQ(c.name, f.name);
    EXPECT_EQ(c.alias, f.alias);
    EXPECT_EQ(c.type, code_of(f));
    EXPECT_EQ(c.kind, static_cast<int>(f.kind));
    EXPECT_EQ(c.carrier_bits, f.carrier_bits);
    EXPECT_EQ(c.lane_bits, f.lane_bits);
    EXPECT_EQ(c.value_bits, f.value_bits);
    EXPECT_EQ(c.lanes_per_carrier, f.lanes_per_carrier);
    EXPECT_EQ(c.low_zero_bits, f.low_zero_bits);
    EXPECT_EQ(c.sign_bits, f.sign_bits);
    EXPECT_EQ(c.exponent_bits, f.exponent_bits);
    EXPECT_EQ(c.fraction_bits, f.fraction_bits);
    EXPECT_EQ(c.bias, f.bias);
    EXPECT_EQ(c.has_zero != 0, f.has_zero);
    EXPECT_EQ(c.has_signed_zero != 0, f.has_signed_zero);
    EXPECT_EQ(c.has_nan != 0, f.nan != NanCodes::none);
    EXPECT_EQ(c.has_infinity != 0, f.has_infinity);
    EXPECT_EQ(c.canonical_nan, f.canonical_nan);
    EXPECT_EQ(c.infinity, f.infinity);
    EXPECT_EQ(c.max_finite, f.max_finite);
  }
  for (std::size_t i = 0; i < block_formats.size(); ++i) {
    bitcube_block_format c{};
    ASSERT_EQ(bitcube_block_format_of(static_cast<std::int32_t>(i), &c), BITCUBE_OK);
    EXPECT_EQ(c.name, block_formats[i].name);
    EXPECT_EQ(c.alias, block_formats[i].alias);
    EXPECT_EQ(c.meaning, block_formats[i].meaning);
    EXPECT_EQ(c.element, code_of(*block_formats[i].element));
    EXPECT_EQ(c.scale, code_of(*block_formats[i].scale));
    EXPECT_EQ(c.group, block_formats[i].group);
    EXPECT_EQ(c.lane_bits, block_formats[i].element->lane_bits);
  }
  for (const PreQuantMode& m : prequant_modes) {
    bitcube_prequant c{};
    ASSERT_EQ(bitcube_prequant_of(m.code, &c), BITCUBE_OK);
    EXPECT_EQ(c.name, m.name);
    EXPECT_EQ(c.code, m.code);
    EXPECT_EQ(c.accumulator, m.accumulator == DataType::none ? -1 : static_cast<int>(m.accumulator));
    EXPECT_EQ(c.destination, m.destination == DataType::none ? -1 : static_cast<int>(m.destination));
    EXPECT_EQ(c.carrier, static_cast<int>(m.carrier));
    EXPECT_EQ(c.per_column != 0, m.per_column);
    EXPECT_EQ(c.offset_bits, m.offset_bits);
    EXPECT_EQ(c.rounding, static_cast<int>(m.rounding));
    EXPECT_EQ(c.rounding_is_fixed != 0, m.rounding_rule == RoundingRule::fixed);
    EXPECT_EQ(c.saturation_allowed != 0, m.saturation_allowed);
  }
  bitcube_format format{};
  EXPECT_EQ(bitcube_format_of(22, &format), BITCUBE_UNKNOWN);
  EXPECT_EQ(bitcube_format_of(31, &format), BITCUBE_UNKNOWN);
  bitcube_block_format block{};
  EXPECT_EQ(bitcube_block_format_of(8, &block), BITCUBE_UNKNOWN);
  bitcube_prequant mode{};
  EXPECT_EQ(bitcube_prequant_of(6, &mode), BITCUBE_UNKNOWN);
  EXPECT_EQ(bitcube_name(BITCUBE_TYPES, 22), nullptr);
}

// ---- Numeric

bitcube_control random_control(Random& random) {
  bitcube_control c{};
  c.rounding = random.code(8);
  c.saturate = random.code(2);
  c.profile = random.code(conversion_profiles.size());
  c.threads = static_cast<std::uint32_t>(random.below(3));
  c.reference = random.code(2);
  return c;
}
EncodeControl control_of(const bitcube_control& c, const Format& from, const Format& to) {
  return {.rounding = c.rounding == 0 ? default_rounding(from.is_integer(), to) : static_cast<Rounding>(c.rounding),
          .saturate = c.saturate == 1,
          .profile = &conversion_profiles[static_cast<std::size_t>(c.profile)]};
}

TEST(CApi, ConvertsOneLane) {
  Random random(1);
  int refused = 0;
  for (const Format& from : formats) {
    for (const Format& to : formats) {
      for (int i = 0; i < 40; ++i) {
        const bitcube_control c = random_control(random);
        const EncodeControl control = control_of(c, from, to);
        const std::uint64_t word = random.bits() >> random.below(64);
        std::uint64_t code = 0xABCD;
        std::uint32_t flags = 0xEF;
        const bitcube_status status = bitcube_convert(code_of(from), code_of(to), word, &c, &code, &flags);
        std::uint64_t flat_code = 0xABCD;
        std::uint32_t flat_flags = 0xEF;
        EXPECT_EQ(bitcube_dpi_convert(code_of(from), code_of(to), word, c.rounding, c.saturate, c.profile, &flat_code,
                                      &flat_flags),
                  status);
        EXPECT_EQ(flat_code, code);
        EXPECT_EQ(flat_flags, flags);
        if (!conversion_legal(from, to) || !rounding_legal(from, to, control.rounding)) {
          EXPECT_EQ(status, BITCUBE_REFUSED);
          EXPECT_EQ(code, 0xABCDU);
          EXPECT_EQ(flags, 0xEFU);
          ++refused;
          continue;
        }
        const Encoded expected = convert(from, to, word, control);
        ASSERT_EQ(status, BITCUBE_OK) << bitcube_last_error();
        ASSERT_EQ(code, expected.bits) << from.name << " " << to.name << " " << std::hex << word;
        ASSERT_EQ(flags, bits_of(expected.flags));
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(CApi, ConvertsArrays) {
  Random random(2);
  for (int i = 0; i < 3000; ++i) {
    const Format& from = random.of(formats);
    const Format& to = random.of(formats);
    const bitcube_control c = random_control(random);
    const std::size_t count = random.below(200);
    const auto words = random.bytes(count * (from.carrier_bits / 8U));
    const auto expected = convert_array(words, from, to, control_of(c, from, to));
    std::vector<std::byte> out(count * (to.carrier_bits / 8U), std::byte{0x5A});
    const auto before = out;
    std::uint32_t flags = 0xEF;
    const bitcube_status status =
        bitcube_convert_array(code_of(from), code_of(to), words.data(), count, &c, out.data(), out.size(), &flags);
    if (!expected) {
      expect_refused(status, expected.error());
      EXPECT_EQ(out, before);
      EXPECT_EQ(flags, 0xEFU);
      continue;
    }
    ASSERT_EQ(status, BITCUBE_OK) << bitcube_last_error();
    ASSERT_EQ(out, expected->words);
    ASSERT_EQ(flags, bits_of(expected->flags));
  }
}

/// A tensor in C and in C++.
struct Both {
  TensorHandle c;
  QuantizedTensor cpp;
};

void expect_same_tensor(const bitcube_tensor* c, const QuantizedTensor& t) {
  bitcube_tensor_info info{};
  ASSERT_EQ(bitcube_tensor_describe(c, &info), BITCUBE_OK);
  EXPECT_EQ(&block_formats[static_cast<std::size_t>(info.format)], t.format);
  EXPECT_EQ(info.hif4_profile == -1 ? nullptr : &hif4_profiles[static_cast<std::size_t>(info.hif4_profile)], t.profile);
  EXPECT_EQ(info.scale_rule == -1 ? nullptr : &scale_rules[static_cast<std::size_t>(info.scale_rule)], t.scale_rule);
  EXPECT_EQ(info.rounding, static_cast<int>(t.rounding));
  EXPECT_EQ(info.source, code_of(*t.source));
  EXPECT_EQ(info.has_tensor_scale == 1, t.tensor_scale.has_value());
  EXPECT_EQ(info.tensor_scale, t.tensor_scale.value_or(0));
  EXPECT_EQ(info.axis, t.axis);
  ASSERT_EQ(info.rank, t.shape.size());
  std::vector<std::uint64_t> shape(info.rank);
  ASSERT_EQ(bitcube_tensor_shape(c, shape.data(), shape.size()), BITCUBE_OK);
  EXPECT_EQ(shape, t.shape);
  ASSERT_EQ(info.code_bytes, t.codes.size());
  ASSERT_EQ(info.scale_bytes, t.scales.size());
  if (!t.codes.empty()) {
    EXPECT_EQ(std::memcmp(bitcube_tensor_codes(c), t.codes.data(), t.codes.size()), 0);
  }
  if (!t.scales.empty()) {
    EXPECT_EQ(std::memcmp(bitcube_tensor_scales(c), t.scales.data(), t.scales.size()), 0);
  }
}

TEST(CApi, Tensors) {
  Random random(3);
  const std::array sources{&fp32, &bf16, &fp16, &fp64, &e4m3, &format_of(DataType::s8)};
  int accepted = 0;
  int tensor_scales = 0;
  for (int i = 0; i < 1500; ++i) {
    const Format& source = *random.of(sources);
    std::vector<std::uint64_t> shape(random.one_in(30) ? 0 : 1 + random.below(3));
    for (auto& extent : shape) extent = random.one_in(30) ? 0 : 1 + random.below(40);
    std::size_t elements = 1;
    for (const auto extent : shape) elements *= extent;
    const std::size_t axis = shape.empty() || random.one_in(30) ? shape.size() : random.below(shape.size());
    std::vector<std::byte> words = random.bytes(elements * (source.carrier_bits / 8U));
    if (&source == &fp32) {
      const auto lanes = random.fp32(elements);
      if (elements != 0) std::memcpy(words.data(), lanes.data(), words.size());
    }
    if (random.one_in(40)) words.push_back(std::byte{});
    bitcube_quantize_options o{};
    o.format = random.code(block_formats.size());
    o.hif4_profile = random.code(hif4_profiles.size());
    o.scale_rule = random.code(scale_rules.size());
    o.rounding = random.code(8);
    o.tensor_scale = o.format == BITCUBE_NVFP4 || random.one_in(20) ? random.code(2) : 0;
    o.threads = 1;
    o.reference = random.code(2);
    const QuantizeOptions options{.format = &block_formats[static_cast<std::size_t>(o.format)],
                                  .profile = &hif4_profiles[static_cast<std::size_t>(o.hif4_profile)],
                                  .scale_rule = &scale_rules[static_cast<std::size_t>(o.scale_rule)],
                                  .rounding = o.rounding == 0 ? Rounding::rne : static_cast<Rounding>(o.rounding),
                                  .tensor_scale = o.tensor_scale == 1};
    const auto expected = quantize(words, source, shape, axis, options);
    bitcube_tensor* made = nullptr;
    const bitcube_status status =
        bitcube_quantize(code_of(source), words.data(), words.size(), shape.data(), shape.size(), axis, &o, &made);
    const TensorHandle tensor(made);
    if (!expected) {
      expect_refused(status, expected.error());
      EXPECT_EQ(made, nullptr);
      continue;
    }
    ASSERT_EQ(status, BITCUBE_OK) << bitcube_last_error();
    ++accepted;
    tensor_scales += expected->tensor_scale.has_value();
    expect_same_tensor(tensor.get(), *expected);

    // The same from its parts, and from parts that do not go together.
    bitcube_tensor_info info{};
    ASSERT_EQ(bitcube_tensor_describe(tensor.get(), &info), BITCUBE_OK);
    bitcube_tensor* again = nullptr;
    ASSERT_EQ(bitcube_tensor_new(&info, shape.data(), expected->codes.data(), expected->scales.data(), &again),
              BITCUBE_OK)
        << bitcube_last_error();
    const TensorHandle copy(again);
    expect_same_tensor(copy.get(), *expected);
    if (!expected->scales.empty()) {
      QuantizedTensor broken = *expected;
      broken.scales.pop_back();
      const auto valid = validate(broken);
      ASSERT_FALSE(valid);
      --info.scale_bytes;
      again = nullptr;
      expect_refused(bitcube_tensor_new(&info, shape.data(), broken.codes.data(), broken.scales.data(), &again),
                     valid.error());
      EXPECT_EQ(again, nullptr);
    }

    const Format& to = *random.of(sources);
    bitcube_control c{};
    c.rounding = random.code(8);
    c.reference = random.code(2);
    const auto back = dequantize(*expected, to, c.rounding == 0 ? Rounding::rne : static_cast<Rounding>(c.rounding));
    std::vector<std::byte> out(elements * (to.carrier_bits / 8U));
    std::uint32_t flags = 0xEF;
    const bitcube_status dequantized =
        bitcube_dequantize(tensor.get(), code_of(to), &c, out.data(), out.size(), &flags);
    if (!back) {
      expect_refused(dequantized, back.error());
      continue;
    }
    ASSERT_EQ(dequantized, BITCUBE_OK) << bitcube_last_error();
    ASSERT_EQ(out, back->bytes);
    ASSERT_EQ(flags, bits_of(back->flags));
    if (!out.empty()) {
      EXPECT_EQ(bitcube_dequantize(tensor.get(), code_of(to), &c, out.data(), out.size() - 1, &flags),
                BITCUBE_BAD_SIZE);
    }
  }
  EXPECT_GT(accepted, 800);
  EXPECT_GT(tensor_scales, 30);
}

TEST(CApi, Hif4GroupsOfSystemVerilog) {
  Random random(4);
  for (int i = 0; i < 300; ++i) {
    const auto lanes = random.fp32(64);
    const std::int32_t profile = random.code(hif4_profiles.size());
    const std::array<std::uint64_t, 1> shape{64};
    const auto expected =
        quantize(std::as_bytes(std::span(lanes)), fp32, shape, 0,
                 {.format = &block_formats[0], .profile = &hif4_profiles[static_cast<std::size_t>(profile)]});
    std::uint32_t codes[8];
    std::uint32_t scale = 0;
    ASSERT_EQ(bitcube_dpi_quantize_hif4(lanes.data(), profile, codes, &scale), BITCUBE_OK);
    ASSERT_EQ(std::memcmp(codes, expected->codes.data(), 32), 0);
    ASSERT_EQ(std::memcmp(&scale, expected->scales.data(), 4), 0);
  }
}

// ---- Cube

/// One side in both languages, with the memory behind it.
struct SideOfBoth {
  std::vector<std::byte> words;
  std::vector<std::byte> scales;
  QuantizedTensor cpp_tensor;
  TensorHandle c_tensor;
  Operand cpp;
  bitcube_operand c{};
};

void make_side(Random& random, Side side, std::size_t lines, std::size_t k, SideOfBoth& out) {
  const std::size_t rows = side == Side::a ? lines : k;
  const std::size_t cols = side == Side::a ? k : lines;
  if (random.one_in(3)) {
    const auto words = random.fp32(lines * k);
    const std::array<std::uint64_t, 2> shape{rows, cols};
    const std::size_t axis = side == Side::a ? 1 : 0;
    bitcube_quantize_options o{};
    o.format = random.code(block_formats.size());
    out.cpp_tensor = *quantize(std::as_bytes(std::span(words)), fp32, shape, axis,
                               {.format = &block_formats[static_cast<std::size_t>(o.format)]});
    bitcube_tensor* made = nullptr;
    ASSERT_EQ(bitcube_quantize(BITCUBE_FP32, words.data(), 4 * words.size(), shape.data(), 2, axis, &o, &made),
              BITCUBE_OK);
    out.c_tensor.reset(made);
    out.c.tensor = made;
    const auto operand = quantized_operand(side, out.cpp_tensor);
    if (operand) out.cpp = *operand;
    return;
  }
  const std::array types{DataType::fp32, DataType::fp16, DataType::bf16, DataType::e4m3,   DataType::e5m2,
                         DataType::hif8, DataType::s8,   DataType::u8,   DataType::s4x2,   DataType::e2m1x2,
                         DataType::s16,  DataType::u16,  DataType::fp64, DataType::hif4x2, DataType::e1m2x2};
  const Format& f = format_of(random.of(types));
  out.words = random.bytes(lines * k * (f.carrier_bits / 8U));
  out.cpp = matrix_operand(side, f, out.words, rows, cols);
  out.c.type = code_of(f);
  out.c.rows = rows;
  out.c.cols = cols;
  out.c.words = out.words.data();
  out.c.word_bytes = out.words.size();
  if (random.one_in(2)) {
    const std::size_t group = scale_group(f);
    out.scales = random.bytes((k + group - 1) / group * lines * (f.type == DataType::hif4x2 ? 4 : 1));
    attach_scales(side, out.cpp, out.scales);
    out.c.scales = out.scales.data();
    out.c.scale_bytes = out.scales.size();
  }
}

TEST(CApi, Products) {
  Random random(5);
  int accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::size_t m = 1 + random.below(5);
    const std::size_t n = 1 + random.below(5);
    const std::size_t k = 1 + random.below(70);
    SideOfBoth a;
    SideOfBoth b;
    make_side(random, Side::a, m, k, a);
    make_side(random, Side::b, n, random.one_in(30) ? k + 1 : k, b);
    bitcube_product_kind c_kind{};
    const bitcube_status kind_status = bitcube_product_of(&a.c, &b.c, &c_kind);
    std::vector<std::uint32_t> out(m * n, 0x5A5A5A5A);
    const std::vector<std::uint32_t> before = out;
    const auto c = random.fp32(m * n + (random.one_in(20) ? 1 : 0));
    const auto bias = random.fp32(n);
    bitcube_matmul_options o{};
    o.accumulation = random.code(accumulation_profiles.size());
    o.threads = 1;
    o.reference = random.code(2);
    o.group = random.one_in(4) ? 1 + random.below(40) : 0;
    MatmulOptions options;
    options.profile = &accumulation_profiles[static_cast<std::size_t>(o.accumulation)];
    options.group = o.group;
    if (random.one_in(2)) {
      o.c = c.data();
      o.c_words = c.size();
      options.c = c;
    }
    if (random.one_in(2)) {
      o.bias = bias.data();
      o.bias_words = bias.size();
      options.bias = bias;
    }
    const bitcube_status status = bitcube_matmul(&a.c, &b.c, &o, out.data(), out.size());
    if (a.cpp.format == nullptr || b.cpp.format == nullptr) {  // NVFP4
      EXPECT_EQ(kind_status, BITCUBE_REFUSED);
      EXPECT_EQ(status, BITCUBE_REFUSED);
      EXPECT_EQ(out, before);
      continue;
    }
    const auto kind = product_kind(a.cpp, b.cpp);
    if (kind) {
      EXPECT_EQ(kind_status, BITCUBE_OK);
      EXPECT_EQ(c_kind.accumulator, code_of(*kind->accumulator));
      EXPECT_EQ(c_kind.mx == 1, kind->mx);
      EXPECT_EQ(c_kind.group, kind->group);
      EXPECT_EQ(c_kind.rows, m);
      EXPECT_EQ(c_kind.cols, n);
      EXPECT_EQ(c_kind.k, k);
    } else {
      EXPECT_EQ(kind_status, BITCUBE_REFUSED);
    }
    const auto expected = matmul(a.cpp, b.cpp, options);
    if (!expected) {
      expect_refused(status, expected.error());
      EXPECT_EQ(out, before);
      continue;
    }
    ASSERT_EQ(status, BITCUBE_OK) << bitcube_last_error();
    ASSERT_TRUE(std::ranges::equal(out, expected->words));
    ++accepted;
    EXPECT_EQ(bitcube_matmul(&a.c, &b.c, &o, out.data(), out.size() + 1), BITCUBE_BAD_SIZE);
  }
  EXPECT_GT(accepted, 500);
}

TEST(CApi, MultiplyAddOfSystemVerilog) {
  Random random(6);
  int accepted = 0;
  for (int i = 0; i < 2000; ++i) {
    const Format& f = random.one_in(2) ? fp16 : random.of(formats);
    const Format& g = random.one_in(2) ? f : random.of(formats);
    const std::uint64_t a = random.bits();
    const std::uint64_t b = random.bits();
    const std::vector<std::uint32_t> c = random.fp32(1);
    const std::int32_t profile = random.code(accumulation_profiles.size());
    std::uint32_t result = 0x5A;
    const std::int32_t status = bitcube_dpi_mac(code_of(f), a, code_of(g), b, c[0], profile, &result);
    MatmulOptions options;
    options.profile = &accumulation_profiles[static_cast<std::size_t>(profile)];
    options.c = c;
    const auto expected = matmul(matrix_operand(Side::a, f, std::as_bytes(std::span(&a, 1)), 1, 1),
                                 matrix_operand(Side::b, g, std::as_bytes(std::span(&b, 1)), 1, 1), options);
    if (!expected) {
      EXPECT_EQ(status, BITCUBE_REFUSED);
      EXPECT_EQ(result, 0x5AU);
      continue;
    }
    ASSERT_EQ(status, BITCUBE_OK) << bitcube_last_error();
    ASSERT_EQ(result, expected->words[0]);
    ++accepted;
  }
  EXPECT_GT(accepted, 500);
}

TEST(CApi, Carriers) {
  Random random(7);
  for (int i = 0; i < 20000; ++i) {
    const auto word = static_cast<std::uint32_t>(random.bits());
    ASSERT_EQ(bitcube_fp32_to_fp19(word), fp32_to_fp19(word));
    const PreQuantMode& m = random.of(prequant_modes);
    const auto scale =
        static_cast<std::uint32_t>(random.one_in(3) ? random.below(1 << 20) : 0x400 + random.below(0x3F000));
    const auto offset = static_cast<std::int32_t>(random.below(600)) - 300;
    std::uint64_t carrier = 0x5A;
    const bitcube_status status = bitcube_scale_carrier(m.code, scale, offset, &carrier);
    const int limit = m.offset_bits == 0 ? 0 : 1 << (m.offset_bits - 1);
    const bool offset_fits = m.offset_bits == 0 ? offset == 0 : offset >= -limit && offset < limit;
    if (m.carrier == CarrierKind::scale && offset_fits && scale < (1 << 19) && legal_as_scale(scale)) {
      ASSERT_EQ(status, BITCUBE_OK) << bitcube_last_error();
      ASSERT_EQ(carrier, pack_scale_carrier(scale, offset, m.offset_bits));
    } else {
      ASSERT_EQ(status, BITCUBE_REFUSED);
      ASSERT_EQ(carrier, 0x5AU);
    }
    const auto shift = static_cast<std::int32_t>(random.below(20)) - 1;
    const bitcube_status shifted = bitcube_shift_carrier(m.code, shift, &carrier);
    if (m.carrier == CarrierKind::shift && shift >= 1 && shift <= 16) {
      ASSERT_EQ(shifted, BITCUBE_OK);
      ASSERT_EQ(carrier, pack_shift_carrier(shift));
    } else {
      ASSERT_EQ(shifted, BITCUBE_REFUSED);
    }
  }
}

std::uint64_t random_carrier(Random& random, const PreQuantMode& m) {
  if (random.one_in(100)) return random.bits();
  if (m.carrier == CarrierKind::shift) return pack_shift_carrier(1 + random.code(16));
  const auto scale = static_cast<std::uint64_t>(118 + random.below(12)) << 10 | random.below(1024);
  const int limit = m.offset_bits == 0 ? 0 : 1 << (m.offset_bits - 1);
  return pack_scale_carrier(scale, m.offset_bits == 0 ? 0 : random.code(static_cast<std::size_t>(2 * limit)) - limit,
                            m.offset_bits);
}

TEST(CApi, Postprocess) {
  Random random(8);
  int accepted = 0;
  int with_flags = 0;
  for (int i = 0; i < 6000; ++i) {
    const std::size_t rows = 1 + random.below(4);
    const std::size_t cols = 1 + random.below(20);
    const PreQuantMode& m = random.of(prequant_modes);
    const DataType type = m.accumulator == DataType::none || random.one_in(30)
                              ? random.of(std::array{DataType::fp32, DataType::s32, DataType::u32})
                              : m.accumulator;
    const auto words = random.fp32(rows * cols);
    std::vector<std::uint64_t> carriers(m.carrier == CarrierKind::none ? 0 : m.per_column ? cols : 1);
    if (random.one_in(50)) carriers.push_back(0);
    for (auto& w : carriers) w = random_carrier(random, m);
    const auto relu = static_cast<Relu>(m.carrier == CarrierKind::shift && !random.one_in(10) ? 0 : random.below(4));
    std::vector<std::uint64_t> alphas(relu == Relu::scalar ? 1 : relu == Relu::per_column ? cols : 0);
    for (auto& w : alphas) w = random.one_in(5) ? 0 : static_cast<std::uint64_t>(120 + random.below(8)) << 10;
    const auto init = random.fp32(rows);

    bitcube_postprocess_options o{};
    PostprocessOptions p;
    o.mode = m.code;
    p.mode = &m;
    o.relu = static_cast<int>(relu);
    p.relu = relu;
    o.rounding = m.rounding_rule == RoundingRule::fixed && !random.one_in(10) ? 0 : random.code(8);
    if (o.rounding != 0) p.rounding = static_cast<Rounding>(o.rounding);
    o.saturate = m.saturation_allowed || random.one_in(10) ? random.code(2) : 0;
    p.saturate = o.saturate == 1;
    o.profile = random.code(conversion_profiles.size());
    p.profile = &conversion_profiles[static_cast<std::size_t>(o.profile)];
    o.row_max = random.code(2);
    p.row_max = o.row_max == 1;
    if (random.one_in(3)) {
      o.row_max_init = init.data();
      o.row_max_init_words = init.size();
      p.row_max_init = init;
    }
    o.group_n = static_cast<std::uint32_t>(random.one_in(2) ? 0 : random.one_in(10) ? 9 : random.of(group_n_values));
    p.group_n = o.group_n;
    o.max_abs = (o.row_max == 1 || o.group_n != 0 || random.one_in(10)) ? random.code(2) : 0;
    p.max_abs = o.max_abs == 1;
    o.reference = random.code(2);
    o.threads = 1;
    o.carriers = carriers.data();
    o.carrier_count = carriers.size();
    p.quant_carriers = carriers;
    o.alphas = alphas.data();
    o.alpha_count = alphas.size();
    p.activation_carriers = alphas;

    const Format& accumulator = format_of(type);
    const auto expected = postprocess(
        Accumulators{.format = &accumulator, .rows = rows, .cols = cols, .words = {words.begin(), words.end()}}, p);
    bitcube_postprocess_sizes sizes{};
    const bitcube_status checked = bitcube_postprocess_check(code_of(accumulator), rows, cols, &o, &sizes);
    if (!expected) {
      expect_refused(checked, expected.error());
      std::uint32_t unused = 0;
      bitcube_postprocess_output none{};
      none.d = &unused;
      expect_refused(bitcube_postprocess(code_of(accumulator), words.data(), rows, cols, &o, &none, nullptr),
                     expected.error());
      continue;
    }
    ASSERT_EQ(checked, BITCUBE_OK) << bitcube_last_error();
    EXPECT_EQ(sizes.type, code_of(*expected->format));
    EXPECT_EQ(sizes.element_bytes, expected->element_bytes);
    ASSERT_EQ(sizes.d_bytes, expected->d.size());
    ASSERT_EQ(sizes.row_max_words, expected->row_max.size());
    ASSERT_EQ(sizes.group_max_words, expected->group_max.size());
    std::vector<std::uint8_t> d(sizes.d_bytes);
    std::vector<std::uint32_t> row_max(sizes.row_max_words);
    std::vector<std::uint32_t> group_max(sizes.group_max_words);
    bitcube_postprocess_output out{};
    out.d = d.data();
    out.d_bytes = d.size();
    out.row_max = row_max.data();
    out.row_max_words = row_max.size();
    out.group_max = group_max.data();
    out.group_max_words = group_max.size();
    std::uint32_t flags = 0xEF;
    ASSERT_EQ(bitcube_postprocess(code_of(accumulator), words.data(), rows, cols, &o, &out, &flags), BITCUBE_OK)
        << bitcube_last_error();
    ASSERT_EQ(d, expected->d) << m.name;
    ASSERT_EQ(row_max, expected->row_max);
    ASSERT_EQ(group_max, expected->group_max);
    ASSERT_EQ(flags, bits_of(expected->flags));
    ++accepted;
    with_flags += flags != 0;
    if (expected->format->is_packed()) {
      const auto packed = packed_rows(*expected);
      std::vector<std::uint8_t> c_packed(packed.size());
      ASSERT_EQ(bitcube_pack_rows(d.data(), rows, cols, c_packed.data(), c_packed.size()), BITCUBE_OK);
      ASSERT_EQ(c_packed, packed);
      EXPECT_EQ(bitcube_pack_rows(d.data(), rows, cols, c_packed.data(), c_packed.size() + 1), BITCUBE_BAD_SIZE);
    }
    --out.d_bytes;
    EXPECT_EQ(bitcube_postprocess(code_of(accumulator), words.data(), rows, cols, &o, &out, &flags), BITCUBE_BAD_SIZE);

    // The flat form has one element.
    if (rows != 1 || o.row_max == 1 || o.group_n != 0) continue;
    std::uint64_t code = 0;
    ElementPostprocess e{.mode = &m, .relu = relu, .rounding = p.rounding.value_or(Rounding::rne)};
    if (!carriers.empty()) e.quant = unpack_quant_carrier(carriers[0], m.offset_bits);
    if (!alphas.empty()) e.alpha = alphas[0];
    e.saturate = p.saturate;
    e.profile = p.profile;
    const Encoded element = postprocess_element(e, accumulator, words[0]);
    ASSERT_EQ(
        bitcube_dpi_postprocess(o.mode, code_of(accumulator), words[0], carriers.empty() ? 0 : carriers[0], o.relu,
                                alphas.empty() ? 0 : alphas[0], o.rounding, o.saturate, o.profile, &code, &flags),
        BITCUBE_OK)
        << bitcube_last_error();
    ASSERT_EQ(code, element.bits);
    ASSERT_EQ(flags, bits_of(element.flags));
  }
  EXPECT_GT(accepted, 3000);
  EXPECT_GT(with_flags, 1000);
}

// ---- Machine

/// Profiles by name: the shared library has tables of its own.
machine::State with_profiles_of(machine::State state, const machine::State& other) {
  EXPECT_EQ(state.options.accumulation->name, other.options.accumulation->name);
  EXPECT_EQ(state.options.conversion->name, other.options.conversion->name);
  state.options.accumulation = other.options.accumulation;
  state.options.conversion = other.options.conversion;
  return state;
}

void expect_same_state(const bitcube_core* c, const machine::State& state) {
  EXPECT_TRUE(with_profiles_of(c->core.state(), state) == state);
  std::uint64_t tpc = 0;
  std::uint32_t flags = 0;
  ASSERT_EQ(bitcube_core_tpc(c, &tpc), BITCUBE_OK);
  ASSERT_EQ(bitcube_core_flags(c, &flags), BITCUBE_OK);
  EXPECT_EQ(tpc, state.tpc);
  EXPECT_EQ(flags, bits_of(state.flags));
  const auto expect_tile = [&](std::int32_t pe, const std::string& name, const machine::TileRef& tile, bool ready) {
    bitcube_tile t{};
    const bitcube_status status = bitcube_core_tile(c, pe, name.c_str(), &t);
    if (tile == nullptr) {
      EXPECT_EQ(status, BITCUBE_UNKNOWN);
      return;
    }
    ASSERT_EQ(status, BITCUBE_OK);
    const machine::TileDescriptor& d = tile->descriptor();
    EXPECT_EQ(t.type, static_cast<int>(d.type));
    EXPECT_EQ(t.layout, static_cast<int>(d.layout));
    EXPECT_EQ(t.valid_rows, d.valid_rows);
    EXPECT_EQ(t.valid_columns, d.valid_columns);
    EXPECT_EQ(t.rows, d.rows);
    EXPECT_EQ(t.columns, d.columns);
    EXPECT_EQ(t.capacity_bytes, d.capacity_bytes);
    EXPECT_EQ(t.defined == 1, tile->contents_defined());
    EXPECT_EQ(t.ready == 1, ready);
    const auto elements = program::element_bytes(*tile);
    ASSERT_EQ(t.bytes, elements.size());
    EXPECT_EQ(t.bytes, std::size_t{t.element_bytes} * t.valid_rows * t.valid_columns);
    std::vector<std::byte> out(t.bytes);
    ASSERT_EQ(bitcube_core_read_tile(c, pe, name.c_str(), out.data(), out.size()), BITCUBE_OK);
    EXPECT_EQ(out, elements);
    EXPECT_EQ(bitcube_core_read_tile(c, pe, name.c_str(), out.data(), out.size() + 1), BITCUBE_BAD_SIZE);
  };
  for (std::int32_t pe = 0; pe < 4; ++pe) {
    for (std::int32_t i = 0; i < 24; ++i) {
      std::uint64_t value = 1;
      ASSERT_EQ(bitcube_core_gpr(c, pe, i, &value), BITCUBE_OK);
      EXPECT_EQ(value, state.pe[static_cast<std::size_t>(pe)].read(static_cast<unsigned>(i)));
    }
    for (int i = 0; i < 64; ++i) {
      expect_tile(pe, isa::tile_name(i), state.pe[static_cast<std::size_t>(pe)].local[static_cast<std::size_t>(i)],
                  true);
    }
  }
  for (int i = 0; i < 64; ++i) {
    const machine::SharedRecord& r = state.shared[static_cast<std::size_t>(i)];
    expect_tile(BITCUBE_SHARED, isa::shared_tile_name(i), r.tile, r.whole_parent_ready && r.published);
  }
  for (const auto& [page, bytes] : state.memory.pages()) {
    machine::Memory::Page out{};
    ASSERT_EQ(bitcube_core_read(c, page * 4096, out.data(), out.size()), BITCUBE_OK);
    EXPECT_EQ(out, *bytes);
  }
}

void expect_same_fault(const bitcube_fault& c, const std::optional<machine::Fault>& fault,
                       const isa::Rejection& rejection) {
  if (!fault) {
    EXPECT_EQ(c.fault_class, 0);
    EXPECT_STREQ(c.rule, "");
    EXPECT_STREQ(c.text, "");
    EXPECT_STREQ(c.class_name, "");
    return;
  }
  EXPECT_EQ(c.fault_class, static_cast<int>(fault->fault_class()));
  EXPECT_EQ(c.class_name, machine::name_of(fault->fault_class()));
  EXPECT_EQ(c.rule, machine::rule(fault->id).name);
  EXPECT_EQ(c.pe, fault->pe);
  EXPECT_EQ(std::string(c.text), program::explain(*fault, rejection).substr(0, 511));
}

/// What a test saw of each member.
struct Seen {
  int tiles = 0;
  int stores = 0;
  int flags = 0;
  int waiting = 0;
  int started = 0;
  int completed = 0;
  int header_changed = 0;
  int faults = 0;
};
void expect_same_outcome(const bitcube_outcome& c, const machine::Outcome& o, Seen& seen) {
  expect_same_fault(c.fault, o.fault, o.rejection);
  EXPECT_EQ(c.waiting_for, o.waiting_for ? static_cast<int>(*o.waiting_for) : -1);
  EXPECT_EQ(c.header_changed == 1, o.header_changed);
  EXPECT_EQ(c.completed == 1, o.completed);
  EXPECT_EQ(c.started == 1, o.started);
  EXPECT_EQ(c.flags, bits_of(o.flags));
  EXPECT_EQ(c.tiles, o.tiles.size());
  EXPECT_EQ(c.stores, o.stores);
  seen.tiles += !o.tiles.empty();
  seen.stores += o.stores != 0;
  seen.flags += o.flags != Flags::none;
  seen.waiting += o.waiting_for.has_value();
  seen.started += o.started;
  seen.completed += o.completed;
  seen.header_changed += o.header_changed;
  seen.faults += o.fault.has_value();
}

constexpr const char* kWaiting = R"(
.option wait_on_pending on
.shared S9 FP16 16 8 = all 1.0
.tile all M#1 CUBE_M16 FP16 16 16 = all 1.0
.pending S9
BSTART.TMATMUL FP16
B.FPATR 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
B.DIM 64, ->LB0; B.DIM 8, ->LB1; B.DIM 16, ->LB2
B.IOS S9, mask=1111
B.IOT M#1, mask=1111, <last>, ->N<3>
BSTOP
)";

void expect_same_run(const bitcube_run_result& c, const program::RunResult& r) {
  EXPECT_EQ(c.end, static_cast<int>(r.end));
  EXPECT_EQ(c.ok == 1, r.ok());
  EXPECT_EQ(c.steps, r.steps);
  EXPECT_EQ(c.bundles, r.bundles);
  EXPECT_EQ(c.pc, r.pc);
  EXPECT_EQ(c.line, r.position.line);
  EXPECT_EQ(c.column, r.position.column);
  EXPECT_EQ(c.expectations, r.checks.size());
  EXPECT_EQ(c.failed, r.failed);
  EXPECT_EQ(c.not_reached, r.not_reached);
  EXPECT_EQ(c.waiting_for, r.end == program::RunResult::End::waiting ? static_cast<int>(r.waiting_for) : -1);
  expect_same_fault(c.fault, r.fault, r.rejection);
  const auto failed = std::find_if(r.checks.begin(), r.checks.end(), [](const auto& check) { return !check.holds; });
  if (failed == r.checks.end()) {
    EXPECT_EQ(c.failed_line, 0);
    EXPECT_STREQ(c.failed_text, "");
  } else {
    EXPECT_EQ(c.failed_line, failed->position.line);
    EXPECT_EQ(c.failed_column, failed->position.column);
    EXPECT_EQ(std::string(c.failed_text), failed->message.substr(0, 511));
  }
}

CoreHandle new_core(const bitcube_core_options* options = nullptr) {
  bitcube_core* core = nullptr;
  EXPECT_EQ(bitcube_core_new(options, &core), BITCUBE_OK) << bitcube_last_error();
  return CoreHandle(core);
}

TEST(CApi, RunsTheExamplePrograms) {
  int programs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(BITCUBE_SOURCE_DIR "/examples/programs")) {
    if (entry.path().extension() != ".s" || entry.path().stem() == "mnist-layer") continue;  // that one needs files
    SCOPED_TRACE(entry.path().string());
    ++programs;
    const auto loaded = program::Program::load(entry.path());
    ASSERT_TRUE(loaded);
    bitcube_program* made = nullptr;
    ASSERT_EQ(bitcube_program_load(entry.path().c_str(), &made), BITCUBE_OK) << bitcube_last_error();
    const ProgramHandle p(made);
    const std::uint8_t* bytes = nullptr;
    std::size_t size = 0;
    std::uint64_t origin = 1;
    ASSERT_EQ(bitcube_program_bytes(p.get(), &bytes, &size, &origin), BITCUBE_OK);
    EXPECT_EQ(std::vector<std::uint8_t>(bytes, bytes + size), loaded->bytes());
    EXPECT_EQ(origin, loaded->origin());

    machine::Core core;
    const program::RunResult expected = program::run(*loaded, core);
    EXPECT_TRUE(expected.ok());
    const CoreHandle c = new_core();
    bitcube_run_result result{};
    ASSERT_EQ(bitcube_core_run(c.get(), p.get(), 0, &result), BITCUBE_OK) << bitcube_last_error();
    expect_same_run(result, expected);
    expect_same_state(c.get(), core.state());

    // Cut off after a few steps, in a copy.
    machine::Core early;
    const program::RunResult stopped = program::run(*loaded, early, {.max_steps = 3});
    const CoreHandle fresh = new_core();
    bitcube_core* copied = nullptr;
    ASSERT_EQ(bitcube_core_copy(fresh.get(), &copied), BITCUBE_OK);
    const CoreHandle copy(copied);
    ASSERT_EQ(bitcube_core_run(copy.get(), p.get(), 3, &result), BITCUBE_OK);
    expect_same_run(result, stopped);
    expect_same_state(copy.get(), early.state());
    expect_same_state(fresh.get(), machine::Core().state());
  }
  EXPECT_GE(programs, 10);
}

TEST(CApi, RunsProgramsThatDoNotEndWell) {
  for (const char* text : {".expect gpr 0 a0 == 5\nBSTART.TMATMUL FP16\n", "BSTART.TMATMUL FP16\nBSTOP\n",
                           "B.DIM zero, 2, ->LB0\n", ".word 0xFFFFFFFF\n", ".byte 1\n", kWaiting, ""}) {
    SCOPED_TRACE(text);
    const auto parsed = program::Program::parse(text, "program");
    bitcube_program* made = nullptr;
    const bitcube_status status = bitcube_program_new(text, nullptr, nullptr, &made);
    const ProgramHandle p(made);
    if (!parsed) {
      expect_refused(status, parsed.error());
      continue;
    }
    ASSERT_EQ(status, BITCUBE_OK) << bitcube_last_error();
    machine::Core core;
    const program::RunResult expected = program::run(*parsed, core);
    const CoreHandle c = new_core();
    bitcube_run_result result{};
    ASSERT_EQ(bitcube_core_run(c.get(), p.get(), 0, &result), BITCUBE_OK);
    expect_same_run(result, expected);
    expect_same_state(c.get(), core.state());
  }
  bitcube_program* made = nullptr;
  EXPECT_EQ(bitcube_program_new("nonsense", "name.s", nullptr, &made), BITCUBE_REFUSED);
  EXPECT_EQ(std::string(bitcube_last_error()).rfind("name.s:1:1: ", 0), 0U) << bitcube_last_error();
  EXPECT_EQ(bitcube_program_load("/nowhere/at.all", &made), BITCUBE_REFUSED);
  EXPECT_EQ(made, nullptr);
}

TEST(CApi, StepsWords) {
  Random random(9);
  const auto program = program::Program::load(BITCUBE_SOURCE_DIR "/examples/programs/first.s");
  ASSERT_TRUE(program);
  Seen seen;
  for (int round = 0; round < 200; ++round) {
    bitcube_core_options o{};
    o.absolute_names = random.code(2);
    o.wait_on_pending = random.code(2);
    o.coop_exact_columns = random.code(2);
    o.aux_exact_columns = random.code(2);
    o.no_gemv_hif4 = random.code(2);
    o.lenient_bits = random.code(2);
    o.scalar_pe = static_cast<std::uint32_t>(random.below(4));
    o.accumulation = random.code(accumulation_profiles.size());
    o.profile = random.code(conversion_profiles.size());
    const CoreHandle c = new_core(&o);
    machine::Core core(
        {.name_policy = o.absolute_names == 1 ? machine::NamePolicy::absolute : machine::NamePolicy::relative,
         .wait_on_pending = o.wait_on_pending == 1,
         .coop_exact_columns = o.coop_exact_columns == 1,
         .aux_exact_columns = o.aux_exact_columns == 1,
         .gemv_hif4 = o.no_gemv_hif4 == 0,
         .strict_reserved_bits = o.lenient_bits == 0,
         .scalar_pe = o.scalar_pe,
         .accumulation = &accumulation_profiles[static_cast<std::size_t>(o.accumulation)],
         .conversion = &conversion_profiles[static_cast<std::size_t>(o.profile)]});
    std::vector<std::uint16_t> a(6);
    std::vector<std::uint16_t> b(6);
    for (auto& w : a) w = static_cast<std::uint16_t>(random.bits());
    for (auto& w : b) w = static_cast<std::uint16_t>(random.bits());
    const std::vector<uint64> a_words(a.begin(), a.end());
    const std::vector<uint64> b_words(b.begin(), b.end());
    core.set_local(0, 0, *make_cube_tile(machine::TileLayout::cube_m16, DataType::fp16, 2, 3, a_words));
    core.set_local(0, 1, *make_cube_tile(machine::TileLayout::cube_n8, DataType::fp16, 3, 2, b_words));
    core.publish_shared(5, *make_ordinary_tile(machine::TileLayout::row_major, DataType::fp16, 2, 3, a_words));
    core.state().pe[2].gpr[4] = 77;
    core.state().tpc = 0x1000;
    core.state().memory.map(0x8000, 1);
    core.state().memory.write(0x8010, std::vector<std::uint8_t>{1, 2, 3});
    ASSERT_EQ(bitcube_core_write_tile(c.get(), 0, "T#1", BITCUBE_FP16, BITCUBE_CUBE_M16, 2, 3, a.data(), 12),
              BITCUBE_OK);
    ASSERT_EQ(bitcube_core_write_tile(c.get(), 0, "t#2", BITCUBE_FP16, BITCUBE_CUBE_N8, 3, 2, b.data(), 12),
              BITCUBE_OK);
    ASSERT_EQ(
        bitcube_core_write_tile(c.get(), BITCUBE_SHARED, "S5", BITCUBE_FP16, BITCUBE_ROW_MAJOR, 2, 3, a.data(), 12),
        BITCUBE_OK);
    ASSERT_EQ(bitcube_core_set_gpr(c.get(), 2, 4, 77), BITCUBE_OK);
    ASSERT_EQ(bitcube_core_set_gpr(c.get(), 2, 0, 78), BITCUBE_OK);
    ASSERT_EQ(bitcube_core_set_tpc(c.get(), 0x1000), BITCUBE_OK);
    ASSERT_EQ(bitcube_core_map(c.get(), 0x8000, 1), BITCUBE_OK);
    ASSERT_EQ(bitcube_core_write(c.get(), 0x8010, "\1\2\3", 3), BITCUBE_OK);
    expect_same_state(c.get(), core.state());

    for (const program::Line& line : program->lines()) {
      std::uint64_t word = line.word.bits;
      if (random.one_in(20)) word ^= std::uint64_t{1} << random.below(32);
      const machine::Outcome expected = core.step(word);
      bitcube_outcome outcome{};
      ASSERT_EQ(bitcube_core_step(c.get(), word, &outcome), BITCUBE_OK);
      expect_same_outcome(outcome, expected, seen);
    }
    expect_same_state(c.get(), core.state());

    // There is nothing at TPC.
    const machine::Outcome fetched = core.step();
    bitcube_outcome outcome{};
    ASSERT_EQ(bitcube_core_step_at_tpc(c.get(), &outcome), BITCUBE_OK);
    EXPECT_NE(outcome.fault.fault_class, 0);
    expect_same_fault(outcome.fault, fetched.fault, fetched.rejection);
    ASSERT_EQ(bitcube_core_set_flags(c.get(), 0x15), BITCUBE_OK);
    std::uint32_t flags = 0;
    ASSERT_EQ(bitcube_core_flags(c.get(), &flags), BITCUBE_OK);
    EXPECT_EQ(flags, 0x15U);
    std::uint8_t byte = 0;
    EXPECT_EQ(bitcube_core_read(c.get(), 0x8FFF, &byte, 1), BITCUBE_OK);
    EXPECT_EQ(bitcube_core_read(c.get(), 0x9000, &byte, 1), BITCUBE_REFUSED);
    EXPECT_STREQ(bitcube_last_error(), "address 0x9000 is not mapped");
  }
  EXPECT_GT(seen.completed, 20);
  EXPECT_GT(seen.faults, 20);
}

// Every program as far as n steps, and then one more: so every instruction is one that is stepped.
TEST(CApi, StepsAtTpc) {
  std::vector<std::string> texts{kWaiting};
  for (const char* name : {"first", "memory", "w1", "w4", "w9"}) {
    std::ifstream file(std::string(BITCUBE_SOURCE_DIR "/examples/programs/") + name + ".s");
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  Seen seen;
  for (const std::string& text : texts) {
    const auto program = program::Program::parse(text, "program");
    ASSERT_TRUE(program) << program.error().message;
    bitcube_program* made = nullptr;
    ASSERT_EQ(bitcube_program_new(text.c_str(), nullptr, nullptr, &made), BITCUBE_OK);
    const ProgramHandle p(made);
    bool go_on = true;
    for (std::uint64_t n = 1; go_on; ++n) {
      machine::Core core;
      const program::RunResult ran = program::run(*program, core, {.max_steps = n});
      go_on = ran.end == program::RunResult::End::limit;
      const CoreHandle c = new_core();
      bitcube_run_result result{};
      ASSERT_EQ(bitcube_core_run(c.get(), p.get(), n, &result), BITCUBE_OK);
      expect_same_run(result, ran);
      const machine::Outcome expected = core.step();
      bitcube_outcome outcome{};
      ASSERT_EQ(bitcube_core_step_at_tpc(c.get(), &outcome), BITCUBE_OK);
      expect_same_outcome(outcome, expected, seen);
      EXPECT_TRUE(with_profiles_of(c->core.state(), core.state()) == core.state());
    }
  }
  EXPECT_GT(seen.tiles, 3);
  EXPECT_GT(seen.stores, 0);
  EXPECT_GT(seen.flags, 0);
  EXPECT_GT(seen.waiting, 0);
  EXPECT_GT(seen.started, 3);
  EXPECT_GT(seen.completed, 3);
  EXPECT_GT(seen.header_changed, 10);
  EXPECT_GT(seen.faults, 0);
}

TEST(CApi, AssemblesAndDisassembles) {
  const std::string text = "BSTART.TMATMUL FP16\nB.DIM zero, 2, ->LB0; BSTOP\n";
  const auto words = isa::assemble(text);
  ASSERT_TRUE(words);
  const auto expected = isa::to_bytes(*words);
  std::size_t size = 0;
  ASSERT_EQ(bitcube_assemble(text.c_str(), nullptr, &size), BITCUBE_OK);
  ASSERT_EQ(size, expected.size());
  std::vector<std::uint8_t> bytes(size);
  ASSERT_EQ(bitcube_assemble(text.c_str(), bytes.data(), &size), BITCUBE_OK);
  EXPECT_EQ(bytes, expected);
  size = expected.size() - 1;
  EXPECT_EQ(bitcube_assemble(text.c_str(), bytes.data(), &size), BITCUBE_BAD_SIZE);
  EXPECT_EQ(size, expected.size());
  const auto wrong = isa::assemble("BSTART.NOTHING");
  ASSERT_FALSE(wrong);
  expect_refused(bitcube_assemble("BSTART.NOTHING", nullptr, &size), wrong.error());

  for (std::size_t at = 0, i = 0; at < bytes.size(); ++i) {
    char line[128];
    std::size_t length = 0;
    ASSERT_EQ(bitcube_disassemble(bytes.data() + at, bytes.size() - at, line, sizeof line, &length), BITCUBE_OK);
    EXPECT_EQ(length, (*words)[i].length);
    EXPECT_EQ(line, isa::disassemble((*words)[i]));
    EXPECT_EQ(bitcube_disassemble(bytes.data() + at, bytes.size() - at, line, std::strlen(line), &length),
              BITCUBE_BAD_SIZE);
    at += length;
  }
  bitcube_program* made = nullptr;
  ASSERT_EQ(bitcube_program_from_words(expected.data(), expected.size(), &made), BITCUBE_OK);
  const ProgramHandle p(made);
  const std::uint8_t* stored = nullptr;
  ASSERT_EQ(bitcube_program_bytes(p.get(), &stored, &size, nullptr), BITCUBE_OK);
  EXPECT_EQ(std::vector<std::uint8_t>(stored, stored + size), expected);
}

// ---- Errors

TEST(CApi, ErrorsBelongToTheirThread) {
  std::uint64_t code = 0;
  ASSERT_EQ(bitcube_convert(99, 1, 0, nullptr, &code, nullptr), BITCUBE_UNKNOWN);
  const std::string here = bitcube_last_error();
  EXPECT_EQ(here, "from: there is no type with code 99");
  std::thread other([] {
    EXPECT_STREQ(bitcube_last_error(), "");
    EXPECT_EQ(bitcube_core_new(nullptr, nullptr), BITCUBE_BAD_ARGUMENT);
    EXPECT_STREQ(bitcube_last_error(), "core: NULL");
  });
  other.join();
  EXPECT_EQ(bitcube_last_error(), here);
  ASSERT_EQ(bitcube_convert(1, 4, 0, nullptr, &code, nullptr), BITCUBE_OK);
  EXPECT_EQ(bitcube_last_error(), here);  // success leaves it alone
  int32_t found = 0;
  const std::string longest(5000, 'x');
  EXPECT_EQ(bitcube_find(BITCUBE_TYPES, longest.c_str(), &found), BITCUBE_UNKNOWN);
  EXPECT_EQ(std::strlen(bitcube_last_error()), 1023U);
  for (int status = 0; status <= BITCUBE_INTERNAL; ++status) {
    EXPECT_STRNE(bitcube_status_text(status), "unknown status");
  }
  EXPECT_STREQ(bitcube_status_text(7), "unknown status");
  EXPECT_STREQ(bitcube_status_text(-1), "unknown status");
}

}  // namespace
}  // namespace bitcube
