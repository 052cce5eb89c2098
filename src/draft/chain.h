// Several sources, each drafting on from where those before it stopped: "chain:ngram+model" lets a
// lookup give what it finds, and a model the rest.
#pragma once

#include "draft/composite.h"

namespace lockstep::draft {

class ChainSource final : public CompositeSource {
 public:
  explicit ChainSource(Sources sources);  // "chain:ngram+model"

  // A source that has nothing is passed over: the next is asked in its place.
  Proposal extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                  int n_max) override;
  void observe(std::span<const int32_t> history, int accepted) override;

 private:
  std::vector<int> proposed_;  // tokens that each gave to the last proposal
};

}  // namespace lockstep::draft
