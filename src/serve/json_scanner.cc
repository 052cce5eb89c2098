#include "serve/json_scanner.h"

namespace lockstep::serve {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace

JsonScanner::Event JsonScanner::fail() {
  state_ = State::bad;
  return Event::none;
}

JsonScanner::Event JsonScanner::feed(char c) {
  switch (state_) {
    case State::done:
    case State::bad:
      return fail();
    case State::start:
      if (c != '{') return fail();
      open_.push_back(c);
      state_ = State::key_or_end;
      return Event::none;
    case State::string:
    case State::escape:
    case State::hex:
      return string_byte(c);
    case State::literal:
      if (c != rest_.front()) return fail();
      rest_.remove_prefix(1);
      if (rest_.empty()) state_ = State::after;
      return Event::none;
    case State::minus:
    case State::zero:
    case State::digits:
    case State::point:
    case State::fraction:
    case State::exponent:
    case State::exponent_sign:
    case State::exponent_digits:
      return number(c);
    default:
      break;
  }
  if (is_space(c)) return Event::none;
  switch (state_) {
    case State::key_or_end:
      if (c == '}') return close(c);
      [[fallthrough]];
    case State::key:
      if (c != '"') return fail();
      is_key_ = true;
      state_ = State::string;
      return Event::key_begins;
    case State::colon:
      if (c != ':') return fail();
      state_ = State::value;
      return Event::none;
    case State::value_or_end:
      if (c == ']') return close(c);
      return value(c);
    case State::value:
      return value(c);
    case State::after:
      if (c != ',') return close(c);
      state_ = open_.back() == '{' ? State::key : State::value;
      return Event::none;
    default:
      return fail();
  }
}

JsonScanner::Event JsonScanner::value(char c) {
  switch (c) {
    case '{':
    case '[':
      if (open_.size() >= kMaxDepth) return fail();
      open_.push_back(c);
      state_ = c == '{' ? State::key_or_end : State::value_or_end;
      break;
    case '"':
      is_key_ = false;
      state_ = State::string;
      break;
    case 't':
    case 'f':
    case 'n':
      rest_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
      state_ = State::literal;
      break;
    case '-':
      state_ = State::minus;
      break;
    default:
      if (!is_digit(c)) return fail();
      state_ = c == '0' ? State::zero : State::digits;
  }
  return Event::value_begins;
}

JsonScanner::Event JsonScanner::close(char c) {
  if (c != (open_.back() == '{' ? '}' : ']')) return fail();
  open_.pop_back();
  state_ = open_.empty() ? State::done : State::after;
  return Event::value_ends;
}

JsonScanner::Event JsonScanner::number(char c) {
  const bool digit = is_digit(c);
  switch (state_) {
    case State::minus:
      if (!digit) return fail();
      state_ = c == '0' ? State::zero : State::digits;
      return Event::none;
    case State::point:
      if (!digit) return fail();
      state_ = State::fraction;
      return Event::none;
    case State::exponent:
      if (c == '+' || c == '-') {
        state_ = State::exponent_sign;
        return Event::none;
      }
      [[fallthrough]];
    case State::exponent_sign:
      if (!digit) return fail();
      state_ = State::exponent_digits;
      return Event::none;
    default:
      break;
  }
  if (digit && state_ != State::zero) return Event::none;
  if (c == '.' && (state_ == State::zero || state_ == State::digits)) {
    state_ = State::point;
    return Event::none;
  }
  if ((c == 'e' || c == 'E') && state_ != State::exponent_digits) {
    state_ = State::exponent;
    return Event::none;
  }
  // The number has ended before this byte.
  state_ = State::after;
  return feed(c);
}

JsonScanner::Event JsonScanner::string_byte(char c) {
  constexpr std::string_view kEscapes = "\"\\/bfnrt";
  switch (state_) {
    case State::escape:
      if (c == 'u') {
        hex_left_ = 4;
        state_ = State::hex;
      } else if (kEscapes.find(c) != std::string_view::npos) {
        state_ = State::string;
      } else {
        return fail();
      }
      return Event::none;
    case State::hex:
      if (!is_hex(c)) return fail();
      if (--hex_left_ == 0) state_ = State::string;
      return Event::none;
    default:
      break;
  }
  if (c == '\\') {
    state_ = State::escape;
  } else if (c == '"') {
    state_ = is_key_ ? State::colon : State::after;
    return is_key_ ? Event::key_ends : Event::value_ends;
  } else if (static_cast<unsigned char>(c) < 0x20) {
    return fail();
  }
  return Event::none;
}

}  // namespace lockstep::serve
