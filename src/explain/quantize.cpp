#include "bitcube/explain/quantize.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitcube/quantize/convert_array.hpp"
#include "explain/lane.hpp"
#include "explain/rounding.hpp"
#include "guarded.hpp"
#include "value_text.hpp"

namespace bitcube {
namespace {

using explain::internal_error;
using explain::number_text;
using explain::power_text;

/// The group of the element, and what is asked of it.
struct Request {
  QuantizeOptions options{};
  const Format* stored = nullptr;  // what the elements of the tensor are
  const Format* source = nullptr;  // what they are rounded to, if anything
  std::vector<uint64> words{};     // of the group, in the source's format
  std::size_t lane = 0;            // of the element in its group
  uint64 stored_word = 0;          // of the element
  uint64 first_lane = 0;           // of the group in its line
  uint64 line = 0;
  std::string where{};  // "[3, 129]"
  std::uint32_t tensor_scale = 0x3F800000;

  const BlockFormat& format() const noexcept { return *options.format; }
  Value x() const noexcept { return decode(*source, words[lane]); }
};

/// What the library makes of the element.
struct Outcome {
  std::uint32_t scale = 0;
  unsigned code = 0;
  Value value{};

  friend bool operator==(const Outcome& a, const Outcome& b) { return a.scale == b.scale && a.code == b.code; }
};

/// quantize() of the group as a tensor of its own.
Expected<Outcome> quantize_group(const Request& r, QuantizeOptions options) {
  const std::size_t word_bytes = r.source->carrier_bits / 8U;
  std::vector<std::byte> bytes(r.words.size() * word_bytes);
  for (std::size_t i = 0; i < r.words.size(); ++i) store_word(bytes.data() + i * word_bytes, word_bytes, r.words[i]);
  const std::array<uint64, 1> shape{r.words.size()};
  options.tensor_scale = false;
  if (options.format->is_nvfp4() && !options.given_scale) options.given_scale = r.tensor_scale;
  options.execution = {.threads = 1};
  const auto tensor = quantize(bytes, *r.source, shape, 0, options);
  if (!tensor) return tensor.error();
  const bool packed = r.format().element->is_packed();
  const auto byte = static_cast<unsigned>(tensor->codes[packed ? r.lane / 2 : r.lane]);
  return Outcome{static_cast<std::uint32_t>(load_word(tensor->scales.data(), r.format().scale_bytes())),
                 packed ? (byte >> (r.lane % 2 != 0 ? 4 : 0)) & 15 : byte, dequantize_lane(*tensor, 0, r.lane)};
}

std::string scale_text(const BlockFormat& f, std::uint32_t scale) {
  return bits_text(*f.scale, scale);
}
std::string code_text(const BlockFormat& f, unsigned code) {
  return bits_text(*f.element, code);
}

/// y - x where both are finite.
std::optional<Real> error_of(const Value& x, const Value& y) {
  if (!x.is_finite() || !y.is_finite()) return std::nullopt;
  const bool larger = compare_magnitude(y.real, x.real) >= 0;
  const Real& big = larger ? y.real : x.real;
  const Real& small = larger ? x.real : y.real;
  std::optional<Real> out;
  if (x.real.negative == y.real.negative || x.real.is_zero() || y.real.is_zero()) {
    out = explain::difference(big, small);
    if (out) out->negative = larger ? y.real.negative : !x.real.negative;
  }
  if (out && out->is_zero()) out->negative = false;
  return out;
}

std::string error_text(const Value& x, const Value& y) {
  if (!x.is_finite() || !y.is_finite()) return "-";
  const auto error = error_of(x, y);
  return error ? number_text(*error) : fmt::format("{} - {}", exact_text(y), exact_text(x));
}

/// A value in a few digits, for tables of many.
std::string short_text(const Format& f, uint64 word) {
  return value_text(f, decode(f, word));
}

// ---- Sections that all formats have

Section element_section(const Request& r) {
  Section section{.title = fmt::format("Element {}", r.where)};
  const auto add = [&](std::string name, std::string value, std::string remark = {}) {
    section.facts.push_back({std::move(name), std::move(value), std::move(remark)});
  };
  add("word", bits_text(*r.stored, r.stored_word), std::string(r.stored->name));
  const Value stored = decode(*r.stored, r.stored_word);
  add("value", exact_text(stored), fmt::format("{}, {}", name_of(stored.cls), value_text(*r.stored, stored)));
  if (r.source != r.stored) {
    const Encoded rounded = convert(*r.stored, *r.source, r.stored_word, {});
    add("rounded", exact_text(r.x()),
        fmt::format("{} of {} first, by RNE; flags {}", bits_text(*r.source, r.words[r.lane]), r.source->name,
                    flags_text(rounded.flags)));
  }
  add("line", fmt::format("{}", r.line), fmt::format("lane {}", r.first_lane + r.lane));
  add("group", fmt::format("lanes {} to {}", r.first_lane, r.first_lane + r.words.size() - 1),
      fmt::format("lane {} of the group", r.lane));
  if (r.words.size() < r.format().group) {
    section.remarks.push_back(fmt::format("The line ends here: the other {} lanes of the group count as +0.",
                                          r.format().group - r.words.size()));
  }
  return section;
}

/// What the code stands for, and how far that is from x.
Section value_section(const Request& r, const Outcome& out, std::string formula, std::string_view clause) {
  Section section{.title = "Dequantised", .clause = std::string(clause)};
  section.facts.push_back({"value", exact_text(out.value), std::move(formula)});
  section.facts.push_back({"x", exact_text(r.x())});
  section.facts.push_back({"error", error_text(r.x(), out.value), "value - x"});
  const auto error = error_of(r.x(), out.value);
  if (error && !error->is_zero() && !r.x().real.is_zero()) {
    Real magnitude = r.x().real;
    magnitude.negative = false;
    section.facts.push_back({"relative", fmt::format("{:.4g}", to_double(*error) / to_double(magnitude)), "of |x|"});
  }
  return section;
}

/// A row of the last table.
std::vector<std::string> outcome_row(const Request& r, std::string_view name, const Outcome& o, const Outcome& result,
                                     bool acting) {
  const BlockFormat& f = r.format();
  return {acting ? "->" : "",
          std::string(name),
          scale_text(f, o.scale) + (o.scale != result.scale ? " *" : ""),
          code_text(f, o.code) + (o.code != result.code ? " *" : ""),
          exact_text(o.value),
          error_text(r.x(), o.value)};
}

/// Rounding of x to a code, or why there is no rounding.
Section encode_section(std::string title, std::string_view clause, const Format& to, const Real& x,
                       const EncodeControl& control) {
  const explain::Rounding rounding{&to, control, x, encode_steps(to, x, control)};
  if (!explain::has_neighbours(rounding)) {
    Section section{.title = std::move(title), .clause = std::string(clause)};
    const bool beyond = rounding.steps.path == EncodeSteps::Path::beyond;
    section.facts.push_back({"exact", number_text(x)});
    section.facts.push_back({"range", beyond ? "above the largest" : "below the smallest",
                             fmt::format("{} {}", beyond ? "saturates to" : "becomes",
                                         exact_text(decode(to, rounding.steps.result.bits)))});
    return section;
  }
  Section section = explain::rounding_section(rounding);
  section.title = fmt::format("{}: {}", title, name_of(control.rounding));
  section.clause = std::string(clause);
  if (rounding.steps.path == EncodeSteps::Path::rounded_beyond) {
    section.remarks.push_back(
        fmt::format("Beyond the format: it saturates to {}.", exact_text(decode(to, rounding.steps.result.bits))));
  }
  return section;
}

// ---- HiF4

/// A word of BF16 or of the source with its value.
std::string word_text(const Format& f, uint64 word) {
  return fmt::format("{} = {}", bits_text(f, word), exact_text(decode(f, word)));
}

Section hif4_maxima_section(const Request& r, const Format& source, const Hif4Group& g) {
  Section section{.title = "Largest magnitudes: of 4 lanes (Mc), of 8 (Mb), of all (Ma)",
                  .clause = "numerics 10.3, step 1"};
  Table table{.header = {"", "lanes", "Mc", "lanes", "Mc", "Mb"}};
  for (std::size_t i = 0; i < 8; ++i) {
    std::vector<std::string> row{r.lane / 8 == i ? "->" : "",
                                 fmt::format("{}..{}", 8 * i, 8 * i + 3),
                                 short_text(source, g.maxima.per4[2 * i]),
                                 fmt::format("{}..{}", 8 * i + 4, 8 * i + 7),
                                 short_text(source, g.maxima.per4[2 * i + 1]),
                                 short_text(source, g.maxima.per8[i])};
    table.rows.push_back(std::move(row));
  }
  section.tables.push_back(std::move(table));
  section.facts.push_back({"Ma", word_text(source, g.maxima.per64)});
  return section;
}

Section hif4_factor_section(const Format& source, const Hif4Group& g, const Hif4Profile& profile) {
  Section section{.title = "Scale factor sf", .clause = "numerics 10.3, step 2"};
  const Value ma = decode(source, g.maxima.per64);
  if (!profile.one_seventh) {
    section.facts.push_back({"sf", word_text(source, g.scale_factor), "Ma itself: this profile has no 1/7"});
    return section;
  }
  section.facts.push_back({"1/7", word_text(bf16, encode(bf16, detail::one_seventh, {}).bits), "BF16(1/7)"});
  if (ma.is_finite()) section.facts.push_back({"Ma / 7", exact_text(multiply(ma.real, detail::one_seventh)), "exact"});
  section.facts.push_back({"sf", word_text(bf16, g.scale_factor), "rounded to BF16 (RNE)"});
  return section;
}

std::string range_remark() {
  return fmt::format("from {} to {}", exact_text(decode(e6m2, 0)), exact_text(decode(e6m2, e6m2.max_finite)));
}

void add_hif4_scale(Document& document, const Request& r, const Format& source, const Hif4Group& g) {
  const Hif4Profile& profile = *r.options.profile;
  document.sections.push_back(hif4_maxima_section(r, source, g));
  document.sections.push_back(hif4_factor_section(source, g, profile));
  const Value sf = decode(profile.one_seventh ? bf16 : source, g.scale_factor);
  const std::string_view clause = "numerics 10.3, step 3";
  if (sf.is_finite()) {
    document.sections.push_back(
        encode_section("sf to E6M2", clause, e6m2, sf.real, {.rounding = profile.scale_rounding, .saturate = true}));
  } else {
    document.sections.push_back({.title = "sf to E6M2", .clause = std::string(clause)});
  }
  Section& scale = document.sections.back();
  if (sf.is_nan()) scale.remarks.emplace_back("A NaN in the group: E6M2 FF, and the whole group decodes to NaN.");
  if (sf.is_infinite()) scale.remarks.emplace_back("Infinity is clamped to the largest E6M2, FE.");
  scale.facts.push_back({"Ea", word_text(e6m2, g.e6m2), "E6M2, clamped to its range " + range_remark()});
  scale.tables.push_back(explain::lane_table(e6m2, g.e6m2));
  Section reciprocal{.title = "Reciprocal R of the scale", .clause = "numerics 10.3, step 4"};
  if (!g.is_nan()) reciprocal.facts.push_back({"exact", number_text(decode(detail::rcpe6m2, g.e6m2).real), "1 / Ea"});
  reciprocal.facts.push_back({"R", word_text(bf16, g.reciprocal), "rounded to BF16 (RNE)"});
  document.sections.push_back(std::move(reciprocal));
}

std::string product_text(const Hif4Profile& profile, const Value& maximum, const Real& reciprocal, int power) {
  if (maximum.is_infinite()) return "inf";
  return number_text(scale_by_power_of_two(hif4_product(profile, maximum.real, reciprocal), -power));
}

/// The micro-exponents as this explanation finds them, into `word`.
Section hif4_micro_section(const Request& r, const Format& source, const Hif4Group& g, std::uint32_t& word) {
  const Hif4Profile& profile = *r.options.profile;
  const Real reciprocal = decode(bf16, g.reciprocal).real;
  Section section{.title = "Micro-exponents: Eb where Mb R >= 4, Ec where Mc R 2^-Eb >= 2",
                  .clause = "numerics 10.3, steps 5 and 6"};
  Table table{.header = {"", "lanes", "Mb R", "Eb", "Mc R 2^-Eb", "Ec", "Mc R 2^-Eb", "Ec"}};
  for (std::size_t i = 0; i < 8; ++i) {
    const Value mb = decode(source, g.maxima.per8[i]);
    const bool eb = detail::hif4_reaches(profile, mb, reciprocal, 2);
    word |= std::uint32_t{eb} << (8 + i);
    std::vector<std::string> row{r.lane / 8 == i ? "->" : "", fmt::format("{}..{}", 8 * i, 8 * i + 7),
                                 product_text(profile, mb, reciprocal, 0), eb ? "1" : "0"};
    for (const std::size_t h : {2 * i, 2 * i + 1}) {
      const Value mc = decode(source, g.maxima.per4[h]);
      const bool ec = detail::hif4_reaches(profile, mc, reciprocal, eb ? 2 : 1);
      word |= std::uint32_t{ec} << (16 + h);
      row.push_back(product_text(profile, mc, reciprocal, eb ? 1 : 0));
      row.emplace_back(ec ? "1" : "0");
    }
    table.rows.push_back(std::move(row));
  }
  section.tables.push_back(std::move(table));
  section.facts.push_back({"products", profile.bf16_products ? "rounded to BF16 (RNE)" : "exact"});
  section.facts.push_back({"scale word", fmt::format("0x{:08X}", word), "Ea, Eb << 8, Ec << 16 (numerics 8.1)"});
  return section;
}

/// The lane of a group that is no NaN; gives its code.
unsigned add_hif4_lane(Document& document, const Request& r, const Format& source, const Hif4Group& g,
                       std::uint32_t word) {
  const Hif4Profile& profile = *r.options.profile;
  const std::size_t quad = r.lane / 4;
  const int micro = hif4_micro_exponent(word, r.lane);
  const auto lane_word = hif4_source_word(*r.source, r.words[r.lane]);
  const Value x = decode(source, lane_word & static_cast<std::uint32_t>(low_mask(source.sign_bit())));
  const Real scale = scale_by_power_of_two(decode(bf16, g.reciprocal).real, -micro);
  Section product{.title = "Lane: |x| R 2^(-Eb-Ec)", .clause = "numerics 10.3, steps 7 and 8"};
  product.facts.push_back({"scale", word_text(bf16, g.reciprocal4[quad]),
                           fmt::format("R 2^{}, of lanes {} to {}", -micro, 4 * quad, 4 * quad + 3)});
  if (x.is_infinite()) {
    product.remarks.emplace_back("Infinity takes the largest lane, 7/4.");
    document.sections.push_back(std::move(product));
    return static_cast<unsigned>(with_sign(hif4, hif4.max_finite, is_negative(source, lane_word)));
  }
  const Real rounded = hif4_product(profile, x.real, scale);
  product.facts.push_back({"|x|", exact_text(x.real)});
  product.facts.push_back({"product", exact_text(multiply(x.real, scale)), "exact"});
  if (profile.bf16_products) product.facts.push_back({"rounded", exact_text(rounded), "to BF16 (RNE)"});
  document.sections.push_back(std::move(product));
  const EncodeControl control{.rounding = profile.lane_rounding};
  document.sections.push_back(encode_section("Product to quarters", "numerics 10.3, step 8", hif4, rounded, control));
  const auto code =
      static_cast<unsigned>(with_sign(hif4, encode(hif4, rounded, control).bits, is_negative(source, lane_word)));
  document.sections.back().facts.push_back({"code", code_text(r.format(), code), "with the sign of x; zero keeps it"});
  return code;
}

Expected<Outcome> add_hif4(Document& document, const Request& r) {
  const Format& source = hif4_source_format(*r.source);
  std::vector<std::uint32_t> words;
  words.reserve(r.words.size());
  for (const uint64 word : r.words) words.push_back(hif4_source_word(*r.source, word));
  if (&source != r.source) {
    document.sections.front().facts.push_back(
        {"to BF16", word_text(source, words[r.lane]), "HiF4 is quantised from BF16 or FP32 (profiles 1)"});
  }
  const Hif4Group g = quantize_hif4_group(source, words, *r.options.profile);
  add_hif4_scale(document, r, source, g);
  Outcome out{.scale = g.e6m2};
  if (!g.is_nan()) {
    document.sections.push_back(hif4_micro_section(r, source, g, out.scale));
    out.code = add_hif4_lane(document, r, source, g, out.scale);
  }
  out.value = dequantize_hif4_lane(out.scale, r.lane, out.code);
  document.sections.push_back(
      value_section(r, out,
                    g.is_nan() ? "NaN for E6M2 FF"
                               : fmt::format("{} x {} x 2^{}", exact_text(decode(hif4, out.code)),
                                             exact_text(decode(e6m2, g.e6m2)), hif4_micro_exponent(out.scale, r.lane)),
                    "numerics 8.1"));
  return out;
}

// ---- MX and NVFP4

Section group_section(const Request& r, const detail::GroupRange& range) {
  Section section{.title = "Group", .clause = "profiles 2"};
  constexpr std::size_t across = 4;
  Table table{};
  for (std::size_t i = 0; i < r.words.size(); i += across) {
    std::vector<std::string> row{r.lane / across == i / across ? "->" : "", fmt::format("{}", i)};
    for (std::size_t j = i; j < std::min(i + across, r.words.size()); ++j) {
      row.push_back(value_text(*r.source, decode(*r.source, r.words[j])));
    }
    table.rows.push_back(std::move(row));
  }
  section.tables.push_back(std::move(table));
  section.facts.push_back({"amax", exact_text(range.amax), "the largest finite magnitude"});
  if (range.nan) section.remarks.emplace_back("A NaN in the group: the scale is NaN, and so is the whole group.");
  if (range.infinite && !range.nan) section.remarks.emplace_back("An infinity in the group: the largest scale.");
  return section;
}

Section mx_scale_section(const Request& r, const detail::GroupRange& range, Outcome& out) {
  const ScaleRule& rule = *r.options.scale_rule;
  const Format& element = *r.format().element;
  Section section{.title = fmt::format("Scale rule {}: {}", rule.name, rule.meaning), .clause = "profiles 2"};
  const auto add = [&](std::string name, std::string value, std::string remark = {}) {
    section.facts.push_back({std::move(name), std::move(value), std::move(remark)});
  };
  int exponent = range.infinite ? e8m0.bias : -e8m0.bias;
  if (!range.infinite && !range.amax.is_zero()) {
    const Real largest = decode(element, element.max_finite).real;
    const int wanted = mx_scale_exponent(element, range.amax, rule.rounding);
    const int floor = floor_log2(range.amax) - floor_log2(largest);
    add("log2 amax", fmt::format("{}", floor_log2(range.amax)), "rounded down");
    add("emax", fmt::format("{}", floor_log2(largest)),
        fmt::format("of the largest {}, {}", element.name, exact_text(largest)));
    add("exponent", fmt::format("{}", wanted),
        wanted == floor ? "their difference" : "one more than their difference, as the rule rounds up");
    exponent = std::clamp(wanted, -e8m0.bias, int{e8m0.bias});
    if (exponent != wanted) add("clamped", fmt::format("{}", exponent), "to [-127, 127]");
  } else if (!range.infinite) {
    add("exponent", fmt::format("{}", exponent), "an all-zero group has the smallest scale");
  }
  out.scale = static_cast<std::uint32_t>(exponent + e8m0.bias);
  add("scale", scale_text(r.format(), out.scale), fmt::format("E8M0, {}", power_text(exponent)));
  return section;
}

/// The lane x / scale; gives its code.
unsigned add_element(Document& document, const Request& r, const Real& quotient, std::string formula) {
  const Format& element = *r.format().element;
  Section section{.title = "Lane: x / scale", .clause = "profiles 2"};
  section.facts.push_back({"x", exact_text(r.x())});
  section.facts.push_back({"quotient", r.x().is_infinite() ? "inf" : number_text(quotient), std::move(formula)});
  const EncodeControl control{
      .rounding = r.options.rounding, .saturate = true, .profile = find_conversion_profile("ocp")};
  const bool zero = quotient.is_zero() && !r.x().is_infinite();
  const unsigned code = zero ? static_cast<unsigned>(zero_code(element, quotient.negative))
                             : detail::encode_element(element, r.x().cls, quotient, r.options.rounding);
  document.sections.push_back(std::move(section));
  if (r.x().is_infinite()) {
    document.sections.back().remarks.emplace_back("Infinity takes the largest element.");
  } else if (!zero) {
    document.sections.push_back(
        encode_section(fmt::format("Quotient to {}", element.name), "profiles 2", element, quotient, control));
  } else {
    document.sections.back().remarks.emplace_back("Zero keeps its sign.");
  }
  document.sections.back().facts.push_back({"code", code_text(r.format(), code)});
  return code;
}

std::vector<Value> values_of(const Request& r) {
  std::vector<Value> values;
  values.reserve(r.words.size());
  for (const uint64 word : r.words) values.push_back(decode(*r.source, word));
  return values;
}

Outcome add_mx(Document& document, const Request& r) {
  const Format& element = *r.format().element;
  const detail::GroupRange range = detail::range_of(values_of(r));
  document.sections.push_back(group_section(r, range));
  Outcome out{.scale = static_cast<std::uint32_t>(e8m0.canonical_nan)};
  if (!range.nan) {
    document.sections.push_back(mx_scale_section(r, range, out));
    const int exponent = static_cast<int>(out.scale) - e8m0.bias;
    out.code = add_element(document, r, scale_by_power_of_two(r.x().real, -exponent),
                           fmt::format("x / {}, exact", power_text(exponent)));
  }
  out.value = dequantize_mx_lane(element, static_cast<std::uint8_t>(out.scale), out.code);
  document.sections.push_back(value_section(
      r, out,
      range.nan ? "NaN for scale FF"
                : fmt::format("{} x {}", exact_text(decode(element, out.code)), exact_text(decode(e8m0, out.scale))),
      "numerics 8.2"));
  return out;
}

Outcome add_nvfp4(Document& document, const Request& r) {
  const detail::GroupRange range = detail::range_of(values_of(r));
  document.sections.push_back(group_section(r, range));
  const Real unit = decode(fp32, r.tensor_scale).real;
  Outcome out{.scale = static_cast<std::uint32_t>(e4m3.canonical_nan)};
  if (!range.nan) {
    out.scale = range.infinite ? static_cast<std::uint32_t>(e4m3.max_finite) : 0;
    const bool scaled = !range.infinite && !range.amax.is_zero() && !unit.is_zero();
    if (scaled) {
      const Real ideal = divide(range.amax, multiply(unit, {.significand = 6}));
      const EncodeControl control{.rounding = Rounding::rne, .saturate = true};
      document.sections.push_back(
          encode_section("Scale amax / (6 tensor scale) to E4M3", "profiles 2", e4m3, ideal, control));
      out.scale = static_cast<std::uint32_t>(encode(e4m3, ideal, control).bits);
    } else {
      document.sections.push_back({.title = "Scale", .clause = "profiles 2"});
    }
    Section& section = document.sections.back();
    section.facts.push_back({"tensor scale", word_text(fp32, r.tensor_scale), "FP32"});
    section.facts.push_back({"scale", word_text(e4m3, out.scale), "E4M3"});
    const Real scale = multiply(decode(e4m3, out.scale).real, unit);
    const Value x = r.x();
    const bool zero = !x.is_infinite() && (x.real.is_zero() || scale.is_zero());
    const Real quotient = zero || x.is_infinite() ? Real{.negative = x.real.negative} : divide(x.real, scale);
    out.code = add_element(document, r, quotient,
                           scale.is_zero() ? "a scale of zero gives lanes of zero" : "x / (scale x tensor scale)");
  }
  out.value = dequantize_nvfp4_lane(static_cast<std::uint8_t>(out.scale), out.code, r.tensor_scale);
  document.sections.push_back(
      value_section(r, out,
                    range.nan ? "NaN for scale 7F"
                              : fmt::format("{} x {} x tensor scale", exact_text(decode(e2m1, out.code)),
                                            exact_text(decode(e4m3, out.scale))),
                    "profiles 2"));
  return out;
}

// ---- The whole

Expected<Section> others_section(const Request& r, const Outcome& result) {
  const BlockFormat& f = r.format();
  Section section{.title = f.is_hif4() ? "Every profile"
                           : f.is_mx() ? "Every scale rule"
                                       : "Every rounding of the lanes",
                  .clause = f.is_hif4() ? "profiles 1" : "profiles 2"};
  Table table{.header = {"", f.is_hif4() ? "profile" : f.is_mx() ? "rule" : "mode", "scale", "code", "value", "error"}};
  bool differ = false;
  const auto add = [&](std::string_view name, const QuantizeOptions& options, bool acting) -> Expected<void> {
    const auto other = quantize_group(r, options);
    if (!other) return other.error();
    differ = differ || *other != result;
    table.rows.push_back(outcome_row(r, name, *other, result, acting));
    return {};
  };
  QuantizeOptions options = r.options;
  const auto for_each = [&](const auto& rows, auto& choice) -> Expected<void> {
    const auto* const acting = choice;
    for (const auto& row : rows) {
      choice = &row;
      if (auto added = add(row.name, options, &row == acting); !added) return added.error();
    }
    return {};
  };
  Expected<void> done;
  if (f.is_hif4()) {
    done = for_each(hif4_profiles, options.profile);
  } else if (f.is_mx()) {
    done = for_each(scale_rules, options.scale_rule);
  } else {
    for (const RoundingInfo& mode : roundings) {
      options.rounding = mode.mode;
      done = add(mode.name, options, mode.mode == r.options.rounding);
      if (!done) break;
    }
  }
  if (!done) return done.error();
  section.tables.push_back(std::move(table));
  section.remarks.emplace_back(differ ? "* differs from the result" : "All agree.");
  return section;
}

std::string choice_text(const Request& r) {
  const QuantizeOptions& o = r.options;
  if (o.format->is_hif4()) return fmt::format("profile {}", o.profile->name);
  return o.format->is_mx() ? fmt::format("scale rule {}, elements {}", o.scale_rule->name, name_of(o.rounding))
                           : fmt::format("elements {}", name_of(o.rounding));
}

Expected<Document> explain_group(const Request& r) {
  const auto result = quantize_group(r, r.options);
  if (!result) return result.error();
  Document document{.title = fmt::format("Element {} in {}, {}", r.where, r.format().name, choice_text(r))};
  document.sections.push_back(element_section(r));
  const Expected<Outcome> found = r.format().is_hif4() ? add_hif4(document, r)
                                  : r.format().is_mx() ? Expected<Outcome>(add_mx(document, r))
                                                       : Expected<Outcome>(add_nvfp4(document, r));
  if (!found) return found.error();
  if (*found != *result || exact_text(found->value) != exact_text(result->value)) {
    return internal_error(fmt::format("the steps give scale {}, code {}; quantising gives scale {}, code {}",
                                      scale_text(r.format(), found->scale), code_text(r.format(), found->code),
                                      scale_text(r.format(), result->scale), code_text(r.format(), result->code)));
  }
  auto others = others_section(r, *result);
  if (!others) return others.error();
  document.sections.push_back(std::move(*others));
  document.results.push_back({"result", fmt::format("scale {}, code {} = {}", scale_text(r.format(), result->scale),
                                                    code_text(r.format(), result->code), exact_text(result->value))});
  return document;
}

/// The FP32 word of the tensor scale of all elements.
Expected<std::uint32_t> tensor_scale_of(std::span<const std::byte> bytes, const Format& stored, const Format& source,
                                        const Execution& execution) {
  constexpr std::size_t part = std::size_t{1} << 20;  // bytes
  Real amax{};
  for (std::size_t begin = 0; begin < bytes.size(); begin += part) {
    const auto words = bytes.subspan(begin, std::min(part, bytes.size() - begin));
    Expected<Real> largest = Real{};
    if (&stored == &source) {
      largest = largest_magnitude(words, source, execution);
    } else {
      const auto converted = convert_array(words, stored, source, {}, execution);
      if (!converted) return converted.error();
      largest = largest_magnitude(converted->words, source, execution);
    }
    if (!largest) return largest.error();
    if (compare_magnitude(*largest, amax) > 0) amax = *largest;
  }
  return nvfp4_tensor_scale(amax);
}

/// Errors: an index that the shape does not have.
Expected<void> check_index(std::span<const uint64> shape, std::span<const uint64> index) {
  bool inside = index.size() == shape.size();
  for (std::size_t i = 0; inside && i < shape.size(); ++i) inside = index[i] < shape[i];
  if (inside) return {};
  return Error{
      fmt::format("index {} is not in an array of shape {}; {}", fmt::join(index, ","), shape_text(shape),
                  index.size() == shape.size() ? "indices count from 0" : "it needs one number for every dimension")};
}

Expected<Request> request(std::span<const std::byte> bytes, const Format& stored, std::span<const uint64> shape,
                          std::size_t axis, const QuantizeOptions& options, std::span<const uint64> index,
                          const Format* rounded) {
  Lines lines;
  if (axis >= shape.size()) {
    return Error{fmt::format("axis {} is outside of an array with {} dimension{}", axis, shape.size(),
                             shape.size() == 1 ? "" : "s")};
  }
  const std::size_t word_bytes = stored.carrier_bits / 8U;
  uint64 size = 0;
  if (!lines_of(shape, axis, lines) || !checked_multiply(lines.elements(), word_bytes, size) || size != bytes.size()) {
    return Error{fmt::format("{} bytes are no array of {} of shape {}", bytes.size(), stored.name, shape_text(shape))};
  }
  if (auto inside = check_index(shape, index); !inside) return inside.error();
  if (options.format == nullptr || options.profile == nullptr || options.scale_rule == nullptr) {
    return Error{"a format, a profile and a scale rule are needed"};
  }
  const Format& source = rounded != nullptr ? *rounded : stored;
  if (!is_quantize_source(source) || !is_quantize_source(stored)) {
    return Error{fmt::format("source {}: cannot be quantised; give a float of whole bytes, such as FP32 or BF16",
                             is_quantize_source(source) ? stored.name : source.name)};
  }
  Request r{.options = options, .stored = &stored, .source = &source};
  uint64 outer = 0;
  uint64 inner = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i < axis) outer = outer * shape[i] + index[i];
    if (i > axis) inner = inner * shape[i] + index[i];
  }
  r.line = outer * lines.inner + inner;
  const uint64 group = options.format->group;
  r.first_lane = index[axis] / group * group;
  r.lane = static_cast<std::size_t>(index[axis] - r.first_lane);
  r.where = fmt::format("[{}]", fmt::join(index, ", "));
  for (uint64 k = r.first_lane; k < std::min(r.first_lane + group, lines.length); ++k) {
    const uint64 word = load_word(bytes.data() + lines.element(r.line, k) * word_bytes, word_bytes);
    if (k == index[axis]) r.stored_word = word;
    r.words.push_back(&source == &stored ? word : convert(stored, source, word, {}).bits);
  }
  if (options.format->is_nvfp4()) {
    if (options.given_scale) {
      r.tensor_scale = *options.given_scale;
    } else if (options.tensor_scale) {
      const auto scale = tensor_scale_of(bytes, stored, source, options.execution);
      if (!scale) return scale.error();
      r.tensor_scale = *scale;
    }
  } else if (options.tensor_scale || options.given_scale) {
    return Error{fmt::format("a tensor scale is for nvfp4; {} has none", options.format->name)};
  }
  return r;
}

}  // namespace

Expected<Document> explain_quantize(std::span<const std::byte> bytes, const Format& source,
                                    std::span<const uint64> shape, std::size_t axis, const QuantizeOptions& options,
                                    std::span<const uint64> index, const Format* rounded) {
  return guarded("explain", [&]() -> Expected<Document> {
    const auto r = request(bytes, source, shape, axis, options, index, rounded);
    if (!r) return r.error();
    return explain_group(*r);
  });
}

}  // namespace bitcube
