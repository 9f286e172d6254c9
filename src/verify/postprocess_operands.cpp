// Operands of the post-process: accumulators at which a mode changes its result, and parameters.
#include <fmt/format.h>

#include "bitcube/cube/postprocess.hpp"
#include "bitcube/numeric/fp19.hpp"
#include "generate.hpp"
#include "record.hpp"

namespace bitcube::verify {

const std::array<const Format*, 3> accumulator_types{&format_of(DataType::fp32), &format_of(DataType::s32),
                                                     &format_of(DataType::u32)};

bool asl_has_rule(const Format& from, const Format& to) noexcept {
  return from.kind != Kind::scale && to.type != DataType::e3m2 && to.type != DataType::e2m3 &&
         to.type != DataType::e6m2;
}

void PostprocessRow::push(Inputs& inputs) const {
  inputs.push_back(fmt::format("{}", mode->code));
  inputs.push_back(fmt::format("{}", relu));
  inputs.emplace_back(destination_format(*mode, *accumulator).name);
  const bool programmable = mode->rounding_rule == RoundingRule::programmable;
  inputs.emplace_back(roundings[programmable ? rounding : 0].name);
  inputs.emplace_back(saturate && mode->saturation_allowed ? "1" : "0");
  for (const uint64 w : {word, carrier, alpha}) inputs.push_back(word_text(w));
}

namespace {

/// Where an exact product changes what the destination gets: its thresholds, and those of the intermediate type.
std::vector<Real> product_thresholds(const PreQuantMode& mode, const Format& destination) {
  std::vector<Real> bounds = thresholds(destination);
  if (mode.offset_bits == 0) return bounds;
  Format intermediate = destination;
  intermediate.max_finite = low_mask(mode.offset_bits - 1);
  const std::vector<Real> more = thresholds(intermediate);
  bounds.insert(bounds.end(), more.begin(), more.end());
  return bounds;
}

}  // namespace

std::vector<PostprocessMode> postprocess_modes() {
  std::vector<PostprocessMode> modes;
  for (const PreQuantMode& mode : prequant_modes) {
    for (const Format* accumulator : accumulator_types) {
      if (mode.accumulator != DataType::none && mode.accumulator != accumulator->type) continue;
      modes.push_back({&mode, accumulator, product_thresholds(mode, destination_format(mode, *accumulator)),
                       corner_words(*accumulator)});
    }
  }
  return modes;
}

uint64 postprocess_carrier(const PreQuantMode& mode, uint64 scale, int64 offset, uint64 shift) noexcept {
  if (mode.carrier == CarrierKind::none) return 1;
  if (mode.carrier == CarrierKind::shift) return pack_shift_carrier(static_cast<int>(shift) + 1);
  if (offset == 0x7FFFFFFF) offset = static_cast<int64>(low_mask(mode.offset_bits) >> 1);
  if (offset == -0x80000000LL) offset = static_cast<int64>((low_mask(mode.offset_bits) >> 1) + 1);
  return pack_scale_carrier(scale, offset, mode.offset_bits);
}

uint64 word_near(const PostprocessMode& m, Real bound, uint64 scale, uint64 carrier, uint64 step,
                 bool negative) noexcept {
  if (m.mode->carrier == CarrierKind::scale && !bound.is_zero() && bit_length(bound.significand) < 60) {
    bound = divide(bound, decode(fp19, scale).real);
  }
  if (m.mode->carrier == CarrierKind::shift) {
    bound = scale_by_power_of_two(bound, static_cast<int>(carrier >> 32) + 1);
  }
  const uint64 code = encode(*m.accumulator, bound, {.rounding = Rounding::rtz, .saturate = true}).bits;
  const uint64 word = step == 0 ? code : step == 1 ? code + 1 : code - (code != 0 ? 1 : 0);
  const bool is_float = !m.accumulator->is_integer();
  return is_float ? with_sign(fp32, word & low_mask(31), negative)
                  : extended(*m.accumulator, negative ? ~word + 1 : word);
}

}  // namespace bitcube::verify
