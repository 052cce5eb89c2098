#include "serve/call_reader.h"

#include <nlohmann/json.hpp>

namespace lockstep::serve {
namespace {

// A JSON string's text; false where it has half a surrogate pair.
bool decode(const std::string& quoted, std::string& text) {
  const auto value = nlohmann::json::parse(quoted, nullptr, false);
  if (!value.is_string()) return false;
  text = value.get<std::string>();
  return true;
}

}  // namespace

CallReader::State CallReader::end_key() {
  std::string key;
  if (!decode(text_, key)) return State::bad;
  member_ = Member::other;
  if (key == "name") {
    if (has_name_) return State::bad;
    member_ = Member::name;
  } else if (key == "arguments" || key == "parameters") {
    if (has_arguments_) return State::bad;
    member_ = Member::arguments;
  }
  return State::more;
}

CallReader::State CallReader::feed(char c) {
  using Event = JsonScanner::Event;
  const bool in_arguments = member_ == Member::arguments && has_arguments_ && !arguments_end_;
  const Event event = scanner_.feed(c);
  if (scanner_.bad()) return State::bad;
  if (in_arguments) {
    arguments_ += c;
    if (event == Event::value_ends && scanner_.depth() == 1) arguments_end_ = true;
    return State::more;
  }
  if (recording_) text_ += c;
  if (scanner_.depth() == 1 && event == Event::key_begins) {
    recording_ = true;
    text_ = c;
  } else if (scanner_.depth() == 1 && event == Event::key_ends) {
    recording_ = false;
    return end_key();
  } else if (event == Event::value_begins && member_ == Member::name && !has_name_) {
    if (c != '"') return State::bad;
    recording_ = true;
    text_ = c;
  } else if (event == Event::value_ends && recording_) {
    recording_ = false;
    if (!decode(text_, name_) || name_.empty()) return State::bad;
    has_name_ = true;
  } else if (event == Event::value_begins && member_ == Member::arguments && !has_arguments_) {
    if (c != '{') return State::bad;
    has_arguments_ = true;
    arguments_ = c;
  }
  if (!scanner_.done()) return State::more;
  if (!has_name_) return State::bad;
  if (!has_arguments_) arguments_ = "{}";
  return State::done;
}

}  // namespace lockstep::serve
