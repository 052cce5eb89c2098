#include "text/stop_strings.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/error.h"

namespace lockstep::text {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::sort(stops_.begin(), stops_.end());
  stops_.erase(std::unique(stops_.begin(), stops_.end()), stops_.end());
  if (!stops_.empty() && stops_[0].empty()) {
    throw Error(ExitCode::bad_use, "a stop string must not be empty");
  }
  automaton_ = AhoCorasick(std::vector<std::string_view>(stops_.begin(), stops_.end()));
}

std::string StopStrings::push(std::string_view text) {
  if (stopped()) return {};
  held_ += text;
  for (size_t i = held_.size() - text.size(); i < held_.size(); ++i) {
    state_ = automaton_.step(state_, static_cast<uint8_t>(held_[i]));
    stop_ = automaton_.match(state_);
    if (!stopped()) continue;
    held_.resize(i + 1 - stop().size());
    return take(held_.size() - start_);
  }
  return take(held_back() - automaton_.depth(state_));
}

std::string StopStrings::flush() {
  state_ = AhoCorasick::kStart;
  stop_ = -1;
  return take(held_back());
}

std::string StopStrings::take(size_t bytes) {
  std::string out = held_.substr(start_, bytes);
  start_ += bytes;
  if (start_ > held_.size() / 2) {
    held_.erase(0, start_);
    start_ = 0;
  }
  return out;
}

}  // namespace lockstep::text
