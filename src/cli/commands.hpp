// One function per subcommand: it declares the options to CLI11, and what the command does if it is the one.
#pragma once

#include "common.hpp"

namespace bitcube::cli {

void add_formats(CLI::App& root, const Console& console, Action& action);
void add_convert(CLI::App& root, const Console& console, Action& action);
void add_quantize(CLI::App& root, const Console& console, Action& action);
void add_inspect(CLI::App& root, const Console& console, Action& action);
void add_dequantize(CLI::App& root, const Console& console, Action& action);
void add_report(CLI::App& root, const Console& console, Action& action);
void add_matmul(CLI::App& root, const Console& console, Action& action);
void add_postprocess(CLI::App& root, const Console& console, Action& action);
void add_diff(CLI::App& root, const Console& console, Action& action);
void add_demo(CLI::App& root, const Console& console, Action& action);
void add_conform(CLI::App& root, const Console& console, Action& action);
void add_vectors(CLI::App& root, const Console& console, Action& action);
void add_gen(CLI::App& root, const Console& console, Action& action);
void add_explain(CLI::App& root, const Console& console, Action& action);
void add_study(CLI::App& root, const Console& console, Action& action);
void add_asm(CLI::App& root, const Console& console, Action& action);
void add_disasm(CLI::App& root, const Console& console, Action& action);
void add_run(CLI::App& root, const Console& console, Action& action);
void add_completion(CLI::App& root, const Console& console, Action& action);

/// Marks the arguments of `convert` that are negative numbers (-1, -0x1p3, -inf), so that CLI11 takes none of them for
/// an option.
void mark_negative_values(std::vector<std::string>& arguments);

}  // namespace bitcube::cli
