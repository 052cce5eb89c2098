// From a text to its id, for texts that are kept elsewhere: open addressing over the ids alone, 8
// to 16 bytes a text. (std::unordered_map takes some 60, which for a vocabulary of 262,144 tokens
// is as much as a twentieth of a small model.)
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace lockstep::text {

class TextIndex {
 public:
  // For at most n_texts texts; fewer than 2^30.
  explicit TextIndex(size_t n_texts = 0) : places_(std::bit_ceil(2 * n_texts + 2), kFree) {}

  // The id of `text`, -1 where it isn't there. text_of(id) gives the text of an id that was added.
  template <typename TextOf>
  int32_t find(std::string_view text, const TextOf& text_of) const {
    return places_[place(text, text_of)];
  }

  // Adds an id under its text; where the text is there already, returns the id that it has and
  // changes nothing, else -1.
  template <typename TextOf>
  int32_t add(int32_t id, const TextOf& text_of) {
    int32_t& found = places_[place(text_of(id), text_of)];
    if (found != kFree) return found;
    found = id;
    return kFree;
  }

 private:
  static constexpr int32_t kFree = -1;

  // Where `text` is, or would go: at least half of the places are free, so the walk ends.
  template <typename TextOf>
  size_t place(std::string_view text, const TextOf& text_of) const {
    const size_t mask = places_.size() - 1;
    size_t at = std::hash<std::string_view>{}(text)&mask;
    while (places_[at] != kFree && text_of(places_[at]) != text) at = (at + 1) & mask;
    return at;
  }

  std::vector<int32_t> places_;  // a power of two of them
};

}  // namespace lockstep::text
