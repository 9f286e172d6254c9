// bitcube explain convert: one conversion, step by step.
#include "bitcube/explain/convert.hpp"

#include "conversion_arguments.hpp"
#include "explain.hpp"

namespace bitcube::cli {
namespace {

struct Options : ConversionArguments {
  std::string value;
};

Expected<Exit> run(const Options& options, const Console& console) {
  const auto from = look_up_source(options);
  if (!from) return from.error();
  const auto conversion = prepare(options, *from);
  if (!conversion) return conversion.error();
  if (!conversion->note.empty()) console.note(conversion->note);
  const std::string text(unmarked(options.value));
  if (conversion->from == nullptr) {
    const RealLiteral literal = parse_real(text);
    if (literal.fault != nullptr) return Error{fmt::format("'{}': {}", abbreviated(text), literal.fault)};
    return print_document(explain_convert(literal, abbreviated(text), *conversion->to, conversion->control), console);
  }
  const auto bits = source_bits(*conversion->from, text);
  if (!bits) return bits.error();
  return print_document(explain_convert(*conversion->from, *conversion->to, *bits, conversion->control), console);
}

}  // namespace

void add_explain_convert(CLI::App& explain, const Console& console, Action& action) {
  CLI::App& command = *explain.add_subcommand(
      "convert", "A conversion: neighbours, distances, who decided, flags, and every other mode and profile");
  const auto options = std::make_shared<Options>();
  add_conversion_options(command, *options);
  command.add_option("VALUE", options->value, "1.0625, -0x1.8p-3, inf, nan; with --from TYPE also 0x3F88, the bits")
      ->required();
  add_json(command);
  add_examples(command,
               "  bitcube explain convert --to e4m3 464\n"
               "  bitcube explain convert --to e4m3 --profile ocp --sat 464\n"
               "  bitcube explain convert --to s8 --from fp16 --round rhb 0x4100 --json");
  command.callback([=, &console, &action] { action = [=, &console] { return run(*options, console); }; });
}

}  // namespace bitcube::cli
