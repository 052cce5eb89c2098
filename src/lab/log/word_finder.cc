#include "lab/log/word_finder.h"

#include <stdexcept>

namespace lockstep::lab::log {

WordFinder::WordFinder(std::span<const std::string_view> words) {
  constexpr uint16_t kNone = 0xFFFF;
  const auto add_state = [&] {
    next_.resize(next_.size() + 256, kNone);
    word_.push_back(-1);
    return static_cast<uint16_t>(word_.size() - 1);
  };
  add_state();
  for (size_t w = 0; w < words.size(); ++w) {
    if (words[w].size() < 2) throw std::logic_error("a word of one byte to find");
    const size_t pair = pair_of(words[w][0], words[w][1]);
    pairs_[pair / 64] |= uint64_t{1} << (pair % 64);
    uint16_t state = 0;
    for (const char c : words[w]) {
      const size_t at = size_t{state} * 256 + static_cast<uint8_t>(c);
      if (next_[at] == kNone) {
        const uint16_t made = add_state();
        next_[at] = made;
      }
      state = next_[at];
    }
    word_[state] = static_cast<int16_t>(w);
    length_.push_back(words[w].size());
  }
  // Breadth first, so that a state's fallback is complete before the state.
  std::vector<uint16_t> queue, fallback(word_.size(), 0);
  for (size_t byte = 0; byte < 256; ++byte) {
    uint16_t& next = next_[byte];
    if (next == kNone) {
      next = 0;
    } else {
      queue.push_back(next);
    }
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    const uint16_t state = queue[i];
    const uint16_t back = fallback[state];
    if (word_[state] < 0) word_[state] = word_[back];
    for (size_t byte = 0; byte < 256; ++byte) {
      uint16_t& next = next_[size_t{state} * 256 + byte];
      const uint16_t other = next_[size_t{back} * 256 + byte];
      if (next == kNone) {
        next = other;
      } else {
        fallback[next] = other;
        queue.push_back(next);
      }
    }
  }
}

}  // namespace lockstep::lab::log
