// What is wrong with a series in the order of time: values far out, a first value unlike the
// others, a level that moves.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lab/stats/distributions.h"

namespace lockstep::lab::stats {

// Tukey's fences (Exploratory Data Analysis, 1977), as Criterion.rs classifies: beyond 1.5 and 3
// interquartile ranges from the quartiles. Classified, never removed.
enum class Outlier { none, mild, severe };
std::vector<Outlier> tukey_outliers(std::span<const double> x);  // all none for fewer than 4 values

// Warm-up across server starts: firsts[i] is the first row's log rate of start i, rests[i] the
// median of its later rows. The Hodges–Lehmann centre of firsts - rests with its exact interval.
struct WarmUp {
  int64_t starts = 0;
  double effect = 0;  // log ratio: below 0, first rows are slower
  Interval interval;
  double attained = 0;   // level of the interval
  bool reached = false;  // it reaches what was asked for: at least 6 starts at 95 %
  bool found = false;    // reached, and the interval excludes 0
};
WarmUp warm_up(std::span<const double> firsts, std::span<const double> rests, double level);

// How many values at the start to leave out so that the mean of the rest is most precise: MSER,
// White, "An effective truncation heuristic for bias reduction in simulation output", Simulation
// 1997. The d <= n/2 with the least sum of squared deviations over (n - d)^2; 0 for fewer than 10
// values.
size_t mser_truncation(std::span<const double> series);

// The median of all slopes between two values: Theil 1950; Sen, "Estimates of the regression
// coefficient based on Kendall's tau", JASA 1968. The test is Kendall's, exact up to 100 values
// without ties, by the normal approximation otherwise.
struct Drift {
  double slope = 0;   // per step of x
  Interval interval;  // Sen's, from the normal approximation to Kendall's distribution
  double p = 1;       // two-sided
  double tau = 0;     // Kendall's
};
// x rises strictly; nullopt for fewer than 5 values.
std::optional<Drift> theil_sen(std::span<const double> x, std::span<const double> y, double level);
std::optional<Drift> theil_sen(std::span<const double> y, double level);  // x = 0, 1, 2, …

}  // namespace lockstep::lab::stats
