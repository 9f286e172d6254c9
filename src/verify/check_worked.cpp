// hif4_worked.json: HiF4 groups with every intermediate value (numerics 10.3).
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bitcube/quantize/hif4.hpp"
#include "forms.hpp"

namespace bitcube::verify {
namespace {

using Json = nlohmann::json;

double to_double(const Real& x) noexcept {
  return std::bit_cast<double>(encode(fp64, x, {}).bits);
}

/// NaN does not occur: the examples have finite lanes.
double bf16_value(uint64 word) noexcept {
  return to_double(decode(bf16, word).real);
}

/// Walks one example; every value is compared with what the quantiser gives. What is missing or of another kind is a
/// fault, the first of which counts.
class Example {
 public:
  Example(const Json& json, Mismatch& mismatch) : json_(json), mismatch_(mismatch) {}

  const std::string& fault() const noexcept { return fault_; }

  const Json* find(std::string_view path) {
    const Json* at = &json_;
    for (std::string_view rest = path; at != nullptr && !rest.empty();) {
      const std::size_t dot = rest.find('.');
      const auto key = std::string(rest.substr(0, dot));
      const auto found = at->find(key);
      at = found == at->end() ? nullptr : &*found;
      rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
    }
    if (at == nullptr) set_fault(path, "missing");
    return at;
  }

  std::string text(std::string_view path) {
    const Json* at = find(path);
    if (at != nullptr && at->is_string()) return at->get<std::string>();
    set_fault(path, "expected a string");
    return {};
  }

  /// Words with 0x, such as "0x3f80".
  std::vector<uint64> words(std::string_view path, std::size_t count) {
    std::vector<uint64> words;
    const Json* at = find(path);
    if (at == nullptr) return words;
    if (!at->is_array() || at->size() != count) {
      set_fault(path, fmt::format("expected {} words", count));
      return words;
    }
    for (const Json& item : *at) words.push_back(word_of(path, item));
    return words;
  }

  std::size_t integer(std::string_view path, std::size_t most) {
    const Json* at = find(path);
    if (at != nullptr && at->is_number_unsigned() && at->get<uint64>() <= most) return at->get<std::size_t>();
    set_fault(path, fmt::format("expected a number from 0 to {}", most));
    return 0;
  }

  // ---- Values that follow

  void expect_word(std::string_view path, std::string_view rule, uint64 got, std::size_t digits) {
    const Json* at = find(path);
    if (at == nullptr) return;
    if (word_of(path, *at) != got)
      differ(std::string(path), rule, at->dump(), fmt::format("\"0x{:0{}x}\"", got, digits));
  }
  template <typename Words>
  void expect_words(std::string_view path, std::string_view rule, const Words& got, std::size_t digits) {
    const std::vector<uint64> want = words(path, std::size(got));
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (want[i] == got[i]) continue;
      differ(fmt::format("{}[{}]", path, i), rule, fmt::format("0x{:0{}x}", want[i], digits),
             fmt::format("0x{:0{}x}", static_cast<uint64>(got[i]), digits));
    }
  }
  template <typename Numbers>
  void expect_numbers(std::string_view path, std::string_view rule, const Numbers& got) {
    const Json* at = find(path);
    if (at == nullptr) return;
    if (!at->is_array()) return set_fault(path, "expected a list of numbers");
    if (at->size() != std::size(got)) {
      return differ(std::string(path), rule, fmt::format("{} numbers", at->size()), fmt::format("{}", std::size(got)));
    }
    for (std::size_t i = 0; i < at->size(); ++i)
      expect_number(fmt::format("{}[{}]", path, i), rule, (*at)[i], static_cast<double>(got[i]));
  }
  void expect_number(std::string_view path, std::string_view rule, double got) {
    if (const Json* at = find(path)) expect_number(std::string(path), rule, *at, got);
  }
  void expect_text(std::string_view path, std::string_view rule, std::string_view got) {
    const std::string want = text(path);
    if (!equal_ignoring_case(want, got)) differ(std::string(path), rule, want, std::string(got));
  }

 private:
  uint64 word_of(std::string_view path, const Json& item) {
    std::vector<uint64> words;
    if (item.is_string()) {
      const auto& text = item.get_ref<const std::string&>();
      const bool hexadecimal = text.starts_with("0x") && text.size() > 2 && text.size() <= 18;
      if (hexadecimal && parse_digits(std::string_view(text).substr(2), text.size() - 2, words)) return words[0];
    }
    set_fault(path, "expected a word, such as \"0x3f80\"");
    return 0;
  }
  void expect_number(const std::string& path, std::string_view rule, const Json& item, double got) {
    if (!item.is_number()) return set_fault(path, "expected a number");
    if (item.get<double>() != got) differ(path, rule, item.dump(), fmt::format("{}", got));
  }
  void differ(std::string path, std::string_view rule, std::string expected, std::string got) {
    if (mismatch_.differences.empty()) mismatch_.rule = rule;
    mismatch_.differences.push_back({std::move(path), std::move(expected), std::move(got)});
  }
  void set_fault(std::string_view path, std::string_view what) {
    if (fault_.empty()) fault_ = fmt::format("{}: {}", path, what);
  }

  const Json& json_;
  Mismatch& mismatch_;
  std::string fault_;
};

std::string packed(const Hif4Group& g) {
  std::string text;
  for (std::size_t q = 0; q < g.codes.size(); q += 2) {
    append_digits(text, uint64{g.codes[q]} | uint64{g.codes[q + 1]} << 4, 2);
  }
  return text;
}

/// Bytes of a word, least significant first.
std::string little_endian(uint64 word, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) append_digits(text, word >> (8 * i), 2);
  return text;
}

template <typename Word, typename Flag, std::size_t N>
void bits_of(Word word, std::array<Flag, N>& bits) noexcept {
  for (std::size_t i = 0; i < N; ++i) bits[i] = static_cast<Flag>((static_cast<unsigned>(word) >> i) & 1U);
}

void check_example(Example& e, const Hif4Profile& profile) {
  const std::size_t valid = e.integer("valid", hif4_group_lanes);
  const std::vector<uint64> input = e.words("input_bf16", hif4_group_lanes);
  if (!e.fault().empty()) return;
  std::array<std::uint32_t, hif4_group_lanes> lanes{};
  std::transform(input.begin(), input.end(), lanes.begin(),
                 [](uint64 w) { return static_cast<std::uint32_t>(w & 0xFFFF); });
  const std::span<const std::uint32_t> words(lanes.data(), valid);
  const Hif4Group g = quantize_hif4_group(bf16, words, profile);

  std::array<double, hif4_group_lanes> values{};
  for (std::size_t q = 0; q < values.size(); ++q) values[q] = bf16_value(lanes[q]);
  e.expect_numbers("input_value", "numerics 1.6", values);

  constexpr std::string_view step1 = "numerics 10.3 step 1";
  e.expect_words("stage1.max4", step1, g.maxima.per4, 4);
  e.expect_words("stage1.max8", step1, g.maxima.per8, 4);
  e.expect_word("stage1.max64", step1, g.maxima.per64, 4);

  const auto product = [&](uint64 a, uint64 b) {
    const Real real = hif4_product(profile, decode(bf16, a).real, decode(bf16, b).real);
    return encode(bf16, real, {}).bits;
  };
  e.expect_word("stage2.recp7", "numerics 10.3 step 2", 0x3E12, 4);
  e.expect_word("stage2.sf_bf16", "numerics 10.3 step 2", g.scale_factor, 4);
  e.expect_number("stage2.sf_value", "numerics 10.3 step 2", bf16_value(g.scale_factor));
  constexpr std::string_view step3 = "numerics 10.3 step 3";
  e.expect_word("stage2.ea_code", step3, g.e6m2, 2);
  e.expect_number("stage2.ea_exp", step3, (g.e6m2 >> 2) - 48);
  e.expect_number("stage2.ea_mant", step3, g.e6m2 & 3);
  e.expect_number("stage2.ea_value", step3, to_double(decode(e6m2, g.e6m2).real));
  e.expect_word("stage2.ea_rec_bf16", "numerics 10.3 step 4", g.reciprocal, 4);

  std::array<uint64, 8> eb_tmp{};
  for (std::size_t i = 0; i < eb_tmp.size(); ++i) eb_tmp[i] = product(g.maxima.per8[i], g.reciprocal);
  std::array<std::uint8_t, 8> eb{};
  bits_of(g.micro8, eb);
  e.expect_words("stage2.eb_tmp", "numerics 10.3 step 5", eb_tmp, 4);
  e.expect_numbers("stage2.eb_bits", "numerics 10.3 step 5", eb);
  std::array<uint64, 16> ec_tmp0{};
  std::array<uint64, 16> ec_tmp1{};
  for (std::size_t i = 0; i < ec_tmp0.size(); ++i) {
    ec_tmp0[i] = product(g.maxima.per4[i], g.reciprocal);
    const Real halved = scale_by_power_of_two(decode(bf16, ec_tmp0[i]).real, -eb[i / 2]);
    ec_tmp1[i] = encode(bf16, halved, {}).bits;
  }
  std::array<std::uint8_t, 16> ec{};
  bits_of(g.micro4, ec);
  e.expect_words("stage2.ec_tmp0", "numerics 10.3 step 6", ec_tmp0, 4);
  e.expect_words("stage2.ec_tmp1", "numerics 10.3 step 6", ec_tmp1, 4);
  e.expect_numbers("stage2.ec_bits", "numerics 10.3 step 6", ec);
  e.expect_words("stage2.scale4_bf16", "numerics 10.3 step 7", g.reciprocal4, 4);

  std::array<uint64, hif4_group_lanes> scaled{};
  std::array<uint64, hif4_group_lanes> back{};
  std::array<double, hif4_group_lanes> back_values{};
  double largest_error = 0;
  for (std::size_t q = 0; q < scaled.size(); ++q) {
    const std::uint32_t x = q < valid ? lanes[q] : 0;
    scaled[q] = with_sign(bf16, product(x & 0x7FFF, g.reciprocal4[q / 4]), is_negative(bf16, x));
    const Value y = dequantize_hif4_lane(g.scale_word, q, g.codes[q]);
    back[q] = convert_value(bf16, y.cls, y.real, {}).bits;
    back_values[q] = to_double(y.real);
    if (q < valid) largest_error = std::max(largest_error, std::abs(back_values[q] - values[q]));
  }
  e.expect_words("stage3.scaled_bf16", "numerics 10.3 step 8", scaled, 4);
  e.expect_numbers("stage3.lane_code", "numerics 10.3 step 8", g.codes);

  constexpr std::string_view outputs = "numerics 10.3: outputs";
  e.expect_text("packed.fp4_bytes_hex", outputs, packed(g));
  e.expect_word("packed.ea_byte", outputs, g.e6m2, 2);
  e.expect_text("packed.ea_zero_extended_hex", outputs, little_endian(g.e6m2, 2));
  e.expect_word("packed.eb_byte", outputs, g.micro8, 2);
  e.expect_text("packed.ec_bytes_hex", outputs, little_endian(g.micro4, 2));
  e.expect_word("packed.scale_word_u32", "numerics 8.1", g.scale_word, 8);
  e.expect_text("packed.scale_word_le_bytes_hex", "numerics 8.1", little_endian(g.scale_word, 4));
  e.expect_numbers("dequant.value", "numerics 8.1", back_values);
  e.expect_words("dequant.bf16", "numerics 8.1", back, 4);
  e.expect_number("dequant.max_abs_err", "numerics 8.1", largest_error);

  const Hif4Group pto = quantize_hif4_group(bf16, words, hif4_profiles[0]);
  std::vector<std::size_t> changed;
  for (std::size_t q = 0; q < pto.codes.size(); ++q) {
    if (pto.codes[q] != g.codes[q]) changed.push_back(q);
  }
  e.expect_numbers("differs.pto.lanes", "profiles 1: pto", changed);
  e.expect_text("differs.pto.fp4_bytes_hex", "profiles 1: pto", packed(pto));
  const Hif4Group bench = quantize_hif4_group(bf16, words, *find_hif4_profile("bench"));
  e.expect_word("differs.bench.ea_code", "profiles 1: bench", bench.e6m2, 2);
  e.expect_word("differs.bench.scale_word_u32", "profiles 1: bench", bench.scale_word, 8);
  e.expect_text("differs.bench.fp4_bytes_hex", "profiles 1: bench", packed(bench));
}

}  // namespace

void check_hif4_worked(std::string_view text, std::size_t first, FileReport& report) {
  const auto malformed = [&](std::string message) { report.error = Error{report.path + ": " + std::move(message)}; };
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return malformed("is not JSON, or is damaged");
  const auto name = json.find("profile");
  const Hif4Profile* profile =
      name != json.end() && name->is_string() ? find_hif4_profile(name->get_ref<const std::string&>()) : nullptr;
  if (profile == nullptr) return malformed("profile: expected the name of a HiF4 profile, such as pto-a6");
  const auto examples = json.find("examples");
  if (examples == json.end() || !examples->is_array() || examples->empty()) {
    return malformed("examples: expected a list of groups");
  }
  for (const Json& json_example : *examples) {
    ++report.rows;
    Mismatch mismatch{.row = report.rows, .inputs = {}, .differences = {}, .rule = {}};
    Example example(json_example, mismatch);
    mismatch.inputs.push_back({"name", example.text("name")});
    check_example(example, *profile);
    if (!example.fault().empty()) {
      --report.rows;
      return malformed(fmt::format("example {}: {}", report.rows + 1, example.fault()));
    }
    if (mismatch.differences.empty()) {
      ++report.matches;
      continue;
    }
    ++report.mismatches;
    if (report.first.size() < first) report.first.push_back(std::move(mismatch));
  }
}

}  // namespace bitcube::verify
