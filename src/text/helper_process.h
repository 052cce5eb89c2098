// A child process that answers lines with lines.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::text {

class HelperProcess {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Failure { none, start, died, timed_out, too_long, cancelled };

  HelperProcess() = default;
  ~HelperProcess() { stop(); }
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  // Starts argv[0] with stdin and stdout connected to this object, stderr closed off, no other open
  // file, and no signal blocked or ignored. False: it could not be started; start_error() is
  // the errno (ENOENT: no such program).
  bool start(const std::vector<std::string>& argv);
  bool running() const { return pid_ > 0; }
  int start_error() const { return start_error_; }

  // Sends line and a newline, and returns the line that comes back. On failure the child is
  // stopped. A closed child never raises SIGPIPE here. cancel: where a signal handler says, by
  // anything but 0, that nobody waits for the reply any more; may be null.
  std::optional<std::string> ask(const std::string& line, Clock::time_point deadline,
                                 size_t max_reply_bytes, const std::atomic<int>* cancel = nullptr);
  Failure failure() const { return failure_; }  // why the last ask() returned nothing

  void stop();  // kills and reaps

 private:
  std::optional<std::string> fail(Failure failure);
  Failure wait_for(short events, Clock::time_point deadline, const std::atomic<int>* cancel);

  pid_t pid_ = -1;
  int socket_ = -1;
  int start_error_ = 0;
  Failure failure_ = Failure::none;
};

}  // namespace lockstep::text
