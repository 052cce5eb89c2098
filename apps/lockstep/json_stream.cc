#include "json_stream.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "output.h"

namespace lockstep::app {
namespace {

constexpr size_t kBufferBytes = 1 << 16;

}  // namespace

JsonStream::JsonStream() {
  buffer_.reserve(kBufferBytes);
  begin('{');
}

void JsonStream::put(std::string_view text) {
  if (buffer_.size() + text.size() > kBufferBytes) {
    print(buffer_);
    buffer_.clear();
  }
  if (text.size() > kBufferBytes) return print(text);
  buffer_ += text;
}

void JsonStream::new_line() {
  put("\n");
  for (int i = 0; i <= depth_; ++i) put("  ");
}

// The outermost members and the containers of a list have lines of their own; what is in them stays
// on it.
void JsonStream::separate(bool container) {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (depth_ < 0) return;
  Level& level = levels_[depth_];
  if (!level.empty) put(",");
  if (depth_ == 0 || (level.array && container)) {
    level.lines = true;
    new_line();
  } else if (!level.empty) {
    put(" ");
  }
  level.empty = false;
}

void JsonStream::begin(char bracket) {
  separate(true);
  if (++depth_ >= kMaxDepth) throw std::logic_error("JSON stream: too deep");
  levels_[depth_] = {.array = bracket == '['};
  put({&bracket, 1});
}

void JsonStream::end(char bracket) {
  const bool lines = levels_[depth_--].lines;
  if (lines) new_line();
  put({&bracket, 1});
}

void JsonStream::finish() {
  end('}');
  put("\n");
  print(buffer_);
  buffer_.clear();
}

JsonStream& JsonStream::key(std::string_view name) {
  separate(false);
  quote(name);
  put(": ");
  after_key_ = true;
  return *this;
}

void JsonStream::value(std::string_view text) {
  separate(false);
  quote(text);
}

void JsonStream::value(double number) {
  if (!std::isfinite(number)) return value(nullptr);
  separate(false);
  char text[40];
  const auto written = std::to_chars(text, text + sizeof text, number);
  const std::string_view digits(text, static_cast<size_t>(written.ptr - text));
  put(digits);
  // Readers that know integers should not take it for one.
  if (digits.find_first_of(".e") == std::string_view::npos) put(".0");
}

void JsonStream::value(std::nullptr_t) {
  separate(false);
  put("null");
}

void JsonStream::boolean(bool value) {
  separate(false);
  put(value ? "true" : "false");
}

void JsonStream::integer(int64_t number) {
  separate(false);
  char text[24];
  const auto written = std::to_chars(text, text + sizeof text, number);
  put({text, static_cast<size_t>(written.ptr - text)});
}

void JsonStream::quote(std::string_view text) {
  put("\"");
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    put(text.substr(start, i - start));
    char escaped[8];
    if (byte < 0x20) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(byte));
    } else {
      std::snprintf(escaped, sizeof escaped, "\\%c", byte);
    }
    put(escaped);
    start = i + 1;
  }
  put(text.substr(start));
  put("\"");
}

}  // namespace lockstep::app
