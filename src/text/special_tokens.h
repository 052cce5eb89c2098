// Cuts a text at its special tokens, before anything else looks at it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/aho_corasick.h"

namespace lockstep::text {

// A token, or (token < 0) the raw text [begin, end).
struct Fragment {
  int32_t token = -1;
  size_t begin = 0;
  size_t end = 0;
};

struct SpecialToken {
  int32_t id = -1;
  std::string_view text;     // not empty; must outlive the SpecialTokens
  bool always = false;       // cut out even when special tokens are not parsed (user-defined ones)
  bool strip_right = false;  // white space after it is dropped
};

// The rule is llama.cpp's: take the tokens from the longest to the shortest (equal lengths: by id),
// and cut every occurrence, left to right, out of the text that is still uncut. It is carried out
// with one Aho-Corasick automaton over all tokens, so the cost follows the text and not the number
// of tokens (Gemma 3 has 6,400).
class SpecialTokens {
 public:
  SpecialTokens() = default;
  explicit SpecialTokens(std::vector<SpecialToken> tokens);

  // Fragments in order; none is empty. parse_special: tokens that are not `always` count too.
  std::vector<Fragment> split(std::string_view text, bool parse_special) const;

 private:
  int32_t allowed(int32_t rank, bool parse_special) const;

  std::vector<SpecialToken> tokens_;  // by rank: longest first
  AhoCorasick automaton_;             // patterns are ranks
};

}  // namespace lockstep::text
