#include "base/error.h"

#include <cstdint>
#include <cstdio>

namespace lockstep {
namespace {

// Length of the well-formed UTF-8 sequence at text[i] (Unicode 15, table 3-7), and its code point;
// 0 where there is none.
size_t decode_utf8(std::string_view text, size_t i, uint32_t& code_point) {
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[k]); };
  const uint8_t lead = byte(i);
  if (lead < 0x80) {
    code_point = lead;
    return 1;
  }
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || i + length > text.size()) return 0;
  code_point = lead & (0x7Fu >> length);
  for (size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xC0) != 0x80) return 0;
    code_point = code_point << 6 | (byte(i + k) & 0x3Fu);
  }
  if ((length == 3 && code_point < 0x800) || (length == 4 && code_point < 0x10000) ||
      code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) {
    return 0;
  }
  return length;
}

}  // namespace

std::string escape(std::string_view text, size_t max_bytes) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (out.size() >= max_bytes) return out + "...";
    uint32_t code_point = 0;
    const size_t length = decode_utf8(text, i, code_point);
    char buffer[16];
    if (length == 0) {
      std::snprintf(buffer, sizeof buffer, "\\x%02X",
                    static_cast<unsigned>(static_cast<uint8_t>(text[i])));
      out += buffer;
      ++i;
      continue;
    }
    const bool control = code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0);
    // Line and paragraph separators and the bidirectional controls can hide or reorder a line.
    const bool layout = code_point == 0x2028 || code_point == 0x2029 ||
                        (code_point >= 0x202A && code_point <= 0x202E) ||
                        (code_point >= 0x2066 && code_point <= 0x2069);
    if (code_point == '\n') {
      out += "\\n";
    } else if (code_point == '\t') {
      out += "\\t";
    } else if (control) {
      std::snprintf(buffer, sizeof buffer, "\\x%02X", static_cast<unsigned>(code_point));
      out += buffer;
    } else if (layout) {
      std::snprintf(buffer, sizeof buffer, "\\u{%X}", static_cast<unsigned>(code_point));
      out += buffer;
    } else {
      out += text.substr(i, length);
    }
    i += length;
  }
  return out;
}

std::string shorten(std::string_view text) {
  return escape(text, 100);
}

Error::Error(ExitCode code, std::string_view message)
    : std::runtime_error(escape(message)), code_(code) {}

}  // namespace lockstep
