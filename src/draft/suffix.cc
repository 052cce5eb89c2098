#include "draft/suffix.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "draft/continuation.h"

namespace lockstep::draft {

SuffixSource::SuffixSource(SuffixOptions options) : options_(options) {
  if (options.shortest < 1 || options.factor < 1) {
    throw Error(ExitCode::bad_use,
                fmt::format("suffix: shortest match {} and factor {} must be at least 1",
                            options.shortest, options.factor));
  }
}

Proposal SuffixSource::extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                              int n_max) {
  for (auto i = static_cast<size_t>(automaton_.size()); i < history.size(); ++i) {
    automaton_.append(history[i]);
  }
  const SuffixAutomaton::Repeat repeat = automaton_.repeat_after(draft);
  if (repeat.length < options_.shortest) return {};
  const auto n = static_cast<int>(std::min<int64_t>(n_max, repeat.length * options_.factor));
  Proposal proposal;
  if (draft.empty()) {
    proposal.tokens = continuation(history, repeat.end + 1, n);
  } else {
    // What can be taken before it goes round: no more than n tokens, and those drafted.
    const int64_t from = repeat.end + 1, taken = std::min<int64_t>(n, std::ssize(history) - from);
    const auto piece = history.subspan(static_cast<size_t>(from), static_cast<size_t>(taken));
    std::vector<int32_t> tail(piece.begin(), piece.end());
    if (taken < n) tail.insert(tail.end(), draft.begin(), draft.end());
    proposal.tokens = continuation(tail, 0, n);
  }
  proposal.match.assign(proposal.tokens.size(), static_cast<int32_t>(repeat.length));
  return proposal;
}

void SuffixSource::truncate(int64_t common) {
  if (common < automaton_.size()) automaton_.clear();
}

}  // namespace lockstep::draft
