// What SIGINT and SIGTERM do while something is being written.
#pragma once

#include <signal.h>

#include <atomic>

#include "base/error.h"

namespace lockstep::app {

// While one lives, a signal is kept in flag(), for the work to look at and end in order, and wakes
// a read; a second one before clear() ends the process at once, as it would without this. A signal
// that was ignored stays ignored (nohup, a shell's background job). One at a time.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  static const std::atomic<int>& flag();  // the signal; 0: none came
  static void clear();                    // forgets a SIGINT
  static bool interrupted() { return flag() == SIGINT; }
  static bool terminated() { return flag() == SIGTERM; }
  // As a shell sees a process that a signal ended: 128 + its number; ok: none came.
  static ExitCode exit_code();

 private:
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
};

}  // namespace lockstep::app
