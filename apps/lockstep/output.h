// Results go to standard output, everything else to standard error.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lockstep::app {

// Keys keep the order in which docs/json.md lists them.
using Json = nlohmann::ordered_json;

// Writes all of text to standard output at once. Throws Error(resource) when the reader has closed
// it or its disk is full: a result that was cut must not look like a whole one.
void print(std::string_view text);
void print_json(const Json& object);

// One line on standard error, "lockstep: " before it. Never throws: a closed standard error loses
// messages, not results.
void note(std::string_view line);
// From here on every note is an object, {"time", "message"}, for programs that read logs.
void write_notes_as_json();
// Raw text on standard error (progress, the closing line).
void print_error(std::string_view text);

// Progress that overwrites its own line on a terminal and stays silent elsewhere.
class Progress {
 public:
  Progress();
  ~Progress();
  void show(std::string_view line);
  void clear();

 private:
  bool terminal_ = false;
  bool shown_ = false;
};

bool stdin_is_terminal();
bool stdout_is_terminal();
// Text of a model fit for a terminal: control characters other than newline and tab are escaped, so
// that a model cannot move the cursor or set the title.
std::string for_terminal(std::string_view text);

}  // namespace lockstep::app
