// Texts as what people write on command lines: literals, held against the C library; FILE:DTYPE:SHAPE; and whole
// command lines of the subcommands that take values, an argument a line.
#include <cmath>
#include <cstring>

#include "bitcube/explain/convert.hpp"
#include "bitcube/explain/word.hpp"
#include "bitcube/io/array.hpp"
#include "bitcube/numeric/convert.hpp"
#include "bitcube/numeric/exact_code.hpp"
#include "bitcube/numeric/real_text.hpp"
#include "cli/commands.hpp"
#include "input.hpp"
#include "value_text.hpp"

using namespace bitcube;

namespace {

void check_literal(const std::string& text) {
  const RealLiteral literal = parse_real(text);
  if (literal.fault != nullptr) return;
  const Encoded nearest = convert_value(fp64, literal.cls, literal.real, {});
  // The C library rounds decimal and hexadecimal literals correctly, too; it knows no sNaN.
  if (literal.cls != Class::quiet_nan && literal.cls != Class::signaling_nan) {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    fuzz::require(end == text.c_str() + text.size(), "a literal is a number to the C library");
    fuzz::require(bits == nearest.bits, "a literal is rounded as the C library does");
  }
  const Value value = decode(fp64, nearest.bits);
  const std::string exact = exact_text(value);
  const RealLiteral again = parse_real(exact);
  fuzz::require(again.fault == nullptr, "an exact text is a literal");
  fuzz::require(exact_code(fp64, again) == nearest.bits, "of the same value");
}

void check_array(const std::string& text) {
  const auto raw = parse_raw_array(text);
  if (!raw) {
    fuzz::require(array_path(text) == text, "what says no type is a path");
    return;
  }
  std::string again = raw->path + ":" + std::string(dtype_name(raw->dtype)) + ":";
  for (std::size_t i = 0; i < raw->shape.size(); ++i) again += (i == 0 ? "" : "x") + std::to_string(raw->shape[i]);
  const auto same = parse_raw_array(again);
  fuzz::require(same && same->path == raw->path && same->dtype == raw->dtype && same->shape == raw->shape,
                "FILE:DTYPE:SHAPE is the same when it is written again");
}

void check_explanations(const std::string& text) {
  if (const auto word = cli::parse_hex(text); word && cli::is_bit_pattern(text)) {
    const auto document = explain_word(*word);
    fuzz::require(document ? !text_of(*document).empty() : !document.error().message.empty(),
                  "a word is explained, or why it is more than one");
  }
  const RealLiteral literal = parse_real(text);
  if (literal.fault != nullptr) return;
  const Format& to = formats[text.size() % formats.size()];
  const auto document = explain_convert(literal, text, to);
  if (document) fuzz::require(!text_of(*document).empty(), "an explanation has a text");
}

/// bitcube convert ARGUMENTS.
void convert_values(std::vector<std::string> arguments) {
  for (const std::string& argument : arguments) {  // no files, nor standard input
    if (argument.starts_with("-o") || argument.starts_with("--output") || argument == "-") return;
  }
  arguments.insert(arguments.begin(), "convert");
  const cli::Console console(std::find(arguments.begin(), arguments.end(), "--json") != arguments.end());
  CLI::App root{"bitcube", "bitcube"};
  cli::Action action;
  cli::add_convert(root, console, action);
  cli::mark_negative_values(arguments);
  std::reverse(arguments.begin(), arguments.end());
  try {
    root.parse(std::move(arguments));
  } catch (const CLI::ParseError&) {
    return;
  }
  if (!action) return;
  const auto exit = action();
  fuzz::require(!exit || *exit == cli::Exit::success, "a value is converted or refused");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::text_of(data, size));
  if (text.find('\0') != std::string::npos) return 0;  // no argument has one
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const std::string& line : lines) {
    check_literal(line);
    check_array(line);
  }
  check_explanations(lines.front());  // which take longer
  convert_values(std::move(lines));
  return 0;
}
