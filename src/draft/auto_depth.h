// How many tokens to draft in this step: as many as bring the most tokens a second, by what passes
// and drafts have cost here so far and by how often drafts like this one were right. It keeps no
// clock: whoever decodes tells it what things took. The output never depends on it.
//
//   n = ask(room);  proposal = source.propose(history, n);  observe_draft(n, ms);
//   depth = choose(proposal, n);  … a pass of 1 + depth rows …  observe_pass(1 + depth, ms);
//   observe_tokens(committed);
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "draft/cost_curve.h"
#include "draft/source.h"

namespace lockstep::draft {

// How often drafts are right: for each part of a source, bucket of confidence or of match length,
// and place in the draft, the probability that a token is accepted, given that those before it are.
// Recent outcomes count more. What has been seen seldom leans on what it is a part of.
class AcceptanceTable {
 public:
  struct Key {
    uint8_t part = 0, bucket = 0, place = 0;
  };
  static Key key_of(const Proposal& proposal, size_t i);

  void observe(const Key& key, bool accepted, int64_t step);
  double probability(const Key& key) const;

 private:
  struct Count {
    double right = 0, all = 0;
    int64_t step = 0;  // of the latest outcome
  };
  static void add(Count& count, bool accepted, int64_t step);

  std::map<uint32_t, Count> counts_;  // by part; part and bucket; all three
};

class AutoDepth {
 public:
  static constexpr int kMaxDepth = 15;  // passes of up to 16 rows

  AutoDepth();

  // Tokens to ask the source for, 0 to min(room, kMaxDepth).
  int ask(int room);
  // Of the proposal that followed, which was asked for `asked` tokens, how many to verify.
  int choose(const Proposal& proposal, int asked);
  // What that cost. Times below zero, or not finite, are ignored.
  void observe_draft(int asked, double ms);
  void observe_pass(int width, double ms);
  // What was committed by the step: says how right the proposals were, verified or not.
  void observe_tokens(std::span<const int32_t> tokens);
  // Where other sequences share the pass (shared_depth.h): instead of ask(), what that goes by, and
  // instead of choose(). observe_draft() and observe_tokens() are as ever.
  struct Prospect {
    bool known = false;  // the source has drafted before
    double draft_token_ms = 0;
    std::vector<double>
        right;  // by place: that a draft's token is right, where those before it are
  };
  Prospect begin_shared(int room);
  std::vector<double> follow_shared(const Proposal& proposal, int asked);
  // Whether drafts are asked for at present.
  bool asks() const { return drafts_seen_ == 0 || last_asked_ >= step_ - 1; }
  // The text was cut or replaced: proposals made for it mean nothing any more.
  void forget_text();

  // For tests and results.
  double pass_ms(int width) const { return passes_.at(width); }

 private:
  // A proposal whose end the text has not reached yet, and has agreed with so far.
  struct Followed {
    Proposal proposal;
    int asked;
    size_t matched;
  };
  void begin_step();
  std::array<double, kMaxDepth> right_by_place() const;
  std::vector<double> right_of(const Proposal& proposal, int most) const;
  double tokens_per_ms() const;
  double expected_tokens(std::span<const double> probabilities, int depth) const;
  bool affords(double ms) const;
  bool plain_wanted() const;

  CostCurve passes_;           // by width
  double draft_token_ms_ = 0;  // of drafting, for each token asked for
  int64_t drafts_seen_ = 0;
  AcceptanceTable acceptance_;
  // Of all proposals together, by place: what to expect before there is one.
  std::array<double, kMaxDepth> place_right_{}, place_all_{};
  std::deque<Followed> followed_;

  int64_t step_ = 0;
  int64_t last_asked_ = -1;  // step
  bool catching_up_ = true;  // the source has text to read first: no time to learn from
  bool looking_ = false;     // this step's draft is to see how right it is, not to gain by it
  double recent_tokens_ = 0, recent_ms_ = 0;
  double all_ms_ = 0;
  double spent_ms_ = 0;         // of these, given for finding out
  double step_ms_ = 0;          // of this step so far
  bool passed_ = false;         // this step's pass has been seen
  double probe_expected_ = -1;  // tokens that this step's pass would have to bring, if a probe
};

}  // namespace lockstep::draft
