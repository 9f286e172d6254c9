// bitcube explain matmul and postprocess: how one element of D came about.
#include "bitcube/explain/matmul.hpp"

#include "explain.hpp"
#include "postprocess_arguments.hpp"
#include "product_arguments.hpp"

namespace bitcube::cli {
namespace {

struct At {
  std::size_t row;
  std::size_t col;
};

/// "I,J" of --at.
Expected<At> parse_at(std::string_view text) {
  const auto index = parse_index(text);
  if (!index) return index.error();
  if (index->size() == 2) return At{(*index)[0], (*index)[1]};
  return Error{fmt::format("--at: '{}': an element of D is I,J, such as 3,129", text)};
}

void add_at(CLI::App& command, std::string& at) {
  command.add_option("--at", at, "The element of D: row I, column J, from 0")->type_name("I,J")->required();
}

struct ProductOptions {
  ProductArguments product;
  PostprocessArguments postprocess;
  std::string at;
  bool steps = false;
};

Expected<Exit> run_product(const ProductOptions& options, const Console& console) {
  const auto at = parse_at(options.at);
  if (!at) return at.error();
  const auto input = ProductInput::load(options.product, console);
  if (!input) return input.error();
  const auto post = ResolvedPostprocess::from(options.postprocess, input->accumulator(), input->rows(), console);
  if (!post) return post.error();
  return print_document(explain_matmul(input->a().operand(), input->b().operand(), at->row, at->col, input->options(),
                                       post->options(), options.steps),
                        console);
}

struct StoredOptions {
  std::string input;
  PostprocessArguments postprocess;
  std::string at;
};

Expected<Exit> run_stored(const StoredOptions& options, const Console& console) {
  const auto at = parse_at(options.at);
  if (!at) return at.error();
  const auto accumulators = load_accumulator_matrix(options.input);
  if (!accumulators) return accumulators.error();
  const auto post = ResolvedPostprocess::from(options.postprocess, *accumulators->format, accumulators->rows, console);
  if (!post) return post.error();
  return print_document(explain_postprocess(*accumulators, at->row, at->col, post->options()), console);
}

}  // namespace

void add_explain_matmul(CLI::App& explain, const Console& console, Action& action) {
  CLI::App& command = *explain.add_subcommand(
      "matmul", "One element of a product, from its lanes to D; takes the options of bitcube matmul, writes no file");
  const auto options = std::make_shared<ProductOptions>();
  options->product.add_to(command);
  add_at(command, options->at);
  command.add_flag("--steps", options->steps, "Lane by lane instead of group by group");
  options->postprocess.add_to(command);
  add_memory_limit(command);
  add_json(command);
  add_examples(command,
               "  bitcube explain matmul X.safetensors W.safetensors --at 3,129\n"
               "  bitcube explain matmul A.npy B.npy --at 0,1 --bias b.npy --accumulate group --steps\n"
               "  bitcube explain matmul A.npy B.npy --at 0,1 --pre-quant QF322B8_PRE --scale 0.05 --sat --json");
  command.callback([=, &console, &action] { action = [=, &console] { return run_product(*options, console); }; });
}

void add_explain_postprocess(CLI::App& explain, const Console& console, Action& action) {
  CLI::App& command = *explain.add_subcommand(
      "postprocess",
      "One element of D from stored accumulators; takes the options of bitcube postprocess, writes no file");
  const auto options = std::make_shared<StoredOptions>();
  command.add_option("ACC", options->input, "M x N accumulators: float32 (FP32), int32 (S32) or uint32 (U32)")
      ->type_name("ACC.npy")
      ->required();
  add_at(command, options->at);
  options->postprocess.add_to(command);
  add_memory_limit(command);
  add_json(command);
  add_examples(command,
               "  bitcube explain postprocess ACC.npy --at 3,129 --pre-quant REQ8 --scale 0.05 --offset -3 --sat\n"
               "  bitcube explain postprocess ACC.npy --at 0,0 --relu-param 0.25 --group-max 32:groups.npy --json");
  command.callback([=, &console, &action] { action = [=, &console] { return run_stored(*options, console); }; });
}

}  // namespace bitcube::cli
