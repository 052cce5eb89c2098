#include "failure.h"

#include <cxxabi.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>
#include <typeinfo>

#include "base/error.h"

namespace lockstep::app {
namespace {

// Only what a signal handler may call: no memory, no stdio, no destructors.
[[noreturn]] void end(std::string_view line, ExitCode code) {
  // A standard error that cannot be written changes nothing about the exit code.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(static_cast<int>(code));
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  if (info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR) {
    end("lockstep: a mapped file got shorter while it was read, or its disk cannot be read; leave "
        "the model file alone while it is in use, and start again\n",
        ExitCode::bad_file);
  }
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

// A destructor that needs memory while an exception unwinds (nlohmann's JSON values are so), and a
// thread that runs out of it, come here rather than to main.
void on_terminate() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type && *type == typeid(std::bad_alloc)) {
    end("lockstep: out of memory; use a smaller model, context (-c) or text\n", ExitCode::resource);
  }
  std::abort();
}

}  // namespace

void install_failure_handlers() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
  std::set_terminate(on_terminate);
}

}  // namespace lockstep::app
