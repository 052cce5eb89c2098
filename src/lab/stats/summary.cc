#include "lab/stats/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace lockstep::lab::stats {

double mean(std::span<const double> x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

double standard_deviation(std::span<const double> x) {
  const double m = mean(x);
  double sum = 0;
  for (const double v : x) sum += (v - m) * (v - m);
  return std::sqrt(sum / static_cast<double>(x.size() - 1));
}

std::vector<double> sorted(std::span<const double> x) {
  std::vector<double> out(x.begin(), x.end());
  std::sort(out.begin(), out.end());
  return out;
}

double quantile(std::span<const double> x, double p) {
  const std::vector<double> order = sorted(x);
  const double at = p * static_cast<double>(order.size() - 1);
  const auto below = static_cast<size_t>(std::floor(at));
  const size_t above = std::min(below + 1, order.size() - 1);
  return order[below] + (at - static_cast<double>(below)) * (order[above] - order[below]);
}

double median(std::span<const double> x) {
  return quantile(x, 0.5);
}

Interval sd_interval(double sd, double df, double level) {
  if (df < 1) return {0, std::numeric_limits<double>::infinity()};
  const double tail = (1 - level) / 2;
  return {sd * std::sqrt(df / chi_squared_quantile(1 - tail, df)),
          sd * std::sqrt(df / chi_squared_quantile(tail, df))};
}

PooledSd pooled_sd(std::span<const std::vector<double>> groups) {
  double sum = 0, df = 0;
  for (const std::vector<double>& group : groups) {
    if (group.size() < 2) continue;
    const double m = mean(group);
    for (const double v : group) sum += (v - m) * (v - m);
    df += static_cast<double>(group.size() - 1);
  }
  return {df > 0 ? std::sqrt(sum / df) : 0, df};
}

}  // namespace lockstep::lab::stats
