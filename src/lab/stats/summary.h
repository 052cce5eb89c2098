// Plain summaries of a sample.
#pragma once

#include <span>
#include <vector>

#include "lab/stats/distributions.h"

namespace lockstep::lab::stats {

double mean(std::span<const double> x);                // x not empty
double standard_deviation(std::span<const double> x);  // n - 1 below; at least two values
double median(std::span<const double> x);              // x not empty
// Quantile p in [0, 1] by linear interpolation between order statistics (type 7 of Hyndman and Fan,
// "Sample quantiles in statistical packages", American Statistician 1996). x not empty.
double quantile(std::span<const double> x, double p);
std::vector<double> sorted(std::span<const double> x);

// Interval for the SD of a normal sample from its n - 1 degrees of freedom by the chi-squared
// distribution; high is infinite for df < 1.
Interval sd_interval(double sd, double df, double level);

// The SD common to groups that each have a mean of their own: squared deviations from the groups'
// means over the sum of n - 1.
struct PooledSd {
  double sd = 0;
  double df = 0;  // 0: no group has two values, and sd says nothing
};
PooledSd pooled_sd(std::span<const std::vector<double>> groups);

}  // namespace lockstep::lab::stats
