#include "text/utf8_stream.h"

#include <cstdint>
#include <utility>

namespace lockstep::text {
namespace {

constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

// Length of the character that a lead byte starts; 0: no character starts with it (table 3-7).
size_t length_of(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// Whether byte may come at place index (1 to 3) after this lead byte. Only the second byte depends
// on the lead: it is what rules out overlong forms, surrogates and numbers above U+10FFFF.
bool may_continue(uint8_t lead, size_t index, uint8_t byte) {
  uint8_t low = 0x80, high = 0xBF;
  if (index == 1) {
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  }
  return byte >= low && byte <= high;
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  std::string out;
  out.reserve(pending_.size() + bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (!pending_.empty()) {
      const auto lead = static_cast<uint8_t>(pending_[0]);
      if (may_continue(lead, pending_.size(), byte)) {
        pending_.push_back(c);
        if (pending_.size() == length_of(lead)) {
          out += pending_;
          pending_.clear();
        }
        continue;
      }
      out += kReplacementUtf8;
      pending_.clear();
    }
    switch (length_of(byte)) {
      case 0:
        out += kReplacementUtf8;
        break;
      case 1:
        out.push_back(c);
        break;
      default:
        pending_.push_back(c);
    }
  }
  return out;
}

std::string Utf8Stream::flush() {
  return std::exchange(pending_, {}).empty() ? std::string() : std::string(kReplacementUtf8);
}

std::string well_formed_utf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string out = stream.push(bytes);
  return out += stream.flush();
}

}  // namespace lockstep::text
