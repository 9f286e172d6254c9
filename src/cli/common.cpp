#include "common.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>
#include <system_error>

#include "bitcube/numeric/encode.hpp"
#include "bitcube/numeric/text.hpp"

namespace bitcube::cli {

namespace {

/// Writes all bytes to a descriptor; 0, or the error number.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from a to b, without regard to case.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  std::iota(d[0].begin(), d[0].end(), std::size_t{0});
  const auto same = [&](std::size_t i, std::size_t j) { return ascii_lower(a[i - 1]) == ascii_lower(b[j - 1]); };
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (same(i, j) ? 0 : 1)});
      if (i > 1 && j > 1 && same(i, j - 1) && same(i - 1, j)) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

bool starts_with_ignoring_case(std::string_view text, std::string_view start) {
  return text.size() >= start.size() && equal_ignoring_case(text.substr(0, start.size()), start);
}

}  // namespace

Expected<void> Console::print(std::string_view text) const {
  if (!team_.leads()) return {};
  if (const int code = write_all(STDOUT_FILENO, text); code != 0) {
    return Error{fmt::format("standard output: {}", std::generic_category().message(code))};
  }
  return {};
}

Expected<void> Console::print_json(const Json& json) const {
  return print(dump(json, 2));
}

void Console::message(std::string_view kind, std::string_view text) const {
  // Where standard error fails as well, nothing is left that could be told.
  if (!team_.leads()) return;
  (void)write_all(STDERR_FILENO,
                  json_ ? dump(Json{{kind, text}}, -1) : fmt::format("{}: {}: {}\n", program_, kind, text));
}

void add_json(CLI::App& command) {
  command.add_flag("--json")->description("Print results and messages as JSON");
}

void add_threads(CLI::App& command, unsigned& threads) {
  command.add_option("--threads", threads, "Threads, 0: one per core; the result never depends on it")
      ->type_name("N")
      ->check(CLI::Range(0U, 1024U).description(""));
}

CLI::Validator whole_number(uint64 limit) {
  return {[limit](const std::string& text) {
            uint64 value = 0;
            const char* end = text.data() + text.size();
            const auto parsed = std::from_chars(text.data(), end, value);
            if (parsed.ec == std::errc() && parsed.ptr == end && value <= limit) return std::string();
            return fmt::format("'{}' is no whole number from 0 to {}", text, limit);
          },
          ""};
}

CLI::Validator signed_number() {
  return {[](const std::string& text) {
            std::int64_t value = 0;
            const char* end = text.data() + text.size();
            const auto parsed = std::from_chars(text.data(), end, value);
            if (parsed.ec == std::errc() && parsed.ptr == end) return std::string();
            return fmt::format("'{}' is no whole number of 64 bits", text);
          },
          ""};
}

void add_examples(CLI::App& command, std::string_view lines) {
  command.footer("Examples:\n" + std::string(lines));
}

std::string_view closest(std::string_view text, std::span<const std::string_view> names) {
  std::string_view best;
  std::size_t least = text.size() / 3 + 2;  // this many edits are too many
  for (const std::string_view name : names) {
    const std::size_t distance = edit_distance(text, name);
    if (distance < least && distance < std::max(text.size(), name.size())) {
      least = distance;
      best = name;
    }
  }
  if (!best.empty() || text.size() < 2) return best;
  const auto starts = std::find_if(names.begin(), names.end(), [&](std::string_view name) {
    return starts_with_ignoring_case(name, text) || (name.size() > 1 && starts_with_ignoring_case(text, name));
  });
  return starts == names.end() ? std::string_view() : *starts;
}

Error unknown_name(std::string_view option, std::string_view text, std::span<const std::string_view> names) {
  text.remove_prefix(text.starts_with(' ') ? 1 : 0);  // the mark of a negative value, see mark_negative_values()
  const std::string_view near = closest(text, names);
  const std::string hint = near.empty() ? "" : fmt::format("; did you mean {}?", near);
  return Error{fmt::format("{}: unknown name '{}'{} (choose from {})", option, text, hint, fmt::join(names, ", "))};
}

Expected<const Format*> look_up_format(std::string_view option, std::string_view text) {
  return look_up(option, text, formats, [](std::string_view name) { return find_format(name); });
}

const Format* native_format(DType dtype) noexcept {
  constexpr std::array<std::pair<DType, DataType>, 12> native{{{DType::kF64, DataType::fp64},
                                                               {DType::kF32, DataType::fp32},
                                                               {DType::kF16, DataType::fp16},
                                                               {DType::kBF16, DataType::bf16},
                                                               {DType::kI64, DataType::s64},
                                                               {DType::kI32, DataType::s32},
                                                               {DType::kI16, DataType::s16},
                                                               {DType::kI8, DataType::s8},
                                                               {DType::kU64, DataType::u64},
                                                               {DType::kU32, DataType::u32},
                                                               {DType::kU16, DataType::u16},
                                                               {DType::kU8, DataType::u8}}};
  const auto* const row = std::find_if(native.begin(), native.end(), [&](const auto& r) { return r.first == dtype; });
  return row == native.end() ? nullptr : &format_of(row->second);
}

Expected<std::optional<Rounding>> look_up_rounding(std::string_view option, std::string_view text) {
  if (text.empty()) return std::optional<Rounding>();
  const auto row = look_up(option, text, roundings, find_rounding);
  if (!row) return row.error();
  return std::optional<Rounding>((*row)->mode);
}

bool is_bit_pattern(std::string_view text) noexcept {
  return text.size() >= 2 && text[0] == '0' && ascii_lower(text[1]) == 'x' &&
         text.find_first_of(".pP") == std::string_view::npos;
}

Expected<uint64> parse_hex(std::string_view text) {
  const std::string_view digits = text.substr(std::min<std::size_t>(2, text.size()));
  uint64 word = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, word, 16);
  if (parsed.ec == std::errc::result_out_of_range) return Error{fmt::format("{}: more than 64 bits", text)};
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return Error{fmt::format("{}: 0x must be followed by hexadecimal digits", text)};
  }
  return word;
}

Json value_json(const Format& f, const Value& value) {
  if (!value.is_finite()) return value.is_infinite() ? value_text(f, value) : "nan";
  if (!f.is_integer()) return value.real.is_zero() && value.real.negative ? -0.0 : to_double(value.real);
  const auto magnitude = static_cast<uint64>(value.real.significand);
  if (!value.real.negative) return magnitude;
  return static_cast<int64>(~magnitude + 1);
}

Json flags_json(Flags flags) {
  Json json = Json::array();
  for (const FlagName& row : flag_names) {
    if (has(flags, row.flag)) json.push_back(row.name);
  }
  return json;
}

Json number_json(double number) {
  if (std::isfinite(number)) return number;
  return std::isnan(number) ? "nan" : number < 0 ? "-inf" : "inf";
}

Expected<void> check_output(const std::string& path, std::span<const std::string> inputs) {
  if (path == "-") {
    return Error{"-: standard output has the results in text; name a file (./- for a file of that name)"};
  }
  for (const std::string& text : inputs) {
    const std::string input = array_path(text);
    std::error_code ignored;
    if (path == input || std::filesystem::equivalent(path, input, ignored)) {
      return Error{fmt::format("{}: is also an input; write the output to another file", path)};
    }
  }
  struct stat target {};
  struct stat standard {};
  if (::stat(path.c_str(), &target) == 0 && ::fstat(STDOUT_FILENO, &standard) == 0 && !S_ISCHR(target.st_mode) &&
      target.st_dev == standard.st_dev && target.st_ino == standard.st_ino) {
    return Error{fmt::format("{}: standard output goes there, with the results in text", path)};
  }
  return {};
}

void note_bf16(const Console& console, const Format& format) {
  if (format.type == DataType::bf16) console.note("NumPy has no bfloat16; the array is uint16 with the BF16 bits");
}

Expected<OutputFile> create_output(const std::string& path, std::span<const std::string> inputs, const Team& team) {
  if (!team.leads()) return OutputFile::create("/dev/null");
  if (auto ok = check_output(path, inputs); !ok) return ok.error();
  return OutputFile::create(path);
}

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), enabled_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) (void)write_all(STDERR_FILENO, "\r\x1b[K");
}

Progress ProgressBar::callback() {
  if (!enabled_) return {};
  return [this](std::size_t done, std::size_t total) { show(done, total); };
}

void ProgressBar::show(std::size_t done, std::size_t total) {
  constexpr std::int64_t interval = 100;  // milliseconds; what is faster is not worth a bar
  const auto now = static_cast<std::int64_t>(clock_.seconds() * 1000);
  if (total == 0 || now - last_.load() < interval || busy_.exchange(true)) return;
  last_.store(now);
  constexpr std::size_t width = 30;
  const std::size_t filled = std::min(width, done * width / total);
  (void)write_all(STDERR_FILENO,
                  fmt::format("\r{} [{}{}] {:3}%\x1b[K", label_, std::string(filled, '#'),
                              std::string(width - filled, '.'), std::min<std::size_t>(100, done * 100 / total)));
  drawn_ = true;
  busy_.store(false);
}

}  // namespace bitcube::cli
