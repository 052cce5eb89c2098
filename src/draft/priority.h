// Several sources, asked in order: the first that proposes anything wins (llama.cpp's meaning of a
// comma list). All of them see every outcome.
#pragma once

#include "draft/composite.h"

namespace lockstep::draft {

class PrioritySource final : public CompositeSource {
 public:
  explicit PrioritySource(Sources sources);  // "ngram,model"

  Proposal extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                  int n_max) override;
  void observe(std::span<const int32_t> history, int accepted) override;

 private:
  size_t proposer_ = 0;
};

}  // namespace lockstep::draft
