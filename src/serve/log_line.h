// The log: what happened, for people and for programs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "serve/error.h"

namespace lockstep::serve {

// Something that happened, for the log.
struct LogLine {
  uint64_t request = 0;  // its number; 0: of none
  std::string event;     // "answer", "end", "failed", "gone", "stopping", "note"
  std::string text;
  Json fields = Json::object();  // what the text says, for programs
};
std::string text_line(const LogLine& line);
// One object: time (UTC), event, request, the fields, message.
std::string json_line(const LogLine& line, std::chrono::system_clock::time_point now);

}  // namespace lockstep::serve
