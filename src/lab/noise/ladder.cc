#include "lab/noise/ladder.h"

#include <cmath>

#include "lab/stats/distributions.h"
#include "lab/stats/selection.h"

namespace lockstep::lab::noise {
namespace {

Step step_between(double from, double to, const Threshold& limit) {
  Step out;
  out.from = from, out.to = to;
  out.difference = to - from;
  out.told = limit.df > 0 && std::abs(out.difference) > limit.difference;
  return out;
}

}  // namespace

Threshold threshold(double sd, double df, double alpha) {
  Threshold out{sd, df, 0, 0};
  if (df < 1) return out;
  out.t = stats::student_t_quantile(1 - alpha / 2, df);
  out.difference = out.t * sd * std::sqrt(2.0);
  return out;
}

Ladder promoted_ladder(const Table& table, const Threshold& limit) {
  Ladder out;
  out.source = "promoted in the table";
  int64_t since = 0;
  for (const size_t i : in_time(table)) {
    ++since;
    if (table.rows[i].verdict != "promoted") continue;
    const double value = table.rows[i].tok_s;
    if (!out.values.empty()) {
      Step step = step_between(out.values.back(), value, limit);
      step.rows_between = since;
      step.by_luck = stats::expected_largest(since) * limit.sd;
      out.steps.push_back(step);
    }
    out.values.push_back(value);
    since = 0;
  }
  return out;
}

Ladder reported_ladder(const std::vector<double>& values, const Threshold& limit) {
  Ladder out;
  out.source = "reported";
  out.values = values;
  for (size_t i = 1; i < values.size(); ++i) {
    out.steps.push_back(step_between(values[i - 1], values[i], limit));
  }
  return out;
}

}  // namespace lockstep::lab::noise
