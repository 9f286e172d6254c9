// The execution trace: one JSON object per event, one line each, with keys in a fixed order, so that another simulator
// can be held against it line by line. docs/programs.md lists the keys.
#pragma once

#include <string>

#include "bitcube/program/program.hpp"

namespace bitcube::program {

inline constexpr int trace_version = 1;

struct TraceOptions {
  bool checks = false;  // the rules that each command was held against
};

/// The line of one event, without the line feed.
std::string trace_line(const Event& event, const TraceOptions& options = {});

}  // namespace bitcube::program
