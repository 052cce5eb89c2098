#include "lab/stats/series.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lab/stats/signed_rank.h"
#include "lab/stats/summary.h"

namespace lockstep::lab::stats {
namespace {

constexpr size_t kKendallExact = 100;

// P(at most k inversions in a random order of n values).
double inversions_cdf(int64_t k, int64_t n) {
  std::vector<double> p = {1};
  for (int64_t i = 2; i <= n; ++i) {
    std::vector<double> next(p.size() + static_cast<size_t>(i) - 1, 0.0);
    double window = 0;
    for (size_t s = 0; s < next.size(); ++s) {
      if (s < p.size()) window += p[s];
      if (s >= static_cast<size_t>(i)) window -= p[s - static_cast<size_t>(i)];
      next[s] = window / static_cast<double>(i);
    }
    p = std::move(next);
  }
  double sum = 0;
  for (int64_t s = 0; s <= k && s < static_cast<int64_t>(p.size()); ++s) {
    sum += p[static_cast<size_t>(s)];
  }
  return std::clamp(sum, 0.0, 1.0);
}

}  // namespace

std::vector<Outlier> tukey_outliers(std::span<const double> x) {
  std::vector<Outlier> out(x.size(), Outlier::none);
  if (x.size() < 4) return out;
  const double q1 = quantile(x, 0.25), q3 = quantile(x, 0.75), range = q3 - q1;
  for (size_t i = 0; i < x.size(); ++i) {
    const double beyond = std::max(q1 - x[i], x[i] - q3);
    if (beyond > 1.5 * range) out[i] = beyond > 3 * range ? Outlier::severe : Outlier::mild;
  }
  return out;
}

WarmUp warm_up(std::span<const double> firsts, std::span<const double> rests, double level) {
  WarmUp out;
  out.starts = static_cast<int64_t>(firsts.size());
  if (firsts.empty()) return out;
  std::vector<double> differences(firsts.size());
  for (size_t i = 0; i < firsts.size(); ++i) differences[i] = firsts[i] - rests[i];
  const SignedRankInterval centre = signed_rank_interval(differences, level);
  out.effect = centre.estimate;
  out.interval = centre.interval;
  out.attained = centre.attained;
  out.reached = centre.reached;
  out.found = centre.reached && !centre.interval.contains(0);
  return out;
}

size_t mser_truncation(std::span<const double> series) {
  if (series.size() < 10) return 0;
  size_t best = 0;
  double least = INFINITY;
  for (size_t d = 0; d <= series.size() / 2; ++d) {
    const auto rest = series.subspan(d);
    const double sd = standard_deviation(rest), n = static_cast<double>(rest.size());
    const double score = sd * sd * (n - 1) / (n * n);
    if (score < least) {
      least = score;
      best = d;
    }
  }
  return best;
}

std::optional<Drift> theil_sen(std::span<const double> x, std::span<const double> y, double level) {
  const size_t n = y.size();
  if (n < 5) return std::nullopt;
  std::vector<double> slopes;
  slopes.reserve(n * (n - 1) / 2);
  int64_t up = 0, down = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i + 1; j < n; ++j) {
      slopes.push_back((y[j] - y[i]) / (x[j] - x[i]));
      up += y[j] > y[i];
      down += y[j] < y[i];
    }
  }
  std::sort(slopes.begin(), slopes.end());
  const auto pairs = static_cast<double>(slopes.size());
  Drift out;
  out.slope = median(slopes);
  out.tau = static_cast<double>(up - down) / pairs;
  // Variance of up - down; ties in y lower it.
  const auto term = [](double t) { return t * (t - 1) * (2 * t + 5); };
  double variance = term(static_cast<double>(n));
  const std::vector<double> order = sorted(y);
  for (size_t i = 0; i < n;) {
    size_t j = i;
    while (j < n && order[j] == order[i]) ++j;
    variance -= term(static_cast<double>(j - i));
    i = j;
  }
  variance /= 18;
  const bool ties = up + down < static_cast<int64_t>(slopes.size());
  if (variance <= 0) {
    out.p = 1;
    out.interval = {slopes.front(), slopes.back()};
    return out;
  }
  if (!ties && n <= kKendallExact) {
    out.p = std::min(1.0, 2 * inversions_cdf(std::min(up, down), static_cast<int64_t>(n)));
  } else {
    const double s = std::max(0.0, std::abs(static_cast<double>(up - down)) - 1);
    out.p = std::min(1.0, 2 * normal_cdf(-s / std::sqrt(variance)));
  }
  const double reach = normal_quantile(0.5 + level / 2) * std::sqrt(variance);
  const auto rank = [&](double r) {
    return slopes[static_cast<size_t>(std::clamp(r, 0.0, pairs - 1))];
  };
  out.interval = {rank(std::floor((pairs - reach) / 2) - 1), rank(std::ceil((pairs + reach) / 2))};
  return out;
}

std::optional<Drift> theil_sen(std::span<const double> y, double level) {
  std::vector<double> x(y.size());
  std::iota(x.begin(), x.end(), 0.0);
  return theil_sen(x, y, level);
}

}  // namespace lockstep::lab::stats
