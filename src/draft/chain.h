// Several sources, each drafting on from where those before it stopped: "chain:ngram+model" lets a
// lookup give what it finds, and a model the rest.
#pragma once

#include "draft/parts.h"

namespace lockstep::draft {

class ChainSource final : public Source {
 public:
  // At least one source, none null.
  explicit ChainSource(Sources sources);

  std::string name() const override;  // "chain:ngram+model"
  std::vector<std::string> parts() const override;
  // A source that has nothing is passed over: the next is asked in its place.
  Proposal extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                  int n_max) override;
  void observe(std::span<const int32_t> history, int accepted) override;
  void truncate(int64_t common) override;
  void set_sampling(const sample::Parameters& parameters) override;
  bool synthetic() const override;
  std::string take_fault() override;
  std::string file_sha256() const override;

 private:
  Sources sources_;
  std::vector<int> proposed_;  // tokens that each gave to the last proposal
};

}  // namespace lockstep::draft
