#include "text/special_tokens.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep::text {
namespace {

bool is_c_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

SpecialTokens::SpecialTokens(std::vector<SpecialToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(), [](const SpecialToken& a, const SpecialToken& b) {
    return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.id < b.id;
  });

  std::vector<std::map<uint8_t, uint32_t>> children(1);
  std::vector<int32_t> ends(1, -1);
  for (size_t rank = 0; rank < tokens_.size(); ++rank) {
    uint32_t node = 0;
    for (const char c : tokens_[rank].text) {
      const auto [it, added] = children[node].try_emplace(static_cast<uint8_t>(c),
                                                          static_cast<uint32_t>(children.size()));
      node = it->second;
      if (added) {
        children.emplace_back();
        ends.push_back(-1);
      }
    }
    ends[node] = static_cast<int32_t>(rank);
  }

  nodes_.resize(children.size());
  for (size_t i = 0; i < children.size(); ++i) {
    nodes_[i].first_edge = static_cast<uint32_t>(edges_.size());
    nodes_[i].n_edges = static_cast<uint32_t>(children[i].size());
    for (const auto& [byte, target] : children[i]) edges_.push_back({byte, target});
  }
  root_.assign(256, 0);
  for (const auto& [byte, target] : children[0]) root_[byte] = target;

  // Breadth first, so that a node's fail node, being shorter, is finished before it.
  next_shorter_.assign(tokens_.size(), -1);
  std::vector<uint32_t> queue{0};
  for (size_t i = 0; i < queue.size(); ++i) {
    const uint32_t node = queue[i];
    for (const auto& [byte, target] : children[node]) {
      nodes_[target].fail = node == 0 ? 0 : step(nodes_[node].fail, byte);
      const int32_t suffix = nodes_[nodes_[target].fail].match;
      nodes_[target].match = ends[target] >= 0 ? ends[target] : suffix;
      if (ends[target] >= 0) next_shorter_[static_cast<size_t>(ends[target])] = suffix;
      queue.push_back(target);
    }
  }
}

const SpecialTokens::Edge* SpecialTokens::edge(uint32_t node, uint8_t byte) const {
  const Edge* begin = edges_.data() + nodes_[node].first_edge;
  const Edge* end = begin + nodes_[node].n_edges;
  const Edge* it = std::lower_bound(begin, end, byte,
                                    [](const Edge& e, uint8_t value) { return e.byte < value; });
  return it != end && it->byte == byte ? it : nullptr;
}

uint32_t SpecialTokens::step(uint32_t node, uint8_t byte) const {
  while (node != 0) {
    if (const Edge* e = edge(node, byte)) return e->target;
    node = nodes_[node].fail;
  }
  return root_[byte];
}

int32_t SpecialTokens::allowed(int32_t rank, bool parse_special) const {
  while (rank >= 0 && !parse_special && !tokens_[static_cast<size_t>(rank)].always) {
    rank = next_shorter_[static_cast<size_t>(rank)];
  }
  return rank;
}

std::vector<Fragment> SpecialTokens::split(std::string_view text, bool parse_special) const {
  std::vector<Fragment> fragments;
  if (text.empty()) return fragments;

  // Each end position waits in the list of one token: the longest that may still end there. It moves
  // to the next shorter one when its start turns out to be cut already, so the lists never hold more
  // than one entry per byte.
  std::map<int32_t, std::vector<size_t>> waiting;   // by rank, hence longest first
  if (!tokens_.empty()) {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = step(node, static_cast<uint8_t>(text[i]));
      const int32_t rank = allowed(nodes_[node].match, parse_special);
      if (rank >= 0) waiting[rank].push_back(i + 1);
    }
  }
  if (waiting.empty()) {
    fragments.push_back({-1, 0, text.size()});
    return fragments;
  }

  // What is cut already is at least as long as what is being looked for, so two pieces overlap
  // exactly when the first or the last byte of the new one is taken.
  std::vector<bool> taken(text.size(), false);
  struct Cut {
    size_t begin, end, resume;   // resume: where the text goes on, after dropped white space
    int32_t token;
  };
  std::vector<Cut> cuts;
  while (!waiting.empty()) {
    const auto first = waiting.begin();
    const int32_t rank = first->first;
    std::vector<size_t> ends = std::move(first->second);
    waiting.erase(first);
    std::sort(ends.begin(), ends.end());
    const SpecialToken& token = tokens_[static_cast<size_t>(rank)];
    const int32_t shorter = allowed(next_shorter_[static_cast<size_t>(rank)], parse_special);
    for (const size_t end : ends) {
      const size_t begin = end - token.text.size();
      if (taken[end - 1]) continue;
      if (taken[begin]) {
        if (shorter >= 0) waiting[shorter].push_back(end);
        continue;
      }
      size_t resume = end;
      if (token.strip_right) {
        while (resume < text.size() && !taken[resume] && is_c_space(text[resume])) ++resume;
      }
      std::fill(taken.begin() + static_cast<std::ptrdiff_t>(begin),
                taken.begin() + static_cast<std::ptrdiff_t>(resume), true);
      cuts.push_back({begin, end, resume, token.id});
    }
  }

  std::sort(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) { return a.begin < b.begin; });
  size_t at = 0;
  for (const Cut& cut : cuts) {
    if (cut.begin > at) fragments.push_back({-1, at, cut.begin});
    fragments.push_back({cut.token, cut.begin, cut.end});
    at = cut.resume;
  }
  if (at < text.size()) fragments.push_back({-1, at, text.size()});
  return fragments;
}

}  // namespace lockstep::text
