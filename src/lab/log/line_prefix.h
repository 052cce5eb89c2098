// What stands to the left of a log line's own words, and what has to be taken off before they can
// be looked for: colours, a JSON wrapper, the prefixes of docker, journald and of the server
// itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::lab::log {

// What the left side of a line says. Views are into the line.
struct Prefix {
  std::string_view source;  // "llama-1" (docker compose), "llama-server[4242]" (journald), or ""
  std::optional<int64_t> time_us;  // since the server's start: the four dotted groups
  std::optional<int64_t> slot;
  std::optional<int64_t> task;
  bool keyed = false;  // INFO [ function] words | key=value
};

// left: the line up to the payload. whole: the line (ik_llama.cpp and the oldest servers write
// id_slot= and id_task= to the right of the words).
Prefix read_prefix(std::string_view left, std::string_view whole);

// Takes colour codes (ECMA-48 CSI ... m and the other final letters) out of a line. The result is
// the line itself where it has none, else it is in `scratch`.
std::string_view without_colours(std::string_view line, std::string& scratch);

// A line that is a JSON object of a logger: its text, unescaped.
struct JsonLine {
  std::string text;                // may hold several lines
  std::optional<int64_t> time_us;  // llama-server's --log-jsonl
  std::optional<int64_t> slot, task;
  bool keyed =
      false;  // ik_llama.cpp's: the other keys stand behind the text, as in its plain lines
};
// Reads {"type":"log",...,"msg":"..."} (llama-server --log-jsonl), {"tid":...,"msg":"...",
// "id_slot":...} (ik_llama.cpp --log-format json), {"log":"..."} (docker's json-file) and
// {"MESSAGE":"..."} (journalctl -o json). nullopt for any other line.
std::optional<JsonLine> read_json_line(std::string_view line);

}  // namespace lockstep::lab::log
