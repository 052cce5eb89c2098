#include "lab/html/html_text.h"

#include "base/error.h"

namespace lockstep::lab {

std::string html_text(std::string_view text, size_t max_bytes) {
  std::string out;
  for (const char c : escape(text, max_bytes)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace lockstep::lab
