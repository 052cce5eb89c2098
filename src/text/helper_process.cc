#include "text/helper_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

extern char** environ;

namespace lockstep::text {

bool HelperProcess::start(const std::vector<std::string>& argv) {
  stop();
  // A socket instead of two pipes: send() can be told not to raise SIGPIPE.
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    start_error_ = errno;
    failure_ = Failure::start;
    return false;
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  // Its own group, so that Ctrl-C at the terminal is the parent's business alone.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const int error =
      posix_spawn(&pid_, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    pid_ = -1;
    start_error_ = error;
    failure_ = Failure::start;
    return false;
  }
  socket_ = ends[0];
  failure_ = Failure::none;
  return true;
}

void HelperProcess::stop() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  pid_ = -1;
}

std::optional<std::string> HelperProcess::fail(Failure failure) {
  stop();
  failure_ = failure;
  return std::nullopt;
}

// none: there is something to read or write.
HelperProcess::Failure HelperProcess::wait_for(short events, Clock::time_point deadline,
                                               const std::atomic<int>* cancel) {
  for (;;) {
    if (cancel && *cancel != 0) return Failure::cancelled;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return Failure::timed_out;
    pollfd poll_fd{socket_, events, 0};
    // Short waits: a signal between the look at cancel and the poll would not end it.
    const int n = poll(&poll_fd, 1, static_cast<int>(std::min<int64_t>(left, 100)));
    if (n > 0) return Failure::none;
    if (n < 0 && errno != EINTR) return Failure::timed_out;
  }
}

std::optional<std::string> HelperProcess::ask(const std::string& line, Clock::time_point deadline,
                                              size_t max_reply_bytes,
                                              const std::atomic<int>* cancel) {
  if (!running()) return fail(Failure::died);
  const std::string request = line + "\n";
  std::string reply;
  // Both ways at once: the child may answer, and even end, before it has read everything.
  size_t sent = 0;
  std::vector<char> buffer(65536);
  for (;;) {
    if (sent < request.size()) {
      const ssize_t n = send(socket_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (n > 0) sent += static_cast<size_t>(n);
      if (n < 0 && errno != EAGAIN && errno != EINTR) sent = request.size();  // it reads no more
    }
    const ssize_t n = recv(socket_, buffer.data(), buffer.size(), 0);
    if (n > 0) {
      reply.append(buffer.data(), static_cast<size_t>(n));
      if (reply.back() == '\n') {  // it sends nothing on its own, so this is the end of the line
        reply.pop_back();
        return reply;
      }
      if (reply.size() > max_reply_bytes) return fail(Failure::too_long);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      return fail(Failure::died);
    } else {
      const short events = sent < request.size() ? POLLIN | POLLOUT : POLLIN;
      const Failure failure = wait_for(events, deadline, cancel);
      if (failure != Failure::none) return fail(failure);
    }
  }
}

}  // namespace lockstep::text
