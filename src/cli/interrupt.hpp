// Signals that end the program: Ctrl-C, kill, a terminal that is closed.
#pragma once

#include <stop_token>

namespace bitcube::cli {

class Console;

/// Holds off SIGINT, SIGTERM and SIGHUP (those that are not ignored) until watch_signals() waits for them. Call it
/// before any other thread starts: they inherit it.
void block_signals();

/// Waits for the signals that block_signals() holds off, on a thread of its own from now on. On the first
/// of them a stop is requested of the work, which fails with "cancelled", removes what it has begun and says so. What
/// does not stop within half a second, because it waits for a disk or for a pipe, is ended all the same, by then
/// without unfinished outputs. Call it once.
void watch_signals(const Console& console);

/// What long calls take as Execution::cancel.
std::stop_token interruption();

/// From now on no signal ends the program, also none that came before: its work is complete, and it ends by itself.
void ignore_signals();

/// Ends the program by the signal that came, as whoever started it expects; returns if none came. One that comes later
/// says nothing any more: why the program ends has been told.
void end_by_signal();

}  // namespace bitcube::cli
