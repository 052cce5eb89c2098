#include "draft/chain.h"

#include <algorithm>
#include <limits>

namespace lockstep::draft {
namespace {

// Appends one of the lists beside the tokens; either may be missing.
template <typename T>
void append_list(std::vector<T>& list, size_t before, const std::vector<T>& more, size_t n,
                 T missing) {
  if (list.empty() && more.empty()) return;
  list.resize(before, missing);
  list.insert(list.end(), more.begin(),
              more.begin() + static_cast<ptrdiff_t>(std::min(n, more.size())));
  list.resize(before + n, missing);
}

}  // namespace

ChainSource::ChainSource(Sources sources)
    : CompositeSource(std::move(sources), "chain:", '+'), proposed_(this->sources().size()) {}

Proposal ChainSource::extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                             int n_max) {
  Proposal whole;
  std::vector<int32_t> before(draft.begin(), draft.end());
  std::fill(proposed_.begin(), proposed_.end(), 0);
  size_t first_part = 0;
  for (size_t i = 0; i < sources().size(); ++i) {
    const size_t had = whole.tokens.size();
    const int left = n_max - static_cast<int>(had);
    if (left < 1) break;
    Proposal more = sources()[i]->extend(history, before, left);
    more.cut(static_cast<size_t>(left));
    const size_t n = more.tokens.size();
    number_parts(more, first_part);
    whole.behind |= more.behind;
    append_list(whole.confidence, had, more.confidence, n, std::numeric_limits<float>::quiet_NaN());
    append_list(whole.match, had, more.match, n, 0);
    append_list(whole.part, had, more.part, n, uint8_t{0});
    whole.tokens.insert(whole.tokens.end(), more.tokens.begin(), more.tokens.end());
    before.insert(before.end(), more.tokens.begin(), more.tokens.end());
    proposed_[i] = static_cast<int>(n);
    first_part += sources()[i]->parts().size();
  }
  return whole;
}

void ChainSource::observe(std::span<const int32_t> history, int accepted) {
  for (size_t i = 0; i < sources().size(); ++i) {
    const int own = std::clamp(accepted, 0, proposed_[i]);
    sources()[i]->observe(history, own);
    accepted -= own;
  }
}

}  // namespace lockstep::draft
