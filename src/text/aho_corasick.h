// Finds many strings at once (Aho and Corasick: "Efficient string matching", CACM 1975).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::text {

class AhoCorasick {
 public:
  using State = uint32_t;
  static constexpr State kStart = 0;

  AhoCorasick() : AhoCorasick(std::span<const std::string_view>()) {}
  // patterns: not empty, all different; they are not kept.
  explicit AhoCorasick(std::span<const std::string_view> patterns);

  // Amortised constant time along a text.
  State step(State state, uint8_t byte) const;
  // The longest pattern that ends here, by its index; -1 if none does.
  int32_t match(State state) const { return nodes_[state].match; }
  // The longest other pattern that is a suffix of this one; -1 if there is none.
  int32_t next_shorter(int32_t pattern) const {
    return next_shorter_[static_cast<size_t>(pattern)];
  }
  // How many of the last bytes may still become a pattern.
  uint32_t depth(State state) const { return nodes_[state].depth; }

 private:
  struct Node {
    uint32_t first_edge = 0, n_edges = 0;  // into edges_, sorted by byte
    State fail = kStart;                   // the longest proper suffix that is a node
    uint32_t depth = 0;
    int32_t match = -1;
  };
  struct Edge {
    uint8_t byte;
    State target;
  };
  const Edge* edge(State state, uint8_t byte) const;

  std::vector<int32_t> next_shorter_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<State> from_start_;  // 256 targets: most bytes of most texts are looked up here
};

}  // namespace lockstep::text
