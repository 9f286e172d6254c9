// The subcommands of `explain`, one file each.
#pragma once

#include "bitcube/document.hpp"
#include "common.hpp"

namespace bitcube::cli {

void add_explain_matmul(CLI::App& explain, const Console& console, Action& action);
void add_explain_postprocess(CLI::App& explain, const Console& console, Action& action);
void add_explain_word(CLI::App& explain, const Console& console, Action& action);

/// As text, or with --json as JSON.
Expected<Exit> print_document(const Expected<Document>& document, const Console& console);

}  // namespace bitcube::cli
