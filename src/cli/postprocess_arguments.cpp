#include "postprocess_arguments.hpp"

#include <algorithm>
#include <charconv>

#include "bitcube/numeric/convert.hpp"
#include "bitcube/numeric/real_text.hpp"

namespace bitcube::cli {

namespace {

Expected<const PreQuantMode*> look_up_mode(std::string_view text) {
  unsigned code = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, code);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return look_up("--pre-quant", text, prequant_modes, [](std::string_view name) { return find_prequant(name); });
  }
  if (const PreQuantMode* mode = find_prequant(code)) return mode;
  return Error{fmt::format("--pre-quant: code {} is reserved", code)};
}

/// The mode that does the same with one parameter for all columns.
const PreQuantMode& scalar_mode(const PreQuantMode& mode) {
  const auto found = std::find_if(prequant_modes.begin(), prequant_modes.end(), [&](const PreQuantMode& m) {
    return !m.per_column && m.accumulator == mode.accumulator && m.destination == mode.destination &&
           m.carrier == mode.carrier && m.offset_bits == mode.offset_bits;
  });
  return found == prequant_modes.end() ? mode : *found;
}

/// The FP19 code of a scale in decimal or hexadecimal.
Expected<uint64> scale_code(std::string_view text, const Console& console) {
  const RealLiteral literal = parse_real(text);
  if (literal.fault != nullptr) return Error{fmt::format("--scale: '{}': {}", text, literal.fault)};
  const Encoded scale = convert_value(fp19, literal.cls, literal.real, {});
  if (!legal_as_scale(scale.bits)) {
    return Error{
        fmt::format("--scale: {} is {} in FP19; a scale must be positive and normal, so from 2^-126 to below 2^128",
                    text, value_text(fp19, decode(fp19, scale.bits)))};
  }
  if (scale.flags != Flags::none) {
    console.warning(
        fmt::format("--scale: {} is not an FP19 number; {} is used", text, value_text(fp19, decode(fp19, scale.bits))));
  }
  return scale.bits;
}

/// The carrier of a scalar mode.
Expected<uint64> scalar_carrier(const PreQuantMode& mode, const PostprocessArguments& arguments,
                                const Console& console) {
  if (is_bit_pattern(arguments.scale)) {
    if (arguments.offset) {
      return Error{fmt::format("--offset: the carrier word {} has its own offset", arguments.scale)};
    }
    const auto word = parse_hex(arguments.scale);
    return word ? word : Error{"--scale: " + word.error().message};
  }
  if (mode.carrier == CarrierKind::shift) {
    return Error{fmt::format("--scale: {} takes a shift; give its carrier word, 0x{:010X} for a shift by 4", mode.name,
                             pack_shift_carrier(4))};
  }
  const int64 offset = arguments.offset.value_or(0);
  if (arguments.offset && mode.offset_bits == 0) return Error{fmt::format("--offset: {} takes none", mode.name)};
  const int64 limit = mode.offset_bits == 0 ? 1 : int64{1} << (mode.offset_bits - 1);
  if (offset < -limit || offset >= limit) {
    return Error{fmt::format("--offset: {} does not fit the {} bits of {}: from {} to {}", offset, mode.offset_bits,
                             mode.name, -limit, limit - 1)};
  }
  const auto scale = scale_code(arguments.scale, console);
  if (!scale) return scale.error();
  return pack_scale_carrier(*scale, offset, mode.offset_bits);
}

}  // namespace

void PostprocessArguments::add_to(CLI::App& command) {
  const std::string group = "Post-process";
  command.add_option("--pre-quant", pre_quant, "PreQuant mode by name or code, such as QF322B8_PRE; default: NoQuant")
      ->type_name("MODE")
      ->group(group);
  command.add_option("--scale", scale, "Scale of the mode: a number, rounded to FP19, or its carrier word as 0x...")
      ->type_name("S")
      ->group(group);
  command.add_option("--offset", offset, "Offset of the mode, added to the scaled integer")
      ->type_name("O")
      ->group(group);
  command.add_flag("--relu", relu, "ReLU: negative accumulators give 0")->group(group);
  command.add_option("--round", round, "Rounding, where the mode lets one choose; default: RNE")
      ->type_name(choices(roundings))
      ->group(group);
  command.add_flag("--sat", saturate, "Saturate: Sat = 1")->group(group);
  command.add_option("--profile", profile, "Conversion profile; default: pto")
      ->type_name(choices(conversion_profiles))
      ->group(group);
}

Expected<ResolvedPostprocess> ResolvedPostprocess::from(const PostprocessArguments& arguments, const Console& console) {
  ResolvedPostprocess out;
  const auto mode = look_up_mode(arguments.pre_quant);
  if (!mode) return mode.error();
  const auto profile = look_up("--profile", arguments.profile, conversion_profiles, find_conversion_profile);
  if (!profile) return profile.error();
  const auto rounding = look_up_rounding("--round", arguments.round);
  if (!rounding) return rounding.error();
  out.mode_ = *mode;
  out.profile_ = *profile;
  out.rounding_ = *rounding;
  out.saturate_ = arguments.saturate;
  out.relu_ = arguments.relu ? Relu::relu : Relu::none;

  const PreQuantMode& m = **mode;
  if (m.carrier == CarrierKind::none) {
    if (!arguments.scale.empty()) return Error{fmt::format("--scale: {} takes none", m.name)};
    if (arguments.offset) return Error{fmt::format("--offset: {} takes none", m.name)};
    return out;
  }
  if (m.per_column) {
    return Error{fmt::format("--pre-quant: {} takes a parameter per column, and --scale gives one for all; use {}",
                             m.name, scalar_mode(m).name)};
  }
  if (arguments.scale.empty()) return Error{fmt::format("--pre-quant: {} needs --scale", m.name)};
  const auto carrier = scalar_carrier(m, arguments, console);
  if (!carrier) return carrier.error();
  out.carriers_.push_back(*carrier);
  return out;
}

PostprocessOptions ResolvedPostprocess::options() const {
  PostprocessOptions options;
  options.mode = mode_;
  options.quant_carriers = carriers_;
  options.relu = relu_;
  options.rounding = rounding_;
  options.saturate = saturate_;
  options.profile = profile_;
  return options;
}

std::string ResolvedPostprocess::text() const {
  std::string text(mode_->name);
  if (!carriers_.empty()) text += fmt::format(" 0x{:016X}", carriers_.front());
  if (relu_ == Relu::relu) text += ", ReLU";
  if (rounding_) text += fmt::format(", {}", name_of(*rounding_));
  if (saturate_) text += ", sat";
  return text + fmt::format(", profile {}", profile_->name);
}

void ResolvedPostprocess::describe(Json& json) const {
  json["pre_quant"] = mode_->name;
  if (!carriers_.empty()) json["carrier"] = fmt::format("0x{:016X}", carriers_.front());
  json["relu"] = relu_ == Relu::relu;
  if (rounding_) json["rounding"] = name_of(*rounding_);
  json["saturate"] = saturate_;
  json["conversion_profile"] = profile_->name;
}

}  // namespace bitcube::cli
