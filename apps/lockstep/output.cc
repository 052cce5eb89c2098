#include "output.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "serve/log_line.h"

namespace lockstep::app {
namespace {

// True when all of text was written.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::atomic<bool> notes_as_json{false};  // as standard error itself, the whole process's

}  // namespace

void print(std::string_view text) {
  if (write_all(STDOUT_FILENO, text)) return;
  if (errno == EPIPE) {
    throw Error(ExitCode::resource,
                "standard output: its reader has closed the pipe before the end of the result");
  }
  throw Error(ExitCode::resource, std::string("standard output: cannot be written: ") +
                                      std::strerror(errno) + "; the result is not whole");
}

void print_json(const Json& object) {
  print(object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void print_error(std::string_view text) {
  write_all(STDERR_FILENO, text);
}

void write_notes_as_json() {
  notes_as_json = true;
}

void note(std::string_view line) {
  if (notes_as_json) {
    serve::LogLine object;
    object.event = "note";
    object.text = line;
    return print_error(serve::json_line(object, std::chrono::system_clock::now()) + "\n");
  }
  print_error("lockstep: " + escape(line) + "\n");
}

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) == 1) {}
Progress::~Progress() {
  clear();
}

void Progress::show(std::string_view line) {
  if (!terminal_) return;
  print_error("\r\x1b[K" + std::string(line));
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  print_error("\r\x1b[K");
  shown_ = false;
}

bool stdin_is_terminal() {
  return ::isatty(STDIN_FILENO) == 1;
}
bool stdout_is_terminal() {
  return ::isatty(STDOUT_FILENO) == 1;
}

std::string for_terminal(std::string_view text) {
  std::string out;
  size_t start = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] != '\n' && text[i] != '\t') continue;
    out += escape(text.substr(start, i - start), text.size() * 8 + 16);
    if (i < text.size()) out += text[i];
    start = i + 1;
  }
  return out;
}

}  // namespace lockstep::app
