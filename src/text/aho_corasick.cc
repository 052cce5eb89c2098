#include "text/aho_corasick.h"

#include <algorithm>
#include <map>

namespace lockstep::text {

AhoCorasick::AhoCorasick(std::span<const std::string_view> patterns)
    : next_shorter_(patterns.size(), -1), from_start_(256, kStart) {
  std::vector<std::map<uint8_t, State>> children(1);
  std::vector<int32_t> ends(1, -1);
  for (size_t i = 0; i < patterns.size(); ++i) {
    State state = kStart;
    for (const char c : patterns[i]) {
      const auto [it, added] =
          children[state].try_emplace(static_cast<uint8_t>(c), static_cast<State>(children.size()));
      state = it->second;
      if (added) {
        children.emplace_back();
        ends.push_back(-1);
      }
    }
    ends[state] = static_cast<int32_t>(i);
  }

  nodes_.resize(children.size());
  for (size_t i = 0; i < children.size(); ++i) {
    nodes_[i].first_edge = static_cast<uint32_t>(edges_.size());
    nodes_[i].n_edges = static_cast<uint32_t>(children[i].size());
    for (const auto& [byte, target] : children[i]) edges_.push_back({byte, target});
  }
  for (const auto& [byte, target] : children[kStart]) from_start_[byte] = target;

  // Breadth first, so that a node's fail node, being shallower, is finished before it.
  std::vector<State> queue{kStart};
  for (size_t i = 0; i < queue.size(); ++i) {
    const State state = queue[i];
    for (const auto& [byte, target] : children[state]) {
      Node& node = nodes_[target];
      node.depth = nodes_[state].depth + 1;
      node.fail = state == kStart ? kStart : step(nodes_[state].fail, byte);
      node.match = nodes_[node.fail].match;
      if (ends[target] >= 0) {
        next_shorter_[static_cast<size_t>(ends[target])] = node.match;
        node.match = ends[target];
      }
      queue.push_back(target);
    }
  }
}

const AhoCorasick::Edge* AhoCorasick::edge(State state, uint8_t byte) const {
  const Edge* begin = edges_.data() + nodes_[state].first_edge;
  const Edge* end = begin + nodes_[state].n_edges;
  const Edge* it = std::lower_bound(begin, end, byte,
                                    [](const Edge& e, uint8_t value) { return e.byte < value; });
  return it != end && it->byte == byte ? it : nullptr;
}

AhoCorasick::State AhoCorasick::step(State state, uint8_t byte) const {
  while (state != kStart) {
    if (const Edge* e = edge(state, byte)) return e->target;
    state = nodes_[state].fail;
  }
  return from_start_[byte];
}

}  // namespace lockstep::text
