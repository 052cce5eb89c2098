#include "draft/ngram.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "draft/continuation.h"

namespace lockstep::draft {

NgramSource::NgramSource(NgramOptions options) {
  if (options.shortest < 1 || options.longest < options.shortest || options.longest > 64) {
    throw Error(ExitCode::bad_use, fmt::format("ngram lengths {} to {}: they must lie in 1 to 64",
                                               options.shortest, options.longest));
  }
  for (int n = options.longest; n >= options.shortest; --n) indexes_.push_back({n, {}, {}});
}

uint64_t NgramSource::hash(int64_t end, int n) {
  operations_ += n;
  // FNV-1a over whole ids, then a multiplication that spreads the high bits down. Equal hashes are
  // checked against the tokens when they are looked up.
  uint64_t h = 0xCBF29CE484222325u;
  for (int64_t i = end - n + 1; i <= end; ++i) {
    h = (h ^ static_cast<uint32_t>(tokens_[static_cast<size_t>(i)])) * 0x100000001B3u;
  }
  return h ^ h >> 32;
}

// Adds the n-grams that end before `ends`.
void NgramSource::extend_index(Index& index, int64_t ends) {
  for (auto end = static_cast<int64_t>(index.displaced.size()); end < ends; ++end) {
    int32_t before = -1;
    if (end >= index.n - 1) {
      const auto [entry, added] =
          index.latest.try_emplace(hash(end, index.n), static_cast<int32_t>(end));
      if (!added) {
        before = entry->second;
        entry->second = static_cast<int32_t>(end);
      }
    }
    index.displaced.push_back(before);
  }
}

void NgramSource::shrink(Index& index, int64_t ends) {
  while (static_cast<int64_t>(index.displaced.size()) > ends) {
    const auto end = static_cast<int64_t>(index.displaced.size()) - 1;
    if (end >= index.n - 1) {
      const uint64_t key = hash(end, index.n);
      if (index.displaced.back() < 0) {
        index.latest.erase(key);
      } else {
        index.latest[key] = index.displaced.back();
      }
    }
    index.displaced.pop_back();
  }
}

// How many tokens up to `end` are those up to `last`, no more than kMatchCounted.
int32_t NgramSource::match_length(int64_t end, int64_t last) {
  int32_t n = 0;
  while (n < kMatchCounted && n <= end &&
         tokens_[static_cast<size_t>(end - n)] == tokens_[static_cast<size_t>(last - n)]) {
    ++n;
  }
  operations_ += n + 1;
  return n;
}

Proposal NgramSource::extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                             int n_max) {
  const auto size = static_cast<int64_t>(history.size());
  tokens_.insert(tokens_.end(), history.begin() + static_cast<ptrdiff_t>(tokens_.size()),
                 history.end());
  tokens_.insert(tokens_.end(), draft.begin(), draft.end());
  const auto last = static_cast<int64_t>(tokens_.size()) - 1;
  // All but the n-gram at the end, which would only find itself. Every length, found or not: one
  // that waited for its turn would have to catch up in a single step.
  for (Index& index : indexes_) extend_index(index, last);
  Proposal proposal;
  for (const Index& index : indexes_) {
    if (last < index.n) continue;  // no room for an earlier one
    const auto found = index.latest.find(hash(last, index.n));
    if (found == index.latest.end()) continue;
    const int32_t match = match_length(found->second, last);
    if (match < index.n) continue;
    proposal.tokens = continuation(tokens_, found->second + 1, n_max);
    proposal.match.assign(proposal.tokens.size(), match);
    operations_ += n_max;
    break;
  }
  truncate(size);
  return proposal;
}

void NgramSource::truncate(int64_t common) {
  if (common >= static_cast<int64_t>(tokens_.size())) return;
  // The n-gram at the new end goes too: there it would find itself.
  for (Index& index : indexes_) shrink(index, std::max<int64_t>(common - 1, 0));
  tokens_.resize(static_cast<size_t>(common));
}

}  // namespace lockstep::draft
