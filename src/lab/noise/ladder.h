// A ladder of claimed records against the noise: which steps can be told from nothing?
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/noise/recipe.h"

namespace lockstep::lab::noise {

// Two single rows differ by more than noise, at 5 % two-sided, when they differ by more than
//   t(0.975, df) * s * sqrt(2),
// s the SD of one row among re-runs of one recipe, with df degrees of freedom.
struct Threshold {
  double sd = 0, df = 0, t = 0, difference = 0;
};
Threshold threshold(double sd, double df, double alpha = 0.05);

struct Step {
  double from = 0, to = 0;  // tok/s
  double difference = 0;
  bool told = false;                    // |difference| above the threshold
  std::optional<int64_t> rows_between;  // with a rate, launched after `from` up to and with `to`
  std::optional<double> by_luck;        // expected largest of so many equal rows: E_k * s
};

struct Ladder {
  std::string source;  // "promoted in the table", or "reported"
  std::vector<double> values;
  std::vector<Step> steps;
};

// The rows whose verdict is promoted, in time.
Ladder promoted_ladder(const Table& table, const Threshold& limit);
// Values from elsewhere: nothing is known about what lies between them.
Ladder reported_ladder(const std::vector<double>& values, const Threshold& limit);

}  // namespace lockstep::lab::noise
