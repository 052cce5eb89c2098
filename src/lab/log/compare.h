// Splits a change of decode rate between two logs into what acceptance did, what the depth of the
// context did, and the rest.
#pragma once

#include <optional>
#include <string>

#include "lab/log/analysis.h"

namespace lockstep::lab::log {

// One side: its rate is tokens_per_step / ms_per_step.
struct Side {
  double tok_s = 0;
  double tokens_per_step = 0;
  double ms_per_step = 0;
  std::optional<double> context;          // mean positions while decoding
  std::optional<double> ms_per_position;  // slope of ms a step over context
};

// tok/s = tokens a step / (ms a step / 1000), so that
//   ln(b.tok_s / a.tok_s) = ln(tokens_b / tokens_a) - ln(ms_b / ms_a),
// and the second part is what the context's growth costs by the slope, and the rest. The parts are
// logarithms, so that they sum exactly.
struct Split {
  double total = 0;  // ln(b / a)
  double acceptance = 0;
  std::optional<double> context;  // nullopt: no slope, or no context known; then it is in rest
  double rest = 0;
  // A part's share of the total; nullopt where the total is nothing (below 1e-6).
  std::optional<double> share(double part) const;
};
Split split_change(const Side& a, const Side& b);

// A side from a log. Throws Error(check_failed) with the reason where its steps are not known.
Side side_of(const Analysis& analysis, const std::string& name);

// The slope of ms a step over context that both logs give together: the mean of their slopes
// weighted by precision; nullopt where neither has at least 5 rows and a slope.
std::optional<double> common_slope(const Analysis& a, const Analysis& b);

std::string compare_text(const std::string& name_a, const Side& a, const std::string& name_b,
                         const Side& b, const Split& split);

}  // namespace lockstep::lab::log
