// Bytes in as they come, whole characters out: what is printed is always well-formed UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::text {

// Ill-formed input becomes U+FFFD, one for each maximal subpart (Unicode 15.1, section 3.9, D93b:
// what browsers and Python do). The output depends on the bytes alone and not on how they were cut.
class Utf8Stream {
 public:
  // The characters that are complete now.
  std::string push(std::string_view bytes);
  // The end: a character that was begun becomes U+FFFD. The stream may then be used anew.
  std::string flush();
  // Bytes held back: 0 to 3.
  size_t pending() const { return pending_.size(); }

 private:
  std::string pending_;  // the start of one character, valid so far
};

// The whole of bytes at once.
std::string well_formed_utf8(std::string_view bytes);

}  // namespace lockstep::text
