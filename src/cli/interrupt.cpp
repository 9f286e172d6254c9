#include "interrupt.hpp"

#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <string_view>
#include <system_error>
#include <thread>

#include "common.hpp"

namespace bitcube::cli {
namespace {

struct Signal {
  int number;
  std::string_view name;
};
constexpr std::array<Signal, 3> signals{{{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}}};
constexpr std::chrono::milliseconds patience(500);

std::atomic<int> received{0};
std::atomic<bool> told{false};
std::atomic<bool> finished{false};

sigset_t awaited;           // by watch_signals()
sigset_t blocked_at_first;  // before block_signals()

/// Never destroyed: the thread that waits lives until the program ends.
std::stop_source& stop() {
  static auto* const source = new std::stop_source;
  return *source;
}

/// With the action that the system has for the signal.
void raise_again(int number) {
  (void)std::signal(number, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  (void)::raise(number);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);  // it arrives here
}

void wait(sigset_t set, const Console& console) {
  int number = 0;
  while (::sigwait(&set, &number) != 0) {
  }
  received.store(number);
  stop().request_stop();
  std::this_thread::sleep_for(patience);
  if (finished.load()) return;
  const auto lock = abandon_outputs();
  for (const Signal& signal : signals) {
    if (signal.number == number && !told.load()) console.error(fmt::format("stopped by {}", signal.name));
  }
  raise_again(number);
}

}  // namespace

void block_signals() {
  sigemptyset(&awaited);
  for (const Signal& signal : signals) {
    struct sigaction action {};
    // Whoever ignores a signal (nohup) means its children as well.
    if (::sigaction(signal.number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      sigaddset(&awaited, signal.number);
    }
  }
  ::pthread_sigmask(SIG_BLOCK, &awaited, &blocked_at_first);
}

void watch_signals(const Console& console) {
  (void)stop();
  try {
    std::thread(wait, awaited, std::cref(console)).detach();
  } catch (const std::system_error&) {
    // Without it they end the program at once, which leaves nothing behind either where files have no name until they
    // are complete.
    ::pthread_sigmask(SIG_SETMASK, &blocked_at_first, nullptr);
  }
}

std::stop_token interruption() {
  return stop().get_token();
}

void ignore_signals() {
  finished.store(true);
  for (const Signal& signal : signals) (void)std::signal(signal.number, SIG_IGN);  // one that waits is dropped
}

void end_by_signal() {
  told.store(true);
  const int number = received.load();
  if (number != 0) raise_again(number);
}

}  // namespace bitcube::cli
