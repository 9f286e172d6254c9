#include "common.hpp"

#include <sys/resource.h>
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
#include <limits>
#include <memory>
#include <numeric>
#include <system_error>

#include "bitcube/numeric/encode.hpp"
#include "bitcube/numeric/text.hpp"
#include "bitcube/stream/window.hpp"
#include "interrupt.hpp"
#include "quote_text.hpp"

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

namespace {

/// A message as people get it. What it quotes may come from a stranger's file: it is not long, and nothing in it
/// commands the terminal.
std::string for_people(std::string_view text) {
  constexpr std::size_t kMost = 16'384;
  const std::string_view shown = text.substr(0, kMost);
  std::string out;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const std::size_t control = shown[i] == '\n' ? 0 : control_bytes(shown, i);
    if (control == 0) {
      out += shown[i];
    } else {
      i += control - 1;
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(shown[i]));
    }
  }
  if (text.size() > kMost) out += fmt::format(" ... ({} bytes more)", text.size() - kMost);
  return out;
}

}  // namespace

void Console::message(std::string_view kind, std::string_view text) const noexcept {
  // Where standard error fails as well, nothing is left that could be told.
  if (!team_.leads()) return;
  try {
    const std::string shown = for_people(text);
    (void)write_all(STDERR_FILENO,
                    json_ ? dump(Json{{kind, shown}}, -1) : fmt::format("{}: {}: {}\n", program_, kind, shown));
  } catch (const std::exception&) {
    out_of_memory();
  }
}

void Console::out_of_memory() const noexcept {
  if (!json_) (void)write_all(STDERR_FILENO, program_);
  (void)write_all(STDERR_FILENO, json_ ? R"({"error":"not enough memory"})"
                                         "\n"
                                       : ": error: not enough memory\n");
}

void add_json(CLI::App& command) {
  command.add_flag("--json")->description("Print results and messages as JSON");
}

Execution execution_of(unsigned threads, Progress progress) {
  return {.threads = threads, .progress = std::move(progress), .cancel = interruption()};
}

Execution team_execution_of(const Console& console, unsigned threads, Progress progress) {
  Execution execution = execution_of(threads, std::move(progress));
  execution.team = &console.team();
  return execution;
}

namespace {

/// What a command takes beside the data that it works on: the program, its libraries and what the threads have.
constexpr std::uint64_t kProgram = std::uint64_t{64} << 20;
constexpr std::uint64_t kLeastMemory = std::uint64_t{96} << 20;

std::uint64_t& max_memory() {
  static std::uint64_t bytes = std::numeric_limits<std::uint64_t>::max();
  return bytes;
}

/// A number of bytes, with or without K, M, G or T (powers of 1024).
std::optional<std::uint64_t> parse_size(std::string_view text) {
  std::uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc()) return std::nullopt;
  const std::string_view unit(parsed.ptr, text.data() + text.size());
  if (unit.empty()) return number;
  const auto power = std::string_view("KMGT").find(unit);
  if (unit.size() != 1 || power == std::string_view::npos) return std::nullopt;
  if (__builtin_mul_overflow(number, std::uint64_t{1} << (10 * (power + 1)), &number)) return std::nullopt;
  return number;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kMega = std::uint64_t{1} << 20;
  return fmt::format("{} MiB", bytes / kMega + (bytes % kMega != 0 ? 1 : 0));
}

/// The kernel holds the program to the limit, wherever it would take more: an allocation fails then.
void limit_memory(std::uint64_t bytes) {
  max_memory() = bytes;
  // Stacks count, though hardly anything of them is used.
  constexpr std::uint64_t kStack = std::uint64_t{8} << 20;
  const std::uint64_t stacks = (thread_count({}) + 1) * kStack;
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_DATA, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, bytes + stacks);
  (void)::setrlimit(RLIMIT_DATA, &limit);
}

}  // namespace

Expected<void> check_memory(std::string_view what, std::uint64_t bytes) {
  if (__builtin_add_overflow(bytes, kProgram, &bytes)) bytes = std::numeric_limits<std::uint64_t>::max();
  if (bytes <= max_memory()) return {};
  return Error{fmt::format("{} takes about {}, more than the {} of --max-memory", what, size_text(bytes),
                           size_text(max_memory()))};
}

std::size_t window_size() {
  return std::min<std::uint64_t>(stream::kWindow, (max_memory() - kProgram) / 4 * 3);
}

void add_memory_limit(CLI::App& command) {
  const auto limit = [](const std::string& text) {
    const auto bytes = parse_size(text);
    if (!bytes) {
      throw CLI::ValidationError("--max-memory",
                                 fmt::format("'{}' is no size; write bytes, or 512M, 2G and the like", text));
    }
    if (*bytes < kLeastMemory) {
      throw CLI::ValidationError("--max-memory", fmt::format("{} is too little for the program itself; at least {}M",
                                                             text, kLeastMemory >> 20));
    }
    limit_memory(*bytes);
  };
  command
      .add_option_function<std::string>("--max-memory", limit,
                                        "Memory that the command may take, such as 512M or 2G; default: no limit. "
                                        "The result never depends on it")
      ->type_name("SIZE");
}

void add_limits(CLI::App& command, unsigned& threads) {
  command.add_option("--threads", threads, "Threads, 0: one per core; the result never depends on it")
      ->type_name("N")
      ->check(CLI::Range(0U, 1024U).description(""));
  add_memory_limit(command);
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

std::uint64_t file_bytes(const std::string& text) {
  std::error_code ignored;
  const std::filesystem::path path = array_path(text);
  if (!std::filesystem::is_regular_file(path, ignored)) return 0;
  const auto size = std::filesystem::file_size(path, ignored);
  return ignored ? 0 : size;
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
