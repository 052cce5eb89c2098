#include "draft/priority.h"

namespace lockstep::draft {

PrioritySource::PrioritySource(Sources sources) : CompositeSource(std::move(sources), "", ',') {}

Proposal PrioritySource::extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                                int n_max) {
  size_t first_part = 0;
  bool behind = false;
  for (proposer_ = 0; proposer_ < sources().size(); ++proposer_) {
    Proposal proposal = sources()[proposer_]->extend(history, draft, n_max);
    behind |= proposal.behind;
    if (!proposal.tokens.empty()) {
      number_parts(proposal, first_part);
      return proposal;
    }
    first_part += sources()[proposer_]->parts().size();
  }
  Proposal none;
  none.behind = behind;
  return none;
}

void PrioritySource::observe(std::span<const int32_t> history, int accepted) {
  for (size_t i = 0; i < sources().size(); ++i) {
    sources()[i]->observe(history, i == proposer_ ? accepted : 0);
  }
}

}  // namespace lockstep::draft
