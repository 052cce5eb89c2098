// Finds the first of many fixed words in a line, in one pass over its bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::lab::log {

// The automaton of Aho and Corasick ("Efficient string matching: an aid to bibliographic search",
// CACM 18(6), 1975), with every transition filled in: one table look-up a byte.
class WordFinder {
 public:
  // Up to 255 words of two bytes or more. Where two end at the same byte the longer one is found.
  explicit WordFinder(std::span<const std::string_view> words);

  struct Match {
    size_t word;   // its index
    size_t begin;  // offsets in the line
    size_t end;
  };
  // The word that ends first, at or after offset `from`.
  std::optional<Match> find(std::string_view line, size_t from = 0) const {
    size_t i = from;
    while (true) {
      // At the root: on to the next two bytes with which a word begins.
      while (i + 1 < line.size() && !begins(line[i], line[i + 1])) ++i;
      if (i + 1 >= line.size()) return std::nullopt;
      uint16_t state = 0;
      do {
        state = next_[size_t{state} * 256 + static_cast<uint8_t>(line[i++])];
        if (word_[state] >= 0) {
          const auto word = static_cast<size_t>(word_[state]);
          return Match{word, i - length_[word], i};
        }
      } while (state != 0 && i < line.size());
    }
  }

 private:
  static size_t pair_of(char a, char b) {
    return size_t{static_cast<uint8_t>(a)} << 8 | static_cast<uint8_t>(b);
  }
  bool begins(char a, char b) const {
    const size_t pair = pair_of(a, b);
    return (pairs_[pair / 64] >> (pair % 64) & 1) != 0;
  }

  std::vector<uint16_t> next_;  // [state * 256 + byte]
  std::vector<int16_t> word_;   // the word that ends in a state, or -1
  std::vector<size_t> length_;  // of a word
  std::vector<uint64_t> pairs_ = std::vector<uint64_t>(1024);  // a bit for each first two bytes
};

}  // namespace lockstep::lab::log
