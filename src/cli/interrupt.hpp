// Signals that end the program: Ctrl-C, kill, a terminal that is closed.
#pragma once

#include <stop_token>

namespace bitcube::cli {

class Console;

/// Waits for SIGINT, SIGTERM and SIGHUP (those that are not ignored) on a thread of its own from now on. On the first
/// of them a stop is requested of the work, which fails with "cancelled", removes what it has begun and says so. What
/// does not stop within half a second, because it waits for a disk or for a pipe, is ended all the same, by then
/// without unfinished outputs. Call it once, before any other thread starts: they inherit that these signals are
/// blocked.
void watch_signals(const Console& console);

/// What long calls take as Execution::cancel.
std::stop_token interruption();

/// Ends the program by the signal that came, as whoever started it expects; returns if none came.
void end_by_signal();

}  // namespace bitcube::cli
