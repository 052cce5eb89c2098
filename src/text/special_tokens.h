// Cuts a text at its special tokens, before anything else looks at it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::text {

// A token, or (token < 0) the raw text [begin, end).
struct Fragment {
  int32_t token = -1;
  size_t begin = 0;
  size_t end = 0;
};

struct SpecialToken {
  int32_t id = -1;
  std::string_view text;       // not empty; must outlive the SpecialTokens
  bool always = false;         // cut out even when special tokens are not parsed (user-defined ones)
  bool strip_right = false;    // white space after it is dropped
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
  struct Node {
    uint32_t first_edge = 0, n_edges = 0;   // into edges_, sorted by byte
    uint32_t fail = 0;                      // the longest proper suffix that is a node
    int32_t match = -1;                     // rank of the token that ends here, or of the next
                                            // shorter one that is a suffix of this node
  };
  struct Edge {
    uint8_t byte;
    uint32_t target;
  };

  uint32_t step(uint32_t node, uint8_t byte) const;
  const Edge* edge(uint32_t node, uint8_t byte) const;
  int32_t allowed(int32_t rank, bool parse_special) const;

  std::vector<SpecialToken> tokens_;       // by rank: longest first
  std::vector<int32_t> next_shorter_;      // by rank: the longest other token that is its suffix
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> root_;             // 256 targets of the root
};

}  // namespace lockstep::text
