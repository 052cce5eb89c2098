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

Proposal SuffixSource::propose(std::span<const int32_t> history, int n_max) {
  for (auto i = static_cast<size_t>(automaton_.size()); i < history.size(); ++i) {
    automaton_.append(history[i]);
  }
  const SuffixAutomaton::Repeat repeat = automaton_.longest_repeat();
  if (repeat.length < options_.shortest) return {};
  const int64_t n = std::min<int64_t>(n_max, repeat.length * options_.factor);
  return {continuation(history, repeat.end + 1, static_cast<int>(n)), {}};
}

void SuffixSource::truncate(int64_t common) {
  if (common < automaton_.size()) automaton_.clear();
}

}  // namespace lockstep::draft
