#include "text/unicode.h"

#include <algorithm>
#include <iterator>

namespace lockstep::text {
namespace {

constexpr uint32_t kRanges[] = {
#include "text/char_classes.inc"
};

CharClass look_up(uint32_t code_point) {
  // The last range that starts at or before code_point; the class bits never reach the next start.
  const uint32_t* after =
      std::upper_bound(std::begin(kRanges), std::end(kRanges), code_point << 3 | 7);
  return static_cast<CharClass>(after[-1] & 7);
}

struct AsciiClasses {
  CharClass of[128];
  AsciiClasses() {
    for (uint32_t c = 0; c < 128; ++c) of[c] = look_up(c);
  }
};

bool continues(uint8_t byte) {
  return (byte & 0xC0) == 0x80;
}

}  // namespace

CharClass char_class(uint32_t code_point) {
  static const AsciiClasses ascii;
  if (code_point < 128) return ascii.of[code_point];
  return code_point <= 0x10FFFF ? look_up(code_point) : CharClass::other;
}

void append_utf8(std::string& out, uint32_t code_point) {
  const auto tail = [&](int shift) {
    out.push_back(static_cast<char>(0x80 | (code_point >> shift & 0x3F)));
  };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xC0 | code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::vector<uint32_t> lenient_code_points(std::string_view text) {
  std::vector<uint32_t> code_points;
  code_points.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    if (lead < 0x80) {
      code_points.push_back(lead);
      ++i;
      continue;
    }
    const size_t length = announced_length(lead);
    bool whole = lead >= 0xC0 && lead < 0xF8 && i + length <= text.size();
    uint32_t code_point = lead & (0x7Fu >> length);
    for (size_t k = 1; whole && k < length; ++k) {
      const auto byte = static_cast<uint8_t>(text[i + k]);
      whole = continues(byte);
      code_point = code_point << 6 | (byte & 0x3Fu);
    }
    if (whole && code_point <= 0x10FFFF) {
      code_points.push_back(code_point);
      i += length;
    } else {
      code_points.push_back(kReplacement);
      ++i;
    }
  }
  return code_points;
}

}  // namespace lockstep::text
