// explain_matmul and explain_postprocess: the result is the library's, the steps add up exactly, and the text says what
// the contract's worked examples say (numerics 5.6, 5.7, 9.5; profiles 3).
#include "bitcube/explain/matmul.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "bitcube/cube/matrix_operand.hpp"
#include "explain/facts.hpp"
#include "oracle/oracle.hpp"
#include "oracle/worked_rows.hpp"
#include "support/csv.hpp"
#include "support/operands.hpp"
#include "value_text.hpp"

namespace bitcube {
namespace {

using Words = std::vector<std::uint64_t>;

/// A matrix of words in memory, as an operand.
class Matrix {
 public:
  /// Row-major words; `scales` empty for none.
  Matrix(Side side, const Format& f, const Words& words, std::size_t rows, std::size_t cols, const Words& scales = {}) {
    append(bytes_, words, f.carrier_bits / 8U);
    append(scales_, scales, f.type == DataType::hif4x2 ? 4 : 1);
    operand_ = matrix_operand(side, f, bytes_, rows, cols);
    if (!scales_.empty()) attach_scales(side, operand_, scales_);
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  const Operand& operator()() const { return operand_; }

 private:
  static void append(std::vector<std::byte>& bytes, const Words& words, std::size_t size) {
    for (const std::uint64_t word : words) {
      for (std::size_t i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(word >> (8 * i)));
    }
  }
  std::vector<std::byte> bytes_;
  std::vector<std::byte> scales_;
  Operand operand_;
};

std::string result_text(const Document& d) {
  const Fact& last = d.results.back();
  return last.name + " " + last.value + " " + last.remark;
}

const Section* section(const Document& d, std::string_view title) {
  for (const Section& s : d.sections) {
    if (s.title.starts_with(title)) return &s;
  }
  return nullptr;
}

std::string fact(const Document& d, std::string_view title, std::string_view name) {
  const Section* s = section(d, title);
  if (s == nullptr) return "no section";
  for (const Fact& f : s->facts) {
    if (f.name == name) return f.value + (f.remark.empty() ? "" : " | " + f.remark);
  }
  return "no fact";
}

std::size_t column(const Table& table, std::string_view name) {
  const auto found = std::find(table.header.begin(), table.header.end(), name);
  EXPECT_NE(found, table.header.end()) << name;
  return static_cast<std::size_t>(found - table.header.begin());
}

// ---- The result is the library's

/// Lanes of a matrix, sometimes with special values.
Words random_lanes(test::Operands& operands, const Format& f, std::size_t count) {
  const bool specials = operands.chance(8);
  Words words;
  for (std::size_t i = 0; i < count; ++i) words.push_back(specials ? operands.word(f) : operands.finite_word(f));
  return words;
}

Words random_scales(test::Operands& operands, const Format& f, std::size_t count) {
  Words words;
  for (std::size_t i = 0; i < count; ++i) {
    const bool hif4 = f.type == DataType::hif4x2;
    const std::uint64_t near_one =
        hif4 ? (operands.raw() & 0xFFFFFF00) | (0xB8 + operands.below(16)) : 124 + operands.below(7);
    words.push_back(operands.chance(6) ? operands.raw() & (hif4 ? 0xFFFFFFFF : 0xFF) : near_one);
  }
  return words;
}

std::vector<std::uint32_t> random_accumulators(test::Operands& operands, const Format& f, std::size_t count) {
  const bool specials = operands.chance(4);
  std::vector<std::uint32_t> words;
  for (std::size_t i = 0; i < count; ++i) {
    words.push_back(static_cast<std::uint32_t>(specials ? operands.word(f) : operands.finite_word(f)));
  }
  return words;
}

/// A post-process that is legal for the accumulator, with all that it refers to.
struct RandomPostprocess {
  Words carriers;
  Words alphas;
  std::vector<std::uint32_t> init;
  PostprocessOptions options;

  RandomPostprocess(test::Operands& operands, const Format& accumulator, std::size_t rows, std::size_t cols) {
    do {
      options.mode = &prequant_modes[operands.below(prequant_modes.size())];
    } while (options.mode->accumulator != DataType::none && options.mode->accumulator != accumulator.type);
    const PreQuantMode& mode = *options.mode;
    const auto parameter = [&] {
      return operands.chance(2) ? 0x1F800 + operands.below(0x800) : 0x400 + operands.below(0x3F7FF);
    };
    const std::size_t carrier_count = mode.carrier == CarrierKind::none ? 0 : mode.per_column ? cols : 1;
    for (std::size_t i = 0; i < carrier_count; ++i) {
      carriers.push_back(mode.carrier == CarrierKind::shift
                             ? pack_shift_carrier(1 + static_cast<int>(operands.below(16)))
                             : pack_scale_carrier(parameter(), static_cast<int64>(operands.raw()), mode.offset_bits));
    }
    if (mode.carrier != CarrierKind::shift) options.relu = static_cast<Relu>(operands.below(4));
    const std::size_t alpha_count = options.relu == Relu::scalar ? 1 : options.relu == Relu::per_column ? cols : 0;
    for (std::size_t i = 0; i < alpha_count; ++i) alphas.push_back(operands.chance(4) ? 0 : parameter());
    options.quant_carriers = carriers;
    options.activation_carriers = alphas;
    if (mode.rounding_rule == RoundingRule::programmable && operands.chance(2)) {
      options.rounding = roundings[operands.below(roundings.size())].mode;
    }
    options.saturate = mode.saturation_allowed && operands.chance(2);
    options.profile = &conversion_profiles[operands.below(conversion_profiles.size())];
    options.row_max = operands.chance(3);
    if (operands.chance(3)) options.group_n = group_n_values[operands.below(2)];
    options.max_abs = (options.row_max || options.group_n != 0) && operands.chance(2);
    if (options.row_max && operands.chance(2)) {
      init = random_accumulators(operands, accumulator, rows);
      options.row_max_init = init;
    }
  }
  RandomPostprocess(const RandomPostprocess&) = delete;
  RandomPostprocess& operator=(const RandomPostprocess&) = delete;
};

/// What the results must be: those of matmul() and postprocess() of all elements; flags are those of the element, which
/// the whole matrix does not tell.
std::string expected_result(const Postprocessed& all, std::size_t row, std::size_t col, std::uint32_t word,
                            const PostprocessOptions& post) {
  Encoded d;
  std::memcpy(&d.bits, all.d.data() + (row * all.cols + col) * all.element_bytes, all.element_bytes);
  d.flags = postprocess_element(column_postprocess(post, col), *all.accumulator, word).flags;
  return "D(" + std::to_string(row) + "," + std::to_string(col) + ") " + bits_text(*all.format, d.bits) + " " +
         std::string(all.format->name) + " " + value_text(*all.format, decode(*all.format, d.bits)) + ", flags " +
         flags_text(d.flags);
}

std::string reduction_value(const Document& d, std::string_view start) {
  for (const Fact& f : d.results) {
    if (f.name.starts_with(start)) return f.value;
  }
  return "";
}

/// One random product explained; what went wrong, or an empty text.
std::string check_random_product(test::Operands& operands, std::size_t& explained) {
  static const std::vector<const Format*> types = [] {
    std::vector<const Format*> out;
    for (const Format& f : formats) {
      if (f.kind != Kind::scale && f.lane_bits != 64 && !(f.is_integer() && f.lane_bits == 32)) out.push_back(&f);
    }
    return out;
  }();
  const std::size_t rows = 1 + operands.below(2);
  const std::size_t cols = operands.chance(8) ? 9 + operands.below(4) : 1 + operands.below(3);
  const std::size_t k = operands.chance(16) ? 15 + operands.below(60) : 1 + operands.below(5);
  const Format& fa = *types[operands.below(types.size())];
  const Format& fb = *types[operands.below(types.size())];
  const bool scaled = operands.chance(2);
  const auto scales = [&](const Format& f, std::size_t lines) {
    const bool half = f.type == DataType::fp16 || f.type == DataType::bf16;
    if ((!scaled || half) && f.type != DataType::hif4x2) return Words{};
    return random_scales(operands, f, lines * ((k + scale_group(f) - 1) / scale_group(f)));
  };
  const Matrix a(Side::a, fa, random_lanes(operands, fa, rows * k), rows, k, scales(fa, rows));
  const Matrix b(Side::b, fb, random_lanes(operands, fb, k * cols), k, cols, scales(fb, cols));
  const auto kind = product_kind(a(), b());
  if (!kind) return "";
  const Format& accumulator = *kind->accumulator;
  MatmulOptions product;
  product.profile = &accumulation_profiles[operands.below(accumulation_profiles.size())];
  product.execution.threads = 1;
  const auto c = random_accumulators(operands, accumulator, rows * cols);
  const auto bias = random_accumulators(operands, accumulator, cols);
  if (operands.chance(2)) product.c = c;
  if (operands.chance(2)) product.bias = bias;
  if (operands.chance(8)) product.group = 1 + operands.below(7);
  RandomPostprocess post(operands, accumulator, rows, cols);
  post.options.execution.threads = 1;
  const std::size_t row = operands.below(rows);
  const std::size_t col = operands.below(cols);

  const auto all = matmul(a(), b(), product);
  if (!all) return all.error().message;
  const std::uint32_t word = all->words[row * cols + col];
  const auto d = postprocess(*all, post.options);
  if (!d) return d.error().message;
  const auto document = explain_matmul(a(), b(), row, col, product, post.options, operands.chance(4));
  if (!document) return document.error().message;
  ++explained;
  if (explained % 8 == 0) {
    if (const std::string line = test::too_wide(text_of(*document)); !line.empty()) return "too wide: " + line;
  }
  const std::string where = std::string(fa.name) + " " + std::string(fb.name) + " " +
                            std::string(product.profile->name) + " " + std::string(post.options.mode->name) + ": ";
  const std::string wanted = expected_result(*d, row, col, word, post.options);
  if (result_text(*document) != wanted) return where + result_text(*document) + " is not " + wanted;
  if (document->results.front().value != bits_text(accumulator, word)) return where + "accumulator";
  if (post.options.row_max && reduction_value(*document, "RowMax") != bits_text(accumulator, d->row_max[row])) {
    return where + "RowMax";
  }
  if (post.options.group_n != 0) {
    const std::size_t groups = d->group_max.size() / rows;
    const std::uint32_t maximum = d->group_max[row * groups + col / post.options.group_n];
    if (reduction_value(*document, "GroupMax") != bits_text(accumulator, maximum)) return where + "GroupMax";
  }
  // The table of profiles holds what matmul() gives under each.
  const Table& profiles = document->sections.back().tables.front();
  for (std::size_t i = 0; i < accumulation_profiles.size(); ++i) {
    if (operands.chance(2)) continue;
    MatmulOptions other = product;
    other.profile = &accumulation_profiles[i];
    const auto under = matmul(a(), b(), other);
    if (!under) return under.error().message;
    if (profiles.rows[i][2] != bits_text(accumulator, under->words[row * cols + col])) return where + "profiles";
  }
  return "";
}

TEST(ExplainMatmul, LastResultIsTheLibrarysOverRandomProducts) {
  constexpr std::size_t pieces = 50;
  std::array<std::string, pieces> failures;
  std::array<std::size_t, pieces> explained{};
  parallel_for(pieces, {}, [&](std::size_t piece) {
    test::Operands operands(1000 + piece);
    while (explained[piece] < 2000 && failures[piece].empty()) {
      failures[piece] = check_random_product(operands, explained[piece]);
    }
  });
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    EXPECT_EQ(failures[piece], "") << "piece " << piece << ", case " << explained[piece];
    EXPECT_EQ(explained[piece], 2000U);
  }
}

TEST(ExplainPostprocess, LastResultIsTheLibrarysOverRandomAccumulators) {
  test::Operands operands(3);
  const std::array<const Format*, 3> types{&fp32, &format_of(DataType::s32), &format_of(DataType::u32)};
  for (int i = 0; i < 20000; ++i) {
    const Format& accumulator = *types[operands.below(3)];
    const std::size_t rows = 1 + operands.below(2);
    const std::size_t cols = 1 + operands.below(20);
    RandomPostprocess post(operands, accumulator, rows, cols);
    post.options.execution.threads = 1;
    const auto words = random_accumulators(operands, accumulator, rows * cols);
    const Accumulators all{&accumulator, rows, cols, Buffer<std::uint32_t>(words.begin(), words.end())};
    const std::size_t row = operands.below(rows);
    const std::size_t col = operands.below(cols);
    const auto d = postprocess(all, post.options);
    ASSERT_TRUE(d) << d.error().message;
    const auto document = explain_postprocess(all, row, col, post.options);
    ASSERT_TRUE(document) << document.error().message;
    ASSERT_EQ(result_text(*document), expected_result(*d, row, col, words[row * cols + col], post.options));
    if (i % 4 == 0) {
      ASSERT_EQ(test::too_wide(text_of(*document)), "") << document->title;
    }
  }
}

// ---- The steps add up

/// The number that a text of the explanation stands for; an ellipsis is cut off.
mpq_class number(std::string text) {
  if (const auto dots = text.find("…"); dots != std::string::npos) text.resize(dots);
  const bool negative = text.starts_with('-');
  text.erase(0, negative ? 1 : 0);
  mpq_class value;
  if (text.starts_with("0x")) {
    const auto p = text.find('p');
    std::string digits = text.substr(2, p - 2);
    long exponent = std::stol(text.substr(p + 1));
    if (const auto point = digits.find('.'); point != std::string::npos) {
      exponent -= static_cast<long>(4 * (digits.size() - point - 1));
      digits.erase(point, 1);
    }
    value = bitcube_oracle::Exact::dyadic(mpz_class(digits, 16), exponent).value();
  } else {
    std::size_t places = 0;
    if (const auto point = text.find('.'); point != std::string::npos) {
      places = text.size() - point - 1;
      text.erase(point, 1);
    }
    mpz_class power;
    mpz_ui_pow_ui(power.get_mpz_t(), 10, places);
    value = mpq_class(mpz_class(text, 10), power);
    value.canonicalize();
  }
  return negative ? mpq_class(-value) : value;
}

/// Whether `text` is `exact`; one that was cut has 128 significant bits.
testing::AssertionResult stands_for(const std::string& text, const mpq_class& exact) {
  mpq_class off = number(text) - exact;
  if (text.find("…") == std::string::npos) {
    if (off == 0) return testing::AssertionSuccess();
  } else if (off != 0 && abs(off) < abs(exact) / mpq_class("1267650600228229401496703205376")) {  // 2^100
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << text << " is not " << exact.get_str();
}

mpq_class fp32_value(const std::string& bits) {
  return bitcube_oracle::value_of(bitcube_oracle::FP32, std::stoull(bits, nullptr, 16))->value();
}

mpq_class power_of_two(int exponent) {
  return bitcube_oracle::Exact::dyadic(1, exponent).value();
}

// acc before + product = acc after + lost in every line, with products of the oracle's values: group by group, and lane
// by lane; under every profile that rounds.
TEST(ExplainMatmul, NothingIsLostThatIsNotShown) {
  test::Operands operands(5);
  const std::array<const char*, 6> names{"FP32", "FP16", "BF16", "E4M3", "E5M2", "E2M1X2"};
  std::size_t lossy = 0;
  std::size_t cut = 0;
  for (int i = 0; i < 4000; ++i) {
    const Format& fa = *find_format(names[operands.below(names.size())]);
    const Format& fb = *find_format(names[operands.below(names.size())]);
    const bool scaled = fa.lane_bits <= 8 && fb.lane_bits <= 8 && operands.chance(2);
    const std::size_t k = 1 + operands.below(70);
    const std::size_t groups = scaled ? (k + 31) / 32 : 0;
    Words lanes_a;
    Words lanes_b;
    Words scales_a;
    Words scales_b;
    for (std::size_t n = 0; n < k; ++n) {
      lanes_a.push_back(operands.finite_word(fa));
      lanes_b.push_back(operands.finite_word(fb));
    }
    for (std::size_t n = 0; n < groups; ++n) {
      scales_a.push_back(100 + operands.below(50));
      scales_b.push_back(100 + operands.below(50));
    }
    const Matrix a(Side::a, fa, lanes_a, 1, k, scales_a);
    const Matrix b(Side::b, fb, lanes_b, k, 1, scales_b);
    MatmulOptions product;
    product.profile = &accumulation_profiles[operands.below(4)];
    product.execution.threads = 1;
    const std::vector<std::uint32_t> c{static_cast<std::uint32_t>(operands.finite_word(fp32))};
    product.c = c;
    const bool steps = operands.chance(2);
    const auto document = explain_matmul(a(), b(), 0, 0, product, {}, steps);
    ASSERT_TRUE(document) << document.error().message;
    const Table& table = section(*document, "Products")->tables.back();
    const std::size_t bits = table.header.size() - (steps ? 2 : 3);
    ASSERT_EQ(table.header[bits], "bits");

    mpq_class before = fp32_value(bits_text(fp32, c[0]));
    mpq_class products = 0;  // since the last rounding
    mpq_class listed = 0;    // those of the lines above
    std::size_t lane = 0;
    for (const auto& row : table.rows) {
      ASSERT_NE(row[0].substr(0, 3), "…") << "so few groups are all shown";
      const std::size_t last = std::stoul(row[0].substr(row[0].find('-') + 1));  // with steps there is no '-'
      ASSERT_LT(last, k);
      for (; lane <= last; ++lane) {
        mpq_class p = bitcube_oracle::value_of(static_cast<int>(fa.type), lanes_a[lane])->value() *
                      bitcube_oracle::value_of(static_cast<int>(fb.type), lanes_b[lane])->value();
        if (scaled) p *= power_of_two(static_cast<int>(scales_a[lane / 32] + scales_b[lane / 32]) - 254);
        if (steps) {
          EXPECT_TRUE(stands_for(row[column(table, "a*b")], p));
        }
        products += p;
      }
      if (!steps) {
        EXPECT_TRUE(stands_for(row[column(table, "sum of a*b")], products - listed)) << "k=" << lane;
        listed = products;
      }
      if (row.size() <= bits) continue;  // no step ends here
      const std::uint64_t word = std::stoull(row[bits], nullptr, 16);
      if ((word & 0x7F800000) == 0x7F800000) break;  // an infinity
      const mpq_class after = fp32_value(row[bits]);
      ASSERT_TRUE(stands_for(row[bits + 1], before + products - after)) << product.profile->name << " k=" << lane;
      if (row[bits + 1] != "0") ++lossy;
      if (row[bits + 1].find("…") != std::string::npos) ++cut;
      before = after;
      products = 0;
      listed = 0;
    }
  }
  EXPECT_GT(lossy, 1000U);
  EXPECT_LT(cut, lossy / 10);
}

// ---- The contract's worked examples

/// The lanes of an example: hexadecimal digits, lane 0 first.
Words digits_of(const char* digits, unsigned bits) {
  return digits == nullptr ? Words{} : test::hex_words(digits, bits / 4);
}

TEST(ExplainMatmul, WorkedRows) {
  for (const auto& row : bitcube_rows::kAccumulate) {
    SCOPED_TRACE(std::string(row.profile) + " " + row.a + " " + row.b);
    const Format& fa = *find_format(row.a_type);
    const Format& fb = *find_format(row.b_type);
    const auto k = static_cast<std::size_t>(row.k);
    const auto scale_bits = [](const Format& f) { return f.type == DataType::hif4x2 ? 32U : 8U; };
    const Matrix a(Side::a, fa, digits_of(row.a, fa.lane_bits), 1, k, digits_of(row.a_scales, scale_bits(fa)));
    const Matrix b(Side::b, fb, digits_of(row.b, fb.lane_bits), k, 1, digits_of(row.b_scales, scale_bits(fb)));
    MatmulOptions product;
    product.profile = find_accumulation_profile(row.profile);
    std::uint32_t c = 0;
    std::uint32_t bias = 0;
    if (row.c != nullptr) {
      c = static_cast<std::uint32_t>(test::hex(row.c));
      product.c = std::span<const std::uint32_t>(&c, 1);
    }
    if (row.bias != nullptr) {
      bias = static_cast<std::uint32_t>(test::hex(row.bias));
      product.bias = std::span<const std::uint32_t>(&bias, 1);
    }
    for (const bool steps : {false, true}) {
      const auto document = explain_matmul(a(), b(), 0, 0, product, {}, steps);
      ASSERT_TRUE(document) << document.error().message;
      EXPECT_EQ(test::hex(document->results.back().value.substr(2)), row.result);
    }
  }
}

TEST(ExplainPostprocess, WorkedRows) {
  for (const auto& row : bitcube_rows::kPostprocess) {
    SCOPED_TRACE(row.what);
    const Format& accumulator = *find_format(row.accumulator);
    PostprocessOptions post;
    post.mode = find_prequant(static_cast<unsigned>(row.mode));
    const Words carriers{row.quant};
    const Words alphas{row.alpha};
    post.relu = static_cast<Relu>(row.relu);
    if (post.mode->carrier != CarrierKind::none) post.quant_carriers = carriers;
    if (post.relu == Relu::scalar) post.activation_carriers = alphas;
    if (post.mode->rounding_rule == RoundingRule::programmable) post.rounding = static_cast<Rounding>(row.rounding);
    post.saturate = row.sat != 0;
    const Accumulators acc{&accumulator, 1, 1, {static_cast<std::uint32_t>(row.word)}};
    const auto document = explain_postprocess(acc, 0, 0, post);
    ASSERT_TRUE(document) << document.error().message;
    EXPECT_EQ(test::hex(document->results.back().value.substr(2)), row.out.bits);
    EXPECT_NE(document->results.back().remark.find("flags " + flags_text(static_cast<Flags>(row.out.flags))),
              std::string::npos)
        << document->results.back().remark;
  }
}

TEST(ExplainReductions, WorkedRows) {
  for (const auto& row : bitcube_rows::kReductions) {
    const Format& accumulator = *find_format(row.type);
    PostprocessOptions post;
    post.row_max = true;
    post.max_abs = row.max_abs != 0;
    post.group_n = static_cast<unsigned>(row.group_n);
    const std::uint32_t init = row.row_max_in;
    if (row.row_max_init != 0) post.row_max_init = std::span<const std::uint32_t>(&init, 1);
    const auto count = static_cast<std::size_t>(row.count);
    const Accumulators acc{&accumulator, 1, count, Buffer<std::uint32_t>(row.element, row.element + count)};
    for (std::size_t col = 0; col < count; ++col) {
      const auto document = explain_postprocess(acc, 0, col, post);
      ASSERT_TRUE(document) << document.error().message;
      EXPECT_EQ(reduction_value(*document, "RowMax"), bits_text(accumulator, row.row_max));
      if (row.group_n == 0) continue;
      EXPECT_EQ(reduction_value(*document, "GroupMax"),
                bits_text(accumulator, row.group_max[col / static_cast<std::size_t>(row.group_n)]));
    }
  }
}

// Numerics 9.5: 2 * (1 * 2) = 4, then 2 * (1.5 * -1) = -3, so 1, and 1.5 with the bias 0.5.
TEST(ExplainMatmul, SaysWhatTheContractSays) {
  const Matrix a(Side::a, e4m3, {0x38, 0x3C}, 1, 2, {0x80});
  const Matrix b(Side::b, e4m3, {0x40, 0xB8}, 2, 1, {0x7F});
  const std::vector<std::uint32_t> bias{0x3F000000};
  MatmulOptions product;
  product.bias = bias;
  const auto document = explain_matmul(a(), b(), 0, 0, product, {}, true);
  ASSERT_TRUE(document) << document.error().message;
  const Table& steps = section(*document, "Products")->tables.back();
  const std::vector<std::vector<std::string>> rows{{"0", "0x38", "0x40", "2", "2", "4", "4", "4", "0x40800000", "0"},
                                                   {"1", "0x3C", "0xB8", "3", "-1", "-3", "1", "1", "0x3F800000", "0"}};
  EXPECT_EQ(steps.header,
            (std::vector<std::string>{"k", "A", "B", "a", "b", "a*b", "exact sum", "acc after", "bits", "lost"}));
  EXPECT_EQ(steps.rows, rows);
  EXPECT_EQ(fact(*document, "Largest term", "largest |a*b|"), "4 | k = 0: 2 * 2");
  EXPECT_EQ(fact(*document, "Largest term", "sum of |a*b|"), "7");
  EXPECT_EQ(fact(*document, "Largest term", "sum of a*b + bias"), "1.5 | exact");
  EXPECT_EQ(fact(*document, "Largest term", "cancellation"), "4.667 | sum of |a*b| over |exact result|");
  EXPECT_EQ(fact(*document, "Largest term", "result - exact"), "0 | the result is the exact one");
  EXPECT_EQ(fact(*document, "Bias", "bias"), "0x3F000000 = 0.5 | added once, after the last k");
  EXPECT_EQ(fact(*document, "Bias", "after"), "0x3FC00000 = 1.5 | exact");
  EXPECT_EQ(result_text(*document), "D(0,0) 0x3FC00000 FP32 1.5, flags -");
}

// Numerics 9.5, "2^24, 1, -2^24: the 1 is lost", and the four products of profiles 3.
TEST(ExplainMatmul, ShowsWhereTheOneIsLost) {
  const Matrix a(Side::a, fp32, {0x4B800000, 0x3F800000, 0x3F800000, 0xCB800000}, 1, 4);
  const Matrix b(Side::b, fp32, Words(4, 0x3F800000), 4, 1);
  const auto document = explain_matmul(a(), b(), 0, 0, {}, {}, true);
  ASSERT_TRUE(document) << document.error().message;
  EXPECT_EQ(fact(*document, "Products", "roundings"), "4 | 2 of them lost nothing");
  EXPECT_EQ(fact(*document, "Products", "most lost"), "1 | k = 1");
  EXPECT_EQ(fact(*document, "Largest term", "sum of a*b"), "2 | exact");
  EXPECT_EQ(fact(*document, "Largest term", "result - exact"), "-2 | -8.389e+06 ulp of the exact result");
  const Table& profiles = document->sections.back().tables.front();
  const std::vector<std::string> expected{"0x00000000", "0x00000000", "0x40000000", "0x40000000"};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(profiles.rows[i][2], expected[i]);
  EXPECT_EQ(profiles.rows[0][0], "*");
  EXPECT_EQ(profiles.rows[1][4], "same");
  EXPECT_EQ(profiles.rows[2][4], "+1073741824 ulp");
  MatmulOptions pairs;
  pairs.group = 2;
  pairs.profile = find_accumulation_profile("group");
  const auto grouped = explain_matmul(a(), b(), 0, 0, pairs, {});
  ASSERT_TRUE(grouped) << grouped.error().message;
  EXPECT_EQ(grouped->results.back().value, "0x3F800000");  // profiles 3: 1 with groups of two
  EXPECT_EQ(section(*grouped, "Products")->tables.back().rows,
            (std::vector<std::vector<std::string>>{{"0-1", "16777217", "16777216", "0x4B800000", "1", "1"},
                                                   {"2-3", "-16777215", "1", "0x3F800000", "0", "0"}}));
}

// What made an accumulator infinite or NaN.
TEST(ExplainMatmul, NamesTheLaneThatMadeIt) {
  const auto first = [](const Format& f, const Words& lanes_a, const Words& lanes_b, const char* what,
                        std::string_view profile = "fma", const Words& scales = {}) {
    const Matrix a(Side::a, f, lanes_a, 1, lanes_a.size(), scales);
    const Matrix b(Side::b, f, lanes_b, lanes_b.size(), 1, scales.empty() ? Words{} : Words(scales.size(), 127));
    MatmulOptions product;
    product.profile = find_accumulation_profile(profile);
    const auto document = explain_matmul(a(), b(), 0, 0, product, {});
    EXPECT_TRUE(document);
    return document ? fact(*document, "Products", what) : "";
  };
  const std::uint64_t one = 0x3F800000;
  const std::uint64_t inf = 0x7F800000;
  const std::uint64_t largest = 0x7F7FFFFF;
  for (const std::string_view profile : {"fma", "two-step", "group", "exact"}) {
    SCOPED_TRACE(profile);
    EXPECT_EQ(first(fp32, {one, 0, one}, {one, inf, one}, "first NaN", profile), "0x7FC00000 | k = 1: 0 * Inf");
    EXPECT_EQ(first(fp32, {one, inf}, {one, 0x80000000}, "first NaN", profile), "0x7FC00000 | k = 1: Inf * 0");
    EXPECT_EQ(first(fp32, {one, one}, {0x7F812345, one}, "first NaN", profile),
              "0x7FC00000 | k = 0: B is NaN (0x7F812345)");
    EXPECT_EQ(first(e4m3, {0x38, 0x38}, {0x38, 0x38}, "first NaN", profile, {0xFF}),
              "0x7FC00000 | k = 0: the scale of A is NaN (0xFF)");
  }
  EXPECT_EQ(first(fp32, {one, inf, inf}, {one, one, 0xBF800000}, "first NaN", "fma"),
            "0x7FC00000 | k = 2: Inf - Inf, the accumulator is +Inf and this product -Inf");
  EXPECT_EQ(first(fp32, {one, inf, inf}, {one, one, 0xBF800000}, "first infinity", "fma"),
            "0x7F800000 | k = 1: A is infinite");
  EXPECT_EQ(first(fp32, {one, inf, inf}, {one, one, 0xBF800000}, "first NaN", "exact"),
            "0x7FC00000 | k = 2: Inf - Inf, the product of k = 1 is +Inf and this product -Inf");
  EXPECT_EQ(first(fp32, {largest, largest}, {one, one}, "first infinity"),
            "0x7F800000 | k = 1: the sum is beyond the largest FP32 value");
  EXPECT_EQ(first(fp32, {largest, largest}, {one, one}, "first NaN"), "no fact");
  const Matrix beyond(Side::a, fp32, {largest, largest, largest}, 1, 3);
  const Matrix back(Side::b, fp32, {one, one, 0xBF800000}, 3, 1);
  const auto document = explain_matmul(beyond(), back(), 0, 0, {}, {});
  ASSERT_TRUE(document) << document.error().message;
  EXPECT_EQ(fact(*document, "Largest term", "result"),
            "0x7F800000 = inf | beyond FP32 on the way, or too large for it");
  EXPECT_EQ(first(*find_format("TF32"), {0x3F800001}, {one}, "first NaN"),
            "0x7FC00000 | k = 0: A has the invalid encoding 0x3F800001, which counts as NaN");
}

// Numerics 5.6: the rows whose reading the contract gives.
TEST(ExplainPostprocess, SaysWhatTheContractSays) {
  const Format& s32 = format_of(DataType::s32);
  const auto explained = [](const Format& f, std::uint32_t word, const char* mode, std::uint64_t quant, Relu relu,
                            std::uint64_t alpha, bool sat) {
    const Words carriers{quant};
    const Words alphas{alpha};
    PostprocessOptions post;
    post.mode = find_prequant(mode);
    post.quant_carriers = carriers;
    post.relu = relu;
    if (relu == Relu::scalar) post.activation_carriers = alphas;
    post.saturate = sat;
    const auto document = explain_postprocess({&f, 1, 1, {word}}, 0, 0, post);
    EXPECT_TRUE(document);
    return document ? *document : Document{};
  };
  // 300 saturates to 255 (OF, NX), + 1 = 256; Sat = 0 keeps 00, Sat = 1 gives 7F.
  const Document wrap = explained(s32, 0x12C, "REQ8", 0x000000203F800000, Relu::none, 0, false);
  EXPECT_EQ(fact(wrap, "Post-process", "product"), "300 | accumulator times multiplier, exact");
  EXPECT_EQ(fact(wrap, "Post-process", "rounded to S9"), "255 | saturated: S9 goes from -256 to 255");
  EXPECT_EQ(fact(wrap, "Post-process", "offset"), "+1 | gives 256");
  EXPECT_EQ(fact(wrap, "Post-process", "as S8"), "0 | Sat = 0 keeps the low bits");
  EXPECT_EQ(result_text(wrap), "D(0,0) 0x00 S8 0, flags OF NX");
  const Document clamp = explained(s32, 0x12C, "REQ8", 0x000000203F800000, Relu::none, 0, true);
  EXPECT_EQ(fact(clamp, "Post-process", "as S8"), "127 | saturated");
  // ReLU does not suppress the offset: 0 + 7.
  const Document relu = explained(s32, 0xFFFFFFFB, "REQ8", 0x000000E03F800000, Relu::relu, 0, false);
  EXPECT_EQ(fact(relu, "Post-process", "multiplier"),
            "0 | the accumulator is negative (-0 and -Inf are): ReLU makes it 0");
  EXPECT_EQ(fact(relu, "Post-process", "offset"), "+7 | gives 7");
  // LReLU replaces the scale: -4 with scale 4 and alpha 0.5 gives -2.
  const Document lrelu = explained(s32, 0xFFFFFFFC, "REQ8", 0x0000000040800000, Relu::scalar, 0x1F800, false);
  EXPECT_EQ(fact(lrelu, "Post-process", "scale"), "0x20400 | FP19 4, of the carrier word 0x0000000040800000");
  EXPECT_EQ(fact(lrelu, "Post-process", "product"), "-2 | accumulator times multiplier, exact");
  EXPECT_EQ(result_text(lrelu), "D(0,0) 0xFE S8 -2, flags -");
  // Underflow of a negative value gives +0 in E4M3.
  const Document tiny = explained(fp32, 0xBA000000, "QF322FP8_PRE", 0x000000003F800000, Relu::none, 0, false);
  EXPECT_EQ(fact(tiny, "Post-process", "product"), "-0.00048828125 | accumulator times multiplier, exact");
  EXPECT_EQ(fact(tiny, "Post-process", "rounded once"), "0x00 | 0, differs by 0.00048828125");
  EXPECT_EQ(result_text(tiny), "D(0,0) 0x00 E4M3 0, flags UF NX");
  // 449 is beyond 448 before rounding under pto, and rounds to 448 under ocp.
  const Document large = explained(fp32, 0x43E08000, "QF322FP8_PRE", 0x000000003F800000, Relu::none, 0, false);
  EXPECT_EQ(section(large, "Post-process")->tables.back().rows,
            (std::vector<std::vector<std::string>>{
                {"*", "pto", "0x7F OF NX"}, {"", "asl", "0x7F OF NX"}, {"", "ocp", "0x7E NX"}}));
  const Document nan = explained(fp32, 0x7FC00000, "QF322B8_PRE", 0x000000003F800000, Relu::none, 0, false);
  EXPECT_EQ(fact(nan, "Post-process", "step 6"), "0x80 | NaN to S8, Sat = 0: the minimum endpoint, NV");
}

// Which element wins: 5 of 2, 5, 4, and with MaxAbs and RowMaxIn (numerics 5.7).
TEST(ExplainReductions, NamesTheWinner) {
  const Accumulators row{&format_of(DataType::u32), 1, 3, {2, 5, 4}};
  PostprocessOptions post;
  post.row_max = true;
  const auto document = explain_postprocess(row, 0, 2, post);
  ASSERT_TRUE(document) << document.error().message;
  EXPECT_EQ(fact(*document, "RowMax", "RowMax of the columns"), "0x00000005 | 5, from column 1");
  EXPECT_EQ(
      section(*document, "RowMax")->tables.front().rows,
      (std::vector<std::vector<std::string>>{{"0", "0x00000002", "2", "2", "-"}, {"1", "0x00000005", "5", "5", "-"}}));
  const Accumulators absolute{&fp32, 1, 2, {0xC0400000, 0x40000000}};
  const std::uint32_t init = 0xC0A00000;
  post.max_abs = true;
  post.row_max_init = std::span<const std::uint32_t>(&init, 1);
  const auto with_init = explain_postprocess(absolute, 0, 1, post);
  ASSERT_TRUE(with_init) << with_init.error().message;
  EXPECT_EQ(fact(*with_init, "RowMax", "RowMax of the columns"), "0x40400000 | 3, from column 0");
  EXPECT_EQ(fact(*with_init, "RowMax", "RowMax"), "0x40A00000 | 5, that of RowMaxIn");
}

// Integers wrap modulo 2^32, and the explanation says so (numerics 9.5: FFFF * FFFF twice).
TEST(ExplainMatmul, IntegersModulo2To32) {
  const Format& u16 = format_of(DataType::u16);
  const Matrix a(Side::a, u16, {0xFFFF, 0xFFFF}, 1, 2);
  const Matrix b(Side::b, u16, {0xFFFF, 0xFFFF}, 2, 1);
  const auto document = explain_matmul(a(), b(), 0, 0, {}, {});
  ASSERT_TRUE(document) << document.error().message;
  EXPECT_EQ(fact(*document, "Largest term", "sum of a*b"), "8589672450 | exact");
  EXPECT_EQ(fact(*document, "Largest term", "result"),
            "0xFFFC0002 = 4294705154 | the exact result modulo 2^32: it does not fit");
}

// Many groups: the first, the last, and those that lost most; all lanes with steps.
TEST(ExplainMatmul, ManyGroupsAreShownCompactly) {
  const std::size_t k = 64 * 16;
  Words lanes(k, 0x3F000000);
  lanes[0] = 0x4B800000;        // 2^24, to which halves are too small
  lanes[16 * 30] = 0x3F400000;  // and so is 0.75, which is more
  const Matrix a(Side::a, fp32, lanes, 1, k);
  const Matrix b(Side::b, fp32, Words(k, 0x3F800000), k, 1);
  const auto document = explain_matmul(a(), b(), 0, 0, {}, {});
  ASSERT_TRUE(document) << document.error().message;
  const Table& table = section(*document, "Products")->tables.back();
  std::size_t shown = 0;
  std::size_t left_out = 0;
  bool worst = false;
  for (const auto& row : table.rows) {
    if (row[0].starts_with("… ")) {
      left_out += std::stoul(row[0].substr(std::string("… ").size()));
    } else {
      ++shown;
      worst = worst || row[0] == "480-495";
    }
  }
  EXPECT_EQ(shown + left_out, 64U);
  EXPECT_EQ(shown, 32U);
  EXPECT_TRUE(worst);
  const auto steps = explain_matmul(a(), b(), 0, 0, {}, {}, true);
  ASSERT_TRUE(steps) << steps.error().message;
  EXPECT_EQ(section(*steps, "Products")->tables.back().rows.size(), k);
}

TEST(ExplainMatmul, Refusals) {
  const Matrix a(Side::a, e4m3, Words(6, 0x38), 2, 3);
  const Matrix b(Side::b, e4m3, Words(12, 0x38), 3, 4);
  const auto message = [&](std::size_t row, std::size_t col, const MatmulOptions& product,
                           const PostprocessOptions& post) {
    const auto document = explain_matmul(a(), b(), row, col, product, post);
    return document ? std::string() : document.error().message;
  };
  EXPECT_EQ(message(1, 3, {}, {}), "");
  EXPECT_EQ(message(2, 0, {}, {}), "element 2,0: D is 2 x 4, so rows are 0 to 1 and columns 0 to 3");
  EXPECT_EQ(message(0, 4, {}, {}), "element 0,4: D is 2 x 4, so rows are 0 to 1 and columns 0 to 3");
  MatmulOptions product;
  const std::vector<std::uint32_t> three(3);
  product.bias = three;
  EXPECT_EQ(message(0, 0, product, {}), "bias: 3 elements, but B has 4 columns");
  PostprocessOptions post;
  post.mode = find_prequant("REQ8");
  EXPECT_EQ(message(0, 0, {}, post), "F3: REQ8 takes S32 accumulators, but these are FP32");
  EXPECT_FALSE(explain_matmul({}, b(), 0, 0, {}, {}));
  EXPECT_FALSE(explain_postprocess({}, 0, 0, {}));
  EXPECT_FALSE(explain_postprocess({&fp32, 2, 2, {1, 2, 3}}, 0, 0, {}));
}

}  // namespace
}  // namespace bitcube
