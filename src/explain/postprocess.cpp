// The post-process of one element and its reductions, step by step (numerics 5).
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "bitcube/explain/matmul.hpp"
#include "explain/element.hpp"
#include "explain/rounding.hpp"
#include "guarded.hpp"

namespace bitcube::explain {

Expected<void> check_place(const Place& place) {
  if (place.row < place.rows && place.col < place.cols) return {};
  return Error{fmt::format("element {},{}: D is {} x {}, so rows are 0 to {} and columns 0 to {}", place.row, place.col,
                           place.rows, place.cols, place.rows - 1, place.cols - 1)};
}

Columns reduction_columns(const Place& place, const PostprocessOptions& options) {
  if (options.row_max) return {0, place.cols};
  if (options.group_n == 0) return {place.col, 1};
  const std::size_t first = place.col / options.group_n * options.group_n;
  return {first, std::min<std::size_t>(options.group_n, place.cols - first)};
}

PostprocessOptions element_options(const PostprocessOptions& options, std::size_t col) {
  PostprocessOptions element = options;
  if (options.mode->per_column) element.quant_carriers = options.quant_carriers.subspan(col, 1);
  if (options.relu == Relu::per_column) element.activation_carriers = options.activation_carriers.subspan(col, 1);
  element.row_max = false;
  element.row_max_init.reset();
  element.group_n = 0;
  element.max_abs = false;
  element.execution = {.threads = 1};
  return element;
}

Expected<Delivered> deliver(const Format& accumulator, std::uint32_t word, const PostprocessOptions& element) {
  const auto out = postprocess({&accumulator, 1, 1, Buffer<std::uint32_t>(&word, &word + 1)}, element);
  if (!out) return out.error();
  Delivered delivered{out->format, {0, out->flags}};
  std::memcpy(&delivered.d.bits, out->d.data(), out->element_bytes);
  return delivered;
}

namespace {

// ---- Reductions

/// Adds the maximum of columns first to first + words.size() - 1 and how it grew; returns it.
Reduced add_maximum(Section& section, const Format& accumulator, std::string_view name, std::size_t first,
                    std::span<const std::uint32_t> words, bool max_abs) {
  constexpr std::size_t most_rows = 12;
  Table table{.title = fmt::format("{} over columns {} to {}{}; the columns that changed it", name, first,
                                   first + words.size() - 1, max_abs ? " of absolute values" : ""),
              .header = {"column", "bits", "element", "maximum after it", "flags"},
              .right_aligned = {0, 2, 3}};
  const auto add = [&](std::size_t i, std::uint32_t maximum, Flags flags) {
    table.rows.push_back({fmt::format("{}", first + i), bits_text(accumulator, words[i]),
                          value_text(accumulator, decode(accumulator, words[i])),
                          value_text(accumulator, decode(accumulator, maximum)), flags_text(flags)});
  };
  std::uint32_t current = words[0];
  std::size_t winner = 0;
  if (!max_abs) add(0, current, Flags::none);
  const Reduced reduced = reduce_words(accumulator, max_abs, words, [&](std::size_t i, const Reduced& step) {
    if (step.word != current || step.flags != Flags::none || (max_abs && i == 0)) add(i, step.word, step.flags);
    if (step.word != current) winner = i;
    current = step.word;
  });
  if (table.rows.size() > most_rows) {
    const auto begin = table.rows.begin();
    table.rows.erase(begin + 1, begin + static_cast<std::ptrdiff_t>(table.rows.size() - most_rows + 1));
    table.rows.insert(table.rows.begin() + 1, {"…"});
  }
  section.tables.push_back(std::move(table));
  section.facts.push_back(
      {fmt::format("{} of the columns", name), bits_text(accumulator, reduced.word),
       fmt::format("{}, from column {}", value_text(accumulator, decode(accumulator, reduced.word)), first + winner)});
  return reduced;
}

Fact reduction_result(std::string name, const Format& accumulator, const Reduced& reduced) {
  return {std::move(name), bits_text(accumulator, reduced.word),
          fmt::format("{} {}, flags {}", accumulator.name, value_text(accumulator, decode(accumulator, reduced.word)),
                      flags_text(reduced.flags))};
}

/// What postprocess() says of one reduction of these words.
Expected<Reduced> library_reduction(const Format& accumulator, std::span<const std::uint32_t> words, bool max_abs,
                                    std::optional<std::uint32_t> row_max_init) {
  PostprocessOptions options;
  options.row_max = true;
  options.max_abs = max_abs;
  options.execution = {.threads = 1};
  if (row_max_init) options.row_max_init = std::span<const std::uint32_t>(&*row_max_init, 1);
  const auto out =
      postprocess({&accumulator, 1, words.size(), Buffer<std::uint32_t>(words.begin(), words.end())}, options);
  if (!out) return out.error();
  return Reduced{out->row_max[0], out->flags};
}

Expected<void> check_reduction(std::string_view name, const Format& accumulator, const Reduced& explained,
                               std::span<const std::uint32_t> words, bool max_abs,
                               std::optional<std::uint32_t> row_max_init) {
  const auto delivered = library_reduction(accumulator, words, max_abs, row_max_init);
  if (!delivered) return delivered.error();
  if (delivered->word == explained.word && delivered->flags == explained.flags) return {};
  return contradiction(name, bits_text(accumulator, explained.word), bits_text(accumulator, delivered->word));
}

}  // namespace

Expected<void> add_reductions(Document& document, const Format& accumulator, const Place& place,
                              std::span<const std::uint32_t> words, const PostprocessOptions& options) {
  if (options.row_max) {
    Section section{.title = "RowMax of the raw accumulators", .clause = "numerics 5.7"};
    Reduced r = add_maximum(section, accumulator, "RowMax", 0, words, options.max_abs);
    std::optional<std::uint32_t> init;
    if (options.row_max_init) {
      init = (*options.row_max_init)[place.row];
      const Reduced step = reduce_step(accumulator, options.max_abs, *init, r.word);
      section.facts.push_back(word_fact("RowMaxIn", accumulator, *init, ", the left operand of a last step"));
      section.facts.push_back(
          word_fact("RowMax", accumulator, step.word, step.word == r.word ? ", the row's" : ", that of RowMaxIn"));
      r = {step.word, r.flags | step.flags};
    }
    if (auto ok = check_reduction("RowMax", accumulator, r, words, options.max_abs, init); !ok) return ok;
    document.sections.push_back(std::move(section));
    document.results.push_back(reduction_result(fmt::format("RowMax({})", place.row), accumulator, r));
  }
  if (options.group_n != 0) {
    PostprocessOptions groups = options;
    groups.row_max = false;
    const Columns group = reduction_columns(place, groups);
    const auto part = words.subspan(group.first - reduction_columns(place, options).first, group.count);
    const std::size_t index = place.col / options.group_n;
    Section section{.title = fmt::format("GroupMax of group {}, {} columns each", index, options.group_n),
                    .clause = "numerics 5.7"};
    const Reduced r = add_maximum(section, accumulator, "GroupMax", group.first, part, options.max_abs);
    if (auto ok = check_reduction("GroupMax", accumulator, r, part, options.max_abs, {}); !ok) return ok;
    document.sections.push_back(std::move(section));
    document.results.push_back(reduction_result(fmt::format("GroupMax({},{})", place.row, index), accumulator, r));
  }
  return {};
}

// ---- One element

namespace {

std::string mode_text(const PreQuantMode& mode, const Format& accumulator) {
  std::string text = fmt::format("{} to {}", accumulator.name, destination_format(mode, accumulator).name);
  if (mode.carrier == CarrierKind::shift) return text + ", arithmetic right shift, saturated to S16";
  text += mode.carrier == CarrierKind::none ? ", no scale" : mode.per_column ? ", a scale per column" : ", one scale";
  if (mode.offset_bits != 0) text += fmt::format(", offset of {} bits", mode.offset_bits);
  if (mode.code == no_quant.code) return text;
  text += mode.rounding_rule == RoundingRule::fixed ? fmt::format(", always {}", name_of(mode.rounding))
                                                    : std::string(", rounding of B.DATR");
  return text;
}

/// Delivered - product, exactly; a code that is no number has no distance.
std::string distance_text(const Format& to, const Real& exact, const Encoded& d) {
  const Value value = decode(to, d.bits);
  if (!value.is_finite()) return "no number";
  ExactSum difference;
  difference.add(value.real);
  difference.add(!exact.negative, static_cast<uint64>(exact.significand), exact.exponent);
  const auto error = difference.value();
  return error.is_zero() ? "exact" : fmt::format("differs by {}", exact_text(error));
}

void add_multiplier(Section& section, const ElementPostprocess& p, const PostprocessOptions& options,
                    const PostprocessSteps& steps) {
  const PreQuantMode& mode = *p.mode;
  if (mode.carrier == CarrierKind::scale) {
    section.facts.push_back({"scale", bits_text(fp19, p.quant.scale),
                             fmt::format("FP19 {}, of the carrier word 0x{:016X}",
                                         exact_text(decode(fp19, p.quant.scale)), options.quant_carriers.front())});
  }
  constexpr std::array<std::string_view, 4> names{"none", "ReLU", "LReLU", "PReLU per column"};
  Fact activation{"activation", std::string(names[static_cast<std::size_t>(p.relu)])};
  if (p.relu == Relu::scalar || p.relu == Relu::per_column) {
    activation.value += fmt::format(", alpha {}", bits_text(fp19, p.alpha));
    activation.remark = fmt::format("FP19 {}", exact_text(decode(fp19, p.alpha)));
  }
  section.facts.push_back(std::move(activation));
  const bool acts = steps.negative && p.relu != Relu::none;
  section.facts.push_back(
      {"multiplier", exact_text(steps.multiplier),
       acts ? (p.relu == Relu::relu ? "the accumulator is negative (-0 and -Inf are): ReLU makes it 0"
                                    : "the accumulator is negative (-0 and -Inf are): alpha instead of the scale")
       : mode.carrier == CarrierKind::scale ? "the scale"
                                            : "the mode has no scale"});
}

std::string special_text(const PostprocessSteps& steps, const Format& to) {
  const bool nan = steps.source.is_nan();
  std::string text = nan ? "NaN" : steps.source.real.negative ? "-Inf" : "+Inf";
  text += fmt::format(" to {}, Sat = {}: ", to.name, steps.saturate ? 1 : 0);
  if (to.is_integer()) {
    if (!steps.saturate) return text + "the minimum endpoint, NV";
    return text + (nan ? "0, NV" : "the endpoint of its sign, OF and NX");
  }
  if (nan) {
    return text + (steps.saturate ? "+0" : "the canonical NaN") +
           (steps.source.cls == Class::signaling_nan ? ", NV because it signals" : "");
  }
  if (steps.saturate) return text + "the largest finite value of its sign, OF and NX";
  return text + (to.has_infinity ? "the Inf of its sign" : "NaN, as there is no Inf, OF and NX");
}

/// Why each flag is set.
std::string flags_reason(const PostprocessSteps& steps, const Format& to, const PostprocessOptions& options) {
  const Flags flags = steps.d.flags;
  std::string text;
  const auto add = [&](Flags flag, std::string_view reason) {
    if (has(flags, flag)) text += fmt::format("{}{}", text.empty() ? "" : "; ", reason);
  };
  switch (steps.rule) {
    case PostprocessRule::identity:
    case PostprocessRule::zero:
      return "this step raises none";
    case PostprocessRule::shift:
      return flags == Flags::none ? "bits that a shift loses raise nothing" : "OF and NX: beyond S16";
    case PostprocessRule::special:
      return "as the table of special values says";
    case PostprocessRule::offset:
      if (has(steps.intermediate.flags, Flags::overflow)) {
        text = fmt::format("OF: beyond S{}", options.mode->offset_bits);
      } else {
        add(Flags::overflow, fmt::format("OF: beyond {}", to.name));
      }
      break;
    default:
      add(Flags::overflow, fmt::format("OF: beyond the range of {}", to.name));
      add(Flags::underflow, fmt::format("UF: inexact and tiny, by the reading of profile {}", options.profile->name));
      break;
  }
  add(Flags::inexact, "NX: not the exact value");
  return text.empty() ? "exact and in range" : text;
}

void add_rounding(Section& section, const ElementPostprocess& p, const PostprocessSteps& steps, const Format& to) {
  const PreQuantMode& mode = *p.mode;
  const std::string how = mode.code == no_quant.code                  ? "mode 0 with an activation"
                          : mode.rounding_rule == RoundingRule::fixed ? "fixed by the mode"
                                                                      : "of B.DATR";
  section.facts.push_back(
      {"product", exact_text(steps.product),
       steps.source.is_infinite() ? "-Inf with multiplier 0 goes on as 0" : "accumulator times multiplier, exact"});
  if (steps.rule == PostprocessRule::zero) {
    const Value zero = decode(to, steps.d.bits);
    section.facts.push_back({"zero", bits_text(to, steps.d.bits),
                             zero.real.negative ? "a negative zero stays one where the multiplier is not 0"
                             : steps.negative   ? "+0: the multiplier is 0, or the type has no -0"
                                                : "+0"});
    return;
  }
  section.facts.push_back({"rounding", std::string(name_of(steps.rounding)), how});
  section.facts.push_back(
      {"Sat", steps.saturate ? "1" : "0", mode.saturation_allowed ? "of B.DATR" : "the mode takes none"});
  if (steps.rule == PostprocessRule::encode) {
    section.facts.push_back(
        word_fact("rounded once", to, steps.d.bits, fmt::format(", {}", distance_text(to, steps.product, steps.d))));
    return;
  }
  const Format intermediate = detail::offset_intermediate(mode.offset_bits);
  const int64 rounded = sign_extend(steps.intermediate.bits, mode.offset_bits);
  const bool clamped = has(steps.intermediate.flags, Flags::overflow);
  section.facts.push_back({fmt::format("rounded to S{}", mode.offset_bits), fmt::format("{}", rounded),
                           clamped ? fmt::format("saturated: S{} goes from {} to {}", mode.offset_bits,
                                                 -static_cast<int64>(intermediate.max_finite) - 1,
                                                 static_cast<int64>(intermediate.max_finite))
                                   : distance_text(intermediate, steps.product, steps.intermediate)});
  section.facts.push_back({"offset", fmt::format("{:+}", p.quant.offset), fmt::format("gives {}", steps.sum)});
  const int64 delivered = sign_extend(steps.d.bits, to.lane_bits);
  section.facts.push_back({fmt::format("as {}", to.name), fmt::format("{}", delivered),
                           delivered == steps.sum ? "in range"
                           : steps.saturate       ? "saturated"
                                                  : "Sat = 0 keeps the low bits"});
}

/// D of the same accumulator under other controls.
Expected<void> add_alternatives(Section& section, const Format& accumulator, std::uint32_t word,
                                const PostprocessOptions& element) {
  const auto cell = [&](const PostprocessOptions& options) -> Expected<std::string> {
    const auto other = deliver(accumulator, word, options);
    if (!other) return other.error();
    return fmt::format("{} {}", bits_text(*other->format, other->d.bits), flags_text(other->d.flags));
  };
  const PreQuantMode& mode = *element.mode;
  std::vector<bool> saturations{false};
  if (mode.saturation_allowed) saturations.push_back(true);
  const bitcube::Rounding chosen = element.rounding.value_or(bitcube::Rounding::rne);
  const bool programmable = mode.rounding_rule == RoundingRule::programmable;
  Table table{.title = "D and flags under other controls of B.DATR; * is this one", .header = {"", "rounding"}};
  for (const bool sat : saturations) table.header.push_back(fmt::format("Sat = {}", sat ? 1 : 0));
  for (const RoundingInfo& info : roundings) {
    if (!programmable && info.mode != mode.rounding) continue;
    PostprocessOptions options = element;
    if (programmable) options.rounding = info.mode;
    std::vector<std::string> row{!programmable || info.mode == chosen ? "*" : "", std::string(info.name)};
    for (const bool sat : saturations) {
      options.saturate = sat;
      const auto text = cell(options);
      if (!text) return text.error();
      row.push_back(*text);
    }
    table.rows.push_back(std::move(row));
  }
  if (table.rows.size() > 1 || saturations.size() > 1) section.tables.push_back(std::move(table));

  Table profiles{.title = "under every conversion profile; * is this one", .header = {"", "profile", "D and flags"}};
  for (const ConversionProfile& profile : conversion_profiles) {
    PostprocessOptions options = element;
    options.profile = &profile;
    const auto text = cell(options);
    if (!text) return text.error();
    profiles.rows.push_back({&profile == element.profile ? "*" : "", std::string(profile.name), *text});
  }
  section.tables.push_back(std::move(profiles));
  return {};
}

}  // namespace

Expected<void> add_postprocess(Document& document, const Format& accumulator, const Place& place, std::uint32_t word,
                               const PostprocessOptions& options) {
  const PostprocessOptions element = element_options(options, place.col);
  const ElementPostprocess p = column_postprocess(element, 0);
  const PostprocessSteps steps = postprocess_steps(p, accumulator, word);
  const PreQuantMode& mode = *p.mode;
  const Format& to = destination_format(mode, accumulator);
  const auto delivered = deliver(accumulator, word, element);
  if (!delivered) return delivered.error();
  if (delivered->d != steps.d) {
    return contradiction("D", bits_text(to, steps.d.bits) + " " + flags_text(steps.d.flags),
                         bits_text(to, delivered->d.bits) + " " + flags_text(delivered->d.flags));
  }

  Section section{.title = "Post-process", .clause = "numerics 5.5"};
  section.facts.push_back(word_fact("accumulator", accumulator, word,
                                    accumulator.is_integer() ? "" : fmt::format(", {}", name_of(steps.source.cls))));
  section.facts.push_back({"mode", fmt::format("{} {}", mode.code, mode.name), mode_text(mode, accumulator)});
  switch (steps.rule) {
    case PostprocessRule::identity:
      section.facts.push_back({"step 1", "identity", "mode 0 without an activation: all bits pass, NaN and -0 too"});
      break;
    case PostprocessRule::shift: {
      const int64 shifted = sign_extend(word, 32) >> p.quant.shift;
      section.facts.push_back(
          {"step 2", fmt::format("{} >> {}", sign_extend(word, 32), p.quant.shift),
           fmt::format("{}, of the carrier word 0x{:016X}", shifted, element.quant_carriers.front())});
      section.facts.push_back({"as S16", fmt::format("{}", sign_extend(steps.d.bits, 16)),
                               steps.d.flags == Flags::none ? "in range" : "saturated"});
      break;
    }
    case PostprocessRule::special:
      add_multiplier(section, p, element, steps);
      section.facts.push_back({"step 6", bits_text(to, steps.d.bits), special_text(steps, to)});
      break;
    default:
      add_multiplier(section, p, element, steps);
      add_rounding(section, p, steps, to);
      break;
  }
  section.facts.push_back({"flags", flags_text(steps.d.flags), flags_reason(steps, to, element)});
  if (steps.rule != PostprocessRule::identity && steps.rule != PostprocessRule::shift) {
    if (auto ok = add_alternatives(section, accumulator, word, element); !ok) return ok;
  }
  document.sections.push_back(std::move(section));
  if (steps.rule == PostprocessRule::encode || steps.rule == PostprocessRule::offset) {
    const bool offset = steps.rule == PostprocessRule::offset;
    const Format intermediate = detail::offset_intermediate(offset ? mode.offset_bits : 1);
    Rounding rounding{.to = offset ? &intermediate : &to,
                      .control = {steps.rounding, offset || steps.saturate, p.profile},
                      .x = steps.product};
    rounding.steps = encode_steps(*rounding.to, rounding.x, rounding.control);
    if (rounding.steps.result != (offset ? steps.intermediate : steps.d)) {
      return contradiction("a rounding", bits_text(*rounding.to, rounding.steps.result.bits),
                           bits_text(*rounding.to, (offset ? steps.intermediate : steps.d).bits));
    }
    if (has_neighbours(rounding)) document.sections.push_back(rounding_section(rounding));
  }
  document.results.push_back({fmt::format("D({},{})", place.row, place.col), bits_text(to, delivered->d.bits),
                              fmt::format("{} {}, flags {}", to.name, value_text(to, decode(to, delivered->d.bits)),
                                          flags_text(delivered->d.flags))});
  return {};
}

}  // namespace bitcube::explain

namespace bitcube {

Expected<Document> explain_postprocess(const Accumulators& accumulators, std::size_t row, std::size_t col,
                                       const PostprocessOptions& post) {
  using namespace bitcube::explain;
  return guarded("explain", [&]() -> Expected<Document> {
    if (accumulators.format == nullptr) return Error{"accumulators: no type was given"};
    const Format& accumulator = *accumulators.format;
    const Place place{row, col, accumulators.rows, accumulators.cols};
    if (auto ok = check_postprocess(accumulator, place.rows, place.cols, post); !ok) return ok.error();
    if (accumulators.words.size() % place.cols != 0 || accumulators.words.size() / place.cols != place.rows) {
      return Error{fmt::format("accumulators: {} words of {} x {}", accumulators.words.size(), place.rows, place.cols)};
    }
    if (auto ok = check_place(place); !ok) return ok.error();
    const std::span<const std::uint32_t> words(accumulators.words);
    const std::uint32_t word = words[row * place.cols + col];

    Document document{.title = fmt::format("D({},{}) of {} x {} {} accumulators", row, col, place.rows, place.cols,
                                           accumulator.name)};
    document.results.push_back(word_fact(fmt::format("accumulator({},{})", row, col), accumulator, word));
    const Columns part = reduction_columns(place, post);
    if (auto ok = add_reductions(document, accumulator, place, words.subspan(row * place.cols + part.first, part.count),
                                 post);
        !ok) {
      return ok.error();
    }
    if (auto ok = add_postprocess(document, accumulator, place, word, post); !ok) return ok.error();
    return document;
  });
}

}  // namespace bitcube
