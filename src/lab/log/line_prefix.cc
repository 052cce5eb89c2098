#include "lab/log/line_prefix.h"

#include <charconv>
#include <cstring>

#include "lab/log/scan.h"

namespace lockstep::lab::log {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
         c == '.';
}

// Where `word` stands last. (std::string_view::rfind compares at every place.)
size_t find_last(std::string_view text, std::string_view word) {
  while (text.size() >= word.size()) {
    const auto* last =
        static_cast<const char*>(::memrchr(text.data(), word[0], text.size() - word.size() + 1));
    if (!last) break;
    const auto at = static_cast<size_t>(last - text.data());
    if (text.substr(at, word.size()) == word) return at;
    text = text.substr(0, at + word.size() - 1);
  }
  return std::string_view::npos;
}

std::optional<int64_t> number_after(std::string_view text, std::string_view word,
                                    int64_t largest = int64_t{1} << 36) {
  const size_t at = find_last(text, word);
  if (at == std::string_view::npos) return std::nullopt;
  int64_t value = 0;
  if (!Scan(text.substr(at + word.size())).integer(value, largest).ok()) return std::nullopt;
  return value;
}

// Reads minutes.SS.mmm.uuu that begins at `at`; the length read, or 0.
size_t read_elapsed(std::string_view text, size_t at, int64_t& time_us) {
  size_t i = at;
  int64_t minutes = 0;
  while (i < text.size() && is_digit(text[i]) && i - at < 9)
    minutes = minutes * 10 + (text[i++] - '0');
  if (i == at) return 0;
  int64_t part[3] = {0, 0, 0};
  constexpr size_t kDigits[3] = {2, 3, 3};
  for (size_t p = 0; p < 3; ++p) {
    if (i + kDigits[p] >= text.size() || text[i] != '.') return 0;
    ++i;
    for (size_t k = 0; k < kDigits[p]; ++k, ++i) {
      if (!is_digit(text[i])) return 0;
      part[p] = part[p] * 10 + (text[i] - '0');
    }
  }
  if (i < text.size() && text[i] != ' ') return 0;
  time_us = ((minutes * 60 + part[0]) * 1000 + part[1]) * 1000 + part[2];
  return i - at;
}

std::optional<int64_t> find_elapsed(std::string_view left) {
  for (size_t i = 0; i < left.size(); ++i) {
    if (!is_digit(left[i]) || (i > 0 && left[i - 1] != ' ')) continue;
    int64_t time_us = 0;
    if (read_elapsed(left, i, time_us) > 0) return time_us;
  }
  return std::nullopt;
}

std::string_view find_source(std::string_view left) {
  // docker compose: "name-1  | ".
  size_t end = 0;
  while (end < left.size() && is_name(left[end])) ++end;
  if (end > 0) {
    size_t bar = end;
    while (bar < left.size() && left[bar] == ' ') ++bar;
    if (bar + 1 < left.size() && left[bar] == '|' && left[bar + 1] == ' ')
      return left.substr(0, end);
  }
  // journald: "... unit[4242]: ".
  for (size_t close = left.find("]: "); close != std::string_view::npos;
       close = left.find("]: ", close + 1)) {
    size_t open = close;
    while (open > 0 && is_digit(left[open - 1])) --open;
    if (open == close || open < 2 || left[open - 1] != '[') continue;
    size_t begin = open - 1;
    while (begin > 0 && is_name(left[begin - 1])) --begin;
    if (begin < open - 1) return left.substr(begin, close + 1 - begin);
  }
  return {};
}

void append_code_point(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

// Unescapes a JSON string that begins after its quote; false where it doesn't end in the line (it
// was cut), and what there is has been appended.
bool unescape(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') return true;
    if (text[i] != '\\' || i + 1 >= text.size()) {
      out += text[i];
      continue;
    }
    switch (text[++i]) {
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case 'r':
        out += '\r';
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'u': {
        unsigned code = 0;
        const std::string_view digits = text.substr(i + 1, 4);
        const auto [end, error] =
            std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
        if (error == std::errc{} && digits.size() == 4 && end == digits.data() + 4) i += 4;
        append_code_point(out, code);
        break;
      }
      default:
        out += text[i];
    }
  }
  return false;
}

// " key=value" of an object's member that is a number or a boolean; "" where it has none.
std::string keyed_text(std::string_view object, std::string_view key) {
  const std::string name = "\"" + std::string(key) + "\":";
  const size_t at = object.find(name);
  if (at == std::string_view::npos) return "";
  std::string_view value = object.substr(at + name.size());
  value = value.substr(0, value.find_first_of(",} "));
  if (value.empty() || value.size() > 20) return "";
  return " " + std::string(key) + "=" + std::string(value);
}

}  // namespace

Prefix read_prefix(std::string_view left, std::string_view whole) {
  Prefix prefix;
  prefix.source = find_source(left);
  prefix.time_us = find_elapsed(left);
  prefix.task = number_after(left, "| task ");
  if (prefix.task) {
    prefix.slot = number_after(left.substr(0, find_last(left, "| task ")), ": id ");
  } else {
    prefix.slot = number_after(whole, " id_slot=");
    prefix.task = number_after(whole, " id_task=");
    prefix.keyed = prefix.slot && whole.find("] ") != std::string_view::npos;
  }
  return prefix;
}

std::string_view without_colours(std::string_view line, std::string& scratch) {
  size_t escape = line.find('\x1B');
  if (escape == std::string_view::npos) return line;
  scratch.clear();
  while (escape != std::string_view::npos) {
    scratch += line.substr(0, escape);
    size_t end = escape + 1;
    if (end < line.size() && line[end] == '[') {
      ++end;
      while (end < line.size() && (is_digit(line[end]) || line[end] == ';')) ++end;
      if (end < line.size()) ++end;  // the final letter
    }
    line.remove_prefix(end);
    escape = line.find('\x1B');
  }
  scratch += line;
  return scratch;
}

std::optional<JsonLine> read_json_line(std::string_view line) {
  const size_t open = line.find('{');
  if (open == std::string_view::npos || open + 1 >= line.size() || line[open + 1] != '"') {
    return std::nullopt;
  }
  // Only what a logger puts before it: nothing, or a prefix of docker or journald.
  if (open > 200) return std::nullopt;
  const std::string_view object = line.substr(open);
  for (const std::string_view key : {"\"msg\":", "\"log\":", "\"MESSAGE\":"}) {
    const size_t at = object.find(key);
    if (at == std::string_view::npos) continue;
    std::string_view value = object.substr(at + key.size());
    while (value.starts_with(' ')) value.remove_prefix(1);
    if (!value.starts_with('"')) continue;
    value.remove_prefix(1);
    JsonLine out;
    unescape(value, out.text);
    while (out.text.ends_with('\n')) out.text.pop_back();
    if (object.starts_with("{\"type\":\"log\"")) {
      out.time_us = number_after(object.substr(0, at), "\"time\":", int64_t{1} << 53);
    }
    out.slot = number_after(object, "\"id_slot\":");
    out.task = number_after(object, "\"id_task\":");
    out.keyed = object.find("\"tid\":") != std::string_view::npos &&
                object.find("\"function\":") != std::string_view::npos;
    if (out.keyed) {
      out.text += " |";
      for (const std::string_view name :
           {"build", "commit", "n_slots", "n_past", "truncated", "p0"}) {
        out.text += keyed_text(object, name);
      }
    }
    return out;
  }
  return std::nullopt;
}

}  // namespace lockstep::lab::log
