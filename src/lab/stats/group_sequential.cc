#include "lab/stats/group_sequential.h"

#include <algorithm>
#include <cmath>

namespace lockstep::lab::stats {
namespace {

constexpr int kHalfGrid = 200;  // the density before a look is kept at 2 * kHalfGrid + 1 points

// Density of the Brownian path at the time of a look, of the paths that no look has stopped, at
// equidistant points of [-edge, edge], with Simpson's weights multiplied in.
struct Density {
  std::vector<double> x, mass;
};

double simpson_weight(int i, int n, double h) {
  return (i == 0 || i == n ? 1.0 : i % 2 == 1 ? 4.0 : 2.0) * h / 3;
}

template <typename At>
Density on_grid(double edge, At density_at) {
  Density out;
  const int n = 2 * kHalfGrid;
  const double h = 2 * edge / n;
  for (int i = 0; i <= n; ++i) {
    const double x = -edge + i * h;
    out.x.push_back(x);
    out.mass.push_back(density_at(x) * simpson_weight(i, n, h));
  }
  return out;
}

}  // namespace

double obrien_fleming_spending(double t, double alpha) {
  return 4 * (1 - normal_cdf(normal_quantile(1 - alpha / 4) / std::sqrt(t)));
}

GroupSequential::GroupSequential(std::span<const int64_t> looks, double alpha)
    : looks_(looks.begin(), looks.end()), alpha_(alpha) {
  Density before;
  double time_before = 0, spent_before = 0;
  for (const int64_t n : looks_) {
    const double time = static_cast<double>(n) / static_cast<double>(looks_.back());
    const double spent = obrien_fleming_spending(time, alpha);
    const double sd = std::sqrt(time - time_before);
    // Mass beyond |B| >= c sqrt(time) at this look.
    const auto stopped = [&](double c) {
      const double edge = c * std::sqrt(time);
      if (before.x.empty()) return 2 * normal_cdf(-c);
      double sum = 0;
      for (size_t i = 0; i < before.x.size(); ++i) {
        sum += before.mass[i] *
               (normal_cdf((-edge - before.x[i]) / sd) + normal_cdf((before.x[i] - edge) / sd));
      }
      return sum;
    };
    // A share too small for double arithmetic is not spent.
    double low = 0, high = 12;
    for (int i = 0; i < 60; ++i) {
      const double mid = 0.5 * (low + high);
      (stopped(mid) > spent - spent_before ? low : high) = mid;
    }
    const double c = high;
    z_.push_back(c);
    nominal_.push_back(2 * normal_cdf(-c));
    spent_.push_back(spent);
    const Density now = on_grid(c * std::sqrt(time), [&](double x) {
      if (before.x.empty()) return normal_pdf(x / sd) / sd;
      double sum = 0;
      for (size_t i = 0; i < before.x.size(); ++i) {
        sum += before.mass[i] * normal_pdf((x - before.x[i]) / sd) / sd;
      }
      return sum;
    });
    before = now;
    time_before = time;
    spent_before = spent;
  }
}

double GroupSequential::t_boundary(size_t look) const {
  const double df = static_cast<double>(looks_[look] - 1);
  return -student_t_quantile(std::max(nominal_[look] / 2, 1e-300), df);
}

Interval GroupSequential::repeated_interval(size_t look, double mean, double sd) const {
  const double reach = t_boundary(look) * sd / std::sqrt(static_cast<double>(looks_[look]));
  return {mean - reach, mean + reach};
}

}  // namespace lockstep::lab::stats
