// The subcommands of `explain`, one file each.
#pragma once

#include "bitcube/document.hpp"
#include "common.hpp"

namespace bitcube::cli {

void add_explain_matmul(CLI::App& explain, const Console& console, Action& action);
void add_explain_postprocess(CLI::App& explain, const Console& console, Action& action);
void add_explain_convert(CLI::App& explain, const Console& console, Action& action);
void add_explain_quantize(CLI::App& explain, const Console& console, Action& action);
void add_explain_word(CLI::App& explain, const Console& console, Action& action);
void add_explain_fault(CLI::App& explain, const Console& console, Action& action);

/// --at: "3,129", one number per dimension.
Expected<std::vector<uint64>> parse_index(std::string_view text);

/// As text, or with --json as JSON.
Expected<Exit> print_document(const Expected<Document>& document, const Console& console);

}  // namespace bitcube::cli
