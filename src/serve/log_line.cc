#include "serve/log_line.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "serve/reply.h"

namespace lockstep::serve {

std::string text_line(const LogLine& line) {
  return line.request == 0 ? line.text : fmt::format("request {}: {}", line.request, line.text);
}

std::string json_line(const LogLine& line, std::chrono::system_clock::time_point now) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  Json object = {{"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                                      fmt::gmtime(static_cast<std::time_t>(ms.count() / 1000)),
                                      ms.count() % 1000)},
                 {"event", line.event}};
  if (line.request != 0) object["request"] = line.request;
  for (const auto& [name, value] : line.fields.items()) object[name] = value;
  object["message"] = line.text;
  return dump(object);
}

}  // namespace lockstep::serve
