#include "postprocess_arguments.hpp"

#include <algorithm>
#include <charconv>

#include "bitcube/io/npy.hpp"
#include "bitcube/numeric/convert.hpp"
#include "bitcube/numeric/real_text.hpp"
#include "operand_file.hpp"

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

/// The FP19 code of a number, with the flags of its rounding; what it must be is for the library to say.
Expected<Encoded> fp19_code(std::string_view option, std::string_view text) {
  const RealLiteral literal = parse_real(text);
  if (literal.fault != nullptr) return Error{fmt::format("{}: '{}': {}", option, text, literal.fault)};
  return convert_value(fp19, literal.cls, literal.real, {});
}

void warn_if_rounded(std::string_view option, std::string_view text, const Encoded& code, const Console& console) {
  if (code.flags == Flags::none) return;
  const std::string used = value_text(fp19, decode(fp19, code.bits));
  console.warning(fmt::format("{}: {} is not an FP19 number; {} is used", option, text, used));
}

/// The FP19 code of a scale in decimal or hexadecimal.
Expected<uint64> scale_code(std::string_view text, const Console& console) {
  const auto code = fp19_code("--scale", text);
  if (!code) return code.error();
  if (!legal_as_scale(code->bits)) {
    return Error{
        fmt::format("--scale: {} is {} in FP19; a scale must be positive and normal, so from 2^-126 to below 2^128",
                    text, value_text(fp19, decode(fp19, code->bits)))};
  }
  warn_if_rounded("--scale", text, *code, console);
  return code->bits;
}

/// The words of a .npy array of N or 1 x N uint64 carriers.
Expected<std::vector<uint64>> load_carriers(std::string_view option, const std::string& path) {
  const auto array = read_array(path);
  if (!array) return Error{fmt::format("{}: {}", option, array.error().message)};
  const bool row = array->shape.size() == 1 || (array->shape.size() == 2 && array->shape[0] == 1);
  if (array->dtype != DType::kU64 || !row) {
    return Error{fmt::format("{}: {}: {} array of shape {}; carriers are uint64, N or 1 x N", option, path,
                             dtype_name(array->dtype), shape_text(array->shape))};
  }
  const auto bytes = array->load();
  if (!bytes) return bytes.error();
  std::vector<uint64> words(bytes->size() / 8);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = load_word(bytes->data() + 8 * i, 8);
  return words;
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

Expected<GroupMaxArgument> parse_group_max(std::string_view text) {
  const std::size_t colon = text.find(':');
  GroupMaxArgument out{};
  const auto parsed = std::from_chars(text.data(), text.data() + std::min(colon, text.size()), out.n);
  if (colon == std::string_view::npos || colon + 1 == text.size() || parsed.ec != std::errc() ||
      parsed.ptr != text.data() + colon || out.n == 0) {
    return Error{fmt::format("--group-max: '{}' is not N:FILE, such as 32:group_max.npy", text)};
  }
  out.path = text.substr(colon + 1);
  return out;
}

void PostprocessArguments::add_result_to(CLI::App& command) {
  const std::string group = "Post-process";
  const auto option = [&](const std::string& name, auto& variable, const std::string& help, const std::string& type) {
    command.add_option(name, variable, help)->type_name(type)->group(group);
  };
  option("--pre-quant", pre_quant, "PreQuant mode by name or code, such as QF322B8_PRE; default: NoQuant", "MODE");
  option("--scale", scale, "Scale of the mode: a number, rounded to FP19, or its carrier word as 0x...", "S");
  option("--offset", offset, "Offset of the mode, added to the scaled integer", "O");
  option("--quant-params", quant_params, "Carrier words of a per-column mode: uint64, N or 1 x N", "q.npy");
  command.add_flag("--relu", relu, "ReLU: negative accumulators give 0")->group(group);
  option(
      "--relu-param", relu_param,
      "LReLU or PReLU: negative accumulators times alpha instead of the scale; a number, rounded to FP19, its carrier "
      "word as 0x..., or a .npy of uint64 carriers, one per column",
      "ALPHA");
  option("--round", round, "Rounding, where the mode lets one choose; default: RNE", choices(roundings));
  command.add_flag("--sat", saturate, "Saturate: Sat = 1")->group(group);
  option("--profile", profile, "Conversion profile; default: pto", choices(conversion_profiles));
}

void PostprocessArguments::add_to(CLI::App& command) {
  add_result_to(command);
  command.add_flag("--packed", packed, "Write an S4X2 result as uint8, two lanes per byte, even column low")
      ->group("Post-process");
  const std::string reductions = "Reductions of the raw accumulators";
  command.add_option("--row-max", row_max, "RowMax: M x 1 accumulators")->type_name("out.npy")->group(reductions);
  command.add_option("--row-max-init", row_max_init, "RowMaxIn: M or M x 1 accumulators that RowMax starts from")
      ->type_name("in.npy")
      ->group(reductions);
  command.add_option("--group-max", group_max, "GroupMax over N columns: M x ceil(columns / N) accumulators")
      ->type_name("N:out.npy")
      ->group(reductions);
  command.add_flag("--max-abs", max_abs, "Reduce absolute values")->group(reductions);
}

std::vector<std::string> PostprocessArguments::inputs() const {
  return {quant_params, relu_param, row_max_init};
}

Expected<void> ResolvedPostprocess::read_quantisation(const PostprocessArguments& arguments, const Console& console) {
  const PreQuantMode& m = *mode_;
  if (m.carrier == CarrierKind::none) {
    if (!arguments.scale.empty()) return Error{fmt::format("--scale: {} takes none", m.name)};
    if (arguments.offset) return Error{fmt::format("--offset: {} takes none", m.name)};
    if (!arguments.quant_params.empty()) return Error{fmt::format("--quant-params: {} takes none", m.name)};
    return {};
  }
  if (m.per_column) {
    if (!arguments.scale.empty() || arguments.offset) {
      return Error{fmt::format("{}: {} takes a parameter per column; give --quant-params, or use {}",
                               arguments.scale.empty() ? "--offset" : "--scale", m.name, scalar_mode(m).name)};
    }
    if (arguments.quant_params.empty()) {
      return Error{fmt::format("--pre-quant: {} needs --quant-params, a carrier word per column", m.name)};
    }
    auto words = load_carriers("--quant-params", arguments.quant_params);
    if (!words) return words.error();
    carriers_ = std::move(*words);
    return {};
  }
  if (!arguments.quant_params.empty()) {
    return Error{fmt::format("--quant-params: {} takes one parameter for all columns; give --scale", m.name)};
  }
  if (arguments.scale.empty()) return Error{fmt::format("--pre-quant: {} needs --scale", m.name)};
  const auto carrier = scalar_carrier(m, arguments, console);
  if (!carrier) return carrier.error();
  carriers_.push_back(*carrier);
  return {};
}

Expected<void> ResolvedPostprocess::read_activation(const PostprocessArguments& arguments, const Console& console) {
  const std::string& text = arguments.relu_param;
  if (text.empty()) {
    relu_ = arguments.relu ? Relu::relu : Relu::none;
    return {};
  }
  if (arguments.relu) return Error{"--relu and --relu-param are two activations; give one"};
  if (text.ends_with(".npy")) {
    auto words = load_carriers("--relu-param", text);
    if (!words) return words.error();
    relu_ = Relu::per_column;
    alphas_ = std::move(*words);
    return {};
  }
  if (is_bit_pattern(text)) {
    const auto word = parse_hex(text);
    if (!word) return Error{"--relu-param: " + word.error().message};
    alphas_.push_back(*word);
  } else {
    const auto code = fp19_code("--relu-param", text);
    if (!code) return code.error();
    if (legal_as_activation(code->bits)) warn_if_rounded("--relu-param", text, *code, console);
    alphas_.push_back(code->bits);
  }
  relu_ = Relu::scalar;
  return {};
}

Expected<ResolvedPostprocess> ResolvedPostprocess::from(const PostprocessArguments& arguments,
                                                        const Format& accumulator, std::size_t rows,
                                                        const Console& console) {
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
  out.row_max_ = !arguments.row_max.empty();
  out.max_abs_ = arguments.max_abs;
  if (arguments.packed && !destination_format(**mode, accumulator).is_packed()) {
    return Error{fmt::format("--packed: {} gives {}, which has one lane per word", (*mode)->name,
                             destination_format(**mode, accumulator).name)};
  }
  if (auto ok = out.read_quantisation(arguments, console); !ok) return ok.error();
  if (auto ok = out.read_activation(arguments, console); !ok) return ok.error();
  if (!arguments.group_max.empty()) {
    const auto group = parse_group_max(arguments.group_max);
    if (!group) return group.error();
    out.group_n_ = group->n;
  }
  if (!arguments.row_max_init.empty()) {
    const std::array<std::vector<uint64>, 2> shapes{{{rows}, {rows, 1}}};
    auto words = load_accumulators("--row-max-init", arguments.row_max_init, accumulator, shapes);
    if (!words) return words.error();
    out.row_max_init_ = std::move(*words);
  }
  return out;
}

PostprocessOptions ResolvedPostprocess::options() const {
  PostprocessOptions options;
  options.mode = mode_;
  options.quant_carriers = carriers_;
  options.relu = relu_;
  options.activation_carriers = alphas_;
  options.rounding = rounding_;
  options.saturate = saturate_;
  options.profile = profile_;
  options.row_max = row_max_;
  options.group_n = group_n_;
  options.max_abs = max_abs_;
  if (row_max_init_) options.row_max_init = *row_max_init_;
  return options;
}

namespace {

constexpr std::string_view relu_names[] = {"none", "ReLU", "LReLU", "PReLU per column"};

}  // namespace

std::string ResolvedPostprocess::text() const {
  std::string text(mode_->name);
  if (mode_->per_column) {
    text += " per column";
  } else if (!carriers_.empty()) {
    text += fmt::format(" 0x{:016X}", carriers_.front());
  }
  if (relu_ != Relu::none) text += fmt::format(", {}", relu_names[static_cast<std::size_t>(relu_)]);
  if (relu_ == Relu::scalar) text += fmt::format(" 0x{:016X}", alphas_.front());
  if (rounding_) text += fmt::format(", {}", name_of(*rounding_));
  if (saturate_) text += ", sat";
  return text + fmt::format(", profile {}", profile_->name);
}

void ResolvedPostprocess::describe(Json& json) const {
  json["pre_quant"] = mode_->name;
  if (carriers_.size() == 1) json["carrier"] = fmt::format("0x{:016X}", carriers_.front());
  json["relu"] = relu_ == Relu::relu;
  json["activation"] = relu_names[static_cast<std::size_t>(relu_)];
  if (relu_ == Relu::scalar) json["activation_carrier"] = fmt::format("0x{:016X}", alphas_.front());
  if (rounding_) json["rounding"] = name_of(*rounding_);
  json["saturate"] = saturate_;
  json["conversion_profile"] = profile_->name;
}

}  // namespace bitcube::cli
