#include "postprocess_run.hpp"

#include <set>
#include <utility>

#include "bitcube/io/sha256.hpp"

namespace bitcube::cli {

Expected<PostprocessRun> PostprocessRun::prepare(const PostprocessArguments& arguments, const std::string& output,
                                                 std::vector<std::string> inputs, const Format& accumulator,
                                                 std::size_t rows, std::size_t cols, const Console& console) {
  PostprocessRun out;
  auto resolved = ResolvedPostprocess::from(arguments, accumulator, rows, console);
  if (!resolved) return resolved.error();
  out.resolved_ = std::move(*resolved);
  out.packed_ = arguments.packed;
  const PostprocessOptions options = out.resolved_.options();
  if (auto legal = check_postprocess(accumulator, rows, cols, options); !legal) return legal.error();

  out.files_.push_back({"d", output, {}, {}, {rows, arguments.packed ? (cols + 1) / 2 : cols}});
  if (options.row_max) out.files_.push_back({"row_max", arguments.row_max, {}, {}, {rows, 1}});
  if (options.group_n != 0) {
    const auto group = parse_group_max(arguments.group_max);  // parsed before, so there is no error
    out.files_.push_back({"group_max", group->path, {}, {}, {rows, (cols + group->n - 1) / group->n}});
  }
  for (const std::string& path : arguments.inputs()) inputs.push_back(path);
  std::set<std::string> paths;
  for (File& file : out.files_) {
    if (file.path.empty()) continue;
    // By another name of the same file it is the commit that finds it.
    if (!paths.insert(file.path).second) {
      return Error{fmt::format("{}: two outputs go to this file; give each its own name", file.path)};
    }
    auto created = create_output(file.path, inputs, console.team());
    if (!created) return created.error();
    file.file = std::move(*created);
  }
  return out;
}

Expected<void> PostprocessRun::fill(File& file, DType dtype, std::span<const std::byte> payload) {
  auto digest = sha256(payload);
  if (!digest) return digest.error();
  file.sha256 = std::move(*digest);
  return file.file ? write_array(*file.file, dtype, file.shape, payload) : Expected<void>();
}

Expected<void> PostprocessRun::take(Postprocessed result) {
  result_ = std::move(result);
  // Another copy of D only where the file has another form than the result.
  std::vector<std::uint8_t> other;
  const bool extended = result_.format->type == DataType::s4x2 && !packed_;
  if (packed_) other = packed_rows(result_);
  if (extended) {
    other = result_.d;
    for (std::uint8_t& lane : other) lane = static_cast<std::uint8_t>(sign_extend(lane, 4));
  }
  const std::vector<std::uint8_t>& d = packed_ || extended ? other : result_.d;
  dtype_ = packed_ ? DType::kU8 : array_dtype(*result_.format);
  const DType auxiliary = array_dtype(*result_.accumulator);
  for (File& file : files_) {
    Expected<void> filled;
    if (file.what == "d") {
      filled = fill(file, dtype_, std::as_bytes(std::span(d)));
    } else {
      filled =
          fill(file, auxiliary, std::as_bytes(std::span(file.what == "row_max" ? result_.row_max : result_.group_max)));
    }
    if (!filled) return filled;
  }
  return {};
}

std::vector<std::string> PostprocessRun::cells() const {
  const std::array<uint64, 2> shape{result_.rows, result_.cols};
  return {files_.front().path.empty() ? "-" : files_.front().path, shape_text(shape), std::string(result_.format->name),
          fmt::format("({}{})", dtype_name(dtype_), packed_ ? ", packed" : "")};
}

void PostprocessRun::describe(TextTable& facts) const {
  facts.add({"post-process", resolved_.text()});
  facts.add({"flags", flags_text(result_.flags)});
  facts.add({"sha256", files_.front().sha256});
  for (const File& file : files_) {
    if (file.what != "d")
      facts.add({file.what, fmt::format("{}  {}  {}", file.path, shape_text(file.shape), file.sha256)});
  }
}

void PostprocessRun::describe(Json& json) const {
  resolved_.describe(json);
  const std::array<uint64, 2> shape{result_.rows, result_.cols};
  json["d"] = {{"type", result_.format->name}, {"dtype", dtype_name(dtype_)}, {"shape", shape}};
  if (packed_) json["d"]["packed"] = true;
  json["flags"] = flags_json(result_.flags);
  json["sha256"] = files_.front().sha256;
  if (!files_.front().path.empty()) json["output"] = files_.front().path;
  for (const File& file : files_) {
    if (file.what == "d") continue;
    json[file.what] = {{"output", file.path}, {"shape", file.shape}, {"sha256", file.sha256}};
  }
}

std::string PostprocessRun::preview() const {
  constexpr std::size_t limit = 8;
  if (result_.rows > limit || result_.cols > limit) return {};
  TextTable table;
  std::vector<std::size_t> right;
  for (std::size_t c = 0; c < result_.cols; ++c) right.push_back(c);
  for (std::size_t r = 0; r < result_.rows; ++r) {
    std::vector<std::string> cells;
    for (std::size_t c = 0; c < result_.cols; ++c) {
      uint64 word = 0;
      std::memcpy(&word, result_.d.data() + (r * result_.cols + c) * result_.element_bytes, result_.element_bytes);
      cells.push_back(value_text(*result_.format, decode(*result_.format, word)));
    }
    table.add(std::move(cells));
  }
  return table.text(right);
}

Expected<void> PostprocessRun::report(const Console& console, Json json, TextTable sides, TextTable facts,
                                      double seconds) {
  Expected<void> printed;
  if (console.json()) {
    describe(json);
    json["seconds"] = seconds;
    printed = console.print_json(json);
  } else {
    std::vector<std::string> d = cells();
    d.insert(d.begin(), "D");
    sides.add(std::move(d));
    describe(facts);
    facts.add({"time", fmt::format("{:.3f} s", seconds)});
    printed = console.print(sides.text() + facts.text() + preview());
  }
  return printed ? commit() : printed;
}

Expected<void> PostprocessRun::commit() {
  std::vector<OutputFile*> files;
  for (File& file : files_) {
    if (file.file) files.push_back(&*file.file);
  }
  return commit_all(files);
}

}  // namespace bitcube::cli
