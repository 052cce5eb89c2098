// Strict JSON, byte by byte: what a value that is still being written is, so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::serve {

// Follows one object from its opening brace to its closing one.
class JsonScanner {
 public:
  static constexpr size_t kMaxDepth = 64;

  enum class Event : uint8_t {
    none,
    key_begins,    // its opening quote
    key_ends,      // its closing quote
    value_begins,  // the first byte of a member's or element's value
    value_ends,    // the last one, of a string, an object or an array
  };
  // The next byte. Of bad() there is no way back.
  Event feed(char c);

  bool bad() const { return state_ == State::bad; }
  bool done() const { return state_ == State::done; }
  // Objects and arrays that are open.
  size_t depth() const { return open_.size(); }

 private:
  enum class State : uint8_t {
    start,
    key_or_end,  // after {
    key,         // after the comma of an object
    colon,
    value_or_end,  // after [
    value,         // after a colon, or the comma of an array
    after,         // a value has ended
    string,
    escape,
    hex,
    literal,
    minus,
    zero,
    digits,
    point,
    fraction,
    exponent,
    exponent_sign,
    exponent_digits,
    done,
    bad,
  };
  Event value(char c);
  Event close(char c);
  Event number(char c);
  Event string_byte(char c);
  Event fail();

  State state_ = State::start;
  std::vector<char> open_;  // '{' or '['
  bool is_key_ = false;     // the string
  int hex_left_ = 0;
  std::string_view rest_;  // of the literal
};

}  // namespace lockstep::serve
