#include "lab/stats/stopping.h"

#include <algorithm>
#include <cmath>

#include "lab/stats/distributions.h"

namespace lockstep::lab::stats {
namespace {

// The sum less its expectation lies on multiples of kStepU, the root of the squared deviations on
// multiples of kStepQ. New values are taken at multiples of kNode: the trapezoidal rule gives all
// moments of a normal density to better than 1e-15 at this step, and sums stay on their grid.
constexpr double kStepU = 0.125, kStepQ = 0.05, kNode = 0.5;
constexpr int kNodes = 10;          // on either side of 0
constexpr double kNothing = 1e-12;  // mass that is dropped

class Grid {
 public:
  Grid(int64_t n, double reach_u, double max_q)
      : n_(n),
        half_u_(static_cast<int>(std::ceil(reach_u / kStepU))),
        n_q_(static_cast<int>(std::ceil(max_q / kStepQ)) + 2),
        mass_(static_cast<size_t>(2 * half_u_ + 1) * static_cast<size_t>(n_q_), 0.0) {}

  int64_t n() const { return n_; }
  int half_u() const { return half_u_; }
  int n_q() const { return n_q_; }
  double& at(int u, int q) {
    return mass_[static_cast<size_t>(u + half_u_) * static_cast<size_t>(n_q_) +
                 static_cast<size_t>(q)];
  }
  // Mass at an in-between q is split so that its mean stays.
  void add(int u, double q, double mass) {
    u = std::clamp(u, -half_u_, half_u_);
    const double place = std::min(q / kStepQ, static_cast<double>(n_q_ - 2));
    const int below = static_cast<int>(place);
    const double part = place - below;
    at(u, below) += mass * (1 - part);
    at(u, below + 1) += mass * part;
  }

 private:
  int64_t n_;
  int half_u_, n_q_;
  std::vector<double> mass_;
};

Grid sized_for(int64_t n) {
  const double size = static_cast<double>(n);
  return {n, 6 * std::sqrt(size), std::sqrt(size) + 5};
}

// Sum and squared deviations of n normal values are independent: N(0, n) and chi-squared.
Grid start(int64_t n) {
  Grid grid = sized_for(n);
  const double root = std::sqrt(static_cast<double>(n)), df = static_cast<double>(n - 1);
  std::vector<double> q_mass(static_cast<size_t>(grid.n_q()), 0.0);
  // Cells around each multiple of kStepQ, by a fine sum over the chi density.
  constexpr int kFine = 40;
  const double h = kStepQ / kFine;
  double total = 0;
  for (int i = 0; i < (grid.n_q() - 1) * kFine; ++i) {
    const double q = (i + 0.5) * h;
    const double p = std::exp((df - 1) * std::log(q) - 0.5 * q * q);
    const double place = q / kStepQ;
    const auto below = static_cast<size_t>(place);
    const double part = place - static_cast<double>(below);
    q_mass[below] += p * (1 - part);
    q_mass[below + 1] += p * part;
    total += p;
  }
  for (int u = -grid.half_u(); u <= grid.half_u(); ++u) {
    const double p = normal_cdf((u + 0.5) * kStepU / root) - normal_cdf((u - 0.5) * kStepU / root);
    for (int q = 0; q < grid.n_q(); ++q) {
      grid.at(u, q) = p * q_mass[static_cast<size_t>(q)] / total;
    }
  }
  return grid;
}

Grid with_one_more(Grid& grid) {
  Grid next = sized_for(grid.n() + 1);
  const double n = static_cast<double>(grid.n());
  double weight[2 * kNodes + 1];
  for (int j = -kNodes; j <= kNodes; ++j) weight[j + kNodes] = kNode * normal_pdf(j * kNode);
  constexpr int kStride = static_cast<int>(kNode / kStepU);
  for (int u = -grid.half_u(); u <= grid.half_u(); ++u) {
    const double mean = u * kStepU / n;  // less the effect, as the new values are
    for (int q = 0; q < grid.n_q(); ++q) {
      const double mass = grid.at(u, q);
      if (mass < kNothing) continue;
      const double squares = q * kStepQ * (q * kStepQ);
      for (int j = -kNodes; j <= kNodes; ++j) {
        const double d = j * kNode - mean;
        next.add(u + j * kStride, std::sqrt(squares + n / (n + 1) * d * d),
                 mass * weight[j + kNodes]);
      }
    }
  }
  return next;
}

}  // namespace

StoppingProfile stopping_profile(std::span<const int64_t> looks, double effect,
                                 const StoppingRule& rule) {
  StoppingProfile out;
  out.looks.assign(looks.begin(), looks.end());
  const size_t n_looks = looks.size();
  out.high.assign(n_looks, 0), out.low.assign(n_looks, 0), out.futile.assign(n_looks, 0);
  Grid grid = start(looks[0]);
  for (size_t look = 0; look < n_looks; ++look) {
    while (grid.n() < looks[look]) grid = with_one_more(grid);
    const double n = static_cast<double>(grid.n());
    double left = 0;
    for (int u = -grid.half_u(); u <= grid.half_u(); ++u) {
      for (int q = 0; q < grid.n_q(); ++q) {
        double& mass = grid.at(u, q);
        if (mass < kNothing) continue;
        const double sd = std::max(q, 1) * kStepQ / std::sqrt(n - 1);
        switch (rule(look, grid.n(), effect + u * kStepU / n, sd)) {
          case Stop::go_on:
            left += mass;
            continue;
          case Stop::high:
            out.high[look] += mass;
            break;
          case Stop::low:
            out.low[look] += mass;
            break;
          case Stop::futile:
            out.futile[look] += mass;
            break;
        }
        mass = 0;
      }
    }
    const double stopped = out.high[look] + out.low[look] + out.futile[look];
    out.p_high += out.high[look];
    out.p_low += out.low[look];
    out.p_futile += out.futile[look];
    out.expected_n += n * (stopped + (look + 1 == n_looks ? left : 0));
    out.expected_n_high += n * out.high[look];
    out.p_unknown = left;
    if (left < 1e-7) break;
  }
  if (out.p_high > 0) out.expected_n_high /= out.p_high;
  return out;
}

}  // namespace lockstep::lab::stats
