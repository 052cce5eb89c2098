// Draft tokens from the longest suffix of this request that stood in it before. Source:
// SuffixDecoding (Oliaro et al., 2024), without its trees over other requests.
#pragma once

#include "draft/source.h"
#include "draft/suffix_automaton.h"

namespace lockstep::draft {

struct SuffixOptions {
  int64_t shortest = 3;  // a shorter match proposes nothing
  int factor = 2;        // tokens proposed at most for each token of the match
};

class SuffixSource final : public Source {
 public:
  // Throws Error(bad_use) unless both options are at least 1.
  explicit SuffixSource(SuffixOptions options = {});

  std::string name() const override { return "suffix"; }
  // After a draft, the repeat is looked for in the history alone. match: its length.
  Proposal extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                  int n_max) override;
  void observe(std::span<const int32_t>, int) override {}
  // The automaton can't shrink; it is built again when next asked.
  void truncate(int64_t common) override;

  // Steps inside the automaton since the start: what drafting costs, whatever the machine.
  int64_t operations() const { return automaton_.operations(); }

 private:
  SuffixOptions options_;
  SuffixAutomaton automaton_;
};

}  // namespace lockstep::draft
