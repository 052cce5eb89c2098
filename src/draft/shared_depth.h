// How many tokens each of several sequences drafts that share a pass: as many as bring the most
// tokens a second of all of them together, by what passes of so many rows cost, what their sources
// take, and how often the drafts of each are right. It keeps no clock. The output never depends on
// it.
//
//   n = ask(streams, rows);  … proposals of n[i] tokens …
//   depth = choose(drafts, rows);  … one pass …  observe(…);
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "draft/auto_depth.h"
#include "draft/cost_curve.h"

namespace lockstep::draft {

class SharedDepth {
 public:
  static constexpr int kMostRows = 256;  // of a pass; no draft is made beyond

  SharedDepth();

  // Tokens to ask each source for, none more than its prospect has places. plain_rows: rows of the
  // pass without these drafts, one of each stream among them; those of prompts do not count.
  std::vector<int> ask(std::span<const AutoDepth::Prospect> streams, int plain_rows);
  // Of each draft, how many tokens to verify. right: as AutoDepth::follow_shared gives it.
  std::vector<int> choose(std::span<const std::vector<double>> right, int plain_rows);
  // What a pass of so many rows cost that all wanted logits, what drafting for it cost, and the
  // tokens it brought.
  void observe(int plain_rows, int rows, double pass_ms, double draft_ms, int64_t tokens);

  double pass_ms(int rows) const { return passes_.at(rows); }  // for tests

 private:
  struct Rate {
    double tokens = 0, ms = 0;
  };
  // Of each stream how many tokens, for the best sum.
  struct Split {
    std::vector<int> depths;
    std::vector<double> worth;  // by tokens in all: what they bring beyond what they take
    std::vector<size_t> order;  // streams that get the next token
    size_t best = 0;
    void take(size_t tokens);  // the depths of so many
  };
  Split split(std::span<const std::vector<double>> right, std::span<const double> token_ms,
              int plain_rows) const;
  // Milliseconds that are lost with so many tokens, by what is thought.
  static double loss_of(const Split& split, size_t tokens, double rate);
  std::optional<size_t> probe_of(const Split& split, int plain_rows, double rate) const;
  double tokens_per_ms(int plain_rows) const;
  bool affords(double ms) const;

  CostCurve passes_;
  std::array<Rate, kMostRows> rates_{};  // by plain rows: other streams are another rate
  double all_ms_ = 0, spent_ms_ = 0;     // of all, given for finding out
  double probe_worth_ = -1;              // tokens that this pass has to bring, if it is a probe
};

}  // namespace lockstep::draft
