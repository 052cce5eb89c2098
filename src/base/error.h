// Errors of Lockstep: one line each, with what is wrong, where, and what to do.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep {

// Process exit codes, documented in README.md. Every Error carries the one it ends the program
// with.
enum class ExitCode : int {
  ok = 0,
  check_failed = 1,    // a comparison or check came out false
  bad_use = 2,         // flags, values, a prompt that cannot fit
  bad_file = 3,        // a model, id list or template file that cannot be used
  resource = 4,        // memory, disk, a closed pipe, a helper process
  control_failed = 5,  // a negative control did not find what was planted
  interrupted = 130,   // SIGINT ended it
  terminated = 143,    // SIGTERM did
};

class Error : public std::runtime_error {
 public:
  // message: one line, no trailing newline. Control characters are escaped here, so that text from
  // files can be quoted in it.
  Error(ExitCode code, std::string_view message);
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Text fit for one line of a terminal: control characters (C0, DEL, C1), line separators and bytes
// that are not UTF-8 as \xNN or \u{N}; at most max_bytes of output, then "...".
std::string escape(std::string_view text, size_t max_bytes = 2000);
// A value that someone gave, as messages quote it: escaped, and cut where it is long.
std::string shorten(std::string_view text);

}  // namespace lockstep
