// Stop strings: ends a text where one of several strings appears, wherever the tokens' borders
// fall.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/aho_corasick.h"

namespace lockstep::text {

// The text ends before the stop string that is complete first; of several that are complete at the
// same byte the longest counts. So the result depends on the text alone and not on how it was cut.
// Linear in the text.
class StopStrings {
 public:
  StopStrings() = default;
  // Throws Error(bad_use) for an empty stop string. Repeated ones count once.
  explicit StopStrings(std::vector<std::string> stops);

  // Appends text; returns what can no longer become part of a stop string, and after a stop
  // nothing.
  std::string push(std::string_view text);
  // The end of the text: what was held back. The object may then be used for another text.
  std::string flush();

  bool stopped() const { return stop_ >= 0; }
  // The stop string that ended the text; empty while there is none.
  std::string_view stop() const {
    return stopped() ? stops_[static_cast<size_t>(stop_)] : std::string_view();
  }
  size_t held_back() const { return held_.size() - start_; }

 private:
  std::string take(size_t bytes);

  std::vector<std::string> stops_;
  AhoCorasick automaton_;
  AhoCorasick::State state_ = AhoCorasick::kStart;
  std::string held_;  // from start_ on: the last automaton_.depth(state_) bytes
  size_t start_ = 0;  // what lies before is given out; it is dropped now and then, to stay linear
  int stop_ = -1;
};

}  // namespace lockstep::text
