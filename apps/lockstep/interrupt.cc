#include "interrupt.h"

namespace lockstep::app {
namespace {

std::atomic<int> signal_that_came{0};
static_assert(std::atomic<int>::is_always_lock_free);  // a signal handler sets it

void on_signal(int number) {
  if (signal_that_came.exchange(number) == 0) return;
  // The second: whoever sends it does not want to wait.
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void handle(int number, struct sigaction& old) {
  ::sigaction(number, nullptr, &old);
  if (old.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigemptyset(&action.sa_mask);  // no SA_RESTART: the read of a line has to return
  ::sigaction(number, &action, nullptr);
}

}  // namespace

Interrupts::Interrupts() {
  signal_that_came = 0;
  handle(SIGINT, old_int_);
  handle(SIGTERM, old_term_);
}

Interrupts::~Interrupts() {
  ::sigaction(SIGINT, &old_int_, nullptr);
  ::sigaction(SIGTERM, &old_term_, nullptr);
}

const std::atomic<int>& Interrupts::flag() {
  return signal_that_came;
}

void Interrupts::clear() {
  int interrupt = SIGINT;
  signal_that_came.compare_exchange_strong(interrupt, 0);
}

ExitCode Interrupts::exit_code() {
  if (interrupted()) return ExitCode::interrupted;
  if (terminated()) return ExitCode::terminated;
  return ExitCode::ok;
}

}  // namespace lockstep::app
