// bitcube demo: handwritten digits through a small network, in FP32 and in the block formats.
#include <algorithm>
#include <array>
#include <filesystem>
#include <type_traits>
#include <utility>

#include "bitcube/cube/matrix_operand.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/io/sha256.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "commands.hpp"

namespace bitcube::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string data;
  unsigned threads = 0;
};

constexpr std::size_t kLayers = 3;
constexpr std::size_t kSide = 28;  // pixels of a digit
constexpr std::string_view kFolder = "mnist-mlp";

using Words = std::vector<std::uint32_t>;

/// FP32 words of one layer: w is k x n.
struct Layer {
  std::size_t k = 0;
  std::size_t n = 0;
  Words w;
  Words b;
};

struct Data {
  std::size_t count = 0;
  std::vector<std::uint8_t> images;  // count x 784
  std::vector<std::uint8_t> labels;
  std::array<Layer, kLayers> layers;
};

/// A number format that the network runs in; no block format: FP32.
struct Variant {
  std::string_view key;
  std::string_view title;
  const BlockFormat* format;
};
const std::array<Variant, 4> variants{{{"fp32", "FP32", nullptr},
                                       {"hif4", "HiF4", find_block_format("hif4")},
                                       {"mxfp4", "MXFP4", find_block_format("mxfp4")},
                                       {"mxfp8", "MXFP8 (E4M3)", find_block_format("mxfp8-e4m3")}}};

struct LayerReport {
  std::size_t m = 0;
  std::size_t k = 0;
  std::size_t n = 0;
  uint64 activation_groups = 0;
  uint64 weight_groups = 0;
  double activation_sqnr = 0;
  double weight_sqnr = 0;
  double seconds = 0;
};

struct Result {
  std::vector<LayerReport> layers;
  Words logits;
  std::vector<std::size_t> predictions;
  std::size_t right = 0;
};

template <typename Word>
Expected<std::vector<Word>> read_array(const fs::path& path, DType dtype, std::span<const uint64> shape) {
  const auto array = read_npy(path);
  if (!array) return array.error();
  if (array->dtype != dtype || !std::equal(shape.begin(), shape.end(), array->shape.begin(), array->shape.end())) {
    return Error{fmt::format("{}: {} {}, but the demo needs {} {}", path.string(), dtype_name(array->dtype),
                             shape_text(array->shape), dtype_name(dtype), shape_text(shape))};
  }
  std::vector<Word> words(array->size() / sizeof(Word));
  if (auto read = array->read(0, std::as_writable_bytes(std::span(words))); !read) return read.error();
  if (auto same = array->file.check_unchanged(); !same) return same.error();
  return words;
}

/// Where the digits are: in the share directory beside the program's bin directory, or beside a program that is not
/// installed. Both go by where the program is, so a build and its packages know no path of the machine.
Expected<fs::path> find_data(const std::string& given) {
  if (!given.empty()) return fs::path(given);
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path share = fs::path("share") / "bitcube" / kFolder;
  const std::array<fs::path, 2> places{program.parent_path() / share, program.parent_path().parent_path() / share};
  for (const fs::path& place : places) {
    if (fs::exists(place / "images.npy", ignored)) return place;
  }
  return Error{fmt::format("the digits are in neither {} nor {}; name their directory with --data", places[0].string(),
                           places[1].string())};
}

Expected<Data> load(const fs::path& directory) {
  Data data;
  const auto images = read_npy(directory / "images.npy");
  if (!images) return images.error();
  data.count = images->shape.empty() ? 0 : static_cast<std::size_t>(images->shape[0]);
  if (data.count == 0) return Error{fmt::format("{}: no images", (directory / "images.npy").string())};
  constexpr std::array<std::size_t, kLayers + 1> widths{kSide * kSide, 256, 128, 10};
  const auto read = [&](auto& out, const std::string& file, DType dtype,
                        const std::vector<uint64>& shape) -> Expected<void> {
    using Out = std::remove_reference_t<decltype(out)>;
    auto words = read_array<typename Out::value_type>(directory / file, dtype, shape);
    if (!words) return words.error();
    out = std::move(*words);
    return {};
  };
  if (auto ok = read(data.images, "images.npy", DType::kU8, {data.count, widths[0]}); !ok) return ok.error();
  if (auto ok = read(data.labels, "labels.npy", DType::kU8, {data.count}); !ok) return ok.error();
  for (std::size_t i = 0; i < kLayers; ++i) {
    Layer& layer = data.layers[i];
    layer.k = widths[i];
    layer.n = widths[i + 1];
    if (auto ok = read(layer.w, fmt::format("w{}.npy", i), DType::kF32, {layer.k, layer.n}); !ok) return ok.error();
    if (auto ok = read(layer.b, fmt::format("b{}.npy", i), DType::kF32, {layer.n}); !ok) return ok.error();
  }
  return data;
}

/// Pixel / 255 in FP32, each rounded once from the exact quotient.
Words pixels_to_fp32(std::span<const std::uint8_t> pixels) {
  std::array<std::uint32_t, 256> quotient{};
  for (std::size_t p = 1; p < quotient.size(); ++p) {
    const Real exact = divide({.significand = p}, {.significand = 255});
    quotient[p] = static_cast<std::uint32_t>(encode(fp32, exact, {}).bits);
  }
  Words words(pixels.size());
  std::transform(pixels.begin(), pixels.end(), words.begin(), [&](std::uint8_t p) { return quotient[p]; });
  return words;
}

/// A quantised side of a layer's product.
struct QuantizedSide {
  QuantizedTensor tensor;
  Operand operand;
  uint64 groups = 0;
  double sqnr = 0;
};

Expected<QuantizedSide> quantize_side(Side side, std::span<const std::byte> words, const Format& source,
                                      std::array<uint64, 2> shape, const BlockFormat& format,
                                      const Execution& execution) {
  const std::size_t axis = side == Side::a ? 1 : 0;
  QuantizeOptions options;
  options.format = &format;
  options.execution = execution;
  auto tensor = quantize(words, source, shape, axis, options);
  if (!tensor) return tensor.error();
  QuantizedSide out;
  out.tensor = std::move(*tensor);
  const auto error = measure(words, out.tensor, execution);
  if (!error) return error.error();
  out.sqnr = error->sqnr;
  out.groups = shape[1 - axis] * format.groups(shape[axis]);
  const auto operand = quantized_operand(side, out.tensor);
  if (!operand) return operand.error();
  out.operand = *operand;
  return out;
}

/// max(x w + b, 0), or x w + b for the last layer. With a block format x becomes BF16, and both sides are quantised
/// along K.
Expected<Words> run_layer(const Layer& layer, std::size_t m, const Words& x, bool relu, const Variant& variant,
                          const Execution& execution, LayerReport& report) {
  const Stopwatch clock;
  report = {.m = m, .k = layer.k, .n = layer.n};
  const auto x_bytes = std::as_bytes(std::span(x));
  const auto w_bytes = std::as_bytes(std::span(layer.w));
  Operand a = matrix_operand(Side::a, fp32, x_bytes, m, layer.k);
  Operand b = matrix_operand(Side::b, fp32, w_bytes, layer.k, layer.n);
  std::optional<QuantizedSide> activations;
  std::optional<QuantizedSide> weights;
  if (variant.format != nullptr) {
    const auto rounded = convert_array(x_bytes, fp32, bf16, {}, execution.quiet());
    if (!rounded) return rounded.error();
    auto left = quantize_side(Side::a, rounded->words, bf16, {m, layer.k}, *variant.format, execution.quiet());
    if (!left) return left.error();
    auto right = quantize_side(Side::b, w_bytes, fp32, {layer.k, layer.n}, *variant.format, execution.quiet());
    if (!right) return right.error();
    activations = std::move(*left);
    weights = std::move(*right);
    a = activations->operand;
    b = weights->operand;
    report.activation_groups = activations->groups;
    report.weight_groups = weights->groups;
    report.activation_sqnr = activations->sqnr;
    report.weight_sqnr = weights->sqnr;
  }
  MatmulOptions product;
  product.bias = layer.b;
  product.execution = execution;
  const auto accumulators = matmul(a, b, product);
  if (!accumulators) return accumulators.error();
  PostprocessOptions finish;
  finish.relu = relu ? Relu::relu : Relu::none;
  finish.execution = execution.quiet();
  const auto d = postprocess(*accumulators, finish);
  if (!d) return d.error();
  Words out(m * layer.n);
  std::ranges::copy(std::as_bytes(std::span(d->d)), std::as_writable_bytes(std::span(out)).begin());
  report.seconds = clock.seconds();
  return out;
}

/// Index of the largest logit of a row; the first of equals.
std::size_t predict(std::span<const std::uint32_t> logits) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i) {
    if (to_double(decode(fp32, logits[i]).real) > to_double(decode(fp32, logits[best]).real)) best = i;
  }
  return best;
}

Expected<Result> run_network(const Data& data, const Variant& variant, unsigned threads) {
  Result result;
  Words x = pixels_to_fp32(data.images);
  for (std::size_t i = 0; i < kLayers; ++i) {
    ProgressBar bar(fmt::format("{} layer {}", variant.title, i + 1));
    LayerReport report;
    auto y = run_layer(data.layers[i], data.count, x, i + 1 < kLayers, variant, execution_of(threads, bar.callback()),
                       report);
    if (!y) return y.error();
    x = std::move(*y);
    result.layers.push_back(report);
  }
  result.logits = std::move(x);
  const std::size_t classes = data.layers.back().n;
  for (std::size_t i = 0; i < data.count; ++i) {
    result.predictions.push_back(predict(std::span(result.logits).subspan(i * classes, classes)));
    if (result.predictions.back() == data.labels[i]) ++result.right;
  }
  return result;
}

double accuracy(const Data& data, const Result& result) {
  return static_cast<double>(result.right) / static_cast<double>(data.count);
}

/// A digit without most of its empty margin, two pixels per character.
std::vector<std::string> draw(std::span<const std::uint8_t> image) {
  constexpr std::size_t margin = 4;
  constexpr std::uint8_t ink = 96;
  constexpr std::array<std::string_view, 4> blocks{" ", "▀", "▄", "█"};
  std::vector<std::string> lines;
  for (std::size_t y = margin; y < kSide - margin; y += 2) {
    std::string line;
    for (std::size_t x = margin; x < kSide - margin; ++x) {
      const std::size_t upper = image[y * kSide + x] >= ink ? 1 : 0;
      const std::size_t lower = image[(y + 1) * kSide + x] >= ink ? 2 : 0;
      line += blocks[upper + lower];
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

/// Two digits from the start, and the first one that HiF4 gets wrong.
std::string gallery(const Data& data, const Result& hif4_result) {
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < data.count && shown.size() < 2; ++i) {
    if (hif4_result.predictions[i] == data.labels[i]) shown.push_back(i);
  }
  for (std::size_t i = 0; i < data.count && shown.size() < 3; ++i) {
    if (hif4_result.predictions[i] != data.labels[i]) shown.push_back(i);
  }
  TextTable table;
  std::vector<std::vector<std::string>> drawings;
  drawings.reserve(shown.size());
  for (const std::size_t i : shown) {
    drawings.push_back(draw(std::span(data.images).subspan(i * kSide * kSide, kSide * kSide)));
  }
  if (drawings.empty()) return {};
  for (std::size_t y = 0; y < drawings.front().size(); ++y) {
    std::vector<std::string> cells(drawings.size());
    std::transform(drawings.begin(), drawings.end(), cells.begin(), [y](const auto& drawing) { return drawing[y]; });
    table.add(std::move(cells));
  }
  std::vector<std::string> captions;
  for (const std::size_t i : shown) {
    const std::size_t seen = hif4_result.predictions[i];
    captions.push_back(seen == data.labels[i] ? fmt::format("HiF4 says {}", seen)
                                              : fmt::format("HiF4 says {}, wrong: {}", seen, data.labels[i]));
  }
  table.add(std::move(captions));
  return table.text({}, "   ");
}

Json layer_json(const LayerReport& r) {
  return {{"m", r.m},
          {"k", r.k},
          {"n", r.n},
          {"activation_groups", r.activation_groups},
          {"weight_groups", r.weight_groups},
          {"activation_sqnr_db", number_json(r.activation_sqnr)},
          {"weight_sqnr_db", number_json(r.weight_sqnr)},
          {"seconds", r.seconds}};
}

std::string report_text(const Data& data, std::span<const Result> results, std::string_view digest) {
  const Result& in_hif4 = results[1];
  std::string out =
      fmt::format("{} handwritten digits, network 784-256-128-10, every product bit-exact (fma)\n\n", data.count);
  out += "HiF4, layer by layer (M x K times K x N)\n";
  TextTable layers;
  layers.add({"layer", "shape", "groups x", "groups w", "SQNR x", "SQNR w", "time"});
  for (std::size_t i = 0; i < in_hif4.layers.size(); ++i) {
    const LayerReport& r = in_hif4.layers[i];
    layers.add({fmt::format("{}", i + 1), fmt::format("{} x {} x {}", r.m, r.k, r.n),
                fmt::format("{}", r.activation_groups), fmt::format("{}", r.weight_groups),
                fmt::format("{:.2f} dB", r.activation_sqnr), fmt::format("{:.2f} dB", r.weight_sqnr),
                fmt::format("{:.2f} s", r.seconds)});
  }
  const std::array<std::size_t, 5> right{2, 3, 4, 5, 6};
  out += layers.text(right) + "\n" + gallery(data, in_hif4) + "\naccuracy\n";
  TextTable accuracies;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    double seconds = 0;
    for (const LayerReport& r : results[v].layers) seconds += r.seconds;
    accuracies.add({fmt::format("  {}", variants[v].title), fmt::format("{:.1f} %", 100 * accuracy(data, results[v])),
                    fmt::format("{} of {}", results[v].right, data.count), fmt::format("{:.2f} s", seconds)});
  }
  const std::array<std::size_t, 3> numbers{1, 2, 3};
  return out + accuracies.text(numbers) + fmt::format("\nsha256 of the HiF4 logits\n  {}\n", digest);
}

Json report_json(const Data& data, std::span<const Result> results, std::string_view digest) {
  Json json = Json::object();
  json["accuracy"] = Json::object();
  for (std::size_t v = 0; v < variants.size(); ++v) json["accuracy"][variants[v].key] = accuracy(data, results[v]);
  json["images"] = data.count;
  json["layers"] = Json::array();
  for (const LayerReport& report : results[1].layers) json["layers"].push_back(layer_json(report));
  json["logits_sha256"] = digest;
  return json;
}

Expected<Exit> run(const Options& options, const Console& console) {
  const auto directory = find_data(options.data);
  if (!directory) return directory.error();
  const auto data = load(*directory);
  if (!data) return data.error();
  std::vector<Result> results;
  for (const Variant& variant : variants) {
    auto result = run_network(*data, variant, options.threads);
    if (!result) return result.error();
    results.push_back(std::move(*result));
  }
  const auto digest = sha256(std::as_bytes(std::span(results[1].logits)));
  if (!digest) return digest.error();
  const auto printed = console.json() ? console.print_json(report_json(*data, results, *digest))
                                      : console.print(report_text(*data, results, *digest));
  if (!printed) return printed.error();
  return Exit::success;
}

}  // namespace

void add_demo(CLI::App& root, const Console& console, Action& action) {
  CLI::App& command = *root.add_subcommand("demo", "Recognise handwritten digits in HiFloat4, and compare");
  const auto options = std::make_shared<Options>();
  command.add_option("--data", options->data, "Directory with images.npy, labels.npy, w0.npy, b0.npy and so on")
      ->type_name("DIR");
  add_limits(command, options->threads);
  add_json(command);
  add_examples(command,
               "  bitcube demo\n"
               "  bitcube demo --json --threads 1");
  command.callback([=, &console, &action] { action = [=, &console] { return run(*options, console); }; });
}

}  // namespace bitcube::cli
