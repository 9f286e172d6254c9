// The calls of four_ways.py through the C++ library: a list of calls in, their results out. It looks names up itself,
// so that a wrong code of the C interface is not repeated here.
//
// bindings_four_ways CALLS DATA RESULTS. A call is a line `NUMBER KIND KEY=VALUE ...`; arrays are `OFFSET:SIZE`, bytes
// in DATA. A result is a line `NUMBER NAME SIZE` and then its bytes.
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/matrix_operand.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"
#include "bitcube/quantize/convert_array.hpp"
#include "bitcube/quantize/tensor.hpp"

namespace {

using namespace bitcube;

template <typename T>
T value_of(Expected<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

template <typename Row>
const Row& found(const Row* row, std::string_view name) {
  if (row == nullptr) throw std::runtime_error("no such thing as " + std::string(name));
  return *row;
}

/// The arguments of one call.
class Arguments {
 public:
  Arguments(std::istream& line, const std::string& data) : data_(data) {
    std::string word;
    while (line >> word) values_[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }

  bool has(const std::string& key) const { return values_.contains(key); }
  const std::string& text(const std::string& key) const { return values_.at(key); }
  uint64 number(const std::string& key) const { return std::stoull(text(key)); }
  bool flag(const std::string& key) const { return number(key) != 0; }
  std::vector<uint64> numbers(const std::string& key) const {
    std::vector<uint64> out;
    std::istringstream parts(text(key));
    for (std::string part; std::getline(parts, part, ',');) out.push_back(std::stoull(part));
    return out;
  }

  std::span<const std::byte> bytes(const std::string& key) const {
    const std::string& range = text(key);
    const std::size_t colon = range.find(':');
    return std::as_bytes(std::span(data_).subspan(std::stoull(range), std::stoull(range.substr(colon + 1))));
  }
  /// Nothing where the call has no such array.
  template <typename Word>
  std::vector<Word> words(const std::string& key) const {
    if (!has(key)) return {};
    const auto from = bytes(key);
    std::vector<Word> out(from.size() / sizeof(Word));
    if (!out.empty()) std::memcpy(out.data(), from.data(), from.size());
    return out;
  }

  const Format& format(const std::string& key) const { return found(find_format(text(key)), text(key)); }
  std::optional<Rounding> rounding(const std::string& key) const {
    if (!has(key)) return std::nullopt;
    return found(find_rounding(text(key)), text(key)).mode;
  }
  Execution execution() const { return {.threads = static_cast<unsigned>(number("threads"))}; }

 private:
  std::span<const char> data_;
  std::map<std::string, std::string> values_;
};

/// The results of one call.
class Results {
 public:
  explicit Results(std::string number) : number_(std::move(number)) {}

  void add(std::string_view name, std::span<const std::byte> bytes) {
    text_ += number_ + " " + std::string(name) + " " + std::to_string(bytes.size()) + "\n";
    for (const std::byte b : bytes) text_ += static_cast<char>(b);
  }
  template <typename Words>
  void add_words(std::string_view name, const Words& words) {
    add(name, std::as_bytes(std::span(words.data(), words.size())));
  }
  void add(Flags flags) { add("flags", std::as_bytes(std::span(&flags, 1))); }
  const std::string& text() const { return text_; }

 private:
  std::string number_;
  std::string text_;
};

void convert_call(const Arguments& arguments, Results& results) {
  const Format& from = arguments.format("from");
  const Format& to = arguments.format("to");
  const EncodeControl control{
      .rounding = arguments.rounding("rounding").value_or(default_rounding(from.is_integer(), to)),
      .saturate = arguments.flag("saturate"),
      .profile = &found(find_conversion_profile(arguments.text("profile")), arguments.text("profile"))};
  const std::span<const std::byte> words = arguments.bytes("x");
  if (!from.is_packed() && !to.is_packed()) {
    const ConvertedArray out = value_of(convert_array(words, from, to, control, arguments.execution()));
    results.add("words", out.words);
    results.add(out.flags);
    return;
  }
  // Types with two lanes per byte are no arrays; their lanes are converted one by one.
  const std::size_t size = from.carrier_bits / 8U;
  std::vector<std::byte> out;
  Flags flags = Flags::none;
  for (std::size_t i = 0; i < words.size(); i += size) {
    uint64 word = 0;
    std::memcpy(&word, words.data() + i, size);
    const Encoded code = convert(from, to, word, control);
    const auto bytes = std::as_bytes(std::span(&code.bits, 1)).first(to.carrier_bits / 8U);
    out.insert(out.end(), bytes.begin(), bytes.end());
    flags |= code.flags;
  }
  results.add("words", out);
  results.add(flags);
}

/// The tensor that the arguments with this prefix describe.
QuantizedTensor quantized(const Arguments& arguments, const std::string& prefix) {
  QuantizeOptions options;
  const std::string& format = arguments.text(prefix + "format");
  options.format = &found(find_block_format(format), format);
  if (arguments.has(prefix + "hif4")) options.profile = find_hif4_profile(arguments.text(prefix + "hif4"));
  if (arguments.has(prefix + "scale")) options.scale_rule = find_scale_rule(arguments.text(prefix + "scale"));
  options.rounding = arguments.rounding(prefix + "rounding").value_or(Rounding::rne);
  options.tensor_scale = arguments.has(prefix + "tensor_scale");
  options.execution = arguments.execution();
  return value_of(quantize(arguments.bytes(prefix + "x"), arguments.format(prefix + "source"),
                           arguments.numbers(prefix + "shape"), arguments.number(prefix + "axis"), options));
}

void quantize_call(const Arguments& arguments, Results& results) {
  const QuantizedTensor tensor = quantized(arguments, "");
  results.add("codes", tensor.codes);
  results.add("scales", tensor.scales);
  if (tensor.tensor_scale) results.add("tensor_scale", std::as_bytes(std::span(&*tensor.tensor_scale, 1)));
  const Dequantized values =
      value_of(dequantize(tensor, arguments.format("destination"), arguments.rounding("back").value_or(Rounding::rne),
                          arguments.execution()));
  results.add("values", values.bytes);
  results.add(values.flags);
}

void postprocess_accumulators(const Accumulators& accumulators, const Arguments& arguments, Results& results) {
  const std::vector<uint64> carriers = arguments.words<uint64>("carriers");
  const std::vector<uint64> alphas = arguments.words<uint64>("alphas");
  const std::vector<std::uint32_t> init = arguments.words<std::uint32_t>("row_max_init");
  PostprocessOptions options;
  options.mode = &found(find_prequant(arguments.text("mode")), arguments.text("mode"));
  options.quant_carriers = carriers;
  options.relu = static_cast<Relu>(arguments.number("relu"));
  options.activation_carriers = alphas;
  options.rounding = arguments.rounding("rounding");
  options.saturate = arguments.flag("saturate");
  options.profile = &found(find_conversion_profile(arguments.text("profile")), arguments.text("profile"));
  options.row_max = arguments.flag("row_max");
  if (arguments.has("row_max_init")) options.row_max_init = init;
  options.group_n = static_cast<unsigned>(arguments.number("group_n"));
  options.max_abs = arguments.flag("max_abs");
  options.execution = arguments.execution();
  const Postprocessed out = value_of(postprocess(accumulators, options));
  results.add_words("d", arguments.flag("packed") ? packed_rows(out) : out.d);
  if (options.row_max) results.add_words("row_max", out.row_max);
  if (options.group_n != 0) results.add_words("group_max", out.group_max);
  results.add(out.flags);
}

/// One side of a product, with what its operand refers to.
struct Factor {
  Factor(Side side, const Arguments& arguments) {
    const std::string prefix = side == Side::a ? "a_" : "b_";
    if (arguments.has(prefix + "format")) {
      tensor = quantized(arguments, prefix);
      operand = value_of(quantized_operand(side, tensor));
      return;
    }
    const std::vector<uint64> shape = arguments.numbers(prefix + "shape");
    operand =
        matrix_operand(side, arguments.format(prefix + "type"), arguments.bytes(prefix + "x"), shape[0], shape[1]);
    if (arguments.has(prefix + "scales")) attach_scales(side, operand, arguments.bytes(prefix + "scales"));
  }
  Factor(const Factor&) = delete;
  Factor& operator=(const Factor&) = delete;

  QuantizedTensor tensor;
  Operand operand;
};

void matmul_call(const Arguments& arguments, Results& results) {
  const Factor a(Side::a, arguments);
  const Factor b(Side::b, arguments);
  const std::vector<std::uint32_t> c = arguments.words<std::uint32_t>("c");
  const std::vector<std::uint32_t> bias = arguments.words<std::uint32_t>("bias");
  MatmulOptions options;
  options.profile = &found(find_accumulation_profile(arguments.text("accumulate")), arguments.text("accumulate"));
  if (arguments.has("c")) options.c = c;
  if (arguments.has("bias")) options.bias = bias;
  options.execution = arguments.execution();
  postprocess_accumulators(value_of(matmul(a.operand, b.operand, options)), arguments, results);
}

void postprocess_call(const Arguments& arguments, Results& results) {
  const std::vector<uint64> shape = arguments.numbers("shape");
  Accumulators accumulators{&arguments.format("accumulator"), shape[0], shape[1], {}};
  const std::vector<std::uint32_t> words = arguments.words<std::uint32_t>("x");
  accumulators.words.assign(words.begin(), words.end());
  postprocess_accumulators(accumulators, arguments, results);
}

std::string result_of(const std::string& number, const std::string& kind, const Arguments& arguments) {
  Results results(number);
  try {
    if (kind == "convert") {
      convert_call(arguments, results);
    } else if (kind == "quantize") {
      quantize_call(arguments, results);
    } else if (kind == "matmul") {
      matmul_call(arguments, results);
    } else if (kind == "postprocess") {
      postprocess_call(arguments, results);
    } else {
      throw std::runtime_error("no such call as " + kind);
    }
    return results.text();
  } catch (const std::exception& e) {
    Results refused(number);
    refused.add("refused", std::as_bytes(std::span(std::string_view(e.what()))));
    return refused.text();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  std::ifstream calls(argv[1]);
  std::ifstream data(argv[2], std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(data), {}};
  std::ofstream results(argv[3], std::ios::binary);
  for (std::string text; std::getline(calls, text);) {
    std::istringstream line(text);
    std::string number;
    std::string kind;
    line >> number >> kind;
    results << result_of(number, kind, Arguments(line, bytes));
  }
  results.close();
  return results ? 0 : 1;
}
