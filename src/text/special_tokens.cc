#include "text/special_tokens.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep::text {
namespace {

bool is_c_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

SpecialTokens::SpecialTokens(std::vector<SpecialToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(), [](const SpecialToken& a, const SpecialToken& b) {
    return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.id < b.id;
  });
  std::vector<std::string_view> texts;
  texts.reserve(tokens_.size());
  for (const SpecialToken& token : tokens_) texts.push_back(token.text);
  automaton_ = AhoCorasick(texts);
}

int32_t SpecialTokens::allowed(int32_t rank, bool parse_special) const {
  while (rank >= 0 && !parse_special && !tokens_[static_cast<size_t>(rank)].always) {
    rank = automaton_.next_shorter(rank);
  }
  return rank;
}

std::vector<Fragment> SpecialTokens::split(std::string_view text, bool parse_special) const {
  std::vector<Fragment> fragments;
  if (text.empty()) return fragments;

  // Each end position waits in the list of one token: the longest that may still end there. It
  // moves to the next shorter one when its start turns out to be cut already, so the lists never
  // hold more than one entry per byte.
  std::map<int32_t, std::vector<size_t>> waiting;  // by rank, hence longest first
  if (!tokens_.empty()) {
    AhoCorasick::State state = AhoCorasick::kStart;
    for (size_t i = 0; i < text.size(); ++i) {
      state = automaton_.step(state, static_cast<uint8_t>(text[i]));
      const int32_t rank = allowed(automaton_.match(state), parse_special);
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
    size_t begin, end, resume;  // resume: where the text goes on, after dropped white space
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
    const int32_t shorter = allowed(automaton_.next_shorter(rank), parse_special);
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
