// For tests and benchmarks: proposes a recorded continuation in which each position is right with a
// chosen probability, so that any acceptance can be had from any model. Results made with it are
// synthetic.
#pragma once

#include "draft/source.h"

namespace lockstep::draft {

struct ReplayOptions {
  std::vector<int32_t> recording;  // prompt and continuation
  // Probability that the i-th token of a draft is right, given that those before it are; the last
  // one stands for all further positions.
  std::vector<double> rates = {1.0};
  uint64_t seed = 0;
  int64_t n_vocab = 0;
  std::string recording_sha256;  // of the file it came from, for results
};

class ReplaySource final : public Source {
 public:
  // Throws Error(bad_use) for a rate outside [0, 1], no rate, a vocabulary of less than two ids, or
  // a recorded id outside it.
  explicit ReplaySource(ReplayOptions options);

  std::string name() const override { return "replay"; }
  // Whether the token at an absolute position is drafted rightly depends on (seed, position) and,
  // where rates differ, its place in the draft. The first miss and all after it in this draft are
  // wrong ids. Nothing once the history, or the draft before,
  // has left the recording.
  Proposal extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                  int n_max) override;
  void observe(std::span<const int32_t>, int) override {}
  void truncate(int64_t common) override;
  bool synthetic() const override { return true; }
  std::string file_sha256() const override { return options_.recording_sha256; }

 private:
  ReplayOptions options_;
  int64_t compared_ = 0;  // tokens of the history known to be as recorded
};

}  // namespace lockstep::draft
