#include "bitcube/compare/diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <tuple>

#include "bitcube/numeric/convert.hpp"
#include "bitcube/quantize/lines.hpp"
#include "compare/predict.hpp"
#include "first_error.hpp"
#include "guarded.hpp"
#include "value_text.hpp"

namespace bitcube {
namespace compare_detail {
namespace {

constexpr std::size_t kSmall = 64;                          // elements of a sample on which pairs are tried
constexpr std::size_t kLarge = 4096;                        // ... and on which one hypothesis is tried
constexpr std::size_t kMismatches = 4096;                   // that samples are made of
constexpr std::size_t kVerified = 24;                       // explanations that are tried on everything
constexpr std::size_t kCancelCheck = std::size_t{1} << 20;  // elements between two looks at a stop that was requested
constexpr std::size_t kResidual = 512;  // mismatches that an explanation leaves, kept for the next sample

struct Score {
  uint64 explained = 0;  // mismatches whose DUT word is predicted
  uint64 mismatches = 0;
  uint64 broken = 0;  // elements that agree, but another word is predicted
  uint64 equal = 0;
  uint64 wrong = 0;              // predicted words that are not DUT's
  uint64 unknown = 0;            // mismatches of which nothing is predicted
  uint64 hash = 0;               // of the prediction
  std::vector<uint64> residual;  // where wrong words were computed

  void merge(const Score& other) {
    explained += other.explained;
    mismatches += other.mismatches;
    broken += other.broken;
    equal += other.equal;
    wrong += other.wrong;
    unknown += other.unknown;
    hash += other.hash;
  }
};

uint64 mixed(uint64 index, uint64 word) noexcept {
  uint64 x = index * 0x9E3779B97F4A7C15U + word;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

/// One or two variants.
using Combination = std::vector<std::size_t>;

struct Verified {
  Combination of;
  Score score;
};

class Engine {
 public:
  /// `dut_faults`: elements of DUT that are not what the inputs give, where GOLDEN is not what they give.
  Engine(const DiffInputs& inputs, const Elements& elements, const Source& source, const DiffOptions& options,
         std::span<const Comparison> comparisons, std::optional<uint64> dut_faults)
      : elements_(elements),
        source_(source),
        options_(options),
        dut_faults_(dut_faults),
        variants_(variants_of(inputs, elements, comparisons)) {
    for (const Comparison& c : comparisons) mismatches_ += c.mismatches;
  }

  uint64 tried() const noexcept { return tried_; }

  Expected<std::vector<Diagnosis>> run() {
    const std::vector<uint64> mismatches = some_mismatches();
    large_ = source_.around(mismatches, kLarge);
    if (auto ok = try_singles(); !ok) return ok.error();
    const bool complete = std::any_of(found_.begin(), found_.end(),
                                      [&](const Verified& v) { return certainty(v) == Certainty::complete; });
    if (!complete && options_.pairs) {
      small_ = source_.around(mismatches, kSmall);
      if (auto ok = try_pairs(); !ok) return ok.error();
    }
    return diagnoses();
  }

 private:
  Faults plant(const Combination& of) const {
    Faults faults = source_.faults();
    for (const std::size_t v : of) variants_[v].plant(faults);
    return faults;
  }

  /// Mismatches spread over all of them.
  std::vector<uint64> some_mismatches() const {
    const uint64 stride = std::max<uint64>(1, mismatches_ / kMismatches);
    std::vector<uint64> out;
    uint64 seen = 0;
    constexpr uint64 step = 1024;
    for (std::size_t p = 0; p < elements_.parts().size(); ++p) {
      const ComparedPart& part = elements_.parts()[p];
      const uint64 count = elements_.offset(p + 1) - elements_.offset(p);
      const std::size_t size = part.format->carrier_bits / 8;
      for (uint64 begin = 0; begin < count; begin += step) {
        const uint64 end = std::min(begin + step, count);
        if (!part.packed && std::memcmp(part.golden.data() + begin * size, part.dut.data() + begin * size,
                                        static_cast<std::size_t>(end - begin) * size) == 0) {
          continue;
        }
        for (uint64 i = begin; i < end; ++i) {
          if (lane_of(part, part.golden, i) == lane_of(part, part.dut, i)) continue;
          if (seen++ % stride == 0) out.push_back(elements_.offset(p) + i);
        }
      }
    }
    return out;
  }

  Expected<Predicted> base(const Faults& faults, const Sample& sample) const {
    if (faults.recompute) return source_.evaluate(faults, sample);
    Predicted out;
    out.words.reserve(sample.indices.size());
    for (const uint64 index : sample.indices) out.words.push_back(elements_.golden(index));
    return out;
  }

  /// `covered` has a bit for every element; empty where it does not matter.
  Score score(const Faults& faults, const Sample& sample, const Predicted& predicted,
              std::vector<uint64>& covered) const {
    Score s;
    for (std::size_t i = 0; i < sample.indices.size(); ++i) {
      const uint64 index = sample.indices[i];
      const auto [p, local] = elements_.locate(index);
      const ComparedPart& part = elements_.parts()[p];
      std::optional<uint64> to = local;
      for (const auto& place : faults.places) {
        if (to) to = place(part, *to);
      }
      if (!to) continue;
      const uint64 golden = lane_of(part, part.golden, *to);
      const uint64 dut = lane_of(part, part.dut, *to);
      const uint64 at = elements_.offset(p) + *to;
      if (!covered.empty()) {
        std::atomic_ref(covered[at / 64]).fetch_or(uint64{1} << (at % 64), std::memory_order_relaxed);
      }
      if (!predicted.unknown.empty() && i < predicted.unknown.size() && predicted.unknown[i]) {
        s.unknown += golden != dut ? 1 : 0;
        continue;
      }
      uint64 word = predicted.words[i];
      for (const auto& change : faults.words) word = change(part, local, word, dut);
      add(s, at, golden, dut, word, index);
    }
    return s;
  }

  /// `index` is where the word was computed, or nothing where none was.
  static void add(Score& s, uint64 at, uint64 golden, uint64 dut, uint64 word, std::optional<uint64> index) {
    s.hash += mixed(at, word);
    if (golden == dut) {
      ++s.equal;
      if (word != dut) ++s.broken;
    } else {
      ++s.mismatches;
      if (word == dut) ++s.explained;
    }
    if (word == dut) return;
    ++s.wrong;
    if (index && s.residual.size() < kResidual) s.residual.push_back(*index);
  }

  /// Tries it on everything.
  Expected<Score> verify(const Faults& faults) const {
    const std::size_t pieces = source_.pieces();
    std::vector<uint64> covered;
    if (!faults.places.empty()) covered.resize(static_cast<std::size_t>(elements_.total() / 64 + 1));
    Score all;
    std::vector<uint64> residual;
    FirstError failed;
    std::mutex mutex;
    std::atomic<bool> hopeless{false};
    parallel_for(pieces, options_.compare.execution, [&](std::size_t i) {
      if (hopeless.load(std::memory_order_relaxed)) return;
      const Sample sample = source_.piece(i);
      const auto predicted = base(faults, sample);
      if (!predicted) return failed.report(i, predicted.error());
      const Score s = score(faults, sample, *predicted, covered);
      const std::scoped_lock lock(mutex);
      all.merge(s);
      if (all.broken * 10 > mismatches_) hopeless = true;  // it is not even mostly right
      residual.insert(residual.end(), s.residual.begin(), s.residual.end());
    });
    if (failed.error()) return *failed.error();
    for (uint64 at = 0; !covered.empty() && at < elements_.total(); ++at) {
      if (at % kCancelCheck == 0) throw_if_cancelled(options_.compare.execution);
      if ((covered[at / 64] >> (at % 64) & 1) != 0) continue;
      const uint64 golden = elements_.golden(at);
      const uint64 dut = elements_.dut(at);
      // What came to a place that no word was put to is not known, unless it is padding.
      add(all, at, golden, dut, faults.rest_is_zero ? 0 : dut, std::nullopt);
    }
    std::sort(residual.begin(), residual.end());
    all.residual = std::move(residual);
    return all;
  }

  /// Whether a score on a sample is worth a try on more. Agreeing elements are rarer in samples than they are.
  bool promising(const Score& s, double share) const noexcept {
    if (s.mismatches == 0 || s.explained == 0) return false;
    const auto explained = static_cast<double>(s.explained);
    if (explained < share * static_cast<double>(s.mismatches)) return false;
    const double broken = s.equal == 0 ? 0
                                       : static_cast<double>(s.broken) / static_cast<double>(s.equal) *
                                             static_cast<double>(elements_.total() - mismatches_);
    return broken <= 0.5 * explained / static_cast<double>(s.mismatches) * static_cast<double>(mismatches_);
  }

  Expected<void> consider(const Combination& of) {
    const auto s = verify(plant(of));
    if (!s) return s.error();
    const bool mostly = s->explained * 10 >= mismatches_ * 9 && s->broken * 10 <= s->explained;
    // A fault that changes nothing on this data, or what DUT does not have, predicts DUT no better than no fault does.
    if (dut_faults_ && s->wrong >= *dut_faults_) return {};
    if (mostly) found_.push_back({of, *s});
    return {};
  }

  Expected<void> try_singles() {
    single_scores_.resize(variants_.size());
    std::vector<std::optional<Error>> errors(variants_.size());
    parallel_for(variants_.size(), options_.compare.execution, [&](std::size_t v) {
      const Faults faults = plant({v});
      const auto predicted = base(faults, large_);
      std::vector<uint64> none;
      if (predicted) {
        single_scores_[v] = score(faults, large_, *predicted, none);
      } else {
        errors[v] = predicted.error();
      }
    });
    tried_ += variants_.size();
    for (const auto& error : errors) {
      if (error) return *error;
    }
    std::vector<std::size_t> order;
    for (std::size_t v = 0; v < variants_.size(); ++v) {
      if (promising(single_scores_[v], 0.8)) order.push_back(v);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return (single_scores_[a].wrong == 0) > (single_scores_[b].wrong == 0);
    });
    if (order.size() > kVerified) order.resize(kVerified);
    for (const std::size_t v : order) {
      if (auto ok = consider({v}); !ok) return ok;
    }
    return {};
  }

  /// Two encodings of the same words, one after the other; which came first matters.
  bool composed(std::size_t a, std::size_t b) const noexcept {
    const Variant& x = variants_[a];
    const Variant& y = variants_[b];
    return x.slot == y.slot && x.id != y.id && x.reencodes && y.reencodes;
  }

  bool compatible(std::size_t a, std::size_t b) const noexcept {
    const Variant& x = variants_[a];
    const Variant& y = variants_[b];
    if (!x.provable || !y.provable) return false;
    if (x.slot == y.slot) return composed(a, b);
    // What concerns A and B together leaves nothing for one of them.
    const auto both = [](const Variant& v) { return v.slot == "A and B"; };
    const auto one = [](const Variant& v) { return v.slot.starts_with("A ") || v.slot.starts_with("B "); };
    return !(both(x) && one(y)) && !(both(y) && one(x));
  }

  Expected<void> try_pairs() {
    if (auto ok = mend_the_best(); !ok) return ok;
    if (any_complete()) return {};
    std::vector<Combination> pairs;
    for (std::size_t a = 0; a < variants_.size(); ++a) {
      for (std::size_t b = a + 1; b < variants_.size(); ++b) {
        if (compatible(a, b)) pairs.push_back({a, b});
        if (compatible(a, b) && composed(a, b)) pairs.push_back({b, a});
      }
    }
    tried_ += pairs.size();
    auto kept = narrowed(pairs, small_, 0.7);
    if (!kept) return kept.error();
    auto last = narrowed(*kept, large_, 0.8, true);
    if (!last) return last.error();
    if (last->size() > kVerified) last->resize(kVerified);
    for (const Combination& pair : *last) {
      if (auto ok = consider(pair); !ok) return ok;
    }
    return {};
  }

  bool any_complete() const {
    return std::any_of(found_.begin(), found_.end(),
                       [&](const Verified& v) { return certainty(v) == Certainty::complete; });
  }

  /// Pairs that promise something on a sample, the best first; with `better`, more than each of the two alone.
  Expected<std::vector<Combination>> narrowed(const std::vector<Combination>& pairs, const Sample& sample, double share,
                                              bool better = false) const {
    std::vector<Score> scores(pairs.size());
    std::vector<std::optional<Error>> errors(pairs.size());
    parallel_for(pairs.size(), options_.compare.execution, [&](std::size_t i) {
      const Faults faults = plant(pairs[i]);
      const auto predicted = base(faults, sample);
      std::vector<uint64> none;
      if (predicted) {
        scores[i] = score(faults, sample, *predicted, none);
      } else {
        errors[i] = predicted.error();
      }
    });
    for (const auto& error : errors) {
      if (error) return *error;
    }
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (!promising(scores[i], share)) continue;
      const auto improves = [&](std::size_t v) { return scores[i].wrong < single_scores_[v].wrong; };
      if (better && !(improves(pairs[i][0]) && improves(pairs[i][1]))) continue;
      order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::tuple(scores[a].wrong, scores[b].explained) < std::tuple(scores[b].wrong, scores[a].explained);
    });
    if (order.size() > 256) order.resize(256);
    std::vector<Combination> kept;
    for (const std::size_t i : order) kept.push_back(pairs[i]);
    return kept;
  }

  /// What explains most leaves few mismatches, which no sample of all of them shows: the second one is looked for among
  /// those.
  Expected<void> mend_the_best() {
    std::vector<Verified> singles = found_;
    // A fault that changes nearly everything may hide behind none that explains mostly: the best three count.
    std::stable_sort(singles.begin(), singles.end(),
                     [](const Verified& a, const Verified& b) { return a.score.wrong < b.score.wrong; });
    if (singles.size() > 3) singles.resize(3);
    for (const Verified& single : singles) {
      const std::size_t a = single.of.front();
      if (!variants_[a].provable || single.score.residual.empty()) continue;
      const Sample sample = source_.around(single.score.residual, kLarge / 4);
      std::vector<uint64> none;
      const Faults alone = plant(single.of);
      const auto predicted = base(alone, sample);
      if (!predicted) return predicted.error();
      const uint64 wrong = score(alone, sample, *predicted, none).wrong;
      std::vector<std::pair<uint64, Combination>> better;
      for (std::size_t b = 0; b < variants_.size(); ++b) {
        if (!compatible(a, b)) continue;
        throw_if_cancelled(options_.compare.execution);
        std::vector<Combination> orders{{std::min(a, b), std::max(a, b)}};
        if (composed(a, b)) orders.push_back({std::max(a, b), std::min(a, b)});
        for (Combination& pair : orders) {
          ++tried_;
          const Faults faults = plant(pair);
          const auto together = base(faults, sample);
          if (!together) return together.error();
          const uint64 left = score(faults, sample, *together, none).wrong;
          if (left * 5 < wrong) better.emplace_back(left, std::move(pair));
        }
      }
      std::stable_sort(better.begin(), better.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
      if (better.size() > 6) better.resize(6);
      for (const auto& [left, pair] : better) {
        if (auto ok = consider(pair); !ok) return ok;
      }
    }
    return {};
  }

  /// Too few mismatches to fit anything to: one of thousands of predictions may meet a wrong element by chance.
  bool few() const noexcept { return mismatches_ <= 2; }

  Certainty certainty(const Verified& v) const {
    for (const std::size_t i : v.of) {
      if (!variants_[i].provable || (few() && variants_[i].fitted)) return Certainty::hint;
    }
    if (few() && v.of.size() == 2) return Certainty::hint;
    return v.score.wrong == 0 && v.score.unknown == 0 ? Certainty::complete : Certainty::mostly;
  }

  static Combination sorted(Combination of) {
    std::sort(of.begin(), of.end());
    return of;
  }

  std::string title(const Combination& of) const {
    std::string text;
    for (const std::size_t v : sorted(of)) text += (text.empty() ? "" : "; and ") + variants_[v].title;
    return text;
  }

  std::vector<Diagnosis> diagnoses() {
    std::stable_sort(found_.begin(), found_.end(), [&](const Verified& a, const Verified& b) {
      const auto key = [&](const Verified& v) {
        const Certainty c = certainty(v);
        // Complete ones are as good as each other; of the others those that leave least come first.
        return std::tuple(c, c == Certainty::mostly ? v.score.wrong : 0, v.of.size(), v.of);
      };
      return key(a) < key(b);
    });
    std::vector<Diagnosis> out;
    std::vector<uint64> hashes;
    for (const Verified& v : found_) {
      const Certainty c = certainty(v);
      if (c == Certainty::hint && !out.empty() && out.front().certainty != Certainty::hint) break;
      if (v.of.size() > out_size(out)) continue;
      const auto same = std::find(hashes.begin(), hashes.end(), v.score.hash);
      if (same != hashes.end()) {
        Diagnosis& first = out[static_cast<std::size_t>(same - hashes.begin())];
        std::string other = title(v.of);
        if (other != first.title && first.indistinguishable.size() < 4) {
          first.indistinguishable.push_back(std::move(other));
        }
        continue;
      }
      if (out.size() == options_.diagnoses) continue;
      hashes.push_back(v.score.hash);
      Diagnosis d;
      std::vector<std::string> remedies;
      for (const std::size_t i : sorted(v.of)) {
        const Variant& variant = variants_[i];
        d.ids.emplace_back(variant.id);
        remedies.push_back(variant.remedy.empty() ? std::string(find_hypothesis(variant.id)->remedy) : variant.remedy);
      }
      d.title = title(v.of);
      d.certainty = c;
      d.explains = v.score.explained;
      d.of = mismatches_;
      d.introduces = v.score.broken;
      d.remedy = fmt::format("{}", fmt::join(remedies, "; "));
      d.detail = detail(v);
      out.push_back(std::move(d));
    }
    return out;
  }

  /// Two together are worth a line only where one alone did not lead.
  static std::size_t out_size(const std::vector<Diagnosis>& out) noexcept {
    return out.empty() || out.front().ids.size() == 2 ? 2 : 1;
  }

  std::string detail(const Verified& v) const {
    for (const std::size_t i : v.of) {
      if (variants_[i].id == "scale-step") return scale_steps();
    }
    if (few() && certainty(v) == Certainty::hint) return "one or two mismatches: that may be chance";
    return {};
  }

  std::string scale_steps() const {
    uint64 up = 0;
    uint64 down = 0;
    for (const ComparedPart& part : elements_.parts()) {
      if (part.role != PartRole::scales) continue;
      uint64 count = 1;
      for (const uint64 extent : part.shape) count *= extent;
      for (uint64 i = 0; i < count; ++i) {
        const uint64 golden = lane_of(part, part.golden, i);
        const uint64 dut = lane_of(part, part.dut, i);
        if (!is_scale_step(part, golden, dut)) continue;
        ((dut & 0xFF) > (golden & 0xFF) ? up : down) += 1;
      }
    }
    return fmt::format("scale + 1 in {} groups, scale - 1 in {} groups", up, down);
  }

  const Elements& elements_;
  const Source& source_;
  const DiffOptions& options_;
  std::optional<uint64> dut_faults_;
  std::vector<Variant> variants_;
  uint64 mismatches_ = 0;
  uint64 tried_ = 0;
  Sample large_;
  Sample small_;
  std::vector<Score> single_scores_;
  std::vector<Verified> found_;
};

Expected<void> check_conversion(const ConversionInputs& in, std::span<const ComparedPart> parts,
                                const Elements& elements) {
  if (parts.size() != 1) return Error{"a conversion has one result"};
  if (in.from == nullptr) return Error{"the format of the source is missing"};
  const auto lanes = [](const Format& f) -> const Format& {
    return f.type == DataType::hif4x2 ? format_of(DataType::e1m2x2) : f;
  };
  const Format& to = *parts.front().format;
  if (!conversion_legal(lanes(*in.from), lanes(to))) {
    return Error{fmt::format("{} does not convert to {}", in.from->name, to.name)};
  }
  if (!rounding_legal(lanes(*in.from), lanes(to), in.control.rounding)) {
    return Error{
        fmt::format("conversions from {} to {} do not take {}", in.from->name, to.name, name_of(in.control.rounding))};
  }
  if (in.words.size() / (in.from->carrier_bits / 8) != elements.total() ||
      in.words.size() % (in.from->carrier_bits / 8) != 0) {
    return Error{fmt::format("the source has {} bytes, but {} elements of {} take {}", in.words.size(),
                             elements.total(), in.from->name, elements.total() * in.from->carrier_bits / 8)};
  }
  return {};
}

Expected<void> check_quantization(const QuantizationInputs& in, std::span<const ComparedPart> parts,
                                  const Elements& elements) {
  if (in.source == nullptr || !is_quantize_source(*in.source))
    return Error{"the source must be a float of whole bytes"};
  const BlockFormat* format = in.options.format;
  if (format == nullptr) return Error{"the block format is missing"};
  if (in.axis >= in.shape.size()) return Error{fmt::format("axis {} is outside of {}", in.axis, shape_text(in.shape))};
  if (format->is_hif4() && in.options.profile == nullptr) return Error{"the HiF4 profile is missing"};
  if (format->is_mx() && in.options.scale_rule == nullptr) return Error{"the scale rule is missing"};
  Lines lines;
  uint64 bytes = 0;
  if (!lines_of(in.shape, in.axis, lines) || !checked_multiply(lines.elements(), in.source->carrier_bits / 8U, bytes)) {
    return Error{fmt::format("a source of {} is beyond 64 bits", shape_text(in.shape))};
  }
  if (in.words.size() != bytes) {
    return Error{fmt::format("the source has {} bytes, but {} of {} takes {}", in.words.size(), in.source->name,
                             shape_text(in.shape), bytes)};
  }
  if (parts.empty() || parts.size() > 2 || parts[0].role != PartRole::codes || parts[0].format != format->element ||
      elements.offset(1) != lines.elements()) {
    return Error{fmt::format("{} of {} gives {} codes of {}", format->name, shape_text(in.shape), lines.elements(),
                             format->element->name)};
  }
  if (parts.size() == 2 && (parts[1].role != PartRole::scales || parts[1].format != format->scale ||
                            elements.offset(2) - elements.offset(1) != lines.count * format->groups(lines.length))) {
    return Error{fmt::format("{} of {} gives {} scales of {}", format->name, shape_text(in.shape),
                             lines.count * format->groups(lines.length), format->scale->name)};
  }
  return {};
}

Expected<ProductKind> check_product(const ProductInputs& in, std::span<const ComparedPart> parts,
                                    const Elements& elements) {
  const auto kind = product_kind(in.a, in.b);
  if (!kind) return kind.error();
  if (in.options.profile == nullptr) return Error{"the accumulation profile is missing"};
  const std::size_t rows = in.a.lines;
  const std::size_t columns = in.b.lines;
  if (auto ok = check_postprocess(*kind->accumulator, rows, columns, in.postprocess); !ok) return ok.error();
  const Format& to = destination_format(*in.postprocess.mode, *kind->accumulator);
  if (parts.size() != 1 || parts[0].format != &to || elements.total() != uint64{rows} * columns) {
    return Error{fmt::format("A * B gives {} x {} elements of {}, but GOLDEN has {} of {}", rows, columns, to.name,
                             shape_text(parts[0].shape), parts[0].format->name)};
  }
  if (in.options.c && in.options.c->size() != rows * columns) {
    return Error{fmt::format("C has {} words, but the product is {} x {}", in.options.c->size(), rows, columns)};
  }
  if (in.options.bias && in.options.bias->size() != columns) {
    return Error{
        fmt::format("the bias has {} words, but the product has {} columns", in.options.bias->size(), columns)};
  }
  return kind;
}

/// Elements of GOLDEN and of DUT that are not what the inputs give.
struct GoldenCheck {
  uint64 golden = 0;
  uint64 dut = 0;
};

Expected<GoldenCheck> check_golden(const Elements& elements, const Source& source, const Execution& execution) {
  std::atomic<uint64> golden{0};
  std::atomic<uint64> dut{0};
  FirstError failed;
  Faults faults = source.faults();
  faults.recompute = true;
  parallel_for(source.pieces(), execution, [&](std::size_t i) {
    const Sample sample = source.piece(i);
    const auto predicted = source.evaluate(faults, sample);
    if (!predicted) return failed.report(i, predicted.error());
    uint64 g = 0;
    uint64 d = 0;
    for (std::size_t k = 0; k < sample.indices.size(); ++k) {
      if (predicted->words[k] != elements.golden(sample.indices[k])) ++g;
      if (predicted->words[k] != elements.dut(sample.indices[k])) ++d;
    }
    golden += g;
    dut += d;
  });
  if (failed.error()) return *failed.error();
  return GoldenCheck{golden.load(), dut.load()};
}

Expected<Diff> diff_checked(const DiffInputs& inputs, const DiffOptions& options) {
  Diff out;
  for (const ComparedPart& part : inputs.parts) {
    auto comparison = compare(part, options.compare);
    if (!comparison) return comparison.error();
    const bool named = inputs.parts.size() > 1;
    for (const std::string& warning : comparison->warnings) {
      out.warnings.push_back(named ? fmt::format("{}: {}", part.name, warning) : warning);
    }
    out.parts.push_back(std::move(*comparison));
  }
  const Elements elements(inputs.parts);
  std::unique_ptr<Source> source = golden_source(elements);
  const int given = (inputs.conversion ? 1 : 0) + (inputs.quantization ? 1 : 0) + (inputs.product ? 1 : 0);
  if (given > 1) return Error{"GOLDEN is a conversion, a quantisation or a product, not two of them"};
  bool raw_carrier = false;
  if (inputs.conversion) {
    if (auto ok = check_conversion(*inputs.conversion, inputs.parts, elements); !ok) return ok.error();
    source = conversion_source(elements, *inputs.conversion);
  } else if (inputs.quantization) {
    if (auto ok = check_quantization(*inputs.quantization, inputs.parts, elements); !ok) return ok.error();
    source = quantization_source(elements, *inputs.quantization);
  } else if (inputs.product) {
    const auto kind = check_product(*inputs.product, inputs.parts, elements);
    if (!kind) return kind.error();
    raw_carrier = inputs.product->options.profile->kind == Accumulation::raw_carrier;
    if (!raw_carrier) source = product_source(*inputs.product, *kind->accumulator, kind->group);
  }
  if (elements.total() == 0) return out;
  std::optional<uint64> dut_faults;  // where GOLDEN is wrong
  if (raw_carrier) {
    out.warnings.emplace_back(
        "products of raw-carrier words are not computed again: only GOLDEN and DUT are looked at");
  } else if (given == 1) {
    const auto faults = check_golden(elements, *source, options.compare.execution);
    if (!faults) return faults.error();
    out.golden_faults = faults->golden;
    out.dut_faults = faults->dut;
    if (faults->golden != 0) {
      dut_faults = faults->dut;
      out.warnings.push_back(
          fmt::format("GOLDEN is not what bitcube computes from these inputs: {} of {} elements differ{}",
                      faults->golden, elements.total(), faults->dut == 0 ? "; DUT is, bit for bit" : ""));
    }
  }
  if (out.equal() || !options.diagnose) return out;
  if (out.golden_is_wrong()) {
    // The fault is GOLDEN's, so it is the one to explain.
    DiffInputs exchanged = inputs;
    for (ComparedPart& part : exchanged.parts) std::swap(part.golden, part.dut);
    auto other = diff_checked(exchanged, options);
    if (!other) return other.error();
    out.diagnoses = std::move(other->diagnoses);
    for (Diagnosis& d : out.diagnoses) d.in_golden = true;
    out.tried = other->tried;
    return out;
  }
  Engine engine(inputs, elements, *source, options, out.parts, dut_faults);
  auto diagnoses = engine.run();
  if (!diagnoses) return diagnoses.error();
  out.diagnoses = std::move(*diagnoses);
  out.tried = engine.tried();
  return out;
}

}  // namespace
}  // namespace compare_detail

bool Diff::equal() const noexcept {
  return std::all_of(parts.begin(), parts.end(), [](const Comparison& c) { return c.equal(); });
}
bool Diff::passes() const noexcept {
  return std::all_of(parts.begin(), parts.end(), [](const Comparison& c) { return c.passes(); });
}
uint64 Diff::mismatches() const noexcept {
  uint64 sum = 0;
  for (const Comparison& c : parts) sum += c.mismatches;
  return sum;
}

Expected<Diff> diff(const DiffInputs& inputs, const DiffOptions& options) {
  if (inputs.parts.empty()) return Error{"nothing to compare"};
  return guarded("comparing", [&] { return compare_detail::diff_checked(inputs, options); });
}

}  // namespace bitcube
