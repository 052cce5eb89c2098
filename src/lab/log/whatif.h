// What other draft lengths would have given, from the acceptance that a log shows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/log/analysis.h"

namespace lockstep::lab::log {

// Costs in milliseconds; what is not given is taken from the log.
struct StepCost {
  std::optional<double> verify_ms;  // a pass of one row
  std::optional<double> draft_ms;   // drafting one token
  std::optional<double> row_ms;     // each row of a pass beyond the first
};

struct Prediction {
  int64_t depth = 0;  // draft length; 0 is decoding without drafts
  double tokens_per_step = 0;
  double ms_per_step = 0;
  double tok_s = 0, tok_s_low = 0, tok_s_high = 0;
  bool beyond = false;  // deeper than the log's drafts: extrapolated
};

struct Whatif {
  bool positions_known = false;
  int64_t log_depth = 0;             // of the drafts in the log
  std::vector<double> per_position;  // share of verify steps, known or by the geometric assumption
  double mean_accepted = 0;          // tokens a verify step
  int64_t verify_steps = 0;
  double drafted_share = 1;  // steps with a draft among all
  double verify_ms = 0, draft_ms = 0, row_ms = 0;
  double measured_tok_s = 0;
  std::vector<Prediction> predictions;  // depth 0, then those asked for
  int64_t best = 0;                     // the depth with the highest rate
  std::vector<std::string> assumptions;
};

// Expected tokens of a verify step at a depth: 1 + the sum of the first `depth` shares.
double tokens_at(std::span<const double> per_position, int64_t depth);
// q with q + q^2 + ... + q^n = mean; 0 <= mean <= n.
double geometric_ratio(double mean, int64_t n);

// depths: 1 to 64 each. Intervals are 95 %: a cluster bootstrap over rows (Davison and Hinkley,
// "Bootstrap Methods and their Application", 1997, section 2.4) from 8 rows on, else by the
// variance of the accepted length over steps. Throws Error(check_failed) where the log cannot
// answer: no drafts, no fixed length, no cost for another depth, or positions that are not known
// and would decide which depth is best.
Whatif predict(const Analysis& analysis, std::span<const int64_t> depths, const StepCost& cost);

std::string whatif_text(const Whatif& whatif);

}  // namespace lockstep::lab::log
