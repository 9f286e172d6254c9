#include "bitcube/stimulus/elements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bitcube/cube/postprocess.hpp"
#include "bitcube/numeric/convert.hpp"
#include "guarded.hpp"
#include "recipe.hpp"
#include "team_work.hpp"
#include "verify/forms.hpp"
#include "verify/generate.hpp"

namespace bitcube::stimulus {
namespace {

using verify::Inputs;
using verify::Record;

constexpr uint64 kChunk = 1024;      // rows that one thread makes at a time
constexpr uint64 kChunksAhead = 64;  // in memory

std::size_t at(Stratum s) noexcept {
  return static_cast<std::size_t>(s);
}

/// Whether x lies half-way between two neighbours in a type.
bool is_tie(const Format& to, const Real& x) {
  if (x.is_zero() || to.layout == Layout::exponent || to.layout == Layout::reciprocal) return false;
  const int quantum = to.is_integer() ? 0 : detail::quantum_exponent(to, floor_log2(x));
  return split(x, quantum).remainder == Remainder::half;
}

/// What a conversion makes of a word.
Stratum stratum_of(const Format& from, const Format& to, uint64 word) {
  const Value v = decode(from, word);
  switch (v.cls) {
    case Class::zero:
      return Stratum::zero;
    case Class::infinity:
      return Stratum::infinity;
    case Class::quiet_nan:
      return Stratum::quiet_nan;
    case Class::signaling_nan:
      return Stratum::signaling_nan;
    case Class::invalid:
      return Stratum::random;
    case Class::subnormal:
    case Class::normal:
      break;
  }
  const Encoded plain = convert(from, to, word, {});
  const Encoded saturated = convert(from, to, word, {.saturate = true});
  if (has(plain.flags, Flags::overflow) || plain.bits != saturated.bits) return Stratum::overflow;
  if (is_tie(to, v.real)) return Stratum::tie;
  const bool small = v.cls == Class::subnormal || has(plain.flags, Flags::underflow) ||
                     (!to.is_integer() && decode(to, plain.bits).cls == Class::subnormal);
  return small ? Stratum::subnormal : Stratum::normal;
}

/// The strata in the order in which the occurrences of a combination take them: each as often as its weight says.
class StratumOrder {
 public:
  StratumOrder(const StratumWeights& weights, const std::array<bool, strata.size()>& present) {
    for (std::size_t s = 0; s < strata.size(); ++s) {
      total_ += present[s] ? weights[s] : 0;
      ends_[s] = total_;
    }
    walk_ = Walk(total_);
  }
  uint64 total() const noexcept { return total_; }
  /// Precondition: total() is not 0.
  std::size_t operator[](uint64 occurrence) const noexcept {
    const uint64 place = walk_[occurrence];
    std::size_t s = 0;
    while (ends_[s] <= place) ++s;
    return s;
  }

 private:
  std::array<uint64, strata.size()> ends_{};
  uint64 total_ = 0;
  Walk walk_;
};

Random random_of(uint64 seed, uint64 row) noexcept {
  return Random(Random::mix(Random::mix(seed + 2 * Random::increment) + row));
}

template <typename T>
std::vector<T> or_all(const std::vector<T>& given, std::vector<T> all) {
  return given.empty() ? std::move(all) : given;
}
std::vector<Rounding> all_roundings() {
  std::vector<Rounding> list;
  for (const RoundingInfo& row : roundings) list.push_back(row.mode);
  return list;
}

/// Counts of bins by a key of their own, in the order in which they were declared.
class Bins {
 public:
  void declare(const std::string& group, const std::string& name) { index_of(group, name); }
  std::size_t index_of(const std::string& group, const std::string& name) {
    const auto [place, added] = index_.try_emplace(group + '\n' + name, bins_.size());
    if (added) bins_.push_back({group, name, 0});
    return place->second;
  }
  void add(std::size_t index, uint64 hits) { bins_[index].hits += hits; }
  /// Bins of one group stand together.
  std::vector<ElementBin> take() {
    std::vector<std::string> order;
    for (const ElementBin& b : bins_) {
      if (std::find(order.begin(), order.end(), b.group) == order.end()) order.push_back(b.group);
    }
    std::stable_sort(bins_.begin(), bins_.end(), [&](const ElementBin& a, const ElementBin& b) {
      return std::find(order.begin(), order.end(), a.group) < std::find(order.begin(), order.end(), b.group);
    });
    return std::move(bins_);
  }

 private:
  std::vector<ElementBin> bins_;
  std::map<std::string, std::size_t> index_;
};

/// Runs make(first, last, text, counts) over the rows in pieces, and hands the text on in order.
template <typename Make>
Expected<std::vector<uint64>> in_pieces(const ElementOptions& options, std::size_t counters, const TextSink& sink,
                                        const Make& make) {
  struct Piece {
    std::string text;
    std::vector<uint64> counts;
    std::optional<Error> error;
  };
  Team& team = team_of(options.execution);
  const std::string same = fmt::format("{} {} {} {}", options.seed, options.first, options.count, counters);
  if (auto agreed = agree(team, "gen", same); !agreed) return agreed.error();
  std::vector<uint64> total(counters, 0);
  for (uint64 done = 0; done < options.count;) {
    const uint64 ahead = std::min(options.count - done, kChunk * kChunksAhead * team.size());
    std::vector<Piece> pieces((ahead + kChunk - 1) / kChunk);
    Execution execution = options.execution;
    if (execution.progress) {
      execution.progress = [&](std::size_t finished, std::size_t) {
        options.execution.progress(std::min<uint64>(options.count, done + finished * kChunk), options.count);
      };
    }
    for_own_pieces(team, pieces.size(), execution, [&](std::size_t p) {
      Piece& piece = pieces[p];
      piece.counts.assign(counters, 0);
      const uint64 first = options.first + done + p * kChunk;
      const uint64 last = options.first + done + std::min(ahead, (p + 1) * kChunk);
      piece.error = make(first, last, piece.text, piece.counts);
    });
    nlohmann::json mine = nlohmann::json::array();
    for (std::size_t p = team.rank(); p < pieces.size(); p += team.size()) {
      if (pieces[p].error) return *pieces[p].error;
      for (std::size_t i = 0; i < counters; ++i) total[i] += pieces[p].counts[i];
      if (!team.leads()) mine.push_back(std::move(pieces[p].text));
    }
    const auto all = team.gather(pack(mine));
    if (!all) return all.error();
    for (std::size_t rank = 1; rank < all->size(); ++rank) {
      std::size_t p = rank;
      for (auto& text : nlohmann::json::from_cbor((*all)[rank])) {
        pieces[p].text = std::move(text.get_ref<std::string&>());
        p += team.size();
      }
    }
    for (std::size_t p = 0; p < pieces.size() && team.leads(); ++p) {
      if (auto written = sink(pieces[p].text); !written) return written.error();
    }
    done += ahead;
  }
  const auto all = team.gather_all(nlohmann::json(total).dump());
  if (!all) return all.error();
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    if (rank == team.rank()) continue;
    const auto others = nlohmann::json::parse((*all)[rank]).get<std::vector<uint64>>();
    for (std::size_t i = 0; i < counters; ++i) total[i] += others[i];
  }
  return total;
}

/// The line of a vector file for these inputs.
std::optional<Error> append_row(Record& record, verify::CheckRow fill, const Inputs& inputs, std::string& text) {
  record.start(inputs);
  fill(record);
  if (record.malformed()) return Error{record.fault_text()};
  record.append_line(text);
  return {};
}

void count_flags(Flags flags, std::vector<uint64>& counts, std::size_t first) {
  for (std::size_t i = 0; i < flag_names.size(); ++i) counts[first + i] += has(flags, flag_names[i].flag) ? 1U : 0U;
}
void declare_flags(Bins& bins, const std::vector<uint64>& counts, std::size_t first) {
  for (std::size_t i = 0; i < flag_names.size(); ++i) {
    if (flag_names[i].flag == Flags::divide_by_zero) continue;  // nothing raises it
    bins.add(bins.index_of("flags", std::string(flag_names[i].name)), counts[first + i]);
  }
}

Expected<void> check(const ElementOptions& options) {
  if (options.count > ~options.first) return Error{"count: the indices do not fit 64 bits"};
  const bool any = std::any_of(options.weights.begin(), options.weights.end(), [](unsigned w) { return w != 0; });
  if (!any) return Error{"weight: all strata have weight 0; at least one must be positive"};
  return {};
}

// ---- Conversions

struct PairOperands {
  const Format* from;
  const Format* to;
  std::array<std::vector<uint64>, strata.size()> words{};
  std::optional<StratumOrder> order{};
};

struct ConvertCombination {
  std::size_t pair;
  const ConversionProfile* profile;
  Rounding rounding;
  bool saturate;
};

void classify(PairOperands& pair, const StratumWeights& weights) {
  std::array<bool, strata.size()> present{};
  for (const uint64 word : verify::words_around(*pair.from, *pair.to)) {
    const Stratum s = stratum_of(*pair.from, *pair.to, word);
    if (s != Stratum::random) pair.words[at(s)].push_back(word);
  }
  for (std::size_t s = 0; s < strata.size(); ++s) present[s] = !pair.words[s].empty();
  present[at(Stratum::random)] = true;
  pair.order.emplace(weights, present);
}

Expected<ElementReport> convert_rows(const ConvertOptions& options, const TextSink& sink) {
  if (auto ok = check(options); !ok) return ok.error();
  std::vector<PairOperands> pairs;
  for (const Format& from : formats) {
    for (const Format& to : formats) {
      const auto wanted = [](const std::vector<const Format*>& list, const Format& f) {
        return list.empty() || std::find(list.begin(), list.end(), &f) != list.end();
      };
      if (conversion_legal(from, to) && wanted(options.from, from) && wanted(options.to, to))
        pairs.push_back({&from, &to});
    }
  }
  if (pairs.empty()) return Error{"from, to: TCVT converts none of these types to none of those (numerics 7.1)"};
  parallel_for(pairs.size(), options.execution.quiet(), [&](std::size_t i) { classify(pairs[i], options.weights); });
  std::erase_if(pairs, [](const PairOperands& p) { return p.order->total() == 0; });
  if (pairs.empty()) return Error{"weight: these types have no operand in a stratum of positive weight"};

  std::vector<const ConversionProfile*> all_profiles;
  for (const ConversionProfile& p : conversion_profiles) all_profiles.push_back(&p);
  std::vector<ConvertCombination> combinations;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    for (const ConversionProfile* profile : or_all(options.profiles, all_profiles)) {
      if (profile->name == "asl" && !verify::asl_has_rule(*pairs[p].from, *pairs[p].to)) continue;
      for (const Rounding r : or_all(options.roundings, all_roundings())) {
        if (!rounding_legal(*pairs[p].from, *pairs[p].to, r)) continue;
        for (const bool saturate : or_all(options.saturate, {false, true}))
          combinations.push_back({p, profile, r, saturate});
      }
    }
  }
  if (combinations.empty()) return Error{"round, profile: no conversion of these types takes them"};
  const Walk walk(combinations.size());

  // Counters: combinations, strata by pair, flags.
  const std::size_t strata_at = combinations.size();
  const std::size_t flags_at = strata_at + pairs.size() * strata.size();
  const verify::VectorForm& form = *verify::find_vector_form("tcvt");
  const bool vectors = options.format == ElementFormat::vectors;
  const std::string header = vectors ? std::string(form.columns) + "\n"
                                     : "// bitcube gen convert: profile(8) source(8) destination(8) rounding(8) sat(8) "
                                       "flags(8) value(64) result(64)\n"
                                       "// types and rounding are instruction codes; profiles: 0 pto, 1 asl, 2 ocp; "
                                       "flags: NV 1, DZ 2, OF 4, UF 8, NX 10\n";
  if (auto written = sink(header); !written) return written.error();
  const auto made = in_pieces(
      options, flags_at + flag_names.size(), sink,
      [&](uint64 first, uint64 last, std::string& text, std::vector<uint64>& counts) -> std::optional<Error> {
        Record record(form, pto_profile);
        Inputs inputs;
        for (uint64 row = first; row < last; ++row) {
          const std::size_t number = walk[row];
          const ConvertCombination& c = combinations[number];
          const PairOperands& pair = pairs[c.pair];
          const std::size_t s = (*pair.order)[row / combinations.size() + number];
          Random random = random_of(options.seed, row);
          const bool any = s == at(Stratum::random);
          const uint64 word = any ? verify::random_word(random, *pair.from) : random.pick(pair.words[s]);
          const Encoded out = convert(*pair.from, *pair.to, word,
                                      {.rounding = c.rounding, .saturate = c.saturate, .profile = c.profile});
          ++counts[number];
          ++counts[strata_at + c.pair * strata.size() + s];
          count_flags(out.flags, counts, flags_at);
          if (!vectors) {
            fmt::format_to(std::back_inserter(text), "{:02X}_{:02X}_{:02X}_{:02X}_{:02X}_{:02X}_{:016X}_{:016X}\n",
                           c.profile - conversion_profiles.data(), static_cast<unsigned>(pair.from->type),
                           static_cast<unsigned>(pair.to->type), static_cast<unsigned>(c.rounding), c.saturate ? 1 : 0,
                           static_cast<unsigned>(out.flags), word & low_mask(pair.from->lane_bits), out.bits);
            continue;
          }
          inputs.clear();
          inputs.emplace_back(c.profile->name);
          inputs.emplace_back(pair.from->name);
          inputs.emplace_back(pair.to->name);
          inputs.emplace_back(name_of(c.rounding));
          inputs.emplace_back(c.saturate ? "1" : "0");
          inputs.push_back(verify::word_text(word));
          if (auto wrong = append_row(record, verify::check_of(form), inputs, text)) return wrong;
        }
        return {};
      });
  if (!made) return made.error();
  Bins bins;
  for (std::size_t i = 0; i < combinations.size(); ++i) {
    const ConvertCombination& c = combinations[i];
    const PairOperands& pair = pairs[c.pair];
    const uint64 hits = (*made)[i];
    const std::string control = fmt::format("{} Sat={}", name_of(c.rounding), c.saturate ? 1 : 0);
    bins.add(bins.index_of("types", fmt::format("{} -> {}", pair.from->name, pair.to->name)), hits);
    bins.add(bins.index_of("rounding", fmt::format("{} {} {}", pair.to->name, control, c.profile->name)), hits);
  }
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    for (std::size_t s = 0; s < strata.size(); ++s) {
      const bool present = s == at(Stratum::random) || !pairs[p].words[s].empty();
      if (!present || options.weights[s] == 0) continue;
      bins.add(
          bins.index_of("strata", fmt::format("{} -> {} {}", pairs[p].from->name, pairs[p].to->name, strata[s].name)),
          (*made)[strata_at + p * strata.size() + s]);
    }
  }
  declare_flags(bins, *made, flags_at);
  return ElementReport{options.count, bins.take()};
}

// ---- Post-process

struct PostCombination {
  std::size_t mode;
  Relu relu;
  Rounding rounding;
  bool saturate;
};

/// The product that the conversion of a row rounds, without offset.
Real product_of(const verify::PostprocessRow& row) {
  const Value v = decode(*row.accumulator, row.word & low_mask(32));
  Real multiplier{.significand = 1};
  if (row.mode->carrier == CarrierKind::scale) multiplier = decode(fp19, row.carrier >> 13 & low_mask(19)).real;
  if (row.mode->carrier == CarrierKind::shift) {
    return scale_by_power_of_two(v.real, -static_cast<int>(row.carrier >> 32) - 1);
  }
  if (v.real.negative && row.relu == 1) return {};
  if (v.real.negative && row.relu > 1) multiplier = decode(fp19, row.alpha).real;
  return multiply(v.real, multiplier);
}

ElementPostprocess element_of(const verify::PostprocessRow& row, const ConversionProfile& profile) {
  return {.mode = row.mode,
          .relu = static_cast<Relu>(row.relu),
          .quant = unpack_quant_carrier(row.carrier, row.mode->offset_bits),
          .alpha = row.alpha,
          .rounding = roundings[row.rounding].mode,
          .saturate = row.saturate,
          .profile = &profile};
}

Stratum stratum_of(const verify::PostprocessRow& row, const ConversionProfile& profile) {
  const Value v = decode(*row.accumulator, row.word & low_mask(32));
  if (v.cls == Class::zero) return Stratum::zero;
  if (v.cls == Class::infinity) return Stratum::infinity;
  if (v.cls == Class::quiet_nan) return Stratum::quiet_nan;
  if (v.cls == Class::signaling_nan) return Stratum::signaling_nan;
  const Format& to = destination_format(*row.mode, *row.accumulator);
  const Encoded out = postprocess_element(element_of(row, profile), *row.accumulator, row.word);
  if (has(out.flags, Flags::overflow)) return Stratum::overflow;
  if (is_tie(to, product_of(row))) return Stratum::tie;
  const bool small = v.cls == Class::subnormal || has(out.flags, Flags::underflow);
  return small ? Stratum::subnormal : Stratum::normal;
}

/// Accumulator and parameters that are likely to be of a stratum.
void draw(verify::PostprocessRow& row, const verify::PostprocessMode& m, Stratum wanted, Random& random) {
  constexpr std::array<uint64, 4> powers_of_two{0x1FC00, 0x1F800, 0x20000, 0x1F400};
  uint64 scale = 0x1C000 + random.below(0x8000);
  if (random.chance(2)) scale = random.pick(powers_of_two);
  if (random.chance(8)) scale = verify::fp19_scales[random.below(verify::legal_fp19_scales)];
  const auto any_offset = static_cast<int64>(random.next());
  const bool no_offset = random.chance(4);
  row.carrier = verify::postprocess_carrier(*m.mode, scale, no_offset ? 0 : any_offset, random.below(16));
  row.alpha = 0;
  if (row.relu > 1 && !random.chance(8))
    row.alpha = random.chance(2) ? random.pick(powers_of_two) : 0x400 + random.below(0x3F800);
  const bool negative = random.chance(2);
  const uint64 sign = random.below(2) << 31;
  const bool is_float = !m.accumulator->is_integer();
  const uint64 payload = random.next();
  switch (wanted) {
    case Stratum::zero:
      row.word = is_float ? sign : 0;
      return;
    case Stratum::infinity:
      if (is_float) row.word = sign | 0x7F800000;
      return;
    case Stratum::quiet_nan:
      if (is_float) row.word = sign | 0x7FC00000 | (payload & low_mask(22));
      return;
    case Stratum::signaling_nan:
      if (is_float) row.word = sign | 0x7F800000 | (1 + payload % low_mask(22));
      return;
    case Stratum::subnormal:
      if (is_float && random.chance(2)) {
        row.word = sign | (1 + payload % low_mask(23));
        return;
      }
      break;
    case Stratum::random:
      row.word = verify::random_word(random, *m.accumulator);
      return;
    case Stratum::normal:
    case Stratum::tie:
    case Stratum::overflow:
      break;
  }
  const Real& bound = random.pick(m.bounds);
  const uint64 step = wanted == Stratum::tie ? 0 : random.below(3);
  row.word = verify::word_near(m, bound, scale, row.carrier, step, negative);
}

Expected<ElementReport> postprocess_rows(const PostprocessVectorOptions& options, const TextSink& sink) {
  if (auto ok = check(options); !ok) return ok.error();
  std::vector<verify::PostprocessMode> modes = verify::postprocess_modes();
  std::erase_if(modes, [&](const verify::PostprocessMode& m) {
    return !options.modes.empty() &&
           std::find(options.modes.begin(), options.modes.end(), m.mode) == options.modes.end();
  });
  std::vector<PostCombination> combinations;
  const std::vector<Relu> relus = or_all(options.relu, {Relu::none, Relu::relu, Relu::scalar, Relu::per_column});
  for (std::size_t i = 0; i < modes.size(); ++i) {
    const PreQuantMode& mode = *modes[i].mode;
    const bool programmable = mode.rounding_rule == RoundingRule::programmable;
    for (const Relu relu : relus) {
      if (mode.carrier == CarrierKind::shift && relu != Relu::none) continue;  // ignored there
      for (const Rounding r : programmable ? or_all(options.roundings, all_roundings()) : std::vector{Rounding::rne}) {
        for (const bool saturate : or_all(options.saturate, {false, true})) {
          if (saturate && !mode.saturation_allowed) continue;
          combinations.push_back({i, relu, r, saturate});
        }
      }
    }
  }
  if (combinations.empty()) return Error{"mode, relu, sat: no mode of these takes them"};
  const Walk walk(combinations.size());
  std::array<bool, strata.size()> all{};
  all.fill(true);
  const StratumOrder order(options.weights, all);

  const std::size_t strata_at = combinations.size();
  const std::size_t flags_at = strata_at + strata.size();
  const verify::VectorForm& form = *verify::find_vector_form("postprocess");
  const bool vectors = options.format == ElementFormat::vectors;
  const std::string header = vectors ? std::string(form.columns) + "\n"
                                     : "// bitcube gen postprocess: mode(8) relu(8) destination(8) rounding(8) sat(8) "
                                       "flags(8) value(64) quant(64) "
                                       "alpha(64) result(64)\n"
                                       "// codes of instruction fields; flags: NV 1, DZ 2, OF 4, UF 8, NX 10\n";
  if (auto written = sink(header); !written) return written.error();
  const auto made = in_pieces(
      options, flags_at + flag_names.size(), sink,
      [&](uint64 first, uint64 last, std::string& text, std::vector<uint64>& counts) -> std::optional<Error> {
        Record record(form, *options.profile);
        Inputs inputs;
        for (uint64 index = first; index < last; ++index) {
          const std::size_t number = walk[index];
          const PostCombination& c = combinations[number];
          const verify::PostprocessMode& m = modes[c.mode];
          Random random = random_of(options.seed, index);
          const auto wanted = static_cast<Stratum>(order[index / combinations.size() + number]);
          verify::PostprocessRow row{.mode = m.mode,
                                     .relu = static_cast<uint64>(c.relu),
                                     .accumulator = m.accumulator,
                                     .rounding = static_cast<uint64>(c.rounding) - 1,
                                     .saturate = c.saturate};
          Stratum got = Stratum::random;
          for (int attempt = 0; attempt < 8; ++attempt) {
            draw(row, m, wanted, random);
            got = stratum_of(row, *options.profile);
            if (wanted == Stratum::random || got == wanted) break;
          }
          const Encoded out = postprocess_element(element_of(row, *options.profile), *m.accumulator, row.word);
          ++counts[number];
          ++counts[strata_at + at(got)];
          count_flags(out.flags, counts, flags_at);
          if (!vectors) {
            const Format& to = destination_format(*m.mode, *m.accumulator);
            fmt::format_to(std::back_inserter(text),
                           "{:02X}_{:02X}_{:02X}_{:02X}_{:02X}_{:02X}_{:016X}_{:016X}_{:016X}_{:016X}\n", m.mode->code,
                           row.relu, static_cast<unsigned>(to.type), static_cast<unsigned>(c.rounding),
                           c.saturate ? 1 : 0, static_cast<unsigned>(out.flags), row.word & low_mask(32), row.carrier,
                           row.alpha, out.bits);
            continue;
          }
          inputs.clear();
          row.push(inputs);
          if (auto wrong = append_row(record, verify::check_of(form), inputs, text)) return wrong;
        }
        return {};
      });
  if (!made) return made.error();
  Bins bins;
  bool any_float = false;
  for (std::size_t i = 0; i < combinations.size(); ++i) {
    const PostCombination& c = combinations[i];
    const PreQuantMode& mode = *modes[c.mode].mode;
    any_float = any_float || !modes[c.mode].accumulator->is_integer();
    const uint64 hits = (*made)[i];
    bins.add(bins.index_of("post-process",
                           fmt::format("{} {} {} Sat={}", mode.name, modes[c.mode].accumulator->name,
                                       isa::relu_names[static_cast<std::size_t>(c.relu)].name, c.saturate ? 1 : 0)),
             hits);
    if (mode.rounding_rule != RoundingRule::programmable) continue;
    bins.add(bins.index_of("rounding", fmt::format("{} {} Sat={}", mode.name, name_of(c.rounding), c.saturate ? 1 : 0)),
             hits);
  }
  for (const StratumInfo& row : strata) {
    const bool special = row.stratum == Stratum::infinity || row.stratum == Stratum::quiet_nan ||
                         row.stratum == Stratum::signaling_nan || row.stratum == Stratum::subnormal;
    if (row.stratum == Stratum::random || (special && !any_float)) continue;
    bins.add(bins.index_of("strata", std::string(row.name)), (*made)[strata_at + at(row.stratum)]);
  }
  declare_flags(bins, *made, flags_at);
  return ElementReport{options.count, bins.take()};
}

}  // namespace

const StratumInfo* find_stratum(std::string_view name) noexcept {
  for (const StratumInfo& row : strata) {
    if (equal_ignoring_case(row.name, name)) return &row;
  }
  return nullptr;
}

std::string ElementReport::text() const {
  struct Group {
    std::string name;
    uint64 bins = 0, hit = 0, least = ~uint64{0};
  };
  std::vector<Group> groups;
  std::string missed;
  uint64 hit = 0;
  for (const ElementBin& b : bins) {
    if (groups.empty() || groups.back().name != b.group) groups.push_back({b.group});
    Group& g = groups.back();
    ++g.bins;
    g.hit += b.hits != 0 ? 1U : 0U;
    hit += b.hits != 0 ? 1U : 0U;
    g.least = std::min(g.least, b.hits);
    if (b.hits == 0) missed += fmt::format("  {}: {}\n", b.group, b.name);
  }
  std::string text = fmt::format("coverage: {} of {} bins hit by {} rows\n{:<14} {:>6} {:>6} {:>8}\n", hit, bins.size(),
                                 rows, "group", "bins", "hit", "least");
  for (const Group& g : groups) text += fmt::format("{:<14} {:>6} {:>6} {:>8}\n", g.name, g.bins, g.hit, g.least);
  return missed.empty() ? text : text + "never hit:\n" + missed;
}

std::string ElementReport::json() const {
  nlohmann::ordered_json groups = nlohmann::ordered_json::object();
  uint64 hit = 0;
  for (const ElementBin& b : bins) {
    groups[b.group][b.name] = b.hits;
    hit += b.hits != 0 ? 1U : 0U;
  }
  const nlohmann::ordered_json json{{"rows", rows}, {"bins", bins.size()}, {"hit", hit}, {"groups", groups}};
  return json.dump(2) + "\n";
}

Expected<ElementReport> write_conversions(const ConvertOptions& options, const TextSink& sink) {
  return guarded("gen", [&] { return convert_rows(options, sink); });
}

Expected<ElementReport> write_postprocess(const PostprocessVectorOptions& options, const TextSink& sink) {
  return guarded("gen", [&] { return postprocess_rows(options, sink); });
}

}  // namespace bitcube::stimulus
